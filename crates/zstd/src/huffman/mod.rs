//! Huffman codes of literals (RFC 8878, section 4.2).

/// No code of a frame is longer, in bits.
pub(crate) const CODE_BITS_MAX: u32 = 11;
/// No code of a dictionary is longer: the C library takes such tables, in both directions.
pub(crate) const DICTIONARY_CODE_BITS_MAX: u32 = 12;
/// Literals are bytes.
pub(crate) const SYMBOLS_MAX: usize = 256;

// ---- reading (both features: an encoder reads the tables of its dictionary) ----

#[cfg_attr(
    not(feature = "decompress"),
    allow(dead_code, reason = "an encoder needs no more than weights")
)]
mod read;
mod table;
pub(crate) use read::WeightScratch;
#[cfg(feature = "compress")]
pub(crate) use read::read_weights;
#[cfg(feature = "decompress")]
pub(crate) use read::{decode_first, decode_four, decode_one};
#[cfg(feature = "decompress")]
pub(crate) use read::{fill_pairs, long_cells, pairs_are_worth_it};
#[cfg(feature = "decompress")]
pub(crate) use read::{read_dictionary_table, read_table};
#[cfg(feature = "decompress")]
pub(crate) use table::{Cell, DICTIONARY_TABLE_CELLS, HuffmanTable, PairCell, TABLE_CELLS};

// ---- writing (feature `compress`) ----

#[cfg(feature = "compress")]
mod write;
#[cfg(feature = "compress")]
pub(crate) use write::*;
