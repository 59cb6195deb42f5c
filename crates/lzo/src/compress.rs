//! The encoder: greedy, with one candidate per position, found by a hash of four bytes.

use crate::{END, FAR_MAX, MIDDLE_MAX, NEAR_MAX};

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

/// Encodes `src` into the beginning of `dst` and returns the length of the stream, or `None` if it does not fit.
///
/// A destination of [`compressed_len_max`] bytes always suffices. To get only results that are smaller than the
/// source, pass a destination one byte shorter than it. The same input gives the same stream, whatever the workspace
/// held before. Bytes of `dst` after the stream can be overwritten.
pub fn compress(dst: &mut [u8], src: &[u8], workspace: &mut Workspace) -> Option<usize> {
    let seen = &mut workspace.seen;
    seen.fill(0);
    let mut out = Output { dst, at: 0 };
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
    out.dst
        .get_mut(out.at..out.at + END.len())?
        .copy_from_slice(&END);
    Some(out.at + END.len())
}

#[inline(always)]
fn load4(src: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(src[at..at + 4].try_into().expect("four bytes"))
}

#[inline(always)]
fn hash(four: u32) -> usize {
    (four.wrapping_mul(0x9E37_79B1) >> (32 - TABLE_LOG2)) as usize
}

/// How many bytes starting at `from` equal those starting at `at`; `at` is the later position.
#[inline(always)]
fn equal_len(src: &[u8], from: usize, at: usize) -> usize {
    let later = &src[at..];
    let earlier = &src[from..from + later.len()];
    let mut len = 0;
    while let (Some(a), Some(b)) = (later.get(len..len + 8), earlier.get(len..len + 8)) {
        let a = u64::from_le_bytes(a.try_into().expect("eight bytes"));
        let b = u64::from_le_bytes(b.try_into().expect("eight bytes"));
        if a != b {
            return len + ((a ^ b).trailing_zeros() / 8) as usize;
        }
        len += 8;
    }
    while len < later.len() && later[len] == earlier[len] {
        len += 1;
    }
    len
}

struct Output<'a> {
    dst: &'a mut [u8],
    at: usize,
}

impl Output<'_> {
    /// Emits up to 16 literals and a match of common length, without branching on either. Returns `false` and emits
    /// nothing if there are more literals, the match is longer, the literals start the stream, or the end of `dst` is
    /// near.
    #[inline(always)]
    fn usual(&mut self, src: &[u8], from: usize, end: usize, distance: usize, len: usize) -> bool {
        let count = end - from;
        let (first, bits, back) = if distance <= MIDDLE_MAX {
            (0b0010_0000, 31, distance - 1)
        } else {
            let back = distance - MIDDLE_MAX;
            (0b0001_0000 | ((back >> 11) & 8), 7, back & (MIDDLE_MAX - 1))
        };
        if (count > 16) | (len - 2 > bits) | (self.at < 2) {
            return false;
        }
        let Some(to) = self.dst.get_mut(self.at.wrapping_sub(2)..self.at + 24) else {
            return false;
        };
        let Some(literals) = src.get(from..from + 16) else {
            return false;
        };
        let spare = count <= 3;
        to[0] |= if spare { count as u8 } else { 0 };
        to[2] = (count as u8).wrapping_sub(3);
        let head = 2 + usize::from(!spare);
        to[head..head + 16].copy_from_slice(literals);
        let near = (distance <= NEAR_MAX) & (len <= 8);
        let short = ((len.wrapping_sub(1) << 5) | ((back & 7) << 2)) | ((back >> 3) << 8);
        let long = (first | (len - 2)) | (back << 10);
        let word = if near { short } else { long } as u32;
        let tail = head + count;
        to[tail..tail + 4].copy_from_slice(&word.to_le_bytes());
        self.at += tail - 2 + if near { 2 } else { 3 };
        true
    }

    /// Emits the literals of `src` from `from` up to `end`.
    #[inline(always)]
    fn literals(&mut self, src: &[u8], from: usize, end: usize) -> Option<()> {
        let len = end - from;
        if len == 0 {
            return Some(());
        }
        if len <= 3 && self.at != 0 {
            // The spare bits of the previous match, which in all of its forms are two bytes back.
            self.dst[self.at - 2] |= len as u8;
        } else if self.at == 0 && len <= 238 {
            *self.dst.get_mut(self.at)? = 17 + len as u8;
            self.at += 1;
        } else if len <= 18 {
            *self.dst.get_mut(self.at)? = (len - 3) as u8;
            self.at += 1;
        } else {
            self.long(0, len - 18)?;
        }
        if len <= 16
            && let (Some(to), Some(from)) = (
                self.dst.get_mut(self.at..self.at + 16),
                src.get(from..from + 16),
            )
        {
            to.copy_from_slice(from);
            self.at += len;
            return Some(());
        }
        self.dst
            .get_mut(self.at..self.at + len)?
            .copy_from_slice(&src[from..end]);
        self.at += len;
        Some(())
    }

    /// Emits a match.
    #[inline(always)]
    fn matched(&mut self, distance: usize, len: usize) -> Option<()> {
        if distance <= NEAR_MAX && len <= 8 {
            let back = distance - 1;
            let to = self.dst.get_mut(self.at..self.at + 2)?;
            to[0] = (((len - 1) << 5) | ((back & 7) << 2)) as u8;
            to[1] = (back >> 3) as u8;
            self.at += 2;
            return Some(());
        }
        let (first, bits, back) = if distance <= MIDDLE_MAX {
            (0b0010_0000, 31, distance - 1)
        } else {
            let back = distance - MIDDLE_MAX;
            (0b0001_0000 | ((back >> 11) & 8), 7, back & (MIDDLE_MAX - 1))
        };
        if len - 2 <= bits {
            *self.dst.get_mut(self.at)? = (first | (len - 2)) as u8;
            self.at += 1;
        } else {
            self.long(first as u8, len - 2 - bits)?;
        }
        let to = self.dst.get_mut(self.at..self.at + 2)?;
        to.copy_from_slice(&((back << 2) as u16).to_le_bytes());
        self.at += 2;
        Some(())
    }

    /// Emits an instruction's first byte and a length that does not fit in it.
    #[inline(never)]
    fn long(&mut self, first: u8, len: usize) -> Option<()> {
        let zeros = (len - 1) / 255;
        let to = self.dst.get_mut(self.at..self.at + zeros + 2)?;
        to[0] = first;
        to[1..=zeros].fill(0);
        to[zeros + 1] = (len - 255 * zeros) as u8;
        self.at += zeros + 2;
        Some(())
    }
}
