//! Codes, and the section with the tables that take least.

use super::{
    LITERAL_LENGTH_COUNTS, LITERAL_LENGTH_LOG_MAX, MATCH_LENGTH_COUNTS, MATCH_LENGTH_LOG_MAX,
    OFFSET_COUNTS, OFFSET_LOG_MAX,
};
use crate::Error;
use crate::bits::{BitWriter, Sink};
use crate::fse::{
    COST_ONE, FseEncoder, FseTable, accuracy, cell, cost_of_probabilities, end, normalise, start,
    states, write_description,
};
use crate::workspace::{Carver, Cells};

/// The shortest match that a sequence can hold.
pub(crate) const MATCH_MIN: usize = 3;
/// Extra bits that follow each literal length code.
pub(crate) static LITERAL_LENGTH_BITS: [u8; 64] = {
    let mut bits = [0; 64];
    let rest = [
        1, 1, 1, 1, 2, 2, 3, 3, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
    ];
    let mut i = 0;
    while i < rest.len() {
        bits[16 + i] = rest[i];
        i += 1;
    }
    bits
};

/// Extra bits that follow each match length code.
pub(crate) static MATCH_LENGTH_BITS: [u8; 64] = {
    let mut bits = [0; 64];
    let rest = [
        1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
    ];
    let mut i = 0;
    while i < rest.len() {
        bits[32 + i] = rest[i];
        i += 1;
    }
    bits
};

/// Extra bits that follow each offset code.
static OFFSET_BITS: [u8; 64] = {
    let mut bits = [0; 64];
    let mut code = 0;
    while code < 32 {
        bits[code] = code as u8;
        code += 1;
    }
    bits
};

/// Codes of the lengths below a bound, from the number of extra bits of each code.
const fn codes<const N: usize>(bits: &[u8; 64]) -> [u8; N] {
    let mut table = [0; N];
    let (mut code, mut value) = (0, 0);
    while value < N {
        let next = value + (1 << bits[code]);
        while value < next && value < N {
            table[value] = code as u8;
            value += 1;
        }
        code += 1;
    }
    table
}

static LITERAL_LENGTH_CODES: [u8; 64] = codes(&LITERAL_LENGTH_BITS);
static MATCH_LENGTH_CODES: [u8; 128] = codes(&MATCH_LENGTH_BITS);

/// The code of a literal length.
#[inline(always)]
pub(crate) fn literal_length_code(length: u32) -> u32 {
    match LITERAL_LENGTH_CODES.get(length as usize) {
        Some(&code) => u32::from(code),
        None => length.ilog2() + 19,
    }
}

/// The code of a match length, given less [`MATCH_MIN`].
#[inline(always)]
pub(crate) fn match_length_code(length_less_min: u32) -> u32 {
    match MATCH_LENGTH_CODES.get(length_less_min as usize) {
        Some(&code) => u32::from(code),
        None => length_less_min.ilog2() + 36,
    }
}

/// The code of an offset value; also its number of extra bits. The value is never 0.
#[inline(always)]
pub(crate) fn offset_code(value: u32) -> u32 {
    (value | 1).ilog2()
}

/// The offset value of an offset that is not a repeat.
#[inline(always)]
pub(crate) const fn offset_value(offset: u32) -> u32 {
    offset + 3
}

/// The three last offsets after a sequence with this offset value, as a decoder will have them.
#[inline]
pub(crate) fn update_repeat_offsets(repeat: &mut [u32; 3], value: u32, literal_length: u32) {
    let [a, b, c] = *repeat;
    *repeat = match value + u32::from(value <= 3 && literal_length == 0) {
        1 => [a, b, c],
        2 => [b, a, c],
        3 => [c, a, b],
        4 if value == 3 => [a.wrapping_sub(1), a, b],
        _ => [value - 3, a, b],
    };
}

/// One sequence: literals, then a match.
///
/// Packed in a word, from the lowest bit: 28 bits of offset value, 18 of literal length, 18 of match length less
/// [`MATCH_MIN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sequence(u64);

