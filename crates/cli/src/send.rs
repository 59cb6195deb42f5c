//! `restow send`: sends subvolumes of unmounted images, as `btrfs send` does from mounted ones, and mounted ones.

mod mounted;
mod resume;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use btrfs::{OpenOptions, Subvolume, SubvolumeInfo};
use clap::Args;
use sendstream::{Command, SendData, SendOptions, StreamWriter, Version};
use tree::{Error, Inventory, Limits};

use crate::address::Address;
use crate::bar::Bar;
use crate::open::{self, Container};
use crate::source::find_subvolume;
use crate::{message, text};
use resume::Target;

const BUFFER_BYTES: usize = 256 << 10;

/// Send subvolumes of btrfs images, or mounted ones, as streams for `btrfs receive`
///
/// Of images, writes full streams, byte for byte as `btrfs send` of Linux 6.18 does. Needs no btrfs and no root. A subvolume must
/// be read-only, and its image not be in use. Incremental streams (`-p`, `-c`) of images are not supported yet.
///
/// Mounted subvolumes, as in `restow send -p MONDAY TUESDAY`, are sent by Linux, which needs root. If Linux is interrupted, as by a suspend, it starts again; the stream
/// stays whole, because what comes twice is compared and left out.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  restow send -f home.stream disk.btrfs:snapshot
  restow send --compressed-data -f home.stream disk.btrfs:snapshot
  restow send disk.btrfs:snapshot | ssh host 'cat > home.stream'
  restow send --resume-from part.stream -f part.stream disk.btrfs:snapshot

Exit codes: 0 success; 2 failure.")]
pub(crate) struct Send {
    /// Subvolumes: IMAGE:PATH or IMAGE:ID, or directories where read-only subvolumes are mounted
    #[arg(required = true, value_name = "IMAGE:SUBVOL")]
    subvolumes: Vec<PathBuf>,

    /// Send what differs from PARENT, a read-only snapshot that the receiver has
    #[arg(short = 'p', value_name = "PARENT")]
    parent: Option<PathBuf>,

    /// Clone data from SRC, which the receiver has (repeatable). Without -p, the parent is chosen among these
    #[arg(short = 'c', value_name = "SRC")]
    clone_sources: Vec<PathBuf>,

    /// Continue a stream that was cut, of which FILE is the beginning: compare it, and write only the rest. With `-f FILE`, the
    /// rest is appended
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

    /// Say how much was sent
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,

    /// Print only errors
    #[arg(short, long)]
    quiet: bool,

    /// Add the image of another device of the same btrfs file system (repeatable)
    #[arg(long, value_name = "IMAGE")]
    device: Vec<PathBuf>,
}

/// A subvolume to send.
struct Sent {
    typed: PathBuf,
    name: Vec<u8>,
    info: SubvolumeInfo,
    tree: Subvolume,
}

/// # Errors
/// A subvolume cannot be sent or read, or the stream cannot be written.
pub(crate) fn run(args: &Send) -> Result<()> {
    if args.subvolumes.iter().any(|typed| typed.is_dir()) {
        return mounted::run(args);
    }
    if args.parent.is_some() || !args.clone_sources.is_empty() {
        bail!(
            "incremental streams of images (-p, -c) are not supported yet, only of mounted subvolumes"
        );
    }
    let version = version(args)?;
    let subvolumes = args.subvolumes.iter().map(|typed| {
        let name = || format!("send {}", text::of_host_path(typed, "standard input"));
        open_subvolume(typed, args).with_context(name)
    });
    let subvolumes: Vec<Sent> = subvolumes.collect::<Result<_>>()?;
    let output = args.file.as_deref().unwrap_or(Path::new("-"));
    let mut target = Target::open(output, args.resume_from.as_deref())?;
    let mut writer =
        StreamWriter::new(BufWriter::with_capacity(BUFFER_BYTES, &mut target), version);
    let bar = Bar::new("sent", args.quiet);
    for (turn, sent) in subvolumes.iter().enumerate() {
        let name = text::of_host_path(&sent.typed, "standard input");
        if !args.quiet {
            // Scripts expect these words, without the name of the program.
            let _ = writeln!(io::stderr(), "At subvol {name}");
        }
        let is_last = turn + 1 == subvolumes.len();
        match send_one(sent, args, turn, is_last, &bar, &mut writer) {
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                bail!("the pipe was closed before the stream was complete")
            }
            done => done.with_context(|| format!("send {name}"))?,
        }
    }
    let bytes = writer.position();
    let mut buffer = writer.into_inner();
    buffer.flush().context("write the stream")?;
    drop(buffer);
    let there = target.finish()?;
    bar.finish();
    if args.verbose {
        message::tell(&format!("{} sent", text::of_bytes(bytes - there)));
    }
    Ok(())
}

