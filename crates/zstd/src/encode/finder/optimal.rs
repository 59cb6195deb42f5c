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
mod prices;
mod sorted;

use self::candidates::Candidates;
use self::chains::Chains;
use self::parse::{Effort, Input, Nodes, STEPS_MAX, State};
use self::partition::{CHUNK_LOG, Chunks};
use self::prices::{BIT, COUNTS, Counts, PRICED_LENGTH_MAX, Prices, WEIGHT};
use self::sorted::{RECORDED_MAX, Sorted};
use super::Block;
use super::memory::Checked;
use crate::encode::levels::{Params, Strategy};
use crate::encode::store::SequenceStore;
use crate::sequences::{Sequence, offset_value, update_repeat_offsets};
use crate::workspace::{Carver, Cells};

/// Where shorter matches than these are taken without asking, more positions are left out, too.
const HASTY_BELOW: u16 = 128;
/// Logarithm of the most positions that are sorted.
const SORTED_LOG_MAX: u8 = 20;
/// Positions that are looked at together where all are sorted.
const SPAN: usize = 128;
/// Logarithm of the bytes after which prices are set anew, and of the part of what has been counted.
const PRICES_LOG: u32 = 10;
const PRICES_PART_LOG: u32 = 5;

/// Of so many bytes and as many behind them, a pass that only counts goes through the first, from here on.
const SAMPLE: usize = 1 << 10;
const SAMPLE_FROM: usize = 8 << 10;

/// Tables and plan of the optimal parser.
pub(crate) struct Tables<'a> {
    /// What is not sorted is found by these. They lie in the memory of the nodes.
    chains: Chains,
    /// 1 when the memory of the nodes holds chains. It lies in the workspace to outlive the frame.
    chains_known: &'a mut [[u8; 4]; 1],
    sorted: Sorted<'a>,
    /// Index of the first position that is sorted, and of the first that is not.
    sorted_range: (u32, u32),
    prices: Prices<'a>,
    nodes: Nodes<'a>,
    candidates: Candidates<'a>,
    chunks: Chunks<'a>,
    /// Those of the pass before.
    chunks_before: Chunks<'a>,
    /// What prices follow from, by weight; kept from block to block.
    counts: &'a mut Counts,
    /// Bytes of the frame that have been counted, and of them those before the prices were last set.
    counted: (usize, usize),
    plan: Plan,
}

/// Which pass it is.
#[derive(Clone, Copy)]
struct Turn {
    /// With the prices of the parts of the pass before, instead of prices that adapt.
    again: bool,
    /// Its decisions are the plan.
    last: bool,
}

/// Decisions that are made and not handed out yet. They lie in the memory of the leaves.
struct Plan {
    /// Where the steps begin, in cells; how many there may be, and how many there are.
    cells: usize,
    max: usize,
    len: usize,
    /// The next step, and the index that it begins at.
    next: usize,
    at: u32,
    /// Index of the first byte of the plan, and of the first byte beyond it.
    start: u32,
    end: u32,
    /// The part at hand.
    part: usize,
}

