//! Numbers that others published.

use xxhash::{Xxh32, Xxh64, xxh32, xxh64};

/// The text, its XXH32 and its XXH64, with seed 0. From the test suites of xxHash's bindings
/// (the strings) and of `xxhsum` (the empty input).
const SEED_0: &[(&str, u32, u64)] = &[
    ("", 0x02CC_5D05, 0xEF46_DB37_51D8_E999),
    ("a", 0x550D_7456, 0xD24E_C4F1_A98C_6E5B),
    ("abc", 0x32D1_53FF, 0x44BC_2CF5_AD77_0999),
    (
        "Nobody inspects the spammish repetition",
        0xE229_3B2F,
        0xFBCE_A83C_8A37_8BF1,
    ),
];

#[test]
fn published_strings() {
    for &(text, want_32, want_64) in SEED_0 {
        assert_eq!(xxh32(text.as_bytes(), 0), want_32, "XXH32 of {text:?}");
        assert_eq!(xxh64(text.as_bytes(), 0), want_64, "XXH64 of {text:?}");
    }
}

/// The sanity check of xxHash itself: bytes from a multiplicative generator, seeds 0 and `PRIME32`
/// (2654435761), as published in `cli/xsum_sanity_check.c`.
#[test]
fn the_sanity_buffer_of_xxhsum() {
    const SEED: u32 = 2_654_435_761;
    let mut generator: u64 = 2_654_435_761;
    let mut buffer = [0; 222];
    for byte in &mut buffer {
        *byte = (generator >> 56) as u8;
        generator = generator.wrapping_mul(11_400_714_785_074_694_797);
    }
    let cases_32 = [
        (0, 0, 0x02CC_5D05),
        (0, SEED, 0x36B7_8AE7),
        (1, 0, 0xCF65_B03E),
        (1, SEED, 0xB454_5AA4),
        (14, 0, 0x1208_E7E2),
        (14, SEED, 0x6AF1_D1FE),
        (222, 0, 0x5BD1_1DBD),
        (222, SEED, 0x5880_3C5F),
    ];
    for (len, seed, want) in cases_32 {
        assert_eq!(
            xxh32(&buffer[..len], seed),
            want,
            "XXH32 of {len} bytes, seed {seed}"
        );
        let mut state = Xxh32::new(seed);
        buffer[..len].iter().for_each(|byte| state.update(&[*byte]));
        assert_eq!(
            state.digest(),
            want,
            "XXH32 of {len} single bytes, seed {seed}"
        );
    }
    let cases_64 = [
        (0, 0, 0xEF46_DB37_51D8_E999),
        (0, SEED, 0xAC75_FDA2_929B_17EF),
        (1, 0, 0xE934_A84A_DB05_2768),
        (1, SEED, 0x5014_6076_43A9_B4C3),
        (4, 0, 0x9136_A0DC_A574_57EE),
        (14, 0, 0x8282_DCC4_994E_35C8),
        (14, SEED, 0xC3BD_6BF6_3DEB_6DF0),
        (222, 0, 0xB641_AE8C_B691_C174),
        (222, SEED, 0x20CB_8AB7_AE10_C14A),
    ];
    for (len, seed, want) in cases_64 {
        let seed = u64::from(seed);
        assert_eq!(
            xxh64(&buffer[..len], seed),
            want,
            "XXH64 of {len} bytes, seed {seed}"
        );
        let mut state = Xxh64::new(seed);
        buffer[..len].iter().for_each(|byte| state.update(&[*byte]));
        assert_eq!(
            state.digest(),
            want,
            "XXH64 of {len} single bytes, seed {seed}"
        );
    }
}

#[test]
fn hashers_hash_bytes() {
    use std::hash::Hasher;
    let (mut narrow, mut wide) = (Xxh32::default(), Xxh64::default());
    for part in [&b"container "[..], b"ship"] {
        narrow.write(part);
        wide.write(part);
    }
    assert_eq!(narrow.finish(), xxh32(b"container ship", 0).into());
    assert_eq!(wide.finish(), xxh64(b"container ship", 0));
}
