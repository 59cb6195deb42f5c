//! The content of files on its way into an image: cut into extents, encoded on all threads, placed in order.

use std::sync::{Mutex, PoisonError};

use codec::{Codec, Decoder, Encoder, Settings};
use tree::{
    Duplicates, Error, Extent, ExtentKind, FileId, FileKind, FileSystem, Inventory, Output,
    Parallel, Progress, Result, ordered,
};

use crate::checksum::ChecksumType;
use crate::chunk::STRIPE_BYTES;
use crate::compression::Compression;
use crate::heuristic::is_compressible;
use crate::layout::{GROUP_BYTES_MAX, GROUPS_BEGIN, Group, next_reserved};
use crate::raw::block_group;

/// Bytes of a sector, the unit of data.
pub(crate) const SECTOR_BYTES: usize = 4096;
/// Bytes of content that one extent encodes, and that one job reads.
const PIECE_BYTES: u64 = 128 << 10;
/// Bytes that a tree may hold of a file in place of an extent (the kernel's `max_inline`).
const INLINE_BYTES_MAX: usize = 2048;
/// Bytes of the largest extent that is not compressed.
const PLAIN_BYTES_MAX: u64 = 128 << 20;
/// Small files in one job.
const BATCH: usize = 32;
/// `FS_NOCOW_FL` of linux/fs.h.
pub(crate) const NOCOW: u32 = 0x0080_0000;

/// How content is encoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Encoding {
    pub(crate) settings: Option<Settings>,
    /// Whether to try what the heuristic says is not worth it.
    pub(crate) force: bool,
    pub(crate) checksum: ChecksumType,
    pub(crate) inline_max: usize,
    pub(crate) verify: bool,
}

impl Encoding {
    pub(crate) fn inline_max(nodesize: u32) -> usize {
        // Behind the head of the record.
        INLINE_BYTES_MAX.min(crate::builder::item_bytes_max(nodesize) - 21)
    }
}

/// An extent, as it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) at: u64,
    /// Bytes at that place.
    pub(crate) len: u64,
    /// Bytes that they decode to.
    pub(crate) ram: u64,
    /// The algorithm's number.
    pub(crate) compression: u8,
}

/// A part of a file, and the extent that it shows from its begin on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Index of the extent.
    pub(crate) extent: u32,
}

/// A file's content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Content {
    /// None, or nothing but a hole.
    #[default]
    Hole,
    /// In the tree.
    Inline {
        /// Where it begins in [`Area::inline`], and its length there.
        at: u64,
        len: u32,
        /// The algorithm's number.
        compression: u8,
    },
    /// In extents: from which on in [`Area::shown`], and how many.
    Extents { from: u32, count: u32 },
}

/// Consecutive sectors with checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) at: u64,
    pub(crate) sectors: u64,
}

/// All data of an image.
#[derive(Debug, Default)]
pub(crate) struct Area {
    /// Without the last group's length, until [`Area::finish`].
    pub(crate) groups: Vec<Group>,
    pub(crate) extents: Vec<Stored>,
    pub(crate) shown: Vec<Shown>,
    pub(crate) inline: Vec<u8>,
    pub(crate) runs: Vec<Run>,
    /// Checksums of the runs, one behind the other.
    pub(crate) sums: Vec<u8>,
    /// By file.
    pub(crate) contents: Vec<Content>,
    /// Extents and inline files that are stored compressed.
    pub(crate) compressed: u64,
}

/// The number that an algorithm has on disk.
fn number(codec: Codec) -> u8 {
    match codec {
        Codec::Zlib => Compression::Zlib.number(),
        Codec::Lzo => Compression::Lzo.number(),
        Codec::Zstd => Compression::Zstd.number(),
        Codec::Lz4 | Codec::Xz | Codec::Lzma => unreachable!("refused among the options"),
    }
}

