//! An image, its devices and its subvolumes.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

mod content;
mod damaged;
mod files;
mod ino_map;
mod replay;
mod scan;
mod sharing;
mod usage;

use std::sync::{Mutex, OnceLock, PoisonError};

use tree::{BlockCounts, Corrupt, Error, Limits, ReadAt, Result, StoreId, Time, to_u64, to_usize};

use self::replay::{Replayed, replay};
use crate::disk::chunk::{Chunk, ChunkMap};
use crate::disk::csum_tree;
use crate::disk::dir;
use crate::disk::inode::for_each_name;
use crate::disk::key::{Key, Logical, item, object};
use crate::disk::node::TreeItem;
use crate::disk::raw;
use crate::disk::subvolume::{self, TreeRoot};
use crate::disk::superblock::{DeviceInfo, Superblock};
use crate::disk::tree::Tree;
use crate::disk::volume::Volume;
use crate::options::OpenOptions;

pub use files::Subvolume;
pub(crate) use ino_map::Resolved;
pub use sharing::Sharing;
pub use usage::{GroupSpace, Space};

/// A btrfs file system, open for reading.
///
/// After a crash, a *log* may hold changes that were synced after the last commit. Subvolumes are
/// shown as Linux would show them: with the log replayed, which happens in memory; see
/// [`Btrfs::replay`]. Everything else is that of the last commit.
pub struct Btrfs {
    pub(crate) volume: Volume,
    pub(crate) chunk_tree: Tree,
    pub(crate) roots: Tree,
    pub(crate) checksums: Option<Tree>,
    /// Why the tree of checksums cannot be found.
    checksums_damage: Option<Corrupt>,
    /// The trees that replaying the log changed, once that is done.
    replayed: OnceLock<Replayed>,
    replaying: Mutex<()>,
    has_log: bool,
    devices: Vec<DeviceInfo>,
    limits: Limits,
    store: StoreId,
}

impl Btrfs {
    /// Opens the file system on these devices. Data on missing devices is read from other copies,
    /// if there are any.
    ///
    /// # Errors
    /// Fails if a source cannot be read, if the sources are not devices of one file system, or if
    /// they break the format.
    pub fn open(sources: Vec<Box<dyn ReadAt>>) -> Result<Btrfs> {
        Self::open_with(sources, &OpenOptions::default())
    }

    /// Like [`Btrfs::open`], with options.
    ///
    /// # Errors
    /// As for [`Btrfs::open`]; also if there is no such superblock or commit as the options ask
    /// for.
    pub fn open_with(sources: Vec<Box<dyn ReadAt>>, options: &OpenOptions) -> Result<Btrfs> {
        let mut volume = Volume::open(sources, options)?;
        let superblock = &volume.superblock;
        let older = match options.older_root.checked_sub(1) {
            None => None,
            Some(index) => Some(*superblock.older.get(index).ok_or(Error::InvalidInput(
                "the superblock does not record so old a commit",
            ))?),
        };
        let chunk_tree = |(root, level, generation)| Tree {
            id: object::CHUNK_TREE,
            root,
            level,
            generation,
        };
        let mut chunks_root = chunk_tree(superblock.chunk_root);
        let ((root, level), generation) = match older {
            None => (superblock.root, superblock.generation),
            Some(older) => (older.root, older.generation),
        };
        let roots = Tree {
            id: object::ROOT_TREE,
            root,
            level,
            generation,
        };
        let mut read = read_chunks(&volume, &chunks_root);
        if let (Err(_), Some(older)) = (&read, older) {
            chunks_root = chunk_tree(older.chunk_root);
            read = read_chunks(&volume, &chunks_root);
        }
        let (chunks, devices, lacks_chunks) = read?;
        volume.space.chunks = chunks;
        volume.space.lacks_chunks = lacks_chunks;
        let Volume {
            space, superblock, ..
        } = &mut volume;
        space.take_seeds(&devices, superblock, options)?;
        // A file whose content has no checksums can be read without their tree.
        let (checksums, checksums_damage) = match TreeRoot::find(&volume, &roots, object::CSUM_TREE)
        {
            Ok(root) => (root.map(|root| root.tree), None),
            Err(Error::Corrupt(damage)) => (None, Some(damage)),
            Err(error) => return Err(error),
        };
        let has_log = volume.superblock.log_root.is_some() && older.is_none() && !options.no_log;
        Ok(Btrfs {
            volume,
            chunk_tree: chunks_root,
            roots,
            checksums,
            checksums_damage,
            replayed: OnceLock::new(),
            replaying: Mutex::default(),
            has_log,
            devices,
            limits: options.limits,
            store: StoreId::new(),
        })
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.volume.superblock
    }

    /// The map from logical addresses to devices.
    pub fn chunks(&self) -> &ChunkMap {
        &self.volume.space.chunks
    }

