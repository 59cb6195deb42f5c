//! Equal to two independent implementations, whatever the length, the seed and the split.

use crate::bytes;
use std::hash::Hasher;
use xxhash::{Xxh32, Xxh64, xxh32, xxh64};

const SEEDS: [u64; 7] = [0, 1, 3, 39, 0x9E37_79B1, 0xFFFF_FFFF, u64::MAX - 1];

/// One-shot hashes of all three implementations agree; returns ours.
fn agreed(data: &[u8], seed: u64) -> (u32, u64) {
    let ours = (xxh32(data, seed as u32), xxh64(data, seed));
    let rust = (
        xxhash_rust::xxh32::xxh32(data, seed as u32),
        xxhash_rust::xxh64::xxh64(data, seed),
    );
    let twox = (
        twox_hash::XxHash32::oneshot(seed as u32, data),
        twox_hash::XxHash64::oneshot(seed, data),
    );
    assert_eq!(ours, rust, "xxhash-rust, {} bytes, seed {seed}", data.len());
    assert_eq!(ours, twox, "twox-hash, {} bytes, seed {seed}", data.len());
    ours
}

#[test]
fn every_length_to_300_at_every_alignment_and_seed() {
    let data = bytes(308, 1);
    // Every stripe and tail is in the first 100 bytes; Miri takes minutes for all.
    let (seeds, len_max) = if cfg!(miri) {
        (&SEEDS[..2], 100)
    } else {
        (&SEEDS[..], 300)
    };
    for &seed in seeds {
        for len in 0..=len_max {
            for start in [0, 1, 3, 7] {
                agreed(&data[start..start + len], seed);
            }
        }
    }
}

#[test]
fn long_inputs() {
    let data = bytes(if cfg!(miri) { 5_000 } else { 3_000_000 }, 2);
    let mut len = data.len();
    while len > 300 {
        agreed(&data[..len], len as u64);
        len = len * 5 / 7;
    }
}

#[test]
fn every_split_in_two_and_three() {
    let data = bytes(if cfg!(miri) { 40 } else { 130 }, 3);
    for seed in [0, 0xDEAD_BEEF_0BAD_F00D] {
        let want = agreed(&data, seed);
        for first in 0..=data.len() {
            for second in first..=data.len() {
                let (mut state_32, mut state_64) = (Xxh32::new(seed as u32), Xxh64::new(seed));
                for piece in [&data[..first], &data[first..second], &data[second..]] {
                    state_32.update(piece);
                    state_64.update(piece);
                }
                assert_eq!(
                    (state_32.digest(), state_64.digest()),
                    want,
                    "at {first}, {second}"
                );
            }
        }
    }
}

#[test]
fn equal_pieces_of_every_size_with_a_digest_after_each() {
    let data = bytes(if cfg!(miri) { 150 } else { 700 }, 4);
    for size in 1..=100 {
        let (mut state_32, mut state_64) = (Xxh32::new(5), Xxh64::new(5));
        let mut peer_64 = twox_hash::XxHash64::with_seed(5);
        let mut taken = 0;
        for piece in data.chunks(size) {
            state_32.update(piece);
            state_64.update(piece);
            peer_64.write(piece);
            taken += piece.len();
            assert_eq!(state_32.digest(), xxh32(&data[..taken], 5));
            assert_eq!(state_64.digest(), xxh64(&data[..taken], 5));
            assert_eq!(state_64.digest(), peer_64.finish());
        }
    }
}

#[test]
fn a_copied_state_goes_its_own_way_and_reset_forgets() {
    let data = bytes(200, 5);
    let mut state = Xxh64::new(11);
    state.update(&data[..77]);
    let mut copy = state;
    copy.update(&data[77..]);
    assert_eq!(copy.digest(), xxh64(&data, 11));
    assert_eq!(state.digest(), xxh64(&data[..77], 11));
    state.reset(12);
    state.update(&data);
    assert_eq!(state.digest(), xxh64(&data, 12));

    let mut state = Xxh32::new(11);
    state.update(&data[..77]);
    let mut copy = state;
    copy.update(&data[77..]);
    assert_eq!(copy.digest(), xxh32(&data, 11));
    assert_eq!(state.digest(), xxh32(&data[..77], 11));
    state.reset(12);
    state.update(&data);
    assert_eq!(state.digest(), xxh32(&data, 12));
}
