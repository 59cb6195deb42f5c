//! Sending subvolumes of a mounted btrfs: Linux makes the streams.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, bail};
use linux::SubvolumeToSend;
use sendstream::{Command, Continuous, StreamWriter, Version, without_restarts};
use tree::Progress;

use super::parent::{Candidate, nearest};
use super::resume::Target;
use super::{BUFFER_BYTES, FileBytes, Send};
use crate::bar::Bar;
use crate::{message, text};

/// Where Linux says which versions of streams it sends.
const VERSION_FILE: &str = "/sys/fs/btrfs/features/send_stream_version";
/// The inode number of the root of every subvolume (`BTRFS_FIRST_FREE_OBJECTID`).
const ROOT: u64 = 256;

/// A mounted read-only subvolume.
struct Mounted {
    typed: PathBuf,
    root: OwnedFd,
    info: linux::Subvolume,
}

/// # Errors
/// A subvolume cannot be sent, or the stream cannot be written.
pub(super) fn run(args: &Send) -> Result<()> {
    let version = version(args)?;
    if !args.device.is_empty() {
        bail!("--device applies to images only, not to mounted subvolumes");
    }
    let open_all = |paths: &[PathBuf]| -> Result<Vec<Mounted>> {
        let open = |path: &PathBuf| {
            let name = || format!("send {}", text::of_host_path(path, "-"));
            Mounted::open(path).with_context(name)
        };
        paths.iter().map(open).collect()
    };
    let subvolumes = open_all(&args.subvolumes)?;
    let parent = open_all(args.parent.as_slice())?.pop();
    let given = open_all(&args.clone_sources)?;
    let all = || subvolumes.iter().chain(&parent).chain(&given);
    refuse_several_file_systems(all())?;
    let mut sources: Vec<linux::Subvolume> = Vec::new();
    for source in given.iter().chain(&parent) {
        add(&mut sources, source.info);
    }
    let sending = Sending {
        args,
        subvolumes: &subvolumes,
        parent: parent.as_ref(),
        sources,
        version,
        chooses_parent: parent.is_none() && !given.is_empty(),
    };
    let output = args.file.as_deref().unwrap_or(Path::new("-"));
    let mut target = Target::open(output, args.resume_from.as_deref())?;
    let bar = Bar::new("sent", args.quiet);
    if bar.is_shown() {
        bar.expect(None, Some(sending.estimate()?));
    }
    let mut writer =
        StreamWriter::new(BufWriter::with_capacity(BUFFER_BYTES, &mut target), version);
    // Scripts expect these words, without the name of the program.
    let tell = |name: &str| {
        if !args.quiet {
            let _ = writeln!(io::stderr(), "At subvol {name}");
        }
    };
    let restarts = sending.write(args.no_data, &tell, &bar, &mut writer)?;
    let bytes = writer.position();
    let mut buffer = writer.into_inner();
    buffer.flush().context("write the stream")?;
    drop(buffer);
    let there = target.finish()?;
    bar.finish();
    if restarts > 0 && !args.quiet {
        message::tell(&format!(
            "Linux was interrupted and began {restarts} times from the start; what it sent twice was equal and is in the stream once"
        ));
    }
    if args.verbose {
        message::tell(&format!("{} sent", text::of_bytes(bytes - there)));
    }
    Ok(())
}

/// What is sent, and what the receiver has.
struct Sending<'a> {
    args: &'a Send,
    subvolumes: &'a [Mounted],
    parent: Option<&'a Mounted>,
    sources: Vec<linux::Subvolume>,
    version: Version,
    chooses_parent: bool,
}

impl Sending<'_> {
    /// How many bytes of files are sent: those that a stream without data names.
    fn estimate(&self) -> Result<u64> {
        let bytes = FileBytes::default();
        let mut writer = StreamWriter::new(io::sink(), self.version);
        self.write(true, &|_| {}, &bytes, &mut writer)?;
        Ok(bytes.0.into_inner())
    }

    /// Sends everything; `tell` is called with the name of each subvolume. Returns how often Linux started again.
    fn write<W: Write>(
        &self,
        no_data: bool,
        tell: &dyn Fn(&str),
        progress: &dyn Progress,
        writer: &mut StreamWriter<W>,
    ) -> Result<u64> {
        let mut sources = self.sources.clone();
        let mut restarts = 0;
        for (turn, subvolume) in self.subvolumes.iter().enumerate() {
            let name = text::of_host_path(&subvolume.typed, "-");
            tell(&name);
            let parent = match self.parent {
                Some(parent) => Some(parent.info.id),
                None if self.chooses_parent => Some(
                    subvolume
                        .parent_among(&sources)
                        .with_context(|| format!("send {name}"))?,
                ),
                None => None,
            };
            let ids: Vec<u64> = sources.iter().map(|source| source.id).collect();
            let what = SubvolumeToSend {
                parent,
                sources: &ids,
                version: self.version.number(),
                no_data,
                compressed: self.args.compressed_data,
            };
            if turn == 0 || !self.args.one_stream {
                writer.header()?;
            }
            let has_end = turn + 1 == self.subvolumes.len() || !self.args.one_stream;
            let sent = subvolume.send(&what, has_end, progress, writer);
            restarts += sent.with_context(|| format!("send {name}"))?.restarts;
            // As `btrfs send` does: with -c and without -p, the next one can be built on it.
            if self.chooses_parent {
                add(&mut sources, subvolume.info);
            }
        }
        Ok(restarts)
    }
}

