//! Loading a dictionary into a decoder.

use super::Dictionary;
use crate::Error;
use crate::huffman::{self, WeightScratch};
use crate::sequences::{Kind, Logs, REPEAT_OFFSETS, read_entropy_table};
use crate::workspace::Tables;

/// What a frame begins with.
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
    pub(crate) fn load(&self, tables: &mut Tables<'_>) -> Result<Loaded<'d>, Error> {
        if self.entropy.is_empty() {
            return Ok(Loaded {
                content: self.content,
                ..Loaded::NOTHING
            });
        }
        self.load_formatted(tables)
            .map_err(|_| Error::DictionaryCorrupted)
    }

    fn load_formatted(&self, tables: &mut Tables<'_>) -> Result<Loaded<'d>, Error> {
        let mut scratch = WeightScratch {
            weights: tables.weights,
            cells: tables.weight_cells,
        };
        let mut rest = self.entropy;
        let (huffman, bytes) = huffman::read_table(rest, &mut scratch, tables.huffman)?;
        rest = &rest[bytes..];
        let (offsets, bytes) = read_entropy_table(Kind::OFFSETS, rest, tables.sequences)?;
        rest = &rest[bytes..];
        let (match_lengths, bytes) =
            read_entropy_table(Kind::MATCH_LENGTHS, rest, tables.sequences)?;
        rest = &rest[bytes..];
        let (literal_lengths, bytes) =
            read_entropy_table(Kind::LITERAL_LENGTHS, rest, tables.sequences)?;
        rest = &rest[bytes..];

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
