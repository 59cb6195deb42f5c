//! The names of an overlay, all of them in one table: an archive or a stream can have millions.

use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

use super::tables::{DirId, NodeId, push};
use crate::fs::Ino;
use crate::{Error, RecordTable, Result, Scratch, Strings};

/// Instead of the index of an entry: there is none.
const NONE: u32 = u32::MAX;
/// Directories with more names have a table to find them.
const LISTED_MAX: u32 = 8;
/// Bytes of removed names that are kept in any case.
const GARBAGE_MIN: usize = 64 << 10;

/// The names that directories have of their own, or hide from the base.
#[derive(Clone)]
pub(super) struct NameTable {
    dirs: Vec<DirectoryNames>,
    /// Each is a [`NameLink`].
    entries: RecordTable<5>,
    scratch: Scratch,
    hasher: RandomState,
    /// The names of the entries.
    bytes: Strings,
    /// How many of `bytes` belong to removed names.
    garbage: usize,
    /// The first removed entry; its `next` is the second.
    removed: Option<u32>,
}

#[derive(Clone)]
struct DirectoryNames {
    /// The directory of the base whose names it also has.
    base: Option<Ino>,
    /// The entry that was added last; its `next` is the one before.
    first: u32,
    count: u32,
    /// The entries by the hash of their names.
    table: Option<Box<HashTable<u32>>>,
}

#[derive(Clone, Copy)]
struct NameLink {
    name_at: u32,
    /// `None` hides a name of the base.
    node: Option<NodeId>,
    next: u32,
    previous: u32,
    /// The hash of the name, if it is in a table.
    hash: u32,
}

const _: () = assert!(size_of::<DirectoryNames>() == 32);

impl NameLink {
    fn pack(&self) -> [u32; 5] {
        let node = self.node.map_or(0, NodeId::number);
        [self.name_at, node, self.next, self.previous, self.hash]
    }

    fn unpack([name_at, node, next, previous, hash]: [u32; 5]) -> NameLink {
        NameLink {
            name_at,
            node: NodeId::of(node),
            next,
            previous,
            hash,
        }
    }
}

impl NameTable {
    pub(super) fn new(scratch: &Scratch) -> NameTable {
        NameTable {
            dirs: Vec::new(),
            entries: RecordTable::new(scratch),
            scratch: scratch.clone(),
            hasher: RandomState::new(),
            bytes: Strings::new(scratch),
            garbage: 0,
            removed: None,
        }
    }

    fn entry(&self, index: u32) -> NameLink {
        NameLink::unpack(self.entries.get(index as usize))
    }

    fn change(&mut self, index: u32, change: impl FnOnce(&mut NameLink)) {
        let mut entry = self.entry(index);
        change(&mut entry);
        self.entries.set(index as usize, entry.pack());
    }

    /// Adds a directory without names of its own. There are no more of them than nodes, so that the
    /// index fits.
    pub(super) fn add_dir(&mut self, base: Option<Ino>) -> DirId {
        let id = DirId::of(self.dirs.len() as u32);
        let dir = DirectoryNames {
            base,
            first: NONE,
            count: 0,
            table: None,
        };
        push(&mut self.dirs, dir);
        id
    }

    fn dir(&self, dir: DirId) -> &DirectoryNames {
        &self.dirs[dir.index()]
    }

    /// The directory of the base whose names it also has.
    pub(super) fn base(&self, dir: DirId) -> Option<Ino> {
        self.dir(dir).base
    }

    /// How many names a directory has of its own or hides.
    pub(super) fn count(&self, dir: DirId) -> usize {
        self.dir(dir).count as usize
    }

    /// The target of a name: a node, or nothing if it hides one of the base.
    pub(super) fn find(&self, dir: DirId, name: &[u8]) -> Option<Option<NodeId>> {
        let entry = self.find_entry(self.dir(dir), name)?;
        Some(self.entry(entry).node)
    }

    fn find_entry(&self, dir: &DirectoryNames, name: &[u8]) -> Option<u32> {
        if let Some(table) = &dir.table {
            let hash = self.hash(name);
            let found = table.find(wide(hash), |&index| {
                let entry = self.entry(index);
                entry.hash == hash && *self.name(&entry) == *name
            });
            return found.copied();
        }
        self.list(dir)
            .find(|&index| *self.name(&self.entry(index)) == *name)
    }

