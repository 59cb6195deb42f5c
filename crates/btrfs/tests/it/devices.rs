//! File systems that the kernel wrote on several devices, and uncommitted writes: read completely,
//! and with a device missing or overwritten.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use btrfs::Btrfs;
use testkit::{Access, BackingFile, BtrfsImage, FsType, LoopDevice, Mount, TempDir, run, tool};
use tree::manifest::Manifest;
use tree::{Aspects, Error, FileSystem, HostDir, ReadAt, Result};

use crate::check::findings;
use crate::damage::{is_clean_to_btrfs, verdict};
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

/// Overwrites everything that chunks hold on the device with this ID.
fn overwrite(btrfs: &Btrfs, image: &Path, id: u64) {
    let file = OpenOptions::new().write(true).open(image).unwrap();
    for chunk in btrfs.chunks().chunks() {
        let len = chunk.stripe_bytes().min(96 << 20) as usize;
        for stripe in chunk.stripes.iter().filter(|stripe| stripe.device == id) {
            file.write_all_at(&vec![0x5a; len], stripe.at.0).unwrap();
        }
    }
}

/// Each pair of devices holds data, data and a parity, or both parities in different rows.
#[test]
#[ignore = "needs root"]
fn raid6_is_read_without_any_two_devices() {
    for count in [3, 4, 5] {
        let Some((images, theirs)) = written("raid6", "raid6", count) else {
            return;
        };
        let all: Vec<&Path> = images.iter().map(BackingFile::path).collect();
        let btrfs = open(&all).unwrap();
        assert_eq!(theirs.difference(&read(&all).unwrap()), "", "{count}");
        for (one, other) in (0..count).flat_map(|one| (0..one).map(move |other| (one, other))) {
            let words = format!("{count} devices without {one} and {other}");
            let mut rest = all.clone();
            rest.remove(one);
            rest.remove(other);
            assert_eq!(theirs.difference(&read(&rest).unwrap()), "", "{words}");
            assert_eq!(findings(&open(&rest).unwrap()).1, [""; 0], "{words}");
        }
        // A wrong one shows by its checksums alone.
        overwrite(&btrfs, all[1], 2);
        for lost in (0..count).filter(|&lost| lost != 1) {
            let mut rest = all.clone();
            rest.remove(lost);
            let words = format!("{count} devices without {lost}, and a wrong one");
            assert_eq!(theirs.difference(&read(&rest).unwrap()), "", "{words}");
        }
    }
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
        overwrite(&btrfs, all[1], 2);
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
fn a_log_is_read_and_a_damaged_log_is_an_error() {
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
    let committed = manifest(&HostDir::open(mount.path()).unwrap()).unwrap();
    let mut file = File::create(mount.path().join("logged")).unwrap();
    file.write_all(&vec![7; 100_000]).unwrap();
    file.sync_all().unwrap();
    // Of the directory, nothing was synced but the name.
    let aspects = Aspects {
        mtime: false,
        ..Aspects::ALL
    };
    let theirs = Manifest::of(&HostDir::open(mount.path()).unwrap(), &aspects).unwrap();
    // As after a crash: the current state of the device.
    run(Command::new("cp")
        .arg("--sparse=always")
        .args([&live, &copy]));
    drop(file);
    mount.unmount();

    let image = open(&[&copy]).unwrap();
    assert!(image.has_log());
    let ours = Manifest::of(&image.subvolume(5).unwrap(), &aspects).unwrap();
    assert_eq!(theirs.difference(&ours), "");
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
    // Never a part of it, and never silently nothing of it.
    assert!(matches!(read(&[&copy]).unwrap_err(), Error::Corrupt(_)));
    let options = btrfs::OpenOptions::default().no_log(true);
    let source: Box<dyn ReadAt> = Box::new(File::open(&copy).unwrap());
    let last_commit = Btrfs::open_with(vec![source], &options).unwrap();
    let ours = manifest(&Arc::new(last_commit).subvolume(5).unwrap()).unwrap();
    assert_eq!(committed.difference(&ours), "");
}

/// A file system on a device that is based on another one, which is never written.
#[test]
#[ignore = "needs root"]
fn a_sprout_is_read_with_its_seed() {
    let (Some(mkfs), Some(btrfs), Some(tune)) =
        (tool("mkfs.btrfs"), tool("btrfs"), tool("btrfstune"))
    else {
        return;
    };
    let seed = BackingFile::create(DEVICE_BYTES);
    run(mkfs.command().arg("--quiet").arg(seed.path()));
    let mount = Mount::new(
        LoopDevice::attach(seed, Access::ReadWrite),
        FsType::Btrfs,
        "compress=zstd",
    );
    shapes(mount.path(), 3);
    let of_seed = manifest(&HostDir::open(mount.path()).unwrap()).unwrap();
    let seed = mount.unmount();
    run(tune.command().args(["-S", "1"]).arg(seed.path()));
    let seed_path = seed.path().to_owned();
    let sprout = LoopDevice::attach(BackingFile::create(DEVICE_BYTES), Access::ReadWrite);
    let seed = LoopDevice::attach(seed, Access::ReadWrite);
    let mount = Mount::new(seed, FsType::Btrfs, "");
    let mut command = btrfs.command();
    run(command
        .args(["device", "add"])
        .arg(sprout.path())
        .arg(mount.path()));
    run(Command::new("mount")
        .args(["-o", "remount,rw"])
        .arg(mount.path()));
    fs::write(mount.path().join("sprouted"), b"new").unwrap();
    fs::remove_dir_all(mount.path().join("sizes")).unwrap();
    run(Command::new("sync").arg("--file-system").arg(mount.path()));
    let theirs = manifest(&HostDir::open(mount.path()).unwrap()).unwrap();
    let seed = mount.unmount();
    let sprout = sprout.detach();
    run(btrfs.command().args(["device", "scan", "--forget"]));
    // The seed alone is as it was; with the sprout, in any order, it is part of the other file
    // system.
    assert_eq!(of_seed.difference(&read(&[&seed_path]).unwrap()), "");
    for images in [vec![&*seed_path], vec![seed.path(), sprout.path()]] {
        let lines = findings(&open(&images).unwrap()).1;
        assert!(lines.is_empty(), "{lines:#?}");
    }
    for images in [[seed.path(), sprout.path()], [sprout.path(), seed.path()]] {
        assert_eq!(theirs.difference(&read(&images).unwrap()), "");
    }
    let words = read(&[sprout.path()]).unwrap_err().to_string();
    assert!(words.contains("seed device"), "{words}");
    // Devices of several file systems: each is taken by the one that it belongs to.
    let options = btrfs::OpenOptions::default().ignores_foreign(true);
    for (first, expected) in [(seed.path(), &of_seed), (sprout.path(), &theirs)] {
        let images = [first, seed.path(), sprout.path()];
        let sources = images.map(|path| Box::new(File::open(path).unwrap()) as Box<dyn ReadAt>);
        let image = Btrfs::open_with(sources.into(), &options).unwrap();
        let ours = manifest(&Arc::new(image).subvolume(5).unwrap()).unwrap();
        assert_eq!(expected.difference(&ours), "");
    }
}

/// Another copy of the superblock, and the commits before the last one, each when it is asked for.
#[test]
#[ignore = "needs root"]
fn superblock_copies_and_older_commits_are_read_when_asked_for() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let backing = BackingFile::create(DEVICE_BYTES);
    run(mkfs.command().arg("--quiet").arg(backing.path()));
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    let mount = Mount::new(device, FsType::Btrfs, "commit=300");
    let mut states = Vec::new();
    for number in 0..4 {
        fs::write(mount.path().join(format!("file {number}")), b"text").unwrap();
        run(Command::new("sync").arg("--file-system").arg(mount.path()));
        states.push(manifest(&HostDir::open(mount.path()).unwrap()).unwrap());
    }
    let copy = TempDir::new();
    let path = copy.join("image");
    run(Command::new("cp")
        .arg("--sparse=always")
        .args([mount.unmount().path(), &path]));
    let open = |options: &btrfs::OpenOptions| {
        let source: Box<dyn ReadAt> = Box::new(File::open(&path).unwrap());
        let image = Btrfs::open_with(vec![source], options)?;
        manifest(&Arc::new(image).subvolume(5)?)
    };
    let older = |older_root| btrfs::OpenOptions::default().older_root(older_root);
    let last = open(&older(0)).unwrap();
    assert_eq!(states[3].difference(&last), "");
    // Unmounting commits once more, with or without a change.
    let found: Vec<usize> = (1..=3)
        .filter_map(|number| open(&older(number)).ok())
        .filter_map(|ours| {
            states
                .iter()
                .position(|state| state.difference(&ours).is_empty())
        })
        .collect();
    assert!(
        found.contains(&2) && found.is_sorted_by(|a, b| a >= b),
        "{found:?}"
    );
    assert!(open(&older(4)).is_err());
    // The first copy is damaged: the second is used anyway, and on request.
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&[0; 4096], 64 << 10).unwrap();
    let copy = |copy| btrfs::OpenOptions::default().superblock(Some(copy));
    for options in [older(0), copy(1)] {
        assert_eq!(states[3].difference(&open(&options).unwrap()), "");
    }
    assert!(open(&copy(0)).is_err() && open(&copy(2)).is_err());
}

