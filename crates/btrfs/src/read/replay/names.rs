//! Names in the log: entries of directories, and references of inodes to them.

use tree::{FileKind, Result, low_u32, to_u64, to_usize};
use zerocopy::{FromBytes, IntoBytes};

use super::{Replay, range};
use crate::disk::checksum::{NAME_SEED, name_hash};
use crate::disk::dir::{self, EntryTarget};
use crate::disk::inode::{emit_extref, emit_ref, for_each_name};
use crate::disk::key::{Key, item, object};
use crate::disk::node::TreeItem;
use crate::disk::raw;
use crate::disk::tree::Tree;
use crate::disk::volume::Volume;

/// A name of an inode.
struct LoggedName {
    parent: u64,
    index: u64,
    name: Vec<u8>,
}

impl Replay<'_> {
    /// Removes names of a directory: with `by_log`, those in the ranges that the log describes and
    /// not in the log; otherwise all.
    pub(super) fn remove_names(&mut self, dir: u64, by_log: bool) -> Result<()> {
        let mut ranges = Vec::new();
        if by_log {
            let (first, last) = range(dir, item::DIR_LOG_INDEX, 0, u64::MAX);
            let mut cursor = self.log.range(self.volume, first, last)?;
            while let Some(item) = cursor.item() {
                let end = <[u8; 8]>::try_from(item.data).map_err(|_| {
                    item.corrupt("logged range's size is wrong", to_u64(item.data.len()))
                })?;
                ranges.push((item.key.offset, u64::from_le_bytes(end)));
                cursor.advance()?;
            }
        } else {
            ranges.push((0, u64::MAX));
        }
        let mut gone = Vec::new();
        for (from, to) in ranges {
            let (first, last) = range(dir, item::DIR_INDEX, from, to);
            let mut cursor = self.files.tree.range(self.volume, first, last)?;
            while let Some(item) = cursor.item() {
                dir::for_each_entry(&item, |entry| {
                    let index = item.key.offset;
                    let logged = by_log
                        && dir::find_index(self.volume, &self.log, dir, index, entry.name)?
                            .is_some();
                    match entry.target {
                        _ if logged => {}
                        EntryTarget::Inode(number) => gone.push((number, entry.name.to_vec())),
                        EntryTarget::Subvolume(id) => {
                            return Err(item.corrupt("log removes a subvolume", id));
                        }
                    }
                    Ok(())
                })?;
                cursor.advance()?;
            }
        }
        for (number, name) in gone {
            self.unlink(dir, number, &name)?;
        }
        Ok(())
    }

    /// Replays an entry of a directory.
    pub(super) fn entry(&mut self, item: &TreeItem<'_>) -> Result<()> {
        let (dir, index) = (item.key.objectid, item.key.offset);
        if !self.has_inode(dir)? {
            return Err(item.corrupt("logged name is in no directory", dir));
        }
        let mut logged = None;
        dir::for_each_entry(item, |entry| {
            logged = Some((entry.name.to_vec(), entry.target, entry.kind));
            Ok(())
        })?;
        // Subvolumes come and go with a commit only.
        let Some((name, EntryTarget::Inode(number), kind)) = logged else {
            return Ok(());
        };
        let exists = self.has_inode(number)?;
        let target = Some(EntryTarget::Inode(number));
        let by_name = dir::find(self.volume, &self.files.tree, dir, &name)?;
        let is_named = by_name == Some((EntryTarget::Inode(number), kind));
        if let Some((other, _)) = by_name
            && !is_named
            && exists
        {
            self.unlink_target(item, dir, other, &name)?;
        }
        let by_index = dir::find_index(self.volume, &self.files.tree, dir, index, &name)?;
        let is_indexed = by_index == target;
        if let Some(other) = by_index
            && !is_indexed
            && exists
        {
            self.unlink_target(item, dir, other, &name)?;
        }
        // A name that its inode refers to is added with the references.
        if is_named && is_indexed || !exists || self.log_refers(number, dir, &name)? {
            return Ok(());
        }
        let is_taken = is_named || self.files.has(Key::new(dir, item::DIR_INDEX, index))?;
        if !is_taken {
            self.link(dir, number, &name, index)?;
            self.add_reference(number, dir, &name, index)?;
            if kind != FileKind::Directory {
                self.touched.insert(number);
            }
        }
        Ok(())
    }

    /// Replays an item with names of an inode.
    pub(super) fn names(&mut self, item: &TreeItem<'_>) -> Result<()> {
        let number = item.key.objectid;
        let logged = names_in(item)?;
        if !self.has_inode(number)? {
            return Err(item.corrupt("logged name has no inode", number));
        }
        if item.key.kind == item::INODE_REF
            && (item.key.offset == number || !self.has_inode(item.key.offset)?)
        {
            // The root directory, or a directory that was not synced.
            return Ok(());
        }
        for LoggedName {
            parent,
            index,
            name,
        } in &logged
        {
            if !self.has_inode(*parent)? {
                continue;
            }
            let tree = &self.files.tree;
            let by_name = dir::find(self.volume, tree, *parent, name)?.map(|found| found.0);
            let by_index = dir::find_index(self.volume, tree, *parent, *index, name)?;
            let target = Some(EntryTarget::Inode(number));
            if (by_name, by_index) != (target, target) {
                self.make_room(item, *parent, *index, name)?;
                self.link(*parent, number, name, *index)?;
            }
        }
        for LoggedName { parent, name, .. } in names_at(self.volume, &self.files.tree, item.key)? {
            let is_logged = logged
                .iter()
                .any(|logged| (logged.parent, &logged.name) == (parent, &name));
            if !is_logged {
                self.unlink(parent, number, &name)?;
            }
        }
        self.files.put(item.key, item.data)?;
        self.touched.insert(number);
        Ok(())
    }

    /// Removes conflicts with a name: the inode's other names in that directory that are not
    /// logged, and other inodes of that name.
    fn make_room(&mut self, item: &TreeItem<'_>, dir: u64, index: u64, name: &[u8]) -> Result<()> {
        let number = item.key.objectid;
        let direct = Key::new(number, item::INODE_REF, dir);
        let extended = extref_key(number, dir, name);
        for key in [direct, extended] {
            for old in names_at(self.volume, &self.files.tree, key)? {
                if old.parent == dir && !self.log_refers(number, dir, &old.name)? {
                    self.unlink(dir, number, &old.name)?;
                }
            }
        }
        let by_index = dir::find_index(self.volume, &self.files.tree, dir, index, name)?;
        if let Some(target) = by_index {
            self.unlink_target(item, dir, target, name)?;
        }
        let by_name = dir::find(self.volume, &self.files.tree, dir, name)?;
        if let Some((target, _)) = by_name {
            self.unlink_target(item, dir, target, name)?;
        }
        Ok(())
    }

    fn unlink_target(
        &mut self,
        item: &TreeItem<'_>,
        dir: u64,
        target: EntryTarget,
        name: &[u8],
    ) -> Result<()> {
        match target {
            EntryTarget::Inode(number) => self.unlink(dir, number, name),
            EntryTarget::Subvolume(id) => Err(item.corrupt("log replaces a subvolume", id)),
        }
    }

    /// Removes a name: the entry with its index, and the reference.
    fn unlink(&mut self, dir: u64, number: u64, name: &[u8]) -> Result<()> {
        let index = self.remove_reference(number, dir, name)?;
        let key = Key::new(dir, item::DIR_ITEM, name_hash(NAME_SEED, name).into());
        self.remove_record(key, name)?;
        if let Some(index) = index {
            self.remove_record(Key::new(dir, item::DIR_INDEX, index), name)?;
        }
        self.touched.insert(number);
        Ok(())
    }

    /// Adds an entry to a directory, by its name and by its index.
    fn link(&mut self, dir: u64, number: u64, name: &[u8], index: u64) -> Result<()> {
        let location = Key::new(number, item::INODE_ITEM, 0);
        let inode = self.files.get(location)?.unwrap_or_default();
        let mode = raw::InodeItem::ref_from_bytes(&inode).map_or(0, |inode| inode.mode.get());
        let kind = FileKind::from_mode(mode).unwrap_or(FileKind::Regular);
        let record = dir::emit(location, dir::entry_type(kind), name, b"");
        let key = Key::new(dir, item::DIR_ITEM, name_hash(NAME_SEED, name).into());
        let same_hash = self.files.get(key)?.unwrap_or_default();
        self.files.put(key, &[same_hash, record.clone()].concat())?;
        self.files
            .put(Key::new(dir, item::DIR_INDEX, index), &record)
    }

    /// Removes the record with this name from an item of a directory.
    fn remove_record(&mut self, key: Key, name: &[u8]) -> Result<()> {
        let mut rest = Vec::new();
        self.files.tree.get(self.volume, key, |item| {
            dir::for_each_record(&item, |record| {
                if record.name != name {
                    rest.extend_from_slice(record.raw.as_bytes());
                    rest.extend_from_slice(record.name);
                    rest.extend_from_slice(record.value);
                }
                Ok(())
            })
        })?;
        self.put_or_remove(key, &rest)
    }

    fn put_or_remove(&mut self, key: Key, data: &[u8]) -> Result<()> {
        if data.is_empty() {
            self.files.remove(key)
        } else {
            self.files.put(key, data)
        }
    }

    /// Adds a reference of an inode to its name, extended if it does not fit.
    fn add_reference(&mut self, number: u64, dir: u64, name: &[u8], index: u64) -> Result<()> {
        let key = Key::new(number, item::INODE_REF, dir);
        let old = self.files.get(key)?.unwrap_or_default();
        let room = to_usize(self.volume.superblock.nodesize) / 2;
        let added = size_of::<raw::InodeRef>().saturating_add(name.len());
        if old.len().saturating_add(added) <= room {
            return self.files.put(key, &[old, emit_ref(index, name)].concat());
        }
        let key = extref_key(number, dir, name);
        let old = self.files.get(key)?.unwrap_or_default();
        self.files
            .put(key, &[old, emit_extref(dir, index, name)].concat())
    }

    /// Removes the reference of an inode to a name, and returns the index of its entry.
    fn remove_reference(&mut self, number: u64, dir: u64, name: &[u8]) -> Result<Option<u64>> {
        let mut found = None;
        for key in [
            Key::new(number, item::INODE_REF, dir),
            extref_key(number, dir, name),
        ] {
            if found.is_some() {
                break;
            }
            let mut rest = Vec::new();
            for old in names_at(self.volume, &self.files.tree, key)? {
                if (old.parent, &*old.name) == (dir, name) && found.is_none() {
                    found = Some(old.index);
                    continue;
                }
                rest.extend(if key.kind == item::INODE_REF {
                    emit_ref(old.index, &old.name)
                } else {
                    emit_extref(old.parent, old.index, &old.name)
                });
            }
            if found.is_some() {
                self.put_or_remove(key, &rest)?;
            }
        }
        Ok(found)
    }

    /// Whether the log has a reference of this inode to a name.
    fn log_refers(&self, number: u64, dir: u64, name: &[u8]) -> Result<bool> {
        let direct = Key::new(number, item::INODE_REF, dir);
        for key in [direct, extref_key(number, dir, name)] {
            let names = names_at(self.volume, &self.log, key)?;
            if names
                .iter()
                .any(|logged| (logged.parent, &*logged.name) == (dir, name))
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Counts the names of the inodes that were touched. A directory without a name loses what is
    /// in it.
    pub(super) fn count_names(&mut self) -> Result<()> {
        while let Some(number) = self.touched.pop_last() {
            let key = Key::new(number, item::INODE_ITEM, 0);
            let data = self.files.get(key)?;
            let Some(mut inode) = data.and_then(|data| raw::InodeItem::read_from_bytes(&data).ok())
            else {
                continue;
            };
            if number == object::FIRST_FREE {
                continue;
            }
            let mut count = 0_u32;
            let first = Key::new(number, item::INODE_REF, 0);
            let last = Key::new(number, item::INODE_EXTREF, u64::MAX);
            let mut cursor = self.files.tree.range(self.volume, first, last)?;
            while let Some(item) = cursor.item() {
                let names = names_in(&item)?.len();
                count = count.saturating_add(u32::try_from(names).unwrap_or(u32::MAX));
                cursor.advance()?;
            }
            if inode.nlink.get() != count {
                inode.nlink = count.into();
                self.files.put(key, inode.as_bytes())?;
            }
            let is_directory = FileKind::from_mode(inode.mode.get()) == Some(FileKind::Directory);
            if count == 0 && is_directory {
                self.remove_names(number, false)?;
            }
        }
        Ok(())
    }
}

/// The names in an item of references, of either type.
fn names_in(item: &TreeItem<'_>) -> Result<Vec<LoggedName>> {
    let mut names = Vec::new();
    for_each_name(item, |reference| {
        names.push(LoggedName {
            parent: reference.parent,
            index: reference.index,
            name: reference.name.to_vec(),
        });
        Ok(())
    })?;
    Ok(names)
}

/// The names in the item of references with this key; none if there is no item.
fn names_at(volume: &Volume, tree: &Tree, key: Key) -> Result<Vec<LoggedName>> {
    let names = tree.get(volume, key, |item| names_in(&item))?;
    Ok(names.unwrap_or_default())
}

fn extref_key(number: u64, dir: u64, name: &[u8]) -> Key {
    // The seed of the hash is the directory's number, cut to 32 bits.
    Key::new(
        number,
        item::INODE_EXTREF,
        name_hash(low_u32(dir), name).into(),
    )
}
