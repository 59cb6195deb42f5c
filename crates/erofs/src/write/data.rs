//! The content of files: encoded on all threads, written in the order of names.

use std::collections::{HashMap, HashSet};

use tree::{
    ChecksumsMark, Duplicates, Error, ExtentId, FileId, KeptCount, NoProgress, Progress, ReadAt,
    RecordTable, Result, Scratch, Strings, high_u32, low_u32, ordered, sha256, wide_u64,
};
use xxhash::Xxh64;

use super::block::{BLOCK_BYTES, BLOCK_LOG2, block_number};
use super::devices::device_at;
use super::encode::{DataResult, EncodedUnit, UnitEncoder};
use super::image::ImageWriter;
use super::plan::{DataForm, DataPart, Keep, inline_tail, jobs};
use super::reuse::OldUnits;
use super::unit::{PlacedUnit, UnitKind};
use super::xattrs::{XattrTable, digest_prefix};
use crate::kernel::Kernel;

/// The longest part of a tail in a table of strings.
const STRING_BYTES_MAX: usize = 255;

/// How the content of a file is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlacedFile {
    /// There is none, or the file is left out.
    Nothing,
    /// Blocks in a row, beginning with this one, and the place of an inline tail among all tails.
    Flat { block: u32, tail: Option<u64> },
    /// Units: the index of the first one, and their number; and whether a compact index can
    /// hold them.
    Units {
        first: u32,
        count: u32,
        fits_compact: bool,
    },
    /// Chunks of this logarithm, those with data: the index of the first one, and their number.
    Chunks { log2: u8, first: u32, count: u32 },
    /// At this offset in the packed inode.
    Packed(u64),
}

impl PlacedFile {
    fn pack(self) -> [u32; 3] {
        match self {
            PlacedFile::Nothing => [0; 3],
            PlacedFile::Flat { block, tail } => {
                let tail = tail.map_or(0, |tail| tail + 1);
                [1 << 28 | high_u32(tail), block, low_u32(tail)]
            }
            PlacedFile::Units {
                first,
                count,
                fits_compact,
            } => [2 << 28 | u32::from(fits_compact), first, count],
            PlacedFile::Chunks { log2, first, count } => [3 << 28 | u32::from(log2), first, count],
            PlacedFile::Packed(offset) => [4 << 28, low_u32(offset), high_u32(offset)],
        }
    }

    fn unpack([tag, one, two]: [u32; 3]) -> PlacedFile {
        let low = tag & ((1 << 28) - 1);
        let (first, count) = (one, two);
        match tag >> 28 {
            1 => PlacedFile::Flat {
                block: one,
                tail: wide_u64(two, low).checked_sub(1),
            },
            2 => PlacedFile::Units {
                first,
                count,
                fits_compact: low != 0,
            },
            3 => PlacedFile::Chunks {
                log2: low as u8,
                first,
                count,
            },
            4 => PlacedFile::Packed(wide_u64(one, two)),
            _ => PlacedFile::Nothing,
        }
    }
}

/// The places of all content.
pub(crate) struct PlacedData {
    files: RecordTable<3>,
    units: RecordTable<5>,
    /// The units of the packed inode, and its size.
    packed: RecordTable<5>,
    pub(crate) packed_bytes: u64,
    /// Where the prefix of digests is in it, in units of 4 bytes.
    pub(crate) prefix_at: Option<u32>,
    /// Whether a file has chunks.
    pub(crate) has_chunks: bool,
    /// The codecs of units, by the bits of their numbers; and whether a zstd frame has a window
    /// that is larger than a unit.
    pub(crate) codecs: u16,
    pub(crate) is_wide: bool,
    /// Inline tails, each in parts of up to 255 bytes.
    tails: Strings,
}

impl PlacedData {
    fn new(scratch: &Scratch, file_count: u32) -> PlacedData {
        let mut files = RecordTable::new(scratch);
        (0..file_count).for_each(|_| files.push([0; 3]));
        PlacedData {
            files,
            units: RecordTable::new(scratch),
            packed: RecordTable::new(scratch),
            packed_bytes: 0,
            prefix_at: None,
            has_chunks: false,
            codecs: 0,
            is_wide: false,
            tails: Strings::new(scratch),
        }
    }

