//! The bit stream of sequences.

use super::{Out, below_32, read};
use crate::bits::{BitWriter, put_bytes};
use crate::checked::{Checked, CheckedSlice};
use crate::fse::{FseTable, end, start, states, symbol};
use crate::sequences::{
    LITERAL_LENGTH_BITS, LITERAL_LENGTH_CODE_LONG, LITERAL_LENGTH_LOG_MAX, MATCH_LENGTH_BITS,
    MATCH_LENGTH_CODE_LONG, MATCH_LENGTH_LOG_MAX, OFFSET_BITS, OFFSET_LOG_MAX, OFFSET_SLOTS,
    Sequence, literal_length_code, match_length_code,
};

/// The three tables that are used, side by side: for each slot eight bytes, then for each state
/// two. Slots are numbered by value, so that no code need be looked up.
///
/// A slot holds 32 bits to add to a state so that its upper 16 bits are the number of bits to
/// write; 16 bits, the start of the code's states; 16 bits, the number of extra bits. Both numbers
/// of bits are below 32 for any source tables: [`RunTableLayout::fill`] ensures it.
#[derive(Clone, Copy)]
pub(crate) struct RunTables<'a>(&'a [u8; RUN_BYTES]);

/// Bytes of [`RunTables`].
pub(crate) const RUN_BYTES: usize = 4608;

impl<'a> RunTables<'a> {
    /// The tables of literal lengths, offsets, match lengths, each with its accuracy, the code of
    /// the last sequence and the largest code; and the states that yield the codes of the last
    /// sequence.
    pub(crate) fn new(
        memory: &'a mut [u8; RUN_BYTES],
        [ll, of, ml]: [(&FseTable, u32, u32, u32); 3],
    ) -> Checked<(Self, [StartState; 3])> {
        let starts = [
            RunTableLayout::LITERAL_LENGTHS.fill(memory, ll)?,
            RunTableLayout::OFFSETS.fill(memory, of)?,
            RunTableLayout::MATCH_LENGTHS.fill(memory, ml)?,
        ];
        Ok((RunTables(memory), starts))
    }
}

/// Where the table of one kind of code lies in [`RunTables`].
struct RunTableLayout {
    slots: usize,
    slots_end: usize,
    states: usize,
    log_max: u32,
    extra_bits: &'static [u8; 64],
    /// Codes below this have a slot for each value of their extra bits, all others one.
    first_long: u32,
}

/// A state to begin with, and the accuracy of its table.
#[derive(Clone, Copy)]
pub(crate) struct StartState {
    state: u32,
    log: u32,
}

impl RunTableLayout {
    /// Lengths of 64 and more have a slot for each code.
    const LITERAL_LENGTHS: RunTableLayout = RunTableLayout {
        slots: 0,
        slots_end: 640,
        states: 2048,
        log_max: LITERAL_LENGTH_LOG_MAX,
        extra_bits: &LITERAL_LENGTH_BITS,
        first_long: LITERAL_LENGTH_CODE_LONG,
    };
    /// Lengths less `MATCH_MIN`; those of 128 and more have a slot for each code.
    const MATCH_LENGTHS: RunTableLayout = RunTableLayout {
        slots: 640,
        slots_end: 1792,
        states: 3072,
        log_max: MATCH_LENGTH_LOG_MAX,
        extra_bits: &MATCH_LENGTH_BITS,
        first_long: MATCH_LENGTH_CODE_LONG,
    };
    /// By the leading zeros of a value of 28 bits.
    const OFFSETS: RunTableLayout = RunTableLayout {
        slots: 1792,
        slots_end: 2048,
        states: 4096,
        log_max: OFFSET_LOG_MAX,
        extra_bits: &OFFSET_BITS,
        first_long: 0,
    };

    /// Takes a table over. The state that yields `last`.
    fn fill(
        &self,
        tables: &mut [u8; RUN_BYTES],
        (table, log, last, largest): (&FseTable, u32, u32, u32),
    ) -> Checked<StartState> {
        let state = start(table, last) & 0xffff;
        let places = tables.checked_mut(self.slots..self.slots_end)?;
        let places = places.as_chunks_mut::<8>().0;
        // Slots that no code has are read, if at all, as those of no bits.
        places.fill([0; 8]);
        if self.slots == Self::OFFSETS.slots {
            // Those descend with the codes.
            let places = places.iter_mut().take(OFFSET_SLOTS.len()).rev();
            for (code, place) in (0..=largest).zip(places) {
                *place = self.slot(table, code);
            }
        } else {
            let mut places = places;
            for code in 0..=largest {
                let extra = self.extra_bits[code as usize & 63] & 15;
                let slots = if code < self.first_long {
                    1 << extra
                } else {
                    1
                };
                let Some((run, rest)) = places.split_at_mut_checked(slots) else {
                    break;
                };
                let slot = self.slot(table, code);
                match run {
                    [place] => *place = slot,
                    run => run.fill(slot),
                }
                places = rest;
            }
        }
        let bytes = 2 << log.min(self.log_max);
        let place = tables.checked_mut(self.states..)?.checked_mut(..bytes)?;
        place.checked_copy(states(table).checked(..bytes)?)?;
        Ok(StartState { state, log })
    }

