//! The fast loop over sequences: read one, copy its literals, copy its match.
//!
//! Twin: `decode::execute::run_portable`. Its gain is recorded in `docs/decisions/` ("zstd decoder
//! speed").
//!
//! The loop holds all its state in registers and checks, once a sequence, that everything the
//! sequence may touch lies within its buffers with a chunk to spare; then it copies in whole
//! chunks. The caller handles the remaining sequences.

use crate::decode::output::{BlockOutput, CHUNK, Literals, OlderHistory};
use crate::sequences::{DecodedSequence, SequenceReader, TableKind};

/// Reads and executes up to `count` sequences, as long as they are easy. Gives one that was read
/// but is not easy.
///
/// There must be more than `count` sequences.
pub(crate) fn run(
    reader: &mut SequenceReader<'_, '_>,
    literals: &mut Literals<'_>,
    output: &mut BlockOutput<'_, '_>,
    count: usize,
) -> Option<DecodedSequence> {
    let after = reader.left.saturating_sub(count);
    let hard = run_on(reader, literals, output, count);
    if hard.is_some() || reader.left <= after {
        return hard;
    }
    run_rest(reader, literals, output, after)
}

/// As [`run`], where so little of the stream is left that the loop might read beyond its start: on
/// a copy with zeros before it. In a short frame these are many of its sequences.
#[inline(never)]
fn run_rest(
    reader: &mut SequenceReader<'_, '_>,
    literals: &mut Literals<'_>,
    output: &mut BlockOutput<'_, '_>,
    after: usize,
) -> Option<DecodedSequence> {
    /// The loop's last turn begins with all bits of the word at hand taken but one: a word and
    /// [`BACK`] bytes.
    const ZEROS: usize = 8 + BACK;
    /// The loop ends when it has less than [`BACK`] bytes, and a word.
    const REST: usize = 8 + BACK;
    let mut buffer = [0; ZEROS + REST];
    let bits = reader.bits.after_zeros(&mut buffer, ZEROS)?;
    let mut rest = SequenceReader { bits, ..*reader };
    let count = rest.left.saturating_sub(after);
    let hard = run_on(&mut rest, literals, output, count);
    reader.literal_length = rest.literal_length;
    reader.offset = rest.offset;
    reader.match_length = rest.match_length;
    reader.repeat = rest.repeat;
    reader.left = rest.left;
    reader.bits.follow(&rest.bits, ZEROS + REST);
    hard
}

/// A turn reads at most two words, each at most 7 bytes farther back.
const BACK: usize = 14;

/// As [`run`], while there is enough of the stream.
#[inline(never)]
fn run_on(
    reader: &mut SequenceReader<'_, '_>,
    literals: &mut Literals<'_>,
    output: &mut BlockOutput<'_, '_>,
    count: usize,
) -> Option<DecodedSequence> {
    if !reader.states_are_valid() || output.at > output.end || output.end > output.bytes.len() {
        return None;
    }
    #[cfg(target_arch = "x86_64")]
    if super::bmi::is_haswell() {
        // SAFETY: the processor has these instructions; the rest was checked above.
        return unsafe { run_haswell(reader, literals, output, count) };
    }
    // SAFETY: this was checked above.
    unsafe { run_form(reader, literals, output, count) }
}

/// # Safety
///
/// [`super::bmi::is_haswell`], and as for [`run_body`].
#[cfg(target_arch = "x86_64")]
#[cfg_attr(
    target_feature = "sse2",
    target_feature(enable = "avx2,bmi1,bmi2,lzcnt")
)]
#[cfg_attr(
    not(target_feature = "sse2"),
    target_feature(enable = "bmi1,bmi2,lzcnt")
)]
unsafe fn run_haswell(
    reader: &mut SequenceReader<'_, '_>,
    literals: &mut Literals<'_>,
    output: &mut BlockOutput<'_, '_>,
    count: usize,
) -> Option<DecodedSequence> {
    // SAFETY: as the caller promises.
    unsafe { run_form(reader, literals, output, count) }
}

/// Picks the form of the loop.
///
/// # Safety
///
/// As for [`run_body`].
#[inline(always)]
unsafe fn run_form(
    reader: &mut SequenceReader<'_, '_>,
    literals: &mut Literals<'_>,
    output: &mut BlockOutput<'_, '_>,
    count: usize,
) -> Option<DecodedSequence> {
    let in_place = matches!(literals, Literals::InPlace { .. });
    let wrapped = matches!(output.older, OlderHistory::Wrapped { .. });
    match (in_place, wrapped) {
        // SAFETY: as the caller promises.
        (false, false) => unsafe { run_body::<false, false>(reader, literals, output, count) },
        // SAFETY: the same.
        (false, true) => unsafe { run_body::<false, true>(reader, literals, output, count) },
        // SAFETY: the same.
        (true, false) => unsafe { run_body::<true, false>(reader, literals, output, count) },
        // SAFETY: the same.
        (true, true) => unsafe { run_body::<true, true>(reader, literals, output, count) },
    }
}

