//! Images that we create, read by us and checked by `btrfs check`.

use std::fs::{self, FileTimes};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use btrfs::{Options, Rule};
use codec::Settings;
use testkit::{HookedFs, MemoryFs, Rng, TempDir};
use tree::edit::Patterns;
use tree::{
    ExtentKind, FileAttributes, FileSystem, HostDir, Ino, Inventory, Limits, NoProgress, Output,
    Parallel, Time,
};

use crate::images::{
    add_largest_xattr, algorithms, check, layouts, make, manifest_of, memory_tree, open, with,
};

#[test]
fn images_of_every_algorithm_are_read_back_and_pass_the_check() {
    let dir = TempDir::new();
    let source = memory_tree();
    let expected = manifest_of(&source);
    for (name, compression) in algorithms() {
        for force in [false, true] {
            let image = dir.join("image");
            let summary = make(&source, &image, &with(compression, force), 2);
            assert_eq!(summary.compressed > 0, compression.is_some(), "{name}");
            let tree = open(&image).subvolume(5).unwrap();
            assert_eq!(manifest_of(&tree), expected, "{name} {force}");
            check(&image);
        }
    }
}

#[test]
fn images_of_every_layout_are_read_back_and_pass_the_check() {
    let dir = TempDir::new();
    let source = memory_tree();
    let expected = manifest_of(&source);
    for (name, options) in layouts() {
        let image = dir.join("image");
        make(&source, &image, &options, 2);
        assert_eq!(
            manifest_of(&open(&image).subvolume(5).unwrap()),
            expected,
            "{name}"
        );
        check(&image);
    }
}

#[test]
fn bytes_do_not_depend_on_threads() {
    let dir = TempDir::new();
    let source = memory_tree();
    let options = Options::default();
    make(&source, &dir.join("one"), &options, 1);
    let one = fs::read(dir.join("one")).unwrap();
    for threads in [2, 8] {
        make(&source, &dir.join("many"), &options, threads);
        assert!(one == fs::read(dir.join("many")).unwrap(), "{threads}");
    }
    let other = options.uuid(Some([7; 16]));
    make(&source, &dir.join("other"), &other, 2);
    assert!(one != fs::read(dir.join("other")).unwrap());
}

#[test]
fn an_empty_tree_and_one_over_the_second_superblock_pass_the_check() {
    let dir = TempDir::new();
    let image = dir.join("image");
    make(&MemoryFs::new(), &image, &Options::default(), 1);
    check(&image);
    let mut source = MemoryFs::new();
    let root = source.root();
    let mut rng = Rng::new(11);
    for name in ["a", "b", "c"] {
        source.add_file(root, name, &rng.bytes(30 << 20));
    }
    let summary = make(&source, &image, &with(None, false), 2);
    assert!(summary.extents < 10, "{summary:?}");
    check(&image);
    assert_eq!(
        manifest_of(&open(&image).subvolume(5).unwrap()),
        manifest_of(&source)
    );
}

#[test]
fn an_attribute_that_fills_a_tree_block_fits_and_a_longer_one_is_listed() {
    let dir = TempDir::new();
    let image = dir.join("image");
    for nodesize in [4 << 10, 16 << 10, 64 << 10] {
        let mut source = MemoryFs::new();
        // The length of an attribute is a 16-bit number on disk.
        let largest = nodesize.min(32 << 10);
        add_largest_xattr(&mut source, largest);
        let options = Options::default().nodesize(nodesize as u32);
        let summary = make(&source, &image, &options, 1);
        assert_eq!(summary.image.lost_xattrs, []);
        let tree = open(&image).subvolume(5).unwrap();
        assert_eq!(manifest_of(&tree), manifest_of(&source));
        check(&image);
    }
    let mut source = MemoryFs::new();
    add_largest_xattr(&mut source, (16 << 10) + 1);
    let summary = make(&source, &image, &Options::default(), 1);
    let lost = (b"largest attribute".to_vec(), b"user.largest".to_vec());
    assert_eq!(summary.image.lost_xattrs, [lost]);
    check(&image);
}

