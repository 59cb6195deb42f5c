//! The codes of sequences by slots: a place for each short length, so that no code is looked up when codes are counted and
//! the bit stream is written.

use super::code::{
    LITERAL_LENGTH_BITS, LITERAL_LENGTH_CODES, MATCH_LENGTH_BITS, MATCH_LENGTH_CODES, OFFSET_BITS,
    Sequence, literal_length_code, match_length_code,
};
use super::{
    LITERAL_LENGTH_LOG_MAX, LITERAL_LENGTH_SYMBOL_MAX, MATCH_LENGTH_LOG_MAX,
    MATCH_LENGTH_SYMBOL_MAX, OFFSET_LOG_MAX,
};
use crate::bits::{BitWriter, Sink};
use crate::fse::{FseTable, end, start, states, symbol};
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
/// What they consist of is told of a part only.
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
    let slots = Slots::of(u64::from_ne_bytes(sequence));
    for cell in [
        slots.literal_length & 127,
        128 + (slots.match_length & 255),
        384 + (slots.offset & 63),
    ] {
        let count = counts.at(cell) + 1;
        counts.put(cell, count);
    }
}

/// The three tables that are used, side by side: for each slot eight bytes, then for each state two. Slots are numbered by
/// what they stand for, so that no code need be looked up.
///
/// What a slot holds: 32 bits by which a state must be raised so that its upper 16 bits are the number of bits to write; 16
/// bits, where the code's states begin; 16 bits, the number of extra bits.
pub(crate) type RunTables = [u8; 4608];

/// Where the table of one kind of code lies in [`RunTables`].
pub(super) struct Run {
    slots: usize,
    states: usize,
    log_max: u32,
    extra_bits: &'static [u8; 64],
}

/// A state to begin with, and the accuracy of its table.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    state: u32,
    log: u32,
}

impl Run {
    /// Lengths of 64 and more have a slot for each code.
    pub(super) const LITERAL_LENGTHS: Run = Run {
        slots: 0,
        states: 2048,
        log_max: LITERAL_LENGTH_LOG_MAX,
        extra_bits: &LITERAL_LENGTH_BITS,
    };
    /// Lengths less `MATCH_MIN`; those of 128 and more have a slot for each code.
    pub(super) const MATCH_LENGTHS: Run = Run {
        slots: 640,
        states: 3072,
        log_max: MATCH_LENGTH_LOG_MAX,
        extra_bits: &MATCH_LENGTH_BITS,
    };
    /// By the leading zeros of a value of 28 bits.
    pub(super) const OFFSETS: Run = Run {
        slots: 1792,
        states: 4096,
        log_max: OFFSET_LOG_MAX,
        extra_bits: &OFFSET_BITS,
    };

    /// Takes a table over, whose slots have these codes. The state that yields `last`.
    pub(super) fn fill(
        &self,
        tables: &mut RunTables,
        (table, log): (&FseTable, u32),
        codes: impl Iterator<Item = u32>,
        last: u32,
    ) -> Start {
        let state = start(table, last);
        let places = tables[self.slots..].as_chunks_mut::<8>().0;
        for (code, place) in codes.zip(places) {
            let (raise, first) = symbol(table, code);
            let extra = u16::from(self.extra_bits[code as usize & 63]);
            let [a, b, c, d] = raise.to_ne_bytes();
            let [e, f] = (first as u16).to_ne_bytes();
            let [g, h] = extra.to_ne_bytes();
            *place = [a, b, c, d, e, f, g, h];
        }
        tables[self.states..][..2 << self.log_max]
            .copy_from_slice(&states(table)[..2 << self.log_max]);
        Start { state, log }
    }

    /// The state that leads on to this slot's symbol, and the bits to write with their number.
    #[inline(always)]
    fn step<T: Tables>(&self, tables: T, state: u32, slot: usize) -> (u32, u64, u32) {
        let at = self.slots + 8 * slot;
        let bits = T::short(state.wrapping_add(tables.read32(at)) >> 16);
        let first = u32::from(tables.read16(at + 4));
        let place = (state >> bits).wrapping_add(first) as usize & ((1 << self.log_max) - 1);
        let next = tables.read16(self.states + 2 * place);
        (next.into(), low_bits(state.into(), bits), bits)
    }

