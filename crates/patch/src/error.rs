//! Errors of applying a patch, and which of the three files is wrong.

use std::{fmt, io};

/// One of the files that applying a patch reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchFile {
    /// The old file.
    Old,
    /// The patch.
    Patch,
    /// The new file.
    New,
}

/// Why a patch is not applied. The words do not name the file: [`PatchError::file`] says which one
/// it is.
#[derive(Debug)]
#[non_exhaustive]
pub enum PatchError {
    /// The patch cannot be read, or is damaged.
    Patch(tree::Error),
    /// The old file cannot be read.
    Old(io::Error),
    /// The old file has another content than the one that the patch was made from.
    OldDiffers {
        /// Its SHA-256.
        found: [u8; 32],
        /// That of the patch.
        needed: [u8; 32],
    },
    /// The old file has another length than the one that the patch was made from.
    OldLength {
        /// Its length in bytes.
        found: u64,
        /// That of the patch.
        needed: u64,
    },
    /// The new file cannot be written or read back.
    New(tree::Error),
    /// The new file is a device without room for the result.
    TooSmall {
        /// Its length in bytes.
        found: u64,
        /// The length of the result.
        needed: u64,
    },
    /// The new file does not read back as it was written.
    ReadBack,
    /// The patch needs more memory than is allowed.
    Memory {
        /// Bytes that the patch needs.
        needed: u64,
        /// Bytes that are allowed.
        allowed: u64,
    },
    /// The patch was made with an encoder whose output differs from that of this program.
    Encoder {
        /// The name of its codec.
        codec: &'static str,
        /// Its level.
        level: i32,
    },
}

impl PatchError {
    /// The file that is to blame.
    pub fn file(&self) -> PatchFile {
        match self {
            PatchError::Old(_) | PatchError::OldDiffers { .. } | PatchError::OldLength { .. } => {
                PatchFile::Old
            }
            PatchError::New(_) | PatchError::TooSmall { .. } | PatchError::ReadBack => {
                PatchFile::New
            }
            PatchError::Patch(_) | PatchError::Memory { .. } | PatchError::Encoder { .. } => {
                PatchFile::Patch
            }
        }
    }
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatchError::Patch(error) | PatchError::New(error) => error.fmt(f),
            PatchError::Old(error) => error.fmt(f),
            PatchError::OldDiffers { found, needed } => write!(
                f,
                "not the file that the patch was made from: SHA-256 {}, the patch needs {}",
                Hex(found),
                Hex(needed)
            ),
            PatchError::OldLength { found, needed } => write!(
                f,
                "not the file that the patch was made from: {found} bytes, the patch needs {needed}"
            ),
            PatchError::TooSmall { found, needed } => {
                write!(f, "the device has {found} bytes, the new file {needed}")
            }
            PatchError::ReadBack => f.write_str("it does not read back as it was written"),
            PatchError::Memory { needed, allowed } => write!(
                f,
                "the patch needs {needed} bytes of memory, and {allowed} are allowed; --memory allows more"
            ),
            PatchError::Encoder { codec, level } => write!(
                f,
                "the patch was made by a restow whose {codec}:{level} encodes differently; make it again, or apply it with that version"
            ),
        }
    }
}

impl std::error::Error for PatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PatchError::Patch(error) | PatchError::New(error) => error.source(),
            PatchError::Old(error) => error.source(),
            _ => None,
        }
    }
}

/// Bytes in hexadecimal.
struct Hex<'a>(&'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A broken rule of the patch.
pub(crate) fn damaged(what: &'static str, at: u64, got: u64) -> PatchError {
    PatchError::Patch(tree::Error::corrupt(what, at, got))
}