    /// The slot of a code.
    #[inline(always)]
    fn slot(&self, table: &FseTable, code: u32) -> [u8; 8] {
        let (raise, first) = symbol(table, code);
        // At most 31 after the shift, for every state of 16 bits. A state from which this subtracts
        // gives 0 bits, and does so as well unchanged.
        let raise = raise.cast_signed().clamp(0, 31 << 16);
        let extra = u64::from(self.extra_bits[code as usize & 63] & 31);
        let slot = u64::from(raise.cast_unsigned()) | u64::from(first as u16) << 32 | extra << 48;
        slot.to_le_bytes()
    }

    /// The state that leads on to this slot's symbol, and the bits to write with their number. For
    /// a state of 16 bits, and a slot of this kind.
    #[inline(always)]
    fn step(&self, tables: RunTables<'_>, state: u32, slot: usize) -> (u32, u64, u32) {
        let at = self.slots + 8 * slot;
        // SAFETY: no slot is above 144: all of them, 1,792 bytes of others included, end before
        // byte 4,608.
        let raise = u32::from_le_bytes(proven!(read(tables.0, at)));
        // SAFETY: `fill` leaves at most 31 << 16, and the state has 16 bits: from a start, or read
        // below.
        let bits = proven!(below_32(state.wrapping_add(raise) >> 16));
        // SAFETY: as above.
        let first = u16::from_le_bytes(proven!(read(tables.0, at + 4)));
        let mask = (1 << self.log_max) - 1;
        let place = (state >> bits).wrapping_add(first.into()) as usize & mask;
        // SAFETY: two bytes for each number up to `mask`: those of offsets end the tables, at 4096
        // + 2 * 256.
        let next = u16::from_ne_bytes(proven!(read(tables.0, self.states + 2 * place)));
        (next.into(), low_bits(state.into(), bits), bits)
    }

