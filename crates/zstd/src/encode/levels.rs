//! Levels: one table, and every number beside it by which the encoder is tuned.

use super::params::{DoubleFast, Fast, Lazy, LazyDivided, Optimal, Params, Strategy};
use crate::ROOMY;
use crate::bits::BIT;

/// The fastest level.
pub const LEVEL_MIN: i32 = -15;
/// The strongest level.
pub const LEVEL_MAX: i32 = 22;
/// The level that 0 selects.
pub const LEVEL_DEFAULT: i32 = 3;

/// Largest content of each class of the table but the first, which has all larger content.
pub(crate) const CLASS_SIZES: [u64; 3] = [256 << 10, 128 << 10, 16 << 10];

/// Bytes of content that are expected behind a dictionary, where their number is unknown: 500 in
/// the C library, which counts an unknown size as -1.
const EXPECTED_SIZE: u64 = 499;

impl Params {
    /// The parameters of a level, for content of `source_size` bytes if that is known.
    ///
    /// Levels go from [`LEVEL_MIN`] to [`LEVEL_MAX`], 0 is [`LEVEL_DEFAULT`]; others are clamped to
    /// that range. The window is no larger than the content needs. The header has the content size
    /// and the dictionary id; the checksum is off.
    pub fn for_level(level: i32, source_size: Option<u64>) -> Params {
        let size = source_size.unwrap_or(u64::MAX);
        let class = CLASS_SIZES.iter().filter(|class| size <= **class).count();
        let level = if level == 0 {
            LEVEL_DEFAULT
        } else {
            level.clamp(LEVEL_MIN, LEVEL_MAX)
        };
        let mut params = LEVELS[class][level.max(0) as usize];
        if let (Strategy::Fast(fast), ..0) = (&mut params.strategy, level) {
            fast.acceleration = level.unsigned_abs() as u16;
        }
        params.narrow(size);
        params.prefer_chains();
        params
    }

    /// As [`Params::for_level`], for content that follows a dictionary of `dictionary_size` bytes.
    ///
    /// Content of unknown size behind a dictionary is expected to be small, as in the C library: it
    /// has the parameters of its size class.
    pub fn for_level_with_dictionary(
        level: i32,
        source_size: Option<u64>,
        dictionary_size: usize,
    ) -> Params {
        let dictionary_size = dictionary_size as u64;
        let whole = match source_size {
            Some(size) => Some(size.saturating_add(dictionary_size)),
            None if dictionary_size == 0 => None,
            None => {
                let expected = dictionary_size.saturating_add(EXPECTED_SIZE);
                (CLASS_SIZES.into_iter().rev()).find(|class| expected <= *class)
            }
        };
        Params::for_level(level, whole)
    }

    /// Replaces rows by chains where those take fewer instructions: in small windows, where there
    /// are no vectors.
    fn prefer_chains(&mut self) {
        if ROOMY || self.window_log > Lazy::CHAINS_WINDOW_LOG_MAX {
            return;
        }
        let chain_log = Some(self.window_log);
        match &mut self.strategy {
            Strategy::Lazy(lazy) => lazy.chain_log = chain_log,
            Strategy::LazyDivided(divided) => {
                divided.lazy.chain_log = chain_log;
                divided.chain_log = None;
            }
            _ => {}
        }
    }
}

// ---- the table ----

const fn with(window_log: u8, strategy: Strategy) -> Params {
    Params {
        window_log,
        strategy,
        content_size: true,
        checksum: false,
        dictionary_id: true,
    }
}

/// A sample of the first block decides the shortest match.
const SAMPLED: Option<u8> = None;
/// Rows alone, without chains after them.
const NO_CHAINS: Option<u8> = None;

const fn fast(window: u8, hash: u8, min_match: Option<u8>, acceleration: u16) -> Params {
    let fast = Fast {
        hash_log: hash,
        min_match,
        acceleration,
    };
    with(window, Strategy::Fast(fast))
}

const fn double_fast(window: u8, long: u8, short: u8, min_match: Option<u8>) -> Params {
    let double = DoubleFast {
        long_hash_log: long,
        short_hash_log: short,
        min_match,
    };
    with(window, Strategy::DoubleFast(double))
}

