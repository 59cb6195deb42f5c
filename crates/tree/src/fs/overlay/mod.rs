//! A file tree in memory, alone or on top of another tree.
//!
//! A tar archive that has been read, an edited tree and a tree made up by a test all consist of
//! nodes with names. [`Overlay`] holds those. Its user stores and reads the content of regular
//! files, and implements [`FileSystem`] on top.

mod names;
mod nodes;
mod tables;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::names::NameTable;
use self::nodes::{NodeBody, OverlayNode, OverlayNodes};
use self::tables::{DirId, NodeId};
use super::{DirEntry, FileKind, FileSystem, Ino, Metadata, Xattr};
use crate::{Error, Result, Scratch};

/// How many numbers one overlay can give to its own files.
const NUMBERS: u64 = 1 << 32;

/// Files with names, and the changes that turn a base tree into another tree.
///
/// A file of the base keeps its number, and costs no memory until it is changed. Then it is *copied
/// up*: its metadata moves to a node. Its content, link target, extended attributes and names stay
/// those of the base unless they are changed too. A file that is copied up has no
/// [`FileIdentity`](super::FileIdentity), because it differs from the stored file.
///
/// Each node has a `C`: data that the user of the overlay stores for it in addition to metadata. A
/// file that is copied up gets the default.
///
/// Names are not checked. The caller ensures that a name [is valid](super::is_valid_name), that a
/// directory has only one name, and that it is not moved into itself. A failed operation changes
/// nothing, except that it can copy files up.
#[derive(Clone)]
pub struct Overlay<C> {
    base: Option<Arc<dyn FileSystem>>,
    /// The number of the first node; the others follow in order.
    first: u64,
    nodes: OverlayNodes<C>,
    names: NameTable,
    /// The files of the base that have been copied up.
    copied_up: HashMap<Ino, NodeId>,
}

impl<C> Overlay<C> {
    /// A tree with an empty root directory and no base. Files are numbered in the order in which
    /// they are added, starting with 0 for the root.
    pub fn new(root: &Metadata, content: C) -> Overlay<C> {
        Overlay::new_in(&Scratch::memory(), root, content)
    }

    /// Like [`Overlay::new`], with less in memory. Using records in the order of their addition
    /// is as fast.
    pub fn new_in(scratch: &Scratch, root: &Metadata, content: C) -> Overlay<C> {
        let (mut nodes, mut names) = (OverlayNodes::new(scratch), NameTable::new(scratch));
        let body = NodeBody::Directory(names.add_dir(None));
        let root = nodes.push(root, body, content);
        let root = root.expect("it is the first node");
        nodes.change(root, |root| root.nlink = 1);
        Overlay {
            base: None,
            first: 0,
            nodes,
            names,
            copied_up: HashMap::new(),
        }
    }

    /// A tree that equals the base until it is changed.
    pub fn over(base: Arc<dyn FileSystem>) -> Overlay<C> {
        Overlay::over_in(&Scratch::memory(), base)
    }

    /// Like [`Overlay::over`], with less in memory.
    pub fn over_in(scratch: &Scratch, base: Arc<dyn FileSystem>) -> Overlay<C> {
        // Containers count their file numbers up from a low start. An overlay can be the base of
        // another, so no two use the same numbers.
        static GIVEN: AtomicU64 = AtomicU64::new(1);
        let range = GIVEN.fetch_add(1, Ordering::Relaxed) % (1 << 31);
        Overlay {
            base: Some(base),
            first: 0u64.wrapping_sub(range * NUMBERS),
            nodes: OverlayNodes::new(scratch),
            names: NameTable::new(scratch),
            copied_up: HashMap::new(),
        }
    }

    /// The number of files that it holds: added ones and those copied up, including files without
    /// names.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The memory that it holds in its tables, in bytes, without those that the users' data of
    /// files points to.
    pub fn memory_bytes(&self) -> usize {
        self.nodes.memory_bytes()
            + self.names.memory_bytes()
            + self.copied_up.capacity() * size_of::<(Ino, NodeId)>()
    }

    /// Like [`FileSystem::root`].
    pub fn root(&self) -> Ino {
        self.base.as_ref().map_or(Ino(0), |base| base.root())
    }