impl Sequence {
    /// A sequence. `offset_value` is 1 to 3 for a repeat offset (whose meaning shifts when there are no literals,
    /// RFC 8878 section 3.1.1.5), else the offset plus 3. `match_length` is at least [`MATCH_MIN`].
    #[inline(always)]
    pub(crate) fn new(literal_length: u32, offset_value: u32, match_length: u32) -> Self {
        let match_length = u64::from(match_length - MATCH_MIN as u32);
        Sequence(u64::from(offset_value) | u64::from(literal_length) << 28 | match_length << 46)
    }

    /// The same, of lengths that are known to be in their range.
    #[inline(always)]
    pub(crate) fn pack(literals: usize, offset_value: u32, matched: usize) -> Self {
        let lengths = (literals as u64) << 28 | ((matched - MATCH_MIN) as u64) << 46;
        Sequence(u64::from(offset_value) | lengths)
    }

    /// The sequence in a word.
    #[inline(always)]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Sequence(bits)
    }

    /// The word of a sequence.
    #[inline(always)]
    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    /// Number of literals before the match.
    #[inline(always)]
    pub(crate) fn literal_length(self) -> u32 {
        (self.0 >> 28) as u32 & 0x3_ffff
    }

    /// Offset value, see [`Sequence::new`].
    #[inline(always)]
    pub(crate) fn offset_value(self) -> u32 {
        self.0 as u32 & 0xfff_ffff
    }

    /// Length of the match less [`MATCH_MIN`].
    #[inline(always)]
    pub(crate) fn match_length_less_min(self) -> u32 {
        (self.0 >> 46) as u32
    }

    /// Length of the match.
    #[inline(always)]
    pub(crate) fn match_length(self) -> u32 {
        self.match_length_less_min() + MATCH_MIN as u32
    }
}

/// The three tables that a sequences section is written with.
pub(crate) struct SequenceTables<'a> {
    pub(crate) literal_lengths: FseEncoder<'a>,
    pub(crate) offsets: FseEncoder<'a>,
    pub(crate) match_lengths: FseEncoder<'a>,
}

impl<'a> SequenceTables<'a> {
    /// Bytes of workspace.
    pub(crate) const BYTES: usize = 3 * FseEncoder::BYTES;

    /// Takes the tables from a workspace.
    pub(crate) fn carve(carver: &mut Carver<'a>) -> Result<Self, Error> {
        Ok(SequenceTables {
            literal_lengths: FseEncoder::carve(carver)?,
            offsets: FseEncoder::carve(carver)?,
            match_lengths: FseEncoder::carve(carver)?,
        })
    }

    /// Makes the tables unusable until they are built again.
    pub(crate) fn invalidate(&mut self) {
        self.literal_lengths.invalidate();
        self.offsets.invalidate();
        self.match_lengths.invalidate();
    }

    /// Become the same tables as `other`.
    pub(crate) fn copy_from(&mut self, other: &SequenceTables<'_>) {
        self.literal_lengths.copy_from(&other.literal_lengths);
        self.offsets.copy_from(&other.offsets);
        self.match_lengths.copy_from(&other.match_lengths);
    }
}

/// How a table is told.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Predefined = 0,
    Rle = 1,
    Fse = 2,
    Repeat = 3,
}

/// One of the three kinds of code.
struct Kind {
    predefined: &'static [i16],
    predefined_log: u32,
    log_max: u32,
}

static LITERAL_LENGTHS: Kind = Kind {
    predefined: &LITERAL_LENGTH_COUNTS,
    predefined_log: 6,
    log_max: LITERAL_LENGTH_LOG_MAX,
};
static OFFSETS: Kind = Kind {
    predefined: &OFFSET_COUNTS,
    predefined_log: 5,
    log_max: OFFSET_LOG_MAX,
};
static MATCH_LENGTHS: Kind = Kind {
    predefined: &MATCH_LENGTH_COUNTS,
    predefined_log: 6,
    log_max: MATCH_LENGTH_LOG_MAX,
};

