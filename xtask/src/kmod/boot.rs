//! The kernel, booted in QEMU with the modules and what they are tried on; `kmod/init` says what happens there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::initramfs::Initramfs;
use super::{Modules, out_folder};
use crate::command::{cargo, line_of, output_of};
use crate::outcome::Outcome;
use crate::{root, tools};

pub(super) const QEMU: &str = "qemu-system-x86_64";

/// How long the machine may run, in seconds. It takes a tenth of that.
const BOOT_SECONDS_MAX: u64 = 120;

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
    let outcome = run(&modules.kernel.image, &archive, &[], BOOT_SECONDS_MAX);
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
    // With the features that the tests of the workspace are built with, or else crates are compiled again for others.
    output_of(&mut cargo([
        "build",
        "--quiet",
        "--workspace",
        "--example",
        "device",
    ]))?;
    let mut device = Command::new(tools::target_dir().join("debug/examples/device"));
    output_of(device.arg(&data).arg(folder).args(LEVELS))?;
    frames_of_command(folder, &content)?;
    let mut archive = Initramfs::new();
    archive.host_file("init", &root().join("kmod/init"))?;
    archive.host_file("bin/busybox", &modules.kernel.root.join("bin/busybox"))?;
    archive.file("rounds", format!("{ROUNDS}\n").as_bytes());
    for name in ["data", "compressed", "hashes", "sizes"] {
        archive.host_file(name, &folder.join(name))?;
    }
    for name in ["zst", "good", "bad"] {
        archive.folder(name);
        for (file, path) in files(&folder.join(name))? {
            archive.host_file(&format!("{name}/{file}"), &path)?;
        }
    }
    archive.folder("m");
    for (file, path) in files(&modules.folder)? {
        if !file.ends_with(".ko") {
            continue;
        }
        // What only debuggers need is most of a module.
        let stripped = folder.join(&file);
        let mut strip = Command::new("objcopy");
        output_of(strip.arg("--strip-debug").arg(&path).arg(&stripped))?;
        archive.host_file(&format!("m/{file}"), &stripped)?;
    }
    let path = folder.join("initramfs.cpio");
    fs::write(&path, archive.finish()).map_err(failed)?;
    Ok(path)
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

/// The names and paths of the files of a folder, sorted.
pub(super) fn files(folder: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let failed = |error| format!("read {}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_file() {
            let name = path.file_name().unwrap_or_default();
            files.push((name.to_string_lossy().into_owned(), path));
        }
    }
    files.sort();
    Ok(files)
}

/// Runs the machine until it switches itself off, and reads its verdicts.
pub(super) fn run(image: &Path, archive: &Path, more: &[String], seconds: u64) -> Outcome {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=5", &seconds.to_string(), QEMU])
        .args(["-accel", "tcg", "-cpu", "max", "-m", "512M", "-smp", "2"])
        .args(["-display", "none", "-monitor", "none", "-serial", "stdio"])
        .args(["-no-reboot", "-nic", "none"])
        .arg("-kernel")
        .arg(image)
        .arg("-initrd")
        .arg(archive)
        .args([
            "-append",
            "console=ttyS0 quiet panic=-1 oops=panic panic_on_warn=1 log_buf_len=2M",
        ])
        .args(more)
        .stdin(Stdio::null());
    match command.output() {
        Ok(output) => verdicts(
            &String::from_utf8_lossy(&output.stdout),
            &String::from_utf8_lossy(&output.stderr),
        ),
        Err(error) => Outcome::failed(format!("{}: {error}", line_of(&command))),
    }
}

/// What the machine said of itself.
fn verdicts(console: &str, errors: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let mut is_done = false;
    for line in console.lines().map(str::trim_end) {
        if let Some(name) = line.strip_prefix("PASSED ") {
            outcome.passed += 1;
            println!("passed: {name}");
        } else if let Some(name) = line.strip_prefix("FAILED ") {
            outcome.failed.push(name.to_owned());
        } else if let Some(note) = line.strip_prefix("NOTE ") {
            println!("{note}");
        }
        is_done |= line == "DONE";
    }
    if !is_done {
        let lines: Vec<_> = console.lines().collect();
        let last = &lines[lines.len().saturating_sub(40)..];
        println!("{}\n{errors}", last.join("\n"));
        let reason = "the machine did not come to its end: its last words are above";
        outcome.failed.push(reason.to_owned());
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_counted() {
        let outcome = verdicts("x\r\nPASSED a\r\nFAILED b: c\r\nPASSED d\r\nDONE\r\n", "");
        assert_eq!(
            (outcome.passed, outcome.failed),
            (2, vec!["b: c".to_owned()])
        );
    }

    #[test]
    fn machine_that_stops_has_failed() {
        assert_eq!(verdicts("PASSED a\nKernel panic", "").failed.len(), 1);
    }
}
