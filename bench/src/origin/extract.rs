//! The extraction benchmark: a tar archive is copied to a file system, extracted there, and the tree read through tar.

use std::fs;
use std::path::Path;

use super::page::{Shown, cell, groups, markdown, over};
use super::record::Record;
use super::settings::Settings;
use super::work::{Work, run};
use crate::measure;

/// Method, the mount option, what restow calls it, and the published ratios of archive and tree, and seconds of copying, extracting
/// and reading.
type Published = (&'static str, &'static str, &'static str, [f64; 5]);

/// Of the patches that added zstd to btrfs.
const PUBLISHED: [Published; 4] = [
    ("none", "rw", "none", [0.97, 0.78, 0.981, 5.501, 8.807]),
    (
        "lzo",
        "compress-force=lzo",
        "lzo",
        [2.06, 1.38, 1.631, 8.458, 8.585],
    ),
    (
        "zlib",
        "compress-force=zlib",
        "zlib:3",
        [3.40, 1.86, 7.750, 21.544, 11.744],
    ),
    (
        "zstd 1",
        "compress-force=zstd:1",
        "zstd:1",
        [3.57, 1.85, 2.579, 11.479, 9.389],
    ),
];

const STEPS: [&str; 3] = ["copy", "extract", "read"];

/// Bytes of the tree if there is no source of Linux, and rounds.
const BYTES: usize = 64 << 20;
const ROUNDS: usize = 5;

pub(super) fn measure(settings: &Settings, record: &mut Record) -> Result<(), String> {
    let work = Work::new(settings)?;
    let said = archive(&work, settings)?;
    let bench = Bench {
        tree: work.make("extracted")?,
        point: work.make("point")?,
        archive: work.path("source/archive.tar"),
        work: &work,
    };
    run("tar", &["-xf", &bench.archive, "-C", &bench.tree])?;
    let version = run("mkfs.btrfs", &["--version"])?;
    let version = version.lines().next().unwrap_or_default();
    record.say("peers", format!("{version}; {} threads", work.threads()));
    let rounds = settings.rounds_or(ROUNDS);
    record.say(
        "data",
        format!("In place of linux-4.11.6.tar: {said}; medians of {rounds} rounds"),
    );
    let sizes = [work.bytes_of(&bench.archive)?, work.bytes_of(&bench.tree)?];
    for (method, option, compress, _) in PUBLISHED {
        for round in 0..rounds {
            for who in measure::order(round, 2) {
                match who {
                    0 => bench.linux(record, method, option, sizes, round == 0)?,
                    _ => bench.ours(record, method, compress, sizes, round == 0)?,
                }
            }
        }
        println!("  {method}");
    }
    Ok(())
}

/// Puts an archive into `source/archive.tar`: what was named, the usual part of a kernel's source, or a part of /usr.
fn archive(work: &Work, settings: &Settings) -> Result<String, String> {
    work.make("source")?;
    let to = work.path("source/archive.tar");
    let named = settings
        .corpus
        .first()
        .map(|path| settings.corpora.join(path));
    let usual = settings.corpora.join("linux.tar");
    let given = named.or_else(|| usual.is_file().then_some(usual));
    if let Some(path) = given.filter(|path| path.is_file() && !settings.quick) {
        fs::copy(&path, &to).map_err(|error| format!("copy {}: {error}", path.display()))?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        return Ok(format!("{name}, {} bytes", work.bytes_of(&to)?));
    }
    let sources = Path::new("/usr/src/linux-source-6.1.tar.xz");
    let (tree, said) = if sources.is_file() && !settings.quick && settings.corpus.is_empty() {
        let tree = work.make("kernel")?;
        let source = sources.display().to_string();
        let parts = ["fs", "kernel", "lib"].map(|part| format!("linux-source-6.1/{part}"));
        run(
            "tar",
            &["-xf", &source, "-C", &tree, &parts[0], &parts[1], &parts[2]],
        )?;
        (tree, "fs, kernel and lib of Linux 6.1".to_owned())
    } else {
        work.tree(settings, BYTES)?
    };
    run(
        "tar",
        &[
            "-cf",
            &to,
            "--sort=name",
            "--owner=0",
            "--group=0",
            "-C",
            &tree,
            ".",
        ],
    )?;
    Ok(format!(
        "{said}, an archive of {} bytes",
        work.bytes_of(&to)?
    ))
}

/// What all methods have in common.
struct Bench<'a> {
    work: &'a Work,
    archive: String,
    /// The tree of the archive.
    tree: String,
    point: String,
}

