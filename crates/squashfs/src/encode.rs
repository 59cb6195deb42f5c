//! The workers' job: read, compress, and prove that the result decodes to the original.

use codec::{Algorithm, Decoder, Encoder, Filters, ZstdFrame};
use tree::{ContentReader, Error, Extent, FileId, KeptCount, OldExtents, Probe, Result};
use xxhash::Xxh64;

use crate::code_filter;
use crate::options::Options;
use crate::plan::{BatchItem, BlockJob, TailBatch};
use crate::raw::{BLOCK_PLAIN, METADATA_BYTES, flags};
use crate::reuse::{OldBlocks, OldFragment, ReuseMemory};

/// State shared by all workers.
pub(crate) struct BlockEncoder<'a> {
    /// Buffers of the size of a block.
    pub(crate) content: ContentReader<'a>,
    pub(crate) options: &'a Options,
    /// The older image whose blocks are kept where they are the same.
    pub(crate) old: Option<&'a OldBlocks<'a>>,
}

/// State that a worker keeps between jobs.
pub(crate) struct ThreadCodec {
    encoder: Option<Encoder>,
    decoder: Decoder,
    algorithm: Algorithm,
    content: Vec<u8>,
    decoded: Vec<u8>,
    /// For encoders that are slower than the probe.
    probe: Option<Probe>,
    /// Where it is in the old image.
    extents: OldExtents,
}

impl ThreadCodec {
    fn decoding(&mut self) -> (ReuseMemory<'_>, &[u8]) {
        let decoding = ReuseMemory {
            extents: &mut self.extents,
            decoder: &mut self.decoder,
            decoded: &mut self.decoded,
        };
        (decoding, &self.content)
    }
}

/// The result of a job.
pub(crate) enum BlockResult {
    /// As [`BlockJob::Holes`].
    Holes {
        file: FileId,
        first: bool,
        bytes: u64,
    },
    /// A block of a file: the length of its content and the stored block; `None` for a hole.
    Block {
        file: FileId,
        first: bool,
        len: usize,
        stored: Option<EncodedBlock>,
    },
    /// A file to leave out, and why.
    Unreadable { file: FileId, error: Error },
    /// A fragment block: its number, the length of its content, how many files have tails in it,
    /// and which of those tails could not be read and are filled with zeros.
    Fragment {
        number: u32,
        stored: EncodedBlock,
        len: usize,
        files: usize,
        lost: Vec<(FileId, Error)>,
    },
    /// Files that were read.
    Read(TailBatch),
    /// A fragment block of the source that cannot be read.
    LostFragment { number: u32, error: Error },
}

fn block(file: FileId, first: bool, len: usize, stored: Option<EncodedBlock>) -> BlockResult {
    BlockResult::Block {
        file,
        first,
        len,
        stored,
    }
}

/// A data or fragment block that has no place yet.
pub(crate) struct EncodedBlock {
    /// A buffer of the size of a block; the block is at its start.
    pub(crate) buffer: Vec<u8>,
    pub(crate) len: usize,
    pub(crate) plain: bool,
    /// It is a block of the source.
    pub(crate) kept: KeptCount,
    /// It is a block of the old image.
    pub(crate) reused: bool,
}

impl EncodedBlock {
    /// The block at the start of a buffer that has this size word.
    pub(crate) fn of_word(word: u32, buffer: Vec<u8>) -> EncodedBlock {
        EncodedBlock {
            buffer,
            len: (word & !BLOCK_PLAIN) as usize,
            plain: word & BLOCK_PLAIN != 0,
            kept: KeptCount::default(),
            reused: false,
        }
    }

    /// The size word.
    pub(crate) fn word(&self) -> u32 {
        self.len as u32 | if self.plain { BLOCK_PLAIN } else { 0 }
    }
}

