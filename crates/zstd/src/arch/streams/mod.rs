//! The loops that write bit streams, compiled twice from one source, as those in `search` are: here without checks, and as a
//! safe twin in `encode` without the feature `arch`. Each module proves what it relies on: no table that other code has
//! made leads out of the memory that is read and written.

pub(crate) mod literals;
pub(crate) mod sequences;

pub(crate) use super::out::{Out, below_32, read};
