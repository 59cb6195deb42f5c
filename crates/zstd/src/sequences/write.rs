//! The section with the tables that take least.

use super::code::{Sequence, literal_length_code, match_length_code, offset_code};
use super::slots::CODES;
use super::{
    LITERAL_LENGTH_COUNTS, LITERAL_LENGTH_LOG_MAX, MATCH_LENGTH_COUNTS, MATCH_LENGTH_LOG_MAX,
    OFFSET_COUNTS, OFFSET_LOG_MAX,
};
use crate::checked::Checked;
use crate::encode::streams::sequences::RunTables;
#[cfg(feature = "steps")]
use crate::fse::read_distribution;
use crate::fse::{
    COST_ONE, FseEncoder, SpreadCells, accuracy, cost_of_probabilities, costs, normalise,
    sum_of_costs, write_description,
};
use crate::workspace::{Carver, Cells, Scratch};

/// The three tables that a sequences section is written with.
pub(crate) struct SequenceTables<'a> {
    pub(crate) literal_lengths: FseEncoder<'a>,
    pub(crate) offsets: FseEncoder<'a>,
    pub(crate) match_lengths: FseEncoder<'a>,
}

impl<'a> SequenceTables<'a> {
    /// Bytes of workspace.
    pub(crate) const BYTES: usize = 3 * FseEncoder::BYTES;

    /// Takes the tables from a workspace, as they are.
    pub(crate) fn carve(carver: &mut Carver<'a>) -> Checked<Self> {
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

/// How a table is described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Predefined = 0,
    Rle = 1,
    Fse = 2,
    Repeat = 3,
}

/// One of the three kinds of code.
struct CodeKind {
    predefined: &'static [i16],
    predefined_log: u32,
    /// The cost of each code under the predefined distribution.
    costs: &'static [u16],
    log_max: u32,
}

static LITERAL_LENGTHS: CodeKind = CodeKind {
    predefined: &LITERAL_LENGTH_COUNTS,
    predefined_log: 6,
    costs: &costs(&LITERAL_LENGTH_COUNTS, 6),
    log_max: LITERAL_LENGTH_LOG_MAX,
};
static OFFSETS: CodeKind = CodeKind {
    predefined: &OFFSET_COUNTS,
    predefined_log: 5,
    costs: &costs(&OFFSET_COUNTS, 5),
    log_max: OFFSET_LOG_MAX,
};
static MATCH_LENGTHS: CodeKind = CodeKind {
    predefined: &MATCH_LENGTH_COUNTS,
    predefined_log: 6,
    costs: &costs(&MATCH_LENGTH_COUNTS, 6),
    log_max: MATCH_LENGTH_LOG_MAX,
};

/// The section, and which of the new tables are current from now on (the others stay).
pub(crate) struct SequencesWritten {
    pub(crate) bytes: usize,
    pub(crate) new_literal_lengths: bool,
    pub(crate) new_offsets: bool,
    pub(crate) new_match_lengths: bool,
}

/// Writes the section. `None` if it does not fit.
///
/// `reversed` are the packed sequences, the last first; `counts` those of their codes; `previous`
/// the current tables; `next` room for others; `scratch` is scratch.
#[inline(never)]
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
    let cells = scratch.as_flattened_mut().first_chunk_mut()?;
    let (ll_counts, rest) = counts.split_at(64);
    let (of_counts, ml_counts) = rest.split_at(64);
    let n = reversed.len() as u32;

    let mut at = head + 1;
    let mut choose = |kind: &CodeKind,
                      counts: &[[u8; 4]],
                      previous: &FseEncoder<'_>,
                      next: &mut FseEncoder<'_>| {
        let room = out.get_mut(at..)?;
        let largest = (0..counts.len()).rposition(|code| counts.at(code) != 0)?;
        let counts = counts.get(..=largest)?;
        let (mode, bytes) = choose_table(kind, room, counts, n, previous, next, cells)?;
        at += bytes;
        Some((mode, largest as u32))
    };
    let (ll_mode, ll_largest) = choose(
        &LITERAL_LENGTHS,
        ll_counts,
        &previous.literal_lengths,
        &mut next.literal_lengths,
    )?;
    let (of_mode, of_largest) = choose(&OFFSETS, of_counts, &previous.offsets, &mut next.offsets)?;
    let (ml_mode, ml_largest) = choose(
        &MATCH_LENGTHS,
        ml_counts,
        &previous.match_lengths,
        &mut next.match_lengths,
    )?;
    *out.get_mut(head)? = (ll_mode as u8) << 6 | (of_mode as u8) << 4 | (ml_mode as u8) << 2;
    written.new_literal_lengths = ll_mode != Mode::Repeat;
    written.new_offsets = of_mode != Mode::Repeat;
    written.new_match_lengths = ml_mode != Mode::Repeat;
    fn pick<'t, 'a>(
        new: bool,
        next: &'t FseEncoder<'a>,
        previous: &'t FseEncoder<'a>,
    ) -> &'t FseEncoder<'a> {
        if new { next } else { previous }
    }
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
    let bytes = write_codes(
        out.get_mut(at..)?,
        reversed,
        [lengths, offsets, matches],
        [ll_largest, of_largest, ml_largest],
        scratch,
    )?;
    written.bytes = at + bytes;
    Some(written)
}

