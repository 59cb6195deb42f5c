//! The search for [`Strategy::DoubleFast`](crate::Strategy::DoubleFast): a long match is taken at
//! once, a short one if the next position has no long one.

use super::super::access::{IndexedBytes, PositionTable, Store, opaque};
use super::tagged;
use crate::encode::ROOMY;
use crate::encode::finder::index::{INDEX_LOG, put_aside};
use crate::encode::params::DoubleFast;
use crate::encode::store::SequenceStore;
use crate::sequences::offset_value;

/// Parameters of [`find`].
pub(crate) struct DoubleFastSearch {
    /// Index at which the block begins.
    pub(crate) start: usize,
    /// Index of the first byte of the data.
    pub(crate) base: u32,
    pub(crate) window: usize,
    /// 64 less the logarithms of the tables' sizes.
    pub(crate) long_shift: u32,
    pub(crate) short_shift: u32,
    /// Bits of an index in a cell.
    pub(crate) index_log: u32,
    pub(crate) min_match: u8,
}

impl DoubleFastSearch {
    /// Whether the preconditions of the search hold: those that the proofs rely on besides the
    /// loop.
    ///
    /// Separate from the loop, which is compiled without these facts: with them it needs more
    /// registers.
    #[cfg(feature = "arch")]
    pub(crate) fn fits(&self, data: &[u8]) -> bool {
        IndexedBytes::fits(data, self.base, self.start) && self.window >= 2 * DoubleFast::PATIENCE
    }
}

