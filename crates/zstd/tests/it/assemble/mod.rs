//! A frame assembler: puts frames together field by field from what the test says, lies included.
//!
//! It is written from RFC 8878 alone, shares no line with the codec under test, and trades all
//! speed for being plainly right. What it takes is data (weights, counts, sequences), what it gives
//! is bytes; [`Model`] says what a correct decoder must make of them.

mod bits;
mod frame;
mod fse;
mod huffman;
mod literals;
mod sequences;

pub(crate) use bits::{BackwardBits, ForwardBits};
pub(crate) use frame::{BlockType, Header, Model, block, checksum, skippable};
pub(crate) use fse::{Counts, LITERAL_LENGTHS, MATCH_LENGTHS, OFFSETS};
pub(crate) use huffman::{Huffman, direct as huffman_direct, fse_with as huffman_fse_with};
pub(crate) use literals::Literals;
pub(crate) use sequences::{
    Coding, LITERAL_LENGTH_BITS, MATCH_LENGTH_BITS, Sections, Sequence, codes, sequence_count,
};
