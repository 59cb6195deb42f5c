//! What was synced and not committed: the log that `fsync` writes, as Linux replays it, and as we
//! do in memory.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use btrfs::{Btrfs, OpenOptions as BtrfsOptions};
use testkit::{Access, BackingFile, FsType, LoopDevice, Mount, Rng, TempDir, cases, run, tool};
use tree::diff::{Change, diff};
use tree::manifest::Manifest;
use tree::{Aspects, Extent, FileKind, FileSystem, HostDir, Ino, NoProgress, Parallel, ReadAt};

const DEVICE_BYTES: u64 = 512 << 20;

/// A file system that the kernel writes to, without a commit unless it is asked for one.
struct Uncommitted {
    mount: Mount,
    live: PathBuf,
    copies: TempDir,
}

impl Uncommitted {
    fn create(arguments: &[&str], options: &str) -> Option<Uncommitted> {
        let mkfs = tool("mkfs.btrfs")?;
        let backing = BackingFile::create(DEVICE_BYTES);
        let mut command = mkfs.command();
        run(command.arg("--quiet").args(arguments).arg(backing.path()));
        let live = backing.path().to_owned();
        let device = LoopDevice::attach(backing, Access::ReadWrite);
        let mount = Mount::new(device, FsType::Btrfs, &format!("commit=300{options}"));
        Some(Uncommitted {
            mount,
            live,
            copies: TempDir::new(),
        })
    }

    fn path(&self) -> &Path {
        self.mount.path()
    }

    fn commit(&self) {
        run(Command::new("sync").arg("--file-system").arg(self.path()));
    }

    /// Copies of the current state of the device, as after a crash: one for us, one for the kernel.
    fn crash(self) -> Crashed {
        let [ours, theirs] = ["ours", "theirs"].map(|name| self.copies.join(name));
        for copy in [&ours, &theirs] {
            let mut command = Command::new("cp");
            run(command.arg("--sparse=always").args([&self.live, copy]));
        }
        self.mount.unmount();
        Crashed {
            ours,
            theirs,
            _copies: self.copies,
        }
    }
}

struct Crashed {
    ours: PathBuf,
    theirs: PathBuf,
    _copies: TempDir,
}

fn open(path: &Path, options: &BtrfsOptions) -> Arc<Btrfs> {
    let source: Box<dyn ReadAt> = Box::new(File::open(path).unwrap());
    Arc::new(Btrfs::open_with(vec![source], options).unwrap())
}

/// The link counts of all files that are no directories.
fn link_counts(fs: &dyn FileSystem) -> Vec<(Vec<u8>, u32)> {
    let mut counts = Vec::new();
    let mut waiting: Vec<(Vec<u8>, Ino)> = vec![(Vec::new(), fs.root())];
    while let Some((path, dir)) = waiting.pop() {
        for (entry, metadata) in fs.read_dir_with_metadata(dir).unwrap() {
            let path = [&path, &b"/"[..], &entry.name].concat();
            if entry.kind == FileKind::Directory {
                waiting.push((path, entry.ino));
            } else {
                counts.push((path, metadata.nlink));
            }
        }
    }
    counts.sort();
    counts
}

