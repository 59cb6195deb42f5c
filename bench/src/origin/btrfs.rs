//! The btrfs benchmark: ten copies of the corpus are written to a file system mounted with each method, and read through tar.

use std::fs;

use super::page::{Shown, cell, markdown, mb, over, speeds};
use super::record::Record;
use super::settings::Settings;
use super::work::{Work, run};
use crate::measure;

/// Method, the mount option, what restow calls it, and the published ratio and MB/s of writing and of reading.
type Published = (&'static str, &'static str, &'static str, [f64; 3]);

/// Of the patches that added zstd to btrfs.
const PUBLISHED: [Published; 9] = [
    ("none", "rw", "none", [0.99, 504.0, 686.0]),
    ("lzo", "compress-force=lzo", "lzo", [1.66, 398.0, 442.0]),
    ("zlib", "compress-force=zlib", "zlib:3", [2.58, 65.0, 241.0]),
    (
        "zstd 1",
        "compress-force=zstd:1",
        "zstd:1",
        [2.57, 260.0, 383.0],
    ),
    (
        "zstd 3",
        "compress-force=zstd:3",
        "zstd:3",
        [2.71, 174.0, 408.0],
    ),
    (
        "zstd 6",
        "compress-force=zstd:6",
        "zstd:6",
        [2.87, 70.0, 398.0],
    ),
    (
        "zstd 9",
        "compress-force=zstd:9",
        "zstd:9",
        [2.92, 43.0, 406.0],
    ),
    (
        "zstd 12",
        "compress-force=zstd:12",
        "zstd:12",
        [2.93, 21.0, 408.0],
    ),
    (
        "zstd 15",
        "compress-force=zstd:15",
        "zstd:15",
        [3.01, 11.0, 354.0],
    ),
];

const COPIES: usize = 10;
/// Bytes of one copy of the data, and rounds.
const BYTES: usize = 32 << 20;
const ROUNDS: usize = 5;

pub(super) fn measure(settings: &Settings, record: &mut Record) -> Result<(), String> {
    let work = Work::new(settings)?;
    let (files, said) = settings.silesia(settings.bytes_or(BYTES))?;
    for (name, bytes) in &files {
        for copy in 0..COPIES {
            work.make(&format!("source/{copy}"))?;
            work.write(&format!("source/{copy}/{name}"), bytes)?;
        }
    }
    let threads = work.threads();
    let version = run("mkfs.btrfs", &["--version"])?;
    record.say(
        "peers",
        format!(
            "{}; {threads} threads",
            version.lines().next().unwrap_or_default()
        ),
    );
    let rounds = settings.rounds_or(ROUNDS);
    record.say("data", format!("In place of the whole Silesia corpus: {COPIES} copies of {said}; best of {rounds} rounds"));
    let source = work.path("source");
    let bytes = work.bytes_of(&source)?;
    let content = work.tar_bytes(&source)?;
    let bench = Bench {
        work: &work,
        source,
        bytes,
        content,
        point: work.make("point")?,
    };
    for (method, option, compress, _) in PUBLISHED {
        for round in 0..rounds {
            for who in measure::order(round, 2) {
                match who {
                    0 => bench.linux(record, method, option, round == 0)?,
                    _ => bench.ours(record, method, compress, round == 0)?,
                }
            }
        }
        println!("  {method}");
    }
    Ok(())
}

/// What all methods have in common.
struct Bench<'a> {
    work: &'a Work,
    source: String,
    bytes: u64,
    content: u64,
    point: String,
}

