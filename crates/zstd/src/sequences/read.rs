//! Reading the section's header and tables, and then sequence after sequence.

use super::{
    LITERAL_LENGTH_COUNTS, LITERAL_LENGTH_LOG_MAX, LITERAL_LENGTH_SYMBOL_MAX, MATCH_LENGTH_COUNTS,
    MATCH_LENGTH_LOG_MAX, MATCH_LENGTH_SYMBOL_MAX, OFFSET_COUNTS, OFFSET_LOG_MAX,
    OFFSET_SYMBOL_MAX,
};
use crate::Error;
use crate::bits::ReverseBitReader;
use crate::fse::{self, Cell, SymbolMeaning};

/// How a table is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Predefined,
    Rle,
    Fse,
    Repeat,
}

/// The header of a sequences section, up to the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SequencesHeader {
    /// Number of sequences. If 0, nothing follows.
    pub(crate) count: usize,
    /// Modes of the tables of literal lengths, offsets and match lengths, in the order of their
    /// descriptions.
    pub(crate) modes: [Mode; 3],
    /// Bytes of the header.
    pub(crate) bytes: usize,
}

impl SequencesHeader {
    pub(crate) fn parse(src: &[u8]) -> Result<SequencesHeader, Error> {
        let byte = |at: usize| {
            src.get(at)
                .copied()
                .map(usize::from)
                .ok_or(Error::Corruption)
        };
        let (count, bytes) = match byte(0)? {
            255 => (byte(1)? + (byte(2)? << 8) + 0x7f00, 3),
            first @ 128.. => (((first - 128) << 8) + byte(1)?, 2),
            first => (first, 1),
        };
        if count == 0 {
            return Ok(SequencesHeader {
                count,
                modes: [Mode::Predefined; 3],
                bytes,
            });
        }
        let modes = byte(bytes)?;
        if modes & 3 != 0 {
            return Err(Error::Corruption);
        }
        let mode = |at: u32| match (modes >> at) & 3 {
            0 => Mode::Predefined,
            1 => Mode::Rle,
            2 => Mode::Fse,
            _ => Mode::Repeat,
        };
        Ok(SequencesHeader {
            count,
            modes: [mode(6), mode(4), mode(2)],
            bytes: bytes + 1,
        })
    }
}

/// The properties of one of the three tables.
pub(crate) struct TableKind {
    /// Where the table begins among the cells.
    pub(crate) at: usize,
    pub(crate) log_max: u32,
    meanings: &'static [SymbolMeaning],
    predefined: &'static [Cell],
}

impl TableKind {
    pub(crate) const LITERAL_LENGTHS: &TableKind = &TableKind {
        at: 0,
        log_max: LITERAL_LENGTH_LOG_MAX,
        meanings: &LITERAL_LENGTHS,
        predefined: &PREDEFINED_LITERAL_LENGTHS,
    };
    pub(crate) const MATCH_LENGTHS: &TableKind = &TableKind {
        at: 1 << LITERAL_LENGTH_LOG_MAX,
        log_max: MATCH_LENGTH_LOG_MAX,
        meanings: &MATCH_LENGTHS,
        predefined: &PREDEFINED_MATCH_LENGTHS,
    };
    pub(crate) const OFFSETS: &TableKind = &TableKind {
        at: (1 << LITERAL_LENGTH_LOG_MAX) + (1 << MATCH_LENGTH_LOG_MAX),
        log_max: OFFSET_LOG_MAX,
        meanings: &OFFSETS,
        predefined: &PREDEFINED_OFFSETS,
    };

    /// In the order of their modes and descriptions.
    const ALL: [&TableKind; 3] = [
        TableKind::LITERAL_LENGTHS,
        TableKind::OFFSETS,
        TableKind::MATCH_LENGTHS,
    ];

    /// Where the table ends among the cells.
    const fn end(&self) -> usize {
        self.at + (1 << self.log_max)
    }
}

/// Cells of the largest tables of all kinds. They lie side by side, so that one pointer reaches
/// them.
pub(crate) const CELLS: usize = TableKind::OFFSETS.end();

/// The sizes, as powers of two, of the tables of literal lengths, offsets and match lengths. `None`
/// without a table: no block and no dictionary has given one.
pub(crate) type Logs = [Option<u32>; 3];

