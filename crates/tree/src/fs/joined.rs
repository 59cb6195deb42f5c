//! Several trees as one: each at a path, later ones over earlier ones.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::overlayfs::{Mark, OverlayAttributes, Redirect};
use super::{
    Checksum, DevicePlace, DirEntry, Extent, ExtentId, FileKind, FileSystem, HostContent, Ino,
    Metadata, NOTHING_ENCODED, Storage, StoreId, Xattr, entry_named, with_metadata,
};
use crate::{Error, Result};

/// Numbers of other files than those of the first tree have this bit.
const OTHER: u64 = 1 << 63;
/// The bits of a number that a file has in its tree; it is below 2^52, or at least 2^64 - 2^52.
const OWN_BITS: u32 = 53;
const OWN_LIMIT: u64 = 1 << (OWN_BITS - 1);
/// In the place of a tree's number: the file is in the table.
const IN_TABLE: u64 = (1 << (63 - OWN_BITS)) - 1;

/// Maximum number of names that are looked up for directories that overlayfs renamed, so that
/// hostile layers, which can name each other's directories, end.
const REDIRECTED_NAMES_MAX: u64 = 1 << 26;

/// A tree, or a file of one, and where it is in a [`Joined`] tree.
pub struct Graft {
    /// The path from the root of the joined tree: names without `/`; none for the root itself.
    pub path: Vec<Box<[u8]>>,
    /// The tree.
    pub tree: Arc<dyn FileSystem>,
    /// The file of `tree` that has this path, such as its root. Several directories become one that
    /// has the entries of all.
    pub files: Vec<Ino>,
    /// Their kind.
    pub kind: FileKind,
}

impl Graft {
    /// A whole tree at a path.
    pub fn at(path: Vec<Box<[u8]>>, tree: Arc<dyn FileSystem>) -> Graft {
        Graft {
            path,
            files: vec![tree.root()],
            kind: FileKind::Directory,
            tree,
        }
    }

    /// What it consists of as a graft of this number.
    fn parts(&self, number: u16) -> impl Iterator<Item = GraftFile> {
        let files = self.files.iter();
        files.map(move |&ino| GraftFile { graft: number, ino })
    }
}

/// Several trees as one; without any, an empty directory.
///
/// Directories of several trees at the same path have the entries of all, and the metadata of the
/// last. Of other files at the same path, the last one counts. Directories above a graft that no
/// tree has get the metadata of the root of the first tree.
///
/// Files of the first tree keep their numbers. Extents of one tree alone stay as they are; of
/// several trees, they keep their encoding, and what is shared within a tree. Memory grows with the
/// entries of the directories that several trees have.
pub struct Joined {
    grafts: Vec<Graft>,
    /// For each graft, the first one with the same tree: its files are the same there.
    firsts: Vec<u16>,
    root: Ino,
    storage: Storage,
    /// Whether extents and files have the identities that they have in their trees.
    keeps_identities: bool,
    /// If the trees are layers of overlayfs, the attributes that hide files of those below.
    overlay: Option<OverlayAttributes>,
    /// Names that were looked up for directories that overlayfs renamed.
    redirected_names: AtomicU64,
    table: RwLock<JoinTable>,
}

#[derive(Default)]
struct JoinTable {
    /// Directories of several trees, and files whose numbers say too little.
    nodes: HashMap<Ino, JoinedNode>,
    /// The numbers of the latter, so that hard links are names of one file.
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
    /// Of one tree, with all below it.
    File(GraftFile),
    Directory(Arc<JoinedDirectory>),
    /// A file, and the one that has its content.
    Metacopy(GraftFile, GraftFile),
}

/// A directory of the joined tree.
#[derive(Default)]
struct JoinedDirectory {
    /// What it consists of, in the order of the trees.
    parts: Vec<GraftFile>,
    /// Grafts at or below it, with the number of names of their paths that lead here.
    grafts: Vec<(u16, usize)>,
    /// Whether the first part may be a part of other directories, too.
    is_moved: bool,
    /// The entries, once they were listed.
    entries: RwLock<Option<Arc<[DirEntry]>>>,
}

/// What a name of a directory stands for, while its parts are gathered.
enum NameTarget {
    File(GraftFile, FileKind),
    Directory(JoinedDirectory),
    Metacopy(GraftFile, GraftFile),
}

