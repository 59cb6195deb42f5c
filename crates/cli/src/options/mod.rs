//! Options that several commands share, and the options of each format.

mod aspects;
mod btrfs;
mod bytes;
mod directory;
mod edits;
mod erofs;
mod image;
mod moment;
mod owner;
mod quiet;
#[cfg(feature = "remote")]
mod remote;
mod rescue;
mod source;
mod squashfs;
mod stream;
mod threads;

pub(crate) use aspects::AspectArgs;
pub(crate) use btrfs::{BtrfsArgs, joined, profile, settings, uuid};
pub(crate) use bytes::bytes;
pub(crate) use directory::DirectoryArgs;
pub(crate) use edits::EditArgs;
pub(crate) use erofs::{ErofsArgs, erofs_settings};
pub(crate) use image::{ImageArgs, epoch};
pub(crate) use owner::{group, user};
pub(crate) use quiet::{QuietArgs, SilentArgs};
#[cfg(feature = "remote")]
pub(crate) use remote::{RemoteArgs, bound_remote_cache, read_objects};
#[cfg(not(feature = "remote"))]
pub(crate) fn bound_remote_cache(_: u64) {}
/// The part of --memory that keeps an object as the source.
pub(crate) const REMOTE_SHARE: u64 = 4;
pub(crate) use rescue::RescueArgs;
pub(crate) use source::{
    ImageFileArgs, SOURCE_HELP, SOURCE_LONG_HELP, SourceArgs, image_at, only_one_is_standard_input,
    open_options,
};
pub(crate) use squashfs::{SquashfsArgs, settings as squashfs_settings};
pub(crate) use stream::StreamArgs;
pub(crate) use threads::ThreadArgs;
