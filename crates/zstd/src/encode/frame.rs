//! Whole frames in one call.

use super::block::{BlockChoice, Content, Entropy};
use super::division::{Division, Part};
use super::finder::Finder;
use super::finder::index::{Block, index_log};
use super::levels::{CLASS_SIZES, GAIN_LOG, LEVEL_DEFAULT, LEVEL_MAX, LEVEL_MIN, SEARCHED_MIN};
use super::params::{Params, Strategy};
use super::sample::kind;
use super::store::{Mark, SequenceStore};
use crate::frame::{COMPRESSED, HeaderFields};
use crate::sequences::{REPEAT_OFFSETS, Sequence, offset_name, update_repeat_offsets};
use crate::workspace::Carver;
use crate::{EncoderDictionary, Error};

/// Largest size of a frame of `size` bytes of content.
pub const fn compress_bound(size: usize) -> usize {
    // A header and a checksum, and three bytes for each block: those of a window of 1 KiB are the smallest.
    size.saturating_add((size >> 8) + 64)
}

/// Bytes of workspace that a [`Compressor`] needs for frames with these parameters, or with any that are no larger.
pub fn workspace_size(params: &Params) -> usize {
    Carver::SLACK + Parts::bytes(params, store_bytes(params))
}

pub(crate) fn store_bytes(params: &Params) -> usize {
    SequenceStore::bytes(params.block_size(), params.strategy.finds_short_matches())
}

/// Bytes of workspace that do for every level up to `level` and every content of up to `source_size` bytes (any content
/// if that is `None`), with the parameters of [`Params::for_level`].
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

/// Compresses one frame after another in the same workspace.
///
/// The workspace may hold anything at first. It is borrowed ([`Compressor::new`]) or owned ([`Compressor::owning`]). What a
/// frame is does not depend on the frames before it; yet while parameters stay the same, tables are not cleared between frames.
pub struct Compressor<W> {
    workspace: W,
    /// What the tables' places and sizes and the meaning of their cells follow from, once they hold something that is known.
    layout: Option<(Strategy, u32, usize)>,
    /// The first index that is above all in the tables.
    next_index: u32,
}

impl<'w> Compressor<&'w mut [u8]> {
    /// A compressor in `workspace`, whose size is checked when a frame needs it.
    pub fn new(workspace: &'w mut [u8]) -> Self {
        Compressor::owning(workspace)
    }
}

impl<W: Held> Compressor<W> {
    /// A compressor that owns its workspace: a [`Workspace`](crate::Workspace) or, with the feature `std`, a `Vec<u8>` or
    /// `Box<[u8]>`. Its size is checked when a frame needs it.
    pub fn owning(workspace: W) -> Self {
        Compressor {
            workspace,
            layout: None,
            next_index: 1,
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
        params.check()?;
        let layout = (
            params.strategy,
            index_log(params.window_log),
            params.block_size(),
        );
        let known = self.layout.replace(layout) == Some(layout);
        let store_bytes = store_bytes(params);
        let bytes = Parts::bytes(params, store_bytes);
        let mut carver =
            Carver::new(self.workspace.bytes(), bytes).inspect_err(|_| self.layout = None)?;
        let mut parts = Parts::carve(&mut carver, params, store_bytes);
        if !known {
            parts.finder.clear();
            self.next_index = 1;
        }
        parts.start_frame(self.next_index);
        let result = parts.write_frame(dst, src, params);
        self.next_index = parts.next_index();
        result
    }
}

mod held {
    /// Memory that nobody else changes or moves to another alignment while a compressor has it: tables keep what they
    /// hold from frame to frame. Hence nobody else can implement this.
    pub trait Held {
        /// The bytes.
        fn bytes(&mut self) -> &mut [u8];
    }

    impl Held for &mut [u8] {
        fn bytes(&mut self) -> &mut [u8] {
            self
        }
    }

    impl<const N: usize> Held for crate::Workspace<N> {
        fn bytes(&mut self) -> &mut [u8] {
            self
        }
    }

