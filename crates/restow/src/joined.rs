//! Several sources as one, and one file as a tree.

use std::path::Path;
use std::sync::Arc;

use tree::edit::{Edited, Edits, Selection};
use tree::{FileKind, FileSystem, Graft, HostDir, Joined, is_valid_name};

use crate::error::refuse;
use crate::{Result, SourceTree, text};

impl SourceTree {
    /// A view of the source below the directory `at`, with others, each below its directory. The
    /// paths of the selection are those of each source. Of files in several, the last counts.
    ///
    /// # Errors
    /// A directory is not a path.
    pub fn join(
        self,
        at: &[u8],
        others: Vec<(SourceTree, &[u8])>,
        selection: Selection,
    ) -> Result<(SourceTree, Arc<Joined>)> {
        let mut grafts = vec![Graft::at(names(at)?, selected(&self, &selection)?)];
        let mut sources = Vec::new();
        for (source, at) in others {
            grafts.push(Graft::at(names(at)?, selected(&source, &selection)?));
            sources.push(source);
        }
        let joined = Arc::new(Joined::new(grafts)?);
        let mut source = self.joined(Arc::<Joined>::clone(&joined), sources);
        source.selection = selection;
        Ok((source, joined))
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
            ino: entry.ino,
            kind: entry.kind,
        }])?;
        Ok(self.joined(Arc::new(joined), Vec::new()))
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

/// The selected files of a source.
fn selected(source: &SourceTree, selection: &Selection) -> Result<Arc<dyn FileSystem>> {
    if selection.only.is_empty() && selection.exclude.is_empty() {
        return Ok(Arc::clone(source.tree()));
    }
    let edits = Edits {
        selection: selection.clone(),
        ..Edits::default()
    };
    Ok(Arc::new(Edited::new(Arc::clone(source.tree()), edits)?))
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
