//! Zstandard (RFC 8878) in memory that the caller owns: no standard library, no allocator.
#![no_std]
#![cfg_attr(feature = "portable", forbid(unsafe_code))]
#![cfg_attr(not(feature = "portable"), deny(unsafe_code))]

#[cfg(any(feature = "std", test))]
extern crate std;

#[cfg(not(feature = "portable"))]
mod arch;
mod bits;
mod dictionary;
mod error;
mod frame;
mod fse;
mod huffman;
mod literals;
#[allow(dead_code, reason = "until both halves use all of it")]
mod sequences;
#[allow(dead_code, reason = "until both halves use all of it")]
mod workspace;

pub use dictionary::Dictionary;
pub use error::Error;
pub use workspace::Workspace;

// ---- decoder ----
#[cfg(feature = "decompress")]
mod decode;
#[cfg(feature = "decompress")]
pub use decode::{
    DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoded, Decoder, Progress, Status, decompress,
};
#[cfg(feature = "decompress")]
pub use frame::{
    Frame, FrameHeader, WINDOW_SIZE_MAX, content_size, frame_size, is_frame, total_content_size,
};

// ---- encoder ----
#[cfg(feature = "compress")]
#[allow(dead_code, reason = "until the encoder uses all of it")]
mod encode;

#[cfg(feature = "compress")]
pub use encode::frame::{
    Compressor, compress, compress_bound, workspace_size, workspace_size_up_to,
};
#[cfg(feature = "compress")]
pub use encode::levels::{LEVEL_DEFAULT, LEVEL_MAX, LEVEL_MIN, Params, Strategy, WINDOW_LOG_RANGE};
#[cfg(feature = "compress")]
pub use encode::stream::{
    EncodeProgress, Encoder, Finish, compress_with_dictionary, stream_workspace_size,
};
#[cfg(feature = "compress")]
pub use frame::skippable_frame_header;