impl<'a> Tables<'a> {
    /// Bytes of workspace.
    pub(crate) fn bytes(params: &Params) -> usize {
        let (nodes, leaves) = Self::cells(params);
        Sorted::bytes(nodes, leaves, Self::triples_log(params))
            + Prices::BYTES
            + Nodes::BYTES
            + Candidates::bytes(Self::span(params))
            + Chunks::bytes(true)
            + Chunks::bytes(params.strategy == Strategy::Optimal2)
            + 4 * COUNTS
            + 4
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
        let (nodes, leaves) = Self::cells(params);
        let passes = Self::passes(params);
        Tables {
            chains: Chains::new(params.hash_log, params.chain_log, params.search_log),
            chains_known: carver.array(),
            sorted: Sorted::carve(carver, nodes, leaves, Self::triples_log(params)),
            sorted_range: (0, 0),
            prices: Prices::carve(carver),
            nodes: Nodes::carve(carver),
            candidates: Candidates::carve(carver, Self::span(params)),
            chunks: Chunks::carve(carver, true),
            chunks_before: Chunks::carve(carver, passes > 1),
            counts: carver.array(),
            counted: (0, 0),
            plan: Plan::new(Self::plan_cells(params), Self::steps_max(params)),
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
    pub(crate) fn reduce(&mut self, by: u32) {
        if self.chains_known.at(0) == 1 {
            super::reduce(self.sorted.nodes_memory(), by);
        }
        self.chains.reduce(by);
        self.plan.reduce(by);
        self.sorted_range = (0, 0);
    }

    /// A new frame begins.
    pub(crate) fn start_frame(&mut self) {
        self.chains.start_frame();
        self.sorted_range = (0, 0);
        self.counted = (0, 0);
        self.plan.clear();
    }

    /// Makes the block known without looking for matches.
    pub(crate) fn insert(&mut self, block: &Block<'_>, _params: &Params) {
        self.ready_chains();
        let cells = self.sorted.nodes_memory();
        self.chains.insert(cells, block, block.end);
    }

    /// Makes the memory of the nodes that of the chains.
    fn ready_chains(&mut self) {
        if self.chains_known.at(0) != 1 {
            self.sorted.nodes_memory().fill([0; 4]);
            self.chains.start_frame();
            self.chains_known.put(0, 1);
        }
        self.sorted_range = (0, 0);
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
        if !self.plan.is_for(block) {
            self.plan(block, params, *repeat);
        }
        let Tables {
            plan,
            sorted,
            chunks,
            ..
        } = self;
        plan.tell(sorted.leaves_memory(), chunks, block, repeat, store)
    }

    /// Decides all sequences up to the end of a block, and how to divide them.
    #[inline(never)]
    fn plan(&mut self, block: &Block<'_>, params: &Params, repeat: [u32; 3]) {
        if self.counted.0 == 0 {
            prices::seed(self.counts, &block.data[block.start..block.end]);
        }
        let from = block.base + block.start as u32;
        if block.start == 0 && block.data.len() <= Self::sorted_max(params) {
            self.chains_known.put(0, 0);
            self.sorted.build(block.data);
            self.sorted_range = (from, from + block.data.len() as u32);
            if params.strategy == Strategy::Optimal2
                && Self::span(params) < block.data.len()
                && block.data.len() <= RECORDED_MAX
            {
                self.sorted.record();
            }
        } else if !self.is_sorted(block) || self.sorted.is_recorded() {
            self.ready_chains();
        }
        // Tables that a first pass went through know what is to come and have forgotten what was: they serve once.
        let again = self.is_sorted(block) || Self::span(params) >= block.end - block.start;
        let passes = if again { Self::passes(params) } else { 1 };
        let mut end = block.end;
        for pass in 1..=passes {
            // The first of two passes only counts.
            let effort = Effort {
                enough: usize::from(params.target_length).clamp(16, PRICED_LENGTH_MAX),
                thorough: pass > 1,
                indifferent: match params.target_length {
                    _ if passes > 1 => BIT / 2,
                    HASTY_BELOW.. => BIT,
                    _ => BIT + BIT / 2,
                },
            };
            let turn = Turn {
                again: pass > 1,
                last: pass == passes,
            };
            end = self.pass(block, repeat, effort, turn);
            self.chunks.join();
        }
        self.plan.ready(from, block.base + end as u32);
    }

    /// Whether the positions of a block are sorted.
    fn is_sorted(&self, block: &Block<'_>) -> bool {
        let (from, to) = self.sorted_range;
        from == block.base && to >= block.base + block.end as u32
    }

    /// Decides all sequences. Returns where the plan ends.
    #[inline(never)]
    fn pass(&mut self, block: &Block<'_>, repeat: [u32; 3], effort: Effort, turn: Turn) -> usize {
        let Turn { again, last } = turn;
        if again {
            core::mem::swap(&mut self.chunks, &mut self.chunks_before);
        }
        let sort = self.is_sorted(block);
        let cached = again && self.candidates.covers(block.start, block.end);
        if sort && again && !cached {
            if self.sorted.is_recorded() {
                self.sorted.replay();
            } else {
                self.sorted.restart();
            }
        }
        let Tables {
            chains,
            sorted,
            prices,
            nodes,
            candidates,
            chunks,
            chunks_before,
            counts: running,
            counted,
            plan,
            ..
        } = self;
        let input = Input {
            data: block.data,
            end: block.end,
            window: block.window,
        };
        let mut state = State {
            at: block.start,
            pending: 0,
            repeat,
        };
        if !cached {
            candidates.start(block.start);
        }
        plan.len = 0;
        chunks.start();
        let mut chunk = 0;
        let mut part = 0;
        if !again {
            prices.set(running, WEIGHT, effort.enough);
        }
        while state.at < block.end && plan.has_room() {
            if again {
                // Several parts may have been passed at once.
                let mut entered = None;
                while let Some((start, counts)) = chunks_before.part(part)
                    && block.start + start <= state.at
                {
                    entered = Some(counts);
                    part += 1;
                }
                if let Some(counts) = entered {
                    prices.set(counts, 1, effort.enough);
                }
            }
            let mut fill = |at: usize, list: &mut Candidates<'_>| {
                if sort {
                    sorted.fill(block.data, block.end, block.window, at, effort.enough, list);
                } else {
                    chains.fill(sorted.nodes_memory(), block, at, effort.enough, list);
                }
            };
            let past = state.at - block.start;
            if !last && past >= SAMPLE_FROM && past % (2 * SAMPLE) >= SAMPLE {
                // The matches are wanted nevertheless, by the next pass.
                let to = block.end.min(state.at + SAMPLE - past % SAMPLE);
                while candidates.end() < to {
                    fill(candidates.end(), candidates);
                }
                state.at = to;
                state.pending = 0;
                chunk = (to - block.start) >> CHUNK_LOG;
                if to == block.end {
                    break;
                }
            }
            let mut way = nodes.series(input, &state, prices, effort, candidates, &mut fill);
            let began = state.at;
            let mut anchor = state.at - state.pending as usize;
            while let Some(step) = nodes.next_step(&mut way, &mut state) {
                let literals = &block.data[anchor..anchor + step.literals as usize];
                let sequence = (step.literals, step.value, step.length);
                let counts = chunks.chunk(chunk);
                prices::count_literals(counts, literals, 1);
                prices::count_sequence(counts, sequence, 1);
                if !again {
                    prices::count_literals(running, literals, WEIGHT);
                    prices::count_sequence(running, sequence, WEIGHT);
                }
                anchor = state.at;
                chunk = (anchor - block.start) >> CHUNK_LOG;
                if last {
                    let cells = sorted.leaves_memory();
                    plan.push(cells, step.literals, step.offset, step.length);
                }
            }
            if !again {
                counted.0 += state.at - began;
                // Little has been counted at first: prices change quickly.
                let few = (counted.0 >> PRICES_PART_LOG).min(1 << PRICES_LOG);
                if counted.0 - counted.1 >= few {
                    counted.1 = counted.0;
                    prices::fade(running);
                    prices.set(running, WEIGHT, effort.enough);
                }
            }
        }
        let anchor = state.at - state.pending as usize;
        let literals = &block.data[anchor..state.at];
        prices::count_literals(chunks.chunk(chunk), literals, 1);
        state.at
    }
}

impl Plan {
    /// A plan of nothing, whose at most `max` steps will lie at `cells`.
    fn new(cells: usize, max: usize) -> Self {
        Plan {
            cells,
            max,
            len: 0,
            next: 0,
            at: 0,
            start: 0,
            end: 0,
            part: 0,
        }
    }

