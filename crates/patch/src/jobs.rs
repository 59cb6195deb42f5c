//! Cuts the operations of a part into jobs, whose bytes several threads make.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::sync::{Mutex, PoisonError};

use tree::{ReadAt, to_u64, to_usize};

use crate::destination::{Destination, new_io};
use crate::encoder::Encoder;
use crate::error::{PatchError, damaged};
use crate::fields::Fields;
use crate::format::{Header, Operation, OperationReader};
#[cfg(feature = "encode")]
use crate::steps::{LikelyMatches, Steps, parse_frames};

/// Bytes of the new file that a job makes, but for an encoded block.
pub(crate) const JOB_BYTES: usize = 128 << 10;
/// Pieces of a job, since their list takes memory, too.
const PIECES_MAX: usize = 1024;

/// The next bytes of the new file.
pub(crate) enum Job<'a> {
    /// Pieces that follow each other.
    Pieces(Vec<JobPiece<'a>>),
    /// A block that is encoded.
    Block {
        content: &'a [u8],
        encoder: &'a Encoder,
        /// The steps, if the patch has them.
        steps: &'a [u8],
    },
    /// Zeros.
    Zeros(usize),
}

/// A piece of a job.
pub(crate) enum JobPiece<'a> {
    /// Bytes of one of the two files.
    Read { at: u64, bytes: usize },
    /// Bytes of the part.
    Taken(&'a [u8]),
}

/// The jobs of a part.
pub(crate) struct Jobs<'a> {
    header: &'a Header,
    reader: OperationReader<'a>,
    /// The content that is not taken yet.
    content: &'a [u8],
    /// The end of the bytes that are there before the part.
    readable: u64,
    /// Where the part is in the patch.
    place: u64,
    /// The rest of an operation.
    rest: Option<Operation>,
    has_ended: bool,
}

impl<'a> Jobs<'a> {
    pub(crate) fn new(
        header: &'a Header,
        operations: &'a [u8],
        content: &'a [u8],
        made: u64,
        place: u64,
    ) -> Jobs<'a> {
        Jobs {
            header,
            reader: OperationReader::new(operations, place),
            content,
            readable: header.old_bytes.saturating_add(made),
            place,
            rest: None,
            has_ended: false,
        }
    }

    /// Whether all of the content was taken.
    pub(crate) fn is_used_up(&self) -> bool {
        self.content.is_empty()
    }

    fn job(&mut self) -> Result<Option<Job<'a>>, PatchError> {
        let (mut pieces, mut room) = (Vec::new(), JOB_BYTES);
        while room > 0 && pieces.len() < PIECES_MAX {
            let Some(operation) = self.operation()? else {
                break;
            };
            let is_alone = matches!(
                operation,
                Operation::Encode { .. } | Operation::Zeros { .. }
            );
            if is_alone && !pieces.is_empty() {
                self.rest = Some(operation);
                break;
            }
            match operation {
                Operation::Copy { at, bytes } => {
                    let len = room.min(to_usize(bytes));
                    self.rest = rest(bytes, len).map(|bytes| Operation::Copy {
                        at: at.saturating_add(to_u64(len)),
                        bytes,
                    });
                    pieces.push(JobPiece::Read { at, bytes: len });
                    room = room.saturating_sub(len);
                }
                Operation::Take { bytes } => {
                    let len = room.min(to_usize(bytes));
                    self.rest = rest(bytes, len).map(|bytes| Operation::Take { bytes });
                    pieces.push(JobPiece::Taken(self.take(len)?));
                    room = room.saturating_sub(len);
                }
                Operation::Zeros { bytes } => {
                    let len = JOB_BYTES.min(to_usize(bytes));
                    self.rest = rest(bytes, len).map(|bytes| Operation::Zeros { bytes });
                    return Ok(Some(Job::Zeros(len)));
                }
                Operation::Encode { bytes, encoder } => {
                    let content = self.take(to_usize(bytes))?;
                    let encoder = self.encoder(encoder, bytes)?;
                    let steps = if encoder.has_steps() {
                        self.take_counted()?
                    } else {
                        &[]
                    };
                    return Ok(Some(Job::Block {
                        content,
                        encoder,
                        steps,
                    }));
                }
            }
        }
        Ok((!pieces.is_empty()).then_some(Job::Pieces(pieces)))
    }

    /// The next operation that makes bytes.
    fn operation(&mut self) -> Result<Option<Operation>, PatchError> {
        if let Some(rest) = self.rest.take() {
            return Ok(Some(rest));
        }
        while let Some(operation) = self.reader.next().map_err(PatchError::Patch)? {
            match operation {
                Operation::Copy { at, bytes } => {
                    let is_there = (at.checked_add(bytes)).is_some_and(|end| end <= self.readable);
                    if !is_there || !is_in_one_file(self.header, at, bytes) {
                        let what = "operation of the patch copies bytes that are not there";
                        return Err(damaged(what, self.place, at));
                    }
                    if bytes > 0 {
                        return Ok(Some(operation));
                    }
                }
                Operation::Take { bytes: 0 } | Operation::Zeros { bytes: 0 } => {}
                operation => return Ok(Some(operation)),
            }
        }
        Ok(None)
    }

    /// The next bytes of the content.
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], PatchError> {
        let Some((taken, rest)) = self.content.split_at_checked(bytes) else {
            let what = "operations of the patch take more than their content";
            return Err(damaged(what, self.place, to_u64(bytes)));
        };
        self.content = rest;
        Ok(taken)
    }

    /// The next bytes of the content, with their number before them.
    fn take_counted(&mut self) -> Result<&'a [u8], PatchError> {
        let mut fields = Fields::still(self.content, self.place);
        let bytes = fields.number().map_err(PatchError::Patch)?;
        self.content = fields.rest();
        self.take(to_usize(bytes))
    }

    fn encoder(&self, number: usize, bytes: u64) -> Result<&'a Encoder, PatchError> {
        let Some(encoder) = self.header.encoders.get(number) else {
            let what = "operation of the patch names an encoder that is not there";
            return Err(damaged(what, self.place, to_u64(number)));
        };
        if bytes > encoder.content_bytes_max.into() {
            let what = "operation of the patch encodes more than its encoder may";
            return Err(damaged(what, self.place, bytes));
        }
        Ok(encoder)
    }
}

