#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Names that only a codec uses which is not built.
#![cfg_attr(
    not(all(
        feature = "bzip2",
        feature = "lz4",
        feature = "lzo",
        feature = "xz",
        feature = "zlib",
        feature = "zstd"
    )),
    allow(dead_code, unreachable_code, unused_variables)
)]

mod algorithm;
mod error;
mod extent;
mod filters;
#[cfg(feature = "lz4")]
mod lz4;
#[cfg(all(feature = "lzo", feature = "zlib"))]
mod lzop;
mod pack;
mod segments;
mod wrapper;
#[cfg(feature = "xz")]
mod xz;
#[cfg(feature = "zlib")]
mod zlib;
mod zstandard;

pub use algorithm::{Algorithm, Settings};
pub use error::{Error, first_bytes};
pub use filters::Filters;
pub use pack::{Packer, SeekFrame, SeekTable};
pub use wrapper::{Decompressed, Wrapper};
pub use zstandard::ZstdFrame;

use segments::Segments;

/// An encoder and its memory.
pub struct Encoder {
    algorithm: Algorithm,
    kind: EncoderKind,
}

enum EncoderKind {
    #[cfg(feature = "zlib")]
    Zlib(zlib::Encoder),
    #[cfg(feature = "zstd")]
    Zstd(Box<zstandard::Encoder>),
    #[cfg(feature = "lzo")]
    Lzo(Box<lzo::Workspace>),
    #[cfg(feature = "lzo")]
    LzoOptimal(u8, Box<lzo::OptimalWorkspace>),
    #[cfg(feature = "lz4")]
    Lz4(lz4::Encoder),
    #[cfg(feature = "xz")]
    Xz(xz::Encoder),
}

impl Encoder {
    /// Creates an encoder with these settings.
    ///
    /// # Errors
    /// [`Error::Settings`] if a level or size is out of range, [`Error::NotBuilt`] without the
    /// codec's feature.
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let algorithm = settings.algorithm();
        let kind = match *settings {
            #[cfg(feature = "zlib")]
            Settings::Zlib { level } => EncoderKind::Zlib(zlib::Encoder::new(level)?),
            #[cfg(feature = "zstd")]
            Settings::Zstd { level } => {
                EncoderKind::Zstd(Box::new(zstandard::Encoder::new(level)?))
            }
            #[cfg(feature = "lzo")]
            Settings::Lzo => EncoderKind::Lzo(Box::default()),
            #[cfg(feature = "lzo")]
            Settings::LzoOptimal { level } => {
                if !(lzo::LEVEL_MIN..=lzo::LEVEL_MAX).contains(&level) {
                    return Err(Error::Settings("lzo level is not 1 to 9"));
                }
                EncoderKind::LzoOptimal(level, Box::default())
            }
            #[cfg(feature = "lz4")]
            Settings::Lz4 => EncoderKind::Lz4(lz4::Encoder::fast()),
            #[cfg(feature = "lz4")]
            Settings::Lz4Hc { level } => EncoderKind::Lz4(lz4::Encoder::high(level)?),
            #[cfg(feature = "xz")]
            Settings::Xz {
                level,
                extreme,
                dictionary_bytes,
                filters,
            } => EncoderKind::Xz(xz::Encoder::new(level, extreme, dictionary_bytes, filters)?),
            #[allow(unreachable_patterns, reason = "all codecs can be built")]
            _ => return Err(Error::not_built(algorithm)),
        };
        Ok(Encoder { algorithm, kind })
    }

    /// Encodes `src` into the beginning of `dst`. Returns the encoded length, or `None` if it does
    /// not fit.
    ///
    /// To get only results that are smaller than the source, pass a destination one byte shorter
    /// than it. The same input, destination length and settings give the same bytes. Bytes of `dst`
    /// after the result can be overwritten.
    pub fn compress(&mut self, dst: &mut [u8], src: &[u8]) -> Option<usize> {
        match self.kind {
            #[cfg(feature = "zlib")]
            EncoderKind::Zlib(ref mut encoder) => encoder.compress(dst, src),
            #[cfg(feature = "zstd")]
            EncoderKind::Zstd(ref mut encoder) => encoder.compress(dst, src),
            #[cfg(feature = "lzo")]
            EncoderKind::Lzo(ref mut workspace) => lzo::compress(dst, src, workspace),
            #[cfg(feature = "lzo")]
            EncoderKind::LzoOptimal(level, ref mut workspace) => {
                lzo::compress_optimal(dst, src, level, workspace)
            }
            #[cfg(feature = "lz4")]
            EncoderKind::Lz4(ref mut encoder) => encoder.compress(dst, src),
            #[cfg(feature = "xz")]
            EncoderKind::Xz(ref mut encoder) => encoder.compress(dst, src),
        }
    }

    /// Like [`Encoder::compress`], but xz uses this one filter (or none) instead of those in the
    /// settings: for callers that know the kind of content. At most one bit of `filter` is set. The
    /// other codecs have no filters.
    pub fn compress_filtered(
        &mut self,
        filter: Filters,
        dst: &mut [u8],
        src: &[u8],
    ) -> Option<usize> {
        match &self.kind {
            #[cfg(feature = "xz")]
            EncoderKind::Xz(encoder) => encoder.compress_with(filter, dst, src),
            #[allow(unreachable_patterns, reason = "xz can be the only codec")]
            _ => self.compress(dst, src),
        }
    }
}

