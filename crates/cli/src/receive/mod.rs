//! `restow receive`: builds subvolumes from send streams.

use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result, bail};
use clap::{ArgAction, Args, ValueEnum};
use restow::stream::{Dump, Event, Received, StreamReader};
use restow::{
    DirectoryReceived, ImageReceiver, Input, ReceiveEvent, ReceiveOptions, ReceiveTarget,
    receive_into_btrfs, receive_into_directory,
};
use tree::json::Object;
use tree::{Progress, Time};

use crate::bar::Bar;
use crate::copy::of_unrestored;
use crate::options::{ThreadArgs, epoch, open_options};
use crate::stream::input::{self, name};
use crate::stream::json_subvolume;
use crate::{message, text};

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Receive btrfs send streams as subvolumes or directories
///
/// On a mounted btrfs, each subvolume of the stream becomes a read-only subvolume in DIR, which
/// needs root. Compressed data is written as it is; where Linux does not take it, it is
/// decompressed. The parent of an incremental stream is found by its UUID. A subvolume gets its
/// name and its received UUID when the stream has ended without an error and everything is on the
/// disk, read back from there as far as it was written compressed. Otherwise it is deleted.
///
/// In an image of btrfs that is not mounted, each subvolume becomes a read-only subvolume of the
/// image, without root: IMAGE, or IMAGE:PATH for a directory in it. A new image with the content of
/// the old one is written beside it and takes its place, with the same label, UUIDs, numbers of
/// subvolumes and size, unless it has to grow. Compressed data is copied as it is stored, and data
/// that subvolumes share stays shared. With `--to image`, an image that does not exist is made.
///
/// On other file systems, and with `--to directory`, each subvolume becomes a directory. An
/// incremental stream makes a new directory beside that of its parent, which does not change.
/// Parents are found by a record, DIR/.restow-received.
///
/// Streams are not trusted: no path leads out of the subvolume or through a symbolic link. A
/// checksum is no signature, though.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  btrfs send @monday | restow receive backup
  restow receive -f monday.stream backup
  restow receive -f monday.stream disk.btrfs
  restow receive --to image -f monday.stream new.btrfs
  restow receive --to directory -f monday.stream restored
  restow receive --dump -f monday.stream

Exit codes: 0 received; 1 received, but something could not be kept; 2 not received, and nothing marked as received.")]
pub(crate) struct Receive {
    /// The directory, or btrfs image, that gets the subvolumes
    #[arg(required_unless_present = "dump")]
    dir: Option<PathBuf>,

    /// Read the stream from FILE [default: standard input]
    #[arg(
        short = 'f',
        value_name = "FILE",
        default_value = "-",
        hide_default_value = true
    )]
    file: PathBuf,

    /// Kind of result [default: subvolumes on btrfs and in images, elsewhere directories]
    #[arg(long, value_enum, conflicts_with = "dump")]
    to: Option<To>,

    /// Build incremental streams on the subvolume or directory PATH, without checking its UUID and
    /// state; for images, a path or ID in the image
    #[arg(long, value_name = "PATH", conflicts_with = "dump")]
    parent: Option<PathBuf>,

    /// Print the stream as `btrfs receive --dump` does; needs no DIR, no btrfs and no root
    #[arg(long)]
    dump: bool,

    /// Stop after the first end of a stream; what follows stays in the pipe
    #[arg(short = 'e')]
    end: bool,

    /// Stop after N failed commands; 0 is never. A subvolume with a failed command is not received
    #[arg(short = 'E', long, value_name = "N", default_value_t = 1)]
    max_errors: u64,

    /// Decompress all data
    #[arg(long)]
    force_decompress: bool,

    /// Write data decompressed where Linux does not permit writing it compressed (EPERM); by
    /// default, that is an error
    #[arg(long)]
    fallback_on_eperm: bool,

    /// Do not read back data written compressed. Linux does not report all errors of writing it
    #[arg(long)]
    no_read_back: bool,

    /// On a mounted btrfs, copy data that Linux refuses to clone (EINVAL, EXDEV, EOPNOTSUPP), as
    /// between files with and without checksums. By default, that is an error
    #[arg(long, conflicts_with = "dump")]
    clone_fallback: bool,

    /// For images, do not decompress the data of the stream to verify it
    #[arg(long, conflicts_with = "dump")]
    no_verify: bool,

    /// In directories, ignore the owners and groups in the stream: the user who runs restow owns
    /// every file
    #[arg(long)]
    no_owners: bool,

    /// Keep a subvolume that could not be received as a whole, under a temporary name
    #[arg(long)]
    keep: bool,

    /// Has no effect, because no path leads out of DIR; for scripts that call `btrfs receive`
    #[arg(short = 'C', long)]
    chroot: bool,

    /// Has no effect, because parents are found at any place; for scripts that call `btrfs
    /// receive`
    #[arg(short = 'm', value_name = "MOUNT")]
    root_mount: Option<PathBuf>,

    /// Print every command, and each parent that was received from another transaction
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,

    /// Print only errors, and properties that could not be kept
    #[arg(short, long)]
    quiet: bool,

    /// Print a JSON object on standard output with the result and the properties that could not be
    /// kept, which docs/json.md describes
    #[arg(long, conflicts_with_all = ["dump", "verbose"])]
    json: bool,

    #[command(flatten)]
    threads: ThreadArgs,
}

