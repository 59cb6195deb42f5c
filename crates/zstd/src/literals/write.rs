//! The section in the form that takes least.

use crate::bits::times_log;
use crate::checked::CheckedSlice;
#[cfg(feature = "steps")]
use crate::huffman::{CODE_BITS_MAX, WeightScratch, read_weights};
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

/// Fewer bytes than this are counted in two tables: more take longer to clear and to sum up.
const MANY: usize = 4096 + 1;

/// Counts bytes. Tables in turn keep equal neighbours from waiting for each other.
pub(crate) fn count_bytes(counts: &mut [[u8; 4]; 256], bytes: &[u8], scratch: &mut Scratch) {
    if bytes.len() < MANY {
        count_in_turn::<2, 1>(counts, bytes, scratch);
    } else {
        count_in_turn::<4, 3>(counts, bytes, scratch);
    }
}

/// Counts bytes in `TABLES` tables, one of which is the result.
fn count_in_turn<const TABLES: usize, const OTHERS: usize>(
    counts: &mut [[u8; 4]; 256],
    bytes: &[u8],
    scratch: &mut Scratch,
) {
    let others = scratch.as_chunks_mut::<256>().0;
    let Some(others) = others.first_chunk_mut::<OTHERS>() else {
        return;
    };
    counts.fill([0; 4]);
    for other in &mut *others {
        other.fill([0; 4]);
    }
    let add = |table: &mut [[u8; 4]; 256], byte: u8| {
        let count = table.at(byte.into()) + 1;
        table.put(byte.into(), count);
    };
    let (eights, rest) = bytes.as_chunks::<8>();
    for eight in eights {
        for (i, byte) in eight.iter().enumerate() {
            match i % TABLES {
                0 => add(counts, *byte),
                other => add(&mut others[other - 1], *byte),
            }
        }
    }
    for &byte in rest {
        add(counts, byte);
    }
    for cell in 0..256 {
        let sum = others.iter().map(|other| other.at(cell)).sum::<u32>() + counts.at(cell);
        counts.put(cell, sum);
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
/// code beats entropy. `n` is at most 2^18.
fn least_bytes(counts: &[[u8; 4]; 256], n: usize) -> usize {
    let parts: u64 = (0..256)
        .map(|symbol| u64::from(times_log(counts.at(symbol))))
        .sum();
    // The logarithms may be wrong by so much together.
    let wrong = n as u64 * (2 + 4);
    (u64::from(times_log(n as u32)).saturating_sub(parts + wrong) / 256 / 8) as usize
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
        let place = out.get_mut(head..head + n)?;
        place.checked_copy(literals).ok()?;
        Some(LiteralsWritten {
            bytes: head + n,
            new_table: false,
        })
    };
    let least = if previous.is_valid() { 6 } else { TABLE_FROM };
    if task.store || n < least {
        return stored(out);
    }
    let used = scratch.list(counts);
    if used.number == 1 {
        let head = write_plain_header(out, RLE, n)?;
        *out.get_mut(head)? = *literals.first()?;
        return Some(LiteralsWritten {
            bytes: head + 1,
            new_table: false,
        });
    }
    let uniform = is_uniform(used.most, n);
    // Bits that tell all symbols apart. Noise that was not counted has no symbols.
    let width = usize::BITS - used.number.saturating_sub(1).leading_zeros();
    let ample = task.is_ample(n * width as usize / 8);
    if !(ample && !uniform || task.is_ample(n) || task.may_fit(!uniform)) {
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
        let log = (n - 1)
            .ilog2()
            .saturating_sub(1)
            .max(width + 1)
            .clamp(5, 11);
        let bits = next.build(used, log, scratch).ok()?;
        let out = out.get_mut(head..)?;
        new = HuffmanEncoder::write_description(out, used.last, scratch)
            .map(|description| (description, description + whole(bits)));
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
    write_coded_header(out, kind, format, n, size)?;
    Some(LiteralsWritten {
        bytes: head + size,
        new_table: kind == COMPRESSED,
    })
}

fn write_four(out: &mut [u8], literals: &[u8], table: &HuffmanEncoder<'_>) -> Option<usize> {
    let part = literals.len().div_ceil(4);
    let (jumps, mut rest) = out.split_first_chunk_mut::<6>()?;
    let mut total = 6;
    for (i, stream) in literals.chunks(part.max(1)).enumerate() {
        let bytes = table.write_stream(rest, stream)?;
        if let Some(jump) = jumps.as_chunks_mut::<2>().0.get_mut(i) {
            *jump = u16::try_from(bytes).ok()?.to_le_bytes();
        }
        total += bytes;
        rest = rest.get_mut(bytes..)?;
    }
    Some(total)
}

/// The bits of each number in the header of Huffman-coded literals, and its bytes, by size format.
const CODED_HEADERS: [(u32, usize); 4] = [(10, 3), (10, 3), (14, 4), (18, 5)];

/// Writes the header of Huffman-coded literals of `size` bytes. The number of its bytes, or `None`
/// if a number does not fit in it.
fn write_coded_header(
    out: &mut [u8],
    kind: u32,
    format: u32,
    n: usize,
    size: usize,
) -> Option<usize> {
    let (bits, bytes) = CODED_HEADERS[format as usize & 3];
    let header = u64::from(kind | format << 2) | (n as u64) << 4 | (size as u64) << (4 + bits);
    if n.max(size) >> bits != 0 {
        return None;
    }
    let header = header.to_le_bytes();
    out.get_mut(..bytes)?.copy_from_slice(header.get(..bytes)?);
    Some(bytes)
}

/// Writes the section in the form, and with the table, that are taken from the beginning of
/// `described`: a byte with the kind in the lowest two bits and the format above, then the
/// description of a new table. `None` if it does not fit, or the table is not valid or lacks a
/// symbol.
///
/// `counts` are those of the literals; the table stays as the section leaves it.
#[cfg(feature = "steps")]
pub(crate) fn write_described_literals(
    out: &mut [u8],
    literals: &[u8],
    counts: &[[u8; 4]; 256],
    described: &mut &[u8],
    table: &mut HuffmanEncoder<'_>,
    scratch: &mut WeightScratch<'_>,
) -> Option<usize> {
    let form = u32::from(*described.split_off_first()?);
    let (kind, format) = (form & 3, form >> 2 & 3);
    if kind == RAW || kind == RLE {
        let head = write_plain_header(out, kind, literals.len())?;
        let stored = if kind == RAW { literals.len() } else { 1 };
        let place = out.get_mut(head..head + stored)?;
        place.copy_from_slice(literals.get(..stored)?);
        return Some(head + stored);
    }
    let (_, head) = CODED_HEADERS[format as usize & 3];
    let mut size = 0;
    if kind == COMPRESSED {
        let found = read_weights(described, CODE_BITS_MAX, scratch).ok()?;
        table.set_weights(scratch.weights.get(..found.symbols)?, found.log);
        let description = described.split_off(..found.bytes)?;
        let place = out.get_mut(head..head + found.bytes)?;
        place.copy_from_slice(description);
        size = found.bytes;
    }
    if !table.is_valid() {
        return None;
    }
    table.cost(counts)?;
    let room = out.get_mut(head + size..)?;
    size += match format {
        0 => table.write_stream(room, literals)?,
        _ => write_four(room, literals, table)?,
    };
    write_coded_header(out, kind, format, literals.len(), size)?;
    Some(head + size)
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
        let mut next = HuffmanEncoder::carve(&mut carver, first).unwrap();
        let mut previous = HuffmanEncoder::carve(&mut carver, second).unwrap();
        previous.invalidate();
        let mut scratch = HuffmanScratch::carve(&mut carver).unwrap();
        let (mut counts, mut tables) = ([[0; 4]; 256], [[0; 4]; 1152]);
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
                count_bytes(&mut counts, &literals, &mut tables);
                let task = LiteralsSection {
                    literals: &literals,
                    counts: &counts,
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
