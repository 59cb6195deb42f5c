//! Send streams, by whole processes: `restow` beside btrfs-progs, Linux and CRC-32C alone.
//!
//! The steps are those by which compressed send and receive were published: time of the user and of
//! the system, elapsed time, memory, and blocks read and written.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::cells::{cell, markdown, mb, over};
use crate::measure;
use crate::options::{Options, read};
use crate::plot::groups;
use crate::record::TableRecord;
use crate::scratch::{ScratchDir, mount, run, version, words};
use crate::table::RenderedTable;

/// The part of the record with the sizes of the streams.
const SIZES: &str = "stream";

/// Bytes of the tree, and rounds.
const BYTES: usize = 128 << 20;
const ROUNDS: usize = 5;

/// Sends and receives a tree in each step.
pub(crate) fn measure(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    let scratch = ScratchDir::new(options)?;
    let (tree, said) = scratch.tree(options, BYTES)?;
    let rounds = options.rounds_or(ROUNDS);
    record.say("peers", version("btrfs", "--version"));
    record.say("rounds", format!("medians of {rounds}"));
    record.say(
        "data",
        format!("{said}, in a btrfs with compress-force=zstd:3"),
    );
    let trial = StreamTrial::new(&scratch, &tree)?;
    trial.add_sizes(record)?;
    for step in trial.steps() {
        step.measure(&scratch, record, rounds)?;
    }
    Ok(())
}

/// Reads a file and prints its CRC-32C: the least cost of checking a stream.
pub(crate) fn crc32c(file: &Path) -> Result<(), String> {
    let failed = |error| format!("read {}: {error}", file.display());
    let mut input = File::open(file).map_err(failed)?;
    let mut buffer = vec![0; 256 << 10];
    let mut crc = 0;
    loop {
        match input.read(&mut buffer).map_err(failed)? {
            0 => break,
            read => crc = crc32c::crc32c_append(crc, &buffer[..read]),
        }
    }
    println!("{crc:08x}");
    Ok(())
}

/// A program that takes its turn.
struct StreamTurn {
    name: &'static str,
    /// Commands before each turn that are not measured.
    before: Vec<Vec<String>>,
    command: Vec<String>,
}

/// Quantities of a turn: the elapsed time, and those of GNU time.
const COSTS: [&str; 8] = [
    "elapsed",
    "user",
    "system",
    "memory",
    "blocks in",
    "blocks out",
    "major faults",
    "minor faults",
];

impl StreamTurn {
    fn new(name: &'static str, command: Vec<String>) -> StreamTurn {
        StreamTurn {
            name,
            before: Vec::new(),
            command,
        }
    }

    fn after(mut self, before: Vec<Vec<String>>) -> StreamTurn {
        self.before = before;
        self
    }

    fn run(&self) -> Result<[f64; 8], String> {
        for words in &self.before {
            // There is nothing to remove in the first round.
            let mut command = Command::new(&words[0]);
            command
                .args(&words[1..])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let _ = command.status();
        }
        let mut command = Command::new("time");
        command
            .args(["-f", "%U %S %M %I %O %F %R"])
            .args(&self.command);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let start = Instant::now();
        let output = command
            .output()
            .map_err(|error| format!("run time: {error}"))?;
        let elapsed = start.elapsed().as_secs_f64();
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(format!("{:?}: {said}", self.command));
        }
        let numbers = said.lines().last().unwrap_or_default().split(' ');
        let numbers: Vec<f64> = numbers.filter_map(|word| word.parse().ok()).collect();
        let [user, system, memory_kib, read, written, major, minor] = numbers[..] else {
            return Err(format!("time said: {said}"));
        };
        let memory = memory_kib * 1024.0;
        Ok([elapsed, user, system, memory, read, written, major, minor])
    }
}

/// The same work by several programs; the first is the one that the others are compared with.
struct StreamStep {
    name: &'static str,
    turns: Vec<StreamTurn>,
    /// Files that must be the same bytes.
    same: Option<[PathBuf; 2]>,
    /// Pairs of trees that must be the same.
    trees: Vec<[String; 2]>,
}

