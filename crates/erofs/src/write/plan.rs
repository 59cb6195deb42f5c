//! Plans the data to store and its order: a pure function of the inventory and the options.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use codec::Algorithm;
use tree::{
    Duplicates, Encoding, Error, Extent, ExtentId, ExtentKind, Extents, FileId, FileKind,
    Inventory, Lost, Result,
};

use super::block::{BLOCK_BYTES, BLOCK_LOG2, fits_inline};
use super::options::Options;
use super::reuse::OldUnits;
use super::xattrs::XattrTable;
use crate::inode::COMPACT_BYTES;
use crate::kernel::Kernel;

/// The smallest file whose holes are looked for before it is read.
const SPARSE_BYTES_MIN: u64 = 64 << 10;
/// The largest chunk of a file: its logarithm is that of a block and 5 bits.
const CHUNK_LOG2_MAX: u8 = BLOCK_LOG2 + 31;
/// The most bytes that a file may take beyond its data, for the index of its holes.
const INDEX_BYTES_MAX: u64 = 1 << 30;
/// The share of a file's data that is left when it is compressed, for the choice of a form.
const RATIO: u64 = 3;

/// The most files behind their inodes that one job reads.
const TINY_FILES_MAX: usize = 1024;

/// The longest content of an extent of SquashFS or btrfs.
const SOURCE_BYTES_MAX: u32 = 1 << 20;

/// The longest content of an extent of btrfs.
const BTRFS_BYTES: u32 = 128 << 10;

/// How the content of a file is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataForm {
    /// Uncompressed, in a row, with or without an inline tail.
    Flat,
    /// Uncompressed chunks of this logarithm of bytes; holes are left out.
    Chunks(u8),
    /// Compressed units.
    Units,
    /// In the packed inode.
    Packed,
}

/// A part of a file to store, at most as long as a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataPart {
    pub(crate) file: FileId,
    pub(crate) form: DataForm,
    pub(crate) from: u64,
    pub(crate) len: usize,
    /// It is a hole, and need not be read.
    pub(crate) is_hole: bool,
    /// Parts of the file may come before it, or after it.
    pub(crate) is_first: bool,
    pub(crate) is_last: bool,
}

/// A job for a worker.
pub(crate) enum DataJob {
    Part(DataPart),
    /// A hole of any length, which is not stored.
    Hole {
        part: DataPart,
        bytes: u64,
    },
    /// An extent of a file to copy as the source stores it, if it is valid in this image.
    Keep {
        part: DataPart,
        extent: Extent,
    },
    /// Small files, each at this offset in a unit of the packed inode, and tiny ones, which are
    /// behind their inodes.
    Packed {
        files: Vec<(FileId, u32)>,
        len: usize,
        tiny: Vec<FileId>,
    },
    /// A file that is a part of stored data, which becomes a unit of the packed inode as it is
    /// stored; `None` if it is there.
    Fragment {
        file: FileId,
        id: ExtentId,
        offset: u64,
        extent: Option<Extent>,
    },
    /// The source cannot tell where a file's data is.
    Unreadable {
        file: FileId,
        error: Error,
    },
}

/// The jobs for all files, in the order of their names.
pub(crate) struct DataJobs<'a, I> {
    inventory: &'a Inventory<'a>,
    options: &'a Options,
    files: I,
    open: Option<FileJobs<'a>>,
    packed: Vec<(FileId, u32)>,
    packed_len: usize,
    tiny: Vec<FileId>,
    xattrs: &'a XattrTable<'a>,
    /// The stored data that is in the packed inode.
    fragments: HashSet<ExtentId>,
    keep: Option<&'a Keep>,
    old: Option<&'a OldUnits<'a>>,
    /// A file that begins when the packed unit before it is done.
    next: Option<FileId>,
}

