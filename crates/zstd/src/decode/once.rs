//! Frames that are in memory as a whole, decoded to memory that holds all that is wanted of them.

use xxhash::Xxh64;

use super::block::{self, FrameState, LiteralsRegion};
use super::output::{BlockOutput, Extent, FullOutput, OlderHistory, TAIL};
use super::{DecodeOptions, LITERALS_SIZE};
use crate::frame::{BlockHeader, BlockKind};
use crate::workspace::DecoderTables;
use crate::{Error, Frame, FrameHeader};

/// The result of decoding one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodedFrame {
    /// Bytes written to the start of the destination.
    pub written: usize,
    /// Whether the content goes on. If not, the frame is whole and its checksum is right.
    pub more: bool,
    /// Bytes of the source up to the end of the frame; if the content goes on, up to the last block
    /// that was read.
    pub read: usize,
}

impl DecodeOptions<'_> {
    /// Decodes all of `src`, any number of frames one after the other, to the start of `dst`; gives
    /// the bytes written.
    ///
    /// Skippable frames are passed over. An empty source has no frames, which gives 0. Bytes of
    /// `dst` after those written stay as they were; after an error, all of `dst` may have changed.
    ///
    /// Fails with
    /// - [`Error::DstSizeTooSmall`] if the content does not fit,
    /// - [`Error::SrcSizeWrong`] if `src` ends within a frame, or something else follows a frame,
    /// - [`Error::WorkspaceTooSmall`] if the workspace has less than
    ///   [`DECOMPRESS_WORKSPACE_SIZE`](crate::DECOMPRESS_WORKSPACE_SIZE) bytes,
    /// - the errors of a bad frame.
    pub fn decompress(
        &self,
        dst: &mut [u8],
        src: &[u8],
        workspace: &mut [u8],
    ) -> Result<usize, Error> {
        let mut frames = Frames::new(self, workspace)?;
        let mut at = 0;
        let mut rest = src;
        while !rest.is_empty() {
            match self.parse(rest) {
                Ok(Frame::Zstd(header)) => {
                    let mut frame = rest;
                    at = frames
                        .decode(
                            &header,
                            &mut frame,
                            dst,
                            at,
                            FullOutput::Fails(Error::DstSizeTooSmall),
                        )?
                        .0;
                    rest = frame;
                }
                Ok(Frame::Skippable { size, .. }) => {
                    rest = skip(rest, size)?;
                }
                Ok(Frame::Incomplete { .. }) => return Err(Error::SrcSizeWrong),
                Err(Error::PrefixUnknown) if rest.len() < src.len() => {
                    return Err(Error::SrcSizeWrong);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(at)
    }

    /// Decodes one frame as file systems store them: its end is found, bytes after it are ignored,
    /// and `dst` may be shorter or longer than the content.
    ///
    /// Stops at the content that does not fit; the rest of the frame is not read, and the checksum
    /// is not compared. Where `dst` ends with a block, the next block is decoded to see whether the
    /// content goes on, and can be an error. Skippable frames before the frame are passed over.
    /// Otherwise as [`decompress`](Self::decompress).
    pub fn decompress_extent(
        &self,
        dst: &mut [u8],
        src: &[u8],
        workspace: &mut [u8],
    ) -> Result<DecodedFrame, Error> {
        let mut frames = Frames::new(self, workspace)?;
        let mut rest = src;
        loop {
            match self.parse(rest)? {
                Frame::Zstd(header) => {
                    let (written, extent) =
                        frames.decode(&header, &mut rest, dst, 0, FullOutput::Truncates)?;
                    let more = extent == Extent::Truncated;
                    return Ok(DecodedFrame {
                        written,
                        more,
                        read: src.len() - rest.len(),
                    });
                }
                Frame::Skippable { size, .. } => rest = skip(rest, size)?,
                Frame::Incomplete { .. } => return Err(Error::SrcSizeWrong),
            }
        }
    }

    pub(super) fn parse(&self, src: &[u8]) -> Result<Frame, Error> {
        if self.magicless {
            Frame::parse_magicless(src)
        } else {
            Frame::parse(src)
        }
    }
}

/// Returns the bytes after a skippable frame.
fn skip(src: &[u8], size: u32) -> Result<&[u8], Error> {
    let rest = src.get(8..).unwrap_or_default();
    usize::try_from(size)
        .ok()
        .and_then(|size| rest.get(size..))
        .ok_or(Error::SrcSizeWrong)
}

/// Decodes frame after frame in the same memory.
struct Frames<'w, 'o, 'd> {
    options: &'o DecodeOptions<'d>,
    tables: DecoderTables<'w>,
    literals: &'w mut [u8; LITERALS_SIZE],
    /// Of the frame's content so far: not in `decode`, whose frame on the stack is the largest.
    hash: Xxh64,
}

impl<'w, 'o, 'd> Frames<'w, 'o, 'd> {
    fn new(
        options: &'o DecodeOptions<'d>,
        workspace: &'w mut [u8],
    ) -> Result<Frames<'w, 'o, 'd>, Error> {
        let (tables, rest) = DecoderTables::carve(workspace).ok_or(Error::WorkspaceTooSmall)?;
        let literals = rest.first_chunk_mut().ok_or(Error::WorkspaceTooSmall)?;
        Ok(Frames {
            options,
            tables,
            literals,
            hash: Xxh64::new(0),
        })
    }

    /// Returns the initial state of a frame (tables and repeat offsets) and the content before its
    /// own.
    #[inline(never)]
    fn load_dictionary(&mut self) -> Result<(FrameState, &'d [u8]), Error> {
        let loaded = self.options.load(&mut self.tables)?;
        Ok((FrameState::new(&loaded), loaded.content))
    }

    /// Decodes the frame that `src` begins with to `dst[start..]`; gives where the content ends.
    /// `src` is then the rest after the frame, or after the last block that was read.
    ///
    /// Apart from its callers, for smaller frames on the stack.
    #[inline(never)]
    fn decode(
        &mut self,
        header: &FrameHeader,
        src: &mut &[u8],
        dst: &mut [u8],
        start: usize,
        full: FullOutput,
    ) -> Result<(usize, Extent), Error> {
        self.options.check(header)?;
        let room = dst.len() - start;
        // Where the content ends, if the frame says so and if that is within `dst`.
        let content_end = match header.content_size.map(usize::try_from) {
            Some(Ok(size)) if size <= room => Some(start + size),
            Some(_) if full != FullOutput::Truncates => return Err(Error::DstSizeTooSmall),
            _ => None,
        };
        let (mut state, dictionary) = self.load_dictionary()?;
        if header.checksum {
            self.hash = Xxh64::new(0);
        }
        let window = usize::try_from(header.window_size).unwrap_or(usize::MAX);
        let block_size_max = header.block_size_max as usize;
        *src = src.get(header.size..).ok_or(Error::SrcSizeWrong)?;

        let dst_len = dst.len();
        let mut at = start;
        loop {
            let (block, stored) = split_block(src, header.block_size_max)?;
            let block_end = at + block_size_max.min(dst.len() - at);
            let (end, full) = match content_end {
                Some(content_end) if content_end <= block_end => {
                    (content_end, FullOutput::Fails(Error::Corruption))
                }
                _ if block_end - at == block_size_max => {
                    (block_end, FullOutput::Fails(Error::Corruption))
                }
                _ => (dst.len(), full),
            };
            let mut output = BlockOutput {
                bytes: dst,
                at,
                end,
                scratch_end: content_end.unwrap_or(dst_len),
                tail: if content_end.is_some() { 0 } else { TAIL },
                start,
                older: OlderHistory::Dictionary(dictionary),
                window,
                full,
            };
            let extent = match block.kind {
                BlockKind::Raw | BlockKind::Rle => push_stored(&mut output, &block, stored)?,
                BlockKind::Compressed => {
                    let keep = match content_end {
                        Some(_) => LiteralsRegion::InPlace {
                            end,
                            few: self.literals,
                        },
                        None => LiteralsRegion::Buffer(self.literals),
                    };
                    block::decode(
                        stored,
                        block_size_max,
                        &mut state,
                        &mut self.tables,
                        keep,
                        &mut output,
                    )?
                }
            };
            let from = at;
            at = output.at;
            if extent == Extent::Truncated {
                return Ok((at, extent));
            }
            if header.checksum {
                update(&mut self.hash, dst.get(from..at).unwrap_or_default());
            }
            if block.last {
                break;
            }
        }
        if header
            .content_size
            .is_some_and(|size| size != (at - start) as u64)
        {
            return Err(Error::Corruption);
        }
        if header.checksum {
            check(src, &self.hash)?;
        }
        Ok((at, Extent::Whole))
    }
}