const fn lazy(window: u8, hash: u8, search: u8, min_match: Option<u8>, lookahead: u8) -> Params {
    let lazy = Lazy {
        hash_log: hash,
        search_log: search,
        min_match,
        lookahead,
        chain_log: None,
    };
    with(window, Strategy::Lazy(lazy))
}

const fn lazy_divided(
    window: u8,
    hash: u8,
    search: u8,
    min_match: u8,
    chain: Option<u8>,
) -> Params {
    let divided = LazyDivided {
        lazy: Lazy {
            hash_log: hash,
            search_log: search,
            min_match: Some(min_match),
            lookahead: 2,
            chain_log: None,
        },
        chain_log: chain,
    };
    with(window, Strategy::LazyDivided(divided))
}

const fn optimal(
    window: u8,
    hash: u8,
    chain: u8,
    search: u8,
    sufficient: u16,
    passes: u8,
) -> Params {
    let optimal = Optimal {
        hash_log: hash,
        chain_log: chain,
        search_log: search,
        sufficient_length: sufficient,
        passes,
    };
    with(window, Strategy::Optimal(optimal))
}

/// Four classes of content size, a row for each level. Row 0 serves the levels below 0, whose
/// number is the acceleration.
///
/// The numbers are the arguments of the functions above, of which those before `min_match` are
/// logarithms.
#[rustfmt::skip]
static LEVELS: [[Params; 23]; 4] = [
    // Content of more than 256 KiB, or unknown.
    [
        fast(19, 14, Some(6), 1),                 // below 0
        fast(19, 14, Some(7), 0),                 // 1
        fast(20, 16, Some(6), 0),                 // 2
        double_fast(21, 17, 16, Some(5)),         // 3
        double_fast(21, 18, 18, Some(5)),         // 4
        lazy(21, 19, 3, Some(5), 0),              // 5
        lazy(21, 19, 3, Some(5), 1),              // 6
        lazy(21, 20, 4, Some(5), 1),              // 7
        lazy(21, 20, 4, Some(5), 2),              // 8
        lazy(22, 21, 4, Some(5), 2),              // 9
        lazy(22, 22, 5, Some(5), 2),              // 10
        lazy_divided(22, 22, 5, 5, NO_CHAINS),    // 11
        lazy_divided(22, 22, 6, 5, NO_CHAINS),    // 12
        lazy_divided(22, 22, 6, 4, NO_CHAINS),    // 13
        optimal(22, 17, 22, 2, 48, 1),            // 14
        optimal(22, 17, 22, 2, 64, 1),            // 15
        optimal(22, 18, 22, 6, 128, 1),           // 16
        optimal(23, 20, 22, 4, 128, 2),           // 17
        optimal(23, 20, 22, 5, 128, 2),           // 18
        optimal(23, 21, 22, 5, 256, 2),           // 19
        optimal(25, 21, 23, 6, 256, 2),           // 20
        optimal(26, 22, 24, 6, 512, 2),           // 21
        optimal(27, 22, 25, 7, 999, 2),           // 22
    ],
    // Content of at most 256 KiB.
    [
        fast(18, 14, Some(5), 1),                 // below 0
        fast(18, 15, SAMPLED, 0),                 // 1
        fast(18, 15, Some(5), 0),                 // 2
        double_fast(18, 16, 16, SAMPLED),         // 3
        lazy(18, 17, 3, SAMPLED, 0),              // 4
        lazy(18, 18, 5, SAMPLED, 0),              // 5
        lazy(18, 18, 3, SAMPLED, 1),              // 6
        lazy(18, 18, 4, Some(4), 1),              // 7
        lazy(18, 18, 4, Some(4), 2),              // 8
        lazy(18, 18, 5, Some(4), 2),              // 9
        lazy(18, 18, 6, Some(4), 2),              // 10
        lazy_divided(18, 18, 5, 4, NO_CHAINS),    // 11
        lazy_divided(18, 18, 6, 4, NO_CHAINS),    // 12
        optimal(18, 17, 18, 3, 32, 1),            // 13
        optimal(18, 17, 18, 4, 128, 1),           // 14
        optimal(18, 17, 18, 5, 256, 1),           // 15
        optimal(18, 18, 18, 7, 256, 1),           // 16
        optimal(18, 16, 18, 8, 128, 2),           // 17
        optimal(18, 16, 18, 8, 256, 2),           // 18
        optimal(18, 16, 18, 8, 256, 2),           // 19
        optimal(18, 16, 18, 8, 256, 2),           // 20
        optimal(18, 16, 18, 8, 256, 2),           // 21
        optimal(18, 16, 18, 8, 256, 2),           // 22
    ],
    // Content of at most 128 KiB.
    [
        fast(17, 12, Some(5), 1),                 // below 0
        fast(17, 15, SAMPLED, 0),                 // 1
        fast(17, 15, Some(5), 0),                 // 2
        double_fast(17, 15, 15, Some(5)),         // 3
        double_fast(17, 15, 15, SAMPLED),         // 4
        lazy(17, 16, 3, SAMPLED, 0),              // 5
        lazy(17, 16, 3, SAMPLED, 1),              // 6
        lazy(17, 16, 3, Some(4), 2),              // 7
        lazy(17, 16, 4, Some(4), 2),              // 8
        lazy(17, 16, 5, Some(4), 2),              // 9
        lazy(17, 16, 6, Some(4), 2),              // 10
        lazy_divided(17, 17, 6, 4, NO_CHAINS),    // 11
        lazy_divided(17, 17, 6, 4, Some(17)),     // 12
        optimal(17, 16, 17, 3, 64, 1),            // 13
        optimal(17, 16, 17, 4, 128, 1),           // 14
        optimal(17, 16, 17, 4, 256, 1),           // 15
        optimal(17, 16, 17, 7, 256, 1),           // 16
        optimal(17, 16, 17, 8, 256, 1),           // 17
        optimal(17, 16, 17, 9, 256, 1),           // 18
        optimal(17, 15, 17, 8, 256, 2),           // 19
        optimal(17, 15, 17, 8, 256, 2),           // 20
        optimal(17, 15, 17, 8, 256, 2),           // 21
        optimal(17, 15, 17, 8, 256, 2),           // 22
    ],
    // Content of at most 16 KiB.
    [
        fast(14, 14, Some(5), 1),                 // below 0
        fast(14, 14, Some(5), 0),                 // 1
        fast(14, 14, Some(4), 0),                 // 2
        double_fast(14, 14, 14, Some(4)),         // 3
        lazy(14, 14, 4, Some(4), 0),              // 4
        lazy(14, 14, 3, Some(4), 1),              // 5
        lazy(14, 14, 4, Some(4), 2),              // 6
        lazy(14, 14, 5, Some(4), 2),              // 7
        lazy(14, 14, 5, Some(4), 2),              // 8
        lazy(14, 14, 6, Some(4), 2),              // 9
        lazy(14, 14, 6, Some(4), 2),              // 10
        lazy_divided(14, 14, 5, 4, NO_CHAINS),    // 11
        optimal(14, 14, 14, 2, 20, 1),            // 12
        optimal(14, 14, 14, 4, 64, 1),            // 13
        optimal(14, 14, 14, 5, 256, 1),           // 14
        optimal(14, 14, 14, 7, 256, 1),           // 15
        optimal(14, 12, 14, 8, 96, 2),            // 16
        optimal(14, 12, 14, 8, 128, 2),           // 17
        optimal(14, 12, 14, 8, 128, 2),           // 18
        optimal(14, 12, 14, 8, 256, 2),           // 19
        optimal(14, 12, 14, 8, 256, 2),           // 20
        optimal(14, 12, 14, 8, 512, 2),           // 21
        optimal(14, 12, 14, 8, 999, 2),           // 22
    ],
];

