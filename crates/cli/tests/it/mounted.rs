//! Directories on a mounted btrfs, of which compressed extents are copied as they are stored.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command as Program, Stdio};

use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, cases, run, tool};

use super::receive::{change, mounted};
use super::send_mounted::without_privilege;
use super::{restow, run_in, shown};

/// What is stored of a file: for each compressed extent its place in the file, how it is encoded,
/// and its bytes.
type Stored = Vec<(u64, linux::ReadExtent, [u8; 32])>;

fn files(at: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(at).unwrap().map(Result::unwrap).collect();
    entries.sort_unstable_by_key(fs::DirEntry::path);
    for entry in entries {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files(&entry.path(), found);
        } else if kind.is_file() {
            found.push(entry.path());
        }
    }
}

/// What is stored of all files, by path, read extent by extent from Linux. Without two kinds of
/// extents inside a tree block: short ones that Linux stores compressed although that makes them
/// longer (LZO), since no other file can be given these as they are; and the first sector of a
/// file that grew after Linux had written it, which an image stores with the data that follows.
fn stored(at: &Path) -> BTreeMap<PathBuf, Stored> {
    let mut found = Vec::new();
    files(at, &mut found);
    let mut bytes = Vec::new();
    let mut each = BTreeMap::new();
    for path in found {
        let file = File::open(&path).unwrap();
        let size = file.metadata().unwrap().len();
        let mut extents = Vec::new();
        let mut offset = 0;
        while offset < size {
            let read = linux::read_encoded(&file, offset, 128 << 10, &mut bytes).unwrap();
            assert!(read.len > 0, "{}: {offset}", path.display());
            let is_inline = !bytes.len().is_multiple_of(4096);
            let is_longer = bytes.len() as u64 >= read.unencoded_len;
            let is_first_sector = is_inline && read.len < size;
            if read.compression != 0 && !is_longer && !is_first_sector {
                extents.push((offset, read, tree::sha256(&bytes)));
            }
            offset += read.len;
        }
        each.insert(path.strip_prefix(at).unwrap().to_owned(), extents);
    }
    each
}

fn assert_same(after: &BTreeMap<PathBuf, Stored>, before: &BTreeMap<PathBuf, Stored>) {
    assert_eq!(after.len(), before.len());
    for (path, extents) in before {
        let now = &after[path];
        assert_eq!(now, extents, "{}", path.display());
    }
}

/// The bytes that a file system uses for data.
fn used(at: &Path) -> u64 {
    run(Program::new("sync").arg("-f").arg(at));
    let output = run(Program::new("btrfs")
        .args(["filesystem", "df", "-b"])
        .arg(at));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let data = text.lines().find(|line| line.starts_with("Data")).unwrap();
    let used = data.split_once("used=").unwrap().1;
    used.parse().unwrap()
}

/// The number of extents that a summary says were kept.
fn kept(words: &str) -> u64 {
    let before = words
        .split_once(" kept compressed")
        .map_or("", |(it, _)| it);
    let number = before.rsplit(' ').next().unwrap_or_default();
    number.replace(',', "").parse().unwrap_or(0)
}

/// Copies, and compresses nothing; gives the number of extents kept.
fn copy(from: &Path, to: &Path) -> u64 {
    let mut command = restow(["copy"]);
    if to.extension().is_some() {
        command.args(["--compress", "none"]);
    }
    let output = command.args([from, to]).output().unwrap();
    let (code, _, words) = shown(&output);
    assert_eq!(code, 0, "{words}");
    assert!(!words.contains("written decompressed"), "{words}");
    kept(&words)
}

fn manifest(at: &Path) -> String {
    let (code, out, words) = run_in(at, ["manifest", "."]);
    assert_eq!(code, 0, "{words}");
    out
}

/// A new, mounted btrfs of `bytes` bytes.
pub(crate) fn sized(bytes: u64, options: &str) -> Mount {
    let mkfs = tool("mkfs.btrfs").unwrap();
    let backing = BackingFile::create(bytes);
    run(mkfs.command().arg("--quiet").arg(backing.path()));
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    Mount::new(device, FsType::Btrfs, options)
}

