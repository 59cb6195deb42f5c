//! Passes over a block: deciding, counting and pricing.

use super::candidates::Candidates;
use super::chains::HashChains;
use super::parse::{Effort, ParsePosition, PriceNodes, StepSeries};
use super::partition::{CHUNK_LOG, Chunks};
use super::prices::{self, Counts, PRICED_LENGTH_MAX, Prices, RecordWeights, WEIGHT};
use super::sorted::{RECORDED_MAX, Sorted};
use super::state::UnsortedState;
use crate::encode::finder::index::SearchBlock;
use crate::encode::params::Optimal;
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
    pub(super) fn insert(&mut self, block: &SearchBlock<'_>) {
        self.ready_chains();
        let cells = self.sorted.nodes_memory();
        self.kept.chains.insert(cells, block, block.end);
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
    pub(super) fn plan(&mut self, block: &SearchBlock<'_>, repeat: [u32; 3]) {
        let layout = self.kept.layout;
        if self.kept.counted.0 == 0 {
            let records = records(layout.window_log <= Optimal::SHORT_LOG_MAX);
            prices::seed(self.counts, &block.data[block.start..block.end], records);
        }
        let from = block.base + block.start as u32;
        if block.start == 0 && block.data.len() <= layout.sorted_max() {
            self.chains_known.put(0, 0);
            self.sorted.build(block.data);
            self.kept.sorted_range = (from, from + block.data.len() as u32);
            if layout.span() < block.data.len() && block.data.len() <= RECORDED_MAX {
                self.sorted.record();
            }
        } else if !self.kept.is_sorted(block) || self.sorted.is_recorded() {
            self.ready_chains();
        }
        // After a first pass, tables hold the positions to come instead of those before: they serve
        // once.
        let again = self.kept.is_sorted(block) || layout.span() >= block.end - block.start;
        let passes = if again { layout.passes() } else { 1 };
        let mut end = block.end;
        for pass in 1..=passes {
            // The first of two passes only counts.
            let effort = Effort {
                sufficient: usize::from(layout.params.sufficient_length)
                    .clamp(16, PRICED_LENGTH_MAX),
                thorough: pass > 1,
                skip_margin: layout.params.skip_margin(passes),
                short: layout.window_log <= Optimal::SHORT_LOG_MAX,
            };
            let pass = Pass {
                block,
                sorted: self.kept.is_sorted(block),
                effort,
                again: pass > 1,
                last: pass == passes,
            };
            end = self.pass(&pass, repeat);
        }
        self.kept.plan.ready(from, block.base + end as u32);
    }

    /// Decides all sequences. Returns where the plan ends.
    #[inline(never)]
    fn pass(&mut self, pass: &Pass<'_>, repeat: [u32; 3]) -> usize {
        let (block, sufficient) = (pass.block, pass.effort.sufficient);
        let cached = pass.again && self.candidates.covers(block.start, block.end);
        if pass.sorted && pass.again && !cached {
            if self.sorted.is_recorded() {
                self.sorted.replay();
            } else {
                self.sorted.restart();
            }
        }
        if !cached {
            self.candidates.start(block.start);
        }
        self.kept.plan.start();
        self.chunks(pass.last).start();
        if !pass.again {
            self.prices.set(self.counts, WEIGHT, sufficient);
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
                part = self.enter_parts(part, past, sufficient);
            }
            if !pass.last
                && past >= Optimal::SAMPLE_FROM
                && past % (2 * Optimal::SAMPLE) >= Optimal::SAMPLE
            {
                state.at = block
                    .end
                    .min(state.at + Optimal::SAMPLE - past % Optimal::SAMPLE);
                state.pending = 0;
                self.look_up(pass, state.at);
                if state.at == block.end {
                    break;
                }
            }
            let began = state.at;
            let mut way = self.series(pass, &mut state);
            self.take(pass, &mut way, &mut state);
            if !pass.again {
                self.adapt(state.at - began, &pass.effort);
            }
        }
        let anchor = state.at - state.pending as usize;
        let literals = &block.data[anchor..state.at];
        let chunks = self.chunks(pass.last);
        let counts = chunks.chunk((anchor - block.start) >> CHUNK_LOG);
        prices::count_literals(counts, literals, 1);
        chunks.join();
        state.at
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
    fn enter_parts(&mut self, mut part: usize, past: usize, sufficient: usize) -> usize {
        // Several parts may have been passed at once.
        let mut entered = None;
        while let Some((start, counts)) = self.chunks_before.part(part)
            && start <= past
        {
            entered = Some(counts);
            part += 1;
        }
        if let Some(counts) = entered {
            self.prices.set(counts, 1, sufficient);
        }
        part
    }

    /// Makes the matches of all positions before `to` known: the next pass wants them.
    #[inline(never)]
    fn look_up(&mut self, pass: &Pass<'_>, to: usize) {
        while self.candidates.end() < to {
            let at = self.candidates.end();
            let chains = &mut self.kept.chains;
            fill(&mut self.sorted, chains, pass, at, &mut self.candidates);
        }
    }

    /// Decides the next series of steps.
    #[inline(always)]
    fn series(&mut self, pass: &Pass<'_>, state: &mut ParsePosition) -> StepSeries {
        loop {
            let (sorted, chains) = (&mut self.sorted, &mut self.kept.chains);
            let way = self.nodes.series(
                pass.block,
                state,
                &self.prices,
                pass.effort,
                &mut self.candidates,
                |at, candidates| fill(sorted, chains, pass, at, candidates),
            );
            if !way.is_empty() {
                return way;
            }
            state.at += 1;
            state.pending += 1;
        }
    }

    /// Counts the steps of a series and plans them.
    #[inline(never)]
    fn take(&mut self, pass: &Pass<'_>, way: &mut StepSeries, state: &mut ParsePosition) {
        let block = pass.block;
        let mut anchor = state.at - state.pending as usize;
        while let Some(step) = self.nodes.next_step(way, state) {
            let literals = &block.data[anchor..anchor + step.literals as usize];
            let sequence = (step.literals, step.value, step.length);
            let chunk = (anchor - block.start) >> CHUNK_LOG;
            let counts = self.chunks(pass.last).chunk(chunk);
            prices::count_literals(counts, literals, 1);
            prices::count_sequence(counts, sequence, 1);
            if !pass.again {
                prices::count_literals(self.counts, literals, WEIGHT);
                prices::count_sequence(self.counts, sequence, WEIGHT);
            }
            anchor = state.at;
            if pass.last {
                let cells = self.sorted.leaves_memory();
                let plan = &mut self.kept.plan;
                plan.push(cells, step.literals, step.offset, step.length);
            }
        }
    }

    /// Adapts the prices to the counts of `n` bytes.
    #[inline(always)]
    fn adapt(&mut self, n: usize, effort: &Effort) {
        let counted = &mut self.kept.counted;
        counted.0 += n;
        // Little has been counted at first: prices change quickly.
        let few = (counted.0 >> Optimal::PRICES_SHARE_LOG)
            .max(if effort.short {
                Optimal::SHORT_PRICES_MIN
            } else {
                0
            })
            .min(1 << Optimal::PRICES_LOG);
        if counted.0 - counted.1 >= few {
            counted.1 = counted.0;
            prices::fade(self.counts, records(effort.short));
            self.prices.set(self.counts, WEIGHT, effort.sufficient);
        }
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
) {
    if pass.sorted {
        sorted.fill(pass.block, at, pass.effort.sufficient, candidates);
    } else {
        let cells = sorted.nodes_memory();
        chains.insert(cells, pass.block, at);
        chains.fill(cells, pass.block, at, pass.effort.sufficient, candidates);
    }
}
