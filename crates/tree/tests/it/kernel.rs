//! Block devices, mount points and a file system other than that of the temporary directory.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use testkit::{
    Access, BackingFile, FsType, LoopDevice, MemoryFs, Mount, TempDir, nasty_tree, run, tool,
};
use tree::extract::{Existing, ExtractOptions, Unrestored, extract};
use tree::{
    Error, FileAttributes, FileSystem, HostDir, Inventory, Limits, NoProgress, Output, OutputKind,
    Parallel, ReadAt,
};

fn write(fs: &dyn FileSystem, to: &Path, replace: bool) -> Result<Unrestored, Error> {
    let options = ExtractOptions {
        existing: if replace {
            Existing::ReplaceDirectory
        } else {
            Existing::Refuse
        },
        skip_unreadable: false,
        owners: true,
        sync: true,
        parallel: Parallel::new(2),
        ..ExtractOptions::default()
    };
    let inventory = Inventory::of(fs, &Limits::default())?;
    Ok(extract(&inventory, to, &options, &NoProgress)?.unrestored)
}

/// An empty btrfs, mounted.
fn btrfs() -> Option<Mount> {
    let mkfs = tool("mkfs.btrfs")?;
    let backing = BackingFile::create(512 << 20);
    run(mkfs.command().arg("--quiet").arg(backing.path()));
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    Some(Mount::new(device, FsType::Btrfs, ""))
}

#[test]
#[ignore = "needs root"]
fn a_block_device_is_written_in_place() {
    let device = LoopDevice::attach(BackingFile::create(1 << 20), Access::ReadWrite);
    let error = Output::create(device.path(), false).unwrap_err();
    assert!(matches!(&error, Error::Io(e) if e.kind() == std::io::ErrorKind::AlreadyExists));
    let mut output = Output::create(device.path(), true).unwrap();
    assert_eq!(output.kind(), OutputKind::Device);
    assert_eq!(output.size().unwrap(), 1 << 20);
    output.write_all(b"first").unwrap();
    output.write_all_at(b"later", 4096).unwrap();
    output.commit().unwrap();
    let backing = device.detach();
    let content = fs::read(backing.path()).unwrap();
    assert_eq!(
        (&content[..5], &content[4096..4101]),
        (&b"first"[..], &b"later"[..])
    );
    assert_eq!(content.len(), 1 << 20);
}

/// ext4 keeps in a file's attributes how it stores the file, and does not convert what has more
/// than a few blocks.
#[test]
#[ignore = "needs root"]
fn attributes_of_the_file_system_stay_when_others_are_restored() {
    let Some(mkfs) = tool("mkfs.ext4") else {
        return;
    };
    let backing = BackingFile::create(64 << 20);
    run(mkfs.command().arg("-q").arg(backing.path()));
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    let mount = Mount::new(device, FsType::Ext4, "");
    const NODUMP: u32 = 0x40;
    const EXTENTS: u32 = 0x8_0000;
    let mut source = MemoryFs::new();
    let file = source.add_file(source.root(), "f", &[7; 200_000]);
    source.metadata_mut(file).attributes = FileAttributes(NODUMP);
    let to = mount.path().join("to");
    assert_eq!(write(&source, &to, false).unwrap(), Unrestored::default());
    let file = fs::File::open(to.join("f")).unwrap();
    let attributes = linux::attributes(&file).unwrap();
    assert_eq!(attributes & (NODUMP | EXTENTS), NODUMP | EXTENTS);
}

#[test]
#[ignore = "needs root"]
fn a_mounted_device_is_refused() {
    let Some(mount) = btrfs() else { return };
    let error = Output::create(mount.device(), true).unwrap_err();
    assert!(
        matches!(&error, Error::Io(e) if e.kind() == std::io::ErrorKind::ResourceBusy),
        "{error}"
    );
}