/// The section, and which of the new tables are in force from now on (the others stay).
pub(crate) struct SequencesWritten {
    pub(crate) bytes: usize,
    pub(crate) new_literal_lengths: bool,
    pub(crate) new_offsets: bool,
    pub(crate) new_match_lengths: bool,
}

/// Writes the section. `None` if it does not fit.
///
/// `reversed` are the packed sequences, the last first; `previous` the tables in force; `next` room for others;
/// `scratch` is scratch.
pub(crate) fn write_sequences(
    out: &mut [u8],
    reversed: &[[u8; 8]],
    previous: &SequenceTables<'_>,
    next: &mut SequenceTables<'_>,
    scratch: &mut [[u8; 4]; 1024],
) -> Option<SequencesWritten> {
    let head = write_number(out, reversed.len())?;
    let mut written = SequencesWritten {
        bytes: head,
        new_literal_lengths: false,
        new_offsets: false,
        new_match_lengths: false,
    };
    if reversed.is_empty() {
        return Some(written);
    }
    let (counts, cells) = scratch.split_first_chunk_mut::<192>()?;
    let cells = cells.as_flattened_mut();
    count_codes(counts, reversed);
    let (ll_counts, rest) = counts.split_at(64);
    let (of_counts, ml_counts) = rest.split_at(64);
    let n = reversed.len() as u32;

    let mut at = head + 1;
    let mut choose =
        |kind: &Kind, counts: &[[u8; 4]], previous: &FseEncoder<'_>, next: &mut FseEncoder<'_>| {
            let room = out.get_mut(at..)?;
            let (mode, bytes) = choose_table(kind, room, counts, n, previous, next, cells)?;
            at += bytes;
            Some(mode)
        };
    let ll_mode = choose(
        &LITERAL_LENGTHS,
        ll_counts,
        &previous.literal_lengths,
        &mut next.literal_lengths,
    )?;
    let of_mode = choose(&OFFSETS, of_counts, &previous.offsets, &mut next.offsets)?;
    let ml_mode = choose(
        &MATCH_LENGTHS,
        ml_counts,
        &previous.match_lengths,
        &mut next.match_lengths,
    )?;
    *out.get_mut(head)? = (ll_mode as u8) << 6 | (of_mode as u8) << 4 | (ml_mode as u8) << 2;
    written.new_literal_lengths = ll_mode != Mode::Repeat;
    written.new_offsets = of_mode != Mode::Repeat;
    written.new_match_lengths = ml_mode != Mode::Repeat;
    fn pick<'t>(
        new: bool,
        next: &'t FseEncoder<'_>,
        previous: &'t FseEncoder<'_>,
    ) -> (&'t FseTable, u32) {
        if new { next.table() } else { previous.table() }
    }
    let out = out.get_mut(at..)?;
    let last = Sequence::from_bits(u64::from_ne_bytes(*reversed.first()?));
    let run = scratch.as_flattened_mut().first_chunk_mut()?;
    let ends = [
        Run::LITERAL_LENGTHS.fill(
            run,
            pick(
                written.new_literal_lengths,
                &next.literal_lengths,
                &previous.literal_lengths,
            ),
            literal_length_code(last.literal_length()),
        ),
        Run::OFFSETS.fill(
            run,
            pick(written.new_offsets, &next.offsets, &previous.offsets),
            offset_code(last.offset_value()),
        ),
        Run::MATCH_LENGTHS.fill(
            run,
            pick(
                written.new_match_lengths,
                &next.match_lengths,
                &previous.match_lengths,
            ),
            match_length_code(last.match_length_less_min()),
        ),
    ];
    #[cfg(not(feature = "portable"))]
    let bytes = crate::arch::entropy::write_bits(out, reversed, run, ends)?;
    #[cfg(feature = "portable")]
    let bytes = write_bits(out, reversed, run, ends)?;
    written.bytes = at + bytes;
    Some(written)
}

/// Bytes that the section takes at least: the bits that follow the codes of offsets, whichever tables there are.
pub(crate) fn sequences_least_bytes(reversed: &[[u8; 8]]) -> usize {
    let code = |bits: &[u8; 8]| {
        offset_code(Sequence::from_bits(u64::from_ne_bytes(*bits)).offset_value()) as usize
    };
    reversed.iter().map(code).sum::<usize>() / 8
}

