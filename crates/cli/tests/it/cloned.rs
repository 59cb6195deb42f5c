//! Directories whose files share their data with the source, and those whose files cannot.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command as Program;

use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, run, tool};

use super::receive::mounted;
use super::{restow, run_in, shown};

/// `FS_NOCOW_FL`.
const NOCOW: u32 = 0x0080_0000;
/// The types of extent items: stored in the item, and preallocated.
const INLINE: u8 = 0;
const PREALLOCATED: u8 = 2;

/// The end of the message about cloned files.
const SHARED: &str = " with the source";

/// The extent items of a file, each with its offset, without the transaction that made it and
/// without those in the item.
fn extents(path: &Path) -> Vec<(u64, Vec<u8>)> {
    let file = File::open(path).unwrap();
    linux::flush_extents(&file).unwrap();
    let (subvolume, ino) = (
        linux::subvolume_id(&file).unwrap(),
        linux::stat(&file).unwrap().ino,
    );
    let mut found = Vec::new();
    linux::for_each_extent_item(&file, subvolume, ino, 0, |offset, item| {
        if item[20] != INLINE {
            found.push((offset, item[8..].to_vec()));
        }
        true
    })
    .unwrap();
    found
}

/// Copies and gives the messages.
fn copy(options: &[&str], from: &Path, to: &Path) -> String {
    let output = restow(["copy"]).args(options).args([from, to]).output();
    let (code, _, words) = shown(&output.unwrap());
    assert_eq!(code, 0, "{words}");
    words
}

/// All that a tree has. Not its holes: Linux shows preallocated space as data where it follows data
/// in a clone.
fn manifest(at: &Path) -> String {
    let (code, out, words) = run_in(at, ["manifest", "."]);
    assert_eq!(code, 0, "{words}");
    out
}

/// A directory with files of all kinds of extents.
fn fill(tree: &Path) {
    fs::create_dir(tree).unwrap();
    let text = "a line of a text that repeats\n".repeat(100_000);
    fs::write(tree.join("text"), &text).unwrap();
    fs::write(tree.join("noise"), Rng::new(1).bytes(3_000_123)).unwrap();
    fs::write(tree.join("sector"), Rng::new(2).bytes(4096)).unwrap();
    fs::write(tree.join("short"), Rng::new(3).bytes(3000)).unwrap();
    fs::write(tree.join("inline"), b"a few bytes").unwrap();
    fs::write(tree.join("inline text"), &text[..4000]).unwrap();
    fs::write(tree.join("empty"), b"").unwrap();
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.write_all_at(&Rng::new(4).bytes(70_000), 0).unwrap();
    sparse.write_all_at(b"data", 2 << 20).unwrap();
    sparse.set_len(9 << 20).unwrap();
    let preallocated = File::create(tree.join("preallocated")).unwrap();
    linux::allocate(&preallocated, 0, 0, 1 << 20).unwrap();
    preallocated.write_all_at(&[7; 4096], 8192).unwrap();
    fs::hard_link(tree.join("noise"), tree.join("another name")).unwrap();
    run(Program::new("sync").arg("-f").arg(tree));
}

/// How many files with data [`fill`] makes.
const FILES: u64 = 8;

/// Checks that the holes of the file of [`fill`] are holes.
fn is_sparse(to: &Path) {
    let stat = fs::metadata(to.join("sparse")).unwrap();
    assert_eq!(stat.len(), 9 << 20);
    assert!(stat.blocks() * 512 < 100_000, "{}", stat.blocks());
}

fn shared(count: u64) -> String {
    format!("{count} files share their data with the source\n")
}

fn is_same(from: &Path, to: &Path) {
    assert_eq!(manifest(to), manifest(from));
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (one, other) = (entry.path(), to.join(entry.file_name()));
        assert_eq!(extents(&other), extents(&one), "{}", one.display());
    }
}

#[test]
#[ignore = "needs root"]
fn a_copy_on_one_btrfs_has_the_extents_of_its_source() {
    let (Some(mkfs), Some(btrfs)) = (tool("mkfs.btrfs"), tool("btrfs")) else {
        return;
    };
    for options in ["noatime,compress=zstd", "noatime"] {
        let mount = mounted(&mkfs, options);
        let at = mount.path();
        btrfs.run(["subvolume", "create", at.join("s").to_str().unwrap()]);
        let tree = at.join("s/tree");
        fill(&tree);
        assert!(!extents(&tree.join("noise")).is_empty());
        let preallocated = extents(&tree.join("preallocated"));
        assert!(
            preallocated
                .iter()
                .any(|(_, item)| item[12] == PREALLOCATED)
        );
        let words = copy(&[], &tree, &at.join("to"));
        assert!(words.contains(&shared(FILES)), "{words}");
        is_same(&tree, &at.join("to"));
        // What was not written yet, by one thread, from a snapshot that is read only.
        fs::write(tree.join("new"), Rng::new(5).bytes(2_000_000)).unwrap();
        let (from, snapshot) = (at.join("s"), at.join("snapshot"));
        let [from, to] = [&from, &snapshot].map(|path| path.to_str().unwrap());
        btrfs.run(["subvolume", "snapshot", "-r", from, to]);
        let to = at.join("s/again");
        let words = copy(&["-j1"], &snapshot.join("tree"), &to);
        assert!(words.contains(&shared(FILES + 1)), "{words}");
        is_same(&snapshot.join("tree"), &to);
        // One file alone, and what was edited on the way.
        copy(&["--to", "file"], &tree.join("noise"), &at.join("file"));
        assert_eq!(extents(&at.join("file")), extents(&tree.join("noise")));
        copy(&["--uid=7", "--exclude=new"], &tree, &at.join("edited"));
        let (edited, noise) = (at.join("edited/noise"), tree.join("noise"));
        assert_eq!(extents(&edited), extents(&noise));
    }
}

