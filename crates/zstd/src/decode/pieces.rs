//! Frames that come header by header and block by block, decoded to memory that the caller keeps.

use xxhash::Xxh64;

use super::block::{self, FrameState, LiteralsRegion};
use super::output::{BlockOutput, FullOutput, OlderHistory, TAIL};
use super::{DecodeOptions, LITERALS_SIZE};
use crate::dictionary::Loaded;
use crate::frame::{BLOCK_HEADER_SIZE, BLOCK_SIZE_MAX, BlockHeader, BlockKind, HEADER_SIZE_MAX};
use crate::workspace::DecoderTables;
use crate::{Error, Frame, FrameHeader};

/// The checksum after the last block.
const CHECKSUM_SIZE: usize = 4;

/// The type of the next piece of a frame (RFC 8878, section 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceKind {
    /// The frame header, or the rest of it.
    FrameHeader,
    /// A block header.
    BlockHeader,
    /// The content of a block that others follow.
    Block,
    /// The content of the last block.
    LastBlock,
    /// The checksum.
    Checksum,
    /// The content of a skippable frame.
    SkippableFrame,
}

/// Decodes a frame piece by piece, without memory for input or history: each piece comes as a
/// whole, and the content of earlier blocks stays where the caller keeps it.
///
/// ```
/// use zstd::{DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, PieceDecoder};
/// # fn main() -> Result<(), zstd::Error> {
/// let mut frame = &[0x28, 0xB5, 0x2F, 0xFD, 0x20, 5, 0x2B, 0, 0, b'z'][..];
/// let mut workspace = vec![0; DECOMPRESS_WORKSPACE_SIZE];
/// let mut decoder = PieceDecoder::new(DecodeOptions::new(), &mut workspace)?;
/// let (mut content, mut at) = ([0; 5], 0);
/// while decoder.wanted() > 0 {
///     let (piece, rest) = frame.split_at(decoder.wanted());
///     at += decoder.decode(piece, &mut content, at)?;
///     frame = rest;
/// }
/// assert_eq!((&content, at), (b"zzzzz", 5));
/// # Ok(()) }
/// ```
///
/// Blocks without a frame around them are decoded by [`decode_block`](Self::decode_block).
pub struct PieceDecoder<'w, 'd> {
    options: DecodeOptions<'d>,
    tables: DecoderTables<'w>,
    literals: &'w mut [u8; LITERALS_SIZE],
    header: FrameHeader,
    state: FrameState,
    dictionary: &'d [u8],
    hash: Xxh64,
    stage: PieceStage,
    small: [u8; HEADER_SIZE_MAX],
    /// Bytes in `small`.
    have: usize,
    /// Bytes of content so far.
    produced: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PieceStage {
    /// The frame header needs this many bytes in total.
    FrameHeader {
        needed: usize,
    },
    Skippable {
        size: usize,
    },
    BlockHeader,
    Block(BlockHeader),
    Checksum,
    End,
    /// Blocks without headers.
    Bare,
    Failed(Error),
}

impl<'w, 'd> PieceDecoder<'w, 'd> {
    /// A decoder at the beginning of a frame.
    ///
    /// # Errors
    ///
    /// [`Error::WorkspaceTooSmall`] if `workspace` has less than
    /// [`DECOMPRESS_WORKSPACE_SIZE`](crate::DECOMPRESS_WORKSPACE_SIZE) bytes.
    pub fn new(options: DecodeOptions<'d>, workspace: &'w mut [u8]) -> Result<Self, Error> {
        let (tables, rest) = DecoderTables::carve(workspace).ok_or(Error::WorkspaceTooSmall)?;
        let literals = rest.first_chunk_mut().ok_or(Error::WorkspaceTooSmall)?;
        let mut decoder = PieceDecoder {
            options,
            tables,
            literals,
            header: FrameHeader::NONE,
            state: FrameState::new(&Loaded::NOTHING),
            dictionary: &[],
            hash: Xxh64::new(0),
            stage: PieceStage::End,
            small: [0; HEADER_SIZE_MAX],
            have: 0,
            produced: 0,
        };
        decoder.reset(options);
        Ok(decoder)
    }

    /// Begins another frame, abandoning this one if it is incomplete.
    pub fn reset(&mut self, options: DecodeOptions<'d>) {
        self.options = options;
        self.have = 0;
        self.produced = 0;
        self.stage = match self.options.parse(&[]) {
            Ok(Frame::Incomplete { needed }) => PieceStage::FrameHeader { needed },
            _ => PieceStage::End,
        };
    }

    /// Becomes a copy of `other`, wherever that is in its frame: tables are copied, the dictionary
    /// is shared. Decoding continues after the same content.
    pub fn copy_from(&mut self, other: &PieceDecoder<'_, 'd>) {
        self.tables.copy_from(&other.tables);
        self.options = other.options;
        self.header = other.header;
        self.state.clone_from(&other.state);
        self.dictionary = other.dictionary;
        self.hash.clone_from(&other.hash);
        self.stage = other.stage;
        self.small = other.small;
        self.have = other.have;
        self.produced = other.produced;
    }

