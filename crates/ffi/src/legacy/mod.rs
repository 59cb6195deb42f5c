//! The interface of `linux/zstd.h` from Linux 4.14 to 5.15: names with `ZSTD_`, parameters by
//! value, error numbers without gaps.
#![expect(
    clippy::missing_safety_doc,
    reason = "the crate's documentation says what a caller owes"
)]
#![cfg_attr(
    not(feature = "export"),
    expect(non_snake_case, reason = "these are the names in C")
)]

#[cfg(feature = "compress")]
pub mod bufferless;
#[cfg(feature = "compress")]
pub mod compress;
#[cfg(feature = "decompress")]
pub mod decompress;
#[cfg(feature = "decompress")]
pub mod inspect;
#[cfg(feature = "compress")]
pub mod parameters;
#[cfg(feature = "decompress")]
pub mod pieces;
pub mod pointers;

use crate::failure::{Failure, code};
use zstd::Error;

/// Largest block.
const BLOCK_SIZE_MAX: usize = 128 << 10;

/// Names of the errors in the C library; their numbers are their places.
pub const ERRORS: &[&str] = &[
    "no_error",
    "GENERIC",
    "prefix_unknown",
    "version_unsupported",
    "parameter_unknown",
    "frameParameter_unsupported",
    "frameParameter_unsupportedBy32bits",
    "frameParameter_windowTooLarge",
    "compressionParameter_unsupported",
    "init_missing",
    "memory_allocation",
    "stage_wrong",
    "dstSize_tooSmall",
    "srcSize_wrong",
    "corruption_detected",
    "checksum_wrong",
    "tableLog_tooLarge",
    "maxSymbolValue_tooLarge",
    "maxSymbolValue_tooSmall",
    "dictionary_corrupted",
    "dictionary_wrong",
    "dictionaryCreation_failed",
    "maxCode",
];

fn number(failure: Failure) -> usize {
    match failure {
        Failure::Null => 1,
        Failure::DestinationNull => 12,
        Failure::InitMissing => 9,
        Failure::NotOwned => 10,
        Failure::Unsupported => 4,
        Failure::OutputFull => 12,
        Failure::InputEmpty => 13,
        Failure::Codec(error) => match error {
            Error::PrefixUnknown => 2,
            Error::FrameParameterUnsupported => 5,
            Error::WindowTooLarge => 7,
            Error::ParameterOutOfBound => 8,
            Error::WorkspaceTooSmall => 10,
            Error::StageWrong => 11,
            Error::DstSizeTooSmall => 12,
            Error::SrcSizeWrong => 13,
            Error::Corruption => 14,
            Error::ChecksumWrong => 15,
            Error::DictionaryCorrupted => 19,
            Error::DictionaryWrong => 20,
            _ => 1,
        },
    }
}

/// The return value of a function.
fn returned(result: Result<usize, Failure>) -> usize {
    result.unwrap_or_else(|failure| code(number(failure)))
}
