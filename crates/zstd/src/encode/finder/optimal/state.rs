//! The state of the optimal parser besides its memory, and the sizes that follow from its
//! parameters.

use super::candidates::Candidates;
use super::chains::HashChains;
use super::parse::{PriceNodes, STEPS_MAX};
use super::partition::Chunks;
use super::prices::{COUNTS, Prices};
use super::sorted::{Sorted, SortedState};
use super::step_queue::StepQueue;
use crate::encode::finder::index::SearchBlock;
use crate::encode::params::{Optimal, Params};
use crate::frame::BLOCK_SIZE_MAX;

/// State from block to block besides the memory.
#[derive(Clone)]
pub(crate) struct OptimalState {
    pub(super) sorted: SortedState,
    pub(super) rest: UnsortedState,
}

/// The state that does not belong to the sorted positions.
#[derive(Clone)]
pub(super) struct UnsortedState {
    pub(super) layout: OptimalLayout,
    /// Chains for positions that are not sorted. They lie in the memory of the nodes.
    pub(super) chains: HashChains,
    /// Index of the first position that is sorted, and of the first that is not.
    pub(super) sorted_range: (u32, u32),
    /// The frame's content has hardly any matches: one pass over chains finds them.
    pub(super) plain: bool,
    /// Bytes of the frame that have been counted, and of them those before the prices were last
    /// set.
    pub(super) counted: (usize, usize),
    /// Bytes that matches save little of, less those that savings since make up for.
    pub(super) barren: u32,
    /// The steps lie in the memory of the leaves.
    pub(super) plan: StepQueue,
}

impl OptimalState {
    /// The initial state.
    pub(crate) fn new(layout: OptimalLayout) -> Self {
        let params = &layout.params;
        OptimalState {
            sorted: SortedState::default(),
            rest: UnsortedState {
                layout,
                chains: HashChains::new(params.hash_log, params.chain_log, params.search_log),
                sorted_range: (0, 0),
                plain: false,
                counted: (0, 0),
                barren: 0,
                plan: StepQueue::new(layout.plan_cells(), layout.steps_max()),
            },
        }
    }
}

impl UnsortedState {
    /// Whether the positions of a block are sorted.
    pub(super) fn is_sorted(&self, block: &SearchBlock<'_>) -> bool {
        let (from, to) = self.sorted_range;
        from == block.base && to >= block.base + block.end as u32
    }
}

/// The parameters, and the sizes that follow from them.
#[derive(Clone, Copy)]
pub(crate) struct OptimalLayout {
    pub(super) params: Optimal,
    pub(super) window_log: u8,
}

impl OptimalLayout {
    /// The sizes for blocks of frames with `params`, whose strategy is `optimal`.
    pub(crate) fn new(params: &Params, optimal: &Optimal) -> Self {
        OptimalLayout {
            params: *optimal,
            window_log: params.window_log,
        }
    }

    /// Bytes of workspace.
    pub(crate) fn bytes(&self) -> usize {
        self.memory_bytes() + 4
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let (nodes, leaves) = self.cells();
        Sorted::bytes(nodes, leaves, self.triples_log())
            + Prices::BYTES
            + PriceNodes::BYTES
            + Candidates::bytes(self.span())
            + Chunks::bytes(true)
            + Chunks::bytes(self.passes() > 1)
            + 4 * COUNTS
    }

    fn block_size(&self) -> usize {
        BLOCK_SIZE_MAX.min(1 << self.window_log)
    }

    /// How often a block is parsed.
    pub(super) fn passes(&self) -> u32 {
        self.params.passes.into()
    }

    /// Positions whose matches are kept. Where memory is plenty, a second pass need not look for
    /// them again.
    pub(super) fn span(&self) -> usize {
        if self.passes() == 1 {
            1
        } else if self.window_log > Optimal::SPAN_WINDOW_LOG_MAX {
            self.block_size()
        } else {
            Optimal::SPAN
        }
    }

    /// Most positions that are sorted.
    pub(super) fn sorted_max(&self) -> usize {
        if self.passes() > 1 && self.window_log <= Optimal::SORTED_LOG_MAX {
            1 << self.window_log
        } else {
            0
        }
    }

    pub(super) fn triples_log(&self) -> u8 {
        if self.passes() == 1 {
            0
        } else {
            self.window_log.min(Optimal::TRIPLES_LOG_MAX)
        }
    }

    /// Table sizes in cells: (nodes or chains, leaves and plan).
    pub(super) fn cells(&self) -> (usize, usize) {
        let plan = self.plan_cells() + 2 * self.steps_max();
        let chains = HashChains::cells(self.params.hash_log, self.params.chain_log).div_ceil(2);
        if self.passes() == 1 {
            return (chains, plan);
        }
        let sorted = self.sorted_room();
        (sorted.max(chains), sorted.max(plan))
    }

    /// Positions that have room. So much even where nothing is sorted, for the size to grow with
    /// the window.
    fn sorted_room(&self) -> usize {
        1 << self.window_log.min(Optimal::SORTED_LOG_MAX)
    }

    /// Where the plan begins. A frame of one block does not need the leaves of decided positions; a
    /// step takes two cells, and at least three positions.
    fn plan_cells(&self) -> usize {
        let sorted = self.sorted_room();
        if self.passes() > 1 && sorted > self.block_size() {
            sorted
        } else {
            0
        }
    }

    /// Most steps of a plan: where matches are shorter than six bytes for long, a block ends early.
    fn steps_max(&self) -> usize {
        self.block_size() / 6 + STEPS_MAX
    }
}
