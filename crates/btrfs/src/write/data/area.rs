//! The data area of an image: block groups that grow one after another, the extents in them, and
//! their checksums.

use tree::{
    Error, FileId, HostContent, KeptCount, Lost, ReadAt, RecordTable, Result, Scratch, high_u32,
    low_u32, wide_u64,
};

use super::job::UnplacedExtent;
use crate::disk::chunk::Profile;
use crate::disk::key::Logical;
use crate::options::Options;
use crate::write::devices::Devices;
use crate::write::layout::{NewGroup, SECTOR_BYTES};
use crate::write::spooled_bytes::SpooledBytes;

/// Size of the largest uncompressed extent, in bytes.
const PLAIN_BYTES_MAX: u64 = 128 << 20;

/// A data extent of the new file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewExtent {
    pub(crate) at: u64,
    /// Stored length in bytes.
    pub(crate) len: u64,
    /// Decoded length in bytes.
    pub(crate) ram: u64,
    /// ID of the compression algorithm.
    pub(crate) compression: u8,
    /// Preallocated: nothing is written in it.
    pub(crate) is_reserved: bool,
}

/// A part of a file, and the extent that it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExtentSlice {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Index of the extent.
    pub(crate) extent: u32,
    /// Offset of this part in the extent's decoded data.
    pub(crate) skip: u32,
}

/// A file's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum FileContent {
    /// Empty, or nothing but a hole.
    #[default]
    Hole,
    /// Inline in the tree.
    Inline {
        /// Offset and length in [`Area::inline`].
        at: u64,
        len: u32,
        /// ID of the compression algorithm.
        compression: u8,
    },
    /// In extents: the first index in [`Area::shown`], and the count.
    Extents { from: u32, count: u32 },
}

/// Consecutive sectors that have checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChecksumRun {
    pub(crate) at: u64,
    pub(crate) sectors: u64,
}

impl NewExtent {
    fn pack(&self) -> [u32; 7] {
        let NewExtent {
            at,
            len,
            ram,
            compression,
            is_reserved,
        } = *self;
        let kind = u32::from(compression) << 1 | u32::from(is_reserved);
        [
            low_u32(at),
            high_u32(at),
            low_u32(len),
            high_u32(len),
            low_u32(ram),
            high_u32(ram),
            kind,
        ]
    }

    fn unpack([at, at_high, len, len_high, ram, ram_high, kind]: [u32; 7]) -> NewExtent {
        NewExtent {
            at: wide_u64(at, at_high),
            len: wide_u64(len, len_high),
            ram: wide_u64(ram, ram_high),
            compression: (kind >> 1) as u8,
            is_reserved: kind & 1 != 0,
        }
    }
}

impl ExtentSlice {
    fn pack(&self) -> [u32; 6] {
        let ExtentSlice {
            offset,
            len,
            extent,
            skip,
        } = *self;
        [
            low_u32(offset),
            high_u32(offset),
            low_u32(len),
            high_u32(len),
            extent,
            skip,
        ]
    }

    fn unpack([offset, offset_high, len, len_high, extent, skip]: [u32; 6]) -> ExtentSlice {
        ExtentSlice {
            offset: wide_u64(offset, offset_high),
            len: wide_u64(len, len_high),
            extent,
            skip,
        }
    }
}

impl FileContent {
    fn pack(&self) -> [u32; 4] {
        match *self {
            FileContent::Hole => [0; 4],
            FileContent::Inline {
                at,
                len,
                compression,
            } => [
                1 | u32::from(compression) << 8,
                len,
                low_u32(at),
                high_u32(at),
            ],
            FileContent::Extents { from, count } => [2, from, count, 0],
        }
    }

    fn unpack([tag, a, b, c]: [u32; 4]) -> FileContent {
        match tag & 0xff {
            0 => FileContent::Hole,
            1 => FileContent::Inline {
                at: wide_u64(b, c),
                len: a,
                compression: (tag >> 8) as u8,
            },
            _ => FileContent::Extents { from: a, count: b },
        }
    }
}

