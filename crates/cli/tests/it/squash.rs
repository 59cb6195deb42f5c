//! SquashFS images: made, listed, described, extracted and copied on.

use std::fs::{self, File};
use std::time::{Duration, SystemTime};

use testkit::TempDir;

use crate::{names, restow, run_in};

fn source(dir: &TempDir) {
    fs::create_dir_all(dir.join("src/sub/empty")).unwrap();
    fs::write(dir.join("src/small"), "a small file\n").unwrap();
    fs::write(dir.join("src/sub/large"), "a large file\n".repeat(30_000)).unwrap();
    fs::write(dir.join("src/sub/again"), "a large file\n".repeat(30_000)).unwrap();
    fs::hard_link(dir.join("src/small"), dir.join("src/sub/hard")).unwrap();
    std::os::unix::fs::symlink("../small", dir.join("src/sub/soft")).unwrap();
}

/// Whole seconds are what an image keeps.
const TIME: &str = "--all-time=1234567890";

#[test]
fn times_are_compared_to_the_second() {
    let dir = TempDir::new();
    source(&dir);
    let set = |seconds, nanoseconds| {
        let time = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        let file = File::open(dir.join("src/small")).unwrap();
        file.set_modified(time).unwrap();
    };
    let diff = |a, b| run_in(dir.path(), ["diff", a, b]);
    set(1_234_567_890, 999_999_999);
    assert_eq!(run_in(dir.path(), ["copy", "-q", "src", "x.sqfs"]).0, 0);
    assert_eq!(run_in(dir.path(), ["copy", "-q", "src", "x.tar"]).0, 0);
    for image in ["src", "x.tar"] {
        assert_eq!(diff(image, "x.sqfs"), (0, String::new(), String::new()));
    }
    // An archive tells nanoseconds.
    set(1_234_567_890, 0);
    assert_eq!(diff("src", "x.sqfs").0, 0);
    assert_eq!(diff("src", "x.tar").0, 1);
    set(1_234_567_891, 0);
    let (code, found, _) = diff("x.sqfs", "src");
    assert_eq!(code, 1);
    let names: Vec<&str> = found
        .lines()
        .filter_map(|line| line.split(": ").next())
        .collect();
    assert_eq!(names, ["small"]);
}

#[test]
fn there_and_back_with_every_codec() {
    let dir = TempDir::new();
    source(&dir);
    for codec in [
        "zstd:1", "zstd", "gzip:6", "xz:1:x86", "lz4", "lz4:hc:9", "lzo", "lzo:9", "none",
    ] {
        for threads in ["-j1", "-j3"] {
            let _ = fs::remove_dir_all(dir.join("back"));
            let args = [
                "copy",
                "-q",
                "--overwrite",
                threads,
                TIME,
                "--compress",
                codec,
                "src",
                "x.sqfs",
            ];
            assert_eq!(
                run_in(dir.path(), args),
                (0, String::new(), String::new()),
                "{codec}"
            );
            let args = ["copy", "-q", "x.sqfs", "back"];
            assert_eq!(
                run_in(dir.path(), args),
                (0, String::new(), String::new()),
                "{codec}"
            );
            let (_, ours, _) = run_in(dir.path(), ["manifest", "x.sqfs"]);
            let (_, back, _) = run_in(dir.path(), ["manifest", "back"]);
            assert_eq!(ours, back, "{codec}");
            for file in ["small", "sub/large", "sub/again", "sub/hard"] {
                let name = dir.join("back").join(file);
                assert_eq!(
                    fs::read(name).unwrap(),
                    fs::read(dir.join("src").join(file)).unwrap()
                );
            }
        }
        let (code, info, _) = run_in(dir.path(), ["info", "x.sqfs"]);
        assert!(
            code == 0 && info.contains("\nblock size      131072\n"),
            "{info}"
        );
        assert!(
            info.contains("\n  files         3\n") && info.contains("\nnames           8\n"),
            "{info}"
        );
    }
    let (code, list, _) = run_in(dir.path(), ["ls", "-R", "x.sqfs"]);
    assert_eq!(
        (code, &*list),
        (
            0,
            "small\nsub\nsub/again\nsub/empty\nsub/hard\nsub/large\nsub/soft\n"
        )
    );
    let (_, text, _) = run_in(dir.path(), ["cat", "x.sqfs", "sub/soft"]);
    assert_eq!(text, "a small file\n");
    assert_eq!(names(dir.path()), ["back", "src", "x.sqfs"]);
}

