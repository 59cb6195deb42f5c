//! The device benchmark: a file is written to a device that compresses or decompresses it, 4,096
//! bytes at a time, and throws the result away. Here the device is a loop in this process.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::device::{DeviceCodec, codec_and_level, compressor, decompressor};
use super::peers::{CPeers, MAPPED};
use crate::cells::{cell, markdown, mb, over};
use crate::measure;
use crate::options::{Options, read};
use crate::plot::speeds;
use crate::record::TableRecord;
use crate::scratch::{ScratchDir, output};
use crate::table::RenderedTable;

/// The row whose published adjusted speed is wrong.
const WRONG: &str = "zlib 9";

/// What is wrong in the publication, below the tables.
const ERRORS: &str = "\
Errors of the publication:

* The row `none` says 11988480 bytes, without the first digit: the ratios follow from 211988480.
* The formula of MB/s divides 1536217088 bytes, the file of the hashes: the speeds follow from 211988480 bytes and the row's time.
* The row zlib 9 says 287.64 adjusted MB/s to decompress: its own times give 261.07.
";

const METHODS: [&str; 13] = [
    "none", "zstd 1", "zstd 3", "zstd 5", "zstd 10", "zstd 15", "zstd 19", "zlib 1", "zlib 3",
    "zlib 6", "zlib 9", "lz4", "xz",
];

/// Bytes of the data, and rounds.
const BYTES: usize = 32 << 20;
const ROUNDS: usize = 5;
/// Bytes that are compressed to see the memory, which is taken at the start.
const MEMORY_BYTES: usize = 1 << 20;

/// The peers of a method. lz4 and xz are the same libraries in both columns.
fn peers_of(method: &str) -> &'static [&'static str] {
    match method {
        "none" | "lz4" | "xz" => &["C"],
        _ => &["C", "ours"],
    }
}

/// A peer that takes turns.
enum DevicePeer<'a> {
    Inside(Box<dyn DeviceCodec>),
    /// A process: the program and its arguments.
    Outside(&'a CPeers, [String; 3]),
}

impl DevicePeer<'_> {
    /// Passes a whole file; returns the time and the number of bytes.
    fn turn(&mut self, input: &[u8]) -> Result<(Duration, usize), String> {
        match self {
            DevicePeer::Inside(device) => {
                let mut bytes = 0;
                let start = Instant::now();
                device.run(input, &mut |part| bytes += black_box(part).len())?;
                Ok((start.elapsed(), bytes))
            }
            DevicePeer::Outside(peers, args) => {
                let args = args.each_ref().map(String::as_str);
                let [nanoseconds, bytes, _] = peers.run(&args)?[..] else {
                    return Err("the peer in C prints something else".into());
                };
                Ok((Duration::from_nanos(nanoseconds), bytes as usize))
            }
        }
    }

    /// Passes a whole file; returns the result.
    fn output(&mut self, scratch: &ScratchDir, input: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            DevicePeer::Inside(device) => device.output(input),
            DevicePeer::Outside(peers, [work, level, from]) => {
                let path = scratch.path("output");
                peers.run(&[work, level, from, &path])?;
                read(path.as_ref())
            }
        }
    }
}

/// Measures all methods in both directions.
pub(crate) fn measure(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    measure::pin(options.cpu)?;
    let (files, said) = options.silesia(options.bytes_or(BYTES))?;
    let content: Vec<u8> = files.into_iter().flat_map(|(_, bytes)| bytes).collect();
    let scratch = ScratchDir::new(options)?;
    let peers = CPeers::build(&scratch, record);
    let zlib = peers.as_ref().map_or("no zlib", |peers| &peers.versions);
    let libzstd = zstd_safe::version_string();
    let ours = "zstd of this repository, zlib-rs by flate2, lz4 1.10 and liblzma";
    record.say("peers", format!("libzstd {libzstd}, {zlib}; ours: {ours}"));
    let rounds = options.rounds_or(ROUNDS);
    record.say("rounds", format!("medians of {rounds}"));
    record.say(
        "data",
        format!("In place of silesia.tar: {said}, one after another"),
    );
    let plain = scratch.write("plain", &content)?;
    let head = scratch.write("head", &content[..content.len().min(MEMORY_BYTES)])?;
    let mut trial = DeviceTrial {
        scratch: &scratch,
        peers: peers.as_ref(),
        rounds,
        record,
    };
    for method in METHODS {
        // The input of decompression is C's, so that both decompress the same.
        let key = ["compress", method];
        let compress = |method: &str, peer: &str, _: &[u8]| compressor(method, peer);
        let packed = trial.measure(key, &content, [&plain, &head], compress)?;
        let path = scratch.write("packed", &packed)?;
        let key = ["decompress", method];
        let got = trial.measure(key, &packed, [&path, &path], decompressor)?;
        if got != content {
            return Err(format!("{method}: C decompresses something else"));
        }
        trial.record.print_row("compress", method);
        trial.record.print_row("decompress", method);
    }
    Ok(())
}