    /// The user's data of a file that was added or copied up; `None` for an unchanged file of the
    /// base.
    pub fn content(&self, ino: Ino) -> Option<&C> {
        self.node(ino).map(|id| self.nodes.content(id))
    }

    /// Whether a file was added and has no name, or none any more.
    pub fn is_nameless(&self, ino: Ino) -> bool {
        self.node(ino)
            .is_some_and(|id| self.nodes.at(id).nlink == 0)
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
            Some(id) => Ok(self.shown_metadata(id)),
            None => self.base(ino)?.metadata(ino),
        }
    }

    /// Like [`FileSystem::read_dir`].
    ///
    /// # Errors
    /// As there. [`Error::Limit`] if a file of the base has a number that this overlay uses for its
    /// own files.
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
                    *metadata = self.shown_metadata(id);
                }
            }
            Ok(listing)
        };
        let make = |entry, id| (entry, self.shown_metadata(id));
        self.listing(dir, list, |(entry, _)| entry, make)
    }

    /// Merges the listing of the base with the directory's own names, both sorted.
    fn listing<T>(
        &self,
        dir: Ino,
        list: impl Fn(&dyn FileSystem) -> Result<Vec<T>>,
        entry_of: impl Fn(&T) -> &DirEntry,
        make: impl Fn(DirEntry, NodeId) -> T,
    ) -> Result<Vec<T>> {
        let (own, base) = self.names(dir)?;
        let names = own.map_or(Vec::new(), |dir| self.names.sorted(dir));
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
            while let Some(item) = below.next_if(|item| *entry_of(item).name < *name) {
                listing.push(item);
            }
            below.next_if(|item| *entry_of(item).name == *name); // Hidden.
            if let Some(id) = own {
                listing.push(make(self.entry(name.into(), id), id));
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
        let (own, base) = self.names(dir)?;
        if let Some(own) = own.and_then(|dir| self.names.find(dir, name)) {
            return Ok(own.map(|id| (self.ino(id), self.nodes.at(id).kind())));
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

    /// The file at this path from the root. Links are not followed, and empty names, `.` and `..`
    /// are not special.
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
            (own, None) => own.is_none_or(|dir| self.names.count(dir) == 0),
            _ => self.read_dir(dir)?.is_empty(),
        })
    }

    /// Like [`FileSystem::read_link`].
    ///
    /// # Errors
    /// As there.
    pub fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        match self.node(link).map(|id| self.nodes.at(id).body()) {
            Some(NodeBody::Symlink(at)) => Ok(self.nodes.target(at).to_vec()),
            None | Some(NodeBody::Base(_)) => self.base(link)?.read_link(link),
            Some(_) => Err(Error::InvalidInput("the file is not a symbolic link")),
        }
    }

    /// Like [`FileSystem::xattrs`].
    ///
    /// # Errors
    /// As there.
    pub fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        let node = self.node(ino);
        if let Some(xattrs) = node.and_then(|id| self.nodes.xattrs(id)) {
            return Ok(xattrs.to_vec());
        }
        match node {
            Some(id) if self.base_of(id).is_none() => Ok(Vec::new()),
            _ => self.base(ino)?.xattrs(ino),
        }
    }

    /// Adds a file without a name. [`Overlay::link`] gives it names and counts them. To add a
    /// symbolic link, use [`Overlay::add_symlink`].
    ///
    /// # Errors
    /// [`Error::Limit`] if the overlay already holds 2^32 - 1 files.
    pub fn add(&mut self, metadata: &Metadata, content: C) -> Result<Ino> {
        let body = match metadata.kind {
            FileKind::Directory => NodeBody::Directory(self.names.add_dir(None)),
            _ => NodeBody::Plain,
        };
        let id = self.nodes.push(metadata, body, content)?;
        Ok(self.ino(id))
    }

    /// Adds a symbolic link without a name. Its size is the length of its target.
    ///
    /// # Errors
    /// As for [`Overlay::add`]; [`Error::Limit`] if all targets have more than 4 GiB.
    pub fn add_symlink(&mut self, metadata: &Metadata, target: &[u8], content: C) -> Result<Ino> {
        let body = self.nodes.add_target(target)?;
        let metadata = Metadata {
            kind: FileKind::Symlink,
            size: target.len() as u64,
            ..metadata.clone()
        };
        let id = self.nodes.push(&metadata, body, content)?;
        Ok(self.ino(id))
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

    fn node(&self, ino: Ino) -> Option<NodeId> {
        if self.is_own(ino) {
            let index = (ino.0 - self.first) as usize; // Less than 2^32.
            return NodeId::new(index).filter(|_| index < self.nodes.len());
        }
        self.copied_up.get(&ino).copied()
    }

    /// The corresponding file of the base.
    fn base_of(&self, id: NodeId) -> Option<Ino> {
        match self.nodes.at(id).body() {
            NodeBody::Base(index) => Some(self.nodes.base(index)),
            NodeBody::Directory(dir) => self.names.base(dir),
            NodeBody::Plain | NodeBody::Symlink(_) => None,
        }
    }

    fn ino(&self, id: NodeId) -> Ino {
        let own = Ino(self.first + id.index() as u64);
        self.base_of(id).unwrap_or(own)
    }

    fn entry(&self, name: Box<[u8]>, id: NodeId) -> DirEntry {
        DirEntry {
            name,
            ino: self.ino(id),
            kind: self.nodes.at(id).kind(),
        }
    }

    /// The metadata as seen by others, to whom files without names are invisible.
    fn shown_metadata(&self, id: NodeId) -> Metadata {
        let mut metadata = self.nodes.metadata(id);
        metadata.nlink = metadata.nlink.max(1);
        metadata
    }

    /// A directory's own names, if it can have some, and the base if the directory also has names
    /// there.
    fn names(&self, dir: Ino) -> Result<(Option<DirId>, Option<&dyn FileSystem>)> {
        match self.node(dir).map(|id| self.nodes.at(id).body()) {
            None => Ok((None, Some(self.base(dir)?))),
            Some(NodeBody::Directory(dir)) => {
                let has_base = self.names.base(dir).is_some();
                Ok((Some(dir), self.base.as_deref().filter(|_| has_base)))
            }
            Some(_) => Err(Error::NotADirectory),
        }
    }
}

