//! What a worker does with a job: read, encode, and prove that what was encoded can be decoded.

use std::sync::{Mutex, PoisonError};

use codec::{Codec, Decoder, Encoder, Filters, Settings, ZstdFrame};
use tree::{Error, Extent, FileId, FileSystem, Inventory, Result};

use crate::machine;
use crate::plan::Job;
use crate::probe::Probe;
use crate::raw::{BLOCK_PLAIN, METADATA_BYTES};

/// What all workers share.
pub(crate) struct Encoding<'a> {
    pub(crate) fs: &'a dyn FileSystem,
    pub(crate) inventory: &'a Inventory,
    pub(crate) block_bytes: usize,
    /// How data blocks are encoded, if at all.
    pub(crate) data: Option<Settings>,
    /// How fragment blocks are encoded, if at all.
    pub(crate) fragments: Option<Settings>,
    pub(crate) verify: bool,
    /// Whether machine code is filtered for its processor.
    pub(crate) filter_code: bool,
    /// Buffers of a block's size that wait to be used again.
    pub(crate) buffers: Mutex<Vec<Vec<u8>>>,
}

/// What a worker keeps from job to job.
pub(crate) struct Worker {
    encoder: Option<Encoder>,
    decoder: Decoder,
    codec: Codec,
    content: Vec<u8>,
    decoded: Vec<u8>,
    /// For encoders that are slower than it.
    probe: Option<Probe>,
}

/// What came of a job.
pub(crate) enum Done {
    /// As [`Job::Holes`].
    Holes {
        file: FileId,
        first: bool,
        bytes: u64,
    },
    /// A block of a file: its content's length, and what is stored; `None` for a hole.
    Block {
        file: FileId,
        first: bool,
        len: usize,
        stored: Option<Stored>,
    },
    /// A fragment block, its number, its content's length, and of how many files it holds tails.
    Fragment {
        number: u32,
        stored: Stored,
        len: usize,
        files: usize,
    },
}

/// A block as it is stored.
pub(crate) struct Stored {
    /// A buffer of a block's size; the block is its beginning.
    pub(crate) buffer: Vec<u8>,
    pub(crate) len: usize,
    pub(crate) plain: bool,
    /// It is a block of the source.
    pub(crate) kept: bool,
}

/// Whether an encoder takes longer to find nothing than [`Probe`] does.
fn is_slow(settings: &Settings) -> bool {
    match *settings {
        Settings::Xz { .. } | Settings::Lz4Hc { .. } => true,
        Settings::Zlib { level } => level > 1,
        Settings::Zstd { level } => level > 5,
        Settings::Lzo | Settings::Lz4 => false,
    }
}

impl Stored {
    /// The size word.
    pub(crate) fn word(&self) -> u32 {
        self.len as u32 | if self.plain { BLOCK_PLAIN } else { 0 }
    }
}

