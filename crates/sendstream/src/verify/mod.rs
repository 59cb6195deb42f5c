//! Verifying streams.

mod names;

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::io::Read;
use std::sync::{Mutex, MutexGuard, PoisonError};

use codec::Decoder;
use tree::{Error, Parallel, Progress, Result, ordered, setters};

use self::names::KnownNames;
use crate::apply::apply;
use crate::command::Command;
use crate::encoded::EncodedWrite;
use crate::reader::{CommandRecord, StreamReader};
use crate::subvolume::SentSubvolume;

/// The most jobs in flight.
const JOBS_MAX: usize = 32;
/// A job has at least this many bytes of encoded data: handing over an extent costs as much as
/// decoding a small one.
const JOB_BYTES_MIN: usize = 128 << 10;
/// Or this many writes, which take as much memory.
const JOB_WRITES_MAX: usize = 1 << 10;
/// The most subvolumes that [`Verified`] lists, and whose names are compared.
const SUBVOLUMES_MAX: usize = 4096;

/// The scope of [`verify`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Whether encoded data is decoded.
    pub data: bool,
}

/// Everything is verified.
impl Default for VerifyOptions {
    fn default() -> VerifyOptions {
        VerifyOptions { data: true }
    }
}

setters!(VerifyOptions { data: bool });

/// A stream that was verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Bytes read.
    pub bytes: u64,
    /// Commands read.
    pub commands: u64,
    /// Streams, each with a header and an end.
    pub streams: u64,
    /// The first subvolumes, at most 4096.
    pub subvolumes: Vec<SentSubvolume>,
    /// How many subvolumes there are.
    pub subvolume_count: u64,
    /// Encoded extents that were decoded.
    pub extents_decoded: u64,
    /// Whether there were too many names to know all of them. Paths to others were only checked in
    /// themselves.
    pub has_untracked_names: bool,
}

/// Verifies all streams of `input`, up to the first error.
///
/// Beyond the checks of [`StreamReader`]: each path leads to an existing file, through directories
/// and no symlink; new names are free, and removed directories empty; encoded data is one frame of
/// the stated length, which Linux can read; names of subvolumes differ. Of an incremental stream's
/// files, only those that it mentions are known; a path that it did not change is assumed to exist.
/// Sizes of files, and ranges of other subvolumes, are not known.
///
/// A changed stream whose checksums were computed again can pass: compare its
/// SHA-256 for that.
///
/// Memory is at most 64 MiB: 13 bytes for each of at most 1.8 million names, the longest command,
/// and the jobs.
///
/// # Errors
/// The first thing that is wrong, with the number of the command.
pub fn verify<R: Read>(
    input: R,
    options: VerifyOptions,
    parallel: Parallel,
    progress: &dyn Progress,
) -> Result<Verified> {
    let parallel = parallel.in_flight(parallel.jobs_max().min(JOBS_MAX));
    let spent = SpentJobs::default();
    let mut jobs = DecodeJobs {
        spent: &spent,
        reader: StreamReader::new(input),
        options,
        progress,
        names: KnownNames::default(),
        verified: Verified::default(),
        hasher: RandomState::new(),
        subvolumes: HashSet::new(),
        is_inside: false,
        is_done: false,
        error: None,
        reported: 0,
    };
    let mut decoded = 0;
    ordered(
        parallel,
        &mut jobs,
        || (Decoder::new(), Vec::new()),
        |(decoder, content), job| {
            let job = job?;
            let mut rest = &*job.data;
            for &(number, len, write) in &job.writes {
                let data;
                (data, rest) = rest.split_at(len);
                let result = EncodedWrite { data, ..write }.decode_exactly(decoder, content);
                result.map_err(|error| error.in_part("command", number))?;
            }
            let count = job.writes.len() as u64;
            spent.jobs().push(job);
            Ok::<_, Error>(count)
        },
        |count| {
            decoded += count;
            Ok(())
        },
    )?;
    Ok(Verified {
        bytes: jobs.reader.position(),
        commands: jobs.reader.commands(),
        extents_decoded: decoded,
        has_untracked_names: jobs.verified.has_untracked_names || jobs.names.is_full(),
        ..jobs.verified
    })
}

