//! Files by directory and name: open, describe, make, change, remove.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, AtFlags, FileType, Mode, RenameFlags, ResolveFlags, StatxFlags, Timespec};
use rustix::io::Errno;

pub use rustix::fs::OFlags as OpenFlags;

/// The most bytes of a path that one system call takes, without its NUL (`PATH_MAX` - 1).
pub const PATH_BYTES_MAX: usize = 4095;

/// Room for the entries of one `getdents64` call: fewer calls for big directories, and never too small for a name.
const DIRECTORY_BUFFER_BYTES: usize = 64 << 10;

/// Seconds since 1970 and nanoseconds after them, as in `struct timespec`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timestamp {
    /// Seconds, rounded down; may be negative.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanoseconds: u32,
}

/// What `statx` says of a file.
#[derive(Clone, Copy, Debug)]
pub struct Stat {
    /// Device that holds the file: major and minor number.
    pub dev: (u32, u32),
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
    /// Space that it takes on the medium, in units of 512 bytes.
    pub blocks: u64,
    /// Number of a device file: major and minor.
    pub rdev: (u32, u32),
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of metadata.
    pub ctime: Timestamp,
    /// Birth, where the file system keeps it.
    pub btime: Option<Timestamp>,
    /// `STATX_ATTR_*` bits that the file system knows and that are set. The low byte's values equal `FS_*_FL`.
    pub attributes: u64,
}

impl Stat {
    /// Whether both describe the same inode of the same device.
    pub fn is_same_file(&self, other: &Stat) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }

    /// Whether the type bits say directory.
    pub fn is_dir(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }
}

