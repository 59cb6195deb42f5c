//! Reading frame and block headers, and querying a frame without decoding it.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use super::{BLOCK_HEADER_SIZE, BLOCK_SIZE_MAX, MAGIC, SKIPPABLE_MAGIC};
use crate::Error;

/// The largest window that any decoder here accepts: 2 GiB, or 1 GiB where addresses have 32 bits.
///
/// The format can name windows of terabytes; the C library has the same limit.
pub const WINDOW_SIZE_MAX: u64 = if usize::BITS > 32 { 1 << 31 } else { 1 << 30 };

/// No frame header is longer, magic number included.
pub(crate) const HEADER_SIZE_MAX: usize = 18;

/// Bytes of a skippable frame's header: magic number and size.
const SKIPPABLE_HEADER_SIZE: usize = 8;

/// The start of a frame, as far as the given bytes tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame {
    /// A frame with content.
    Zstd(FrameHeader),
    /// A frame that decoders pass over (RFC 8878, section 3.1.2).
    Skippable {
        /// Which of the sixteen magic numbers it has, 0 to 15.
        variant: u8,
        /// Bytes after the 8 bytes of its header.
        size: u32,
    },
    /// The header goes on after the given bytes.
    Incomplete {
        /// Bytes that are needed, counted from the frame's start, before more can be said.
        needed: usize,
    },
}

/// The fields of a frame header (RFC 8878, section 3.1.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the header, magic number included.
    pub size: usize,
    /// Bytes of the content, where the header tells.
    pub content_size: Option<u64>,
    /// How far back matches may reach, in bytes. The content size for a frame of a single segment.
    pub window_size: u64,
    /// No block is larger than this many bytes, stored or regenerated.
    pub block_size_max: u32,
    /// The dictionary that the frame names; 0 if it names none.
    pub dictionary_id: u32,
    /// Whether the frame ends with a checksum of its content.
    pub checksum: bool,
}

impl FrameHeader {
    /// That of no frame.
    pub(crate) const NONE: FrameHeader = FrameHeader {
        size: 0,
        content_size: None,
        window_size: 0,
        block_size_max: 0,
        dictionary_id: 0,
        checksum: false,
    };
}

impl Frame {
    /// Reads the start of a frame.
    ///
    /// Fails with [`Error::PrefixUnknown`] as soon as one byte of the magic number is wrong, with
    /// [`Error::FrameParameterUnsupported`] if the reserved bit is set, and with
    /// [`Error::WindowTooLarge`] if the window is larger than [`WINDOW_SIZE_MAX`].
    pub fn parse(src: &[u8]) -> Result<Frame, Error> {
        let Some(&magic) = src.first_chunk::<4>() else {
            let zstd = MAGIC.to_le_bytes();
            let skippable = SKIPPABLE_MAGIC.to_le_bytes();
            let is_zstd = zstd.starts_with(src);
            let is_skippable = match src {
                [] => true,
                [first, rest @ ..] => first & 0xf0 == 0x50 && skippable[1..].starts_with(rest),
            };
            // As in the C library, five bytes are the least that says something.
            return if is_zstd || is_skippable {
                Ok(Frame::Incomplete { needed: 5 })
            } else {
                Err(Error::PrefixUnknown)
            };
        };
        let magic = u32::from_le_bytes(magic);
        if magic == MAGIC {
            return parse_descriptor(src, 4);
        }
        if magic & 0xffff_fff0 != SKIPPABLE_MAGIC {
            return Err(Error::PrefixUnknown);
        }
        Ok(match src.get(4..).and_then(|rest| rest.first_chunk()) {
            Some(&size) => Frame::Skippable {
                variant: magic.to_le_bytes()[0] & 15,
                size: u32::from_le_bytes(size),
            },
            None => Frame::Incomplete {
                needed: SKIPPABLE_HEADER_SIZE,
            },
        })
    }

    /// Like [`Frame::parse`], for a frame without its magic number.
    pub fn parse_magicless(src: &[u8]) -> Result<Frame, Error> {
        parse_descriptor(src, 0)
    }
}

