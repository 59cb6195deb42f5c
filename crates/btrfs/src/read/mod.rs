//! An image, its devices and its subvolumes.

mod content;
mod files;
mod table;

use std::sync::Arc;

use tree::{Error, FileSystem, Limits, ReadAt, Result, StoreId};

use crate::chunk::{Chunk, ChunkMap};
use crate::csum_tree;
use crate::dir;
use crate::inode::for_each_ref;
use crate::key::{Key, Logical, item, object};
use crate::node::Item;
use crate::raw;
use crate::subvolume::{self, Root};
use crate::superblock::{Device, Superblock};
use crate::tree::Tree;
use crate::volume::Volume;

pub use files::Subvolume;
pub(crate) use table::Resolved;

/// A btrfs file system, open for reading.
///
/// What is read is the state of the last commit. After a crash there may be more in a log tree, which the kernel replays
/// and this does not; see [`Btrfs::has_log`].
pub struct Btrfs {
    pub(crate) volume: Volume,
    pub(crate) chunk_tree: Tree,
    pub(crate) roots: Tree,
    checksums: Option<Tree>,
    devices: Vec<Device>,
    limits: Limits,
    store: StoreId,
}

impl Btrfs {
    /// Opens the file system whose devices these are. What is on those that are missing is read from elsewhere, as far as
    /// there are copies.
    ///
    /// # Errors
    /// A source cannot be read; they are no devices of one file system, or break the format.
    pub fn open(sources: Vec<Box<dyn ReadAt>>) -> Result<Btrfs> {
        Self::open_with(sources, Limits::default())
    }

    /// As [`Btrfs::open`], with other limits.
    ///
    /// # Errors
    /// As for [`Btrfs::open`].
    pub fn open_with(sources: Vec<Box<dyn ReadAt>>, limits: Limits) -> Result<Btrfs> {
        let mut volume = Volume::open(sources)?;
        let superblock = &volume.superblock;
        let (root, level, generation) = superblock.chunk_root;
        let chunk_tree = Tree {
            id: object::CHUNK_TREE,
            root,
            level,
            generation,
        };
        let (root, level) = superblock.root;
        let generation = superblock.generation;
        let roots = Tree {
            id: object::ROOT_TREE,
            root,
            level,
            generation,
        };
        let (chunks, devices) = read_chunks(&volume, &chunk_tree)?;
        volume.space.chunks = chunks;
        let checksums = Root::find(&volume, &roots, object::CSUM_TREE)?.map(|root| root.tree);
        Ok(Btrfs {
            volume,
            chunk_tree,
            roots,
            checksums,
            devices,
            limits,
            store: StoreId::new(),
        })
    }

    /// What the file system says of itself.
    pub fn superblock(&self) -> &Superblock {
        &self.volume.superblock
    }

    /// Where its address space lies.
    pub fn chunks(&self) -> &ChunkMap {
        &self.volume.space.chunks
    }

    /// All its devices, also those that are missing.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The numbers of the devices that are there.
    pub fn present_devices(&self) -> impl Iterator<Item = u64> {
        self.volume
            .space
            .devices()
            .iter()
            .map(|open| open.device.id)
    }

    /// Whether a crash left writes in a log that are not part of the last commit.
    pub fn has_log(&self) -> bool {
        self.volume.superblock.log_root.is_some()
    }

    /// The number of the subvolume that is mounted when none is named.
    ///
    /// # Errors
    /// The tree of trees cannot be read.
    pub fn default_subvolume(&self) -> Result<u64> {
        dir::default_subvolume(&self.volume, &self.roots)
    }