    /// The entries of a directory, the last one first.
    fn list(&self, dir: &DirectoryNames) -> impl Iterator<Item = u32> {
        let some = |index: u32| (index != NONE).then_some(index);
        std::iter::successors(some(dir.first), move |&index| some(self.entry(index).next))
    }

    /// The names of a directory, sorted.
    pub(super) fn sorted(&self, dir: DirId) -> Vec<(Cow<'_, [u8]>, Option<NodeId>)> {
        let dir = self.dir(dir);
        let mut names = Vec::with_capacity(dir.count as usize);
        for index in self.list(dir) {
            let entry = self.entry(index);
            names.push((self.name(&entry), entry.node));
        }
        names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        names
    }

    /// Ensures that both names can be added.
    ///
    /// # Errors
    /// [`Error::Limit`].
    pub(super) fn reserve(&mut self, name: &[u8], other: &[u8]) -> Result<()> {
        if name.len().max(other.len()) > 255 {
            return Err(Error::Limit("bytes of a name"));
        }
        if self.garbage > GARBAGE_MIN.max(self.bytes.len() / 2) {
            self.compact();
        }
        let end = self.bytes.len() + name.len() + other.len() + 2;
        if end > u32::MAX as usize || self.entries.len() + 2 >= NONE as usize {
            return Err(Error::Limit("names of an overlay"));
        }
        Ok(())
    }

    /// Gives a name to a node, or hides it, and returns its former target. There must be
    /// [room](Names::reserve) for it.
    pub(super) fn insert(
        &mut self,
        dir: DirId,
        name: &[u8],
        node: Option<NodeId>,
    ) -> Option<NodeId> {
        if let Some(known) = self.find_entry(self.dir(dir), name) {
            let old = self.entry(known).node;
            self.change(known, |entry| entry.node = node);
            return old;
        }
        let directory = &mut self.dirs[dir.index()];
        let mut entry = NameLink {
            name_at: self.bytes.len() as u32,
            node,
            next: directory.first,
            previous: NONE,
            hash: 0,
        };
        self.bytes.push(name);
        if directory.table.is_some() {
            entry.hash = short(self.hasher.hash_one(name));
        }
        let index = match self.removed {
            None => {
                self.entries.push(entry.pack());
                self.entries.len() as u32 - 1
            }
            Some(index) => {
                let next = self.entry(index).next;
                self.removed = (next != NONE).then_some(next);
                self.entries.set(index as usize, entry.pack());
                index
            }
        };
        if entry.next != NONE {
            self.change(entry.next, |next| next.previous = index);
        }
        let directory = &mut self.dirs[dir.index()];
        directory.first = index;
        directory.count += 1;
        if let Some(table) = &mut directory.table {
            let entries = &self.entries;
            let rehash = |&index: &u32| wide(NameLink::unpack(entries.get(index as usize)).hash);
            table.insert_unique(wide(entry.hash), index, rehash);
        } else if directory.count > LISTED_MAX {
            self.add_table(dir);
        }
        None
    }

    /// Gives a directory a table.
    fn add_table(&mut self, dir: DirId) {
        let mut table = HashTable::new();
        let mut at = self.dir(dir).first;
        while at != NONE {
            let hash = self.hash(&self.name(&self.entry(at)));
            self.change(at, |entry| entry.hash = hash);
            let rehash = |&index: &u32| wide(self.entry(index).hash);
            table.insert_unique(wide(hash), at, rehash);
            at = self.entry(at).next;
        }
        self.dirs[dir.index()].table = Some(Box::new(table));
    }