/// The algorithm and level of LZO are recorded, but for what mksquashfs does by default.
#[test]
fn levels_of_lzo_are_recorded() {
    let dir = TempDir::new();
    source(&dir);
    let sizes = [
        ("lzo", "lzo, algorithm 0, level 0"),
        ("lzo:2", "lzo, algorithm 4, level 2"),
        ("lzo:8", "lzo, algorithm 4, level 8"),
        ("lzo:9", "lzo, algorithm 4, level 9"),
    ]
    .map(|(codec, words)| {
        let args = ["copy", "-q", "--overwrite", TIME, "--compress", codec];
        let args = args.into_iter().chain(["src", "x.sqfs"]);
        assert_eq!(run_in(dir.path(), args).0, 0, "{codec}");
        let (_, info, _) = run_in(dir.path(), ["info", "x.sqfs"]);
        assert!(info.contains(words), "{codec}: {info}");
        // The flag for the record.
        let image = fs::read(dir.join("x.sqfs")).unwrap();
        assert_eq!(image[25] & 4 != 0, codec != "lzo:8", "{codec}");
        image.len()
    });
    assert!(sizes[3] <= sizes[0], "{sizes:?}");
}

#[test]
fn data_is_aligned_where_it_is_asked_for() {
    let dir = TempDir::new();
    source(&dir);
    let sizes = [&[][..], &["--align", "64K"]].map(|align| {
        let args = ["copy", "-q", "--overwrite", "--fragments", "none", TIME];
        let args = args.iter().chain(align).chain(&["src", "x.sqfs"]);
        assert_eq!(run_in(dir.path(), args).0, 0);
        assert_eq!(
            run_in(dir.path(), ["diff", "src", "x.sqfs", "--ignore", "mtime"]).0,
            0
        );
        assert_eq!(run_in(dir.path(), ["check", "-q", "x.sqfs"]).0, 0);
        fs::metadata(dir.join("x.sqfs")).unwrap().len()
    });
    assert!(sizes[0] < 64 << 10 && sizes[1] > 128 << 10, "{sizes:?}");
    let args = ["copy", "-q", "--align", "4K", "src", "x.btrfs"];
    let (code, _, words) = run_in(dir.path(), args);
    assert!(code == 2 && words.contains("--align"), "{words}");
}

#[test]
fn behind_a_program() {
    let dir = TempDir::new();
    source(&dir);
    // What `--offset` leaves in front is room for a program; here one with no sections, at byte
    // 4096.
    let args = [
        "copy", "-q", "--to", "squashfs", "--offset", "4096", TIME, "src", "app",
    ];
    assert_eq!(run_in(dir.path(), args).0, 0);
    let mut app = fs::read(dir.join("app")).unwrap();
    app[..6].copy_from_slice(b"\x7fELF\x02\x01");
    app[40..48].copy_from_slice(&4096u64.to_le_bytes());
    fs::write(dir.join("app"), app).unwrap();
    let (code, text, words) = run_in(dir.path(), ["cat", "app", "small"]);
    assert_eq!((code, &*text, &*words), (0, "a small file\n", ""));
}

/// In the midst of a firmware file, and as `mksquashfs -stream` writes it: the superblock last.
#[test]
fn in_the_midst_of_a_file_and_with_the_superblock_last() {
    let dir = TempDir::new();
    source(&dir);
    let args = ["copy", "-q", "--no-padding", TIME, "src", "x.sqfs"];
    assert_eq!(run_in(dir.path(), args).0, 0);
    let image = fs::read(dir.join("x.sqfs")).unwrap();

    // Marks that no image follows do not end the search, and one that two reads share is found.
    let mut firmware = b"hsqs".repeat(1000);
    firmware.resize((1 << 20) - 50, b'-');
    let at = firmware.len().to_string();
    firmware.extend(&image);
    firmware.extend(b"and more");
    fs::write(dir.join("firmware"), firmware).unwrap();
    for place in ["search", &at] {
        let args = ["cat", "--image-at", place, "firmware", "small"];
        let expected = (0, "a small file\n".to_owned(), String::new());
        assert_eq!(run_in(dir.path(), args), expected);
        assert_eq!(
            run_in(dir.path(), ["info", "--image-at", place, "firmware"]).0,
            0
        );
    }
    let (code, _, words) = run_in(dir.path(), ["ls", "firmware"]);
    assert!(
        code == 2 && words.contains("squashfs version is not 4.0"),
        "{words}"
    );
    let (code, _, words) = run_in(dir.path(), ["ls", "--image-at", "search", "src/small"]);
    assert!(
        code == 2 && words.contains("no SquashFS, btrfs or EROFS image found"),
        "{words}"
    );
    let (code, _, words) = run_in(dir.path(), ["ls", "--image-at", "7", "firmware"]);
    assert!(
        code == 2 && words.contains("not a squashfs superblock"),
        "{words}"
    );

    for (mark, padding, behind) in [
        (b"SQSH", 0, 0),
        (b"HSQS", 4096 - image.len() % 4096, 0),
        (b"hsqs", 1, 4000),
        (b"SQSH", 4096, 4096),
    ] {
        let mut stream = [&[b'S'; 96][..], &image[96..]].concat();
        stream.resize(stream.len() + padding, 0);
        stream.extend(mark);
        stream.extend(&image[4..96]);
        stream.resize(stream.len() + behind, 0);
        fs::write(dir.join("stream"), stream).unwrap();
        let (code, text, words) = run_in(dir.path(), ["cat", "stream", "sub/soft"]);
        assert_eq!((code, &*text, &*words), (0, "a small file\n", ""));
        assert_eq!(run_in(dir.path(), ["info", "stream"]).0, 0);
    }
}

