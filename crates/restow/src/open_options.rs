//! Options for opening sources.

use std::ffi::OsString;
use std::path::PathBuf;

use oci::Platform;
use tree::edit::Stats;
use tree::{HostDir, setters};

use crate::RemoteOptions;

/// Which part of a source is read, and how. An option for another format than that of the source
/// has no effect.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// btrfs: read this subvolume, a path or number, if the address names none.
    pub subvolume: Option<OsString>,
    /// btrfs: if none is named, read the top level, not the default subvolume.
    pub top_level: bool,
    /// btrfs: show subvolumes nested in the one that is read as empty directories.
    pub no_nested: bool,
    /// btrfs: read the last commit alone, without the later changes in the log.
    pub no_log: bool,
    /// btrfs: use this copy of the superblock, not the newest that is valid.
    pub superblock: Option<usize>,
    /// btrfs: read the file system as it was this many commits before the last.
    pub older_root: usize,
    /// btrfs: do not verify the checksums of data.
    pub ignore_checksums: bool,
    /// btrfs: the other devices of the file system, or of seeds that it is based on.
    pub devices: Vec<PathBuf>,
    /// Images: where in the file the image is, if not at its beginning.
    pub image_at: Option<ImageAt>,
    /// Images that are an EROFS image beside a SquashFS or btrfs image: read the EROFS image.
    pub as_erofs: bool,
    /// Disk files: the file behind the one that is opened, the file behind that, and so on, in
    /// place of those that the files name.
    pub backing: Vec<PathBuf>,
    /// qcow2 disk files: the internal snapshot with this ID, or else with this name, in place of
    /// the state that the machine sees.
    pub disk_snapshot: Option<OsString>,
    /// Images in one file: the root hash of dm-verity, by which each block is verified when it is
    /// read.
    pub verity: Option<VerityRoot>,
    /// Container images: the platform, if there are several [default: this machine's].
    pub platform: Option<Platform>,
    /// Send streams: the streams to replay first.
    pub base: Vec<PathBuf>,
    /// Directories: show mount points as empty directories.
    pub one_file_system: bool,
    /// Directories: leave out mount points.
    pub no_mount_points: bool,
    /// Directories: show the targets of symbolic links in place of the links.
    pub dereference: bool,
    /// Tar: read on after the end, as for concatenated archives.
    pub ignore_zeros: bool,
    /// Tar: the metadata of directories that are in a path but not in the archive.
    pub implied_dirs: Stats,
    /// Tar: leave out members that cannot be read, and say which in [`crate::SourceTree::lost`].
    /// btrfs: show files whose directories are lost in `lost+found`.
    pub skip_damaged: bool,
    /// Objects of other machines: how they are read.
    pub remote: RemoteOptions,
    /// The directory for unnamed files with the content of pipes and of compressed archives: a
    /// place for large files.
    pub spool_dir: PathBuf,
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            subvolume: None,
            top_level: false,
            no_nested: false,
            no_log: false,
            superblock: None,
            older_root: 0,
            ignore_checksums: false,
            devices: Vec::new(),
            image_at: None,
            as_erofs: false,
            backing: Vec::new(),
            disk_snapshot: None,
            verity: None,
            platform: None,
            base: Vec::new(),
            one_file_system: false,
            no_mount_points: false,
            dereference: false,
            ignore_zeros: false,
            implied_dirs: Stats::default(),
            skip_damaged: false,
            remote: RemoteOptions::default(),
            spool_dir: "/var/tmp".into(),
        }
    }
}

setters!(OpenOptions {
    subvolume: Option<OsString>,
    top_level: bool,
    no_nested: bool,
    no_log: bool,
    superblock: Option<usize>,
    older_root: usize,
    ignore_checksums: bool,
    devices: Vec<PathBuf>,
    image_at: Option<ImageAt>,
    as_erofs: bool,
    backing: Vec<PathBuf>,
    disk_snapshot: Option<OsString>,
    verity: Option<VerityRoot>,
    platform: Option<Platform>,
    base: Vec<PathBuf>,
    one_file_system: bool,
    no_mount_points: bool,
    ignore_zeros: bool,
    implied_dirs: Stats,
    skip_damaged: bool,
    remote: RemoteOptions,
    spool_dir: impl Into<PathBuf>,
});

/// The mount points in a directory that are read.
#[derive(Clone, Copy, Default)]
pub(crate) enum MountPoints {
    #[default]
    Followed,
    Empty,
    LeftOut,
}

impl MountPoints {
    pub(crate) fn in_dir(self, dir: HostDir) -> tree::Result<HostDir> {
        match self {
            MountPoints::Followed => Ok(dir),
            MountPoints::Empty => dir.on_one_file_system(),
            MountPoints::LeftOut => dir.without_mount_points(),
        }
    }
}

impl OpenOptions {
    pub(crate) fn mount_points(&self) -> MountPoints {
        match (self.no_mount_points, self.one_file_system) {
            (true, _) => MountPoints::LeftOut,
            (false, true) => MountPoints::Empty,
            (false, false) => MountPoints::Followed,
        }
    }

    pub(crate) fn btrfs(&self, ignores_foreign: bool) -> btrfs::OpenOptions {
        btrfs::OpenOptions::default()
            .superblock(self.superblock)
            .older_root(self.older_root)
            .no_log(self.no_log)
            .ignores_foreign(ignores_foreign)
    }
}

/// Where in a file an image begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageAt {
    /// At this byte.
    Byte(u64),
    /// At the first place that holds one.
    Search,
    /// At the beginning of the partition with this number.
    Partition(u32),
}

/// The hash that an image must have, and where its hash tree is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerityRoot {
    /// The hash at the root of the tree.
    pub hash: [u8; 32],
    /// The file with the tree, if it is not behind the image.
    pub file: Option<PathBuf>,
    /// Where the superblock of the tree is, in that file or in the image; by default at the
    /// beginning of a file, or where a tree begins with which the image ends.
    pub offset: Option<u64>,
}

setters!(VerityRoot {
    file: Option<PathBuf>,
    offset: Option<u64>,
});

impl VerityRoot {
    /// The root hash of an image that ends with its tree.
    pub fn new(hash: [u8; 32]) -> VerityRoot {
        VerityRoot {
            hash,
            file: None,
            offset: None,
        }
    }
}
