//! `mkfs.btrfs`: file systems with the same files and the same facts in their superblocks.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use testkit::{
    Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, Tool, newer_tool, run, tool,
};

/// Command lines that both accept, or both refuse. `img` and `other` have 200 MiB of zeros, `small`
/// 10 MiB, `old` is a file system; `new` is not there.
const LINES: &[&str] = &[
    "img",
    "-q -b 160M img",
    "-q --byte-count=128m img",
    "-q -b 300M img",
    "small",
    "new",
    "old",
    "-q -f old",
    "--force -q old",
    "-q --csum xxhash img",
    "-q --checksum blake2 img",
    "-q --csum md5 img",
    "-q -d dup -m single img",
    "-q --data SINGLE --metadata DUP img",
    "-q -m raid1 img",
    "-q --data raid1c3 img",
    "-q -n 4096 img",
    "-q --nodesize 64k img",
    "-q -n 5000 img",
    "-q -s 4096 img",
    "-q --sectorsize 4k img",
    "-q -L name img",
    "-q --label=other -K img",
    "-q --nodiscard -U 0f0e0d0c-0b0a-0908-0706-050403020100 img",
    "-q --uuid 0f0e0d0c-0b0a-0908-0706-05040302010f img",
    "-q -U wrong img",
    "-v -v img",
    "--verbose --quiet img",
    "-V",
    "--version",
    "-q -O no-holes,extref img",
    "-q -O nothing img",
    "-O list-all",
    "-R list-all",
    "-q -R free-space-tree img",
    "--runtime-features list-all",
    "-q -r src img",
    "-q --rootdir src new",
    "-q --rootdir=src small",
    "-q -r src -b 300M img",
    "-q -r src --shrink new",
    "--shrink img",
    "-q -r none img",
    "img img",
    "--unknown img",
    // systemd-repart 252 (src/shared/mkfs-util.c).
    "-q -L root-x86-64 -U 032f5303-caa6-4e26-98eb-e18b936bc0ef img --nodiscard",
    "-q -L root -U 032f5303-caa6-4e26-98eb-e18b936bc0ef img --nodiscard -r src",
    // Buildroot (fs/btrfs/btrfs.mk).
    "-f -r src -L rootfs --byte-count 120m --nodesize 16384 --sectorsize 4096 new",
    // OpenEmbedded (meta/classes-recipe/image_types.bbclass).
    "-r src img",
    // osbuild (stages/org.osbuild.mkfs.btrfs).
    "-U 032f5303-caa6-4e26-98eb-e18b936bc0ef -L root img",
    // debos (actions/image_partition_action.go).
    "-L root -f -O no-holes,extref -U 032f5303-caa6-4e26-98eb-e18b936bc0ef img",
    // kiwi 11.1.6 (kiwi/filesystem/btrfs.py).
    "-L ROOT -U 032f5303-caa6-4e26-98eb-e18b936bc0ef --byte-count 157286400 img",
    "",
];

/// The same for the options that are newer than Debian 12.
const NEWER_LINES: &[&str] = &[
    "-q img",
    "-q --features block-group-tree img",
    "-q -O ^bgt,^quota img",
    "-q --device-uuid 00112233-4455-6677-8899-aabbccddeeff img",
    "-q -r src --compress zstd:9 img",
    "-q -r src --compress zlib img",
    "-q -r src --compress lzo: img",
    "-q -r src --compress no img",
    "-q -r src --compress zstd:16 img",
    "-q -r src --compress xz img",
    "-q -r src -u sub img",
    "-q -r src --subvol ro:sub -u default:sub/deep img",
    "-q -r src -u default-ro:sub img",
    "-q -r src -u ./ro:odd -u rw:sub img",
    "-q -r src -u default:sub -u default-ro:sub/deep img",
    "-q -r src -u sub -u ro:sub img",
    "-q -r src -u none img",
    "-q -u sub img",
    "-q -r src --inode-flags nodatacow:sub --inode-flags nodatasum:large img",
    "-q -r src -u sub/deep --inode-flags nodatacow,nodatasum:sub img",
    "-q -r src --inode-flags wrong:sub img",
    "-q -r src --inode-flags nodatacow:none img",
    "--inode-flags nodatacow:sub img",
    "--reflink img",
    "--csum xxhash -L words -d dup -m single img",
    "-r src -u sub -u default-ro:sub/deep --inode-flags nodatacow:large new",
    "-r src --compress zlib:3 new",
    "-O ^bgt -m single -n 4k img",
    // systemd-repart 262 (src/shared/mkfs-util.c), with Subvolumes=, and with Minimize=best.
    "-L root-x86-64 -U f169781e-5817-4140-8325-096450adeb5a -r src --compress zstd:9 --sectorsize=4096 \
     img --subvol default:/sub --subvol ro:/sub/deep",
    "-L var -U bec19d2c-a408-4dc2-9c93-1754a15e4150 -r src --sectorsize=4096 new --shrink",
];

