//! Headers as bytes.

use super::{BLOCK_HEADER_SIZE, MAGIC, SKIPPABLE_MAGIC};

/// Longest frame header: magic, descriptor, window, dictionary id, content size.
pub(crate) const FRAME_HEADER_SIZE_MAX: usize = 4 + 1 + 1 + 4 + 8;

/// What a frame header tells.
#[derive(Clone, Copy)]
pub(crate) struct HeaderFields {
    pub(crate) window_log: u8,
    pub(crate) content_size: Option<u64>,
    pub(crate) checksum: bool,
    /// 0 for none.
    pub(crate) dictionary_id: u32,
}

impl HeaderFields {
    /// Whether the content is the window: no window field, and the content size is stated.
    pub(crate) fn is_single_segment(&self) -> bool {
        self.content_size
            .is_some_and(|size| size <= 1 << self.window_log)
    }

    /// The header and its length.
    pub(crate) fn emit(&self) -> ([u8; FRAME_HEADER_SIZE_MAX], usize) {
        let mut bytes = [0; FRAME_HEADER_SIZE_MAX];
        let mut at = 0;
        let mut put = |value: u64, count: usize| {
            bytes[at..at + count].copy_from_slice(&value.to_le_bytes()[..count]);
            at += count;
        };
        let single = self.is_single_segment();
        let (size_flag, size, size_bytes) = match self.content_size {
            None => (0, 0, 0),
            Some(size @ 0..256) if single => (0, size, 1),
            Some(size @ 256..0x1_0100) => (1, size - 256, 2),
            Some(size @ 0..0x1_0000_0000) => (2, size, 4),
            Some(size) => (3, size, 8),
        };
        let (id_flag, id_bytes) = match self.dictionary_id {
            0 => (0, 0),
            1..0x100 => (1, 1),
            0x100..0x1_0000 => (2, 2),
            _ => (3, 4),
        };
        put(MAGIC.into(), 4);
        put(
            size_flag << 6 | u64::from(single) << 5 | u64::from(self.checksum) << 2 | id_flag,
            1,
        );
        if !single {
            put(u64::from(self.window_log - 10) << 3, 1);
        }
        put(self.dictionary_id.into(), id_bytes);
        put(size, size_bytes);
        (bytes, at)
    }
}

/// Block types (RFC 8878, section 3.1.1.2.2).
pub(crate) const RAW: u32 = 0;
/// See [`RAW`].
pub(crate) const RLE: u32 = 1;
/// See [`RAW`].
pub(crate) const COMPRESSED: u32 = 2;

/// The header of a block.
pub(crate) fn block_header(kind: u32, size: usize, last: bool) -> [u8; BLOCK_HEADER_SIZE] {
    let word = u32::from(last) | kind << 1 | (size as u32) << 3;
    let [a, b, c, _] = word.to_le_bytes();
    [a, b, c]
}

/// The header of a skippable frame of `size` bytes. `variant`, of which the low four bits count, chooses among the
/// sixteen magic numbers.
pub fn skippable_frame_header(variant: u8, size: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&(SKIPPABLE_MAGIC | u32::from(variant & 15)).to_le_bytes());
    bytes[4..].copy_from_slice(&size.to_le_bytes());
    bytes
}