/// The fields of a cell: see [`Cell`](crate::fse::Cell).
#[derive(Clone, Copy)]
struct CellRef(*const u8);

impl CellRef {
    /// The cell of a state.
    ///
    /// # Safety
    ///
    /// `cells` must point to all tables, and the cell must be one of them.
    #[inline(always)]
    unsafe fn new(cells: *const u8, kind: &TableKind, state: usize) -> CellRef {
        CellRef(cells.wrapping_add(8 * kind.at + 8 * state))
    }

    #[inline(always)]
    fn base(self) -> u32 {
        // SAFETY: the first four of the cell's eight bytes.
        u32::from_le(unsafe { self.0.cast::<u32>().read_unaligned() })
    }

    #[inline(always)]
    fn next(self) -> usize {
        let at = self.0.wrapping_add(4).cast::<u16>();
        // SAFETY: bytes 4 and 5 of the cell's eight.
        usize::from(u16::from_le(unsafe { at.read_unaligned() }))
    }

    #[inline(always)]
    fn width(self) -> u64 {
        // SAFETY: byte 6 of the cell's eight.
        u64::from(unsafe { self.0.wrapping_add(6).read() })
    }

    #[inline(always)]
    fn extra(self) -> u64 {
        // SAFETY: byte 7 of the cell's eight.
        u64::from(unsafe { self.0.wrapping_add(7).read() })
    }
}

/// # Safety
///
/// `from..from + N` must be readable and `to..to + N` writable. They may overlap: all is read
/// before it is written.
#[inline(always)]
unsafe fn copy<const N: usize>(from: *const u8, to: *mut u8) {
    // SAFETY: as the caller promises.
    let chunk = unsafe { from.cast::<[u8; N]>().read() };
    // SAFETY: as the caller promises.
    unsafe { to.cast::<[u8; N]>().write(chunk) };
}

