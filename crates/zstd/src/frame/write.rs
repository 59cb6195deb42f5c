//! Headers as bytes.

use super::{BLOCK_HEADER_SIZE, MAGIC, SKIPPABLE_MAGIC};

/// Longest frame header: magic, descriptor, window, dictionary id, content size.
pub(crate) const FRAME_HEADER_SIZE_MAX: usize = 4 + 1 + 1 + 4 + 8;

/// The fields of a frame header to write.
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

/// The header of a skippable frame of `size` bytes. `variant`, of which the low four bits count,
/// chooses among the sixteen magic numbers.
pub fn skippable_frame_header(variant: u8, size: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&(SKIPPABLE_MAGIC | u32::from(variant & 15)).to_le_bytes());
    bytes[4..].copy_from_slice(&size.to_le_bytes());
    bytes
}

#[cfg(test)]
#[cfg(feature = "decompress")]
mod tests {
    use super::super::{Frame, is_frame};
    use super::*;

    /// The sizes are the first and the last of each length of the field.
    #[test]
    fn headers_of_all_lengths_are_read_back() {
        let sizes = [
            0,
            255,
            256,
            0x1_00ff,
            0x1_0100,
            0xffff_ffff,
            0x1_0000_0000,
            u64::MAX,
        ];
        let ids = [0, 1, 0xff, 0x100, 0xffff, 0x1_0000, u32::MAX];
        let mut longest = 0;
        for content_size in sizes.map(Some).into_iter().chain([None]) {
            for (dictionary_id, window_log) in
                ids.iter().flat_map(|id| [10, 20, 31].map(|log| (*id, log)))
            {
                for checksum in [false, true] {
                    let fields = HeaderFields {
                        window_log,
                        content_size,
                        checksum,
                        dictionary_id,
                    };
                    let (bytes, len) = fields.emit();
                    let Ok(Frame::Zstd(header)) = Frame::parse(&bytes[..len]) else {
                        panic!("{bytes:?}, {len}")
                    };
                    let fits = content_size.filter(|size| *size <= 1 << window_log);
                    assert_eq!(header.size, len);
                    assert_eq!(header.content_size, content_size);
                    assert_eq!(header.window_size, fits.unwrap_or(1 << window_log));
                    assert_eq!(header.dictionary_id, dictionary_id);
                    assert_eq!(header.checksum, checksum);
                    longest = longest.max(len);
                }
            }
        }
        assert_eq!(longest, FRAME_HEADER_SIZE_MAX);
    }

    #[test]
    fn only_frames_and_skippable_frames_are_frames() {
        for (variant, magic) in [(0, 0x50), (15, 0x5f), (0x17, 0x57)] {
            let bytes = skippable_frame_header(variant, 0x0403_0201);
            assert_eq!(bytes, [magic, 0x2a, 0x4d, 0x18, 1, 2, 3, 4]);
            assert!(is_frame(&bytes) && !is_frame(&bytes[..3]));
        }
        assert!(is_frame(&MAGIC.to_le_bytes()));
        assert!(!is_frame(&[0x4f, 0x2a, 0x4d, 0x18]) && !is_frame(&[0x60, 0x2a, 0x4d, 0x18]));
    }
}