/// A decoder for all codecs, and its memory.
#[derive(Default)]
pub struct Decoder {
    #[cfg(feature = "zlib")]
    zlib: Option<zlib::Decoder>,
    #[cfg(feature = "zstd")]
    zstd: Option<Box<zstd::Workspace<{ zstd::DECOMPRESS_WORKSPACE_SIZE }>>>,
}

impl Decoder {
    /// Creates a decoder; it allocates memory when it first needs it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes one block into the beginning of `dst` and returns the length of the content.
    ///
    /// `src` is the whole block. The codec decides whether bytes after the end of a stream are an
    /// error: LZO, LZ4 and zstd reject them; zlib, xz and btrfs' LZO segments ignore them. Bytes of
    /// `dst` after the result can be overwritten.
    ///
    /// # Errors
    /// The block breaks its format, or holds more than `dst`; [`Error::NotBuilt`] without the
    /// codec's feature.
    pub fn decompress(
        &mut self,
        algorithm: Algorithm,
        dst: &mut [u8],
        src: &[u8],
    ) -> Result<usize, Error> {
        match algorithm {
            #[cfg(feature = "zlib")]
            Algorithm::Zlib => self.zlib.get_or_insert_default().decompress(dst, src),
            #[cfg(feature = "zstd")]
            Algorithm::Zstd if src.is_empty() => Err(Error::Corrupt("zstd frame is missing")),
            #[cfg(feature = "zstd")]
            Algorithm::Zstd => {
                let workspace = self.zstd.get_or_insert_default();
                zstd::decompress(dst, src, &mut workspace[..]).map_err(|error| match error {
                    zstd::Error::DstSizeTooSmall => Error::DstSizeTooSmall,
                    error => Error::Zstd(error),
                })
            }
            Algorithm::Lzo => decompress_lzo(dst, src),
            Algorithm::LzoBtrfs { sector_bytes } => {
                let decoded = Segments::new(sector_bytes)?.decompress(dst, src, decompress_lzo)?;
                if decoded.more {
                    return Err(Error::DstSizeTooSmall);
                }
                Ok(decoded.written)
            }
            #[cfg(feature = "lz4")]
            Algorithm::Lz4 => lz4::decompress(dst, src),
            #[cfg(feature = "xz")]
            Algorithm::Xz => xz::decompress(dst, src),
            #[cfg(feature = "xz")]
            Algorithm::Lzma => xz::decompress_lzma(dst, src),
            #[allow(unreachable_patterns, reason = "all codecs can be built")]
            _ => Err(Error::not_built(algorithm)),
        }
    }

    /// Decodes the stream at the beginning of `src`, of an algorithm whose streams have an end
    /// (zlib, xz). Returns its length and that of its content, or `None` if it breaks its format,
    /// ends too late, or holds more than `dst`.
    pub fn decompress_first(
        &mut self,
        algorithm: Algorithm,
        dst: &mut [u8],
        src: &[u8],
    ) -> Option<(usize, usize)> {
        match algorithm {
            #[cfg(feature = "zlib")]
            Algorithm::Zlib => zlib::decompress_first(dst, src),
            #[cfg(feature = "xz")]
            Algorithm::Xz => xz::decompress_first(dst, src),
            _ => None,
        }
    }

    /// Decodes one raw deflate stream (RFC 1951) into the beginning of `dst` and returns the length
    /// of the content. Bytes after the stream are ignored.
    ///
    /// # Errors
    /// As for [`Decoder::decompress`].
    pub fn decompress_deflate(&mut self, dst: &mut [u8], src: &[u8]) -> Result<usize, Error> {
        #[cfg(feature = "zlib")]
        return (self.zlib.get_or_insert_default()).decompress_deflate(dst, src);
        #[cfg(not(feature = "zlib"))]
        return Err(Error::not_built(Algorithm::Zlib));
    }

    /// Fills `dst` with the beginning of the content of a MicroLZMA stream, as EROFS stores it:
    /// LZMA without a header, whose first byte is the complement of the properties.
    ///
    /// # Errors
    /// The stream breaks its format, or holds less than `dst`; [`Error::NotBuilt`] without the
    /// feature `xz`.
    pub fn decompress_micro_lzma(
        &mut self,
        dst: &mut [u8],
        src: &[u8],
        dictionary_bytes: u32,
    ) -> Result<(), Error> {
        #[cfg(feature = "xz")]
        return xz::decompress_micro_lzma(dst, src, dictionary_bytes);
        #[cfg(not(feature = "xz"))]
        return Err(Error::not_built(Algorithm::Lzma));
    }
}

#[cfg(feature = "lzo")]
fn decompress_lzo(dst: &mut [u8], src: &[u8]) -> Result<usize, Error> {
    lzo::decompress(dst, src).map_err(|error| match error {
        lzo::Error::DstSizeTooSmall => Error::DstSizeTooSmall,
        error => Error::Lzo(error),
    })
}

#[cfg(not(feature = "lzo"))]
fn decompress_lzo(_: &mut [u8], _: &[u8]) -> Result<usize, Error> {
    Err(Error::not_built(Algorithm::Lzo))
}
