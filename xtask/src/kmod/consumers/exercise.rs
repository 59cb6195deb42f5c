//! File systems of Linux on our modules, with the programs of fstests that write, change, map and
//! cut files at random: `kmod/init-exercise`.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::images::{self, restow};
use super::linux::{EXERCISED, parts};
use super::{path_of, written};
use crate::command::output_of;
use crate::kmod::build::{Modules, missing};
use crate::kmod::initramfs::Initramfs;
use crate::kmod::machine::Machine;
use crate::kmod::packages::out_folder;
use crate::outcome::Outcome;
use crate::tools;

/// Names a checkout of fstests, which is built.
const FSTESTS: &str = "RESTOW_FSTESTS";

/// Names the folder of a mkfs.erofs that knows zstd.
const NEWER_TOOLS: &str = "RESTOW_NEWER_TOOLS";

/// Minutes of each program, unless `RESTOW_MINUTES` is another number.
const MINUTES: u64 = 2;

/// Bytes of the images that are written.
const IMAGE_SIZE: u64 = 1 << 30;

/// Programs of the host that look at the file systems.
const PROGRAMS: &[&str] = &["btrfs", "compsize", "f2fs_io"];

/// Boots the kernel with the file systems, and lets them work.
pub(in crate::kmod) fn exercise(modules: &Modules) -> Outcome {
    let hosts = ["mkfs.btrfs", "mkfs.f2fs", "fsck.f2fs", "ldd"];
    for program in hosts.iter().chain(PROGRAMS) {
        if !tools::is_there(program) {
            return missing(format!("{program} is missing"));
        }
    }
    let Some(fstests) = env::var_os(FSTESTS).map(|path| PathBuf::from(path).join("ltp")) else {
        return Outcome::skipped(format!("{FSTESTS} names no checkout of fstests"));
    };
    let folder = out_folder().join(format!("exercise-{}", modules.kernel.release));
    exercised(modules, &fstests, &folder).unwrap_or_else(Outcome::failed)
}

fn exercised(modules: &Modules, fstests: &Path, folder: &Path) -> Result<Outcome, String> {
    let minutes = env::var("RESTOW_MINUTES").map_or(MINUTES, |it| it.parse().unwrap_or(MINUTES));
    let parts = parts(EXERCISED, modules);
    super::linux::sources(&parts, modules, folder)?;
    super::linux::build(&parts, modules, folder)?;
    images::tree(folder)?;
    let mut archive = Initramfs::new();
    archive.file("seconds", format!("{}\n", minutes * 60).as_bytes());
    archive.host_file("sums", &folder.join("sums"))?;
    for program in ["fsx", "fsstress"] {
        archive.host_program(&format!("bin/{program}"), &fstests.join(program))?;
    }
    for program in PROGRAMS {
        archive.host_program(&format!("bin/{program}"), Path::new(&path_of(program)?))?;
    }
    let archive = written(archive, &parts, modules, folder, "init-exercise")?;
    let mut machine = Machine::new(modules.kernel.arch, &modules.kernel.image, &archive);
    machine.options(["-m", "1G"]);
    for (name, options) in disks(folder)? {
        machine.disk(&folder.join(name), options);
    }
    let mut outcome = machine.run(minutes * 60 * 6 + 1200);
    outcome.notes.push(format!("{minutes} minutes each"));
    outcome.add(judged(folder));
    Ok(outcome)
}

/// Makes the disks: two empty file systems, the tree as an archive, and as images of EROFS.
fn disks(folder: &Path) -> Result<Vec<(&'static str, &'static str)>, String> {
    images::empty(&folder.join("a.btrfs"), IMAGE_SIZE, "crc32c")?;
    let f2fs = folder.join("b.f2fs");
    let _ = fs::remove_file(&f2fs);
    let file = fs::File::create(&f2fs).and_then(|file| file.set_len(IMAGE_SIZE));
    file.map_err(|error| format!("write {}: {error}", f2fs.display()))?;
    let features = "extra_attr,inode_checksum,sb_checksum,compression";
    output_of(
        Command::new("mkfs.f2fs")
            .args(["-q", "-O", features])
            .arg(&f2fs),
    )?;
    let tree = folder.join("tree");
    let mut tar = Command::new("tar");
    output_of(
        tar.arg("-cf")
            .arg(folder.join("c.tar"))
            .arg("-C")
            .arg(&tree)
            .arg("."),
    )?;
    let mut copy = Command::new(restow());
    copy.args(["copy", "--quiet", "--overwrite", "--compress", "zstd:9"]);
    output_of(copy.arg(&tree).arg(folder.join("d.erofs")))?;
    let mut disks = vec![
        ("a.btrfs", "cache=unsafe"),
        ("b.f2fs", "cache=unsafe"),
        ("c.tar", "readonly=on"),
        ("d.erofs", "readonly=on"),
    ];
    if let Some(tools) = env::var_os(NEWER_TOOLS) {
        for (name, options) in [
            ("e.erofs", ["-zzstd,15", "-C65536"]),
            ("f.erofs", ["-zzstd,3", "-Eall-fragments,dedupe"]),
        ] {
            let path = folder.join(name);
            let _ = fs::remove_file(&path);
            let mut mkfs = Command::new(PathBuf::from(&tools).join("mkfs.erofs"));
            output_of(mkfs.args(options).arg("--quiet").arg(path).arg(&tree))?;
            disks.push((name, "readonly=on"));
        }
    }
    Ok(disks)
}

/// The verdicts of the C tools on the file systems afterwards, and whether Linux with its own zstd
/// reads the data of ours.
fn judged(folder: &Path) -> Outcome {
    let mut outcome = Outcome::default();
    let script = "set -e; at=$(mktemp -d); mount -t btrfs -o ro,loop a.btrfs $at; \
        (cd $at; md5sum --quiet -c sums); umount $at; rmdir $at";
    let mount = tools::root_prefix().map(|prefix| {
        let words = tools::mount_prefix(prefix);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(["sh", "-c", script]);
        command
    });
    let mut btrfs = Command::new("btrfs");
    btrfs.args(["check", "--check-data-csum", "a.btrfs"]);
    let mut check = Command::new(restow());
    check.args(["check", "a.btrfs"]);
    let mut fsck = Command::new("sh");
    fsck.args([
        "-c",
        "fsck.f2fs --dry-run b.f2fs >fsck && ! grep -F '[Fail]' fsck",
    ]);
    for command in [Some(btrfs), Some(check), Some(fsck), mount] {
        match command.map(|mut command| output_of(command.current_dir(folder))) {
            Some(Ok(_)) => outcome.passed += 1,
            Some(Err(reason)) => outcome.failed.push(reason),
            None => outcome.skipped.push("mounting needs root".to_owned()),
        }
    }
    outcome
}
