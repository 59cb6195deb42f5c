//! Blocks that a tree shares with an earlier one, its base.
//!
//! Sharing never depends on why two trees are alike: a leaf is shared if its items are the same
//! bytes, found at the boundaries of the base's leaves, and a node if its children are the same
//! blocks. Between shared blocks, a tree has blocks of its own. As in Linux, its root is always one
//! of those.

use std::ops::Range;

use tree::Result;

use super::{Blocks, BuiltBlock, Leaf, TreeBuilder, leaf_bytes};
use crate::disk::key::Key;

/// A node may have this many times fewer children than fit, on average, before a level is built
/// without sharing.
const SPARSE_MAX: usize = 4;

/// The blocks of a finished tree, except for its root.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    /// By level, leaves first, in the order of keys.
    pub(super) levels: Vec<Vec<BuiltBlock>>,
    /// SHA-256 of the items of each leaf.
    pub(super) digests: Vec<[u8; 32]>,
    /// Blocks of other trees that this tree's own nodes refer to, by index.
    pub(crate) reused: Vec<usize>,
    /// First and last key of each leaf that belongs to another tree, in ascending order.
    pub(crate) ranges: Vec<(Key, Key)>,
}

/// The part of a [`TreeBuilder`] that looks for shared leaves.
pub(super) struct LeafSharing<'b> {
    pub(super) base: Option<&'b Shape>,
    /// The base's leaf to look for next.
    next: usize,
    /// The base's leaf whose items the trial may have.
    wanted: usize,
    /// The items since that leaf's first key. Empty if there is no trial.
    trial: Leaf,
    /// The content of the tree's first leaf, if it is shared and there is no second one.
    only: Option<Leaf>,
    pub(super) digests: Vec<[u8; 32]>,
    pub(super) ranges: Vec<(Key, Key)>,
}

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

/// A node above a level of blocks.
pub(super) struct PlannedNode {
    pub(super) children: Range<usize>,
    /// The index of the same node of another tree.
    pub(super) reused: Option<usize>,
}

/// Groups the blocks of a level into nodes at `level`: those of the base that have the same
/// children, and full ones between them.
pub(super) fn plan_nodes(
    below: &[BuiltBlock],
    base: Option<&Shape>,
    level: u8,
    fanout: usize,
) -> Vec<PlannedNode> {
    let own = |from: usize, to: usize| {
        (from..to).step_by(fanout).map(move |at| PlannedNode {
            children: at..to.min(at + fanout),
            reused: None,
        })
    };
    let level = usize::from(level);
    let levels = base.map_or(&[][..], |base| &base.levels);
    if let (Some(nodes), Some(mut rest)) =
        (levels.get(level), levels.get(level - 1).map(Vec::as_slice))
    {
        let mut planned = Vec::new();
        let (mut from, mut at) = (0, 0);
        for node in nodes {
            let (children, behind) = rest.split_at(node.count);
            rest = behind;
            while below.get(at).is_some_and(|block| block.first < node.first) {
                at += 1;
            }
            let found = below.get(at..at + node.count);
            let mut pairs = found.unwrap_or_default().iter().zip(children);
            if found.is_some() && pairs.all(|(a, b)| a.index == b.index) {
                planned.extend(own(from, at));
                planned.push(PlannedNode {
                    children: at..at + node.count,
                    reused: Some(node.index),
                });
                at += node.count;
                from = at;
            }
        }
        planned.extend(own(from, below.len()));
        let is_dense = 2 * planned.len() <= below.len()
            && planned.len() <= SPARSE_MAX * below.len().div_ceil(fanout);
        let is_root = planned.len() == 1;
        if is_dense && !is_root {
            return planned;
        }
    }
    own(0, below.len()).collect()
}
