//! Bit streams without bounds checks.
//!
//! The writers in `huffman/write.rs` and `sequences/write.rs` are written once, over [`Sink`]. The safe twin gives them a
//! slice. The functions here give them a pointer, and let the compiler use BMI instructions where the machine has them.

#[cfg(target_arch = "x86_64")]
use super::find::bmi;
use super::find::kernel;
use crate::bits::Sink;
use crate::{huffman, sequences};
use core::marker::PhantomData;

/// Memory that is written without a check.
struct TrustedSink<'a> {
    start: *mut u8,
    len: usize,
    out: PhantomData<&'a mut [u8]>,
}

impl<'a> TrustedSink<'a> {
    /// `out`, of which nobody checks how it is written.
    ///
    /// # Safety
    ///
    /// Every write must lie within `out`: for `put8` at + 1, for `put64` at + 8 at most its length.
    #[inline(always)]
    unsafe fn new(out: &'a mut [u8]) -> Self {
        TrustedSink {
            start: out.as_mut_ptr(),
            len: out.len(),
            out: PhantomData,
        }
    }
}

impl Sink for TrustedSink<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn put64(&mut self, at: usize, value: u64) {
        debug_assert!(at + 8 <= self.len);
        // SAFETY: who made this promised that `at + 8` is at most the length of the slice behind `start`.
        let place = unsafe { self.start.add(at) };
        // SAFETY: as above; the borrow is unique, and byte arrays need no alignment.
        unsafe { place.cast::<[u8; 8]>().write(value.to_le_bytes()) };
    }

    #[inline(always)]
    fn put8(&mut self, at: usize, value: u8) {
        debug_assert!(at < self.len);
        // SAFETY: who made this promised that `at` is below the length of the slice behind `start`.
        let place = unsafe { self.start.add(at) };
        // SAFETY: as above, and the borrow is unique.
        unsafe { place.write(value) };
    }
}

/// Tables that are read without a check.
#[derive(Clone, Copy)]
struct TrustedTables<'a>(&'a sequences::RunTables);

impl<'a> TrustedTables<'a> {
    /// `tables`, of which nobody checks how they are read.
    ///
    /// # Safety
    ///
    /// Every read must lie within the tables, and what is told to be a small number of bits must be below 32.
    #[inline(always)]
    unsafe fn new(tables: &'a sequences::RunTables) -> Self {
        TrustedTables(tables)
    }

    #[inline(always)]
    fn read<const N: usize>(self, at: usize) -> [u8; N] {
        debug_assert!(at + N <= self.0.len());
        let place = self.0.as_ptr().wrapping_add(at).cast::<[u8; N]>();
        // SAFETY: who made this promised that the bytes from `at` to `at + N` are in the tables; byte arrays need no
        // alignment.
        unsafe { place.read() }
    }
}

impl sequences::Tables for TrustedTables<'_> {
    #[inline(always)]
    fn read16(self, at: usize) -> u16 {
        u16::from_ne_bytes(self.read(at))
    }

    #[inline(always)]
    fn read32(self, at: usize) -> u32 {
        u32::from_ne_bytes(self.read(at))
    }

    #[inline(always)]
    fn short(bits: u32) -> u32 {
        debug_assert!(bits < 32);
        // SAFETY: who made this promised it.
        unsafe { core::hint::assert_unchecked(bits < 32) };
        bits
    }
}

kernel!(
    /// [`sequences::write_bits`] without checks.
    write_bits,
    write_bits_bmi,
    (
        out: &mut [u8],
        reversed: &[[u8; 8]],
        tables: &sequences::RunTables,
        starts: [sequences::Start; 3],
    ) -> Option<usize>,
    {
        // SAFETY: `bits::put_bytes`, through which nearly all is written, compares with the length before; as many sequences
        // are written without that as there is room for, eight bytes more included.
        let out = unsafe { TrustedSink::new(out) };
        // SAFETY: a slot is the number of a literal length below 64, of a match length below 128, of leading zeros, or of a
        // code of a long length, at most 15 above these: `Run` has room for all of them in `RunTables`, and for states as many
        // as `log_max` says. Numbers of bits are at most 27: `Run::fill` makes all slots that there are.
        let tables = unsafe { TrustedTables::new(tables) };
        sequences::write_bits(out, reversed, tables, starts)
    }
);

kernel!(
    /// [`huffman::write_stream`] without checks.
    write_stream,
    write_stream_bmi,
    (out: &mut [u8], literals: &[u8], codes: &[[u8; 8]; 256]) -> Option<usize>,
    {
        // SAFETY: `bits::put_bytes`, through which nearly all is written, compares with the length before; as many codes are
        // written without that as there is room for, eight bytes more included.
        let out = unsafe { TrustedSink::new(out) };
        huffman::write_stream(out, literals, codes)
    }
);
