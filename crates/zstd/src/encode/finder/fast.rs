//! One table of positions by hash; the first match that is found is taken.

use super::{Block, count_back, hash, match_length, read32, read64};
use crate::Error;
use crate::encode::levels::Params;
use crate::encode::store::SequenceStore;
use crate::sequences::{Sequence, offset_value, update_repeat_offsets};
use crate::workspace::{Carver, Cells};

/// Positions without a match after which the steps grow.
const PATIENCE: usize = 128;

/// The table.
pub(crate) struct Tables<'a> {
    positions: &'a mut [[u8; 4]],
}

impl<'a> Tables<'a> {
    /// Bytes of workspace.
    pub(crate) fn bytes(params: &Params) -> usize {
        4 << params.hash_log
    }

    /// Takes the table from a workspace.
    pub(crate) fn carve(carver: &mut Carver<'a>, params: &Params) -> Result<Self, Error> {
        Ok(Tables { positions: carver.cells(1 << params.hash_log)? })
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.positions.fill([0; 4]);
    }

    /// Lowers every index.
    pub(crate) fn reduce(&mut self, by: u32) {
        super::reduce(self.positions, by);
    }

    /// Makes `data[start..end]` known.
    pub(crate) fn insert(&mut self, block: &Block<'_>, params: &Params) {
        let min_match = u32::from(params.min_match.max(4));
        let shift = 64 - self.positions.len().ilog2();
        let mut at = block.start;
        while at + 8 <= block.end {
            let slot = (read64(block.data, at) << (64 - 8 * min_match)).wrapping_mul(super::PRIME) >> shift;
            self.positions.put(slot as usize, block.base + at as u32);
            at += 2;
        }
    }

    /// Finds the sequences of a block. Returns where the literals behind the last one begin.
    pub(crate) fn find(
        &mut self,
        block: &Block<'_>,
        params: &Params,
        repeat: &mut [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> usize {
        match params.min_match {
            0..=4 => self.find_min::<4>(block, params, repeat, store),
            5 => self.find_min::<5>(block, params, repeat, store),
            6 => self.find_min::<6>(block, params, repeat, store),
            _ => self.find_min::<7>(block, params, repeat, store),
        }
    }

    fn find_min<const MIN: u32>(
        &mut self,
        block: &Block<'_>,
        params: &Params,
        repeat: &mut [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> usize {
        let Block { data, start, end, base, window } = *block;
        let data = &data[..end];
        let positions = &mut *self.positions;
        let shift = 64 - positions.len().ilog2();
        let window = window as usize;
        let step_first = usize::from(params.target_length.max(1)) + 1;

        // Repeat offsets that reach before the data are put aside: 0 here. They come back by counting anew.
        let given = *repeat;
        let begin = start.max(1);
        let [rep1, rep2, mut rep3] = given.map(|offset| offset as usize);
        let mut rep1 = if rep1 > begin { 0 } else { rep1 };
        let mut rep2 = if rep2 > begin { 0 } else { rep2 };
        let mut open = true;

        let mut anchor = start;
        let mut at = begin;
        while open {
            // Four positions in flight: `p0` and `p1` are compared while `p2` and `p3` are next.
            let mut step = step_first;
            let mut p0 = at;
            let (mut p1, mut p2) = (p0 + 1, p0 + step);
            let mut p3 = p2 + 1;
            if p3 + 8 > end {
                break;
            }
            let mut step_next = p0 + PATIENCE;
            let mut v0 = read64(data, p0);
            let mut v1 = read64(data, p1);
            let mut h0 = hash::<MIN>(v0, shift);
            let mut h1 = hash::<MIN>(v1, shift);
            let mut index = positions.at(h0);
            let mut candidate;
            let repeated = loop {
                let v2 = read64(data, p2);
                let behind = read32(data, p2 - rep1);
                positions.put(h0, base + p0 as u32);
                if (behind == v2 as u32) & (rep1 != 0) {
                    positions.put(h1, base + p1 as u32);
                    p0 = p2;
                    candidate = p2 - rep1;
                    break true;
                }
                candidate = index.wrapping_sub(base) as usize;
                if is_match(data, v0, p0, candidate, window) {
                    positions.put(h1, base + p1 as u32);
                    break false;
                }
                index = positions.at(h1);
                (h0, p0, p1, v0, v1) = (h1, p1, p2, v1, v2);
                h1 = hash::<MIN>(v1, shift);
                p2 = p3;
                positions.put(h0, base + p0 as u32);
                candidate = index.wrapping_sub(base) as usize;
                if is_match(data, v0, p0, candidate, window) {
                    if step <= 4 {
                        positions.put(h1, base + p1 as u32);
                    }
                    break false;
                }
                index = positions.at(h1);
                v0 = v1;
                v1 = read64(data, p2);
                (h0, p0, p1) = (h1, p1, p2);
                h1 = hash::<MIN>(v1, shift);
                p2 = p0 + step;
                p3 = p1 + step;
                if p2 >= step_next {
                    step += 1;
                    step_next += PATIENCE;
                }
                if p3 + 8 > end {
                    candidate = usize::MAX;
                    break false;
                }
            };
            if candidate == usize::MAX {
                break;
            }

            let found = p0;
            let value = if repeated {
                1
            } else {
                (rep3, rep2, rep1) = (rep2, rep1, p0 - candidate);
                offset_value(rep1 as u32)
            };
            let back = if repeated {
                usize::from(data[p0 - 1] == data[candidate - 1])
            } else {
                count_back(data, p0, candidate, anchor)
            };
            let length = 4 + match_length(data, p0 + 4, candidate + 4, end) + back;
            p0 -= back;
            let sequence = Sequence::new((p0 - anchor) as u32, value, length as u32);
            open = store.push(data, anchor, sequence, end);
            anchor = p0 + length;
            at = anchor;
            if at + 8 > end {
                break;
            }
            let near = found + 2;
            positions.put(hash::<MIN>(read64(data, near), shift), base + near as u32);
            positions.put(hash::<MIN>(read64(data, at - 2), shift), base + at as u32 - 2);
            // The offset before the last, at once.
            while open && at + 8 <= end && rep2 != 0 && rep2 <= at {
                let v = read64(data, at);
                if v as u32 != read32(data, at - rep2) {
                    break;
                }
                let length = 4 + match_length(data, at + 4, at + 4 - rep2, end);
                (rep1, rep2) = (rep2, rep1);
                positions.put(hash::<MIN>(v, shift), base + at as u32);
                open = store.push(data, anchor, Sequence::new(0, 1, length as u32), end);
                at += length;
                anchor = at;
            }
        }
        *repeat = if given.iter().all(|offset| *offset as usize <= begin) {
            [rep1 as u32, rep2 as u32, rep3 as u32]
        } else {
            let mut counted = given;
            for sequence in store.sequences() {
                update_repeat_offsets(&mut counted, sequence.offset_value(), sequence.literal_length());
            }
            counted
        };
        anchor
    }
}

/// Whether a match of four bytes at least begins at `at` and `candidate`. A stale index gives a candidate ahead.
#[inline(always)]
fn is_match(data: &[u8], value: u64, at: usize, candidate: usize, window: usize) -> bool {
    // No branch on the age: in a short frame it is hard to foretell.
    let good = (candidate < at) & (at.wrapping_sub(candidate) <= window);
    let place = if good { candidate } else { at - 1 };
    (read32(data, place) == value as u32) & good
}
