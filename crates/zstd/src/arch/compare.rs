//! Sixteen bytes compared at once, and memory asked for ahead.

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

/// A bit for each byte that equals `byte`.
#[inline(always)]
pub(crate) fn equal_bytes(bytes: &[u8; 16], byte: u8) -> u16 {
    #[cfg(target_arch = "x86_64")]
    return equal_mask(bytes, &[byte; 16]);
    #[cfg(not(target_arch = "x86_64"))]
    {
        let bits = bytes.iter().enumerate();
        bits.fold(0, |mask, (i, b)| mask | u16::from(*b == byte) << i)
    }
}

/// How many of sixteen bytes are equal before the first that differ.
#[inline(always)]
pub(crate) fn first_difference(a: [u8; 16], b: [u8; 16]) -> usize {
    #[cfg(target_arch = "x86_64")]
    return (!u32::from(equal_mask(&a, &b))).trailing_zeros() as usize;
    #[cfg(not(target_arch = "x86_64"))]
    {
        let differ = u128::from_le_bytes(a) ^ u128::from_le_bytes(b);
        differ.trailing_zeros() as usize / 8
    }
}
