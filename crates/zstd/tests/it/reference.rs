//! A slow decoder after RFC 8878, one line after the other: the third opinion where ours and C's
//! differ.
//!
//! It shares only the table construction of the assembler, and tells the faults that libzstd
//! overlooks from all others.

use super::assemble::{Counts, Huffman, LITERAL_LENGTHS, MATCH_LENGTHS, OFFSETS};
use super::assemble::{LITERAL_LENGTH_BITS, MATCH_LENGTH_BITS};

/// Why there is no content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Every decoder refuses this.
    Broken,
    /// More content than there is room.
    NoRoom,
    // What follows, libzstd may accept: `docs/formats/zstd.md`.
    BlockTooLong,
    DistanceOverWindow,
    HuffmanTooDeep,
    /// One of four streams of literals has no end mark, is not used up to the last bit, or beyond
    /// it.
    LiteralsNotUsedUp,
    /// The description of a table goes beyond its block.
    TableCut,
}

use Fault::Broken;

type Result<T> = std::result::Result<T, Fault>;

/// All frames of `src`.
pub(crate) fn decode(src: &[u8], capacity: usize) -> Result<Vec<u8>> {
    let mut src = Source(src);
    let mut content = Vec::new();
    while !src.0.is_empty() {
        let magic = src.number(4)?;
        match magic {
            0xFD2F_B528 => {
                let frame = frame(&mut src, capacity - content.len())?;
                content.extend(frame);
            }
            0x184D_2A50..=0x184D_2A5F => {
                let len = src.number(4)?;
                src.take(len as usize)?;
            }
            _ => return Err(Broken),
        }
    }
    Ok(content)
}

struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Broken)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    fn number(&mut self, len: usize) -> Result<u64> {
        Ok(self
            .take(len)?
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

/// Bits from the end of their bytes to the start.
struct Backward<'a> {
    bytes: &'a [u8],
    /// Bits not read yet; below 0 once more was read than is there.
    left: i64,
}

impl<'a> Backward<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self> {
        let last = *bytes.last().ok_or(Broken)?;
        if last == 0 {
            return Err(Broken);
        }
        Ok(Self {
            bytes,
            left: bytes.len() as i64 * 8 - 1 - i64::from(last.leading_zeros()),
        })
    }

    /// Zeros stand before the first bit.
    fn read(&mut self, count: u32) -> u64 {
        let mut value = 0;
        for _ in 0..count {
            self.left -= 1;
            let bit = match usize::try_from(self.left) {
                Ok(at) => self.bytes[at / 8] >> (at % 8) & 1,
                Err(_) => 0,
            };
            value = value << 1 | u64::from(bit);
        }
        value
    }
}

/// What one block leaves to the next.
struct State {
    huffman: Option<Huffman>,
    tables: [Option<Table>; 3],
    repeats: [u64; 3],
}

#[derive(Clone)]
enum Table {
    One(u8),
    Fse(Counts),
}

fn frame(src: &mut Source, capacity: usize) -> Result<Vec<u8>> {
    let descriptor = src.byte()?;
    let (single, checksum) = (descriptor & 0x20 != 0, descriptor & 4 != 0);
    if descriptor & 8 != 0 {
        return Err(Broken);
    }
    let mut window = 0;
    if !single {
        let byte = u64::from(src.byte()?);
        if byte >> 3 > 21 {
            return Err(Broken); // neither C nor we take windows of 4 GiB and more
        }
        let base = 1 << (10 + (byte >> 3));
        window = base + base / 8 * (byte & 7);
    }
    if src.number([0, 1, 2, 4][usize::from(descriptor & 3)])? != 0 {
        return Err(Broken); // no dictionary here
    }
    let content_size = match descriptor >> 6 {
        0 if single => Some(src.number(1)?),
        0 => None,
        1 => Some(src.number(2)? + 256),
        2 => Some(src.number(4)?),
        _ => Some(src.number(8)?),
    };
    if single {
        window = content_size.ok_or(Broken)?;
    }
    let block_max = window.min(128 << 10) as usize;
    let mut state = State {
        huffman: None,
        tables: [None, None, None],
        repeats: [1, 4, 8],
    };
    let mut content = Vec::new();
    loop {
        let header = src.number(3)?;
        let size = (header >> 3) as usize;
        let start = content.len();
        match header >> 1 & 3 {
            0 => content.extend(src.take(size)?),
            1 => {
                let byte = src.byte()?;
                if size <= 1 << 17 {
                    content.extend(std::iter::repeat_n(byte, size));
                } else {
                    return Err(Fault::BlockTooLong);
                }
            }
            2 => {
                if size > block_max {
                    return Err(Broken);
                }
                block(src.take(size)?, &mut content, &mut state, window, block_max)?;
            }
            _ => return Err(Broken),
        }
        if content.len() - start > block_max {
            return Err(Fault::BlockTooLong);
        }
        if content.len() > capacity {
            return Err(Fault::NoRoom);
        }
        if header & 1 != 0 {
            break;
        }
    }
    if content_size.is_some_and(|size| size != content.len() as u64) {
        return Err(Broken);
    }
    if checksum && src.take(4)? != super::assemble::checksum(&content) {
        return Err(Broken);
    }
    Ok(content)
}