/// The form of received subvolumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum To {
    /// Subvolumes of a mounted btrfs
    Btrfs,
    /// Directories
    Directory,
    /// Subvolumes of a btrfs image that is not mounted
    Image,
}

/// Returns whether everything could be kept.
///
/// # Errors
/// The stream is damaged, its parent is missing, or a subvolume cannot be built.
pub(crate) fn run(args: &Receive) -> Result<bool> {
    if args.dump {
        return dump(args).map(|()| true);
    }
    let dir = args.dir.as_deref().context("no directory given")?;
    let to = match args.to {
        Some(To::Btrfs) => ReceiveTarget::MountedBtrfs,
        Some(To::Directory) => ReceiveTarget::Directory,
        Some(To::Image) => ReceiveTarget::Image,
        None => ReceiveTarget::of(dir)?,
    };
    if args.no_verify && to != ReceiveTarget::Image {
        bail!("--no-verify applies to images only");
    }
    let start = Instant::now();
    let mut done = Done::default();
    match to {
        ReceiveTarget::MountedBtrfs => into_btrfs(args, dir, &mut done)?,
        ReceiveTarget::Directory => into_directory(args, dir, &mut done)?,
        ReceiveTarget::Image => into_image(args, dir, &mut done)?,
    }
    if args.json {
        let form = match to {
            ReceiveTarget::MountedBtrfs => "btrfs",
            ReceiveTarget::Directory => "directory",
            ReceiveTarget::Image => "image",
        };
        message::print_result(
            Object::of_schema("receive", VERSION)
                .name("source", args.file.as_os_str().as_bytes())
                .name("destination", dir.as_os_str().as_bytes())
                .text("to", form)
                .list("subvolumes", done.subvolumes)
                .texts("not_preserved", done.lost.iter().map(String::as_str))
                .texts("notes", done.notes.iter().map(String::as_str))
                .fraction("seconds", start.elapsed().as_secs_f64()),
        )?;
    } else {
        let notes = done.notes.iter().filter(|_| !args.quiet);
        notes
            .chain(&done.lost)
            .for_each(|words| message::tell(words));
    }
    Ok(done.lost.is_empty())
}

/// The result of receiving.
#[derive(Default)]
struct Done {
    /// With --json, the subvolumes.
    subvolumes: Vec<Object>,
    /// Properties that could not be kept, in words.
    lost: Vec<String>,
    /// What else happened, in words.
    notes: Vec<String>,
}

