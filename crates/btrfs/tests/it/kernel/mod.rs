//! File systems written by the kernel, read by the kernel and by us: the manifests are equal,
//! including holes.

pub(crate) mod ours;
mod raid;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use btrfs::{Btrfs, Subvolume};
use codec::Settings;
use testkit::{
    Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, Tool, cases, nasty_tree, run,
    tool,
};
use tree::manifest::Manifest;
use tree::{Aspects, ExtentKind, FileSystem, HostDir, ReadAt};

use crate::check::findings;
use crate::images::{assert_same, make, usage, with};

const IMAGE_BYTES: u64 = 1 << 30;

/// A file system that the kernel writes to.
pub(crate) struct Kernel {
    mount: Mount,
    btrfs: Tool,
}

impl Kernel {
    /// Created with these arguments of `mkfs.btrfs`, mounted with these options.
    pub(crate) fn create(arguments: &[&str], options: &str) -> Option<Kernel> {
        Kernel::of_bytes(IMAGE_BYTES, arguments, options)
    }

    /// Of this size.
    pub(crate) fn of_bytes(bytes: u64, arguments: &[&str], options: &str) -> Option<Kernel> {
        let (mkfs, btrfs) = (tool("mkfs.btrfs")?, tool("btrfs")?);
        let backing = BackingFile::create(bytes);
        run(mkfs
            .command()
            .arg("--quiet")
            .args(arguments)
            .arg(backing.path()));
        let device = LoopDevice::attach(backing, Access::ReadWrite);
        let mount = Mount::new(device, FsType::Btrfs, options);
        Some(Kernel { mount, btrfs })
    }

    pub(crate) fn path(&self) -> &Path {
        self.mount.path()
    }

    /// Runs `btrfs` with these arguments; `@` marks a path in the file system.
    pub(crate) fn btrfs(&self, arguments: &[&str]) {
        let mut command = self.btrfs.command();
        for argument in arguments {
            match argument.strip_prefix('@') {
                Some(path) => command.arg(self.path().join(path)),
                None => command.arg(argument),
            };
        }
        run(&mut command);
    }

    /// Flushes everything to the image.
    pub(crate) fn unmount(self) -> BackingFile {
        self.mount.unmount()
    }

    /// Flushes everything to the image, and compares what the kernel shows with what we read;
    /// returns the image.
    fn compare(self) -> BackingFile {
        let backing = self.unmount();
        compare_image(&backing, "");
        assert_clean(&backing);
        backing
    }
}

fn open(path: &Path) -> Arc<Btrfs> {
    let source: Box<dyn ReadAt> = Box::new(File::open(path).unwrap());
    Arc::new(Btrfs::open(vec![source]).unwrap())
}

fn open_default(path: &Path) -> Subvolume {
    let btrfs = open(path);
    let id = btrfs.default_subvolume().unwrap();
    btrfs.subvolume(id).unwrap()
}

fn compare_image(backing: &BackingFile, mount_options: &str) {
    let device = LoopDevice::attach(BackingFile::existing(backing.path()), Access::ReadOnly);
    let mount = Mount::new(device, FsType::Btrfs, mount_options);
    let ours = open_default(backing.path());
    assert_same(&HostDir::open(mount.path()).unwrap(), &ours, "");
}

/// Our check finds nothing wrong, and visits everything.
fn assert_clean(backing: &BackingFile) {
    let image = open(backing.path());
    let (summary, lines) = findings(&image);
    assert!(lines.is_empty(), "{lines:#?}");
    assert!(summary.tree_blocks > 8 && summary.inodes > 0, "{summary:?}");
    let usage = usage(&image).unwrap();
    let stored = usage.total().stored - usage.inline.stored;
    let trees = summary.tree_blocks * u64::from(image.superblock().nodesize);
    assert!(stored + trees <= image.superblock().bytes_used, "{usage:?}");
    let space = image.space().unwrap();
    assert_eq!(
        space.data.used + space.metadata.used,
        image.superblock().bytes_used
    );
    assert!(space.metadata.used >= trees && space.data.total >= space.data.used);
}

