//! The SquashFS benchmark: images of a tree are made with each codec, mounted by Linux, and read through tar.

use std::fs;
use std::time::Instant;

use super::page::{Shown, cell, markdown, mb, over, speeds};
use super::record::Record;
use super::settings::{Settings, Work, run};

/// Method, how mksquashfs and restow call it, and the published ratio and MB/s of making and of reading.
type Published = (&'static str, &'static str, &'static str, [f64; 3]);

/// Of the commit that added zstd to SquashFS in Linux 4.14.
const PUBLISHED: [Published; 10] = [
    ("gzip", "-comp gzip", "gzip:9", [2.92, 15.0, 128.0]),
    ("lzo", "-comp lzo", "lzo", [2.64, 9.5, 217.0]),
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
    let bytes = work.bytes_of(&tree)?;
    let content = work.tar_bytes(&tree)?;
    let images =
        ["linux.squashfs", "ours.squashfs", "verified.squashfs"].map(|name| work.path(name));
    let point = work.make("point")?;
    for (method, theirs, ours, _) in PUBLISHED {
        let block = if theirs.contains("-b ") {
            "256K"
        } else {
            "128K"
        };
        let mut making: Vec<(&str, Vec<&str>)> = Vec::new();
        let mut args = vec![
            "mksquashfs",
            &*tree,
            &*images[0],
            "-noappend",
            "-quiet",
            "-no-progress",
            "-processors",
            &*threads,
        ];
        args.extend(theirs.split(' '));
        making.push(("Linux", args));
        let restow = work.restow.to_str().ok_or("a path is not text")?;
        for (who, image, more) in [
            ("ours", &images[1], Some("--no-verify")),
            ("ours verifying", &images[2], None),
        ] {
            let mut args = vec![
                restow,
                "copy",
                "-q",
                "--overwrite",
                "-j",
                &*threads,
                "--compress",
                ours,
                "--block-size",
                block,
            ];
            args.extend(more);
            args.extend([&*tree, &**image]);
            making.push((who, args));
        }
        for round in 0..rounds {
            for step in 0..making.len() {
                let at = if round % 2 == 0 {
                    step
                } else {
                    making.len() - 1 - step
                };
                let (who, args) = &making[at];
                let _ = fs::remove_file(&images[at]);
                let start = Instant::now();
                run(args[0], &args[1..])?;
                record.add(
                    "make",
                    method,
                    who,
                    "seconds",
                    start.elapsed().as_secs_f64(),
                );
            }
            for step in 0..3 {
                let at = if round % 2 == 0 { step } else { 2 - step };
                let (who, image) = [
                    ("Linux", &images[0]),
                    ("ours", &images[1]),
                    ("ours mounted by restow", &images[1]),
                ][at];
                if at < 2 {
                    work.mount("squashfs", "ro", image, &point)?;
                } else {
                    run(&work.restow, &["mount", image, &point])?;
                }
                let start = Instant::now();
                let read = work.tar_bytes(&point)?;
                record.add(
                    "read",
                    method,
                    who,
                    "seconds",
                    start.elapsed().as_secs_f64(),
                );
                run("umount", &[&point])?;
                if read != content {
                    return Err(format!(
                        "{method}, {who}: tar reads {read} bytes instead of {content}"
                    ));
                }
            }
        }
        for (who, image) in [("Linux", &images[0]), ("ours", &images[1])] {
            run(
                &work.restow,
                &["diff", "-q", "--ignore", "mtime", &tree, image],
            )?;
            let size = fs::metadata(image)
                .map_err(|error| format!("{image}: {error}"))?
                .len();
            record.add("make", method, who, "bytes out", size as f64);
            record.add("make", method, who, "bytes in", bytes as f64);
        }
        println!("  {method}");
    }
    Ok(())
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
