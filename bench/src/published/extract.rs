//! The extraction benchmark: a tar archive is copied to a file system, extracted there, and the
//! tree read through tar.

use std::fs;
use std::path::Path;

use crate::cells::{cell, markdown, over};
use crate::measure;
use crate::options::{Options, file_name};
use crate::plot::groups;
use crate::record::TableRecord;
use crate::scratch::{
    ScratchDir, bytes_of, mount, read_tar, run, tar_bytes, threads, used, version,
};
use crate::table::RenderedTable;

/// Methods: name, mount option, and codec of restow.
const METHODS: [[&str; 3]; 4] = [
    ["none", "rw", "none"],
    ["lzo", "compress-force=lzo", "lzo"],
    ["zlib", "compress-force=zlib", "zlib:3"],
    ["zstd 1", "compress-force=zstd:1", "zstd:1"],
];

const STEPS: [&str; 3] = ["copy", "extract", "read"];

/// Bytes of the tree if there is no source of Linux, and rounds.
const BYTES: usize = 64 << 20;
const ROUNDS: usize = 5;

/// Measures all methods.
pub(crate) fn measure(options: &Options, record: &mut TableRecord) -> Result<(), String> {
    let scratch = ScratchDir::new(options)?;
    let said = archive(&scratch, options)?;
    let (tree, archive) = (
        scratch.make("extracted")?,
        scratch.path("source/archive.tar"),
    );
    run("tar", &["-xf", &archive, "-C", &tree])?;
    let mkfs = version("mkfs.btrfs", "--version");
    record.say("peers", format!("{mkfs}; {} threads", threads()));
    let rounds = options.rounds_or(ROUNDS);
    record.say("rounds", format!("medians of {rounds}"));
    record.say("data", format!("In place of linux-4.11.6.tar: {said}"));
    let trial = ExtractTrial {
        sizes: [bytes_of(&archive)?, bytes_of(&tree)?],
        content: tar_bytes(&tree)?,
        point: scratch.make("point")?,
        scratch: &scratch,
        archive,
        tree,
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
        for step in STEPS {
            record.print_row(step, method);
        }
    }
    Ok(())
}

/// Puts an archive into `source/archive.tar`: the named one, the usual part of a kernel's source,
/// or a part of /usr.
fn archive(scratch: &ScratchDir, options: &Options) -> Result<String, String> {
    scratch.make("source")?;
    let to = scratch.path("source/archive.tar");
    let usual = options.corpora.join("linux.tar");
    let given = options.paths().next().unwrap_or(usual);
    if given.is_file() && !options.quick {
        fs::copy(&given, &to).map_err(|error| format!("copy {}: {error}", given.display()))?;
        return Ok(format!("{}, {} bytes", file_name(&given), bytes_of(&to)?));
    }
    let sources = Path::new("/usr/src/linux-source-6.1.tar.xz");
    let (tree, said) = if sources.is_file() && !options.quick && options.corpus.is_empty() {
        let tree = scratch.make("kernel")?;
        let source = sources.display().to_string();
        let [fs, kernel, lib] = ["fs", "kernel", "lib"].map(|it| format!("linux-source-6.1/{it}"));
        run("tar", &["-xf", &source, "-C", &tree, &fs, &kernel, &lib])?;
        (tree, "fs, kernel and lib of Linux 6.1".to_owned())
    } else {
        scratch.tree(options, BYTES)?
    };
    let how = ["--sort=name", "--owner=0", "--group=0", "-C", &tree, "."];
    run("tar", &[&["-cf", &*to], &how[..]].concat())?;
    Ok(format!("{said}, an archive of {} bytes", bytes_of(&to)?))
}

/// The data of all methods.
struct ExtractTrial<'a> {
    scratch: &'a ScratchDir,
    archive: String,
    /// The tree of the archive.
    tree: String,
    /// Bytes of the archive and of the tree.
    sizes: [u64; 2],
    /// Bytes of an archive of the tree.
    content: u64,
    point: String,
}

