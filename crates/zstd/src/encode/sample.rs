//! Whether a block is dense, from a sample.

use super::division::times_log;
use super::levels::{DENSE_BITS_MIN, SAMPLE_STRIDE, SAMPLED_MIN};
use crate::workspace::{Cells, Scratch};

/// Whether `data` is dense, as machine code and compressed data are: then short matches pay. `None`
/// if the sample is too small.
pub(crate) fn is_dense(data: &[u8], scratch: &mut Scratch) -> Option<bool> {
    if data.len() < SAMPLED_MIN {
        return None;
    }
    let counts = scratch.first_chunk_mut::<256>()?;
    counts.fill([0; 4]);
    let mut total = 0;
    for byte in data.iter().step_by(SAMPLE_STRIDE) {
        let cell = usize::from(*byte);
        let count = counts.at(cell) + 1;
        counts.put(cell, count);
        total += 1;
    }
    let certain: u32 = (0..256).map(|cell| times_log(counts.at(cell))).sum();
    Some(times_log(total).saturating_sub(certain) >= total * DENSE_BITS_MIN)
}
