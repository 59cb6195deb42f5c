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
/// SquashFS and btrfs images, by whole processes.
mod images;
/// Tables of many kinds of data.
mod kinds;
/// Rounds, ratios, spreads.
mod measure;
/// Mounts, by whole processes.
mod mount;
/// What was asked for.
mod options;
/// The tables of docs/published.md.
mod origin;
/// Codecs under test.
mod peers;
/// Whole processes that take turns.
mod processes;
/// The tables of the documentation.
mod published;
/// Raw samples in files, and tables spliced into the documentation.
mod record;
/// Every corpus at every level.
mod rows;
/// Exact compressed sizes, kept in `bench/sizes.csv`.
mod sizes;
/// One frame, fed and taken in small pieces.
mod stream;
/// Send streams, by whole processes.
mod streams;
/// Rows, cells, means.
mod table;
/// What can be measured, and how the tables of the documentation are made of it.
mod tables;
/// Directories and archives, by whole processes.
mod trees;

use clap::{CommandFactory, Parser};
use options::Options;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = match arguments.first() {
        Some(name) if !name.starts_with('-') => name.as_str(),
        first => {
            let mut help = Options::command().after_long_help(names());
            if first.is_some_and(|flag| flag == "-h" || flag == "--help") {
                println!("{}", help.render_long_help());
                return ExitCode::SUCCESS;
            }
            eprintln!("{}", help.render_long_help());
            return ExitCode::from(2);
        }
    };
    let outcome = match name {
        "published" => origin::tables(&arguments[1..]),
        "device-memory" => origin::device_memory(&arguments),
        "tables" => tables::all(&arguments[1..]),
        "report" => record::splice_all(),
        "sizes" => {
            let words = std::iter::once("cargo xtask bench".to_owned()).chain(arguments.clone());
            sizes::sizes(&Options::parse_from(words))
        }
        "crc32c" => streams::crc32c(Path::new(arguments.get(1).map_or("-", |it| it))),
        "mount" => mount::mount(),
        "streams" => {
            let words = std::iter::once("cargo xtask bench".to_owned()).chain(arguments.clone());
            streams::streams(&Options::parse_from(words))
        }
        _ => tables::measure(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench {name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Everything that has a name.
fn names() -> String {
    let mut text = "Tables of docs/BENCHMARKS.md:\n".to_owned();
    for table in published::PUBLISHED {
        text += &format!("  {}\n", table.name);
    }
    text += "  tables          all of them\n\nWork, to be measured with options of one's own:\n";
    let is_table = |name: &str| published::PUBLISHED.iter().any(|table| table.name == name);
    for (work, _, help) in tables::WORK.iter().filter(|(work, ..)| !is_table(work)) {
        text += &format!("  {work:15} {help}\n");
    }
    text + "\nOther:\n  \
        streams         send streams of --corpus DIR, beside btrfs-progs (as root; prints tables)\n  \
        mount           mounts, beside Linux and squashfuse_ll (as root, on a quiet machine; prints tables)\n  \
        sizes           compare exact sizes with bench/sizes.csv (--update rewrites it)\n  \
        report          put the records of bench/record into docs/BENCHMARKS.md again"
}
