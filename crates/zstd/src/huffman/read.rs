//! Reading a table and decoding the streams of a literals section.

#[cfg(feature = "decompress")]
use super::DICTIONARY_CODE_BITS_MAX;
use super::table::{Cell, HuffmanTable, PairCell, TABLE_CELLS};
use super::{CODE_BITS_MAX, SYMBOLS_MAX};
use crate::Error;
#[cfg(all(
    feature = "arch",
    feature = "decompress",
    any(test, target_pointer_width = "64")
))]
use crate::arch;
use crate::bits::ReverseBitReader;
use crate::fse;
#[cfg(feature = "decompress")]
use crate::workspace::DictionaryCells;

/// Memory for [`read_table`].
pub(crate) struct WeightScratch<'w> {
    pub(crate) weights: &'w mut [u8; SYMBOLS_MAX],
    pub(crate) cells: &'w mut [fse::Cell; fse::WEIGHT_CELLS],
}

/// Reads a table description (RFC 8878, section 4.2.1) and builds the decoding table.
///
/// Gives the longest code's bits and the bytes of the description. [`Error::Corruption`] if it is
/// not valid.
pub(crate) fn read_table(
    src: &[u8],
    scratch: &mut WeightScratch<'_>,
    cells: &mut [Cell; TABLE_CELLS],
) -> Result<(u32, usize), Error> {
    let found = read_weights(src, CODE_BITS_MAX, scratch)?;
    fill_cells(&found, scratch, cells);
    Ok((found.log, found.bytes))
}

/// The same of a dictionary, which may have longer codes.
#[cfg(feature = "decompress")]
pub(crate) fn read_dictionary_table(
    src: &[u8],
    scratch: &mut WeightScratch<'_>,
    cells: DictionaryCells<'_>,
) -> Result<(u32, usize), Error> {
    let found = read_weights(src, DICTIONARY_CODE_BITS_MAX, scratch)?;
    fill_cells(&found, scratch, cells.of(found.log));
    Ok((found.log, found.bytes))
}

/// The memory of the table of pairs, as a table of the long codes that only a dictionary has: those
/// come without pairs.
pub(crate) fn long_cells(pairs: &mut [PairCell; TABLE_CELLS]) -> &mut [Cell] {
    pairs.as_flattened_mut().as_chunks_mut().0
}

/// The properties of a table description besides the weights.
pub(crate) struct Weights {
    /// The longest code's bits.
    pub(crate) log: u32,
    /// Symbols that have a weight, 0 or not.
    pub(crate) symbols: usize,
    /// Bytes of the description.
    pub(crate) bytes: usize,
    /// How many symbols have each weight.
    numbers: [u16; 16],
}

/// Reads a table description into weights.
///
/// The longest code has `log_max` bits at most. [`Error::Corruption`] if the description is not
/// valid.
pub(crate) fn read_weights(
    src: &[u8],
    log_max: u32,
    scratch: &mut WeightScratch<'_>,
) -> Result<Weights, Error> {
    let (&header, rest) = src.split_first().ok_or(Error::Corruption)?;
    let weights = &mut *scratch.weights;
    let given;
    let bytes;
    if header >= 128 {
        given = usize::from(header) - 127;
        bytes = given.div_ceil(2);
        let packed = rest.get(..bytes).ok_or(Error::Corruption)?;
        for (pair, byte) in weights.as_chunks_mut().0.iter_mut().zip(packed) {
            *pair = [byte >> 4, byte & 15];
        }
    } else {
        bytes = usize::from(header);
        let packed = rest.get(..bytes).ok_or(Error::Corruption)?;
        // The last symbol's weight is not described, hence one fewer.
        given = fse::decode_weights(packed, scratch.cells, &mut weights[..SYMBOLS_MAX - 1])?;
    }
    let (log, numbers) = complete_weights(weights, given, log_max)?;
    Ok(Weights {
        log,
        symbols: given + 1,
        bytes: 1 + bytes,
        numbers,
    })
}

