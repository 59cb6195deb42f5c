//! A regular file's data: a list of block sizes, and a tail in a fragment.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tree::{Corrupt, Error, Result};

use crate::image::{Image, StoredSize};
use crate::inode::{File, Tail};
use crate::lookup_table::Table;
use crate::metadata::{MetadataReader, Place};
use crate::raw::{self, METADATA_BYTES};

/// Size words between two checkpoints: as many as fit in a metadata block. Twice as many whenever there are too many
/// checkpoints.
const STRIDE: u64 = 2048;
/// Number of checkpoints kept for a file: enough for 8 TiB of blocks of the usual size at the smallest distance.
const CHECKPOINTS_MAX: usize = 1 << 15;

/// The lists of size words that have been seen, as far as they fill a metadata block. Lists of a sound image do not
/// overlap; those of a hostile one could, and show a small table as petabytes of holes again and again.
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
            if *words + blocks > words_max(image) {
                return Err(Corrupt {
                    what: "files have more blocks together than the inode table can hold",
                    at: image.superblock.inode_table,
                    got: blocks,
                }
                .into());
            }
            *words += blocks;
            seen.insert(inode);
        }
        Ok(())
    }
}

/// The most size words that the inode table can hold: each metadata block takes at least three stored bytes.
fn words_max(image: &Image) -> u64 {
    let superblock = &image.superblock;
    let stored = superblock.directory_table - superblock.inode_table;
    (stored / 3 + 1) * (METADATA_BYTES as u64 / 4)
}

/// The data of one file.
pub(crate) struct Content {
    file: File,
    /// Number of size words.
    blocks: u64,
    known: Mutex<Known>,
}

/// Positions in the list of size words.
struct Known {
    /// The number of words from each checkpoint to the next.
    stride: u64,
    /// The first one is the beginning of the list.
    checkpoints: Vec<Position>,
    /// Where the last walk ended: the next one usually goes on there.
    last: Position,
}

/// A position in the list of size words.
#[derive(Clone, Copy)]
struct Position {
    /// Index of the block.
    index: u64,
    /// Position of its size word in the inode table.
    list: Place,
    /// Position of its data in the image.
    at: u64,
}

/// Blocks of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// This many blocks of holes: nothing is stored.
    Holes(u64),
    /// Data stored in the image.
    Stored { at: u64, size: StoredSize },
}

