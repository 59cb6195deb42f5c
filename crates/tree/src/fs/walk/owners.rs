//! The parts of records that many files share: owner, mode, attributes and numbers of links.

use std::collections::HashMap;

use crate::{RecordTable, Scratch};

/// Records that are known by content; of more, some are stored again. A tree has dozens.
const KNOWN_MAX: usize = 1 << 12;

/// Numbered records. One that was added not long ago is not stored again.
pub(super) struct OwnerTable {
    records: RecordTable<6>,
    known: HashMap<[u32; 6], u32>,
    /// The one that was added last, which the next file has most often.
    last: Option<([u32; 6], u32)>,
}

impl OwnerTable {
    pub(super) fn new(scratch: &Scratch) -> OwnerTable {
        OwnerTable {
            records: RecordTable::new(scratch),
            known: HashMap::new(),
            last: None,
        }
    }

    /// The number of this record. There are never more than files and their changes.
    pub(super) fn number(&mut self, record: [u32; 6]) -> u32 {
        if let Some((last, number)) = self.last
            && last == record
        {
            return number;
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        let number = *self.known.entry(record).or_insert_with(|| {
            self.records.push(record);
            self.records.len() as u32 - 1
        });
        self.last = Some((record, number));
        number
    }

    #[inline]
    pub(super) fn with<T>(&self, number: u32, read: impl Fn(&[u32; 6]) -> T) -> T {
        self.records.with(number as usize, read)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.records.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_stored_once_while_they_are_known() {
        let mut table = OwnerTable::new(&Scratch::memory());
        for round in 0..3 {
            for uid in 0..100 {
                assert_eq!(table.number([uid, 0, 1, 1, 0, 0]), uid, "{round}");
            }
        }
        assert_eq!(table.records.len(), 100);
        // More than are known: each number still has its record.
        let numbers: Vec<u32> = (0..3 * KNOWN_MAX as u32)
            .map(|uid| table.number([uid, 7, 1, 1, 0, 0]))
            .collect();
        for (uid, number) in (0..).zip(numbers) {
            assert_eq!(table.records.get(number as usize), [uid, 7, 1, 1, 0, 0]);
        }
        assert!(table.known.len() <= KNOWN_MAX);
    }
}