/// Adds the weight of the last symbol, which makes the sum a power of two. Gives the longest code's
/// bits, and how many symbols have each weight.
fn complete_weights(
    weights: &mut [u8; SYMBOLS_MAX],
    given: usize,
    log_max: u32,
) -> Result<(u32, [u16; 16]), Error> {
    let (described, last) = weights
        .split_at_mut_checked(given)
        .ok_or(Error::Corruption)?;
    // Two tables in turn, so that equal neighbours do not wait for each other.
    let (mut numbers, mut others) = ([0_u16; 16], [0_u16; 16]);
    let (pairs, single) = described.as_chunks::<2>();
    for [a, b] in pairs {
        numbers[usize::from(a & 15)] += 1;
        others[usize::from(b & 15)] += 1;
    }
    for weight in single {
        numbers[usize::from(weight & 15)] += 1;
    }
    let mut sum = 0u32;
    for ((weight, number), other) in (0_u32..).zip(&mut numbers).zip(others) {
        *number += other;
        if *number > 0 && weight > log_max {
            return Err(Error::Corruption);
        }
        sum += u32::from(*number) * ((1 << weight) >> 1);
    }
    if sum == 0 {
        return Err(Error::Corruption);
    }
    // The lowest bit changes nothing, and shows the compiler that there is one.
    let log = (sum | 1).ilog2() + 1;
    if log > log_max {
        return Err(Error::Corruption);
    }
    let rest = (1 << log) - sum;
    if !rest.is_power_of_two() {
        return Err(Error::Corruption);
    }
    let weight = rest.trailing_zeros() as u8 + 1;
    *last.first_mut().ok_or(Error::Corruption)? = weight;
    numbers[usize::from(weight & 15)] += 1;
    if numbers[1] < 2 || numbers[1] % 2 == 1 {
        return Err(Error::Corruption);
    }
    Ok((log, numbers))
}

/// Gives each symbol its cells: those of small weight first, and by symbol among equals.
fn fill_cells(found: &Weights, scratch: &mut WeightScratch<'_>, cells: &mut [Cell]) {
    let weights = scratch.weights.get(..found.symbols).unwrap_or_default();
    let sorted = scratch.cells.as_flattened_mut();
    // Sorted first, so that symbols with as many cells are neighbours: then no branch depends on
    // the next symbol.
    let mut ends = found.numbers;
    let mut at = 0;
    for end in &mut ends {
        let symbols = *end;
        *end = at;
        at += symbols;
    }
    for (symbol, &weight) in weights.iter().enumerate() {
        let end = &mut ends[usize::from(weight & 15)];
        if let Some(place) = sorted.get_mut(usize::from(*end)) {
            *place = symbol as u8;
        }
        *end += 1;
    }
    let mut rest = cells;
    for weight in 1..=found.log as usize {
        let symbols = usize::from(ends[(weight - 1) & 15])..usize::from(ends[weight & 15]);
        let symbols = sorted.get(symbols).unwrap_or_default();
        let count = 1 << (weight - 1);
        let Some((part, behind)) = rest.split_at_mut_checked(symbols.len() * count) else {
            return;
        };
        rest = behind;
        let bits = (found.log as usize + 1 - weight) as u8;
        match count {
            1 => fill_each::<1>(part, symbols, bits),
            2 => fill_each::<2>(part, symbols, bits),
            4 => fill_each::<4>(part, symbols, bits),
            8 => fill_each::<8>(part, symbols, bits),
            _ => {
                for (cells, &symbol) in part.chunks_exact_mut(count).zip(symbols) {
                    cells.fill([bits, symbol]);
                }
            }
        }
    }
}

/// Gives each symbol its cells, of which there are few.
fn fill_each<const COUNT: usize>(part: &mut [Cell], symbols: &[u8], bits: u8) {
    for (cells, &symbol) in part.as_chunks_mut::<COUNT>().0.iter_mut().zip(symbols) {
        *cells = [[bits, symbol]; COUNT];
    }
}

/// Whether four streams of `stored` bytes, which give `content` literals, are decoded sooner when a
/// table of pairs is made for them first: there are enough literals to make up for that, and their
/// codes are short enough to come in pairs.
pub(crate) fn pairs_are_worth_it(stored: usize, content: usize) -> bool {
    // Half of the pairs or so fit in 11 bits when codes have 5.5 bits in the mean.
    content >= PAIRS_CONTENT_MIN && 16 * stored <= 11 * content
}

/// See [`pairs_are_worth_it`]: making the table takes as long as pairs save on about half of this.
/// Fewer in builds with assertions, so that small frames in tests have their codes in pairs, too.
const PAIRS_CONTENT_MIN: usize = if cfg!(debug_assertions) { 64 } else { 8 * 1024 };

/// Makes the table of pairs from the table of single codes.
pub(crate) fn fill_pairs(
    cells: &[Cell; TABLE_CELLS],
    log: u32,
    pairs: &mut [PairCell; TABLE_CELLS],
) {
    let spare = CODE_BITS_MAX - log;
    let cell = |bits: usize| {
        let cell = cells[(bits & (TABLE_CELLS - 1)) >> spare];
        u32::from(u16::from_le_bytes(cell))
    };
    for (bits, pair) in pairs.iter_mut().enumerate() {
        let first = cell(bits);
        let second = cell(bits << (first & 15));
        let (first_len, second_len) = (first & 0xff, second & 0xff);
        let both = u32::from(first_len + second_len <= CODE_BITS_MAX);
        let meaning = first_len + both * (second_len + 256) + 256;
        *pair = (meaning | first >> 8 << 16 | second >> 8 << 24).to_le_bytes();
    }
}

