//! Writing back data that has no extents yet (`FS_IOC_FIEMAP`).

use std::io;
use std::os::fd::AsFd;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// `FIEMAP_FLAG_SYNC`.
const SYNC: u32 = 1;

/// `struct fiemap`, without extents.
#[repr(C)]
struct Fiemap {
    fm_start: u64,
    fm_length: u64,
    fm_flags: u32,
    fm_mapped_extents: u32,
    fm_extent_count: u32,
    fm_reserved: u32,
}

const FIEMAP: Opcode = opcode::read_write::<Fiemap>(b'f', 11);

/// Waits until everything written to a file has its extents, compressed ones included, as
/// fsync(2) does, without waiting for the medium.
///
/// # Errors
/// The kernel's error; `Unsupported` where the file system has no such call.
pub fn flush_extents(file: impl AsFd) -> io::Result<()> {
    let mut args = Fiemap {
        fm_start: 0,
        // Everything is written back; only as far as this are extents counted.
        fm_length: 1,
        fm_flags: SYNC,
        fm_mapped_extents: 0,
        fm_extent_count: 0,
        fm_reserved: 0,
    };
    // SAFETY: the kernel reads and writes a `struct fiemap` for this opcode, and as many extents
    // after it as `fm_extent_count` says: zero.
    let call = unsafe { Updater::<FIEMAP, Fiemap>::new(&mut args) };
    // SAFETY: the kernel reads and writes the argument, which lives until the call is over; it has
    // no pointers, and any bytes are a value of it.
    unsafe { ioctl(file, call) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_size_of_linux() {
        assert_eq!(size_of::<Fiemap>(), 32);
    }
}
