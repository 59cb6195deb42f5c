//! Compressed and shared data of a source stays compressed and shared.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use btrfs::{CreateSummary, Options, Subvolume};
use codec::{Encoder, Settings};
use testkit::{HookedFs, MemoryFs, Rng, TempDir};
use tree::{
    Error, Extent, ExtentId, ExtentKind, FileKind, FileSystem, Ino, Inventory, KeptCount, Limits,
    NoProgress, Output, Parallel, Verify,
};

use crate::check::findings;
use crate::images::{algorithms, check, make, manifest_of, memory_tree, open, with};

/// By path, the compressed extents of each file: algorithm and stored bytes, without padding except
/// for inline extents.
fn encoded(tree: &Subvolume) -> HashMap<Vec<u8>, Vec<(String, Vec<u8>)>> {
    let inventory = Inventory::of(tree, &Limits::default()).unwrap();
    let mut all = HashMap::new();
    for file in inventory.files() {
        if inventory.kind(file) != FileKind::Regular {
            continue;
        }
        let (ino, mut at, mut own) = (inventory.ino(file), 0, Vec::new());
        while at < inventory.size(file) {
            for extent in tree.extents(ino, at).unwrap() {
                at = extent.offset + extent.len;
                if let ExtentKind::Encoded(encoding) = extent.kind {
                    let mut stored = Vec::new();
                    tree.read_encoded(ino, &extent, &mut stored).unwrap();
                    let words = format!("{} {encoding:?}", extent.offset);
                    own.push((words, stored));
                }
            }
        }
        all.insert(inventory.path(inventory.first_name(file)), own);
    }
    all
}

/// The places of the stored data of all files.
fn places(tree: &Subvolume) -> Vec<ExtentId> {
    let inventory = Inventory::of(tree, &Limits::default()).unwrap();
    let regular = inventory
        .files()
        .filter(|&file| inventory.kind(file) == FileKind::Regular);
    let extents = regular.flat_map(|file| {
        let extents = tree.extents(inventory.ino(file), 0).unwrap();
        extents.into_iter().filter_map(|extent| extent.id)
    });
    extents.collect()
}

fn top(image: &Path) -> Subvolume {
    open(image).subvolume(5).unwrap()
}

#[test]
fn encoded_extents_are_taken_as_they_are() {
    let dir = TempDir::new();
    let (first, second) = (dir.join("first"), dir.join("second"));
    let source = memory_tree();
    let expected = manifest_of(&source);
    for (name, compression) in algorithms() {
        let made = make(&source, &first, &with(compression, true), 2);
        // Different settings and a different layout must not matter.
        let options = with(None, false)
            .nodesize(4 << 10)
            .checksum(btrfs::ChecksumType::Xxhash64);
        let mut bytes = Vec::new();
        for (threads, verify) in [
            (1, Verify::Encoded),
            (3, Verify::Everything),
            (2, Verify::Nothing),
        ] {
            let options = options.clone().verify(verify);
            let kept = make(&top(&first), &second, &options, threads);
            assert_eq!(kept.compressed, made.compressed, "{name}");
            assert_eq!(manifest_of(&top(&second)), expected, "{name}");
            assert!(encoded(&top(&first)) == encoded(&top(&second)), "{name}");
            check(&second);
            bytes.push(std::fs::read(&second).unwrap());
        }
        assert!(bytes[0] == bytes[1] && bytes[0] == bytes[2], "{name}");
        let encoded_again = with(None, false).keep_extents(false);
        let encoded_again = make(&top(&first), &second, &encoded_again, 2);
        assert_eq!(
            (encoded_again.image.kept.count, encoded_again.compressed),
            (0, 0),
            "{name}"
        );
        assert_eq!(manifest_of(&top(&second)), expected, "{name}");
        check(&second);
    }
}