#[test]
fn free_space_is_what_was_asked_for() {
    let dir = TempDir::new();
    let image = dir.join("image");
    let source = memory_tree();
    let made = |slack, size| {
        let options = Options::default().slack(slack).size(size);
        let summary = make(&source, &image, &options, 2);
        check(&image);
        assert_eq!(
            summary.image.image_bytes,
            fs::metadata(&image).unwrap().len()
        );
        summary
    };
    let tight = made(Some(0), None);
    // The first MiB, and copies of trees; no more than the padding to multiples of 64 KiB.
    let used = tight.image.data_bytes + 2 * tight.metadata_bytes + (1 << 20);
    assert!(tight.image.image_bytes < used + (512 << 10), "{tight:?}");
    assert!(!tight.is_writable);
    let usual = made(None, None);
    assert!(!usual.is_writable && usual.image.image_bytes > tight.image.image_bytes);
    let roomy = made(Some(64 << 20), None);
    assert!(roomy.is_writable && roomy.image.image_bytes > tight.image.image_bytes + (64 << 20));
    let sized = made(None, Some(100 << 20));
    assert_eq!(sized.image.image_bytes, 100 << 20);
    assert!(sized.is_writable);
    // By default, a sufficiently large image has the free space that Linux wants.
    let mut large = MemoryFs::new();
    let (root, bytes) = (large.root(), Rng::new(3).bytes(60 << 20));
    for number in 0..10 {
        large.add_file(root, number.to_string(), &[&bytes[..], &[number]].concat());
    }
    let summary = make(&large, &image, &with(None, false), 2);
    assert!(summary.is_writable);
    let used = summary.image.data_bytes + 2 * summary.metadata_bytes;
    assert!(summary.image.image_bytes < used / 100 * 105);
    let too_small = Options::default().size(Some(8 << 20));
    let inventory = Inventory::of(&large, &Limits::default()).unwrap();
    let output = Output::create(&dir.join("never"), false).unwrap();
    let parallel = Parallel::new(2);
    let made = btrfs::create(&inventory, &too_small, parallel, &NoProgress, &output);
    assert!(made.is_err());
    drop(output);
    assert!(!dir.join("never").exists());
}

#[test]
fn rules_choose_how_files_are_encoded() {
    let dir = TempDir::new();
    let image = dir.join("image");
    let mut source = MemoryFs::new();
    let root = source.root();
    let sub = source.add_dir(root, "sub");
    let text = b"all work and no play ".repeat(20_000);
    let files = [
        source.add_file(root, "plain.raw", &text),
        source.add_file(sub, "a.fast", &text),
        source.add_file(sub, "usual", &text),
        source.add_file(root, "written in place", &text),
        source.add_file(root, "marked", &text),
    ];
    source.metadata_mut(files[3]).attributes = FileAttributes(0x0080_0000);
    source.metadata_mut(files[4]).attributes = FileAttributes(0x400);
    let rule = |pattern: &str, compression| Rule {
        patterns: Arc::new(Patterns::new([pattern])),
        compression,
    };
    let options = Options::default()
        .rules(vec![
            rule("**/*.raw", None),
            rule("sub/*.fast", Some(Settings::Lzo)),
            rule("sub/*.fast", Some(Settings::Zlib { level: 1 })),
        ])
        .duplicates(false);
    make(&source, &image, &options, 2);
    check(&image);
    let tree = open(&image).subvolume(5).unwrap();
    assert_eq!(manifest_of(&tree), manifest_of(&source));
    let algorithm = |dir: Ino, name: &str| {
        let file = tree.lookup(dir, name.as_bytes()).unwrap().ino;
        match tree.extents(file, 0).unwrap()[0].kind {
            ExtentKind::Encoded(encoding) => format!("{:?}", encoding.algorithm),
            _ => "none".to_owned(),
        }
    };
    let (root, sub) = (tree.root(), tree.lookup(tree.root(), b"sub").unwrap().ino);
    assert_eq!(algorithm(root, "plain.raw"), "none");
    assert_eq!(algorithm(sub, "a.fast"), "LzoBtrfs { sector_bytes: 4096 }");
    assert_eq!(algorithm(sub, "usual"), "Zstd");
    assert_eq!(algorithm(root, "written in place"), "none");
    assert_eq!(algorithm(root, "marked"), "none");
}

