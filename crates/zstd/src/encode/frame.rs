//! Whole frames in one call.

use super::block_encoder::{BlockEncoder, BlockEncoderState, BlockSource, store_bytes};
use super::finder::index::index_log;
use super::levels::{CLASS_SIZES, LEVEL_DEFAULT, LEVEL_MAX, LEVEL_MIN};
use super::params::{Params, Strategy, history_max, window_bytes};
use crate::checked::{Checked, CheckedSlice};
use crate::frame::HeaderFields;
use crate::workspace::Carver;
use crate::workspace::sealed::WorkspaceMemory;
use crate::{Dictionary, EncoderDictionary, Error};

/// Largest size of a frame of `size` bytes of content.
pub const fn compress_bound(size: usize) -> usize {
    // A header and a checksum, and three bytes for each block: those of a window of 1 KiB are the
    // smallest.
    size.saturating_add((size >> 8) + 64)
}

/// Bytes of workspace that a [`Compressor`] needs for frames with these parameters, or with any
/// that are no larger.
pub fn workspace_size(params: &Params) -> usize {
    Carver::SLACK + BlockEncoder::bytes(params, store_bytes(params))
}

/// Bytes of workspace that a [`Compressor`] needs for a frame of `source_size` bytes that follows a
/// dictionary of `dictionary_size` bytes: all that [`Dictionary::new`] was given, or the
/// [`content_size`](EncoderDictionary::content_size) of a prepared one. More of either never needs
/// less, and [`stream_workspace_size`](crate::stream_workspace_size) is enough for all.
pub fn dictionary_workspace_size(
    params: &Params,
    dictionary_size: usize,
    source_size: usize,
) -> usize {
    let history = dictionary_size.min(history_max(params));
    workspace_size(params) + history + joined_size(params, history, source_size)
}

/// Bytes of content copied after `history` bytes of a dictionary: those that can refer to it, as
/// far as there is room.
fn joined_size(params: &Params, history: usize, source_size: usize) -> usize {
    let reaching = (1 << params.window_log) + params.block_size();
    source_size
        .min(reaching)
        .min(window_bytes(params) + params.block_size() - history)
}

/// Bytes of workspace that do for every level up to `level` and every content of up to
/// `source_size` bytes (any content if that is `None`), with the parameters of
/// [`Params::for_level`].
///
/// Never falls when level or size grow: it is the largest of all that they include.
pub fn workspace_size_up_to(level: i32, source_size: Option<u64>) -> usize {
    let size = source_size.unwrap_or(u64::MAX);
    let level = if level == 0 {
        LEVEL_DEFAULT
    } else {
        level.clamp(LEVEL_MIN, LEVEL_MAX)
    };
    let sizes = CLASS_SIZES
        .iter()
        .copied()
        .filter(|class| *class < size)
        .chain([size]);
    // All levels below 1 have tables of one size.
    sizes
        .flat_map(|size| (LEVEL_MIN.max(-1)..=level.max(-1)).map(move |level| (level, size)))
        .map(|(level, size)| workspace_size(&Params::for_level(level, Some(size))))
        .max()
        .unwrap_or(0)
}

/// Compresses `src` to one frame in `dst` and returns its length.
///
/// # Errors
///
/// [`Error::DstSizeTooSmall`] if the frame is larger than `dst`: as soon as that is sure.
/// [`Error::WorkspaceTooSmall`] if `workspace` is smaller than [`workspace_size`] says.
pub fn compress(
    dst: &mut [u8],
    src: &[u8],
    params: &Params,
    workspace: &mut [u8],
) -> Result<usize, Error> {
    Compressor::new(workspace).compress(dst, src, params)
}

/// Compresses `src` to one frame in `dst` that follows the content of `dictionary`, and returns its
/// length.
///
/// # Errors
///
/// As [`Compressor::compress_with_dictionary`].
pub fn compress_with_dictionary(
    dst: &mut [u8],
    src: &[u8],
    params: &Params,
    dictionary: &Dictionary<'_>,
    workspace: &mut [u8],
) -> Result<usize, Error> {
    Compressor::new(workspace).compress_with_dictionary(dst, src, params, dictionary)
}

