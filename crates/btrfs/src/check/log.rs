//! Checks the log tree: synced changes since the last commit, which the kernel replays on mount.

use std::collections::HashSet;

use tree::{Error, Result};

use super::ranges::{Ranges, end_in};
use super::state::{BtrfsChecker, LogRanges};
use crate::disk::csum_tree;
use crate::disk::extent::{ExtentBody, FileExtent};
use crate::disk::inode::StoredInode;
use crate::disk::key::{Key, Logical, item, object};
use crate::disk::subvolume::{TreeRoot, log_tree};
use crate::disk::tree::Tree;

/// The ranges of a log, before they become a [`LogRanges`].
#[derive(Default)]
struct LogCollector {
    data: Ranges,
    sums: Ranges,
    wanted: Ranges,
}

impl BtrfsChecker<'_> {
    /// Checks that every block of the log can be read: a damaged log keeps Linux from mounting.
    pub(super) fn log(&mut self) -> Result<()> {
        let mut collected = LogCollector::default();
        let result = self.read_log(&mut collected);
        // After an error, what was read before it still counts.
        self.log = LogRanges {
            data: collected.data.into_joined(),
            sums: collected.sums.into_joined(),
            wanted: collected.wanted.into_joined(),
        };
        result
    }

    fn read_log(&self, collected: &mut LogCollector) -> Result<()> {
        let btrfs = self.btrfs;
        let superblock = btrfs.superblock();
        let Some(logs) = log_tree(superblock) else {
            return Ok(());
        };
        let mut read = HashSet::new();
        let mut cursor = logs.seek(&btrfs.volume, Key::MIN)?;
        while let Some(item) = cursor.item() {
            if item.key.kind == item::ROOT_ITEM {
                let log = TreeRoot::parse(&item, superblock)?.tree;
                // Two logs with one root are hostile; reading them once is enough.
                if read.insert(log.root) {
                    self.log_of_subvolume(&log, collected)?;
                }
            }
            cursor.advance()?;
        }
        Ok(())
    }

    fn log_of_subvolume(&self, log: &Tree, collected: &mut LogCollector) -> Result<()> {
        let btrfs = self.btrfs;
        let superblock = btrfs.superblock();
        // The inode whose items follow, and whether its content has checksums.
        let mut current = (0, false);
        let mut cursor = log.seek(&btrfs.volume, Key::MIN)?;
        while let Some(item) = cursor.item() {
            match item.key.kind {
                item::INODE_ITEM => {
                    let inode = StoredInode::parse(&item, superblock)?;
                    current = (item.key.objectid, inode.has_checksums());
                }
                item::EXTENT_DATA => {
                    let part = FileExtent::parse(&item, superblock.sectorsize)?;
                    if let ExtentBody::Stored {
                        extent,
                        offset,
                        is_preallocated,
                    } = part.body
                    {
                        let end = extent.at.0.saturating_add(extent.len);
                        collected.data.add(extent.at.0, end);
                        if current == (item.key.objectid, true) && !is_preallocated {
                            let (from, to) = match extent.compression {
                                Some(_) => (extent.at.0, end),
                                None => {
                                    let from = extent.at.0.saturating_add(offset);
                                    (from, from.saturating_add(part.len))
                                }
                            };
                            collected.wanted.add(from, to);
                        }
                    }
                }
                item::EXTENT_CSUM => {
                    let (from, to) = csum_tree::parse_item(&item, superblock)?;
                    collected.sums.add(from, to);
                }
                _ => {}
            }
            cursor.advance()?;
        }
        Ok(())
    }

    /// Checks that the data of the log has checksums: in the log itself or, if it is older, in the
    /// checksum tree.
    pub(super) fn log_checksums(&mut self) -> Result<()> {
        for (from, to) in std::mem::take(&mut self.log.wanted) {
            let mut at = from;
            while at < to {
                let end = end_in(&self.log.sums, at);
                if end > at {
                    at = end;
                    continue;
                }
                let index = self.log.sums.partition_point(|range| range.0 <= at);
                let next = self.log.sums.get(index).map_or(to, |range| range.0.min(to));
                match self.btrfs.check_checksums(Logical(at), next - at) {
                    Ok(()) => {}
                    Err(Error::Io(error)) => return Err(Error::Io(error)),
                    Err(_) => {
                        self.corrupt(
                            "data in the log has no checksum",
                            object::TREE_LOG,
                            at,
                            next - at,
                        )?;
                    }
                }
                at = next;
            }
        }
        Ok(())
    }
}