/// Reads all of a header that follows the magic number, from the frame header descriptor at `at`
/// on.
fn parse_descriptor(src: &[u8], at: usize) -> Result<Frame, Error> {
    let window_at = at.saturating_add(1);
    let Some(&descriptor) = src.get(at) else {
        return Ok(Frame::Incomplete { needed: window_at });
    };
    let single_segment = descriptor & 0x20 != 0;
    let window_len = usize::from(!single_segment);
    let id_len = match descriptor & 3 {
        3 => 4,
        len => usize::from(len),
    };
    let content_size_len = match descriptor >> 6 {
        0 => usize::from(single_segment),
        flag => 1 << flag,
    };
    let id_at = window_at.saturating_add(window_len);
    let content_size_at = id_at.saturating_add(id_len);
    let size = content_size_at.saturating_add(content_size_len);
    if src.len() < size {
        return Ok(Frame::Incomplete { needed: size });
    }
    if descriptor & 0x08 != 0 {
        return Err(Error::FrameParameterUnsupported);
    }
    // 4 bytes at most.
    let dictionary_id = u32::try_from(le(src, id_at, id_len)).unwrap_or(u32::MAX);
    let content_size = match content_size_len {
        0 => None,
        2 => Some(le(src, content_size_at, 2).saturating_add(256)),
        len => Some(le(src, content_size_at, len)),
    };
    let window_size = match content_size {
        Some(content_size) if single_segment => content_size,
        _ => {
            let byte = le(src, window_at, 1);
            // At most 41 bits.
            let base = 1u64 << (byte >> 3).saturating_add(10);
            let window_size = base.saturating_add((base / 8).saturating_mul(byte & 7));
            if base > WINDOW_SIZE_MAX {
                return Err(Error::WindowTooLarge);
            }
            window_size
        }
    };
    Ok(Frame::Zstd(FrameHeader {
        size,
        content_size,
        window_size,
        block_size_max: u32::try_from(window_size).map_or(BLOCK_MAX, |size| size.min(BLOCK_MAX)),
        dictionary_id,
        checksum: descriptor & 0x04 != 0,
    }))
}

/// [`BLOCK_SIZE_MAX`] as it is compared here.
const BLOCK_MAX: u32 = 128 << 10;
const _: () = assert!(BLOCK_SIZE_MAX == 128 << 10);

/// The little-endian number of `len` bytes (at most 8) at `at`.
#[inline(always)]
fn le(src: &[u8], at: usize, len: usize) -> u64 {
    let rest = src.get(at..).unwrap_or_default();
    if let Some(word) = rest.first_chunk() {
        let bits = u32::try_from(len).map_or(64, |len| len.saturating_mul(8));
        let end = 1_u64.checked_shl(bits);
        return u64::from_le_bytes(*word) & end.map_or(u64::MAX, |end| end.wrapping_sub(1));
    }
    let bytes = rest.iter().take(len);
    bytes
        .rev()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// The little-endian 32-bit number at `at`, if it is there.
pub(crate) fn le32(src: &[u8], at: usize) -> Option<u32> {
    src.get(at..)?
        .first_chunk()
        .map(|&bytes| u32::from_le_bytes(bytes))
}

/// The type of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// The content as it is.
    Raw,
    /// One byte, many times.
    Rle,
    /// Literals and sequences.
    Compressed,
}

/// The three bytes before each block (RFC 8878, section 3.1.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub(crate) last: bool,
    pub(crate) kind: BlockKind,
    /// Bytes that follow the header in the frame.
    pub(crate) stored: usize,
    /// Bytes of content; 0 where only decoding can tell.
    pub(crate) content: usize,
}

impl BlockHeader {
    /// Reads a block header and checks its sizes against the frame's limit.
    pub(crate) fn parse(bytes: [u8; 3], block_size_max: u32) -> Result<BlockHeader, Error> {
        let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
        let size = word >> 3;
        if size > block_size_max {
            return Err(Error::Corruption);
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let (kind, stored, content) = match (word >> 1) & 3 {
            0 => (BlockKind::Raw, size, size),
            1 => (BlockKind::Rle, 1, size),
            2 => (BlockKind::Compressed, size, 0),
            _ => return Err(Error::Corruption),
        };
        Ok(BlockHeader {
            last: word & 1 != 0,
            kind,
            stored,
            content,
        })
    }
}

/// Whether the bytes begin with the magic number of a frame, skippable or not.
pub fn is_frame(src: &[u8]) -> bool {
    le32(src, 0).is_some_and(|magic| magic == MAGIC || magic & 0xffff_fff0 == SKIPPABLE_MAGIC)
}

/// Bytes of content of the first frame, `None` if its header does not tell; 0 for a skippable
/// frame.
///
/// Fails as [`Frame::parse`] does, and with [`Error::SrcSizeWrong`] if the header is not all there.
/// The number is the claim of the frame: treat it as hostile until the frame is decoded.
pub fn content_size(src: &[u8]) -> Result<Option<u64>, Error> {
    match Frame::parse(src)? {
        Frame::Zstd(header) => Ok(header.content_size),
        Frame::Skippable { .. } => Ok(Some(0)),
        Frame::Incomplete { .. } => Err(Error::SrcSizeWrong),
    }
}

/// Bytes from the start of the first frame, skippable or not, to its end.
///
/// Reads the block headers, not the blocks. Fails as [`Frame::parse`] does, with
/// [`Error::SrcSizeWrong`] if the frame is not all there, and with [`Error::Corruption`] if a block
/// header is not valid.
pub fn frame_size(src: &[u8]) -> Result<usize, Error> {
    Ok(find_length(src, false)?.stored)
}

/// Bytes of content of all frames together, `None` if one of them does not tell.
///
/// Fails as [`frame_size`] does, and with [`Error::Corruption`] if the sum does not fit in 64 bits.
pub fn total_content_size(mut src: &[u8]) -> Result<Option<u64>, Error> {
    let mut total = Some(0u64);
    while !src.is_empty() {
        let content = content_size(src)?;
        src = src.get(frame_size(src)?..).unwrap_or_default();
        total = match (total, content) {
            (Some(total), Some(content)) => {
                Some(total.checked_add(content).ok_or(Error::Corruption)?)
            }
            _ => None,
        };
    }
    Ok(total)
}

/// How long a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Length {
    /// Bytes of the frame, from its header to its checksum.
    pub(crate) stored: usize,
    /// No decoding of the frame gives more bytes.
    pub(crate) content_max: u64,
}

