//! Places the results of the workers in the data area, in the order of the jobs.

use tree::{Error, ExtentId, FileId, Progress, Result};

use super::area::{Area, AreaMark, ExtentSlice, FileContent, PlainSource};
use super::encode::{DataEncoder, EncodeWorker};
use super::job::{DataJob, DataResult, FileStep, SmallContent, UnplacedExtent};
use super::reserve::{ReservedPart, ReservedSpace};
use super::share::Originals;
use crate::write::layout::SECTOR_BYTES;

/// Receives the results, in the order of the jobs.
pub(super) struct Sink<'a, 'o> {
    area: Area<'o>,
    work: &'a DataEncoder<'a>,
    progress: &'a dyn Progress,
    /// For each part that files may share, its extent and its offset in it; `None` if it could not
    /// be read.
    numbered: Vec<Option<(u32, u32)>>,
    reserved: ReservedSpace,
    open: Option<UnfinishedFile>,
    /// For parts that have to be read again.
    worker: Option<EncodeWorker>,
}

/// A file whose parts are not complete yet.
struct UnfinishedFile {
    file: FileId,
    /// The state of the area before this file.
    before: AreaMark,
    /// The number of its first numbered part.
    numbered_from: usize,
    /// Why it will not be in the image.
    failed: Option<Error>,
}

impl<'a, 'o> Sink<'a, 'o> {
    pub(super) fn new(
        area: Area<'o>,
        work: &'a DataEncoder<'a>,
        progress: &'a dyn Progress,
    ) -> Self {
        Sink {
            area,
            work,
            progress,
            numbered: Vec::new(),
            reserved: ReservedSpace::default(),
            open: None,
            worker: None,
        }
    }

    /// The area, once the results of all jobs are taken.
    pub(super) fn finish(self, originals: &Originals<'_>) -> Area<'o> {
        let mut area = self.area;
        for file in self.work.content.inventory().files() {
            if let Some(original) = originals.of(file) {
                area.lost.lose_with(file, original);
                area.set_content(file, area.content(original));
            }
        }
        area
    }

    pub(super) fn take(&mut self, result: DataResult) -> Result<()> {
        match result {
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
            DataResult::Pass(step) => self.step(step),
        }
    }

    fn step(&mut self, step: FileStep) -> Result<()> {
        match step {
            FileStep::Shared {
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
                self.refer(file, offset, len, (extent, begin + skip));
                Ok(())
            }
            FileStep::Reserve {
                file,
                offset,
                len,
                id,
                at,
            } => {
                self.progress.advance(0, len);
                self.reserve(file, offset, len, (id, at))
            }
            FileStep::Same { file, original } => {
                self.progress
                    .advance(1, self.work.content.inventory().size(file));
                let content = self.area.content(original);
                self.area.set_content(file, content);
                self.area.lost.lose_with(file, original);
                Ok(())
            }
            FileStep::Unreadable { file, error } => {
                self.open(file).failed.get_or_insert(error);
                Ok(())
            }
            FileStep::End(file) => {
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

    /// Adds a part to a file that refers to an extent, starting at this offset in it.
    fn refer(&mut self, file: FileId, offset: u64, len: u64, (extent, skip): (u32, u32)) {
        let before = self.open(file).before;
        let part = ExtentSlice {
            offset,
            len: len.next_multiple_of(SECTOR_BYTES as u64),
            extent,
            skip,
        };
        self.area.show(&before, part);
    }

    /// Reads and stores a part whose bytes an earlier file shares that was left out: the unreadable
    /// bytes may be in another part of that file.
    fn take_alone(&mut self, file: FileId, offset: u64, len: u64) -> Result<()> {
        let work = self.work;
        let worker = self.worker.get_or_insert_with(|| work.worker());
        let job = DataJob::Piece {
            file,
            offset,
            len: len as usize,
            is_numbered: false,
        };
        let result = work.work(worker, job)?;
        self.take(result)
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
                let extent = self.area.store(&piece, None)?;
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
        if open.failed.is_some() {
            self.recycle(piece);
            return Ok(None);
        }
        let source = self.source(file, offset, len, &piece);
        let grown = if is_first {
            None
        } else {
            self.area.grow(offset, &piece, source.as_ref())?
        };
        let place = match grown {
            Some(place) => place,
            None => {
                let extent = self.area.store(&piece, source.as_ref())?;
                self.refer(file, offset, len, (extent, piece.skip));
                (extent, 0)
            }
        };
        self.recycle(piece);
        Ok(Some(place))
    }

    /// The file that a part may share its data with.
    fn source(
        &self,
        file: FileId,
        offset: u64,
        len: u64,
        piece: &UnplacedExtent,
    ) -> Option<PlainSource<'a>> {
        let work = self.work;
        if !work.shares() || piece.compression != 0 || piece.is_reserved {
            return None;
        }
        let inventory = work.content.inventory();
        let host = inventory.tree().host_content(inventory.ino(file))?;
        Some(PlainSource {
            file: host,
            offset,
            len,
        })
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

    /// Adds a preallocated part to a file: space that other files have already, or new space.
    fn reserve(
        &mut self,
        file: FileId,
        mut offset: u64,
        len: u64,
        (id, mut at): (ExtentId, u64),
    ) -> Result<()> {
        let end = offset + len;
        while offset < end {
            let room = self.area.room();
            let (part, len) = self.reserved.next(id, at, end - offset, room)?;
            match part {
                ReservedPart::Shared(extent, skip) => self.refer(file, offset, len, (extent, skip)),
                ReservedPart::New { is_numbered } => {
                    let place =
                        self.take_piece(file, offset, len, UnplacedExtent::reserved(len))?;
                    if is_numbered {
                        self.reserved.place(place);
                    }
                }
            }
            (offset, at) = (offset + len, at + len);
        }
        Ok(())
    }
}
