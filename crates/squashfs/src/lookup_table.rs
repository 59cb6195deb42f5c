//! Tables of fixed-size records: IDs, fragments, the export table, and sets of extended attributes.
//!
//! The records are in metadata blocks, and an uncompressed list holds the positions of these blocks.

use tree::{Corrupt, Result};

use crate::image::Image;
use crate::metadata::{MetadataReader, MetadataWriter, Reference};
use crate::raw::{METADATA_BYTES, STORED_METADATA_MAX};

/// A table of `count` records of type `T`, open for reading.
pub(crate) struct Table<T> {
    blocks: Box<[u64]>,
    count: u32,
    /// The end of the last block.
    end: u64,
    record: std::marker::PhantomData<fn() -> T>,
}

impl<T: zerocopy::FromBytes + zerocopy::IntoBytes> Table<T> {
    const PER_BLOCK: u32 = (METADATA_BYTES / size_of::<T>()) as u32;

    /// Reads the list at `list_at`, which ends at `list_end` if that is known; the blocks lie between `from` and `end`.
    pub(crate) fn read(
        image: &Image,
        list_at: u64,
        list_end: Option<u64>,
        (from, end): (u64, u64),
        count: u32,
    ) -> Result<Self> {
        let corrupt = |what, got| Corrupt {
            what,
            at: list_at,
            got,
        };
        let block_count = u64::from(count.div_ceil(Self::PER_BLOCK));
        // Linux, too, rejects an image with more or fewer.
        let is_end = |end| list_at.checked_add(block_count * 8) == Some(end);
        if let Some(end) = list_end.filter(|&end| !is_end(end)) {
            return Err(corrupt("table's list does not end where the next begins", end).into());
        }
        let mut blocks = vec![0u64; block_count as usize];
        image.read(zerocopy::IntoBytes::as_mut_bytes(&mut blocks[..]), list_at)?;
        let mut below = from;
        for block in &mut blocks {
            *block = u64::from_le(*block);
        }
        for (n, &block) in blocks.iter().enumerate() {
            let next = blocks.get(n + 1).copied().unwrap_or(end);
            if block < below || block >= next || next - block > STORED_METADATA_MAX as u64 {
                return Err(corrupt("table's blocks are out of order", block).into());
            }
            below = next;
        }
        Ok(Table {
            blocks: blocks.into(),
            count,
            end,
            record: std::marker::PhantomData,
        })
    }

    /// Position of the first block, which is also the end of whatever precedes this table.
    pub(crate) fn start(&self) -> u64 {
        self.blocks.first().copied().unwrap_or(self.end)
    }

    /// Where the blocks start and end: the list follows.
    pub(crate) fn stored(&self) -> (u64, u64) {
        (self.start(), self.end)
    }

    /// Number of blocks.
    pub(crate) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Number of records in a block.
    pub(crate) fn records_in(&self, block: usize) -> usize {
        let before = block as u32 * Self::PER_BLOCK; // not more than there are records
        (self.count - before).min(Self::PER_BLOCK) as usize
    }

    /// The records in a block.
    pub(crate) fn block(&self, image: &Image, block: usize) -> Result<Vec<T>> {
        let at = self.blocks[block];
        let mut reader = MetadataReader::new(image, at, self.end, Reference(0))?;
        (0..self.records_in(block))
            .map(|_| reader.record())
            .collect()
    }

    /// Number of records.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// The record at this index, or `None` past the end.
    pub(crate) fn find(&self, image: &Image, index: u32) -> Result<Option<T>> {
        if index >= self.count {
            return Ok(None);
        }
        let block = self.blocks[(index / Self::PER_BLOCK) as usize];
        let offset = (index % Self::PER_BLOCK) as usize * size_of::<T>();
        let at = Reference::new(0, offset as u16);
        let mut reader = MetadataReader::new(image, block, self.end, at)?;
        reader.record().map(Some)
    }

    /// All records in order.
    pub(crate) fn all(&self, image: &Image) -> Result<Vec<T>> {
        let mut records = Vec::new();
        for block in 0..self.blocks.len() {
            records.extend(self.block(image, block)?);
        }
        Ok(records)
    }
}

/// Finishes a table that is stored at `at`: appends the list and returns its position.
pub(crate) fn emit_table(writer: MetadataWriter, at: u64, out: &mut Vec<u8>) -> u64 {
    let (stored, blocks) = writer.finish();
    let list_at = at + stored.len() as u64;
    out.extend(stored);
    for block in blocks {
        out.extend((at + block).to_le_bytes());
    }
    list_at
}
