//! Receiving into a directory of any file system.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sendstream::{Command, Event, ReceivedDirectory, SentSubvolume, StreamReader};
use tree::Progress;

use super::record::{Entry, Record, digest};
use super::{Receive, tell};
use crate::bar::Bar;
use crate::copy::of_unrestored;
use crate::message;
use crate::stream::input::{Input, name, of_uuid};
use crate::text;

/// Makes a directory of each subvolume, in `dir`, which is made if it is not there. Returns what could not be kept, in words.
///
/// # Errors
/// The stream is damaged, its parent is missing or was changed, or a directory cannot be written. Directories that were complete
/// before are there.
pub(super) fn receive(args: &Receive, dir: &Path) -> Result<Vec<String>> {
    let shown = text::of_host_path(dir, "-");
    let bar = Bar::new("received", args.quiet);
    let input = Input::open(&args.file, &bar)?;
    match std::fs::create_dir(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("make {shown}"));
        }
        _ => {}
    }
    let target = linux::open_dir(dir).with_context(|| format!("open {shown}"))?;
    let mut receiver = Receiver {
        args,
        dir,
        target: Arc::new(target),
        record: Record::read(dir)?,
        unchanged: HashSet::new(),
        building: None,
        lost: Vec::new(),
    };
    let mut reader = StreamReader::new(input);
    let read = || format!("read {}", name(&args.file));
    let mut reported = 0;
    while reader.next_stream().with_context(read)?.is_some() {
        while let Some(record) = reader.next_command().with_context(read)? {
            tell(&Event::Command(&record), args, dir);
            let (number, end) = (record.number, record.end());
            if let Some(sent) = SentSubvolume::started_by(&record.command) {
                receiver.finish()?;
                receiver.start(sent)?;
            } else {
                receiver.apply(&record.command, number)?;
            }
            // Not for every command: most are short.
            if end - reported >= 1 << 20 {
                bar.advance(0, end - reported);
                reported = end;
            }
        }
        receiver.finish()?;
        if args.end {
            break;
        }
    }
    bar.advance(0, reader.position() - reported);
    bar.finish();
    Ok(receiver.lost)
}

struct Receiver<'a> {
    args: &'a Receive,
    dir: &'a Path,
    target: Arc<OwnedFd>,
    record: Record,
    /// Names of directories that are known to be as they were received.
    unchanged: HashSet<Vec<u8>>,
    building: Option<(SentSubvolume, ReceivedDirectory)>,
    lost: Vec<String>,
}

impl Receiver<'_> {
    fn write(&self, sent: &SentSubvolume, path: &[u8]) -> String {
        let mut to = self.dir.join(OsStr::from_bytes(&sent.name));
        if !path.is_empty() {
            to = to.join(OsStr::from_bytes(path));
        }
        text::of_host_path(&to, "-")
    }

    fn start(&mut self, sent: SentSubvolume) -> Result<()> {
        tell(&Event::Subvolume(&sent), self.args, self.dir);
        let to = self.write(&sent, b"");
        if linux::stat_at(&*self.target, &sent.name).is_ok() {
            bail!("{to} already exists; rename or delete it first");
        }
        let parent = match sent.parent {
            None => None,
            Some((uuid, ctransid)) => Some(open(&self.find(uuid, ctransid)?)?),
        };
        let (owners, decompresses) = (!self.args.no_owners, self.args.force_decompress);
        let started =
            ReceivedDirectory::start(sent.clone(), &self.target, owners, decompresses, parent);
        let building = started.with_context(|| format!("write {to}"))?;
        self.building = Some((sent, building));
        Ok(())
    }

    fn apply(&mut self, command: &Command<'_>, number: u64) -> Result<()> {
        if let (
            Command::Clone {
                clone_uuid,
                clone_ctransid,
                ..
            },
            Some((_, building)),
        ) = (command, &self.building)
            && !building.knows(*clone_uuid)
        {
            let source = open(&self.find(*clone_uuid, *clone_ctransid)?)?;
            if let Some((_, building)) = &mut self.building {
                building.know(*clone_uuid, source);
            }
        }
        let Some((_, building)) = &mut self.building else {
            return Ok(());
        };
        building.apply(command).map_err(|error| {
            let error = error.in_file(command.name(), command.path().unwrap_or_default());
            let into = text::of_host_path(self.dir, "-");
            anyhow::Error::from(error.in_part("command", number))
                .context(format!("receive into {into}"))
        })
    }

    /// Completes the directory that is being built, if there is one.
    fn finish(&mut self) -> Result<()> {
        let Some((sent, building)) = self.building.take() else {
            return Ok(());
        };
        let to = self.write(&sent, b"");
        let write = || format!("write {to}");
        let done = building.finish().with_context(write)?;
        let lost = of_unrestored(&done.unrestored, |path| self.write(&sent, path));
        self.lost.extend(lost);
        if done.verity_files > 0 {
            let files = text::count(done.verity_files, "file");
            self.lost
                .push(format!("{to}: fs-verity of {files} not enabled"));
        }
        if self.args.verbose > 0 && done.shared_clones + done.copied_clones > 0 {
            message::tell(&format!(
                "{to}: {} shared, {} copied, {}",
                text::count(done.shared_clones, "clone"),
                text::count(done.copied_clones, "clone"),
                text::of_bytes(done.copied_bytes)
            ));
        }
        let opened = linux::open_at(&*self.target, &sent.name, linux::OpenFlags::DIRECTORY, 0);
        let digest = opened
            .map_err(tree::Error::from)
            .and_then(|dir| digest(&dir));
        self.unchanged.insert(sent.name.to_vec());
        self.record.add(Entry {
            uuid: sent.uuid,
            ctransid: sent.ctransid,
            digest: digest.with_context(write)?,
            name: sent.name.to_vec(),
        })
    }

    /// The directory that was received as this subvolume, after comparing it with the record.
    fn find(&mut self, uuid: [u8; 16], ctransid: u64) -> Result<PathBuf> {
        // Those that this stream brings are known better.
        let is_own = |it: &&Entry| it.uuid == uuid && self.unchanged.contains(&it.name);
        let own = self.record.entries.iter().find(is_own);
        if let Some(path) = self.args.parent.as_ref().filter(|_| own.is_none()) {
            return Ok(path.clone());
        }
        let of_it = self.record.entries.iter().filter(|it| it.uuid == uuid);
        let Some(entry) = of_it.clone().find(|it| it.ctransid == ctransid) else {
            if of_it.count() > 0 {
                bail!(
                    "the parent or clone source {} was received in another state than the stream needs (transactions differ); --parent takes a directory as it is",
                    of_uuid(&uuid)
                );
            }
            bail!(
                "{} has not received the parent or clone source {}; receive it first, or name it with --parent",
                text::of_host_path(self.dir, "-"),
                of_uuid(&uuid)
            );
        };
        let path = self.dir.join(OsStr::from_bytes(&entry.name));
        if !self.unchanged.contains(&entry.name) {
            let shown = text::of_host_path(&path, "-");
            let opened = linux::open_dir(&path)
                .with_context(|| format!("open {shown}, received as {}", of_uuid(&uuid)))?;
            let now = digest(&opened).with_context(|| format!("read {shown}"))?;
            if now != entry.digest {
                bail!(
                    "{shown} was changed after it was received, and the stream builds on it; `--parent` takes a directory as it is"
                );
            }
            self.unchanged.insert(entry.name.clone());
        }
        Ok(path)
    }
}

fn open(path: &Path) -> Result<OwnedFd> {
    linux::open_dir(path).with_context(|| format!("open parent {}", text::of_host_path(path, "-")))
}
