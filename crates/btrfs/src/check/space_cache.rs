//! Checks the free space cache, version 1: a file in the root tree for each block group.
//!
//! Linux and `btrfs check` ignore a cache that is not of the last commit or whose pages have other
//! checksums, so it is not damage. One that they would trust must list exactly the space that no
//! extent occupies.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{Result, to_u64, to_usize};
use zerocopy::{FromBytes, IntoBytes};

use super::extents::BlockGroup;
use super::ranges::join;
use super::state::BtrfsChecker;
use crate::disk::checksum::ChecksumType;
use crate::disk::chunk::{Chunk, Profile};
use crate::disk::extent::{ExtentBody, FileExtent};
use crate::disk::flags::compat_ro;
use crate::disk::inode::StoredInode;
use crate::disk::key::{Key, Logical, item, object};
use crate::disk::raw;
use crate::disk::superblock::SUPERBLOCK_PLACES;

/// Bytes around a superblock that Linux keeps free: a stripe.
const SUPERBLOCK_ROOM: u64 = 64 << 10;

/// Most pages of a cache; the checksums of all must fit in the first page, so this is more than
/// Linux can use.
const PAGES_MAX: u64 = 1 << 14;

impl BtrfsChecker<'_> {
    /// Checks the cache of each block group, if Linux would use them.
    pub(super) fn space_caches(&mut self) -> Result<()> {
        let superblock = self.btrfs.superblock();
        let has_tree = superblock.compat_ro & compat_ro::FREE_SPACE_TREE != 0;
        if has_tree || superblock.cache_generation != superblock.generation.0 {
            return Ok(());
        }
        for group in self.extents.block_groups.clone() {
            let result = self.space_cache(&group);
            self.tolerate(object::ROOT_TREE, result)?;
        }
        Ok(())
    }

    fn space_cache(&mut self, group: &BlockGroup) -> Result<()> {
        let chunks = self.btrfs.chunks();
        let chunk = chunks.find(Logical(group.start));
        let Some(superblocks) = chunk.and_then(superblocks_in) else {
            return Ok(());
        };
        let Some(mut found) = self.cached_ranges(group)? else {
            return Ok(());
        };
        join(&mut found);
        let mut free = Vec::new();
        self.extents.free_in(group, &mut free);
        let mut wanted = Vec::new();
        for (mut from, to) in free {
            for &(start, end) in &superblocks {
                if start < to && end > from {
                    if start > from {
                        wanted.push((from, start));
                    }
                    from = end;
                }
            }
            if from < to {
                wanted.push((from, to));
            }
        }
        let total = |list: &[(u64, u64)]| {
            let lengths = list.iter().map(|range| range.1.saturating_sub(range.0));
            lengths.fold(0, u64::saturating_add)
        };
        // Linux does not use a cache with another total.
        if found != wanted && total(&found) == total(&wanted) {
            let differs = wanted.iter().zip(&found).find(|(a, b)| a != b);
            let at = differs.map_or(group.start, |(a, b)| a.0.min(b.0));
            self.corrupt(
                "free space cache is wrong",
                object::ROOT_TREE,
                at,
                to_u64(found.len()),
            )?;
        }
        Ok(())
    }

    /// The free ranges that a block group's cache lists, in its order; `None` if Linux would not
    /// use it.
    fn cached_ranges(&self, group: &BlockGroup) -> Result<Option<Vec<(u64, u64)>>> {
        let btrfs = self.btrfs;
        let (volume, roots) = (&btrfs.volume, &btrfs.roots);
        let key = Key::new(object::FREE_SPACE, 0, group.start);
        let header = roots.get(volume, key, |item| {
            raw::FreeSpaceHeader::read_from_bytes(item.data).map_err(|_| {
                let len = to_u64(item.data.len());
                item.corrupt("free space header's size is wrong", len)
            })
        })?;
        let Some(header) = header else {
            return Ok(None);
        };
        let number = header.location.objectid.get();
        let key = Key::new(number, item::INODE_ITEM, 0);
        let inode = roots.get(volume, key, |item| {
            StoredInode::parse(&item, &volume.superblock)
        })?;
        let of_header = |inode: &StoredInode| inode.generation.0 == header.generation.get();
        let Some(inode) = inode.filter(of_header) else {
            return Ok(None);
        };
        let page_bytes = u64::from(btrfs.superblock().sectorsize);
        let pages = inode.size.checked_div(page_bytes).unwrap_or(0);
        let sums_bytes = pages.saturating_mul(4);
        let head_bytes = sums_bytes.saturating_add(8);
        if pages == 0 || pages > PAGES_MAX || head_bytes > page_bytes {
            return Ok(None);
        }
        let Some(bytes) = self.cache_content(number, pages.saturating_mul(page_bytes))? else {
            return Ok(None);
        };
        // The checksums of all pages come first, then the generation, then entries; an entry is not
        // divided.
        let page = to_usize(page_bytes);
        let (sums, entries) = bytes.split_at(to_usize(sums_bytes));
        let mut skip = sums.len();
        for (content, sum) in bytes.chunks(page).zip(sums.chunks(4)) {
            let (_, content) = content.split_at(std::mem::take(&mut skip));
            if !ChecksumType::Crc32c.of(content).starts_with(sum) {
                return Ok(None);
            }
        }
        if !entries.starts_with(header.generation.as_bytes()) {
            return Ok(None);
        }
        let (mut ranges, mut bitmaps) = (Vec::new(), Vec::new());
        let mut at = to_usize(head_bytes);
        for _ in 0..header.num_entries.get() {
            let size = size_of::<raw::FreeSpaceEntry>();
            let page_end = at.checked_next_multiple_of(page).unwrap_or(usize::MAX);
            if at != page_end && at.saturating_add(size) > page_end {
                at = page_end;
            }
            let rest = bytes.get(at..).unwrap_or_default();
            let Ok((raw, _)) = raw::FreeSpaceEntry::ref_from_prefix(rest) else {
                return Ok(None);
            };
            at = at.saturating_add(size);
            let (start, len) = (raw.offset.get(), raw.bytes.get());
            match raw.kind {
                1 => match start.checked_add(len).filter(|_| len > 0) {
                    Some(end) => ranges.push((start, end)),
                    None => return Ok(None),
                },
                2 => bitmaps.push(start),
                _ => return Ok(None),
            }
        }
        let pages = bytes.chunks_exact(page);
        let mut pages = pages.skip(at.div_ceil(page));
        for start in bitmaps {
            let Some(bitmap) = pages.next() else {
                return Ok(None);
            };
            let covered = page_bytes.saturating_mul(8).saturating_mul(page_bytes);
            let Some(end) = start.checked_add(covered) else {
                return Ok(None);
            };
            let sectors = (start..end).step_by(page);
            for (bit, from) in sectors.enumerate() {
                let to = from.saturating_add(page_bytes);
                if bitmap
                    .get(bit / 8)
                    .is_some_and(|byte| byte >> (bit % 8) & 1 != 0)
                {
                    match ranges.last_mut() {
                        Some(last) if last.1 == from => last.1 = to,
                        _ => ranges.push((from, to)),
                    }
                }
            }
        }
        Ok(Some(ranges))
    }

    /// The first `len` bytes of an inode of the root tree; `None` if part of them is not stored.
    fn cache_content(&self, number: u64, len: u64) -> Result<Option<Vec<u8>>> {
        let btrfs = self.btrfs;
        let mut bytes = Vec::new();
        let key = Key::new(number, item::EXTENT_DATA, 0);
        let mut cursor = btrfs.roots.seek(&btrfs.volume, key)?;
        while let Some(item) = cursor.item_of(number, item::EXTENT_DATA) {
            let part = FileExtent::parse(&item, btrfs.superblock().sectorsize)?;
            let at = to_u64(bytes.len());
            let ExtentBody::Stored { extent, offset, .. } = part.body else {
                return Ok(None);
            };
            if part.offset != at || extent.compression.is_some() || at >= len {
                break;
            }
            let part_len = to_usize(part.len.min(len.saturating_sub(at)));
            bytes.resize(bytes.len().saturating_add(part_len), 0);
            let place = Logical(extent.at.0.saturating_add(offset)); // within the extent, whose end is checked
            let (_, dst) = bytes.split_at_mut(to_usize(at));
            (btrfs.volume.space).read_verified(place, dst, |_| Ok(()))?;
            cursor.advance()?;
        }
        Ok(Some(bytes).filter(|bytes| to_u64(bytes.len()) == len))
    }
}

/// The address ranges in a chunk that are kept free for superblocks; `None` if they are spread over
/// stripes.
fn superblocks_in(chunk: &Chunk) -> Option<Vec<(u64, u64)>> {
    let mut ranges = Vec::new();
    for stripe in &chunk.stripes {
        for place in SUPERBLOCK_PLACES {
            let offset = place.0.checked_sub(stripe.at.0);
            let Some(offset) = offset.filter(|&offset| offset < chunk.stripe_bytes()) else {
                continue;
            };
            match chunk.profile {
                Profile::Raid0 | Profile::Raid10 | Profile::Raid5 | Profile::Raid6 => return None,
                _ => {}
            }
            let start = chunk.start.0.saturating_add(offset);
            ranges.push((start, start.saturating_add(SUPERBLOCK_ROOM)));
        }
    }
    join(&mut ranges);
    Some(ranges)
}
