//! Loading a dictionary into a decoder.

use super::Dictionary;
use crate::huffman::{self, WeightScratch};
use crate::sequences::{self, Logs, REPEAT_OFFSETS, TableKind, read_entropy_table};
use crate::workspace::{DecoderTables, DictionaryCells, cells};
use crate::{Error, fse};

/// A dictionary whose tables are built once, for any number of frames to decode.
///
/// ```
/// use zstd::{DECOMPRESS_WORKSPACE_SIZE, DecodeOptions, DecoderDictionary, Dictionary, Error};
/// # fn decode_all(bytes: &[u8], frames: &[&[u8]], dst: &mut [u8]) -> Result<(), Error> {
/// let mut workspace = vec![0; DECOMPRESS_WORKSPACE_SIZE];
/// let mut memory = vec![0; DecoderDictionary::SIZE];
/// let dictionary = DecoderDictionary::new(Dictionary::new(bytes)?, &mut memory)?;
/// let options = DecodeOptions::new().prepared(&dictionary);
/// for frame in frames {
///     options.decompress(dst, frame, &mut workspace)?;
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct DecoderDictionary<'d> {
    dictionary: Dictionary<'d>,
    loaded: Loaded<'d>,
    sequences: &'d [fse::Cell; sequences::CELLS],
    /// Only the first half of it, unless there are long codes.
    huffman: &'d [huffman::Cell; huffman::DICTIONARY_TABLE_CELLS],
}

impl<'d> DecoderDictionary<'d> {
    /// Bytes of memory.
    pub const SIZE: usize = size_of::<[fse::Cell; sequences::CELLS]>()
        + size_of::<[huffman::Cell; huffman::DICTIONARY_TABLE_CELLS]>()
        + size_of::<[fse::Cell; fse::WEIGHT_CELLS]>()
        + huffman::SYMBOLS_MAX;

    /// Builds the tables in `memory`.
    ///
    /// # Errors
    ///
    /// [`Error::DictionaryCorrupted`] if the tables are not valid; [`Error::WorkspaceTooSmall`] if
    /// `memory` has less than [`SIZE`](Self::SIZE) bytes.
    pub fn new(dictionary: Dictionary<'d>, memory: &'d mut [u8]) -> Result<Self, Error> {
        let (sequences, memory) = cells(memory).ok_or(Error::WorkspaceTooSmall)?;
        let (huffman, memory) = cells::<{ huffman::DICTIONARY_TABLE_CELLS }, _>(memory)
            .ok_or(Error::WorkspaceTooSmall)?;
        let (weight_cells, memory) = cells(memory).ok_or(Error::WorkspaceTooSmall)?;
        let weights = memory.first_chunk_mut().ok_or(Error::WorkspaceTooSmall)?;
        let scratch = WeightScratch {
            weights,
            cells: weight_cells,
        };
        let loaded =
            dictionary.load_into_tables(sequences, DictionaryCells::Own(huffman), scratch)?;
        Ok(DecoderDictionary {
            dictionary,
            loaded,
            sequences,
            huffman,
        })
    }

    /// The prepared dictionary.
    pub const fn dictionary(&self) -> Dictionary<'d> {
        self.dictionary
    }

    /// Bytes of content before a frame's first byte.
    pub const fn content_size(&self) -> usize {
        self.loaded.content.len()
    }

    /// Whether it has tables for a frame's first block, and offsets: whether it is a formatted
    /// dictionary.
    pub const fn has_entropy(&self) -> bool {
        self.loaded.huffman.is_some()
    }

    /// Loads the tables.
    pub(crate) fn load(&self, tables: &mut DecoderTables<'_>) -> Loaded<'d> {
        if let Some(log) = self.loaded.huffman {
            tables.sequences.copy_from_slice(self.sequences);
            let cells = DictionaryCells::Tables(tables.huffman, tables.huffman_pairs).of(log);
            for (cell, made) in cells.iter_mut().zip(self.huffman) {
                *cell = *made;
            }
        }
        self.loaded
    }
}

/// The initial state of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded<'d> {
    pub(crate) content: &'d [u8],
    pub(crate) repeat: [u32; 3],
    /// The longest code of the Huffman table, `None` without one.
    pub(crate) huffman: Option<u32>,
    pub(crate) sequences: Logs,
}

impl Loaded<'_> {
    pub(crate) const NOTHING: Loaded<'static> = Loaded {
        content: &[],
        repeat: REPEAT_OFFSETS,
        huffman: None,
        sequences: [None; 3],
    };
}

impl<'d> Dictionary<'d> {
    /// Builds the dictionary's tables. [`Error::DictionaryCorrupted`] if they are not valid.
    pub(crate) fn load(&self, tables: &mut DecoderTables<'_>) -> Result<Loaded<'d>, Error> {
        let scratch = WeightScratch {
            weights: tables.weights,
            cells: tables.weight_cells,
        };
        let huffman = DictionaryCells::Tables(tables.huffman, tables.huffman_pairs);
        self.load_into_tables(tables.sequences, huffman, scratch)
    }

    fn load_into_tables(
        &self,
        sequences: &mut [fse::Cell; sequences::CELLS],
        huffman: DictionaryCells<'_>,
        scratch: WeightScratch<'_>,
    ) -> Result<Loaded<'d>, Error> {
        if self.entropy.is_empty() {
            return Ok(Loaded {
                content: self.content,
                ..Loaded::NOTHING
            });
        }
        self.load_formatted(sequences, huffman, scratch)
            .map_err(|_| Error::DictionaryCorrupted)
    }

    fn load_formatted(
        &self,
        sequences: &mut [fse::Cell; sequences::CELLS],
        huffman: DictionaryCells<'_>,
        mut scratch: WeightScratch<'_>,
    ) -> Result<Loaded<'d>, Error> {
        let mut rest = self.entropy;
        let (huffman, bytes) = huffman::read_dictionary_table(rest, &mut scratch, huffman)?;
        rest = rest.get(bytes..).ok_or(Error::Corruption)?;
        let (offsets, bytes) = read_entropy_table(TableKind::OFFSETS, rest, sequences)?;
        rest = rest.get(bytes..).ok_or(Error::Corruption)?;
        let (match_lengths, bytes) = read_entropy_table(TableKind::MATCH_LENGTHS, rest, sequences)?;
        rest = rest.get(bytes..).ok_or(Error::Corruption)?;
        let (literal_lengths, bytes) =
            read_entropy_table(TableKind::LITERAL_LENGTHS, rest, sequences)?;
        rest = rest.get(bytes..).ok_or(Error::Corruption)?;

        let (repeat_bytes, content) = rest.split_first_chunk::<12>().ok_or(Error::Corruption)?;
        let mut repeat = [0; 3];
        for (offset, bytes) in repeat.iter_mut().zip(repeat_bytes.as_chunks::<4>().0) {
            *offset = u32::from_le_bytes(*bytes);
            if *offset == 0 || *offset as usize > content.len() {
                return Err(Error::Corruption);
            }
        }
        Ok(Loaded {
            content,
            repeat,
            huffman: Some(huffman),
            sequences: [Some(literal_lengths), Some(offsets), Some(match_lengths)],
        })
    }
}
