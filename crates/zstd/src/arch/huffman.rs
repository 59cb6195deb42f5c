//! The fast loops over the four streams of Huffman-coded literals, in step.
//!
//! Twin of both: `huffman::run_four_portable`. Their gain is recorded in `docs/decisions/` ("zstd
//! decoder speed").
//!
//! The time of one stream is the chain from code to code: index, table, shift. Four chains run side
//! by side, and new bits come from a word whose address is known a turn ahead, so that loading it
//! is not in the chain. Per stream only the bits, the bits used and the place to write are needed
//! from code to code: these fit in registers.

use crate::ROOMY;
use crate::bits::ReverseBitReader;
use crate::huffman::{CODE_BITS_MAX, HuffmanTable, PairCell, TABLE_CELLS};

/// Codes, or pairs of them, that each stream decodes between two refills: 55 bits at most.
const TURN: usize = 5;
/// Bytes that a stream moves back in a turn at most.
const BACK_MAX: usize = 7;
/// The word that comes next begins this far before the bytes at hand.
const AHEAD: usize = 7;

/// Decodes the start of each stream's part of `dst`: part `n` begins at `n * each`, the last is the
/// rest. Gives how many bytes of each part are done; the readers then stand after them.
///
/// The streams lie in `src`, one after the other; each has a reader that has not been used. There
/// must be at least `3 * each` bytes of `dst`.
#[inline(never)]
pub(crate) fn run_four(
    table: HuffmanTable<'_>,
    src: &[u8],
    readers: &mut [ReverseBitReader<'_>; 4],
    dst: &mut [u8],
    each: usize,
) -> [usize; 4] {
    if 3 * each > dst.len() || !(1..=CODE_BITS_MAX).contains(&table.log) {
        return [0; 4];
    }
    let Some(mut streams) = Streams::begin(src, readers, dst, each) else {
        return [0; 4];
    };
    #[cfg(target_arch = "x86_64")]
    if super::bmi::is_haswell() {
        // SAFETY: the processor has these instructions; nothing else makes a `HuffmanTable`.
        unsafe { run_haswell(table, &mut streams) };
        return streams.end(readers);
    }
    // SAFETY: nothing else makes a `HuffmanTable`.
    unsafe { run_plain(table, &mut streams) };
    streams.end(readers)
}

/// # Safety
///
/// The tables must be made by `huffman::read_table` and `huffman::fill_pairs`: there is a cell for
/// every string of `log` or of [`CODE_BITS_MAX`] bits, whose codes have at most [`CODE_BITS_MAX`]
/// bits.
#[inline(never)]
unsafe fn run_plain(table: HuffmanTable<'_>, streams: &mut Streams<'_, '_>) {
    match table.pairs {
        // SAFETY: as the caller promises.
        Some(pairs) => unsafe { run_pairs(pairs, streams) },
        // SAFETY: the same.
        None => unsafe { run_singles(table, streams) },
    }
}

/// # Safety
///
/// [`super::bmi::is_haswell`], and as for [`run_plain`].
#[cfg(target_arch = "x86_64")]
#[cfg_attr(
    target_feature = "sse2",
    target_feature(enable = "avx2,bmi1,bmi2,lzcnt")
)]
#[cfg_attr(
    not(target_feature = "sse2"),
    target_feature(enable = "bmi1,bmi2,lzcnt")
)]
unsafe fn run_haswell(table: HuffmanTable<'_>, streams: &mut Streams<'_, '_>) {
    match table.pairs {
        // SAFETY: as the caller promises.
        Some(pairs) => unsafe { run_pairs(pairs, streams) },
        // SAFETY: the same.
        None => unsafe { run_singles(table, streams) },
    }
}

/// One code at a time.
///
/// # Safety
///
/// As for [`run_plain`].
#[inline(always)]
unsafe fn run_singles(table: HuffmanTable<'_>, streams: &mut Streams<'_, '_>) {
    match table.log {
        // SAFETY: as the caller promises; 7 codes of 7 bits, or 6 of 9, have 55 bits at most.
        0..=7 if ROOMY => unsafe { run_in_turns::<7>(table, streams) },
        // SAFETY: the same.
        8..=9 if ROOMY => unsafe { run_in_turns::<6>(table, streams) },
        // SAFETY: as the caller promises; 5 codes have 55 bits at most.
        _ => unsafe { run_in_turns::<TURN>(table, streams) },
    }
}

