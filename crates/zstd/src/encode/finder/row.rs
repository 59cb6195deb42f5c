//! Rows of positions by hash, the newest replacing the oldest. A byte of hash beside each position, compared for a whole
//! row at once, tells which positions are worth a look.

use super::memory::{Memory, match_length};
use super::{Block, PRIME, read64};
use crate::encode::params::{Lazy, LazyDivided};
use crate::workspace::{Carver, Cells};

/// The tables.
pub(crate) struct Tables<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) params: Lazy,
}

/// Rows of a fixed width.
pub(crate) struct Rows<'a> {
    pub(super) cells: RowCells<'a>,
    /// How many positions the chains link: a power of two, or 0.
    pub(super) links: usize,
    /// The first index that has not entered yet.
    pub(super) next: usize,
}

/// What rows consist of.
pub(crate) struct RowCells<'a> {
    /// Where each row's newest position lies.
    pub(crate) heads: &'a mut [u8],
    pub(crate) tags: &'a mut [u8],
    /// As many as tags. Behind them, where there are chains, what lies before each position in its chain, then the end of
    /// each chain.
    pub(crate) positions: &'a mut [[u8; 4]],
}

/// The cells of rows, with checks or (in `arch/`) without.
pub(crate) trait RowTable {
    /// Where the newest position of a row lies.
    fn head(&self, row: usize) -> u8;
    /// Says where it lies now.
    fn set_head(&mut self, row: usize, head: u8);
    /// A bit for each of the sixteen tags from `place` on that equals `tag`.
    fn equal_tags(&self, place: usize, tag: u8) -> u16;
    /// The position in a place.
    fn position(&self, place: usize) -> u32;
    /// Sets a place.
    fn put(&mut self, place: usize, tag: u8, position: u32);
    /// Sets a position alone.
    fn put_position(&mut self, place: usize, position: u32);
    /// Asks for the cache lines of a row of `width` places from `place` on.
    fn prefetch(&self, place: usize, width: usize);
}

impl RowTable for &mut RowCells<'_> {
    #[inline(always)]
    fn head(&self, row: usize) -> u8 {
        self.heads[row]
    }

    #[inline(always)]
    fn set_head(&mut self, row: usize, head: u8) {
        self.heads[row] = head;
    }

    #[inline(always)]
    fn equal_tags(&self, place: usize, tag: u8) -> u16 {
        let tags = self.tags[place..].first_chunk();
        tags.map_or(0, |tags| equal_bytes(tags, tag))
    }

    #[inline(always)]
    fn position(&self, place: usize) -> u32 {
        self.positions.at(place)
    }

    #[inline(always)]
    fn put(&mut self, place: usize, tag: u8, position: u32) {
        self.tags[place] = tag;
        Cells::put(self.positions, place, position);
    }

    #[inline(always)]
    fn put_position(&mut self, place: usize, position: u32) {
        Cells::put(self.positions, place, position);
    }

    #[inline(always)]
    fn prefetch(&self, _place: usize, _width: usize) {}
}

impl<'a> Tables<'a> {
    /// Bytes of workspace, with chains of 2^`chain_log` positions if that is given.
    pub(crate) fn bytes(params: &Lazy, chain_log: Option<u8>) -> usize {
        (5 << params.hash_log)
            + (1 << (params.hash_log - Lazy::ROW_LOG_MIN))
            + 4 * Self::chain_cells(Self::links(chain_log))
    }

    /// How many positions the chains link.
    fn links(chain_log: Option<u8>) -> usize {
        chain_log.map_or(0, |log| 1 << log)
    }

    /// How many cells behind the rows are of chains.
    fn chain_cells(links: usize) -> usize {
        links + (links >> LazyDivided::CHAIN_SHARE_LOG)
    }