    /// The number of extra bits of a slot of this kind.
    #[inline(always)]
    fn extra_bits(&self, tables: RunTables<'_>, slot: usize) -> u32 {
        // SAFETY: as in `step`.
        let bits = u16::from_le_bytes(proven!(read(tables.0, self.slots + 8 * slot + 6)));
        // SAFETY: `fill` leaves at most 31.
        proven!(below_32(bits.into()))
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
pub(crate) fn write_bits(
    out: &mut [u8],
    reversed: &[[u8; 8]],
    tables: RunTables<'_>,
    starts: [StartState; 3],
) -> Option<usize> {
    let mut out = Out::new(out);
    let out = &mut out;
    let (last, mut rest) = reversed.split_first()?;
    let word = u64::from_ne_bytes(*last);
    let extra = ExtraBits::of(tables, &Slots::of(word));
    let mut stream = SequenceBitStream {
        states: starts.map(|start| start.state),
        at: 0,
        bits: 0,
        count: 0,
    };
    stream.add(
        low_bits(word >> 28, extra.literal_length),
        extra.literal_length,
    );
    stream.add(low_bits(word >> 46, extra.match_length), extra.match_length);
    stream.add(low_bits(word, extra.offset), extra.offset);
    stream.flush(out.bytes());
    // While there is room for all that these sequences can take, no sequence checks.
    while !rest.is_empty() {
        let room = out.bytes().len().saturating_sub(stream.at + 8);
        let sure = room / (2 * FLUSHED_MAX);
        if sure == 0 {
            break;
        }
        let (now, later) = rest.split_at(sure.min(rest.len()));
        for sequence in now {
            stream.put(tables, *sequence, |stream| {
                // SAFETY: there are two flushes for a sequence, each of which `at` grows by at most
                // `FLUSHED_MAX` in: before the last one it is at least `FLUSHED_MAX + 8` bytes
                // before the end.
                proven!(out.put64(stream.at, stream.bits));
                stream.flushed();
            });
        }
        rest = later;
    }
    for sequence in rest {
        stream.put(tables, *sequence, |stream| stream.flush(out.bytes()));
    }
    let SequenceBitStream { states, .. } = stream;
    let mut writer = BitWriter::resume(stream.at, stream.bits, stream.count as u32);
    let [ll, of, ml] = [0, 1, 2].map(|i| (states[i], starts[i].log));
    for (state, log) in [ml, of, ll] {
        writer.add(end(state, log), log);
    }
    writer.finish_with_mark(out.bytes())
}

/// Most bytes that a flush moves on by, for any six numbers of bits below 32 after 7 that wait.
const FLUSHED_MAX: usize = 24;

/// The bit stream as it grows.
struct SequenceBitStream {
    /// Of literal lengths, offsets, match lengths: 16 bits each.
    states: [u32; 3],
    at: usize,
    bits: u64,
    /// How many bits wait: fewer than 8 after a flush.
    count: u64,
}

impl SequenceBitStream {
    /// Adds the `count` low bits of `value`, which has no others. All stay if 64 at most wait then.
    #[inline(always)]
    fn add(&mut self, value: u64, count: u32) {
        self.bits |= value << (self.count & 63);
        self.count += u64::from(count);
    }

    #[inline(always)]
    fn flush(&mut self, out: &mut [u8]) {
        put_bytes(out, self.at, self.bits, (self.count / 8) as usize);
        self.flushed();
    }

    /// By [`FLUSHED_MAX`] bytes at most.
    #[inline(always)]
    fn flushed(&mut self) {
        self.at += (self.count / 8) as usize;
        self.bits >>= self.count & 56;
        self.count &= 7;
    }

    /// Adds the bits that lead from the state to this slot's symbol, and returns the next state.
    #[inline(always)]
    fn step(
        &mut self,
        layout: &RunTableLayout,
        tables: RunTables<'_>,
        state: u32,
        slot: usize,
    ) -> u32 {
        let (next, low, bits) = layout.step(tables, state, slot);
        self.add(low, bits);
        next
    }

    #[inline(always)]
    fn put(
        &mut self,
        tables: RunTables<'_>,
        sequence: [u8; 8],
        mut flush: impl FnMut(&mut SequenceBitStream),
    ) {
        let word = u64::from_ne_bytes(sequence);
        let slots = Slots::of(word);
        let [ll, of, ml] = self.states;
        // One after the other, for few values to be at hand at a time.
        let of = self.step(&RunTableLayout::OFFSETS, tables, of, slots.offset);
        let ml = self.step(
            &RunTableLayout::MATCH_LENGTHS,
            tables,
            ml,
            slots.match_length,
        );
        let ll = self.step(
            &RunTableLayout::LITERAL_LENGTHS,
            tables,
            ll,
            slots.literal_length,
        );
        self.states = [ll, of, ml];
        let extra = ExtraBits::of(tables, &slots);
        self.add(
            low_bits(word >> 28, extra.literal_length),
            extra.literal_length,
        );
        self.add(low_bits(word >> 46, extra.match_length), extra.match_length);
        if extra.sum() > EXTRA_MAX {
            flush(self);
        }
        self.add(low_bits(word, extra.offset), extra.offset);
        flush(self);
    }
}

/// After 7 bits that wait and those of three states, this many fit.
const EXTRA_MAX: u32 = 64 - 7 - LITERAL_LENGTH_LOG_MAX - OFFSET_LOG_MAX - MATCH_LENGTH_LOG_MAX;

/// Which slots of the tables a sequence uses: below 80 of literal lengths, below 144 of match
/// lengths, at most 64 of offsets.
pub(crate) struct Slots {
    literal_length: usize,
    offset: usize,
    match_length: usize,
}

impl Slots {
    #[inline(always)]
    pub(crate) fn of(word: u64) -> Slots {
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

    /// Those of literal length and match length.
    #[inline(always)]
    pub(crate) fn lengths(&self) -> [usize; 2] {
        [self.literal_length, self.match_length]
    }
}

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

/// The numbers of bits that follow the codes: of both lengths at most 30, of the offset at most 27.
struct ExtraBits {
    literal_length: u32,
    match_length: u32,
    offset: u32,
}

impl ExtraBits {
    #[inline(always)]
    fn of(tables: RunTables<'_>, slots: &Slots) -> ExtraBits {
        ExtraBits {
            literal_length: RunTableLayout::LITERAL_LENGTHS
                .extra_bits(tables, slots.literal_length),
            match_length: RunTableLayout::MATCH_LENGTHS.extra_bits(tables, slots.match_length),
            offset: RunTableLayout::OFFSETS.extra_bits(tables, slots.offset),
        }
    }

    #[inline(always)]
    fn sum(&self) -> u32 {
        self.literal_length + self.match_length + self.offset
    }
}
