//! The blocks of a finished tree, by which later trees share them.

use std::ops::Range;

use super::leaf::{BuiltBlock, Leaf};
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
    pub(super) next: usize,
    /// The base's leaf whose items the trial may have.
    pub(super) wanted: usize,
    /// The items since that leaf's first key. Empty if there is no trial.
    pub(super) trial: Leaf,
    /// The content of the tree's first leaf, if it is shared and there is no second one.
    pub(super) only: Option<Leaf>,
    pub(super) digests: Vec<[u8; 32]>,
    pub(super) ranges: Vec<(Key, Key)>,
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
