//! LZO1X: a decoder, a fast encoder of the kind known as LZO1X-1, and a slow one whose streams are as short as those of
//! LZO1X-999 or shorter.
//!
//! The stream format is the one in SquashFS and btrfs: version 0 of the Linux kernel's
//! `Documentation/staging/lzo.rst`. The zero-run extension of zram (version 1, "lzo-rle") is not part of it and is
//! rejected. This crate uses neither the standard library nor an allocator: the caller provides the encoders'
//! [`Workspace`] (32 KiB) or [`OptimalWorkspace`] (362 KiB), and the decoder needs none.
//!
//! ```
//! let text = b"to be, or not to be, or not to be".repeat(20);
//! let mut packed = [0; 200];
//! let n = lzo::compress(&mut packed, &text, &mut lzo::Workspace::new()).unwrap();
//! let mut back = vec![0; text.len()];
//! assert_eq!(lzo::decompress(&mut back, &packed[..n]), Ok(text.len()));
//! assert_eq!(back, text);
//! ```
//!
//! # The stream
//!
//! A stream is a sequence of instructions. A *match* copies earlier output, and its two spare bits give the number of
//! literals (0 to 3) that follow it; a *run* holds more literals than that. An instruction's first byte determines its
//! form. A small value means a run or a match, depending on how many literals came before:
//!
//! | first byte | meaning |
//! |---|---|
//! | 0..=15 after no literal | run of 4 or more literals |
//! | 0..=15 after 1 to 3 literals | match of 2 bytes, at most 1 KiB back |
//! | 0..=15 after a run | match of 3 bytes, 2 to 3 KiB back |
//! | 16..=31 | match, 16 to 48 KiB back; a distance of exactly 16 KiB ends the stream |
//! | 32..=63 | match, at most 16 KiB back |
//! | 64..=255 | match of 3 to 8 bytes, at most 2 KiB back |
//!
//! The first byte of a stream may also be 18 or more: that many literals, plus 17.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

mod compress;
mod decompress;
mod error;
mod optimal;
mod output;

pub use compress::{Workspace, compress, compressed_len_max};
pub use decompress::decompress;
pub use error::Error;
pub use optimal::{LEVEL_MAX, LEVEL_MIN, OptimalWorkspace, compress_optimal};

/// The instruction that ends every stream: a match of three bytes at the reserved distance.
const END: [u8; 3] = [0b0001_0001, 0, 0];

/// Longest distance of a match that is encoded in two bytes.
const NEAR_MAX: usize = 1 << 11;
/// Longest distance of a match that is encoded with five bits of its length in the first byte.
const MIDDLE_MAX: usize = 1 << 14;
/// Longest distance of a match of three bytes after a run that is encoded in two bytes.
const AFTER_RUN_MAX: usize = NEAR_MAX + (1 << 10);
/// Longest distance of any match.
const FAR_MAX: usize = MIDDLE_MAX + (1 << 15) - 1;

#[inline(always)]
fn load4(src: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(src[at..at + 4].try_into().expect("four bytes"))
}

/// How many bytes starting at `from` equal those starting at `at`; `at` is the later position.
#[inline(always)]
fn equal_len(src: &[u8], from: usize, at: usize) -> usize {
    let later = &src[at..];
    let earlier = &src[from..from + later.len()];
    let mut len = 0;
    while let (Some(a), Some(b)) = (later.get(len..len + 8), earlier.get(len..len + 8)) {
        let a = u64::from_le_bytes(a.try_into().expect("eight bytes"));
        let b = u64::from_le_bytes(b.try_into().expect("eight bytes"));
        if a != b {
            return len + ((a ^ b).trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    while len < later.len() && later[len] == earlier[len] {
        len += 1;
    }
    len
}
