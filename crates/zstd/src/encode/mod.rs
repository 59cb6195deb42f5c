//! The encoder.

pub(crate) mod block;
pub(crate) mod compression_parameters;
pub(crate) mod division;
pub(crate) mod finder;
pub(crate) mod frame;
pub(crate) mod levels;
pub(crate) mod params;
pub(crate) mod parts;
pub(crate) mod sample;
pub(crate) mod store;
pub(crate) mod stream;

#[cfg(all(test, feature = "decompress"))]
mod tests;
