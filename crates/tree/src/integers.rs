//! Conversions between the numbers of a format and lengths in memory.

// A length in memory always fits.
const _: () = assert!(size_of::<usize>() <= size_of::<u64>());

/// A length or an index in memory as a number.
#[expect(
    clippy::as_conversions,
    reason = "`From` is missing, and no length is wider"
)]
#[inline]
pub const fn to_u64(len: usize) -> u64 {
    len as u64
}

/// The low 32 bits of a number.
#[inline]
pub const fn low_u32(number: u64) -> u32 {
    let [a, b, c, d, ..] = number.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// The high 32 bits of a number.
#[inline]
pub const fn high_u32(number: u64) -> u32 {
    low_u32(number >> 32)
}

/// The number with these low and high 32 bits.
#[inline]
pub const fn wide_u64(low: u32, high: u32) -> u64 {
    let ([a, b, c, d], [e, f, g, h]) = (low.to_le_bytes(), high.to_le_bytes());
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// A number as a length or an index in memory: `usize::MAX`, which no slice has, if it does not
/// fit.
#[inline]
pub fn to_usize(number: impl Into<u64>) -> usize {
    usize::try_from(number.into()).unwrap_or(usize::MAX)
}
