//! A subvolume as a tree of files.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use tree::{
    Checksum, DevicePlace, DirEntry, Error, Extent, ExtentId, FileAttributes, FileKind, FileSystem,
    Ino, Inventory, Metadata, Result, Sha256, Storage, Xattr, to_usize, with_metadata,
};

use super::Btrfs;
use super::ino_map::{self, INODE_BITS, InoMap, MappedIno, Resolved};
use super::scan::{LOST_AND_FOUND, TreeScan};
use crate::disk::dir::{self, EntryTarget};
use crate::disk::extent::{ExtentBody, FileExtent};
use crate::disk::inode::{StoredInode, for_each_name};
use crate::disk::key::{Key, is_file_tree, item, object};
use crate::disk::raw;
use crate::disk::subvolume::{self, TreeRoot};
use crate::disk::tree::Tree;
use crate::disk::volume::Volume;
use crate::options::{NewSubvolume, Numbers, Received};

/// Longest link target in bytes: that of a path.
const LINK_BYTES_MAX: u64 = 4096;

/// Why `lost+found` cannot be listed like another directory.
const NAMES_LOST: Error = Error::Inconsistent("their names and directories are lost");

/// An inode with its content.
pub(super) struct FileInode {
    pub(super) tree: Tree,
    pub(super) number: u64,
    pub(super) inode: StoredInode,
}

impl Btrfs {
    /// A subvolume as a tree of files, including nested subvolumes, as the kernel shows it when
    /// mounted.
    ///
    /// # Errors
    /// [`Error::NotFound`] if no subvolume has this ID; also fails if its root item is invalid.
    pub fn subvolume(self: &Arc<Self>, id: u64) -> Result<Subvolume> {
        let root = TreeRoot::find(&self.volume, &self.roots, id)?;
        let root = root.filter(|_| is_file_tree(id)).ok_or(Error::NotFound)?;
        if root.refs == 0 {
            return Err(Error::NotFound);
        }
        Ok(Subvolume::new(self, self.shown(root.tree)?))
    }

    /// The ID of the subvolume at a path from the top level.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the path does not exist; [`Error::InvalidInput`] if it leads to
    /// another kind of file.
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
            _ => Err(Error::InvalidInput("it is not a subvolume")),
        }
    }
}

/// A subvolume and all subvolumes nested in it, as one tree of files.
///
/// Like the kernel, it shows a nested subvolume with its content, and an empty directory where a
/// snapshot contains only a subvolume's name. Memory grows with the number of subvolumes seen, not
/// with the number of files.
pub struct Subvolume {
    btrfs: Arc<Btrfs>,
    root: Ino,
    id: u64,
    has_nested: bool,
    ignores_checksums: bool,
    /// The large IDs of subvolumes, once one of them was seen.
    large: OnceLock<Vec<u64>>,
    /// With the log replayed; without them, the file system's own error is found when they are
    /// needed.
    checksums: Option<Tree>,
    table: RwLock<InoMap>,
    /// Whether files without names are shown.
    pub(super) finds_lost: bool,
    /// What is left of damaged subvolumes, by ID.
    pub(super) scans: Mutex<HashMap<u64, Arc<TreeScan>>>,
}

impl Subvolume {
    pub(super) fn new(btrfs: &Arc<Btrfs>, tree: Tree) -> Subvolume {
        Subvolume {
            btrfs: Arc::clone(btrfs),
            root: Ino(object::FIRST_FREE),
            id: tree.id,
            has_nested: true,
            ignores_checksums: false,
            large: OnceLock::new(),
            checksums: btrfs.shown_checksums().ok().flatten(),
            table: RwLock::new(InoMap::new(tree)),
            finds_lost: false,
            scans: Mutex::default(),
        }
    }

    /// The subvolume alone: nested subvolumes appear as empty directories, as in a snapshot.
    #[must_use]
    pub fn without_nested(self) -> Subvolume {
        Subvolume {
            has_nested: false,
            ..self
        }
    }

    /// The subvolume with data whose checksum does not match, or that has none that can be read, so
    /// that its intact parts can be rescued.
    #[must_use]
    pub fn ignoring_checksums(self) -> Subvolume {
        Subvolume {
            ignores_checksums: true,
            ..self
        }
    }

