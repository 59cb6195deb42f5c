//! File metadata: type, owner, size and times.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{self, AtFlags, StatxFlags};

/// Seconds since 1970 and nanoseconds after them, as in `struct timespec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds, rounded down; may be negative.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// The metadata of a file, as `statx` reports it.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Device that holds the file: major and minor number.
    pub dev: (u32, u32),
    /// The mount through which it was reached (`STATX_MNT_ID`); 0 before Linux 5.8.
    pub mount: u64,
    /// Inode number on that device.
    pub ino: u64,
    /// Type and permission bits (`st_mode`).
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Space on the medium, in units of 512 bytes.
    pub blocks: u64,
    /// Number of a device file: major and minor.
    pub rdev: (u32, u32),
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of metadata.
    pub ctime: Timestamp,
    /// Time of creation, if the file system stores it.
    pub btime: Option<Timestamp>,
    /// `STATX_ATTR_*` bits that the file system knows and that are set. The low byte's values equal
    /// `FS_*_FL`.
    pub attributes: u64,
}

impl Stat {
    /// Whether both describe the same inode of the same device.
    pub fn is_same_file(&self, other: &Stat) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }
}

/// Describes the file with this name; a symbolic link itself, not its target.
///
/// # Errors
/// The kernel's error.
pub fn stat_at(dir: impl AsFd, name: &[u8]) -> io::Result<Stat> {
    statx(
        dir.as_fd(),
        name,
        AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT,
    )
}

/// Describes an open file.
///
/// # Errors
/// The kernel's error.
pub fn stat(file: impl AsFd) -> io::Result<Stat> {
    statx(file.as_fd(), b"", AtFlags::EMPTY_PATH)
}

/// Whether an open file belongs to a file system such as proc or sysfs, whose files do not report
/// their true size.
///
/// # Errors
/// The kernel's error.
pub fn is_kernel_view(file: impl AsFd) -> io::Result<bool> {
    /// `*_MAGIC` of linux/magic.h: proc, sysfs, cgroup, cgroup2, debugfs, tracefs, securityfs.
    const KINDS: [u64; 7] = [
        0x9fa0,
        0x6265_6572,
        0x0027_e0eb,
        0x6367_7270,
        0x6462_6720,
        0x7472_6163,
        0x7363_6673,
    ];
    let kind = fs::fstatfs(file)?.f_type;
    Ok(u64::try_from(kind).is_ok_and(|kind| KINDS.contains(&kind)))
}

fn statx(dir: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> io::Result<Stat> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
    Ok(stat_from(&fs::statx(dir, name, flags, mask)?))
}

fn stat_from(raw: &fs::Statx) -> Stat {
    let time = |time: fs::StatxTimestamp| Timestamp {
        seconds: time.tv_sec,
        nanoseconds: time.tv_nsec,
    };
    let has_mount = raw.stx_mask & StatxFlags::MNT_ID.bits() != 0;
    let has_btime = raw.stx_mask & StatxFlags::BTIME.bits() != 0;
    Stat {
        dev: (raw.stx_dev_major, raw.stx_dev_minor),
        mount: if has_mount { raw.stx_mnt_id } else { 0 },
        ino: raw.stx_ino,
        mode: raw.stx_mode.into(),
        nlink: raw.stx_nlink,
        uid: raw.stx_uid,
        gid: raw.stx_gid,
        size: raw.stx_size,
        blocks: raw.stx_blocks,
        rdev: (raw.stx_rdev_major, raw.stx_rdev_minor),
        atime: time(raw.stx_atime),
        mtime: time(raw.stx_mtime),
        ctime: time(raw.stx_ctime),
        btime: has_btime.then(|| time(raw.stx_btime)),
        attributes: (raw.stx_attributes & raw.stx_attributes_mask).bits(),
    }
}
