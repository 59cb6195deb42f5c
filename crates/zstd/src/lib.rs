//! Zstandard (RFC 8878) in memory that the caller owns: no standard library, no allocator.
//!
//! # Decoding
//!
//! | you have | you want | call |
//! |---|---|---|
//! | whole frames | all of their content | [`decompress`], [`DecodeOptions::decompress`] |
//! | an extent of a file system: one frame, perhaps padding | the content, or as much as fits | [`DecodeOptions::decompress_extent`] |
//! | a whole frame | bytes from the middle | [`Decoder::decompress_range`] |
//! | pieces | pieces | [`Decoder::step`] |
//! | headers and blocks, each as a whole | content after the content before | [`PieceDecoder`] |
//! | many frames with one dictionary | its tables made once | [`DecoderDictionary`], and [`EncoderDictionary`] |
//! | some first bytes | what they are | [`Frame::parse`], [`content_size`], [`frame_size`], [`total_content_size`] |
//!
//! ```
//! use zstd::{DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, Decoder, Status, Workspace};
//!
//! # fn main() -> Result<(), zstd::Error> {
//! // 1,000 times the letter z, and three bytes of padding.
//! let extent = [0x28, 0xB5, 0x2F, 0xFD, 0x60, 0xE8, 2, 0x43, 0x1F, 0, b'z', 0, 0, 0];
//! let mut workspace = Workspace::<DECOMPRESS_WORKSPACE_SIZE>::new();
//! let mut dst = [0; 600];
//! let decoded = DecodeOptions::new().decompress_extent(&mut dst, &extent, &mut workspace)?;
//! assert_eq!((decoded.written, decoded.more), (600, true));
//!
//! // The same frame, four bytes at a time.
//! let mut workspace = vec![0; Decoder::workspace_size(1 << 17).unwrap()];
//! let mut decoder = Decoder::new(DecodeOptions::new(), &mut workspace)?;
//! let (mut at, mut len) = (0, 0);
//! loop {
//!     let end = extent.len().min(at + 4);
//!     let progress = decoder.step(&extent[at..end], &mut dst)?;
//!     at += progress.read;
//!     len += progress.written;
//!     if progress.status == Status::Done {
//!         break;
//!     }
//! }
//! assert_eq!((at, len), (11, 1000));
//! # Ok(()) }
//! ```
//!
//! ## Memory
//!
//! The caller gives a workspace, any `&mut [u8]`: nothing is expected of its bytes or its alignment. It holds no state
//! between one-shot calls, so that one workspace serves any number of frames, one at a time.
//!
//! | use | bytes of workspace |
//! |---|---|
//! | one-shot, any frame: [`DECOMPRESS_WORKSPACE_SIZE`] | 88,832 |
//! | stream, window up to 4 KiB | 39,808 |
//! | stream, window up to 128 KiB | 547,712 |
//! | stream, window up to 1 MiB | 1,465,216 |
//! | stream, window up to 8 MiB | 8,805,248 |
//! | stream, window up to 128 MiB | 134,634,368 |
//!
//! [`Decoder::workspace_size`] says exactly how much a stream needs; it never falls when the window grows. The stack
//! goes less than 2,560 bytes deep, no function's part of it over 400 bytes, in an optimised build.
//!
//! To compress, KiB of workspace of `workspace_size` for content of one size:
//!
//! | level | 128 KiB | 256 KiB | 1 MiB |
//! |---|---|---|---|
//! | below 0 | 201 | 249 | 249 |
//! | 1 | 313 | 318 | 254 |
//! | 2 | 313 | 318 | 446 |
//! | 3 | 446 | 702 | 958 |
//! | 4 | 446 | 958 | 2,238 |
//! | 5, 6 | 546 | 1,518 | 2,814 |
//! | 10 | 553 | 1,525 | 10,597 |
//! | 11 | 1,254 | 1,902 | 10,974 |
//! | 12 | 1,894 | 1,902 | 10,974 |
//! | 15 | 2,039 | 3,575 | 6,647 |
//! | 16 | 2,039 | 5,623 | 8,695 |
//! | 19 | 2,042 | 8,357 | 21,669 |
//! | 22 | 2,042 | 8,357 | 21,669 |
//!
//! Compressing goes less than 2,560 bytes deep, too; the largest function takes 496 of them. An [`Encoder`] has some 450 bytes in
//! itself, wherever it lies.
//!
//! A frame that asks for more than there is fails before anything is decoded: a window that does not fit in the
//! workspace, or a content size that does not fit in the destination. A frame that expands without saying so stops
//! where the destination ends.
//!
//! ## Errors
//!
//! | error | cause | the C library says |
//! |---|---|---|
//! | [`PrefixUnknown`](Error::PrefixUnknown) | no magic number | `prefix_unknown` |
//! | [`FrameParameterUnsupported`](Error::FrameParameterUnsupported) | the reserved bit is set | `frameParameter_unsupported` |
//! | [`WindowTooLarge`](Error::WindowTooLarge) | window over the limit, or too large for the workspace | `frameParameter_windowTooLarge`, `memory_allocation` |
//! | [`Corruption`](Error::Corruption) | the frame breaks the format | `corruption_detected` and finer ones |
//! | [`ChecksumWrong`](Error::ChecksumWrong) | the content is not what it was | `checksum_wrong` |
//! | [`DictionaryCorrupted`](Error::DictionaryCorrupted) | the dictionary breaks the format | `dictionary_corrupted` |
//! | [`DictionaryWrong`](Error::DictionaryWrong) | the frame names another dictionary | `dictionary_wrong` |
//! | [`DstSizeTooSmall`](Error::DstSizeTooSmall) | the content does not fit | `dstSize_tooSmall` |
//! | [`SrcSizeWrong`](Error::SrcSizeWrong) | the source ends early, or goes on after the frames | `srcSize_wrong` |
//! | [`WorkspaceTooSmall`](Error::WorkspaceTooSmall) | workspace smaller than documented | `memory_allocation` |
//!
//! ## Where this decoder and the C library differ
//!
//! This decoder refuses what the format forbids. `libzstd` 1.5.7 lets some of it pass:
//!
//! - Huffman streams with bits left over (its fast loop does not look), and codes of 12 bits that are not a dictionary's.
//! - Matches from farther back than the window, where the bytes happen to be there; likewise matches into a dictionary
//!   once the content is longer than the window.
//! - In one-shot calls, blocks larger than the frame's largest block, stored or regenerated.
//!
//! No C encoder writes such frames. And a content size that does not fit in the destination is
//! [`DstSizeTooSmall`](Error::DstSizeTooSmall) at once, where the C library decodes until it does not fit and may find
//! another error first. Nothing is known to be refused by the C library and accepted here, but that a stream whose
//! workspace is larger than its window needs takes larger windows.
//!
//! ## Speed
//!
//! The loops that matter exist twice: in safe code, and in `arch` with raw pointers, compiled once for any processor and
//! once for x86-64 with BMI2, chosen when run (feature `std`), when built, or by a caller that knows (`assume_bmi`, feature
//! `assume-bmi`). Without the feature `arch` the whole crate is
//! `forbid(unsafe_code)`, at less than half of the speed.
#![no_std]
// The documentation speaks of both.
#![cfg_attr(
    not(all(feature = "compress", feature = "decompress")),
    allow(rustdoc::broken_intra_doc_links)
)]
#![cfg_attr(not(feature = "arch"), forbid(unsafe_code))]
#![cfg_attr(feature = "arch", deny(unsafe_code))]

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
#[cfg(any(feature = "compress", feature = "decompress"))]
mod dictionary;
#[cfg(any(feature = "compress", feature = "decompress"))]
mod frame;
#[cfg(any(feature = "compress", feature = "decompress"))]
mod fse;
#[cfg(any(feature = "compress", feature = "decompress"))]
mod huffman;
#[cfg(any(feature = "compress", feature = "decompress"))]
mod literals;
#[cfg(any(feature = "compress", feature = "decompress"))]
mod sequences;

#[cfg(any(feature = "compress", feature = "decompress"))]
pub use dictionary::Dictionary;

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
pub use dictionary::EncoderDictionary;
#[cfg(feature = "compress")]
pub use encode::compression_parameters::CompressionParameters;
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
