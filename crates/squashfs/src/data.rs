//! A regular file's data: a list of block sizes, and a tail in a fragment.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tree::{Error, Result, to_u64, to_usize};

use crate::image::{Image, StoredSize};
use crate::inode::{RegularFile, TailPosition};
use crate::lookup_table::LookupTable;
use crate::metadata::{MetadataPosition, MetadataReader};
use crate::raw::{self, METADATA_BYTES};

/// Size words between two checkpoints: as many as fit in a metadata block. Twice as many whenever
/// there are too many checkpoints.
const STRIDE: u64 = 2048;
/// Number of checkpoints kept for a file: enough for 8 TiB of blocks of the usual size at the
/// smallest distance.
const CHECKPOINTS_MAX: usize = 1 << 15;

/// The lists of size words that have been seen, as far as they fill a metadata block. Lists of a
/// sound image do not overlap; those of a hostile one could, so that a small table shows petabytes
/// of holes many times.
#[derive(Default)]
pub(crate) struct BlockLists(Mutex<(HashSet<u64>, u64)>);

impl BlockLists {
    /// Notes the number of blocks of a file.
    pub(crate) fn note(&self, image: &Image, inode: u64, blocks: u64) -> Result<()> {
        if blocks < STRIDE {
            return Ok(());
        }
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (seen, words) = &mut *lists;
        if !seen.contains(&inode) {
            let sum = words.saturating_add(blocks);
            if sum > words_max(image) {
                return Err(Error::corrupt(
                    "files have more blocks together than the inode table can hold",
                    image.superblock.inode_table,
                    blocks,
                ));
            }
            *words = sum;
            seen.insert(inode);
        }
        Ok(())
    }
}

/// The most size words that the inode table can hold: each metadata block takes at least three
/// stored bytes.
fn words_max(image: &Image) -> u64 {
    let superblock = &image.superblock;
    let stored = superblock
        .directory_table
        .saturating_sub(superblock.inode_table);
    let blocks = (stored / 3).saturating_add(1);
    blocks.saturating_mul(to_u64(METADATA_BYTES) / 4)
}

/// The data of one file.
pub(crate) struct FileBlocks {
    file: RegularFile,
    /// Number of size words.
    blocks: u64,
    known: Mutex<BlockPositions>,
}

/// Positions in the list of size words.
struct BlockPositions {
    /// The number of words from each checkpoint to the next.
    stride: u64,
    /// The first one is the beginning of the list.
    checkpoints: Vec<BlockPosition>,
    /// Where the last walk ended: the next one usually continues there.
    last: BlockPosition,
}

/// A position in the list of size words.
#[derive(Clone, Copy)]
struct BlockPosition {
    /// Index of the block.
    index: u64,
    /// Position of its size word in the inode table.
    list: MetadataPosition,
    /// Position of its data in the image.
    at: u64,
}

/// Blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockSpan {
    /// This many blocks of holes: nothing is stored.
    Holes(u64),
    /// Data stored in the image.
    Stored { at: u64, size: StoredSize },
}

impl BlockSpan {
    /// The number of blocks.
    pub(crate) fn count(&self) -> u64 {
        match self {
            BlockSpan::Holes(count) => *count,
            BlockSpan::Stored { .. } => 1,
        }
    }
}

/// A tail in a fragment block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TailPart {
    /// The place of the fragment block.
    pub(crate) at: u64,
    pub(crate) size: StoredSize,
    /// Offset of the tail in the block's content.
    pub(crate) offset: u32,
    /// Length of the tail in bytes.
    pub(crate) len: u32,
}

impl FileBlocks {
    /// The data of `file`, whose size words start at `list`.
    pub(crate) fn new(
        image: &Image,
        file: RegularFile,
        list: MetadataPosition,
    ) -> Result<FileBlocks> {
        let superblock = &image.superblock;
        let blocks = file.block_count(superblock.block_bytes);
        if blocks > words_max(image) {
            return Err(Error::corrupt(
                "file has more blocks than the inode table can hold",
                superblock.inode_table,
                file.size,
            ));
        }
        let first = BlockPosition {
            index: 0,
            list,
            at: file.start,
        };
        Ok(FileBlocks {
            file,
            blocks,
            known: Mutex::new(BlockPositions {
                stride: STRIDE,
                checkpoints: vec![first],
                last: first,
            }),
        })
    }