    /// Removes a name.
    pub(super) fn remove(&mut self, dir: DirId, name: &[u8]) {
        let Some(index) = self.find_entry(self.dir(dir), name) else {
            return;
        };
        let NameLink {
            name_at,
            next,
            previous,
            hash,
            ..
        } = self.entry(index);
        let directory = &mut self.dirs[dir.index()];
        if let Some(table) = &mut directory.table
            && let Ok(found) = table.find_entry(wide(hash), |&known| known == index)
        {
            found.remove();
        }
        directory.count -= 1;
        if previous == NONE {
            directory.first = next;
        } else {
            self.change(previous, |entry| entry.next = next);
        }
        if next != NONE {
            self.change(next, |entry| entry.previous = previous);
        }
        // A stream gives most files a temporary name, which is the last one when it goes.
        let len = name.len() + 1;
        if name_at as usize + len == self.bytes.len() {
            self.bytes.truncate(name_at as usize);
        } else {
            self.garbage += len;
        }
        let next = self.removed.unwrap_or(NONE);
        self.change(index, |removed| {
            removed.next = next;
            removed.name_at = NONE;
        });
        self.removed = Some(index);
    }

    /// Drops the bytes of removed names.
    fn compact(&mut self) {
        let mut bytes = Strings::new(&self.scratch);
        for index in 0..self.entries.len() {
            let mut entry = NameLink::unpack(self.entries.get(index));
            if entry.name_at != NONE {
                let name = self.bytes.get(entry.name_at as usize);
                entry.name_at = bytes.push(&name) as u32;
                self.entries.set(index, entry.pack());
            }
        }
        self.bytes = bytes;
        self.garbage = 0;
    }

    fn hash(&self, name: &[u8]) -> u32 {
        short(self.hasher.hash_one(name))
    }

    fn name(&self, entry: &NameLink) -> Cow<'_, [u8]> {
        self.bytes.get(entry.name_at as usize)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let tables = self.dirs.iter().filter_map(|dir| dir.table.as_deref());
        let in_table = |it: &HashTable<u32>| size_of_val(it) + it.allocation_size();
        self.dirs.capacity() * size_of::<DirectoryNames>()
            + tables.map(in_table).sum::<usize>()
            + self.entries.memory_bytes()
            + self.bytes.memory_bytes()
    }
}

fn short(hash: u64) -> u32 {
    hash as u32
}

/// A hash for the table, which uses the bits at both ends.
fn wide(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use testkit::Rng;

    use super::*;

    #[test]
    fn names_are_those_of_an_ordered_map() {
        let mut rng = Rng::new(1);
        let mut names = NameTable::new(&Scratch::memory());
        let dirs: Vec<DirId> = (0..5).map(|_| names.add_dir(None)).collect();
        let mut must: Vec<BTreeMap<Vec<u8>, Option<NodeId>>> = vec![BTreeMap::new(); dirs.len()];
        for step in 0..60_000 {
            let at = rng.index(dirs.len());
            // Long names, so that removed ones are dropped now and then.
            let name = format!("{:0>200}", rng.index(500)).into_bytes();
            if rng.index(5) < 2 {
                names.remove(dirs[at], &name);
                must[at].remove(&name);
            } else {
                let node = NodeId::new(step).filter(|_| rng.index(4) > 0);
                names.reserve(&name, b"").unwrap();
                let before = names.insert(dirs[at], &name, node);
                assert_eq!(before, must[at].insert(name.clone(), node).flatten());
            }
            assert_eq!(names.find(dirs[at], &name), must[at].get(&name).copied());
            if step % 1000 == 0 {
                let sorted = names.sorted(dirs[at]);
                assert_eq!(sorted.len(), names.count(dirs[at]));
                let is = sorted
                    .into_iter()
                    .map(|(name, node)| (name.into_owned(), node));
                assert!(is.eq(must[at].clone()));
            }
        }
        // 2,500 names at most, and as much garbage.
        assert!(names.bytes.len() <= 2 * 2500 * 201 + GARBAGE_MIN);
        assert!(names.entries.len() <= 2500);
    }

    #[test]
    fn temporary_names_leave_nothing() {
        let mut names = NameTable::new(&Scratch::memory());
        let dir = names.add_dir(None);
        for number in 0..1000 {
            let name = format!("o{number}-9-0");
            names.reserve(name.as_bytes(), b"").unwrap();
            names.insert(dir, name.as_bytes(), None);
            names.remove(dir, name.as_bytes());
        }
        assert_eq!((names.bytes.len(), names.entries.len()), (0, 1));
    }
}
