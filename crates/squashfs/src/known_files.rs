//! Small files by keys of their content, in little more memory than the keys and numbers take.

use std::hash::{BuildHasher, RandomState};

use tree::FileId;

/// A table and the larger one that takes its place are in memory together, so these are small, and
/// grow one after another.
const TABLES: usize = 64;

/// No file: all numbers are below one of 32 bits.
const EMPTY: FileId = FileId(u32::MAX);

/// Files by keys. Each takes 9.1 to 10.3 bytes: tables are at most 7/8 full, and grow by an
/// eighth, where those of the standard library double.
pub(crate) struct KnownFiles {
    tables: Vec<KeyTable>,
    /// An odd number by which keys are spread: content can be made so that its keys lie side by
    /// side, but not their products with a number of this process.
    spread: u64,
}

#[derive(Clone, Default)]
struct KeyTable {
    /// A file is in the first free place from that of its key on, past the end from the start.
    places: Vec<(u32, FileId)>,
    used: usize,
}

impl KnownFiles {
    pub(crate) fn new() -> Self {
        KnownFiles {
            tables: vec![KeyTable::default(); TABLES],
            spread: RandomState::new().hash_one(0) | 1,
        }
    }

    /// The file with this key, whose table 6 bits of `high` choose; if there is none, it is `file`
    /// from now on.
    pub(crate) fn first(&mut self, high: u64, key: u32, file: FileId) -> Option<FileId> {
        let table = &mut self.tables[high as usize % TABLES];
        if table.used + table.used / 7 >= table.places.len() {
            table.grow(self.spread);
        }
        let place = table.find(key, self.spread);
        let known = table.places[place].1;
        if known != EMPTY {
            return Some(known);
        }
        table.places[place] = (key, file);
        table.used += 1;
        None
    }
}

impl KeyTable {
    /// The place of a key, or the free one where it would be.
    fn find(&self, key: u32, spread: u64) -> usize {
        // In proportion to the product, for any number of places.
        let count = self.places.len();
        let start = (u128::from(spread.wrapping_mul(key.into())) * count as u128) >> 64;
        let (before, after) = self.places.split_at(start as usize);
        let mut places = after.iter().chain(before);
        let steps = places.position(|(other, file)| *other == key || *file == EMPTY);
        (start as usize + steps.expect("it is not full")) % count
    }

    fn grow(&mut self, spread: u64) {
        let count = self.places.len() + self.places.len() / 8 + 8;
        let old = std::mem::replace(&mut self.places, vec![(0, EMPTY); count]);
        for (key, file) in old.into_iter().filter(|(_, file)| *file != EMPTY) {
            let place = self.find(key, spread);
            self.places[place] = (key, file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// As a map of the standard library, in less memory, also with keys that are side by side.
    #[test]
    fn the_first_file_of_each_key_is_found() {
        let mut rng = testkit::Rng::new(1);
        for bits in [64, 18, 8] {
            let (mut known, mut model) = (KnownFiles::new(), HashMap::new());
            for number in 0..100_000 {
                let hash = rng.next_u64() & (u64::MAX >> (64 - bits));
                let file = FileId(number);
                let first = *model.entry(hash & 0x3F_FFFF_FFFF).or_insert(file);
                let found = known.first(hash >> 32, hash as u32, file);
                assert_eq!(found, Some(first).filter(|first| *first != file));
            }
            for table in &known.tables {
                let bytes = table.places.len() * size_of::<(u32, FileId)>();
                assert!(bytes as f64 <= 10.3 * table.used as f64 + 128.0, "{bytes}");
            }
            let used: usize = known.tables.iter().map(|table| table.used).sum();
            assert_eq!(used, model.len());
        }
    }
}
