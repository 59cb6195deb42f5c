//! Options for opening and for creating a file system, and the summary of the result.

use std::sync::Arc;

use codec::{Encoder, Settings};
use tree::edit::Patterns;
use tree::{Error, ImageSummary, Limits, OldImage, Result, Time, Verify, setters};

use crate::disk::checksum::ChecksumType;
use crate::disk::chunk::Profile;
use crate::disk::raw::LABEL_BYTES;

/// No file has more bytes than about twice this.
const BYTES_MAX: u64 = 1 << 62;

/// Options for creating a file system. [`Options::default`] gives the usual ones, and a method for
/// each field changes it: `Options::default().label(b"root".to_vec())`. Codecs and levels are those
/// of the crate `restow-codec`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// How extents are compressed: zlib 1 to 9, LZO, or zstd -15 to 15; `None` stores uncompressed
    /// the files without a rule or property. A file's property `btrfs.compression` chooses
    /// another algorithm.
    pub compression: Option<Settings>,
    /// Overrides for files that match a pattern, also of the property. The first matching rule
    /// wins.
    pub rules: Vec<Rule>,
    /// Whether to try compression on every extent, even of files marked as not to be compressed,
    /// instead of only where a sample looks compressible.
    pub force: bool,
    /// Whether to copy extents that the source has already compressed in a way that btrfs supports.
    pub keep_extents: bool,
    /// An older image, whose extents are kept where their content is unchanged. The image becomes
    /// the one that would be made without it: nothing is kept if a sample of its extents was not
    /// made with these settings.
    pub old: Option<OldImage>,
    /// The checksum algorithm for metadata and data.
    pub checksum: ChecksumType,
    /// How tree blocks are spread over the devices: any profile but [`Profile::Raid5`] and
    /// [`Profile::Raid6`].
    pub metadata: Profile,
    /// How file data is spread, likewise. The second copy of [`Profile::Dup`] is written last.
    pub data: Profile,
    /// Size of a tree block in bytes: a power of two from 4 KiB to 64 KiB.
    pub nodesize: u32,
    /// Whether to store block group items in a tree of their own. Linux before 6.1 then mounts the
    /// file system read-only.
    pub block_group_tree: bool,
    /// Size of the file system on each device in bytes; `None` for that of the content plus
    /// `slack`, or, on a block device and without `slack`, for the device's size.
    pub size: Option<u64>,
    /// The same for each device; those beyond the list have `size`.
    pub device_sizes: Vec<u64>,
    /// Bytes of unallocated space after the last block group, beside the free space that Linux
    /// needs before it changes anything. 0 leaves nothing free: Linux can then only read. `None`
    /// leaves the space that Linux needs if that is at most a twenty-fifth of the rest, otherwise
    /// just enough to delete files and to grow the file system. With `size`, it says whether that
    /// must have the space that Linux needs; with `None`, it has as much as fits.
    pub slack: Option<u64>,
    /// Directories that become subvolumes.
    pub subvolumes: Vec<NewSubvolume>,
    /// The path of the default subvolume, which is mounted when no other is named; `None` for the
    /// top level.
    pub default_subvolume: Option<Vec<u8>>,
    /// The file system's label: at most 255 bytes, without NUL.
    pub label: Vec<u8>,
    /// The file system's UUID; `None` derives it from the content.
    pub uuid: Option<[u8; 16]>,
    /// The UUID of its first device; `None` derives it from that of the file system, as those of
    /// the others.
    pub device_uuid: Option<[u8; 16]>,
    /// The image continues another one, whose transactions are older than this: subvolumes keep the
    /// IDs and transactions that they state, and files those of the source as far as their
    /// subvolume shares blocks with another. `None` numbers everything from the start.
    pub generation: Option<u64>,
    /// The least size of the file system, in bytes, if `size` is `None`.
    pub size_min: u64,
    /// Upper limit for all times of files, in seconds since 1970; `None` for no limit.
    pub epoch: Option<i64>,
    /// Whether to deduplicate files with equal content.
    pub duplicates: bool,
    /// Whether data that is stored uncompressed shares the extents of its source where the file
    /// system of both can do that (`FICLONERANGE`).
    pub reflink: bool,
    /// Whether to discard the content of a device first.
    pub discard: bool,
    /// Whether to skip and list files that cannot be read; otherwise they are errors.
    pub skip_unreadable: bool,
    /// Which extents are decoded for verification before the file system counts as finished.
    pub verify: Verify,
}

