//! The candidates: codecs with their levels and block sizes, for each container.

use codec::{Filters, Settings, Wrapper};

/// The container that the tree is to be copied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Container {
    /// A SquashFS image.
    Squashfs,
    /// A btrfs image.
    Btrfs,
    /// A tar archive, compressed or not.
    Tar,
    /// A btrfs send stream.
    Stream,
    /// An EROFS image.
    Erofs,
}

impl Container {
    /// Its name, as of the option `--to` of `restow copy`.
    pub const fn name(self) -> &'static str {
        match self {
            Container::Squashfs => "squashfs",
            Container::Btrfs => "btrfs",
            Container::Tar => "tar",
            Container::Stream => "stream",
            Container::Erofs => "erofs",
        }
    }
}

/// How content is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Coding {
    /// As it is.
    Plain,
    /// In blocks.
    Blocks(Settings),
    /// As a whole, in parts.
    Packed(Wrapper, u8),
}

/// A codec with its level and block size.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Candidate {
    /// How content is encoded.
    pub coding: Coding,
    /// The block size in bytes, where it can be chosen.
    pub block_bytes: Option<u32>,
}

/// Parses an argument of `--compress`, as far as `restow plan` tries it: a name with a level.
fn settings(words: &str, block_bytes: u32) -> Settings {
    let (name, level) = words.split_once(':').unwrap_or((words, ""));
    let small = level.parse::<u8>().unwrap_or(6);
    match name {
        "zstd" => Settings::Zstd {
            level: level.parse().unwrap_or(3),
        },
        "gzip" | "zlib" => Settings::Zlib { level: small },
        "lzo" if level.is_empty() => Settings::Lzo,
        "lzo" => Settings::LzoOptimal { level: small },
        "lz4" if level == "hc" => Settings::Lz4Hc { level: 12 },
        "lz4" => Settings::Lz4,
        _ => Settings::Xz {
            level: small,
            extreme: false,
            dictionary_bytes: block_bytes.max(8192),
            filters: Filters(0),
        },
    }
}

/// The block sizes of SquashFS images that are tried, and what is tried with each. Codecs that only
/// look back 64 KiB at most gain little from large blocks.
const SQUASHFS: [(u32, &[&str]); 2] = [
    (
        128 << 10,
        &[
            "lz4", "lzo", "lz4:hc", "gzip:1", "gzip:6", "gzip:9", "zstd:1", "zstd:3", "zstd:6",
            "zstd:9", "zstd:12", "zstd:15", "zstd:19", "zstd:22", "xz:6",
        ],
    ),
    (
        1 << 20,
        &[
            "zstd:1", "zstd:3", "zstd:6", "zstd:9", "zstd:12", "zstd:15", "zstd:19", "zstd:22",
            "xz:6",
        ],
    ),
];

/// The same of EROFS images. Where each unit begins at a block, larger ones have fewer gaps.
const EROFS: [(u32, &[&str]); 3] = [
    (
        128 << 10,
        &[
            "lz4", "lz4:hc", "gzip:6", "zstd:3", "zstd:9", "zstd:15", "zstd:19",
        ],
    ),
    (
        256 << 10,
        &[
            "lz4", "lz4:hc", "gzip:6", "zstd:1", "zstd:3", "zstd:9", "zstd:15", "zstd:19",
        ],
    ),
    (
        1 << 20,
        &[
            "lz4:hc", "zstd:3", "zstd:9", "zstd:15", "zstd:19", "zstd:22",
        ],
    ),
];

const BTRFS: &[&str] = &[
    "lzo", "zlib:1", "zlib:3", "zlib:6", "zlib:9", "zstd:-5", "zstd:1", "zstd:2", "zstd:3",
    "zstd:5", "zstd:7", "zstd:9", "zstd:12", "zstd:15",
];

const STREAM: &[&str] = &[
    "lzo", "zlib:1", "zlib:3", "zlib:6", "zlib:9", "zstd:-5", "zstd:1", "zstd:3", "zstd:5",
    "zstd:7", "zstd:9", "zstd:12", "zstd:15", "zstd:19",
];

const TAR: [(Wrapper, &[u8]); 3] = [
    (Wrapper::Gzip, &[1, 6, 9, 12]),
    (Wrapper::Zstd, &[1, 3, 6, 9, 12, 15, 19, 22]),
    (Wrapper::Xz, &[1, 6]),
];

