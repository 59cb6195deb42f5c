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
/// Reads the state of the last commit. After a crash, a log tree may hold later writes, which the kernel replays and
/// this reader does not; see [`Btrfs::has_log`].
pub struct Btrfs {
    pub(crate) volume: Volume,
    pub(crate) chunk_tree: Tree,
    pub(crate) roots: Tree,
    pub(crate) checksums: Option<Tree>,
    devices: Vec<Device>,
    limits: Limits,
    store: StoreId,
}

impl Btrfs {
    /// Opens the file system on these devices. Data on missing devices is read from other copies, if there are any.
    ///
    /// # Errors
    /// Fails if a source cannot be read, if the sources are not devices of one file system, or if they break the
    /// format.
    pub fn open(sources: Vec<Box<dyn ReadAt>>) -> Result<Btrfs> {
        Self::open_with(sources, Limits::default())
    }

    /// Like [`Btrfs::open`], with the given limits.
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

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.volume.superblock
    }

    /// The map from logical addresses to devices.
    pub fn chunks(&self) -> &ChunkMap {
        &self.volume.space.chunks
    }

    /// All devices of the file system, including missing ones.
    pub fn devices(&self) -> &[Device] {
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

    /// Whether a crash left writes in a log tree that are not part of the last commit.
    pub fn has_log(&self) -> bool {
        self.volume.superblock.log_root.is_some()
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

    /// A subvolume as a tree of files, including nested subvolumes, as the kernel shows it when mounted.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no subvolume has this ID; also fails if its root item is invalid.
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

    /// The ID of the subvolume at a path from the top level.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the path does not exist; [`Error::InvalidInput`] if it leads to another kind of file.
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

/// Description of a subvolume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubvolumeInfo {
    /// Its ID: 5 for the top level, others starting at 256.
    pub id: u64,
    /// Its path from the top level; `None` if no path leads to it.
    pub path: Option<Vec<u8>>,
    /// The transaction of its last change.
    pub generation: u64,
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
