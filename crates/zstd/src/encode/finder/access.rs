//! Checked access of the search loops to data and tables: the safe twin of `arch/access`.
//!
//! A method has the same name and meaning there. Where it is `unsafe` there, it panics here.

#![expect(
    clippy::unnecessary_wraps,
    reason = "what panics here is an error there"
)]

use super::index::{ChainCells, RowCells};
use crate::checked::Checked;
use crate::encode::store::SequenceStore;
use crate::sequences::Sequence;
use crate::workspace::Cells;

/// Bytes, each with an index.
#[derive(Clone, Copy)]
pub(crate) struct IndexedBytes<'a> {
    data: &'a [u8],
    first: usize,
}

impl<'a> IndexedBytes<'a> {
    /// `data`, of which the first byte has index `first`.
    pub(crate) fn new(data: &'a [u8], first: u32) -> Self {
        IndexedBytes {
            data,
            first: first as usize,
        }
    }

    /// The index of the first byte.
    pub(crate) fn first(self) -> usize {
        self.first
    }

    /// The index after the last byte.
    pub(crate) fn end(self) -> usize {
        self.first + self.data.len()
    }

    /// The same bytes, each with an index that is greater by `by`.
    pub(crate) fn moved(self, by: usize) -> Self {
        IndexedBytes {
            first: self.first + by,
            ..self
        }
    }

    #[inline(always)]
    fn read<const N: usize>(self, at: usize) -> [u8; N] {
        self.data[at - self.first..][..N]
            .try_into()
            .unwrap_or([0; N])
    }

    /// The byte at `at`.
    #[inline(always)]
    pub(crate) fn byte(self, at: usize) -> u8 {
        self.data[at - self.first]
    }

    /// Four bytes at `at` as a number.
    #[inline(always)]
    pub(crate) fn read32(self, at: usize) -> u32 {
        u32::from_le_bytes(self.read(at))
    }

    /// Eight bytes at `at` as a number.
    #[inline(always)]
    pub(crate) fn read64(self, at: usize) -> u64 {
        u64::from_le_bytes(self.read(at))
    }

    /// How many bytes at `at` and at `before`, which does not lie after it, are equal, up to the
    /// end.
    #[inline(always)]
    pub(crate) fn match_length(self, at: usize, before: usize) -> usize {
        let ahead = &self.data[at - self.first..];
        let behind = &self.data[before - self.first..][..ahead.len()];
        let (ahead8, ahead_rest) = ahead.as_chunks::<8>();
        let (behind8, behind_rest) = behind.as_chunks::<8>();
        for (i, (a, b)) in ahead8.iter().zip(behind8).enumerate() {
            let differ = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
            if differ != 0 {
                return 8 * i + differ.trailing_zeros() as usize / 8;
            }
        }
        let rest = ahead_rest.iter().zip(behind_rest);
        8 * ahead8.len() + rest.take_while(|(a, b)| a == b).count()
    }

    /// The same for one who waits for it.
    #[inline(always)]
    pub(crate) fn match_length_soon(self, at: usize, before: usize) -> usize {
        self.match_length(at, before)
    }

    /// How many bytes before `at` and before `candidate`, which lies before it, are equal, down to
    /// `anchor` and to the first.
    #[inline(always)]
    pub(crate) fn count_back(self, at: usize, candidate: usize, anchor: usize) -> usize {
        let ahead = &self.data[anchor - self.first..at - self.first];
        let behind = &self.data[..candidate - self.first];
        let pairs = ahead.iter().rev().zip(behind.iter().rev());
        pairs.take_while(|(a, b)| a == b).count()
    }
}

/// `value`.
#[inline(always)]
pub(crate) fn opaque(value: usize) -> usize {
    value
}

/// `value`.
#[inline(always)]
pub(crate) fn opaque_word(value: u64) -> u64 {
    value
}

/// Four bytes that a longer match has in common, of which the last is the first after the best
/// match so far.
#[derive(Clone, Copy)]
pub(crate) struct MatchTail<'a> {
    data: &'a [u8],
    end: usize,
}

impl<'a> MatchTail<'a> {
    /// The four bytes that end at `end`.
    pub(crate) fn new(data: IndexedBytes<'a>, end: usize) -> Self {
        MatchTail {
            data: data.data,
            end: end - data.first,
        }
    }

    /// Whether the four bytes that lie `distance` before these are equal. The distance is given as
    /// its negative, which wraps.
    #[inline(always)]
    pub(crate) fn is_same(self, negative: usize) -> bool {
        let before = self.end.wrapping_add(negative);
        self.data[..before].last_chunk::<4>() == self.data[..self.end].last_chunk()
    }
}

/// A table of 2^n cells by hash.
pub(crate) struct PositionTable<'a> {
    cells: &'a mut [[u8; 4]],
}

impl<'a> PositionTable<'a> {
    /// A table of 2^(64 - `shift`) cells.
    pub(crate) fn new(cells: &'a mut [[u8; 4]], shift: u32) -> Checked<Self> {
        assert!((1..64).contains(&shift) && cells.len() as u64 == 1 << (64 - shift));
        Ok(PositionTable { cells })
    }

    /// Two tables, one of 2^(64 - `shift`) cells behind the other.
    pub(crate) fn pair(cells: &'a mut [[u8; 4]], [long, short]: [u32; 2]) -> Checked<Self> {
        assert!((1..64).contains(&long) && (1..64).contains(&short));
        assert!(cells.len() as u64 == (1 << (64 - long)) + (1 << (64 - short)));
        Ok(PositionTable { cells })
    }

    /// The value of a cell.
    #[inline(always)]
    pub(crate) fn at(&self, place: usize) -> u32 {
        self.cells.at(place)
    }

