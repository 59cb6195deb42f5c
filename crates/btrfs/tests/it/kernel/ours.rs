//! Images that we create, under Linux: mounted, compared, scrubbed, changed, balanced, and checked
//! again.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use btrfs::{ChecksumType, Options, Profile, create};
use codec::Settings;
use testkit::{
    Access, BackingFile, FsType, KernelLog, LoopDevice, Mount, TempDir, cases, nasty_tree, run,
};
use tree::{FileSystem, HostDir, HostTimes, Inventory, Limits, NoProgress, Output, Parallel};

use crate::images::{
    add_holes, add_largest_xattr, algorithms, assert_same, check, layouts, make, memory_tree, with,
};
use crate::subvolumes::nested;

/// Slack that lets Linux relocate everything.
pub(crate) const ROOM: Option<u64> = Some(256 << 20);

/// A file of the nasty trees whose last change is after 2038.
const DATED: &str = "times/4294967296.1";

fn btrfs(arguments: &[&str], path: &Path) -> String {
    let output = run(Command::new("btrfs").args(arguments).arg(path));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn mount_to_write(image: &Path, options: &str) -> Mount {
    let device = LoopDevice::attach(BackingFile::existing(image), Access::ReadWrite);
    Mount::new(device, FsType::Btrfs, options)
}

/// Mounts, compares, scrubs, changes and balances the image, and checks it again.
///
/// Birth times are not compared: `birth` is that of [`DATED`], if the image contains it.
pub(crate) fn prove_to_linux(
    image: &Path,
    expected: &dyn FileSystem,
    birth: Option<SystemTime>,
    name: &str,
) {
    check(image);
    let mut log = KernelLog::watch();
    let mount = Mount::read_only(image, FsType::Btrfs);
    assert_same(expected, &HostDir::open(mount.path()).unwrap(), name);
    let file = fs::metadata(mount.path().join(DATED)).ok();
    let shown = file.map(|file| file.created().unwrap());
    assert_eq!(shown, birth, "{name}");
    log.assert_quiet(&mount);
    mount.unmount();
    let mount = mount_to_write(image, "");
    // The kernel does not scrub a read-only mount.
    let said = btrfs(&["scrub", "start", "-B"], mount.path());
    assert!(said.contains("no errors found"), "{name}: {said}");
    change(mount.path());
    btrfs(&["balance", "start", "--full-balance"], mount.path());
    log.assert_quiet(&mount);
    mount.unmount();
    check(image);
}

/// Writes and deletes files.
pub(crate) fn change(at: &Path) {
    fs::write(at.join("small, from Linux"), b"text").unwrap();
    fs::write(at.join("large, from Linux"), b"text ".repeat(100_000)).unwrap();
    for entry in fs::read_dir(at).unwrap().map(|entry| entry.unwrap()) {
        let name = entry.file_name();
        if entry.file_type().unwrap().is_file() && name != "large, from Linux" {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    let dir = at.join("directory, from Linux");
    fs::create_dir(&dir).unwrap();
    for number in 0..100 {
        fs::write(dir.join(number.to_string()), number.to_string()).unwrap();
    }
    run(Command::new("sync").arg("-f").arg(at));
    fs::remove_dir_all(dir).unwrap();
    run(Command::new("sync").arg("-f").arg(at));
}

/// Every algorithm, with and without the heuristic, with every checksum and profile. The first
/// eight cover each of these, the first fifteen each pair of algorithm and heuristic; `cargo xtask
/// campaign btrfs-matrix` tries all 120.
fn matrix() -> Vec<(String, Options)> {
    let mut encodings = Vec::new();
    for flip in [false, true] {
        for (index, (name, compression)) in algorithms().into_iter().enumerate() {
            let force = (index % 2 == 1) != flip;
            if compression.is_some() || !force {
                encodings.push((name, with(compression, force)));
            }
        }
    }
    let mut cells = Vec::new();
    let profiles = [Profile::Dup, Profile::Single];
    for round in 0..8 {
        for (index, (name, options)) in encodings.iter().enumerate() {
            let at = round + index;
            let (checksum, metadata) = (ChecksumType::ALL[at % 4], profiles[at / 4 % 2]);
            let words = [name, checksum.name(), metadata.name()].join(" ");
            let options = options
                .clone()
                .checksum(checksum)
                .metadata(metadata)
                .slack(ROOM);
            cells.push((format!("{words}, force {}", options.force), options));
        }
    }
    cells
}

#[test]
#[ignore = "needs root"]
fn linux_mounts_scrubs_changes_and_balances_what_we_make() {
    let dir = TempDir::new();
    let image = dir.join("image");
    let mut source = memory_tree();
    add_largest_xattr(&mut source, 16 << 10);
    let birth = UNIX_EPOCH + Duration::new(1 << 32, 1);
    for (name, options) in matrix().into_iter().take(cases(8) as usize) {
        make(&source, &image, &options, 2);
        prove_to_linux(&image, &source, Some(birth), &name);
    }
    let source = memory_tree();
    let sizes = layouts().into_iter().skip(8);
    let group_tree = Options::default().block_group_tree(true);
    for (name, options) in sizes.chain([("block group tree".to_owned(), group_tree)]) {
        let options = options.slack(ROOM);
        make(&source, &image, &options, 2);
        prove_to_linux(&image, &source, Some(birth), &name);
    }
}

#[test]
#[ignore = "needs root"]
fn linux_sees_the_nasty_tree_as_it_is() {
    let dir = TempDir::new();
    let source = dir.join("source");
    fs::create_dir(&source).unwrap();
    nasty_tree(&source);
    let birth = fs::metadata(source.join(DATED)).unwrap().created().unwrap();
    let source = HostDir::open_with(&source, HostTimes::All).unwrap();
    let image = dir.join("image");
    for (compression, nodesize) in [
        (Some(Settings::Zstd { level: 3 }), 16 << 10),
        // The longest symbolic link does not fit in a block of 4 KiB.
        (Some(Settings::Lzo), 8 << 10),
        (Some(Settings::LzoOptimal { level: 9 }), 16 << 10),
    ] {
        let options = with(compression, false).nodesize(nodesize).slack(ROOM);
        let summary = make(&source, &image, &options, 2);
        assert_eq!(summary.image.lost_xattrs, [], "{nodesize}");
        prove_to_linux(&image, &source, Some(birth), "nasty");
    }
}

#[test]
#[ignore = "needs root"]
fn linux_sees_holes_as_they_are() {
    let dir = TempDir::new();
    let image = dir.join("image");
    let mut source = testkit::MemoryFs::new();
    add_holes(&mut source);
    let options = Options::default().slack(ROOM);
    make(&source, &image, &options, 2);
    prove_to_linux(&image, &source, None, "holes");
}

#[test]
#[ignore = "needs root"]
fn an_image_without_slack_can_be_emptied_and_grown() {
    let dir = TempDir::new();
    let image = dir.join("image");
    let source = memory_tree();
    for metadata in [Profile::Single, Profile::Dup] {
        let options = Options::default().metadata(metadata);
        let summary = make(&source, &image, &options, 2);
        assert!(!summary.is_writable);
        let mut log = KernelLog::watch();
        let mount = mount_to_write(&image, "");
        // Nothing can be added, and Linux reports only that.
        let added = fs::write(mount.path().join("new"), b"");
        assert_eq!(added.unwrap_err().raw_os_error(), Some(28)); // ENOSPC
        fs::remove_dir_all(mount.path().join("sizes")).unwrap();
        run(Command::new("sync").arg("-f").arg(mount.path()));
        log.assert_quiet(&mount);
        mount.unmount();
        check(&image);
        make(&source, &image, &options, 2);
        let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
        file.set_len(summary.image.image_bytes + (256 << 20))
            .unwrap();
        let mount = mount_to_write(&image, "");
        btrfs(&["filesystem", "resize", "max"], mount.path());
        change(mount.path());
        btrfs(&["balance", "start", "--full-balance"], mount.path());
        log.assert_quiet(&mount);
        mount.unmount();
        check(&image);
    }
}

/// `--size` can leave any amount of free space: what we say of it is true, and Linux never fails
/// otherwise than by refusing to add.
#[test]
#[ignore = "needs root"]
fn what_is_said_of_free_space_is_true_for_every_size() {
    let dir = TempDir::new();
    let image = dir.join("image");
    let mut source = testkit::MemoryFs::new();
    for number in 0..40 {
        let content = vec![number as u8; 500 * number];
        source.add_file(source.root(), number.to_string(), &content);
    }
    let inventory = Inventory::of(&source, &Limits::default()).unwrap();
    let mut rng = testkit::Rng::new(16);
    for case in 0..cases(24) {
        let metadata = [Profile::Single, Profile::Dup][case as usize % 2];
        // Every third size is one with little beyond the trees.
        let most = if case % 3 == 0 { 100 } else { 640 };
        let size = (2 << 20) + (rng.below(most) << 16) + rng.below(16) * 4096;
        let with = |size| with(None, false).metadata(metadata).size(Some(size));
        let name = format!("{size} {}", metadata.name());
        let output = Output::create(&image, true).unwrap();
        let parallel = Parallel::new(1);
        let options = with(size);
        let made = create(&inventory, &options, parallel, &NoProgress, &output);
        drop(output);
        let summary = match made {
            Ok(_) => make(&source, &image, &options, 1),
            Err(tree::Error::TooSmall { bytes_min }) => {
                assert!(bytes_min > size, "{name}");
                make(&source, &image, &with(bytes_min), 1)
            }
            Err(error) => panic!("{name}: {error}"),
        };
        check(&image);
        let mut log = KernelLog::watch();
        if !summary.can_delete {
            let mount = Mount::read_only(&image, FsType::Btrfs);
            assert_same(&source, &HostDir::open(mount.path()).unwrap(), &name);
            log.assert_quiet(&mount);
            continue;
        }
        let mount = mount_to_write(&image, "");
        if summary.is_writable {
            fs::write(mount.path().join("new"), b"new").unwrap();
        }
        for number in 0..40 {
            let removed = fs::remove_file(mount.path().join(number.to_string()));
            assert!(removed.is_ok(), "{name}: {number}: {removed:?}");
            if number % 13 == 0 {
                run(Command::new("sync").arg("-f").arg(mount.path()));
            }
        }
        log.assert_quiet(&mount);
        mount.unmount();
        check(&image);
    }
}

#[test]
#[ignore = "needs root"]
fn linux_writes_to_an_image_with_the_least_slack() {
    let dir = TempDir::new();
    let image = dir.join("image");
    let source = memory_tree();
    for nodesize in [4 << 10, 16 << 10, 64 << 10] {
        for metadata in [Profile::Single, Profile::Dup] {
            let options = Options::default()
                .metadata(metadata)
                .nodesize(nodesize)
                .slack(Some(1));
            assert!(make(&source, &image, &options, 2).is_writable);
            let mut log = KernelLog::watch();
            let mount = mount_to_write(&image, "");
            change(mount.path());
            log.assert_quiet(&mount);
            mount.unmount();
            check(&image);
        }
    }
}

#[test]
#[ignore = "needs root"]
fn linux_knows_our_subvolumes() {
    let dir = TempDir::new();
    let image = dir.join("image");
    let (source, options) = nested();
    let options = options.slack(ROOM);
    make(&source, &image, &options, 2);
    check(&image);
    let mut log = KernelLog::watch();
    let mount = mount_to_write(&image, "subvolid=5");
    assert_same(&source, &HostDir::open(mount.path()).unwrap(), "nested");
    let default = btrfs(&["subvolume", "get-default"], mount.path());
    assert!(default.trim().ends_with("path dir/second"), "{default}");
    let list = btrfs(&["subvolume", "list", "-qRu"], mount.path());
    for words in [
        "received_uuid 33333333-3333-3333-3333-333333333333",
        "parent_uuid 11111111-1111-1111-1111-111111111111",
        "path first/inner",
    ] {
        assert!(list.contains(words), "{list}");
    }
    let shown = btrfs(&["subvolume", "show"], &mount.path().join("received"));
    assert!(shown.contains("Send transid: \t\t1234"), "{shown}");
    let changed = fs::write(mount.path().join("snapshot/new"), b"");
    assert_eq!(changed.unwrap_err().raw_os_error(), Some(30)); // EROFS
    fs::write(mount.path().join("first/new"), b"").unwrap();
    // The only difference between two snapshots is the file that names its snapshot.
    let (one, other) = (
        mount.path().join("snapshot"),
        mount.path().join("snapshot 2"),
    );
    let stream = dir.join("stream");
    let send = run(Command::new("btrfs")
        .arg("send")
        .arg("-p")
        .arg(&one)
        .arg(&other)
        .arg("-f")
        .arg(&stream));
    drop(send);
    assert!(fs::metadata(&stream).unwrap().len() < 10_000);
    mount.unmount();
    check(&image);
    let mount = Mount::read_only(&image, FsType::Btrfs);
    let own = fs::read(mount.path().join("own")).unwrap();
    assert_eq!(own, b"dir/second");
    log.assert_quiet(&mount);
}

#[test]
#[ignore = "needs root"]
fn a_full_disk_is_an_error_and_leaves_nothing() {
    let dir = TempDir::new();
    let small = dir.join("small");
    fs::create_dir(&small).unwrap();
    // Tests that need root have mounts of their own.
    run(Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1M", "tmpfs"])
        .arg(&small));
    let source = memory_tree();
    let inventory = Inventory::of(&source, &Limits::default()).unwrap();
    for options in [with(None, false), Options::default()] {
        let output = Output::create(&small.join("image"), false).unwrap();
        let parallel = Parallel::new(2);
        let made = create(&inventory, &options, parallel, &NoProgress, &output);
        let words = made.unwrap_err().to_string();
        assert!(words.contains("No space left"), "{words}");
        drop(output);
        assert_eq!(fs::read_dir(&small).unwrap().count(), 0);
    }
    run(Command::new("umount").arg(&small));
}
