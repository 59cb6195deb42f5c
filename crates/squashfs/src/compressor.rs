//! The compressor options that an image records.
//!
//! Readers do not need them (except for the xz dictionary size, which each block repeats). The
//! record is omitted if all options have their default values, except for lz4, which always has
//! one.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use codec::{Algorithm, Filters, Settings};
use tree::{Error, Result, to_u64};
use zerocopy::{FromBytes, IntoBytes};

use crate::raw;

/// Longest record that is read; newer tools may append fields.
pub(crate) const OPTIONS_BYTES_MAX: usize = 64;

/// The default gzip level, which is not recorded.
pub(crate) const GZIP_LEVEL_DEFAULT: u8 = 9;
/// The default zstd level, which is not recorded.
pub(crate) const ZSTD_LEVEL_DEFAULT: i32 = 15;

/// Compressor options, as an image records them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compressor {
    /// gzip (in fact a zlib stream).
    Gzip {
        /// 1 to 9.
        level: u32,
        /// Log2 of the window size.
        window_log2: u16,
        /// One bit for each strategy that was tried.
        strategies: u16,
    },
    /// lzma, which has no options.
    Lzma,
    /// lzo.
    Lzo {
        /// 0 lzo1x_1, 1 lzo1x_1_11, 2 lzo1x_1_12, 3 lzo1x_1_15, 4 lzo1x_999.
        algorithm: u32,
        /// 1 to 9 for lzo1x_999.
        level: u32,
    },
    /// xz.
    Xz {
        /// Dictionary size in bytes.
        dictionary_bytes: u32,
        /// Filters that were tried.
        filters: Filters,
    },
    /// lz4.
    Lz4 {
        /// Whether the high-compression encoder was used.
        high: bool,
    },
    /// zstd.
    Zstd {
        /// The compression level.
        level: i32,
    },
}

impl Compressor {
    /// The options of an image without a record.
    pub(crate) fn usual(algorithm: Algorithm, block_bytes: u32) -> Compressor {
        match algorithm {
            Algorithm::Zlib => Compressor::Gzip {
                level: GZIP_LEVEL_DEFAULT.into(),
                window_log2: 15,
                strategies: 0,
            },
            Algorithm::Lzma => Compressor::Lzma,
            Algorithm::LzoBtrfs { .. } => unreachable!("it has no number in a superblock"),
            Algorithm::Lzo => Compressor::Lzo {
                algorithm: 4,
                level: 8,
            },
            Algorithm::Xz => Compressor::Xz {
                dictionary_bytes: block_bytes,
                filters: Filters(0),
            },
            Algorithm::Lz4 => Compressor::Lz4 { high: false },
            Algorithm::Zstd => Compressor::Zstd {
                level: ZSTD_LEVEL_DEFAULT,
            },
        }
    }

    /// Parses a record at position `at`.
    pub(crate) fn parse(algorithm: Algorithm, record: &[u8], at: u64) -> Result<Compressor> {
        let corrupt = |what, got: u64| Error::corrupt(what, at, got);
        let short = || corrupt("compressor's options are too short", to_u64(record.len()));
        Ok(match algorithm {
            Algorithm::Zlib => {
                let (raw, _) = raw::GzipOptions::read_from_prefix(record).map_err(|_| short())?;
                let level = raw.compression_level.get();
                if !(1..=9).contains(&level) || !(8..=15).contains(&raw.window_size.get()) {
                    return Err(corrupt("gzip options are out of range", level.into()));
                }
                Compressor::Gzip {
                    level,
                    window_log2: raw.window_size.get(),
                    strategies: raw.strategy.get(),
                }
            }
            Algorithm::Lzma => Compressor::Lzma,
            Algorithm::LzoBtrfs { .. } => unreachable!("it has no number in a superblock"),
            Algorithm::Lzo => {
                let (raw, _) = raw::LzoOptions::read_from_prefix(record).map_err(|_| short())?;
                let algorithm = raw.algorithm.get();
                if algorithm > 4 {
                    return Err(corrupt("lzo options are out of range", algorithm.into()));
                }
                Compressor::Lzo {
                    algorithm,
                    level: raw.compression_level.get(),
                }
            }
            Algorithm::Xz => {
                let (raw, _) = raw::XzOptions::read_from_prefix(record).map_err(|_| short())?;
                let bytes = raw.dictionary_size.get();
                // A power of two, or the sum of two adjacent ones.
                let rest = bytes & bytes.wrapping_sub(1);
                if bytes < 4096 || (rest != 0 && rest != (bytes / 3).wrapping_mul(2)) {
                    return Err(corrupt("xz options are out of range", bytes.into()));
                }
                Compressor::Xz {
                    dictionary_bytes: bytes,
                    filters: Filters(raw.flags.get()),
                }
            }
            Algorithm::Lz4 => {
                let (raw, _) = raw::Lz4Options::read_from_prefix(record).map_err(|_| short())?;
                if raw.version != 1 {
                    return Err(corrupt(
                        "lz4 blocks are of an unknown version",
                        raw.version.get().into(),
                    ));
                }
                Compressor::Lz4 {
                    high: raw.flags.get() & 1 != 0,
                }
            }
            Algorithm::Zstd => {
                let (raw, _) = raw::ZstdOptions::read_from_prefix(record).map_err(|_| short())?;
                // The newest tools also store negative levels.
                let level = raw.compression_level.get().cast_signed();
                if !(-(1 << 17)..=22).contains(&level) || level == 0 {
                    return Err(corrupt(
                        "zstd options are out of range",
                        raw.compression_level.get().into(),
                    ));
                }
                Compressor::Zstd { level }
            }
        })
    }

