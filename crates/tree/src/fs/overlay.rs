//! A file tree in memory, alone or on top of another tree.
//!
//! A tar archive that has been read, an edited tree and a tree made up by a test all consist of nodes with names.
//! [`Overlay`] holds those. Its user stores and reads the content of regular files, and implements [`FileSystem`] on
//! top.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Device, DirEntry, FileAttributes, FileKind, FileSystem, Ino, Metadata, Time, Xattr};
use crate::{Error, Result};

/// How many numbers one overlay can give to its own files.
const NUMBERS: u64 = 1 << 32;

/// Files with names, and the changes that turn a base tree into another tree.
///
/// A file of the base keeps its number, and costs no memory until it is changed. Then it is *copied up*: its metadata
/// moves to a node. Its content, link target, extended attributes and names stay those of the base unless they are
/// changed too. A file that is copied up has no [`FileIdentity`](super::FileIdentity), because it differs from what
/// the store holds.
///
/// Each node has a `C`: what the user of the overlay stores for it in addition to metadata. A file that is copied up
/// gets the default.
///
/// Names are not checked. The caller ensures that a name [is valid](super::is_valid_name), that a directory has only
/// one name, and that it is not moved into itself. A failed operation changes nothing, except that it can copy files
/// up.
#[derive(Clone)]
pub struct Overlay<C> {
    base: Option<Arc<dyn FileSystem>>,
    /// The number of the first node; the others follow in order.
    first: u64,
    nodes: Vec<Node<C>>,
    /// The files of the base that have been copied up.
    copied_up: HashMap<Ino, NodeId>,
}

/// The index of a node plus 1, so that a name without a node takes no extra space.
#[derive(Clone, Copy)]
struct NodeId(NonZeroU32);

/// The names that a directory adds to those of the base, or hides from it.
type Names = BTreeMap<Box<[u8]>, Option<NodeId>>;

static NO_NAMES: Names = BTreeMap::new();

#[derive(Clone)]
struct Node<C> {
    kind: FileKind,
    permissions: u16,
    uid: u32,
    gid: u32,
    nlink: u32,
    rdev: Device,
    size: u64,
    mtime: Time,
    rare: Option<Box<Rare>>,
    body: Body,
    content: C,
}

const _: () = assert!(size_of::<Node<()>>() == 80);

/// What few files have.
#[derive(Clone, Default)]
struct Rare {
    atime: Option<Time>,
    ctime: Option<Time>,
    btime: Option<Time>,
    attributes: FileAttributes,
    /// If `None`, those of the base apply.
    xattrs: Option<Vec<Xattr>>,
}

#[derive(Clone)]
enum Body {
    /// Its metadata is all there is.
    Plain,
    Symlink(Box<[u8]>),
    Directory(Box<Directory>),
    /// A file of the base other than a directory.
    Base(Ino),
}

#[derive(Clone, Default)]
struct Directory {
    /// The directory of the base whose names it also has.
    base: Option<Ino>,
    names: Names,
}

impl<C> Overlay<C> {
    /// A tree with an empty root directory and no base. Files are numbered in the order in which they are added,
    /// starting with 0 for the root.
    pub fn new(root: &Metadata, content: C) -> Overlay<C> {
        let mut root = Node::new(root, Body::Directory(Box::default()), content);
        root.nlink = 1;
        Overlay {
            base: None,
            first: 0,
            nodes: vec![root],
            copied_up: HashMap::new(),
        }
    }

    /// A tree that equals the base until it is changed.
    pub fn over(base: Arc<dyn FileSystem>) -> Overlay<C> {
        // Containers count their file numbers up from a low start. An overlay can be the base of another, so no two
        // use the same numbers.
        static GIVEN: AtomicU64 = AtomicU64::new(1);
        let range = GIVEN.fetch_add(1, Ordering::Relaxed) % (1 << 31);
        Overlay {
            base: Some(base),
            first: 0u64.wrapping_sub(range * NUMBERS),
            nodes: Vec::new(),
            copied_up: HashMap::new(),
        }
    }

