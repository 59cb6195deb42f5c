//! Dictionaries that are prepared for any number of frames.

use super::block_encoder::{BlockEncoder, BlockEncoderState, PreparedStart};
use super::finder::Finder;
use super::params::{Params, history_max};
use crate::workspace::Carver;
use crate::{Dictionary, Error};

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
    /// The used part of the dictionary's content: its end.
    pub(crate) content: &'d [u8],
    pub(super) start: PreparedStart<'d>,
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
        let memory = Carver::new(memory, bytes)?.bytes(bytes)?;
        let mut kept = BlockEncoderState::new(params);
        let content = fill(memory, &mut kept, dictionary, params)?;
        Ok(EncoderDictionary {
            dictionary,
            content,
            start: PreparedStart {
                params: *params,
                memory,
                kept,
                has_tables: tables_pay(params, content),
            },
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
        &self.start.params
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
    parts.clear(params)?;
    parts.start_frame(1, params)?;
    let content = parts.load(&dictionary, history_max(params))?;
    if tables_pay(params, content) {
        parts.insert_history(content, params)?;
    }
    Ok(content)
}
