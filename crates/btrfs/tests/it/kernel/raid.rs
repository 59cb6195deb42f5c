//! File systems that we create on several devices, under Linux: mounted, scrubbed, changed and
//! balanced; with each device missing in turn, and with the first one rebuilt (each one with
//! `RESTOW_CASES=9`).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use btrfs::{Btrfs, Options, Profile, create_on_devices};
use testkit::{
    Access, BackingFile, FsType, KernelLog, LoopDevice, Mount, TempDir, Tool, cases, run, tool,
};
use tree::manifest::Manifest;
use tree::{Aspects, FileSystem, HostDir, Inventory, Limits, NoProgress, Output, Parallel, ReadAt};

use super::ours::change;
use crate::check::findings;
use crate::images::{assert_same, manifest_of, memory_tree, with};

/// Slack on each device that lets Linux relocate everything.
const ROOM: Option<u64> = Some(512 << 20);

/// The images of the devices of one file system.
struct Images {
    _dir: TempDir,
    paths: Vec<PathBuf>,
    name: String,
}

impl Images {
    fn make(source: &dyn FileSystem, options: &Options, count: usize) -> Images {
        let dir = TempDir::new();
        let name = [options.data.name(), options.metadata.name()].join(" ");
        let name = format!("{name} on {count}");
        let paths: Vec<PathBuf> = (0..count).map(|it| dir.join(it.to_string())).collect();
        let outputs = paths
            .iter()
            .map(|path| Output::create(path, false).unwrap());
        let outputs: Vec<Output> = outputs.collect();
        let inventory = Inventory::of(source, &Limits::default()).unwrap();
        let parallel = Parallel::new(2);
        create_on_devices(&inventory, options, parallel, &NoProgress, &outputs).unwrap();
        for (output, path) in outputs.into_iter().zip(&paths) {
            assert!(!path.exists());
            output.commit().unwrap();
        }
        Images {
            _dir: dir,
            paths,
            name,
        }
    }

    /// All but the one at this index.
    fn without(&self, lost: usize) -> Vec<&Path> {
        let paths = self.paths.iter().enumerate();
        paths
            .filter(|(index, _)| *index != lost)
            .map(|(_, path)| &**path)
            .collect()
    }

    fn all(&self) -> Vec<&Path> {
        self.paths.iter().map(|path| &**path).collect()
    }
}

fn open(images: &[&Path]) -> tree::Result<Arc<Btrfs>> {
    let source = |path: &&Path| Box::new(File::open(path).unwrap()) as Box<dyn ReadAt>;
    Ok(Arc::new(Btrfs::open(images.iter().map(source).collect())?))
}

/// Mounts these images; the devices but the first one have to live as long.
fn mount(images: &[&Path], access: Access, options: &str) -> (Mount, Vec<LoopDevice>) {
    let device = |path: &&Path| LoopDevice::attach(BackingFile::existing(path), access);
    let mut devices: Vec<LoopDevice> = images.iter().map(device).collect();
    let others = devices[1..].iter();
    let others = others.map(|device| format!(",device={}", device.path().display()));
    let options = format!("{options}{}", others.collect::<String>());
    let first = devices.remove(0);
    let mount = Mount::new(first, FsType::Btrfs, options.trim_start_matches(','));
    (mount, devices)
}

/// Linux remembers devices that are gone, and takes the next ones for them.
fn forget(btrfs: &Tool) {
    run(btrfs.command().args(["device", "scan", "--forget"]));
}

fn unmount(btrfs: &Tool, (mount, devices): (Mount, Vec<LoopDevice>)) {
    mount.unmount();
    drop(devices);
    forget(btrfs);
}

/// `btrfs check` finds the other devices among those of the machine.
fn check(btrfs: &Tool, images: &[&Path], name: &str) {
    let device = |path: &&Path| LoopDevice::attach(BackingFile::existing(path), Access::ReadOnly);
    let devices: Vec<LoopDevice> = images.iter().map(device).collect();
    for device in &devices {
        let mut command = btrfs.command();
        let output = command
            .args(["check", "--check-data-csum"])
            .arg(device.path())
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&output.stderr).to_lowercase();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && said.contains("no error found"),
            "{name}: {words}{said}"
        );
        assert!(!words.contains("warning"), "{name}: {words}");
    }
    drop(devices);
    forget(btrfs);
}

fn scrub(btrfs: &Tool, mount: &Mount, name: &str) {
    let output = run(btrfs
        .command()
        .args(["scrub", "start", "-B"])
        .arg(mount.path()));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("no errors found"), "{name}: {said}");
}