impl StreamStep {
    fn new(name: &'static str, turns: Vec<StreamTurn>) -> StreamStep {
        StreamStep {
            name,
            turns,
            same: None,
            trees: Vec::new(),
        }
    }

    fn measure(
        &self,
        scratch: &ScratchDir,
        record: &mut TableRecord,
        rounds: usize,
    ) -> Result<(), String> {
        // The first round warms up.
        for round in 0..=rounds {
            for at in measure::order(round, self.turns.len()) {
                let turn = &self.turns[at];
                let costs = turn.run()?;
                for (metric, cost) in COSTS.iter().zip(costs).filter(|_| round > 0) {
                    record.add(self.name, turn.name, "cost", metric, cost);
                }
            }
        }
        if let Some([a, b]) = &self.same
            && read(a)? != read(b)?
        {
            return Err(format!("{}: {} differs", self.name, b.display()));
        }
        for [tree, made] in &self.trees {
            // Linux leaves the root directory with the time of the last temporary name in it.
            scratch.verify(tree, made)?;
        }
        for turn in &self.turns {
            record.print_row(self.name, turn.name);
        }
        Ok(())
    }
}

/// File systems with the tree.
struct StreamTrial<'a> {
    scratch: &'a ScratchDir,
    bench: PathBuf,
}

