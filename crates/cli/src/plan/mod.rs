//! `restow plan`: predicts what a copy would cost with each codec, and recommends one.

mod advice;
mod json;
mod medium;
mod picture;
mod rates;
mod report;
mod table;

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use restow::plan::{
    Candidate, Container, Limits, PlanOptions, Prediction, PredictionStage, Reason, front,
};
use restow::{Address, Kernel, SourceTree};
use tree::Progress;

use crate::bar::Bar;
use crate::message::tell;
use crate::options::{QuietArgs, SOURCE_HELP, SOURCE_LONG_HELP, SourceArgs, ThreadArgs, bytes};

use report::{Advice, Report};

/// Predict size and time of a copy for each codec, level and block size, and recommend one
///
/// Cuts the files as the container would, encodes everything once with a fast encoder (of a large
/// tree, a part), and a sample with each candidate, and decodes and compares the results. The
/// tables of an image are made as for a copy, so their size counts. Writes nothing except FILE.
///
/// A copy is written once and read often: without a limit, twice the time to copy, or to read all
/// with one thread, must save 5 % of the size, and twice the memory of a reader 1 %. With
/// --max-time, the recommendation is the smallest in that time; with --max-size, the fastest of
/// that size; with --link, the one that is sent and unpacked first. The whole error bar, which
/// holds 95 of 100 results, must keep a limit. Times are for this machine when idle.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow plan src                             which codec for a SquashFS image?
  restow plan --for btrfs --max-time 2m src   the smallest btrfs image in two minutes
  restow plan --for tar --link 100Mbit src    the archive that arrives first
  restow plan --max-size 600M src             the fastest copy of at most 600 MiB
  restow plan --html plan.html src            plots and a table for a browser

Exit codes: 0 success; 1 no candidate keeps the limits; 2 failure.")]
pub(crate) struct Plan {
    #[arg(help = SOURCE_HELP, long_help = SOURCE_LONG_HELP)]
    src: PathBuf,

    /// Format of the copy
    #[arg(long = "for", value_name = "FORMAT", default_value = "squashfs")]
    container: For,

    /// Predict EROFS images that Linux VERSION and newer can read [default: 6.12]
    #[arg(long, value_name = "VERSION")]
    min_kernel: Option<Kernel>,

    /// Limit the copy to TIME, as in 90s, 5m or 1h30m
    #[arg(long, value_name = "TIME", value_parser = rates::seconds, help_heading = "Limits")]
    max_time: Option<f64>,

    /// Limit the result to BYTES
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Limits")]
    max_size: Option<u64>,

    /// Limit a reader's memory for decoding to BYTES
    #[arg(long, value_name = "BYTES", value_parser = bytes, help_heading = "Limits")]
    max_memory: Option<u64>,

    /// Require a decoding speed of at least RATE bytes a second per thread, as in 500MB
    #[arg(long, value_name = "RATE", value_parser = rates::rate, help_heading = "Limits")]
    read_rate: Option<f64>,

    /// Minimize the time to send the result over a link of RATE, as in 100Mbit or 12MB (a second),
    /// and to unpack it
    #[arg(long, value_name = "RATE", value_parser = rates::rate, help_heading = "Limits")]
    link: Option<f64>,

    /// Encode about BYTES with each candidate
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "24M", help_heading = "Sampling")]
    sample: u64,

    /// Encode about BYTES with the fast encoder, if there are more
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "2G", help_heading = "Sampling")]
    first_pass: u64,

    /// Seed for choosing the sample
    #[arg(long, value_name = "N", default_value = "0", help_heading = "Sampling")]
    seed: u64,

    /// Assume that the destination stores RATE bytes a second [default: measured with an unnamed
    /// file in the current directory]
    #[arg(long, value_name = "RATE", value_parser = rates::rate, help_heading = "Sampling")]
    write_rate: Option<f64>,

    /// Try only CODEC, as for --compress of `restow copy` (repeatable) [default: a selection]
    #[arg(long = "try", value_name = "CODEC", help_heading = "Sampling")]
    only: Vec<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Draw ratio against speed as SVG into FILE, which is overwritten
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write plots and table as an HTML page into FILE, which is overwritten
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    quiet: QuietArgs,

    #[command(flatten)]
    threads: ThreadArgs,

    #[command(flatten)]
    source: SourceArgs,
}

/// The format of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum For {
    /// A SquashFS image
    Squashfs,
    /// A btrfs image
    Btrfs,
    /// A tar archive, compressed or not
    Tar,
    /// A btrfs send stream
    Stream,
    /// An EROFS image
    Erofs,
}

impl For {
    fn container(self) -> Container {
        match self {
            For::Squashfs => Container::Squashfs,
            For::Btrfs => Container::Btrfs,
            For::Tar => Container::Tar,
            For::Stream => Container::Stream,
            For::Erofs => Container::Erofs,
        }
    }
}

