//! File metadata that the inventory does not hold: attributes and targets, read before anything is
//! written.

use std::collections::HashMap;

use tree::{Describe, Error, FileId, Inventory, Lost, Parallel, Result, Xattr};

use crate::disk::raw;
use crate::options::{CreateSummary, Options};
use crate::write::builder::item_bytes_max;

/// File metadata that the inventory does not hold.
#[derive(Debug, Default)]
pub(crate) struct FileDescriptions {
    pub(crate) xattrs: HashMap<FileId, Vec<Xattr>>,
    /// Targets of symbolic links.
    pub(crate) targets: HashMap<FileId, Box<[u8]>>,
}

/// Reads link targets and extended attributes, and returns the files that are left out.
pub(crate) fn describe(
    inventory: &Inventory,
    options: &Options,
    parallel: Parallel,
    summary: &mut CreateSummary,
) -> Result<(FileDescriptions, Lost)> {
    let nodesize = options.nodesize;
    let mut described = FileDescriptions::default();
    let describe = Describe {
        inventory,
        xattrs: true,
        skip_unreadable: options.skip_unreadable,
    };
    let lost = describe.read(
        parallel,
        &mut summary.image,
        |description| match &description.target {
            Some(target) => check_target(target, nodesize),
            None => Ok(()),
        },
        |xattr| {
            let bytes = xattr.name.len() + xattr.value.len();
            xattr.name.len() <= 255 && bytes <= xattr_bytes_max(nodesize)
        },
        |file, description| {
            if !description.xattrs.is_empty() {
                described.xattrs.insert(file, description.xattrs);
            }
            if let Some(target) = description.target {
                described.targets.insert(file, target);
            }
            Ok(())
        },
    )?;
    Ok((described, lost))
}

/// Maximum length of an attribute's name and value together.
fn xattr_bytes_max(nodesize: u32) -> usize {
    item_bytes_max(nodesize) - size_of::<raw::DirItem>()
}

/// Length of the longest target that fits in a tree block and that Linux follows.
fn target_bytes_max(nodesize: u32) -> usize {
    (item_bytes_max(nodesize) - size_of::<raw::FileExtentItem>()).min(4095)
}

/// Why a file cannot be stored, determined before anything is written.
fn check_target(target: &[u8], nodesize: u32) -> Result<()> {
    if target.is_empty() {
        return Err(Error::Unsupported("a symbolic link that has no target"));
    }
    if target.len() > target_bytes_max(nodesize) {
        return Err(Error::Limit(
            "the target of a symbolic link does not fit in a tree block",
        ));
    }
    Ok(())
}