/// Compressible content: few words in random order.
fn text(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut words: Vec<Vec<u8>> = (0..100).map(|n| rng.bytes(4 + n / 8)).collect();
    // With few distinct bytes, the kernel's heuristic chooses compression.
    words.iter_mut().flatten().for_each(|byte| *byte &= 0x1f);
    let mut bytes = Vec::with_capacity(len + 16);
    while bytes.len() < len {
        bytes.extend_from_slice(&words[rng.index(words.len())]);
    }
    bytes.truncate(len);
    bytes
}

/// Files with sizes at which the format changes, modified in every possible way.
pub(crate) fn shapes(at: &Path, seed: u64) {
    let mut rng = Rng::new(seed);
    fs::create_dir_all(at.join("sizes")).unwrap();
    let sizes = (0..40).map(|n| n * 128).chain([
        2047, 2048, 2049, 4095, 4096, 4097, 8191, 131_071, 131_072, 131_073, 3_000_001,
    ]);
    for size in sizes {
        fs::write(at.join(format!("sizes/{size}")), text(&mut rng, size)).unwrap();
        let zeros = at.join(format!("sizes/zeros-{size}"));
        fs::write(zeros, vec![0; size]).unwrap();
    }
    // Partly overwritten once on disk: its extents are referenced from the middle.
    let path = at.join("overwritten");
    fs::write(&path, text(&mut rng, 1_000_000)).unwrap();
    sync(at);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    for offset in [5, 4096, 70_000, 300_000, 999_000] {
        file.write_all_at(&text(&mut rng, 9000), offset).unwrap();
        file.sync_all().unwrap();
    }
    let fallocate = |arguments: &[&str], name: &str| {
        run(Command::new("fallocate").args(arguments).arg(at.join(name)));
    };
    fallocate(&["--length", "1000000"], "preallocated");
    let file = OpenOptions::new()
        .write(true)
        .open(at.join("preallocated"))
        .unwrap();
    file.write_all_at(&text(&mut rng, 10_000), 100_000).unwrap();
    fs::write(at.join("behind the end"), b"short").unwrap();
    fallocate(&["--keep-size", "--length", "500000"], "behind the end");
    fs::write(at.join("punched"), text(&mut rng, 600_000)).unwrap();
    sync(at);
    fallocate(
        &["--punch-hole", "--offset", "10000", "--length", "200000"],
        "punched",
    );
    fallocate(
        &["--punch-hole", "--offset", "590000", "--length", "10000"],
        "punched",
    );
    let reflink = |from: &str, to: &str| {
        run(Command::new("cp")
            .arg("--reflink=always")
            .arg(at.join(from))
            .arg(at.join(to)));
    };
    reflink("overwritten", "clone");
    reflink("sizes/3000001", "clone of a large one");
    // Truncated within an extent, then extended.
    let file = OpenOptions::new()
        .write(true)
        .open(at.join("clone"))
        .unwrap();
    file.set_len(123_457).unwrap();
    file.sync_all().unwrap();
    file.set_len(2_000_000).unwrap();
    let small = OpenOptions::new()
        .write(true)
        .open(at.join("sizes/1024"))
        .unwrap();
    small.set_len(50_000).unwrap();
}

fn sync(at: &Path) {
    run(Command::new("sync").arg("--file-system").arg(at));
}

fn has_encoded(fs: &dyn FileSystem, path: &[&[u8]]) -> bool {
    let mut ino = fs.root();
    for name in path {
        ino = fs.lookup(ino, name).unwrap().ino;
    }
    let extents = fs.extents(ino, 0).unwrap();
    extents
        .iter()
        .any(|extent| matches!(extent.kind, ExtentKind::Encoded(_)))
}

#[test]
#[ignore = "needs root"]
fn every_algorithm_and_level() {
    let mut options = vec!["".to_owned()];
    for algorithm in [
        "zlib:1", "zlib:9", "lzo", "zstd:-15", "zstd:1", "zstd:3", "zstd:15",
    ] {
        for force in ["", "-force"] {
            options.push(format!("compress{force}={algorithm}"));
        }
    }
    for (seed, options) in options.iter().enumerate() {
        let Some(kernel) = Kernel::create(&[], options) else {
            return;
        };
        shapes(kernel.path(), seed as u64);
        let backing = kernel.compare();
        let ours = open_default(backing.path());
        let is_compressed = !options.is_empty();
        assert_eq!(
            has_encoded(&ours, &[b"sizes", b"3000001"]),
            is_compressed,
            "{options}"
        );
    }
}

