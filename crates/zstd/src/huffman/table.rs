//! The tables that a decoder looks codes up in.

use super::CODE_BITS_MAX;

/// One cell of the decoding table: the length of the code in bits, and its symbol.
pub(crate) type Cell = [u8; 2];

/// Cells of the largest decoding table.
pub(crate) const TABLE_CELLS: usize = 1 << CODE_BITS_MAX;

/// Cells of a dictionary's largest decoding table.
#[cfg(feature = "decompress")]
pub(crate) const DICTIONARY_TABLE_CELLS: usize = 1 << super::DICTIONARY_CODE_BITS_MAX;

/// One cell of the table of pairs, for a string of [`CODE_BITS_MAX`] bits: how many bits its first
/// code takes, or its first two if both are in it; how many codes that are; and their symbols.
pub(crate) type PairCell = [u8; 4];

/// A table that can decode: the first `1 << log` cells are those of all strings of `log` bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HuffmanTable<'t> {
    pub(crate) cells: &'t [Cell; TABLE_CELLS],
    pub(crate) log: u32,
    /// The same codes in pairs, if that table was made. If there are longer codes than
    /// [`CODE_BITS_MAX`], the cells of all strings of `log` bits, see
    /// [`long_cells`](super::long_cells).
    pub(crate) pairs: Option<&'t [PairCell; TABLE_CELLS]>,
}