fn options(args: &Receive) -> ReceiveOptions {
    let mut options = ReceiveOptions::new(args.threads.parallel());
    options.stream.decompresses = args.force_decompress;
    options.stream.parent.clone_from(&args.parent);
    options.stream.keeps = args.keep;
    options.stream.reads_back = !args.no_read_back;
    options.stream.copies_clones = args.clone_fallback;
    options.stream.errors_max = args.max_errors;
    options.stream.stops_at_end = args.end;
    options.stream.falls_back_on_eperm = args.fallback_on_eperm;
    options.owners = !args.no_owners;
    options.verify = !args.no_verify;
    options.spool_dir = open_options().spool_dir;
    options
}

/// The stream. With `-e`, the next reader of standard input gets what follows it.
fn open(args: &Receive, bar: &Bar) -> Result<Input> {
    let input = input::open(&args.file, bar)?;
    if !args.end {
        return Ok(input);
    }
    let input = input.in_sequence();
    input.with_context(|| format!("open {}", name(&args.file)))
}

/// Prints a stream.
fn dump(args: &Receive) -> Result<()> {
    let input = open(args, &Bar::hidden())?.into_reader();
    let mut reader = StreamReader::new(input).any_paths();
    if args.end {
        reader = reader.exactly();
    }
    let mut dump = Dump::new(BufWriter::new(io::stdout().lock()), linux::local_offset);
    let mut print = || -> tree::Result<()> {
        while reader.next_stream()?.is_some() {
            while let Some(record) = reader.next_command()? {
                dump.command(&record.command)?;
            }
            if args.end {
                break;
            }
        }
        Ok(())
    };
    let printed = print();
    // Output before an error helps to find it.
    dump.into_inner().flush()?;
    printed.with_context(|| format!("read {}", name(&args.file)))
}

/// Receives into a btrfs image.
fn into_image(args: &Receive, image: &Path, done: &mut Done) -> Result<()> {
    let mut options = options(args);
    options.time = match epoch()? {
        Some(seconds) => Time {
            seconds,
            nanoseconds: 0,
        },
        None => now(),
    };
    let stream = open(args, &Bar::hidden())?;
    let receiver = ImageReceiver::open(stream, image, options)?;
    if receiver.has_log() {
        message::tell("the image was not unmounted cleanly; the changes in its log are kept, too");
    }
    if !args.no_verify {
        let bar = Bar::new("verified", args.quiet);
        bar.expect(None, receiver.stream_bytes());
        receiver.verify(&bar)?;
        bar.finish();
    }
    let bar = Bar::new("received", args.quiet);
    let mut on_event = |event: &ReceiveEvent<'_>| tell(event, args, image, done);
    let received = receiver.receive(&bar, &mut on_event)?;
    bar.finish();
    let image = &received.summary.image;
    let kept = image.kept;
    let unverified = kept.count - kept.by_checksum - kept.decoded;
    if args.no_verify && unverified > 0 {
        let extents = text::count(unverified, "compressed extent");
        done.notes.push(format!("{extents} not verified"));
    }
    if let Some(before) = received.old_bytes.filter(|&old| image.image_bytes > old) {
        let (before, after) = (text::of_bytes(before), text::of_bytes(image.image_bytes));
        let words = format!("the image grew from {before} to {after}");
        done.notes.push(words);
    }
    done.lost = received.losses.iter().map(ToString::to_string).collect();
    Ok(())
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    Time {
        seconds: since.as_secs() as i64,
        nanoseconds: since.subsec_nanos(),
    }
}

/// Receives into a directory of any file system.
fn into_directory(args: &Receive, dir: &Path, done: &mut Done) -> Result<()> {
    let bar = Bar::new("received", args.quiet);
    let input = open(args, &bar)?;
    let mut on_event = |event: &ReceiveEvent<'_>| match event {
        ReceiveEvent::Directory(received) => tell_of_directory(received, args, &mut done.lost),
        event => tell(event, args, dir, done),
    };
    receive_into_directory(input, dir, &options(args), &bar, &mut on_event)?;
    bar.finish();
    Ok(())
}

