//! The btrfs benchmark: ten copies of the corpus are written to a file system mounted with each
//! method, and read through tar.

use std::fs;

use super::images::ImageTable;
use crate::measure;
use crate::options::Options;
use crate::record::TableRecord;
use crate::scratch::{
    ScratchDir, bytes_of, mount, read_tar, run, tar_bytes, threads, used, version,
};
use crate::table::RenderedTable;

/// Methods: name, mount option, and codec of restow.
const METHODS: [[&str; 3]; 9] = [
    ["none", "rw", "none"],
    ["lzo", "compress-force=lzo", "lzo"],
    ["zlib", "compress-force=zlib", "zlib:3"],
    ["zstd 1", "compress-force=zstd:1", "zstd:1"],
    ["zstd 3", "compress-force=zstd:3", "zstd:3"],
    ["zstd 6", "compress-force=zstd:6", "zstd:6"],
    ["zstd 9", "compress-force=zstd:9", "zstd:9"],
    ["zstd 12", "compress-force=zstd:12", "zstd:12"],
    ["zstd 15", "compress-force=zstd:15", "zstd:15"],
];

const COPIES: usize = 10;
/// Bytes of one copy of the data, and rounds.
const BYTES: usize = 32 << 20;
const ROUNDS: usize = 5;

/// Measures all methods.
pub(crate) fn measure(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    let scratch = ScratchDir::new(options)?;
    let (files, said) = options.silesia(options.bytes_or(BYTES))?;
    for (name, bytes) in &files {
        for copy in 0..COPIES {
            scratch.make(&format!("source/{copy}"))?;
            scratch.write(&format!("source/{copy}/{name}"), bytes)?;
        }
    }
    let mkfs = version("mkfs.btrfs", "--version");
    record.say("peers", format!("{mkfs}; {} threads", threads()));
    let rounds = options.rounds_or(ROUNDS);
    record.say("rounds", format!("best of {rounds}"));
    record.say(
        "data",
        format!("In place of the whole Silesia corpus: {COPIES} copies of {said}"),
    );
    let source = scratch.path("source");
    let trial = BtrfsTrial {
        bytes: bytes_of(&source)?,
        content: tar_bytes(&source)?,
        point: scratch.make("point")?,
        scratch: &scratch,
        source,
    };
    for [method, option, codec] in METHODS {
        for round in 0..rounds {
            for peer in measure::order(round, 2) {
                match peer {
                    0 => trial.linux(record, method, option, round == 0)?,
                    _ => trial.ours(record, method, codec, round == 0)?,
                }
            }
        }
        record.print_row("write", method);
        record.print_row("read", method);
    }
    record.keep_least();
    Ok(())
}

/// The data of all methods.
struct BtrfsTrial<'a> {
    scratch: &'a ScratchDir,
    source: String,
    bytes: u64,
    /// Bytes of an archive of the source.
    content: u64,
    point: String,
}

impl BtrfsTrial<'_> {
    /// Linux writes to a clean file system and reads it after another mount.
    fn linux(
        &self,
        record: &mut TableRecord,
        method: &str,
        option: &str,
        verifies: bool,
    ) -> Result<(), String> {
        let (point, image) = (&*self.point, self.scratch.path("linux.btrfs"));
        let copy = format!("{point}/source");
        self.scratch
            .mkfs_btrfs(&image, 2 * self.bytes + (1 << 30))?;
        mount("btrfs", option, &image, point)?;
        record.timed(["write", method, "Linux"], || {
            run("cp", &["-r", &self.source, &copy])?;
            run("sync", &["-f", point])
        })?;
        self.add_sizes(record, method, "Linux")?;
        run("umount", &[point])?;
        mount("btrfs", option, &image, point)?;
        record.timed(["read", method, "Linux"], || read_tar(&copy, self.content))?;
        if verifies {
            let args = ["diff", "-q", "--ignore", "mtime,mode", &self.source, &copy];
            run(&self.scratch.restow, &args)?;
        }
        run("umount", &[point])?;
        fs::remove_file(&image).map_err(|error| format!("remove {image}: {error}"))
    }

    /// restow writes an image, which Linux and restow mount and read.
    fn ours(
        &self,
        record: &mut TableRecord,
        method: &str,
        codec: &str,
        verifies: bool,
    ) -> Result<(), String> {
        let (point, image) = (&*self.point, self.scratch.path("ours.btrfs"));
        let restow = &self.scratch.restow;
        record.timed(["write", method, "ours"], || {
            self.scratch.btrfs_image(codec, &self.source, &image)
        })?;
        mount("btrfs", "ro", &image, point)?;
        self.add_sizes(record, method, "ours")?;
        record.timed(["read", method, "ours"], || read_tar(point, self.content))?;
        run("umount", &[point])?;
        run(restow, &["mount", &image, point])?;
        let mounted = ["read", method, "ours mounted by restow"];
        record.timed(mounted, || read_tar(point, self.content))?;
        run("umount", &[point])?;
        if verifies {
            run(restow, &["diff", "-q", &self.source, &image])?;
        }
        fs::remove_file(&image).map_err(|error| format!("remove {image}: {error}"))
    }

    fn add_sizes(&self, record: &mut TableRecord, method: &str, peer: &str) -> Result<(), String> {
        record.add(
            "write",
            method,
            peer,
            "bytes out",
            used(&self.point)? as f64,
        );
        record.add("write", method, peer, "bytes in", self.bytes as f64);
        Ok(())
    }
}

/// The table.
pub(crate) fn show(record: &TableRecord) -> RenderedTable {
    let table = ImageTable {
        published: include_str!("btrfs.txt"),
        columns: "method | ratio, published | Linux | our image \
            | writing to none, published | Linux | ours | writing MB/s, Linux | ours \
            | reading to none, published | Linux | our image | reading MB/s, Linux | Linux, our image \
            | restow mount, our image | writing, ours to Linux",
        parts: [
            ("write", &["Linux", "ours"]),
            ("read", &["Linux", "ours", "ours mounted by restow"]),
        ],
        decimals: 3,
        title: "btrfs: ratio against speed",
        series: ["Linux", "our image"],
        plots: ["Writing", "Reading, mounted by Linux"],
    };
    table.show(record)
}
