//! The encoder.

pub(crate) mod finder;
pub(crate) mod levels;
pub(crate) mod store;
