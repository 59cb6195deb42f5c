//! A regular file's data: a list of block sizes, and a tail in a fragment.

use std::sync::{Arc, Mutex, PoisonError};

use tree::{Corrupt, Error, Result};

use crate::image::{Image, StoredSize};
use crate::inode::{File, Tail};
use crate::lookup_table::Table;
use crate::metadata::{MetadataReader, Place};
use crate::raw;

/// Size words between two checkpoints: as many as fit in a metadata block.
const STRIDE: u64 = 2048;
/// Number of checkpoints kept for a file: enough for 8 TiB of blocks of the usual size. Reads beyond that search from
/// the last one.
const CHECKPOINTS_MAX: u64 = 1 << 15;

/// The data of one file.
pub(crate) struct Content {
    file: File,
    /// Number of size words.
    blocks: u64,
    /// The positions of every [`STRIDE`]th size word, as far as they are known.
    checkpoints: Mutex<Vec<Checkpoint>>,
}

#[derive(Clone, Copy)]
struct Checkpoint {
    /// Position of the size word in the inode table.
    list: Place,
    /// Position of the block's data in the image.
    at: u64,
}

/// A block of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// A hole: nothing is stored.
    Hole,
    /// Data stored in the image.
    Stored { at: u64, size: StoredSize },
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
        // Each metadata block takes at least three stored bytes, so a list that cannot fit in the table is rejected at
        // once.
        let stored = superblock.directory_table - superblock.inode_table;
        if blocks / STRIDE > stored / 3 + 1 {
            return Err(Corrupt {
                what: "file has more blocks than the inode table can hold",
                at: superblock.inode_table,
                got: file.size,
            }
            .into());
        }
        let first = Checkpoint {
            list,
            at: file.start,
        };
        Ok(Content {
            file,
            blocks,
            checkpoints: Mutex::new(vec![first]),
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

    /// Up to `count` blocks, starting at index `from`.
    pub(crate) fn blocks(&self, image: &Image, from: u64, count: u64) -> Result<Vec<Block>> {
        let count = count.min(self.blocks.saturating_sub(from));
        if count == 0 {
            return Ok(Vec::new());
        }
        let (mut index, mut reader, mut at) = self.checkpoint_before(image, from)?;
        let mut blocks = Vec::with_capacity(count as usize);
        while index < from + count {
            let block = next_block(image, &mut reader, &mut at)?;
            if index >= from {
                blocks.push(block);
            }
            index += 1;
        }
        Ok(blocks)
    }

    /// The nearest known position at or before the size word of index `from`, in steps of [`STRIDE`].
    fn checkpoint_before<'a>(
        &self,
        image: &'a Image,
        from: u64,
    ) -> Result<(u64, MetadataReader<'a>, u64)> {
        let known = || {
            self.checkpoints
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let wanted = (from / STRIDE).min(CHECKPOINTS_MAX - 1);
        let (mut number, checkpoint) = {
            let known = known();
            let number = wanted.min(known.len() as u64 - 1);
            (number, known[number as usize])
        };
        let end = image.superblock.directory_table;
        let mut reader = MetadataReader::resume(image, end, checkpoint.list)?;
        let mut at = checkpoint.at;
        while number < wanted {
            for _ in 0..STRIDE {
                next_block(image, &mut reader, &mut at)?;
            }
            number += 1;
            let mut known = known();
            if known.len() as u64 == number {
                known.push(Checkpoint {
                    list: reader.place(),
                    at,
                });
            }
        }
        Ok((number * STRIDE, reader, at))
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

/// The block whose size word `reader` is at. Advances `at` past its data.
fn next_block(image: &Image, reader: &mut MetadataReader, at: &mut u64) -> Result<Block> {
    let word: zerocopy::little_endian::U32 = reader.record()?;
    if word == 0 {
        return Ok(Block::Hole);
    }
    let size = StoredSize::parse(word.get(), image.superblock.block_bytes, reader.at())?;
    let begin = *at;
    if !image.holds_data(begin, size) {
        return Err(Corrupt {
            what: "file's block lies where no data can be",
            at: reader.at(),
            got: begin,
        }
        .into());
    }
    *at = begin + u64::from(size.bytes);
    Ok(Block::Stored { at: begin, size })
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