fn block(
    bytes: &[u8],
    content: &mut Vec<u8>,
    state: &mut State,
    window: u64,
    block_max: usize,
) -> Result<()> {
    let mut src = Source(bytes);
    let literals = literals(&mut src, state, block_max)?;
    let mut literals = Source(&literals);
    let first = u64::from(src.byte()?);
    let count = match first {
        0..128 => first,
        128..255 => ((first - 128) << 8) + src.number(1)?,
        _ => src.number(2)? + 0x7F00,
    };
    if count == 0 {
        if !src.0.is_empty() {
            return Err(Broken);
        }
        content.extend(literals.0);
        return Ok(());
    }
    let modes = src.byte()?;
    if modes & 3 != 0 {
        return Err(Broken);
    }
    for (index, predefined, most, codes) in [
        (0, LITERAL_LENGTHS, 9, 36),
        (1, OFFSETS, 8, 32),
        (2, MATCH_LENGTHS, 9, 53),
    ] {
        let table = match modes >> (6 - 2 * index) & 3 {
            0 => Table::Fse(Counts::new(predefined)),
            1 => Table::One(
                Some(src.byte()?)
                    .filter(|code| *code < codes)
                    .ok_or(Broken)?,
            ),
            2 => Table::Fse(fse_table(&mut src, most, usize::from(codes))?),
            _ => state.tables[index].clone().ok_or(Broken)?,
        };
        state.tables[index] = Some(table);
    }
    let mut bits = Backward::new(src.0)?;
    let [Some(lengths), Some(offsets), Some(matches)] = &state.tables else {
        return Err(Broken);
    };
    let [lengths, offsets, matches] = [lengths, offsets, matches].map(Decoding::new);
    let mut states = [&lengths, &offsets, &matches].map(|table| bits.read(table.accuracy) as usize);
    let start = content.len();
    for index in 0..count {
        let [length, offset, matched] = [(&lengths, 0), (&offsets, 1), (&matches, 2)]
            .map(|(table, kind)| table.cells[states[kind]].0);
        let value = (1 << offset) + bits.read(u32::from(offset));
        let match_length = match usize::from(matched) {
            code @ 0..32 => 3 + code as u64,
            code => {
                base(35, &MATCH_LENGTH_BITS, code - 32) + bits.read(MATCH_LENGTH_BITS[code - 32])
            }
        };
        let literal_length = match usize::from(length) {
            code @ 0..16 => code as u64,
            code => {
                base(16, &LITERAL_LENGTH_BITS, code - 16)
                    + bits.read(LITERAL_LENGTH_BITS[code - 16])
            }
        };
        if index + 1 < count {
            for (table, kind) in [(&lengths, 0), (&matches, 2), (&offsets, 1)] {
                let (_, width, base) = table.cells[states[kind]];
                states[kind] = base + bits.read(width) as usize;
            }
        }
        if bits.left < 0 {
            return Err(Broken);
        }
        content.extend(literals.take(literal_length as usize)?);
        let distance = distance(&mut state.repeats, value, literal_length)?;
        if distance > content.len() as u64 {
            return Err(Broken);
        }
        if distance > window {
            return Err(Fault::DistanceOverWindow);
        }
        for _ in 0..match_length {
            content.push(content[content.len() - distance as usize]);
        }
        if content.len() - start > block_max {
            return Err(Fault::BlockTooLong);
        }
    }
    content.extend(literals.0);
    if bits.left == 0 { Ok(()) } else { Err(Broken) }
}