impl Bench<'_> {
    /// Linux writes to a clean file system and reads it after another mount.
    fn linux(
        &self,
        record: &mut Record,
        method: &str,
        option: &str,
        verifies: bool,
    ) -> Result<(), String> {
        let (work, point, image) = (self.work, &*self.point, self.work.path("linux.btrfs"));
        work.mkfs_btrfs(&image, 2 * self.bytes + (1 << 30))?;
        work.mount("btrfs", option, &image, point)?;
        record.timed(["write", method, "Linux"], || {
            run("cp", &["-r", &self.source, &format!("{point}/source")])?;
            run("sync", &["-f", point])
        })?;
        let used = work.used(point)?;
        run("umount", &[point])?;
        work.mount("btrfs", option, &image, point)?;
        self.read(record, method, "Linux", &format!("{point}/source"))?;
        if verifies {
            let ignored = "mtime,mode";
            run(
                &work.restow,
                &[
                    "diff",
                    "-q",
                    "--ignore",
                    ignored,
                    &self.source,
                    &format!("{point}/source"),
                ],
            )?;
        }
        run("umount", &[point])?;
        self.size(record, method, "Linux", used);
        fs::remove_file(&image).map_err(|error| format!("remove {image}: {error}"))
    }

    /// restow writes an image, which Linux and restow mount and read.
    fn ours(
        &self,
        record: &mut Record,
        method: &str,
        compress: &str,
        verifies: bool,
    ) -> Result<(), String> {
        let (work, point, image) = (self.work, &*self.point, self.work.path("ours.btrfs"));
        record.timed(["write", method, "ours"], || {
            work.btrfs_image(compress, &self.source, &image)
        })?;
        work.mount("btrfs", "ro", &image, point)?;
        let used = work.used(point)?;
        self.read(record, method, "ours", point)?;
        run("umount", &[point])?;
        run(&work.restow, &["mount", &image, point])?;
        self.read(record, method, "ours mounted by restow", point)?;
        run("umount", &[point])?;
        if verifies {
            run(&work.restow, &["diff", "-q", &self.source, &image])?;
        }
        self.size(record, method, "ours", used);
        fs::remove_file(&image).map_err(|error| format!("remove {image}: {error}"))
    }

    fn read(&self, record: &mut Record, method: &str, who: &str, tree: &str) -> Result<(), String> {
        let read = record.timed(["read", method, who], || self.work.tar_bytes(tree))?;
        if read == self.content {
            Ok(())
        } else {
            Err(format!(
                "{method}, {who}: tar reads {read} bytes instead of {}",
                self.content
            ))
        }
    }

    fn size(&self, record: &mut Record, method: &str, who: &str, used: u64) {
        record.add("write", method, who, "bytes out", used as f64);
        record.add("write", method, who, "bytes in", self.bytes as f64);
    }
}

pub(super) fn show(record: &Record) -> Shown {
    let bytes = |method| record.median("write", method, "Linux", "bytes in");
    let ratio = |method, who| {
        over(
            bytes(method),
            record.median("write", method, who, "bytes out"),
        )
    };
    let speed = |part, method, who| {
        mb(over(
            bytes(method),
            record.least(part, method, who, "seconds"),
        ))
    };
    let first = PUBLISHED[0];
    let mut rows = Vec::new();
    let mut points = [Vec::new(), Vec::new()];
    for (method, _, _, published) in PUBLISHED {
        let mut row = vec![method.to_owned(), cell(Some(published[0]), 2)];
        row.extend(["Linux", "ours"].map(|who| cell(ratio(method, who), 3)));
        for (part, at) in [("write", 1), ("read", 2)] {
            row.push(cell(over(Some(published[at]), Some(first.3[at])), 3));
            row.extend(
                ["Linux", "ours"]
                    .map(|who| cell(over(speed(part, method, who), speed(part, first.0, who)), 3)),
            );
            row.extend(["Linux", "ours"].map(|who| cell(speed(part, method, who), 1)));
        }
        row.push(cell(speed("read", method, "ours mounted by restow"), 1));
        row.push(cell(
            over(
                speed("write", method, "ours"),
                speed("write", method, "Linux"),
            ),
            3,
        ));
        rows.push(row);
    }
    for (part, points) in ["write", "read"].into_iter().zip(&mut points) {
        for (series, who) in ["Linux", "ours"].into_iter().enumerate() {
            for (method, ..) in PUBLISHED {
                points.push((
                    series,
                    method.to_owned(),
                    speed(part, method, who),
                    ratio(method, who),
                ));
            }
        }
    }
    let columns = [
        "method",
        "ratio, published",
        "Linux",
        "our image",
        "writing to none, published",
        "Linux",
        "ours",
        "writing MB/s, Linux",
        "ours",
        "reading to none, published",
        "Linux",
        "our image",
        "reading MB/s, Linux",
        "Linux, our image",
        "restow mount, our image",
        "writing, ours to Linux",
    ];
    let [write, read] = points;
    let plots = vec![("Writing", write), ("Reading, mounted by Linux", read)];
    let plot = speeds(
        "btrfs: ratio against speed",
        &["Linux", "our image"],
        plots,
        ["MB/s", "ratio"],
    );
    Shown {
        text: markdown(&columns, &rows),
        plot,
    }
}
