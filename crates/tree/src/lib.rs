#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod base64;
mod block_cache;
mod cache;
mod check;
mod date;
mod error;
mod fs;
mod host_ids;
mod integers;
pub mod json;
mod output;
mod part;
mod prepare;
mod read_at;
mod records;
mod seekable;
mod setters;
mod sha256;
mod summary;
mod table;
mod threads;
pub mod usage;
mod verify;

pub use block_cache::{BlockCache, BlockCounts};
pub use cache::Cache;
pub use check::{CheckOptions, DataCheck, Finding, Findings};
pub use date::{date, days};
pub use error::{Corrupt, Error, Limits, Result};
pub use fs::{
    Aspects, BlockEncoding, ByPath, Checksum, Device, DevicePlace, DirEntry, Encoding, EntryId,
    Extent, ExtentId, ExtentKind, Extents, FileAttributes, FileId, FileIdentity, FileKind,
    FileSystem, FollowedDir, Graft, HostContent, HostDir, HostFile, HostStep, HostTimes, Ino,
    Inventory, Joined, Metadata, NO_OWNER, Overlay, OverlayLayer, Steps, Storage, StoreId, Time,
    WalkStep, Xattr, all_or_nothing, diff, edit, entry_named, extract, is_valid_name, manifest,
    rescue, tar, walk_host_dir, with_metadata,
};
pub use host_ids::HostIds;
pub use integers::{high_u32, low_u32, to_u64, to_usize, wide_u64};
pub use output::{
    ChecksumsMark, MemoryResult, Output, OutputKind, OutputPath, OutputTarget, WrittenChecksums,
    WrittenExtent, spool, temporary,
};
pub use part::{
    ImagePart, PartMismatch, PartNumber, PartReader, PartSource, PartWriter, Parts, StoredRecord,
};
pub use prepare::{
    ContentReader, Describe, Description, Duplicates, Lost, OldExtents, OldImage, Probe, Reuse,
    WrittenTree, XattrSets,
};
pub use read_at::{ReadAt, SequentialReader};
pub use seekable::Seekable;
pub use sha256::{Sha256, sha256, uuid_of};
pub use summary::ImageSummary;
pub use table::{RecordTable, Scratch, Strings};
pub use threads::{NoProgress, Parallel, Progress, ordered, ordered_on_demand};
pub use verify::{KeptCount, Verify};
