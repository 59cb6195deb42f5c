//! zlib streams, with libdeflate.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use crate::Error;
use libdeflater::{CompressionLvl, Compressor, DecompressionError, Decompressor};

/// libdeflate's level for each of zlib's levels 1 to 9, chosen so that the result is no larger than
/// zlib's; above 9, libdeflate's own levels.
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

    pub(crate) fn decompress_deflate(
        &mut self,
        dst: &mut [u8],
        src: &[u8],
    ) -> Result<usize, Error> {
        self.0
            .deflate_decompress(src, dst)
            .map_err(|error| match error {
                DecompressionError::BadData => Error::Corrupt("deflate stream is corrupt"),
                DecompressionError::InsufficientSpace => Error::DstSizeTooSmall,
            })
    }
}

/// Decodes the stream at the beginning of `src`: its length, and that of its content. libdeflate
/// does not say where a stream ends.
pub(crate) fn decompress_first(dst: &mut [u8], src: &[u8]) -> Option<(usize, usize)> {
    let mut stream = flate2::Decompress::new(true);
    let status = stream.decompress(src, dst, flate2::FlushDecompress::Finish);
    let lengths = (stream.total_in(), stream.total_out());
    if !matches!(status, Ok(flate2::Status::StreamEnd)) {
        return None;
    }
    Some((lengths.0.try_into().ok()?, lengths.1.try_into().ok()?))
}

/// The end of a stream that decoded to `content`, if everything after it is zero and the end can be
/// determined.
///
/// The last four bytes of a stream are the content's checksum. So the last nonzero byte of `src` is
/// the last nonzero byte of the checksum, unless the checksum is zero: then it is somewhere before
/// it, and the number of zeros that belong to the stream is unknown.
pub(crate) fn end(content: &[u8], src: &[u8]) -> Option<usize> {
    let sum = libdeflater::adler32(content).to_be_bytes();
    if sum == [0; 4] {
        return None;
    }
    let zeros = |bytes: &[u8]| bytes.iter().rev().take_while(|&&byte| byte == 0).count();
    let end = src
        .len()
        .checked_sub(zeros(src))?
        .checked_add(zeros(&sum))?;
    src.get(..end)?.ends_with(&sum).then_some(end)
}
