//! Levels: one table.

use crate::Error;
use crate::frame::BLOCK_SIZE_MAX;

/// The fastest level.
pub const LEVEL_MIN: i32 = -15;
/// The strongest level.
pub const LEVEL_MAX: i32 = 22;
/// What level 0 means.
pub const LEVEL_DEFAULT: i32 = 3;

/// Smallest and largest logarithm of a window's size.
pub const WINDOW_LOG_RANGE: core::ops::RangeInclusive<u8> = 10..=27;

/// Largest content of each class of the table but the first, which has all that is larger.
pub(crate) const CLASS_SIZES: [u64; 3] = [256 << 10, 128 << 10, 16 << 10];

/// How matches are looked for, from fast to strong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// One table of positions; the first match is taken.
    Fast,
    /// Two tables, of short and of long matches.
    DoubleFast,
    /// Rows of positions, the best match of a row is taken.
    Greedy,
    /// As greedy, if the next position has no better match.
    Lazy,
    /// As lazy, if the next two positions have no better match.
    Lazy2,
    /// As lazy2, and the block is divided where new entropy tables pay for themselves.
    Lazy2Divided,
    /// The cheapest of all parses that a price model sees.
    Optimal,
    /// As optimal, with prices from a first pass.
    Optimal2,
}

/// Everything that decides which bytes a frame has, besides its content and dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Logarithm of the window: how far back matches reach, and what a decoder must hold.
    pub window_log: u8,
    /// How matches are looked for.
    pub strategy: Strategy,
    /// Logarithm of the number of entries of the main table.
    pub hash_log: u8,
    /// Logarithm of the number of entries of the second table, where the strategy has one. For [`Strategy::Lazy2Divided`]:
    /// of the positions that are in chains of long matches, none below 10. For the optimal strategies: of the positions
    /// that are in chains, and with [`Strategy::Optimal2`] of the largest content whose positions are sorted instead, up
    /// to 20.
    pub chain_log: u8,
    /// Logarithm of the number of candidates that are looked at.
    pub search_log: u8,
    /// Shortest match that is looked for, 3 to 7; or 0 for 4 or 5, whichever suits the first block of a frame. For
    /// [`Strategy::Greedy`] 0 may mean 6, too, and for [`Strategy::Fast`] it means 7, or 6 with half the table.
    pub min_match: u8,
    /// For [`Strategy::Fast`]: how far to step on where nothing matches, and above 0 that literals are stored as they
    /// are. For the others: a match of this length is good enough to stop searching.
    pub target_length: u16,
    /// Whether the frame header tells the size of the content when it is known. The frame is then of a single segment
    /// if the window covers the content.
    pub content_size: bool,
    /// Whether a checksum of the content follows the last block.
    pub checksum: bool,
    /// Whether the frame header names the dictionary, if one with an id is used.
    pub dictionary_id: bool,
}

impl Params {
    /// The parameters of a level, for content of `source_size` bytes if that is known.
    ///
    /// Levels go from [`LEVEL_MIN`] to [`LEVEL_MAX`], 0 is [`LEVEL_DEFAULT`]; those outside are brought inside. The window
    /// is no larger than the content needs. The content size and the dictionary id are told, the checksum is off.
    pub fn for_level(level: i32, source_size: Option<u64>) -> Params {
        let size = source_size.unwrap_or(u64::MAX);
        let class = CLASS_SIZES.iter().filter(|class| size <= **class).count();
        let level = if level == 0 {
            LEVEL_DEFAULT
        } else {
            level.clamp(LEVEL_MIN, LEVEL_MAX)
        };
        let mut params = LEVELS[class][level.max(0) as usize];
        if level < 0 {
            params.target_length = level.unsigned_abs() as u16;
        }
        params.narrow(size);
        params
    }

    /// As [`Params::for_level`], for content that follows a dictionary of `dictionary_size` bytes.
    pub fn for_level_with_dictionary(
        level: i32,
        source_size: Option<u64>,
        dictionary_size: usize,
    ) -> Params {
        let whole = source_size.map(|size| size.saturating_add(dictionary_size as u64));
        Params::for_level(level, whole)
    }

    /// Lets the window be at most 2^`log` bytes: 17 for btrfs, the logarithm of the block size for SquashFS.
    #[must_use]
    pub fn with_window_log_max(mut self, log: u8) -> Params {
        let log = log.max(*WINDOW_LOG_RANGE.start());
        if self.window_log > log {
            self.narrow(1 << log);
        }
        self
    }