#[test]
fn what_cannot_be_is_said_before_anything_is_written() {
    let dir = TempDir::new();
    source(&dir);
    for (args, words) in [
        (
            &["--compress", "zstd:99"][..],
            "zstd in SquashFS has levels 1 to 22",
        ),
        (
            &["--compress", "xz:blue"],
            "`blue` is not a level, `e`, or a filter",
        ),
        (
            &["--compress", "rar"],
            "must be zstd, gzip, xz, lz4, lzo or none",
        ),
        (
            &["--block-size", "100K"],
            "must be a power of two from 4K to 1M",
        ),
        (&["--fragments", "some"], "must be none, small or all"),
        (&["--align", "256"], "must be a power of two from 512 to 1M"),
        (&["--align", "6K"], "must be a power of two from 512 to 1M"),
        (
            &["--compress", "lzo:10"],
            "lzo in SquashFS has levels 1 to 9",
        ),
    ] {
        let output = restow(["copy", "src", "x.sqfs"])
            .args(args)
            .current_dir(dir.path())
            .output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.code() == Some(2) && said.contains(words),
            "{said}"
        );
    }
    let (code, _, words) = run_in(dir.path(), ["copy", "--to", "squashfs", "src", "-"]);
    assert!(
        code == 2 && words.contains("cannot go to standard output"),
        "{words}"
    );
    assert_eq!(names(dir.path()), ["src"]);
}

#[test]
fn options_that_do_not_apply_are_refused() {
    let dir = TempDir::new();
    source(&dir);
    for (args, words) in [
        (
            &["src", "x.tar", "--compress", "zstd:3"][..],
            "--compress does not apply to a tar archive; name it `.tar.zst`, `.tar.gz` or `.tar.xz`",
        ),
        (
            &["src", "x", "--block-size=64K"],
            "--block-size does not apply to a directory",
        ),
        (
            &["src", "x.sqfs", "--no-sync"],
            "--no-sync does not apply to a SquashFS image",
        ),
        (
            &["src", "x.tar", "--subvolume=5"],
            "not a btrfs image: --subvolume does not apply",
        ),
        (
            &["src", "x.sqfs", "--compress=zstd:99"],
            "--compress zstd:99: zstd in SquashFS has levels 1 to 22",
        ),
    ] {
        let args = ["copy"].iter().chain(args);
        let (code, _, said) = run_in(dir.path(), args);
        assert!(code == 2 && said.contains(words), "{said}");
    }
    assert_eq!(names(dir.path()), ["src"]);
}

