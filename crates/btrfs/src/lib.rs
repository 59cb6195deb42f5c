//! Reads btrfs images as trees of files, and creates them from any tree.
//!
//! A file system is a forest of B-trees in one *logical* address space, which *chunks* map to one or more devices. The
//! superblock locates the chunk tree and the root tree. Each subvolume is a tree of its own. File data lies in extents,
//! which may be compressed and may be shared by several files and subvolumes.
//!
//! Each file of this crate covers one structure on disk, its reader next to its writer. All records are in `raw`, their
//! bits in `flags`. The reader enforces the rules that the kernel checks and trusts nothing: every byte is verified
//! against its checksum.
#![forbid(unsafe_code)]

mod check;
mod disk;
mod options;
mod read;
mod write;

pub use check::{CheckSummary, Note};
pub use disk::checksum::ChecksumType;
pub use disk::chunk::{Chunk, ChunkMap, Profile, STRIPE_BYTES, Stripe};
pub use disk::compression::Compression;
pub use disk::flags::{block_group, compat_ro, incompat, inode_flags};
pub use disk::key::{Generation, Key, Logical, Physical, item, object};
pub use disk::superblock::{DeviceInfo, SUPERBLOCK_PLACES, Superblock};
pub use options::{CreateSummary, NewSubvolume, Numbers, OpenOptions, Options, Received, Rule};
pub use read::{Btrfs, GroupSpace, Space, Subvolume, SubvolumeInfo};
pub use write::{ImageTrial, TrialPart, TrialResult, TrialWorker, create};