    /// The number of extra bits of a slot.
    #[inline(always)]
    fn extra_bits<T: Tables>(&self, tables: T, slot: usize) -> u32 {
        T::short(tables.read16(self.slots + 8 * slot + 6).into())
    }
}

/// [`RunTables`], read with checks or (in `arch/`) without.
pub(crate) trait Tables: Copy {
    /// Two bytes at `at`.
    fn read16(self, at: usize) -> u16;
    /// Four bytes at `at`.
    fn read32(self, at: usize) -> u32;
    /// A number of bits, which is below 32.
    fn short(bits: u32) -> u32;
}

impl Tables for &RunTables {
    #[inline(always)]
    fn read16(self, at: usize) -> u16 {
        u16::from_ne_bytes(*self[at..].first_chunk().unwrap_or(&[0; 2]))
    }

    #[inline(always)]
    fn read32(self, at: usize) -> u32 {
        u32::from_ne_bytes(*self[at..].first_chunk().unwrap_or(&[0; 4]))
    }

    #[inline(always)]
    fn short(bits: u32) -> u32 {
        bits & 31
    }
}

/// The lowest `bits`, fewer than 64.
#[inline(always)]
fn low_bits(value: u64, bits: u32) -> u64 {
    value & ((1 << (bits & 63)) - 1)
}

/// Writes the bit stream. The number of bytes, or `None` if they do not fit.
///
/// `starts` are of literal lengths, offsets, match lengths.
#[inline(always)]
pub(crate) fn write_bits<S: Sink, T: Tables>(
    mut out: S,
    reversed: &[[u8; 8]],
    tables: T,
    starts: [Start; 3],
) -> Option<usize> {
    let out = &mut out;
    let (last, mut rest) = reversed.split_first()?;
    let word = u64::from_ne_bytes(*last);
    let extra = Extra::of(word, tables, &Slots::of(word));
    let mut stream = Stream {
        states: starts.map(|start| start.state),
        writer: BitWriter::default(),
    };
    stream.writer.add(extra.bits, extra.lengths + extra.offset);
    stream.writer.flush(out);
    // As long as there is room for all that so many sequences may take, nobody asks at each.
    while !rest.is_empty() {
        let sure = out.len().saturating_sub(stream.writer.at() + 8) / SEQUENCE_BYTES_MAX;
        if sure == 0 {
            break;
        }
        let (now, later) = rest.split_at(sure.min(rest.len()));
        for sequence in now {
            stream.put(out, tables, *sequence, BitWriter::flush_unasked);
        }
        rest = later;
    }
    for sequence in rest {
        stream.put(out, tables, *sequence, BitWriter::flush);
    }
    let Stream { states, mut writer } = stream;
    let [ll, of, ml] = [0, 1, 2].map(|i| (states[i], starts[i].log));
    for (state, log) in [ml, of, ll] {
        writer.add(end(state, log), log);
    }
    writer.finish_with_mark(out)
}

/// Most bytes that a sequence takes: 26 bits of states, 59 of extra bits, 7 that waited.
const SEQUENCE_BYTES_MAX: usize = 12;

/// The bit stream as it grows.
struct Stream {
    /// Of literal lengths, offsets, match lengths.
    states: [u32; 3],
    writer: BitWriter,
}

impl Stream {
    #[inline(always)]
    fn put<S: Sink, T: Tables>(
        &mut self,
        out: &mut S,
        tables: T,
        sequence: [u8; 8],
        flush: impl Fn(&mut BitWriter, &mut S),
    ) {
        let word = u64::from_ne_bytes(sequence);
        let slots = Slots::of(word);
        let [ll, of, ml] = self.states;
        let (of, of_low, of_bits) = Run::OFFSETS.step(tables, of, slots.offset);
        let (ml, ml_low, ml_bits) = Run::MATCH_LENGTHS.step(tables, ml, slots.match_length);
        let (ll, ll_low, ll_bits) = Run::LITERAL_LENGTHS.step(tables, ll, slots.literal_length);
        self.states = [ll, of, ml];
        let two = of_bits + ml_bits;
        let all = two + ll_bits;
        let low = of_low | ml_low << (of_bits & 63) | ll_low << (two & 63);
        let extra = Extra::of(word, tables, &slots);
        if all + extra.lengths + extra.offset <= 56 {
            let bits = low | extra.bits << (all & 63);
            self.writer.add(bits, all + extra.lengths + extra.offset);
        } else {
            let lengths = low_bits(extra.bits, extra.lengths);
            self.writer
                .add(low | lengths << (all & 63), all + extra.lengths);
            flush(&mut self.writer, out);
            self.writer
                .add(extra.bits >> (extra.lengths & 63), extra.offset);
        }
        flush(&mut self.writer, out);
    }
}

