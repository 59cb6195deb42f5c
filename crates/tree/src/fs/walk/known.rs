//! The files that a walk has met, by their numbers.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use super::{FileId, Inventory};
use crate::fs::Ino;

/// Finds files of an inventory by their numbers.
///
/// Almost all files have one name, and are never looked for again. So of all numbers, it is only
/// known which were met, in little more than a bit if they follow each other, and only files with
/// several names can be found at once.
#[derive(Default)]
pub(super) struct InodeIndex {
    /// By number / 64: a bit for each number that was met.
    met: HashMap<u64, u64>,
    /// Those that can be found.
    findable: HashTable<u32>,
    /// All files can be found.
    is_complete: bool,
    hasher: RandomState,
}

impl InodeIndex {
    /// The file with this number, if it was met.
    pub(super) fn find(&mut self, inventory: &Inventory, ino: Ino) -> Option<u32> {
        let met = self.met.get(&(ino.0 / 64));
        if met.is_none_or(|bits| bits & (1u64 << (ino.0 % 64)) == 0) {
            return None;
        }
        if let Some(file) = self.found(inventory, ino) {
            return Some(file);
        }
        // It has more names than its container states.
        self.is_complete = true;
        self.findable.clear();
        for file in inventory.files() {
            self.make_findable(inventory, file.0);
        }
        self.found(inventory, ino)
    }

    fn found(&self, inventory: &Inventory, ino: Ino) -> Option<u32> {
        let is_it = |&file: &u32| inventory.ino(FileId(file)) == ino;
        let found = self.findable.find(self.hasher.hash_one(ino.0), is_it);
        found.copied()
    }

    /// Adds a file that was not met before. `has_names` is whether its container states that it has
    /// several names.
    pub(super) fn add(&mut self, inventory: &Inventory, file: u32, ino: Ino, has_names: bool) {
        *self.met.entry(ino.0 / 64).or_default() |= 1 << (ino.0 % 64);
        if has_names || self.is_complete {
            self.make_findable(inventory, file);
        }
    }

    fn make_findable(&mut self, inventory: &Inventory, file: u32) {
        if self.findable.len() == self.findable.capacity() {
            self.make_room(inventory);
        }
        self.insert(inventory, file);
    }

    fn insert(&mut self, inventory: &Inventory, file: u32) {
        let hasher = &self.hasher;
        let hash = |&file: &u32| hasher.hash_one(inventory.ino(FileId(file)).0);
        self.findable.insert_unique(hash(&file), file, hash);
    }

    /// Makes room for twice as many. The table itself would look at the files in the order of their
    /// hashes.
    fn make_room(&mut self, inventory: &Inventory) {
        let mut files: Vec<u32> = self.findable.drain().collect();
        files.sort_unstable();
        self.findable = HashTable::new(); // That gives its memory back first.
        self.findable.reserve((2 * files.len()).max(16), |_| 0);
        for file in files {
            self.insert(inventory, file);
        }
    }
}