    /// Bytes that the next call of [`decode`](Self::decode) takes; 0 when the frame is complete.
    pub fn wanted(&self) -> usize {
        match self.stage {
            PieceStage::FrameHeader { needed } => needed - self.have,
            PieceStage::Skippable { size } => size,
            PieceStage::BlockHeader => BLOCK_HEADER_SIZE,
            PieceStage::Block(block) => block.stored,
            PieceStage::Checksum => CHECKSUM_SIZE,
            PieceStage::End | PieceStage::Bare | PieceStage::Failed(_) => 0,
        }
    }

    /// The type of these bytes; a frame header when the frame is complete, as another may follow.
    pub fn next(&self) -> PieceKind {
        match self.stage {
            PieceStage::Skippable { .. } => PieceKind::SkippableFrame,
            PieceStage::BlockHeader => PieceKind::BlockHeader,
            PieceStage::Block(block) if block.last => PieceKind::LastBlock,
            PieceStage::Block(_) | PieceStage::Bare => PieceKind::Block,
            PieceStage::Checksum => PieceKind::Checksum,
            _ => PieceKind::FrameHeader,
        }
    }

    /// The header of the frame, once it is known.
    pub fn header(&self) -> Option<&FrameHeader> {
        match self.stage {
            PieceStage::FrameHeader { .. } | PieceStage::Skippable { .. } | PieceStage::Bare => {
                None
            }
            _ => (self.header.size > 0).then_some(&self.header),
        }
    }

    /// Takes the next piece, writes the content that it gives to `output[at..]`, and returns how
    /// many bytes that are.
    ///
    /// `output[..at]` must end with the frame's content so far, as much of it as the window
    /// reaches.
    ///
    /// # Errors
    ///
    /// [`Error::SrcSizeWrong`] if `piece` has not as many bytes as [`wanted`](Self::wanted);
    /// [`Error::DstSizeTooSmall`] if the content does not fit; those of a bad frame. The decoder
    /// then needs a [`reset`](Self::reset), except for a piece of the wrong size.
    pub fn decode(&mut self, piece: &[u8], output: &mut [u8], at: usize) -> Result<usize, Error> {
        if let PieceStage::Failed(error) = self.stage {
            return Err(error);
        }
        if self.stage == PieceStage::End || self.stage == PieceStage::Bare || at > output.len() {
            return Err(Error::StageWrong);
        }
        if piece.len() != self.wanted() {
            return Err(Error::SrcSizeWrong);
        }
        self.advance(piece, output, at)
            .inspect_err(|error| self.stage = PieceStage::Failed(*error))
    }

    fn advance(&mut self, piece: &[u8], output: &mut [u8], at: usize) -> Result<usize, Error> {
        match self.stage {
            PieceStage::FrameHeader { .. } => {
                if let Some(place) = self.small.get_mut(self.have..self.have + piece.len()) {
                    place.copy_from_slice(piece);
                    self.have += piece.len();
                }
                self.take_header()?;
            }
            PieceStage::BlockHeader => {
                let bytes = piece.first_chunk().ok_or(Error::SrcSizeWrong)?;
                let block = BlockHeader::parse(*bytes, self.header.block_size_max)?;
                self.stage = PieceStage::Block(block);
                if block.stored == 0 {
                    // A compressed block of no bytes lacks its headers.
                    return match block.kind {
                        BlockKind::Compressed => Err(Error::Corruption),
                        _ => self.end_block(block.last),
                    };
                }
            }
            PieceStage::Block(block) => {
                let written = self.decode_content(block, piece, output, at)?;
                let content = output.get(at..at + written).unwrap_or_default();
                if self.header.checksum {
                    self.hash.update(content);
                }
                self.produced += written as u64;
                return self.end_block(block.last).map(|_| written);
            }
            PieceStage::Checksum => {
                if piece != (self.hash.digest() as u32).to_le_bytes() {
                    return Err(Error::ChecksumWrong);
                }
                self.stage = PieceStage::End;
            }
            _ => self.stage = PieceStage::End,
        }
        Ok(0)
    }

    fn take_header(&mut self) -> Result<(), Error> {
        let bytes = self.small.get(..self.have).unwrap_or_default();
        match self.options.parse(bytes)? {
            Frame::Incomplete { needed } => self.stage = PieceStage::FrameHeader { needed },
            Frame::Skippable { size: 0, .. } => self.stage = PieceStage::End,
            Frame::Skippable { size, .. } => {
                let size = usize::try_from(size).map_err(|_| Error::SrcSizeWrong)?;
                self.stage = PieceStage::Skippable { size };
            }
            Frame::Zstd(header) => {
                self.options.check(&header)?;
                self.load()?;
                self.header = header;
                self.stage = PieceStage::BlockHeader;
            }
        }
        Ok(())
    }