impl Bench<'_> {
    /// Linux: each step ends when all is on disk, and the next begins after another mount.
    fn linux(
        &self,
        record: &mut Record,
        method: &str,
        option: &str,
        sizes: [u64; 2],
        verifies: bool,
    ) -> Result<(), String> {
        let (work, point, image) = (self.work, &*self.point, self.work.path("linux.btrfs"));
        let again = || -> Result<(), String> {
            run("umount", &[point])?;
            work.mount("btrfs", option, &image, point)
        };
        let timed = |record: &mut Record, step: &str, work: &dyn Fn() -> Result<(), String>| {
            record.timed([step, method, "Linux"], || {
                work()?;
                run("sync", &["-f", point])
            })
        };
        work.mkfs_btrfs(&image, 3 * (sizes[0] + sizes[1]) + (1 << 30))?;
        work.mount("btrfs", option, &image, point)?;
        let (copied, tree) = (format!("{point}/archive.tar"), format!("{point}/tree"));
        timed(record, "copy", &|| {
            run("cp", &[&self.archive, &copied]).map(drop)
        })?;
        record.add(
            "ratio",
            method,
            "Linux",
            "archive",
            sizes[0] as f64 / work.used(point)? as f64,
        );
        again()?;
        run("mkdir", &[&tree])?;
        timed(record, "extract", &|| {
            run("tar", &["-xf", &copied, "-C", &tree]).map(drop)
        })?;
        fs::remove_file(&copied).map_err(|error| format!("remove {copied}: {error}"))?;
        run("sync", &["-f", point])?;
        again()?;
        record.add(
            "ratio",
            method,
            "Linux",
            "tree",
            sizes[1] as f64 / work.used(point)? as f64,
        );
        timed(record, "read", &|| self.read(&tree))?;
        if verifies {
            // An archive may say nothing of its root, whose time then is that of the extraction.
            let args = ["diff", "-q", "--ignore", "mtime", &self.tree, &tree];
            run(&work.restow, &args)?;
        }
        run("umount", &[point])?;
        fs::remove_file(&image).map_err(|error| format!("remove {image}: {error}"))
    }

    /// restow: an image of the archive as a file, an image of its tree, which Linux mounts, and restow.
    fn ours(
        &self,
        record: &mut Record,
        method: &str,
        compress: &str,
        sizes: [u64; 2],
        verifies: bool,
    ) -> Result<(), String> {
        let (work, point) = (self.work, &*self.point);
        let source = work.path("source");
        for (step, metric, from, name, size) in [
            ("copy", "archive", &source, "copied.btrfs", sizes[0]),
            (
                "extract",
                "tree",
                &self.archive,
                "extracted.btrfs",
                sizes[1],
            ),
        ] {
            let image = work.path(name);
            record.timed([step, method, "ours"], || {
                work.btrfs_image(compress, from, &image)
            })?;
            work.mount("btrfs", "ro", &image, point)?;
            record.add(
                "ratio",
                method,
                "ours",
                metric,
                size as f64 / work.used(point)? as f64,
            );
            if step == "extract" {
                self.timed_read(record, method, "ours")?;
            }
            run("umount", &[point])?;
        }
        let image = work.path("extracted.btrfs");
        run(&work.restow, &["mount", &image, point])?;
        self.timed_read(record, method, "ours mounted by restow")?;
        run("umount", &[point])?;
        if verifies {
            run(&work.restow, &["diff", "-q", &self.archive, &image])?;
            run(
                &work.restow,
                &["diff", "-q", &source, &work.path("copied.btrfs")],
            )?;
        }
        Ok(())
    }

    fn timed_read(&self, record: &mut Record, method: &str, who: &str) -> Result<(), String> {
        record.timed(["read", method, who], || self.read(&self.point))
    }

    /// Reads the tree, which must be as long as the one that was extracted beside.
    fn read(&self, tree: &str) -> Result<(), String> {
        let (read, content) = (self.work.tar_bytes(tree)?, self.work.tar_bytes(&self.tree)?);
        if read == content {
            Ok(())
        } else {
            Err(format!(
                "tar reads {read} bytes from {tree} instead of {content}"
            ))
        }
    }
}

pub(super) fn show(record: &Record) -> Shown {
    let ratio = |method, who, metric| record.median("ratio", method, who, metric);
    let seconds = |step, method, who| record.median(step, method, who, "seconds");
    let first = PUBLISHED[0];
    let mut rows = Vec::new();
    let mut bars = Vec::new();
    for (method, _, _, published) in PUBLISHED {
        let mut row = vec![method.to_owned()];
        for (at, metric) in ["archive", "tree"].into_iter().enumerate() {
            row.push(cell(Some(published[at]), 2));
            row.extend(["Linux", "ours"].map(|who| cell(ratio(method, who, metric), 3)));
        }
        rows.push(row);
    }
    let columns = [
        "method",
        "ratio of the archive, published",
        "Linux",
        "our image",
        "ratio of the tree, published",
        "Linux",
        "our image",
    ];
    let mut text = markdown(&columns, &rows);
    let mut rows = Vec::new();
    for (at, step) in STEPS.into_iter().enumerate() {
        for (method, _, _, published) in PUBLISHED {
            let (linux, ours) = (
                seconds(step, method, "Linux"),
                seconds(step, method, "ours"),
            );
            rows.push(vec![
                step.to_owned(),
                method.to_owned(),
                cell(over(Some(published[at + 2]), Some(first.3[at + 2])), 3),
                cell(over(linux, seconds(step, first.0, "Linux")), 3),
                cell(over(ours, seconds(step, first.0, "ours")), 3),
                cell(linux, 3),
                cell(ours, 3),
                cell(over(ours, linux), 3),
                cell(seconds(step, method, "ours mounted by restow"), 3),
            ]);
            bars.push((format!("{step}, {method}"), vec![(0, linux), (1, ours)]));
        }
    }
    text += "\n";
    text += &markdown(
        &[
            "step",
            "method",
            "time to none, published",
            "Linux",
            "ours",
            "s, Linux",
            "s, ours",
            "ours to Linux",
            "s, restow mount",
        ],
        &rows,
    );
    let plot = groups(
        "Seconds to copy an archive, to extract it and to read the tree",
        &["Linux", "restow"],
        &bars,
    );
    Shown { text, plot }
}
