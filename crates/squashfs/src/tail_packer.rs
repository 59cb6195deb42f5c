//! Decides which fragment block a tail goes into, and where.

use crate::inode::TailPosition;

/// Packs tails into fragment blocks, one after another. A tail that does not fit ends the block.
pub(crate) struct TailPacker {
    block_bytes: u64,
    /// The number of the next fragment block.
    next: u32,
    /// The number of the block that is being filled, and the bytes used of it.
    open: u32,
    used: u64,
}

impl TailPacker {
    pub(crate) fn new(block_bytes: u64) -> Self {
        TailPacker {
            block_bytes,
            next: 0,
            open: 0,
            used: block_bytes,
        }
    }

    /// A number for the next fragment block, which is filled elsewhere.
    pub(crate) fn number(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    /// The position of a tail of 1 byte or more. At offset 0 it begins a block, and the one before
    /// ends.
    pub(crate) fn place(&mut self, len: u64) -> TailPosition {
        if self.used + len > self.block_bytes {
            (self.open, self.used) = (self.number(), 0);
        }
        let offset = self.used as u32;
        self.used += len;
        TailPosition {
            fragment: self.open,
            offset,
        }
    }
}