    /// How the content of a file is stored, which is no duplicate of another one.
    pub(crate) fn file(&self, file: FileId) -> PlacedFile {
        PlacedFile::unpack(self.files.get(file.0 as usize))
    }

    fn set(&mut self, file: FileId, placed: PlacedFile) {
        self.files.set(file.0 as usize, placed.pack());
    }

    /// The units or chunks of a file.
    pub(crate) fn units(&self, first: u32, count: u32) -> impl Iterator<Item = PlacedUnit> {
        let range = first as usize..first as usize + count as usize;
        range.map(|index| PlacedUnit::unpack(self.units.get(index)))
    }

    /// The unit of the packed inode that covers an offset, with its index, and the length of its
    /// content.
    pub(crate) fn packed_unit(&self, offset: u64) -> (usize, PlacedUnit, u64) {
        let unit = |index| PlacedUnit::unpack(self.packed.get(index));
        let (mut low, mut high) = (0, self.packed.len());
        while high - low > 1 {
            let middle = low.midpoint(high);
            if unit(middle).from > offset {
                high = middle;
            } else {
                low = middle;
            }
        }
        let end = if high < self.packed.len() {
            unit(high).from
        } else {
            self.packed_bytes
        };
        (low, unit(low), end - unit(low).from)
    }

    /// The units of the packed inode.
    pub(crate) fn packed_units(&self) -> impl Iterator<Item = PlacedUnit> + Clone {
        (0..self.packed.len()).map(|index| PlacedUnit::unpack(self.packed.get(index)))
    }

    /// Appends the `len` bytes of the tail at this place.
    pub(crate) fn tail(&self, mut at: u64, len: usize, out: &mut Vec<u8>) {
        let end = out.len() + len;
        while out.len() < end {
            let part = self.tails.get(at as usize);
            at += 1 + part.len() as u64;
            out.extend_from_slice(&part);
        }
    }

    fn push_tail(&mut self, tail: &[u8]) -> u64 {
        let at = self.tails.len() as u64;
        for part in tail.chunks(STRING_BYTES_MAX) {
            self.tails.push(part);
        }
        at
    }
}

/// Whether a compact index can hold the units. A pack of it has one address, so that units of which
/// it has the beginnings must follow each other: all plain ones, and short ones.
pub(crate) fn fit_compact(mut units: impl Iterator<Item = PlacedUnit>) -> bool {
    // A pack has 16 entries, and the second one of a unit counts its blocks.
    const LONG_BYTES: u64 = 17 << BLOCK_LOG2;
    let Some(mut last) = units.next() else {
        return false;
    };
    // It has no mark of partial units.
    let is_partial = last.is_partial;
    units.all(|unit| {
        let blocks = u64::from(last.stored_len).div_ceil(BLOCK_BYTES as u64);
        let is_behind = unit.at >> BLOCK_LOG2 == (last.at >> BLOCK_LOG2) + blocks;
        let is_long = last.kind != UnitKind::Plain && unit.from - last.from >= LONG_BYTES;
        last = unit;
        (is_behind || is_long) && !unit.is_partial
    }) && !is_partial
}

/// The end of the image before a file's data was written.
struct DataMark {
    file: FileId,
    at: u64,
    written: ChecksumsMark,
    units: usize,
    tails: usize,
    plain_units: u64,
    shared_units: u64,
    padding_bytes: u64,
    encoded: u64,
    reused: u64,
    kept: KeptCount,
}

/// A stored unit, to find equal ones.
#[derive(Clone, Copy)]
struct KnownUnit {
    at: u64,
    stored_len: u32,
    len: u32,
    /// The SHA-256, if the output cannot be read back.
    digest: Option<[u8; 32]>,
}

/// The content in progress.
struct DataWriter<'w, 'a> {
    image: &'w mut ImageWriter<'a>,
    data: PlacedData,
    xattrs: &'w XattrTable<'w>,
    mark: Option<DataMark>,
    known: HashMap<u64, KnownUnit>,
    /// Whether the output gives back the bytes of a unit.
    is_read_back: bool,
    /// The units that are named on devices.
    named: HashSet<u64>,
    /// Where the stored data is in the packed inode that files are parts of.
    fragments: HashMap<ExtentId, u64>,
    scratch: Vec<u8>,
}