    /// Brings the window and the tables down to what `size` bytes can use.
    fn narrow(&mut self, size: u64) {
        let needed = 64 - size.saturating_sub(1).leading_zeros() as u8;
        self.window_log = self.window_log.min(needed.max(*WINDOW_LOG_RANGE.start()));
        self.hash_log = self.hash_log.min(self.window_log + 1);
        self.chain_log = self.chain_log.min(self.window_log + 1);
        if self.strategy >= Optimal {
            self.chain_log = self.chain_log.min(self.window_log);
        }
        // What is no larger than the window is sorted if it is given at once.
        if self.strategy == Optimal2 {
            self.hash_log = self.hash_log.min(self.window_log - 1);
        }
    }

    /// Checks that every parameter lies in its range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let good = WINDOW_LOG_RANGE.contains(&self.window_log)
            && (6..=28).contains(&self.hash_log)
            && (6..=29).contains(&self.chain_log)
            && (1..=26).contains(&self.search_log)
            && matches!(self.min_match, 0 | 3..=7)
            && self.target_length <= 1 << 12;
        if good {
            Ok(())
        } else {
            Err(Error::ParameterOutOfBound)
        }
    }

    /// Largest block of a frame.
    pub(crate) fn block_size(&self) -> usize {
        BLOCK_SIZE_MAX.min(1 << self.window_log)
    }
}

const fn row(
    window_log: u8,
    chain_log: u8,
    hash_log: u8,
    search_log: u8,
    min_match: u8,
    target_length: u16,
    strategy: Strategy,
) -> Params {
    Params {
        window_log,
        strategy,
        hash_log,
        chain_log,
        search_log,
        min_match,
        target_length,
        content_size: true,
        checksum: false,
        dictionary_id: true,
    }
}

use Strategy::{DoubleFast, Fast, Greedy, Lazy, Lazy2, Lazy2Divided, Optimal, Optimal2};

