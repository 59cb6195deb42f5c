//! The image in progress: its input, and the bytes written so far.

use tree::{ImageSummary, Inventory, Lost, Output, Parallel, Result, WrittenChecksums, ordered};

use super::block::{BLOCK_BYTES, BLOCK_LOG2, block_number};
use super::devices::{begin, tag_beneath};
use super::encode::UnitEncoder;
use super::options::{ErofsSummary, Options};
use super::unit::PlacedUnit;
use crate::superblock::SUPERBLOCK_AT;

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
            at: begin(&options.devices),
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

    /// Writes the first block, or as much of it as an image in the same file leaves.
    pub(crate) fn put_first_block(&mut self, block: &[u8; BLOCK_BYTES]) -> Result<()> {
        let from = match tag_beneath(&self.options.devices) {
            Some(_) => SUPERBLOCK_AT,
            None => 0,
        };
        Ok(self.output.write_all_at(&block[from as usize..], from)?)
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

    /// Appends zeros up to where the data of a file may begin.
    pub(crate) fn align_data(&mut self) -> Result<()> {
        let zeros = self.at.next_multiple_of(self.options.align_bytes.into()) - self.at;
        self.summary.padding_bytes += zeros;
        self.put_zeros(zeros)
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
    /// Bytes that are collected before they are written.
    buffer_bytes: usize,
    /// The file that holds it; `None` if it is in the image itself.
    file: Option<CompressedMetadata<'a>>,
}

/// A compressed file of metadata.
struct CompressedMetadata<'a> {
    encoder: UnitEncoder<'a>,
    /// Where its next unit begins in it.
    end: u64,
    units: Vec<PlacedUnit>,
}

impl<'w, 'a> MetaWriter<'w, 'a> {
    pub(crate) fn new(image: &'w mut ImageWriter<'a>) -> Self {
        MetaWriter {
            image,
            buffer: Vec::new(),
            buffer_bytes: BUFFER_BYTES,
            file: None,
        }
    }

    /// Writes metadata to a compressed file, beginning at `from` in it.
    pub(crate) fn in_file(image: &'w mut ImageWriter<'a>, from: u64) -> Self {
        let options = image.options;
        MetaWriter {
            buffer: Vec::new(),
            // Enough for all threads.
            buffer_bytes: options.metadata_unit() * image.parallel.jobs_max(),
            file: Some(CompressedMetadata {
                encoder: UnitEncoder::new(image.inventory, options, None, None),
                end: from,
                units: Vec::new(),
            }),
            image,
        }
    }

    /// Position of the next byte in the image, or in the file.
    pub(crate) fn at(&self) -> u64 {
        let end = self.file.as_ref().map_or(self.image.at, |file| file.end);
        end + self.buffer.len() as u64
    }

    /// Appends the bytes that `emit` adds to a buffer.
    pub(crate) fn put_with(&mut self, emit: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        emit(&mut self.buffer);
        if self.buffer.len() >= self.buffer_bytes {
            self.flush(false)?;
        }
        Ok(())
    }

    /// Appends zeros up to a position.
    pub(crate) fn pad_to(&mut self, at: u64) -> Result<()> {
        let zeros = (at - self.at()) as usize;
        let end = self.buffer.len() + zeros;
        self.put_with(|buffer| buffer.resize(end, 0))
    }

    /// Writes everything, and returns the units of the file.
    pub(crate) fn finish(mut self) -> Result<Vec<PlacedUnit>> {
        self.flush(true)?;
        Ok(self.file.map(|file| file.units).unwrap_or_default())
    }

    /// Writes the collected bytes: of a file, whole units, unless it is the end.
    fn flush(&mut self, is_end: bool) -> Result<()> {
        let image = &mut *self.image;
        let Some(file) = &mut self.file else {
            image.put(&self.buffer)?;
            self.buffer.clear();
            return Ok(());
        };
        let unit = image.options.metadata_unit();
        let past = if is_end { 0 } else { self.buffer.len() % unit };
        let whole = self.buffer.len() - past;
        let CompressedMetadata {
            encoder,
            end,
            units,
        } = file;
        ordered(
            image.parallel,
            self.buffer[..whole].chunks(unit),
            || encoder.worker(),
            |worker, metadata| encoder.encode_metadata(worker, metadata),
            |stored| {
                let (len, kind) = (stored.len as u32, stored.kind());
                units.push(PlacedUnit::in_records(*end, image.at, len, kind));
                *end += stored.content_len as u64;
                image.put(&stored.buffer[..stored.len])?;
                encoder.content.recycle(stored.buffer);
                Ok(())
            },
        )?;
        self.buffer.drain(..whole);
        Ok(())
    }
}
