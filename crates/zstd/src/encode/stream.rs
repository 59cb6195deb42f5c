//! Frames from input in pieces of any size, to output in pieces of any size; dictionaries; bare
//! blocks.

use super::block_encoder::{BlockEncoder, BlockEncoderState, BlockSource, store_bytes};
use super::frame::workspace_size;
use super::params::{Params, history_max, window_bytes};
use crate::checked::CheckedSlice;
use crate::frame::{BLOCK_HEADER_SIZE, FRAME_HEADER_SIZE_MAX, HeaderFields};
use crate::workspace::Carver;
use crate::workspace::sealed::WorkspaceMemory;
use crate::{Dictionary, EncoderDictionary, Error};
use xxhash::Xxh64;

/// Output that may wait besides a block: a frame header, a checksum.
const STAGED_BESIDES: usize = FRAME_HEADER_SIZE_MAX + 4 + BLOCK_HEADER_SIZE + 16;

/// Bytes of workspace that an [`Encoder`] needs for frames with these parameters, or with any that
/// are no larger.
pub fn stream_workspace_size(params: &Params) -> usize {
    workspace_size(params) + window_bytes(params) + staged_bytes(params)
}

fn staged_bytes(params: &Params) -> usize {
    params.block_size() + STAGED_BESIDES
}

/// The unit that an [`Encoder`] is to complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Nothing: more input comes.
    Nothing,
    /// Blocks: all input read so far can be decoded from the output.
    Block,
    /// The frame.
    Frame,
}

/// The progress of a call of [`Encoder::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodeProgress {
    /// Bytes of input that were taken.
    pub read: usize,
    /// Bytes of output that were written.
    pub written: usize,
    /// Bytes of output that wait for room, at least. When this is 0 and all input was taken, the
    /// requested unit is complete.
    pub held: usize,
    /// How many bytes of input would complete a block.
    pub wanted: usize,
}

/// Where an encoder stands in its frame.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EncodeStage {
    /// No frame has begun.
    Ready,
    /// The dictionary of the frame is settled; nothing has been written.
    Start,
    /// The header has been written.
    Content,
    /// The last block has been written.
    End,
    /// Blocks without headers are written.
    Bare,
    Failed(Error),
}

/// Encodes frames from input that comes in pieces.
///
/// All its memory is the workspace, except for a few hundred bytes in the value itself. The
/// workspace is borrowed ([`Encoder::new`]) or owned ([`Encoder::owning`]); owned, an encoder is
/// one value that can be kept anywhere. The bytes of a frame depend neither on how its content is
/// cut into pieces (except by flushes) nor on the frames before it. After an error the same error
/// comes again until [`reset`](Self::reset); [`Error::Inconsistent`] stays.
pub struct Encoder<'d, W> {
    workspace: W,
    state: EncoderState<'d>,
}

/// An encoder without its workspace. All methods get the same.
#[derive(Clone)]
struct EncoderState<'d> {
    params: Params,
    dictionary: Option<Dictionary<'d>>,
    /// The same, if it is a prepared one.
    prepared: Option<&'d EncoderDictionary<'d>>,
    /// Whether the window begins with its content.
    window_has_content: bool,
    kept: BlockEncoderState,
    /// Whether the workspace holds something that is known.
    cleared: bool,
    /// Where in the window the content without a block begins and ends.
    start: usize,
    filled: usize,
    /// Where the window's first byte lies in the frame, modulo 2^64.
    low: u64,
    /// The range of staged bytes that wait for output.
    staged_from: usize,
    staged_to: usize,
    /// The announced size of the content, and the amount taken so far.
    pledged: Option<u64>,
    taken: u64,
    checksum: Xxh64,
    stage: EncodeStage,
    first: bool,
}

/// The workspace of an encoder.
struct EncoderRegions<'w> {
    parts: &'w mut [u8],
    /// History, then content that no block holds yet, then room.
    window: &'w mut [u8],
    /// Output that waits for room.
    staged: &'w mut [u8],
}

impl<'w> EncoderRegions<'w> {
    /// Divides a workspace. [`Error::WorkspaceTooSmall`] if it is smaller than
    /// [`stream_workspace_size`] says.
    fn of(workspace: &'w mut [u8], params: &Params) -> Result<Self, Error> {
        let parts = BlockEncoder::bytes(params, store_bytes(params));
        let (window, staged) = (window_bytes(params), staged_bytes(params));
        let mut carver = Carver::new(workspace, parts + window + staged)?;
        Ok(EncoderRegions {
            parts: carver.bytes(parts)?,
            window: carver.bytes(window)?,
            staged: carver.bytes(staged)?,
        })
    }
}