    /// Forgets the plan.
    fn clear(&mut self) {
        self.at = 0;
        self.end = 0;
    }

    /// Lowers every index by `by`.
    fn reduce(&mut self, by: u32) {
        for index in [&mut self.at, &mut self.start, &mut self.end] {
            *index = index.saturating_sub(by);
        }
    }

    /// Whether another series of steps may follow.
    fn has_room(&self) -> bool {
        self.len + STEPS_MAX <= self.max
    }

    /// Whether the plan goes on where a block begins, and no farther than it.
    fn is_for(&self, block: &Block<'_>) -> bool {
        let from = block.base + block.start as u32;
        let to = block.base + block.end as u32;
        self.at == from && self.end > from && self.end <= to
    }

    /// Appends a step: a sequence with an offset in the place of the offset value.
    #[inline(always)]
    fn push(&mut self, cells: &mut [[u8; 4]], literals: u32, offset: u32, length: u32) {
        let bits = Sequence::new(literals, offset, length).bits();
        let cell = self.cells + 2 * self.len;
        cells.put(cell, bits as u32);
        cells.put(cell + 1, (bits >> 32) as u32);
        self.len += 1;
    }

    /// The steps are those of the bytes from `start` to `end`.
    fn ready(&mut self, start: u32, end: u32) {
        self.start = start;
        self.at = start;
        self.end = end;
        self.next = 0;
        self.part = 0;
    }

    /// Hands out the next part. Returns where the literals behind it begin that are not in `store`.
    fn tell(
        &mut self,
        cells: &[[u8; 4]],
        chunks: &Chunks<'_>,
        block: &Block<'_>,
        repeat: &mut [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> usize {
        let data = Checked::new(&block.data[..block.end], 0);
        // Where the part ends, if another one follows.
        let part_end = loop {
            self.part += 1;
            match chunks.part(self.part) {
                // A long match may have passed a part.
                Some((at, _)) if self.start + at as u32 <= self.at => {}
                next => break next.map(|(at, _)| self.start + at as u32),
            }
        };
        let mut room = true;
        while self.next < self.len && room && part_end.is_none_or(|end| self.at < end) {
            let cell = self.cells + 2 * self.next;
            let bits = u64::from(cells.at(cell + 1)) << 32 | u64::from(cells.at(cell));
            let step = Sequence::from_bits(bits);
            let (literals, offset) = (step.literal_length(), step.offset_value());
            let value = value_of(offset, literals, repeat);
            update_repeat_offsets(repeat, value, literals);
            let anchor = (self.at - block.base) as usize;
            room = store.push(
                data,
                anchor,
                Sequence::new(literals, value, step.match_length()),
            );
            self.next += 1;
            self.at += literals + step.match_length();
        }
        if !room {
            self.part -= 1;
        } else if self.next < self.len {
            store.cut();
        } else if self.end != block.base + block.end as u32 {
            // The block is longer than the plan was to be: it ends with the plan's last literals.
            let (anchor, end) = (self.at - block.base, self.end - block.base);
            store.push_last_literals(&block.data[anchor as usize..end as usize]);
            self.at = self.end;
            store.cut();
        }
        (self.at - block.base) as usize
    }
}

/// The offset value that stands for an offset.
fn value_of(offset: u32, literals: u32, repeat: &[u32; 3]) -> u32 {
    let [a, b, c] = *repeat;
    let short = if literals > 0 {
        [a, b, c]
    } else {
        [b, c, a.wrapping_sub(1)]
    };
    match short.iter().position(|repeat| *repeat == offset) {
        Some(i) => i as u32 + 1,
        None => offset_value(offset),
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
