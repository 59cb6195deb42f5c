//! One table of positions by hash; the first match that is found is taken.
//!
//! Cells have tags, see [`tagged`].

use super::memory::{Checked, Memory, Table, count_back, match_length_soon, put_aside, take_back};
use super::{Block, INDEX_LOG, read64, reduce_tagged, tagged};
use crate::encode::params::Fast;
use crate::encode::store::{SequenceStore, Store};
use crate::sequences::offset_value;
use crate::workspace::{Carver, Cells};

/// The table.
pub(crate) struct Tables<'a> {
    positions: &'a mut [[u8; 4]],
    params: Fast,
    /// Bits of an index in a cell.
    index_log: u32,
}

impl<'a> Tables<'a> {
    /// Bytes of workspace.
    pub(crate) fn bytes(params: &Fast) -> usize {
        4 << params.hash_log
    }

    /// Takes the table from a workspace.
    pub(crate) fn carve(carver: &mut Carver<'a>, params: &Fast, index_log: u32) -> Self {
        Tables {
            positions: carver.cells(1 << params.hash_log),
            params: *params,
            index_log,
        }
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
        reduce_tagged(self.positions, by, self.index_log);
    }

    /// Largest index that a cell can hold.
    pub(crate) fn index_max(&self) -> u32 {
        (1 << self.index_log) - 1
    }

    /// Makes `data[start..end]` known.
    pub(crate) fn insert(&mut self, block: &Block<'_>, min_match: u8) {
        let shift = 64 - u32::from(self.params.hash_log_for(min_match));
        match min_match {
            0..=4 => self.insert_min::<4>(block, shift),
            5 => self.insert_min::<5>(block, shift),
            6 => self.insert_min::<6>(block, shift),
            7.. => self.insert_min::<7>(block, shift),
        }
    }

    fn insert_min<const MIN: u32>(&mut self, block: &Block<'_>, shift: u32) {
        let index_log = self.index_log;
        let mut at = block.start;
        while at + 8 <= block.end {
            let index = block.base as usize + at;
            let (place, kept) =
                tagged::<Checked<'_>, MIN>(read64(block.data, at), index, shift, index_log);
            self.positions.put(place, kept);
            at += 2;
        }
    }

