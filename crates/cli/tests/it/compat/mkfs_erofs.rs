//! `mkfs.erofs`: images with the same files and the same facts in their superblocks.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::{
    Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, Tool, newer_tool, run, tool,
};

use super::assert_no_option_is_without_a_case;

/// Command lines that both accept, or both refuse, of mkfs.erofs 1.5 too. `old` is a larger file,
/// `new` is not there.
const LINES: &[&str] = &[
    "new src",
    "old src",
    "--quiet new src",
    "-zlz4 new src",
    "-zlz4hc -C65536 new src",
    "-zlz4hc,9 new src",
    "-z lz4hc,9 -C 1048576 old src",
    "-C1000 -zlz4 new src",
    "-zlz4,3 new src",
    "-zlz4hc,20 new src",
    "-zlzo new src",
    "-T1000 new src",
    "-T x new src",
    "-U 0f0e0d0c-0b0a-0908-0706-050403020100 new src",
    "-U wrong new src",
    "-x 1 new src",
    "-x-1 new src",
    "-d 0 new src",
    "-d10 new src",
    "--all-root new src",
    "--force-uid=77 --force-gid=0x10 new src",
    "--force-uid=x new src",
    "--exclude-path=sub new src",
    "--exclude-path=sub/deep --exclude-path=noise new src",
    "--exclude-path=/sub --exclude-path=sub/ --exclude-path=./noise new src",
    "--exclude-regex=^s.*l$ --exclude-regex=/deep new src",
    "--exclude-regex=e new src",
    "--ignore-mtime -T1000 new src",
    "--ignore-mtime --preserve-mtime new src",
    "--max-extent-bytes=65536 -zlz4hc -C65536 new src",
    "-Eztailpacking -zlz4 new src",
    "-Elegacy-compress -zlz4 new src",
    "--file-contexts=contexts new src",
    "-Eforce-inode-extended,nosbcrc new src",
    "--unknown new src",
    "new none",
    "new",
    "",
];

/// The same for the options that are newer than Debian 12.
const NEWER_LINES: &[&str] = &[
    "-V",
    "--version",
    "-b4096 new src",
    "-b300 new src",
    "-E nothing new src",
    "-L 0123456789abcde new src",
    "-L 0123456789abcdef new src",
    "-U clear new src",
    "-U random new src",
    "-zzstd new src",
    "-zzstd,level=5 -C131072 new src",
    "-zzstd,0 new src",
    "-zzstd,23 new src",
    "-zdeflate,level=6 new src",
    "-zlibdeflate,12 new src",
    "-zlz4hc,level=0:zstd new src",
    "-zzstd -C2097152 new src",
    "-zzstd,3 -E48bit --max-extent-bytes=131072 new src",
    "-zzstd -C1048576 -E48bit,dot-omitted,xattr-name-filter new src",
    "-zzstd -C65536 -Efragments=65536,dedupe,^fragdedupe new src",
    "-zzstd -Eall-fragments,fragdedupe=inode new src",
    "-zzstd -Eall-fragments=x new src",
    "-zzstd -m4096 -Eall-fragments -T1000 new src",
    "-Eplain-xattr-prefixes --xattr-prefix=user.long. new src",
    "-Eforce-inode-blockmap,force-chunk-indexes new src",
    "-Eforce-inode-compact -T1000 --mkfs-time new src",
    "-T1000 --mkfs-time new src",
    "-T1000 --mkfs-time --all-time new src",
    "-T1000 --mkfs-time --ignore-mtime new src",
    "--zfeature-bits=6 -zzstd new src",
    "--zfeature-bits=300 new src",
    "--zD=0 --MZ=0 new src",
    "--uid-offset=5 --gid-offset=6 new src",
    "--uid-offset=5 --force-uid=10 --all-root --gid-offset=0x10 new src",
    "--hard-dereference new src",
    "--mount-point=/usr new src",
    "--offset=0 --workers=1 new src",
    "--workers=0 new src",
    "--workers=x new src",
    "--async-queue-limit=1024 --sort=path new src",
    "--sort=none --clean new src",
    "--clean=data --ovlfs-strip=0 new src",
    "--xattr-inode-digest=trusted.erofs.fingerprint new src",
    "--quiet --tar=f new src.tar",
    "--tar new src.tar",
    "--tar=f --ungzip new src.tar.gz",
    "--tar=f new < src.tar",
    "--tar=f new part.tar",
    "--tar=f new src",
    "--tar=f new src/large",
    "new src src",
    // systemd-repart (src/shared/mkfs-util.c), with options from its environment behind its own.
    "-U 032f5303-caa6-4e26-98eb-e18b936bc0ef old src --quiet -L root -zzstd,level=9",
    // osbuild f6b23db (stages/org.osbuild.erofs:28).
    "new src --quiet -z zstd,8 -E all-fragments,dedupe -C 65536",
    // kiwi fb48da9 (kiwi/filesystem/erofs.py:62).
    "-z zstd,level=9 -L LIVE --exclude-regex=^run/.*$ --exclude-regex=^tmp$ new src",
    // Yocto 35a2c6e (meta/classes-recipe/image_types.bbclass:170).
    "-zlz4hc new src",
];

