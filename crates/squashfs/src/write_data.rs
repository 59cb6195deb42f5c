//! Data and fragment blocks: encoded on all threads, written in the order of the plan.

use std::cell::RefCell;

use tree::{
    ChecksumsMark, ContentReader, Error, FileId, KeptCount, PartReader, Progress, Result,
    StoredRecord, ordered, ordered_on_demand,
};
use zerocopy::FromZeros;

use crate::encode::{BlockEncoder, BlockResult, EncodedBlock};
use crate::gather::Gather;
use crate::image_writer::ImageWriter;
use crate::part::stored_len;
use crate::plan::{BlockJob, DataLayout};
use crate::raw::{self, BLOCK_PLAIN};
use crate::reuse::OldBlocks;
use crate::superblock::SUPERBLOCK_BYTES;

/// The end of the image before a file's data was written.
struct DataMark {
    file: FileId,
    at: u64,
    written: ChecksumsMark,
    files: usize,
    words: usize,
    plain_blocks: u64,
    kept: KeptCount,
    reused: u64,
    encoded: u64,
}

/// The places of all data.
pub(crate) struct PlacedData {
    /// Files that have blocks: in the order in which they are stored, then by their numbers.
    files: Vec<(FileId, PlacedFile)>,
    /// The size words of the blocks.
    words: Vec<u32>,
    pub(crate) fragments: Vec<raw::FragmentEntry>,
}

impl PlacedData {
    /// No data, and room for this many fragment blocks.
    pub(crate) fn new(fragment_count: usize) -> PlacedData {
        PlacedData {
            files: Vec::new(),
            words: Vec::new(),
            fragments: vec![raw::FragmentEntry::new_zeroed(); fragment_count],
        }
    }

    /// Begins the blocks of a file, which start at this position.
    pub(crate) fn begin(&mut self, file: FileId, start: u64) {
        let placed = PlacedFile {
            start,
            sparse: 0,
            words: self.words.len(),
        };
        self.files.push((file, placed));
    }

    /// Appends blocks that are nothing but holes, of this many bytes together, to the file that was
    /// begun last.
    pub(crate) fn push_holes(&mut self, blocks: usize, bytes: u64) {
        self.words.extend(std::iter::repeat_n(0, blocks));
        if let Some((_, placed)) = self.files.last_mut() {
            placed.sparse += bytes;
        }
    }

    /// Appends a stored block.
    pub(crate) fn push(&mut self, word: u32) {
        self.words.push(word);
    }

    /// Sorts the files, so that they can be found.
    pub(crate) fn sort(&mut self) {
        self.files.sort_unstable_by_key(|(file, _)| *file);
    }

    /// The place of a file's blocks, once the files are sorted.
    pub(crate) fn placed(&self, file: FileId) -> PlacedFile {
        let found = self.files.binary_search_by_key(&file, |(file, _)| *file);
        found.map_or(PlacedFile::default(), |index| self.files[index].1)
    }

    /// The size words of this many blocks of a file.
    pub(crate) fn words(&self, placed: PlacedFile, count: usize) -> &[u32] {
        &self.words[placed.words..placed.words + count]
    }

    /// The table entry of a fragment block, which may be a new one.
    fn fragment(&mut self, number: u32) -> &mut raw::FragmentEntry {
        let index = number as usize;
        if self.fragments.len() <= index {
            self.fragments
                .resize_with(index + 1, raw::FragmentEntry::new_zeroed);
        }
        &mut self.fragments[index]
    }
}

/// The place of one file's data.
#[derive(Clone, Copy, Default)]
pub(crate) struct PlacedFile {
    pub(crate) start: u64,
    /// Bytes in holes.
    pub(crate) sparse: u64,
    /// Index of the file's first size word.
    words: usize,
}

