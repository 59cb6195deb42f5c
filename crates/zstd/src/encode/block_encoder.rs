//! Divides the workspace into regions and encodes one block.

use super::block::{self, BlockChoice, BlockContent, Entropy};
use super::division::{BlockPart, Division, DivisionProgress};
use super::finder::index::SearchBlock;
use super::finder::{self, Finder};
use super::levels::{DENSE_BITS_MIN, GAIN_LOG, SEARCHED_MIN, SHORT_LOG_MAX};
use super::params::{Params, Strategy};
use super::sample::{has_many_zeros, literal_bits};
use super::store::{SequenceMark, SequenceStore, StoreLengths};
use crate::checked::{Checked, CheckedSlice};
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
    fn of(memory: &'m mut [u8], params: &Params) -> Checked<Self> {
        let rest = memory.len() - Finder::bytes(params);
        let (rest, finder) = memory.checked_split_mut(rest)?;
        let (entropy, rest) = rest.checked_split_mut(Entropy::BYTES)?;
        let division = Division::bytes(params.division_chunks());
        let (division, store) = rest.checked_split_mut(division)?;
        Ok(Regions {
            entropy,
            division,
            store,
            finder,
        })
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
    pub(crate) fn clear(&mut self, params: &Params) -> Checked<()> {
        self.finder(params)?.clear();
        Ok(())
    }

    fn finder(&mut self, params: &Params) -> Checked<Finder<'_>> {
        let memory = Regions::of(self.memory, params)?.finder;
        Finder::over(memory, &mut self.kept.finder)
    }

    fn entropy(&mut self) -> Checked<Entropy<'_>> {
        Entropy::over(self.memory, &mut self.kept.entropy)
    }

    /// Begins a frame whose first byte has this index.
    pub(crate) fn start_frame(&mut self, index: u32, params: &Params) -> Checked<()> {
        self.entropy()?.start_frame();
        self.finder(params)?.start_frame();
        let kept = &mut *self.kept;
        kept.division = DivisionProgress::default();
        kept.min_match = 0;
        kept.repeat = REPEAT_OFFSETS;
        (kept.origin, kept.end_index) = (index, index);
        Ok(())
    }

    /// Loads the tables of a dictionary for the frame that was started. Returns the used part of
    /// its content, its end of at most `history_max` bytes, for
    /// [`insert_history`](Self::insert_history).
    pub(crate) fn load<'d>(
        &mut self,
        dictionary: &Dictionary<'d>,
        history_max: usize,
    ) -> Result<&'d [u8], Error> {
        let (content, repeat) = dictionary.load_into(&mut self.entropy()?)?;
        self.kept.repeat = repeat;
        Ok(&content[content.len() - content.len().min(history_max)..])
    }

    /// Begins a frame after a prepared dictionary; `data` is a copy of the used part of its
    /// content. If it enters the tables here, its first byte has this index.
    pub(super) fn start_from(
        &mut self,
        prepared: &PreparedStart<'_>,
        data: &[u8],
        index: u32,
    ) -> Checked<()> {
        let params = &prepared.params;
        let copied = Finder::copied_bytes(params);
        if prepared.has_tables && copied > 0 {
            let tables = prepared.memory.len() - Finder::bytes(params);
            let tables = prepared.memory.checked(tables..)?.checked(..copied)?;
            let finder = Regions::of(self.memory, params)?.finder;
            finder.checked_mut(..copied)?.checked_copy(tables)?;
            self.kept.clone_from(&prepared.kept);
        } else {
            self.start_frame(index, params)?;
            self.insert_history(data, params)?;
            self.kept.entropy.clone_from(&prepared.kept.entropy);
            self.kept.repeat = prepared.kept.repeat;
        }
        self.kept.min_match = 0;
        let tables = prepared.memory.checked(Entropy::FIRST)?;
        self.memory
            .checked_mut(Entropy::FIRST)?
            .checked_copy(tables)
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
            let reached = self.find(piece, params)?;
            self.divide(SequenceMark::default(), reached - piece.start, params)?;
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
        let regions = Regions::of(self.memory, params)?;
        let mut division = Division::over(
            regions.division,
            params.division_chunks(),
            &mut kept.division,
        )?;
        let Some(part) = division.part()? else {
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
        let (literals, reversed) = store.between(part.from, part.to)?;
        let content = BlockContent {
            literals,
            reversed,
            counts: division.counts()?,
        };
        let source = piece.data.checked(piece.start..reached)?;
        let mut entropy = Entropy::over(regions.entropy, &mut kept.entropy)?;
        let (bytes, kind) = entropy.write_block(out, source, content, choice)?;
        division.advance();
        if kind != COMPRESSED {
            self.leave_out(part, params)?;
        }
        if part.last {
            self.kept.repeat = self.kept.repeat_after;
        }
        Ok((reached, bytes))
    }

    /// Divides the part after `from` of the block of `length` bytes that is in the store.
    fn divide(&mut self, from: SequenceMark, length: usize, params: &Params) -> Checked<()> {
        let kept = &mut *self.kept;
        let regions = Regions::of(self.memory, params)?;
        let store = SequenceStore::filled(regions.store, kept.ends);
        let scratch = Entropy::scratch(regions.entropy)?;
        Division::over(
            regions.division,
            params.division_chunks(),
            &mut kept.division,
        )?
        .begin(
            &store,
            from,
            length,
            scratch,
            !params.strategy.stores_literals(),
        )
    }

    /// A decoder does not see the sequences of a part: those after it that name a repeat offset are
    /// renamed.
    #[cold]
    #[inline(never)]
    fn leave_out(&mut self, part: BlockPart, params: &Params) -> Checked<()> {
        if part.from.sequences == part.to.sequences {
            return Ok(());
        }
        let (from, to) = (part.from.sequences, part.to.sequences);
        let kept = &mut *self.kept;
        let regions = Regions::of(self.memory, params)?;
        let mut store = SequenceStore::filled(regions.store, kept.ends);
        let mut sequences = store.sequences()?;
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
        })?;
        kept.repeat_after = known;
        if !part.last {
            let division = Division::over(
                regions.division,
                params.division_chunks(),
                &mut kept.division,
            )?;
            let length = division.length()?;
            self.divide(part.to, length, params)?;
        }
        Ok(())
    }

    /// Writes the content of one block without a header. `None` if it is to be stored.
    #[inline(never)]
    pub(crate) fn write_bare_block(
        &mut self,
        out: &mut [u8],
        piece: &BlockSource<'_>,
        params: &Params,
    ) -> Checked<Option<usize>> {
        let reached = self.find(piece, params)?;
        let store_literals = params.strategy.stores_literals();
        let choice = BlockChoice {
            last: false,
            rle: false,
            store_literals,
            gain_log: GAIN_LOG,
        };
        let size = piece.end - piece.start;
        if reached != piece.end {
            return Ok(None);
        }
        let kept = &mut *self.kept;
        let regions = Regions::of(self.memory, params)?;
        let store = SequenceStore::filled(regions.store, kept.ends);
        let mut entropy = Entropy::over(regions.entropy, &mut kept.entropy)?;
        let mut progress = DivisionProgress::default();
        let mut division =
            Division::over(regions.division, params.division_chunks(), &mut progress)?;
        division.begin_whole(&store, size, entropy.counts, !store_literals)?;
        let content = BlockContent {
            literals: store.literals()?,
            reversed: store.reversed()?,
            counts: division.counts()?,
        };
        let written = entropy.write_bare_block(out, size, content, choice);
        if written.is_some() {
            kept.repeat = kept.repeat_after;
        }
        Ok(written)
    }

    /// Fills the store. Returns where the block ends.
    fn find(&mut self, piece: &BlockSource<'_>, params: &Params) -> Checked<usize> {
        let BlockSource {
            data, start, end, ..
        } = *piece;
        let block = self.place(piece, params)?;
        let min_match = self.settle(params, data.checked(..end)?, start > 0)?;
        let kept = &mut *self.kept;
        let regions = Regions::of(self.memory, params)?;
        let mut store = SequenceStore::new(regions.store);
        (kept.followed, kept.repeat_after) = (0, kept.repeat);
        let mut anchor = start;
        let mut reached = end;
        if end - start >= SEARCHED_MIN {
            let (tables, repeat) = (regions.finder, &mut kept.repeat_after);
            let finder = &mut kept.finder;
            anchor = finder::find(tables, finder, (&block, min_match), repeat, &mut store)?;
            if store.is_full(end - anchor) {
                reached = anchor;
            }
        }
        store.push_last_literals(data.checked(anchor..reached)?)?;
        kept.ends = store.ends();
        Ok(reached)
    }

    /// Begins the frame with a history: `data`, whose first byte has the index that the frame was
    /// started with.
    pub(crate) fn insert_history(&mut self, data: &[u8], params: &Params) -> Checked<()> {
        let piece = BlockSource {
            data,
            low: 0,
            start: 0,
            end: data.len(),
            first: true,
            last: false,
        };
        let block = self.place(&piece, params)?;
        let min_match = self.settle(params, data, true)?;
        self.finder(params)?.insert(&block, min_match)?;
        // The frame's first byte comes next.
        self.kept.origin = self.kept.origin.wrapping_add(data.len() as u32);
        Ok(())
    }

    /// The shortest match of this frame.
    fn settle(&mut self, params: &Params, data: &[u8], history: bool) -> Checked<u8> {
        if self.kept.min_match == 0 {
            self.kept.min_match = match params.strategy.min_match() {
                Some(min_match) => min_match,
                None => self.suitable_min_match(params, data, history)?,
            };
        }
        Ok(self.kept.min_match)
    }

    /// The shortest match that suits a sample of the first block. Where there is a history, the
    /// sample decides nothing: the tables may hold entries of another frame.
    #[inline(never)]
    fn suitable_min_match(&mut self, params: &Params, data: &[u8], history: bool) -> Checked<u8> {
        let scratch = Entropy::scratch(self.memory)?.first_chunk_mut();
        let zeros_tell = matches!(params.strategy, Strategy::DoubleFast(_));
        let is_dense = scratch.filter(|_| !history).and_then(|counts| {
            let bits = literal_bits(data, counts)?;
            Some(bits >= DENSE_BITS_MIN || zeros_tell && has_many_zeros(data, counts))
        });
        Ok(params.strategy.min_match_for(is_dense, params.window_log))
    }

    /// The block with its indexes, which are lowered if they have become large. Out of line, for a
    /// smaller frame of the caller on the stack, above all that finds.
    #[inline(never)]
    fn place<'d>(&mut self, piece: &BlockSource<'d>, params: &Params) -> Checked<SearchBlock<'d>> {
        let mut base = self.kept.origin.wrapping_add(piece.low as u32);
        // Where positions are sorted, one decision holds for all blocks that these serve.
        let end = piece.end.max(1 << params.window_log) as u64;
        if u64::from(base) + end > u64::from(self.kept.finder.index_max()) {
            base = self.reduce(base, params)?;
        }
        self.kept.end_index = base + piece.end as u32;
        Ok(SearchBlock {
            data: piece.data,
            start: piece.start,
            end: piece.end,
            base,
            window: 1 << params.window_log,
        })
    }

    /// Lowers all indexes. Returns that which was `base`.
    #[cold]
    #[inline(never)]
    fn reduce(&mut self, base: u32, params: &Params) -> Checked<u32> {
        // The cell of an index in a chain is its remainder, which stays.
        let by = (base - 1) & !(params.strategy.chain_cells() - 1);
        self.finder(params)?.reduce(by)?;
        self.kept.origin = self.kept.origin.wrapping_sub(by);
        Ok(base - by)
    }
}

