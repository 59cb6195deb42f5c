//! The layers of a container image, merged: the rules for archives on top of archives.
//!
//! OCI image specification, layer.md, "Applying Changesets" and "Whiteouts".
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use super::member::{InArchive, LayerPass, MemberContent};
use super::options::TarOptions;
use super::read::{NAME_BYTES_MAX, Scan, names, not_below_file};
use crate::{Error, FileKind, Ino, Overlay, ReadAt, Result, to_u64, to_usize};

/// Maximum number of layers. Docker and containerd make at most 127.
pub(super) const LAYERS_MAX: usize = 1000;

/// Maximum number of symbolic links that are followed for one path, as in Linux.
const SYMLINKS_MAX: u32 = 40;

/// Maximum number of names that symbolic links may add to one path, so that small entries cannot
/// cause long walks.
const LINK_NAMES_MAX: usize = 256;

/// The prefix of names that hide others.
pub(super) const WHITEOUT: &[u8] = b".wh.";
/// Maximum length of a name that hides one of the maximum length.
const WHITEOUT_BYTES_MAX: usize = NAME_BYTES_MAX + WHITEOUT.len();
/// The name that hides all files of lower layers in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// The content that a layer of a container image holds, and how much of it the merged tree does
/// not show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LayerUsage {
    /// The number of regular files, without further names.
    pub files: u64,
    /// The stored bytes of their content in the archive, before compression.
    pub bytes: u64,
    /// How many of them later entries or whiteouts hide.
    pub hidden_files: u64,
    /// The stored bytes of those.
    pub hidden_bytes: u64,
}

impl LayerUsage {
    /// Adds a file with this content.
    pub fn add(&mut self, bytes: u64, is_shown: bool) {
        self.files = self.files.saturating_add(1);
        self.bytes = self.bytes.saturating_add(bytes);
        if !is_shown {
            self.hidden_files = self.hidden_files.saturating_add(1);
            self.hidden_bytes = self.hidden_bytes.saturating_add(bytes);
        }
    }
}

/// The content of each archive of a tree.
pub(super) fn usage(
    tree: &Overlay<InArchive>,
    archives: usize,
    is_shown: &dyn Fn(Ino) -> bool,
) -> Result<Vec<LayerUsage>> {
    let mut layers = vec![LayerUsage::default(); archives];
    for number in 0..to_u64(tree.node_count()) {
        let ino = Ino(number);
        let metadata = tree.metadata(ino)?;
        let in_archive = tree
            .content(ino)
            .filter(|_| metadata.kind == FileKind::Regular);
        let Some(in_archive) = in_archive else {
            continue;
        };
        let Some(layer) = layers.get_mut(usize::from(in_archive.layer)) else {
            continue;
        };
        let bytes = match &in_archive.content {
            MemberContent::Sparse(sparse) => {
                let fragments = sparse.fragments.iter();
                fragments.fold(0, |sum: u64, it| sum.saturating_add(it.len))
            }
            _ => metadata.size,
        };
        layer.add(bytes, !tree.is_nameless(ino) && is_shown(ino));
    }
    Ok(layers)
}

impl<'a> Scan<'a> {
    /// Applies a layer to those below it.
    pub(super) fn layer(
        &mut self,
        number: u16,
        archive: &'a dyn ReadAt,
        len: u64,
        options: TarOptions,
    ) -> Result<()> {
        self.layer = number;
        if number > 0 {
            self.pass = Some(LayerPass::Whiteouts);
            let (notes, entries, fragments) = (self.notes, self.entries, self.fragments);
            let (faults, cut) = (self.faults.len(), self.cut.take());
            self.archive(archive, len, options)?;
            // The other pass meets the same.
            (self.notes, self.entries, self.fragments) = (notes, entries, fragments);
            self.faults.truncate(faults);
            self.cut = cut;
        }
        self.pass = Some(LayerPass::Entries);
        self.archive(archive, len, options)
    }