    /// Sets a cell.
    #[inline(always)]
    pub(crate) fn put(&mut self, place: usize, value: u32) {
        self.cells.put(place, value);
    }
}

/// Rows of `W` positions by hash.
pub(crate) struct TaggedRows<'a, const W: usize> {
    cells: RowCells<'a>,
    shift: u32,
}

impl<'a, const W: usize> TaggedRows<'a, W> {
    /// The rows in `cells`.
    pub(crate) fn new(cells: RowCells<'a>) -> Checked<Self> {
        let rows = cells.heads.len();
        assert!(rows.is_power_of_two() && cells.tags.len() == rows * W);
        assert!(cells.positions.len() == rows * W);
        Ok(TaggedRows {
            shift: 64 - 8 - rows.ilog2(),
            cells,
        })
    }

    /// How many positions have room.
    pub(crate) fn places(&self) -> usize {
        self.cells.tags.len()
    }

    /// The row of a hash, and its tag.
    #[inline(always)]
    pub(crate) fn slot(&self, hash: u64) -> (usize, u8) {
        let hash = hash >> self.shift;
        ((hash >> 8) as usize, hash as u8)
    }

    /// Where the newest position of a row lies.
    #[inline(always)]
    pub(crate) fn head(&self, row: usize) -> u8 {
        self.cells.heads[row]
    }

    /// Puts a position in the place of the oldest of its row.
    #[inline(always)]
    pub(crate) fn push(&mut self, row: usize, tag: u8, position: u32) {
        let head = self.cells.heads[row].wrapping_sub(1) & (W - 1) as u8;
        self.cells.heads[row] = head;
        let place = row * W + usize::from(head);
        self.cells.tags[place] = tag;
        self.cells.positions.put(place, position);
    }

    /// Puts a position in the place of the oldest of the row of a hash.
    #[inline(always)]
    pub(crate) fn insert(&mut self, hash: u64, position: u32) {
        let (row, tag) = self.slot(hash);
        self.push(row, tag, position);
    }

    /// A bit for each of the sixteen positions starting at 16 * `part` whose tag is `tag`.
    #[inline(always)]
    pub(crate) fn equal_tags(&self, row: usize, tag: u8, part: usize) -> u16 {
        let tags = &self.cells.tags[row * W + 16 * part..][..16];
        let bits = tags.iter().enumerate();
        bits.fold(0, |mask, (i, b)| mask | u16::from(*b == tag) << i)
    }

    /// The position in place `i` of a row.
    #[inline(always)]
    pub(crate) fn position(&self, row: usize, i: usize) -> u32 {
        self.cells.positions.at(row * W + i)
    }

    /// Prefetches a row.
    #[inline(always)]
    pub(crate) fn prefetch(&self, _row: usize) {}
}

/// Hash chains: for each of the last positions the one before it with the same hash, and the end of
/// each chain.
pub(crate) struct ChainLinks<'a> {
    links: &'a mut [[u8; 4]],
    ends: &'a mut [[u8; 4]],
    shift: u32,
}

impl<'a> ChainLinks<'a> {
    /// The chains of as many positions as there are `links`, a power of two, if there are any.
    pub(crate) fn new(cells: ChainCells<'a>) -> Checked<Option<Self>> {
        let ChainCells { links, ends } = cells;
        if links.is_empty() {
            return Ok(None);
        }
        assert!(links.len().is_power_of_two() && ends.len() > 1);
        assert!(ends.len().is_power_of_two());
        let shift = 64 - ends.len().ilog2();
        Ok(Some(ChainLinks { links, ends, shift }))
    }

    /// Puts a position at the end of the chain of a hash, and returns the one before it.
    #[inline(always)]
    pub(crate) fn push(&mut self, hash: u64, position: u32) -> u32 {
        let end = (hash >> self.shift) as usize;
        let before = self.ends.at(end);
        self.ends.put(end, position);
        let link = position as usize & (self.links.len() - 1);
        self.links.put(link, before);
        before
    }

    /// How many of the last positions are linked.
    #[inline(always)]
    pub(crate) fn places(&self) -> usize {
        self.links.len()
    }

    /// The position before this one in its chain.
    #[inline(always)]
    pub(crate) fn before(&self, position: usize) -> u32 {
        self.links.at(position & (self.links.len() - 1))
    }
}

/// A store for the sequences of the last bytes of the data.
pub(crate) struct Store<'s, 'a> {
    store: &'s mut SequenceStore<'a>,
}

impl<'s, 'a> Store<'s, 'a> {
    /// A store for the sequences of the `rest` last bytes of the data.
    pub(crate) fn new(store: &'s mut SequenceStore<'a>, _rest: usize) -> Checked<Self> {
        Ok(Store { store })
    }

    /// Appends a sequence: `literals` bytes from `anchor` on, then a match of `matched` bytes.
    ///
    /// The block ends where `data` ends. Returns whether the block may go on: when this is false
    /// the store is full (the sequence was taken), and the search must return, with the block
    /// ending after this match.
    #[inline(always)]
    #[must_use]
    pub(crate) fn append(
        &mut self,
        data: IndexedBytes<'_>,
        anchor: usize,
        literals: usize,
        offset_value: u32,
        matched: usize,
    ) -> bool {
        let sequence = Sequence::new(literals as u32, offset_value, matched as u32);
        let pushed = self.store.push(data.data, anchor - data.first, sequence);
        pushed.expect("here, a wrong index panics")
    }

    /// Tells the sequence store its new ends.
    pub(crate) fn finish(self) -> Checked<()> {
        Ok(())
    }
}