#[test]
fn what_cannot_be_read_ends_all_or_is_left_out() {
    let dir = TempDir::new();
    let mut rng = Rng::new(12);
    let mut source = MemoryFs::new();
    let root = source.root();
    let first = source.add_file(root, "a large", &rng.bytes(3_000_000));
    let second = source.add_file(root, "b small", b"text");
    source.link(root, "c small too", second);
    let third = source.add_file(root, "d noise", &rng.bytes(3000));
    let expected = manifest_of(&source);
    let mut tree = source;
    let bad = [
        (tree.add_file(root, "bad at once", &rng.bytes(500_000)), 0),
        (
            tree.add_file(root, "bad late", &rng.bytes(900_000)),
            700_000,
        ),
        (tree.add_file(root, "bad small", b"short"), 0),
    ];
    tree.link(root, "bad small too", bad[2].0);
    let after = tree.add_file(root, "z", &rng.bytes(600_000));
    let _ = (first, third, after);
    let source = HookedFs::new(tree, move |file, offset| {
        if bad.iter().any(|&(bad, from)| bad == file && offset >= from) {
            return Err(std::io::Error::other("the medium is broken").into());
        }
        Ok(())
    });
    let inventory = Inventory::of(&source, &Limits::default()).unwrap();
    for threads in [1, 3] {
        let output = Output::create(&dir.join("image"), true).unwrap();
        let parallel = Parallel::new(threads);
        let options = with(None, false);
        let made = btrfs::create(&inventory, &options, parallel, &NoProgress, &output);
        let words = made.unwrap_err().to_string();
        assert!(words.contains("the medium is broken"), "{words}");
        drop(output);
        assert!(!dir.join("image").exists());
    }
    let mut images = Vec::new();
    for threads in [1, 3] {
        let options = with(None, false).skip_unreadable(true);
        let summary = make(&source, &dir.join("image"), &options, threads);
        let paths: Vec<&[u8]> = summary.image.unreadable.iter().map(|bad| &*bad.0).collect();
        assert_eq!(paths, [&b"bad at once"[..], b"bad late", b"bad small"]);
        check(&dir.join("image"));
        let tree = open(&dir.join("image")).subvolume(5).unwrap();
        let names = tree.read_dir(tree.root()).unwrap();
        let names: Vec<&[u8]> = names.iter().map(|entry| &*entry.name).collect();
        assert_eq!(
            names,
            [
                &b"a large"[..],
                b"b small",
                b"c small too",
                b"d noise",
                b"z"
            ]
        );
        images.push(fs::read(dir.join("image")).unwrap());
        fs::remove_file(dir.join("image")).unwrap();
    }
    assert!(images[0] == images[1]);
    // The rest is unchanged.
    assert!(!expected.to_string().contains("bad"));
}

/// Changes to a file after the walk, while it is read: each gives an error that names it, and
/// leaves nothing at the destination.
#[test]
fn a_file_that_changes_while_it_is_read_is_named() {
    type Accident = fn(&Path) -> std::io::Result<()>;
    let accidents: [Accident; 3] = [
        |path| {
            let file = fs::File::options().write(true).open(path)?;
            file.set_len(file.metadata()?.len() / 2)
        },
        |path| {
            fs::File::options()
                .append(true)
                .open(path)?
                .write_all(b"more")
        },
        |path| {
            fs::File::options()
                .write(true)
                .open(path)?
                .write_all(b"other")
        },
    ];
    // Inline, in one extent, in several.
    for size in [100, 12_000, 300_000] {
        for (case, accident) in accidents.into_iter().enumerate() {
            let dir = TempDir::new();
            let victim = dir.join("victim");
            fs::write(&victim, Rng::new(5).bytes(size)).unwrap();
            let old = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(1 << 30));
            fs::File::options()
                .write(true)
                .open(&victim)
                .and_then(|file| file.set_times(old))
                .unwrap();
            let host = HostDir::open(dir.path()).unwrap();
            let done = AtomicBool::new(false);
            let source = HookedFs::new(host, move |_, _| {
                if !done.swap(true, Ordering::SeqCst) {
                    accident(&victim)?;
                }
                Ok(())
            });
            let inventory = Inventory::of(&source, &Limits::default()).unwrap();
            let out = TempDir::new();
            let output = Output::create(&out.join("image"), false).unwrap();
            let made = btrfs::create(
                &inventory,
                &Options::default(),
                Parallel::new(2),
                &NoProgress,
                &output,
            );
            let words = made.unwrap_err().to_string();
            assert!(
                words.contains("victim: ") && words.contains("changed while it was read"),
                "{size}, accident {case}: {words}"
            );
            drop(output);
            assert_eq!(fs::read_dir(out.path()).unwrap().count(), 0);
        }
    }
}

