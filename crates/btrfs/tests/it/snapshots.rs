//! Snapshots keep the tree blocks that they share.

use std::fs;
use std::path::Path;
use std::process::Command;

use btrfs::{NewSubvolume, Options, Profile, Subvolume};
use testkit::{
    Access, BackingFile, FsType, KernelLog, LoopDevice, MemoryFs, Mount, Rng, TempDir, cases, run,
};
use tree::{FileIdentity, FileSystem, HostDir, Ino, Inventory, Limits};

use crate::check::findings;
use crate::images::{assert_same, check, make, manifest_of, open};
use crate::kernel::Kernel;
use crate::kernel::ours::{ROOM, mount_to_write};

/// Number of snapshots, and the files that change before each one: one in this many.
const SNAPSHOTS: u64 = 20;
const CHANGED: usize = 100;

/// A tree in which files change, appear, disappear, and are linked and renamed.
struct Model {
    rng: Rng,
    transaction: u64,
    files: Vec<ModelFile>,
    /// When each directory last changed.
    dirs: [u64; DIRS],
}

#[derive(Clone)]
struct ModelFile {
    dir: usize,
    name: String,
    content: Vec<u8>,
    number: u64,
    generation: u64,
    transaction: u64,
}

const DIRS: usize = 20;

impl Model {
    fn new(seed: u64, files: usize) -> Model {
        let mut model = Model {
            rng: Rng::new(seed),
            transaction: 7,
            files: Vec::new(),
            dirs: [7; DIRS],
        };
        for _ in 0..files {
            model.add();
        }
        model
    }

    fn add(&mut self) {
        let number = 1000 + self.files.iter().map(|file| file.number).max().unwrap_or(0);
        let (len, dir) = (self.rng.index(600), self.rng.index(DIRS));
        self.dirs[dir] = self.transaction;
        self.files.push(ModelFile {
            dir,
            name: format!("{:x}", self.rng.below(1 << 40)),
            content: self.rng.bytes(len),
            number,
            generation: self.transaction,
            transaction: self.transaction,
        });
    }

    fn change(&mut self, count: usize) {
        self.transaction += 1;
        for _ in 0..count {
            let at = self.rng.index(self.files.len());
            match self.rng.below(8) {
                0 => self.add(),
                1 => {
                    let file = self.files.swap_remove(at);
                    self.dirs[file.dir] = self.transaction;
                }
                _ => {
                    let len = self.rng.index(600);
                    self.files[at].content = self.rng.bytes(len);
                    self.files[at].transaction = self.transaction;
                }
            }
        }
    }

    /// Adds the tree as it is now.
    fn show(&self, source: &mut MemoryFs, path: &str) {
        let identity = |number, generation, transaction| {
            Some(FileIdentity {
                number,
                generation,
                transaction,
            })
        };
        let root = source.add_dir(source.root(), path);
        source.metadata_mut(root).identity = identity(256, 7, 7);
        let dirs: Vec<Ino> = (0..DIRS)
            .map(|dir| {
                let ino = source.add_dir(root, format!("dir {dir}"));
                source.metadata_mut(ino).identity = identity(300 + dir as u64, 7, self.dirs[dir]);
                ino
            })
            .collect();
        for file in &self.files {
            let ino = source.add_file(dirs[file.dir], &file.name, &file.content);
            source.metadata_mut(ino).identity =
                identity(file.number, file.generation, file.transaction);
        }
        // A nested subvolume's place.
        source.add_dir(root, "nested");
    }
}

fn subvolumes(paths: impl Iterator<Item = String>) -> Vec<NewSubvolume> {
    let own = |path: String| NewSubvolume {
        path: path.into_bytes(),
        ..NewSubvolume::default()
    };
    paths.map(own).collect()
}

fn assert_clean(image: &Path) {
    check(image);
    let (_, lines) = findings(&open(image));
    assert!(lines.is_empty(), "{lines:#?}");
}