    /// The subvolume with all files that can be read, for a rescue. A damaged directory without an
    /// inode is listed in its place, with mode 0700 and dated 1970. Files and directories to which
    /// no name leads are in `lost+found` of their subvolume's root directory, named by their inode
    /// numbers. Reading such directories fails, and
    /// [`list_readable`](FileSystem::list_readable) lists them.
    #[must_use]
    pub fn with_lost_files(self) -> Subvolume {
        Subvolume {
            finds_lost: true,
            ..self
        }
    }

    /// Its ID.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The file system that contains it.
    pub fn btrfs(&self) -> &Arc<Btrfs> {
        &self.btrfs
    }

    /// The subvolumes in this tree, each with its ID, as options for a copy: this one, with an
    /// empty path, and the nested ones whose directories are in the inventory, which is of this
    /// tree or of a part of it.
    ///
    /// # Errors
    /// Fails if the root tree cannot be read.
    pub fn subvolumes_in(&self, inventory: &Inventory) -> Result<Vec<(u64, NewSubvolume)>> {
        let mut list = Vec::new();
        for file in inventory.files() {
            if inventory.kind(file) != FileKind::Directory {
                continue;
            }
            // Files that were added to the tree from elsewhere do not belong to this file system.
            let Ok(Resolved::Inode(tree, object::FIRST_FREE)) = self.resolve(inventory.ino(file))
            else {
                continue;
            };
            let root = TreeRoot::find(self.volume(), &self.btrfs.roots, tree.id)?;
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
                numbers: Some(Numbers {
                    id: tree.id,
                    ctransid: root.ctransid.0,
                    otransid: root.otransid.0,
                }),
            };
            list.push((tree.id, subvolume));
        }
        Ok(list)
    }

    /// The names of a file in this subvolume, each with its directory, in the order in which the
    /// image stores them. That of the root directory, which is in another subvolume, is not among
    /// them.
    ///
    /// # Errors
    /// Fails if the names cannot be read.
    pub fn stored_names(&self, ino: Ino) -> Result<Vec<(Ino, Box<[u8]>)>> {
        let Resolved::Inode(tree, number) = self.resolve(ino)? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        let mut cursor = tree.seek(self.volume(), Key::new(number, item::INODE_REF, 0))?;
        while let Some(item) = cursor.item()
            && item.key.objectid == number
        {
            if !matches!(item.key.kind, item::INODE_REF | item::INODE_EXTREF) {
                break;
            }
            for_each_name(&item, |reference| {
                if reference.parent != number {
                    let dir = Ino(ino.0.wrapping_sub(number).wrapping_add(reference.parent));
                    names.push((dir, reference.name.into()));
                }
                Ok(())
            })?;
            cursor.advance()?;
        }
        Ok(names)
    }

    /// The flags of a file's inode, bits of [`inode_flags`](crate::inode_flags).
    ///
    /// # Errors
    /// Fails if the inode cannot be read.
    pub fn stored_flags(&self, ino: Ino) -> Result<u64> {
        match self.resolve(ino)? {
            Resolved::Inode(tree, number) => Ok(self.inode_in(&tree, number)?.flags),
            Resolved::Empty(_) => Ok(0),
        }
    }

    /// The size of a file's inode, which Linux shows of directories, too.
    ///
    /// # Errors
    /// Fails if the inode cannot be read.
    pub fn stored_size(&self, ino: Ino) -> Result<u64> {
        match self.resolve(ino)? {
            Resolved::Inode(tree, number) => Ok(self.inode_in(&tree, number)?.size),
            Resolved::Empty(_) => Ok(0),
        }
    }

    /// The preallocated extent that begins at an offset of a regular file, even beyond the end of
    /// the file: its identity, where in it that part begins, and the part's length. `None` if none
    /// begins there.
    ///
    /// # Errors
    /// Fails if the file's extents cannot be read.
    pub fn stored_preallocation(
        &self,
        ino: Ino,
        offset: u64,
    ) -> Result<Option<(ExtentId, u64, u64)>> {
        let Resolved::Inode(tree, number) = self.resolve(ino)? else {
            return Ok(None);
        };
        let key = Key::new(number, item::EXTENT_DATA, offset);
        let sectorsize = self.volume().superblock.sectorsize;
        let found = tree.get(self.volume(), key, |item| {
            let found = FileExtent::parse(&item, sectorsize)?;
            Ok(match found.body {
                ExtentBody::Stored {
                    extent,
                    offset: begin,
                    is_preallocated: true,
                } => Some((ExtentId(extent.at.0), begin, found.len)),
                _ => None,
            })
        })?;
        Ok(found.flatten())
    }

    /// The SHA-256 of the roots of its tree and of those of the subvolumes in it. Linux replaces a
    /// root with every change of a file, and leaves it as it is when other subvolumes and snapshots
    /// are made, changed or deleted.
    ///
    /// # Errors
    /// The root tree, or a root, cannot be read.
    pub fn digest(&self) -> Result<[u8; 32]> {
        let (btrfs, volume) = (&self.btrfs, self.volume());
        let mut digest = Sha256::new();
        digest.update(&volume.superblock.metadata_uuid);
        let all = btrfs.subvolumes()?;
        let own = all.iter().find(|it| it.id == self.id);
        let own = own.and_then(|it| it.path.as_deref()).unwrap_or_default();
        let is_below = |path: &[u8]| match path.strip_prefix(own) {
            Some([b'/', ..]) => true,
            Some(rest) => own.is_empty() && !rest.is_empty(),
            None => false,
        };
        for info in &all {
            let is_nested = self.has_nested && info.path.as_deref().is_some_and(is_below);
            let is_shown = info.id == self.id || is_nested;
            let Some(root) = TreeRoot::find(volume, &btrfs.roots, info.id)?.filter(|_| is_shown)
            else {
                continue;
            };
            digest.update(&info.id.to_le_bytes());
            digest.update(volume.node(root.tree.root, &root.tree.expected())?.bytes());
        }
        Ok(digest.finish())
    }

    pub(super) fn volume(&self) -> &Volume {
        &self.btrfs.volume
    }

    pub(crate) fn resolve(&self, ino: Ino) -> Result<Resolved> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let found = table.find(ino)?;
        drop(table);
        match found {
            MappedIno::Inode(tree, number) => Ok(Resolved::Inode(tree, number)),
            MappedIno::Empty(dir) => Ok(Resolved::Empty(dir)),
            MappedIno::Unseen(index) => {
                let tree = self.unseen(index)?;
                Ok(Resolved::Inode(tree, ino.0 & ((1 << INODE_BITS) - 1)))
            }
        }
    }

    /// A nested subvolume that was not seen yet: its index is from a number that was given
    /// before.
    fn unseen(&self, index: u64) -> Result<Tree> {
        let large: &[u64] = if ino_map::is_of_large(index) {
            self.large()?
        } else {
            &[]
        };
        let id = ino_map::id_of(index, large);
        let id = id.filter(|&id| self.has_nested && is_file_tree(id));
        let (id, roots) = (id.ok_or(Error::NotFound)?, &self.btrfs.roots);
        let root = TreeRoot::find(self.volume(), roots, id)?.filter(|root| root.refs > 0);
        let deleted = Error::corrupt("subvolume in a directory is deleted", roots.root.0, id);
        let root = root.ok_or(deleted)?;
        let tree = self.btrfs.shown(root.tree)?;
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        table.subvolume(tree, index);
        Ok(tree)
    }

    /// The large IDs of all subvolumes, sorted.
    fn large(&self) -> Result<&[u64]> {
        if let Some(large) = self.large.get() {
            return Ok(large);
        }
        let mut large = Vec::new();
        subvolume::for_each(self.volume(), &self.btrfs.roots, |root| {
            if ino_map::is_large(root.tree.id) {
                large.push(root.tree.id);
            }
            Ok(())
        })?;
        large.sort_unstable();
        large.dedup();
        Ok(self.large.get_or_init(|| large))
    }

    pub(crate) fn inode_in(&self, tree: &Tree, number: u64) -> Result<StoredInode> {
        let key = Key::new(number, item::INODE_ITEM, 0);
        let inode = tree.get(self.volume(), key, |item| {
            StoredInode::parse(&item, &self.volume().superblock)
        })?;
        inode.ok_or(Error::corrupt("inode has no item", tree.root.0, number))
    }

    /// A regular file or a symbolic link.
    fn content(&self, ino: Ino) -> Result<FileInode> {
        let Resolved::Inode(tree, number) = self.resolve(ino)? else {
            return Err(Error::IsADirectory);
        };
        let inode = self.inode_in(&tree, number)?;
        match inode.kind {
            FileKind::Regular | FileKind::Symlink => Ok(FileInode {
                tree,
                number,
                inode,
            }),
            FileKind::Directory => Err(Error::IsADirectory),
            _ => Err(Error::InvalidInput("the file has no content")),
        }
    }

    fn regular(&self, ino: Ino) -> Result<FileInode> {
        let content = self.content(ino)?;
        if content.inode.kind != FileKind::Regular {
            return Err(Error::InvalidInput("not a regular file"));
        }
        Ok(content)
    }

    /// The checksum tree for this file's content.
    pub(super) fn checksums(&self, inode: &StoredInode) -> Result<Option<&Tree>> {
        if !inode.has_checksums() || self.ignores_checksums {
            return Ok(None);
        }
        if self.checksums.is_some() {
            return Ok(self.checksums.as_ref());
        }
        self.btrfs.shown_checksums()?;
        Err(Error::corrupt(
            "there is no checksum tree",
            self.btrfs.roots.root.0,
            object::CSUM_TREE,
        ))
    }

    pub(super) fn entry(
        &self,
        tree: &Tree,
        dir: u64,
        dir_ino: Ino,
        entry: &dir::DirItemEntry<'_>,
    ) -> Result<DirEntry> {
        let ino = match entry.target {
            EntryTarget::Inode(number) => {
                if number >> INODE_BITS != 0 {
                    return Err(Error::Limit("inode numbers of a btrfs subvolume"));
                }
                ino_map::beside(dir_ino, number)
            }
            EntryTarget::Subvolume(id) => self.nested(tree, dir, dir_ino, id, entry.name)?,
        };
        Ok(DirEntry {
            name: entry.name.into(),
            ino,
            kind: entry.kind,
        })
    }

    /// The root directory of a subvolume in a directory, or an empty directory where a snapshot has
    /// only its name.
    fn nested(&self, tree: &Tree, dir: u64, dir_ino: Ino, id: u64, name: &[u8]) -> Result<Ino> {
        let (volume, roots) = (self.volume(), &self.btrfs.roots);
        let table = || self.table.write().unwrap_or_else(PoisonError::into_inner);
        if !self.has_nested || !subvolume::is_seen_at(volume, roots, tree.id, id, dir, name)? {
            return Ok(table().empty(dir_ino, name));
        }
        let large: &[u64] = if ino_map::is_large(id) {
            self.large()?
        } else {
            &[]
        };
        let index = ino_map::index_of(id, large)?;
        let root = TreeRoot::find(volume, roots, id)?.filter(|root| root.refs > 0);
        let Some(root) = root else {
            // Its own path is that of the error, when it is read.
            return Ok(Ino(index << INODE_BITS | object::FIRST_FREE));
        };
        let tree = self.btrfs.shown(root.tree)?;
        Ok(Ino(table().subvolume(tree, index).0 | object::FIRST_FREE))
    }
}