// ---- all strategies ----

/// Logarithm of the largest window of short content.
pub(crate) const SHORT_LOG_MAX: u8 = 14;
/// Shorter blocks are not searched for matches.
pub(crate) const SEARCHED_MIN: usize = 7;
/// Compression must save 1/2^6 of a block (and 2 bytes), as in C: less is not worth the time to
/// decode it.
pub(crate) const GAIN_LOG: u32 = 6;

// ---- the shortest match, from a sample of the first block (`sample.rs`) ----

/// One byte in this many is looked at: a prime number, for records have even sizes.
pub(crate) const SAMPLE_STRIDE: usize = 61;
/// Smaller content shows nothing.
pub(crate) const SAMPLED_MIN: usize = 8192;
/// Content with at least this many 1/256 bits a byte is dense.
pub(crate) const DENSE_BITS_MIN: u32 = 56 * BIT / 10;
/// So is, for double hashing, content of which one byte in this many is zero: it is no text, which
/// has fewer than one in 200.
pub(crate) const ZEROS_SHARE: u32 = 16;

impl Strategy {
    /// The shortest match that is looked for, unless a sample decides.
    pub(crate) fn min_match(&self) -> Option<u8> {
        match self {
            Strategy::Fast(fast) => fast.min_match,
            Strategy::DoubleFast(double) => double.min_match,
            Strategy::Lazy(lazy) => lazy.min_match,
            Strategy::LazyDivided(divided) => divided.lazy.min_match,
            // Each length has a table of its own.
            Strategy::Optimal(_) => Some(3),
        }
    }

