//! `restow receive`: builds subvolumes from send streams.

mod directory;
mod grafted;
mod image;
mod needed;
mod record;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{ArgAction, Args, ValueEnum};
use restow::Address;
use sendstream::{Command, Dump, Event, ReceiveOptions, Received, StreamReader, Version};
use tree::Error;

use crate::bar::Bar;
use crate::options::ThreadArgs;
use crate::stream::input::{Input, name};
use crate::{message, text};

/// Receive what `btrfs send` wrote: as subvolumes, or as directories
///
/// On a mounted btrfs, each subvolume of the stream becomes a read-only subvolume in DIR, which needs root. Compressed data is
/// written as it is; where Linux does not take it, it is decompressed. The parent of an incremental stream is found by its UUID.
/// A subvolume gets its name and its received UUID when the stream has ended without an error and everything is on the disk,
/// read back from there as far as it was written compressed. Otherwise it is deleted.
///
/// In an image of btrfs that is not mounted, each subvolume becomes a read-only subvolume of the image, without root: IMAGE, or
/// IMAGE:PATH for a directory in it. A new image with all that the old one has is written beside it and takes its place, with
/// the same label, UUIDs, numbers of subvolumes and size, unless it has to grow. Compressed data is copied as it is stored, and what
/// subvolumes share stays shared. With `--to image`, an image that does not exist is made.
///
/// On other file systems, and with `--to directory`, each subvolume becomes a directory. An incremental stream makes a new
/// directory beside that of its parent, which does not change. Parents are found by a record, DIR/.restow-received.
///
/// Streams are not trusted: no path leads out of the subvolume or through a symbolic link. A checksum is no signature, though.
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

    /// What the subvolumes become [default: subvolumes on btrfs and in images, elsewhere directories]
    #[arg(long, value_enum, conflicts_with = "dump")]
    to: Option<To>,

    /// Build incremental streams on the subvolume or directory PATH, whatever its UUID and state; for images, a path or ID in the
    /// image
    #[arg(long, value_name = "PATH", conflicts_with = "dump")]
    parent: Option<PathBuf>,

    /// Print the stream as `btrfs receive --dump` does; needs no DIR, no btrfs and no root
    #[arg(long)]
    dump: bool,

    /// Stop after the first end of a stream
    #[arg(short = 'e')]
    end: bool,

    /// Stop after N failed commands; 0 is never. A subvolume with a failed command is not received
    #[arg(short = 'E', long, value_name = "N", default_value_t = 1)]
    max_errors: u64,

    /// Decompress all data
    #[arg(long)]
    force_decompress: bool,

    /// Write data decompressed also where Linux does not permit to write it compressed (EPERM), which is an error otherwise
    #[arg(long)]
    fallback_on_eperm: bool,

    /// Do not read back from the disk what was written compressed. Linux does not report all errors of writing it
    #[arg(long)]
    no_read_back: bool,

    /// On a mounted btrfs, copy what Linux refuses to clone (EINVAL, EXDEV, EOPNOTSUPP), as between files with and without checksums.
    /// By default, that is an error
    #[arg(long, conflicts_with = "dump")]
    clone_fallback: bool,

    /// For images, do not decompress the data of the stream to verify it
    #[arg(long, conflicts_with = "dump")]
    no_verify: bool,

    /// In directories, ignore the owners and groups in the stream: the user who runs restow owns every file
    #[arg(long)]
    no_owners: bool,

    /// Keep a subvolume that could not be received as a whole, under a temporary name
    #[arg(long)]
    keep: bool,

    /// Has no effect, because no path leads out of DIR; for scripts that call `btrfs receive`
    #[arg(short = 'C', long)]
    chroot: bool,

    /// Has no effect, because parents are found wherever they are; for scripts that call `btrfs receive`
    #[arg(short = 'm', value_name = "MOUNT")]
    root_mount: Option<PathBuf>,

    /// Print every command
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,

    /// Print only errors, and what could not be kept
    #[arg(short, long)]
    quiet: bool,

    #[command(flatten)]
    threads: ThreadArgs,
}

/// What subvolumes become.
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
        Some(to) => to,
        None => found(dir)?,
    };
    if args.no_verify && to != To::Image {
        bail!("--no-verify applies to images only");
    }
    let lost = match to {
        To::Btrfs => into_btrfs(args, dir)?,
        To::Directory => directory::receive(args, dir)?,
        To::Image => image::receive(args, dir)?,
    };
    for words in &lost {
        message::tell(words);
    }
    Ok(lost.is_empty())
}

