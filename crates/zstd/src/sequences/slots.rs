//! The codes of sequences by slots: a place for each short length, so that no code is looked up
//! when codes are counted and the bit stream is written.

use super::code::{
    LITERAL_LENGTH_CODES, MATCH_LENGTH_CODES, Sequence, literal_length_code, match_length_code,
    offset_code,
};
use crate::encode::streams::sequences::Slots;
use crate::workspace::{Cells, Scratch};

/// Cells of counts of codes: 64 each of literal lengths, offsets, match lengths.
pub(crate) const CODES: usize = 192;

/// The totals of counted sequences.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counted {
    pub(crate) sequences: usize,
    pub(crate) literals: usize,
    /// Of literals and of matches.
    pub(crate) bytes: usize,
}

/// Counts the codes of the first sequences: of all or, if `PART`, of those up to the first pair
/// that reaches `bytes`.
///
/// The result says only of a part which literals and bytes it has.
pub(crate) fn count_codes<const PART: bool>(
    counts: &mut [[u8; 4]; CODES],
    reversed: &[[u8; 8]],
    bytes: usize,
    scratch: &mut Scratch,
) -> Counted {
    if !PART && reversed.len() < FEW {
        return count_few(counts, reversed);
    }
    // Slots are counted, two neighbours in tables of their own: equal ones do not wait for each
    // other.
    let (tables, _) = scratch.split_at_mut(2 * SLOT_COUNTS);
    let mut counted = Counted::default();
    let (first, pairs) = reversed.as_rchunks::<2>();
    if let ([a, b], []) = tables.as_chunks_mut::<SLOT_COUNTS>() {
        a.fill([0; 4]);
        b.fill([0; 4]);
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
    let (of_lengths, rest) = counts.split_at_mut(64);
    let (of_offsets, of_matches) = rest.split_at_mut(64);
    add(of_lengths, lengths, &LITERAL_LENGTH_SLOTS);
    add(of_offsets, offsets, &OFFSET_SLOTS);
    add(of_matches, matches, &MATCH_LENGTH_SLOTS);
    counted
}

/// Fewer sequences than this are counted by their codes: the saving of slots does not make up for
/// summing their counts.
const FEW: usize = 160;

/// Counts the codes of a few sequences.
fn count_few(counts: &mut [[u8; 4]; CODES], reversed: &[[u8; 8]]) -> Counted {
    counts.fill([0; 4]);
    let mut add = |cell: u32| {
        if let Some(count) = counts.get_mut(cell as usize) {
            *count = (u32::from_ne_bytes(*count) + 1).to_ne_bytes();
        }
    };
    for sequence in reversed {
        let sequence = Sequence::from_bits(u64::from_ne_bytes(*sequence));
        add(literal_length_code(sequence.literal_length()));
        add(64 + offset_code(sequence.offset_value()));
        add(128 + match_length_code(sequence.match_length_less_min()));
    }
    Counted {
        sequences: reversed.len(),
        ..Counted::default()
    }
}

/// Cells of counts of slots: 128 of literal lengths, 256 of match lengths, 64 of offsets.
const SLOT_COUNTS: usize = 128 + 256 + 64;

#[inline(always)]
fn count_slots(counts: &mut [[u8; 4]; SLOT_COUNTS], sequence: [u8; 8]) {
    let word = u64::from_ne_bytes(sequence);
    let [literal_length, match_length] = Slots::of(word).lengths();
    // As the slot of the offset, without asking whether it is 0.
    let offset = (word << 36 | 1).leading_zeros() as usize;
    for cell in [
        literal_length & 127,
        128 + (match_length & 255),
        384 + (offset & 63),
    ] {
        let count = counts.at(cell) + 1;
        counts.put(cell, count);
    }
}

/// Adds counts of slots, whose codes these are, to those of codes.
fn add(counts: &mut [[u8; 4]], slots: &[[u8; 4]], codes: &[u8]) {
    for (cell, code) in slots.iter().zip(codes) {
        if let Some(count) = counts.get_mut(usize::from(*code)) {
            *count = (u32::from_ne_bytes(*count) + u32::from_ne_bytes(*cell)).to_ne_bytes();
        }
    }
}

/// The code of each slot: those of short lengths, then all codes of longer ones.
pub(crate) static LITERAL_LENGTH_SLOTS: [u8; 75] =
    slots(&LITERAL_LENGTH_CODES, LITERAL_LENGTH_CODE_LONG);
pub(crate) static MATCH_LENGTH_SLOTS: [u8; 138] =
    slots(&MATCH_LENGTH_CODES, MATCH_LENGTH_CODE_LONG);
/// The code of each slot.
pub(crate) static OFFSET_SLOTS: [u8; 28] = {
    let mut codes = [0; 28];
    let mut slot = 0;
    while slot < 28 {
        codes[slot] = 27 - slot as u8;
        slot += 1;
    }
    codes
};

const fn slots<const N: usize>(short: &[u8], first_long: u32) -> [u8; N] {
    let mut codes = [0; N];
    let mut slot = 0;
    while slot < N {
        codes[slot] = if slot < short.len() {
            short[slot]
        } else {
            (first_long as usize + slot - short.len()) as u8
        };
        slot += 1;
    }
    codes
}

/// The first code of a literal length of 64, and of a match length of 131: each smaller length has
/// a slot of its own. There are fewer than 16 codes after each, which `% 16` says to the compiler
/// and to the tables that are read without a check.
pub(crate) const LITERAL_LENGTH_CODE_LONG: u32 = 25;
pub(crate) const MATCH_LENGTH_CODE_LONG: u32 = 43;

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn codes_are_counted_alike_by_slots_and_one_by_one() {
        let mut seed = 11_u32;
        let mut random = |log: u32| {
            seed = seed.wrapping_mul(0x19660d).wrapping_add(0x3c6ef35f);
            (seed >> 8) % (1 << (1 + (seed >> 27) % log))
        };
        let reversed: Vec<_> = (0..1001)
            .map(|_| Sequence::new(random(17), 1 + random(23), 3 + random(17)).bits())
            .map(u64::to_ne_bytes)
            .collect();
        for n in [0, 1, FEW - 1, FEW, FEW + 1, 1000, 1001] {
            let (mut counts, mut expected) = ([[1; 4]; CODES], [[2; 4]; CODES]);
            let mut scratch = [[3; 4]; 1152];
            let reversed = &reversed[..n];
            count_codes::<false>(&mut counts, reversed, 0, &mut scratch);
            count_few(&mut expected, reversed);
            assert_eq!(counts, expected, "{n}");
        }
    }
}