/// The same, by `N` codes of each stream in turn. The streams advance in step.
///
/// # Safety
///
/// As for [`run_plain`], and `N` codes have 55 bits at most.
#[inline(always)]
unsafe fn run_in_turns<const N: usize>(table: HuffmanTable<'_>, streams: &mut Streams<'_, '_>) {
    let cells = table.cells.as_ptr();
    let shift = 64 - table.log;
    let each = streams.each;
    let source = streams.src.as_ptr();
    let start = streams.dst.as_mut_ptr();
    // The part of each stream has room for this: the last one may be shorter than the others.
    let room = each.min(streams.dst.len() - 3 * each);
    let mut to = start;
    // The state that each code needs, apart.
    let mut bits = streams.lanes.map(|lane| lane.bits);
    // Where the bits at hand end, counted in bits from the start of the source: they are 56 and
    // what is left of a division by 8.
    let mut ends = streams.lanes.map(|lane| 8 * lane.at + lane.count);
    loop {
        let done = to.addr() - start.addr();
        let behind = ends.into_iter().min().unwrap_or(0) / 8;
        let behind = behind.saturating_sub((2 * AHEAD + BACK_MAX) as u32) as usize;
        let turns = (behind / BACK_MAX).min((room - done) / N);
        if turns == 0 {
            break;
        }
        for _ in 0..turns {
            // Of each stream: the bits used in this turn, in the lowest byte.
            let mut used = [0_u32; 4];
            for symbol in 0..N {
                for lane in 0..4 {
                    let cell = cells.wrapping_add((bits[lane] >> shift) as usize);
                    // SAFETY: the table has a cell for each string of `log` bits. Read as one
                    // number, it stays one.
                    let cell =
                        u32::from(u16::from_le(unsafe { cell.cast::<u16>().read_unaligned() }));
                    bits[lane] <<= cell & 63;
                    used[lane] = used[lane].wrapping_add(cell);
                    let place = to.wrapping_add(lane * each + symbol);
                    // SAFETY: `turns` was chosen so that each part has room for a byte from each
                    // cell.
                    unsafe { place.write((cell >> 8) as u8) };
                }
            }
            to = to.wrapping_add(N);
            for lane in 0..4 {
                let end = ends[lane];
                let word = source
                    .wrapping_add((end / 8) as usize)
                    .wrapping_sub(2 * AHEAD);
                // SAFETY: `turns` was chosen so that the word before the one at hand is in the
                // source.
                let word = u64::from_le(unsafe { word.cast::<u64>().read_unaligned() });
                bits[lane] |= word >> ((end | 56).wrapping_sub(used[lane]) & 63);
                ends[lane] = end - (used[lane] & 0xff);
            }
        }
    }
    let done = (to.addr() - start.addr()) as u32;
    for (lane, (bits, end)) in streams.lanes.iter_mut().zip(bits.into_iter().zip(ends)) {
        lane.bits = bits;
        lane.count = 56 + end % 8;
        lane.at = end / 8 - AHEAD as u32;
        lane.to += done;
    }
}

/// Up to two codes at a time. Streams get ahead of each other; where one is done, its place is
/// taken by another that is then decoded twice, to the same bytes.
///
/// # Safety
///
/// As for [`run_plain`].
#[inline(always)]
unsafe fn run_pairs(pairs: &[PairCell; TABLE_CELLS], streams: &mut Streams<'_, '_>) {
    let cells = pairs.as_ptr().cast::<[[u8; 2]; 2]>();
    let out = streams.dst.as_mut_ptr();
    let mut lanes = streams.lanes;
    // Which stream each lane decodes.
    let mut decodes = [0u8, 1, 2, 3];
    loop {
        let limits = lanes.map(|lane| lane.turns(2 * TURN as u32));
        let Some(busy) = limits.iter().position(|limit| *limit > 0) else {
            break;
        };
        let mut turns = limits[busy];
        for lane in 0..4 {
            if limits[lane] == 0 {
                streams.lanes[usize::from(decodes[lane] & 3)] = lanes[lane];
                (lanes[lane], decodes[lane]) = (lanes[busy], decodes[busy]);
            } else {
                turns = turns.min(limits[lane]);
            }
        }
        // The state that each code needs, apart.
        let mut bits = lanes.map(|lane| lane.bits);
        let mut to = lanes.map(|lane| out.wrapping_add(lane.to as usize));
        for _ in 0..turns {
            // Of each stream: the bits used in this turn, and 256 times the bytes made of them.
            let mut used = [0u64; 4];
            for _ in 0..TURN {
                for lane in 0..4 {
                    let cell = cells.wrapping_add((bits[lane] >> (64 - CODE_BITS_MAX)) as usize);
                    // SAFETY: the table has a cell for each string of `CODE_BITS_MAX` bits.
                    let [meaning, symbols] = unsafe { cell.read() };
                    let next = to[lane].wrapping_add((used[lane] >> 8) as usize);
                    // SAFETY: `turns` was chosen so that each part has room for two bytes from each
                    // cell.
                    unsafe { next.cast::<[u8; 2]>().write(symbols) };
                    let meaning = u64::from(u16::from_le_bytes(meaning));
                    bits[lane] <<= meaning & 63;
                    used[lane] += meaning;
                }
            }
            for lane in 0..4 {
                to[lane] = to[lane].wrapping_add((used[lane] >> 8) as usize);
                // SAFETY: `turns` was chosen so that the word before the one at hand is in the
                // source.
                bits[lane] |= unsafe { lanes[lane].refill(streams.src, used[lane] & 0xff) };
            }
        }
        for lane in 0..4 {
            lanes[lane].bits = bits[lane];
            lanes[lane].to = (to[lane].addr() - out.addr()) as u32;
        }
    }
    for lane in 0..4 {
        streams.lanes[usize::from(decodes[lane] & 3)] = lanes[lane];
    }
}

