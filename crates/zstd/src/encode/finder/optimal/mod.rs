//! The optimal parser: of all ways to divide a block into literals and matches, the one that a price model finds
//! cheapest.
//!
//! A block is planned as a whole, with prices that adapt on the way or, for the highest levels, with the prices of an
//! earlier pass. The plan is then divided where it pays to begin new entropy tables, and handed out part by part: each
//! call of [`Tables::find`] gives one block of the frame.

mod candidates;
mod chains;
pub(crate) mod divided;
mod parse;
mod partition;
mod pass;
mod plan;
mod prices;
mod sorted;

use self::candidates::Candidates;
use self::chains::Chains;
use self::parse::{Nodes, STEPS_MAX};
use self::partition::Chunks;
use self::pass::Parser;
use self::plan::Plan;
use self::prices::{COUNTS, Prices};
use self::sorted::Sorted;
use super::Block;
use crate::encode::levels::{Params, Strategy};
use crate::encode::store::SequenceStore;
use crate::workspace::{Carver, Cells};

/// Logarithm of the most positions that are sorted.
const SORTED_LOG_MAX: u8 = 20;
/// Positions that are looked at together where all are sorted.
const SPAN: usize = 128;

/// Tables and plan of the optimal parser.
///
/// Only memory and a few numbers are kept from block to block. What a block is parsed with is carved from the memory for as
/// long as that takes: on the stacks where an encoder lies it would be too large.
pub(crate) struct Tables<'a> {
    memory: &'a mut [u8],
    /// 1 when the memory of the nodes holds chains. It lies in the workspace to outlive the frame.
    chains_known: &'a mut [[u8; 4]; 1],
    kept: Kept,
}

/// What is kept from block to block beside the memory.
struct Kept {
    /// What is not sorted is found by these. They lie in the memory of the nodes.
    chains: Chains,
    sorted: sorted::State,
    /// Index of the first position that is sorted, and of the first that is not.
    sorted_range: (u32, u32),
    /// Bytes of the frame that have been counted, and of them those before the prices were last set.
    counted: (usize, usize),
    /// The steps lie in the memory of the leaves.
    plan: Plan,
}

impl Kept {
    /// Whether the positions of a block are sorted.
    fn is_sorted(&self, block: &Block<'_>) -> bool {
        let (from, to) = self.sorted_range;
        from == block.base && to >= block.base + block.end as u32
    }
}

impl<'a> Tables<'a> {
    /// Bytes of workspace.
    pub(crate) fn bytes(params: &Params) -> usize {
        Self::memory_bytes(params) + 4
    }

    fn memory_bytes(params: &Params) -> usize {
        let (nodes, leaves) = Self::cells(params);
        Sorted::bytes(nodes, leaves, Self::triples_log(params))
            + Prices::BYTES
            + Nodes::BYTES
            + Candidates::bytes(Self::span(params))
            + Chunks::bytes(true)
            + Chunks::bytes(Self::passes(params) > 1)
            + 4 * COUNTS
    }

    /// Positions whose matches are kept. Where memory is plenty, a second pass need not look for them again.
    fn span(params: &Params) -> usize {
        if params.strategy == Strategy::Optimal {
            1
        } else if params.window_log > 17 {
            params.block_size()
        } else {
            SPAN
        }
    }

    /// Most positions that are sorted.
    fn sorted_max(params: &Params) -> usize {
        if params.strategy == Strategy::Optimal2
            && params.window_log <= params.chain_log.min(SORTED_LOG_MAX)
        {
            1 << params.window_log
        } else {
            0
        }
    }

    fn triples_log(params: &Params) -> u8 {
        if params.strategy == Strategy::Optimal {
            0
        } else {
            params.window_log.min(15)
        }
    }

    /// Numbers of cells: of the nodes or the chains; of the leaves and the plan.
    fn cells(params: &Params) -> (usize, usize) {
        let plan = Self::plan_cells(params) + 2 * Self::steps_max(params);
        let chains = Chains::cells(params.hash_log, params.chain_log).div_ceil(2);
        if params.strategy == Strategy::Optimal {
            return (chains, plan);
        }
        let sorted = Self::sorted_room(params);
        (sorted.max(chains), sorted.max(plan))
    }

