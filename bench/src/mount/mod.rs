//! Mounts, by whole processes: `restow mount` beside Linux' own mounts, squashfuse_ll, erofsfuse
//! and a directory on ext4.
//!
//! Every time begins with the call of the mount command. Processor time is that of the whole
//! machine, since Linux' own mounts work in threads of the kernel: nothing else may run meanwhile.
//! Images are in the page cache. Each mount's content is verified in a round of its own.

mod trees;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, FileType, statat};
use xxhash::xxh64;

use crate::cells::{cell, markdown};
use crate::measure;
use crate::options::{Options, entries};
use crate::record::{RecordRow, TableRecord};
use crate::scratch::{ScratchDir, mount, run, version};
use crate::table::RenderedTable;

use trees::{DIRECTORIES, FILE_BYTES, FILES, LARGE_BYTES, large_file, small_tree, tar_header};

/// Rounds; the shortest time counts.
const ROUNDS: usize = 7;
/// The name of the large file.
const LARGE_NAME: &str = "large";
/// Readers at random places, and how often each reads.
const READERS: u64 = 8;
const READS: u64 = 2000;
/// Part of the large file that they read: it fits in the cache.
const RANDOM_BYTES: u64 = 48 << 20;
/// Names in the large directory, and files in the large tree.
const MANY: usize = 1_000_000;

/// Parts of the record: the large file, and images with many files.
const LARGE: &str = "large file";
const MANY_FILES: &str = "a million files";

/// Measures everything.
pub(crate) fn measure(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    let trial = MountTrial::new(options)?;
    let peers = ["Linux", "squashfuse_ll", "erofsfuse"].map(|peer| match peer {
        "Linux" => kernel_build(),
        other => version(other, "--help"),
    });
    record.say("peers", peers.join("; "));
    record.say("rounds", format!("best of {ROUNDS}"));
    trial.walks(record, "SquashFS zstd", "small.squashfs", &SQUASHFS)?;
    trial.walks(record, "btrfs zstd", "small.btrfs", &BTRFS)?;
    trial.walks(record, "EROFS lz4", "small.erofs", &EROFS)?;
    trial.sequential(record)?;
    trial.print_random()?;
    trial.many(record)
}

/// The program that mounts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mounter {
    Restow,
    /// Linux' mount of a loop device.
    Linux(&'static str),
    Squashfuse,
    Erofsfuse,
    /// Linux' mount of the same tree on ext4.
    Ext4,
}

/// The first is the one that the others are compared with.
const SQUASHFS: [Mounter; 4] = [
    Mounter::Linux("squashfs"),
    Mounter::Restow,
    Mounter::Squashfuse,
    Mounter::Ext4,
];
const BTRFS: [Mounter; 2] = [Mounter::Linux("btrfs"), Mounter::Restow];
const EROFS: [Mounter; 3] = [Mounter::Linux("erofs"), Mounter::Restow, Mounter::Erofsfuse];

impl Mounter {
    fn name(self) -> &'static str {
        match self {
            Mounter::Restow => "restow mount",
            Mounter::Linux(_) => "Linux",
            Mounter::Squashfuse => "squashfuse_ll",
            Mounter::Erofsfuse => "erofsfuse",
            Mounter::Ext4 => "ext4 directory",
        }
    }

    fn mount(self, scratch: &ScratchDir, image: &str) -> Result<(), String> {
        let (image, point) = (scratch.path(image), scratch.path("point"));
        match self {
            Mounter::Restow => run(&scratch.restow, &["mount", &image, &point]).map(drop),
            Mounter::Linux(kind) => mount(kind, "ro", &image, &point),
            Mounter::Squashfuse | Mounter::Erofsfuse => {
                run(self.name(), &[&image, &point]).map(drop)
            }
            Mounter::Ext4 => mount("ext4", "ro", &scratch.path("small.ext4"), &point),
        }
    }
}

/// The use of a mount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MountUse {
    Stat,
    Read,
    /// Reading the same again.
    Warm,
    Sequential,
}

/// Seconds of elapsed and of processor time.
#[derive(Clone, Copy)]
struct MountCost {
    wall: f64,
    cpu: f64,
}

impl MountCost {
    const MAX: MountCost = MountCost {
        wall: f64::MAX,
        cpu: f64::MAX,
    };

    fn min(self, other: MountCost) -> MountCost {
        MountCost {
            wall: self.wall.min(other.wall),
            cpu: self.cpu.min(other.cpu),
        }
    }
}

/// The trees and images to be mounted.
struct MountTrial {
    scratch: ScratchDir,
    point: PathBuf,
}