/// An entry of a tree, and its mark for the trees below.
type MarkedEntry = (DirEntry, Mark);

/// What each name of a directory stands for.
type Names = BTreeMap<Box<[u8]>, NameTarget>;

impl Joined {
    /// Joins trees, of which each is over those before it.
    ///
    /// # Errors
    /// [`Error::Limit`] for more than 65,535 trees; [`Error::NotADirectory`] if the root is another
    /// file.
    pub fn new(grafts: Vec<Graft>) -> Result<Joined> {
        if u16::try_from(grafts.len()).is_err() {
            return Err(Error::Limit("trees that are joined"));
        }
        let mut known = HashMap::new();
        let firsts: Vec<u16> = ((0u16..).zip(&grafts))
            .map(|(number, graft)| {
                let tree = Arc::as_ptr(&graft.tree).cast::<()>();
                *known.entry(tree).or_insert(number)
            })
            .collect();
        let mut root = JoinedDirectory::default();
        for ((number, first), graft) in (0u16..).zip(&firsts).zip(&grafts) {
            if !graft.path.is_empty() {
                root.grafts.push((number, 0));
            } else if graft.kind == FileKind::Directory {
                root.parts.extend(graft.parts(*first));
            } else {
                return Err(Error::NotADirectory);
            }
        }
        let mut table = JoinTable::default();
        Ok(Joined {
            root: table.directory(root),
            storage: storage_of(&grafts),
            keeps_identities: grafts.len() <= 1,
            overlay: None,
            redirected_names: AtomicU64::new(0),
            grafts,
            firsts,
            table: RwLock::new(table),
        })
    }

    /// Merges layers of overlayfs, the lowest first, into the tree that a mount of Linux shows.
    /// Marks are whiteouts (character devices 0:0, or empty files with an attribute) and opaque
    /// directories. Attributes are those of the namespace `trusted`, or `user` as with the mount
    /// option `userxattr`. Directories that overlayfs renamed, and files whose content it left in a
    /// lower layer, are found there, but with `userxattr`, where Linux does not look for them: then
    /// they are errors where they are listed.
    ///
    /// # Errors
    /// As for [`Joined::new`].
    pub fn overlayfs(layers: Vec<Arc<dyn FileSystem>>, userxattr: bool) -> Result<Joined> {
        let layers = layers.into_iter();
        let grafts = layers.map(|layer| Graft::at(Vec::new(), layer)).collect();
        let mut joined = Joined::new(grafts)?;
        joined.overlay = Some(OverlayAttributes::new(userxattr));
        Ok(joined)
    }

    /// The same with the identities that extents and files have in their trees: all trees are of
    /// one store, or use numbers that the others do not.
    #[must_use]
    pub fn with_identities(mut self) -> Joined {
        self.keeps_identities = true;
        self
    }

    /// The number of files, of those listed so far, that are hidden by others with the same path.
    pub fn replaced(&self) -> u64 {
        self.table().replaced
    }

    /// The tree that a file comes from, or that a directory has its metadata from, by its number
    /// from 0, and the file there.
    pub fn origin(&self, ino: Ino) -> Option<(usize, Ino)> {
        let part = self.part(ino).ok()??;
        Some((usize::from(part.graft), part.ino))
    }

