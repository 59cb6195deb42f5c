//! The device benchmark: a file is written to a device that compresses or decompresses it, 4,096 bytes at a time, and throws the
//! result away. Here the device is a loop in this process.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::device::{Device, compressor, decompressor, parts};
use super::page::{Shown, cell, markdown, mb, over, speeds};
use super::peers::{MAPPED, Peers};
use super::record::Record;
use super::settings::Settings;
use super::work::{Work, output};
use crate::measure;

/// A published row: method, compressed bytes, MB/s, adjusted MB/s and MB of memory to compress, and the last three to decompress.
type Published = (&'static str, f64, [f64; 3], [f64; 3]);

/// Of the commit that added zstd to Linux 4.14. 0 is not published.
const PUBLISHED: [Published; 11] = [
    (
        "none",
        211_988_480.0,
        [2119.88, 0.0, 0.0],
        [8479.54, 0.0, 0.0],
    ),
    (
        "zstd 1",
        73_645_762.0,
        [203.05, 224.56, 1.23],
        [592.15, 636.60, 0.84],
    ),
    (
        "zstd 3",
        66_988_878.0,
        [120.38, 127.63, 2.47],
        [535.32, 571.40, 1.46],
    ),
    (
        "zstd 5",
        65_001_259.0,
        [82.71, 86.07, 2.86],
        [535.32, 571.40, 1.46],
    ),
    (
        "zstd 10",
        60_165_346.0,
        [16.01, 16.13, 13.22],
        [566.81, 607.42, 2.51],
    ),
    (
        "zstd 15",
        58_009_756.0,
        [4.45, 4.46, 21.61],
        [559.34, 598.84, 4.61],
    ),
    (
        "zstd 19",
        54_014_593.0,
        [2.06, 2.06, 60.15],
        [514.54, 547.77, 8.80],
    ),
    (
        "zlib 1",
        77_260_026.0,
        [73.23, 75.85, 0.27],
        [225.52, 231.68, 0.04],
    ),
    (
        "zlib 3",
        72_972_206.0,
        [51.50, 52.79, 0.27],
        [240.08, 247.07, 0.04],
    ),
    (
        "zlib 6",
        68_190_360.0,
        [22.01, 22.24, 0.27],
        [251.17, 258.84, 0.04],
    ),
    (
        "zlib 9",
        67_613_382.0,
        [9.40, 9.44, 0.27],
        [253.27, 287.64, 0.04],
    ),
];

/// The row whose adjusted value does not follow from its own time: 211,988,480 bytes in 0.837 - 0.025 seconds are 261 MB/s.
const WRONG: &str = "zlib 9";

const METHODS: [&str; 13] = [
    "none", "zstd 1", "zstd 3", "zstd 5", "zstd 10", "zstd 15", "zstd 19", "zlib 1", "zlib 3",
    "zlib 6", "zlib 9", "lz4", "xz",
];

/// Bytes of the data, and rounds.
const BYTES: usize = 32 << 20;
const ROUNDS: usize = 5;
/// Bytes that are compressed to see the memory, which is taken at the start.
const MEMORY_BYTES: usize = 1 << 20;

/// Who does the work of a method. lz4 and xz are the same libraries in both columns.
fn peers_of(method: &str) -> &'static [&'static str] {
    match method {
        "none" | "lz4" | "xz" => &["C"],
        _ => &["C", "ours"],
    }
}

/// One who takes turns.
enum Peer<'a> {
    Inside(Box<dyn Device>),
    /// A process: the program and its arguments.
    Outside(&'a Peers, Vec<String>),
}

impl Peer<'_> {
    /// Time and bytes of a whole file.
    fn turn(&mut self, input: &[u8]) -> Result<(Duration, usize), String> {
        match self {
            Peer::Inside(device) => {
                let mut bytes = 0;
                let start = Instant::now();
                device.run(input, &mut |part| bytes += black_box(part).len())?;
                Ok((start.elapsed(), bytes))
            }
            Peer::Outside(peers, args) => {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                match peers.run(&args)?[..] {
                    [nanoseconds, bytes, _] => {
                        Ok((Duration::from_nanos(nanoseconds), bytes as usize))
                    }
                    _ => Err("the peer in C prints something else".into()),
                }
            }
        }
    }

    /// All that comes out.
    fn output(&mut self, work: &Work, input: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Peer::Inside(device) => {
                let mut bytes = Vec::new();
                device.run(input, &mut |part| bytes.extend_from_slice(part))?;
                Ok(bytes)
            }
            Peer::Outside(peers, args) => {
                let path = work.path("output");
                let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
                args.push(&path);
                peers.run(&args)?;
                fs::read(&path).map_err(|error| format!("read {path}: {error}"))
            }
        }
    }
}

