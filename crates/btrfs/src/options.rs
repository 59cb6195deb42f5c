//! How a file system is made, and what was made.

use std::sync::Arc;

use codec::{Encoder, Settings};
use tree::edit::Patterns;
use tree::{Error, ImageSummary, Result, Time};

use crate::checksum::ChecksumType;
use crate::chunk::Profile;
use crate::raw::LABEL_BYTES;

/// How a file system is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// How extents are encoded: zlib 1 to 9, LZO, or zstd -15 to 15; `None` stores all as it is.
    pub compression: Option<Settings>,
    /// Files that are encoded in another way. The first rule that fits counts.
    pub rules: Vec<Rule>,
    /// Whether to try that on every extent, not only on those in which a sample promises something.
    pub force: bool,
    /// Whether extents that the source has encoded in a way that btrfs knows are taken as they are.
    pub keep_extents: bool,
    /// The checksum of everything.
    pub checksum: ChecksumType,
    /// How tree blocks are kept: [`Profile::Single`] or [`Profile::Dup`].
    pub metadata: Profile,
    /// Bytes of a tree block: a power of two from 4 KiB to 64 KiB.
    pub nodesize: u32,
    /// Whether block groups have a tree of their own. Linux before 6.1 then does not write to the file system.
    pub block_group_tree: bool,
    /// Bytes of the file system; `None` for what it takes and `slack`. On a device, its size.
    pub size: Option<u64>,
    /// Bytes for growth that are left behind all block groups, beside what Linux wants free before it changes anything.
    /// 0 leaves nothing free: Linux cannot do more than read. `None` leaves what Linux wants if that is no more than a
    /// twenty-fifth of the rest, otherwise so much that files can be deleted and the file system can be made larger.
    pub slack: Option<u64>,
    /// Directories that become subvolumes.
    pub subvolumes: Vec<NewSubvolume>,
    /// The path of the subvolume that is mounted when none is named; `None` for the top level.
    pub default_subvolume: Option<Vec<u8>>,
    /// The file system's name: at most 255 bytes, without NUL.
    pub label: Vec<u8>,
    /// Its UUID; `None` for one that follows from what is in it.
    pub uuid: Option<[u8; 16]>,
    /// Seconds since 1970 that no time is later than; access, change and birth times are then those of the last change
    /// of content. `None` keeps all times.
    pub epoch: Option<i64>,
    /// Whether files with equal content share it.
    pub duplicates: bool,
    /// Whether files that cannot be read are left out and listed; otherwise they are errors.
    pub skip_unreadable: bool,
    /// Whether every extent is decoded and compared before it counts as made.
    pub verify: bool,
}

/// How the files are encoded that patterns choose.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Which files: those whose path one matches.
    pub patterns: Arc<Patterns>,
    /// How; `None` stores them as they are.
    pub compression: Option<Settings>,
}

/// A directory that becomes a subvolume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewSubvolume {
    /// Its path, names joined by `/`; empty for the top level, which is a subvolume anyway.
    pub path: Vec<u8>,
    /// Whether it may not be changed.
    pub is_read_only: bool,
    /// Its UUID; `None` for one that follows from the file system's.
    pub uuid: Option<[u8; 16]>,
    /// The UUID of the subvolume of which it is a snapshot.
    pub parent_uuid: Option<[u8; 16]>,
    /// Where it came from, if it was received.
    pub received: Option<Received>,
    /// When it was made; `None` for the time of the file system.
    pub otime: Option<Time>,
}

/// What a received subvolume knows of the one that was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Its UUID.
    pub uuid: [u8; 16],
    /// The transaction of its last change, where it was sent.
    pub stransid: u64,
    /// The transaction in which it was received.
    pub rtransid: u64,
    /// When it was sent.
    pub stime: Time,
    /// When it was received.
    pub rtime: Time,
}

/// What was made.
#[derive(Debug, Default)]
pub struct Summary {
    /// What every format says.
    pub image: ImageSummary,
    /// Subvolumes, the top level included.
    pub subvolumes: u64,
    /// Bytes of tree blocks, each counted once.
    pub metadata_bytes: u64,
    /// Data extents.
    pub extents: u64,
    /// Data extents and files in trees that are stored compressed.
    pub compressed: u64,
    /// Files whose content is in a tree.
    pub inline_files: u64,
    /// The UUID.
    pub uuid: [u8; 16],
    /// Whether Linux finds as much free as it wants before it writes.
    pub is_writable: bool,
    /// Paths of files with names in several subvolumes: there they are files of their own, which share their content.
    pub split_links: Vec<Vec<u8>>,
}

impl Default for Options {
    /// zstd at level 3, with the heuristic; CRC-32C; tree blocks of 16 KiB, twice.
    fn default() -> Self {
        Options {
            compression: Some(Settings::Zstd { level: 3 }),
            rules: Vec::new(),
            force: false,
            keep_extents: true,
            checksum: ChecksumType::Crc32c,
            metadata: Profile::Dup,
            nodesize: 16 << 10,
            block_group_tree: false,
            size: None,
            slack: None,
            subvolumes: Vec::new(),
            default_subvolume: None,
            label: Vec::new(),
            uuid: None,
            epoch: None,
            duplicates: true,
            skip_unreadable: false,
            verify: true,
        }
    }
}

impl Options {
    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |what| Err(Error::InvalidInput(what));
        let rules = self.rules.iter().map(|rule| rule.compression);
        for settings in rules.chain([self.compression]).flatten() {
            match settings {
                Settings::Zlib { level: 1..=9 }
                | Settings::Lzo
                | Settings::Zstd {
                    level: -15..=-1 | 1..=15,
                } => {}
                _ => {
                    return invalid(
                        "btrfs has zlib at level 1 to 9, lzo, and zstd at level -15 to -1 and 1 to 15",
                    );
                }
            }
            Encoder::new(&settings).map_err(|error| Error::InvalidInput(error.as_str()))?;
        }
        if !self.nodesize.is_power_of_two() || !(4 << 10..=64 << 10).contains(&self.nodesize) {
            return invalid("the size of a tree block is not a power of two from 4 KiB to 64 KiB");
        }
        if !matches!(self.metadata, Profile::Single | Profile::Dup) {
            return invalid("one device keeps tree blocks as single or dup");
        }
        if self.label.len() >= LABEL_BYTES || self.label.contains(&0) {
            return invalid("a label has at most 255 bytes, without NUL");
        }
        Ok(())
    }
}