    /// The number of files that it holds: added ones and those copied up, including files without names.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Like [`FileSystem::root`].
    pub fn root(&self) -> Ino {
        self.base.as_ref().map_or(Ino(0), |base| base.root())
    }

    /// The user's data of a file that was added or copied up; `None` for an unchanged file of the base.
    pub fn content(&self, ino: Ino) -> Option<&C> {
        self.node(ino).map(|node| &node.content)
    }

    /// The base, if the file is from it, copied up or not.
    ///
    /// # Errors
    /// [`Error::NotFound`] for an added file.
    pub fn base(&self, ino: Ino) -> Result<&dyn FileSystem> {
        match &self.base {
            Some(base) if !self.is_own(ino) => Ok(&**base),
            _ => Err(Error::NotFound),
        }
    }

    /// Like [`FileSystem::metadata`].
    ///
    /// # Errors
    /// As there.
    pub fn metadata(&self, ino: Ino) -> Result<Metadata> {
        match self.node(ino) {
            Some(node) => Ok(node.shown_metadata()),
            None => self.base(ino)?.metadata(ino),
        }
    }

    /// Like [`FileSystem::read_dir`].
    ///
    /// # Errors
    /// As there. [`Error::Limit`] if a file of the base has a number that this overlay uses for its own files.
    pub fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        let list = |base: &dyn FileSystem| base.read_dir(dir);
        self.listing(dir, list, |entry| entry, |entry, _| entry)
    }

    /// Like [`FileSystem::list_readable`].
    pub fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        let errors = RefCell::new(Vec::new());
        let list = |base: &dyn FileSystem| {
            let (entries, unlisted) = base.list_readable(dir);
            errors.borrow_mut().extend(unlisted);
            Ok(entries)
        };
        let listed = self.listing(dir, list, |entry| entry, |entry, _| entry);
        let mut errors = errors.into_inner();
        let entries = listed.unwrap_or_else(|error| {
            errors.push(error);
            Vec::new()
        });
        (entries, errors)
    }

    /// Like [`FileSystem::read_dir_with_metadata`].
    ///
    /// # Errors
    /// As there, and as for [`Overlay::read_dir`].
    pub fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        let list = |base: &dyn FileSystem| {
            let mut listing = base.read_dir_with_metadata(dir)?;
            for (entry, metadata) in &mut listing {
                if let Some(&id) = self.copied_up.get(&entry.ino) {
                    *metadata = self.at(id).shown_metadata();
                }
            }
            Ok(listing)
        };
        let make = |entry, node: &Node<C>| (entry, node.shown_metadata());
        self.listing(dir, list, |(entry, _)| entry, make)
    }

    /// Merges the listing of the base with the directory's own names, both sorted.
    fn listing<T>(
        &self,
        dir: Ino,
        list: impl Fn(&dyn FileSystem) -> Result<Vec<T>>,
        entry_of: impl Fn(&T) -> &DirEntry,
        make: impl Fn(DirEntry, &Node<C>) -> T,
    ) -> Result<Vec<T>> {
        let (names, base) = self.names(dir)?;
        let below = base.map(list).transpose()?.unwrap_or_default();
        for item in &below {
            self.check(entry_of(item))?;
        }
        if names.is_empty() {
            return Ok(below);
        }
        let mut listing = Vec::with_capacity(below.len() + names.len());
        let mut below = below.into_iter().peekable();
        for (name, own) in names {
            while let Some(item) = below.next_if(|item| entry_of(item).name < *name) {
                listing.push(item);
            }
            below.next_if(|item| entry_of(item).name == *name); // Hidden.
            if let Some(id) = *own {
                listing.push(make(self.entry(name, id), self.at(id)));
            }
        }
        listing.extend(below);
        Ok(listing)
    }

    /// Like [`FileSystem::lookup`].
    ///
    /// # Errors
    /// As there, and as for [`Overlay::read_dir`].
    pub fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        let (ino, kind) = self.find(dir, name)?.ok_or(Error::NotFound)?;
        let name = name.into();
        Ok(DirEntry { name, ino, kind })
    }

    /// The file with this name in a directory, if any.
    ///
    /// # Errors
    /// As for [`Overlay::read_dir`].
    pub fn find(&self, dir: Ino, name: &[u8]) -> Result<Option<(Ino, FileKind)>> {
        let (names, base) = self.names(dir)?;
        if let Some(own) = names.get(name) {
            return Ok(own.map(|id| (self.ino(id), self.at(id).kind)));
        }
        match base.map(|base| base.lookup(dir, name)) {
            None | Some(Err(Error::NotFound)) => Ok(None),
            Some(entry) => {
                let entry = entry?;
                self.check(&entry)?;
                Ok(Some((entry.ino, entry.kind)))
            }
        }
    }

    /// The file at this path from the root. Links are not followed, and empty names, `.` and `..` are not special.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], or as for [`Overlay::read_dir`].
    pub fn resolve<'n>(
        &self,
        names: impl IntoIterator<Item = &'n [u8]>,
    ) -> Result<(Ino, FileKind)> {
        let mut found = (self.root(), FileKind::Directory);
        for name in names {
            if found.1 != FileKind::Directory {
                return Err(Error::NotADirectory);
            }
            found = self.find(found.0, name)?.ok_or(Error::NotFound)?;
        }
        Ok(found)
    }

    /// Whether a directory is empty.
    ///
    /// # Errors
    /// As for [`Overlay::read_dir`].
    pub fn is_empty(&self, dir: Ino) -> Result<bool> {
        Ok(match self.names(dir)? {
            (names, None) => names.is_empty(),
            _ => self.read_dir(dir)?.is_empty(),
        })
    }

    /// Like [`FileSystem::read_link`].
    ///
    /// # Errors
    /// As there.
    pub fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        match self.node(link).map(|node| &node.body) {
            Some(Body::Symlink(target)) => Ok(target.to_vec()),
            None | Some(Body::Base(_)) => self.base(link)?.read_link(link),
            Some(_) => Err(Error::InvalidInput("the file is not a symbolic link")),
        }
    }

    /// Like [`FileSystem::xattrs`].
    ///
    /// # Errors
    /// As there.
    pub fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        let node = self.node(ino);
        if let Some(xattrs) = node.and_then(|node| node.rare.as_ref()?.xattrs.as_ref()) {
            return Ok(xattrs.clone());
        }
        match node {
            Some(node) if node.base().is_none() => Ok(Vec::new()),
            _ => self.base(ino)?.xattrs(ino),
        }
    }

    /// Adds a file without a name. [`Overlay::link`] gives it names and counts them. To add a symbolic link, use
    /// [`Overlay::add_symlink`].
    ///
    /// # Errors
    /// [`Error::Limit`] if the overlay already holds 2^32 - 1 files.
    pub fn add(&mut self, metadata: &Metadata, content: C) -> Result<Ino> {
        let body = match metadata.kind {
            FileKind::Directory => Body::Directory(Box::default()),
            _ => Body::Plain,
        };
        self.push(Node::new(metadata, body, content))
            .map(|id| self.ino(id))
    }

    /// Adds a symbolic link without a name. Its size is the length of its target.
    ///
    /// # Errors
    /// As for [`Overlay::add`].
    pub fn add_symlink(&mut self, metadata: &Metadata, target: &[u8], content: C) -> Result<Ino> {
        let mut link = Node::new(metadata, Body::Symlink(target.into()), content);
        link.kind = FileKind::Symlink;
        link.size = target.len() as u64;
        self.push(link).map(|id| self.ino(id))
    }

    fn push(&mut self, node: Node<C>) -> Result<NodeId> {
        self.nodes.push(node);
        let id = u32::try_from(self.nodes.len())
            .ok()
            .and_then(NonZeroU32::new);
        if id.is_none() {
            self.nodes.pop();
        }
        id.map(NodeId).ok_or(Error::Limit("files of an overlay"))
    }

    fn is_own(&self, ino: Ino) -> bool {
        ino.0
            .checked_sub(self.first)
            .is_some_and(|index| index < NUMBERS)
    }

    /// Checks that a file of the base does not have the number of one of our own.
    fn check(&self, entry: &DirEntry) -> Result<()> {
        if self.is_own(entry.ino) {
            let what = "a file's number is one of those that are given to added files";
            return Err(Error::Limit(what));
        }
        Ok(())
    }

    fn index(&self, ino: Ino) -> Option<usize> {
        if self.is_own(ino) {
            let index = (ino.0 - self.first) as usize; // Less than 2^32.
            return (index < self.nodes.len()).then_some(index);
        }
        self.copied_up.get(&ino).map(|id| id.index())
    }

    fn node(&self, ino: Ino) -> Option<&Node<C>> {
        self.index(ino).map(|index| &self.nodes[index])
    }

    fn at(&self, id: NodeId) -> &Node<C> {
        &self.nodes[id.index()]
    }

    fn at_mut(&mut self, id: NodeId) -> &mut Node<C> {
        &mut self.nodes[id.index()]
    }

    fn ino(&self, id: NodeId) -> Ino {
        let own = Ino(self.first + id.index() as u64);
        self.at(id).base().unwrap_or(own)
    }

    fn entry(&self, name: &[u8], id: NodeId) -> DirEntry {
        DirEntry {
            name: name.into(),
            ino: self.ino(id),
            kind: self.at(id).kind,
        }
    }

    /// A directory's own names, and the base if the directory also has names there.
    fn names(&self, dir: Ino) -> Result<(&Names, Option<&dyn FileSystem>)> {
        match self.node(dir).map(|node| &node.body) {
            None => Ok((&NO_NAMES, Some(self.base(dir)?))),
            Some(Body::Directory(directory)) => {
                let base = self.base.as_deref();
                Ok((&directory.names, base.filter(|_| directory.base.is_some())))
            }
            Some(_) => Err(Error::NotADirectory),
        }
    }
}

