//! Checks the log tree: what was synced since the last commit, which the kernel replays on mount.

use tree::{Error, Result};

use super::state::{Check, wrong};
use crate::csum_tree;
use crate::extent::{Body, FileExtent};
use crate::inode::Inode;
use crate::key::{Generation, Key, Logical, item, object};
use crate::subvolume::Root;
use crate::tree::Tree;

/// The end of the range that contains `at`; 0 if there is none.
pub(super) fn end_in(ranges: &[(u64, u64)], at: u64) -> u64 {
    let index = ranges.partition_point(|range| range.0 <= at);
    let range = index.checked_sub(1).map(|index| ranges[index]);
    range.map_or(0, |(_, end)| if end > at { end } else { 0 })
}

/// Sorts ranges and joins those that touch.
pub(super) fn join(ranges: &mut Vec<(u64, u64)>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, range| {
        let touches = next.0 <= range.1;
        if touches {
            range.1 = range.1.max(next.1);
        }
        touches
    });
}

impl Check<'_> {
    /// Checks that every block of the log can be read: a damaged log keeps Linux from mounting.
    pub(super) fn log(&mut self) -> Result<()> {
        let btrfs = self.btrfs;
        let superblock = btrfs.superblock();
        let Some((root, level)) = superblock.log_root else {
            return Ok(());
        };
        let generation = Generation(superblock.generation.0.saturating_add(1));
        let logs = Tree {
            id: object::TREE_LOG,
            root,
            level,
            generation,
        };
        let mut cursor = logs.seek(&btrfs.volume, Key::MIN)?;
        while let Some(item) = cursor.item() {
            if item.key.kind == item::ROOT_ITEM {
                let log = Root::parse(&item, superblock)?.tree;
                self.log_of_subvolume(&log)?;
            }
            cursor.advance()?;
        }
        for ranges in [&mut self.log.data, &mut self.log.sums, &mut self.log.wanted] {
            join(ranges);
        }
        Ok(())
    }

    fn log_of_subvolume(&mut self, log: &Tree) -> Result<()> {
        let btrfs = self.btrfs;
        let superblock = btrfs.superblock();
        // The inode whose items follow, and whether its content has checksums.
        let mut current = (0, false);
        let mut cursor = log.seek(&btrfs.volume, Key::MIN)?;
        while let Some(item) = cursor.item() {
            match item.key.kind {
                item::INODE_ITEM => {
                    let inode = Inode::parse(&item, superblock)?;
                    current = (item.key.objectid, inode.has_checksums());
                }
                item::EXTENT_DATA => {
                    let part = FileExtent::parse(&item, superblock.sectorsize)?;
                    if let Body::Stored {
                        extent,
                        offset,
                        is_preallocated,
                    } = part.body
                    {
                        let end = extent.at.0.saturating_add(extent.len);
                        self.log.data.push((extent.at.0, end));
                        if current == (item.key.objectid, true) && !is_preallocated {
                            self.log.wanted.push(match extent.compression {
                                Some(_) => (extent.at.0, end),
                                None => {
                                    let from = extent.at.0.saturating_add(offset);
                                    (from, from.saturating_add(part.len))
                                }
                            });
                        }
                    }
                }
                item::EXTENT_CSUM => {
                    let range = csum_tree::parse_item(&item, superblock)?;
                    self.log.sums.push(range);
                }
                _ => {}
            }
            cursor.advance()?;
        }
        Ok(())
    }

    /// Checks that the data of the log has checksums: in the log itself or, if it is older, in the checksum tree.
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
                        let what = wrong("data in the log has no checksum", Logical(at), next - at);
                        self.corrupt(object::TREE_LOG, what)?;
                    }
                }
                at = next;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_joined_and_found() {
        let mut ranges = vec![(30, 40), (10, 20), (20, 25), (12, 15)];
        join(&mut ranges);
        assert_eq!(ranges, [(10, 25), (30, 40)]);
        let ends = [9, 10, 24, 25, 30, 40].map(|at| end_in(&ranges, at));
        assert_eq!(ends, [0, 25, 25, 0, 40, 0]);
    }
}
