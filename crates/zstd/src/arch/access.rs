//! What the search loops read and write, without checks.
//!
//! Tables, rows and chains find their cells themselves, from a hash or by a mask, so that no value leads out of them. What a
//! position of the data leads to depends on the loop: those methods are `unsafe`, and each call in `search` says why it is
//! right. The safe twin is `encode/finder/access.rs`.

use super::compare::{equal_bytes, first_difference, prefetch};
use crate::encode::finder::index::{ChainCells, RowCells};
use crate::encode::params::LazyDivided;
use crate::encode::store::{OVERRUN, SequenceStore};
use crate::sequences::Sequence;
use core::marker::PhantomData;

/// Bytes, each with an index.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a> {
    /// Where the byte of index 0 would lie. The bytes from `first` to `end` are those of a slice.
    origin: *const u8,
    first: usize,
    end: usize,
    data: PhantomData<&'a [u8]>,
}

impl<'a> Memory<'a> {
    /// Whether the search in `data`, of which the first byte has index `first`, may begin at the index `start`: it is one of
    /// the data, and the sums of the loops do not overflow.
    pub(crate) fn fits(data: &[u8], first: u32, start: usize) -> bool {
        let first = first as usize;
        let room = usize::MAX >> 2;
        data.len() <= room
            && first <= usize::MAX - room - data.len()
            && (first..=first + data.len()).contains(&start)
    }

    /// `data`, of which the first byte has index `first`.
    #[inline(always)]
    pub(crate) fn new(data: &'a [u8], first: u32) -> Self {
        let first = first as usize;
        Memory {
            origin: data.as_ptr().wrapping_sub(first),
            first,
            end: first.wrapping_add(data.len()),
            data: PhantomData,
        }
    }

    /// The index of the first byte.
    #[inline(always)]
    pub(crate) fn first(self) -> usize {
        self.first
    }

    /// The index behind the last byte.
    #[inline(always)]
    pub(crate) fn end(self) -> usize {
        self.end
    }

    /// The same bytes, each with an index that is greater by `by`.
    #[inline(always)]
    pub(crate) fn moved(self, by: usize) -> Self {
        Memory {
            origin: self.origin.wrapping_sub(by),
            first: self.first.wrapping_add(by),
            end: self.end.wrapping_add(by),
            data: self.data,
        }
    }

    /// # Safety
    ///
    /// `first <= at` and `at + N <= end`.
    #[inline(always)]
    unsafe fn read<const N: usize>(self, at: usize) -> [u8; N] {
        debug_assert!(self.first <= at && at + N <= self.end);
        let place = self.origin.wrapping_add(at).cast::<[u8; N]>();
        // SAFETY: by the caller's promise the bytes from `at` to `at + N` lie in the slice; byte arrays need no alignment.
        unsafe { place.read() }
    }

    /// The byte at `at`.
    ///
    /// # Safety
    ///
    /// `first <= at < end`.
    #[inline(always)]
    pub(crate) unsafe fn byte(self, at: usize) -> u8 {
        // SAFETY: as the caller promises.
        let [byte] = unsafe { self.read(at) };
        byte
    }

    /// Four bytes at `at` as a number.
    ///
    /// # Safety
    ///
    /// `first <= at` and `at + 4 <= end`.
    #[inline(always)]
    pub(crate) unsafe fn read32(self, at: usize) -> u32 {
        // SAFETY: as the caller promises.
        u32::from_le_bytes(unsafe { self.read(at) })
    }

    /// Eight bytes at `at` as a number.
    ///
    /// # Safety
    ///
    /// `first <= at` and `at + 8 <= end`.
    #[inline(always)]
    pub(crate) unsafe fn read64(self, at: usize) -> u64 {
        // SAFETY: as the caller promises.
        u64::from_le_bytes(unsafe { self.read(at) })
    }