#[test]
fn blocks_of_a_squashfs_image_would_be_kept_but_for_what_btrfs_cannot_hold() {
    // A frame with a window that the kernel refuses, as only other encoders write it.
    let dir = TempDir::new();
    let image = dir.join("image");
    let mut source = MemoryFs::new();
    let root = source.root();
    let text = b"a window of one MiB ".repeat(6000);
    let file = source.add_file(root, "wide", &text[..100_000]);
    // RFC 8878: no content size, window byte 10 << 3, an empty last block.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0, 10 << 3, 1, 0, 0];
    let extent = Extent {
        offset: 0,
        len: 100_000,
        kind: ExtentKind::Encoded(tree::Encoding {
            algorithm: codec::Algorithm::Zstd,
            stored_len: frame.len() as u64,
            unencoded_len: 100_000,
            unencoded_offset: 0,
        }),
        id: Some(ExtentId(1)),
    };
    source.add_encoded(file, extent, &frame);
    for verify in [Verify::Encoded, Verify::Nothing] {
        let options = Options::default().verify(verify);
        let summary = make(&source, &image, &options, 1);
        assert_eq!((summary.image.kept.count, summary.compressed), (0, 1));
        assert_eq!(manifest_of(&top(&image)), manifest_of(&source));
        check(&image);
    }
}

#[test]
fn extents_whose_checksum_matches_are_kept_without_decoding_them() {
    let dir = TempDir::new();
    let (first, second) = (dir.join("first"), dir.join("second"));
    let mut source = MemoryFs::new();
    let root = source.root();
    let content = b"what LZO makes smaller ".repeat(2000);
    let file = source.add_file(root, "file", &content[..40_000]);
    let extent = Extent {
        offset: 0,
        len: 40_000,
        kind: ExtentKind::Encoded(tree::Encoding {
            algorithm: codec::Algorithm::LzoBtrfs { sector_bytes: 4096 },
            stored_len: 4096,
            unencoded_len: 40_960,
            unencoded_offset: 0,
        }),
        id: Some(ExtentId(1)),
    };
    // No LZO: nothing decodes it.
    let garbage = [0xa5; 4096];
    source.add_encoded(file, extent, &garbage);
    let options = |verify| Options::default().verify(verify);
    let made = make(&source, &first, &options(Verify::Nothing), 1);
    let kept = |decoded, by_checksum| KeptCount {
        count: 1,
        decoded,
        by_checksum,
    };
    assert_eq!(made.image.kept, kept(0, 0));
    for threads in [1, 2] {
        let made = make(&top(&first), &second, &options(Verify::Encoded), threads);
        assert_eq!(made.image.kept, kept(0, 1));
        let copied = encoded(&top(&second));
        assert!(copied == encoded(&top(&first)) && copied.len() == 1);
    }
    // Only a check that decodes finds it.
    let check = |data| {
        let options = tree::CheckOptions::EVERYTHING.data(data);
        let check = open(&second).check(options, Parallel::new(1), &NoProgress, &mut |_| {});
        check.unwrap().findings
    };
    assert_eq!(check(tree::DataCheck::Checksums), 0);
    assert_eq!(check(tree::DataCheck::Decode), 1);
    // What is asked to be decoded must decode, and so must what has no checksum.
    let output = || Output::create(&dir.join("third"), true).unwrap();
    let fails = |fs: &dyn FileSystem, verify| {
        let inventory = Inventory::of(fs, &Limits::default()).unwrap();
        let (options, parallel) = (options(verify), Parallel::new(2));
        btrfs::create(&inventory, &options, parallel, &NoProgress, &output()).is_err()
    };
    assert!(fails(&top(&first), Verify::Everything));
    assert!(!fails(&top(&first), Verify::Encoded));
}

#[test]
fn shared_extents_stay_shared() {
    let dir = TempDir::new();
    let (first, second) = (dir.join("first"), dir.join("second"));
    let mut source = MemoryFs::new();
    let (root, mut rng) = (source.root(), Rng::new(5));
    for number in 0..4 {
        let dir = source.add_dir(root, format!("{number}"));
        let mut same = Rng::new(77);
        source.add_file(dir, "noise", &same.bytes(700_001));
        source.add_file(dir, "text", &b"the same in all ".repeat(30_000));
        source.add_file(dir, "sector", &same.bytes(4095));
        source.add_file(dir, "own", &rng.bytes(5000));
    }
    let expected = manifest_of(&source);
    let sums = |summary: &CreateSummary| (summary.image.data_bytes, summary.extents);
    for compression in [None, Some(Settings::Zlib { level: 1 })] {
        let made = make(&source, &first, &with(compression, false), 2);
        assert_eq!(made.image.duplicates, 9);
        let options = with(compression, false).duplicates(false);
        let alone = make(&source, &second, &options, 2);
        assert!(alone.image.data_bytes > 3 * made.image.data_bytes / 2);
        let source = top(&first);
        for (keep_extents, threads) in [(true, 1), (true, 3), (false, 2)] {
            let options = options.clone().keep_extents(keep_extents);
            let copied = make(&source, &second, &options, threads);
            assert_eq!(sums(&copied), sums(&made), "{keep_extents}");
            assert_eq!(manifest_of(&top(&second)), expected);
            assert_eq!(places(&top(&second)).len(), places(&source).len());
            check(&second);
        }
    }
    let _ = Arc::strong_count(&open(&first));
}