/// Writes the number of sequences.
fn write_number(out: &mut [u8], n: usize) -> Option<usize> {
    let (bytes, used) = match n {
        0..128 => ([n as u8, 0, 0], 1),
        128..0x7f00 => ([(n >> 8) as u8 + 128, n as u8, 0], 2),
        _ => ([255, (n - 0x7f00) as u8, ((n - 0x7f00) >> 8) as u8], 3),
    };
    out.get_mut(..used)?.copy_from_slice(&bytes[..used]);
    Some(used)
}

/// Counts the codes: 64 cells each of literal lengths, offsets, match lengths.
fn count_codes(counts: &mut [[u8; 4]; 192], reversed: &[[u8; 8]]) {
    counts.fill([0; 4]);
    let (ll, rest) = counts.split_at_mut(64);
    let (of, ml) = rest.split_at_mut(64);
    for bits in reversed {
        let sequence = Sequence::from_bits(u64::from_ne_bytes(*bits));
        let code = literal_length_code(sequence.literal_length()) as usize & 63;
        ll.put(code, ll.at(code) + 1);
        let code = offset_code(sequence.offset_value()) as usize & 63;
        of.put(code, of.at(code) + 1);
        let code = match_length_code(sequence.match_length_less_min()) as usize & 63;
        ml.put(code, ml.at(code) + 1);
    }
}

/// Chooses the cheapest way to tell a table, writes its description, and builds it in `next` unless the previous
/// one stays.
#[inline(never)]
fn choose_table(
    kind: &Kind,
    out: &mut [u8],
    counts: &[[u8; 4]],
    n: u32,
    previous: &FseEncoder<'_>,
    next: &mut FseEncoder<'_>,
    cells: &mut [u8],
) -> Option<(Mode, usize)> {
    let largest = (0..counts.len()).rposition(|code| counts.at(code) != 0)?;
    let counts = &counts[..=largest];
    let most = (0..=largest).map(|code| counts.at(code)).max()?;
    let predefined = cost_of_probabilities(counts, kind.predefined, kind.predefined_log);
    if most == n && (n > 2 || predefined.is_none()) {
        // A single code: free but for its byte. The table in force may be the same.
        if previous.is_valid() && previous.cost(largest) == Some(0) {
            return Some((Mode::Repeat, 0));
        }
        *out.first_mut()? = largest as u8;
        next.build_single(largest);
        return Some((Mode::Rle, 1));
    }
    let repeat = if previous.is_valid() {
        cost_of_table(counts, previous)
    } else {
        None
    };
    let old = predefined
        .unwrap_or(u64::MAX)
        .min(repeat.unwrap_or(u64::MAX));
    let log = accuracy(kind.log_max, n, largest);
    if u64::from(n) >= 8 && old > 48 || old == u64::MAX {
        let mut probabilities = [0_i16; 64];
        let probabilities = probabilities.get_mut(..=largest)?;
        normalise(probabilities, counts, n, log, n >= 2048);
        let bytes = write_description(out, probabilities, log)?;
        let cost = cost_of_probabilities(counts, probabilities, log)? + 8 * bytes as u64;
        if cost < old {
            next.build(probabilities, log, cells);
            return Some((Mode::Fse, bytes));
        }
    }
    if repeat.is_some_and(|cost| cost <= old) {
        return Some((Mode::Repeat, 0));
    }
    next.build(kind.predefined, kind.predefined_log, cells);
    Some((Mode::Predefined, 0))
}

fn cost_of_table(counts: &[[u8; 4]], table: &FseEncoder<'_>) -> Option<u64> {
    let mut cost = 0;
    for code in 0..counts.len() {
        let count = counts.at(code);
        if count != 0 {
            cost += u64::from(count) * u64::from(table.cost(code)?);
        }
    }
    Some(cost / u64::from(COST_ONE))
}

