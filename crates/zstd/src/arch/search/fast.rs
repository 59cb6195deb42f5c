//! The search for [`Strategy::Fast`](crate::Strategy::Fast): one table of positions by hash; the
//! first match that is found is taken.

use super::super::access::{IndexedBytes, PositionTable, Store, opaque};
use super::tagged;
use crate::ROOMY;
use crate::checked::Checked;
use crate::encode::finder::index::{INDEX_LOG, put_aside};
use crate::encode::params::Fast;
use crate::encode::store::SequenceStore;
use crate::sequences::offset_value;

/// Parameters of [`find`].
pub(crate) struct FastSearch {
    /// Index at which the block begins.
    pub(crate) start: usize,
    /// Index of the first byte of the data.
    pub(crate) base: u32,
    pub(crate) window: usize,
    /// The first step.
    pub(crate) step: usize,
    /// 64 less the logarithm of the table's size.
    pub(crate) shift: u32,
    /// Bits of an index in a cell.
    pub(crate) index_log: u32,
    pub(crate) min_match: u8,
}

impl FastSearch {
    /// Whether the preconditions of the search hold: those that the proofs rely on besides the
    /// loop.
    ///
    /// Separate from the loop, which is compiled without these facts: with them it needs more
    /// registers (2 % more instructions at level 1).
    #[cfg(feature = "arch")]
    pub(crate) fn fits(&self, data: &[u8]) -> bool {
        IndexedBytes::fits(data, self.base, self.start)
            && self.step >= 1
            && self.window >= 2 * self.patience()
    }

