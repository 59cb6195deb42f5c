//! btrfs images as sources: what the kernel wrote, what is damaged, and what lies on several
//! devices.

use std::fs::File;
use std::path::Path;

use testkit::{BtrfsImage, Rng, SECTOR, TempDir, cases, run, tool};

use super::{restow, run_in, shown};

/// The image that the kernel wrote for the tests of the btrfs crate.
pub(super) fn small() -> BtrfsImage {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../btrfs/testdata/small.zst");
    let mut bytes = vec![0; 1 << 20];
    let mut decoder = codec::Decoder::new();
    let frame = std::fs::read(path).unwrap();
    let len = decoder
        .decompress(codec::Algorithm::Zstd, &mut bytes, &frame)
        .unwrap();
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    let records = (8..len).step_by(8 + SECTOR);
    let sector = |at: usize| (word(at), bytes[at + 8..at + 8 + SECTOR].try_into().unwrap());
    BtrfsImage::new(word(0), records.map(sector).collect())
}

/// Runs what must do its work without a word on standard error; gives what it says.
fn done(dir: &Path, args: &[&str]) -> String {
    let (code, out, words) = run_in(dir, args);
    assert_eq!((code, &*words), (0, ""), "{args:?}: {out}");
    out
}

#[test]
fn what_an_image_says_of_itself_and_what_is_in_it() {
    let dir = TempDir::new();
    let at = dir.path();
    small().write_file(&dir.join("i"));
    let info = done(at, &["info", "i"]);
    for line in [
        "format          btrfs",
        "label           small",
        "uuid            f4b73169-6d56-46cc-90d2-881b73100d40",
        "generation      14",
        "checksum        crc32c",
        "features        compress-lzo compress-zstd extref skinny-metadata no-holes",
        "log             no",
        "data            25165824 bytes in 2 chunks, single",
        "subvolume 5     /, default, uuid 71d0be2d-423b-4779-a75c-8a3ac05d24ed",
        "subvolume 257   s/nested, uuid 4dc87f16-db03-9946-81f9-ce5c91c9d442",
        "subvolume 258   snap, read-only, uuid e484ecf6-448a-7a48-8ce7-99f318ffa1fd, snapshot of edf087bb-8a7f-7a4c-934a-9bfd006e759c",
    ] {
        assert!(info.lines().any(|found| found == line), "{line}: {info}");
    }
    assert!(info.contains("device 1 "), "{info}");
    // 3 extents of 4096 bytes, of 131072, 131072 and 40960; of the first, 4096 bytes are
    // overwritten by a plain one.
    let usage = done(at, &["info", "i", "--path", "zstd"]);
    let words: Vec<Vec<&str>> = (usage.lines())
        .map(|line| line.split_whitespace().collect())
        .collect();
    let first = "Processed 1 file, 4 regular extents (5 refs), 0 inline.";
    assert_eq!(usage.lines().next(), Some(first));
    assert_eq!(words[2], ["TOTAL", "5%", "16384", "307200", "303104"]);
    assert_eq!(words[3], ["none", "100%", "4096", "4096", "4096"]);
    assert_eq!(words[4], ["zstd", "4%", "12288", "303104", "299008"]);
    let (code, _, error) = run_in(at, ["info", "i", "--path", "none"]);
    assert_eq!(code, 2);
    assert_eq!(error, "restow: read i: none: no such file or directory\n");

    assert_eq!(
        done(at, &["ls", "i"]),
        "d\ndev\nfifo\nhard\ninline\ninline-lzo\ninline-zlib\ninline-zstd\nlink\nlzo\nprealloc\ns\nsnap\nsparse\nzlib\nzstd\n"
    );
    for subvolume in ["s", "/s", "256"] {
        assert_eq!(
            done(at, &["ls", "i", "--subvolume", subvolume]),
            "clone\nnested\n"
        );
    }
    assert_eq!(
        done(at, &["cat", "i", "--subvolume", "s/nested", "f"]).len(),
        7
    );
    let manifest = done(at, &["manifest", "--holes", "--ignore", "mtime", "i"]);
    assert_eq!(
        manifest,
        include_str!("../../../btrfs/testdata/small.manifest")
    );
    let check = done(at, &["check", "i"]);
    assert_eq!(check.lines().count(), 1);
    assert!(check.starts_with("0 errors in 45 tree blocks, "), "{check}");
    assert!(
        check.ends_with("53248 bytes of data verified, 1129316 bytes decoded\n"),
        "{check}"
    );

    done(at, &["copy", "-q", "i", "out.tar"]);
    done(at, &["diff", "i", "out.tar"]);
    done(at, &["copy", "-q", "i", "--subvolume", "snap", "snap.tar"]);
    done(at, &["diff", "i", "snap.tar", "--subvolume", "snap"]);
    let (code, differences, _) = run_in(at, ["diff", "i", "snap.tar"]);
    assert_eq!(code, 1, "{differences}");
    let (code, _, error) = run_in(at, ["ls", "i", "--subvolume", "d"]);
    assert_eq!(code, 2);
    assert!(error.contains("no subvolume d; "), "{error}");
    let (code, _, error) = run_in(at, ["ls", "i", "--subvolume", "4711"]);
    assert_eq!(code, 2);
    assert!(error.contains("no subvolume 4711; "), "{error}");
}

