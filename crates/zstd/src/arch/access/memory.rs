//! The bytes in which matches are found.

use super::opaque_place;
use crate::ROOMY;
use crate::arch::compare::first_difference;
use core::marker::PhantomData;

/// Bytes, each with an index.
#[derive(Clone, Copy)]
pub(crate) struct IndexedBytes<'a> {
    /// Where the byte of index 0 would lie. The bytes from `first` to `end` are those of a slice.
    pub(super) origin: *const u8,
    first: usize,
    pub(super) end: usize,
    data: PhantomData<&'a [u8]>,
}

impl<'a> IndexedBytes<'a> {
    /// Whether the search in `data`, of which the first byte has index `first`, may begin at the
    /// index `start`: it is one of the data, and the sums of the loops do not overflow.
    pub(crate) fn fits(data: &[u8], first: u32, start: usize) -> bool {
        let first = first as usize;
        let room = usize::MAX >> 2;
        data.len() <= room
            && first <= usize::MAX - room - data.len()
            && (first..=first + data.len()).contains(&start)
    }

    /// `data`, of which the first byte has index `first`.
    #[inline(always)]
    pub(crate) fn new(data: &'a [u8], first: u32) -> Self {
        let first = first as usize;
        IndexedBytes {
            origin: data.as_ptr().wrapping_sub(first),
            first,
            end: first.wrapping_add(data.len()),
            data: PhantomData,
        }
    }

    /// The index of the first byte.
    #[inline(always)]
    pub(crate) fn first(self) -> usize {
        self.first
    }

    /// The index after the last byte.
    #[inline(always)]
    pub(crate) fn end(self) -> usize {
        self.end
    }

    /// The same bytes, each with an index that is greater by `by`.
    #[inline(always)]
    pub(crate) fn moved(self, by: usize) -> Self {
        IndexedBytes {
            origin: self.origin.wrapping_sub(by),
            first: self.first.wrapping_add(by),
            end: self.end.wrapping_add(by),
            data: self.data,
        }
    }

    /// # Safety
    ///
    /// `first <= at` and `at + N <= end`.
    #[inline(always)]
    pub(super) unsafe fn read<const N: usize>(self, at: usize) -> [u8; N] {
        debug_assert!(self.first <= at && at + N <= self.end);
        let place = self.origin.wrapping_add(at).cast::<[u8; N]>();
        // SAFETY: by the caller's promise the bytes from `at` to `at + N` lie in the slice; byte
        // arrays need no alignment.
        unsafe { place.read() }
    }

    /// The byte at `at`.
    ///
    /// # Safety
    ///
    /// `first <= at < end`.
    #[inline(always)]
    pub(crate) unsafe fn byte(self, at: usize) -> u8 {
        // SAFETY: as the caller promises.
        let [byte] = unsafe { self.read(at) };
        byte
    }

    /// Four bytes at `at` as a number.
    ///
    /// # Safety
    ///
    /// `first <= at` and `at + 4 <= end`.
    #[inline(always)]
    pub(crate) unsafe fn read32(self, at: usize) -> u32 {
        // SAFETY: as the caller promises.
        u32::from_le_bytes(unsafe { self.read(at) })
    }

    /// Eight bytes at `at` as a number.
    ///
    /// # Safety
    ///
    /// `first <= at` and `at + 8 <= end`.
    #[inline(always)]
    pub(crate) unsafe fn read64(self, at: usize) -> u64 {
        // SAFETY: as the caller promises.
        u64::from_le_bytes(unsafe { self.read(at) })
    }

    /// The bits in which the eight bytes at `a` and at `b` differ.
    ///
    /// # Safety
    ///
    /// `first <= a`, `first <= b`, and both + 8 are at most `end`.
    #[inline(always)]
    unsafe fn differ64(self, a: usize, b: usize) -> u64 {
        // SAFETY: as the caller promises.
        let a = unsafe { self.read64(a) };
        // SAFETY: as the caller promises.
        a ^ unsafe { self.read64(b) }
    }

    /// Whether the bytes at `a` and at `b` are equal.
    ///
    /// # Safety
    ///
    /// `first <= a < end` and `first <= b < end`.
    #[inline(always)]
    unsafe fn is_same(self, a: usize, b: usize) -> bool {
        // SAFETY: as the caller promises.
        let a = unsafe { self.byte(a) };
        // SAFETY: as the caller promises.
        a == unsafe { self.byte(b) }
    }

    /// How many of the sixteen bytes at `a` and at `b` are equal before the first that differ.
    ///
    /// # Safety
    ///
    /// `first <= a`, `first <= b`, and both + 16 are at most `end`.
    #[inline(always)]
    unsafe fn same16(self, a: usize, b: usize) -> usize {
        if !ROOMY {
            // Without vectors it takes fewer instructions to look at the second half only if the
            // first one is equal.
            // SAFETY: as the caller promises.
            let low = unsafe { self.differ64(a, b) };
            if low != 0 {
                return low.trailing_zeros() as usize / 8;
            }
        }
        // SAFETY: as the caller promises.
        let a = unsafe { self.read(a) };
        // SAFETY: as the caller promises.
        let b = unsafe { self.read(b) };
        first_difference(a, b)
    }

