//! Unchecked memory access for the loops in `streams`. The safe twin is `encode/out.rs`.

/// Bytes that a bit stream is written to.
pub(crate) struct Out<'a>(&'a mut [u8]);

impl<'a> Out<'a> {
    #[inline(always)]
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Out(bytes)
    }

    /// All of them.
    #[inline(always)]
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.0
    }

    /// Writes eight bytes at `at`.
    ///
    /// # Safety
    ///
    /// `at + 8` is at most the number of bytes.
    #[inline(always)]
    pub(crate) unsafe fn put64(&mut self, at: usize, value: u64) {
        debug_assert!(at + 8 <= self.0.len());
        // SAFETY: the caller promises that the eight bytes at `at` are of the slice.
        let place = unsafe { self.0.as_mut_ptr().add(at) };
        // SAFETY: as above; the borrow is unique, and byte arrays need no alignment.
        unsafe { place.cast::<[u8; 8]>().write(value.to_le_bytes()) };
    }
}

/// `N` of the bytes, starting at `at`.
///
/// # Safety
///
/// `at + N` is at most `SIZE`.
#[inline(always)]
pub(crate) unsafe fn read<const N: usize, const SIZE: usize>(
    bytes: &[u8; SIZE],
    at: usize,
) -> [u8; N] {
    debug_assert!(at + N <= SIZE);
    let place = bytes.as_ptr().wrapping_add(at).cast::<[u8; N]>();
    // SAFETY: the caller promises that the bytes from `at` to `at + N` are there; byte arrays need
    // no alignment.
    unsafe { place.read() }
}

/// A number of bits that is below 32, which the compiler then knows.
///
/// # Safety
///
/// It is below 32.
#[inline(always)]
pub(crate) unsafe fn below_32(bits: u32) -> u32 {
    debug_assert!(bits < 32);
    // SAFETY: as the caller promises.
    unsafe { core::hint::assert_unchecked(bits < 32) };
    bits
}
