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
mod sequences;
mod workspace;

// ---- decoder ----
#[cfg(feature = "decompress")]
mod decode;

// ---- encoder ----
#[cfg(feature = "compress")]
mod encode;

pub use error::Error;