/// Encoded writes to decode.
#[derive(Default)]
struct DecodeJob {
    /// The number of each command, the length of its data, and all else but its path.
    writes: Vec<(u64, usize, EncodedWrite<'static>)>,
    /// The data of all.
    data: Vec<u8>,
}

/// Jobs that were done, whose memory is used again: that of a new one would grow step by step.
#[derive(Default)]
struct SpentJobs(Mutex<Vec<DecodeJob>>);

impl SpentJobs {
    fn jobs(&self) -> MutexGuard<'_, Vec<DecodeJob>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the stream and returns the data to decode.
struct DecodeJobs<'a, R> {
    spent: &'a SpentJobs,
    reader: StreamReader<R>,
    options: VerifyOptions,
    progress: &'a dyn Progress,
    names: KnownNames,
    verified: Verified,
    hasher: RandomState,
    subvolumes: HashSet<u64>,
    is_inside: bool,
    is_done: bool,
    /// The error behind the last job.
    error: Option<Error>,
    /// The offset up to which progress was reported.
    reported: u64,
}

impl<R: Read> DecodeJobs<'_, R> {
    /// Takes the next header or command, and adds data to decode to `job`. Returns whether there
    /// was one.
    fn step(&mut self, job: &mut DecodeJob) -> Result<bool> {
        if !self.is_inside {
            self.is_inside = self.reader.next_stream()?.is_some();
            self.verified.streams += u64::from(self.is_inside);
            return Ok(self.is_inside);
        }
        let Some(record) = self.reader.next_command()? else {
            self.is_inside = false;
            return Ok(true);
        };
        let in_command = |error: Error| error.in_part("command", record.number);
        if let Some(subvolume) = SentSubvolume::started_by(&record.command) {
            self.verified.has_untracked_names |= self.names.is_full();
            self.names.start(subvolume.uuid, subvolume.parent.is_none());
            self.verified.subvolume_count += 1;
            if self.subvolumes.len() < SUBVOLUMES_MAX {
                if !self
                    .subvolumes
                    .insert(self.hasher.hash_one(&subvolume.name))
                {
                    let what = "subvolume has the name of an earlier one";
                    return Err(in_command(wrong(&record, what)));
                }
                self.verified.subvolumes.push(subvolume);
            }
        }
        let checked = apply(&record.command, &mut self.names);
        checked.map_err(|what| in_command(wrong(&record, what)))?;
        if let Command::EncodedWrite(write) = record.command
            && self.options.data
        {
            let len = write.data.len();
            job.writes.push((record.number, len, write.numbers()));
            job.data.extend_from_slice(write.data);
        }
        Ok(true)
    }
}

impl<R: Read> Iterator for DecodeJobs<'_, R> {
    type Item = Result<DecodeJob>;

    fn next(&mut self) -> Option<Result<DecodeJob>> {
        let mut job = self.spent.jobs().pop().unwrap_or_default();
        job.writes.clear();
        job.data.clear();
        while !self.is_done && job.data.len() < JOB_BYTES_MIN && job.writes.len() < JOB_WRITES_MAX {
            match self.step(&mut job) {
                Ok(is_more) => self.is_done = !is_more,
                Err(error) => {
                    self.is_done = true;
                    self.error = Some(error);
                }
            }
            let read = self.reader.position() - self.reported;
            // Not for every command: most are short.
            if read >= 1 << 20 || self.is_done {
                self.progress.advance(0, read);
                self.reported += read;
            }
        }
        if job.writes.is_empty() {
            return self.error.take().map(Err);
        }
        Some(Ok(job))
    }
}

fn wrong(record: &CommandRecord<'_>, what: &'static str) -> Error {
    Error::corrupt(what, record.at, record.command.number().into())
}
