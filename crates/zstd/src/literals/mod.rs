//! The literals section of a block (RFC 8878, section 3.1.1.3.1).

// ---- reading (feature `decompress`) ----

#[cfg(feature = "decompress")]
mod read;
#[cfg(feature = "decompress")]
pub(crate) use read::{Coding, LiteralsHeader};

// ---- writing (feature `compress`) ----

#[cfg(feature = "compress")]
mod write;
#[cfg(feature = "compress")]
pub(crate) use write::*;
