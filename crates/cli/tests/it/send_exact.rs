//! Streams of images in shapes that need care, byte for byte as by Linux.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command as Program;

use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, TempDir, Tool, run, tool};

use super::receive::send;
use super::{btrfs_in, run_in};

const KINDS: [&[&str]; 3] = [&["--proto", "1"], &["--proto", "2"], &["--compressed-data"]];

fn sync(at: &Path) {
    run(Program::new("sync").arg("-f").arg(at));
}

/// The streams of Linux for subvolumes, each with its parent if it has one.
fn by_linux(btrfs: &Tool, at: &Path, wanted: &[(&str, Option<&str>)]) -> Vec<Vec<u8>> {
    let kinds = KINDS
        .iter()
        .flat_map(|kind| wanted.iter().map(move |it| (kind, it)));
    let sent = kinds.map(|(kind, (name, parent))| {
        let parent = parent.map_or(vec![], |parent| vec!["-p", parent]);
        send(btrfs, at, &[kind, &parent[..]].concat(), name)
    });
    sent.collect()
}

/// Sends the same subvolumes of an image, and compares.
fn assert_sent(image: &Path, wanted: &[(&str, Option<&str>)], must: &[Vec<u8>]) {
    let dir = TempDir::new();
    let kinds = KINDS
        .iter()
        .flat_map(|kind| wanted.iter().map(move |it| (kind, it)));
    for ((kind, (name, parent)), must) in kinds.zip(must) {
        let of = |name: &str| format!("{}:{name}", image.display());
        let mut args = ["send", "-q", "-f", "got"].map(str::to_owned).to_vec();
        args.extend(kind.iter().map(|&it| it.to_owned()));
        args.extend(
            parent
                .iter()
                .flat_map(|parent| ["-p".to_owned(), of(parent)]),
        );
        args.push(of(name));
        let (code, _, words) = run_in(dir.path(), &args);
        assert_eq!(code, 0, "{args:?}: {words}");
        let got = fs::read(dir.join("got")).unwrap();
        if got != *must {
            fs::write(dir.join("must"), must).unwrap();
            let lines = ["must", "got"].map(|it| run_in(dir.path(), ["stream", "dump", it]).1);
            let differing = lines[0].lines().zip(lines[1].lines()).find(|(a, b)| a != b);
            panic!("{args:?}: {differing:#?}");
        }
    }
}

/// A new file system on a loop device.
fn device(mkfs: &Tool) -> LoopDevice {
    let backing = BackingFile::create(256 << 20);
    run(mkfs.command().arg("--quiet").arg(backing.path()));
    LoopDevice::attach(backing, Access::ReadWrite)
}

/// Linux sends the whole sector of content that is in the inode's tree if the file goes on behind
/// it, and no hole in that sector.
#[test]
#[ignore = "needs root"]
fn inline_content_is_sent_as_by_linux() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    for options in ["noatime", "noatime,compress-force=zstd"] {
        let mount = Mount::new(device(&mkfs), FsType::Btrfs, options);
        let at = mount.path();
        btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
        let path = |name: &str| at.join("s").join(name);
        let small = b"text\n".repeat(200);
        for name in ["grown", "shared", "kept", "odd", "emptied"] {
            fs::write(path(name), &small).unwrap();
        }
        for name in ["long", "shrinks", "becomes"] {
            fs::write(path(name), b"more\n".repeat(40_000)).unwrap();
        }
        sync(at);
        let fallocate = |name: &str, len: &str| {
            run(Program::new("fallocate").args(["-l", len]).arg(path(name)));
        };
        let share = |name: &str, to: u64| {
            let (long, to_file) = (File::open(path("long")).unwrap(), path(name));
            let file = File::options().write(true).open(to_file).unwrap();
            linux::clone_range(&long, 0, 131_072, &file, to).unwrap();
        };
        fallocate("grown", "20000");
        fallocate("odd", "3000");
        share("shared", 8192);
        sync(at);
        let shown = run(Program::new("filefrag").arg("-v").arg(path("grown"))).stdout;
        assert!(String::from_utf8_lossy(&shown).contains("inline"));
        btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "a"]);
        let grown = File::options().write(true).open(path("grown")).unwrap();
        grown.write_all_at(&small, 65_536).unwrap();
        drop(grown);
        fallocate("shared", "400000");
        // Content in a tree takes the place of extents, with a hole behind it.
        fs::write(path("becomes"), &small).unwrap();
        fs::write(path("emptied"), "").unwrap();
        File::options()
            .write(true)
            .open(path("shrinks"))
            .unwrap()
            .set_len(900)
            .unwrap();
        sync(at);
        fallocate("becomes", "30000");
        sync(at);
        btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "b"]);
        let wanted = [("a", None), ("b", None), ("b", Some("a"))];
        let must = by_linux(&btrfs, at, &wanted);
        assert_sent(mount.unmount().path(), &wanted, &must);
    }
}