/// Writes the codes of the sequences with these tables, whose largest codes these are.
fn write_codes(
    out: &mut [u8],
    reversed: &[[u8; 8]],
    [lengths, offsets, matches]: [&FseEncoder<'_>; 3],
    largest: [u32; 3],
    scratch: &mut Scratch,
) -> Option<usize> {
    let last = Sequence::from_bits(u64::from_ne_bytes(*reversed.first()?));
    let memory = scratch.as_flattened_mut().first_chunk_mut()?;
    let [lengths, offsets, matches] = [lengths.table(), offsets.table(), matches.table()];
    let codes = [
        literal_length_code(last.literal_length()),
        offset_code(last.offset_value()),
        match_length_code(last.match_length_less_min()),
    ];
    let (run, starts) = RunTables::new(
        memory,
        [
            (lengths.0, lengths.1, codes[0], largest[0]),
            (offsets.0, offsets.1, codes[1], largest[1]),
            (matches.0, matches.1, codes[2], largest[2]),
        ],
    )
    .ok()?;
    #[cfg(feature = "arch")]
    return crate::arch::entropy::write_bits(out, reversed, run, starts);
    #[cfg(not(feature = "arch"))]
    crate::encode::streams::sequences::write_bits(out, reversed, run, starts)
}

/// Writes the section with tables of the modes and descriptions that are taken from the beginning
/// of `described`. `None` if it does not fit, or a table is not valid or lacks a code.
///
/// `counts` are those of the codes; the tables stay as the section leaves them.
#[cfg(feature = "steps")]
pub(crate) fn write_described_sequences(
    out: &mut [u8],
    reversed: &[[u8; 8]],
    counts: &[[u8; 4]; CODES],
    described: &mut &[u8],
    tables: &mut SequenceTables<'_>,
    scratch: &mut Scratch,
) -> Option<usize> {
    let head = write_number(out, reversed.len())?;
    if reversed.is_empty() {
        return Some(head);
    }
    let modes = *described.split_off_first()?;
    *out.get_mut(head)? = modes;
    let mut at = head + 1;
    let SequenceTables {
        literal_lengths,
        offsets,
        match_lengths,
    } = tables;
    let kinds = [
        (&LITERAL_LENGTHS, &mut *literal_lengths),
        (&OFFSETS, &mut *offsets),
        (&MATCH_LENGTHS, &mut *match_lengths),
    ];
    let mut largest = [0; 3];
    for (i, ((kind, table), counts)) in kinds.into_iter().zip(counts.chunks(64)).enumerate() {
        let cells = scratch.as_flattened_mut().first_chunk_mut()?;
        let bytes = match modes >> (6 - 2 * i) & 3 {
            0 => {
                let built = table.build(kind.predefined, kind.predefined_log, cells);
                built.ok().map(|()| 0)?
            }
            1 => {
                table.build_single(usize::from(*described.first()?));
                1
            }
            2 => {
                let mut probabilities = [0_i16; 64];
                let places = probabilities.get_mut(..MATCH_LENGTH_COUNTS.len())?;
                let found = read_distribution(described, kind.log_max, places).ok()?;
                let probabilities = probabilities.get(..found.symbols)?;
                table.build(probabilities, found.log, cells).ok()?;
                found.bytes
            }
            _ => table.is_valid().then_some(0)?,
        };
        let description = described.split_off(..bytes)?;
        out.get_mut(at..at + bytes)?.copy_from_slice(description);
        at += bytes;
        let last = (0..counts.len()).rposition(|code| counts.at(code) != 0)?;
        cost_of_table(counts.get(..=last)?, table)?;
        largest[i] = last as u32;
    }
    let tables = [&*literal_lengths, &*offsets, &*match_lengths];
    let bytes = write_codes(out.get_mut(at..)?, reversed, tables, largest, scratch)?;
    Some(at + bytes)
}

/// Bytes that the section takes at least: the bits that follow the codes of offsets, whichever
/// tables there are.
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

/// Chooses the cheapest mode of a table for `counts`, the last of which is not 0, writes its
/// description, and builds it in `next` unless the previous one stays.
#[inline(never)]
fn choose_table(
    kind: &CodeKind,
    out: &mut [u8],
    counts: &[[u8; 4]],
    n: u32,
    previous: &FseEncoder<'_>,
    next: &mut FseEncoder<'_>,
    cells: &mut SpreadCells,
) -> Option<(Mode, usize)> {
    let largest = counts.len() - 1;
    let most = counts.iter().map(|count| u32::from_ne_bytes(*count));
    let most = most.max()?;
    let predefined = sum_of_costs(counts, kind.costs);
    if most == n && (n > 2 || predefined.is_none()) {
        // A single code costs only its byte. The current table may be the same.
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
        normalise(probabilities, counts, n, log, n >= 2048).ok()?;
        // Where its description has no room, an old table may do.
        let bytes = write_description(out, probabilities, log);
        if let Some(bytes) = bytes
            && cost_of_probabilities(counts, probabilities, log)? + 8 * (bytes as u64) < old
        {
            next.build(probabilities, log, cells).ok()?;
            return Some((Mode::Fse, bytes));
        }
        if old == u64::MAX {
            return None;
        }
    }
    if repeat.is_some_and(|cost| cost <= old) {
        return Some((Mode::Repeat, 0));
    }
    next.build(kind.predefined, kind.predefined_log, cells)
        .ok()?;
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

#[cfg(test)]
mod tests {
    use super::super::slots::count_codes;
    use super::*;
    use std::vec;
    use std::vec::Vec;

    /// Tables that are not valid yet, two of each kind.
    fn tables<'a>(memory: &'a mut Vec<u8>) -> [SequenceTables<'a>; 2] {
        let bytes = 2 * SequenceTables::BYTES;
        memory.resize(Carver::SLACK + bytes, 0);
        let mut carver = Carver::new(memory, bytes).unwrap();
        let mut tables = [(); 2].map(|()| SequenceTables::carve(&mut carver).unwrap());
        tables.iter_mut().for_each(SequenceTables::invalidate);
        tables
    }

    /// How [`choose_table`] gives a table for these counts of codes, and the bytes of its
    /// description.
    fn choice(kind: &CodeKind, counts: &[u32], previous: &FseEncoder<'_>) -> (Mode, Vec<u8>) {
        let mut memory = Vec::new();
        let [mut next, _] = tables(&mut memory);
        let (mut out, mut cells) = ([0; 100], [0; size_of::<SpreadCells>()]);
        let n = counts.iter().sum();
        let counts: Vec<_> = counts.iter().map(|count| count.to_ne_bytes()).collect();
        let next = &mut next.offsets;
        let (mode, bytes) =
            choose_table(kind, &mut out, &counts, n, previous, next, &mut cells).unwrap();
        assert_eq!(next.is_valid(), mode != Mode::Repeat);
        (mode, out[..bytes].to_vec())
    }

    /// Counts of a single code.
    fn only(code: usize, count: u32) -> Vec<u32> {
        let mut counts = vec![0; code + 1];
        counts[code] = count;
        counts
    }

    #[test]
    fn a_single_code_takes_a_byte_if_it_occurs_three_times_or_has_no_other_table() {
        let mut memory = Vec::new();
        let [mut tables, _] = tables(&mut memory);
        let previous = &mut tables.offsets;
        for n in [3, 4, 1000] {
            assert_eq!(
                choice(&OFFSETS, &only(7, n), previous),
                (Mode::Rle, vec![7])
            );
        }
        // The predefined table lacks the codes after 28.
        for n in [1, 2] {
            assert_eq!(
                choice(&OFFSETS, &only(28, n), previous),
                (Mode::Predefined, vec![])
            );
            assert_eq!(
                choice(&OFFSETS, &only(29, n), previous),
                (Mode::Rle, vec![29])
            );
        }
        previous.build_single(7);
        assert_eq!(
            choice(&OFFSETS, &only(7, 3), previous),
            (Mode::Repeat, vec![])
        );
        assert_eq!(
            choice(&OFFSETS, &only(6, 3), previous),
            (Mode::Rle, vec![6])
        );
        // A table in which the code is one of many does not cost nothing.
        let cells = &mut [0; size_of::<SpreadCells>()];
        previous.build(&OFFSET_COUNTS, 5, cells).unwrap();
        assert_eq!(
            choice(&OFFSETS, &only(7, 3), previous),
            (Mode::Rle, vec![7])
        );
        previous.build_single(7);
        previous.invalidate();
        assert_eq!(
            choice(&OFFSETS, &only(7, 3), previous),
            (Mode::Rle, vec![7])
        );
    }

    /// Of equal sequences only the bits after their codes are written: that many, and few bytes
    /// more.
    #[test]
    fn offsets_take_the_least() {
        let mut memory = Vec::new();
        let [previous, mut next] = tables(&mut memory);
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
