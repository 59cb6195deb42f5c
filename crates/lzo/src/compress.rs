//! The encoder: greedy, with one candidate per position, found by a hash of four bytes.

use crate::output::InstructionWriter;
use crate::{FAR_MAX, equal_len, load4};

/// Log2 of the number of positions in the table.
const TABLE_LOG2: u32 = 14;

/// Matches begin only where at least this many bytes are left, so that they can be loaded at once.
const TAIL: usize = 16;

/// The encoder's memory: where each hash of four bytes was last seen, modulo 64 KiB.
pub struct Workspace {
    seen: [u16; 1 << TABLE_LOG2],
}

impl Workspace {
    /// A workspace for any number of calls, one at a time.
    pub const fn new() -> Self {
        Workspace {
            seen: [0; 1 << TABLE_LOG2],
        }
    }
}

impl Default for Workspace {
    fn default() -> Self {
        Self::new()
    }
}

/// The maximum length of the stream that [`compress`] makes of `len` bytes.
pub const fn compressed_len_max(len: usize) -> usize {
    len + len / 255 + 16
}

/// Encodes `src` into the beginning of `dst` and returns the length of the stream, or `None` if it
/// does not fit.
///
/// A destination of [`compressed_len_max`] bytes always suffices. To get only results that are
/// smaller than the source, pass a destination one byte shorter than it. The same input gives the
/// same stream, regardless of the workspace's previous contents. Bytes of `dst` after the stream
/// can be overwritten.
pub fn compress(dst: &mut [u8], src: &[u8], workspace: &mut Workspace) -> Option<usize> {
    let seen = &mut workspace.seen;
    seen.fill(0);
    let mut out = InstructionWriter::new(dst);
    let mut literals_from = 0;
    let last = src.len().saturating_sub(TAIL);
    let mut at = 1;
    'matches: while at < last {
        // Find four equal bytes. The longer the search fails, the larger the steps.
        let mut four = load4(src, at);
        let mut from = loop {
            let slot = &mut seen[hash(four)];
            let distance = usize::from((at as u16).wrapping_sub(*slot));
            *slot = at as u16;
            // One branch for two checks: the position is reachable, and it holds the same bytes.
            let possible = (distance.wrapping_sub(1) < FAR_MAX) & (distance <= at);
            let from = at.saturating_sub(distance);
            if possible & (load4(src, from) == four) {
                break from;
            }
            at += 1 + ((at - literals_from) >> 5);
            if at >= last {
                break 'matches;
            }
            four = load4(src, at);
        };
        let mut len = 4 + equal_len(src, from + 4, at + 4);
        while at > literals_from && from > 0 && src[from - 1] == src[at - 1] {
            (from, at, len) = (from - 1, at - 1, len + 1);
        }
        if !out.usual(src, literals_from, at, at - from, len) {
            out.literals(src, literals_from, at)?;
            out.matched(at - from, len)?;
        }
        at += len;
        literals_from = at;
        if at < last {
            seen[hash(load4(src, at - 2))] = (at - 2) as u16;
        }
    }
    out.literals(src, literals_from, src.len())?;
    out.end()
}

#[inline(always)]
fn hash(four: u32) -> usize {
    (four.wrapping_mul(0x9E37_79B1) >> (32 - TABLE_LOG2)) as usize
}