impl ImageWriter<'_> {
    /// Encodes and writes the files' data, or keeps it as the old image has it.
    pub(crate) fn write_data(
        &mut self,
        plan: &DataLayout,
        old: Option<&OldBlocks<'_>>,
        progress: &dyn Progress,
    ) -> Result<PlacedData> {
        let inventory = self.inventory;
        let block_bytes = self.options.block_bytes as usize;
        let mut data = PlacedData::new(plan.fragment_count());
        let work = BlockEncoder {
            content: ContentReader::new(inventory, block_bytes, self.options.skip_unreadable),
            options: self.options,
            old,
        };
        let (mut mark, parallel) = (None, self.parallel);
        let take = |done: BlockResult| {
            let lost_in = |number| -> Vec<FileId> { plan.files_in(number).collect() };
            self.take_done(done, (&mut data, &mut mark), &lost_in, &work, progress)
        };
        ordered(
            parallel,
            plan.jobs(inventory),
            || work.worker(),
            |worker, job| work.work(worker, job),
            take,
        )?;
        self.finish_data(plan);
        data.sort();
        Ok(data)
    }

    /// Encodes and writes the files' data, and packs the tails of the plan's files.
    pub(crate) fn gather_data(
        &mut self,
        plan: &mut DataLayout,
        progress: &dyn Progress,
    ) -> Result<PlacedData> {
        let (inventory, options) = (self.inventory, self.options);
        let block_bytes = options.block_bytes as usize;
        let mut data = PlacedData::new(0);
        let work = BlockEncoder {
            content: ContentReader::new(inventory, block_bytes, false),
            options,
            old: None,
        };
        let mut mark = None;
        let gather = Gather::new(plan, options, &work.content, self.parallel);
        let gather = RefCell::new(gather);
        ordered_on_demand(
            self.parallel,
            || gather.borrow_mut().next(),
            || work.worker(),
            |worker, job| work.work(worker, job),
            |done| match done {
                BlockResult::Read(batch) => gather.borrow_mut().take(batch),
                done => {
                    let places = (&mut data, &mut mark);
                    self.take_done(done, places, &|_| Vec::new(), &work, progress)
                }
            },
        )?;
        self.summary.image.duplicates += gather.into_inner().duplicates;
        self.finish_data(plan);
        data.sort();
        Ok(data)
    }

    /// Writes the files' data, which others have encoded.
    pub(crate) fn join_data(
        &mut self,
        plan: &DataLayout,
        blocks: &mut PartReader<'_>,
        progress: &dyn Progress,
    ) -> Result<PlacedData> {
        let (inventory, options) = (self.inventory, self.options);
        let block_bytes = options.block_bytes as usize;
        let mut data = PlacedData::new(plan.fragment_count());
        let work = BlockEncoder {
            content: ContentReader::new(inventory, block_bytes, false),
            options,
            old: None,
        };
        let mut mark = None;
        let jobs = plan.jobs_in(inventory, 0..u64::MAX, false).map(|job| {
            const FEW: Error = Error::Inconsistent("the parts have too few blocks");
            let len = match &job {
                BlockJob::Block { len, .. } => Some(*len),
                BlockJob::Fragment { tails, .. } => {
                    let sizes = tails.iter().map(|&file| inventory.size(file));
                    Some(sizes.map(|size| size as usize % block_bytes).sum())
                }
                _ => None,
            };
            let stored = |word| stored_len(word, len).filter(|&len| len <= block_bytes);
            let record = blocks.next_record(stored)?;
            Ok::<_, Error>((job, len, record.ok_or(FEW)?))
        });
        // Blocks are read and compared with their checksums while others are written.
        let read = |(): &mut (), job: Result<(BlockJob, Option<usize>, StoredRecord)>| {
            let (job, content_bytes, record) = job?;
            let stored = match record.word() {
                0 => None,
                word => {
                    let mut buffer = work.content.buffer();
                    record.read(&mut buffer)?;
                    Some(EncodedBlock::of_word(word, buffer))
                }
            };
            const HOLE: Error = Error::Inconsistent("a part has a hole for a fragment block");
            let content_bytes = content_bytes.unwrap_or_default();
            let (number, len, files) = match job {
                BlockJob::Block { file, first, .. } => {
                    return Ok(BlockResult::Block {
                        file,
                        first,
                        len: content_bytes,
                        stored,
                    });
                }
                BlockJob::Fragment { number, tails } => (number, content_bytes, tails.len()),
                BlockJob::KeepFragment {
                    number, len, files, ..
                } => (number, len, files),
                _ => return Err(Error::Inconsistent("a plan without extents has other jobs")),
            };
            Ok(BlockResult::Fragment {
                number,
                stored: stored.ok_or(HOLE)?,
                len,
                files,
                lost: Vec::new(),
            })
        };
        let parallel = self.parallel;
        ordered(
            parallel,
            jobs,
            || (),
            read,
            |done| {
                let places = (&mut data, &mut mark);
                self.take_done(done, places, &|_| Vec::new(), &work, progress)
            },
        )?;
        if blocks.next_record(|_| Some(0))?.is_some() {
            return Err(Error::Inconsistent("the parts have too many blocks"));
        }
        self.finish_data(plan);
        data.sort();
        Ok(data)
    }

    fn finish_data(&mut self, plan: &DataLayout) {
        self.summary.image.data_bytes = self.at - SUPERBLOCK_BYTES as u64;
        for file in self.inventory.files() {
            self.lost.lose_with(file, plan.shown(file));
        }
    }

    /// Writes the result of a job. `lost_in` lists the files whose tails are in a fragment.
    fn take_done(
        &mut self,
        done: BlockResult,
        (data, mark): (&mut PlacedData, &mut Option<DataMark>),
        lost_in: &dyn Fn(u32) -> Vec<FileId>,
        work: &BlockEncoder<'_>,
        progress: &dyn Progress,
    ) -> Result<()> {
        if let BlockResult::Holes { file, first, .. } | BlockResult::Block { file, first, .. } =
            done
        {
            if first {
                *mark = Some(self.mark(data, file));
                self.align(Some(file))?;
                data.begin(file, self.at);
            } else if self.lost.has(file) {
                return Ok(());
            }
        }
        match done {
            BlockResult::Holes { bytes, .. } => {
                let blocks = bytes.div_ceil(self.options.block_bytes.into()) as usize;
                data.push_holes(blocks, bytes);
                progress.advance(0, bytes);
            }
            BlockResult::Block {
                first, len, stored, ..
            } => {
                if let Some(stored) = stored {
                    data.push(stored.word());
                    self.take(stored, work, progress)?;
                } else {
                    data.push_holes(1, len as u64);
                }
                progress.advance(u64::from(first), len as u64);
            }
            BlockResult::Unreadable { file, error } => {
                if let Some(before) = mark.take_if(|mark| mark.file == file) {
                    self.rewind(before, data);
                }
                self.lost.lose(file, error);
            }
            BlockResult::Fragment {
                number,
                stored,
                len,
                files,
                lost,
            } => {
                self.align(None)?;
                *data.fragment(number) = self.fragment_entry(stored.word());
                self.take(stored, work, progress)?;
                for (file, error) in lost {
                    self.lost.lose(file, error);
                }
                progress.advance(files as u64, len as u64);
            }
            BlockResult::Read(_) => {}
            BlockResult::LostFragment { number, error } => {
                // Its number must be that of an existing block.
                *data.fragment(number) = self.fragment_entry(1 | BLOCK_PLAIN);
                self.put(&[0])?;
                let mut error = Some(error);
                for file in lost_in(number) {
                    let again = Error::Unreadable("its tail cannot be read");
                    self.lost.lose(file, error.take().unwrap_or(again));
                }
            }
        }
        Ok(())
    }

    /// Appends a block.
    fn take(
        &mut self,
        stored: EncodedBlock,
        work: &BlockEncoder<'_>,
        progress: &dyn Progress,
    ) -> Result<()> {
        self.summary.plain_blocks += u64::from(stored.plain);
        self.summary.image.kept += stored.kept;
        self.summary.image.reused += u64::from(stored.reused);
        let is_encoded = !stored.reused && stored.kept.count == 0;
        self.summary.image.encoded += u64::from(is_encoded);
        self.put(&stored.buffer[..stored.len])?;
        progress.wrote(stored.len as u64);
        work.content.recycle(stored.buffer);
        Ok(())
    }

    /// The table entry of the next fragment block.
    fn fragment_entry(&self, word: u32) -> raw::FragmentEntry {
        raw::FragmentEntry {
            start_block: self.at.into(),
            size: word.into(),
            unused: 0.into(),
        }
    }

    fn mark(&self, data: &PlacedData, file: FileId) -> DataMark {
        DataMark {
            file,
            at: self.at,
            written: self.written.mark(),
            files: data.files.len(),
            words: data.words.len(),
            plain_blocks: self.summary.plain_blocks,
            kept: self.summary.image.kept,
            reused: self.summary.image.reused,
            encoded: self.summary.image.encoded,
        }
    }

    /// Takes back the data since the mark: the next data overwrites it.
    fn rewind(&mut self, mark: DataMark, data: &mut PlacedData) {
        self.at = mark.at;
        self.written.rewind(mark.written);
        data.files.truncate(mark.files);
        data.words.truncate(mark.words);
        self.summary.plain_blocks = mark.plain_blocks;
        self.summary.image.kept = mark.kept;
        self.summary.image.reused = mark.reused;
        self.summary.image.encoded = mark.encoded;
    }
}
