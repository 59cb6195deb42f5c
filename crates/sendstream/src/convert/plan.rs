//! The jobs of a conversion, in the order of the stream.

use std::collections::VecDeque;
use std::io::Read;

use tree::{Error, Result};

use super::data::{
    ConvertJob, ConvertStep, DataOrigin, EncodedExtent, PlainRun, V1_DATA_BYTES, V2_DATA_BYTES,
    data_bytes_max,
};
use super::options::{ConvertOptions, Converted, Recode};
use crate::command::Command;
use crate::raw::{Version, stream_header};
use crate::reader::{CommandRecord, StreamReader, begins_with_length};

/// A job has at least this many bytes, so that handing over small files costs little.
const JOB_BYTES_MIN: usize = 128 << 10;
/// Commands that are copied make a step of about this size.
const COPIED_BYTES: usize = 64 << 10;
/// The smallest sector of btrfs.
const MIN_SECTOR_BYTES: u64 = 4096;
/// `FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE`.
const PUNCH_HOLE: u32 = 3;

/// Reads the source and gives jobs.
pub(super) struct ConvertJobs<R> {
    reader: StreamReader<R>,
    plan: StepQueue,
    is_inside: bool,
    is_done: bool,
    /// The steps after the last job.
    error: Option<Error>,
}

/// The steps that are not yet part of a job.
struct StepQueue {
    options: ConvertOptions,
    /// The version of the current stream, and of what becomes of it.
    from: Version,
    to: Version,
    /// Whether the current subvolume is a snapshot, whose files can exist already.
    is_incremental: bool,
    ready: VecDeque<ConvertStep>,
    copied: Vec<u8>,
    /// Writes that follow each other, and the offset up to which they can grow. Nothing is copied
    /// while there are some.
    run: Option<(PlainRun, u64)>,
    zeros: Option<Zeros>,
    /// The file in which zeros can reach beyond the end, unless it is truncated next.
    unsure: Option<Vec<u8>>,
    converted: Converted,
    /// The number of read bytes that are part of a job.
    planned_bytes: u64,
}

/// Zeros that are yet to be written.
struct Zeros {
    path: Vec<u8>,
    offset: u64,
    end: u64,
}

impl<R: Read> ConvertJobs<R> {
    pub(super) fn new(reader: StreamReader<R>, options: ConvertOptions) -> Self {
        ConvertJobs {
            reader,
            plan: StepQueue {
                options,
                from: Version::V1,
                to: Version::V1,
                is_incremental: false,
                ready: VecDeque::new(),
                copied: Vec::new(),
                run: None,
                zeros: None,
                unsure: None,
                converted: Converted::default(),
                planned_bytes: 0,
            },
            is_inside: false,
            is_done: false,
            error: None,
        }
    }

    /// The summary, without the count of bytes written.
    pub(super) fn converted(&self) -> Converted {
        Converted {
            bytes_read: self.reader.position(),
            commands: self.reader.commands(),
            ..self.plan.converted
        }
    }

    /// Plans the next header or command. Returns whether there was one.
    fn step(&mut self) -> Result<bool> {
        if !self.is_inside {
            let Some(version) = self.reader.next_stream()? else {
                return Ok(false);
            };
            self.is_inside = true;
            self.plan.start(version);
            return Ok(true);
        }
        match self.reader.next_command()? {
            Some(record) => {
                let number = record.number;
                let taken = self.plan.take(&record);
                taken.map_err(|error| error.in_part("command", number))?;
            }
            None => self.is_inside = false,
        }
        Ok(true)
    }
}

impl<R: Read> Iterator for ConvertJobs<R> {
    type Item = Result<ConvertJob>;

