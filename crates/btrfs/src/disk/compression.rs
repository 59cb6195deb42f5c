//! The IDs of the three compression algorithms. `codec` knows how each one frames an extent.

use codec::{Algorithm, Decoder, Settings};
use tree::{Error, Result};

/// Maximum decoded and stored size of a compressed extent, in bytes (`BTRFS_MAX_UNCOMPRESSED`,
/// `BTRFS_MAX_COMPRESSED`).
pub(crate) const EXTENT_BYTES_MAX: u64 = 128 << 10;

/// A compression algorithm for extents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Compression {
    /// A single zlib stream.
    Zlib,
    /// LZO1X segments, one for each sector.
    Lzo,
    /// A single Zstandard frame.
    Zstd,
}

impl Compression {
    /// The algorithm with this ID on disk; `None` for 0, no compression.
    pub(crate) const fn parse(number: u8) -> Result<Option<Compression>, u8> {
        Ok(match number {
            0 => None,
            1 => Some(Compression::Zlib),
            2 => Some(Compression::Lzo),
            3 => Some(Compression::Zstd),
            other => return Err(other),
        })
    }

    /// Its ID on disk.
    pub const fn number(self) -> u8 {
        match self {
            Compression::Zlib => 1,
            Compression::Lzo => 2,
            Compression::Zstd => 3,
        }
    }

    /// Its name, as in the kernel's `compress=` option.
    pub const fn name(self) -> &'static str {
        match self {
            Compression::Zlib => "zlib",
            Compression::Lzo => "lzo",
            Compression::Zstd => "zstd",
        }
    }

    /// The decoder for its data, for callers that copy the stored bytes unchanged.
    pub(crate) const fn algorithm(self, sector_bytes: u32) -> Algorithm {
        match self {
            Compression::Zlib => Algorithm::Zlib,
            Compression::Lzo => Algorithm::LzoBtrfs { sector_bytes },
            Compression::Zstd => Algorithm::Zstd,
        }
    }

    /// The algorithm of extents made with these settings.
    pub(crate) fn of_settings(settings: &Settings) -> Compression {
        match settings {
            Settings::Zlib { .. } => Compression::Zlib,
            Settings::Lzo | Settings::LzoOptimal { .. } => Compression::Lzo,
            Settings::Zstd { .. } => Compression::Zstd,
            _ => unreachable!("refused among the options"),
        }
    }

    /// The algorithm that stores data in this form, if any.
    pub(crate) fn of(algorithm: Algorithm, sector_bytes: u32) -> Option<Compression> {
        let all = [Compression::Zlib, Compression::Lzo, Compression::Zstd];
        let mut all = all.into_iter();
        all.find(|compression| compression.algorithm(sector_bytes) == algorithm)
    }

    /// Decodes stored bytes, including padding, and fills all of `dst`, with zeros after the
    /// decoded data. `at` is where they are stored.
    pub(crate) fn decode(
        self,
        decoder: &mut Decoder,
        sectorsize: u32,
        stored: &[u8],
        dst: &mut [u8],
        at: u64,
    ) -> Result<()> {
        let decoded = decoder.decompress_extent(self.algorithm(sectorsize), dst, stored);
        decoded.map_err(|error| Error::of_block(error, stored, at))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_codecs_show_the_bytes_that_were_found() {
        let mut stored = [0; 4096];
        stored[..8].copy_from_slice(&[0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4]);
        for compression in [Compression::Zlib, Compression::Zstd] {
            let mut decoder = Decoder::new();
            let decoded = compression.decode(&mut decoder, 4096, &stored, &mut [0; 8192], 0x5000);
            let Err(Error::Corrupt(corrupt)) = decoded else {
                panic!("{decoded:?}");
            };
            assert_eq!((corrupt.at, corrupt.got), (0x5000, 0xdead_beef_0102_0304));
        }
    }
}
