//! The results of jobs as the records of a part, which another machine joins.
//!
//! A part is read with suspicion: its records have to be possible for the tree, so that a damaged
//! one is an error and no image.

use tree::{
    Error, ExtentId, FileId, FileKind, ImageSummary, Inventory, KeptCount, PartReader, PartSource,
    PartWriter, Result, records,
};
use xxhash::Xxh64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::encode::{DataEncoder, inline_max};
use super::job::{DataResult, FileStep, PIECE_BYTES, SmallContent, UnplacedExtent};
use super::share::{Originals, is_nocow};
use crate::disk::compression::EXTENT_BYTES_MAX;
use crate::disk::flags::attribute;
use crate::options::Options;
use crate::write::layout::SECTOR_BYTES;

const SECTOR: u64 = SECTOR_BYTES as u64;
const RECORD_BYTES: usize = size_of::<PartRecord>();
/// Bytes of the largest record: one with a piece whose sectors have checksums of 32 bytes.
const RECORD_BYTES_MAX: usize =
    RECORD_BYTES + PIECE_BYTES as usize + PIECE_BYTES as usize / SECTOR_BYTES * 32;

records! {
    /// The beginning of a record. Checksums of sectors follow, then the stored bytes.
    struct PartRecord[48] {
        kind: u8,
        /// Number of the algorithm.
        compression: u8,
        /// Whether other files refer to this piece.
        is_numbered: u8,
        /// Stored as in the source: 1; with 2, it was decoded; with 4, a checksum matched.
        kept: u8,
        file: U32,
        /// Range in the file.
        offset: U64,
        len: U64,
        /// The number of a piece, the space that the source reserved, or the first file with the
        /// same bytes.
        id: U64,
        /// Where the range begins in the piece or space.
        at: U64,
        /// Decoded length of an extent.
        ram: U32,
        sum_bytes: U32,
    }
}

/// The kinds of records.
mod kind {
    pub(super) const HOLE: u8 = 0;
    pub(super) const INLINE: u8 = 1;
    pub(super) const SMALL: u8 = 2;
    pub(super) const SMALL_RESERVED: u8 = 3;
    pub(super) const PIECE: u8 = 4;
    pub(super) const SHARED: u8 = 5;
    pub(super) const RESERVE: u8 = 6;
    pub(super) const SAME: u8 = 7;
    pub(super) const END: u8 = 8;
}

/// The digests of a tree and of the options on which data depends, for parts of an image.
pub fn part_source(inventory: &Inventory<'_>, options: &Options) -> PartSource {
    let Options {
        compression,
        rules,
        force,
        keep_extents,
        checksum,
        nodesize,
        duplicates,
        ..
    } = options;
    let flags = attribute::NOCOW | attribute::NOSUM | attribute::NOCOMP;
    let mut attributes = Xxh64::new(0);
    for file in inventory.files() {
        let attribute = inventory.metadata(file).attributes.0 & flags;
        attributes.update(&attribute.to_le_bytes());
    }
    let (attributes, inline_max) = (attributes.digest(), inline_max(*nodesize));
    let words = format!(
        "btrfs {compression:?} {rules:?} {force} {keep_extents} {checksum:?} {inline_max} {duplicates} {attributes}"
    );
    PartSource::of(inventory, &words)
}

