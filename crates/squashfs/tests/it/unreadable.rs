//! Unreadable files are left out and listed on request; nothing else is lost.

use std::fs::{self, File};

use codec::{Encoder, Settings};
use squashfs::{CreateSummary, Fragments, Options, Squashfs};
use testkit::{HookedFs, MemoryFs, TempDir};
use tree::manifest::Manifest;
use tree::{Aspects, CheckOptions, Error, FileSystem, Ino, NoProgress, Parallel};

use crate::keep::add_zlib;
use crate::sources::{make, text};

const BLOCK: usize = 4096;

fn options(fragments: Fragments) -> Options {
    Options::default()
        .compression(Some(Settings::Zstd { level: 1 }))
        .block_bytes(BLOCK as u32)
        .fragments(fragments)
        .skip_unreadable(true)
}

fn image_of(fs: &dyn FileSystem, options: &Options, threads: usize) -> (Vec<u8>, CreateSummary) {
    let out = TempDir::new();
    let summary = make(fs, &out.join("image"), options, threads).unwrap();
    (fs::read(out.join("image")).unwrap(), summary)
}

/// A tree of readable files, some of them with several names, and on request of unreadable ones:
/// their numbers, and the offsets at which reading starts to fail.
fn tree(bad: &[(&str, usize, u64)]) -> (MemoryFs, Vec<(Ino, u64)>) {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let sub = fs.add_dir(root, "sub");
    let mut files = Vec::new();
    for n in 0..30u64 {
        let content = text(n % 20, 1 + 900 * n as usize);
        let file = fs.add_file(sub, format!("good {n:02}"), &content);
        if n % 7 == 0 {
            fs.link(root, format!("link {n}"), file);
        }
    }
    for (seed, &(name, len, from)) in (100..).zip(bad) {
        let file = fs.add_file(sub, format!("good {name}"), &text(seed, len));
        fs.link(root, format!("also {name}"), file);
        files.push((file, from));
    }
    (fs, files)
}

/// A file system whose files cannot be read past certain offsets.
fn failing<F: FileSystem>(fs: F, bad: Vec<(Ino, u64)>) -> HookedFs<F> {
    HookedFs::new(fs, move |file, offset| {
        if bad.iter().any(|&(bad, from)| bad == file && offset >= from) {
            Err(Error::InvalidInput("the medium is broken"))
        } else {
            Ok(())
        }
    })
}

fn assert_holds(image: &[u8], must: &dyn FileSystem, what: &str) {
    let dir = TempDir::new();
    fs::write(dir.join("image"), image).unwrap();
    let ours = Squashfs::open(File::open(dir.join("image")).unwrap()).unwrap();
    let aspects = Aspects {
        mtime: false,
        ..Aspects::default()
    };
    let (is, must) = (Manifest::of(&ours, &aspects), Manifest::of(must, &aspects));
    let (is, must) = (is.unwrap(), must.unwrap());
    assert!(is == must, "{what}:\n{}", is.difference(&must));
    // Consecutive inode numbers, each where the export table says.
    let mut tell = |finding| panic!("{what}: {finding}");
    let options = CheckOptions::EVERYTHING;
    ours.check(options, Parallel::new(2), &NoProgress, &mut tell)
        .unwrap();
    for number in 1..=ours.superblock().inode_count {
        let ino = ours.by_number(number).unwrap().unwrap();
        assert_eq!(ours.number(ino).unwrap(), number, "{what}");
    }
}

/// Blocks of lost files leave no trace: the image equals that of the tree without them.
#[test]
fn files_of_blocks_leave_no_trace() {
    let bad = [
        ("00 at once", 10 * BLOCK, 0),
        ("11 late", 40 * BLOCK + 7, 30 * BLOCK as u64),
        ("29 last", 5 * BLOCK, 4 * BLOCK as u64),
    ];
    let (without, _) = tree(&[]);
    for fragments in [Fragments::None, Fragments::SmallFiles] {
        let options = options(fragments);
        let (must, _) = image_of(&without, &options, 1);
        for threads in [1, 3] {
            let (fs, bad) = tree(&bad);
            let (is, summary) = image_of(&failing(fs, bad), &options, threads);
            let lost: Vec<String> = summary
                .image
                .unreadable
                .iter()
                .map(|(path, error)| format!("{}: {error}", path.escape_ascii()))
                .collect();
            // Under their first names.
            let words = "the medium is broken";
            let expected = ["00 at once", "11 late", "29 last"];
            assert_eq!(lost, expected.map(|name| format!("also {name}: {words}")));
            assert!(is == must, "{fragments:?}, {threads} threads");
        }
        assert_holds(&must, &without, "without");
    }
}

