//! An image made from a tree of files.
//!
//! The data goes out first, block by block and in the order of the plan, while worker threads encode ahead. Then the
//! metadata, child before parent, so that every reference points at what already has its place; the superblock last.

use std::sync::Mutex;

use codec::{Algorithm, Encoder, Settings};
use tree::{
    Duplicates, Error, FileId, FileSystem, Inventory, Limits, Output, Parallel, Progress, Result,
    Time, ordered,
};
use zerocopy::FromZeros;

use crate::compressor::Compressor;
use crate::encode::{Done, Encoding, Stored};
use crate::index::nearest_seconds;
use crate::lost::{Lost, Numbers};
use crate::machine;
use crate::metadata::MetadataWriter;
use crate::options::{Options, Summary, check};
use crate::plan::Plan;
use crate::raw::{self, BLOCK_PLAIN, METADATA_PLAIN};
use crate::read::Squashfs;
use crate::superblock::{SUPERBLOCK_BYTES, Superblock};
use crate::verify::{self, Expected, Sums, SumsMark};

/// What an image's length is a multiple of, so that it can be a block device.
const PADDING_BYTES: u64 = 4096;

/// Makes an image of the tree `fs`, whose inventory this is. The same tree and options give the same bytes, whatever the
/// number of threads. The caller commits the output.
///
/// Times lose what is below a second, and all but the last change of content. Sockets and devices are stored.
///
/// # Errors
/// [`tree::Error::InvalidInput`] for options that no image can have; [`tree::Error::File`] when a file cannot be read, changes while
/// it is read, or is more than the format can hold; [`tree::Error::Limit`] for more than 65,535 different owners and groups;
/// [`tree::Error::Io`] when the output cannot be written, or does not hold what was written.
pub fn create(
    fs: &dyn FileSystem,
    inventory: &Inventory,
    options: &Options,
    parallel: Parallel,
    progress: &dyn Progress,
    output: &mut Output,
) -> Result<Summary> {
    check(options)?;
    progress.expect(
        Some(inventory.file_count().into()),
        Some(inventory.content_bytes()),
    );
    let mut writer = Writer::new(fs, inventory, options, parallel, output)?;
    let duplicates = match options.duplicates {
        true => match Duplicates::find(fs, inventory, parallel) {
            // Each file of its own is then met again, and listed.
            Err(_) if options.skip_unreadable => Duplicates::default(),
            found => found?,
        },
        false => Duplicates::default(),
    };
    writer.summary.duplicates = duplicates.len() as u64;
    let described = writer.describe()?;
    let plan = Plan::new(fs, inventory, &duplicates, options, &writer.lost)?;
    drop(duplicates);
    let data = writer.data(&plan, progress)?;
    writer.metadata(&plan, described, data)
}

/// An image under way.
pub(crate) struct Writer<'a> {
    pub(crate) fs: &'a dyn FileSystem,
    pub(crate) inventory: &'a Inventory,
    pub(crate) options: &'a Options,
    pub(crate) parallel: Parallel,
    output: &'a mut Output,
    pub(crate) algorithm: Algorithm,
    /// Where the next byte goes in the image.
    pub(crate) at: u64,
    /// The sums of what was written so far.
    written: Sums,
    /// Files that are left out.
    pub(crate) lost: Lost,
    pub(crate) summary: Summary,
}

/// Where the image ended before a file's data.
struct Mark {
    file: FileId,
    at: u64,
    written: SumsMark,
    words: usize,
}

/// Where the data is.
pub(crate) struct Data {
    pub(crate) files: Vec<Placed>,
    pub(crate) words: Vec<u32>,
    pub(crate) fragments: Vec<raw::FragmentEntry>,
}

/// Where the data of one file is.
#[derive(Clone, Copy, Default)]
pub(crate) struct Placed {
    pub(crate) start: u64,
    /// Bytes in holes.
    pub(crate) sparse: u64,
    /// Where the file's size words begin.
    pub(crate) words: usize,
}

