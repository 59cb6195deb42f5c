//! Extended attributes of any kind of file, by directory and name.
//!
//! Linux has calls relative to a directory (`getxattrat` and the like) only since 6.13.
//! `/proc/self/fd/N/name` does the same on older kernels: the first part names the open directory
//! itself, and the last name is not followed. Only the check whether a file has any attributes,
//! which runs for every file, uses the new call where it exists.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{self, XattrFlags};
use rustix::io::Errno;

use crate::listxattrat::list_len;
use crate::path::proc_path;

/// The largest value, and the longest list of names, that Linux returns (`XATTR_SIZE_MAX`,
/// `XATTR_LIST_MAX`).
const XATTR_BYTES_MAX: usize = 65536;

fn path_of(dir: impl AsFd, name: &[u8]) -> Vec<u8> {
    let mut path = proc_path(dir.as_fd());
    if !name.is_empty() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    path
}

/// Calls `each` with the names and values of the extended attributes of `name` in `dir`, or of
/// `dir` itself if `name` is empty. For a symbolic link these are its own, not its target's. A file
/// system without attributes has none.
///
/// # Errors
/// The kernel's error; `Unsupported` without `/proc`.
pub fn for_each_xattr(
    dir: impl AsFd,
    name: &[u8],
    each: impl FnMut(&[u8], &[u8]),
) -> io::Result<()> {
    let dir = dir.as_fd();
    if !name.is_empty() && list_len(dir, name) == Some(0) {
        return Ok(());
    }
    let path = path_of(dir, name);
    let path = path.as_slice();
    // The link in /proc must be followed; what is beneath it must not.
    let listed = if name.is_empty() {
        let value = |attribute: &[u8], into: &mut [u8]| fs::getxattr(path, attribute, into);
        let list = |into: &mut [u8]| fs::listxattr(path, into);
        for_each(fs::listxattr_query(path), list, value, each)
    } else {
        let value = |attribute: &[u8], into: &mut [u8]| fs::lgetxattr(path, attribute, into);
        let list = |into: &mut [u8]| fs::llistxattr(path, into);
        for_each(fs::llistxattr_query(path), list, value, each)
    };
    match listed {
        Err(Errno::NOENT) if fs::stat("/proc/self/fd").is_err() => {
            let why = "extended attributes cannot be read without /proc";
            Err(io::Error::new(io::ErrorKind::Unsupported, why))
        }
        listed => Ok(listed?),
    }
}

/// Like [`for_each_xattr`], for an open file or directory.
///
/// # Errors
/// The kernel's error.
pub fn for_each_xattr_of(file: impl AsFd, each: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
    let file = file.as_fd();
    let value = |attribute: &[u8], into: &mut [u8]| fs::fgetxattr(file, attribute, into);
    let list = |into: &mut [u8]| fs::flistxattr(file, into);
    Ok(for_each(fs::flistxattr_query(file), list, value, each)?)
}

/// Calls `each` with what `list` and `value` put into their buffers. If `names_len` is 0, neither
/// is called: most files have no attributes, and then asking for the length is the only system
/// call.
fn for_each(
    names_len: Result<usize, Errno>,
    list: impl Fn(&mut [u8]) -> Result<usize, Errno>,
    value: impl Fn(&[u8], &mut [u8]) -> Result<usize, Errno>,
    mut each: impl FnMut(&[u8], &[u8]),
) -> Result<(), Errno> {
    match names_len {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(()),
        Ok(_) => {}
        Err(error) => return Err(error),
    }
    let mut names = vec![0; XATTR_BYTES_MAX];
    let len = list(&mut names)?;
    names.truncate(len);
    let mut buffer = vec![0; XATTR_BYTES_MAX];
    for attribute in names.split(|&byte| byte == 0).filter(|a| !a.is_empty()) {
        match value(attribute, &mut buffer) {
            Ok(len) => each(attribute, buffer.get(..len).unwrap_or_default()),
            Err(Errno::NODATA) => {} // removed since it was listed
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sets an extended attribute of `name` in `dir`; of a symbolic link itself, not its target.
///
/// # Errors
/// The kernel's error; `NotFound` without `/proc`.
pub fn set_xattr_at(dir: impl AsFd, name: &[u8], attribute: &[u8], value: &[u8]) -> io::Result<()> {
    let path = path_of(dir, name);
    let flags = XattrFlags::empty();
    Ok(fs::lsetxattr(path.as_slice(), attribute, value, flags)?)
}

/// Sets an extended attribute of an open file or directory.
///
/// # Errors
/// The kernel's error.
pub fn set_xattr(file: impl AsFd, attribute: &[u8], value: &[u8]) -> io::Result<()> {
    Ok(fs::fsetxattr(file, attribute, value, XattrFlags::empty())?)
}

/// Removes an extended attribute of an open file or directory. Returns whether there was one.
///
/// # Errors
/// The kernel's error.
pub fn remove_xattr(file: impl AsFd, attribute: &[u8]) -> io::Result<bool> {
    // tmpfs reports success for removing access control lists that do not exist, so check first
    // whether there is one.
    let size = fs::fgetxattr(&file, attribute, &mut [] as &mut [u8]);
    match size.and_then(|_| fs::fremovexattr(&file, attribute)) {
        Ok(()) => Ok(true),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Removes an extended attribute of `name` in `dir`, or of `dir` itself if `name` is empty; of a
/// symbolic link itself, not its target.
///
/// # Errors
/// The kernel's error; `NotFound` without `/proc`.
pub fn remove_xattr_at(dir: impl AsFd, name: &[u8], attribute: &[u8]) -> io::Result<()> {
    let path = path_of(dir, name);
    // The link in /proc must be followed; what is beneath it must not.
    match name {
        [] => fs::removexattr(path.as_slice(), attribute)?,
        _ => fs::lremovexattr(path.as_slice(), attribute)?,
    }
    Ok(())
}