impl<'a> Iterator for Jobs<'a> {
    type Item = Result<Job<'a>, PatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let job = self.job().transpose();
        self.has_ended = !matches!(job, Some(Ok(_)));
        job
    }
}

/// The bytes of an operation that are left, if there are some.
fn rest(bytes: u64, done: usize) -> Option<u64> {
    let left = bytes.saturating_sub(to_u64(done));
    (left > 0).then_some(left)
}

/// Whether a range lies in one of the two files.
pub(crate) fn is_in_one_file(header: &Header, at: u64, bytes: u64) -> bool {
    at >= header.old_bytes || at.saturating_add(bytes) <= header.old_bytes
}

/// The two files: the old one, and behind it the new one as far as it is made.
#[derive(Clone, Copy)]
pub(crate) struct Files<'a> {
    old: &'a dyn ReadAt,
    old_bytes: u64,
    new: &'a Destination,
}

impl<'a> Files<'a> {
    pub(crate) fn new(old: &'a dyn ReadAt, header: &Header, new: &'a Destination) -> Files<'a> {
        Files {
            old,
            old_bytes: header.old_bytes,
            new,
        }
    }

    pub(crate) fn read(&self, buffer: &mut [u8], at: u64) -> Result<(), PatchError> {
        match at.checked_sub(self.old_bytes) {
            None => self.old.read_exact_at(buffer, at).map_err(PatchError::Old),
            Some(at) => self.new.read(buffer, at).map_err(new_io),
        }
    }
}

/// Buffers of one length, which are used again.
pub(crate) struct Buffers {
    bytes: usize,
    spare: Mutex<Vec<Vec<u8>>>,
}

impl Buffers {
    /// For jobs, and for blocks of at most `encoded` bytes.
    pub(crate) fn new(encoded: usize) -> Buffers {
        Buffers {
            bytes: buffer_bytes(encoded),
            spare: Mutex::default(),
        }
    }

    pub(crate) fn take(&self) -> Vec<u8> {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let buffer = spare.pop();
        drop(spare);
        buffer.unwrap_or_else(|| vec![0; self.bytes])
    }

    pub(crate) fn give(&self, buffer: Vec<u8>) {
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        spare.push(buffer);
    }
}

/// The length of a buffer.
pub(crate) fn buffer_bytes(encoded: usize) -> usize {
    encoded.max(JOB_BYTES)
}

