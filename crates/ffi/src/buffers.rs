//! Input and output of streams, as both interfaces have them.

use core::ffi::c_void;

use crate::failure::Failure;
use crate::memory::{bytes, bytes_mut};
use zstd::Error;

/// `zstd_in_buffer`, `ZSTD_inBuffer`: input, and how much of it was taken.
#[derive(Debug)]
#[repr(C)]
pub struct InBuffer {
    /// Start of the input.
    pub src: *const c_void,
    /// Its size.
    pub size: usize,
    /// Where reading goes on.
    pub pos: usize,
}

/// `zstd_out_buffer`, `ZSTD_outBuffer`: room for output, and how much of it is used.
#[derive(Debug)]
#[repr(C)]
pub struct OutBuffer {
    /// Start of the room.
    pub dst: *mut c_void,
    /// Its size.
    pub size: usize,
    /// Where writing goes on.
    pub pos: usize,
}

impl InBuffer {
    /// The input that was not taken yet.
    ///
    /// # Safety
    ///
    /// There are `size` bytes at `src` that no code writes to while the result is used, unless
    /// `src` is NULL or `size` 0.
    pub(crate) unsafe fn rest<'a>(&self) -> Result<&'a [u8], Failure> {
        // SAFETY: the caller promises it.
        let all = unsafe { source(self.src, self.size) }?;
        Ok(all.get(self.pos..).ok_or(Error::SrcSizeWrong)?)
    }
}

impl OutBuffer {
    /// The room that is left.
    ///
    /// # Safety
    ///
    /// There are `size` bytes at `dst` that no other code uses while the result is used, unless
    /// `dst` is NULL or `size` 0.
    pub(crate) unsafe fn rest<'a>(&self) -> Result<&'a mut [u8], Failure> {
        // SAFETY: the caller promises it.
        let all = unsafe { destination(self.dst, self.size) }?;
        Ok(all.get_mut(self.pos..).ok_or(Error::DstSizeTooSmall)?)
    }
}

/// The bytes that a call reads.
///
/// # Safety
///
/// As [`bytes`].
pub(crate) unsafe fn source<'a>(src: *const c_void, size: usize) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller promises it.
    let source = unsafe { bytes(src, size) };
    source.ok_or(Failure::Codec(Error::SrcSizeWrong))
}

/// The bytes that a call writes.
///
/// # Safety
///
/// As [`bytes_mut`].
pub(crate) unsafe fn destination<'a>(
    dst: *mut c_void,
    size: usize,
) -> Result<&'a mut [u8], Failure> {
    // SAFETY: the caller promises it.
    let destination = unsafe { bytes_mut(dst, size) };
    destination.ok_or(if dst.is_null() {
        Failure::DestinationNull
    } else {
        Failure::Codec(Error::DstSizeTooSmall)
    })
}
