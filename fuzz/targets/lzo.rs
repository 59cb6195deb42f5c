//! Arbitrary bytes, decoded as LZO1X, and encoded.
//!
//! Asserts: no panic; a longer destination gives the same content, and one that is a byte too short
//! an error; segments in the framing of btrfs decode with and without what pads them; what is
//! encoded decodes to what it was, and does not depend on what the workspace held.
//!
//! `cargo +nightly fuzz run lzo fuzz/corpus/lzo fuzz/seeds/lzo`
#![cfg_attr(not(test), no_main)]

use std::cell::RefCell;

use codec::{Algorithm, Decoder};
use libfuzzer_sys::fuzz_target;

/// More than an extent of btrfs.
const CAPACITY: usize = 150_000;
const SECTOR: u32 = 4096;

thread_local! {
    static USED: RefCell<lzo::Workspace> = RefCell::default();
    static OPTIMAL: RefCell<Box<lzo::OptimalWorkspace>> = RefCell::default();
}

fn decode(data: &[u8]) {
    let mut content = vec![0xee; CAPACITY];
    let Ok(len) = lzo::decompress(&mut content, data) else {
        return;
    };
    let mut longer = vec![0xee; CAPACITY + 100];
    assert_eq!(lzo::decompress(&mut longer, data), Ok(len));
    assert_eq!(longer[..len], content[..len]);
    let mut exact = vec![0; len];
    assert_eq!(lzo::decompress(&mut exact, data), Ok(len));
    assert_eq!(exact, content[..len]);
    if len > 0 {
        assert!(lzo::decompress(&mut exact[..len - 1], data).is_err());
    }
}

fn decode_segments(data: &[u8]) {
    let algorithm = Algorithm::LzoBtrfs {
        sector_bytes: SECTOR,
    };
    let mut decoder = Decoder::new();
    let mut content = vec![0; CAPACITY];
    let Ok(len) = decoder.decompress(algorithm, &mut content, data) else {
        return;
    };
    assert!(len <= CAPACITY);
    let mut again = vec![0; CAPACITY];
    assert_eq!(
        decoder.decompress(algorithm, &mut again, data).ok(),
        Some(len)
    );
    assert_eq!(again[..len], content[..len]);
}

fn encode(data: &[u8]) {
    let mut encoded = vec![0xee; data.len() + data.len() / 16 + 100];
    let mut workspace = lzo::Workspace::default();
    let Some(len) = lzo::compress(&mut encoded, data, &mut workspace) else {
        assert!(data.is_empty(), "there is room for all of it");
        return;
    };
    let mut content = vec![0; data.len()];
    let decoded = lzo::decompress(&mut content, &encoded[..len]);
    assert_eq!(decoded, Ok(data.len()));
    assert_eq!(content, data);
    let mut again = vec![0; encoded.len()];
    let same = USED.with_borrow_mut(|used| lzo::compress(&mut again, data, used));
    assert_eq!(same, Some(len));
    assert_eq!(again[..len], encoded[..len]);
    if len > 0 {
        let none = lzo::compress(&mut again[..len - 1], data, &mut workspace);
        assert_eq!(none, None, "it does not fit");
    }
}

/// The first byte is the level.
fn encode_optimal(data: &[u8]) {
    let Some((level, data)) = data.split_first() else {
        return;
    };
    let level = 2 + level % 8;
    let mut encoded = vec![0xee; lzo::compressed_len_max(data.len())];
    let len = OPTIMAL
        .with_borrow_mut(|used| lzo::compress_optimal(&mut encoded, data, level, used))
        .expect("there is room for all of it");
    let mut content = vec![0; data.len()];
    let decoded = lzo::decompress(&mut content, &encoded[..len]);
    assert_eq!(decoded, Ok(data.len()));
    assert_eq!(content, data);
    let mut again = vec![0; len];
    let mut workspace = Box::new(lzo::OptimalWorkspace::new());
    let same = lzo::compress_optimal(&mut again, data, level, &mut workspace);
    assert_eq!(same, Some(len));
    assert_eq!(again, encoded[..len]);
    let none = lzo::compress_optimal(&mut again[..len - 1], data, level, &mut workspace);
    assert_eq!(none, None, "it does not fit");
}

fuzz_target!(|data: &[u8]| {
    decode(data);
    decode_segments(data);
    encode(data);
    encode_optimal(data);
});