impl MountTrial {
    /// Makes the trees and the images.
    fn new(options: &Options) -> Result<MountTrial, String> {
        let scratch = ScratchDir::new(options)?;
        let point = PathBuf::from(scratch.make("point")?);
        let large = scratch.make("large.dir")?;
        let made = small_tree(&scratch.dir.join("small"))
            .and_then(|()| large_file(&Path::new(&large).join(LARGE_NAME)));
        made.map_err(|error| format!("make the trees: {error}"))?;
        let zstd = ["-comp", "zstd", "-b", "128K", "-quiet", "-no-progress"];
        for (tree, image) in [("small", "small.squashfs"), ("large.dir", "large.squashfs")] {
            let paths = [tree, image].map(|name| scratch.path(name));
            let args = [&[&*paths[0], &paths[1]][..], &zstd].concat();
            run("mksquashfs", &args)?;
        }
        let [small, btrfs, erofs, ext4] =
            ["small", "small.btrfs", "small.erofs", "small.ext4"].map(|name| scratch.path(name));
        let args = ["copy", "-q", "--compress", "zstd:3", &small, &btrfs];
        run(&scratch.restow, &args)?;
        let args = ["--quiet", "-zlz4hc", "-C65536", &erofs, &small];
        run("mkfs.erofs", &args)?;
        run("truncate", &["-s", "256M", &ext4])?;
        run("mkfs.ext4", &["-q", "-d", &small, &ext4])?;
        Ok(MountTrial { scratch, point })
    }

    /// Mounts, works, unmounts; only the first two are measured, and of warm work only the second.
    fn turn(&self, mounter: Mounter, image: &str, work: MountUse) -> Result<MountCost, String> {
        let point = &self.point;
        let mut start = Clock::start()?;
        mounter.mount(&self.scratch, image)?;
        let done = match work {
            MountUse::Stat => walk(point, false),
            MountUse::Read => walk(point, true),
            MountUse::Warm => {
                walk(point, true).map_err(|error| error.to_string())?;
                start = Clock::start()?;
                walk(point, true)
            }
            MountUse::Sequential => read_in_sequence(&point.join(LARGE_NAME)),
        };
        let done = done.map_err(|error| format!("{}: {error}", mounter.name()))?;
        let cost = start.cost()?;
        self.unmount()?;
        let expected = match work {
            MountUse::Stat => 0,
            MountUse::Read | MountUse::Warm => (DIRECTORIES * FILES * FILE_BYTES) as u64,
            MountUse::Sequential => LARGE_BYTES,
        };
        if done == expected {
            return Ok(cost);
        }
        let name = mounter.name();
        Err(format!("{name} read {done} bytes instead of {expected}"))
    }

    fn unmount(&self) -> Result<(), String> {
        run("umount", &[&self.scratch.path("point")]).map(drop)
    }

    /// The least cost of each program.
    fn least(
        &self,
        mounters: &[Mounter],
        image: &str,
        work: MountUse,
    ) -> Result<Vec<MountCost>, String> {
        let mut least = vec![MountCost::MAX; mounters.len()];
        // The first round warms up.
        for round in 0..=ROUNDS {
            for at in measure::order(round, mounters.len()) {
                let cost = self.turn(mounters[at], image, work)?;
                if round > 0 {
                    least[at] = least[at].min(cost);
                }
            }
        }
        Ok(least)
    }

    /// Compares the mount of each program with the tree.
    fn verify(&self, mounters: &[Mounter], image: &str, tree: &str) -> Result<(), String> {
        let expected = digest(&self.scratch.dir.join(tree))?;
        for mounter in mounters {
            mounter.mount(&self.scratch, image)?;
            let found = digest(&self.point)?;
            self.unmount()?;
            if found != expected {
                return Err(format!("{} shows another tree", mounter.name()));
            }
        }
        Ok(())
    }

    /// Measures walks of the small tree: seconds of each program, and ours as a ratio to the
    /// others.
    fn walks(
        &self,
        record: &mut TableRecord,
        part: &str,
        image: &str,
        mounters: &[Mounter],
    ) -> Result<(), String> {
        self.verify(mounters, image, "small")?;
        for (row, work) in [
            ("stat, cold", MountUse::Stat),
            ("read, cold", MountUse::Read),
            ("read, warm", MountUse::Warm),
        ] {
            let costs = self.least(mounters, image, work)?;
            let ours = costs[1];
            for (mounter, cost) in mounters.iter().zip(costs) {
                let name = mounter.name();
                record.add(part, row, name, "seconds", cost.wall);
                record.add(part, row, name, "processor seconds", cost.cpu);
                if *mounter != Mounter::Restow {
                    record.add(
                        part,
                        row,
                        "restow mount",
                        &format!("elapsed to {name}"),
                        ours.wall / cost.wall,
                    );
                    let processor = format!("processor to {name}");
                    record.add(
                        part,
                        row,
                        "restow mount",
                        &processor,
                        ours.cpu / cost.cpu.max(0.001),
                    );
                }
            }
            record.print_row(part, row);
        }
        Ok(())
    }