impl<'a> Writer<'a> {
    fn new(
        fs: &'a dyn FileSystem,
        inventory: &'a Inventory,
        options: &'a Options,
        parallel: Parallel,
        output: &'a mut Output,
    ) -> Result<Self> {
        let mut writer = Writer {
            fs,
            inventory,
            options,
            parallel,
            output,
            algorithm: options
                .compression
                .map_or(Algorithm::Zlib, |settings| settings.algorithm()),
            at: SUPERBLOCK_BYTES as u64,
            written: Sums::new(),
            lost: Lost::default(),
            summary: Summary {
                files: inventory.file_count().into(),
                content_bytes: inventory.content_bytes(),
                ..Summary::default()
            },
        };
        if let Some(record) = writer.options_record() {
            let header = record.len() as u16 | METADATA_PLAIN;
            writer.put(&header.to_le_bytes())?;
            writer.put(&record)?;
        }
        Ok(writer)
    }

    pub(crate) fn options_record(&self) -> Option<Vec<u8>> {
        let mut settings = self.options.compression?;
        if let Settings::Xz { filters, .. } = &mut settings
            && self.options.filter_code
        {
            *filters = machine::FILTERS;
        }
        Compressor::of(&settings).emit(self.options.block_bytes)
    }

    /// Appends to the image.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.output
            .write_all_at(bytes, self.options.offset + self.at)?;
        self.at += bytes.len() as u64;
        if self.options.verify {
            self.written.add(bytes);
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

    pub(crate) fn metadata_writer(&self) -> MetadataWriter {
        MetadataWriter::new(self.encoder())
    }

    pub(crate) fn path(&self, file: FileId) -> Vec<u8> {
        self.inventory.path(self.inventory.first_name(file))
    }

    /// Encodes and writes the files' data.
    fn data(&mut self, plan: &Plan, progress: &dyn Progress) -> Result<Data> {
        let (fs, inventory) = (self.fs, self.inventory);
        let block_bytes = self.options.block_bytes as usize;
        let mut data = Data {
            files: vec![Placed::default(); inventory.file_count() as usize],
            words: Vec::new(),
            fragments: vec![raw::FragmentEntry::new_zeroed(); plan.fragment_count()],
        };
        let encoding = Encoding {
            fs,
            inventory,
            block_bytes,
            data: self.options.compression,
            fragments: self.options.compression,
            verify: self.options.verify,
            filter_code: self.options.filter_code,
            skip_unreadable: self.options.skip_unreadable,
            buffers: Mutex::default(),
        };
        let mut mark = None;
        ordered(
            self.parallel,
            plan.jobs(fs, inventory),
            || encoding.worker(),
            |worker, job| encoding.work(worker, job),
            |done| {
                if let Done::Holes { file, first, .. } | Done::Block { file, first, .. } = done {
                    if first {
                        mark = Some(self.mark(&data, file));
                        data.files[file.0 as usize] = Placed {
                            start: self.at,
                            sparse: 0,
                            words: data.words.len(),
                        };
                    } else if self.lost.has(file) {
                        return Ok(());
                    }
                }
                match done {
                    Done::Holes { file, bytes, .. } => {
                        let blocks = bytes.div_ceil(block_bytes as u64) as usize;
                        data.words.extend(std::iter::repeat_n(0, blocks));
                        data.files[file.0 as usize].sparse += bytes;
                        progress.advance(0, bytes);
                    }
                    Done::Block {
                        file,
                        first,
                        len,
                        stored,
                    } => {
                        if let Some(stored) = stored {
                            data.words.push(stored.word());
                            self.take(stored, &encoding, progress)?;
                        } else {
                            data.words.push(0);
                            data.files[file.0 as usize].sparse += len as u64;
                        }
                        progress.advance(u64::from(first), len as u64);
                    }
                    Done::Unreadable { file, error } => {
                        if let Some(before) = mark.take_if(|mark| mark.file == file) {
                            self.rewind(before, &mut data);
                        }
                        self.lost.lose(file, error);
                    }
                    Done::Fragment {
                        number,
                        stored,
                        len,
                        files,
                        lost,
                    } => {
                        data.fragments[number as usize] = self.fragment_entry(stored.word());
                        self.take(stored, &encoding, progress)?;
                        for (file, error) in lost {
                            self.lost.lose(file, error);
                        }
                        progress.advance(files as u64, len as u64);
                    }
                    Done::LostFragment { number, error } => {
                        // Its number must be that of some block.
                        data.fragments[number as usize] = self.fragment_entry(1 | BLOCK_PLAIN);
                        self.put(&[0])?;
                        let mut error = Some(error);
                        for file in plan.files_in(number) {
                            let again = Error::Unreadable("its tail cannot be read");
                            self.lost.lose(file, error.take().unwrap_or(again));
                        }
                    }
                }
                Ok(())
            },
        )?;
        self.summary.data_bytes = self.at - SUPERBLOCK_BYTES as u64;
        for (file, &shown) in inventory.files().zip(&plan.shows) {
            if file != shown && self.lost.has(shown) {
                let error = Error::Unreadable("its content cannot be read");
                self.lost.lose(file, error);
            }
        }
        Ok(data)
    }

    /// Appends a block.
    fn take(&mut self, stored: Stored, encoding: &Encoding, progress: &dyn Progress) -> Result<()> {
        self.summary.plain_blocks += u64::from(stored.plain);
        self.summary.kept_blocks += u64::from(stored.kept);
        self.put(&stored.buffer[..stored.len])?;
        progress.wrote(stored.len as u64);
        encoding.recycle(stored.buffer);
        Ok(())
    }

    /// The entry of a fragment block that comes next.
    fn fragment_entry(&self, word: u32) -> raw::FragmentEntry {
        raw::FragmentEntry {
            start_block: self.at.into(),
            size: word.into(),
            unused: 0.into(),
        }
    }

    fn mark(&self, data: &Data, file: FileId) -> Mark {
        Mark {
            file,
            at: self.at,
            written: self.written.mark(),
            words: data.words.len(),
        }
    }

    /// Takes back what was written since: the next data goes to its place.
    fn rewind(&mut self, mark: Mark, data: &mut Data) {
        self.at = mark.at;
        self.written.rewind(mark.written);
        data.words.truncate(mark.words);
    }

    /// Fills up, and writes the superblock.
    pub(crate) fn finish(&mut self, superblock: Superblock) -> Result<()> {
        let bytes_used = self.at;
        if self.options.padding {
            let zeros = [0; PADDING_BYTES as usize];
            let len = bytes_used.next_multiple_of(PADDING_BYTES) - bytes_used;
            self.put(&zeros[..len as usize])?;
        }
        self.output
            .write_all_at(&superblock.emit(), self.options.offset)?;
        self.summary.image_bytes = self.at;
        Ok(())
    }

    /// Reads everything back.
    pub(crate) fn verify(
        &self,
        plan: &Plan,
        sets: &[Option<u32>],
        data: &Data,
        numbers: &Numbers,
    ) -> Result<()> {
        let (inventory, block_bytes) = (self.inventory, self.options.block_bytes);
        let behind_superblock = self.options.offset + SUPERBLOCK_BYTES as u64;
        self.written
            .compare(&self.output.reader()?, behind_superblock, self.parallel)?;
        let limits = Limits::default();
        let image = Squashfs::open_at(self.output.reader()?, self.options.offset, &limits)?;
        let expected = Expected {
            fs: self.fs,
            inventory,
            numbers,
            metadata: &|file| {
                let mut metadata = inventory.metadata(file);
                let seconds = nearest_seconds(metadata.mtime);
                metadata.mtime = Time {
                    seconds: seconds.into(),
                    nanoseconds: 0,
                };
                metadata.nlink = inventory.name_count(file);
                metadata
            },
            has_xattrs: &|file| sets[file.0 as usize].is_some(),
            data: &|file| {
                let shown = plan.shows[file.0 as usize];
                let placed = data.files[shown.0 as usize];
                let tail = plan.places[shown.0 as usize];
                let blocks = plan
                    .blocks_len(inventory.size(file), shown)
                    .div_ceil(block_bytes.into());
                let words = &data.words[placed.words..placed.words + blocks as usize];
                (placed.start, words, tail)
            },
        };
        verify::tree(&image, &expected, self.parallel)
    }
}
