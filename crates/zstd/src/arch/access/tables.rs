//! Tables, rows and chains of positions.

use crate::arch::compare::{equal_bytes, prefetch};
use crate::checked::{Checked, ensure};
use crate::encode::finder::index::{ChainCells, RowCells};
use core::marker::PhantomData;

/// A table of 2^n cells by hash.
pub(crate) struct PositionTable<'a> {
    /// The first of `len` cells.
    start: *mut [u8; 4],
    len: usize,
    cells: PhantomData<&'a mut [[u8; 4]]>,
}

impl<'a> PositionTable<'a> {
    /// A table of 2^(64 - `shift`) cells.
    #[inline(always)]
    pub(crate) fn new(cells: &'a mut [[u8; 4]], shift: u32) -> Checked<Self> {
        ensure!((1..64).contains(&shift) && cells.len() as u64 == 1 << (64 - shift));
        Ok(PositionTable {
            start: cells.as_mut_ptr(),
            len: cells.len(),
            cells: PhantomData,
        })
    }

    /// Two tables, one of 2^(64 - `shift`) cells behind the other.
    #[inline(always)]
    pub(crate) fn pair(cells: &'a mut [[u8; 4]], [long, short]: [u32; 2]) -> Checked<Self> {
        ensure!((1..64).contains(&long) && (1..64).contains(&short));
        ensure!(cells.len() as u64 == (1 << (64 - long)) + (1 << (64 - short)));
        Ok(PositionTable {
            start: cells.as_mut_ptr(),
            len: cells.len(),
            cells: PhantomData,
        })
    }

    /// The value of a cell.
    ///
    /// # Safety
    ///
    /// `place` is below the number of cells.
    #[inline(always)]
    pub(crate) unsafe fn at(&self, place: usize) -> u32 {
        debug_assert!(place < self.len);
        // SAFETY: the caller promises that `place` is below the length of the slice after `start`.
        let cell = unsafe { self.start.add(place) };
        // SAFETY: as above, and the slice is borrowed for as long as this lives.
        u32::from_ne_bytes(unsafe { cell.read() })
    }

    /// Sets a cell.
    ///
    /// # Safety
    ///
    /// `place` is below the number of cells.
    #[inline(always)]
    pub(crate) unsafe fn put(&mut self, place: usize, value: u32) {
        debug_assert!(place < self.len);
        // SAFETY: as in `at`.
        let cell = unsafe { self.start.add(place) };
        // SAFETY: as in `at`, and the borrow is unique.
        unsafe { cell.write(value.to_ne_bytes()) };
    }
}

/// Rows of `W` positions by hash.
pub(crate) struct TaggedRows<'a, const W: usize> {
    /// The first of 2^(64 - 8 - `shift`) heads, and of `W` times as many tags and positions.
    heads: *mut u8,
    tags: *mut u8,
    positions: *mut [u8; 4],
    shift: u32,
    places: usize,
    cells: PhantomData<RowCells<'a>>,
}

impl<'a, const W: usize> TaggedRows<'a, W> {
    /// The rows in `cells`.
    #[inline(always)]
    pub(crate) fn new(cells: RowCells<'a>) -> Checked<Self> {
        const { assert!(W.is_power_of_two() && W >= 16 && W <= 128) };
        let rows = cells.heads.len();
        ensure!(rows.is_power_of_two() && cells.tags.len() == rows * W);
        ensure!(cells.positions.len() == rows * W);
        Ok(TaggedRows {
            heads: cells.heads.as_mut_ptr(),
            tags: cells.tags.as_mut_ptr(),
            positions: cells.positions.as_mut_ptr(),
            shift: 64 - 8 - rows.ilog2(),
            places: rows * W,
            cells: PhantomData,
        })
    }

    /// How many positions have room.
    #[inline(always)]
    pub(crate) fn places(&self) -> usize {
        self.places
    }

    /// The row of a hash, and its tag. The row is below the number of rows, for a hash shifted by
    /// `shift` and 8 more has as many bits as that has.
    #[inline(always)]
    pub(crate) fn slot(&self, hash: u64) -> (usize, u8) {
        let hash = hash >> (self.shift & 63);
        ((hash >> 8) as usize, hash as u8)
    }

    /// Where the newest position of a row lies.
    ///
    /// # Safety
    ///
    /// `row` is below the number of rows.
    #[inline(always)]
    pub(crate) unsafe fn head(&self, row: usize) -> u8 {
        debug_assert!(row * W < self.places);
        // SAFETY: the caller promises that `row` is below the length of the slice after `heads`.
        let head = unsafe { self.heads.add(row) };
        // SAFETY: as above, and the slice is borrowed for as long as this lives.
        unsafe { head.read() }
    }

