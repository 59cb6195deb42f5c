//! Paths for system calls.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The longest path that a system call accepts, in bytes without the NUL (`PATH_MAX` - 1).
pub const PATH_BYTES_MAX: usize = 4095;

/// Splits a path into a directory and a name in it; `None` if the path does not end with a name
/// (`/`, `..`, empty).
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

/// `/proc/self/fd/N`, which names the open file itself, even if its directory has moved.
pub(crate) fn proc_path(file: BorrowedFd<'_>) -> Vec<u8> {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

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
