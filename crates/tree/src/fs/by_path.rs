//! Access to files by path.

use super::{DirEntry, FileKind, FileSystem};
use crate::{Error, Result, to_usize};

/// Maximum number of symbolic links followed for one path, as in Linux.
const SYMLINKS_MAX: u32 = 40;
/// Maximum size of a file that [`ByPath::read`] returns: a small image can claim files of any size.
const READ_BYTES_MAX: u64 = 1 << 30;

/// Access to the files of any [`FileSystem`] by path.
///
/// Paths are bytes, relative to the root of the tree, with or without a leading `/`. Symbolic links
/// are followed within the tree: an absolute target starts at its root, and `..` does not lead out
/// of it.
pub trait ByPath: FileSystem {
    /// The file at `path`, following symbolic links.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::Limit`] after 40 symbolic links, or
    /// as for [`FileSystem::lookup`].
    fn find(&self, path: impl AsRef<[u8]>) -> Result<DirEntry> {
        walk(self, path.as_ref(), true, &mut Vec::new())
    }

    /// The file at `path`; if that is a symbolic link, the link itself.
    ///
    /// # Errors
    /// As for [`ByPath::find`].
    fn find_no_follow(&self, path: impl AsRef<[u8]>) -> Result<DirEntry> {
        walk(self, path.as_ref(), false, &mut Vec::new())
    }

    /// The paths that lead to the file at `path`: those of the symbolic links, and that of the file
    /// itself unless there is an error.
    fn trace(&self, path: impl AsRef<[u8]>) -> (Vec<Vec<u8>>, Result<DirEntry>) {
        let mut paths = Vec::new();
        let found = walk(self, path.as_ref(), true, &mut paths);
        (paths, found)
    }

    /// Whether there is a file at `path`, following symbolic links.
    ///
    /// # Errors
    /// As for [`ByPath::find`], except for [`Error::NotFound`] and [`Error::NotADirectory`].
    fn exists(&self, path: impl AsRef<[u8]>) -> Result<bool> {
        match self.find(path) {
            Ok(_) => Ok(true),
            Err(Error::NotFound | Error::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The content of the regular file at `path`.
    ///
    /// # Errors
    /// As for [`ByPath::find`] and [`FileSystem::read_at`]; [`Error::IsADirectory`],
    /// [`Error::InvalidInput`] for other kinds of files, [`Error::Limit`] for files of more than 1
    /// GiB, and [`Error::Changed`] if the file becomes shorter.
    fn read(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let entry = self.find(path)?;
        match entry.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::InvalidInput("not a regular file")),
        }
        let size = self.metadata(entry.ino)?.size;
        if size > READ_BYTES_MAX {
            return Err(Error::Limit("a file of more than 1 GiB as a whole"));
        }
        let mut content = vec![0; to_usize(size)];
        match self.read_at(entry.ino, 0, &mut content)? {
            read if read == content.len() => Ok(content),
            _ => Err(Error::Changed),
        }
    }

    /// The entries of the directory at `path`, sorted by the bytes of their names.
    ///
    /// # Errors
    /// As for [`ByPath::find`] and [`FileSystem::read_dir`].
    fn list(&self, path: impl AsRef<[u8]>) -> Result<Vec<DirEntry>> {
        self.read_dir(self.find(path)?.ino)
    }

    /// The target of the symbolic link at `path`.
    ///
    /// # Errors
    /// As for [`ByPath::find_no_follow`] and [`FileSystem::read_link`].
    fn link_target(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.read_link(self.find_no_follow(path)?.ino)
    }
}

impl<F: FileSystem + ?Sized> ByPath for F {}

/// Adds to `paths` those of the symbolic links that were followed, and that of the file.
fn walk<F: FileSystem + ?Sized>(
    tree: &F,
    path: &[u8],
    follow: bool,
    paths: &mut Vec<Vec<u8>>,
) -> Result<DirEntry> {
    let root = DirEntry {
        name: Box::default(),
        ino: tree.root(),
        kind: FileKind::Directory,
    };
    // The directories below the root down to the current one, and the names still to visit, the
    // next one last.
    let mut above = Vec::new();
    let mut names: Vec<Vec<u8>> = path
        .split(|&b| b == b'/')
        .rev()
        .map(<[u8]>::to_vec)
        .collect();
    let mut followed = 0;
    while let Some(name) = names.pop() {
        match &*name {
            b"" | b"." => continue,
            b".." => {
                above.pop();
                continue;
            }
            _ => {}
        }
        let dir = above.last().unwrap_or(&root);
        if dir.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let entry = tree.lookup(dir.ino, &name)?;
        if entry.kind != FileKind::Symlink || (names.is_empty() && !follow) {
            above.push(entry);
            continue;
        }
        paths.push(joined(&above, &entry.name));
        followed += 1;
        if followed > SYMLINKS_MAX {
            return Err(Error::Limit("symbolic links followed for one path"));
        }
        let target = tree.read_link(entry.ino)?;
        if target.first() == Some(&b'/') {
            above.clear();
        }
        names.extend(target.split(|&b| b == b'/').rev().map(<[u8]>::to_vec));
    }
    let found = above.pop().unwrap_or(root);
    paths.push(joined(&above, &found.name));
    Ok(found)
}

fn joined(above: &[DirEntry], name: &[u8]) -> Vec<u8> {
    let names: Vec<&[u8]> = above.iter().map(|dir| &*dir.name).chain([name]).collect();
    names.join(&b'/')
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use testkit::TempDir;

    use super::*;
    use crate::HostDir;

    #[test]
    fn paths_are_resolved_within_the_tree() {
        let dir = TempDir::new();
        fs::create_dir_all(dir.join("usr/lib")).unwrap();
        fs::create_dir(dir.join("etc")).unwrap();
        fs::write(dir.join("usr/lib/os-release"), "NAME=Test\n").unwrap();
        symlink("../usr/lib/os-release", dir.join("etc/os-release")).unwrap();
        symlink("/usr", dir.join("absolute")).unwrap();
        symlink("loop", dir.join("loop")).unwrap();
        let tree = HostDir::open(dir.path()).unwrap();
        let tree: &dyn FileSystem = &tree;

        for path in [
            "etc/os-release",
            "/etc//os-release",
            "absolute/lib/./os-release",
            "../../etc/../usr/lib/os-release",
        ] {
            assert_eq!(tree.read(path).unwrap(), b"NAME=Test\n", "{path}");
        }
        let link = tree.find_no_follow("etc/os-release").unwrap();
        assert_eq!(link.kind, FileKind::Symlink);
        assert_eq!(
            tree.link_target("etc/os-release").unwrap(),
            b"../usr/lib/os-release"
        );
        assert_eq!(tree.find("").unwrap().ino, tree.root());
        assert_eq!(*tree.list("usr").unwrap()[0].name, *b"lib");
        assert!(tree.exists("usr/lib").unwrap());
        assert!(!tree.exists("usr/lib/os-release/deeper").unwrap());
        assert!(!tree.exists("usr/bin").unwrap());
        assert!(matches!(tree.read("usr"), Err(Error::IsADirectory)));
        assert!(matches!(tree.read("loop"), Err(Error::Limit(_))));
    }
}