impl<'a> ImageWriter<'a> {
    /// Encodes and writes the content of all files.
    pub(crate) fn write_data(
        &mut self,
        duplicates: &Duplicates,
        xattrs: &XattrTable<'_>,
        scratch: &Scratch,
        progress: &dyn Progress,
    ) -> Result<PlacedData> {
        let (inventory, options, parallel) = (self.inventory, self.options, self.parallel);
        let keep = Keep::of(inventory, options);
        let old = OldUnits::find(inventory, options, parallel);
        let (keeps, old) = (keep.as_ref(), old.as_ref());
        let work = UnitEncoder::new(inventory, options, keeps, old);
        let kept = (keeps, old);
        let jobs = jobs(inventory, options, duplicates, &self.lost, xattrs, kept);
        let start = self.at;
        let mut writer = DataWriter::new(self, xattrs, scratch);
        ordered(
            parallel,
            jobs,
            || work.worker(),
            |worker, job| work.work(worker, job),
            |done| writer.take(done, &work, progress),
        )?;
        if options.has_packed_prefix() && writer.data.packed_bytes > 0 {
            writer.put_prefix()?;
        }
        let data = writer.data;
        drop(work);
        if keep.is_none() && options.compression.is_some() {
            let keep = Keep::of(inventory, &options.clone().min_kernel(Kernel::RECORDS));
            self.summary.newer_keeps = keep.is_some_and(|keep| keep.finds_any(inventory));
        }
        self.summary.recoded = keep.map(Keep::finish).unwrap_or_default();
        self.align()?;
        self.summary.image.data_bytes = self.at - start;
        for file in inventory.files() {
            if let Some(shown) = duplicates.original(file) {
                self.lost.lose_with(file, shown);
            }
        }
        Ok(data)
    }

    /// Writes results that no job has made.
    pub(crate) fn place_data(
        &mut self,
        results: impl Iterator<Item = Result<DataResult>>,
        work: &UnitEncoder<'_>,
        xattrs: &XattrTable<'_>,
        scratch: &Scratch,
    ) -> Result<PlacedData> {
        let mut writer = DataWriter::new(self, xattrs, scratch);
        for done in results {
            writer.take(done?, work, &NoProgress)?;
        }
        let data = writer.data;
        self.align()?;
        Ok(data)
    }
}

impl<'w, 'a> DataWriter<'w, 'a> {
    fn new(image: &'w mut ImageWriter<'a>, xattrs: &'w XattrTable<'w>, scratch: &Scratch) -> Self {
        let is_read_back = image.output.keep_from(u64::MAX);
        DataWriter {
            data: PlacedData::new(scratch, image.inventory.file_count()),
            image,
            xattrs,
            mark: None,
            is_read_back,
            known: HashMap::new(),
            named: HashSet::new(),
            fragments: HashMap::new(),
            scratch: Vec::new(),
        }
    }

    /// Writes the result of a job.
    fn take(
        &mut self,
        done: DataResult,
        work: &UnitEncoder<'_>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let begin = self.image.at;
        match done {
            DataResult::Part(part, stored) => {
                progress.advance(u64::from(part.is_last), part.len as u64);
                if self.begin(&part)? {
                    match &stored {
                        Some(stored) => self.put_part(&part, stored)?,
                        None => self.push_hole(&part),
                    }
                    self.end(&part)?;
                }
                if let Some(stored) = stored {
                    work.content.recycle(stored.buffer);
                }
            }
            DataResult::Hole { part, bytes } => {
                progress.advance(u64::from(part.is_last), bytes);
                if self.begin(&part)? {
                    self.push_hole(&part);
                    self.end(&part)?;
                }
            }
            DataResult::Unreadable { file, error } => {
                if let Some(before) = self.mark.take_if(|mark| mark.file == file) {
                    self.rewind(before);
                }
                self.image.lost.lose(file, error);
            }
            DataResult::Fragment {
                file,
                id,
                offset,
                stored,
            } => {
                match stored {
                    Some(Ok(stored)) => {
                        let from = self.put_packed(&stored)?;
                        self.fragments.insert(id, from);
                        work.content.recycle(stored.buffer);
                    }
                    Some(Err(error)) => self.image.lost.lose(file, error),
                    None => {}
                }
                let size = self.image.inventory.size(file);
                match self.fragments.get(&id) {
                    Some(from) if from + offset + size <= self.data.packed_bytes => {
                        self.data.set(file, PlacedFile::Packed(from + offset));
                    }
                    _ => {
                        let error = Error::Unreadable("the block that it is in cannot be read");
                        if !work.options.skip_unreadable {
                            return Err(work.content.in_file(file, error));
                        }
                        self.image.lost.lose(file, error);
                    }
                }
                progress.advance(1, size);
            }
            DataResult::Packed {
                files,
                stored,
                tiny,
                lost,
            } => {
                let tiny_bytes: usize = tiny.iter().map(|(_, content)| content.len()).sum();
                let bytes = tiny_bytes + stored.as_ref().map_or(0, |unit| unit.content_len);
                progress.advance((files.len() + tiny.len()) as u64, bytes as u64);
                if let Some(stored) = stored {
                    let from = self.put_packed(&stored)?;
                    for &(file, offset) in &files {
                        let placed = PlacedFile::Packed(from + u64::from(offset));
                        self.data.set(file, placed);
                    }
                    work.content.recycle(stored.buffer);
                }
                for (file, content) in tiny {
                    let tail = Some(self.data.push_tail(&content));
                    self.data.set(file, PlacedFile::Flat { block: 0, tail });
                }
                for (file, error) in lost {
                    self.data.set(file, PlacedFile::Nothing);
                    self.image.lost.lose(file, error);
                }
            }
        }
        progress.wrote(self.image.at.saturating_sub(begin));
        Ok(())
    }

