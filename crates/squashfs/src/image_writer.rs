//! The image in progress: its input, and the bytes written so far.

use codec::{Algorithm, Encoder, Settings};
use tree::{FileId, ImageSummary, Inventory, Lost, Output, Parallel, Result, WrittenChecksums};

use crate::code_filter;
use crate::compressor::Compressor;
use crate::metadata::MetadataWriter;
use crate::options::{CreateSummary, Options};
use crate::raw::{self, METADATA_PLAIN};
use crate::superblock::{SUPERBLOCK_BYTES, Superblock};

/// An image in progress.
pub(crate) struct ImageWriter<'a> {
    pub(crate) inventory: &'a Inventory<'a>,
    pub(crate) options: &'a Options,
    pub(crate) parallel: Parallel,
    pub(crate) output: &'a mut Output,
    pub(crate) algorithm: Algorithm,
    /// Position of the next byte in the image.
    pub(crate) at: u64,
    /// The checksums of the bytes written so far.
    pub(crate) written: WrittenChecksums,
    /// Files that are left out.
    pub(crate) lost: Lost,
    pub(crate) summary: CreateSummary,
}

impl<'a> ImageWriter<'a> {
    pub(crate) fn new(
        inventory: &'a Inventory<'a>,
        options: &'a Options,
        parallel: Parallel,
        output: &'a mut Output,
    ) -> Result<Self> {
        let mut writer = ImageWriter {
            inventory,
            options,
            parallel,
            output,
            algorithm: options
                .compression
                .map_or(Algorithm::Zlib, |settings| settings.algorithm()),
            at: SUPERBLOCK_BYTES as u64,
            written: WrittenChecksums::new(),
            lost: Lost::default(),
            summary: CreateSummary {
                image: ImageSummary {
                    files: inventory.file_count().into(),
                    content_bytes: inventory.content_bytes(),
                    ..ImageSummary::default()
                },
                ..CreateSummary::default()
            },
        };
        if let Some(record) = writer.options_record() {
            let header = record.len() as u16 | METADATA_PLAIN;
            writer.put(&header.to_le_bytes())?;
            writer.put(&record)?;
        }
        writer.put_zeros(options.data_begin.saturating_sub(writer.at))?;
        Ok(writer)
    }

    pub(crate) fn options_record(&self) -> Option<Vec<u8>> {
        let mut settings = self.options.compression?;
        if let Settings::Xz { filters, .. } = &mut settings
            && self.options.filter_code
        {
            *filters = code_filter::FILTERS;
        }
        Compressor::of(&settings).emit(self.options.block_bytes)
    }

    /// Appends to the image.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.output
            .write_all_at(bytes, self.options.offset + self.at)?;
        self.at += bytes.len() as u64;
        if self.options.verify.decodes_encoded() {
            self.written.add(bytes);
        }
        Ok(())
    }

    /// The first position starting at `at` where the data of a file or a fragment block may begin.
    pub(crate) fn aligned(&self, at: u64) -> u64 {
        let offset = self.options.offset;
        (offset + at).next_multiple_of(self.options.align_bytes.into()) - offset
    }

    /// Appends zeros, so that the data of a file or a fragment block can begin.
    pub(crate) fn align(&mut self, file: Option<FileId>) -> Result<()> {
        let packing = file.and_then(|file| self.options.packing.get(&file));
        let align_bytes = packing.and_then(|packing| packing.align_bytes).unwrap_or(1);
        let at = self.at.next_multiple_of(align_bytes.into());
        self.put_zeros(self.aligned(at) - self.at)
    }

    fn put_zeros(&mut self, bytes: u64) -> Result<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        let mut left = bytes as usize;
        while left > 0 {
            let len = left.min(ZEROS.len());
            self.put(&ZEROS[..len])?;
            left -= len;
        }
        Ok(())
    }

    fn encoder(&self) -> Option<Encoder> {
        let mut settings = self.options.compression?;
        if let Settings::Xz {
            dictionary_bytes,
            filters,
            ..
        } = &mut settings
        {
            *dictionary_bytes = raw::METADATA_BYTES as u32;
            *filters = codec::Filters(0);
        }
        Encoder::new(&settings).ok()
    }

    /// A writer of a table that is stored uncompressed with any of these flags.
    pub(crate) fn metadata_writer(&self, flag: u16) -> MetadataWriter {
        let is_plain = self.options.plain & flag != 0;
        MetadataWriter::new(self.encoder().filter(|_| !is_plain))
    }

    pub(crate) fn path(&self, file: FileId) -> Vec<u8> {
        self.inventory.path(self.inventory.first_name(file))
    }

    /// Pads the image and writes the superblock.
    pub(crate) fn finish(&mut self, superblock: Superblock) -> Result<()> {
        let bytes_used = self.at;
        if self.options.padding {
            let pad_bytes = u64::from(self.options.pad_bytes.max(1));
            self.put_zeros(bytes_used.next_multiple_of(pad_bytes) - bytes_used)?;
        }
        // Data that was taken back may have reached further.
        self.output.set_len(self.options.offset + self.at)?;
        self.output
            .write_all_at(&superblock.emit(), self.options.offset)?;
        self.summary.image.image_bytes = self.at;
        self.summary.used_bytes = bytes_used;
        Ok(())
    }
}
