//! btrfs images: made from every source, listed, described, checked, and copied on.

use std::fs;
use std::path::Path;

use testkit::{Rng, TempDir, tool};

use crate::{names, run_in};

fn source(dir: &TempDir) {
    fs::create_dir_all(dir.join("src/sub/inner")).unwrap();
    fs::create_dir_all(dir.join("src/empty")).unwrap();
    fs::write(dir.join("src/small"), "a small file\n").unwrap();
    let text = "a large file\n".repeat(30_000);
    fs::write(dir.join("src/sub/large"), &text).unwrap();
    fs::write(dir.join("src/sub/inner/again"), &text).unwrap();
    fs::write(dir.join("src/sub/noise.bin"), Rng::new(1).bytes(300_000)).unwrap();
    fs::hard_link(dir.join("src/small"), dir.join("src/hard")).unwrap();
    std::os::unix::fs::symlink("../small", dir.join("src/sub/soft")).unwrap();
}

/// Runs what must succeed; gives what it says on standard output.
fn done(dir: &Path, args: &[&str]) -> String {
    let (code, out, words) = run_in(dir, args);
    assert_eq!((code, words.as_str()), (0, ""), "{args:?}: {out}");
    out
}

fn btrfs_check(image: &Path) {
    let Some(btrfs) = tool("btrfs") else { return };
    let mut check = btrfs.command();
    let output = check
        .args(["check", "--check-data-csum"])
        .arg(image)
        .output();
    let output = output.unwrap();
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && words.contains("no error found"),
        "{words}"
    );
}

#[test]
fn there_and_back_with_every_codec_and_checksum() {
    let dir = TempDir::new();
    source(&dir);
    let at = dir.path();
    let manifest = done(at, &["manifest", "src"]);
    for (codec, checksum) in [
        ("zstd", "crc32c"),
        ("zstd:-5", "xxhash"),
        ("zlib:9", "sha256"),
        ("lzo", "blake2b"),
        ("none", "crc32c"),
    ] {
        for more in [
            &["--metadata", "single", "--nodesize", "4K"][..],
            &["--compress-force", "--slack", "16M", "-j1"],
        ] {
            let args = [
                "copy",
                "-q",
                "--overwrite",
                "src",
                "x.btrfs",
                "--compress",
                codec,
            ];
            let args = [&args[..], &["--checksum", checksum], more].concat();
            done(at, &args);
            btrfs_check(&dir.join("x.btrfs"));
            assert_eq!(done(at, &["manifest", "x.btrfs"]), manifest, "{codec}");
            let checked = done(at, &["check", "x.btrfs"]);
            assert!(checked.starts_with("0 errors in"), "{checked}");
        }
    }
    done(at, &["copy", "-q", "x.btrfs", "back"]);
    assert_eq!(done(at, &["manifest", "back"]), manifest);
}

#[test]
fn every_source_becomes_an_image() {
    let dir = TempDir::new();
    source(&dir);
    let at = dir.path();
    done(at, &["copy", "-q", "src", "src.tar"]);
    done(
        at,
        &[
            "copy",
            "-q",
            "--all-time=7",
            "--compress",
            "zstd:1",
            "src",
            "src.sqfs",
        ],
    );
    done(at, &["copy", "-q", "--all-time=7", "src", "src.btrfs"]);
    done(at, &["copy", "-q", "src.tar", "tar.btrfs"]);
    done(at, &["copy", "-q", "src.sqfs", "sqfs.btrfs"]);
    done(at, &["copy", "-q", "src.btrfs", "btrfs.btrfs"]);
    done(
        at,
        &[
            "copy",
            "-q",
            "--recompress",
            "--compress",
            "lzo",
            "src.btrfs",
            "lzo.btrfs",
        ],
    );
    for (image, like) in [
        ("tar.btrfs", "src"),
        ("sqfs.btrfs", "src.sqfs"),
        ("btrfs.btrfs", "src.btrfs"),
        ("lzo.btrfs", "src.btrfs"),
    ] {
        btrfs_check(&dir.join(image));
        let manifests = [image, like].map(|name| done(at, &["manifest", name]));
        assert_eq!(manifests[0], manifests[1], "{image}");
    }
    // What is encoded stays as it is: the blocks of the SquashFS image are those of level 1.
    let uses = |image: &str, codec: &str| done(at, &["info", image]).contains(codec);
    assert!(uses("sqfs.btrfs", "\nzstd "));
    assert!(uses("btrfs.btrfs", "\nzstd ") && !uses("btrfs.btrfs", "\nlzo "));
    assert!(uses("lzo.btrfs", "\nlzo ") && !uses("lzo.btrfs", "\nzstd "));
}

