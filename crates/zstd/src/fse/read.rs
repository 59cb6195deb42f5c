//! Decoding tables: building them, and decoding the weights of a Huffman table with one.

use super::{read_distribution, spread_step};
use crate::Error;
use crate::bits::ReverseBitReader;

/// One cell of a decoding table for sequences, as a little-endian 64-bit number:
///
/// | bits | |
/// |---|---|
/// | 0..32 | smallest value of the cell's symbol |
/// | 32..48 | smallest state that may follow |
/// | 48..56 | bits to read and add to that state |
/// | 56..64 | extra bits to read and add to the value |
///
/// Bytes, so that tables need no alignment and can lie in any memory that a caller gives.
pub(crate) type Cell = [u8; 8];

/// The values that a symbol stands for: `base` and the number of extra bits to add.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SymbolMeaning {
    pub(crate) base: u32,
    pub(crate) extra: u8,
}

const fn cell(meaning: SymbolMeaning, next: u16, bits: u8) -> Cell {
    (meaning.base as u64 | (next as u64) << 32 | (bits as u64) << 48 | (meaning.extra as u64) << 56)
        .to_le_bytes()
}

/// A table of one cell, which takes no bits and says the same symbol for ever.
pub(crate) const fn single(meaning: SymbolMeaning) -> Cell {
    cell(meaning, 0, 0)
}

/// Builds the decoding table of a distribution (RFC 8878, section 4.1.1, "from normalized distribution to decoding
/// tables").
///
/// `counts` must add up to the length of `cells`, a power of two from 32 to 512; the function is `const` for
/// the predefined tables.
pub(crate) const fn build(cells: &mut [Cell], counts: &[i16], meanings: &[SymbolMeaning]) {
    let size = cells.len();
    if size == 0 || counts.len() > 64 {
        return;
    }
    let mask = size - 1;
    let step = spread_step(size);
    // States that come next for each symbol, while cells are numbered.
    let mut next = [0u16; 64];
    let mut end = size;
    let mut symbol = 0;
    while symbol < counts.len() {
        if counts[symbol] == -1 {
            end = end.wrapping_sub(1) & mask;
            cells[end][0] = symbol as u8;
            next[symbol] = 1;
        } else {
            next[symbol] = counts[symbol] as u16;
        }
        symbol += 1;
    }
    let mut at = 0;
    let mut symbol = 0;
    while symbol < counts.len() {
        let mut left = counts[symbol];
        while left > 0 {
            cells[at & mask][0] = symbol as u8;
            at = (at + step) & mask;
            while at >= end {
                at = (at + step) & mask;
            }
            left -= 1;
        }
        symbol += 1;
    }
    let log = size.ilog2();
    let mut at = 0;
    while at < size {
        let symbol = (cells[at][0] & 63) as usize;
        if symbol >= meanings.len() {
            return;
        }
        let state = next[symbol];
        next[symbol] += 1;
        let bits = log - (state as u32 | 1).ilog2();
        let first = ((state as usize) << bits) - size;
        cells[at] = cell(meanings[symbol], first as u16, bits as u8);
        at += 1;
    }
}

/// Cells of the largest table for Huffman weights.
pub(crate) const WEIGHT_CELLS: usize = 64;
const WEIGHT_LOG_MAX: u32 = 6;
/// The largest weight is 11, but the format lets a description speak of more; they are refused when used.
const WEIGHT_SYMBOLS: usize = 13;

/// Decodes the weights of a Huffman table from `src`, which holds exactly their description and their bits.
///
/// Two states take turns; the last symbols are those of the states when the bits have run out. Gives the number of
/// weights; [`Error::Corruption`] if they are more than fit in `weights`, or anything is not valid.
pub(crate) fn decode_weights(
    src: &[u8],
    cells: &mut [Cell; WEIGHT_CELLS],
    weights: &mut [u8],
) -> Result<usize, Error> {
    let mut counts = [0; WEIGHT_SYMBOLS];
    let found = read_distribution(src, WEIGHT_LOG_MAX, &mut counts)?;
    let cells = cells.get_mut(..1 << found.log).ok_or(Error::Corruption)?;
    let counts = counts.get(..found.symbols).ok_or(Error::Corruption)?;
    build(cells, counts, &WEIGHTS);
    let cell = |state: usize| {
        let word = cells.get(state).map_or(0, |&cell| u64::from_le_bytes(cell));
        (
            (word & 0xff) as u8,
            (word >> 32) as usize & 0xffff,
            (word >> 48) as u32 & 0xff,
        )
    };

    let mut bits = ReverseBitReader::new(src.get(found.bytes..).unwrap_or_default())
        .ok_or(Error::Corruption)?;
    let mut states = [0; 2];
    for state in &mut states {
        *state = bits.read(found.log) as usize;
    }
    bits.refill();
    if bits.is_overrun() {
        return Err(Error::Corruption);
    }
    let mut at = 0;
    loop {
        for turn in 0..2 {
            let (weight, next, width) = cell(states[turn]);
            *weights.get_mut(at).ok_or(Error::Corruption)? = weight;
            at += 1;
            states[turn] = next + bits.read(width) as usize;
            bits.refill();
            if bits.is_overrun() {
                // No bits are left for this state: the other one has the last word.
                let (weight, ..) = cell(states[1 - turn]);
                *weights.get_mut(at).ok_or(Error::Corruption)? = weight;
                return Ok(at + 1);
            }
        }
    }
}

const WEIGHTS: [SymbolMeaning; WEIGHT_SYMBOLS] = {
    let mut meanings = [SymbolMeaning { base: 0, extra: 0 }; WEIGHT_SYMBOLS];
    let mut weight = 0;
    while weight < WEIGHT_SYMBOLS {
        meanings[weight].base = weight as u32;
        weight += 1;
    }
    meanings
};
