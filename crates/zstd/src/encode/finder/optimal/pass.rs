//! Passes over a block: deciding, counting and pricing.

use super::candidates::Candidates;
use super::chains::HashChains;
use super::parse::{Effort, ParsePosition, ParseStep, PriceNodes, StepSeries, short_offsets};
use super::partition::{CHUNK_LOG, Chunks};
use super::prices::{self, Counts, PRICED_LENGTH_MAX, Prices, RecordWeights, WEIGHT};
use super::sorted::{RECORDED_MAX, Sorted};
use super::state::UnsortedState;
use crate::checked::{Checked, CheckedSlice};
use crate::encode::finder::index::{SearchBlock, repeats, word_at};
use crate::encode::levels::SHORT_LOG_MAX;
use crate::encode::params::Optimal;
use crate::encode::sample::literal_bits;
use crate::sequences::offset_code;
use crate::workspace::Cells;

/// A pass over a block.
struct Pass<'b> {
    block: &'b SearchBlock<'b>,
    /// Whether the block's positions are sorted.
    sorted: bool,
    effort: Effort,
    /// With the prices of the parts of the pass before, instead of prices that adapt.
    again: bool,
    /// Its decisions are the plan.
    last: bool,
    /// Long runs of literals are passed: the matches of each position are wanted once.
    skims: bool,
}

/// The tables and state that a block is parsed with.
pub(super) struct Parser<'a> {
    pub(super) kept: &'a mut UnsortedState,
    /// 1 when the memory of the nodes holds chains.
    pub(super) chains_known: &'a mut [[u8; 4]; 1],
    pub(super) sorted: Sorted<'a>,
    pub(super) prices: Prices<'a>,
    pub(super) nodes: PriceNodes<'a>,
    pub(super) candidates: Candidates<'a>,
    /// The parts of the plan.
    pub(super) chunks: Chunks<'a>,
    /// Those of the first of two passes.
    pub(super) chunks_before: Chunks<'a>,
    /// The weighted counts that prices follow from; kept from block to block.
    pub(super) counts: &'a mut Counts,
}

impl<'a> Parser<'a> {
    /// Makes the block known without looking for matches.
    pub(super) fn insert(&mut self, block: &SearchBlock<'_>) -> Checked<()> {
        self.ready_chains();
        let cells = self.sorted.nodes_memory();
        self.kept.chains.insert(cells, block, block.end)
    }

    /// Whether content has hardly any matches.
    #[inline(never)]
    fn is_plain(&mut self, block: &SearchBlock<'_>) -> Checked<bool> {
        // Nothing has been counted yet.
        let sample = self.counts.first_chunk_mut().expect("literals come first");
        let bits = literal_bits(block.data, sample);
        if block.data.len() < Optimal::PLAIN_MIN
            || bits.is_some_and(|bits| bits < Optimal::PLAIN_BITS_MIN)
        {
            return Ok(false);
        }
        self.ready_chains();
        let (cells, chains) = (self.sorted.nodes_memory(), &mut self.kept.chains);
        let content = SearchBlock {
            end: block.data.len(),
            ..*block
        };
        let run = (Optimal::PLAIN_RUN, false);
        let (mut at, mut matched) = (0, 0);
        while at < content.end && matched <= content.end >> Optimal::PLAIN_LOG {
            let found = chains.skim(cells, &content, at, run, 0)?;
            if found == content.end {
                break;
            }
            at = (chains.match_end() - block.base) as usize;
            matched += at - found;
        }
        // The tables hold positions to come.
        self.chains_known.put(0, 0);
        Ok(matched <= content.end >> Optimal::PLAIN_LOG)
    }

    /// Makes the memory of the nodes that of the chains.
    fn ready_chains(&mut self) {
        if self.chains_known.at(0) != 1 {
            self.sorted.nodes_memory().fill([0; 4]);
            self.kept.chains.start_frame();
            self.chains_known.put(0, 1);
        }
        self.kept.sorted_range = (0, 0);
    }

