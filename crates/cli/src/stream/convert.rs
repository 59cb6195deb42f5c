//! `restow stream convert`: another version, another compression.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use codec::Settings;
use restow::Version;
use restow::stream::{ConvertOptions, Converted, Recode, bound_convert};
use tree::json::Object;

use super::input::{create, name, open, output_name};
use crate::bar::Bar;
use crate::options::{REMOTE_SHARE, ThreadArgs, bound_remote_cache, bytes, open_options};
use crate::{message, text};

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Convert a send stream to another version or compression
///
/// Only commands with file data change, and those that the version cannot hold; all others are
/// copied as they are. Data that is decompressed is verified.
///
/// Version 1 has no compressed data (it is decompressed), no file attributes (see --drop), no
/// creation times (they are left out), and no punched holes (zeros are written). Where zeros could
/// make a file longer, because its size is not in the stream, the conversion fails: see
/// --trust-holes.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow stream convert --compress zstd:15 home.stream small.stream
  restow stream convert --decompress home.stream plain.stream
  restow stream convert --proto 1 home.stream old.stream
  restow stream convert --compress zstd:15 - - < home.stream > smaller.stream

Exit codes: 0 success; 1 something was left out; 2 failure.")]
pub(crate) struct Convert {
    /// A send stream; `-` is standard input
    src: PathBuf,

    /// The stream to write; `-` is standard output
    dst: PathBuf,

    /// Write version N, 1 to 3 [default: that of SRC, or 2 if its data is to be compressed]
    #[arg(long, alias = "stream-version", value_name = "N", value_parser = version)]
    proto: Option<Version>,

    /// Compress all data with CODEC: zstd:-15 to zstd:22, zlib:1 to zlib:9, or lzo:1 to lzo:9
    #[arg(long, value_name = "CODEC", value_parser = settings)]
    compress: Option<Settings>,

    /// Decompress all data
    #[arg(long, conflicts_with = "compress")]
    decompress: bool,

    /// Leave out properties that the version cannot hold (repeatable)
    #[arg(long, value_name = "PROPERTY", value_delimiter = ',')]
    drop: Vec<Dropped>,

    /// Write zeros for all of a hole even if the size of its file is not known: right unless space
    /// was preallocated beyond the end of a file
    #[arg(long)]
    trust_holes: bool,

    /// Fail if more than BYTES of zeros are needed for holes
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "16G")]
    max_zeros: u64,

    /// The sector size of the file system that receives the stream
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "4K")]
    sector_size: u64,

    /// Replace DST if it exists
    #[arg(long)]
    overwrite: bool,

    /// Do not show progress or omitted properties
    #[arg(short, long)]
    quiet: bool,

    /// Print a JSON object on standard output with the result, which docs/json.md describes
    #[arg(long)]
    json: bool,

    /// Take at most this much memory, with fewer threads and smaller buffers if necessary. Fail
    /// before DST is written if the options need more
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory: Option<u64>,

    #[command(flatten)]
    threads: ThreadArgs,
}

/// Properties that may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Dropped {
    /// File attributes such as no-copy-on-write, which version 1 does not have
    Fileattr,
    /// fs-verity, which versions 1 and 2 do not have
    Verity,
}

