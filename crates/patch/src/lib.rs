#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod apply;
mod block;
mod destination;
mod encoder;
mod error;
mod fields;
pub mod format;
mod jobs;
#[cfg(feature = "encode")]
mod occurrences;
#[cfg(feature = "encode")]
pub mod steps;

pub use apply::{Applied, ApplyOptions, Patch};
pub use block::{BlockCodec, SourceDecoder, XZ_DICTIONARY_BYTES_MAX, xz_settings};
pub use destination::{Destination, is_same};
pub use encoder::{Encoder, XZ_EXTREME};
pub use error::{PatchError, PatchFile};
