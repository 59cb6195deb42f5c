//! LZ4 blocks, with the reference library.

use crate::Error;
use lz4::block::{CompressionMode, compress_to_buffer, decompress_to_buffer};

pub(crate) struct Encoder(CompressionMode);

impl Encoder {
    pub(crate) fn fast() -> Self {
        Encoder(CompressionMode::DEFAULT)
    }

    pub(crate) fn high(level: u8) -> Result<Self, Error> {
        match level {
            2..=12 => Ok(Encoder(CompressionMode::HIGHCOMPRESSION(level.into()))),
            _ => Err(Error::Settings("lz4 hc level is not 2 to 12")),
        }
    }

    pub(crate) fn compress(&mut self, dst: &mut [u8], src: &[u8]) -> Option<usize> {
        compress_to_buffer(src, Some(self.0), false, dst).ok()
    }
}

/// The library does not report whether a block is corrupt or too long, so neither do we.
pub(crate) fn decompress(dst: &mut [u8], src: &[u8]) -> Result<usize, Error> {
    let room = i32::try_from(dst.len()).map_err(|_| Error::DstSizeTooSmall)?;
    decompress_to_buffer(src, Some(room), dst)
        .map_err(|_| Error::Corrupt("lz4 block is corrupt or too long"))
}
