//! `restow send`: sends subvolumes of unmounted images, as `btrfs send` does from mounted ones, and mounted ones.

mod mounted;
mod parent;
mod resume;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use btrfs::{Btrfs, Subvolume, SubvolumeInfo};
use clap::Args;
use restow::{Address, Container, OpenOptions, find_subvolume, is_same_file};
use sendstream::{
    Command, KnownSubvolume, SendData, SendOptions, StoredFiles, StreamWriter, Version,
};
use tree::{ExtentId, Ino, Inventory, Limits, Progress};

use crate::bar::Bar;
use crate::{message, text};
use parent::Candidate;
use resume::Target;

const BUFFER_BYTES: usize = 256 << 10;

/// Send subvolumes of btrfs images, or mounted ones, as streams for `btrfs receive`
///
/// Of images, writes full streams, byte for byte as `btrfs send` of Linux 6.18 does, and incremental ones in its order. Needs no
/// btrfs and no root. A subvolume must be read-only, and its image not be in use.
///
/// Mounted subvolumes, as in `restow send -p MONDAY TUESDAY`, are sent by Linux, which needs root. If Linux is interrupted, as by a
/// suspend, it starts again; the stream stays whole, because what comes twice is compared and left out.
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

    /// Send only what differs from this subvolume of the same file system, which the receiver must have
    #[arg(short = 'p', value_name = "PARENT")]
    parent: Option<PathBuf>,

    /// Clone data from this subvolume of the same file system, which the receiver must have, too (repeatable); without -p, also
    /// choose the parent among these
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

/// A subvolume to send, or that the receiver has.
struct Sent {
    typed: PathBuf,
    name: Vec<u8>,
    info: SubvolumeInfo,
    tree: Subvolume,
}

/// What an image stores of the files of a subvolume.
struct Stored<'a>(&'a Subvolume);

impl StoredFiles for Stored<'_> {
    fn names(&self, ino: Ino) -> tree::Result<Vec<(Ino, Box<[u8]>)>> {
        self.0.stored_names(ino)
    }

    fn flags(&self, ino: Ino) -> tree::Result<u64> {
        self.0.stored_flags(ino)
    }

    fn preallocated(&self, ino: Ino, offset: u64) -> tree::Result<Option<(ExtentId, u64, u64)>> {
        self.0.stored_preallocation(ino, offset)
    }
}

impl Sent {
    fn typed(&self) -> String {
        text::of_host_path(&self.typed, "standard input")
    }

    /// The UUID by which whoever received it knows it.
    fn known_uuid(&self) -> [u8; 16] {
        (self.info.received_uuid.or(self.info.uuid)).unwrap_or_default()
    }

    fn is(&self, other: &Sent) -> bool {
        self.is_beside(other) && self.info.id == other.info.id
    }

    /// Whether both are of one image.
    fn is_beside(&self, other: &Sent) -> bool {
        Arc::ptr_eq(self.tree.btrfs(), other.tree.btrfs())
    }
}

/// A subvolume that the receiver has.
struct Known<'a> {
    sent: &'a Sent,
    stored: Stored<'a>,
    inventory: Inventory<'a>,
}

impl Known<'_> {
    fn of(sent: &Sent) -> Result<Known<'_>> {
        let inventory = Inventory::of(&sent.tree, &Limits::default());
        Ok(Known {
            sent,
            stored: Stored(&sent.tree),
            inventory: inventory.with_context(|| format!("read {}", sent.typed()))?,
        })
    }

    fn subvolume(&self) -> KnownSubvolume<'_> {
        KnownSubvolume {
            inventory: &self.inventory,
            stored: &self.stored,
            uuid: self.sent.known_uuid(),
            ctransid: self.sent.info.ctransid,
        }
    }
}

/// The images that are open, each once.
#[derive(Default)]
struct Images(Vec<(PathBuf, Arc<Btrfs>)>);

