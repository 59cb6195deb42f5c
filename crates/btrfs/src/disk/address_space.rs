//! The devices as one address space: reads by logical address, trying every copy.

use tree::{Error, ReadAt, Result, to_u64, to_usize};

use crate::disk::chunk::{Chunk, ChunkMap, Profile, Stripe};
use crate::disk::key::{Logical, Physical};
use crate::disk::parity::{self, Weights};
use crate::disk::superblock::{DeviceInfo, Superblock};
use crate::options::OpenOptions;

/// Maximum number of devices in a file system.
pub(crate) const DEVICES_MAX: usize = 1024;
pub(crate) const DEVICES: &str = "a btrfs file system has 1 to 1024 devices";

/// The devices of a file system, and the chunks that map addresses to them.
pub(crate) struct AddressSpace {
    /// In ascending order of ID.
    devices: Vec<OpenDevice>,
    /// Seed devices of other file systems, on which this one may be based: the chunk tree says
    /// whether it is.
    candidates: Vec<(Superblock, OpenDevice)>,
    /// IDs of seed devices that are not present.
    missing_seeds: Vec<u64>,
    pub(crate) chunks: ChunkMap,
    /// Blocks of the chunk tree cannot be read: there may be more chunks.
    pub(crate) lacks_chunks: bool,
}

/// A device that is present.
pub(crate) struct OpenDevice {
    pub(crate) source: Box<dyn ReadAt>,
    pub(crate) device: DeviceInfo,
}

const MISSING: Error = Error::InvalidInput(
    "a device of the file system is missing or older than the others; name the images of all its devices",
);
const SEED_MISSING: Error = Error::InvalidInput(
    "a seed device that the file system is based on is missing; name its image, too",
);
const FOREIGN: Error = Error::InvalidInput("the images are of different file systems");

impl AddressSpace {
    /// Reads the superblocks and returns the newest. At first, only the chunks listed in it are
    /// known.
    pub(crate) fn open(
        sources: Vec<Box<dyn ReadAt>>,
        options: &OpenOptions,
    ) -> Result<(AddressSpace, Superblock)> {
        if sources.is_empty() || sources.len() > DEVICES_MAX {
            return Err(Error::InvalidInput(DEVICES));
        }
        let mut found = Vec::new();
        for source in sources {
            let superblock = match options.superblock {
                Some(copy) => Superblock::read_copy(&*source, copy)?,
                None => Superblock::read(&*source)?,
            };
            found.push((superblock, source));
        }
        let mut superblock = newest_of_its_own(&found, options).clone();
        let mut devices: Vec<OpenDevice> = Vec::new();
        let mut candidates = Vec::new();
        for (own, source) in found {
            let device = own.device;
            let open = OpenDevice { source, device };
            if own.fsid != superblock.fsid {
                if own.is_seed {
                    candidates.push((own, open));
                } else if !options.ignores_foreign {
                    return Err(FOREIGN);
                }
                continue;
            }
            if devices.iter().any(|other| other.device.id == device.id) {
                if options.ignores_foreign {
                    continue;
                }
                return Err(Error::InvalidInput("two images are of the same device"));
            }
            // A device that missed a commit holds stale bytes, and not all of them have a checksum.
            if own.generation == superblock.generation {
                devices.push(open);
            }
        }
        devices.sort_by_key(|open| open.device.id);
        superblock.seeds = candidates
            .iter()
            .map(|(seed, _)| seed.metadata_uuid)
            .collect();
        let mut chunks = ChunkMap::default();
        for chunk in &superblock.system_chunks {
            chunks.add(chunk.clone(), 0)?;
        }
        let space = AddressSpace {
            devices,
            candidates,
            missing_seeds: Vec::new(),
            chunks,
            lacks_chunks: false,
        };
        Ok((space, superblock))
    }

    /// Takes in the seed devices that are among all devices of the file system, which the chunk
    /// tree lists.
    ///
    /// # Errors
    /// Fails if an image is of another file system, unless that is ignored.
    pub(crate) fn take_seeds(
        &mut self,
        all: &[DeviceInfo],
        superblock: &mut Superblock,
        options: &OpenOptions,
    ) -> Result<()> {
        superblock.seeds.clear();
        for (seed, open) in std::mem::take(&mut self.candidates) {
            let is_listed = all
                .iter()
                .any(|known| (known.id, known.uuid) == (open.device.id, open.device.uuid));
            let is_there = self
                .devices
                .iter()
                .any(|known| known.device.id == open.device.id);
            if is_listed && !is_there {
                superblock.seeds.push(seed.metadata_uuid);
                self.devices.push(open);
            } else if !options.ignores_foreign {
                return Err(FOREIGN);
            }
        }
        self.devices.sort_by_key(|open| open.device.id);
        let is_missing_seed = |known: &&DeviceInfo| {
            known.fsid != superblock.metadata_uuid && self.device(known.id).is_none()
        };
        let missing: Vec<u64> = all
            .iter()
            .filter(is_missing_seed)
            .map(|known| known.id)
            .collect();
        self.missing_seeds = missing;
        Ok(())
    }

