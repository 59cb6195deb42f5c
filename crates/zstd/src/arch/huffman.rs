//! The fast loop over the four streams of Huffman-coded literals, in step.
//!
//! Twin: `huffman::decode_one`, stream after stream.
//!
//! The time of one stream is the chain from code to code: index, table, shift. Four chains run side by side, and new
//! bits come from a word whose address is known a turn ahead, so that loading it is not in the chain.

use crate::bits::ReverseBitReader;
use crate::huffman::{CODE_BITS_MAX, Table};

/// Codes that each stream decodes between two refills: 55 bits at most.
const TURN: usize = 5;
/// Bytes that a stream moves back in a turn at most.
const BACK_MAX: usize = 7;
/// The word that comes next begins this far before the bytes at hand.
const AHEAD: usize = 7;

/// Decodes the start of each stream's part of `dst`: part `n` begins at `n * each`, the last is the rest. Gives how many
/// bytes of each part are done; the readers then stand behind them.
///
/// The streams lie in `src`, one after the other; each has a reader that has not been used.
pub(crate) fn run_four(
    table: Table<'_>,
    src: &[u8],
    readers: &mut [ReverseBitReader<'_>; 4],
    dst: &mut [u8],
    each: usize,
) -> usize {
    #[cfg(target_arch = "x86_64")]
    if super::is_haswell() {
        // SAFETY: the processor has these instructions.
        return unsafe { run_four_haswell(table, src, readers, dst, each) };
    }
    run_four_plain(table, src, readers, dst, each)
}

#[inline(never)]
fn run_four_plain(
    table: Table<'_>,
    src: &[u8],
    readers: &mut [ReverseBitReader<'_>; 4],
    dst: &mut [u8],
    each: usize,
) -> usize {
    run_four_body(table, src, readers, dst, each)
}

/// # Safety
///
/// [`super::is_haswell`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
unsafe fn run_four_haswell(
    table: Table<'_>,
    src: &[u8],
    readers: &mut [ReverseBitReader<'_>; 4],
    dst: &mut [u8],
    each: usize,
) -> usize {
    run_four_body(table, src, readers, dst, each)
}

#[inline(always)]
fn run_four_body(
    table: Table<'_>,
    src: &[u8],
    readers: &mut [ReverseBitReader<'_>; 4],
    dst: &mut [u8],
    each: usize,
) -> usize {
    let base = src.as_ptr();
    let mut bits = [0u64; 4];
    let mut spare = [0u64; 4];
    // Where in `src` the word at hand begins.
    let mut at = [0usize; 4];
    let last_len = dst.len().saturating_sub(3 * each);
    if !(1..=CODE_BITS_MAX).contains(&table.log) {
        return 0;
    }
    for (stream, reader) in readers.iter().enumerate() {
        // A short stream is not worth it. `taken` is 1 to 8 in a reader that has not been used.
        let start = reader.src.as_ptr().addr().wrapping_sub(base.addr());
        let within = start < src.len() && reader.src.len() <= src.len() - start;
        if !within || reader.at == 0 || reader.src.len() - reader.at != 8 || reader.taken > 8 {
            return 0;
        }
        bits[stream] = reader.word << reader.taken;
        spare[stream] = u64::from(8 - reader.taken) | 56;
        at[stream] = start + reader.at - 1;
    }
    let out = dst.as_mut_ptr();
    let cells = table.cells.as_ptr();
    let shift = 64 - table.log;
    let mut done = 0;
    loop {
        let lowest = at[0].min(at[1]).min(at[2]).min(at[3]);
        let turns = (last_len.min(each) - done) / TURN;
        let turns = turns.min(lowest.saturating_sub(AHEAD + BACK_MAX) / BACK_MAX);
        if turns == 0 {
            break;
        }
        let stop = done + turns * TURN;
        while done < stop {
            macro_rules! each_stream {
                ($symbol:expr) => {
                    each_stream!(@ 0, $symbol);
                    each_stream!(@ 1, $symbol);
                    each_stream!(@ 2, $symbol);
                    each_stream!(@ 3, $symbol);
                };
                (@ $stream:expr, $symbol:expr) => {
                    let index = (bits[$stream] >> shift) as usize;
                    // SAFETY: the table has a cell for each string of `log` bits.
                    let [len, symbol] = unsafe { cells.wrapping_add(index).read() };
                    let cell = u64::from(u16::from_le_bytes([len, symbol]));
                    bits[$stream] <<= cell & 63;
                    spare[$stream] = spare[$stream].wrapping_sub(cell);
                    // SAFETY: less than `each` bytes (the last: `last_len`) are done of this part.
                    unsafe { out.wrapping_add($stream * each + done + $symbol).write((cell >> 8) as u8) };
                };
            }
            each_stream!(0);
            each_stream!(1);
            each_stream!(2);
            each_stream!(3);
            each_stream!(4);
            for stream in 0..4 {
                // SAFETY: `turns` was chosen so that no stream gets below `AHEAD` before the last turn ends.
                let word = unsafe {
                    base.wrapping_add(at[stream] - AHEAD)
                        .cast::<u64>()
                        .read_unaligned()
                };
                bits[stream] |= u64::from_le(word) >> (spare[stream] & 63);
                let left = spare[stream] & 0xff;
                at[stream] = at[stream] + (left >> 3) as usize - AHEAD;
                spare[stream] = left | 56;
            }
            done += TURN;
        }
    }
    for (stream, reader) in readers.iter_mut().enumerate() {
        let start = reader.src.as_ptr().addr() - base.addr();
        // The word may begin before the stream, in its neighbour: the reader stays within.
        let before = start.saturating_sub(at[stream] + 1);
        reader.at = (at[stream] + 1).saturating_sub(start);
        reader.taken = 8 - (spare[stream] & 7) as u32 + 8 * before as u32;
        if let Some(&word) = reader
            .src
            .get(reader.at..)
            .and_then(|rest| rest.first_chunk())
        {
            reader.word = u64::from_le_bytes(word);
        }
    }
    done
}
