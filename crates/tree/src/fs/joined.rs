//! Several trees as one: each at a path, later ones over earlier ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{
    Checksum, DirEntry, Extent, ExtentId, FileKind, FileSystem, HostContent, Ino, Metadata,
    NOTHING_ENCODED, Storage, StoreId, Xattr, entry_named, with_metadata,
};
use crate::{Error, Result};

const ROOT: Ino = Ino(0);

/// A tree, or a file of one, and where it is in a [`Joined`] tree.
pub struct Graft {
    /// The path from the root of the joined tree: names without `/`; none for the root itself.
    pub path: Vec<Box<[u8]>>,
    /// The tree.
    pub tree: Arc<dyn FileSystem>,
    /// The file of `tree` that has this path: its root, or another file.
    pub ino: Ino,
    /// Its kind.
    pub kind: FileKind,
}

/// Several trees as one.
///
/// Directories of several trees at the same path have the entries of all, and the metadata of the
/// last. Of other files at the same path, the last one counts. Directories above a graft that no
/// tree has get the metadata of the root of the first tree.
///
/// Extents of one tree alone stay as they are; of several trees, they keep their encoding, and what
/// is shared within a tree. Memory use is about 100 bytes for each file that was listed.
pub struct Joined {
    grafts: Vec<Graft>,
    storage: Storage,
    table: RwLock<JoinTable>,
}

#[derive(Default)]
struct JoinTable {
    nodes: Vec<JoinedNode>,
    /// The nodes of files that trees have, so that hard links are names of one node.
    known: HashMap<GraftFile, Ino>,
    replaced: u64,
}

/// A file of one of the grafted trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct GraftFile {
    graft: u16,
    ino: Ino,
}

#[derive(Clone)]
enum JoinedNode {
    File(GraftFile),
    Directory(Arc<JoinedDirectory>),
}

/// A directory of the joined tree.
#[derive(Default)]
struct JoinedDirectory {
    /// What it consists of, in the order of the trees.
    parts: Vec<GraftFile>,
    /// Grafts at or below it, with the number of names of their paths that lead here.
    grafts: Vec<(u16, usize)>,
    /// The entries, once they were listed.
    entries: RwLock<Option<Arc<[DirEntry]>>>,
}

/// What a name of a directory stands for, while its parts are gathered.
enum NameTarget {
    File(GraftFile, FileKind),
    Directory(JoinedDirectory),
}

/// What each name of a directory stands for.
type Names = BTreeMap<Box<[u8]>, NameTarget>;

impl Joined {
    /// Joins trees, of which each is over those before it.
    ///
    /// # Errors
    /// [`Error::Limit`] for more than 65,535 trees; [`Error::NotADirectory`] if the root is another
    /// file; [`Error::InvalidInput`] if there is none.
    pub fn new(grafts: Vec<Graft>) -> Result<Joined> {
        if u16::try_from(grafts.len()).is_err() {
            return Err(Error::Limit("trees that are joined"));
        }
        let first = grafts
            .first()
            .ok_or(Error::InvalidInput("no tree to join"))?;
        let storage = storage_of(&grafts, first.tree.storage());
        let mut root = JoinedDirectory::default();
        for (number, graft) in (0u16..).zip(&grafts) {
            if !graft.path.is_empty() {
                root.grafts.push((number, 0));
            } else if graft.kind == FileKind::Directory {
                root.parts.push(GraftFile {
                    graft: number,
                    ino: graft.ino,
                });
            } else {
                return Err(Error::NotADirectory);
            }
        }
        let table = JoinTable {
            nodes: vec![JoinedNode::Directory(Arc::new(root))],
            ..JoinTable::default()
        };
        Ok(Joined {
            grafts,
            storage,
            table: RwLock::new(table),
        })
    }

    /// The number of files, of those listed so far, that are hidden by others with the same path.
    pub fn replaced(&self) -> u64 {
        self.table().replaced
    }