/// Makes the tables that a block asks for; returns the bytes after their descriptions.
#[inline(never)]
pub(crate) fn update_tables<'s>(
    logs: &mut Logs,
    header: &SequencesHeader,
    mut src: &'s [u8],
    cells: &mut [Cell; CELLS],
) -> Result<&'s [u8], Error> {
    for ((log, kind), mode) in logs.iter_mut().zip(TableKind::ALL).zip(header.modes) {
        match mode {
            Mode::Predefined => {
                // Each access is checked without a panic, as everywhere in the decoder.
                let place = cells.get_mut(kind.at..).unwrap_or_default();
                for (cell, predefined) in place.iter_mut().zip(kind.predefined) {
                    *cell = *predefined;
                }
                *log = kind.predefined.len().checked_ilog2();
            }
            Mode::Rle => {
                let (&symbol, rest) = src.split_first().ok_or(Error::Corruption)?;
                let &meaning = kind
                    .meanings
                    .get(usize::from(symbol))
                    .ok_or(Error::Corruption)?;
                *cells.get_mut(kind.at).ok_or(Error::Corruption)? = fse::single(meaning);
                *log = Some(0);
                src = rest;
            }
            Mode::Fse => {
                let (new, bytes) = read_entropy_table(kind, src, cells)?;
                *log = Some(new);
                src = src.get(bytes..).ok_or(Error::Corruption)?;
            }
            Mode::Repeat if log.is_none() => return Err(Error::Corruption),
            Mode::Repeat => {}
        }
    }
    Ok(src)
}

/// Reads the description of a table and builds it; gives its log and the bytes of the description.
pub(crate) fn read_entropy_table(
    kind: &TableKind,
    src: &[u8],
    cells: &mut [Cell; CELLS],
) -> Result<(u32, usize), Error> {
    let mut counts = [0; MATCH_LENGTH_SYMBOL_MAX + 1];
    let counts = counts
        .get_mut(..kind.meanings.len())
        .ok_or(Error::Corruption)?;
    let found = fse::read_distribution(src, kind.log_max, counts)?;
    let cells = cells
        .get_mut(kind.at..kind.at + (1 << found.log))
        .ok_or(Error::Corruption)?;
    let counts = counts.get(..found.symbols).ok_or(Error::Corruption)?;
    fse::build(cells, counts, kind.meanings);
    Ok((found.log, found.bytes))
}

/// A piece of content: literals, then a copy of the bytes `offset` before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecodedSequence {
    pub(crate) literals: u32,
    pub(crate) length: u32,
    /// 0 if the block is corrupt.
    pub(crate) offset: u32,
}

/// Reads the sequences of a block, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct SequenceReader<'t, 's> {
    pub(crate) cells: &'t [Cell; CELLS],
    pub(crate) bits: ReverseBitReader<'s>,
    /// States: the cells of the next sequence, counted from the start of each kind's table.
    pub(crate) literal_length: usize,
    pub(crate) offset: usize,
    pub(crate) match_length: usize,
    /// Repeat offsets, the latest first.
    pub(crate) repeat: [u32; 3],
    /// Sequences that have not been read.
    pub(crate) left: usize,
}

impl<'t, 's> SequenceReader<'t, 's> {
    /// Reads the first states.
    pub(crate) fn new(
        cells: &'t [Cell; CELLS],
        logs: Logs,
        src: &'s [u8],
        repeat: [u32; 3],
        count: usize,
    ) -> Result<SequenceReader<'t, 's>, Error> {
        let mut bits = ReverseBitReader::new(src).ok_or(Error::Corruption)?;
        let mut state = |log: Option<u32>| {
            let log = log.ok_or(Error::Corruption)?;
            Ok::<_, Error>(bits.read(log) as usize)
        };
        let literal_length = state(logs[0])?;
        let offset = state(logs[1])?;
        let match_length = state(logs[2])?;
        bits.refill();
        Ok(SequenceReader {
            cells,
            bits,
            literal_length,
            offset,
            match_length,
            repeat,
            left: count,
        })
    }

    /// Whether every state is the number of a cell. Tables of [`fse::build`] keep it so: the bits
    /// of a cell, added to its smallest next state, are less than the number of cells.
    #[allow(dead_code, reason = "only `arch` needs it")]
    pub(crate) fn states_are_valid(&self) -> bool {
        self.literal_length < 1 << LITERAL_LENGTH_LOG_MAX
            && self.offset < 1 << OFFSET_LOG_MAX
            && self.match_length < 1 << MATCH_LENGTH_LOG_MAX
    }

