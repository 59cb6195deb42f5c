//! The search loops of the finders, compiled twice from one source: here without checks, and as a
//! safe twin in `encode/finder` without the feature `arch`, where unsafe code is forbidden.
//!
//! Both have a module `access` with the same names. Here some of its functions are unsafe, and
//! `proven!` is an unsafe block; there they are safe, and `proven!` is nothing. In both the comment
//! before it proves that the bytes read exist. `proven_fn!` declares a function that relies on its
//! caller for that.

mod chain;
pub(crate) mod double_fast;
pub(crate) mod fast;
pub(crate) mod lazy;
mod row;
mod tag;

pub(crate) use super::access::{ChainLinks, TaggedRows};
pub(crate) use row::hash;
pub(crate) use tag::{PairHashes, tagged};