/// Adds the losses of a directory, and prints the number of its clones.
fn tell_of_directory(received: &DirectoryReceived, args: &Receive, lost: &mut Vec<String>) {
    let (path, done) = (&received.path, &received.result);
    let to = text::of_host_path(path, "-");
    let unrestored = of_unrestored(&done.unrestored, |file| {
        let file = match file {
            b"" => path.clone(),
            file => path.join(OsStr::from_bytes(file)),
        };
        text::of_host_path(&file, "-")
    });
    lost.extend(unrestored.into_iter().map(|(_, words)| words));
    if done.verity_files > 0 {
        let files = text::count(done.verity_files, "file");
        lost.push(format!("{to}: fs-verity of {files} not enabled"));
    }
    if args.verbose > 0 && done.shared_clones + done.copied_clones > 0 {
        message::tell(&format!(
            "{to}: {} shared, {} copied, {}",
            text::count(done.shared_clones, "clone"),
            text::count(done.copied_clones, "clone"),
            text::of_bytes(done.copied_bytes)
        ));
    }
}

/// Receives into a mounted btrfs.
fn into_btrfs(args: &Receive, dir: &Path, done: &mut Done) -> Result<()> {
    let bar = Bar::new("received", args.quiet);
    let input = open(args, &bar)?;
    let mut on_event = |event: &ReceiveEvent<'_>| tell(event, args, dir, done);
    let received = receive_into_btrfs(input, dir, &options(args), &bar, &mut on_event);
    bar.finish();
    let received = received?;
    if received.failed > 0 {
        let failed = text::count(received.failed, "command");
        bail!("{failed} failed; their changes were not received");
    }
    let Received {
        decompressed,
        encoded,
        reason,
        lost,
        lost_count,
        copied_clones,
        copied_bytes,
        ..
    } = received;
    if copied_clones > 0 {
        done.notes.push(format!(
            "{} copied, {}",
            text::count(copied_clones, "clone"),
            text::of_bytes(copied_bytes)
        ));
    }
    if let Some(reason) = reason {
        done.notes.push(format!(
            "{} written decompressed: {}",
            text::count(decompressed, "compressed extent"),
            message::of_reason(&reason)
        ));
    }
    if args.no_read_back && encoded > 0 {
        done.notes.push(format!(
            "{} not read back",
            text::count(encoded, "compressed extent")
        ));
    }
    done.lost.extend(lost.iter().map(|(path, reason)| {
        let path = text::of_path(path);
        format!("{path}: file attributes not preserved: {reason}")
    }));
    let more = lost_count - lost.len() as u64;
    if more > 0 {
        let words = format!("and {} more", text::count(more, "file"));
        done.lost.push(words);
    }
    Ok(())
}

fn tell(event: &ReceiveEvent<'_>, args: &Receive, dir: &Path, done: &mut Done) {
    let ReceiveEvent::Stream(event) = event else {
        return;
    };
    let mut out = io::stderr();
    // A message that cannot be printed is not an error.
    let _ = match event {
        Event::Subvolume(sent) if args.json => {
            done.subvolumes.push(json_subvolume(sent));
            Ok(())
        }
        Event::Subvolume(sent) if !args.quiet => {
            let name = text::of_name(&sent.name);
            // As `btrfs receive` does.
            match sent.parent {
                None => writeln!(out, "At subvol {name}"),
                Some(_) => writeln!(io::stdout(), "At snapshot {name}"),
            }
        }
        Event::Command(record) if args.verbose > 0 => {
            let path = text::of_path(record.command.path().unwrap_or_default());
            writeln!(out, "{} {path}", record.command.name())
        }
        // Scripts compare standard error with that of `btrfs receive`, which prints nothing here.
        Event::OtherTransaction(other) if args.verbose > 0 => {
            message::tell(&format!(
                "the parent or clone source {} was received from transaction {}, and the stream names {}, as after deduplication, or if another file system sent it; it was not changed here, and is used",
                text::of_uuid(&other.uuid),
                other.received,
                other.named
            ));
            Ok(())
        }
        Event::Failed(error) => {
            message::tell(&message::of_tree_error(error));
            Ok(())
        }
        Event::Kept(name) => {
            let path = text::of_host_path(&dir.join(OsStr::from_bytes(name)), "-");
            message::tell(&format!("{path} is not complete"));
            Ok(())
        }
        _ => Ok(()),
    };
}
