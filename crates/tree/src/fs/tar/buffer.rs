//! A part of an archive in memory.

use super::header::BLOCK;

/// Bytes that are collected to be written. What it held before is overwritten, not cleared, so that
/// a reused buffer has room for content at no cost.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// The first `len` are in use.
    bytes: Vec<u8>,
    len: usize,
}

impl Buffer {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Keeps the first `len` bytes, of which there must be as many.
    pub(super) fn truncate(&mut self, len: usize) {
        debug_assert!(len <= self.len);
        self.len = len;
    }

    /// Appends `len` bytes, whose values are unspecified until the caller has written them.
    pub(super) fn append(&mut self, len: usize) -> &mut [u8] {
        let start = self.len;
        self.len += len;
        if self.bytes.len() < self.len {
            self.bytes.resize(self.len, 0);
        }
        &mut self.bytes[start..self.len]
    }

    pub(super) fn extend_from_slice(&mut self, bytes: &[u8]) {
        self.append(bytes.len()).copy_from_slice(bytes);
    }

    /// Appends zeros up to the next whole block.
    pub(super) fn pad(&mut self) {
        self.pad_to(BLOCK as usize);
    }

    /// Appends zeros up to the next multiple of a number.
    pub(super) fn pad_to(&mut self, multiple: usize) {
        let len = self.len.next_multiple_of(multiple) - self.len;
        self.append(len).fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_buffer_held_before_does_not_show() {
        let mut buffer = Buffer::default();
        buffer.append(1000).fill(b'x');
        buffer.truncate(3);
        buffer.extend_from_slice(b"ab");
        buffer.pad();
        let mut expected = b"xxxab".to_vec();
        expected.resize(512, 0);
        assert_eq!(buffer.as_slice(), expected);
        buffer.pad();
        assert_eq!(buffer.len(), 512);
    }
}
