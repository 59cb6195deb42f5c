//! Encoded writes that Linux accepts and then cannot write: neither `syncfs` nor `btrfs receive`
//! reports the loss.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, run, tool};

use super::{names, restow, shown};

/// A btrfs on a disk of which some ranges cannot be written, and where the disk is.
struct Failing {
    mount: Mount,
    disk: TempDir,
}

impl Drop for Failing {
    fn drop(&mut self) {
        // The loop device still has the image open.
        run(Command::new("umount").arg("--lazy").arg(self.disk.path()));
    }
}

/// Mounts a btrfs whose disk has no space for new file data, while all of its metadata has a place.
fn failing() -> Failing {
    let disk = TempDir::new();
    let mount = ["-t", "tmpfs", "-o", "size=260m", "tmpfs"];
    run(Command::new("mount").args(mount).arg(disk.path()));
    let image = disk.join("image");
    run(Command::new("fallocate").args(["-l", "200M"]).arg(&image));
    let mkfs = tool("mkfs.btrfs").unwrap();
    run(mkfs
        .command()
        .args(["--quiet", "--data", "single", "--metadata", "single"])
        .arg(&image));
    let attach = || LoopDevice::attach(BackingFile::existing(&image), Access::ReadWrite);
    let mounted = Mount::new(attach(), FsType::Btrfs, "nodiscard");
    // This gives file data all the space that is left.
    let filler = mounted.path().join("filler");
    fs::write(&filler, Rng::new(1).bytes(40 << 20)).unwrap();
    run(Command::new("sync").arg("-f").arg(&filler));
    fs::remove_file(&filler).unwrap();
    fs::create_dir(mounted.path().join("to")).unwrap();
    mounted.unmount();
    for (offset, len) in data_chunks(&image) {
        run(Command::new("fallocate")
            .args([
                "--punch-hole",
                "-o",
                &offset.to_string(),
                "-l",
                &len.to_string(),
            ])
            .arg(&image));
    }
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/zero", "bs=1M", "status=none"]);
    // It ends when the disk is full.
    let full = dd
        .arg(format!("of={}", disk.join("rest").display()))
        .output();
    assert!(!full.unwrap().status.success());
    Failing {
        mount: Mount::new(attach(), FsType::Btrfs, "nodiscard"),
        disk,
    }
}

/// Where the file data of an image is, without the superblock copy at 64 MiB.
fn data_chunks(image: &Path) -> Vec<(u64, u64)> {
    let mut dump = tool("btrfs").unwrap().command();
    dump.args(["inspect-internal", "dump-tree", "-t", "chunk"]);
    let dump = run(dump.arg(image)).stdout;
    let dump = String::from_utf8(dump).unwrap();
    let number = |chunk: &str, word: &str| -> u64 {
        let rest = chunk.split(word).nth(1).unwrap();
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    let mut found = Vec::new();
    for chunk in dump.split("\titem ").filter(|it| it.contains("type DATA")) {
        let (from, len) = (number(chunk, "devid 1 offset"), number(chunk, "length"));
        let (copy, copy_end) = (64 << 20, (64 << 20) + 65536);
        if from < copy && copy < from + len {
            found.push((from, copy - from));
            found.push((copy_end, from + len - copy_end));
        } else {
            found.push((from, len));
        }
    }
    assert!(!found.is_empty(), "{dump}");
    found
}

/// An image with compressed files, some in several extents.
fn image(dir: &TempDir) -> PathBuf {
    fs::create_dir(dir.join("src")).unwrap();
    let mut rng = Rng::new(7);
    for number in 0..20 {
        let mut text = Vec::new();
        while text.len() < 30_000 << (number % 5) {
            let line = format!("{number} {:x}\n", rng.below(1 << 40));
            text.extend_from_slice(line.as_bytes());
        }
        fs::write(dir.join("src").join(format!("f{number}")), text).unwrap();
    }
    let mut copy = restow(["copy", "-q", "--compress", "zstd:3", "--compress-force"]);
    run(copy.arg(dir.join("src")).arg(dir.join("image.btrfs")));
    dir.join("image.btrfs")
}

#[test]
#[ignore = "needs root"]
fn what_linux_could_not_write_is_found_by_receive() {
    if tool("btrfs").is_none() || tool("mkfs.btrfs").is_none() {
        return;
    }
    let dir = TempDir::new();
    let image = image(&dir);
    let stream = dir.join("whole.stream");
    run(restow(["copy", "-q"]).args([&image, &stream]));
    for more in [&[][..], &["--to", "directory"]] {
        let failing = failing();
        let to = failing.mount.path().join("to");
        let mut receive = restow(["receive", "-q", "-f"]);
        let output = receive.args([&stream, &to]).args(more).output().unwrap();
        let (code, _, words) = shown(&output);
        assert_eq!(code, 2, "{more:?} {words}");
        let reason = "compressed data cannot be read back as it was written";
        assert!(words.contains(reason), "{more:?} {words}");
        assert_eq!(names(&to), [""; 0], "{more:?}");
    }
}

#[test]
#[ignore = "needs root"]
fn what_linux_could_not_write_is_found_by_copy() {
    if tool("btrfs").is_none() || tool("mkfs.btrfs").is_none() {
        return;
    }
    let dir = TempDir::new();
    let image = image(&dir);
    let failing = failing();
    let to = failing.mount.path().join("to");
    let mut copy = restow(["copy", "-q"]);
    let output = copy.args([&image, &to.join("new")]).output().unwrap();
    let (code, _, words) = shown(&output);
    assert_eq!(code, 2, "{words}");
    let reason = "compressed data cannot be read back as it was written";
    assert!(words.contains(reason), "{words}");
    assert_eq!(names(&to), [""; 0]);
}
