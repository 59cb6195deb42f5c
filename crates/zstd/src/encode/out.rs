//! Checked memory access for the loops in `streams`: the safe twin of `arch/out.rs`.

/// Bytes that a bit stream is written to.
pub(crate) struct Out<'a>(&'a mut [u8]);

impl<'a> Out<'a> {
    pub(crate) fn new(bytes: &'a mut [u8]) -> Self {
        Out(bytes)
    }

    /// All of them.
    #[inline(always)]
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        self.0
    }

    /// Writes eight bytes at `at`.
    #[inline(always)]
    pub(crate) fn put64(&mut self, at: usize, value: u64) {
        self.0[at..][..8].copy_from_slice(&value.to_le_bytes());
    }
}

/// `N` of the bytes, starting at `at`.
#[inline(always)]
pub(crate) fn read<const N: usize, const SIZE: usize>(bytes: &[u8; SIZE], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().unwrap_or(&[0; N])
}

/// A number of bits that is below 32.
#[inline(always)]
pub(crate) fn below_32(bits: u32) -> u32 {
    bits & 31
}
