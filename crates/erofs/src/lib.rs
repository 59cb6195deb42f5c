#![doc = include_str!("../README.md")]
//!
//! # Layout
//!
//! An image has no table of files: an inode is 32 or 64 bytes at a multiple of 32 (its *nid*),
//! followed by its extended attributes and the index of its data. Data is in blocks as they are,
//! or in *physical clusters*, each compressed alone. The ends of files can be in the index
//! (*inline*), or in one more file, the *packed inode*. Inodes can be in a compressed file, too,
//! the *metabox*.
//!
//! The names are those of the Linux driver (fs/erofs). The reader enforces the kernel's rules, and
//! is stricter where Linux trusts the image.
#![forbid(unsafe_code)]

mod check;
mod clusters;
mod decode;
mod dir;
mod fields;
mod image;
mod index;
mod inode;
mod kernel;
mod listed;
mod lz4;
mod map;
mod piece;
mod read;
mod records;
mod superblock;
mod usage;
mod write;
mod xattr;

pub use check::ErofsCheck;
pub use image::Erofs;
pub use kernel::Kernel;
pub use superblock::{Superblock, TAG_BYTES, compat, incompat};
pub use write::{DataDevice, ErofsSummary, OldErofs, Options, create};
// For predictions by the crate `plan`.
#[doc(hidden)]
pub use write::{EncodedTrialUnit, TrialImage, TrialUnit, TrialUnitEncoder};
