//! The tables of a disk file, read in pages that are kept.

use std::io;
use std::sync::Arc;

use tree::{Cache, ReadAt, to_u64, to_usize};

/// Bytes that are read at once.
const PAGE_BYTES: u64 = 16 << 10;

/// Where the number of a file in its chain is in a key of a cache, above each offset in a file.
pub(super) const FILE_SHIFT: u32 = 56;

/// The tables of a file.
pub(super) struct Tables {
    file: Arc<dyn ReadAt>,
    file_bytes: u64,
    /// The number of the file, from which the keys of its pages are made.
    number: u64,
    pages: Arc<Cache<Vec<u8>>>,
}

impl Tables {
    pub(super) fn new(
        file: &Arc<dyn ReadAt>,
        number: usize,
        pages: &Arc<Cache<Vec<u8>>>,
    ) -> io::Result<Tables> {
        Ok(Tables {
            file: Arc::clone(file),
            file_bytes: file.size()?,
            number: to_u64(number),
            pages: Arc::clone(pages),
        })
    }

    /// Bytes of the file.
    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Whether the file has this many bytes there.
    pub(super) fn holds(&self, at: u64, len: u64) -> bool {
        at.checked_add(len)
            .is_some_and(|end| end <= self.file_bytes)
    }

    /// The bytes at an offset.
    ///
    /// # Errors
    /// The file ends before, or cannot be read.
    pub(super) fn bytes<const N: usize>(&self, at: u64) -> io::Result<[u8; N]> {
        let page = at / PAGE_BYTES;
        let inside = to_usize(at % PAGE_BYTES);
        let bytes = self
            .pages
            .find_or_make(self.number << FILE_SHIFT | page, |_| {
                let from = page.saturating_mul(PAGE_BYTES);
                let len = self.file_bytes.saturating_sub(from).min(PAGE_BYTES);
                let mut bytes = vec![0; to_usize(len)];
                self.file.read_exact_at(&mut bytes, from)?;
                Ok::<_, io::Error>(bytes)
            })?;
        if let Some(found) = bytes.get(inside..).and_then(<[u8]>::first_chunk) {
            return Ok(*found);
        }
        // In two pages, or behind the end.
        let mut found = [0; N];
        self.file.read_exact_at(&mut found, at)?;
        Ok(found)
    }

    /// This many bytes at an offset, which the caller has limited.
    pub(super) fn vec(&self, at: u64, len: u64) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; to_usize(len)];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }
}

/// Numbers in a header; 0 behind its end.
pub(super) fn be32(header: &[u8], at: usize) -> u32 {
    let bytes = header.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

pub(super) fn be64(header: &[u8], at: usize) -> u64 {
    let bytes = header.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

pub(super) fn le16(header: &[u8], at: usize) -> u16 {
    let bytes = header.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u16::from_le_bytes(*bytes))
}

pub(super) fn le32(header: &[u8], at: usize) -> u32 {
    let bytes = header.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

pub(super) fn le64(header: &[u8], at: usize) -> u64 {
    let bytes = header.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
}
