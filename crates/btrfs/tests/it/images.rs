//! Source trees for images, and what is done with every image.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use btrfs::{Btrfs, ChecksumType, CreateSummary, Options, Profile, create};
use codec::Settings;
use testkit::{MemoryFs, Rng, tool};
use tree::diff::diff;
use tree::manifest::Manifest;
use tree::usage::{All, Totals, measure};
use tree::{
    Aspects, Device, DirEntry, FileKind, FileSystem, Inventory, Limits, NoProgress, Output,
    Parallel, Time,
};

/// Creates an image of a tree.
pub(crate) fn make(
    source: &dyn FileSystem,
    image: &Path,
    options: &Options,
    threads: usize,
) -> CreateSummary {
    let inventory = Inventory::of(source, &Limits::default()).unwrap();
    let output = Output::create(image, true).unwrap();
    let parallel = Parallel::new(threads);
    let summary = create(&inventory, options, parallel, &NoProgress, &output).unwrap();
    output.commit().unwrap();
    summary
}

pub(crate) fn manifest_of(tree: &dyn FileSystem) -> Manifest {
    Manifest::of(tree, &Aspects::ALL).unwrap()
}

/// Compares two trees byte by byte, except for ranges that are holes in both.
pub(crate) fn assert_same(first: &dyn FileSystem, second: &dyn FileSystem, name: &str) {
    let mut found = Vec::new();
    let mut report = |difference| {
        found.push(difference);
        Ok(())
    };
    let parallel = Parallel::new(2);
    diff(
        first,
        second,
        &Aspects::ALL,
        parallel,
        &NoProgress,
        &mut report,
    )
    .unwrap();
    assert!(found.is_empty(), "{name}: {found:#?}");
}

/// The verdict of `btrfs check`, including data checksums.
pub(crate) fn check(image: &Path) -> bool {
    let Some(btrfs) = tool("btrfs") else {
        return false;
    };
    let output = btrfs
        .command()
        .args(["check", "--check-data-csum"])
        .arg(image)
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{words}\n{said}");
    assert!(said.contains("no error found"), "{words}\n{said}");
    assert!(!words.to_lowercase().contains("warning"), "{words}\n{said}");
    true
}

pub(crate) fn with(compression: Option<Settings>, force: bool) -> Options {
    Options::default().compression(compression).force(force)
}

pub(crate) fn algorithms() -> Vec<(&'static str, Option<Settings>)> {
    vec![
        ("none", None),
        ("zlib:3", Some(Settings::Zlib { level: 3 })),
        ("lzo", Some(Settings::Lzo)),
        ("lzo:9", Some(Settings::LzoOptimal { level: 9 })),
        ("zstd:-5", Some(Settings::Zstd { level: -5 })),
        ("zstd:1", Some(Settings::Zstd { level: 1 })),
        ("zstd:3", Some(Settings::Zstd { level: 3 })),
        ("zstd:9", Some(Settings::Zstd { level: 9 })),
        ("zstd:15", Some(Settings::Zstd { level: 15 })),
    ]
}

/// Options that change the layout: name, and change.
pub(crate) fn layouts() -> Vec<(String, Options)> {
    let mut all = Vec::new();
    for checksum in ChecksumType::ALL {
        for metadata in [Profile::Single, Profile::Dup] {
            let name = format!("{} {}", checksum.name(), metadata.name());
            let options = Options::default().checksum(checksum).metadata(metadata);
            all.push((name, options));
        }
    }
    for nodesize in [4 << 10, 8 << 10, 32 << 10, 64 << 10] {
        let options = Options::default().nodesize(nodesize);
        all.push((format!("node size {nodesize}"), options));
    }
    let options = Options::default().data(Profile::Dup);
    all.push(("data dup".to_owned(), options));
    all
}