/// Decodes one stream; `dst` is filled exactly and the stream is used up exactly, else
/// [`Error::Corruption`].
pub(crate) fn decode_one(table: HuffmanTable<'_>, src: &[u8], dst: &mut [u8]) -> Result<(), Error> {
    let mut bits = ReverseBitReader::new(src).ok_or(Error::Corruption)?;
    if table.log > CODE_BITS_MAX {
        return finish_long(table, &mut bits, dst);
    }
    finish_stream(table, &mut bits, dst)
}

/// [`finish_stream`] with a dictionary's long codes.
#[cold]
#[inline(never)]
fn finish_long(
    table: HuffmanTable<'_>,
    bits: &mut ReverseBitReader<'_>,
    dst: &mut [u8],
) -> Result<(), Error> {
    decode_long(table, bits, dst);
    bits.is_finished().then_some(()).ok_or(Error::Corruption)
}

/// Decodes symbols with a dictionary's long codes.
fn decode_long(table: HuffmanTable<'_>, bits: &mut ReverseBitReader<'_>, dst: &mut [u8]) {
    let cells: &[Cell] = match table.pairs {
        Some(pairs) => pairs.as_flattened().as_chunks().0,
        None => &[],
    };
    for byte in dst {
        let cell = cells.get(bits.peek(table.log) as usize);
        let [len, symbol] = cell.copied().unwrap_or_default();
        *byte = symbol;
        bits.skip(u32::from(len));
        bits.refill();
    }
}

/// Decodes the rest of a stream.
#[inline(never)]
fn finish_stream(
    table: HuffmanTable<'_>,
    bits: &mut ReverseBitReader<'_>,
    dst: &mut [u8],
) -> Result<(), Error> {
    let mut chunks = dst.chunks_exact_mut(TURN);
    for chunk in &mut chunks {
        bits.refill();
        for byte in chunk {
            *byte = decode_symbol(table, bits);
        }
    }
    bits.refill();
    for byte in chunks.into_remainder() {
        *byte = decode_symbol(table, bits);
    }
    bits.refill();
    bits.is_finished().then_some(()).ok_or(Error::Corruption)
}

#[inline(always)]
fn decode_symbol(table: HuffmanTable<'_>, bits: &mut ReverseBitReader<'_>) -> u8 {
    let [len, symbol] = table.cells[bits.peek(table.log) as usize & (TABLE_CELLS - 1)];
    bits.skip(u32::from(len));
    symbol
}

/// Readers for the streams of a section of four; gives how much each stream gives (the last one
/// gives the rest).
fn begin_four<'s>(
    src: &'s [u8],
    content: usize,
    readers: &mut [ReverseBitReader<'s>; 4],
) -> Result<usize, Error> {
    let each = content.div_ceil(4);
    // The jump table, and at least one byte for each stream.
    if src.len() < 10 || content < 6 || 3 * each > content {
        return Err(Error::Corruption);
    }
    let (jumps, mut rest) = src.split_at(6);
    for (turn, reader) in readers.iter_mut().enumerate() {
        let stream;
        let len = match jumps.get(2 * turn..2 * turn + 2) {
            Some(jump) => usize::from(u16::from_le_bytes([jump[0], jump[1]])),
            None => rest.len(),
        };
        (stream, rest) = rest.split_at_checked(len).ok_or(Error::Corruption)?;
        *reader = ReverseBitReader::new(stream).ok_or(Error::Corruption)?;
    }
    Ok(each)
}

/// Decodes four streams after a jump table (RFC 8878, section 3.1.1.3.1.6). `dst` is filled exactly
/// and each stream is used up exactly, else [`Error::Corruption`].
///
/// `src` lies in `within`: bytes before it may be read, which speeds up the last codes of the first
/// stream.
#[inline(never)]
pub(crate) fn decode_four(
    table: HuffmanTable<'_>,
    within: &[u8],
    src: &[u8],
    dst: &mut [u8],
) -> Result<(), Error> {
    let mut readers = [const { ReverseBitReader::empty() }; 4];
    let each = begin_four(src, dst.len(), &mut readers)?;
    let is_long = table.log > CODE_BITS_MAX;
    let done = if is_long {
        [0; 4]
    } else {
        run_four(table, within, &mut readers, dst, each)
    };
    let mut rest = dst;
    for ((turn, reader), done) in readers.iter_mut().enumerate().zip(done) {
        let len = if turn < 3 { each } else { rest.len() };
        let (part, others) = rest.split_at_mut_checked(len).ok_or(Error::Corruption)?;
        if is_long {
            finish_long(table, reader, part)?;
        } else {
            finish_stream(table, reader, part.get_mut(done..).unwrap_or_default())?;
        }
        rest = others;
    }
    Ok(())
}

