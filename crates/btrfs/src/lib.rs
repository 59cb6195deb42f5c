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

mod address_space;
mod builder;
mod check;
mod checksum;
mod chunk;
mod compression;
mod csum_tree;
mod data;
mod describe;
mod dir;
mod extent;
mod extent_data;
mod flags;
mod forest;
mod fs_tree;
mod heuristic;
mod inode;
mod key;
mod layout;
mod members;
mod node;
mod open_options;
mod options;
mod raw;
mod read;
mod replay;
mod roots;
mod snapshots;
mod space;
mod spill;
mod subvolume;
mod subvolume_plan;
mod superblock;
mod tree;
mod usage;
mod volume;
mod write;

pub use check::{CheckSummary, Note};
pub use checksum::ChecksumType;
pub use chunk::{Chunk, ChunkMap, Profile, STRIPE_BYTES, Stripe};
pub use compression::Compression;
pub use data::{Trial, TrialPart, TrialResult, TrialWorker};
pub use flags::{block_group, compat_ro, incompat, inode_flags};
pub use key::{Generation, Key, Logical, Physical, item, object};
pub use open_options::OpenOptions;
pub use options::{NewSubvolume, Numbers, Options, Received, Rule, Summary};
pub use read::{Btrfs, Subvolume, SubvolumeInfo};
pub use superblock::{Device, SUPERBLOCK_PLACES, Superblock};
pub use usage::{GroupSpace, Space};
pub use write::create;
