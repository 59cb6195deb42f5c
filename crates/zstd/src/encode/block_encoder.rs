//! Divides the workspace into regions and encodes one block.

use super::block::{self, BlockChoice, BlockContent, Entropy};
use super::division::{BlockPart, Division, DivisionProgress};
use super::finder::index::SearchBlock;
use super::finder::{self, Finder};
use super::levels::{DENSE_BITS_MIN, GAIN_LOG, SEARCHED_MIN, SHORT_LOG_MAX};
use super::params::Params;
use super::sample::literal_bits;
use super::store::{SequenceMark, SequenceStore, StoreLengths};
use crate::frame::COMPRESSED;
use crate::sequences::{REPEAT_OFFSETS, Sequence, offset_name, update_repeat_offsets};
use crate::{Dictionary, Error};

/// Bytes for the sequences and literals of a block.
pub(crate) fn store_bytes(params: &Params) -> usize {
    // A frame that is cut in two for want of room pays for two sets of tables, much of a short one.
    let short = params.window_log <= SHORT_LOG_MAX || params.strategy.finds_short_matches();
    SequenceStore::bytes(params.block_size(), short)
}

/// State of the parts from block to block besides their memory: numbers alone.
#[derive(Clone)]
pub(crate) struct BlockEncoderState {
    finder: finder::FinderState,
    entropy: block::EntropyState,
    /// How far the store is filled with the block at hand.
    ends: StoreLengths,
    /// How far that block is written.
    division: DivisionProgress,
    /// The shortest match that is looked for in this frame, 0 before that is known.
    min_match: u8,
    /// The last offsets, as a decoder has them after the first `followed` sequences of the block at
    /// hand.
    repeat: [u32; 3],
    followed: u32,
    /// The last offsets after the block at hand.
    repeat_after: [u32; 3],
    /// Index of the first byte of the frame, less the amount that indexes were lowered by.
    origin: u32,
    /// How far the frame's indexes reach.
    end_index: u32,
}

impl BlockEncoderState {
    /// The state before the first frame with these parameters.
    pub(crate) fn new(params: &Params) -> Self {
        BlockEncoderState {
            finder: finder::FinderState::new(params),
            entropy: block::EntropyState::default(),
            ends: StoreLengths::default(),
            division: DivisionProgress::default(),
            min_match: 0,
            repeat: REPEAT_OFFSETS,
            followed: 0,
            repeat_after: REPEAT_OFFSETS,
            origin: 1,
            end_index: 1,
        }
    }

    /// An index above all that the frame has used.
    pub(crate) fn next_index(&self) -> u32 {
        self.end_index
    }
}

/// The parts after a dictionary, as a frame begins with them.
pub(super) struct PreparedStart<'d> {
    pub(super) params: Params,
    /// Without room for sequences.
    pub(super) memory: &'d [u8],
    pub(super) kept: BlockEncoderState,
    /// Whether the content has entered the finder's tables: not if that takes less time than
    /// copying them.
    pub(super) has_tables: bool,
}

/// The parts of a workspace, in the state of a frame.
///
/// They are memory until one is needed: values carved from it lie on the stack only while in use.
pub(crate) struct BlockEncoder<'a> {
    memory: &'a mut [u8],
    kept: &'a mut BlockEncoderState,
}

/// The memory of the parts.
struct Regions<'m> {
    entropy: &'m mut [u8],
    division: &'m mut [u8],
    store: &'m mut [u8],
    finder: &'m mut [u8],
}

impl<'m> Regions<'m> {
    #[inline(always)]
    fn of(memory: &'m mut [u8], params: &Params) -> Self {
        let rest = memory.len() - Finder::bytes(params);
        let (rest, finder) = memory.split_at_mut(rest);
        let (entropy, rest) = rest.split_at_mut(Entropy::BYTES);
        let (division, store) = rest.split_at_mut(Division::bytes(params.division_chunks()));
        Regions {
            entropy,
            division,
            store,
            finder,
        }
    }
}

