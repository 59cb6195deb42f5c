//! Chunks: the map from logical addresses to devices.

use tree::{Error, Result, to_u64, to_usize};
use zerocopy::FromBytes;

use crate::disk::flags::{block_group, incompat};
use crate::disk::key::{Key, Logical, Physical, item, object};
use crate::disk::raw;

/// Size of a stripe in bytes, the only one that Linux supports.
pub const STRIPE_BYTES: u64 = 64 << 10;

/// How a chunk's data is spread over devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Profile {
    /// One copy.
    Single,
    /// Two copies on one device.
    Dup,
    /// Striped over all devices.
    Raid0,
    /// Copies on two devices.
    Raid1,
    /// Copies on three devices.
    Raid1c3,
    /// Copies on four devices.
    Raid1c4,
    /// Striped over pairs of devices.
    Raid10,
    /// Striped with one parity.
    Raid5,
    /// Striped with two parities.
    Raid6,
}

impl Profile {
    /// All profiles.
    pub const ALL: [Profile; 9] = [
        Profile::Single,
        Profile::Dup,
        Profile::Raid0,
        Profile::Raid1,
        Profile::Raid1c3,
        Profile::Raid1c4,
        Profile::Raid10,
        Profile::Raid5,
        Profile::Raid6,
    ];

    /// The profile for these [`block_group`] flags; `None` if more than one is set.
    pub const fn from_flags(flags: u64) -> Option<Profile> {
        Some(match flags & block_group::PROFILE_MASK {
            0 => Profile::Single,
            block_group::DUP => Profile::Dup,
            block_group::RAID0 => Profile::Raid0,
            block_group::RAID1 => Profile::Raid1,
            block_group::RAID1C3 => Profile::Raid1c3,
            block_group::RAID1C4 => Profile::Raid1c4,
            block_group::RAID10 => Profile::Raid10,
            block_group::RAID5 => Profile::Raid5,
            block_group::RAID6 => Profile::Raid6,
            _ => return None,
        })
    }

    /// Its [`block_group`] flag.
    pub(crate) const fn flag(self) -> u64 {
        match self {
            Profile::Single => 0,
            Profile::Dup => block_group::DUP,
            Profile::Raid0 => block_group::RAID0,
            Profile::Raid1 => block_group::RAID1,
            Profile::Raid1c3 => block_group::RAID1C3,
            Profile::Raid1c4 => block_group::RAID1C4,
            Profile::Raid10 => block_group::RAID10,
            Profile::Raid5 => block_group::RAID5,
            Profile::Raid6 => block_group::RAID6,
        }
    }

    /// Its name, as in `mkfs.btrfs`.
    pub const fn name(self) -> &'static str {
        match self {
            Profile::Single => "single",
            Profile::Dup => "dup",
            Profile::Raid0 => "raid0",
            Profile::Raid1 => "raid1",
            Profile::Raid1c3 => "raid1c3",
            Profile::Raid1c4 => "raid1c4",
            Profile::Raid10 => "raid10",
            Profile::Raid5 => "raid5",
            Profile::Raid6 => "raid6",
        }
    }

    /// The minimum and maximum number of stripes of a chunk with this profile.
    pub(crate) const fn stripe_counts(self) -> (u16, u16) {
        match self {
            Profile::Single => (1, 1),
            Profile::Dup | Profile::Raid1 => (2, 2),
            Profile::Raid1c3 => (3, 3),
            Profile::Raid1c4 => (4, 4),
            Profile::Raid0 => (1, u16::MAX),
            Profile::Raid10 | Profile::Raid5 => (2, u16::MAX),
            Profile::Raid6 => (3, u16::MAX),
        }
    }
}

/// A validated chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Its first address.
    pub start: Logical,
    /// Length of its address range; its end does not overflow.
    pub len: u64,
    /// Bits of [`block_group`].
    pub flags: u64,
    /// How its data is spread over devices.
    pub profile: Profile,
    /// Its parts on devices.
    pub stripes: Box<[Stripe]>,
}

/// The part of a chunk on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// The device's ID.
    pub device: u64,
    /// The device's own UUID.
    pub device_uuid: [u8; 16],
    /// Where the part starts on the device; its end does not overflow.
    pub at: Physical,
}

/// A range on a device: how many of the requested bytes are contiguous there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StripeRange {
    /// The index of the stripe in its chunk.
    pub(crate) stripe: usize,
    pub(crate) device: u64,
    pub(crate) at: Physical,
    pub(crate) len: u64,
}

