//! The workers' job: read a part of a file and compress it, or copy it as the source stores it.

use codec::{Decoder, Encoder};
use tree::{
    Checksum, ContentReader, Corrupt, Encoding, Error, Extent, ExtentId, ExtentKind, FileId,
    FileSystem, Inventory, Kept, Result,
};

use super::choice::{Choice, Chooser};
use super::share::{is_nocow, reserved};
use crate::compression::Compression;
use crate::describe::Described;
use crate::heuristic::is_compressible;
use crate::layout::SECTOR_BYTES;
use crate::options::Options;

/// Bytes of content in one compressed extent, and in one job.
pub(super) const PIECE_BYTES: u64 = 128 << 10;
/// The most bytes of a file that are stored inline, in a tree instead of an extent (the kernel's `max_inline`).
const INLINE_BYTES_MAX: usize = 2048;

/// A job for a worker.
pub(super) enum Job {
    /// Files that may be small enough to store inline.
    Small(Vec<FileId>),
    /// A part of a file: `len` bytes, starting at a sector boundary.
    Piece {
        file: FileId,
        offset: u64,
        len: usize,
        /// Whether other files may refer to it.
        is_numbered: bool,
    },
    /// A compressed extent of the source that nothing has referred to yet.
    Keep {
        file: FileId,
        extent: Extent,
        stored: Encoding,
        is_numbered: bool,
    },
    /// A part that refers to a numbered part or a kept extent, starting at `skip`.
    Shared {
        file: FileId,
        offset: u64,
        len: u64,
        number: u32,
        skip: u32,
    },
    /// A preallocated part, starting at `at` in the space that the source reserved.
    Reserve {
        file: FileId,
        offset: u64,
        len: u64,
        id: ExtentId,
        at: u64,
    },
    /// A small file that refers to the same stored bytes as another one.
    Same { file: FileId, original: FileId },
    /// The source cannot tell where the file's data is.
    Unreadable { file: FileId, error: Error },
    /// All parts of the file are done.
    End(FileId),
}

/// The result of a job.
pub(super) enum Done {
    Small(Vec<(FileId, Result<Small>)>),
    Piece {
        file: FileId,
        offset: u64,
        len: u64,
        is_numbered: bool,
        piece: Result<Piece>,
    },
    Shared {
        file: FileId,
        offset: u64,
        len: u64,
        number: u32,
        skip: u32,
    },
    Reserve {
        file: FileId,
        offset: u64,
        len: u64,
        id: ExtentId,
        at: u64,
    },
    Same {
        file: FileId,
        original: FileId,
    },
    Unreadable {
        file: FileId,
        error: Error,
    },
    End(FileId),
}

pub(super) enum Small {
    Hole,
    /// Preallocated: this sector of the space that the source reserved.
    Reserved {
        id: ExtentId,
        at: u64,
    },
    Inline {
        bytes: Vec<u8>,
        compression: u8,
    },
    Extent(Piece),
}

/// An extent that has no place yet.
pub(super) struct Piece {
    /// The extent is the start of the buffer.
    pub(super) buffer: Vec<u8>,
    pub(super) len: usize,
    pub(super) ram: u64,
    /// Offset of the file's part in the decoded data.
    pub(super) skip: u32,
    pub(super) compression: u8,
    /// Empty for a file without checksums.
    pub(super) sums: Vec<u8>,
    /// It is stored exactly as in the source.
    pub(super) kept: Kept,
    /// Preallocated: the buffer is empty, and nothing is written.
    pub(super) is_reserved: bool,
}

impl Piece {
    /// A preallocated extent.
    pub(super) fn reserved(len: u64) -> Piece {
        Piece {
            buffer: Vec::new(),
            len: len as usize,
            ram: len,
            skip: 0,
            compression: 0,
            sums: Vec::new(),
            kept: Kept::default(),
            is_reserved: true,
        }
    }
}

/// State that a worker keeps between jobs.
pub(super) struct Worker {
    /// Indexed by [`Choice::encoder`].
    encoders: Vec<Option<Encoder>>,
    decoder: Decoder,
    content: Vec<u8>,
    scratch: Vec<u8>,
}

pub(super) struct Work<'a> {
    /// Buffers of the size of a piece.
    pub(super) content: ContentReader<'a>,
    options: &'a Options,
    chooser: Chooser<'a>,
    inline_max: usize,
}

/// The most bytes of a file that fit inline in a tree block of this size.
fn inline_max(nodesize: u32) -> usize {
    // After the header of the record.
    INLINE_BYTES_MAX.min(crate::builder::item_bytes_max(nodesize) - 21)
}

impl<'a> Work<'a> {
    pub(super) fn new(
        fs: &'a dyn FileSystem,
        inventory: &'a Inventory,
        described: &'a Described,
        options: &'a Options,
    ) -> Self {
        let skip_unreadable = options.skip_unreadable;
        Work {
            content: ContentReader::new(fs, inventory, PIECE_BYTES as usize, skip_unreadable),
            options,
            chooser: Chooser {
                inventory,
                described,
                options,
            },
            inline_max: inline_max(options.nodesize),
        }
    }

