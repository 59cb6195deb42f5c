//! The guards around kernel mounts keep their promises, as seen by the kernel itself.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Access, BackingFile, FsType, KernelLog, LoopDevice, Mount, Rng, TempDir, run, tool};

/// A directory with one file of 100,000 bytes that compress badly, and its content.
fn source() -> (TempDir, Vec<u8>) {
    let dir = TempDir::new();
    let content = Rng::new(1).bytes(100_000);
    fs::create_dir(dir.join("dir")).unwrap();
    fs::write(dir.join("dir/file"), &content).unwrap();
    (dir, content)
}

/// The loop devices whose content is `path`.
fn devices_of(path: &Path) -> Vec<PathBuf> {
    let is_backed = |device: &PathBuf| {
        fs::read_to_string(device.join("loop/backing_file"))
            .is_ok_and(|backing| Path::new(backing.trim_end()) == path)
    };
    fs::read_dir("/sys/block")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(is_backed)
        .collect()
}

fn is_mounted(point: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let point = point.to_str().unwrap();
    mounts
        .lines()
        .any(|line| line.split(' ').nth(4) == Some(point))
}

#[test]
#[ignore = "needs root"]
fn squashfs_is_mounted_and_quiet() {
    let Some(mksquashfs) = tool("mksquashfs") else {
        return;
    };
    let (source, content) = source();
    let out = TempDir::new();
    let image = out.join("image.sqfs");
    mksquashfs.run([
        source.path(),
        &image,
        Path::new("-quiet"),
        Path::new("-no-progress"),
    ]);

    let mut log = KernelLog::watch();
    let mount = Mount::read_only(&image, FsType::Squashfs);
    assert_eq!(fs::read(mount.path().join("dir/file")).unwrap(), content);
    assert!(fs::write(mount.path().join("new"), "").is_err());
    log.assert_quiet(&mount);

    let point = mount.path().to_owned();
    assert!(is_mounted(&point));
    assert_eq!(devices_of(&image).len(), 1);
    let backing = mount.unmount();
    assert_eq!(backing.path(), image);
    assert!(!is_mounted(&point) && !point.exists());
    assert_eq!(devices_of(&image), [] as [PathBuf; 0]);
}

#[test]
#[ignore = "needs root"]
fn btrfs_is_written_by_the_kernel_and_read_again() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let (source, content) = source();
    let backing = BackingFile::create(256 << 20);
    run(mkfs
        .command()
        .arg("--quiet")
        .arg("--rootdir")
        .arg(source.path())
        .arg(backing.path()));

    let mut log = KernelLog::watch();
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    let mount = Mount::new(device, FsType::Btrfs, "compress=zstd");
    assert_eq!(fs::read(mount.path().join("dir/file")).unwrap(), content);
    fs::write(mount.path().join("new"), &content).unwrap();
    log.assert_quiet(&mount);
    let backing = mount.unmount();

    let before = fs::metadata(backing.path()).unwrap().modified().unwrap();
    let mount = Mount::read_only(backing.path(), FsType::Btrfs);
    assert_eq!(fs::read(mount.path().join("new")).unwrap(), content);
    assert!(fs::write(mount.path().join("newer"), "").is_err());
    log.assert_quiet(&mount);
    mount.unmount();
    let after = fs::metadata(backing.path()).unwrap().modified().unwrap();
    assert_eq!(before, after, "a read-only mount leaves the image alone");
}

#[test]
#[ignore = "needs root"]
fn damaged_image_makes_the_log_loud() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let backing = BackingFile::create(256 << 20);
    // One copy of everything, so that the kernel cannot take the other.
    let (source, content) = source();
    let options = [
        "--quiet",
        "--metadata",
        "single",
        "--data",
        "single",
        "--rootdir",
    ];
    run(mkfs
        .command()
        .args(options)
        .arg(source.path())
        .arg(backing.path()));
    let mut image = fs::read(backing.path()).unwrap();
    let at = (image
        .windows(64)
        .position(|window| window == &content[..64]))
    .unwrap();
    image[at] ^= 1;
    fs::write(backing.path(), image).unwrap();

    let mut log = KernelLog::watch();
    let mount = Mount::read_only(backing.path(), FsType::Btrfs);
    assert!(fs::read(mount.path().join("dir/file")).is_err());
    let warnings = log.warnings(&mount);
    assert!(
        warnings.iter().any(|line| line.contains("csum failed")),
        "{warnings:?}"
    );
}

#[test]
#[ignore = "needs root"]
fn panic_leaves_neither_mount_nor_device() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let image = TempDir::new();
    let path = image.join("image");
    fs::File::create(&path).unwrap().set_len(256 << 20).unwrap();
    run(mkfs.command().arg("--quiet").arg(&path));

    let mut point = PathBuf::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mount = Mount::read_only(&path, FsType::Btrfs);
        point = mount.path().to_owned();
        assert!(is_mounted(&point));
        panic!("in the middle of a test");
    }));
    assert!(outcome.is_err());
    assert!(!is_mounted(&point) && !point.exists());
    assert_eq!(devices_of(&path), [] as [PathBuf; 0]);

    let outcome = catch_unwind(|| {
        let _device = LoopDevice::attach(BackingFile::existing(&path), Access::ReadOnly);
        assert_eq!(devices_of(&path).len(), 1);
        panic!("in the middle of a test");
    });
    assert!(outcome.is_err());
    assert_eq!(devices_of(&path), [] as [PathBuf; 0]);
}

#[test]
#[ignore = "needs root"]
fn refused_mount_leaves_no_device() {
    let backing = BackingFile::create(1 << 20);
    let path = backing.path().to_owned();
    let device = LoopDevice::attach(backing, Access::ReadOnly);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        Mount::new(device, FsType::Squashfs, "");
    }));
    assert!(outcome.is_err(), "zeros are no squashfs");
    assert_eq!(devices_of(&path), [] as [PathBuf; 0]);
}

#[test]
#[ignore = "needs root"]
fn detached_device_gives_its_file_back() {
    let device = LoopDevice::attach(BackingFile::create(1 << 20), Access::ReadWrite);
    let content = Rng::new(2).bytes(1 << 20);
    fs::write(device.path(), &content).unwrap();
    run(Command::new("sync").arg(device.path()));
    let backing = device.detach();
    assert_eq!(fs::read(backing.path()).unwrap(), content);
    assert_eq!(devices_of(backing.path()), [] as [PathBuf; 0]);
}

/// Names the image to the process that is to die while it is mounted.
const DIE_WITH: &str = "RESTOW_DIE_WITH_MOUNT";

#[test]
#[ignore = "needs root"]
fn killed_process_leaves_neither_mount_nor_device() {
    if let Some(image) = std::env::var_os(DIE_WITH) {
        let mount = Mount::read_only(image, FsType::Btrfs);
        assert!(is_mounted(mount.path()));
        // No destructor runs.
        std::process::abort();
    }
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let image = BackingFile::create(256 << 20);
    run(mkfs.command().arg("--quiet").arg(image.path()));

    let out = TempDir::new();
    let died = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--ignored",
            "--exact",
            "kernel::killed_process_leaves_neither_mount_nor_device",
        ])
        .env(DIE_WITH, image.path())
        .env("TMPDIR", out.path())
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&died.stderr);
    let abort = 6; // SIGABRT
    assert_eq!(died.status.signal(), Some(abort), "{words}");
    assert!(
        fs::read_dir(out.path()).unwrap().next().is_some(),
        "it has mounted there"
    );
    assert_eq!(devices_of(image.path()), [] as [PathBuf; 0]);
}