    fn table(&self) -> RwLockReadGuard<'_, JoinTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, JoinTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn node(&self, ino: Ino) -> Result<JoinedNode> {
        if let Some(node) = self.table().nodes.get(&ino) {
            return Ok(node.clone());
        }
        let file = GraftFile::of_number(ino);
        let is_known = usize::from(file.graft) < self.grafts.len();
        is_known
            .then_some(JoinedNode::File(file))
            .ok_or(Error::NotFound)
    }

    /// The number of a file of a tree.
    fn number(&self, file: GraftFile) -> Ino {
        (file.number()).unwrap_or_else(|| self.table_mut().file(file))
    }

    /// The same entry of a directory of one tree.
    fn entry(&self, dir: GraftFile, entry: DirEntry) -> DirEntry {
        let ino = self.number(GraftFile {
            ino: entry.ino,
            ..dir
        });
        DirEntry { ino, ..entry }
    }

    /// The same as its mark says; `None` for a whiteout.
    fn marked_entry(
        &self,
        dir: GraftFile,
        entry: DirEntry,
        mark: Mark,
    ) -> Result<Option<DirEntry>> {
        Ok(match mark {
            Mark::Whiteout => None,
            Mark::Plain | Mark::Opaque => Some(self.entry(dir, entry)),
            mark => {
                let found = self.target(&[dir], dir.graft, &entry, mark)?;
                Some(self.table_mut().entry(entry.name, found))
            }
        })
    }

    fn directory_entries(
        &self,
        dir: GraftFile,
        entries: Vec<MarkedEntry>,
    ) -> Result<Vec<DirEntry>> {
        let entries = entries.into_iter();
        let shown =
            entries.filter_map(|(entry, mark)| self.marked_entry(dir, entry, mark).transpose());
        shown.collect()
    }

    /// The meaning of an entry of a layer, whose directory consists of the parts `above`.
    fn target(
        &self,
        above: &[GraftFile],
        graft: u16,
        entry: &DirEntry,
        mark: Mark,
    ) -> Result<NameTarget> {
        let ino = entry.ino;
        let part = GraftFile { graft, ino };
        match mark {
            Mark::Moved(redirect) => {
                let mut parts = self.lower(above, graft, redirect, FileKind::Directory)?;
                parts.push(part);
                Ok(NameTarget::Directory(JoinedDirectory {
                    parts,
                    is_moved: true,
                    ..JoinedDirectory::default()
                }))
            }
            Mark::Metacopy(redirect) => {
                let here = || Redirect {
                    is_absolute: false,
                    names: vec![entry.name.clone()],
                };
                let redirect = redirect.unwrap_or_else(here);
                let lower = self.lower(above, graft, redirect, FileKind::Regular)?;
                let size = |part: &GraftFile| self.tree(*part).metadata(part.ino).map(|it| it.size);
                match lower.first() {
                    Some(data) if size(data)? == size(&part)? => {
                        Ok(NameTarget::Metacopy(part, *data))
                    }
                    _ => {
                        let what =
                            "a file whose content overlayfs left in a lower layer has none there";
                        Err(Error::Inconsistent(what).in_file("read", &entry.name))
                    }
                }
            }
            _ => Ok(NameTarget::of(part, entry.kind)),
        }
    }

    /// The files of layers below a graft to which a redirect leads, the lowest first: directories
    /// that are merged, or the regular file with the content. As Linux looks them up, in
    /// `ovl_lookup`: in one layer after the other, from the top, each of which can lead elsewhere.
    fn lower(
        &self,
        above: &[GraftFile],
        graft: u16,
        mut place: Redirect,
        kind: FileKind,
    ) -> Result<Vec<GraftFile>> {
        let mut found = Vec::new();
        for layer in (0..graft).rev() {
            let root = || self.grafts[usize::from(layer)].parts(layer).next();
            let parent = || above.iter().copied().find(|part| part.graft == layer);
            let base = if place.is_absolute { root() } else { parent() };
            let Some(mut dir) = base else {
                continue;
            };
            let (mut next, mut is_last_layer) = (place.clone(), false);
            let last = place.names.len().saturating_sub(1);
            for (at, name) in place.names.iter().enumerate() {
                if self.redirected_names.fetch_add(1, Ordering::Relaxed) > REDIRECTED_NAMES_MAX {
                    return Err(Error::Limit("names of directories that overlayfs renamed"));
                }
                let entry = match self.tree(dir).lookup(dir.ino, name) {
                    Err(Error::NotFound) => break,
                    entry => entry?,
                };
                let mark = self.mark(dir, &entry, None)?;
                let wanted = if at < last { FileKind::Directory } else { kind };
                if mark == Mark::Whiteout || entry.kind != wanted {
                    is_last_layer = true;
                    break;
                }
                dir = GraftFile {
                    graft: layer,
                    ino: entry.ino,
                };
                let has_content = !matches!(mark, Mark::Metacopy(_));
                if at == last && (has_content || kind == FileKind::Directory) {
                    found.push(dir);
                    is_last_layer |= kind != FileKind::Directory;
                }
                match mark {
                    Mark::Opaque => is_last_layer = true,
                    Mark::Moved(to) | Mark::Metacopy(Some(to)) => {
                        // An opaque directory on the way does not matter then.
                        is_last_layer &= !to.is_absolute;
                        next = next.redirected(last.saturating_sub(at), to);
                    }
                    _ => {}
                }
            }
            if is_last_layer {
                break;
            }
            place = next;
        }
        found.reverse();
        Ok(found)
    }

    /// The entries of a directory of one tree, with their marks.
    fn list(&self, dir: GraftFile) -> Result<Vec<MarkedEntry>> {
        let entries = self.tree(dir).read_dir(dir.ino)?.into_iter();
        let marked = entries.map(|entry| {
            let mark = self.mark(dir, &entry, None)?;
            Ok((entry, mark))
        });
        marked.collect()
    }

    /// Those of them that can be listed, and why others cannot.
    fn list_readable_of(&self, dir: GraftFile) -> (Vec<MarkedEntry>, Vec<Error>) {
        let (entries, mut errors) = self.tree(dir).list_readable(dir.ino);
        let marked = entries.into_iter().map(|entry| {
            let mark = self.mark(dir, &entry, None).unwrap_or_else(|error| {
                errors.push(error);
                // The name does not stand for the file of a lower layer.
                Mark::Whiteout
            });
            (entry, mark)
        });
        (marked.collect(), errors)
    }

    /// An extent as the tree that it is from knows it.
    fn own_extent(&self, extent: &Extent) -> Extent {
        let mut extent = *extent;
        if !self.keeps_identities {
            let count = self.grafts.len() as u64;
            extent.id = extent.id.map(|id| ExtentId(id.0 / count));
        }
        extent
    }

    fn mark(&self, dir: GraftFile, entry: &DirEntry, metadata: Option<&Metadata>) -> Result<Mark> {
        match self.overlay {
            Some(overlay) => overlay.mark(self.tree(dir), entry, metadata, dir.graft == 0),
            None => Ok(Mark::Plain),
        }
    }

    fn tree(&self, part: GraftFile) -> &dyn FileSystem {
        &*self.grafts[usize::from(part.graft)].tree
    }

    /// The file of a tree that a file is, or that a directory has its metadata from.
    fn part(&self, ino: Ino) -> Result<Option<GraftFile>> {
        Ok(match self.node(ino)? {
            JoinedNode::File(part) | JoinedNode::Metacopy(part, _) => Some(part),
            JoinedNode::Directory(directory) => directory.parts.last().copied(),
        })
    }

    /// Metadata of a file of a tree as it is here.
    fn described(&self, mut metadata: Metadata) -> Metadata {
        if !self.keeps_identities {
            metadata.identity = None;
        }
        metadata
    }

    /// The file of a tree that has content.
    fn file(&self, ino: Ino) -> Result<GraftFile> {
        match self.node(ino)? {
            JoinedNode::File(part) | JoinedNode::Metacopy(_, part) => Ok(part),
            JoinedNode::Directory(_) => Err(Error::IsADirectory),
        }
    }

    /// The entries of a directory; `list` lists a part of it.
    fn entries(
        &self,
        directory: &JoinedDirectory,
        mut list: impl FnMut(GraftFile) -> Result<Vec<MarkedEntry>>,
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
        let entries = names.into_iter();
        let entries = entries.map(|(name, found)| table.entry(name, found));
        let entries: Arc<[DirEntry]> = entries.collect();
        *known = Some(Arc::clone(&entries));
        Ok(entries)
    }

    /// What each name of a directory stands for, and how many files others have replaced.
    fn gather(
        &self,
        directory: &JoinedDirectory,
        list: &mut impl FnMut(GraftFile) -> Result<Vec<MarkedEntry>>,
    ) -> Result<(Names, u64)> {
        let mut names = Names::new();
        let mut replaced = 0;
        let parts = directory.parts.iter().map(|&part| (part.graft, Ok(part)));
        let grafts = directory.grafts.iter();
        let grafts = grafts.map(|&(graft, depth)| (graft, Err(depth)));
        let mut sources: Vec<_> = parts.chain(grafts).collect();
        sources.sort_by_key(|(graft, _)| *graft);
        for (graft, source) in sources {
            let depth = match source {
                Err(depth) => depth,
                Ok(part) => {
                    for (entry, mark) in list(part)? {
                        if mark != Mark::Plain {
                            names.remove(&entry.name);
                        }
                        if mark == Mark::Whiteout {
                            continue;
                        }
                        let found = self.target(&directory.parts, graft, &entry, mark)?;
                        replaced += u64::from(add(&mut names, entry.name, found));
                    }
                    continue;
                }
            };
            let grafted = &self.grafts[usize::from(graft)];
            let path = &grafted.path;
            let found = if depth + 1 == path.len() {
                match (
                    grafted.kind,
                    grafted.parts(self.firsts[usize::from(graft)]).next(),
                ) {
                    (FileKind::Directory, _) | (_, None) => {
                        NameTarget::Directory(JoinedDirectory {
                            parts: grafted.parts(self.firsts[usize::from(graft)]).collect(),
                            ..JoinedDirectory::default()
                        })
                    }
                    (kind, Some(part)) => NameTarget::File(part, kind),
                }
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
            under.is_moved |= over.is_moved;
            false
        }
        (Some(place), found) => {
            *place = found;
            true
        }
    }
}

