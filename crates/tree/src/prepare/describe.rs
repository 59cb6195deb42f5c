//! Reads extended attributes and link targets, before anything else.

use super::Lost;
use crate::{FileId, FileKind, ImageSummary, Inventory, Parallel, Result, Xattr, ordered};

/// Number of files that one job describes.
const BATCH_FILES: u32 = 256;

/// The properties of a file that an inventory does not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// The extended attributes.
    pub xattrs: Vec<Xattr>,
    /// The target of a symbolic link.
    pub target: Option<Box<[u8]>>,
}

/// How files are described.
#[derive(Clone, Copy)]
pub struct Describe<'a> {
    /// The tree.
    pub inventory: &'a Inventory<'a>,
    /// Whether to read extended attributes.
    pub xattrs: bool,
    /// Whether to continue if a file cannot be described. For the root this is always an error:
    /// every container has one.
    pub skip_unreadable: bool,
}

impl Describe<'_> {
    /// Reads the descriptions of all files in the inventory, on all threads, and passes them to
    /// `sink` in file order, skipping empty ones. `check` rejects files that the container cannot
    /// hold; `fits` drops extended attributes that it cannot hold, and `summary` lists those.
    /// Returns the files that are left out. A directory that cannot be described loses only its
    /// extended attributes, since its contents may still be readable.
    ///
    /// # Errors
    /// [`crate::Error::File`] with the path of a file that cannot be described, unless such files
    /// are skipped; or the error of `sink`.
    pub fn read(
        &self,
        parallel: Parallel,
        summary: &mut ImageSummary,
        check: impl Fn(&Description) -> Result<()> + Sync,
        fits: impl Fn(&Xattr) -> bool,
        mut sink: impl FnMut(FileId, Description) -> Result<()>,
    ) -> Result<Lost> {
        let count = self.inventory.file_count();
        let batches = (0..count).step_by(BATCH_FILES as usize);
        let path = |file| self.inventory.path(self.inventory.first_name(file));
        let mut lost = Lost::default();
        let dropped = &mut summary.lost_xattrs;
        ordered(
            parallel,
            batches.map(|from| from..count.min(from.saturating_add(BATCH_FILES))),
            || (),
            |(), batch| {
                let mut known = Vec::new();
                for file in batch.map(FileId) {
                    let owner = self.inventory.metadata(file).check_owner();
                    owner.map_err(|error| error.in_file("read", &path(file)))?;
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
                        Err(error) if self.inventory.kind(file) == FileKind::Directory => {
                            lost.lose_attributes(file, error);
                        }
                        Err(error) => lost.lose(file, error),
                    }
                }
                Ok(())
            },
        )?;
        Ok(lost)
    }

    fn one(&self, file: FileId) -> Result<Description> {
        let ino = self.inventory.ino(file);
        let mut described = Description::default();
        if self.xattrs {
            described.xattrs = self.inventory.tree().xattrs(ino)?;
        }
        if self.inventory.kind(file) == FileKind::Symlink {
            described.target = Some(self.inventory.tree().read_link(ino)?.into());
        }
        Ok(described)
    }
}

/// The set of extended attributes of each file.
#[derive(Default)]
pub struct XattrSets {
    /// By file, up to the last one that has attributes; [`NO_SET`] for those that have none.
    numbers: Vec<u32>,
}

/// As in an inode.
const NO_SET: u32 = u32::MAX;

impl XattrSets {
    /// The number of a file's set; `None` if it has no attributes.
    pub fn of(&self, file: FileId) -> Option<u32> {
        let number = self.numbers.get(file.0 as usize).copied();
        number.filter(|&number| number != NO_SET)
    }

    /// Gives a file its set, if it has one. Files come in ascending order.
    pub fn set(&mut self, file: FileId, number: Option<u32>) {
        let Some(number) = number else { return };
        let index = file.0 as usize;
        if self.numbers.len() <= index {
            self.numbers.resize(index + 1, NO_SET);
        }
        self.numbers[index] = number;
    }
}