impl Area {
    /// Finds a place of `len` bytes.
    fn place(&mut self, len: u64) -> u64 {
        if let Some(group) = self.groups.last_mut() {
            let end = (group.start + GROUP_BYTES_MAX).min(next_reserved(group.start));
            let at = group.start + group.used;
            if at + len <= end {
                group.used += len;
                return at;
            }
        }
        let mut at = self.end();
        if at + len > next_reserved(at) {
            at = next_reserved(at) + STRIPE_BYTES;
        }
        self.close();
        self.groups.push(Group {
            start: at,
            len: 0,
            flags: block_group::DATA,
            used: len,
            stripes: vec![at],
        });
        at
    }

    /// Where the next group can begin.
    pub(crate) fn end(&self) -> u64 {
        match self.groups.last() {
            Some(group) => group.start + group.used.next_multiple_of(STRIPE_BYTES),
            None => GROUPS_BEGIN,
        }
    }

    /// Gives the last group its length.
    pub(crate) fn close(&mut self) {
        if let Some(group) = self.groups.last_mut() {
            group.len = group.used.next_multiple_of(STRIPE_BYTES);
        }
    }

    /// Adds checksums of what lies at that place.
    fn add_sums(&mut self, at: u64, sums: &[u8], sum_bytes: usize) {
        let sectors = (sums.len() / sum_bytes) as u64;
        let is_new_group = self.groups.last().is_some_and(|group| group.start == at);
        match self.runs.last_mut() {
            Some(run) if run.at + run.sectors * SECTOR_BYTES as u64 == at && !is_new_group => {
                run.sectors += sectors;
            }
            _ => self.runs.push(Run { at, sectors }),
        }
        self.sums.extend_from_slice(sums);
    }
}

/// One thing that a worker does.
enum Job {
    /// Files that may fit in the tree.
    Small(Vec<FileId>),
    /// A part of a file: `len` bytes of it, from a sector's begin on.
    Piece {
        file: FileId,
        offset: u64,
        len: usize,
    },
    /// All parts of the file are done.
    End(FileId),
}

/// What came of a job.
enum Done {
    Small(Vec<(FileId, Small)>),
    Piece {
        file: FileId,
        offset: u64,
        len: usize,
        piece: Piece,
    },
    End(FileId),
}

enum Small {
    Hole,
    Inline { bytes: Vec<u8>, compression: u8 },
    Extent(Piece),
}

/// An extent before it has a place.
struct Piece {
    /// The extent is the buffer's beginning.
    buffer: Vec<u8>,
    len: usize,
    ram: u64,
    compression: u8,
    /// Empty for a file without checksums.
    sums: Vec<u8>,
}

/// What a worker keeps from job to job.
struct Worker {
    encoder: Option<Encoder>,
    decoder: Decoder,
    content: Vec<u8>,
    scratch: Vec<u8>,
}

struct Work<'a> {
    fs: &'a dyn FileSystem,
    inventory: &'a Inventory,
    encoding: Encoding,
    /// Buffers of a piece's size that wait to be used again.
    buffers: Mutex<Vec<Vec<u8>>>,
}