impl GraftFile {
    /// The number of the file, if it says where the file is.
    fn number(self) -> Option<Ino> {
        if self.graft == 0 && self.ino.0 & OTHER == 0 {
            return Some(self.ino);
        }
        let own = self.ino.0.wrapping_add(OWN_LIMIT);
        let graft = u64::from(self.graft);
        let fits = own >> OWN_BITS == 0 && graft < IN_TABLE;
        fits.then_some(Ino(OTHER | graft << OWN_BITS | own))
    }

    /// The file with a number that says where it is.
    fn of_number(ino: Ino) -> GraftFile {
        if ino.0 & OTHER == 0 {
            return GraftFile { graft: 0, ino };
        }
        let own = ino.0 & ((1 << OWN_BITS) - 1);
        GraftFile {
            graft: ((ino.0 & !OTHER) >> OWN_BITS) as u16,
            ino: Ino(own.wrapping_sub(OWN_LIMIT)),
        }
    }
}

impl JoinTable {
    /// An entry of a directory.
    fn entry(&mut self, name: Box<[u8]>, found: NameTarget) -> DirEntry {
        let (ino, kind) = match found {
            NameTarget::File(file, kind) => (self.number(file), kind),
            NameTarget::Directory(directory) => (self.directory(directory), FileKind::Directory),
            NameTarget::Metacopy(file, data) => {
                let ino = self.number(file);
                self.nodes.insert(ino, JoinedNode::Metacopy(file, data));
                (ino, FileKind::Regular)
            }
        };
        DirEntry { name, ino, kind }
    }

