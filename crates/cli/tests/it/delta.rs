//! Patches between images, made and applied.

use std::fs;
use std::process::{Command, Stdio};

use testkit::{Access, BackingFile, LoopDevice, Rng, TempDir, cases, run, tool};

use super::json::object_of;
use super::{names, ok, restow, run_in};

/// Text of words that come again.
fn text(seed: u64, bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let words: Vec<Vec<u8>> = (0..300).map(|_| rng.bytes(5)).collect();
    let mut text = Vec::new();
    while text.len() < bytes {
        text.extend(&words[rng.index(300)]);
        text.extend(rng.below(10_000).to_string().as_bytes());
    }
    text.truncate(bytes);
    text
}

/// More than the patch of two images of mksquashfs with zstd takes, and far less than their blocks.
const MKSQUASHFS_BYTES: u64 = 40_000;

/// Two versions of a tree: files that change at their beginning, come, go and are renamed.
fn trees() -> TempDir {
    let dir = TempDir::new();
    for version in ["v1", "v2"] {
        let root = dir.join(version);
        fs::create_dir_all(root.join("lib")).unwrap();
        for number in 0..60 {
            let is_new = version == "v2";
            let mut content = text(number, 2000 + 900 * number as usize);
            if is_new && number % 20 == 3 {
                content.splice(..0, text(1000 + number, 700));
            }
            let name = if is_new && number == 7 { 70 } else { number };
            if !is_new || number != 9 {
                fs::write(root.join(format!("lib/{name}")), content).unwrap();
            }
        }
        fs::write(root.join("large"), text(99, 900_000)).unwrap();
    }
    dir
}

/// Makes and applies a patch; returns its length and the object of `--json`.
fn there_and_back(dir: &TempDir, old: &str, new: &str) -> u64 {
    let made = object_of(&ok(dir, &format!("delta --json --overwrite {old} {new} p")).0);
    let bytes = made["patch_bytes"].number();
    assert_eq!(bytes, fs::metadata(dir.join("p")).unwrap().len());
    ok(dir, &format!("patch --overwrite {old} p out"));
    let same = fs::read(dir.join("out")).unwrap() == fs::read(dir.join(new)).unwrap();
    assert!(same, "{old} {new}");
    bytes
}

#[test]
fn images_of_ours_are_made_from_their_content() {
    let dir = trees();
    for (name, options) in [
        ("squashfs", "--compress zstd:15"),
        ("erofs", "--compress zstd:9"),
        ("btrfs", "--compress zstd:3"),
        ("tar.zst", "--compress zstd:3"),
        ("squashfs", "--compress gzip"),
        ("squashfs", "--compress xz"),
        ("squashfs", "--compress lz4"),
        ("erofs", "--compress lz4"),
        ("tar", ""),
    ] {
        for version in ["v1", "v2"] {
            ok(
                &dir,
                &format!("copy --overwrite {options} {version} {version}.{name}"),
            );
        }
        let (old, new) = (format!("v1.{name}"), format!("v2.{name}"));
        let bytes = there_and_back(&dir, &old, &new);
        let planned = object_of(&ok(&dir, &format!("delta --plan --json {old} {new}")).0);
        assert_eq!(planned["patch_bytes"].number(), bytes);
        // The new text takes 1,500 bytes; the tables of a file system differ.
        assert!(bytes < 20_000, "{name} {options}: {bytes}, {planned:?}");
        if (name, options) == ("squashfs", "--compress lz4") {
            // Inside of a file, as in an AppImage.
            for version in ["v1", "v2"] {
                let image = fs::read(dir.join(format!("{version}.{name}"))).unwrap();
                let file = [&Rng::new(5).bytes(70_003)[..], &image].concat();
                fs::write(dir.join(format!("{version}.app")), file).unwrap();
            }
            let bytes = there_and_back(&dir, "v1.app", "v2.app");
            assert!(bytes < 20_000, "{bytes}");
        }
    }
}

#[test]
fn images_of_others_are_equal_too() {
    let dir = trees();
    if let Some(mksquashfs) = tool("mksquashfs") {
        for version in ["v1", "v2"] {
            for codec in ["zstd", "xz"] {
                let image = format!("{version}.{codec}");
                let mut make = mksquashfs.command();
                make.args([version, &image, "-comp", codec, "-quiet", "-no-progress"]);
                run(make.current_dir(dir.path()));
            }
        }
        for codec in ["zstd", "xz"] {
            let bytes = there_and_back(&dir, &format!("v1.{codec}"), &format!("v2.{codec}"));
            // The frames of libzstd are made again from their matches.
            assert!(codec != "zstd" || bytes < MKSQUASHFS_BYTES, "{bytes}");
        }
    }
    if let Some(mkfs) = tool("mkfs.erofs") {
        for version in ["v1", "v2"] {
            let mut make = mkfs.command();
            make.args(["-zlz4", "--quiet", &format!("{version}.e"), version]);
            run(make.current_dir(dir.path()));
        }
        there_and_back(&dir, "v1.e", "v2.e");
    }
}

/// An old file, a new one, and the patch.
fn versions() -> TempDir {
    let dir = trees();
    for version in ["v1", "v2"] {
        ok(
            &dir,
            &format!("copy --compress zstd:9 {version} {version}.squashfs"),
        );
    }
    ok(&dir, "delta v1.squashfs v2.squashfs p");
    dir
}

