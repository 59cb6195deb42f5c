//! EROFS images as sources of every command.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use testkit::{TempDir, newer_tool, run, tool};

use super::json::object_of;
use super::{ok, run_in};

/// A directory with images of `crates/erofs/testdata`.
fn images(names: &[&str]) -> TempDir {
    let dir = TempDir::new();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofs/testdata");
    for name in names {
        fs::copy(from.join(name), dir.join(name)).unwrap();
    }
    dir
}

#[test]
fn every_command_reads_them() {
    let dir = images(&["lz4-fragments.erofs", "metabox.erofs"]);
    let (listed, _) = ok(&dir, "ls metabox.erofs:sub");
    assert_eq!(listed.lines().count(), 42);
    let (text, _) = ok(&dir, "cat metabox.erofs text");
    assert_eq!(text.len(), 7000);
    let (info, _) = ok(&dir, "info --json metabox.erofs");
    let info = object_of(&info);
    assert_eq!(info["format"].text(), "erofs");
    assert_eq!([info["inodes"].number(), info["names"].number()], [10, 51]);
    let (checked, _) = ok(&dir, "check lz4-fragments.erofs");
    assert!(checked.starts_with("0 errors in 10 inodes, "), "{checked}");
    let (usage, _) = ok(&dir, "usage --json lz4-fragments.erofs");
    assert_eq!(object_of(&usage)["files"].number(), 47);
    ok(&dir, "copy -q metabox.erofs x.tar");
    ok(&dir, "diff metabox.erofs x.tar");
    // Those with another version of mkfs.erofs have no other content.
    ok(
        &dir,
        "diff --ignore mtime,xattrs metabox.erofs lz4-fragments.erofs",
    );
    ok(&dir, "copy -q metabox.erofs x.erofs");
    ok(&dir, "diff metabox.erofs x.erofs");
}

