//! Sound file systems of all shapes that mkfs.btrfs, its companions and the kernel make: neither
//! `btrfs check` nor our check finds anything wrong.
//!
//! `shapes.sh` makes them, with the installed programs and with newer ones. Each version judges the
//! images that it made: newer ones report what mkfs.btrfs 6.2 leaves in the free space tree.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use btrfs::Btrfs;
use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, Rng, cases, newer_tool, run, tool};
use tree::ReadAt;

use crate::check::findings;
use crate::judges::{Judge, judges, versions};

const SCRIPT: &str = include_str!("shapes.sh");

/// The programs that the script runs.
const PROGRAMS: [&str; 8] = [
    "btrfs",
    "btrfs-convert",
    "btrfs-image",
    "btrfstune",
    "chattr",
    "mkfs.btrfs",
    "mkfs.ext4",
    "setfattr",
];

const DEVICES: usize = 4;
const DEVICE_BYTES: u64 = 1 << 30;
const MAGIC: &[u8] = b"_BHRfS_M";
const MAGIC_AT: u64 = (64 << 10) + 64;

/// The files in a directory, in the order of their names.
fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn has_superblock(path: &Path) -> bool {
    let mut magic = [0; 8];
    let read = File::open(path)
        .unwrap()
        .read_exact_at(&mut magic, MAGIC_AT);
    read.is_ok() && magic == MAGIC
}

/// Runs the commands of a shape, and returns the images. `newer` is a folder of programs that come
/// before the installed ones.
fn made(commands: &str, dir: &Path, newer: Option<&Path>) -> Result<Vec<PathBuf>, String> {
    let [devices, copies, mount, empty] = ["devices", "copies", "mount", "empty"].map(|name| {
        let dir = dir.join(name);
        fs::create_dir_all(&dir).unwrap();
        dir
    });
    let mut command = Command::new("sh");
    command.args(["-c", commands]).env("LC_ALL", "C");
    let variables = [("C", &copies), ("M", &mount), ("T", &empty)];
    command.envs(variables).env("N", dir.join("../noise"));
    if let Some(newer) = newer {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", newer.display()));
    }
    let attached: Vec<LoopDevice> = (1..=DEVICES)
        .map(|number| {
            let path = devices.join(number.to_string());
            let file = File::create_new(&path).unwrap();
            file.set_len(DEVICE_BYTES).unwrap();
            let device = LoopDevice::attach(BackingFile::existing(&path), Access::ReadWrite);
            command.env(format!("F{number}"), &path);
            command.env(format!("D{number}"), device.path());
            device
        })
        .collect();
    let output = command.output().unwrap();
    if !output.status.success() {
        let _ = Command::new("umount").arg(&mount).output();
    }
    for device in attached {
        let mut command = Command::new("btrfs");
        command
            .args(["device", "scan", "--forget"])
            .arg(device.path());
        let _ = command.output();
        device.detach();
    }
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let copied = files(&copies);
    if !copied.is_empty() {
        return Ok(copied);
    }
    let mut images = files(&devices);
    images.retain(|path| has_superblock(path));
    Ok(images)
}

/// Why an image is not clean, to us or to a version of `btrfs check`.
fn complaints(images: &[PathBuf], judge: &Judge) -> Vec<String> {
    let source = |path: &PathBuf| Box::new(File::open(path).unwrap()) as Box<dyn ReadAt>;
    let mut complaints = match Btrfs::open(images.iter().map(source).collect()) {
        Ok(btrfs) => findings(&btrfs).1,
        Err(error) => vec![error.to_string()],
    };
    // It finds the other devices itself.
    let attach = |path| LoopDevice::attach(BackingFile::existing(path), Access::ReadOnly);
    let devices: Vec<LoopDevice> = images.iter().map(attach).collect();
    if !judge.is_clean(devices[0].path()) {
        complaints.push(format!("{} finds something", judge.version));
    }
    complaints
}

#[test]
#[ignore = "needs root"]
#[expect(clippy::print_stdout, reason = "a campaign prints it")]
fn sound_file_systems_of_all_shapes_are_clean() {
    if !PROGRAMS.iter().all(|name| tool(name).is_some()) {
        return;
    }
    let mut parts = SCRIPT.split("\n#: ");
    let common = parts.next().unwrap_or_default();
    let count = cases(3) as usize;
    let is_campaign = count > 3;
    let Some(judges) = judges(is_campaign) else {
        return;
    };
    let is_old = |shape: &&str| !shape.contains("needs newer");
    let shapes: Vec<&str> = parts.filter(|shape| is_campaign || is_old(shape)).collect();
    let newer = is_campaign.then(|| newer_tool("mkfs.btrfs")).flatten();
    let newer = newer.and_then(|tool| tool.path().parent().map(Path::to_owned));
    // A btrfs below, in which a copy is a clone of one moment.
    let below = BackingFile::create(32 << 30);
    run(Command::new("mkfs.btrfs").arg("--quiet").arg(below.path()));
    let below = LoopDevice::attach(below, Access::ReadWrite);
    let below = Mount::new(below, FsType::Btrfs, "");
    fs::write(below.path().join("noise"), Rng::new(1).bytes(4 << 20)).unwrap();
    let (mut wrong, mut tried) = (Vec::new(), vec![0; judges.len()]);
    let step = (shapes.len() / count).max(1);
    for shape in shapes.iter().step_by(step).take(count) {
        let (name, commands) = shape.split_once('\n').unwrap();
        for (version, judge) in judges.iter().enumerate() {
            if version == 0 && !is_old(shape) {
                continue;
            }
            tried[version] += 1;
            let newer = newer.as_deref().filter(|_| version > 0);
            let dir = below.path().join("run");
            let found = match made(&format!("{common}\n{commands}"), &dir, newer) {
                Ok(images) => complaints(&images, judge),
                Err(words) => vec![format!("cannot be made: {words}")],
            };
            if !found.is_empty() {
                wrong.push(format!("{name}, {}: {found:#?}", judge.version));
            }
            fs::remove_dir_all(dir).unwrap();
        }
    }
    drop(below);
    println!(
        "campaign: {tried:?} shapes made and judged by {:?}, {} not clean",
        versions(&judges),
        wrong.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