pub(super) fn measure(settings: &Settings, record: &mut Record) -> Result<(), String> {
    measure::pin(settings.cpu)?;
    let (files, said) = settings.silesia(settings.bytes_or(BYTES))?;
    let content: Vec<u8> = files.into_iter().flat_map(|(_, bytes)| bytes).collect();
    let work = Work::new(settings)?;
    let peers = Peers::build(&work, record);
    let zlib = peers.as_ref().map_or("no zlib", |peers| &peers.versions);
    record.say(
        "peers",
        format!("libzstd {}, {zlib}; ours: zstd of this repository, zlib-rs by flate2, lz4 1.10 and liblzma", zstd_safe::version_string()),
    );
    let rounds = settings.rounds_or(ROUNDS);
    record.say(
        "data",
        format!("In place of silesia.tar: {said}, one after another; medians of {rounds} rounds"),
    );
    let plain = work.write("plain", &content)?;
    let head = work.write("head", &content[..content.len().min(MEMORY_BYTES)])?;
    let mut bench = Bench {
        work: &work,
        peers: peers.as_ref(),
        rounds,
        record,
    };
    for method in METHODS {
        // What is decompressed is C's, so that both decompress the same.
        let packed = bench.one(
            "compress",
            method,
            &content,
            [&plain, &head],
            |method, who, _| compressor(method, who),
        )?;
        let path = work.write("packed", &packed)?;
        let got = bench.one("decompress", method, &packed, [&path, &path], decompressor)?;
        if got != content {
            return Err(format!("{method}: C decompresses something else"));
        }
        println!("  {method}");
    }
    Ok(())
}

/// What all methods have in common.
struct Bench<'a> {
    work: &'a Work,
    peers: Option<&'a Peers>,
    rounds: usize,
    record: &'a mut Record,
}

