//! What an image says of files that the inventory does not hold: extended attributes and link targets.

use std::collections::HashMap;

use tree::{Error, FileId, FileKind, Result, Xattr, ordered};

use crate::write::Writer;
use crate::xattr::{XattrWriter, is_storable};

/// Longest target of a symbolic link that Linux follows.
const TARGET_BYTES_MAX: usize = 4095;
/// Files that one job describes.
const DESCRIBE_BATCH: usize = 256;

/// What is known of files beside what the inventory says.
pub(crate) struct Described {
    pub(crate) xattrs: XattrWriter,
    /// The attribute set of each file.
    pub(crate) sets: Vec<Option<u32>>,
    /// Targets of symbolic links.
    pub(crate) targets: HashMap<FileId, Box<[u8]>>,
}

/// The attributes of one file, and its target if it is a symbolic link.
type Description = (Vec<Xattr>, Option<Box<[u8]>>);

impl Writer<'_> {
    /// Reads link targets and extended attributes, on all threads.
    pub(crate) fn describe(&mut self) -> Result<Described> {
        let (fs, inventory) = (self.fs, self.inventory);
        let with_xattrs = self.options.xattrs;
        let mut described = Described {
            xattrs: XattrWriter::new(self.metadata_writer()),
            sets: vec![None; inventory.file_count() as usize],
            targets: HashMap::new(),
        };
        let files: Vec<FileId> = inventory.files().collect();
        let describe = |file: FileId| -> Result<Description> {
            let ino = inventory.ino(file);
            let xattrs = if with_xattrs {
                fs.xattrs(ino)?
            } else {
                Vec::new()
            };
            let target = if inventory.kind(file) == FileKind::Symlink {
                let target = fs.read_link(ino)?;
                if target.len() > TARGET_BYTES_MAX {
                    return Err(Error::Limit(
                        "the target of a symbolic link is longer than Linux follows",
                    ));
                }
                Some(target.into())
            } else {
                None
            };
            Ok((xattrs, target))
        };
        let mut lost = Vec::new();
        ordered(
            self.parallel,
            files.chunks(DESCRIBE_BATCH),
            || (),
            |(), batch| {
                let mut known = Vec::new();
                for &file in batch {
                    let path = || inventory.path(inventory.first_name(file));
                    let (xattrs, target) =
                        describe(file).map_err(|error| error.in_file("read", &path()))?;
                    if !xattrs.is_empty() || target.is_some() {
                        known.push((file, xattrs, target));
                    }
                }
                Ok(known)
            },
            |known| {
                for (file, mut xattrs, target) in known {
                    xattrs.retain(|xattr| {
                        let keep = is_storable(&xattr.name);
                        if !keep {
                            let path = inventory.path(inventory.first_name(file));
                            lost.push((path, xattr.name.to_vec()));
                        }
                        keep
                    });
                    described.sets[file.0 as usize] = described.xattrs.add(xattrs);
                    if let Some(target) = target {
                        described.targets.insert(file, target);
                    }
                }
                Ok::<(), Error>(())
            },
        )?;
        self.summary.lost_xattrs = lost;
        Ok(described)
    }
}