impl<'w, 'd> Encoder<'d, &'w mut [u8]> {
    /// An encoder for a frame of unknown size.
    ///
    /// # Errors
    ///
    /// [`Error::WorkspaceTooSmall`] if `workspace` is smaller than [`stream_workspace_size`] says;
    /// [`Error::ParameterOutOfBound`].
    pub fn new(params: &Params, workspace: &'w mut [u8]) -> Result<Self, Error> {
        Encoder::owning(params, workspace)
    }

    /// As [`new`](Encoder::new), at the place that it will have: it does not pass over the stack,
    /// which is small in a kernel. After an error the place is empty.
    ///
    /// # Errors
    ///
    /// As [`new`](Encoder::new).
    pub fn place<'p>(
        place: &'p mut Option<Self>,
        params: &Params,
        workspace: &'w mut [u8],
    ) -> Result<&'p mut Self, Error> {
        *place = None;
        params.check()?;
        EncoderRegions::of(workspace, params)?;
        Ok(place.insert(Encoder {
            workspace,
            state: EncoderState::new(params),
        }))
    }
}

impl<'d, W: WorkspaceMemory> Encoder<'d, W> {
    /// An encoder that owns its workspace: a [`Workspace`](crate::Workspace) or, with the feature
    /// `alloc`, a `Vec<u8>` or `Box<[u8]>`.
    ///
    /// # Errors
    ///
    /// As [`new`](Encoder::new).
    pub fn owning(params: &Params, mut workspace: W) -> Result<Self, Error> {
        params.check()?;
        EncoderRegions::of(workspace.bytes(), params)?;
        Ok(Encoder {
            workspace,
            state: EncoderState::new(params),
        })
    }

    /// Becomes a copy of `other`, wherever that is in its frame: its workspace is copied, its
    /// dictionary shared.
    ///
    /// # Errors
    ///
    /// [`Error::ParameterOutOfBound`] if the other has other parameters.
    pub fn copy_from<V: WorkspaceMemory>(&mut self, other: &Encoder<'d, V>) -> Result<(), Error> {
        let params = &self.state.params;
        if other.state.params != *params {
            return Err(Error::ParameterOutOfBound);
        }
        let bytes = stream_workspace_size(params) - Carver::SLACK;
        let from = Carver::part(other.workspace.as_bytes(), bytes)?;
        Carver::new(self.workspace.bytes(), bytes)?
            .bytes(bytes)?
            .checked_copy(from)?;
        self.state.clone_from(&other.state);
        Ok(())
    }

    /// The frames that begin from now on follow this dictionary.
    ///
    /// # Errors
    ///
    /// [`Error::StageWrong`] within a frame, which the first [`step`](Self::step) begins even with
    /// empty input, and within a series of bare blocks. The previous dictionary then stays set.
    /// Another one can be set when the frame is complete, and after [`reset`](Self::reset).
    pub fn set_dictionary(&mut self, dictionary: Option<Dictionary<'d>>) -> Result<(), Error> {
        self.state.set_dictionary(dictionary, None)
    }

    /// As [`set_dictionary`](Self::set_dictionary), with a prepared dictionary.
    ///
    /// # Errors
    ///
    /// [`Error::ParameterOutOfBound`] if that was for other parameters than this encoder has;
    /// [`Error::StageWrong`].
    pub fn set_prepared(&mut self, dictionary: &'d EncoderDictionary<'d>) -> Result<(), Error> {
        if *dictionary.params() != self.state.params {
            return Err(Error::ParameterOutOfBound);
        }
        self.state
            .set_dictionary(Some(dictionary.dictionary), Some(dictionary))
    }

    /// Whether the headers of frames tell the size of the content where it is known, from the next
    /// frame on; at first as [`Params::content_size`] says.
    ///
    /// # Errors
    ///
    /// [`Error::StageWrong`] within a frame, as for [`set_dictionary`](Self::set_dictionary).
    pub fn set_content_size(&mut self, is_told: bool) -> Result<(), Error> {
        self.state.check_between_frames()?;
        self.state.params.content_size = is_told;
        Ok(())
    }

