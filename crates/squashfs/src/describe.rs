//! File metadata that the inventory does not hold: extended attributes and link targets.

use std::collections::HashMap;

use tree::{Describe, Error, FileId, Result, XattrSets};

use crate::image_writer::ImageWriter;
use crate::raw::flags;
use crate::xattr::{XattrWriter, is_storable};

/// Longest target of a symbolic link that Linux follows.
const TARGET_BYTES_MAX: usize = 4095;

/// File metadata that the inventory does not hold.
pub(crate) struct DescribedFiles {
    pub(crate) xattrs: XattrWriter,
    pub(crate) sets: XattrSets,
    /// Targets of symbolic links.
    pub(crate) targets: HashMap<FileId, Box<[u8]>>,
}

impl ImageWriter<'_> {
    /// Reads link targets and extended attributes; skips files for which that fails if the options
    /// allow it.
    pub(crate) fn describe(&mut self) -> Result<DescribedFiles> {
        let inventory = self.inventory;
        let mut described = DescribedFiles {
            xattrs: XattrWriter::new(self.metadata_writer(flags::XATTRS_PLAIN)),
            sets: XattrSets::default(),
            targets: HashMap::new(),
        };
        let describe = Describe {
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
                let number = described.xattrs.add(description.xattrs);
                described.sets.set(file, number);
                if let Some(target) = description.target {
                    described.targets.insert(file, target);
                }
                Ok(())
            },
        )?;
        Ok(described)
    }
}
