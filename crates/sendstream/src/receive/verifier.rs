//! Verifying encoded writes while later commands are applied.

use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::{Builder, JoinHandle};

use codec::Decoder;
use linux::EncodedExtent;
use tree::{Error, Result, WrittenExtent};

use crate::encoded::EncodedWrite;

/// The most jobs of a batch, each of which keeps a file open, and the bytes that fill it.
const BATCH_JOBS: usize = 32;
const BATCH_BYTES: usize = 512 << 10;
/// The most files of which it is remembered how far they are not verified; then all are verified
/// first.
const FILES_MAX: usize = 1 << 14;
/// The most batches that wait for the thread.
const BATCHES_WAITING: usize = 4;

/// Encoded writes that Linux accepted: a thread decodes each, since Linux does not look at the data
/// before the file is read, and reads it back.
pub(super) struct Verifier {
    reads_back: bool,
    thread: Option<Thread>,
    /// The next batch.
    batch: JobBatch,
    /// Empty batches, whose memory is used again.
    unused: Vec<JobBatch>,
    /// How many batches the thread has.
    outstanding: usize,
    /// Where the part of a file ends that was not yet verified, by inode number.
    unverified: HashMap<u64, u64>,
    failed: Vec<Error>,
}

struct Thread {
    batches: SyncSender<JobBatch>,
    done: Receiver<JobBatch>,
    handle: JoinHandle<()>,
}

#[derive(Default)]
struct JobBatch {
    jobs: Vec<WrittenJob>,
    /// Paths and data of the jobs.
    bytes: Vec<u8>,
    failed: Vec<Error>,
}

/// An encoded write that Linux accepted.
struct WrittenJob {
    /// The number of the command.
    command: u64,
    /// What to compare with what is read back from where.
    written: Option<(Arc<File>, WrittenExtent)>,
    path: Range<usize>,
    data: Range<usize>,
    /// The command without path and data.
    write: EncodedWrite<'static>,
}

impl Verifier {
    pub(super) fn new(reads_back: bool) -> Verifier {
        Verifier {
            reads_back,
            thread: None,
            batch: JobBatch::default(),
            unused: Vec::new(),
            outstanding: 0,
            unverified: HashMap::new(),
            failed: Vec::new(),
        }
    }

    /// Verifies an extent that was written to the file with this inode number.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn add(
        &mut self,
        command: u64,
        (file, ino): (&Arc<File>, u64),
        write: &EncodedWrite<'_>,
        extent: &EncodedExtent<'_>,
    ) -> Result<()> {
        if self.unverified.len() >= FILES_MAX {
            self.wait()?;
        }
        let end = write.file_offset.saturating_add(write.unencoded_file_len);
        let unverified = self.unverified.entry(ino).or_default();
        *unverified = end.max(*unverified);
        let batch = &mut self.batch;
        let path = batch.bytes.len()..batch.bytes.len() + write.path.len();
        batch.bytes.extend_from_slice(write.path);
        let data = path.end..path.end + write.data.len();
        batch.bytes.extend_from_slice(write.data);
        let written = || (Arc::clone(file), WrittenExtent::of(extent));
        batch.jobs.push(WrittenJob {
            command,
            written: self.reads_back.then(written),
            path,
            data,
            write: write.numbers(),
        });
        if batch.jobs.len() >= BATCH_JOBS || batch.bytes.len() >= BATCH_BYTES {
            self.hand_over()?;
        }
        Ok(())
    }

    /// Waits if a change at `from` and beyond would change extents of the file with this inode
    /// number that are not yet verified.
    ///
    /// # Errors
    /// The thread cannot be started, or has panicked.
    pub(super) fn before_change(&mut self, ino: u64, from: u64) -> Result<()> {
        match self.unverified.get(&ino) {
            Some(&end) if !WrittenExtent::is_kept(end, from) => self.wait(),
            _ => Ok(()),
        }
    }

    /// The faults found so far, in the order of the commands.
    ///
    /// # Errors
    /// The thread has panicked.
    pub(super) fn failed(&mut self) -> Result<Vec<Error>> {
        while self.outstanding > 0 && self.receive(false)? {}
        Ok(std::mem::take(&mut self.failed))
    }

    /// Waits until all is verified.
    ///
    /// # Errors
    /// The thread cannot be started, or has panicked.
    pub(super) fn wait(&mut self) -> Result<()> {
        self.hand_over()?;
        while self.outstanding > 0 {
            self.receive(true)?;
        }
        self.unverified.clear();
        Ok(())
    }

    /// Gives the thread all that it has not yet got.
    ///
    /// # Errors
    /// The thread cannot be started, or has panicked.
    pub(super) fn hand_over(&mut self) -> Result<()> {
        if self.batch.jobs.is_empty() {
            return Ok(());
        }
        let thread = match &mut self.thread {
            Some(thread) => thread,
            none => none.insert(Thread::start()?),
        };
        let next = self.unused.pop().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, next);
        if thread.batches.send(batch).is_err() {
            return Err(self.panicked());
        }
        self.outstanding += 1;
        while self.receive(false)? {}
        Ok(())
    }

    /// Takes back a batch. Returns whether there was one.
    fn receive(&mut self, waits: bool) -> Result<bool> {
        let Some(thread) = &self.thread else {
            return Ok(false);
        };
        let received = if waits {
            thread.done.recv().map_err(|_| TryRecvError::Disconnected)
        } else {
            thread.done.try_recv()
        };
        match received {
            Ok(mut batch) => {
                self.outstanding -= 1;
                self.failed.append(&mut batch.failed);
                self.unused.push(batch);
                if self.outstanding == 0 && self.batch.jobs.is_empty() {
                    self.unverified.clear();
                }
                Ok(true)
            }
            Err(TryRecvError::Empty) => Ok(false),
            Err(TryRecvError::Disconnected) => Err(self.panicked()),
        }
    }

    fn panicked(&mut self) -> Error {
        self.outstanding = 0;
        Error::Unverified("verifying compressed data has stopped")
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        if let Some(Thread {
            batches,
            done,
            handle,
        }) = self.thread.take()
        {
            drop((batches, done));
            // A panic was reported when its result was missed.
            let _ = handle.join();
        }
    }
}

impl Thread {
    fn start() -> Result<Thread> {
        let (batches, given) = sync_channel::<JobBatch>(BATCHES_WAITING);
        let (back, done) = channel();
        let work = move || {
            let mut workspace = VerifyBuffers::default();
            for mut batch in given {
                batch.verify(&mut workspace);
                if back.send(batch).is_err() {
                    break;
                }
            }
        };
        let handle = Builder::new().name("verify".to_owned()).spawn(work)?;
        Ok(Thread {
            batches,
            done,
            handle,
        })
    }
}

#[derive(Default)]
struct VerifyBuffers {
    decoder: Decoder,
    decoded: Vec<u8>,
    stored: Vec<u8>,
}

impl JobBatch {
    fn verify(&mut self, ws: &mut VerifyBuffers) {
        for job in self.jobs.drain(..) {
            let write = EncodedWrite {
                path: &self.bytes[job.path],
                data: &self.bytes[job.data],
                ..job.write
            };
            let decoded = write.decode_exactly(&mut ws.decoder, &mut ws.decoded);
            let verified = match (decoded, &job.written) {
                (Ok(_), Some((file, written))) => written.read_back(&**file, &mut ws.stored),
                (decoded, _) => decoded.map(drop),
            };
            if let Err(error) = verified {
                let error = error.in_file("encoded_write", write.path);
                self.failed.push(error.in_part("command", job.command));
            }
        }
        self.bytes.clear();
    }
}
