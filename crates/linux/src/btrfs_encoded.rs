//! Writing extents that are already compressed to a mounted btrfs (`BTRFS_IOC_ENCODED_WRITE`).

use std::ffi::{c_ulong, c_void};
use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

use crate::btrfs_subvolume::BTRFS;

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
/// What the kernel reports: `EINVAL` for an extent that this file or file system cannot hold, `ENOTTY` before Linux 5.19 and
/// on other file systems, `PermissionDenied` without privilege.
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
    // SAFETY: the kernel reads a `struct btrfs_ioctl_encoded_io_args` for this opcode, which is what it is given.
    let call = unsafe { Setter::<ENCODED_WRITE, EncodedIoArgs>::new(args) };
    // SAFETY: the kernel reads the argument, the one `Iovec` that it points to, and the bytes that this points to, which are
    // those of `extent.data`. All live until the call returns, and the kernel does not write to them.
    Ok(unsafe { ioctl(file, call) }?)
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
