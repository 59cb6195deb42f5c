//! Sixteen bytes compared at once, and memory asked for ahead.

/// A bit for each place at which the bytes are equal. Not where vectors are not to be used, as in a
/// kernel.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
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
    // SAFETY: the target has SSE2.
    unsafe { sse2(a, b) }
}

/// Asks for the cache line of a byte, which need not exist.
#[inline(always)]
pub(crate) fn prefetch(place: *const u8) {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch changes nothing and cannot fail, for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    // Every processor of 64 bits has the instruction; without SSE in its features, as in a kernel,
    // the compiler would call the intrinsic as a function.
    #[cfg(all(target_arch = "x86_64", not(target_feature = "sse2")))]
    // SAFETY: as above. The instruction changes neither memory nor registers nor flags.
    unsafe {
        core::arch::asm!(
            "prefetcht0 byte ptr [{place}]",
            place = in(reg) place,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

/// A bit for each byte that equals `byte`.
#[inline(always)]
pub(crate) fn equal_bytes(bytes: &[u8; 16], byte: u8) -> u16 {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    return equal_mask(bytes, &[byte; 16]);
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    equal_bytes_in_words(bytes, byte)
}

/// The same in registers of 64 bits.
#[cfg(any(test, not(all(target_arch = "x86_64", target_feature = "sse2"))))]
#[inline(always)]
fn equal_bytes_in_words(bytes: &[u8; 16], byte: u8) -> u16 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const LOW: u64 = 0x7f * ONES;
    let (words, _) = bytes.as_chunks::<8>();
    let wanted = u64::from(byte) * ONES;
    let mut mask = 0;
    for (i, word) in words.iter().enumerate() {
        let differ = u64::from_le_bytes(*word) ^ wanted;
        // The highest bit of each byte that is 0, and no other: no sum of two bytes reaches into
        // the next one.
        let equal = !(((differ & LOW) + LOW) | differ | LOW);
        // The product moves bit 8 * n to bit 56 + n.
        let bits = (equal >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        mask |= (bits as u16) << (8 * i);
    }
    mask
}

/// How many of sixteen bytes are equal before the first that differ.
#[inline(always)]
pub(crate) fn first_difference(a: [u8; 16], b: [u8; 16]) -> usize {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    return (!u32::from(equal_mask(&a, &b))).trailing_zeros() as usize;
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
    {
        let differ = u128::from_le_bytes(a) ^ u128::from_le_bytes(b);
        differ.trailing_zeros() as usize / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_by_one(bytes: &[u8; 16], byte: u8) -> u16 {
        let bits = bytes.iter().enumerate();
        bits.fold(0, |mask, (i, b)| mask | u16::from(*b == byte) << i)
    }

    #[test]
    fn words_and_vectors_find_the_same_bytes() {
        let mut rng = testkit::Rng::new(1);
        for _ in 0..testkit::cases(if cfg!(miri) { 50 } else { 20_000 }) {
            let byte = rng.below(256) as u8;
            // A sum would confuse bytes that differ from it in one bit with equal ones.
            let bytes = [0; 16].map(|_: u8| match rng.below(3) {
                0 => byte,
                1 => byte ^ (1 << rng.below(8)),
                _ => rng.below(256) as u8,
            });
            let expected = one_by_one(&bytes, byte);
            assert_eq!(
                equal_bytes_in_words(&bytes, byte),
                expected,
                "{bytes:?} {byte}"
            );
            assert_eq!(equal_bytes(&bytes, byte), expected, "{bytes:?} {byte}");
        }
    }
}
