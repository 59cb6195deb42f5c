//! The workers' job: read a part of a file and compress it, or copy it as the source stores it.

use codec::{Decoder, Encoder};
use tree::{
    Checksum, ContentReader, Encoding, Error, Extent, ExtentKind, FileId, Inventory, KeptCount,
    OldExtents, Result,
};

use super::choice::{Choice, Chooser};
use super::job::{DataJob, DataResult, FileStep, PIECE_BYTES, SmallContent, UnplacedExtent};
use super::reuse::{OldData, ReuseBuffers, WantedExtent};
use super::share::{is_nocow, reserved};
use crate::disk::compression::Compression;
use crate::options::Options;
use crate::write::describe::FileDescriptions;
use crate::write::heuristic::is_compressible;
use crate::write::layout::SECTOR_BYTES;

/// The most bytes of a file that are stored inline, in a tree instead of an extent (the kernel's
/// `max_inline`).
const INLINE_BYTES_MAX: usize = 2048;

/// State that a worker keeps between jobs.
pub(super) struct EncodeWorker {
    /// Indexed by [`Choice::encoder`].
    encoders: Vec<Option<Encoder>>,
    decoder: Decoder,
    content: Vec<u8>,
    scratch: Vec<u8>,
    /// Where it is in the old image.
    extents: OldExtents,
}

impl EncodeWorker {
    fn decoding(&mut self) -> (ReuseBuffers<'_>, &[u8]) {
        let decoding = ReuseBuffers {
            extents: &mut self.extents,
            decoder: &mut self.decoder,
            decoded: &mut self.scratch,
        };
        (decoding, &self.content)
    }
}

pub(super) struct DataEncoder<'a> {
    /// Buffers of the size of a piece.
    pub(super) content: ContentReader<'a>,
    options: &'a Options,
    chooser: Chooser<'a>,
    inline_max: usize,
    /// The older image whose extents are kept where they are the same.
    old: Option<OldData<'a>>,
}

/// The most bytes of a file that fit inline in a tree block of this size.
pub(super) fn inline_max(nodesize: u32) -> usize {
    // After the header of the record.
    INLINE_BYTES_MAX.min(crate::write::builder::item_bytes_max(nodesize) - 21)
}

impl<'a> DataEncoder<'a> {
    pub(super) fn new(
        inventory: &'a Inventory<'a>,
        described: Option<&'a FileDescriptions>,
        options: &'a Options,
    ) -> Self {
        let skip_unreadable = options.skip_unreadable;
        DataEncoder {
            content: ContentReader::new(inventory, PIECE_BYTES as usize, skip_unreadable),
            options,
            chooser: Chooser {
                inventory,
                described,
                options,
            },
            inline_max: inline_max(options.nodesize),
            old: None,
        }
    }

    /// Keeps the extents of an older image, if there is one and it was made with the same settings;
    /// returns whether it was not.
    pub(super) fn reuse(&mut self, old: Option<OldData<'a>>) -> bool {
        let count = usize::from(old.is_some());
        self.old = old.filter(|old| old.is_made_with(&self.chooser));
        count > usize::from(self.old.is_some())
    }

    /// Whether plain data shares the extents of its source.
    pub(super) fn shares(&self) -> bool {
        self.options.reflink
    }

    /// The most bytes of a file that are stored inline.
    pub(super) fn inline_max(&self) -> usize {
        self.inline_max
    }

    pub(super) fn worker(&self) -> EncodeWorker {
        EncodeWorker {
            encoders: (0..self.chooser.encoders()).map(|_| None).collect(),
            decoder: Decoder::new(),
            content: vec![0; PIECE_BYTES as usize],
            scratch: vec![0; PIECE_BYTES as usize],
            extents: OldExtents::default(),
        }
    }