/// If fewer than four bytes of a sector remain after the last segment, Linux fills them with zeros
/// that count in the extent's length. We must read what it wrote, and it must read what we write in
/// the same form.
#[test]
#[ignore = "needs root"]
fn lzo_extents_are_padded_behind_the_last_segment() {
    let Some(kernel) = Kernel::create(&[], "compress-force=lzo") else {
        return;
    };
    let noise = Rng::new(1).bytes(4096);
    // A sector that compresses to a few bytes, and a tail that nearly fills the rest of the first
    // stored sector.
    for first in [0, 8] {
        for tail in 3900..4096 {
            let mut content = vec![0; 4096];
            content[..first].copy_from_slice(&noise[..first]);
            content.extend(&noise[..tail]);
            fs::write(kernel.path().join(format!("{first}-{tail}")), content).unwrap();
        }
    }
    let backing = kernel.compare();
    let theirs = open_default(backing.path());
    let dir = TempDir::new();
    let image = dir.join("image");
    let options = with(Some(Settings::Lzo), true).keep_extents(false);
    make(&theirs, &image, &options, 2);
    let mount = Mount::read_only(&image, FsType::Btrfs);
    assert_same(&HostDir::open(mount.path()).unwrap(), &theirs, "");
    for subvolume in [&theirs, &open_default(&image)] {
        let mut paddings: Vec<usize> = lzo_paddings(subvolume);
        paddings.sort_unstable();
        paddings.dedup();
        assert_eq!(paddings, [0, 1, 2, 3]);
    }
}

/// For each LZO extent of two segments, the number of bytes after the last one that count in its
/// length.
fn lzo_paddings(subvolume: &Subvolume) -> Vec<usize> {
    let mut paddings = Vec::new();
    let mut stored = Vec::new();
    for entry in subvolume.read_dir(subvolume.root()).unwrap() {
        let extent = subvolume.extents(entry.ino, 0).unwrap()[0];
        if !matches!(extent.kind, ExtentKind::Encoded(_)) {
            continue;
        }
        subvolume
            .read_encoded(entry.ino, &extent, &mut stored)
            .unwrap();
        let length = |at: usize| {
            let bytes = stored[at..].first_chunk().unwrap();
            u32::from_le_bytes(*bytes) as usize
        };
        let second = 8 + length(4);
        paddings.push(length(0) - (second + 4 + length(second)));
    }
    paddings
}

#[test]
#[ignore = "needs root"]
fn every_checksum_and_block_size() {
    let geometries: [&[&str]; 8] = [
        &["--checksum", "xxhash"],
        &["--checksum", "sha256", "--metadata", "single"],
        &["--checksum", "blake2b", "--nodesize", "65536"],
        &["--nodesize", "4096"],
        &["--nodesize", "32768", "--data", "dup"],
        &["--mixed", "--nodesize", "4096"],
        &["--features", "^no-holes"],
        &[
            "--features",
            "^no-holes,^extref,^skinny-metadata",
            "--nodesize",
            "4096",
        ],
    ];
    for arguments in geometries {
        let Some(kernel) = Kernel::create(arguments, "compress-force=zstd") else {
            return;
        };
        shapes(kernel.path(), 7);
        nasty_names(kernel.path());
        kernel.compare();
    }
}

/// Names with equal hashes, a directory with many entries, a file with many names.
fn nasty_names(at: &Path) {
    let dir = at.join("many");
    fs::create_dir(&dir).unwrap();
    for n in 0..3000 {
        fs::write(dir.join(format!("{n:0200}")), b"").unwrap();
    }
    // More names in one directory than fit in one item.
    let linked = at.join("linked");
    fs::create_dir(&linked).unwrap();
    fs::write(linked.join("first"), b"many names").unwrap();
    for n in 0..100 {
        // Without extended references the kernel refuses at some point.
        if fs::hard_link(linked.join("first"), linked.join(format!("{n:0200}"))).is_err() {
            break;
        }
    }
}