    /// Finds the sequences of a block. Returns where the literals behind the last one begin.
    #[inline(never)]
    pub(crate) fn find(
        &mut self,
        block: &Block<'_>,
        min_match: u8,
        repeat: &mut [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> usize {
        let hash_log = self.params.hash_log_for(min_match);
        let positions = &mut self.positions[..1 << hash_log];
        let task = Task {
            start: block.base as usize + block.start,
            base: block.base,
            window: block.window as usize,
            step: self.params.first_step(),
            shift: 64 - u32::from(hash_log),
            index_log: self.index_log,
            min_match,
        };
        let data = &block.data[..block.end];
        #[cfg(not(feature = "portable"))]
        let (anchor, kept) = crate::arch::find::fast(data, positions, &task, *repeat, store);
        #[cfg(feature = "portable")]
        let (anchor, kept) = find(
            Checked::new(data, task.base),
            &mut &mut *positions,
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
    /// Bits of an index in a cell.
    index_log: u32,
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
    // The sizes that levels use are known when compiling: the loop has two registers more.
    match (task.min_match, task.shift, task.index_log) {
        (5, 52, 20) => find_min::<M, T, S, 5, 52>(data, positions, task, repeat, store),
        (6, 50, 20) => find_min::<M, T, S, 6, 50>(data, positions, task, repeat, store),
        (7, 49, 20) => find_min::<M, T, S, 7, 49>(data, positions, task, repeat, store),
        (5, 49, 20) => find_min::<M, T, S, 5, 49>(data, positions, task, repeat, store),
        (0..=4, ..) => find_min::<M, T, S, 4, 0>(data, positions, task, repeat, store),
        (5, ..) => find_min::<M, T, S, 5, 0>(data, positions, task, repeat, store),
        (6, ..) => find_min::<M, T, S, 6, 0>(data, positions, task, repeat, store),
        (7.., ..) => find_min::<M, T, S, 7, 0>(data, positions, task, repeat, store),
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
    let (shift, index_log) = if SHIFT == 0 {
        (task.shift, task.index_log)
    } else {
        (SHIFT, INDEX_LOG)
    };
    let cell = |value, index| tagged::<M, MIN>(value, index, shift, index_log);
    let patience = if step_first == 2 {
        Fast::PATIENCE_SHORT
    } else {
        Fast::PATIENCE
    };
    let (first, end) = (data.first(), data.end());
    // Whether matches may lie too far back. If not, all may be referred to.
    let far = end - first > window;
    let begin = start.max(first + 1);
    let [mut rep1, mut rep2, mut rep3] = put_aside(repeat, begin - first);
    let mut anchor = start;
    'block: loop {
        // Pairs of neighbours are compared, `a` and `a` + 1.
        let mut a = anchor.max(first + 1);
        let mut step = step_first;
        if a + step + 9 > end {
            break;
        }
        let mut limit = (a + patience).min(end - 8 - step);
        // Largest distance from `a`, up to the next change of step.
        let mut reach = a - first;
        if far {
            reach = a - first.max((a + 2 * patience).saturating_sub(window));
        }
        let before = data.moved(rep1);
        let mut v0 = data.read64(a);
        let (found, distance, repeated) = loop {
            let (h0, c0) = cell(v0, a);
            // One is added to the sum, so that `a` + 1 takes no register.
            let (h1, c1) = cell(data.read64(a + 1), a);
            let c1 = c1.wrapping_add(1);
            let d0 = c0.wrapping_sub(positions.at(h0)) as usize;
            positions.put(h0, c0);
            let d1 = c1.wrapping_sub(positions.at(h1)) as usize;
            positions.put(h1, c1);
            // From here on the pair lies a step before `a`.
            a = M::opaque(a + step);
            v0 = data.read64(a);
            if before.read32(a) == v0 as u32 && rep1 != 0 {
                break (a, rep1, true);
            }
            if d0 <= reach && data.read32(a - step - d0) == data.read32(a - step) {
                break (a - step, d0, false);
            }
            if d1 <= reach && data.read32(a - step + 1 - d1) == data.read32(a - step + 1) {
                if step <= 4 {
                    let (h2, c2) = cell(v0, a);
                    positions.put(h2, c2);
                }
                break (a - step + 1, d1, false);
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
            let same = data.byte(found - 1) == data.byte(candidate - 1);
            (1, usize::from(same))
        } else {
            (rep3, rep2, rep1) = (rep2, rep1, distance);
            let back = count_back(data, found, candidate, anchor);
            (offset_value(distance as u32), back)
        };
        let ends = found + 4 + match_length_soon(data, found + 4, candidate + 4);
        let begins = found - back;
        let mut open = store.append(data, anchor, begins - anchor, value, ends - begins);
        anchor = ends;
        if ends + 8 > end {
            break;
        }
        let near = found + 2;
        let (place, kept) = cell(data.read64(near), near);
        positions.put(place, kept);
        if step_first == 2 {
            let (place, kept) = cell(data.read64(ends - 3), ends - 3);
            positions.put(place, kept);
        }
        let (place, kept) = cell(data.read64(ends - 1), ends - 1);
        positions.put(place, kept);
        // The offset before the last, at once.
        while open && anchor + 8 <= end {
            let v = data.read64(anchor);
            if v as u32 != data.read32(anchor - rep2) || rep2 == 0 {
                break;
            }
            let length = 4 + match_length_soon(data, anchor + 4, anchor + 4 - rep2);
            (rep1, rep2) = (rep2, rep1);
            let (place, kept) = cell(v, anchor);
            positions.put(place, kept);
            open = store.append(data, anchor, 0, 1, length);
            anchor += length;
        }
        if !open {
            break;
        }
    }
    (anchor, [rep1, rep2, rep3])
}