    fn next(&mut self) -> Option<Result<ConvertJob>> {
        let mut job = ConvertJob::default();
        let mut bytes = 0;
        loop {
            while bytes < JOB_BYTES_MIN
                && let Some(step) = self.plan.ready.pop_front()
            {
                bytes += step.len();
                job.steps.push(step);
            }
            if bytes >= JOB_BYTES_MIN || self.is_done && !job.steps.is_empty() {
                let read = self.reader.position();
                job.read_bytes = read - self.plan.planned_bytes;
                self.plan.planned_bytes = read;
                return Some(Ok(job));
            }
            if self.is_done {
                return self.error.take().map(Err);
            }
            let next = match self.plan.write_zeros() {
                Ok(false) => self.step(),
                written => written,
            };
            match next {
                Ok(true) => {}
                Ok(false) => {
                    self.is_done = true;
                    self.plan.flush();
                    self.plan.flush_copied();
                }
                Err(error) => {
                    self.is_done = true;
                    self.error = Some(error);
                }
            }
        }
    }
}

impl StepQueue {
    fn start(&mut self, version: Version) {
        self.from = version;
        self.to = self.options.version.unwrap_or(match self.options.recode {
            Recode::Encode(_) => version.max(Version::V2),
            Recode::Keep | Recode::Decode => version,
        });
        self.copied.extend(stream_header(self.to));
    }

    fn take(&mut self, record: &CommandRecord<'_>) -> Result<()> {
        self.must_be_truncated(&record.command)?;
        let encodes = matches!(self.options.recode, Recode::Encode(_));
        let changes_form = self.from.has_long_data() != self.to.has_long_data();
        match record.command {
            Command::Write {
                path,
                file_offset,
                data,
            } if encodes
                || changes_form
                || data.len() > V2_DATA_BYTES
                || (self.from > self.to && begins_with_length(data)) =>
            {
                self.append(path, file_offset, data, record.number);
                return Ok(());
            }
            Command::EncodedWrite(write)
                if self.options.recode != Recode::Keep || self.to < Version::V2 =>
            {
                self.flush();
                self.flush_copied();
                let encoded = EncodedExtent::of(&write, self.place(record.number));
                self.ready.push_back(ConvertStep::EncodedExtent(encoded));
                return Ok(());
            }
            _ => self.flush(),
        }
        match record.command {
            Command::Subvol { .. } => self.is_incremental = false,
            Command::Snapshot { .. } => self.is_incremental = true,
            Command::Utimes {
                path,
                atime,
                mtime,
                ctime,
                otime: Some(_),
            } if self.to < Version::V2 => {
                self.converted.otimes_dropped += 1;
                let without = Command::Utimes {
                    path,
                    atime,
                    mtime,
                    ctime,
                    otime: None,
                };
                without.emit(self.to, &mut self.copied)?;
                return Ok(());
            }
            Command::Fallocate { .. } if self.to < Version::V2 => {
                return self.punch(&record.command);
            }
            Command::Fileattr { .. } if self.to < Version::V2 => {
                if !self.options.drops_fileattr {
                    return Err(Error::InvalidInput(
                        "version 1 of send streams has no file attributes, and leaving them out was not requested",
                    ));
                }
                self.converted.fileattrs_dropped += 1;
                return Ok(());
            }
            Command::EnableVerity { .. } if self.to < Version::V3 => {
                if !self.options.drops_verity {
                    return Err(Error::InvalidInput(
                        "only version 3 of send streams has fs-verity, and leaving it out was not requested",
                    ));
                }
                self.converted.verity_dropped += 1;
                return Ok(());
            }
            _ => {}
        }
        self.copied.extend_from_slice(record.bytes);
        if self.copied.len() >= COPIED_BYTES {
            self.flush_copied();
        }
        Ok(())
    }

    /// Adds to the current run of writes, which ends where its unit does.
    fn append(&mut self, path: &[u8], file_offset: u64, data: &[u8], number: u64) {
        let place = self.place(number);
        let (mut offset, mut rest) = (file_offset, data);
        loop {
            let unit_end = self.unit_end(offset);
            if !(self.run.as_ref()).is_some_and(|(run, _)| run.path == path && run.end() == offset)
            {
                self.flush();
                self.flush_copied();
            }
            let (run, unit_end) = self.run.get_or_insert_with(|| {
                let run = PlainRun {
                    path: path.to_vec(),
                    file_offset: offset,
                    bytes: Vec::new(),
                    place,
                };
                (run, unit_end)
            });
            let room = usize::try_from(*unit_end - offset).unwrap_or(usize::MAX);
            let (now, later) = rest.split_at(room.min(rest.len()));
            run.bytes.extend_from_slice(now);
            offset += now.len() as u64;
            rest = later;
            if offset >= *unit_end {
                self.flush();
            }
            if rest.is_empty() {
                return;
            }
        }
    }