impl Candidate {
    /// The compression of each block, if blocks are compressed one by one.
    pub(crate) fn compression(&self) -> Option<Settings> {
        match self.coding {
            Coding::Blocks(settings) => Some(settings),
            Coding::Plain | Coding::Packed(..) => None,
        }
    }

    /// The candidates for a container by default.
    pub fn usual(container: Container) -> Vec<Candidate> {
        let plain = Candidate {
            coding: Coding::Plain,
            block_bytes: match container {
                Container::Squashfs | Container::Erofs => Some(128 << 10),
                _ => None,
            },
        };
        let blocks = |words: &[&str], block_bytes: Option<u32>| -> Vec<Candidate> {
            let candidate = |words: &&str| Candidate {
                coding: Coding::Blocks(settings(words, block_bytes.unwrap_or(128 << 10))),
                block_bytes,
            };
            words.iter().map(candidate).collect()
        };
        let mut all = vec![plain];
        match container {
            Container::Squashfs => {
                for (block_bytes, words) in SQUASHFS {
                    all.extend(blocks(words, Some(block_bytes)));
                }
            }
            Container::Erofs => {
                for (block_bytes, words) in EROFS {
                    all.extend(blocks(words, Some(block_bytes)));
                }
            }
            Container::Btrfs => all.extend(blocks(BTRFS, None)),
            Container::Stream => all.extend(blocks(STREAM, None)),
            Container::Tar => {
                for (wrapper, levels) in TAR {
                    all.extend(levels.iter().map(|&level| Candidate {
                        coding: Coding::Packed(wrapper, level),
                        block_bytes: None,
                    }));
                }
            }
        }
        all
    }

    /// The argument of `--compress` of `restow copy` for it.
    pub fn words(&self, container: Container) -> String {
        match self.coding {
            Coding::Plain => "none".into(),
            Coding::Packed(wrapper, level) => format!("{}:{level}", wrapper.name()),
            Coding::Blocks(settings) => match settings {
                Settings::Zlib { level }
                    if matches!(container, Container::Squashfs | Container::Erofs) =>
                {
                    format!("gzip:{level}")
                }
                Settings::Zlib { level } => format!("zlib:{level}"),
                Settings::Zstd { level } => format!("zstd:{level}"),
                Settings::Lzo => "lzo".into(),
                Settings::LzoOptimal { level } => format!("lzo:{level}"),
                Settings::Lz4 => "lz4".into(),
                Settings::Lz4Hc { level } => format!("lz4:hc:{level}"),
                Settings::Xz { level, .. } => format!("xz:{level}"),
            },
        }
    }

    /// The name of its codec without a level: the line of a plot that it is on.
    pub fn family(&self, container: Container) -> String {
        let words = self.words(container);
        match words.split_once(':') {
            Some((name, _)) => name.into(),
            None => words,
        }
    }

    /// Bytes of memory that one reader needs for a block: its stored form, its content, and the
    /// decoder's own tables and window.
    pub fn memory_bytes(&self, container: Container) -> u64 {
        const KIB: u64 = 1 << 10;
        let block = match (self.coding, container) {
            (Coding::Packed(..) | Coding::Plain, Container::Tar) => 128 * KIB, // read in pieces
            _ => self.block_bytes.unwrap_or(128 << 10).into(),
        };
        let decoder = match self.coding {
            Coding::Plain => return block,
            // The window is a frame.
            Coding::Packed(Wrapper::Zstd, _) => (2 << 20) + 160 * KIB,
            Coding::Packed(Wrapper::Gzip, _) => 44 * KIB,
            Coding::Packed(_, level) => xz_dictionary(level) + 64 * KIB,
            Coding::Blocks(settings) => match settings {
                Settings::Zlib { .. } => 44 * KIB,
                Settings::Zstd { .. } => 160 * KIB,
                Settings::Lzo
                | Settings::LzoOptimal { .. }
                | Settings::Lz4
                | Settings::Lz4Hc { .. } => 0,
                Settings::Xz {
                    dictionary_bytes, ..
                } => u64::from(dictionary_bytes) + 64 * KIB,
            },
        };
        2 * block + decoder
    }
}

/// The dictionary of a preset of xz, in bytes.
fn xz_dictionary(level: u8) -> u64 {
    match level {
        0 => 256 << 10,
        1 => 1 << 20,
        2 => 2 << 20,
        3 | 4 => 4 << 20,
        5 | 6 => 8 << 20,
        7 => 16 << 20,
        8 => 32 << 20,
        _ => 64 << 20,
    }
}
