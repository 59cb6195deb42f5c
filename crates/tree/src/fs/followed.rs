//! A host directory with the targets of symbolic links in place of the links.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    Checksum, DirEntry, Extent, FileKind, FileSystem, HostContent, HostDir, HostTimes, Ino,
    Metadata, Storage, Xattr, with_metadata,
};
use crate::{Error, Result};

/// The number of the root; other directories follow. Files have their numbers in the [`HostDir`],
/// which are smaller.
const FIRST_DIRECTORY: u64 = 1 << 32;

/// A host directory in which every symbolic link is the file or directory that it leads to, inside
/// the directory or outside.
///
/// A file that several names lead to is one file with hard links. A directory is one for each path;
/// a link to a directory above it is an error, and so is one that leads nowhere. Memory use is that
/// of a [`HostDir`], and about 100 bytes for each directory.
#[derive(Debug)]
pub struct FollowedDir {
    /// The root directory of this machine.
    host: HostDir,
    directories: Mutex<Directories>,
}

#[derive(Debug, Default)]
struct Directories {
    all: Vec<Directory>,
    /// By the number of the directory above, and the name.
    known: HashMap<(usize, Box<[u8]>), usize>,
}

#[derive(Clone, Copy, Debug)]
struct Directory {
    /// In the [`HostDir`].
    ino: Ino,
    /// The number of the directory above; of the root, its own.
    parent: usize,
}

impl FollowedDir {
    /// Opens a directory.
    ///
    /// # Errors
    /// What the kernel reports; [`Error::NotADirectory`].
    pub fn open(path: &Path) -> Result<FollowedDir> {
        let host = HostDir::open_with(Path::new("/"), HostTimes::Modification)?;
        let (ino, kind) = found(&host, path)?;
        if kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let directories = Directories {
            all: vec![Directory { ino, parent: 0 }],
            known: HashMap::new(),
        };
        Ok(FollowedDir {
            host,
            directories: Mutex::new(directories),
        })
    }

    fn directories(&self) -> MutexGuard<'_, Directories> {
        let directories = self.directories.lock();
        directories.unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of a directory here, and its file.
    fn directory(&self, ino: Ino) -> Result<(usize, Ino)> {
        let number = ino.0.checked_sub(FIRST_DIRECTORY);
        let number = number.ok_or(Error::NotADirectory)? as usize;
        let directories = self.directories();
        let directory = directories.all.get(number).ok_or(Error::NotFound)?;
        Ok((number, directory.ino))
    }

    /// The file in the [`HostDir`].
    fn inner(&self, ino: Ino) -> Result<Ino> {
        if ino.0 < FIRST_DIRECTORY {
            return Ok(ino);
        }
        Ok(self.directory(ino)?.1)
    }

    /// An entry of a directory, with the target of a link in its place.
    fn entry(&self, parent: usize, mut entry: DirEntry) -> Result<DirEntry> {
        let is_link = entry.kind == FileKind::Symlink;
        if is_link {
            let dir = self.directories().all[parent].ino;
            let path = self.host.path(dir)?;
            let path = [b"/", &path[..], b"/", &entry.name].concat();
            (entry.ino, entry.kind) = found(&self.host, Path::new(OsStr::from_bytes(&path)))?;
        }
        if entry.kind != FileKind::Directory {
            return Ok(entry);
        }
        let mut directories = self.directories();
        let key = (parent, entry.name.clone());
        let known = directories.known.get(&key).copied();
        let number = known.filter(|&number| directories.all[number].ino == entry.ino);
        let number = match number {
            Some(number) => number,
            None if is_link && directories.is_below(parent, entry.ino) => {
                return Err(Error::InvalidInput(
                    "the symbolic link leads to a directory above it",
                ));
            }
            None => {
                let number = directories.all.len();
                directories.all.push(Directory {
                    ino: entry.ino,
                    parent,
                });
                directories.known.insert(key, number);
                number
            }
        };
        entry.ino = Ino(FIRST_DIRECTORY + number as u64);
        Ok(entry)
    }
}

impl Directories {
    /// Whether a directory is, or is below, a file.
    fn is_below(&self, mut number: usize, ino: Ino) -> bool {
        loop {
            let Directory { ino: found, parent } = self.all[number];
            if found == ino {
                return true;
            }
            if parent == number {
                return false;
            }
            number = parent;
        }
    }
}

/// The file that a path leads to.
fn found(host: &HostDir, path: &Path) -> Result<(Ino, FileKind)> {
    let path = fs::canonicalize(path)?;
    let mut found = (host.root(), FileKind::Directory);
    let names = path.as_os_str().as_bytes().split(|&byte| byte == b'/');
    for name in names.filter(|name| !name.is_empty()) {
        let entry = host.lookup(found.0, name)?;
        found = (entry.ino, entry.kind);
    }
    if found.1 == FileKind::Symlink {
        return Err(Error::Changed);
    }
    Ok(found)
}

impl FileSystem for FollowedDir {
    fn root(&self) -> Ino {
        Ino(FIRST_DIRECTORY)
    }

    fn storage(&self) -> Storage {
        self.host.storage()
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        self.host.metadata(self.inner(ino)?)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        let (number, inner) = self.directory(dir)?;
        let entries = self.host.read_dir(inner)?.into_iter();
        let entries = entries.map(|entry| {
            let name = entry.name.clone();
            let entry = self.entry(number, entry);
            entry.map_err(|error| error.in_file("read", &name))
        });
        entries.collect()
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        with_metadata(self, self.read_dir(dir)?)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        let (number, inner) = match self.directory(dir) {
            Ok(found) => found,
            Err(error) => return (Vec::new(), vec![error]),
        };
        let (listed, mut errors) = self.host.list_readable(inner);
        let mut entries = Vec::new();
        for entry in listed {
            let name = entry.name.clone();
            match self.entry(number, entry) {
                Ok(entry) => entries.push(entry),
                Err(error) => errors.push(error.in_file("read", &name)),
            }
        }
        (entries, errors)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        let (number, inner) = self.directory(dir)?;
        self.entry(number, self.host.lookup(inner, name)?)
    }

    fn read_link(&self, _: Ino) -> Result<Vec<u8>> {
        Err(Error::InvalidInput("the file is not a symbolic link"))
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        self.host.xattrs(self.inner(ino)?)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        self.host.extents(self.inner(file)?, from)
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.host.read_at(self.inner(file)?, offset, buf)
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        self.host.read_encoded(self.inner(file)?, extent, stored)
    }

    fn host_content(&self, file: Ino) -> Option<HostContent<'_>> {
        self.host.host_content(self.inner(file).ok()?)
    }
}
