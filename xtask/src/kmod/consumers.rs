//! Linux's own users of zstd and xxHash, built against our modules: SquashFS, btrfs, and two parts of the crypto API.
//!
//! Their sources come from the distribution's package of exactly the booted kernel; nothing of it is kept here. Two forced
//! includes send their calls to our modules: no file of theirs is changed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::{Modules, files, make, missing, run_quietly};
use super::initramfs::Initramfs;
use super::machine::Machine;
use super::packages::{self, out_folder};
use crate::command::{cargo, output_of};
use crate::outcome::Outcome;
use crate::{root, tools};

/// Longer than it takes on a busy machine, in seconds.
const BOOT_SECONDS_MAX: u64 = 600;

/// Folders that are built: what they are taken from in the sources of Linux, and their makefile if they need one.
const PARTS: &[(&str, &str, &str)] = &[
    (
        "xxhash",
        "crypto/xxhash_generic.c",
        "obj-m := xxhash_generic.o\n",
    ),
    ("zstd", "crypto/zstd.c", "obj-m := zstd.o\n"),
    ("squashfs", "fs/squashfs", ""),
    ("btrfs", "fs/btrfs", ""),
];

/// The kernel's modules that are loaded, in that order, where the kernel has them as modules.
const DRIVERS: &[&str] = &[
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "virtio_blk",
    "libcrc32c",
    "xor",
    "raid6_pq",
    "zsmalloc",
    "zram",
];

/// How often all three modules are loaded and unloaded: a thousand loads.
const ROUNDS: u32 = 340;

/// Bytes of the images that Linux writes.
const IMAGE_SIZE: u64 = 300 << 20;

/// Builds the consumers and boots the kernel with them.
pub(super) fn consumers(modules: &Modules) -> Outcome {
    for program in ["mkfs.btrfs", "btrfs", "mksquashfs"] {
        if !tools::is_there(program) {
            return missing(format!("{program} is missing"));
        }
    }
    let folder = out_folder().join(format!("consumers-{}", modules.kernel.version));
    let built = sources(modules, &folder).and_then(|()| build(modules, &folder));
    let images = built.and_then(|()| images(&folder));
    let archive = images.and_then(|()| archive(modules, &folder));
    let archive = match archive {
        Ok(archive) => archive,
        Err(reason) => return Outcome::failed(reason),
    };
    let mut machine = Machine::new(&modules.kernel.image, &archive);
    for (name, options) in DISKS {
        machine.disk(&folder.join(name), options);
    }
    let mut outcome = machine.run(BOOT_SECONDS_MAX);
    outcome.add(judged(&folder));
    outcome
}

/// Takes the sources that are needed from their package.
fn sources(modules: &Modules, folder: &Path) -> Result<(), String> {
    let taken = folder.join("taken");
    if taken.is_file() {
        return Ok(());
    }
    let version = &modules.kernel.version;
    let mut numbers = version.split('.');
    let (major, minor) = (numbers.next().unwrap_or(""), numbers.next().unwrap_or(""));
    let name = format!("linux-source-{major}.{minor}");
    packages::download(&[format!("{name}={version}")], folder)?;
    let mut wanted = PARTS.iter().map(|(_, path, _)| format!("{name}/{path}"));
    let script = format!(
        "set -e; dpkg-deb --fsys-tarfile {name}_*.deb | tar -xOf - ./usr/src/{name}.tar.xz | tar -xJf - {}; rm {name}_*.deb",
        wanted.by_ref().collect::<Vec<_>>().join(" ")
    );
    output_of(Command::new("sh").args(["-c", &script]).current_dir(folder))?;
    let failed = |error| format!("write {}: {error}", folder.display());
    for (part, path, kbuild) in PARTS {
        let (from, to) = (folder.join(&name).join(path), folder.join(part));
        if kbuild.is_empty() {
            fs::rename(&from, &to).map_err(failed)?;
        } else {
            fs::create_dir_all(&to).map_err(failed)?;
            let file = from.file_name().unwrap_or_default();
            fs::rename(&from, to.join(file)).map_err(failed)?;
            fs::write(to.join("Kbuild"), kbuild).map_err(failed)?;
        }
    }
    fs::write(&taken, "").map_err(failed)
}

/// Builds all parts, and sees that they call nothing of the kernel's own zstd and xxHash.
fn build(modules: &Modules, folder: &Path) -> Result<(), String> {
    let at = modules.folder.display();
    for (part, ..) in PARTS {
        let mut command = make(&modules.kernel.headers);
        command
            .arg("--silent")
            .arg(format!("M={}", folder.join(part).display()))
            .arg(format!(
                "KCFLAGS=-include {at}/restow_zstd.h -include {at}/restow_xxhash.h"
            ))
            .arg(format!("KBUILD_EXTRA_SYMBOLS={at}/Module.symvers"))
            .args([
                "CONFIG_DEBUG_INFO=",
                "CONFIG_DEBUG_INFO_BTF_MODULES=",
                "modules",
            ]);
        run_quietly(&mut command)?;
        for (_, module) in modules_in(&folder.join(part))? {
            let list = output_of(Command::new("nm").arg("-u").arg(&module))?;
            let mut symbols = list
                .lines()
                .filter_map(|line| line.split_whitespace().nth(1));
            let is_kernels =
                |symbol: &&str| symbol.starts_with("zstd_") || symbol.starts_with("xxh");
            if let Some(symbol) = symbols.clone().find(is_kernels) {
                return Err(format!("{} calls the kernel's {symbol}", module.display()));
            }
            if !symbols.any(|symbol| symbol.starts_with("restow_")) {
                return Err(format!("{} calls nothing of ours", module.display()));
            }
        }
    }
    Ok(())
}

