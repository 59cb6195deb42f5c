//! Reads everything but content: names in a directory, link targets, positions of holes, sizes of
//! devices.

use std::ffi::CStr;
use std::io;
use std::os::fd::AsFd;

use rustix::fs::{self, Mode};
use rustix::io::Errno;

use crate::open::OpenFlags;
use crate::path::proc_path;

/// Buffer for one `getdents64` call: large, so that large directories take few calls.
const DIRECTORY_BUFFER_BYTES: usize = 64 << 10;

/// Calls `each` with every name in an open directory except `.` and `..`, in the kernel's order,
/// starting at the descriptor's position, which for a freshly opened directory is the beginning.
///
/// # Errors
/// The kernel's error, or the first error that `each` returns.
pub fn for_each_name<E: From<io::Error>>(
    dir: impl AsFd,
    mut each: impl FnMut(&CStr) -> Result<(), E>,
) -> Result<(), E> {
    let mut buf = Vec::with_capacity(DIRECTORY_BUFFER_BYTES);
    let mut entries = fs::RawDir::new(dir, buf.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(io::Error::from)?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            each(name)?;
        }
    }
    Ok(())
}

/// The target of the symbolic link with this name.
///
/// # Errors
/// The kernel's error; `InvalidInput` when it is not a symbolic link.
pub fn read_link_at(dir: impl AsFd, name: &[u8]) -> io::Result<Vec<u8>> {
    Ok(fs::readlinkat(dir, name, Vec::new())?.into_bytes())
}

/// The position of the next data at or after `from` (`SEEK_DATA`); `None` if only a hole is left.
/// Changes the descriptor's position.
///
/// # Errors
/// The kernel's error.
pub fn seek_data(file: impl AsFd, from: u64) -> io::Result<Option<u64>> {
    match fs::seek(file, fs::SeekFrom::Data(from)) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The position of the next hole at or after `from` (`SEEK_HOLE`); the end of the file counts as
/// one. `None` if `from` is at or past the end. Changes the descriptor's position.
///
/// # Errors
/// The kernel's error.
pub fn seek_hole(file: impl AsFd, from: u64) -> io::Result<Option<u64>> {
    match fs::seek(file, fs::SeekFrom::Hole(from)) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The size of an open block device in bytes. Keeps the descriptor's position. Needs `/proc`.
///
/// # Errors
/// The kernel's error.
pub fn device_bytes(device: impl AsFd) -> io::Result<u64> {
    // A second descriptor, because seeking to the end moves the position.
    let proc = proc_path(device.as_fd());
    let flags = OpenFlags::RDONLY | OpenFlags::CLOEXEC;
    let again = fs::openat(fs::CWD, proc.as_slice(), flags, Mode::empty())?;
    Ok(fs::seek(again, fs::SeekFrom::End(0))?)
}
