//! Where a finder puts the sequences of a block.

use crate::checked::{Checked, CheckedSlice};
use crate::sequences::Sequence;

/// Bytes that the copying of literals may touch beyond their end.
pub(crate) const OVERRUN: usize = 32;

/// A boundary between two sequences of a block: the numbers of sequences and bytes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SequenceMark {
    pub(crate) sequences: usize,
    pub(crate) literals: usize,
    /// Bytes of the block, of literals and of matches.
    pub(crate) bytes: usize,
}

impl SequenceMark {
    /// The mark in a word: no number reaches 2^20.
    pub(crate) fn to_bits(self) -> u64 {
        self.sequences as u64 | (self.literals as u64) << 20 | (self.bytes as u64) << 40
    }

    /// The mark of a word.
    pub(crate) fn from_bits(bits: u64) -> Self {
        let number = |shift: u32| (bits >> shift & 0xf_ffff) as usize;
        SequenceMark {
            sequences: number(0),
            literals: number(20),
            bytes: number(40),
        }
    }
}

/// The sequences and the literals of one block.
///
/// Both lie in one buffer: literals grow from its start, sequences from its end, 8 bytes each. A
/// match of 8 bytes pays for its own sequence with the literals that it saves, so that a buffer of
/// a block and a quarter or a half is full only where the matches are very many and very short. The
/// block then simply ends early: [`SequenceStore::push`] says so.
pub(crate) struct SequenceStore<'a> {
    buffer: &'a mut [u8],
    literals: usize,
    /// Where the last sequence lies; the first lies at the end of the buffer.
    sequences: usize,
    /// Whether the block ends after the last sequence.
    cut: bool,
}

/// How far a store is filled: where its literals end, and where its sequences begin.
#[derive(Clone, Copy, Default)]
pub(crate) struct StoreLengths {
    literals: u32,
    sequences: u32,
}

impl<'a> SequenceStore<'a> {
    /// Bytes of buffer for blocks of at most `block_size`, in which matches shorter than 5 bytes
    /// are sought (`short`) or not.
    pub(crate) const fn bytes(block_size: usize, short: bool) -> usize {
        block_size + block_size / if short { 2 } else { 4 } + 2 * OVERRUN
    }

    /// An empty store.
    pub(crate) fn new(buffer: &'a mut [u8]) -> Self {
        let sequences = buffer.len();
        SequenceStore {
            buffer,
            literals: 0,
            sequences,
            cut: false,
        }
    }

    /// A store that was filled before, with its ends.
    pub(crate) fn filled(buffer: &'a mut [u8], ends: StoreLengths) -> Self {
        SequenceStore {
            buffer,
            literals: ends.literals as usize,
            sequences: ends.sequences as usize,
            cut: false,
        }
    }

    /// How far it is filled.
    pub(crate) fn ends(&self) -> StoreLengths {
        StoreLengths {
            literals: self.literals as u32,
            sequences: self.sequences as u32,
        }
    }

    /// Forgets all sequences and literals.
    pub(crate) fn clear(&mut self) {
        self.literals = 0;
        self.sequences = self.buffer.len();
        self.cut = false;
    }

    /// Lets the block end after the last sequence.
    pub(crate) fn cut(&mut self) {
        self.cut = true;
    }

    /// Appends a sequence whose literals begin at `data[anchor]`.
    ///
    /// The block ends where `data` ends. Returns whether the block may go on: when this is false
    /// the store is full (the sequence was taken), and the caller must stop, with the block ending
    /// after this match.
    #[inline]
    pub(crate) fn push(&mut self, data: &[u8], anchor: usize, sequence: Sequence) -> Checked<bool> {
        let length = sequence.literal_length() as usize;
        let place = self.buffer.checked_mut(self.literals..)?;
        let place = place.checked_mut(..length)?;
        place.checked_copy(data.checked(anchor..)?.checked(..length)?)?;
        self.literals += length;
        self.sequences -= 8;
        if let Some(place) = self
            .buffer
            .get_mut(self.sequences..)
            .and_then(|tail| tail.first_chunk_mut::<8>())
        {
            *place = sequence.bits().to_ne_bytes();
        }
        let next = anchor + length + sequence.match_length() as usize;
        Ok(!self.is_full(data.len() - next))
    }

