//! Renaming files.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{self, RenameFlags};

/// Renames a file, replacing an existing one with the new name.
///
/// # Errors
/// The kernel's error.
pub fn rename_at(
    old_dir: impl AsFd,
    old_name: &[u8],
    new_dir: impl AsFd,
    new_name: &[u8],
) -> io::Result<()> {
    Ok(fs::renameat(old_dir, old_name, new_dir, new_name)?)
}

/// Renames a file unless the new name is taken (`RENAME_NOREPLACE`).
///
/// # Errors
/// `AlreadyExists`; `InvalidInput` where the file system cannot do it; otherwise what the kernel
/// reports.
pub fn rename_new_at(
    old_dir: impl AsFd,
    old_name: &[u8],
    new_dir: impl AsFd,
    new_name: &[u8],
) -> io::Result<()> {
    let flags = RenameFlags::NOREPLACE;
    Ok(fs::renameat_with(
        old_dir, old_name, new_dir, new_name, flags,
    )?)
}

/// Exchanges two names atomically (`RENAME_EXCHANGE`).
///
/// # Errors
/// `InvalidInput` where the file system cannot do it; otherwise the kernel's error.
pub fn exchange_at(
    old_dir: impl AsFd,
    old_name: &[u8],
    new_dir: impl AsFd,
    new_name: &[u8],
) -> io::Result<()> {
    let flags = RenameFlags::EXCHANGE;
    Ok(fs::renameat_with(
        old_dir, old_name, new_dir, new_name, flags,
    )?)
}
