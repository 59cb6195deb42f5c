//! The list of jobs, in the order of file IDs: small files in batches, other files part by part.

use std::collections::BTreeSet;
use std::ops::Range;

use tree::{Encoding, Extent, ExtentId, ExtentKind, Extents, FileId, Inventory, Result};

use super::job::{DataJob, FileStep, PIECE_BYTES};
use super::part::is_stored;
use super::share::{
    ExtentClass, NumberedParts, Originals, PartLookup, SharedExtents, is_nocow, is_on_sectors,
    reserved,
};
use crate::disk::compression::{Compression, EXTENT_BYTES_MAX};
use crate::options::Options;
use crate::write::layout::SECTOR_BYTES;

/// Number of small files in one job.
const BATCH: usize = 32;
const SECTOR: u64 = SECTOR_BYTES as u64;

/// An iterator over the jobs of a share of the content of all stored files; the jobs of a file are
/// consecutive.
pub(super) fn jobs<'a>(
    inventory: &'a Inventory<'a>,
    originals: &'a Originals<'a>,
    lost: &'a BTreeSet<FileId>,
    options: &Options,
    share: Range<u64>,
) -> impl Iterator<Item = DataJob> + 'a {
    let stored_extents = inventory.tree().storage().stored_extents;
    DataJobs {
        inventory,
        originals,
        lost,
        keep: options.keep_extents && stored_extents,
        shown: if stored_extents {
            SharedExtents::of(inventory, originals)
        } else {
            SharedExtents::default()
        },
        numbers: stored_extents,
        share,
        at: 0,
        next: 0,
        small: Vec::new(),
        known: NumberedParts::default(),
        open: None,
    }
}

struct DataJobs<'a> {
    inventory: &'a Inventory<'a>,
    originals: &'a Originals<'a>,
    /// Files that are left out.
    lost: &'a BTreeSet<FileId>,
    /// Whether compressed extents are copied as they are.
    keep: bool,
    shown: SharedExtents,
    /// Whether pieces get numbers, for which every file is looked at.
    numbers: bool,
    share: Range<u64>,
    /// Bytes of the stored files before the next one.
    at: u64,
    /// The next file.
    next: u32,
    small: Vec<FileId>,
    known: NumberedParts,
    open: Option<FileCutter<'a>>,
}

/// Position in one file's data.
struct FileCutter<'a> {
    file: FileId,
    /// Bytes of the stored files before it.
    at: u64,
    size: u64,
    is_nocow: bool,
    extents: Extents<'a>,
    /// The run being cut: it ends at a sector boundary or after the end of the file.
    run: DataRun,
}

/// A run of data without holes.
#[derive(Clone, Copy, Default)]
struct DataRun {
    offset: u64,
    end: u64,
    /// The stored bytes it refers to, and its offset in them, if other files may refer to them too.
    shown: Option<(ExtentId, ExtentClass, u64)>,
}

/// The place this many bytes behind another one. Files can claim more than there are numbers;
/// places are before `u64::MAX`, the end of the last share.
fn place(at: u64, bytes: u64) -> u64 {
    at.saturating_add(bytes).min(u64::MAX - 1)
}

impl Iterator for DataJobs<'_> {
    type Item = DataJob;

    fn next(&mut self) -> Option<DataJob> {
        loop {
            if self.at >= self.share.end && self.open.is_none() {
                return None;
            }
            let (at, job) = self.next_anywhere()?;
            if self.share.contains(&at) {
                return Some(job);
            }
        }
    }
}