/// Returns whether nothing was left out.
///
/// # Errors
/// The stream is damaged or cannot be expressed, or something cannot be read or written.
pub(crate) fn run(args: &Convert) -> Result<bool> {
    let start = Instant::now();
    if args.json && args.dst == Path::new("-") {
        bail!("--json: standard output is the stream; name a file for it");
    }
    if let Some(bytes) = args.memory {
        bound_remote_cache(bytes / REMOTE_SHARE);
    }
    let options = ConvertOptions::default()
        .version(args.proto)
        .recode(match (args.compress, args.decompress) {
            (Some(settings), _) => Recode::Encode(settings),
            (None, true) => Recode::Decode,
            (None, false) => Recode::Keep,
        })
        .sector_bytes(u32::try_from(args.sector_size).unwrap_or(u32::MAX))
        .drops_fileattr(args.drop.contains(&Dropped::Fileattr))
        .drops_verity(args.drop.contains(&Dropped::Verity))
        .trusts_holes(args.trust_holes)
        .zeros_bytes_max(args.max_zeros);
    let (mut parallel, mut waiting_bytes) = (args.threads.parallel(), None);
    if let Some(bytes) = args.memory {
        let (paths, remote) = ((&*args.src, &*args.dst), open_options().remote);
        let bound = bound_convert(bytes, paths, &options, &remote, parallel)?;
        (parallel, waiting_bytes) = (bound.0, Some(bound.1));
    }
    let bar = Bar::new("converted", args.quiet);
    let input = open(&args.src, &bar)?.into_reader();
    let mut output = create(&args.dst, args.overwrite, waiting_bytes)?;
    let converted = restow::stream::convert(input, &mut output, &options, parallel, &bar);
    bar.finish();
    let converted = converted.with_context(|| format!("convert {}", name(&args.src)))?;
    output
        .commit()
        .with_context(|| format!("finish {}", output_name(&args.dst)))?;
    let lost = lost(&converted);
    if args.json {
        message::print_result(object(args, &converted, start))?;
    } else if !args.quiet {
        for words in &lost {
            message::tell(words);
        }
    }
    Ok(lost.is_empty())
}

/// The result as an object.
fn object(args: &Convert, converted: &Converted, start: Instant) -> Object {
    let left_out = Object::new()
        .number("creation_times", converted.otimes_dropped)
        .number("file_attributes", converted.fileattrs_dropped)
        .number("verity", converted.verity_dropped);
    Object::of_schema("stream.convert", VERSION)
        .name("source", args.src.as_os_str().as_bytes())
        .name("destination", args.dst.as_os_str().as_bytes())
        .number("commands", converted.commands)
        .number("read_bytes", converted.bytes_read)
        .number("written_bytes", converted.bytes_written)
        .number("zero_bytes", converted.zeros_bytes)
        .object("left_out", left_out)
        .fraction("seconds", start.elapsed().as_secs_f64())
}

/// The omitted properties, in words. Creation times are not: no receiver can set them.
fn lost(converted: &Converted) -> Vec<String> {
    let dropped = [
        (converted.fileattrs_dropped, "file attribute command"),
        (converted.verity_dropped, "fs-verity command"),
    ];
    let dropped = dropped.into_iter().filter(|(number, _)| *number > 0);
    dropped
        .map(|(number, noun)| format!("left out {}", text::count(number, noun)))
        .collect()
}

fn version(words: &str) -> Result<Version> {
    let version = words.parse().ok().and_then(Version::parse);
    version.ok_or_else(|| anyhow!("must be 1, 2 or 3"))
}

/// A codec and its level, for the data of a stream.
///
/// # Errors
/// There is no such codec or level.
pub(crate) fn settings(words: &str) -> Result<Settings> {
    let (name, level) = match words.split_once(':') {
        Some((name, level)) => (name, Some(level)),
        None => (words, None),
    };
    let level = (level.map(str::parse::<i32>).transpose())
        .map_err(|_| anyhow!("the level must be a number"))?;
    Ok(match (name, level) {
        ("lzo", level) => match level.unwrap_or(1) {
            1 => Settings::Lzo,
            level @ 2..=9 => Settings::LzoOptimal { level: level as u8 },
            _ => bail!("lzo has levels 1 to 9"),
        },
        ("zlib", level) => match level.unwrap_or(3) {
            level @ 1..=9 => Settings::Zlib { level: level as u8 },
            _ => bail!("zlib in btrfs has levels 1 to 9"),
        },
        ("zstd", level) => match level.unwrap_or(3) {
            level @ (-15..=-1 | 1..=22) => Settings::Zstd { level },
            _ => bail!("zstd has levels -15 to -1 and 1 to 22"),
        },
        _ => bail!("must be zstd, zlib or lzo, with a level after a colon"),
    })
}
