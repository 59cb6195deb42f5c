//! The superblock: the parameters of a file system, and where its trees start.
//!
//! A device has up to three copies at fixed places. Each commit writes all of them, the first one
//! first.

use tree::{Error, ReadAt, Result, to_u64, to_usize};
use zerocopy::FromBytes;

use crate::disk::checksum::ChecksumType;
use crate::disk::chunk::{self, Chunk};
use crate::disk::flags::incompat;
use crate::disk::key::{Generation, Logical, Physical};
use crate::disk::raw::{self, CHECKSUM_BYTES, SUPERBLOCK_BYTES};

/// Where the copies lie on a device that is large enough.
pub const SUPERBLOCK_PLACES: [Physical; 3] =
    [Physical(64 << 10), Physical(64 << 20), Physical(256 << 30)];

/// The features that this program can read.
const INCOMPAT_KNOWN: u64 = incompat::MIXED_BACKREF
    | incompat::DEFAULT_SUBVOL
    | incompat::MIXED_GROUPS
    | incompat::COMPRESS_LZO
    | incompat::COMPRESS_ZSTD
    | incompat::BIG_METADATA
    | incompat::EXTENDED_IREF
    | incompat::RAID56
    | incompat::SKINNY_METADATA
    | incompat::NO_HOLES
    | incompat::METADATA_UUID
    | incompat::RAID1C34
    | incompat::SIMPLE_QUOTA;

/// The minimum and maximum size of a sector and of a tree block.
const BLOCK_BYTES: (u32, u32) = (4 << 10, 64 << 10);
/// Minimum number of tree blocks in a commit (`BTRFS_SUPER_INFO` rules).
const TREES_MIN: u64 = 6;

/// A validated superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The file system's UUID, as used by mount and shown to users.
    pub fsid: [u8; 16],
    /// The UUID in tree blocks; rarely a different one.
    pub metadata_uuid: [u8; 16],
    /// Generation of the last commit.
    pub generation: Generation,
    /// Root block and level of the root tree.
    pub root: (Logical, u8),
    /// Root block, level and generation of the chunk tree.
    pub chunk_root: (Logical, u8, Generation),
    /// Root block and level of the log tree: present after a crash, with what was synced since the
    /// last commit.
    pub log_root: Option<(Logical, u8)>,
    /// Total size of all devices in bytes.
    pub total_bytes: u64,
    /// Bytes of extents, each extent counted once.
    pub bytes_used: u64,
    /// Number of devices.
    pub num_devices: u64,
    /// Size of a sector, the unit of data, in bytes: a power of two from 4 KiB to 64 KiB.
    pub sectorsize: u32,
    /// Size of a tree block in bytes: a power of two from the sector size to 64 KiB.
    pub nodesize: u32,
    /// Bits of [`crate::compat_ro`].
    pub compat_ro: u64,
    /// Bits of [`crate::incompat`].
    pub incompat: u64,
    /// The checksum algorithm for metadata and data.
    pub checksum: ChecksumType,
    /// The device that this superblock was read from.
    pub device: DeviceInfo,
    /// The file system's label; any bytes except NUL.
    pub label: Box<[u8]>,
    /// Generation of the free space cache, version 1.
    pub cache_generation: u64,
    /// Equal to `generation` when the UUID tree is complete.
    pub uuid_tree_generation: u64,
    /// Whether the device is a seed: it is never written, and other file systems may be based on
    /// it.
    pub is_seed: bool,
    /// The chunks that hold the chunk tree.
    pub(crate) system_chunks: Vec<Chunk>,
    /// The UUIDs in tree blocks on the seed devices that the file system is based on.
    pub(crate) seeds: Vec<[u8; 16]>,
    /// The commits before this one, the newest first.
    pub(crate) older: Vec<OlderRoots>,
}

/// The roots of an earlier commit. Its blocks may have been overwritten since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OlderRoots {
    pub(crate) generation: Generation,
    /// Root block and level of the root tree.
    pub(crate) root: (Logical, u8),
    /// Root block, level and generation of the chunk tree.
    pub(crate) chunk_root: (Logical, u8, Generation),
}

