//! Linux's own users of zstd and xxHash, built against our modules: SquashFS, btrfs, and two parts
//! of the crypto API.
//!
//! Their sources come from the distribution's package of exactly the booted kernel; nothing of it
//! is kept here. Two forced includes send their calls to our modules: no file of theirs is changed.

mod exercise;
mod images;
mod linux;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::arch::Arch;
use super::boot::{frames, writers};
use super::build::{Modules, missing, modules_in};
use super::initramfs::Initramfs;
use super::machine::Machine;
use super::packages::{self, out_folder};
use crate::command::output_of;
use crate::environment::root;
use crate::outcome::Outcome;
use crate::tools;
pub(super) use exercise::exercise;
use images::{DISKS, LEVELS, restow};
use linux::{ALL, Consumer, parts};

/// Processor time that a machine may take, in seconds: several times as much as it needs.
const BOOT_SECONDS_MAX: u64 = 3_600;

/// The kernel's modules that are loaded, in that order, where the kernel has them as modules.
const DRIVERS: &[&str] = &[
    "virtio_ring",
    "virtio",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "virtio_blk",
    "libcrc32c",
    // Of arm64.
    "xor-neon",
    "xor",
    "raid6_pq",
    "zsmalloc",
    "zram",
    // The checksum of f2fs, until Linux calls it without the crypto API.
    "crc32_generic",
];

/// How often all three modules are loaded and unloaded: a thousand loads.
const ROUNDS: u32 = 340;

/// How often each frame of the tests is damaged in another way.
const DAMAGES: u32 = 3;

/// Programs of the host that say and change how btrfs stores files.
const PROGRAMS: &[&str] = &["btrfs", "chattr", "compsize"];

/// Builds the consumers and boots the kernel with them: with all disks, then from a SquashFS root
/// with little memory, and again for a time in which nothing is done.
pub(super) fn consumers(modules: &Modules) -> Outcome {
    for program in ["mkfs.btrfs", "mksquashfs", "ldd"].iter().chain(PROGRAMS) {
        if !tools::is_there(program) {
            return missing(format!("{program} is missing"));
        }
    }
    let folder = out_folder().join(format!("consumers-{}", modules.kernel.release));
    match booted(modules, &folder) {
        Ok(mut outcome) => {
            outcome.add(judged(modules.kernel.arch, &folder));
            outcome
        }
        Err(reason) => Outcome::failed(reason),
    }
}

fn booted(modules: &Modules, folder: &Path) -> Result<Outcome, String> {
    let parts = parts(ALL, modules);
    linux::sources(&parts, modules, folder)?;
    linux::build(&parts, modules, folder)?;
    let busybox = modules.kernel.root.join("bin/busybox");
    let (arch, image) = (modules.kernel.arch, &modules.kernel.image);
    let mut outcome = Outcome::default();
    if arch == Arch::Amd64 {
        images::make(folder, &busybox, &busybox)?;
        let mut machine = Machine::new(arch, image, &all_disks(&parts, modules, folder)?);
        for (name, options) in DISKS {
            machine.disk(&folder.join(name), options);
        }
        outcome.add(machine.run(BOOT_SECONDS_MAX));
    } else {
        // That machine runs programs of this one; the busybox of this one only names its applets.
        let here = packages::kernel(None)?.root.join("bin/busybox");
        images::make(folder, &busybox, &here)?;
    }
    let archive = written(Initramfs::new(), &parts, modules, folder, "init-root")?;
    // On arm64 one workspace may do for all levels, and none is freed. Linux 7.2 frees them when
    // their file system is unmounted; where it stayed mounted, 1,400 idle seconds freed 72 KiB.
    let rounds: &[bool] = if arch == Arch::Arm64 || modules.kernel.is_installed {
        let what = "whether idle workspaces are reclaimed: with Linux 6.1 and 6.12 on x86-64";
        outcome.add(Outcome::skipped(what));
        &[false]
    } else {
        &[false, true]
    };
    for reclaims in rounds.iter().copied() {
        let mut machine = Machine::new(arch, image, &archive);
        machine.options(["-m", "256M"]);
        machine.disk(&folder.join("root.sqfs"), "readonly=on");
        images::levels(folder)?;
        for (name, _) in LEVELS {
            machine.disk(&folder.join(name), "cache=unsafe");
        }
        if reclaims {
            // Time in which nothing is done passes at once.
            machine.options(["-smp", "1", "-icount", "shift=0,sleep=off"]);
            machine.kernel_words("reclaim");
        }
        outcome.add(machine.run(BOOT_SECONDS_MAX));
    }
    Ok(outcome)
}