/// Decoded length of an extent.
const EXTENT_BYTES: usize = 128 << 10;

/// Adds a file whose extents are stored as zlib streams; an extent smaller than a sector is inline.
fn add_encoded(fs: &mut MemoryFs, name: &str, len: usize) -> Ino {
    let content = &name.repeat(len.div_ceil(name.len())).into_bytes()[..len];
    let file = fs.add_file(fs.root(), name, content);
    let mut encoder = Encoder::new(&Settings::Zlib { level: 6 }).unwrap();
    for (index, shown) in content.chunks(EXTENT_BYTES).enumerate() {
        let in_a_tree = len < 4096;
        let mut unencoded = shown.to_vec();
        if !in_a_tree {
            unencoded.resize(shown.len().next_multiple_of(4096), 0);
        }
        let mut stored = vec![0; unencoded.len()];
        let stored_len = encoder.compress(&mut stored, &unencoded).unwrap();
        stored.truncate(if in_a_tree {
            stored_len
        } else {
            stored_len.next_multiple_of(4096)
        });
        let offset = (index * EXTENT_BYTES) as u64;
        let extent = Extent {
            offset,
            len: shown.len() as u64,
            kind: ExtentKind::Encoded(tree::Encoding {
                algorithm: codec::Algorithm::Zlib,
                stored_len: stored.len() as u64,
                unencoded_len: unencoded.len() as u64,
                unencoded_offset: 0,
            }),
            id: (!in_a_tree).then_some(ExtentId(file.0 << 32 | offset)),
        };
        fs.add_encoded(file, extent, &stored);
    }
    file
}

/// A tree of compressed extents, five of them readable and not inline, and on request files whose
/// stored bytes cannot be read past certain offsets.
fn encoded_tree(has_bad: bool) -> (MemoryFs, Vec<(Ino, u64)>) {
    let mut fs = MemoryFs::new();
    add_encoded(&mut fs, "a good", 2 * EXTENT_BYTES + 5000);
    add_encoded(&mut fs, "b good", EXTENT_BYTES + 70_001);
    add_encoded(&mut fs, "small good", 1500);
    fs.add_file(fs.root(), "plain", &Rng::new(3).bytes(9999));
    let mut bad = Vec::new();
    if has_bad {
        let late = 2 * EXTENT_BYTES;
        for (name, len, from) in [
            ("aa bad at once", EXTENT_BYTES + 5000, 0),
            ("bad late", late + 12_345, late as u64),
            ("small bad", 1600, 0),
        ] {
            bad.push((add_encoded(&mut fs, name, len), from));
        }
    }
    (fs, bad)
}

