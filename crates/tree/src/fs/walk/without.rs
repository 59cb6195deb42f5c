//! A part of an inventory.

use super::{EntryId, Inventory, NameRecord};
use crate::fs::FileKind;
use crate::{Scratch, wide_u64};

/// Stands for a file that has no number yet.
const NONE: u32 = u32::MAX;

impl<'t> Inventory<'t> {
    /// The same tree without some names and all below them. A file is left out with its last
    /// name; one that loses its first name only has another first name.
    #[must_use]
    pub fn without(&self, is_left_out: impl Fn(EntryId) -> bool) -> Inventory<'t> {
        let mut rest = Inventory::new(self.tree, &Scratch::memory());
        let mut numbers = vec![NONE; self.files.len()];
        rest.take(self, self.root(), 0, &mut numbers);
        // Directories still to be copied, by their old and new number, the next one last.
        let mut open = vec![(self.file(self.root()), 0u32)];
        while let Some((dir, number)) = open.pop() {
            let start = rest.entry_count();
            let dirs_before = open.len();
            for entry in self.entries(dir).filter(|&entry| !is_left_out(entry)) {
                let child = rest.take(self, entry, number, &mut numbers);
                let file = self.file(entry);
                if self.kind(file) == FileKind::Directory {
                    open.push((file, child));
                }
            }
            let end = rest.entry_count();
            let range = wide_u64(end, start);
            rest.change(number, |record| record.size = range);
            open[dirs_before..].reverse();
        }
        rest.find_first_names();
        rest
    }

    /// Appends a name of another inventory, and its file unless that is here already. Returns the
    /// file's number.
    fn take(&mut self, from: &Inventory, entry: EntryId, parent: u32, numbers: &mut [u32]) -> u32 {
        let old = from.file(entry);
        let mut file = numbers[old.0 as usize];
        if file == NONE {
            file = self.file_count();
            numbers[old.0 as usize] = file;
            let mut record = from.record(old);
            record.mtime = self.pack_time(from.unpack_time(record.mtime));
            record.owner.names = 1;
            self.push(&record, self.entry_count());
            if !from.times.is_empty() {
                self.times.push(from.other_times(old));
            }
            if from.kind(old) == FileKind::Regular {
                self.content_bytes += from.size(old);
            }
        } else {
            self.change(file, |record| record.owner.names += 1);
        }
        let name = from.name(entry);
        let entry = NameRecord {
            name_at: self.names.push(&name) as u32, // never more than in `from`
            parent,
        };
        self.push_entry(entry, file);
        file
    }
}