    /// The same for one who waits for it: more instructions, but by words, which come sooner than
    /// vectors.
    ///
    /// # Safety
    ///
    /// As for `same16`.
    #[inline(always)]
    unsafe fn same16_soon(self, a: usize, b: usize) -> usize {
        // SAFETY: as the caller promises.
        let low = unsafe { self.differ64(a, b) };
        // SAFETY: as the caller promises.
        let high = unsafe { self.differ64(a + 8, b + 8) };
        let high = 64 + high.trailing_zeros();
        let same = if low == 0 { high } else { low.trailing_zeros() };
        same as usize / 8
    }

    /// How many bytes at `at` and at `before` are equal, up to the end.
    ///
    /// Sixteen at a time: it is rare enough that all are equal to be predicted.
    ///
    /// # Safety
    ///
    /// `first <= before <= at <= end`.
    #[inline(always)]
    pub(crate) unsafe fn match_length(self, at: usize, before: usize) -> usize {
        let (mut a, mut b) = (at, before);
        if a + 16 <= self.end {
            // SAFETY: `a + 16 <= end`, and `first <= b <= a`.
            let same = unsafe { self.same16(a, b) };
            if same < 16 {
                return same;
            }
            a += 16;
            b += 16;
        }
        while a + 16 <= self.end {
            // SAFETY: as above: both have grown by as much.
            let same = unsafe { self.same16(a, b) };
            if same < 16 {
                return a + same - at;
            }
            a += 16;
            b += 16;
        }
        // SAFETY: `first <= b <= a < end`.
        while a < self.end && unsafe { self.is_same(a, b) } {
            a += 1;
            b += 1;
        }
        a - at
    }

    /// The same for one who waits for it.
    ///
    /// # Safety
    ///
    /// As for [`match_length`](Self::match_length).
    #[inline(always)]
    pub(crate) unsafe fn match_length_soon(self, at: usize, before: usize) -> usize {
        if at + 16 > self.end {
            // SAFETY: as the caller promises.
            return unsafe { self.match_length(at, before) };
        }
        // SAFETY: `at + 16 <= end`, and `first <= before <= at`.
        let same = unsafe { self.same16_soon(at, before) };
        if same < 16 {
            return same;
        }
        // SAFETY: as the caller promises, and `at + 16 <= end`.
        16 + unsafe { self.match_length(at + 16, before + 16) }
    }

    /// How many bytes before `at` and before `candidate` are equal, down to `anchor` and to the
    /// first.
    ///
    /// # Safety
    ///
    /// `first <= candidate <= at <= end`, and `anchor <= at`.
    #[inline(always)]
    pub(crate) unsafe fn count_back(self, at: usize, candidate: usize, anchor: usize) -> usize {
        let mut back = 0;
        if candidate >= self.first + 8 {
            // All that differ within eight bytes without a branch.
            // SAFETY: `first + 8 <= candidate <= at <= end`.
            let differ = unsafe { self.differ64(at - 8, candidate - 8) };
            back = (differ.leading_zeros() as usize / 8).min(at - anchor);
            if back < 8 {
                return back;
            }
        }
        let most = (at - anchor).min(candidate - self.first);
        while back < most {
            // SAFETY: `back < candidate - first`, so that this byte and the one as far before `at`
            // do not lie before the first.
            let equal = unsafe { self.is_same(at - 1 - back, candidate - 1 - back) };
            if !equal {
                break;
            }
            back += 1;
        }
        back
    }
}

/// Four bytes that a longer match has in common, of which the last is the first after the best
/// match so far.
#[derive(Clone, Copy)]
pub(crate) struct MatchTail<'a> {
    place: *const u8,
    data: PhantomData<&'a [u8]>,
}

impl<'a> MatchTail<'a> {
    /// The four bytes that end at `end`.
    #[inline(always)]
    pub(crate) fn new(data: IndexedBytes<'a>, end: usize) -> Self {
        MatchTail {
            place: opaque_place(data.origin.wrapping_add(end).wrapping_sub(4)),
            data: PhantomData,
        }
    }

    /// Whether the four bytes that lie `distance` before these are equal. The distance is given as
    /// its negative, which wraps.
    ///
    /// # Safety
    ///
    /// These bytes lie in the data, and so do those.
    #[inline(always)]
    pub(crate) unsafe fn is_same(self, negative: usize) -> bool {
        let before = self.place.wrapping_add(negative).cast::<[u8; 4]>();
        // SAFETY: as the caller promises; byte arrays need no alignment.
        let before = unsafe { before.read() };
        // SAFETY: as above.
        before == unsafe { self.place.cast::<[u8; 4]>().read() }
    }
}
