//! Creates directories, symbolic links, devices and hard links.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{self, AtFlags, FileType, Mode, StatxFlags};

use crate::path::proc_path;

/// Creates a directory; `mode` is subject to the umask.
///
/// # Errors
/// The kernel's error; `AlreadyExists` when the name is taken.
pub fn make_dir_at(dir: impl AsFd, name: &[u8], mode: u32) -> io::Result<()> {
    Ok(fs::mkdirat(dir, name, Mode::from_raw_mode(mode))?)
}

/// Creates a symbolic link to `target`.
///
/// # Errors
/// The kernel's error; `AlreadyExists` when the name is taken.
pub fn make_symlink_at(target: &[u8], dir: impl AsFd, name: &[u8]) -> io::Result<()> {
    Ok(fs::symlinkat(target, dir, name)?)
}

/// Creates a fifo, socket or device. `mode` includes the type bits; its permissions are subject to
/// the umask.
///
/// # Errors
/// The kernel's error; `PermissionDenied` for devices without privilege.
pub fn make_node_at(dir: impl AsFd, name: &[u8], mode: u32, rdev: (u32, u32)) -> io::Result<()> {
    let device = fs::makedev(rdev.0, rdev.1);
    let kind = FileType::from_raw_mode(mode);
    Ok(fs::mknodat(
        dir,
        name,
        kind,
        Mode::from_raw_mode(mode),
        device,
    )?)
}

/// Gives a file a second name (a hard link). A symbolic link itself is linked, not its target.
///
/// # Errors
/// The kernel's error; `AlreadyExists` when the new name is taken.
pub fn link_at(
    old_dir: impl AsFd,
    old_name: &[u8],
    new_dir: impl AsFd,
    new_name: &[u8],
) -> io::Result<()> {
    Ok(fs::linkat(
        old_dir,
        old_name,
        new_dir,
        new_name,
        AtFlags::empty(),
    )?)
}

/// Whether [`link_open_file`] can reach an open file, which needs `/proc`.
pub fn can_link_open_file(file: impl AsFd) -> bool {
    let proc = proc_path(file.as_fd());
    fs::statx(fs::CWD, proc.as_slice(), AtFlags::empty(), StatxFlags::TYPE).is_ok()
}

/// Gives an open file a name. Needs `/proc`, but no privilege.
///
/// # Errors
/// The kernel's error; `AlreadyExists` when the name is taken.
pub fn link_open_file(file: impl AsFd, dir: impl AsFd, name: &[u8]) -> io::Result<()> {
    let proc = proc_path(file.as_fd());
    Ok(fs::linkat(
        fs::CWD,
        proc.as_slice(),
        dir,
        name,
        AtFlags::SYMLINK_FOLLOW,
    )?)
}
