//! Images that we create, read by us, by other tools and (as root) by Linux.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;

use codec::{Filters, Settings};
use squashfs::{Fragments, Options, Squashfs, flags};
use testkit::TempDir;
use tree::manifest::Manifest;
use tree::{HostDir, Inventory, Limits, Verify};

use crate::sources::{make, nasty};

/// Creates an image of a directory.
pub(crate) fn image_of(
    source: &Path,
    image: &Path,
    options: &Options,
    threads: usize,
) -> squashfs::CreateSummary {
    make(&HostDir::open(source).unwrap(), image, options, threads).unwrap()
}

#[test]
fn parts_are_stored_uncompressed_as_by_mksquashfs() {
    let tools = ["mksquashfs", "unsquashfs", "setfattr"].map(testkit::tool);
    let [Some(mksquashfs), Some(unsquashfs), Some(setfattr)] = tools else {
        return;
    };
    let out = TempDir::new();
    let source = out.join("source");
    fs::create_dir(&source).unwrap();
    let [block, tail, name, value] = ["block", "tail", "a name ", "value"].map(|it| it.repeat(9));
    fs::write(source.join("large"), block.repeat(5000)).unwrap();
    fs::write(source.join("small"), tail.repeat(100)).unwrap();
    for number in 0..99 {
        fs::write(source.join(format!("{name}{number}")), "").unwrap();
    }
    let (ours, theirs) = (out.join("ours"), out.join("theirs"));
    setfattr.run(
        ["-n", "user.a", "-v", &value.repeat(9)]
            .map(OsStr::new)
            .into_iter()
            .chain([source.as_ref()]),
    );
    let said = |image: &Path| {
        let said = unsquashfs.run([OsStr::new("-s"), image.as_ref()]).stdout;
        let said = String::from_utf8(said).unwrap();
        let lines = said.lines().filter(|line| line.contains("compressed"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    for (flag, option, content) in [
        (flags::INODES_PLAIN, "-noI", name.clone()),
        (flags::IDS_PLAIN, "-noId", String::new()),
        (flags::DATA_PLAIN, "-noD", block.repeat(50)),
        (flags::FRAGMENTS_PLAIN, "-noF", tail.repeat(50)),
        (flags::XATTRS_PLAIN, "-noX", value.repeat(9)),
    ] {
        let from_to = [source.as_os_str(), theirs.as_ref()];
        let options = ["-noappend", "-quiet", "-no-progress", option].map(OsStr::new);
        mksquashfs.run(from_to.into_iter().chain(options));
        let gzip = Options::default().compression(Settings::Zlib { level: 9 });
        for (plain, has_content) in [(flag, true), (0, content.is_empty())] {
            image_of(&source, &ours, &gzip.clone().plain(plain), 1);
            let image = fs::read(&ours).unwrap();
            let shown = image
                .windows(content.len().max(1))
                .any(|it| it == content.as_bytes());
            assert_eq!(shown || content.is_empty(), has_content, "{option}");
            assert_eq!(said(&ours) == said(&theirs), plain != 0, "{option}");
        }
    }
}

/// Options that change the layout: name, and change.
pub(crate) fn layouts(block_bytes: u32) -> Vec<(String, Options)> {
    let usual = Options::default().block_bytes(block_bytes);
    let with = |settings| usual.clone().compression(Some(settings));
    let xz = |filters| Settings::Xz {
        level: 1,
        extreme: false,
        dictionary_bytes: block_bytes.max(8192),
        filters,
    };
    let mut all = vec![
        ("zstd 1", with(Settings::Zstd { level: 1 })),
        ("zstd 3", with(Settings::Zstd { level: 3 })),
        ("zstd 15", with(Settings::Zstd { level: 15 })),
        ("gzip 9", with(Settings::Zlib { level: 9 })),
        ("gzip 1", with(Settings::Zlib { level: 1 })),
        ("lzo", with(Settings::Lzo)),
        ("lzo 8", with(Settings::LzoOptimal { level: 8 })),
        ("lzo 9", with(Settings::LzoOptimal { level: 9 })),
        ("lz4", with(Settings::Lz4)),
        ("lz4 hc", with(Settings::Lz4Hc { level: 12 })),
        ("xz", with(xz(Filters(0)))),
        ("xz x86", with(xz(Filters::X86))),
        ("xz, code", with(xz(Filters(0))).filter_code(true)),
        ("none", usual.clone().compression(None)),
    ];
    let fast = with(Settings::Lz4);
    for fragments in [Fragments::None, Fragments::Always] {
        all.push(("fragments", fast.clone().fragments(fragments)));
    }
    all.push(("no duplicates", fast.clone().duplicates(false)));
    for (align_bytes, fragments) in [(4096, Fragments::Always), (512, Fragments::None)] {
        all.push((
            "aligned",
            fast.clone().align_bytes(align_bytes).fragments(fragments),
        ));
    }
    all.push(("no exports", fast.clone().exportable(false)));
    all.push((
        "plain",
        fast.clone().plain(flags::DATA_PLAIN | flags::INODES_PLAIN),
    ));
    all.push(("no padding", fast.clone().padding(false)));
    all.push(("not verified", fast.verify(Verify::Nothing)));
    all.into_iter()
        .map(|(name, options)| {
            (
                format!("{name}, {:?}, blocks of {block_bytes}", options.fragments),
                options,
            )
        })
        .collect()
}

#[test]
fn what_we_write_in_small_blocks_is_read_by_us_and_by_unsquashfs() {
    read_by_us_and_by_unsquashfs(4096);
}

#[test]
fn what_we_write_in_usual_blocks_is_read_by_us_and_by_unsquashfs() {
    read_by_us_and_by_unsquashfs(131_072);
}

fn read_by_us_and_by_unsquashfs(block: usize) {
    let Some(unsquashfs) = testkit::tool("unsquashfs") else {
        return;
    };
    let out = TempDir::new();
    let image = out.join("image");
    let Some(dir) = nasty(block) else { return };
    let options = tree::Aspects::default();
    let expected = Manifest::of(&HostDir::open(dir.path()).unwrap(), &options).unwrap();
    for (name, layout) in layouts(block as u32) {
        image_of(dir.path(), &image, &layout, 2);
        let ours = Squashfs::open(File::open(&image).unwrap()).unwrap();
        let ours = Manifest::of(&ours, &options).unwrap();
        assert!(
            ours == expected,
            "{name}, read by us:\n{}",
            ours.difference(&expected)
        );

        let there = out.join("extracted");
        unsquashfs.run([
            OsStr::new("-q"),
            "-n".as_ref(),
            "-d".as_ref(),
            there.as_ref(),
            image.as_ref(),
        ]);
        let theirs = Manifest::of(&HostDir::open(&there).unwrap(), &options).unwrap();
        assert!(
            theirs == expected,
            "{name}, read by unsquashfs:\n{}",
            theirs.difference(&expected)
        );
        fs::remove_dir_all(&there).unwrap();
    }
}

/// Small files are packed as they are read. Where unreadable files are to be skipped, everything is
/// planned before.
#[test]
fn files_that_are_packed_as_they_are_read_are_where_a_plan_puts_them() {
    let out = TempDir::new();
    let (read, planned) = (out.join("read"), out.join("planned"));
    for block_bytes in [4096, 131_072] {
        let Some(dir) = nasty(block_bytes) else {
            return;
        };
        for (name, options) in layouts(block_bytes as u32) {
            let plan = options.clone().skip_unreadable(true);
            let expected = image_of(dir.path(), &planned, &plan, 2).image;
            for threads in [1, 3] {
                let found = image_of(dir.path(), &read, &options, threads).image;
                assert_eq!(found.duplicates, expected.duplicates, "{name}");
                let (read, planned) = (fs::read(&read), fs::read(&planned));
                assert!(read.unwrap() == planned.unwrap(), "{name} {threads}");
            }
        }
    }
}

#[test]
fn the_same_bytes_for_any_number_of_threads() {
    let out = TempDir::new();
    let Some(dir) = nasty(4096) else { return };
    for compression in [
        Some(Settings::Zstd { level: 1 }),
        Some(Settings::Zlib { level: 6 }),
        None,
    ] {
        let options = Options::default()
            .compression(compression)
            .block_bytes(4096);
        let mut first = None;
        for threads in [1, 2, 8] {
            let image = out.join("image");
            image_of(dir.path(), &image, &options, threads);
            let bytes = fs::read(&image).unwrap();
            let first = first.get_or_insert_with(|| bytes.clone());
            assert!(*first == bytes, "{threads} threads, {compression:?}");
        }
    }
}

#[test]
fn data_is_stored_in_the_order_of_priorities() {
    let mut fs = testkit::MemoryFs::new();
    let root = tree::FileSystem::root(&fs);
    let mut inos = Vec::new();
    for name in ["a", "b", "c", "d"] {
        // Large enough for blocks of their own; the last equals the first.
        let content = (if name == "d" { "a" } else { name }).repeat(5000);
        inos.push(fs.add_file(root, name, content.as_bytes()));
    }
    let inventory = Inventory::of(&fs, &Limits::default()).unwrap();
    let dir = TempDir::new();
    let starts = |priorities: [i16; 4]| {
        let mut all = vec![0; inventory.file_count() as usize];
        for (entry, priority) in inventory.names().skip(1).zip(priorities) {
            all[inventory.file(entry).0 as usize] = priority;
        }
        let options = Options::default().block_bytes(4096).priorities(all);
        let path = dir.join("x.sqfs");
        make(&fs, &path, &options, 2).unwrap();
        let image = Squashfs::open(File::open(&path).unwrap()).unwrap();
        let root = tree::FileSystem::root(&image);
        ["a", "b", "c", "d"].map(|name| {
            let entry = tree::FileSystem::lookup(&image, root, name.as_bytes()).unwrap();
            tree::FileSystem::extents(&image, entry.ino, 0).unwrap()[0]
                .id
                .unwrap()
        })
    };
    let [a, b, c, d] = starts([0; 4]);
    assert!(a < b && b < c && a == d);
    let [a, b, c, d] = starts([0, 3, -1, 1]);
    assert!(b < a && a < c && a == d);
    // Data shared by two files gets the higher of their priorities.
    let [a, b, c, d] = starts([-9, 3, -1, 4]);
    assert!(a < b && b < c && a == d);
}

#[test]
fn negative_levels_of_zstd_are_read_and_not_written() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/file"), "content").unwrap();
    let with = |level| Options::default().compression(Some(Settings::Zstd { level }));
    let host = HostDir::open(&dir.join("src")).unwrap();
    for level in [-5, 0, 23] {
        let error = make(&host, &dir.join("image"), &with(level), 1).unwrap_err();
        let words = "zstd in SquashFS has levels 1 to 22: squashfs-tools 4.5 cannot";
        assert!(error.to_string().starts_with(words), "{error}");
    }
    let image = dir.join("image");
    image_of(&dir.join("src"), &image, &with(1), 1);
    // The record follows the superblock and its own header.
    let mut bytes = fs::read(&image).unwrap();
    assert_eq!(bytes[98..102], 1i32.to_le_bytes());
    bytes[98..102].copy_from_slice(&(-5i32).to_le_bytes());
    fs::write(&image, &bytes).unwrap();
    let opened = Squashfs::open(bytes).unwrap();
    assert_eq!(
        opened.compressor(),
        squashfs::Compressor::Zstd { level: -5 }
    );
    let Some(unsquashfs) = testkit::tool("unsquashfs") else {
        return;
    };
    let version = unsquashfs.command().arg("-version").output().unwrap();
    if String::from_utf8_lossy(&version.stdout).contains("version 4.5") {
        let shown = unsquashfs.command().arg("-s").arg(&image).output().unwrap();
        let words = String::from_utf8_lossy(&shown.stderr);
        assert!(
            words.contains("error reading stored compressor options"),
            "{words}"
        );
    }
}
