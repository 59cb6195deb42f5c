#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod analyse;
mod apply;
mod destination;
mod encoder;
mod error;
mod format;
mod index;
mod make;
mod old;
mod scan;

pub use apply::{Applied, ApplyOptions, Patch};
pub use destination::Destination;
pub use error::{PatchError, PatchFile};
pub use format::Header;
pub use make::{DeltaOptions, DeltaSummary, make};

/// Bytes of memory that the buffers of a patch take at most, unless more are allowed: with the
/// program itself, less than 16 MB.
pub const APPLY_MEMORY_BYTES: u64 = 13 << 20;
