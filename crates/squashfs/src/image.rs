//! The image's bytes: positioned reads, a pool of decoders, and caches of decoded blocks.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::slice;
use std::sync::{Arc, Mutex, PoisonError};

use codec::Decoder;
use tree::{BlockCache, BlockCounts, Cache, Error, ReadAt, Result, to_u64, to_usize};

use crate::find;
use crate::raw;
use crate::superblock::{SUPERBLOCK_BYTES, Superblock};

/// Number of decoded metadata blocks of 8 KiB in the cache.
const METADATA_SLOTS: (usize, usize) = (16, 16);
/// Bytes of decoded data blocks in the cache, if at least [`DATA_SLOTS_MIN`] blocks fit, unless
/// [`Image::keep`] says otherwise.
const DATA_BYTES_KEPT: usize = 4 << 20;
/// Minimum number of data blocks in the cache.
const DATA_SLOTS_MIN: usize = 8;

/// Bytes of tables that are asked for when an image is opened.
const TABLES_AHEAD_MAX: u64 = 8 << 20;

/// A decoded metadata block.
pub(crate) struct MetadataBlock {
    /// 1 to 8,192 bytes.
    pub(crate) content: Box<[u8]>,
    /// Position of the next block in the image.
    pub(crate) next: u64,
}

/// An image that is open for reading.
pub(crate) struct Image {
    source: Box<dyn ReadAt>,
    /// Offset of the image in the source.
    pub(crate) base: u64,
    pub(crate) superblock: Superblock,
    workers: Mutex<Vec<BlockDecoder>>,
    metadata: Cache<MetadataBlock>,
    data: BlockCache<Vec<u8>>,
}

/// The memory of one thread that decodes blocks.
#[derive(Default)]
struct BlockDecoder {
    decoder: Decoder,
    stored: Vec<u8>,
}

/// The validated stored size of a data or fragment block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StoredSize {
    /// Number of stored bytes; never 0.
    pub(crate) bytes: u32,
    /// Whether it is stored uncompressed.
    pub(crate) plain: bool,
}

impl StoredSize {
    /// The size word.
    pub(crate) fn word(self) -> u32 {
        self.bytes | if self.plain { raw::BLOCK_PLAIN } else { 0 }
    }

    /// Parses a size word that does not denote a hole. `at` is its position.
    pub(crate) fn parse(word: u32, block_bytes: u32, at: u64) -> Result<StoredSize> {
        let bytes = word & (raw::BLOCK_PLAIN - 1);
        if word & !(raw::BLOCK_PLAIN | (raw::BLOCK_PLAIN - 1)) != 0
            || bytes == 0
            || bytes > block_bytes
        {
            return Err(Error::corrupt(
                "stored block size is impossible",
                at,
                word.into(),
            ));
        }
        Ok(StoredSize {
            bytes,
            plain: word & raw::BLOCK_PLAIN != 0,
        })
    }
}

impl Image {
    /// Opens the image that starts at `base`.
    pub(crate) fn open(source: Box<dyn ReadAt>, base: u64) -> Result<Image> {
        let available = source.size()?.saturating_sub(base);
        let mut bytes = [0; SUPERBLOCK_BYTES];
        if available < to_u64(SUPERBLOCK_BYTES) {
            return Err(Error::corrupt(
                "too short for a squashfs superblock",
                0,
                available,
            ));
        }
        source.read_exact_at(&mut bytes, base)?;
        let superblock = match Superblock::parse(&bytes, available) {
            Err(_) if !find::begins_at(&*source, base)? => {
                match find::superblock_at_end(&*source, base)? {
                    Some(superblock) => superblock,
                    None => Superblock::parse(&bytes, available)?,
                }
            }
            parsed => parsed?,
        };
        // All tables at once, if that is not much for those who want one file.
        let tables = superblock.inode_table..superblock.bytes_used;
        if tables.end.saturating_sub(tables.start) <= TABLES_AHEAD_MAX {
            let place = |at: u64| at.saturating_add(base);
            let tables = place(tables.start)..place(tables.end);
            source.will_read(slice::from_ref(&tables));
        }
        let bytes_min = to_usize(superblock.block_bytes).saturating_mul(DATA_SLOTS_MIN);
        Ok(Image {
            source,
            base,
            superblock,
            workers: Mutex::default(),
            metadata: Cache::new(METADATA_SLOTS.0, METADATA_SLOTS.1),
            data: BlockCache::new(DATA_BYTES_KEPT.max(bytes_min)),
        })
    }

    /// Changes how many bytes of decoded data blocks are kept.
    pub(crate) fn keep(&self, bytes: usize) {
        self.data.keep(bytes);
    }

    /// The numbers of decoded blocks.
    pub(crate) fn counts(&self) -> BlockCounts {
        self.data.counts()
    }

    /// Whether a block of this size can be at `at`: between the superblock and the inode table.
    pub(crate) fn holds_data(&self, at: u64, size: StoredSize) -> bool {
        let end = at.checked_add(size.bytes.into());
        at >= to_u64(SUPERBLOCK_BYTES) && end.is_some_and(|end| end <= self.superblock.inode_table)
    }