/// # Errors
/// A subvolume cannot be sent or read, or the stream cannot be written.
pub(crate) fn run(args: &Send) -> Result<()> {
    if args.subvolumes.iter().any(|typed| typed.is_dir()) {
        return mounted::run(args);
    }
    let version = version(args)?;
    let mut images = Images::default();
    let mut open = |verb: &str, typed: &PathBuf| {
        let name = || format!("{verb} {}", text::of_host_path(typed, "standard input"));
        open_subvolume(typed, args, &mut images).with_context(name)
    };
    let subvolumes = args.subvolumes.iter().map(|typed| open("send", typed));
    let subvolumes: Vec<Sent> = subvolumes.collect::<Result<_>>()?;
    let parent = (args.parent.iter().map(|typed| open("build on", typed))).next();
    let parent = parent.transpose()?;
    let sources = args.clone_sources.iter();
    let sources = sources.map(|typed| open("clone from", typed));
    let sources: Vec<Sent> = sources.collect::<Result<_>>()?;
    for sent in &subvolumes {
        refuse_known(sent, parent.as_ref(), &sources)?;
    }
    let sending = Sending {
        args,
        subvolumes: &subvolumes,
        parent: parent.as_ref(),
        sources: &sources,
    };
    let output = args.file.as_deref().unwrap_or(Path::new("-"));
    let mut target = Target::open(output, args.resume_from.as_deref())?;
    let bar = Bar::new("sent", args.quiet);
    if bar.is_shown() {
        bar.expect(None, Some(sending.estimate(version)?));
    }
    let mut writer =
        StreamWriter::new(BufWriter::with_capacity(BUFFER_BYTES, &mut target), version);
    let data = match (args.no_data, args.compressed_data) {
        (true, _) => SendData::Nothing,
        (false, true) => SendData::AsStored,
        (false, false) => SendData::Plain,
    };
    // Scripts expect these words, without the name of the program.
    let tell = |name: &str| {
        if !args.quiet {
            let _ = writeln!(io::stderr(), "At subvol {name}");
        }
    };
    sending.write(data, &tell, &bar, &mut writer)?;
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

/// What is sent, and what the receiver has.
struct Sending<'a> {
    args: &'a Send,
    subvolumes: &'a [Sent],
    parent: Option<&'a Sent>,
    sources: &'a [Sent],
}

impl Sending<'_> {
    /// How many bytes of files are sent: those that a stream without data names.
    fn estimate(&self, version: Version) -> Result<u64> {
        let bytes = FileBytes::default();
        let mut writer = StreamWriter::new(io::sink(), version);
        self.write(SendData::Nothing, &|_| {}, &bytes, &mut writer)?;
        Ok(bytes.0.into_inner())
    }

    /// Sends everything; `tell` is called with the name of each subvolume.
    fn write<W: Write>(
        &self,
        data: SendData,
        tell: &dyn Fn(&str),
        progress: &dyn Progress,
        writer: &mut StreamWriter<W>,
    ) -> Result<()> {
        let chooses_parent = self.parent.is_none() && !self.sources.is_empty();
        let mut known: Vec<Known<'_>> = Vec::new();
        for sent in self.parent.into_iter().chain(self.sources) {
            add(&mut known, sent)?;
        }
        for (turn, sent) in self.subvolumes.iter().enumerate() {
            let name = sent.typed();
            tell(&name);
            let base = match self.parent {
                Some(parent) => Some(parent),
                None if !chooses_parent => None,
                None => Some(nearest(sent, &known).with_context(|| format!("send {name}"))?),
            };
            // The parent comes first.
            let mut others: Vec<KnownSubvolume<'_>> = Vec::new();
            for known in &known {
                if base.is_some_and(|base| known.sent.is(base)) {
                    others.insert(0, known.subvolume());
                } else if !known.sent.is(sent) {
                    others.push(known.subvolume());
                }
            }
            if turn == 0 || !self.args.one_stream {
                writer.header()?;
            }
            let done = send_one(sent, data, &others, progress, writer);
            done.with_context(|| format!("send {name}"))?;
            if turn + 1 == self.subvolumes.len() || !self.args.one_stream {
                writer.command(&Command::End)?;
            }
            // As `btrfs send` does: with -c and without -p, the next one can be built on it.
            if chooses_parent {
                add(&mut known, sent)?;
            }
        }
        Ok(())
    }
}

/// Counts the bytes of files that a stream names.
#[derive(Default)]
struct FileBytes(AtomicU64);

impl Progress for FileBytes {
    fn expect(&self, _files: Option<u64>, _bytes: Option<u64>) {}

