//! Prices of literals, lengths and offsets, in 1/256 bit.

pub(super) use crate::bits::log2;
use crate::checked::{Checked, CheckedSlice};
use crate::sequences::{
    LITERAL_LENGTH_BITS, MATCH_LENGTH_BITS, MATCH_MIN, literal_length_code, match_length_code,
    offset_code,
};
use crate::workspace::{Carver, Cells};

/// One bit.
pub(super) const BIT: u32 = 256;
/// Longest match that has a price of its own; longer ones are taken without asking.
pub(super) const PRICED_LENGTH_MAX: usize = 1024;

/// The largest codes.
const LITERAL_LENGTH_CODE_MAX: usize = 35;
const MATCH_LENGTH_CODE_MAX: usize = 52;
const OFFSET_CODE_MAX: usize = 28;

const LITERALS: usize = 0;
const LITERAL_LENGTHS: usize = 256;
const MATCH_LENGTHS: usize = LITERAL_LENGTHS + LITERAL_LENGTH_CODE_MAX + 1;
const OFFSETS: usize = MATCH_LENGTHS + MATCH_LENGTH_CODE_MAX + 1;
/// Cells of a table of counts.
pub(super) const COUNTS: usize = OFFSETS + OFFSET_CODE_MAX + 1;

/// How often each literal, length code and offset code occurs.
pub(super) type Counts = [[u8; 4]; COUNTS];

/// The four alphabets in a table of counts.
pub(super) const ALPHABETS: [core::ops::Range<usize>; 4] = [
    LITERALS..LITERAL_LENGTHS,
    LITERAL_LENGTHS..MATCH_LENGTHS,
    MATCH_LENGTHS..OFFSETS,
    OFFSETS..COUNTS,
];

/// The amount that one occurrence adds to fading counts.
pub(super) const WEIGHT: u32 = 16;
/// Logarithm of the part of a count that fades at once.
const FADE_LOG: u32 = 4;
/// Literals are even when none is more than this part of all: the logarithm.
const EVEN_LOG: u32 = 5;

/// How often the sequences of records count at first, and as recently seen later.
#[derive(Clone, Copy)]
pub(super) struct RecordWeights {
    /// A literal length of 1, and a match length of 3.
    lengths: u32,
    /// The last offset.
    offset: u32,
    later: u32,
}

impl RecordWeights {
    pub(super) const USUAL: RecordWeights = RecordWeights {
        lengths: 60,
        offset: 80,
        later: 20,
    };
    /// In short content that is not of records, the usual counts would not fade soon enough.
    pub(super) const SHORT: RecordWeights = RecordWeights {
        lengths: 15,
        offset: 20,
        later: 5,
    };
}

#[inline(always)]
fn increment(counts: &mut Counts, cell: usize, weight: u32) -> Checked<()> {
    let count = counts.checked_at(cell)? + weight;
    counts.checked_put(cell, count)
}

/// Counts a run of literals.
#[inline(always)]
pub(super) fn count_literals(counts: &mut Counts, literals: &[u8], weight: u32) {
    for &literal in literals {
        let count = counts.at(literal.into()) + weight;
        counts.put(literal.into(), count);
    }
}

/// Counts a sequence without its literals.
#[inline(always)]
pub(super) fn count_sequence(
    counts: &mut Counts,
    (literals, value, length): (u32, u32, u32),
    weight: u32,
) -> Checked<()> {
    let code = literal_length_code(literals) as usize;
    increment(counts, LITERAL_LENGTHS + code, weight)?;
    let code = match_length_code(length - MATCH_MIN as u32) as usize;
    increment(counts, MATCH_LENGTHS + code, weight)?;
    increment(counts, OFFSETS + offset_code(value) as usize, weight)
}