    /// The bits in which the eight bytes at `a` and at `b` differ.
    ///
    /// # Safety
    ///
    /// `first <= a`, `first <= b`, and both + 8 are at most `end`.
    #[inline(always)]
    unsafe fn differ64(self, a: usize, b: usize) -> u64 {
        // SAFETY: as the caller promises.
        let a = unsafe { self.read64(a) };
        // SAFETY: as the caller promises.
        a ^ unsafe { self.read64(b) }
    }

    /// Whether the bytes at `a` and at `b` are equal.
    ///
    /// # Safety
    ///
    /// `first <= a < end` and `first <= b < end`.
    #[inline(always)]
    unsafe fn is_same(self, a: usize, b: usize) -> bool {
        // SAFETY: as the caller promises.
        let a = unsafe { self.byte(a) };
        // SAFETY: as the caller promises.
        a == unsafe { self.byte(b) }
    }

    /// How many of the sixteen bytes at `a` and at `b` are equal before the first that differ.
    ///
    /// # Safety
    ///
    /// `first <= a`, `first <= b`, and both + 16 are at most `end`.
    #[inline(always)]
    unsafe fn same16(self, a: usize, b: usize) -> usize {
        // SAFETY: as the caller promises.
        let a = unsafe { self.read(a) };
        // SAFETY: as the caller promises.
        let b = unsafe { self.read(b) };
        first_difference(a, b)
    }

    /// The same for one who waits for it: more instructions, but by words, which come sooner than vectors.
    ///
    /// # Safety
    ///
    /// As for `same16`.
    #[inline(always)]
    unsafe fn same16_soon(self, a: usize, b: usize) -> usize {
        // SAFETY: as the caller promises.
        let low = unsafe { self.differ64(a, b) };
        // SAFETY: as the caller promises.
        let high = unsafe { self.differ64(a + 8, b + 8) };
        let high = 64 + high.trailing_zeros();
        let same = if low == 0 { high } else { low.trailing_zeros() };
        same as usize / 8
    }

    /// How many bytes at `at` and at `before` are equal, up to the end.
    ///
    /// Sixteen at a time: it is rare enough that all are equal to be predicted.
    ///
    /// # Safety
    ///
    /// `first <= before <= at <= end`.
    #[inline(always)]
    pub(crate) unsafe fn match_length(self, at: usize, before: usize) -> usize {
        let (mut a, mut b) = (at, before);
        if a + 16 <= self.end {
            // SAFETY: `a + 16 <= end`, and `first <= b <= a`.
            let same = unsafe { self.same16(a, b) };
            if same < 16 {
                return same;
            }
            a += 16;
            b += 16;
        }
        while a + 16 <= self.end {
            // SAFETY: as above: both have grown by as much.
            let same = unsafe { self.same16(a, b) };
            if same < 16 {
                return a + same - at;
            }
            a += 16;
            b += 16;
        }
        // SAFETY: `first <= b <= a < end`.
        while a < self.end && unsafe { self.is_same(a, b) } {
            a += 1;
            b += 1;
        }
        a - at
    }

    /// The same for one who waits for it.
    ///
    /// # Safety
    ///
    /// As for [`match_length`](Self::match_length).
    #[inline(always)]
    pub(crate) unsafe fn match_length_soon(self, at: usize, before: usize) -> usize {
        if at + 16 > self.end {
            // SAFETY: as the caller promises.
            return unsafe { self.match_length(at, before) };
        }
        // SAFETY: `at + 16 <= end`, and `first <= before <= at`.
        let same = unsafe { self.same16_soon(at, before) };
        if same < 16 {
            return same;
        }
        // SAFETY: as the caller promises, and `at + 16 <= end`.
        16 + unsafe { self.match_length(at + 16, before + 16) }
    }

