//! Checksums of the bytes written, to prove that the output returns them.

use std::io;

use crate::{Error, Parallel, ReadAt, Result, Sha256, ordered};
use xxhash::Xxh64;

/// Bytes covered by one checksum.
const CHUNK_BYTES: u64 = 1 << 20;
/// Bytes read back at once: few enough to be summed from the processor's cache.
const READ_BYTES: usize = 128 << 10;

/// Checksums of the bytes written, one for each MiB, so that any number of threads can compare
/// them.
pub struct WrittenChecksums {
    open: Xxh64,
    /// Number of bytes that `open` covers.
    open_bytes: u64,
    done: Vec<u64>,
}

/// A saved state of [`WrittenChecksums`].
pub struct ChecksumsMark {
    open: Xxh64,
    open_bytes: u64,
    done: usize,
}

impl Default for WrittenChecksums {
    fn default() -> Self {
        Self::new()
    }
}

impl WrittenChecksums {
    /// Of no bytes yet.
    pub fn new() -> Self {
        WrittenChecksums {
            open: Xxh64::new(0),
            open_bytes: 0,
            done: Vec::new(),
        }
    }

    /// Marks the current state.
    pub fn mark(&self) -> ChecksumsMark {
        ChecksumsMark {
            open: self.open,
            open_bytes: self.open_bytes,
            done: self.done.len(),
        }
    }

    /// Forgets the bytes appended since the mark.
    pub fn rewind(&mut self, mark: ChecksumsMark) {
        (self.open, self.open_bytes) = (mark.open, mark.open_bytes);
        self.done.truncate(mark.done);
    }

    /// Appends bytes that were written.
    pub fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = CHUNK_BYTES - self.open_bytes;
            let (now, later) = bytes.split_at(room.min(bytes.len() as u64) as usize);
            self.open.update(now);
            self.open_bytes += now.len() as u64;
            if self.open_bytes == CHUNK_BYTES {
                self.done.push(self.open.digest());
                (self.open, self.open_bytes) = (Xxh64::new(0), 0);
            }
            bytes = later;
        }
    }

    /// The SHA-256 of all checksums: the same for the same bytes.
    pub fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for sum in self.done.iter().chain([&self.open.digest()]) {
            digest.update(&sum.to_le_bytes());
        }
        digest.finish()
    }

    /// Compares the checksums with the output's bytes, starting at `at`.
    ///
    /// # Errors
    /// The output cannot be read, or differs.
    pub fn compare(&self, output: &dyn ReadAt, at: u64, parallel: Parallel) -> Result<()> {
        let whole = self.done.iter().map(|&sum| (CHUNK_BYTES, sum));
        let last = (self.open_bytes > 0).then(|| (self.open_bytes, self.open.digest()));
        let chunks = (0u64..).zip(whole.chain(last));
        ordered(
            parallel,
            chunks,
            || vec![0; READ_BYTES],
            |buf, (index, (len, written))| {
                let mut sum = Xxh64::new(0);
                let start = at + index * CHUNK_BYTES;
                for done in (0..len).step_by(READ_BYTES) {
                    let part = READ_BYTES.min((len - done) as usize);
                    output.read_exact_at(&mut buf[..part], start + done)?;
                    sum.update(&buf[..part]);
                }
                if sum.digest() == written {
                    Ok(())
                } else {
                    Err(Error::Io(io::Error::other(
                        "the output does not read back as it was written",
                    )))
                }
            },
            Ok,
        )
    }
}
