//! The codes of sequences by slots: a place for each short length, so that no code is looked up when codes are counted and
//! the bit stream is written.

use super::code::{LITERAL_LENGTH_CODES, MATCH_LENGTH_CODES, Sequence};
use super::{LITERAL_LENGTH_SYMBOL_MAX, MATCH_LENGTH_SYMBOL_MAX};
use crate::encode::streams::sequences::Slots;
use crate::workspace::{Cells, Scratch};

/// Cells of counts of codes: 64 each of literal lengths, offsets, match lengths.
pub(crate) const CODES: usize = 192;

/// What sequences consist of.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counted {
    pub(crate) sequences: usize,
    pub(crate) literals: usize,
    /// Of literals and of matches.
    pub(crate) bytes: usize,
}

/// Counts the codes of the first sequences: of all or, if `PART`, of those up to the first pair that reaches `bytes`.
///
/// The result says only of a part which literals and bytes it has.
pub(crate) fn count_codes<const PART: bool>(
    counts: &mut [[u8; 4]; CODES],
    reversed: &[[u8; 8]],
    bytes: usize,
    scratch: &mut Scratch,
) -> Counted {
    // Slots are counted, two neighbours in tables of their own: equal ones do not wait for each other.
    let (tables, _) = scratch.split_at_mut(2 * SLOT_COUNTS);
    tables.fill([0; 4]);
    let mut counted = Counted::default();
    let (first, pairs) = reversed.as_rchunks::<2>();
    if let ([a, b], []) = tables.as_chunks_mut::<SLOT_COUNTS>() {
        for [later, sooner] in pairs.iter().rev() {
            count_slots(a, *sooner);
            count_slots(b, *later);
            if PART {
                counted.sequences += 2;
                for sequence in [sooner, later] {
                    let sequence = Sequence::from_bits(u64::from_ne_bytes(*sequence));
                    let literals = sequence.literal_length() as usize;
                    counted.literals += literals;
                    counted.bytes += literals + sequence.match_length() as usize;
                }
                if counted.bytes >= bytes {
                    break;
                }
            }
        }
        // The last of an odd number.
        if counted.sequences == 2 * pairs.len() || !PART {
            for sequence in first {
                count_slots(a, *sequence);
                counted.sequences += 1;
            }
        }
        for (a, b) in a.iter_mut().zip(&*b) {
            *a = (u32::from_ne_bytes(*a) + u32::from_ne_bytes(*b)).to_ne_bytes();
        }
    }
    counts.fill([0; 4]);
    let (lengths, rest) = tables.split_at(128);
    let (matches, offsets) = rest.split_at(256);
    let mut add = |cells: &[[u8; 4]], codes: &mut dyn Iterator<Item = u32>, at: usize| {
        for (cell, code) in cells.iter().zip(codes) {
            let sum = counts.at(at + code as usize) + u32::from_ne_bytes(*cell);
            counts.put(at + code as usize, sum);
        }
    };
    add(lengths, &mut literal_length_slots(), 0);
    add(offsets, &mut offset_slots(), 64);
    add(matches, &mut match_length_slots(), 128);
    counted
}

/// Cells of counts of slots: 128 of literal lengths, 256 of match lengths, 64 of offsets.
const SLOT_COUNTS: usize = 128 + 256 + 64;

#[inline(always)]
fn count_slots(counts: &mut [[u8; 4]; SLOT_COUNTS], sequence: [u8; 8]) {
    let [literal_length, match_length, offset] = Slots::of(u64::from_ne_bytes(sequence)).numbers();
    for cell in [
        literal_length & 127,
        128 + (match_length & 255),
        384 + (offset & 63),
    ] {
        let count = counts.at(cell) + 1;
        counts.put(cell, count);
    }
}

/// The code of each slot.
pub(crate) fn literal_length_slots() -> impl Iterator<Item = u32> {
    let short = LITERAL_LENGTH_CODES.iter().map(|code| u32::from(*code));
    short.chain(LITERAL_LENGTH_CODE_LONG..=LITERAL_LENGTH_SYMBOL_MAX as u32)
}

/// The code of each slot.
pub(crate) fn match_length_slots() -> impl Iterator<Item = u32> {
    let short = MATCH_LENGTH_CODES.iter().map(|code| u32::from(*code));
    short.chain(MATCH_LENGTH_CODE_LONG..=MATCH_LENGTH_SYMBOL_MAX as u32)
}

/// The code of each slot.
pub(crate) fn offset_slots() -> impl Iterator<Item = u32> {
    (0..28).rev()
}

/// The first code of a literal length of 64, and of a match length of 131: what lies below has a slot of its own. There are
/// fewer than 16 codes after each, which `% 16` says to the compiler and to the tables that are read without a check.
pub(crate) const LITERAL_LENGTH_CODE_LONG: u32 = 25;
pub(crate) const MATCH_LENGTH_CODE_LONG: u32 = 43;
