//! The tables by which the work was decided that this project continues, measured again: `cargo
//! xtask tables`.
//!
//! The published figures stand beside the sources as records, with the peer `published`.

/// Copies of a corpus on btrfs.
pub(crate) mod btrfs;
/// Codecs as a device calls them.
mod device;
/// Compression and decompression through a device.
pub(crate) mod devices;
/// A tar archive on btrfs.
pub(crate) mod extract;
/// Buffers hashed.
pub(crate) mod hash;
/// The presentation of tables of images.
mod images;
/// zstd by its levels.
pub(crate) mod levels;
/// Peers in C that are built on demand.
mod peers;
/// SquashFS images.
pub(crate) mod squashfs;