/// All jobs, without those of files that are lost.
pub(crate) fn jobs<'a>(
    inventory: &'a Inventory<'a>,
    options: &'a Options,
    duplicates: &'a Duplicates,
    lost: &Lost,
    xattrs: &'a XattrTable<'a>,
    (keep, old): (Option<&'a Keep>, Option<&'a OldUnits<'a>>),
) -> DataJobs<'a, impl Iterator<Item = FileId> + use<'a>> {
    let lost: Vec<FileId> = lost.files().collect();
    let files = inventory.names().filter_map(move |entry| {
        let file = inventory.file(entry);
        let is_stored = inventory.is_first_name(entry)
            && inventory.kind(file) == FileKind::Regular
            && inventory.size(file) > 0
            && duplicates.original(file).is_none()
            && lost.binary_search(&file).is_err();
        is_stored.then_some(file)
    });
    DataJobs {
        inventory,
        options,
        files,
        open: None,
        packed: Vec::new(),
        packed_len: 0,
        tiny: Vec::new(),
        xattrs,
        fragments: HashSet::new(),
        keep,
        old,
        next: None,
    }
}

impl<I: Iterator<Item = FileId>> DataJobs<'_, I> {
    /// The unit of the packed inode that is filled.
    fn close_packed(&mut self) -> Option<DataJob> {
        if self.packed.is_empty() && self.tiny.is_empty() {
            return None;
        }
        // Each unit begins at a block, so that an index of blocks can hold it, too.
        let len = self.packed_len.next_multiple_of(BLOCK_BYTES);
        self.packed_len = 0;
        let files = std::mem::take(&mut self.packed);
        let tiny = std::mem::take(&mut self.tiny);
        Some(DataJob::Packed { files, len, tiny })
    }

    /// Whether a file takes no more room behind its inode than the place of its content in the
    /// packed inode does.
    fn is_tiny(&self, file: FileId, size: u64) -> bool {
        let xattr_bytes = self.xattrs.widest(file);
        let slots = |bytes: usize| bytes.div_ceil(COMPACT_BYTES);
        let head = COMPACT_BYTES + xattr_bytes;
        size <= COMPACT_BYTES as u64
            && fits_inline(xattr_bytes, size as usize)
            && slots(head + size as usize) <= slots(head.next_multiple_of(8) + 8)
    }

    /// The job for a file that is one stored extent or a part of one, if that can be kept.
    fn kept_file(&mut self, file: FileId, size: u64, form: DataForm) -> Result<Option<DataJob>> {
        let Some(keep) = self.keep else {
            return Ok(None);
        };
        let extent = self.inventory.extents(file).next()?;
        let Some(extent) = extent.filter(|extent| extent.len == size) else {
            if form == DataForm::Units || !keep.keeps_any(|| self.inventory.extents(file))? {
                return Ok(None);
            }
            // Its parts are units of their own, and not in the packed inode.
            let source = (self.inventory, self.options);
            let mut open = FileJobs::new(source, file, DataForm::Units, self.keep);
            let first = open.next();
            self.open = Some(open);
            return Ok(first);
        };
        let as_units = DataPart {
            file,
            form: DataForm::Units,
            from: 0,
            len: size as usize,
            is_hole: false,
            is_first: true,
            is_last: true,
        };
        let is_codec = match extent.kind {
            ExtentKind::Encoded(encoding) => {
                encoding.unencoded_offset == 0 && keep.why_not(&encoding).is_none()
            }
            _ => true,
        };
        let is_inline =
            form == DataForm::Packed && keep.refers_inside && is_codec && extent.id.is_none();
        if is_inline
            && (self.inventory.tree())
                .stored_at(self.inventory.ino(file), &extent)
                .is_some()
        {
            return Ok(Some(DataJob::Keep {
                part: as_units,
                extent,
            }));
        }
        let ExtentKind::Encoded(encoding) = extent.kind else {
            let is_kept = form == DataForm::Packed && keep.is_kept(&extent);
            return Ok(is_kept.then_some(DataJob::Keep {
                part: as_units,
                extent,
            }));
        };
        if keep.refers && extent.id.is_none() {
            keep.count(&extent, 0);
            return Ok(None);
        }
        let offset = encoding.unencoded_offset;
        // A unit of the packed inode begins at a block where the index has entries for them, and a
        // frame that is named on a device needs no place there to be shown from its beginning.
        let is_named = keep.refers && offset == 0 && encoding.algorithm == Algorithm::Zstd;
        let is_packed = self.options.has_records() && !is_named;
        let id = extent
            .id
            .filter(|_| encoding.unencoded_len > size && is_packed);
        // Of a file of whole units, all other extents are looked at one by one.
        if form == DataForm::Units
            && (offset == 0 || id.is_none() || keep.why_not(&encoding).is_some())
        {
            return Ok(None);
        }
        if let Some(why) = keep.why_not(&encoding) {
            // Once for all files that are parts of it.
            if id.is_none_or(|id| self.fragments.insert(id)) {
                keep.recoded(why);
            }
            return Ok(None);
        }
        if let Some(id) = id {
            let extent = self.fragments.insert(id).then_some(extent);
            return Ok(Some(DataJob::Fragment {
                file,
                id,
                offset,
                extent,
            }));
        }
        if offset > 0 {
            keep.recoded(MIDDLE);
            return Ok(None);
        }
        Ok(Some(DataJob::Keep {
            part: as_units,
            extent,
        }))
    }
}