#[test]
fn an_image_whose_first_superblock_is_gone_is_read_by_a_copy() {
    let dir = TempDir::new();
    let mut image = small();
    image.patch(64 << 10, &[0; SECTOR]);
    image.write_file(&dir.join("i"));
    assert!(done(dir.path(), &["ls", "i"]).contains("inline-zstd\n"));
    assert!(done(dir.path(), &["info", "i"]).contains("label           small\n"));
    let (code, out, _) = run_in(dir.path(), ["check", "i"]);
    assert_eq!(code, 1);
    assert!(out.starts_with("not a btrfs superblock "), "{out}");
}

#[test]
fn damage_is_told_and_nothing_is_kept_of_what_cannot_be_read() {
    let dir = TempDir::new();
    let mut image = small();
    let extent = image.item(5, (257, 108, 0));
    let data = u64::from_le_bytes(extent.data[21..29].try_into().unwrap());
    image.patch(image.places(data)[0] + 99, b"damage");
    image.write_file(&dir.join("i"));
    let (code, out, _) = run_in(dir.path(), ["check", "i"]);
    assert_eq!(code, 1);
    let found = BtrfsImage::checksum(&image.bytes(image.places(data)[0], 4096));
    let line = format!(
        "first copy of data has the wrong checksum (found {found:#x} at byte {data:#x}), in zstd\n"
    );
    assert!(out.starts_with(&line), "{out}");
    let (code, out, _) = run_in(dir.path(), ["check", "--no-data", "i"]);
    assert_eq!((code, out.starts_with("0 errors")), (0, true), "{out}");
    let (code, _, error) = run_in(dir.path(), ["copy", "-q", "i", "out.tar"]);
    assert_eq!(code, 2);
    assert!(error.contains("data's checksum differs"), "{error}");
    assert!(!dir.join("out.tar").exists());
    let (code, _, error) = run_in(dir.path(), ["cat", "i", "zstd"]);
    assert_eq!(code, 2);
    assert!(error.contains("data's checksum differs"), "{error}");
    assert_eq!(run_in(dir.path(), ["cat", "i", "lzo"]).0, 0);
}

#[test]
fn several_images_are_named_and_one_may_be_missing() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let dir = TempDir::new();
    for name in ["a", "b"] {
        File::create(dir.join(name))
            .unwrap()
            .set_len(256 << 20)
            .unwrap();
    }
    let mut command = mkfs.command();
    command.args(["--quiet", "--data", "raid1", "--metadata", "raid1"]);
    run(command.args([dir.join("a"), dir.join("b")]));
    let info = done(dir.path(), &["info", "a", "--device", "b"]);
    assert!(
        info.contains("device 2 ") && !info.contains("missing"),
        "{info}"
    );
    assert!(info.contains(", raid1\n"), "{info}");
    done(dir.path(), &["check", "b", "--device", "a"]);
    let info = done(dir.path(), &["info", "b"]);
    assert!(info.contains("in chunks, missing\n"), "{info}");
    assert_eq!(done(dir.path(), &["ls", "b"]), "");
    let (code, _, error) = run_in(dir.path(), ["ls", "a", "--device", "a"]);
    assert_eq!(code, 2);
    assert!(
        error.contains("two images are of the same device"),
        "{error}"
    );
}

/// Every command that opens images takes their further devices. Those of `diff` belong to either
/// side.
#[test]
fn every_command_takes_further_devices() {
    let Some(mkfs) = tool("mkfs.btrfs") else {
        return;
    };
    let dir = TempDir::new();
    for (first, second) in [("a", "b"), ("c", "d"), ("e", "f")] {
        for name in [first, second] {
            let file = File::create(dir.join(name)).unwrap();
            file.set_len(256 << 20).unwrap();
        }
        let mut command = mkfs.command();
        command.args(["--quiet", "--data", "raid0", "--metadata", "raid0"]);
        run(command.args([dir.join(first), dir.join(second)]));
    }
    for command in ["ls", "info", "check", "manifest"] {
        done(dir.path(), &[command, "a", "--device", "b"]);
    }
    done(dir.path(), &["copy", "-q", "a", "out.tar", "--device", "b"]);
    let (code, _, error) = run_in(dir.path(), ["cat", "a", "none", "--device", "b"]);
    assert!(code == 2 && error.contains("no such file"), "{error}");
    let both = [
        "diff", "--ignore", "mtime", "a", "c", "--device", "d", "--device", "b",
    ];
    assert_eq!(done(dir.path(), &both), "");
    let (code, _, error) = run_in(dir.path(), [&both[..], &["--device", "f"]].concat());
    assert_eq!(code, 2);
    assert!(
        error.contains("f: not a device of one of the images"),
        "{error}"
    );
    let (code, found, _) = run_in(dir.path(), ["check", "c"]);
    assert_eq!(code, 1);
    assert!(
        found.contains("a device of the file system is missing"),
        "{found}"
    );
}