    fn number(&mut self, file: GraftFile) -> Ino {
        file.number().unwrap_or_else(|| self.file(file))
    }

    /// The number of a file whose own says too little.
    fn file(&mut self, file: GraftFile) -> Ino {
        let next = self.next();
        let ino = *self.known.entry(file).or_insert(next);
        self.nodes.entry(ino).or_insert(JoinedNode::File(file));
        ino
    }

    /// The number of a directory: that of the first one that it consists of, or of the last one,
    /// which is in no other.
    fn directory(&mut self, directory: JoinedDirectory) -> Ino {
        let part = if directory.is_moved {
            directory.parts.last()
        } else {
            directory.parts.first()
        };
        let ino = match part {
            Some(part) => self.number(*part),
            None => self.next(),
        };
        if directory.parts.len() != 1 || !directory.grafts.is_empty() {
            let node = JoinedNode::Directory(Arc::new(directory));
            self.nodes.insert(ino, node);
        }
        ino
    }

    /// A number that no file has.
    fn next(&self) -> Ino {
        Ino(OTHER | IN_TABLE << OWN_BITS | self.nodes.len() as u64)
    }
}

/// Content of several trees is in several stores, which become one.
fn storage_of(grafts: &[Graft]) -> Storage {
    let mut all = grafts.iter().map(|graft| graft.tree.storage());
    let Some(first) = all.next() else {
        return Storage::plain(StoreId::new());
    };
    if grafts.len() == 1 {
        return first;
    }
    all.fold(first, |joined, other| Storage {
        store: StoreId::new(),
        // A tree without encoded extents has nothing to encode in another way.
        block_encoding: match (joined.stored_extents, other.stored_extents) {
            (_, false) => joined.block_encoding,
            (false, true) => other.block_encoding,
            _ => joined
                .block_encoding
                .filter(|_| joined.block_encoding == other.block_encoding),
        },
        stored_extents: joined.stored_extents || other.stored_extents,
        whole_seconds: joined.whole_seconds && other.whole_seconds,
    })
}

