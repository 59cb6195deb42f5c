//! Reading back extents that were written to a mounted btrfs as they are encoded.

use std::os::fd::AsFd;

use linux::EncodedExtent;
use xxhash::xxh64;

use crate::{Error, Result, to_usize};

/// The smallest sector of btrfs.
const SECTOR_BYTES: u64 = 4096;

/// The fingerprint of an extent that was written to a mounted btrfs as it is encoded
/// (`linux::write_encoded`).
///
/// Linux accepts such an extent before it is on the medium, and drops the error if it cannot be
/// written there: not even `syncfs` reports it, and the file then has a hole. Only reading the
/// extent back shows that it is there.
#[derive(Clone, Copy, Debug)]
pub struct WrittenExtent {
    offset: u64,
    len: u64,
    unencoded_offset: u64,
    compression: u32,
    stored_len: usize,
    hash: u64,
}

impl WrittenExtent {
    /// The fingerprint of an extent that Linux accepted.
    pub fn of(extent: &EncodedExtent<'_>) -> WrittenExtent {
        WrittenExtent {
            offset: extent.offset,
            len: extent.len,
            unencoded_offset: extent.unencoded_offset,
            compression: extent.compression,
            stored_len: extent.data.len(),
            hash: xxh64(extent.data, 0),
        }
    }

    /// Where the part of the file ends that was written.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Whether the extent stays as it is stored when a file changes at `from` and beyond, if it
    /// ends at `end`. An end within a sector is that of the file: when the file grows, Linux fills
    /// the sector with zeros and stores it again.
    pub fn is_kept(end: u64, from: u64) -> bool {
        end <= from && end.is_multiple_of(SECTOR_BYTES)
    }

    /// Reads the extent as it is stored, past the page cache, and compares it. Waits until it is
    /// written. Nothing else may have changed this part of the file. `stored` is memory to reuse.
    ///
    /// # Errors
    /// [`Error::Unverified`] if the file has anything else there, and the kernel's error.
    pub fn read_back(&self, file: impl AsFd, stored: &mut Vec<u8>) -> Result<()> {
        let stored_max = to_usize(linux::ENCODED_BYTES_MAX);
        let is_same = match linux::read_encoded(file, self.offset, stored_max, stored) {
            Ok(read) => {
                (read.compression, read.unencoded_offset, read.len)
                    == (self.compression, self.unencoded_offset, self.len)
                    && stored.split_at_checked(self.stored_len).is_some_and(|it| {
                        // Linux fills the last sector with zeros.
                        xxh64(it.0, 0) == self.hash && it.1.iter().all(|&byte| byte == 0)
                    })
            }
            // Either the data cannot be read, or Linux has just found that it cannot write it.
            Err(error) if error.raw_os_error() == Some(linux::errno::EIO) => false,
            Err(error) => return Err(error.into()),
        };
        if is_same {
            return Ok(());
        }
        Err(Error::Unverified(
            "compressed data cannot be read back as it was written",
        ))
    }
}
