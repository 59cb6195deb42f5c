//! `restow usage`: shows where the stored bytes of a tree are.

mod json;
mod ncdu;
mod picture;
mod table;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use restow::{Address, Overhead, SubvolumeUsage, overhead};
use tree::usage::{All, Totals, Types, UsageTree, Visitor};
use tree::{HostTimes, Output};

use crate::bar::Bar;
use crate::options::{QuietArgs, SourceArgs};

use crate::text;

pub(crate) use json::of_totals;
pub(crate) use table::forms;

/// Directories below the measured one that have a sum of their own: deeper ones are part of these.
const DEPTH_MAX: u32 = 64;
/// Files of a directory that have a rectangle of their own.
const FILES_MAX: usize = 24;

/// Show where the stored bytes are: by algorithm, directory and file type
///
/// The first table is that of compsize, which counts mounted files; this works on images that are
/// not mounted, without root. Disk usage counts stored bytes: each extent once, with all its bytes.
/// Uncompressed counts them decoded. Referenced is the part that the names of the files show. In
/// the tables of directories and types, an extent that several files share belongs to the first of
/// them, in the order of their paths.
///
/// Of a btrfs image, the top level and all subvolumes are measured, unless a subvolume is named.
///
/// docs/json.md describes the output of --json.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow usage disk.btrfs
  restow usage disk.btrfs:home user     a directory in a subvolume
  restow usage --depth 3 --top 20 image.squashfs
  restow usage --ncdu disk.btrfs | ncdu -f-
                                        browse it
  restow usage --html usage.html disk.btrfs
  restow usage --if-deleted monday --if-deleted tuesday disk.btrfs
                                        the space that deleting both frees

Exit codes: 0 success; 2 failure.")]
pub(crate) struct Usage {
    /// A SquashFS image, btrfs image, btrfs send stream, or directory; IMAGE:PATH and IMAGE:ID
    /// select a subvolume
    src: PathBuf,

    /// Measure only this file or directory, including everything below it
    path: Option<OsString>,

    /// Show sizes in bytes, not with the suffixes K, M, G, T, P and E
    #[arg(short, long)]
    bytes: bool,

    /// List directories down to this depth below the measured one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=i64::from(DEPTH_MAX)))]
    depth: u32,

    /// List this many directories and file types, the largest first
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,

    /// List the subvolumes of a btrfs image: the bytes of data and metadata that each refers to,
    /// and those that no other subvolume refers to, as quota groups count them
    #[arg(long, conflicts_with = "ncdu")]
    subvolumes: bool,

    /// Show the bytes that deleting this subvolume frees, or several together (repeatable); implies
    /// --subvolumes
    #[arg(long, value_name = "SUBVOLUME", conflicts_with = "ncdu")]
    if_deleted: Vec<OsString>,

    /// Print a JSON object
    #[arg(long, conflicts_with_all = ["ncdu", "bytes"])]
    json: bool,

    /// Print the whole tree in the format that `ncdu -f` reads
    #[arg(long, conflicts_with = "bytes")]
    ncdu: bool,

    /// Draw a treemap: areas are disk usage, colours the ratio
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// Write the tables and the treemap as a page that needs no other file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    #[command(flatten)]
    quiet: QuietArgs,

    #[command(flatten)]
    source: SourceArgs,
}

/// A measurement.
pub(crate) struct Measured {
    /// The source and the path, for people.
    name: String,
    totals: Totals,
    nodes: UsageTree,
    types: Types,
    overhead: Option<Overhead>,
    subvolumes: Option<SubvolumeUsage>,
}

/// Prints and draws the space that a tree takes.
///
/// # Errors
/// The tree cannot be read, or a result cannot be written.
pub(crate) fn run(args: &Usage) -> Result<()> {
    let address = Address::of(&args.src)?;
    let source = args.source.open(&address, true)?;
    let source = source.with_stored_extents(HostTimes::default())?;
    let path = args.path.as_ref().map_or(&b""[..], |path| path.as_bytes());
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let start = source.find(path, false)?;
    let draws = args.svg.is_some() || args.html.is_some();
    let mut nodes = if draws {
        UsageTree::new(FILES_MAX, DEPTH_MAX)
    } else {
        UsageTree::new(0, args.depth)
    };
    let mut types = Types::default();
    let mut visitors: Vec<&mut dyn Visitor> = vec![&mut nodes, &mut types];
    let mut list = args.ncdu.then(|| {
        let name = source.path_name(path);
        ncdu::List::new(BufWriter::new(io::stdout().lock()), name)
    });
    if let Some(list) = &mut list {
        visitors.push(list);
    }
    let bar = Bar::new("measured", args.quiet.quiet);
    let totals = source.measure((&start, path), &bar, &mut All(visitors));
    bar.finish();
    let totals = totals?;
    if let Some(list) = list {
        list.finish()?;
    }
    let overhead = overhead(&source, &address, &args.source.options(true), &totals);
    let overhead = overhead.with_context(|| format!("read {}", source.name()))?;
    let lists_subvolumes = args.subvolumes || !args.if_deleted.is_empty();
    let subvolumes = lists_subvolumes.then(|| source.subvolume_usage(&address, &args.if_deleted));
    let measured = Measured {
        name: source.path_name(path),
        totals,
        nodes,
        types,
        overhead: overhead.filter(|_| path.is_empty()),
        subvolumes: subvolumes.transpose()?,
    };
    if let Some(file) = &args.svg {
        write(file, &picture::drawing(&measured).document())?;
    }
    if let Some(file) = &args.html {
        write(file, &picture::page(&measured, args))?;
    }
    let words = match (args.ncdu, args.json) {
        (true, _) => return Ok(()),
        (false, true) => json::of_measured(&measured, args).line() + "\n",
        (false, false) => table::all(&measured, args),
    };
    let mut out = io::stdout().lock();
    out.write_all(words.as_bytes())?;
    Ok(out.flush()?)
}

/// Writes a file as a whole, or leaves the old one.
fn write(path: &Path, text: &str) -> Result<()> {
    let write = || -> tree::Result<()> {
        let output = Output::create(path, true)?;
        output.write_all_at(text.as_bytes(), 0)?;
        output.commit()
    };
    write().with_context(|| format!("write {}", text::of_name(path.as_os_str().as_bytes())))
}
