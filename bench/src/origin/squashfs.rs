//! The SquashFS benchmark: images of a tree are made with each codec, mounted by Linux, and read through tar.

use std::fs;
use std::process::Command;

use super::page::{Shown, cell, markdown, mb, over, speeds};
use super::record::Record;
use super::settings::Settings;
use super::work::{Work, output, run};
use crate::measure;

/// Method, how mksquashfs and restow call it, and the published ratio and MB/s of making and of reading.
type Published = (&'static str, &'static str, &'static str, [f64; 3]);

/// Of the commit that added zstd to SquashFS in Linux 4.14.
const PUBLISHED: [Published; 10] = [
    ("gzip", "-comp gzip", "gzip:9", [2.92, 15.0, 128.0]),
    ("lzo", "-comp lzo", "lzo:8", [2.64, 9.5, 217.0]),
    ("lz4", "-comp lz4", "lz4", [2.12, 94.0, 218.0]),
    ("xz", "-comp xz", "xz", [3.43, 5.5, 35.0]),
    ("xz 256 KiB", "-comp xz -b 256K", "xz", [3.53, 5.4, 40.0]),
    (
        "zstd 1",
        "-comp zstd -Xcompression-level 1",
        "zstd:1",
        [2.71, 96.0, 210.0],
    ),
    (
        "zstd 5",
        "-comp zstd -Xcompression-level 5",
        "zstd:5",
        [2.93, 69.0, 198.0],
    ),
    (
        "zstd 10",
        "-comp zstd -Xcompression-level 10",
        "zstd:10",
        [3.01, 41.0, 225.0],
    ),
    (
        "zstd 15",
        "-comp zstd -Xcompression-level 15",
        "zstd:15",
        [3.13, 11.4, 224.0],
    ),
    (
        "zstd 16 256 KiB",
        "-comp zstd -Xcompression-level 16 -b 256K",
        "zstd:16",
        [3.24, 8.1, 210.0],
    ),
];

/// Bytes of the tree, and rounds.
const BYTES: usize = 64 << 20;
const ROUNDS: usize = 3;

pub(super) fn measure(settings: &Settings, record: &mut Record) -> Result<(), String> {
    let work = Work::new(settings)?;
    let (tree, said) = work.tree(settings, BYTES)?;
    let version = run("mksquashfs", &["-version"])?;
    let version = version.lines().next().unwrap_or_default();
    let threads = work.threads().to_string();
    record.say("peers", format!("{version}; {threads} threads"));
    let rounds = settings.rounds_or(ROUNDS);
    record.say(
        "data",
        format!("In place of the tree of Ubuntu 16.10: {said}; medians of {rounds} rounds"),
    );
    let bench = Bench {
        bytes: work.bytes_of(&tree)?,
        content: work.tar_bytes(&tree)?,
        images: MAKERS.map(|(_, name)| work.path(name)),
        point: work.make("point")?,
        work: &work,
        tree,
        threads,
    };
    for (method, theirs, ours, _) in PUBLISHED {
        for round in 0..rounds {
            for maker in measure::order(round, MAKERS.len()) {
                bench.make(record, method, [theirs, ours], maker)?;
            }
            for reader in measure::order(round, READERS.len()) {
                bench.read(record, method, reader)?;
            }
        }
        bench.compare(record, method)?;
        println!("  {method}");
    }
    Ok(())
}

/// Who makes images, and what they are called.
const MAKERS: [(&str, &str); 3] = [
    ("Linux", "linux.squashfs"),
    ("ours", "ours.squashfs"),
    ("ours verifying", "verified.squashfs"),
];

/// Who is read, whose image it is, and whether restow mounts it.
const READERS: [(&str, usize, bool); 3] = [
    ("Linux", 0, false),
    ("ours", 1, false),
    ("ours mounted by restow", 1, true),
];

/// What all methods have in common.
struct Bench<'a> {
    work: &'a Work,
    tree: String,
    threads: String,
    bytes: u64,
    content: u64,
    /// Of each maker.
    images: [String; 3],
    point: String,
}

