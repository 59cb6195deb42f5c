//! The SquashFS benchmark: images of a tree are made with each codec, mounted by Linux, and read
//! through tar.

use std::fs;
use std::process::Command;

use super::images::ImageTable;
use crate::measure;
use crate::options::Options;
use crate::record::TableRecord;
use crate::scratch::{
    ScratchDir, bytes_of, mount, output, read_tar, run, tar_bytes, threads, version,
};
use crate::table::RenderedTable;

/// Methods: name, options of mksquashfs, and codec of restow.
const METHODS: [[&str; 3]; 10] = [
    ["gzip", "-comp gzip", "gzip:9"],
    ["lzo", "-comp lzo", "lzo:8"],
    ["lz4", "-comp lz4", "lz4"],
    ["xz", "-comp xz", "xz"],
    ["xz 256 KiB", "-comp xz -b 256K", "xz"],
    ["zstd 1", "-comp zstd -Xcompression-level 1", "zstd:1"],
    ["zstd 5", "-comp zstd -Xcompression-level 5", "zstd:5"],
    ["zstd 10", "-comp zstd -Xcompression-level 10", "zstd:10"],
    ["zstd 15", "-comp zstd -Xcompression-level 15", "zstd:15"],
    [
        "zstd 16 256 KiB",
        "-comp zstd -Xcompression-level 16 -b 256K",
        "zstd:16",
    ],
];

/// Bytes of the tree, and rounds.
const BYTES: usize = 64 << 20;
const ROUNDS: usize = 5;

/// Measures all methods.
pub(crate) fn measure(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    let scratch = ScratchDir::new(options)?;
    let (tree, said) = scratch.tree(options, BYTES)?;
    let threads = threads().to_string();
    let mksquashfs = version("mksquashfs", "-version");
    let lzo = "lzo is LZO1X-999 at level 8, as published, in both";
    record.say("peers", format!("{mksquashfs}, {lzo}; {threads} threads"));
    let rounds = options.rounds_or(ROUNDS);
    record.say("rounds", format!("medians of {rounds}"));
    record.say(
        "data",
        format!("In place of the tree of Ubuntu 16.10: {said}"),
    );
    let trial = SquashfsTrial {
        bytes: bytes_of(&tree)?,
        content: tar_bytes(&tree)?,
        images: MAKERS.map(|(_, name)| scratch.path(name)),
        point: scratch.make("point")?,
        scratch: &scratch,
        tree,
        threads,
    };
    for [method, theirs, ours] in METHODS {
        for round in 0..rounds {
            for maker in measure::order(round, MAKERS.len()) {
                trial.make(record, method, [theirs, ours], maker)?;
            }
            for reader in measure::order(round, READERS.len()) {
                trial.read(record, method, reader)?;
            }
        }
        trial.compare(record, method)?;
        record.print_row("make", method);
        record.print_row("read", method);
    }
    Ok(())
}

/// Makers of images, and the names of the images.
const MAKERS: [(&str, &str); 3] = [
    ("Linux", "linux.squashfs"),
    ("ours", "ours.squashfs"),
    ("ours verifying", "verified.squashfs"),
];

/// Readers: name, maker of the image, and whether restow mounts it.
const READERS: [(&str, usize, bool); 3] = [
    ("Linux", 0, false),
    ("ours", 1, false),
    ("ours mounted by restow", 1, true),
];

/// The data of all methods.
struct SquashfsTrial<'a> {
    scratch: &'a ScratchDir,
    tree: String,
    threads: String,
    bytes: u64,
    /// Bytes of an archive of the tree.
    content: u64,
    /// Of each maker.
    images: [String; 3],
    point: String,
}

impl SquashfsTrial<'_> {
    /// Makes an image with options of mksquashfs or with a codec of restow.
    fn make(
        &self,
        record: &mut TableRecord,
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
            let large = theirs.contains("-b 256K");
            let block = if large { "256K" } else { "128K" };
            command = Command::new(&self.scratch.restow);
            command.args(["copy", "-q", "--overwrite", "-j", &self.threads]);
            command.args(["--compress", ours, "--block-size", block]);
            command.args((maker == 1).then_some("--no-verify"));
            command.args([tree, image]);
        }
        let made = record.timed(["make", method, MAKERS[maker].0], || output(&mut command));
        made.map(drop)
    }

    /// Mounts an image and reads it through tar.
    fn read(&self, record: &mut TableRecord, method: &str, reader: usize) -> Result<(), String> {
        let (peer, image, mounts) = READERS[reader];
        let image = &self.images[image];
        if mounts {
            run(&self.scratch.restow, &["mount", image, &self.point])?;
        } else {
            mount("squashfs", "ro", image, &self.point)?;
        }
        record.timed(["read", method, peer], || {
            read_tar(&self.point, self.content)
        })?;
        run("umount", &[&self.point]).map(drop)
    }

    /// Compares the images with the tree, and takes in their sizes.
    fn compare(&self, record: &mut TableRecord, method: &str) -> Result<(), String> {
        for ((peer, _), image) in MAKERS.iter().zip(&self.images).take(2) {
            self.scratch.verify(&self.tree, image)?;
            let metadata = fs::metadata(image).map_err(|error| format!("{image}: {error}"))?;
            record.add("make", method, peer, "bytes out", metadata.len() as f64);
            record.add("make", method, peer, "bytes in", self.bytes as f64);
        }
        Ok(())
    }
}

/// The table.
pub(crate) fn show(record: &TableRecord) -> RenderedTable {
    let table = ImageTable {
        published: include_str!("squashfs.txt"),
        columns: "method | ratio, published | mksquashfs | ours \
            | making to gzip, published | mksquashfs | ours \
            | making MB/s, mksquashfs | ours | ours, verifying \
            | reading to gzip, published | its image | our image \
            | reading MB/s, Linux, its image | Linux, our image | restow mount, our image \
            | making, ours to mksquashfs",
        parts: [
            ("make", &["Linux", "ours", "ours verifying"]),
            ("read", &["Linux", "ours", "ours mounted by restow"]),
        ],
        decimals: 2,
        title: "SquashFS: ratio against speed",
        series: ["mksquashfs", "restow"],
        plots: ["Making", "Reading, mounted by Linux"],
    };
    table.show(record)
}