/// A tree that any user can create, with all sizes around the limits.
pub(crate) fn memory_tree() -> MemoryFs {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let sizes = fs.add_dir(root, "sizes");
    let mut rng = Rng::new(6);
    for size in (0..5000)
        .step_by(97)
        .chain([1, 2047, 2048, 2049, 4095, 4096, 4097])
    {
        let text: Vec<u8> = (0..size).map(|n| b'a' + (n % 7) as u8).collect();
        fs.add_file(sizes, format!("text {size}"), &text);
        fs.add_file(sizes, format!("noise {size}"), &rng.bytes(size));
    }
    for size in [131_071, 131_072, 131_073, 400_000] {
        let text = b"all work and no play ".repeat(size / 21 + 1);
        fs.add_file(sizes, format!("long text {size}"), &text[..size]);
        fs.add_file(sizes, format!("long noise {size}"), &rng.bytes(size));
    }
    let mixed = [rng.bytes(200_000), vec![b'z'; 300_000], rng.bytes(50_000)].concat();
    fs.add_file(root, "mixed", &mixed);
    fs.add_file(root, "mixed again", &mixed);
    let many = fs.add_dir(root, "many");
    for number in 0..3000 {
        fs.add_file(many, format!("{number:0200}"), b"");
    }
    let linked = fs.add_file(root, "linked", &rng.bytes(10_000));
    let links = fs.add_dir(root, "links");
    // More names in one directory than fit in one item.
    for number in 0..400 {
        fs.link(links, format!("{number:0200}"), linked);
    }
    fs.link(root, "linked too", linked);
    fs.add_symlink(root, "symlink", b"some/where");
    fs.add_xattr(linked, b"user.one", b"1");
    fs.add_xattr(linked, b"user.two", &rng.bytes(2000));
    let names = fs.add_dir(root, "names");
    // Adding the generator polynomial of CRC-32C does not change the CRC: entries with equal
    // hashes.
    const GENERATOR: [u8; 5] = [0xf1, 0x76, 0xec, 0x05, 0x01];
    for places in [&[][..], &[0], &[1], &[2], &[0, 2]] {
        let mut name = *b"collide!";
        for &place in places {
            for (byte, flip) in name[place..].iter_mut().zip(GENERATOR) {
                *byte ^= flip;
            }
        }
        let file = fs.add_file(names, name, &name);
        let attribute = [&b"user."[..], &name].concat();
        fs.add_xattr(linked, &attribute, b"equal hashes");
        fs.add_xattr(file, b"user.name", &name);
    }
    fs.add_file(names, [0xff; 255], b"255 bytes, and no UTF-8");
    let special = fs.add_dir(root, "special");
    let rdev = Device {
        major: 4095,
        minor: 1_048_575,
    };
    fs.add_special(special, "character", FileKind::CharDevice, rdev);
    fs.add_special(special, "block", FileKind::BlockDevice, rdev);
    fs.add_special(special, "fifo", FileKind::Fifo, Device::default());
    fs.add_special(special, "socket", FileKind::Socket, Device::default());
    let times = fs.add_dir(root, "times");
    for seconds in [-5_000_000_000, -1, 0, 1 << 31, 1 << 32, 15_032_385_535] {
        for nanoseconds in [0, 1, 999_999_999] {
            let file = fs.add_file(times, format!("{seconds}.{nanoseconds}"), b"");
            let time = Time {
                seconds,
                nanoseconds,
            };
            let metadata = fs.metadata_mut(file);
            metadata.mtime = time;
            metadata.btime = Some(time);
            (metadata.uid, metadata.gid) = (u32::MAX - 1, 65_534);
            metadata.permissions = 0o7777;
        }
    }
    fs
}

/// Adds files that are mostly holes.
pub(crate) fn add_holes(fs: &mut MemoryFs) {
    let root = fs.root();
    let mut rng = Rng::new(13);
    let holes = fs.add_dir(root, "holes");
    let (start, end) = (rng.bytes(8192), rng.bytes(4096));
    fs.add_sparse(holes, "all", (1 << 30) + 1, &[]);
    fs.add_sparse(holes, "small", 100, &[]);
    fs.add_sparse(
        holes,
        "gibibyte",
        1 << 30,
        &[(0, &start), (500 << 20, &start), ((1 << 30) - 4096, &end)],
    );
}

/// Adds an attribute that fills a tree block.
pub(crate) fn add_largest_xattr(fs: &mut MemoryFs, nodesize: usize) {
    // struct btrfs_header, btrfs_item and btrfs_dir_item.
    let room = nodesize - 101 - 25 - 30;
    let root = fs.root();
    let file = fs.add_file(root, "largest attribute", b"");
    let name = b"user.largest";
    fs.add_xattr(file, name, &vec![7; room - name.len()]);
}

/// An image that can be read.
pub(crate) fn open(image: &Path) -> Arc<Btrfs> {
    let file = fs::File::open(image).unwrap();
    Arc::new(Btrfs::open(vec![Box::new(file)]).unwrap())
}

/// What all files of an image take.
pub(crate) fn usage(image: &Arc<Btrfs>) -> tree::Result<Totals> {
    let top = image.subvolume(5)?;
    let root = DirEntry {
        name: Box::default(),
        ino: top.root(),
        kind: FileKind::Directory,
    };
    measure(&top, &top, (&root, b""), &NoProgress, &mut All(Vec::new()))
}
