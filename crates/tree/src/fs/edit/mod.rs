//! A tree as it shall be copied: with less in it, with more, and with other owners, permissions and times.
//!
//! Whatever holds the tree and whatever it becomes, editing is one thing: [`Edited`] is a [`FileSystem`] before another one.

mod list;
mod mode;
mod pattern;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use list::{Added, Addition, ListError, Priorities, Stats};
pub use mode::ModeChange;
pub use pattern::Patterns;

use super::{
    Checksum, DirEntry, Extent, FileAttributes, FileKind, FileSystem, HostDir, Ino, Metadata,
    NOTHING_ENCODED, Storage, Time, Xattr,
};
use crate::{Error, Result};

/// Files that may be added; their numbers are the highest ones, which no container uses.
const ADDED_MAX: usize = 1 << 20;

/// Other numbers for a range of owners or groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMap {
    /// The first number in the source.
    pub from: u32,
    /// What it becomes; the next ones follow.
    pub to: u32,
    /// How many there are.
    pub count: u32,
}

/// What is to be different.
#[derive(Debug, Default)]
pub struct Edits {
    /// Only what matches, with all that is below it and the directories above it; everything when empty.
    pub only: Patterns,
    /// What is left out, with all that is below it.
    pub exclude: Patterns,
    /// Ranges of owners; the first that holds an owner counts, and an owner in none stays.
    pub uid_maps: Vec<IdMap>,
    /// Ranges of groups, likewise.
    pub gid_maps: Vec<IdMap>,
    /// An owner for all.
    pub uid: Option<u32>,
    /// A group for all.
    pub gid: Option<u32>,
    /// Permissions of all but directories and symbolic links.
    pub file_mode: Option<ModeChange>,
    /// Permissions of directories.
    pub dir_mode: Option<ModeChange>,
    /// A time for all, in the place of every time that a file has.
    pub time: Option<Time>,
    /// Whether extended attributes are left out, but for those that are added.
    pub no_xattrs: bool,
    /// Names of extended attributes that are kept; all when empty.
    pub xattrs_only: Patterns,
    /// Names of extended attributes that are left out.
    pub xattrs_exclude: Patterns,
    /// What is added and changed, one after the other. What it says of a file, nothing above changes but the time.
    pub additions: Vec<Addition>,
}

/// A tree with edits.
///
/// An added file takes the place of one that is there, unless either is a directory. One whose line says no time has that of the
/// source's root. A directory has to be listed, or looked up, before what is in it.
pub struct Edited {
    source: Arc<dyn FileSystem>,
    edits: Edits,
    nodes: Vec<Node>,
    /// The added names of directories, ascending.
    names: HashMap<Ino, Vec<DirEntry>>,
    /// What is known of files in the source beside what the source says.
    changes: HashMap<Ino, Change>,
    /// Directories of this machine that files are added from.
    hosts: Vec<(PathBuf, HostDir)>,
    /// The paths of the source's directories, as far as they were met; none when no pattern asks for them.
    paths: Mutex<HashMap<Ino, Box<[u8]>>>,
}

/// A file that is added.
struct Node {
    content: Content,
    metadata: Metadata,
    xattrs: Vec<Xattr>,
}

enum Content {
    None,
    Target(Box<[u8]>),
    /// A file in one of the directories of this machine.
    Host(usize, Ino),
}

#[derive(Default)]
struct Change {
    stats: Option<Stats>,
    xattrs: Vec<Xattr>,
}

impl Edited {
    /// A tree as in `source`, with these edits.
    ///
    /// # Errors
    /// [`Error::File`] for an addition whose directory is not there, whose place is taken by a directory or that replaces one,
    /// or which changes what is not there; for a file of this machine that is none or cannot be read.
    pub fn new(source: Arc<dyn FileSystem>, mut edits: Edits) -> Result<Edited> {
        let additions = std::mem::take(&mut edits.additions);
        let root = source.root();
        let mut edited = Edited {
            source,
            edits,
            nodes: Vec::new(),
            names: HashMap::new(),
            changes: HashMap::new(),
            hosts: Vec::new(),
            paths: Mutex::new(HashMap::from([(root, Box::default())])),
        };
        if additions.len() > ADDED_MAX {
            return Err(Error::Limit("more than 2^20 files are added"));
        }
        for Addition { path, what } in additions {
            edited
                .add(&path, what)
                .map_err(|error| error.in_file("add", &path))?;
        }
        Ok(edited)
    }

