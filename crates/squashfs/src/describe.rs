//! File metadata that the inventory does not hold: extended attributes and link targets.

use std::collections::HashMap;

use tree::{Describe, Error, FileId, Result};

use crate::writer::Writer;
use crate::xattr::{XattrWriter, is_storable};

/// Longest target of a symbolic link that Linux follows.
const TARGET_BYTES_MAX: usize = 4095;

/// File metadata that the inventory does not hold.
pub(crate) struct Described {
    pub(crate) xattrs: XattrWriter,
    /// The attribute set of each file.
    pub(crate) sets: Vec<Option<u32>>,
    /// Targets of symbolic links.
    pub(crate) targets: HashMap<FileId, Box<[u8]>>,
}

impl Writer<'_> {
    /// Reads link targets and extended attributes; skips files for which that fails if the options allow it.
    pub(crate) fn describe(&mut self) -> Result<Described> {
        let inventory = self.inventory;
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
        self.lost = describe.read(
            self.parallel,
            &mut self.summary.image,
            |description| match &description.target {
                Some(target) if target.len() > TARGET_BYTES_MAX => Err(Error::Limit(
                    "the target of a symbolic link is longer than Linux follows",
                )),
                _ => Ok(()),
            },
            |xattr| is_storable(&xattr.name),
            |file, description| {
                described.sets[file.0 as usize] = described.xattrs.add(description.xattrs);
                if let Some(target) = description.target {
                    described.targets.insert(file, target);
                }
                Ok(())
            },
        )?;
        Ok(described)
    }
}
