//! The one error of the codec.

use core::fmt;

/// Why a frame could not be decoded or made.
///
/// The variants correspond to the C library's error codes, so that a C interface maps them one to
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Error {
    /// The bytes do not begin with a frame's magic number.
    PrefixUnknown,
    /// The frame header sets a bit that the format reserves.
    FrameParameterUnsupported,
    /// The frame needs a larger window than the caller allows, or than fits in the workspace.
    WindowTooLarge,
    /// The frame breaks the format.
    Corruption,
    /// The frame's checksum differs from that of its content.
    ChecksumWrong,
    /// The dictionary breaks the format.
    DictionaryCorrupted,
    /// The frame names another dictionary than the one that was given, or none was given.
    DictionaryWrong,
    /// A parameter lies outside its range.
    ParameterOutOfBound,
    /// The workspace is smaller than `workspace_size` says.
    WorkspaceTooSmall,
    /// A call came when the state of the stream does not allow it, such as after an error.
    StageWrong,
    /// The output does not fit in the destination.
    DstSizeTooSmall,
    /// The source ends inside a frame, holds more than was said, or less.
    SrcSizeWrong,
    /// The encoder's tables or numbers contradict each other: something else changed them, such as
    /// another thread of a program in C. Only with the feature `no-panic`: without it, this is a
    /// panic.
    Inconsistent,
}

impl Error {
    /// The error in a few lower-case words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Error::PrefixUnknown => "not a zstd frame",
            Error::FrameParameterUnsupported => "frame header sets a reserved bit",
            Error::WindowTooLarge => "frame needs too large a window",
            Error::Corruption => "frame is corrupt",
            Error::ChecksumWrong => "frame checksum differs from its content",
            Error::DictionaryCorrupted => "dictionary is corrupt",
            Error::DictionaryWrong => "frame needs another dictionary",
            Error::ParameterOutOfBound => "parameter lies outside its range",
            Error::WorkspaceTooSmall => "workspace is too small",
            Error::StageWrong => "call is out of order",
            Error::DstSizeTooSmall => "destination is too small",
            Error::SrcSizeWrong => "source size is wrong",
            Error::Inconsistent => "encoder's state is inconsistent",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl core::error::Error for Error {}
