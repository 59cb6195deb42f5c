//! Extents in the form that btrfs stores and sends: a codec's output with its frame.
//!
//! zlib and zstd have their own frames; LZO needs [segments](crate::segments). Extents in whole
//! sectors are padded with zeros. The content can be shorter than its extent; the rest reads as
//! zeros.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use crate::segments::Segments;
use crate::{Algorithm, Decoder, Encoder, Error, ZstdFrame, decompress_lzo};

/// The largest window of a zstd frame in an extent, 2^17 bytes: Linux accepts no larger one.
const WINDOW_MAX: u64 = 1 << 17;

impl Algorithm {
    /// Whether `stored` can be a btrfs extent, judging by its header: a zstd frame must be
    /// complete, need no dictionary and have a window that Linux accepts. Only decoding verifies
    /// the rest.
    pub fn is_extent(self, stored: &[u8]) -> bool {
        match self {
            Algorithm::Zlib | Algorithm::LzoBtrfs { .. } => true,
            Algorithm::Zstd => ZstdFrame::parse(stored, WINDOW_MAX).is_some(),
            Algorithm::Lzo | Algorithm::Lz4 | Algorithm::Xz | Algorithm::Lzma => false,
        }
    }
}

impl Encoder {
    /// Encodes `src` as an extent, without padding, into the beginning of `dst`: LZO in segments of
    /// one sector each, the others like [`Encoder::compress`]. Returns the encoded length, or
    /// `None` if `dst` is too short.
    ///
    /// # Panics
    /// If the settings are for LZO and `sector_bytes` is not a power of two from 4 KiB to 64 KiB.
    pub fn compress_extent(
        &mut self,
        sector_bytes: u32,
        dst: &mut [u8],
        src: &[u8],
    ) -> Option<usize> {
        if self.algorithm == Algorithm::Lzo {
            Segments::new(sector_bytes)
                .expect("the caller passes a valid sector size")
                .compress(dst, src, |dst, src| self.compress(dst, src))
        } else {
            self.compress(dst, src)
        }
    }
}

impl Decoder {
    /// Decodes an extent, padded or not, and fills all of `dst`, with zeros after the content.
    /// Returns the length of the content.
    ///
    /// Content longer than `dst` is truncated if the framing allows it: zstd and LZO segments stop
    /// when `dst` is full.
    ///
    /// # Errors
    /// The stored bytes break their format, a zstd frame has a larger window than Linux accepts, or
    /// a zlib stream or one segment holds more than `dst`.
    pub fn decompress_extent(
        &mut self,
        algorithm: Algorithm,
        dst: &mut [u8],
        stored: &[u8],
    ) -> Result<usize, Error> {
        let len = match algorithm {
            #[cfg(feature = "zstd")]
            Algorithm::Zstd => {
                let options = zstd::DecodeOptions::new().window_max(WINDOW_MAX);
                let workspace = self.zstd.get_or_insert_default();
                let decoded = options.decompress_extent(dst, stored, &mut workspace[..]);
                decoded.map_err(Error::Zstd)?.written
            }
            Algorithm::LzoBtrfs { sector_bytes } => {
                let segments = Segments::new(sector_bytes)?;
                segments.decompress(dst, stored, decompress_lzo)?.written
            }
            _ => self.decompress(algorithm, dst, stored)?,
        };
        let (_, rest) = dst.split_at_mut(len);
        rest.fill(0);
        Ok(len)
    }

    /// Decodes one zlib stream, padded or not, into the beginning of `dst`. Returns the length of
    /// the content and the length of the stream.
    ///
    /// # Errors
    /// The stream breaks its format, holds more than `dst`, is followed by anything but zeros, or
    /// has a checksum of zero, which makes it impossible to find its end.
    pub fn decompress_zlib_extent(
        &mut self,
        dst: &mut [u8],
        stored: &[u8],
    ) -> Result<(usize, usize), Error> {
        let len = self.decompress(Algorithm::Zlib, dst, stored)?;
        #[cfg(feature = "zlib")]
        let end = crate::zlib::end(dst.split_at(len).0, stored);
        #[cfg(not(feature = "zlib"))]
        let end = None;
        end.map(|end| (len, end))
            .ok_or(Error::Corrupt("zlib stream's end cannot be found"))
    }
}
