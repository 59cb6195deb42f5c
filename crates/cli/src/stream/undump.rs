//! `restow stream undump`: builds a stream from JSON lines.

use std::io::{BufReader, BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use super::input::{create, name, open, output_name};
use crate::bar::Bar;
use crate::options::QuietArgs;

/// Build a send stream from the output of `dump --json --data`
///
/// The offsets and numbers of the lines are ignored, and checksums are computed, so lines can be
/// changed, removed and added.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow stream dump --json --data home.stream | restow stream undump - again.stream

Exit codes: 0 success; 2 failure.")]
pub(crate) struct Undump {
    /// The lines of `dump`; `-` is standard input
    file: PathBuf,

    /// The stream to write; `-` is standard output
    dst: PathBuf,

    #[command(flatten)]
    quiet: QuietArgs,

    /// Replace DST if it exists
    #[arg(long)]
    overwrite: bool,
}

/// Writes the stream.
///
/// # Errors
/// A line is wrong, or something cannot be read or written.
pub(crate) fn run(args: &Undump) -> Result<()> {
    let input = open(&args.file, &Bar::hidden())?.into_reader();
    let mut output = create(&args.dst, args.overwrite, None)?;
    let mut buffered = BufWriter::with_capacity(256 << 10, &mut output);
    let built = restow::stream::json::build(BufReader::new(input), &mut buffered);
    built.with_context(|| format!("build a stream from {}", name(&args.file)))?;
    let dst = output_name(&args.dst);
    buffered.flush().with_context(|| format!("write {dst}"))?;
    drop(buffered);
    output.commit().with_context(|| format!("finish {dst}"))
}