impl Bench<'_> {
    /// Makes an image with options of mksquashfs or with what restow calls the codec.
    fn make(
        &self,
        record: &mut Record,
        method: &str,
        [theirs, ours]: [&str; 2],
        maker: usize,
    ) -> Result<(), String> {
        let (tree, image) = (&*self.tree, &*self.images[maker]);
        let _ = fs::remove_file(image);
        let mut command;
        if maker == 0 {
            command = Command::new("mksquashfs");
            command.args([tree, image, "-noappend", "-quiet", "-no-progress"]);
            command.args(["-processors", &self.threads]);
            command.args(theirs.split(' '));
        } else {
            let block = if theirs.contains("-b ") {
                "256K"
            } else {
                "128K"
            };
            command = Command::new(&self.work.restow);
            command.args(["copy", "-q", "--overwrite", "-j", &self.threads]);
            command.args(["--compress", ours, "--block-size", block]);
            command.args((maker == 1).then_some("--no-verify"));
            command.args([tree, image]);
        }
        record
            .timed(["make", method, MAKERS[maker].0], || output(&mut command))
            .map(drop)
    }

    /// Mounts an image and reads it through tar.
    fn read(&self, record: &mut Record, method: &str, reader: usize) -> Result<(), String> {
        let (work, (who, image, mounts)) = (self.work, READERS[reader]);
        let image = &self.images[image];
        if mounts {
            run(&work.restow, &["mount", image, &self.point])?;
        } else {
            work.mount("squashfs", "ro", image, &self.point)?;
        }
        let read = record.timed(["read", method, who], || work.tar_bytes(&self.point))?;
        run("umount", &[&self.point])?;
        if read == self.content {
            return Ok(());
        }
        let content = self.content;
        Err(format!(
            "{method}, {who}: tar reads {read} bytes instead of {content}"
        ))
    }

    /// Compares the images with the tree, and takes in their sizes.
    fn compare(&self, record: &mut Record, method: &str) -> Result<(), String> {
        for ((who, _), image) in MAKERS.iter().zip(&self.images).take(2) {
            let args = ["diff", "-q", "--ignore", "mtime", &self.tree, image];
            run(&self.work.restow, &args)?;
            let metadata = fs::metadata(image).map_err(|error| format!("{image}: {error}"))?;
            record.add("make", method, who, "bytes out", metadata.len() as f64);
            record.add("make", method, who, "bytes in", self.bytes as f64);
        }
        Ok(())
    }
}

pub(super) fn show(record: &Record) -> Shown {
    let bytes = |method| record.median("make", method, "Linux", "bytes in");
    let ratio = |method, who| {
        over(
            bytes(method),
            record.median("make", method, who, "bytes out"),
        )
    };
    let speed = |part, method, who| {
        mb(over(
            bytes(method),
            record.median(part, method, who, "seconds"),
        ))
    };
    let first = PUBLISHED[0];
    let mut rows = Vec::new();
    let mut points = [Vec::new(), Vec::new()];
    for (method, _, _, published) in PUBLISHED {
        let mut row = vec![method.to_owned(), cell(Some(published[0]), 2)];
        row.extend(["Linux", "ours"].map(|who| cell(ratio(method, who), 3)));
        for (part, at, all) in [
            ("make", 1, ["Linux", "ours", "ours verifying"]),
            ("read", 2, ["Linux", "ours", "ours mounted by restow"]),
        ] {
            row.push(cell(over(Some(published[at]), Some(first.3[at])), 2));
            row.extend(
                ["Linux", "ours"]
                    .map(|who| cell(over(speed(part, method, who), speed(part, first.0, who)), 2)),
            );
            row.extend(all.map(|who| cell(speed(part, method, who), 1)));
        }
        row.push(cell(
            over(
                speed("make", method, "ours"),
                speed("make", method, "Linux"),
            ),
            3,
        ));
        rows.push(row);
    }
    for (part, points) in ["make", "read"].into_iter().zip(&mut points) {
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
        "mksquashfs",
        "ours",
        "making to gzip, published",
        "mksquashfs",
        "ours",
        "making MB/s, mksquashfs",
        "ours",
        "ours, verifying",
        "reading to gzip, published",
        "its image",
        "our image",
        "reading MB/s, Linux, its image",
        "Linux, our image",
        "restow mount, our image",
        "making, ours to mksquashfs",
    ];
    let [make, read] = points;
    let plots = vec![("Making", make), ("Reading, mounted by Linux", read)];
    let plot = speeds(
        "SquashFS: ratio against speed",
        &["mksquashfs", "restow"],
        plots,
        ["MB/s", "ratio"],
    );
    Shown {
        text: markdown(&columns, &rows),
        plot,
    }
}
