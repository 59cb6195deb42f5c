//! Where the block groups of a new file system lie on its devices.
//!
//! On a device, groups start after the first MiB, follow each other, and skip the places of
//! superblocks, so that nothing within a group is reserved. A group's logical address is where its
//! first copy starts, or else the end of the group before it: on one device, addresses are places.

use std::cmp::Reverse;

use zerocopy::IntoBytes;

use crate::disk::chunk::{Chunk, Profile, STRIPE_BYTES, Stripe};
use crate::disk::flags::block_group;
use crate::disk::key::{Logical, Physical, object};
use crate::disk::raw;
use crate::disk::superblock::SUPERBLOCK_PLACES;

/// Size of a sector, the unit of data, in bytes.
pub(crate) const SECTOR_BYTES: usize = 4096;
/// Where the first group starts: Linux does not use the first MiB.
pub(crate) const GROUPS_BEGIN: u64 = 1 << 20;
/// Size of the largest group that is created, in bytes.
const GROUP_BYTES_MAX: u64 = 1 << 30;
/// The minimum size for a separate group in front of a superblock.
const GROUP_BYTES_MIN: u64 = 1 << 20;
/// Devices that a striped group is spread over: several such groups fit into the superblock.
const STRIPES_MAX: usize = 16;

/// A block group, and its chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewGroup {
    /// Its addresses and places, without the UUIDs of devices, which follow from the content. The
    /// length is a multiple of [`row_bytes`].
    pub(crate) chunk: Chunk,
    /// Bytes of extents, which lie at its start.
    pub(crate) used: u64,
}

/// Bytes of the different stripes in a row.
fn row_bytes(profile: Profile, stripes: usize) -> u64 {
    profile.across(stripes as u64).unwrap_or(1) * STRIPE_BYTES
}

/// The superblock place at or after `at`; `u64::MAX` after the last one.
fn next_reserved(at: u64) -> u64 {
    let mut places = SUPERBLOCK_PLACES.iter().map(|place| place.0);
    places
        .find(|&place| place + STRIPE_BYTES > at)
        .unwrap_or(u64::MAX)
}

/// The first free address, and the first free place on each device.
#[derive(Clone, Debug)]
pub(crate) struct Frontier {
    address: u64,
    pub(crate) places: Vec<u64>,
}

/// How groups are spread over the devices.
#[derive(Clone, Debug)]
pub(crate) struct Spread {
    /// Bytes of each device that groups may take.
    sizes: Vec<u64>,
    /// Size of the largest group, in bytes.
    group_bytes_max: u64,
}

impl Spread {
    /// The size of each device; `None` if it is not known yet.
    pub(crate) fn new(sizes: &[Option<u64>]) -> Spread {
        let sizes: Vec<u64> = match sizes {
            // It has no other to go to.
            [_] => vec![u64::MAX],
            _ => sizes.iter().map(|size| size.unwrap_or(u64::MAX)).collect(),
        };
        // As in Linux, so that one kind of group does not fill a small device.
        let tenth = sizes
            .iter()
            .fold(0, |sum: u64, &size| sum.saturating_add(size))
            / 10;
        Spread {
            sizes,
            group_bytes_max: tenth.clamp(GROUP_BYTES_MIN, GROUP_BYTES_MAX),
        }
    }

    /// The free places behind these groups.
    pub(crate) fn behind(&self, groups: &[NewGroup]) -> Frontier {
        let mut frontier = Frontier {
            address: 0,
            places: vec![GROUPS_BEGIN; self.sizes.len()],
        };
        groups.iter().for_each(|group| frontier.pass(&group.chunk));
        frontier
    }

