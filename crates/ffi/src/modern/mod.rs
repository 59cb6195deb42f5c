//! The interface of `linux/zstd.h` since Linux 5.16: names in lower case, structs by pointer, the
//! error numbers of the C library.
#![expect(
    clippy::missing_safety_doc,
    reason = "the crate's documentation says what a caller owes"
)]

#[cfg(feature = "allocator")]
pub mod allocated;
#[cfg(feature = "compress")]
pub mod compress;
#[cfg(feature = "decompress")]
pub mod decompress;

use core::ffi::{CStr, c_char, c_uint};

use crate::failure::{Failure, code};
use zstd::Error;

/// No error has this number or a larger one.
const MAX_CODE: usize = 120;

/// The error for NULL instead of a context.
const GENERIC: usize = 1;

/// The numbers of errors, with their names in the C library and their descriptions.
pub const ERRORS: &[(usize, &str, &CStr)] = &[
    (0, "no_error", c"no error"),
    (GENERIC, "GENERIC", c"a context or a struct is NULL"),
    (10, "prefix_unknown", c"not a zstd frame"),
    (
        12,
        "version_unsupported",
        c"frame of an unsupported version",
    ),
    (
        14,
        "frameParameter_unsupported",
        c"frame header sets a reserved bit",
    ),
    (
        16,
        "frameParameter_windowTooLarge",
        c"frame needs too large a window",
    ),
    (20, "corruption_detected", c"frame is corrupt"),
    (
        22,
        "checksum_wrong",
        c"frame checksum differs from its content",
    ),
    (24, "literals_headerWrong", c"frame is corrupt: literals"),
    (30, "dictionary_corrupted", c"dictionary is corrupt"),
    (32, "dictionary_wrong", c"frame needs another dictionary"),
    (
        34,
        "dictionaryCreation_failed",
        c"dictionary cannot be made",
    ),
    (40, "parameter_unsupported", c"parameter is not supported"),
    (
        41,
        "parameter_combination_unsupported",
        c"parameters do not go together",
    ),
    (
        42,
        "parameter_outOfBound",
        c"parameter lies outside its range",
    ),
    (44, "tableLog_tooLarge", c"table is too large"),
    (46, "maxSymbolValue_tooLarge", c"symbol is too large"),
    (48, "maxSymbolValue_tooSmall", c"symbol is too small"),
    (50, "stabilityCondition_notRespected", c"buffer has changed"),
    (60, "stage_wrong", c"call is out of order"),
    (62, "init_missing", c"context was not made ready for this"),
    (64, "memory_allocation", c"workspace is too small"),
    (66, "workSpace_tooSmall", c"workspace is too small"),
    (70, "dstSize_tooSmall", c"destination is too small"),
    (72, "srcSize_wrong", c"source size is wrong"),
    (74, "dstBuffer_null", c"destination is NULL"),
    (80, "noForwardProgress_destFull", c"no room for output"),
    (82, "noForwardProgress_inputEmpty", c"no input"),
    (MAX_CODE, "maxCode", c"not an error"),
];

fn number(failure: Failure) -> usize {
    match failure {
        Failure::Null => GENERIC,
        Failure::DestinationNull => 74,
        Failure::InitMissing => 62,
        Failure::NotOwned => 64,
        Failure::Unsupported => 40,
        Failure::OutputFull => 80,
        Failure::InputEmpty => 82,
        Failure::Codec(error) => match error {
            Error::PrefixUnknown => 10,
            Error::FrameParameterUnsupported => 14,
            Error::WindowTooLarge => 16,
            Error::Corruption => 20,
            Error::ChecksumWrong => 22,
            Error::DictionaryCorrupted => 30,
            Error::DictionaryWrong => 32,
            Error::ParameterOutOfBound => 42,
            Error::StageWrong => 60,
            Error::WorkspaceTooSmall => 64,
            Error::DstSizeTooSmall => 70,
            Error::SrcSizeWrong => 72,
            _ => GENERIC,
        },
    }
}

/// The return value of a function.
fn returned(result: Result<usize, Failure>) -> usize {
    result.unwrap_or_else(|failure| code(number(failure)))
}

/// Whether a function has returned an error.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn zstd_is_error(returned: usize) -> c_uint {
    (returned > code(MAX_CODE)).into()
}

/// The number of the error that a function has returned, 0 if it is none.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn zstd_get_error_code(returned: usize) -> c_uint {
    match zstd_is_error(returned) {
        0 => 0,
        _ => code(returned) as c_uint,
    }
}

/// Describes the error in a returned value in a few words.
#[cfg_attr(feature = "export", unsafe(no_mangle))]
pub extern "C" fn zstd_get_error_name(returned: usize) -> *const c_char {
    let number = zstd_get_error_code(returned) as usize;
    let found = ERRORS.iter().find(|(other, ..)| *other == number);
    found.map_or(c"unknown error", |(.., words)| words).as_ptr()
}
