//! Match finding without bounds checks.
//!
//! The finders in `encode/finder` are written once, over [`Memory`] and [`Table`]. The safe twin gives them slices. The
//! functions here give them pointers instead, and let the compiler use BMI instructions where the machine has them.
//!
//! Measured (128 KiB frames, level 1, mean of six corpora): see `docs/decisions/`.

#![allow(unsafe_code, reason = "this is where it may be")]

use crate::encode::finder::memory::{Memory, Table};
use crate::encode::finder::{double_fast, fast, lazy, row};
use crate::encode::params::LazyDivided;
use crate::encode::store::{OVERRUN, SequenceStore, Store};
use crate::sequences::Sequence;
use core::marker::PhantomData;

/// Bytes that are read without a check.
#[derive(Clone, Copy)]
pub(crate) struct Trusted<'a> {
    /// Where the byte of index 0 would lie.
    origin: *const u8,
    first: usize,
    end: usize,
    data: PhantomData<&'a [u8]>,
}

impl<'a> Trusted<'a> {
    /// `data`, of which the first byte has index `first`, and of which nobody checks how it is read.
    ///
    /// # Safety
    ///
    /// Every read must lie within `data`: for `byte` at + 1, for `read32` at + 4, for `read64` at + 8, for `chunk16`
    /// at + 16 at most the end.
    #[inline(always)]
    pub(crate) unsafe fn new(data: &'a [u8], first: u32) -> Self {
        let first = first as usize;
        let origin = data.as_ptr().wrapping_sub(first);
        Trusted {
            origin,
            first,
            end: first + data.len(),
            data: PhantomData,
        }
    }

    #[inline(always)]
    fn read<const N: usize>(self, at: usize) -> [u8; N] {
        debug_assert!(self.first <= at && at + N <= self.end);
        let place = self.origin.wrapping_add(at).cast::<[u8; N]>();
        // SAFETY: who made this promised that the bytes from `at` to `at + N` lie in the slice; byte arrays need no
        // alignment.
        unsafe { place.read() }
    }
}

impl Memory for Trusted<'_> {
    #[inline(always)]
    fn first(self) -> usize {
        self.first
    }

    #[inline(always)]
    fn end(self) -> usize {
        self.end
    }

    #[inline(always)]
    fn moved(self, by: usize) -> Self {
        Trusted {
            origin: self.origin.wrapping_sub(by),
            first: self.first + by,
            end: self.end + by,
            data: self.data,
        }
    }

    #[inline(always)]
    fn place(self, at: usize) -> *const u8 {
        self.origin.wrapping_add(at)
    }

    #[inline(always)]
    fn byte(self, at: usize) -> u8 {
        self.read::<1>(at)[0]
    }

    #[inline(always)]
    fn read32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.read(at))
    }

    #[inline(always)]
    fn read64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.read(at))
    }

    #[inline(always)]
    fn chunk16(self, at: usize) -> [u8; 16] {
        self.read(at)
    }

    #[inline(always)]
    fn opaque(value: usize) -> usize {
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

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn same16(self, a: usize, b: usize) -> usize {
        let same = equal_mask(&self.read(a), &self.read(b));
        (!u32::from(same)).trailing_zeros() as usize
    }
}

/// A table of `u32` that is read and written without a check.
pub(crate) struct TrustedTable<'a> {
    start: *mut [u8; 4],
    len: usize,
    cells: PhantomData<&'a mut [[u8; 4]]>,
}

impl<'a> TrustedTable<'a> {
    /// `cells`, of which nobody checks how they are used.
    ///
    /// # Safety
    ///
    /// Every place must be below their number.
    #[inline(always)]
    pub(crate) unsafe fn new(cells: &'a mut [[u8; 4]]) -> Self {
        TrustedTable {
            start: cells.as_mut_ptr(),
            len: cells.len(),
            cells: PhantomData,
        }
    }
}

impl Table for TrustedTable<'_> {
    #[inline(always)]
    fn at(&self, i: usize) -> u32 {
        debug_assert!(i < self.len);
        // SAFETY: who made this promised that `i` is below the length of the slice behind `start`.
        let place = unsafe { self.start.add(i) };
        // SAFETY: as above, and the slice is borrowed for as long as this lives.
        u32::from_ne_bytes(unsafe { place.read() })
    }

    #[inline(always)]
    fn put(&mut self, i: usize, value: u32) {
        debug_assert!(i < self.len);
        // SAFETY: as in `at`.
        let place = unsafe { self.start.add(i) };
        // SAFETY: as in `at`, and the borrow is unique.
        unsafe { place.write(value.to_ne_bytes()) };
    }
}