/// The least value of a code.
fn base(first: u64, widths: &[u32], index: usize) -> u64 {
    first
        + widths[..index]
            .iter()
            .map(|width| 1u64 << width)
            .sum::<u64>()
}

fn distance(repeats: &mut [u64; 3], value: u64, literals: u64) -> Result<u64> {
    let [one, two, three] = *repeats;
    let distance = match (value, literals) {
        (1, 1..) => return Ok(one),
        (2, 1..) | (1, 0) => {
            *repeats = [two, one, three];
            return Ok(two);
        }
        (3, 1..) | (2, 0) => three,
        (3, 0) => one - 1,
        _ => value - 3,
    };
    *repeats = [distance, one, two];
    if distance == 0 {
        Err(Broken)
    } else {
        Ok(distance)
    }
}

/// Cells of symbol, bits and base.
struct Decoding {
    accuracy: u32,
    cells: Vec<(u8, u32, usize)>,
}

impl Decoding {
    fn new(table: &Table) -> Self {
        match table {
            Table::One(code) => Self {
                accuracy: 0,
                cells: vec![(*code, 0, 0)],
            },
            Table::Fse(counts) => Self {
                accuracy: counts.accuracy,
                cells: counts
                    .cells()
                    .iter()
                    .map(|cell| (cell.symbol, cell.bits, cell.base))
                    .collect(),
            },
        }
    }
}

/// A table description of at most this accuracy and this many symbols.
fn fse_table(src: &mut Source, most: u32, symbols: usize) -> Result<Counts> {
    let mut at = 0;
    let bytes = src.0;
    let mut read = |count: u32| {
        let mut value = 0;
        for bit in 0..count {
            let byte = bytes.get(at / 8).copied().unwrap_or(0);
            value |= u64::from(byte >> (at % 8) & 1) << bit;
            at += 1;
        }
        (value, at)
    };
    let accuracy = read(4).0 as u32 + 5;
    if accuracy > most {
        return Err(Broken);
    }
    let mut left = (1i64 << accuracy) + 1;
    let mut counts = Vec::new();
    let mut end = 4;
    while left > 1 {
        if end > bytes.len() * 8 {
            return Err(Fault::TableCut);
        }
        if counts.len() >= symbols {
            return Err(Broken);
        }
        let width = 64 - (left as u64).leading_zeros();
        let low_values = (1i64 << width) - 1 - left;
        let (low, _) = read(width - 1);
        let mut value = low as i64;
        if value >= low_values {
            let (top, _) = read(1);
            value |= (top as i64) << (width - 1);
            if value >= 1 << (width - 1) {
                value -= low_values;
            }
        }
        let count = value - 1;
        counts.push(count as i16);
        left -= count.abs();
        end = read(0).1;
        if count == 0 {
            loop {
                let (zeros, now) = read(2);
                end = now;
                counts.extend((0..zeros).map(|_| 0));
                if end > bytes.len() * 8 {
                    return Err(Fault::TableCut);
                }
                if counts.len() > symbols {
                    return Err(Broken);
                }
                if zeros < 3 {
                    break;
                }
            }
        }
    }
    if left < 1 {
        return Err(Broken);
    }
    src.take(end.div_ceil(8)).map_err(|_| Fault::TableCut)?;
    Ok(Counts { accuracy, counts })
}