fn modules_in(folder: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let mut found = files(folder)?;
    found.retain(|(name, _)| name.ends_with(".ko"));
    Ok(found)
}

/// The disks of the machine, in the order of their letters.
const DISKS: &[(&str, &str)] = &[
    ("mksquashfs-128k.sqfs", "readonly=on"),
    ("mksquashfs-1m.sqfs", "readonly=on"),
    ("restow.sqfs", "readonly=on"),
    ("restow.btrfs", "cache=unsafe"),
    ("mkfs.btrfs", "cache=unsafe"),
];

/// Makes the disks: images of one tree by us and by the C tools, and an empty one.
fn images(folder: &Path) -> Result<(), String> {
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
    output_of(&mut cargo([
        "build",
        "--quiet",
        "--workspace",
        "--bin",
        "restow",
    ]))?;
    for (name, _) in DISKS {
        let _ = fs::remove_file(folder.join(name));
    }
    let (tree, restow) = (tree.as_path(), restow());
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
    let empty = folder.join("mkfs.btrfs");
    let file = fs::File::create(&empty).map_err(failed)?;
    file.set_len(IMAGE_SIZE).map_err(failed)?;
    output_of(
        Command::new("mkfs.btrfs")
            .args(["-q", "--csum", "xxhash"])
            .arg(&empty),
    )
    .map(drop)
}

fn restow() -> PathBuf {
    tools::target_dir().join("debug/restow")
}

/// Makes the file system that the machine starts with.
fn archive(modules: &Modules, folder: &Path) -> Result<PathBuf, String> {
    let mut archive = Initramfs::new();
    archive.host_file("init", &root().join("kmod/init-consumers"))?;
    archive.host_file("bin/busybox", &modules.kernel.root.join("bin/busybox"))?;
    archive.file("rounds", format!("{ROUNDS}\n").as_bytes());
    let script = "cd tree && find . -type f | sort | xargs -d '\\n' md5sum";
    let sums = output_of(Command::new("sh").args(["-c", script]).current_dir(folder))?;
    archive.file("sums", sums.as_bytes());
    fs::write(folder.join("sums"), &sums)
        .map_err(|error| format!("write {}: {error}", folder.display()))?;
    archive.folder("m");
    let mut drivers = String::new();
    for driver in DRIVERS {
        let mut find = Command::new("find");
        let tree = modules.kernel.root.join("lib/modules");
        let found = output_of(find.arg(tree).args(["-name", &format!("{driver}.ko*")]))?;
        // One that is not there is built in.
        let Some(path) = found.lines().next() else {
            continue;
        };
        let content = if path.ends_with(".xz") {
            let output = Command::new("xz").args(["-dc", path]).output();
            output.map_err(|error| format!("xz: {error}"))?.stdout
        } else {
            fs::read(path).map_err(|error| format!("read {path}: {error}"))?
        };
        archive.file(&format!("m/{driver}.ko"), &content);
        drivers += &format!("{driver}\n");
    }
    archive.file("drivers", drivers.as_bytes());
    let mut ours = modules_in(&modules.folder)?;
    ours.retain(|(name, _)| !name.ends_with("_test.ko"));
    for (part, ..) in PARTS {
        ours.extend(modules_in(&folder.join(part))?);
    }
    for (name, path) in ours {
        let stripped = folder.join("stripped.ko");
        let mut strip = Command::new("objcopy");
        output_of(strip.arg("--strip-debug").arg(&path).arg(&stripped))?;
        archive.host_file(&format!("m/{name}"), &stripped)?;
    }
    let path = folder.join("initramfs.cpio");
    fs::write(&path, archive.finish())
        .map_err(|error| format!("write {}: {error}", path.display()))?;
    Ok(path)
}

/// What the C tools and ours say of the images after Linux wrote into them with our modules.
fn judged(folder: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    for name in ["mkfs.btrfs", "restow.btrfs"] {
        let image = folder.join(name);
        let mut btrfs = Command::new("btrfs");
        btrfs.args(["check", "--check-data-csum"]).arg(&image);
        let mut check = Command::new(restow());
        check.arg("check").arg(&image);
        for command in [&mut btrfs, &mut check] {
            match output_of(command) {
                Ok(_) => outcome.passed += 1,
                Err(reason) => outcome.failed.push(reason),
            }
        }
    }
    // The host's Linux has the C library.
    match tools::root_prefix() {
        Some(prefix) => outcome.add(read_by_linux(folder, prefix)),
        None => outcome.skipped.push("mounting needs root".to_owned()),
    }
    outcome
}

/// Whether Linux with its own zstd reads what Linux with ours has written.
fn read_by_linux(folder: &Path, root_prefix: &[&str]) -> Outcome {
    let script = "set -e; at=$(mktemp -d); mount -t btrfs -o ro,loop mkfs.btrfs $at; sums=$PWD/sums; \
        for tree in level1 level3 level9 level15 copy1 copy2 copy3; do (cd $at/$tree; md5sum --quiet -c $sums); done; \
        umount $at; rmdir $at";
    let words = tools::mount_prefix(root_prefix);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).args(["sh", "-c", script]);
    match output_of(command.current_dir(folder)) {
        Ok(_) => Outcome::passed(),
        Err(reason) => Outcome::failed(reason),
    }
}
