//! Images created by other tools, read by us.

use std::ffi::{OsStr, OsString};
use std::fs::File;

use squashfs::Squashfs;
use testkit::TempDir;
use tree::Aspects;
use tree::manifest::Manifest;
use tree::{FileSystem, HostDir, Limits};

use crate::sources::nasty;

/// Options of mksquashfs that change the layout, one image for each. The first word is the block
/// size.
const MKSQUASHFS: &[&str] = &[
    "131072 -comp gzip",
    "4096 -comp gzip -Xcompression-level 1 -Xwindow-size 8",
    "131072 -comp gzip -Xstrategy default,filtered",
    "131072 -comp lzo",
    "4096 -comp lzo -Xalgorithm lzo1x_1",
    "1048576 -comp lzo -Xalgorithm lzo1x_1_15",
    "131072 -comp lz4",
    "4096 -comp lz4 -Xhc",
    "131072 -comp xz",
    "4096 -comp xz -Xbcj x86,arm",
    "262144 -comp xz -Xdict-size 98304",
    "131072 -comp zstd",
    "4096 -comp zstd -Xcompression-level 1",
    "262144 -comp zstd -Xcompression-level 22",
    "1048576 -comp zstd -Xcompression-level 3",
    "131072 -comp lzma",
    "131072 -comp zstd -Xcompression-level 1 -no-fragments",
    "4096 -comp gzip -no-fragments",
    "131072 -comp zstd -Xcompression-level 1 -tailends",
    "4096 -comp lz4 -tailends",
    "131072 -comp zstd -Xcompression-level 1 -no-duplicates",
    "131072 -comp zstd -Xcompression-level 1 -noI",
    "131072 -comp gzip -noD",
    "131072 -comp lzo -noF",
    "131072 -comp xz -noX",
    "131072 -comp zstd -Xcompression-level 1 -noId",
    "4096 -comp zstd -Xcompression-level 1 -noI -noD -noF -noX -noId",
    "131072 -comp zstd -Xcompression-level 1 -no-exports",
    "131072 -comp zstd -Xcompression-level 1 -no-sparse",
    "131072 -comp zstd -Xcompression-level 1 -nopad",
    "131072 -comp zstd -Xcompression-level 1 -no-tailends -processors 1",
];

fn manifest(fs: &dyn FileSystem, xattrs: bool) -> Manifest {
    let options = Aspects {
        xattrs,
        ..Aspects::default()
    };
    Manifest::of(fs, &options).unwrap()
}

fn assert_same(ours: &Manifest, theirs: &Manifest, what: &str) {
    assert!(ours == theirs, "{what}:\n{}", ours.difference(theirs));
}

#[test]
fn mksquashfs_with_every_layout() {
    let Some(mksquashfs) = testkit::tool("mksquashfs") else {
        return;
    };
    let out = TempDir::new();
    let image = out.join("image");
    let mut source = None;
    let mut images: Vec<&str> = MKSQUASHFS.to_vec();
    images.sort_by_key(|options| options.split(" ").next().map(str::to_owned));
    for options in images {
        let (block, options) = options.split_once(' ').unwrap();
        let block: usize = block.parse().unwrap();
        if source.as_ref().is_none_or(|&(size, _, _)| size != block) {
            let Some(dir) = nasty(block) else { return };
            let expected = manifest(&HostDir::open(dir.path()).unwrap(), true);
            source = Some((block, dir, expected));
        }
        let (_, dir, expected) = source.as_ref().unwrap();
        let mut args: Vec<OsString> = vec![dir.path().into(), image.as_os_str().into()];
        args.extend(["-noappend", "-quiet", "-no-progress", "-b"].map(OsString::from));
        args.push(block.to_string().into());
        args.extend(options.split(' ').map(OsString::from));
        mksquashfs.run(&args);
        let ours = Squashfs::open(File::open(&image).unwrap()).unwrap();
        assert_same(&manifest(&ours, true), expected, options);
    }
}