    /// Begins another frame, abandoning this one if it is incomplete. `pledged` is the size of its
    /// content, if that is known: the header then tells it, and another size is an error.
    pub fn reset(&mut self, pledged: Option<u64>) {
        self.state.reset(pledged);
    }

    /// Takes input, writes output, until one of them is used up and the requested unit is complete.
    ///
    /// Nothing is written before a block is complete or is to be finished. With [`Finish::Block`]
    /// and [`Finish::Frame`], call again with the rest of the input and with more output until
    /// nothing is held.
    ///
    /// # Errors
    ///
    /// [`Error::SrcSizeWrong`] if the content is not of the size that was pledged;
    /// [`Error::StageWrong`] for input after the end of a frame; [`Error::DictionaryCorrupted`].
    pub fn step(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        finish: Finish,
    ) -> Result<EncodeProgress, Error> {
        self.state
            .step(self.workspace.bytes(), input, output, finish)
    }

    /// Largest block of [`Encoder::compress_block`].
    pub fn block_size_max(&self) -> usize {
        self.state.params.block_size()
    }

    /// Compresses one block without header, as a caller with a framing of its own needs. Between
    /// this and the frame's other methods lies a [`reset`](Self::reset).
    ///
    /// `None` if it is not worth it: the caller stores the block as it is, and declares it to the
    /// decoder.
    ///
    /// # Errors
    ///
    /// [`Error::SrcSizeWrong`] if `src` is larger than [`block_size_max`](Self::block_size_max);
    /// [`Error::StageWrong`]; [`Error::DictionaryCorrupted`].
    pub fn compress_block(&mut self, dst: &mut [u8], src: &[u8]) -> Result<Option<usize>, Error> {
        let result = self.state.compress_block(self.workspace.bytes(), dst, src);
        if let Err(error @ Error::Inconsistent) = result {
            self.state.stage = EncodeStage::Failed(error);
        }
        result
    }
}

impl<'d> EncoderState<'d> {
    #[inline(always)]
    fn new(params: &Params) -> Self {
        EncoderState {
            params: *params,
            dictionary: None,
            prepared: None,
            window_has_content: false,
            kept: BlockEncoderState::new(params),
            cleared: false,
            start: 0,
            filled: 0,
            low: 0,
            staged_from: 0,
            staged_to: 0,
            pledged: None,
            taken: 0,
            checksum: Xxh64::new(0),
            stage: EncodeStage::Ready,
            first: true,
        }
    }

    /// The header names a dictionary that blocks refer to from the first on: within a frame it
    /// cannot change.
    fn set_dictionary(
        &mut self,
        dictionary: Option<Dictionary<'d>>,
        prepared: Option<&'d EncoderDictionary<'d>>,
    ) -> Result<(), Error> {
        self.check_between_frames()?;
        self.dictionary = dictionary;
        self.prepared = prepared;
        self.window_has_content = false;
        Ok(())
    }

    fn check_between_frames(&self) -> Result<(), Error> {
        match self.stage {
            EncodeStage::Ready | EncodeStage::End => Ok(()),
            _ => Err(Error::StageWrong),
        }
    }

    fn reset(&mut self, pledged: Option<u64>) {
        if self.stage == EncodeStage::Failed(Error::Inconsistent) {
            return;
        }
        (self.start, self.filled, self.low) = (0, 0, 0);
        (self.staged_from, self.staged_to) = (0, 0);
        (self.pledged, self.taken) = (pledged, 0);
        self.checksum = Xxh64::new(0);
        self.stage = EncodeStage::Ready;
        self.first = true;
    }

    fn step(
        &mut self,
        workspace: &mut [u8],
        input: &[u8],
        output: &mut [u8],
        finish: Finish,
    ) -> Result<EncodeProgress, Error> {
        self.advance(workspace, input, output, finish)
            .inspect_err(|e| self.stage = EncodeStage::Failed(*e))
    }

