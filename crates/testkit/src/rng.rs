//! Reproducible random numbers, and the number of cases of a sampled test.

use std::str::FromStr;
use std::{env, fmt};

/// A small deterministic generator (SplitMix64): equal seeds give equal numbers, on every machine.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Creates a generator; every seed is good.
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which must not be 0, uniform to within `end` / 2^64.
    pub fn below(&mut self, end: u64) -> u64 {
        assert_ne!(end, 0, "no number lies below 0");
        let wide = u128::from(self.next_u64()) * u128::from(end);
        (wide >> 64) as u64
    }

    /// An index below `len`, which must not be 0.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True with a probability of 1 / `one_in`.
    pub fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }

    /// Fills `bytes` with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let random = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&random[..chunk.len()]);
        }
    }

    /// `len` random bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.fill(&mut bytes);
        bytes
    }
}

/// The number of cases of a sampled test: `RESTOW_CASES` if set, otherwise `default`, which is what
/// the full test command runs.
///
/// A test of several kinds (codecs, dictionaries) runs this many cases of each kind.
///
/// # Panics
///
/// If `RESTOW_CASES` is not a valid number.
pub fn cases<N: FromStr<Err: fmt::Debug>>(default: N) -> N {
    match env::var("RESTOW_CASES") {
        Ok(count) => count.parse().expect("RESTOW_CASES is a number of cases"),
        Err(_) => default,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_splitmix64() {
        // From the reference implementation by Vigna, seed 1234567.
        let mut rng = Rng::new(1_234_567);
        let numbers = [rng.next_u64(), rng.next_u64(), rng.next_u64()];
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(numbers, expected);
    }

    #[test]
    fn below_reaches_every_number_and_no_other() {
        let mut rng = Rng::new(1);
        let mut seen = [0_u32; 7];
        for _ in 0..7000 {
            seen[rng.index(7)] += 1;
        }
        assert!(
            seen.iter().all(|count| (800..1200).contains(count)),
            "{seen:?}"
        );
    }

    #[test]
    fn bytes_do_not_depend_on_what_was_there() {
        let mut filled = [0xff; 13];
        Rng::new(5).fill(&mut filled);
        assert_eq!(Rng::new(5).bytes(13), filled);
    }
}