/// The extents of all regular files.
fn extents(fs: &dyn FileSystem) -> Vec<(Vec<u8>, Vec<Extent>)> {
    let mut all = Vec::new();
    let mut waiting: Vec<(Vec<u8>, Ino)> = vec![(Vec::new(), fs.root())];
    while let Some((path, dir)) = waiting.pop() {
        for entry in fs.read_dir(dir).unwrap() {
            let path = [&path, &b"/"[..], &entry.name].concat();
            match entry.kind {
                FileKind::Directory => waiting.push((path, entry.ino)),
                FileKind::Regular => all.push((path, fs.extents(entry.ino, 0).unwrap())),
                _ => {}
            }
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

impl Crashed {
    fn has_log(&self) -> bool {
        open(&self.ours, &BtrfsOptions::default()).has_log()
    }

    /// What we show is what the kernel shows after it replayed the log.
    fn compare(&self, name: &str) {
        let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let device = LoopDevice::attach(BackingFile::existing(&self.theirs), Access::ReadWrite);
        let mount = Mount::new(device, FsType::Btrfs, "");
        let theirs = HostDir::open(mount.path()).unwrap();
        let image = open(&self.ours, &BtrfsOptions::default());
        let ours = image.subvolume(5).unwrap();
        let mut found = Vec::new();
        let mut report = |difference: tree::diff::Difference| {
            // Linux sets the time of a directory when it removes a name from it during the replay.
            let is_of_replay = matches!(
                &difference.change,
                Change::Mtime(theirs, _) if theirs.seconds >= start.as_secs() as i64
            );
            if !is_of_replay {
                found.push(difference);
            }
            Ok(())
        };
        let parallel = Parallel::new(2);
        let aspects = Aspects {
            holes: false,
            ..Aspects::ALL
        };
        let result = diff(&theirs, &ours, &aspects, parallel, &NoProgress, &mut report);
        assert!(result.is_ok(), "{name}: {result:?}");
        let counts = link_counts(&theirs);
        drop(theirs);
        mount.unmount();
        assert!(found.is_empty(), "{name}: {found:#?}");
        assert_eq!(counts, link_counts(&ours), "{name}");
        // Linux shows holes and preallocated space in its own way. What it wrote is the same.
        let written = open(&self.theirs, &BtrfsOptions::default());
        let written = written.subvolume(5).unwrap();
        assert_eq!(extents(&written), extents(&ours), "{name}");
    }
}

/// A random tree of files, changed at random, synced at random.
struct Chaos {
    rng: Rng,
    dirs: Vec<PathBuf>,
    files: Vec<PathBuf>,
    number: u64,
}

impl Chaos {
    fn new(seed: u64, root: &Path) -> Chaos {
        Chaos {
            rng: Rng::new(seed),
            dirs: vec![root.to_owned()],
            files: Vec::new(),
            number: 0,
        }
    }

    fn new_path(&mut self) -> PathBuf {
        self.number += 1;
        let dir = self.dir();
        // Long names use up the room for references, so that some become extended.
        let len = if self.rng.chance(4) { 200 } else { 1 };
        dir.join(format!("{:0len$}", self.number))
    }

    fn dir(&mut self) -> PathBuf {
        self.dirs[self.rng.index(self.dirs.len())].clone()
    }

    fn file(&mut self) -> Option<PathBuf> {
        if self.files.is_empty() {
            return None;
        }
        Some(self.files[self.rng.index(self.files.len())].clone())
    }

    fn content(&mut self) -> Vec<u8> {
        let len = match self.rng.below(4) {
            0 => self.rng.below(100),
            1 => self.rng.below(5000),
            2 => self.rng.below(60_000),
            _ => self.rng.below(300_000),
        };
        let mut bytes = self.rng.bytes(len as usize);
        if self.rng.chance(2) {
            bytes.iter_mut().for_each(|byte| *byte &= 1);
        }
        bytes
    }

    fn fallocate(&mut self, path: &Path, argument: &[&str]) {
        let (from, len) = (self.rng.below(40) * 4096, (1 + self.rng.below(20)) * 4096);
        // Linux may refuse it, for example for inline content.
        let mut command = Command::new("fallocate");
        let command = command.args(argument).args([
            "--offset",
            &from.to_string(),
            "--length",
            &len.to_string(),
        ]);
        let _ = command.arg(path).output().unwrap();
    }

    /// Makes one change, and returns a file or directory that is worth syncing.
    fn change(&mut self) -> Option<PathBuf> {
        let path = match self.rng.below(20) {
            0..=3 => {
                let path = self.new_path();
                fs::write(&path, self.content()).unwrap();
                self.files.push(path.clone());
                path
            }
            4 => {
                let path = self.new_path();
                fs::create_dir(&path).unwrap();
                self.dirs.push(path.clone());
                path
            }
            5 => {
                let path = self.new_path();
                symlink("target", &path).unwrap();
                path.parent().unwrap().to_owned()
            }
            6..=7 => {
                let (from, to) = (self.file()?, self.new_path());
                fs::rename(&from, &to).unwrap();
                self.files.retain(|file| *file != from);
                self.files.push(to.clone());
                if self.rng.chance(2) {
                    to
                } else {
                    to.parent().unwrap().to_owned()
                }
            }
            8 => {
                // Onto another one.
                let (from, to) = (self.file()?, self.file()?);
                if from == to {
                    return None;
                }
                fs::rename(&from, &to).unwrap();
                if fs::symlink_metadata(&from).is_err() {
                    self.files.retain(|file| *file != from);
                }
                to
            }
            9..=10 => {
                let path = self.file()?;
                fs::remove_file(&path).unwrap();
                self.files.retain(|file| *file != path);
                path.parent().unwrap().to_owned()
            }
            11 => {
                let (from, to) = (self.file()?, self.new_path());
                fs::hard_link(&from, &to).unwrap();
                self.files.push(to.clone());
                if self.rng.chance(2) { from } else { to }
            }
            12 => {
                // A name that another file had.
                let path = self.file()?;
                fs::remove_file(&path).unwrap();
                fs::write(&path, self.content()).unwrap();
                path
            }
            13 => {
                let path = self.file()?;
                let file = OpenOptions::new().write(true).open(&path).unwrap();
                file.set_len(self.rng.below(200_000)).unwrap();
                path
            }
            14..=15 => {
                let path = self.file()?;
                let file = OpenOptions::new().write(true).open(&path).unwrap();
                let at = self.rng.below(400_000);
                file.write_all_at(&self.content(), at).unwrap();
                path
            }
            16 => {
                let path = self.file()?;
                let argument: &[&str] = match self.rng.below(4) {
                    0 => &[],
                    1 => &["--keep-size"],
                    2 => &["--punch-hole"],
                    _ => &["--zero-range"],
                };
                self.fallocate(&path, argument);
                path
            }
            17 => {
                let path = if self.rng.chance(3) {
                    self.dir()
                } else {
                    self.file()?
                };
                let name = format!("user.{}", self.rng.below(5));
                let mut command = Command::new("setfattr");
                if self.rng.chance(2) {
                    let value = "x".repeat(self.rng.index(300));
                    command.args(["-n", &name, "-v", &value]);
                } else {
                    command.args(["-x", &name]);
                }
                // The attribute to remove may not be there.
                let _ = command.arg(&path).output().unwrap();
                path
            }
            18 => {
                let (from, to) = (self.file()?, self.new_path());
                run(Command::new("cp")
                    .arg("--reflink=always")
                    .args([&from, &to]));
                self.files.push(to.clone());
                to
            }
            _ => {
                let path = self.file()?;
                let mode = 0o400 + self.rng.below(0o400) as u32;
                fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                path
            }
        };
        Some(path)
    }

    fn sync(&mut self, path: &Path) {
        let file = File::open(path).unwrap();
        if self.rng.chance(5) {
            file.sync_data().unwrap();
        } else {
            file.sync_all().unwrap();
        }
    }

    fn rename_dir(&mut self) -> Option<PathBuf> {
        if self.dirs.len() < 3 {
            return None;
        }
        let from = self.dirs[1 + self.rng.index(self.dirs.len() - 1)].clone();
        let to = self.new_path();
        if to.starts_with(&from) {
            return None;
        }
        fs::rename(&from, &to).unwrap();
        for path in self.dirs.iter_mut().chain(&mut self.files) {
            if let Ok(rest) = path.strip_prefix(&from) {
                *path = if rest.as_os_str().is_empty() {
                    to.clone()
                } else {
                    to.join(rest)
                };
            }
        }
        Some(to)
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "a campaign prints it")]
#[ignore = "needs root"]
fn what_was_synced_is_shown_as_linux_replays_it() {
    let mkfs: [&[&str]; 5] = [
        &[],
        &["--nodesize", "4096"],
        &["--features", "^no-holes", "--nodesize", "4096"],
        &["--checksum", "xxhash", "--metadata", "single"],
        &["--mixed", "--nodesize", "4096"],
    ];
    let (mut logs, count) = (0, cases(6));
    for seed in 0..count {
        let options = ["", ",compress-force=zstd", ",compress=lzo", ",nodatasum"];
        let option = options[seed as usize / mkfs.len() % options.len()];
        let Some(kernel) = Uncommitted::create(mkfs[seed as usize % mkfs.len()], option) else {
            return;
        };
        let mut rng = Rng::new(seed);
        let mut all = vec![Chaos::new(seed, kernel.path())];
        if seed % 2 == 1 {
            // A log of its own.
            let path = kernel.path().join("subvolume");
            let btrfs = tool("btrfs").unwrap();
            run(btrfs.command().args(["subvolume", "create"]).arg(&path));
            all.push(Chaos::new(seed + 1_000_000, &path));
        }
        for _ in 0..40 {
            let index = rng.index(all.len());
            all[index].change();
        }
        if seed % 3 == 1 {
            let path = kernel.path().join("many");
            fs::create_dir(&path).unwrap();
            for number in 0..1000 {
                fs::write(path.join(format!("x{number}")), number.to_string()).unwrap();
            }
            all[0].dirs.push(path);
        }
        kernel.commit();
        // Few changes: after some of them, Linux commits instead of logging.
        for _ in 0..=rng.below(30) {
            let index = rng.index(all.len());
            let chaos = &mut all[index];
            let path = if rng.chance(30) {
                chaos.rename_dir()
            } else {
                chaos.change()
            };
            if let Some(path) = path
                && rng.chance(2)
            {
                chaos.sync(&path);
            }
        }
        for _ in 0..=rng.below(3) {
            let index = rng.index(all.len());
            let chaos = &mut all[index];
            let path = match chaos.file() {
                Some(path) if rng.chance(2) => path,
                _ => chaos.dir(),
            };
            chaos.sync(&path);
        }
        let crashed = kernel.crash();
        logs += u64::from(crashed.has_log());
        crashed.compare(&format!("seed {seed}"));
    }
    println!("campaign: {logs} of {count} images have a log");
    assert!(logs * 3 > count, "{logs} logs of {count} images");
}

/// One kind of change each, with a sync of what it changes and of nothing else.
#[test]
#[ignore = "needs root"]
fn each_kind_of_synced_change_is_replayed() {
    type Change = (&'static str, fn(&Path) -> PathBuf);
    let changes: [Change; 16] = [
        ("new file", |at| {
            fs::write(at.join("new"), vec![7; 100_000]).unwrap();
            at.join("new")
        }),
        ("new file in a new directory", |at| {
            fs::create_dir(at.join("dir/new")).unwrap();
            fs::write(at.join("dir/new/file"), b"text").unwrap();
            at.join("dir/new/file")
        }),
        ("rename", |at| {
            fs::rename(at.join("file"), at.join("dir/moved")).unwrap();
            at.join("dir/moved")
        }),
        ("rename onto another file", |at| {
            fs::rename(at.join("file"), at.join("other")).unwrap();
            at.join("other")
        }),
        ("removed name", |at| {
            fs::remove_file(at.join("linked")).unwrap();
            at.join("file")
        }),
        ("removed file", |at| {
            fs::remove_file(at.join("other")).unwrap();
            at.to_owned()
        }),
        ("shorter", |at| {
            let file = OpenOptions::new().write(true).open(at.join("file"));
            file.unwrap().set_len(12_345).unwrap();
            at.join("file")
        }),
        ("longer", |at| {
            let file = OpenOptions::new().write(true).open(at.join("file"));
            file.unwrap().write_all_at(&[9; 50_000], 900_000).unwrap();
            at.join("file")
        }),
        ("overwritten", |at| {
            let file = OpenOptions::new().write(true).open(at.join("file"));
            file.unwrap().write_all_at(&[9; 50_000], 5000).unwrap();
            at.join("file")
        }),
        ("attributes", |at| {
            for arguments in [["-x", "user.old"], ["-n", "user.new"]] {
                run(Command::new("setfattr")
                    .args(arguments)
                    .arg(at.join("file")));
            }
            at.join("file")
        }),
        ("attributes of a directory", |at| {
            run(Command::new("setfattr")
                .args(["-n", "user.new"])
                .arg(at.join("dir")));
            at.join("dir")
        }),
        ("another name", |at| {
            fs::hard_link(at.join("file"), at.join("dir/name")).unwrap();
            at.join("file")
        }),
        ("new directory", |at| {
            fs::create_dir_all(at.join("dir/new/deep")).unwrap();
            at.join("dir/new")
        }),
        ("preallocated", |at| {
            run(Command::new("fallocate")
                .args(["--keep-size", "--offset", "2000000", "--length", "500000"])
                .arg(at.join("file")));
            at.join("file")
        }),
        ("hole", |at| {
            run(Command::new("fallocate")
                .args(["--punch-hole", "--offset", "100000", "--length", "500000"])
                .arg(at.join("file")));
            at.join("file")
        }),
        ("mode and time", |at| {
            let mode = fs::Permissions::from_mode(0o751);
            fs::set_permissions(at.join("file"), mode).unwrap();
            at.join("file")
        }),
    ];
    let mut logs = 0;
    for (name, change) in changes {
        let Some(kernel) = Uncommitted::create(&[], "") else {
            return;
        };
        let at = kernel.path();
        fs::create_dir(at.join("dir")).unwrap();
        fs::write(at.join("file"), Rng::new(1).bytes(800_000)).unwrap();
        fs::write(at.join("other"), b"other").unwrap();
        fs::hard_link(at.join("file"), at.join("linked")).unwrap();
        run(Command::new("setfattr")
            .args(["-n", "user.old"])
            .arg(at.join("file")));
        kernel.commit();
        let path = change(at);
        File::open(path).unwrap().sync_all().unwrap();
        let crashed = kernel.crash();
        if crashed.has_log() {
            logs += 1;
            let [with, without] = [false, true].map(|no_log| {
                let options = BtrfsOptions::default().no_log(no_log);
                let top = open(&crashed.ours, &options).subvolume(5).unwrap();
                Manifest::of(&top, &Aspects::ALL).unwrap()
            });
            if !["preallocated"].contains(&name) {
                assert_ne!(with.difference(&without), "", "{name}");
            }
        }
        crashed.compare(name);
    }
    assert!(logs >= 8, "{logs} logs");
}