#[test]
fn damage_is_found_and_named() {
    let dir = images(&["lz4.erofs"]);
    let image = fs::File::options().write(true).open(dir.join("lz4.erofs"));
    // In the inline cluster of `text`.
    image.unwrap().write_all_at(&[0xff; 600], 13_000).unwrap();
    let (code, out, _) = run_in(dir.path(), ["check", "lz4.erofs"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("lz4 block"), "{out}");
    let (code, _, words) = run_in(dir.path(), ["copy", "lz4.erofs", "x.tar"]);
    assert_eq!((code, words.contains("lz4 block")), (2, true), "{words}");
    assert!(!dir.join("x.tar").exists());
}

/// All that can be listed is checked, and counted.
#[test]
fn a_check_of_a_cut_image_goes_on() {
    let dir = images(&["plain.erofs"]);
    let image = fs::File::options()
        .write(true)
        .open(dir.join("plain.erofs"));
    image.unwrap().set_len(30_000).unwrap();
    let (code, out, _) = run_in(dir.path(), ["check", "plain.erofs"]);
    let summary = out.lines().last().unwrap();
    assert_eq!(code, 1, "{out}");
    assert!(!summary.contains(" in 0 inodes"), "{out}");
    assert!(out.contains("beyond the end of the erofs image"), "{out}");
}

#[test]
fn stored_bytes_and_metadata_and_slack_are_the_whole_file() {
    let names = [
        "plain.erofs",
        "chunks.erofs",
        "lz4.erofs",
        "records.erofs",
        "metabox.erofs",
    ];
    let dir = images(&names);
    for name in names {
        let (usage, _) = ok(&dir, &format!("usage --json {name}"));
        let usage = object_of(&usage);
        let of = |key: &str| usage[key].number();
        let stored = |key: &str| usage[key]["disk_usage_bytes"].number();
        let data = stored("total") - stored("inline");
        let (metadata, slack) = (of("metadata_bytes"), of("slack_bytes"));
        let len = fs::metadata(dir.join(name)).unwrap().len();
        assert_eq!(data + metadata + slack, len, "{name}");
        // 10 inodes and a directory of 42 names in 512 bytes or more.
        assert!(
            metadata > 1500 && slack < len / 2,
            "{name}: {metadata}, {slack}"
        );
    }
}

#[test]
fn an_image_in_a_file_is_searched() {
    let dir = images(&["lz4.erofs"]);
    let image = fs::read(dir.join("lz4.erofs")).unwrap();
    // The magic number alone is none.
    let mut firmware = vec![0; 2048];
    firmware[1024..1028].copy_from_slice(&image[1024..1028]);
    firmware.extend([7; 1536]);
    firmware.extend(&image);
    fs::write(dir.join("firmware"), firmware).unwrap();
    let (text, _) = ok(&dir, "cat --image-at search firmware text");
    assert_eq!(text.len(), 7000);
    let (checked, _) = ok(&dir, "check --image-at search firmware");
    assert!(checked.starts_with("0 errors in 10 inodes, "), "{checked}");
}

#[test]
fn data_on_a_further_device_needs_that_device() {
    let Some(mkfs) = tool("mkfs.erofs") else {
        return;
    };
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    fs::write(dir.join("src/file"), b"more than a block ".repeat(500)).unwrap();
    let mut command = mkfs.command();
    let command = command.current_dir(dir.path());
    run(command.args("--quiet --chunksize=4096 --blobdev=blob x.img src".split(' ')));
    ok(&dir, "diff --ignore mtime --device blob x.img src");
    ok(&dir, "check --device blob x.img");
    let (code, _, words) = run_in(dir.path(), ["cat", "x.img", "file"]);
    assert_eq!((code, words.contains("--device")), (2, true), "{words}");
    let all = ["check", "--device", "blob", "--device", "blob", "x.img"];
    let (code, _, words) = run_in(dir.path(), all);
    assert_eq!((code, words.contains("not as many")), (2, true), "{words}");
}

#[test]
fn frames_of_records_stay_as_they_are_stored() {
    let dir = images(&["records.erofs"]);
    let line = "copy --compress zstd:1 --block-size 8KiB --fragments none records.erofs x.sqfs";
    let (code, _, words) = run_in(dir.path(), line.split(' '));
    // An access control list is lost.
    assert_eq!(code, 1, "{words}");
    assert!(words.contains("3 kept compressed"), "{words}");
    ok(&dir, "diff --ignore xattrs records.erofs x.sqfs");
    if let Some(unsquashfs) = tool("unsquashfs") {
        let mut command = unsquashfs.command();
        let command = command.current_dir(dir.path());
        run(command.args("-q -n -no-xattrs -d there x.sqfs".split(' ')));
        ok(&dir, "diff --ignore xattrs,mtime,owner there records.erofs");
    }
    let (_, words) = ok(&dir, "copy --compress zstd:1 records.erofs x.btrfs");
    assert!(words.contains("kept compressed"), "{words}");
    ok(&dir, "diff records.erofs x.btrfs");
    let (_, words) = ok(&dir, "copy records.erofs x.stream");
    assert!(words.contains("kept compressed"), "{words}");
    ok(&dir, "diff records.erofs x.stream");
}

#[test]
fn lz4_blocks_of_a_newer_mkfs_erofs_stay_as_they_are_stored() {
    let (Some(mkfs), Some(unsquashfs)) = (newer_tool("mkfs.erofs"), tool("unsquashfs")) else {
        return;
    };
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    let text: String = (0..90_000u64)
        .map(|n| format!("{:x} ", n * n % 7919))
        .collect();
    fs::write(dir.join("src/file"), text).unwrap();
    let mut command = mkfs.command();
    let command = command.current_dir(dir.path());
    let options = "--quiet -zlz4hc -C131072 -E48bit --max-extent-bytes=131072 x.erofs src";
    run(command.args(options.split(' ')));
    let (_, words) = ok(&dir, "copy --compress lz4 x.erofs x.sqfs");
    assert!(words.contains("kept compressed"), "{words}");
    let mut command = unsquashfs.command();
    let command = command.current_dir(dir.path());
    run(command.args("-q -n -d there x.sqfs".split(' ')));
    ok(&dir, "diff --ignore mtime there src");
}

#[test]
fn images_are_made_for_the_linux_that_is_named() {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src/sub")).unwrap();
    std::os::unix::fs::symlink("large", dir.join("src/sub/link")).unwrap();
    fs::write(dir.join("src/sub/small"), "small").unwrap();
    fs::write(dir.join("src/large"), b"more than a unit ".repeat(40_000)).unwrap();
    for (options, kernel, codec) in [
        ("", "6.10", "zstd"),
        ("--min-kernel 6.15 --block-size 1M", "6.15", "zstd"),
        ("--compress lz4:hc --min-kernel 5.13", "5.13", "lz4"),
        ("--compress gzip:9", "6.6", "deflate"),
    ] {
        let line = format!(
            "copy --overwrite --label name --uuid {:032x} {options} src x.erofs",
            7
        );
        let (_, words) = ok(&dir, &line);
        assert!(words.contains(", ratio "), "{words}");
        ok(&dir, "diff src x.erofs");
        let (checked, _) = ok(&dir, "check x.erofs");
        assert!(checked.starts_with("0 errors in "), "{checked}");
        let (info, _) = ok(&dir, "info --json x.erofs");
        let info = object_of(&info);
        assert_eq!(info["min_kernel"].text(), kernel, "{options}");
        assert!(info["uuid"].text().ends_with("-000000000007"));
        assert_eq!(info["label"].text(), "name");
        let (words, _) = ok(&dir, "info x.erofs");
        let lines = [
            format!("codecs          {codec}\n"),
            format!("needs           Linux {kernel}\n"),
        ];
        assert!(lines.iter().all(|line| words.contains(line)), "{words}");
    }
    // The times of files, and of the image.
    let mut command = super::restow([
        "copy",
        "-q",
        "--to",
        "erofs",
        "src",
        "y",
        "--compress",
        "none",
    ]);
    command.env("SOURCE_DATE_EPOCH", "1234567890");
    run(command.current_dir(dir.path()));
    let (info, _) = ok(&dir, "info --json y");
    assert_eq!(object_of(&info)["min_kernel"].text(), "5.4");
    assert!(info.contains("\"made\":\"1234567890.0"), "{info}");
    ok(&dir, "diff --ignore mtime src y");
    let (code, _, words) = run_in(dir.path(), ["diff", "src", "y"]);
    assert_eq!((code, words.as_str()), (1, ""));
}

#[test]
fn options_that_images_of_erofs_do_not_have_are_refused() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    for (options, words) in [
        (
            "--reuse old --trust-mtime",
            "--trust-mtime does not apply to an EROFS image",
        ),
        (
            "--fragments none",
            "--fragments does not apply to an EROFS image",
        ),
        (
            "--nodesize 4096",
            "--nodesize does not apply to an EROFS image",
        ),
        (
            "--compress xz",
            "an EROFS image has zstd, gzip, lz4 or none",
        ),
        ("--compress zstd:23", "zstd in EROFS has levels 1 to 22"),
        (
            "--min-kernel 6.1",
            "zstd in EROFS needs Linux 6.10 or newer",
        ),
        ("--min-kernel six", "a version of Linux is like 6.12"),
    ] {
        let line = format!("copy {options} src x.erofs");
        let (code, _, error) = run_in(dir.path(), line.split(' '));
        assert_eq!((code, error.contains(words)), (2, true), "{error}");
        assert!(!dir.join("x.erofs").exists());
    }
    let line = "copy --min-kernel 6.15 src x.squashfs";
    let (code, _, error) = run_in(dir.path(), line.split(' '));
    let words = "--min-kernel does not apply to a SquashFS image";
    assert_eq!((code, error.contains(words)), (2, true), "{error}");
    let (code, _, error) = run_in(dir.path(), ["copy", "--to", "erofs", "src", "-"]);
    let words = "an EROFS image is not written sequentially";
    assert_eq!((code, error.contains(words)), (2, true), "{error}");
}