/// Description of a device (`struct btrfs_dev_item`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its ID in the file system, starting at 1.
    pub id: u64,
    /// Its own UUID.
    pub uuid: [u8; 16],
    /// Bytes that the file system may use.
    pub total_bytes: u64,
    /// Bytes that chunks occupy.
    pub bytes_used: u64,
    /// The UUID of the file system that it was made for. The file system that is based on a seed
    /// device has another UUID.
    pub fsid: [u8; 16],
}

impl DeviceInfo {
    pub(crate) fn parse(raw: &raw::DevItem) -> DeviceInfo {
        DeviceInfo {
            id: raw.devid.get(),
            uuid: raw.uuid,
            total_bytes: raw.total_bytes.get(),
            bytes_used: raw.bytes_used.get(),
            fsid: raw.fsid,
        }
    }
}

impl OlderRoots {
    /// The commits before the last one that a superblock records, the newest first.
    fn list(raw: &raw::Superblock) -> Vec<OlderRoots> {
        let sectorsize = raw.sectorsize.get().into();
        let mut list: Vec<OlderRoots> = Vec::new();
        for backup in &raw.super_roots {
            let (root, chunk_root) = (backup.tree_root.get(), backup.chunk_root.get());
            let is_older = (1..raw.generation.get()).contains(&backup.tree_root_gen.get());
            let is_root = |at: u64, level: u8| {
                at != 0 && at.is_multiple_of(sectorsize) && level < raw::LEVELS_MAX
            };
            if is_older
                && is_root(root, backup.tree_root_level)
                && is_root(chunk_root, backup.chunk_root_level)
            {
                list.push(OlderRoots {
                    generation: Generation(backup.tree_root_gen.get()),
                    root: (Logical(root), backup.tree_root_level),
                    chunk_root: (
                        Logical(chunk_root),
                        backup.chunk_root_level,
                        Generation(backup.chunk_root_gen.get()),
                    ),
                });
            }
        }
        list.sort_by_key(|older| std::cmp::Reverse(older.generation));
        list
    }
}

/// Whether a device of this size has a superblock at this place.
fn has_place(size: u64, place: Physical) -> bool {
    let after = size.checked_sub(place.0);
    after.is_some_and(|after| after >= to_u64(SUPERBLOCK_BYTES))
}

/// Refuses features that this program lacks.
fn check_features(incompat: u64) -> Result<()> {
    let unknown = incompat & !INCOMPAT_KNOWN;
    // A zoned file system has a stripe tree for its profiles.
    let named = [
        (incompat::ZONED, "a btrfs file system for zoned devices"),
        (
            incompat::EXTENT_TREE_V2,
            "a btrfs file system with the second extent tree",
        ),
        (
            incompat::RAID_STRIPE_TREE,
            "a btrfs file system with a RAID stripe tree",
        ),
        (
            incompat::REMAP_TREE,
            "a btrfs file system with a remap tree",
        ),
    ];
    let found = named.iter().find(|(flag, _)| unknown & flag != 0);
    match found {
        Some((_, name)) => Err(Error::Unsupported(name)),
        None if unknown != 0 => Err(Error::Unsupported(
            "a btrfs file system with features of a newer kernel",
        )),
        None => Ok(()),
    }
}