/// Options for opening a file system. As for [`Options`], a method for each field changes it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Limits on the memory and the work that an image may demand.
    pub limits: Limits,
    /// The copy of the superblock to use, an index into [`crate::SUPERBLOCK_PLACES`]; by default
    /// the newest that is valid.
    pub superblock: Option<usize>,
    /// Read the file system as it was this many commits before the last one: up to three, as far as
    /// the superblock records them and their blocks have not been overwritten.
    pub older_root: usize,
    /// Show the last commit alone, without the log.
    pub no_log: bool,
    /// Ignore sources that are not devices of the first one's file system, and second images of a
    /// device.
    pub ignores_foreign: bool,
}

/// How to compress the files that match a pattern.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The patterns: a file is chosen if one of them matches its path.
    pub patterns: Arc<Patterns>,
    /// How to compress these files; `None` stores them uncompressed.
    pub compression: Option<Settings>,
}

/// A directory that becomes a subvolume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewSubvolume {
    /// Its path, names joined by `/`; empty for the top level, which is always a subvolume.
    pub path: Vec<u8>,
    /// Whether it is read-only.
    pub is_read_only: bool,
    /// Its UUID; `None` derives it from the file system's UUID.
    pub uuid: Option<[u8; 16]>,
    /// The UUID of the subvolume that it is a snapshot of.
    pub parent_uuid: Option<[u8; 16]>,
    /// Where it came from, if it was received.
    pub received: Option<Received>,
    /// When it was created; `None` for the time of the file system.
    pub otime: Option<Time>,
    /// The numbers that it keeps if [`Options::generation`] is set; `None` numbers it as a new
    /// one.
    pub numbers: Option<Numbers>,
}

/// The numbers of a subvolume of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// Its ID.
    pub id: u64,
    /// The transaction of its last change.
    pub ctransid: u64,
    /// The transaction that created it.
    pub otransid: u64,
}

/// The record of a received subvolume about the subvolume that was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// The transaction of its last change on the sending side.
    pub stransid: u64,
    /// The transaction in which it was received.
    pub rtransid: u64,
    /// When it was sent.
    pub stime: Time,
    /// When it was received.
    pub rtime: Time,
}

/// Summary of the file system that was created.
#[derive(Debug, Default)]
pub struct CreateSummary {
    /// The part common to all formats.
    pub image: ImageSummary,
    /// Number of subvolumes, including the top level.
    pub subvolumes: u64,
    /// Bytes of tree blocks, each block counted once.
    pub metadata_bytes: u64,
    /// Size of the file system on each device, in bytes.
    pub device_bytes: Vec<u64>,
    /// Bytes of the block groups of data, of metadata and of the system, each counted once.
    pub group_bytes: [u64; 3],
    /// Bytes that share the extents of their source.
    pub shared_bytes: u64,
    /// Bytes of the device that were discarded.
    pub discarded_bytes: u64,
    /// Number of data extents.
    pub extents: u64,
    /// Number of data extents and inline files that are stored compressed.
    pub compressed: u64,
    /// Number of files whose content is inline in a tree.
    pub inline_files: u64,
    /// The file system's UUID.
    pub uuid: [u8; 16],
    /// Whether Linux finds as much free space as it needs before it writes.
    pub is_writable: bool,
    /// Whether Linux finds as much free space as it needs before it deletes files.
    pub can_delete: bool,
    /// Paths of hard links across subvolumes: each subvolume gets a file of its own, and these
    /// share their content.
    pub split_links: Vec<Vec<u8>>,
}

