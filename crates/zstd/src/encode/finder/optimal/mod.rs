//! The optimal parser: of all parses of a block into literals and matches, the one that a price
//! model finds cheapest.
//!
//! A block is planned as a whole, with prices that adapt as it goes or, for the highest levels,
//! with the prices of an earlier pass. The plan is then divided where it pays to begin new entropy
//! tables, and handed out part by part: each call of [`OptimalTables::find`] gives one block of the
//! frame. `docs/zstd-optimal-parser.md` explains the words, with pictures.

mod candidates;
mod chains;
pub(crate) mod divided;
mod parse;
mod partition;
mod pass;
mod prices;
mod sorted;
mod step_queue;

use self::candidates::Candidates;
use self::chains::HashChains;
use self::parse::{PriceNodes, STEPS_MAX};
use self::partition::Chunks;
use self::pass::Parser;
use self::prices::{COUNTS, Prices};
use self::sorted::Sorted;
use self::step_queue::StepQueue;
use super::index::SearchBlock;
use crate::encode::params::{Optimal, Params};
use crate::encode::store::SequenceStore;
use crate::frame::BLOCK_SIZE_MAX;
use crate::workspace::{Carver, Cells};

/// Tables and plan of the optimal parser.
///
/// Only memory and a few numbers are kept from block to block. The parser is carved from the memory
/// for the time of one block: on the stacks where an encoder lies it would be too large.
pub(crate) struct OptimalTables<'a> {
    memory: &'a mut [u8],
    /// 1 when the memory of the nodes holds chains. It lies in the workspace to outlive the frame.
    chains_known: &'a mut [[u8; 4]; 1],
    kept: &'a mut OptimalState,
}

/// State from block to block besides the memory.
#[derive(Clone)]
pub(crate) struct OptimalState {
    sorted: sorted::SortedState,
    rest: UnsortedState,
}

/// The state that does not belong to the sorted positions.
#[derive(Clone)]
struct UnsortedState {
    layout: OptimalLayout,
    /// Chains for positions that are not sorted. They lie in the memory of the nodes.
    chains: HashChains,
    /// Index of the first position that is sorted, and of the first that is not.
    sorted_range: (u32, u32),
    /// Bytes of the frame that have been counted, and of them those before the prices were last
    /// set.
    counted: (usize, usize),
    /// The steps lie in the memory of the leaves.
    plan: StepQueue,
}

impl OptimalState {
    /// The initial state.
    pub(crate) fn new(layout: OptimalLayout) -> Self {
        let params = &layout.params;
        OptimalState {
            sorted: sorted::SortedState::default(),
            rest: UnsortedState {
                layout,
                chains: HashChains::new(params.hash_log, params.chain_log, params.search_log),
                sorted_range: (0, 0),
                counted: (0, 0),
                plan: StepQueue::new(layout.plan_cells(), layout.steps_max()),
            },
        }
    }
}

impl UnsortedState {
    /// Whether the positions of a block are sorted.
    fn is_sorted(&self, block: &SearchBlock<'_>) -> bool {
        let (from, to) = self.sorted_range;
        from == block.base && to >= block.base + block.end as u32
    }
}

/// The parameters, and the sizes that follow from them.
#[derive(Clone, Copy)]
pub(crate) struct OptimalLayout {
    params: Optimal,
    window_log: u8,
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