/// Walks over a frame's block headers.
pub(crate) fn find_length(src: &[u8], magicless: bool) -> Result<Length, Error> {
    let frame = if magicless {
        Frame::parse_magicless(src)?
    } else {
        Frame::parse(src)?
    };
    let header = match frame {
        Frame::Zstd(header) => header,
        Frame::Skippable { size, .. } => {
            let stored = usize::try_from(size)
                .ok()
                .and_then(|size| size.checked_add(8));
            return match stored {
                Some(stored) if stored <= src.len() => Ok(Length {
                    stored,
                    content_max: 0,
                }),
                _ => Err(Error::SrcSizeWrong),
            };
        }
        Frame::Incomplete { .. } => return Err(Error::SrcSizeWrong),
    };
    let mut at = header.size;
    let mut content_max = 0u64;
    loop {
        let bytes = src
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .ok_or(Error::SrcSizeWrong)?;
        let block = BlockHeader::parse(*bytes, header.block_size_max)?;
        at = at.saturating_add(BLOCK_HEADER_SIZE);
        if src.len().saturating_sub(at) < block.stored {
            return Err(Error::SrcSizeWrong);
        }
        at = at.saturating_add(block.stored);
        content_max = content_max.saturating_add(match block.kind {
            BlockKind::Compressed => header.block_size_max.into(),
            _ => u64::try_from(block.content).unwrap_or(u64::MAX),
        });
        if block.last {
            break;
        }
    }
    if header.checksum {
        at = at.saturating_add(4);
    }
    if at > src.len() {
        return Err(Error::SrcSizeWrong);
    }
    Ok(Length {
        stored: at,
        content_max: header.content_size.unwrap_or(content_max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_forms() {
        let parse = |bytes: &[u8]| Frame::parse(bytes);
        // No content size, window byte 0x00: 1 KiB.
        let Ok(Frame::Zstd(header)) = parse(&[0x28, 0xB5, 0x2F, 0xFD, 0, 0]) else {
            panic!()
        };
        assert_eq!(
            (header.size, header.window_size, header.content_size),
            (6, 1024, None)
        );
        // Exponent 1, mantissa 7.
        let Ok(Frame::Zstd(header)) = parse(&[0x28, 0xB5, 0x2F, 0xFD, 4, 0x0f]) else {
            panic!()
        };
        assert_eq!(
            (header.window_size, header.checksum),
            (2048 + 256 * 7, true)
        );
        // Single segment with two bytes of size, which add 256.
        let Ok(Frame::Zstd(header)) = parse(&[0x28, 0xB5, 0x2F, 0xFD, 0x60, 1, 0]) else {
            panic!()
        };
        assert_eq!((header.content_size, header.window_size), (Some(257), 257));
        assert_eq!(
            parse(&[0x28, 0xB5, 0x2F]),
            Ok(Frame::Incomplete { needed: 5 })
        );
        assert_eq!(parse(&[0x28, 0xB4]), Err(Error::PrefixUnknown));
        assert_eq!(parse(&[0x5a]), Ok(Frame::Incomplete { needed: 5 }));
        assert_eq!(
            parse(&[0x5a, 0x2a, 0x4d, 0x18, 1, 0, 0, 0x80]),
            Ok(Frame::Skippable {
                variant: 10,
                size: 0x8000_0001
            })
        );
        assert_eq!(
            parse(&[0x28, 0xB5, 0x2F, 0xFD, 8, 0]),
            Err(Error::FrameParameterUnsupported)
        );
        assert_eq!(
            parse(&[0x28, 0xB5, 0x2F, 0xFD, 0, 0xff]),
            Err(Error::WindowTooLarge)
        );
    }
}
