//! Parameters: everything that decides which bytes a frame has, besides its content and dictionary.

use crate::Error;
use crate::frame::BLOCK_SIZE_MAX;

/// Smallest and largest logarithm of a window's size.
pub const WINDOW_LOG_RANGE: core::ops::RangeInclusive<u8> = 10..=27;

/// Ranges of the parameters of strategies.
const HASH_LOG_RANGE: core::ops::RangeInclusive<u8> = 6..=28;
const CHAIN_LOG_RANGE: core::ops::RangeInclusive<u8> = 6..=29;
const SEARCH_LOG_RANGE: core::ops::RangeInclusive<u8> = 1..=26;
const MIN_MATCH_RANGE: core::ops::RangeInclusive<u8> = 3..=7;
const ACCELERATION_MAX: u16 = 1 << 12;
const SUFFICIENT_LENGTH_MAX: u16 = 1 << 12;
const LOOKAHEAD_MAX: u8 = 2;
const PASSES_RANGE: core::ops::RangeInclusive<u8> = 1..=2;

/// History beyond the window is kept so that the window need not be moved too often: as much as the
/// window, but of large windows only a quarter.
const BEYOND_MAX: usize = 4 << 20;

/// Everything that decides which bytes a frame has, besides its content and dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// Logarithm of the window: how far back matches reach, and the content that a decoder must
    /// hold.
    pub window_log: u8,
    /// How matches are found, with the parameters of that.
    pub strategy: Strategy,
    /// Whether the frame header contains the size of the content when it is known. The frame is
    /// then of a single segment if the window covers the content.
    pub content_size: bool,
    /// Whether a checksum of the content follows the last block.
    pub checksum: bool,
    /// Whether the frame header names the dictionary, if one with an id is used.
    pub dictionary_id: bool,
}

/// How matches are found, from fast to strong.
///
/// Each strategy has the parameters that mean something to it. They have a place in
/// `ZSTD_compressionParameters` of the C library, which has the same seven numbers for all
/// strategies:
///
/// | | strategy | `hashLog` | `chainLog` | `searchLog` | `minMatch` | `targetLength` |
/// |---|---|---|---|---|---|---|
/// | [`Fast`] | 1 | `hash_log` | | | `min_match` | `acceleration` |
/// | [`DoubleFast`] | 2 | `long_hash_log` | `short_hash_log` | | `min_match` | |
/// | [`Lazy`] | 3 + `lookahead` | `hash_log` | `chain_log` | `search_log` | `min_match` | |
/// | [`LazyDivided`] | 6 | `lazy.hash_log` | `chain_log` | `lazy.search_log` | `lazy.min_match` | |
/// | [`Optimal`] | 6 + `passes` | `hash_log` | `chain_log` | `search_log` | | `sufficient_length` |
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Strategy {
    /// One hash table; the first match found is taken.
    Fast(Fast),
    /// Two hash tables, of long and of short matches.
    DoubleFast(DoubleFast),
    /// Rows or chains of candidates; the longest match of one is taken, unless one of the next
    /// positions has a better one.
    Lazy(Lazy),
    /// As lazy, and a block is divided where new entropy tables save more than they take.
    LazyDivided(LazyDivided),
    /// The cheapest of all parses, as a price model sees it.
    Optimal(Optimal),
}

/// Parameters of [`Strategy::Fast`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fast {
    /// Logarithm of the number of entries of the hash table.
    pub hash_log: u8,
    /// Bytes that are hashed, and so the shortest match that is looked for: 4 to 7. If `None`, a
    /// sample of the first block decides: 7, or 6 with half of the table.
    pub min_match: Option<u8>,
    /// 0: literals are compressed. Otherwise they are stored as they are, and positions are
    /// skipped: the larger, the more.
    pub acceleration: u16,
}

/// Parameters of [`Strategy::DoubleFast`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DoubleFast {
    /// Logarithm of the number of entries of the table by a hash of eight bytes.
    pub long_hash_log: u8,
    /// Logarithm of the number of entries of the table by a hash of `min_match` bytes.
    pub short_hash_log: u8,
    /// Bytes that are hashed for the second table: 4 to 7. If `None`, a sample of the first block
    /// decides: 4 or 5.
    pub min_match: Option<u8>,
}

/// Parameters of [`Strategy::Lazy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lazy {
    /// Logarithm of the number of positions in all rows.
    pub hash_log: u8,
    /// Logarithm of the number of candidates that are compared. A row has as many positions, but 16
    /// to 64.
    pub search_log: u8,
    /// Bytes that are hashed, and so the shortest match that is looked for: 4 or 5. If `None`, a
    /// sample of the first block decides.
    pub min_match: Option<u8>,
    /// How many of the next positions must have nothing better before a match is taken: 0 (greedy),
    /// 1 (lazy) or 2 (lazy2).
    pub lookahead: u8,
    /// Logarithm of the number of positions in hash chains: at least 10. If `None`, there are rows
    /// in their place, which vector instructions search faster.
    pub chain_log: Option<u8>,
}

/// Parameters of [`Strategy::LazyDivided`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LazyDivided {
    /// Parameters of the search.
    pub lazy: Lazy,
    /// Logarithm of the number of positions in hash chains of eight bytes, which find the long
    /// matches that rows have forgotten: at least 10. If `None`, there are no such chains. Beside
    /// chains in place of rows it means nothing.
    pub chain_log: Option<u8>,
}