    fn advance(
        &mut self,
        workspace: &mut [u8],
        mut input: &[u8],
        output: &mut [u8],
        finish: Finish,
    ) -> Result<EncodeProgress, Error> {
        match self.stage {
            EncodeStage::Failed(e) => return Err(e),
            EncodeStage::Bare => return Err(Error::StageWrong),
            EncodeStage::End if !input.is_empty() => return Err(Error::StageWrong),
            _ => {}
        }
        let given = input.len();
        let mut written = 0;
        if self.stage == EncodeStage::Ready {
            self.begin(workspace)?;
            self.stage = EncodeStage::Start;
        }
        let block_size = self.params.block_size();
        loop {
            written += self.drain(workspace, output.checked_mut(written..)?)?;
            let pending = self.filled - self.start;
            let blocked = self.staged_from < self.staged_to;
            let due = if input.is_empty() {
                pending > 0 && finish != Finish::Nothing
                    || finish == Finish::Frame && self.stage != EncodeStage::End
            } else {
                pending == block_size
            };
            if blocked || !due && input.is_empty() {
                return Ok(EncodeProgress {
                    read: given - input.len(),
                    written,
                    held: self.staged_to - self.staged_from,
                    wanted: block_size - pending,
                });
            }
            if due {
                let last = finish == Finish::Frame && input.is_empty();
                if last && self.pledged.is_some_and(|size| size != self.taken) {
                    return Err(Error::SrcSizeWrong);
                }
                written += self.write_block(workspace, output.checked_mut(written..)?, last)?;
                continue;
            }
            let (now, later) = input.split_at(input.len().min(block_size - pending));
            self.take(workspace, now)?;
            input = later;
        }
    }

    /// Begins a frame, after the dictionary if there is one.
    #[inline(never)]
    fn begin(&mut self, workspace: &mut [u8]) -> Result<(), Error> {
        let params = &self.params;
        let rooms = EncoderRegions::of(workspace, params)?;
        let index = self.kept.next_index();
        let parts = &mut BlockEncoder::over(rooms.parts, &mut self.kept);
        if !self.cleared {
            parts.clear(params)?;
            self.cleared = true;
        }
        let window = rooms.window;
        let content = match (self.prepared, self.dictionary) {
            (Some(prepared), _) => {
                let content = prepared.content;
                if !self.window_has_content {
                    window.checked_mut(..content.len())?.checked_copy(content)?;
                    self.window_has_content = true;
                }
                let window = window.checked(..content.len())?;
                parts.start_from(&prepared.start, window, index)?;
                content
            }
            (None, Some(dictionary)) => {
                parts.start_frame(index, params)?;
                let content = parts.load(&dictionary, history_max(params))?;
                let window = window.checked_mut(..content.len())?;
                window.checked_copy(content)?;
                parts.insert_history(window, params)?;
                content
            }
            (None, None) => {
                parts.start_frame(index, params)?;
                return Ok(());
            }
        };
        (self.start, self.filled) = (content.len(), content.len());
        self.low = 0_u64.wrapping_sub(content.len() as u64);
        Ok(())
    }

    /// Writes staged bytes to the output.
    fn drain(&mut self, workspace: &mut [u8], output: &mut [u8]) -> Result<usize, Error> {
        if self.staged_from == self.staged_to {
            return Ok(0);
        }
        let rooms = EncoderRegions::of(workspace, &self.params)?;
        let waiting = rooms.staged.checked(self.staged_from..self.staged_to)?;
        let n = waiting.len().min(output.len());
        output[..n].copy_from_slice(&waiting[..n]);
        self.staged_from += n;
        Ok(n)
    }

    /// Takes input that fits in a block with the bytes already there.
    #[inline(never)]
    fn take(&mut self, workspace: &mut [u8], input: &[u8]) -> Result<(), Error> {
        self.taken += input.len() as u64;
        if self.pledged.is_some_and(|size| self.taken > size) {
            return Err(Error::SrcSizeWrong);
        }
        let window = EncoderRegions::of(workspace, &self.params)?.window;
        if self.filled + input.len() > window.len() {
            let shift = self.start - (1 << self.params.window_log).min(self.start);
            window.checked_copy_within(shift..self.filled, 0)?;
            self.window_has_content = false;
            self.start -= shift;
            self.filled -= shift;
            self.low = self.low.wrapping_add(shift as u64);
        }
        let place = self.filled..self.filled + input.len();
        window.checked_mut(place)?.checked_copy(input)?;
        self.filled += input.len();
        if self.params.checksum {
            self.checksum.update(input);
        }
        Ok(())
    }

