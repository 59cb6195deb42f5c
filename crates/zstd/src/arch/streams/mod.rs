//! The loops that write bit streams, compiled twice from one source, as those in `search` are: here
//! without checks, and as a safe twin in `encode` without the feature `arch`. Each module proves
//! its own preconditions: no table made by other code leads outside the memory that is read and
//! written.

pub(crate) mod literals;
pub(crate) mod sequences;

pub(crate) use super::out::{Out, below_32, read};