#[test]
fn subvolumes_labels_sizes_and_rules() {
    let dir = TempDir::new();
    source(&dir);
    let at = dir.path();
    let id = "01234567-89ab-cdef-0123-456789abcdef";
    let args = [
        "copy",
        "-q",
        "src",
        "x.btrfs",
        "--as-subvolume",
        "sub:ro",
        "--as-subvolume",
        "/sub/inner/",
        "--default-subvolume",
        "sub",
        "--label",
        "a name",
        "--uuid",
        id,
        "--size",
        "64M",
        "--compress-path",
        "**/large=none",
        "--block-group-tree",
        "--all-root",
    ];
    done(at, &args);
    btrfs_check(&dir.join("x.btrfs"));
    assert_eq!(fs::metadata(dir.join("x.btrfs")).unwrap().len(), 64 << 20);
    let info = done(at, &["info", "x.btrfs"]);
    for words in [
        "label           a name\n",
        id,
        "sub, default, read-only,",
        "sub/inner, uuid",
        "default-subvol",
    ] {
        assert!(info.contains(words), "{words}: {info}");
    }
    // The default subvolume is what others see; a copy to an image has all of it.
    let listed = done(at, &["ls", "x.btrfs"]);
    assert_eq!(listed, "inner\nlarge\nnoise.bin\nsoft\n");
    let whole = done(at, &["manifest", "--subvolume", "5", "x.btrfs"]);
    let files: Vec<&str> = whole
        .lines()
        .filter(|line| line.starts_with("./"))
        .collect();
    assert!(
        files.len() > 8 && files.iter().all(|line| line.contains("uid=0 gid=0")),
        "{whole}"
    );
    done(at, &["copy", "-q", "x.btrfs", "copy.btrfs"]);
    btrfs_check(&dir.join("copy.btrfs"));
    let again = done(at, &["info", "copy.btrfs"]);
    let subvolumes = |info: &str| -> Vec<String> {
        let lines = info.lines().filter(|line| line.starts_with("subvolume"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(subvolumes(&again), subvolumes(&info));
    // A part becomes the top level of a file system that can be written to.
    done(
        at,
        &["copy", "-q", "--subvolume", "sub", "x.btrfs", "part.btrfs"],
    );
    let part = subvolumes(&done(at, &["info", "part.btrfs"]));
    assert_eq!(part.len(), 2);
    assert!(
        part[0].contains("/, default, uuid") && part[1].contains(" inner, uuid"),
        "{part:?}"
    );
}

#[test]
fn free_space_is_not_written() {
    let dir = TempDir::new();
    source(&dir);
    let (code, _, words) = run_in(dir.path(), ["copy", "src", "x.btrfs", "--size", "1GiB"]);
    assert_eq!(code, 0, "{words}");
    // 1.08 MB, of which as much is a repeated text as is noise.
    assert!(
        words.contains(" kB written to an image of 1.1 GB, ratio 2."),
        "{words}"
    );
}

#[test]
fn the_same_tree_gives_the_same_bytes() {
    let dir = TempDir::new();
    source(&dir);
    let at = dir.path();
    done(at, &["copy", "-q", "-j1", "src", "one.btrfs"]);
    done(at, &["copy", "-q", "-j4", "src", "four.btrfs"]);
    assert!(fs::read(dir.join("one.btrfs")).unwrap() == fs::read(dir.join("four.btrfs")).unwrap());
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_written() {
    let dir = TempDir::new();
    source(&dir);
    for (args, expected) in [
        (&["--compress", "xz"][..], "must be zstd, zlib, lzo or none"),
        (
            &["--compress", "zstd:16"],
            "zstd in btrfs has levels -15 to -1 and 1 to 15",
        ),
        (
            &["--compress", "zstd:0"],
            "zstd in btrfs has levels -15 to -1 and 1 to 15",
        ),
        (&["--compress-path", "x"], "must be PATTERN=CODEC"),
        (
            &["--checksum", "md5"],
            "must be crc32c, xxhash, sha256 or blake2b",
        ),
        (&["--metadata", "raid1"], "too few devices"),
        (&["--metadata", "raid"], "must be single, dup"),
        (&["--nodesize", "5K"], "not a power of two"),
        (
            &["--size", "1M"],
            "does not fit in that size; it needs at least ",
        ),
        (&["--size", "1M", "--slack", "1M"], "cannot be used with"),
        (
            &["--size", "18446744073709551615"],
            "the size of the file system is larger than any file",
        ),
        (
            &["--slack", "18446744073709551615"],
            "the slack is larger than any file",
        ),
        (&["--uuid", "1"], "32 hexadecimal digits"),
        (&["--as-subvolume", "small"], "not a directory"),
        (&["--as-subvolume", "nowhere"], "nowhere"),
        (&["--default-subvolume", "sub"], "it is not a subvolume"),
        (
            &["--block-size", "4K"],
            "--block-size does not apply to a btrfs image",
        ),
    ] {
        let args = [&["copy", "-q", "src", "x.btrfs"], args].concat();
        let (code, out, words) = run_in(dir.path(), &args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {words}");
        assert!(words.contains(expected), "{args:?}: {words}");
        assert_eq!(names(dir.path()), ["src"], "{args:?}");
    }
    let args = ["copy", "-q", "src", "x.tar", "--nodesize", "4K"];
    let (code, _, words) = run_in(dir.path(), args);
    assert!(
        code == 2 && words.contains("does not apply to a tar archive"),
        "{words}"
    );
}

#[test]
fn a_file_system_on_several_files_is_written_and_read() {
    let dir = TempDir::new();
    source(&dir);
    let at = dir.path();
    let write = |more: &[&str]| {
        let args = [
            "copy",
            "-q",
            "src",
            "a",
            "--to",
            "btrfs",
            "--add-device",
            "b",
        ];
        run_in(at, [&args[..], more].concat())
    };
    let manifest = done(at, &["manifest", "src"]);
    for (data, metadata) in [("raid1", ""), ("raid0", "raid1"), ("raid10", "dup")] {
        let metadata = match metadata {
            "" => &[][..],
            metadata => &["--metadata", metadata],
        };
        let more = [&["--overwrite", "--data", data], metadata].concat();
        let mut made = Vec::new();
        for threads in ["-j1", "-j2"] {
            let (code, _, words) = write(&[&more[..], &[threads]].concat());
            assert_eq!((code, words.as_str()), (0, ""), "{data}");
            made.push(["a", "b"].map(|name| fs::read(dir.join(name)).unwrap()));
        }
        assert!(made[0] == made[1], "{data}");
        let found = done(at, &["manifest", "a", "--device", "b"]);
        assert_eq!(found, manifest, "{data}");
        let checked = done(at, &["check", "b", "--device", "a"]);
        assert!(checked.starts_with("0 errors in"), "{checked}");
        let info = done(at, &["info", "a", "--device", "b"]);
        let is_listed = |line: &&str| line.starts_with("data") && line.ends_with(data);
        assert!(info.lines().any(|line| is_listed(&line)), "{info}");
    }
    let before = fs::read(dir.join("b")).unwrap();
    for (more, why) in [
        (&[][..], "a already exists; --overwrite replaces it"),
        (
            &["--overwrite", "--add-device", "./a"],
            "./a is named twice",
        ),
        (
            &["--overwrite", "--verity"],
            "a hash tree is for an image of one device",
        ),
        (&["--overwrite", "--data", "raid1c3"], "raid1c3 needs 3"),
        (
            &["--overwrite", "--size", "1M"],
            "does not fit in that size",
        ),
        (
            &["--overwrite", "--data", "raid5"],
            "raid5 is read, and not written",
        ),
        (
            &["--overwrite", "--add-device", "none/c"],
            "directory none does not exist",
        ),
    ] {
        let (code, _, words) = write(more);
        assert!(code == 2 && words.contains(why), "{more:?}: {words}");
        assert!(fs::read(dir.join("b")).unwrap() == before);
    }
    fs::remove_file(dir.join("a")).unwrap();
    let (code, _, words) = write(&[]);
    assert!(code == 2 && words.contains("b already exists"), "{words}");
    assert!(!dir.join("a").exists());
    // A link leads to the same file.
    std::os::unix::fs::symlink("b", dir.join("c")).unwrap();
    let (code, _, words) = write(&["--overwrite", "--add-device", "c"]);
    assert!(code == 2 && words.contains("c is named twice"), "{words}");
    assert!(fs::read(dir.join("b")).unwrap() == before);
}
