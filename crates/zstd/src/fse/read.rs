//! Decoding tables: building them, and decoding the weights of a Huffman table with one.

use super::{read_distribution, spread_step, undo_step};
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

/// The values that a symbol stands for, where a [`Cell`] has them: the smallest, and the number of
/// extra bits to add.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SymbolMeaning(u64);

impl SymbolMeaning {
    pub(crate) const fn new(base: u32, extra: u8) -> Self {
        SymbolMeaning(base as u64 | (extra as u64) << 56)
    }
}

const fn cell(meaning: SymbolMeaning, next: u16, bits: u8) -> Cell {
    (meaning.0 | (next as u64) << 32 | (bits as u64) << 48).to_le_bytes()
}

/// A table of one cell, which takes no bits and says the same symbol for ever.
pub(crate) const fn single(meaning: SymbolMeaning) -> Cell {
    cell(meaning, 0, 0)
}

/// Builds the decoding table of a distribution (RFC 8878, section 4.1.1, "from normalized
/// distribution to decoding tables").
///
/// `counts` must add up to the length of `cells`, a power of two from 32 to 512.
pub(crate) fn build(cells: &mut [Cell], counts: &[i16], meanings: &[SymbolMeaning]) {
    if cells.len() <= SMALL && counts.iter().all(|count| *count >= 0) {
        build_small(cells, counts, meanings);
    } else {
        build_any(cells, counts, meanings);
    }
}

/// Cells of the largest table that [`build_small`] makes: its order of symbols lies on the stack.
const SMALL: usize = 128;

/// For each state of a symbol, in tables of 32, 64 and 128 cells: the smallest state that may
/// follow and, in the upper half, the bits to read and add to it.
static NEXT_STATES: [[u32; 2 * SMALL]; 3] = {
    let mut tables = [[0; 2 * SMALL]; 3];
    let mut i = 0;
    while i < 3 {
        let size = 32_usize << i;
        let mut state = 1;
        while state < 2 * size {
            let bits = size.ilog2() - state.ilog2();
            tables[i][state] = ((state << bits) - size) as u32 | bits << 16;
            state += 1;
        }
        i += 1;
    }
    tables
};

/// As [`build_any`], for small tables in which no symbol has less than a cell, as most short blocks
/// have them.
///
/// The symbols are written in their order, eight at a time, and then looked up in the order of
/// cells: no branch depends on how many cells a symbol has, unless it has more than eight.
#[inline(never)]
fn build_small(cells: &mut [Cell], counts: &[i16], meanings: &[SymbolMeaning]) {
    let mut order = [0; SMALL + 8];
    // States of at most 128 cells are below 256; the one after the last is not used.
    let mut next = [0_u8; 64];
    let mut end = 0;
    for (symbol, &count) in counts.iter().enumerate() {
        let mut at = end;
        end += usize::from(count.unsigned_abs());
        next[symbol & 63] = count.unsigned_abs() as u8;
        loop {
            // A symbol after the last cell has no cells.
            let place = at.min(SMALL);
            order[place..place + 8].fill(symbol as u8);
            at += 8;
            if at >= end {
                break;
            }
        }
    }
    let size = cells.len();
    let Some(states) = NEXT_STATES.get(size.max(32).ilog2() as usize - 5) else {
        return;
    };
    let inverse = undo_step(size);
    let mask = (size - 1) & (SMALL - 1);
    let mut at = 0_usize;
    for cell in cells {
        let symbol = usize::from(order[at & mask]) & 63;
        at = at.wrapping_add(inverse);
        let state = next[symbol];
        next[symbol] = state.wrapping_add(1);
        let next = u64::from(states[usize::from(state)]) << 32;
        let meaning = meanings.get(symbol).map_or(0, |meaning| meaning.0);
        *cell = (meaning | next).to_le_bytes();
    }
}

/// As [`build`], for all tables; the function is `const` for the predefined ones.
pub(crate) const fn build_any(cells: &mut [Cell], counts: &[i16], meanings: &[SymbolMeaning]) {
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
/// The largest weight is 11, but the format lets a description speak of more; they are refused when
/// used.
const WEIGHT_SYMBOLS: usize = 13;

/// Decodes the weights of a Huffman table from `src`, which holds exactly their description and
/// their bits.
///
/// Two states take turns; the last symbols are those of the states when the bits have run out.
/// Gives the number of weights; [`Error::Corruption`] if they are more than fit in `weights`, or
/// anything is not valid.
pub(crate) fn decode_weights(
    src: &[u8],
    cells: &mut [Cell; WEIGHT_CELLS],
    weights: &mut [u8],
) -> Result<usize, Error> {
    let mut counts = [0; WEIGHT_SYMBOLS];
    let found = read_distribution(src, WEIGHT_LOG_MAX, &mut counts)?;
    let used = cells.get_mut(..1 << found.log).ok_or(Error::Corruption)?;
    let counts = counts.get(..found.symbols).ok_or(Error::Corruption)?;
    build(used, counts, &WEIGHTS);
    let cell = |state: usize| {
        let word = u64::from_le_bytes(cells[state & (WEIGHT_CELLS - 1)]);
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
    // While bits are left before those at hand, there are enough for eight weights of at most six
    // bits.
    while bits.at > 0
        && let Some(turn) = weights
            .get_mut(at..)
            .and_then(|rest| rest.first_chunk_mut::<8>())
    {
        for pair in turn.as_chunks_mut::<2>().0 {
            for (state, place) in states.iter_mut().zip(pair) {
                let (weight, next, width) = cell(*state);
                *place = weight;
                *state = next + bits.read(width) as usize;
            }
        }
        bits.refill();
        at += 8;
    }
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
    let mut meanings = [SymbolMeaning::new(0, 0); WEIGHT_SYMBOLS];
    let mut weight = 0;
    while weight < WEIGHT_SYMBOLS {
        meanings[weight] = SymbolMeaning::new(weight as u32, 0);
        weight += 1;
    }
    meanings
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_tables_are_made_as_all_are() {
        let mut meanings = [SymbolMeaning::new(0, 0); 53];
        for (symbol, meaning) in (0..).zip(&mut meanings) {
            *meaning = SymbolMeaning::new(1000 + symbol, symbol as u8 / 4);
        }
        let mut seed = 7_u32;
        let mut random = |below: i16| {
            seed = seed.wrapping_mul(0x19660d).wrapping_add(0x3c6ef35f);
            (seed >> 16) as i16 % below
        };
        for round in 0..300 {
            let size = 32_usize << (round % 3);
            let mut left = size as i16;
            let mut counts = [0; 53];
            for count in &mut counts[..52] {
                *count = (random(20) - 8).clamp(0, left);
                left -= *count;
            }
            counts[52] = left;
            let (mut small, mut any) = ([[0; 8]; SMALL], [[0; 8]; SMALL]);
            build_small(&mut small[..size], &counts, &meanings);
            build_any(&mut any[..size], &counts, &meanings);
            assert_eq!(small, any, "{counts:?}");
        }
    }
}