impl Chunk {
    /// Parses the chunk item with this key. `at` is the position of the item.
    pub(crate) fn parse(
        key: Key,
        data: &[u8],
        at: u64,
        sectorsize: u32,
        incompat: u64,
    ) -> Result<Chunk> {
        let corrupt = |what, got| Error::corrupt(what, at, got);
        if (key.objectid, key.kind) != (object::FIRST_CHUNK_TREE, item::CHUNK_ITEM) {
            return Err(corrupt("chunk has the wrong key", key.objectid));
        }
        let Ok((raw, stripes)) = raw::Chunk::ref_from_prefix(data) else {
            return Err(corrupt("chunk item is too short", to_u64(data.len())));
        };
        let count = raw.num_stripes.get();
        let stripes = <[raw::Stripe]>::ref_from_bytes(stripes).ok();
        let Some(stripes) = stripes.filter(|list| list.len() == usize::from(count) && count > 0)
        else {
            return Err(corrupt(
                "chunk's stripes do not fill its item",
                count.into(),
            ));
        };
        let (start, len) = (key.offset, raw.length.get());
        let sector = u64::from(sectorsize);
        if !start.is_multiple_of(sector) {
            return Err(corrupt("chunk begins within a sector", start));
        }
        if raw.sector_size.get() != sectorsize {
            let found = raw.sector_size.get();
            return Err(corrupt("chunk has the wrong sector size", found.into()));
        }
        if len == 0 || !len.is_multiple_of(sector) || start.checked_add(len).is_none() {
            return Err(corrupt("chunk's length is impossible", len));
        }
        if raw.stripe_len.get() != STRIPE_BYTES {
            return Err(corrupt(
                "chunk's stripe length is not 64 KiB",
                raw.stripe_len.get(),
            ));
        }
        let flags = raw.chunk_type.get();
        if flags & !(block_group::TYPE_MASK | block_group::PROFILE_MASK) != 0 {
            return Err(corrupt("chunk's type has unknown bits", flags));
        }
        let Some(profile) = Profile::from_flags(flags) else {
            return Err(corrupt("chunk has more than one profile", flags));
        };
        let mixed = block_group::DATA | block_group::METADATA;
        let is_mixed_allowed = incompat & incompat::MIXED_GROUPS != 0;
        match flags & block_group::TYPE_MASK {
            block_group::SYSTEM => {}
            block_group::DATA | block_group::METADATA if !is_mixed_allowed => {}
            both if both == mixed && is_mixed_allowed => {}
            _ => return Err(corrupt("chunk's type is impossible", flags)),
        }
        let (fewest, most) = profile.stripe_counts();
        if !(fewest..=most).contains(&count) {
            return Err(corrupt(
                "chunk's profile has the wrong number of stripes",
                count.into(),
            ));
        }
        if profile == Profile::Raid10 && (raw.sub_stripes.get() != 2 || count % 2 != 0) {
            let found = raw.sub_stripes.get();
            return Err(corrupt(
                "chunk's mirrored stripes are not in pairs",
                found.into(),
            ));
        }
        let part = part_len(profile, len, count.into());
        let stripes = stripes.iter().map(|stripe| {
            let at = stripe.offset.get();
            if at.checked_add(part).is_none() {
                return Err(corrupt("chunk's stripe lies beyond every device", at));
            }
            Ok(Stripe {
                device: stripe.devid.get(),
                device_uuid: stripe.dev_uuid,
                at: Physical(at),
            })
        });
        Ok(Chunk {
            start: Logical(start),
            len,
            flags,
            profile,
            stripes: stripes.collect::<Result<_>>()?,
        })
    }

    /// The end of its address range.
    pub fn end(&self) -> Logical {
        Logical(self.start.0.saturating_add(self.len)) // checked when parsed
    }

    /// Bytes that it occupies on each of its devices.
    pub fn stripe_bytes(&self) -> u64 {
        part_len(self.profile, self.len, to_u64(self.stripes.len()))
    }

    /// The number of copies of each byte that can be read directly.
    pub fn copies(&self) -> usize {
        match self.profile {
            Profile::Single | Profile::Raid0 | Profile::Raid5 | Profile::Raid6 => 1,
            Profile::Raid10 => 2,
            Profile::Dup | Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => {
                self.stripes.len()
            }
        }
    }