/// Those that restow refuses by their names.
const REFUSED: &[(&str, &str)] = &[
    ("-b 1024 new src", "restow writes blocks of 4096 bytes"),
    ("-zlzma new src", "lzma is not supported"),
    ("-zzstd,dictsize=65536 new src", "dictsize is not supported"),
    ("-E^inline_data new src", "^inline_data is not supported"),
    ("-m 4096:lz4 -zzstd new src", "codec of data"),
    ("-m 4096 new src", "only with data"),
    ("--zD=1 new src", "directories are not compressed"),
    ("--MZ new src", "metadata lies in one zone"),
    ("--blobdev=blob new src", "--blobdev is not supported"),
    ("--chunksize=4096 new src", "--chunksize is not supported"),
    ("--clean=rvsp new src", "has the data of its files"),
    ("--incremental new src", "--incremental is not supported"),
    (
        "--incremental=data new src",
        "--incremental is not supported",
    ),
    (
        "--compress-hints=list new src",
        "--compress-hints is not supported",
    ),
    ("--dsunit=8 new src", "--dsunit is not supported"),
    ("--fsalignblks=8 new src", "--fsalignblks is not supported"),
    ("--offset=4096 new src", "begins at the start of its file"),
    (
        "--root-xattr-isize=64 new src",
        "--root-xattr-isize is not supported",
    ),
    ("--aufs new src", "--aufs is not supported"),
    ("--s3=host new src", "--s3 is not supported"),
    ("--oci=f new src", "--oci is not supported"),
    ("--tar=i new src.tar", "--tar=f"),
    (
        "--ovlfs-strip new src",
        "whiteouts and attributes of overlayfs stay",
    ),
    (
        "--tar --gzip=plain new src.tar.gz",
        "is not written to a file",
    ),
    (
        "--tar --unxz=plain new src.tar.gz",
        "is not written to a file",
    ),
    ("--gzinfo new src.tar.gz", "--gzinfo is not supported"),
    ("--vmdk-desc=file new src", "--vmdk-desc is not supported"),
    (
        "--xattr-inode-digest new src",
        "digests are in trusted.erofs.fingerprint",
    ),
    ("--quiet -h", "prints the options as the first word"),
    ("-q --help", "-q is not an option"),
    ("--quiet --help", "prints the options as the first word"),
    ("--exclude-regex=( new src", "--exclude-regex"),
    ("new src.tar", "--tar takes an archive"),
];

fn make_sources(dir: &Path) {
    fs::create_dir_all(dir.join("src/sub/deep")).unwrap();
    fs::write(dir.join("src/large"), "some text\n".repeat(40_000)).unwrap();
    fs::write(dir.join("src/noise"), Rng::new(1).bytes(50_000)).unwrap();
    fs::write(dir.join("src/sub/small"), "small").unwrap();
    fs::write(dir.join("src/sub/deep/pages"), "pages ".repeat(2000)).unwrap();
    fs::hard_link(dir.join("src/large"), dir.join("src/link")).unwrap();
    symlink("sub/small", dir.join("src/soft")).unwrap();
    fs::write(dir.join("contexts"), "/.* u:r:any\n/sub/.* -- u:r:sub\n").unwrap();
    let sparse = File::create(dir.join("src/sparse")).unwrap();
    sparse.write_all_at(b"end", 3 << 20).unwrap();
    let script = "mkfifo src/pipe; chmod 2751 src/sub; \
                  find src -exec touch -h -d 2001-02-03T04:05:06.789 {} +; \
                  tar -cf src.tar -C src --sort=name .; gzip -k src.tar; \
                  tar -cf part.tar -C src sub/deep/pages large";
    run(Command::new("sh").args(["-ec", script]).current_dir(dir));
}

/// The exit code.
fn ran(dir: &Path, original: Option<&Tool>, line: &str) -> i32 {
    let _ = fs::remove_file(dir.join("new"));
    fs::write(dir.join("old"), vec![1; 4 << 20]).unwrap();
    let mut command = match original {
        Some(tool) => tool.command(),
        None => crate::restow(["mkfs.erofs"]),
    };
    let (line, input) = line.split_once(" < ").unwrap_or((line, "/dev/null"));
    command.args(line.split_whitespace()).current_dir(dir);
    command.stdin(File::open(dir.join(input)).unwrap());
    let output = command
        .env_remove("SOURCE_DATE_EPOCH")
        .stdout(Stdio::null());
    output.output().unwrap().status.code().unwrap()
}