/// All data of an image.
#[derive(Debug)]
pub(crate) struct Area<'a> {
    pub(crate) devices: &'a Devices<'a>,
    profile: Profile,
    sum_bytes: usize,
    /// Still without the second copies that follow on the same device.
    pub(crate) groups: Vec<NewGroup>,
    /// Each is a [`NewExtent`].
    extents: RecordTable<7>,
    /// Each is a [`ExtentSlice`].
    shown: RecordTable<6>,
    pub(crate) inline: SpooledBytes,
    pub(crate) runs: Vec<ChecksumRun>,
    /// Checksums of the runs, concatenated.
    pub(crate) sums: SpooledBytes,
    /// By file: each is a [`FileContent`].
    contents: RecordTable<4>,
    /// Where large tables are.
    pub(crate) scratch: Scratch,
    pub(crate) counts: AreaCounts,
    /// Whether nothing was kept from an older image because it was made with other settings.
    pub(crate) old_differs: bool,
    /// Files that could not be read.
    pub(crate) lost: Lost,
}

/// Numbers of extents and inline files.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AreaCounts {
    /// Compressed ones, indexed by algorithm ID.
    pub(crate) compressed: [u64; 4],
    /// Extents copied from the source without re-encoding.
    pub(crate) kept: KeptCount,
    /// Those kept from an older image.
    pub(crate) reused: u64,
    /// Those made from content.
    pub(crate) encoded: u64,
    /// Bytes that share the extents of their source.
    pub(crate) shared_bytes: u64,
}

/// The file of this machine that a plain extent was read from.
#[derive(Debug)]
pub(super) struct PlainSource<'a> {
    pub(super) file: HostContent<'a>,
    pub(super) offset: u64,
    /// Bytes of the file in the extent.
    pub(super) len: u64,
}

/// The size of an [`Area`] at some point, to go back to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AreaMark {
    groups: usize,
    used: u64,
    extents: usize,
    /// The last extent, which may grow later.
    last: Option<NewExtent>,
    shown: usize,
    runs: usize,
    sectors: u64,
    sums: u64,
    counts: AreaCounts,
}