/// The target of a symbolic link; fails for other files.
fn check_target(target: &[u8], tree: &Tree, number: u64) -> Result<()> {
    if target.is_empty() || target.contains(&0) {
        return Err(Error::corrupt(
            "link's target cannot be one",
            tree.root.0,
            number,
        ));
    }
    Ok(())
}

impl FileSystem for Subvolume {
    fn root(&self) -> Ino {
        self.root
    }

    fn storage(&self) -> Storage {
        Storage {
            stored_extents: true,
            ..Storage::plain(self.btrfs.store)
        }
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        match self.resolve(ino)? {
            Resolved::Inode(tree, number) => match self.inode_in(&tree, number) {
                Err(_) if self.is_lost_directory(&tree, number) => {
                    Ok(Metadata::new(FileKind::Directory, 0o700))
                }
                inode => Ok(inode?.metadata(number)),
            },
            Resolved::Empty(dir) => {
                let parent = self.metadata(dir)?;
                Ok(Metadata {
                    permissions: 0o755,
                    attributes: FileAttributes::default(),
                    identity: None,
                    ..parent
                })
            }
        }
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        let Resolved::Inode(tree, number) = self.resolve(dir)? else {
            return Ok(Vec::new());
        };
        if self.finds_lost && number == LOST_AND_FOUND {
            return Err(NAMES_LOST);
        }
        if self.inode_in(&tree, number)?.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let mut entries = Vec::new();
        let [first, last] = [0, u64::MAX].map(|index| Key::new(number, item::DIR_INDEX, index));
        let mut cursor = tree.range(self.volume(), first, last)?;
        while let Some(item) = cursor.item_of(number, item::DIR_INDEX) {
            dir::for_each_entry(&item, |entry| {
                entries.push(self.entry(&tree, number, dir, &entry)?);
                Ok(())
            })?;
            cursor.advance()?;
        }
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        if entries
            .array_windows()
            .any(|[one, next]| one.name == next.name)
        {
            return Err(Error::corrupt(
                "name comes twice in a directory",
                tree.root.0,
                number,
            ));
        }
        if number == object::FIRST_FREE {
            self.add_lost_and_found(&tree, dir, &mut entries);
        }
        Ok(entries)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        with_metadata(self, self.read_dir(dir)?)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        let (tree, number) = match self.resolve(dir) {
            Ok(Resolved::Inode(tree, number)) => (tree, number),
            Ok(Resolved::Empty(_)) => return (Vec::new(), Vec::new()),
            Err(error) => return (Vec::new(), vec![error]),
        };
        if self.finds_lost && number == LOST_AND_FOUND {
            return (self.lost_entries(&tree, dir), vec![NAMES_LOST]);
        }
        let lost = match self.inode_in(&tree, number) {
            Ok(inode) if inode.kind == FileKind::Directory => None,
            Ok(_) => return (Vec::new(), vec![Error::NotADirectory]),
            Err(error) if self.is_lost_directory(&tree, number) => Some(error),
            Err(error) => return (Vec::new(), vec![error]),
        };
        let (mut entries, mut errors) = self.readable_entries(&tree, number, dir);
        if number == object::FIRST_FREE {
            self.add_lost_and_found(&tree, dir, &mut entries);
        }
        errors.extend(lost);
        (entries, errors)
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
        self.entry(
            &tree,
            number,
            dir,
            &dir::DirItemEntry { name, target, kind },
        )
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        const NO_LINK: Error = Error::InvalidInput("not a symbolic link");
        let file = match self.content(link) {
            Err(Error::IsADirectory | Error::InvalidInput(_)) => return Err(NO_LINK),
            file => file?,
        };
        let FileInode {
            tree,
            number,
            inode,
        } = &file;
        if inode.kind != FileKind::Symlink {
            return Err(NO_LINK);
        }
        if inode.size > LINK_BYTES_MAX {
            return Err(Error::corrupt(
                "link's target is longer than a path",
                tree.root.0,
                inode.size,
            ));
        }
        let mut target = vec![0; to_usize(inode.size)];
        self.read(&file, 0, &mut target)?;
        check_target(&target, tree, *number)?;
        Ok(target)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        let Resolved::Inode(tree, number) = self.resolve(ino)? else {
            return Ok(Vec::new());
        };
        if self.is_lost_directory(&tree, number) {
            return Ok(Vec::new());
        }
        let mut xattrs = Vec::new();
        let [first, last] = [0, u64::MAX].map(|hash| Key::new(number, item::XATTR_ITEM, hash));
        let mut cursor = tree.range(self.volume(), first, last)?;
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
        if xattrs
            .array_windows()
            .any(|[one, next]| one.name == next.name)
        {
            return Err(Error::corrupt("attribute comes twice", tree.root.0, number));
        }
        Ok(xattrs)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        self.extents_from(&self.regular(file)?, from)
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read(&self.regular(file)?, offset, buf)
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        self.read_stored(&self.regular(file)?, extent, stored)
    }

    fn stored_at(&self, file: Ino, extent: &Extent) -> Option<DevicePlace> {
        match extent.id {
            Some(_) => self.place(extent),
            None => self.inline_place(&self.regular(file).ok()?, extent),
        }
    }
}
