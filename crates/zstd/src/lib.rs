#![doc = include_str!("../README.md")]
#![no_std]
#![cfg_attr(
    not(all(feature = "compress", feature = "decompress")),
    allow(
        rustdoc::broken_intra_doc_links,
        reason = "the documentation speaks of both"
    )
)]
#![cfg_attr(not(feature = "arch"), forbid(unsafe_code))]
#![cfg_attr(feature = "arch", deny(unsafe_code))]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

mod error;
mod workspace;

pub use error::Error;
pub use workspace::Workspace;

// ---- both ----
#[cfg(all(feature = "arch", any(feature = "compress", feature = "decompress")))]
mod arch;
#[cfg(all(
    feature = "assume-bmi",
    any(feature = "compress", feature = "decompress")
))]
pub use arch::bmi::assume_bmi;
#[cfg(any(feature = "compress", feature = "decompress"))]
mod bits;
#[cfg(feature = "compress")]
mod checked;
#[cfg(any(feature = "compress", feature = "decompress"))]
mod dictionary;
#[cfg(any(feature = "compress", feature = "decompress"))]
mod frame;
#[cfg(any(feature = "compress", feature = "decompress"))]
mod fse;
#[cfg(feature = "compress")]
mod hint;
#[cfg(any(feature = "compress", feature = "decompress"))]
mod huffman;
#[cfg(any(feature = "compress", feature = "decompress"))]
mod literals;
#[cfg(any(feature = "compress", feature = "decompress"))]
mod sequences;

#[cfg(any(feature = "compress", feature = "decompress"))]
pub use dictionary::Dictionary;

/// Whether code may be large. In a kernel, where there are no vectors, it is to be small.
#[cfg(any(
    feature = "compress",
    all(feature = "arch", feature = "decompress", target_pointer_width = "64")
))]
const ROOMY: bool = cfg!(not(any(
    all(target_arch = "x86_64", not(target_feature = "sse2")),
    all(target_arch = "aarch64", not(target_feature = "neon")),
)));

// ---- with an allocator, and with the standard library ----
#[cfg(all(feature = "std", feature = "decompress"))]
pub mod read;
#[cfg(all(feature = "alloc", any(feature = "compress", feature = "decompress")))]
mod vec;
#[cfg(all(feature = "alloc", feature = "compress"))]
pub use vec::compress_to_vec;
#[cfg(all(feature = "alloc", feature = "decompress"))]
pub use vec::decompress_to_vec;
#[cfg(all(feature = "std", feature = "compress"))]
pub mod write;

// ---- decoder ----
#[cfg(feature = "decompress")]
mod decode;
#[cfg(feature = "decompress")]
pub use decode::{
    DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, DecodeProgress, DecodedFrame, Decoder, PieceDecoder,
    PieceKind, Status, decompress,
};
#[cfg(feature = "decompress")]
pub use dictionary::DecoderDictionary;
#[cfg(feature = "decompress")]
pub use frame::{
    Frame, FrameHeader, WINDOW_SIZE_MAX, content_size, frame_size, is_frame, total_content_size,
};

// ---- encoder ----
#[cfg(feature = "compress")]
mod encode;

#[cfg(feature = "compress")]
pub use encode::compression_parameters::CompressionParameters;
#[cfg(feature = "compress")]
pub use encode::dictionary::EncoderDictionary;
#[cfg(feature = "compress")]
pub use encode::frame::{
    Compressor, compress, compress_bound, compress_with_dictionary, dictionary_workspace_size,
    workspace_size, workspace_size_up_to,
};
#[cfg(feature = "compress")]
pub use encode::levels::{LEVEL_DEFAULT, LEVEL_MAX, LEVEL_MIN};
#[cfg(feature = "compress")]
pub use encode::params::{
    DoubleFast, Fast, Lazy, LazyDivided, Optimal, Params, Strategy, WINDOW_LOG_RANGE,
};
#[cfg(feature = "compress")]
pub use encode::stream::{EncodeProgress, Encoder, Finish, stream_workspace_size};
#[cfg(feature = "compress")]
pub use frame::skippable_frame_header;

// ---- frames written again ----
#[cfg(feature = "steps")]
mod steps;
#[cfg(feature = "steps")]
pub use steps::{
    COMPRESS_STEPS_WORKSPACE_SIZE, FrameStep, READ_STEPS_WORKSPACE_SIZE, compress_described,
    compress_steps, read_described, read_steps,
};
