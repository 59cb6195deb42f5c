//! The choice of subvolumes to send.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use tree::{Parallel, setters};

use crate::memory::{MemoryModel, PROGRAM_BYTES, READ_AHEAD_BYTES};
use crate::object::is_remote;
use crate::{Address, RemoteOptions, Result};

/// Nodes and decoded extents of an image that are kept.
const NODES_BYTES: u64 = 20 << 20;
/// Tables of a file of a subvolume.
const FILE_BYTES: u64 = 200;

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
    /// Images: the maximum number of files of a subvolume.
    pub files_max: Option<u64>,
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
    files_max: Option<u64>,
});

impl SendRequest {
    /// Full streams of these subvolumes.
    pub fn of(subvolumes: impl IntoIterator<Item = impl Into<PathBuf>>) -> SendRequest {
        SendRequest {
            subvolumes: subvolumes.into_iter().map(Into::into).collect(),
            ..SendRequest::default()
        }
    }

    /// Limits the files of subvolumes so that the memory has a bound. Returns the bytes of the
    /// stream that wait if it becomes an object.
    ///
    /// # Errors
    /// The bound is too small for any subvolume.
    pub fn bound_memory(&mut self, bytes_max: u64, output: &Path) -> Result<u64> {
        let images = [&self.subvolumes, &self.clone_sources, &self.devices];
        let images = images.into_iter().flatten().chain(&self.parent);
        let objects = images.filter(|path| is_remote(path.as_os_str().as_bytes()));
        let object_bytes = self.remote.cache_bytes as u64 + READ_AHEAD_BYTES;
        let mut model = MemoryModel {
            fixed_bytes: PROGRAM_BYTES + object_bytes * objects.count() as u64,
            thread_bytes: NODES_BYTES,
            block_bytes: 128 << 10,
            jobs_factor: 1,
        };
        let mut waiting_bytes = 0;
        if Address::is_written_object(output) {
            // Half of the rest is for the lists of files.
            let least = model.bytes(Parallel::new(1)).min(bytes_max);
            waiting_bytes = model.add_upload(least + (bytes_max - least) / 2, false);
        }
        model.fit(Parallel::new(1), bytes_max, ("stream", ""))?;
        let room = bytes_max - model.bytes(Parallel::new(1));
        let trees = 1 + self.parent.iter().len() + self.clone_sources.len();
        self.files_max = Some(room / FILE_BYTES / trees as u64);
        Ok(waiting_bytes)
    }
}
