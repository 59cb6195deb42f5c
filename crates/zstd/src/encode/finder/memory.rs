//! What finders read and write, with checks or (in `arch/`) without.

use crate::encode::store::SequenceStore;
use crate::sequences::update_repeat_offsets;
use crate::workspace::Cells;

/// Bytes, each with an index.
pub(crate) trait Memory: Copy {
    /// The index of the first.
    fn first(self) -> usize;
    /// The index behind the last.
    fn end(self) -> usize;
    /// The same bytes, each with an index that is greater by `by`.
    fn moved(self, by: usize) -> Self;
    /// Where the bytes from `at` on lie.
    #[cfg(not(feature = "portable"))]
    fn place(self, at: usize) -> *const u8;
    /// The byte at `at`.
    fn byte(self, at: usize) -> u8;
    /// Four bytes at `at` as a number.
    fn read32(self, at: usize) -> u32;
    /// Eight bytes at `at` as a number.
    fn read64(self, at: usize) -> u64;
    /// Sixteen bytes at `at`.
    fn chunk16(self, at: usize) -> [u8; 16];

    /// `value`, of which the compiler does not see where it comes from: else it keeps every sum with a loop's counter in a
    /// register of its own, of which there are too few.
    #[inline(always)]
    fn opaque(value: usize) -> usize {
        value
    }

    /// The same for a word, where registers are as long.
    #[inline(always)]
    fn opaque_word(value: u64) -> u64 {
        if cfg!(target_pointer_width = "64") {
            Self::opaque(value as usize) as u64
        } else {
            value
        }
    }

    /// How many of the sixteen bytes at `a` and at `b` are equal before the first that differ.
    #[inline(always)]
    fn same16(self, a: usize, b: usize) -> usize {
        let differ = u128::from_le_bytes(self.chunk16(a)) ^ u128::from_le_bytes(self.chunk16(b));
        differ.trailing_zeros() as usize / 8
    }

    /// The same for one who waits for it: more instructions, but by words, which come sooner than vectors.
    #[inline(always)]
    fn same16_soon(self, a: usize, b: usize) -> usize {
        let low = self.read64(a) ^ self.read64(b);
        let high = self.read64(a + 8) ^ self.read64(b + 8);
        let high = 64 + high.trailing_zeros();
        let same = if low == 0 { high } else { low.trailing_zeros() };
        same as usize / 8
    }
}

/// Bytes in a slice whose first byte has a given index.
#[derive(Clone, Copy)]
pub(crate) struct Checked<'a> {
    data: &'a [u8],
    first: usize,
}

impl<'a> Checked<'a> {
    /// `data`, of which the first byte has index `first`.
    pub(crate) fn new(data: &'a [u8], first: u32) -> Self {
        Checked {
            data,
            first: first as usize,
        }
    }

    #[inline(always)]
    fn read<const N: usize>(self, at: usize) -> [u8; N] {
        self.data[at - self.first..][..N]
            .try_into()
            .unwrap_or([0; N])
    }
}

impl Memory for Checked<'_> {
    #[inline(always)]
    fn first(self) -> usize {
        self.first
    }

    #[inline(always)]
    fn end(self) -> usize {
        self.first + self.data.len()
    }

    #[inline(always)]
    fn moved(self, by: usize) -> Self {
        Checked {
            first: self.first + by,
            ..self
        }
    }

    #[cfg(not(feature = "portable"))]
    fn place(self, at: usize) -> *const u8 {
        self.data[at - self.first..].as_ptr()
    }

    #[inline(always)]
    fn byte(self, at: usize) -> u8 {
        self.read::<1>(at)[0]
    }

    #[inline(always)]
    fn read32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.read(at))
    }

    #[inline(always)]
    fn read64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.read(at))
    }

    #[inline(always)]
    fn chunk16(self, at: usize) -> [u8; 16] {
        self.read(at)
    }
}

/// A table of indexes.
pub(crate) trait Table {
    /// The index in cell `i`.
    fn at(&self, i: usize) -> u32;
    /// Sets cell `i`.
    fn put(&mut self, i: usize, value: u32);
}

impl Table for &mut [[u8; 4]] {
    #[inline(always)]
    fn at(&self, i: usize) -> u32 {
        Cells::at(&**self, i)
    }

    #[inline(always)]
    fn put(&mut self, i: usize, value: u32) {
        Cells::put(&mut **self, i, value);
    }
}

/// How many bytes at `at` and at `before`, which lies before it, are equal, up to the end.
///
/// Sixteen at a time: that so many are equal is rare enough to be foretold.
#[inline(always)]
pub(crate) fn match_length<M: Memory>(data: M, at: usize, before: usize) -> usize {
    let (mut a, mut b) = (at, before);
    let end = data.end();
    if a + 16 <= end {
        let same = data.same16(a, b);
        if same < 16 {
            return same;
        }
        a += 16;
        b += 16;
    }
    while a + 16 <= end {
        let same = data.same16(a, b);
        if same < 16 {
            return a + same - at;
        }
        a += 16;
        b += 16;
    }
    while a < end && data.byte(a) == data.byte(b) {
        a += 1;
        b += 1;
    }
    a - at
}

/// The same for one who waits for it.
#[inline(always)]
pub(crate) fn match_length_soon<M: Memory>(data: M, at: usize, before: usize) -> usize {
    if at + 16 > data.end() {
        return match_length(data, at, before);
    }
    let same = data.same16_soon(at, before);
    if same < 16 {
        return same;
    }
    16 + match_length(data, at + 16, before + 16)
}

/// How many bytes before `at` and before `candidate`, which lies before it, are equal, down to `anchor` and to the start.
#[inline(always)]
pub(crate) fn count_back<M: Memory>(data: M, at: usize, candidate: usize, anchor: usize) -> usize {
    let mut back = 0;
    if candidate >= data.first() + 8 {
        // All that differ within eight bytes without a branch.
        let differ = data.read64(at - 8) ^ data.read64(candidate - 8);
        back = (differ.leading_zeros() as usize / 8).min(at - anchor);
        if back < 8 {
            return back;
        }
    }
    let most = (at - anchor).min(candidate - data.first());
    while back < most && data.byte(at - 1 - back) == data.byte(candidate - 1 - back) {
        back += 1;
    }
    back
}

/// Repeat offsets that reach before the data are put aside: they are 0 while a block is searched.
pub(super) fn put_aside(repeat: [u32; 3], begin: usize) -> [usize; 3] {
    repeat.map(|offset| {
        if offset as usize > begin {
            0
        } else {
            offset as usize
        }
    })
}

/// Repeat offsets after a block, from those before it and those that the search kept.
pub(super) fn take_back(given: [u32; 3], kept: [usize; 3], store: &SequenceStore<'_>) -> [u32; 3] {
    if !kept.contains(&0) {
        return kept.map(|offset| offset as u32);
    }
    let mut counted = given;
    for sequence in store.sequences() {
        update_repeat_offsets(
            &mut counted,
            sequence.offset_value(),
            sequence.literal_length(),
        );
    }
    counted
}
