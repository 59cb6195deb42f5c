//! Checks the root tree: root items, and the places of subvolumes.

use std::collections::{HashMap, HashSet};

use tree::{FileKind, Result};

use super::state::BtrfsChecker;
use crate::disk::checksum::{NAME_SEED, name_hash};
use crate::disk::dir::{self, EntryTarget};
use crate::disk::key::{Key, is_file_tree, item, object};
use crate::disk::subvolume::{self, TreeRoot, tree_of};

impl BtrfsChecker<'_> {
    /// Checks all roots in the root tree.
    pub(super) fn roots(&mut self) -> Result<Vec<TreeRoot>> {
        let mut roots = Vec::new();
        let result = self.read_roots(&mut roots);
        self.tolerate(object::ROOT_TREE, result)?;
        Ok(roots)
    }

    fn read_roots(&self, roots: &mut Vec<TreeRoot>) -> Result<()> {
        let volume = &self.btrfs.volume;
        let mut cursor = self.btrfs.roots.seek(volume, Key::MIN)?;
        while let Some(item) = cursor.item() {
            if item.key.kind == item::ROOT_ITEM {
                // Snapshots, trees being moved, and the data relocation tree of btrfs-convert have
                // more in their key than an ID.
                let (id, offset) = (item.key.objectid, item.key.offset);
                let is_single = id < object::FIRST_FREE;
                if is_single && offset != 0 {
                    return Err(item.corrupt("root item's key has an offset", offset));
                }
                roots.push(TreeRoot::parse(&item, &volume.superblock)?);
            }
            cursor.advance()?;
        }
        Ok(())
    }

    /// Checks that both ends of each subvolume reference agree with each other and with the
    /// directory that holds it.
    pub(super) fn subvolume_references(&mut self, roots: &[TreeRoot]) -> Result<()> {
        let volume = &self.btrfs.volume;
        let mut forward = Vec::new();
        let mut backward = Vec::new();
        let mut cursor = self.btrfs.roots.seek(volume, Key::MIN)?;
        while let Some(item) = cursor.item() {
            if matches!(item.key.kind, item::ROOT_REF | item::ROOT_BACKREF) {
                let (dir, index, name) = subvolume::parse_ref(&item)?;
                let place = (dir, index, name.to_vec());
                match item.key.kind {
                    item::ROOT_REF => forward.push((item.key.objectid, item.key.offset, place)),
                    _ => backward.push((item.key.offset, item.key.objectid, place)),
                }
            }
            cursor.advance()?;
        }
        forward.sort_unstable();
        backward.sort_unstable();
        if forward != backward {
            self.corrupt(
                "places of subvolumes differ from those that they refer to",
                object::ROOT_TREE,
                self.btrfs.roots.root.0,
                forward.len().abs_diff(backward.len()) as u64,
            )?;
        }
        let seen: HashSet<u64> = backward.iter().map(|(_, child, _)| *child).collect();
        for root in roots {
            let id = root.tree.id;
            let is_seen = seen.contains(&id);
            let is_nested = (object::FIRST_FREE..=object::LAST_FREE).contains(&id);
            let what = if is_nested && root.refs > 0 && !is_seen {
                "subvolume is seen nowhere"
            } else if is_nested && root.refs == 0 && is_seen {
                "deleted subvolume is still seen"
            } else if is_nested && root.refs > 1 {
                "subvolume has more than one reference"
            } else if matches!(id, object::FS_TREE | object::DATA_RELOC_TREE) && root.refs == 0 {
                // Linux reads the other trees, such as those of quotas, whatever their count is.
                "tree has no reference"
            } else if (is_file_tree(id) && root.refs > 0 || id == object::DATA_RELOC_TREE)
                && root.dirid != object::FIRST_FREE
            {
                "subvolume's root directory has the wrong number"
            } else {
                continue;
            };
            self.corrupt(what, id, root.tree.root.0, id)?;
        }
        // Of several trees with an ID, the first one, as elsewhere.
        let trees = roots.iter().rev().map(|root| (root.tree.id, &root.tree));
        let trees: HashMap<u64, _> = trees.collect();
        for (parent, child, (dir, index, name)) in &forward {
            let is_there = match trees.get(parent) {
                Some(tree) => {
                    let found = dir::find(volume, tree, *dir, name)?;
                    let at = dir::find_index(volume, tree, *dir, *index, name)?;
                    let target = Some(EntryTarget::Subvolume(*child));
                    found.map(|found| found.0) == target && at == target
                }
                None => false,
            };
            if !is_there {
                let what = "subvolume's name is not in its directory";
                self.corrupt(what, *parent, *dir, *child)?;
            }
        }
        Ok(())
    }

    /// Checks the root tree's directory, whose only entry names the default subvolume: Linux mounts
    /// nothing if it is wrong.
    pub(super) fn default_entry(&mut self, roots: &[TreeRoot]) -> Result<()> {
        let hash = name_hash(NAME_SEED, b"default").into();
        let key = Key::new(object::ROOT_TREE_DIR, item::DIR_ITEM, hash);
        let is_tree = |id| is_file_tree(id) && tree_of(roots, id).is_some();
        let found = self.btrfs.roots.get(&self.btrfs.volume, key, |item| {
            let mut good = 0;
            dir::for_each_record(&item, |record| {
                let location = Key::parse(&record.raw.location);
                let is_good = record.name == b"default"
                    && record.value.is_empty()
                    && record.raw.dir_type == dir::entry_type(FileKind::Directory)
                    && location.kind == item::ROOT_ITEM // of a snapshot, with any offset
                    && is_tree(location.objectid);
                good += u64::from(is_good);
                Ok(())
            })?;
            Ok(good)
        })?;
        // Linux mounts the top level if there is no entry.
        if found.is_some_and(|good| good != 1) {
            let what = "root tree does not name a default subvolume";
            let at = self.btrfs.roots.root.0;
            self.corrupt(what, object::ROOT_TREE, at, found.unwrap_or_default())?;
        }
        Ok(())
    }

    /// Checks that each subvolume that is being deleted is listed as an orphan: nothing else leads
    /// Linux to it.
    pub(super) fn dead_roots(&mut self, roots: &[TreeRoot]) -> Result<()> {
        let nested = object::FIRST_FREE..=object::LAST_FREE;
        for root in roots.iter().filter(|root| nested.contains(&root.tree.id)) {
            let id = root.tree.id;
            let key = Key::new(object::ORPHAN, item::ORPHAN_ITEM, id);
            if root.refs == 0
                && (self.btrfs.roots.get(&self.btrfs.volume, key, |_| Ok(()))?).is_none()
            {
                self.corrupt(
                    "deleted subvolume is not an orphan",
                    id,
                    root.tree.root.0,
                    id,
                )?;
            }
        }
        Ok(())
    }
}