/// Encodes and writes the content of all files.
pub(crate) fn write(
    fs: &dyn FileSystem,
    inventory: &Inventory,
    duplicates: &Duplicates,
    encoding: Encoding,
    parallel: Parallel,
    progress: &dyn Progress,
    output: &Output,
) -> Result<Area> {
    let mut area = Area {
        contents: vec![Content::Hole; inventory.file_count() as usize],
        ..Area::default()
    };
    let work = Work {
        fs,
        inventory,
        encoding,
        buffers: Mutex::default(),
    };
    let sum_bytes = encoding.checksum.size();
    // Where the list of the open file begins, and its last extent if more may be added to it.
    let mut from = 0;
    let mut open: Option<FileId> = None;
    ordered(
        parallel,
        jobs(fs, inventory, duplicates),
        || work.worker(),
        |worker, job| work.work(worker, job?),
        |done| {
            match done {
                Done::Small(files) => {
                    for (file, small) in files {
                        progress.advance(1, inventory.size(file));
                        area.contents[file.0 as usize] = match small {
                            Small::Hole => Content::Hole,
                            Small::Inline { bytes, compression } => {
                                let at = area.inline.len() as u64;
                                area.inline.extend_from_slice(&bytes);
                                area.compressed += u64::from(compression != 0);
                                Content::Inline {
                                    at,
                                    len: bytes.len() as u32,
                                    compression,
                                }
                            }
                            Small::Extent(piece) => {
                                let shown = area.shown.len();
                                let extent = store(&mut area, output, &piece, sum_bytes)?;
                                area.shown.push(Shown {
                                    offset: 0,
                                    len: piece.ram,
                                    extent,
                                });
                                work.recycle(piece.buffer);
                                Content::Extents {
                                    from: shown as u32,
                                    count: 1,
                                }
                            }
                        };
                    }
                    open = None;
                }
                Done::Piece {
                    file,
                    offset,
                    len,
                    piece,
                } => {
                    progress.advance(0, len as u64);
                    let grown =
                        open == Some(file) && grow(&mut area, offset, &piece, output, sum_bytes)?;
                    if !grown {
                        let extent = store(&mut area, output, &piece, sum_bytes)?;
                        area.shown.push(Shown {
                            offset,
                            len: piece.ram,
                            extent,
                        });
                    }
                    open = Some(file);
                    work.recycle(piece.buffer);
                }
                Done::End(file) => {
                    progress.advance(1, 0);
                    let count = area.shown.len() - from;
                    if u32::try_from(area.shown.len()).is_err() {
                        return Err(Error::Limit("more than 2^32 parts of files"));
                    }
                    if count > 0 {
                        area.contents[file.0 as usize] = Content::Extents {
                            from: from as u32,
                            count: count as u32,
                        };
                    }
                    open = None;
                }
            }
            if open.is_none() {
                from = area.shown.len();
            }
            Ok(())
        },
    )?;
    area.close();
    for file in inventory.files() {
        if let Some(original) = original(inventory, duplicates, file) {
            area.contents[file.0 as usize] = area.contents[original.0 as usize];
        }
    }
    Ok(area)
}

/// The file whose extents this one shows, if it has none of its own.
fn original(inventory: &Inventory, duplicates: &Duplicates, file: FileId) -> Option<FileId> {
    let original = duplicates.original(file)?;
    // Files that are written in place share nothing.
    let own = |file: FileId| inventory.metadata(file).attributes.0 & NOCOW != 0;
    (!own(file) && !own(original)).then_some(original)
}

/// Writes an extent to its place.
fn store(area: &mut Area, output: &Output, piece: &Piece, sum_bytes: usize) -> Result<u32> {
    let index =
        u32::try_from(area.extents.len()).map_err(|_| Error::Limit("more than 2^32 extents"))?;
    let at = area.place(piece.len as u64);
    output.write_all_at(&piece.buffer[..piece.len], at)?;
    if !piece.sums.is_empty() {
        area.add_sums(at, &piece.sums, sum_bytes);
    }
    area.extents.push(Stored {
        at,
        len: piece.len as u64,
        ram: piece.ram,
        compression: piece.compression,
    });
    area.compressed += u64::from(piece.compression != 0);
    Ok(index)
}

/// Adds a plain piece to the last extent, if that is a plain one of the same file that ends where this begins, and the
/// next place is right behind it.
fn grow(
    area: &mut Area,
    offset: u64,
    piece: &Piece,
    output: &Output,
    sum_bytes: usize,
) -> Result<bool> {
    let (Some(last), Some(shown)) = (area.extents.last().copied(), area.shown.last().copied())
    else {
        return Ok(false);
    };
    let fits = piece.compression == 0
        && last.compression == 0
        && shown.offset + shown.len == offset
        && last.len + piece.len as u64 <= PLAIN_BYTES_MAX;
    let room = area.groups.last().is_some_and(|group| {
        let end = (group.start + GROUP_BYTES_MAX).min(next_reserved(group.start));
        group.start + group.used + piece.len as u64 <= end
            && group.start + group.used == last.at + last.len
    });
    if !fits || !room {
        return Ok(false);
    }
    let at = area.place(piece.len as u64);
    output.write_all_at(&piece.buffer[..piece.len], at)?;
    if !piece.sums.is_empty() {
        area.add_sums(at, &piece.sums, sum_bytes);
    }
    if let Some(extent) = area.extents.last_mut() {
        extent.len += piece.len as u64;
        extent.ram += piece.ram;
    }
    if let Some(shown) = area.shown.last_mut() {
        shown.len += piece.ram;
    }
    Ok(true)
}

