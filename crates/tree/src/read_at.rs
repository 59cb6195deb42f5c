//! Positioned reads: the only way in which formats read images.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes that several threads can read at any position at once.
pub trait ReadAt: Send + Sync {
    /// Fills `buf` with the bytes at offset `at`.
    ///
    /// # Errors
    /// `UnexpectedEof` if fewer bytes are available; otherwise the medium's error.
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()>;

    /// The size in bytes.
    ///
    /// # Errors
    /// The medium's error.
    fn size(&self) -> io::Result<u64>;

    /// Says that these bytes will be read soon, for a medium that many small reads would keep
    /// waiting: an object of another machine. Others ignore it.
    fn will_read(&self, _ranges: &[Range<u64>]) {}

    /// Says that reading that begins in this range ends with it, because it is the content of a
    /// file: a medium that reads ahead would fetch bytes behind it in vain.
    fn will_read_within(&self, _range: Range<u64>) {}

    /// How many bytes may as well be read where fewer are wanted, because those behind them are
    /// near: less than a mebibyte if each has to be decoded.
    fn window_bytes(&self) -> usize {
        1 << 20
    }
}

impl ReadAt for File {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, buf, at).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                let (len, end) = (buf.len(), ReadAt::size(self).unwrap_or_default());
                let words = format!("{len} bytes at byte {at} of a file that ends at byte {end}");
                io::Error::new(error.kind(), words)
            }
            _ => error,
        })
    }

    /// The size of a regular file, or of a block device.
    fn size(&self) -> io::Result<u64> {
        use std::os::unix::fs::FileTypeExt;
        let metadata = self.metadata()?;
        if metadata.file_type().is_block_device() {
            return linux::device_bytes(self);
        }
        Ok(metadata.len())
    }
}

impl ReadAt for [u8] {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let from = usize::try_from(at).ok();
        let from = from
            .and_then(|from| self.get(from..))
            .and_then(|rest| rest.get(..buf.len()));
        buf.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

impl ReadAt for Vec<u8> {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.as_slice().read_exact_at(buf, at)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }
}

impl<R: ReadAt + ?Sized> ReadAt for Arc<R> {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        (**self).read_exact_at(buf, at)
    }

    fn size(&self) -> io::Result<u64> {
        (**self).size()
    }

    fn will_read(&self, ranges: &[Range<u64>]) {
        (**self).will_read(ranges);
    }

    fn will_read_within(&self, range: Range<u64>) {
        (**self).will_read_within(range);
    }

    fn window_bytes(&self) -> usize {
        (**self).window_bytes()
    }
}

/// Reads a [`ReadAt`] from its beginning to its end.
#[derive(Debug)]
pub struct SequentialReader<R> {
    source: R,
    at: u64,
}

impl<R: ReadAt> SequentialReader<R> {
    /// Begins at the first byte.
    pub fn new(source: R) -> SequentialReader<R> {
        SequentialReader::starting_at(source, 0)
    }

    /// Begins at this byte.
    pub fn starting_at(source: R, at: u64) -> SequentialReader<R> {
        SequentialReader { source, at }
    }
}

impl<R: ReadAt> Read for SequentialReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.source.size()?.saturating_sub(self.at);
        let len = left.min(buf.len() as u64) as usize;
        self.source.read_exact_at(&mut buf[..len], self.at)?;
        self.at += len as u64;
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_slices_are_refused_not_cut() {
        let bytes = [1u8, 2, 3];
        let mut buf = [0; 2];
        bytes[..].read_exact_at(&mut buf, 1).unwrap();
        assert_eq!(buf, [2, 3]);
        assert!(bytes[..].read_exact_at(&mut buf, 2).is_err());
        assert!(bytes[..].read_exact_at(&mut buf, u64::MAX).is_err());
    }
}
