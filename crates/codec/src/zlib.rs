//! zlib streams, by libdeflate.

use crate::Error;
use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

/// libdeflate's level for each of zlib's levels 1 to 9, so that the result is no larger than zlib's; beyond, its own.
const LEVELS: [i32; 12] = [1, 2, 3, 4, 5, 6, 6, 7, 7, 10, 11, 12];

pub(crate) struct Encoder(Compressor);

impl Encoder {
    pub(crate) fn new(level: u8) -> Result<Self, Error> {
        let level = usize::from(level)
            .checked_sub(1)
            .and_then(|index| LEVELS.get(index));
        level
            .and_then(|&level| CompressionLvl::new(level).ok())
            .map(|level| Encoder(Compressor::new(level)))
            .ok_or(Error::Settings("gzip level is not 1 to 12"))
    }

    pub(crate) fn compress(&mut self, dst: &mut [u8], src: &[u8]) -> Option<usize> {
        self.0.zlib_compress(src, dst).ok()
    }
}

pub(crate) struct Decoder(Decompressor);

impl Default for Decoder {
    fn default() -> Self {
        Decoder(Decompressor::new())
    }
}

impl Decoder {
    pub(crate) fn decompress(&mut self, dst: &mut [u8], src: &[u8]) -> Result<usize, Error> {
        self.0
            .zlib_decompress(src, dst)
            .map_err(|error| match error {
                DecompressionError::BadData => Error::Corrupt("zlib stream is corrupt"),
                DecompressionError::InsufficientSpace => Error::DstSizeTooSmall,
            })
    }
}

/// Where a stream ends that decoded to `content`, if all behind it is zero and it can be told.
///
/// Its last four bytes are the content's checksum. The last byte of `src` that is not zero is the last such one of the checksum,
/// unless all four are zero: then it is somewhere before them, and nobody knows how many zeros belong to the stream.
pub(crate) fn end(content: &[u8], src: &[u8]) -> Option<usize> {
    let sum = libdeflater::adler32(content).to_be_bytes();
    if sum == [0; 4] {
        return None;
    }
    let zeros = |bytes: &[u8]| bytes.iter().rev().take_while(|&&byte| byte == 0).count();
    let end = src.len() - zeros(src) + zeros(&sum);
    src.get(..end)?.ends_with(&sum).then_some(end)
}