/// What a directory or file can hold.
fn found(dir: &Path) -> Result<To> {
    let address = Address::of(dir)?;
    let is_file = |path: &Path| std::fs::metadata(path).is_ok_and(|it| !it.is_dir());
    if is_file(&address.path) {
        return Ok(To::Image);
    }
    let open = || format!("open {}", text::of_host_path(dir, "-"));
    let opened = linux::open_dir(dir).with_context(open)?;
    if !linux::is_btrfs(&opened).with_context(open)? {
        return Ok(To::Directory);
    }
    match linux::subvolume(&opened, 5) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => bail!(
            "{} is on btrfs, where subvolumes can be received only by root; `--to directory` makes directories",
            text::of_host_path(dir, "-")
        ),
        _ => Ok(To::Btrfs),
    }
}

/// Prints a stream.
fn dump(args: &Receive) -> Result<()> {
    let input = Input::open(&args.file, &Bar::new("read", true))?;
    let mut reader = StreamReader::new(input).any_paths();
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
    // Whatever comes before an error helps to find it.
    dump.into_inner().flush()?;
    printed.with_context(|| format!("read {}", name(&args.file)))
}

/// Refuses a stream with fs-verity before anything is written. One from a pipe is refused at the first such command.
fn refuse_verity(file: &File, stops_at_end: bool) -> tree::Result<()> {
    let mut input = file.try_clone()?;
    if io::Seek::stream_position(&mut input).is_err() {
        return Ok(()); // A pipe with a name.
    }
    let mut reader = StreamReader::new(&input);
    // Damage is reported with what was done until then.
    while let Ok(Some(Version::V3)) = reader.next_stream() {
        while let Ok(Some(record)) = reader.next_command() {
            if matches!(record.command, Command::EnableVerity { .. }) {
                let error = Error::Unsupported("enabling fs-verity");
                return Err(error.in_part("command", record.number));
            }
        }
        if stops_at_end {
            break;
        }
    }
    let mut input = file.try_clone()?;
    io::Seek::rewind(&mut input)?;
    Ok(())
}

/// Receives into a mounted btrfs. Returns what could not be kept, in words.
fn into_btrfs(args: &Receive, dir: &Path) -> Result<Vec<String>> {
    let bar = Bar::new("received", args.quiet);
    let input = Input::open(&args.file, &bar)?;
    if let Input::File(file) = &input {
        refuse_verity(file, args.end).with_context(|| format!("read {}", name(&args.file)))?;
    }
    let options = ReceiveOptions {
        decompresses: args.force_decompress,
        parent: args.parent.clone(),
        keeps: args.keep,
        reads_back: !args.no_read_back,
        copies_clones: args.clone_fallback,
        errors_max: args.max_errors,
        stops_at_end: args.end,
        falls_back_on_eperm: args.fallback_on_eperm,
    };
    let mut event = |event: &Event<'_>| tell(event, args, dir);
    let received = sendstream::receive(input, dir, &options, &bar, &mut event);
    bar.finish();
    let received =
        received.with_context(|| format!("receive into {}", text::of_host_path(dir, "-")))?;
    if received.failed > 0 {
        let failed = text::count(received.failed, "command");
        bail!("{failed} failed; what they are about was not received");
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
    if copied_clones > 0 && !args.quiet {
        message::tell(&format!(
            "{} copied, {}",
            text::count(copied_clones, "clone"),
            text::of_bytes(copied_bytes)
        ));
    }
    if let Some(reason) = reason.filter(|_| !args.quiet) {
        message::tell(&format!(
            "{} written decompressed: {}",
            text::count(decompressed, "compressed extent"),
            message::of_reason(&reason)
        ));
    }
    if args.no_read_back && encoded > 0 && !args.quiet {
        message::tell(&format!(
            "{} not read back",
            text::count(encoded, "compressed extent")
        ));
    }
    let mut lines: Vec<String> = lost
        .iter()
        .map(|(path, reason)| {
            let path = text::of_path(path);
            format!("{path}: file attributes not preserved: {reason}")
        })
        .collect();
    let more = lost_count - lost.len() as u64;
    if more > 0 {
        lines.push(format!("and {} more", text::count(more, "file")));
    }
    Ok(lines)
}

fn tell(event: &Event<'_>, args: &Receive, dir: &Path) {
    let mut out = io::stderr();
    // A message that cannot be printed is not an error.
    let _ = match event {
        Event::Subvolume(sent) if !args.quiet => {
            let kind = if sent.parent.is_some() {
                "snapshot"
            } else {
                "subvol"
            };
            writeln!(out, "At {kind} {}", text::of_name(&sent.name))
        }
        Event::Command(record) if args.verbose > 0 => {
            let path = text::of_path(record.command.path().unwrap_or_default());
            writeln!(out, "{} {path}", record.command.name())
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