/// Writes the result of a job, and counts it.
pub(super) fn put(
    part: &mut PartWriter<'_>,
    work: &DataEncoder<'_>,
    result: DataResult,
    summary: &mut ImageSummary,
) -> Result<()> {
    let mut record = PartRecord::new_zeroed();
    let mut write = |mut record: PartRecord, sums: &[u8], bytes: &[u8]| {
        record.sum_bytes = (sums.len() as u32).into();
        let len = RECORD_BYTES + sums.len() + bytes.len();
        part.put(len as u32, &[record.as_bytes(), sums, bytes])
    };
    let put_extent = |mut record: PartRecord, extent: &UnplacedExtent| {
        record.compression = extent.compression;
        record.at = u64::from(extent.skip).into();
        record.ram = (extent.ram as u32).into();
        let KeptCount {
            count,
            decoded,
            by_checksum,
        } = extent.kept;
        record.kept = (count | decoded << 1 | by_checksum << 2) as u8;
        record
    };
    match result {
        DataResult::Small(files) => {
            summary.files += files.len() as u64;
            for (file, small) in files {
                let mut record = record;
                record.file = file.0.into();
                summary.content_bytes += work.content.inventory().size(file);
                match small? {
                    SmallContent::Hole => write(record, &[], &[])?,
                    SmallContent::Reserved { id, at } => {
                        record.kind = kind::SMALL_RESERVED;
                        (record.id, record.at) = (id.0.into(), at.into());
                        write(record, &[], &[])?;
                    }
                    SmallContent::Inline {
                        bytes, compression, ..
                    } => {
                        record.kind = kind::INLINE;
                        record.compression = compression;
                        write(record, &[], &bytes)?;
                    }
                    SmallContent::Extent(extent) => {
                        record.kind = kind::SMALL;
                        let record = put_extent(record, &extent);
                        write(record, &extent.sums, &extent.buffer[..extent.len])?;
                        work.content.recycle(extent.buffer);
                    }
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
            let extent = piece?;
            record.kind = kind::PIECE;
            record.is_numbered = is_numbered.into();
            record.file = file.0.into();
            (record.offset, record.len) = (offset.into(), len.into());
            let record = put_extent(record, &extent);
            write(record, &extent.sums, &extent.buffer[..extent.len])?;
            summary.content_bytes += len;
            summary.kept += extent.kept;
            work.content.recycle(extent.buffer);
            Ok(())
        }
        DataResult::Pass(step) => {
            let (file, range, origin) = match step {
                FileStep::Shared {
                    file,
                    offset,
                    len,
                    number,
                    skip,
                } => {
                    record.kind = kind::SHARED;
                    summary.content_bytes += len;
                    (file, (offset, len), (number.into(), skip.into()))
                }
                FileStep::Reserve {
                    file,
                    offset,
                    len,
                    id,
                    at,
                } => {
                    record.kind = kind::RESERVE;
                    summary.content_bytes = summary.content_bytes.saturating_add(len);
                    (file, (offset, len), (id.0, at))
                }
                FileStep::Same { file, original } => {
                    record.kind = kind::SAME;
                    summary.files += 1;
                    summary.content_bytes += work.content.inventory().size(file);
                    (file, (0, 0), (original.0.into(), 0))
                }
                FileStep::End(file) => {
                    record.kind = kind::END;
                    summary.files += 1;
                    (file, (0, 0), (0, 0))
                }
                FileStep::Unreadable { error, .. } => return Err(error),
            };
            record.file = file.0.into();
            (record.offset, record.len) = (range.0.into(), range.1.into());
            (record.id, record.at) = (origin.0.into(), origin.1.into());
            write(record, &[], &[])
        }
    }
}

/// Reads the results of all parts.
pub(super) struct PartResults<'a, 'p> {
    reader: &'a mut PartReader<'p>,
    work: &'a DataEncoder<'a>,
    originals: &'a Originals<'a>,
    /// Bytes of the checksum of a sector.
    sum_bytes: usize,
    buffer: Vec<u8>,
    /// The last small file, and the last other one.
    last: [Option<FileId>; 2],
    /// The other one before its end, and where its next piece begins at least.
    open: Option<(FileId, u64)>,
    /// Decoded lengths of the numbered pieces.
    numbered: Vec<u32>,
    /// How many files are complete.
    complete: u64,
}

impl<'a, 'p> PartResults<'a, 'p> {
    pub(super) fn new(
        reader: &'a mut PartReader<'p>,
        work: &'a DataEncoder<'a>,
        originals: &'a Originals<'a>,
        options: &Options,
    ) -> PartResults<'a, 'p> {
        PartResults {
            reader,
            work,
            originals,
            sum_bytes: options.checksum.size(),
            buffer: vec![0; RECORD_BYTES_MAX],
            last: [None; 2],
            open: None,
            numbered: Vec::new(),
            complete: 0,
        }
    }

    /// The next result; `None` at the end.
    ///
    /// # Errors
    /// A part cannot be read, or does not fit the tree.
    pub(super) fn next(&mut self) -> Result<Option<DataResult>> {
        const FEW: Error = Error::Inconsistent("the parts lack files of the tree");
        let len = |word| {
            usize::try_from(word)
                .ok()
                .filter(|&len| len >= RECORD_BYTES)
        };
        let Some((_, len)) = self.reader.next(len, &mut self.buffer)? else {
            let inventory = self.work.content.inventory();
            let stored = stored_files(inventory, self.originals).count() as u64;
            return if self.open.is_none() && self.complete == stored {
                Ok(None)
            } else {
                Err(FEW)
            };
        };
        let what = "a record of a part does not fit the tree";
        let buffer = std::mem::take(&mut self.buffer);
        // Empty for a hole, of which no file is made.
        let Ok((record, rest)) = PartRecord::read_from_prefix(&buffer[..len]) else {
            return Err(self.reader.error(what, 0));
        };
        let result = match rest.split_at_checked(record.sum_bytes.get() as usize) {
            Some((sums, bytes)) => self.result(&record, sums, bytes),
            None => None,
        };
        self.buffer = buffer;
        let found = u64::from(record.kind) << 32 | u64::from(record.file.get());
        result
            .map(Some)
            .ok_or_else(|| self.reader.error(what, found))
    }

    /// The result that a record describes, if that is possible for its file.
    fn result(&mut self, record: &PartRecord, sums: &[u8], bytes: &[u8]) -> Option<DataResult> {
        let inventory = self.work.content.inventory();
        let file = FileId(record.file.get());
        if file.0 >= inventory.file_count() || !is_stored(inventory, self.originals, file) {
            return None;
        }
        match record.kind {
            kind::HOLE | kind::INLINE | kind::SMALL | kind::SMALL_RESERVED | kind::SAME => {
                self.small(record, file, sums, bytes)
            }
            _ => self.piece(record, file, sums, bytes),
        }
    }

    /// The result for a small file.
    fn small(
        &mut self,
        record: &PartRecord,
        file: FileId,
        sums: &[u8],
        bytes: &[u8],
    ) -> Option<DataResult> {
        let inventory = self.work.content.inventory();
        let (size, id, at) = (inventory.size(file), record.id.get(), record.at.get());
        if size > SECTOR || self.open.is_some() || self.last[0] >= Some(file) {
            return None;
        }
        self.last[0] = Some(file);
        self.complete += 1;
        let is_empty = sums.is_empty() && bytes.is_empty();
        let small = |small| Some(DataResult::Small(vec![(file, Ok(small))]));
        match record.kind {
            kind::HOLE if is_empty => small(SmallContent::Hole),
            kind::SMALL_RESERVED if is_empty => small(SmallContent::Reserved {
                id: ExtentId(id),
                at,
            }),
            kind::INLINE => {
                let (len, is_plain) = (bytes.len() as u64, record.compression == 0);
                let fits = bytes.len() <= self.work.inline_max() && len <= size;
                let fits = fits && record.compression <= 3 && is_plain == (len == size);
                let content = || SmallContent::Inline {
                    bytes: bytes.to_vec(),
                    compression: record.compression,
                    is_reused: false,
                };
                (fits && sums.is_empty()).then(content).and_then(small)
            }
            kind::SMALL => {
                let extent = self.extent(record, file, sums, bytes)?;
                (extent.ram == SECTOR && extent.skip == 0)
                    .then_some(SmallContent::Extent(extent))
                    .and_then(small)
            }
            kind::SAME if is_empty => {
                let original = FileId(u32::try_from(id).ok()?);
                let is_before = original < file
                    && is_stored(inventory, self.originals, original)
                    && inventory.size(original) == size;
                is_before.then_some(DataResult::Pass(FileStep::Same { file, original }))
            }
            _ => None,
        }
    }

    /// The result for a piece of a file that is not small, or for its end.
    fn piece(
        &mut self,
        record: &PartRecord,
        file: FileId,
        sums: &[u8],
        bytes: &[u8],
    ) -> Option<DataResult> {
        let size = self.work.content.inventory().size(file);
        let (offset, len) = (record.offset.get(), record.len.get());
        let (id, at) = (record.id.get(), record.at.get());
        let is_empty = sums.is_empty() && bytes.is_empty();
        let begin = match self.open {
            Some((open, begin)) if open == file => begin,
            None if self.last[1] < Some(file) && size >= SECTOR => 0,
            _ => return None,
        };
        self.last[1] = Some(file);
        if record.kind == kind::END {
            self.open = None;
            self.complete += 1;
            return is_empty.then_some(DataResult::Pass(FileStep::End(file)));
        }
        let end = offset.checked_add(len)?;
        if offset < begin
            || !offset.is_multiple_of(SECTOR)
            || len == 0
            || end > size.next_multiple_of(SECTOR)
        {
            return None;
        }
        self.open = Some((file, end.next_multiple_of(SECTOR)));
        match record.kind {
            kind::PIECE => {
                let extent = self.extent(record, file, sums, bytes)?;
                let shown = len.next_multiple_of(SECTOR);
                if u64::from(extent.skip) + shown > extent.ram || len > EXTENT_BYTES_MAX {
                    return None;
                }
                let is_numbered = record.is_numbered != 0;
                if is_numbered {
                    self.numbered.push(extent.ram as u32);
                }
                Some(DataResult::Piece {
                    file,
                    offset,
                    len,
                    is_numbered,
                    piece: Ok(extent),
                })
            }
            kind::SHARED if is_empty => {
                let (number, skip) = (u32::try_from(id).ok()?, u32::try_from(at).ok()?);
                let ram = *self.numbered.get(number as usize)?;
                let shown = len.next_multiple_of(SECTOR);
                (u64::from(skip) + shown <= ram.into()).then_some(DataResult::Pass(
                    FileStep::Shared {
                        file,
                        offset,
                        len,
                        number,
                        skip,
                    },
                ))
            }
            kind::RESERVE if is_empty && at.is_multiple_of(SECTOR) => {
                Some(DataResult::Pass(FileStep::Reserve {
                    file,
                    offset,
                    len,
                    id: ExtentId(id),
                    at,
                }))
            }
            _ => None,
        }
    }

    /// An extent, if its lengths are possible.
    fn extent(
        &self,
        record: &PartRecord,
        file: FileId,
        sums: &[u8],
        bytes: &[u8],
    ) -> Option<UnplacedExtent> {
        let (ram, len) = (u64::from(record.ram.get()), bytes.len() as u64);
        let sums_len = if is_nocow(self.work.content.inventory(), file) {
            0
        } else {
            bytes.len() / SECTOR_BYTES * self.sum_bytes
        };
        let is_possible = match record.compression {
            0 => len == ram,
            1..=3 => len < ram,
            _ => false,
        };
        let is_whole = len > 0 && len.is_multiple_of(SECTOR) && ram.is_multiple_of(SECTOR);
        if !is_possible || !is_whole || ram > EXTENT_BYTES_MAX || sums.len() != sums_len {
            return None;
        }
        let mut buffer = self.work.content.buffer();
        buffer.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let kept = record.kept;
        Some(UnplacedExtent {
            buffer,
            len: bytes.len(),
            ram,
            skip: u32::try_from(record.at.get()).ok()?,
            compression: record.compression,
            sums: sums.to_vec(),
            kept: KeptCount {
                count: (kept & 1).into(),
                decoded: (kept >> 1 & 1).into(),
                by_checksum: (kept >> 2 & 1).into(),
            },
            ..UnplacedExtent::default()
        })
    }
}

/// Whether the content of a file is stored as its own.
pub(super) fn is_stored(
    inventory: &Inventory<'_>,
    originals: &Originals<'_>,
    file: FileId,
) -> bool {
    inventory.kind(file) == FileKind::Regular
        && inventory.size(file) > 0
        && originals.of(file).is_none()
}

/// The files whose content is stored as their own.
pub(super) fn stored_files<'a>(
    inventory: &'a Inventory<'a>,
    originals: &'a Originals<'a>,
) -> impl Iterator<Item = FileId> + 'a {
    inventory
        .files()
        .filter(|&file| is_stored(inventory, originals, file))
}