    /// Takes the tables from a workspace.
    pub(crate) fn carve(carver: &mut Carver<'a>, params: &Lazy, chain_log: Option<u8>) -> Self {
        let links = Self::links(chain_log);
        let cells = RowCells {
            positions: carver.cells((1 << params.hash_log) + Self::chain_cells(links)),
            tags: carver.bytes(1 << params.hash_log),
            heads: carver.bytes(1 << (params.hash_log - params.row_log())),
        };
        let rows = Rows {
            cells,
            links,
            next: 0,
        };
        Tables {
            rows,
            params: *params,
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.rows.cells.positions.fill([0; 4]);
        self.rows.cells.tags.fill(0);
        self.rows.cells.heads.fill(0);
    }

    /// Knows what `other` knows, whose rows are as many and as wide.
    pub(crate) fn copy_from(&mut self, other: &Tables<'_>) {
        let (cells, others) = (&mut self.rows.cells, &other.rows.cells);
        cells.heads.copy_from_slice(others.heads);
        cells.tags.copy_from_slice(others.tags);
        cells.positions.copy_from_slice(others.positions);
        self.rows.next = other.rows.next;
    }

    /// A new frame begins.
    pub(crate) fn start_frame(&mut self) {
        self.rows.next = 0;
    }

    /// Lowers every index.
    pub(crate) fn reduce(&mut self, by: u32) {
        super::reduce(self.rows.cells.positions, by);
        self.rows.next = self.rows.next.saturating_sub(by as usize);
    }

    /// Makes `data[start..end]` known.
    pub(crate) fn insert(&mut self, block: &Block<'_>, min_match: u8) {
        let hashed = self.params.hashed(min_match);
        match self.params.row_log() {
            4 => self.rows.insert::<16>(block, hashed),
            5 => self.rows.insert::<32>(block, hashed),
            _ => self.rows.insert::<64>(block, hashed),
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
    fn insert<const W: usize>(&mut self, block: &Block<'_>, hashed: u8) {
        let places = self.cells.tags.len();
        let mut search = Search::<_, W, true>::new(&mut self.cells, places, self.links, self.next);
        for at in block.start..(block.end.saturating_sub(7)).max(block.start) {
            let value = read64(block.data, at);
            let (row, tag) = match hashed {
                0..=4 => slot::<4>(value, search.shift),
                5 => slot::<5>(value, search.shift),
                _ => slot::<6>(value, search.shift),
            };
            search.put(row, tag, block.base + at as u32);
            if search.links > 0 {
                search.put_end(value, block.base as usize + at);
            }
        }
        self.next = (block.base as usize + block.end.saturating_sub(7)).max(self.next);
    }
}

/// Rows of `W` places while a block is searched.
///
/// Behind the rows lie chains, if `CHAINED`: of what is frequent a row has only the latest, and forgets long matches.
pub(super) struct Search<T, const W: usize, const CHAINED: bool> {
    table: T,
    /// 64 less the bits of a row's number and of a tag.
    shift: u32,
    places: usize,
    /// How many positions the chains link.
    links: usize,
    /// 64 less the bits of a chain's number.
    chain_shift: u32,
    large: bool,
    /// The first index that has not entered yet.
    pub(super) next: usize,
}

impl<T: RowTable, const W: usize, const CHAINED: bool> Search<T, W, CHAINED> {
    /// A search in `places` places and chains of `links` positions, in which all before `next` is.
    #[inline(always)]
    pub(super) fn new(table: T, places: usize, links: usize, next: usize) -> Self {
        Search {
            table,
            shift: 64 - 8 - (places / W).ilog2(),
            places,
            links,
            chain_shift: 64 - (links >> LazyDivided::CHAIN_SHARE_LOG).max(1).ilog2(),
            large: places > Lazy::LARGE,
            next,
        }
    }

    #[inline(always)]
    fn put(&mut self, row: usize, tag: u8, index: u32) {
        let head = self.table.head(row).wrapping_sub(1) & (W - 1) as u8;
        self.table.set_head(row, head);
        self.table.put(row * W + usize::from(head), tag, index);
    }

    /// Puts a position at the end of its chain, and returns the one before.
    #[inline(always)]
    fn put_end(&mut self, value: u64, index: usize) -> usize {
        let chain = (value.wrapping_mul(PRIME) >> (self.chain_shift & 63)) as usize;
        let end = self.places + self.links + chain;
        let before = self.table.position(end);
        self.table.put_position(end, index as u32);
        self.table.put_position(self.link(index), before);
        before as usize
    }

    /// Where what lies before an index in its chain is kept.
    #[inline(always)]
    fn link(&self, index: usize) -> usize {
        self.places + (index & self.links.wrapping_sub(1))
    }

    /// Lets all positions before `at` enter.
    #[inline(always)]
    fn catch_up<M: Memory, const MIN: u32>(&mut self, data: M, at: usize) {
        let mut next = self.next;
        if at - next > Lazy::BEHIND_MAX {
            for i in next..next + Lazy::GAP_FRONT {
                self.enter::<M, MIN>(data, i);
            }
            next = at - Lazy::GAP_BACK;
        }
        if self.large {
            for i in next..at {
                self.prefetch::<M, MIN>(data, i + Lazy::AHEAD);
                self.enter::<M, MIN>(data, i);
            }
        } else {
            for i in next..at {
                self.enter::<M, MIN>(data, i);
            }
        }
        self.next = at;
    }

    #[inline(always)]
    fn enter<M: Memory, const MIN: u32>(&mut self, data: M, at: usize) {
        let value = data.read64(at);
        let (row, tag) = slot::<MIN>(value, self.shift);
        self.put(row, tag, at as u32);
        if CHAINED {
            self.put_end(value, at);
        }
    }

    /// Asks for the row of a position that will enter soon.
    #[inline(always)]
    fn prefetch<M: Memory, const MIN: u32>(&self, data: M, at: usize) {
        if at + 8 <= data.end() {
            let (row, _) = slot::<MIN>(data.read64(at), self.shift);
            self.table.prefetch(row * W, W);
        }
    }

    /// The longest match at `at` that is longer than `least`, and what it refers to. `at` itself enters.
    #[inline(always)]
    pub(super) fn search<M: Memory, const MIN: u32>(
        &mut self,
        data: M,
        at: usize,
        low: usize,
        attempts: u32,
        least: usize,
    ) -> (usize, usize) {
        self.catch_up::<M, MIN>(data, at);
        let end = data.end();
        if self.large {
            self.prefetch::<M, MIN>(data, at + Lazy::AHEAD);
        }
        let value = data.read64(at);
        let (row, tag) = slot::<MIN>(value, self.shift);
        let head = usize::from(self.table.head(row)) & (W - 1);
        let mut mask = self.mask(row * W, tag, head);
        let (mut best, mut best_at) = (least, 0);
        let mut left = attempts;
        while mask != 0 {
            let place = (head + mask.trailing_zeros() as usize) & (W - 1);
            mask &= mask - 1;
            let candidate = self.table.position(row * W + place) as usize;
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
        self.put(row, tag, at as u32);
        self.next = at + 1;
        if CHAINED {
            let mut source = self.put_end(value, at);
            // Of what fills half of a row, or more, the row will have forgotten the rest.
            if attempts - left < W as u32 / 2 {
                return (best, best_at);
            }
            for _ in 0..LazyDivided::CHAIN_ATTEMPTS {
                if source < low || at + best + 1 > end {
                    break;
                }
                if data.read32(source + best - 3) == data.read32(at + best - 3) {
                    let length = match_length(data, at, source);
                    if length > best {
                        (best, best_at) = (length, source);
                    }
                }
                let before = self.table.position(self.link(source)) as usize;
                if before >= source {
                    break;
                }
                source = before;
            }
        }
        (best, best_at)
    }

    /// Which of the tags from `start` on are equal to `tag`, the newest in the lowest bit.
    #[inline(always)]
    fn mask(&self, start: usize, tag: u8, head: usize) -> u64 {
        let mut mask = 0;
        for part in 0..W / 16 {
            let bits = self.table.equal_tags(start + 16 * part, tag);
            mask |= u64::from(bits) << (16 * part);
        }
        let head = head as u32;
        match W {
            16 => u64::from((mask as u16).rotate_right(head)),
            32 => u64::from((mask as u32).rotate_right(head)),
            _ => mask.rotate_right(head),
        }
    }
}

/// A bit for each byte that equals `byte`.
pub(crate) fn equal_bytes(bytes: &[u8; 16], byte: u8) -> u16 {
    let mut mask = 0;
    for (i, b) in bytes.iter().enumerate() {
        mask |= u16::from(*b == byte) << i;
    }
    mask
}
