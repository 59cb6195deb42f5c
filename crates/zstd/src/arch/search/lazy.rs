//! The search for [`Strategy::Lazy`](crate::Strategy::Lazy): the best match of a position is taken,
//! unless the next one or two have a better.

use super::super::access::{ChainLinks, IndexedBytes, Store, TaggedRows};
use super::chain::ChainSearch;
use super::row::{Candidates, Search};
use crate::ROOMY;
use crate::checked::{Checked, ilog2};
use crate::encode::finder::index::{ChainCells, RowCells, put_aside};
use crate::encode::params::Lazy;
use crate::encode::store::SequenceStore;
use crate::sequences::offset_value;

/// Parameters of [`find`].
pub(crate) struct LazySearch {
    /// Index at which the block begins.
    pub(crate) start: usize,
    /// Index of the first byte of the data.
    pub(crate) base: u32,
    pub(crate) window: usize,
    /// The first index that has not entered the rows yet.
    pub(crate) next: usize,
    /// How many candidates of a row are compared.
    pub(crate) attempts: u32,
    /// How many bytes are hashed: 4 or 5.
    pub(crate) hashed: u8,
    /// Logarithm of the number of positions in a row.
    pub(crate) row_log: u8,
    /// How many of the next positions must have nothing better.
    pub(crate) lookahead: u8,
}

impl LazySearch {
    /// Whether the preconditions of the search hold: those that the proofs rely on besides the
    /// loop.
    ///
    /// Separate from the loop, which is compiled without these facts: with them it needs more
    /// registers.
    #[cfg(feature = "arch")]
    pub(crate) fn fits(&self, data: &[u8]) -> bool {
        IndexedBytes::fits(data, self.base, self.start) && self.attempts >= 1 && self.window >= 1
    }

    /// The first index that may enter: nothing that lies before the data can any more.
    #[inline(always)]
    fn next_in(&self, data: IndexedBytes<'_>) -> usize {
        let first = data.first();
        self.next.clamp(first, self.start.max(first + 1))
    }
}

/// Where code is to be small, in a kernel, one loop looks ahead as far as it is asked to when it
/// runs: 24 KB less.
const ONE_LOOP: bool = cfg!(feature = "arch") && !ROOMY;

/// How far a loop looks ahead.
///
/// A macro, so that it is known when compiling in user space: a variable there costs up to 1 % at
/// levels 5 to 10.
macro_rules! lookahead {
    ($known:expr, $task:expr) => {
        if ONE_LOOP { $task.lookahead } else { $known }
    };
}

/// Where the literals after the last sequence begin, the last offsets, and the first index that has
/// not entered the rows.
pub(crate) type Found = (usize, [usize; 3], usize);