#[test]
fn edits_are_what_others_see() {
    let dir = TempDir::new();
    source(&dir);
    let write = |name: &str, text: &str| fs::write(dir.join(name), text).unwrap();
    write(
        "list",
        "dev d 750 1 2\ndev/null c 666 0 0 1 3\ndev/s s 777 3 4 ../sub/soft\ndev/p i 600 5 6\nsub/new l host\n",
    );
    write("host", "from outside");
    write("out", "... again\n*/empty\n");
    write("order", "sub/large 5\n* -1\n");
    let args = [
        "copy",
        "-q",
        TIME,
        "--exclude-from=out",
        "--add=list",
        "--uid=7",
        "--map-gids=0:100:4000000000",
        "--file-mode=u=rw,go=r",
        "--dir-mode=711",
        "--sort=order",
        "--compress=lz4",
        "src",
        "x.sqfs",
    ];
    assert_eq!(run_in(dir.path(), args), (0, String::new(), String::new()));
    let Some(unsquashfs) = testkit::tool("unsquashfs") else {
        return;
    };
    let output = unsquashfs
        .command()
        .args(["-UTC", "-lln", "x.sqfs"])
        .current_dir(dir.path())
        .output()
        .unwrap();
    let list = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<String> = list
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (owner, name) = (
                words.get(1)?,
                words
                    .iter()
                    .position(|word| word.starts_with("squashfs-root"))?,
            );
            assert!(line.contains("2009-02-13 23:31"), "{line}");
            Some(format!(
                "{} {owner} {}",
                words[0],
                &words[name..].join(" ")["squashfs-root".len()..]
            ))
        })
        .collect();
    let (uid, gid) = (
        7,
        std::os::unix::fs::MetadataExt::gid(&fs::metadata(dir.path()).unwrap()) + 100,
    );
    let host = fs::metadata(dir.join("host")).unwrap();
    let host = (
        std::os::unix::fs::MetadataExt::uid(&host),
        std::os::unix::fs::MetadataExt::gid(&host),
    );
    let host_mode = if std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(dir.join("host")).unwrap().permissions(),
    ) & 0o20
        != 0
    {
        "-rw-rw-r--"
    } else {
        "-rw-r--r--"
    };
    let expected = [
        format!("drwx--x--x {uid}/{gid} "),
        "drwxr-x--- 1/2 /dev".into(),
        "crw-rw-rw- 0/0 /dev/null".into(),
        "prw------- 5/6 /dev/p".into(),
        "lrwxrwxrwx 3/4 /dev/s -> ../sub/soft".into(),
        format!("-rw-r--r-- {uid}/{gid} /small"),
        format!("drwx--x--x {uid}/{gid} /sub"),
        format!("-rw-r--r-- {uid}/{gid} /sub/hard"),
        format!("-rw-r--r-- {uid}/{gid} /sub/large"),
        format!("{host_mode} {}/{} /sub/new", host.0, host.1),
        format!("lrwxrwxrwx {uid}/{gid} /sub/soft -> ../small"),
    ];
    assert_eq!(lines, expected, "{list}");
    assert_eq!(
        run_in(dir.path(), ["cat", "x.sqfs", "sub/new"]).1,
        "from outside"
    );

    // Out again: only a part of it.
    let args = [
        "copy",
        "-q",
        "--all-root",
        "x.sqfs",
        "part",
        "sub/l*",
        "small",
    ];
    assert_eq!(run_in(dir.path(), args), (0, String::new(), String::new()));
    let (_, list, _) = run_in(dir.path(), ["ls", "-R", "part"]);
    assert_eq!(list, "small\nsub\nsub/large\n");
    for (args, words) in [
        (
            &["x.sqfs", "no", "sub/nothing"][..],
            "sub/nothing in x.sqfs does not exist",
        ),
        (&["src", "no", "--add=out"], "read out: line 1: "),
        (&["src", "no", "--map-uids=1:2"], "three numbers"),
        (&["src", "no", "--file-mode=rw"], "not a mode"),
    ] {
        let (code, _, said) = run_in(dir.path(), ["copy"].iter().chain(args));
        assert!(code == 2 && said.contains(words), "{said}");
        assert!(!dir.join("no").exists());
    }
}

#[test]
fn damage_is_found_and_named() {
    let dir = TempDir::new();
    source(&dir);
    let args = [
        "copy",
        "-q",
        "--compress=gzip:1",
        "--block-size=4K",
        "src",
        "x.sqfs",
    ];
    assert_eq!(run_in(dir.path(), args).0, 0);
    let (code, said, _) = run_in(dir.path(), ["check", "x.sqfs"]);
    assert!(
        code == 0 && said.starts_with("0 errors in 7 inodes, "),
        "{said}"
    );
    assert!(
        said.contains(" 1 fragment, 390013 bytes of data decoded"),
        "{said}"
    );
    // A byte in the midst of the data, and one in the inode table.
    let sound = fs::read(dir.join("x.sqfs")).unwrap();
    let (_, info, _) = run_in(dir.path(), ["info", "x.sqfs"]);
    let line = info
        .lines()
        .find(|line| line.starts_with("inode table"))
        .unwrap();
    let inodes: usize = line
        .split_whitespace()
        .last()
        .unwrap()
        .split("..")
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let damaged = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x55;
        fs::write(dir.join("y.sqfs"), bytes).unwrap();
        let (code, said, _) = run_in(dir.path(), ["check", "y.sqfs"]);
        let (no_data, _, _) = run_in(dir.path(), ["check", "--no-data", "y.sqfs"]);
        (code, no_data, said)
    };
    let (code, no_data, said) = damaged(300);
    assert!(
        (code, no_data) == (1, 0)
            && said
                .lines()
                .next()
                .is_some_and(|line| line.ends_with(", in sub/again")),
        "{said}"
    );
    let (code, no_data, said) = damaged(inodes + 10);
    assert!((code, no_data) == (1, 1), "{said}");
    let (code, _, said) = run_in(dir.path(), ["check", "src/small"]);
    assert!(code == 2, "{said}");
}
