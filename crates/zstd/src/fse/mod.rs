//! Finite State Entropy tables (RFC 8878, section 4.1).

// ---- reading (both features: an encoder reads the tables of its dictionary) ----

use crate::Error;
use crate::bits::BitReader;

/// The start of a table description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Distribution {
    /// The table has `1 << log` cells.
    pub(crate) log: u32,
    /// The counts of this many symbols were given; those after them are zero.
    pub(crate) symbols: usize,
    /// Bytes of the description.
    pub(crate) bytes: usize,
}

/// Reads a table description (RFC 8878, section 4.1.1): how many cells each symbol has.
///
/// A count of -1 is a symbol "less than 1", which has one cell at the end of the table. The length
/// of `counts` is one more than the largest symbol that is allowed. [`Error::Corruption`] if the
/// description is not valid.
pub(crate) fn read_distribution(
    src: &[u8],
    log_max: u32,
    counts: &mut [i16],
) -> Result<Distribution, Error> {
    let mut bits = BitReader::new(src);
    bits.refill();
    let log = bits.peek(4) + 5;
    bits.skip(4);
    if log > log_max {
        return Err(Error::Corruption);
    }
    counts.fill(0);
    let mut left = 1u32 << log;
    let mut symbols = 0;
    while left > 0 {
        let count = counts.get_mut(symbols).ok_or(Error::Corruption)?;
        bits.refill();
        // One of left + 2 values: the smaller ones take one bit less.
        // The lowest bit changes nothing, and shows the compiler that there is one.
        let width = ((left + 1) | 1).ilog2() + 1;
        let short = (1 << width) - (left + 2);
        let value = bits.peek(width);
        let low = value & ((1 << (width - 1)) - 1);
        let is_short = low < short;
        bits.skip(width - u32::from(is_short));
        let value = if is_short {
            low
        } else if value > low {
            value - short
        } else {
            value
        };
        symbols += 1;
        match value {
            0 => {
                *count = -1;
                left -= 1;
            }
            1 => loop {
                bits.refill();
                let zeros = bits.peek(2);
                bits.skip(2);
                symbols += zeros as usize;
                if symbols > counts.len() {
                    return Err(Error::Corruption);
                }
                if zeros < 3 {
                    break;
                }
            },
            _ => {
                *count = (value - 1) as i16;
                left -= value - 1;
            }
        }
    }
    let bytes = bits.bytes_read().ok_or(Error::Corruption)?;
    Ok(Distribution {
        log,
        symbols,
        bytes,
    })
}

/// The distance between two cells of one symbol while symbols are spread over a table.
pub(crate) const fn spread_step(size: usize) -> usize {
    (size >> 1) + (size >> 3) + 3
}

/// How far apart the symbols of two neighbouring cells lie, if no symbol is rare and all are
/// written in their order: as far as undoes the step.
pub(crate) const fn undo_step(size: usize) -> usize {
    // Each round doubles the bits that are right: 3, 6, 12.
    let step = spread_step(size);
    let mut inverse = step;
    let mut round = 0;
    while round < 2 {
        inverse = inverse.wrapping_mul(2_usize.wrapping_sub(step.wrapping_mul(inverse)));
        round += 1;
    }
    inverse & (size - 1)
}

#[cfg_attr(
    not(feature = "decompress"),
    allow(dead_code, reason = "an encoder needs no more than weights")
)]
mod read;
pub(crate) use read::{Cell, WEIGHT_CELLS, decode_weights};
#[cfg(feature = "decompress")]
pub(crate) use read::{SymbolMeaning, build, build_any, single};

// ---- writing (feature `compress`) ----

#[cfg(feature = "compress")]
mod write;
#[cfg(feature = "compress")]
pub(crate) use write::*;
