//! Rows of positions by hash, the newest replacing the oldest. A byte of hash beside each position, compared for a whole
//! row at once, tells which positions are worth a look.

use super::memory::{Memory, match_length};
use super::{Block, PRIME, read64};
use crate::Error;
use crate::encode::levels::Params;
use crate::workspace::{Carver, Cells};

/// Smallest and largest row, as logarithms.
const ROW_LOG_MIN: u8 = 4;
const ROW_LOG_MAX: u8 = 6;

/// Tables of more positions than this do not stay in a core's own cache: rows are asked for in advance.
const LARGE: usize = 1 << 18;
/// How far ahead.
const AHEAD: usize = 4;

/// When so many positions are behind, most are left out.
const BEHIND_MAX: usize = 384;
/// How many then enter from the front of the gap and from its back.
const GAP_FRONT: usize = 96;
const GAP_BACK: usize = 32;

/// The tables.
pub(crate) struct Tables<'a> {
    pub(super) rows: Rows<'a>,
    row_log: u8,
}

/// Rows of a fixed width.
pub(crate) struct Rows<'a> {
    /// Where each row's newest position lies.
    heads: &'a mut [u8],
    tags: &'a mut [u8],
    positions: &'a mut [[u8; 4]],
    /// The first index that has not entered yet.
    next: usize,
}

impl<'a> Tables<'a> {
    /// Bytes of workspace.
    pub(crate) fn bytes(params: &Params) -> usize {
        (5 << params.hash_log) + (1 << (params.hash_log - ROW_LOG_MIN))
    }

    /// Takes the tables from a workspace.
    pub(crate) fn carve(carver: &mut Carver<'a>, params: &Params) -> Result<Self, Error> {
        let row_log = params.search_log.clamp(ROW_LOG_MIN, ROW_LOG_MAX);
        let rows = Rows {
            positions: carver.cells(1 << params.hash_log)?,
            tags: carver.cells::<1>(1 << params.hash_log)?.as_flattened_mut(),
            heads: carver
                .cells::<1>(1 << (params.hash_log - row_log))?
                .as_flattened_mut(),
            next: 0,
        };
        Ok(Tables { rows, row_log })
    }

    /// Logarithm of the width of a row.
    pub(super) fn row_log(&self) -> u8 {
        self.row_log
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.rows.positions.fill([0; 4]);
        self.rows.tags.fill(0);
        self.rows.heads.fill(0);
    }

    /// Knows what `other` knows, whose rows are as many and as wide.
    pub(crate) fn copy_from(&mut self, other: &Tables<'_>) {
        self.rows.heads.copy_from_slice(other.rows.heads);
        self.rows.tags.copy_from_slice(other.rows.tags);
        self.rows.positions.copy_from_slice(other.rows.positions);
        self.rows.next = other.rows.next;
    }

    /// A new frame begins.
    pub(crate) fn start_frame(&mut self) {
        self.rows.next = 0;
    }

    /// Lowers every index.
    pub(crate) fn reduce(&mut self, by: u32) {
        super::reduce(self.rows.positions, by);
        self.rows.next = self.rows.next.saturating_sub(by as usize);
    }

    /// Makes `data[start..end]` known.
    pub(crate) fn insert(&mut self, block: &Block<'_>, params: &Params) {
        match self.row_log {
            4 => self.rows.insert::<16>(block, params),
            5 => self.rows.insert::<32>(block, params),
            _ => self.rows.insert::<64>(block, params),
        }
    }
}

/// A place in the rows, and the tag.
#[inline(always)]
fn slot<const MIN: u32>(value: u64, shift: u32) -> (usize, u8) {
    let hash = (value << (64 - 8 * MIN)).wrapping_mul(PRIME) >> (shift & 63);
    ((hash >> 8) as usize, hash as u8)
}