#[test]
fn gensquashfs_with_every_layout() {
    let Some(gensquashfs) = testkit::tool("gensquashfs") else {
        return;
    };
    let out = TempDir::new();
    let image = out.join("image");
    let Some(dir) = nasty(131_072) else { return };
    // gensquashfs sets the root's time to 0, drops attributes without a value, and stores hard
    // links as equal files.
    let comparable = |fs: &dyn FileSystem| -> Vec<String> {
        let options = Aspects {
            hard_links: false,
            ..Aspects::default()
        };
        let manifest = Manifest::of(fs, &options).unwrap();
        let root = |line: &str| line.starts_with(". ");
        let lines = manifest.lines().filter(|line| !root(line));
        lines
            .map(|line| line.replace(" xattr.user.z=", ""))
            .collect()
    };
    let expected = comparable(&HostDir::open(dir.path()).unwrap());
    for options in [
        "-c gzip",
        "-c gzip -X level=3,window=10",
        "-c lzo",
        "-c lz4",
        "-c lz4 -X hc",
        "-c xz",
        "-c xz -X x86",
        "-c zstd",
        "-c zstd -X level=3",
        "-c lzma",
        "-c zstd -e",
        "-c zstd -T",
    ] {
        let mut args: Vec<&OsStr> = ["-q", "-f", "-k", "-x", "-D"].map(OsStr::new).to_vec();
        args.push(dir.path().as_ref());
        args.extend(options.split(' ').map(OsStr::new));
        args.push(image.as_ref());
        gensquashfs.run(&args);
        let ours = Squashfs::open(File::open(&image).unwrap()).unwrap();
        for (ours, theirs) in comparable(&ours).iter().zip(&expected) {
            assert_eq!(ours, theirs, "{options}");
        }
        assert_eq!(comparable(&ours).len(), expected.len(), "{options}");
    }
}

#[test]
fn owners_devices_and_an_offset() {
    let Some(mksquashfs) = testkit::tool("mksquashfs") else {
        return;
    };
    let (dir, out) = (TempDir::new(), TempDir::new());
    std::fs::write(dir.join("file"), "content").unwrap();
    let image = out.join("image");
    let pseudo = [
        "console c 620 0 5 5 1",
        "disk b 660 0 6 259 70000",
        "pipe i 644 1 1 f",
        "door i 755 2 2 s",
        "dir d 2755 3000000000 4",
        "dir/file f 4711 5 6 echo content",
    ];
    let mut args: Vec<&OsStr> = vec![dir.path().as_ref(), image.as_ref()];
    args.extend(["-noappend", "-quiet", "-no-progress", "-offset", "12345"].map(OsStr::new));
    for pseudo in &pseudo {
        args.extend([OsStr::new("-p"), pseudo.as_ref()]);
    }
    mksquashfs.run(&args);
    let file = File::open(&image).unwrap();
    let fs = Squashfs::open_at(file, 12345, &Limits::default()).unwrap();
    let metadata = |path: &str| {
        let mut ino = fs.root();
        for name in path.split('/') {
            ino = fs.lookup(ino, name.as_bytes()).unwrap().ino;
        }
        let metadata = fs.metadata(ino).unwrap();
        let device = (metadata.rdev.major, metadata.rdev.minor);
        format!(
            "{:?} {:o} {}:{} {device:?}",
            metadata.kind, metadata.permissions, metadata.uid, metadata.gid
        )
    };
    assert_eq!(metadata("console"), "CharDevice 620 0:5 (5, 1)");
    assert_eq!(metadata("disk"), "BlockDevice 660 0:6 (259, 70000)");
    assert_eq!(metadata("pipe"), "Fifo 644 1:1 (0, 0)");
    assert_eq!(metadata("door"), "Socket 755 2:2 (0, 0)");
    assert_eq!(metadata("dir"), "Directory 2755 3000000000:4 (0, 0)");
    assert_eq!(metadata("dir/file"), "Regular 4711 5:6 (0, 0)");
    let by_number = fs.by_number(1).unwrap().unwrap();
    assert_eq!(fs.number(by_number).unwrap(), 1);
}
