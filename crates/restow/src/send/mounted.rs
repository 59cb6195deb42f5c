//! Sending subvolumes of a mounted btrfs: Linux makes the streams.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;

use linux::SubvolumeToSend;
use sendstream::{Command, Continuous, StreamWriter, Version, without_restarts};
use tree::Progress;

use super::nearest::{ParentCandidate, nearest};
use super::request::SendRequest;
use crate::error::{During, refuse};
use crate::{Error, Result, text};

/// The newest version of streams that Linux sends.
const VERSION_FILE: &str = "/sys/fs/btrfs/features/send_stream_version";
/// The inode number of the root of every subvolume (`BTRFS_FIRST_FREE_OBJECTID`).
const ROOT: u64 = 256;

/// A mounted read-only subvolume.
struct MountedSubvolume {
    typed: PathBuf,
    root: OwnedFd,
    info: linux::Subvolume,
}

/// The subvolumes to send, and those that the receiver has.
pub(super) struct MountedSender {
    subvolumes: Vec<MountedSubvolume>,
    parent: Option<MountedSubvolume>,
    sources: Vec<linux::Subvolume>,
    chooses_parent: bool,
}

impl MountedSender {
    pub(super) fn open(request: &SendRequest) -> Result<MountedSender> {
        if !request.devices.is_empty() {
            refuse!("--device applies to images only, not to mounted subvolumes");
        }
        let open_all = |paths: &[PathBuf]| -> Result<Vec<MountedSubvolume>> {
            let open = |path: &PathBuf| {
                let name = || format!("send {}", text::of_host_path(path, "-"));
                MountedSubvolume::open(path).during(name)
            };
            paths.iter().map(open).collect()
        };
        let subvolumes = open_all(&request.subvolumes)?;
        let parent = open_all(request.parent.as_slice())?.pop();
        let given = open_all(&request.clone_sources)?;
        refuse_several_file_systems(subvolumes.iter().chain(&parent).chain(&given))?;
        let mut sources: Vec<linux::Subvolume> = Vec::new();
        for source in given.iter().chain(&parent) {
            add(&mut sources, source.info);
        }
        Ok(MountedSender {
            chooses_parent: parent.is_none() && !given.is_empty(),
            subvolumes,
            parent,
            sources,
        })
    }

    /// Sends everything, and calls `on_subvolume` with the name of each subvolume. Returns the
    /// number of restarts.
    pub(super) fn write<W: Write>(
        &self,
        request: &SendRequest,
        version: Version,
        no_data: bool,
        on_subvolume: &dyn Fn(&str),
        progress: &dyn Progress,
        writer: &mut StreamWriter<W>,
    ) -> Result<u64> {
        let mut sources = self.sources.clone();
        let mut restarts = 0;
        for (turn, subvolume) in self.subvolumes.iter().enumerate() {
            let name = text::of_host_path(&subvolume.typed, "-");
            on_subvolume(&name);
            let parent = match &self.parent {
                Some(parent) => Some(parent.info.id),
                None if self.chooses_parent => Some(
                    subvolume
                        .parent_among(&sources)
                        .during(|| format!("send {name}"))?,
                ),
                None => None,
            };
            let ids: Vec<u64> = sources.iter().map(|source| source.id).collect();
            let to_send = SubvolumeToSend {
                parent,
                sources: &ids,
                version: version.number(),
                no_data,
                compressed: request.compressed_data,
            };
            if turn == 0 || !request.one_stream {
                writer.header()?;
            }
            let has_end = turn + 1 == self.subvolumes.len() || !request.one_stream;
            let sent = subvolume.send(&to_send, has_end, progress, writer);
            restarts += sent.during(|| format!("send {name}"))?.restarts;
            // As `btrfs send` does: with -c and without -p, the next one can be built on it.
            if self.chooses_parent {
                add(&mut sources, subvolume.info);
            }
        }
        Ok(restarts)
    }
}

/// Bytes of files that a command names.
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
pub(super) fn version(request: &SendRequest) -> Result<Version> {
    // Kernels without the file know only the first one.
    let newest = fs::read_to_string(VERSION_FILE).ok();
    let newest = newest.and_then(|words| words.trim().parse().ok());
    let newest: u32 = newest.unwrap_or(1);
    let wanted = match (request.version, request.compressed_data) {
        (Some(1), true) => refuse!("--compressed-data needs version 2 of streams, not 1"),
        (Some(0), _) => newest.min(Version::V3.number()),
        (Some(number), _) => number,
        (None, true) => 2,
        (None, false) => 1,
    };
    let version = Version::parse(wanted).filter(|_| wanted <= newest);
    version.ok_or_else(|| {
        Error::refused(format!(
            "version {wanted} of streams cannot be sent: this Linux sends up to version {newest}"
        ))
    })
}

fn refuse_several_file_systems<'a>(all: impl Iterator<Item = &'a MountedSubvolume>) -> Result<()> {
    let mut first = None;
    for subvolume in all {
        let name = || text::of_host_path(&subvolume.typed, "-");
        let uuid = linux::btrfs_file_system(&subvolume.root)
            .during(|| format!("read {}", name()))?
            .uuid;
        let (one, known) = first.get_or_insert_with(|| (name(), uuid));
        if *known != uuid {
            let other = name();
            refuse!("{one} and {other} are on two file systems");
        }
    }
    Ok(())
}

impl MountedSubvolume {
    fn open(path: &Path) -> Result<MountedSubvolume> {
        let root = linux::open_dir(path)?;
        if !linux::is_btrfs(&root)? {
            refuse!(
                "the directory is not on btrfs; `restow copy DIR DIR.stream` makes a stream of it"
            );
        }
        if linux::stat(&root)?.ino != ROOT {
            refuse!("a directory in a subvolume; only whole subvolumes can be sent");
        }
        let id = linux::subvolume_id(&root)?;
        let info = match linux::subvolume(&root, id) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refuse!(
                "only root can send mounted subvolumes; restow sends those of unmounted images without root (IMAGE:SUBVOL)"
            ),
            info => info?.ok_or_else(|| Error::refused("the subvolume was deleted"))?,
        };
        if id == linux::TOP_LEVEL {
            refuse!(
                "the top level of a file system has no name and cannot be sent; `btrfs subvolume snapshot -r` makes a subvolume of its files"
            );
        }
        if !info.is_read_only {
            refuse!(
                "the subvolume is not read-only; `btrfs property set SUBVOL ro true` makes it so"
            );
        }
        Ok(MountedSubvolume {
            typed: path.to_owned(),
            root,
            info,
        })
    }

    /// The number of the clone source that becomes the parent.
    fn parent_among(&self, sources: &[linux::Subvolume]) -> Result<u64> {
        let uuid = |uuid: [u8; 16]| (uuid != [0; 16]).then_some(uuid);
        let candidate = |info: &linux::Subvolume| ParentCandidate {
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
        to_send: &SubvolumeToSend<'_>,
        has_end: bool,
        progress: &dyn Progress,
        writer: &mut StreamWriter<W>,
    ) -> tree::Result<Continuous> {
        let (input, output) = io::pipe()?;
        thread::scope(|scope| {
            // The pipe is closed when Linux has sent everything.
            let sender = scope.spawn(move || linux::send_subvolume(&self.root, to_send, output));
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
