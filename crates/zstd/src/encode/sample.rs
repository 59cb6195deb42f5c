//! What a sample of a block says about how to search it.

use super::division::times_log;
use crate::bits::BIT;
use crate::workspace::{Cells, Scratch};

/// One byte of so many is looked at: a prime number, for records have even sizes.
const STRIDE: usize = 61;
/// In less than this nothing is seen.
const SIZE_MIN: usize = 8192;
/// From so many 1/256 bits a byte on, content is dense.
const BITS_MIN: u32 = 56 * BIT / 10;

/// What content looks like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Code for machines, and what is compressed already: short matches pay.
    Dense,
    /// Few letters, and few zeros: short matches far away do not pay.
    Text,
    /// Records, pictures.
    Other,
}

/// The kind of `data`: `None` if there is too little to see it.
///
/// An offset takes about as many bits as four letters of a text, but fewer than four bytes of code for machines. Looking for
/// more bytes also has fewer candidates, and finds fewer but longer matches, which take less time.
pub(crate) fn kind(data: &[u8], scratch: &mut Scratch) -> Option<Kind> {
    if data.len() < SIZE_MIN {
        return None;
    }
    let counts = scratch.first_chunk_mut::<256>()?;
    counts.fill([0; 4]);
    let mut total = 0;
    for byte in data.iter().step_by(STRIDE) {
        let cell = usize::from(*byte);
        let count = counts.at(cell) + 1;
        counts.put(cell, count);
        total += 1;
    }
    let certain: u32 = (0..256).map(|cell| times_log(counts.at(cell))).sum();
    Some(
        if times_log(total).saturating_sub(certain) >= total * BITS_MIN {
            Kind::Dense
        } else if counts.at(0) <= total / 4 {
            Kind::Text
        } else {
            Kind::Other
        },
    )
}