fn literals(src: &mut Source, state: &mut State, block_max: usize) -> Result<Vec<u8>> {
    let first = *src.0.first().ok_or(Broken)?;
    let (kind, format) = (first & 3, first >> 2 & 3);
    let (header_len, shift, width) = match (kind, format) {
        (0 | 1, 0 | 2) => (1, 3, 5),
        (0 | 1, 1) => (2, 4, 12),
        (0 | 1, _) => (3, 4, 20),
        (_, 0 | 1) => (3, 4, 10),
        (_, 2) => (4, 4, 14),
        _ => (5, 4, 18),
    };
    let header = src.number(header_len)? >> shift;
    let len = (header & ((1 << width) - 1)) as usize;
    if len > block_max {
        return Err(Broken);
    }
    if kind == 0 {
        return Ok(src.take(len)?.to_vec());
    }
    if kind == 1 {
        return Ok(vec![src.byte()?; len]);
    }
    let mut section = Source(src.take((header >> width) as usize)?);
    if kind == 2 {
        state.huffman = Some(huffman_table(&mut section)?);
    }
    let huffman = state.huffman.as_ref().ok_or(Broken)?;
    if len == 0 {
        return Err(Broken);
    }
    let codes = huffman.codes();
    if format == 0 {
        return stream(section.0, &codes, len).map_err(|_| Broken);
    }
    if len < 6 {
        return Err(Broken);
    }
    let sizes = [section.number(2)?, section.number(2)?, section.number(2)?];
    let part = len.div_ceil(4);
    let mut all = Vec::new();
    let mut late = None;
    for size in sizes {
        match stream(section.take(size as usize)?, &codes, part) {
            Ok(part) => all.extend(part),
            // A fault of the next stream may be one that no decoder overlooks.
            Err(Broken) => return Err(Broken),
            Err(fault) => late = Some(fault),
        }
    }
    let last = len.checked_sub(3 * part).ok_or(Broken)?;
    all.extend(stream(section.0, &codes, last)?);
    late.map_or(Ok(all), Err)
}

fn stream(bytes: &[u8], codes: &[(u64, u32)], len: usize) -> Result<Vec<u8>> {
    if bytes.last() == Some(&0) {
        return Err(Fault::LiteralsNotUsedUp);
    }
    let mut bits = Backward::new(bytes)?;
    let mut content = Vec::new();
    for _ in 0..len {
        let (mut code, mut width) = (0, 0);
        let symbol = loop {
            code = code << 1 | bits.read(1);
            width += 1;
            if let Some(symbol) = codes.iter().position(|known| *known == (code, width)) {
                break symbol;
            }
        };
        content.push(symbol as u8);
    }
    if bits.left == 0 {
        Ok(content)
    } else {
        Err(Fault::LiteralsNotUsedUp)
    }
}

fn huffman_table(src: &mut Source) -> Result<Huffman> {
    let first = usize::from(src.byte()?);
    let mut weights = Vec::new();
    if first >= 128 {
        for byte in src.take((first - 127).div_ceil(2))? {
            weights.extend([byte >> 4, byte & 15]);
        }
        weights.truncate(first - 127);
    } else {
        let mut section = Source(src.take(first)?);
        let table = Decoding::new(&Table::Fse(fse_table(&mut section, 6, 13)?));
        let mut bits = Backward::new(section.0)?;
        let mut states = [
            bits.read(table.accuracy) as usize,
            bits.read(table.accuracy) as usize,
        ];
        if bits.left < 0 {
            return Err(Broken);
        }
        for turn in 0.. {
            let (symbol, width, base) = table.cells[states[turn % 2]];
            weights.push(symbol);
            states[turn % 2] = base + bits.read(width) as usize;
            if bits.left < 0 {
                weights.push(table.cells[states[(turn + 1) % 2]].0);
                break;
            }
            if weights.len() > 255 {
                return Err(Broken);
            }
        }
    }
    let sum: u64 = weights
        .iter()
        .filter(|weight| **weight > 0)
        .map(|weight| 1u64 << (weight - 1))
        .sum();
    if sum == 0 || weights.len() > 255 || weights.iter().any(|weight| *weight > 12) {
        return Err(Broken);
    }
    let total = (sum + 1).next_power_of_two();
    if !(total - sum).is_power_of_two() || total > 1 << 12 {
        return Err(Broken);
    }
    weights.push((total - sum).ilog2() as u8 + 1);
    let longest = weights.iter().filter(|weight| **weight == 1).count();
    if longest < 2 || longest % 2 == 1 {
        return Err(Broken);
    }
    if total > 1 << 11 {
        return Err(Fault::HuffmanTooDeep);
    }
    Ok(Huffman { weights })
}