/// The bytes of a job.
pub(crate) struct Made {
    pub(crate) buffer: Vec<u8>,
    pub(crate) len: usize,
    pub(crate) is_zeros: bool,
}

/// The memory of a thread.
pub(crate) struct JobMemory {
    workspace: Vec<u8>,
    #[cfg(feature = "encode")]
    likely: LikelyMatches,
}

impl JobMemory {
    pub(crate) fn new(workspace_bytes: usize) -> JobMemory {
        JobMemory {
            workspace: vec![0; workspace_bytes],
            #[cfg(feature = "encode")]
            likely: LikelyMatches::default(),
        }
    }
}

/// Makes the bytes of jobs.
pub(crate) struct JobMaker<'a> {
    #[cfg(feature = "encode")]
    pub(crate) header: &'a Header,
    /// The end of the bytes that are there before the part.
    #[cfg(feature = "encode")]
    pub(crate) readable: u64,
    pub(crate) files: Files<'a>,
    pub(crate) buffers: &'a Buffers,
    /// Where the part is in the patch.
    pub(crate) place: u64,
}

impl JobMaker<'_> {
    pub(crate) fn make(&self, job: &Job<'_>, memory: &mut JobMemory) -> Result<Made, PatchError> {
        let mut buffer = self.buffers.take();
        let len = match job {
            Job::Pieces(pieces) => self.fill(&mut buffer, pieces)?,
            Job::Block {
                content,
                encoder,
                steps,
            } => {
                let len = if encoder.has_steps() {
                    self.encode_steps(&mut buffer, content, encoder, steps, memory)?
                } else {
                    encoder.encode(&mut buffer, content, &mut memory.workspace)
                };
                len.filter(|len| *len <= buffer.len()).ok_or_else(|| {
                    let what = "operation of the patch does not encode its block";
                    damaged(what, self.place, to_u64(content.len()))
                })?
            }
            Job::Zeros(bytes) => {
                let (zeros, _) = buffer.split_at_mut(*bytes);
                zeros.fill(0);
                *bytes
            }
        };
        let is_zeros = matches!(job, Job::Zeros(_));
        Ok(Made {
            buffer,
            len,
            is_zeros,
        })
    }

    /// Encodes a block from its steps.
    #[cfg(feature = "encode")]
    fn encode_steps(
        &self,
        buffer: &mut [u8],
        content: &[u8],
        encoder: &Encoder,
        steps: &[u8],
        memory: &mut JobMemory,
    ) -> Result<Option<usize>, PatchError> {
        let parsed = parse_frames(steps, encoder.is_described(), self.place);
        let (frames, descriptions, steps) = parsed.map_err(PatchError::Patch)?;
        let read = &mut |buffer: &mut [u8], at: u64| {
            let bytes = to_u64(buffer.len());
            let is_there = at
                .checked_add(bytes)
                .is_some_and(|end| end <= self.readable);
            if !is_there || !is_in_one_file(self.header, at, bytes) {
                let what = "steps of the patch are those of a frame that is missing";
                return Err(damaged(what, self.place, at));
            }
            self.files.read(buffer, at)
        };
        (memory.likely).find(&frames, content, self.place, read)?;
        let steps = &mut Steps::new(steps, content, &memory.likely, self.place);
        let workspace = &mut memory.workspace;
        Ok(encoder.encode_steps(buffer, content, descriptions, steps, workspace))
    }

    #[cfg(not(feature = "encode"))]
    fn encode_steps(
        &self,
        _: &mut [u8],
        _: &[u8],
        _: &Encoder,
        _: &[u8],
        _: &mut JobMemory,
    ) -> Result<Option<usize>, PatchError> {
        Ok(None)
    }

    fn fill(&self, buffer: &mut [u8], pieces: &[JobPiece<'_>]) -> Result<usize, PatchError> {
        let mut len = 0usize;
        for piece in pieces {
            let (_, rest) = buffer.split_at_mut(len);
            len = len.saturating_add(match piece {
                JobPiece::Read { at, bytes } => {
                    let (here, _) = rest.split_at_mut(*bytes);
                    self.files.read(here, *at)?;
                    *bytes
                }
                JobPiece::Taken(taken) => {
                    let (here, _) = rest.split_at_mut(taken.len());
                    here.copy_from_slice(taken);
                    taken.len()
                }
            });
        }
        Ok(len)
    }
}
