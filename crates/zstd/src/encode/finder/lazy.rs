//! Greedy and lazy parsing over rows: the best match of a position is taken, unless the next one or two have a better.

use super::Block;
#[cfg(feature = "portable")]
use super::memory::Checked;
use super::memory::{Memory, count_back, match_length, put_aside, take_back};
use super::row::{RowTable, Search, Tables};
use crate::encode::params::Lazy;
use crate::encode::store::{SequenceStore, Store};
use crate::sequences::{Sequence, offset_value};

/// What [`find`] needs to know.
pub(crate) struct Task {
    /// Index at which the block begins.
    pub(crate) start: usize,
    /// Index of the first byte of the data.
    pub(crate) base: u32,
    window: usize,
    /// Number of places in the rows.
    pub(crate) places: usize,
    /// How many positions the chains behind them link, or 0.
    pub(crate) links: usize,
    /// The first index that has not entered the rows yet.
    next: usize,
    attempts: u32,
    /// How many bytes are hashed: 4 to 6.
    hashed: u8,
    pub(crate) row_log: u8,
    lookahead: u8,
}

/// Finds the sequences of a block. Returns where the literals behind the last one begin.
#[inline(never)]
pub(crate) fn find_block(
    tables: &mut Tables<'_>,
    block: &Block<'_>,
    min_match: u8,
    repeat: &mut [u32; 3],
    store: &mut SequenceStore<'_>,
) -> usize {
    let hashed = tables.params.hashed(min_match);
    let task = Task {
        start: block.base as usize + block.start,
        base: block.base,
        window: block.window as usize,
        places: tables.rows.cells.tags.len(),
        links: tables.rows.links,
        next: tables.rows.next,
        attempts: tables.params.attempts(hashed),
        hashed,
        row_log: tables.params.row_log(),
        lookahead: tables.params.lookahead,
    };
    let data = &block.data[..block.end];
    let cells = &mut tables.rows.cells;
    #[cfg(not(feature = "portable"))]
    let (anchor, kept, next) = crate::arch::find::lazy(data, cells, &task, *repeat, store);
    #[cfg(feature = "portable")]
    let (anchor, kept, next) = find(Checked::new(data, task.base), cells, &task, *repeat, store);
    tables.rows.next = next;
    *repeat = take_back(*repeat, kept, store);
    anchor - block.base as usize
}

/// Where the literals behind the last sequence begin, the last offsets, and the first index that has not entered the rows.
pub(crate) type Found = (usize, [usize; 3], usize);

/// Finds the sequences in `data` from `task.start` on. Reads lie within `data`.
#[inline(always)]
pub(crate) fn find<M: Memory, T: RowTable, S: Store>(
    data: M,
    rows: T,
    task: &Task,
    repeat: [u32; 3],
    store: &mut S,
) -> Found {
    macro_rules! widths {
        ($depth:literal, $chained:literal) => {
            match (task.row_log, task.hashed) {
                (4, 0..=4) => {
                    parse::<M, T, S, 16, 4, $depth, $chained>(data, rows, task, repeat, store)
                }
                (4, _) => {
                    parse::<M, T, S, 16, 5, $depth, $chained>(data, rows, task, repeat, store)
                }
                (5, 0..=4) => {
                    parse::<M, T, S, 32, 4, $depth, $chained>(data, rows, task, repeat, store)
                }
                (5, _) => {
                    parse::<M, T, S, 32, 5, $depth, $chained>(data, rows, task, repeat, store)
                }
                (_, 0..=4) => {
                    parse::<M, T, S, 64, 4, $depth, $chained>(data, rows, task, repeat, store)
                }
                (_, _) => {
                    parse::<M, T, S, 64, 5, $depth, $chained>(data, rows, task, repeat, store)
                }
            }
        };
    }
    match task.lookahead {
        0 if task.hashed > 5 && task.row_log == 4 => {
            parse::<M, T, S, 16, 6, 0, false>(data, rows, task, repeat, store)
        }
        0 => widths!(0, false),
        1 => widths!(1, false),
        _ if task.links > 0 => widths!(2, true),
        _ => widths!(2, false),
    }
}