    /// Decides all sequences up to the end of a block, and how to divide them.
    #[inline(always)]
    pub(super) fn plan(&mut self, block: &SearchBlock<'_>, repeat: [u32; 3]) -> Checked<()> {
        let layout = self.kept.layout;
        let from = block.base + block.start as u32;
        let sortable = block.start == 0 && block.data.len() <= layout.sorted_max();
        if sortable && self.kept.counted.0 == 0 {
            self.kept.plain = self.is_plain(block)?;
        }
        if sortable && !self.kept.plain {
            self.chains_known.put(0, 0);
            self.sorted.build(block.data)?;
            self.kept.sorted_range = (from, from + block.data.len() as u32);
            if layout.span() < block.data.len() && block.data.len() <= RECORDED_MAX {
                self.sorted.record();
            }
        } else if !self.kept.is_sorted(block) || self.sorted.is_recorded() {
            self.ready_chains();
        }
        if self.kept.counted.0 == 0 {
            let records = records(layout.window_log <= SHORT_LOG_MAX);
            let source = block.data.checked(block.start..block.end)?;
            prices::seed(self.counts, source, records);
        }
        // After a first pass, tables hold the positions to come instead of those before: they serve
        // once.
        let again = self.kept.is_sorted(block) || layout.span() >= block.end - block.start;
        let passes = if again && !self.kept.plain {
            layout.passes()
        } else {
            1
        };
        if self.kept.plain {
            self.candidates.narrow();
        }
        let mut end = block.end;
        for pass in 1..=passes {
            // The first of two passes only counts.
            let effort = Effort {
                sufficient: usize::from(layout.params.sufficient_length)
                    .clamp(16, PRICED_LENGTH_MAX),
                thorough: pass > 1,
                skip_margin: layout.params.skip_margin(passes),
                short: layout.window_log <= SHORT_LOG_MAX,
            };
            let pass = Pass {
                block,
                sorted: self.kept.is_sorted(block),
                effort,
                again: pass > 1,
                last: pass == passes,
                skims: layout.passes() == 1 || self.kept.plain,
            };
            end = self.pass(&pass, repeat)?;
        }
        self.kept.plan.ready(from, block.base + end as u32);
        Ok(())
    }

    /// Decides all sequences. Returns where the plan ends.
    #[inline(never)]
    fn pass(&mut self, pass: &Pass<'_>, repeat: [u32; 3]) -> Checked<usize> {
        let (block, sufficient) = (pass.block, pass.effort.sufficient);
        let cached = pass.again && self.candidates.covers(block.start, block.end);
        if pass.sorted && pass.again && !cached {
            if self.sorted.is_recorded() {
                self.sorted.replay();
            } else {
                self.sorted.restart()?;
            }
        }
        if !cached {
            self.candidates.start(block.start)?;
        }
        self.kept.plan.start();
        self.chunks(pass.last).start();
        if !pass.again {
            self.prices.set(self.counts, WEIGHT, sufficient)?;
        }
        let mut state = ParsePosition {
            at: block.start,
            pending: 0,
            repeat,
        };
        let mut part = 0;
        while state.at < block.end && self.kept.plan.has_room() {
            let past = state.at - block.start;
            if pass.again {
                part = self.enter_parts(part, past, sufficient)?;
            }
            if !pass.last
                && past >= Optimal::SAMPLE_FROM
                && past % (2 * Optimal::SAMPLE) >= Optimal::SAMPLE
            {
                state.at = block
                    .end
                    .min(state.at + Optimal::SAMPLE - past % Optimal::SAMPLE);
                state.pending = 0;
                self.look_up(pass, state.at)?;
                if state.at == block.end {
                    break;
                }
            }
            self.pass_literals(pass, &mut state)?;
            let began = state.at;
            let mut way = self.series(pass, &state)?;
            self.take(pass, &mut way, &mut state)?;
            if !pass.again {
                self.adapt(state.at - began, &pass.effort)?;
            }
        }
        self.end_pass(pass, &state)
    }

