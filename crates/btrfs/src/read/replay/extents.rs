//! Parts of files in the log, and their checksums.

use tree::{Result, to_u64, to_usize};
use zerocopy::FromBytes;

use super::{Replay, range};
use crate::disk::csum_tree::parse_item;
use crate::disk::extent::{ExtentBody, FileExtent};
use crate::disk::flags::incompat;
use crate::disk::key::{Key, item, object};
use crate::disk::node::TreeItem;
use crate::disk::raw;

const HEAD_BYTES: usize = size_of::<raw::FileExtentItem>();

impl Replay<'_> {
    /// Replays a part of a file: it replaces the file's data there.
    pub(super) fn extent(&mut self, item: &TreeItem<'_>) -> Result<()> {
        let superblock = &self.volume.superblock;
        let sector = u64::from(superblock.sectorsize);
        let number = item.key.objectid;
        if !self.has_inode(number)? {
            return Err(item.corrupt("logged extent has no inode", number));
        }
        let extent = FileExtent::parse(item, superblock.sectorsize)?;
        let end = (extent.offset.saturating_add(extent.len)).next_multiple_of(sector);
        let has_holes = superblock.incompat & incompat::NO_HOLES == 0;
        self.drop_extents(number, extent.offset, end)?;
        if extent.body != ExtentBody::Hole || has_holes {
            self.files.put(item.key, item.data)?;
        }
        if let ExtentBody::Stored {
            extent: data,
            offset,
            ..
        } = extent.body
        {
            let (from, len) = match data.compression {
                Some(_) => (data.at.0, data.len),
                None => (data.at.0.saturating_add(offset), extent.len),
            };
            self.checksums(from, from.saturating_add(len))?;
        }
        Ok(())
    }

    /// Removes the parts of a file from `from` to `to`; a part on both sides of an end is cut
    /// there.
    pub(super) fn drop_extents(&mut self, number: u64, from: u64, to: u64) -> Result<()> {
        let sectorsize = self.volume.superblock.sectorsize;
        // The part before may reach into the range.
        let key = Key::new(number, item::EXTENT_DATA, from);
        let (first, last) = range(number, item::EXTENT_DATA, 0, to.saturating_sub(1));
        let mut cursor = self.files.tree.range_back(self.volume, key, last)?;
        let mut changes: Vec<(Key, Option<Vec<u8>>)> = Vec::new();
        while let Some(item) = cursor.item() {
            if item.key >= first {
                let extent = FileExtent::parse(&item, sectorsize)?;
                let start = extent.offset;
                let end = start.saturating_add(extent.len);
                if start < to && end > from {
                    let is_inside = start >= from && end <= to;
                    if matches!(extent.body, ExtentBody::Inline { .. }) && !is_inside {
                        return Err(item.corrupt("log cuts inline content", from));
                    }
                    let kept =
                        (start < from).then(|| cut(item.data, 0, from.saturating_sub(start)));
                    changes.push((item.key, kept));
                    if end > to {
                        let rest = cut(item.data, to.saturating_sub(start), end.saturating_sub(to));
                        changes.push((Key::new(number, item::EXTENT_DATA, to), Some(rest)));
                    }
                }
            }
            cursor.advance()?;
        }
        self.files.change(&changes)
    }

    /// Copies the checksums of the bytes from `from` to `to` from the log to the checksum tree.
    fn checksums(&mut self, from: u64, to: u64) -> Result<()> {
        let superblock = &self.volume.superblock;
        let (size, sector) = (
            to_u64(superblock.checksum.size()),
            u64::from(superblock.sectorsize),
        );
        // The bytes that the checksums of that many bytes take.
        let sums_before = |bytes: u64| {
            let sectors = bytes.checked_div(sector).unwrap_or(0);
            to_usize(sectors.saturating_mul(size))
        };
        let Some(checksums) = &mut self.checksums else {
            return Ok(());
        };
        let (first, last) = range(
            object::EXTENT_CSUM,
            item::EXTENT_CSUM,
            0,
            to.saturating_sub(1),
        );
        let key = Key::new(object::EXTENT_CSUM, item::EXTENT_CSUM, from);
        let mut cursor = self.log.range_back(self.volume, key, last)?;
        while let Some(item) = cursor.item() {
            if item.key >= first {
                let (start, end) = parse_item(&item, superblock)?;
                let (low, high) = (start.max(from), end.min(to));
                if low < high {
                    let bytes = |at: u64| sums_before(at.saturating_sub(start));
                    let sums = item.data.get(bytes(low)..bytes(high));
                    let sums = sums.unwrap_or_default();
                    // Items of the tree for the same bytes are replaced.
                    let mut changes: Vec<(Key, Option<Vec<u8>>)> = Vec::new();
                    let back = Key::new(object::EXTENT_CSUM, item::EXTENT_CSUM, low);
                    let end_key = Key::new(
                        object::EXTENT_CSUM,
                        item::EXTENT_CSUM,
                        high.saturating_sub(1),
                    );
                    let mut old = checksums.tree.range_back(self.volume, back, end_key)?;
                    while let Some(item) = old.item() {
                        if item.key.kind == item::EXTENT_CSUM {
                            let (start, end) = parse_item(&item, superblock)?;
                            let bytes = |at: u64| sums_before(at.saturating_sub(start));
                            if start < high && end > low {
                                let before = item.data.get(..bytes(low.max(start)));
                                let before = before.filter(|sums| !sums.is_empty());
                                changes.push((item.key, before.map(<[u8]>::to_vec)));
                                if end > high {
                                    let key = Key {
                                        offset: high,
                                        ..item.key
                                    };
                                    let after = item.data.get(bytes(high)..).unwrap_or_default();
                                    let after = after.to_vec();
                                    changes.push((key, Some(after)));
                                }
                            }
                        }
                        old.advance()?;
                    }
                    checksums.change(&changes)?;
                    checksums.put(back, sums)?;
                }
            }
            cursor.advance()?;
        }
        Ok(())
    }
}

/// The item of the part of an extent that begins `skip` bytes into it and has `len` bytes. The item
/// is that of an extent or a hole.
fn cut(data: &[u8], skip: u64, len: u64) -> Vec<u8> {
    let mut data = data.to_vec();
    if let Some(tail) = data.get_mut(HEAD_BYTES..)
        && let Ok(place) = raw::ExtentPlace::mut_from_bytes(tail)
    {
        if place.disk_bytenr.get() != 0 {
            place.offset = place.offset.get().saturating_add(skip).into();
        }
        place.num_bytes = len.into();
    }
    data
}
