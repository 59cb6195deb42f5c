//! Images that keep extents of an older one: the same bytes as without it.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use btrfs::{Btrfs, CreateSummary, Options};
use codec::Settings;
use testkit::{MemoryFs, Rng, TempDir};
use tree::{FileSystem, Ino, OldImage, Time};

use crate::images::{algorithms, check, make, manifest_of, open, with};

const EXTENT: usize = 128 << 10;

fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let words: Vec<String> = (0..200)
        .map(|_| format!("{:x} ", rng.next_u64() >> 40))
        .collect();
    let mut text = Vec::with_capacity(len + 16);
    while text.len() < len {
        text.extend(words[rng.index(words.len())].as_bytes());
    }
    text.truncate(len);
    text
}

fn time(fs: &mut MemoryFs, ino: Ino) {
    fs.metadata_mut(ino).mtime = Time {
        seconds: 1000,
        nanoseconds: 7,
    };
}

/// A tree: files of every size, one with holes, noise, equal ones. If it is changed, some differ,
/// one has moved, and one is longer; `is_hidden` changes keep lengths and times.
fn version(is_changed: bool, is_hidden: bool) -> MemoryFs {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let mut large = text(1, 8 * EXTENT + 5000);
    if is_changed {
        large[3 * EXTENT + 9] ^= 1;
    }
    let ino = fs.add_file(root, "large", &large);
    time(&mut fs, ino);
    fs.add_file(root, "equal", &large);
    fs.add_file(root, "noise", &Rng::new(2).bytes(3 * EXTENT));
    fs.add_sparse(
        root,
        "sparse",
        16 << 20,
        &[(1 << 20, &text(3, 69_632)), (5 << 20, &text(4, EXTENT))],
    );
    let longer = if is_changed && !is_hidden { 999 } else { 0 };
    fs.add_file(root, "longer", &text(5, 3 * EXTENT + longer));
    let moved = if is_changed { "moved" } else { "before" };
    fs.add_file(root, moved, &text(6, 2 * EXTENT + 77));
    let small = fs.add_dir(root, "small");
    for n in 0..300 {
        let mut content = text(100 + n, 40 + (n * 71 % 9000) as usize);
        if is_changed && n % 50 == 7 {
            content[5] ^= 1;
        }
        let ino = fs.add_file(small, format!("{n}"), &content);
        time(&mut fs, ino);
    }
    fs
}

fn reusing(options: &Options, old: &Path, trust_mtime: bool) -> Options {
    options.clone().old(Some(OldImage {
        tree: Arc::new(open(old).subvolume(5).unwrap()),
        trust_mtime,
    }))
}

fn reuse(dir: &TempDir, options: &Options, threads: usize) -> CreateSummary {
    let options = reusing(options, &dir.join("old"), false);
    make(&version(true, false), &dir.join("new"), &options, threads)
}

fn assert_equal_files(dir: &TempDir, what: &str) {
    let (new, full) = (fs::read(dir.join("new")), fs::read(dir.join("full")));
    assert!(new.unwrap() == full.unwrap(), "{what}");
}

#[test]
fn the_bytes_are_those_of_a_full_build() {
    let dir = TempDir::new();
    for (name, settings) in algorithms() {
        for force in [false, true] {
            let options = with(settings, force);
            make(&version(false, false), &dir.join("old"), &options, 2);
            make(&version(true, false), &dir.join("full"), &options, 2);
            for threads in [1, 3] {
                let summary = reuse(&dir, &options, threads);
                let what = format!("{name} {force} {threads}: {summary:?}");
                assert_equal_files(&dir, &what);
                assert!(!summary.image.old_differs, "{what}");
                assert_eq!(summary.image.reused > 150, settings.is_some(), "{what}");
            }
            check(&dir.join("new"));
        }
    }
}

#[test]
fn nothing_is_kept_of_other_settings() {
    let dir = TempDir::new();
    let old = with(Some(Settings::Zstd { level: 3 }), false);
    make(&version(false, false), &dir.join("old"), &old, 2);
    for other in [
        Settings::Zstd { level: 9 },
        Settings::Zlib { level: 3 },
        Settings::Lzo,
    ] {
        let options = with(Some(other), false);
        make(&version(true, false), &dir.join("full"), &options, 2);
        let image = reuse(&dir, &options, 2).image;
        assert_eq!((image.reused, image.old_differs), (0, true), "{other:?}");
        assert_equal_files(&dir, "other settings");
    }
}

#[test]
fn times_count_only_if_they_are_trusted() {
    let dir = TempDir::new();
    let options = with(Some(Settings::Zstd { level: 3 }), false);
    make(&version(false, false), &dir.join("old"), &options, 2);
    let source = version(true, true);
    let image = |trust| {
        let options = reusing(&options, &dir.join("old"), trust);
        make(&source, &dir.join("new"), &options, 2);
        manifest_of(&open(&dir.join("new")).subvolume(5).unwrap())
    };
    assert_eq!(image(false), manifest_of(&source));
    assert!(image(true) != manifest_of(&source));
}

/// Whatever is damaged in the old image, the new one is as if it were made without it.
#[test]
fn a_damaged_image_costs_nothing_but_time() {
    let dir = TempDir::new();
    let options = with(Some(Settings::Zstd { level: 1 }), false);
    make(&version(false, false), &dir.join("old"), &options, 2);
    make(&version(true, false), &dir.join("full"), &options, 2);
    let sound = fs::read(dir.join("old")).unwrap();
    let mut rng = Rng::new(5);
    let mut opened = 0;
    for case in 0..testkit::cases(30) {
        fs::write(dir.join("old"), &sound).unwrap();
        let file = File::options().write(true).open(dir.join("old")).unwrap();
        for _ in 0..1 << rng.index(12) {
            // The superblocks stay.
            let at = (1 << 20) + rng.below(sound.len() as u64 - (1 << 20));
            file.write_all_at(&[rng.next_u64() as u8], at).unwrap();
        }
        let old = File::open(dir.join("old")).unwrap();
        let Ok(Ok(_)) = Btrfs::open(vec![Box::new(old)]).map(|old| Arc::new(old).subvolume(5))
        else {
            continue;
        };
        opened += 1;
        let _ = reuse(&dir, &options, 2);
        assert_equal_files(&dir, &format!("case {case}"));
    }
    assert!(opened > 5, "{opened}");
}
