//! How dense content is, from a sample.

use super::levels::{SAMPLE_STRIDE, SAMPLED_MIN, ZEROS_SHARE};
use crate::bits::times_log;
use crate::workspace::Cells;

/// About how many 1/256 bits each byte of `data` takes without matches. `None` if the sample is too
/// small. `counts` is scratch.
pub(crate) fn literal_bits(data: &[u8], counts: &mut [[u8; 4]; 256]) -> Option<u32> {
    if data.len() < SAMPLED_MIN {
        return None;
    }
    counts.fill([0; 4]);
    let mut total = 0;
    for byte in data.iter().step_by(SAMPLE_STRIDE) {
        let cell = usize::from(*byte);
        let count = counts.at(cell) + 1;
        counts.put(cell, count);
        total += 1;
    }
    let certain: u32 = (0..256).map(|cell| times_log(counts.at(cell))).sum();
    times_log(total).saturating_sub(certain).checked_div(total)
}

/// Whether many bytes of the sample are zero. `counts` are those of [`literal_bits`].
pub(crate) fn has_many_zeros(data: &[u8], counts: &[[u8; 4]; 256]) -> bool {
    counts.at(0) * ZEROS_SHARE >= data.len().div_ceil(SAMPLE_STRIDE) as u32
}
