//! The error type of all formats, organized by whose fault the error is.

use std::{fmt, io};

use crate::to_u64;

/// The result type of this crate and of the formats that build on it.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation on a tree, image or stream failed, and whose fault it is.
///
/// All formats share this type, so errors need no conversion between crates. Callers, who know the
/// file name, add it with [`Error::in_file`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The file or device could not be read or written.
    Io(io::Error),
    /// The image or stream breaks its own format.
    Corrupt(Corrupt),
    /// The image is valid, but this program cannot read it yet.
    Unsupported(&'static str),
    /// A stated limit was reached; see [`Limits`].
    Limit(&'static str),
    /// The file changed after its tree was walked.
    Changed,
    /// The tree contradicts itself.
    Inconsistent(&'static str),
    /// The file depends on other content that cannot be read. That content's own error is reported
    /// separately.
    Unreadable(&'static str),
    /// The output does not read back as its source.
    Unverified(&'static str),
    /// No file has this name.
    NotFound,
    /// A directory was expected, but the file is of another kind.
    NotADirectory,
    /// Another kind of file was expected, but this is a directory.
    IsADirectory,
    /// The destination has less room than the tree needs.
    TooSmall {
        /// The smallest size that is enough, in bytes.
        bytes_min: u64,
    },
    /// The caller asked for something impossible.
    InvalidInput(&'static str),
    /// One of the errors above, with the file of the tree that it concerns.
    File {
        /// The failed operation on the file: `read`, `create`.
        verb: &'static str,
        /// The path from the tree's root, without a leading `/`; empty for the root.
        path: Box<[u8]>,
        /// Why it failed.
        error: Box<Error>,
    },
    /// One of the errors above, with the numbered part of an image or stream that it concerns.
    Part {
        /// The kind of part, such as `command`.
        kind: &'static str,
        /// Its number, from 1.
        number: u64,
        /// Its fault.
        error: Box<Error>,
    },
}

/// A broken rule of an image or stream, its place, and the value found there.
///
/// `what` is lower-case and unique in the repository: search for it to find the check that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// The rule that is broken, in words that occur only once in the source.
    pub what: &'static str,
    /// The byte offset in the image or stream of the offending value.
    pub at: u64,
    /// The value found there.
    pub got: u64,
}

/// Limits on the memory and output that a hostile image or stream can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of files and directories in one tree.
    pub inodes_max: u64,
    /// Maximum depth of directories below the root.
    pub depth_max: u32,
    /// Maximum size of an extended attribute's value, in bytes.
    pub xattr_value_bytes_max: u32,
    /// Maximum size of the content of all files together, in bytes, holes included.
    pub content_bytes_max: u64,
}

impl Default for Limits {
    /// Far above real trees and far below the size of memory. Content is not held in memory, so it
    /// has no limit.
    fn default() -> Self {
        Limits {
            inodes_max: 1 << 28,
            depth_max: 4096,
            xattr_value_bytes_max: 1 << 16,
            content_bytes_max: u64::MAX,
        }
    }
}

impl Error {
    /// Adds the file concerned and the operation that failed. An error that already names a file is
    /// unchanged.
    #[must_use]
    pub fn in_file(self, verb: &'static str, path: &[u8]) -> Error {
        match self {
            Error::File { .. } => self,
            error => Error::File {
                verb,
                path: path.into(),
                error: Box::new(error),
            },
        }
    }

    /// The error of a block that was stored at `at` and could not be decoded.
    pub fn of_block(error: codec::Error, stored: &[u8], at: u64) -> Error {
        if let codec::Error::NotBuilt(what) = error {
            return Error::Unsupported(what);
        }
        let (from, got) = error.found(stored);
        Error::corrupt(error.as_str(), at.saturating_add(to_u64(from)), got)
    }

    /// A broken rule, in words that occur only once in the source, the byte offset of the offending
    /// value, and that value.
    pub const fn corrupt(what: &'static str, at: u64, got: u64) -> Error {
        Error::Corrupt(Corrupt { what, at, got })
    }

    /// Adds the part of the image or stream concerned. An error that already names a part is
    /// unchanged.
    #[must_use]
    pub fn in_part(self, kind: &'static str, number: u64) -> Error {
        match self {
            Error::Part { .. } => self,
            error => Error::Part {
                kind,
                number,
                error: Box::new(error),
            },
        }
    }

    /// The error number (asm-generic/errno.h) that a system call on a mounted file system returns
    /// for this error: the operating system's own number if there is one, otherwise `EIO` for
    /// anything wrong with stored data.
    pub fn errno(&self) -> i32 {
        use linux::errno;
        match self {
            Error::Io(error) => error.raw_os_error().unwrap_or(errno::EIO),
            Error::File { error, .. } | Error::Part { error, .. } => error.errno(),
            Error::Corrupt(_)
            | Error::Inconsistent(_)
            | Error::Unreadable(_)
            | Error::Unverified(_) => errno::EIO,
            Error::Unsupported(_) => errno::EOPNOTSUPP,
            Error::Limit(_) => errno::EOVERFLOW,
            Error::Changed => errno::ESTALE,
            Error::NotFound => errno::ENOENT,
            Error::NotADirectory => errno::ENOTDIR,
            Error::IsADirectory => errno::EISDIR,
            Error::InvalidInput(_) | Error::TooSmall { .. } => errno::EINVAL,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => error.fmt(f),
            Error::Corrupt(corrupt) => corrupt.fmt(f),
            Error::Unsupported(what) => write!(f, "not supported: {what}"),
            Error::Limit(what) => write!(f, "limit reached: {what}"),
            Error::Changed => f.write_str("the file changed while it was read"),
            Error::Inconsistent(what) | Error::Unreadable(what) | Error::Unverified(what) => {
                f.write_str(what)
            }
            Error::NotFound => f.write_str("no such file or directory"),
            Error::NotADirectory => f.write_str("not a directory"),
            Error::IsADirectory => f.write_str("is a directory"),
            Error::TooSmall { bytes_min } => write!(
                f,
                "the tree does not fit in that size; it needs at least {bytes_min} bytes"
            ),
            Error::InvalidInput(what) => f.write_str(what),
            Error::File { verb, path, error } => {
                let path = if path.is_empty() { b"." } else { &**path };
                write!(f, "{verb} {}: {error}", path.escape_ascii())
            }
            Error::Part {
                kind,
                number,
                error,
            } => write!(f, "{kind} {number}: {error}"),
        }
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} (found {:#x} at byte {:#x})",
            self.what, self.got, self.at
        )
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            Error::File { error, .. } | Error::Part { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl std::error::Error for Corrupt {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Io(error)
    }
}

impl From<Corrupt> for Error {
    fn from(corrupt: Corrupt) -> Self {
        Error::Corrupt(corrupt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_named_once_and_readably() {
        let error = Error::NotFound
            .in_file("read", b"a/\xff")
            .in_file("copy", b"other");
        assert_eq!(error.to_string(), "read a/\\xff: no such file or directory");
        assert_eq!(
            Error::NotFound.in_file("read", b"").to_string(),
            "read .: no such file or directory"
        );
    }

    #[test]
    fn a_part_is_named_once() {
        let error = Error::Changed.in_part("command", 7).in_part("command", 8);
        let words = "command 7: the file changed while it was read";
        assert_eq!(error.to_string(), words);
        assert_eq!(error.errno(), 116);
    }

    #[test]
    fn errors_have_the_numbers_of_linux() {
        let numbers = [
            (Error::NotFound, 2),
            (Error::from(io::Error::from_raw_os_error(28)), 28),
            (Error::from(io::Error::other("no number")), 5),
            (Error::Changed, 116),
            (Error::IsADirectory.in_file("read", b"a"), 21),
        ];
        for (error, number) in numbers {
            assert_eq!(error.errno(), number, "{error}");
        }
    }

    #[test]
    fn corrupt_names_rule_place_and_value() {
        let error = Error::from(Corrupt {
            what: "item is too long",
            at: 0x104000,
            got: 10,
        });
        assert_eq!(
            error.to_string(),
            "item is too long (found 0xa at byte 0x104000)"
        );
    }
}
