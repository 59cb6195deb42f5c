//! File attributes (`FS_*_FL` of linux/fs.h), which `lsattr` and `chattr` show and set.

use std::io;
use std::os::fd::AsFd;

use rustix::fs;

/// The attributes of an open file or directory (`FS_IOC_GETFLAGS`: `FS_*_FL` of linux/fs.h).
///
/// # Errors
/// What the kernel reports; `Unsupported` or an inappropriate-ioctl error where the file system has none.
pub fn attributes(file: impl AsFd) -> io::Result<u32> {
    Ok(fs::ioctl_getflags(file)?.bits())
}

/// Sets the attributes of an open file or directory (`FS_IOC_SETFLAGS`), all at once.
///
/// # Errors
/// What the kernel reports; as for [`attributes`] where the file system has none.
pub fn set_attributes(file: impl AsFd, attributes: u32) -> io::Result<()> {
    let flags = fs::IFlags::from_bits_retain(attributes);
    Ok(fs::ioctl_setflags(file, flags)?)
}
