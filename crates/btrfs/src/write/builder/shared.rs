//! Blocks that a tree shares with an earlier one, its base.
//!
//! Sharing never depends on why two trees are alike: a leaf is shared if its items are the same
//! bytes, found at the boundaries of the base's leaves, and a node if its children are the same
//! blocks. Between shared blocks, a tree has blocks of its own. As in Linux, its root is always one
//! of those.

use tree::Result;

use super::leaf::{BuiltBlock, Leaf, leaf_bytes};
use super::shape::{LeafSharing, Shape};
use super::{Blocks, TreeBuilder};
use crate::disk::key::Key;

impl<'b, 'a> TreeBuilder<'b, 'a> {
    /// A tree that shares blocks with its base, if it has one, and whose blocks can be shared.
    pub(crate) fn sharing(blocks: &'b mut Blocks<'a>, owner: u64, base: Option<&'b Shape>) -> Self {
        let sharing = LeafSharing {
            base,
            next: 0,
            wanted: 0,
            trial: Leaf::new(blocks.nodesize),
            only: None,
            digests: Vec::new(),
            ranges: Vec::new(),
        };
        TreeBuilder {
            sharing: Some(sharing),
            ..TreeBuilder::new(blocks, owner)
        }
    }

    /// Adds an item to the trial; returns whether it was added.
    pub(super) fn try_shared(&mut self, key: Key, parts: &[&[u8]]) -> Result<bool> {
        let Some(sharing) = &mut self.sharing else {
            return Ok(false);
        };
        let Some(leaves) = sharing.base.and_then(|base| base.levels.first()) else {
            return Ok(false);
        };
        while leaves
            .get(sharing.next)
            .is_some_and(|leaf| leaf.first < key)
        {
            sharing.next += 1;
        }
        if leaves
            .get(sharing.next)
            .is_some_and(|leaf| leaf.first == key)
        {
            let wanted = sharing.next;
            self.end_trial()?;
            if let Some(sharing) = &mut self.sharing {
                sharing.wanted = wanted;
                sharing.next = wanted + 1;
            }
        } else if sharing.trial.items == 0 {
            return Ok(false);
        }
        let Some(sharing) = &mut self.sharing else {
            return Ok(false);
        };
        if !sharing.trial.add(key, parts) {
            self.end_trial()?;
            return Ok(false);
        }
        let leaf = leaves[sharing.wanted];
        if sharing.trial.items == leaf.count {
            self.finish_trial(leaf)?;
        }
        Ok(true)
    }

    /// The trial has as many items as the base's leaf: shares that leaf if they are the same.
    fn finish_trial(&mut self, leaf: BuiltBlock) -> Result<()> {
        let Some(sharing) = &mut self.sharing else {
            return Ok(());
        };
        let digest = tree::sha256(sharing.trial.body());
        let is_same = sharing
            .base
            .is_some_and(|base| base.digests[sharing.wanted] == digest);
        // If both fit in one leaf, sharing saves nothing, and would leave two small leaves.
        let room = leaf_bytes(self.blocks.nodesize);
        let fits = self.open.items > 0 && self.open.used() + sharing.trial.used() <= room;
        if !is_same || fits {
            return self.end_trial();
        }
        self.blocks.hash(sharing.trial.body());
        if self.open.items > 0 {
            self.end_leaf()?;
        }
        let nodesize = self.blocks.nodesize;
        let Some(sharing) = &mut self.sharing else {
            return Ok(());
        };
        sharing.digests.push(digest);
        sharing
            .ranges
            .push((sharing.trial.first, sharing.trial.last));
        sharing.only = None;
        if self.leaves.is_empty() {
            let trial = std::mem::replace(&mut sharing.trial, Leaf::new(nodesize));
            sharing.only = Some(trial);
        }
        sharing.trial.clear();
        self.leaves.push(leaf);
        Ok(())
    }

    /// Moves the trial's items to the open leaf.
    pub(super) fn end_trial(&mut self) -> Result<()> {
        let Some(sharing) = &mut self.sharing else {
            return Ok(());
        };
        if sharing.trial.items == 0 {
            return Ok(());
        }
        if self.open.items == 0 {
            std::mem::swap(&mut self.open, &mut sharing.trial);
            return Ok(());
        }
        let empty = Leaf::new(self.blocks.nodesize);
        let mut trial = std::mem::replace(&mut sharing.trial, empty);
        for index in 0..trial.items {
            let (key, data) = trial.item(index);
            self.append(key, &[data])?;
        }
        trial.clear();
        if let Some(sharing) = &mut self.sharing {
            sharing.trial = trial;
        }
        Ok(())
    }

    /// Ensures that a tree with only one leaf, its root, owns it.
    pub(super) fn own_only_leaf(&mut self) -> Result<()> {
        let Some(sharing) = &mut self.sharing else {
            return Ok(());
        };
        if self.leaves.len() == 1
            && let Some(only) = sharing.only.take()
        {
            self.leaves.clear();
            sharing.digests.clear();
            sharing.ranges.clear();
            self.open = only;
            self.end_leaf()?;
        }
        Ok(())
    }
}
