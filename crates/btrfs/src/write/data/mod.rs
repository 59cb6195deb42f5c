//! Writes file content to an image: cut into extents, compressed on all threads, placed in order.

mod area;
mod choice;
mod encode;
mod job;
mod jobs;
mod reserve;
mod reuse;
mod share;
mod trial;

use tree::{
    Duplicates, Error, FileId, Inventory, Lost, Output, Parallel, Progress, Result, ordered,
};

pub(crate) use area::{Area, ExtentSlice, FileContent};
use encode::{DataEncoder, EncodeWorker};
use job::{DataJob, DataResult, SmallContent, UnplacedExtent};
use jobs::jobs;
use reserve::ReservedSpace;
use reuse::OldData;
use share::Originals;
pub use trial::{ImageTrial, TrialPart, TrialResult, TrialWorker};

use crate::options::Options;
use crate::write::describe::FileDescriptions;
use crate::write::layout::SECTOR_BYTES;

/// Number of jobs in flight per thread. Text at a high level takes a hundred times as long as noise, and results after
/// a slow job have to wait.
const JOBS_PER_THREAD: usize = 16;
/// With more threads than this, each has four jobs in flight, of up to 128 KiB each.
const JOBS_MAX: usize = 128;

/// Encodes and writes the content of all files that are not already left out.
#[allow(clippy::too_many_arguments, reason = "each is a separate input")]
pub(crate) fn write<'a>(
    inventory: &Inventory,
    described: &FileDescriptions,
    duplicates: &Duplicates,
    lost: Lost,
    options: &Options,
    parallel: Parallel,
    progress: &dyn Progress,
    output: &'a Output,
) -> Result<Area<'a>> {
    let originals = Originals::new(inventory, duplicates);
    let mut work = DataEncoder::new(inventory, described, options);
    let old_differs = work.reuse(OldData::find(inventory, options, parallel));
    let lost_before = lost.files().collect();
    let mut sink = Sink {
        area: Area::new(inventory.file_count(), lost, options.checksum, output)?,
        work: &work,
        progress,
        numbered: Vec::new(),
        reserved: ReservedSpace::default(),
        open: None,
        worker: None,
    };
    let in_flight = JOBS_MAX.min(JOBS_PER_THREAD * parallel.threads());
    ordered(
        parallel.in_flight(in_flight.max(4 * parallel.threads())),
        jobs(inventory, &originals, &lost_before, options),
        || work.worker(),
        |worker, job| work.work(worker, job),
        |done| sink.take(done),
    )?;
    let mut area = sink.area;
    area.old_differs = old_differs;
    area.close();
    for file in inventory.files() {
        if let Some(original) = originals.of(file) {
            area.lost.lose_with(file, original);
            area.set_content(file, area.content(original));
        }
    }
    Ok(area)
}

/// Receives the results, in the order of the jobs.
struct Sink<'a, 'o> {
    area: Area<'o>,
    work: &'a DataEncoder<'a>,
    progress: &'a dyn Progress,
    /// For each part that files may share, its extent and its offset in it; `None` if it could not be read.
    numbered: Vec<Option<(u32, u32)>>,
    reserved: ReservedSpace,
    open: Option<UnfinishedFile>,
    /// For what has to be read again.
    worker: Option<EncodeWorker>,
}

/// A file whose parts are not complete yet.
struct UnfinishedFile {
    file: FileId,
    /// The state of the area before this file.
    before: area::AreaMark,
    /// The number of its first numbered part.
    numbered_from: usize,
    /// Why it will not be in the image.
    failed: Option<Error>,
}