/// The three tables that are used, side by side: for each code four bytes, then for each state two.
///
/// What a code holds, from the lowest bit: 16 bits by which a state must be raised so that what is above its eleventh bit
/// is the number of bits to write; 9 bits, where the code's states begin; 1 unused; 6 bits, the number of extra bits.
pub(crate) type RunTables = [u8; 4096];

/// Where the table of one kind of code lies in [`RunTables`].
struct Run {
    codes: usize,
    states: usize,
    log_max: u32,
    /// Whether slots are numbered by the leading zeros of a value of 28 bits, not by the code.
    by_zeros: bool,
    extra_bits: &'static [u8; 64],
}

/// A state to begin with, and the accuracy of its table.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    state: u32,
    log: u32,
}

impl Run {
    const LITERAL_LENGTHS: Run = Run {
        codes: 0,
        states: 1024,
        log_max: LITERAL_LENGTH_LOG_MAX,
        by_zeros: false,
        extra_bits: &LITERAL_LENGTH_BITS,
    };
    const MATCH_LENGTHS: Run = Run {
        codes: 256,
        states: 2048,
        log_max: MATCH_LENGTH_LOG_MAX,
        by_zeros: false,
        extra_bits: &MATCH_LENGTH_BITS,
    };
    const OFFSETS: Run = Run {
        codes: 512,
        states: 3072,
        log_max: OFFSET_LOG_MAX,
        by_zeros: true,
        extra_bits: &OFFSET_BITS,
    };

    /// Takes a table over. The state that yields `last`.
    fn fill(&self, tables: &mut RunTables, (table, log): (&FseTable, u32), last: u32) -> Start {
        let state = start(table, last);
        let codes = tables[self.codes..][..256].as_chunks_mut::<4>().0;
        for (slot, place) in (0..).zip(codes) {
            let code = if self.by_zeros {
                27_u32.saturating_sub(slot)
            } else {
                slot
            };
            let (raise, first) = cell(table, code);
            let extra = u32::from(self.extra_bits[code as usize & 63]);
            let entry = raise & 0xffff | (first & 0x1ff) << 16 | extra << 26;
            *place = entry.to_ne_bytes();
        }
        tables[self.states..][..2 << self.log_max]
            .copy_from_slice(&states(table)[..2 << self.log_max]);
        Start { state, log }
    }

    /// What the table has in a slot.
    #[inline(always)]
    fn entry(&self, tables: &RunTables, slot: usize) -> u32 {
        let at = self.codes + 4 * slot;
        u32::from_ne_bytes(*tables[at..].first_chunk().unwrap_or(&[0; 4]))
    }