fn send_one<W: Write>(
    sent: &Sent,
    args: &Send,
    turn: usize,
    is_last: bool,
    bar: &Bar,
    writer: &mut StreamWriter<W>,
) -> tree::Result<()> {
    let inventory = Inventory::of(&sent.tree, &Limits::default())?;
    let stored_names = |ino| sent.tree.stored_names(ino);
    let options = SendOptions {
        name: &sent.name,
        // Whoever received it knows it by the UUID that it was sent with.
        uuid: (sent.info.received_uuid.or(sent.info.uuid)).unwrap_or_default(),
        ctransid: sent.info.ctransid,
        data: match (args.no_data, args.compressed_data) {
            (true, _) => SendData::Nothing,
            (false, true) => SendData::AsStored,
            (false, false) => SendData::Plain,
        },
        sector_bytes: sent.tree.btrfs().superblock().sectorsize,
        names: Some(&stored_names),
    };
    if turn == 0 || !args.one_stream {
        writer.header()?;
    }
    sendstream::send(&sent.tree, &inventory, &options, bar, writer)?;
    if is_last || !args.one_stream {
        writer.command(&Command::End)?;
    }
    Ok(())
}

fn version(args: &Send) -> Result<Version> {
    match (args.proto, args.compressed_data) {
        (Some(1), true) => bail!("--compressed-data needs version 2 of streams, not 1"),
        (Some(1) | None, false) => Ok(Version::V1),
        (Some(0 | 2) | None, _) => Ok(Version::V2),
        (Some(number), _) => bail!("version {number} of streams cannot be sent, only 1 and 2"),
    }
}

/// Opens a subvolume, if it can be sent.
fn open_subvolume(typed: &Path, args: &Send) -> Result<Sent> {
    let address = Address::of(typed)?;
    let file = match Container::open(&address.path, None)? {
        Container::Btrfs(file) => file,
        other => bail!("{} has no subvolumes to send", other.noun()),
    };
    let btrfs = open::open_btrfs(file, &args.device, &OpenOptions::default())?;
    if btrfs.has_log() {
        bail!(
            "the image was not unmounted cleanly, and its log may hold later changes; mount and unmount it first"
        );
    }
    let wanted = (address.subvolume.as_ref()).context("name a subvolume, as in IMAGE:SUBVOL")?;
    let id = find_subvolume(&btrfs, wanted, &address.path)?;
    let info = btrfs.subvolumes()?.into_iter().find(|info| info.id == id);
    let info = info.context("the subvolume is not in the list of subvolumes")?;
    let path = info.path.as_deref().unwrap_or_default();
    let name = path.rsplit(|&byte| byte == b'/').next();
    let name = name.unwrap_or_default().to_vec();
    if name.is_empty() {
        bail!("the top level of a file system has no name and cannot be sent");
    }
    if !info.is_read_only {
        bail!(
            "the subvolume is not read-only; `btrfs property set SUBVOL ro true` makes it so while it is mounted"
        );
    }
    let tree = Arc::clone(&btrfs).subvolume(id)?.without_nested();
    Ok(Sent {
        typed: typed.to_owned(),
        name,
        info,
        tree,
    })
}