    /// Whether an entry is to be added to the tree: not if it is a whiteout, and not in the pass
    /// that applies those.
    pub(super) fn adds(&mut self, path: &[u8], is_directory: bool, at: u64) -> Result<bool> {
        let Some(pass) = self.pass else {
            return Ok(true);
        };
        let names = names(path, at, WHITEOUT_BYTES_MAX)?;
        let Some((name, above)) = names.split_last() else {
            return Ok(pass == LayerPass::Entries);
        };
        if above.iter().any(|name| name.starts_with(WHITEOUT)) {
            let what = "entry of a layer lies below a whiteout";
            return Err(Error::corrupt(what, at, to_u64(path.len())));
        }
        let hidden = name.strip_prefix(WHITEOUT);
        if let Some(b"" | b"." | b"..") = hidden {
            let what = "whiteout of a layer hides no name";
            return Err(Error::corrupt(what, at, to_u64(path.len())));
        }
        if pass == LayerPass::Entries {
            return Ok(hidden.is_none());
        }
        // A directory that replaces a symbolic link does so before whiteouts lead over the link.
        if hidden.is_none() && !is_directory {
            return Ok(false);
        }
        let dir = match self.find_directory(above) {
            Ok(Some(dir)) => dir,
            Ok(None) | Err(Error::NotADirectory) => return Ok(false),
            Err(error) => return Err(error),
        };
        match hidden {
            Some(_) if *name == OPAQUE => self.empty(dir)?,
            Some(hidden) if self.tree.find(dir, hidden)?.is_some() => self.remove(dir, hidden)?,
            Some(_) => {}
            None => {
                if let Some((_, FileKind::Symlink)) = self.tree.find(dir, name)? {
                    self.remove(dir, name)?;
                }
            }
        }
        Ok(false)
    }

    /// Removes a name, and everything below a directory.
    pub(super) fn remove(&mut self, dir: Ino, name: &[u8]) -> Result<()> {
        let removed = self.tree.unlink(dir, name)?;
        match self.tree.metadata(removed)?.kind {
            FileKind::Directory => self.empty(removed),
            _ => Ok(()),
        }
    }

    /// Removes everything below a directory. Each file loses its names, so that those of other
    /// directories count right.
    fn empty(&mut self, dir: Ino) -> Result<()> {
        let mut dirs = vec![dir];
        while let Some(dir) = dirs.pop() {
            for entry in self.tree.read_dir(dir)? {
                self.tree.unlink(dir, &entry.name)?;
                if entry.kind == FileKind::Directory {
                    dirs.push(entry.ino);
                }
            }
        }
        Ok(())
    }

    /// The directory with this path, if there is one. Symbolic links count in layers only.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], or as for [`Scan::follow`].
    pub(super) fn find_directory(&mut self, path: &[&[u8]]) -> Result<Option<Ino>> {
        let mut dir = self.tree.root();
        for name in path {
            dir = match self.tree.find(dir, name)? {
                Some((next, FileKind::Directory)) => next,
                Some((_, FileKind::Symlink)) if self.follows => {
                    return self.follow(path, false, 0);
                }
                Some(_) => return Err(Error::NotADirectory),
                None => return Ok(None),
            };
        }
        Ok(Some(dir))
    }

    /// The directory to which a path with symbolic links leads, within the tree: an absolute target
    /// starts at the root, and `..` does not lead out of it. With `implies`, directories that are
    /// missing are added; otherwise there is none.
    ///
    /// # Errors
    /// Something in the path is not a directory; [`Error::Limit`] for too many links, or links to
    /// long paths.
    pub(super) fn follow(&mut self, path: &[&[u8]], implies: bool, at: u64) -> Result<Option<Ino>> {
        let limit = Err(Error::Limit("symbolic links in a path of a layer"));
        let root = self.tree.root();
        let mut above: Vec<Ino> = Vec::new();
        let mut todo: Vec<Vec<u8>> = path.iter().rev().map(|name| name.to_vec()).collect();
        let (mut followed, mut added) = (0u32, 0usize);
        while let Some(name) = todo.pop() {
            let dir = above.last().copied().unwrap_or(root);
            if matches!(&*name, b"" | b".") {
                continue;
            }
            if name == b".." {
                above.pop();
                continue;
            }
            match self.tree.find(dir, &name)? {
                Some((next, FileKind::Directory)) => above.push(next),
                Some((link, FileKind::Symlink)) => {
                    let target = self.tree.read_link(link)?;
                    let parts = target.split(|&byte| byte == b'/');
                    followed = followed.saturating_add(1);
                    added = added.saturating_add(parts.clone().take(LINK_NAMES_MAX + 1).count());
                    if followed > SYMLINKS_MAX || added > LINK_NAMES_MAX {
                        return limit;
                    }
                    if target.first() == Some(&b'/') {
                        above.clear();
                    }
                    todo.extend(parts.rev().map(<[u8]>::to_vec));
                }
                Some(_) if implies => return Err(not_below_file(&path.join(&b'/'), at)),
                Some(_) => return Err(Error::NotADirectory),
                None if !implies => return Ok(None),
                None if above.len() >= to_usize(self.limits.depth_max) || name.len() > 255 => {
                    return limit;
                }
                None => {
                    let implied = self.imply(dir, &name)?;
                    above.push(implied);
                }
            }
        }
        Ok(Some(above.last().copied().unwrap_or(root)))
    }
}
