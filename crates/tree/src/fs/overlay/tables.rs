//! The tables of an overlay: indices into them, and how they grow.

use std::num::NonZeroU32;

/// The index of a node plus 1, so that a name without a node takes no extra space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NodeId(NonZeroU32);

impl NodeId {
    pub(super) fn new(index: usize) -> Option<NodeId> {
        let index = u32::try_from(index).ok()?;
        Some(NodeId(NonZeroU32::MIN.checked_add(index)?))
    }

    pub(super) fn index(self) -> usize {
        self.0.get() as usize - 1
    }

    /// The index plus 1.
    pub(super) fn number(self) -> u32 {
        self.0.get()
    }

    /// The node with this [number](NodeId::number); `None` for 0.
    pub(super) fn of(number: u32) -> Option<NodeId> {
        NonZeroU32::new(number).map(NodeId)
    }
}

/// The index of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DirId(u32);

impl DirId {
    pub(super) fn of(number: u32) -> DirId {
        DirId(number)
    }

    pub(super) fn number(self) -> u32 {
        self.0
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Makes room in steps of an eighth, not by doubling.
pub(super) fn reserve<T>(vec: &mut Vec<T>, more: usize) {
    if vec.capacity() - vec.len() < more {
        vec.reserve_exact(more + vec.len() / 8 + 16);
    }
}

/// Like [`Vec::push`], but a full vector grows by an eighth.
pub(super) fn push<T>(vec: &mut Vec<T>, item: T) {
    reserve(vec, 1);
    vec.push(item);
}