/// The best match so far.
#[derive(Clone, Copy)]
struct Best {
    at: usize,
    length: usize,
    /// 0 for the last offset used.
    offset: usize,
}

impl Best {
    /// About how many bits the offset costs.
    #[inline(always)]
    fn offset_cost(self) -> isize {
        (self.offset as u32 + 3 - 2 * u32::from(self.offset == 0)).ilog2() as isize
    }
}

#[inline(always)]
fn parse<
    M: Memory,
    T: RowTable,
    S: Store,
    const W: usize,
    const MIN: u32,
    const DEPTH: u8,
    const CHAINED: bool,
>(
    data: M,
    rows: T,
    task: &Task,
    repeat: [u32; 3],
    store: &mut S,
) -> Found {
    let Task {
        start,
        window,
        attempts,
        ..
    } = *task;
    let (first, end) = (data.first(), data.end());
    let begin = start.max(first + 1);
    let [mut rep1, mut rep2, mut rep3] = put_aside(repeat, begin - first);
    // Nothing that lies before the data can enter any more.
    let mut rows =
        Search::<T, W, CHAINED>::new(rows, task.places, task.links, task.next.max(first));
    let mut anchor = start;
    let mut at = begin;
    while at + 9 < end {
        let low = first.max(at.saturating_sub(window));
        let mut best = Best {
            at: at + 1,
            length: 3,
            offset: 0,
        };
        if (data.read32(at + 1 - rep1) == data.read32(at + 1)) & (rep1 != 0) {
            best.length = 4 + match_length(data, at + 5, at + 5 - rep1);
        }
        if DEPTH > 0 || best.length < 4 {
            let (length, from) = rows.search::<M, MIN>(data, at, low, attempts, best.length.max(3));
            if length > best.length {
                best = Best {
                    at,
                    length,
                    offset: at - from,
                };
            }
        }
        if best.length < 4 {
            at += ((at - anchor) >> Lazy::PATIENCE_LOG) + 1;
            continue;
        }
        if DEPTH > 0 {
            // Do the next positions have something better?
            let mut ahead = at;
            'ahead: while ahead + 9 < end {
                for depth in 1..=DEPTH {
                    ahead += 1;
                    if ahead + 8 > end {
                        break 'ahead;
                    }
                    if (data.read32(ahead - rep1) == data.read32(ahead)) & (rep1 != 0) {
                        let length = 4 + match_length(data, ahead + 4, ahead + 4 - rep1);
                        let weight = if depth == 1 { 3 } else { 4 };
                        let gain = (length as isize) * weight;
                        let owned = best.length as isize * weight - best.offset_cost() + 1;
                        if best.offset != 0 && gain > owned {
                            best = Best {
                                at: ahead,
                                length,
                                offset: 0,
                            };
                        }
                    }
                    let low = first.max(ahead.saturating_sub(window));
                    let (length, from) = rows.search::<M, MIN>(data, ahead, low, attempts, 3);
                    if length >= 4 {
                        let other = Best {
                            at: ahead,
                            length,
                            offset: ahead - from,
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
            let back = count_back(data, begins, begins - best.offset, anchor);
            begins -= back;
            length += back;
            best.offset
        };
        // An offset of late may have a short name, whichever way it was found.
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
        let sequence = Sequence::new(literals as u32, value, length as u32);
        let mut open = store.push(data, anchor, sequence);
        at = begins + length;
        anchor = at;
        // The offset before the last, at once.
        while open && at + 8 <= end && rep2 != 0 && rep2 <= at - first {
            if data.read32(at) != data.read32(at - rep2) {
                break;
            }
            let length = 4 + match_length(data, at + 4, at + 4 - rep2);
            (rep1, rep2) = (rep2, rep1);
            open = store.push(data, anchor, Sequence::new(0, 1, length as u32));
            at += length;
            anchor = at;
        }
        if !open {
            break;
        }
    }
    (anchor, [rep1, rep2, rep3], rows.next)
}