#[test]
fn tails_and_equal_files_are_lost_alone() {
    let bad = [
        ("03 small", 700, 0),
        ("14 tail", 3 * BLOCK + 100, 3 * BLOCK as u64),
        ("15 in a block", 2 * BLOCK + 100, BLOCK as u64),
    ];
    let (without, _) = tree(&[]);
    for fragments in [Fragments::None, Fragments::SmallFiles, Fragments::Always] {
        let mut images = Vec::new();
        for threads in [1, 3] {
            let (fs, bad) = tree(&bad);
            let (image, summary) = image_of(&failing(fs, bad), &options(fragments), threads);
            assert_eq!(
                summary.image.unreadable.len(),
                3,
                "{:?}",
                summary.image.unreadable
            );
            assert_holds(&image, &without, &format!("{fragments:?}"));
            images.push(image);
        }
        assert!(images[0] == images[1], "{fragments:?}");
    }
}

/// When fragment blocks are copied from a source, an unreadable one takes every file in it with it.
#[test]
fn a_lost_fragment_of_an_image_takes_its_files_with_it() {
    let (fs, _) = tree(&[]);
    let dir = TempDir::new();
    let options = options(Fragments::SmallFiles);
    fs::write(dir.join("image"), image_of(&fs, &options, 1).0).unwrap();
    let open = || Squashfs::open(File::open(dir.join("image")).unwrap()).unwrap();
    let source = open();
    let sub = source.lookup(source.root(), b"sub").unwrap().ino;
    // The files smaller than a block, all in two fragments; each may be in either.
    let first = source.lookup(sub, b"good 00").unwrap().ino;
    let place = |ino| source.extents(ino, 0).unwrap()[0].id;
    let mut lost = Vec::new();
    for entry in source.read_dir(sub).unwrap() {
        if source.metadata(entry.ino).unwrap().size < BLOCK as u64
            && place(entry.ino) == place(first)
        {
            lost.push((entry.ino, 0));
        }
    }
    let count = lost.len();
    assert!(count > 2);
    let (image, summary) = image_of(&failing(open(), lost), &options, 2);
    assert_eq!(
        summary.image.unreadable.len(),
        count,
        "{:?}",
        summary.image.unreadable
    );
    fs::write(dir.join("second"), image).unwrap();
    let second = Squashfs::open(File::open(dir.join("second")).unwrap()).unwrap();
    let left = |fs: &Squashfs| {
        let sub = fs.lookup(fs.root(), b"sub").unwrap().ino;
        fs.read_dir(sub).unwrap().len()
    };
    assert_eq!(left(&second), left(&source) - count);
}

#[test]
fn without_being_asked_to_go_on_the_first_ends_it() {
    let (fs, bad) = tree(&[("11 late", 40 * BLOCK, 30 * BLOCK as u64)]);
    let out = TempDir::new();
    let options = options(Fragments::SmallFiles).skip_unreadable(false);
    let made = make(&failing(fs, bad), &out.join("image"), &options, 2);
    let words = made.unwrap_err().to_string();
    assert!(
        words.contains("also 11 late: the medium is broken"),
        "{words}"
    );
}

/// A tree of files that another format has compressed in blocks of 128 KiB, seven of them readable,
/// and on request of files whose stored bytes cannot be read past certain offsets.
fn encoded_tree(bad: &[(&str, usize, u64)]) -> (MemoryFs, Vec<(Ino, u64)>) {
    const BLOCK: usize = 128 << 10;
    let mut fs = MemoryFs::new();
    let mut encoder = Encoder::new(&Settings::Zlib { level: 6 }).unwrap();
    let mut add = |seed, name: &str, len| {
        let content = text(seed, len);
        let mut encode = |part: &&[u8]| {
            let mut stored = vec![0; part.len()];
            let len = encoder.compress(&mut stored, part).unwrap();
            stored.truncate(len);
            stored
        };
        let parts: Vec<&[u8]> = content.chunks(BLOCK).collect();
        let stored: Vec<Vec<u8>> = parts.iter().map(&mut encode).collect();
        let extents = parts.iter().zip(&stored);
        let extents: Vec<(usize, &[u8])> = extents
            .map(|(part, stored)| (part.len(), &stored[..]))
            .collect();
        add_zlib(&mut fs, name, &content, &extents);
        fs.lookup(fs.root(), name.as_bytes()).unwrap().ino
    };
    add(1, "good one", 3 * BLOCK);
    add(2, "good two", 3 * BLOCK + 70_000);
    let mut failing = Vec::new();
    for (seed, &(name, len, from)) in (10..).zip(bad) {
        failing.push((add(seed, name, len), from));
    }
    fs.add_file(fs.root(), "plain", &text(3, 5000));
    (fs, failing)
}