    fn advance(&self, _files: u64, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Sends a subvolume; if there are `known` ones, as changes of the first of these.
fn send_one<W: Write>(
    sent: &Sent,
    data: SendData,
    known: &[KnownSubvolume<'_>],
    progress: &dyn Progress,
    writer: &mut StreamWriter<W>,
) -> tree::Result<()> {
    let inventory = Inventory::of(&sent.tree, &Limits::default())?;
    let stored = Stored(&sent.tree);
    let options = SendOptions {
        name: &sent.name,
        uuid: sent.known_uuid(),
        ctransid: sent.info.ctransid,
        data,
        sector_bytes: sent.tree.btrfs().superblock().sectorsize,
        stored: Some(&stored),
    };
    match known {
        [] => sendstream::send(&inventory, &options, progress, writer)?,
        [parent, sources @ ..] => {
            sendstream::send_changes(&inventory, parent, sources, &options, progress, writer)?
        }
    };
    Ok(())
}

/// Refuses a parent and sources of clones that cannot be those of a subvolume.
fn refuse_known(sent: &Sent, parent: Option<&Sent>, sources: &[Sent]) -> Result<()> {
    let name = sent.typed();
    for known in parent.into_iter().chain(sources) {
        if !sent.is_beside(known) {
            let known = known.typed();
            bail!("send {name}: {known} is in another image, and both must be in one");
        }
    }
    if let Some(parent) = parent.filter(|parent| sent.is(parent)) {
        bail!("send {name}: {} is the subvolume itself", parent.typed());
    }
    Ok(())
}

/// Adds a subvolume to those that the receiver has, unless it is one of them.
fn add<'a>(known: &mut Vec<Known<'a>>, sent: &'a Sent) -> Result<()> {
    if !known.iter().any(|known| known.sent.is(sent)) {
        known.push(Known::of(sent)?);
    }
    Ok(())
}

/// The clone source that becomes the parent.
fn nearest<'a>(sent: &Sent, sources: &[Known<'a>]) -> Result<&'a Sent> {
    let candidate = |info: &SubvolumeInfo| Candidate {
        uuid: info.uuid,
        parent_uuid: info.parent_uuid,
        ctransid: info.ctransid,
    };
    let all = sent.tree.btrfs().subvolumes()?;
    let origin = sent.info.parent_uuid;
    let origin = all
        .iter()
        .find(|info| origin.is_some() && info.uuid == origin);
    let sources: Vec<&Sent> = sources.iter().map(|known| known.sent).collect();
    let candidates: Vec<_> = sources.iter().map(|it| candidate(&it.info)).collect();
    Ok(sources[parent::nearest(origin.map(candidate), &candidates)?])
}

fn version(args: &Send) -> Result<Version> {
    match (args.proto, args.compressed_data) {
        (Some(1), true) => bail!("--compressed-data needs version 2 of streams, not 1"),
        (Some(1) | None, false) => Ok(Version::V1),
        (Some(0 | 2) | None, _) => Ok(Version::V2),
        (Some(number), _) => bail!("version {number} of streams cannot be sent, only 1 and 2"),
    }
}

impl Images {
    /// Opens an image, or takes it if it is open.
    fn open(&mut self, path: &Path, args: &Send) -> Result<Arc<Btrfs>> {
        if let Some((_, btrfs)) = self.0.iter().find(|(open, _)| is_same_file(open, path)) {
            return Ok(Arc::clone(btrfs));
        }
        let file = match Container::open(path, None)? {
            Container::Btrfs(file) => file,
            Container::Directory(_) => {
                bail!("a directory, while the subvolume to send is in an image")
            }
            other => bail!("{} has no subvolumes to send", other.noun()),
        };
        let mut options = OpenOptions::default();
        options.devices.clone_from(&args.device);
        let btrfs = file.open_btrfs(&options)?;
        self.0.push((path.to_owned(), Arc::clone(&btrfs)));
        Ok(btrfs)
    }
}

/// Opens a subvolume, if it can be sent.
fn open_subvolume(typed: &Path, args: &Send, images: &mut Images) -> Result<Sent> {
    let address = Address::of(typed)?;
    let btrfs = images.open(&address.path, args)?;
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
