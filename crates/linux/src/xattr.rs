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
/// included, or of `dir` itself when `name` is empty. A file system without attributes has none.
///
/// # Errors
/// What the kernel reports; `Unsupported` without `/proc`.
pub fn for_each_xattr(
    dir: impl AsFd,
    name: &[u8],
    mut each: impl FnMut(&[u8], &[u8]),
) -> io::Result<()> {
    let path = path_of(dir, name);
    let path = path.as_slice();
    // The magic link itself must be followed, what is beneath it must not.
    let itself = name.is_empty();
    // Most files have none, and asking for the length alone is then the only call.
    let len = if itself {
        fs::listxattr_query(path)
    } else {
        fs::llistxattr_query(path)
    };
    match len {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(()),
        Ok(_) => {}
        Err(Errno::NOENT) if fs::stat("/proc/self/fd").is_err() => {
            let why = "extended attributes cannot be read without /proc";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        Err(error) => return Err(error.into()),
    }
    let mut names = vec![0; XATTR_BYTES_MAX];
    let len = if itself {
        fs::listxattr(path, &mut names[..])?
    } else {
        fs::llistxattr(path, &mut names[..])?
    };
    names.truncate(len);
    let mut value = vec![0; XATTR_BYTES_MAX];
    for attribute in names.split(|&byte| byte == 0).filter(|a| !a.is_empty()) {
        let read = if itself {
            fs::getxattr(path, attribute, &mut value[..])
        } else {
            fs::lgetxattr(path, attribute, &mut value[..])
        };
        match read {
            Ok(len) => each(attribute, value.get(..len).unwrap_or_default()),
            Err(Errno::NODATA) => {} // removed since it was listed
            Err(error) => return Err(error.into()),
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

/// Removes an extended attribute of an open file or directory, and returns whether it had it.
///
/// # Errors
/// What the kernel reports.
pub fn remove_xattr(file: impl AsFd, attribute: &[u8]) -> io::Result<bool> {
    match fs::fremovexattr(file, attribute) {
        Ok(()) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
