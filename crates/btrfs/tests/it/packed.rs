//! What a source has encoded or shares stays so.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use btrfs::{Options, Subvolume, Summary};
use codec::Settings;
use testkit::{MemoryFs, Rng, TempDir};
use tree::{Extent, ExtentId, ExtentKind, FileKind, FileSystem, Inventory, Limits};

use crate::images::{algorithms, check, make, manifest_of, memory_tree, open, with};

/// By path, the encoded extents of each file: algorithm and stored bytes, without the padding of those that are not in a
/// tree.
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

/// The places of stored data that all files show.
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
        // Other settings and another layout must not matter.
        let options = Options {
            nodesize: 4 << 10,
            checksum: btrfs::ChecksumType::Xxhash64,
            ..with(None, false)
        };
        let mut bytes = Vec::new();
        for (threads, verify) in [(1, true), (3, true), (2, false)] {
            let options = Options {
                verify,
                ..options.clone()
            };
            let kept = make(&top(&first), &second, &options, threads);
            assert_eq!(kept.compressed, made.compressed, "{name}");
            assert_eq!(manifest_of(&top(&second)), expected, "{name}");
            assert!(encoded(&top(&first)) == encoded(&top(&second)), "{name}");
            check(&second);
            bytes.push(std::fs::read(&second).unwrap());
        }
        assert!(bytes[0] == bytes[1] && bytes[0] == bytes[2], "{name}");
        let anew = Options {
            keep_extents: false,
            ..with(None, false)
        };
        let anew = make(&top(&first), &second, &anew, 2);
        assert_eq!((anew.image.kept, anew.compressed), (0, 0), "{name}");
        assert_eq!(manifest_of(&top(&second)), expected, "{name}");
        check(&second);
    }
}

#[test]
fn blocks_of_a_squashfs_image_would_be_kept_but_for_what_btrfs_cannot_hold() {
    // A frame with a window that the kernel refuses, as only foreign writers make it.
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
    for verify in [true, false] {
        let options = Options {
            verify,
            ..Options::default()
        };
        let summary = make(&source, &image, &options, 1);
        assert_eq!((summary.image.kept, summary.compressed), (0, 1));
        assert_eq!(manifest_of(&top(&image)), manifest_of(&source));
        check(&image);
    }
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
    let sums = |summary: &Summary| (summary.image.data_bytes, summary.extents);
    for compression in [None, Some(Settings::Zlib { level: 1 })] {
        let made = make(&source, &first, &with(compression, false), 2);
        assert_eq!(made.image.duplicates, 9);
        let options = Options {
            duplicates: false,
            ..with(compression, false)
        };
        let alone = make(&source, &second, &options, 2);
        assert!(alone.image.data_bytes > 3 * made.image.data_bytes / 2);
        let source = top(&first);
        for (keep_extents, threads) in [(true, 1), (true, 3), (false, 2)] {
            let options = Options {
                keep_extents,
                ..options.clone()
            };
            let copied = make(&source, &second, &options, threads);
            assert_eq!(sums(&copied), sums(&made), "{keep_extents}");
            assert_eq!(manifest_of(&top(&second)), expected);
            assert_eq!(places(&top(&second)).len(), places(&source).len());
            check(&second);
        }
    }
    let _ = Arc::strong_count(&open(&first));
}