impl BlockEncoder<'_> {
    fn block_bytes(&self) -> usize {
        self.options.block_bytes as usize
    }

    pub(crate) fn worker(&self) -> ThreadCodec {
        let settings = self.options.compression;
        ThreadCodec {
            encoder: settings.and_then(|settings| Encoder::new(&settings).ok()),
            decoder: Decoder::new(),
            algorithm: settings.map_or(Algorithm::Zlib, |settings| settings.algorithm()),
            content: vec![0; self.block_bytes()],
            decoded: if self.options.verify.decodes_encoded()
                || self.content.inventory().tree().storage().stored_extents
                || self.old.is_some()
            {
                vec![0; self.block_bytes()]
            } else {
                Vec::new()
            },
            probe: settings.as_ref().and_then(Probe::before),
            extents: OldExtents::default(),
        }
    }

    pub(crate) fn work(&self, worker: &mut ThreadCodec, job: BlockJob) -> Result<BlockResult> {
        let fragment = |number, stored, len, files| BlockResult::Fragment {
            number,
            stored,
            len,
            files,
            lost: Vec::new(),
        };
        match job {
            BlockJob::Holes { file, first, bytes } => Ok(BlockResult::Holes { file, first, bytes }),
            BlockJob::Unreadable { file, error } => self.unreadable(file, error),
            BlockJob::Block {
                file,
                first,
                offset,
                len,
            } => self.block(worker, file, first, (offset, len)),
            BlockJob::Keep {
                file,
                first,
                extent,
            } => match self.keep_block(worker, file, &extent) {
                Ok(Some(stored)) => {
                    let len = extent.len as usize;
                    Ok(block(file, first, len, Some(stored)))
                }

                Ok(None) => self.block(worker, file, first, (extent.offset, extent.len as usize)),
                Err(error) => self.unreadable(file, error),
            },
            BlockJob::KeepFragment {
                number,
                file,
                extent,
                len,
                files,
            } => match self.keep_fragment(worker, file, &extent, len) {
                Ok(stored) => Ok(fragment(number, stored, len, files)),
                Err(error) if self.options.skip_unreadable => {
                    Ok(BlockResult::LostFragment { number, error })
                }
                Err(error) => Err(self.content.in_file(file, error)),
            },
            BlockJob::OldFragment {
                number,
                fragment: old,
            } => {
                let stored = self.old_fragment(&old)?;
                Ok(fragment(number, stored, old.len, old.files))
            }
            BlockJob::Read(batch) => self.read_batch(batch).map(BlockResult::Read),
            BlockJob::Packed {
                number,
                mut content,
                len,
                files,
                filter,
            } => {
                std::mem::swap(&mut worker.content, &mut content);
                self.content.recycle(content);
                let is_plain = self.options.is_plain(None, flags::FRAGMENTS_PLAIN);
                let stored = self.encode(worker, len, filter, is_plain)?;
                Ok(fragment(number, stored, len, files))
            }
            BlockJob::Fragment { number, tails } => {
                let (mut len, mut lost) = (0, Vec::new());
                let mut code = code_filter::CodeShares::default();
                for &file in &tails {
                    let size = self.content.inventory().size(file);
                    let tail = (size % self.block_bytes() as u64) as usize;
                    let content = &mut worker.content[len..len + tail];
                    let read = self.read(file, size - tail as u64, content);
                    match self.content.forgive(file, read)? {
                        Ok(filter) => code.add(filter, tail),
                        Err(error) => {
                            content.fill(0);
                            lost.push((file, error));
                        }
                    }
                    len += tail;
                }
                let filter = code.most(len);
                let stored = match self.equal_fragment(worker, tails.first(), len) {
                    Some(stored) => stored,
                    None => {
                        let is_plain = self.options.is_plain(None, flags::FRAGMENTS_PLAIN);
                        self.encode(worker, len, filter, is_plain)?
                    }
                };
                Ok(BlockResult::Fragment {
                    number,
                    stored,
                    len,
                    files: tails.len(),
                    lost,
                })
            }
        }
    }

    /// Reads the files of a batch.
    fn read_batch(&self, mut batch: TailBatch) -> Result<TailBatch> {
        let mut at = 0;
        for item in &mut batch.items {
            let BatchItem::Tail(part) = item else {
                continue;
            };
            let bytes = &mut batch.content[at..at + part.len];
            let read = self.read(part.file, part.offset, bytes);
            part.filter = read.map_err(|error| self.content.in_file(part.file, error))?;
            if part.is_hashed {
                let mut hash = Xxh64::new(part.len as u64);
                hash.update(bytes);
                part.hash = hash.digest();
            }
            at += part.len;
        }
        Ok(batch)
    }

    /// Handles a file that cannot be read: leaves it out, or fails.
    fn unreadable(&self, file: FileId, error: Error) -> Result<BlockResult> {
        let forgiven = self.content.forgive(file, Err(error))?;
        forgiven.map_or_else(|error| Ok(BlockResult::Unreadable { file, error }), Ok)
    }

    /// Makes a block of a part of a file.
    fn block(
        &self,
        worker: &mut ThreadCodec,
        file: FileId,
        first: bool,
        (offset, len): (u64, usize),
    ) -> Result<BlockResult> {
        if let Some(stored) = self.trusted_block(worker, (file, offset), len) {
            return Ok(block(file, first, len, Some(stored)));
        }
        let content = &mut worker.content[..len];
        let filter = match self.read(file, offset, content) {
            Ok(filter) => filter,
            Err(error) => return self.unreadable(file, error),
        };
        let stored = if content.iter().all(|&byte| byte == 0) {
            None
        } else if let Some(stored) = self.old_block(worker, (file, offset), len) {
            Some(stored)
        } else {
            let is_plain = self.options.is_plain(Some(file), flags::DATA_PLAIN);
            Some(self.encode(worker, len, filter, is_plain)?)
        };
        Ok(block(file, first, len, stored))
    }

    /// Copies a compressed extent of the source as it is stored, without bytes after its end;
    /// `None` if it is not a block that decodes to exactly the referenced range. Other formats
    /// record that length, but it may be wrong.
    fn keep_block(
        &self,
        worker: &mut ThreadCodec,
        file: FileId,
        extent: &Extent,
    ) -> Result<Option<EncodedBlock>> {
        let mut buffer = self.content.buffer();
        let (read, checksum) = self.content.read_encoded(file, extent, &mut buffer)?;
        let len = extent.len as usize;
        let mut stored_len = read;
        let mut decode = self.options.verify.decodes_kept(checksum);
        let mut is_decoded = false;
        let is_block = match worker.algorithm {
            // Only decoding tells where it ends, which takes less time than re-encoding.
            Algorithm::Zlib
                if self
                    .content
                    .inventory()
                    .tree()
                    .storage()
                    .block_encoding
                    .is_none() =>
            {
                decode = false;
                is_decoded = true;
                let decoded = worker
                    .decoder
                    .decompress_zlib_extent(&mut worker.decoded, &buffer[..read]);
                stored_len = decoded.map_or(0, |(_, end)| end);
                decoded.is_ok_and(|(decoded, _)| decoded == len)
            }
            Algorithm::Zstd => {
                // Linux decodes with a window of the size of a block, or of a metadata block.
                let window_max = self.block_bytes().max(METADATA_BYTES) as u64;
                let frame = ZstdFrame::parse(&buffer[..read], window_max);
                stored_len = frame.map_or(0, |frame| frame.bytes);
                match frame.and_then(|frame| frame.content_bytes) {
                    Some(bytes) => bytes == extent.len,
                    // Only decoding tells.
                    None => {
                        decode = true;
                        frame.is_some() && self.options.verify.decodes_encoded()
                    }
                }
            }
            _ => true,
        };
        let mut is_block = is_block && stored_len < len;
        if is_block && decode {
            let stored = &buffer[..stored_len];
            let decoded = worker
                .decoder
                .decompress(worker.algorithm, &mut worker.decoded, stored);
            is_block = decoded == Ok(len);
            is_decoded = true;
        }
        if !is_block {
            self.content.recycle(buffer);
            return Ok(None);
        }
        Ok(Some(EncodedBlock {
            buffer,
            len: stored_len,
            plain: false,
            kept: KeptCount::one(checksum, is_decoded),
            reused: false,
        }))
    }

    /// Copies a fragment block of the source as it is stored. Its content has at least `len` bytes.
    fn keep_fragment(
        &self,
        worker: &mut ThreadCodec,
        file: FileId,
        extent: &Extent,
        len: usize,
    ) -> Result<EncodedBlock> {
        let mut buffer = self.content.buffer();
        let (stored_len, checksum) = self.content.read_encoded(file, extent, &mut buffer)?;
        let decode = self.options.verify.decodes_kept(checksum);
        if decode {
            let stored = &buffer[..stored_len];
            let decoded = worker
                .decoder
                .decompress(worker.algorithm, &mut worker.decoded, stored);
            if !decoded.is_ok_and(|decoded| decoded >= len) {
                return Err(Error::corrupt(
                    "a stored block does not decode",
                    extent.id.map_or(0, |id| id.0),
                    codec::first_bytes(stored),
                ));
            }
        }
        Ok(EncodedBlock {
            buffer,
            len: stored_len,
            plain: false,
            kept: KeptCount::one(checksum, decode),
            reused: false,
        })
    }

    /// The old block of a part of a file that counts as unchanged.
    fn trusted_block(
        &self,
        worker: &mut ThreadCodec,
        part: (FileId, u64),
        len: usize,
    ) -> Option<EncodedBlock> {
        let old = self.old?;
        let mut buffer = self.content.buffer();
        let (mut decoding, _) = worker.decoding();
        let found = old.trusted_block(&mut decoding, part, len, &mut buffer);
        self.reused(buffer, found)
    }

    /// The old block of a part of a file, if it has the first `len` bytes of the worker's content.
    fn old_block(
        &self,
        worker: &mut ThreadCodec,
        part: (FileId, u64),
        len: usize,
    ) -> Option<EncodedBlock> {
        let old = self.old?;
        let mut buffer = self.content.buffer();
        let (mut decoding, content) = worker.decoding();
        let found = old.block(&mut decoding, part, &content[..len], &mut buffer);
        self.reused(buffer, found)
    }

    /// The old fragment block that begins with the tail of the file `first`, if it has the first
    /// `len` bytes of the worker's content.
    fn equal_fragment(
        &self,
        worker: &mut ThreadCodec,
        first: Option<&FileId>,
        len: usize,
    ) -> Option<EncodedBlock> {
        let (old, &first) = (self.old?, first?);
        let size = self.content.inventory().size(first);
        let part = (first, size - size % self.block_bytes() as u64);
        let mut buffer = self.content.buffer();
        let (mut decoding, content) = worker.decoding();
        let found = old.equal_fragment(&mut decoding, part, &content[..len], &mut buffer);
        self.reused(buffer, found)
    }

    /// A fragment block of the old image.
    fn old_fragment(&self, fragment: &OldFragment) -> Result<EncodedBlock> {
        const NO_IMAGE: Error = Error::InvalidInput("there is no old image");
        let mut buffer = self.content.buffer();
        let len = self.old.ok_or(NO_IMAGE)?.fragment(fragment, &mut buffer)?;
        self.reused(buffer, Some(len)).ok_or(NO_IMAGE)
    }

    /// A block of the old image in a buffer, if there is one.
    fn reused(&self, buffer: Vec<u8>, stored_len: Option<usize>) -> Option<EncodedBlock> {
        let Some(len) = stored_len else {
            self.content.recycle(buffer);
            return None;
        };
        Some(EncodedBlock {
            buffer,
            len,
            plain: false,
            kept: KeptCount::default(),
            reused: true,
        })
    }

    /// Reads a part of a file and returns the filter for it.
    fn read(&self, file: FileId, offset: u64, content: &mut [u8]) -> Result<Filters> {
        self.content.read(file, offset, content)?;
        self.filter(file, offset, content)
    }

    /// The filter for a part of a file with this content, starting at `offset`.
    fn filter(&self, file: FileId, offset: u64, content: &[u8]) -> Result<Filters> {
        if !self.options.filter_code {
            return Ok(Filters(0));
        }
        let mut header = [0; code_filter::HEADER_BYTES];
        if self.content.inventory().size(file) < header.len() as u64 {
            return Ok(Filters(0));
        }
        match content.first_chunk() {
            Some(begin) if offset == 0 => header = *begin,
            _ => self.content.read(file, 0, &mut header)?,
        }
        Ok(code_filter::filter_of(&header))
    }

    /// Encodes the first `len` bytes of the worker's content, unless they are stored uncompressed.
    fn encode(
        &self,
        worker: &mut ThreadCodec,
        len: usize,
        filter: Filters,
        is_plain: bool,
    ) -> Result<EncodedBlock> {
        let mut buffer = self.content.buffer();
        let content = &worker.content[..len];
        let is_noise = |probe: &mut Probe| probe.is_noise(content);
        let smaller = match &mut worker.encoder {
            Some(_) if is_plain => None,
            Some(_) if worker.probe.as_mut().is_some_and(is_noise) => None,
            Some(encoder) if self.options.filter_code => {
                encoder.compress_filtered(filter, &mut buffer[..len - 1], content)
            }
            Some(encoder) => encoder.compress(&mut buffer[..len - 1], content),
            None => None,
        };
        let Some(stored_len) = smaller else {
            std::mem::swap(&mut buffer, &mut worker.content);
            return Ok(EncodedBlock {
                buffer,
                len,
                plain: true,
                kept: KeptCount::default(),
                reused: false,
            });
        };
        if self.options.verify.decodes_encoded() {
            let decoded = &mut worker.decoded[..len];
            let result =
                worker
                    .decoder
                    .decompress(worker.algorithm, decoded, &buffer[..stored_len]);
            if result != Ok(len) || decoded != content {
                return Err(Error::Unverified("a block does not decode to its content"));
            }
        }
        Ok(EncodedBlock {
            buffer,
            len: stored_len,
            plain: false,
            kept: KeptCount::default(),
            reused: false,
        })
    }
}
