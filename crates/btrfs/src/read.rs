//! An image as trees of files.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use tree::{
    Corrupt, DirEntry, Encoding, Error, Extent, ExtentId, ExtentKind, FileAttributes, FileKind,
    FileSystem, Ino, Inventory, Limits, Metadata, ReadAt, Result, Xattr,
};

use crate::chunk::{Chunk, ChunkMap};
use crate::csum_tree;
use crate::dir::{self, Target};
use crate::extent::{Body, FileExtent};
use crate::inode::{Inode, for_each_ref};
use crate::key::{Key, Logical, item, object};
use crate::node::Item;
use crate::options::{NewSubvolume, Received};
use crate::raw;
use crate::subvolume::{self, Root};
use crate::superblock::{Device, Superblock};
use crate::tree::Tree;
use crate::volume::Volume;

/// Extents that one call of [`FileSystem::extents`] gives.
const EXTENTS_MAX: usize = 256;
/// Bytes of a link's target: those of a path.
const LINK_BYTES_MAX: u64 = 4096;

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
        volume.chunks = chunks;
        let checksums = Root::find(&volume, &roots, object::CSUM_TREE)?.map(|root| root.tree);
        Ok(Btrfs {
            volume,
            chunk_tree,
            roots,
            checksums,
            devices,
            limits,
        })
    }

    /// What the file system says of itself.
    pub fn superblock(&self) -> &Superblock {
        &self.volume.superblock
    }

    /// Where its address space lies.
    pub fn chunks(&self) -> &ChunkMap {
        &self.volume.chunks
    }

    /// All its devices, also those that are missing.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The numbers of the devices that are there.
    pub fn present_devices(&self) -> impl Iterator<Item = u64> {
        self.volume.devices().iter().map(|open| open.device.id)
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
        let mut names: Vec<Vec<u8>> = Vec::new();
        let mut id = id;
        while id != object::FS_TREE {
            let Some(place) = subvolume::place(&self.volume, &self.roots, id)? else {
                return Ok(None);
            };
            let Some(root) = Root::find(&self.volume, &self.roots, place.parent)? else {
                return Ok(None);
            };
            names.push(place.name.into_vec());
            let mut dir = place.dir;
            while dir != object::FIRST_FREE {
                let cursor = root
                    .tree
                    .seek(&self.volume, Key::new(dir, item::INODE_REF, 0))?;
                let Some(item) = cursor.item_of(dir, item::INODE_REF) else {
                    return Ok(None);
                };
                for_each_ref(&item, |reference| {
                    names.push(reference.name.to_vec());
                    dir = reference.parent;
                    Ok(())
                })?;
                self.check_depth(names.len())?;
            }
            self.check_depth(names.len())?;
            id = place.parent;
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
        let mut table = Table::default();
        let top = table.subvolume(root.tree)?;
        Ok(Subvolume {
            btrfs: Arc::clone(self),
            root: Ino(top.0 | object::FIRST_FREE),
            id,
            table: RwLock::new(table),
        })
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
    let mut chunks = volume.chunks.clone();
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

/// A subvolume, and all that are nested in it, as one tree of files.
///
/// Like the kernel, it shows a subvolume that lies in a directory with its content, and where a snapshot has only the name
/// of one, an empty directory. Memory grows with the number of subvolumes that were met, not with that of files.
pub struct Subvolume {
    btrfs: Arc<Btrfs>,
    root: Ino,
    id: u64,
    table: RwLock<Table>,
}

/// Of an [`Ino`], the bits that are the inode's number in its subvolume; those above are the subvolume's index, from 1
/// on. Index 0 is for the empty directories in snapshots.
const INODE_BITS: u32 = 44;

/// The subvolumes that were met.
#[derive(Default)]
struct Table {
    trees: Vec<Tree>,
    by_id: HashMap<u64, u64>,
    /// The directories that each empty directory is in, and its name there.
    empty: Vec<(Ino, Box<[u8]>)>,
    by_place: HashMap<(Ino, Box<[u8]>), u64>,
}

impl Table {
    /// The index bits of a subvolume.
    fn subvolume(&mut self, tree: Tree) -> Result<Ino> {
        if let Some(&index) = self.by_id.get(&tree.id) {
            return Ok(Ino(index << INODE_BITS));
        }
        self.trees.push(tree);
        let index = self.trees.len() as u64;
        if index >= 1 << (64 - INODE_BITS) {
            return Err(Error::Limit("subvolumes in one tree"));
        }
        self.by_id.insert(tree.id, index);
        Ok(Ino(index << INODE_BITS))
    }

    fn empty(&mut self, dir: Ino, name: &[u8]) -> Ino {
        let empty = &mut self.empty;
        let index = self.by_place.entry((dir, name.into())).or_insert_with(|| {
            empty.push((dir, name.into()));
            empty.len() as u64 - 1
        });
        Ino(*index)
    }
}

pub(crate) enum Resolved {
    Inode(Tree, u64),
    /// An empty directory, and the directory that it is in.
    Empty(Ino),
}

/// A part of a file without gaps: `skip` bytes of `body`'s part come before it.
struct Part<'a> {
    offset: u64,
    len: u64,
    skip: u64,
    body: Body<'a>,
    /// Bytes that the inline content says that it decodes to.
    ram_bytes: u64,
}

impl Subvolume {
    /// Its number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The file system that it is in.
    pub fn btrfs(&self) -> &Arc<Btrfs> {
        &self.btrfs
    }

    /// The subvolumes in this tree, each with its number, as options for a copy: itself, with an empty path, and those that
    /// are nested in it as far as the inventory, which is of this tree or what is left of it, has their directories.
    ///
    /// # Errors
    /// The tree of trees cannot be read.
    pub fn subvolumes_in(&self, inventory: &Inventory) -> Result<Vec<(u64, NewSubvolume)>> {
        let mut list = Vec::new();
        for file in inventory.files() {
            if inventory.kind(file) != FileKind::Directory {
                continue;
            }
            // Files that others have added to the tree are none of ours.
            let Ok(Resolved::Inode(tree, object::FIRST_FREE)) = self.resolve(inventory.ino(file))
            else {
                continue;
            };
            let root = Root::find(self.volume(), &self.btrfs.roots, tree.id)?;
            let Some(root) = root else { continue };
            let uuid = |uuid: [u8; 16]| (uuid != [0; 16]).then_some(uuid);
            let received = |uuid| Received {
                uuid,
                stransid: root.stransid.0,
                rtransid: root.rtransid.0,
                stime: root.stime,
                rtime: root.rtime,
            };
            let subvolume = NewSubvolume {
                path: inventory.path(inventory.first_name(file)),
                is_read_only: root.flags & raw::ROOT_READ_ONLY != 0,
                uuid: uuid(root.uuid),
                parent_uuid: uuid(root.parent_uuid),
                received: uuid(root.received_uuid).map(received),
                otime: Some(root.otime),
            };
            list.push((tree.id, subvolume));
        }
        Ok(list)
    }

    fn volume(&self) -> &Volume {
        &self.btrfs.volume
    }

    pub(crate) fn resolve(&self, ino: Ino) -> Result<Resolved> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let inode = ino.0 & ((1 << INODE_BITS) - 1);
        match (ino.0 >> INODE_BITS) as usize {
            0 => {
                let place = table.empty.get(inode as usize).ok_or(Error::NotFound)?;
                Ok(Resolved::Empty(place.0))
            }
            index => {
                let tree = table.trees.get(index - 1).ok_or(Error::NotFound)?;
                Ok(Resolved::Inode(*tree, inode))
            }
        }
    }

    fn inode_in(&self, tree: &Tree, number: u64) -> Result<Inode> {
        let key = Key::new(number, item::INODE_ITEM, 0);
        let cursor = tree.find(self.volume(), key)?;
        let cursor = cursor.ok_or(Error::Corrupt(Corrupt {
            what: "inode has no item",
            at: tree.root.0,
            got: number,
        }))?;
        let item = cursor.item().expect("it was found");
        Inode::parse(&item, &self.volume().superblock)
    }

    /// A regular file, or a link.
    fn content(&self, ino: Ino) -> Result<(Tree, u64, Inode)> {
        let Resolved::Inode(tree, number) = self.resolve(ino)? else {
            return Err(Error::IsADirectory);
        };
        let inode = self.inode_in(&tree, number)?;
        match inode.kind {
            FileKind::Regular | FileKind::Symlink => Ok((tree, number, inode)),
            FileKind::Directory => Err(Error::IsADirectory),
            _ => Err(Error::InvalidInput("the file has no content")),
        }
    }

    fn regular(&self, ino: Ino) -> Result<(Tree, u64, Inode)> {
        let content = self.content(ino)?;
        if content.2.kind != FileKind::Regular {
            return Err(Error::InvalidInput("not a regular file"));
        }
        Ok(content)
    }

    /// The tree that verifies what this file holds.
    fn checksums(&self, inode: &Inode) -> Result<Option<&Tree>> {
        if !inode.has_checksums() {
            return Ok(None);
        }
        match &self.btrfs.checksums {
            Some(tree) => Ok(Some(tree)),
            None => Err(Error::Corrupt(Corrupt {
                what: "there is no tree of checksums",
                at: self.btrfs.roots.root.0,
                got: object::CSUM_TREE,
            })),
        }
    }

    /// Calls `each` with the parts of a file from the one that covers `from` on, until it returns `false`.
    fn for_each_part(
        &self,
        tree: &Tree,
        number: u64,
        size: u64,
        from: u64,
        mut each: impl FnMut(Part<'_>) -> Result<bool>,
    ) -> Result<()> {
        let volume = self.volume();
        let sectorsize = volume.superblock.sectorsize;
        let mut cursor = tree.seek_back(volume, Key::new(number, item::EXTENT_DATA, from))?;
        let is_before =
            |item: Item<'_>| (item.key.objectid, item.key.kind) < (number, item::EXTENT_DATA);
        if cursor.item().is_some_and(is_before) {
            cursor.advance()?;
        }
        let mut at = from;
        let mut end_before = 0;
        while at < size {
            let item = cursor.item_of(number, item::EXTENT_DATA);
            let extent = item.map(|item| FileExtent::parse(&item, sectorsize).map(|e| (e, item)));
            let extent = extent.transpose()?;
            let hole_end = extent
                .as_ref()
                .map_or(size, |(extent, _)| extent.offset.min(size));
            if let Some((extent, item)) = &extent {
                if extent.offset < end_before {
                    return Err(item.corrupt("file extents overlap", extent.offset));
                }
                end_before = extent.offset + extent.len;
            }
            if hole_end > at {
                let hole = Part {
                    offset: at,
                    len: hole_end - at,
                    skip: 0,
                    body: Body::Hole,
                    ram_bytes: 0,
                };
                at = hole_end;
                if !each(hole)? {
                    return Ok(());
                }
                if at == size {
                    return Ok(());
                }
            }
            let Some((extent, _)) = extent else {
                return Ok(());
            };
            let end = (extent.offset + extent.len).min(size);
            if end > at {
                let part = Part {
                    offset: at,
                    len: end - at,
                    skip: at - extent.offset,
                    body: extent.body,
                    ram_bytes: extent.len,
                };
                at = end;
                if !each(part)? {
                    return Ok(());
                }
            }
            cursor.advance()?;
        }
        Ok(())
    }

    /// Fills `buf` with the part's bytes from `skip` on.
    fn read_part(
        &self,
        body: &Body<'_>,
        ram_bytes: u64,
        skip: u64,
        checksums: Option<&Tree>,
        buf: &mut [u8],
    ) -> Result<()> {
        let volume = self.volume();
        match *body {
            Body::Hole => buf.fill(0),
            Body::Stored {
                is_preallocated: true,
                ..
            } => buf.fill(0),
            Body::Stored { extent, offset, .. } => {
                extent.read(volume, checksums, offset + skip, buf)?;
            }
            Body::Inline {
                compression: None,
                stored,
                ..
            } => {
                let from = skip as usize;
                buf.copy_from_slice(&stored[from..from + buf.len()]);
            }
            Body::Inline {
                compression: Some(compression),
                stored,
                at,
            } => {
                let sectorsize = volume.superblock.sectorsize;
                // A newer kernel encodes a whole sector, whatever the file's size.
                let room = (ram_bytes as usize).next_multiple_of(sectorsize as usize);
                let mut content = vec![0; room];
                volume.with_worker(|worker| {
                    let decoder = &mut worker.decoder;
                    compression.decode(decoder, sectorsize, stored, &mut content, at)
                })?;
                let from = skip as usize;
                buf.copy_from_slice(&content[from..from + buf.len()]);
            }
        }
        Ok(())
    }

    fn read(&self, file: &(Tree, u64, Inode), offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (tree, number, inode) = file;
        let wanted = inode.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let buf = &mut buf[..wanted];
        if wanted == 0 {
            return Ok(0);
        }
        let checksums = self.checksums(inode)?;
        let mut done = 0;
        let end = offset + wanted as u64;
        self.for_each_part(tree, *number, inode.size, offset, |part| {
            let len = (part.len.min(end - part.offset)) as usize;
            let dst = &mut buf[done..done + len];
            self.read_part(&part.body, part.ram_bytes, part.skip, checksums, dst)?;
            done += len;
            Ok(done < wanted)
        })?;
        buf[done..].fill(0);
        Ok(wanted)
    }

    fn entry(
        &self,
        tree: &Tree,
        dir: u64,
        dir_ino: Ino,
        entry: &dir::Entry<'_>,
    ) -> Result<DirEntry> {
        let ino = match entry.target {
            Target::Inode(number) => {
                if number >> INODE_BITS != 0 {
                    return Err(Error::Limit("inode numbers of a btrfs subvolume"));
                }
                Ino(dir_ino.0 >> INODE_BITS << INODE_BITS | number)
            }
            Target::Subvolume(id) => self.nested(tree, dir, dir_ino, id, entry.name)?,
        };
        Ok(DirEntry {
            name: entry.name.into(),
            ino,
            kind: entry.kind,
        })
    }

    /// The root directory of a subvolume in a directory, or an empty directory if it is not really there.
    fn nested(&self, tree: &Tree, dir: u64, dir_ino: Ino, id: u64, name: &[u8]) -> Result<Ino> {
        let (volume, roots) = (self.volume(), &self.btrfs.roots);
        let mut root = None;
        if subvolume::is_seen_at(volume, roots, tree.id, id, dir, name)? {
            root = Root::find(volume, roots, id)?.filter(|root| root.refs > 0);
        }
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        match root {
            Some(root) => Ok(Ino(table.subvolume(root.tree)?.0 | object::FIRST_FREE)),
            None => Ok(table.empty(dir_ino, name)),
        }
    }
}

/// A link's target, which must be one.
fn check_target(target: &[u8], tree: &Tree, number: u64) -> Result<()> {
    if target.is_empty() || target.contains(&0) {
        return Err(Error::Corrupt(Corrupt {
            what: "link's target cannot be one",
            at: tree.root.0,
            got: number,
        }));
    }
    Ok(())
}

impl FileSystem for Subvolume {
    fn root(&self) -> Ino {
        self.root
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        match self.resolve(ino)? {
            Resolved::Inode(tree, number) => Ok(self.inode_in(&tree, number)?.metadata()),
            Resolved::Empty(dir) => {
                let parent = self.metadata(dir)?;
                Ok(Metadata {
                    permissions: 0o755,
                    attributes: FileAttributes::default(),
                    ..parent
                })
            }
        }
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        let Resolved::Inode(tree, number) = self.resolve(dir)? else {
            return Ok(Vec::new());
        };
        if self.inode_in(&tree, number)?.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let mut entries = Vec::new();
        let mut cursor = tree.seek(self.volume(), Key::new(number, item::DIR_INDEX, 0))?;
        while let Some(item) = cursor.item_of(number, item::DIR_INDEX) {
            dir::for_each_entry(&item, |entry| {
                entries.push(self.entry(&tree, number, dir, &entry)?);
                Ok(())
            })?;
            cursor.advance()?;
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        if entries.windows(2).any(|pair| pair[0].name == pair[1].name) {
            return Err(Error::Corrupt(Corrupt {
                what: "name comes twice in a directory",
                at: tree.root.0,
                got: number,
            }));
        }
        Ok(entries)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        let Resolved::Inode(tree, number) = self.resolve(dir)? else {
            return Err(Error::NotFound);
        };
        if self.inode_in(&tree, number)?.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let found = dir::find(self.volume(), &tree, number, name)?;
        let (target, kind) = found.ok_or(Error::NotFound)?;
        self.entry(&tree, number, dir, &dir::Entry { name, target, kind })
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        const NO_LINK: Error = Error::InvalidInput("not a symbolic link");
        let file = match self.content(link) {
            Err(Error::IsADirectory | Error::InvalidInput(_)) => return Err(NO_LINK),
            file => file?,
        };
        let (tree, number, inode) = &file;
        if inode.kind != FileKind::Symlink {
            return Err(NO_LINK);
        }
        if inode.size > LINK_BYTES_MAX {
            return Err(Error::Corrupt(Corrupt {
                what: "link's target is longer than a path",
                at: tree.root.0,
                got: inode.size,
            }));
        }
        let mut target = vec![0; inode.size as usize];
        self.read(&file, 0, &mut target)?;
        check_target(&target, tree, *number)?;
        Ok(target)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        let Resolved::Inode(tree, number) = self.resolve(ino)? else {
            return Ok(Vec::new());
        };
        let mut xattrs = Vec::new();
        let mut cursor = tree.seek(self.volume(), Key::new(number, item::XATTR_ITEM, 0))?;
        while let Some(item) = cursor.item_of(number, item::XATTR_ITEM) {
            dir::for_each_xattr(&item, |name, value| {
                xattrs.push(Xattr {
                    name: name.into(),
                    value: value.into(),
                });
                Ok(())
            })?;
            cursor.advance()?;
        }
        xattrs.sort_unstable();
        if xattrs.windows(2).any(|pair| pair[0].name == pair[1].name) {
            return Err(Error::Corrupt(Corrupt {
                what: "attribute comes twice",
                at: tree.root.0,
                got: number,
            }));
        }
        Ok(xattrs)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        let (tree, number, inode) = self.regular(file)?;
        let sector_bytes = self.volume().superblock.sectorsize;
        let mut extents: Vec<Extent> = Vec::new();
        // The caller wants the whole of the extent that covers `from`, so what was skipped of it is given back.
        self.for_each_part(&tree, number, inode.size, from, |part| {
            let (offset, len) = (part.offset - part.skip, part.len + part.skip);
            let (kind, id) = match part.body {
                Body::Hole
                | Body::Stored {
                    is_preallocated: true,
                    ..
                } => (ExtentKind::Hole, None),
                Body::Inline {
                    compression: None, ..
                } => (ExtentKind::Plain { stored_offset: 0 }, None),
                Body::Inline {
                    compression: Some(compression),
                    stored,
                    ..
                } => {
                    let encoding = Encoding {
                        algorithm: compression.algorithm(sector_bytes),
                        stored_len: stored.len() as u64,
                        unencoded_len: part.ram_bytes,
                        unencoded_offset: 0,
                    };
                    (ExtentKind::Encoded(encoding), None)
                }
                Body::Stored {
                    extent,
                    offset: begin,
                    ..
                } => {
                    let kind = match extent.compression {
                        None => ExtentKind::Plain {
                            stored_offset: begin,
                        },
                        Some(compression) => ExtentKind::Encoded(Encoding {
                            algorithm: compression.algorithm(sector_bytes),
                            stored_len: extent.len,
                            unencoded_len: extent.ram_bytes,
                            unencoded_offset: begin,
                        }),
                    };
                    (kind, Some(ExtentId(extent.at.0)))
                }
            };
            match extents.last_mut() {
                Some(last) if last.kind == ExtentKind::Hole && kind == ExtentKind::Hole => {
                    last.len += len;
                }
                _ => extents.push(Extent {
                    offset,
                    len,
                    kind,
                    id,
                }),
            }
            Ok(extents.len() < EXTENTS_MAX)
        })?;
        Ok(extents)
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let file = self.regular(file)?;
        self.read(&file, offset, buf)
    }

    fn has_stored_extents(&self) -> bool {
        true
    }

    fn read_encoded(&self, file: Ino, extent: &Extent, stored: &mut Vec<u8>) -> Result<()> {
        stored.clear();
        const NOT_OURS: Error = Error::InvalidInput("not an encoded extent of that file");
        let ExtentKind::Encoded(encoding) = extent.kind else {
            return Err(NOT_OURS);
        };
        let (tree, number, inode) = self.regular(file)?;
        let checksums = self.checksums(&inode)?;
        let mut is_found = false;
        self.for_each_part(&tree, number, inode.size, extent.offset, |part| {
            match part.body {
                Body::Inline {
                    compression: Some(_),
                    stored: inline,
                    ..
                } if extent.id.is_none() && inline.len() as u64 == encoding.stored_len => {
                    stored.extend_from_slice(inline);
                    is_found = true;
                }
                Body::Stored {
                    extent: found,
                    is_preallocated: false,
                    ..
                } if Some(ExtentId(found.at.0)) == extent.id
                    && found.compression.is_some()
                    && found.len == encoding.stored_len =>
                {
                    found.read_stored(self.volume(), checksums, stored)?;
                    is_found = true;
                }
                _ => {}
            }
            Ok(false)
        })?;
        if is_found { Ok(()) } else { Err(NOT_OURS) }
    }
}