    /// Positions without a match after which the step grows.
    #[inline(always)]
    fn patience(&self) -> usize {
        if self.step == 2 {
            Fast::PATIENCE_SHORT
        } else {
            Fast::PATIENCE
        }
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
        positions: &mut [[u8; 4]],
        task: &FastSearch,
        repeat: [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> Checked<(usize, [usize; 3])> {
        let data = IndexedBytes::new(data, task.base);
        let mut positions = PositionTable::new(positions, task.shift)?;
        let positions = &mut positions;
        let mut open = Store::new(store, data.end() - task.start)?;
        let store = &mut open;
        // The sizes that levels use are known when compiling: the loop has two registers more.
        let found = match (task.min_match, task.shift, task.index_log) {
            (5, 52, 20) => find_min::<5, 52>(data, positions, task, repeat, store),
            (6, 50, 20) => find_min::<6, 50>(data, positions, task, repeat, store),
            (7, 49, 20) => find_min::<7, 49>(data, positions, task, repeat, store),
            (5, 49, 20) => find_min::<5, 49>(data, positions, task, repeat, store),
            // Frames of 8 and 16 KiB, and of 4 KiB.
            (5, 50, 20) if ROOMY => find_min::<5, 50>(data, positions, task, repeat, store),
            (5, 51, 20) if ROOMY => find_min::<5, 51>(data, positions, task, repeat, store),
            (0..=4, ..) => find_min::<4, 0>(data, positions, task, repeat, store),
            (5, ..) => find_min::<5, 0>(data, positions, task, repeat, store),
            (6, ..) => find_min::<6, 0>(data, positions, task, repeat, store),
            (7.., ..) => find_min::<7, 0>(data, positions, task, repeat, store),
        };
        open.finish()?;
        Ok(found)
    }
}

#[inline(always)]
fn find_min<const MIN: u32, const SHIFT: u32>(
    data: IndexedBytes<'_>,
    positions: &mut PositionTable<'_>,
    task: &FastSearch,
    repeat: [u32; 3],
    store: &mut Store<'_, '_>,
) -> (usize, [usize; 3]) {
    let FastSearch {
        start,
        window,
        step: step_first,
        ..
    } = *task;
    let (shift, index_log) = if SHIFT == 0 {
        (task.shift, task.index_log)
    } else {
        (SHIFT, INDEX_LOG)
    };
    // A place of as many bits as has the number of cells: it is below that.
    let cell = |value, index| tagged::<MIN>(value, index, shift, index_log);
    let patience = task.patience();
    let (first, end) = (data.first(), data.end());
    // Whether matches may lie too far back. If not, all may be referred to.
    let far = end - first > window;
    let begin = start.max(first + 1);
    // A pair behind this one has too few bytes after it.
    let last = end.saturating_sub(9 + step_first);
    // No repeat offset leads before the first byte, from `begin` or from any position after it; nor
    // does the distance of a match that has been found, from after that match.
    let [mut rep1, mut rep2, mut rep3] = put_aside(repeat, begin - first);
    let mut anchor = start;
    'block: loop {
        // Pairs of neighbours are compared, `a` and `a` + 1.
        let mut a = anchor.max(first + 1);
        let mut step = step_first;
        if a > last {
            break;
        }
        let mut limit = (a + patience).min(last + 1);
        // Largest distance from `a`, up to the next change of step.
        let mut reach = a - first;
        if far {
            reach = a - first.max((a + 2 * patience).saturating_sub(window));
        }
        let before = data.moved(rep1);
        // SAFETY: `first < a <= last`, which is not 0 then: `a + step + 9 <= end`.
        let mut v0 = proven!(data.read64(a));
        let (found, distance, repeated) = loop {
            let (h0, c0) = cell(v0, a);
            // One is added to the sum, so that `a` + 1 takes no register. SAFETY: `a + step + 8 <=
            // end` and `step >= 1`: at first by the comparison above, later because `a < limit`,
            // which is at most `end - 8 - step`, or by the comparison where the step grows.
            let (h1, c1) = cell(proven!(data.read64(a + 1)), a);
            let c1 = c1.wrapping_add(1);
            // SAFETY: see `cell`.
            let d0 = c0.wrapping_sub(proven!(positions.at(h0))) as usize;
            // SAFETY: see `cell`.
            proven!(positions.put(h0, c0));
            // SAFETY: see `cell`.
            let d1 = c1.wrapping_sub(proven!(positions.at(h1))) as usize;
            // SAFETY: see `cell`.
            proven!(positions.put(h1, c1));
            // From here on the pair lies a step before `a`.
            a = opaque(a + step);
            // SAFETY: `a + 8 <= end`, as this was `a + step + 8`.
            v0 = proven!(data.read64(a));
            // SAFETY: as above, and `rep1` does not lead before the first byte.
            if proven!(before.read32(a)) == v0 as u32 && rep1 != 0 {
                break (a, rep1, true);
            }
            // SAFETY: `d0 <= reach <= a - step - first`: `reach` grows with `a`, and is set to no
            // more when the step grows.
            if d0 <= reach && proven!(data.read32(a - step - d0) == data.read32(a - step)) {
                break (a - step, d0, false);
            }
            if d1 <= reach {
                // Else the compiler adds one after it has subtracted the distance, and once more to
                // the result.
                let next = opaque(a - step + 1);
                // SAFETY: as above, one byte on, which is at most `a`.
                if proven!(data.read32(next - d1) == data.read32(next)) {
                    if step <= 4 {
                        let (h2, c2) = cell(v0, a);
                        // SAFETY: see `cell`.
                        proven!(positions.put(h2, c2));
                    }
                    break (next, d1, false);
                }
            }
            reach += step;
            if a >= limit {
                step += 1;
                if a + step + 8 > end {
                    break 'block;
                }
                limit = (limit + patience).min(end - 8 - step);
                if far {
                    reach = a - first.max((a + 2 * patience).saturating_sub(window));
                }
            }
        };

        let candidate = found - distance;
        let (value, back) = if repeated {
            // SAFETY: `found` is at least a step after `begin`, from where on `distance` does not
            // lead before the first.
            let same = proven!(data.byte(found - 1) == data.byte(candidate - 1));
            (1, usize::from(same))
        } else {
            (rep3, rep2, rep1) = (rep2, rep1, distance);
            // SAFETY: `first <= candidate <= found`, as the match there was read; `anchor <=
            // found`.
            let back = proven!(data.count_back(found, candidate, anchor));
            (offset_value(distance as u32), back)
        };
        // SAFETY: as above, and `found + 4 <= end`, as four bytes there were read.
        let ends = found + 4 + proven!(data.match_length_soon(found + 4, candidate + 4));
        let begins = found - back;
        // SAFETY: `anchor <= begins <= ends <= end`; the sequence before ended at `anchor`, and the
        // store was open.
        let mut open = proven!(store.append(data, anchor, begins - anchor, value, ends - begins));
        anchor = ends;
        if ends + 8 > end {
            break;
        }
        let near = found + 2;
        // SAFETY: `found + 4 <= ends` and `ends + 8 <= end`; so for the next two.
        let (place, kept) = cell(proven!(data.read64(near)), near);
        // SAFETY: see `cell`.
        proven!(positions.put(place, kept));
        if step_first == 2 {
            // SAFETY: see above.
            let (place, kept) = cell(proven!(data.read64(ends - 3)), ends - 3);
            // SAFETY: see `cell`.
            proven!(positions.put(place, kept));
        }
        // SAFETY: see above.
        let (place, kept) = cell(proven!(data.read64(ends - 1)), ends - 1);
        // SAFETY: see `cell`.
        proven!(positions.put(place, kept));
        // The offset before the last, at once.
        while open && anchor + 8 <= end {
            // SAFETY: `anchor + 8 <= end`.
            let v = proven!(data.read64(anchor));
            // SAFETY: as above, and `rep2` does not lead before the first byte.
            if v as u32 != proven!(data.read32(anchor - rep2)) || rep2 == 0 {
                break;
            }
            // SAFETY: as above.
            let length = 4 + proven!(data.match_length_soon(anchor + 4, anchor + 4 - rep2));
            (rep1, rep2) = (rep2, rep1);
            let (place, kept) = cell(v, anchor);
            // SAFETY: see `cell`.
            proven!(positions.put(place, kept));
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
