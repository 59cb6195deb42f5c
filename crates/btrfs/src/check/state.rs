//! The state of a check: its knowledge so far, and its findings.

use std::collections::HashSet;
use std::fmt;

use tree::{CheckOptions, Corrupt, Error, Finding, Findings, Parallel, Progress, Result};

use super::extents::{Encoded, ExtentTree, TreeReferences};
use super::ranges::Ranges;
use crate::disk::key::Logical;
use crate::disk::node::TreeBlock;
use crate::read::Btrfs;

/// Summary of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckSummary {
    /// Number of findings, including those not reported.
    pub findings: u64,
    /// Number of tree blocks.
    pub tree_blocks: u64,
    /// Number of data extents.
    pub extents: u64,
    /// Number of inodes, counted once for each subvolume that contains them.
    pub inodes: u64,
    /// Bytes of data compared with their checksums.
    pub data_bytes: u64,
    /// Bytes of content that encoded extents decoded to, each counted once.
    pub decoded_bytes: u64,
    /// Observations that are not errors.
    pub notes: Vec<Note>,
}

/// Something worth knowing about an image that is not damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// This many devices are missing, but everything can be read from the others.
    MissingDevices(u64),
    /// Data has not been checked: the image is a metadata dump of btrfs-image, without the content
    /// of files.
    MetadataDump,
    /// The superblock says that the devices are larger, by this many bytes, than they say
    /// themselves.
    LargerThanDevices(u64),
    /// The counts of quota groups were not compared: the file system itself says that they are out
    /// of date.
    QuotasInconsistent,
    /// The counts of quota groups were not compared: that takes too much memory or time.
    QuotasNotCounted,
    /// The free space tree has information about this many block groups that no longer exist.
    StaleFreeSpace(u64),
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::MissingDevices(1) => {
                f.write_str("a device is missing; everything can be read from the others")
            }
            Note::MissingDevices(count) => write!(
                f,
                "{count} devices are missing; everything can be read from the others"
            ),
            Note::MetadataDump => {
                f.write_str("a metadata dump of btrfs-image, without the content of files")
            }
            Note::LargerThanDevices(bytes) => write!(
                f,
                "the superblock counts {bytes} bytes more than the devices have"
            ),
            Note::QuotasInconsistent => {
                f.write_str("quotas are marked as inconsistent; their counts were not checked")
            }
            Note::QuotasNotCounted => {
                f.write_str("subvolumes share too much to check the counts of quotas")
            }
            Note::StaleFreeSpace(count) => write!(
                f,
                "the free space tree describes {count} block groups that no longer exist, as old mkfs.btrfs leaves it"
            ),
        }
    }
}

/// Ranges of data that the log has, as start and end: sorted, without overlaps.
#[derive(Default)]
pub(super) struct LogRanges {
    /// Extents of its files.
    pub(super) data: Vec<(u64, u64)>,
    /// Data that it has checksums for.
    pub(super) sums: Vec<(u64, u64)>,
    /// Data that must have checksums.
    pub(super) wanted: Vec<(u64, u64)>,
}

/// The references to blocks and extents, if full quotas are checked.
#[derive(Default)]
pub(super) struct ReferenceEdges {
    /// The level and address of a block, and the address of a block or data extent that it refers
    /// to.
    pub(super) edges: Vec<(u8, u64, u64)>,
}

impl ReferenceEdges {
    pub(super) fn add(&mut self, from: &TreeBlock, to: u64) {
        self.edges.push((from.level, from.at.0, to));
    }
}

/// A check in progress.
pub(super) struct BtrfsChecker<'b> {
    pub(super) btrfs: &'b Btrfs,
    pub(super) options: CheckOptions,
    pub(super) parallel: Parallel,
    pub(super) progress: &'b dyn Progress,
    pub(super) findings: Findings<'b>,
    pub(super) summary: CheckSummary,
    pub(super) references: TreeReferences,
    pub(super) extents: ExtentTree,
    /// The encoded extents that files refer to.
    pub(super) encoded: HashSet<Encoded>,
    /// Written data of files without checksums.
    pub(super) without_checksums: Ranges,
    pub(super) log: LogRanges,
    /// Only for full quotas.
    pub(super) paths: Option<ReferenceEdges>,
    pub(super) notes: Vec<Note>,
    /// Addresses of chunks of which some part is on missing devices only, in ascending order.
    pub(super) lost_chunks: Vec<u64>,
}

impl BtrfsChecker<'_> {
    /// Records a finding in a tree; tree 0 stands for no tree.
    pub(super) fn found(&mut self, tree: u64, error: Error) -> Result<()> {
        self.findings.add(finding(tree, error))
    }

    /// Records a broken rule in a tree, with its place and the value found there.
    pub(super) fn corrupt(
        &mut self,
        what: &'static str,
        tree: u64,
        at: u64,
        got: u64,
    ) -> Result<()> {
        self.found(tree, Error::Corrupt(Corrupt { what, at, got }))
    }

    /// Records a finding and continues.
    pub(super) fn tolerate(&mut self, tree: u64, result: Result<()>) -> Result<()> {
        match result {
            Ok(()) => Ok(()),
            Err(error) => self.found(tree, error),
        }
    }
}

/// A finding in a tree; tree 0 stands for no tree.
pub(super) fn finding(tree: u64, error: Error) -> Finding {
    Finding {
        error,
        part: (tree != 0).then_some(("tree", tree.cast_signed())),
        file: None,
    }
}

/// The error for something wrong at an address.
pub(super) fn wrong(what: &'static str, at: Logical, got: u64) -> Corrupt {
    Corrupt {
        what,
        at: at.0,
        got,
    }
}
