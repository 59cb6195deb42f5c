#![doc = include_str!("../README.md")]
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
