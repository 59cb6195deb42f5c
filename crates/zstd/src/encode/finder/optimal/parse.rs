//! The cheapest parse of a block under given prices.

use super::candidates::Candidates;
use super::prices::{PRICED_LENGTH_MAX, Prices};
use crate::checked::{Checked, CheckedSlice};
use crate::encode::finder::index::{SearchBlock, match_length, repeats, word_at};
use crate::sequences::{MATCH_MIN, offset_code, offset_value, update_repeat_offsets};
use crate::workspace::{Carver, Cells};

/// Positions that a series of decisions spans at most, and the longest match that it may hold.
const NODES: usize = 2048;
/// Most steps of a series.
pub(super) const STEPS_MAX: usize = NODES / MATCH_MIN + 1;
/// Positions of a parse's price and the length of its match, above the match's offset value.
const PRICE_SHIFT: u32 = 40;
const LENGTH_SHIFT: u32 = 29;
const LENGTH_MASK: usize = (1 << (PRICE_SHIFT - LENGTH_SHIFT)) - 1;
const _: () = assert!(PRICED_LENGTH_MAX <= LENGTH_MASK);
/// No parse reaches this node yet. Literals alone, of at most 11 bits each, are always a parse: no
/// price comes near this.
const NEVER: u32 = (1 << (64 - PRICE_SHIFT)) - 1;
/// Matches do not begin in the last bytes, where [`word_at`] has no word.
pub(super) const TAIL: usize = 8;

/// The positions of one series.
///
/// A position can be reached by a match that ends there, or by literals after one. Both parses are
/// followed: the price of a literal depends on how many there are in a row, and one literal may be
/// much cheaper than none. The parse by literals is that of the position before, hence only its
/// price and length are kept, in the loop.
pub(super) struct PriceNodes<'a> {
    /// The cheapest parse whose last step is a match: its price, without the literal length that
    /// follows, that match's length, and its offset value. The cheaper of two is the smaller
    /// number.
    ways: &'a mut [[u8; 8]; NODES],
    /// The last node that a parse reaches.
    reach: usize,
    /// Number of literals at the end of the cheapest parse to here.
    literals: &'a mut [[u8; 4]; NODES],
    /// Repeat offsets after the match.
    repeat: &'a mut [[u8; 12]; NODES],
    /// Matches of the cheapest parse, the last one first: where they begin and end.
    path: &'a mut [[u8; 8]; STEPS_MAX],
}

impl<'a> PriceNodes<'a> {
    /// Bytes of workspace.
    pub(super) const BYTES: usize = NODES * (8 + 4 + 12) + STEPS_MAX * 8;

    /// Takes the nodes from a workspace.
    #[inline(always)]
    pub(super) fn carve(carver: &mut Carver<'a>) -> Checked<Self> {
        Ok(PriceNodes {
            ways: carver.array()?,
            reach: NODES - 1,
            literals: carver.array()?,
            repeat: carver.array()?,
            path: carver.array()?,
        })
    }

    #[inline(always)]
    fn repeat(&self, node: usize) -> Checked<[u32; 3]> {
        let [a, b, c] = *self.repeat.checked(node)?.as_chunks().0 else {
            return Ok([0; 3]);
        };
        Ok([a, b, c].map(u32::from_ne_bytes))
    }

    #[inline(always)]
    fn put_repeat(&mut self, node: usize, repeat: [u32; 3]) -> Checked<()> {
        let places = self.repeat.checked_mut(node)?.as_chunks_mut().0;
        for (place, offset) in places.iter_mut().zip(repeat) {
            *place = offset.to_ne_bytes();
        }
        Ok(())
    }

    /// The price of the cheapest parse whose last step is a match.
    #[inline(always)]
    fn price(&self, node: usize) -> Checked<u32> {
        Ok((self.ways.checked_at(node)? >> PRICE_SHIFT) as u32)
    }

    /// The length of that parse's last match.
    #[inline(always)]
    fn length(&self, node: usize) -> Checked<usize> {
        let way = self.ways.checked_at(node)?;
        Ok(LENGTH_MASK - ((way >> LENGTH_SHIFT) as usize & LENGTH_MASK))
    }

    /// Its offset value.
    #[inline(always)]
    fn value(&self, node: usize) -> Checked<u32> {
        Ok(self.ways.checked_at(node)? as u32 & ((1 << LENGTH_SHIFT) - 1))
    }