    /// The devices of the next group: as in Linux, those with the most space left.
    fn choose(&self, profile: Profile, frontier: &Frontier) -> Vec<usize> {
        let left = |device: &usize| self.sizes[*device].saturating_sub(frontier.places[*device]);
        let mut devices: Vec<usize> = (0..self.sizes.len()).collect();
        devices.sort_by_key(|device| Reverse(left(device)));
        let full = (devices.iter()).filter(|device| left(device) < GROUP_BYTES_MIN);
        let usable = (devices.len() - full.count()).min(STRIPES_MAX);
        let least = usize::from(profile.stripe_counts().0);
        devices.truncate(match profile {
            Profile::Dup => 1,
            Profile::Raid0 => usable.max(least),
            Profile::Raid10 => (usable / 2 * 2).max(least),
            _ => least,
        });
        devices.sort_unstable();
        devices
    }

    /// The end of the free bytes at a place on a device.
    fn limit(&self, stripe: &Stripe) -> u64 {
        let (at, size) = (stripe.at.0, self.sizes[stripe.device as usize - 1]);
        match next_reserved(at) {
            reserved if size > at => reserved.min(size),
            // The device is too small, which is found out at the end.
            reserved => reserved,
        }
    }

    /// The largest length that a chunk can have at its place, with `copies` on each of its devices.
    fn len_max(&self, chunk: &Chunk, copies: u64) -> u64 {
        let room = |stripe: &Stripe| self.limit(stripe).saturating_sub(stripe.at.0) / copies;
        let room = chunk.stripes.iter().map(room).min().unwrap_or(0);
        let row = row_bytes(chunk.profile, chunk.stripes.len());
        let len = (room / STRIPE_BYTES)
            .saturating_mul(row)
            .min(self.group_bytes_max);
        len - len % row
    }

    /// The bytes that can be added to a group of data.
    pub(crate) fn room(&self, group: &NewGroup) -> u64 {
        self.len_max(&group.chunk, 1) - group.used
    }

    /// A group of this type and profile, still without length, at a place that has `needed` bytes.
    /// A group with two copies on its device has one, and room for `copies`.
    fn open(
        &self,
        frontier: &mut Frontier,
        (flags, profile): (u64, Profile),
        copies: u64,
        needed: u64,
    ) -> NewGroup {
        loop {
            let stripes = self.choose(profile, frontier).into_iter();
            let stripes: Box<[Stripe]> = stripes
                .map(|device| Stripe {
                    device: device as u64 + 1,
                    device_uuid: [0; 16],
                    at: Physical(frontier.places[device]),
                })
                .collect();
            let chunk = Chunk {
                start: Logical(frontier.address.max(stripes[0].at.0)),
                len: 0,
                flags: flags | profile.flag(),
                profile,
                stripes,
            };
            let row = row_bytes(profile, chunk.stripes.len());
            let most = self.group_bytes_max - self.group_bytes_max % row;
            if self.len_max(&chunk, copies) >= needed.min(most) {
                return NewGroup { chunk, used: 0 };
            }
            let shortest = chunk.stripes.iter();
            let shortest = shortest.min_by_key(|it| self.limit(it).saturating_sub(it.at.0));
            let shortest = shortest.expect("every profile has a stripe");
            frontier.places[shortest.device as usize - 1] = self.limit(shortest) + STRIPE_BYTES;
        }
    }

    /// A group of data behind others, at a place that has `needed` bytes.
    pub(crate) fn open_data(&self, groups: &[NewGroup], profile: Profile, needed: u64) -> NewGroup {
        let kind = (block_group::DATA, profile);
        self.open(&mut self.behind(groups), kind, 1, needed)
    }

    /// Appends groups of this type and profile until they have room for `bytes`. Of two copies on
    /// one device, the second one follows the first one, except for data.
    pub(crate) fn append(
        &self,
        groups: &mut Vec<NewGroup>,
        frontier: &mut Frontier,
        (flags, profile): (u64, Profile),
        bytes: u64,
    ) {
        let is_pair = profile == Profile::Dup && flags != block_group::DATA;
        let copies = if is_pair { 2 } else { 1 };
        let mut left = bytes;
        while left > 0 {
            let needed = left.min(GROUP_BYTES_MIN);
            let mut group = self.open(frontier, (flags, profile), copies, needed);
            let chunk = &mut group.chunk;
            let row = row_bytes(profile, chunk.stripes.len());
            chunk.len = (left.next_multiple_of(row)).min(self.len_max(chunk, copies));
            left = left.saturating_sub(chunk.len);
            if is_pair {
                let behind = chunk.stripes[0].at.0 + chunk.len;
                group.add_copy(behind);
            }
            frontier.pass(&group.chunk);
            groups.push(group);
        }
    }

