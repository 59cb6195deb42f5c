//! Opening files by directory and name, without following symbolic links.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self, Mode, ResolveFlags};
use rustix::io::Errno;

use crate::path::PATH_BYTES_MAX;

pub use rustix::fs::OFlags as OpenFlags;

/// Opens the directory that a user named, following symbolic links as the user expects. Its entries
/// can be listed and opened.
///
/// # Errors
/// What the kernel reports; `NotADirectory` for another kind of file.
pub fn open_dir(path: &Path) -> io::Result<OwnedFd> {
    let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY | OpenFlags::CLOEXEC;
    Ok(fs::openat(fs::CWD, path, flags, Mode::empty())?)
}

/// A second handle of an open file of this process, by its number: `/dev/fd/N` by another name,
/// which opens it again, would begin at its start.
///
/// # Errors
/// What the kernel reports: `EBADF` if no file has the number.
pub fn duplicate(number: u16) -> io::Result<OwnedFd> {
    // SAFETY: the number is not negative, and only `fcntl` gets it, during this call. Linux answers
    // with an error if no file has it; the file of another owner stays as it is.
    let file = unsafe { BorrowedFd::borrow_raw(number.into()) };
    Ok(rustix::io::fcntl_dupfd_cloexec(file, 0)?)
}

/// Opens one name in a directory. A symbolic link is not followed: unless `flags` has `PATH`, it is
/// an error.
///
/// # Errors
/// What the kernel reports; for a symbolic link, one that [`is_symlink_error`] recognises.
pub fn open_at(dir: impl AsFd, name: &[u8], flags: OpenFlags, mode: u32) -> io::Result<OwnedFd> {
    Ok(fs::openat(
        dir,
        name,
        guarded(flags),
        Mode::from_raw_mode(mode),
    )?)
}

/// Opens `path`, names joined by `/`, beneath `dir`. No symbolic link is followed anywhere in it,
/// and it cannot leave `dir`, even while others rename directories. The path can have any length;
/// an empty one opens `dir` again.
///
/// # Errors
/// What the kernel reports; where a symbolic link is in the way, `NotADirectory` or an error that
/// [`is_symlink_error`] recognises.
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
    // Descends in steps short enough for the kernel, cut between names.
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

/// Opens the file at `path` below `dir`, following symbolic links as if `dir` was the root
/// directory: none leads out of it.
///
/// # Errors
/// What the kernel reports; it must have `openat2` (Linux 5.6).
pub fn open_in_root(dir: impl AsFd, path: &[u8], flags: OpenFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OpenFlags::CLOEXEC;
    let mut tries = 16; // As for `open_short`.
    loop {
        match fs::openat2(&dir, path, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) if tries > 0 => tries -= 1,
            opened => return Ok(opened?),
        }
    }
}

/// Opens a new regular file that has no name (`O_TMPFILE`) on the file system of `dir`, to read and
/// write. It vanishes unless [`link_open_file`](crate::link_open_file) names it.
///
/// # Errors
/// What the kernel reports; `Unsupported`, `IsADirectory` or `NotFound` where the file system
/// cannot do it.
pub fn open_unnamed(dir: impl AsFd, mode: u32) -> io::Result<OwnedFd> {
    let flags = OpenFlags::TMPFILE | OpenFlags::RDWR | OpenFlags::CLOEXEC;
    Ok(fs::openat(dir, ".", flags, Mode::from_raw_mode(mode))?)
}

/// Whether an open failed because it would have followed a symbolic link (`ELOOP`).
pub fn is_symlink_error(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::LOOP.raw_os_error())
}

/// Set once `openat2` turns out to be missing or forbidden (before Linux 5.6, or in old sandboxes).
static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

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
        // EAGAIN asks for another try: a rename elsewhere may have moved the path while the kernel
        // walked it.
        for _ in 0..16 {
            match fs::openat2(dir, path, all, Mode::from_raw_mode(mode), resolve) {
                Ok(file) => return Ok(file),
                Err(Errno::AGAIN) => {}
                Err(Errno::NOSYS | Errno::PERM) => {
                    // Old sandboxes refuse unknown calls with PERM too. The walk below gives the
                    // true answer.
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

/// What [`open_beneath`] does without `openat2`: opens one directory at a time, following no link.
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

/// Adds the flags common to all opens here. `openat2` rejects flags that have no meaning together
/// with `PATH`.
fn guarded(flags: OpenFlags) -> OpenFlags {
    let flags = flags | OpenFlags::NOFOLLOW | OpenFlags::CLOEXEC;
    if flags.contains(OpenFlags::PATH) {
        flags
    } else {
        flags | OpenFlags::NOCTTY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::stat;
    use std::fs as std_fs;
    use std::os::unix::fs::symlink;
    use testkit::TempDir;

    /// Opens a path both ways, with `openat2` and name by name, and requires the same outcome.
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
}
