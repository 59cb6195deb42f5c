//! Extended attributes and link targets, read ahead of everything else.

use super::Lost;
use crate::{
    FileId, FileKind, FileSystem, ImageSummary, Inventory, Parallel, Result, Xattr, ordered,
};

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
    /// Reads what the files of the inventory have, on all threads, and hands it to `sink` in their order, unless they have
    /// nothing. `check` refuses files that the container cannot hold, `fits` drops extended attributes that it cannot
    /// hold; `summary` lists what was dropped. Returns the files that are left out: a directory that cannot be described
    /// only loses its extended attributes, for what is in it may be readable.
    ///
    /// # Errors
    /// [`crate::Error::File`] with the path of what cannot be described, unless such files are skipped; or what `sink` returns.
    pub fn read(
        &self,
        parallel: Parallel,
        summary: &mut ImageSummary,
        check: impl Fn(&Description) -> Result<()> + Sync,
        fits: impl Fn(&Xattr) -> bool,
        mut sink: impl FnMut(FileId, Description) -> Result<()>,
    ) -> Result<Lost> {
        let files: Vec<FileId> = self.inventory.files().collect();
        let path = |file| self.inventory.path(self.inventory.first_name(file));
        let (mut lost, mut bare) = (Lost::default(), Vec::new());
        let dropped = &mut summary.lost_xattrs;
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
                            return Err(error.in_file("read", &path(file)));
                        }
                        described => known.push((file, described)),
                    }
                }
                Ok(known)
            },
            |known| {
                for (file, described) in known {
                    match described {
                        Ok(mut described) => {
                            described.xattrs.retain(|xattr| {
                                let fits = fits(xattr);
                                if !fits {
                                    dropped.push((path(file), xattr.name.to_vec()));
                                }
                                fits
                            });
                            sink(file, described)?;
                        }
                        Err(_) if self.inventory.kind(file) == FileKind::Directory => {
                            bare.push(file);
                        }
                        Err(error) => lost.lose(file, error),
                    }
                }
                Ok(())
            },
        )?;
        let all = bare.into_iter().map(|dir| (path(dir), b"*".to_vec()));
        summary.lost_xattrs.extend(all);
        Ok(lost)
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
