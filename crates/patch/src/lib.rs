#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod apply;
mod destination;
mod encoder;
mod error;
pub mod format;

pub use apply::{Applied, ApplyOptions, Patch};
pub use destination::{Destination, is_same};
pub use encoder::Encoder;
pub use error::{PatchError, PatchFile};
