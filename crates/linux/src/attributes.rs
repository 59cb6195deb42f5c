//! File attributes (`FS_*_FL` of linux/fs.h), which `lsattr` and `chattr` show and set.

use std::io;
use std::os::fd::AsFd;

use rustix::fs;
use rustix::ioctl::{Getter, Opcode, Setter, ioctl, opcode};

/// The attributes of an open file or directory (`FS_IOC_GETFLAGS`: `FS_*_FL` of linux/fs.h).
///
/// # Errors
/// The kernel's error; `Unsupported` or an inappropriate-ioctl error where the file system has
/// none.
pub fn attributes(file: impl AsFd) -> io::Result<u32> {
    Ok(fs::ioctl_getflags(file)?.bits())
}

/// Sets the attributes of an open file or directory (`FS_IOC_SETFLAGS`), all at once.
///
/// # Errors
/// The kernel's error; as for [`attributes`] where the file system has none.
pub fn set_attributes(file: impl AsFd, attributes: u32) -> io::Result<()> {
    let flags = fs::IFlags::from_bits_retain(attributes);
    Ok(fs::ioctl_setflags(file, flags)?)
}

/// Sets those attributes among `which` that are in `wanted`, and clears the others among `which`.
/// All that remain stay: some of them say how the file system stores the file, and ext4 would
/// convert a file that loses them, or refuse to.
///
/// # Errors
/// As [`attributes`] and [`set_attributes`].
pub fn change_attributes(file: impl AsFd, which: u32, wanted: u32) -> io::Result<()> {
    let before = attributes(&file)?;
    let now = before & !which | wanted & which;
    if now == before {
        return Ok(());
    }
    set_attributes(&file, now)
}

/// `struct fsxattr` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct FsXattr {
    xflags: u32,
    extsize: u32,
    nextents: u32,
    projid: u32,
    cowextsize: u32,
    pad: [u8; 8],
}

const FSGETXATTR: Opcode = opcode::read::<FsXattr>(b'X', 31);
const FSSETXATTR: Opcode = opcode::write::<FsXattr>(b'X', 32);

/// The extended flags of an open file or directory (`FS_IOC_FSGETXATTR`: `FS_XFLAG_*` of
/// linux/fs.h).
///
/// # Errors
/// The kernel's error; as for [`attributes`] where the file system has none.
pub fn extended_flags(file: impl AsFd) -> io::Result<u32> {
    Ok(fsxattr(file)?.xflags)
}

/// Sets the extended flags of an open file or directory (`FS_IOC_FSSETXATTR`), all at once. Unlike
/// [`set_attributes`], this does not change how btrfs compresses the file.
///
/// # Errors
/// The kernel's error; as for [`attributes`] where the file system has none.
pub fn set_extended_flags(file: impl AsFd, flags: u32) -> io::Result<()> {
    let file = file.as_fd();
    let value = FsXattr {
        xflags: flags,
        ..fsxattr(file)?
    };
    // SAFETY: the kernel reads a `struct fsxattr` for this opcode, which is what it is given.
    let call = unsafe { Setter::<FSSETXATTR, FsXattr>::new(value) };
    // SAFETY: the kernel reads the argument, which lives until the call is over; it has no
    // pointers.
    Ok(unsafe { ioctl(file, call) }?)
}

fn fsxattr(file: impl AsFd) -> io::Result<FsXattr> {
    // SAFETY: the kernel writes a `struct fsxattr` for this opcode, for which there is room, and
    // any bytes are a value of it.
    let call = unsafe { Getter::<FSGETXATTR, FsXattr>::new() };
    // SAFETY: the kernel writes all of the value before the call is over.
    Ok(unsafe { ioctl(file, call) }?)
}