/// Memory and numbers that contradict each other, as after another thread's write. Without the
/// checks of a development build, as in a kernel: sums wrap, and no debug assertion fails first.
#[cfg(all(test, feature = "no-panic", not(debug_assertions)))]
mod tests {
    use super::*;
    use crate::encode::params::Strategy;
    use std::vec;
    use std::vec::Vec;

    const LEVELS: core::ops::RangeInclusive<i32> = -1..=22;
    const SIZE: usize = 20_000;

    /// Words of few letters: matches, and parts that differ.
    fn content(mut seed: u32) -> Vec<u8> {
        let random = |i: usize| {
            seed = seed.wrapping_mul(0x19660d).wrapping_add(0x3c6ef35f);
            (seed >> 24) as u8 % (2 + (i / 5_000) as u8 * 9) + b'a'
        };
        (0..SIZE).map(random).collect()
    }

    fn piece(data: &[u8]) -> BlockSource<'_> {
        BlockSource {
            data,
            low: 0,
            start: 0,
            end: data.len(),
            first: true,
            last: true,
        }
    }

    fn memory(params: &Params) -> Vec<u8> {
        vec![0; BlockEncoder::bytes(params, store_bytes(params))]
    }

    /// The first block of a frame, which `harm` meets after its search.
    fn write(
        params: &Params,
        kept: &mut BlockEncoderState,
        data: &[u8],
        harm: impl FnOnce(&mut [u8]),
    ) -> Result<(usize, usize), Error> {
        let (mut memory, piece) = (memory(params), piece(data));
        let mut parts = BlockEncoder::over(&mut memory, kept);
        parts.clear(params)?;
        parts.start_frame(1, params)?;
        let reached = parts.find(&piece, params)?;
        parts.divide(SequenceMark::default(), reached, params)?;
        harm(parts.memory);
        let mut out = vec![0; 2 * SIZE];
        loop {
            let (reached, bytes) = parts.write_block(&mut out, &piece, params)?;
            if bytes == 0 || parts.kept.division.is_over() {
                return Ok((reached, bytes));
            }
        }
    }

    #[test]
    fn tables_that_are_too_small_are_an_error() {
        let data = content(1);
        for level in LEVELS {
            let params = Params::for_level(level, Some(SIZE as u64));
            let fits = write(&params, &mut BlockEncoderState::new(&params), &data, |_| {});
            assert!(fits.is_ok(), "{level}");
            let mut small = params;
            match &mut small.strategy {
                Strategy::Fast(fast) => fast.hash_log -= 1,
                Strategy::DoubleFast(double) => double.long_hash_log -= 1,
                Strategy::Lazy(lazy) => lazy.hash_log -= 1,
                Strategy::LazyDivided(divided) => divided.lazy.hash_log -= 1,
                Strategy::Optimal(optimal) => optimal.chain_log -= 1,
            }
            // The numbers are those of the larger tables.
            if Finder::bytes(&small) < Finder::bytes(&params) {
                let found = write(&small, &mut BlockEncoderState::new(&params), &data, |_| {});
                assert_eq!(found, Err(Error::Inconsistent), "{level}");
            }
        }
    }

    /// Before the search, after it, and between the parts of a plan.
    #[test]
    fn overwritten_memory_is_an_error_or_a_block() {
        let mut errors = Vec::new();
        for level in LEVELS {
            let params = Params::for_level(level, Some(SIZE as u64));
            let mut of_level = 0;
            let mut note = |found: &Result<(usize, usize), Error>| {
                of_level += usize::from(*found == Err(Error::Inconsistent));
                let is_full = *found == Err(Error::DstSizeTooSmall);
                assert!(is_full || matches!(found, Ok(_) | Err(Error::Inconsistent)));
            };
            for seed in 1..=3_u32 {
                let data = content(seed);
                let mut state = seed;
                let mut random = || {
                    state = state.wrapping_mul(0x19660d).wrapping_add(0x3c6ef35f);
                    (state >> 24) as u8
                };
                let mut kept = BlockEncoderState::new(&params);
                note(&write(&params, &mut kept, &data, |memory| {
                    let from = memory.len() / 256 * usize::from(random()) / 2;
                    memory[from..].fill_with(|| random() | (seed % 2) as u8 * 0xff);
                }));
                let mut memory = memory(&params);
                memory.fill_with(&mut random);
                let mut kept = BlockEncoderState::new(&params);
                let mut parts = BlockEncoder::over(&mut memory, &mut kept);
                let mut out = vec![0; 2 * SIZE];
                let mut start = 0;
                while start < SIZE {
                    let block = BlockSource {
                        start,
                        ..piece(&data)
                    };
                    let found = parts.write_block(&mut out, &block, &params);
                    note(&found);
                    let Ok((reached, 1..)) = found else {
                        break;
                    };
                    start = reached;
                    parts.memory.fill(random());
                }
            }
            errors.push((level, of_level));
        }
        assert!(errors.iter().all(|(_, errors)| *errors > 0), "{errors:?}");
    }
}
