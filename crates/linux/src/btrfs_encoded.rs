//! Reading and writing the compressed extents of a mounted btrfs as they are
//! (`BTRFS_IOC_ENCODED_READ`, `BTRFS_IOC_ENCODED_WRITE`).

use std::ffi::{c_ulong, c_void};
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, ioctl, opcode};

use crate::btrfs_subvolume::BTRFS;

/// The most bytes of a file that a compressed extent of btrfs holds, and the most bytes that it is
/// stored in (`BTRFS_MAX_COMPRESSED`, `BTRFS_MAX_UNCOMPRESSED`).
pub const ENCODED_BYTES_MAX: u64 = 128 << 10;

/// A compressed extent, and where its file shows which part of it.
#[derive(Clone, Copy, Debug)]
pub struct EncodedExtent<'a> {
    /// Where in the file.
    pub offset: u64,
    /// How many bytes of the file.
    pub len: u64,
    /// The length of the extent when it is decoded.
    pub unencoded_len: u64,
    /// Where the written bytes begin in the decoded extent.
    pub unencoded_offset: u64,
    /// `BTRFS_ENCODED_IO_COMPRESSION_*`.
    pub compression: u32,
    /// The encoded bytes.
    pub data: &'a [u8],
}

/// `struct iovec`.
#[repr(C)]
struct Iovec {
    base: *const c_void,
    len: usize,
}

/// `struct btrfs_ioctl_encoded_io_args`.
#[repr(C)]
struct EncodedIoArgs {
    iov: *const Iovec,
    iovcnt: c_ulong,
    offset: i64,
    flags: u64,
    len: u64,
    unencoded_len: u64,
    unencoded_offset: u64,
    compression: u32,
    encryption: u32,
    reserved: [u8; 64],
}

const ENCODED_WRITE: Opcode = opcode::write::<EncodedIoArgs>(BTRFS, 64);

/// Writes an extent as it is encoded. The kernel does not decode it. Needs privilege.
///
/// # Errors
/// The kernel's error: `EINVAL` for an extent that this file or file system cannot hold,
/// `ENOTTY` before Linux 5.19 and on other file systems, `PermissionDenied` without privilege.
pub fn write_encoded(file: impl AsFd, extent: &EncodedExtent<'_>) -> io::Result<()> {
    let data = Iovec {
        base: extent.data.as_ptr().cast(),
        len: extent.data.len(),
    };
    let args = EncodedIoArgs {
        iov: &raw const data,
        iovcnt: 1,
        offset: extent.offset.try_into().map_err(io::Error::other)?,
        flags: 0,
        len: extent.len,
        unencoded_len: extent.unencoded_len,
        unencoded_offset: extent.unencoded_offset,
        compression: extent.compression,
        encryption: 0,
        reserved: [0; 64],
    };
    // SAFETY: the kernel reads a `struct btrfs_ioctl_encoded_io_args` for this opcode, which is
    // what it is given.
    let call = unsafe { Setter::<ENCODED_WRITE, EncodedIoArgs>::new(args) };
    // SAFETY: the kernel reads the argument, the one `Iovec` that it points to, and the bytes that
    // this points to, which are those of `extent.data`. All live until the call returns, and the
    // kernel does not write to them.
    Ok(unsafe { ioctl(file, call) }?)
}

/// A part of a file as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadExtent {
    /// How many bytes of the file the extent shows from where it was read.
    pub len: u64,
    /// The length of the extent when it is decoded.
    pub unencoded_len: u64,
    /// Where the part that the file shows begins in the decoded extent.
    pub unencoded_offset: u64,
    /// `BTRFS_ENCODED_IO_COMPRESSION_*`; 0 if the bytes are not encoded.
    pub compression: u32,
}

const ENCODED_READ: Opcode = opcode::read::<EncodedIoArgs>(BTRFS, 64);

/// The call, of which the number of bytes read is the result.
struct EncodedRead<'a>(&'a mut EncodedIoArgs);

// SAFETY: the pointer is that of a `struct btrfs_ioctl_encoded_io_args`, which is what the kernel
// reads and writes for this opcode; the call is declared to write; and the output is only the
// number that the kernel returns.
unsafe impl Ioctl for EncodedRead<'_> {
    type Output = usize;

    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        ENCODED_READ
    }

    fn as_ptr(&mut self) -> *mut c_void {
        (&raw mut *self.0).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<usize> {
        Ok(usize::try_from(out).unwrap_or(0))
    }
}

/// Reads the extent at `offset` of a file as it is stored, at most `stored_max` bytes, into
/// `stored`, which is cleared first. Needs privilege.
///
/// # Errors
/// The kernel's error: `ENOBUFS` for a longer extent, `ENOTTY` before Linux 5.19 and on other
/// file systems, `PermissionDenied` without privilege.
pub fn read_encoded(
    file: impl AsFd,
    offset: u64,
    stored_max: usize,
    stored: &mut Vec<u8>,
) -> io::Result<ReadExtent> {
    stored.clear();
    stored.resize(stored_max, 0);
    let data = Iovec {
        base: stored.as_mut_ptr().cast_const().cast(),
        len: stored.len(),
    };
    let mut args = EncodedIoArgs {
        iov: &raw const data,
        iovcnt: 1,
        offset: offset.try_into().map_err(io::Error::other)?,
        flags: 0,
        len: 0,
        unencoded_len: 0,
        unencoded_offset: 0,
        compression: 0,
        encryption: 0,
        reserved: [0; 64],
    };
    // SAFETY: the kernel reads and writes the argument, reads the one `Iovec` that it points to,
    // and writes at most as many bytes as that says to where it points: the bytes of `stored`,
    // which nothing else uses. All live until the call returns.
    let read = unsafe { ioctl(file, EncodedRead(&mut args)) }?;
    stored.truncate(read);
    Ok(ReadExtent {
        len: args.len,
        unencoded_len: args.unencoded_len,
        unencoded_offset: args.unencoded_offset,
        compression: args.compression,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn arguments_have_the_size_of_linux() {
        assert_eq!(size_of::<EncodedIoArgs>(), 128);
    }
}
