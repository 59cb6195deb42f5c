//! Loading a dictionary into an encoder.

use super::Dictionary;
use crate::Error;
use crate::encode::block::Entropy;
use crate::fse::read_distribution;
use crate::huffman::{CODE_BITS_MAX, DICTIONARY_CODE_BITS_MAX, WeightScratch, read_weights};
use crate::sequences::{
    LITERAL_LENGTH_LOG_MAX, LITERAL_LENGTH_SYMBOL_MAX, MATCH_LENGTH_LOG_MAX,
    MATCH_LENGTH_SYMBOL_MAX, OFFSET_LOG_MAX, OFFSET_SYMBOL_MAX, REPEAT_OFFSETS,
};

impl<'d> Dictionary<'d> {
    /// Loads the dictionary's tables. Returns its content and repeat offsets.
    ///
    /// Fails with [`Error::DictionaryCorrupted`] if the tables are not valid.
    pub(crate) fn load_into(
        &self,
        entropy: &mut Entropy<'_>,
    ) -> Result<(&'d [u8], [u32; 3]), Error> {
        if self.entropy.is_empty() {
            return Ok((self.content, REPEAT_OFFSETS));
        }
        load_formatted(self.entropy, entropy).map_err(|_| Error::DictionaryCorrupted)
    }
}

fn load_formatted<'d>(
    mut rest: &'d [u8],
    entropy: &mut Entropy<'_>,
) -> Result<(&'d [u8], [u32; 3]), Error> {
    let (room, _) = entropy.counts.as_flattened_mut().split_at_mut(1 << 10);
    let (weights, cells) = room.split_first_chunk_mut().ok_or(Error::Corruption)?;
    let (cells, _) = cells
        .as_chunks_mut()
        .0
        .split_first_chunk_mut()
        .ok_or(Error::Corruption)?;
    let mut scratch = WeightScratch { weights, cells };
    let found = read_weights(rest, DICTIONARY_CODE_BITS_MAX, &mut scratch)?;
    // Longer codes than those of a frame are not used: its first literals come with a table.
    if found.log <= CODE_BITS_MAX {
        let weights = scratch.weights.get(..found.symbols);
        let weights = weights.ok_or(Error::Corruption)?;
        entropy.huffman.set_weights(weights, found.log);
    }
    rest = rest.get(found.bytes..).ok_or(Error::Corruption)?;

    let (_, cells) = entropy.counts.as_flattened_mut().split_at_mut(1 << 10);
    let cells = cells.first_chunk_mut().ok_or(Error::Corruption)?;
    let tables = &mut entropy.tables;
    for (table, log_max, symbol_max) in [
        (&mut tables.offsets, OFFSET_LOG_MAX, OFFSET_SYMBOL_MAX),
        (
            &mut tables.match_lengths,
            MATCH_LENGTH_LOG_MAX,
            MATCH_LENGTH_SYMBOL_MAX,
        ),
        (
            &mut tables.literal_lengths,
            LITERAL_LENGTH_LOG_MAX,
            LITERAL_LENGTH_SYMBOL_MAX,
        ),
    ] {
        let mut counts = [0; MATCH_LENGTH_SYMBOL_MAX + 1];
        let counts = &mut counts[..=symbol_max];
        let found = read_distribution(rest, log_max, counts)?;
        let counts = counts.get(..found.symbols).ok_or(Error::Corruption)?;
        table.build(counts, found.log, cells)?;
        rest = rest.get(found.bytes..).ok_or(Error::Corruption)?;
    }

    let (repeat_bytes, content) = rest.split_first_chunk::<12>().ok_or(Error::Corruption)?;
    let mut repeat = [0; 3];
    for (offset, bytes) in repeat.iter_mut().zip(repeat_bytes.as_chunks::<4>().0) {
        *offset = u32::from_le_bytes(*bytes);
        if *offset == 0 || *offset as usize > content.len() {
            return Err(Error::Corruption);
        }
    }
    Ok((content, repeat))
}
