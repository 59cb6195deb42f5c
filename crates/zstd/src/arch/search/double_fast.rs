//! The search for [`Strategy::DoubleFast`](crate::Strategy::DoubleFast): a long match is taken at
//! once, a short one if the next position has no longer one.

use super::super::access::{IndexedBytes, PositionTable, Store, opaque};
use super::PairHashes;
use crate::ROOMY;
use crate::checked::Checked;
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
    /// 64 less the logarithms of the tables' sizes, of the one for long matches first.
    pub(crate) shifts: [u32; 2],
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
        cells: &mut [[u8; 4]],
        task: &DoubleFastSearch,
        repeat: [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> Checked<(usize, [usize; 3])> {
        let data = IndexedBytes::new(data, task.base);
        let mut store = Store::new(store, data.end() - task.start)?;
        macro_rules! sizes {
            ($min:literal, $long:literal, $short:literal, $index:expr) => {
                find_min::<$min, $long, $short, $index>(data, cells, task, repeat, &mut store)
            };
        }
        // The sizes that levels use are known when compiling: the loop has three registers more.
        let found = match (task.min_match, task.shifts, task.index_log) {
            (5, [49, 49], INDEX_LOG) => sizes!(5, 49, 49, INDEX_LOG),
            (4, [49, 49], INDEX_LOG) => sizes!(4, 49, 49, INDEX_LOG),
            // Level 3 of content that is large or of unknown size, and of 256 KiB.
            (5, [47, 48], 23) => sizes!(5, 47, 48, 23),
            (5, [48, 48], INDEX_LOG) if ROOMY => sizes!(5, 48, 48, INDEX_LOG),
            (4, [48, 48], INDEX_LOG) if ROOMY => sizes!(4, 48, 48, INDEX_LOG),
            // Frames of 8 and 16 KiB, and of 4 KiB.
            (4, [50, 50], INDEX_LOG) if ROOMY => sizes!(4, 50, 50, INDEX_LOG),
            (4, [51, 51], INDEX_LOG) if ROOMY => sizes!(4, 51, 51, INDEX_LOG),
            (0..=4, ..) => sizes!(4, 0, 0, 0),
            (5, ..) => sizes!(5, 0, 0, 0),
            (6, ..) => sizes!(6, 0, 0, 0),
            (7.., ..) => sizes!(7, 0, 0, 0),
        }?;
        store.finish()?;
        Ok(found)
    }
}

