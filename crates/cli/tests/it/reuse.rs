//! Images that keep the compressed data of older ones.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use testkit::{Rng, TempDir};

use crate::{names, ok, run_in};

/// Ten compressible files of two blocks, and some small ones.
fn source(dir: &TempDir) {
    fs::create_dir(dir.join("src")).unwrap();
    for n in 0..10 {
        fs::write(dir.join(format!("src/large{n}")), text(n, 300_000)).unwrap();
        fs::write(dir.join(format!("src/small{n}")), text(100 + n, 900)).unwrap();
    }
    set_times(dir);
}

fn set_times(dir: &TempDir) {
    for name in names(&dir.join("src")) {
        let file = File::open(dir.join("src").join(name)).unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_234_567_890);
        file.set_modified(time).unwrap();
    }
}

fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut text = Vec::new();
    while text.len() < len {
        text.extend(format!("{:x} ", rng.below(5000)).bytes());
    }
    text.truncate(len);
    text
}

#[test]
fn a_second_image_keeps_what_is_unchanged() {
    for kind in ["sqfs", "btrfs", "erofs"] {
        let dir = TempDir::new();
        source(&dir);
        ok(&dir, &format!("copy src old.{kind}"));
        fs::write(dir.join("src/large3"), text(33, 300_000)).unwrap();
        fs::rename(dir.join("src/large4"), dir.join("src/moved")).unwrap();
        let (_, words) = ok(&dir, &format!("copy --reuse old.{kind} src new.{kind}"));
        let reused = format!(" reused from old.{kind}, ");
        assert!(words.contains(&reused), "{words}");
        assert!(
            words.contains("\nrestow: 2") || words.starts_with("restow: "),
            "{words}"
        );
        ok(&dir, &format!("diff src new.{kind}"));
        ok(&dir, &format!("check new.{kind}"));
        ok(&dir, &format!("copy src full.{kind}"));
        let read = |name: &str| fs::read(dir.join(format!("{name}.{kind}"))).unwrap();
        assert!(kind != "btrfs" || read("new") == read("full"));
        ok(
            &dir,
            &format!("copy -q --overwrite --reuse new.{kind} src new.{kind}"),
        );
        ok(&dir, &format!("diff src new.{kind}"));
        assert!(kind != "btrfs" || read("new") == read("full"));
    }
}

#[test]
fn exact_images_are_those_of_a_full_build() {
    let dir = TempDir::new();
    source(&dir);
    ok(&dir, "copy -q src old.sqfs");
    fs::write(dir.join("src/small3"), text(33, 700)).unwrap();
    let (_, words) = ok(&dir, "copy --reuse old.sqfs --reuse-exact src new.sqfs");
    assert!(
        words.contains("30 blocks reused from old.sqfs, 1 encoded"),
        "{words}"
    );
    ok(&dir, "copy -q src full.sqfs");
    let read = |name| fs::read(dir.join(name)).unwrap();
    assert!(read("new.sqfs") == read("full.sqfs"));
    let (_, words) = ok(
        &dir,
        "copy --reuse old.sqfs --reuse-exact --compress zstd:1 src x.sqfs",
    );
    let why = "nothing was reused: old.sqfs was not made with the same settings by this version";
    assert!(words.contains(why), "{words}");
}

#[test]
fn blocks_of_another_level_are_reported() {
    let dir = TempDir::new();
    source(&dir);
    ok(&dir, "copy -q --compress zstd:1 src old.sqfs");
    let other = "was made with other settings, such as another level, and its blocks keep them";
    for (level, is_other) in [(1, false), (12, true)] {
        let line = format!("copy --reuse old.sqfs --compress zstd:{level} src {level}.sqfs");
        let (_, words) = ok(&dir, &line);
        assert!(words.contains(" blocks reused from old.sqfs, 0 encoded"));
        assert_eq!(words.contains(other), is_other, "{words}");
    }
}

#[test]
fn times_are_trusted_on_demand() {
    for kind in ["sqfs", "btrfs"] {
        let dir = TempDir::new();
        source(&dir);
        ok(&dir, &format!("copy -q src old.{kind}"));
        fs::write(dir.join("src/large3"), text(33, 300_000)).unwrap();
        set_times(&dir);
        ok(&dir, &format!("copy -q --reuse old.{kind} src new.{kind}"));
        ok(&dir, &format!("diff src new.{kind}"));
        ok(
            &dir,
            &format!("copy -q --reuse old.{kind} --trust-mtime src trusted.{kind}"),
        );
        let (code, found, _) = run_in(dir.path(), ["diff", "src", &format!("trusted.{kind}")]);
        assert_eq!((code, found.lines().count()), (1, 1), "{found}");
        assert!(found.starts_with("large3: "), "{found}");
    }
}

#[test]
fn what_cannot_be_reused_is_named() {
    let dir = TempDir::new();
    source(&dir);
    for name in ["old.sqfs", "old.btrfs", "old.tar"] {
        ok(&dir, &format!("copy -q src {name}"));
    }
    let fails = |line: &str| {
        let (code, _, words) = run_in(dir.path(), line.split_whitespace());
        assert_eq!(code, 2, "{line}: {words}");
        words
    };
    let words = fails("copy --reuse old.tar src new.sqfs");
    assert!(
        words.contains("--reuse old.tar: must be a SquashFS image"),
        "{words}"
    );
    let words = fails("copy --reuse old.sqfs src new.btrfs");
    assert!(
        words.contains("--reuse old.sqfs: must be a btrfs image"),
        "{words}"
    );
    let words = fails("copy --reuse none.sqfs src new.sqfs");
    assert!(words.contains("open none.sqfs: "), "{words}");
    let words = fails("copy --reuse old.tar src new.tar");
    assert!(
        words.contains("--reuse does not apply to a tar archive"),
        "{words}"
    );
    fails("copy --trust-mtime src new.sqfs");
    fails("copy --reuse old.sqfs --recompress src new.sqfs");
    assert!(!dir.join("new.sqfs").exists() && !dir.join("new.btrfs").exists());

    // Nothing can be kept, but the image can be made.
    let (_, words) = ok(&dir, "copy --reuse old.sqfs --block-size 64K src a.sqfs");
    let why = "nothing is reused: the old image has blocks of 128 KiB, the new one of 64 KiB";
    assert!(words.contains(why), "{words}");
    let (_, words) = ok(&dir, "copy --reuse old.sqfs --compress lz4 src b.sqfs");
    assert!(words.contains("nothing is reused: the old image is compressed with another codec"));
    fs::write(
        dir.join("broken.sqfs"),
        &fs::read(dir.join("old.sqfs")).unwrap()[..5000],
    )
    .unwrap();
    let (_, words) = ok(&dir, "copy --reuse broken.sqfs src c.sqfs");
    assert!(
        words.contains("nothing is reused: open broken.sqfs: "),
        "{words}"
    );
    ok(&dir, "diff src c.sqfs");
}

#[test]
fn an_image_behind_other_bytes_is_found() {
    let dir = TempDir::new();
    source(&dir);
    ok(&dir, "copy -q --offset 64K src old.sqfs");
    let (_, words) = ok(
        &dir,
        "copy --offset 64K --overwrite --reuse old.sqfs src old.sqfs",
    );
    assert!(
        words.contains("31 blocks reused from old.sqfs, 0 encoded"),
        "{words}"
    );
    ok(&dir, "diff --image-at 64K src old.sqfs");
}
