//! The blocks of an image.

use tree::{Error, Result};

use crate::inode::EXTENDED_BYTES;

/// Blocks have 4 KiB, which every Linux can read.
pub(crate) const BLOCK_LOG2: u8 = 12;
pub(crate) const BLOCK_BYTES: usize = 1 << BLOCK_LOG2;

/// Whether this many bytes fit behind an inode in one block, as inline data must.
pub(crate) fn fits_inline(xattr_bytes: usize, len: usize) -> bool {
    EXTENDED_BYTES + xattr_bytes + len <= BLOCK_BYTES
}

/// The number of a block in the 32 bits of inodes and indexes.
pub(crate) fn block_number(block: u64) -> Result<u32> {
    // The last one means a hole.
    let number = u32::try_from(block).ok().filter(|&block| block < u32::MAX);
    number.ok_or(Error::Limit("an EROFS image of more than 16 TiB"))
}