impl<I: Iterator<Item = FileId>> Iterator for DataJobs<'_, I> {
    type Item = DataJob;

    fn next(&mut self) -> Option<DataJob> {
        loop {
            if let Some(open) = &mut self.open {
                if let Some(job) = open.next() {
                    return Some(job);
                }
                self.open = None;
            }
            let again = self.next.take();
            let Some(file) = again.or_else(|| self.files.next()) else {
                return self.close_packed();
            };
            let size = self.inventory.size(file);
            match form(self.inventory, self.options, file, size) {
                Ok(DataForm::Packed) if self.is_tiny(file, size) => {
                    self.tiny.push(file);
                    if self.tiny.len() == TINY_FILES_MAX {
                        return self.close_packed();
                    }
                }
                Ok(DataForm::Packed) => {
                    let kept = match again {
                        Some(_) => Ok(None),
                        None => self.kept_file(file, size, DataForm::Packed),
                    };
                    match kept {
                        Ok(None) => {}
                        Ok(Some(job)) => return Some(job),
                        Err(error) => return Some(DataJob::Unreadable { file, error }),
                    }
                    let len = size as usize;
                    // So that a file of another size does not change all later units.
                    let is_old = |old: &OldUnits<'_>| old.begins_unit(file);
                    let begins = !self.packed.is_empty() && self.old.is_some_and(is_old);
                    if begins || self.packed_len + len > self.options.unit() {
                        self.next = Some(file);
                        return self.close_packed();
                    }
                    self.packed.push((file, self.packed_len as u32));
                    self.packed_len += len;
                }
                Ok(form) => {
                    let has_part = form == DataForm::Units
                        && self.keep.is_some_and(|keep| size < keep.content_bytes_max);
                    if has_part {
                        match self.kept_file(file, size, form) {
                            Ok(None) => {}
                            Ok(Some(job)) => return Some(job),
                            Err(error) => return Some(DataJob::Unreadable { file, error }),
                        }
                    }
                    self.open = Some(FileJobs::new(
                        (self.inventory, self.options),
                        file,
                        form,
                        self.keep,
                    ));
                }
                Err(error) => return Some(DataJob::Unreadable { file, error }),
            }
        }
    }
}

/// How a file of this size, which is not empty, is stored.
fn form(inventory: &Inventory, options: &Options, file: FileId, size: u64) -> Result<DataForm> {
    let is_compressed = options.compression.is_some();
    if is_compressed && options.has_fragments() && size < options.unit() as u64 {
        return Ok(DataForm::Packed);
    }
    if is_compressed && options.has_records() {
        return Ok(DataForm::Units);
    }
    let is_small = !options.has_fragments() && size < BLOCK_BYTES as u64;
    let (usual, index_bytes) = if is_compressed && !is_small {
        (DataForm::Units, size / (BLOCK_BYTES as u64 / 8))
    } else {
        (DataForm::Flat, 0)
    };
    if size < SPARSE_BYTES_MIN || !options.devices.is_empty() {
        return Ok(usual);
    }
    let holes = Holes::find(&mut inventory.extents(file), size)?;
    let data_bytes = holes.data_bytes;
    let usual_bytes = match usual {
        DataForm::Flat => size,
        // A unit of zeros takes a block, if it cannot be shared.
        _ if !options.has_fragments() => {
            let zeros = (size - data_bytes) / options.unit() as u64 * BLOCK_BYTES as u64;
            index_bytes + zeros + data_bytes / RATIO
        }
        _ => index_bytes + data_bytes / RATIO,
    };
    let (log2, chunks_bytes) = if options.min_kernel < Kernel::CHUNKS {
        (BLOCK_LOG2, u64::MAX)
    } else {
        holes.best_chunks(size)
    };
    // Chunks give up compression, and must save a sixteenth for it.
    let is_better = chunks_bytes < usual_bytes - usual_bytes / 16;
    let bytes = if is_better { chunks_bytes } else { usual_bytes };
    if bytes > data_bytes.saturating_add(INDEX_BYTES_MAX) {
        return Err(Error::Limit(
            "its holes take more than 1 GiB in an image for Linux before 6.15; compressed for --min-kernel 6.15, each takes 32 bytes",
        ));
    }
    Ok(if is_better {
        DataForm::Chunks(log2)
    } else {
        usual
    })
}