/// Blocks copied from another format may be unreadable too.
#[test]
fn stored_blocks_that_cannot_be_read_leave_no_trace() {
    let bad = [
        ("bad at once", 200_000, 0),
        ("good for long", 1_000_000, 7 << 17),
    ];
    let options = |skip_unreadable| {
        options(Fragments::None)
            .compression(Some(Settings::Zlib { level: 9 }))
            .block_bytes(128 << 10)
            .skip_unreadable(skip_unreadable)
    };
    let (without, _) = encoded_tree(&[]);
    let (must, summary) = image_of(&without, &options(false), 1);
    assert_eq!(summary.image.kept.count, 7);
    // All blocks are copied as they are stored: nothing else of these files is read.
    let (whole, _) = encoded_tree(&bad);
    let (_, summary) = image_of(&whole, &options(false), 1);
    assert_eq!(summary.image.kept.count, 7 + 2 + 8);
    for threads in [1, 3] {
        let (fs, files) = encoded_tree(&bad);
        let source = failing(fs, files);
        let out = TempDir::new();
        let made = make(&source, &out.join("image"), &options(false), threads);
        let words = made.unwrap_err().to_string();
        assert!(words.contains(": the medium is broken"), "{words}");
        assert!(
            words.contains("bad at once") || words.contains("good for long"),
            "{words}"
        );
        assert!(!out.join("image").exists());

        let (is, summary) = image_of(&source, &options(true), threads);
        let lost: Vec<String> = summary
            .image
            .unreadable
            .iter()
            .map(|(path, error)| format!("{}: {error}", path.escape_ascii()))
            .collect();
        let words = "the medium is broken";
        assert_eq!(lost, bad.map(|(name, ..)| format!("{name}: {words}")));
        assert_eq!(summary.image.kept.count, 7);
        assert!(is == must, "{threads} threads");
    }
    assert_holds(&must, &without, "without");
}

/// The metadata blocks of the directory table: where their stored bytes begin and end.
fn directory_blocks(image: &[u8]) -> Vec<std::ops::Range<usize>> {
    let word = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap()) as usize;
    // The tables of directories and of fragments begin here.
    let (mut at, end) = (word(72), word(80).min(word(48)).min(word(56)).min(word(88)));
    let mut blocks = Vec::new();
    while at + 2 < end {
        let header = usize::from(u16::from_le_bytes([image[at], image[at + 1]]));
        let start = at + 2;
        at = start + (header & 0x7fff);
        blocks.push(start..at);
    }
    blocks
}

#[test]
fn a_bad_block_of_a_directory_costs_the_names_in_it_only() {
    let mut fs = MemoryFs::new();
    let sub = fs.add_dir(fs.root(), "sub");
    for n in 0..6000 {
        fs.add_file(sub, format!("a name of some length, number {n:05}"), b"");
    }
    let (mut image, _) = image_of(&fs, &options(Fragments::None), 1);
    let blocks = directory_blocks(&image);
    assert!(blocks.len() > 20, "{}", blocks.len());
    for bad in [1, 7, 15] {
        let whole = image.clone();
        image[blocks[bad].clone()].fill(0xff);
        let dir = TempDir::new();
        fs::write(dir.join("image"), &image).unwrap();
        let file = File::open(dir.join("image")).unwrap();
        let squashfs = Squashfs::open_at(file, 0, &tree::Limits::default()).unwrap();
        let sub = squashfs.lookup(squashfs.root(), b"sub").unwrap().ino;
        assert!(squashfs.read_dir(sub).is_err());
        let (entries, errors) = squashfs.list_readable(sub);
        assert!(!errors.is_empty());
        let lost = 6000 - entries.len();
        // A run that reaches into the block goes with it, up to where the index finds the next one.
        assert!((1..1500).contains(&lost), "block {bad}: {lost} names lost");
        for entry in &entries {
            let number = str::from_utf8(&entry.name[30..]).unwrap();
            assert!(number.parse::<u32>().unwrap() < 6000);
            assert_eq!(squashfs.metadata(entry.ino).unwrap().size, 0);
        }
        assert!(entries.is_sorted_by(|one, other| one.name < other.name));
        image = whole;
    }
}
