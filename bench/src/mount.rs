//! Mounts, by whole processes: `restow mount` beside Linux' own mounts, squashfuse_ll and a directory on ext4.
//!
//! Every time begins with the call of the mount command. Processor time is that of the whole machine, since Linux' own mounts
//! work in threads of the kernel: nothing else may run meanwhile. Images are in the page cache. What is read is verified in a
//! round of its own.

mod trees;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, FileType, statat};
use xxhash::xxh64;

use crate::{measure, processes};

use trees::{DIRECTORIES, FILE_BYTES, FILES, LARGE_BYTES, large_file, small_tree, tar_header};

/// Rounds; the shortest time counts. Programs take turns, and the order turns around after each round.
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

/// Measures everything and prints tables.
///
/// # Errors
/// A program is missing or fails, or a mount shows something else than the tree.
pub(crate) fn mount() -> Result<(), String> {
    let place = Place::new()?;
    println!("{}\n", kernel_build());
    place.print_walks("SquashFS zstd", "small.squashfs", &SQUASHFS)?;
    place.print_walks("btrfs zstd", "small.btrfs", &BTRFS)?;
    place.print_sequential()?;
    place.print_random()?;
    place.print_many()
}

/// Who mounts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    Restow,
    /// Linux' mount of a loop device.
    Linux(&'static str),
    Squashfuse,
    /// Linux' mount of the same tree on ext4.
    Ext4,
}

/// The first is the one that the others are compared with.
const SQUASHFS: [Peer; 4] = [
    Peer::Linux("squashfs"),
    Peer::Restow,
    Peer::Squashfuse,
    Peer::Ext4,
];
const BTRFS: [Peer; 2] = [Peer::Linux("btrfs"), Peer::Restow];

impl Peer {
    fn name(self) -> &'static str {
        match self {
            Peer::Restow => "restow mount",
            Peer::Linux(_) => "Linux, loop",
            Peer::Squashfuse => "squashfuse_ll",
            Peer::Ext4 => "ext4 directory",
        }
    }

    fn mount(self, place: &Place, image: &str) -> Result<(), String> {
        let (image, point) = (place.path(image), place.path("point"));
        let ext4 = place.path("small.ext4");
        match self {
            Peer::Restow => run(&place.restow, &["mount", &image, &point]),
            Peer::Linux(kind) => run("mount", &["-t", kind, "-o", "loop,ro", &image, &point]),
            Peer::Squashfuse => run("squashfuse_ll", &[&image, &point]),
            Peer::Ext4 => run("mount", &["-t", "ext4", "-o", "loop,ro", &ext4, &point]),
        }
    }
}

/// What is done with a mount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    Stat,
    Read,
    /// Reading again what was read.
    Warm,
    Sequential,
}

/// Seconds of elapsed and of processor time.
#[derive(Clone, Copy)]
struct Cost {
    wall: f64,
    cpu: f64,
}