proven_fn! {
    /// Finds the sequences in `data` starting at `task.start`. Returns where the literals after the
    /// last one begin, and the repeat offsets after it.
    ///
    /// # Safety
    ///
    /// The task fits the data.
    #[inline(always)]
    pub(crate) fn find(
        data: &[u8],
        long: &mut [[u8; 4]],
        short: &mut [[u8; 4]],
        task: &DoubleFastSearch,
        repeat: [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> (usize, [usize; 3]) {
        let data = IndexedBytes::new(data, task.base);
        let mut store = Store::new(store, data.end() - task.start);
        macro_rules! sizes {
            ($min:literal, $long:literal, $short:literal, $index:expr) => {
                find_min::<$min, $long, $short, $index>(data, long, short, task, repeat, &mut store)
            };
        }
        // The sizes that levels use are known when compiling: the loop has three registers more.
        let found = match (
            task.min_match,
            task.long_shift,
            task.short_shift,
            task.index_log,
        ) {
            (5, 49, 49, INDEX_LOG) => sizes!(5, 49, 49, INDEX_LOG),
            (4, 49, 49, INDEX_LOG) => sizes!(4, 49, 49, INDEX_LOG),
            // Level 3 of content that is large or of unknown size.
            (5, 47, 48, 23) => sizes!(5, 47, 48, 23),
            // Frames of 8 and 16 KiB, and of 4 KiB.
            (4, 50, 50, INDEX_LOG) if ROOMY => sizes!(4, 50, 50, INDEX_LOG),
            (4, 51, 51, INDEX_LOG) if ROOMY => sizes!(4, 51, 51, INDEX_LOG),
            (0..=4, ..) => sizes!(4, 0, 0, 0),
            (5, ..) => sizes!(5, 0, 0, 0),
            (6, ..) => sizes!(6, 0, 0, 0),
            (7.., ..) => sizes!(7, 0, 0, 0),
        };
        store.finish();
        found
    }
}

#[inline(always)]
fn find_min<const MIN: u32, const LONG: u32, const SHORT: u32, const INDEX: u32>(
    data: IndexedBytes<'_>,
    long: &mut [[u8; 4]],
    short: &mut [[u8; 4]],
    task: &DoubleFastSearch,
    repeat: [u32; 3],
    store: &mut Store<'_, '_>,
) -> (usize, [usize; 3]) {
    let DoubleFastSearch { start, window, .. } = *task;
    let (long_shift, short_shift, index_log) = if LONG == 0 {
        (task.long_shift, task.short_shift, task.index_log)
    } else {
        (LONG, SHORT, INDEX)
    };
    let mut long = PositionTable::new(long, long_shift);
    let mut short = PositionTable::new(short, short_shift);
    // A place of as many bits as has the number of cells: it is below that.
    let cell_long = |value, index| tagged::<8>(value, index, long_shift, index_log);
    let cell_short = |value, index| tagged::<MIN>(value, index, short_shift, index_log);
    let (first, end) = (data.first(), data.end());
    // Whether matches may lie too far back. If not, all may be referred to.
    let far = end - first > window;
    let begin = start.max(first + 1);
    // No repeat offset leads before the first byte, from `begin` or from any position after it; nor
    // does the distance of a match that has been found, from after that match.
    let [mut rep1, mut rep2, mut rep3] = put_aside(repeat, begin - first);
    let mut anchor = start;
    'block: loop {
        let mut a = anchor.max(first + 1);
        if a + 9 > end {
            break;
        }
        let mut step = 1;
        let mut limit = (a + DoubleFast::PATIENCE).min(end - 8);
        // Largest distance from `a`, up to the next change of step.
        let mut reach = a - first;
        if far {
            reach = a - first.max((a + 2 * DoubleFast::PATIENCE).saturating_sub(window));
        }
        let before = data.moved(rep1);
        // The match: where it is, how far back, and its length; whether it is by the last offset.
        let (found, distance, length, repeated) = loop {
            // SAFETY: `first < a` and `a + 9 <= end`: at first by the comparison above, later
            // because `a < limit`, which is at most `end - 8`, or by the comparison where the step
            // grows.
            let value = proven!(data.read64(a));
            let (long_place, long_kept) = cell_long(value, a);
            let (short_place, short_kept) = cell_short(value, a);
            // SAFETY: see `cell_long`.
            let long_distance = long_kept.wrapping_sub(proven!(long.at(long_place))) as usize;
            // SAFETY: see `cell_long`.
            proven!(long.put(long_place, long_kept));
            // SAFETY: see `cell_short`.
            let short_distance = short_kept.wrapping_sub(proven!(short.at(short_place))) as usize;
            // SAFETY: see `cell_short`.
            proven!(short.put(short_place, short_kept));
            // SAFETY: as above, and `rep1` does not lead before the first byte.
            if proven!(before.read32(a + 1) == data.read32(a + 1)) && rep1 != 0 {
                // SAFETY: as above.
                let length = 4 + proven!(data.match_length(a + 5, a + 5 - rep1));
                break (a + 1, rep1, length, true);
            }
            // SAFETY: `long_distance <= reach <= a - first`: `reach` grows with `a`, and is set to
            // no more when the step grows.
            if long_distance <= reach && proven!(data.read64(a - long_distance) == data.read64(a)) {
                // SAFETY: `a + 9 <= end`.
                let (place, kept) = cell_long(proven!(data.read64(a + 1)), a + 1);
                // SAFETY: see `cell_long`.
                proven!(long.put(place, kept));
                // SAFETY: as above.
                let length = 8 + proven!(data.match_length(a + 8, a + 8 - long_distance));
                break (a, long_distance, length, false);
            }
            // SAFETY: `short_distance <= reach <= a - first`.
            if short_distance <= reach && proven!(data.read32(a - short_distance) == data.read32(a))
            {
                // SAFETY: as above.
                let length = 4 + proven!(data.match_length(a + 4, a + 4 - short_distance));
                // Has the next position a longer one?
                let next = a + 1;
                // SAFETY: `a + 9 <= end`.
                let next_value = proven!(data.read64(next));
                let (place, kept) = cell_long(next_value, next);
                // SAFETY: see `cell_long`.
                let next_distance = kept.wrapping_sub(proven!(long.at(place))) as usize;
                // SAFETY: see `cell_long`.
                proven!(long.put(place, kept));
                // SAFETY: `next_distance <= reach < next - first`.
                if next_distance <= reach
                    && proven!(data.read64(next - next_distance)) == next_value
                {
                    // SAFETY: as above.
                    let next_length =
                        8 + proven!(data.match_length(next + 8, next + 8 - next_distance));
                    if next_length > length {
                        break (next, next_distance, next_length, false);
                    }
                }
                break (a, short_distance, length, false);
            }
            a = opaque(a + step);
            reach += step;
            if a >= limit {
                if a + 9 > end {
                    break 'block;
                }
                step += 1;
                limit = (limit + DoubleFast::PATIENCE).min(end - 8);
                if far {
                    reach = a - first.max((a + 2 * DoubleFast::PATIENCE).saturating_sub(window));
                }
            }
        };

        let (value, back) = if repeated {
            (1, 0)
        } else {
            (rep3, rep2, rep1) = (rep2, rep1, distance);
            // SAFETY: `distance <= found - first`, as the match there was read; `anchor <= found`.
            let back = proven!(data.count_back(found, found - distance, anchor));
            (offset_value(distance as u32), back)
        };
        let ends = found + length;
        let begins = found - back;
        // SAFETY: `anchor <= begins <= ends <= end`; the sequence before ended at `anchor`, and the
        // store was open.
        let mut open = proven!(store.append(data, anchor, begins - anchor, value, ends - begins));
        anchor = ends;
        if ends + 8 > end {
            break;
        }
        let near = a + 2;
        // SAFETY: `a + 4 <= ends` and `ends + 8 <= end`; so for the next two.
        let value = proven!(data.read64(near));
        let (place, kept) = cell_long(value, near);
        // SAFETY: see `cell_long`.
        proven!(long.put(place, kept));
        let (place, kept) = cell_short(value, near);
        // SAFETY: see `cell_short`.
        proven!(short.put(place, kept));
        // SAFETY: see above.
        let (place, kept) = cell_long(proven!(data.read64(ends - 2)), ends - 2);
        // SAFETY: see `cell_long`.
        proven!(long.put(place, kept));
        // SAFETY: see above.
        let (place, kept) = cell_short(proven!(data.read64(ends - 1)), ends - 1);
        // SAFETY: see `cell_short`.
        proven!(short.put(place, kept));
        // The offset before the last, at once.
        while open && anchor + 8 <= end {
            // SAFETY: `anchor + 8 <= end`.
            let value = proven!(data.read64(anchor));
            // SAFETY: as above, and `rep2` does not lead before the first byte.
            if value as u32 != proven!(data.read32(anchor - rep2)) || rep2 == 0 {
                break;
            }
            // SAFETY: as above.
            let length = 4 + proven!(data.match_length(anchor + 4, anchor + 4 - rep2));
            (rep1, rep2) = (rep2, rep1);
            let (place, kept) = cell_long(value, anchor);
            // SAFETY: see `cell_long`.
            proven!(long.put(place, kept));
            let (place, kept) = cell_short(value, anchor);
            // SAFETY: see `cell_short`.
            proven!(short.put(place, kept));
            // SAFETY: the match ends at `end` at the latest; the sequence before ended at `anchor`,
            // and the store was open.
            open = proven!(store.append(data, anchor, 0, 1, length));
            anchor += length;
        }
        if !open {
            break;
        }
    }
    (anchor, [rep1, rep2, rep3])
}