    /// All subvolumes, the top level and snapshots included, by ascending number.
    ///
    /// # Errors
    /// The tree of trees, or a directory on the way to a subvolume, cannot be read.
    pub fn subvolumes(&self) -> Result<Vec<SubvolumeInfo>> {
        let mut list = Vec::new();
        subvolume::for_each(&self.volume, &self.roots, |root| {
            if list.len() as u64 >= self.limits.inodes_max {
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

    /// Whether there are checksums for all these bytes.
    pub(crate) fn check_checksums(&self, at: Logical, len: u64) -> Result<()> {
        match &self.checksums {
            Some(tree) => csum_tree::check_presence(&self.volume, tree, at, len),
            None => Ok(()), // said once, not for each file
        }
    }

    /// Whether there is a checksum for any of these bytes.
    pub(crate) fn has_checksums(&self, at: Logical, len: u64) -> Result<bool> {
        match &self.checksums {
            Some(tree) => csum_tree::has_any(&self.volume, tree, at, len),
            None => Ok(false),
        }
    }

    /// The path of a subvolume from the top level; `None` when it is seen nowhere.
    fn path(&self, id: u64) -> Result<Option<Vec<u8>>> {
        self.path_in(id, object::FIRST_FREE)
    }

    /// A path of an inode in a subvolume from the top level; `None` when it is seen nowhere.
    pub(crate) fn path_in(&self, id: u64, inode: u64) -> Result<Option<Vec<u8>>> {
        let mut names: Vec<Vec<u8>> = Vec::new();
        let (mut id, mut inode) = (id, inode);
        loop {
            let Some(root) = Root::find(&self.volume, &self.roots, id)? else {
                return Ok(None);
            };
            while inode != object::FIRST_FREE {
                let cursor = root
                    .tree
                    .seek(&self.volume, Key::new(inode, item::INODE_REF, 0))?;
                let Some(item) = cursor.item_of(inode, item::INODE_REF) else {
                    return Ok(None);
                };
                let mut first = None;
                for_each_ref(&item, |reference| {
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
        if depth > self.limits.depth_max as usize {
            return Err(Error::Limit("directories above a subvolume"));
        }
        Ok(())
    }

    /// A subvolume as a tree of files, with those that are nested in it, as the kernel shows it when it is mounted.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no subvolume of that number; or its root item is wrong.
    pub fn subvolume(self: &Arc<Self>, id: u64) -> Result<Subvolume> {
        let root = Root::find(&self.volume, &self.roots, id)?;
        let root = root
            .filter(|_| crate::key::is_file_tree(id))
            .ok_or(Error::NotFound)?;
        if root.refs == 0 {
            return Err(Error::NotFound);
        }
        Subvolume::new(self, root.tree)
    }

    /// The number of the subvolume at a path from the top level.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is none; [`Error::InvalidInput`] when another file is there.
    pub fn find_subvolume(self: &Arc<Self>, path: &[u8]) -> Result<u64> {
        let top = self.subvolume(object::FS_TREE)?;
        let mut ino = top.root();
        for name in path
            .split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty())
        {
            ino = top.lookup(ino, name)?.ino;
        }
        match top.resolve(ino)? {
            Resolved::Inode(tree, object::FIRST_FREE) => Ok(tree.id),
            _ => Err(Error::InvalidInput("it is no subvolume")),
        }
    }
}

/// What is known of a subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumeInfo {
    /// Its number: 5 for the top level, others from 256 on.
    pub id: u64,
    /// Its path from the top level; `None` when it is seen nowhere.
    pub path: Option<Vec<u8>>,
    /// Of its last change.
    pub generation: u64,
    /// It may not be changed.
    pub is_read_only: bool,
    /// It is being deleted, and no longer whole.
    pub is_deleted: bool,
    /// Its own UUID; `None` for very old ones.
    pub uuid: Option<[u8; 16]>,
    /// That of the subvolume of which it is a snapshot.
    pub parent_uuid: Option<[u8; 16]>,
    /// That of the subvolume which was sent and received as this one.
    pub received_uuid: Option<[u8; 16]>,
}

impl SubvolumeInfo {
    fn new(root: &Root, path: Option<Vec<u8>>) -> SubvolumeInfo {
        let uuid = |uuid: [u8; 16]| (uuid != [0; 16]).then_some(uuid);
        SubvolumeInfo {
            id: root.tree.id,
            path,
            generation: root.tree.generation.0,
            is_read_only: root.flags & raw::ROOT_READ_ONLY != 0,
            is_deleted: root.refs == 0,
            uuid: uuid(root.uuid),
            parent_uuid: uuid(root.parent_uuid),
            received_uuid: uuid(root.received_uuid),
        }
    }
}

fn read_chunks(volume: &Volume, tree: &Tree) -> Result<(ChunkMap, Vec<Device>)> {
    let superblock = &volume.superblock;
    let mut chunks = volume.space.chunks.clone();
    let mut devices: Vec<Device> = Vec::new();
    let mut cursor = tree.seek(volume, Key::MIN)?;
    while let Some(item) = cursor.item() {
        match item.key.kind {
            item::DEV_ITEM => {
                let device = parse_device(&item)?;
                if item.key.objectid != object::DEV_ITEMS || device.id != item.key.offset {
                    return Err(item.corrupt("device has another one's key", item.key.offset));
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
    Ok((chunks, devices))
}

fn parse_device(item: &Item<'_>) -> Result<Device> {
    use zerocopy::FromBytes;
    match raw::DevItem::ref_from_bytes(item.data) {
        Ok(raw) => Ok(Device::parse(raw)),
        Err(_) => Err(item.corrupt("device item's size is wrong", item.data.len() as u64)),
    }
}