/// Checks the sizes of blocks and the roots of trees.
fn check_trees(raw: &raw::Superblock, place: Physical) -> Result<()> {
    let corrupt = |what, got| Error::corrupt(what, place.0, got);
    let (sectorsize, nodesize) = (raw.sectorsize.get(), raw.nodesize.get());
    let is_size =
        |bytes: u32, min: u32| bytes.is_power_of_two() && (min..=BLOCK_BYTES.1).contains(&bytes);
    if !is_size(sectorsize, BLOCK_BYTES.0) {
        return Err(corrupt("sector size is impossible", sectorsize.into()));
    }
    if !is_size(nodesize, sectorsize) {
        return Err(corrupt("tree block size is impossible", nodesize.into()));
    }
    if raw.unused_leafsize != raw.nodesize {
        let leafsize = raw.unused_leafsize.get();
        return Err(corrupt("leaf size is not the node size", leafsize.into()));
    }
    let levels = [raw.root_level, raw.chunk_root_level, raw.log_root_level];
    if let Some(&level) = levels.iter().find(|&&level| level >= raw::LEVELS_MAX) {
        return Err(corrupt(
            "tree has more levels than there can be",
            level.into(),
        ));
    }
    for root in [raw.root, raw.chunk_root, raw.log_root] {
        if !root.get().is_multiple_of(sectorsize.into()) {
            return Err(corrupt("tree root is not at a sector's start", root.get()));
        }
    }
    if raw.root_dir_objectid.get() != crate::disk::key::object::ROOT_TREE_DIR {
        let dir = raw.root_dir_objectid.get();
        return Err(corrupt(
            "directory of the root tree has the wrong number",
            dir,
        ));
    }
    Ok(())
}

/// Checks the totals, the number of devices, and the age of the chunk tree.
fn check_totals(raw: &raw::Superblock, place: Physical) -> Result<()> {
    let corrupt = |what, got| Error::corrupt(what, place.0, got);
    let nodesize_bytes = u64::from(raw.nodesize.get());
    if raw.bytes_used.get() < TREES_MIN * nodesize_bytes {
        return Err(corrupt(
            "fewer bytes are used than trees need",
            raw.bytes_used.get(),
        ));
    }
    if raw.bytes_used > raw.total_bytes {
        return Err(corrupt(
            "more bytes are used than there are",
            raw.bytes_used.get(),
        ));
    }
    let stripesize = raw.stripesize.get();
    if !stripesize.is_power_of_two() || stripesize < 4096 {
        return Err(corrupt("stripe size is impossible", stripesize.into()));
    }
    if raw.num_devices.get() == 0 || raw.num_devices.get() > 1 << 31 {
        return Err(corrupt(
            "number of devices is impossible",
            raw.num_devices.get(),
        ));
    }
    if raw.chunk_root_generation > raw.generation {
        let generation = raw.chunk_root_generation.get();
        return Err(corrupt(
            "chunk tree is newer than its superblock",
            generation,
        ));
    }
    Ok(())
}

impl Superblock {
    /// Parses the superblock that was read from `place` and verifies its checksum.
    ///
    /// # Errors
    /// Fails if it is not a superblock or breaks a rule; [`Error::Unsupported`] if it needs
    /// features that this program lacks.
    pub fn parse(bytes: &[u8; SUPERBLOCK_BYTES], place: Physical) -> Result<Superblock> {
        let raw = raw::Superblock::ref_from_bytes(bytes).expect("a superblock fills 4096 bytes");
        let corrupt = |what, got| Error::corrupt(what, place.0, got);
        if raw.magic != raw::MAGIC {
            let magic = u64::from_le_bytes(raw.magic);
            return Err(corrupt("not a btrfs superblock", magic));
        }
        let checksum = ChecksumType::parse(raw.csum_type.get())?;
        if !checksum.is_of(&bytes[CHECKSUM_BYTES..], &raw.csum) {
            let first = u32::from_le_bytes([raw.csum[0], raw.csum[1], raw.csum[2], raw.csum[3]]);
            return Err(corrupt("superblock's checksum differs", first.into()));
        }
        if raw.bytenr.get() != place.0 {
            return Err(corrupt("superblock belongs elsewhere", raw.bytenr.get()));
        }
        let incompat = raw.incompat_flags.get();
        check_features(incompat)?;
        check_trees(raw, place)?;
        check_totals(raw, place)?;
        let own = if incompat & incompat::METADATA_UUID == 0 {
            raw.fsid
        } else {
            raw.metadata_uuid
        };
        if raw.dev_item.fsid != own {
            let begin = u32::from_le_bytes([own[0], own[1], own[2], own[3]]);
            return Err(corrupt(
                "device belongs to another file system",
                begin.into(),
            ));
        }
        let sectorsize = raw.sectorsize.get();
        let used = raw.sys_chunk_array_size.get();
        let array = raw.sys_chunk_array.get(..to_usize(used));
        let Some(array) = array.filter(|array| !array.is_empty()) else {
            return Err(corrupt(
                "system chunks do not fit in the superblock",
                used.into(),
            ));
        };
        let label = raw.label.split(|&byte| byte == 0).next();
        let array_at = std::mem::offset_of!(raw::Superblock, sys_chunk_array);
        let at = place.0.saturating_add(to_u64(array_at));
        let log_root = raw.log_root.get();
        Ok(Superblock {
            fsid: raw.fsid,
            metadata_uuid: own,
            generation: Generation(raw.generation.get()),
            root: (Logical(raw.root.get()), raw.root_level),
            chunk_root: (
                Logical(raw.chunk_root.get()),
                raw.chunk_root_level,
                Generation(raw.chunk_root_generation.get()),
            ),
            log_root: (log_root != 0).then_some((Logical(log_root), raw.log_root_level)),
            total_bytes: raw.total_bytes.get(),
            bytes_used: raw.bytes_used.get(),
            num_devices: raw.num_devices.get(),
            sectorsize,
            nodesize: raw.nodesize.get(),
            compat_ro: raw.compat_ro_flags.get(),
            incompat,
            checksum,
            device: DeviceInfo::parse(&raw.dev_item),
            label: label.unwrap_or_default().into(),
            cache_generation: raw.cache_generation.get(),
            uuid_tree_generation: raw.uuid_tree_generation.get(),
            is_seed: raw.flags.get() & raw::SUPERBLOCK_SEEDING != 0,
            seeds: Vec::new(),
            older: OlderRoots::list(raw),
            system_chunks: chunk::parse_system_chunks(array, at, sectorsize, incompat)?,
        })
    }