/// The path of a program of the host.
fn path_of(program: &str) -> Result<String, String> {
    let found = output_of(Command::new("sh").args(["-c", "command -v \"$0\"", program]))?;
    Ok(found.trim().to_owned())
}

/// What the machine with all disks starts with.
fn all_disks(parts: &[&Consumer], modules: &Modules, folder: &Path) -> Result<PathBuf, String> {
    let mut archive = Initramfs::new();
    archive.file("rounds", format!("{ROUNDS}\n").as_bytes());
    archive.host_file("sums", &folder.join("sums"))?;
    for program in PROGRAMS {
        let path = path_of(program)?;
        archive.host_program(path.trim_start_matches('/'), Path::new(&path))?;
    }
    archive.host_file("bin/writers", &writers(modules.kernel.arch, folder)?)?;
    frames(&mut archive, folder, DAMAGES)?;
    written(archive, parts, modules, folder, "init-consumers")
}

/// Adds what every machine needs, and writes the archive.
fn written(
    mut archive: Initramfs,
    parts: &[&Consumer],
    modules: &Modules,
    folder: &Path,
    init: &str,
) -> Result<PathBuf, String> {
    archive.host_file("init", &root().join("kmod").join(init))?;
    archive.host_file("functions", &root().join("kmod/init-functions"))?;
    archive.host_file("bin/busybox", &modules.kernel.root.join("bin/busybox"))?;
    archive.folder("m");
    let mut drivers = String::new();
    let mut ours = modules_in(&modules.folder)?;
    let mut wanted: Vec<String> = DRIVERS.iter().map(|driver| (*driver).to_owned()).collect();
    for part in parts {
        for (name, path) in part.modules(folder)? {
            let needed = output_of(Command::new("modinfo").args(["-F", "depends"]).arg(&path))?;
            for driver in needed.trim().split(',') {
                if !wanted.iter().any(|other| other == driver) {
                    wanted.push(driver.to_owned());
                }
            }
            // The kernel's own is not the one that is tried.
            wanted.retain(|driver| *driver != name.trim_end_matches(".ko"));
            ours.push((name, path));
        }
    }
    for driver in &wanted {
        // One that is not there is built in.
        if let Some(content) = modules.kernel.module(driver)? {
            archive.file(&format!("m/{driver}.ko"), &content);
            drivers += &format!("{driver}\n");
        }
    }
    archive.file("drivers", drivers.as_bytes());
    for (name, path) in ours {
        archive.module(&format!("m/{name}"), &modules.kernel, &path, folder)?;
    }
    let path = folder.join(format!("{init}.cpio"));
    fs::write(&path, archive.finish())
        .map_err(|error| format!("write {}: {error}", path.display()))?;
    Ok(path)
}

/// What the C tools and ours say of the images after Linux wrote into them with our modules.
fn judged(arch: Arch, folder: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    let of_levels = LEVELS.iter().map(|(name, _)| *name);
    let of_all: &[&str] = match arch {
        Arch::Amd64 => &["mkfs.btrfs", "restow.btrfs"],
        Arch::Arm64 => &[],
    };
    for name in of_all.iter().copied().chain(of_levels) {
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
    if of_all.is_empty() {
        return outcome;
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
