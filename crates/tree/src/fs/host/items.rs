//! The extent items of files on a mounted btrfs, with the sizes of whole extents.

use codec::Algorithm;

use super::super::Ino;
use super::HostDir;
use super::stored::{INLINE, INLINE_AT, ITEM_BYTES, OpenInode, PREALLOCATED, StoredExtents};
use crate::{Error, Result};

/// A `struct btrfs_file_extent_item`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtentItem {
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// Its length in the file.
    pub(crate) len: u64,
    /// How it is compressed.
    pub(crate) algorithm: Option<Algorithm>,
    pub(crate) body: ItemBody,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum ItemBody {
    Hole,
    /// With this many stored bytes.
    Inline(u64),
    Extent {
        at: u64,
        stored: u64,
        decoded: u64,
        /// Where, in the decoded bytes, the item begins.
        begin: u64,
        is_preallocated: bool,
    },
}

impl HostDir {
    /// Calls `each` with the extent items of a file on btrfs and the file's size, and returns that
    /// size; `None`, without calling it, if extents are not read as they are stored, or if the file
    /// is on another file system.
    ///
    /// # Errors
    /// The kernel's error, or that of `each`.
    pub(crate) fn for_each_extent_item(
        &self,
        file: Ino,
        each: &mut dyn FnMut(&ExtentItem, u64) -> Result<()>,
    ) -> Result<Option<u64>> {
        let Some(stored) = &self.stored else {
            return Ok(None);
        };
        let open = self.file(file)?;
        let inode = self.open_inode(file, &open.file)?;
        let is_ours = stored.for_each_item(&inode, each)?;
        Ok(is_ours.then_some(inode.size))
    }
}

impl StoredExtents {
    fn for_each_item(
        &self,
        inode: &OpenInode<'_>,
        each: &mut dyn FnMut(&ExtentItem, u64) -> Result<()>,
    ) -> Result<bool> {
        let Some(subvolume) = self.subvolume(inode)? else {
            return Ok(false);
        };
        linux::flush_extents(inode.file)?;
        let mut result = Ok(());
        linux::for_each_extent_item(inode.file, subvolume, inode.ino, 0, |offset, bytes| {
            let unknown = Error::Unsupported("an extent of btrfs of an unknown kind");
            result = match self.extent_item(offset, bytes) {
                Some(item) => each(&item, inode.size),
                None => Err(unknown),
            };
            result.is_ok()
        })?;
        result.map(|()| true)
    }

    fn extent_item(&self, offset: u64, bytes: &[u8]) -> Option<ExtentItem> {
        let long = |at: usize| {
            let bytes = bytes.get(at..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let decoded = long(8)?;
        let [compression, _, _, _, kind] = *bytes.get(16..)?.first_chunk::<5>()?;
        let algorithm = self.algorithm(compression);
        let item = |len, body| {
            Some(ExtentItem {
                offset,
                len,
                algorithm,
                body,
            })
        };
        if kind == INLINE {
            let stored = bytes.len().checked_sub(INLINE_AT)? as u64;
            return item(decoded, ItemBody::Inline(stored));
        }
        if bytes.len() < ITEM_BYTES {
            return None;
        }
        let (at, stored, begin, len) = (long(21)?, long(29)?, long(37)?, long(45)?);
        if at == 0 {
            return item(len, ItemBody::Hole);
        }
        let body = ItemBody::Extent {
            at,
            stored,
            decoded,
            begin,
            is_preallocated: kind == PREALLOCATED,
        };
        item(len, body)
    }
}
