//! Where the block groups of a new file system lie on its single device.
//!
//! Addresses derive from places on the device: a group's logical address is where its first copy
//! starts. Groups start after the first MiB, follow each other, and skip the places of superblocks,
//! so that nothing within a group is reserved.

use zerocopy::IntoBytes;

use crate::disk::chunk::STRIPE_BYTES;
use crate::disk::flags::block_group;
use crate::disk::key::object;
use crate::disk::raw;
use crate::disk::superblock::SUPERBLOCK_PLACES;

/// Size of a sector, the unit of data, in bytes.
pub(crate) const SECTOR_BYTES: usize = 4096;
/// Where the first group starts: Linux does not use the first MiB.
pub(crate) const GROUPS_BEGIN: u64 = 1 << 20;
/// Size of the largest group that is created, in bytes.
pub(crate) const GROUP_BYTES_MAX: u64 = 1 << 30;
/// The minimum size for a separate group in front of a superblock.
const GROUP_BYTES_MIN: u64 = 1 << 20;

/// A block group, and its chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewGroup {
    /// Its address.
    pub(crate) start: u64,
    /// Length in bytes, a multiple of 64 KiB.
    pub(crate) len: u64,
    /// Bits of [`block_group`].
    pub(crate) flags: u64,
    /// Bytes of extents, which lie at its start.
    pub(crate) used: u64,
    /// Where its copies start on the device.
    pub(crate) stripes: Vec<u64>,
}

/// The superblock place at or after `at`; `u64::MAX` after the last one.
pub(crate) fn next_reserved(at: u64) -> u64 {
    let mut places = SUPERBLOCK_PLACES.iter().map(|place| place.0);
    places
        .find(|&place| place + STRIPE_BYTES > at)
        .unwrap_or(u64::MAX)
}

/// Appends groups of this type, starting at `at` on the device, until they have room for `bytes`;
/// returns the end of the last group.
pub(crate) fn append_groups(
    groups: &mut Vec<NewGroup>,
    mut at: u64,
    bytes: u64,
    flags: u64,
) -> u64 {
    let copies = if flags & block_group::DUP != 0 { 2 } else { 1 };
    let mut left = bytes.next_multiple_of(STRIPE_BYTES);
    while left > 0 {
        let room = next_reserved(at).saturating_sub(at) / copies;
        let len = left.min(GROUP_BYTES_MAX).min(room - room % STRIPE_BYTES);
        if len < left.min(GROUP_BYTES_MIN) {
            at = next_reserved(at) + STRIPE_BYTES;
            continue;
        }
        groups.push(NewGroup {
            start: at,
            len,
            flags,
            used: 0,
            stripes: (0..copies).map(|copy| at + copy * len).collect(),
        });
        at += copies * len;
        left -= len;
    }
    at
}

/// How much space to leave free in a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Headroom {
    /// Nothing: the file system is for reading.
    None,
    /// Enough to mount it for writing, delete files and grow it, but not to add anything.
    Shrink,
    /// The free space that Linux needs before it adds anything.
    Change,
}

/// Tree blocks that Linux reserves for each inserted item: two for each of eight levels.
const INSERT_BLOCKS: u64 = 16;
/// Number of items for which it always reserves blocks, used only in distress (the global block
/// reserve).
const RESERVE_ITEMS: u64 = 22;
/// Maximum size of that reserve in bytes, however large the trees are.
const RESERVE_BYTES_MAX: u64 = 512 << 20;
/// Items for which it needs further blocks, so that a file can be created: measured, plus a few.
const CHANGE_ITEMS: u64 = 20;
/// Items for which it needs blocks to delete and commit: measured, plus a few.
const SHRINK_ITEMS: u64 = 16;
/// Bytes of data space that it needs before it writes anything, even inline content.
const CHANGE_DATA_BYTES: u64 = 1 << 20;
/// Tree blocks that it needs free before it changes the chunk tree: a device item and a new chunk,
/// each with the maximum number of levels, the latter twice.
const CHUNK_TREE_BLOCKS: u64 = 24;

