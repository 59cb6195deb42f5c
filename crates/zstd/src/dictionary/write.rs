//! Loading a dictionary into an encoder.

use super::Dictionary;
use crate::Error;
use crate::encode::block::Entropy;
use crate::encode::block_encoder::{BlockEncoder, BlockEncoderState};
use crate::encode::finder::Finder;
use crate::encode::params::Params;
use crate::encode::params::history_max;
use crate::fse::read_distribution;
use crate::huffman::{CODE_BITS_MAX, DICTIONARY_CODE_BITS_MAX, WeightScratch, read_weights};
use crate::sequences::{
    LITERAL_LENGTH_LOG_MAX, LITERAL_LENGTH_SYMBOL_MAX, MATCH_LENGTH_LOG_MAX,
    MATCH_LENGTH_SYMBOL_MAX, OFFSET_LOG_MAX, OFFSET_SYMBOL_MAX, REPEAT_OFFSETS,
};
use crate::workspace::Carver;

/// A dictionary whose tables are built, and whose content is known to a finder, once for any number
/// of frames.
///
/// ```
/// use zstd::{Dictionary, Encoder, EncoderDictionary, Error, Finish, Params};
/// # fn encode_all(bytes: &[u8], records: &[&[u8]], dst: &mut [u8]) -> Result<(), Error> {
/// let params = Params::for_level_with_dictionary(3, Some(1000), bytes.len());
/// let mut memory = vec![0; EncoderDictionary::size(&params)];
/// let dictionary = EncoderDictionary::new(Dictionary::new(bytes)?, &params, &mut memory)?;
/// let mut workspace = vec![0; zstd::stream_workspace_size(&params)];
/// let mut encoder = Encoder::new(&params, &mut workspace)?;
/// encoder.set_prepared(&dictionary)?;
/// for record in records {
///     encoder.reset(Some(record.len() as u64));
///     let written = encoder.step(record, dst, Finish::Frame)?.written;
/// }
/// # Ok(()) }
/// ```
pub struct EncoderDictionary<'d> {
    pub(crate) dictionary: Dictionary<'d>,
    pub(crate) params: Params,
    /// The used part of the dictionary's content: its end.
    pub(crate) content: &'d [u8],
    /// The parts as they are when a frame begins, without room for sequences.
    pub(crate) memory: &'d [u8],
    pub(crate) kept: BlockEncoderState,
    /// Whether the content has entered the finder's tables: not if that takes less time than
    /// copying them.
    pub(crate) has_tables: bool,
}

/// Bytes of tables that are copied in the time in which one byte enters them.
const COPIED: usize = 48;

impl<'d> EncoderDictionary<'d> {
    /// Bytes of memory for frames with these parameters, and any dictionary.
    pub fn size(params: &Params) -> usize {
        Carver::SLACK + BlockEncoder::bytes(params, 0)
    }

    /// Prepares a dictionary for frames with these parameters.
    ///
    /// # Errors
    ///
    /// [`Error::DictionaryCorrupted`] if its tables are not valid; [`Error::ParameterOutOfBound`];
    /// [`Error::WorkspaceTooSmall`] if `memory` is smaller than [`size`](Self::size) says.
    pub fn new(
        dictionary: Dictionary<'d>,
        params: &Params,
        memory: &'d mut [u8],
    ) -> Result<Self, Error> {
        params.check()?;
        let bytes = BlockEncoder::bytes(params, 0);
        let memory = Carver::new(memory, bytes)?.bytes(bytes);
        let mut kept = BlockEncoderState::new(params);
        let content = fill(memory, &mut kept, dictionary, params)?;
        Ok(EncoderDictionary {
            dictionary,
            params: *params,
            content,
            memory,
            kept,
            has_tables: tables_pay(params, content),
        })
    }

    /// Whether it has tables for a frame's first block, and offsets: whether it is a formatted
    /// dictionary.
    pub const fn has_entropy(&self) -> bool {
        self.dictionary.has_entropy()
    }

    /// The prepared dictionary.
    pub const fn dictionary(&self) -> Dictionary<'d> {
        self.dictionary
    }

    /// The parameters that it was prepared for.
    pub const fn params(&self) -> &Params {
        &self.params
    }

    /// Bytes of content that frames refer to.
    pub const fn content_size(&self) -> usize {
        self.content.len()
    }
}

/// Whether the content enters the finder's tables once, or for each frame again.
fn tables_pay(params: &Params, content: &[u8]) -> bool {
    Finder::bytes(params) / COPIED < content.len()
}

/// Begins a frame with a dictionary. Returns the used part of its content.
#[inline(never)]
fn fill<'d>(
    memory: &mut [u8],
    kept: &mut BlockEncoderState,
    dictionary: Dictionary<'d>,
    params: &Params,
) -> Result<&'d [u8], Error> {
    let mut parts = BlockEncoder::over(memory, kept);
    parts.clear(params);
    parts.start_frame(1, params);
    let content = parts.load(&dictionary, history_max(params))?;
    if tables_pay(params, content) {
        parts.insert_history(content, params);
    }
    Ok(content)
}

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
        let weights = &scratch.weights[..found.symbols];
        entropy.huffman.set_weights(weights, found.log);
    }
    rest = &rest[found.bytes..];

    let (_, cells) = entropy.counts.as_flattened_mut().split_at_mut(1 << 10);
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