/// Where a file has data.
struct Holes {
    data_bytes: u64,
    /// For each size of chunks, how many have data, and the number of the last one and 1.
    chunks: [(u64, u64); (CHUNK_LOG2_MAX - BLOCK_LOG2) as usize + 1],
}

impl Holes {
    fn find(extents: &mut Extents, size: u64) -> Result<Holes> {
        let mut holes = Holes {
            data_bytes: 0,
            chunks: [(0, 0); _],
        };
        while let Some(extent) = extents.next()? {
            if !extent.kind.has_data() {
                continue;
            }
            holes.data_bytes += extent.len;
            for (log2, (count, end)) in (BLOCK_LOG2..).zip(&mut holes.chunks) {
                let first = (extent.offset >> log2).max(*end);
                let after = ((extent.end().min(size) - 1) >> log2) + 1;
                *count += after.saturating_sub(first);
                *end = after.max(*end);
            }
        }
        Ok(holes)
    }

    /// The logarithm of the chunks that take the fewest bytes, and these.
    fn best_chunks(&self, size: u64) -> (u8, u64) {
        let all = (BLOCK_LOG2..).zip(&self.chunks).map(|(log2, (count, _))| {
            let data_bytes = count.checked_shl(log2.into()).unwrap_or(u64::MAX);
            let index_bytes = ((size - 1) >> log2).saturating_add(1).saturating_mul(4);
            (log2, data_bytes.min(size).saturating_add(index_bytes))
        });
        all.min_by_key(|(_, bytes)| *bytes)
            .unwrap_or((BLOCK_LOG2, u64::MAX))
    }
}

/// The reasons why compressed extents are encoded again.
const MIDDLE: &str = "parts from the middle of an extent";
const CODEC: &str = "codecs that EROFS does not have";
const LONG: &str = "extents longer than the units";
const INLINE: &str = "compressed data in metadata";

/// Which extents of the source are kept, and why others are not.
pub(crate) struct Keep {
    /// The longest content of an extent.
    pub(crate) content_bytes_max: u64,
    /// Extents are named where they are on devices, also plain ones.
    refers: bool,
    /// At any byte of them, also in metadata.
    refers_inside: bool,
    recoded: Mutex<BTreeMap<&'static str, u64>>,
}

impl Keep {
    /// For a source that stores extents.
    pub(crate) fn of(inventory: &Inventory, options: &Options) -> Option<Keep> {
        let storage = inventory.tree().storage();
        let block_bytes = storage
            .block_encoding
            .map_or(BTRFS_BYTES, |it| it.block_bytes);
        let refers = !options.devices.is_empty();
        // Of several images, the longest.
        let block_bytes = if refers {
            SOURCE_BYTES_MAX
        } else {
            block_bytes
        };
        (storage.stored_extents && options.keeps_extents()).then(|| Keep {
            content_bytes_max: u64::from(block_bytes).max(options.unit() as u64),
            refers,
            refers_inside: refers && options.has_records(),
            recoded: Mutex::default(),
        })
    }

    /// Whether the source has an extent to keep.
    pub(crate) fn finds_any(&self, inventory: &Inventory) -> bool {
        let is_regular = |&file: &FileId| inventory.kind(file) == FileKind::Regular;
        inventory.files().filter(is_regular).any(|file| {
            let mut extents = inventory.extents(file);
            // The content was read already: errors are known.
            let mut all = std::iter::from_fn(|| extents.next().ok().flatten());
            all.any(|extent| self.is_kept(&extent))
        })
    }