    /// Puts a position in the place of the oldest of its row.
    ///
    /// # Safety
    ///
    /// `row` is below the number of rows.
    #[inline(always)]
    pub(crate) unsafe fn push(&mut self, row: usize, tag: u8, position: u32) {
        // SAFETY: as the caller promises.
        let head = unsafe { self.head(row) }.wrapping_sub(1) & (W - 1) as u8;
        // SAFETY: as in `head`.
        let to = unsafe { self.heads.add(row) };
        // SAFETY: as in `head`, and the borrow is unique.
        unsafe { to.write(head) };
        // Below the number of places: the row has `W`, and `head` is less.
        let place = row * W + usize::from(head);
        // SAFETY: there are as many tags as places.
        let to = unsafe { self.tags.add(place) };
        // SAFETY: as above, and the borrow is unique.
        unsafe { to.write(tag) };
        // SAFETY: there are as many positions as places.
        let to = unsafe { self.positions.add(place) };
        // SAFETY: as above, and the borrow is unique.
        unsafe { to.write(position.to_ne_bytes()) };
    }

    /// Puts a position in the place of the oldest of the row of a hash.
    #[inline(always)]
    pub(crate) fn insert(&mut self, hash: u64, position: u32) {
        let (row, tag) = self.slot(hash);
        // SAFETY: `slot` gives a row below their number.
        unsafe { self.push(row, tag, position) };
    }

    /// A bit for each of the sixteen positions starting at 16 * `part` whose tag is `tag`.
    ///
    /// # Safety
    ///
    /// `row` is below the number of rows, and `part` below `W / 16`.
    #[inline(always)]
    pub(crate) unsafe fn equal_tags(&self, row: usize, tag: u8, part: usize) -> u16 {
        debug_assert!(row * W < self.places && part < W / 16);
        // SAFETY: the row has `W` tags, of which these are sixteen.
        let tags = unsafe { self.tags.add(row * W + 16 * part) };
        // SAFETY: as above, the slice is borrowed for as long as this lives, and byte arrays need
        // no alignment.
        let tags = unsafe { tags.cast::<[u8; 16]>().read() };
        equal_bytes(&tags, tag)
    }

    /// The position in place `i` of a row.
    ///
    /// # Safety
    ///
    /// `row` is below the number of rows, and `i` below `W`.
    #[inline(always)]
    pub(crate) unsafe fn position(&self, row: usize, i: usize) -> u32 {
        debug_assert!(row * W < self.places && i < W);
        // SAFETY: the row has `W` positions.
        let place = unsafe { self.positions.add(row * W + i) };
        // SAFETY: as above, and the slice is borrowed for as long as this lives.
        u32::from_ne_bytes(unsafe { place.read() })
    }

    /// Prefetches a row.
    #[inline(always)]
    pub(crate) fn prefetch(&self, row: usize) {
        let place = row.wrapping_mul(W);
        prefetch(self.tags.wrapping_add(place));
        // A cache line has room for sixteen.
        for line in 0..W / 16 {
            prefetch(self.positions.wrapping_add(place + 16 * line).cast());
        }
    }
}

/// Hash chains: for each of the last positions the one before it with the same hash, and the end of
/// each chain.
pub(crate) struct ChainLinks<'a> {
    /// The first of `mask` + 1 links, and of 2^(64 - `shift`) ends.
    links: *mut [u8; 4],
    ends: *mut [u8; 4],
    mask: usize,
    shift: u32,
    cells: PhantomData<&'a mut [[u8; 4]]>,
}

impl<'a> ChainLinks<'a> {
    /// The chains of as many positions as there are `links`, a power of two, if there are any.
    #[inline(always)]
    pub(crate) fn new(cells: ChainCells<'a>) -> Checked<Option<Self>> {
        let ChainCells { links, ends } = cells;
        if links.is_empty() {
            return Ok(None);
        }
        ensure!(links.len().is_power_of_two() && ends.len() > 1);
        ensure!(ends.len().is_power_of_two());
        Ok(Some(ChainLinks {
            links: links.as_mut_ptr(),
            mask: links.len() - 1,
            shift: 64 - ends.len().ilog2(),
            ends: ends.as_mut_ptr(),
            cells: PhantomData,
        }))
    }

    /// Puts a position at the end of the chain of a hash, and returns the one before it.
    #[inline(always)]
    pub(crate) fn push(&mut self, hash: u64, position: u32) -> u32 {
        let end = (hash >> (self.shift & 63)) as usize;
        // SAFETY: there is a power of two of ends, as many as hashes shifted by `shift`.
        let end = unsafe { self.ends.add(end) };
        // SAFETY: as above, and the slice is borrowed for as long as this lives.
        let before = unsafe { end.read() };
        // SAFETY: as above, and the borrow is unique.
        unsafe { end.write(position.to_ne_bytes()) };
        // SAFETY: there is a power of two of links, and `mask` is one less.
        let link = unsafe { self.links.add(position as usize & self.mask) };
        // SAFETY: as above, and the borrow is unique.
        unsafe { link.write(before) };
        u32::from_ne_bytes(before)
    }

    /// How many of the last positions are linked.
    #[inline(always)]
    pub(crate) fn places(&self) -> usize {
        self.mask + 1
    }

    /// The position before this one in its chain.
    #[inline(always)]
    pub(crate) fn before(&self, position: usize) -> u32 {
        // SAFETY: as in `push`.
        let link = unsafe { self.links.add(position & self.mask) };
        // SAFETY: as in `push`.
        u32::from_ne_bytes(unsafe { link.read() })
    }
}