    fn place(&self, number: u64) -> DataOrigin {
        DataOrigin {
            number,
            to: self.to,
            is_incremental: self.is_incremental,
        }
    }

    /// The offset up to which a run that begins here can grow.
    fn unit_end(&self, offset: u64) -> u64 {
        let sector = u64::from(self.options.sector_bytes);
        let encodes = matches!(self.options.recode, Recode::Encode(_));
        if encodes && !offset.is_multiple_of(sector) {
            // The next unit can begin with a sector. The reader has checked that offsets are below
            // 2^63.
            return offset.next_multiple_of(sector);
        }
        offset + data_bytes_max(self.to) as u64
    }

    /// Makes a step of the current run.
    fn flush(&mut self) {
        if let Some((run, _)) = self.run.take() {
            self.ready.push_back(ConvertStep::PlainRun(run));
        }
    }

    /// Makes a step of what is copied. There is no run then: it would come after it.
    fn flush_copied(&mut self) {
        if !self.copied.is_empty() {
            let copied = std::mem::take(&mut self.copied);
            self.ready.push_back(ConvertStep::Copied(copied));
        }
    }

    /// Writes zeros for a punched hole, which version 1 does not have.
    fn punch(&mut self, command: &Command<'_>) -> Result<()> {
        let Command::Fallocate {
            path,
            fallocate_mode,
            file_offset,
            size,
        } = *command
        else {
            return Ok(());
        };
        if fallocate_mode != PUNCH_HOLE {
            return Err(Error::InvalidInput(
                "version 1 of send streams cannot express this mode of fallocate",
            ));
        }
        let zeros = &mut self.converted.zeros_bytes;
        *zeros = zeros.saturating_add(size);
        if *zeros > self.options.zeros_bytes_max {
            return Err(Error::Limit(
                "the zeros for punched holes, which version 1 does not have",
            ));
        }
        let end = file_offset + size;
        // Linux cuts a hole at the end of the file, which is rarely the end of a sector.
        if !self.options.trusts_holes && end.is_multiple_of(MIN_SECTOR_BYTES) {
            self.unsure = Some(path.to_vec());
        }
        self.flush_copied();
        self.zeros = Some(Zeros {
            path: path.to_vec(),
            offset: file_offset,
            end,
        });
        Ok(())
    }

    /// Plans some of the zeros that are yet to be written. Returns whether there were any.
    fn write_zeros(&mut self) -> Result<bool> {
        let Some(zeros) = &mut self.zeros else {
            return Ok(false);
        };
        while zeros.offset < zeros.end && self.copied.len() < COPIED_BYTES {
            let len = (zeros.end - zeros.offset).min(V1_DATA_BYTES as u64);
            let write = Command::Write {
                path: &zeros.path,
                file_offset: zeros.offset,
                data: &[0; V1_DATA_BYTES][..len as usize],
            };
            write.emit(self.to, &mut self.copied)?;
            zeros.offset += len;
        }
        if zeros.offset >= zeros.end {
            self.zeros = None;
        }
        self.flush_copied();
        Ok(true)
    }

    /// Zeros may have been written beyond the end of a file. That is undone if its size is set
    /// before the next file's turn; Linux does that if the size changed.
    fn must_be_truncated(&mut self, command: &Command<'_>) -> Result<()> {
        let Some(unsure) = &self.unsure else {
            return Ok(());
        };
        let is_same = command.path() == Some(unsure);
        if is_same && matches!(command, Command::Truncate { .. }) {
            self.unsure = None;
        } else if !is_same || matches!(command, Command::Utimes { .. }) {
            return Err(Error::InvalidInput(
                "a hole was punched in a file of unknown size, and version 1 needs zeros that could make it longer",
            ));
        }
        Ok(())
    }
}