/// Refusals and differences of restow without a case above.
const OTHER_LINES: &[&str] = &["-M img", "--mixed img"];

fn make_sources(dir: &Path) {
    fs::create_dir_all(dir.join("src/sub/deep")).unwrap();
    fs::create_dir(dir.join("src/ro:odd")).unwrap();
    fs::write(dir.join("src/large"), "some text\n".repeat(20_000)).unwrap();
    fs::write(dir.join("src/noise"), Rng::new(1).bytes(50_000)).unwrap();
    fs::write(dir.join("src/sub/small"), "small").unwrap();
    fs::write(dir.join("src/sub/deep/pages"), "pages ".repeat(2000)).unwrap();
    fs::hard_link(dir.join("src/large"), dir.join("src/link")).unwrap();
    symlink("sub/small", dir.join("src/soft")).unwrap();
    let sparse = File::create(dir.join("src/sparse")).unwrap();
    sparse.write_all_at(b"end", 40 << 20).unwrap();
}

fn make_targets(dir: &Path) {
    let _ = fs::remove_file(dir.join("new"));
    let large = ["img", "other", "old"].map(|name| (name, 200 << 20));
    for (name, bytes) in large.into_iter().chain([("small", 10 << 20)]) {
        File::create(dir.join(name))
            .unwrap()
            .set_len(bytes)
            .unwrap();
    }
    let old = File::options().write(true).open(dir.join("old"));
    old.unwrap().write_all_at(b"_BHRfS_M", 0x1_0040).unwrap();
}

/// The exit code, and the words that are printed but for the version, sizes and UUIDs.
fn ran(dir: &Path, original: Option<&Tool>, line: &str) -> (i32, Vec<String>) {
    make_targets(dir);
    let mut command = match original {
        Some(tool) => tool.command(),
        None => crate::restow(["mkfs.btrfs"]),
    };
    let output = command.args(line.split_whitespace()).current_dir(dir);
    let output = output.env_remove("SOURCE_DATE_EPOCH").output().unwrap();
    let words = String::from_utf8(output.stdout).unwrap();
    let words = words.lines().skip_while(|line| !line.starts_with("NOTE"));
    let words = words.filter(|line| !line.starts_with("UUID") && !line.starts_with("Rootdir"));
    let is_size = |word: &&str| word.ends_with("iB");
    let words = words.map(|line| match line.split_whitespace().find(is_size) {
        Some(size) => line
            .replace(&format!("{size:>10}"), "")
            .trim_end()
            .to_owned(),
        // Ours are named by their paths, theirs as they were typed.
        None => line.replace(" /sub", " sub"),
    });
    (output.status.code().unwrap(), words.collect())
}