#[test]
#[ignore = "needs root"]
fn nasty_trees() {
    let Some(kernel) = Kernel::create(&[], "compress-force=lzo") else {
        return;
    };
    let at = kernel.path().join("nasty");
    fs::create_dir(&at).unwrap();
    nasty_tree(&at);
    nasty_names(kernel.path());
    kernel.compare();
}

#[test]
#[ignore = "needs root"]
fn snapshots_and_nested_subvolumes() {
    let Some(kernel) = Kernel::create(&[], "compress=zstd") else {
        return;
    };
    kernel.btrfs(&["subvolume", "create", "@a"]);
    shapes(&kernel.path().join("a"), 1);
    fs::create_dir(kernel.path().join("a/dir")).unwrap();
    kernel.btrfs(&["subvolume", "create", "@a/dir/nested"]);
    fs::write(kernel.path().join("a/dir/nested/file"), b"nested").unwrap();
    kernel.btrfs(&["subvolume", "snapshot", "@a", "@snapshot"]);
    // Only one snapshot contains the name of a nested one: the kernel gives all such directories
    // the same number.
    kernel.btrfs(&["subvolume", "snapshot", "-r", "@a/dir/nested", "@a/before"]);
    fs::remove_file(kernel.path().join("a/overwritten")).unwrap();
    fs::write(kernel.path().join("a/new"), vec![7; 100_000]).unwrap();
    kernel.btrfs(&["subvolume", "create", "@gone"]);
    fs::write(kernel.path().join("gone/file"), vec![7; 100_000]).unwrap();
    kernel.btrfs(&["subvolume", "delete", "@gone"]);
    // The kernel invents the times of the empty directory that stands for a nested subvolume in a
    // snapshot.
    let backing = kernel.unmount();
    assert_clean(&backing);
    let device = LoopDevice::attach(BackingFile::existing(backing.path()), Access::ReadOnly);
    let mount = Mount::new(device, FsType::Btrfs, "");
    let options = Aspects {
        holes: true,
        mtime: false,
        ..Aspects::default()
    };
    let image = open(backing.path());
    let top = image.subvolume(5).unwrap();
    let theirs = HostDir::open(mount.path()).unwrap();
    let theirs = Manifest::of(&theirs, &options).unwrap();
    assert_eq!(
        theirs.difference(&Manifest::of(&top, &options).unwrap()),
        ""
    );

    let all = image.subvolumes().unwrap();
    let path = |path: &str| Some(path.as_bytes().to_vec());
    let paths: Vec<_> = all
        .iter()
        .filter(|s| !s.is_deleted)
        .map(|s| (s.path.clone(), s.is_read_only))
        .collect();
    assert_eq!(
        paths,
        [
            (path(""), false),
            (path("a"), false),
            (path("a/dir/nested"), false),
            (path("snapshot"), false),
            (path("a/before"), true),
        ]
    );
    assert_eq!(all[3].parent_uuid, all[1].uuid);
    for (name, id) in [
        ("a", all[1].id),
        ("/a/dir/nested", all[2].id),
        ("a/before", all[4].id),
    ] {
        assert_eq!(image.find_subvolume(name.as_bytes()).unwrap(), id);
        let shown = HostDir::open(&mount.path().join(name.trim_start_matches('/'))).unwrap();
        let theirs = Manifest::of(&shown, &options).unwrap();
        let ours = Manifest::of(&image.subvolume(id).unwrap(), &options).unwrap();
        assert_eq!(theirs.difference(&ours), "");
    }
    assert!(image.find_subvolume(b"a/dir").is_err());
    assert!(image.find_subvolume(b"a/none").is_err());
}

#[test]
#[ignore = "needs root"]
fn the_default_subvolume_is_the_kernels() {
    let Some(kernel) = Kernel::create(&[], "") else {
        return;
    };
    kernel.btrfs(&["subvolume", "create", "@inner"]);
    fs::write(kernel.path().join("inner/file"), b"default").unwrap();
    kernel.btrfs(&["subvolume", "set-default", "@inner"]);
    let backing = kernel.compare();
    assert_ne!(open(backing.path()).default_subvolume().unwrap(), 5);
}

