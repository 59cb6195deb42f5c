//! The structures of the format: each file parses and checks one of them, and finds it in its tree.
//! All records are in `raw`, their bits in `flags`.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

pub(crate) mod address_space;
pub(crate) mod checksum;
pub(crate) mod chunk;
pub(crate) mod compression;
pub(crate) mod csum_tree;
pub(crate) mod dir;
pub(crate) mod extent;
mod extent_data;
pub(crate) mod flags;
pub(crate) mod inode;
pub(crate) mod key;
pub(crate) mod node;
mod parity;
pub(crate) mod raw;
pub(crate) mod subvolume;
pub(crate) mod superblock;
pub(crate) mod tree;
pub(crate) mod volume;