/// Copies `tree` on a mounted btrfs into an image, and that into another mounted btrfs, and checks
/// that everything that is compressed stays as it is. Gives the number of compressed extents.
fn round(tree: &Path, bytes: u64) -> u64 {
    let before = stored(tree);
    let dir = TempDir::new();
    let image = dir.join("tree.btrfs");
    let in_image = copy(tree, &image);
    // As Linux reads it there.
    let device = LoopDevice::attach(BackingFile::existing(&image), Access::ReadOnly);
    let mount = Mount::new(device, FsType::Btrfs, "");
    let expected = manifest(tree);
    assert!(manifest(mount.path()) == expected);
    assert_same(&stored(mount.path()), &before);
    mount.unmount();
    let target = sized(bytes, "noatime");
    let to = target.path().join("tree");
    let in_target = copy(&image, &to);
    assert!(manifest(&to) == expected);
    assert_same(&stored(&to), &before);
    // And from there, mounted to mounted; on one file system they would share everything.
    let other = sized(bytes, "noatime");
    let again = other.path().join("again");
    let directly = copy(&to, &again);
    assert!(manifest(&again) == expected);
    assert_same(&stored(&again), &before);
    // Each extent that is shared is there once.
    assert!(
        in_image <= directly && in_target == directly,
        "{in_image} {in_target} {directly}"
    );
    before.values().map(|extents| extents.len() as u64).sum()
}

#[test]
#[ignore = "needs root"]
fn compressed_extents_go_from_mount_to_image_to_mount_as_they_are() {
    if tool("mkfs.btrfs").is_none() {
        return;
    }
    for algorithm in ["zstd", "lzo", "zlib"] {
        let source = sized(512 << 20, &format!("noatime,compress-force={algorithm}"));
        let tree = source.path().join("tree");
        fs::create_dir(&tree).unwrap();
        change(&tree, &mut Rng::new(4), 80);
        for number in 0..40_u64 {
            let line = format!("line {number} of a text that repeats\n");
            fs::write(
                tree.join(format!("text{number}")),
                line.repeat(1 << (number % 14)),
            )
            .unwrap();
        }
        let big = "a large file of lines that differ little\n".repeat(200_000);
        fs::write(tree.join("big"), big).unwrap();
        fs::write(tree.join("noise"), Rng::new(1).bytes(3_000_000)).unwrap();
        let mut reflink = Program::new("cp");
        run(reflink
            .args(["--reflink=always", "big", "shared"])
            .current_dir(&tree));
        let mut reflink = Program::new("cp");
        run(reflink
            .args(["--reflink=always", "noise", "noise2"])
            .current_dir(&tree));
        run(Program::new("sync").arg("-f").arg(&tree));
        let extents = round(&tree, 512 << 20);
        assert!(extents > 100, "{algorithm}: {extents}");
    }
}

#[test]
#[ignore = "needs root"]
fn what_is_shared_on_a_mounted_btrfs_stays_shared() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let mounts = [
        mounted(&mkfs, "noatime,compress=zstd"),
        mounted(&mkfs, "noatime"),
    ];
    let [source, target] = [0, 1].map(|side: usize| mounts[side].path());
    let tree = source.join("tree");
    fs::create_dir(&tree).unwrap();
    let text = "a line of a text that repeats\n".repeat(100_000);
    fs::write(tree.join("0text"), text).unwrap();
    fs::write(tree.join("0noise"), Rng::new(1).bytes(5_000_000)).unwrap();
    for number in 1..8 {
        for name in ["text", "noise"] {
            let mut reflink = Program::new("cp");
            reflink.args([
                "--reflink=always",
                &format!("0{name}"),
                &format!("{number}{name}"),
            ]);
            run(reflink.current_dir(&tree));
        }
    }
    let before = used(target);
    copy(&tree, &target.join("tree"));
    let more = used(target) - before;
    assert_eq!(manifest(&target.join("tree")), manifest(&tree));
    assert!((5_000_000..6_000_000).contains(&more), "{more}");
}

