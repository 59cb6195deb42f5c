//! Frames that come and go in pieces.

use xxhash::Xxh64;

use super::block::{self, FrameState, LiteralsRegion};
use super::output::{BlockOutput, Extent, FullOutput, OlderHistory};
use super::{DecodeOptions, DecodedFrame};
use crate::dictionary::Loaded;
use crate::frame::{BLOCK_SIZE_MAX, BlockHeader, BlockKind, HEADER_SIZE_MAX};
use crate::workspace::{DecoderTables, TABLES_SIZE};
use crate::{Error, Frame, FrameHeader};

/// Bytes after a block in the window that may be written over.
const SLACK: usize = 64;

/// The progress of a call of [`Decoder::step`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeProgress {
    /// Bytes of input that are done with.
    pub read: usize,
    /// Bytes of output that were written.
    pub written: usize,
    /// Whether the frame is complete, or which buffer is exhausted.
    pub status: Status,
}

/// The status of a decoder after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// A frame is complete: all of it was read and all of its content was written. Another frame
    /// may follow.
    Done,
    /// More input.
    Input {
        /// Bytes sufficient for the next step; never more than the rest of the frame.
        hint: usize,
    },
    /// More room for output.
    Output,
}

/// Decodes frames that come in pieces of any size, to pieces of any size.
///
/// All its memory is the workspace, except for a few hundred bytes in the value itself. Frames may
/// follow one another; skippable frames are passed over, each giving [`Status::Done`] at its end.
/// After an error, the same error comes again until [`reset`](Self::reset).
pub struct Decoder<'w, 'd> {
    options: DecodeOptions<'d>,
    tables: DecoderTables<'w>,
    /// A block that comes in pieces.
    input: &'w mut [u8],
    /// History, the current block, and room for one more.
    window: &'w mut [u8],
    header: FrameHeader,
    state: FrameState,
    hash: Xxh64,
    stage: DecodeStage,
    /// A header or a checksum that comes in pieces.
    small: [u8; HEADER_SIZE_MAX],
    /// Bytes in `small` or `input`.
    have: usize,
    /// Bytes of `window` that this frame may use.
    capacity: usize,
    /// In `window`: the end of the decoded content, and of the part already written to the output.
    at: usize,
    given: usize,
    older: OlderHistory<'d>,
    /// Bytes of content decoded.
    produced: u64,
    /// The last byte of input was used, but it is not reported as read before all content is given
    /// out.
    byte_held: bool,
    error: Option<Error>,
}

/// A [`Decoder`] without its workspace, to be kept beside it by an owner of both.
#[cfg(feature = "std")]
#[derive(Clone)]
pub(crate) struct SuspendedDecoder<'d> {
    options: DecodeOptions<'d>,
    header: FrameHeader,
    state: FrameState,
    hash: Xxh64,
    stage: DecodeStage,
    small: [u8; HEADER_SIZE_MAX],
    have: usize,
    capacity: usize,
    at: usize,
    given: usize,
    older: OlderHistory<'d>,
    produced: u64,
    byte_held: bool,
    error: Option<Error>,
}

#[cfg(feature = "std")]
impl<'d> SuspendedDecoder<'d> {
    /// Continues in the workspace of the decoder that was suspended.
    pub(crate) fn resume(self, workspace: &mut [u8]) -> Result<Decoder<'_, 'd>, Error> {
        let mut decoder = Decoder::new(self.options, workspace)?;
        (decoder.header, decoder.state, decoder.hash) = (self.header, self.state, self.hash);
        (decoder.stage, decoder.small, decoder.have) = (self.stage, self.small, self.have);
        (decoder.capacity, decoder.at, decoder.given) = (self.capacity, self.at, self.given);
        (decoder.older, decoder.produced) = (self.older, self.produced);
        (decoder.byte_held, decoder.error) = (self.byte_held, self.error);
        Ok(decoder)
    }
}

/// The part of a frame that the next byte of input belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecodeStage {
    FrameHeader,
    Skippable {
        left: u32,
    },
    BlockHeader,
    Raw {
        left: usize,
        last: bool,
    },
    Rle {
        count: usize,
        last: bool,
    },
    Compressed {
        size: usize,
        last: bool,
    },
    Checksum,
    /// Nothing: the frame is over.
    End,
}

