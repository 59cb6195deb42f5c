//! Arbitrary bytes, hashed in pieces.
//!
//! Asserts: any pieces give what one shot gives, and that is what another implementation gives.
#![cfg_attr(not(test), no_main)]

use libfuzzer_sys::fuzz_target;
use xxhash::{Xxh32, Xxh64, xxh32, xxh64};

fuzz_target!(|data: &[u8]| {
    let Some((seed, data)) = data.split_first_chunk::<8>() else {
        return;
    };
    let seed = u64::from_le_bytes(*seed);
    let want = (xxh32(data, seed as u32), xxh64(data, seed));
    assert_eq!(want.0, twox_hash::XxHash32::oneshot(seed as u32, data));
    assert_eq!(want.1, twox_hash::XxHash64::oneshot(seed, data));

    let (mut state_32, mut state_64) = (Xxh32::new(seed as u32), Xxh64::new(seed));
    let (mut rest, mut size) = (data, seed);
    while !rest.is_empty() {
        size = size.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (piece, after) = rest.split_at(rest.len().min((size >> 58) as usize));
        state_32.update(piece);
        state_64.update(piece);
        rest = after;
    }
    assert_eq!((state_32.digest(), state_64.digest()), want);
});