    /// Reads stored bytes. `at` is a position in the image.
    pub(crate) fn read(&self, buf: &mut [u8], at: u64) -> Result<()> {
        let end = at.checked_add(to_u64(buf.len()));
        let place = end
            .filter(|&end| end <= self.superblock.bytes_used)
            .and_then(|_| at.checked_add(self.base));
        let Some(place) = place else {
            return Err(Error::corrupt(
                "stored bytes lie beyond the image's end",
                at,
                to_u64(buf.len()),
            ));
        };
        Ok(self.source.read_exact_at(buf, place)?)
    }

    fn with_worker<T>(&self, run: impl FnOnce(&mut BlockDecoder) -> Result<T>) -> Result<T> {
        let pool = || self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut worker = pool().pop().unwrap_or_default();
        let result = run(&mut worker);
        pool().push(worker);
        result
    }

    /// Reads a stored block and decodes it into the start of `dst`; returns its length.
    fn decode(&self, at: u64, stored: u32, dst: &mut [u8]) -> Result<usize> {
        self.with_worker(|worker| {
            if worker.stored.len() < to_usize(stored) {
                worker.stored.resize(to_usize(stored), 0);
            }
            let (stored_block, _) = worker.stored.split_at_mut(to_usize(stored));
            self.read(stored_block, at)?;
            let algorithm = self.superblock.algorithm;
            let decoded = worker.decoder.decompress(algorithm, dst, stored_block);
            decoded.map_err(|error| Error::of_block(error, stored_block, at))
        })
    }

    /// The metadata block at `at`, in a table that ends at `end`.
    pub(crate) fn metadata(&self, at: u64, end: u64) -> Result<Arc<MetadataBlock>> {
        self.metadata.find_or_make(at, |_| {
            let corrupt = |what, got: u64| Error::corrupt(what, at, got);
            let room = end.min(self.superblock.bytes_used).saturating_sub(at);
            if room < 2 {
                return Err(corrupt("metadata block begins beyond its table", end));
            }
            let mut buf = [0; raw::STORED_METADATA_MAX];
            let (stored, _) = buf.split_at_mut(to_usize(room).min(raw::STORED_METADATA_MAX));
            self.read(stored, at)?;
            // It has two bytes at least.
            let header = stored.first_chunk().copied().unwrap_or_default();
            let header = u16::from_le_bytes(header);
            let len = usize::from(header & !raw::METADATA_PLAIN);
            if len == 0 || len > raw::METADATA_BYTES {
                return Err(corrupt(
                    "metadata block's stored length is impossible",
                    header.into(),
                ));
            }
            let Some(stored) = stored.get(2..).and_then(|rest| rest.get(..len)) else {
                return Err(corrupt(
                    "metadata block does not fit in its table",
                    header.into(),
                ));
            };
            let content_at = at.saturating_add(2);
            let next = content_at.saturating_add(to_u64(len));
            if header & raw::METADATA_PLAIN != 0 {
                return Ok(MetadataBlock {
                    content: stored.into(),
                    next,
                });
            }
            let mut content = [0; raw::METADATA_BYTES];
            let algorithm = self.superblock.algorithm;
            let decoded = self.with_worker(|worker| {
                Ok(worker.decoder.decompress(algorithm, &mut content, stored))
            });
            match decoded? {
                Ok(0) => Err(corrupt("metadata block is empty", header.into())),
                Ok(len) => Ok(MetadataBlock {
                    content: content.split_at(len).0.into(),
                    next,
                }),
                Err(error) => Err(Error::of_block(error, stored, content_at)),
            }
        })
    }

    /// Reads a block whose content fills `dst` exactly; from the cache, if it is there.
    pub(crate) fn block_into(&self, at: u64, stored: StoredSize, dst: &mut [u8]) -> Result<()> {
        let cached = self.data.find(at);
        let len = if let Some(block) = cached {
            if block.len() == dst.len() {
                dst.copy_from_slice(&block);
            }
            block.len()
        } else if stored.plain {
            let len = dst.len().min(to_usize(stored.bytes));
            self.read(dst.split_at_mut(len).0, at)?;
            to_usize(stored.bytes)
        } else {
            self.data.note_decoded(at);
            self.decode(at, stored.bytes, dst)?
        };
        if len != dst.len() {
            return Err(Error::corrupt(
                "data block's content is not as long as the file says",
                at,
                to_u64(len),
            ));
        }
        Ok(())
    }

    /// Reads a block into the start of `dst`, which is as long as a block; returns the length of
    /// its content.
    pub(crate) fn decode_block(
        &self,
        at: u64,
        stored: StoredSize,
        dst: &mut [u8],
    ) -> Result<usize> {
        if stored.plain {
            let len = to_usize(stored.bytes);
            self.read(dst.split_at_mut(len).0, at)?;
            return Ok(len);
        }
        self.decode(at, stored.bytes, dst)
    }

    /// The content of a block, at most a block long, which stays in the cache.
    pub(crate) fn block(&self, at: u64, stored: StoredSize) -> Result<Arc<Vec<u8>>> {
        let block_bytes = to_usize(self.superblock.block_bytes);
        self.data.find_or_make(at, block_bytes, |gone| {
            let mut content = gone.unwrap_or_default();
            content.resize(block_bytes, 0);
            let len = self.decode_block(at, stored, &mut content)?;
            content.truncate(len);
            Ok(content)
        })
    }
}
