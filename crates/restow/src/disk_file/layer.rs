//! A file of a disk, and the places of the parts of the disk in it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use codec::Decoder;
use tree::{Corrupt, ReadAt};

use super::backing::BackingName;
use crate::Error;

/// A file of a disk: the one that was opened, or one behind it.
#[non_exhaustive]
pub struct DiskLayer {
    /// The file, as it was opened.
    pub path: PathBuf,
    /// The format with its version or kind, such as `qcow2 version 3`.
    pub format: String,
    /// Bytes of the disk.
    pub disk_bytes: u64,
    /// Bytes of a cluster, grain or block; 0 of a raw disk.
    pub block_bytes: u64,
    /// The internal snapshots, of which [`OpenOptions::disk_snapshot`](crate::OpenOptions) chooses
    /// one.
    pub snapshots: u32,
    pub(super) file: Arc<dyn ReadAt>,
    pub(super) map: Box<dyn BlockMap>,
}

/// The tables that say where the parts of a disk are.
pub(super) trait BlockMap: Send + Sync {
    /// Where the byte at this offset of the disk is, and how many behind it follow there. The
    /// offset is less than the size of the disk.
    fn run(&self, at: u64) -> io::Result<Run>;

    /// Decodes a block that [`BlockMap::run`] found.
    fn unpack(&self, _: PackedBlock, _: &mut Decoder) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A part of a disk; not empty.
pub(super) struct Run {
    pub(super) place: RunPlace,
    pub(super) len: u64,
}

#[derive(Clone, Copy)]
pub(super) enum RunPlace {
    Zeros,
    /// In the next file of the chain; zeros if there is none.
    Behind,
    /// In the file, starting at this byte.
    Stored(u64),
    /// In a compressed block, starting at this byte of its content.
    Packed(PackedBlock, u64),
}

/// A compressed block.
#[derive(Clone, Copy)]
pub(super) struct PackedBlock {
    /// Where it begins in the file.
    pub(super) at: u64,
    /// Its length at most: other bytes can follow its end.
    pub(super) len: u64,
}

/// A file whose header and tables were found.
pub(super) struct OpenedLayer {
    pub(super) layer: DiskLayer,
    pub(super) backing: Option<BackingName>,
}

/// The error of a read that meets damage.
pub(super) fn damage(corrupt: Corrupt) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, corrupt)
}

/// The error of opening a file that is damaged.
pub(super) fn damaged(what: &'static str, at: u64, got: u64) -> Error {
    tree::Error::corrupt(what, at, got).into()
}