    /// Measures one large file in sequence.
    fn sequential(&self, record: &mut TableRecord) -> Result<(), String> {
        let mounters = [
            Mounter::Squashfuse,
            Mounter::Linux("squashfs"),
            Mounter::Restow,
        ];
        let image = "large.squashfs";
        self.verify(&[Mounter::Restow], image, "large.dir")?;
        let costs = self.least(&mounters, image, MountUse::Sequential)?;
        // The cost of decoding alone: all threads, into nothing.
        let mut decode = MountCost::MAX;
        for _ in 0..ROUNDS {
            let start = Clock::start()?;
            run(
                &self.scratch.restow,
                &["check", "-q", &self.scratch.path(image)],
            )?;
            decode = decode.min(start.cost()?);
        }
        let names = mounters.iter().map(|mounter| mounter.name());
        let names = names.chain(["restow check, which decodes on both processors"]);
        let first = costs[0].wall;
        for (name, cost) in names.zip(costs.into_iter().chain([decode])) {
            record.add(LARGE, name, "all", "seconds", cost.wall);
            record.add(LARGE, name, "all", "processor seconds", cost.cpu);
            let ratio = cost.wall / first;
            record.add(LARGE, name, "all", "elapsed to squashfuse_ll", ratio);
            record.print_row(LARGE, name);
        }
        Ok(())
    }

    /// Reads pages at random places in several threads, and prints the counters of the server.
    fn print_random(&self) -> Result<(), String> {
        let (child, words) = self.foreground("large.squashfs")?;
        let path = self.point.join(LARGE_NAME);
        let original = self.scratch.dir.join("large.dir").join(LARGE_NAME);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..READERS)
                .map(|seed| {
                    let (path, original) = (&path, &original);
                    scope.spawn(move || read_at_random(path, original, seed))
                })
                .collect();
            readers.into_iter().try_for_each(|reader| {
                reader
                    .join()
                    .map_err(|_| "a reader panicked".to_owned())?
                    .map_err(|error| error.to_string())
            })
        })?;
        println!(
            "{READERS} readers of 4 KiB at random in {RANDOM_BYTES} bytes:\n\n{}\n",
            self.ended(child, words)?
        );
        Ok(())
    }

    /// Measures images with many files: how soon the mount answers, its memory after a walk, and
    /// how soon a name is found.
    fn many(&self, record: &mut TableRecord) -> Result<(), String> {
        for (layout, per_directory) in [
            ("in 1000 directories", MANY / 1000),
            ("in one directory", MANY),
        ] {
            for kind in ["squashfs", "btrfs"] {
                let (image, row) = (format!("many.{kind}"), format!("{layout}, {kind}"));
                let mut add = |metric: &str, value| {
                    record.add(MANY_FILES, &row, "restow mount", metric, value);
                };
                self.many_files(per_directory, &image)?;
                let mut wall = f64::MAX;
                for _ in 0..ROUNDS {
                    let start = Instant::now();
                    Mounter::Restow.mount(&self.scratch, &image)?;
                    wall = wall.min(start.elapsed().as_secs_f64());
                    self.unmount()?;
                }
                add("mount ms", wall * 1e3);
                let (child, words) = self.foreground(&image)?;
                let start = Instant::now();
                walk(&self.point, false).map_err(|error| error.to_string())?;
                add("walk s", start.elapsed().as_secs_f64());
                let status = fs::read_to_string(format!("/proc/{}/status", child.id()));
                let status = status.unwrap_or_default();
                let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                let peak = peak.and_then(|words| words.split_whitespace().next()?.parse().ok());
                add("peak memory MiB", peak.unwrap_or(0.0) / 1024.0);
                let dir = self.point.join(format!("d{}", (MANY - 1) / per_directory));
                for (metric, name, exists) in [
                    ("last name µs", format!("f{:07}", MANY - 1), true),
                    ("no such name µs", "f9".to_owned(), false),
                ] {
                    let start = Instant::now();
                    let found = fs::symlink_metadata(dir.join(&name)).is_ok();
                    add(metric, start.elapsed().as_secs_f64() * 1e6);
                    if found != exists {
                        return Err(format!("{image}: the name {name} is wrong"));
                    }
                }
                self.ended(child, words)?;
                let _ = fs::remove_file(self.scratch.path(&image));
                record.print_row(MANY_FILES, &row);
            }
        }
        Ok(())
    }

    /// Makes an image of empty files from an archive that is never on disk.
    fn many_files(&self, per_directory: usize, image: &str) -> Result<(), String> {
        let mut copy = Command::new(&self.scratch.restow)
            .args(["copy", "-q", "-", &self.scratch.path(image)])
            .stdin(Stdio::piped())
            .spawn()
            .map_err(|error| error.to_string())?;
        let write = |pipe: &mut dyn Write| -> std::io::Result<()> {
            for n in 0..MANY {
                pipe.write_all(&tar_header(&format!("d{}/f{n:07}", n / per_directory)))?;
            }
            pipe.write_all(&[0; 1024])?;
            pipe.flush()
        };
        if let Some(pipe) = copy.stdin.take() {
            write(&mut std::io::BufWriter::new(pipe)).map_err(|error| error.to_string())?;
        }
        let status = copy.wait().map_err(|error| error.to_string())?;
        status
            .success()
            .then_some(())
            .ok_or_else(|| format!("make {image}: {status}"))
    }

    /// Mounts in the foreground; returns when the mount answers.
    fn foreground(&self, image: &str) -> Result<(Child, PathBuf), String> {
        let (pipe, words) = (self.scratch.path("pipe"), self.scratch.dir.join("words"));
        let _ = fs::remove_file(&pipe);
        run("mkfifo", &[&pipe])?;
        let log = File::create(&words).map_err(|error| error.to_string())?;
        let child = Command::new(&self.scratch.restow)
            .args([
                "mount",
                "-f",
                &self.scratch.path(image),
                &self.scratch.path("point"),
            ])
            .args(["-o", &format!("notify_pipe={pipe}")])
            .stderr(log)
            .spawn()
            .map_err(|error| error.to_string())?;
        match fs::read(&pipe) {
            Ok(answer) if answer == b"s" => Ok((child, words)),
            _ => Err(fs::read_to_string(&words).unwrap_or_default()),
        }
    }

    /// Unmounts, and returns the final output of the server.
    fn ended(&self, mut child: Child, words: PathBuf) -> Result<String, String> {
        self.unmount()?;
        child.wait().map_err(|error| error.to_string())?;
        fs::read_to_string(words).map_err(|error| error.to_string())
    }
}