    /// Length of the content in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.file.size
    }

    /// The fragment index and offset of the tail, from the inode.
    pub(crate) fn placed_tail(&self) -> Option<TailPosition> {
        self.file.tail
    }

    /// Number of blocks of the file, not counting a tail in a fragment.
    pub(crate) fn block_count(&self) -> u64 {
        self.blocks
    }

    /// The blocks in a range of indices, holes together, starting with the first one, until there
    /// are `entries_max`.
    pub(crate) fn blocks(
        &self,
        image: &Image,
        range: Range<u64>,
        entries_max: usize,
    ) -> Result<Vec<BlockSpan>> {
        let Range { start: from, end } = range;
        let end = end.min(self.blocks);
        let mut blocks: Vec<BlockSpan> = Vec::new();
        if from >= end {
            return Ok(blocks);
        }
        let (start, stride) = self.known().before(from);
        let mut walk = BlockListWalk {
            image,
            reader: MetadataReader::resume(image, image.superblock.directory_table, start.list)?,
            index: start.index,
            at: start.at,
        };
        while walk.index < end && blocks.len() < entries_max {
            // Stops at `from`, at the end, and wherever there may be a checkpoint.
            let limit = if walk.index < from { from } else { end };
            let stop = limit.min(next_multiple(walk.index, stride));
            while walk.index < stop && blocks.len() < entries_max {
                let is_wanted = walk.index >= from;
                let block = walk.next(stop)?;
                match (block, blocks.last_mut()) {
                    _ if !is_wanted => {}
                    (BlockSpan::Holes(more), Some(BlockSpan::Holes(count))) => {
                        *count = count.saturating_add(more);
                    }
                    _ => blocks.push(block),
                }
            }
            self.known().note(walk.position());
        }
        Ok(blocks)
    }

    fn known(&self) -> MutexGuard<'_, BlockPositions> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file's tail, if it is in a fragment.
    pub(crate) fn tail(
        &self,
        image: &Image,
        fragments: Option<&LookupTable<raw::FragmentEntry>>,
    ) -> Result<Option<TailPart>> {
        let Some(tail) = self.file.tail else {
            return Ok(None);
        };
        let block_bytes = image.superblock.block_bytes;
        let len = self.file.size.checked_rem(block_bytes.into());
        let len = len.and_then(|len| u32::try_from(len).ok()).unwrap_or(0);
        let corrupt = |what, got: u64| Error::corrupt(what, image.superblock.inode_table, got);
        let entry = fragments
            .map(|table| table.find(image, tail.fragment))
            .transpose()?
            .flatten();
        let Some(entry) = entry else {
            return Err(corrupt("fragment index is too large", tail.fragment.into()));
        };
        if tail
            .offset
            .checked_add(len)
            .is_none_or(|end| end > block_bytes)
        {
            return Err(corrupt(
                "tail does not fit in a fragment",
                tail.offset.into(),
            ));
        }
        let at = entry.start_block.get();
        let size = StoredSize::parse(entry.size.get(), block_bytes, at)?;
        if !image.holds_data(at, size) {
            return Err(corrupt("fragment lies where no data can be", at));
        }
        Ok(Some(TailPart {
            at,
            size,
            offset: tail.offset,
            len,
        }))
    }
}

impl BlockPositions {
    /// The nearest known position at or before the block of this index, and the number of blocks
    /// between checkpoints.
    fn before(&self, index: u64) -> (BlockPosition, u64) {
        let wanted = to_usize(index.checked_div(self.stride).unwrap_or(0));
        // The first one is always there.
        let checkpoint = self.checkpoints.get(wanted).or(self.checkpoints.last());
        let checkpoint = checkpoint.copied().unwrap_or(self.last);
        let is_last_nearer = (checkpoint.index..=index).contains(&self.last.index);
        let position = if is_last_nearer {
            self.last
        } else {
            checkpoint
        };
        (position, self.stride)
    }

    /// Remembers where a walk is.
    fn note(&mut self, position: BlockPosition) {
        self.last = position;
        if self.checkpoints.len() == CHECKPOINTS_MAX {
            // Every other one, and the first.
            let mut is_kept = false;
            self.checkpoints.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
            self.stride = self.stride.saturating_mul(2);
        }
        let next = to_u64(self.checkpoints.len()).saturating_mul(self.stride);
        if position.index == next {
            self.checkpoints.push(position);
        }
    }
}

/// The next multiple of `stride` above `index`.
fn next_multiple(index: u64, stride: u64) -> u64 {
    let above = index.saturating_add(1);
    above.checked_next_multiple_of(stride).unwrap_or(u64::MAX)
}

/// A walk along a list of size words.
struct BlockListWalk<'a> {
    image: &'a Image,
    reader: MetadataReader<'a>,
    index: u64,
    at: u64,
}

impl BlockListWalk<'_> {
    fn position(&self) -> BlockPosition {
        BlockPosition {
            index: self.index,
            list: self.reader.place(),
            at: self.at,
        }
    }

    /// The next block, or holes that end before the block of index `stop`.
    fn next(&mut self, stop: u64) -> Result<BlockSpan> {
        let holes = self.reader.skip_zeros(stop.saturating_sub(self.index));
        if holes > 0 {
            self.index = self.index.saturating_add(holes);
            return Ok(BlockSpan::Holes(holes));
        }
        let (image, reader) = (self.image, &mut self.reader);
        let word: zerocopy::little_endian::U32 = reader.record()?;
        self.index = self.index.saturating_add(1);
        if word == 0 {
            return Ok(BlockSpan::Holes(1));
        }
        let size = StoredSize::parse(word.get(), image.superblock.block_bytes, reader.at())?;
        let begin = self.at;
        if !image.holds_data(begin, size) {
            return Err(Error::corrupt(
                "file's block lies where no data can be",
                reader.at(),
                begin,
            ));
        }
        self.at = begin.saturating_add(size.bytes.into());
        Ok(BlockSpan::Stored { at: begin, size })
    }
}

impl TailPart {
    /// Reads part of the tail, starting at `offset`.
    pub(crate) fn read(&self, image: &Image, offset: usize, buf: &mut [u8]) -> Result<()> {
        let fragment: Arc<Vec<u8>> = image.block(self.at, self.size)?;
        let begin = to_usize(self.offset).saturating_add(offset);
        let part = fragment.get(begin..).and_then(|rest| rest.get(..buf.len()));
        let Some(part) = part else {
            return Err(Error::corrupt(
                "tail lies beyond its fragment's end",
                self.at,
                to_u64(fragment.len()),
            ));
        };
        buf.copy_from_slice(part);
        Ok(())
    }
}