/// The loop.
///
/// # Safety
///
/// `reader.states_are_valid()`, `IN_PLACE` must fit `literals`, `WRAPPED` must fit `output.older`,
/// and `output.at <= output.end <= output.bytes.len()`.
#[inline(always)]
unsafe fn run_body<const IN_PLACE: bool, const WRAPPED: bool>(
    reader: &mut SequenceReader<'_, '_>,
    literals: &mut Literals<'_>,
    output: &mut BlockOutput<'_, '_>,
    count: usize,
) -> Option<DecodedSequence> {
    let stream = reader.bits.src;
    if reader.bits.at < BACK || stream.len() < 8 || reader.bits.taken > 8 {
        return None;
    }
    let out = output.bytes.as_mut_ptr();
    let (literals_base, literals_at, literals_end, readable_end) = match *literals {
        Literals::Slice { bytes, at, end } => (bytes.as_ptr(), at, end, bytes.len()),
        Literals::InPlace { at, end } => (out.cast_const(), at, end, output.bytes.len()),
    };
    // A chunk is read even where a sequence has no literals.
    if literals_at > literals_end || literals_end > readable_end || readable_end < CHUNK {
        return None;
    }
    // Addresses, not pointers, where they are only compared: they may be those of no byte.
    // Literals are copied up to here: chunks may read past their end, but not past the readable
    // bytes.
    let literals_easy_end =
        literals_base.addr() + literals_end.min(readable_end.saturating_sub(CHUNK));
    // Content up to here is easy, as the bytes after it may be overwritten.
    let scratch_end = output.scratch_end.min(output.bytes.len());
    let easy_end = out.addr() + output.end.min(scratch_end.saturating_sub(CHUNK));
    let start = out.addr() + output.start;
    let window = output.window.min(u32::MAX as usize);
    // Content before `start` ends here in the buffer.
    let older_end = match output.older {
        OlderHistory::Wrapped { end } if WRAPPED => end,
        _ => 0,
    };
    if WRAPPED && (output.start > 0 || older_end < window || output.bytes.len() - older_end < CHUNK)
    {
        return None;
    }

    // The word at hand has 56 to 63 bits that have not been taken, at its lower end.
    let mut source_at = reader.bits.at;
    let mut avail = 64 - u64::from(reader.bits.taken);
    if reader.bits.taken == 0 {
        source_at += 1;
        avail = 56;
    }
    let mut word = u64::from_le_bytes(*stream.get(source_at..)?.first_chunk()?);
    let source_start = stream.as_ptr();
    let source_low = source_start.addr() + BACK;
    let mut source = source_start.wrapping_add(source_at);

    let cells = reader.cells.as_ptr().cast::<u8>();
    let mut literal_length_state = reader.literal_length;
    let mut offset_state = reader.offset;
    let mut match_length_state = reader.match_length;
    let [mut first, mut second, mut third] = reader.repeat.map(u64::from);
    let mut to = out.wrapping_add(output.at);
    let mut from = literals_base.wrapping_add(literals_at);
    let mut left = count;
    let mut hard = None;

    macro_rules! read {
        ($count:expr) => {{
            let count: u64 = $count;
            // SAFETY: a cell that a state leads to has at most 31 extra bits
            // (`TableKind::meanings`), and leads on with at most 9 bits, as its table has no more
            // cells than that. With BMI, this leaves no instruction of it.
            unsafe { core::hint::assert_unchecked(count < 64) };
            avail = avail.wrapping_sub(count);
            (word >> (avail & 63)) & ((1 << count) - 1)
        }};
    }
    macro_rules! refill {
        () => {{
            source = source.wrapping_add((avail >> 3) as usize).wrapping_sub(7);
            avail |= 56;
            // SAFETY: the loop's condition leaves `BACK` bytes before the word when a turn begins;
            // a turn goes back twice at most.
            word = u64::from_le(unsafe { source.cast::<u64>().read_unaligned() });
        }};
    }

    while left > 0 && source.addr() >= source_low {
        // SAFETY: states are numbers of cells, at the start and after each turn.
        let literal_length =
            unsafe { CellRef::new(cells, TableKind::LITERAL_LENGTHS, literal_length_state) };
        // SAFETY: the same.
        let match_length =
            unsafe { CellRef::new(cells, TableKind::MATCH_LENGTHS, match_length_state) };
        // SAFETY: the same.
        let offset_cell = unsafe { CellRef::new(cells, TableKind::OFFSETS, offset_state) };

        let mut literal_count = literal_length.base() as usize;
        let mut length = match_length.base() as usize;
        let offset_extra = offset_cell.extra();
        // 64 bits wide: a corrupt offset exceeds any valid offset and any window.
        let offset;
        if offset_extra > 1 {
            offset = u64::from(offset_cell.base()) + read!(offset_extra);
            third = second;
            second = first;
            first = offset;
        } else {
            let no_literals = literal_count == 0;
            if offset_extra == 0 {
                if !no_literals {
                    offset = first;
                } else {
                    offset = second;
                    second = first;
                    first = offset;
                }
            } else {
                let which = u64::from(offset_cell.base()) + u64::from(no_literals) + read!(1);
                if which == 2 {
                    offset = second;
                } else {
                    offset = if which == 3 {
                        third
                    } else {
                        // An offset of 0 is corrupt: it wraps.
                        first.wrapping_sub(1).wrapping_sub(u64::from(first == 1))
                    };
                    third = second;
                }
                second = first;
                first = offset;
            }
        }
        let length_extra = match_length.extra();
        if length_extra > 0 {
            length += read!(length_extra) as usize;
        }
        // 56 bits were there; the states take 26.
        let literal_extra = literal_length.extra();
        if offset_extra + length_extra + literal_extra > 30 {
            refill!();
        }
        if literal_extra > 0 {
            literal_count += read!(literal_extra) as usize;
        }
        literal_length_state = literal_length.next() + read!(literal_length.width()) as usize;
        match_length_state = match_length.next() + read!(match_length.width()) as usize;
        offset_state = offset_cell.next() + read!(offset_cell.width()) as usize;
        refill!();
        left -= 1;

        // Everything is read; now the copies. Sums of addresses and 17-bit numbers do not overflow.
        let from_next = from.addr() + literal_count;
        let match_at = to.addr() + literal_count;
        let distance = offset as usize;
        let have = match_at - start;
        // As a signed number: if above 0, the number of bytes of the match's distance that lie
        // before `start`.
        let before = distance.wrapping_sub(have);
        let reaches_out = if WRAPPED {
            // Not all of it lies there, or too close to `start` for copies in chunks.
            before.wrapping_sub(1) < length.max(CHUNK)
        } else {
            distance > have
        };
        if from_next > literals_easy_end
            || match_at + length > easy_end
            // Literals that are still needed are not written over.
            || IN_PLACE && match_at + length > from_next.wrapping_sub(CHUNK)
            || reaches_out
            || distance > window
        {
            hard = Some(DecodedSequence {
                literals: literal_count as u32,
                length: length as u32,
                offset: u32::try_from(offset).unwrap_or(0),
            });
            break;
        }
        // SAFETY: `literal_count` bytes plus a chunk are readable at `from`, and writable at `to`.
        unsafe { copy_literals(from, to, literal_count) };
        from = from.wrapping_add(literal_count);
        to = to.wrapping_add(literal_count);
        let near = to.wrapping_sub(distance).cast_const();
        let match_from = if WRAPPED && before.cast_signed() > 0 {
            near.wrapping_add(older_end)
        } else {
            near
        };
        // SAFETY: there are at least `distance` bytes before `to`, and a chunk after the match. If
        // the match lies before `start`, it is at most `window` and hence `older_end` bytes before
        // `older_end`, ends before that, with a chunk of the buffer after it, and its distance is
        // more than a chunk.
        unsafe { copy_match(match_from, to, distance, length) };
        to = to.wrapping_add(length);
    }

    let source_at = source.addr() - source_start.addr();
    reader.bits.at = source_at;
    reader.bits.word = word;
    reader.bits.taken = 64 - avail as u32;
    reader.literal_length = literal_length_state;
    reader.offset = offset_state;
    reader.match_length = match_length_state;
    reader.repeat = [first, second, third].map(|offset| offset as u32);
    reader.left -= count - left;
    output.at = to.addr() - out.addr();
    match literals {
        Literals::Slice { at, .. } | Literals::InPlace { at, .. } => {
            *at = from.addr() - literals_base.addr();
        }
    }
    hard
}