impl StreamTrial<'_> {
    fn new<'a>(scratch: &'a ScratchDir, tree: &str) -> Result<StreamTrial<'a>, String> {
        let bench = std::env::current_exe().map_err(|error| error.to_string())?;
        for (name, options) in [
            ("source", "noatime,compress-force=zstd:3"),
            ("plain", "noatime"),
            ("forced", "noatime,compress-force=zstd:3"),
        ] {
            let image = scratch.path(&format!("{name}.img"));
            scratch.mkfs_btrfs(&image, 8 << 30)?;
            mount("btrfs", options, &image, &scratch.make(name)?)?;
        }
        let [live, snapshot] = ["live", "tree"].map(|it| scratch.path(&format!("source/{it}")));
        run("btrfs", &["subvolume", "create", &live])?;
        run("cp", &["-a", tree, &live])?;
        run("sync", &["-f", &live])?;
        run("btrfs", &["subvolume", "snapshot", "-r", &live, &snapshot])?;
        run("sync", &["-f", &live])?;
        // The image is read while it is mounted.
        run("mount", &["-o", "remount,ro", &scratch.path("source")])?;
        for (file, options) in [
            ("v1", &["--proto", "1"][..]),
            ("v2", &["--compressed-data"]),
        ] {
            let stream = scratch.path(file);
            let words = [&["send", "-q", "-f", &stream], options, &[&snapshot]].concat();
            run("btrfs", &words)?;
        }
        Ok(StreamTrial { scratch, bench })
    }

    fn add_sizes(&self, record: &mut TableRecord) -> Result<(), String> {
        let [v1, v2, packed] = ["v1", "v2", "v1.zst"].map(|name| self.scratch.path(name));
        run("zstd", &["-q", "-3", "-o", &packed, &v1])?;
        let names = ["version 1", "compressed data", "version 1 through zstd -3"];
        for (name, file) in names.into_iter().zip([v1, v2, packed]) {
            let metadata = fs::metadata(&file).map_err(|error| format!("{file}: {error}"))?;
            record.add(SIZES, name, "Linux", "bytes", metadata.len() as f64);
        }
        Ok(())
    }

    fn steps(&self) -> Vec<StreamStep> {
        vec![
            self.check("check v1", "v1"),
            self.send("send v1", &["--proto", "1"]),
            self.receive("receive v1, none", "v1", "plain", &[]),
            self.receive("receive v1, force", "v1", "forced", &[]),
            self.check("check compressed", "v2"),
            self.send("send compressed", &["--proto", "2", "--compressed-data"]),
            self.receive("receive compressed", "v2", "plain", &[]),
            self.receive(
                "receive, decompressed",
                "v2",
                "plain",
                &["--force-decompress"],
            ),
            self.convert(),
        ]
    }

    fn check(&self, name: &'static str, stream: &str) -> StreamStep {
        let stream = &*self.scratch.path(stream);
        let restow = |words: &[&str]| line(&self.scratch.restow, words);
        let verify = restow(&["stream", "verify", "--no-data", stream]);
        let dump = ["receive", "--dump", "-f", stream];
        let turns = vec![
            StreamTurn::new("CRC-32C alone", line(&self.bench, &["crc32c", stream])),
            StreamTurn::new("restow stream verify --no-data", verify),
            StreamTurn::new("restow stream dump", restow(&["stream", "dump", stream])),
            StreamTurn::new("restow receive --dump", restow(&dump)),
            StreamTurn::new("btrfs receive --dump", line(Path::new("btrfs"), &dump)),
        ];
        StreamStep::new(name, turns)
    }

    fn send(&self, name: &'static str, options: &[&str]) -> StreamStep {
        let snapshot = self.scratch.path("source/tree");
        let image = format!("{}:tree", self.scratch.path("source.img"));
        let turn = |name: &'static str, program: &Path, to: &str, from: &str| {
            let args = [&["send", "-q"], options, &["-f", to, from]].concat();
            let turn = StreamTurn::new(name, line(program, &args));
            turn.after(vec![words(&["rm", "-f", to])])
        };
        let files = ["theirs", "mounted", "ours"].map(|file| self.scratch.path(file));
        let turns = vec![
            turn("btrfs send", Path::new("btrfs"), &files[0], &snapshot),
            turn(
                "restow send, mounted",
                &self.scratch.restow,
                &files[1],
                &snapshot,
            ),
            turn(
                "restow send, image",
                &self.scratch.restow,
                &files[2],
                &image,
            ),
        ];
        let [theirs, _, ours] = files.map(PathBuf::from);
        StreamStep {
            same: Some([theirs, ours]),
            ..StreamStep::new(name, turns)
        }
    }

    fn receive(&self, name: &'static str, stream: &str, to: &str, options: &[&str]) -> StreamStep {
        let (stream, to) = (self.scratch.path(stream), self.scratch.path(to));
        let turn = |name: &'static str, program: &Path, dir: &str, more: &[&str]| {
            let at = &*format!("{to}/{dir}");
            let before = vec![
                words(&["btrfs", "subvolume", "delete", &format!("{at}/tree")]),
                words(&["mkdir", "-p", at]),
                words(&["sync", "-f", &to]),
            ];
            let args = [&["receive", "-q"], more, options, &["-f", &*stream, at]].concat();
            // Each ends when all is on disk.
            let script = format!("{} && sync -f {to}", line(program, &args).join(" "));
            StreamTurn::new(name, words(&["sh", "-c", &script])).after(before)
        };
        let unread = ["--no-read-back"];
        let turns = vec![
            turn("btrfs receive", Path::new("btrfs"), "theirs", &[]),
            turn("restow receive", &self.scratch.restow, "ours", &[]),
            turn(
                "restow receive --no-read-back",
                &self.scratch.restow,
                "unread",
                &unread,
            ),
        ];
        let snapshot = self.scratch.path("source/tree");
        let trees = ["theirs", "ours", "unread"];
        StreamStep {
            trees: trees
                .map(|dir| [snapshot.clone(), format!("{to}/{dir}/tree")])
                .to_vec(),
            ..StreamStep::new(name, turns)
        }
    }

    fn convert(&self) -> StreamStep {
        let files = ["one", "two"].map(|file| self.scratch.path(file));
        let turn = |name: &'static str, threads: &str, to: &str| {
            let source = self.scratch.path("v1");
            let options = ["-q", "--overwrite", "--compress", "zstd:3", threads];
            let args = [&["stream", "convert"], &options[..], &[&source, to]].concat();
            StreamTurn::new(name, line(&self.scratch.restow, &args))
        };
        let turns = vec![
            turn("restow stream convert -j1", "-j1", &files[0]),
            turn("restow stream convert -j2", "-j2", &files[1]),
        ];
        StreamStep {
            same: Some(files.map(PathBuf::from)),
            ..StreamStep::new("convert v1 to zstd:3", turns)
        }
    }
}

/// A program and its arguments.
fn line(program: &Path, args: &[&str]) -> Vec<String> {
    words(&[&[&*program.display().to_string()], args].concat())
}

