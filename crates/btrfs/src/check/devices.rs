//! Checks superblocks and devices: their copies, sizes, and whether enough devices are present.

use tree::{Result, to_u64};
use zerocopy::FromBytes;

use super::state::{BtrfsChecker, Note};
use crate::disk::chunk::{Chunk, Profile, Stripe};
use crate::disk::key::object;
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
                let generation = self.btrfs.superblock().generation;
                match Superblock::parse(&bytes, place) {
                    Ok(found) if found.generation == generation => {
                        flags.get_or_insert(raw.flags.get());
                    }
                    Ok(found) => self.corrupt(
                        "copy of the superblock is old",
                        0,
                        place.0,
                        found.generation.0,
                    )?,
                    Err(error) => self.found(0, error)?,
                }
            }
        }
        Ok(flags.unwrap_or_default())
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
        // Data is rebuilt from the first parity only.
        Profile::Raid5 | Profile::Raid6 => missing.count() <= 1,
    }
}
