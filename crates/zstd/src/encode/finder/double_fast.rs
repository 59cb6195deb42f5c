//! Two tables of positions by hash, of eight bytes and of fewer: a long match is taken at once, a short one if the next
//! position has no long one. Cells have tags, see [`tagged`].

use super::memory::{Checked, Memory, Table, count_back, match_length, put_aside, take_back};
use super::{Block, INDEX_LOG, read64, reduce_tagged, tagged};
use crate::encode::params::DoubleFast;
use crate::encode::store::{SequenceStore, Store};
use crate::sequences::offset_value;
use crate::workspace::{Carver, Cells};

/// The tables.
pub(crate) struct Tables<'a> {
    long: &'a mut [[u8; 4]],
    short: &'a mut [[u8; 4]],
    /// Bits of an index in a cell.
    index_log: u32,
}

impl<'a> Tables<'a> {
    /// Bytes of workspace.
    pub(crate) fn bytes(params: &DoubleFast) -> usize {
        (4 << params.long_hash_log) + (4 << params.short_hash_log)
    }

    /// Takes the tables from a workspace.
    pub(crate) fn carve(carver: &mut Carver<'a>, params: &DoubleFast, index_log: u32) -> Self {
        Tables {
            long: carver.cells(1 << params.long_hash_log),
            short: carver.cells(1 << params.short_hash_log),
            index_log,
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.long.fill([0; 4]);
        self.short.fill([0; 4]);
    }

    /// Knows what `other` knows, whose tables are as large.
    pub(crate) fn copy_from(&mut self, other: &Tables<'_>) {
        self.long.copy_from_slice(other.long);
        self.short.copy_from_slice(other.short);
    }

    /// Lowers every index.
    pub(crate) fn reduce(&mut self, by: u32) {
        reduce_tagged(self.long, by, self.index_log);
        reduce_tagged(self.short, by, self.index_log);
    }

    /// Largest index that a cell can hold.
    pub(crate) fn index_max(&self) -> u32 {
        (1 << self.index_log) - 1
    }

    /// Makes `data[start..end]` known.
    pub(crate) fn insert(&mut self, block: &Block<'_>, min_match: u8) {
        match min_match {
            0..=4 => self.insert_min::<4>(block),
            5 => self.insert_min::<5>(block),
            6 => self.insert_min::<6>(block),
            7.. => self.insert_min::<7>(block),
        }
    }

    fn insert_min<const MIN: u32>(&mut self, block: &Block<'_>) {
        let (long_shift, short_shift) =
            (64 - self.long.len().ilog2(), 64 - self.short.len().ilog2());
        let index_log = self.index_log;
        for at in block.start..(block.end.saturating_sub(7)).max(block.start) {
            let value = read64(block.data, at);
            let index = block.base as usize + at;
            let (place, kept) = tagged::<Checked<'_>, 8>(value, index, long_shift, index_log);
            self.long.put(place, kept);
            let (place, kept) = tagged::<Checked<'_>, MIN>(value, index, short_shift, index_log);
            self.short.put(place, kept);
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
        let task = Task {
            start: block.base as usize + block.start,
            base: block.base,
            window: block.window as usize,
            long_shift: 64 - self.long.len().ilog2(),
            short_shift: 64 - self.short.len().ilog2(),
            index_log: self.index_log,
            min_match,
        };
        let data = &block.data[..block.end];
        #[cfg(not(feature = "portable"))]
        let (anchor, kept) =
            crate::arch::find::double_fast(data, self.long, self.short, &task, *repeat, store);
        #[cfg(feature = "portable")]
        let (anchor, kept) = find(
            Checked::new(data, task.base),
            &mut &mut *self.long,
            &mut &mut *self.short,
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
    /// 64 less the logarithms of the tables' sizes.
    pub(crate) long_shift: u32,
    pub(crate) short_shift: u32,
    /// Bits of an index in a cell.
    index_log: u32,
    min_match: u8,
}

/// Finds the sequences in `data` from `task.start` on.
///
/// Reads lie within `data`; places in the tables are of 64 - `long_shift` and 64 - `short_shift` bits.
#[inline(always)]
pub(crate) fn find<M: Memory, T: Table, S: Store>(
    data: M,
    long: &mut T,
    short: &mut T,
    task: &Task,
    repeat: [u32; 3],
    store: &mut S,
) -> (usize, [usize; 3]) {
    macro_rules! sizes {
        ($min:literal, $long:literal, $short:literal) => {
            find_min::<M, T, S, $min, $long, $short>(data, long, short, task, repeat, store)
        };
    }
    // The sizes that levels use are known when compiling: the loop has three registers more.
    match (
        task.min_match,
        task.long_shift,
        task.short_shift,
        task.index_log,
    ) {
        (5, 49, 49, 20) => sizes!(5, 49, 49),
        (4, 49, 49, 20) => sizes!(4, 49, 49),
        (0..=4, ..) => sizes!(4, 0, 0),
        (5, ..) => sizes!(5, 0, 0),
        (6, ..) => sizes!(6, 0, 0),
        (7.., ..) => sizes!(7, 0, 0),
    }
}

#[inline(always)]
fn find_min<M: Memory, T: Table, S: Store, const MIN: u32, const LONG: u32, const SHORT: u32>(
    data: M,
    long: &mut T,
    short: &mut T,
    task: &Task,
    repeat: [u32; 3],
    store: &mut S,
) -> (usize, [usize; 3]) {
    let Task { start, window, .. } = *task;
    let (long_shift, short_shift, index_log) = if LONG == 0 {
        (task.long_shift, task.short_shift, task.index_log)
    } else {
        (LONG, SHORT, INDEX_LOG)
    };
    let cell_long = |value, index| tagged::<M, 8>(value, index, long_shift, index_log);
    let cell_short = |value, index| tagged::<M, MIN>(value, index, short_shift, index_log);
    let (first, end) = (data.first(), data.end());
    // Whether matches may lie too far back. If not, all may be referred to.
    let far = end - first > window;
    let begin = start.max(first + 1);
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
            let value = data.read64(a);
            let (long_place, long_kept) = cell_long(value, a);
            let (short_place, short_kept) = cell_short(value, a);
            let long_distance = long_kept.wrapping_sub(long.at(long_place)) as usize;
            long.put(long_place, long_kept);
            let short_distance = short_kept.wrapping_sub(short.at(short_place)) as usize;
            short.put(short_place, short_kept);
            if before.read32(a + 1) == data.read32(a + 1) && rep1 != 0 {
                let length = 4 + match_length(data, a + 5, a + 5 - rep1);
                break (a + 1, rep1, length, true);
            }
            if long_distance <= reach && data.read64(a - long_distance) == data.read64(a) {
                let (place, kept) = cell_long(data.read64(a + 1), a + 1);
                long.put(place, kept);
                let length = 8 + match_length(data, a + 8, a + 8 - long_distance);
                break (a, long_distance, length, false);
            }
            if short_distance <= reach && data.read32(a - short_distance) == data.read32(a) {
                let length = 4 + match_length(data, a + 4, a + 4 - short_distance);
                // Has the next position a longer one?
                let next = a + 1;
                let next_value = data.read64(next);
                let (place, kept) = cell_long(next_value, next);
                let next_distance = kept.wrapping_sub(long.at(place)) as usize;
                long.put(place, kept);
                if next_distance <= reach && data.read64(next - next_distance) == next_value {
                    let next_length = 8 + match_length(data, next + 8, next + 8 - next_distance);
                    if next_length > length {
                        break (next, next_distance, next_length, false);
                    }
                }
                break (a, short_distance, length, false);
            }
            a = M::opaque(a + step);
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
            let back = count_back(data, found, found - distance, anchor);
            (offset_value(distance as u32), back)
        };
        let ends = found + length;
        let begins = found - back;
        let mut open = store.append(data, anchor, begins - anchor, value, ends - begins);
        anchor = ends;
        if ends + 8 > end {
            break;
        }
        let near = a + 2;
        let value = data.read64(near);
        let (place, kept) = cell_long(value, near);
        long.put(place, kept);
        let (place, kept) = cell_short(value, near);
        short.put(place, kept);
        let (place, kept) = cell_long(data.read64(ends - 2), ends - 2);
        long.put(place, kept);
        let (place, kept) = cell_short(data.read64(ends - 1), ends - 1);
        short.put(place, kept);
        // The offset before the last, at once.
        while open && anchor + 8 <= end {
            let value = data.read64(anchor);
            if value as u32 != data.read32(anchor - rep2) || rep2 == 0 {
                break;
            }
            let length = 4 + match_length(data, anchor + 4, anchor + 4 - rep2);
            (rep1, rep2) = (rep2, rep1);
            let (place, kept) = cell_long(value, anchor);
            long.put(place, kept);
            let (place, kept) = cell_short(value, anchor);
            short.put(place, kept);
            open = store.append(data, anchor, 0, 1, length);
            anchor += length;
        }
        if !open {
            break;
        }
    }
    (anchor, [rep1, rep2, rep3])
}