impl<C: Default> Overlay<C> {
    /// Gives a file a name in a directory. A file that had this name loses it, and is returned. The caller decides
    /// whether it may be replaced.
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; [`Error::Limit`] as for [`Overlay::add`]; or the base cannot be read.
    pub fn link(&mut self, dir: Ino, name: &[u8], ino: Ino) -> Result<Option<Ino>> {
        let file = self.copy_up(ino)?;
        let parent = self.copy_up(dir)?;
        let below = match &self.at(parent).body {
            Body::Directory(directory) => {
                directory.base.is_some() && !directory.names.contains_key(name)
            }
            _ => return Err(Error::NotADirectory),
        };
        let below = if below { self.find(dir, name)? } else { None };
        if let Some((old, kind)) = below {
            self.lose_name(old, kind)?;
        }
        let links = &mut self.at_mut(file).nlink;
        *links = links.saturating_add(1);
        Ok(
            match self.names_mut(parent).insert(name.into(), Some(file)) {
                Some(Some(own)) => {
                    self.at_mut(own).count_name_less();
                    Some(self.ino(own))
                }
                _ => below.map(|(old, _)| old),
            },
        )
    }

    /// Removes a name and returns the file that had it. The caller checks that a directory is
    /// [empty](Overlay::is_empty).
    ///
    /// # Errors
    /// [`Error::NotFound`], or as for [`Overlay::link`].
    pub fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<Ino> {
        let (ino, kind) = self.find(dir, name)?.ok_or(Error::NotFound)?;
        let parent = self.copy_up(dir)?;
        self.lose_name(ino, kind)?;
        self.remove_name(parent, name);
        Ok(ino)
    }