    /// The record for an image made with these settings.
    pub(crate) fn of(settings: &Settings) -> Compressor {
        match *settings {
            Settings::Zlib { level } => Compressor::Gzip {
                level: level.min(9).into(),
                window_log2: 15,
                strategies: 0,
            },
            Settings::Zstd { level } => Compressor::Zstd { level },
            Settings::Lzo => Compressor::Lzo {
                algorithm: 0,
                level: 0,
            },
            // lzo1x_999 is the one algorithm with levels; nothing but the size of its blocks tells
            // it from others.
            Settings::LzoOptimal { level } => Compressor::Lzo {
                algorithm: 4,
                level: level.into(),
            },
            Settings::Lz4 => Compressor::Lz4 { high: false },
            Settings::Lz4Hc { .. } => Compressor::Lz4 { high: true },
            Settings::Xz {
                dictionary_bytes,
                filters,
                ..
            } => Compressor::Xz {
                dictionary_bytes,
                filters,
            },
        }
    }

    /// Settings that give about the blocks of an image with these options; `None` for lzma, which
    /// is only read.
    pub(crate) fn settings(&self) -> Option<Settings> {
        Some(match *self {
            Compressor::Gzip { level, .. } => Settings::Zlib {
                level: level.clamp(1, 9).try_into().unwrap_or(GZIP_LEVEL_DEFAULT),
            },
            Compressor::Lzma => return None,
            Compressor::Lzo {
                algorithm: 4,
                level,
            } => Settings::LzoOptimal {
                level: level.clamp(2, 9).try_into().unwrap_or(8),
            },
            Compressor::Lzo { .. } => Settings::Lzo,
            Compressor::Xz {
                dictionary_bytes,
                filters,
            } => Settings::Xz {
                level: 6,
                extreme: false,
                dictionary_bytes: dictionary_bytes.max(8192),
                filters,
            },
            Compressor::Lz4 { high: false } => Settings::Lz4,
            Compressor::Lz4 { high: true } => Settings::Lz4Hc { level: 12 },
            Compressor::Zstd { level } => Settings::Zstd {
                level: level.max(1),
            },
        })
    }

    /// The record, or `None` if it is omitted.
    pub(crate) fn emit(&self, block_bytes: u32) -> Option<Vec<u8>> {
        Some(match *self {
            Compressor::Lz4 { high } => raw::Lz4Options {
                version: 1.into(),
                flags: u32::from(high).into(),
            }
            .as_bytes()
            .to_vec(),
            _ if *self == Compressor::usual(self.algorithm(), block_bytes) => return None,
            Compressor::Lzma => return None,
            Compressor::Gzip {
                level,
                window_log2,
                strategies,
            } => raw::GzipOptions {
                compression_level: level.into(),
                window_size: window_log2.into(),
                strategy: strategies.into(),
            }
            .as_bytes()
            .to_vec(),
            Compressor::Lzo { algorithm, level } => raw::LzoOptions {
                algorithm: algorithm.into(),
                compression_level: level.into(),
            }
            .as_bytes()
            .to_vec(),
            Compressor::Xz {
                dictionary_bytes,
                filters,
            } => raw::XzOptions {
                dictionary_size: dictionary_bytes.into(),
                flags: filters.0.into(),
            }
            .as_bytes()
            .to_vec(),
            Compressor::Zstd { level } => raw::ZstdOptions {
                compression_level: level.cast_unsigned().into(),
            }
            .as_bytes()
            .to_vec(),
        })
    }

    /// The codec that these options belong to.
    pub const fn algorithm(&self) -> Algorithm {
        match self {
            Compressor::Gzip { .. } => Algorithm::Zlib,
            Compressor::Lzma => Algorithm::Lzma,
            Compressor::Lzo { .. } => Algorithm::Lzo,
            Compressor::Xz { .. } => Algorithm::Xz,
            Compressor::Lz4 { .. } => Algorithm::Lz4,
            Compressor::Zstd { .. } => Algorithm::Zstd,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_and_usual_ones_are_left_out() {
        for (compressor, recorded) in [
            (Compressor::Zstd { level: 15 }, false),
            (Compressor::Zstd { level: -3 }, true),
            (Compressor::Lz4 { high: false }, true),
            (
                Compressor::Lzo {
                    algorithm: 0,
                    level: 0,
                },
                true,
            ),
            (Compressor::of(&Settings::LzoOptimal { level: 8 }), false),
            (Compressor::of(&Settings::LzoOptimal { level: 9 }), true),
            (
                Compressor::Gzip {
                    level: 9,
                    window_log2: 15,
                    strategies: 0,
                },
                false,
            ),
            (
                Compressor::Gzip {
                    level: 6,
                    window_log2: 15,
                    strategies: 0,
                },
                true,
            ),
            (
                Compressor::Xz {
                    dictionary_bytes: 131_072,
                    filters: Filters(0),
                },
                false,
            ),
            (
                Compressor::Xz {
                    dictionary_bytes: 98_304,
                    filters: Filters::X86,
                },
                true,
            ),
        ] {
            let record = compressor.emit(131_072);
            assert_eq!(record.is_some(), recorded, "{compressor:?}");
            if let Some(record) = record {
                assert_eq!(
                    Compressor::parse(compressor.algorithm(), &record, 98).unwrap(),
                    compressor
                );
            }
        }
        // Newer tools append a level.
        let longer = [1, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0];
        assert_eq!(
            Compressor::parse(Algorithm::Lz4, &longer, 98).unwrap(),
            Compressor::Lz4 { high: true }
        );
        for bytes in [2048u32, 8193, 131_072 + 1, 131_072 + 32_768] {
            let record = [bytes.to_le_bytes(), [0; 4]].concat();
            assert!(
                Compressor::parse(Algorithm::Xz, &record, 98).is_err(),
                "{bytes}"
            );
        }
    }
}