/// Prints predictions and a recommendation. Returns whether the recommended candidate keeps the
/// limits.
///
/// # Errors
/// The source cannot be read, or a file cannot be written.
pub(crate) fn run(args: &Plan) -> Result<bool> {
    let begun = Instant::now();
    let container = args.container.container();
    let mut options = PlanOptions::new(container)
        .candidates(candidates(args, container)?)
        .parallel(args.threads.parallel())
        .seed(args.seed)
        .first_bytes(args.first_pass)
        .sample_bytes(args.sample)
        .medium(medium::of(args.write_rate));
    if let Some(kernel) = args.min_kernel {
        if container != Container::Erofs {
            bail!("--min-kernel applies to EROFS images only (--for erofs)");
        }
        options.min_kernel = kernel;
    }
    let start = Instant::now();
    let address = Address::of(&args.src)?;
    let source = args.source.open(&address, args.container == For::Btrfs)?;
    let notes = source.notes().iter().filter(|_| !args.quiet.quiet);
    for note in notes.chain(source.lost()) {
        tell(&format!("{}: {note}", source.name()));
    }
    let bar = Bar::new("planned", args.json || args.quiet.quiet);
    bar.expect(None, Some(options.candidates.len() as u64));
    let prediction = source.plan(&options, &|| start.elapsed(), &|stage| {
        bar.advance(0, u64::from(matches!(stage, PredictionStage::Try(_))));
    })?;
    bar.finish();
    let report = report(args, &source, &options, prediction, begun);
    write_files(args, &report)?;
    let mut out = io::stdout().lock();
    if args.json {
        out.write_all(json::of(&report).as_bytes())?;
    } else {
        let is_terminal = io::stdout().is_terminal();
        out.write_all(table::of(&report, is_terminal).as_bytes())?;
    }
    out.flush()?;
    let keeps = |advice: &Advice| advice.choice.reason == Reason::Best;
    Ok(report.advice.as_ref().is_none_or(keeps))
}

fn report<'a>(
    args: &'a Plan,
    source: &SourceTree,
    options: &PlanOptions,
    prediction: Prediction,
    begun: Instant,
) -> Report<'a> {
    let limits = Limits {
        seconds_max: args.max_time,
        bytes_max: args.max_size.map(|bytes| bytes as f64),
        read_rate: args.read_rate,
        memory_max: args.max_memory,
        link_rate: args.link,
    };
    let mut order: Vec<usize> = (0..prediction.rows.len()).collect();
    order.sort_by(|&a, &b| {
        let seconds = |row: usize| prediction.rows[row].seconds.value;
        seconds(a).total_cmp(&seconds(b))
    });
    let mut report = Report {
        seed: args.seed,
        given_threads: args.threads.given(),
        min_kernel: args.min_kernel,
        src: &args.src,
        name: source.name().to_owned(),
        container: options.container,
        threads: options.parallel.threads(),
        write_rate: options.medium.rate,
        seconds: begun.elapsed().as_secs_f64(),
        limits,
        front: front(&prediction.rows),
        prediction,
        order,
        advice: None,
    };
    let is_stored = {
        let storage = source.tree().storage();
        storage.stored_extents || storage.block_encoding.is_some()
    };
    report.advice = advice::of(&report, is_stored);
    report
}

/// The candidates that are tried.
fn candidates(args: &Plan, container: Container) -> Result<Vec<Candidate>> {
    let mut all = Candidate::usual(container);
    if args.only.is_empty() {
        return Ok(all);
    }
    let known: Vec<String> = all.iter().map(|it| it.words(container)).collect();
    for words in &args.only {
        let family = |known: &String| {
            let name = known.split_once(':').map_or(&**known, |(name, _)| name);
            name == words || known == words
        };
        if !known.iter().any(family) {
            let mut names = known.clone();
            names.dedup();
            bail!(
                "--try {words}: must be a codec, or one of {}",
                names.join(", ")
            );
        }
    }
    all.retain(|it| {
        let words = it.words(container);
        let name = words.split_once(':').map_or(&*words, |(name, _)| name);
        args.only.iter().any(|only| *only == words || only == name)
    });
    Ok(all)
}

fn write_files(args: &Plan, report: &Report<'_>) -> Result<()> {
    let write = |to: &Path, content: String| {
        let name = crate::text::of_host_path(to, "-");
        fs::write(to, content).with_context(|| format!("write {name}"))
    };
    if let Some(to) = &args.svg {
        write(to, picture::svg(report).document())?;
    }
    if let Some(to) = &args.html {
        write(to, picture::page(report))?;
    }
    Ok(())
}
