//! Directories of a damaged image, listed as far as they can be read.
//!
//! Each name is recorded three times: by its index and by its hash in the directory, and in the
//! inode that has it. A directory is listed by index. Where that fails, the other records help,
//! which may lie in other blocks.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use tree::{DirEntry, Error, FileKind, Ino, Result};

use super::files::{Names, Subvolume};
use crate::disk::dir::{self, DirItemEntry, EntryTarget};
use crate::disk::inode::{InodeName, for_each_name};
use crate::disk::key::{Key, item};
use crate::disk::subvolume;
use crate::disk::tree::{Cursor, Tree};

impl Subvolume {
    /// The entries of a directory that can be read, sorted by name, and why others cannot.
    pub(super) fn readable_entries(
        &self,
        tree: &Tree,
        number: u64,
        dir: Ino,
    ) -> (Vec<DirEntry>, Vec<Error>) {
        let mut found = ReadableEntries {
            subvolume: self,
            tree,
            number,
            dir,
            entries: BTreeMap::new(),
            failed: BTreeMap::new(),
        };
        let mut errors = Vec::new();
        if found.read_items(item::DIR_INDEX).is_err()
            && let Err(error) = found.read_items(item::DIR_ITEM)
        {
            found.read_references();
            errors.push(error);
        }
        let ReadableEntries {
            entries, failed, ..
        } = found;
        let failed = failed.into_iter();
        let failed = failed.filter(|(name, _)| !entries.contains_key(name));
        errors.extend(failed.map(|(name, error)| error.in_file("read", &name)));
        (entries.into_values().collect(), errors)
    }

    /// The names in damaged directories of a subvolume, as inodes have them.
    fn names_of_inodes(&self, tree: &Tree) -> Result<Arc<Names>> {
        let mut known = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(names) = known.get(&tree.id) {
            return Ok(Arc::clone(names));
        }
        let volume = self.volume();
        let mut cursor = tree.readable(volume, Key::MIN, Key::MAX)?;
        while cursor.item().is_some() {
            cursor.advance()?;
        }
        // Only names in directories that lost some are worth keeping.
        let lost: Vec<(Key, Option<Key>)> = cursor
            .damage()
            .iter()
            .map(|damage| (damage.from, damage.end))
            .collect();
        let is_damaged = |dir: u64| {
            let (first, last) = (
                Key::new(dir, item::DIR_ITEM, 0),
                Key::new(dir, item::DIR_INDEX, u64::MAX),
            );
            let mut lost = lost.iter();
            lost.any(|(from, end)| *from <= last && end.is_none_or(|end| end > first))
        };
        let mut names = Names::new();
        let mut cursor = tree.readable(volume, Key::MIN, Key::MAX)?;
        while let Some(item) = cursor.item() {
            let number = item.key.objectid;
            let add = |reference: InodeName<'_>| {
                if reference.parent != number && is_damaged(reference.parent) {
                    let dir = names.entry(reference.parent).or_default();
                    dir.push((reference.name.into(), number));
                }
                Ok(())
            };
            // A damaged item has no names.
            let _ = match item.key.kind {
                item::INODE_REF | item::INODE_EXTREF => for_each_name(&item, add),
                _ => Ok(()),
            };
            cursor.advance()?;
        }
        let names = Arc::new(names);
        known.insert(tree.id, Arc::clone(&names));
        Ok(names)
    }
}

/// The entries of a directory that were found so far.
struct ReadableEntries<'a> {
    subvolume: &'a Subvolume,
    tree: &'a Tree,
    number: u64,
    dir: Ino,
    entries: BTreeMap<Box<[u8]>, DirEntry>,
    /// Names of entries that cannot be read.
    failed: BTreeMap<Box<[u8]>, Error>,
}

impl ReadableEntries<'_> {
    fn add(&mut self, entry: &DirItemEntry<'_>) {
        if self.entries.contains_key(entry.name) {
            return;
        }
        let made = self
            .subvolume
            .entry(self.tree, self.number, self.dir, entry);
        match made {
            Ok(made) => {
                self.entries.insert(entry.name.into(), made);
            }
            Err(error) => {
                self.failed.insert(entry.name.into(), error);
            }
        }
    }

    /// Adds the entries that items of one type have. Fails with the first error after all that can
    /// be read.
    fn read_items(&mut self, kind: u8) -> Result<()> {
        let [first, last] = [0, u64::MAX].map(|offset| Key::new(self.number, kind, offset));
        let mut cursor = self.tree.readable(self.subvolume.volume(), first, last)?;
        let mut result = Ok(());
        while let Some(item) = cursor.item_of(self.number, kind) {
            let read = dir::for_each_entry(&item, |entry| {
                self.add(&entry);
                Ok(())
            });
            if result.is_ok() {
                result = read;
            }
            cursor.advance()?;
        }
        first_damage(cursor, result)
    }

    /// Adds the entries that inodes and nested subvolumes have.
    fn read_references(&mut self) {
        let subvolume = self.subvolume;
        if let Ok(names) = subvolume.names_of_inodes(self.tree) {
            for (name, number) in names.get(&self.number).into_iter().flatten() {
                let target = EntryTarget::Inode(*number);
                match subvolume.inode_in(self.tree, *number) {
                    Ok(inode) => self.add(&DirItemEntry {
                        name,
                        target,
                        kind: inode.kind,
                    }),
                    Err(error) => {
                        self.failed.insert(name.clone(), error);
                    }
                }
            }
        }
        let (volume, roots) = (subvolume.volume(), &subvolume.btrfs().roots);
        let [first, last] = [0, u64::MAX].map(|id| Key::new(self.tree.id, item::ROOT_REF, id));
        let Ok(mut cursor) = roots.readable(volume, first, last) else {
            return;
        };
        while let Some(item) = cursor.item() {
            if let Ok((dir, _, name)) = subvolume::parse_ref(&item)
                && dir == self.number
            {
                self.add(&DirItemEntry {
                    name,
                    target: EntryTarget::Subvolume(item.key.offset),
                    kind: FileKind::Directory,
                });
            }
            if cursor.advance().is_err() {
                return;
            }
        }
    }
}

/// The error of the first block that a cursor left out, unless there was one before.
fn first_damage(cursor: Cursor<'_>, result: Result<()>) -> Result<()> {
    result?;
    match cursor.into_damage().into_iter().next() {
        Some(damage) => Err(damage.error),
        None => Ok(()),
    }
}