    /// Whether the next sequence gives its offset, not one of the last three.
    #[cfg(feature = "steps")]
    pub(crate) fn names_offset(&self) -> bool {
        let state = self.offset & ((1 << OFFSET_LOG_MAX) - 1);
        let cell = u64::from_le_bytes(self.cells[TableKind::OFFSETS.at + state]);
        cell >> 56 >= 2
    }

    /// The next sequence. Only for `left` above 0.
    #[inline(always)]
    pub(crate) fn read(&mut self) -> DecodedSequence {
        let word = |kind: &TableKind, state: usize| {
            u64::from_le_bytes(self.cells[kind.at + (state & ((1 << kind.log_max) - 1))])
        };
        let literal_length = word(TableKind::LITERAL_LENGTHS, self.literal_length);
        let offset_cell = word(TableKind::OFFSETS, self.offset);
        let match_length = word(TableKind::MATCH_LENGTHS, self.match_length);
        let extra = |cell: u64| (cell >> 56) as u32;

        let no_literals = literal_length as u32 == 0;
        let offset = match extra(offset_cell) {
            // One bit and none: the three repeat offsets.
            width @ 0..2 => {
                let value = offset_cell as u32 + self.bits.read(width) as u32;
                self.repeat_offset(value, no_literals)
            }
            width => {
                // Three less than the value, which the base already says.
                let new = (offset_cell as u32).wrapping_add(self.bits.read(width) as u32);
                self.repeat = [new, self.repeat[0], self.repeat[1]];
                new
            }
        };
        let mut length = match_length as u32;
        if extra(match_length) > 0 {
            length += self.bits.read(extra(match_length)) as u32;
        }
        // At most 31 bits for the offset and 16 for the match length are gone; 16 and 26 are still
        // to be read.
        self.bits.refill();
        let mut literals = literal_length as u32;
        if extra(literal_length) > 0 {
            literals += self.bits.read(extra(literal_length)) as u32;
        }
        self.left -= 1;
        if self.left > 0 {
            let bits = &mut self.bits;
            let mut next = |cell: u64| {
                (cell >> 32) as usize % 65536 + bits.read((cell >> 48) as u32 & 255) as usize
            };
            self.literal_length = next(literal_length);
            self.match_length = next(match_length);
            self.offset = next(offset_cell);
        }
        self.bits.refill();
        DecodedSequence {
            literals,
            length,
            offset,
        }
    }

    /// The offset for an offset value of 1, 2 or 3 (RFC 8878, section 3.1.1.5).
    #[inline(always)]
    pub(crate) fn repeat_offset(&mut self, value: u32, no_literals: bool) -> u32 {
        let [first, second, third] = self.repeat;
        let offset = match value + u32::from(no_literals) {
            1 => return first,
            2 => {
                self.repeat = [second, first, third];
                return second;
            }
            3 => third,
            _ => first.wrapping_sub(1),
        };
        self.repeat = [offset, first, second];
        offset
    }
}

/// The base of each symbol from a table of extra bits, each symbol beginning where the one before
/// ends.
const fn meanings<const N: usize>(first: u32, extra: [u8; N]) -> [SymbolMeaning; N] {
    let mut meanings = [SymbolMeaning::new(0, 0); N];
    let mut base = first;
    let mut symbol = 0;
    while symbol < N {
        meanings[symbol] = SymbolMeaning::new(base, extra[symbol]);
        base += 1 << extra[symbol];
        symbol += 1;
    }
    meanings
}

/// RFC 8878, table 16.
static LITERAL_LENGTHS: [SymbolMeaning; LITERAL_LENGTH_SYMBOL_MAX + 1] = meanings(
    0,
    [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
        1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, //
        13, 14, 15, 16,
    ],
);

/// RFC 8878, table 17.
static MATCH_LENGTHS: [SymbolMeaning; MATCH_LENGTH_SYMBOL_MAX + 1] = meanings(
    3,
    [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, //
        1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, //
        12, 13, 14, 15, 16,
    ],
);

