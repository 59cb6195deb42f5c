//! Where one set of entropy tables should end and the next begin.

use super::prices::{ALPHABETS, BIT, COUNTS, Counts, add, log2};
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
    pub(super) fn carve(carver: &mut Carver<'a>, wanted: bool) -> Self {
        let cells = usize::from(wanted) * CHUNKS * COUNTS;
        Chunks {
            counts: carver.cells::<4>(cells).as_chunks_mut().0,
            len: 0,
            lists: carver.array(),
        }
    }

    /// Forgets all counts.
    pub(super) fn start(&mut self) {
        self.len = 0;
    }

    /// The counts of a chunk. Those between it and the last one that was asked for are empty.
    #[inline(always)]
    pub(super) fn chunk(&mut self, chunk: usize) -> &mut Counts {
        let chunk = chunk.min(CHUNKS - 1);
        while self.len <= chunk {
            self.counts[self.len] = [[0; 4]; COUNTS];
            self.len += 1;
        }
        &mut self.counts[chunk]
    }

    /// Joins neighbouring chunks as long as that saves bits: the gain of one table less, against
    /// the loss of a table that fits both less well.
    ///
    /// Afterwards [`Chunks::part`] tells the counts of each part.
    #[inline(never)]
    pub(super) fn join(&mut self) {
        let (number, lists) = self.lists.split_at_mut(1);
        let [parts, costs, joint] = lists.as_chunks_mut::<CHUNKS>().0 else {
            return;
        };
        let mut n = self.len;
        number.put(0, n as u32);
        if n < 2 {
            parts.put(0, 0);
            return;
        }
        for i in 0..n {
            parts.put(i, i as u32);
            costs.put(i, bits(&self.counts[i], None));
        }
        for i in 1..n {
            joint.put(i - 1, bits(&self.counts[i - 1], Some(&self.counts[i])));
        }
        while n > 1 {
            let (mut best, mut gain) = (0, i64::MIN);
            for i in 0..n - 1 {
                let apart = i64::from(costs.at(i)) + i64::from(costs.at(i + 1));
                let saved = apart - i64::from(joint.at(i));
                if saved > gain {
                    (best, gain) = (i, saved);
                }
            }
            if gain < 0 {
                break;
            }
            let (to, from) = (parts.at(best) as usize, parts.at(best + 1) as usize);
            let (head, tail) = self.counts.split_at_mut(from);
            add(&mut head[to], &tail[0]);
            costs[best] = joint[best];
            parts.copy_within(best + 2..n, best + 1);
            costs.copy_within(best + 2..n, best + 1);
            joint.copy_within(best + 1..n - 1, best);
            n -= 1;
            let counts = |i: usize| &self.counts[parts.at(i) as usize];
            if best > 0 {
                joint.put(best - 1, bits(counts(best - 1), Some(counts(best))));
            }
            if best + 1 < n {
                joint.put(best, bits(counts(best), Some(counts(best + 1))));
            }
        }
        number.put(0, n as u32);
    }

    /// Where part `i` begins, in bytes from the start of the block, and its counts.
    pub(super) fn part(&self, i: usize) -> Option<(usize, &Counts)> {
        let (number, parts) = self.lists.split_at(1);
        if i >= number.at(0) as usize {
            return None;
        }
        let first = parts.at(i) as usize;
        Some((first << CHUNK_LOG, &self.counts[first]))
    }
}

/// About how many 1/256 bits a block with these counts takes, or with the sum of two.
fn bits(a: &Counts, b: Option<&Counts>) -> u32 {
    let count = |cell: usize| a.at(cell) + b.map_or(0, |b| b.at(cell));
    // Block header, literals' header and jump table, sequences' header.
    let mut sum = (3 + 9 + 3) * 8 * u64::from(BIT);
    for (i, alphabet) in ALPHABETS.into_iter().enumerate() {
        let (mut total, mut symbols, mut saved) = (0_u32, 0_u32, 0_u64);
        for cell in alphabet {
            let n = count(cell);
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
    sum.min(u64::from(u32::MAX)) as u32
}
