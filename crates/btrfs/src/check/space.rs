//! Checks space: block groups and chunks, device extents, free space.

use tree::{Result, to_u64};
use zerocopy::FromBytes;

use super::state::{BtrfsChecker, Note};
use crate::disk::chunk::Chunk;
use crate::disk::flags::{block_group, compat_ro};
use crate::disk::key::{Key, Logical, item, object};
use crate::disk::node::TreeItem;
use crate::disk::raw;
use crate::disk::subvolume::{TreeRoot, tree_of};
use crate::disk::tree::Tree;

/// The free space tree's description of a block group.
struct FreeSpace {
    start: u64,
    end: u64,
    /// Number of free extents.
    count: u32,
    /// Whether they are stored as bitmaps instead of items.
    has_bitmaps: bool,
}

impl BtrfsChecker<'_> {
    pub(super) fn space(&mut self, roots: &[TreeRoot]) -> Result<()> {
        self.block_groups()?;
        let find = |id| tree_of(roots, id);
        if let Some(tree) = find(object::DEV_TREE) {
            let result = self.device_extents(&tree);
            self.tolerate(tree.id, result)?;
        }
        let valid = compat_ro::FREE_SPACE_TREE | compat_ro::FREE_SPACE_TREE_VALID;
        if self.btrfs.superblock().compat_ro & valid == valid {
            match find(object::FREE_SPACE_TREE) {
                Some(tree) => {
                    let result = self.free_space(&tree);
                    self.tolerate(tree.id, result)?;
                }
                None => {
                    self.corrupt("free space tree is missing", object::FREE_SPACE_TREE, 0, 0)?;
                }
            }
        }
        self.space_caches()
    }

    /// Checks that each chunk has a block group, and that each block group records its used bytes
    /// correctly.
    fn block_groups(&mut self) -> Result<()> {
        let groups = self.extents.block_groups.clone();
        let chunks: &[Chunk] = self.btrfs.chunks().chunks();
        let mut total = 0;
        for group in &groups {
            let chunk = self.btrfs.chunks().find(Logical(group.start));
            let chunk = chunk.filter(|chunk| chunk.start.0 == group.start);
            if chunk.is_none_or(|chunk| (chunk.len, chunk.flags) != (group.len, group.flags)) {
                self.corrupt(
                    "block group is not its chunk's",
                    object::EXTENT_TREE,
                    group.start,
                    group.flags,
                )?;
            }
            let list = &self.extents.list;
            let first = list.partition_point(|extent| extent.at < group.start);
            let end = group.start.saturating_add(group.len);
            let within = list[first..].iter().take_while(|extent| extent.at < end);
            let used: u64 = within.clone().map(|extent| extent.len).sum();
            let is_cut = within.clone().any(|extent| extent.at + extent.len > end);
            let mixed = block_group::DATA | block_group::METADATA;
            let is_data_only = group.flags & mixed == block_group::DATA;
            let is_misplaced = group.flags & mixed != mixed
                && within
                    .clone()
                    .any(|extent| extent.is_tree_block == is_data_only);
            total += used;
            if used != group.used {
                self.corrupt(
                    "block group's used bytes are wrong",
                    object::EXTENT_TREE,
                    group.start,
                    group.used,
                )?;
            }
            if is_cut {
                self.corrupt(
                    "extent crosses the end of its block group",
                    object::EXTENT_TREE,
                    end,
                    0,
                )?;
            }
            if is_misplaced {
                self.corrupt(
                    "extent is in a block group of the wrong type",
                    object::EXTENT_TREE,
                    group.start,
                    group.flags,
                )?;
            }
        }
        for chunk in chunks {
            if groups
                .binary_search_by_key(&chunk.start.0, |group| group.start)
                .is_err()
            {
                self.corrupt(
                    "chunk has no block group",
                    object::CHUNK_TREE,
                    chunk.start.0,
                    chunk.flags,
                )?;
            }
        }
        let all: u64 = self.extents.list.iter().map(|extent| extent.len).sum();
        if all != total {
            self.corrupt(
                "extent lies in no block group",
                object::EXTENT_TREE,
                0,
                all - total.min(all),
            )?;
        }
        let used = self.btrfs.superblock().bytes_used;
        if used != all {
            self.corrupt("superblock's used bytes are wrong", 0, 0, used)?;
        }
        Ok(())
    }

    /// Checks that device extents match the chunks' stripes and do not overlap.
    fn device_extents(&mut self, tree: &Tree) -> Result<()> {
        let btrfs = self.btrfs;
        let mut wanted: Vec<(u64, u64, u64, u64)> = Vec::new();
        for chunk in btrfs.chunks().chunks() {
            let len = chunk.stripe_bytes();
            let stripes = chunk.stripes.iter();
            wanted.extend(stripes.map(|stripe| (stripe.device, stripe.at.0, len, chunk.start.0)));
        }
        wanted.sort_unstable();
        let mut found = Vec::new();
        let mut cursor = tree.seek(&btrfs.volume, Key::MIN)?;
        while let Some(item) = cursor.item() {
            if item.key.kind == item::DEV_EXTENT {
                let Ok(raw) = raw::DevExtent::ref_from_bytes(item.data) else {
                    return Err(
                        item.corrupt("device extent's size is wrong", to_u64(item.data.len()))
                    );
                };
                let chunk = (raw.chunk_tree.get(), raw.chunk_objectid.get());
                if chunk != (object::CHUNK_TREE, object::FIRST_CHUNK_TREE) {
                    let error = item.corrupt("device extent names no chunk", chunk.0);
                    self.found(tree.id, error)?;
                }
                let (device, at) = (item.key.objectid, item.key.offset);
                found.push((device, at, raw.length.get(), raw.chunk_offset.get()));
            }
            cursor.advance()?;
        }
        if wanted != found {
            let differs = wanted.iter().zip(&found).find(|(a, b)| a != b);
            let at = differs.map_or(to_u64(found.len()), |(a, _)| a.1);
            self.corrupt(
                "device extents are not the chunks'",
                tree.id,
                at,
                to_u64(found.len()),
            )?;
        }
        for pair in found.windows(2) {
            if pair[0].0 == pair[1].0 && pair[0].1.saturating_add(pair[0].2) > pair[1].1 {
                self.corrupt("device extents overlap", tree.id, pair[1].1, pair[0].0)?;
            }
        }
        for device in btrfs.devices() {
            let extents = found.iter().filter(|extent| extent.0 == device.id);
            let used: u64 = extents
                .clone()
                .map(|extent| extent.2)
                .fold(0, u64::saturating_add);
            let end = extents
                .map(|extent| extent.1.saturating_add(extent.2))
                .max()
                .unwrap_or(0);
            if used != device.bytes_used {
                self.corrupt(
                    "device's used bytes are wrong",
                    tree.id,
                    device.id,
                    device.bytes_used,
                )?;
            }
            if end > device.total_bytes {
                self.corrupt(
                    "device extent lies beyond its device",
                    tree.id,
                    end,
                    device.id,
                )?;
            }
        }
        Ok(())
    }

    /// Checks that the free space tree lists exactly the space that no extent occupies.
    fn free_space(&mut self, tree: &Tree) -> Result<()> {
        let btrfs = self.btrfs;
        let sector = u64::from(btrfs.superblock().sectorsize);
        let mut wanted: Vec<(u64, u64)> = Vec::new();
        for group in &self.extents.block_groups {
            self.extents.free_in(group, &mut wanted);
        }
        let mut found: Vec<(u64, u64)> = Vec::new();
        // The block group that the current items describe.
        let mut group: Option<FreeSpace> = None;
        let mut counted = 0;
        let (mut stale, mut stale_end) = (0, 0);
        let mut cursor = tree.seek(&btrfs.volume, Key::MIN)?;
        while let Some(item) = cursor.item() {
            let (start, len) = (item.key.objectid, item.key.offset);
            let end = start.checked_add(len);
            let Some(end) =
                end.filter(|_| start.is_multiple_of(sector) && len.is_multiple_of(sector))
            else {
                return Err(item.corrupt("free space is not made of sectors", start));
            };
            if item.key.kind == item::FREE_SPACE_INFO {
                self.free_space_count(group.as_ref(), counted)?;
                let Ok(raw) = raw::FreeSpaceInfo::ref_from_bytes(item.data) else {
                    return Err(
                        item.corrupt("free space info's size is wrong", to_u64(item.data.len()))
                    );
                };
                let groups = &self.extents.block_groups;
                let known = groups.binary_search_by_key(&start, |group| group.start);
                let is_stale = known.is_err() || known.is_ok_and(|index| groups[index].len != len);
                // Older versions of mkfs.btrfs leave items of deleted block groups, which is
                // harmless: Linux looks up the group at that address or after it.
                if is_stale && groups.last().is_none_or(|group| group.start < start) {
                    return Err(item.corrupt("free space info is of no block group", start));
                }
                let info = FreeSpace {
                    start,
                    end,
                    count: raw.extent_count.get(),
                    has_bitmaps: raw.flags.get() & raw::FREE_SPACE_BITMAPS != 0,
                };
                group = Some(info).filter(|_| !is_stale);
                stale_end = if is_stale { end } else { 0 };
                stale += u64::from(is_stale);
                counted = 0;
            } else if end > stale_end {
                let Some(group) = &group else {
                    return Err(item.corrupt("free space comes before its block group", start));
                };
                if start < group.start || end > group.end {
                    return Err(item.corrupt("free space lies in no block group", start));
                }
                if (item.key.kind == item::FREE_SPACE_BITMAP) != group.has_bitmaps {
                    return Err(
                        item.corrupt("free space is not in the form that its group says", start)
                    );
                }
                free_ranges(&item, sector, |from, to| match found.last_mut() {
                    Some(last) if last.1 == from && last.0 >= group.start && counted > 0 => {
                        last.1 = to;
                    }
                    _ => {
                        counted += 1;
                        found.push((from, to));
                    }
                })?;
            }
            cursor.advance()?;
        }
        self.free_space_count(group.as_ref(), counted)?;
        if stale > 0 {
            self.notes.push(Note::StaleFreeSpace(stale));
        }
        if wanted != found {
            let differs = wanted.iter().zip(&found).find(|(a, b)| a != b);
            let at = differs.map_or(0, |(a, b)| a.0.min(b.0));
            self.corrupt("free space tree is wrong", tree.id, at, to_u64(found.len()))?;
        }
        Ok(())
    }

    fn free_space_count(&mut self, group: Option<&FreeSpace>, counted: u32) -> Result<()> {
        match group {
            Some(group) if group.count != counted => self.corrupt(
                "block group's number of free extents is wrong",
                object::FREE_SPACE_TREE,
                group.start,
                group.count.into(),
            ),
            _ => Ok(()),
        }
    }
}

/// Calls `each` with the free ranges in an item.
fn free_ranges(item: &TreeItem<'_>, sector: u64, mut each: impl FnMut(u64, u64)) -> Result<()> {
    let (start, len) = (item.key.objectid, item.key.offset);
    match item.key.kind {
        item::FREE_SPACE_EXTENT if item.data.is_empty() => each(start, start + len),
        item::FREE_SPACE_BITMAP if to_u64(item.data.len()) == (len / sector).div_ceil(8) => {
            for bit in 0..len / sector {
                if item.data[(bit / 8) as usize] >> (bit % 8) & 1 != 0 {
                    let from = start + bit * sector;
                    each(from, from + sector);
                }
            }
        }
        other => {
            return Err(item.corrupt(
                "item in the free space tree is of an unexpected kind",
                other.into(),
            ));
        }
    }
    Ok(())
}
