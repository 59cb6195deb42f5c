//! `restow send`: sends subvolumes of unmounted images, and mounted ones.

use std::cell::RefCell;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use clap::{ArgAction, Args};
use restow::{ResumedOutput, SendRequest, Sender};
use tree::Progress;
use tree::json::Object;

use crate::bar::Bar;
use crate::options::{REMOTE_SHARE, bound_remote_cache, bytes, open_options};
use crate::stream::create;
use crate::{message, text};

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Send subvolumes of btrfs images, or mounted ones, as streams for `btrfs receive`
///
/// Of images, writes full streams, byte for byte as `btrfs send` of Linux 6.18 does, and
/// incremental ones in its order. Needs no btrfs and no root. Subvolumes must be read-only and the
/// image must not be mounted.
///
/// Mounted subvolumes, as in `restow send -p MONDAY TUESDAY`, are sent by Linux, which needs root.
/// If Linux is interrupted, as by a suspend, it starts again; repeated data is compared and left
/// out, so the stream stays whole.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow send -f home.stream disk.btrfs:snapshot
  restow send --compressed-data -f home.stream disk.btrfs:snapshot
  restow send -p disk.btrfs:monday -f changes.stream disk.btrfs:tuesday
  restow send disk.btrfs:snapshot | ssh host 'cat > home.stream'
  restow send --resume-from part.stream -f part.stream disk.btrfs:snapshot

Exit codes: 0 success; 2 failure.")]
pub(crate) struct Send {
    /// Subvolumes: IMAGE:PATH or IMAGE:ID, or directories where read-only subvolumes are mounted
    #[arg(required = true, value_name = "IMAGE:SUBVOL")]
    subvolumes: Vec<PathBuf>,

    /// Send only the differences from this subvolume of the same file system, which the receiver
    /// must have
    #[arg(short = 'p', value_name = "PARENT")]
    parent: Option<PathBuf>,

    /// Clone data from this subvolume of the same file system, which the receiver must have, too
    /// (repeatable); without -p, also choose the parent among these
    #[arg(short = 'c', value_name = "SRC")]
    clone_sources: Vec<PathBuf>,

    /// Continue an interrupted stream: compare its beginning, FILE, and write only the rest. With
    /// `-f FILE`, the rest is appended
    #[arg(long, value_name = "FILE")]
    resume_from: Option<PathBuf>,

    /// Write to FILE, which is replaced [default: standard output]
    #[arg(short = 'f', long = "outfile", value_name = "FILE")]
    file: Option<PathBuf>,

    /// Write one stream with all subvolumes, instead of one for each
    #[arg(short = 'e')]
    one_stream: bool,

    /// Leave out the data of files: the stream says where data is, and cannot be received
    #[arg(long)]
    no_data: bool,

    /// Write version N, 1 or 2; 0 is the newest [default: 1, or 2 with --compressed-data]
    #[arg(long, alias = "stream-version", value_name = "N")]
    proto: Option<u32>,

    /// Send compressed data as it is stored (version 2)
    #[arg(long)]
    compressed_data: bool,

    /// Images: take at most this much memory, of which a file takes up to 200 bytes. Fail before
    /// FILE is written if the subvolumes need more
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    memory: Option<u64>,

    /// Print how much was sent
    #[arg(short, long, action = ArgAction::Count, conflicts_with = "quiet")]
    verbose: u8,

    /// Print only errors
    #[arg(short, long)]
    quiet: bool,

    /// Print a JSON object on standard output with the result, which docs/json.md describes; needs
    /// -f
    #[arg(long, conflicts_with = "verbose")]
    json: bool,

    /// Add the image of another device of the same btrfs file system (repeatable)
    #[arg(long, value_name = "IMAGE")]
    device: Vec<PathBuf>,
}

/// # Errors
/// A subvolume cannot be sent or read, or the stream cannot be written.
pub(crate) fn run(args: &Send) -> Result<()> {
    let start = Instant::now();
    let output = args.file.as_deref().unwrap_or(Path::new("-"));
    if args.json && output == Path::new("-") {
        bail!("--json: standard output is the stream; -f names a file for it");
    }
    if let Some(bytes) = args.memory {
        bound_remote_cache(bytes / REMOTE_SHARE);
    }
    let mut request = SendRequest::of(&args.subvolumes);
    request.parent.clone_from(&args.parent);
    request.clone_sources.clone_from(&args.clone_sources);
    request.devices.clone_from(&args.device);
    request.remote = open_options().remote;
    request.one_stream = args.one_stream;
    request.no_data = args.no_data;
    request.version = args.proto;
    request.compressed_data = args.compressed_data;
    let waiting_bytes = match args.memory {
        Some(bytes) => Some(request.bound_memory(bytes, output)?),
        None => None,
    };
    let sender = Sender::open(request)?;
    let create = || create(output, true, waiting_bytes);
    let mut target = match &args.resume_from {
        Some(part) => ResumedOutput::rest(part, output, create)?,
        None => ResumedOutput::whole(create()?),
    };
    let bar = Bar::new("sent", args.quiet);
    if bar.is_shown() {
        bar.expect(None, Some(sender.estimate()?));
    }
    let names = RefCell::new(Vec::new());
    // Scripts expect these words, without the name of the program.
    let tell = |name: &str| {
        if args.json {
            names.borrow_mut().push(name.to_owned());
        } else if !args.quiet {
            let _ = writeln!(io::stderr(), "At subvol {name}");
        }
    };
    let sent = sender.write(&mut target, &tell, &bar)?;
    let existing = target.finish()?;
    bar.finish();
    if args.json {
        let names = names.into_inner();
        return message::print_result(
            Object::of_schema("send", VERSION)
                .texts("subvolumes", names.iter().map(String::as_str))
                .name("destination", output.as_os_str().as_bytes())
                .number("stream_bytes", sent.bytes)
                .number("written_bytes", sent.bytes - existing)
                .number("restarts", sent.restarts)
                .fraction("seconds", start.elapsed().as_secs_f64()),
        );
    }
    if sent.restarts > 0 && !args.quiet {
        message::tell(&format!(
            "Linux was interrupted and began {} times from the start; repeated data was equal and is in the stream once",
            sent.restarts
        ));
    }
    if args.verbose > 0 {
        message::tell(&format!("{} sent", text::of_bytes(sent.bytes - existing)));
    }
    Ok(())
}