#[test]
fn names_of_one_hash_say_that_a_larger_node_size_holds_them() {
    // Adding the generator polynomial of CRC-32C at any places does not change the CRC.
    const GENERATOR: [u8; 5] = [0xf1, 0x76, 0xec, 0x05, 0x01];
    let names = (0u32..).filter_map(|places| {
        let mut name = *b"a name with hash collisions";
        for place in (0..12).filter(|place| places & 1 << place != 0) {
            for (byte, flip) in name[place..].iter_mut().zip(GENERATOR) {
                *byte ^= flip;
            }
        }
        (!name.contains(&0) && !name.contains(&b'/')).then_some(name)
    });
    let names: Vec<_> = names.take(1200).collect();
    let tree = |count: usize| {
        let mut fs = MemoryFs::new();
        let dir = fs.add_dir(fs.root(), "dir");
        for name in &names[..count] {
            fs.add_file(dir, name, b"");
        }
        fs
    };
    let dir = TempDir::new();
    let failed = |count, nodesize| {
        let fs = tree(count);
        let inventory = Inventory::of(&fs, &Limits::default()).unwrap();
        let options = Options::default().nodesize(nodesize);
        let output = Output::create(&dir.join("failed"), true).unwrap();
        let parallel = Parallel::new(1);
        let made = btrfs::create(&inventory, &options, parallel, &NoProgress, &output);
        made.unwrap_err().to_string()
    };
    let words = "store dir: limit reached: names with one hash together do not fit in a tree block; a larger node size, of up to 64 KiB, holds them";
    assert_eq!(failed(812, 16 << 10), words);
    assert_eq!(failed(812, 32 << 10), words);
    let options = Options::default().nodesize(64 << 10);
    let (image, source) = (dir.join("image"), tree(812));
    make(&source, &image, &options, 1);
    let copy = open(&image).subvolume(5).unwrap();
    assert_eq!(manifest_of(&copy), manifest_of(&source));
    check(&image);
    let words = "store dir: limit reached: names with one hash together do not fit in a tree block of any size";
    for nodesize in [16 << 10, 64 << 10] {
        assert_eq!(failed(1200, nodesize), words);
    }
}

#[test]
fn an_epoch_bounds_all_times_and_keeps_earlier_ones() {
    let time = |seconds| Time {
        seconds,
        nanoseconds: 5,
    };
    let epoch = Time {
        seconds: 1000,
        nanoseconds: 0,
    };
    let mut source = MemoryFs::new();
    let root = source.root();
    let (old, new) = (time(999), time(1000));
    for (name, times) in [
        ("early", [old; 4]),
        ("mixed", [old, new, new, old]),
        ("late", [new; 4]),
    ] {
        let file = source.add_file(root, name, b"");
        let metadata = source.metadata_mut(file);
        metadata.mtime = times[0];
        metadata.atime = Some(times[1]);
        metadata.ctime = Some(times[2]);
        metadata.btime = Some(times[3]);
    }
    let dir = TempDir::new();
    let options = Options::default().epoch(Some(1000));
    make(&source, &dir.join("image"), &options, 1);
    let tree = open(&dir.join("image")).subvolume(5).unwrap();
    let times = |name: &[u8]| {
        let file = tree.lookup(tree.root(), name).unwrap().ino;
        let metadata = tree.metadata(file).unwrap();
        let [atime, ctime, btime] = [metadata.atime, metadata.ctime, metadata.btime];
        [
            metadata.mtime,
            atime.unwrap(),
            ctime.unwrap(),
            btime.unwrap(),
        ]
    };
    assert_eq!(times(b"early"), [old; 4]);
    assert_eq!(times(b"mixed"), [old, epoch, epoch, old]);
    assert_eq!(times(b"late"), [epoch; 4]);
    let root = tree.metadata(tree.root()).unwrap();
    assert_eq!(root.mtime, epoch);
}
