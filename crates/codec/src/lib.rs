#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
// Names that only a codec uses which is not built.
#![cfg_attr(
    not(all(
        feature = "lz4",
        feature = "lzo",
        feature = "xz",
        feature = "zlib",
        feature = "zstd"
    )),
    allow(dead_code, unreachable_code, unused_variables)
)]

mod error;
mod extent;
mod filters;
#[cfg(feature = "lz4")]
mod lz4;
mod pack;
mod segments;
mod wrapper;
#[cfg(feature = "xz")]
mod xz;
#[cfg(feature = "zlib")]
mod zlib;
mod zstandard;

pub use error::{Error, first_bytes};
pub use filters::Filters;
pub use pack::{Packer, SeekFrame, SeekTable};
pub use wrapper::Wrapper;
pub use zstandard::ZstdFrame;

use segments::Segments;

/// The algorithm that decodes stored bytes.
///
/// [`Decoder::decompress`] accepts exactly one block. Containers that store whole sectors, such as
/// btrfs, pad it with zeros: [`Decoder::decompress_extent`] accepts both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// One zlib stream (RFC 1950).
    Zlib,
    /// Zstandard frames (RFC 8878), at least one.
    Zstd,
    /// One raw LZO1X stream.
    Lzo,
    /// LZO1X segments in btrfs framing, each with at most this many bytes of content.
    LzoBtrfs {
        /// The file system's sector size in bytes.
        sector_bytes: u32,
    },
    /// One raw LZ4 block.
    Lz4,
    /// One .xz stream.
    Xz,
    /// One .lzma stream (the older container format of xz's algorithm).
    Lzma,
}

impl Algorithm {
    /// The algorithm's usual name.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Zlib => "gzip",
            Algorithm::Zstd => "zstd",
            Algorithm::Lzo | Algorithm::LzoBtrfs { .. } => "lzo",
            Algorithm::Lz4 => "lz4",
            Algorithm::Xz => "xz",
            Algorithm::Lzma => "lzma",
        }
    }

    /// Whether the codec's feature was enabled when this crate was built.
    pub const fn is_built(self) -> bool {
        match self {
            Algorithm::Zlib => cfg!(feature = "zlib"),
            Algorithm::Zstd => cfg!(feature = "zstd"),
            Algorithm::Lzo | Algorithm::LzoBtrfs { .. } => cfg!(feature = "lzo"),
            Algorithm::Lz4 => cfg!(feature = "lz4"),
            Algorithm::Xz | Algorithm::Lzma => cfg!(feature = "xz"),
        }
    }
}

/// How to encode blocks. [`Encoder::new`] rejects levels that are out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settings {
    /// zlib: level 1 to 12. Up to 9, the ratio is at least that of the zlib library at the same
    /// level; 10 to 12 search harder.
    Zlib {
        /// The level.
        level: u8,
    },
    /// Zstandard, one frame without a checksum.
    Zstd {
        /// The level: -131,072 to 22, not 0.
        level: i32,
    },
    /// LZO1X-1, the fast encoder of LZO.
    Lzo,
    /// LZO's slow encoder, level 2 to 9. Level 8 gives about the size of LZO1X-999 at level 8,
    /// which mksquashfs uses.
    LzoOptimal {
        /// The level.
        level: u8,
    },
    /// LZ4's fast encoder.
    Lz4,
    /// LZ4's slow encoder, level 2 to 12.
    Lz4Hc {
        /// The level.
        level: u8,
    },
    /// xz with a CRC32.
    Xz {
        /// Preset 0 to 9.
        level: u8,
        /// The preset's slower variant (`xz -e`).
        extreme: bool,
        /// Maximum distance of matches in bytes, at least 4 KiB. Shorter blocks use less.
        dictionary_bytes: u32,
        /// Each of these filters is tried on every block, as well as none; the smallest result is
        /// used.
        filters: Filters,
    },
}

impl Settings {
    /// The algorithm that decodes the blocks made with these settings.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Settings::Zlib { .. } => Algorithm::Zlib,
            Settings::Zstd { .. } => Algorithm::Zstd,
            Settings::Lzo | Settings::LzoOptimal { .. } => Algorithm::Lzo,
            Settings::Lz4 | Settings::Lz4Hc { .. } => Algorithm::Lz4,
            Settings::Xz { .. } => Algorithm::Xz,
        }
    }
}

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
                let decoded = Segments::new(sector_bytes)?.decompress(dst, src)?;
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