impl Encoding<'_> {
    pub(crate) fn worker(&self) -> Worker {
        let settings = self.data.or(self.fragments);
        Worker {
            encoder: settings.and_then(|settings| Encoder::new(&settings).ok()),
            decoder: Decoder::new(),
            codec: settings.map_or(Codec::Zlib, |settings| settings.codec()),
            content: vec![0; self.block_bytes],
            decoded: if self.verify {
                vec![0; self.block_bytes]
            } else {
                Vec::new()
            },
            probe: settings
                .is_some_and(|settings| is_slow(&settings))
                .then(Probe::new),
        }
    }

    /// Gives a buffer back.
    pub(crate) fn recycle(&self, buffer: Vec<u8>) {
        self.buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(buffer);
    }

    fn buffer(&self) -> Vec<u8> {
        let recycled = self
            .buffers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        recycled.unwrap_or_else(|| vec![0; self.block_bytes])
    }

    pub(crate) fn work(&self, worker: &mut Worker, job: Result<Job>) -> Result<Done> {
        match job? {
            Job::Holes { file, first, bytes } => Ok(Done::Holes { file, first, bytes }),
            Job::Block {
                file,
                first,
                offset,
                len,
            } => {
                let stored = self.block(worker, file, offset, len)?;
                Ok(Done::Block {
                    file,
                    first,
                    len,
                    stored,
                })
            }
            Job::Keep {
                file,
                first,
                extent,
            } => {
                let len = extent.len as usize;
                let stored = match self.keep_block(worker, file, &extent)? {
                    Some(stored) => Some(stored),
                    None => self.block(worker, file, extent.offset, len)?,
                };
                Ok(Done::Block {
                    file,
                    first,
                    len,
                    stored,
                })
            }
            Job::KeepFragment {
                number,
                file,
                extent,
                len,
                files,
            } => {
                let stored = self.keep_fragment(worker, file, &extent, len)?;
                Ok(Done::Fragment {
                    number,
                    stored,
                    len,
                    files,
                })
            }
            Job::Fragment { number, tails } => {
                let mut len = 0;
                let mut code = machine::Code::default();
                for &file in &tails {
                    let size = self.inventory.size(file);
                    let tail = (size % self.block_bytes as u64) as usize;
                    self.read(
                        file,
                        size - tail as u64,
                        &mut worker.content[len..len + tail],
                    )?;
                    let content = &worker.content[len..len + tail];
                    code.add(self.filter(file, size - tail as u64, content)?, tail);
                    len += tail;
                }
                let filter = code.most(len);
                let stored = self.encode(worker, len, self.fragments.is_some(), filter)?;
                Ok(Done::Fragment {
                    number,
                    stored,
                    len,
                    files: tails.len(),
                })
            }
        }
    }

    /// A block of a file; `None` if there is nothing in it but zeros.
    fn block(
        &self,
        worker: &mut Worker,
        file: FileId,
        offset: u64,
        len: usize,
    ) -> Result<Option<Stored>> {
        self.read(file, offset, &mut worker.content[..len])?;
        let content = &worker.content[..len];
        if content.iter().all(|&byte| byte == 0) {
            return Ok(None);
        }
        let filter = self.filter(file, offset, content)?;
        self.encode(worker, len, self.data.is_some(), filter)
            .map(Some)
    }

    /// Takes an encoded extent of the source as it is stored there, without what may follow its end; `None` if that is no
    /// block that decodes to all that the file shows of it, and to no more. Other containers say how long that is, but
    /// need not be right.
    fn keep_block(
        &self,
        worker: &mut Worker,
        file: FileId,
        extent: &Extent,
    ) -> Result<Option<Stored>> {
        let mut buffer = self.read_encoded(file, extent)?;
        let len = extent.len as usize;
        let mut stored_len = buffer.len();
        let mut is_block = true;
        if worker.codec == Codec::Zstd {
            // Linux decodes with a window as large as a block, or as one of metadata.
            let window_max = self.block_bytes.max(METADATA_BYTES) as u64;
            let frame = ZstdFrame::parse(&buffer);
            let frame = frame.filter(|frame| frame.window_bytes <= window_max);
            stored_len = frame.map_or(0, |frame| frame.bytes);
            is_block = match frame.and_then(|frame| frame.content_bytes) {
                Some(bytes) => bytes == extent.len,
                // Only decoding tells.
                None => frame.is_some() && self.verify,
            };
        }
        is_block &= stored_len < len;
        if is_block && self.verify {
            let stored = &buffer[..stored_len];
            let decoded = worker
                .decoder
                .decompress(worker.codec, &mut worker.decoded, stored);
            is_block = decoded == Ok(len);
        }
        buffer.resize(self.block_bytes, 0);
        if !is_block {
            self.recycle(buffer);
            return Ok(None);
        }
        Ok(Some(Stored {
            buffer,
            len: stored_len,
            plain: false,
            kept: true,
        }))
    }

    /// Takes a fragment block of the source as it is stored there. Its content has at least `len` bytes.
    fn keep_fragment(
        &self,
        worker: &mut Worker,
        file: FileId,
        extent: &Extent,
        len: usize,
    ) -> Result<Stored> {
        let mut buffer = self.read_encoded(file, extent)?;
        if self.verify {
            let decoded = worker
                .decoder
                .decompress(worker.codec, &mut worker.decoded, &buffer);
            if !decoded.is_ok_and(|decoded| decoded >= len) {
                let error = Error::InvalidInput("a stored block does not decode");
                return Err(self.in_file(file, error));
            }
        }
        let len = buffer.len();
        buffer.resize(self.block_bytes, 0);
        Ok(Stored {
            buffer,
            len,
            plain: false,
            kept: true,
        })
    }

    fn read_encoded(&self, file: FileId, extent: &Extent) -> Result<Vec<u8>> {
        let mut buffer = self.buffer();
        let read = self
            .fs
            .read_encoded(self.inventory.ino(file), extent, &mut buffer);
        read.map_err(|error| self.in_file(file, error))?;
        Ok(buffer)
    }

    fn in_file(&self, file: FileId, error: Error) -> Error {
        let path = self.inventory.path(self.inventory.first_name(file));
        error.in_file("read", &path)
    }

    fn read(&self, file: FileId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let error = match self.fs.read_at(self.inventory.ino(file), offset, buf) {
            Ok(len) if len == buf.len() => return Ok(()),
            Ok(_) => Error::InvalidInput("the file became shorter while it was read"),
            Err(error) => error,
        };
        Err(self.in_file(file, error))
    }

    /// The filter for a part of a file, of which this is the content from `offset` on.
    fn filter(&self, file: FileId, offset: u64, content: &[u8]) -> Result<Filters> {
        if !self.filter_code {
            return Ok(Filters(0));
        }
        let mut header = [0; machine::HEADER_BYTES];
        if self.inventory.size(file) < header.len() as u64 {
            return Ok(Filters(0));
        }
        match content.first_chunk() {
            Some(begin) if offset == 0 => header = *begin,
            _ => self.read(file, 0, &mut header)?,
        }
        Ok(machine::filter_of(&header))
    }

    /// Encodes the first `len` bytes of the worker's content.
    fn encode(
        &self,
        worker: &mut Worker,
        len: usize,
        encoded: bool,
        filter: Filters,
    ) -> Result<Stored> {
        let mut buffer = self.buffer();
        let content = &worker.content[..len];
        let is_noise = |probe: &mut Probe| probe.is_noise(content);
        let smaller = match &mut worker.encoder {
            Some(_) if worker.probe.as_mut().is_some_and(is_noise) => None,
            Some(encoder) if encoded && self.filter_code => {
                encoder.compress_filtered(filter, &mut buffer[..len - 1], content)
            }
            Some(encoder) if encoded => encoder.compress(&mut buffer[..len - 1], content),
            _ => None,
        };
        let Some(stored_len) = smaller else {
            std::mem::swap(&mut buffer, &mut worker.content);
            return Ok(Stored {
                buffer,
                len,
                plain: true,
                kept: false,
            });
        };
        if self.verify {
            let decoded = &mut worker.decoded[..len];
            let result = worker
                .decoder
                .decompress(worker.codec, decoded, &buffer[..stored_len]);
            if result != Ok(len) || decoded != content {
                return Err(Error::InvalidInput(
                    "a block does not decode to what was encoded",
                ));
            }
        }
        Ok(Stored {
            buffer,
            len: stored_len,
            plain: false,
            kept: false,
        })
    }
}
