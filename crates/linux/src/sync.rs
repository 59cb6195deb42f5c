//! Waiting until data is on the medium.

use std::io;
use std::os::fd::AsFd;

use rustix::fs;

/// Waits until a file's content and size, or a directory's names, are on the medium.
///
/// # Errors
/// The medium's error.
pub fn sync(file: impl AsFd) -> io::Result<()> {
    Ok(fs::fsync(file)?)
}

/// Waits until everything written to the file system that holds `file` is on the medium.
///
/// # Errors
/// The medium's error.
pub fn sync_file_system(file: impl AsFd) -> io::Result<()> {
    Ok(fs::syncfs(file)?)
}
