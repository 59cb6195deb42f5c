//! Parts of files: holes, plain bytes, compressed clusters and fragments.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use crate::inode::MetaAt;

/// The longest content of a cluster (`Z_EROFS_PCLUSTER_MAX_DSIZE`).
pub(crate) const CONTENT_BYTES_MAX: u64 = 12 << 20;

/// The longest cluster (`Z_EROFS_PCLUSTER_MAX_SIZE`).
pub(crate) const STORED_BYTES_MAX: u64 = 1 << 20;

/// Where stored bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum StoredPlace {
    /// On a device; 0 is the common address space.
    Data { device: u16, at: u64 },
    /// Inline.
    Meta(MetaAt),
}

impl StoredPlace {
    /// A number that differs for places, but not for all.
    pub(crate) fn key(self) -> u64 {
        match self {
            StoredPlace::Data { device, at } => at ^ u64::from(device) << 48,
            StoredPlace::Meta(place) => place.at ^ if place.in_metabox { 3 } else { 2 } << 62,
        }
    }

    pub(crate) fn after(self, bytes: u64) -> StoredPlace {
        match self {
            StoredPlace::Data { device, at } => StoredPlace::Data {
                device,
                at: at.saturating_add(bytes),
            },
            StoredPlace::Meta(place) => StoredPlace::Meta(place.after(bytes)),
        }
    }
}

/// The codec of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Format {
    Lz4,
    Lzma,
    Deflate,
    Zstd,
}

impl Format {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Lz4 => "lz4",
            Format::Lzma => "lzma",
            Format::Deflate => "deflate",
            Format::Zstd => "zstd",
        }
    }
}

/// A compressed cluster, as one extent shows it from its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct StoredCluster {
    pub(crate) place: StoredPlace,
    pub(crate) stored_len: u64,
    pub(crate) format: Format,
    /// Whether its content is longer than the shown part.
    pub(crate) is_partial: bool,
    /// Bytes that are shown.
    pub(crate) len: u64,
}

/// How a part of a file is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PieceKind {
    Hole,
    Plain(StoredPlace),
    Cluster(StoredCluster),
    /// At this offset in the packed inode.
    Fragment(u64),
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) from: u64,
    /// Never 0.
    pub(crate) len: u64,
    pub(crate) kind: PieceKind,
}

impl Piece {
    pub(crate) fn end(&self) -> u64 {
        self.from.saturating_add(self.len)
    }
}
