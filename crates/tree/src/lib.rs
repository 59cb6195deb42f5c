//! A neutral, read-only tree of files, and what every container format needs around it.
//!
//! [`FileSystem`] is the trait that joins everything: a host directory, a tar archive, a btrfs subvolume, a SquashFS
//! image and a recorded send stream implement it; creating, listing, extracting and comparing use it. This crate knows
//! no container format but the host directory and tar, does not print, and reads neither the environment nor the clock.
#![forbid(unsafe_code)]

mod base64;
mod error;
pub mod fs;
pub mod pack;
mod read_at;
mod sha256;

pub use error::{Corrupt, Error, Limits, Result};
pub use fs::{
    Aspects, BlockEncoding, Checksum, Device, DirEntry, Encoding, EntryId, Extent, ExtentId,
    ExtentKind, Extents, FileAttributes, FileId, FileIdentity, FileKind, FileSystem, HostDir, Ino,
    Inventory, Metadata, Step, Steps, Storage, StoreId, Time, Xattr, diff, edit, entry_named,
    extract, manifest, tar, with_metadata,
};
pub use pack::{
    Cache, Describe, Description, Duplicates, NoProgress, Output, OutputKind, Parallel, Progress,
    ordered, temporary,
};
pub use read_at::ReadAt;
pub use sha256::sha256;