    /// How many bytes before `at` and before `candidate` are equal, down to `anchor` and to the first.
    ///
    /// # Safety
    ///
    /// `first <= candidate <= at <= end`, and `anchor <= at`.
    #[inline(always)]
    pub(crate) unsafe fn count_back(self, at: usize, candidate: usize, anchor: usize) -> usize {
        let mut back = 0;
        if candidate >= self.first + 8 {
            // All that differ within eight bytes without a branch.
            // SAFETY: `first + 8 <= candidate <= at <= end`.
            let differ = unsafe { self.differ64(at - 8, candidate - 8) };
            back = (differ.leading_zeros() as usize / 8).min(at - anchor);
            if back < 8 {
                return back;
            }
        }
        let most = (at - anchor).min(candidate - self.first);
        while back < most {
            // SAFETY: `back < candidate - first`, so that this and what is as far before `at` do not lie before the first.
            let equal = unsafe { self.is_same(at - 1 - back, candidate - 1 - back) };
            if !equal {
                break;
            }
            back += 1;
        }
        back
    }
}

/// Four bytes that a longer match has in common, of which the last is the first behind the best match so far.
#[derive(Clone, Copy)]
pub(crate) struct Tail<'a> {
    place: *const u8,
    data: PhantomData<&'a [u8]>,
}

impl<'a> Tail<'a> {
    /// The four bytes that end at `end`.
    #[inline(always)]
    pub(crate) fn new(data: Memory<'a>, end: usize) -> Self {
        Tail {
            place: opaque_place(data.origin.wrapping_add(end).wrapping_sub(4)),
            data: PhantomData,
        }
    }

    /// Whether the four bytes that lie `distance` before these are equal. The distance is given as its negative, which
    /// wraps.
    ///
    /// # Safety
    ///
    /// These bytes lie in the data, and so do those.
    #[inline(always)]
    pub(crate) unsafe fn is_same(self, negative: usize) -> bool {
        let before = self.place.wrapping_add(negative).cast::<[u8; 4]>();
        // SAFETY: as the caller promises; byte arrays need no alignment.
        let before = unsafe { before.read() };
        // SAFETY: as above.
        before == unsafe { self.place.cast::<[u8; 4]>().read() }
    }
}

/// Defines a function that returns what it is given.
macro_rules! opaque {
    ($(#[$doc:meta])* $visibility:vis $name:ident: $type:ty) => {
        $(#[$doc])*
        #[inline(always)]
        #[allow(clippy::pointers_in_nomem_asm_block, reason = "no address is followed")]
        $visibility fn $name(value: $type) -> $type {
            // Where the compiler takes assembly at all.
            #[cfg(all(
                not(miri),
                any(
                    target_arch = "x86_64",
                    target_arch = "x86",
                    target_arch = "aarch64",
                    target_arch = "arm",
                    target_arch = "riscv64",
                    target_arch = "riscv32",
                    target_arch = "loongarch64",
                    target_arch = "s390x"
                )
            ))]
            let value = {
                let same;
                // SAFETY: no instruction at all.
                unsafe {
                    core::arch::asm!("/* {0} */", inout(reg) value => same, options(pure, nomem, nostack, preserves_flags));
                }
                same
            };
            value
        }
    };
}

opaque!(
    /// `value`, of which the compiler does not see where it comes from: else it keeps every sum with a loop's counter in a
    /// register of its own, of which there are too few.
    pub(crate) opaque: usize
);

opaque!(
    /// The same for an address.
    opaque_place: *const u8
);

/// The same for a word, where registers are as long.
#[inline(always)]
pub(crate) fn opaque_word(value: u64) -> u64 {
    if cfg!(target_pointer_width = "64") {
        opaque(value as usize) as u64
    } else {
        value
    }
}

/// A table of 2^n cells by hash.
pub(crate) struct Table<'a> {
    /// The first of `len` cells.
    start: *mut [u8; 4],
    len: usize,
    cells: PhantomData<&'a mut [[u8; 4]]>,
}