    fn table(&self) -> RwLockReadGuard<'_, JoinTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, JoinTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self, ino: Ino) -> Result<JoinedNode> {
        let table = self.table();
        let node = usize::try_from(ino.0)
            .ok()
            .and_then(|at| table.nodes.get(at));
        node.cloned().ok_or(Error::NotFound)
    }

    fn directory(&self, ino: Ino) -> Result<Arc<JoinedDirectory>> {
        match self.node(ino)? {
            JoinedNode::Directory(directory) => Ok(directory),
            JoinedNode::File(_) => Err(Error::NotADirectory),
        }
    }

    fn tree(&self, part: GraftFile) -> &dyn FileSystem {
        &*self.grafts[usize::from(part.graft)].tree
    }

    /// The file of a tree that a file is, or that a directory has its metadata from.
    fn part(&self, ino: Ino) -> Result<Option<GraftFile>> {
        Ok(match self.node(ino)? {
            JoinedNode::File(part) => Some(part),
            JoinedNode::Directory(directory) => directory.parts.last().copied(),
        })
    }

    /// The file of a tree that has content.
    fn file(&self, ino: Ino) -> Result<GraftFile> {
        match self.node(ino)? {
            JoinedNode::File(part) => Ok(part),
            JoinedNode::Directory(_) => Err(Error::IsADirectory),
        }
    }

    /// The entries of a directory; `list` lists a part of it.
    fn entries(
        &self,
        directory: &JoinedDirectory,
        mut list: impl FnMut(&dyn FileSystem, Ino) -> Result<Vec<DirEntry>>,
    ) -> Result<Arc<[DirEntry]>> {
        if let Some(entries) = &*directory
            .entries
            .read()
            .unwrap_or_else(PoisonError::into_inner)
        {
            return Ok(Arc::clone(entries));
        }
        let (names, replaced) = self.gather(directory, &mut list)?;
        let mut known = directory
            .entries
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(entries) = &*known {
            return Ok(Arc::clone(entries)); // Another thread was faster.
        }
        let mut table = self.table_mut();
        table.replaced += replaced;
        let entries = names
            .into_iter()
            .map(|(name, found)| table.entry(name, found));
        let entries: Arc<[DirEntry]> = entries.collect();
        *known = Some(Arc::clone(&entries));
        Ok(entries)
    }

    /// What each name of a directory stands for, and how many files others have replaced.
    fn gather(
        &self,
        directory: &JoinedDirectory,
        list: &mut impl FnMut(&dyn FileSystem, Ino) -> Result<Vec<DirEntry>>,
    ) -> Result<(Names, u64)> {
        let mut names = Names::new();
        let mut replaced = 0;
        let parts = directory
            .parts
            .iter()
            .map(|part| (part.graft, None, part.ino));
        let grafts = directory
            .grafts
            .iter()
            .map(|&(graft, depth)| (graft, Some(depth), self.grafts[usize::from(graft)].ino));
        let mut sources: Vec<_> = parts.chain(grafts).collect();
        sources.sort_by_key(|(graft, ..)| *graft);
        for (graft, depth, ino) in sources {
            let Some(depth) = depth else {
                let part = GraftFile { graft, ino };
                for entry in list(self.tree(part), ino)? {
                    let part = GraftFile {
                        graft,
                        ino: entry.ino,
                    };
                    let found = NameTarget::of(part, entry.kind);
                    replaced += u64::from(add(&mut names, entry.name, found));
                }
                continue;
            };
            let Graft { path, kind, .. } = &self.grafts[usize::from(graft)];
            let found = if depth + 1 == path.len() {
                NameTarget::of(GraftFile { graft, ino }, *kind)
            } else {
                NameTarget::Directory(JoinedDirectory {
                    grafts: vec![(graft, depth + 1)],
                    ..JoinedDirectory::default()
                })
            };
            replaced += u64::from(add(&mut names, path[depth].clone(), found));
        }
        Ok((names, replaced))
    }
}

impl NameTarget {
    fn of(part: GraftFile, kind: FileKind) -> NameTarget {
        if kind != FileKind::Directory {
            return NameTarget::File(part, kind);
        }
        NameTarget::Directory(JoinedDirectory {
            parts: vec![part],
            ..JoinedDirectory::default()
        })
    }
}

/// Adds what a later tree has under a name. Returns whether it replaces a file.
fn add(names: &mut Names, name: Box<[u8]>, found: NameTarget) -> bool {
    match (names.get_mut(&name), found) {
        (None, found) => {
            names.insert(name, found);
            false
        }
        (Some(NameTarget::Directory(under)), NameTarget::Directory(over)) => {
            under.parts.extend(over.parts);
            under.grafts.extend(over.grafts);
            false
        }
        (Some(place), found) => {
            *place = found;
            true
        }
    }
}