    /// All devices of the file system, including missing ones.
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    /// The IDs of the devices that are present.
    pub fn present_devices(&self) -> impl Iterator<Item = u64> {
        self.volume
            .space
            .devices()
            .iter()
            .map(|open| open.device.id)
    }

    /// Whether blocks of the chunk tree cannot be read, so that chunks, or devices, may be missing
    /// in their lists.
    pub fn lacks_chunks(&self) -> bool {
        self.volume.space.lacks_chunks
    }

    /// Whether a crash left writes in a log that are not part of the last commit.
    pub fn has_log(&self) -> bool {
        self.volume.superblock.log_root.is_some()
    }

    /// Whether the log has changes of this subvolume.
    ///
    /// # Errors
    /// Fails if the log cannot be read.
    pub fn is_logged(&self, id: u64) -> Result<bool> {
        let Some(logs) = subvolume::log_tree(&self.volume.superblock) else {
            return Ok(false);
        };
        let key = Key {
            objectid: object::TREE_LOG,
            kind: item::ROOT_ITEM,
            offset: id,
        };
        let found = logs.seek(&self.volume, key)?;
        Ok(found.item().is_some_and(|item| item.key == key))
    }

    /// Replays the log, if there is one, as Linux would when it mounts the file system, but in
    /// memory only. Opening a subvolume does it, too.
    ///
    /// # Errors
    /// Fails if the log cannot be read, or contradicts the last commit.
    pub fn replay(&self) -> Result<()> {
        self.replayed().map(drop)
    }

    fn replayed(&self) -> Result<Option<&Replayed>> {
        if !self.has_log {
            return Ok(None);
        }
        let one_at_a_time = self.replaying.lock();
        let _guard = one_at_a_time.unwrap_or_else(PoisonError::into_inner);
        if self.replayed.get().is_none() {
            let replayed = replay(&self.volume, &self.roots, self.checksums);
            if replayed.is_err() {
                self.volume.clear_changed();
            }
            let _ = self.replayed.set(replayed?);
        }
        Ok(self.replayed.get())
    }

    /// The tree of a subvolume, with the log replayed.
    pub(crate) fn shown(&self, tree: Tree) -> Result<Tree> {
        let replayed = self.replayed()?;
        let shown = replayed.and_then(|replayed| replayed.subvolumes.get(&tree.id));
        Ok(shown.copied().unwrap_or(tree))
    }

    /// The checksums of the data that subvolumes show.
    fn shown_checksums(&self) -> Result<Option<Tree>> {
        match self.checksums_damage {
            Some(damage) => Err(Error::Corrupt(damage)),
            None => Ok(self
                .replayed()?
                .map_or(self.checksums, |replayed| replayed.checksums)),
        }
    }

    /// Keeps up to this many bytes of decoded extents, instead of the few that reading in order
    /// needs.
    pub fn keep_decoded(&self, bytes: usize) {
        self.volume.extents.keep(bytes);
    }

    /// How many extents were decoded.
    pub fn decoded(&self) -> BlockCounts {
        self.volume.extents.counts()
    }

    /// The ID of the default subvolume, which is mounted when no other is named.
    ///
    /// # Errors
    /// Fails if the root tree cannot be read.
    pub fn default_subvolume(&self) -> Result<u64> {
        dir::default_subvolume(&self.volume, &self.roots)
    }

    /// All subvolumes, including the top level and snapshots, in ascending order of ID.
    ///
    /// # Errors
    /// Fails if the root tree, or a directory on the path to a subvolume, cannot be read.
    pub fn subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        let mut list = Vec::new();
        subvolume::for_each(&self.volume, &self.roots, |root| {
            if to_u64(list.len()) >= self.limits.inodes_max {
                return Err(Error::Limit("subvolumes of one file system"));
            }
            list.push(root);
            Ok(())
        })?;
        let paths = list.iter().map(|root| self.path(root.tree.id));
        let paths = paths.collect::<Result<Vec<_>>>()?;
        Ok(list
            .into_iter()
            .zip(paths)
            .map(|(root, path)| SubvolumeInfo::new(&root, path))
            .collect())
    }

    /// Checks that all these bytes have checksums.
    pub(crate) fn check_checksums(&self, at: Logical, len: u64) -> Result<()> {
        match &self.checksums {
            Some(tree) => csum_tree::check_presence(&self.volume, tree, at, len),
            None => Ok(()), // reported once, not for each file
        }
    }

    /// Whether any of these bytes has a checksum.
    pub(crate) fn has_checksums(&self, at: Logical, len: u64) -> Result<bool> {
        match &self.checksums {
            Some(tree) => csum_tree::has_any(&self.volume, tree, at, len),
            None => Ok(false),
        }
    }

    /// The path of a subvolume from the top level; `None` if no path leads to it.
    fn path(&self, id: u64) -> Result<Option<Vec<u8>>> {
        self.path_in(id, object::FIRST_FREE)
    }

    /// A path of an inode in a subvolume, from the top level; `None` if no path leads to it.
    pub(crate) fn path_in(&self, id: u64, inode: u64) -> Result<Option<Vec<u8>>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let (mut id, mut inode) = (id, inode);
        loop {
            let Some(root) = TreeRoot::find(&self.volume, &self.roots, id)? else {
                return Ok(None);
            };
            while inode != object::FIRST_FREE {
                let [first, last] = [0, u64::MAX].map(|at| Key::new(inode, item::INODE_REF, at));
                let cursor = root.tree.range(&self.volume, first, last)?;
                let Some(item) = cursor.item_of(inode, item::INODE_REF) else {
                    return Ok(None);
                };
                let mut first = None;
                for_each_name(&item, |reference| {
                    first.get_or_insert((reference.name.to_vec(), reference.parent));
                    Ok(())
                })?;
                let Some((name, parent)) = first else {
                    return Ok(None);
                };
                names.push(name);
                inode = parent;
                self.check_depth(names.len())?;
            }
            if id == object::FS_TREE {
                break;
            }
            let Some(place) = subvolume::place(&self.volume, &self.roots, id)? else {
                return Ok(None);
            };
            names.push(place.name.into_vec());
            self.check_depth(names.len())?;
            (id, inode) = (place.parent, place.dir);
        }
        names.reverse();
        Ok(Some(names.join(&b'/')))
    }

    fn check_depth(&self, depth: usize) -> Result<()> {
        if depth > to_usize(self.limits.depth_max) {
            return Err(Error::Limit("directories above a subvolume"));
        }
        Ok(())
    }
}