/// Counts, by [`WEIGHT`], as if a little of a typical block were known, with the literals of
/// `source`.
///
/// One literal and then three bytes at the last offset are made cheap: where records of four bytes
/// differ in one, only a parse that begins with such sequences finds out how cheap they become.
#[inline(never)]
pub(super) fn seed(counts: &mut Counts, source: &[u8], records: &RecordWeights) {
    *counts = [[0; 4]; COUNTS];
    count_literals(counts, source, 1);
    for cell in ALPHABETS[0].clone() {
        let count = counts.at(cell);
        counts.put(cell, (count >> 7) + u32::from(count > 0));
    }
    for (cell, code) in ALPHABETS[1].clone().zip(0..) {
        counts.put(cell, [4, records.lengths].get(code).copied().unwrap_or(1));
    }
    for (cell, code) in ALPHABETS[2].clone().zip(0..) {
        counts.put(
            cell,
            match code {
                0 => records.lengths,
                1..16 => 2,
                _ => 1,
            },
        );
    }
    for (cell, code) in ALPHABETS[3].clone().zip(0_usize..) {
        let typical = [records.offset, 2, 1, 1, 2, 3, 4, 4, 4, 3, 2];
        counts.put(cell, typical.get(code).copied().unwrap_or(1));
    }
    for cell in counts {
        *cell = (u32::from_ne_bytes(*cell) * WEIGHT).to_ne_bytes();
    }
}

/// Adds one table of counts to another.
pub(super) fn add(sum: &mut Counts, counts: &Counts) {
    for (sum, count) in sum.iter_mut().zip(counts) {
        *sum = (u32::from_ne_bytes(*sum) + u32::from_ne_bytes(*count)).to_ne_bytes();
    }
}

#[inline(always)]
fn sum(counts: &[[u8; 4]]) -> u32 {
    counts.iter().map(|cell| u32::from_ne_bytes(*cell)).sum()
}

/// Whether no literal is much more frequent than the others.
pub(super) fn literals_are_even(counts: &Counts) -> bool {
    let literals = &counts[..LITERAL_LENGTHS];
    let most = sum(literals) >> EVEN_LOG;
    literals
        .iter()
        .all(|cell| u32::from_ne_bytes(*cell) <= most)
}

/// Makes counts weigh less than those to come.
///
/// The sequences that records consist of never become dear: one literal and then three bytes at the
/// last offset. Where records begin, a parse that knows them only as dear takes literals for ever,
/// which make those dearer still.
pub(super) fn fade(counts: &mut Counts, records: &RecordWeights) {
    for cell in counts.iter_mut() {
        let count = u32::from_ne_bytes(*cell);
        *cell = (count - (count >> FADE_LOG)).to_ne_bytes();
    }
    for cell in [LITERAL_LENGTHS + 1, MATCH_LENGTHS, OFFSETS] {
        let count = counts.at(cell).max(records.later * WEIGHT);
        counts.put(cell, count);
    }
}

/// Where the prices of literal lengths, of offsets and of match lengths begin, after those of
/// literals.
const LITERAL_LENGTH_PRICES: usize = 256;
const OFFSET_PRICES: usize = LITERAL_LENGTH_PRICES + 64;
const MATCH_LENGTH_PRICES: usize = OFFSET_PRICES + 32;

/// Prices of everything that a sequence consists of.
pub(super) struct Prices<'a> {
    cells: &'a mut [[u8; 4]; MATCH_LENGTH_PRICES + PRICED_LENGTH_MAX + 1],
}

impl<'a> Prices<'a> {
    /// Bytes of workspace.
    pub(super) const BYTES: usize = 4 * (MATCH_LENGTH_PRICES + PRICED_LENGTH_MAX + 1);

    /// Takes the table from a workspace.
    #[inline(always)]
    pub(super) fn carve(carver: &mut Carver<'a>) -> Checked<Self> {
        Ok(Prices {
            cells: carver.array()?,
        })
    }