impl Headroom {
    /// Bytes for the chunk tree, for other trees, and for data. `space_bytes` is the size of the
    /// trees that describe space: Linux reserves that much again.
    pub(crate) fn bytes(self, nodesize: u32, space_bytes: u64) -> [u64; 3] {
        let nodesize = u64::from(nodesize);
        let item = INSERT_BLOCKS * nodesize;
        match self {
            Headroom::None => [0; 3],
            Headroom::Shrink => [CHUNK_TREE_BLOCKS * nodesize, SHRINK_ITEMS * item, 0],
            Headroom::Change => {
                let reserve = (RESERVE_ITEMS * item).max(space_bytes.min(RESERVE_BYTES_MAX));
                [
                    CHUNK_TREE_BLOCKS * nodesize,
                    reserve + CHANGE_ITEMS * item,
                    CHANGE_DATA_BYTES,
                ]
            }
        }
    }
}

/// The layout of all groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupLayout {
    pub(crate) data: Vec<NewGroup>,
    pub(crate) system: Vec<NewGroup>,
    pub(crate) metadata: Vec<NewGroup>,
    /// The end of the last group.
    pub(crate) end: u64,
    /// Size of the file system in bytes.
    pub(crate) size: u64,
}

impl GroupLayout {
    pub(crate) fn groups(&self) -> [&[NewGroup]; 3] {
        [&self.data, &self.system, &self.metadata]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &NewGroup> {
        self.groups().into_iter().flatten()
    }

    /// Bytes of the device that groups occupy.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.all()
            .map(|group| group.len * group.stripes.len() as u64)
            .sum()
    }

    /// Bytes of the device that are in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.all()
            .map(|group| group.used * group.stripes.len() as u64)
            .sum()
    }
}

/// Makes room for more bytes after those of the last group, in that group or in a new one; returns
/// the end.
pub(crate) fn extend_data(groups: &mut Vec<NewGroup>, end: u64, bytes: u64) -> u64 {
    let bytes = bytes.next_multiple_of(STRIPE_BYTES);
    match groups.last_mut() {
        Some(last)
            if last.start + last.len == end
                && last.len + bytes <= GROUP_BYTES_MAX
                && end + bytes <= next_reserved(last.start) =>
        {
            last.len += bytes;
            end + bytes
        }
        _ => append_groups(groups, end, bytes, block_group::DATA),
    }
}

/// Gives groups of data a second copy each, starting at `at` on the device; returns the end of the
/// last one.
pub(crate) fn append_copies(groups: &mut [NewGroup], mut at: u64) -> u64 {
    for group in groups {
        while next_reserved(at) - at < group.len {
            at = next_reserved(at) + STRIPE_BYTES;
        }
        group.flags |= block_group::DUP;
        group.stripes.push(at);
        at += group.len;
    }
    at
}

impl NewGroup {
    /// The chunk item.
    pub(crate) fn emit_chunk(&self, sectorsize: u32, device_uuid: [u8; 16]) -> Vec<u8> {
        let chunk = raw::Chunk {
            length: self.len.into(),
            owner: object::EXTENT_TREE.into(),
            stripe_len: STRIPE_BYTES.into(),
            chunk_type: self.flags.into(),
            io_align: (STRIPE_BYTES as u32).into(),
            io_width: (STRIPE_BYTES as u32).into(),
            sector_size: sectorsize.into(),
            num_stripes: (self.stripes.len() as u16).into(),
            sub_stripes: 1.into(),
        };
        let mut item = chunk.as_bytes().to_vec();
        for &stripe in &self.stripes {
            let stripe = raw::Stripe {
                devid: 1.into(),
                offset: stripe.into(),
                dev_uuid: device_uuid,
            };
            item.extend(stripe.as_bytes());
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_leave_superblocks_out() {
        let mut groups = Vec::new();
        let flags = block_group::METADATA | block_group::DUP;
        let end = append_groups(&mut groups, GROUPS_BEGIN, 100 << 20, flags);
        let total: u64 = groups.iter().map(|group| group.len).sum();
        assert_eq!(total, 100 << 20);
        assert!(groups.len() > 1);
        let mut data = Vec::new();
        let end = append_groups(&mut data, end, 100 << 20, block_group::DATA);
        let end = append_copies(&mut data, end);
        assert!(data.iter().all(|group| group.stripes.len() == 2));
        groups.extend(data);
        let mut parts: Vec<(u64, u64)> = groups
            .iter()
            .flat_map(|group| group.stripes.iter().map(|&at| (at, at + group.len)))
            .collect();
        parts.sort_unstable();
        assert!(parts.is_sorted_by(|a, b| a.1 <= b.0));
        for (from, to) in parts {
            for place in SUPERBLOCK_PLACES {
                assert!(to <= place.0 || from >= place.0 + STRIPE_BYTES);
            }
            assert!(to <= end && from >= GROUPS_BEGIN);
        }
    }
}