/// Options of the build of Linux' own SquashFS that decide its speed.
fn kernel_build() -> String {
    let config = Command::new("zcat").arg("/proc/config.gz").output();
    let config = config.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let config = config.unwrap_or_default();
    let wanted = [
        "CONFIG_SQUASHFS_DECOMP",
        "CONFIG_SQUASHFS_COMPILE",
        "CONFIG_SQUASHFS_FRAGMENT",
        "CONFIG_SQUASHFS_FILE",
    ];
    let lines = config
        .lines()
        .filter(|line| wanted.iter().any(|word| line.starts_with(word)));
    let lines: Vec<&str> = lines.collect();
    let options = lines.join(", ");
    format!(
        "Linux' SquashFS with {}",
        if lines.is_empty() {
            "unknown options"
        } else {
            &options
        }
    )
}

/// Elapsed time, and processor time of the whole machine.
struct Clock {
    wall: Instant,
    busy: f64,
}

impl Clock {
    fn start() -> Result<Clock, String> {
        Ok(Clock {
            busy: busy()?,
            wall: Instant::now(),
        })
    }

    fn cost(&self) -> Result<MountCost, String> {
        Ok(MountCost {
            wall: self.wall.elapsed().as_secs_f64(),
            cpu: busy()? - self.busy,
        })
    }
}

/// Seconds in which processors were not idle: user, nice, system, and interrupts, in ticks of 10
/// ms.
fn busy() -> Result<f64, String> {
    let stat =
        fs::read_to_string("/proc/stat").map_err(|error| format!("read /proc/stat: {error}"))?;
    let numbers = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1);
    let numbers: Vec<f64> = numbers.filter_map(|word| word.parse().ok()).collect();
    let busy: f64 = [0, 1, 2, 5, 6]
        .iter()
        .filter_map(|&at: &usize| numbers.get(at))
        .sum();
    Ok(busy / 100.0)
}