impl Block {
    /// The number of blocks.
    pub(crate) fn count(&self) -> u64 {
        match self {
            Block::Holes(count) => *count,
            Block::Stored { .. } => 1,
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

impl Content {
    /// The data of `file`, whose size words start at `list`.
    pub(crate) fn new(image: &Image, file: File, list: Place) -> Result<Content> {
        let superblock = &image.superblock;
        let blocks = file.block_count(superblock.block_bytes);
        if blocks > words_max(image) {
            return Err(Corrupt {
                what: "file has more blocks than the inode table can hold",
                at: superblock.inode_table,
                got: file.size,
            }
            .into());
        }
        let first = Position {
            index: 0,
            list,
            at: file.start,
        };
        Ok(Content {
            file,
            blocks,
            known: Mutex::new(Known {
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
    pub(crate) fn placed_tail(&self) -> Option<Tail> {
        self.file.tail
    }

    /// Number of blocks of the file, not counting a tail in a fragment.
    pub(crate) fn block_count(&self) -> u64 {
        self.blocks
    }

    /// The blocks in a range of indices, holes together, starting with the first one, until there are `entries_max`.
    pub(crate) fn blocks(
        &self,
        image: &Image,
        range: Range<u64>,
        entries_max: usize,
    ) -> Result<Vec<Block>> {
        let Range { start: from, end } = range;
        let end = end.min(self.blocks);
        let mut blocks: Vec<Block> = Vec::new();
        if from >= end {
            return Ok(blocks);
        }
        let (start, stride) = self.known().before(from);
        let mut walk = Walk {
            image,
            reader: MetadataReader::resume(image, image.superblock.directory_table, start.list)?,
            index: start.index,
            at: start.at,
        };
        while walk.index < end && blocks.len() < entries_max {
            // Stops at `from`, at the end, and wherever there may be a checkpoint.
            let limit = if walk.index < from { from } else { end };
            let stop = limit.min((walk.index / stride + 1) * stride);
            while walk.index < stop && blocks.len() < entries_max {
                let is_wanted = walk.index >= from;
                let block = walk.next(stop)?;
                match (block, blocks.last_mut()) {
                    _ if !is_wanted => {}
                    (Block::Holes(more), Some(Block::Holes(count))) => *count += more,
                    _ => blocks.push(block),
                }
            }
            self.known().note(walk.position());
        }
        Ok(blocks)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file's tail, if it is in a fragment.
    pub(crate) fn tail(
        &self,
        image: &Image,
        fragments: Option<&Table<raw::FragmentEntry>>,
    ) -> Result<Option<TailPart>> {
        let Some(tail) = self.file.tail else {
            return Ok(None);
        };
        let block_bytes = image.superblock.block_bytes;
        let len = (self.file.size % u64::from(block_bytes)) as u32;
        let corrupt = |what, got: u64| {
            Error::Corrupt(Corrupt {
                what,
                at: image.superblock.inode_table,
                got,
            })
        };
        let entry = fragments
            .map(|table| table.find(image, tail.fragment))
            .transpose()?
            .flatten();
        let Some(entry) = entry else {
            return Err(corrupt("fragment index is too large", tail.fragment.into()));
        };
        if u64::from(tail.offset) + u64::from(len) > block_bytes.into() {
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

impl Known {
    /// The nearest known position at or before the block of this index, and the number of blocks between checkpoints.
    fn before(&self, index: u64) -> (Position, u64) {
        let wanted = (index / self.stride).min(self.checkpoints.len() as u64 - 1);
        let checkpoint = self.checkpoints[wanted as usize];
        let is_last_nearer = (checkpoint.index..=index).contains(&self.last.index);
        let position = if is_last_nearer {
            self.last
        } else {
            checkpoint
        };
        (position, self.stride)
    }

    /// Remembers where a walk is.
    fn note(&mut self, position: Position) {
        self.last = position;
        if self.checkpoints.len() == CHECKPOINTS_MAX {
            let mut number = 0;
            self.checkpoints.retain(|_| {
                number += 1;
                number % 2 == 1
            });
            self.stride *= 2;
        }
        if position.index == self.checkpoints.len() as u64 * self.stride {
            self.checkpoints.push(position);
        }
    }
}

/// A walk along a list of size words.
struct Walk<'a> {
    image: &'a Image,
    reader: MetadataReader<'a>,
    index: u64,
    at: u64,
}

impl Walk<'_> {
    fn position(&self) -> Position {
        Position {
            index: self.index,
            list: self.reader.place(),
            at: self.at,
        }
    }

    /// The next block, or holes that end before the block of index `stop`.
    fn next(&mut self, stop: u64) -> Result<Block> {
        let holes = self.reader.skip_zeros(stop - self.index);
        if holes > 0 {
            self.index += holes;
            return Ok(Block::Holes(holes));
        }
        let (image, reader) = (self.image, &mut self.reader);
        let word: zerocopy::little_endian::U32 = reader.record()?;
        self.index += 1;
        if word == 0 {
            return Ok(Block::Holes(1));
        }
        let size = StoredSize::parse(word.get(), image.superblock.block_bytes, reader.at())?;
        let begin = self.at;
        if !image.holds_data(begin, size) {
            return Err(Corrupt {
                what: "file's block lies where no data can be",
                at: reader.at(),
                got: begin,
            }
            .into());
        }
        self.at = begin + u64::from(size.bytes);
        Ok(Block::Stored { at: begin, size })
    }
}

impl TailPart {
    /// Reads part of the tail, starting at `offset`.
    pub(crate) fn read(&self, image: &Image, offset: usize, buf: &mut [u8]) -> Result<()> {
        let fragment: Arc<Vec<u8>> = image.block(self.at, self.size)?;
        let begin = self.offset as usize + offset;
        let Some(part) = fragment.get(begin..begin + buf.len()) else {
            return Err(Corrupt {
                what: "tail lies behind its fragment's end",
                at: self.at,
                got: fragment.len() as u64,
            }
            .into());
        };
        buf.copy_from_slice(part);
        Ok(())
    }
}