/// Numbers of a superblock (`struct btrfs_super_block`) that both must have, with the type of the
/// first chunk of the system, and the length of the file.
fn facts(image: &Path, line: &str, is_newer: bool) -> Vec<(&'static str, Vec<u8>)> {
    let file = File::open(image).unwrap();
    let bytes = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, (64 << 10) + at).unwrap();
        bytes
    };
    let mut facts = vec![
        ("magic", bytes(0x40, 8)),
        ("devices", bytes(0x88, 8)),
        ("sector and node size", bytes(0x90, 8)),
        ("checksum type", bytes(0xc4, 2)),
        ("label", bytes(0x12b, 256)),
        ("profile", bytes(0x32b + 17 + 24, 8)),
    ];
    if is_newer {
        facts.push(("compatible for reading", bytes(0xb4, 8)));
    }
    if line.contains("-U ") || line.contains("--uuid") {
        facts.push(("UUID", bytes(0x20, 16)));
    }
    if line.contains("--device-uuid") {
        facts.push(("UUID of the device", bytes(0x10b, 16)));
    }
    if image.ends_with("img") {
        facts.push(("size", bytes(0x70, 8)));
        let len = file.metadata().unwrap().len();
        facts.push(("length", len.to_le_bytes().into()));
    }
    facts
}

/// Types of chunks, and flags of inodes.
fn trees(btrfs: &Tool, image: &Path) -> Vec<String> {
    let output = btrfs.run([Path::new("inspect-internal"), Path::new("dump-tree"), image]);
    let output = String::from_utf8(output.stdout).unwrap();
    let lines = output.lines().map(str::trim);
    let mut lines: Vec<String> = lines
        .filter_map(|line| {
            let flags = line.strip_prefix("sequence 0 flags ");
            let flags = flags.filter(|flags| *flags != "0x0(none)");
            let data = line.split_once(" type DATA").map(|(_, kind)| kind);
            flags.or(data).map(str::to_owned)
        })
        .collect();
    lines.sort();
    lines
}

fn compare(original: &Tool, lines: &[&str], is_newer: bool) {
    let btrfs = tool("btrfs").unwrap();
    let dir = TempDir::new();
    let [theirs, ours] = ["theirs", "ours"].map(|name| dir.join(name));
    for dir in [&theirs, &ours] {
        fs::create_dir(dir).unwrap();
    }
    make_sources(&theirs);
    run(Command::new("cp")
        .arg("-a")
        .arg(theirs.join("src"))
        .arg(&ours));
    for line in lines {
        let ran = [ran(&theirs, Some(original), line), ran(&ours, None, line)];
        let codes = ran.each_ref().map(|(code, _)| *code);
        assert_eq!(codes[0], codes[1], "{line}");
        if is_newer {
            assert_eq!(ran[0].1, ran[1].1, "{line}");
        }
        let target = line
            .split(' ')
            .find(|it| ["img", "new", "small", "old"].contains(it));
        let Some(target) = target.filter(|_| codes[0] == 0) else {
            continue;
        };
        let [theirs, ours] = [&theirs, &ours].map(|dir| dir.join(target));
        let facts = [&theirs, &ours].map(|image| facts(image, line, is_newer));
        assert_eq!(facts[0], facts[1], "{line}");
        if line.contains("--inode-flags") || line.contains("-d ") {
            let trees = [&theirs, &ours].map(|image| trees(&btrfs, image));
            assert_eq!(trees[0], trees[1], "{line}");
        }
        btrfs.run([Path::new("check"), Path::new("--check-data-csum"), &ours]);
        if line.contains("src") {
            // mkfs.btrfs keeps whole seconds.
            let words = ["diff", "--ignore", "mtime"].map(Path::new);
            let words = words.into_iter().chain([&*theirs, &*ours]);
            let (code, out, words) = crate::run_in(dir.path(), words);
            assert_eq!((code, &*out), (0, ""), "{line}: {words}");
        }
    }
}

#[test]
fn every_option_does_what_it_does_in_mkfs_btrfs() {
    let lines = [LINES, NEWER_LINES, OTHER_LINES].concat();
    super::assert_no_option_is_without_a_case("mkfs.btrfs", &lines);
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    compare(&mkfs, LINES, false);
}