    /// Replaces one name of a file by another; a directory moves with everything in it. A file that had the new name
    /// is returned, as by [`Overlay::link`].
    ///
    /// # Errors
    /// [`Error::NotFound`], or as for [`Overlay::link`].
    pub fn rename(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8])) -> Result<Option<Ino>> {
        let (ino, _) = self.find(from.0, from.1)?.ok_or(Error::NotFound)?;
        if from == to {
            return Ok(None);
        }
        let (file, parent) = (self.copy_up(ino)?, self.copy_up(from.0)?);
        let replaced = self.link(to.0, to.1, ino)?;
        self.at_mut(file).count_name_less();
        self.remove_name(parent, from.1);
        Ok(replaced)
    }

    /// Changes the metadata of a file, except its type and identity.
    ///
    /// # Errors
    /// [`Error::Limit`] as for [`Overlay::add`]; or the base cannot be read.
    pub fn change(&mut self, ino: Ino, change: impl FnOnce(&mut Metadata)) -> Result<()> {
        let id = self.copy_up(ino)?;
        let node = self.at_mut(id);
        let mut metadata = node.metadata();
        change(&mut metadata);
        node.set_metadata(&metadata);
        Ok(())
    }

    /// The user's data of a file, mutably.
    ///
    /// # Errors
    /// As for [`Overlay::change`].
    pub fn content_mut(&mut self, ino: Ino) -> Result<&mut C> {
        let id = self.copy_up(ino)?;
        Ok(&mut self.at_mut(id).content)
    }

    /// Sets an extended attribute of a file, replacing one with the same name.
    ///
    /// # Errors
    /// As for [`Overlay::change`].
    pub fn set_xattr(&mut self, ino: Ino, xattr: Xattr) -> Result<()> {
        let xattrs = self.xattrs_mut(ino)?;
        match xattrs.binary_search_by(|known| known.name.cmp(&xattr.name)) {
            Ok(at) => xattrs[at] = xattr,
            Err(at) => xattrs.insert(at, xattr),
        }
        Ok(())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the file has no attribute with this name, or as for [`Overlay::change`].
    pub fn remove_xattr(&mut self, ino: Ino, name: &[u8]) -> Result<()> {
        let xattrs = self.xattrs_mut(ino)?;
        let at = xattrs.binary_search_by(|known| (*known.name).cmp(name));
        xattrs.remove(at.map_err(|_| Error::NotFound)?);
        Ok(())
    }

    fn xattrs_mut(&mut self, ino: Ino) -> Result<&mut Vec<Xattr>> {
        let xattrs = self.xattrs(ino)?;
        let id = self.copy_up(ino)?;
        let rare = self.at_mut(id).rare.get_or_insert_default();
        Ok(rare.xattrs.get_or_insert(xattrs))
    }

    /// The node of a file; a file of the base gets one if it has none yet.
    fn copy_up(&mut self, ino: Ino) -> Result<NodeId> {
        if self.is_own(ino) {
            let index = self.index(ino).ok_or(Error::NotFound)?;
            return NodeId::new(index).ok_or(Error::NotFound);
        }
        if let Some(&id) = self.copied_up.get(&ino) {
            return Ok(id);
        }
        let metadata = self.base(ino)?.metadata(ino)?;
        self.push_copy(ino, &metadata)
    }

    fn push_copy(&mut self, ino: Ino, metadata: &Metadata) -> Result<NodeId> {
        let body = match metadata.kind {
            FileKind::Directory => Body::Directory(Box::new(Directory {
                base: Some(ino),
                names: Names::new(),
            })),
            _ => Body::Base(ino),
        };
        let id = self.push(Node::new(metadata, body, C::default()))?;
        self.at_mut(id).nlink = metadata.nlink;
        self.copied_up.insert(ino, id);
        Ok(id)
    }

    /// Removes one name from a file's count. A file of the base that has no other name is not copied up for this.
    fn lose_name(&mut self, ino: Ino, kind: FileKind) -> Result<()> {
        let id = match self.index(ino).and_then(NodeId::new) {
            Some(id) => id,
            None if kind == FileKind::Directory => return Ok(()),
            None => {
                let metadata = self.base(ino)?.metadata(ino)?;
                if metadata.nlink < 2 {
                    return Ok(());
                }
                self.push_copy(ino, &metadata)?
            }
        };
        self.at_mut(id).count_name_less();
        Ok(())
    }

    fn remove_name(&mut self, dir: NodeId, name: &[u8]) {
        let has_base = self.at(dir).base().is_some();
        let names = self.names_mut(dir);
        if has_base {
            names.insert(name.into(), None);
        } else {
            names.remove(name);
        }
    }

    fn names_mut(&mut self, dir: NodeId) -> &mut Names {
        match &mut self.at_mut(dir).body {
            Body::Directory(directory) => &mut directory.names,
            _ => unreachable!("it is known to be a directory"),
        }
    }
}