/// Bytes of window memory for frames of this window.
const fn window_memory(window: u64) -> u64 {
    let block = if window < BLOCK_SIZE_MAX as u64 {
        window
    } else {
        BLOCK_SIZE_MAX as u64
    };
    window.saturating_add(2 * block + 2 * SLACK as u64)
}

/// The workspace of a decoder.
struct StreamRegions<'w> {
    tables: DecoderTables<'w>,
    input: &'w mut [u8],
    window: &'w mut [u8],
}

impl<'w> StreamRegions<'w> {
    /// Divides a workspace.
    fn of(workspace: &'w mut [u8]) -> Result<Self, Error> {
        let (tables, rest) = DecoderTables::carve(workspace).ok_or(Error::WorkspaceTooSmall)?;
        // A window of at least the largest block needs three blocks more, a smaller one three times
        // itself.
        let input_len = (rest.len().saturating_sub(2 * SLACK) / 4).min(BLOCK_SIZE_MAX);
        if input_len < 1024 {
            return Err(Error::WorkspaceTooSmall);
        }
        let (input, window) = rest
            .split_at_mut_checked(input_len)
            .ok_or(Error::WorkspaceTooSmall)?;
        Ok(StreamRegions {
            tables,
            input,
            window,
        })
    }
}

impl<'w, 'd> Decoder<'w, 'd> {
    /// Bytes of workspace for streams whose windows have up to `window` bytes.
    ///
    /// Never less for a larger window. `None` if no workspace is large enough.
    pub const fn workspace_size(window: u64) -> Option<usize> {
        let window = if window < 1024 { 1024 } else { window };
        let block = if window < BLOCK_SIZE_MAX as u64 {
            window
        } else {
            BLOCK_SIZE_MAX as u64
        };
        let size = window_memory(window).saturating_add(block + TABLES_SIZE as u64);
        if size > isize::MAX as u64 {
            None
        } else {
            Some(size as usize)
        }
    }

    /// A decoder for frames whose windows fit in the workspace.
    ///
    /// [`Error::WorkspaceTooSmall`] if it has less than [`workspace_size`](Self::workspace_size)
    /// bytes for the smallest window, 1 KiB.
    pub fn new(
        options: DecodeOptions<'d>,
        workspace: &'w mut [u8],
    ) -> Result<Decoder<'w, 'd>, Error> {
        Ok(Decoder::over(options, StreamRegions::of(workspace)?))
    }