impl DataJobs<'_> {
    /// The next job, and its place in the content of all stored files. Files outside of the share
    /// can be left out.
    fn next_anywhere(&mut self) -> Option<(u64, DataJob)> {
        loop {
            if let Some(mut parts) = self.open.take() {
                let job = match parts.next(self) {
                    Ok(Some(job)) => job,
                    Ok(None) => {
                        let last = place(parts.at, self.inventory.size(parts.file) - 1);
                        return Some((last, DataJob::Pass(FileStep::End(parts.file))));
                    }
                    Err(error) => {
                        let file = parts.file;
                        // The file ends here.
                        parts.size = 0;
                        parts.extents =
                            Extents::new(self.inventory.tree(), self.inventory.ino(file), 0);
                        parts.run = DataRun::default();
                        DataJob::Pass(FileStep::Unreadable { file, error })
                    }
                };
                let at = place(parts.at, job.offset());
                self.open = Some(parts);
                return Some((at, job));
            }
            if self.next == self.inventory.file_count() {
                let rest = std::mem::take(&mut self.small);
                return (!rest.is_empty()).then_some((self.at, DataJob::Small(rest)));
            }
            let file = FileId(self.next);
            if !is_stored(self.inventory, self.originals, file) || self.lost.contains(&file) {
                self.next += 1;
                continue;
            }
            let (at, size) = (self.at, self.inventory.size(file));
            if size < SECTOR || size == SECTOR && !self.is_shared(file) {
                if let Some(original) = self.same_small(file, size) {
                    // The part it refers to must come first.
                    if !self.small.is_empty() {
                        let small = std::mem::take(&mut self.small);
                        return Some((at, DataJob::Small(small)));
                    }
                    (self.next, self.at) = (self.next + 1, place(at, size));
                    return Some((at, DataJob::Pass(FileStep::Same { file, original })));
                }
                (self.next, self.at) = (self.next + 1, place(at, size));
                self.small.push(file);
                if self.small.len() == BATCH {
                    return Some((at, DataJob::Small(std::mem::take(&mut self.small))));
                }
                continue;
            }
            (self.next, self.at) = (self.next + 1, place(at, size));
            let is_outside = self.at <= self.share.start || at >= self.share.end;
            if is_outside && !self.numbers {
                continue;
            }
            self.open = Some(FileCutter {
                file,
                at,
                size,
                is_nocow: is_nocow(self.inventory, file),
                extents: self.inventory.extents(file),
                run: DataRun::default(),
            });
        }
    }

    /// Whether other files refer to some of this file's stored bytes.
    fn is_shared(&self, file: FileId) -> bool {
        if self.shown.shared.is_empty() {
            return false;
        }
        // The error comes up again when the file is read.
        let extents = self.inventory.tree().extents(self.inventory.ino(file), 0);
        extents.is_ok_and(|extents| {
            let mut ids = extents.iter().filter(|extent| extent.kind.has_data());
            ids.any(|extent| extent.id.is_some_and(|id| self.shown.shared.contains(&id)))
        })
    }

    /// The small file that refers to the same stored bytes.
    fn same_small(&mut self, file: FileId, size: u64) -> Option<FileId> {
        if self.shown.shared.is_empty() {
            return None;
        }
        // The error comes up again when the file is read.
        let extents = self
            .inventory
            .tree()
            .extents(self.inventory.ino(file), 0)
            .ok()?;
        let [extent] = extents.as_slice() else {
            return None;
        };
        let (at, is_encoded) = match extent.kind {
            ExtentKind::Plain { stored_offset } => (stored_offset, false),
            ExtentKind::Encoded(stored) => (stored.unencoded_offset, true),
            ExtentKind::Hole | ExtentKind::Preallocated { .. } => return None,
        };
        let class = ExtentClass {
            is_nocow: is_nocow(self.inventory, file),
            is_encoded,
        };
        let id = extent.id.filter(|id| self.shown.shared.contains(id))?;
        self.known.small(id, class, at, size, file)
    }
}