    /// The patterns of what to take that matched nothing so far.
    pub fn unmatched_only(&self) -> impl Iterator<Item = &[u8]> {
        self.edits.only.unmatched()
    }

    /// The patterns of what to leave out that matched nothing so far.
    pub fn unmatched_exclude(&self) -> impl Iterator<Item = &[u8]> {
        self.edits.exclude.unmatched()
    }

    fn add(&mut self, path: &[u8], what: Added) -> Result<()> {
        if path.is_empty() {
            return self.change(self.root(), what);
        }
        let (parent, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], path),
        };
        let mut dir = self.root();
        for name in parent
            .split(|&byte| byte == b'/')
            .filter(|name| !name.is_empty())
        {
            let entry = self.lookup(dir, name)?;
            if entry.kind != FileKind::Directory {
                return Err(Error::NotADirectory);
            }
            dir = entry.ino;
        }
        let there = match self.lookup(dir, name) {
            Ok(there) => Some(there),
            Err(Error::NotFound) => None,
            Err(error) => return Err(error),
        };
        let node = match (what, there) {
            (
                Added::File {
                    kind: FileKind::Directory,
                    stats,
                    ..
                },
                Some(there),
            ) if there.kind == FileKind::Directory => {
                return self.change(there.ino, Added::Change(stats));
            }
            (what @ (Added::Change(_) | Added::Xattr(_)), Some(there)) => {
                return self.change(there.ino, what);
            }
            (Added::Change(_) | Added::Xattr(_), None) => return Err(Error::NotFound),
            (_, Some(there)) if there.kind == FileKind::Directory => {
                return Err(Error::IsADirectory);
            }
            (
                Added::File {
                    kind: FileKind::Directory,
                    ..
                },
                Some(_),
            ) => {
                return Err(Error::NotADirectory);
            }
            (
                Added::File {
                    kind,
                    stats,
                    rdev,
                    target,
                },
                _,
            ) => {
                let mtime = match stats.mtime {
                    Some(time) => time,
                    None => self.source.metadata(self.source.root())?.mtime,
                };
                let metadata = Metadata {
                    kind,
                    permissions: stats.permissions,
                    uid: stats.uid,
                    gid: stats.gid,
                    nlink: 1,
                    size: target.len() as u64,
                    rdev,
                    mtime,
                    atime: None,
                    ctime: None,
                    btime: None,
                    attributes: FileAttributes::default(),
                    identity: None,
                };
                let content = if kind == FileKind::Symlink {
                    Content::Target(target)
                } else {
                    Content::None
                };
                Node {
                    content,
                    metadata,
                    xattrs: Vec::new(),
                }
            }
            (Added::HostFile(file), _) => self.host_file(&file)?,
        };
        let ino = Ino(u64::MAX - self.nodes.len() as u64);
        let entry = DirEntry {
            name: name.into(),
            ino,
            kind: node.metadata.kind,
        };
        self.nodes.push(node);
        let names = self.names.entry(dir).or_default();
        match names.binary_search_by(|entry| (*entry.name).cmp(name)) {
            Ok(at) => names[at] = entry,
            Err(at) => names.insert(at, entry),
        }
        Ok(())
    }

    fn change(&mut self, ino: Ino, what: Added) -> Result<()> {
        let has_name = |xattrs: &[Xattr], name: &[u8]| {
            xattrs.binary_search_by(|known| (*known.name).cmp(name))
        };
        match (what, self.node_index(ino)) {
            (Added::Change(stats) | Added::File { stats, .. }, Some(index)) => {
                stats.apply(&mut self.nodes[index].metadata);
            }
            (Added::Change(stats) | Added::File { stats, .. }, None) => {
                self.changes.entry(ino).or_default().stats = Some(stats);
            }
            (Added::Xattr(xattr), index) => {
                let xattrs = match index {
                    Some(index) => &mut self.nodes[index].xattrs,
                    None => &mut self.changes.entry(ino).or_default().xattrs,
                };
                match has_name(xattrs, &xattr.name) {
                    Ok(at) => xattrs[at] = xattr,
                    Err(at) => xattrs.insert(at, xattr),
                }
            }
            (Added::HostFile(_), _) => return Err(Error::IsADirectory),
        }
        Ok(())
    }

    fn host_file(&mut self, file: &Path) -> Result<Node> {
        let (parent, name) = linux::split_path(file).ok_or(Error::IsADirectory)?;
        let host = match self.hosts.iter().position(|(known, _)| known == parent) {
            Some(host) => host,
            None => {
                self.hosts.push((parent.to_owned(), HostDir::open(parent)?));
                self.hosts.len() - 1
            }
        };
        let dir = &self.hosts[host].1;
        let entry = dir.lookup(dir.root(), name)?;
        let metadata = dir.metadata(entry.ino)?;
        if metadata.kind != FileKind::Regular {
            return Err(Error::InvalidInput("it is no regular file of this machine"));
        }
        Ok(Node {
            xattrs: dir.xattrs(entry.ino)?,
            metadata: Metadata {
                nlink: 1,
                ..metadata
            },
            content: Content::Host(host, entry.ino),
        })
    }

    fn node_index(&self, ino: Ino) -> Option<usize> {
        let index = usize::try_from(u64::MAX - ino.0).ok()?;
        (index < self.nodes.len()).then_some(index)
    }

    fn node(&self, ino: Ino) -> Option<&Node> {
        self.node_index(ino).map(|index| &self.nodes[index])
    }

    /// The host directory and the file in it, if content is there.
    fn host(&self, node: &Node) -> Option<(&HostDir, Ino)> {
        match node.content {
            Content::Host(host, ino) => Some((&self.hosts[host].1, ino)),
            _ => None,
        }
    }

    fn needs_paths(&self) -> bool {
        !self.edits.only.is_empty() || !self.edits.exclude.is_empty()
    }

    fn paths(&self) -> MutexGuard<'_, HashMap<Ino, Box<[u8]>>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of a directory that was met, with room for a name behind it.
    fn path_of(&self, dir: Ino) -> Result<Vec<u8>> {
        let paths = self.paths();
        let path = paths.get(&dir).ok_or(Error::NotFound)?;
        let mut path = path.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        Ok(path)
    }

    /// Whether a file of the source is in the tree: `path` is that of its directory, and gets its name.
    fn keeps(&self, path: &mut Vec<u8>, entry: &DirEntry) -> bool {
        let len = path.len();
        path.extend_from_slice(&entry.name);
        let edits = &self.edits;
        let keeps =
            !edits.exclude.matches(path) && (edits.only.is_empty() || edits.only.concerns(path));
        if keeps && entry.kind == FileKind::Directory {
            self.paths().insert(entry.ino, path.as_slice().into());
        }
        path.truncate(len);
        keeps
    }

    /// Leaves out of a listing of the source what is not in the tree, and adds what is.
    fn edit_listing<T>(
        &self,
        dir: Ino,
        mut listing: Vec<T>,
        entry_of: impl Fn(&T) -> &DirEntry,
        make: impl Fn(&DirEntry) -> Result<T>,
    ) -> Result<Vec<T>> {
        if listing
            .iter()
            .any(|item| self.node(entry_of(item).ino).is_some())
        {
            return Err(Error::Limit(
                "a file's number is one of those that are given to added files",
            ));
        }
        if self.needs_paths() {
            let mut path = self.path_of(dir)?;
            listing.retain(|item| self.keeps(&mut path, entry_of(item)));
        }
        for added in self.names.get(&dir).into_iter().flatten() {
            let at = listing.binary_search_by(|item| entry_of(item).name.cmp(&added.name));
            match at {
                Ok(at) => listing[at] = make(added)?,
                Err(at) => listing.insert(at, make(added)?),
            }
        }
        Ok(listing)
    }

    /// What is to be known of a file of the source.
    fn edit_metadata(&self, ino: Ino, metadata: &mut Metadata) {
        let edits = &self.edits;
        metadata.uid = edits.uid.unwrap_or(mapped(metadata.uid, &edits.uid_maps));
        metadata.gid = edits.gid.unwrap_or(mapped(metadata.gid, &edits.gid_maps));
        let mode = match metadata.kind {
            FileKind::Directory => edits.dir_mode.as_ref(),
            FileKind::Symlink => None,
            _ => edits.file_mode.as_ref(),
        };
        if let Some(mode) = mode {
            let is_directory = metadata.kind == FileKind::Directory;
            metadata.permissions = mode.apply(metadata.permissions, is_directory);
        }
        if let Some(stats) = self.changes.get(&ino).and_then(|change| change.stats) {
            stats.apply(metadata);
        }
        self.edit_times(metadata);
    }

    fn edit_times(&self, metadata: &mut Metadata) {
        if let Some(time) = self.edits.time {
            metadata.mtime = time;
            for other in [
                &mut metadata.atime,
                &mut metadata.ctime,
                &mut metadata.btime,
            ] {
                *other = other.map(|_| time);
            }
        }
    }
}

