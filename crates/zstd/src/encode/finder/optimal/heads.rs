//! The nearest source for each of a few lengths.

use super::candidates::{Candidates, PER_POSITION};
use super::match_length;
use super::parse::TAIL;
use crate::encode::finder::{Block, read64};
use crate::workspace::Cells;

/// Lengths that have a table, for each number of tables.
static LENGTHS: [&[u8]; 11] = [
    &[5],
    &[5],
    &[4, 7],
    &[4, 6, 10],
    &[4, 5, 7, 12],
    &[3, 4, 5, 7, 12],
    &[3, 4, 5, 6, 8, 14],
    &[3, 4, 5, 6, 8, 12, 20],
    &[3, 4, 5, 6, 7, 9, 13, 24],
    &[3, 4, 5, 6, 7, 8, 10, 14, 24],
    &[3, 4, 5, 6, 7, 8, 10, 12, 16, 24],
];
/// Most tables.
const TABLES_MAX: usize = 10;
const _: () = assert!(TABLES_MAX <= PER_POSITION);
/// The longest of all lengths.
const LENGTH_MAX: usize = 24;

/// For each of a few lengths, tables of the last index at which bytes of that length were seen.
///
/// A price model wants, for each length, the nearest source. A table by hash of the first `n` bytes gives just that for
/// length `n`, without a chain or a tree: each look-up is independent of all others.
pub(super) struct Heads {
    log: u32,
    lengths: &'static [u8],
    /// The first index that is not in the tables.
    next: u32,
    /// The indexes from and up to which a long match goes, and its offset. A later pass or plan may begin before it.
    within: (u32, u32, u32),
}

impl Heads {
    /// Number of cells of `tables` tables of 2^`log`.
    pub(super) fn cells(log: u8, tables: u8) -> usize {
        LENGTHS[usize::from(tables).min(TABLES_MAX)].len() << log
    }

    /// What finds in [`Heads::cells`].
    pub(super) fn new(log: u8, tables: u8) -> Self {
        let lengths = LENGTHS[usize::from(tables).min(TABLES_MAX)];
        Heads {
            log: u32::from(log),
            lengths,
            next: 0,
            within: (0, 0, 0),
        }
    }

    /// Every index falls by `by`.
    pub(super) fn reduce(&mut self, by: u32) {
        self.next = self.next.saturating_sub(by);
        self.within = (0, 0, 0);
    }

    /// A new frame begins.
    pub(super) fn start_frame(&mut self) {
        self.next = 0;
        self.within = (0, 0, 0);
    }

    /// Makes all before `to` known.
    pub(super) fn insert(&mut self, cells: &mut [[u8; 4]], block: &Block<'_>, to: usize) {
        let to = to.min((block.data.len() + 1).saturating_sub(LENGTH_MAX));
        let from = (self.next.saturating_sub(block.base)) as usize;
        for at in from..to {
            let words = Words::read(block.data, at);
            for (table, &length) in self.lengths.iter().enumerate() {
                let cell = words.hash(length, self.log) | table << self.log;
                cells.put(cell, block.base + at as u32);
            }
        }
        self.next = self.next.max(block.base + to.max(from) as u32);
    }

    /// Finds the matches of positions from `at` on.
    #[inline(never)]
    pub(super) fn fill(
        &mut self,
        cells: &mut [[u8; 4]],
        block: &Block<'_>,
        at: usize,
        enough: usize,
        candidates: &mut Candidates<'_>,
    ) {
        self.insert(cells, block, at);
        candidates.start(at);
        let &Block {
            data,
            end,
            base,
            window,
            ..
        } = block;
        let mut at = at;
        let stop = end.saturating_sub(TAIL - 1);
        while at < stop && candidates.has_room() {
            let index = base + at as u32;
            let (within_start, within_end, within_offset) = self.within;
            let inside = within_start <= index && index < within_end;
            if at + LENGTH_MAX <= data.len() {
                let words = Words::read(data, at);
                let oldest = base.max(index.saturating_sub(window).max(1));
                let mut longest = 2;
                let mut seen = 0;
                for (table, &length) in self.lengths.iter().enumerate() {
                    let cell = words.hash(length, self.log) | table << self.log;
                    let source = cells.at(cell);
                    cells.put(cell, index);
                    if inside || source < oldest || source >= index || source == seen {
                        continue;
                    }
                    seen = source;
                    let source = (source - base) as usize;
                    let common = match_length(data, at, source, end);
                    if common > longest {
                        longest = common;
                        candidates.push(common as u32, (at - source) as u32);
                        if common >= enough {
                            self.within = (index, index + common as u32, (at - source) as u32);
                        }
                    }
                }
                self.next = index + 1;
            }
            if inside && within_end - index >= 3 {
                candidates.push(within_end - index, within_offset);
            }
            candidates.end_position(false);
            at += 1;
        }
        while at < end && candidates.has_room() {
            candidates.end_position(false);
            at += 1;
        }
    }
}

/// The next bytes.
struct Words([u64; 3]);

impl Words {
    #[inline(always)]
    fn read(data: &[u8], at: usize) -> Self {
        Words([
            read64(data, at),
            read64(data, at + 8),
            read64(data, at + 16),
        ])
    }

    /// A hash of the first `length` bytes.
    #[inline(always)]
    fn hash(&self, length: u8, log: u32) -> usize {
        const PRIMES: [u64; 3] = [
            0x9e37_79b1_85eb_ca87,
            0xc2b2_ae3d_27d4_eb4f,
            0x1656_67b1_9e37_79f9,
        ];
        let [a, b, c] = self.0;
        let cut = |word: u64, bytes: u32| word << (64 - 8 * bytes);
        let length = u32::from(length);
        let sum = if length <= 8 {
            cut(a, length).wrapping_mul(PRIMES[0])
        } else if length <= 16 {
            let sum = a.wrapping_mul(PRIMES[0]).rotate_left(31);
            (sum ^ cut(b, length - 8)).wrapping_mul(PRIMES[1])
        } else {
            let sum = a.wrapping_mul(PRIMES[0]).rotate_left(31);
            let sum = (sum ^ b).wrapping_mul(PRIMES[1]).rotate_left(29);
            (sum ^ cut(c, length - 16)).wrapping_mul(PRIMES[2])
        };
        (sum >> (64 - log)) as usize
    }
}