/// Compresses one frame after another in the same workspace.
///
/// The workspace may hold anything at first. It is borrowed ([`Compressor::new`]) or owned
/// ([`Compressor::owning`]). The bytes of a frame do not depend on the frames before it; yet while
/// parameters stay the same, tables are not cleared between frames.
pub struct Compressor<W> {
    workspace: W,
    /// Of the tables, once they hold something that is known.
    layout: Option<TableLayout>,
    /// The first index that is above all in the tables; 0 if they hold anything.
    next_index: u32,
    /// That of the last frame. Here, and not on the stack, where it would lie below all that finds
    /// and writes blocks.
    kept: Option<BlockEncoderState>,
}

/// The parameters that determine position and size of the tables and the meaning of their cells.
#[derive(Clone, Copy, PartialEq, Eq)]
struct TableLayout {
    strategy: Strategy,
    index_log: u32,
    block_size: usize,
}

impl TableLayout {
    fn of(params: &Params) -> Self {
        TableLayout {
            strategy: params.strategy,
            index_log: index_log(params.window_log),
            block_size: params.block_size(),
        }
    }
}

/// The workspace of a compressor.
struct CompressorRegions<'w> {
    parts: &'w mut [u8],
    /// For the end of a dictionary's content, and the beginning of the content that follows it.
    joined: &'w mut [u8],
}

impl<'w> CompressorRegions<'w> {
    /// Divides a workspace.
    #[inline(never)]
    fn of(
        workspace: &'w mut [u8],
        params: &Params,
        before: FrameHistory<'_>,
        source_size: usize,
    ) -> Result<Self, Error> {
        let parts = BlockEncoder::bytes(params, store_bytes(params));
        let history = before.size().min(history_max(params));
        let joined = match before {
            FrameHistory::Nothing => 0,
            _ => history + joined_size(params, history, source_size),
        };
        let mut carver = Carver::new(workspace, parts + joined)?;
        Ok(CompressorRegions {
            parts: carver.bytes(parts)?,
            joined: carver.bytes(joined)?,
        })
    }
}

impl<'w> Compressor<&'w mut [u8]> {
    /// A compressor in `workspace`, whose size is checked when a frame needs it.
    pub fn new(workspace: &'w mut [u8]) -> Self {
        Compressor::owning(workspace)
    }
}

/// The history before a frame.
#[derive(Clone, Copy)]
enum FrameHistory<'a> {
    Nothing,
    Dictionary(&'a Dictionary<'a>),
    Prepared(&'a EncoderDictionary<'a>),
}

impl FrameHistory<'_> {
    /// The identifier of the dictionary, or 0.
    fn id(self) -> u32 {
        match self {
            FrameHistory::Nothing => 0,
            FrameHistory::Dictionary(dictionary) => dictionary.id(),
            FrameHistory::Prepared(prepared) => prepared.dictionary.id(),
        }
    }

    /// At least as many bytes as the content of the dictionary has.
    fn size(self) -> usize {
        match self {
            FrameHistory::Nothing => 0,
            FrameHistory::Dictionary(dictionary) => dictionary.size(),
            FrameHistory::Prepared(prepared) => prepared.content.len(),
        }
    }
}

impl<W: WorkspaceMemory> Compressor<W> {
    /// A compressor that owns its workspace: a [`Workspace`](crate::Workspace) or, with the feature
    /// `alloc`, a `Vec<u8>` or `Box<[u8]>`. Its size is checked when a frame needs it.
    pub fn owning(workspace: W) -> Self {
        Compressor {
            workspace,
            layout: None,
            next_index: 1,
            kept: None,
        }
    }

    /// Compresses `src` to one frame in `dst` and returns its length; see [`compress`].
    ///
    /// # Errors
    ///
    /// As [`compress`]. The compressor can be used on after an error.
    pub fn compress(
        &mut self,
        dst: &mut [u8],
        src: &[u8],
        params: &Params,
    ) -> Result<usize, Error> {
        self.run(dst, src, params, FrameHistory::Nothing)
    }

