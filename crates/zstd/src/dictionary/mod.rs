//! Dictionaries (RFC 8878, section 5).

use crate::Error;

/// First four bytes of a formatted dictionary, as a little-endian number.
pub(crate) const DICTIONARY_MAGIC: u32 = 0xEC30_A437;

/// Content that comes before a frame's first byte, and tables for its first block.
///
/// Refers to the bytes that it was made from; nothing is copied.
#[derive(Clone, Copy, Debug)]
pub struct Dictionary<'d> {
    /// 0 for raw content.
    id: u32,
    /// Tables and repeat offsets; empty for raw content.
    entropy: &'d [u8],
    content: &'d [u8],
}

impl<'d> Dictionary<'d> {
    /// A formatted dictionary if the bytes begin with its magic number, raw content otherwise.
    ///
    /// The tables of a formatted dictionary are not checked before a frame is decoded with them.
    /// Fails with [`Error::DictionaryCorrupted`] if there is nothing after the identifier.
    pub fn new(bytes: &'d [u8]) -> Result<Dictionary<'d>, Error> {
        let Some((magic, rest)) = bytes.split_first_chunk() else {
            return Ok(Dictionary::raw(bytes));
        };
        if u32::from_le_bytes(*magic) != DICTIONARY_MAGIC {
            return Ok(Dictionary::raw(bytes));
        }
        let (id, entropy) = rest.split_first_chunk().ok_or(Error::DictionaryCorrupted)?;
        if entropy.is_empty() {
            return Err(Error::DictionaryCorrupted);
        }
        // Where the content begins is known once the tables have been read.
        Ok(Dictionary {
            id: u32::from_le_bytes(*id),
            entropy,
            content: &[],
        })
    }

    /// Raw content, even if it begins with the magic number.
    pub const fn raw(content: &'d [u8]) -> Dictionary<'d> {
        Dictionary {
            id: 0,
            entropy: &[],
            content,
        }
    }

    /// Whether it has tables for a frame's first block, and offsets: whether it is a formatted
    /// dictionary.
    pub const fn has_entropy(&self) -> bool {
        !self.entropy.is_empty()
    }

    /// The identifier that frames name it by; 0 if it has none.
    pub const fn id(&self) -> u32 {
        self.id
    }
}

#[cfg(feature = "compress")]
impl Dictionary<'_> {
    /// Bytes that it was made from; the content has no more.
    pub(crate) fn size(&self) -> usize {
        if self.entropy.is_empty() {
            self.content.len()
        } else {
            // Behind the magic number and the identifier.
            8 + self.entropy.len()
        }
    }
}

// ---- reading (feature `decompress`) ----

#[cfg(feature = "decompress")]
mod read;
#[cfg(feature = "decompress")]
pub use read::DecoderDictionary;
#[cfg(feature = "decompress")]
pub(crate) use read::Loaded;

// ---- writing (feature `compress`) ----

#[cfg(feature = "compress")]
mod write;