impl<'a> BlockEncoder<'a> {
    /// Bytes of workspace, including these for sequences and literals.
    pub(crate) fn bytes(params: &Params, store_bytes: usize) -> usize {
        Entropy::BYTES
            + Division::bytes(params.division_chunks())
            + store_bytes
            + Finder::bytes(params)
    }

    /// The parts in `memory`, which has [`bytes`](Self::bytes) for the parameters that all methods
    /// get.
    pub(crate) fn over(memory: &'a mut [u8], kept: &'a mut BlockEncoderState) -> Self {
        BlockEncoder { memory, kept }
    }

    /// The memory may have held anything: no index is known.
    pub(crate) fn clear(&mut self, params: &Params) {
        self.finder(params).clear();
    }

    fn finder(&mut self, params: &Params) -> Finder<'_> {
        let memory = Regions::of(self.memory, params).finder;
        Finder::over(memory, &mut self.kept.finder)
    }

    fn entropy(&mut self) -> Entropy<'_> {
        Entropy::over(self.memory, &mut self.kept.entropy)
    }

    /// Begins a frame whose first byte has this index.
    pub(crate) fn start_frame(&mut self, index: u32, params: &Params) {
        self.entropy().start_frame();
        self.finder(params).start_frame();
        let kept = &mut *self.kept;
        kept.division = DivisionProgress::default();
        kept.min_match = 0;
        kept.repeat = REPEAT_OFFSETS;
        (kept.origin, kept.end_index) = (index, index);
    }

    /// Loads the tables of a dictionary for the frame that was started. Returns the used part of
    /// its content, its end of at most `history_max` bytes, for
    /// [`insert_history`](Self::insert_history).
    pub(crate) fn load<'d>(
        &mut self,
        dictionary: &Dictionary<'d>,
        history_max: usize,
    ) -> Result<&'d [u8], Error> {
        let (content, repeat) = dictionary.load_into(&mut self.entropy())?;
        self.kept.repeat = repeat;
        Ok(&content[content.len() - content.len().min(history_max)..])
    }

    /// Begins a frame after a prepared dictionary; `data` is a copy of the used part of its
    /// content. If it enters the tables here, its first byte has this index.
    pub(super) fn start_from(&mut self, prepared: &PreparedStart<'_>, data: &[u8], index: u32) {
        let params = &prepared.params;
        let copied = Finder::copied_bytes(params);
        if prepared.has_tables && copied > 0 {
            let tables = &prepared.memory[prepared.memory.len() - Finder::bytes(params)..];
            let regions = Regions::of(self.memory, params);
            regions.finder[..copied].copy_from_slice(&tables[..copied]);
            self.kept.clone_from(&prepared.kept);
        } else {
            self.start_frame(index, params);
            self.insert_history(data, params);
            self.kept.entropy.clone_from(&prepared.kept.entropy);
            self.kept.repeat = prepared.kept.repeat;
        }
        self.kept.min_match = 0;
        self.memory[Entropy::FIRST].copy_from_slice(&prepared.memory[Entropy::FIRST]);
    }
}

/// A block of a frame, with the history that its matches may refer to.
pub(crate) struct BlockSource<'a> {
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