#[test]
#[ignore = "needs root"]
fn without_privilege_what_is_compressed_is_copied_decompressed() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let mount = mounted(&mkfs, "noatime,compress-force=zstd");
    let other = mounted(&mkfs, "noatime");
    let tree = mount.path().join("tree");
    fs::create_dir(&tree).unwrap();
    for number in 0..9 {
        let text = "a line of a text that repeats\n".repeat(20_000);
        fs::write(tree.join(format!("text{number}")), text).unwrap();
    }
    let dir = TempDir::new();
    for (to, is_btrfs) in [
        (dir.join("i.btrfs"), true),
        (dir.join("i.stream"), true),
        (dir.join("i.tar"), false),
        (other.path().join("tree"), true),
        // It shares its data with the source, which is not read.
        (mount.path().join("other"), false),
    ] {
        let args = ["copy", tree.to_str().unwrap(), to.to_str().unwrap()];
        let output = without_privilege(args)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        let (code, _, words) = shown(&output);
        assert_eq!(code, 0, "{words}");
        let note = "only root can read it as it is stored";
        assert_eq!(
            words.matches(note).count(),
            usize::from(is_btrfs),
            "{words}"
        );
        assert_eq!(kept(&words), 0, "{words}");
    }
    let (code, out, words) = run_in(dir.path(), ["diff", "i.btrfs", tree.to_str().unwrap()]);
    assert_eq!((code, &*out), (0, ""), "{words}");
    // What is not yet on the medium is seen.
    fs::write(tree.join("new"), "new content\n".repeat(9000)).unwrap();
    copy(&tree, &dir.join("new.btrfs"));
    let (code, out, words) = run_in(dir.path(), ["diff", "new.btrfs", tree.to_str().unwrap()]);
    assert_eq!((code, &*out), (0, ""), "{words}");
}

#[test]
#[ignore = "needs root"]
fn a_squashfs_image_keeps_the_blocks_of_a_mounted_btrfs() {
    if tool("mkfs.btrfs").is_none() {
        return;
    }
    for (algorithm, codec) in [("zstd", "zstd:19"), ("zlib", "gzip:9")] {
        let source = sized(512 << 20, &format!("noatime,compress-force={algorithm}"));
        let tree = source.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let mut rng = Rng::new(9);
        for number in 0..12_u64 {
            let line = format!("{number} {}\n", rng.below(1 << 40));
            // Some end with a whole block.
            let text = line.repeat(30_000);
            let len = if number % 2 == 0 { 3 << 17 } else { text.len() };
            fs::write(tree.join(format!("text{number}")), &text[..len]).unwrap();
        }
        run(Program::new("sync").arg("-f").arg(&tree));
        let dir = TempDir::new();
        let image = dir.join("tree.squashfs");
        let mut command = restow(["copy", "--compress", codec]);
        let output = command.args([&tree, &image]).output().unwrap();
        let (code, _, words) = shown(&output);
        assert_eq!(code, 0, "{words}");
        assert!(kept(&words) >= 6 * 3, "{algorithm}: {words}");
        let device = LoopDevice::attach(BackingFile::existing(&image), Access::ReadOnly);
        let mount = Mount::new(device, FsType::Squashfs, "");
        let mut diff = Program::new("diff");
        run(diff.arg("-r").arg(mount.path()).arg(&tree));
        // All of it is encoded if that is wanted.
        let again = dir.join("again.squashfs");
        let mut command = restow(["copy", "--recompress", "--compress", codec]);
        let output = command.args([&tree, &again]).output().unwrap();
        let (code, _, words) = shown(&output);
        assert_eq!((code, kept(&words)), (0, 0), "{words}");
    }
}

/// A campaign over files of /usr, force-compressed.
#[test]
#[ignore = "needs root"]
fn files_of_usr_keep_their_compressed_extents() {
    let wanted = cases(30_u64);
    if tool("mkfs.btrfs").is_none() {
        return;
    }
    for algorithm in ["zstd", "lzo", "zlib"] {
        let source = sized(6 << 30, &format!("noatime,compress-force={algorithm}"));
        let tree = source.path().join("tree");
        fs::create_dir(&tree).unwrap();
        let mut list = Program::new("sh");
        list.arg("-c").arg(format!(
            "find bin lib share -xdev -type f -size -20000k | LC_ALL=C sort | head -n {wanted} | \
             tar -cf - --no-xattrs -T - | tar -xf - -C {}",
            tree.display()
        ));
        run(list.current_dir("/usr"));
        run(Program::new("sync").arg("-f").arg(&tree));
        let extents = round(&tree, 6 << 30);
        assert!(extents >= wanted, "{algorithm}: {extents}");
    }
}