    #[cfg(feature = "std")]
    impl Held for std::vec::Vec<u8> {
        fn bytes(&mut self) -> &mut [u8] {
            self
        }
    }

    #[cfg(feature = "std")]
    impl Held for std::boxed::Box<[u8]> {
        fn bytes(&mut self) -> &mut [u8] {
            self
        }
    }
}
use held::Held;

/// The parts of a workspace, in the state of a frame.
pub(crate) struct Parts<'a> {
    pub(crate) entropy: Entropy<'a>,
    pub(crate) store: SequenceStore<'a>,
    pub(crate) finder: Finder<'a>,
    division: Division<'a>,
    /// The shortest match that is looked for in this frame, 0 before that is known.
    min_match: u8,
    /// The last offsets, as a decoder has them behind what of the block at hand was `told`.
    pub(crate) repeat: [u32; 3],
    told: u32,
    /// The last offsets behind the block at hand.
    repeat_after: [u32; 3],
    /// Index of the first byte of the frame, less what indexes were lowered by.
    origin: u32,
    /// How far the frame's indexes reach.
    end_index: u32,
}

impl<'a> Parts<'a> {
    /// Bytes of workspace, with so many of them for sequences and literals.
    pub(crate) fn bytes(params: &Params, store_bytes: usize) -> usize {
        Entropy::BYTES
            + store_bytes
            + Division::bytes(params.division_chunks())
            + Finder::bytes(params)
    }

    /// Takes the parts from a workspace, with so many bytes for sequences and literals.
    pub(crate) fn carve(carver: &mut Carver<'a>, params: &Params, store_bytes: usize) -> Self {
        Parts {
            finder: Finder::carve(carver, params),
            entropy: Entropy::carve(carver),
            store: SequenceStore::new(carver.bytes(store_bytes)),
            division: Division::carve(carver, params.division_chunks()),
            min_match: 0,
            repeat: REPEAT_OFFSETS,
            told: 0,
            repeat_after: REPEAT_OFFSETS,
            origin: 1,
            end_index: 1,
        }
    }

    /// Begins a frame whose first byte has this index.
    pub(crate) fn start_frame(&mut self, index: u32) {
        self.entropy.start_frame();
        self.finder.start_frame();
        self.division.clear();
        self.min_match = 0;
        self.repeat = REPEAT_OFFSETS;
        self.origin = index;
        self.end_index = index;
    }

    /// An index above all that the frame has used.
    pub(crate) fn next_index(&self) -> u32 {
        self.end_index
    }

    #[inline(never)]
    fn write_frame(&mut self, dst: &mut [u8], src: &[u8], params: &Params) -> Result<usize, Error> {
        let fields = HeaderFields {
            window_log: params.window_log,
            content_size: params.content_size.then_some(src.len() as u64),
            checksum: params.checksum,
            dictionary_id: 0,
        };
        let (header, mut at) = fields.emit();
        dst.get_mut(..at)
            .ok_or(Error::DstSizeTooSmall)?
            .copy_from_slice(&header[..at]);
        let mut start = 0_usize;
        loop {
            let low = start.saturating_sub(1 << params.window_log);
            let end = src.len().min(start + params.block_size());
            let piece = Piece {
                data: &src[low..],
                low: low as u64,
                start: start - low,
                end: end - low,
                first: start == 0,
                last: end == src.len(),
            };
            let room = dst.get_mut(at..).ok_or(Error::DstSizeTooSmall)?;
            let (reached, bytes) = self.write_block(room, &piece, params)?;
            at += bytes;
            start = low + reached;
            if start == src.len() {
                break;
            }
        }
        if params.checksum {
            let sum = xxhash::xxh64(src, 0) as u32;
            let place = dst.get_mut(at..at + 4).ok_or(Error::DstSizeTooSmall)?;
            place.copy_from_slice(&sum.to_le_bytes());
            at += 4;
        }
        Ok(at)
    }
}

