//! Directories of a damaged image, listed as far as they can be read.
//!
//! Each name is recorded three times: by its index and by its hash in the directory, and in the inode that has it. A
//! directory is listed by index. Where that fails, the other records help, which may lie in other blocks.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tree::{DirEntry, Error, Ino, Metadata, Result};

use super::Subvolume;
use crate::dir::{self, Entry, Target};
use crate::inode::{Reference, for_each_extref, for_each_ref};
use crate::key::{Key, item};
use crate::subvolume;
use crate::tree::{Cursor, Tree};

use tree::FileSystem as _;

/// Something that could not be read in a directory.
#[derive(Debug)]
pub struct Lost {
    /// The directory.
    pub dir: Ino,
    /// The name of what was left out; without one, the directory may lack names.
    pub name: Option<Box<[u8]>>,
    /// Why it could not be read.
    pub error: Error,
}

/// What is known about the damage of a subvolume.
#[derive(Default)]
pub(super) struct Damaged {
    lost: Mutex<Vec<Lost>>,
    /// For each subvolume with damaged directories, by ID: the names in these, as their inodes have them.
    names: Mutex<HashMap<u64, Arc<Names>>>,
}

/// The names in each directory, and the inode that each belongs to.
type Names = HashMap<u64, Vec<(Box<[u8]>, u64)>>;

impl Damaged {
    fn lost(&self) -> MutexGuard<'_, Vec<Lost>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, dir: Ino, name: Option<&[u8]>, error: Error) {
        let name = name.map(Box::from);
        let mut lost = self.lost();
        // A directory may be listed several times.
        if lost
            .iter()
            .all(|known| (known.dir, &known.name) != (dir, &name))
        {
            lost.push(Lost { dir, name, error });
        }
    }
}

impl Subvolume {
    /// Takes the list of what was left out of directories so far; empty unless it [tolerates
    /// damage](Subvolume::tolerating_damage).
    pub fn lost(&self) -> Vec<Lost> {
        let damaged = self.damaged.as_ref();
        damaged.map_or_else(Vec::new, |damaged| std::mem::take(&mut *damaged.lost()))
    }

    /// The entries of a directory that can be read.
    pub(super) fn readable_entries(
        &self,
        damaged: &Damaged,
        tree: &Tree,
        number: u64,
        dir: Ino,
    ) -> Vec<DirEntry> {
        let mut found = Found {
            subvolume: self,
            damaged,
            tree,
            number,
            dir,
            entries: BTreeMap::new(),
        };
        let by_index = found.read_items(item::DIR_INDEX);
        if by_index.is_err() {
            let by_name = found.read_items(item::DIR_ITEM);
            if let Err(error) = by_name {
                found.read_references();
                damaged.add(dir, None, error);
            }
        }
        found.entries.into_values().collect()
    }

    /// The entries whose inode can be read, with its metadata.
    pub(super) fn readable_metadata(
        &self,
        damaged: &Damaged,
        dir: Ino,
        entries: Vec<DirEntry>,
    ) -> Vec<(DirEntry, Metadata)> {
        let mut readable = Vec::with_capacity(entries.len());
        for entry in entries {
            match self.metadata(entry.ino) {
                Ok(metadata) => readable.push((entry, metadata)),
                Err(error) => damaged.add(dir, Some(&entry.name), error),
            }
        }
        readable
    }

    /// The names in damaged directories of a subvolume, as inodes have them.
    fn names_of_inodes(&self, damaged: &Damaged, tree: &Tree) -> Result<Arc<Names>> {
        let mut known = damaged.names.lock().unwrap_or_else(PoisonError::into_inner);
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
            let mut add = |reference: Reference<'_>| {
                if reference.parent != number && is_damaged(reference.parent) {
                    let dir = names.entry(reference.parent).or_default();
                    dir.push((reference.name.into(), number));
                }
                Ok(())
            };
            // A damaged item has no names.
            let _ = match item.key.kind {
                item::INODE_REF => for_each_ref(&item, &mut add),
                item::INODE_EXTREF => for_each_extref(&item, &mut add),
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
struct Found<'a> {
    subvolume: &'a Subvolume,
    damaged: &'a Damaged,
    tree: &'a Tree,
    number: u64,
    dir: Ino,
    entries: BTreeMap<Box<[u8]>, DirEntry>,
}

impl Found<'_> {
    fn add(&mut self, entry: &Entry<'_>) {
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
            Err(error) => self.damaged.add(self.dir, Some(entry.name), error),
        }
    }

    /// Adds the entries that items of one type have. Fails with the first error after all that can be read.
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
        if let Ok(names) = subvolume.names_of_inodes(self.damaged, self.tree) {
            for (name, number) in names.get(&self.number).into_iter().flatten() {
                let target = Target::Inode(*number);
                match subvolume.inode_in(self.tree, *number) {
                    Ok(inode) => self.add(&Entry {
                        name,
                        target,
                        kind: inode.kind,
                    }),
                    Err(error) if !self.entries.contains_key(name) => {
                        self.damaged.add(self.dir, Some(name), error);
                    }
                    Err(_) => {}
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
                self.add(&Entry {
                    name,
                    target: Target::Subvolume(item.key.offset),
                    kind: tree::FileKind::Directory,
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
