//! The send benchmark: a tree is sent and received in each mode.

use std::path::Path;

use super::page::{Shown, cell, groups, markdown, mb, over};
use super::record::Record;
use super::settings::Settings;
use super::work::{Work, run};
use crate::streams;

/// System time of compressed data over that of version 1, to send and to receive: from the patches that brought compressed streams.
const PUBLISHED: [(&str, f64); 2] = [("send", 0.74), ("receive", 0.70)];

/// Steps of compressed data, and those of version 1 with which they are compared.
const COMPARED: [(&str, &str, [&str; 2]); 2] = [
    ("send", "send", ["send v1", "send compressed"]),
    (
        "receive",
        "receive",
        ["receive v1, force", "receive compressed"],
    ),
];

/// Bytes of the tree, and rounds.
const BYTES: usize = 128 << 20;
const ROUNDS: usize = 5;

pub(super) fn measure(settings: &Settings, record: &mut Record) -> Result<(), String> {
    let work = Work::new(settings)?;
    let (tree, said) = work.tree(settings, BYTES)?;
    record.say(
        "peers",
        run("btrfs", &["--version"])?
            .lines()
            .next()
            .unwrap_or_default(),
    );
    let rounds = settings.rounds_or(ROUNDS);
    record.say(
        "data",
        format!("{said}, in a btrfs with compress-force=zstd:3; medians of {rounds} rounds"),
    );
    let (sizes, all) = streams::measured(Path::new(&tree), &work.dir, rounds)?;
    for (name, bytes) in sizes {
        record.add("stream", name, "Linux", "bytes", bytes as f64);
    }
    for of in all {
        // Names of steps have commas.
        let step = of.step.replace(',', ";");
        for cost in of.costs {
            for (metric, value) in [
                ("user", cost.user),
                ("system", cost.system),
                ("elapsed", cost.elapsed),
                ("memory", cost.memory_kib * 1024.0),
            ] {
                record.add(&step, &of.program.replace(',', ";"), "-", metric, value);
            }
        }
    }
    Ok(())
}

/// The steps, in the order in which they are measured, with the programs.
const STEPS: [(&str, &[&str]); 9] = [
    ("check v1", CHECKS),
    ("send v1", SENDERS),
    ("receive v1; none", RECEIVERS),
    ("receive v1; force", RECEIVERS),
    ("check compressed", CHECKS),
    ("send compressed", SENDERS),
    ("receive compressed", RECEIVERS),
    ("receive; decompressed", RECEIVERS),
    (
        "convert v1 to zstd:3",
        &["restow stream convert -j1", "restow stream convert -j2"],
    ),
];
const CHECKS: &[&str] = &[
    "CRC-32C alone",
    "restow stream verify --no-data",
    "restow stream dump",
    "restow receive --dump",
    "btrfs receive --dump",
];
const SENDERS: &[&str] = &["btrfs send", "restow send; mounted", "restow send; image"];
const RECEIVERS: &[&str] = &[
    "btrfs receive",
    "restow receive",
    "restow receive --no-read-back",
];

pub(super) fn show(record: &Record) -> Shown {
    let of = |step: &str, program: &str, metric| {
        record.median(
            &step.replace(',', ";"),
            &program.replace(',', ";"),
            "-",
            metric,
        )
    };
    let mut text = String::new();
    let rows = record.rows("stream");
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|name| {
            vec![
                name.to_owned(),
                cell(record.median("stream", name, "Linux", "bytes"), 0),
            ]
        })
        .collect();
    text += &markdown(&["stream", "bytes"], &rows);
    let mut rows = Vec::new();
    let mut bars = Vec::new();
    for (step, programs) in STEPS {
        for (place, program) in programs.iter().enumerate() {
            let elapsed = of(step, program, "elapsed");
            rows.push(vec![
                step.replace(';', ","),
                program.replace(';', ","),
                cell(of(step, program, "user"), 2),
                cell(of(step, program, "system"), 2),
                cell(elapsed, 3),
                cell(over(elapsed, of(step, programs[0], "elapsed")), 3),
                cell(mb(of(step, program, "memory")), 1),
            ]);
            if step.starts_with("send") || step.starts_with("receive") {
                let name = if place == 0 {
                    step.replace(';', ",")
                } else {
                    String::new()
                };
                let series = usize::from(place > 0) + usize::from(place > 1);
                if place == 0 {
                    bars.push((name, Vec::new()));
                }
                if let Some((_, group)) = bars.last_mut() {
                    group.push((series, elapsed));
                }
            }
        }
    }
    text += "\n";
    text += &markdown(
        &[
            "step",
            "program",
            "user s",
            "system s",
            "elapsed s",
            "to the first",
            "MB of memory",
        ],
        &rows,
    );
    let system =
        |[v1, v2]: [&str; 2], program| over(of(v2, program, "system"), of(v1, program, "system"));
    let rows: Vec<Vec<String>> = COMPARED
        .iter()
        .zip(PUBLISHED)
        .map(|((name, _, steps), (_, published))| {
            let (linux, ours) = if *name == "send" {
                ("btrfs send", "restow send, mounted")
            } else {
                ("btrfs receive", "restow receive")
            };
            vec![
                (*name).to_owned(),
                cell(Some(published), 2),
                cell(system(*steps, linux), 2),
                cell(system(*steps, ours), 2),
            ]
        })
        .collect();
    text += "\nSystem time with compressed data, as a ratio to version 1:\n\n";
    text += &markdown(&["work", "published", "btrfs-progs", "restow"], &rows);
    let series = [
        "btrfs-progs",
        "restow (sends mounted)",
        "restow (sends image; no read-back)",
    ];
    let plot = groups("Elapsed seconds of sending and receiving", &series, &bars);
    Shown { text, plot }
}
