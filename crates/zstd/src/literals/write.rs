//! The section in the form that takes least.

use crate::bits::log2;
use crate::huffman::{HuffmanEncoder, HuffmanScratch};
use crate::sequences::sequences_least_bytes;
use crate::workspace::{Cells, Scratch};

const RAW: u32 = 0;
const RLE: u32 = 1;
const COMPRESSED: u32 = 2;
const TREELESS: u32 = 3;

/// The least number of literals for four streams: the header of a single stream cannot state more
/// than that less one. The other streams cost some 8 bytes, 1 % of a small block.
const FOUR_STREAMS_FROM: usize = 1024;
/// Fewer literals than this are not worth a table of their own.
const TABLE_FROM: usize = 48;

/// The section, and whether `next` holds the current table from now on.
pub(crate) struct LiteralsWritten {
    pub(crate) bytes: usize,
    pub(crate) new_table: bool,
}

/// Counts bytes. Four tables in turn keep equal neighbours from waiting for each other.
pub(crate) fn count_bytes(counts: &mut Scratch, bytes: &[u8]) {
    let [a, b, c, d] = counts.as_chunks_mut::<256>().0 else {
        return;
    };
    for table in [&mut *a, &mut *b, &mut *c, &mut *d] {
        table.fill([0; 4]);
    }
    let (eights, rest) = bytes.as_chunks::<8>();
    let add = |table: &mut [[u8; 4]; 256], value: u64| {
        let cell = &mut table[(value & 0xff) as usize];
        *cell = (u32::from_ne_bytes(*cell) + 1).to_ne_bytes();
    };
    for eight in eights {
        let word = u64::from_le_bytes(*eight);
        add(a, word);
        add(b, word >> 8);
        add(c, word >> 16);
        add(d, word >> 24);
        add(a, word >> 32);
        add(b, word >> 40);
        add(c, word >> 48);
        add(d, word >> 56);
    }
    for &byte in rest {
        add(a, byte.into());
    }
    for i in 0..256 {
        let sum = a.at(i) + b.at(i) + c.at(i) + d.at(i);
        a.put(i, sum);
    }
}

/// Whether `n` literals are hardly worth a code, as none occurs more than `most` times.
pub(crate) fn is_uniform(most: u32, n: usize) -> bool {
    most as usize <= (n >> 7) + 4
}

/// The literals to write, and how.
pub(crate) struct LiteralsSection<'a> {
    pub(crate) literals: &'a [u8],
    /// How often each byte occurs among them, unless they are stored.
    pub(crate) counts: &'a [[u8; 4]; 256],
    /// The literals are not to be compressed.
    pub(crate) store: bool,
    /// The packed sequences that will follow.
    pub(crate) sequences: &'a [[u8; 8]],
    /// Bytes available for both sections.
    pub(crate) room: usize,
}

impl LiteralsSection<'_> {
    /// Bytes sufficient for most sequences.
    const USUAL: usize = 3;

    /// Whether literals of `n` bytes will do without a closer look.
    fn is_ample(&self, n: usize) -> bool {
        n + Self::USUAL * self.sequences.len() <= self.room
    }

    /// Whether all may fit. If not, nothing needs to be coded to know that.
    #[cold]
    #[inline(never)]
    fn may_fit(&self, compressed: bool) -> bool {
        let mut least = self.literals.len();
        if compressed {
            least = least_bytes(self.counts, least);
        }
        let ample = self.is_ample(least);
        ample || least <= self.room && least + sequences_least_bytes(self.sequences) <= self.room
    }
}

/// Bytes that `n` literals with these counts take at least, whichever Huffman code they have: no
/// code beats entropy.
fn least_bytes(counts: &[[u8; 4]; 256], n: usize) -> usize {
    // The logarithms may be wrong by so much together.
    let all = log2(n as u32).saturating_sub(2 + 4);
    let bits = |count: u32| u64::from(count) * u64::from(all.saturating_sub(log2(count)));
    let counts = (0..256).map(|symbol| counts.at(symbol));
    let sum: u64 = counts.filter(|count| *count != 0).map(bits).sum();
    (sum / 256 / 8) as usize
}