    pub(super) fn worker(&self) -> Worker {
        Worker {
            encoders: (0..self.chooser.encoders()).map(|_| None).collect(),
            decoder: Decoder::new(),
            content: vec![0; PIECE_BYTES as usize],
            scratch: vec![0; PIECE_BYTES as usize],
        }
    }

    pub(super) fn work(&self, worker: &mut Worker, job: Job) -> Result<Done> {
        Ok(match job {
            Job::End(file) => Done::End(file),
            Job::Same { file, original } => Done::Same { file, original },
            Job::Reserve {
                file,
                offset,
                len,
                id,
                at,
            } => Done::Reserve {
                file,
                offset,
                len,
                id,
                at,
            },
            Job::Shared {
                file,
                offset,
                len,
                number,
                skip,
            } => Done::Shared {
                file,
                offset,
                len,
                number,
                skip,
            },
            Job::Unreadable { file, error } => Done::Unreadable {
                file,
                error: self
                    .content
                    .forgive(file, Err::<(), _>(error))?
                    .expect_err("it is one"),
            },
            Job::Small(files) => {
                let small = files.into_iter().map(|file| {
                    let small = self.small(worker, file);
                    Ok((file, self.content.forgive(file, small)?))
                });
                Done::Small(small.collect::<Result<_>>()?)
            }
            Job::Piece {
                file,
                offset,
                len,
                is_numbered,
            } => {
                let piece = self.content.read(file, offset, &mut worker.content[..len]);
                let piece = piece.and_then(|()| self.piece(worker, file, len));
                Done::Piece {
                    file,
                    offset,
                    len: len as u64,
                    is_numbered,
                    piece: self.content.forgive(file, piece)?,
                }
            }
            Job::Keep {
                file,
                extent,
                stored,
                is_numbered,
            } => Done::Piece {
                file,
                offset: extent.offset,
                len: extent.len,
                is_numbered,
                piece: self
                    .content
                    .forgive(file, self.keep(worker, file, &extent, &stored))?,
            },
        })
    }