    /// Counts an extent that is encoded again.
    pub(crate) fn recoded(&self, why: &'static str) {
        let mut recoded = self.recoded.lock().unwrap_or_else(PoisonError::into_inner);
        *recoded.entry(why).or_default() += 1;
    }

    /// The numbers by reason.
    pub(crate) fn finish(self) -> BTreeMap<&'static str, u64> {
        self.recoded
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn why_not(&self, encoding: &Encoding) -> Option<&'static str> {
        match encoding.algorithm {
            Algorithm::Zstd | Algorithm::Lz4 | Algorithm::Zlib => {
                (encoding.unencoded_len > self.content_bytes_max).then_some(LONG)
            }
            _ => Some(CODEC),
        }
    }

    /// Whether an extent without an identity is in metadata, such as inline in a tree. Longer ones
    /// have none in streams, where any byte can be named.
    fn is_in_metadata(&self, extent: &Extent) -> bool {
        extent.id.is_none() && (!self.refers_inside || extent.len <= BLOCK_BYTES as u64)
    }

    /// Whether an extent is tried, which only its worker can decide.
    fn is_kept(&self, extent: &Extent) -> bool {
        match extent.kind {
            _ if self.refers && self.is_in_metadata(extent) => false,
            ExtentKind::Encoded(encoding) => {
                encoding.unencoded_offset == 0 && self.why_not(&encoding).is_none()
            }
            ExtentKind::Plain { .. } => self.refers,
            ExtentKind::Hole | ExtentKind::Preallocated { .. } => false,
        }
    }

    /// The part of an extent that one unit keeps from an offset on.
    fn kept_part(&self, extent: &Extent, offset: u64, unit: u64) -> Option<Extent> {
        let skip = offset - extent.offset;
        let part = match extent.kind {
            ExtentKind::Plain { stored_offset } => Extent {
                offset,
                len: (extent.len - skip).min(unit),
                kind: ExtentKind::Plain {
                    stored_offset: stored_offset + skip,
                },
                id: extent.id,
            },
            _ if skip > 0 => return None,
            _ => *extent,
        };
        self.is_kept(extent).then_some(part)
    }

    /// Whether a small file has an extent to keep; otherwise counts those that are not kept.
    fn keeps_any<'a>(&self, extents: impl Fn() -> Extents<'a>) -> Result<bool> {
        let mut all = extents();
        while let Some(extent) = all.next()? {
            if self.is_kept(&extent) {
                return Ok(true);
            }
        }
        let mut all = extents();
        while let Some(extent) = all.next()? {
            self.count(&extent, extent.offset);
        }
        Ok(false)
    }

    /// Counts an extent that is not kept, if it is compressed, and the part of it begins there.
    fn count(&self, extent: &Extent, at: u64) {
        if let ExtentKind::Encoded(encoding) = extent.kind
            && extent.offset == at
        {
            let is_inline = self.refers && self.is_in_metadata(extent);
            let other = if is_inline { INLINE } else { MIDDLE };
            self.recoded(self.why_not(&encoding).unwrap_or(other));
        }
    }
}

/// The jobs for one file.
struct FileJobs<'a> {
    file: FileId,
    form: DataForm,
    size: u64,
    offset: u64,
    unit: u64,
    /// Holes are not stored.
    skips_holes: bool,
    /// For a file of one unit, asking for its holes costs more than the read that it may save.
    extents: Option<Extents<'a>>,
    keep: Option<&'a Keep>,
}

