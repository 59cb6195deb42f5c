//! The differences between two trees.

use std::fmt;

use crate::fs::{Device, FileKind, Time};

/// One difference between two trees.
#[derive(Clone, PartialEq, Eq)]
pub struct Difference {
    /// The path from the root, without a leading `/`; empty for the root.
    pub path: Box<[u8]>,
    /// The difference there.
    pub change: Change,
}

impl fmt::Debug for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.path.escape_ascii(), self.change)
    }
}

/// The kind of a difference; the first tree's value comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Only the first tree has this name. The contents of a directory are not reported separately.
    OnlyInFirst(FileKind),
    /// Only the second tree has this name.
    OnlyInSecond(FileKind),
    /// The file type; nothing else is compared then.
    Kind(FileKind, FileKind),
    /// The low twelve bits of the mode.
    Permissions(u16, u16),
    /// Owner and group.
    Owner((u32, u32), (u32, u32)),
    /// Time of the last change of content.
    Mtime(Time, Time),
    /// Size of a regular file in bytes; the content is not compared then.
    Size(u64, u64),
    /// Content, starting at this byte.
    Content {
        /// The first byte that differs.
        at: u64,
    },
    /// The target of a symbolic link.
    LinkTarget(Box<[u8]>, Box<[u8]>),
    /// The device number.
    Rdev(Device, Device),
    /// An extended attribute, with its value in each tree that has it.
    Xattr {
        /// Its full name.
        name: Box<[u8]>,
        /// Its value in the first tree.
        first: Option<Box<[u8]>>,
        /// Its value in the second tree.
        second: Option<Box<[u8]>>,
    },
    /// Extended attributes are not compared, since Linux does not list those of a file with more
    /// than 64 KiB of names.
    XattrsUnlisted,
    /// The earlier path that this is a hard link to; `None` if it is not a hard link.
    HardLink(Option<Box<[u8]>>, Option<Box<[u8]>>),
    /// One file has a hole where the other has data, starting at this byte.
    Holes {
        /// The first byte of the hole.
        at: u64,
    },
}

/// The verb of an [`crate::Error::File`] if reading the first tree failed.
pub const READ_FIRST: &str = "read in the first tree";
/// The verb of an [`crate::Error::File`] if reading the second tree failed.
pub const READ_SECOND: &str = "read in the second tree";
