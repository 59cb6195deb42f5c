//! What a sample of a block says about how to search it.

use super::division::times_log;
use crate::bits::BIT;
use crate::workspace::{Cells, Scratch};

/// One byte of so many is looked at: a prime number, for records have even sizes.
const STRIDE: usize = 61;
/// In less than this nothing is seen.
const SIZE_MIN: usize = 8192;
/// From so many 1/256 bits a byte on, short matches pay.
const BITS_MIN: u32 = 56 * BIT / 10;

/// Whether short matches far away save anything, or those are better that are a byte longer: `None` if there is too little
/// to see it.
///
/// An offset takes about as many bits as four letters of a text, but fewer than four bytes of code for machines. Looking for
/// more bytes also has fewer candidates, and finds fewer but longer matches, which take less time.
pub(crate) fn short_matches_pay(data: &[u8], scratch: &mut Scratch) -> Option<bool> {
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
    Some(times_log(total).saturating_sub(certain) >= total * BITS_MIN)
}