    fn memory_bytes(&self) -> usize {
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
    fn passes(&self) -> u32 {
        self.params.passes.into()
    }

    /// Positions whose matches are kept. Where memory is plenty, a second pass need not look for
    /// them again.
    fn span(&self) -> usize {
        if self.passes() == 1 {
            1
        } else if self.window_log > Optimal::SPAN_WINDOW_LOG_MAX {
            self.block_size()
        } else {
            Optimal::SPAN
        }
    }

    /// Most positions that are sorted.
    fn sorted_max(&self) -> usize {
        if self.passes() > 1 && self.window_log <= Optimal::SORTED_LOG_MAX {
            1 << self.window_log
        } else {
            0
        }
    }

    fn triples_log(&self) -> u8 {
        if self.passes() == 1 {
            0
        } else {
            self.window_log.min(Optimal::TRIPLES_LOG_MAX)
        }
    }

    /// Table sizes in cells: (nodes or chains, leaves and plan).
    fn cells(&self) -> (usize, usize) {
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

impl<'a> OptimalTables<'a> {
    /// Takes the tables from a workspace.
    pub(crate) fn carve(carver: &mut Carver<'a>, kept: &'a mut OptimalState) -> Self {
        OptimalTables {
            chains_known: carver.array(),
            memory: carver.bytes(kept.rest.layout.memory_bytes()),
            kept,
        }
    }

    /// The parser of a block, carved from the memory.
    #[inline(always)]
    fn parser(&mut self) -> Parser<'_> {
        let layout = self.kept.rest.layout;
        let (nodes, leaves) = layout.cells();
        let mut carver = Carver::over(self.memory);
        let carver = &mut carver;
        Parser {
            chains_known: self.chains_known,
            sorted: Sorted::carve(
                carver,
                nodes,
                leaves,
                layout.triples_log(),
                &mut self.kept.sorted,
            ),
            prices: Prices::carve(carver),
            nodes: PriceNodes::carve(carver),
            candidates: Candidates::carve(carver, layout.span()),
            chunks: Chunks::carve(carver, true),
            chunks_before: Chunks::carve(carver, layout.passes() > 1),
            counts: carver.array(),
            kept: &mut self.kept.rest,
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.chains_known.put(0, 0);
        self.start_frame();
    }

    /// Lowers every index by `by`.
    pub(crate) fn reduce(&mut self, by: u32) {
        if self.chains_known.at(0) == 1 {
            super::index::reduce(self.parser().sorted.nodes_memory(), by);
        }
        let kept = &mut self.kept.rest;
        kept.chains.reduce(by);
        kept.plan.reduce(by);
        kept.sorted_range = (0, 0);
    }

    /// A new frame begins.
    pub(crate) fn start_frame(&mut self) {
        let kept = &mut self.kept.rest;
        kept.chains.start_frame();
        kept.sorted_range = (0, 0);
        kept.counted = (0, 0);
        kept.plan.clear();
    }

    /// Makes the block known without looking for matches.
    pub(crate) fn insert(&mut self, block: &SearchBlock<'_>) {
        self.parser().insert(block);
    }

    /// Finds the sequences of a block, which may end earlier than asked for: then
    /// [`SequenceStore::cut`] is called.
    ///
    /// Returns where the literals after the last sequence begin.
    #[inline(always)]
    pub(crate) fn find(
        &mut self,
        block: &SearchBlock<'_>,
        repeat: &mut [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> usize {
        if !self.kept.rest.plan.is_for(block) {
            self.plan(block, *repeat);
        }
        self.hand_out(block, repeat, store)
    }

    /// Decides all sequences up to the end of a block, and how to divide them.
    #[inline(never)]
    fn plan(&mut self, block: &SearchBlock<'_>, repeat: [u32; 3]) {
        self.parser().plan(block, repeat);
    }

    /// Hands out the next part of the plan.
    #[inline(never)]
    fn hand_out(
        &mut self,
        block: &SearchBlock<'_>,
        repeat: &mut [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> usize {
        let mut parser = self.parser();
        let steps = parser.sorted.leaves_memory();
        let plan = &mut parser.kept.plan;
        plan.hand_out(steps, &parser.chunks, block, repeat, store)
    }
}

/// How many bytes at `at` and at `before`, which lies before it, are equal, up to `end`.
#[inline(always)]
fn match_length(data: &[u8], at: usize, before: usize, end: usize) -> usize {
    let (ahead, behind) = (&data[at..end], &data[before..]);
    let behind = &behind[..ahead.len()];
    let (ahead8, ahead_rest) = ahead.as_chunks::<8>();
    let (behind8, behind_rest) = behind.as_chunks::<8>();
    for (i, (a, b)) in ahead8.iter().zip(behind8).enumerate() {
        let differ = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differ != 0 {
            return 8 * i + differ.trailing_zeros() as usize / 8;
        }
    }
    let rest = ahead_rest.iter().zip(behind_rest);
    8 * ahead8.len() + rest.take_while(|(a, b)| a == b).count()
}