    /// Positions that have room. So much even where nothing is sorted, for the size to grow with the window.
    fn sorted_room(params: &Params) -> usize {
        1 << params.chain_log.min(params.window_log).min(SORTED_LOG_MAX)
    }

    /// Where the plan begins. A frame of one block does not need the leaves of what has been decided; a step takes two
    /// cells, and at least three positions.
    fn plan_cells(params: &Params) -> usize {
        let sorted = Self::sorted_room(params);
        if params.strategy == Strategy::Optimal2 && sorted > params.block_size() {
            sorted
        } else {
            0
        }
    }

    /// Most steps of a plan: where matches are shorter than six bytes for long, a block ends early.
    fn steps_max(params: &Params) -> usize {
        params.block_size() / 6 + STEPS_MAX
    }

    /// Takes the tables from a workspace.
    pub(crate) fn carve(carver: &mut Carver<'a>, params: &Params) -> Self {
        Tables {
            chains_known: carver.array(),
            memory: carver.bytes(Self::memory_bytes(params)),
            kept: Kept {
                chains: Chains::new(params.hash_log, params.chain_log, params.search_log),
                sorted: sorted::State::default(),
                sorted_range: (0, 0),
                counted: (0, 0),
                plan: Plan::new(Self::plan_cells(params), Self::steps_max(params)),
            },
        }
    }

    /// What a block is parsed with.
    #[inline(always)]
    fn parser(&mut self, params: &Params) -> Parser<'_> {
        let (nodes, leaves) = Self::cells(params);
        let mut carver = Carver::over(self.memory);
        let carver = &mut carver;
        Parser {
            chains_known: self.chains_known,
            sorted: Sorted::carve(
                carver,
                nodes,
                leaves,
                Self::triples_log(params),
                self.kept.sorted,
            ),
            prices: Prices::carve(carver),
            nodes: Nodes::carve(carver),
            candidates: Candidates::carve(carver, Self::span(params)),
            chunks: Chunks::carve(carver, true),
            chunks_before: Chunks::carve(carver, Self::passes(params) > 1),
            counts: carver.array(),
            kept: &mut self.kept,
        }
    }

    /// How often a block is gone through.
    fn passes(params: &Params) -> u32 {
        if params.strategy == Strategy::Optimal2 {
            2
        } else {
            1
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.chains_known.put(0, 0);
        self.start_frame();
    }

    /// Lowers every index by `by`.
    pub(crate) fn reduce(&mut self, by: u32, params: &Params) {
        if self.chains_known.at(0) == 1 {
            super::reduce(self.parser(params).sorted.nodes_memory(), by);
        }
        self.kept.chains.reduce(by);
        self.kept.plan.reduce(by);
        self.kept.sorted_range = (0, 0);
    }

    /// A new frame begins.
    pub(crate) fn start_frame(&mut self) {
        self.kept.chains.start_frame();
        self.kept.sorted_range = (0, 0);
        self.kept.counted = (0, 0);
        self.kept.plan.clear();
    }

    /// Makes the block known without looking for matches.
    pub(crate) fn insert(&mut self, block: &Block<'_>, params: &Params) {
        self.parser(params).insert(block);
    }

    /// Finds the sequences of a block, which may end earlier than asked for: then [`SequenceStore::cut`] is called.
    ///
    /// Returns where the literals behind the last sequence begin.
    #[inline(never)]
    pub(crate) fn find(
        &mut self,
        block: &Block<'_>,
        params: &Params,
        repeat: &mut [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> usize {
        if !self.kept.plan.is_for(block) {
            self.plan(block, params, *repeat);
        }
        self.tell(block, params, repeat, store)
    }

    /// Decides all sequences up to the end of a block, and how to divide them.
    #[inline(never)]
    fn plan(&mut self, block: &Block<'_>, params: &Params, repeat: [u32; 3]) {
        self.parser(params).plan(block, params, repeat);
    }

    /// Hands out the next part of the plan.
    #[inline(never)]
    fn tell(
        &mut self,
        block: &Block<'_>,
        params: &Params,
        repeat: &mut [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> usize {
        let mut parser = self.parser(params);
        let steps = parser.sorted.leaves_memory();
        let plan = &mut parser.kept.plan;
        plan.tell(steps, &parser.chunks, block, repeat, store)
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