/// Which slots of the tables a sequence uses.
struct Slots {
    literal_length: usize,
    offset: usize,
    match_length: usize,
}

impl Slots {
    #[inline(always)]
    fn of(word: u64) -> Slots {
        /// All bits of lengths that have no slot of their own.
        const LONG: u64 = 0x3_ffc0 << 28 | 0x3_ff80 << 46;
        let (literal_length, match_length) = if word & LONG == 0 {
            ((word >> 28) as usize & 63, (word >> 46) as usize & 127)
        } else {
            let sequence = Sequence::from_bits(word);
            (
                literal_length_slot(sequence.literal_length()),
                match_length_slot(sequence.match_length_less_min()),
            )
        };
        Slots {
            literal_length,
            offset: (word << 36).leading_zeros() as usize,
            match_length,
        }
    }
}

/// The code of each slot.
pub(super) fn literal_length_slots() -> impl Iterator<Item = u32> {
    let short = LITERAL_LENGTH_CODES.iter().map(|code| u32::from(*code));
    short.chain(LITERAL_LENGTH_CODE_LONG..=LITERAL_LENGTH_SYMBOL_MAX as u32)
}

/// The code of each slot.
pub(super) fn match_length_slots() -> impl Iterator<Item = u32> {
    let short = MATCH_LENGTH_CODES.iter().map(|code| u32::from(*code));
    short.chain(MATCH_LENGTH_CODE_LONG..=MATCH_LENGTH_SYMBOL_MAX as u32)
}

/// The code of each slot.
pub(super) fn offset_slots() -> impl Iterator<Item = u32> {
    (0..28).rev()
}

/// The first code of a literal length of 64, and of a match length of 131: what lies below has a slot of its own. There are
/// fewer than 16 codes behind each, which `% 16` says to the compiler and to the tables that are read without a check.
const LITERAL_LENGTH_CODE_LONG: u32 = 25;
const MATCH_LENGTH_CODE_LONG: u32 = 43;

#[inline(always)]
fn literal_length_slot(length: u32) -> usize {
    if length < 64 {
        length as usize
    } else {
        (literal_length_code(length) - LITERAL_LENGTH_CODE_LONG) as usize % 16 + 64
    }
}

#[inline(always)]
fn match_length_slot(length_less_min: u32) -> usize {
    if length_less_min < 128 {
        length_less_min as usize
    } else {
        (match_length_code(length_less_min) - MATCH_LENGTH_CODE_LONG) as usize % 16 + 128
    }
}

/// The bits that follow the codes: those of the literal length, of the match length, of the offset.
struct Extra {
    bits: u64,
    /// How many are those of both lengths: at most 30.
    lengths: u32,
    /// How many are those of the offset: at most 27.
    offset: u32,
}

impl Extra {
    #[inline(always)]
    fn of<T: Tables>(word: u64, tables: T, slots: &Slots) -> Extra {
        let ll_bits = Run::LITERAL_LENGTHS.extra_bits(tables, slots.literal_length);
        let ml_bits = Run::MATCH_LENGTHS.extra_bits(tables, slots.match_length);
        let offset = Run::OFFSETS.extra_bits(tables, slots.offset);
        let lengths = ll_bits + ml_bits;
        let bits = low_bits(word >> 28, ll_bits)
            | low_bits(word >> 46, ml_bits) << (ll_bits & 63)
            | low_bits(word, offset) << (lengths & 63);
        Extra {
            bits,
            lengths,
            offset,
        }
    }
}
