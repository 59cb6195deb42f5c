//! Reads the extent tree and compares it with the references found in the trees.

use std::collections::HashMap;

use tree::{Result, to_u64};

use super::extents::Referrer;
use super::state::BtrfsChecker;
use crate::disk::key::{Key, item, object};
use crate::disk::tree::Tree;

impl BtrfsChecker<'_> {
    pub(super) fn read_extent_tree(&mut self, tree: &Tree) -> Result<()> {
        let btrfs = self.btrfs;
        let mut cursor = tree.seek(&btrfs.volume, Key::MIN)?;
        while let Some(item) = cursor.item() {
            let result = self.extents.item(&item, btrfs.superblock());
            self.tolerate(tree.id, result)?;
            cursor.advance()?;
        }
        Ok(())
    }

    pub(super) fn read_block_groups(&mut self, tree: &Tree) -> Result<()> {
        let btrfs = self.btrfs;
        let mut cursor = tree.seek(&btrfs.volume, Key::MIN)?;
        while let Some(item) = cursor.item() {
            if item.key.kind == item::BLOCK_GROUP_ITEM {
                let result = self.extents.block_group(&item);
                self.tolerate(tree.id, result)?;
            }
            cursor.advance()?;
        }
        Ok(())
    }

    /// Checks that the references in the trees match those in the extent tree.
    pub(super) fn compare_references(&mut self) -> Result<()> {
        let mut wanted = std::mem::take(&mut self.references.list);
        wanted.sort_unstable();
        let wanted: Vec<(u64, Referrer, u64)> = wanted
            .chunk_by(|a, b| a == b)
            .map(|same| (same[0].0, same[0].1, to_u64(same.len())))
            .collect();
        let found = std::mem::take(&mut self.extents.references);
        let (mut w, mut f) = (0, 0);
        loop {
            let (what, at, got) = match (wanted.get(w), found.get(f)) {
                (None, None) => break,
                (Some(a), Some(b)) if a == b => {
                    w += 1;
                    f += 1;
                    continue;
                }
                (Some(a), Some(b)) if (a.0, a.1) == (b.0, b.1) => {
                    w += 1;
                    f += 1;
                    ("reference's count is wrong", a.0, b.2)
                }
                (Some(a), b) if b.is_none_or(|b| (a.0, a.1) < (b.0, b.1)) => {
                    w += 1;
                    ("extent tree lacks a reference", a.0, a.2)
                }
                (_, Some(b)) => {
                    f += 1;
                    ("extent tree has a reference that does not exist", b.0, b.2)
                }
                (Some(_), None) => unreachable!("what is left is in the case before"),
            };
            self.corrupt(what, object::EXTENT_TREE, at, got)?;
        }
        let data = |&(at, reference, _): &(u64, Referrer, u64)| match reference {
            Referrer::Data { root, inode, .. } => Some((at, root, inode)),
            Referrer::Tree(_) | Referrer::Parent(_) => None,
        };
        self.extents.files = found.iter().filter_map(data).collect();
        self.extents.files.dedup_by_key(|file| file.0);
        let mut counts: HashMap<u64, u64> = HashMap::new();
        for (at, _, count) in &found {
            *counts.entry(*at).or_default() += count;
        }
        for extent in std::mem::take(&mut self.extents.list) {
            if counts.remove(&extent.at) != Some(extent.refs) {
                self.corrupt(
                    "extent's number of references is wrong",
                    object::EXTENT_TREE,
                    extent.at,
                    extent.refs,
                )?;
            }
            let block = self.references.visited.get(&extent.at);
            if extent.is_tree_block
                && block.is_some_and(|block| {
                    (block.level, block.generation) != (extent.level, extent.generation)
                })
            {
                self.corrupt(
                    "extent item's level or generation is not its block's",
                    object::EXTENT_TREE,
                    extent.at,
                    extent.generation,
                )?;
            }
            let shown = self.references.data.get(&extent.at);
            if !extent.is_tree_block && shown.is_some_and(|&len| len != extent.len) {
                self.corrupt(
                    "extent is not as long as files say",
                    object::EXTENT_TREE,
                    extent.at,
                    extent.len,
                )?;
            }
            self.extents.list.push(extent);
        }
        let mut lost: Vec<u64> = counts.into_keys().collect();
        lost.sort_unstable();
        for at in lost {
            self.corrupt(
                "reference to an extent that does not exist",
                object::EXTENT_TREE,
                at,
                0,
            )?;
        }
        Ok(())
    }
}
