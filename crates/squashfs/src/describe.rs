//! What an image says of files that the inventory does not hold: extended attributes and link targets.

use std::collections::HashMap;

use tree::{Describe, Error, FileId, FileKind, Result};

use crate::writer::Writer;
use crate::xattr::{XattrWriter, is_storable};

/// Longest target of a symbolic link that Linux follows.
const TARGET_BYTES_MAX: usize = 4095;

/// What is known of files beside what the inventory says.
pub(crate) struct Described {
    pub(crate) xattrs: XattrWriter,
    /// The attribute set of each file.
    pub(crate) sets: Vec<Option<u32>>,
    /// Targets of symbolic links.
    pub(crate) targets: HashMap<FileId, Box<[u8]>>,
}

impl Writer<'_> {
    /// Reads link targets and extended attributes; files of which that failed are lost, if they are to be left out.
    pub(crate) fn describe(&mut self) -> Result<Described> {
        let inventory = self.inventory;
        let path = |file| inventory.path(inventory.first_name(file));
        let mut described = Described {
            xattrs: XattrWriter::new(self.metadata_writer()),
            sets: vec![None; inventory.file_count() as usize],
            targets: HashMap::new(),
        };
        let describe = Describe {
            fs: self.fs,
            inventory,
            xattrs: self.options.xattrs,
            skip_unreadable: self.options.skip_unreadable,
        };
        let lost_xattrs = &mut self.summary.image.lost_xattrs;
        let failed = describe.read(
            self.parallel,
            |description| match &description.target {
                Some(target) if target.len() > TARGET_BYTES_MAX => Err(Error::Limit(
                    "the target of a symbolic link is longer than Linux follows",
                )),
                _ => Ok(()),
            },
            |file, mut description| {
                description.xattrs.retain(|xattr| {
                    let keep = is_storable(&xattr.name);
                    if !keep {
                        lost_xattrs.push((path(file), xattr.name.to_vec()));
                    }
                    keep
                });
                described.sets[file.0 as usize] = described.xattrs.add(description.xattrs);
                if let Some(target) = description.target {
                    described.targets.insert(file, target);
                }
                Ok(())
            },
        )?;
        for (file, error) in failed {
            // What is in a directory can be read nevertheless.
            match inventory.kind(file) {
                FileKind::Directory => lost_xattrs.push((path(file), b"*".to_vec())),
                _ => self.lost.lose(file, error),
            }
        }
        Ok(described)
    }
}
