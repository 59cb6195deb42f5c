//! A good SquashFS image, copied with `--reuse` of an older one that has some bytes overwritten.
//!
//! Asserts: whatever the older image holds, the copy is the source.
//!
//! `cargo +nightly fuzz run reuse`
#![cfg_attr(not(test), no_main)]

use std::fs;
use std::path::Path;

use libfuzzer_sys::fuzz_target;
use restow::{CopyOptions, Input, OpenOptions, SourceTree};
use testkit::TempDir;
use tree::{Aspects, FileSystem, Inventory, Limits, NoProgress, Parallel, manifest};

const GOOD: [&[u8]; 4] = [
    include_bytes!("../seeds/squashfs_read/gzip.squashfs"),
    include_bytes!("../seeds/squashfs_read/lzo.squashfs"),
    include_bytes!("../seeds/squashfs_read/plain.squashfs"),
    include_bytes!("../seeds/squashfs_read/zstd.squashfs"),
];

/// Made on this thread: the leak detector does not know the memory of threads that end.
fn manifest(fs: &dyn FileSystem) -> Vec<u8> {
    let inventory = Inventory::of(fs, &Limits::default()).expect("it is good");
    let (aspects, one, mut text) = (Aspects::default(), Parallel::new(1), Vec::new());
    manifest::write(&inventory, &aspects, one, &NoProgress, &mut text).expect("it is readable");
    text
}

fn open(bytes: Vec<u8>) -> SourceTree {
    let opened = SourceTree::of_input(Input::of(bytes), &OpenOptions::default());
    opened.expect("it is good")
}

fn copy(source: SourceTree, old: &Path, to: &Path) -> restow::Result<()> {
    let mut options = CopyOptions::default();
    options.parallel = Parallel::new(1);
    options.reuse = Some(old.to_owned());
    options.sync = false;
    restow::copy(source, to, &options, &NoProgress).map(|_| ())
}

fuzz_target!(|data: &[u8]| {
    let Some((&[image], mut edits)) = data.split_first_chunk() else {
        return;
    };
    let good = GOOD[usize::from(image) % GOOD.len()];
    let mut old = good.to_vec();
    while let Some((&[low, high, byte], rest)) = edits.split_first_chunk() {
        let at = usize::from(u16::from_le_bytes([low, high])) % old.len();
        old[at] = byte;
        edits = rest;
    }
    let dir = TempDir::new();
    let (old_path, to) = (dir.join("old.squashfs"), dir.join("new.squashfs"));
    fs::write(&old_path, old).unwrap();
    if copy(open(good.to_vec()), &old_path, &to).is_ok() {
        let copied = open(fs::read(&to).unwrap());
        assert!(manifest(&**copied.tree()) == manifest(&**open(good.to_vec()).tree()));
    }
});
