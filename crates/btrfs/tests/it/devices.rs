//! File systems that the kernel wrote on several devices, and uncommitted writes: read completely, and with a device
//! missing or overwritten.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use btrfs::Btrfs;
use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, TempDir, run, tool};
use tree::manifest::Manifest;
use tree::{Aspects, FileSystem, HostDir, ReadAt, Result};

use crate::check::findings;
use crate::damage::is_clean_to_btrfs;
use crate::kernel::shapes;

const DEVICE_BYTES: u64 = 512 << 20;

fn open(images: &[&Path]) -> Result<Arc<Btrfs>> {
    let source = |path: &&Path| Box::new(File::open(path).unwrap()) as Box<dyn ReadAt>;
    Ok(Arc::new(Btrfs::open(images.iter().map(source).collect())?))
}

fn manifest(fs: &dyn FileSystem) -> Result<Manifest> {
    let aspects = Aspects {
        holes: true,
        ..Aspects::default()
    };
    Manifest::of(fs, &aspects)
}

/// The content of the top level.
fn read(images: &[&Path]) -> Result<Manifest> {
    manifest(&open(images)?.subvolume(5)?)
}

/// Images that the kernel wrote with these profiles, and what it showed of them.
fn written(data: &str, metadata: &str, count: usize) -> Option<(Vec<BackingFile>, Manifest)> {
    let (mkfs, btrfs) = (tool("mkfs.btrfs")?, tool("btrfs")?);
    let device = |_| LoopDevice::attach(BackingFile::create(DEVICE_BYTES), Access::ReadWrite);
    let mut devices: Vec<LoopDevice> = (0..count).map(device).collect();
    let mut command = mkfs.command();
    command.args(["--quiet", "--data", data, "--metadata", metadata]);
    run(command.args(devices.iter().map(LoopDevice::path)));
    let mut options = "compress=zstd".to_owned();
    for device in &devices {
        options += &format!(",device={}", device.path().display());
    }
    let mount = Mount::new(devices.remove(0), FsType::Btrfs, &options);
    shapes(mount.path(), count as u64);
    run(Command::new("sync").arg("--file-system").arg(mount.path()));
    let theirs = manifest(&HostDir::open(mount.path()).unwrap()).unwrap();
    let mut images = vec![mount.unmount()];
    images.extend(devices.into_iter().map(LoopDevice::detach));
    run(btrfs.command().args(["device", "scan", "--forget"]));
    Some((images, theirs))
}

#[test]
#[ignore = "needs root"]
fn every_profile_of_several_devices() {
    for (data, metadata, count, may_be_lost) in [
        ("raid0", "raid1", 3, false),
        ("single", "raid1", 2, false),
        ("raid1", "raid1", 2, true),
        ("raid1c3", "raid1c3", 3, true),
        ("raid1c4", "raid1c4", 4, true),
        ("raid10", "raid10", 4, true),
        ("raid5", "raid1", 3, true),
        ("raid6", "raid1c3", 4, true),
    ] {
        let Some((images, theirs)) = written(data, metadata, count) else {
            return;
        };
        let all: Vec<&Path> = images.iter().map(BackingFile::path).collect();
        assert_eq!(theirs.difference(&read(&all).unwrap()), "", "{data}");
        let btrfs = open(&all).unwrap();
        assert_eq!(findings(&btrfs).1, [""; 0], "{data}");
        for lost in 0..count {
            let mut rest = all.clone();
            rest.remove(lost);
            let ours = read(&rest);
            if may_be_lost {
                assert_eq!(
                    theirs.difference(&ours.unwrap()),
                    "",
                    "{data} without {lost}"
                );
            } else if data == "raid0" {
                let words = ours.map(|_| ()).unwrap_err().to_string();
                assert!(
                    words.contains("device of the file system is missing"),
                    "{words}"
                );
            }
        }
        if !may_be_lost {
            continue;
        }
        // On one device, everything that chunks hold is overwritten.
        let file = OpenOptions::new().write(true).open(all[1]).unwrap();
        let id = 2;
        for chunk in btrfs.chunks().chunks() {
            let len = chunk.stripe_bytes().min(96 << 20) as usize;
            for stripe in chunk.stripes.iter().filter(|stripe| stripe.device == id) {
                file.write_all_at(&vec![0x5a; len], stripe.at.0).unwrap();
            }
        }
        assert_eq!(
            theirs.difference(&read(&all).unwrap()),
            "",
            "{data}, one damaged"
        );
        assert_ne!(
            findings(&open(&all).unwrap()).1,
            [""; 0],
            "{data}, one damaged"
        );
    }
}