    /// Offers a match of every length in `from..=to`, which begins at `node`, for `price` and that
    /// of its length.
    #[inline(always)]
    fn offer(
        &mut self,
        node: usize,
        lengths: core::ops::RangeInclusive<usize>,
        (price, length_prices): (u32, &[[u8; 4]; PRICED_LENGTH_MAX + 1]),
        value: u32,
        thorough: bool,
    ) -> Checked<()> {
        let (from, to) = (*lengths.start(), *lengths.end());
        self.reach = self.reach.max(node + to);
        let lengths = length_prices.checked(lengths)?;
        let ways = self.ways.checked_mut(node + from..node + to + 1)?;
        let ways = ways.checked_mut(..lengths.len())?;
        let way = u64::from(price) << PRICE_SHIFT
            | ((LENGTH_MASK - from) as u64) << LENGTH_SHIFT
            | u64::from(value);
        for i in (0..lengths.len()).rev() {
            let new =
                way + (u64::from(lengths.at(i)) << PRICE_SHIFT) - ((i as u64) << LENGTH_SHIFT);
            let old = ways.at(i);
            if thorough {
                ways.put(i, old.min(new));
            } else if new < old {
                ways.put(i, new);
            } else {
                break;
            }
        }
        Ok(())
    }
}

/// How hard to try.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// A match of this length is taken without comparing prices.
    pub(super) sufficient: usize,
    /// Look at every position, and offer every length of every match.
    pub(super) thorough: bool,
    /// The content is short.
    pub(super) short: bool,
    /// A position is not searched if the next one is reached for at most this much more, unless the
    /// search is thorough.
    pub(super) skip_margin: u32,
}

/// Where a parse is.
#[derive(Clone, Copy)]
pub(super) struct ParsePosition {
    /// The next byte.
    pub(super) at: usize,
    /// Literals before it that belong to no sequence yet.
    pub(super) pending: u32,
    /// Repeat offsets.
    pub(super) repeat: [u32; 3],
}

/// A decision: a number of literals, then a match.
#[derive(Clone, Copy)]
pub(super) struct ParseStep {
    pub(super) literals: u32,
    pub(super) value: u32,
    pub(super) offset: u32,
    pub(super) length: u32,
}

