//! Images that we make, read by us, checked by `btrfs check`, and (as root) mounted by Linux.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use btrfs::{Btrfs, ChecksumType, Options, Profile, Summary, create};
use codec::Settings;
use testkit::{
    Access, BackingFile, FsType, KernelLog, LoopDevice, MemoryFs, Mount, Rng, TempDir, nasty_tree,
    run, tool,
};
use tree::manifest::Manifest;
use tree::{FileSystem, HostDir, Inventory, Limits, NoProgress, Output, Parallel};

/// Makes an image of a tree.
fn make(source: &dyn FileSystem, image: &Path, options: &Options, threads: usize) -> Summary {
    let inventory = Inventory::of(source, &Limits::default()).unwrap();
    let output = Output::create(image, true).unwrap();
    let parallel = Parallel::new(threads);
    let summary = create(source, &inventory, options, parallel, &NoProgress, &output).unwrap();
    output.commit().unwrap();
    summary
}

fn manifest_of(tree: &dyn FileSystem) -> Manifest {
    let options = tree::Aspects {
        holes: true,
        ..tree::Aspects::default()
    };
    Manifest::of(tree, &options).unwrap()
}

/// The verdict of `btrfs check` with checksums of data.
fn check(image: &Path) -> bool {
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

fn with(compression: Option<Settings>, force: bool) -> Options {
    Options {
        compression,
        force,
        ..Options::default()
    }
}

fn algorithms() -> Vec<(&'static str, Option<Settings>)> {
    vec![
        ("none", None),
        ("zlib:3", Some(Settings::Zlib { level: 3 })),
        ("lzo", Some(Settings::Lzo)),
        ("zstd:-5", Some(Settings::Zstd { level: -5 })),
        ("zstd:1", Some(Settings::Zstd { level: 1 })),
        ("zstd:3", Some(Settings::Zstd { level: 3 })),
        ("zstd:9", Some(Settings::Zstd { level: 9 })),
        ("zstd:15", Some(Settings::Zstd { level: 15 })),
    ]
}

/// Options that change the layout: name, and what is changed.
fn layouts() -> Vec<(String, Options)> {
    let mut all = Vec::new();
    for checksum in ChecksumType::ALL {
        for metadata in [Profile::Single, Profile::Dup] {
            let name = format!("{} {}", checksum.name(), metadata.name());
            let options = Options {
                checksum,
                metadata,
                ..Options::default()
            };
            all.push((name, options));
        }
    }
    for nodesize in [4 << 10, 8 << 10, 32 << 10, 64 << 10] {
        let options = Options {
            nodesize,
            ..Options::default()
        };
        all.push((format!("node size {nodesize}"), options));
    }
    all
}

/// A tree that every user can make, with all sizes around the limits.
fn memory_tree() -> MemoryFs {
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
    // More names in one directory than one item holds.
    for number in 0..400 {
        fs.link(links, format!("{number:0200}"), linked);
    }
    fs.link(root, "linked too", linked);
    fs.add_symlink(root, "symlink", b"some/where");
    fs.add_xattr(linked, b"user.one", b"1");
    fs.add_xattr(linked, b"user.two", &rng.bytes(2000));
    fs
}

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
            let file = fs::File::open(&image).unwrap();
            let opened = Arc::new(Btrfs::open(vec![Box::new(file)]).unwrap());
            let tree = opened.subvolume(5).unwrap();
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
        let file = fs::File::open(&image).unwrap();
        let opened = Arc::new(Btrfs::open(vec![Box::new(file)]).unwrap());
        assert_eq!(
            manifest_of(&opened.subvolume(5).unwrap()),
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
    let other = Options {
        uuid: Some([7; 16]),
        ..options
    };
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
    let file = fs::File::open(&image).unwrap();
    let opened = Arc::new(Btrfs::open(vec![Box::new(file)]).unwrap());
    assert_eq!(
        manifest_of(&opened.subvolume(5).unwrap()),
        manifest_of(&source)
    );
}

/// A size that leaves Linux room for changes.
const ROOM: Option<u64> = Some(256 << 20);

/// Mounts the image, compares, scrubs, changes it and checks again.
fn prove_to_linux(image: &Path, expected: &Manifest, name: &str) {
    let mut log = KernelLog::watch();
    let mount = Mount::read_only(image, FsType::Btrfs);
    assert_eq!(
        &manifest_of(&HostDir::open(mount.path()).unwrap()),
        expected,
        "{name}"
    );
    log.assert_quiet(&mount);
    mount.unmount();
    let device = LoopDevice::attach(BackingFile::existing(image), Access::ReadWrite);
    let mount = Mount::new(device, FsType::Btrfs, "");
    // The kernel scrubs nothing that is mounted read-only.
    let scrub = run(Command::new("btrfs")
        .args(["scrub", "start", "-B"])
        .arg(mount.path()));
    let said = String::from_utf8_lossy(&scrub.stdout);
    assert!(said.contains("no errors found"), "{name}: {said}");
    let file = mount.path().join("written by Linux");
    fs::write(&file, b"text ".repeat(300)).unwrap();
    let victim = fs::read_dir(mount.path())
        .unwrap()
        .map(|entry| entry.unwrap());
    for entry in victim.filter(|entry| entry.file_type().unwrap().is_file()) {
        fs::remove_file(entry.path()).unwrap();
    }
    run(Command::new("sync").arg("-f").arg(mount.path()));
    log.assert_quiet(&mount);
    mount.unmount();
    check(image);
}

#[test]
#[ignore = "needs root"]
fn linux_mounts_scrubs_and_changes_what_we_make() {
    let dir = TempDir::new();
    let image = dir.join("image");
    let source = memory_tree();
    let expected = manifest_of(&source);
    for (name, compression) in algorithms() {
        for force in [false, true] {
            let options = Options {
                size: ROOM,
                ..with(compression, force)
            };
            make(&source, &image, &options, 2);
            prove_to_linux(&image, &expected, name);
        }
    }
    for (name, options) in layouts() {
        let options = Options {
            size: ROOM,
            ..options
        };
        make(&source, &image, &options, 2);
        prove_to_linux(&image, &expected, &name);
    }
}

#[test]
#[ignore = "needs root"]
fn linux_sees_the_nasty_tree_as_it_is() {
    let dir = TempDir::new();
    let source = dir.join("source");
    fs::create_dir(&source).unwrap();
    nasty_tree(&source);
    let source = HostDir::open(&source).unwrap();
    let expected = manifest_of(&source);
    let image = dir.join("image");
    for (compression, nodesize) in [
        (Some(Settings::Zstd { level: 3 }), 16 << 10),
        // The longest symbolic link does not fit in a block of 4 KiB.
        (Some(Settings::Lzo), 8 << 10),
    ] {
        let options = Options {
            nodesize,
            size: ROOM,
            ..with(compression, false)
        };
        let summary = make(&source, &image, &options, 2);
        assert_eq!(summary.lost_xattrs, [], "{nodesize}");
        check(&image);
        prove_to_linux(&image, &expected, "nasty");
    }
}
