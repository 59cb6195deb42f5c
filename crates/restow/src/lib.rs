#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod address;
mod append;
mod check;
mod check_images;
mod compare;
mod container;
mod container_image;
mod copy;
mod digested;
mod disk_file;
mod error;
mod foreign;
mod index;
mod indexed;
pub mod info;
mod input;
mod joined;
mod memory;
mod object;
mod open_options;
mod overlay;
mod partitions;
pub mod patch;
pub mod plan;
mod receive;
mod replayed;
mod send;
mod source_note;
mod source_tree;
pub mod stream;
pub mod text;
mod usage;
mod verity;

use std::path::Path;

pub use ::btrfs::{ChecksumType, CreateSummary as BtrfsSummary, NewSubvolume, Profile, Rule};
pub use ::erofs::{ErofsSummary, Kernel};
pub use ::oci::{Digest, LayerFormat, Platform, WrittenImage};
pub use ::sendstream::Version;
pub use ::squashfs::{CreateSummary as SquashfsSummary, Fragments, flags as squashfs_flags};
pub use address::{Address, ImageDestination, is_same_file};
pub use check::{ArchiveCheck, check, check_archive, verify_image};
pub use check_images::{ImagesCheck, check_images};
pub use container::{Container, ImageRange, check_devices, known_content};
pub use container_image::ContainerImage;
pub use copy::{
    CopyJob, CopyLoss, CopyNote, CopyOptions, CopySummary, Format, ImageOptions, LossReason,
    StreamOptions, Unpreserved, copy, copy_to, subvolume_name,
};
pub use disk_file::{DiskFile, DiskLayer};
pub use error::{Error, Result};
pub use index::{index, is_current_index};
pub use input::Input;
#[cfg(feature = "remote")]
pub use object::Surroundings;
pub(crate) use object::is_current;
pub use object::{
    RemoteOptions, UploadOptions, create_object, is_temporary, object_state, without_secrets,
};
pub use open_options::{ImageAt, OpenOptions, VerityRoot};
pub use partitions::Partition;
pub use receive::{
    DirectoryReceived, ImageReceived, ImageReceiver, ReceiveEvent, ReceiveLoss, ReceiveOptions,
    ReceiveTarget, receive_into_btrfs, receive_into_directory,
};
pub use send::{ResumedOutput, SendRequest, SendSummary, Sender};
pub use source_note::SourceNote;
pub use source_tree::{SourceTree, find_subvolume, named_subvolume, open_subvolume};
pub use tree::{
    ByPath, MemoryResult, NoProgress, Output, OutputKind, OutputTarget, PartNumber, Progress,
};
pub use usage::{Overhead, SubvolumeBytes, SubvolumeUsage, overhead};
pub use verity::{HashTree, VerityOptions};

/// Opens the tree at an address: `src`, `src.tar.xz`, `disk.btrfs:home`, `oci:DIR:TAG`, or `-` for
/// standard input.
///
/// # Errors
/// The address names nothing; the file cannot be read, or holds nothing that restow reads.
pub fn open(address: impl AsRef<Path>) -> Result<SourceTree> {
    SourceTree::open(&Address::of(address.as_ref())?, &OpenOptions::default())
}
