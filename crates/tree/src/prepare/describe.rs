//! What is told of files beside their metadata, read ahead of everything else.

use crate::{Error, FileId, FileKind, FileSystem, Inventory, Parallel, Result, Xattr, ordered};

/// Files that one job describes.
const BATCH_FILES: usize = 256;

/// What an inventory does not hold of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The extended attributes.
    pub xattrs: Vec<Xattr>,
    /// Where a symbolic link points to.
    pub target: Option<Box<[u8]>>,
}

/// How files are described.
#[derive(Clone, Copy)]
pub struct Describe<'a> {
    /// The tree.
    pub fs: &'a dyn FileSystem,
    /// Its inventory.
    pub inventory: &'a Inventory,
    /// Whether to read extended attributes.
    pub xattrs: bool,
    /// Whether to go on when a file cannot be described. That of the root is always an error: it is in every container.
    pub skip_unreadable: bool,
}

impl Describe<'_> {
    /// Reads what the files of the inventory have, on all threads, and hands it to `sink` in their order; files without
    /// anything are left out. `check` refuses what the container cannot hold. Gives the files that could not be described.
    ///
    /// # Errors
    /// [`Error::File`] with the path of what cannot be described, unless such files are skipped; or what `sink` returns.
    pub fn read(
        &self,
        parallel: Parallel,
        check: impl Fn(&Description) -> Result<()> + Sync,
        mut sink: impl FnMut(FileId, Description) -> Result<()>,
    ) -> Result<Vec<(FileId, Error)>> {
        let files: Vec<FileId> = self.inventory.files().collect();
        let mut failed = Vec::new();
        ordered(
            parallel,
            files.chunks(BATCH_FILES),
            || (),
            |(), batch| {
                let mut known = Vec::new();
                for &file in batch {
                    let described = self.one(file).and_then(|described| {
                        check(&described)?;
                        Ok(described)
                    });
                    match described {
                        Ok(described) if described == Description::default() => {}
                        Err(error) if !self.skip_unreadable || file.0 == 0 => {
                            let path = self.inventory.path(self.inventory.first_name(file));
                            return Err(error.in_file("read", &path));
                        }
                        described => known.push((file, described)),
                    }
                }
                Ok(known)
            },
            |known| {
                for (file, described) in known {
                    match described {
                        Ok(described) => sink(file, described)?,
                        Err(error) => failed.push((file, error)),
                    }
                }
                Ok(())
            },
        )?;
        Ok(failed)
    }

    fn one(&self, file: FileId) -> Result<Description> {
        let ino = self.inventory.ino(file);
        let mut described = Description::default();
        if self.xattrs {
            described.xattrs = self.fs.xattrs(ino)?;
        }
        if self.inventory.kind(file) == FileKind::Symlink {
            described.target = Some(self.fs.read_link(ino)?.into());
        }
        Ok(described)
    }
}
