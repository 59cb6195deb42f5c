//! `listxattrat`, a system call of Linux 6.13 that neither the standard library nor rustix has yet.
//!
//! It accesses a name in an open directory directly. The path through `/proc`, which older kernels
//! need, resolves five more names, three quarters of the cost for a file without attributes.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

/// `__NR_listxattrat` of asm-generic/unistd.h and of x86-64, where numbers have been the same since
/// 2018.
#[cfg(any(
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "x86_64"
))]
const NUMBER: Option<c_long> = Some(465);
#[cfg(not(any(
    target_arch = "aarch64",
    target_arch = "riscv64",
    target_arch = "x86_64"
)))]
const NUMBER: Option<c_long> = None;

/// `AT_SYMLINK_NOFOLLOW` of linux/fcntl.h.
const AT_SYMLINK_NOFOLLOW: c_int = 0x100;

/// The longest name in bytes, including its NUL.
const NAME_BYTES_MAX: usize = 256;

/// Set if the kernel lacks the call or a sandbox refuses it.
static IS_MISSING: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// syscall(2) of the C library.
    fn syscall(number: c_long, ...) -> c_long;
}

/// The length in bytes of the list of extended attributes of `name` in `dir`; of a symbolic link
/// itself, not its target. `None` if the call fails for any reason.
pub(crate) fn list_len(dir: BorrowedFd<'_>, name: &[u8]) -> Option<usize> {
    let number = NUMBER.filter(|_| !IS_MISSING.load(Ordering::Relaxed))?;
    let mut path = [0u8; NAME_BYTES_MAX];
    if name.contains(&0) {
        return None;
    }
    // The last byte stays NUL.
    path[..NAME_BYTES_MAX - 1]
        .get_mut(..name.len())?
        .copy_from_slice(name);
    let path: *const c_char = path.as_ptr().cast();
    let list: *mut c_void = std::ptr::null_mut();
    // SAFETY: the arguments are those of listxattrat: an open descriptor, which `dir` keeps open; a
    // string with an end, which lives until the call is over; flags; and a list of no bytes, so
    // that the kernel writes nothing. The kernel checks every value.
    let len = unsafe {
        syscall(
            number,
            dir.as_raw_fd(),
            path,
            AT_SYMLINK_NOFOLLOW,
            list,
            0usize,
        )
    };
    if let Ok(len) = usize::try_from(len) {
        return Some(len);
    }
    match Errno::from_io_error(&io::Error::last_os_error()) {
        // The file system does not support attributes.
        Some(Errno::OPNOTSUPP) => return Some(0),
        Some(Errno::NOSYS | Errno::PERM) => IS_MISSING.store(true, Ordering::Relaxed),
        _ => {}
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::{fs, os::unix};

    /// The safe twin is the path through `/proc`.
    #[test]
    fn it_agrees_with_the_path_through_proc() {
        let dir = testkit::TempDir::new();
        for name in ["plain", "with"] {
            fs::write(dir.join(name), b"content").unwrap();
        }
        unix::fs::symlink("with", dir.join("link")).unwrap();
        let open = crate::open_dir(dir.path()).unwrap();
        let has_xattrs = crate::set_xattr_at(&open, b"with", b"user.some", b"value").is_ok();
        let longest = "n".repeat(255);
        fs::write(dir.join(&longest), b"").unwrap();
        for name in [
            &b"plain"[..],
            b"with",
            b"link",
            longest.as_bytes(),
            b"none",
            b"a\0b",
        ] {
            let mut path = crate::path::proc_path(open.as_fd());
            path.push(b'/');
            path.extend_from_slice(name);
            let twin = rustix::fs::llistxattr_query(path.as_slice());
            let found = list_len(open.as_fd(), name);
            // An older kernel does not answer.
            assert!(
                found.is_none() || twin == Ok(found.unwrap_or_default()),
                "{name:?}"
            );
            if name == b"with"
                && has_xattrs
                && !IS_MISSING.load(Ordering::Relaxed)
                && NUMBER.is_some()
            {
                assert!(found.is_some_and(|len| len >= b"user.some".len()));
            }
        }
        assert_eq!(list_len(open.as_fd(), &[b'n'; 256]), None);
    }
}