/// The position in one stream. Fields have 32 bits where possible: four lanes are most of the stack
/// used here.
#[derive(Clone, Copy)]
struct Lane {
    /// Bits at hand, the next one at the top.
    bits: u64,
    /// How many they are, 56 to 63; those after them are the right ones, or 0.
    count: u32,
    /// One less than where in the source the word of them begins.
    at: u32,
    /// Where in the destination the next byte belongs, and where the stream's part ends.
    to: u32,
    end: u32,
}

impl Lane {
    /// The number of turns that may be taken, each of which makes up to `bytes`.
    #[inline(always)]
    fn turns(&self, bytes: u32) -> u32 {
        let source = self.at.saturating_sub((AHEAD + BACK_MAX) as u32) / BACK_MAX as u32;
        source.min((self.end - self.to) / bytes)
    }

    /// Makes up for `used` bits, 55 at most: gives the bits to go after those that are left.
    ///
    /// # Safety
    ///
    /// There must be [`AHEAD`] bytes of the source before `at`.
    #[inline(always)]
    unsafe fn refill(&mut self, src: &[u8], used: u64) -> u64 {
        // SAFETY: as the caller promises: the word ends just before the one at hand.
        let word = unsafe {
            let from = src.as_ptr().wrapping_add(self.at as usize - AHEAD);
            from.cast::<u64>().read_unaligned()
        };
        let left = self.count - used as u32;
        self.at = self.at + (left >> 3) - AHEAD as u32;
        self.count = left | 56;
        u64::from_le(word) >> (left & 63)
    }
}

/// Four streams with their source and destination.
struct Streams<'s, 'd> {
    src: &'s [u8],
    dst: &'d mut [u8],
    each: usize,
    lanes: [Lane; 4],
}

impl<'s, 'd> Streams<'s, 'd> {
    /// `None` if a stream is too short to be worth it.
    #[inline(always)]
    fn begin(
        src: &'s [u8],
        readers: &[ReverseBitReader<'_>; 4],
        dst: &'d mut [u8],
        each: usize,
    ) -> Option<Streams<'s, 'd>> {
        let mut lanes = [Lane {
            bits: 0,
            count: 0,
            at: 0,
            to: 0,
            end: 0,
        }; 4];
        for (stream, (lane, reader)) in lanes.iter_mut().zip(readers).enumerate() {
            // `taken` is 1 to 8 in a reader that has not been used.
            let start = reader.src.as_ptr().addr().wrapping_sub(src.as_ptr().addr());
            let within = start < src.len() && reader.src.len() <= src.len() - start;
            if !within || reader.at == 0 || reader.src.len() - reader.at != 8 || reader.taken > 8 {
                return None;
            }
            let to = stream * each;
            let end = if stream < 3 { to + each } else { dst.len() };
            *lane = Lane {
                bits: reader.word << reader.taken,
                count: (8 - reader.taken) | 56,
                at: u32::try_from(start + reader.at - 1).ok()?,
                to: to as u32,
                end: u32::try_from(end).ok()?,
            };
        }
        Some(Streams {
            src,
            dst,
            each,
            lanes,
        })
    }

    /// Lets the readers go on from here; gives how many bytes of each part are done.
    #[inline(always)]
    fn end(&self, readers: &mut [ReverseBitReader<'_>; 4]) -> [usize; 4] {
        let mut done = [0; 4];
        for (stream, (lane, reader)) in self.lanes.iter().zip(readers).enumerate() {
            let start = reader.src.as_ptr().addr() - self.src.as_ptr().addr();
            // The word may begin before the stream, in its neighbour: the reader stays within.
            let at = lane.at as usize + 1;
            let before = start.saturating_sub(at);
            reader.at = at.saturating_sub(start);
            reader.taken = 8 - (lane.count & 7) + 8 * before as u32;
            if let Some(&word) = reader
                .src
                .get(reader.at..)
                .and_then(|rest| rest.first_chunk())
            {
                reader.word = u64::from_le_bytes(word);
            }
            done[stream] = lane.to as usize - stream * self.each;
        }
        done
    }
}