/// The parts that four streams decode to: `3 * each` is not more than `dst` has.
fn split_parts(dst: &mut [u8], each: usize) -> [&mut [u8]; 4] {
    let (a, rest) = dst.split_at_mut(each);
    let (b, rest) = rest.split_at_mut(each);
    let (c, d) = rest.split_at_mut(each);
    [a, b, c, d]
}

/// Decodes the start of each stream's part of `dst`; gives how many bytes of each.
fn run_four(
    table: HuffmanTable<'_>,
    src: &[u8],
    readers: &mut [ReverseBitReader<'_>; 4],
    dst: &mut [u8],
    each: usize,
) -> [usize; 4] {
    #[cfg(all(test, feature = "decompress", feature = "arch"))]
    if arch::twin() == arch::Twin::Safe {
        return [run_four_portable(table, readers, dst, each); 4];
    }
    #[cfg(all(feature = "arch", feature = "decompress", target_pointer_width = "64"))]
    return arch::huffman::run_four(table, src, readers, dst, each);
    #[allow(unreachable_code, reason = "unless there is no kernel")]
    {
        let _ = (src, table.pairs);
        [run_four_portable(table, readers, dst, each); 4]
    }
}

/// The safe twin of `arch::huffman::run_four`.
#[allow(dead_code, reason = "where there is a kernel, only tests use it")]
#[inline(never)]
fn run_four_portable(
    table: HuffmanTable<'_>,
    readers: &mut [ReverseBitReader<'_>; 4],
    dst: &mut [u8],
    each: usize,
) -> usize {
    let [a, b, c, d] = readers;
    let parts = split_parts(dst, each).map(|part| part.as_chunks_mut::<TURN>().0);
    let [pa, pb, pc, pd] = parts;
    let mut done = 0;
    for (((ca, cb), cc), cd) in pa.iter_mut().zip(pb).zip(pc).zip(pd) {
        a.refill();
        b.refill();
        c.refill();
        d.refill();
        for symbol in 0..TURN {
            ca[symbol] = decode_symbol(table, a);
            cb[symbol] = decode_symbol(table, b);
            cc[symbol] = decode_symbol(table, c);
            cd[symbol] = decode_symbol(table, d);
        }
        done += TURN;
    }
    done
}

/// Codes between two refills: 55 bits at most.
const TURN: usize = 5;

/// Decodes the first bytes of one or four streams, which give `content` bytes in all. The rest of
/// the streams is not checked.
pub(crate) fn decode_first(
    table: HuffmanTable<'_>,
    src: &[u8],
    four_streams: bool,
    content: usize,
    dst: &mut [u8],
) -> Result<(), Error> {
    let mut readers = [const { ReverseBitReader::empty() }; 4];
    let each = if four_streams {
        begin_four(src, content, &mut readers)?
    } else {
        readers[0] = ReverseBitReader::new(src).ok_or(Error::Corruption)?;
        content.max(1)
    };
    for (bits, part) in readers.iter_mut().zip(dst.chunks_mut(each.max(1))) {
        if table.log > CODE_BITS_MAX {
            decode_long(table, bits, part);
        } else {
            for byte in part {
                *byte = decode_symbol(table, bits);
                bits.refill();
            }
        }
        if bits.is_overrun() {
            return Err(Error::Corruption);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three or four literals would give each stream its part, but the format asks for six.
    #[test]
    fn four_streams_have_six_literals_and_a_byte_each() {
        let begin = |src: &[u8], content| {
            begin_four(src, content, &mut [const { ReverseBitReader::empty() }; 4])
        };
        let src = [1, 0, 1, 0, 1, 0, 1, 1, 1, 1];
        for content in 0..6 {
            assert_eq!(begin(&src, content), Err(Error::Corruption), "{content}");
        }
        for (content, each) in [(6, 2), (7, 2), (8, 2), (9, 3), (12, 3)] {
            assert_eq!(begin(&src, content), Ok(each), "{content}");
            assert_eq!(begin(&src[..9], content), Err(Error::Corruption));
        }
    }
}