/// How many bytes of files a command names.
fn file_bytes(command: &Command<'_>) -> u64 {
    match command {
        Command::Write { data, .. } => data.len() as u64,
        Command::EncodedWrite(write) => write.unencoded_file_len,
        Command::UpdateExtent { size, .. } => *size,
        _ => 0,
    }
}

fn add(sources: &mut Vec<linux::Subvolume>, source: linux::Subvolume) {
    if sources.iter().all(|known| known.id != source.id) {
        sources.push(source);
    }
}

/// The version that the options ask for, if Linux can send it.
fn version(args: &Send) -> Result<Version> {
    // Kernels without the file know only the first one.
    let newest = fs::read_to_string(VERSION_FILE).ok();
    let newest = newest.and_then(|words| words.trim().parse().ok());
    let newest: u32 = newest.unwrap_or(1);
    let wanted = match (args.proto, args.compressed_data) {
        (Some(1), true) => bail!("--compressed-data needs version 2 of streams, not 1"),
        (Some(0), _) => newest.min(Version::V3.number()),
        (Some(number), _) => number,
        (None, true) => 2,
        (None, false) => 1,
    };
    let version = Version::parse(wanted).filter(|_| wanted <= newest);
    version.with_context(|| {
        format!(
            "version {wanted} of streams cannot be sent: this Linux sends up to version {newest}"
        )
    })
}

fn refuse_several_file_systems<'a>(all: impl Iterator<Item = &'a Mounted>) -> Result<()> {
    let mut first = None;
    for subvolume in all {
        let name = || text::of_host_path(&subvolume.typed, "-");
        let uuid = linux::btrfs_file_system(&subvolume.root)
            .with_context(|| format!("read {}", name()))?
            .uuid;
        let (one, known) = first.get_or_insert_with(|| (name(), uuid));
        if *known != uuid {
            let other = name();
            bail!("{one} and {other} are on two file systems");
        }
    }
    Ok(())
}

impl Mounted {
    fn open(path: &Path) -> Result<Mounted> {
        let root = linux::open_dir(path)?;
        if !linux::is_btrfs(&root)? {
            bail!(
                "the directory is not on btrfs; `restow copy DIR DIR.stream` makes a stream of it"
            );
        }
        if linux::stat(&root)?.ino != ROOT {
            bail!("a directory in a subvolume; only whole subvolumes can be sent");
        }
        let id = linux::subvolume_id(&root)?;
        let info = match linux::subvolume(&root, id) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => bail!(
                "only root can send mounted subvolumes; restow sends those of unmounted images without root (IMAGE:SUBVOL)"
            ),
            info => info?.context("the subvolume was deleted")?,
        };
        if id == linux::TOP_LEVEL {
            bail!("the top level of a file system has no name and cannot be sent");
        }
        if !info.is_read_only {
            bail!(
                "the subvolume is not read-only; `btrfs property set SUBVOL ro true` makes it so"
            );
        }
        Ok(Mounted {
            typed: path.to_owned(),
            root,
            info,
        })
    }

    /// The number of the clone source that becomes the parent.
    fn parent_among(&self, sources: &[linux::Subvolume]) -> Result<u64> {
        let uuid = |uuid: [u8; 16]| (uuid != [0; 16]).then_some(uuid);
        let candidate = |info: &linux::Subvolume| Candidate {
            uuid: uuid(info.uuid),
            parent_uuid: uuid(info.parent_uuid),
            ctransid: info.ctransid,
        };
        let origin = match uuid(self.info.parent_uuid) {
            Some(origin) => linux::subvolumes_by_uuid(&self.root, origin, false)?,
            None => Vec::new(),
        };
        let candidates: Vec<_> = sources.iter().map(candidate).collect();
        let index = nearest(origin.first().map(candidate), &candidates)?;
        Ok(sources[index].id)
    }

    /// Sends it, without the header, and without the end command unless `has_end`.
    fn send<W: Write>(
        &self,
        what: &SubvolumeToSend<'_>,
        has_end: bool,
        progress: &dyn Progress,
        writer: &mut StreamWriter<W>,
    ) -> tree::Result<Continuous> {
        let (input, output) = io::pipe()?;
        thread::scope(|scope| {
            // The pipe is closed when Linux has sent everything.
            let sender = scope.spawn(move || linux::send_subvolume(&self.root, what, output));
            // Reading ends the pipe, too: otherwise Linux would wait if it failed.
            let read = without_restarts(input, |record| {
                progress.advance(0, file_bytes(&record.command));
                if matches!(record.command, Command::End) && !has_end {
                    return Ok(());
                }
                writer.copy(record.bytes)
            });
            let sent = sender.join();
            let sent = sent.unwrap_or_else(|_| Err(io::Error::other("the sending thread failed")));
            match sent {
                // It found the pipe closed, because of what `read` says.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe && read.is_err() => read,
                Err(error) => Err(error.into()),
                Ok(()) => read,
            }
        })
    }
}
