//! What is measured, and how it is shown.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use crate::options::{QuietArgs, SourceArgs};

/// Directories below the measured one that have a sum of their own: deeper ones are part of these.
pub(super) const DEPTH_MAX: u32 = 64;

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
    pub(super) src: PathBuf,

    /// Measure only this file or directory, including everything below it
    pub(super) path: Option<OsString>,

    /// Show sizes in bytes, not with the suffixes K, M, G, T, P and E
    #[arg(short, long)]
    pub(super) bytes: bool,

    /// List directories down to this depth below the measured one
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=i64::from(DEPTH_MAX)))]
    pub(super) depth: u32,

    /// List this many directories, files and file types, the largest first
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(super) top: usize,

    /// List the subvolumes of a btrfs image: the bytes of data and metadata that each refers to,
    /// and those that no other subvolume refers to, as quota groups count them
    #[arg(long, conflicts_with = "ncdu")]
    pub(super) subvolumes: bool,

    /// Show the bytes that deleting this subvolume frees, or several together (repeatable); implies
    /// --subvolumes
    #[arg(long, value_name = "SUBVOLUME", conflicts_with = "ncdu")]
    pub(super) if_deleted: Vec<OsString>,

    /// Print a JSON object
    #[arg(long, conflicts_with_all = ["ncdu", "bytes"])]
    pub(super) json: bool,

    /// Print the whole tree in the format that `ncdu -f` reads
    #[arg(long, conflicts_with = "bytes")]
    pub(super) ncdu: bool,

    /// Draw a treemap: areas are disk usage, colours the ratio
    #[arg(long, value_name = "FILE")]
    pub(super) svg: Option<PathBuf>,

    /// Write the tables and the treemap as a self-contained HTML page
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,

    #[command(flatten)]
    pub(super) quiet: QuietArgs,

    #[command(flatten)]
    pub(super) source: SourceArgs,
}
