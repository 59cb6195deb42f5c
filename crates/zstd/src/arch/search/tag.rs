//! Hashes with tags.

use super::super::access::opaque_word;
use crate::encode::finder::index::{PRIME, PRIME_SHORT};

/// Maps the eight bytes at a position to its cell, by a hash of the first `BYTES` of 64 - `shift`
/// bits, and to the cell's value: the index, and above it a *tag*, a hash of the first four bytes
/// or fewer.
///
/// The difference between this and the cell's value is the distance if the tags are equal, and else
/// far too large: one comparison shows that the tags are equal, that the index is of this frame,
/// and that the window reaches there. Only then the bytes themselves are looked at.
#[inline(always)]
pub(crate) fn tagged<const BYTES: u32>(
    value: u64,
    index: usize,
    shift: u32,
    index_log: u32,
) -> (usize, u32) {
    // A rotation leaves the product where it is, a shift needs a copy first: the compiler must not
    // see that both are the same here.
    let product = opaque_word((value << (64 - 8 * BYTES)).wrapping_mul(PRIME));
    // The highest bits below those of the cell's number; for a match of four bytes, that only the
    // first four decide.
    let below = shift.min(96 - 8 * BYTES);
    let rotated = opaque_word(product.rotate_right(below.wrapping_sub(32) & 31));
    let tag = rotated as u32 & (u32::MAX << (index_log & 31));
    let place = (product >> (shift & 63)) as usize;
    // The index has no bits of the tag: a sum is the same as joining them, and may be postponed by
    // those who add to it.
    (place, tag.wrapping_add(index as u32))
}

/// The cells of a position in two tables, and the value of both.
#[derive(Clone, Copy)]
pub(crate) struct CellPair {
    /// By all eight bytes.
    pub(crate) long: usize,
    /// By fewer.
    pub(crate) short: usize,
    pub(crate) kept: u32,
}

/// Multipliers that map the eight bytes at a position to its cells in two tables: in one by all of
/// them, in the other, which lies behind it, by the first of them.
#[derive(Clone, Copy)]
pub(crate) struct PairHashes {
    all: u64,
    first: u64,
}

impl PairHashes {
    /// For the second table by the first `BYTES` bytes, 4 to 7.
    #[inline(always)]
    pub(crate) fn new<const BYTES: u32>() -> Self {
        // By another number, or the tag would say of four bytes no more than their place.
        let first = if BYTES == 4 {
            PRIME_SHORT.into()
        } else {
            PRIME
        };
        // The compiler would load a number that it sees before each product.
        PairHashes {
            all: opaque_word(PRIME),
            first: opaque_word(first << (64 - 8 * BYTES)),
        }
    }

    /// The cells, for tables of 2^(64 - `shift`) cells, and the value of both, as [`tagged`] has
    /// it.
    #[inline(always)]
    pub(crate) fn cells(
        self,
        value: u64,
        index: usize,
        [long, short]: [u32; 2],
        index_log: u32,
    ) -> CellPair {
        let product = opaque_word(value.wrapping_mul(self.all));
        // The first four bytes alone decide on the lower half of the product: one tag serves both.
        let tag = product as u32 & (u32::MAX << (index_log & 31));
        let behind = 1 << (64 - (long & 63));
        CellPair {
            long: (product >> (long & 63)) as usize,
            short: behind + (value.wrapping_mul(self.first) >> (short & 63)) as usize,
            kept: tag.wrapping_add(index as u32),
        }
    }
}
