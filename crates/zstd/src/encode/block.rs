//! One block: its sequences and literals in the form that takes least.

use super::division::Counts;
use crate::Error;
use crate::checked::Checked;
use crate::frame::{BLOCK_HEADER_SIZE, COMPRESSED, RAW, RLE, block_header};
use crate::huffman::{HuffmanEncoder, HuffmanScratch};
use crate::literals::{LiteralsSection, write_literals};
use crate::sequences::{SequenceTables, write_sequences};
use crate::workspace::{Carver, Scratch};

/// Fewer bytes than this are stored as they are.
const WORTH_COMPRESSING: usize = 7;

/// The content of a block.
#[derive(Clone, Copy)]
pub(crate) struct BlockContent<'a> {
    pub(crate) literals: &'a [u8],
    /// The packed sequences, the last one first.
    pub(crate) reversed: &'a [[u8; 8]],
    /// How often each literal and each code occurs.
    pub(crate) counts: &'a Counts,
}

/// The current tables, and those that may replace them with this block.
pub(crate) struct Entropy<'a> {
    pub(crate) huffman: HuffmanEncoder<'a>,
    huffman_next: HuffmanEncoder<'a>,
    pub(crate) tables: SequenceTables<'a>,
    tables_next: SequenceTables<'a>,
    huffman_scratch: HuffmanScratch<'a>,
    /// Scratch.
    pub(crate) counts: &'a mut Scratch,
    /// The current tables that lie in the second of their two places.
    second: &'a mut TableSet,
}

/// State of the tables from block to block, besides their memory.
#[derive(Clone, Default)]
pub(crate) struct EntropyState {
    /// The current tables that lie in the second of their two places.
    second: TableSet,
    /// The length of the longest code of either Huffman table, 0 where there is none.
    longest: [u8; 2],
}

impl<'a> Entropy<'a> {
    /// Bytes of workspace.
    pub(crate) const BYTES: usize = 2 * HuffmanEncoder::BYTES
        + 2 * SequenceTables::BYTES
        + HuffmanScratch::BYTES
        + size_of::<Scratch>();

    /// The bytes of the current tables, if they lie in the first of their two places.
    pub(crate) const FIRST: core::ops::Range<usize> =
        size_of::<Scratch>()..size_of::<Scratch>() + HuffmanEncoder::BYTES + SequenceTables::BYTES;

    /// All tables in `memory`, as they are.
    #[inline(always)]
    pub(crate) fn over(memory: &'a mut [u8], kept: &'a mut EntropyState) -> Checked<Self> {
        let carver = &mut Carver::over(memory);
        let in_force = kept.second;
        let [longest, longest_next] = &mut kept.longest;
        let mut entropy = Entropy {
            counts: carver.array()?,
            huffman: HuffmanEncoder::carve(carver, longest)?,
            tables: SequenceTables::carve(carver)?,
            huffman_next: HuffmanEncoder::carve(carver, longest_next)?,
            tables_next: SequenceTables::carve(carver)?,
            huffman_scratch: HuffmanScratch::carve(carver)?,
            second: &mut kept.second,
        };
        entropy.swap(in_force);
        Ok(entropy)
    }

    /// The scratch alone.
    pub(crate) fn scratch(memory: &mut [u8]) -> Checked<&mut Scratch> {
        Carver::over(memory).array()
    }

    /// Begins a frame: no table is current.
    pub(crate) fn start_frame(&mut self) {
        self.huffman.invalidate();
        self.tables.invalidate();
    }

    /// Writes the content of a compressed block. `None` if it does not fit in `out`, or if an
    /// estimate before coding exceeds `limit`. Afterwards, [`Entropy::commit`] makes the new tables
    /// current.
    fn write_compressed(
        &mut self,
        out: &mut [u8],
        limit: usize,
        content: BlockContent<'_>,
        store_literals: bool,
    ) -> Option<(usize, TableSet)> {
        let (of_literals, rest) = content.counts.split_first_chunk()?;
        let of_codes = rest.try_into().ok()?;
        let task = LiteralsSection {
            literals: content.literals,
            counts: of_literals,
            store: store_literals,
            sequences: content.reversed,
            room: limit,
        };
        let literals = write_literals(
            out,
            &task,
            &self.huffman,
            &mut self.huffman_next,
            &mut self.huffman_scratch,
        )?;
        let sequences = write_sequences(
            out.get_mut(literals.bytes..)?,
            content.reversed,
            of_codes,
            &self.tables,
            &mut self.tables_next,
            self.counts,
        )?;
        let new = TableSet {
            huffman: literals.new_table,
            literal_lengths: sequences.new_literal_lengths,
            offsets: sequences.new_offsets,
            match_lengths: sequences.new_match_lengths,
        };
        Some((literals.bytes + sequences.bytes, new))
    }

