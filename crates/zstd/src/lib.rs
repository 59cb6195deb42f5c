//! Zstandard (RFC 8878) in memory that the caller owns: no standard library, no allocator.
#![no_std]
#![cfg_attr(feature = "portable", forbid(unsafe_code))]
#![cfg_attr(not(feature = "portable"), deny(unsafe_code))]

#[cfg(any(feature = "std", test))]
extern crate std;

mod bits;
mod dictionary;
mod error;
mod frame;
mod fse;
mod huffman;
mod literals;
#[allow(dead_code)] // until both halves use all of it
mod sequences;
#[allow(dead_code)] // until both halves use all of it
mod workspace;

// ---- decoder ----
#[cfg(feature = "decompress")]
mod decode;

// ---- encoder ----
#[cfg(feature = "compress")]
#[allow(dead_code)] // until the encoder uses all of it
mod encode;

#[cfg(feature = "compress")]
pub use encode::levels::{LEVEL_DEFAULT, LEVEL_MAX, LEVEL_MIN, Params, Strategy, WINDOW_LOG_RANGE};
pub use error::Error;
