//! A tree as a layer of overlayfs: with whiteouts, and without marks of its own.

use std::collections::HashMap;

use super::overlayfs::{OverlayAttributes, WHITEOUT};
use super::{
    Checksum, DevicePlace, DirEntry, Extent, FileId, FileKind, FileSystem, HostContent, Ino,
    Inventory, Metadata, Storage, Xattr,
};
use crate::{Error, Result};

/// The number of the whiteouts: Linux, too, gives one device many names.
const WHITEOUT_INO: Ino = Ino(u64::MAX);

/// A tree from which a layer is written. Attributes that would be marks are quoted, so that a mount
/// of the layer shows them as they are in the tree. Whiteouts are in its inventory only.
pub struct OverlayLayer<'t> {
    tree: &'t dyn FileSystem,
    attributes: OverlayAttributes,
}

impl<'t> OverlayLayer<'t> {
    /// A layer of a tree.
    pub fn of(tree: &'t dyn FileSystem) -> OverlayLayer<'t> {
        OverlayLayer {
            tree,
            attributes: OverlayAttributes::new(false),
        }
    }

    /// The files of an inventory of the tree, and whiteouts of the `removed` paths whose
    /// directories are in it.
    ///
    /// # Errors
    /// [`Error::Limit`] for more names than an inventory can have.
    pub fn inventory<'a>(
        &'a self,
        inventory: &Inventory<'t>,
        removed: &[Vec<u8>],
    ) -> Result<Inventory<'a>> {
        let mut names: HashMap<FileId, Vec<&[u8]>> = HashMap::new();
        for path in removed {
            let slash = path.iter().rposition(|&byte| byte == b'/');
            let (dir, name) = path.split_at(slash.unwrap_or(0));
            // Below a directory that is gone, too, nothing has to be hidden.
            if let Some(dir) = inventory.find(dir).map(|entry| inventory.file(entry))
                && inventory.kind(dir) == FileKind::Directory
            {
                let name = name.strip_prefix(b"/").unwrap_or(name);
                names.entry(dir).or_default().push(name);
            }
        }
        names.values_mut().for_each(|names| names.sort_unstable());
        inventory.with_names(self, WHITEOUT_INO, &names)
    }
}

impl FileSystem for OverlayLayer<'_> {
    fn root(&self) -> Ino {
        self.tree.root()
    }

    fn storage(&self) -> Storage {
        self.tree.storage()
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        if ino == WHITEOUT_INO {
            let mut metadata = Metadata::new(FileKind::CharDevice, 0);
            metadata.rdev = WHITEOUT;
            return Ok(metadata);
        }
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
        if ino == WHITEOUT_INO {
            return Ok(Vec::new());
        }
        Ok(self.attributes.quoted(self.tree.xattrs(ino)?))
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

    fn host_content(&self, file: Ino) -> Option<HostContent<'_>> {
        self.tree.host_content(file)
    }

    fn stored_at(&self, file: Ino, extent: &Extent) -> Option<DevicePlace> {
        self.tree.stored_at(file, extent)
    }
}
