//! Edits a tree while it is copied: leaves files out, adds files, and changes owners, permissions
//! and times.
//!
//! Edits work for every source and every destination, because [`Edited`] is a [`FileSystem`] on top
//! of another one.

mod edits;
mod filter;
mod list;
mod mode;
mod pattern;

use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use edits::{Edits, IdMap, Selection};
pub use list::{Added, Addition, ListError, Priorities, Stats};
pub use mode::ModeChange;
pub use pattern::Patterns;

use super::{
    Checksum, DirEntry, Extent, FileKind, FileSystem, HostContent, HostDir, HostTimes, Ino,
    Metadata, NOTHING_ENCODED, Overlay, Storage, Xattr,
};
use crate::{Error, Result};
use filter::Filtered;

/// A tree with edits.
///
/// An added file replaces an existing one, unless either is a directory. If its line has no time,
/// it gets that of the source's root. A directory must be listed or looked up before its contents.
pub struct Edited {
    /// The source, without excluded files and with the edits that apply to all files.
    filtered: Arc<Filtered>,
    /// The additions and changes.
    tree: Overlay<Option<HostFile>>,
    /// Host directories from which files are added.
    hosts: Vec<(PathBuf, HostDir)>,
}

/// A file in one of the host directories.
#[derive(Clone, Copy)]
struct HostFile {
    host: usize,
    ino: Ino,
}

impl Edited {
    /// The tree `source` with these edits.
    ///
    /// # Errors
    /// [`Error::File`] for an addition whose directory does not exist, that replaces a directory or
    /// would replace a file by one, or that changes a file that does not exist; or for a host file
    /// that is not a regular file or cannot be read.
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

    /// Adds a host file, which has no name yet.
    fn add_host_file(&mut self, file: &Path) -> Result<Ino> {
        let (parent, name) = linux::split_path(file).ok_or(Error::IsADirectory)?;
        let host = match self.hosts.iter().position(|(known, _)| known == parent) {
            Some(host) => host,
            None => {
                let dir = HostDir::open_with(parent, HostTimes::Modification)?;
                self.hosts.push((parent.to_owned(), dir));
                self.hosts.len() - 1
            }
        };
        let dir = &self.hosts[host].1;
        let entry = dir.lookup(dir.root(), name)?;
        let mut metadata = dir.metadata(entry.ino)?;
        if metadata.kind != FileKind::Regular {
            return Err(Error::InvalidInput("not a regular file on this host"));
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
        // Added files are stored uncompressed and have no identities, unlike those of the source.
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

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        self.tree.list_readable(dir)
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

    fn host_content(&self, file: Ino) -> Option<HostContent<'_>> {
        let (fs, ino) = self.content(file).ok()?;
        fs.host_content(ino)
    }
}
