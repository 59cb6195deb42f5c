//! Match finders: from bytes to sequences, one strategy a file.
//!
//! A finder's tables hold *indexes*: positions counted from an origin that only moves forward from frame to frame.
//! What an earlier frame left in a table is then smaller than every index of this frame, and is ignored: tables need
//! no clearing between frames. Index 0 is never valid.
//!
//! A finder for blocks has this shape, which `optimal` follows too:
//!
//! - `Tables::bytes(&Params) -> usize`: bytes of workspace, growing with every parameter;
//! - `Tables::carve(&mut Carver, &Params) -> Result<Tables, Error>`: takes them;
//! - `clear(&mut self)`: forgets everything, called when the bytes may hold something else;
//! - `reduce(&mut self, by: u32)`: every index falls by `by`, to 0 at least. Called when indexes near 2^32; it must
//!   not change what is found;
//! - `start_frame(&mut self)`: a new frame begins (its indexes are above all earlier ones);
//! - `insert(&mut self, &Block)`: makes `data[start..end]` known without looking for matches (dictionaries);
//! - `find(&mut self, &Block, &Params, &mut [u32; 3], &mut SequenceStore) -> usize`.

/// What a finder works on.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    /// History that matches may refer to (all of it belongs to this frame), then the block, perhaps then more.
    ///
    /// At most 2^28 bytes.
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

/// The four bytes at `at` as a number.
#[inline(always)]
pub(crate) fn read32(data: &[u8], at: usize) -> u32 {
    let bytes: [u8; 4] = data[at..][..4].try_into().unwrap_or_default();
    u32::from_le_bytes(bytes)
}

/// The eight bytes at `at` as a number.
#[inline(always)]
pub(crate) fn read64(data: &[u8], at: usize) -> u64 {
    let bytes: [u8; 8] = data[at..][..8].try_into().unwrap_or_default();
    u64::from_le_bytes(bytes)
}

/// How many bytes at `at` and at `before`, which lies before it, are equal, up to `end`.
#[inline(always)]
pub(crate) fn match_length(data: &[u8], at: usize, before: usize, end: usize) -> usize {
    let (ahead, behind) = (&data[at..end], &data[before..]);
    let behind = &behind[..ahead.len()];
    let (ahead8, ahead_rest) = ahead.as_chunks::<8>();
    let (behind8, behind_rest) = behind.as_chunks::<8>();
    for (i, (a, b)) in ahead8.iter().zip(behind8).enumerate() {
        let differ = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differ != 0 {
            return 8 * i + differ.trailing_zeros() as usize / 8;
        }
    }
    let same = ahead_rest
        .iter()
        .zip(behind_rest)
        .take_while(|(a, b)| a == b)
        .count();
    8 * ahead8.len() + same
}
