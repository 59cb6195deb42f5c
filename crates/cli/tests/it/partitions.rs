//! Images in partitions of disk images, and at other places of files.

use std::fs;
use std::os::unix::fs::FileExt;

use testkit::{TempDir, tool};

use super::run_in;

const MIB: u64 = 1 << 20;

/// The sizes of the partitions.
const SIZES: [u64; 3] = [8 * MIB, 8 * MIB, 128 * MIB];

#[track_caller]
fn ok(dir: &TempDir, line: &str) -> (String, String) {
    let (code, out, words) = run_in(dir.path(), line.split_whitespace());
    assert_eq!(code, 0, "{line}: {words}");
    (out, words)
}

/// A disk of 192 MiB, `disk.img`, with the partitions that `sfdisk` makes of a script, the second
/// with SquashFS and the third with btrfs.
pub(super) fn disk(dir: &TempDir, label: &str, places: [u64; 3]) -> Option<()> {
    let sfdisk = tool("sfdisk")?;
    fs::create_dir_all(dir.join("src")).unwrap();
    fs::write(dir.join("src/file"), "content").unwrap();
    ok(dir, "copy -q --overwrite src a.squashfs");
    ok(dir, "copy -q --overwrite src a.btrfs");
    let disk = fs::File::create(dir.join("disk.img")).unwrap();
    disk.set_len(192 * MIB).unwrap();
    let mut script = format!("label: {label}\n");
    for (start, size) in places.into_iter().zip(SIZES) {
        let kind = if label == "dos" { "83" } else { "L" };
        script += &format!(
            "start={}MiB, size={}MiB, type={kind}\n",
            start / MIB,
            size / MIB
        );
    }
    fs::write(dir.join("script"), script).unwrap();
    let mut command = sfdisk.command();
    command
        .args(["-q", "--no-reread", "--no-tell-kernel"])
        .arg(dir.join("disk.img"));
    command.stdin(fs::File::open(dir.join("script")).unwrap());
    let made = command.output().unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let squashfs = fs::read(dir.join("a.squashfs")).unwrap();
    let btrfs = fs::read(dir.join("a.btrfs")).unwrap();
    disk.write_all_at(&squashfs, places[1]).unwrap();
    disk.write_all_at(&btrfs, places[2]).unwrap();
    assert!(
        btrfs.len() as u64 <= SIZES[2],
        "the image fits into its partition"
    );
    Some(())
}

#[test]
fn partitions_are_listed_and_read() {
    let dir = TempDir::new();
    for label in ["dos", "gpt"] {
        let places = [MIB, 16 * MIB, 32 * MIB];
        let Some(()) = disk(&dir, label, places) else {
            return;
        };
        let (info, _) = ok(&dir, "info disk.img");
        let line = |number: usize, format| {
            format!(
                "partition {number}     at {}, {} bytes, {format}\n",
                places[number - 1],
                SIZES[number - 1]
            )
        };
        let expected = [line(1, "unknown"), line(2, "SquashFS"), line(3, "btrfs")].concat();
        assert_eq!(
            info,
            format!("format          disk image with partitions\n{expected}"),
            "{label}"
        );
        for at in ["partition:2", "partition2", "16MiB", "search"] {
            assert_eq!(
                ok(&dir, &format!("cat --image-at {at} disk.img file")).0,
                "content"
            );
            ok(&dir, &format!("check --image-at {at} disk.img"));
            let (info, _) = ok(&dir, &format!("info --image-at {at} disk.img"));
            assert!(info.starts_with("format          SquashFS 4.0\n"), "{info}");
        }
        for at in ["partition:3", "32M"] {
            assert_eq!(
                ok(&dir, &format!("cat --image-at {at} disk.img file")).0,
                "content"
            );
            ok(
                &dir,
                &format!("diff --image-at {at} src disk.img --ignore mtime"),
            );
            ok(&dir, &format!("check --image-at {at} disk.img"));
            let (info, _) = ok(&dir, &format!("info --image-at {at} disk.img"));
            assert!(info.starts_with("format          btrfs\n"), "{info}");
        }
        let (code, _, words) = run_in(dir.path(), ["ls", "disk.img"]);
        let hint = "a disk image with 3 partitions, which `restow info` lists; \
                    `--image-at partition:2` reads the first with an image, of SquashFS";
        assert_eq!(
            (code, words),
            (2, format!("restow: open disk.img: {hint}\n"))
        );
        let (code, _, words) = run_in(dir.path(), ["ls", "--image-at", "partition:4", "disk.img"]);
        let why = "no partition 4; `restow info` lists the partitions";
        assert_eq!(
            (code, words),
            (2, format!("restow: open disk.img: {why}\n"))
        );
    }
}

#[test]
fn a_btrfs_image_is_found_inside_of_a_file() {
    let dir = TempDir::new();
    fs::create_dir_all(dir.join("src")).unwrap();
    fs::write(dir.join("src/file"), "content").unwrap();
    ok(&dir, "copy -q src a.btrfs");
    let image = fs::read(dir.join("a.btrfs")).unwrap();
    let before = vec![b'x'; 123 * 512];
    fs::write(dir.join("firmware"), [&before[..], &image].concat()).unwrap();
    for at in ["search", "62976"] {
        assert_eq!(
            ok(&dir, &format!("cat --image-at {at} firmware file")).0,
            "content"
        );
    }
    fs::write(dir.join("text"), before).unwrap();
    for (at, why) in [
        ("search", "no SquashFS, btrfs or EROFS image found"),
        ("partition:1", "a file without a partition table"),
    ] {
        let (code, _, words) = run_in(dir.path(), ["ls", "--image-at", at, "text"]);
        assert_eq!((code, words), (2, format!("restow: open text: {why}\n")));
    }
}
