//! The disks of the machine: images of one tree by us and by the C tools, and empty ones.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{build_restow, output_of};
use crate::environment::root;
use crate::tools;

/// Bytes of the images that Linux writes.
const IMAGE_SIZE: u64 = 300 << 20;

/// The disks of the machine, in the order of their letters.
pub(super) const DISKS: &[(&str, &str)] = &[
    ("mksquashfs-128k.sqfs", "readonly=on"),
    ("mksquashfs-1m.sqfs", "readonly=on"),
    ("restow.sqfs", "readonly=on"),
    ("restow.btrfs", "cache=unsafe"),
    ("mkfs.btrfs", "cache=unsafe"),
];

/// Images that Linux writes at these levels all at once.
pub(super) const LEVELS: &[(&str, &str)] = &[
    ("level1.btrfs", "1"),
    ("level3.btrfs", "3"),
    ("level9.btrfs", "9"),
    ("level15.btrfs", "15"),
];

/// Bytes of each of them: a little more than the least that mkfs.btrfs takes.
const LEVEL_SIZE: u64 = 160 << 20;

/// Makes a tree in a folder, and `sums`, the MD5 of each file of it.
pub(super) fn tree(folder: &Path) -> Result<(), String> {
    let failed = |error| format!("write {}: {error}", folder.display());
    let tree = folder.join("tree");
    let _ = fs::remove_dir_all(&tree);
    fs::create_dir_all(&tree).map_err(failed)?;
    let source = root();
    for path in ["crates/zstd", "crates/btrfs/src", "docs"] {
        output_of(
            Command::new("cp")
                .arg("-r")
                .arg(source.join(path))
                .arg(&tree),
        )?;
    }
    let noise: Vec<u8> = (0..2_000_000_u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    fs::write(tree.join("noise"), &noise).map_err(failed)?;
    fs::write(tree.join("zeros"), vec![0; 5_000_000]).map_err(failed)?;
    fs::write(
        tree.join("inline"),
        "short enough to lie in its item\n".repeat(40),
    )
    .map_err(failed)?;
    build_restow()?;
    let script = "cd tree && find . -type f | sort | xargs -d '\\n' md5sum";
    let sums = output_of(Command::new("sh").args(["-c", script]).current_dir(folder))?;
    fs::write(folder.join("sums"), &sums).map_err(failed)
}

/// Makes the disks: images of one tree by us and by the C tools, a root with this busybox, and an
/// empty one.
///
/// `lister` is a busybox that runs here, and has the same applets.
pub(super) fn make(folder: &Path, busybox: &Path, lister: &Path) -> Result<(), String> {
    tree(folder)?;
    for (name, _) in DISKS {
        let _ = fs::remove_file(folder.join(name));
    }
    let (tree, restow) = (&folder.join("tree"), restow());
    let quiet = ["-comp", "zstd", "-quiet", "-no-progress", "-noappend"];
    for (name, level, block) in [
        ("mksquashfs-128k.sqfs", "15", "128K"),
        ("mksquashfs-1m.sqfs", "19", "1M"),
    ] {
        let mut mksquashfs = Command::new("mksquashfs");
        mksquashfs.arg(tree).arg(folder.join(name)).args(quiet);
        output_of(mksquashfs.args(["-Xcompression-level", level, "-b", block]))?;
    }
    let mut copy = Command::new(&restow);
    output_of(
        copy.arg("copy")
            .arg(tree)
            .arg(folder.join("restow.sqfs"))
            .args(["--compress", "zstd:15"]),
    )?;
    let mut copy = Command::new(&restow);
    let image = folder.join("restow.btrfs");
    output_of(copy.arg("copy").arg(tree).arg(image).args([
        "--compress",
        "zstd:9",
        "--slack",
        "128M",
    ]))?;
    make_root(folder, busybox, lister)?;
    empty(&folder.join("mkfs.btrfs"), IMAGE_SIZE, "xxhash")
}

/// Makes the empty images.
pub(super) fn levels(folder: &Path) -> Result<(), String> {
    for (name, _) in LEVELS {
        empty(&folder.join(name), LEVEL_SIZE, "crc32c")?;
    }
    Ok(())
}

pub(super) fn empty(path: &Path, size: u64, checksum: &str) -> Result<(), String> {
    let _ = fs::remove_file(path);
    let file = fs::File::create(path).and_then(|file| file.set_len(size));
    file.map_err(|error| format!("write {}: {error}", path.display()))?;
    let mut mkfs = Command::new("mkfs.btrfs");
    output_of(mkfs.args(["-q", "--csum", checksum]).arg(path)).map(drop)
}

/// Makes the image of a root file system: the tree, a shell, and its first process.
fn make_root(folder: &Path, busybox: &Path, lister: &Path) -> Result<(), String> {
    let failed = |error| format!("write {}: {error}", folder.display());
    let at = folder.join("root");
    let _ = fs::remove_dir_all(&at);
    for name in ["bin", "dev", "proc", "sys", "tmp"] {
        fs::create_dir_all(at.join(name)).map_err(failed)?;
    }
    for (_, level) in LEVELS {
        fs::create_dir_all(at.join("levels").join(level)).map_err(failed)?;
    }
    let kmod = root().join("kmod");
    for (from, to) in [
        (busybox, "bin/busybox"),
        (&kmod.join("init-root"), "init"),
        (&kmod.join("init-functions"), "functions"),
        (&folder.join("sums"), "sums"),
    ] {
        fs::copy(from, at.join(to)).map_err(failed)?;
        fs::set_permissions(at.join(to), fs::Permissions::from_mode(0o755)).map_err(failed)?;
    }
    for name in output_of(Command::new(lister).arg("--list"))?.lines() {
        if name != "busybox" {
            symlink("busybox", at.join("bin").join(name)).map_err(failed)?;
        }
    }
    let mut cp = Command::new("cp");
    output_of(cp.arg("-r").arg(folder.join("tree")).arg(&at))?;
    let image = folder.join("root.sqfs");
    let _ = fs::remove_file(&image);
    let mut copy = Command::new(restow());
    copy.arg("copy").arg(&at).arg(&image);
    output_of(copy.args(["--compress", "zstd:19"])).map(drop)
}

/// The program that is tried.
pub(super) fn restow() -> PathBuf {
    tools::target_dir().join("debug/restow")
}