impl Rows<'_> {
    fn insert<const W: usize>(&mut self, block: &Block<'_>, params: &Params) {
        let shift = self.shift();
        for at in block.start..(block.end.saturating_sub(7)).max(block.start) {
            let value = read64(block.data, at);
            let (row, tag) = match params.min_match {
                0..=4 => slot::<4>(value, shift),
                5 => slot::<5>(value, shift),
                _ => slot::<6>(value, shift),
            };
            self.put::<W>(row, tag, block.base + at as u32);
        }
        self.next = (block.base as usize + block.end.saturating_sub(7)).max(self.next);
    }

    /// 64 less the bits of a row's number and of a tag.
    #[inline(always)]
    pub(super) fn shift(&self) -> u32 {
        64 - 8 - self.heads.len().ilog2()
    }

    #[inline(always)]
    fn put<const W: usize>(&mut self, row: usize, tag: u8, index: u32) {
        let head = &mut self.heads[row];
        *head = head.wrapping_sub(1) & (W - 1) as u8;
        let place = row * W + usize::from(*head);
        self.tags[place] = tag;
        self.positions.put(place, index);
    }

    /// Lets all positions before `at` enter.
    #[inline(always)]
    pub(super) fn catch_up<M: Memory, const W: usize, const MIN: u32>(
        &mut self,
        data: M,
        at: usize,
        shift: u32,
    ) {
        let mut next = self.next;
        if at - next > BEHIND_MAX {
            for i in next..next + GAP_FRONT {
                let (row, tag) = slot::<MIN>(data.read64(i), shift);
                self.put::<W>(row, tag, i as u32);
            }
            next = at - GAP_BACK;
        }
        for i in next..at {
            let (row, tag) = slot::<MIN>(data.read64(i), shift);
            self.put::<W>(row, tag, i as u32);
        }
        self.next = at;
    }

    /// Asks for the row of a position that will be searched soon.
    #[inline(always)]
    fn prefetch<M: Memory, const W: usize, const MIN: u32>(&self, data: M, at: usize, shift: u32) {
        if at + 8 > data.end() {
            return;
        }
        let (row, _) = slot::<MIN>(data.read64(at), shift);
        #[cfg(not(feature = "portable"))]
        {
            use crate::arch::find::prefetch;
            prefetch(self.tags.get(row * W));
            prefetch(self.positions.get(row * W).map(|cell| &cell[0]));
            prefetch(self.positions.get(row * W + W - 1).map(|cell| &cell[0]));
        }
        let _ = row;
    }

    /// A block begins at index `at`; nothing that lies before `first` can enter any more.
    pub(super) fn start(&mut self, first: usize) {
        self.next = self.next.max(first);
    }

    /// The longest match at `at` that is longer than `least`, and what it refers to. `at` itself enters.
    #[inline(always)]
    pub(super) fn search<M: Memory, const W: usize, const MIN: u32>(
        &mut self,
        data: M,
        at: usize,
        low: usize,
        attempts: u32,
        least: usize,
        shift: u32,
    ) -> (usize, usize) {
        self.catch_up::<M, W, MIN>(data, at, shift);
        let end = data.end();
        if self.tags.len() > LARGE {
            self.prefetch::<M, W, MIN>(data, at + AHEAD, shift);
        }
        let value = data.read64(at);
        let (row, tag) = slot::<MIN>(value, shift);
        let head = usize::from(self.heads[row]) & (W - 1);
        let mut mask = mask::<W>(&self.tags[row * W..][..W], tag, head);
        let positions = &self.positions[row * W..][..W];
        let (mut best, mut best_at) = (least, 0);
        let mut left = attempts;
        while mask != 0 {
            let place = (head + mask.trailing_zeros() as usize) & (W - 1);
            mask &= mask - 1;
            let candidate = positions.at(place) as usize;
            if candidate < low {
                break;
            }
            // Only what matches where the best one ends can be better.
            if data.read32(candidate + best - 3) == data.read32(at + best - 3) {
                let length = match_length(data, at, candidate);
                if length > best {
                    (best, best_at) = (length, candidate);
                    if at + length + 1 > end {
                        break;
                    }
                }
            }
            left -= 1;
            if left == 0 {
                break;
            }
        }
        self.put::<W>(row, tag, at as u32);
        self.next = at + 1;
        (best, best_at)
    }
}

/// Which tags are equal to `tag`, the newest in the lowest bit.
#[inline(always)]
fn mask<const W: usize>(tags: &[u8], tag: u8, head: usize) -> u64 {
    let mut mask = 0;
    for (i, part) in tags.as_chunks::<16>().0.iter().enumerate() {
        #[cfg(not(feature = "portable"))]
        let bits = crate::arch::find::equal_bytes(part, tag);
        #[cfg(feature = "portable")]
        let bits = equal_bytes(part, tag);
        mask |= u64::from(bits) << (16 * i);
    }
    let head = head as u32;
    match W {
        16 => u64::from((mask as u16).rotate_right(head)),
        32 => u64::from((mask as u32).rotate_right(head)),
        _ => mask.rotate_right(head),
    }
}

/// A bit for each byte that equals `byte`.
#[cfg_attr(not(feature = "portable"), allow(dead_code, reason = "the twin"))]
pub(crate) fn equal_bytes(bytes: &[u8; 16], byte: u8) -> u16 {
    let mut mask = 0;
    for (i, b) in bytes.iter().enumerate() {
        mask |= u16::from(*b == byte) << i;
    }
    mask
}