    /// The shortest match for content that is dense or not, in this window; `None` if it is too
    /// little to see.
    ///
    /// An offset takes about as many bits as four letters of a text, but fewer than four bytes of
    /// machine code. Hashing more bytes also gives fewer candidates, and fewer but longer matches,
    /// which take less time. Short content has too few of them.
    pub(crate) fn min_match_for(&self, is_dense: Option<bool>, window_log: u8) -> u8 {
        match (self, is_dense) {
            (Strategy::Fast(_), None | Some(true)) => Fast::MIN_MATCH_DENSE,
            (Strategy::Fast(_), Some(false)) => {
                if window_log <= Fast::SHORT_WINDOW_LOG {
                    6
                } else {
                    7
                }
            }
            (Strategy::DoubleFast(_), None) => 5,
            (_, None | Some(true)) => 4,
            (_, Some(false)) => 5,
        }
    }

    /// Whether matches shorter than five bytes are looked for, which need more room for sequences.
    pub(crate) fn finds_short_matches(&self) -> bool {
        !matches!(self, Strategy::Fast(_) | Strategy::DoubleFast(_))
    }

    /// Whether literals are stored as they are.
    pub(crate) fn stores_literals(&self) -> bool {
        matches!(self, Strategy::Fast(fast) if fast.acceleration > 0)
    }
}

// ---- where a block is divided after its sequences are found (`division.rs`) ----

/// Most chunks of a block that is divided.
pub(crate) const DIVISION_CHUNKS_MAX: usize = 8;
/// No chunk is smaller than this.
pub(crate) const DIVISION_CHUNK_MIN: usize = 4096;
/// A part of its own must save 100 bytes, to pay for the time of its tables.
pub(crate) const DIVISION_GAIN: i64 = 100 * 8 * BIT as i64;

/// Fewer literals than this are counted. More may be noise, by samples spread over them.
pub(crate) const NOISE_MIN: usize = 16 << 10;
pub(crate) const NOISE_SAMPLES: usize = 16;
/// Noise has at least this number of bytes for each match.
pub(crate) const NOISE_SPAN: usize = 4096;
/// Bytes of each.
pub(crate) const NOISE_SAMPLE: usize = 256;

impl Params {
    /// How many chunks of a block may become parts of their own after its sequences are found: 1 if
    /// it is not divided.
    pub(crate) fn division_chunks(&self) -> usize {
        match &self.strategy {
            // Each chunk costs as much as a few hundred bytes, and few pay in so short a block.
            Strategy::DoubleFast(_) if self.window_log <= SHORT_LOG_MAX => 2,
            // Content of up to 128 KiB is fast and small enough without, and so are accelerated
            // levels.
            Strategy::Fast(fast) if fast.acceleration == 0 && self.window_log > 17 => 4,
            Strategy::DoubleFast(_) => 4,
            Strategy::Lazy(lazy) if lazy.lookahead < 2 => 4,
            Strategy::Lazy(_) => DIVISION_CHUNKS_MAX,
            // These divide by a plan of the whole block.
            _ => 1,
        }
    }
}

// ---- fast ----