impl PriceNodes<'_> {
    /// Decides the parse from `state` to a position that every cheapest parse passes, or that is
    /// the last known.
    ///
    /// `fill` provides the matches of the positions starting at the given one.
    /// [`PriceNodes::next_step`] then returns the steps.
    #[inline(never)]
    pub(super) fn series(
        &mut self,
        block: &SearchBlock<'_>,
        state: &ParsePosition,
        prices: &Prices<'_>,
        effort: Effort,
        candidates: &mut Candidates<'_>,
        mut fill: impl FnMut(usize, &mut Candidates<'_>) -> Checked<()>,
    ) -> Checked<StepSeries> {
        let &SearchBlock { data, end, .. } = block;
        let start = state.at;
        let none = prices.literal_length(0);
        let one = prices.literal_length(1);
        self.put_repeat(0, state.repeat)?;
        // Remove the nodes of the previous series.
        self.ways.checked_mut(..self.reach + 1)?.fill([0xff; 8]);
        self.reach = 0;
        if state.pending == 0 {
            self.ways.put(0, 0);
        }
        // The parse that ends in literals: its price with the length of literals, and that length.
        let mut run = state.pending;
        let mut run_price = if run == 0 {
            NEVER
        } else {
            prices.literal_length(run)
        };
        let mut node = 0;
        let mut last = None;
        loop {
            let at = start + node;
            let mut price = NEVER;
            if node <= self.reach {
                price = self.price(node)?;
                if node > 0 && price < NEVER {
                    let from = node - self.length(node)?;
                    let literals = self.literals.checked_at(from)?;
                    let mut repeat = self.repeat(from.saturating_sub(literals as usize))?;
                    update_repeat_offsets(&mut repeat, self.value(node)?, literals);
                    self.put_repeat(node, repeat)?;
                }
            }
            let (base, literals) = if price + none <= run_price {
                (price + none, 0)
            } else {
                (run_price, run)
            };
            self.literals.checked_put(node, literals)?;
            if at >= end || (node > self.reach && node > 0) || node + effort.sufficient + 2 >= NODES
            {
                break;
            }
            // One literal more.
            let literal = prices.literal(*data.checked(at)?);
            let longer = if run == 0 {
                NEVER
            } else {
                run_price + prices.literal_length(run + 1) - prices.literal_length(run)
            };
            if price + one <= longer {
                (run_price, run) = (price + one + literal, 1);
            } else {
                (run_price, run) = (longer + literal, run + 1);
            }
            let Some(word) = word_at(block, at) else {
                node += 1;
                continue;
            };
            if !effort.thorough
                && node < self.reach
                && self.price(node + 1)? + none <= base + effort.skip_margin
            {
                node += 1;
                continue;
            }
            // Repeat offsets.
            let repeat = self.repeat(node.saturating_sub(literals as usize))?;
            let offsets = short_offsets(repeat, literals);
            let mut longest = MATCH_MIN - 1;
            let mut longest_value = 0;
            for (offset, value) in offsets.into_iter().zip(1..) {
                if !repeats(block, at, offset, word) {
                    continue;
                }
                let length = match_length(data, at, at - offset as usize, end)?;
                if length > longest {
                    let to = length.min(effort.sufficient);
                    let price = base + prices.offset(offset_code(value));
                    if longest < to {
                        let price = (price, prices.match_lengths());
                        self.offer(node, longest + 1..=to, price, value, effort.thorough)?;
                    }
                    (longest, longest_value) = (length, value);
                }
            }
            if longest < effort.sufficient {
                if at >= candidates.end() {
                    fill(at, candidates)?;
                }
                let range = candidates.range(at)?;
                let mut from = MATCH_MIN;
                for i in range.clone() {
                    let found = candidates.at(i)?;
                    let value = offset_value(found.offset);
                    let code = offset_code(value);
                    let length = (found.length as usize).min(end - at);
                    let to = length.min(effort.sufficient);
                    if from <= to {
                        let price = base + prices.offset(code);
                        let price = (price, prices.match_lengths());
                        self.offer(node, from..=to, price, value, effort.thorough)?;
                        from = to + 1;
                    }
                    if length > longest {
                        (longest, longest_value) = (length, value);
                    }
                }
            }
            if longest >= effort.sufficient {
                last = Some((longest, longest_value));
                break;
            }
            node += 1;
        }
        self.walk_back(node, last)
    }

    /// Finds the steps that lead to `node`.
    #[inline(always)]
    fn walk_back(&mut self, node: usize, last: Option<(usize, u32)>) -> Checked<StepSeries> {
        let mut steps = 0;
        let mut at = node;
        loop {
            let literals = self.literals.checked_at(at)? as usize;
            if literals >= at {
                break;
            }
            let end = at - literals;
            at = end - self.length(end)?;
            self.path
                .checked_put(steps, (at as u64) << 32 | end as u64)?;
            steps += 1;
        }
        Ok(StepSeries {
            steps,
            node,
            last,
            behind: 0,
        })
    }

    /// Takes the next step of a parse. At its end `None`, and `state` is there.
    #[inline(always)]
    pub(super) fn next_step(
        &self,
        way: &mut StepSeries,
        state: &mut ParsePosition,
    ) -> Checked<Option<ParseStep>> {
        let (from, length, value) = if way.steps > 0 {
            way.steps -= 1;
            let bits = self.path.checked_at(way.steps)?;
            let (from, end) = ((bits >> 32) as usize, bits as u32 as usize);
            (from, end - from, self.value(end)?)
        } else if let Some((length, value)) = way.last.take() {
            (way.node, length, value)
        } else {
            let rest = way.node.saturating_sub(way.behind);
            state.at += rest;
            state.pending += rest as u32;
            return Ok(None);
        };
        let skipped = from - way.behind;
        let literals = skipped as u32 + state.pending;
        update_repeat_offsets(&mut state.repeat, value, literals);
        state.pending = 0;
        state.at += skipped + length;
        way.behind = from + length;
        Ok(Some(ParseStep {
            literals,
            value,
            offset: state.repeat[0],
            length: length as u32,
        }))
    }
}

/// The offsets with the values 1, 2 and 3 after this number of literals.
#[inline(always)]
pub(super) fn short_offsets(repeat: [u32; 3], literals: u32) -> [u32; 3] {
    if literals == 0 {
        [repeat[1], repeat[2], repeat[0].wrapping_sub(1)]
    } else {
        repeat
    }
}

/// The steps of a series.
pub(super) struct StepSeries {
    steps: usize,
    node: usize,
    last: Option<(usize, u32)>,
    /// The node after the last step that was taken.
    behind: usize,
}