    /// Makes room for more bytes of data behind those of the last group, in that group or in a new
    /// one; then gives groups with two copies on one device the second one.
    pub(crate) fn finish_data(
        &self,
        groups: &mut Vec<NewGroup>,
        profile: Profile,
        bytes: u64,
    ) -> Frontier {
        let mut left = bytes.next_multiple_of(STRIPE_BYTES);
        if let Some(last) = groups.last_mut() {
            let row = row_bytes(profile, last.chunk.stripes.len());
            let len = last.chunk.len + left.next_multiple_of(row);
            if len <= self.len_max(&last.chunk, 1) {
                (last.chunk.len, left) = (len, 0);
            }
        }
        let mut frontier = self.behind(groups);
        self.append(groups, &mut frontier, (block_group::DATA, profile), left);
        for group in groups.iter_mut().filter(|_| profile == Profile::Dup) {
            let device = group.chunk.stripes[0].device;
            let place = &mut frontier.places[device as usize - 1];
            while next_reserved(*place) - *place < group.chunk.len {
                *place = next_reserved(*place) + STRIPE_BYTES;
            }
            group.add_copy(*place);
            *place += group.chunk.len;
        }
        frontier
    }
}

impl Frontier {
    /// Goes behind a chunk.
    fn pass(&mut self, chunk: &Chunk) {
        self.address = self.address.max(chunk.end().0);
        for stripe in &chunk.stripes {
            let place = &mut self.places[stripe.device as usize - 1];
            *place = (*place).max(stripe.at.0 + chunk.stripe_bytes());
        }
    }
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
    /// The end of the last group on each device.
    pub(crate) ends: Vec<u64>,
    /// Bytes of each device that the file system takes.
    pub(crate) sizes: Vec<u64>,
}

impl GroupLayout {
    pub(crate) fn groups(&self) -> [&[NewGroup]; 3] {
        [&self.data, &self.system, &self.metadata]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &NewGroup> {
        self.groups().into_iter().flatten()
    }

    /// The parts of groups on devices: the device, the place there, and the group.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u64, u64, &NewGroup)> {
        self.all().flat_map(|group| {
            let stripes = group.chunk.stripes.iter();
            stripes.map(move |stripe| (stripe.device, stripe.at.0, group))
        })
    }

    /// Bytes of all devices that groups occupy.
    pub(crate) fn device_bytes(&self) -> u64 {
        self.parts().map(|part| part.2.chunk.stripe_bytes()).sum()
    }

    /// Bytes of all devices that are in use.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.all()
            .map(|group| group.used * group.chunk.copies() as u64)
            .sum()
    }
}

impl NewGroup {
    /// Its address.
    pub(crate) fn start(&self) -> u64 {
        self.chunk.start.0
    }

    /// Sets the bytes in use, and the length of a group that grows with them.
    pub(crate) fn fill(&mut self, used: u64) {
        self.used = used;
        let row = row_bytes(self.chunk.profile, self.chunk.stripes.len());
        self.chunk.len = used.next_multiple_of(row);
    }

    /// Gives it a second copy on its only device.
    fn add_copy(&mut self, at: u64) {
        let first = self.chunk.stripes[0];
        let at = Physical(at);
        self.chunk.stripes = [first, Stripe { at, ..first }].into();
    }