impl ExtractTrial<'_> {
    /// Linux: each step ends when all is on disk, and the next begins after another mount.
    fn linux(
        &self,
        record: &mut TableRecord,
        method: &str,
        option: &str,
        verifies: bool,
    ) -> Result<(), String> {
        let (point, image) = (&*self.point, self.scratch.path("linux.btrfs"));
        let again = || -> Result<(), String> {
            run("umount", &[point])?;
            mount("btrfs", option, &image, point)
        };
        let timed = |record: &mut TableRecord, step: &str, words: &[&str]| {
            record.timed([step, method, "Linux"], || {
                run(words[0], &words[1..])?;
                run("sync", &["-f", point])
            })
        };
        let room = 3 * (self.sizes[0] + self.sizes[1]) + (1 << 30);
        self.scratch.mkfs_btrfs(&image, room)?;
        mount("btrfs", option, &image, point)?;
        let (copied, tree) = (format!("{point}/archive.tar"), format!("{point}/tree"));
        timed(record, "copy", &["cp", &self.archive, &copied])?;
        self.add_ratio(record, method, "Linux", 0)?;
        again()?;
        run("mkdir", &[&tree])?;
        timed(record, "extract", &["tar", "-xf", &copied, "-C", &tree])?;
        fs::remove_file(&copied).map_err(|error| format!("remove {copied}: {error}"))?;
        run("sync", &["-f", point])?;
        again()?;
        self.add_ratio(record, method, "Linux", 1)?;
        record.timed(["read", method, "Linux"], || read_tar(&tree, self.content))?;
        if verifies {
            self.scratch.verify(&self.tree, &tree)?;
        }
        run("umount", &[point])?;
        fs::remove_file(&image).map_err(|error| format!("remove {image}: {error}"))
    }

    /// restow: an image of the archive as a file, an image of its tree, which Linux mounts, and
    /// restow.
    fn ours(
        &self,
        record: &mut TableRecord,
        method: &str,
        codec: &str,
        verifies: bool,
    ) -> Result<(), String> {
        let (scratch, point) = (self.scratch, &*self.point);
        let source = scratch.path("source");
        let images = ["copied.btrfs", "extracted.btrfs"].map(|name| scratch.path(name));
        for (at, from) in [&source, &self.archive].into_iter().enumerate() {
            record.timed([STEPS[at], method, "ours"], || {
                scratch.btrfs_image(codec, from, &images[at])
            })?;
            mount("btrfs", "ro", &images[at], point)?;
            self.add_ratio(record, method, "ours", at)?;
            if at == 1 {
                record.timed(["read", method, "ours"], || read_tar(point, self.content))?;
            }
            run("umount", &[point])?;
        }
        run(&scratch.restow, &["mount", &images[1], point])?;
        let mounted = ["read", method, "ours mounted by restow"];
        record.timed(mounted, || read_tar(point, self.content))?;
        run("umount", &[point])?;
        if verifies {
            run(&scratch.restow, &["diff", "-q", &source, &images[0]])?;
            run(&scratch.restow, &["diff", "-q", &self.archive, &images[1]])?;
        }
        Ok(())
    }

    /// Adds the size of the archive or of the tree over the used space.
    fn add_ratio(
        &self,
        record: &mut TableRecord,
        method: &str,
        peer: &str,
        at: usize,
    ) -> Result<(), String> {
        let ratio = self.sizes[at] as f64 / used(&self.point)? as f64;
        record.add("ratio", method, peer, ["archive", "tree"][at], ratio);
        Ok(())
    }
}

/// The tables.
pub(crate) fn show(record: &TableRecord) -> RenderedTable {
    let then = TableRecord::parse(include_str!("extract.txt")).unwrap_or_default();
    let value = |part: &str, method: &str, peer: &str, metric: &str| {
        let record = if peer == "published" { &then } else { record };
        record.value(part, method, peer, metric)
    };
    let peers = ["published", "Linux", "ours"];
    let ratios = METHODS.map(|[method, ..]| {
        let cells = ["archive", "tree"].into_iter().flat_map(|metric| {
            let ratio = |peer| value("ratio", method, peer, metric);
            [
                cell(ratio(peers[0]), 2),
                cell(ratio(peers[1]), 3),
                cell(ratio(peers[2]), 3),
            ]
        });
        [method.to_owned()].into_iter().chain(cells).collect()
    });
    let (mut rows, mut bars) = (Vec::new(), Vec::new());
    for step in STEPS {
        for [method, ..] in METHODS {
            let seconds = |method, peer| value(step, method, peer, "seconds");
            let [then, linux, ours] = peers.map(|peer| seconds(method, peer));
            let mut row = vec![step.to_owned(), method.to_owned()];
            let to_none = |peer| over(seconds(method, peer), seconds(METHODS[0][0], peer));
            row.extend(peers.map(|peer| cell(to_none(peer), 3)));
            let mounted = seconds(method, "ours mounted by restow");
            row.extend([then, linux, ours, over(ours, linux), mounted].map(|it| cell(it, 3)));
            rows.push(row);
            bars.push((format!("{step}, {method}"), vec![(0, linux), (1, ours)]));
        }
    }
    let columns = "method | ratio of the archive, published | Linux | our image \
        | ratio of the tree, published | Linux | our image";
    let step_columns = "step | method | time to none, published | Linux | ours | s, published | Linux | ours \
        | ours to Linux | s, restow mount";
    let title = "Seconds to copy an archive, to extract it and to read the tree";
    RenderedTable {
        text: format!(
            "{}\n{}",
            markdown(columns, &ratios),
            markdown(step_columns, &rows)
        ),
        plot: Some(groups(title, &["Linux", "restow"], &bars)),
    }
}