    /// The state that leads on to this entry's symbol, and the bits to write with their number.
    #[inline(always)]
    fn step(&self, tables: &RunTables, state: u32, entry: u32) -> (u32, u64, u32) {
        let bits = u32::from((state as u16).wrapping_add(entry as u16) >> 11);
        let place = (state >> bits).wrapping_add(entry >> 16) as usize & ((1 << self.log_max) - 1);
        let at = self.states + 2 * place;
        let next = u16::from_ne_bytes(*tables[at..].first_chunk().unwrap_or(&[0; 2]));
        (next.into(), low_bits(state.into(), bits), bits)
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
pub(crate) fn write_bits<S: Sink>(
    mut out: S,
    reversed: &[[u8; 8]],
    tables: &RunTables,
    starts: [Start; 3],
) -> Option<usize> {
    let out = &mut out;
    let [mut ll, mut of, mut ml] = starts.map(|start| start.state);
    let mut writer = BitWriter::default();
    let (last, rest) = reversed.split_first()?;
    let word = u64::from_ne_bytes(*last);
    let slots = Slots::of(word);
    let extra = Extra::of(
        word,
        Run::LITERAL_LENGTHS.entry(tables, slots.literal_length),
        Run::OFFSETS.entry(tables, slots.offset),
        Run::MATCH_LENGTHS.entry(tables, slots.match_length),
    );
    writer.add(extra.bits, extra.lengths + extra.offset);
    writer.flush(out);
    for sequence in rest {
        let word = u64::from_ne_bytes(*sequence);
        let slots = Slots::of(word);
        let of_entry = Run::OFFSETS.entry(tables, slots.offset);
        let ml_entry = Run::MATCH_LENGTHS.entry(tables, slots.match_length);
        let ll_entry = Run::LITERAL_LENGTHS.entry(tables, slots.literal_length);
        let (of_next, of_low, of_bits) = Run::OFFSETS.step(tables, of, of_entry);
        let (ml_next, ml_low, ml_bits) = Run::MATCH_LENGTHS.step(tables, ml, ml_entry);
        let (ll_next, ll_low, ll_bits) = Run::LITERAL_LENGTHS.step(tables, ll, ll_entry);
        (of, ml, ll) = (of_next, ml_next, ll_next);
        let two = of_bits + ml_bits;
        let all = two + ll_bits;
        let low = of_low | ml_low << (of_bits & 63) | ll_low << (two & 63);
        let extra = Extra::of(word, ll_entry, of_entry, ml_entry);
        if all + extra.lengths + extra.offset <= 56 {
            writer.add(
                low | extra.bits << (all & 63),
                all + extra.lengths + extra.offset,
            );
        } else {
            writer.add(low, all);
            writer.flush(out);
            writer.add(low_bits(extra.bits, extra.lengths), extra.lengths);
            writer.flush(out);
            writer.add(extra.bits >> (extra.lengths & 63), extra.offset);
        }
        writer.flush(out);
    }
    let [ll_log, of_log, ml_log] = starts.map(|start| start.log);
    writer.add(end(ml, ml_log), ml_log);
    writer.add(end(of, of_log), of_log);
    writer.add(end(ll, ll_log), ll_log);
    writer.finish_with_mark(out)
}

/// Which entries of the tables a sequence uses.
struct Slots {
    literal_length: usize,
    offset: usize,
    match_length: usize,
}

impl Slots {
    #[inline(always)]
    fn of(word: u64) -> Slots {
        /// All bits of lengths that have no place in a table of codes.
        const LONG: u64 = 0x3_ffc0 << 28 | 0x3_ff80 << 46;
        let (literal_length, match_length) = if word & LONG == 0 {
            (
                LITERAL_LENGTH_CODES[(word >> 28) as usize & 63].into(),
                MATCH_LENGTH_CODES[(word >> 46) as usize & 127].into(),
            )
        } else {
            let sequence = Sequence::from_bits(word);
            (
                literal_length_code(sequence.literal_length()),
                match_length_code(sequence.match_length_less_min()),
            )
        };
        Slots {
            literal_length: literal_length as usize,
            offset: (word << 36).leading_zeros() as usize,
            match_length: match_length as usize,
        }
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
    fn of(word: u64, ll_entry: u32, of_entry: u32, ml_entry: u32) -> Extra {
        let (ll_bits, ml_bits, offset) = (ll_entry >> 26, ml_entry >> 26, of_entry >> 26);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// Of equal sequences only the bits behind their codes are written: that many, and few bytes more.
    #[test]
    fn offsets_take_the_least() {
        let mut memory = vec![0; Carver::SLACK + 2 * SequenceTables::BYTES];
        let mut carver = Carver::new(&mut memory);
        let mut previous = SequenceTables::carve(&mut carver).unwrap();
        let mut next = SequenceTables::carve(&mut carver).unwrap();
        previous.invalidate();
        for value in [1_u32, 300, 0x1_0000, 0x7ff_ffff] {
            let word = Sequence::new(2, value, 5).bits().to_ne_bytes();
            let reversed: Vec<_> = vec![word; 1000];
            let mut out = [0; 4000];
            let written = write_sequences(
                &mut out,
                &reversed,
                &previous,
                &mut next,
                &mut [[0; 4]; 1024],
            )
            .unwrap()
            .bytes;
            let least = sequences_least_bytes(&reversed);
            assert_eq!(least, 125 * value.ilog2() as usize);
            assert!(
                least < written && written < least + 10,
                "{least}, {written}"
            );
        }
    }
}