/// The state of all methods.
struct DeviceTrial<'a> {
    scratch: &'a ScratchDir,
    peers: Option<&'a CPeers>,
    rounds: usize,
    record: &'a mut TableRecord,
}

impl<'a> DeviceTrial<'a> {
    /// Measures one direction of a method; returns the output of the first peer. `paths` are the
    /// input, and a file that shows the memory.
    fn measure(
        &mut self,
        [direction, method]: [&str; 2],
        input: &[u8],
        paths: [&str; 2],
        make: impl Fn(&str, &str, &[u8]) -> Result<Box<dyn DeviceCodec>, String>,
    ) -> Result<Vec<u8>, String> {
        let (codec, level) = codec_and_level(method)?;
        let mut turns = Vec::new();
        for name in peers_of(method) {
            let peer = match self.peers.filter(|_| (codec, *name) == ("zlib", "C")) {
                Some(peers) => {
                    let work = format!("zlib-{direction}");
                    DevicePeer::Outside(peers, [work, level.to_string(), paths[0].to_owned()])
                }
                // Without zlib in C ours stands in for it, and is not recorded.
                None => DevicePeer::Inside(make(method, name, input)?),
            };
            turns.push((*name, peer));
        }
        let outputs = self.verified_outputs([direction, method], input, &mut turns)?;
        let is_real = |name: &str| (codec, name) != ("zlib", "C") || self.peers.is_some();
        for round in 0..self.rounds {
            for at in measure::order(round, turns.len()) {
                let (name, peer) = &mut turns[at];
                let (time, bytes) = peer.turn(input)?;
                let expected = outputs[at].len();
                if bytes != expected {
                    return Err(format!(
                        "{method}: {name} made {bytes} bytes, then {expected}"
                    ));
                }
                if is_real(name) {
                    let seconds = time.as_secs_f64();
                    self.record.add(direction, method, name, "seconds", seconds);
                }
            }
        }
        for ((name, _), output) in turns
            .iter()
            .zip(&outputs)
            .filter(|((name, _), _)| is_real(name))
        {
            let memory = self.memory(direction, method, name, paths[1])?;
            let (read, made) = (input.len() as f64, output.len() as f64);
            for (metric, value) in [("bytes in", read), ("bytes out", made), ("memory", memory)] {
                self.record.add(direction, method, name, metric, value);
            }
        }
        Ok(outputs.into_iter().next().unwrap_or_default())
    }

    /// The outputs of all peers. C decompresses each one's compressed data to the input;
    /// decompressed data is the same.
    fn verified_outputs(
        &self,
        [direction, method]: [&str; 2],
        input: &[u8],
        turns: &mut [(&'static str, DevicePeer<'a>)],
    ) -> Result<Vec<Vec<u8>>, String> {
        let mut outputs: Vec<Vec<u8>> = Vec::new();
        for (name, peer) in turns {
            let made = peer.output(self.scratch, input)?;
            let is_right = match outputs.first() {
                None => true,
                Some(first) if direction == "decompress" => made == *first,
                Some(_) => decompressor(method, "C", &made)?.output(&made)? == input,
            };
            if !is_right {
                return Err(format!("{method}: {name} {direction}es something else"));
            }
            outputs.push(made);
        }
        Ok(outputs)
    }

    /// Bytes of address space that the method takes beyond `none`, in a process of its own.
    fn memory(&self, direction: &str, method: &str, peer: &str, path: &str) -> Result<f64, String> {
        let (codec, level) = codec_and_level(method)?;
        let kib = |method: &str| -> Result<u64, String> {
            if let (("zlib", "C"), Some(peers)) = ((codec, peer), self.peers) {
                let work = format!("zlib-{direction}");
                let work = if method == "none" { "none" } else { &work };
                let numbers = peers.run(&[work, &level.to_string(), path])?;
                return numbers.last().copied().ok_or("no number".into());
            }
            let program = std::env::current_exe().map_err(|error| error.to_string())?;
            let mut command = Command::new(program);
            command.args(["device-memory", direction, method, peer, path]);
            let said = output(command.envs(MAPPED))?;
            let number = said.trim().parse();
            number.map_err(|_| format!("no number: {said}"))
        };
        Ok(kib(method)?.saturating_sub(kib("none")?) as f64 * 1024.0)
    }
}

