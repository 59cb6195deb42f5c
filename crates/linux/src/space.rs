//! The space of files and devices: allocating, punching and discarding it, and writing it early;
//! the file system it is on.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsFd;

use rustix::fs::{self, Advice, FallocateFlags};
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `BTRFS_SUPER_MAGIC`.
const BTRFS_SUPER_MAGIC: u64 = 0x9123_683e;

const BLKDISCARD: Opcode = opcode::none(0x12, 119);

/// Discards the content of a block device (`BLKDISCARD`) from its start on.
///
/// # Errors
/// The kernel's error: `Unsupported` for a device that cannot do it.
pub fn discard(device: impl AsFd, bytes: u64) -> io::Result<()> {
    // SAFETY: the kernel reads two numbers of 64 bits for this opcode, the start and the length.
    let call = unsafe { Setter::<BLKDISCARD, [u64; 2]>::new([0, bytes]) };
    // SAFETY: the kernel reads the argument, which lives until the call is over.
    Ok(unsafe { ioctl(device, call) }?)
}

/// The size of a page of memory, in bytes.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Calls fallocate(2) with this mode (`FALLOC_FL_*`).
///
/// # Errors
/// The kernel's error.
pub fn allocate(file: impl AsFd, mode: u32, offset: u64, len: u64) -> io::Result<()> {
    let mode = FallocateFlags::from_bits_retain(mode);
    Ok(fs::fallocate(file, mode, offset, len)?)
}

/// Begins to write a range of a file to the medium, without waiting for it. Pages of the range that
/// are there already leave the cache.
///
/// # Errors
/// The kernel's error.
pub fn begin_writing(file: impl AsFd, offset: u64, len: u64) -> io::Result<()> {
    let len = NonZeroU64::new(len);
    Ok(fs::fadvise(file, offset, len, Advice::DontNeed)?)
}

/// Whether an open file or directory is on a btrfs.
///
/// # Errors
/// The kernel's error.
pub fn is_btrfs(file: impl AsFd) -> io::Result<bool> {
    // The type of the field differs between platforms; the magic number has 32 bits.
    let kind = fs::fstatfs(file)?.f_type as u64;
    Ok(kind & 0xffff_ffff == BTRFS_SUPER_MAGIC)
}
