//! Whole processes that take turns.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::measure::{self, Rounds};
use crate::record::TableRecord;

/// Threads of every program.
pub(crate) const THREADS: &str = "2";

/// One program that takes its turn.
pub(crate) struct ProcessPeer {
    pub(crate) name: &'static str,
    program: PathBuf,
    args: Vec<String>,
    /// A directory or file that it makes, removed before each turn.
    pub(crate) makes: Option<String>,
    /// CPU time of all rounds.
    cpu: Duration,
    /// The peak memory in bytes that it last reported.
    memory: Option<f64>,
}

impl ProcessPeer {
    pub(crate) fn new(name: &'static str, program: &Path, args: Vec<String>) -> ProcessPeer {
        ProcessPeer {
            name,
            program: program.to_owned(),
            args,
            makes: None,
            cpu: Duration::ZERO,
            memory: None,
        }
    }

    pub(crate) fn making(mut self, path: &str) -> ProcessPeer {
        self.makes = Some(path.to_owned());
        self
    }

    /// Removes a file or directory.
    pub(crate) fn remove(path: &str) -> Result<(), String> {
        let removed = if Path::new(path).is_dir() {
            fs::remove_dir_all(path)
        } else {
            fs::remove_file(path)
        };
        removed.map_err(|error| format!("remove {path}: {error}"))
    }

    pub(crate) fn run(&mut self) -> Result<Duration, String> {
        if let Some(path) = self.makes.as_ref().filter(|path| Path::new(path).exists()) {
            ProcessPeer::remove(path)?;
        }
        let mut command = Command::new(&self.program);
        command.args(&self.args);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let cpu = cpu_of_children()?;
        let start = Instant::now();
        let output = command.output();
        let time = start.elapsed();
        let output = output.map_err(|error| format!("run {}: {error}", self.program.display()))?;
        self.cpu += cpu_of_children()?.saturating_sub(cpu);
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!("{}: {}: {said}", self.name, output.status));
        }
        if let Some((_, memory)) = said.rsplit_once("peak memory ") {
            self.memory = bytes(memory.trim());
        }
        Ok(time)
    }
}

/// The number of bytes that restow prints as `12.4 MB`.
fn bytes(text: &str) -> Option<f64> {
    let (number, unit) = text.split_once(' ')?;
    let units = ["B", "kB", "MB", "GB", "TB"];
    let power = units.iter().position(|name| *name == unit)?;
    Some(number.parse::<f64>().ok()? * 1000f64.powi(power as i32))
}

/// CPU time of all children that have ended (`cutime` and `cstime` of proc(5), in hundredths of a
/// second).
fn cpu_of_children() -> Result<Duration, String> {
    let stat = fs::read_to_string("/proc/self/stat").map_err(|error| error.to_string())?;
    let (_, after_name) = stat.rsplit_once(") ").unwrap_or_default();
    let fields = after_name.split(' ').skip(13).take(2);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(Duration::from_millis(10 * ticks))
}

/// Runs all peers in turn, in alternating order, for about `seconds` and at least three rounds.
/// Adds to the record the seconds and CPU seconds of each, the time of the later ones as a ratio to
/// the first, and the memory of the second, which is ours.
pub(crate) fn measure(
    record: &mut TableRecord,
    [part, row]: [&str; 2],
    peers: &mut [ProcessPeer],
    seconds: f64,
) -> Result<(), String> {
    for peer in peers.iter_mut() {
        peer.run()?;
        peer.cpu = Duration::ZERO;
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
    record.count_rounds(times.len());
    let rounds = Rounds { times, units: 1 };
    for (at, peer) in peers.iter().enumerate() {
        record.add(part, row, peer.name, "seconds", rounds.median(at));
        record.add(part, row, peer.name, "CPU seconds", peer.cpu.as_secs_f64());
        if at > 0 {
            record.add_spread([part, row, peer.name, "time"], rounds.time(at));
        }
    }
    if let Some(memory) = peers[1].memory {
        record.add(part, row, peers[1].name, "memory", memory);
    }
    record.print_row(part, row);
    Ok(())
}