#[test]
fn snapshots_share_the_blocks_in_which_nothing_changed() {
    let dir = TempDir::new();
    let image = dir.join("image");
    for (seed, nodesize) in [(1, 4 << 10), (2, 16 << 10)] {
        let mut model = Model::new(seed, 1500);
        let mut source = MemoryFs::new();
        let mut bytes = Vec::new();
        for snapshot in 0..6 {
            model.show(&mut source, &format!("s{snapshot}"));
            model.change(4);
            let options = Options::default()
                .nodesize(nodesize)
                .metadata(Profile::Single)
                .subvolumes(subvolumes((0..=snapshot).map(|n| format!("s{n}"))));
            let summary = make(&source, &image, &options, 2);
            bytes.push(summary.metadata_bytes);
            assert_clean(&image);
            let copy = open(&image).subvolume(5).unwrap();
            assert_eq!(manifest_of(&copy), manifest_of(&source));
        }
        // Without sharing, the second tree costs nearly as much as the first.
        let first = bytes[0];
        for pair in bytes.windows(2) {
            assert!(pair[1] - pair[0] < first / 4, "{nodesize}: {bytes:?}");
        }
        // The same bytes with any number of threads.
        let options = Options::default()
            .nodesize(nodesize)
            .subvolumes(subvolumes((0..6).map(|n| format!("s{n}"))));
        make(&source, &image, &options, 1);
        let one = fs::read(&image).unwrap();
        make(&source, &image, &options, 4);
        assert!(one == fs::read(&image).unwrap());
    }
}

#[test]
fn trees_of_several_levels_share_nodes() {
    let dir = TempDir::new();
    let image = dir.join("image");
    let mut model = Model::new(3, 4000);
    let mut source = MemoryFs::new();
    for snapshot in 0..12 {
        model.show(&mut source, &format!("s{snapshot:02}"));
        model.change(1);
    }
    let options = Options::default()
        .nodesize(4 << 10)
        .metadata(Profile::Single)
        .subvolumes(subvolumes((0..12).map(|n| format!("s{n:02}"))));
    let summary = make(&source, &image, &options, 2);
    assert_clean(&image);
    let first = options.subvolumes[..1].to_vec();
    let one = options.subvolumes(first);
    let mut single = MemoryFs::new();
    model.show(&mut single, "s00");
    let alone = make(&single, &dir.join("one"), &one, 2);
    let (all, alone) = (summary.metadata_bytes, alone.metadata_bytes);
    assert!(all < alone + alone / 3, "{all} of {alone}");
}

/// What `usage` and the tree blocks say of a file system's metadata: its bytes, each block counted
/// once.
fn metadata_bytes(image: &Path) -> u64 {
    let image = open(image);
    let (summary, lines) = findings(&image);
    assert!(lines.is_empty(), "{lines:#?}");
    summary.tree_blocks * u64::from(image.superblock().nodesize)
}

/// Snapshots made by Linux: each after one file in a hundred changed.
fn linux_snapshots(files: usize, seed: u64) -> Option<BackingFile> {
    let kernel = Kernel::create(&[], "")?;
    kernel.btrfs(&["subvolume", "create", "@own"]);
    let own = kernel.path().join("own");
    let mut rng = Rng::new(seed);
    let path = |number: usize| own.join(format!("{}/{number}", number % 50));
    for dir in 0..50 {
        fs::create_dir(own.join(dir.to_string())).unwrap();
    }
    let write = |number: usize, rng: &mut Rng| {
        let len = rng.index(3000);
        fs::write(path(number), rng.bytes(len)).unwrap();
    };
    for number in 0..files {
        write(number, &mut rng);
    }
    kernel.btrfs(&["subvolume", "create", "@own/nested"]);
    let mut next = files;
    for snapshot in 0..SNAPSHOTS {
        let name = format!("@snapshot {snapshot:02}");
        kernel.btrfs(&["subvolume", "snapshot", "-r", "@own", &name]);
        for _ in 0..files / CHANGED {
            match rng.below(10) {
                0 => {
                    write(next, &mut rng);
                    next += 1;
                }
                1 => drop(fs::remove_file(path(rng.index(files)))),
                _ => write(rng.index(files), &mut rng),
            }
        }
    }
    Some(kernel.unmount())
}