/// Rows that are read and written without a check.
struct TrustedRows<'a> {
    heads: *mut u8,
    tags: *mut u8,
    positions: *mut [u8; 4],
    /// How many heads, tags and positions there are.
    lens: (usize, usize, usize),
    cells: PhantomData<&'a mut row::RowCells<'a>>,
}

impl<'a> TrustedRows<'a> {
    /// `cells`, of which nobody checks how they are used.
    ///
    /// # Safety
    ///
    /// Every row must be below the number of heads, and every place below the number of tags and of positions; for
    /// `equal_tags`, the fifteen behind it, too. For `position` and `put_position` alone the number of positions counts.
    #[inline(always)]
    unsafe fn new(cells: &'a mut row::RowCells<'_>) -> Self {
        TrustedRows {
            heads: cells.heads.as_mut_ptr(),
            tags: cells.tags.as_mut_ptr(),
            positions: cells.positions.as_mut_ptr(),
            lens: (cells.heads.len(), cells.tags.len(), cells.positions.len()),
            cells: PhantomData,
        }
    }
}

impl row::RowTable for TrustedRows<'_> {
    #[inline(always)]
    fn head(&self, row: usize) -> u8 {
        debug_assert!(row < self.lens.0);
        // SAFETY: who made this promised that `row` is below the length of the slice behind `heads`.
        let place = unsafe { self.heads.add(row) };
        // SAFETY: as above, and the slice is borrowed for as long as this lives.
        unsafe { place.read() }
    }

    #[inline(always)]
    fn set_head(&mut self, row: usize, head: u8) {
        debug_assert!(row < self.lens.0);
        // SAFETY: as in `head`.
        let place = unsafe { self.heads.add(row) };
        // SAFETY: as in `head`, and the borrow is unique.
        unsafe { place.write(head) };
    }

    #[inline(always)]
    fn equal_tags(&self, place: usize, tag: u8) -> u16 {
        debug_assert!(place + 16 <= self.lens.1);
        // SAFETY: who made this promised that sixteen tags from `place` on are in the slice behind `tags`.
        let tags = unsafe { self.tags.add(place) };
        // SAFETY: as above, the slice is borrowed for as long as this lives, and byte arrays need no alignment.
        let tags = unsafe { tags.cast::<[u8; 16]>().read() };
        equal_bytes(&tags, tag)
    }

    #[inline(always)]
    fn position(&self, place: usize) -> u32 {
        debug_assert!(place < self.lens.2);
        // SAFETY: who made this promised that `place` is below the length of the slice behind `positions`.
        let place = unsafe { self.positions.add(place) };
        // SAFETY: as above, and the slice is borrowed for as long as this lives.
        u32::from_ne_bytes(unsafe { place.read() })
    }

    #[inline(always)]
    fn put(&mut self, place: usize, tag: u8, position: u32) {
        debug_assert!(place < self.lens.1);
        // SAFETY: who made this promised that `place` is below the length of the slice behind `tags`.
        let to = unsafe { self.tags.add(place) };
        // SAFETY: as above, and the borrow is unique.
        unsafe { to.write(tag) };
        // SAFETY: as for the tag: there are as many positions.
        let to = unsafe { self.positions.add(place) };
        // SAFETY: as above, and the borrow is unique.
        unsafe { to.write(position.to_ne_bytes()) };
    }

    #[inline(always)]
    fn put_position(&mut self, place: usize, position: u32) {
        debug_assert!(place < self.lens.2);
        // SAFETY: who made this promised that `place` is below the length of the slice behind `positions`.
        let to = unsafe { self.positions.add(place) };
        // SAFETY: as above, and the borrow is unique.
        unsafe { to.write(position.to_ne_bytes()) };
    }

    #[inline(always)]
    fn prefetch(&self, place: usize, width: usize) {
        prefetch(self.tags.wrapping_add(place));
        // A cache line has room for sixteen.
        for line in 0..width / 16 {
            prefetch(self.positions.wrapping_add(place + 16 * line).cast());
        }
    }
}

/// A store that is written without a check.
struct TrustedStore<'s, 'a> {
    store: &'s mut SequenceStore<'a>,
    start: *mut u8,
    /// Where the literals end, and where the sequences begin.
    literals: *mut u8,
    sequences: *mut u8,
    /// How much room there is beyond what the rest of the block could need, were all of it literals, and one sequence more.
    room: isize,
}