    /// As [`new`](Self::new), at the place that it will have: it does not pass over the stack,
    /// which is small in a kernel. After an error the place is empty.
    pub fn place<'p>(
        place: &'p mut Option<Self>,
        options: DecodeOptions<'d>,
        workspace: &'w mut [u8],
    ) -> Result<&'p mut Self, Error> {
        *place = None;
        let parts = StreamRegions::of(workspace)?;
        Ok(place.insert(Decoder::over(options, parts)))
    }

    #[inline(always)]
    fn over(options: DecodeOptions<'d>, parts: StreamRegions<'w>) -> Decoder<'w, 'd> {
        let StreamRegions {
            tables,
            input,
            window,
        } = parts;
        Decoder {
            options,
            tables,
            input,
            window,
            header: FrameHeader::NONE,
            state: FrameState::new(&Loaded::NOTHING),
            hash: Xxh64::new(0),
            stage: DecodeStage::FrameHeader,
            small: [0; HEADER_SIZE_MAX],
            have: 0,
            capacity: 0,
            at: 0,
            given: 0,
            older: OlderHistory::Dictionary(&[]),
            produced: 0,
            byte_held: false,
            error: None,
        }
    }

    /// Gives up the workspace, which keeps its bytes until [`resume`](SuspendedDecoder::resume).
    #[cfg(feature = "std")]
    pub(crate) fn suspend(self) -> SuspendedDecoder<'d> {
        SuspendedDecoder {
            options: self.options,
            header: self.header,
            state: self.state,
            hash: self.hash,
            stage: self.stage,
            small: self.small,
            have: self.have,
            capacity: self.capacity,
            at: self.at,
            given: self.given,
            older: self.older,
            produced: self.produced,
            byte_held: self.byte_held,
            error: self.error,
        }
    }

    /// Prepares for another frame, in any state. Content not yet written is lost.
    pub fn reset(&mut self) {
        self.stage = DecodeStage::FrameHeader;
        self.have = 0;
        self.at = 0;
        self.given = 0;
        self.byte_held = false;
        self.error = None;
    }

    /// Whether the header of a frame is incomplete, or no frame has begun.
    pub fn is_before_header(&self) -> bool {
        self.stage == DecodeStage::FrameHeader
    }

    /// Replaces the options from the next frame on. To be called before a frame begins;
    /// [`Error::StageWrong`] otherwise.
    pub fn set_options(&mut self, options: DecodeOptions<'d>) -> Result<(), Error> {
        if self.stage != DecodeStage::FrameHeader || self.have > 0 || self.error.is_some() {
            return Err(Error::StageWrong);
        }
        self.options = options;
        Ok(())
    }

    /// Becomes a copy of `other`, wherever that is in its frame: tables and window are copied, the
    /// dictionary is shared.
    ///
    /// [`Error::WorkspaceTooSmall`] if the other's frame does not fit in this workspace, which is
    /// never so if this is no smaller than the other's; nothing has changed then.
    pub fn copy_from(&mut self, other: &Decoder<'_, 'd>) -> Result<(), Error> {
        let (window, block) = match other.stage {
            DecodeStage::FrameHeader | DecodeStage::Skippable { .. } => (0, 0),
            DecodeStage::Checksum | DecodeStage::End => (other.at, 0),
            _ => (other.capacity, other.header.block_size_max as usize),
        };
        let have = match other.stage {
            DecodeStage::Compressed { .. } => other.have,
            _ => 0,
        };
        if block > self.input.len() {
            return Err(Error::WorkspaceTooSmall);
        }
        match (self.window.get_mut(..window), other.window.get(..window)) {
            (Some(to), Some(from)) => to.copy_from_slice(from),
            _ => return Err(Error::WorkspaceTooSmall),
        }
        match (self.input.get_mut(..have), other.input.get(..have)) {
            (Some(to), Some(from)) => to.copy_from_slice(from),
            _ => return Err(Error::WorkspaceTooSmall),
        }
        self.tables.copy_from(&other.tables);
        self.options = other.options;
        self.header = other.header;
        self.state.clone_from(&other.state);
        self.hash.clone_from(&other.hash);
        self.stage = other.stage;
        self.small = other.small;
        (self.have, self.capacity) = (other.have, other.capacity);
        (self.at, self.given, self.older) = (other.at, other.given, other.older);
        self.produced = other.produced;
        self.byte_held = other.byte_held;
        self.error = other.error;
        Ok(())
    }

    /// Reads input and writes output until one of them is used up or a frame is complete.
    ///
    /// Either may be empty. No byte of `output` is touched beyond those reported as written. The
    /// last byte of a frame is not reported as read before all content is given out, so that a
    /// caller may simply go on while there is input.
    ///
    /// Fails with the errors of a bad frame, and with [`Error::WindowTooLarge`] if its window does
    /// not fit in the workspace. Bytes read and written before the error in the same call are not
    /// reported.
    pub fn step(&mut self, input: &[u8], output: &mut [u8]) -> Result<DecodeProgress, Error> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let result = self.advance(input, output);
        self.error = result.err();
        result
    }

    fn advance(&mut self, input: &[u8], output: &mut [u8]) -> Result<DecodeProgress, Error> {
        let mut rest = input;
        let mut written = 0;
        let status = loop {
            written += self.give(output.get_mut(written..).unwrap_or_default());
            if self.given < self.at {
                if self.stage == DecodeStage::End && !self.byte_held {
                    self.byte_held = true;
                    // The block's last byte was read in this call.
                    rest = input
                        .get(input.len() - rest.len() - 1..)
                        .unwrap_or_default();
                }
                break Status::Output;
            }
            if self.stage == DecodeStage::End {
                if self.byte_held {
                    let Some((_, after)) = rest.split_first() else {
                        break Status::Input { hint: 1 };
                    };
                    rest = after;
                }
                self.reset();
                break Status::Done;
            }
            if !self.take(&mut rest)? {
                break Status::Input { hint: self.hint() };
            }
        };
        Ok(DecodeProgress {
            read: input.len() - rest.len(),
            written,
            status,
        })
    }

    /// Decodes a part of a frame that is in memory as a whole: `dst.len()` bytes of content from
    /// `start` on, fewer if the content ends before.
    ///
    /// Stops at the content that does not fit; the rest of the frame is not read, and the checksum
    /// is not compared. Where the part ends with a block, the next block is decoded to see whether
    /// the content goes on, and can be an error. Begins with the first frame in `src`, in any state
    /// of the decoder; skippable frames before it are passed over. A part that begins with the
    /// content's first byte is decoded faster, and without memory for a window, by
    /// [`DecodeOptions::decompress_extent`].
    ///
    /// Fails as [`step`](Self::step) does, and with [`Error::SrcSizeWrong`] if `src` ends within
    /// the frame.
    pub fn decompress_range(
        &mut self,
        start: u64,
        dst: &mut [u8],
        src: &[u8],
    ) -> Result<DecodedFrame, Error> {
        self.reset();
        let mut rest = src;
        let result = self.advance_range(start, dst, &mut rest);
        self.reset();
        let (written, more) = result?;
        Ok(DecodedFrame {
            written,
            more,
            read: src.len() - rest.len(),
        })
    }

    fn advance_range(
        &mut self,
        start: u64,
        dst: &mut [u8],
        rest: &mut &[u8],
    ) -> Result<(usize, bool), Error> {
        let mut skip = start;
        let mut written = 0;
        let mut in_frame = false;
        loop {
            let pending = self.at - self.given;
            let skipped = usize::try_from(skip).unwrap_or(usize::MAX).min(pending);
            self.given += skipped;
            skip -= skipped as u64;
            written += self.give(dst.get_mut(written..).unwrap_or_default());
            if self.given < self.at {
                return Ok((written, true));
            }
            if self.stage == DecodeStage::End {
                if in_frame {
                    return Ok((written, false));
                }
                // That was a skippable frame.
                self.reset();
            }
            if !self.take(rest)? {
                return Err(Error::SrcSizeWrong);
            }
            in_frame = in_frame || self.stage == DecodeStage::BlockHeader;
        }
    }

    /// Writes as much of the decoded content as fits.
    fn give(&mut self, output: &mut [u8]) -> usize {
        let decoded = self.window.get(self.given..self.at).unwrap_or_default();
        let len = decoded.len().min(output.len());
        if let (Some(output), Some(decoded)) = (output.get_mut(..len), decoded.get(..len)) {
            output.copy_from_slice(decoded);
        }
        self.given += len;
        len
    }

    /// Bytes that the current stage waits for, with the block header or checksum that follows.
    fn hint(&self) -> usize {
        let after = |last| match last {
            false => 3,
            true if self.header.checksum => 4,
            true => 0,
        };
        match self.stage {
            DecodeStage::FrameHeader => match self
                .options
                .parse(self.small.get(..self.have).unwrap_or_default())
            {
                Ok(Frame::Incomplete { needed }) => needed - self.have,
                _ => 1,
            },
            DecodeStage::Skippable { left } => left as usize,
            DecodeStage::BlockHeader => 3 - self.have,
            DecodeStage::Raw { left, last } => left + after(last),
            DecodeStage::Rle { last, .. } => 1 + after(last),
            DecodeStage::Compressed { size, last } => size - self.have + after(last),
            DecodeStage::Checksum => 4 - self.have,
            DecodeStage::End => 0,
        }
    }

    /// Does the next thing that input allows. `false` if it needs more.
    fn take(&mut self, rest: &mut &[u8]) -> Result<bool, Error> {
        match self.stage {
            DecodeStage::FrameHeader => return self.take_frame_header(rest),
            DecodeStage::Skippable { left } => {
                let len = rest.len().min(left as usize);
                *rest = &rest[len..];
                let left = left - len as u32;
                self.stage = if left > 0 {
                    DecodeStage::Skippable { left }
                } else {
                    DecodeStage::End
                };
                return Ok(left == 0);
            }
            DecodeStage::BlockHeader => {
                if !self.collect(rest, 3) {
                    return Ok(false);
                }
                let bytes = [self.small[0], self.small[1], self.small[2]];
                self.have = 0;
                self.begin_block(BlockHeader::parse(bytes, self.header.block_size_max)?)?;
            }
            DecodeStage::Raw { left, last } => {
                if rest.is_empty() {
                    return Ok(false);
                }
                let (now, later) = rest.split_at(rest.len().min(left));
                *rest = later;
                self.produce(|output, _, _| output.push_slice(now))?;
                match left - now.len() {
                    0 => self.end_block(last)?,
                    left => self.stage = DecodeStage::Raw { left, last },
                }
            }
            DecodeStage::Rle { count, last } => {
                let Some((&byte, later)) = rest.split_first() else {
                    return Ok(false);
                };
                *rest = later;
                self.produce(|output, _, _| output.push_fill(byte, count))?;
                self.end_block(last)?;
            }
            DecodeStage::Compressed { size, last } => {
                if self.have == 0 && rest.len() >= size {
                    let (block, later) = rest.split_at(size);
                    *rest = later;
                    self.decode_block(block)?;
                } else {
                    let (now, later) = rest.split_at(rest.len().min(size - self.have));
                    *rest = later;
                    let place = self
                        .input
                        .get_mut(self.have..self.have.wrapping_add(now.len()));
                    place.ok_or(Error::Corruption)?.copy_from_slice(now);
                    self.have += now.len();
                    if self.have < size {
                        return Ok(false);
                    }
                    self.have = 0;
                    let input = core::mem::take(&mut self.input);
                    let result = match input.get(..size) {
                        Some(block) => self.decode_block(block),
                        None => Err(Error::Corruption),
                    };
                    self.input = input;
                    result?;
                }
                self.end_block(last)?;
            }
            DecodeStage::Checksum => {
                if !self.collect(rest, 4) {
                    return Ok(false);
                }
                let [a, b, c, d, ..] = self.small;
                if u32::from_le_bytes([a, b, c, d]) != self.hash.digest() as u32 {
                    return Err(Error::ChecksumWrong);
                }
                self.stage = DecodeStage::End;
            }
            DecodeStage::End => {}
        }
        Ok(true)
    }

    /// Gathers `len` bytes in `small`; whether they are all there.
    fn collect(&mut self, rest: &mut &[u8], len: usize) -> bool {
        let left = self.small.iter_mut().take(len).skip(self.have);
        let mut now = 0;
        for (place, byte) in left.zip(*rest) {
            *place = *byte;
            now += 1;
        }
        *rest = rest.get(now..).unwrap_or_default();
        self.have += now;
        self.have == len
    }

    fn take_frame_header(&mut self, rest: &mut &[u8]) -> Result<bool, Error> {
        loop {
            match self
                .options
                .parse(self.small.get(..self.have).unwrap_or_default())?
            {
                Frame::Incomplete { needed } => {
                    if !self.collect(rest, needed) {
                        // As soon as a wrong byte is seen.
                        self.options
                            .parse(self.small.get(..self.have).unwrap_or_default())?;
                        return Ok(false);
                    }
                }
                Frame::Skippable { size, .. } => {
                    self.have = 0;
                    self.stage = if size > 0 {
                        DecodeStage::Skippable { left: size }
                    } else {
                        DecodeStage::End
                    };
                    return Ok(true);
                }
                Frame::Zstd(header) => {
                    self.have = 0;
                    self.begin_frame(&header)?;
                    return Ok(true);
                }
            }
        }
    }

    fn begin_frame(&mut self, header: &FrameHeader) -> Result<(), Error> {
        self.options.check(header)?;
        let for_window = window_memory(header.window_size);
        let needed = match header.content_size {
            // Content that never reaches the end of the buffer.
            Some(size) => {
                let once = size.saturating_add(u64::from(header.block_size_max) + SLACK as u64);
                once.min(for_window)
            }
            None => for_window,
        };
        let block_fits = header.block_size_max as usize <= self.input.len();
        self.capacity = match usize::try_from(needed) {
            Ok(needed) if needed <= self.window.len() && block_fits => needed,
            _ => return Err(Error::WindowTooLarge),
        };
        let loaded = self.options.load(&mut self.tables)?;
        self.state = FrameState::new(&loaded);
        self.older = OlderHistory::Dictionary(loaded.content);
        self.header = *header;
        self.hash = Xxh64::new(0);
        self.at = 0;
        self.given = 0;
        self.produced = 0;
        self.stage = DecodeStage::BlockHeader;
        Ok(())
    }

    /// Makes room for a block.
    fn begin_block(&mut self, block: BlockHeader) -> Result<(), Error> {
        // All that was decoded has been given out.
        if self.at + self.header.block_size_max as usize + SLACK > self.capacity {
            self.older = OlderHistory::Wrapped { end: self.at };
            self.at = 0;
            self.given = 0;
        }
        let last = block.last;
        self.stage = match block.kind {
            BlockKind::Raw => DecodeStage::Raw {
                left: block.stored,
                last,
            },
            BlockKind::Rle => DecodeStage::Rle {
                count: block.content,
                last,
            },
            BlockKind::Compressed => DecodeStage::Compressed {
                size: block.stored,
                last,
            },
        };
        match block.kind {
            BlockKind::Raw if block.stored == 0 => self.end_block(last),
            // A compressed block of no bytes lacks its headers.
            BlockKind::Compressed if block.stored == 0 => Err(Error::Corruption),
            _ => Ok(()),
        }
    }

    /// Writes content to the window.
    fn produce(
        &mut self,
        write: impl FnOnce(
            &mut BlockOutput<'_, '_>,
            &mut FrameState,
            &mut DecoderTables<'_>,
        ) -> Result<Extent, Error>,
    ) -> Result<(), Error> {
        let left = match self.header.content_size {
            Some(size) => usize::try_from(size - self.produced).unwrap_or(usize::MAX),
            None => usize::MAX,
        };
        let from = self.at;
        let mut output = BlockOutput {
            bytes: self.window.get_mut(..self.capacity).unwrap_or_default(),
            at: from,
            end: from + left.min(self.header.block_size_max as usize),
            scratch_end: from + self.header.block_size_max as usize + SLACK,
            tail: 0,
            start: 0,
            older: self.older,
            window: usize::try_from(self.header.window_size).unwrap_or(usize::MAX),
            full: FullOutput::Fails(Error::Corruption),
        };
        write(&mut output, &mut self.state, &mut self.tables)?;
        let at = output.at;
        self.produce_to(at);
        Ok(())
    }

    /// Accounts for content written to the window, up to `at`. Apart, because
    /// [`produce`](Self::produce) is made three times.
    #[inline(never)]
    fn produce_to(&mut self, at: usize) {
        if self.header.checksum {
            self.hash
                .update(self.window.get(self.at..at).unwrap_or_default());
        }
        self.produced += (at - self.at) as u64;
        self.at = at;
    }

    fn decode_block(&mut self, block: &[u8]) -> Result<(), Error> {
        let content_max = self.header.block_size_max as usize;
        let end = self.at + content_max + SLACK / 2;
        self.produce(|output, state, tables| {
            block::decode(
                block,
                content_max,
                state,
                tables,
                LiteralsRegion::InPlace { end, few: &mut [] },
                output,
            )
        })
    }

    fn end_block(&mut self, last: bool) -> Result<(), Error> {
        self.stage = if last {
            if self
                .header
                .content_size
                .is_some_and(|size| size != self.produced)
            {
                return Err(Error::Corruption);
            }
            if self.header.checksum {
                DecodeStage::Checksum
            } else {
                DecodeStage::End
            }
        } else {
            DecodeStage::BlockHeader
        };
        Ok(())
    }
}
