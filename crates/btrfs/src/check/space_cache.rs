//! Checks the free space cache, version 1: a file in the root tree for each block group.
//!
//! Linux and `btrfs check` ignore a cache that is not of the last commit or whose pages have other checksums, so it is no
//! damage. One that they would trust must list what no extent occupies.

use tree::Result;
use zerocopy::{FromBytes, IntoBytes};

use super::extents::BlockGroup;
use super::log::join;
use super::state::{Check, wrong};
use crate::checksum::ChecksumType;
use crate::chunk::{Chunk, Profile};
use crate::extent::{Body, FileExtent};
use crate::flags::compat_ro;
use crate::inode::Inode;
use crate::key::{Key, Logical, item, object};
use crate::raw;
use crate::superblock::SUPERBLOCK_PLACES;

/// Bytes around a superblock that Linux keeps free: a stripe.
const SUPERBLOCK_ROOM: u64 = 64 << 10;

/// Most pages of a cache; the checksums of all must fit in the first page, so this is more than Linux can use.
const PAGES_MAX: u64 = 1 << 14;

impl Check<'_> {
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
            let lengths = list.iter().map(|range| range.1 - range.0);
            lengths.fold(0, u64::saturating_add)
        };
        // Linux does not use a cache with another total.
        if found != wanted && total(&found) == total(&wanted) {
            let differs = wanted.iter().zip(&found).find(|(a, b)| a != b);
            let at = differs.map_or(group.start, |(a, b)| a.0.min(b.0));
            let what = wrong("free space cache is wrong", Logical(at), found.len() as u64);
            self.corrupt(object::ROOT_TREE, what)?;
        }
        Ok(())
    }

    /// The free ranges that a block group's cache lists, in its order; `None` if Linux would not use it.
    fn cached_ranges(&self, group: &BlockGroup) -> Result<Option<Vec<(u64, u64)>>> {
        let btrfs = self.btrfs;
        let (volume, roots) = (&btrfs.volume, &btrfs.roots);
        let key = Key::new(object::FREE_SPACE, 0, group.start);
        let cursor = roots.find(volume, key)?;
        let Some(item) = cursor.as_ref().and_then(crate::tree::Cursor::item) else {
            return Ok(None);
        };
        let Ok(header) = raw::FreeSpaceHeader::ref_from_bytes(item.data) else {
            let len = item.data.len() as u64;
            return Err(item.corrupt("free space header's size is wrong", len));
        };
        let number = header.location.objectid.get();
        let cursor = roots.find(volume, Key::new(number, item::INODE_ITEM, 0))?;
        let Some(item) = cursor.as_ref().and_then(crate::tree::Cursor::item) else {
            return Ok(None);
        };
        let inode = Inode::parse(&item, btrfs.superblock())?;
        if inode.generation.0 != header.generation.get() {
            return Ok(None);
        }
        let page_bytes = u64::from(btrfs.superblock().sectorsize);
        let pages = inode.size / page_bytes;
        let head_bytes = pages * 4 + 8;
        if pages == 0 || pages > PAGES_MAX || head_bytes > page_bytes {
            return Ok(None);
        }
        let Some(bytes) = self.cache_content(number, pages * page_bytes)? else {
            return Ok(None);
        };
        // The checksums of all pages come first, then the generation, then entries; an entry is not divided.
        let page = page_bytes as usize;
        let sums = bytes[..pages as usize * 4].chunks(4);
        for (index, (content, sum)) in bytes.chunks(page).zip(sums).enumerate() {
            let skip = if index == 0 { pages as usize * 4 } else { 0 };
            if ChecksumType::Crc32c.of(&content[skip..])[..4] != *sum {
                return Ok(None);
            }
        }
        let generation = &bytes[pages as usize * 4..head_bytes as usize];
        if generation != header.generation.as_bytes() {
            return Ok(None);
        }
        let (mut ranges, mut bitmaps) = (Vec::new(), Vec::new());
        let mut at = head_bytes as usize;
        for _ in 0..header.num_entries.get() {
            let size = size_of::<raw::FreeSpaceEntry>();
            if at % page + size > page {
                at = at.next_multiple_of(page);
            }
            let Some(raw) = bytes.get(at..at + size) else {
                return Ok(None);
            };
            let raw = raw::FreeSpaceEntry::ref_from_bytes(raw).expect("it has that size");
            at += size;
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
        at = at.next_multiple_of(page);
        for start in bitmaps {
            let Some(bitmap) = bytes.get(at..at + page) else {
                return Ok(None);
            };
            at += page;
            let Some(end) = start.checked_add(page_bytes * 8 * page_bytes) else {
                return Ok(None);
            };
            let sectors = (start..end).step_by(page);
            for (bit, from) in sectors.enumerate() {
                if bitmap[bit / 8] >> (bit % 8) & 1 != 0 {
                    match ranges.last_mut() {
                        Some(last) if last.1 == from => last.1 += page_bytes,
                        _ => ranges.push((from, from + page_bytes)),
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
            let at = bytes.len() as u64;
            let Body::Stored { extent, offset, .. } = part.body else {
                return Ok(None);
            };
            if part.offset != at || extent.compression.is_some() || at >= len {
                break;
            }
            let part_len = part.len.min(len - at) as usize;
            bytes.resize(bytes.len() + part_len, 0);
            let place = Logical(extent.at.0 + offset); // within the extent, whose end is checked
            let dst = &mut bytes[at as usize..];
            (btrfs.volume.space).read_verified(place, dst, |_| Ok(()))?;
            cursor.advance()?;
        }
        Ok(Some(bytes).filter(|bytes| bytes.len() as u64 == len))
    }
}

/// The address ranges in a chunk that are kept free for superblocks; `None` if they are spread over stripes.
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
            let start = chunk.start.0 + offset;
            ranges.push((start, start.saturating_add(SUPERBLOCK_ROOM)));
        }
    }
    join(&mut ranges);
    Some(ranges)
}
