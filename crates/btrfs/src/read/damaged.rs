//! Directories of a damaged image, listed as far as they can be read.
//!
//! Each name is recorded three times: by its index and by its hash in the directory, and in the
//! inode that has it. A directory is listed by index. Where that fails, the other records help,
//! which may lie in other blocks.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use tree::{DirEntry, Error, FileKind, Ino, Result};

use super::files::Subvolume;
use super::ino_map::beside;
use super::scan::{LOST_AND_FOUND, TreeScan};
use crate::disk::dir::{self, DirItemEntry, EntryTarget};
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

    /// The names and the lost files of a damaged subvolume.
    fn scan(&self, tree: &Tree) -> Result<Arc<TreeScan>> {
        let mut known = self.scans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(scan) = known.get(&tree.id) {
            return Ok(Arc::clone(scan));
        }
        let scan = TreeScan::of(self.volume(), &self.btrfs().roots, tree)?;
        let scan = Arc::new(scan);
        known.insert(tree.id, Arc::clone(&scan));
        Ok(scan)
    }

    /// Whether lost files are looked for, and this is a directory without an inode.
    pub(super) fn is_lost_directory(&self, tree: &Tree, number: u64) -> bool {
        let is_known = || {
            let scan = self.scan(tree);
            scan.is_ok_and(|scan| scan.directories.contains(&number))
        };
        self.finds_lost && (number == LOST_AND_FOUND || is_known())
    }

    /// Adds `lost+found` to the entries of a subvolume's root directory, if it has lost files and
    /// they are looked for.
    pub(super) fn add_lost_and_found(&self, tree: &Tree, dir: Ino, entries: &mut Vec<DirEntry>) {
        if !self.finds_lost || self.lost_entries(tree, dir).is_empty() {
            return;
        }
        let mut name = b"lost+found".to_vec();
        while entries.iter().any(|entry| *entry.name == *name) {
            name.push(b'~');
        }
        let at = entries.partition_point(|entry| *entry.name < *name);
        let found = DirEntry {
            name: name.into(),
            ino: beside(dir, LOST_AND_FOUND),
            kind: FileKind::Directory,
        };
        entries.insert(at, found);
    }

    /// The entries of `lost+found`: each lost file with its inode number as its name.
    pub(super) fn lost_entries(&self, tree: &Tree, dir: Ino) -> Vec<DirEntry> {
        let Ok(scan) = self.scan(tree) else {
            return Vec::new();
        };
        let entry = |(&number, &kind): (&u64, &FileKind)| DirEntry {
            name: number.to_string().into_bytes().into(),
            ino: beside(dir, number),
            kind,
        };
        let mut entries: Vec<DirEntry> = scan.lost.iter().map(entry).collect();
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        entries
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
        if let Ok(scan) = subvolume.scan(self.tree) {
            for (name, number) in scan.names.get(&self.number).into_iter().flatten() {
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
