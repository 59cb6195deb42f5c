//! Large trees: what Linux reads from our images equals the input.

use std::fs::{self, File};

use codec::Settings;
use squashfs::{Fragments, Options, Squashfs};
use testkit::{FsType, MemoryFs, Mount, TempDir};
use tree::manifest::Manifest;
use tree::{Aspects, FileSystem, HostDir};

use crate::sources::make;

/// Creates an image and reads it with our reader and with Linux: both must show `fs`, with these
/// exceptions.
fn assert_linux_reads(fs: &dyn FileSystem, options: &Options, ignored: &Aspects, strip: &str) {
    let out = TempDir::new();
    let image = out.join("image");
    make(fs, &image, options, 2).unwrap();
    let ours = Squashfs::open(File::open(&image).unwrap()).unwrap();
    let mount = Mount::read_only(&image, FsType::Squashfs);
    let linux = HostDir::open(mount.path()).unwrap();
    let all = Aspects::default();
    let (is, must) = (
        Manifest::of(&ours, &all).unwrap(),
        Manifest::of(&linux, &all).unwrap(),
    );
    assert!(
        is == must,
        "{options:?}, we and Linux:\n{}",
        is.difference(&must)
    );
    // Metadata that the format cannot store is removed from both.
    let lines = |fs: &dyn FileSystem| -> Vec<String> {
        let manifest = Manifest::of(fs, ignored).unwrap();
        let without = |line: &str| -> String {
            let words = line.split(' ');
            let kept = words.filter(|word| strip.is_empty() || !word.starts_with(strip));
            kept.collect::<Vec<_>>().join(" ")
        };
        manifest.lines().map(without).collect()
    };
    let (is, must) = (lines(&linux), lines(fs));
    for (is, must) in is.iter().zip(&must) {
        assert_eq!(is, must, "{options:?}");
    }
    assert_eq!(is.len(), must.len());
    drop(linux);
    mount.unmount();
}

fn options(level: i32, block_bytes: u32, fragments: Fragments) -> Options {
    Options::default()
        .compression(Some(Settings::Zstd { level }))
        .block_bytes(block_bytes)
        .fragments(fragments)
}

/// 100,000 names in a directory, 65,535 owners, deep paths of long names, and attributes larger
/// than a metadata block in all three namespaces, each value in many sets.
#[test]
#[ignore = "needs root"]
fn linux_reads_a_large_directory_many_owners_and_large_attributes() {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let big = fs.add_dir(root, "big");
    // Linux reads a directory again for every few names, so this takes as long as their square. It
    // is enough for all owners that a table can hold: each file has two.
    for n in 0..32_768u32 {
        // From 6 to 255 bytes, in ascending order.
        let name = format!("{n:06}{}", "x".repeat(n as usize % 250));
        let file = fs.add_file(big, name, &n.to_le_bytes()[..n as usize % 5]);
        let metadata = fs.metadata_mut(file);
        metadata.uid = n % 65_535;
        metadata.gid = 65_534 - n % 65_535;
    }
    let deep = fs.add_dir(root, "deep");
    let mut dir = deep;
    for level in 0..200u8 {
        dir = fs.add_dir(dir, [b'a' + level % 26; 15]);
    }
    fs.add_file(dir, "bottom", b"here");
    let with = fs.add_dir(root, "with");
    for n in 0..300u32 {
        let file = fs.add_file(with, format!("{n:03}"), b"");
        for (namespace, len) in [("user", 20_000), ("trusted", 3_000), ("security", 500)] {
            // Few distinct values, so that most are stored by reference.
            let value = vec![b'a' + (n % 7) as u8; len];
            fs.add_xattr(file, format!("{namespace}.{}", n % 11).as_bytes(), &value);
        }
        fs.add_xattr(file, b"user.own", &n.to_le_bytes());
    }
    let names = fs.add_dir(root, "names");
    for first in (1..=255u8).filter(|&byte| byte != b'/' && byte != b'.') {
        fs.add_file(names, [first], &[first]);
        fs.add_file(names, [first; 255], &[first; 255]);
    }
    // Fractions of a second are lost.
    let aspects = Aspects {
        mtime: false,
        ..Aspects::default()
    };
    assert_linux_reads(
        &fs,
        &options(1, 131_072, Fragments::SmallFiles),
        &aspects,
        "",
    );
}

/// Every kind of file, name, mode, owner, hole and attribute that the host allows, including a
/// sparse file of 5 GiB.
#[test]
#[ignore = "needs root"]
fn linux_reads_the_nasty_tree() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("nasty")).unwrap();
    testkit::nasty_tree(&dir.join("nasty"));
    let fs = HostDir::open(&dir.join("nasty")).unwrap();
    // The tree has times before 1970 and with fractions of a second; access control lists cannot be
    // stored.
    let aspects = Aspects {
        mtime: false,
        ..Aspects::default()
    };
    let options = options(1, 131_072, Fragments::Always);
    assert_linux_reads(&fs, &options, &aspects, "xattr.system.");
}
