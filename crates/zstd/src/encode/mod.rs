//! The encoder.

/// Nothing: the safe twins of the loops have no unsafe code, see `arch/search` and `arch/streams`.
#[cfg(not(feature = "arch"))]
macro_rules! proven {
    ($read:expr) => {
        $read
    };
}

/// A function like any other.
#[cfg(not(feature = "arch"))]
macro_rules! proven_fn {
    ($($function:tt)*) => {
        $($function)*
    };
}

pub(crate) mod block;
pub(crate) mod block_encoder;
pub(crate) mod compression_parameters;
pub(crate) mod dictionary;
pub(crate) mod division;
pub(crate) mod finder;
pub(crate) mod frame;
pub(crate) mod levels;
#[cfg(not(feature = "arch"))]
mod out;
pub(crate) mod params;
pub(crate) mod sample;
pub(crate) mod store;
pub(crate) mod stream;
#[cfg(not(feature = "arch"))]
#[path = "../arch/streams/mod.rs"]
pub(crate) mod streams;
#[cfg(feature = "arch")]
pub(crate) use crate::arch::streams;

#[cfg(all(test, feature = "decompress"))]
mod tests;