    /// Sets all prices from counts to which each occurrence added `weight`, for matches of up to
    /// `length_max` bytes.
    #[inline(never)]
    pub(super) fn set(&mut self, counts: &Counts, weight: u32, length_max: usize) -> Checked<()> {
        let (literal_prices, rest) = self.cells.split_at_mut(LITERAL_LENGTH_PRICES);
        let (literal_length_prices, rest) = rest.split_at_mut(64);
        let (offset_prices, match_length_prices) = rest.split_at_mut(32);
        let (literals, rest) = counts.split_at(LITERAL_LENGTHS);
        let (literal_lengths, rest) = rest.split_at(MATCH_LENGTHS - LITERAL_LENGTHS);
        let (match_lengths, offsets) = rest.split_at(OFFSETS - MATCH_LENGTHS);
        let [literals, literal_lengths, match_lengths, offsets] =
            [literals, literal_lengths, match_lengths, offsets]
                .map(|counts| Alphabet::of(counts, weight));
        // A Huffman code has 1 to 11 bits. Most bytes do not occur at all.
        let price = |count| literals.price(count).clamp(BIT, 11 * BIT).to_ne_bytes();
        let unseen = price(&[0; 4]);
        for (place, count) in literal_prices.iter_mut().zip(literals.counts) {
            *place = if *count == [0; 4] {
                unseen
            } else {
                price(count)
            };
        }
        set_lengths(
            literal_length_prices,
            &literal_lengths,
            &LITERAL_LENGTH_BITS,
        );
        set_lengths(
            match_length_prices.checked_mut(MATCH_MIN..=length_max)?,
            &match_lengths,
            &MATCH_LENGTH_BITS,
        );
        for ((code, count), place) in (0..).zip(offsets.counts).zip(offset_prices) {
            let price = offsets.price(count).min(8 * BIT);
            *place = (price + code * BIT).to_ne_bytes();
        }
        Ok(())
    }

    /// Price of a literal.
    #[inline(always)]
    pub(super) fn literal(&self, literal: u8) -> u32 {
        self.cells.at(usize::from(literal))
    }

    /// Price of a length of literals.
    #[inline(always)]
    pub(super) fn literal_length(&self, length: u32) -> u32 {
        // The extra bits of the longest are all that tells them apart.
        match length as usize {
            length @ 0..64 => self.cells.at(LITERAL_LENGTH_PRICES + length),
            _ => self.cells.at(LITERAL_LENGTH_PRICES + 63) + (length.ilog2() - 5) * BIT,
        }
    }

    /// Price of the offset values with this code.
    #[inline(always)]
    pub(super) fn offset(&self, code: u32) -> u32 {
        self.cells.at(OFFSET_PRICES + (code as usize & 31))
    }

    /// Prices of match lengths, by length.
    #[inline(always)]
    pub(super) fn match_lengths(&self) -> &[[u8; 4]; PRICED_LENGTH_MAX + 1] {
        self.cells.last_chunk().expect("the cells are more")
    }
}

/// Gives lengths from the first code on their prices, extra bits included.
#[inline(always)]
fn set_lengths(prices: &mut [[u8; 4]], alphabet: &Alphabet<'_>, extra_bits: &[u8; 64]) {
    let mut rest = prices;
    for (count, &bits) in alphabet.counts.iter().zip(extra_bits) {
        let price = alphabet.price(count).min(9 * BIT) + u32::from(bits) * BIT;
        let (part, behind) = rest.split_at_mut(rest.len().min(1 << bits));
        part.fill(price.to_ne_bytes());
        if behind.is_empty() {
            return;
        }
        rest = behind;
    }
}

/// The counts of an alphabet.
struct Alphabet<'c> {
    counts: &'c [[u8; 4]],
    weight: u32,
    /// The logarithm of all counts together.
    total: u32,
}

impl<'c> Alphabet<'c> {
    #[inline(always)]
    fn of(counts: &'c [[u8; 4]], weight: u32) -> Self {
        let sum = sum(counts);
        // Half a count for unseen symbols keeps their prices finite. Most bytes never occur.
        let symbols = if counts.len() == 256 {
            16
        } else {
            counts.len() as u32
        };
        Alphabet {
            counts,
            weight,
            total: log2(2 * sum + symbols * weight),
        }
    }

    #[inline(always)]
    fn price(&self, count: &[u8; 4]) -> u32 {
        let count = u32::from_ne_bytes(*count);
        self.total - log2(count * 2 + self.weight).min(self.total)
    }
}
