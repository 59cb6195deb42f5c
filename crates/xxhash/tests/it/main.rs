//! The tests of the xxhash crate.
#![forbid(unsafe_code)]

/// Equal to two independent implementations.
mod differential;
/// The program in `examples`.
#[cfg(not(miri))] // it reads files
mod examples;
/// Published numbers.
mod vectors;

/// Bytes without a pattern, the same in every run (a 64-bit LCG's high byte).
fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}