impl FileCutter<'_> {
    fn next(&mut self, jobs: &mut DataJobs<'_>) -> Result<Option<DataJob>> {
        if self.run.offset >= self.run.end.min(self.size)
            && let Some(kept) = self.next_run(jobs)?
        {
            return Ok(Some(kept));
        }
        let (offset, end) = (self.run.offset, self.run.end.min(self.size));
        if offset >= end {
            return Ok(None);
        }
        let mut len = end.min(offset - offset % PIECE_BYTES + PIECE_BYTES) - offset;
        let mut is_numbered = false;
        if let Some((id, class, at)) = self.run.shown {
            match jobs.known.find(id, class, at, end - offset) {
                PartLookup::Known { number, skip, len } => {
                    self.advance(len);
                    let file = self.file;
                    return Ok(Some(DataJob::Pass(FileStep::Shared {
                        file,
                        offset,
                        len,
                        number,
                        skip,
                    })));
                }
                PartLookup::New(new) => len = len.min(new),
            }
            is_numbered = jobs.known.add(id, class, at, len);
        }
        self.advance(len);
        Ok(Some(DataJob::Piece {
            file: self.file,
            offset,
            len: len as usize,
            is_numbered,
        }))
    }

    fn advance(&mut self, len: u64) {
        self.run.offset += len;
        if let Some((_, _, at)) = &mut self.run.shown {
            *at += len;
        }
    }

    /// Advances to the next data, or returns a compressed extent that needs no cutting; at the end
    /// of the file the run stays empty.
    fn next_run(&mut self, jobs: &mut DataJobs<'_>) -> Result<Option<DataJob>> {
        while self.run.end <= self.run.offset {
            let Some(extent) = self.extents.next()? else {
                return Ok(None);
            };
            if let Some((id, at)) = reserved(&extent)
                && extent.offset >= self.run.offset
            {
                self.run.offset = extent.end().next_multiple_of(SECTOR);
                self.run.end = self.run.offset;
                return Ok(Some(DataJob::Pass(FileStep::Reserve {
                    file: self.file,
                    offset: extent.offset,
                    len: self.run.end - extent.offset,
                    id,
                    at,
                })));
            }
            if !extent.kind.has_data() {
                continue;
            }
            if let Some(stored) = self.to_keep(jobs, &extent) {
                self.run.offset = extent.end().next_multiple_of(SECTOR);
                self.run.end = self.run.offset;
                return Ok(Some(self.keep(jobs, extent, stored)));
            }
            let end = extent.end();
            let offset = self.run.offset.max(extent.offset - extent.offset % SECTOR);
            self.run = DataRun {
                offset,
                end: end.next_multiple_of(SECTOR),
                shown: self.shown(jobs, &extent, offset),
            };
        }
        if self.run.shown.is_some() {
            return Ok(None);
        }
        // Data that follows without a hole belongs to the run.
        while let Some(extent) = self.extents.peek()?
            && extent.kind.has_data()
            && extent.offset <= self.run.end
            && self.to_keep(jobs, &extent).is_none()
            && self.shown(jobs, &extent, extent.offset).is_none()
        {
            self.run.end = self.run.end.max(extent.end().next_multiple_of(SECTOR));
            self.extents.next()?;
        }
        Ok(None)
    }

    /// The stored bytes that an extent refers to, starting at `offset` of the file, and the offset
    /// in their decoded data, if other files may refer to them.
    fn shown(
        &self,
        jobs: &DataJobs<'_>,
        extent: &Extent,
        offset: u64,
    ) -> Option<(ExtentId, ExtentClass, u64)> {
        let (begin, is_encoded) = match extent.kind {
            ExtentKind::Hole | ExtentKind::Preallocated { .. } => return None,
            ExtentKind::Plain { stored_offset } => (stored_offset, false),
            ExtentKind::Encoded(stored) => (stored.unencoded_offset, true),
        };
        let is_whole = extent.offset.is_multiple_of(SECTOR)
            && begin.is_multiple_of(SECTOR)
            && self.is_to_sector(extent);
        let id = extent
            .id
            .filter(|id| is_whole && jobs.shown.shared.contains(id))?;
        let class = ExtentClass {
            is_nocow: self.is_nocow,
            is_encoded,
        };
        let at = begin.checked_add(offset.checked_sub(extent.offset)?)?;
        Some((id, class, at))
    }

    /// Whether the extent ends at a sector boundary or with the file.
    fn is_to_sector(&self, extent: &Extent) -> bool {
        let end = extent.end();
        end.is_multiple_of(SECTOR) || end == self.size
    }

    /// How an extent is compressed, if it can be copied as it is.
    fn to_keep(&self, jobs: &DataJobs<'_>, extent: &Extent) -> Option<Encoding> {
        let ExtentKind::Encoded(stored) = extent.kind else {
            return None;
        };
        Compression::of(stored.algorithm, SECTOR_BYTES as u32)?;
        let Encoding {
            stored_len,
            unencoded_len,
            unencoded_offset,
            ..
        } = stored;
        if !jobs.keep
            || self.is_nocow
            || !is_on_sectors(extent, &stored, self.size)
            || extent.offset < self.run.offset
            || (extent.id).is_some_and(|id| jobs.shown.mostly_hidden.contains(&id))
        {
            return None;
        }
        let sectors = |bytes: u64| bytes.checked_next_multiple_of(SECTOR);
        let (stored_len, unencoded_len) = (sectors(stored_len)?, sectors(unencoded_len)?);
        let fits = stored_len < unencoded_len
            && unencoded_len <= EXTENT_BYTES_MAX
            && sectors(unencoded_offset.checked_add(extent.len)?)? <= unencoded_len;
        fits.then_some(stored)
    }

    fn keep(&self, jobs: &mut DataJobs<'_>, extent: Extent, stored: Encoding) -> DataJob {
        let file = self.file;
        let id = extent.id.filter(|id| jobs.shown.shared.contains(id));
        let known = id.map(|id| jobs.known.encoded(id, &stored));
        match known {
            Some(Ok(number)) => DataJob::Pass(FileStep::Shared {
                file,
                offset: extent.offset,
                len: extent.len,
                number,
                skip: stored.unencoded_offset as u32,
            }),
            known => DataJob::Keep {
                file,
                extent,
                stored,
                is_numbered: known == Some(Err(true)),
            },
        }
    }
}