    /// Loads the dictionary.
    fn load(&mut self) -> Result<(), Error> {
        let loaded = self.options.load(&mut self.tables)?;
        self.state = FrameState::new(&loaded);
        self.dictionary = loaded.content;
        self.hash = Xxh64::new(0);
        self.produced = 0;
        Ok(())
    }

    fn end_block(&mut self, last: bool) -> Result<usize, Error> {
        let size = self.header.content_size;
        self.stage = match (last, self.header.checksum) {
            (false, _) => PieceStage::BlockHeader,
            (true, _) if size.is_some_and(|size| size != self.produced) => {
                return Err(Error::Corruption);
            }
            (true, true) => PieceStage::Checksum,
            (true, false) => PieceStage::End,
        };
        Ok(0)
    }

    fn decode_content(
        &mut self,
        block: BlockHeader,
        piece: &[u8],
        bytes: &mut [u8],
        at: usize,
    ) -> Result<usize, Error> {
        let size_max = self.header.block_size_max as usize;
        let room = bytes.len() - at;
        // No block gives more than the rest of the content.
        let left = self
            .header
            .content_size
            .map_or(u64::MAX, |size| size - self.produced);
        let most = usize::try_from(left).map_or(size_max, |left| left.min(size_max));
        let (end, full) = if room < most {
            (bytes.len(), Error::DstSizeTooSmall)
        } else {
            (at + most, Error::Corruption)
        };
        // Matches reach no farther back than the content that the caller has kept.
        let produced = usize::try_from(self.produced).unwrap_or(usize::MAX);
        let (start, dictionary) = match at.checked_sub(produced) {
            Some(start) => (start, self.dictionary),
            None => (0, &[][..]),
        };
        let mut output = BlockOutput {
            scratch_end: bytes.len(),
            bytes,
            at,
            end,
            tail: TAIL,
            start,
            older: OlderHistory::Dictionary(dictionary),
            window: usize::try_from(self.header.window_size).unwrap_or(usize::MAX),
            full: FullOutput::Fails(full),
        };
        match block.kind {
            BlockKind::Raw => output.push_slice(piece)?,
            BlockKind::Rle => {
                let byte = piece.first().ok_or(Error::SrcSizeWrong)?;
                output.push_fill(*byte, block.content)?
            }
            BlockKind::Compressed => block::decode(
                piece,
                size_max,
                &mut self.state,
                &mut self.tables,
                LiteralsRegion::Buffer(self.literals),
                &mut output,
            )?,
        };
        Ok(output.at - at)
    }

    /// Decodes the content of one compressed block that has no header, nor a frame around it (RFC
    /// 8878, section 3.1.1.2.3). Writes to `output[at..]`, and returns how many bytes that are.
    ///
    /// The first block of a series comes right after [`new`](Self::new) or [`reset`](Self::reset).
    /// Blocks know the tables and offsets of those before, and the content, of which `output[..at]`
    /// ends with as much as they may refer to.
    ///
    /// # Errors
    ///
    /// [`Error::SrcSizeWrong`] if the block is empty or larger than 128 KiB;
    /// [`Error::DstSizeTooSmall`]; [`Error::Corruption`]; [`Error::DictionaryCorrupted`];
    /// [`Error::StageWrong`] within a frame.
    pub fn decode_block(
        &mut self,
        block: &[u8],
        output: &mut [u8],
        at: usize,
    ) -> Result<usize, Error> {
        self.begin_bare()?;
        if block.is_empty() || block.len() > BLOCK_SIZE_MAX {
            return Err(Error::SrcSizeWrong);
        }
        if at > output.len() {
            return Err(Error::StageWrong);
        }
        let header = BlockHeader {
            last: false,
            kind: BlockKind::Compressed,
            stored: block.len(),
            content: 0,
        };
        let written = self
            .decode_content(header, block, output, at)
            .inspect_err(|error| self.stage = PieceStage::Failed(*error))?;
        self.produced += written as u64;
        Ok(written)
    }

    /// Declares `size` bytes that lie in the output after the content so far, as those of a block
    /// that was stored: the blocks that follow may refer to them.
    ///
    /// # Errors
    ///
    /// As [`decode_block`](Self::decode_block).
    pub fn insert_block(&mut self, size: usize) -> Result<(), Error> {
        self.begin_bare()?;
        self.produced += size as u64;
        Ok(())
    }

    fn begin_bare(&mut self) -> Result<(), Error> {
        match self.stage {
            PieceStage::Bare => Ok(()),
            PieceStage::Failed(error) => Err(error),
            PieceStage::FrameHeader { .. } if self.have == 0 => {
                self.load()?;
                self.header = FrameHeader {
                    window_size: u64::MAX,
                    block_size_max: BLOCK_SIZE_MAX as u32,
                    ..FrameHeader::NONE
                };
                self.stage = PieceStage::Bare;
                Ok(())
            }
            _ => Err(Error::StageWrong),
        }
    }
}