impl Stats {
    fn apply(&self, metadata: &mut Metadata) {
        metadata.permissions = self.permissions;
        metadata.uid = self.uid;
        metadata.gid = self.gid;
        metadata.mtime = self.mtime.unwrap_or(metadata.mtime);
    }
}

fn mapped(id: u32, maps: &[IdMap]) -> u32 {
    let map = maps.iter().find(|map| {
        id.checked_sub(map.from)
            .is_some_and(|index| index < map.count)
    });
    map.map_or(id, |map| map.to.wrapping_add(id - map.from))
}

impl FileSystem for Edited {
    fn root(&self) -> Ino {
        self.source.root()
    }

    fn storage(&self) -> Storage {
        // Added files are plain and have no identities, wherever they are asked for.
        self.source.storage()
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        if let Some(node) = self.node(ino) {
            let mut metadata = node.metadata.clone();
            self.edit_times(&mut metadata);
            return Ok(metadata);
        }
        let mut metadata = self.source.metadata(ino)?;
        self.edit_metadata(ino, &mut metadata);
        Ok(metadata)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        let listing = match self.node(dir) {
            Some(node) if node.metadata.kind != FileKind::Directory => {
                return Err(Error::NotADirectory);
            }
            Some(_) => return Ok(self.names.get(&dir).cloned().unwrap_or_default()),
            None => self.source.read_dir(dir)?,
        };
        self.edit_listing(dir, listing, |entry| entry, |added| Ok(added.clone()))
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        let make = |added: &DirEntry| Ok((added.clone(), self.metadata(added.ino)?));
        if self.node(dir).is_some() {
            return self.read_dir(dir)?.iter().map(make).collect();
        }
        let mut listing = self.source.read_dir_with_metadata(dir)?;
        for (entry, metadata) in &mut listing {
            self.edit_metadata(entry.ino, metadata);
        }
        self.edit_listing(dir, listing, |(entry, _)| entry, make)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        let names = self.names.get(&dir).map_or(&[][..], Vec::as_slice);
        if let Ok(at) = names.binary_search_by(|entry| (*entry.name).cmp(name)) {
            return Ok(names[at].clone());
        }
        match self.node(dir) {
            Some(node) if node.metadata.kind == FileKind::Directory => return Err(Error::NotFound),
            Some(_) => return Err(Error::NotADirectory),
            None => {}
        }
        let entry = self.source.lookup(dir, name)?;
        if self.needs_paths() && !self.keeps(&mut self.path_of(dir)?, &entry) {
            return Err(Error::NotFound);
        }
        Ok(entry)
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        match self.node(link) {
            None => self.source.read_link(link),
            Some(Node {
                content: Content::Target(target),
                ..
            }) => Ok(target.to_vec()),
            Some(_) => Err(Error::InvalidInput("an added file is no symbolic link")),
        }
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        if let Some(node) = self.node(ino) {
            return Ok(node.xattrs.clone());
        }
        let mut xattrs = match self.edits.no_xattrs {
            true => Vec::new(),
            false => self.source.xattrs(ino)?,
        };
        let (only, exclude) = (&self.edits.xattrs_only, &self.edits.xattrs_exclude);
        xattrs.retain(|xattr| {
            (only.is_empty() || only.matches(&xattr.name)) && !exclude.matches(&xattr.name)
        });
        for added in self
            .changes
            .get(&ino)
            .map_or(&[][..], |change| &change.xattrs)
        {
            match xattrs.binary_search_by(|known| known.name.cmp(&added.name)) {
                Ok(at) => xattrs[at] = added.clone(),
                Err(at) => xattrs.insert(at, added.clone()),
            }
        }
        Ok(xattrs)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        let Some(node) = self.node(file) else {
            return self.source.extents(file, from);
        };
        match self.host(node) {
            Some((dir, ino)) => dir.extents(ino, from),
            None if node.metadata.kind == FileKind::Directory => Err(Error::IsADirectory),
            None => Err(Error::InvalidInput("an added file has no content")),
        }
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let Some(node) = self.node(file) else {
            return self.source.read_at(file, offset, buf);
        };
        match self.host(node) {
            Some((dir, ino)) => dir.read_at(ino, offset, buf),
            None if node.metadata.kind == FileKind::Directory => Err(Error::IsADirectory),
            None => Err(Error::InvalidInput("an added file has nothing to read")),
        }
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        match self.node(file) {
            Some(_) => Err(NOTHING_ENCODED),
            None => self.source.read_encoded(file, extent, stored),
        }
    }
}