impl<'a> Table<'a> {
    /// A table of 2^(64 - `shift`) cells.
    #[inline(always)]
    pub(crate) fn new(cells: &'a mut [[u8; 4]], shift: u32) -> Self {
        assert!((1..64).contains(&shift) && cells.len() as u64 == 1 << (64 - shift));
        Table {
            start: cells.as_mut_ptr(),
            len: cells.len(),
            cells: PhantomData,
        }
    }

    /// What a cell holds.
    ///
    /// # Safety
    ///
    /// `place` is below the number of cells.
    #[inline(always)]
    pub(crate) unsafe fn at(&self, place: usize) -> u32 {
        debug_assert!(place < self.len);
        // SAFETY: the caller promises that `place` is below the length of the slice behind `start`.
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
pub(crate) struct Rows<'a, const W: usize> {
    /// The first of 2^(64 - 8 - `shift`) heads, and of `W` times as many tags and positions.
    heads: *mut u8,
    tags: *mut u8,
    positions: *mut [u8; 4],
    shift: u32,
    places: usize,
    cells: PhantomData<RowCells<'a>>,
}

impl<'a, const W: usize> Rows<'a, W> {
    /// The rows in `cells`.
    #[inline(always)]
    pub(crate) fn new(cells: RowCells<'a>) -> Self {
        const { assert!(W.is_power_of_two() && W >= 16 && W <= 128) };
        let rows = cells.heads.len();
        assert!(rows.is_power_of_two() && cells.tags.len() == rows * W);
        assert!(cells.positions.len() == rows * W);
        Rows {
            heads: cells.heads.as_mut_ptr(),
            tags: cells.tags.as_mut_ptr(),
            positions: cells.positions.as_mut_ptr(),
            shift: 64 - 8 - rows.ilog2(),
            places: rows * W,
            cells: PhantomData,
        }
    }

    /// How many positions have room.
    #[inline(always)]
    pub(crate) fn places(&self) -> usize {
        self.places
    }

    /// The row of a hash, and its tag. The row is below the number of rows, for a hash shifted by `shift` and 8 more has as many
    /// bits as that has.
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
        // SAFETY: the caller promises that `row` is below the length of the slice behind `heads`.
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
        // SAFETY: as above, the slice is borrowed for as long as this lives, and byte arrays need no alignment.
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

/// Hash chains: for each of the last positions the one before it with the same hash, and the end of each chain.
pub(crate) struct Chains<'a> {
    /// The first of `mask` + 1 links, and of 2^(64 - `shift`) ends.
    links: *mut [u8; 4],
    ends: *mut [u8; 4],
    mask: usize,
    shift: u32,
    cells: PhantomData<&'a mut [[u8; 4]]>,
}

impl<'a> Chains<'a> {
    /// The chains of as many positions as there are `links`, a power of two, if there are any.
    #[inline(always)]
    pub(crate) fn new(cells: ChainCells<'a>) -> Option<Self> {
        let ChainCells { links, ends } = cells;
        if links.is_empty() {
            return None;
        }
        assert!(links.len().is_power_of_two() && ends.len() > 1);
        assert!(ends.len() == links.len() >> LazyDivided::CHAIN_SHARE_LOG);
        Some(Chains {
            links: links.as_mut_ptr(),
            mask: links.len() - 1,
            shift: 64 - ends.len().ilog2(),
            ends: ends.as_mut_ptr(),
            cells: PhantomData,
        })
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

    /// The position before this one in its chain.
    #[inline(always)]
    pub(crate) fn before(&self, position: usize) -> u32 {
        // SAFETY: as in `push`.
        let link = unsafe { self.links.add(position & self.mask) };
        // SAFETY: as in `push`.
        u32::from_ne_bytes(unsafe { link.read() })
    }
}

/// A store for the sequences of the last bytes of the data.
pub(crate) struct Store<'s, 'a> {
    store: &'s mut SequenceStore<'a>,
    start: *mut u8,
    /// Where the literals end, and where the sequences begin.
    literals: *mut u8,
    sequences: *mut u8,
    /// How much room there is beyond what the rest of the block could need, were all of it literals, and one sequence more.
    room: isize,
}

impl<'s, 'a> Store<'s, 'a> {
    /// A store for the sequences of the `rest` last bytes of the data.
    #[inline(always)]
    pub(crate) fn new(store: &'s mut SequenceStore<'a>, rest: usize) -> Self {
        let (buffer, literals, sequences, room) = store.raw_parts(rest);
        assert!(literals <= sequences && sequences <= buffer.len() && room >= 0);
        assert!(room as usize + rest + 8 + OVERRUN == sequences - literals);
        let start = buffer.as_mut_ptr();
        Store {
            store,
            start,
            literals: start.wrapping_add(literals),
            sequences: start.wrapping_add(sequences),
            room,
        }
    }

