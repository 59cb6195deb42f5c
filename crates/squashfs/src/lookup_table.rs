//! Tables of fixed-size records: IDs, fragments, the export table, and sets of extended attributes.
//!
//! The records are in metadata blocks, and an uncompressed list holds the positions of these
//! blocks.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{Error, Result, to_u64, to_usize};

use crate::image::Image;
use crate::metadata::{MetadataReader, MetadataWriter};
use crate::raw::{METADATA_BYTES, STORED_METADATA_MAX};
use crate::reference::MetadataRef;

/// A table of `count` records of type `T`, open for reading.
pub(crate) struct LookupTable<T> {
    blocks: Box<[u64]>,
    count: u32,
    /// The end of the last block.
    end: u64,
    record: std::marker::PhantomData<fn() -> T>,
}

impl<T: zerocopy::FromBytes + zerocopy::IntoBytes> LookupTable<T> {
    const PER_BLOCK: usize = METADATA_BYTES / size_of::<T>();

    /// Reads the list at `list_at`, which ends at `list_end` if that is known; the blocks lie
    /// between `from` and `end`.
    pub(crate) fn read(
        image: &Image,
        list_at: u64,
        list_end: Option<u64>,
        (from, end): (u64, u64),
        count: u32,
    ) -> Result<Self> {
        let corrupt = |what, got| Error::corrupt(what, list_at, got);
        let block_count = to_u64(to_usize(count).div_ceil(Self::PER_BLOCK));
        // Linux, too, rejects an image with more or fewer.
        let is_end = |end| {
            block_count
                .checked_mul(8)
                .and_then(|bytes| list_at.checked_add(bytes))
                == Some(end)
        };
        if let Some(end) = list_end.filter(|&end| !is_end(end)) {
            return Err(corrupt(
                "table's list does not end where the next begins",
                end,
            ));
        }
        let mut blocks = vec![0u64; to_usize(block_count)];
        image.read(zerocopy::IntoBytes::as_mut_bytes(&mut blocks[..]), list_at)?;
        let mut below = from;
        for block in &mut blocks {
            *block = u64::from_le(*block);
        }
        let ends = blocks.iter().skip(1).copied().chain([end]);
        for (&block, next) in blocks.iter().zip(ends) {
            let stored = next.saturating_sub(block);
            if block < below || block >= next || stored > to_u64(STORED_METADATA_MAX) {
                return Err(corrupt("table's blocks are out of order", block));
            }
            below = next;
        }
        Ok(LookupTable {
            blocks: blocks.into(),
            count,
            end,
            record: std::marker::PhantomData,
        })
    }

    /// Position of the first block, which is also the end of the part before this table.
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
        let before = block.saturating_mul(Self::PER_BLOCK);
        let left = to_usize(self.count).saturating_sub(before);
        left.min(Self::PER_BLOCK)
    }

    /// The records in a block. `block` must be below [`LookupTable::block_count`].
    pub(crate) fn block(&self, image: &Image, block: usize) -> Result<Vec<T>> {
        let mut reader = self.reader(image, block, MetadataRef(0))?;
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
        let index = to_usize(index);
        let (block, index) = (
            index.checked_div(Self::PER_BLOCK).unwrap_or(0),
            index.checked_rem(Self::PER_BLOCK).unwrap_or(0),
        );
        let offset = index.saturating_mul(size_of::<T>());
        let offset = u16::try_from(offset).unwrap_or(u16::MAX); // less than 8,192
        let mut reader = self.reader(image, block, MetadataRef::new(0, offset))?;
        reader.record().map(Some)
    }

    /// Starts in one of the blocks.
    #[expect(clippy::indexing_slicing, reason = "the callers' blocks are there")]
    fn reader<'a>(
        &self,
        image: &'a Image,
        block: usize,
        from: MetadataRef,
    ) -> Result<MetadataReader<'a>> {
        MetadataReader::new(image, self.blocks[block], self.end, from)
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
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a writer: these numbers are its own"
)]
pub(crate) fn emit_table(writer: MetadataWriter, at: u64, out: &mut Vec<u8>) -> u64 {
    let (stored, blocks) = writer.finish();
    let list_at = at + to_u64(stored.len());
    out.extend(stored);
    for block in blocks {
        out.extend((at + block).to_le_bytes());
    }
    list_at
}
