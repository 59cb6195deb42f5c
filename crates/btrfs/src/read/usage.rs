//! The parts of files as they are stored, and the space that block groups have.

use tree::usage::{StorageForm, StoredPart, StoredParts, algorithm_name, hole};
use tree::{ExtentId, Ino, Result, to_u64};
use zerocopy::FromBytes;

use crate::disk::compression::Compression;
use crate::disk::extent::{ExtentBody, FileExtent};
use crate::disk::flags::{block_group, compat_ro};
use crate::disk::key::{Key, item, object};
use crate::disk::raw;
use crate::disk::subvolume::TreeRoot;
use crate::read::{Btrfs, Resolved, Subvolume};

/// The space of a kind of block groups, in bytes of one copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupSpace {
    /// Bytes of the groups.
    pub total: u64,
    /// Bytes that are allocated in them.
    pub used: u64,
}

/// The space of all block groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Groups of data alone.
    pub data: GroupSpace,
    /// Groups of metadata, of the system, and of data and metadata together.
    pub metadata: GroupSpace,
    /// Whether there are groups of data and metadata together.
    pub is_mixed: bool,
}

impl Btrfs {
    /// The space of the block groups, as of the last commit.
    ///
    /// # Errors
    /// Fails if a tree cannot be read, or if a chunk has no block group.
    pub fn space(&self) -> Result<Space> {
        let volume = &self.volume;
        let has_group_tree = volume.superblock.compat_ro & compat_ro::BLOCK_GROUP_TREE != 0;
        let id = if has_group_tree {
            object::BLOCK_GROUP_TREE
        } else {
            object::EXTENT_TREE
        };
        let mut space = Space::default();
        let Some(root) = TreeRoot::find(volume, &self.roots, id)? else {
            return Ok(space);
        };
        for chunk in self.chunks().chunks() {
            let key = Key::new(chunk.start.0, item::BLOCK_GROUP_ITEM, chunk.len);
            let used = root.tree.get(volume, key, |item| {
                let raw = raw::BlockGroupItem::ref_from_bytes(item.data).map_err(|_| {
                    let len = to_u64(item.data.len());
                    item.corrupt("block group's item is of the wrong size", len)
                })?;
                Ok(raw.used.get())
            })?;
            let Some(used) = used else {
                continue;
            };
            let is_data = chunk.flags & block_group::TYPE_MASK == block_group::DATA;
            let sum = if is_data {
                &mut space.data
            } else {
                &mut space.metadata
            };
            sum.total = sum.total.saturating_add(chunk.len);
            sum.used = sum.used.saturating_add(used.min(chunk.len));
            space.is_mixed |= !is_data && chunk.flags & block_group::DATA != 0;
        }
        Ok(space)
    }
}

impl StoredParts for Subvolume {
    fn has_fragments(&self) -> bool {
        false
    }

    /// Every file extent item counts, also those past the end of the file.
    fn stored_parts(
        &self,
        file: Ino,
        each: &mut dyn FnMut(StoredPart) -> Result<()>,
    ) -> Result<()> {
        let Resolved::Inode(tree, number) = self.resolve(file)? else {
            return Ok(());
        };
        let volume = &self.btrfs().volume;
        let size = self.inode_in(&tree, number)?.size;
        let mut at = 0;
        let mut cursor = tree.seek(volume, Key::new(number, item::EXTENT_DATA, 0))?;
        while let Some(item) = cursor.item_of(number, item::EXTENT_DATA) {
            let extent = FileExtent::parse(&item, volume.superblock.sectorsize)?;
            let hole_end = match extent.body {
                ExtentBody::Hole => extent.end(),
                _ => extent.offset,
            };
            hole(at, hole_end.min(size), each)?;
            if let Some(part) = part(&extent) {
                each(part)?;
            }
            at = extent.end().max(at);
            cursor.advance()?;
        }
        hole(at, size, each)
    }
}

/// The stored part that an extent item refers to; `None` for a hole.
fn part(extent: &FileExtent<'_>) -> Option<StoredPart> {
    let len = extent.len;
    match extent.body {
        ExtentBody::Hole => None,
        ExtentBody::Inline {
            compression,
            stored,
            ..
        } => Some(StoredPart::Inline {
            form: form(compression),
            stored: to_u64(stored.len()),
            len,
        }),
        ExtentBody::Stored {
            extent,
            offset: begin,
            is_preallocated,
        } => Some(StoredPart::Extent {
            form: if is_preallocated {
                StorageForm::Preallocated
            } else {
                form(extent.compression)
            },
            id: Some(ExtentId(extent.at.0)),
            stored: Some(extent.len),
            decoded: Some(extent.ram_bytes),
            begin,
            len,
            is_fragment: false,
        }),
    }
}

fn form(compression: Option<Compression>) -> StorageForm {
    // The sector size does not change the name.
    compression.map_or(StorageForm::Plain, |it| {
        StorageForm::Encoded(algorithm_name(it.algorithm(0)))
    })
}
