//! Extended attributes of any kind of file, by directory and name.
//!
//! Linux gained calls relative to a directory (`getxattrat` and its kin) only in 6.13. Until then `/proc/self/fd/N/name`
//! does the same: the first part names the open directory itself, and the last name is not followed.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;

use crate::file::proc_path;

/// The most bytes of one value, and of one list of names, that Linux gives (`XATTR_SIZE_MAX`, `XATTR_LIST_MAX`).
pub const XATTR_BYTES_MAX: usize = 65536;

fn path_of(dir: impl AsFd, name: &[u8]) -> Vec<u8> {
    let mut path = proc_path(dir.as_fd());
    if !name.is_empty() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    path
}

/// Calls `each` with the names and values of the extended attributes of `name` in `dir`, a symbolic link's own
/// included, or of `dir` itself when `name` is empty. `buf` is scratch memory, kept by the caller for the next call.
/// A file system without attributes has none.
///
/// # Errors
/// What the kernel reports; `NotFound` without `/proc`.
pub fn for_each_xattr<E: From<io::Error>>(
    dir: impl AsFd,
    name: &[u8],
    buf: &mut Vec<u8>,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let path = path_of(dir, name);
    buf.resize(2 * XATTR_BYTES_MAX, 0);
    let (names, value) = buf.split_at_mut(XATTR_BYTES_MAX);
    let listed = if name.is_empty() {
        fs::listxattr(path.as_slice(), &mut *names) // the magic link itself must be followed
    } else {
        fs::llistxattr(path.as_slice(), &mut *names)
    };
    let len = match listed {
        Ok(len) => len,
        Err(Errno::OPNOTSUPP) => return Ok(()),
        Err(error) => return Err(io::Error::from(error).into()),
    };
    let listed = names.get(..len).unwrap_or_default();
    for attribute in listed.split(|&byte| byte == 0).filter(|a| !a.is_empty()) {
        let read = if name.is_empty() {
            fs::getxattr(path.as_slice(), attribute, &mut *value)
        } else {
            fs::lgetxattr(path.as_slice(), attribute, &mut *value)
        };
        match read {
            Ok(len) => each(attribute, value.get(..len).unwrap_or_default())?,
            Err(Errno::NODATA) => {} // removed since it was listed
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
    Ok(())
}

/// Sets an extended attribute of `name` in `dir`, a symbolic link's own included.
///
/// # Errors
/// What the kernel reports; `NotFound` without `/proc`.
pub fn set_xattr_at(dir: impl AsFd, name: &[u8], attribute: &[u8], value: &[u8]) -> io::Result<()> {
    let path = path_of(dir, name);
    let flags = XattrFlags::empty();
    Ok(fs::lsetxattr(path.as_slice(), attribute, value, flags)?)
}

/// Sets an extended attribute of an open file or directory.
///
/// # Errors
/// What the kernel reports.
pub fn set_xattr(file: impl AsFd, attribute: &[u8], value: &[u8]) -> io::Result<()> {
    Ok(fs::fsetxattr(file, attribute, value, XattrFlags::empty())?)
}

/// Removes an extended attribute of an open file or directory; that it has none of that name is fine.
///
/// # Errors
/// What the kernel reports.
pub fn remove_xattr(file: impl AsFd, attribute: &[u8]) -> io::Result<()> {
    match fs::fremovexattr(file, attribute) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