/// A symbol is the number of extra bits. The base of the first two is that of the offset *value* (1
/// to 3, a repeat offset); the others' is three less, that of the offset itself.
static OFFSETS: [SymbolMeaning; OFFSET_SYMBOL_MAX + 1] = {
    let mut meanings = [SymbolMeaning::new(0, 0); OFFSET_SYMBOL_MAX + 1];
    let mut symbol = 0;
    while symbol < meanings.len() {
        let base = 1 << symbol;
        let base = if symbol < 2 { base } else { base - 3 };
        meanings[symbol] = SymbolMeaning::new(base, symbol as u8);
        symbol += 1;
    }
    meanings
};

static PREDEFINED_LITERAL_LENGTHS: [Cell; 64] = {
    let mut cells = [[0; 8]; 64];
    fse::build_any(&mut cells, &LITERAL_LENGTH_COUNTS, &LITERAL_LENGTHS);
    cells
};
static PREDEFINED_MATCH_LENGTHS: [Cell; 64] = {
    let mut cells = [[0; 8]; 64];
    fse::build_any(&mut cells, &MATCH_LENGTH_COUNTS, &MATCH_LENGTHS);
    cells
};
static PREDEFINED_OFFSETS: [Cell; 32] = {
    let mut cells = [[0; 8]; 32];
    fse::build_any(&mut cells, &OFFSET_COUNTS, &OFFSETS);
    cells
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// RFC 8878, appendix A: the symbols of the predefined tables, by state.
    const LITERAL_LENGTH_STATES: [u8; 64] = [
        0, 0, 1, 3, 4, 6, 7, 9, 10, 12, 14, 16, 18, 19, 21, 22, //
        24, 25, 26, 27, 29, 31, 0, 1, 2, 4, 5, 7, 8, 10, 11, 13, //
        16, 17, 19, 20, 22, 23, 25, 25, 26, 28, 30, 0, 1, 2, 3, 5, //
        6, 8, 9, 11, 12, 15, 17, 18, 20, 21, 23, 24, 35, 34, 33, 32, //
    ];
    const MATCH_LENGTH_STATES: [u8; 64] = [
        0, 1, 2, 3, 5, 6, 8, 10, 13, 16, 19, 22, 25, 28, 31, 33, //
        35, 37, 39, 41, 43, 45, 1, 2, 3, 4, 6, 7, 9, 12, 15, 18, //
        21, 24, 27, 30, 32, 34, 36, 38, 40, 42, 44, 1, 1, 2, 4, 5, //
        7, 8, 11, 14, 17, 20, 23, 26, 29, 52, 51, 50, 49, 48, 47, 46, //
    ];
    const OFFSET_STATES: [u8; 32] = [
        0, 6, 9, 15, 21, 3, 7, 12, 18, 23, 5, 8, 14, 20, 2, 7, //
        11, 17, 22, 4, 8, 13, 19, 1, 6, 10, 16, 28, 27, 26, 25, 24, //
    ];

    #[test]
    fn predefined_tables_are_those_of_the_appendix() {
        let symbols = |kind: &TableKind| -> Vec<u8> {
            let symbol = |cell: &Cell| {
                let same = |meaning: &SymbolMeaning| {
                    let meaning = fse::single(*meaning);
                    meaning[..4] == cell[..4] && meaning[7] == cell[7]
                };
                kind.meanings.iter().position(same).unwrap() as u8
            };
            kind.predefined.iter().map(symbol).collect()
        };
        assert_eq!(symbols(TableKind::LITERAL_LENGTHS), LITERAL_LENGTH_STATES);
        assert_eq!(symbols(TableKind::MATCH_LENGTHS), MATCH_LENGTH_STATES);
        assert_eq!(symbols(TableKind::OFFSETS), OFFSET_STATES);
    }

    /// `arch` reads cells without a check if this says that they exist: not one more.
    #[test]
    fn states_are_those_of_the_largest_tables() {
        let mut reader = SequenceReader {
            cells: &[[0; 8]; CELLS],
            bits: ReverseBitReader::empty(),
            literal_length: 511,
            offset: 255,
            match_length: 511,
            repeat: [1, 4, 8],
            left: 1,
        };
        assert!(reader.states_are_valid());
        reader.literal_length = 512;
        assert!(!reader.states_are_valid());
        reader.literal_length = 511;
        reader.offset = 256;
        assert!(!reader.states_are_valid());
        reader.offset = 255;
        reader.match_length = 512;
        assert!(!reader.states_are_valid());
    }
}