/// The jobs in the order of the files' numbers; those of a file follow each other.
fn jobs<'a>(
    fs: &'a dyn FileSystem,
    inventory: &'a Inventory,
    duplicates: &'a Duplicates,
) -> impl Iterator<Item = Result<Job>> + 'a {
    let mut small = Vec::new();
    let with_end = inventory.files().map(Some).chain(std::iter::once(None));
    with_end.flat_map(move |file| {
        let Some(file) = file else {
            let rest = std::mem::take(&mut small);
            let job = (!rest.is_empty()).then_some(Ok(Job::Small(rest)));
            return job.into_iter().chain(None.into_iter().flatten());
        };
        let size = inventory.size(file);
        let is_stored = inventory.kind(file) == FileKind::Regular
            && size > 0
            && original(inventory, duplicates, file).is_none();
        if !is_stored {
            return None.into_iter().chain(None.into_iter().flatten());
        }
        if size < SECTOR_BYTES as u64 {
            small.push(file);
            let job = (small.len() == BATCH).then(|| Ok(Job::Small(std::mem::take(&mut small))));
            return job.into_iter().chain(None.into_iter().flatten());
        }
        let pieces = Pieces {
            fs,
            inventory,
            file,
            size,
            offset: 0,
            end: 0,
            asked: 0,
            extents: Vec::new().into_iter(),
            state: State::Pieces,
        };
        None.into_iter().chain(Some(pieces).into_iter().flatten())
    })
}

#[derive(PartialEq)]
enum State {
    Pieces,
    End,
    Done,
}

/// The jobs of one file's data.
struct Pieces<'a> {
    fs: &'a dyn FileSystem,
    inventory: &'a Inventory,
    file: FileId,
    size: u64,
    /// Where the next piece begins, and where the data that it is in ends.
    offset: u64,
    end: u64,
    /// Up to where extents are known.
    asked: u64,
    extents: std::vec::IntoIter<Extent>,
    state: State,
}

impl Pieces<'_> {
    /// Moves on to the next data behind the last, in whole sectors; `false` when only a hole is left.
    fn next_data(&mut self) -> Result<bool> {
        let sector = SECTOR_BYTES as u64;
        while self.end <= self.offset {
            let Some(extent) = self.extents.next() else {
                if self.asked >= self.size {
                    return Ok(false);
                }
                let extents = self.fs.extents(self.inventory.ino(self.file), self.asked)?;
                let reach = extents
                    .last()
                    .map_or(0, |extent| extent.offset + extent.len);
                if reach <= self.asked {
                    return Err(Error::InvalidInput(
                        "the file became shorter while it was read",
                    ));
                }
                self.asked = reach;
                self.extents = extents.into_iter();
                continue;
            };
            if extent.kind == ExtentKind::Hole {
                continue;
            }
            let end = (extent.offset + extent.len).min(self.size);
            self.offset = self.offset.max(extent.offset - extent.offset % sector);
            self.end = end.next_multiple_of(sector);
        }
        // What follows without a hole belongs to it.
        let rest = self.extents.as_slice();
        let more = rest
            .iter()
            .take_while(|extent| extent.kind != ExtentKind::Hole && extent.offset <= self.end);
        if let Some(last) = more.last() {
            let end = (last.offset + last.len).min(self.size);
            self.end = self.end.max(end.next_multiple_of(sector));
        }
        Ok(true)
    }
}

