//! Several sources as one, and one file as a tree.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tree::edit::{Edited, Edits, Selection};
use tree::{ByPath, FileKind, FileSystem, Graft, HostDir, Ino, Joined, is_valid_name};

use crate::error::{During, refuse};
use crate::{OpenOptions, Result, SourceTree, text};

/// Maximum number of directories that become one: in a damaged image, directories can contain
/// themselves.
const STRIPPED_MAX: usize = 1 << 22;

impl SourceTree {
    /// An empty directory.
    ///
    /// # Errors
    /// None so far.
    pub fn empty() -> Result<SourceTree> {
        let tree = Arc::new(Joined::new(Vec::new())?);
        Ok(SourceTree::of_tree(tree, "an empty directory"))
    }

    /// A view of the source below the directory `at`, with others, each below its directory. The
    /// paths of the selection are those of each source, from which the first `stripped` names are
    /// removed afterwards. Of files in several, the last counts.
    ///
    /// # Errors
    /// A directory is not a path; no file of a source has `stripped` directories above it.
    pub fn join(
        self,
        at: &[u8],
        others: Vec<(SourceTree, &[u8])>,
        selection: Selection,
        stripped: u16,
    ) -> Result<(SourceTree, Arc<Joined>)> {
        let mut grafts = Vec::new();
        let mut add = |source: &SourceTree, at: &[u8]| -> Result<()> {
            let tree = selected(source, &selection)?;
            let found = directories(&*tree, stripped);
            let files = found.map_err(|error| source.name_error(error))?;
            if files.is_empty() {
                let name = source.name();
                refuse!("{name}: no file to copy has {stripped} directories above it");
            }
            let mut graft = Graft::at(names(at)?, tree);
            graft.files = files;
            grafts.push(graft);
            Ok(())
        };
        add(&self, at)?;
        let mut sources = Vec::new();
        for (source, at) in others {
            add(&source, at)?;
            sources.push(source);
        }
        let joined = Arc::new(Joined::new(grafts)?);
        let mut source = self.joined(Arc::<Joined>::clone(&joined), sources);
        source.selection = selection;
        Ok((source, joined))
    }

    /// Files and directories of this machine in a new directory, each under its own name; if that
    /// is taken, `_1`, `_2` and so on are appended, as mksquashfs does. Returns their names, too.
    ///
    /// # Errors
    /// One does not exist or cannot be opened.
    pub fn gather(
        paths: &[PathBuf],
        options: &OpenOptions,
    ) -> Result<(SourceTree, Vec<Box<[u8]>>)> {
        let mut grafts = Vec::new();
        let mut names: Vec<Box<[u8]>> = Vec::new();
        // Hard links stay, of files in one directory.
        let mut parents = HashMap::new();
        for path in paths {
            let name = text::of_host_path(path, "-");
            let graft = graft_of(path, options, &mut parents);
            let (mut graft, own) = graft.during(|| format!("open {name}"))?;
            let numbered = |number: u32| [&*own, b"_", number.to_string().as_bytes()].concat();
            let mut taken = std::iter::once(own.to_vec()).chain((1..).map(numbered));
            let free = taken.find(|it| !names.iter().any(|known| **known == **it));
            let free: Box<[u8]> = free.unwrap_or_default().into();
            graft.path = vec![free.clone()];
            grafts.push(graft);
            names.push(free);
        }
        let joined = Arc::new(Joined::new(grafts)?);
        let sources = paths.iter().map(|path| text::of_host_path(path, "-"));
        let sources: Vec<String> = sources.collect();
        Ok((SourceTree::of_tree(joined, &sources.join(", ")), names))
    }

    /// A file of the source as a tree in which it has another name.
    ///
    /// # Errors
    /// There is no such file, or it is not a regular file.
    pub fn only_file(self, path: &[u8], name: &[u8]) -> Result<SourceTree> {
        let entry = self.find(path, true)?;
        if entry.kind != FileKind::Regular {
            let (path, kind) = (self.path_name(path), text::of_kind(entry.kind));
            refuse!("{path} is a {kind}; --to file copies a regular file");
        }
        let joined = Joined::new(vec![Graft {
            path: vec![name.into()],
            tree: Arc::clone(self.tree()),
            files: vec![entry.ino],
            kind: entry.kind,
        }])?;
        Ok(self.joined(Arc::new(joined), Vec::new()))
    }

