//! Sharing ranges of files (`FICLONERANGE`).

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

/// `struct file_clone_range`.
#[repr(C)]
struct FileCloneRange {
    src_fd: i64,
    src_offset: u64,
    src_length: u64,
    dest_offset: u64,
}

const FICLONERANGE: Opcode = opcode::write::<FileCloneRange>(0x94, 13);

/// Shares a range of `source` with `file`, at `offset`. No byte is copied.
///
/// # Errors
/// The kernel's error: `EINVAL` for ranges that are not whole blocks, `EXDEV` for files of two
/// file systems, `Unsupported` where the file system cannot share.
pub fn clone_range(
    source: impl AsFd,
    from: u64,
    len: u64,
    file: impl AsFd,
    offset: u64,
) -> io::Result<()> {
    let source = source.as_fd();
    let args = FileCloneRange {
        src_fd: source.as_raw_fd().into(),
        src_offset: from,
        src_length: len,
        dest_offset: offset,
    };
    // SAFETY: the kernel reads a `struct file_clone_range` for this opcode, which is what it is
    // given.
    let call = unsafe { Setter::<FICLONERANGE, FileCloneRange>::new(args) };
    // SAFETY: the kernel reads the argument, which lives until the call is over; its descriptor is
    // that of `source`, which is open until then.
    Ok(unsafe { ioctl(file, call) }?)
}
