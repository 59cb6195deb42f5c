//! The files that were met, by their numbers.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

/// Finds the index of a file by its number.
///
/// Almost all files have one name, and are never looked for again. So of all numbers, it is only
/// known which were met, in little more than a bit if they follow each other, and only files with
/// several names can be found at once.
#[derive(Debug, Default)]
pub(super) struct InodeIndex {
    /// By number / 64: a bit for each number that was met.
    met: HashMap<u64, u64>,
    /// A key of `met`, and bits that it lacks: adjacent numbers are met one after another.
    last: (u64, u64),
    /// Those that can be found.
    findable: HashTable<u32>,
    /// All files can be found.
    is_complete: bool,
    hasher: RandomState,
}

impl InodeIndex {
    /// Returns the file with this number if it was met, and notes that it is met now. `files` are
    /// those that were added, and `ino_of` gives their numbers.
    pub(super) fn meet(
        &mut self,
        ino: u64,
        files: impl Iterator<Item = u32>,
        ino_of: impl Fn(u32) -> u64,
    ) -> Option<u32> {
        let (group, bit) = (ino / 64, 1 << (ino % 64));
        if group != self.last.0 {
            *self.met.entry(self.last.0).or_default() |= self.last.1;
            self.last = (group, self.met.get(&group).copied().unwrap_or_default());
        }
        if self.last.1 & bit == 0 {
            self.last.1 |= bit;
            return None;
        }
        if let Some(file) = self.found(ino, &ino_of) {
            return Some(file);
        }
        // It has more names than its container states.
        self.is_complete = true;
        self.findable.clear();
        for file in files {
            self.make_findable(file, &ino_of);
        }
        self.found(ino, &ino_of)
    }

    fn found(&self, ino: u64, ino_of: impl Fn(u32) -> u64) -> Option<u32> {
        let is_it = |&file: &u32| ino_of(file) == ino;
        let found = self.findable.find(self.hasher.hash_one(ino), is_it);
        found.copied()
    }

    /// Adds a file whose number was met. `has_names` is whether its container states that it has
    /// several names.
    pub(super) fn add(&mut self, file: u32, has_names: bool, ino_of: impl Fn(u32) -> u64) {
        if has_names || self.is_complete {
            self.make_findable(file, &ino_of);
        }
    }

    fn make_findable(&mut self, file: u32, ino_of: &impl Fn(u32) -> u64) {
        if self.findable.len() == self.findable.capacity() {
            self.make_room(ino_of);
        }
        self.insert(file, ino_of);
    }

    fn insert(&mut self, file: u32, ino_of: &impl Fn(u32) -> u64) {
        let hasher = &self.hasher;
        let hash = |&file: &u32| hasher.hash_one(ino_of(file));
        self.findable.insert_unique(hash(&file), file, hash);
    }

    /// Makes room for twice as many. The table itself would look at the files in the order of their
    /// hashes.
    fn make_room(&mut self, ino_of: &impl Fn(u32) -> u64) {
        let mut files: Vec<u32> = self.findable.drain().collect();
        files.sort_unstable();
        self.findable = HashTable::new(); // That gives its memory back first.
        self.findable.reserve((2 * files.len()).max(16), |_| 0);
        for file in files {
            self.insert(file, ino_of);
        }
    }
}
