//! Images in the states, made by mkfs.btrfs and the kernel.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, Rng, run, tool};

type Images = Option<Vec<PathBuf>>;

/// Large enough for two copies of metadata and a few chunks of data.
const IMAGE_BYTES: u64 = 256 << 20;

/// Makes a file system in a file.
fn make(path: &Path, bytes: u64, arguments: &[&str]) -> Option<()> {
    let mkfs = tool("mkfs.btrfs")?;
    File::create_new(path).unwrap().set_len(bytes).unwrap();
    run(mkfs.command().arg("--quiet").args(arguments).arg(path));
    Some(())
}

fn mount(path: &Path, options: &str) -> Mount {
    let device = LoopDevice::attach(BackingFile::existing(path), Access::ReadWrite);
    Mount::new(device, FsType::Btrfs, options)
}

fn sync(at: &Path) {
    run(Command::new("sync").arg("--file-system").arg(at));
}

fn btrfs(arguments: &[&str], path: &Path) {
    let btrfs = tool("btrfs").expect("asked for before");
    run(btrfs.command().args(arguments).arg(path));
}

/// Makes an image, and lets the kernel write to it.
fn written(
    path: &Path,
    arguments: &[&str],
    options: &str,
    write: impl FnOnce(&Path, &mut Rng),
) -> Images {
    written_to(IMAGE_BYTES, path, arguments, options, write)
}

fn written_to(
    bytes: u64,
    path: &Path,
    arguments: &[&str],
    options: &str,
    write: impl FnOnce(&Path, &mut Rng),
) -> Images {
    tool("btrfs")?;
    make(path, bytes, arguments)?;
    let mount = mount(path, options);
    write(mount.path(), &mut Rng::new(14));
    mount.unmount();
    Some(vec![path.to_owned()])
}

fn files(at: &Path, rng: &mut Rng, count: u64, bytes: usize) {
    for number in 0..count {
        fs::write(at.join(format!("file {number}")), rng.bytes(bytes)).unwrap();
    }
}

pub(super) fn spanning(dir: &Path) -> Images {
    written_to(300 << 20, &dir.join("image"), &[], "", |at, rng| {
        let noise = rng.bytes(15 << 20);
        let mut file = File::create(at.join("large")).unwrap();
        for _ in 0..10 {
            file.write_all(&noise).unwrap();
        }
    })
}

pub(super) fn plain(dir: &Path) -> Images {
    written(&dir.join("image"), &[], "", |at, rng| {
        files(at, rng, 30, 9000);
        symlink("file 1", at.join("link")).unwrap();
        fs::create_dir(at.join("dir")).unwrap();
        fs::write(at.join("dir/name"), b"inline").unwrap();
    })
}

pub(super) fn fresh(dir: &Path) -> Images {
    make(&dir.join("image"), IMAGE_BYTES, &[])?;
    Some(vec![dir.join("image")])
}

pub(super) fn no_holes(dir: &Path) -> Images {
    let features = ["--features", "^no-holes"];
    written(&dir.join("image"), &features, "", |at, rng| {
        let allocate = |name: &str, from: &str, len: &str| {
            let mut command = Command::new("fallocate");
            command.args(["--keep-size", "--offset", from, "--length", len]);
            run(command.arg(at.join(name)));
        };
        // Content, a hole, and preallocation behind the end.
        fs::write(at.join("behind"), rng.bytes(5000)).unwrap();
        allocate("behind", "1000000", "100000");
        // A hole before the end.
        let file = File::create(at.join("hole")).unwrap();
        file.write_all_at(&rng.bytes(5000), 0).unwrap();
        file.write_all_at(&rng.bytes(5000), 1 << 20).unwrap();
        // Nothing but a hole.
        let file = File::create(at.join("empty")).unwrap();
        file.set_len(1 << 20).unwrap();
    })
}

