//! The parts of a file as they are stored.

use std::cmp::Ordering;

use codec::Algorithm;

use crate::Result;
use crate::{ExtentId, ExtentKind, FileSystem, Ino};

/// How bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StorageForm {
    /// Uncompressed.
    Plain,
    /// Compressed with the algorithm of this name.
    Encoded(&'static str),
    /// Reserved and not written.
    Preallocated,
}

/// The names of algorithms in the order in which they are listed, as compsize does.
const NAMES: [&str; 7] = ["zlib", "gzip", "lzo", "zstd", "lz4", "xz", "lzma"];

impl StorageForm {
    /// The name, as in compsize: `none`, that of the algorithm, or `prealloc`; forms are ordered
    /// so, and algorithms as zlib, gzip, lzo, zstd, lz4, xz, lzma.
    pub const fn name(self) -> &'static str {
        match self {
            StorageForm::Plain => "none",
            StorageForm::Encoded(name) => name,
            StorageForm::Preallocated => "prealloc",
        }
    }

    fn rank(self) -> usize {
        match self {
            StorageForm::Plain => 0,
            StorageForm::Encoded(name) => {
                let found = NAMES.iter().position(|&it| it == name);
                1 + found.unwrap_or(NAMES.len())
            }
            StorageForm::Preallocated => NAMES.len() + 2,
        }
    }
}

impl PartialOrd for StorageForm {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for StorageForm {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.rank(), self.name()).cmp(&(other.rank(), other.name()))
    }
}

/// A part of a file, and the stored extent that it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredPart {
    /// This many bytes of which nothing is stored.
    Hole(u64),
    /// Bytes within the metadata of the file.
    Inline {
        /// How they are stored.
        form: StorageForm,
        /// Stored bytes.
        stored: u64,
        /// Bytes of the file.
        len: u64,
    },
    /// A part of a stored extent.
    Extent {
        /// How it is stored.
        form: StorageForm,
        /// The identity of the extent: the same one is counted once. `None`: the extent is not
        /// shared.
        id: Option<ExtentId>,
        /// Stored bytes of the whole extent. `None` if the container does not say: then what files
        /// refer to.
        stored: Option<u64>,
        /// Decoded bytes of the whole extent; `None` as for `stored`.
        decoded: Option<u64>,
        /// Where, in the decoded bytes, the part begins.
        begin: u64,
        /// The length of the part.
        len: u64,
        /// Whether the extent is a fragment block, which holds the ends of several files. `stored`
        /// is known then, and `decoded` is not.
        is_fragment: bool,
    },
}

/// A tree whose files can be measured.
pub trait StoredParts {
    /// Whether there are fragment blocks. Their use is divided among the files in proportion, which
    /// takes a walk of its own to find how much content they have.
    fn has_fragments(&self) -> bool;

    /// Calls `each` with the parts of a regular file.
    ///
    /// # Errors
    /// The file cannot be read; the error of `each`.
    fn stored_parts(&self, file: Ino, each: &mut dyn FnMut(StoredPart) -> Result<()>)
    -> Result<()>;
}

/// The parts that [`FileSystem::extents`] shows: of an uncompressed extent, only the bytes that
/// files refer to are known.
#[derive(Clone, Copy)]
pub struct ByExtents<'a>(pub &'a dyn FileSystem);

impl StoredParts for ByExtents<'_> {
    fn has_fragments(&self) -> bool {
        false
    }

    fn stored_parts(
        &self,
        file: Ino,
        each: &mut dyn FnMut(StoredPart) -> Result<()>,
    ) -> Result<()> {
        let mut from = 0;
        loop {
            let extents = self.0.extents(file, from)?;
            let Some(last) = extents.last() else {
                return Ok(());
            };
            let end = last.end();
            if end <= from {
                return Ok(());
            }
            from = end;
            for extent in &extents {
                let (id, len) = (extent.id, extent.len);
                let plain = |form, begin| StoredPart::Extent {
                    form,
                    id,
                    stored: None,
                    decoded: None,
                    begin,
                    len,
                    is_fragment: false,
                };
                each(match extent.kind {
                    ExtentKind::Hole => StoredPart::Hole(len),
                    ExtentKind::Plain { stored_offset } => plain(StorageForm::Plain, stored_offset),
                    ExtentKind::Preallocated { stored_offset } => {
                        plain(StorageForm::Preallocated, stored_offset)
                    }
                    ExtentKind::Encoded(encoding) => StoredPart::Extent {
                        form: StorageForm::Encoded(algorithm_name(encoding.algorithm)),
                        id,
                        stored: Some(encoding.stored_len),
                        decoded: Some(encoding.unencoded_len),
                        begin: encoding.unencoded_offset,
                        len,
                        is_fragment: false,
                    },
                })?;
            }
        }
    }
}

/// Calls `each` with the hole between two offsets, if there is one.
///
/// # Errors
/// The error of `each`.
pub fn hole(from: u64, to: u64, each: &mut dyn FnMut(StoredPart) -> Result<()>) -> Result<()> {
    match to.saturating_sub(from) {
        0 => Ok(()),
        len => each(StoredPart::Hole(len)),
    }
}

/// The name of an algorithm as btrfs calls it.
pub const fn algorithm_name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Zlib => "zlib",
        other => other.name(),
    }
}