/// Passes a file through a device and prints the most address space that this process had, in KiB.
pub(crate) fn print_memory(arguments: &[String]) -> Result<(), String> {
    let [direction, method, peer, path] = arguments else {
        return Err("direction, method, peer and file are needed".into());
    };
    let input = read(Path::new(path))?;
    let mut device = match direction.as_str() {
        "compress" => compressor(method, peer)?,
        _ => decompressor(method, peer, &input)?,
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

/// The figures of a method in one direction.
#[derive(Clone, Copy)]
struct DeviceFigures {
    seconds: Option<f64>,
    /// Bytes of content in a second, with and without the time of `none`.
    speed: Option<f64>,
    adjusted: Option<f64>,
    compressed: Option<f64>,
    ratio: Option<f64>,
    memory: Option<f64>,
}

impl DeviceFigures {
    /// The figures of C, ours, or the publication.
    fn new(record: &TableRecord, direction: &str, method: &str, peer: &str) -> DeviceFigures {
        // The same library serves both.
        let is_measured = peer == "published" || peers_of(method).contains(&peer);
        let peer = if is_measured { peer } else { "C" };
        let of = |metric| record.value(direction, method, peer, metric);
        if peer == "published" {
            return DeviceFigures {
                seconds: of("seconds"),
                speed: of("MB/s"),
                adjusted: of("adjusted MB/s"),
                compressed: of("bytes"),
                ratio: over(record.value(direction, "none", peer, "bytes"), of("bytes")),
                memory: of("memory MB"),
            };
        }
        let (content, compressed) = match direction {
            "compress" => (of("bytes in"), of("bytes out")),
            _ => (of("bytes out"), of("bytes in")),
        };
        let none = record.value(direction, "none", "C", "seconds");
        let seconds = of("seconds");
        let adjusted = seconds.zip(none).map(|(seconds, none)| seconds - none);
        DeviceFigures {
            seconds,
            speed: mb(over(content, seconds)),
            adjusted: mb(over(content, adjusted.filter(|it| *it > 0.0))),
            compressed,
            ratio: over(content, compressed),
            memory: mb(of("memory")),
        }
    }
}

/// The tables of both directions.
pub(crate) fn show(record: &TableRecord) -> RenderedTable {
    let then = TableRecord::parse(include_str!("devices.txt")).unwrap_or_default();
    let (mut text, mut plots) = (String::new(), Vec::new());
    for (direction, name) in [("compress", "Compressing"), ("decompress", "Decompressing")] {
        let of = |method: &str, peer: &str| {
            let record = if peer == "published" { &then } else { record };
            DeviceFigures::new(record, direction, method, peer)
        };
        text += &format!("{name}:\n\n");
        if direction == "compress" {
            text += &size_table(of);
        }
        text += &speed_table(direction, of);
        let mut points = Vec::new();
        for (series, peer) in ["C", "ours"].into_iter().enumerate() {
            let has_peer = |method: &&&str| **method != "none" && peers_of(method).contains(&peer);
            for method in METHODS.iter().filter(has_peer) {
                let it = of(method, peer);
                points.push((series, (*method).to_owned(), it.adjusted, it.ratio));
            }
        }
        plots.push((name, points));
    }
    text += ERRORS;
    let axes = ["adjusted MB/s", "ratio"];
    let plot = speeds(
        "Devices: ratio against speed",
        &["C library", "ours"],
        plots,
        axes,
    );
    RenderedTable {
        text,
        plot: Some(plot),
    }
}

/// Sizes and ratios.
fn size_table(of: impl Fn(&str, &str) -> DeviceFigures) -> String {
    let rows = METHODS.map(|method| {
        let [then, c, ours] = ["published", "C", "ours"].map(|peer| of(method, peer));
        let mut row = vec![method.to_owned()];
        row.extend([then, c, ours].map(|it| cell(it.compressed, 0)));
        if method == "none" {
            row[1] += " (printed wrong)";
        }
        row.push(cell(over(ours.compressed, c.compressed), 4));
        row.extend([then, c, ours].map(|it| cell(it.ratio, 3)));
        row
    });
    let columns = "method | bytes, published | C | ours | ours to C | ratio, published | ratio, C | ratio, ours";
    markdown(columns, &rows) + "\n"
}

/// Speeds and memory. Published speeds stand as ratios to those of `none`, adjusted ones as ratios
/// to zstd 1.
fn speed_table(direction: &str, of: impl Fn(&str, &str) -> DeviceFigures) -> String {
    let rows = METHODS.map(|method| {
        let all = ["published", "C", "ours"];
        let figures = all.map(|peer| of(method, peer));
        let [then, c, ours] = figures;
        let to_none = all.map(|peer| {
            // `none` is the same for both.
            let first = if peer == "ours" { "C" } else { peer };
            cell(over(of(method, peer).speed, of("none", first).speed), 5)
        });
        let mut to_zstd = all.map(|peer| {
            cell(
                over(of(method, peer).adjusted, of("zstd 1", peer).adjusted),
                3,
            )
        });
        if direction == "decompress" && method == WRONG {
            to_zstd[0] += " (wrong)";
        }
        let mut row = vec![method.to_owned()];
        row.extend([then, c, ours].map(|it| cell(it.seconds, 3)));
        row.extend([c, ours].map(|it| cell(it.speed, 2)));
        row.extend(to_none);
        row.extend([c, ours].map(|it| cell(it.adjusted, 2)));
        row.extend(to_zstd);
        row.extend(figures.map(|it| cell(it.memory, 2)));
        row
    });
    let columns = "method | s, published | C | ours | MB/s, C | MB/s, ours | to `none`, published | C | ours \
        | adjusted MB/s, C | adjusted MB/s, ours | to zstd 1, published | C | ours \
        | MB of memory, published | C | ours";
    markdown(columns, &rows) + "\n"
}