    /// The place of the bytes starting at `logical`, which lies in this chunk, in this copy: up to
    /// the next stripe, at most `len` bytes.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        reason = "`parse` checked the number of stripes and their ends"
    )]
    pub(crate) fn place(&self, logical: Logical, len: u64, copy: usize) -> StripeRange {
        let count = to_u64(self.stripes.len());
        let offset = logical.0 - self.start.0;
        let len = len.min(self.len - offset);
        let (stripe_nr, within) = (offset / STRIPE_BYTES, offset % STRIPE_BYTES);
        let (index, row) = match self.profile {
            Profile::Single
            | Profile::Dup
            | Profile::Raid1
            | Profile::Raid1c3
            | Profile::Raid1c4 => {
                let stripe = self.stripes[copy];
                return StripeRange {
                    stripe: copy,
                    device: stripe.device,
                    at: Physical(stripe.at.0 + offset),
                    len,
                };
            }
            Profile::Raid0 => (stripe_nr % count, stripe_nr / count),
            Profile::Raid10 => {
                let pairs = count / 2;
                (stripe_nr % pairs * 2 + to_u64(copy), stripe_nr / pairs)
            }
            // The parities rotate by one device with each row.
            Profile::Raid5 | Profile::Raid6 => {
                let data = count - self.profile.parities();
                let row = stripe_nr / data;
                ((stripe_nr % data + row) % count, row)
            }
        };
        let index = to_usize(index);
        let stripe = self.stripes[index];
        StripeRange {
            stripe: index,
            device: stripe.device,
            at: Physical(stripe.at.0 + row * STRIPE_BYTES + within),
            len: len.min(STRIPE_BYTES - within),
        }
    }

    /// The stripes of a row that hold data.
    pub(crate) fn data_stripes(&self) -> usize {
        (self.stripes.len()).saturating_sub(to_usize(self.profile.parities()))
    }

    /// The place of a stripe in the row that contains an address: first there are the stripes of
    /// data, behind them the parities.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "`parse` checked that there are more stripes than parities"
    )]
    pub(crate) fn place_in_row(&self, stripe: usize, logical: Logical) -> usize {
        let count = to_u64(self.stripes.len());
        let row = (logical.0 - self.start.0) / STRIPE_BYTES / to_u64(self.data_stripes());
        to_usize((to_u64(stripe) + count - row % count) % count)
    }
}

impl Profile {
    /// Number of stripes of a row that hold parity.
    pub(crate) const fn parities(self) -> u64 {
        match self {
            Profile::Raid5 => 1,
            Profile::Raid6 => 2,
            _ => 0,
        }
    }

    /// The number of different stripes of data in a row of a striped chunk with this many stripes;
    /// `None` if the profile is not striped.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "each profile has its fewest stripes; see `stripe_counts`"
    )]
    pub(crate) const fn across(self, stripes: u64) -> Option<u64> {
        match self {
            Profile::Raid0 => Some(stripes),
            Profile::Raid10 => Some(stripes / 2),
            Profile::Raid5 | Profile::Raid6 => Some(stripes - self.parities()),
            _ => None,
        }
    }
}

/// Bytes that a chunk occupies on each of its devices, rounded up to whole stripes if it is
/// striped.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the sum is that of the stripes, which end on a device"
)]
fn part_len(profile: Profile, len: u64, stripes: u64) -> u64 {
    match profile.across(stripes) {
        Some(across) => len.div_ceil(STRIPE_BYTES).div_ceil(across) * STRIPE_BYTES,
        None => len,
    }
}

/// Parses the keys and chunks in a superblock. `at` is their position.
pub(crate) fn parse_system_chunks(
    mut array: &[u8],
    at: u64,
    sectorsize: u32,
    incompat: u64,
) -> Result<Vec<Chunk>> {
    let whole = array.len();
    let mut chunks: Vec<Chunk> = Vec::new();
    while !array.is_empty() {
        let parsed = whole.saturating_sub(array.len());
        let at = at.saturating_add(to_u64(parsed));
        let corrupt = |what, got| Error::corrupt(what, at, got);
        let cut = || corrupt("system chunk is cut off", to_u64(array.len()));
        let (key, rest) = raw::DiskKey::ref_from_prefix(array).map_err(|_| cut())?;
        let (raw, _) = raw::Chunk::ref_from_prefix(rest).map_err(|_| cut())?;
        let stripes = usize::from(raw.num_stripes.get()).saturating_mul(size_of::<raw::Stripe>());
        let len = size_of::<raw::Chunk>().saturating_add(stripes);
        let (data, rest) = rest.split_at_checked(len).ok_or_else(cut)?;
        let chunk = Chunk::parse(Key::parse(key), data, at, sectorsize, incompat)?;
        if chunk.flags & block_group::SYSTEM == 0 {
            return Err(corrupt(
                "chunk in the superblock is not a system chunk",
                chunk.flags,
            ));
        }
        chunks.push(chunk);
        array = rest;
    }
    Ok(chunks)
}