#[test]
fn stored_bytes_that_cannot_be_read_end_all_or_are_left_out() {
    let dir = TempDir::new();
    let image = dir.join("image");
    let options = |skip_unreadable| Options::default().skip_unreadable(skip_unreadable);
    let (good, _) = encoded_tree(false);
    let expected = manifest_of(&good);
    assert_eq!(make(&good, &image, &options(false), 2).image.kept.count, 5);
    let (whole, bad) = encoded_tree(true);
    // All extents are copied as they are stored: nothing else of these files is read.
    assert_eq!(
        make(&whole, &image, &options(false), 2).image.kept.count,
        5 + 2 + 3
    );
    std::fs::remove_file(&image).unwrap();
    let source = HookedFs::new(whole, move |file, offset| {
        if bad.iter().any(|&(bad, from)| bad == file && offset >= from) {
            return Err(Error::InvalidInput("the medium is broken"));
        }
        Ok(())
    });
    let inventory = Inventory::of(&source, &Limits::default()).unwrap();
    let mut images = Vec::new();
    for threads in [1, 3] {
        let output = Output::create(&image, true).unwrap();
        let (parallel, strict) = (Parallel::new(threads), options(false));
        let made = btrfs::create(&inventory, &strict, parallel, &NoProgress, &output);
        let words = made.unwrap_err().to_string();
        let named = |name: &str| words.contains(&format!("{name}: the medium is broken"));
        assert!(
            ["aa bad at once", "bad late", "small bad"]
                .iter()
                .any(|name| named(name)),
            "{words}"
        );
        drop(output);
        assert!(!image.exists());

        let summary = make(&source, &image, &options(true), threads);
        let mut lost: Vec<String> = summary
            .image
            .unreadable
            .iter()
            .map(|(path, error)| format!("{}: {error}", path.escape_ascii()))
            .collect();
        lost.sort_unstable();
        let words = ["aa bad at once", "bad late", "small bad"];
        assert_eq!(
            lost,
            words.map(|name| format!("{name}: the medium is broken"))
        );
        assert_eq!(summary.image.kept.count, 5);
        assert_eq!(manifest_of(&top(&image)), expected);
        assert!(encoded(&top(&image)).len() == 4);
        check(&image);
        images.push(std::fs::read(&image).unwrap());
        std::fs::remove_file(&image).unwrap();
    }
    assert!(images[0] == images[1]);
}

/// A file that is left out gives back what it added to an extent of an earlier one, and files that
/// share an extent with it are read themselves.
#[test]
fn files_that_share_extents_with_one_left_out_stay_whole() {
    const PART: u64 = 8192;
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let none = fs.add_file(root, "0", b"");
    let extent = |offset, len, kind, id| Extent {
        offset,
        len,
        kind,
        id,
    };
    fs.add_encoded(none, extent(0, 1, ExtentKind::Hole, None), b"");
    fs.lie_about_extents(none, Vec::new());
    let part = |number: u64| Rng::new(number).bytes(PART as usize);
    let mut add = |name: &str, numbers: &[u64]| {
        let content: Vec<u8> = numbers.iter().flat_map(|&number| part(number)).collect();
        let file = fs.add_file(root, name, &content);
        let plain = ExtentKind::Plain { stored_offset: 0 };
        let extents = (0..).zip(numbers).map(|(index, &number)| {
            let id = Some(ExtentId(number << 30));
            extent(index * PART, PART, plain, id)
        });
        fs.lie_about_extents(file, extents.collect());
        file
    };
    add("a", &[1]);
    // Begins as another file, goes on with bytes of its own, and ends with what yet another one
    // shares.
    let bad = add("b", &[1, 2, 3]);
    add("c", &[4]);
    add("d", &[3]);
    let source = HookedFs::new(fs, move |file, offset| {
        if file == bad && offset >= 2 * PART {
            return Err(Error::InvalidInput("the medium is broken"));
        }
        Ok(())
    });
    let dir = TempDir::new();
    let image = dir.join("image");
    let options = Options::default().skip_unreadable(true);
    let mut images = Vec::new();
    for threads in [1, 3] {
        let summary = make(&source, &image, &options, threads);
        let lost = summary.image.unreadable.iter();
        let lost: Vec<&[u8]> = lost.map(|(path, _)| &**path).collect();
        assert_eq!(lost, [b"b"]);
        let tree = top(&image);
        let (_, found) = findings(tree.btrfs());
        assert!(found.is_empty(), "{found:#?}");
        check(&image);
        for (name, number) in [("a", 1), ("c", 4), ("d", 3)] {
            let file = tree.lookup(tree.root(), name.as_bytes()).unwrap().ino;
            let mut content = vec![0; PART as usize];
            assert_eq!(tree.read_at(file, 0, &mut content).unwrap(), content.len());
            assert!(content == part(number), "{name}");
        }
        images.push(std::fs::read(&image).unwrap());
        std::fs::remove_file(&image).unwrap();
    }
    assert!(images[0] == images[1]);
}
