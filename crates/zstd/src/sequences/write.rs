//! Codes, and the section with the tables that take least.

use super::{
    LITERAL_LENGTH_COUNTS, LITERAL_LENGTH_LOG_MAX, MATCH_LENGTH_COUNTS, MATCH_LENGTH_LOG_MAX,
    OFFSET_COUNTS, OFFSET_LOG_MAX,
};
use crate::Error;
use crate::bits::{BitWriter, Sink};
use crate::fse::{
    COST_ONE, FseEncoder, FseTable, accuracy, cost_of_probabilities, end, normalise, start, step,
    write_description,
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
/// `counts` and `cells` are scratch.
pub(crate) fn write_sequences(
    out: &mut [u8],
    reversed: &[[u8; 8]],
    previous: &SequenceTables<'_>,
    next: &mut SequenceTables<'_>,
    counts: &mut [[u8; 4]; 192],
    cells: &mut [u8],
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
    let used = Used {
        literal_lengths: pick(
            written.new_literal_lengths,
            &next.literal_lengths,
            &previous.literal_lengths,
        ),
        offsets: pick(written.new_offsets, &next.offsets, &previous.offsets),
        match_lengths: pick(
            written.new_match_lengths,
            &next.match_lengths,
            &previous.match_lengths,
        ),
    };
    let out = out.get_mut(at..)?;
    #[cfg(not(feature = "portable"))]
    let bytes = crate::arch::entropy::write_bits(out, reversed, used)?;
    #[cfg(feature = "portable")]
    let bytes = write_bits(out, reversed, used)?;
    written.bytes = at + bytes;
    Some(written)
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

/// The three tables that are used, with their accuracies.
#[derive(Clone, Copy)]
pub(crate) struct Used<'t> {
    literal_lengths: (&'t FseTable, u32),
    offsets: (&'t FseTable, u32),
    match_lengths: (&'t FseTable, u32),
}

/// Writes the bit stream. The number of bytes, or `None` if they do not fit.
#[inline(always)]
pub(crate) fn write_bits<S: Sink>(
    mut out: S,
    reversed: &[[u8; 8]],
    used: Used<'_>,
) -> Option<usize> {
    let out = &mut out;
    let ((ll, ll_log), (of, of_log), (ml, ml_log)) =
        (used.literal_lengths, used.offsets, used.match_lengths);
    let mut writer = BitWriter::default();
    let (last, rest) = reversed.split_first()?;
    let codes = Codes::of(*last);
    let mut ll_state = start(ll, codes.literal_length);
    let mut of_state = start(of, codes.offset);
    let mut ml_state = start(ml, codes.match_length);
    codes.write_extra(&mut writer, out);
    for sequence in rest {
        let codes = Codes::of(*sequence);
        let (of_next, of_low, of_bits) = step(of, of_state, codes.offset);
        let (ml_next, ml_low, ml_bits) = step(ml, ml_state, codes.match_length);
        let (ll_next, ll_low, ll_bits) = step(ll, ll_state, codes.literal_length);
        (of_state, ml_state, ll_state) = (of_next, ml_next, ll_next);
        let low = of_low | ml_low << (of_bits & 31) | ll_low << ((of_bits + ml_bits) & 31);
        writer.add(low, of_bits + ml_bits + ll_bits);
        codes.write_extra(&mut writer, out);
    }
    writer.add(end(ml_state, ml_log), ml_log);
    writer.add(end(of_state, of_log), of_log);
    writer.add(end(ll_state, ll_log), ll_log);
    writer.finish_with_mark(out)
}

/// The three codes of a sequence, and the bits that follow them.
struct Codes {
    literal_length: u32,
    offset: u32,
    match_length: u32,
    sequence: Sequence,
}

impl Codes {
    #[inline(always)]
    fn of(bits: [u8; 8]) -> Codes {
        let sequence = Sequence::from_bits(u64::from_ne_bytes(bits));
        Codes {
            literal_length: literal_length_code(sequence.literal_length()),
            offset: offset_code(sequence.offset_value()),
            match_length: match_length_code(sequence.match_length_less_min()),
            sequence,
        }
    }

    /// Writes the extra bits and flushes. Before, at most 33 bits may wait.
    #[inline(always)]
    fn write_extra<S: Sink>(&self, writer: &mut BitWriter, out: &mut S) {
        let low = |value: u32, bits: u32| u64::from(value) & ((1_u64 << (bits & 31)) - 1);
        let ll_bits = u32::from(LITERAL_LENGTH_BITS[self.literal_length as usize & 63]);
        let ml_bits = u32::from(MATCH_LENGTH_BITS[self.match_length as usize & 63]);
        let lengths = low(self.sequence.literal_length(), ll_bits)
            | low(self.sequence.match_length_less_min(), ml_bits) << ll_bits;
        let offset = low(self.sequence.offset_value(), self.offset);
        if ll_bits + ml_bits + self.offset > 30 {
            writer.flush(out);
            writer.add(lengths, ll_bits + ml_bits);
            writer.flush(out);
            writer.add(offset, self.offset);
        } else {
            writer.add(
                lengths | offset << (ll_bits + ml_bits),
                ll_bits + ml_bits + self.offset,
            );
        }
        writer.flush(out);
    }
}