/// Fields of a superblock (`struct erofs_super_block`) that both must have.
fn facts(image: &Path, line: &str) -> Vec<(&'static str, Vec<u8>)> {
    let file = File::open(image).unwrap();
    let bytes = |at: u64, len: usize| {
        let mut bytes = vec![0; len];
        file.read_exact_at(&mut bytes, 1024 + at).unwrap();
        bytes
    };
    let mut facts = vec![
        ("magic", bytes(0, 4)),
        ("block size", bytes(12, 1)),
        ("label", bytes(64, 16)),
        (
            "length in whole blocks",
            vec![(file.metadata().unwrap().len() % 4096) as u8],
        ),
    ];
    if line.contains("-U ") && !line.contains("random") {
        facts.push(("UUID", bytes(48, 16)));
    }
    facts
}

fn compare(original: &Tool, fsck: &Tool, lines: &[&str]) {
    let dir = TempDir::new();
    let [theirs, ours] = ["theirs", "ours"].map(|name| dir.join(name));
    for dir in [&theirs, &ours] {
        fs::create_dir(dir).unwrap();
    }
    make_sources(&theirs);
    run(Command::new("cp")
        .arg("-a")
        .arg(theirs.join("."))
        .arg(&ours));
    for line in lines {
        let codes = [ran(&theirs, Some(original), line), ran(&ours, None, line)];
        assert_eq!(codes[0], codes[1], "{line}");
        let target = line.split(' ').find(|it| ["new", "old"].contains(it));
        let Some(target) = target.filter(|_| codes[0] == 0) else {
            continue;
        };
        let [theirs, ours] = [&theirs, &ours].map(|dir| dir.join(target));
        let facts = [&theirs, &ours].map(|image| facts(image, line));
        assert_eq!(facts[0], facts[1], "{line}");
        fsck.run([&ours]);
        let mut words = vec![Path::new("diff"), &theirs, &ours];
        if line.contains("part.tar") {
            // Directories that the archive does not have are as old as the image there.
            words.splice(1..1, ["--ignore", "mtime,owner,mode"].map(Path::new));
        } else if line.contains("contexts") {
            // Their labels have no NUL at the end; a test compares ours with setfiles.
            words.splice(1..1, ["--ignore", "xattrs"].map(Path::new));
        } else if line.contains("48bit") {
            // Theirs have whole seconds then.
            words.splice(1..1, ["--ignore", "mtime"].map(Path::new));
        }
        let (code, out, words) = crate::run_in(dir.path(), words);
        assert_eq!((code, &*out), (0, ""), "{line}: {words}");
    }
}

#[test]
fn every_option_does_what_it_does_in_mkfs_erofs() {
    let refused: Vec<&str> = REFUSED.iter().map(|(line, _)| *line).collect();
    let lines = [LINES, NEWER_LINES, &refused].concat();
    assert_no_option_is_without_a_case("mkfs.erofs", &lines);
    let (Some(mkfs), Some(fsck)) = (tool("mkfs.erofs"), tool("fsck.erofs")) else {
        return;
    };
    compare(&mkfs, &fsck, LINES);
}

#[test]
fn every_newer_option_does_what_it_does_in_mkfs_erofs() {
    let (Some(mkfs), Some(fsck)) = (newer_tool("mkfs.erofs"), newer_tool("fsck.erofs")) else {
        return;
    };
    compare(&mkfs, &fsck, LINES);
    compare(&mkfs, &fsck, NEWER_LINES);
}

#[test]
fn what_mkfs_erofs_can_and_restow_cannot_is_refused_by_name() {
    let dir = TempDir::new();
    make_sources(dir.path());
    for (line, why) in REFUSED {
        let line = format!("mkfs.erofs {line}");
        let (code, _, words) = crate::run_in(dir.path(), line.split(' '));
        assert!(code == 1 && words.contains(why), "{line}: {words}");
        assert!(!dir.join("new").exists(), "{line}");
    }
}