#[test]
fn several_devices_are_those_of_mkfs_btrfs() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let dir = TempDir::new();
    let [theirs, ours] = ["theirs", "ours"].map(|name| dir.join(name));
    for dir in [&theirs, &ours] {
        fs::create_dir(dir).unwrap();
    }
    make_sources(&ours);
    for line in [
        "img other",
        "-q -d raid1 -m raid1 img other",
        "-q -d RAID0 -m raid1 -b 160M img other",
        "-q --data raid10 --metadata raid10 img other",
        "-q -m single -d single img other",
        "-q -d raid1c3 img other",
        "-q -b 300M img other",
        "img new",
        "img old",
        "-f img old",
        "img img",
    ] {
        let ran = [ran(&theirs, Some(&mkfs), line), ran(&ours, None, line)];
        assert_eq!(ran[0].0, ran[1].0, "{line}");
        if ran[0].0 == 0 {
            let facts = [&theirs, &ours].map(|dir| facts(&dir.join("img"), line, false));
            assert_eq!(facts[0], facts[1], "{line}");
            let words = ["check", "img", "--device", line.rsplit(' ').next().unwrap()];
            let (code, out, _) = crate::run_in(&ours, words);
            assert!(code == 0 && out.starts_with("0 errors in"), "{line}: {out}");
        }
    }
    // mkfs.btrfs takes no files for several devices.
    let (code, words) = ran(&ours, None, "-d raid1 -r src img other");
    assert!(code == 0 && words.contains(&"Number of devices:  2".to_owned()));
    let words = [
        "diff", "--ignore", "mtime", "src", "img", "--device", "other",
    ];
    let (code, out, words) = crate::run_in(&ours, words);
    assert_eq!((code, &*out), (0, ""), "{words}");
}

#[test]
fn every_newer_option_does_what_it_does_in_mkfs_btrfs() {
    let Some(mkfs) = newer_tool("mkfs.btrfs") else {
        return;
    };
    compare(&mkfs, NEWER_LINES, true);
}

#[test]
fn what_mkfs_btrfs_can_and_restow_cannot_is_refused_by_name() {
    let dir = TempDir::new();
    make_sources(dir.path());
    make_targets(dir.path());
    for (line, why) in [
        ("-M img", "-M is not supported"),
        ("--mixed img", "--mixed is not supported"),
        ("-s 16k img", "restow writes sectors of 4096 bytes"),
        ("-d raid5 img", "raid5 is read, and not written"),
        ("-O ^no-holes img", "^no-holes is not supported"),
        ("-O quota img", "quota is not supported"),
    ] {
        let line = format!("mkfs.btrfs {line}");
        let (code, _, words) = crate::run_in(dir.path(), line.split(' '));
        assert!(code == 1 && words.contains(why), "{line}: {words}");
        assert_eq!(fs::metadata(dir.join("img")).unwrap().blocks(), 0);
    }
    let line = "mkfs.btrfs -q -r src --reflink img";
    let (code, _, words) = crate::run_in(dir.path(), line.split(' '));
    assert!(code == 0 && words.contains("is copied, because"), "{words}");
}

/// A new file, also to read.
fn readable(path: &Path) -> File {
    File::create(path).unwrap();
    File::options().read(true).write(true).open(path).unwrap()
}

#[test]
fn what_is_known_is_written_over_only_with_force() {
    let dir = TempDir::new();
    for (at, bytes, noun) in [
        (0, &b"hsqs"[..], "a SquashFS image"),
        (510, b"\x55\xaa", "a partition table"),
        (0x438, b"\x53\xef", "an ext2"),
        (0xff6, b"SWAPSPACE2", "a swap area"),
        (0x1000, b"\xfc\x4e\x2b\xa9", "a member of a RAID"),
        (
            0x2_0400,
            b"\x0c\xb1\xba\0\0\0\0\0",
            "a device of a ZFS pool",
        ),
    ] {
        let file = readable(&dir.join("img"));
        file.set_len(64 << 20).unwrap();
        file.write_all_at(bytes, at).unwrap();
        let (code, _, words) = crate::run_in(dir.path(), ["mkfs.btrfs", "img"]);
        assert!(code == 1 && words.contains(noun), "{noun}: {words}");
        let mut kept = vec![0; bytes.len()];
        file.read_exact_at(&mut kept, at).unwrap();
        assert_eq!(kept, bytes);
        let (code, ..) = crate::run_in(dir.path(), ["mkfs.btrfs", "-q", "-f", "img"]);
        assert_eq!(code, 0, "{noun}");
    }
}