/// Copies `count` bytes in chunks of 16.
///
/// # Safety
///
/// `count` bytes plus a chunk must be readable at `from` and writable at `to`.
#[inline(always)]
unsafe fn copy_literals(mut from: *const u8, mut to: *mut u8, count: usize) {
    // SAFETY: as the caller promises.
    unsafe { copy::<16>(from, to) };
    if count > 16 {
        let end = to.wrapping_add(count);
        loop {
            from = from.wrapping_add(16);
            to = to.wrapping_add(16);
            // SAFETY: `to` is before `end`, hence less than a chunk is copied beyond it.
            unsafe { copy::<16>(from, to) };
            if to.wrapping_add(16) >= end {
                break;
            }
        }
    }
}

/// Copies `length` bytes that lie `offset` bytes before `to`, in chunks.
///
/// # Safety
///
/// `offset` must be at least 1, and `length` plus a chunk writable from `to` on. `from` must be
/// `offset` bytes before `to`, in the same buffer; or `offset` at least 16, and `length` plus a
/// chunk readable from `from` on.
#[inline(always)]
unsafe fn copy_match(mut from: *const u8, mut to: *mut u8, offset: usize, length: usize) {
    let end = to.wrapping_add(length);
    if offset >= 16 {
        // SAFETY: the first 32 bytes are a chunk. The source may overlap bytes that this copy has
        // just written, but a piece of 16 bytes never overlaps itself.
        unsafe { copy::<16>(from, to) };
        // SAFETY: the same.
        unsafe { copy::<16>(from.wrapping_add(16), to.wrapping_add(16)) };
        if length > 32 {
            loop {
                from = from.wrapping_add(32);
                to = to.wrapping_add(32);
                // SAFETY: `to` is before `end`, hence less than a chunk is copied beyond it.
                unsafe { copy::<16>(from, to) };
                // SAFETY: the same.
                unsafe { copy::<16>(from.wrapping_add(16), to.wrapping_add(16)) };
                if to.wrapping_add(32) >= end {
                    break;
                }
            }
        }
        return;
    }
    /// How far back to copy from once 8 bytes are there: a multiple of the offset, at least 8.
    const STRIDE: [u8; 16] = [8, 8, 8, 9, 8, 10, 12, 14, 8, 9, 10, 11, 12, 13, 14, 15];
    if offset < 8 {
        for _ in 0..8 {
            // SAFETY: one byte of the first eight, which are within the chunk.
            unsafe { copy::<1>(from, to) };
            from = from.wrapping_add(1);
            to = to.wrapping_add(1);
        }
    } else {
        // SAFETY: the first eight bytes.
        unsafe { copy::<8>(from, to) };
        to = to.wrapping_add(8);
    }
    let stride = usize::from(STRIDE[offset & 15]);
    while to < end {
        // SAFETY: `to` is before `end`; the source lies in bytes already written.
        unsafe { copy::<8>(to.wrapping_sub(stride), to) };
        to = to.wrapping_add(8);
    }
}