impl<C> fmt::Debug for Overlay<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut overlay = f.debug_struct("Overlay");
        overlay.field("nodes", &self.nodes.len());
        overlay.finish_non_exhaustive()
    }
}

impl NodeId {
    fn new(index: usize) -> Option<NodeId> {
        let index = u32::try_from(index).ok()?;
        Some(NodeId(NonZeroU32::MIN.checked_add(index)?))
    }

    fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl<C> Node<C> {
    /// A node without names.
    fn new(metadata: &Metadata, body: Body, content: C) -> Node<C> {
        let mut node = Node {
            kind: metadata.kind,
            permissions: 0,
            uid: 0,
            gid: 0,
            nlink: 0,
            rdev: Device::default(),
            size: 0,
            mtime: Time::default(),
            rare: None,
            body,
            content,
        };
        node.set_metadata(metadata);
        node.nlink = 0;
        node
    }

    /// The corresponding file of the base.
    fn base(&self) -> Option<Ino> {
        match &self.body {
            Body::Base(ino) => Some(*ino),
            Body::Directory(directory) => directory.base,
            Body::Plain | Body::Symlink(_) => None,
        }
    }

    fn metadata(&self) -> Metadata {
        let rare = self.rare.as_deref();
        Metadata {
            kind: self.kind,
            permissions: self.permissions,
            uid: self.uid,
            gid: self.gid,
            nlink: self.nlink,
            size: self.size,
            rdev: self.rdev,
            mtime: self.mtime,
            atime: rare.and_then(|rare| rare.atime),
            ctime: rare.and_then(|rare| rare.ctime),
            btime: rare.and_then(|rare| rare.btime),
            attributes: rare.map_or(FileAttributes::default(), |rare| rare.attributes),
            identity: None,
        }
    }

    fn count_name_less(&mut self) {
        self.nlink = self.nlink.saturating_sub(1);
    }

    /// The metadata as seen by others, to whom files without names are invisible.
    fn shown_metadata(&self) -> Metadata {
        let mut metadata = self.metadata();
        metadata.nlink = metadata.nlink.max(1);
        metadata
    }

    fn set_metadata(&mut self, metadata: &Metadata) {
        let Metadata {
            atime,
            ctime,
            btime,
            attributes,
            ..
        } = *metadata;
        self.permissions = metadata.permissions;
        self.uid = metadata.uid;
        self.gid = metadata.gid;
        self.nlink = metadata.nlink;
        self.rdev = metadata.rdev;
        self.size = metadata.size;
        self.mtime = metadata.mtime;
        let has_times = atime.is_some() || ctime.is_some() || btime.is_some();
        if has_times || attributes != FileAttributes::default() || self.rare.is_some() {
            let rare = self.rare.get_or_insert_default();
            (rare.atime, rare.ctime, rare.btime) = (atime, ctime, btime);
            rare.attributes = attributes;
        }
    }
}