    pub(super) fn work(&self, worker: &mut EncodeWorker, job: DataJob) -> Result<DataResult> {
        Ok(match job {
            DataJob::Pass(FileStep::Unreadable { file, error }) => {
                let error = self.content.forgive(file, Err::<(), _>(error))?;
                let error = error.expect_err("it is one");
                DataResult::Pass(FileStep::Unreadable { file, error })
            }
            DataJob::Pass(step) => DataResult::Pass(step),
            DataJob::Small(files) => {
                let small = files.into_iter().map(|file| {
                    let small = self.small(worker, file);
                    Ok((file, self.content.forgive(file, small)?))
                });
                DataResult::Small(small.collect::<Result<_>>()?)
            }
            DataJob::Piece {
                file,
                offset,
                len,
                is_numbered,
            } => {
                let piece = match self.trusted_piece(worker, file, offset, len) {
                    Some(piece) => Ok(piece),
                    None => self
                        .content
                        .read(file, offset, &mut worker.content[..len])
                        .and_then(|()| self.piece(worker, file, offset, len)),
                };
                DataResult::Piece {
                    file,
                    offset,
                    len: len as u64,
                    is_numbered,
                    piece: self.content.forgive(file, piece)?,
                }
            }
            DataJob::Keep {
                file,
                extent,
                stored,
                is_numbered,
            } => DataResult::Piece {
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

    fn small(&self, worker: &mut EncodeWorker, file: FileId) -> Result<SmallContent> {
        let inventory = self.content.inventory();
        let len = inventory.size(file) as usize;
        if self.options.keep_extents
            && let Some(small) = self.keep_inline(worker, file, len)?
        {
            return Ok(small);
        }
        let choice = self.chooser.choose(file);
        let wanted = choice.map(|choice| WantedExtent {
            file,
            offset: 0,
            compression: Compression::of_settings(&choice.settings),
            len,
            ram: len,
            room: self.inline_max.min(len - 1),
            is_inline: true,
        });
        if let Some(small) = self.old_inline(worker, wanted.as_ref(), true) {
            return Ok(small);
        }
        self.content.read(file, 0, &mut worker.content[..len])?;
        if worker.content[..len].iter().all(|&byte| byte == 0) {
            let extents = self
                .content
                .inventory()
                .tree()
                .extents(inventory.ino(file), 0)?;
            if !extents.iter().any(|extent| extent.kind.has_data()) {
                return Ok(match extents.first().and_then(reserved) {
                    Some((id, at)) => SmallContent::Reserved { id, at },
                    None => SmallContent::Hole,
                });
            }
        }
        if let Some(small) = self.old_inline(worker, wanted.as_ref(), false) {
            return Ok(small);
        }
        if let Some(choice) = choice {
            let compression = Compression::of_settings(&choice.settings);
            let room = self.inline_max.min(len - 1);
            if let Some(stored) = encode(worker, &choice, len, room) {
                let bytes = worker.scratch[..stored].to_vec();
                self.verify(worker, compression, &bytes, len)?;
                return Ok(SmallContent::Inline {
                    bytes,
                    compression: compression.number(),
                    is_reused: false,
                });
            }
        }
        if len <= self.inline_max {
            return Ok(SmallContent::Inline {
                bytes: worker.content[..len].to_vec(),
                compression: 0,
                is_reused: false,
            });
        }
        Ok(SmallContent::Extent(self.piece(worker, file, 0, len)?))
    }

    /// A small file as the old image has it: either one that is trusted to be unchanged, or one
    /// with the first bytes of the worker's content.
    fn old_inline(
        &self,
        worker: &mut EncodeWorker,
        wanted: Option<&WantedExtent>,
        is_trusted: bool,
    ) -> Option<SmallContent> {
        let (old, wanted) = (self.old.as_ref()?, wanted?);
        let mut bytes = vec![0; wanted.room];
        let (mut decoding, content) = worker.decoding();
        let content = (!is_trusted).then(|| &content[..wanted.ram]);
        let stored = old.extent(&mut decoding, wanted, content, &mut bytes);
        bytes.truncate(stored?);
        Some(SmallContent::Inline {
            bytes,
            compression: wanted.compression.number(),
            is_reused: true,
        })
    }

    /// The extent to look for in the old image, for a part of a file that is encoded like this.
    fn wanted(&self, choice: &Choice, file: FileId, offset: u64, len: usize) -> WantedExtent {
        let ram = len.next_multiple_of(SECTOR_BYTES);
        WantedExtent {
            file,
            offset,
            compression: Compression::of_settings(&choice.settings),
            len,
            ram,
            room: ram.saturating_sub(SECTOR_BYTES),
            is_inline: false,
        }
    }

    /// The old extent of a part of a file that is trusted to be unchanged.
    fn trusted_piece(
        &self,
        worker: &mut EncodeWorker,
        file: FileId,
        offset: u64,
        len: usize,
    ) -> Option<UnplacedExtent> {
        let (old, choice) = (self.old.as_ref()?, self.chooser.choose(file)?);
        let wanted = self.wanted(&choice, file, offset, len);
        let mut buffer = self.content.buffer();
        let (mut decoding, _) = worker.decoding();
        let stored = old.extent(&mut decoding, &wanted, None, &mut buffer);
        let Some(stored) = stored else {
            self.content.recycle(buffer);
            return None;
        };
        Some(UnplacedExtent {
            sums: self.sums(&buffer[..stored]),
            buffer,
            len: stored,
            ram: wanted.ram as u64,
            compression: wanted.compression.number(),
            is_reused: true,
            ..UnplacedExtent::default()
        })
    }

    /// Makes an extent of the first `len` bytes of the worker's content, which are at `offset` in
    /// the file.
    fn piece(
        &self,
        worker: &mut EncodeWorker,
        file: FileId,
        offset: u64,
        len: usize,
    ) -> Result<UnplacedExtent> {
        let ram = len.next_multiple_of(SECTOR_BYTES);
        worker.content[len..ram].fill(0);
        let mut buffer = self.content.buffer();
        let (mut encoded, mut is_reused) = (None, false);
        if ram > SECTOR_BYTES
            && let Some(choice) = self.chooser.choose(file)
            && (choice.is_forced || is_compressible(&worker.content[..ram]))
        {
            let compression = Compression::of_settings(&choice.settings);
            let wanted = self.wanted(&choice, file, offset, len);
            let (mut decoding, content) = worker.decoding();
            let old = self.old.as_ref().and_then(|old| {
                old.extent(&mut decoding, &wanted, Some(&content[..ram]), &mut buffer)
            });
            // Compression must save at least a sector.
            if let Some(stored) = old {
                (encoded, is_reused) = (Some((stored, compression.number())), true);
            } else if let Some(stored) = encode(worker, &choice, ram, ram - SECTOR_BYTES) {
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
        Ok(UnplacedExtent {
            buffer,
            len,
            ram: ram as u64,
            compression,
            sums,
            is_reused,
            ..UnplacedExtent::default()
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

    /// Copies a compressed extent as it is stored, or re-encodes the part that the file refers to
    /// if not every btrfs reader could decode the stored data.
    fn keep(
        &self,
        worker: &mut EncodeWorker,
        file: FileId,
        extent: &Extent,
        stored: &Encoding,
    ) -> Result<UnplacedExtent> {
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
                return Err(Error::corrupt(
                    "a stored extent does not decode",
                    extent.id.map_or(0, |id| id.0),
                    found,
                ));
            }
            return self.piece(worker, file, extent.offset, len);
        };
        Ok(UnplacedExtent {
            sums: self.sums(&buffer[..padded]),
            buffer,
            len: padded,
            ram,
            skip: stored.unencoded_offset as u32,
            compression: compression.number(),
            kept: KeptCount::one(checksum, self.options.verify.decodes_kept(checksum)),
            ..UnplacedExtent::default()
        })
    }

    /// Copies a file's only extent as it is stored, if it is compressed and inline.
    fn keep_inline(
        &self,
        worker: &mut EncodeWorker,
        file: FileId,
        len: usize,
    ) -> Result<Option<SmallContent>> {
        let ino = self.content.inventory().ino(file);
        let extents = self.content.inventory().tree().extents(ino, 0)?;
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
        let checksum = self
            .content
            .inventory()
            .tree()
            .read_encoded(ino, extent, &mut bytes)?;
        Ok(self
            .is_readable(worker, compression, checksum, &bytes, len)
            .then(|| SmallContent::Inline {
                bytes,
                compression: compression.number(),
                is_reused: false,
            }))
    }

    /// Whether every btrfs reader can decode this data. Where its checksum matched, its frame is
    /// looked at and not decoded.
    fn is_readable(
        &self,
        worker: &mut EncodeWorker,
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
        worker: &mut EncodeWorker,
        compression: Compression,
        stored: &[u8],
        len: usize,
    ) -> Result<()> {
        if !self.options.verify.decodes_encoded() {
            return Ok(());
        }
        let EncodeWorker {
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
                "an extent does not decode to its content",
            ));
        }
        Ok(())
    }
}

/// Encodes the first `len` bytes of the worker's content into its scratch buffer, in btrfs framing;
/// `None` if the result exceeds `room` bytes.
fn encode(worker: &mut EncodeWorker, choice: &Choice, len: usize, room: usize) -> Option<usize> {
    let EncodeWorker {
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