#[test]
fn options_of_damaged_images_are_for_btrfs_images_only() {
    let dir = TempDir::new();
    std::fs::create_dir(dir.join("src")).unwrap();
    for option in ["--no-log", "--superblock=1", "--older-root=2"] {
        let (code, _, error) = run_in(dir.path(), ["ls", "src", option]);
        let name = option.split('=').next().unwrap();
        assert_eq!(code, 2);
        assert!(error.contains(&format!("{name} does not apply")), "{error}");
    }
}

#[test]
fn files_are_found_without_the_root_directory() {
    let dir = TempDir::new();
    for number in 0..300 {
        let name = format!("src/{}/{number:060}", number % 3);
        std::fs::create_dir_all(dir.join(&name).parent().unwrap()).unwrap();
        std::fs::write(dir.join(&name), format!("content {number}")).unwrap();
    }
    done(
        dir.path(),
        &[
            "copy",
            "-q",
            "--nodesize=4K",
            "--metadata=dup",
            "src",
            "i.btrfs",
        ],
    );
    let mut image = BtrfsImage::read_file(&dir.join("i.btrfs"));
    let leaf = image.item(5, (256, 1, 0)).leaf;
    for place in image.places(leaf) {
        image.patch(place, &[0; SECTOR]);
    }
    image.write_file(&dir.join("i.btrfs"));
    let (code, _, error) = run_in(dir.path(), ["copy", "i.btrfs", "whole"]);
    assert!(code == 2 && error.contains("--older-root 1"), "{error}");
    assert!(!dir.join("whole").exists());
    let (code, _, error) = run_in(dir.path(), ["copy", "--skip-unreadable", "i.btrfs", "out"]);
    assert_eq!(code, 1, "{error}");
    let (code, listed, _) = run_in(dir.path(), ["ls", "-R", "out"]);
    assert_eq!(code, 0);
    // Their directories alone are lost.
    let found = listed
        .lines()
        .filter(|line| line.contains("000000000"))
        .count();
    assert_eq!(found, 300, "{error}");
    assert!(error.contains("lost+found"), "{error}");
}

/// Bytes of addresses that the program may have.
const MEMORY_MAX: u64 = 256 << 20;

#[test]
fn mutated_images_do_the_program_no_harm() {
    let (Some(prlimit), Some(timeout)) = (tool("prlimit"), tool("timeout")) else {
        return;
    };
    let dir = TempDir::new();
    let good = small();
    good.write_file(&dir.join("i"));
    let file = File::options().write(true).open(dir.join("i")).unwrap();
    let fsid = good.bytes((64 << 10) + 32, 16);
    let is_ours = |at: &u64| good.bytes(at + 32, 16) == fsid;
    let blocks: Vec<u64> = good.sectors().filter(is_ours).collect();
    let mut codes = [0; 3];
    for case in 0..cases(40) {
        let mut rng = Rng::new(case);
        let mut image = good.clone();
        let block = blocks[rng.index(blocks.len())];
        for _ in 0..3 {
            let at = [
                32 + rng.below(70),
                101 + rng.below(400),
                32 + rng.below(4000),
            ];
            let len = 1 << rng.below(4);
            let bytes = rng.bytes(len);
            image.patch(block + at[rng.index(3)], &bytes);
        }
        image.seal(block);
        image.write_changes(&file, false);
        for args in [
            &["info", "i"][..],
            &["ls", "-lR", "i"],
            &["copy", "-q", "i", "out.tar"],
            &["check", "i"],
        ] {
            let program = restow([""; 0]);
            let mut command = timeout.command();
            command.arg("60").arg(prlimit.path());
            command
                .arg(format!("--as={MEMORY_MAX}"))
                .arg(program.get_program());
            // Each thread would reserve addresses for a heap of its own.
            command.args(args).env("MALLOC_ARENA_MAX", "1");
            let output = command.current_dir(dir.path()).output().unwrap();
            let (code, out, words) = shown(&output);
            assert!(
                (0..=2).contains(&code),
                "{case} {args:?}: {code} {out} {words}"
            );
            assert!(!words.contains("panicked"), "{case} {args:?}: {words}");
            assert_eq!(
                code == 0 && args[0] == "copy",
                dir.join("out.tar").exists(),
                "{words}"
            );
            let _ = std::fs::remove_file(dir.join("out.tar"));
            codes[code as usize] += 1;
        }
        image.write_changes(&file, true);
    }
    assert!(codes.iter().all(|&count| count > 0), "{codes:?}");
}