    fn device(&self, id: u64) -> Option<&OpenDevice> {
        let index = self
            .devices
            .binary_search_by_key(&id, |open| open.device.id);
        let candidates = || {
            let mut candidates = self.candidates.iter().map(|(_, open)| open);
            candidates.find(|open| open.device.id == id)
        };
        index
            .ok()
            .and_then(|index| self.devices.get(index))
            .or_else(candidates)
    }

    /// The devices that are present.
    pub(crate) fn devices(&self) -> &[OpenDevice] {
        &self.devices
    }

    /// The chunk that contains all these bytes.
    pub(crate) fn chunk(&self, logical: Logical, len: u64) -> Result<&Chunk> {
        let corrupt = |what| Error::corrupt(what, logical.0, len);
        let chunk = self.chunks.find(logical);
        let chunk = chunk.ok_or_else(|| {
            corrupt(if self.lacks_chunks {
                "address lies in no chunk of those that can be read"
            } else {
                "address lies in no chunk"
            })
        })?;
        if len > chunk.end().0.saturating_sub(logical.0) {
            return Err(corrupt("bytes reach beyond the end of their chunk"));
        }
        Ok(chunk)
    }

    /// The number of ways to read from a chunk: its copies, and reconstruction from each parity.
    pub(crate) fn copies(chunk: &Chunk) -> usize {
        match chunk.profile {
            profile @ (Profile::Raid5 | Profile::Raid6) => {
                to_usize(profile.parities()).saturating_add(1)
            }
            _ => chunk.copies(),
        }
    }

    /// The number of ways for a reader that tells right bytes from wrong ones: those of
    /// [`AddressSpace::copies`], and of RAID6 those without each other stripe of data, in case it
    /// is wrong, too.
    pub(crate) fn ways(chunk: &Chunk) -> usize {
        let others = match chunk.profile {
            Profile::Raid6 if chunk.data_stripes() <= parity::DATA_MAX => {
                chunk.data_stripes().saturating_sub(1)
            }
            _ => 0,
        };
        AddressSpace::copies(chunk).saturating_add(others)
    }

    /// Reads bytes in `chunk` in one of its ways.
    pub(crate) fn read_copy(
        &self,
        chunk: &Chunk,
        logical: Logical,
        buf: &mut [u8],
        copy: usize,
    ) -> Result<()> {
        let (mut at, mut left) = (logical, buf);
        let last = chunk.copies().saturating_sub(1);
        while !left.is_empty() {
            let place = chunk.place(at, to_u64(left.len()), copy.min(last));
            let (part, rest) = left.split_at_mut(to_usize(place.len));
            if copy <= last {
                self.read_device(place.device, place.at, part)?;
            } else {
                self.rebuild(chunk, at, part, copy.saturating_sub(last))?;
            }
            at = Logical(at.0.saturating_add(place.len));
            left = rest;
        }
        Ok(())
    }

