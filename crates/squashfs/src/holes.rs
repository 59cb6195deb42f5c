//! Holes that would make an image much larger than the data of its files.

use tree::{FileId, FileKind, Inventory, Result};

use crate::options::Options;

/// The holes of a tree that are larger together than [`Options::sparse_max`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExcessHoles {
    /// The file with the largest holes.
    pub file: FileId,
    /// Bytes in the holes of this file.
    pub file_bytes: u64,
    /// Bytes in the holes of all files.
    pub bytes: u64,
    /// The size of the block lists that these holes need, in bytes.
    pub list_bytes: u64,
}

/// Checks whether the holes of all files together are larger than the options allow. Files are
/// asked for their extents only if their sizes alone exceed the limit.
///
/// # Errors
/// [`tree::Error::File`] if the extents of a file cannot be read, unless unreadable files are
/// skipped.
pub fn excess_holes(inventory: &Inventory, options: &Options) -> Result<Option<ExcessHoles>> {
    if inventory.content_bytes() <= options.sparse_max {
        return Ok(None);
    }
    let mut bytes = 0u64;
    let mut largest: Option<(FileId, u64)> = None;
    for file in inventory.files() {
        let size = inventory.size(file);
        if inventory.kind(file) != FileKind::Regular || size < options.block_bytes.into() {
            continue;
        }
        let mut extents = inventory.extents(file);
        let mut file_bytes = 0;
        loop {
            match extents.next() {
                Ok(Some(extent)) if extent.kind.has_data() => {}
                Ok(Some(hole)) => file_bytes += hole.len,
                Ok(None) => break,
                // It comes up again when the file is read.
                Err(_) if options.skip_unreadable => break,
                Err(error) => {
                    let path = inventory.path(inventory.first_name(file));
                    return Err(error.in_file("read", &path));
                }
            }
        }
        bytes = bytes.saturating_add(file_bytes);
        if largest.is_none_or(|(_, most)| most < file_bytes) {
            largest = Some((file, file_bytes));
        }
    }
    Ok(largest
        .filter(|_| bytes > options.sparse_max)
        .map(|(file, file_bytes)| ExcessHoles {
            file,
            file_bytes,
            bytes,
            list_bytes: bytes.div_ceil(options.block_bytes.into()) * 4,
        }))
}