    /// Informs the sequence store of what it now holds.
    #[inline(always)]
    pub(crate) fn finish(self) {
        let start = self.start.addr();
        self.store
            .set_ends(self.literals.addr() - start, self.sequences.addr() - start);
    }

    /// Appends a sequence: `literals` bytes from `anchor` on, then a match of `matched` bytes.
    ///
    /// The block ends where `data` ends. Returns whether the block may go on: when this is false the store is full (the
    /// sequence was taken), and the search must return, with the block ending behind this match.
    ///
    /// # Safety
    ///
    /// The literals and the match lie in the last bytes of `data` that the store is for, behind those of the call before,
    /// which returned true.
    #[inline(always)]
    #[must_use]
    pub(crate) unsafe fn append(
        &mut self,
        data: Memory<'_>,
        anchor: usize,
        literals: usize,
        offset_value: u32,
        matched: usize,
    ) -> bool {
        debug_assert!(self.room >= 0);
        debug_assert!(anchor + literals + matched <= data.end);
        let to = self.literals;
        if anchor + literals + OVERRUN > data.end {
            // SAFETY: the literals are a part of the rest of the block, for which there is room; they lie in the data.
            unsafe { copy_bytes(to, data.origin.wrapping_add(anchor), literals) };
        } else {
            // Sixteen bytes or 32, whatever the length: most runs are shorter. What is too much is overwritten.
            // SAFETY: `anchor + literals + OVERRUN <= end`, and `OVERRUN` is more than 16.
            let chunk = unsafe { data.read::<16>(anchor) };
            // SAFETY: `room` is not negative: before the sequences there is room for the rest of the block, of which the
            // literals are a part, and `OVERRUN` bytes more, of which this writes the first 16.
            unsafe { to.cast::<[u8; 16]>().write(chunk) };
            let mut done = 16;
            while done < literals {
                // SAFETY: `done < literals`, and as above.
                let chunk = unsafe { data.read::<16>(anchor + done) };
                let place = to.wrapping_add(done).cast::<[u8; 16]>();
                // SAFETY: as above; this writes at most 15 bytes behind the literals.
                unsafe { place.write(chunk) };
                // Were this seen through, the loop would become a call of `memcpy`, around which nothing stays in
                // registers.
                done = opaque(done + 16);
            }
        }
        self.literals = to.wrapping_add(literals);
        self.sequences = self.sequences.wrapping_sub(8);
        let sequence = Sequence::pack(literals, offset_value, matched);
        let place = self.sequences.cast::<[u8; 8]>();
        // SAFETY: there was room for a sequence besides the rest of the block, and these literals are of that rest.
        unsafe { place.write(sequence.bits().to_ne_bytes()) };
        // The literals are no longer part of the rest, but they take up as much: only the match counts.
        self.room += matched as isize - 8;
        self.room >= 0
    }
}

/// Copies `length` bytes: a function of its own to be out of the way.
///
/// # Safety
///
/// `from` must be readable for that many bytes, `to` writable, and neither may reach into the other.
#[cold]
#[inline(never)]
unsafe fn copy_bytes(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: as the caller promises.
    unsafe { to.copy_from_nonoverlapping(from, length) };
}