impl<C: Default> Overlay<C> {
    /// Gives a file a name in a directory. A file that had this name loses it, and is returned. The
    /// caller decides whether it may be replaced.
    ///
    /// # Errors
    /// [`Error::NotADirectory`]; [`Error::Limit`] as for [`Overlay::add`]; or the base cannot be
    /// read.
    pub fn link(&mut self, dir: Ino, name: &[u8], ino: Ino) -> Result<Option<Ino>> {
        let file = self.copy_up(ino)?;
        let (parent, below) = self.make_room(dir, name, b"")?;
        Ok(self.give_name(parent, name, file).or(below))
    }

    /// Prepares for giving away a name in a directory. A file of the base that has it loses it, and
    /// is returned. There is also room for a hidden name.
    fn make_room(&mut self, dir: Ino, name: &[u8], hidden: &[u8]) -> Result<(DirId, Option<Ino>)> {
        let parent = self.dir_mut(dir)?;
        self.names.reserve(name, hidden)?;
        let is_below = self.names.base(parent).is_some() && self.names.find(parent, name).is_none();
        let below = if is_below {
            self.find(dir, name)?
        } else {
            None
        };
        if let Some((old, kind)) = below {
            self.lose_name(old, kind)?;
        }
        Ok((parent, below.map(|(old, _)| old)))
    }

    /// Gives a name to a node. One that had it loses it, and is returned.
    fn give_name(&mut self, parent: DirId, name: &[u8], file: NodeId) -> Option<Ino> {
        (self.nodes).change(file, |file| file.nlink = file.nlink.saturating_add(1));
        let own = self.names.insert(parent, name, Some(file))?;
        self.nodes.change(own, OverlayNode::count_name_less);
        Some(self.ino(own))
    }

    /// Removes a name and returns the file that had it. The caller checks that a directory is
    /// [empty](Overlay::is_empty).
    ///
    /// # Errors
    /// [`Error::NotFound`], or as for [`Overlay::link`].
    pub fn unlink(&mut self, dir: Ino, name: &[u8]) -> Result<Ino> {
        let (ino, kind) = self.find(dir, name)?.ok_or(Error::NotFound)?;
        let parent = self.dir_mut(dir)?;
        self.names.reserve(name, b"")?;
        self.lose_name(ino, kind)?;
        self.remove_name(parent, name);
        Ok(ino)
    }

