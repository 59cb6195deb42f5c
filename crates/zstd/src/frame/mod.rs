//! Frame and block headers (RFC 8878, section 3.1.1).

/// First four bytes of a frame, as a little-endian number.
pub(crate) const MAGIC: u32 = 0xFD2F_B528;
/// First of the sixteen magic numbers of skippable frames.
pub(crate) const SKIPPABLE_MAGIC: u32 = 0x184D_2A50;
/// No block is larger, neither stored nor regenerated.
pub(crate) const BLOCK_SIZE_MAX: usize = 128 * 1024;
/// Bytes of a block header.
pub(crate) const BLOCK_HEADER_SIZE: usize = 3;

// ---- reading (feature `decompress`) ----

#[cfg(feature = "decompress")]
mod read;
#[cfg(feature = "decompress")]
pub(crate) use read::{BlockHeader, BlockKind, HEADER_SIZE_MAX};
#[cfg(feature = "decompress")]
pub use read::{
    Frame, FrameHeader, WINDOW_SIZE_MAX, content_size, frame_size, is_frame, total_content_size,
};

// ---- writing (feature `compress`) ----

#[cfg(feature = "compress")]
mod write;
#[cfg(feature = "compress")]
pub use write::skippable_frame_header;
#[cfg(feature = "compress")]
pub(crate) use write::{COMPRESSED, FRAME_HEADER_SIZE_MAX, HeaderFields, RAW, RLE, block_header};
