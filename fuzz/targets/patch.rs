//! Arbitrary bytes as a patch, behind the magic number and with digests that are right.
//!
//! Asserts: no panic; a result has the SHA-256 of the header; and, by its memory, bounded time.
//!
//! `cargo +nightly fuzz run patch`
#![cfg_attr(not(test), no_main)]

use libfuzzer_sys::fuzz_target;
use patch::{ApplyOptions, Destination, Patch};
use tree::{MemoryResult, NoProgress, sha256};

/// Bytes of a new file that are written, and of the buffers.
const BYTES_MAX: u64 = 1 << 20;

/// Corrects the digests of the header and of the parts.
fn with_digests(patch: &mut [u8]) {
    let Some((header, parts)) = patch.split_at_mut_checked(512) else {
        return;
    };
    header[..12].copy_from_slice(b"\x89RPATCH\n\x01\0\0\0");
    let digest = sha256(&header[..480]);
    header[480..].copy_from_slice(&digest);
    let mut rest = parts;
    while rest.len() >= 88 {
        let len = |from: usize| {
            let bytes = rest[from..from + 4].try_into().expect("four bytes");
            u32::from_le_bytes(bytes) as usize
        };
        let end = (88 + len(72) + len(76)).min(rest.len());
        let (part, behind) = rest.split_at_mut(end);
        let digest = sha256(&part[32..]);
        part[..32].copy_from_slice(&digest);
        rest = behind;
    }
}

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    with_digests(&mut bytes);
    let Ok(patch) = Patch::open(&bytes[..]) else {
        return;
    };
    let header = patch.header().clone();
    if header.new_bytes > BYTES_MAX {
        return;
    }
    let mut old = b"to be, or not to be, that is the question".repeat(100);
    old.extend(zstd::compress_to_vec(&old, 3));
    let result = MemoryResult::default();
    let destination = Destination::of(result.output());
    let options = ApplyOptions::default().memory_bytes(BYTES_MAX);
    if patch
        .apply(&old, destination, &options, &NoProgress)
        .is_ok()
    {
        assert_eq!(sha256(&result.take()), header.new_sha256);
    }
});
