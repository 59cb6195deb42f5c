//! Setting modes, owners and times.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{self, AtFlags, Mode, Timespec};

use crate::open::{OpenFlags, open_at};
use crate::path::proc_path;
use crate::stat::Timestamp;

/// Sets the low twelve mode bits of an open file.
///
/// # Errors
/// The kernel's error.
pub fn set_mode(file: impl AsFd, permissions: u32) -> io::Result<()> {
    Ok(fs::fchmod(file, Mode::from_raw_mode(permissions))?)
}

/// Sets the low twelve mode bits of a file that is not a symbolic link, without opening it (a fifo
/// would wait for its other end). Needs `/proc`.
///
/// # Errors
/// The kernel's error.
pub fn set_mode_at(dir: impl AsFd, name: &[u8], permissions: u32) -> io::Result<()> {
    let file = open_at(dir, name, OpenFlags::PATH, 0)?;
    let proc = proc_path(file.as_fd());
    Ok(fs::chmodat(
        fs::CWD,
        proc.as_slice(),
        Mode::from_raw_mode(permissions),
        AtFlags::empty(),
    )?)
}

/// Sets the owner and group of an open file. The kernel then clears the set-user-ID and
/// set-group-ID bits.
///
/// # Errors
/// The kernel's error; `PermissionDenied` without privilege.
pub fn set_owner(file: impl AsFd, uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (fs::Uid::from_raw(uid), fs::Gid::from_raw(gid));
    Ok(fs::fchown(file, Some(uid), Some(gid))?)
}

/// Sets the owner and group of the file with this name; of a symbolic link itself, not its target.
///
/// # Errors
/// The kernel's error; `PermissionDenied` without privilege.
pub fn set_owner_at(dir: impl AsFd, name: &[u8], uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (fs::Uid::from_raw(uid), fs::Gid::from_raw(gid));
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    Ok(fs::chownat(dir, name, Some(uid), Some(gid), flags)?)
}

/// Sets the times of an open file; `None` does not change the access time.
///
/// # Errors
/// The kernel's error.
pub fn set_times(file: impl AsFd, atime: Option<Timestamp>, mtime: Timestamp) -> io::Result<()> {
    Ok(fs::futimens(file, &timestamps(atime, mtime))?)
}

/// Sets the times of the file with this name; of a symbolic link itself, not its target. `None`
/// does not change the access time.
///
/// # Errors
/// The kernel's error.
pub fn set_times_at(
    dir: impl AsFd,
    name: &[u8],
    atime: Option<Timestamp>,
    mtime: Timestamp,
) -> io::Result<()> {
    let times = timestamps(atime, mtime);
    Ok(fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn timestamps(atime: Option<Timestamp>, mtime: Timestamp) -> fs::Timestamps {
    let spec = |time: Timestamp| Timespec {
        tv_sec: time.seconds,
        tv_nsec: time.nanoseconds.into(),
    };
    let omit = Timespec {
        tv_sec: 0,
        tv_nsec: fs::UTIME_OMIT,
    };
    fs::Timestamps {
        last_access: atime.map_or(omit, spec),
        last_modification: spec(mtime),
    }
}
