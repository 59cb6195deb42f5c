//! XXH32 and XXH64: fast non-cryptographic hashes, without the standard library, an allocator or unsafe code.
//!
//! There are two ways to compute the same hash:
//!
//! ```
//! use xxhash::{Xxh64, xxh64};
//!
//! let at_once = xxh64(b"container ship", 0);
//! let mut state = Xxh64::new(0);
//! state.update(b"container ");
//! state.update(b"ship");
//! assert_eq!(state.digest(), at_once);
//! ```
//!
//! Input is read as little-endian words, so the result is the same on every machine. All functions are `const fn`.
//! States are `Copy`, and [`Xxh32::digest`] and [`Xxh64::digest`] do not change them, so hashing can continue.
//!
//! The checksum of a zstd frame is the low 32 bits of XXH64 with seed 0 (RFC 8878, section 3.1.1); btrfs can use XXH64
//! in its checksum tree. Neither hash resists attackers who choose the input.
//!
//! The algorithm is that of the xxHash specification, version 0.1.1 (`doc/xxhash_spec.md` of xxHash).
#![no_std]
#![forbid(unsafe_code)]

mod xxh32;
mod xxh64;

pub use xxh32::{Xxh32, xxh32};
pub use xxh64::{Xxh64, xxh64};
