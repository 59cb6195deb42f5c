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
mod state;
mod step_queue;

pub(crate) use self::state::{OptimalLayout, OptimalState};

use self::candidates::Candidates;
use self::parse::PriceNodes;
use self::partition::Chunks;
use self::pass::Parser;
use self::prices::Prices;
use self::sorted::Sorted;
use super::index::SearchBlock;
use crate::checked::Checked;
use crate::encode::store::SequenceStore;
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

impl<'a> OptimalTables<'a> {
    /// Takes the tables from a workspace.
    pub(crate) fn carve(carver: &mut Carver<'a>, kept: &'a mut OptimalState) -> Checked<Self> {
        Ok(OptimalTables {
            chains_known: carver.array()?,
            memory: carver.bytes(kept.rest.layout.memory_bytes())?,
            kept,
        })
    }

    /// The parser of a block, carved from the memory.
    #[inline(always)]
    fn parser(&mut self) -> Checked<Parser<'_>> {
        let layout = self.kept.rest.layout;
        let (nodes, leaves) = layout.cells();
        let mut carver = Carver::over(self.memory);
        let carver = &mut carver;
        Ok(Parser {
            chains_known: self.chains_known,
            sorted: Sorted::carve(
                carver,
                nodes,
                leaves,
                layout.triples_log(),
                &mut self.kept.sorted,
            )?,
            prices: Prices::carve(carver)?,
            nodes: PriceNodes::carve(carver)?,
            candidates: Candidates::carve(carver, layout.span())?,
            chunks: Chunks::carve(carver, true)?,
            chunks_before: Chunks::carve(carver, layout.passes() > 1)?,
            counts: carver.array()?,
            kept: &mut self.kept.rest,
        })
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.chains_known.put(0, 0);
        self.start_frame();
    }

    /// Lowers every index by `by`.
    pub(crate) fn reduce(&mut self, by: u32) -> Checked<()> {
        if self.chains_known.at(0) == 1 {
            super::index::reduce(self.parser()?.sorted.nodes_memory(), by);
        }
        let kept = &mut self.kept.rest;
        kept.chains.reduce(by);
        kept.plan.reduce(by);
        kept.sorted_range = (0, 0);
        Ok(())
    }

    /// A new frame begins.
    pub(crate) fn start_frame(&mut self) {
        let kept = &mut self.kept.rest;
        kept.chains.start_frame();
        kept.sorted_range = (0, 0);
        kept.plain = false;
        kept.counted = (0, 0);
        kept.barren = 0;
        kept.plan.clear();
    }

    /// Makes the block known without looking for matches.
    pub(crate) fn insert(&mut self, block: &SearchBlock<'_>) -> Checked<()> {
        self.parser()?.insert(block)
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
    ) -> Checked<usize> {
        if !self.kept.rest.plan.is_for(block) {
            self.plan(block, *repeat)?;
        }
        self.hand_out(block, repeat, store)
    }

    /// Decides all sequences up to the end of a block, and how to divide them.
    #[inline(never)]
    fn plan(&mut self, block: &SearchBlock<'_>, repeat: [u32; 3]) -> Checked<()> {
        self.parser()?.plan(block, repeat)
    }

    /// Hands out the next part of the plan.
    #[inline(never)]
    fn hand_out(
        &mut self,
        block: &SearchBlock<'_>,
        repeat: &mut [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> Checked<usize> {
        let mut parser = self.parser()?;
        let steps = parser.sorted.leaves_memory();
        let plan = &mut parser.kept.plan;
        plan.hand_out(steps, &parser.chunks, block, repeat, store)
    }
}
