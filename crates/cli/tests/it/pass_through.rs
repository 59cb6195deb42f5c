//! Encoded data that goes from one format into another as it is stored.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use btrfs::Btrfs;
use codec::{Algorithm, ZstdFrame};
use squashfs::Squashfs;
use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, tool};
use tree::manifest::Manifest;
use tree::{Aspects, Encoding, ExtentKind, FileKind, FileSystem, HostDir, Inventory, Limits};

use super::run_in;

/// The usual block size of a SquashFS image, and the most content of an encoded extent of btrfs.
const BLOCK: u64 = 128 << 10;

/// Files of many blocks, of one, of a part of one, of less than a sector; equal ones, noise and a
/// hole.
fn fill(dir: &Path) {
    let words: Vec<String> = (0..3000u64)
        .map(|n| format!("{:x} ", n * n * 7919))
        .collect();
    let text = |seed: u64, len: usize| {
        let mut rng = Rng::new(seed);
        let mut text = Vec::new();
        while text.len() < len {
            text.extend(words[rng.index(words.len())].bytes());
        }
        text.truncate(len);
        text
    };
    for (name, content) in [
        ("large", text(1, 3_000_000)),
        ("one block", text(2, 128 << 10)),
        ("end of a block", text(3, (256 << 10) + 70_000)),
        ("sectors", text(4, (128 << 10) + 8192)),
        ("part of a block", text(5, 50_000)),
        ("small", text(6, 100)),
        ("equal", text(1, 3_000_000)),
        ("noise", Rng::new(7).bytes(500_000)),
    ] {
        fs::write(dir.join(name), content).unwrap();
    }
    let sparse = [text(8, 128 << 10), vec![0; 128 << 10], text(9, 128 << 10)];
    fs::write(dir.join("sparse"), sparse.concat()).unwrap();
}

/// Every encoded extent of a tree that is a whole block, without what follows the frame.
fn frames(tree: &dyn FileSystem) -> Vec<Vec<u8>> {
    let inventory = Inventory::of(tree, &Limits::default()).unwrap();
    let mut frames = Vec::new();
    for file in inventory.files() {
        if inventory.kind(file) != FileKind::Regular {
            continue;
        }
        let mut at = 0;
        while at < inventory.size(file) {
            for extent in tree.extents(inventory.ino(file), at).unwrap() {
                at = extent.offset + extent.len;
                let whole = ExtentKind::Encoded(Encoding {
                    algorithm: Algorithm::Zstd,
                    unencoded_len: BLOCK,
                    unencoded_offset: 0,
                    stored_len: match extent.kind {
                        ExtentKind::Encoded(encoding) => encoding.stored_len,
                        _ => continue,
                    },
                });
                if extent.kind == whole && extent.len == BLOCK {
                    let mut stored = Vec::new();
                    tree.read_encoded(inventory.ino(file), &extent, &mut stored)
                        .unwrap();
                    stored.truncate(ZstdFrame::parse(&stored, u64::MAX).unwrap().bytes);
                    frames.push(stored);
                }
            }
        }
    }
    frames.sort();
    frames.dedup();
    frames
}

/// Copies a btrfs image to SquashFS, and finds all its whole blocks again.
fn copy(dir: &TempDir, image: &Path) -> Squashfs {
    for verify in [&[][..], &["--no-verify"]] {
        let mut args = vec!["copy", "-q", "--overwrite", "--compress", "zstd:1"];
        args.extend(verify);
        args.extend([image.to_str().unwrap(), "x.sqfs"]);
        let (code, out, words) = run_in(dir.path(), &args);
        assert_eq!(
            (code, out.as_str(), words.as_str()),
            (0, "", ""),
            "{args:?}"
        );
    }
    let source = Arc::new(Btrfs::open(vec![Box::new(File::open(image).unwrap())]).unwrap());
    let source = source.subvolume(5).unwrap();
    let ours = Squashfs::open(File::open(dir.join("x.sqfs")).unwrap()).unwrap();
    let (must, is) = (frames(&source), frames(&ours));
    assert!(must.len() > 25, "{} frames", must.len());
    let missing = must.iter().filter(|frame| is.binary_search(frame).is_err());
    assert_eq!(missing.count(), 0, "of {} frames", must.len());
    assert_same(&source, &ours);
    ours
}

/// SquashFS has whole seconds.
fn assert_same(a: &dyn FileSystem, b: &dyn FileSystem) {
    let aspects = Aspects {
        mtime: false,
        ..Aspects::default()
    };
    let (a, b) = (Manifest::of(a, &aspects), Manifest::of(b, &aspects));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert!(a == b, "{}", a.difference(&b));
}