    /// Writes a block of the input taken, to the output if it surely fits there, else to the
    /// staging area.
    fn write_block(
        &mut self,
        workspace: &mut [u8],
        output: &mut [u8],
        last: bool,
    ) -> Result<usize, Error> {
        let rooms = EncoderRegions::of(workspace, &self.params)?;
        let most = self.filled - self.start + STAGED_BESIDES;
        let direct = output.len() >= most;
        let out = if direct { output } else { rooms.staged };
        let mut at = 0;
        if self.stage == EncodeStage::Start {
            if last {
                // All of it is here, so its size is known.
                self.pledged = Some(self.taken);
            }
            let fields = HeaderFields {
                window_log: self.params.window_log,
                content_size: self.pledged.filter(|_| self.params.content_size),
                checksum: self.params.checksum,
                dictionary_id: match self.dictionary {
                    Some(dictionary) if self.params.dictionary_id => dictionary.id(),
                    _ => 0,
                },
            };
            let (header, bytes) = fields.emit();
            let header = header.checked(..bytes)?;
            out.checked_mut(..bytes)?.checked_copy(header)?;
            at = bytes;
            self.stage = EncodeStage::Content;
        }
        let history = self.start.min(1 << self.params.window_log);
        // A dictionary is in reach as a whole while the content is no longer than the window.
        let from = if self.low.wrapping_add(self.filled as u64) <= 1 << self.params.window_log {
            0
        } else {
            self.start - history
        };
        let piece = BlockSource {
            data: rooms.window.checked(from..self.filled)?,
            low: self.low.wrapping_add(from as u64),
            start: self.start - from,
            end: self.filled - from,
            first: self.first,
            last,
        };
        let params = &self.params;
        let mut parts = BlockEncoder::over(rooms.parts, &mut self.kept);
        let (reached, bytes) = parts.write_block(out.checked_mut(at..)?, &piece, params)?;
        at += bytes;
        self.first = false;
        self.start = from + reached;
        if last && self.start == self.filled {
            if self.params.checksum {
                let sum = (self.checksum.digest() as u32).to_le_bytes();
                out.checked_mut(at..at + 4)?.checked_copy(&sum)?;
                at += 4;
            }
            self.stage = EncodeStage::End;
        }
        if direct {
            return Ok(at);
        }
        (self.staged_from, self.staged_to) = (0, at);
        Ok(0)
    }

    fn compress_block(
        &mut self,
        workspace: &mut [u8],
        dst: &mut [u8],
        src: &[u8],
    ) -> Result<Option<usize>, Error> {
        match self.stage {
            EncodeStage::Ready => self.begin(workspace)?,
            EncodeStage::Bare => {}
            EncodeStage::Failed(error @ Error::Inconsistent) => return Err(error),
            _ => return Err(Error::StageWrong),
        }
        self.stage = EncodeStage::Bare;
        if src.len() > self.params.block_size() {
            return Err(Error::SrcSizeWrong);
        }
        self.pledged = None;
        self.take(workspace, src)?;
        let from = self.start - self.start.min(1 << self.params.window_log);
        let params = &self.params;
        let rooms = EncoderRegions::of(workspace, params)?;
        let piece = BlockSource {
            data: rooms.window.checked(from..self.filled)?,
            low: self.low.wrapping_add(from as u64),
            start: self.start - from,
            end: self.filled - from,
            first: false,
            last: false,
        };
        let mut parts = BlockEncoder::over(rooms.parts, &mut self.kept);
        let written = parts.write_bare_block(dst, &piece, params)?;
        self.start = self.filled;
        Ok(written)
    }
}

#[cfg(all(test, feature = "no-panic"))]
mod tests {
    use super::*;
    use std::vec;

    #[test]
    fn an_inconsistent_encoder_stays_one() {
        let params = Params::for_level(3, Some(1000));
        let mut memory = vec![0; stream_workspace_size(&params)];
        let mut encoder = Encoder::new(&params, &mut memory).unwrap();
        let mut out = [0; 2000];
        assert!(encoder.step(&[1; 500], &mut out, Finish::Nothing).is_ok());
        encoder.state.filled = usize::MAX / 2;
        let inconsistent = Err(Error::Inconsistent);
        for _ in 0..2 {
            assert_eq!(encoder.step(&[], &mut out, Finish::Frame), inconsistent);
            assert_eq!(
                encoder.compress_block(&mut out, &[1; 50]),
                Err(Error::Inconsistent)
            );
            assert!(encoder.set_dictionary(None).is_err());
            encoder.reset(None);
        }
    }
}