/// Random changes to a few files, like those of fsstress.
pub(crate) fn stress(at: &Path, rng: &mut Rng, steps: u64) {
    for _ in 0..steps {
        let name = at.join(format!("f{}", rng.below(12)));
        let other = at.join(format!("f{}", rng.below(12)));
        let len = rng.below(400_000) as usize;
        let offset = rng.below(800_000);
        let open = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(&name);
        let file = open.unwrap();
        let block = |n: u64| (n / 4096 * 4096).to_string();
        match rng.below(12) {
            0..=3 => {
                let bytes = if rng.chance(3) {
                    rng.bytes(len)
                } else {
                    text(rng, len)
                };
                file.write_all_at(&bytes, offset).unwrap();
            }
            4 => file.set_len(offset).unwrap(),
            5 => {
                let _ = fs::remove_file(&other);
            }
            6 => {
                let _ = Command::new("cp")
                    .arg("--reflink=always")
                    .args([&name, &other])
                    .output();
            }
            7 => {
                let (offset, len) = (offset.to_string(), (len + 1).to_string());
                run(Command::new("fallocate")
                    .args(["--punch-hole", "--offset", &offset, "--length", &len])
                    .arg(&name));
            }
            8 => {
                let (offset, len) = (block(offset), (len + 1).to_string());
                run(Command::new("fallocate")
                    .args(["--offset", &offset, "--length", &len])
                    .arg(&name));
            }
            9 => {
                let (offset, len) = (block(offset), block(len as u64 + 4096));
                // Refused if the file is too short for it.
                let _ = Command::new("fallocate")
                    .args(["--collapse-range", "--offset", &offset, "--length", &len])
                    .arg(&name)
                    .output();
            }
            10 => {
                let _ = fs::rename(&name, &other);
            }
            _ => file.sync_all().unwrap(),
        }
    }
}

#[test]
#[ignore = "needs root"]
fn random_operations() {
    for round in 0..cases(6) {
        let mut rng = Rng::new(round);
        let options = [
            "compress=zstd",
            "compress-force=lzo",
            "",
            "compress-force=zlib",
            "nodatacow",
            "compress-force=zstd:1",
        ];
        let options = options[round as usize % options.len()];
        let Some(kernel) = Kernel::create(&[], options) else {
            return;
        };
        stress(kernel.path(), &mut rng, 150);
        kernel.btrfs(&["subvolume", "snapshot", "@", "@snapshot"]);
        stress(kernel.path(), &mut rng, 150);
        kernel.compare();
    }
}

#[test]
#[ignore = "needs root"]
fn a_damaged_copy_is_read_from_the_other() {
    let Some(kernel) = Kernel::create(
        &["--data", "dup", "--metadata", "dup"],
        "compress-force=zstd",
    ) else {
        return;
    };
    shapes(kernel.path(), 3);
    let backing = kernel.unmount();
    let image = open(backing.path());
    let before = Manifest::of(&open_default(backing.path()), &Aspects::default()).unwrap();
    // The first copy of every chunk is overwritten: tree blocks and data.
    let file = OpenOptions::new().write(true).open(backing.path()).unwrap();
    for chunk in image.chunks().chunks() {
        assert_eq!(chunk.stripes.len(), 2);
        let len = chunk.stripe_bytes().min(64 << 20);
        let at = chunk.stripes[0].at.0;
        file.write_all_at(&vec![0x5a; len as usize], at).unwrap();
    }
    let after = Manifest::of(&open_default(backing.path()), &Aspects::default()).unwrap();
    assert_eq!(before.difference(&after), "");
    // Without the second copy nothing is left, and the error says so.
    for chunk in image.chunks().chunks() {
        let at = chunk.stripes[1].at.0;
        file.write_all_at(&vec![0x5a; chunk.stripe_bytes().min(64 << 20) as usize], at)
            .unwrap();
    }
    let source: Box<dyn ReadAt> = Box::new(File::open(backing.path()).unwrap());
    assert!(Btrfs::open(vec![source]).is_err());
}