/// All chunks of a file system, in ascending order, without overlap.
#[derive(Clone, Debug, Default)]
pub struct ChunkMap {
    chunks: Vec<Chunk>,
}

impl ChunkMap {
    /// Adds a chunk. An exact duplicate is ignored. `at` is the position of the item.
    ///
    /// # Errors
    /// Fails if it overlaps another chunk.
    pub(crate) fn add(&mut self, chunk: Chunk, at: u64) -> Result<()> {
        let index = self
            .chunks
            .partition_point(|other| other.end() <= chunk.start);
        match self.chunks.get(index) {
            Some(other) if *other == chunk => {}
            Some(other) if other.start < chunk.end() => {
                return Err(Error::corrupt("chunks overlap", at, chunk.start.0));
            }
            _ => self.chunks.insert(index, chunk),
        }
        Ok(())
    }

    /// The chunk that contains an address.
    pub fn find(&self, logical: Logical) -> Option<&Chunk> {
        let index = self.chunks.partition_point(|chunk| chunk.end() <= logical);
        self.chunks
            .get(index)
            .filter(|chunk| chunk.start <= logical)
    }

    /// All chunks, in ascending order.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(profile: u64, stripes: usize) -> Chunk {
        Chunk {
            start: Logical(1 << 20),
            len: 6 * STRIPE_BYTES,
            flags: block_group::DATA | profile,
            profile: Profile::from_flags(profile).unwrap(),
            stripes: (0..stripes as u64)
                .map(|device| Stripe {
                    device,
                    device_uuid: [0; 16],
                    at: Physical(device << 32),
                })
                .collect(),
        }
    }

    /// Device and offset on it for each stripe of the chunk.
    fn layout(chunk: &Chunk, copy: usize) -> Vec<(u64, u64)> {
        (0..6)
            .map(|n| {
                let logical = Logical(chunk.start.0 + n * STRIPE_BYTES);
                let place = chunk.place(logical, STRIPE_BYTES, copy);
                assert_eq!(place.len, STRIPE_BYTES);
                (place.device, (place.at.0 & 0xffff_ffff) / STRIPE_BYTES)
            })
            .collect()
    }

    #[test]
    fn stripes_go_round_the_devices() {
        let raid0 = chunk(block_group::RAID0, 3);
        assert_eq!(
            layout(&raid0, 0),
            [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
        );
        assert_eq!(raid0.stripe_bytes(), 2 * STRIPE_BYTES);
        let raid10 = chunk(block_group::RAID10, 4);
        assert_eq!(
            layout(&raid10, 0),
            [(0, 0), (2, 0), (0, 1), (2, 1), (0, 2), (2, 2)]
        );
        assert_eq!(
            layout(&raid10, 1),
            [(1, 0), (3, 0), (1, 1), (3, 1), (1, 2), (3, 2)]
        );
        let raid5 = chunk(block_group::RAID5, 3);
        assert_eq!(
            layout(&raid5, 0),
            [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (0, 2)]
        );
        let raid1 = chunk(block_group::RAID1C3, 3);
        let place = raid1.place(Logical((1 << 20) + 5), u64::MAX, 2);
        assert_eq!(
            (place.device, place.at.0, place.len),
            (2, (2 << 32) + 5, 6 * STRIPE_BYTES - 5)
        );
    }

    #[test]
    fn chunks_do_not_overlap() {
        let mut map = ChunkMap::default();
        map.add(chunk(0, 1), 0).unwrap();
        map.add(chunk(0, 1), 0).unwrap();
        assert_eq!(map.chunks().len(), 1);
        let mut other = chunk(0, 1);
        other.start.0 += STRIPE_BYTES;
        assert!(map.add(other.clone(), 0).is_err());
        other.start = map.chunks()[0].end();
        map.add(other, 0).unwrap();
        assert_eq!(map.find(Logical((1 << 20) - 1)), None);
        assert_eq!(map.find(Logical(1 << 20)).unwrap().start, Logical(1 << 20));
        let second = (1 << 20) + 6 * STRIPE_BYTES;
        assert_eq!(map.find(Logical(second)).unwrap().start, Logical(second));
        assert_eq!(map.find(Logical(second + 6 * STRIPE_BYTES)), None);
    }
}