    /// As [`compress`](Self::compress), after the content of a dictionary. The frame is the same as
    /// that of an [`Encoder`](crate::Encoder) which is given all at once, but where dictionary and
    /// window together are too large for the memory.
    ///
    /// # Errors
    ///
    /// [`Error::DstSizeTooSmall`] if the frame is larger than `dst`. [`Error::WorkspaceTooSmall`]
    /// if the workspace is smaller than [`dictionary_workspace_size`] says.
    /// [`Error::DictionaryCorrupted`] if the tables of the dictionary are not valid.
    pub fn compress_with_dictionary(
        &mut self,
        dst: &mut [u8],
        src: &[u8],
        params: &Params,
        dictionary: &Dictionary<'_>,
    ) -> Result<usize, Error> {
        self.run(dst, src, params, FrameHistory::Dictionary(dictionary))
    }

    /// As [`compress_with_dictionary`](Self::compress_with_dictionary), with a prepared dictionary
    /// and the parameters that it was prepared for.
    ///
    /// # Errors
    ///
    /// [`Error::DstSizeTooSmall`]; [`Error::WorkspaceTooSmall`] if the workspace is smaller than
    /// [`dictionary_workspace_size`] says for [`EncoderDictionary::content_size`].
    pub fn compress_with_prepared(
        &mut self,
        dst: &mut [u8],
        src: &[u8],
        dictionary: &EncoderDictionary<'_>,
    ) -> Result<usize, Error> {
        self.run(
            dst,
            src,
            dictionary.params(),
            FrameHistory::Prepared(dictionary),
        )
    }

    /// Lets the next frame begin at this index, as after many frames.
    #[cfg(all(test, feature = "decompress"))]
    pub(super) fn skip_to(&mut self, index: u32) {
        assert!(self.next_index != 0 && self.next_index <= index);
        self.next_index = index;
    }

    /// Tables of other places or sizes hold anything. Apart, for a smaller frame of the caller on
    /// the stack.
    #[inline(never)]
    fn lay_out(&mut self, params: &Params) {
        let layout = Some(TableLayout::of(params));
        if self.layout != layout {
            (self.layout, self.next_index) = (layout, 0);
        }
    }

    // Into its callers, whose frames lie above all that finds and writes blocks, too.
    #[inline(always)]
    fn run(
        &mut self,
        dst: &mut [u8],
        src: &[u8],
        params: &Params,
        before: FrameHistory<'_>,
    ) -> Result<usize, Error> {
        params.check()?;
        self.lay_out(params);
        let rooms = CompressorRegions::of(self.workspace.bytes(), params, before, src.len());
        let CompressorRegions { parts, joined } = rooms.inspect_err(|_| self.layout = None)?;
        let kept = self.kept.insert(BlockEncoderState::new(params));
        let parts = &mut BlockEncoder::over(parts, kept);
        if self.next_index == 0 {
            parts.clear(params)?;
            self.next_index = 1;
        }
        // The tables hold anything if this ends early.
        let index = core::mem::take(&mut self.next_index);
        let (history, joined) = begin(parts, index, params, (before, src), joined)?;
        let source = FrameSource {
            src,
            joined,
            history,
            dictionary_id: before.id(),
        };
        let result = source.write_frame(parts, dst, params);
        if result != Err(Error::Inconsistent) {
            self.next_index = self.kept.as_ref().map_or(0, BlockEncoderState::next_index);
        }
        result
    }
}