    /// Whether the block ends after the last sequence: because it was cut there, or because there
    /// may be no room for one more sequence, were all the `rest` of the block literals.
    #[inline(always)]
    pub(crate) fn is_full(&self, rest: usize) -> bool {
        self.cut || self.sequences - self.literals < rest.wrapping_add(8 + OVERRUN)
    }

    /// Appends the literals that follow the last match.
    pub(crate) fn push_last_literals(&mut self, literals: &[u8]) -> Checked<()> {
        let place = self.buffer.checked_mut(self.literals..self.sequences)?;
        place
            .checked_mut(..literals.len())?
            .checked_copy(literals)?;
        self.literals += literals.len();
        Ok(())
    }

    /// The initial state of an unchecked writer: the memory, the end of the literals, the start of
    /// the sequences, and the room beyond the need of the `rest` of the block.
    #[cfg(feature = "arch")]
    pub(crate) fn raw_parts(&mut self, rest: usize) -> (&mut [u8], usize, usize, isize) {
        let room = self.sequences - self.literals;
        let room = room as isize - (rest + 8 + OVERRUN) as isize;
        (self.buffer, self.literals, self.sequences, room)
    }

    /// Takes the ends from such a writer.
    #[cfg(feature = "arch")]
    #[cfg_attr(
        not(feature = "no-panic"),
        expect(
            clippy::unnecessary_wraps,
            reason = "with the feature there are errors"
        )
    )]
    pub(crate) fn set_ends(&mut self, literals: usize, sequences: usize) -> Checked<()> {
        crate::checked::ensure!(literals <= sequences && sequences <= self.buffer.len());
        (self.literals, self.sequences) = (literals, sequences);
        Ok(())
    }

    /// All literals.
    pub(crate) fn literals(&self) -> Checked<&[u8]> {
        self.buffer.checked(..self.literals)
    }

    /// Number of sequences.
    pub(crate) fn len(&self) -> usize {
        (self.buffer.len() - self.sequences) / 8
    }

    /// The sequences, packed, the last one first.
    pub(crate) fn reversed(&self) -> Checked<&[[u8; 8]]> {
        Ok(self.buffer.checked(self.sequences..)?.as_chunks().0)
    }

    /// The same without the first `n` sequences.
    pub(crate) fn reversed_from(&self, n: usize) -> Checked<&[[u8; 8]]> {
        let reversed = self.reversed()?;
        reversed.checked(..reversed.len().wrapping_sub(n))
    }

    /// The literals and sequences between two marks, the last sequence first.
    pub(crate) fn between(
        &self,
        from: SequenceMark,
        to: SequenceMark,
    ) -> Checked<(&[u8], &[[u8; 8]])> {
        let reversed = self.reversed_from(from.sequences)?;
        let count = to.sequences.wrapping_sub(from.sequences);
        Ok((
            self.literals()?.checked(from.literals..to.literals)?,
            reversed.checked(reversed.len().wrapping_sub(count)..)?,
        ))
    }

    /// Replaces the names of the offsets of all sequences after the first `n`, in their order.
    pub(crate) fn rename_from(
        &mut self,
        n: usize,
        mut name: impl FnMut(Sequence) -> Sequence,
    ) -> Checked<()> {
        let sequences = self.buffer.checked_mut(self.sequences..)?;
        let sequences = sequences.as_chunks_mut::<8>().0;
        for place in sequences.iter_mut().rev().skip(n) {
            let sequence = Sequence::from_bits(u64::from_ne_bytes(*place));
            *place = name(sequence).bits().to_ne_bytes();
        }
        Ok(())
    }

    /// The sequences in their order.
    pub(crate) fn sequences(
        &self,
    ) -> Checked<impl DoubleEndedIterator<Item = Sequence> + ExactSizeIterator> {
        let sequence = |bits: &[u8; 8]| Sequence::from_bits(u64::from_ne_bytes(*bits));
        Ok(self.reversed()?.iter().rev().map(sequence))
    }
}