    /// Begins the file of a part, if it is the first one; returns whether it is stored.
    fn begin(&mut self, part: &DataPart) -> Result<bool> {
        if !part.is_first {
            return Ok(!self.image.lost.has(part.file));
        }
        let image = &self.image;
        self.mark = Some(DataMark {
            file: part.file,
            at: image.at,
            written: image.written.mark(),
            units: self.data.units.len(),
            tails: self.data.tails.len(),
            plain_units: image.summary.plain_units,
            shared_units: image.summary.shared_units,
            padding_bytes: image.summary.padding_bytes,
            encoded: image.summary.image.encoded,
            reused: image.summary.image.reused,
            kept: image.summary.image.kept,
        });
        if matches!(part.form, DataForm::Flat | DataForm::Chunks(_)) {
            self.image.align()?;
            self.image.align_data()?;
        }
        let first = self.data.units.len() as u32;
        let placed = match part.form {
            DataForm::Flat => PlacedFile::Flat {
                block: self.image.block()?,
                tail: None,
            },
            DataForm::Chunks(log2) => PlacedFile::Chunks {
                log2,
                first,
                count: 0,
            },
            DataForm::Units | DataForm::Packed => PlacedFile::Units {
                first,
                count: 0,
                fits_compact: false,
            },
        };
        self.data.set(part.file, placed);
        Ok(true)
    }

    fn push_hole(&mut self, part: &DataPart) {
        if part.form == DataForm::Units {
            let hole = PlacedUnit {
                from: part.from,
                at: 0,
                stored_len: 0,
                kind: UnitKind::Hole,
                is_partial: false,
            };
            self.data.units.push(hole.pack());
        }
    }

    fn put_part(&mut self, part: &DataPart, stored: &EncodedUnit) -> Result<()> {
        match part.form {
            DataForm::Flat => {
                let mut content = &stored.buffer[..stored.len];
                let size = self.image.inventory.size(part.file);
                let tail_len = inline_tail(size, self.xattrs.widest(part.file));
                if part.is_last && tail_len > 0 {
                    let (blocks, tail) = content.split_at(content.len() - tail_len);
                    content = blocks;
                    let PlacedFile::Flat { block, .. } = self.data.file(part.file) else {
                        return Err(Error::Inconsistent("a file changes its form"));
                    };
                    let tail = Some(self.data.push_tail(tail));
                    self.data.set(part.file, PlacedFile::Flat { block, tail });
                }
                self.image.put(content)
            }
            DataForm::Chunks(log2) => {
                if part.from.is_multiple_of(1 << log2) {
                    let chunk = PlacedUnit {
                        from: part.from,
                        at: self.image.at,
                        stored_len: 0,
                        kind: UnitKind::Plain,
                        is_partial: false,
                    };
                    self.data.units.push(chunk.pack());
                }
                self.image.put(&stored.buffer[..stored.len])
            }
            DataForm::Units | DataForm::Packed => {
                // A file without a compressed unit is stored without an index.
                if part.is_first && stored.codec.is_none() && stored.device_at.is_none() {
                    self.image.align()?;
                }
                let mut unit = self.put_unit(part.from, stored, part.is_first)?;
                unit.is_partial |= stored.content_len > part.len;
                self.data.units.push(unit.pack());
                Ok(())
            }
        }
    }