#[test]
fn a_file_keeps_its_number_and_every_file_system_has_its_own_uuid() {
    let dir = TempDir::new();
    let mut uuids = Vec::new();
    for name in ["a", "b"] {
        let file = readable(&dir.join(name));
        file.set_len(64 << 20).unwrap();
        let (code, ..) = crate::run_in(dir.path(), ["mkfs.btrfs", "-q", name]);
        assert_eq!(code, 0);
        let mut uuid = [0; 16];
        file.read_exact_at(&mut uuid, 0x1_0020).unwrap();
        uuids.push(uuid);
    }
    assert_ne!(uuids[0], uuids[1]);
}

#[test]
fn the_environment_of_reproducible_builds_is_that_of_mkfs_btrfs() {
    let dir = TempDir::new();
    make_sources(dir.path());
    let made = |uuid: &[&str]| {
        make_targets(dir.path());
        let mut command = crate::restow(["mkfs.btrfs", "-q", "-r", "src", "img"]);
        command.args(uuid).current_dir(dir.path());
        command
            .env("SOURCE_DATE_EPOCH", "1000000000")
            .env("DETERMINISTIC_SEED", "1");
        let code = command.output().unwrap().status.code();
        (code, fs::read(dir.join("img")).unwrap())
    };
    assert_eq!(made(&[]).0, Some(1));
    let uuid = ["-U", "0f0e0d0c-0b0a-0908-0706-050403020100"];
    let (first, again) = (made(&uuid), made(&uuid));
    assert_eq!(first.0, Some(0));
    assert!(first == again, "they differ");
}

