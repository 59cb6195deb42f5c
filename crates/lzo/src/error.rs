//! The errors of the decoder.

use core::fmt;

/// Why a stream could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// The stream stops inside an instruction, or without its end mark.
    Truncated,
    /// The content does not fit in the destination.
    DstSizeTooSmall,
    /// A match reaches back before the beginning of the content.
    DistanceTooLong,
    /// The end mark is malformed.
    EndMark,
    /// Bytes follow the end mark.
    TrailingBytes,
}

impl Error {
    /// The error in a few lower-case words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Error::Truncated => "lzo stream is cut short",
            Error::DstSizeTooSmall => "lzo content is longer than its destination",
            Error::DistanceTooLong => "lzo match reaches before the content",
            Error::EndMark => "lzo end mark is malformed",
            Error::TrailingBytes => "bytes follow the lzo end mark",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl core::error::Error for Error {}
