//! One table of positions by hash; the first match that is found is taken.

#[cfg(feature = "portable")]
use super::memory::Checked;
use super::memory::{Memory, Table, count_back, match_length, place, put_aside, take_back};
use super::{Block, hash, read64};
use crate::Error;
use crate::encode::levels::Params;
use crate::encode::store::{SequenceStore, Store};
use crate::sequences::{Sequence, offset_value};
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
        Ok(Tables {
            positions: carver.cells(1 << params.hash_log)?,
        })
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.positions.fill([0; 4]);
    }

    /// Knows what `other` knows, whose tables are as large.
    pub(crate) fn copy_from(&mut self, other: &Tables<'_>) {
        self.positions.copy_from_slice(other.positions);
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
            let slot = (read64(block.data, at) << (64 - 8 * min_match)).wrapping_mul(super::PRIME)
                >> shift;
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
        let task = Task {
            start: block.base as usize + block.start,
            base: block.base,
            window: block.window as usize,
            step: usize::from(params.target_length.max(1)) + 1,
            shift: 64 - self.positions.len().ilog2(),
            min_match: params.min_match,
        };
        let data = &block.data[..block.end];
        #[cfg(not(feature = "portable"))]
        let (anchor, kept) = crate::arch::find::fast(data, self.positions, &task, *repeat, store);
        #[cfg(feature = "portable")]
        let (anchor, kept) = find(
            Checked::new(data, task.base),
            &mut &mut *self.positions,
            &task,
            *repeat,
            store,
        );
        *repeat = take_back(*repeat, kept, store);
        anchor - block.base as usize
    }
}

/// What [`find`] needs to know.
pub(crate) struct Task {
    /// Index at which the block begins.
    pub(crate) start: usize,
    /// Index of the first byte of the data.
    pub(crate) base: u32,
    window: usize,
    step: usize,
    /// 64 less the logarithm of the table's size.
    pub(crate) shift: u32,
    min_match: u8,
}

/// Finds the sequences in `data` from `task.start` on.
///
/// Reads lie within `data`; places in the table are of 64 - `task.shift` bits.
#[inline(always)]
pub(crate) fn find<M: Memory, T: Table, S: Store>(
    data: M,
    positions: &mut T,
    task: &Task,
    repeat: [u32; 3],
    store: &mut S,
) -> (usize, [usize; 3]) {
    // The sizes that levels use are known when compiling: the loop has a register more.
    match (task.min_match, task.shift) {
        (5, 52) => find_min::<M, T, S, 5, 52>(data, positions, task, repeat, store),
        (6, 50) => find_min::<M, T, S, 6, 50>(data, positions, task, repeat, store),
        (5, 49) => find_min::<M, T, S, 5, 49>(data, positions, task, repeat, store),
        (0..=4, _) => find_min::<M, T, S, 4, 0>(data, positions, task, repeat, store),
        (5, _) => find_min::<M, T, S, 5, 0>(data, positions, task, repeat, store),
        (6, _) => find_min::<M, T, S, 6, 0>(data, positions, task, repeat, store),
        (7.., _) => find_min::<M, T, S, 7, 0>(data, positions, task, repeat, store),
    }
}

#[inline(always)]
fn find_min<M: Memory, T: Table, S: Store, const MIN: u32, const SHIFT: u32>(
    data: M,
    positions: &mut T,
    task: &Task,
    repeat: [u32; 3],
    store: &mut S,
) -> (usize, [usize; 3]) {
    let Task {
        start,
        window,
        step: step_first,
        ..
    } = *task;
    let shift = if SHIFT == 0 { task.shift } else { SHIFT };
    let (first, end) = (data.first(), data.end());
    let begin = start.max(first + 1);
    let [mut rep1, mut rep2, mut rep3] = put_aside(repeat, begin - first);
    let mut anchor = start;
    let mut at = begin;
    'block: loop {
        // Pairs of neighbours are compared, `a` and `a` + 1, while the next pair is on its way.
        let mut step = step_first;
        let mut a = at;
        if a + step + 9 > end {
            break;
        }
        let mut step_next = a + PATIENCE;
        // Indexes from here on may be referred to, up to the next change of step.
        let mut low = first.max((a + 2 * PATIENCE).saturating_sub(window));
        let mut limit = step_next.min(end - 8 - step);
        let mut v0 = data.read64(a);
        let mut h0 = hash::<MIN>(v0, shift);
        let mut h1 = hash::<MIN>(data.read64(a + 1), shift);
        let mut index = positions.at(h0) as usize;
        let (found, candidate, repeated) = loop {
            let b = a + step;
            let v2 = data.read64(b);
            positions.put(h0, a as u32);
            if (data.read32(b - rep1) == v2 as u32) & (rep1 != 0) {
                positions.put(h1, a as u32 + 1);
                break (b, b - rep1, true);
            }
            let candidate = place(index, low, a);
            if data.read32(candidate) == v0 as u32 {
                positions.put(h1, a as u32 + 1);
                break (a, candidate, false);
            }
            index = positions.at(h1) as usize;
            positions.put(h1, a as u32 + 1);
            h0 = hash::<MIN>(v2, shift);
            let candidate = place(index, low, a);
            if data.read32(candidate) == data.read32(a + 1) {
                if step <= 4 {
                    positions.put(h0, b as u32);
                }
                break (a + 1, candidate, false);
            }
            index = positions.at(h0) as usize;
            v0 = v2;
            h1 = hash::<MIN>(data.read64(b + 1), shift);
            a = b;
            if a >= limit {
                if a + step + 9 > end {
                    break 'block;
                }
                step += 1;
                step_next += PATIENCE;
                if a + step + 9 > end {
                    break 'block;
                }
                limit = step_next.min(end - 8 - step);
                low = first.max((a + 2 * PATIENCE).saturating_sub(window));
            }
        };

        let (value, back) = if repeated {
            (
                1,
                usize::from(data.byte(found - 1) == data.byte(candidate - 1)),
            )
        } else {
            (rep3, rep2, rep1) = (rep2, rep1, found - candidate);
            (
                offset_value(rep1 as u32),
                count_back(data, found, candidate, anchor),
            )
        };
        let length = 4 + match_length(data, found + 4, candidate + 4) + back;
        let begins = found - back;
        let sequence = Sequence::new((begins - anchor) as u32, value, length as u32);
        let mut open = store.push(data, anchor, sequence);
        anchor = begins + length;
        at = anchor;
        if at + 8 > end {
            break;
        }
        let near = found + 2;
        positions.put(hash::<MIN>(data.read64(near), shift), near as u32);
        positions.put(hash::<MIN>(data.read64(at - 2), shift), at as u32 - 2);
        // The offset before the last, at once.
        while open && at + 8 <= end && rep2 != 0 && rep2 <= at - first {
            let v = data.read64(at);
            if v as u32 != data.read32(at - rep2) {
                break;
            }
            let length = 4 + match_length(data, at + 4, at + 4 - rep2);
            (rep1, rep2) = (rep2, rep1);
            positions.put(hash::<MIN>(v, shift), at as u32);
            open = store.push(data, anchor, Sequence::new(0, 1, length as u32));
            at += length;
            anchor = at;
        }
        if !open {
            break;
        }
    }
    (anchor, [rep1, rep2, rep3])
}