impl Default for Options {
    /// zstd at level 3, with the heuristic; CRC-32C; two copies of 16 KiB tree blocks.
    fn default() -> Self {
        Options {
            compression: Some(Settings::Zstd { level: 3 }),
            rules: Vec::new(),
            force: false,
            keep_extents: true,
            old: None,
            checksum: ChecksumType::Crc32c,
            metadata: Profile::Dup,
            data: Profile::Single,
            nodesize: 16 << 10,
            block_group_tree: false,
            size: None,
            device_sizes: Vec::new(),
            slack: None,
            subvolumes: Vec::new(),
            default_subvolume: None,
            label: Vec::new(),
            uuid: None,
            device_uuid: None,
            generation: None,
            size_min: 0,
            epoch: None,
            duplicates: true,
            reflink: false,
            discard: false,
            skip_unreadable: false,
            verify: Verify::Encoded,
        }
    }
}

setters!(Options {
    compression: Option<Settings>,
    rules: Vec<Rule>,
    force: bool,
    keep_extents: bool,
    old: Option<OldImage>,
    checksum: ChecksumType,
    metadata: Profile,
    data: Profile,
    nodesize: u32,
    block_group_tree: bool,
    size: Option<u64>,
    device_sizes: Vec<u64>,
    slack: Option<u64>,
    subvolumes: Vec<NewSubvolume>,
    default_subvolume: Option<Vec<u8>>,
    label: Vec<u8>,
    uuid: Option<[u8; 16]>,
    device_uuid: Option<[u8; 16]>,
    generation: Option<u64>,
    size_min: u64,
    epoch: Option<i64>,
    duplicates: bool,
    reflink: bool,
    discard: bool,
    skip_unreadable: bool,
    verify: Verify,
});

setters!(OpenOptions {
    limits: Limits,
    superblock: Option<usize>,
    older_root: usize,
    no_log: bool,
    ignores_foreign: bool,
});

impl Options {
    /// The number of devices that the profiles need.
    pub(crate) fn devices_min(&self) -> usize {
        let of = |profile: Profile| match profile {
            Profile::Dup => 1,
            profile => profile.stripe_counts().0,
        };
        usize::from(of(self.metadata).max(of(self.data)))
    }

    /// The size that is given for the device at this index.
    pub(crate) fn size_of(&self, index: usize) -> Option<u64> {
        self.device_sizes.get(index).copied().or(self.size)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |what| Err(Error::InvalidInput(what));
        let rules = self.rules.iter().map(|rule| rule.compression);
        for settings in rules.chain([self.compression]).flatten() {
            match settings {
                Settings::Zlib { level: 1..=9 }
                | Settings::Lzo
                | Settings::LzoOptimal { .. }
                | Settings::Zstd {
                    level: -15..=-1 | 1..=15,
                } => {}
                _ => {
                    return invalid(
                        "btrfs supports zlib at level 1 to 9, lzo, and zstd at level -15 to -1 and 1 to 15",
                    );
                }
            }
            Encoder::new(&settings).map_err(|error| Error::InvalidInput(error.as_str()))?;
        }
        if !self.nodesize.is_power_of_two() || !(4 << 10..=64 << 10).contains(&self.nodesize) {
            return invalid("the tree block size is not a power of two from 4 KiB to 64 KiB");
        }
        for profile in [self.metadata, self.data] {
            if matches!(profile, Profile::Raid5 | Profile::Raid6) {
                return invalid("raid5 and raid6 are read, and not written");
            }
        }
        let mut sizes = self.size.iter().chain(&self.device_sizes);
        if sizes.any(|&bytes| bytes > BYTES_MAX) || self.size_min > BYTES_MAX {
            return invalid("the size of the file system is larger than any file");
        }
        if self.slack.is_some_and(|bytes| bytes > BYTES_MAX) {
            return invalid("the slack is larger than any file");
        }
        if self.label.len() >= LABEL_BYTES || self.label.contains(&0) {
            return invalid("a label has at most 255 bytes, without NUL");
        }
        Ok(())
    }
}