impl Bench<'_> {
    /// Measures one direction of a method; returns what the first peer makes. `paths` are the input and what shows the memory.
    fn one(
        &mut self,
        direction: &str,
        method: &str,
        input: &[u8],
        paths: [&str; 2],
        make: impl Fn(&str, &str, &[u8]) -> Result<Box<dyn Device>, String>,
    ) -> Result<Vec<u8>, String> {
        let (codec, level) = parts(method)?;
        let mut turns = Vec::new();
        for who in peers_of(method) {
            let peer = match (codec, *who, self.peers) {
                ("zlib", "C", Some(peers)) => {
                    let args = [
                        format!("zlib-{direction}"),
                        level.to_string(),
                        paths[0].to_owned(),
                    ];
                    Peer::Outside(peers, args.to_vec())
                }
                // It stands in for what is missing and is not recorded.
                ("zlib", "C", None) => Peer::Inside(make(method, "ours", input)?),
                _ => Peer::Inside(make(method, who, input)?),
            };
            turns.push((*who, peer));
        }
        let mut first = Vec::new();
        let mut sizes = Vec::new();
        for (place, (who, peer)) in turns.iter_mut().enumerate() {
            let made = peer.output(self.work, input)?;
            sizes.push(made.len());
            if place == 0 {
                first = made;
            } else if direction == "compress" {
                // Each is decompressed by C.
                let mut c = decompressor(method, "C", &made)?;
                let mut got = Vec::new();
                c.run(&made, &mut |part| got.extend_from_slice(part))?;
                if got != input {
                    return Err(format!(
                        "{method}: what {who} compressed decompresses to something else"
                    ));
                }
            } else if made != first {
                return Err(format!("{method}: {who} decompresses something else"));
            }
        }
        for round in 0..self.rounds {
            for at in measure::order(round, turns.len()) {
                let (who, peer) = &mut turns[at];
                let (time, bytes) = peer.turn(input)?;
                if bytes != sizes[at] {
                    return Err(format!(
                        "{method}: {who} made {bytes} bytes, then {}",
                        sizes[at]
                    ));
                }
                if self.is_real(codec, who) {
                    self.record
                        .add(direction, method, who, "seconds", time.as_secs_f64());
                }
            }
        }
        for (at, (who, _)) in turns.iter().enumerate() {
            if !self.is_real(codec, who) {
                continue;
            }
            let sizes = [("bytes in", input.len()), ("bytes out", sizes[at])];
            for (metric, size) in sizes {
                self.record.add(direction, method, who, metric, size as f64);
            }
            let memory = self.memory(direction, method, who, paths[1])?;
            self.record.add(direction, method, who, "memory", memory);
        }
        Ok(first)
    }

    fn is_real(&self, codec: &str, who: &str) -> bool {
        codec != "zlib" || who != "C" || self.peers.is_some()
    }

    /// Bytes of address space that the method takes beyond `none`, in a process of its own.
    fn memory(&self, direction: &str, method: &str, who: &str, path: &str) -> Result<f64, String> {
        let (codec, level) = parts(method)?;
        let kib = |method: &str| -> Result<u64, String> {
            if let (("zlib", "C"), Some(peers)) = ((codec, who), self.peers) {
                let level = level.to_string();
                let work = format!("zlib-{direction}");
                let work = if method == "none" { "none" } else { &work };
                let numbers = peers.run(&[work, &level, path])?;
                return numbers.last().copied().ok_or("no number".into());
            }
            let program = std::env::current_exe().map_err(|error| error.to_string())?;
            let mut command = Command::new(program);
            command.args(["device-memory", direction, method, who, path]);
            let said = output(command.envs(MAPPED))?;
            said.trim()
                .parse()
                .map_err(|_| format!("no number: {said}"))
        };
        Ok(kib(method)?.saturating_sub(kib("none")?) as f64 * 1024.0)
    }
}

/// Lets a file through a device and prints the most address space that this process had, in KiB.
pub(super) fn print_memory(
    direction: &str,
    method: &str,
    who: &str,
    path: &Path,
) -> Result<(), String> {
    let input = fs::read(path).map_err(|error| format!("read {}: {error}", path.display()))?;
    let mut device = if direction == "compress" {
        compressor(method, who)?
    } else {
        decompressor(method, who, &input)?
    };
    device.run(&input, &mut |part| {
        black_box(part);
    })?;
    let status = fs::read_to_string("/proc/self/status").map_err(|error| error.to_string())?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
    let peak = peak.and_then(|text| text.split_whitespace().next());
    println!("{}", peak.ok_or("the system does not tell the memory")?);
    Ok(())
}

/// What was measured of a method in one direction.
#[derive(Clone, Copy)]
struct Measured {
    seconds: Option<f64>,
    /// Bytes of content in a second, with and without the time of `none`.
    speed: Option<f64>,
    adjusted: Option<f64>,
    compressed: Option<f64>,
    ratio: Option<f64>,
    memory: Option<f64>,
}

fn measured(record: &Record, direction: &str, method: &str, who: &str) -> Measured {
    // The same library serves both.
    let who = if peers_of(method).contains(&who) {
        who
    } else {
        "C"
    };
    let of = |metric| record.median(direction, method, who, metric);
    let (content, compressed) = match direction {
        "compress" => (of("bytes in"), of("bytes out")),
        _ => (of("bytes out"), of("bytes in")),
    };
    let none = record.median(direction, "none", "C", "seconds");
    let seconds = of("seconds");
    let adjusted = seconds.zip(none).map(|(seconds, none)| seconds - none);
    Measured {
        seconds,
        speed: mb(over(content, seconds)),
        adjusted: mb(over(content, adjusted.filter(|it| *it > 0.0))),
        compressed,
        ratio: over(content, compressed),
        memory: mb(of("memory")),
    }
}