impl BlockEncoder<'_> {
    /// Writes one block. Returns where it ended in the data, which is before `end` if it had too
    /// many sequences, and the number of bytes that were written.
    pub(crate) fn write_block(
        &mut self,
        out: &mut [u8],
        piece: &BlockSource<'_>,
        params: &Params,
    ) -> Result<(usize, usize), Error> {
        if self.kept.division.is_over() {
            let reached = self.find(piece, params);
            self.divide(SequenceMark::default(), reached - piece.start, params);
        }
        self.write_part(out, piece, params)
    }

    /// Writes the part that is next, as a block. It has a stack of its own, which no finder lies
    /// on.
    #[inline(never)]
    fn write_part(
        &mut self,
        out: &mut [u8],
        piece: &BlockSource<'_>,
        params: &Params,
    ) -> Result<(usize, usize), Error> {
        let kept = &mut *self.kept;
        let regions = Regions::of(self.memory, params);
        let mut division = Division::over(
            regions.division,
            params.division_chunks(),
            &mut kept.division,
        );
        let Some(part) = division.part() else {
            return Ok((piece.start, 0));
        };
        let reached = piece.start + part.to.bytes - part.from.bytes;
        let choice = BlockChoice {
            last: piece.last && reached == piece.end,
            rle: !piece.first,
            store_literals: params.strategy.stores_literals(),
            gain_log: GAIN_LOG,
        };
        let store = SequenceStore::filled(regions.store, kept.ends);
        let (literals, reversed) = store.between(part.from, part.to);
        let content = BlockContent {
            literals,
            reversed,
            counts: division.counts(),
        };
        let source = &piece.data[piece.start..reached];
        let mut entropy = Entropy::over(regions.entropy, &mut kept.entropy);
        let (bytes, kind) = entropy.write_block(out, source, content, choice)?;
        division.advance();
        if kind != COMPRESSED {
            self.leave_out(part, params);
        }
        if part.last {
            self.kept.repeat = self.kept.repeat_after;
        }
        Ok((reached, bytes))
    }

    /// Divides the part after `from` of the block of `length` bytes that is in the store.
    fn divide(&mut self, from: SequenceMark, length: usize, params: &Params) {
        let kept = &mut *self.kept;
        let regions = Regions::of(self.memory, params);
        let store = SequenceStore::filled(regions.store, kept.ends);
        let scratch = Entropy::scratch(regions.entropy);
        Division::over(
            regions.division,
            params.division_chunks(),
            &mut kept.division,
        )
        .begin(
            &store,
            from,
            length,
            scratch,
            !params.strategy.stores_literals(),
        );
    }

    /// A decoder does not see the sequences of a part: those after it that name a repeat offset are
    /// renamed.
    #[cold]
    #[inline(never)]
    fn leave_out(&mut self, part: BlockPart, params: &Params) {
        if part.from.sequences == part.to.sequences {
            return;
        }
        let (from, to) = (part.from.sequences, part.to.sequences);
        let kept = &mut *self.kept;
        let regions = Regions::of(self.memory, params);
        let mut store = SequenceStore::filled(regions.store, kept.ends);
        let mut sequences = store.sequences();
        for sequence in sequences.by_ref().take(from).skip(kept.followed as usize) {
            update_repeat_offsets(
                &mut kept.repeat,
                sequence.offset_value(),
                sequence.literal_length(),
            );
        }
        let mut found = kept.repeat;
        for sequence in sequences.take(to - from) {
            update_repeat_offsets(
                &mut found,
                sequence.offset_value(),
                sequence.literal_length(),
            );
        }
        kept.followed = to as u32;
        let mut known = kept.repeat;
        store.rename_from(to, |sequence| {
            let literals = sequence.literal_length();
            update_repeat_offsets(&mut found, sequence.offset_value(), literals);
            let value = offset_name(&known, found[0], literals);
            update_repeat_offsets(&mut known, value, literals);
            Sequence::new(literals, value, sequence.match_length())
        });
        kept.repeat_after = known;
        if !part.last {
            let division = Division::over(
                regions.division,
                params.division_chunks(),
                &mut kept.division,
            );
            let length = division.length();
            self.divide(part.to, length, params);
        }
    }

    /// Writes the content of one block without a header. `None` if it is to be stored.
    #[inline(never)]
    pub(crate) fn write_bare_block(
        &mut self,
        out: &mut [u8],
        piece: &BlockSource<'_>,
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
        let kept = &mut *self.kept;
        let regions = Regions::of(self.memory, params);
        let store = SequenceStore::filled(regions.store, kept.ends);
        let mut entropy = Entropy::over(regions.entropy, &mut kept.entropy);
        let mut progress = DivisionProgress::default();
        let mut division =
            Division::over(regions.division, params.division_chunks(), &mut progress);
        division.begin_whole(&store, size, entropy.counts, !store_literals);
        let content = BlockContent {
            literals: store.literals(),
            reversed: store.reversed(),
            counts: division.counts(),
        };
        let written = entropy.write_bare_block(out, size, content, choice);
        if written.is_some() {
            kept.repeat = kept.repeat_after;
        }
        written
    }

    /// Fills the store. Returns where the block ends.
    fn find(&mut self, piece: &BlockSource<'_>, params: &Params) -> usize {
        let BlockSource {
            data, start, end, ..
        } = *piece;
        let block = self.place(piece, params);
        let min_match = self.settle(params, &data[..end], start > 0);
        let kept = &mut *self.kept;
        let regions = Regions::of(self.memory, params);
        let mut store = SequenceStore::new(regions.store);
        (kept.followed, kept.repeat_after) = (0, kept.repeat);
        let mut anchor = start;
        let mut reached = end;
        if end - start >= SEARCHED_MIN {
            let (tables, repeat) = (regions.finder, &mut kept.repeat_after);
            let finder = &mut kept.finder;
            anchor = finder::find(tables, finder, (&block, min_match), repeat, &mut store);
            if store.is_full(end - anchor) {
                reached = anchor;
            }
        }
        store.push_last_literals(&data[anchor..reached]);
        kept.ends = store.ends();
        reached
    }

    /// Begins the frame with a history: `data`, whose first byte has the index that the frame was
    /// started with.
    pub(crate) fn insert_history(&mut self, data: &[u8], params: &Params) {
        let piece = BlockSource {
            data,
            low: 0,
            start: 0,
            end: data.len(),
            first: true,
            last: false,
        };
        let block = self.place(&piece, params);
        let min_match = self.settle(params, data, true);
        self.finder(params).insert(&block, min_match);
        // The frame's first byte comes next.
        self.kept.origin = self.kept.origin.wrapping_add(data.len() as u32);
    }

    /// The shortest match of this frame.
    fn settle(&mut self, params: &Params, data: &[u8], history: bool) -> u8 {
        if self.kept.min_match == 0 {
            let min_match = params.strategy.min_match();
            self.kept.min_match =
                min_match.unwrap_or_else(|| self.suitable_min_match(params, data, history));
        }
        self.kept.min_match
    }

    /// The shortest match that suits a sample of the first block. Where there is a history, the
    /// sample decides nothing: the tables may hold entries of another frame.
    #[inline(never)]
    fn suitable_min_match(&mut self, params: &Params, data: &[u8], history: bool) -> u8 {
        let scratch = Entropy::scratch(self.memory).first_chunk_mut();
        let bits = scratch
            .filter(|_| !history)
            .and_then(|counts| literal_bits(data, counts));
        let is_dense = bits.map(|bits| bits >= DENSE_BITS_MIN);
        params.strategy.min_match_for(is_dense, params.window_log)
    }

    /// The block with its indexes, which are lowered if they have become large. Out of line, for a
    /// smaller frame of the caller on the stack, above all that finds.
    #[inline(never)]
    fn place<'d>(&mut self, piece: &BlockSource<'d>, params: &Params) -> SearchBlock<'d> {
        let mut base = self.kept.origin.wrapping_add(piece.low as u32);
        // Where positions are sorted, one decision holds for all blocks that these serve.
        let end = piece.end.max(1 << params.window_log) as u64;
        if u64::from(base) + end > u64::from(self.kept.finder.index_max()) {
            base = self.reduce(base, params);
        }
        self.kept.end_index = base + piece.end as u32;
        SearchBlock {
            data: piece.data,
            start: piece.start,
            end: piece.end,
            base,
            window: 1 << params.window_log,
        }
    }

    /// Lowers all indexes. Returns that which was `base`.
    #[cold]
    #[inline(never)]
    fn reduce(&mut self, base: u32, params: &Params) -> u32 {
        // The cell of an index in a chain is its remainder, which stays.
        let by = (base - 1) & !(params.strategy.chain_cells() - 1);
        self.finder(params).reduce(by);
        self.kept.origin = self.kept.origin.wrapping_sub(by);
        base - by
    }
}
