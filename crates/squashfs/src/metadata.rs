//! Metadata: a byte stream in blocks of 8 KiB, each stored compressed if that makes it smaller.
//!
//! A position in such a stream is a *reference*: where its block starts (in the table, as stored),
//! and an offset in the content of the block.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::sync::Arc;

use codec::Encoder;
use tree::{Error, Result, to_u64, to_usize};
use zerocopy::FromBytes;

use crate::image::{Image, MetadataBlock};
use crate::raw::{METADATA_BYTES, METADATA_PLAIN};
use crate::reference::MetadataRef;

/// Reads a table's stream, starting at a reference.
#[derive(Clone)]
pub(crate) struct MetadataReader<'a> {
    image: &'a Image,
    block: Arc<MetadataBlock>,
    /// Position of `block` in the image.
    block_at: u64,
    offset: usize,
    /// The end of the table in the image.
    end: u64,
}

/// The position of a [`MetadataReader`], without the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MetadataPosition {
    block_at: u64,
    offset: usize,
}

impl<'a> MetadataReader<'a> {
    /// Starts at a reference into the table that lies between `table` and `end`.
    pub(crate) fn new(image: &'a Image, table: u64, end: u64, from: MetadataRef) -> Result<Self> {
        let block_at = table.saturating_add(from.block());
        let place = MetadataPosition {
            block_at,
            offset: from.offset().into(),
        };
        let reader = Self::resume(image, end, place)?;
        // Only a reader that has just read a record can be at a block's end; Linux refuses
        // references there.
        if place.offset == reader.block.content.len() {
            return Err(Error::corrupt(
                "reference leads to the end of its metadata block",
                block_at,
                to_u64(place.offset),
            ));
        }
        Ok(reader)
    }

    /// Continues at a position in the table that ends at `end`.
    pub(crate) fn resume(image: &'a Image, end: u64, place: MetadataPosition) -> Result<Self> {
        let MetadataPosition { block_at, offset } = place;
        if block_at >= end {
            return Err(Error::corrupt(
                "reference lies beyond its table",
                block_at,
                end,
            ));
        }
        let block = image.metadata(block_at, end)?;
        if offset > block.content.len() {
            return Err(Error::corrupt(
                "reference lies beyond its metadata block",
                block_at,
                to_u64(offset),
            ));
        }
        Ok(MetadataReader {
            image,
            block,
            block_at,
            offset,
            end,
        })
    }

    /// Position of the next byte.
    pub(crate) fn place(&self) -> MetadataPosition {
        MetadataPosition {
            block_at: self.block_at,
            offset: self.offset,
        }
    }

    /// The reference of the next byte into the table that starts at `table`: after the last byte of
    /// a full block, the start of the next one.
    pub(crate) fn reference(&self, table: u64) -> MetadataRef {
        let (block_at, offset) = match self.offset {
            METADATA_BYTES => (self.block.next, 0),
            offset => (self.block_at, u16::try_from(offset).unwrap_or(u16::MAX)), // less than 8,192
        };
        MetadataRef::new(block_at.saturating_sub(table), offset)
    }

    /// Position in the image of the block that holds the next byte: the position that errors name.
    pub(crate) fn at(&self) -> u64 {
        self.block_at
    }

    fn advance(&mut self) -> Result<()> {
        if self.block.content.len() < METADATA_BYTES {
            return Err(Error::corrupt(
                "metadata continues after a block that is not full",
                self.block_at,
                to_u64(self.block.content.len()),
            ));
        }
        *self = Self::resume(
            self.image,
            self.end,
            MetadataPosition {
                block_at: self.block.next,
                offset: 0,
            },
        )?;
        Ok(())
    }

    /// Fills `buf`.
    pub(crate) fn read_exact(&mut self, mut buf: &mut [u8]) -> Result<()> {
        while !buf.is_empty() {
            if self.offset >= self.block.content.len() {
                self.advance()?;
            }
            let (_, rest) = self.block.content.split_at(self.offset);
            let len = rest.len().min(buf.len());
            let (now, later) = buf.split_at_mut(len);
            now.copy_from_slice(rest.split_at(len).0);
            self.offset = self.offset.saturating_add(len);
            buf = later;
        }
        Ok(())
    }

