#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]

mod xxh32;
mod xxh64;

pub use xxh32::{Xxh32, xxh32};
pub use xxh64::{Xxh64, xxh64};

/// Copies `from` to the beginning of `to`, which is not shorter. `copy_from_slice` is a `const fn`
/// only since Rust 1.87.
const fn copy(to: &mut [u8], from: &[u8]) {
    let Some((to, _)) = to.split_at_mut_checked(from.len()) else {
        return;
    };
    let mut at = 0;
    while at < to.len() {
        to[at] = from[at];
        at += 1;
    }
}