impl Iterator for Pieces<'_> {
    type Item = Result<Job>;

    fn next(&mut self) -> Option<Result<Job>> {
        let file = self.file;
        match self.state {
            State::Done => return None,
            State::End => {
                self.state = State::Done;
                return Some(Ok(Job::End(file)));
            }
            State::Pieces => {}
        }
        match self.next_data() {
            Ok(true) => {}
            Ok(false) => {
                self.state = State::Done;
                return Some(Ok(Job::End(file)));
            }
            Err(error) => {
                self.state = State::Done;
                let path = self.inventory.path(self.inventory.first_name(file));
                return Some(Err(error.in_file("read", &path)));
            }
        }
        let offset = self.offset;
        let border = offset - offset % PIECE_BYTES + PIECE_BYTES;
        self.offset = border.min(self.end);
        if self.offset >= self.size {
            self.state = State::End;
        }
        Some(Ok(Job::Piece {
            file,
            offset,
            len: (self.offset.min(self.size) - offset) as usize,
        }))
    }
}

impl Work<'_> {
    fn worker(&self) -> Worker {
        Worker {
            encoder: (self.encoding.settings).and_then(|settings| Encoder::new(&settings).ok()),
            decoder: Decoder::new(),
            content: vec![0; PIECE_BYTES as usize],
            scratch: vec![0; PIECE_BYTES as usize],
        }
    }

    fn recycle(&self, buffer: Vec<u8>) {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.push(buffer);
    }

    fn buffer(&self) -> Vec<u8> {
        let mut buffers = self.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        buffers
            .pop()
            .unwrap_or_else(|| vec![0; PIECE_BYTES as usize])
    }

    fn work(&self, worker: &mut Worker, job: Job) -> Result<Done> {
        Ok(match job {
            Job::End(file) => Done::End(file),
            Job::Small(files) => {
                let small = files.into_iter().map(|file| {
                    let small = self.small(worker, file);
                    let small = small.map_err(|error| self.in_file(error, file))?;
                    Ok((file, small))
                });
                Done::Small(small.collect::<Result<_>>()?)
            }
            Job::Piece { file, offset, len } => {
                let piece = self.read(worker, file, offset, len);
                let piece = piece.and_then(|()| self.piece(worker, file, len));
                Done::Piece {
                    file,
                    offset,
                    len,
                    piece: piece.map_err(|error| self.in_file(error, file))?,
                }
            }
        })
    }

    fn in_file(&self, error: Error, file: FileId) -> Error {
        let path = self.inventory.path(self.inventory.first_name(file));
        error.in_file("read", &path)
    }

    fn read(&self, worker: &mut Worker, file: FileId, offset: u64, len: usize) -> Result<()> {
        let ino = self.inventory.ino(file);
        let read = self.fs.read_at(ino, offset, &mut worker.content[..len])?;
        if read < len {
            return Err(Error::InvalidInput(
                "the file became shorter while it was read",
            ));
        }
        Ok(())
    }

    /// Whether a file is written in place: it has neither compression nor checksums.
    fn is_nocow(&self, file: FileId) -> bool {
        self.inventory.metadata(file).attributes.0 & NOCOW != 0
    }

    fn small(&self, worker: &mut Worker, file: FileId) -> Result<Small> {
        let len = self.inventory.size(file) as usize;
        self.read(worker, file, 0, len)?;
        if worker.content[..len].iter().all(|&byte| byte == 0) {
            let extents = self.fs.extents(self.inventory.ino(file), 0)?;
            if extents.iter().all(|extent| extent.kind == ExtentKind::Hole) {
                return Ok(Small::Hole);
            }
        }
        if let Some(settings) = self.encoding.settings
            && !self.is_nocow(file)
        {
            let codec = settings.codec();
            let room = self.encoding.inline_max.min(len - 1);
            if let Some(stored) = encode(worker, codec, len, room) {
                let bytes = worker.scratch[..stored].to_vec();
                self.verify(worker, codec, &bytes, len)?;
                return Ok(Small::Inline {
                    bytes,
                    compression: number(codec),
                });
            }
        }
        if len <= self.encoding.inline_max {
            return Ok(Small::Inline {
                bytes: worker.content[..len].to_vec(),
                compression: 0,
            });
        }
        Ok(Small::Extent(self.piece(worker, file, len)?))
    }

    /// Makes an extent of the first `len` bytes of the worker's content.
    fn piece(&self, worker: &mut Worker, file: FileId, len: usize) -> Result<Piece> {
        let ram = len.next_multiple_of(SECTOR_BYTES);
        worker.content[len..ram].fill(0);
        let nocow = self.is_nocow(file);
        let mut buffer = self.buffer();
        let mut encoded = None;
        if let Some(settings) = self.encoding.settings
            && !nocow
            && ram > SECTOR_BYTES
            && (self.encoding.force || is_compressible(&worker.content[..ram]))
        {
            let codec = settings.codec();
            // It has to save a sector.
            if let Some(stored) = encode(worker, codec, ram, ram - SECTOR_BYTES) {
                std::mem::swap(&mut buffer, &mut worker.scratch);
                self.verify(worker, codec, &buffer[..stored], ram)?;
                encoded = Some((stored, number(codec)));
            }
        }
        let (len, compression) = match encoded {
            Some((stored, number)) => {
                let padded = stored.next_multiple_of(SECTOR_BYTES);
                buffer[stored..padded].fill(0);
                (padded, number)
            }
            None => {
                std::mem::swap(&mut buffer, &mut worker.content);
                (ram, 0)
            }
        };
        let mut sums = Vec::new();
        if !nocow {
            let size = self.encoding.checksum.size();
            sums.reserve_exact(len / SECTOR_BYTES * size);
            for sector in buffer[..len].chunks(SECTOR_BYTES) {
                sums.extend_from_slice(&self.encoding.checksum.of(sector)[..size]);
            }
        }
        Ok(Piece {
            buffer,
            len,
            ram: ram as u64,
            compression,
            sums,
        })
    }

    /// Decodes what was encoded, and compares.
    fn verify(&self, worker: &mut Worker, codec: Codec, stored: &[u8], len: usize) -> Result<()> {
        if !self.encoding.verify {
            return Ok(());
        }
        let Worker {
            decoder,
            content,
            scratch,
            ..
        } = worker;
        let is_equal = if codec == Codec::Lzo {
            let mut from = 4;
            content[..len].chunks(SECTOR_BYTES).all(|sector| {
                if SECTOR_BYTES - from % SECTOR_BYTES < 4 {
                    from = from.next_multiple_of(SECTOR_BYTES);
                }
                let Some(head) = stored.get(from..).and_then(<[u8]>::first_chunk) else {
                    return false;
                };
                let end = from + 4 + u32::from_le_bytes(*head) as usize;
                let Some(segment) = stored.get(from + 4..end) else {
                    return false;
                };
                from = end;
                let decoded = &mut scratch[..sector.len()];
                decoder.decompress(codec, decoded, segment) == Ok(sector.len()) && decoded == sector
            })
        } else {
            let decoded = &mut scratch[..len];
            decoder.decompress(codec, decoded, stored) == Ok(len) && decoded == &content[..len]
        };
        match is_equal {
            true => Ok(()),
            false => Err(Error::InvalidInput(
                "an extent does not decode to what was encoded",
            )),
        }
    }
}

/// Encodes the first `len` bytes of the worker's content into its scratch, in btrfs' framing; `None` if that takes more
/// than `room` bytes.
fn encode(worker: &mut Worker, codec: Codec, len: usize, room: usize) -> Option<usize> {
    let Worker {
        encoder,
        content,
        scratch,
        ..
    } = worker;
    let encoder = encoder.as_mut()?;
    if codec != Codec::Lzo {
        return encoder.compress(&mut scratch[..room], &content[..len]);
    }
    let mut at = 4;
    for sector in content[..len].chunks(SECTOR_BYTES) {
        // A length never crosses the border of a sector.
        let left = SECTOR_BYTES - at % SECTOR_BYTES;
        if left < 4 {
            scratch[at..at + left].fill(0);
            at += left;
        }
        let payload = scratch.get_mut(at + 4..room)?;
        let stored = encoder.compress(payload, sector)?;
        scratch[at..at + 4].copy_from_slice(&(stored as u32).to_le_bytes());
        at += 4 + stored;
    }
    scratch[..4].copy_from_slice(&(at as u32).to_le_bytes());
    Some(at)
}