struct Place {
    dir: PathBuf,
    restow: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.path("point"))
            .stderr(Stdio::null())
            .status();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Place {
    /// Makes the trees and the images.
    fn new() -> Result<Place, String> {
        let restow = processes::restow()?;
        let dir = std::env::temp_dir().join(format!("restow-bench-{}", std::process::id()));
        let place = Place { dir, restow };
        let make = || -> std::io::Result<()> {
            fs::create_dir(&place.dir)?;
            fs::create_dir(place.path("point"))?;
            fs::create_dir(place.path("large.dir"))?;
            small_tree(&place.dir.join("small"))?;
            large_file(&place.dir.join("large.dir").join(LARGE_NAME))
        };
        make().map_err(|error| format!("make the trees: {error}"))?;
        let zstd = ["-comp", "zstd", "-b", "128K", "-quiet", "-no-progress"];
        for (tree, image) in [("small", "small.squashfs"), ("large.dir", "large.squashfs")] {
            let paths = [tree, image].map(|name| place.path(name));
            let args = [&[&*paths[0], &paths[1]][..], &zstd].concat();
            run("mksquashfs", &args)?;
        }
        let (small, btrfs) = (place.path("small"), place.path("small.btrfs"));
        run(
            &place.restow,
            &["copy", "-q", "--compress", "zstd:3", &small, &btrfs],
        )?;
        let ext4 = place.path("small.ext4");
        run("truncate", &["-s", "256M", &ext4])?;
        run("mkfs.ext4", &["-q", "-d", &small, &ext4])?;
        Ok(place)
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// Mounts, works, unmounts; only the first two are measured, and of warm work only the second.
    fn turn(&self, peer: Peer, image: &str, work: Work) -> Result<Cost, String> {
        let point = self.dir.join("point");
        let mut start = Clock::start()?;
        peer.mount(self, image)?;
        let done = match work {
            Work::Stat => walk(&point, false),
            Work::Read => walk(&point, true),
            Work::Warm => {
                walk(&point, true).map_err(|error| error.to_string())?;
                start = Clock::start()?;
                walk(&point, true)
            }
            Work::Sequential => read_in_sequence(&point.join(LARGE_NAME)),
        };
        let done = done.map_err(|error| format!("{}: {error}", peer.name()))?;
        let cost = start.cost()?;
        self.unmount()?;
        let expected = match work {
            Work::Stat => 0,
            Work::Read | Work::Warm => (DIRECTORIES * FILES * FILE_BYTES) as u64,
            Work::Sequential => LARGE_BYTES,
        };
        if done != expected {
            return Err(format!(
                "{} read {done} bytes instead of {expected}",
                peer.name()
            ));
        }
        Ok(cost)
    }

    fn unmount(&self) -> Result<(), String> {
        run("umount", &[&self.path("point")])
    }

    /// The least cost of each peer.
    fn measure(&self, peers: &[Peer], image: &str, work: Work) -> Result<Vec<Cost>, String> {
        let mut least = vec![
            Cost {
                wall: f64::MAX,
                cpu: f64::MAX
            };
            peers.len()
        ];
        // The first round warms up.
        for round in 0..=ROUNDS {
            for at in measure::order(round, peers.len()) {
                let cost = self.turn(peers[at], image, work)?;
                if round > 0 {
                    least[at].wall = least[at].wall.min(cost.wall);
                    least[at].cpu = least[at].cpu.min(cost.cpu);
                }
            }
        }
        Ok(least)
    }

    /// Whether each peer shows the tree.
    fn verify(&self, peers: &[Peer], image: &str, tree: &str) -> Result<(), String> {
        let expected = digest(&self.dir.join(tree)).map_err(|error| error.to_string())?;
        for peer in peers {
            peer.mount(self, image)?;
            let found = digest(&self.dir.join("point")).map_err(|error| error.to_string())?;
            self.unmount()?;
            if found != expected {
                return Err(format!("{} shows another tree", peer.name()));
            }
        }
        Ok(())
    }

    fn print_walks(&self, what: &str, image: &str, peers: &[Peer]) -> Result<(), String> {
        self.verify(peers, image, "small")?;
        let files = DIRECTORIES * FILES;
        println!(
            "{what}, {files} files of {FILE_BYTES} bytes, least of {ROUNDS}; ratios to {}\n",
            peers[0].name()
        );
        println!(
            "| work | program | elapsed ms | ratio | processor ms | ratio |\n|---|---|---|---|---|---|"
        );
        for (name, work) in [
            ("stat, cold", Work::Stat),
            ("read, cold", Work::Read),
            ("read, warm", Work::Warm),
        ] {
            let costs = self.measure(peers, image, work)?;
            print_costs(name, peers, &costs);
        }
        println!();
        Ok(())
    }

    fn print_sequential(&self) -> Result<(), String> {
        let peers = [Peer::Squashfuse, Peer::Linux("squashfs"), Peer::Restow];
        let image = "large.squashfs";
        self.verify(&[Peer::Restow], image, "large.dir")?;
        println!(
            "one file of {LARGE_BYTES} bytes in sequence; ratios to {}\n",
            peers[0].name()
        );
        println!(
            "| work | program | elapsed ms | ratio | processor ms | ratio |\n|---|---|---|---|---|---|"
        );
        let mut costs = self.measure(&peers, image, Work::Sequential)?;
        // What decoding alone costs: two threads, into nothing.
        let mut decode = Cost {
            wall: f64::MAX,
            cpu: f64::MAX,
        };
        for _ in 0..ROUNDS {
            let start = Clock::start()?;
            run(&self.restow, &["check", "-q", &self.path(image)])?;
            let cost = start.cost()?;
            decode = Cost {
                wall: decode.wall.min(cost.wall),
                cpu: decode.cpu.min(cost.cpu),
            };
        }
        print_costs("sequential", &peers, &costs);
        let restow = costs.remove(2);
        println!(
            "| decode in all threads | restow check | {:.1} | {:.2} of it | {:.0} | |\n",
            decode.wall * 1e3,
            decode.wall / restow.wall,
            decode.cpu * 1e3
        );
        Ok(())
    }

    /// Reads pages at random places in several threads, and prints what the server counted.
    fn print_random(&self) -> Result<(), String> {
        let (child, words) = self.foreground("large.squashfs")?;
        let path = self.dir.join("point").join(LARGE_NAME);
        let original = self.dir.join("large.dir").join(LARGE_NAME);
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

    /// Images with many files: how soon the mount answers, its memory after a walk, and how soon a name is found.
    fn print_many(&self) -> Result<(), String> {
        println!(
            "| {MANY} files | mount ms | walk s | peak memory MiB | last name µs | no such name µs |\n|---|---|---|---|---|---|"
        );
        for (what, per_directory) in [
            ("in 1000 directories", MANY / 1000),
            ("in one directory", MANY),
        ] {
            for kind in ["squashfs", "btrfs"] {
                let image = format!("many.{kind}");
                self.many_files(per_directory, &image)?;
                let mut wall = f64::MAX;
                for _ in 0..ROUNDS {
                    let start = Instant::now();
                    Peer::Restow.mount(self, &image)?;
                    wall = wall.min(start.elapsed().as_secs_f64());
                    self.unmount()?;
                }
                let (child, words) = self.foreground(&image)?;
                let point = self.dir.join("point");
                let start = Instant::now();
                walk(&point, false).map_err(|error| error.to_string())?;
                let walked = start.elapsed().as_secs_f64();
                let status =
                    fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
                let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
                let peak: f64 = peak
                    .and_then(|words| words.split_whitespace().next()?.parse().ok())
                    .unwrap_or(0.0);
                let dir = point.join(format!("d{}", (MANY - 1) / per_directory));
                let find = |name: &str| {
                    let start = Instant::now();
                    let found = fs::symlink_metadata(dir.join(name)).is_ok();
                    (found, start.elapsed().as_secs_f64() * 1e6)
                };
                let (last, none) = (find(&format!("f{:07}", MANY - 1)), find("f9"));
                if !last.0 || none.0 {
                    return Err(format!("{image}: the last name is not found"));
                }
                self.ended(child, words)?;
                println!(
                    "| {what}, {kind} | {:.1} | {walked:.2} | {:.0} | {:.0} | {:.0} |",
                    wall * 1e3,
                    peak / 1024.0,
                    last.1,
                    none.1
                );
                let _ = fs::remove_file(self.path(&image));
            }
        }
        Ok(())
    }

    /// Makes an image of empty files from an archive that is never on disk.
    fn many_files(&self, per_directory: usize, image: &str) -> Result<(), String> {
        let mut copy = Command::new(&self.restow)
            .args(["copy", "-q", "-", &self.path(image)])
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
        let (pipe, words) = (self.path("pipe"), self.dir.join("words"));
        let _ = fs::remove_file(&pipe);
        run("mkfifo", &[&pipe])?;
        let log = File::create(&words).map_err(|error| error.to_string())?;
        let child = Command::new(&self.restow)
            .args(["mount", "-f", &self.path(image), &self.path("point")])
            .args(["-o", &format!("notify_pipe={pipe}")])
            .stderr(log)
            .spawn()
            .map_err(|error| error.to_string())?;
        match fs::read(&pipe) {
            Ok(answer) if answer == b"s" => Ok((child, words)),
            _ => Err(fs::read_to_string(&words).unwrap_or_default()),
        }
    }

    /// Unmounts, and returns what was printed at the end.
    fn ended(&self, mut child: Child, words: PathBuf) -> Result<String, String> {
        self.unmount()?;
        child.wait().map_err(|error| error.to_string())?;
        fs::read_to_string(words).map_err(|error| error.to_string())
    }
}

fn print_costs(work: &str, peers: &[Peer], costs: &[Cost]) {
    let first = costs[0];
    for (peer, cost) in peers.iter().zip(costs) {
        println!(
            "| {work} | {} | {:.1} | {:.2} | {:.0} | {:.2} |",
            peer.name(),
            cost.wall * 1e3,
            cost.wall / first.wall,
            cost.cpu * 1e3,
            cost.cpu / first.cpu.max(0.001)
        );
    }
}

/// How Linux' own SquashFS was built, as far as that decides its speed.
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
    format!(
        "Linux' SquashFS: {}",
        if lines.is_empty() {
            "unknown".to_owned()
        } else {
            lines.join(", ")
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

    fn cost(&self) -> Result<Cost, String> {
        Ok(Cost {
            wall: self.wall.elapsed().as_secs_f64(),
            cpu: busy()? - self.busy,
        })
    }
}

/// Seconds in which processors were not idle: user, nice, system, and interrupts, in ticks of 10 ms.
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

/// Lists all files with their attributes; with `reads`, reads them. Returns the number of bytes read.
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
fn digest(dir: &Path) -> std::io::Result<u64> {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    entries.retain(|path| path.file_name().is_some_and(|name| name != "lost+found"));
    entries.sort();
    let mut sum = 0;
    for path in entries {
        let name = path.file_name().unwrap_or_default().as_encoded_bytes();
        sum = xxh64(name, sum);
        if path.is_dir() {
            sum = xxh64(&digest(&path)?.to_le_bytes(), sum);
            continue;
        }
        let (mut file, mut buffer) = (File::open(&path)?, vec![0; 1 << 20]);
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                read => sum = xxh64(&buffer[..read], sum),
            }
        }
    }
    Ok(sum)
}

fn run(program: impl AsRef<std::ffi::OsStr>, args: &[&str]) -> Result<(), String> {
    let program = program.as_ref();
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output();
    let output = output.map_err(|error| format!("run {}: {error}", program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} {args:?}: {words}", program.display()))
}