/// Begins a frame of content `src` at this index. Returns the length of the used part of a
/// dictionary, and that part followed by the beginning of `src`.
#[inline(never)]
fn begin<'m>(
    parts: &mut BlockEncoder<'_>,
    index: u32,
    params: &Params,
    (before, src): (FrameHistory<'_>, &[u8]),
    joined: &'m mut [u8],
) -> Result<(usize, &'m [u8]), Error> {
    let content = match before {
        FrameHistory::Prepared(prepared) => prepared.content,
        FrameHistory::Dictionary(dictionary) => {
            parts.start_frame(index, params)?;
            parts.load(dictionary, history_max(params))?
        }
        FrameHistory::Nothing => {
            parts.start_frame(index, params)?;
            return Ok((0, &[]));
        }
    };
    let (history, room) = joined.checked_split_mut(content.len())?;
    history.checked_copy(content)?;
    match before {
        FrameHistory::Prepared(prepared) => parts.start_from(&prepared.start, history, index)?,
        _ => parts.insert_history(history, params)?,
    }
    let behind = joined_size(params, content.len(), src.len());
    let room = room.checked_mut(..behind)?;
    room.checked_copy(src.checked(..behind)?)?;
    Ok((content.len(), joined.checked(..content.len() + behind)?))
}

/// The content of a frame.
pub(crate) struct FrameSource<'a> {
    src: &'a [u8],
    /// The end of a dictionary's content, and after it the beginning of this content, as far as it
    /// is found there.
    joined: &'a [u8],
    /// The length of the former, 0 without a dictionary.
    history: usize,
    dictionary_id: u32,
}

impl<'a> FrameSource<'a> {
    /// Content without a dictionary.
    #[cfg(feature = "steps")]
    pub(crate) fn whole(src: &'a [u8]) -> Self {
        FrameSource {
            src,
            joined: &[],
            history: 0,
            dictionary_id: 0,
        }
    }

    #[inline(never)]
    fn write_frame(
        &self,
        parts: &mut BlockEncoder<'_>,
        dst: &mut [u8],
        params: &Params,
    ) -> Result<usize, Error> {
        let mut at = self.write_header(dst, params)?;
        let mut start = 0;
        loop {
            let room = dst.get_mut(at..).ok_or(Error::DstSizeTooSmall)?;
            let piece = self.piece(start, params)?;
            let from = piece.start;
            let (reached, bytes) = parts.write_block(room, &piece, params)?;
            at += bytes;
            start += reached - from;
            if start == self.src.len() {
                break;
            }
        }
        if params.checksum {
            at += self.write_checksum(dst.get_mut(at..))?;
        }
        Ok(at)
    }

    /// The block that begins at `start`.
    #[inline(always)]
    fn piece(&self, start: usize, params: &Params) -> Checked<BlockSource<'_>> {
        let size = self.src.len();
        let end = size.min(start + params.block_size());
        let window = 1 << params.window_log;
        let behind = self.joined.len() - self.history;
        let (data, before) = if self.history > 0 && end <= behind {
            (self.joined.checked(..self.history + end)?, self.history)
        } else {
            (self.src, 0)
        };
        // A dictionary is in reach as a whole while the content is no longer than the window.
        let low = if before > 0 && end <= window {
            0
        } else {
            (before + start).saturating_sub(window)
        };
        Ok(BlockSource {
            data: data.checked(low..)?,
            low: (low as u64).wrapping_sub(before as u64),
            start: before + start - low,
            end: before + end - low,
            first: start == 0,
            last: end == size,
        })
    }

    #[inline(never)]
    pub(crate) fn write_header(&self, dst: &mut [u8], params: &Params) -> Result<usize, Error> {
        let id = self.dictionary_id;
        let fields = HeaderFields {
            window_log: params.window_log,
            content_size: params.content_size.then_some(self.src.len() as u64),
            checksum: params.checksum,
            dictionary_id: if params.dictionary_id { id } else { 0 },
        };
        let (header, bytes) = fields.emit();
        let place = dst.get_mut(..bytes).ok_or(Error::DstSizeTooSmall)?;
        place.copy_from_slice(&header[..bytes]);
        Ok(bytes)
    }

    #[inline(never)]
    pub(crate) fn write_checksum(&self, dst: Option<&mut [u8]>) -> Result<usize, Error> {
        let sum = xxhash::xxh64(self.src, 0) as u32;
        let place = dst.and_then(|dst| dst.first_chunk_mut());
        *place.ok_or(Error::DstSizeTooSmall)? = sum.to_le_bytes();
        Ok(4)
    }
}