    fn small(&self, worker: &mut Worker, file: FileId) -> Result<Small> {
        let inventory = self.content.inventory();
        let len = inventory.size(file) as usize;
        if self.options.keep_extents
            && let Some(small) = self.keep_inline(worker, file, len)?
        {
            return Ok(small);
        }
        self.content.read(file, 0, &mut worker.content[..len])?;
        if worker.content[..len].iter().all(|&byte| byte == 0) {
            let extents = self.content.fs().extents(inventory.ino(file), 0)?;
            if !extents.iter().any(|extent| extent.kind.has_data()) {
                return Ok(match extents.first().and_then(reserved) {
                    Some((id, at)) => Small::Reserved { id, at },
                    None => Small::Hole,
                });
            }
        }
        if let Some(choice) = self.chooser.choose(file) {
            let compression = Compression::of_settings(&choice.settings);
            let room = self.inline_max.min(len - 1);
            if let Some(stored) = encode(worker, &choice, len, room) {
                let bytes = worker.scratch[..stored].to_vec();
                self.verify(worker, compression, &bytes, len)?;
                return Ok(Small::Inline {
                    bytes,
                    compression: compression.number(),
                });
            }
        }
        if len <= self.inline_max {
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
        let mut buffer = self.content.buffer();
        let mut encoded = None;
        if ram > SECTOR_BYTES
            && let Some(choice) = self.chooser.choose(file)
            && (choice.is_forced || is_compressible(&worker.content[..ram]))
        {
            let compression = Compression::of_settings(&choice.settings);
            // Compression must save at least a sector.
            if let Some(stored) = encode(worker, &choice, ram, ram - SECTOR_BYTES) {
                std::mem::swap(&mut buffer, &mut worker.scratch);
                self.verify(worker, compression, &buffer[..stored], ram)?;
                encoded = Some((stored, compression.number()));
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
        let sums = if is_nocow(self.content.inventory(), file) {
            Vec::new()
        } else {
            self.sums(&buffer[..len])
        };
        Ok(Piece {
            buffer,
            len,
            ram: ram as u64,
            skip: 0,
            compression,
            sums,
            kept: Kept::default(),
            is_reserved: false,
        })
    }

    fn sums(&self, stored: &[u8]) -> Vec<u8> {
        let size = self.options.checksum.size();
        let mut sums = Vec::with_capacity(stored.len() / SECTOR_BYTES * size);
        for sector in stored.chunks(SECTOR_BYTES) {
            sums.extend_from_slice(&self.options.checksum.of(sector)[..size]);
        }
        sums
    }

    /// Copies a compressed extent as it is stored, or re-encodes the part that the file refers to if not every btrfs
    /// reader could decode the stored data.
    fn keep(
        &self,
        worker: &mut Worker,
        file: FileId,
        extent: &Extent,
        stored: &Encoding,
    ) -> Result<Piece> {
        let mut buffer = self.content.buffer();
        let (len, checksum) = self.content.read_encoded(file, extent, &mut buffer)?;
        let ram = stored.unencoded_len.next_multiple_of(SECTOR_BYTES as u64);
        let padded = len.next_multiple_of(SECTOR_BYTES);
        let compression = Compression::of(stored.algorithm, SECTOR_BYTES as u32);
        let compression = compression.filter(|&compression| {
            padded < ram as usize
                && self.is_readable(
                    worker,
                    compression,
                    checksum,
                    &buffer[..padded],
                    ram as usize,
                )
        });
        let Some(compression) = compression else {
            let found = codec::first_bytes(&buffer[..len]);
            self.content.recycle(buffer);
            let len = extent.len as usize;
            self.content
                .read(file, extent.offset, &mut worker.content[..len])?;
            if stored.unencoded_offset > 0 || extent.len < stored.unencoded_len {
                return Err(Error::Corrupt(Corrupt {
                    what: "a stored extent does not decode",
                    at: extent.id.map_or(0, |id| id.0),
                    got: found,
                }));
            }
            return self.piece(worker, file, len);
        };
        Ok(Piece {
            sums: self.sums(&buffer[..padded]),
            buffer,
            len: padded,
            ram,
            skip: stored.unencoded_offset as u32,
            compression: compression.number(),
            kept: Kept::one(checksum, self.options.verify.decodes_kept(checksum)),
            is_reserved: false,
        })
    }

    /// Copies a file's only extent as it is stored, if it is compressed and inline.
    fn keep_inline(&self, worker: &mut Worker, file: FileId, len: usize) -> Result<Option<Small>> {
        let ino = self.content.inventory().ino(file);
        let extents = self.content.fs().extents(ino, 0)?;
        let [extent] = extents.as_slice() else {
            return Ok(None);
        };
        let ExtentKind::Encoded(stored) = extent.kind else {
            return Ok(None);
        };
        let compression = Compression::of(stored.algorithm, SECTOR_BYTES as u32);
        let (Some(compression), None) = (compression, extent.id) else {
            return Ok(None);
        };
        if extent.len != len as u64
            || stored.unencoded_offset > 0
            || stored.stored_len > self.inline_max.min(len - 1) as u64
            || is_nocow(self.content.inventory(), file)
        {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let checksum = self.content.fs().read_encoded(ino, extent, &mut bytes)?;
        Ok(self
            .is_readable(worker, compression, checksum, &bytes, len)
            .then(|| Small::Inline {
                bytes,
                compression: compression.number(),
            }))
    }

    /// Whether every btrfs reader can decode this data. Where its checksum matched, its frame is looked at and not decoded.
    fn is_readable(
        &self,
        worker: &mut Worker,
        compression: Compression,
        checksum: Option<Checksum>,
        stored: &[u8],
        len: usize,
    ) -> bool {
        let dst = &mut worker.scratch[..len];
        let algorithm = compression.algorithm(SECTOR_BYTES as u32);
        if self.options.verify.decodes_kept(checksum) {
            let decoded = worker.decoder.decompress_extent(algorithm, dst, stored);
            decoded.is_ok()
        } else {
            algorithm.is_extent(stored)
        }
    }

    /// Decodes the encoded data and compares it.
    fn verify(
        &self,
        worker: &mut Worker,
        compression: Compression,
        stored: &[u8],
        len: usize,
    ) -> Result<()> {
        if !self.options.verify.decodes_encoded() {
            return Ok(());
        }
        let Worker {
            decoder,
            content,
            scratch,
            ..
        } = worker;
        let decoded = &mut scratch[..len];
        let algorithm = compression.algorithm(SECTOR_BYTES as u32);
        let result = decoder.decompress_extent(algorithm, decoded, stored);
        if result.is_err() || decoded != &content[..len] {
            return Err(Error::Unverified(
                "an extent does not decode to what was encoded",
            ));
        }
        Ok(())
    }
}

/// Encodes the first `len` bytes of the worker's content into its scratch buffer, in btrfs framing; `None` if the
/// result exceeds `room` bytes.
fn encode(worker: &mut Worker, choice: &Choice, len: usize, room: usize) -> Option<usize> {
    let Worker {
        encoders,
        content,
        scratch,
        ..
    } = worker;
    let encoder = match &mut encoders[choice.encoder] {
        Some(encoder) => encoder,
        none => none.insert(Encoder::new(&choice.settings).ok()?),
    };
    let sector_bytes = SECTOR_BYTES as u32;
    encoder.compress_extent(sector_bytes, &mut scratch[..room], &content[..len])
}