#[test]
fn errors_name_the_file_that_is_wrong() {
    let dir = versions();
    let fails = |line: &str, expected: &str| {
        let (code, _, words) = run_in(dir.path(), line.split_whitespace());
        assert_eq!(code, 2, "{line}: {words}");
        assert!(words.contains(expected), "{line}: {words}");
        assert!(!dir.join("new").exists(), "{line}");
    };
    fails("patch v1.squashfs p v1.squashfs", "not applied in place");
    fails("patch v1.squashfs p v2.squashfs", "--overwrite replaces it");
    fails(
        "patch v1.squashfs v2.squashfs new",
        "apply v2.squashfs: patch has no magic",
    );
    fails(
        "patch v1.squashfs --memory 1M p new",
        "--memory allows more",
    );
    fails(
        "patch v1 p new",
        "v1 is neither a regular file nor a block device",
    );
    fails(
        "delta v1 v2 new",
        "v1 is neither a regular file nor a block device",
    );
    let forms = "<OLD> <NEW> <PATCH>\n       restow delta [OPTIONS] --plan <OLD> <NEW>\n";
    fails("delta --plan v1.squashfs v2.squashfs new", forms);
    fails("delta v1.squashfs v2.squashfs", forms);
    // Another byte in a block that is copied.
    let mut old = fs::read(dir.join("v1.squashfs")).unwrap();
    old[300_000] ^= 1;
    fs::write(dir.join("other"), &old).unwrap();
    fails(
        "patch other p new",
        "read other: not the file that the patch was made from: SHA-256",
    );
    old.truncate(400_000);
    fs::write(dir.join("other"), &old).unwrap();
    fails(
        "patch other p new",
        "read other: not the file that the patch was made from: 400000",
    );
    let mut patch = fs::read(dir.join("p")).unwrap();
    patch[700] ^= 1;
    fs::write(dir.join("bad"), &patch).unwrap();
    fails(
        "patch v1.squashfs bad new",
        "apply bad: part of the patch does not have its SHA-256",
    );
}

#[test]
fn a_pipe_is_enough() {
    let dir = versions();
    let mut patch = restow(["patch", "v1.squashfs", "-", "new"]);
    let file = fs::File::open(dir.join("p")).unwrap();
    let mut cat = Command::new("cat")
        .stdin(file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    patch.stdin(cat.stdout.take().unwrap());
    run(patch.current_dir(dir.path()));
    cat.wait().unwrap();
    assert!(fs::read(dir.join("new")).unwrap() == fs::read(dir.join("v2.squashfs")).unwrap());
}

#[test]
fn a_killed_run_goes_on() {
    let dir = TempDir::new();
    let old = text(1, 2_000_000);
    let mut new = Rng::new(2).bytes(9_000_000);
    new.extend(&old);
    fs::write(dir.join("old"), &old).unwrap();
    fs::write(dir.join("want"), &new).unwrap();
    ok(&dir, "delta old want p");
    let patch = fs::read(dir.join("p")).unwrap();
    let mut rng = Rng::new(cases(5));
    for _ in 0..cases(5) {
        // It waits for the rest of the patch when it is killed.
        let mut child = restow(["patch", "--resume", "old", "-", "new"])
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let some = &patch[..rng.index(patch.len())];
        std::io::Write::write_all(&mut input, some).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!dir.join("new").exists());
    }
    ok(&dir, "patch --resume old p new");
    assert!(fs::read(dir.join("new")).unwrap() == new);
    assert_eq!(names(dir.path()), ["new", "old", "p", "want"]);
}

#[test]
fn little_memory_is_enough() {
    let dir = versions();
    // The program itself is larger than what it allocates.
    let script = "ulimit -d 16384; exec \"$0\" patch v1.squashfs p new";
    let mut limited = Command::new("sh");
    limited.args(["-c", script, env!("CARGO_BIN_EXE_restow")]);
    run(limited.current_dir(dir.path()));
    assert!(fs::read(dir.join("new")).unwrap() == fs::read(dir.join("v2.squashfs")).unwrap());
}

#[test]
#[ignore = "needs root"]
fn a_device_is_an_image_when_all_of_it_is_right() {
    let dir = versions();
    let new = fs::read(dir.join("v2.squashfs")).unwrap();
    let bytes = new.len().next_multiple_of(4096) as u64;
    let device = LoopDevice::attach(BackingFile::create(bytes), Access::ReadWrite);
    let path = device.path().display().to_string();
    let run_here = |line: &str| run_in(dir.path(), line.split_whitespace());
    let (code, _, words) = run_here(&format!("patch v1.squashfs p {path}"));
    assert!(code == 2 && words.contains("--overwrite"), "{words}");
    let old = fs::read(dir.join("v1.squashfs")).unwrap();
    fs::write(dir.join("other"), vec![0; old.len()]).unwrap();
    let before = b"what was there";
    fs::write(&path, before).unwrap();
    let (code, _, words) = run_here(&format!("patch --overwrite other p {path}"));
    assert!(code == 2 && words.contains("SHA-256"), "{words}");
    assert!(fs::read(&path).unwrap().starts_with(before));
    // Stopped, its beginning is empty.
    let patch = fs::read(dir.join("p")).unwrap();
    fs::write(dir.join("cut"), &patch[..patch.len() - 1]).unwrap();
    let (code, _, words) = run_here(&format!("patch --overwrite v1.squashfs cut {path}"));
    assert_eq!(code, 2, "{words}");
    assert!(
        fs::read(&path).unwrap()[..131_072]
            .iter()
            .all(|byte| *byte == 0)
    );
    ok(
        &dir,
        &format!("patch --resume --overwrite v1.squashfs p {path}"),
    );
    assert!(fs::read(&path).unwrap().starts_with(&new));
    // From the device, which is longer than the image.
    ok(&dir, &format!("delta {path} v1.squashfs back"));
    ok(&dir, &format!("patch {path} back again"));
    assert!(fs::read(dir.join("again")).unwrap() == old);
}
