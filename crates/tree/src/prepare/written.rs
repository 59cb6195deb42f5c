//! Proves that an image holds its input: a reader finds the same tree in it.

use std::collections::HashMap;
use std::io;

use crate::{
    DirEntry, Error, FileId, FileKind, FileSystem, Ino, Inventory, Metadata, Parallel, Result,
    WalkStep, Xattr, ordered,
};

/// Number of files that one job compares.
const BATCH_FILES: usize = 256;

/// A new image, and the tree that it must hold.
pub struct WrittenTree<'a> {
    /// The image, as its reader shows it.
    pub image: &'a dyn FileSystem,
    /// The tree that was the input.
    pub inventory: &'a Inventory<'a>,
    /// Whether a file is in the image.
    pub is_stored: &'a (dyn Fn(FileId) -> bool + Sync),
    /// Whether an extended attribute of the image does not come from the source.
    pub ignores: &'a (dyn Fn(&Xattr) -> bool + Sync),
}

impl WrittenTree<'_> {
    /// The error for a difference.
    pub fn differs(what: &'static str) -> Error {
        Error::Io(io::Error::other(what))
    }

    /// Compares all names, and calls `compare` with each file once, on all threads.
    ///
    /// # Errors
    /// [`Error::File`] with the path of a file that cannot be read, or is another one there; that
    /// of `compare`.
    pub fn compare(
        &self,
        parallel: Parallel,
        compare: impl Fn(FileId, Ino) -> Result<()> + Sync,
    ) -> Result<()> {
        let walk = ImageWalk {
            tree: self,
            steps: self.inventory.steps(),
            open: Vec::new(),
            linked: HashMap::new(),
            failed: false,
        };
        ordered(
            parallel,
            walk,
            || (),
            |(), batch| {
                for (file, ino) in batch? {
                    compare(file, ino).map_err(|error| {
                        let path = self.inventory.path(self.inventory.first_name(file));
                        error.in_file("verify", &path)
                    })?;
                }
                Ok(())
            },
            Ok,
        )
    }

    /// Compares the metadata of a file, without fields that not every format has, and the target
    /// of a link. Extended attributes are those of the source that `keeps` says; `None`: there must
    /// not be any.
    ///
    /// # Errors
    /// They cannot be read, or differ.
    pub fn compare_file(
        &self,
        (file, ino): (FileId, Ino),
        must: &Metadata,
        keeps: Option<&dyn Fn(&Xattr) -> bool>,
    ) -> Result<()> {
        let is = self.image.metadata(ino)?;
        let kind = must.kind;
        // A directory's link count is that of its format.
        let same = is.kind == kind
            && (is.permissions, is.uid, is.gid) == (must.permissions, must.uid, must.gid)
            && (is.size, is.rdev, is.mtime) == (must.size, must.rdev, must.mtime)
            && (kind == FileKind::Directory || is.nlink == must.nlink);
        if !same {
            return Err(Self::differs("the image has other metadata"));
        }
        let source = self.inventory.ino(file);
        let mut xattrs = self.image.xattrs(ino)?;
        xattrs.retain(|xattr| !(self.ignores)(xattr));
        if let Some(keeps) = keeps {
            let mut must = self.inventory.tree().xattrs(source)?;
            must.retain(keeps);
            if xattrs != must {
                let what = "the image has other extended attributes";
                return Err(Self::differs(what));
            }
        } else if !xattrs.is_empty() {
            let what = "the image has extended attributes that it must not have";
            return Err(Self::differs(what));
        }
        if kind == FileKind::Symlink
            && self.image.read_link(ino)? != self.inventory.tree().read_link(source)?
        {
            return Err(Self::differs("the image has a different link target"));
        }
        Ok(())
    }
}

/// Walks both trees at once, without a list of visited files: returns each file once, and its inode
/// in the image.
struct ImageWalk<'a, S> {
    tree: &'a WrittenTree<'a>,
    /// The steps through the input.
    steps: S,
    /// The entries left in each open directory of the image.
    open: Vec<std::vec::IntoIter<DirEntry>>,
    /// The inodes of files with several names.
    linked: HashMap<FileId, Ino>,
    failed: bool,
}

impl<S> ImageWalk<'_, S> {
    /// Takes a step in the image, too: a file that was not met before.
    fn step(&mut self, step: WalkStep) -> Result<Option<(FileId, Ino)>> {
        let (image, theirs) = (self.tree.image, self.tree.inventory);
        let (entry, is_left) = match step {
            WalkStep::Enter(entry) | WalkStep::File(entry) => (entry, false),
            WalkStep::Leave(entry) => (entry, true),
        };
        let file = theirs.file(entry);
        if !(self.tree.is_stored)(file) {
            return Ok(None);
        }
        if is_left {
            let rest = self.open.pop();
            return match rest.and_then(|mut rest| rest.next()) {
                Some(_) => Err(WrittenTree::differs("the image has more names there")),
                None => Ok(None),
            };
        }
        let ino = match self.open.last_mut() {
            None => image.root(),
            Some(listing) => match listing.next() {
                Some(found) if *found.name == *theirs.name(entry) => found.ino,
                _ => {
                    let what = "the image has a different name there";
                    return Err(WrittenTree::differs(what));
                }
            },
        };
        if matches!(step, WalkStep::Enter(_)) {
            let listing = image.read_dir(ino)?;
            self.open.push(listing.into_iter());
        } else if theirs.name_count(file) > 1
            && let Some(first) = self.linked.insert(file, ino)
        {
            if first != ino {
                return Err(WrittenTree::differs("the image has another file there"));
            }
            return Ok(None);
        }
        Ok(Some((file, ino)))
    }
}

impl<S: Iterator<Item = WalkStep>> Iterator for ImageWalk<'_, S> {
    type Item = Result<Vec<(FileId, Ino)>>;

    /// The next files, up to an error.
    fn next(&mut self) -> Option<Self::Item> {
        let mut batch = Vec::new();
        while !self.failed && batch.len() < BATCH_FILES {
            let Some(step) = self.steps.next() else { break };
            match self.step(step) {
                Ok(file) => batch.extend(file),
                Err(error) => {
                    self.failed = true;
                    let (WalkStep::Enter(entry) | WalkStep::File(entry) | WalkStep::Leave(entry)) =
                        step;
                    let path = self.tree.inventory.path(entry);
                    return Some(Err(error.in_file("verify", &path)));
                }
            }
        }
        (!batch.is_empty()).then_some(Ok(batch))
    }
}