/// A fragment block holds the ends of many files, and a btrfs extent is stored whole for each file
/// that refers to it.
#[test]
fn fragment_blocks_are_kept_only_where_most_of_them_is_shown() {
    let Some(mksquashfs) = tool("mksquashfs") else {
        return;
    };
    let dir = TempDir::new();
    let src = dir.join("src");
    fs::create_dir(&src).unwrap();
    fill(&src);
    let text = fs::read(src.join("large")).unwrap();
    // Two ends that each fill most of a fragment block, and many that do not.
    for (n, tail) in [(0, 90_000), (1, 80_000)]
        .into_iter()
        .chain((2..60).map(|n| (n, 4000 + 300 * n)))
    {
        let len = BLOCK as usize + tail;
        fs::write(src.join(format!("end {n}")), &text[n * 5000..][..len]).unwrap();
    }
    let args = "-noappend -quiet -no-progress -always-use-fragments -comp zstd";
    let level = ["-Xcompression-level", "1"];
    mksquashfs.run(
        ["src", "x.sqfs"]
            .map(|name| dir.join(name).into_os_string())
            .into_iter()
            .chain(args.split(' ').chain(level).map(Into::into)),
    );
    let args = ["copy", "-q", "x.sqfs", "x.btrfs"];
    let (code, _, words) = run_in(dir.path(), args);
    assert_eq!((code, words.as_str()), (0, ""));
    let source = Squashfs::open(File::open(dir.join("x.sqfs")).unwrap()).unwrap();
    let image = File::open(dir.join("x.btrfs")).unwrap();
    let copy = Arc::new(Btrfs::open(vec![Box::new(image)]).unwrap());
    let copy = copy.subvolume(5).unwrap();
    assert_same(&source, &copy);
    let inventory = Inventory::of(&copy, &Limits::default()).unwrap();
    let (mut blocks, mut fragments) = (0, 0);
    for file in inventory.files() {
        let (ino, mut at) = (inventory.ino(file), 0);
        while inventory.kind(file) == FileKind::Regular && at < inventory.size(file) {
            for extent in copy.extents(ino, at).unwrap() {
                at = extent.end();
                let ExtentKind::Encoded(stored) = extent.kind else {
                    continue;
                };
                let path = inventory.path(inventory.first_name(file));
                let sectors = extent.len.next_multiple_of(4096);
                let what = format!("{}: {extent:?}", path.escape_ascii());
                assert!(2 * sectors >= stored.unencoded_len, "{what}");
                blocks += u32::from(extent.len == BLOCK);
                fragments += u32::from(stored.unencoded_len == BLOCK && sectors < BLOCK);
            }
        }
    }
    assert!(blocks > 80, "{blocks}");
    assert!(fragments > 0, "the rule must not refuse all");
}

#[test]
fn extents_of_our_btrfs_images_are_kept_in_squashfs_images() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fill(&dir.join("src"));
    let args = ["copy", "-q", "src", "x.btrfs", "--compress", "zstd:3"];
    let (code, _, words) = run_in(dir.path(), args);
    assert_eq!((code, words.as_str()), (0, ""));
    copy(&dir, &dir.join("x.btrfs"));
    let Some(unsquashfs) = tool("unsquashfs") else {
        return;
    };
    let there = dir.join("there");
    unsquashfs.run([
        "-q".as_ref(),
        "-n".as_ref(),
        "-d".as_ref(),
        there.as_os_str(),
        dir.join("x.sqfs").as_os_str(),
    ]);
    let there = HostDir::open(&there).unwrap();
    assert_same(&HostDir::open(&dir.join("src")).unwrap(), &there);
}

#[test]
#[ignore = "needs root"]
fn linux_reads_in_squashfs_images_the_extents_of_its_btrfs() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    for level in [1, 3, 9, 15] {
        let dir = TempDir::new();
        let file = BackingFile::create(256 << 20);
        mkfs.run(["-q".as_ref(), file.path().as_os_str()]);
        let device = LoopDevice::attach(file, Access::ReadWrite);
        let options = format!("compress-force=zstd:{level}");
        let mount = Mount::new(device, FsType::Btrfs, &options);
        fill(mount.path());
        let file = mount.unmount();
        copy(&dir, file.path());
        let theirs = Mount::read_only(file.path(), FsType::Btrfs);
        let ours = Mount::read_only(dir.join("x.sqfs"), FsType::Squashfs);
        let open = |mount: &Mount| HostDir::open(mount.path()).unwrap();
        assert_same(&open(&theirs), &open(&ours));
        ours.unmount();
        theirs.unmount();
    }
}