fn stat_from(raw: &fs::Statx) -> Stat {
    let time = |time: fs::StatxTimestamp| Timestamp {
        seconds: time.tv_sec,
        nanoseconds: time.tv_nsec,
    };
    let has_btime = raw.stx_mask & StatxFlags::BTIME.bits() != 0;
    Stat {
        dev: (raw.stx_dev_major, raw.stx_dev_minor),
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

fn statx(dir: BorrowedFd<'_>, name: &[u8], flags: AtFlags) -> io::Result<Stat> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(stat_from(&fs::statx(dir, name, flags, mask)?))
}

/// Describes the file of that name, a symbolic link itself and not its target.
///
/// # Errors
/// What the kernel reports.
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
/// What the kernel reports.
pub fn stat(file: impl AsFd) -> io::Result<Stat> {
    statx(file.as_fd(), b"", AtFlags::EMPTY_PATH)
}

/// Opens the directory that a user named, following symbolic links as the user expects, to be the root of what comes
/// after. Its entries can be read and it can be searched.
///
/// # Errors
/// What the kernel reports; `NotADirectory` for another kind of file.
pub fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY | OpenFlags::CLOEXEC;
    Ok(fs::openat(fs::CWD, path, flags, Mode::empty())?)
}

/// Opens one name in a directory. A symbolic link is not followed: unless `flags` has `PATH`, it is an error.
///
/// # Errors
/// What the kernel reports; for a symbolic link, one that [`is_symlink_error`] tells.
pub fn open_at(dir: impl AsFd, name: &[u8], flags: OpenFlags, mode: u32) -> io::Result<OwnedFd> {
    Ok(fs::openat(
        dir,
        name,
        guarded(flags),
        Mode::from_raw_mode(mode),
    )?)
}

/// With the flags that every open here has. `openat2` refuses flags that mean nothing beside `PATH`.
fn guarded(flags: OpenFlags) -> OpenFlags {
    let flags = flags | OpenFlags::NOFOLLOW | OpenFlags::CLOEXEC;
    if flags.contains(OpenFlags::PATH) {
        flags
    } else {
        flags | OpenFlags::NOCTTY
    }
}

/// Whether an open failed because a symbolic link stands where none may be followed (`ELOOP`).
pub fn is_symlink_error(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Set once `openat2` turned out to be missing or forbidden (before Linux 5.6, or in old sandboxes).
static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

/// Opens `path`, names joined by `/`, beneath `dir`: no symbolic link is followed anywhere in it, and it cannot leave
/// `dir`, even while others rename directories. Paths of any length are fine; an empty one opens `dir` again.
///
/// # Errors
/// What the kernel reports; one that [`is_symlink_error`] tells, or `NotADirectory`, where a symbolic link stands in
/// the way.
pub fn open_beneath(
    dir: impl AsFd,
    path: &[u8],
    flags: OpenFlags,
    mode: u32,
) -> io::Result<OwnedFd> {
    let dir = dir.as_fd();
    if path.split(|&byte| byte == b'/').any(|name| name == b"..") {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let path = if path.is_empty() { &b"."[..] } else { path };
    if path.len() <= PATH_BYTES_MAX {
        return open_short(dir, path, flags, mode);
    }
    // Goes down in steps that the kernel takes, cut between names.
    let mut rest = path;
    let mut above: Option<OwnedFd> = None;
    while rest.len() > PATH_BYTES_MAX {
        let cut = rest[..PATH_BYTES_MAX].iter().rposition(|&b| b == b'/');
        let cut = cut.ok_or(io::ErrorKind::InvalidFilename)?;
        let step = OpenFlags::PATH | OpenFlags::DIRECTORY;
        let from = above.as_ref().map_or(dir, AsFd::as_fd);
        above = Some(open_short(from, &rest[..cut], step, 0)?);
        rest = &rest[cut + 1..];
    }
    let from = above.as_ref().map_or(dir, AsFd::as_fd);
    open_short(from, rest, flags, mode)
}

fn open_short(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OpenFlags,
    mode: u32,
) -> io::Result<OwnedFd> {
    if !path.contains(&b'/') {
        return open_at(dir, path, flags, mode);
    }
    let all = guarded(flags);
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    if !NO_OPENAT2.load(Ordering::Relaxed) {
        // EAGAIN says that a rename elsewhere left the kernel unsure. Trying again is what it asks for.
        for _ in 0..16 {
            match fs::openat2(dir, path, all, Mode::from_raw_mode(mode), resolve) {
                Ok(file) => return Ok(file),
                Err(Errno::AGAIN) => {}
                Err(Errno::NOSYS | Errno::PERM) => {
                    // PERM also is how old sandboxes refuse unknown calls. The walk below gives the true answer.
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    let opened = open_by_names(dir, path, flags, mode);
    if opened.is_ok() {
        let probe = fs::openat2(dir, ".", OpenFlags::PATH, Mode::empty(), resolve);
        if matches!(probe, Err(Errno::NOSYS | Errno::PERM)) {
            NO_OPENAT2.store(true, Ordering::Relaxed);
        }
    }
    opened
}

/// What [`open_beneath`] does where the kernel has no `openat2`: one directory at a time, none through a link.
fn open_by_names(
    dir: BorrowedFd<'_>,
    path: &[u8],
    flags: OpenFlags,
    mode: u32,
) -> io::Result<OwnedFd> {
    let mut above: Option<OwnedFd> = None;
    let mut rest = path;
    while let Some(slash) = rest.iter().position(|&byte| byte == b'/') {
        let from = above.as_ref().map_or(dir, AsFd::as_fd);
        let step = OpenFlags::PATH | OpenFlags::DIRECTORY;
        above = Some(open_at(from, &rest[..slash], step, 0)?);
        rest = &rest[slash + 1..];
    }
    let from = above.as_ref().map_or(dir, AsFd::as_fd);
    open_at(from, rest, flags, mode)
}

/// Calls `each` with every name in an open directory but `.` and `..`, in the kernel's order, from where the
/// descriptor's position is: from the start for one freshly opened.
///
/// # Errors
/// What the kernel reports, or the first error that `each` returns.
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

/// The target of the symbolic link of that name.
///
/// # Errors
/// What the kernel reports; `InvalidInput` when it is no link.
pub fn read_link_at(dir: impl AsFd, name: &[u8]) -> io::Result<Vec<u8>> {
    Ok(fs::readlinkat(dir, name, Vec::new())?.into_bytes())
}

/// Makes a directory; `mode` is subject to the umask.
///
/// # Errors
/// What the kernel reports; `AlreadyExists` when the name is taken.
pub fn make_dir_at(dir: impl AsFd, name: &[u8], mode: u32) -> io::Result<()> {
    Ok(fs::mkdirat(dir, name, Mode::from_raw_mode(mode))?)
}

/// Makes a symbolic link to `target`.
///
/// # Errors
/// What the kernel reports; `AlreadyExists` when the name is taken.
pub fn make_symlink_at(target: &[u8], dir: impl AsFd, name: &[u8]) -> io::Result<()> {
    Ok(fs::symlinkat(target, dir, name)?)
}

/// Makes a fifo, socket or device. `mode` has the type bits, and its permissions are subject to the umask.
///
/// # Errors
/// What the kernel reports; `PermissionDenied` for devices without privilege.
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

/// Gives the file of a name a second one. A symbolic link is linked itself.
///
/// # Errors
/// What the kernel reports; `AlreadyExists` when the new name is taken.
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

/// Opens a new regular file that has no name (`O_TMPFILE`) on the file system of `dir`, to read and write. It vanishes
/// unless [`link_open_file`] names it.
///
/// # Errors
/// What the kernel reports; `Unsupported`, `IsADirectory` or `NotFound` where the file system cannot do it.
pub fn open_unnamed(dir: impl AsFd, mode: u32) -> io::Result<OwnedFd> {
    let flags = OpenFlags::TMPFILE | OpenFlags::RDWR | OpenFlags::CLOEXEC;
    Ok(fs::openat(dir, ".", flags, Mode::from_raw_mode(mode))?)
}

/// Whether [`link_open_file`] can reach an open file: that is, whether `/proc` is there.
pub fn can_link_open_file(file: impl AsFd) -> bool {
    let proc = proc_path(file.as_fd());
    fs::statx(fs::CWD, proc.as_slice(), AtFlags::empty(), StatxFlags::TYPE).is_ok()
}

/// Gives an open file a name. Needs `/proc`, but no privilege.
///
/// # Errors
/// What the kernel reports; `AlreadyExists` when the name is taken.
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

/// `/proc/self/fd/N`, which names the open file itself, wherever its directory has moved.
pub(crate) fn proc_path(file: BorrowedFd<'_>) -> Vec<u8> {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", file.as_raw_fd()).into_bytes()
}

/// Sets the low twelve mode bits of an open file.
///
/// # Errors
/// What the kernel reports.
pub fn set_mode(file: impl AsFd, permissions: u32) -> io::Result<()> {
    Ok(fs::fchmod(file, Mode::from_raw_mode(permissions))?)
}

/// Sets the low twelve mode bits of a file that is not a symbolic link, without opening it (a fifo would wait for its
/// other end). Needs `/proc`.
///
/// # Errors
/// What the kernel reports.
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

/// Sets the owner and group of an open file. The kernel clears set-id bits when it does.
///
/// # Errors
/// What the kernel reports; `PermissionDenied` without privilege.
pub fn set_owner(file: impl AsFd, uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (fs::Uid::from_raw(uid), fs::Gid::from_raw(gid));
    Ok(fs::fchown(file, Some(uid), Some(gid))?)
}

/// Sets the owner and group of the file of that name, a symbolic link itself included.
///
/// # Errors
/// What the kernel reports; `PermissionDenied` without privilege.
pub fn set_owner_at(dir: impl AsFd, name: &[u8], uid: u32, gid: u32) -> io::Result<()> {
    let (uid, gid) = (fs::Uid::from_raw(uid), fs::Gid::from_raw(gid));
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    Ok(fs::chownat(dir, name, Some(uid), Some(gid), flags)?)
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

/// Sets the times of an open file; `None` leaves the access time as it is.
///
/// # Errors
/// What the kernel reports.
pub fn set_times(file: impl AsFd, atime: Option<Timestamp>, mtime: Timestamp) -> io::Result<()> {
    Ok(fs::futimens(file, &timestamps(atime, mtime))?)
}

/// Sets the times of the file of that name, a symbolic link itself included.
///
/// # Errors
/// What the kernel reports.
pub fn set_times_at(
    dir: impl AsFd,
    name: &[u8],
    atime: Option<Timestamp>,
    mtime: Timestamp,
) -> io::Result<()> {
    let times = timestamps(atime, mtime);
    Ok(fs::utimensat(dir, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Renames, replacing what has the new name.
///
/// # Errors
/// What the kernel reports.
pub fn rename_at(
    old_dir: impl AsFd,
    old_name: &[u8],
    new_dir: impl AsFd,
    new_name: &[u8],
) -> io::Result<()> {
    Ok(fs::renameat(old_dir, old_name, new_dir, new_name)?)
}

/// Renames unless the new name is taken (`RENAME_NOREPLACE`).
///
/// # Errors
/// `AlreadyExists`; `InvalidInput` where the file system cannot do it; otherwise what the kernel reports.
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

/// Lets two names change places at once (`RENAME_EXCHANGE`).
///
/// # Errors
/// `InvalidInput` where the file system cannot do it; otherwise what the kernel reports.
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

/// Removes a name that is not a directory's.
///
/// # Errors
/// What the kernel reports.
pub fn unlink_at(dir: impl AsFd, name: &[u8]) -> io::Result<()> {
    Ok(fs::unlinkat(dir, name, AtFlags::empty())?)
}

/// Removes a name and, when it is a directory's, everything beneath, without following a symbolic link. Directories
/// that deny their owner access are opened up first. The tree may be of any depth: few descriptors are open at once.
///
/// # Errors
/// What the kernel reports first; what could be removed until then is gone.
pub fn remove_tree_at(dir: impl AsFd, name: &[u8]) -> io::Result<()> {
    let dir = dir.as_fd();
    if remove_flat(dir, name)? {
        return Ok(());
    }
    let top = open_to_remove(dir, name)?;
    // Directories that lie too deep are moved up to the top, so that it has to be emptied again.
    let mut moved = 0;
    loop {
        let moved_before = moved;
        remove_contents(&top, top.as_fd(), 1, &mut moved)?;
        if moved == moved_before {
            return Ok(fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?);
        }
    }
}

/// Directories that [`remove_tree_at`] has open at once.
const REMOVE_LEVELS_MAX: u32 = 32;

fn remove_contents(
    top: &OwnedFd,
    dir: BorrowedFd<'_>,
    level: u32,
    moved: &mut u64,
) -> io::Result<()> {
    let mut names: Vec<Box<[u8]>> = Vec::new();
    // A descriptor of its own, because reading moves the position in the directory.
    let listing = open_at(dir, b".", OpenFlags::RDONLY | OpenFlags::DIRECTORY, 0)?;
    for_each_name(&listing, |name| {
        names.push(name.to_bytes().into());
        Ok::<_, io::Error>(())
    })?;
    drop(listing);
    for name in names {
        if remove_flat(dir, &name)? {
            continue;
        }
        if level == REMOVE_LEVELS_MAX {
            loop {
                *moved += 1;
                let up = format!(".restow-removed-{moved}");
                match rename_new_at(dir, &name, top, up.as_bytes()) {
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    renamed => break renamed?,
                }
            }
            continue;
        }
        let child = open_to_remove(dir, &name)?;
        let moved_before = *moved;
        remove_contents(top, child.as_fd(), level + 1, moved)?;
        let removed = fs::unlinkat(dir, &*name, AtFlags::REMOVEDIR);
        if !(moved_before != *moved && matches!(removed, Err(Errno::NOTEMPTY))) {
            removed?;
        }
    }
    Ok(())
}

/// Removes what is no directory, or an empty one. Returns false for a directory that has to be emptied first.
fn remove_flat(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
    match fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) => return Ok(true),
        Err(Errno::ACCESS) => {
            // The directory may deny its owner to change it.
            set_mode_of_dir(dir)?;
            if fs::unlinkat(dir, name, AtFlags::empty()).is_ok() {
                return Ok(true);
            }
        }
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    match fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn set_mode_of_dir(dir: BorrowedFd<'_>) -> io::Result<()> {
    let proc = proc_path(dir);
    let mode = Mode::from_raw_mode(0o700);
    Ok(fs::chmodat(
        fs::CWD,
        proc.as_slice(),
        mode,
        AtFlags::empty(),
    )?)
}

fn open_to_remove(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
    let opened = open_at(dir, name, flags, 0);
    let child = match opened {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            set_mode_at(dir, name, 0o700)?;
            return open_at(dir, name, flags, 0);
        }
        opened => opened?,
    };
    // Readable, but perhaps neither searchable nor writable.
    if !rustix::process::geteuid().is_root() {
        set_mode(&child, 0o700)?;
    }
    Ok(child)
}

/// Where the next stored bytes at or after `from` begin (`SEEK_DATA`); `None` when only a hole is left. Moves the
/// descriptor's position.
///
/// # Errors
/// What the kernel reports.
pub fn seek_data(file: impl AsFd, from: u64) -> io::Result<Option<u64>> {
    match fs::seek(file, fs::SeekFrom::Data(from)) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Where the next hole at or after `from` begins (`SEEK_HOLE`), the file's end at the latest; `None` when `from` is at
/// or past the end. Moves the descriptor's position.
///
/// # Errors
/// What the kernel reports.
pub fn seek_hole(file: impl AsFd, from: u64) -> io::Result<Option<u64>> {
    match fs::seek(file, fs::SeekFrom::Hole(from)) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The size of an open block device in bytes. Leaves the descriptor's position alone. Needs `/proc`.
///
/// # Errors
/// What the kernel reports.
pub fn device_bytes(device: impl AsFd) -> io::Result<u64> {
    // Its size is where its end is, and this descriptor has a position of its own.
    let proc = proc_path(device.as_fd());
    let flags = OpenFlags::RDONLY | OpenFlags::CLOEXEC;
    let again = fs::openat(fs::CWD, proc.as_slice(), flags, Mode::empty())?;
    Ok(fs::seek(again, fs::SeekFrom::End(0))?)
}

/// The attributes of an open file or directory (`FS_IOC_GETFLAGS`: `FS_*_FL` of linux/fs.h).
///
/// # Errors
/// What the kernel reports; `Unsupported` or an inappropriate-ioctl error where the file system has none.
pub fn attributes(file: impl AsFd) -> io::Result<u32> {
    Ok(fs::ioctl_getflags(file)?.bits())
}

/// Sets the attributes of an open file or directory (`FS_IOC_SETFLAGS`), all at once.
///
/// # Errors
/// What the kernel reports; as for [`attributes`] where the file system has none.
pub fn set_attributes(file: impl AsFd, attributes: u32) -> io::Result<()> {
    let flags = fs::IFlags::from_bits_retain(attributes);
    Ok(fs::ioctl_setflags(file, flags)?)
}

/// Whether an open file is of a file system in which the kernel shows itself, whose files do not tell how long they are.
///
/// # Errors
/// What the kernel reports.
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

/// Waits until a file's content and size, or a directory's names, are on the medium.
///
/// # Errors
/// What the medium reports.
pub fn sync(file: impl AsFd) -> io::Result<()> {
    Ok(fs::fsync(file)?)
}

/// Waits until everything written to the file system that holds `file` is on the medium.
///
/// # Errors
/// What the medium reports.
pub fn sync_file_system(file: impl AsFd) -> io::Result<()> {
    Ok(fs::syncfs(file)?)
}

/// The user and group that files made by this process belong to.
pub fn process_owner() -> (u32, u32) {
    (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    )
}

/// Splits a path into the directory and the name in it; `None` for a path without a last name (`/`, `..`, empty).
pub fn split_path(path: &Path) -> Option<(&Path, &[u8])> {
    let name = path.file_name().map(OsStr::as_bytes)?;
    let parent = path.parent()?;
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    Some((parent, name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs as std_fs;
    use std::os::unix::fs::symlink;
    use testkit::TempDir;

    /// Opens a path in both ways, with `openat2` and name by name, and demands the same outcome.
    fn opens(dir: &OwnedFd, path: &str) -> bool {
        let flags = OpenFlags::RDONLY;
        let by_kernel = open_short(dir.as_fd(), path.as_bytes(), flags, 0);
        let by_names = open_by_names(dir.as_fd(), path.as_bytes(), flags, 0);
        match (by_kernel, by_names) {
            (Ok(a), Ok(b)) => {
                assert!(stat(a).unwrap().is_same_file(&stat(b).unwrap()), "{path}");
                true
            }
            (Err(_), Err(_)) => false,
            (a, b) => panic!("{path}: {a:?}, {b:?}"),
        }
    }

    #[test]
    fn both_ways_to_open_beneath_agree_and_follow_no_link() {
        let dir = TempDir::new();
        std_fs::create_dir_all(dir.join("a/b/c")).unwrap();
        std_fs::write(dir.join("a/b/file"), "x").unwrap();
        symlink("b", dir.join("a/link")).unwrap();
        symlink("/", dir.join("a/all")).unwrap();
        symlink("file", dir.join("a/b/to-file")).unwrap();
        symlink("/proc/self/root", dir.join("a/magic")).unwrap();
        let root = open_dir(dir.path()).unwrap();
        for path in ["a", "a/b", "a/b/c", "a/b/file", "."] {
            assert!(opens(&root, path), "{path}");
        }
        for path in [
            "a/link",
            "a/link/c",
            "a/link/file",
            "a/b/to-file",
            "a/all/etc",
            "a/magic/etc",
            "a/no/c",
            "a/b/file/x",
        ] {
            assert!(!opens(&root, path), "{path}");
        }
        for path in ["..", "a/../..", "a/../a", "../x"] {
            let flags = OpenFlags::RDONLY;
            let error = open_beneath(&root, path.as_bytes(), flags, 0).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
        let again = open_beneath(&root, b"", OpenFlags::PATH, 0).unwrap();
        assert!(stat(again).unwrap().is_same_file(&stat(&root).unwrap()));
    }

    #[test]
    fn trees_are_removed_at_any_depth_and_links_are_not_followed() {
        let dir = TempDir::new();
        std_fs::create_dir(dir.join("keep")).unwrap();
        std_fs::write(dir.join("keep/file"), "x").unwrap();
        std_fs::create_dir(dir.join("go")).unwrap();
        symlink("../keep", dir.join("go/link")).unwrap();
        symlink("../keep/file", dir.join("go/to-file")).unwrap();
        let root = open_dir(dir.path()).unwrap();
        let mut at = open_at(&root, b"go", OpenFlags::RDONLY, 0).unwrap();
        for level in 0..300 {
            for name in [&b"left"[..], b"right"] {
                make_dir_at(&at, name, 0o700).unwrap();
            }
            make_node_at(&at, b"fifo", 0o010_000, (0, 0)).unwrap();
            let name = if level % 2 == 0 {
                &b"left"[..]
            } else {
                b"right"
            };
            at = open_at(&at, name, OpenFlags::RDONLY, 0).unwrap();
        }
        remove_tree_at(&root, b"go").unwrap();
        assert!(!dir.join("go").exists());
        assert!(dir.join("keep/file").exists());
        let error = remove_tree_at(&root, b"go").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn paths_split_into_directory_and_name() {
        let split = |path: &'static str| split_path(Path::new(path));
        assert_eq!(split("a/b"), Some((Path::new("a"), &b"b"[..])));
        assert_eq!(split("b"), Some((Path::new("."), &b"b"[..])));
        assert_eq!(split("/b/"), Some((Path::new("/"), &b"b"[..])));
        for path in ["/", "..", "", "a/.."] {
            assert_eq!(split(path), None, "{path}");
        }
    }
}
