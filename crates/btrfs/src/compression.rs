//! How extents are compressed: the numbers of the three algorithms. `codec` knows how each frames an extent.

use codec::{Algorithm, Decoder, Settings};
use tree::{Corrupt, Error, Result};

/// Bytes that a compressed extent may decode to, and may have (`BTRFS_MAX_UNCOMPRESSED`, `BTRFS_MAX_COMPRESSED`).
pub(crate) const EXTENT_BYTES_MAX: u64 = 128 << 10;

/// An algorithm of compressed extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Compression {
    /// One zlib stream.
    Zlib,
    /// Segments of LZO1X, one for each sector.
    Lzo,
    /// One Zstandard frame.
    Zstd,
}

impl Compression {
    /// The algorithm of that number on disk; `None` for 0, no compression.
    pub(crate) const fn parse(number: u8) -> Result<Option<Compression>, u8> {
        Ok(match number {
            0 => None,
            1 => Some(Compression::Zlib),
            2 => Some(Compression::Lzo),
            3 => Some(Compression::Zstd),
            other => return Err(other),
        })
    }

    /// Its number on disk.
    pub const fn number(self) -> u8 {
        match self {
            Compression::Zlib => 1,
            Compression::Lzo => 2,
            Compression::Zstd => 3,
        }
    }

    /// Its name, as the kernel's `compress=` takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Compression::Zlib => "zlib",
            Compression::Lzo => "lzo",
            Compression::Zstd => "zstd",
        }
    }

    /// What decodes it, for whoever takes the stored bytes as they are.
    pub(crate) const fn algorithm(self, sector_bytes: u32) -> Algorithm {
        match self {
            Compression::Zlib => Algorithm::Zlib,
            Compression::Lzo => Algorithm::LzoBtrfs { sector_bytes },
            Compression::Zstd => Algorithm::Zstd,
        }
    }

    /// The one that extents made with these settings have.
    pub(crate) fn of_settings(settings: &Settings) -> Compression {
        match settings {
            Settings::Zlib { .. } => Compression::Zlib,
            Settings::Lzo => Compression::Lzo,
            Settings::Zstd { .. } => Compression::Zstd,
            _ => unreachable!("refused among the options"),
        }
    }

    /// The one that stores bytes so, if any.
    pub(crate) fn of(algorithm: Algorithm, sector_bytes: u32) -> Option<Compression> {
        let all = [Compression::Zlib, Compression::Lzo, Compression::Zstd];
        let mut all = all.into_iter();
        all.find(|compression| compression.algorithm(sector_bytes) == algorithm)
    }

    /// Decodes stored bytes, padding included, and fills all of `dst`: with zeros behind what there is. `at` is where
    /// they are stored.
    pub(crate) fn decode(
        self,
        decoder: &mut Decoder,
        sectorsize: u32,
        stored: &[u8],
        dst: &mut [u8],
        at: u64,
    ) -> Result<()> {
        let decoded = decoder.decompress_extent(self.algorithm(sectorsize), dst, stored);
        decoded.map_err(|error| {
            let (at, got) = match error {
                codec::Error::Framing { at: from, got, .. } => (at + from as u64, got),
                _ => (at, stored.len() as u64),
            };
            let what = error.as_str();
            Error::Corrupt(Corrupt { what, at, got })
        })?;
        Ok(())
    }
}