#[test]
#[ignore = "needs root"]
fn a_log_is_noticed_and_the_last_commit_is_read() {
    let (Some(mkfs), Some(btrfs)) = (tool("mkfs.btrfs"), tool("btrfs")) else {
        return;
    };
    let backing = BackingFile::create(DEVICE_BYTES);
    run(mkfs.command().arg("--quiet").arg(backing.path()));
    let dir = TempDir::new();
    let copy = dir.join("copy");
    let live = backing.path().to_owned();
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    let mount = Mount::new(device, FsType::Btrfs, "commit=300");
    fs::write(mount.path().join("committed"), b"before").unwrap();
    run(Command::new("sync").arg("--file-system").arg(mount.path()));
    let theirs = manifest(&HostDir::open(mount.path()).unwrap()).unwrap();
    let mut file = File::create(mount.path().join("logged")).unwrap();
    file.write_all(&vec![7; 100_000]).unwrap();
    file.sync_all().unwrap();
    // As after a crash: the current state of the device.
    run(Command::new("cp")
        .arg("--sparse=always")
        .args([&live, &copy]));
    drop(file);
    mount.unmount();

    let image = open(&[&copy]).unwrap();
    assert!(image.has_log());
    assert_eq!(theirs.difference(&read(&[&copy]).unwrap()), "");
    assert_eq!(findings(&image).1, [""; 0]);
    assert!(is_clean_to_btrfs(&btrfs, &copy));
    // The log's root, overwritten.
    let (root, _) = image.superblock().log_root.unwrap();
    let chunk = image.chunks().find(root).unwrap();
    let file = OpenOptions::new().write(true).open(&copy).unwrap();
    for stripe in &chunk.stripes {
        let at = stripe.at.0 + (root.0 - chunk.start.0);
        file.write_all_at(&[0x5a; 4096], at).unwrap();
    }
    assert!(findings(&open(&[&copy]).unwrap()).1[0].contains("tree block's checksum differs"));
    assert!(!is_clean_to_btrfs(&btrfs, &copy));
    assert_eq!(theirs.difference(&read(&[&copy]).unwrap()), "");
}

#[test]
#[ignore = "needs root"]
fn usage_is_that_of_compsize() {
    let (Some(mkfs), Some(compsize)) = (tool("mkfs.btrfs"), tool("compsize")) else {
        return;
    };
    let backing = BackingFile::create(DEVICE_BYTES);
    run(mkfs.command().arg("--quiet").arg(backing.path()));
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    let mut mount = Mount::new(device, FsType::Btrfs, "compress-force=zstd");
    for (seed, algorithm) in ["zstd", "lzo", "zlib", "none"].into_iter().enumerate() {
        if seed > 0 {
            let device = LoopDevice::attach(mount.unmount(), Access::ReadWrite);
            mount = Mount::new(
                device,
                FsType::Btrfs,
                &format!("compress-force={algorithm}"),
            );
        }
        fs::create_dir(mount.path().join(algorithm)).unwrap();
        shapes(&mount.path().join(algorithm), seed as u64);
    }
    run(Command::new("sync").arg("--file-system").arg(mount.path()));
    // Type, percentage, disk usage, uncompressed, referenced.
    let report = |path: &Path| -> Vec<(String, [u64; 3])> {
        let output = compsize.run([Path::new("-b"), path]);
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().filter(|line| line.contains('%'));
        let numbers = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = |index: usize| words[index].parse().unwrap();
            (words[0].to_owned(), [number(2), number(3), number(4)])
        };
        lines.map(numbers).collect()
    };
    let whole = report(mount.path());
    let part = report(&mount.path().join("zlib"));
    let backing = mount.unmount();
    let image = open(&[backing.path()]).unwrap();
    let top = image.subvolume(5).unwrap();
    let zlib = top.lookup(top.root(), b"zlib").unwrap().ino;
    for (theirs, ours) in [
        (whole, image.usage(None).unwrap()),
        (part, top.usage(zlib).unwrap()),
    ] {
        assert!(theirs.len() > 2, "{theirs:?}");
        for (name, numbers) in theirs {
            let amount = match &*name {
                "none" => ours.plain,
                "zlib" => ours.zlib,
                "lzo" => ours.lzo,
                "zstd" => ours.zstd,
                "prealloc" => ours.preallocated,
                _ => continue,
            };
            assert_eq!(
                [amount.stored, amount.decoded, amount.shown],
                numbers,
                "{name}"
            );
        }
    }
}
