//! A tree as it shall be copied: with less in it, with more, and with other owners, permissions and times.
//!
//! Whatever holds the tree and whatever it becomes, editing is one thing: [`Edited`] is a [`FileSystem`] before another one.

mod filter;
mod list;
mod mode;
mod pattern;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use list::{Added, Addition, ListError, Priorities, Stats};
pub use mode::ModeChange;
pub use pattern::Patterns;

use super::{
    Checksum, DirEntry, Extent, FileKind, FileSystem, HostDir, Ino, Metadata, NOTHING_ENCODED,
    Overlay, Storage, Time, Xattr,
};
use crate::{Error, Result};
use filter::Filtered;

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
    /// The source without what is left out, with what applies to all of its files.
    filtered: Arc<Filtered>,
    /// What is added to it and changed in it.
    tree: Overlay<Option<HostFile>>,
    /// Directories of this machine that files are added from.
    hosts: Vec<(PathBuf, HostDir)>,
}

/// A file in one of the directories of this machine.
#[derive(Clone, Copy)]
struct HostFile {
    host: usize,
    ino: Ino,
}

impl Edited {
    /// A tree as in `source`, with these edits.
    ///
    /// # Errors
    /// [`Error::File`] for an addition whose directory is not there, whose place is taken by a directory or that replaces one,
    /// or which changes what is not there; for a file of this machine that is none or cannot be read.
    pub fn new(source: Arc<dyn FileSystem>, mut edits: Edits) -> Result<Edited> {
        let additions = std::mem::take(&mut edits.additions);
        let filtered = Arc::new(Filtered::new(source, edits));
        let mut edited = Edited {
            tree: Overlay::over(Arc::<Filtered>::clone(&filtered)),
            filtered,
            hosts: Vec::new(),
        };
        for Addition { path, what } in additions {
            edited
                .add(&path, what)
                .map_err(|error| error.in_file("add", &path))?;
        }
        Ok(edited)
    }

    /// The patterns of what to take that matched nothing so far.
    pub fn unmatched_only(&self) -> impl Iterator<Item = &[u8]> {
        self.filtered.edits.only.unmatched()
    }

    /// The patterns of what to leave out that matched nothing so far.
    pub fn unmatched_exclude(&self) -> impl Iterator<Item = &[u8]> {
        self.filtered.edits.exclude.unmatched()
    }

    fn add(&mut self, path: &[u8], what: Added) -> Result<()> {
        if path.is_empty() {
            return self.change(self.root(), what);
        }
        let (parent, name) = match path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => (&path[..slash], &path[slash + 1..]),
            None => (&b""[..], path),
        };
        let parents = parent.split(|&byte| byte == b'/');
        let (dir, kind) = self.tree.resolve(parents.filter(|name| !name.is_empty()))?;
        if kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let there = self.tree.find(dir, name)?;
        let kind = match &what {
            Added::File { kind, .. } => *kind,
            Added::HostFile(_) => FileKind::Regular,
            Added::Change(_) | Added::Xattr(_) => {
                let (there, _) = there.ok_or(Error::NotFound)?;
                return self.change(there, what);
            }
        };
        match there {
            Some((there, FileKind::Directory)) if kind == FileKind::Directory => {
                return self.change(there, what);
            }
            Some((_, FileKind::Directory)) => return Err(Error::IsADirectory),
            Some(_) if kind == FileKind::Directory => return Err(Error::NotADirectory),
            _ => {}
        }
        let ino = match what {
            Added::File {
                stats,
                rdev,
                target,
                ..
            } => {
                let mut metadata = Metadata::new(kind, stats.permissions);
                metadata.rdev = rdev;
                if stats.mtime.is_none() {
                    metadata.mtime = self.filtered.metadata(self.root())?.mtime;
                }
                stats.apply(&mut metadata);
                self.filtered.edit_times(&mut metadata);
                match kind {
                    FileKind::Symlink => self.tree.add_symlink(&metadata, &target, None)?,
                    _ => self.tree.add(&metadata, None)?,
                }
            }
            Added::HostFile(file) => self.add_host_file(&file)?,
            Added::Change(_) | Added::Xattr(_) => return Ok(()), // Done above.
        };
        self.tree.link(dir, name, ino)?;
        Ok(())
    }

    fn change(&mut self, ino: Ino, what: Added) -> Result<()> {
        match what {
            Added::Change(stats) | Added::File { stats, .. } => self.tree.change(ino, |metadata| {
                stats.apply(metadata);
                self.filtered.edit_times(metadata);
            }),
            Added::Xattr(xattr) => self.tree.set_xattr(ino, xattr),
            Added::HostFile(_) => Err(Error::IsADirectory),
        }
    }

    /// Adds a file of this machine, which has no name yet.
    fn add_host_file(&mut self, file: &Path) -> Result<Ino> {
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
        let mut metadata = dir.metadata(entry.ino)?;
        if metadata.kind != FileKind::Regular {
            return Err(Error::InvalidInput("it is no regular file of this machine"));
        }
        self.filtered.edit_times(&mut metadata);
        let content = HostFile {
            host,
            ino: entry.ino,
        };
        let ino = self.tree.add(&metadata, Some(content))?;
        for xattr in dir.xattrs(entry.ino)? {
            self.tree.set_xattr(ino, xattr)?;
        }
        Ok(ino)
    }

    /// Where a file's content is: the file system, and its number there.
    fn content(&self, file: Ino) -> Result<(&dyn FileSystem, Ino)> {
        if let Some(Some(HostFile { host, ino })) = self.tree.content(file) {
            return Ok((&self.hosts[*host].1, *ino));
        }
        if let Ok(source) = self.tree.base(file) {
            return Ok((source, file));
        }
        match self.tree.metadata(file)?.kind {
            FileKind::Directory => Err(Error::IsADirectory),
            _ => Err(Error::InvalidInput("an added file has no content")),
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

impl FileSystem for Edited {
    fn root(&self) -> Ino {
        self.tree.root()
    }

    fn storage(&self) -> Storage {
        // Added files are plain and have no identities, wherever they are asked for.
        self.filtered.storage()
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        self.tree.metadata(ino)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        self.tree.read_dir(dir)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        self.tree.read_dir_with_metadata(dir)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        self.tree.lookup(dir, name)
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        self.tree.read_link(link)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        self.tree.xattrs(ino)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        let (fs, ino) = self.content(file)?;
        fs.extents(ino, from)
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let (fs, ino) = self.content(file)?;
        fs.read_at(ino, offset, buf)
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        match self.content(file) {
            Ok((fs, ino)) => fs.read_encoded(ino, extent, stored),
            Err(_) => Err(NOTHING_ENCODED),
        }
    }
}
