//! The image in progress: its input, and the bytes written so far.

use tree::{ImageSummary, Inventory, Lost, Output, Parallel, Result, WrittenChecksums};

use super::block::{BLOCK_BYTES, BLOCK_LOG2, block_number};
use super::options::{ErofsSummary, Options};

/// Bytes that are collected before they are written.
const BUFFER_BYTES: usize = 256 << 10;

/// An image in progress.
pub(crate) struct ImageWriter<'a> {
    pub(crate) inventory: &'a Inventory<'a>,
    pub(crate) options: &'a Options,
    pub(crate) parallel: Parallel,
    pub(crate) output: &'a mut Output,
    /// Position of the next byte in the image.
    pub(crate) at: u64,
    /// The checksums of the bytes behind the first block.
    pub(crate) written: WrittenChecksums,
    /// Files that are left out.
    pub(crate) lost: Lost,
    pub(crate) summary: ErofsSummary,
}

impl<'a> ImageWriter<'a> {
    pub(crate) fn new(
        inventory: &'a Inventory<'a>,
        options: &'a Options,
        parallel: Parallel,
        output: &'a mut Output,
    ) -> Self {
        ImageWriter {
            inventory,
            options,
            parallel,
            output,
            at: BLOCK_BYTES as u64,
            written: WrittenChecksums::new(),
            lost: Lost::default(),
            summary: ErofsSummary {
                image: ImageSummary {
                    files: inventory.file_count().into(),
                    content_bytes: inventory.content_bytes(),
                    ..ImageSummary::default()
                },
                ..ErofsSummary::default()
            },
        }
    }

    /// Appends to the image.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.output.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        self.written.add(bytes);
        Ok(())
    }

    pub(crate) fn put_zeros(&mut self, bytes: u64) -> Result<()> {
        const ZEROS: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
        let mut left = bytes as usize;
        while left > 0 {
            let len = left.min(ZEROS.len());
            self.put(&ZEROS[..len])?;
            left -= len;
        }
        Ok(())
    }

    /// Appends zeros up to the next block.
    pub(crate) fn align(&mut self) -> Result<()> {
        self.put_zeros(self.at.next_multiple_of(BLOCK_BYTES as u64) - self.at)
    }

    /// The number of the next block, once the image is aligned.
    pub(crate) fn block(&self) -> Result<u32> {
        block_number(self.at >> BLOCK_LOG2)
    }
}

/// Metadata on its way into the image.
pub(crate) struct MetaWriter<'w, 'a> {
    pub(crate) image: &'w mut ImageWriter<'a>,
    buffer: Vec<u8>,
}

impl<'w, 'a> MetaWriter<'w, 'a> {
    pub(crate) fn new(image: &'w mut ImageWriter<'a>) -> Self {
        MetaWriter {
            image,
            buffer: Vec::new(),
        }
    }

    /// Position of the next byte in the image.
    pub(crate) fn at(&self) -> u64 {
        self.image.at + self.buffer.len() as u64
    }

    /// Appends the bytes that `emit` adds to a buffer.
    pub(crate) fn put_with(&mut self, emit: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        emit(&mut self.buffer);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Appends zeros up to a position.
    pub(crate) fn pad_to(&mut self, at: u64) -> Result<()> {
        let zeros = (at - self.at()) as usize;
        let end = self.buffer.len() + zeros;
        self.put_with(|buffer| buffer.resize(end, 0))
    }

    pub(crate) fn flush(&mut self) -> Result<()> {
        self.image.put(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }
}
