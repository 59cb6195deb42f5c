//! The parts of a file that hold data, found without reading its holes.

use std::ops::Range;

use super::{Extents, FileSystem, Ino};
use crate::{Error, Result};

/// Size of the blocks that data is looked at in.
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Files up to this size are read whole: asking where their data is costs as much.
pub(crate) const SMALL_BYTES: u64 = 64 << 10;

/// Adjacent extents are joined up to this length.
const RUN_BYTES_MAX: u64 = 64 << 20;

/// A cursor over the runs of blocks of a regular file that have stored data. Runs begin and end at
/// multiples of [`BLOCK_BYTES`] or with the file, and do not overlap.
pub(crate) struct DataRuns<'a> {
    /// `None` for a small file, which is one run.
    extents: Option<Extents<'a>>,
    size: u64,
    run: Range<u64>,
}

impl<'a> DataRuns<'a> {
    /// The runs of a file of `size` bytes.
    pub(crate) fn new(fs: &'a dyn FileSystem, file: Ino, size: u64) -> Self {
        let is_small = size <= SMALL_BYTES;
        DataRuns {
            extents: (!is_small).then(|| Extents::new(fs, file, size)),
            size,
            run: 0..if is_small { size } else { 0 },
        }
    }

    /// The first run that ends after `at`, which must not be less than in the call before; an empty
    /// one at the end of the file if there is none.
    ///
    /// # Errors
    /// As for [`Extents::next`].
    pub(crate) fn after(&mut self, at: u64) -> Result<Range<u64>> {
        while self.run.end <= at && self.run.start < self.size {
            self.run = self.next(self.run.end)?;
        }
        Ok(self.run.clone())
    }

    /// The next run, which begins at `from` or later.
    fn next(&mut self, from: u64) -> Result<Range<u64>> {
        let size = self.size;
        let Some(extents) = &mut self.extents else {
            return Ok(size..size);
        };
        let block_end = |at: u64| (at.next_multiple_of(BLOCK_BYTES)).min(size);
        while let Some(extent) = extents.next()? {
            let end = block_end(extent.end());
            if !extent.kind.has_data() || end <= from {
                continue;
            }
            let mut run = (extent.offset - extent.offset % BLOCK_BYTES).max(from)..end;
            while run.end - run.start < RUN_BYTES_MAX
                && let Some(extent) = extents.peek()?
                && extent.kind.has_data()
                && extent.offset <= run.end
            {
                run.end = run.end.max(block_end(extent.end()));
                extents.next()?;
            }
            return Ok(run);
        }
        Ok(size..size)
    }
}

/// Calls `each` with the blocks of a range of a file that are not all zeros, in order, adjacent
/// ones together, until it returns `false`. What it is called with is the same whatever holes the
/// container knows, except where it is divided. `range` begins at a multiple of [`BLOCK_BYTES`],
/// and so does the length of `buf`.
///
/// # Errors
/// As for [`FileSystem::extents`] and [`FileSystem::read_at`]; [`Error::Changed`].
pub(crate) fn for_each_nonzero(
    fs: &dyn FileSystem,
    file: Ino,
    size: u64,
    range: Range<u64>,
    buf: &mut [u8],
    mut each: impl FnMut(u64, &[u8]) -> bool,
) -> Result<()> {
    let Range { start: mut at, end } = range;
    // The beginning of a file is read whole, like a small file.
    let known = size.min(if end <= SMALL_BYTES { end } else { u64::MAX });
    let end = end.min(size);
    let mut runs = DataRuns::new(fs, file, known);
    while at < end {
        let run = runs.after(at)?;
        at = at.max(run.start);
        let run_end = run.end.min(end);
        while at < run_end {
            let len = (buf.len() as u64 - at % buf.len() as u64).min(run_end - at) as usize;
            let read = &mut buf[..len];
            if fs.read_at(file, at, read)? != len {
                return Err(Error::Changed);
            }
            let blocks = read.chunks(BLOCK_BYTES as usize).map(is_zero);
            let blocks: Vec<bool> = blocks.collect();
            let mut from = 0;
            for same in blocks.chunk_by(|a, b| a == b) {
                let to = len.min(from + same.len() * BLOCK_BYTES as usize);
                if !same[0] && !each(at + from as u64, &read[from..to]) {
                    return Ok(());
                }
                from = to;
            }
            at += len as u64;
        }
    }
    Ok(())
}

/// Whether all bytes are zero.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    let mut words = bytes.chunks(64);
    words.all(|word| word.iter().fold(0, |any, byte| any | byte) == 0)
}

/// Says that the attributes and the content of a small regular file are read next, in this order. A
/// host directory then opens the file once for both, which is cheaper than to ask for the
/// attributes by name.
///
/// # Errors
/// As for [`FileSystem::extents`].
pub(super) fn open_ahead(fs: &dyn FileSystem, file: Ino, size: u64) -> Result<()> {
    if (1..=SMALL_BYTES).contains(&size) && !fs.storage().stored_extents {
        fs.extents(file, 0)?;
    }
    Ok(())
}