    /// Replaces one name of a file by another; a directory moves with everything in it. A file that
    /// had the new name is returned, as by [`Overlay::link`].
    ///
    /// # Errors
    /// [`Error::NotFound`], or as for [`Overlay::link`].
    pub fn rename(&mut self, from: (Ino, &[u8]), to: (Ino, &[u8])) -> Result<Option<Ino>> {
        let (ino, _) = self.find(from.0, from.1)?.ok_or(Error::NotFound)?;
        if from == to {
            return Ok(None);
        }
        let (file, parent) = (self.copy_up(ino)?, self.dir_mut(from.0)?);
        let (parent_to, below) = self.make_room(to.0, to.1, from.1)?;
        self.nodes.change(file, OverlayNode::count_name_less);
        self.remove_name(parent, from.1);
        Ok(self.give_name(parent_to, to.1, file).or(below))
    }

    /// Changes the metadata of a file, except its type and identity.
    ///
    /// # Errors
    /// [`Error::Limit`] as for [`Overlay::add`]; or the base cannot be read.
    pub fn change(&mut self, ino: Ino, change: impl FnOnce(&mut Metadata)) -> Result<()> {
        let id = self.copy_up(ino)?;
        let mut metadata = self.nodes.metadata(id);
        change(&mut metadata);
        self.nodes.set_metadata(id, &metadata);
        Ok(())
    }

    /// The user's data of a file, mutably.
    ///
    /// # Errors
    /// As for [`Overlay::change`].
    pub fn content_mut(&mut self, ino: Ino) -> Result<&mut C> {
        let id = self.copy_up(ino)?;
        Ok(self.nodes.content_mut(id))
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
    /// [`Error::NotFound`] if the file has no attribute with this name, or as for
    /// [`Overlay::change`].
    pub fn remove_xattr(&mut self, ino: Ino, name: &[u8]) -> Result<()> {
        let xattrs = self.xattrs_mut(ino)?;
        let at = xattrs.binary_search_by(|known| (*known.name).cmp(name));
        xattrs.remove(at.map_err(|_| Error::NotFound)?);
        Ok(())
    }

    fn xattrs_mut(&mut self, ino: Ino) -> Result<&mut Vec<Xattr>> {
        let id = self.copy_up(ino)?;
        let of_base = match self.nodes.xattrs(id) {
            None => self.xattrs(ino)?,
            Some(_) => Vec::new(),
        };
        Ok(self.nodes.xattrs_mut(id, of_base))
    }

    /// The node of a file; a file of the base gets one if it has none yet.
    fn copy_up(&mut self, ino: Ino) -> Result<NodeId> {
        if let Some(id) = self.node(ino) {
            return Ok(id);
        }
        let metadata = self.base(ino)?.metadata(ino)?;
        self.push_copy(ino, &metadata)
    }

    /// A directory, which gets a node if it has none yet.
    fn dir_mut(&mut self, ino: Ino) -> Result<DirId> {
        let id = self.copy_up(ino)?;
        match self.nodes.at(id).body() {
            NodeBody::Directory(dir) => Ok(dir),
            _ => Err(Error::NotADirectory),
        }
    }

    fn push_copy(&mut self, ino: Ino, metadata: &Metadata) -> Result<NodeId> {
        let body = match metadata.kind {
            FileKind::Directory => NodeBody::Directory(self.names.add_dir(Some(ino))),
            _ => self.nodes.add_base(ino),
        };
        let id = self.nodes.push(metadata, body, C::default())?;
        (self.nodes).change(id, |node| node.nlink = metadata.nlink);
        self.copied_up.insert(ino, id);
        Ok(id)
    }

    /// Removes one name from a file's count. A file of the base that has no other name is not
    /// copied up for this.
    fn lose_name(&mut self, ino: Ino, kind: FileKind) -> Result<()> {
        let id = match self.node(ino) {
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
        self.nodes.change(id, OverlayNode::count_name_less);
        Ok(())
    }

    fn remove_name(&mut self, dir: DirId, name: &[u8]) {
        if self.names.base(dir).is_some() {
            self.names.insert(dir, name, None);
        } else {
            self.names.remove(dir, name);
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