impl Fast {
    /// The shortest match where short ones pay, if a sample decides. Half of the table is then
    /// enough, and stays nearer to the processor.
    pub(crate) const MIN_MATCH_DENSE: u8 = 6;
    /// Logarithm of the largest window in which matches of seven bytes are too few for text.
    pub(crate) const SHORT_WINDOW_LOG: u8 = 15;
    /// Positions without a match after which the step grows by one; fewer where the first step is
    /// the shortest.
    pub(crate) const PATIENCE: usize = 128;
    pub(crate) const PATIENCE_SHORT: usize = 64;

    /// Logarithm of the number of entries that are used for matches of at least `min_match` bytes.
    pub(crate) fn hash_log_for(&self, min_match: u8) -> u8 {
        let half = self.min_match.is_none() && min_match == Self::MIN_MATCH_DENSE;
        self.hash_log - u8::from(half)
    }

    /// How far two positions are apart at first; both they and the ones after them are looked at.
    pub(crate) fn first_step(&self) -> usize {
        usize::from(self.acceleration.max(1)) + 1
    }
}

// ---- double fast ----

impl DoubleFast {
    /// Positions without a match after which the step grows.
    pub(crate) const PATIENCE: usize = 256;
    /// How far two pairs of positions are apart at first.
    pub(crate) const STEP: usize = 2;
    /// From this step on, a match of some thirty bytes between noise might be missed: it grows more
    /// slowly.
    const LONG_STEP: usize = 24;

    /// The step after another such stretch.
    #[inline(always)]
    pub(crate) fn longer_step(step: usize) -> usize {
        step + if step < Self::LONG_STEP { 2 } else { 1 }
    }
}

// ---- lazy ----

impl Lazy {
    /// Logarithm of the literals after which the step grows by one.
    pub(crate) const PATIENCE_LOG: usize = 8;
    /// Positions skipped by a longer step do not enter the rows; by a step longer than half of it
    /// where the window is larger than `PATIENT_WINDOW` and the first match is taken.
    pub(crate) const ENTERED_STEP: usize = 16;
    pub(crate) const PATIENT_WINDOW: usize = 128 << 10;
    /// Logarithm of the largest window in which chains are walked where there are no vectors: those
    /// of larger ones do not stay in a core's own cache.
    const CHAINS_WINDOW_LOG_MAX: u8 = 17;
    /// Smallest and largest row, as logarithms.
    pub(crate) const ROW_LOG_MIN: u8 = 4;
    pub(crate) const ROW_LOG_MAX: u8 = 6;
    /// Rows of more positions than this do not stay in a core's own cache: they are prefetched.
    pub(crate) const LARGE: usize = 1 << 18;
    /// How many positions ahead.
    pub(crate) const AHEAD: usize = 16;
    /// When more positions than this have not been entered, most are left out.
    pub(crate) const BEHIND_MAX: usize = 384;
    /// How many are then entered from the front of the gap and from its back.
    pub(crate) const GAP_FRONT: usize = 96;
    pub(crate) const GAP_BACK: usize = 32;

    /// Logarithm of the number of positions in a row.
    pub(crate) fn row_log(&self) -> u8 {
        self.search_log.clamp(Self::ROW_LOG_MIN, Self::ROW_LOG_MAX)
    }

    /// How many bytes are hashed for matches of at least `min_match` bytes.
    pub(crate) fn hashed(min_match: u8) -> u8 {
        min_match.clamp(4, 5)
    }

    /// How many candidates of a row are compared.
    pub(crate) fn attempts(&self) -> u32 {
        // An eighth more: with 8 of a row's 16 compared, one more is worth 0.2 % of size.
        (1 << self.search_log) + (1 << self.search_log >> 3)
    }
}

impl LazyDivided {
    /// Candidates of a chain that are compared.
    pub(crate) const CHAIN_ATTEMPTS: u32 = 16;
    /// Logarithm of how many positions there are for each chain.
    pub(crate) const CHAIN_SHARE_LOG: u8 = 2;
}

// ---- optimal ----

// Where literals are cheap, what is barren is forgotten as often as prices are set: in time.
const _: () = assert!(1 << Optimal::PRICES_LOG <= Optimal::BARREN_FROM);

