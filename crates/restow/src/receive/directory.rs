//! Receiving into a directory of any file system.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sendstream::{
    Command, Event, InDirectory, OtherTransaction, ReceivedDirectory, SentSubvolume, StreamReader,
};
use tree::Progress;

use super::record::{NAME, ReceivedRecord, RecordedSubvolume, digest};
use super::{ReceiveEvent, ReceiveOptions};
use crate::error::{During, refuse};
use crate::text::{self, of_uuid};
use crate::{Input, Result};

/// A subvolume that became a directory.
#[derive(Debug)]
#[non_exhaustive]
pub struct DirectoryReceived {
    /// The directory.
    pub path: PathBuf,
    /// Properties that could not be restored, and the counts of clones.
    pub result: InDirectory,
}

/// Makes a directory of each subvolume of a stream, in `dir`, which is made if it does not exist.
///
/// # Errors
/// The stream is damaged, its parent is missing or was changed, or a directory cannot be written.
/// Directories that were complete before exist.
pub fn receive_into_directory(
    input: Input,
    dir: &Path,
    options: &ReceiveOptions,
    progress: &dyn Progress,
    on_event: &mut dyn FnMut(&ReceiveEvent<'_>),
) -> Result<()> {
    let shown = text::of_host_path(dir, "-");
    let source = input.name();
    match std::fs::create_dir(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(error).during(|| format!("make {shown}"));
        }
        _ => {}
    }
    let target = linux::open_dir(dir).during(|| format!("open {shown}"))?;
    let mut receiver = DirectoryReceiver {
        options,
        on_event,
        dir,
        target: Arc::new(target),
        record: ReceivedRecord::read(dir)?,
        unchanged: HashSet::new(),
        building: None,
    };
    let mut reader = StreamReader::new(input.into_reader());
    if options.stream.stops_at_end {
        reader = reader.exactly();
    }
    let read = || format!("read {source}");
    let mut reported = 0;
    while reader.next_stream().during(read)?.is_some() {
        while let Some(record) = reader.next_command().during(read)? {
            (receiver.on_event)(&ReceiveEvent::Stream(&Event::Command(&record)));
            let (number, end) = (record.number, record.end());
            if let Some(sent) = SentSubvolume::started_by(&record.command) {
                receiver.finish()?;
                receiver.start(sent)?;
            } else {
                receiver.apply(&record.command, number)?;
            }
            // Not for every command: most are short.
            if end - reported >= 1 << 20 {
                progress.advance(0, end - reported);
                reported = end;
            }
        }
        receiver.finish()?;
        if options.stream.stops_at_end {
            break;
        }
    }
    progress.advance(0, reader.position() - reported);
    Ok(())
}

struct DirectoryReceiver<'a> {
    options: &'a ReceiveOptions,
    on_event: &'a mut dyn FnMut(&ReceiveEvent<'_>),
    dir: &'a Path,
    target: Arc<OwnedFd>,
    record: ReceivedRecord,
    /// Names of directories that are known to be as they were received.
    unchanged: HashSet<Vec<u8>>,
    building: Option<(SentSubvolume, ReceivedDirectory)>,
}

impl DirectoryReceiver<'_> {
    fn path_of(&self, sent: &SentSubvolume) -> PathBuf {
        self.dir.join(OsStr::from_bytes(&sent.name))
    }

    fn start(&mut self, sent: SentSubvolume) -> Result<()> {
        (self.on_event)(&ReceiveEvent::Stream(&Event::Subvolume(&sent)));
        let to = text::of_host_path(&self.path_of(&sent), "-");
        if *sent.name == *NAME.as_bytes() {
            refuse!(
                "{to} is the record of what was received into this directory; receive a subvolume of this name into an image or a mounted btrfs"
            );
        }
        if linux::stat_at(&*self.target, &sent.name).is_ok() {
            refuse!("{to} already exists; rename or delete it first");
        }
        let parent = match sent.parent {
            None => None,
            Some((uuid, ctransid)) => Some(open(&self.find(uuid, ctransid)?)?),
        };
        let (owners, decompresses) = (self.options.owners, self.options.stream.decompresses);
        let started =
            ReceivedDirectory::start(sent.clone(), &self.target, owners, decompresses, parent);
        let building = started.during(|| format!("write {to}"))?;
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
            crate::Error::from(error.in_part("command", number))
                .during(format!("receive into {into}"))
        })
    }

    /// Completes the directory that is being built, if there is one.
    fn finish(&mut self) -> Result<()> {
        let Some((sent, building)) = self.building.take() else {
            return Ok(());
        };
        let path = self.path_of(&sent);
        let write = || format!("write {}", text::of_host_path(&path, "-"));
        let result = building.finish().during(write)?;
        let received = DirectoryReceived {
            path: path.clone(),
            result,
        };
        (self.on_event)(&ReceiveEvent::Directory(&received));
        let opened = linux::open_at(&*self.target, &sent.name, linux::OpenFlags::DIRECTORY, 0);
        let digest = opened
            .map_err(tree::Error::from)
            .and_then(|dir| digest(&dir));
        self.unchanged.insert(sent.name.to_vec());
        self.record.add(RecordedSubvolume {
            uuid: sent.uuid,
            ctransid: sent.ctransid,
            digest: digest.during(write)?,
            name: sent.name.to_vec(),
        })
    }

    /// The directory that was received as this subvolume, after comparing it with the record.
    fn find(&mut self, uuid: [u8; 16], ctransid: u64) -> Result<PathBuf> {
        // Those that this stream brings are known better.
        let is_own = |it: &&RecordedSubvolume| it.uuid == uuid && self.unchanged.contains(&it.name);
        let own = self.record.entries.iter().find(is_own);
        if let Some(path) = self
            .options
            .stream
            .parent
            .as_ref()
            .filter(|_| own.is_none())
        {
            return Ok(path.clone());
        }
        let mut of_it = self.record.entries.iter().filter(|it| it.uuid == uuid);
        let exact = of_it.clone().find(|it| it.ctransid == ctransid);
        let Some(entry) = exact.or_else(|| of_it.next_back()) else {
            refuse!(
                "{} has not received the parent or clone source {}; receive it first, or name it, or a copy of its stream, with --parent",
                text::of_host_path(self.dir, "-"),
                of_uuid(&uuid)
            );
        };
        if entry.ctransid != ctransid {
            let other = OtherTransaction::new(uuid, entry.ctransid, ctransid);
            (self.on_event)(&ReceiveEvent::Stream(&Event::OtherTransaction(&other)));
        }
        let path = self.dir.join(OsStr::from_bytes(&entry.name));
        if !self.unchanged.contains(&entry.name) {
            let shown = text::of_host_path(&path, "-");
            let opened = linux::open_dir(&path)
                .during(|| format!("open {shown}, received as {}", of_uuid(&uuid)))?;
            let now = digest(&opened).during(|| format!("read {shown}"))?;
            if now != entry.digest {
                refuse!(
                    "{shown} was changed after it was received, and the stream builds on it; `--parent` takes a directory as it is"
                );
            }
            self.unchanged.insert(entry.name.clone());
        }
        Ok(path)
    }
}

fn open(path: &Path) -> Result<OwnedFd> {
    linux::open_dir(path).during(|| format!("open parent {}", text::of_host_path(path, "-")))
}