impl JoinTable {
    fn entry(&mut self, name: Box<[u8]>, found: NameTarget) -> DirEntry {
        let (part, kind, node) = match found {
            NameTarget::File(part, kind) => (Some(part), kind, JoinedNode::File(part)),
            NameTarget::Directory(directory) => {
                let part = directory.parts.last().copied();
                let node = JoinedNode::Directory(Arc::new(directory));
                (part, FileKind::Directory, node)
            }
        };
        let known = part.and_then(|part| self.known.get(&part).copied());
        let ino = known.unwrap_or_else(|| {
            let ino = Ino(self.nodes.len() as u64);
            self.nodes.push(node);
            if let Some(part) = part {
                self.known.insert(part, ino);
            }
            ino
        });
        DirEntry { name, ino, kind }
    }
}

/// Content of several trees is in several stores, which become one.
fn storage_of(grafts: &[Graft], first: Storage) -> Storage {
    if grafts.len() == 1 {
        return first;
    }
    let all = || grafts.iter().map(|graft| graft.tree.storage());
    let is_same = all().all(|storage| storage.block_encoding == first.block_encoding);
    Storage {
        store: StoreId::new(),
        block_encoding: first.block_encoding.filter(|_| is_same),
        stored_extents: all().any(|storage| storage.stored_extents),
        whole_seconds: all().all(|storage| storage.whole_seconds),
    }
}

impl FileSystem for Joined {
    fn root(&self) -> Ino {
        ROOT
    }

    fn storage(&self) -> Storage {
        self.storage
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        let Some(part) = self.part(ino)? else {
            let tree = &self.grafts[0].tree;
            return tree.metadata(tree.root());
        };
        let mut metadata = self.tree(part).metadata(part.ino)?;
        if self.grafts.len() > 1 {
            metadata.identity = None;
        }
        Ok(metadata)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        let directory = self.directory(dir)?;
        let entries = self.entries(&directory, |tree, ino| tree.read_dir(ino))?;
        Ok(entries.to_vec())
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        with_metadata(self, self.read_dir(dir)?)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        let mut errors = Vec::new();
        let listed = self.directory(dir).and_then(|directory| {
            self.entries(&directory, |tree, ino| {
                let (entries, unlisted) = tree.list_readable(ino);
                errors.extend(unlisted);
                Ok(entries)
            })
        });
        match listed {
            Ok(entries) => (entries.to_vec(), errors),
            Err(error) => {
                errors.push(error);
                (Vec::new(), errors)
            }
        }
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        entry_named(self.read_dir(dir)?, name)
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        match self.node(link)? {
            JoinedNode::File(part) => self.tree(part).read_link(part.ino),
            JoinedNode::Directory(_) => Err(Error::InvalidInput("the file is not a symbolic link")),
        }
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        match self.part(ino)? {
            Some(part) => self.tree(part).xattrs(part.ino),
            None => Ok(Vec::new()),
        }
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        let part = self.file(file)?;
        let mut extents = self.tree(part).extents(part.ino, from)?;
        let count = self.grafts.len() as u64;
        if count > 1 {
            for extent in &mut extents {
                // Each tree has numbers of its own.
                let id = extent.id.and_then(|id| id.0.checked_mul(count));
                extent.id = id.and_then(|id| Some(ExtentId(id.checked_add(part.graft.into())?)));
            }
        }
        Ok(extents)
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let part = self.file(file)?;
        self.tree(part).read_at(part.ino, offset, buf)
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        let Ok(part) = self.file(file) else {
            return Err(NOTHING_ENCODED);
        };
        let tree = self.tree(part);
        let mut extent = *extent;
        if self.grafts.len() > 1 {
            extent.id = extent
                .id
                .map(|id| ExtentId(id.0 / self.grafts.len() as u64));
        }
        tree.read_encoded(part.ino, &extent, stored)
    }

    fn host_content(&self, file: Ino) -> Option<HostContent<'_>> {
        let part = self.file(file).ok()?;
        self.tree(part).host_content(part.ino)
    }
}
