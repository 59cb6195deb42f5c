//! Whole processes that take turns.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::measure::{self, Rounds};
use crate::options::Options;
use crate::table::Row;

/// Threads of every program.
pub(crate) const THREADS: &str = "2";

pub(crate) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// One program that takes its turn.
pub(crate) struct Peer {
    name: &'static str,
    program: PathBuf,
    args: Vec<String>,
    /// A directory or file that it makes, taken away before each turn.
    pub(crate) makes: Option<PathBuf>,
    /// CPU time of each round.
    cpu: Vec<Duration>,
    /// What it said of its memory the last time.
    memory: String,
}

impl Peer {
    pub(crate) fn new(name: &'static str, program: &Path, args: Vec<String>) -> Peer {
        Peer {
            name,
            program: program.to_owned(),
            args,
            makes: None,
            cpu: Vec::new(),
            memory: String::new(),
        }
    }

    /// Removes what a program made.
    pub(crate) fn remove(path: &Path) -> Result<(), String> {
        let removed = if path.is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
        removed.map_err(|error| format!("remove {}: {error}", path.display()))
    }

    pub(crate) fn run(&mut self) -> Result<Duration, String> {
        if let Some(path) = &self.makes
            && path.exists()
        {
            Peer::remove(path)?;
        }
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let cpu = cpu_of_children()?;
        let start = Instant::now();
        let output = command
            .output()
            .map_err(|error| format!("run {}: {error}", self.program.display()))?;
        let time = start.elapsed();
        self.cpu.push(cpu_of_children()?.saturating_sub(cpu));
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!("{}: {}: {said}", self.name, output.status));
        }
        if let Some((_, memory)) = said.rsplit_once("peak memory ") {
            self.memory = memory.trim().to_owned();
        }
        Ok(time)
    }
}

/// CPU time of all children that have ended (`cutime` and `cstime` of proc(5), in hundredths of a second).
fn cpu_of_children() -> Result<Duration, String> {
    let stat = fs::read_to_string("/proc/self/stat").map_err(|error| error.to_string())?;
    let behind_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    let ticks: u64 = behind_name
        .split(' ')
        .skip(13)
        .take(2)
        .filter_map(|field| field.parse::<u64>().ok())
        .sum();
    Ok(Duration::from_millis(10 * ticks))
}

/// Turn by turn, the order turning around after each round, for about `seconds` and at least three rounds.
pub(crate) fn rounds(peers: &mut [Peer], seconds: f64) -> Result<Rounds, String> {
    for peer in peers.iter_mut() {
        peer.run()?;
        peer.cpu.clear();
    }
    let start = Instant::now();
    let mut times = Vec::new();
    while times.len() < 3 || start.elapsed().as_secs_f64() < seconds {
        let mut round = vec![Duration::ZERO; peers.len()];
        for peer in measure::order(times.len(), peers.len()) {
            round[peer] = peers[peer].run()?;
        }
        times.push(round);
    }
    Ok(Rounds { times, units: 1 })
}

/// A program in `PATH`.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Our program, which is built beside this one.
pub(crate) fn restow() -> Result<PathBuf, String> {
    let bench = std::env::current_exe().map_err(|error| error.to_string())?;
    let restow = bench.with_file_name("restow");
    if restow.is_file() {
        Ok(restow)
    } else {
        let build = "build it first: cargo build --release -p restow-cli";
        Err(format!("{}: {build}", restow.display()))
    }
}

/// Where results go, and our program.
pub(crate) struct Place {
    dir: PathBuf,
    pub(crate) restow: PathBuf,
}

impl Place {
    pub(crate) fn new() -> Result<Place, String> {
        let restow = restow()?;
        let dir = std::env::temp_dir().join(format!("restow-bench-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|error| format!("create {}: {error}", dir.display()))?;
        Ok(Place { dir, restow })
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// That an image or a directory holds the tree, times apart, which SquashFS has in seconds only.
    pub(crate) fn verify(&self, tree: &str, image: &str) -> Result<(), String> {
        let args = ["diff", "-q", "--ignore", "mtime", tree, image];
        let status = Command::new(&self.restow)
            .args(args)
            .status()
            .map_err(|error| error.to_string())?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("{image} is not {tree}"))
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// The directories that the options name, and their names.
pub(crate) fn trees(options: &Options) -> Result<Vec<(String, String)>, String> {
    if options.corpus.is_empty() {
        return Err("--corpus names the directories to be packed".into());
    }
    let mut trees = Vec::new();
    for path in options.paths() {
        if !path.is_dir() {
            return Err(format!("{} is not a directory", path.display()));
        }
        let name = path.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        trees.push((path.display().to_string(), name));
    }
    Ok(trees)
}

/// The row of rounds that were run; the second peer is ours.
pub(crate) fn row(
    name: String,
    level: &str,
    rounds: Rounds,
    peers: &[Peer],
    sizes: Vec<usize>,
) -> Row {
    Row {
        corpus: name,
        level: level.to_owned(),
        bytes: 0,
        sizes,
        cpu: peers.iter().map(|peer| peer.cpu.iter().sum()).collect(),
        memory: peers[1].memory.clone(),
        rounds,
    }
}