/// An image while trees were being relocated.
pub(super) fn balance(dir: &Path) -> Images {
    let trees = ["-t", "root"];
    in_a_balance(dir, (&trees, "(TREE_RELOC ROOT_ITEM"), |at| {
        let mut rng = Rng::new(8);
        for number in 0..40 {
            let dir = at.join(format!("dir {number}"));
            fs::create_dir(&dir).unwrap();
            files(&dir, &mut rng, 60, 1800);
        }
        let tool = tool("btrfs").expect("asked for before");
        let mut command = tool.command();
        command.args(["subvolume", "snapshot"]).arg(at);
        run(command.arg(at.join("snapshot")));
        for number in 0..40 {
            let new = format!("dir {number}/new");
            fs::write(at.join(new), b"new").unwrap();
        }
    })
}

/// An image while preallocated bytes, which have no checksums, were being moved: what moves is
/// written bytes in the data relocation tree.
pub(super) fn moved(dir: &Path) -> Images {
    let files = ["-t", "data_reloc"];
    in_a_balance(dir, (&files, "type 1 (regular)"), |at| {
        for number in 0..4 {
            let mut command = Command::new("fallocate");
            command.args(["--length", "40M"]);
            run(command.arg(at.join(number.to_string())));
        }
    })
}

/// A copy of an image while it was being balanced, of one moment, at which `dump-tree` printed some
/// words.
fn in_a_balance(dir: &Path, (trees, words): (&[&str], &str), fill: impl Fn(&Path)) -> Images {
    let btrfs_tool = tool("btrfs")?;
    // A btrfs below, in which a copy is a clone.
    let below = dir.join("below");
    make(&below, 4 << 30, &[])?;
    let below = mount(&below, "");
    let image = below.path().join("image");
    make(
        &image,
        IMAGE_BYTES * 2,
        &["--nodesize", "4096", "--metadata", "single"],
    )?;
    let inner = mount(&image, "");
    fill(inner.path());
    sync(inner.path());
    let mut found = Vec::new();
    // It takes luck to meet such a moment: about every fourth copy does.
    for round in 0..20 {
        let mut command = btrfs_tool.command();
        command.args(["balance", "start", "--full-balance"]);
        let command = command
            .arg(inner.path())
            .stdout(std::process::Stdio::null());
        let mut running = command.spawn().unwrap();
        let mut copies = Vec::new();
        while running.try_wait().unwrap().is_none() && copies.len() < 100 {
            let copy = below.path().join(format!("copy {round} {}", copies.len()));
            let mut command = Command::new("cp");
            run(command.arg("--reflink=always").args([&image, &copy]));
            copies.push(copy);
        }
        running.wait().unwrap();
        for copy in copies {
            let mut command = btrfs_tool.command();
            command.args(["inspect-internal", "dump-tree"]).args(trees);
            let output = command.arg(&copy).output().unwrap();
            let dump = String::from_utf8_lossy(&output.stdout);
            if found.is_empty() && dump.contains(words) {
                let to = dir.join("during");
                let mut command = Command::new("cp");
                run(command.arg("--sparse=always").args([&copy, &to]));
                found.push(to);
            }
            fs::remove_file(copy).unwrap();
        }
        if !found.is_empty() {
            break;
        }
    }
    inner.unmount();
    Some(found)
}

pub(super) fn deleted_subvolume(dir: &Path) -> Images {
    written(&dir.join("image"), &[], "", |at, rng| {
        let subvolume = at.join("subvolume");
        btrfs(&["subvolume", "create"], &subvolume);
        files(&subvolume, rng, 300, 3000);
        sync(at);
        btrfs(&["subvolume", "delete"], &subvolume);
    })
}

