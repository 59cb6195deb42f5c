//! Two tables of positions by hash, of eight bytes and of fewer: a long match is taken at once, a short one if the next
//! position has no long one.

#[cfg(feature = "portable")]
use super::memory::Checked;
use super::memory::{Memory, Table, count_back, match_length, place, put_aside, take_back};
use super::{Block, PRIME, hash, read64};
use crate::Error;
use crate::encode::levels::Params;
use crate::encode::store::{SequenceStore, Store};
use crate::sequences::{Sequence, offset_value};
use crate::workspace::{Carver, Cells};

/// Positions without a match after which the steps grow.
const PATIENCE: usize = 256;

/// The tables.
pub(crate) struct Tables<'a> {
    long: &'a mut [[u8; 4]],
    short: &'a mut [[u8; 4]],
}

impl<'a> Tables<'a> {
    /// Bytes of workspace.
    pub(crate) fn bytes(params: &Params) -> usize {
        (4 << params.hash_log) + (4 << params.chain_log)
    }

    /// Takes the tables from a workspace.
    pub(crate) fn carve(carver: &mut Carver<'a>, params: &Params) -> Result<Self, Error> {
        Ok(Tables {
            long: carver.cells(1 << params.hash_log)?,
            short: carver.cells(1 << params.chain_log)?,
        })
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
        super::reduce(self.long, by);
        super::reduce(self.short, by);
    }

    /// Makes `data[start..end]` known.
    pub(crate) fn insert(&mut self, block: &Block<'_>, params: &Params) {
        let cut = 64 - 8 * u32::from(params.min_match.clamp(4, 7));
        let (long_shift, short_shift) =
            (64 - self.long.len().ilog2(), 64 - self.short.len().ilog2());
        for at in block.start..(block.end.saturating_sub(7)).max(block.start) {
            let value = read64(block.data, at);
            let index = block.base + at as u32;
            self.long
                .put((value.wrapping_mul(PRIME) >> long_shift) as usize, index);
            self.short.put(
                ((value << cut).wrapping_mul(PRIME) >> short_shift) as usize,
                index,
            );
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
            long_shift: 64 - self.long.len().ilog2(),
            short_shift: 64 - self.short.len().ilog2(),
            min_match: params.min_match,
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
    match task.min_match {
        0..=4 => find_min::<M, T, S, 4>(data, long, short, task, repeat, store),
        5 => find_min::<M, T, S, 5>(data, long, short, task, repeat, store),
        6 => find_min::<M, T, S, 6>(data, long, short, task, repeat, store),
        7.. => find_min::<M, T, S, 7>(data, long, short, task, repeat, store),
    }
}

#[inline(always)]
fn find_min<M: Memory, T: Table, S: Store, const MIN: u32>(
    data: M,
    long: &mut T,
    short: &mut T,
    task: &Task,
    repeat: [u32; 3],
    store: &mut S,
) -> (usize, [usize; 3]) {
    let Task {
        start,
        window,
        long_shift,
        short_shift,
        ..
    } = *task;
    let (first, end) = (data.first(), data.end());
    let begin = start.max(first + 1);
    let [mut rep1, mut rep2, mut rep3] = put_aside(repeat, begin - first);
    let mut anchor = start;
    let mut at = begin;
    'block: loop {
        let mut step = 1;
        let mut a = at;
        if a + 9 > end {
            break;
        }
        let mut step_next = a + PATIENCE;
        // Indexes from here on may be referred to, up to the next change of step.
        let mut low = first.max((a + 2 * PATIENCE).saturating_sub(window));
        let mut value = data.read64(a);
        let mut long_hash = hash::<8>(value, long_shift);
        let mut long_index = long.at(long_hash) as usize;
        // The match: where it begins, what it refers to, its length, whether by the last offset.
        let (found, candidate, length, repeated) = loop {
            let b = a + step;
            let short_hash = hash::<MIN>(value, short_shift);
            let short_index = short.at(short_hash) as usize;
            long.put(long_hash, a as u32);
            short.put(short_hash, a as u32);
            if (data.read32(a + 1 - rep1) == data.read32(a + 1)) & (rep1 != 0) {
                let from = a + 1 - rep1;
                break (a + 1, from, 4 + match_length(data, a + 5, from + 4), true);
            }
            let next_value = data.read64(b);
            let next_hash = hash::<8>(next_value, long_shift);
            let candidate = place(long_index, low, a);
            if data.read64(candidate) == value {
                if step < 4 {
                    long.put(next_hash, b as u32);
                }
                break (
                    a,
                    candidate,
                    8 + match_length(data, a + 8, candidate + 8),
                    false,
                );
            }
            long_index = long.at(next_hash) as usize;
            let candidate = place(short_index, low, a);
            if data.read32(candidate) == value as u32 {
                let length = 4 + match_length(data, a + 4, candidate + 4);
                let next = place(long_index, low, b);
                if step < 4 {
                    long.put(next_hash, b as u32);
                }
                if data.read64(next) == next_value {
                    let next_length = 8 + match_length(data, b + 8, next + 8);
                    if next_length > length {
                        break (b, next, next_length, false);
                    }
                }
                break (a, candidate, length, false);
            }
            if b >= step_next {
                step += 1;
                step_next += PATIENCE;
                low = first.max((b + 2 * PATIENCE).saturating_sub(window));
            }
            (a, value, long_hash) = (b, next_value, next_hash);
            if a + step + 8 > end {
                break 'block;
            }
        };

        let (code, back) = if repeated {
            (1, 0)
        } else {
            (rep3, rep2, rep1) = (rep2, rep1, found - candidate);
            (
                offset_value(rep1 as u32),
                count_back(data, found, candidate, anchor),
            )
        };
        let begins = found - back;
        let sequence = Sequence::new((begins - anchor) as u32, code, (length + back) as u32);
        let mut open = store.push(data, anchor, sequence);
        anchor = found + length;
        at = anchor;
        if at + 8 > end {
            break;
        }
        let near = a + 2;
        let value = data.read64(near);
        long.put(hash::<8>(value, long_shift), near as u32);
        short.put(hash::<MIN>(value, short_shift), near as u32);
        long.put(hash::<8>(data.read64(at - 2), long_shift), at as u32 - 2);
        short.put(hash::<MIN>(data.read64(at - 1), short_shift), at as u32 - 1);
        // The offset before the last, at once.
        while open && at + 8 <= end && rep2 != 0 && rep2 <= at - first {
            let value = data.read64(at);
            if value as u32 != data.read32(at - rep2) {
                break;
            }
            let length = 4 + match_length(data, at + 4, at + 4 - rep2);
            (rep1, rep2) = (rep2, rep1);
            long.put(hash::<8>(value, long_shift), at as u32);
            short.put(hash::<MIN>(value, short_shift), at as u32);
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
