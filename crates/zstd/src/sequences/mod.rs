//! The sequences section of a block (RFC 8878, section 3.1.1.3.2), and repeat offsets.

/// Largest symbol and largest table, as a power of two, of literal lengths.
pub(crate) const LITERAL_LENGTH_SYMBOL_MAX: usize = 35;
pub(crate) const LITERAL_LENGTH_LOG_MAX: u32 = 9;
/// Largest symbol and largest table of match lengths.
pub(crate) const MATCH_LENGTH_SYMBOL_MAX: usize = 52;
pub(crate) const MATCH_LENGTH_LOG_MAX: u32 = 9;
/// Largest symbol and largest table of offsets.
pub(crate) const OFFSET_SYMBOL_MAX: usize = 31;
pub(crate) const OFFSET_LOG_MAX: u32 = 8;

/// The repeat offsets at the start of a frame without a dictionary.
pub(crate) const REPEAT_OFFSETS: [u32; 3] = [1, 4, 8];

/// Predefined distribution of literal lengths (RFC 8878, section 3.1.1.3.2.2.1), for a table of 64
/// cells.
pub(crate) const LITERAL_LENGTH_COUNTS: [i16; 36] = [
    4, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, //
    2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 2, 1, 1, 1, 1, 1, //
    -1, -1, -1, -1,
];
/// Predefined distribution of match lengths, for a table of 64 cells.
pub(crate) const MATCH_LENGTH_COUNTS: [i16; 53] = [
    1, 4, 3, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, //
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, //
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, -1, -1, //
    -1, -1, -1, -1, -1,
];
/// Predefined distribution of offsets, for a table of 32 cells.
pub(crate) const OFFSET_COUNTS: [i16; 29] = [
    1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, //
    1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1,
];

// ---- reading (feature `decompress`) ----

#[cfg(feature = "decompress")]
mod read;
#[cfg(feature = "decompress")]
pub(crate) use read::{
    CELLS, DecodedSequence, Logs, SequenceReader, SequencesHeader, TableKind, read_entropy_table,
    update_tables,
};

// ---- writing (feature `compress`) ----

#[cfg(feature = "compress")]
mod code;
#[cfg(feature = "compress")]
mod slots;
#[cfg(feature = "compress")]
mod write;
#[cfg(feature = "compress")]
pub(crate) use code::*;
#[cfg(feature = "compress")]
pub(crate) use slots::*;
#[cfg(feature = "compress")]
pub(crate) use write::*;
