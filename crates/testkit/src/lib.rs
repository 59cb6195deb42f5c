//! The shared parts of the tests: external programs, loop mounts, golden files, random bytes,
//! temporary directories, and trees, valid and invalid.
//!
//! This is only a development dependency. Everything here panics with a reason if it fails, because
//! tests cannot do anything better with an error.
#![forbid(unsafe_code)]

#[cfg(feature = "tree")]
mod btrfs_image;
#[cfg(feature = "tree")]
mod counted_bytes;
mod golden;
#[cfg(feature = "tree")]
mod hooked_fs;
#[cfg(feature = "tree")]
mod image_layout;
mod kernel_log;
#[cfg(feature = "tree")]
mod memory_fs;
mod mount;
mod nasty;
#[cfg(feature = "tree")]
mod object_server;
mod range_server;
mod rng;
mod squashfs;
mod temp;
mod tool;
#[cfg(feature = "tree")]
mod toy;
#[cfg(feature = "tree")]
mod use_all;

#[cfg(feature = "tree")]
pub use btrfs_image::{BtrfsImage, BtrfsItem, BtrfsKey, SECTOR};
#[cfg(feature = "tree")]
pub use counted_bytes::CountedBytes;
pub use golden::{golden, updates};
#[cfg(feature = "tree")]
pub use hooked_fs::HookedFs;
#[cfg(feature = "tree")]
pub use image_layout::{ImageLayout, LAYER_RULES, LayerRule, TAR_LAYER, layer};
pub use kernel_log::KernelLog;
#[cfg(feature = "tree")]
pub use memory_fs::MemoryFs;
pub use mount::{Access, BackingFile, FsType, LoopDevice, Mount};
pub use nasty::{NASTY_SPARSE_BYTES, nasty_tree};
#[cfg(feature = "tree")]
pub use object_server::{ObjectServer, StoreManner};
pub use range_server::{Manner, RangeServer};
pub use rng::{Rng, cases};
pub use squashfs::{
    Edit, Encode, Part, RawImage, RawKind, RawNode, RawSquashfs, RawXattr, Vector, sample_tree,
    small_tree, squashfs_vectors,
};
pub use temp::TempDir;
pub use tool::{Tool, is_bounded, newer_tool, processor_seconds, run, skip, tool};
#[cfg(feature = "tree")]
pub use toy::{Toy, write_toy};
#[cfg(feature = "tree")]
pub use use_all::use_all;
