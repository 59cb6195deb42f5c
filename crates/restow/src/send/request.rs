//! The choice of subvolumes to send.

use std::path::PathBuf;

use tree::setters;

use crate::RemoteOptions;

/// The subvolumes to send, those that the receiver has, and the form of the stream.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct SendRequest {
    /// Addresses such as `disk.btrfs:home`, or directories where read-only subvolumes are mounted.
    pub subvolumes: Vec<PathBuf>,
    /// Send only the differences from this subvolume of the same file system.
    pub parent: Option<PathBuf>,
    /// Clone data from these subvolumes of the same file system; without a parent, the first
    /// subvolume is built on the nearest of them.
    pub clone_sources: Vec<PathBuf>,
    /// Images: the other devices of the file system.
    pub devices: Vec<PathBuf>,
    /// Images: how objects of other machines are read.
    pub remote: RemoteOptions,
    /// Write one stream with all subvolumes, instead of one for each.
    pub one_stream: bool,
    /// Leave out the data of files. Such a stream cannot be received.
    pub no_data: bool,
    /// The version of the stream; 0 is the newest. By default 1, or 2 with `compressed_data`.
    pub version: Option<u32>,
    /// Send compressed data as it is stored (version 2).
    pub compressed_data: bool,
}

setters!(SendRequest {
    subvolumes: Vec<PathBuf>,
    parent: Option<PathBuf>,
    clone_sources: Vec<PathBuf>,
    devices: Vec<PathBuf>,
    remote: RemoteOptions,
    one_stream: bool,
    no_data: bool,
    version: Option<u32>,
    compressed_data: bool,
});

impl SendRequest {
    /// Full streams of these subvolumes.
    pub fn of(subvolumes: impl IntoIterator<Item = impl Into<PathBuf>>) -> SendRequest {
        SendRequest {
            subvolumes: subvolumes.into_iter().map(Into::into).collect(),
            ..SendRequest::default()
        }
    }
}
