//! Loading a dictionary into an encoder.

use super::Dictionary;
use crate::Error;
use crate::encode::block::Entropy;
use crate::fse::read_distribution;
use crate::huffman::{WeightScratch, read_weights};
use crate::sequences::{
    LITERAL_LENGTH_LOG_MAX, MATCH_LENGTH_LOG_MAX, OFFSET_LOG_MAX, REPEAT_OFFSETS,
};

impl<'d> Dictionary<'d> {
    /// Puts the dictionary's tables in force. Gives its content and repeat offsets.
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
    let (log, number, bytes) = read_weights(rest, &mut scratch)?;
    entropy.huffman.set_weights(&scratch.weights[..number], log);
    rest = &rest[bytes..];

    let (_, cells) = entropy.counts.as_flattened_mut().split_at_mut(1 << 10);
    let tables = &mut entropy.tables;
    for (table, log_max, symbols) in [
        (&mut tables.offsets, OFFSET_LOG_MAX, 32),
        (&mut tables.match_lengths, MATCH_LENGTH_LOG_MAX, 53),
        (&mut tables.literal_lengths, LITERAL_LENGTH_LOG_MAX, 36),
    ] {
        let mut counts = [0; 53];
        let counts = &mut counts[..symbols];
        let found = read_distribution(rest, log_max, counts)?;
        table.build(&counts[..found.symbols], found.log, cells);
        rest = &rest[found.bytes..];
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