    /// Makes the new tables current, after the block was written as compressed.
    fn commit(&mut self, new: TableSet) {
        self.swap(new);
        self.second.huffman ^= new.huffman;
        self.second.literal_lengths ^= new.literal_lengths;
        self.second.offsets ^= new.offsets;
        self.second.match_lengths ^= new.match_lengths;
    }

    /// Replaces the current tables by these of the next ones.
    fn swap(&mut self, which: TableSet) {
        use core::mem::swap;
        if which.huffman {
            swap(&mut self.huffman, &mut self.huffman_next);
        }
        if which.literal_lengths {
            swap(
                &mut self.tables.literal_lengths,
                &mut self.tables_next.literal_lengths,
            );
        }
        if which.offsets {
            swap(&mut self.tables.offsets, &mut self.tables_next.offsets);
        }
        if which.match_lengths {
            swap(
                &mut self.tables.match_lengths,
                &mut self.tables_next.match_lengths,
            );
        }
    }

    /// Writes a block with its header: compressed if that is worth it, else the bytes that it
    /// stands for, `source`.
    ///
    /// Returns the number of bytes and the kind of block.
    ///
    /// # Errors
    ///
    /// [`Error::DstSizeTooSmall`]: nothing of use was written.
    pub(crate) fn write_block(
        &mut self,
        out: &mut [u8],
        source: &[u8],
        content: BlockContent<'_>,
        choice: BlockChoice,
    ) -> Result<(usize, u32), Error> {
        let n = source.len();
        if choice.rle && n > 24 && is_run(source) {
            let place = out
                .get_mut(..BLOCK_HEADER_SIZE + 1)
                .ok_or(Error::DstSizeTooSmall)?;
            let [a, b, c] = block_header(RLE, n, choice.last);
            place.copy_from_slice(&[a, b, c, source[0]]);
            return Ok((BLOCK_HEADER_SIZE + 1, RLE));
        }
        if let Some((bytes, new)) = self.write_worthwhile(out, n, content, choice) {
            self.commit(new);
            out[..BLOCK_HEADER_SIZE].copy_from_slice(&block_header(COMPRESSED, bytes, choice.last));
            return Ok((BLOCK_HEADER_SIZE + bytes, COMPRESSED));
        }
        Ok((write_raw(out, source, choice.last)?, RAW))
    }

    /// Writes the content of a block, without a header. `None` if that is not worth it.
    pub(crate) fn write_bare_block(
        &mut self,
        out: &mut [u8],
        n: usize,
        content: BlockContent<'_>,
        choice: BlockChoice,
    ) -> Option<usize> {
        let (bytes, new) = self.write_content(out, n, content, choice)?;
        self.commit(new);
        Some(bytes)
    }

    fn write_worthwhile(
        &mut self,
        out: &mut [u8],
        n: usize,
        content: BlockContent<'_>,
        choice: BlockChoice,
    ) -> Option<(usize, TableSet)> {
        self.write_content(out.get_mut(BLOCK_HEADER_SIZE..)?, n, content, choice)
    }

    fn write_content(
        &mut self,
        room: &mut [u8],
        n: usize,
        content: BlockContent<'_>,
        choice: BlockChoice,
    ) -> Option<(usize, TableSet)> {
        let gain = (n >> choice.gain_log) + 2;
        if n < WORTH_COMPRESSING || gain >= n {
            return None;
        }
        let limit = room.len().min(n - gain);
        // A few bytes more than may be used: the bit writers are quickest where eight bytes fit.
        let slack = room.len().min(limit + 8);
        let (bytes, new) =
            self.write_compressed(&mut room[..slack], limit, content, choice.store_literals)?;
        (bytes <= limit).then_some((bytes, new))
    }
}

/// Some of the four tables.
#[derive(Clone, Copy, Default)]
struct TableSet {
    huffman: bool,
    literal_lengths: bool,
    offsets: bool,
    match_lengths: bool,
}

/// The permitted forms of a block.
#[derive(Clone, Copy)]
pub(crate) struct BlockChoice {
    /// The last of its frame.
    pub(crate) last: bool,
    /// May be a run of one byte. Not so the first block: an old decoder stumbles over that.
    pub(crate) rle: bool,
    /// Literals are stored as they are.
    pub(crate) store_literals: bool,
    /// Compression must save 1/2^`gain_log` of the block, and 2 bytes.
    pub(crate) gain_log: u32,
}

/// Writes a block as it is.
pub(crate) fn write_raw(out: &mut [u8], source: &[u8], last: bool) -> Result<usize, Error> {
    let size = BLOCK_HEADER_SIZE + source.len();
    let (head, body) = out
        .get_mut(..size)
        .and_then(|out| out.split_first_chunk_mut::<BLOCK_HEADER_SIZE>())
        .ok_or(Error::DstSizeTooSmall)?;
    *head = block_header(RAW, source.len(), last);
    body.copy_from_slice(source);
    Ok(size)
}

fn is_run(source: &[u8]) -> bool {
    source.windows(2).all(|pair| pair[0] == pair[1])
}