pub(super) fn show(record: &Record) -> Shown {
    let mut text = String::new();
    let mut plots = Vec::new();
    for (direction, name) in [("compress", "Compressing"), ("decompress", "Decompressing")] {
        let of = |method: &str, who: &str| measured(record, direction, method, who);
        text += &format!("{name}:\n\n");
        if direction == "compress" {
            text += &sizes(of);
        }
        text += &speed_table(direction, of);
        let mut points = Vec::new();
        for (series, who) in ["C", "ours"].into_iter().enumerate() {
            for method in METHODS.iter().filter(|method| **method != "none") {
                if peers_of(method).contains(&who) {
                    let it = of(method, who);
                    points.push((series, (*method).to_owned(), it.adjusted, it.ratio));
                }
            }
        }
        plots.push((name, points));
    }
    text += &format!(
        "The published {WRONG} row says 287.64 adjusted MB/s to decompress, which does not follow from its own time (about 261).\n"
    );
    let axes = ["adjusted MB/s", "ratio"];
    let plot = speeds(
        "Devices: ratio against speed",
        &["C library", "ours"],
        plots,
        axes,
    );
    Shown { text, plot }
}

fn published(method: &str) -> Option<&'static Published> {
    PUBLISHED.iter().find(|(name, ..)| *name == method)
}

/// Sizes, ratios and times.
fn sizes(of: impl Fn(&str, &str) -> Measured) -> String {
    let rows: Vec<Vec<String>> = METHODS
        .iter()
        .map(|method| {
            let (c, ours) = (of(method, "C"), of(method, "ours"));
            let then = published(method).map(|(_, size, ..)| PUBLISHED[0].1 / size);
            vec![
                (*method).to_owned(),
                cell(c.compressed, 0),
                cell(ours.compressed, 0),
                cell(over(ours.compressed, c.compressed), 4),
                cell(then, 3),
                cell(c.ratio, 3),
                cell(ours.ratio, 3),
            ]
        })
        .collect();
    let columns = [
        "method",
        "bytes, C",
        "bytes, ours",
        "ours to C",
        "ratio, published",
        "ratio, C",
        "ratio, ours",
    ];
    markdown(&columns, &rows) + "\n"
}

/// Speeds and memory. Published speeds stand as ratios to those of `none`, adjusted ones as ratios to zstd 1.
fn speed_table(direction: &str, of: impl Fn(&str, &str) -> Measured) -> String {
    let values = |method: &str| {
        let (_, _, compress, decompress) = published(method)?;
        let values = if direction == "compress" {
            compress
        } else {
            decompress
        };
        Some(values.map(|value| (value > 0.0).then_some(value)))
    };
    let then = |method: &str, which: usize| values(method).and_then(|values| values[which]);
    let rows: Vec<Vec<String>> = METHODS
        .iter()
        .map(|method| {
            let (c, ours) = (of(method, "C"), of(method, "ours"));
            let mut adjusted = cell(over(then(method, 1), then("zstd 1", 1)), 3);
            if direction == "decompress" && *method == WRONG {
                adjusted += " (wrong)";
            }
            vec![
                (*method).to_owned(),
                cell(c.seconds, 3),
                cell(ours.seconds, 3),
                cell(c.speed, 2),
                cell(ours.speed, 2),
                cell(over(then(method, 0), then("none", 0)), 5),
                cell(over(c.speed, of("none", "C").speed), 5),
                cell(over(ours.speed, of("none", "C").speed), 5),
                cell(c.adjusted, 2),
                cell(ours.adjusted, 2),
                adjusted,
                cell(over(c.adjusted, of("zstd 1", "C").adjusted), 3),
                cell(over(ours.adjusted, of("zstd 1", "ours").adjusted), 3),
                cell(then(method, 2), 2),
                cell(c.memory, 2),
                cell(ours.memory, 2),
            ]
        })
        .collect();
    let columns = [
        "method",
        "s, C",
        "s, ours",
        "MB/s, C",
        "MB/s, ours",
        "to `none`, published",
        "C",
        "ours",
        "adjusted MB/s, C",
        "adjusted MB/s, ours",
        "to zstd 1, published",
        "C",
        "ours",
        "MB of memory, published",
        "C",
        "ours",
    ];
    markdown(&columns, &rows) + "\n"
}