#[test]
#[ignore = "needs root"]
fn a_mount_point_is_filled_and_stays_the_same_directory() {
    let Some(mount) = btrfs() else { return };
    let from = TempDir::new();
    nasty_tree(from.path());
    fs::set_permissions(
        from.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o1751),
    )
    .unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_007, 123_456_789);
    let root = fs::File::open(from.path()).unwrap();
    root.set_modified(time).unwrap();
    let source = HostDir::open(from.path()).unwrap();
    let before = fs::metadata(mount.path()).unwrap();
    assert_eq!(
        write(&source, mount.path(), false).unwrap(),
        Unrestored::default()
    );
    let after = fs::metadata(mount.path()).unwrap();
    assert_eq!((before.dev(), before.ino()), (after.dev(), after.ino()));
    assert_eq!(after.mode() & 0o7777, 0o1751);
    assert_eq!(after.modified().unwrap(), time);
    let error = write(&source, mount.path(), true).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("a directory with a mount point at or below it")
    );

    let difference = Command::new("diff")
        .args([
            "--recursive",
            "--no-dereference",
            "--brief",
            "--exclude=huge",
        ])
        .args([
            "--exclude=fifo*",
            "--exclude=disk*",
            "--exclude=null",
            "--exclude=big*",
        ])
        .arg(from.path().join("links"))
        .arg(mount.path().join("links"))
        .output()
        .unwrap();
    assert!(difference.status.success(), "{difference:?}");

    // A tree that holds a mount is walked across it, and two devices' inode numbers are not mixed
    // up.
    let above = TempDir::new();
    fs::write(above.join("file"), "x").unwrap();
    fs::create_dir(above.join("mount")).unwrap();
    let bind = ["--bind".as_ref(), mount.path(), &above.join("mount")];
    run(Command::new("mount").args(bind));
    let tree_above = HostDir::open(above.path()).unwrap();
    let inventory = Inventory::of(&tree_above, &Limits::default());
    // Nor is a directory replaced if that would delete what is mounted below it.
    let error = write(&source, above.path(), true).unwrap_err();
    assert!(error.to_string().contains("mount point"), "{error}");
    let listed = inventory.map(|inventory| {
        let second = inventory.find(b"mount/links/second");
        (inventory.file_count(), second.is_some())
    });
    // It holds directories of the mount open.
    drop(tree_above);
    run(Command::new("umount").arg(above.join("mount")));
    let whole = Inventory::of(&source, &Limits::default()).unwrap();
    assert_eq!(listed.unwrap(), (whole.file_count() + 2, true));
}

/// A file that changes after it was listed is not cloned as it is then: it is refused, or has the
/// listed size if changes are accepted.
#[test]
#[ignore = "needs root"]
fn a_file_that_changed_since_it_was_listed_is_no_clone() {
    let Some(mount) = btrfs() else { return };
    let from = mount.path().join("from");
    fs::create_dir(&from).unwrap();
    let options = ExtractOptions {
        existing: Existing::Refuse,
        skip_unreadable: false,
        owners: true,
        sync: true,
        parallel: Parallel::new(2),
        ..ExtractOptions::default()
    };
    for (number, (before, after)) in [(9000, 12_000), (9000, 5000), (3 << 20, 2 << 20)]
        .into_iter()
        .enumerate()
    {
        fs::write(from.join("f"), vec![1; before]).unwrap();
        let strict = HostDir::open(&from).unwrap();
        let accepting = HostDir::open(&from).unwrap().accepting_changes();
        let [listed, accepted] =
            [&strict, &accepting].map(|source| Inventory::of(source, &Limits::default()).unwrap());
        let to = |name: &str| mount.path().join(format!("{name}{number}"));
        let same = extract(&listed, &to("same"), &options, &NoProgress).unwrap();
        assert_eq!(same.cloned, 1);
        assert_eq!(fs::read(to("same").join("f")).unwrap(), vec![1; before]);
        fs::write(from.join("f"), vec![2; after]).unwrap();
        let error = extract(&listed, &to("no"), &options, &NoProgress).unwrap_err();
        assert!(
            matches!(&error, Error::File { verb: "read", error, .. } if matches!(**error, Error::Changed)),
            "{error}"
        );
        assert!(!to("no").exists());
        let made = extract(&accepted, &to("yes"), &options, &NoProgress).unwrap();
        assert_eq!(made.cloned, 0);
        let mut expected = vec![2; after];
        expected.resize(before, 0);
        assert_eq!(fs::read(to("yes").join("f")).unwrap(), expected);
        assert_eq!(accepting.changed(), [b"f"]);
    }
}
