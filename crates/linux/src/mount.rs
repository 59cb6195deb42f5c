//! Mounting and unmounting file systems (mount(2), umount2(2)).

use std::ffi::CString;
use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags};

/// How a file system is mounted (`MS_*` in linux/mount.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountHow {
    /// Set-user-ID and set-group-ID bits, and file capabilities, have an effect.
    pub suid: bool,
    /// Device files can be opened.
    pub dev: bool,
    /// Programs cannot be executed.
    pub noexec: bool,
}

/// Mounts a file system read-only. `source` is the name that `/proc/mounts` shows for it, `data`
/// are the options that the file system itself reads.
///
/// # Errors
/// The kernel's error: `PermissionDenied` without privilege. `InvalidInput` for a name with
/// NUL.
pub fn mount(
    source: &[u8],
    point: &Path,
    fs_type: &str,
    how: MountHow,
    data: &[u8],
) -> io::Result<()> {
    let mut flags = MountFlags::RDONLY;
    flags.set(MountFlags::NOSUID, !how.suid);
    flags.set(MountFlags::NODEV, !how.dev);
    flags.set(MountFlags::NOEXEC, how.noexec);
    let (source, data) = (CString::new(source)?, CString::new(data)?);
    Ok(rustix::mount::mount(
        &*source, point, fs_type, flags, &*data,
    )?)
}

/// Unmounts the file system at a mount point, which may not be a symbolic link.
///
/// # Errors
/// The kernel's error: `ResourceBusy` while it is in use, `InvalidInput` if nothing is mounted
/// there.
pub fn unmount(point: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(point, UnmountFlags::NOFOLLOW)?)
}

/// Takes the file system at a mount point out of the tree at once. It is unmounted when it is no
/// longer in use.
///
/// # Errors
/// As for [`unmount`], except that it may be in use.
pub fn detach(point: &Path) -> io::Result<()> {
    let flags = UnmountFlags::NOFOLLOW | UnmountFlags::DETACH;
    Ok(rustix::mount::unmount(point, flags)?)
}