/// Four classes of content size: larger or unknown, at most 256 KiB, 128 KiB, 16 KiB. Row 0 serves the levels below 0.
#[rustfmt::skip]
static LEVELS: [[Params; 23]; 4] = [
    [
    // window chain hash search min target strategy
    row(19, 6, 13, 1, 6,   1, Fast),       // below 0
    row(19, 6, 14, 1, 7,   0, Fast),       //  1
    row(20, 6, 16, 1, 6,   0, Fast),       //  2
    row(21, 16, 17, 1, 5,  0, DoubleFast), //  3
    row(21, 18, 18, 1, 5,  0, DoubleFast), //  4
    row(21, 6, 19, 3, 5,   2, Greedy),     //  5
    row(21, 6, 19, 3, 5,   4, Lazy),       //  6
    row(21, 6, 20, 4, 5,   8, Lazy),       //  7
    row(21, 6, 20, 4, 5,  16, Lazy2),      //  8
    row(22, 6, 21, 4, 5,  16, Lazy2),      //  9
    row(22, 6, 22, 5, 5,  16, Lazy2),      // 10
    row(22, 6, 22, 5, 5,  16, Lazy2Divided),// 11
    row(22, 6, 22, 6, 5,  32, Lazy2Divided),// 12
    row(22, 6, 22, 6, 4,  32, Lazy2Divided),// 13
    row(22, 22, 17, 2, 3, 48, Optimal),    // 14
    row(22, 22, 17, 2, 3, 64, Optimal),    // 15
    row(22, 22, 18, 6, 3, 128, Optimal),   // 16
    row(23, 22, 20, 4, 3, 128, Optimal2),  // 17
    row(23, 22, 20, 5, 3, 128, Optimal2),  // 18
    row(23, 22, 21, 5, 3, 256, Optimal2),  // 19
    row(25, 23, 21, 6, 3, 256, Optimal2),  // 20
    row(26, 24, 22, 6, 3, 512, Optimal2),  // 21
    row(27, 25, 22, 7, 3, 999, Optimal2),  // 22
    ],
    [
    row(18, 6, 13, 1, 5,   1, Fast),       // below 0
    row(18, 6, 15, 1, 0,   0, Fast),       //  1
    row(18, 6, 15, 1, 5,   0, Fast),       //  2
    row(18, 16, 16, 1, 0,  0, DoubleFast), //  3
    row(18, 16, 17, 1, 0,  0, DoubleFast), //  4
    row(18, 6, 18, 5, 0,   2, Greedy),     //  5
    row(18, 6, 18, 3, 0,   4, Lazy),       //  6
    row(18, 6, 18, 4, 4,   4, Lazy),       //  7
    row(18, 6, 18, 4, 4,   8, Lazy2),      //  8
    row(18, 6, 18, 5, 4,   8, Lazy2),      //  9
    row(18, 6, 18, 6, 4,   8, Lazy2),      // 10
    row(18, 6, 18, 5, 4,  12, Lazy2Divided),// 11
    row(18, 6, 18, 6, 4,  12, Lazy2Divided),// 12
    row(18, 18, 17, 3, 3, 32, Optimal),    // 13
    row(18, 18, 17, 4, 3, 128, Optimal),   // 14
    row(18, 18, 17, 5, 3, 256, Optimal),   // 15
    row(18, 18, 18, 7, 3, 256, Optimal),   // 16
    row(18, 18, 16, 8, 3, 128, Optimal2),  // 17
    row(18, 18, 16, 8, 3, 256, Optimal2),  // 18
    row(18, 18, 16, 8, 3, 256, Optimal2),  // 19
    row(18, 18, 16, 8, 3, 256, Optimal2),  // 20
    row(18, 18, 16, 8, 3, 256, Optimal2),  // 21
    row(18, 18, 16, 8, 3, 256, Optimal2),  // 22
    ],
    [
    row(17, 6, 12, 1, 5,   1, Fast),       // below 0
    row(17, 6, 15, 1, 0,   0, Fast),       //  1
    row(17, 6, 15, 1, 5,   0, Fast),       //  2
    row(17, 15, 15, 1, 5,  0, DoubleFast), //  3
    row(17, 15, 15, 1, 0,  0, DoubleFast), //  4
    row(17, 6, 16, 3, 0,   2, Greedy),     //  5
    row(17, 6, 16, 3, 0,   4, Lazy),       //  6
    row(17, 6, 16, 3, 4,   8, Lazy2),      //  7
    row(17, 6, 16, 4, 4,   8, Lazy2),      //  8
    row(17, 6, 16, 5, 4,   8, Lazy2),      //  9
    row(17, 6, 16, 6, 4,   8, Lazy2),      // 10
    row(17, 6, 17, 6, 4,  12, Lazy2Divided),// 11
    row(17, 17, 17, 6, 4, 12, Lazy2Divided),// 12
    row(17, 17, 16, 3, 3, 64, Optimal),    // 13
    row(17, 17, 16, 4, 3, 128, Optimal),   // 14
    row(17, 17, 16, 4, 3, 256, Optimal),   // 15
    row(17, 17, 16, 7, 3, 256, Optimal),   // 16
    row(17, 17, 16, 8, 3, 256, Optimal),   // 17
    row(17, 17, 16, 9, 3, 256, Optimal),   // 18
    row(17, 17, 15, 8, 3, 256, Optimal2),  // 19
    row(17, 17, 15, 8, 3, 256, Optimal2),  // 20
    row(17, 17, 15, 8, 3, 256, Optimal2),  // 21
    row(17, 17, 15, 8, 3, 256, Optimal2),  // 22
    ],
    [
    row(14, 6, 12, 1, 5,   1, Fast),       // below 0
    row(14, 6, 14, 1, 5,   0, Fast),       //  1
    row(14, 6, 14, 1, 4,   0, Fast),       //  2
    row(14, 14, 14, 1, 4,  0, DoubleFast), //  3
    row(14, 6, 14, 4, 4,   2, Greedy),     //  4
    row(14, 6, 14, 3, 4,   4, Lazy),       //  5
    row(14, 6, 14, 4, 4,   8, Lazy2),      //  6
    row(14, 6, 14, 5, 4,   8, Lazy2),      //  7
    row(14, 6, 14, 5, 4,   8, Lazy2),      //  8
    row(14, 6, 14, 6, 4,   8, Lazy2),      //  9
    row(14, 6, 14, 6, 4,  12, Lazy2),      // 10
    row(14, 6, 14, 5, 4,  16, Lazy2Divided),// 11
    row(14, 6, 14, 6, 4,  24, Lazy2Divided),// 12
    row(14, 14, 14, 3, 3, 32, Optimal),    // 13
    row(14, 14, 14, 4, 3, 64, Optimal),    // 14
    row(14, 14, 14, 5, 3, 256, Optimal),   // 15
    row(14, 14, 12, 8, 3, 96, Optimal2),   // 16
    row(14, 14, 12, 8, 3, 128, Optimal2),  // 17
    row(14, 14, 12, 8, 3, 128, Optimal2),  // 18
    row(14, 14, 12, 8, 3, 256, Optimal2),  // 19
    row(14, 14, 12, 8, 3, 256, Optimal2),  // 20
    row(14, 14, 12, 8, 3, 512, Optimal2),  // 21
    row(14, 14, 12, 8, 3, 999, Optimal2),  // 22
    ],
];
