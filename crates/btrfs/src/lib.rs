#![doc = include_str!("../README.md")]
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
pub use read::{Btrfs, GroupSpace, Sharing, Space, Subvolume, SubvolumeInfo};
pub use write::{
    ImageTrial, TrialPart, TrialResult, TrialWorker, create, create_on_devices, create_part, join,
    part_source,
};
