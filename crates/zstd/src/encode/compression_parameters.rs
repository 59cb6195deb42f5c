//! The C library's seven numbers, for those who have them instead of [`Params`].

use super::params::{
    DoubleFast, Fast, Lazy, LazyDivided, Optimal, Params, Strategy, WINDOW_LOG_RANGE,
};
use crate::{Error, ROOMY};

/// Smallest `chain_log` that means chains where a strategy can do without.
const CHAINS_FROM: u32 = *WINDOW_LOG_RANGE.start() as u32;

/// `ZSTD_compressionParameters` of the C library: [`Params`] without the flags of the frame, as
/// seven numbers.
///
/// [`Strategy`] has a table of their meanings. [`CompressionParameters::new`] and
/// [`params`](CompressionParameters::params) are each other's inverse; numbers without a meaning
/// for their strategy are passed over. A `min_match` of 0 lets a sample of the content decide. The
/// lazy strategies have chains in place of rows only where levels have them, in a kernel: numbers
/// that are meant for C's chains give rows elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CompressionParameters {
    /// Logarithm of the window.
    pub window_log: u32,
    /// Logarithm of the size of chains, or of a second table.
    pub chain_log: u32,
    /// Logarithm of the size of the largest hash table.
    pub hash_log: u32,
    /// Logarithm of the number of candidates.
    pub search_log: u32,
    /// Shortest match, or 0.
    pub min_match: u32,
    /// Length of a sufficient match, or acceleration.
    pub target_length: u32,
    /// 1 (fast) to 9 (btultra2), which is the same as 8.
    pub strategy: u32,
}

impl CompressionParameters {
    /// The numbers of `params`.
    pub fn new(params: &Params) -> Self {
        let mut numbers = CompressionParameters {
            window_log: 0,
            chain_log: 6,
            hash_log: 6,
            search_log: 1,
            min_match: 3,
            target_length: 0,
            strategy: 0,
        };
        numbers.set(params);
        numbers
    }

    /// Sets the numbers that mean something to the strategy.
    fn set(&mut self, params: &Params) {
        self.window_log = params.window_log.into();
        match params.strategy {
            Strategy::Fast(fast) => {
                self.strategy = 1;
                self.hash_log = fast.hash_log.into();
                self.min_match = fast.min_match.unwrap_or(0).into();
                self.target_length = fast.acceleration.into();
            }
            Strategy::DoubleFast(double) => {
                self.strategy = 2;
                self.hash_log = double.long_hash_log.into();
                self.chain_log = double.short_hash_log.into();
                self.min_match = double.min_match.unwrap_or(0).into();
            }
            Strategy::Lazy(lazy) => {
                self.strategy = 3 + u32::from(lazy.lookahead);
                self.set_lazy(&lazy);
                self.set_chains(lazy.chain_log);
            }
            Strategy::LazyDivided(divided) => {
                self.strategy = 6;
                self.set_lazy(&divided.lazy);
                self.target_length = divided.lazy.lookahead.into();
                self.set_chains(divided.lazy.chain_log.or(divided.chain_log));
            }
            Strategy::Optimal(optimal) => {
                self.strategy = 6 + u32::from(optimal.passes);
                self.hash_log = optimal.hash_log.into();
                self.chain_log = optimal.chain_log.into();
                self.search_log = optimal.search_log.into();
                self.target_length = optimal.sufficient_length.into();
            }
        }
    }

    fn set_lazy(&mut self, lazy: &Lazy) {
        self.hash_log = lazy.hash_log.into();
        self.search_log = lazy.search_log.into();
        self.min_match = lazy.min_match.unwrap_or(0).into();
    }

    fn set_chains(&mut self, chain_log: Option<u8>) {
        self.chain_log = match chain_log {
            Some(log) => log.into(),
            // Fewer than make chains.
            None => self.chain_log.min(CHAINS_FROM - 1),
        };
    }