    /// Reads a record.
    pub(crate) fn record<T: FromBytes + zerocopy::IntoBytes>(&mut self) -> Result<T> {
        let rest = self.block.content.get(self.offset..).unwrap_or_default();
        if let Ok((record, _)) = T::read_from_prefix(rest) {
            self.offset = self.offset.saturating_add(size_of::<T>());
            return Ok(record);
        }
        let mut record = T::new_zeroed();
        self.read_exact(record.as_mut_bytes())?;
        Ok(record)
    }

    /// Skips zero words of 32 bits in the current block, at most `count`; returns how many.
    pub(crate) fn skip_zeros(&mut self, count: u64) -> u64 {
        let rest = self.block.content.get(self.offset..).unwrap_or(&[]);
        let is_zero = |part: &&[u8]| part.iter().fold(0, |any, byte| any | byte) == 0;
        // Most of a long list at once, then the rest of it word by word.
        let parts = rest.chunks_exact(64).take_while(is_zero).count();
        let skipped = parts.saturating_mul(16);
        let words = rest.chunks_exact(4).skip(skipped);
        let zeros = skipped.saturating_add(words.take_while(is_zero).count());
        let zeros = zeros.min(to_usize(count));
        self.offset = self.offset.saturating_add(zeros.saturating_mul(4));
        to_u64(zeros)
    }

    /// Reads `len` bytes. The caller must have bounded `len`.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

/// Writes a table's stream, block by block, into memory.
pub(crate) struct MetadataWriter {
    /// `None` stores every block uncompressed.
    encoder: Option<Encoder>,
    stored: Vec<u8>,
    /// The start of each block in `stored`.
    blocks: Vec<u64>,
    /// Content of the block that is not yet full.
    open: Vec<u8>,
}

#[expect(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::indexing_slicing,
    reason = "a writer: these numbers are its own"
)]
impl MetadataWriter {
    /// A writer that compresses with `encoder`, or not at all.
    pub(crate) fn new(encoder: Option<Encoder>) -> Self {
        MetadataWriter {
            encoder,
            stored: Vec::new(),
            blocks: Vec::new(),
            open: Vec::with_capacity(METADATA_BYTES),
        }
    }

    /// The reference of the next byte.
    pub(crate) fn reference(&self) -> MetadataRef {
        MetadataRef::new(to_u64(self.stored.len()), self.open.len() as u16)
    }

    /// How many bytes were written.
    pub(crate) fn content_bytes(&self) -> u64 {
        to_u64(self.blocks.len() * METADATA_BYTES + self.open.len())
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let len = (METADATA_BYTES - self.open.len()).min(bytes.len());
            let (now, later) = bytes.split_at(len);
            self.open.extend_from_slice(now);
            // A full block is stored at once, so that a reference never points past the end of a
            // block.
            if self.open.len() == METADATA_BYTES {
                self.store();
            }
            bytes = later;
        }
    }

    fn store(&mut self) {
        self.blocks.push(to_u64(self.stored.len()));
        let header_at = self.stored.len();
        self.stored.extend([0; 2]);
        let len = self.encoder.as_mut().and_then(|encoder| {
            let room = self.open.len() - 1;
            self.stored.resize(header_at + 2 + room, 0);
            encoder.compress(&mut self.stored[header_at + 2..], &self.open)
        });
        let header = match len {
            Some(len) => {
                self.stored.truncate(header_at + 2 + len);
                len as u16
            }
            None => {
                self.stored.truncate(header_at + 2);
                self.stored.extend_from_slice(&self.open);
                self.open.len() as u16 | METADATA_PLAIN
            }
        };
        self.stored[header_at..header_at + 2].copy_from_slice(&header.to_le_bytes());
        self.open.clear();
    }

    /// The table as it is stored, and the start of each block in it.
    pub(crate) fn finish(mut self) -> (Vec<u8>, Vec<u64>) {
        if !self.open.is_empty() {
            self.store();
        }
        (self.stored, self.blocks)
    }
}