impl FileSystem for Joined {
    fn root(&self) -> Ino {
        self.root
    }

    fn storage(&self) -> Storage {
        self.storage
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        match (self.part(ino)?, self.grafts.first()) {
            (Some(part), _) => Ok(self.described(self.tree(part).metadata(part.ino)?)),
            (None, Some(Graft { tree, .. })) => tree.metadata(tree.root()),
            (None, None) => Ok(Metadata::new(FileKind::Directory, 0o755)),
        }
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        match self.node(dir)? {
            JoinedNode::File(dir) => {
                let entries = self.list(dir)?;
                self.directory_entries(dir, entries)
            }
            JoinedNode::Directory(directory) => {
                let entries = self.entries(&directory, |part| self.list(part))?;
                Ok(entries.to_vec())
            }
            JoinedNode::Metacopy(..) => Err(Error::NotADirectory),
        }
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        let JoinedNode::File(dir) = self.node(dir)? else {
            return with_metadata(self, self.read_dir(dir)?);
        };
        let entries = self.tree(dir).read_dir_with_metadata(dir.ino)?;
        let mut shown = Vec::with_capacity(entries.len());
        for (entry, metadata) in entries {
            let mark = self.mark(dir, &entry, Some(&metadata))?;
            if let Some(entry) = self.marked_entry(dir, entry, mark)? {
                shown.push((entry, self.described(metadata)));
            }
        }
        Ok(shown)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        let directory = match self.node(dir) {
            Ok(JoinedNode::File(dir)) => {
                let (entries, mut errors) = self.list_readable_of(dir);
                let shown = entries.into_iter().filter_map(|(entry, mark)| {
                    let shown = self.marked_entry(dir, entry, mark);
                    shown.map_err(|error| errors.push(error)).ok()?
                });
                return (shown.collect(), errors);
            }
            Ok(JoinedNode::Directory(directory)) => directory,
            Ok(JoinedNode::Metacopy(..)) => return (Vec::new(), vec![Error::NotADirectory]),
            Err(error) => return (Vec::new(), vec![error]),
        };
        let mut errors = Vec::new();
        let listed = self.entries(&directory, |part| {
            let (entries, unlisted) = self.list_readable_of(part);
            errors.extend(unlisted);
            Ok(entries)
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
        match self.node(dir)? {
            JoinedNode::File(dir) => {
                let entry = self.tree(dir).lookup(dir.ino, name)?;
                let mark = self.mark(dir, &entry, None)?;
                self.marked_entry(dir, entry, mark)?.ok_or(Error::NotFound)
            }
            JoinedNode::Directory(_) => entry_named(self.read_dir(dir)?, name),
            JoinedNode::Metacopy(..) => Err(Error::NotADirectory),
        }
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        match self.node(link)? {
            JoinedNode::File(part) => self.tree(part).read_link(part.ino),
            JoinedNode::Directory(_) | JoinedNode::Metacopy(..) => {
                Err(Error::InvalidInput("the file is not a symbolic link"))
            }
        }
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        match self.part(ino)? {
            Some(part) => {
                let xattrs = self.tree(part).xattrs(part.ino)?;
                Ok(match self.overlay {
                    Some(overlay) => overlay.shown(xattrs),
                    None => xattrs,
                })
            }
            None => Ok(Vec::new()),
        }
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        let part = self.file(file)?;
        let mut extents = self.tree(part).extents(part.ino, from)?;
        if !self.keeps_identities {
            let count = self.grafts.len() as u64;
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
        let extent = self.own_extent(extent);
        self.tree(part).read_encoded(part.ino, &extent, stored)
    }

    fn host_content(&self, file: Ino) -> Option<HostContent<'_>> {
        let part = self.file(file).ok()?;
        self.tree(part).host_content(part.ino)
    }

    fn stored_at(&self, file: Ino, extent: &Extent) -> Option<DevicePlace> {
        let part = self.file(file).ok()?;
        self.tree(part)
            .stored_at(part.ino, &self.own_extent(extent))
    }
}
