//! Decides from a sample whether an extent is worth compressing, with the kernel's thresholds.

/// The sample takes the first [`SAMPLE_BYTES`] of every this many bytes.
const STEP_BYTES: usize = 256;
const SAMPLE_BYTES: usize = 16;
/// With fewer distinct bytes than this, the data is text or similar.
const DISTINCT_MIN: usize = 64;
/// The number of distinct bytes that make up nine tenths of the sample: below the first it
/// compresses well, above the second it does not.
const CORE: (usize, usize) = (64, 200);
/// At this percentage of the highest entropy or above, compression does not pay.
const ENTROPY_PERCENT_MAX: u64 = 80;

/// Whether compressing `content` is likely to save something.
///
/// Yes for a repetition within the sample, few distinct bytes, or low entropy; no for a sample in
/// which nearly all bytes are equally frequent.
pub(crate) fn is_compressible(content: &[u8]) -> bool {
    let mut sample = [0; (128 << 10) / STEP_BYTES * SAMPLE_BYTES];
    let mut len = 0;
    for step in content.chunks(STEP_BYTES) {
        let part = &step[..step.len().min(SAMPLE_BYTES)];
        let Some(room) = sample.get_mut(len..len + part.len()) else {
            break;
        };
        room.copy_from_slice(part);
        len += part.len();
    }
    let sample = &sample[..len];
    let (first, second) = sample.split_at(len / 2);
    if first == &second[..first.len()] {
        return true;
    }
    let mut counts = [0u32; 256];
    for &byte in sample {
        counts[usize::from(byte)] += 1;
    }
    if counts.iter().filter(|&&count| count > 0).count() < DISTINCT_MIN {
        return true;
    }
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let mut covered = 0;
    let core = counts.iter().take_while(|&&count| {
        let wanted = covered * 10 < len * 9;
        covered += count as usize;
        wanted
    });
    let core = core.count();
    if core <= CORE.0 {
        return true;
    }
    if core >= CORE.1 {
        return false;
    }
    entropy_percent(&counts, len) < ENTROPY_PERCENT_MAX
}

/// Shannon entropy in percent of eight bits per byte, in steps of a quarter bit.
fn entropy_percent(counts: &[u32; 256], len: usize) -> u64 {
    // The logarithm of the fourth power, rounded down, is four times the logarithm rounded to a
    // quarter.
    let log2_times_4 = |n: u64| u64::from((u128::from(n).pow(4)).ilog2());
    let of_all = log2_times_4(len as u64);
    let used = counts.iter().filter(|&&count| count > 0);
    let sum: u64 = used
        .map(|&count| u64::from(count) * (of_all - log2_times_4(count.into())))
        .sum();
    sum / len as u64 * 100 / (8 * 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Rng;

    #[test]
    fn text_and_zeros_are_and_noise_is_not() {
        assert!(is_compressible(&[0; 131_072]));
        assert!(is_compressible(&b"to be or not to be, ".repeat(6000)));
        let noise = Rng::new(5).bytes(131_072);
        assert!(!is_compressible(&noise));
        // The same noise twice: the halves of the sample are equal.
        assert!(is_compressible(
            &[&noise[..65_536], &noise[..65_536]].concat()
        ));
        // Six bits per byte, in the upper half of the byte range.
        let six: Vec<u8> = noise.iter().map(|byte| byte | 0xc0).collect();
        assert!(is_compressible(&six));
        assert!(is_compressible(&[1]));
    }

    #[test]
    fn entropy_of_equal_counts_is_all() {
        assert_eq!(entropy_percent(&[16; 256], 4096), 100);
        let mut two = [0; 256];
        two[..2].fill(64);
        assert_eq!(entropy_percent(&two, 128), 12);
    }
}