/// Lists all files with their attributes; with `reads`, reads them. Returns the number of bytes
/// read.
fn walk(dir: &Path, reads: bool) -> std::io::Result<u64> {
    let mut bytes = 0;
    let mut buffer = [0; 8192];
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        // As lstat(2): the standard library also asks for the time of birth.
        let stat = statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind.is_dir() {
            bytes += walk(&path, reads)?;
        } else if reads && kind.is_file() {
            let mut file = File::open(&path)?;
            loop {
                match file.read(&mut buffer)? {
                    0 => break,
                    read => bytes += read as u64,
                }
            }
        }
    }
    Ok(bytes)
}

fn read_in_sequence(path: &Path) -> std::io::Result<u64> {
    let (mut file, mut buffer, mut bytes) = (File::open(path)?, vec![0; 1 << 20], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(bytes),
            read => bytes += read as u64,
        }
    }
}

/// Reads pages and compares them with the original.
fn read_at_random(path: &Path, original: &Path, seed: u64) -> std::io::Result<()> {
    let (mut file, mut original) = (File::open(path)?, File::open(original)?);
    let (mut page, mut expected) = ([0; 4096], [0; 4096]);
    for n in 0..READS {
        let number = xxh64(&n.to_le_bytes(), seed) % (RANDOM_BYTES / 4096);
        for (file, page) in [(&mut file, &mut page), (&mut original, &mut expected)] {
            file.seek(SeekFrom::Start(number * 4096))?;
            file.read_exact(page)?;
        }
        if page != expected {
            return Err(std::io::Error::other("a page differs"));
        }
    }
    Ok(())
}

/// A digest of names and content.
fn digest(dir: &Path) -> Result<u64, String> {
    let mut sum = 0;
    for path in entries(dir)? {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        if name == b"lost+found" {
            continue;
        }
        sum = xxh64(name, sum);
        if path.is_dir() {
            sum = xxh64(&digest(&path)?.to_le_bytes(), sum);
            continue;
        }
        let failed = |error| format!("read {}: {error}", path.display());
        let (mut file, mut buffer) = (File::open(&path).map_err(failed)?, vec![0; 1 << 20]);
        loop {
            match file.read(&mut buffer).map_err(failed)? {
                0 => break,
                read => sum = xxh64(&buffer[..read], sum),
            }
        }
    }
    Ok(sum)
}

/// The tables: walks, the large file, and many files if they were recorded.
pub(crate) fn show(record: &TableRecord) -> RenderedTable {
    let is_walk = |(part, _): &(&str, &RecordRow)| *part != LARGE && *part != MANY_FILES;
    let walk = |(part, row): (&str, &RecordRow)| {
        let value = |metric| row.value("restow mount", metric);
        let other = value("elapsed to squashfuse_ll").or_else(|| value("elapsed to erofsfuse"));
        let ratios = [
            value("elapsed to Linux"),
            value("processor to Linux"),
            other,
        ];
        let name = [part.to_owned(), row.name.clone()];
        name.into_iter()
            .chain(ratios.map(|ratio| cell(ratio, 2)))
            .collect()
    };
    let walks: Vec<Vec<String>> = record.all_rows().filter(is_walk).map(walk).collect();
    let columns = "image | work | elapsed, to Linux | processor, to Linux | elapsed, to squashfuse_ll or erofsfuse";
    let mut text = markdown(columns, &walks);
    let line = |row: &RecordRow| {
        let cells = ["seconds", "elapsed to squashfuse_ll"].map(|it| cell(row.value("all", it), 2));
        [row.name.clone()].into_iter().chain(cells).collect()
    };
    let lines: Vec<Vec<String>> = record.rows(LARGE).iter().map(line).collect();
    let columns = "one file of 2 GiB in blocks of 128 KiB | elapsed s | to squashfuse_ll";
    text += &format!("\n{}", markdown(columns, &lines));
    let metrics = [
        "mount ms",
        "walk s",
        "peak memory MiB",
        "last name µs",
        "no such name µs",
    ];
    let line = |row: &RecordRow| {
        let values = metrics
            .iter()
            .map(|metric| row.value("restow mount", metric));
        let cells = values
            .zip([1, 2, 0, 0, 0])
            .map(|(value, decimals)| cell(value, decimals));
        [row.name.clone()].into_iter().chain(cells).collect()
    };
    let lines: Vec<Vec<String>> = record.rows(MANY_FILES).iter().map(line).collect();
    if !lines.is_empty() {
        let columns = format!("{MANY_FILES} | {}", metrics.join(" | "));
        text += &format!("\n{}", markdown(&columns, &lines));
    }
    text.into()
}
