//! The kernel, booted in QEMU with the modules and what they are tried on; `kmod/init` says what
//! happens there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::arch::Arch;
use super::build::Modules;
use super::folder::files;
use super::initramfs::Initramfs;
use super::install::installed;
use super::machine::Machine;
use super::packages::out_folder;
use crate::command::{cargo, output_of};
use crate::environment::root;
use crate::outcome::Outcome;
use crate::tools;

/// Processor time that the machine may take, in seconds: several times as much as it needs.
const BOOT_SECONDS_MAX: u64 = 600;

/// The levels that are compared with user space.
const LEVELS: &[&str] = &["-3", "1", "3", "5", "9", "12", "15", "19"];

/// How often all modules are loaded and unloaded.
const ROUNDS: u32 = 6;

/// Bytes of the data that is compressed.
const DATA_SIZE: usize = 640 << 10;

/// Boots the kernel with the modules, and says what came of it.
pub(super) fn boot(modules: &Modules) -> Outcome {
    let start = Instant::now();
    let folder = out_folder().join("boot");
    let archive = match archive(modules, &folder) {
        Ok(archive) => archive,
        Err(reason) => return Outcome::failed(reason),
    };
    println!("prepared in {:.1} s", start.elapsed().as_secs_f32());
    let start = Instant::now();
    let kernel = &modules.kernel;
    let outcome = Machine::new(kernel.arch, &kernel.image, &archive).run(BOOT_SECONDS_MAX);
    println!("booted in {:.1} s", start.elapsed().as_secs_f32());
    outcome
}

/// Makes the file system of the machine.
fn archive(modules: &Modules, folder: &Path) -> Result<PathBuf, String> {
    let failed = |error| format!("write {}: {error}", folder.display());
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).map_err(failed)?;
    let data = folder.join("data");
    let content = content()?;
    fs::write(&data, &content).map_err(failed)?;
    output_of(device()?.arg(&data).arg(folder).args(LEVELS))?;
    frames_of_command(folder, &content)?;
    let mut archive = Initramfs::new();
    archive.host_file("init", &root().join("kmod/init"))?;
    archive.host_file("functions", &root().join("kmod/init-functions"))?;
    archive.host_file("bin/busybox", &modules.kernel.root.join("bin/busybox"))?;
    archive.file("rounds", format!("{ROUNDS}\n").as_bytes());
    for name in ["data", "compressed", "hashes", "sizes"] {
        archive.host_file(name, &folder.join(name))?;
    }
    for name in ["zst", "good", "bad"] {
        archive.host_files(name, &folder.join(name))?;
    }
    installed(modules, folder)?.add_to(&mut archive)?;
    archive.host_file("bin/writers", &writers(modules.kernel.arch, folder)?)?;
    archive.folder("m");
    for (file, path) in files(&modules.folder)? {
        if !file.ends_with(".ko") {
            continue;
        }
        archive.module(&format!("m/{file}"), &modules.kernel, &path, folder)?;
    }
    let path = folder.join("initramfs.cpio");
    fs::write(&path, archive.finish()).map_err(failed)?;
    Ok(path)
}

/// The program that writes from threads and processes at the same time.
pub(super) fn writers(arch: Arch, folder: &Path) -> Result<PathBuf, String> {
    let program = folder.join("writers");
    let mut cc = Command::new(arch.tool("gcc"));
    cc.args(["-O2", "-Wall", "-Werror", "-static", "-pthread", "-o"]);
    output_of(
        cc.arg(&program)
            .arg(root().join("xtask/src/kmod/writers.c")),
    )?;
    Ok(program)
}

/// The program that does in user space what the devices do.
fn device() -> Result<Command, String> {
    // With the features that the tests of the workspace are built with, or else crates are compiled
    // again for others.
    output_of(&mut cargo([
        "build",
        "--quiet",
        "--workspace",
        "--example",
        "device",
    ]))?;
    Ok(Command::new(
        tools::target_dir().join("debug/examples/device"),
    ))
}

/// Adds all frames of the tests of zstd, each as it is and damaged in a number of ways: `good` and
/// `bad`, as user space judges.
pub(super) fn frames(archive: &mut Initramfs, folder: &Path, damages: u32) -> Result<(), String> {
    for name in ["good", "bad"] {
        let _ = fs::remove_dir_all(folder.join(name));
    }
    let mut judge = device()?;
    judge.env("RESTOW_CASES", damages.to_string());
    output_of(judge.arg("/dev/null").arg(folder))?;
    for name in ["good", "bad"] {
        archive.host_files(name, &folder.join(name))?;
    }
    Ok(())
}

/// What is compressed: source text, bytes that no encoder makes smaller, and zeros.
fn content() -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    for folder in [
        "crates/zstd/src/encode",
        "crates/zstd/src/decode",
        "crates/tree/src",
    ] {
        for (_, path) in files(&root().join(folder))? {
            let text =
                fs::read(&path).map_err(|error| format!("read {}: {error}", path.display()))?;
            content.extend(text);
        }
    }
    let mut state = 1_u64;
    content.truncate(DATA_SIZE * 3 / 4);
    for _ in 0..DATA_SIZE / 8 {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        content.push((state >> 56) as u8);
    }
    content.resize(DATA_SIZE, 0);
    // Far matches.
    let start = content[..DATA_SIZE / 4].to_vec();
    content.extend(start);
    Ok(content)
}

/// Frames of the zstd command, one of all and two of one half each.
fn frames_of_command(folder: &Path, content: &[u8]) -> Result<(), String> {
    let failed = |error| format!("write {}: {error}", folder.display());
    let (first, second) = content.split_at(content.len() / 2);
    let mut frames = Vec::new();
    for (name, part) in [("all", content), ("first", first), ("second", second)] {
        let path = folder.join(name);
        fs::write(&path, part).map_err(failed)?;
        let mut zstd = Command::new("zstd");
        let output = zstd.args(["-q", "-9", "--check", "-c"]).arg(&path).output();
        frames.push(output.map_err(|error| format!("zstd: {error}"))?.stdout);
    }
    fs::write(folder.join("zst/command.zst"), &frames[0]).map_err(failed)?;
    fs::write(folder.join("zst/halves.zst"), frames[1..].concat()).map_err(failed)
}
