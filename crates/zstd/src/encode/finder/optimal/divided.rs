//! The lazy search, with the block divided where it pays to begin new entropy tables.

use super::partition::{CHUNK_LOG, Chunks};
use super::prices;
use super::step_queue::StepQueue;
use crate::checked::{Checked, CheckedSlice};
use crate::encode::finder::index::SearchBlock;
use crate::encode::finder::{lazy, row};
use crate::encode::params::LazyDivided;
use crate::encode::store::SequenceStore;
use crate::sequences::{MATCH_MIN, update_repeat_offsets};
use crate::workspace::Carver;

/// Tables of the lazy search, and its matches.
pub(crate) struct DividedTables<'a> {
    rows: row::LazyTables<'a>,
    chunks: Chunks<'a>,
    steps: &'a mut [[u8; 4]],
    plan: &'a mut StepQueue,
}

/// State from block to block besides the memory.
#[derive(Clone)]
pub(crate) struct DividedState {
    params: LazyDivided,
    steps_max: u32,
    /// The first index that has not entered the rows.
    next: usize,
    plan: StepQueue,
}

impl DividedState {
    /// The initial state, for blocks of at most `block_size`.
    pub(crate) fn new(params: &LazyDivided, block_size: usize) -> Self {
        let steps = DividedTables::steps_max(block_size);
        DividedState {
            params: *params,
            steps_max: steps as u32,
            next: 0,
            plan: StepQueue::new(0, steps),
        }
    }
}

impl<'a> DividedTables<'a> {
    /// Bytes of workspace, for blocks of at most `block_size`.
    pub(crate) fn bytes(params: &LazyDivided, block_size: usize) -> usize {
        row::LazyTables::bytes(&params.lazy, params.chain_log)
            + Chunks::bytes(true)
            + 8 * Self::steps_max(block_size)
    }

    /// Most steps of a plan. Each takes two cells.
    fn steps_max(block_size: usize) -> usize {
        block_size / MATCH_MIN + 1
    }

    /// Takes the tables from a workspace, the rows first.
    pub(crate) fn carve(carver: &mut Carver<'a>, kept: &'a mut DividedState) -> Checked<Self> {
        let params = &kept.params;
        Ok(DividedTables {
            rows: row::LazyTables::carve(carver, &params.lazy, params.chain_log, &mut kept.next)?,
            chunks: Chunks::carve(carver, true)?,
            steps: carver.cells(2 * kept.steps_max as usize)?,
            plan: &mut kept.plan,
        })
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.plan.clear();
    }

    /// Lowers every index by `by`.
    pub(crate) fn reduce(&mut self, by: u32) {
        self.rows.reduce(by);
        self.plan.reduce(by);
    }

    /// A new frame begins.
    pub(crate) fn start_frame(&mut self) {
        self.rows.start_frame();
        self.plan.clear();
    }

    /// Makes the block known without looking for matches.
    pub(crate) fn insert(&mut self, block: &SearchBlock<'_>, min_match: u8) -> Checked<()> {
        self.rows.insert(block, min_match)
    }

    /// Finds the sequences of a block, which may end earlier than asked for: then
    /// [`SequenceStore::cut`] is called.
    ///
    /// Returns where the literals after the last sequence begin.
    #[inline(never)]
    pub(crate) fn find(
        &mut self,
        block: &SearchBlock<'_>,
        min_match: u8,
        repeat: &mut [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> Checked<usize> {
        if !self.plan.is_for(block) {
            self.plan(block, min_match, *repeat, store)?;
        }
        self.plan
            .hand_out(self.steps, &self.chunks, block, repeat, store)
    }

    /// Searches the whole block, and divides it.
    #[inline(never)]
    fn plan(
        &mut self,
        block: &SearchBlock<'_>,
        min_match: u8,
        repeat: [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> Checked<()> {
        let mut kept = repeat;
        store.clear();
        let anchor = lazy::find_block(&mut self.rows, block, min_match, &mut kept, store)?;
        let end = if store.is_full(block.end - anchor) {
            anchor
        } else {
            block.end
        };
        self.plan.start();
        self.chunks.start();
        let mut repeat = repeat;
        let (mut at, mut chunk) = (block.start, 0);
        for sequence in store.sequences()? {
            let (literals, value) = (sequence.literal_length(), sequence.offset_value());
            update_repeat_offsets(&mut repeat, value, literals);
            self.plan
                .push(self.steps, literals, repeat[0], sequence.match_length())?;
            let counts = self.chunks.chunk(chunk)?;
            let bytes = block.data.checked(at..at + literals as usize)?;
            prices::count_literals(counts, bytes, 1);
            prices::count_sequence(counts, (literals, value, sequence.match_length()), 1)?;
            at += (literals + sequence.match_length()) as usize;
            chunk = (at - block.start) >> CHUNK_LOG;
        }
        let bytes = block.data.checked(at..end)?;
        prices::count_literals(self.chunks.chunk(chunk)?, bytes, 1);
        self.chunks.join()?;
        store.clear();
        self.plan
            .ready(block.base + block.start as u32, block.base + end as u32);
        Ok(())
    }
}
