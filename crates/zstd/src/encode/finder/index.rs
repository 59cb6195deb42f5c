//! Blocks, the indexes of their bytes, and the repeat offsets that a search keeps.

use crate::checked::{Checked, CheckedSlice};
use crate::encode::store::SequenceStore;
use crate::sequences::update_repeat_offsets;

/// The data that a finder searches.
#[derive(Clone, Copy)]
pub(crate) struct SearchBlock<'a> {
    /// History that matches may refer to (all of it belongs to this frame), then the block, perhaps
    /// then more.
    ///
    /// Less than 2^29 bytes: a window, a block, and a dictionary that is in reach as a whole.
    pub(crate) data: &'a [u8],
    /// Where the block begins in `data`.
    pub(crate) start: usize,
    /// Where it ends: no match reaches beyond.
    pub(crate) end: usize,
    /// Index of `data[0]`, at least 1.
    pub(crate) base: u32,
    /// Largest offset.
    pub(crate) window: u32,
}

/// The memory of rows, for as long as a block is searched.
pub(crate) struct RowCells<'a> {
    /// Where each row's newest position lies.
    pub(crate) heads: &'a mut [u8],
    /// A byte of each position's hash.
    pub(crate) tags: &'a mut [u8],
    /// As many as tags.
    pub(crate) positions: &'a mut [[u8; 4]],
}

/// The memory of hash chains, for as long as a block is searched.
pub(crate) struct ChainCells<'a> {
    /// The predecessor of each position in its chain. Empty if there are no chains.
    pub(crate) links: &'a mut [[u8; 4]],
    /// The last position of each chain.
    pub(crate) ends: &'a mut [[u8; 4]],
}

/// The four bytes at `at` as a number.
#[inline(always)]
pub(crate) fn read32(data: &[u8], at: usize) -> Checked<u32> {
    let bytes = data.checked(at..)?.checked(..4)?;
    Ok(u32::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

/// The eight bytes at `at` as a number.
#[inline(always)]
pub(crate) fn read64(data: &[u8], at: usize) -> Checked<u64> {
    let bytes = data.checked(at..)?.checked(..8)?;
    Ok(u64::from_le_bytes(bytes.try_into().unwrap_or_default()))
}

/// How many bytes at `at` and at `before`, which lies before it, are equal, up to `end`.
#[inline(always)]
pub(crate) fn match_length(data: &[u8], at: usize, before: usize, end: usize) -> Checked<usize> {
    let (ahead, behind) = (data.checked(at..end)?, data.checked(before..)?);
    let behind = behind.checked(..ahead.len())?;
    let (ahead8, ahead_rest) = ahead.as_chunks::<8>();
    let (behind8, behind_rest) = behind.as_chunks::<8>();
    for (i, (a, b)) in ahead8.iter().zip(behind8).enumerate() {
        let differ = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differ != 0 {
            return Ok(8 * i + differ.trailing_zeros() as usize / 8);
        }
    }
    let rest = ahead_rest.iter().zip(behind_rest);
    Ok(8 * ahead8.len() + rest.take_while(|(a, b)| a == b).count())
}

/// The eight bytes at `at` as a number, if they lie before the end of the block.
#[inline(always)]
pub(crate) fn word_at(block: &SearchBlock<'_>, at: usize) -> Option<u64> {
    let bytes = block.data.get(at..block.end)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

/// Whether the three bytes at `at`, the lowest of `word`, are those `offset` bytes before.
#[inline(always)]
pub(crate) fn repeats(block: &SearchBlock<'_>, at: usize, offset: u32, word: u64) -> bool {
    offset.wrapping_sub(1) < block.window
        && offset as usize <= at
        && word_at(block, at - offset as usize).is_some_and(|other| (other ^ word) << 40 == 0)
}

/// Multiplier of the hashes: 2^64 divided by the golden ratio.
pub(crate) const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;
/// 2^32 divided by the golden ratio, or the nearest prime number.
pub(crate) const PRIME_SHORT: u32 = 0x9e37_79b1;

/// Bits of an index in a cell with a tag where the window is of at most 256 KiB.
pub(crate) const INDEX_LOG: u32 = 20;

/// Bits of an index in a cell with a tag: enough for twice the window.
pub(crate) fn index_log(window_log: u8) -> u32 {
    INDEX_LOG.max(u32::from(window_log) + 2)
}

/// Lowers every index of a table whose cells have tags; those that fall to 0 or below leave a 0.
pub(crate) fn reduce_tagged(table: &mut [[u8; 4]], by: u32, index_log: u32) {
    let mask = (1 << index_log) - 1;
    for cell in table {
        let kept = u32::from_ne_bytes(*cell);
        // Numbers below 2^31 that are compared with their sign: vector instructions support that.
        let stays = (kept & mask).cast_signed() > by.cast_signed();
        let lowered = kept.wrapping_sub(by) & 0_u32.wrapping_sub(stays.into());
        *cell = lowered.to_ne_bytes();
    }
}

/// Lowers every index of a table, to 0 at least.
pub(crate) fn reduce(table: &mut [[u8; 4]], by: u32) {
    for cell in table {
        *cell = u32::from_ne_bytes(*cell).saturating_sub(by).to_ne_bytes();
    }
}

/// Repeat offsets that reach before the data are put aside: they are 0 while a block is searched.
pub(crate) fn put_aside(repeat: [u32; 3], begin: usize) -> [usize; 3] {
    repeat.map(|offset| {
        if offset as usize > begin {
            0
        } else {
            offset as usize
        }
    })
}

/// Repeat offsets after a block, from those before it and those that the search kept.
pub(crate) fn take_back(
    given: [u32; 3],
    kept: [usize; 3],
    store: &SequenceStore<'_>,
) -> Checked<[u32; 3]> {
    if !kept.contains(&0) {
        return Ok(kept.map(|offset| offset as u32));
    }
    let mut counted = given;
    for sequence in store.sequences()? {
        update_repeat_offsets(
            &mut counted,
            sequence.offset_value(),
            sequence.literal_length(),
        );
    }
    Ok(counted)
}