    /// A directory of the source as a source of its own. Symbolic links to it are followed.
    ///
    /// # Errors
    /// There is no such directory.
    pub(crate) fn below(self, path: &[u8]) -> Result<SourceTree> {
        let words = || text::of_path(path);
        let found = self.tree().find(path);
        let entry = found.during(|| format!("find {}", words()))?;
        if entry.kind != FileKind::Directory {
            let kind = text::of_kind(entry.kind);
            refuse!("{} is a {kind}, not a directory", words());
        }
        if entry.ino == self.tree().root() {
            return Ok(self);
        }
        let mut graft = Graft::at(Vec::new(), Arc::clone(self.tree()));
        graft.files = vec![entry.ino];
        let joined = Joined::new(vec![graft])?;
        let image = self.btrfs().map(Arc::clone);
        let source = self.joined(Arc::new(joined), Vec::new());
        Ok(source.in_btrfs(image))
    }

    /// A file of this machine as a tree in which it has another name.
    ///
    /// # Errors
    /// As for [`SourceTree::only_file`].
    pub fn of_file(path: &Path, name: &[u8]) -> Result<SourceTree> {
        match linux::split_path(path) {
            Some((parent, file)) => {
                SourceTree::of_dir(parent, HostDir::open(parent)?).only_file(file, name)
            }
            None => refuse!("SRC is not a regular file"),
        }
    }
}

/// A file or directory of this machine, and its name. `parents` are the directories that files are
/// in.
fn graft_of(
    path: &Path,
    options: &OpenOptions,
    parents: &mut HashMap<PathBuf, Arc<HostDir>>,
) -> tree::Result<(Graft, Box<[u8]>)> {
    let open = |path: &Path| options.mount_points().in_dir(HostDir::open(path)?);
    let is_dir = fs::symlink_metadata(path)?.is_dir();
    // The name of `.` is that of the directory.
    let real = match path.file_name() {
        Some(_) => path.to_owned(),
        None => fs::canonicalize(path)?,
    };
    let Some((parent, name)) = linux::split_path(&real) else {
        return Err(tree::Error::InvalidInput("the root has no name"));
    };
    if is_dir {
        return Ok((Graft::at(Vec::new(), Arc::new(open(path)?)), name.into()));
    }
    let tree = match parents.get(parent) {
        Some(tree) => Arc::clone(tree),
        None => Arc::new(open(parent)?),
    };
    parents.insert(parent.to_owned(), Arc::clone(&tree));
    let entry = tree.lookup(tree.root(), name)?;
    let graft = Graft {
        path: Vec::new(),
        tree,
        files: vec![entry.ino],
        kind: entry.kind,
    };
    Ok((graft, name.into()))
}

/// The selected files of a source.
fn selected(source: &SourceTree, selection: &Selection) -> Result<Arc<dyn FileSystem>> {
    if !selection.is_partial() {
        return Ok(Arc::clone(source.tree()));
    }
    let edits = Edits {
        selection: selection.clone(),
        ..Edits::default()
    };
    Ok(Arc::new(Edited::new(Arc::clone(source.tree()), edits)?))
}

/// The directories at this depth.
fn directories(tree: &dyn FileSystem, depth: u16) -> tree::Result<Vec<Ino>> {
    let mut found = vec![tree.root()];
    for _ in 0..depth {
        let mut below = Vec::new();
        for dir in found {
            let entries = tree.read_dir(dir)?;
            let directories = entries.iter().filter(|it| it.kind == FileKind::Directory);
            below.extend(directories.map(|entry| entry.ino));
            if below.len() > STRIPPED_MAX {
                return Err(tree::Error::Limit("directories whose names are stripped"));
            }
        }
        found = below;
    }
    Ok(found)
}

/// The names of a path in the destination.
fn names(path: &[u8]) -> Result<Vec<Box<[u8]>>> {
    let names = path.split(|&byte| byte == b'/');
    let names: Vec<Box<[u8]>> = names
        .filter(|name| !matches!(*name, b"" | b"."))
        .map(Box::from)
        .collect();
    if !names.iter().all(|name| is_valid_name(name)) {
        refuse!("{} is not a path in the destination", text::of_name(path));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_apart() {
        assert_eq!(
            names(b"/a//./b/").unwrap(),
            [Box::from(*b"a"), Box::from(*b"b")]
        );
        assert!(names(b"a/../b").is_err());
    }
}