    /// Whether a tree block with this UUID is of this file system, or of a seed that it is based
    /// on.
    pub(crate) fn is_own(&self, fsid: &[u8; 16]) -> bool {
        *fsid == self.metadata_uuid || self.seeds.contains(fsid)
    }

    /// One copy of the superblock of a device, by its index in [`SUPERBLOCK_PLACES`].
    ///
    /// # Errors
    /// Fails if the device has no such copy, if the copy is invalid, or if it cannot be read.
    pub fn read_copy(device: &dyn ReadAt, copy: usize) -> Result<Superblock> {
        let place = SUPERBLOCK_PLACES.get(copy).copied();
        let place = place.filter(|place| {
            let size = device.size();
            size.is_ok_and(|size| has_place(size, *place))
        });
        let place = place.ok_or(Error::InvalidInput(
            "the device has no such copy of the superblock",
        ))?;
        let mut bytes = [0; SUPERBLOCK_BYTES];
        device.read_exact_at(&mut bytes, place.0)?;
        Superblock::parse(&bytes, place)
    }

    /// The first superblock of a device, as Linux reads it; if it is damaged, the newest valid one.
    ///
    /// Where a device was copied while it was written, a later copy can be newer, and lead to
    /// blocks that were not there yet when their places were copied.
    ///
    /// # Errors
    /// If no copy is valid, the error of the first one; also fails if the device cannot be read.
    pub fn read(device: &dyn ReadAt) -> Result<Superblock> {
        let size = device.size()?;
        let mut newest: Option<Superblock> = None;
        let mut first_error = None;
        for place in SUPERBLOCK_PLACES {
            if !has_place(size, place) {
                break;
            }
            let mut bytes = [0; SUPERBLOCK_BYTES];
            device.read_exact_at(&mut bytes, place.0)?;
            match Superblock::parse(&bytes, place) {
                Ok(found) if place == SUPERBLOCK_PLACES[0] => return Ok(found),
                // Ignore copies left by an earlier file system on this device.
                Ok(found)
                    if newest.as_ref().is_none_or(|newest| {
                        found.fsid == newest.fsid && found.generation > newest.generation
                    }) =>
                {
                    newest = Some(found);
                }
                Ok(_) => {}
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        newest.ok_or_else(|| {
            first_error.unwrap_or(Error::corrupt("too short for a btrfs superblock", 0, size))
        })
    }
}
