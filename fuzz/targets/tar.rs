//! Arbitrary bytes as a tar archive, and as one of cpio, asked everything that can be asked.
//!
//! Asserts: no panic; what is said twice is the same; what is read and written again is the same
//! tree; and, by the limits below, bounded time and memory. The checksums of the first headers are
//! made right, so that what is behind them is reached.
//!
//! `cargo +nightly fuzz run tar fuzz/corpus/tar fuzz/seeds/tar`
#![cfg_attr(not(test), no_main)]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use restow_fuzz::limits;
use tree::tar::{self, Tar, TarOptions};
use tree::{Aspects, FileKind, FileSystem, Inventory, Limits, NoProgress, Parallel, manifest};

const BLOCK: usize = 512;
const HEADERS_MENDED: usize = 64;
/// Content that is compared as a whole.
const CONTENT_BYTES_MAX: u64 = 1 << 20;

/// Gives every block that could be a header the checksum of one: the type of archive is named at
/// 257, the length of the data in octal digits at 124.
fn mend(bytes: &mut [u8]) {
    let mut at = 0;
    for _ in 0..HEADERS_MENDED {
        let Some(header) = bytes.get_mut(at..at + BLOCK) else {
            return;
        };
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        let digits = header[124..136]
            .iter()
            .take_while(|byte| (b'0'..=b'7').contains(byte));
        let len = digits.fold(0usize, |len, digit| len * 8 + usize::from(digit - b'0'));
        at += BLOCK + len.min(bytes.len()).next_multiple_of(BLOCK);
    }
}

fn read(bytes: Vec<u8>) {
    let Ok(fs) = Tar::open(Box::new(bytes), limits()) else {
        return;
    };
    if testkit::use_all(&fs, &limits()).is_err() {
        return;
    }
    let inventory = Inventory::of(&fs, &limits()).expect("it was listed before");
    if inventory.content_bytes() > CONTENT_BYTES_MAX {
        return;
    }
    let mut archive = Vec::new();
    let one = Parallel::new(1);
    let Ok(summary) = tar::write(&inventory, false, one, &NoProgress, &mut archive) else {
        return;
    };
    // Sockets cannot be written, and a name of one can be the first of a file.
    let has_sockets = inventory
        .files()
        .any(|file| inventory.kind(file) == FileKind::Socket);
    assert_eq!(has_sockets, !summary.sockets.is_empty());
    if has_sockets {
        return;
    }
    let again = Tar::open(Box::new(archive), Limits::default()).expect("it is ours");
    assert_eq!(manifest(&again), manifest(&fs));
}

/// Made on this thread: the leak detector does not know the memory of threads that end.
fn manifest(fs: &dyn FileSystem) -> String {
    let inventory = Inventory::of(fs, &Limits::default()).expect("it was listed before");
    let (aspects, one, mut text) = (Aspects::default(), Parallel::new(1), Vec::new());
    manifest::write(&inventory, &aspects, one, &NoProgress, &mut text).expect("it is readable");
    String::from_utf8(text).expect("a manifest is ASCII")
}

fn read_cpio(data: &[u8]) {
    let archive = Arc::new([b"070701", data].concat());
    let options = TarOptions {
        skip_damaged: data.first() == Some(&0),
        ..TarOptions::default()
    };
    if let Ok(fs) = Tar::open_cpio(archive, limits(), options, &std::env::temp_dir()) {
        let _ = testkit::use_all(&fs, &limits());
    }
}

fuzz_target!(|data: &[u8]| {
    read(data.to_vec());
    read_cpio(data);
    let mut mended = data.to_vec();
    mend(&mut mended);
    read(mended);
});