#[test]
#[ignore = "needs root"]
fn a_file_that_is_replaced_by_a_clone_keeps_its_content_elsewhere() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let mount = mounted(&mkfs, "noatime");
    let (tree, to) = (mount.path().join("tree"), mount.path().join("to"));
    fill(&tree);
    fs::create_dir(&to).unwrap();
    fs::write(to.join("noise"), b"old").unwrap();
    fs::write(to.join("other"), b"other").unwrap();
    fs::hard_link(to.join("noise"), mount.path().join("kept")).unwrap();
    let words = copy(&["--merge"], &tree, &to);
    assert!(words.contains(&shared(FILES)), "{words}");
    assert_eq!(fs::read(mount.path().join("kept")).unwrap(), b"old");
    assert_eq!(fs::read(to.join("other")).unwrap(), b"other");
    assert_eq!(extents(&to.join("noise")), extents(&tree.join("noise")));
}

#[test]
#[ignore = "needs root"]
fn a_file_whose_content_is_replaced_is_not_the_clone_of_the_old_one() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let mount = mounted(&mkfs, "noatime");
    let (tree, to) = (mount.path().join("tree"), mount.path().join("to"));
    fill(&tree);
    let dir = TempDir::new();
    fs::write(dir.join("new"), "new content\n".repeat(2000)).unwrap();
    fs::write(
        dir.join("list"),
        format!("noise2 l {}\n", dir.join("new").display()),
    )
    .unwrap();
    let list = format!("--add={}", dir.join("list").display());
    let words = copy(&[&list], &tree, &to);
    assert!(words.contains(&shared(FILES)), "{words}");
    assert_eq!(
        fs::read(to.join("noise2")).unwrap(),
        fs::read(dir.join("new")).unwrap()
    );
    assert_eq!(extents(&to.join("noise")), extents(&tree.join("noise")));
    // Another tree over it.
    fs::create_dir(dir.join("over")).unwrap();
    fs::write(dir.join("over/noise"), "another content\n".repeat(2000)).unwrap();
    let with = format!("--with={}", dir.join("over").display());
    copy(&[&with], &tree, &mount.path().join("joined"));
    let joined = mount.path().join("joined");
    assert_eq!(
        fs::read(joined.join("noise")).unwrap(),
        fs::read(dir.join("over/noise")).unwrap()
    );
    assert_eq!(extents(&joined.join("text")), extents(&tree.join("text")));
    // What looks for damage reads everything.
    let rescued = mount.path().join("rescued");
    let words = copy(&["--skip-unreadable"], &tree, &rescued);
    assert!(!words.contains(SHARED), "{words}");
    assert_eq!(manifest(&rescued), manifest(&tree));
}

#[test]
#[ignore = "needs root"]
fn a_file_without_checksums_is_copied_beside_those_that_are_cloned() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let mount = mounted(&mkfs, "noatime");
    let (tree, to) = (mount.path().join("tree"), mount.path().join("to"));
    fill(&tree);
    for name in ["0nocow", "nocow"] {
        let file = File::create(tree.join(name)).unwrap();
        linux::change_attributes(&file, NOCOW, NOCOW).unwrap();
        file.write_all_at(&Rng::new(6).bytes(1_500_000), 0).unwrap();
    }
    let words = copy(&[], &tree, &to);
    assert!(words.contains(&shared(FILES)), "{words}");
    assert_eq!(manifest(&to), manifest(&tree));
    assert_eq!(extents(&to.join("noise")), extents(&tree.join("noise")));
    assert_ne!(extents(&to.join("nocow")), extents(&tree.join("nocow")));
    // Where new files have none, only those without can be cloned.
    let above = mount.path().join("above");
    fs::create_dir(&above).unwrap();
    linux::change_attributes(File::open(&above).unwrap(), NOCOW, NOCOW).unwrap();
    let words = copy(&[], &tree, &above.join("to"));
    assert!(words.contains(&shared(2)), "{words}");
    let to = above.join("to");
    assert_eq!(manifest(&to), manifest(&tree));
    is_sparse(&to);
    assert_eq!(extents(&to.join("nocow")), extents(&tree.join("nocow")));
}

#[test]
#[ignore = "needs root"]
fn between_file_systems_content_is_copied() {
    let (Some(mkfs), Some(mkfs_ext4)) = (tool("mkfs.btrfs"), tool("mkfs.ext4")) else {
        return;
    };
    let mounts: [Mount; 2] = [(); 2].map(|()| mounted(&mkfs, "noatime"));
    let dir = TempDir::new();
    let tree = mounts[0].path().join("tree");
    fill(&tree);
    for to in [mounts[1].path().join("to"), dir.join("to")] {
        let words = copy(&[], &tree, &to);
        assert!(!words.contains(SHARED), "{words}");
        assert_eq!(manifest(&to), manifest(&tree));
        is_sparse(&to);
    }
    // A file system that cannot share at all.
    let backing = BackingFile::create(64 << 20);
    run(mkfs_ext4.command().arg("-q").arg(backing.path()));
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    let ext4 = Mount::new(device, FsType::Ext4, "");
    let words = copy(&[], &tree, &ext4.path().join("to"));
    assert!(!words.contains(SHARED), "{words}");
    let words = copy(&[], &ext4.path().join("to"), &ext4.path().join("again"));
    assert!(!words.contains(SHARED), "{words}");
    assert_eq!(manifest(&ext4.path().join("again")), manifest(&tree));
    is_sparse(&ext4.path().join("again"));
}