/// As after a crash, with a file in the log.
pub(super) fn log(dir: &Path) -> Images {
    tool("btrfs")?;
    let live = dir.join("live");
    make(&live, IMAGE_BYTES, &[])?;
    let mount = mount(&live, "commit=300");
    fs::write(mount.path().join("committed"), vec![1; 100_000]).unwrap();
    sync(mount.path());
    let mut file = File::create(mount.path().join("logged")).unwrap();
    file.write_all(&Rng::new(3).bytes(100_000)).unwrap();
    file.sync_all().unwrap();
    let image = dir.join("image");
    run(Command::new("cp")
        .arg("--sparse=always")
        .args([&live, &image]));
    drop(file);
    mount.unmount();
    Some(vec![image])
}

pub(super) fn metadata_dump(dir: &Path) -> Images {
    let tool = tool("btrfs-image")?;
    let image = dir.join("image");
    let source = written(&dir.join("source"), &[], "", |at, rng| {
        files(at, rng, 100, 9000);
    })?;
    run(tool.command().args([&source[0], &dir.join("dump")]));
    run(tool.command().arg("-r").args([&dir.join("dump"), &image]));
    Some(vec![image])
}

/// The images of two devices that the kernel wrote.
fn pair(dir: &Path, data: &str) -> Images {
    let (mkfs, btrfs) = (tool("mkfs.btrfs")?, tool("btrfs")?);
    let paths = [dir.join("first"), dir.join("second")];
    let device = |path: &PathBuf| {
        let file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .open(path);
        file.unwrap().set_len(IMAGE_BYTES).unwrap();
        LoopDevice::attach(BackingFile::existing(path), Access::ReadWrite)
    };
    let [first, second] = paths.each_ref().map(device);
    let mut command = mkfs.command();
    command.args(["--quiet", "--metadata", "raid1", "--data", data]);
    run(command.args([first.path(), second.path()]));
    let options = format!("device={}", second.path().display());
    let mount = Mount::new(first, FsType::Btrfs, &options);
    files(mount.path(), &mut Rng::new(2), 100, 90_000);
    mount.unmount();
    second.detach();
    run(btrfs.command().args(["device", "scan", "--forget"]));
    Some(paths.to_vec())
}

pub(super) fn mirror(dir: &Path) -> Images {
    pair(dir, "raid1")
}

pub(super) fn nearly_a_mirror(dir: &Path) -> Images {
    pair(dir, "raid0")
}

pub(super) fn quotas(dir: &Path) -> Images {
    written(&dir.join("image"), &[], "", |at, rng| {
        btrfs(&["quota", "enable"], at);
        for name in ["a", "b"] {
            btrfs(&["subvolume", "create"], &at.join(name));
            files(&at.join(name), rng, 50, 6000);
        }
        let snapshot = at.join("snapshot");
        run(Command::new("btrfs")
            .args(["subvolume", "snapshot"])
            .args([at.join("a"), snapshot.clone()]));
        run(Command::new("cp")
            .arg("--reflink=always")
            .args([at.join("a/file 1"), at.join("b/clone")]));
        btrfs(&["qgroup", "create", "1/0"], at);
        for member in ["0/256", "0/258"] {
            btrfs(&["qgroup", "assign", "--no-rescan", member, "1/0"], at);
        }
        fs::write(snapshot.join("file 2"), rng.bytes(100_000)).unwrap();
        sync(at);
        btrfs(&["quota", "rescan", "-w"], at);
        sync(at);
    })
}

pub(super) fn space_cache(dir: &Path) -> Images {
    let arguments = ["--runtime-features", "^free-space-tree"];
    let options = "space_cache=v1";
    // Linux has caches only for block groups of at least 100 MiB; they are a tenth of the device.
    let path = dir.join("image");
    let images = written_to(1200 << 20, &path, &arguments, options, |at, rng| {
        files(at, rng, 40, 500_000);
        sync(at);
        for number in (0..40).step_by(3) {
            fs::remove_file(at.join(format!("file {number}"))).unwrap();
        }
    })?;
    // The caches of the last commit are of this one.
    let mount = mount(&images[0], options);
    fs::write(mount.path().join("new"), b"new").unwrap();
    mount.unmount();
    Some(images)
}