/// Puts out a block without codes. Apart, for a smaller frame of the caller on the stack.
#[inline(never)]
fn push_stored(
    output: &mut BlockOutput<'_, '_>,
    block: &BlockHeader,
    stored: &[u8],
) -> Result<Extent, Error> {
    if block.kind == BlockKind::Raw {
        return output.push_slice(stored);
    }
    let byte = stored.first().ok_or(Error::SrcSizeWrong)?;
    output.push_fill(*byte, block.content)
}

/// Apart, for a smaller frame of the caller on the stack.
#[inline(never)]
fn update(hash: &mut Xxh64, content: &[u8]) {
    hash.update(content);
}

/// Compares a content's hash with the checksum that `src` begins with.
#[inline(never)]
fn check(src: &mut &[u8], hash: &Xxh64) -> Result<(), Error> {
    let (stored, rest) = src.split_first_chunk().ok_or(Error::SrcSizeWrong)?;
    let stored = u32::from_le_bytes(*stored);
    *src = rest;
    if stored == hash.digest() as u32 {
        Ok(())
    } else {
        Err(Error::ChecksumWrong)
    }
}

/// Takes a block from the start of `src`.
pub(crate) fn split_block<'s>(
    src: &mut &'s [u8],
    block_size_max: u32,
) -> Result<(BlockHeader, &'s [u8]), Error> {
    let (header, rest) = src.split_first_chunk().ok_or(Error::SrcSizeWrong)?;
    let block = BlockHeader::parse(*header, block_size_max)?;
    let (stored, rest) = rest
        .split_at_checked(block.stored)
        .ok_or(Error::SrcSizeWrong)?;
    *src = rest;
    Ok((block, stored))
}