    /// Stores a unit of the packed inode, and returns where it begins there.
    fn put_packed(&mut self, stored: &EncodedUnit) -> Result<u64> {
        let from = self.data.packed_bytes;
        let unit = self.put_unit(from, stored, true)?;
        self.data.packed.push(unit.pack());
        self.data.packed_bytes = from + stored.content_len as u64;
        Ok(from)
    }

    /// Stores the prefix of the names of digests, where Linux looks for it if there is a packed
    /// inode.
    fn put_prefix(&mut self) -> Result<()> {
        let mut buffer = digest_prefix();
        buffer.resize(BLOCK_BYTES, 0);
        let stored = EncodedUnit::new(buffer, BLOCK_BYTES, None, BLOCK_BYTES);
        // At a multiple of 4.
        let past = self.data.packed_bytes % 4;
        if past > 0 {
            let fill = EncodedUnit::new(vec![0; 4], 4 - past as usize, None, 4 - past as usize);
            self.put_packed(&fill)?;
        }
        let at = u32::try_from(self.put_packed(&stored)? / 4);
        self.data.prefix_at =
            Some(at.map_err(|_| Error::Limit("more than 16 GiB of small files"))?);
        Ok(())
    }

    /// Stores a unit, unless it is there; the data of a file may begin with it.
    fn put_unit(&mut self, from: u64, stored: &EncodedUnit, is_first: bool) -> Result<PlacedUnit> {
        let (stored_len, len) = (stored.len as u32, stored.content_len);
        let (image, is_plain) = (&mut *self.image, stored.codec.is_none());
        let kind = stored.kind();
        self.data.codecs |= stored.codec.map_or(0, |codec| 1 << codec as u16);
        self.data.is_wide |= stored.is_wide;
        let has_records = image.options.has_records();
        let placed = |at| {
            let mut unit = PlacedUnit::in_records(from, at, stored_len, kind);
            unit.is_partial &= has_records;
            unit
        };
        if let Some(at) = stored.device_at {
            image.summary.device_units += 1;
            if self.named.insert(at) {
                image.summary.device_bytes += stored.len as u64;
            }
            return Ok(placed(at));
        }
        let bytes = &stored.buffer[..stored.len];
        image.summary.image.kept += stored.kept;
        image.summary.plain_units += u64::from(is_plain);
        let shares = image.options.duplicates && image.options.has_fragments();
        let codec = stored.codec.map_or(1, |codec| codec as u64);
        let mut hash = Xxh64::new((len as u64) << 2 | codec);
        let hash = if shares {
            hash.update(bytes);
            hash.digest()
        } else {
            0
        };
        let digest = (shares && !self.is_read_back).then(|| sha256(bytes));
        if let Some(known) = self.known.get(&hash).filter(|_| shares)
            && (known.stored_len, known.len) == (stored_len, len as u32)
            && known.at + u64::from(known.stored_len) <= image.at
        {
            self.scratch.resize(bytes.len(), 0);
            let is_same = match known.digest {
                Some(_) => known.digest == digest,
                None => {
                    image.output.read_exact_at(&mut self.scratch, known.at)?;
                    self.scratch == bytes
                }
            };
            if is_same {
                image.summary.shared_units += 1;
                return Ok(placed(known.at));
            }
        }
        image.summary.image.reused += u64::from(stored.is_reused);
        let is_encoded = stored.kept.count == 0 && !stored.is_reused;
        image.summary.image.encoded += u64::from(is_encoded);
        let is_aligned = !has_records;
        if is_aligned {
            image.align()?;
        }
        if is_first {
            image.align_data()?;
        }
        if is_aligned && !is_plain {
            // A reader finds the end of the data at the end of the last block.
            let padding = bytes.len().next_multiple_of(BLOCK_BYTES) - bytes.len();
            image.put_zeros(padding as u64)?;
            image.summary.padding_bytes += padding as u64;
        }
        let at = image.at;
        image.put(bytes)?;
        if is_aligned {
            image.align()?;
        }
        if shares {
            let len = len as u32;
            let known = KnownUnit {
                at,
                stored_len,
                len,
                digest,
            };
            self.known.entry(hash).or_insert(known);
        }
        Ok(placed(at))
    }

