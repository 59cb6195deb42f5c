//! The errors of codecs.

use std::fmt;

/// Why a block could not be decoded, or an encoder could not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// A level or size is out of range; the text says which.
    Settings(&'static str),
    /// The block breaks its format; the text names the codec.
    Corrupt(&'static str),
    /// The frame around the blocks of an extent is broken.
    Framing {
        /// What is wrong.
        what: &'static str,
        /// The offset in the stored bytes.
        at: usize,
        /// The value found there.
        got: u64,
    },
    /// The block holds more than the destination.
    DstSizeTooSmall,
    /// The block requires more memory than its size can justify.
    MemoryLimit,
    /// An error of the LZO decoder.
    Lzo(lzo::Error),
    /// An error of zstd.
    Zstd(zstd::Error),
}

impl Error {
    /// The error in a few lower-case words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Error::Settings(what) | Error::Corrupt(what) | Error::Framing { what, .. } => what,
            Error::DstSizeTooSmall => "compressed block holds more than it may",
            Error::MemoryLimit => "compressed block asks for too much memory",
            Error::Lzo(error) => error.as_str(),
            Error::Zstd(error) => error.as_str(),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for Error {}