impl<'a> Area<'a> {
    /// An empty area for an image with this many files, some of which are already left out.
    pub(super) fn new(
        files: u32,
        lost: Lost,
        options: &Options,
        devices: &'a Devices<'a>,
    ) -> Result<Area<'a>> {
        let output = devices.output(1);
        let scratch = output.tables()?;
        let mut contents = RecordTable::new(&scratch);
        for _ in 0..files {
            contents.push(FileContent::Hole.pack());
        }
        Ok(Area {
            devices,
            profile: options.data,
            sum_bytes: options.checksum.size(),
            groups: Vec::new(),
            extents: RecordTable::new(&scratch),
            shown: RecordTable::new(&scratch),
            inline: SpooledBytes::new(output.scratch()?),
            runs: Vec::new(),
            sums: SpooledBytes::new(output.scratch()?),
            contents,
            scratch,
            counts: AreaCounts::default(),
            old_differs: false,
            lost,
        })
    }

    /// The content of a file.
    pub(crate) fn content(&self, file: FileId) -> FileContent {
        FileContent::unpack(self.contents.get(file.0 as usize))
    }

    pub(super) fn set_content(&mut self, file: FileId, content: FileContent) {
        self.contents.set(file.0 as usize, content.pack());
    }

    /// An extent, by its index.
    pub(crate) fn extent(&self, index: u32) -> NewExtent {
        NewExtent::unpack(self.extents.get(index as usize))
    }

    /// The number of extents. Each has a `u32` as index.
    pub(crate) fn extent_count(&self) -> usize {
        self.extents.len()
    }

    /// The parts of a file with [`FileContent::Extents`].
    pub(crate) fn shown(&self, from: u32, count: u32) -> impl Iterator<Item = ExtentSlice> {
        (from..from + count).map(|index| ExtentSlice::unpack(self.shown.get(index as usize)))
    }

    /// Allocates `len` bytes.
    fn place(&mut self, len: u64) -> u64 {
        let spread = &self.devices.spread;
        if self
            .groups
            .last()
            .is_none_or(|last| len > spread.room(last))
        {
            let group = spread.open_data(&self.groups, self.profile, len);
            self.groups.push(group);
        }
        let group = self.groups.last_mut().expect("there is one now");
        let at = group.start() + group.used;
        group.fill(group.used + len);
        at
    }

    /// Length of the largest extent that fits in the next place without leaving anything out.
    pub(super) fn room(&self) -> u64 {
        let spread = &self.devices.spread;
        match self.groups.last().map_or(0, |group| spread.room(group)) {
            0 => spread.room(&spread.open_data(&self.groups, self.profile, SECTOR_BYTES as u64)),
            room => room,
        }
        .min(PLAIN_BYTES_MAX)
    }

    /// Writes an extent to the next place, or shares it with its source, and returns its index.
    pub(super) fn store(
        &mut self,
        piece: &UnplacedExtent,
        source: Option<&PlainSource<'_>>,
    ) -> Result<u32> {
        let index = u32::try_from(self.extents.len())
            .map_err(|_| Error::Limit("more than 2^32 extents"))?;
        let at = self.put(piece, source)?;
        let extent = NewExtent {
            at,
            len: piece.len as u64,
            ram: piece.ram,
            compression: piece.compression,
            is_reserved: piece.is_reserved,
        };
        self.extents.push(extent.pack());
        if piece.compression != 0 {
            self.counts.compressed[usize::from(piece.compression)] += 1;
        }
        Ok(index)
    }

    /// Appends an uncompressed piece to the last extent, if that extent is uncompressed, the file's
    /// last part refers to it up to its end, this piece starts where that part ends, and the next
    /// free place follows it directly. Returns the extent and the offset of the piece in it.
    pub(super) fn grow(
        &mut self,
        offset: u64,
        piece: &UnplacedExtent,
        source: Option<&PlainSource<'_>>,
    ) -> Result<Option<(u32, u32)>> {
        let (Some(last), Some(shown)) = (self.extents.last(), self.shown.last()) else {
            return Ok(None);
        };
        let (mut last, mut shown) = (NewExtent::unpack(last), ExtentSlice::unpack(shown));
        let fits = piece.compression == 0
            && last.compression == 0
            && last.is_reserved == piece.is_reserved
            && shown.extent as usize == self.extents.len() - 1
            && u64::from(shown.skip) + shown.len == last.len
            && shown.offset + shown.len == offset
            && last.len + piece.len as u64 <= PLAIN_BYTES_MAX;
        let room = self.groups.last().is_some_and(|group| {
            group.start() + group.used == last.at + last.len
                && piece.len as u64 <= self.devices.spread.room(group)
        });
        if !fits || !room {
            return Ok(None);
        }
        self.put(piece, source)?;
        let begin = last.len as u32; // no uncompressed extent reaches 4 GiB
        last.len += piece.len as u64;
        last.ram += piece.ram;
        self.extents.set_last(last.pack());
        shown.len += piece.ram;
        self.shown.set_last(shown.pack());
        Ok(Some((shown.extent, begin)))
    }

    /// Counts extents that were not kept from the source.
    fn count(&mut self, is_reused: bool, kept: u64) {
        self.counts.reused += u64::from(is_reused);
        self.counts.encoded += u64::from(!is_reused && kept == 0);
    }

    fn put(&mut self, piece: &UnplacedExtent, source: Option<&PlainSource<'_>>) -> Result<u64> {
        let at = self.place(piece.len as u64);
        if piece.is_reserved {
            return Ok(at);
        }
        self.counts.kept += piece.kept;
        self.count(piece.is_reused, piece.kept.count);
        let shared = source.map_or(0, |source| self.share(piece, source, at));
        self.counts.shared_bytes += shared as u64;
        let rest = &piece.buffer[shared..piece.len];
        let group = self.groups.last().expect("it has the extent");
        (self.devices).write_all_at(&group.chunk, rest, at + shared as u64)?;
        if piece.sums.is_empty() {
            return Ok(at);
        }
        let sectors = (piece.sums.len() / self.sum_bytes) as u64;
        let is_new_group = group.start() == at;
        match self.runs.last_mut() {
            Some(run) if run.at + run.sectors * SECTOR_BYTES as u64 == at && !is_new_group => {
                run.sectors += sectors;
            }
            _ => self.runs.push(ChecksumRun { at, sectors }),
        }
        self.sums.append(&piece.sums)?;
        Ok(at)
    }

    /// Lets the output share the whole sectors of an extent with their source. Returns their
    /// length, or 0 if that fails.
    fn share(&self, piece: &UnplacedExtent, source: &PlainSource<'_>, at: u64) -> usize {
        let len = source.len - source.len % SECTOR_BYTES as u64;
        let PlainSource { file, offset, .. } = source;
        let group = self.groups.last().expect("it has the extent");
        let place = group.chunk.place(Logical(at), len, 0);
        // Further copies, and stripes of other devices, are written.
        if len == 0 || place.len < len || group.chunk.copies() > 1 {
            return 0;
        }
        let (output, at) = (self.devices.output(place.device), place.at.0);
        if output.clone_range(file, *offset, len, at).is_err() {
            return 0;
        }
        // The file may have changed since its checksums were computed.
        let mut found = vec![0; len as usize];
        let read = output.read_exact_at(&mut found, at);
        if read.is_ok() && found == piece.buffer[..found.len()] {
            found.len()
        } else {
            0
        }
    }

    /// Adds a part to the file whose parts start after this mark; a part that continues the
    /// previous one is merged with it.
    pub(super) fn show(&mut self, before: &AreaMark, part: ExtentSlice) {
        let last = self.shown.last().map(ExtentSlice::unpack);
        if let Some(mut last) = last.filter(|_| self.shown.len() > before.shown)
            && last.extent == part.extent
            && last.offset + last.len == part.offset
            && u64::from(last.skip) + last.len == u64::from(part.skip)
        {
            last.len += part.len;
            self.shown.set_last(last.pack());
            return;
        }
        self.shown.push(part.pack());
    }

    pub(super) fn add_inline(
        &mut self,
        bytes: &[u8],
        compression: u8,
        is_reused: bool,
    ) -> Result<FileContent> {
        self.count(is_reused, 0);
        if compression != 0 {
            self.counts.compressed[usize::from(compression)] += 1;
        }
        Ok(FileContent::Inline {
            at: self.inline.append(bytes)?,
            len: bytes.len() as u32,
            compression,
        })
    }

    pub(super) fn mark(&self) -> AreaMark {
        AreaMark {
            groups: self.groups.len(),
            used: self.groups.last().map_or(0, |group| group.used),
            extents: self.extents.len(),
            last: self.extents.last().map(NewExtent::unpack),
            shown: self.shown.len(),
            runs: self.runs.len(),
            sectors: self.runs.last().map_or(0, |run| run.sectors),
            sums: self.sums.len(),
            counts: self.counts,
        }
    }

    /// The parts added since the mark.
    pub(super) fn content_since(&self, mark: &AreaMark) -> Result<FileContent> {
        if u32::try_from(self.shown.len()).is_err() {
            return Err(Error::Limit("more than 2^32 parts of files"));
        }
        let count = self.shown.len() - mark.shown;
        Ok(match count {
            0 => FileContent::Hole,
            _ => FileContent::Extents {
                from: mark.shown as u32,
                count: count as u32,
            },
        })
    }

    /// Removes everything stored since the mark; its space is reused.
    pub(super) fn take_back(&mut self, mark: AreaMark) {
        self.groups.truncate(mark.groups);
        if let Some(group) = self.groups.last_mut() {
            group.fill(mark.used);
        }
        self.extents.truncate(mark.extents);
        if let Some(last) = mark.last {
            self.extents.set_last(last.pack());
        }
        self.shown.truncate(mark.shown);
        self.runs.truncate(mark.runs);
        if let Some(run) = self.runs.last_mut() {
            run.sectors = mark.sectors;
        }
        self.sums.truncate(mark.sums);
        self.counts = mark.counts;
    }

    /// Records that a file will not be in the image.
    pub(crate) fn lose(&mut self, file: FileId, error: Error) {
        self.set_content(file, FileContent::Hole);
        self.lost.lose(file, error);
    }

    pub(crate) fn is_lost(&self, file: FileId) -> bool {
        self.lost.has(file)
    }
}