fn all_subvolumes(source: &Subvolume) -> Vec<NewSubvolume> {
    let inventory = Inventory::of(source, &Limits::default()).unwrap();
    let found = source.subvolumes_in(&inventory).unwrap();
    found.into_iter().map(|own| own.1).collect()
}

fn sync(at: &Path) {
    run(Command::new("btrfs").args(["filesystem", "sync"]).arg(at));
}

fn btrfs(arguments: &[&str], path: &Path) -> String {
    let output = run(Command::new("btrfs").args(arguments).arg(path));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
#[ignore = "needs root"]
fn a_copy_of_twenty_snapshots_has_at_most_three_tenths_more_metadata() {
    let dir = TempDir::new();
    let image = dir.join("image");
    for seed in 0..cases(1) {
        let Some(backing) = linux_snapshots(1200, seed) else {
            return;
        };
        let source = open(backing.path()).subvolume(5).unwrap();
        let options = Options::default()
            .subvolumes(all_subvolumes(&source))
            .slack(ROOM);
        let summary = make(&source, &image, &options, 2);
        let (before, after) = (metadata_bytes(backing.path()), metadata_bytes(&image));
        assert_eq!(summary.metadata_bytes, after);
        assert!(10 * after <= 13 * before, "{after} of {before}");
        check(&image);
        // Not Linux's view of the source: there, the place of a nested subvolume has the time at
        // which it is looked at.
        prove_snapshots_to_linux(&image, &source, seed);
        // Our image tells as much of what did not change as Linux's.
        let copy_of_copy = dir.join("again");
        make(&source, &image, &options, 2);
        let copy = open(&image).subvolume(5).unwrap();
        let options = options.subvolumes(all_subvolumes(&copy));
        let second = make(&copy, &copy_of_copy, &options, 2);
        let again = second.metadata_bytes;
        assert!(10 * again <= 13 * before, "{again} of {before}");
    }
}

/// Mounts, compares, scrubs, balances, clones and writes, and deletes the snapshots in random
/// order, with checks between.
fn prove_snapshots_to_linux(image: &Path, expected: &dyn FileSystem, seed: u64) {
    let mut log = KernelLog::watch();
    let mount = Mount::read_only(image, FsType::Btrfs);
    assert_same(expected, &HostDir::open(mount.path()).unwrap(), "");
    mount.unmount();
    let mount = mount_to_write(image, "");
    let said = btrfs(&["scrub", "start", "-B"], mount.path());
    assert!(said.contains("no errors found"), "{said}");
    run(Command::new("btrfs")
        .args(["subvolume", "snapshot"])
        .arg(mount.path().join("snapshot 05"))
        .arg(mount.path().join("clone")));
    for number in 0..200 {
        let dir = mount.path().join("clone").join((number % 50).to_string());
        fs::write(dir.join(format!("new {number}")), b"text").unwrap();
        let own = mount.path().join("own").join((number % 50).to_string());
        fs::write(own.join(format!("new {number}")), b"text").unwrap();
    }
    mount.unmount();
    check(image);
    let mount = mount_to_write(image, "");
    btrfs(&["balance", "start", "--full-balance"], mount.path());
    mount.unmount();
    check(image);
    let mut rng = Rng::new(seed);
    let mut left: Vec<String> = (0..SNAPSHOTS).map(|n| format!("snapshot {n:02}")).collect();
    left.push("clone".to_owned());
    left.push("own/nested".to_owned());
    while !left.is_empty() {
        let device = LoopDevice::attach(BackingFile::existing(image), Access::ReadWrite);
        let mount = Mount::new(device, FsType::Btrfs, "");
        for _ in 0..12.min(left.len()) {
            let name = left.swap_remove(rng.index(left.len()));
            btrfs(&["subvolume", "delete"], &mount.path().join(name));
        }
        if left.len() < 12 && !left.is_empty() {
            btrfs(&["quota", "enable"], mount.path());
            btrfs(&["quota", "rescan", "-w"], mount.path());
        }
        sync(mount.path());
        btrfs(&["subvolume", "sync"], mount.path());
        log.assert_quiet(&mount);
        mount.unmount();
        check(image);
        let (_, lines) = findings(&open(image));
        assert!(lines.is_empty(), "{lines:#?}");
    }
}