/// The tables: streams, steps, and system time beside the published.
pub(crate) fn show(record: &TableRecord) -> RenderedTable {
    let of = |step: &str, program: &str, metric: &str| record.value(step, program, "cost", metric);
    let sizes = record.rows(SIZES).iter();
    let sizes: Vec<Vec<String>> = sizes
        .map(|row| vec![row.name.clone(), cell(row.value("Linux", "bytes"), 0)])
        .collect();
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    for step in record.parts().filter(|part| *part != SIZES) {
        let programs: Vec<&str> = record.rows(step).iter().map(|row| &*row.name).collect();
        let elapsed = |program: &str| of(step, program, "elapsed");
        for program in &programs {
            let to_first = over(elapsed(program), elapsed(programs[0]));
            let mut row = vec![step.to_owned(), (*program).to_owned()];
            row.extend(["user", "system"].map(|metric| cell(of(step, program, metric), 2)));
            row.extend([elapsed(program), to_first].map(|value| cell(value, 3)));
            row.push(cell(mb(of(step, program, "memory")), 1));
            rows.push(row);
        }
        if step.starts_with("send") || step.starts_with("receive") {
            let bar = |(series, program): (usize, &&str)| (series, elapsed(program));
            bars.push((
                step.to_owned(),
                programs.iter().enumerate().map(bar).collect(),
            ));
        }
    }
    let columns = "step | program | user s | system s | elapsed s | to the first | MB of memory";
    let text = format!(
        "{}\n{}\n{}",
        markdown("stream | bytes", &sizes),
        markdown(columns, &rows),
        beside_published(record)
    );
    let series = [
        "btrfs-progs",
        "restow (sends mounted)",
        "restow (sends image; no read-back)",
    ];
    let plot = groups("Elapsed seconds of sending and receiving", &series, &bars);
    RenderedTable {
        text,
        plot: Some(plot),
    }
}

/// The published steps beside btrfs-progs and restow, and system time with compressed data beside
/// that of version 1.
fn beside_published(record: &TableRecord) -> String {
    let then = TableRecord::parse(include_str!("streams.txt")).unwrap_or_default();
    let of = |step: &str, metric: &str| {
        let theirs = step.split([' ', ',']).next().unwrap_or_default();
        let ours = match theirs {
            "send" => "restow send, mounted",
            _ => "restow receive",
        };
        let theirs = format!("btrfs {theirs}");
        [
            then.value(step, &theirs, "published", metric),
            record.value(step, &theirs, "cost", metric),
            record.value(step, ours, "cost", metric),
        ]
    };
    let row = |step: &str| {
        let mut row = vec![step.to_owned()];
        row.extend(of(step, "elapsed").map(|it| cell(it, 2)));
        row.extend(of(step, "memory").map(|it| cell(mb(it), 1)));
        for metric in ["blocks in", "blocks out", "major faults", "minor faults"] {
            row.extend(of(step, metric).map(|it| cell(it, 0)));
        }
        row
    };
    let rows: Vec<Vec<String>> = then.parts().map(row).collect();
    let steps = [
        ("send", "send v1", "send compressed"),
        ("receive", "receive v1, force", "receive compressed"),
    ];
    let ratios = steps.map(|(work, v1, v2)| {
        let (v1, v2) = (of(v1, "system"), of(v2, "system"));
        let ratios = [0, 1, 2].map(|at| cell(over(v2[at], v1[at]), 2));
        [work.to_owned()].into_iter().chain(ratios).collect()
    });
    let columns = "step | elapsed s, published | btrfs-progs | restow \
        | MB of memory, published | btrfs-progs | restow \
        | blocks read, published | btrfs-progs | restow \
        | blocks written, published | btrfs-progs | restow \
        | major page faults, published | btrfs-progs | restow \
        | minor page faults, published | btrfs-progs | restow";
    format!(
        "The published figures are of a root file system of 50 GB, compressed to 23 GB:\n\n{}\n\
         System time with compressed data, as a ratio to version 1:\n\n{}",
        markdown(columns, &rows),
        markdown("work | published | btrfs-progs | restow", &ratios)
    )
}
