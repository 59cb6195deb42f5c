//! Decides which fragment block a tail goes into, and where.

use crate::inode::TailPosition;

/// Packs tails into fragment blocks, one after another. A tail that does not fit ends the block.
pub(crate) struct TailPacker {
    block_bytes: u64,
    /// The number of the next fragment block.
    next: u32,
    /// For each group of files, the number of the block that is being filled, and the bytes used of
    /// it.
    open: Vec<(u32, u64)>,
}

impl TailPacker {
    pub(crate) fn new(block_bytes: u64) -> Self {
        TailPacker {
            block_bytes,
            next: 0,
            open: Vec::new(),
        }
    }

    /// A number for the next fragment block, which is filled elsewhere.
    pub(crate) fn number(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    /// The position of a tail of 1 byte or more in the blocks of a group. At offset 0 it begins a
    /// block, and the one before ends.
    pub(crate) fn place(&mut self, group: usize, len: u64) -> TailPosition {
        if self.open.len() <= group {
            self.open.resize(group + 1, (0, self.block_bytes));
        }
        if self.open[group].1 + len > self.block_bytes {
            self.open[group] = (self.number(), 0);
        }
        let (fragment, used) = &mut self.open[group];
        let offset = *used as u32;
        *used += len;
        TailPosition {
            fragment: *fragment,
            offset,
        }
    }
}