    /// The parameters, with the content size and the dictionary id in the frame header and without
    /// a checksum.
    ///
    /// # Errors
    ///
    /// [`Error::ParameterOutOfBound`] if a number that means something to the strategy lies outside
    /// its range.
    pub fn params(&self) -> Result<Params, Error> {
        let small = |number: u32| u8::try_from(number).map_err(|_| Error::ParameterOutOfBound);
        let length = |number: u32| u16::try_from(number).map_err(|_| Error::ParameterOutOfBound);
        let min_match = match self.min_match {
            0 => None,
            number => Some(small(number)?),
        };
        let (hash_log, search_log) = (small(self.hash_log)?, small(self.search_log)?);
        let chain_log = match self.chain_log {
            0..CHAINS_FROM => None,
            log => Some(small(log)),
        };
        let chain_log = || chain_log.transpose();
        let lazy = |lookahead| {
            let chain_log = if ROOMY { None } else { chain_log()? };
            Ok::<_, Error>(Lazy {
                hash_log,
                search_log,
                min_match,
                lookahead,
                chain_log,
            })
        };
        let strategy = match self.strategy {
            1 => Strategy::Fast(Fast {
                hash_log,
                min_match,
                acceleration: length(self.target_length)?,
            }),
            2 => Strategy::DoubleFast(DoubleFast {
                long_hash_log: hash_log,
                short_hash_log: small(self.chain_log)?,
                min_match,
            }),
            3 => Strategy::Lazy(lazy(0)?),
            4 => Strategy::Lazy(lazy(1)?),
            5 => Strategy::Lazy(lazy(2)?),
            6 => Strategy::LazyDivided(LazyDivided {
                // C's target lengths are longer than any lookahead.
                lazy: lazy(self.target_length.min(2) as u8)?,
                chain_log: if ROOMY { chain_log()? } else { None },
            }),
            7..=9 => Strategy::Optimal(Optimal {
                hash_log,
                chain_log: small(self.chain_log)?,
                search_log,
                sufficient_length: length(self.target_length)?,
                passes: if self.strategy == 7 { 1 } else { 2 },
            }),
            _ => return Err(Error::ParameterOutOfBound),
        };
        let params = Params {
            window_log: small(self.window_log)?,
            strategy,
            content_size: true,
            checksum: false,
            dictionary_id: true,
        };
        params.check()?;
        Ok(params)
    }

    /// Whether an encoder takes these numbers; `ZSTD_checkCParams`.
    ///
    /// # Errors
    ///
    /// As [`params`](Self::params).
    pub fn check(&self) -> Result<(), Error> {
        self.params().map(|_| ())
    }

    /// The same, with window and tables reduced to the need of `source_size` bytes after a
    /// dictionary of `dictionary_size` bytes; `ZSTD_adjustCParams`. A source of unknown size
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// As [`params`](Self::params).
    pub fn adjust(&self, source_size: Option<u64>, dictionary_size: usize) -> Result<Self, Error> {
        let mut params = self.params()?;
        let mut adjusted = *self;
        if let Some(size) = source_size {
            params.narrow(size.saturating_add(dictionary_size as u64));
            let strategy = self.strategy;
            adjusted.set(&params);
            adjusted.strategy = strategy;
        }
        Ok(adjusted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LEVEL_MAX, LEVEL_MIN};

    #[test]
    fn every_level_there_and_back() {
        for level in LEVEL_MIN..=LEVEL_MAX {
            for size in [
                None,
                Some(0),
                Some(5000),
                Some(1 << 17),
                Some(1 << 18),
                Some(1 << 30),
            ] {
                let params = Params::for_level(level, size);
                let numbers = CompressionParameters::new(&params);
                assert_eq!(numbers.params(), Ok(params), "level {level}, {size:?}");
                assert_eq!(numbers.adjust(None, 0), Ok(numbers));
                assert_eq!(numbers.adjust(size, 0), Ok(numbers), "level {level}");
                let narrow = numbers.adjust(Some(1000), 24).unwrap();
                assert_eq!((narrow.window_log, narrow.check()), (10, Ok(())));
                assert_eq!(narrow.strategy, numbers.strategy);
            }
        }
    }

    #[test]
    fn numbers_out_of_range() {
        let good = CompressionParameters::new(&Params::for_level(19, None));
        for strategy in 1..=9 {
            let good = CompressionParameters { strategy, ..good };
            assert_eq!(good.check(), Ok(()), "strategy {strategy}");
            for bad in [
                CompressionParameters {
                    window_log: 9,
                    ..good
                },
                CompressionParameters {
                    window_log: 28,
                    ..good
                },
                CompressionParameters {
                    window_log: 256 + 20,
                    ..good
                },
                CompressionParameters {
                    hash_log: 5,
                    ..good
                },
                CompressionParameters {
                    hash_log: 29,
                    ..good
                },
                CompressionParameters {
                    strategy: 0,
                    ..good
                },
                CompressionParameters {
                    strategy: 10,
                    ..good
                },
            ] {
                assert_eq!(bad.check(), Err(Error::ParameterOutOfBound), "{bad:?}");
            }
        }
    }
}
