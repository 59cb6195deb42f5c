//! A part of an inventory, and one with a further file.

use std::collections::HashMap;

use super::{EntryId, FileId, FileRecord, Inventory, NameRecord, OwnerRecord};
use crate::fs::{FileKind, FileSystem, Ino, Time};
use crate::{Error, Result, Scratch, wide_u64};

/// Stands for a file that has no number yet.
const NONE: u32 = u32::MAX;

impl<'t> Inventory<'t> {
    /// The same tree without some names and all below them. A file is left out with its last
    /// name; one that loses its first name only has another first name.
    #[must_use]
    pub fn without(&self, is_left_out: impl Fn(EntryId) -> bool) -> Inventory<'t> {
        self.changed(self.tree, is_left_out, Ino(0), &HashMap::new())
    }

    /// The same files of another `tree`, in which the character device 0:0 with this number has
    /// further names, by their directories and sorted.
    ///
    /// # Errors
    /// [`Error::Limit`] for more names than an inventory can have.
    pub(crate) fn with_names<'n>(
        &self,
        tree: &'n dyn FileSystem,
        ino: Ino,
        names: &HashMap<FileId, Vec<&[u8]>>,
    ) -> Result<Inventory<'n>> {
        let count: usize = names.values().map(Vec::len).sum();
        let bytes: usize = names.values().flatten().map(|name| name.len() + 1).sum();
        let count = self.entries.len().saturating_add(count);
        let bytes = self.names.len().saturating_add(bytes);
        if u32::try_from(count).is_err() || u32::try_from(bytes).is_err() {
            return Err(Error::Limit("names in a layer"));
        }
        Ok(self.changed(tree, |_| false, ino, names))
    }

    fn changed<'n>(
        &self,
        tree: &'n dyn FileSystem,
        is_left_out: impl Fn(EntryId) -> bool,
        device: Ino,
        further: &HashMap<FileId, Vec<&[u8]>>,
    ) -> Inventory<'n> {
        let mut rest = Inventory::new(tree, &Scratch::memory());
        let mut numbers = vec![NONE; self.files.len()];
        rest.take(self, self.root(), 0, &mut numbers);
        let mut device_number = NONE;
        let mut add = |rest: &mut Inventory<'n>, name: &[u8], parent| {
            if device_number == NONE {
                device_number = rest.push_device(device, !self.times.is_empty());
            } else {
                rest.change(device_number, |record| {
                    record.owner.names += 1;
                    record.owner.nlink += 1;
                });
            }
            rest.push_name(name, parent, device_number);
        };
        // Directories still to be copied, by their old and new number, the next one last.
        let mut open = vec![(self.file(self.root()), 0u32)];
        while let Some((dir, number)) = open.pop() {
            let start = rest.entry_count();
            let dirs_before = open.len();
            let names = further.get(&dir).map_or(&[][..], Vec::as_slice);
            let mut names = names.iter().peekable();
            for entry in self.entries(dir).filter(|&entry| !is_left_out(entry)) {
                while let Some(name) = names.next_if(|name| ***name < *self.name(entry)) {
                    add(&mut rest, name, number);
                }
                let child = rest.take(self, entry, number, &mut numbers);
                let file = self.file(entry);
                if self.kind(file) == FileKind::Directory {
                    open.push((file, child));
                }
            }
            names.for_each(|name| add(&mut rest, name, number));
            let end = rest.entry_count();
            let range = wide_u64(end, start);
            rest.change(number, |record| record.size = range);
            open[dirs_before..].reverse();
        }
        rest.find_first_names();
        rest
    }

    /// Appends a character device 0:0, and returns its number.
    fn push_device(&mut self, ino: Ino, has_times: bool) -> u32 {
        let number = self.file_count();
        let record = FileRecord {
            ino: ino.0,
            size: 0,
            mtime: self.pack_time(Time::default()),
            owner: OwnerRecord {
                uid: 0,
                gid: 0,
                nlink: 1,
                names: 1,
                attributes: 0,
                permissions: 0,
                kind: FileKind::CharDevice,
                has_times: 0,
            },
        };
        self.push(&record, self.entry_count());
        if has_times {
            self.times.push([0; 9]);
        }
        number
    }

    fn push_name(&mut self, name: &[u8], parent: u32, file: u32) {
        let entry = NameRecord {
            name_at: self.names.push(name) as u32, // the callers know the sum
            parent,
        };
        self.push_entry(entry, file);
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
        self.push_name(&from.name(entry), parent, file);
        file
    }
}
