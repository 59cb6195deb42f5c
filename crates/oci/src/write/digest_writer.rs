//! Bytes on their way to an output, with their digest.

use std::io::{self, Write};

use tree::{Sha256, to_u64};

use crate::Digest;

/// Passes bytes on, and sums them.
pub struct DigestWriter<W> {
    out: W,
    sum: Sha256,
    bytes: u64,
}

impl<W: Write> DigestWriter<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> DigestWriter<W> {
        DigestWriter {
            out,
            sum: Sha256::new(),
            bytes: 0,
        }
    }

    /// The digest and the number of the bytes.
    pub fn finish(self) -> (Digest, u64) {
        (Digest::of(self.sum), self.bytes)
    }
}

impl<W: Write> Write for DigestWriter<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let len = self.out.write(buf)?;
        self.sum.update(buf.get(..len).unwrap_or_default());
        self.bytes = self.bytes.saturating_add(to_u64(len));
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