    /// Counts the last literals. Returns where the plan ends. Apart, for a smaller frame of the
    /// caller on the stack.
    #[inline(never)]
    fn end_pass(&mut self, pass: &Pass<'_>, state: &ParsePosition) -> Checked<usize> {
        let block = pass.block;
        let anchor = state.at - state.pending as usize;
        let literals = block.data.checked(anchor..state.at)?;
        let chunks = self.chunks(pass.last);
        let counts = chunks.chunk((anchor - block.start) >> CHUNK_LOG)?;
        prices::count_literals(counts, literals, 1);
        chunks.join()?;
        Ok(state.at)
    }

    /// The first of two passes counts for the second.
    #[inline(always)]
    fn chunks(&mut self, last: bool) -> &mut Chunks<'a> {
        if last {
            &mut self.chunks
        } else {
            &mut self.chunks_before
        }
    }

    /// Sets the prices of the part of the previous pass that holds the position `past`, unless they
    /// are current. `part` is the next part to enter; returns the new one.
    fn enter_parts(&mut self, mut part: usize, past: usize, sufficient: usize) -> Checked<usize> {
        // Several parts may have been passed at once.
        let mut entered = None;
        while let Some((start, counts)) = self.chunks_before.part(part)?
            && start <= past
        {
            entered = Some(counts);
            part += 1;
        }
        if let Some(counts) = entered {
            self.prices.set(counts, 1, sufficient)?;
        }
        Ok(part)
    }

    /// Makes the matches of all positions before `to` known: the next pass wants them.
    #[inline(never)]
    fn look_up(&mut self, pass: &Pass<'_>, to: usize) -> Checked<()> {
        while self.candidates.end() < to {
            let at = self.candidates.end();
            let chains = &mut self.kept.chains;
            fill(&mut self.sorted, chains, pass, at, &mut self.candidates)?;
        }
        Ok(())
    }

    /// Passes literals up to a position where a match begins.
    #[inline(never)]
    fn pass_literals(&mut self, pass: &Pass<'_>, state: &mut ParsePosition) -> Checked<()> {
        let short = pass.effort.short;
        loop {
            let barren = self.kept.barren + state.pending;
            if pass.skims && (state.pending >= Optimal::SKIM_FROM || barren >= Optimal::BARREN_FROM)
            {
                let cells = self.sorted.nodes_memory();
                let run = (state.pending, short);
                let chains = &mut self.kept.chains;
                let at = chains.skim(cells, pass.block, state.at, run, state.repeat[0])?;
                state.pending += (at - state.at) as u32;
                state.at = at;
            }
            if !self.is_literal(pass, state)? {
                return Ok(());
            }
            state.at += 1;
            state.pending += 1;
            if pass.again {
                continue;
            }
            // Prices that are set between literals help records, but take long in short content.
            if short {
                self.kept.counted.0 += 1;
            } else {
                self.adapt(1, &pass.effort)?;
            }
        }
    }

    /// Whether no match begins at a position.
    #[inline(always)]
    fn is_literal(&mut self, pass: &Pass<'_>, state: &ParsePosition) -> Checked<bool> {
        let (block, at) = (pass.block, state.at);
        let Some(word) = word_at(block, at) else {
            return Ok(false);
        };
        for offset in short_offsets(state.repeat, state.pending) {
            if repeats(block, at, offset, word) {
                return Ok(false);
            }
        }
        if at >= self.candidates.end() {
            let chains = &mut self.kept.chains;
            fill(&mut self.sorted, chains, pass, at, &mut self.candidates)?;
        }
        Ok(self.candidates.range(at)?.is_empty())
    }

    /// Decides the next series of steps.
    #[inline(always)]
    fn series(&mut self, pass: &Pass<'_>, state: &ParsePosition) -> Checked<StepSeries> {
        let (sorted, chains) = (&mut self.sorted, &mut self.kept.chains);
        self.nodes.series(
            pass.block,
            state,
            &self.prices,
            pass.effort,
            &mut self.candidates,
            |at, candidates| fill(sorted, chains, pass, at, candidates),
        )
    }

    /// Counts the steps of a series and plans them.
    #[inline(never)]
    fn take(
        &mut self,
        pass: &Pass<'_>,
        way: &mut StepSeries,
        state: &mut ParsePosition,
    ) -> Checked<()> {
        let block = pass.block;
        let mut anchor = state.at - state.pending as usize;
        while let Some(step) = self.nodes.next_step(way, state)? {
            let literals = anchor..anchor + step.literals as usize;
            let literals = block.data.checked(literals)?;
            let sequence = (step.literals, step.value, step.length);
            let chunk = (anchor - block.start) >> CHUNK_LOG;
            let counts = self.chunks(pass.last).chunk(chunk)?;
            prices::count_literals(counts, literals, 1);
            prices::count_sequence(counts, sequence, 1)?;
            if !pass.again {
                prices::count_literals(self.counts, literals, WEIGHT);
                prices::count_sequence(self.counts, sequence, WEIGHT)?;
            }
            if pass.skims {
                self.weigh(block, &step, state.at)?;
            }
            anchor = state.at;
            if pass.last {
                let cells = self.sorted.leaves_memory();
                let plan = &mut self.kept.plan;
                plan.push(cells, step.literals, step.offset, step.length)?;
            }
        }
        Ok(())
    }

    /// Adds the bytes of a step, which ends at `end`, to the barren ones. Its match makes up for
    /// some by the part of the price of its bytes as literals that it saves.
    #[inline(always)]
    fn weigh(&mut self, block: &SearchBlock<'_>, step: &ParseStep, end: usize) -> Checked<()> {
        if step.length >= Optimal::WEIGHED_BELOW {
            self.kept.barren = 0;
            return Ok(());
        }
        let barren = (self.kept.barren + step.literals).min(Optimal::BARREN_MAX) + step.length;
        let mut worth = 0;
        if barren >= Optimal::BARREN_MIN {
            let bytes = block.data.checked(end - step.length as usize..end)?;
            let literals: u32 = bytes.iter().map(|&byte| self.prices.literal(byte)).sum();
            let length = self.prices.match_lengths().checked_at(bytes.len())?;
            let price = self.prices.offset(offset_code(step.value)) + length;
            worth = literals.saturating_sub(price) * step.length * Optimal::WORTH / literals.max(1);
        }
        self.kept.barren = barren.saturating_sub(worth);
        Ok(())
    }

    /// Adapts the prices to the counts of `n` bytes.
    #[inline(always)]
    fn adapt(&mut self, n: usize, effort: &Effort) -> Checked<()> {
        let counted = &mut self.kept.counted;
        counted.0 += n;
        // Little has been counted at first: prices change quickly.
        let few = (counted.0 >> Optimal::PRICES_SHARE_LOG)
            .max(if effort.short {
                (counted.0 >> 2).clamp(Optimal::SHORT_PRICES_MIN, Optimal::SHORT_PRICES_MAX)
            } else {
                0
            })
            .min(1 << Optimal::PRICES_LOG);
        if counted.0 - counted.1 >= few {
            counted.1 = counted.0;
            // Cheap literals keep matches dear: the prices would not say what is missed. Looked at
            // here, and not at each match, since a sum over all literals takes long.
            if self.kept.barren > 0 && !prices::literals_are_even(self.counts) {
                self.kept.barren = 0;
            }
            prices::fade(self.counts, records(effort.short));
            self.prices.set(self.counts, WEIGHT, effort.sufficient)?;
        }
        Ok(())
    }
}

fn records(short: bool) -> &'static RecordWeights {
    if short {
        &RecordWeights::SHORT
    } else {
        &RecordWeights::USUAL
    }
}

/// Finds the matches of the positions from `at` on.
#[inline(always)]
fn fill(
    sorted: &mut Sorted<'_>,
    chains: &mut HashChains,
    pass: &Pass<'_>,
    at: usize,
    candidates: &mut Candidates<'_>,
) -> Checked<()> {
    if pass.sorted {
        sorted.fill(pass.block, at, pass.effort.sufficient, candidates)
    } else {
        let cells = sorted.nodes_memory();
        chains.insert(cells, pass.block, at)?;
        chains.fill(cells, pass.block, at, pass.effort.sufficient, candidates)
    }
}
