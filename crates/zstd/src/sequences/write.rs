//! Codes, and the section with the tables that take least.

use super::{
    LITERAL_LENGTH_COUNTS, LITERAL_LENGTH_LOG_MAX, MATCH_LENGTH_COUNTS, MATCH_LENGTH_LOG_MAX,
    OFFSET_COUNTS, OFFSET_LOG_MAX,
};
use crate::Error;
use crate::bits::{BitWriter, Sink};
use crate::fse::{
    COST_ONE, FseEncoder, FseTable, accuracy, cost_of_probabilities, end, normalise, start, states,
    symbol, write_description,
};
use crate::workspace::{Carver, Cells, Scratch};

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

/// The offset value that means `offset` after these last offsets.
pub(crate) fn offset_name(repeat: &[u32; 3], offset: u32, literal_length: u32) -> u32 {
    let [a, b, c] = *repeat;
    let names = if literal_length == 0 {
        [b, c, a.wrapping_sub(1)]
    } else {
        [a, b, c]
    };
    match (1..).zip(names).find(|(_, late)| *late == offset) {
        Some((name, _)) => name,
        None => offset_value(offset),
    }
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
/// `reversed` are the packed sequences, the last first; `counts` those of their codes; `previous` the tables in force;
/// `next` room for others; `scratch` is scratch.
pub(crate) fn write_sequences(
    out: &mut [u8],
    reversed: &[[u8; 8]],
    counts: &[[u8; 4]; CODES],
    previous: &SequenceTables<'_>,
    next: &mut SequenceTables<'_>,
    scratch: &mut Scratch,
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
    let cells = scratch.as_flattened_mut();
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
    let lengths = pick(
        written.new_literal_lengths,
        &next.literal_lengths,
        &previous.literal_lengths,
    );
    let offsets = pick(written.new_offsets, &next.offsets, &previous.offsets);
    let matches = pick(
        written.new_match_lengths,
        &next.match_lengths,
        &previous.match_lengths,
    );
    let starts = [
        Run::LITERAL_LENGTHS.fill(
            run,
            lengths,
            literal_length_slots(),
            literal_length_code(last.literal_length()),
        ),
        Run::OFFSETS.fill(
            run,
            offsets,
            offset_slots(),
            offset_code(last.offset_value()),
        ),
        Run::MATCH_LENGTHS.fill(
            run,
            matches,
            match_length_slots(),
            match_length_code(last.match_length_less_min()),
        ),
    ];
    #[cfg(not(feature = "portable"))]
    let bytes = crate::arch::entropy::write_bits(out, reversed, run, starts)?;
    #[cfg(feature = "portable")]
    let bytes = write_bits(out, reversed, &*run, starts)?;
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

/// The three tables that are used, side by side: for each slot eight bytes, then for each state two. Slots are numbered by
/// what they stand for, so that no code need be looked up.
///
/// What a slot holds: 32 bits by which a state must be raised so that its upper 16 bits are the number of bits to write; 16
/// bits, where the code's states begin; 16 bits, the number of extra bits.
pub(crate) type RunTables = [u8; 4608];

/// Where the table of one kind of code lies in [`RunTables`].
struct Run {
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
    const LITERAL_LENGTHS: Run = Run {
        slots: 0,
        states: 2048,
        log_max: LITERAL_LENGTH_LOG_MAX,
        extra_bits: &LITERAL_LENGTH_BITS,
    };
    /// Lengths less [`MATCH_MIN`]; those of 128 and more have a slot for each code.
    const MATCH_LENGTHS: Run = Run {
        slots: 640,
        states: 3072,
        log_max: MATCH_LENGTH_LOG_MAX,
        extra_bits: &MATCH_LENGTH_BITS,
    };
    /// By the leading zeros of a value of 28 bits.
    const OFFSETS: Run = Run {
        slots: 1792,
        states: 4096,
        log_max: OFFSET_LOG_MAX,
        extra_bits: &OFFSET_BITS,
    };

    /// Takes a table over, whose slots have these codes. The state that yields `last`.
    fn fill(
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
fn literal_length_slots() -> impl Iterator<Item = u32> {
    let short = LITERAL_LENGTH_CODES.iter().map(|code| u32::from(*code));
    short.chain(LITERAL_LENGTH_CODE_LONG..36)
}

/// The code of each slot.
fn match_length_slots() -> impl Iterator<Item = u32> {
    let short = MATCH_LENGTH_CODES.iter().map(|code| u32::from(*code));
    short.chain(MATCH_LENGTH_CODE_LONG..53)
}

/// The code of each slot.
fn offset_slots() -> impl Iterator<Item = u32> {
    (0..28).rev()
}

/// Codes that literal lengths from 64 on have, and match lengths from 131 on.
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
            let (mut counts, mut scratch) = ([[0; 4]; CODES], [[0; 4]; 1152]);
            count_codes::<false>(&mut counts, &reversed, 0, &mut scratch);
            let mut out = [0; 4000];
            let written = write_sequences(
                &mut out,
                &reversed,
                &counts,
                &previous,
                &mut next,
                &mut scratch,
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