#[inline(always)]
fn find_min<const MIN: u32, const LONG: u32, const SHORT: u32, const INDEX: u32>(
    data: IndexedBytes<'_>,
    cells: &mut [[u8; 4]],
    task: &DoubleFastSearch,
    repeat: [u32; 3],
    store: &mut Store<'_, '_>,
) -> Checked<(usize, [usize; 3])> {
    let DoubleFastSearch { start, window, .. } = *task;
    let (shifts, index_log) = if LONG == 0 {
        (task.shifts, task.index_log)
    } else {
        ([LONG, SHORT], INDEX)
    };
    let mut table = PositionTable::pair(cells, shifts)?;
    // Places of as many bits as have the numbers of cells, and those of the second table lie behind
    // the first: they are below the sum.
    let hashes = PairHashes::new::<MIN>();
    let cells = |value, index| hashes.cells(value, index, shifts, index_log);
    let (first, end) = (data.first(), data.end());
    // Whether matches may lie too far back. If not, all may be referred to.
    let far = end - first > window;
    let begin = start.max(first + 1);
    // A pair behind this one has too few bytes after it.
    let last = end.saturating_sub(DoubleFast::STEP + 9);
    // No repeat offset leads before the first byte, from `begin` or from any position after it; nor
    // does the distance of a match that has been found, from after that match.
    let [mut rep1, mut rep2, mut rep3] = put_aside(repeat, begin - first);
    let (mut anchor, mut from) = (start, begin);
    if from > last {
        return Ok((anchor, [rep1, rep2, rep3]));
    }
    'block: loop {
        // Pairs of neighbours are looked at, `a` and `a` + 1.
        let mut a = from;
        let mut step = DoubleFast::STEP;
        let mut limit = (a + DoubleFast::PATIENCE).min(last + 1);
        // Largest distance from `a`, up to the next change of step.
        let mut reach = a - first;
        if far {
            reach = a - first.max((a + 2 * DoubleFast::PATIENCE).saturating_sub(window));
        }
        let before = data.moved(rep1);
        // SAFETY: `first < a <= last`, which is not 0 then, from before the loop or from its end:
        // `a + step + 9 <= end`.
        let mut value = proven!(data.read64(a));
        // The match: where it is, how far back, and how it was found.
        let (mut found, mut distance, by) = loop {
            let at = cells(value, a);
            // SAFETY: see `cells`.
            let long_distance = at.kept.wrapping_sub(proven!(table.at(at.long))) as usize;
            // SAFETY: see `cells`.
            proven!(table.put(at.long, at.kept));
            // SAFETY: see `cells`.
            let short_distance = at.kept.wrapping_sub(proven!(table.at(at.short))) as usize;
            // SAFETY: see `cells`.
            proven!(table.put(at.short, at.kept));
            // SAFETY: `a + step + 9 <= end`, and a step is more than one: at first by the
            // comparison above, later because `a < limit`, which is at most `end - 8 - step`, or by
            // the comparison where the step grows.
            let value_next = proven!(data.read64(a + 1));
            // SAFETY: as above, and `rep1` does not lead before the first byte.
            if proven!(before.read32(a + 1)) == value_next as u32 && rep1 != 0 {
                break (a + 1, rep1, Found::Repeated);
            }
            // SAFETY: `long_distance <= reach <= a - first`: `reach` grows with `a`, and is set to
            // no more when the step grows; and as above.
            if long_distance <= reach && proven!(data.read64(a - long_distance)) == value {
                break (a, long_distance, Found::Long);
            }
            // SAFETY: `short_distance <= reach`, and as above.
            if short_distance <= reach && proven!(data.read32(a - short_distance)) == value as u32 {
                break (a, short_distance, Found::Short);
            }
            // One is added to the sum, so that `a` + 1 takes no register.
            let at = cells(value_next, a);
            let kept = at.kept.wrapping_add(1);
            // SAFETY: see `cells`.
            let long_distance = kept.wrapping_sub(proven!(table.at(at.long))) as usize;
            // SAFETY: see `cells`.
            proven!(table.put(at.long, kept));
            // SAFETY: see `cells`.
            let short_distance = kept.wrapping_sub(proven!(table.at(at.short))) as usize;
            // SAFETY: see `cells`.
            proven!(table.put(at.short, kept));
            // From here on the pair lies a step before `a`.
            a = opaque(a + step);
            // SAFETY: `a + 9 <= end`, as this was `a + step + 9`.
            value = proven!(data.read64(a));
            // SAFETY: as above, and `rep1` does not lead before the first byte.
            if proven!(before.read32(a)) == value as u32 && rep1 != 0 {
                break (a, rep1, Found::Repeated);
            }
            if long_distance <= reach {
                let next = opaque(a - step + 1);
                // SAFETY: as before, one byte on.
                if proven!(data.read64(next - long_distance)) == value_next {
                    break (next, long_distance, Found::Long);
                }
            }
            if short_distance <= reach {
                let next = opaque(a - step + 1);
                // SAFETY: as above.
                if proven!(data.read32(next - short_distance)) == value_next as u32 {
                    break (next, short_distance, Found::Short);
                }
            }
            reach += step;
            if a >= limit {
                step = DoubleFast::longer_step(step);
                if a + step + 9 > end {
                    break 'block;
                }
                limit = (limit + DoubleFast::PATIENCE).min(end - 8 - step);
                if far {
                    reach = a - first.max((a + 2 * DoubleFast::PATIENCE).saturating_sub(window));
                }
            }
        };
        let sure = found + 4;
        // SAFETY: as many bytes were equal, and `distance <= found - first`, as they were read.
        let mut ends = sure + proven!(data.match_length(sure, sure - distance));
        let (value, back) = if by == Found::Repeated {
            (1, 0)
        } else {
            let next = found + 1;
            // SAFETY: `found <= a + 1`, and `a + step + 9 <= end`.
            let value = proven!(data.read64(next));
            let at = cells(value, next);
            // Has the next position a longer one?
            if by == Found::Short {
                // SAFETY: see `cells`.
                let next_distance = at.kept.wrapping_sub(proven!(table.at(at.long))) as usize;
                // SAFETY: `next_distance <= reach < next - first`.
                if next_distance <= reach && proven!(data.read64(next - next_distance)) == value {
                    // SAFETY: as above.
                    let next_ends =
                        next + 8 + proven!(data.match_length(next + 8, next + 8 - next_distance));
                    if next_ends > ends + 1 {
                        (found, distance, ends) = (next, next_distance, next_ends);
                    }
                }
            }
            // SAFETY: see `cells`.
            proven!(table.put(at.long, at.kept));
            (rep3, rep2, rep1) = (rep2, rep1, distance);
            // SAFETY: `distance <= found - first`, as the match there was read; `anchor <= found`.
            let back = proven!(data.count_back(found, found - distance, anchor));
            (offset_value(distance as u32), back)
        };
        let begins = found - back;
        // SAFETY: `anchor <= begins <= ends <= end`; the sequence before ended at `anchor`, and the
        // store was open.
        let mut open = proven!(store.append(data, anchor, begins - anchor, value, ends - begins));
        anchor = ends;
        if anchor > last {
            break;
        }
        let near = found + 2;
        // SAFETY: `near + 2 <= ends` and `ends + 8 <= end`; so for the next two.
        let at = cells(proven!(data.read64(near)), near);
        // SAFETY: see `cells`.
        proven!(table.put(at.long, at.kept));
        // SAFETY: see `cells`.
        proven!(table.put(at.short, at.kept));
        // SAFETY: see above.
        let at = cells(proven!(data.read64(ends - 2)), ends - 2);
        // SAFETY: see `cells`.
        proven!(table.put(at.long, at.kept));
        // SAFETY: see above.
        let at = cells(proven!(data.read64(ends - 1)), ends - 1);
        // SAFETY: see `cells`.
        proven!(table.put(at.short, at.kept));
        // The offset before the last, at once.
        loop {
            if !open || anchor > last {
                break 'block;
            }
            // SAFETY: `anchor + 8 <= end`.
            let value = proven!(data.read64(anchor));
            // SAFETY: as above, and `rep2` does not lead before the first byte.
            if value as u32 != proven!(data.read32(anchor - rep2)) || rep2 == 0 {
                break;
            }
            // SAFETY: as above.
            let length = 4 + proven!(data.match_length(anchor + 4, anchor + 4 - rep2));
            (rep1, rep2) = (rep2, rep1);
            let at = cells(value, anchor);
            // SAFETY: see `cells`.
            proven!(table.put(at.long, at.kept));
            // SAFETY: see `cells`.
            proven!(table.put(at.short, at.kept));
            // SAFETY: the match ends at `end` at the latest; the sequence before ended at `anchor`,
            // and the store was open.
            open = proven!(store.append(data, anchor, 0, 1, length));
            anchor += length;
        }
        from = anchor;
    }
    Ok((anchor, [rep1, rep2, rep3]))
}

/// How a match was found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    /// By the last offset.
    Repeated,
    /// In the table of shorter matches.
    Short,
    /// By its first eight bytes.
    Long,
}