/// Facts of a mounted tree that `diff` does not compare.
fn listing(point: &Path) -> String {
    // mkfs.btrfs keeps whole seconds.
    let script = "find . -type d -printf '%P %m %U %G\\n' | sort; \
                  find . ! -type d -printf '%P %y %m %U %G %s %n %l %T@\\n' \
                  | sed 's/[.][0-9]*$//' | sort; \
                  getfattr -R -d -m - . | sort; lsattr -R . | grep -- -C- | sort";
    let output = run(Command::new("sh").args(["-c", script]).current_dir(point));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs root"]
fn mounted_file_systems_are_those_of_mkfs_btrfs() {
    let (Some(mkfs), Some(btrfs)) = (newer_tool("mkfs.btrfs"), tool("btrfs")) else {
        return;
    };
    if ["getfattr", "setfattr", "lsattr"]
        .into_iter()
        .any(|it| tool(it).is_none())
    {
        return;
    }
    let dir = TempDir::new();
    make_sources(dir.path());
    let script = "mkfifo src/pipe; mknod src/null c 1 3; chown 7:8 src/sub/small; \
                  chmod 2751 src/sub; touch -d 2001-02-03T04:05:06 src/noise; \
                  setfattr -n user.a -v b src/large; setfattr -n trusted.c -v d src/sub";
    run(Command::new("sh")
        .args(["-ec", script])
        .current_dir(dir.path()));
    for line in [
        "-q -r src img",
        "-q -r src --compress zstd --shrink img",
        "-q -r src -u ro:sub -u default:sub/deep img",
        "-q -r src --inode-flags nodatacow:sub img",
    ] {
        let shown = [Some(&mkfs), None].map(|original| {
            assert_eq!(ran(dir.path(), original, line).0, 0, "{line}");
            let device =
                LoopDevice::attach(BackingFile::existing(dir.join("img")), Access::ReadOnly);
            let mount = Mount::new(device, FsType::Btrfs, "subvolid=5");
            let path = mount.path();
            run(Command::new("diff")
                .args(["-r", "--no-dereference", "-x", "pipe", "-x", "null"])
                .arg(dir.join("src"))
                .arg(path));
            let subvolumes = ["list", "get-default"].map(|verb| {
                let output = btrfs.run([Path::new("subvolume"), Path::new(verb), path]);
                let output = String::from_utf8(output.stdout).unwrap();
                let fields = output.split_whitespace();
                // Generations count transactions, of which mkfs.btrfs needs several.
                let numbers: Vec<&str> = fields.filter(|it| it.parse::<u8>().is_err()).collect();
                numbers.join(" ")
            });
            (listing(path), subvolumes)
        });
        assert_eq!(shown[0], shown[1], "{line}");
    }
}

#[test]
#[ignore = "needs root"]
fn devices_are_written_up_to_their_size_and_not_while_they_are_mounted() {
    let dir = TempDir::new();
    make_sources(dir.path());
    let backing = BackingFile::create(200 << 20);
    let file = backing.path().to_owned();
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    let path = device.path().to_str().unwrap().to_owned();
    let made = |words: &[&str]| {
        let words = [&["mkfs.btrfs"], words, &[&path]].concat();
        crate::run_in(dir.path(), words)
    };
    assert_eq!(made(&["-q"]).0, 0);
    assert_eq!(total_bytes(&path), 200 << 20);
    assert_eq!(made(&["-q"]).0, 1);
    assert_eq!(made(&["-q", "-f", "-b", "300M"]).0, 1);
    // The old content is gone: the marks of an ext4 and of a RAID, and all else unless -K is given.
    let old = File::options().write(true).open(&path).unwrap();
    let fill = || {
        old.write_all_at(&vec![b'x'; 30 << 20], 0).unwrap();
        old.write_all_at(b"\x53\xef", 0x438).unwrap();
        old.write_all_at(b"\xfc\x4e\x2b\xa9", (200 << 20) - (64 << 10))
            .unwrap();
        old.sync_all().unwrap();
    };
    let held = || fs::metadata(&file).unwrap().blocks() * 512;
    fill();
    let (code, words, _) = made(&["-f"]);
    let trim = format!("Performing full device TRIM {path} (200.00MiB) ...");
    assert!(code == 0 && words.contains(&trim), "{words}");
    assert!(held() < 5 << 20, "{} bytes", held());
    fill();
    let (code, words, _) = made(&["-f", "-K"]);
    assert!(code == 0 && !words.contains("TRIM"), "{words}");
    assert!(held() > 25 << 20, "{} bytes", held());
    let marks = run(Command::new("wipefs").args(["--noheadings", "--output", "TYPE", &path]));
    assert_eq!(String::from_utf8(marks.stdout).unwrap().trim(), "btrfs");
    assert_eq!(made(&["-q", "-f", "-b", "150M"]).0, 0);
    assert_eq!(total_bytes(&path), 150 << 20);
    assert_eq!(made(&["-q", "-f", "-r", "src", "--shrink"]).0, 0);
    assert!(total_bytes(&path) < 64 << 20);
    assert_eq!(made(&["-q", "-f", "-r", "src"]).0, 0);
    assert_eq!(total_bytes(&path), 200 << 20);
    let mount = Mount::new(device, FsType::Btrfs, "");
    let (code, _, words) = made(&["-q", "-f"]);
    assert!(code == 1 && words.contains("is mounted"), "{words}");
    fs::write(mount.path().join("more"), "written").unwrap();
    mount.unmount();
}

/// Data of an image beside its source is stored once, and the rest is a copy.
#[test]
#[ignore = "needs root"]
fn reflinked_data_is_stored_once() {
    let (Some(mkfs), Some(btrfs)) = (tool("mkfs.btrfs"), tool("btrfs")) else {
        return;
    };
    let dir = TempDir::new();
    let backing = BackingFile::create(300 << 20);
    mkfs.run([Path::new("-q"), backing.path()]);
    let device = LoopDevice::attach(backing, Access::ReadWrite);
    let disk = Mount::new(device, FsType::Btrfs, "");
    make_sources(disk.path());
    let large = Rng::new(2).bytes(5_000_001);
    fs::write(disk.path().join("src/sub/random"), &large).unwrap();
    let there = File::create(disk.path().join("old")).unwrap();
    there.set_len(100 << 20).unwrap();
    drop(there);
    for (name, options) in [("new", ""), ("old", "--compress zstd")] {
        let line = format!("mkfs.btrfs -q -r src --reflink {options} {name}");
        let (code, _, words) = crate::run_in(disk.path(), line.split_whitespace());
        assert_eq!((code, &*words), (0, ""), "{line}");
        let image = disk.path().join(name);
        run(Command::new("sync").arg("-f").arg(&image));
        let check = ["check", "--check-data-csum"].map(Path::new);
        btrfs.run(check.into_iter().chain([&*image]));
        let du = ["filesystem", "du", "--raw", "-s"].map(Path::new);
        let output = btrfs.run(du.into_iter().chain([&*image]));
        let output = String::from_utf8(output.stdout).unwrap();
        let fields: Vec<&str> = output.lines().last().unwrap().split_whitespace().collect();
        let [total, exclusive] = [0, 1].map(|at| fields[at].parse::<u64>().unwrap());
        // The large file, and the noise but for its tail.
        assert!(
            total - exclusive >= 5_000_000 / 4096 * 4096 + 48_000,
            "{output}"
        );
        // A loop device of a file in it could keep the file system busy.
        let copy = dir.join(name);
        fs::copy(&image, &copy).unwrap();
        let mount = Mount::read_only(&copy, FsType::Btrfs);
        let source = disk.path().join("src");
        run(Command::new("diff").arg("-r").arg(source).arg(mount.path()));
    }
    disk.unmount();
}

fn total_bytes(device: &str) -> u64 {
    let mut bytes = [0; 8];
    let file = File::open(device).unwrap();
    file.read_exact_at(&mut bytes, 0x1_0070).unwrap();
    u64::from_le_bytes(bytes)
}

/// systemd-repart calls the programs by their names, in PATH, and puts what they made, or copies
/// files, into its partitions.
#[test]
#[ignore = "needs root"]
fn systemd_repart_makes_partitions_with_it_and_with_mksquashfs() {
    let Some(repart) = tool("systemd-repart") else {
        return;
    };
    let dir = TempDir::new();
    make_sources(dir.path());
    for folder in ["bin", "definitions"] {
        fs::create_dir(dir.join(folder)).unwrap();
    }
    for name in ["mkfs.btrfs", "mksquashfs"] {
        symlink(env!("CARGO_BIN_EXE_restow"), dir.join("bin").join(name)).unwrap();
    }
    for (kind, format, files) in [
        ("root", "btrfs", "/src:/"),
        ("usr", "squashfs", "/src/sub:/"),
    ] {
        let definition = format!(
            "[Partition]\nType={kind}\nFormat={format}\nCopyFiles={files}\nSizeMinBytes=16M\n"
        );
        let name = format!("definitions/{kind}.conf");
        fs::write(dir.join(&name), definition).unwrap();
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let mut repart = repart.command();
    repart.args([
        "--empty=create",
        "--size=290M",
        "--dry-run=no",
        "--seed=random",
    ]);
    repart.arg(format!(
        "--definitions={}",
        dir.join("definitions").display()
    ));
    repart.arg(format!("--root={}", dir.path().display()));
    repart.env("PATH", format!("{}:{path}", dir.join("bin").display()));
    run(repart.arg(dir.join("disk")));
    // The copy is the second transaction; mkfs.btrfs alone needs more.
    let info = crate::ok(&dir, "info --image-at partition:1 --json disk").0;
    assert!(info.contains("\"generation\":2,"), "{info}");
    for (source, at) in [("src", "partition:1"), ("src/sub", "partition:2")] {
        let words = [
            "diff",
            "--ignore",
            "mtime,owner",
            source,
            "disk",
            "--second-image-at",
            at,
        ];
        let (code, out, told) = crate::run_in(dir.path(), words);
        assert_eq!((code, &*out), (0, ""), "{at}: {told}");
    }
}
