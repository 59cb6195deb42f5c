//! Where the stored bytes of a source are.

use std::ffi::OsString;
use std::fs;

use tree::usage::{ByExtents, StoredParts, Totals, Visitor, measure};
use tree::{DirEntry, Progress};

use crate::error::{During as _, refuse};
use crate::{Address, OpenOptions, Result, SourceTree, find_subvolume};

/// The bytes of SquashFS's superblock (`struct squashfs_super_block`).
const SUPERBLOCK_BYTES: u64 = 96;

/// Bytes that are not data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overhead {
    /// Of metadata, in one copy: trees, tables, or headers of commands.
    pub metadata: u64,
    /// Allocated and unused: free space in the chunks of btrfs; gaps and padding.
    pub slack: u64,
}

/// Bytes of data and metadata of the subvolumes of a btrfs image, in one copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubvolumeUsage {
    /// Each subvolume, in the order of their IDs.
    pub subvolumes: Vec<SubvolumeBytes>,
    /// Bytes that deleting the subvolumes that were named, all together, frees.
    pub freed: u64,
}

/// Bytes of a subvolume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubvolumeBytes {
    /// Its ID.
    pub id: u64,
    /// Its path from the top level; `None` if no path leads to it.
    pub path: Option<Vec<u8>>,
    /// Bytes to which it refers.
    pub referenced: u64,
    /// Bytes to which no other subvolume refers.
    pub exclusive: u64,
}

impl SourceTree {
    /// Measures the bytes that the subvolumes of a btrfs image share, and those that deleting the
    /// subvolumes of `deleted` (paths or IDs) frees. Changes in a log do not count.
    ///
    /// # Errors
    /// It is no btrfs image, or cannot be read; there is no such subvolume.
    pub fn subvolume_usage(
        &self,
        address: &Address,
        deleted: &[OsString],
    ) -> Result<SubvolumeUsage> {
        let Some(subvolume) = self.subvolume() else {
            refuse!("{} is not a btrfs image", self.name());
        };
        let btrfs = subvolume.btrfs();
        let mut ids = Vec::new();
        for wanted in deleted {
            ids.push(find_subvolume(btrfs, wanted, &address.path)?);
        }
        let measure = || -> tree::Result<SubvolumeUsage> {
            let sharing = btrfs.sharing()?;
            let all = btrfs.subvolumes()?.into_iter();
            let all = all.filter(|it| sharing.subvolumes().contains(&it.id));
            let bytes = all.map(|it| SubvolumeBytes {
                id: it.id,
                path: it.path,
                referenced: sharing.referenced(it.id),
                exclusive: sharing.exclusive(&[it.id]),
            });
            Ok(SubvolumeUsage {
                subvolumes: bytes.collect(),
                freed: sharing.exclusive(&ids),
            })
        };
        measure().during(|| format!("read {}", self.name()))
    }

    /// Measures a file or directory with everything below it.
    ///
    /// # Errors
    /// It cannot be read; those of the visitor.
    pub fn measure(
        &self,
        start: (&DirEntry, &[u8]),
        progress: &dyn Progress,
        visitor: &mut dyn Visitor,
    ) -> Result<Totals> {
        let by_extents = ByExtents(&**self.tree());
        let images = (self.subvolume(), self.squashfs(), self.erofs());
        let parts: &dyn StoredParts = match (images, self.stored_dir()) {
            ((Some(subvolume), ..), _) => &**subvolume,
            ((_, Some(image), _), _) => &**image,
            ((.., Some(image)), _) => &**image,
            (_, Some(dir)) => &**dir,
            _ => &by_extents,
        };
        let totals = measure(&**self.tree(), parts, start, progress, visitor);
        totals.map_err(|error| self.name_error(error))
    }
}

/// The bytes that a container has beside data; `None` if only a part of it was measured, or if it
/// has no such bytes.
///
/// # Errors
/// The image cannot be read.
pub fn overhead(
    source: &SourceTree,
    address: &Address,
    options: &OpenOptions,
    totals: &Totals,
) -> Result<Option<Overhead>> {
    let is_named = address.subvolume.is_some() || options.subvolume.is_some();
    if is_named || options.no_nested || source.directory().is_some() {
        return Ok(None);
    }
    let stored = totals.total().stored;
    if let Some(subvolume) = source.subvolume() {
        let space = subvolume.btrfs().space()?;
        let outside = stored.saturating_sub(totals.inline.stored);
        // In mixed groups, everything but data is metadata.
        let metadata = if space.is_mixed {
            space.metadata.used.saturating_sub(outside)
        } else {
            space.metadata.used
        };
        let total = space.data.total.saturating_add(space.metadata.total);
        let used = space.data.used.saturating_add(space.metadata.used);
        return Ok(Some(Overhead {
            metadata,
            slack: total.saturating_sub(used),
        }));
    }
    let file = fs::metadata(&address.path).ok();
    let file = file.filter(|file| file.is_file() && options.image_at.is_none());
    if let Some(image) = source.squashfs() {
        let superblock = image.superblock();
        let area = superblock.inode_table.saturating_sub(SUPERBLOCK_BYTES);
        let padding = file.map_or(0, |file| file.len().saturating_sub(superblock.bytes_used));
        return Ok(Some(Overhead {
            metadata: superblock.bytes_used.saturating_sub(area),
            slack: area.saturating_sub(stored).saturating_add(padding),
        }));
    }
    // Of an image with further devices, the data is elsewhere.
    if let (Some(image), Some(file), true) = (source.erofs(), &file, options.devices.is_empty()) {
        let metadata = image.metadata_bytes()?;
        let data = stored.saturating_sub(totals.inline.stored);
        return Ok(Some(Overhead {
            metadata,
            slack: file.len().saturating_sub(metadata).saturating_sub(data),
        }));
    }
    // Of a stream with several subvolumes, which has a note, one is measured; with parents, their
    // data is measured, too.
    let is_whole = options.base.is_empty() && source.notes().is_empty() && source.is_stream();
    Ok(file.filter(|_| is_whole).map(|file| Overhead {
        metadata: file.len().saturating_sub(stored),
        slack: 0,
    }))
}
