//! The slow encoder: of all parses of the bytes with the matches that it finds, it takes a shortest
//! one.

mod finder;
mod parse;

use crate::output::InstructionWriter;
use finder::{Effort, Finder};
use parse::{EncodeCursor, Parser};

/// The lowest level of [`compress_optimal`].
pub const LEVEL_MIN: u8 = 2;
/// The highest level of [`compress_optimal`].
pub const LEVEL_MAX: u8 = 9;

/// How hard the levels search, starting at [`LEVEL_MIN`].
const LEVELS: [Effort; 8] = [
    effort(1),  // 2
    effort(2),  // 3
    effort(3),  // 4
    effort(4),  // 5
    effort(5),  // 6
    effort(6),  // 7
    effort(16), // 8
    effort(64), // 9
];

/// A search of at most this many earlier positions, and a quarter of them inside a long match.
const fn effort(tries: u32) -> Effort {
    Effort { tries, good: 16 }
}

/// The memory of [`compress_optimal`]: 362 KiB.
pub struct OptimalWorkspace {
    finder: Finder,
    parser: Parser,
}

impl OptimalWorkspace {
    /// A workspace for any number of calls, one at a time.
    pub const fn new() -> Self {
        OptimalWorkspace {
            finder: Finder::new(),
            parser: Parser::new(),
        }
    }
}

impl Default for OptimalWorkspace {
    fn default() -> Self {
        Self::new()
    }
}

/// Encodes `src` into the beginning of `dst` and returns the length of the stream, or `None` if it
/// does not fit.
///
/// The level is 2 to 9, others count as the nearest of these. Level 8 gives about the size of
/// liblzo2's `lzo1x_999` at its level 8 or less, level 9 about 1 % less.
/// [`decompress`](crate::decompress) is as fast as for [`compress`](crate::compress).
///
/// As for `compress`, a destination of [`compressed_len_max`](crate::compressed_len_max) bytes
/// always suffices; the same input and level give the same stream, regardless of the workspace's
/// previous contents; and bytes of `dst` after the stream can be overwritten.
pub fn compress_optimal(
    dst: &mut [u8],
    src: &[u8],
    level: u8,
    workspace: &mut OptimalWorkspace,
) -> Option<usize> {
    let level = level.clamp(LEVEL_MIN, LEVEL_MAX);
    let effort = LEVELS[usize::from(level - LEVEL_MIN)];
    let OptimalWorkspace { finder, parser } = workspace;
    finder.clear();
    let mut out = InstructionWriter::new(dst);
    let mut next = EncodeCursor {
        begin: 0,
        literals_from: 0,
    };
    while next.begin < src.len() {
        next = parser.chunk(&mut out, src, next, finder, effort)?;
    }
    out.literals(src, next.literals_from, src.len())?;
    out.end()
}
