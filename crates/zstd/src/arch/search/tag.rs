//! Hashes with tags.

use super::super::access::opaque_word;
use crate::encode::finder::index::PRIME;

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
    let below = if BYTES == 8 {
        shift
    } else {
        shift.min(96 - 8 * BYTES)
    };
    let rotated = opaque_word(product.rotate_right(below.wrapping_sub(32) & 31));
    let tag = rotated as u32 & (u32::MAX << (index_log & 31));
    let place = (product >> (shift & 63)) as usize;
    // The index has no bits of the tag: a sum is the same as joining them, and may be postponed by
    // those who add to it.
    (place, tag.wrapping_add(index as u32))
}