    /// Ends the file of a part, if it is the last one.
    fn end(&mut self, part: &DataPart) -> Result<()> {
        if !part.is_last {
            return Ok(());
        }
        self.mark = None;
        let units_end = self.data.units.len();
        let count = |first: u32| units_end as u32 - first;
        match self.data.file(part.file) {
            PlacedFile::Flat { .. } => self.image.align(),
            PlacedFile::Chunks { log2, first, .. } => {
                let count = count(first);
                let chunks = PlacedFile::Chunks { log2, first, count };
                self.data.set(part.file, chunks);
                self.data.has_chunks = true;
                self.image.align()
            }
            PlacedFile::Units { first, .. } => {
                if u32::try_from(units_end).is_err() {
                    return Err(Error::Limit("more than 2^32 units of compressed data"));
                }
                let count = count(first);
                let mut placed = PlacedFile::Units {
                    first,
                    count,
                    fits_compact: fit_compact(self.data.units(first, count)),
                };
                if let Some(at) = self.plain_start(first, count)? {
                    self.image.align()?;
                    self.data.units.truncate(first as usize);
                    placed = PlacedFile::Flat {
                        block: (at >> BLOCK_LOG2) as u32,
                        tail: None,
                    };
                }
                self.data.set(part.file, placed);
                Ok(())
            }
            PlacedFile::Packed(_) | PlacedFile::Nothing => Ok(()),
        }
    }

    /// Where the units of a file begin if all of them are plain and one behind the other, starting
    /// at a block.
    fn plain_start(&self, first: u32, count: u32) -> Result<Option<u64>> {
        let Some(start) = self.data.units(first, count).next().map(|unit| unit.at) else {
            return Ok(None);
        };
        let mut next = start;
        for unit in self.data.units(first, count) {
            if unit.kind != UnitKind::Plain || unit.at != next {
                return Ok(None);
            }
            next += u64::from(unit.stored_len);
        }
        let end = next.next_multiple_of(BLOCK_BYTES as u64);
        let is_named =
            start.is_multiple_of(BLOCK_BYTES as u64) && block_number(end >> BLOCK_LOG2).is_ok();
        // Behind the last byte must be zeros, up to the end of the block.
        let is_last = match device_at(&self.image.options.devices, start) {
            None => end >= self.image.at,
            Some((device, at)) if is_named => {
                let mut behind = vec![0; (end - next) as usize];
                device
                    .bytes
                    .read_exact_at(&mut behind, at + (next - start))?;
                behind.iter().all(|&byte| byte == 0)
            }
            Some(_) => false,
        };
        Ok((is_named && is_last).then_some(start))
    }

    /// Takes back the data since the mark: the next data overwrites it.
    fn rewind(&mut self, mark: DataMark) {
        self.image.at = mark.at;
        self.image.written.rewind(mark.written);
        self.data.units.truncate(mark.units);
        self.data.tails.truncate(mark.tails);
        self.data.set(mark.file, PlacedFile::Nothing);
        let summary = &mut self.image.summary;
        summary.plain_units = mark.plain_units;
        summary.shared_units = mark.shared_units;
        summary.padding_bytes = mark.padding_bytes;
        summary.image.encoded = mark.encoded;
        summary.image.reused = mark.reused;
        summary.image.kept = mark.kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_survive_their_records() {
        for placed in [
            PlacedFile::Nothing,
            PlacedFile::Flat {
                block: u32::MAX,
                tail: Some(0),
            },
            PlacedFile::Flat {
                block: 0,
                tail: Some((1 << 40) + 5),
            },
            PlacedFile::Flat {
                block: 7,
                tail: None,
            },
            PlacedFile::Units {
                first: 3,
                count: 9,
                fits_compact: true,
            },
            PlacedFile::Chunks {
                log2: 43,
                first: 1,
                count: 2,
            },
            PlacedFile::Packed((1 << 47) + 3),
        ] {
            assert_eq!(PlacedFile::unpack(placed.pack()), placed);
        }
    }
}