impl Optimal {
    /// Logarithm of the most positions that are sorted: beyond this, sorting takes longer than
    /// chains do.
    pub(crate) const SORTED_LOG_MAX: u8 = 20;
    /// Positions whose matches are kept together. In larger windows than 2^17 bytes a second pass
    /// need not look for them again: those of a whole block are kept.
    pub(crate) const SPAN: usize = 128;
    pub(crate) const SPAN_WINDOW_LOG_MAX: u8 = 17;
    /// Logarithm of the most entries of the table of three bytes beside sorted positions.
    pub(crate) const TRIPLES_LOG_MAX: u8 = 15;

    /// Logarithm of the bytes after which prices are set again; at first, of the share of the bytes
    /// counted so far.
    pub(crate) const PRICES_LOG: u32 = 10;
    pub(crate) const PRICES_SHARE_LOG: u32 = 5;
    /// In short content prices are set after at least this many bytes, at first and later.
    /// Otherwise they would be set every few bytes in the whole of a short frame.
    pub(crate) const SHORT_PRICES_MIN: usize = 64;
    pub(crate) const SHORT_PRICES_MAX: usize = 256;
    /// The first of two passes, which only counts, parses the first of every two samples of this
    /// many bytes, from there on.
    pub(crate) const SAMPLE: usize = 1 << 10;
    pub(crate) const SAMPLE_FROM: usize = 8 << 10;

    /// Literals after which positions are passed without a look, in a single pass over chains:
    /// machine code has shorter ones between its short matches.
    pub(crate) const SKIM_FROM: u32 = 512;
    /// Bytes of which matches save little, after which positions are passed as well, and how many
    /// are remembered at most. Each byte that a match saves makes up for `WORTH` of them: 1 in 192
    /// is where base64 lies below, and samples of sound above.
    pub(crate) const BARREN_FROM: u32 = 1024;
    pub(crate) const BARREN_MAX: u32 = 1536;
    pub(crate) const WORTH: u32 = 192;
    /// A match of this length makes up for all, and shorter ones for nothing while there are fewer
    /// than `BARREN_MIN`: what compresses has no time for weighing.
    pub(crate) const WEIGHED_BELOW: u32 = 8;
    pub(crate) const BARREN_MIN: u32 = 128;

    /// Logarithm of the distance of positions that enter after a run of literals.
    pub(crate) fn skim_log(run: u32, short: bool) -> u32 {
        let max = if short { 2 } else { 4 };
        (run / Self::SKIM_FROM).max(1).ilog2().min(max)
    }

    /// Content of at least `PLAIN_MIN` bytes is plain if each takes at least this many 1/256 bits,
    /// and matches of five cover at most 1/2^6 of them. Those are looked for as after `PLAIN_RUN`
    /// literals. The letters of base64 take 6 bits, and two passes find their line breaks.
    pub(crate) const PLAIN_MIN: usize = 2048;
    pub(crate) const PLAIN_BITS_MIN: u32 = 65 * BIT / 10;
    pub(crate) const PLAIN_LOG: u32 = 6;
    pub(crate) const PLAIN_RUN: u32 = 4 * Self::SKIM_FROM;

    /// Most places of a match whose chains are asked for the candidate that lies farthest back.
    pub(crate) const PLACES_MAX: u32 = 64;
    /// Hash tables of more than 2^18 entries are prefetched this many positions ahead, and the
    /// cells' targets at half of that.
    pub(crate) const LARGE_LOG: u32 = 18;
    pub(crate) const AHEAD: usize = 16;

    /// Single passes with a shorter sufficient length skip more positions.
    const HASTY_BELOW: u16 = 128;
    /// Single passes with at least this many candidates, as a logarithm, skip few positions.
    const PATIENT_FROM: u8 = 7;

    /// By how much (in 1/256 bit) the next position may be dearer to reach than this one for this
    /// one to be skipped.
    pub(crate) fn skip_margin(&self, passes: u32) -> u32 {
        if passes > 1 {
            BIT / 2
        } else if self.passes == 1 && self.search_log >= Self::PATIENT_FROM {
            BIT / 8
        } else if self.sufficient_length >= Self::HASTY_BELOW {
            BIT + BIT / 8
        } else {
            BIT + BIT / 2
        }
    }
}