/// A file system that is mounted again gives out the numbers of removed files. Linux sends the data
/// of such a file before its attributes.
#[test]
#[ignore = "needs root"]
fn a_file_with_the_number_of_a_removed_one_is_sent_as_by_linux() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let Some(setfattr) = tool("setfattr") else {
        return;
    };
    let mount = Mount::new(device(&mkfs), FsType::Btrfs, "noatime");
    let at = mount.path();
    btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
    let make = |s: &Path, word: &str| {
        for number in 0..4 {
            for (kind, len) in [("long", 2000), ("short", 2)] {
                let path = s.join(format!("{word} {kind} {number}"));
                fs::write(&path, word.repeat(len + number)).unwrap();
                run(setfattr
                    .command()
                    .args(["-n", &format!("user.{word}"), "-v", "x"])
                    .arg(&path));
            }
            let dir = s.join(format!("{word} dir {number}"));
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("in"), word).unwrap();
        }
    };
    fs::write(at.join("s/first"), "x").unwrap();
    make(&at.join("s"), "old");
    let number = fs::metadata(at.join("s/old long 2")).unwrap().ino();
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "a"]);
    run(Program::new("find")
        .arg(at.join("s"))
        .args(["-name", "old *", "-prune", "-exec", "rm", "-r", "{}", "+"]));
    let device = LoopDevice::attach(mount.unmount(), Access::ReadWrite);
    let mount = Mount::new(device, FsType::Btrfs, "noatime");
    let at = mount.path();
    make(&at.join("s"), "new");
    assert_eq!(fs::metadata(at.join("s/new long 2")).unwrap().ino(), number);
    sync(at);
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "b"]);
    let wanted = [("b", None), ("b", Some("a"))];
    let must = by_linux(&btrfs, at, &wanted);
    assert_sent(mount.unmount().path(), &wanted, &must);
}

/// After a crash, an image has changes in a log. Those of other subvolumes do not matter.
#[test]
#[ignore = "needs root"]
fn a_snapshot_is_sent_from_an_image_with_a_log() {
    let (Some(btrfs), Some(mkfs)) = (tool("btrfs"), tool("mkfs.btrfs")) else {
        return;
    };
    let backing = BackingFile::create(256 << 20);
    run(mkfs.command().arg("--quiet").arg(backing.path()));
    let image = backing.path().to_owned();
    let mount = Mount::new(
        LoopDevice::attach(backing, Access::ReadWrite),
        FsType::Btrfs,
        "noatime",
    );
    let at = mount.path();
    btrfs_in(&btrfs, at, &["subvolume", "create", "s"]);
    fs::write(at.join("s/file"), b"before\n".repeat(9000)).unwrap();
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "a"]);
    fs::write(at.join("s/file2"), "x").unwrap();
    btrfs_in(&btrfs, at, &["subvolume", "snapshot", "-r", "s", "b"]);
    let wanted = [("a", None), ("b", Some("a"))];
    let must = by_linux(&btrfs, at, &wanted);
    sync(at);
    let file = File::options().write(true).open(at.join("s/file")).unwrap();
    file.write_all_at(b"after", 0).unwrap();
    file.sync_all().unwrap();
    let dir = TempDir::new();
    // As if the machine had lost power.
    fs::copy(image, dir.join("crashed")).unwrap();
    let (code, out, words) = run_in(dir.path(), ["info", "crashed"]);
    assert_eq!(code, 0, "{words}");
    assert!(out.contains("log             yes"), "{out}");
    assert_sent(&dir.join("crashed"), &wanted, &must);
    let (code, _, words) = run_in(dir.path(), ["send", "-f", "got", "crashed:s"]);
    assert_eq!(code, 2);
    assert!(
        words.contains("its log holds later changes of the subvolume"),
        "{words}"
    );
}