    /// Reads bytes from the first copy that `verify` accepts.
    ///
    /// # Errors
    /// If every copy fails, the error of the first one whose device is present, or else of the
    /// first one.
    pub(crate) fn read_verified<T>(
        &self,
        logical: Logical,
        buf: &mut [u8],
        mut verify: impl FnMut(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let chunk = self.chunk(logical, to_u64(buf.len()))?;
        let mut first: Option<Error> = None;
        for copy in 0..AddressSpace::ways(chunk) {
            let read = self.read_copy(chunk, logical, buf, copy);
            match read.and_then(|()| verify(buf)) {
                Ok(value) => return Ok(value),
                Err(error) => match first {
                    None | Some(Error::InvalidInput(_)) => first = Some(error),
                    Some(_) => {}
                },
            }
        }
        Err(first.expect("a chunk has at least one copy"))
    }

    /// Reconstructs bytes of one stripe of a RAID5 or RAID6 chunk, in the first way from the other
    /// stripes and the first parity, in the second one from the second parity, which with the first
    /// can do without one more stripe: one whose device is absent; in each further way without the
    /// next one.
    fn rebuild(&self, chunk: &Chunk, logical: Logical, buf: &mut [u8], way: usize) -> Result<()> {
        let place = chunk.place(logical, to_u64(buf.len()), 0);
        let data = chunk.data_stripes();
        let in_row = |index| chunk.place_in_row(index, logical);
        let own = in_row(place.stripe);
        let weights = if way > 1 {
            let is_absent = |(index, stripe): &(usize, &Stripe)| {
                *index != place.stripe
                    && in_row(*index) < data
                    && self.device(stripe.device).is_none()
            };
            let mut absent = chunk.stripes.iter().enumerate().filter(is_absent);
            let other = match way.checked_sub(3) {
                Some(nth) => Some(nth.saturating_add(usize::from(nth >= own))),
                None => absent.next().map(|(index, _)| in_row(index)),
            };
            Weights::second(own, other).ok_or_else(|| {
                let what = "RAID6 chunk has more than 255 stripes of data";
                Error::corrupt(what, logical.0, to_u64(data))
            })?
        } else {
            Weights::FIRST
        };
        buf.fill(0);
        let mut other = vec![0; buf.len()];
        // A device can have several stripes of a damaged chunk, so the device does not say which
        // stripe is lost.
        let lost = chunk.stripes.get(place.stripe);
        let begin = lost.map_or(0, |lost| lost.at.0);
        let offset = place.at.0.saturating_sub(begin);
        for (index, stripe) in chunk.stripes.iter().enumerate() {
            let times = weights.of(in_row(index), data);
            if index != place.stripe && times != 0 {
                // `Chunk::parse` checked that the ends of stripes do not overflow.
                let at = Physical(stripe.at.0.saturating_add(offset));
                self.read_device(stripe.device, at, &mut other)?;
                parity::add(buf, &other, times);
            }
        }
        Ok(())
    }

    fn read_device(&self, id: u64, at: Physical, buf: &mut [u8]) -> Result<()> {
        let open = self.device(id).ok_or_else(|| {
            if self.missing_seeds.contains(&id) {
                SEED_MISSING
            } else {
                MISSING
            }
        })?;
        open.source
            .read_exact_at(buf, at.0)
            .map_err(|error| match error.kind() {
                std::io::ErrorKind::UnexpectedEof => {
                    Error::corrupt("device ends before its chunks", at.0, to_u64(buf.len()))
                }
                _ => error.into(),
            })
    }
}

/// The newest superblock of the file system that is meant: that of the first source if others are
/// ignored; otherwise one that may be based on the others, which are seeds.
fn newest_of_its_own<'a>(
    found: &'a [(Superblock, Box<dyn ReadAt>)],
    options: &OpenOptions,
) -> &'a Superblock {
    let all = || found.iter().map(|(superblock, _)| superblock);
    let newest = |is_candidate: &dyn Fn(&Superblock) -> bool| {
        let mut newest: Option<&Superblock> = None;
        for superblock in all().filter(|superblock| is_candidate(superblock)) {
            if newest.is_none_or(|newest| superblock.generation > newest.generation) {
                newest = Some(superblock);
            }
        }
        newest
    };
    let own = if options.ignores_foreign {
        all().next()
    } else {
        let based = newest(&|superblock| !superblock.is_seed);
        based.or_else(|| newest(&|_| true))
    };
    let own = own.expect("the caller has at least one source");
    newest(&|superblock| superblock.fsid == own.fsid).unwrap_or(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::chunk::STRIPE_BYTES;
    use crate::disk::flags::block_group;

    /// Linux makes no such chunk, but nothing in the format forbids it.
    #[test]
    fn a_chunk_with_two_stripes_on_one_device_is_rebuilt_from_the_other_stripe() {
        const STRIPE: usize = STRIPE_BYTES as usize;
        let stripe = |at| Stripe {
            device: 1,
            device_uuid: [0; 16],
            at: Physical(at),
        };
        let chunk = Chunk {
            start: Logical(0),
            len: 2 * STRIPE_BYTES,
            flags: block_group::DATA,
            profile: Profile::Raid5,
            // The second stripe is before the first.
            stripes: [stripe(2 * STRIPE_BYTES), stripe(0)].into(),
        };
        let mut medium = vec![0_u8; 4 * STRIPE];
        for (number, part) in (1..).zip(medium.chunks_mut(STRIPE)) {
            part.fill(number);
        }
        let source: Box<dyn ReadAt> = Box::new(medium);
        let device = DeviceInfo {
            id: 1,
            uuid: [0; 16],
            total_bytes: 4 * STRIPE_BYTES,
            bytes_used: 4 * STRIPE_BYTES,
            fsid: [0; 16],
        };
        let space = AddressSpace {
            devices: vec![OpenDevice { source, device }],
            candidates: Vec::new(),
            missing_seeds: Vec::new(),
            chunks: ChunkMap::default(),
            lacks_chunks: false,
        };
        let mut found = vec![0; 2 * STRIPE];
        space.read_copy(&chunk, Logical(0), &mut found, 0).unwrap();
        assert_eq!((found[0], found[STRIPE]), (3, 2));
        space.read_copy(&chunk, Logical(0), &mut found, 1).unwrap();
        assert_eq!((found[0], found[STRIPE]), (1, 4));
    }
}
