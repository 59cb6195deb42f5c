//! The codecs, and the settings of their encoders.

use crate::Filters;

/// The algorithm that decodes stored bytes.
///
/// [`Decoder::decompress`](crate::Decoder::decompress) accepts exactly one block. Containers that
/// store whole sectors, such as btrfs, pad it with zeros:
/// [`Decoder::decompress_extent`](crate::Decoder::decompress_extent) accepts both.
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

/// How to encode blocks. [`Encoder::new`](crate::Encoder::new) rejects levels that are out of
/// range.
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

    /// Maximum memory of an encoder for blocks of up to this length, in bytes.
    pub fn memory_bytes(&self, content_bytes: usize) -> usize {
        match *self {
            Settings::Zlib { level: 10.. } => 10 << 20,
            #[cfg(feature = "zstd")]
            Settings::Zstd { level } => {
                let content = u64::try_from(content_bytes).ok();
                zstd::workspace_size_up_to(level, content)
            }
            // The dictionary is as long as the content: matches, buffers, and tables of prices.
            Settings::Xz {
                dictionary_bytes, ..
            } => {
                let content = content_bytes.checked_next_power_of_two();
                let most = usize::try_from(dictionary_bytes).unwrap_or(usize::MAX);
                let dictionary = content.unwrap_or(usize::MAX).min(most);
                dictionary.saturating_mul(12).saturating_add(3 << 19)
            }
            _ => 1 << 20,
        }
    }
}