/// Parameters of [`Strategy::Optimal`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Optimal {
    /// Logarithm of the number of entries of the largest hash table.
    pub hash_log: u8,
    /// Logarithm of the number of positions in hash chains of seven bytes.
    pub chain_log: u8,
    /// Logarithm of the number of candidates of a chain that are compared.
    pub search_log: u8,
    /// A match of this length is taken without comparing prices. Below 16 it means 16, above 1024
    /// it means 1024.
    pub sufficient_length: u16,
    /// How often a block is parsed: once with prices that adapt, or a second time with the prices
    /// that the first pass found.
    pub passes: u8,
}

impl Params {
    /// Limits the window to 2^`log` bytes: 17 for btrfs, the logarithm of the block size for
    /// SquashFS.
    #[must_use]
    pub fn with_window_log_max(mut self, log: u8) -> Params {
        let log = log.max(*WINDOW_LOG_RANGE.start());
        if self.window_log > log {
            self.narrow(1 << log);
        }
        self
    }

    /// Reduces the window and the tables to the need of `size` bytes.
    pub(super) fn narrow(&mut self, size: u64) {
        let needed = 64 - size.saturating_sub(1).leading_zeros() as u8;
        self.window_log = self.window_log.min(needed.max(*WINDOW_LOG_RANGE.start()));
        let window = self.window_log;
        let narrow = |log: &mut u8, max: u8| *log = (*log).min(max);
        match &mut self.strategy {
            Strategy::Fast(fast) => narrow(&mut fast.hash_log, window + 1),
            Strategy::DoubleFast(double) => {
                narrow(&mut double.long_hash_log, window + 1);
                narrow(&mut double.short_hash_log, window + 1);
            }
            Strategy::Lazy(lazy) => lazy.narrow(window),
            Strategy::LazyDivided(divided) => {
                divided.lazy.narrow(window);
                divided.chain_log = divided.chain_log.map(|log| log.min(window + 1));
            }
            Strategy::Optimal(optimal) => {
                // With two passes, content no larger than the window is sorted if it comes at once.
                let hash_log_max = if optimal.passes == 1 {
                    window + 1
                } else {
                    window - 1
                };
                narrow(&mut optimal.hash_log, hash_log_max);
                narrow(&mut optimal.chain_log, window);
            }
        }
    }

    /// Checks that every parameter lies in its range.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if WINDOW_LOG_RANGE.contains(&self.window_log) && self.strategy.is_in_range() {
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

impl Lazy {
    /// Reduces the tables to the need of a window.
    fn narrow(&mut self, window_log: u8) {
        self.hash_log = self.hash_log.min(window_log + 1);
        self.chain_log = self.chain_log.map(|log| log.min(window_log));
    }
}

impl Strategy {
    /// The number of positions in hash chains, a power of two.
    pub(super) fn chain_cells(&self) -> u32 {
        match self {
            Strategy::Lazy(lazy) => 1 << lazy.chain_log.unwrap_or(0),
            Strategy::LazyDivided(divided) => {
                1 << divided.lazy.chain_log.or(divided.chain_log).unwrap_or(0)
            }
            Strategy::Optimal(optimal) => 1 << optimal.chain_log,
            _ => 1,
        }
    }

    fn is_in_range(&self) -> bool {
        let min_match = |length: Option<u8>| length.is_none_or(|n| MIN_MATCH_RANGE.contains(&n));
        let chains_are_in_range = |log: Option<u8>| {
            let chain_log_min = *WINDOW_LOG_RANGE.start();
            log.is_none_or(|log| (chain_log_min..=*CHAIN_LOG_RANGE.end()).contains(&log))
        };
        let lazy_is_in_range = |lazy: &Lazy| {
            HASH_LOG_RANGE.contains(&lazy.hash_log)
                && SEARCH_LOG_RANGE.contains(&lazy.search_log)
                && min_match(lazy.min_match)
                && lazy.lookahead <= LOOKAHEAD_MAX
                && chains_are_in_range(lazy.chain_log)
        };
        match self {
            Strategy::Fast(fast) => {
                HASH_LOG_RANGE.contains(&fast.hash_log)
                    && min_match(fast.min_match)
                    && fast.acceleration <= ACCELERATION_MAX
            }
            Strategy::DoubleFast(double) => {
                HASH_LOG_RANGE.contains(&double.long_hash_log)
                    && HASH_LOG_RANGE.contains(&double.short_hash_log)
                    && min_match(double.min_match)
            }
            Strategy::Lazy(lazy) => lazy_is_in_range(lazy),
            Strategy::LazyDivided(divided) => {
                lazy_is_in_range(&divided.lazy) && chains_are_in_range(divided.chain_log)
            }
            Strategy::Optimal(optimal) => {
                HASH_LOG_RANGE.contains(&optimal.hash_log)
                    && CHAIN_LOG_RANGE.contains(&optimal.chain_log)
                    && SEARCH_LOG_RANGE.contains(&optimal.search_log)
                    && optimal.sufficient_length <= SUFFICIENT_LENGTH_MAX
                    && PASSES_RANGE.contains(&optimal.passes)
            }
        }
    }
}

/// How much of a dictionary's content has room before a block.
pub(crate) fn history_max(params: &Params) -> usize {
    window_bytes(params) - params.block_size()
}

/// Bytes for the window of a stream: history and a block.
pub(crate) fn window_bytes(params: &Params) -> usize {
    let window = 1_usize << params.window_log;
    window
        + window
            .min(BEYOND_MAX.max(window / 4))
            .max(params.block_size())
}