    /// The chunk item.
    pub(crate) fn emit_chunk(&self, sectorsize: u32, device_uuids: &[[u8; 16]]) -> Vec<u8> {
        let stripes = &self.chunk.stripes;
        let chunk = raw::Chunk {
            length: self.chunk.len.into(),
            owner: object::EXTENT_TREE.into(),
            stripe_len: STRIPE_BYTES.into(),
            chunk_type: self.chunk.flags.into(),
            io_align: (STRIPE_BYTES as u32).into(),
            io_width: (STRIPE_BYTES as u32).into(),
            sector_size: sectorsize.into(),
            num_stripes: (stripes.len() as u16).into(),
            sub_stripes: if self.chunk.profile == Profile::Raid10 {
                2
            } else {
                1
            }
            .into(),
        };
        let mut item = chunk.as_bytes().to_vec();
        for stripe in stripes {
            let stripe = raw::Stripe {
                devid: stripe.device.into(),
                offset: stripe.at.0.into(),
                dev_uuid: device_uuids[stripe.device as usize - 1],
            };
            item.extend(stripe.as_bytes());
        }
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of groups of data, system and metadata, by device.
    fn parts(
        sizes: &[Option<u64>],
        data: Profile,
        metadata: Profile,
        bytes: u64,
    ) -> (GroupLayout, Vec<u64>) {
        let spread = Spread::new(sizes);
        let mut layout = GroupLayout::default();
        let mut group = spread.open_data(&[], data, SECTOR_BYTES as u64);
        group.fill(spread.room(&group).min(bytes));
        layout.data.push(group);
        let left = bytes - layout.data[0].used;
        let mut frontier = spread.finish_data(&mut layout.data, data, left);
        for (groups, flags, bytes) in [
            (&mut layout.system, block_group::SYSTEM, 1 << 20),
            (&mut layout.metadata, block_group::METADATA, bytes),
        ] {
            spread.append(groups, &mut frontier, (flags, metadata), bytes);
        }
        (layout, frontier.places)
    }

    #[test]
    fn groups_leave_superblocks_out_and_fill_devices_evenly() {
        let free = [None; 5];
        let small = [300, 200, 100].map(|size| Some(size << 20));
        for (sizes, data, metadata) in [
            (&free[..1], Profile::Dup, Profile::Dup),
            (&free[..1], Profile::Single, Profile::Dup),
            (&free[..2], Profile::Raid0, Profile::Raid1),
            (&free[..3], Profile::Raid1, Profile::Raid1),
            (&free[..3], Profile::Raid0, Profile::Raid1c3),
            (&free[..5], Profile::Raid10, Profile::Raid1c4),
            (&free[..5], Profile::Dup, Profile::Single),
            (&small[..], Profile::Raid1, Profile::Raid1),
            (&small[..2], Profile::Single, Profile::Raid1),
        ] {
            let words = format!("{} {}", data.name(), metadata.name());
            let (layout, places) = parts(sizes, data, metadata, 100 << 20);
            for (profile, groups) in [(data, &layout.data), (metadata, &layout.metadata)] {
                let total: u64 = groups.iter().map(|group| group.chunk.len).sum();
                assert!((100 << 20..101 << 20).contains(&total), "{words}: {total}");
                let is_whole = |group: &NewGroup| {
                    let row = row_bytes(profile, group.chunk.stripes.len());
                    group.chunk.len.is_multiple_of(row)
                };
                assert!(groups.iter().all(is_whole), "{words}");
            }
            assert!(
                (layout.all()).is_sorted_by(|a, b| a.chunk.end() <= b.chunk.start),
                "{words}"
            );
            let mut parts: Vec<(u64, u64, u64)> = (layout.parts())
                .map(|(device, at, group)| (device, at, at + group.chunk.stripe_bytes()))
                .collect();
            parts.sort_unstable();
            assert!(
                parts.is_sorted_by(|a, b| a.0 < b.0 || a.2 <= b.1),
                "{words}"
            );
            for (device, from, to) in parts {
                for place in SUPERBLOCK_PLACES {
                    assert!(to <= place.0 || from >= place.0 + STRIPE_BYTES, "{words}");
                }
                let index = device as usize - 1;
                assert!(from >= GROUPS_BEGIN && to <= places[index], "{words}");
                assert!(to <= sizes[index].unwrap_or(u64::MAX), "{words}");
            }
        }
    }
}
