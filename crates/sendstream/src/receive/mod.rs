//! Receiving streams into a mounted btrfs, or into directories.

mod apply;
mod attributes;
mod copied;
mod directory;
mod files;
mod inherited;
mod options;
mod parent;
mod ranges;
mod times;
mod verifier;

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use linux::OpenFlags;
use tree::temporary::{self, Temporary};
use tree::{Error, Progress, Result};

use self::apply::Building;
use self::attributes::{lock, unlock};
pub use self::directory::{InDirectory, ReceivedDirectory};
use self::files::OpenFiles;
use self::inherited::disinherit;
pub use self::options::{ReceiveOptions, Received};
use self::parent::Sources;
pub use self::parent::{OtherTransaction, ParentState};
use crate::reader::{CommandRecord, StreamReader};
use crate::subvolume::SentSubvolume;

/// A step of receiving a stream.
#[derive(Debug)]
pub enum Event<'a> {
    /// A subvolume is started.
    Subvolume(&'a SentSubvolume),
    /// A command comes next.
    Command(&'a CommandRecord<'a>),
    /// A parent or clone source is used that was received from another transaction.
    OtherTransaction(&'a OtherTransaction),
    /// A command failed, and the next one follows.
    Failed(&'a Error),
    /// A subvolume is not complete, and is kept under this name.
    Kept(&'a [u8]),
}

/// Receives all streams of `input` into the directory `target` on a mounted btrfs, for which it
/// needs root.
///
/// Each subvolume is built under a temporary name. When it is complete, everything is on the
/// medium, and encoded data is read back from there, it gets its received UUID and its name,
/// and becomes read-only. If that fails, it is deleted.
///
/// Files are opened beneath the new subvolume only, and no symlink is followed. The target must not
/// hold names that the stream has for its subvolumes.
///
/// # Errors
/// The first thing that is wrong with the stream, or that Linux refuses, with the number of the
/// command. Subvolumes that were complete before are there.
pub fn receive<R: Read>(
    input: R,
    target: &Path,
    options: &ReceiveOptions,
    progress: &dyn Progress,
    event: &mut dyn FnMut(&Event<'_>),
) -> Result<Received> {
    let target = Arc::new(linux::open_dir(target)?);
    let mut receiver = BtrfsReceiver {
        sources: Sources::new(&target),
        target,
        options,
        received: Received::default(),
        building: None,
    };
    let mut reader = StreamReader::new(input);
    if options.stops_at_end {
        reader = reader.exactly();
    }
    let mut result = receiver.run(&mut reader, progress, event);
    if result.is_err() && !temporary::is_stopping() && receiver.received.failed == 0 {
        // An encoded write before that may be what failed first.
        result = receiver.verify(event).and(result);
    }
    if let Some(unfinished) = receiver.building.take() {
        if options.keeps && !temporary::is_stopping() {
            let name = unfinished.temporary.keep()?;
            event(&Event::Kept(&name));
        } else {
            delete(&receiver.target, unfinished);
        }
    }
    result.map(|()| receiver.received)
}

struct BtrfsReceiver<'a> {
    target: Arc<OwnedFd>,
    options: &'a ReceiveOptions,
    sources: Sources,
    received: Received,
    building: Option<Unfinished>,
}

/// A subvolume that is being built.
struct Unfinished {
    building: Building,
    temporary: Temporary,
    sent: SentSubvolume,
    failed: u64,
}

/// Deletes a subvolume that is not complete.
fn delete(target: &OwnedFd, unfinished: Unfinished) {
    let Unfinished {
        building,
        temporary,
        ..
    } = unfinished;
    // Closes everything in it.
    drop(building);
    // This error cannot be reported: the error that led here is already on its way. `temporary`
    // then deletes file by file.
    let _ = linux::delete_subvolume(target, temporary.name());
}

impl BtrfsReceiver<'_> {
    fn run<R: Read>(
        &mut self,
        reader: &mut StreamReader<R>,
        progress: &dyn Progress,
        event: &mut dyn FnMut(&Event<'_>),
    ) -> Result<()> {
        let mut reported = 0;
        while reader.next_stream()?.is_some() {
            while let Some(record) = reader.next_command()? {
                if temporary::is_stopping() {
                    return Err(Error::Io(io::ErrorKind::Interrupted.into()));
                }
                let number = record.number;
                let end = record.end();
                event(&Event::Command(&record));
                if let Some(sent) = SentSubvolume::started_by(&record.command) {
                    // A subvolume that cannot be started cannot be skipped, either: what follows
                    // would be another's.
                    self.finish(event)?;
                    event(&Event::Subvolume(&sent));
                    self.start(sent)
                        .map_err(|error| error.in_part("command", number))?;
                    self.report_others(event);
                } else if let Some(unfinished) = &mut self.building {
                    let building = &mut unfinished.building;
                    let command = &record.command;
                    let done =
                        building.apply(number, command, &mut self.sources, &mut self.received);
                    if done.is_err() {
                        // What came before is reported first.
                        building.verifier.wait()?;
                    }
                    let mut failed = building.verifier.failed()?;
                    if let Err(error) = done {
                        let path = command.path().unwrap_or_default();
                        let error = error.in_file(command.name(), path);
                        failed.push(error.in_part("command", number));
                    }
                    self.report_others(event);
                    self.count(failed, event)?;
                }
                // Not for every command: most are short.
                if end - reported >= 1 << 20 {
                    progress.advance(0, end - reported);
                    reported = end;
                }
            }
            self.finish(event)?;
            if self.options.stops_at_end {
                break;
            }
        }
        progress.advance(0, reader.position() - reported);
        Ok(())
    }

    fn report_others(&mut self, event: &mut dyn FnMut(&Event<'_>)) {
        for other in self.sources.other_transactions.drain(..) {
            event(&Event::OtherTransaction(&other));
        }
    }

    /// Counts commands of the subvolume that is being built as failed. Returns the last one that is
    /// allowed to.
    fn count(&mut self, failed: Vec<Error>, event: &mut dyn FnMut(&Event<'_>)) -> Result<()> {
        for error in failed {
            if let Some(unfinished) = &mut self.building {
                unfinished.failed += 1;
            }
            self.received.failed += 1;
            if self.received.failed == self.options.errors_max {
                return Err(error);
            }
            event(&Event::Failed(&error));
        }
        Ok(())
    }

    /// Waits until the encoded writes are verified, and counts those that are wrong as failed.
    fn verify(&mut self, event: &mut dyn FnMut(&Event<'_>)) -> Result<()> {
        let Some(unfinished) = &mut self.building else {
            return Ok(());
        };
        unfinished.building.verifier.wait()?;
        let failed = unfinished.building.verifier.failed()?;
        self.count(failed, event)
    }

    fn start(&mut self, sent: SentSubvolume) -> Result<()> {
        if linux::stat_at(&*self.target, &sent.name).is_ok() {
            return Err(Error::InvalidInput(
                "the target has a file of the subvolume's name; rename or delete it first",
            ));
        }
        let parent = match (sent.parent, &self.options.parent) {
            (None, _) => None,
            (Some(_), Some(path)) => {
                let parent = linux::open_dir(path);
                let bytes = path.as_os_str().as_encoded_bytes();
                Some(parent.map_err(|error| Error::from(error).in_file("open parent", bytes))?)
            }
            (Some((uuid, ctransid)), None) => Some(self.sources.find(uuid, ctransid)?),
        };
        let make = |dir: &OwnedFd, name: &[u8]| {
            match &parent {
                None => linux::create_subvolume(dir, name)?,
                Some(parent) => linux::create_snapshot(parent, dir, name)?,
            }
            let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
            let root = linux::open_at(dir, name, flags, 0)?;
            // A snapshot has the lock of its parent, with which it could not be deleted.
            let locks = unlock(&root)?;
            Ok((root, locks))
        };
        let (temporary, (root, locks)) = Temporary::create(&self.target, &sent.name, make)?;
        if parent.is_none() {
            disinherit(&root)?;
        }
        if let Some((uuid, _)) = sent.parent
            && let Some(parent) = parent
        {
            // By this UUID, files are cloned from the parent.
            self.sources.know(uuid, parent);
        }
        let id = linux::subvolume_id(&root)?;
        self.building = Some(Unfinished {
            building: Building::new(
                OpenFiles::new(root),
                &self.target,
                id,
                &sent,
                locks,
                self.options,
            )?,
            temporary,
            sent,
            failed: 0,
        });
        Ok(())
    }

    /// Marks the subvolume as received, now that all of its commands were applied.
    fn finish(&mut self, event: &mut dyn FnMut(&Event<'_>)) -> Result<()> {
        let Some(unfinished) = &mut self.building else {
            return Ok(());
        };
        if unfinished.failed == 0 {
            // The last writes are verified while Linux writes.
            unfinished.building.verifier.hand_over()?;
            unfinished.building.complete()?;
        }
        self.verify(event)?;
        let Some(unfinished) = self.building.take() else {
            return Ok(());
        };
        if unfinished.failed > 0 {
            if self.options.keeps {
                let name = unfinished.temporary.keep()?;
                event(&Event::Kept(&name));
            } else {
                delete(&self.target, unfinished);
            }
            return Ok(());
        }
        let Unfinished {
            building,
            temporary,
            sent,
            ..
        } = unfinished;
        let (root, locks) = building.into_root();
        let target = &self.target;
        temporary.finish(|name| {
            let mark = || linux::set_subvolume_received(&*root, sent.uuid, sent.ctransid);
            // A locked directory cannot be renamed, and a lock that follows the mark is a change.
            if locks == 0 {
                mark()?;
            }
            linux::rename_new_at(&**target, name, &**target, &sent.name)?;
            let marked = match locks {
                0 => Ok(()),
                _ => lock(&*root, locks).and_then(|()| mark()),
            };
            // This commits a transaction, which has the new name, too.
            let marked = marked.and_then(|()| linux::set_subvolume_read_only(&*root, true));
            if marked.is_err() {
                let _ = unlock(&*root);
                let _ = linux::delete_subvolume(&**target, &sent.name);
            }
            marked
        })?;
        self.received.subvolumes += 1;
        Ok(())
    }
}
