//! Streams and archives whose parts are compared with digests when they are read. An index of one
//! holds the digests: 16 bytes for each 64 KiB, behind its own blocks.

#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::io;
use std::ops::Range;
use std::sync::Arc;

use tree::{Cache, Error, Parallel, ReadAt, ordered, sha256, to_u64, to_usize};

/// Bytes of a part: reading a file fetches at most that much on each side of it.
const PART_BYTES: u64 = 64 << 10;
const PART_LEN: usize = 64 << 10;
/// Bytes of a digest: the first ones of a SHA-256.
const DIGEST_LEN: usize = 16;
const DIGEST_BYTES: u64 = 16;
/// Bytes that one job digests.
const JOB_BYTES: u64 = 1 << 20;

/// The digests of all parts of a file, in order.
///
/// # Errors
/// It cannot be read.
pub(crate) fn digests(file: &dyn ReadAt, parallel: Parallel) -> tree::Result<Vec<u8>> {
    let bytes = file.size()?;
    let jobs = (0..bytes.div_ceil(JOB_BYTES)).map(|job| job.saturating_mul(JOB_BYTES));
    let mut all = Vec::new();
    ordered(
        parallel,
        jobs,
        Vec::new,
        |buffer: &mut Vec<u8>, at| {
            let len = bytes.saturating_sub(at).min(JOB_BYTES);
            buffer.resize(to_usize(len), 0);
            file.read_exact_at(buffer, at)?;
            Ok(buffer.chunks(PART_LEN).map(digest).collect::<Vec<_>>())
        },
        |digests| -> tree::Result<()> {
            all.extend(digests.as_flattened());
            Ok(())
        },
    )?;
    Ok(all)
}

fn digest(part: &[u8]) -> [u8; DIGEST_LEN] {
    let digest = sha256(part);
    *digest.first_chunk().expect("a SHA-256 has 32 bytes")
}

/// A stream or an archive of which an index has the digests.
pub(crate) struct DigestedFile {
    file: Arc<dyn ReadAt>,
    bytes: u64,
    index: Arc<dyn ReadAt>,
    /// Where in the index the digests begin.
    digests_at: u64,
    /// Parts that are equal to their digests, by their numbers: at most 1 MiB.
    parts: Cache<Vec<u8>>,
}

impl DigestedFile {
    /// A file of the size that it had, with its index, and the place of the digests in that.
    ///
    /// # Errors
    /// Its size cannot be read; the index ends before the digests do.
    pub(crate) fn open(
        file: Arc<dyn ReadAt>,
        (index, digests_at): (Arc<dyn ReadAt>, u64),
    ) -> tree::Result<DigestedFile> {
        let bytes = file.size()?;
        let digest_bytes = bytes.div_ceil(PART_BYTES).saturating_mul(DIGEST_BYTES);
        let index_bytes = index.size()?;
        if digests_at
            .checked_add(digest_bytes)
            .is_none_or(|end| end > index_bytes)
        {
            let what = "index ends before the digests of its file";
            return Err(Error::corrupt(what, digests_at, index_bytes));
        }
        Ok(DigestedFile {
            file,
            bytes,
            index,
            digests_at,
            parts: Cache::new(4, 4),
        })
    }

    /// A part, after it was compared with its digest.
    fn part(&self, number: u64) -> tree::Result<Arc<Vec<u8>>> {
        self.parts.find_or_make(number, |old| {
            let at = number.saturating_mul(PART_BYTES);
            let mut part = old.unwrap_or_default();
            part.resize(to_usize(self.bytes.saturating_sub(at).min(PART_BYTES)), 0);
            self.file.read_exact_at(&mut part, at)?;
            let mut expected = [0; DIGEST_LEN];
            let digest_at = number.saturating_mul(DIGEST_BYTES);
            // Below the end of the index, which was checked.
            (self.index).read_exact_at(&mut expected, self.digests_at.saturating_add(digest_at))?;
            if digest(&part) != expected {
                let what = "part of the file changed since the index was made";
                return Err(Error::corrupt(what, at, to_u64(part.len())));
            }
            Ok(part)
        })
    }
}

impl ReadAt for DigestedFile {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(to_u64(buf.len()));
        if end.is_none_or(|end| end > self.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (mut rest, mut at) = (buf, at);
        while !rest.is_empty() {
            let part = self.part(at / PART_BYTES).map_err(|error| match error {
                Error::Io(error) => error,
                error => io::Error::new(io::ErrorKind::InvalidData, error),
            })?;
            let found = part.get(to_usize(at % PART_BYTES)..).unwrap_or_default();
            let len = found.len().min(rest.len());
            let (filled, behind) = rest.split_at_mut(len);
            filled.copy_from_slice(found.get(..len).unwrap_or_default());
            rest = behind;
            at = at.saturating_add(to_u64(len));
        }
        Ok(())
    }

    fn will_read(&self, ranges: &[Range<u64>]) {
        let whole = |range: &Range<u64>| {
            let start = range.start / PART_BYTES;
            let end = range.end.div_ceil(PART_BYTES).saturating_mul(PART_BYTES);
            start.saturating_mul(PART_BYTES)..end.min(self.bytes)
        };
        self.file
            .will_read(&ranges.iter().map(whole).collect::<Vec<_>>());
    }

    fn will_read_within(&self, range: Range<u64>) {
        self.file.will_read_within(range);
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.bytes)
    }
}