impl<'a> FileJobs<'a> {
    fn new(
        (inventory, options): (&Inventory<'a>, &Options),
        file: FileId,
        form: DataForm,
        keep: Option<&'a Keep>,
    ) -> Self {
        let (size, unit) = (inventory.size(file), options.unit() as u64);
        let is_chunked = matches!(form, DataForm::Chunks(_));
        FileJobs {
            file,
            form,
            size,
            offset: 0,
            unit,
            skips_holes: is_chunked || form == DataForm::Units && options.has_records(),
            extents: (size > unit || is_chunked || keep.is_some()).then(|| inventory.extents(file)),
            keep: keep.filter(|_| form == DataForm::Units),
        }
    }

    fn part(&self, range: Range<u64>, is_hole: bool) -> DataPart {
        DataPart {
            file: self.file,
            form: self.form,
            from: range.start,
            len: (range.end - range.start) as usize,
            is_hole,
            is_first: range.start == 0,
            is_last: range.end == self.size,
        }
    }

    /// The next job for a file whose extents may be kept: a hole, an extent, or up to a unit of
    /// anything else.
    fn next_stored(&mut self, keep: &Keep) -> Result<DataJob> {
        let (offset, size, room) = (self.offset, self.size, self.offset + self.unit);
        let extents = self.extents.as_mut().ok_or(Error::Changed)?;
        let extent = extents.covering(offset)?;
        if !extent.kind.has_data() && !self.skips_holes {
            self.offset = extent.end().min(room).min(size);
            return Ok(DataJob::Part(self.part(offset..self.offset, true)));
        }
        if !extent.kind.has_data() {
            self.offset = extent.end().min(size);
            let part = self.part(offset..self.offset, true);
            let bytes = self.offset - offset;
            return Ok(DataJob::Hole { part, bytes });
        }
        if let Some(extent) = keep.kept_part(&extent, offset, self.unit) {
            self.offset = extent.end();
            let part = self.part(offset..self.offset, false);
            return Ok(DataJob::Keep { part, extent });
        }
        keep.count(&extent, offset);
        let mut end = extent.end();
        while end < room
            && let Some(next) = extents.peek()?
            && next.kind.has_data()
            && !keep.is_kept(&next)
        {
            keep.count(&next, next.offset);
            extents.next()?;
            end = next.end();
        }
        self.offset = end.min(room).min(size);
        Ok(DataJob::Part(self.part(offset..self.offset, false)))
    }

    /// Where the hole at the offset ends, in whole units or chunks, or with the file.
    fn hole_end(&mut self) -> Result<u64> {
        let grain = match self.form {
            DataForm::Chunks(log2) => 1 << log2,
            _ => self.unit,
        };
        let (offset, size) = (self.offset, self.size);
        let Some(extents) = &mut self.extents else {
            return Ok(offset);
        };
        // In the middle of a chunk that is stored.
        if !offset.is_multiple_of(grain) {
            return Ok(offset);
        }
        let extent = extents.covering(offset)?;
        if extent.kind.has_data() {
            return Ok(offset);
        }
        let end = extent.end().min(size);
        // The next extent may be a hole, too.
        if end == size {
            return Ok(end);
        }
        Ok(end - end % grain)
    }
}

impl Iterator for FileJobs<'_> {
    type Item = DataJob;

    fn next(&mut self) -> Option<DataJob> {
        let offset = self.offset;
        if offset >= self.size {
            return None;
        }
        if let Some(keep) = self.keep {
            let job = self.next_stored(keep);
            return Some(job.unwrap_or_else(|error| {
                self.offset = self.size;
                let file = self.file;
                DataJob::Unreadable { file, error }
            }));
        }
        let hole_end = match self.hole_end() {
            Ok(end) => end,
            Err(error) => {
                self.offset = self.size;
                let file = self.file;
                return Some(DataJob::Unreadable { file, error });
            }
        };
        let is_hole = hole_end > offset;
        if is_hole && self.skips_holes {
            self.offset = hole_end;
            return Some(DataJob::Hole {
                part: self.part(offset..hole_end, true),
                bytes: hole_end - offset,
            });
        }
        let grain = match self.form {
            DataForm::Chunks(log2) => self.unit.min(1 << log2),
            _ => self.unit,
        };
        let end = (offset + grain).min(self.size);
        self.offset = end;
        Some(DataJob::Part(self.part(offset..end, is_hole)))
    }
}

/// The bytes of a flat file's tail behind its inode, which has this many bytes of attributes.
pub(crate) fn inline_tail(size: u64, xattr_bytes: usize) -> usize {
    let tail = (size % BLOCK_BYTES as u64) as usize;
    if fits_inline(xattr_bytes, tail) {
        tail
    } else {
        0
    }
}