proven_fn! {
    /// Finds the sequences in `data` starting at `task.start`.
    ///
    /// # Safety
    ///
    /// The task fits the data.
    #[inline(always)]
    pub(crate) fn find(
        data: &[u8],
        rows: RowCells<'_>,
        chains: ChainCells<'_>,
        task: &LazySearch,
        repeat: [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> Checked<Found> {
        let data = IndexedBytes::new(data, task.base);
        let chains = ChainLinks::new(chains)?;
        let next = task.next_in(data);
        macro_rules! parse {
            ($width:literal, $hashed:literal, $lookahead:literal, $chained:literal) => {
                parse::<Search<'_, $width, $chained>, $hashed, $lookahead>(
                    data,
                    Search::new(TaggedRows::new(rows)?, chains, next),
                    task,
                    repeat,
                    store,
                )
            };
        }
        macro_rules! widths {
            ($lookahead:literal, $chained:literal) => {
                match (task.row_log, task.hashed) {
                    (4, 0..=4) => parse!(16, 4, $lookahead, $chained),
                    (4, _) => parse!(16, 5, $lookahead, $chained),
                    (5, 0..=4) => parse!(32, 4, $lookahead, $chained),
                    (5, _) => parse!(32, 5, $lookahead, $chained),
                    (_, 0..=4) => parse!(64, 4, $lookahead, $chained),
                    (_, _) => parse!(64, 5, $lookahead, $chained),
                }
            };
        }
        match task.lookahead {
            _ if ONE_LOOP => widths!(0, false),
            0 => widths!(0, false),
            1 => widths!(1, false),
            _ if chains.is_some() => widths!(2, true),
            _ => widths!(2, false),
        }
    }
}

proven_fn! {
    /// The same with chains in place of rows.
    ///
    /// # Safety
    ///
    /// The task fits the data.
    #[inline(always)]
    pub(crate) fn find_in_chains(
        data: &[u8],
        chains: ChainCells<'_>,
        task: &LazySearch,
        repeat: [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> Checked<Found> {
        let data = IndexedBytes::new(data, task.base);
        let Some(chains) = ChainLinks::new(chains)? else {
            return Ok((task.start, repeat.map(|offset| offset as usize), task.next));
        };
        let chains = ChainSearch::new(chains, task.next_in(data));
        macro_rules! parse {
            ($hashed:literal, $lookahead:literal) => {
                parse::<ChainSearch<'_>, $hashed, $lookahead>(data, chains, task, repeat, store)
            };
        }
        match (task.hashed, task.lookahead) {
            (0..=4, _) if ONE_LOOP => parse!(4, 0),
            (_, _) if ONE_LOOP => parse!(5, 0),
            (0..=4, 0) => parse!(4, 0),
            (_, 0) => parse!(5, 0),
            (0..=4, 1) => parse!(4, 1),
            (_, 1) => parse!(5, 1),
            (0..=4, _) => parse!(4, 2),
            (_, _) => parse!(5, 2),
        }
    }
}

/// The best match so far.
#[derive(Clone, Copy)]
struct BestMatch {
    at: usize,
    length: usize,
    /// 0 for the last offset used.
    offset: usize,
}

impl BestMatch {
    /// About how many bits the offset costs.
    #[inline(always)]
    fn offset_cost(self) -> isize {
        ilog2(self.offset as u32 + 3 - 2 * u32::from(self.offset == 0)) as isize
    }
}

// Each has a stack frame of its own where no kernel needs them inlined.
#[cfg_attr(not(feature = "arch"), inline(never))]
#[cfg_attr(feature = "arch", inline(always))]
fn parse<C: Candidates, const MIN: u32, const LOOKAHEAD: u8>(
    data: IndexedBytes<'_>,
    mut candidates: C,
    task: &LazySearch,
    repeat: [u32; 3],
    store: &mut SequenceStore<'_>,
) -> Checked<Found> {
    let LazySearch {
        start,
        window,
        attempts,
        ..
    } = *task;
    let (first, end) = (data.first(), data.end());
    let mut store = Store::new(store, end - start)?;
    let begin = start.max(first + 1);
    // No repeat offset leads before the first byte, from `begin` or from any position after it; nor
    // does the distance of a match that has been found, from after that match.
    let [mut rep1, mut rep2, mut rep3] = put_aside(repeat, begin - first);
    let mut anchor = start;
    let mut at = begin;
    while at + 9 < end {
        let low = first.max(at.saturating_sub(window));
        let mut best = BestMatch {
            at: at + 1,
            length: 3,
            offset: 0,
        };
        // SAFETY: `at + 9 < end`, and `rep1` does not lead before the first byte.
        if proven!(data.read32(at + 1 - rep1) == data.read32(at + 1)) & (rep1 != 0) {
            // SAFETY: as above.
            best.length = 4 + proven!(data.match_length(at + 5, at + 5 - rep1));
        }
        if lookahead!(LOOKAHEAD, task) > 0 || best.length < 4 {
            let least = best.length.max(3);
            // SAFETY: `first <= low < at`; entered positions lie before `at`, which is after the
            // last searched position; `at + 9 < end`; `least` is at most the length from `at + 1`
            // to `end`.
            let (length, distance) =
                proven!(candidates.search::<MIN>(data, at, low, attempts, least));
            if length > best.length {
                best = BestMatch {
                    at,
                    length,
                    offset: distance,
                };
            }
        }
        if best.length < 4 {
            let step = ((at - anchor) >> Lazy::PATIENCE_LOG) + 1;
            at += step;
            let entered = if lookahead!(LOOKAHEAD, task) == 0 && window > Lazy::PATIENT_WINDOW {
                Lazy::ENTERED_STEP / 2
            } else {
                Lazy::ENTERED_STEP
            };
            if step > entered {
                crate::hint::cold_path();
                // No match was found for long: skipped positions are not worth a place.
                candidates.pass(at);
            }
            continue;
        }
        if lookahead!(LOOKAHEAD, task) > 0 {
            // Do the next positions have something better?
            let mut ahead = at;
            'ahead: while ahead + 9 < end {
                for depth in 1..=lookahead!(LOOKAHEAD, task) {
                    ahead += 1;
                    if ahead + 8 > end {
                        break 'ahead;
                    }
                    // SAFETY: `ahead + 8 <= end`, and `rep1` does not lead before the first byte.
                    if proven!(data.read32(ahead - rep1) == data.read32(ahead)) & (rep1 != 0) {
                        // SAFETY: as above.
                        let length = 4 + proven!(data.match_length(ahead + 4, ahead + 4 - rep1));
                        let weight = if depth == 1 { 3 } else { 4 };
                        let gain = (length as isize) * weight;
                        let owned = best.length as isize * weight - best.offset_cost() + 1;
                        if best.offset != 0 && gain > owned {
                            best = BestMatch {
                                at: ahead,
                                length,
                                offset: 0,
                            };
                        }
                    }
                    let low = first.max(ahead.saturating_sub(window));
                    // SAFETY: `first <= low < ahead`, entered positions lie before `ahead`, and
                    // `ahead + 8 <= end`.
                    let (length, distance) =
                        proven!(candidates.search::<MIN>(data, ahead, low, attempts, 3));
                    if length >= 4 {
                        let other = BestMatch {
                            at: ahead,
                            length,
                            offset: distance,
                        };
                        let gain = 4 * length as isize - other.offset_cost();
                        let margin = if depth == 1 { 4 } else { 7 };
                        if gain > 4 * best.length as isize - best.offset_cost() + margin {
                            best = other;
                            continue 'ahead;
                        }
                    }
                }
                break;
            }
        }
        let mut begins = best.at;
        let mut length = best.length;
        let offset = if best.offset == 0 {
            rep1
        } else {
            // SAFETY: the match that the search found lies at `low` or after it; `anchor <= at <=
            // begins`.
            let back = proven!(data.count_back(begins, begins - best.offset, anchor));
            begins -= back;
            length += back;
            best.offset
        };
        // A repeat offset has a short code, however it was found.
        let literals = begins - anchor;
        let value;
        if offset == rep1 && literals != 0 {
            value = 1;
        } else {
            let name = 1 + u32::from(literals != 0);
            if offset == rep2 {
                value = name;
            } else {
                value = if offset == rep3 {
                    name + 1
                } else {
                    offset_value(offset as u32)
                };
                rep3 = rep2;
            }
            rep2 = rep1;
        }
        rep1 = offset;
        // SAFETY: `anchor <= begins <= begins + length <= end`; the sequence before ended at
        // `anchor`, and the store was open.
        let mut open = proven!(store.append(data, anchor, literals, value, length));
        at = begins + length;
        anchor = at;
        // The offset before the last, at once.
        while open && at + 8 <= end && rep2 != 0 && rep2 <= at - first {
            // SAFETY: `at + 8 <= end` and `rep2 <= at - first`.
            if proven!(data.read32(at) != data.read32(at - rep2)) {
                break;
            }
            // SAFETY: as above.
            let length = 4 + proven!(data.match_length(at + 4, at + 4 - rep2));
            (rep1, rep2) = (rep2, rep1);
            // SAFETY: the match ends at `end` at the latest; the sequence before ended at `anchor`,
            // and the store was open.
            open = proven!(store.append(data, anchor, 0, 1, length));
            at += length;
            anchor = at;
        }
        if !open {
            break;
        }
    }
    store.finish()?;
    Ok((anchor, [rep1, rep2, rep3], candidates.next()))
}