#[test]
fn an_image_is_for_the_linux_that_the_options_of_mkfs_erofs_need() {
    let dir = TempDir::new();
    make_sources(dir.path());
    for (options, kernel) in [
        ("", "5.4"),
        ("-zlz4hc", "5.13"),
        ("-zlz4hc -Efragments", "6.1"),
        ("-zdeflate", "6.6"),
        ("-zzstd,15", "6.10"),
        ("-zzstd --zfeature-bits=64", "6.15"),
    ] {
        let line = format!("mkfs.erofs {options} new src");
        let (code, out, words) = crate::run_in(dir.path(), line.split_whitespace());
        assert_eq!((code, &*words), (0, ""), "{line}");
        let (info, _) = crate::ok(&dir, "info --json new");
        let info = crate::json::object_of(&info);
        assert_eq!(info["min_kernel"].text(), kernel, "{line}");
        let uuid = format!("Filesystem UUID: {}\n", info["uuid"].text());
        let blocks = fs::metadata(dir.join("new")).unwrap().len() / 4096;
        let blocks = format!("Filesystem total blocks: {blocks} (of 4096-byte blocks)\n");
        let inodes = "Filesystem total inodes: 10\n";
        let all = [&*uuid, &*blocks, inodes];
        assert!(all.iter().all(|line| out.contains(line)), "{out}");
    }
}

#[test]
fn an_existing_image_keeps_its_number_and_the_epoch_is_that_of_mkfs_erofs() {
    let Some(mkfs) = tool("mkfs.erofs") else {
        return;
    };
    let dir = TempDir::new();
    make_sources(dir.path());
    let old = fs::metadata(dir.join("src.tar")).unwrap();
    for (name, program) in [("src.tar", None), ("theirs", Some(&mkfs))] {
        let mut command = program.map_or_else(|| crate::restow(["mkfs.erofs"]), Tool::command);
        command.env("SOURCE_DATE_EPOCH", "1500000000");
        run(command
            .args(["--quiet", name, "src"])
            .current_dir(dir.path()));
    }
    assert_eq!(fs::metadata(dir.join("src.tar")).unwrap().ino(), old.ino());
    crate::ok(&dir, "diff theirs src.tar");
}

/// Facts of a mounted tree that `diff` does not compare.
fn listing(point: &Path) -> String {
    let script = "find . -printf '%P %y %m %U %G %s %n %l %T@\\n' | sed 's/^\\(.* d [^ ]* [^ ]* [^ ]*\\) [0-9]* /\\1 /' \
                  | sort; getfattr -R -d -m - . | sort";
    let output = run(Command::new("sh").args(["-c", script]).current_dir(point));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
#[ignore = "needs root"]
fn mounted_images_are_those_of_mkfs_erofs() {
    let Some(mkfs) = newer_tool("mkfs.erofs") else {
        return;
    };
    if ["getfattr", "setfattr"]
        .into_iter()
        .any(|it| tool(it).is_none())
    {
        return;
    }
    let dir = TempDir::new();
    make_sources(dir.path());
    let script = "mknod src/null c 1 3; chown 7:8 src/sub/small; \
                  setfattr -n user.a -v b src/large; setfattr -n trusted.c -v d src/sub; \
                  touch -h -d 2001-02-03T04:05:06.789 src/null src; \
                  tar -cf src.tar -C src --sort=name .";
    run(Command::new("sh")
        .args(["-ec", script])
        .current_dir(dir.path()));
    for line in [
        "new src",
        "-zlz4hc -C65536 --uid-offset=100000 --gid-offset=1 new src",
        "-zzstd,level=9 --all-root --hard-dereference new src",
        "-zzstd -E48bit --max-extent-bytes=65536 --exclude-regex=noise new src",
        "-T1000 --tar=f new src.tar",
        "-x-1 new src",
    ] {
        let shown = [Some(&mkfs), None].map(|original| {
            assert_eq!(ran(dir.path(), original, line), 0, "{line}");
            let mount = Mount::read_only(dir.join("new"), FsType::Erofs);
            let mut diff = Command::new("diff");
            diff.args([
                "-r",
                "--no-dereference",
                "-x",
                "pipe",
                "-x",
                "null",
                "-x",
                "noise",
            ]);
            run(diff.arg(dir.join("src")).arg(mount.path()));
            let listing = listing(mount.path());
            // Theirs have whole seconds then.
            if line.contains("48bit") {
                return listing.replace(".789", ".000");
            }
            listing
        });
        assert_eq!(shown[0], shown[1], "{line}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_device_is_written_from_its_beginning_and_not_while_it_is_mounted() {
    let dir = TempDir::new();
    make_sources(dir.path());
    let device = LoopDevice::attach(BackingFile::create(8 << 20), Access::ReadWrite);
    let path = device.path().to_str().unwrap().to_owned();
    let line = ["mkfs.erofs", "--quiet", "-zlz4", &path, "src"];
    assert_eq!(crate::run_in(dir.path(), line).0, 0);
    let mount = Mount::new(device, FsType::Erofs, "");
    let large = fs::read(mount.path().join("large")).unwrap();
    assert!(large == fs::read(dir.join("src/large")).unwrap());
    let (code, _, words) = crate::run_in(dir.path(), line);
    assert!(code == 1 && words.contains("is mounted"), "{words}");
}
