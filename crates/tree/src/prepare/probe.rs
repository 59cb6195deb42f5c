//! Decides whether a slow encoder could find anything in a block.
//!
//! Compressed, encrypted or random data is slowest to encode and does not get smaller. It has two
//! properties: all bytes are equally frequent, and nothing repeats. Both are tested over the whole
//! block, so the loss is bounded: skipping the encoder costs at most about a thousandth of the
//! size.

use codec::Settings;

/// Shorter blocks are not worth testing.
const LEN_MIN: usize = 4096;
/// Number of bytes counted first; hardly anything but noise passes this test.
const HEAD_BYTES: usize = 4096;
/// Log2 of the number of slots in the table of samples.
const SEEN_LOG2: u32 = 13;
/// One in this many positions is sampled, chosen by its content, so that a repetition is found
/// wherever it is.
const ONE_OF: usize = 32;
/// A repeated sample stands for [`ONE_OF`] repeated bytes; one byte in this many may be repeated.
const REPEATED_ONE_OF: usize = 1024;

/// The working memory of a probe.
pub struct Probe {
    /// Samples seen in a block, by hash.
    seen: Box<[u64]>,
}

impl Probe {
    /// A probe for an encoder that takes longer to find that data does not compress.
    pub fn before(settings: &Settings) -> Option<Probe> {
        let is_slow = match *settings {
            Settings::Xz { .. } | Settings::Lz4Hc { .. } | Settings::LzoOptimal { .. } => true,
            Settings::Zlib { level } => level > 1,
            Settings::Zstd { level } => level > 5,
            Settings::Lzo | Settings::Lz4 => false,
        };
        is_slow.then(|| Probe {
            seen: vec![0; 1 << SEEN_LOG2].into(),
        })
    }

    /// Whether the content is noise.
    pub fn is_noise(&mut self, content: &[u8]) -> bool {
        content.len() >= LEN_MIN
            && is_even(&content[..HEAD_BYTES])
            && is_even(content)
            && !self.repeats(content)
    }

    /// Whether more than a few samples occur twice.
    fn repeats(&mut self, content: &[u8]) -> bool {
        self.seen.fill(0);
        let allowed = content.len() / REPEATED_ONE_OF / ONE_OF;
        let mut repeated = 0;
        for window in content.windows(8) {
            let word = u64::from_le_bytes(window.try_into().expect("windows have eight bytes"));
            let hash = word.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            if hash >> (64 - ONE_OF.ilog2()) != 0 {
                continue;
            }
            let place = hash >> (64 - ONE_OF.ilog2() - SEEN_LOG2);
            let place = &mut self.seen[place as usize % (1 << SEEN_LOG2)];
            repeated += usize::from(*place == word);
            *place = word;
        }
        repeated > allowed
    }
}

/// Whether all bytes are nearly equally frequent.
///
/// The sum of the squared differences from the mean, divided by the mean (chi-square), is 255 for
/// noise, give or take 23. An entropy coder for single bytes saves that sum, over 2 ln 2, in bits.
fn is_even(content: &[u8]) -> bool {
    let mut counts = [[0u32; 256]; 2];
    for pair in content.chunks(2) {
        for (counts, &byte) in counts.iter_mut().zip(pair) {
            counts[usize::from(byte)] += 1;
        }
    }
    let [even, odd] = &counts;
    let squares: u64 = even
        .iter()
        .zip(odd)
        .map(|(a, b)| u64::from(a + b).pow(2))
        .sum();
    let len = content.len() as u64;
    // 256 squares / len - len, without a division that rounds.
    let excess = (256 * squares).saturating_sub(len * len);
    excess <= len * (400 + len / 256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Rng;

    #[test]
    fn noise_is_noise_and_nothing_else_is() {
        let mut probe = Probe::before(&Settings::Zstd { level: 15 }).unwrap();
        let mut rng = Rng::new(1);
        for len in [4096, 5000, 65_536, 131_072, 1 << 20] {
            for _ in 0..5 {
                assert!(probe.is_noise(&rng.bytes(len)), "{len}");
            }
        }
        let noise = rng.bytes(131_072);
        // The same block again is not a repetition within a block.
        assert!(probe.is_noise(&noise) && probe.is_noise(&noise));
        assert!(!probe.is_noise(&noise[..4000]));
        assert!(!probe.is_noise(&[0; 131_072]));
        assert!(!probe.is_noise(&b"to be, or not to be. ".repeat(5000)));
        // Every byte value equally often.
        let even: Vec<u8> = (0..131_072u32).map(|n| n as u8).collect();
        assert!(!probe.is_noise(&even));
        // Half is text; 2 KiB occur twice, at an odd distance; one bit is always 0; 16 KiB are
        // text.
        let mut half = noise.clone();
        half[65_536..].copy_from_slice(&b"to be, or not to be. ".repeat(5000)[..65_536]);
        assert!(!probe.is_noise(&half));
        let mut twice = noise.clone();
        twice.copy_within(1001..3049, 90_000);
        assert!(!probe.is_noise(&twice));
        let bits: Vec<u8> = noise.iter().map(|byte| byte & 0xfe).collect();
        assert!(!probe.is_noise(&bits));
        let mut part = noise.clone();
        part[100_000..116_384].copy_from_slice(&b"to be, or not to be. ".repeat(5000)[..16_384]);
        assert!(!probe.is_noise(&part));
    }
}