/// The key of its data relocation tree has an offset.
#[test]
fn a_converted_file_system_is_sound() {
    let (Some(convert), Some(ext4), Some(btrfs)) =
        (tool("btrfs-convert"), tool("mkfs.ext4"), tool("btrfs"))
    else {
        return;
    };
    let dir = TempDir::new();
    let (source, image) = (dir.join("source"), dir.join("image"));
    fs::create_dir(&source).unwrap();
    fs::write(source.join("file"), testkit::Rng::new(4).bytes(1 << 20)).unwrap();
    File::create_new(&image)
        .unwrap()
        .set_len(256 << 20)
        .unwrap();
    let mut command = ext4.command();
    command.args(["-q", "-b", "4096", "-d"]).arg(&source);
    run(command.arg(&image));
    convert.run([&image]);
    assert!(is_clean_to_btrfs(&btrfs, &image));
    let lines = findings(&open(&[&image]).unwrap()).1;
    assert!(lines.is_empty(), "{lines:#?}");
}

/// Nothing else tells that they differ: Linux reads either.
#[test]
fn copies_of_data_without_checksums_that_differ_are_named() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let dir = TempDir::new();
    let (source, image) = (dir.join("source"), dir.join("image"));
    fs::create_dir(&source).unwrap();
    for name in ["one", "two"] {
        fs::write(source.join(name), name.repeat(4096)).unwrap();
    }
    File::create_new(&image)
        .unwrap()
        .set_len(256 << 20)
        .unwrap();
    let mut command = mkfs.command();
    command.args(["--quiet", "--data", "dup", "--rootdir"]);
    run(command.arg(&source).arg(&image));
    // The data of the file that is first on the device loses its checksums.
    let mut image = BtrfsImage::read_file(&image);
    let items = image.items(5);
    let address = |data: &[u8]| u64::from_le_bytes(data[21..29].try_into().unwrap());
    let extents = items.iter().filter(|item| item.key.1 == 108);
    let first = extents.min_by_key(|item| address(&item.data)).unwrap();
    let at = address(&first.data);
    let inode = (first.key.0, 1, 0);
    image.edit_item(5, inode, |data| data[64] |= 1);
    let sums = image.items(7).remove(0);
    let rest = sums.data[3 * 4..].to_vec();
    image.replace(7, sums.key, rest);
    image.rekey(7, sums.key, (sums.key.0, sums.key.1, sums.key.2 + 3 * 4096));
    let lines = verdict(&image);
    assert!(lines.is_empty(), "{lines:#?}");
    let places = image.places(at + 5000);
    assert_eq!(places.len(), 2);
    image.patch(places[1], b"x");
    let lines = verdict(&image);
    let words = "copies of data without checksums differ";
    assert!(
        lines.len() == 1 && lines[0].starts_with(words),
        "{lines:#?}"
    );
}