impl Sink<'_, '_> {
    fn take(&mut self, done: DataResult) -> Result<()> {
        match done {
            DataResult::Small(files) => {
                for (file, small) in files {
                    self.progress
                        .advance(1, self.work.content.inventory().size(file));
                    match small {
                        Ok(small) => self.take_small(file, small)?,
                        Err(error) => self.area.lose(file, error),
                    }
                }
                Ok(())
            }
            DataResult::Piece {
                file,
                offset,
                len,
                is_numbered,
                piece,
            } => {
                self.progress.advance(0, len);
                let place = match piece {
                    Ok(piece) => self.take_piece(file, offset, len, piece)?,
                    Err(error) => {
                        self.open(file).failed.get_or_insert(error);
                        None
                    }
                };
                if is_numbered {
                    self.numbered.push(place);
                }
                Ok(())
            }
            DataResult::Shared {
                file,
                offset,
                len,
                number,
                skip,
            } => {
                let Some((extent, begin)) = self.numbered[number as usize] else {
                    return self.take_alone(file, offset, len);
                };
                self.progress.advance(0, len);
                let before = self.open(file).before;
                let part = ExtentSlice {
                    offset,
                    len: len.next_multiple_of(SECTOR_BYTES as u64),
                    extent,
                    skip: begin + skip,
                };
                self.area.show(&before, part);
                Ok(())
            }
            DataResult::Reserve {
                file,
                offset,
                len,
                id,
                at,
            } => {
                self.progress.advance(0, len);
                self.reserve(file, offset, len, (id, at))
            }
            DataResult::Same { file, original } => {
                self.progress
                    .advance(1, self.work.content.inventory().size(file));
                let content = self.area.content(original);
                self.area.set_content(file, content);
                self.area.lost.lose_with(file, original);
                Ok(())
            }
            DataResult::Unreadable { file, error } => {
                self.open(file).failed.get_or_insert(error);
                Ok(())
            }
            DataResult::End(file) => {
                self.progress.advance(1, 0);
                self.end(file)
            }
        }
    }

    /// The file that this result belongs to.
    fn open(&mut self, file: FileId) -> &mut UnfinishedFile {
        debug_assert!(self.open.as_ref().is_none_or(|open| open.file == file));
        let (area, numbered) = (&self.area, &self.numbered);
        self.open.get_or_insert_with(|| UnfinishedFile {
            file,
            before: area.mark(),
            numbered_from: numbered.len(),
            failed: None,
        })
    }

    /// Reads and stores a part whose bytes an earlier file shares that was left out: what could not be read may be another
    /// part of that file.
    fn take_alone(&mut self, file: FileId, offset: u64, len: u64) -> Result<()> {
        let work = self.work;
        let worker = self.worker.get_or_insert_with(|| work.worker());
        let job = DataJob::Piece {
            file,
            offset,
            len: len as usize,
            is_numbered: false,
        };
        let done = work.work(worker, job)?;
        self.take(done)
    }

    fn take_small(&mut self, file: FileId, small: SmallContent) -> Result<()> {
        let content = match small {
            SmallContent::Hole => FileContent::Hole,
            SmallContent::Reserved { id, at } => {
                self.reserve(file, 0, SECTOR_BYTES as u64, (id, at))?;
                return self.end(file);
            }
            SmallContent::Inline {
                bytes,
                compression,
                is_reused,
            } => self.area.add_inline(&bytes, compression, is_reused)?,
            SmallContent::Extent(piece) => {
                let before = self.area.mark();
                let extent = self.area.store(&piece)?;
                let part = ExtentSlice {
                    offset: 0,
                    len: piece.ram,
                    extent,
                    skip: 0,
                };
                self.area.show(&before, part);
                self.work.content.recycle(piece.buffer);
                self.area.content_since(&before)?
            }
        };
        self.area.set_content(file, content);
        Ok(())
    }

    /// Stores a part of a file and returns its extent and the offset in it.
    fn take_piece(
        &mut self,
        file: FileId,
        offset: u64,
        len: u64,
        piece: UnplacedExtent,
    ) -> Result<Option<(u32, u32)>> {
        let is_first = self.open.is_none();
        let open = self.open(file);
        let before = open.before;
        if open.failed.is_some() {
            self.recycle(piece);
            return Ok(None);
        }
        let grown = if is_first {
            None
        } else {
            self.area.grow(offset, &piece)?
        };
        let place = match grown {
            Some(place) => place,
            None => {
                let extent = self.area.store(&piece)?;
                let part = ExtentSlice {
                    offset,
                    len: len.next_multiple_of(SECTOR_BYTES as u64),
                    extent,
                    skip: piece.skip,
                };
                self.area.show(&before, part);
                (extent, 0)
            }
        };
        self.recycle(piece);
        Ok(Some(place))
    }

    fn recycle(&self, piece: UnplacedExtent) {
        if !piece.is_reserved {
            self.work.content.recycle(piece.buffer);
        }
    }

    fn end(&mut self, file: FileId) -> Result<()> {
        let Some(open) = self.open.take() else {
            return Ok(()); // nothing but a hole
        };
        match open.failed {
            None => {
                let content = self.area.content_since(&open.before)?;
                self.area.set_content(file, content);
            }
            Some(error) => {
                self.area.take_back(open.before);
                self.reserved.take_back(self.area.extent_count());
                self.numbered[open.numbered_from..].fill(None);
                self.area.lose(file, error);
            }
        }
        Ok(())
    }
}