#[test]
fn compressed_data_of_images_stays_as_it_is_stored() {
    let dir = TempDir::new();
    fs::create_dir(dir.join("src")).unwrap();
    for number in 0..5_u64 {
        let words = (0..40_000 * number).map(|n| format!("{:x} ", n * n % 7919));
        fs::write(dir.join(format!("src/{number}")), words.collect::<String>()).unwrap();
    }
    for image in ["x.sqfs", "x.btrfs"] {
        ok(&dir, &format!("copy -q --compress zstd:1 src {image}"));
        let line = format!("copy --overwrite --min-kernel 6.15 {image} x.erofs");
        let (_, words) = ok(&dir, &line);
        assert!(words.contains(" kept compressed"), "{words}");
        assert!(!words.contains("encoded again"), "{words}");
        ok(&dir, "check x.erofs");
        ok(&dir, "diff --ignore mtime src x.erofs");
        let (_, words) = ok(&dir, &(line + " --recompress"));
        assert!(!words.contains("kept"), "{words}");
    }
    // An index of blocks cannot hold it.
    for (options, tip) in [
        ("", true),
        (" --recompress", false),
        (" --compress none", false),
    ] {
        let (_, words) = ok(&dir, &format!("copy --overwrite{options} x.btrfs x.erofs"));
        let tipped = words.contains("encoded again; --min-kernel 6.15 keeps it");
        assert_eq!(tipped, tip, "{words}");
    }
    // Deflate gets the frame of zlib, and loses it.
    ok(
        &dir,
        "copy -q --overwrite --compress gzip --min-kernel 6.15 src x.erofs",
    );
    for (image, options) in [
        ("x.sqfs", " --compress gzip"),
        ("x.btrfs", " --compress zlib"),
        ("x.stream", ""),
        ("y.erofs", " --compress gzip --min-kernel 6.15"),
    ] {
        let line = format!("copy --overwrite{options} x.erofs {image}");
        let (_, words) = ok(&dir, &line);
        let (before, _) = words.split_once(" kept compressed").expect(&words);
        let kept: u32 = before.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(kept >= 9 && !words.contains("encoded again"), "{words}");
        ok(&dir, &format!("diff --ignore mtime src {image}"));
    }
    if let Some(unsquashfs) = tool("unsquashfs") {
        let mut command = unsquashfs.command();
        run(command
            .current_dir(dir.path())
            .args("-q -n -d there x.sqfs".split(' ')));
        ok(&dir, "diff --ignore mtime src there");
    }
    // The codec of another image is no reason to encode again, but LZO is.
    ok(&dir, "copy -q --compress lzo src lzo.btrfs");
    let line = "copy --overwrite --min-kernel 6.15 lzo.btrfs x.erofs";
    let (_, words) = ok(&dir, line);
    let reason = "encoded again: codecs that EROFS does not have";
    assert!(words.contains(reason), "{words}");
    ok(&dir, "diff --ignore mtime src x.erofs");
}
