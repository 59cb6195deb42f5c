//! Where one set of entropy tables should end and the next begin.

use super::prices::{ALPHABETS, BIT, COUNTS, Counts, add, log2};
use crate::checked::{Checked, CheckedSlice};
use crate::workspace::{Carver, Cells};

/// Logarithm of the bytes that are not divided.
pub(super) const CHUNK_LOG: u32 = 12;
/// Chunks of a block of 128 KiB.
const CHUNKS: usize = 32;

/// Cells of lists: the number of parts; the first chunk of each part, ascending; the cost of each
/// part; its cost joined with the one after it.
const LISTS: usize = 1 + 3 * CHUNKS;

/// Counts of each chunk of a block; then of each part.
pub(super) struct Chunks<'a> {
    counts: &'a mut [[[u8; 4]; COUNTS]],
    /// Chunks that hold anything at all.
    len: usize,
    lists: &'a mut [[u8; 4]; LISTS],
}

impl<'a> Chunks<'a> {
    /// Bytes of workspace, if the counts are `wanted`.
    pub(super) fn bytes(wanted: bool) -> usize {
        usize::from(wanted) * CHUNKS * COUNTS * 4 + LISTS * 4
    }

    /// Takes the counts from a workspace, if they are `wanted`. Joined parts stay joined.
    #[inline(always)]
    pub(super) fn carve(carver: &mut Carver<'a>, wanted: bool) -> Checked<Self> {
        let cells = usize::from(wanted) * CHUNKS * COUNTS;
        Ok(Chunks {
            counts: carver.cells::<4>(cells)?.as_chunks_mut().0,
            len: 0,
            lists: carver.array()?,
        })
    }

    /// Forgets all counts.
    pub(super) fn start(&mut self) {
        self.len = 0;
    }

    /// The counts of a chunk. Those between it and the last one that was asked for are empty.
    #[inline(always)]
    pub(super) fn chunk(&mut self, chunk: usize) -> Checked<&mut Counts> {
        let chunk = chunk.min(CHUNKS - 1);
        while self.len <= chunk {
            *self.counts.checked_mut(self.len)? = [[0; 4]; COUNTS];
            self.len += 1;
        }
        self.counts.checked_mut(chunk)
    }

    /// Joins neighbouring chunks as long as that saves bits: the gain of one table less, against
    /// the loss of a table that fits both less well.
    ///
    /// Afterwards [`Chunks::part`] tells the counts of each part.
    #[inline(never)]
    pub(super) fn join(&mut self) -> Checked<()> {
        let (number, lists) = self.lists.split_at_mut(1);
        let [parts, costs, joint] = lists.as_chunks_mut::<CHUNKS>().0 else {
            return Ok(());
        };
        let mut n = self.len;
        number.put(0, n as u32);
        if n < 2 {
            parts.put(0, 0);
            return Ok(());
        }
        for i in 0..n {
            parts.checked_put(i, i as u32)?;
            costs.checked_put(i, bits(self.counts.checked(i)?, None)?)?;
        }
        for i in 1..n {
            let (a, b) = (self.counts.checked(i - 1)?, self.counts.checked(i)?);
            joint.checked_put(i - 1, bits(a, Some(b))?)?;
        }
        while n > 1 {
            let (mut best, mut gain) = (0, i64::MIN);
            for i in 0..n - 1 {
                let apart = i64::from(costs.checked_at(i)?) + i64::from(costs.checked_at(i + 1)?);
                let saved = apart - i64::from(joint.checked_at(i)?);
                if saved > gain {
                    (best, gain) = (i, saved);
                }
            }
            if gain < 0 {
                break;
            }
            let to = parts.checked_at(best)? as usize;
            let from = parts.checked_at(best + 1)? as usize;
            let (head, tail) = self.counts.checked_split_mut(from)?;
            add(head.checked_mut(to)?, tail.checked(0)?);
            *costs.checked_mut(best)? = *joint.checked(best)?;
            parts.checked_copy_within(best + 2..n, best + 1)?;
            costs.checked_copy_within(best + 2..n, best + 1)?;
            joint.checked_copy_within(best + 1..n - 1, best)?;
            n -= 1;
            let counts = |i: usize| self.counts.checked(parts.checked_at(i)? as usize);
            if best > 0 {
                let cost = bits(counts(best - 1)?, Some(counts(best)?))?;
                joint.checked_put(best - 1, cost)?;
            }
            if best + 1 < n {
                let cost = bits(counts(best)?, Some(counts(best + 1)?))?;
                joint.checked_put(best, cost)?;
            }
        }
        number.put(0, n as u32);
        Ok(())
    }

    /// Where part `i` begins, in bytes from the start of the block, and its counts.
    pub(super) fn part(&self, i: usize) -> Checked<Option<(usize, &Counts)>> {
        let (number, parts) = self.lists.split_at(1);
        if i >= number.at(0) as usize {
            return Ok(None);
        }
        let first = parts.checked_at(i)? as usize;
        Ok(Some((first << CHUNK_LOG, self.counts.checked(first)?)))
    }
}

/// About how many 1/256 bits a block with these counts takes, or with the sum of two.
fn bits(a: &Counts, b: Option<&Counts>) -> Checked<u32> {
    let count = |cell: usize| {
        let of_b = b.map_or(Ok(0), |b| b.checked_at(cell))?;
        Ok(a.checked_at(cell)? + of_b)
    };
    // Block header, literals' header and jump table, sequences' header.
    let mut sum = (3 + 9 + 3) * 8 * u64::from(BIT);
    for (i, alphabet) in ALPHABETS.into_iter().enumerate() {
        let (mut total, mut symbols, mut saved) = (0_u32, 0_u32, 0_u64);
        for cell in alphabet {
            let n = count(cell)?;
            if n > 0 {
                total += n;
                symbols += 1;
                saved += u64::from(n) * u64::from(log2(n));
            }
        }
        if total == 0 {
            continue;
        }
        let coded = u64::from(total) * u64::from(log2(total)) - saved;
        sum += if i == 0 {
            // A weight takes 2.5 bits.
            (coded + u64::from((8 + symbols * 5 / 2) * BIT)).min(u64::from(total * 8 * BIT))
        } else {
            coded + u64::from((8 + symbols * 9 / 2) * BIT)
        };
    }
    Ok(sum.min(u64::from(u32::MAX)) as u32)
}
