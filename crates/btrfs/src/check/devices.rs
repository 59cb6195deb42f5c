//! Checks superblocks and devices: their copies, sizes, and whether enough devices are present.

use tree::{Result, to_u64};
use zerocopy::FromBytes;

use super::state::{BtrfsChecker, Note};
use crate::disk::chunk::{Chunk, Profile, Stripe};
use crate::disk::flags::block_group;
use crate::disk::key::{Key, Logical, Physical, item, object};
use crate::disk::raw;
use crate::disk::superblock::{SUPERBLOCK_PLACES, Superblock};

impl BtrfsChecker<'_> {
    /// Checks that every superblock copy on every device agrees; returns the flags of the first
    /// one.
    ///
    /// A copy that was never written, as in restored images of btrfs-image, is all zeros.
    pub(super) fn superblocks(&mut self) -> Result<u64> {
        let mut flags = None;
        for open in self.btrfs.volume.space.devices() {
            let size = open.source.size()?;
            // A seed keeps the superblock that it had when file systems were based on it.
            let generation = if open.device.fsid == self.btrfs.superblock().metadata_uuid {
                self.btrfs.superblock().generation
            } else {
                Superblock::read(&*open.source)?.generation
            };
            for place in SUPERBLOCK_PLACES {
                let mut bytes = [0; raw::SUPERBLOCK_BYTES];
                if size.saturating_sub(to_u64(bytes.len())) < place.0
                    || open.device.total_bytes < place.0 + to_u64(bytes.len())
                {
                    continue;
                }
                open.source.read_exact_at(&mut bytes, place.0)?;
                if place != SUPERBLOCK_PLACES[0] && bytes.iter().all(|&byte| byte == 0) {
                    continue;
                }
                let raw = raw::Superblock::ref_from_bytes(&bytes).expect("it has that size");
                match Superblock::parse(&bytes, place) {
                    Ok(found) if found.generation == generation => {
                        flags.get_or_insert(raw.flags.get());
                        self.superblock_copy(raw, &found, place)?;
                    }
                    // The machine stopped, or the image was taken, before this copy was written.
                    Ok(found) if found.generation.0.checked_add(1) == Some(generation.0) => {}
                    Ok(found) => {
                        let what = if found.generation < generation {
                            "copy of the superblock is old"
                        } else {
                            "copy of the superblock is newer than the first"
                        };
                        self.corrupt(what, 0, place.0, found.generation.0)?;
                    }
                    Err(error) => self.found(0, error)?,
                }
            }
        }
        Ok(flags.unwrap_or_default())
    }

    /// Checks the parts of a superblock that only Linux uses: its flags and its device.
    fn superblock_copy(
        &mut self,
        raw: &raw::Superblock,
        found: &Superblock,
        place: Physical,
    ) -> Result<()> {
        let flags = raw.flags.get();
        if flags & !raw::SUPERBLOCK_FLAGS_KNOWN != 0 {
            self.corrupt("superblock has unknown flags", 0, place.0, flags)?;
        }
        let device = found.device;
        let known = self.btrfs.devices().iter();
        let mut known = known.filter(|known| known.id == device.id);
        if known.all(|known| known.uuid != device.uuid) {
            let what = "superblock's device is not the one in the chunk tree";
            self.corrupt(what, 0, place.0, device.id)?;
        }
        Ok(())
    }

    /// Checks that the superblock and the chunk tree list the same system chunks: the superblock's
    /// hold the chunk tree, and Linux takes the others from that.
    fn system_chunks(&mut self) -> Result<()> {
        let btrfs = self.btrfs;
        let listed = btrfs.superblock().system_chunks.iter();
        let mut listed: Vec<u64> = listed.map(|chunk| chunk.start.0).collect();
        listed.sort_unstable();
        let mut stored = Vec::new();
        let mut cursor = btrfs
            .chunk_tree
            .readable(&btrfs.volume, Key::MIN, Key::MAX)?;
        while let Some(item) = cursor.item() {
            if item.key.kind == item::CHUNK_ITEM {
                let start = item.key.offset;
                let chunk = btrfs.chunks().find(Logical(start));
                if chunk.is_some_and(|chunk| chunk.flags & block_group::SYSTEM != 0) {
                    stored.push(start);
                }
            }
            cursor.advance()?;
        }
        if cursor.damage().is_empty() && listed != stored {
            let differs = |start: &&u64| listed.contains(start) != stored.contains(start);
            let first = listed.iter().chain(&stored).find(differs);
            let what = "superblock's system chunks are not those of the chunk tree";
            let at = first.copied().unwrap_or_default();
            self.corrupt(what, object::CHUNK_TREE, at, to_u64(stored.len()))?;
        }
        Ok(())
    }

    /// Checks that devices are present once, have their recorded size, and include every device
    /// that a chunk names.
    pub(super) fn devices(&mut self) -> Result<()> {
        let btrfs = self.btrfs;
        let devices = btrfs.devices();
        let count = btrfs.superblock().num_devices;
        if to_u64(devices.len()) != count {
            self.corrupt(
                "superblock's number of devices is wrong",
                object::CHUNK_TREE,
                0,
                count,
            )?;
        }
        for chunk in btrfs.chunks().chunks() {
            let is_known = |stripe: &Stripe| {
                let mut devices = devices.iter();
                devices
                    .any(|device| (device.id, device.uuid) == (stripe.device, stripe.device_uuid))
            };
            if let Some(stripe) = chunk.stripes.iter().find(|stripe| !is_known(stripe)) {
                self.corrupt(
                    "chunk is on an unknown device",
                    object::CHUNK_TREE,
                    chunk.start.0,
                    stripe.device,
                )?;
            }
        }
        for open in btrfs.volume.space.devices() {
            let size = open.source.size()?;
            let known = devices.iter().find(|device| device.id == open.device.id);
            if known.is_some_and(|device| device.total_bytes > size) {
                self.corrupt(
                    "device is shorter than it should be",
                    object::CHUNK_TREE,
                    open.device.id,
                    size,
                )?;
            }
        }
        let result = self.system_chunks();
        self.tolerate(object::CHUNK_TREE, result)?;
        self.total_bytes()?;
        self.missing_devices()
    }

    /// Checks the superblock's total size: Linux does not mount less than the devices have.
    fn total_bytes(&mut self) -> Result<()> {
        let total = self.btrfs.superblock().total_bytes;
        let devices = self.btrfs.devices().iter();
        let sum = devices
            .map(|device| device.total_bytes)
            .fold(0, u64::saturating_add);
        if total < sum {
            let what = "superblock's total size is less than the devices'";
            self.corrupt(what, 0, 0, total)?;
        } else if total > sum {
            self.notes.push(Note::LargerThanDevices(total - sum));
        }
        Ok(())
    }

    /// Finds chunks with parts on missing devices only. Without such chunks, missing devices are
    /// not damage.
    fn missing_devices(&mut self) -> Result<()> {
        let btrfs = self.btrfs;
        let missing = btrfs.devices().iter();
        let present: Vec<u64> = btrfs.present_devices().collect();
        let missing = missing
            .filter(|device| !present.contains(&device.id))
            .count();
        if missing == 0 {
            return Ok(());
        }
        let chunks = btrfs.chunks().chunks().iter();
        let lost = chunks.filter(|chunk| !is_readable(chunk, &present));
        self.lost_chunks = lost.map(|chunk| chunk.start.0).collect();
        match self.lost_chunks.first() {
            None => self.notes.push(Note::MissingDevices(missing as u64)),
            Some(&first) => {
                let what = "chunks cannot be read without the missing devices";
                let count = to_u64(self.lost_chunks.len());
                self.corrupt(what, object::CHUNK_TREE, first, count)?;
            }
        }
        Ok(())
    }
}

/// Whether all of a chunk can be read from these devices.
fn is_readable(chunk: &Chunk, present: &[u64]) -> bool {
    let is_present = |stripe: &Stripe| present.contains(&stripe.device);
    let missing = chunk.stripes.iter().filter(|stripe| !is_present(stripe));
    match chunk.profile {
        Profile::Single | Profile::Dup | Profile::Raid0 => missing.count() == 0,
        Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => {
            chunk.stripes.iter().any(is_present)
        }
        Profile::Raid10 => {
            let mut pairs = chunk.stripes.chunks(2);
            pairs.all(|pair| pair.iter().any(is_present))
        }
        profile @ (Profile::Raid5 | Profile::Raid6) => missing.count() as u64 <= profile.parities(),
    }
}