/// A block of a frame, with the history that its matches may refer to.
pub(crate) struct Piece<'a> {
    /// History, the block, perhaps more.
    pub(crate) data: &'a [u8],
    /// Where `data` begins in the frame, modulo 2^64: history from a dictionary lies before it.
    pub(crate) low: u64,
    /// Where the block begins in `data`.
    pub(crate) start: usize,
    /// Where it ends at the latest.
    pub(crate) end: usize,
    /// The first block of its frame.
    pub(crate) first: bool,
    /// Nothing follows `end` in the frame.
    pub(crate) last: bool,
}

impl Parts<'_> {
    /// Writes one block. Returns where it ended in the data, which is before `end` if it had too many sequences, and the
    /// number of bytes that were written.
    pub(crate) fn write_block(
        &mut self,
        out: &mut [u8],
        piece: &Piece<'_>,
        params: &Params,
    ) -> Result<(usize, usize), Error> {
        let store_literals = params.strategy.stores_literals();
        if self.division.part().is_none() {
            let reached = self.find(piece, params);
            let length = reached - piece.start;
            self.divide(Mark::default(), length, store_literals);
        }
        self.write_part(out, piece, store_literals)
    }

    /// Writes the part that is next, as a block. It has a stack of its own, which no finder lies on.
    #[inline(never)]
    fn write_part(
        &mut self,
        out: &mut [u8],
        piece: &Piece<'_>,
        store_literals: bool,
    ) -> Result<(usize, usize), Error> {
        let Some(part) = self.division.part() else {
            return Ok((piece.start, 0));
        };
        let reached = piece.start + part.to.bytes - part.from.bytes;
        let choice = BlockChoice {
            last: piece.last && reached == piece.end,
            rle: !piece.first,
            store_literals,
            gain_log: GAIN_LOG,
        };
        let (literals, reversed) = self.store.between(part.from, part.to);
        let content = Content {
            literals,
            reversed,
            counts: self.division.counts(),
        };
        let source = &piece.data[piece.start..reached];
        let (bytes, kind) = self.entropy.write_block(out, source, content, choice)?;
        self.division.advance();
        if kind != COMPRESSED {
            self.leave_out(part, store_literals);
        }
        if part.last {
            self.repeat = self.repeat_after;
        }
        Ok((reached, bytes))
    }

    /// Divides what follows `from` in the block of `length` bytes that is in the store.
    fn divide(&mut self, from: Mark, length: usize, store_literals: bool) {
        let scratch = &mut *self.entropy.counts;
        self.division
            .begin(&self.store, from, length, scratch, !store_literals);
    }

    /// A decoder does not see the sequences of a part: those behind it that name a repeat offset get other names.
    #[cold]
    #[inline(never)]
    fn leave_out(&mut self, part: Part, store_literals: bool) {
        if part.from.sequences == part.to.sequences {
            return;
        }
        let (from, to) = (part.from.sequences, part.to.sequences);
        let mut sequences = self.store.sequences();
        for sequence in sequences.by_ref().take(from).skip(self.told as usize) {
            update_repeat_offsets(
                &mut self.repeat,
                sequence.offset_value(),
                sequence.literal_length(),
            );
        }
        let mut found = self.repeat;
        for sequence in sequences.take(to - from) {
            update_repeat_offsets(
                &mut found,
                sequence.offset_value(),
                sequence.literal_length(),
            );
        }
        self.told = to as u32;
        let mut known = self.repeat;
        self.store.rename_from(to, |sequence| {
            let literals = sequence.literal_length();
            update_repeat_offsets(&mut found, sequence.offset_value(), literals);
            let value = offset_name(&known, found[0], literals);
            update_repeat_offsets(&mut known, value, literals);
            Sequence::new(literals, value, sequence.match_length())
        });
        self.repeat_after = known;
        if !part.last {
            let length = self.division.length();
            self.divide(part.to, length, store_literals);
        }
    }

    /// Writes the content of one block without a header. `None` if it is to be stored.
    pub(crate) fn write_bare_block(
        &mut self,
        out: &mut [u8],
        piece: &Piece<'_>,
        params: &Params,
    ) -> Option<usize> {
        let reached = self.find(piece, params);
        let store_literals = params.strategy.stores_literals();
        let choice = BlockChoice {
            last: false,
            rle: false,
            store_literals,
            gain_log: GAIN_LOG,
        };
        let size = piece.end - piece.start;
        if reached != piece.end {
            return None;
        }
        self.division
            .begin_whole(&self.store, size, self.entropy.counts, !store_literals);
        let content = Content {
            literals: self.store.literals(),
            reversed: self.store.reversed(),
            counts: self.division.counts(),
        };
        let written = self.entropy.write_bare_block(out, size, content, choice);
        self.division.clear();
        if written.is_some() {
            self.repeat = self.repeat_after;
        }
        written
    }

    /// Fills the store. Returns where the block ends.
    fn find(&mut self, piece: &Piece<'_>, params: &Params) -> usize {
        let Piece {
            data, start, end, ..
        } = *piece;
        let min_match = self.settle(params, &data[..end], start > 0);
        let block = self.place(piece, params);
        self.store.clear();
        (self.told, self.repeat_after) = (0, self.repeat);
        let mut anchor = start;
        if end - start >= SEARCHED_MIN {
            let repeat = &mut self.repeat_after;
            anchor = self.finder.find(&block, min_match, repeat, &mut self.store);
            if self.store.is_full(end - anchor) {
                return anchor;
            }
        }
        self.store.push_last_literals(&data[anchor..end]);
        end
    }

    /// Begins the frame with a history: `data`, whose first byte has the index that the frame was started with.
    pub(crate) fn insert_history(&mut self, data: &[u8], params: &Params) {
        let piece = Piece {
            data,
            low: 0,
            start: 0,
            end: data.len(),
            first: true,
            last: false,
        };
        let min_match = self.settle(params, data, true);
        let block = self.place(&piece, params);
        self.finder.insert(&block, min_match);
        // The frame's first byte comes behind.
        self.origin = self.origin.wrapping_add(data.len() as u32);
    }

    /// The shortest match of this frame. If a sample of the first block decides, it decides nothing where there is a history:
    /// the tables may hold what was entered for another frame.
    fn settle(&mut self, params: &Params, data: &[u8], history: bool) -> u8 {
        if self.min_match == 0 {
            self.min_match = params.strategy.min_match().unwrap_or_else(|| {
                let seen = if history {
                    None
                } else {
                    kind(data, self.entropy.counts)
                };
                params.strategy.min_match_for(seen)
            });
        }
        self.min_match
    }

    /// Begins a frame with a history that is known to another finder and to the entropy tables.
    pub(crate) fn start_from(&mut self, dictionary: &EncoderDictionary<'_>, data: &[u8]) {
        let copied = dictionary.has_tables && self.finder.copy_from(&dictionary.parts.finder);
        if copied {
            self.end_index = dictionary.parts.end_index;
            self.origin = dictionary.parts.origin;
        } else {
            self.start_frame(self.next_index());
            self.insert_history(data, &dictionary.params);
        }
        self.division.clear();
        self.min_match = 0;
        self.entropy.copy_from(&dictionary.parts.entropy);
        self.repeat = dictionary.parts.repeat;
    }

    /// The block with its indexes, which are lowered if they have become large.
    fn place<'d>(&mut self, piece: &Piece<'d>, params: &Params) -> Block<'d> {
        let mut base = self.origin.wrapping_add(piece.low as u32);
        if u64::from(base) + piece.end as u64 > u64::from(self.finder.index_max()) {
            let by = base - 1;
            self.finder.reduce(by);
            self.origin = self.origin.wrapping_sub(by);
            base = 1;
        }
        self.end_index = base + piece.end as u32;
        Block {
            data: piece.data,
            start: piece.start,
            end: piece.end,
            base,
            window: 1 << params.window_log,
        }
    }
}