/// Writes the section that costs least. `None` if it does not fit, or cannot fit together with the
/// sequences after it.
///
/// `previous` is the current table, `next` room for another.
#[inline(never)]
pub(crate) fn write_literals(
    out: &mut [u8],
    task: &LiteralsSection<'_>,
    previous: &HuffmanEncoder<'_>,
    next: &mut HuffmanEncoder<'_>,
    scratch: &mut HuffmanScratch<'_>,
) -> Option<LiteralsWritten> {
    let (literals, counts) = (task.literals, task.counts);
    let n = literals.len();
    let stored = |out: &mut [u8]| {
        let head = write_plain_header(out, RAW, n)?;
        out.get_mut(head..head + n)?.copy_from_slice(literals);
        Some(LiteralsWritten {
            bytes: head + n,
            new_table: false,
        })
    };
    let least = if previous.is_valid() { 6 } else { TABLE_FROM };
    if task.store || n < least {
        return stored(out);
    }
    let (mut most, mut used) = (0, 0);
    for symbol in 0..256 {
        let count = counts.at(symbol);
        most = most.max(count);
        used += u32::from(count != 0);
    }
    if most as usize == n {
        let head = write_plain_header(out, RLE, n)?;
        *out.get_mut(head)? = literals[0];
        return Some(LiteralsWritten {
            bytes: head + 1,
            new_table: false,
        });
    }
    let uniform = is_uniform(most, n);
    if !task.is_ample(n) && !task.may_fit(!uniform) {
        return None;
    }
    if uniform {
        return stored(out);
    }

    // The size of the streams, with the old table and with a new one.
    let single = n < FOUR_STREAMS_FROM;
    let head = 3 + usize::from(n >= 1 << 10) + usize::from(n >= 1 << 14);
    let jumps = if single { 1 } else { 6 + 4 };
    let whole = |bits: u64| (bits / 8) as usize + jumps;
    let old = previous
        .is_valid()
        .then(|| previous.cost(counts))
        .flatten()
        .map(whole);
    let limit = n - ((n >> 6) + 2).min(n);
    let mut new = None;
    if n >= TABLE_FROM {
        // One bit more than tells all symbols apart, or all codes would be as long.
        let log = (n as u32 - 1)
            .ilog2()
            .saturating_sub(1)
            .max((used - 1).ilog2() + 2)
            .clamp(5, 11);
        next.build(counts, log, scratch);
        if let Some(description) = next.write_description(out.get_mut(head..)?, scratch) {
            new = next
                .cost(counts)
                .map(|bits| (description, description + whole(bits)));
        }
    }
    let (kind, table, description) = match (old, new) {
        (Some(old), Some((_, new))) if old <= new && old < limit => (TREELESS, previous, 0),
        (_, Some((description, new))) if new < limit => (COMPRESSED, &*next, description),
        (Some(old), _) if old < limit => (TREELESS, previous, 0),
        _ => return stored(out),
    };
    let start = head + description;
    let room = out.get_mut(start..)?;
    let bytes = if single {
        table.write_stream(room, literals)
    } else {
        write_four(room, literals, table)
    };
    let size = match bytes {
        Some(bytes) if description + bytes < limit => description + bytes,
        _ => return stored(out),
    };
    let format = match head {
        3 => u32::from(!single),
        4 => 2,
        _ => 3,
    };
    let bits = [10, 10, 14, 18][format as usize];
    let header = u64::from(kind | format << 2) | (n as u64) << 4 | (size as u64) << (4 + bits);
    out.get_mut(..head)?
        .copy_from_slice(&header.to_le_bytes()[..head]);
    Some(LiteralsWritten {
        bytes: head + size,
        new_table: kind == COMPRESSED,
    })
}

fn write_four(out: &mut [u8], literals: &[u8], table: &HuffmanEncoder<'_>) -> Option<usize> {
    let part = literals.len().div_ceil(4);
    let (jumps, mut rest) = out.split_first_chunk_mut::<6>()?;
    let mut total = 6;
    for (i, stream) in literals.chunks(part).enumerate() {
        let bytes = table.write_stream(rest, stream)?;
        if let Some(jump) = jumps.as_chunks_mut::<2>().0.get_mut(i) {
            *jump = u16::try_from(bytes).ok()?.to_le_bytes();
        }
        total += bytes;
        rest = &mut rest[bytes..];
    }
    Some(total)
}

fn write_plain_header(out: &mut [u8], kind: u32, n: usize) -> Option<usize> {
    let n = n as u32;
    let (header, bytes) = match n {
        0..32 => (kind | n << 3, 1),
        32..4096 => (kind | 1 << 2 | n << 4, 2),
        _ => (kind | 3 << 2 | n << 4, 3),
    };
    out.get_mut(..bytes)?
        .copy_from_slice(&header.to_le_bytes()[..bytes]);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Carver;
    use std::vec;
    use std::vec::Vec;

    /// The bound is below the size of any section of these literals, and not far below.
    #[test]
    fn no_code_takes_fewer_bytes_than_the_least() {
        let bytes = 2 * HuffmanEncoder::BYTES + HuffmanScratch::BYTES;
        let mut memory = vec![0; Carver::SLACK + bytes];
        let mut carver = Carver::new(&mut memory, bytes).unwrap();
        let mut longest = [0; 2];
        let [first, second] = &mut longest;
        let mut next = HuffmanEncoder::carve(&mut carver, first);
        let mut previous = HuffmanEncoder::carve(&mut carver, second);
        previous.invalidate();
        let mut scratch = HuffmanScratch::carve(&mut carver);
        let mut counts = [[0; 4]; 1152];
        let mut seed = 5_u32;
        let mut random = || {
            seed = seed.wrapping_mul(0x19660d).wrapping_add(0x3c6ef35f);
            seed >> 16
        };
        for n in [60, 500, 3000, 1 << 17] {
            for (alphabet, common) in [(2, 2), (7, 3), (40, 2), (200, 3), (256, 9), (256, 1000)] {
                let literals: Vec<u8> = (0..n)
                    .map(|_| match random() % common {
                        0 => 7,
                        _ => (random() % alphabet) as u8,
                    })
                    .collect();
                count_bytes(&mut counts, &literals);
                let task = LiteralsSection {
                    literals: &literals,
                    counts: counts.first_chunk().unwrap(),
                    store: false,
                    sequences: &[],
                    room: n + 10,
                };
                let least = least_bytes(task.counts, n);
                let mut out = vec![0; n + 10];
                let written = write_literals(&mut out, &task, &previous, &mut next, &mut scratch)
                    .unwrap()
                    .bytes;
                assert!(least < written, "{n} of {alphabet}: {least}, {written}");
                let far = n < 1 << 17 || common == 2 && alphabet == 2;
                assert!(far || 25 * written < 26 * least, "{least}, {written}");
            }
        }
    }
}
