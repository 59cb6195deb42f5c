//! Measures our codecs against others, side by side in one process.
//!
//! A figure is a ratio: in every round each peer does the same work once, in an order that changes from
//! round to round, and the ratio of the two times is taken within the round. What a table shows is the
//! median of these ratios and the spread between the tenth and the ninetieth percentile. Every output is
//! verified outside of the timed part. `docs/BENCHMARKS.md` says more.
#![forbid(unsafe_code)]
#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program that prints tables"
)]

/// Independent frames: encode and decode.
mod blocks;
/// What is compressed.
mod corpus;
/// Corpora that every clone can make.
mod generate;
/// XXH32 and XXH64.
mod hash;
/// SquashFS images, by whole processes.
mod images;
/// Rounds, ratios, spreads.
mod measure;
/// What was asked for.
mod options;
/// Codecs under test.
mod peers;
/// Raw samples in files, and tables spliced into the documentation.
mod record;
/// Exact compressed sizes, kept in `bench/sizes.csv`.
mod sizes;
/// One frame, fed and taken in small pieces.
mod stream;
/// Rows, cells, means.
mod table;

use options::Options;
use std::process::ExitCode;

type Task = fn(&Options) -> Result<(), String>;

const TASKS: &[(&str, Task, &str)] = &[
    (
        "decode",
        blocks::decode,
        "independent frames made by C, decoded",
    ),
    ("encode", blocks::encode, "independent frames, encoded"),
    (
        "stream-decode",
        stream::decode,
        "one frame made by C, decoded in 4096-byte pieces",
    ),
    (
        "stream-encode",
        stream::encode,
        "one frame, encoded in 4096-byte pieces",
    ),
    (
        "hash",
        hash::hash,
        "XXH32 and XXH64 of 4 KiB, 128 KiB and 10 MB",
    ),
    (
        "squashfs",
        images::create,
        "SquashFS images of --corpus directories made, beside mksquashfs and gensquashfs",
    ),
    (
        "unsquashfs",
        images::extract,
        "SquashFS images of --corpus directories unpacked, beside unsquashfs",
    ),
    (
        "sizes",
        sizes::sizes,
        "compare exact sizes with bench/sizes.csv (--update rewrites it)",
    ),
    (
        "report",
        record::report,
        "splice the tables of bench/record into docs/BENCHMARKS.md",
    ),
];

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let name = args.next().unwrap_or_default();
    let Some((_, task, _)) = TASKS.iter().find(|(task, ..)| *task == name) else {
        eprintln!("bench TASK [OPTION...]\n");
        for (task, _, help) in TASKS {
            eprintln!("  {task:14} {help}");
        }
        eprintln!("\n{}", options::HELP);
        return ExitCode::from(2);
    };
    match Options::parse(args).and_then(|options| task(&options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench {name}: {error}");
            ExitCode::FAILURE
        }
    }
}