impl<'s, 'a> TrustedStore<'s, 'a> {
    /// A store for the sequences of the `rest` last bytes of the data.
    ///
    /// # Safety
    ///
    /// What is pushed must lie in these bytes, each sequence behind the one before, and nothing may be pushed after a
    /// push that returned false.
    #[inline(always)]
    unsafe fn new(store: &'s mut SequenceStore<'a>, rest: usize) -> Self {
        let (buffer, literals, sequences, room) = store.raw_parts(rest);
        assert!(literals <= sequences && sequences <= buffer.len() && room >= 0);
        let start = buffer.as_mut_ptr();
        TrustedStore {
            store,
            start,
            literals: start.wrapping_add(literals),
            sequences: start.wrapping_add(sequences),
            room,
        }
    }

    /// Tells the store what it now holds.
    #[inline(always)]
    fn finish(self) {
        let start = self.start.addr();
        self.store
            .set_ends(self.literals.addr() - start, self.sequences.addr() - start);
    }
}

impl Store for TrustedStore<'_, '_> {
    #[inline(always)]
    fn append<M: Memory>(
        &mut self,
        data: M,
        anchor: usize,
        literals: usize,
        offset_value: u32,
        matched: usize,
    ) -> bool {
        debug_assert!(self.room >= 0);
        debug_assert!(anchor + literals + matched <= data.end());
        let to = self.literals;
        if anchor + literals + OVERRUN > data.end() {
            // SAFETY: the literals are a part of the rest of the block, for which there is room; they lie in the data.
            unsafe { copy_bytes(to, data.place(anchor), literals) };
        } else {
            // Sixteen bytes or 32, whatever the length: most runs are shorter. What is too much is overwritten.
            // SAFETY: `room` is not negative: before the sequences there is room for the rest of the block, of which the
            // literals are a part, and `OVERRUN` bytes more, of which this writes the first 16.
            unsafe { to.cast::<[u8; 16]>().write(data.chunk16(anchor)) };
            let mut done = 16;
            while done < literals {
                let place = to.wrapping_add(done).cast::<[u8; 16]>();
                // SAFETY: as above; this writes at most 15 bytes behind the literals.
                unsafe { place.write(data.chunk16(anchor + done)) };
                // Were this seen through, the loop would become a call of `memcpy`, around which nothing stays in
                // registers.
                done = M::opaque(done + 16);
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
/// `from` must be readable for so many bytes, `to` writable, and neither may reach into the other.
#[cold]
#[inline(never)]
unsafe fn copy_bytes(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: as the caller promises.
    unsafe { to.copy_from_nonoverlapping(from, length) };
}

/// Declares a kernel: with BMI where the machine has it.
macro_rules! kernel {
    (
        $(#[$doc:meta])* $name:ident, $bmi:ident,
        ($($arg:ident: $type:ty),* $(,)?) -> $result:ty, $body:expr
    ) => {
        $(#[$doc])*
        pub(crate) fn $name($($arg: $type),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            if bmi() {
                // SAFETY: the machine has these instructions, as was just asked.
                return unsafe { $bmi($($arg),*) };
            }
            $body
        }

        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "bmi1,bmi2,lzcnt")]
        fn $bmi($($arg: $type),*) -> $result {
            $body
        }
    };
}
pub(super) use kernel;

kernel!(
    /// [`fast::find`] without checks.
    fast,
    fast_bmi,
    (
        data: &[u8],
        positions: &mut [[u8; 4]],
        task: &fast::Task,
        repeat: [u32; 3],
        store: &mut SequenceStore<'_>
    ) -> (usize, [usize; 3]),
    {
        assert!(positions.len() == 1 << (64 - task.shift));
        // SAFETY: `fast::find` reads at a position only after comparing it with the length (`a + step + 8 <= end`, `ends + 8
        // <= end`, `a + 16 <= end` for sixteen bytes), at smaller positions, and at those before a position by at most `reach`
        // or by an offset of late, neither of which leads out of the data.
        let data = unsafe { Trusted::new(data, task.base) };
        // SAFETY: places are hashes of 64 - shift bits.
        let mut positions = unsafe { TrustedTable::new(positions) };
        // SAFETY: a finder's sequences follow each other, from the start of the block to at most its end.
        let mut trusted = unsafe { TrustedStore::new(store, data.end - task.start) };
        let found = fast::find(data, &mut positions, task, repeat, &mut trusted);
        trusted.finish();
        found
    }
);

kernel!(
    /// [`double_fast::find`] without checks.
    double_fast,
    double_fast_bmi,
    (
        data: &[u8],
        long: &mut [[u8; 4]],
        short: &mut [[u8; 4]],
        task: &double_fast::Task,
        repeat: [u32; 3],
        store: &mut SequenceStore<'_>
    ) -> (usize, [usize; 3]),
    {
        assert!(long.len() == 1 << (64 - task.long_shift));
        assert!(short.len() == 1 << (64 - task.short_shift));
        // SAFETY: `double_fast::find` reads at a position only after comparing it with the length (`a + 9 <= end`, `ends + 8
        // <= end`, `a + 16 <= end` for sixteen bytes), at smaller positions, and at those before a position by at most `reach`
        // or by an offset of late, neither of which leads out of the data.
        let data = unsafe { Trusted::new(data, task.base) };
        // SAFETY: places are hashes of 64 - long_shift bits.
        let mut long = unsafe { TrustedTable::new(long) };
        // SAFETY: places are hashes of 64 - short_shift bits.
        let mut short = unsafe { TrustedTable::new(short) };
        // SAFETY: a finder's sequences follow each other, from the start of the block to at most its end.
        let mut trusted = unsafe { TrustedStore::new(store, data.end - task.start) };
        let found = double_fast::find(data, &mut long, &mut short, task, repeat, &mut trusted);
        trusted.finish();
        found
    }
);

kernel!(
    /// [`lazy::find`] without checks.
    lazy,
    lazy_bmi,
    (
        data: &[u8],
        rows: &mut row::RowCells<'_>,
        task: &lazy::Task,
        repeat: [u32; 3],
        store: &mut SequenceStore<'_>
    ) -> lazy::Found,
    {
        assert!((4..=6).contains(&task.row_log));
        assert!(rows.heads.len().is_power_of_two() && task.places == rows.heads.len() << task.row_log);
        assert!(rows.tags.len() == task.places);
        assert!(task.links == 0 || task.links.is_power_of_two() && task.links >= 2 << LazyDivided::CHAIN_SHARE_LOG);
        assert!(rows.positions.len() == task.places + task.links + (task.links >> LazyDivided::CHAIN_SHARE_LOG));
        // SAFETY: `lazy::find` reads at a position only after comparing it with the length (`at + 9 < end`, `ahead + 8 <=
        // end`, `at + 8 <= end`, `a + 16 <= end` for sixteen bytes), at smaller positions, and at candidates, which lie before the position.
        let data = unsafe { Trusted::new(data, task.base) };
        // SAFETY: a row is a hash of as many bits as the number of rows has; a place is a row's number times its width,
        // 2^`row_log`, which is at least 16, and what is added to that is less than the width; tags are compared from
        // multiples of 16 on. Of chains is only asked where there are links: the place of one is masked with their number
        // less one, and a chain is a hash of as many bits as the number of chains has; both lie behind the rows' places.
        let rows = unsafe { TrustedRows::new(rows) };
        // SAFETY: a finder's sequences follow each other, from the start of the block to at most its end.
        let mut trusted = unsafe { TrustedStore::new(store, data.end - task.start) };
        let found = lazy::find(data, rows, task, repeat, &mut trusted);
        trusted.finish();
        found
    }
);

/// A bit for each place at which the bytes are equal.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn equal_mask(a: &[u8; 16], b: &[u8; 16]) -> u16 {
    #[target_feature(enable = "sse2")]
    #[inline]
    fn sse2(a: &[u8; 16], b: &[u8; 16]) -> u16 {
        use core::arch::x86_64::{__m128i, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8};
        // SAFETY: sixteen bytes are there to be read, at any alignment.
        let a = unsafe { _mm_loadu_si128(a.as_ptr().cast::<__m128i>()) };
        // SAFETY: as above.
        let b = unsafe { _mm_loadu_si128(b.as_ptr().cast::<__m128i>()) };
        _mm_movemask_epi8(_mm_cmpeq_epi8(a, b)) as u16
    }
    // SAFETY: SSE2 is part of the architecture.
    unsafe { sse2(a, b) }
}

/// Asks for the cache line of a byte, which need not exist.
#[inline(always)]
pub(crate) fn prefetch(place: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch changes nothing and cannot fail, whatever the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// [`row::equal_bytes`] in two instructions.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn equal_bytes(bytes: &[u8; 16], byte: u8) -> u16 {
    equal_mask(bytes, &[byte; 16])
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use row::equal_bytes;

/// Whether the machine has BMI1, BMI2 and LZCNT.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(crate) fn bmi() -> bool {
    #[cfg(feature = "std")]
    return std::arch::is_x86_feature_detected!("bmi2")
        && std::arch::is_x86_feature_detected!("bmi1")
        && std::arch::is_x86_feature_detected!("lzcnt");
    #[cfg(not(feature = "std"))]
    cfg!(all(
        target_feature = "bmi1",
        target_feature = "bmi2",
        target_feature = "lzcnt"
    ))
}
