//! The memory of the sorted positions, and their state from block to block.

use super::tree::OPEN_MAX;
use crate::checked::Checked;
use crate::workspace::Carver;

/// All positions of a frame, as the leaves of a tree: two positions meet in a node whose length is
/// that of their common prefix.
///
/// The tree is made once. Then positions are visited in their order; a visit goes from the leaf to
/// the root and leaves the position in each node. So a node always knows the last position that has
/// its bytes: the nearest candidate for its length.
pub(in super::super) struct Sorted<'a> {
    /// Sorted positions, then nodes: 24 bits of parent, 8 of length, 32 of the last position, plus
    /// 1.
    pub(super) nodes: &'a mut [[u8; 8]],
    /// For each position the deepest node that it shares.
    pub(super) leaves: &'a mut [[u8; 4]],
    /// The last positions of three bytes, plus 1.
    pub(super) triples: &'a mut [[u8; 4]],
    /// Open nodes while the tree is made.
    pub(super) open: &'a mut [[u8; 8]; OPEN_MAX],
    pub(super) state: &'a mut SortedState,
}

/// State from block to block besides the memory.
#[derive(Clone, Default)]
pub(in super::super) struct SortedState {
    pub(super) nodes_len: u32,
    /// Positions from here to there are known.
    pub(super) next: usize,
    pub(super) len: u32,
    /// Where a long match begins and ends, and its offset. A later plan may begin before it.
    pub(super) within: (usize, usize, u32),
    /// Whether matches are recorded, or read from the record.
    pub(super) record: RecordMode,
    /// The next cell for a match that is not a position's longest.
    pub(super) more: u32,
}

impl<'a> Sorted<'a> {
    /// Bytes of workspace with as many cells as [`Sorted::carve`] is given.
    pub(in super::super) fn bytes(nodes: usize, leaves: usize, triples_log: u8) -> usize {
        8 * nodes + 4 * leaves + (4 << triples_log) + 8 * OPEN_MAX
    }

    /// Takes the tree from a workspace, for as many positions as there are `nodes` and `leaves`,
    /// with a table of three bytes of 2^`triples_log` cells.
    #[inline(always)]
    pub(in super::super) fn carve(
        carver: &mut Carver<'a>,
        nodes: usize,
        leaves: usize,
        triples_log: u8,
        state: &'a mut SortedState,
    ) -> Checked<Self> {
        Ok(Sorted {
            nodes: carver.cells(nodes)?,
            leaves: carver.cells(leaves)?,
            triples: carver.cells(1 << triples_log)?,
            open: carver.array()?,
            state,
        })
    }

    /// The memory of the nodes, for another use.
    pub(in super::super) fn nodes_memory(&mut self) -> &mut [[u8; 4]] {
        self.state.nodes_len = 0;
        self.nodes.as_flattened_mut().as_chunks_mut().0
    }

    /// The memory of the leaves. Those of positions that have been looked at may be overwritten if
    /// the tree is not started again.
    pub(in super::super) fn leaves_memory(&mut self) -> &mut [[u8; 4]] {
        self.leaves
    }
}

/// The use of the record of all matches.
///
/// The longest match of a position takes the place of its leaf, which has served its turn; the
/// others lie after the nodes, or are left out when that is full. A match is 17 bits of offset, 14
/// of length, and whether another one follows.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum RecordMode {
    #[default]
    None,
    Write,
    Read,
}