/// Lets Linux put a new device in the place of the one that is lost.
fn rebuild(btrfs: &Tool, images: &Images, source: &dyn FileSystem, lost: usize) {
    let name = &format!("{} without {lost}", images.name);
    let copies = TempDir::new();
    let copy = |path: &Path| {
        let to = copies.join(path.file_name().unwrap());
        run(Command::new("cp").arg("--sparse=always").args([path, &to]));
        to
    };
    let mut paths: Vec<PathBuf> = images.without(lost).into_iter().map(copy).collect();
    let rest: Vec<&Path> = paths.iter().map(|path| &**path).collect();
    let mounted = mount(&rest, Access::ReadWrite, "degraded");
    assert_same(source, &HostDir::open(mounted.0.path()).unwrap(), name);
    let new = copies.join("new");
    let bytes = fs::metadata(&images.paths[lost]).unwrap().len();
    File::create_new(&new).unwrap().set_len(bytes).unwrap();
    let device = LoopDevice::attach(BackingFile::existing(&new), Access::ReadWrite);
    let mut command = btrfs.command();
    command.args(["replace", "start", "-B", "-f", &(lost + 1).to_string()]);
    run(command.arg(device.path()).arg(mounted.0.path()));
    scrub(btrfs, &mounted.0, name);
    mounted.0.unmount();
    drop((mounted.1, device));
    forget(btrfs);
    paths.push(new);
    let all: Vec<&Path> = paths.iter().map(|path| &**path).collect();
    check(btrfs, &all, name);
    let image = open(&all).unwrap();
    assert_eq!(findings(&image).1, [""; 0], "{name}");
    assert_same(source, &image.subvolume(5).unwrap(), name);
}

/// Proves a file system on `count` devices, of which any one may be lost if that is said.
fn prove(data: Profile, metadata: Profile, count: usize, may_be_lost: bool) {
    let Some(btrfs) = tool("btrfs") else {
        return;
    };
    let mut source = memory_tree();
    let root = source.root();
    source.add_file(root, "striped", &testkit::Rng::new(3).bytes(2_500_000));
    let theirs = manifest_of(&source);
    // Linux knows a file system by its UUID, and other tests may run beside this one.
    let mut uuid = [data as u8 ^ 0x5a; 16];
    uuid[1..5].copy_from_slice(&std::process::id().to_le_bytes());
    uuid[5..7].copy_from_slice(&[metadata as u8, count as u8]);
    let options = with(Some(codec::Settings::Zstd { level: 1 }), false);
    let options = options.data(data).metadata(metadata);
    let options = options.slack(ROOM).uuid(Some(uuid));
    let images = Images::make(&source, &options, count);
    let name = &images.name;
    let all = images.all();
    let image = open(&all).unwrap();
    assert_eq!(findings(&image).1, [""; 0], "{name}");
    assert_same(&source, &image.subvolume(5).unwrap(), name);
    check(&btrfs, &all, name);
    for lost in 0..count {
        let rest = images.without(lost);
        let is_rebuilt = lost < cases(1);
        let read = open(&rest).and_then(|image| Manifest::of(&image.subvolume(5)?, &Aspects::ALL));
        assert!(read.is_ok() || !may_be_lost, "{name} without {lost}");
        if may_be_lost {
            let mounted = mount(&rest, Access::ReadOnly, "degraded");
            let shown = HostDir::open(mounted.0.path()).unwrap();
            for shown in [read.unwrap(), manifest_of(&shown)] {
                assert_eq!(theirs.difference(&shown), "", "{name} without {lost}");
            }
            drop(shown);
            unmount(&btrfs, mounted);
            if is_rebuilt {
                rebuild(&btrfs, &images, &source, lost);
            }
        }
    }
    let mut log = KernelLog::watch();
    let mounted = mount(&all, Access::ReadWrite, "");
    assert_same(&source, &HostDir::open(mounted.0.path()).unwrap(), name);
    scrub(&btrfs, &mounted.0, name);
    change(mounted.0.path());
    let mut command = btrfs.command();
    command.args(["balance", "start", "--full-balance"]);
    run(command.arg(mounted.0.path()));
    log.assert_quiet(&mounted.0);
    unmount(&btrfs, mounted);
    check(&btrfs, &all, name);
}

/// `RESTOW_CASES=9` tries all.
#[test]
#[ignore = "needs root"]
fn linux_mounts_rebuilds_and_balances_what_we_make_on_several_devices() {
    for (data, metadata, count, may_be_lost) in [
        (Profile::Raid1, Profile::Raid1c3, 3, true),
        (Profile::Raid10, Profile::Raid10, 5, true),
        (Profile::Raid0, Profile::Raid1, 2, false),
        (Profile::Raid1, Profile::Raid1, 2, true),
        (Profile::Raid1c4, Profile::Raid1c4, 4, true),
        (Profile::Single, Profile::Raid0, 3, false),
        (Profile::Dup, Profile::Dup, 2, false),
    ]
    .into_iter()
    .take(cases(3))
    {
        prove(data, metadata, count, may_be_lost);
    }
}
