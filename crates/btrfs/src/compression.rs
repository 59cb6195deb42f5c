//! How extents are compressed: three algorithms, each with its own frame around the bytes.
//!
//! What is stored is padded with zeros to whole sectors. What it decodes to may be shorter than its extent, and then zeros
//! follow; of an inline extent it may also be longer, and then it is cut.

use codec::{Algorithm, Decoder};
use tree::{Corrupt, Error, Result};

/// Bytes that a compressed extent may decode to, and may have (`BTRFS_MAX_UNCOMPRESSED`, `BTRFS_MAX_COMPRESSED`).
pub(crate) const EXTENT_BYTES_MAX: u64 = 128 << 10;
/// The largest window that the kernel reads (`ZSTD_BTRFS_MAX_WINDOWLOG`).
const WINDOW_MAX: u64 = 1 << 17;

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

    /// The one that stores bytes so, if any.
    pub(crate) fn of(algorithm: Algorithm, sector_bytes: u32) -> Option<Compression> {
        let all = [Compression::Zlib, Compression::Lzo, Compression::Zstd];
        let mut all = all.into_iter();
        all.find(|compression| compression.algorithm(sector_bytes) == algorithm)
    }

    /// Whether the stored bytes do not begin like a Zstandard frame that the kernel refuses, one with a larger window
    /// than it has or with a dictionary (RFC 8878, section 3.1.1.1).
    pub(crate) fn is_small_window(self, stored: &[u8]) -> bool {
        if self != Compression::Zstd {
            return true;
        }
        let Some(&[0x28, 0xb5, 0x2f, 0xfd, descriptor, window]) = stored.first_chunk() else {
            return false;
        };
        let (is_single_segment, dictionary) = (descriptor & 0x20 != 0, descriptor & 3);
        // 2^(10 + the upper five bits), and so many eighths of that as the lower three say.
        dictionary == 0 && (is_single_segment || window <= 7 << 3)
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
        let wrong = |error: codec::Error| {
            Error::Corrupt(Corrupt {
                what: error.as_str(),
                at,
                got: stored.len() as u64,
            })
        };
        let len = match self {
            Compression::Zlib => decoder
                .decompress(Algorithm::Zlib, dst, stored)
                .map_err(wrong)?,
            Compression::Zstd => {
                let decoded = decoder.decompress_zstd_extent(dst, stored, WINDOW_MAX);
                decoded.map_err(wrong)?
            }
            Compression::Lzo => {
                for_each_segment(sectorsize, stored, at, dst.len(), |segment, from| {
                    let to = dst.len().min(from + sectorsize as usize);
                    let len = decoder.decompress(Algorithm::Lzo, &mut dst[from..to], segment);
                    len.map_err(wrong)
                })?
            }
        };
        dst[len..].fill(0);
        Ok(())
    }
}

/// Goes through the segments of an LZO extent until `wanted` bytes are decoded: `decode` gets a segment and where its
/// content begins, and gives its length. Gives the length of the whole.
///
/// The extent begins with its length, these four bytes included; each segment with its own. A length never crosses the
/// border of a sector: zeros fill up to it.
fn for_each_segment(
    sectorsize: u32,
    stored: &[u8],
    at: u64,
    wanted: usize,
    mut decode: impl FnMut(&[u8], usize) -> Result<usize>,
) -> Result<usize> {
    let corrupt = |what, got: usize| {
        let got = got as u64;
        Error::Corrupt(Corrupt { what, at, got })
    };
    let word = |from: usize| -> Option<usize> {
        let bytes = stored.get(from..from + 4)?;
        Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    };
    let total = word(0).unwrap_or(0);
    if total < 8 || total > stored.len() {
        return Err(corrupt("lzo extent's length is impossible", total));
    }
    let sector = sectorsize as usize;
    let (mut from, mut done) = (4, 0);
    while from < total && done < wanted {
        if sector - from % sector < 4 {
            from = from.next_multiple_of(sector);
        }
        let len = word(from).unwrap_or(0);
        let begin = from + 4;
        let Some(segment) = stored[..total].get(begin..begin.saturating_add(len)) else {
            return Err(corrupt("lzo segment reaches behind its extent", len));
        };
        if segment.is_empty() {
            return Err(corrupt("lzo segment is empty", from));
        }
        let decoded = decode(segment, done)?;
        done += decoded;
        from = begin + len;
        if decoded != sector && from < total && done < wanted {
            return Err(corrupt("lzo segment is shorter than a sector", decoded));
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(stored: &[u8], wanted: usize) -> Result<Vec<(Vec<u8>, usize)>> {
        let mut all = Vec::new();
        for_each_segment(4096, stored, 0, wanted, |segment, from| {
            all.push((segment.to_vec(), from));
            Ok(4096)
        })?;
        Ok(all)
    }

    #[test]
    fn lengths_do_not_cross_sectors() {
        // The first segment ends two bytes before the sector's end.
        let mut stored = vec![0; 4096 + 12];
        let first = 4096 - 2 - 8;
        stored[..4].copy_from_slice(&(4096_u32 + 4 + 3).to_le_bytes());
        stored[4..8].copy_from_slice(&(first as u32).to_le_bytes());
        stored[8..8 + first].fill(1);
        stored[4096..4100].copy_from_slice(&3_u32.to_le_bytes());
        stored[4100..4103].fill(2);
        let found = segments(&stored, 8192).unwrap();
        assert_eq!(found, [(vec![1; first], 0), (vec![2; 3], 4096)]);
        assert_eq!(segments(&stored, 4096).unwrap().len(), 1);
        stored[0] += 100;
        assert!(segments(&stored, 8192).is_err());
        assert!(segments(&stored[..3], 8192).is_err());
    }
}
