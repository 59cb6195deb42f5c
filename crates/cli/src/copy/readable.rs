//! Copies without what cannot be read.

use std::sync::{Mutex, PoisonError};

use tree::{
    Checksum, DirEntry, Error, Extent, FileSystem, Ino, Inventory, Metadata, Result, Storage, Xattr,
};

use crate::message;
use crate::source::Source;

/// A line for each file that is left out of an image because it cannot be read.
pub(crate) fn left_out(unreadable: &[(Vec<u8>, Error)], source: &Source) -> Vec<String> {
    let line = |(path, error): &(Vec<u8>, Error)| {
        let (path, reason) = (
            source.path_name(path),
            message::of_reason(&error.to_string()),
        );
        format!("{path}: skipped, cannot be read: {reason}")
    };
    unreadable.iter().map(line).collect()
}

/// A tree in which unreadable directories are empty.
pub(crate) struct Readable<'a> {
    tree: &'a dyn FileSystem,
    failed: Mutex<Vec<(Ino, Error)>>,
}

impl<'a> Readable<'a> {
    pub(crate) fn new(tree: &'a dyn FileSystem) -> Self {
        Readable {
            tree,
            failed: Mutex::default(),
        }
    }

    /// A line for each directory that could not be read.
    pub(crate) fn lost(&self, source: &Source, inventory: &Inventory) -> Vec<String> {
        let failed =
            std::mem::take(&mut *self.failed.lock().unwrap_or_else(PoisonError::into_inner));
        let mut lost = Vec::new();
        for (ino, error) in failed {
            let mut files = inventory.files();
            if let Some(file) = files.find(|&file| inventory.ino(file) == ino) {
                let path = source.path_name(&inventory.path(inventory.first_name(file)));
                let reason = message::of_reason(&error.to_string());
                lost.push(format!("{path}: left empty, cannot be read: {reason}"));
            }
        }
        lost
    }
}

impl FileSystem for Readable<'_> {
    fn root(&self) -> Ino {
        self.tree.root()
    }

    fn storage(&self) -> Storage {
        self.tree.storage()
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        self.tree.metadata(ino)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        self.tree.read_dir(dir)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        match self.tree.read_dir_with_metadata(dir) {
            Err(error) if dir != self.root() => {
                let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.push((dir, error));
                Ok(Vec::new())
            }
            listed => listed,
        }
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
        self.tree.extents(file, from)
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.tree.read_at(file, offset, buf)
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        self.tree.read_encoded(file, extent, stored)
    }
}