/// Description of a subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumeInfo {
    /// Its ID: 5 for the top level, others starting at 256.
    pub id: u64,
    /// Its path from the top level; `None` if no path leads to it.
    pub path: Option<Vec<u8>>,
    /// The transaction of its last change.
    pub generation: u64,
    /// The transaction of its last change, as its root item records it: the one that a send stream
    /// names.
    pub ctransid: u64,
    /// It is read-only.
    pub is_read_only: bool,
    /// It is being deleted and is no longer complete.
    pub is_deleted: bool,
    /// Its own UUID; `None` for very old subvolumes.
    pub uuid: Option<[u8; 16]>,
    /// The UUID of the subvolume that it is a snapshot of.
    pub parent_uuid: Option<[u8; 16]>,
    /// The UUID of the subvolume that was sent and received as this one.
    pub received_uuid: Option<[u8; 16]>,
    /// The transaction that the subvolume had where it was sent.
    pub stransid: u64,
    /// The transaction in which it was received.
    pub rtransid: u64,
    /// When it was received.
    pub rtime: Time,
}

impl SubvolumeInfo {
    fn new(root: &TreeRoot, path: Option<Vec<u8>>) -> SubvolumeInfo {
        let uuid = |uuid: [u8; 16]| (uuid != [0; 16]).then_some(uuid);
        SubvolumeInfo {
            id: root.tree.id,
            path,
            generation: root.tree.generation.0,
            ctransid: root.ctransid.0,
            is_read_only: root.flags & raw::ROOT_READ_ONLY != 0,
            is_deleted: root.refs == 0,
            uuid: uuid(root.uuid),
            parent_uuid: uuid(root.parent_uuid),
            received_uuid: uuid(root.received_uuid),
            stransid: root.stransid.0,
            rtransid: root.rtransid.0,
            rtime: root.rtime,
        }
    }
}

/// The chunks and devices, and whether blocks that may list more of them cannot be read.
fn read_chunks(volume: &Volume, tree: &Tree) -> Result<(ChunkMap, Vec<DeviceInfo>, bool)> {
    let superblock = &volume.superblock;
    let mut chunks = volume.space.chunks.clone();
    let mut devices: Vec<DeviceInfo> = Vec::new();
    let mut cursor = tree.readable(volume, Key::MIN, Key::MAX)?;
    while let Some(item) = cursor.item() {
        match item.key.kind {
            item::DEV_ITEM => {
                let device = parse_device(&item)?;
                if item.key.objectid != object::DEV_ITEMS || device.id != item.key.offset {
                    return Err(item.corrupt("device has the wrong key", item.key.offset));
                }
                devices.push(device);
            }
            item::CHUNK_ITEM => {
                let (sectorsize, incompat) = (superblock.sectorsize, superblock.incompat);
                let chunk = Chunk::parse(item.key, item.data, item.at, sectorsize, incompat)?;
                chunks.add(chunk, item.at)?;
            }
            _ => {}
        }
        cursor.advance()?;
    }
    Ok((chunks, devices, !cursor.damage().is_empty()))
}

fn parse_device(item: &TreeItem<'_>) -> Result<DeviceInfo> {
    use zerocopy::FromBytes;
    match raw::DevItem::ref_from_bytes(item.data) {
        Ok(raw) => Ok(DeviceInfo::parse(raw)),
        Err(_) => Err(item.corrupt("device item's size is wrong", to_u64(item.data.len()))),
    }
}
