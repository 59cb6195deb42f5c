//! The search of rows: which position has the longest match.

use super::super::access::{Chains, Memory, Rows};
use crate::encode::finder::index::PRIME;
use crate::encode::params::{Lazy, LazyDivided};

// A gap is longer than what of it enters.
const _: () = assert!(Lazy::GAP_FRONT <= Lazy::BEHIND_MAX && Lazy::GAP_BACK <= Lazy::BEHIND_MAX);

/// The hash of the first `BYTES` of eight bytes.
#[inline(always)]
pub(crate) fn hash<const BYTES: u32>(value: u64) -> u64 {
    (value << (64 - 8 * BYTES)).wrapping_mul(PRIME)
}

/// Rows of `W` places while a block is searched.
///
/// With them go chains, if `CHAINED`: of what is frequent a row has only the latest, and forgets long matches.
pub(super) struct Search<'a, const W: usize, const CHAINED: bool> {
    rows: Rows<'a, W>,
    chains: Option<Chains<'a>>,
    large: bool,
    /// The first index that has not entered yet.
    pub(super) next: usize,
}

impl<'a, const W: usize, const CHAINED: bool> Search<'a, W, CHAINED> {
    /// A search in which all before `next` is known.
    #[inline(always)]
    pub(super) fn new(rows: Rows<'a, W>, chains: Option<Chains<'a>>, next: usize) -> Self {
        Search {
            large: rows.places() > Lazy::LARGE,
            rows,
            chains,
            next,
        }
    }

    proven_fn! {
        /// Lets all positions before `at` enter.
        ///
        /// # Safety
        ///
        /// `first <= next <= at` and `at + 7 <= end`.
        #[inline(always)]
        fn catch_up<const MIN: u32>(&mut self, data: Memory<'_>, at: usize) {
            let mut next = self.next;
            if at - next > Lazy::BEHIND_MAX {
                for i in next..next + Lazy::GAP_FRONT {
                    // SAFETY: `first <= next <= i`, and the gap is longer than its front: `i < at`.
                    proven!(self.enter::<MIN>(data, i));
                }
                next = at - Lazy::GAP_BACK;
            }
            if self.large {
                for i in next..at {
                    self.prefetch::<MIN>(data, i + Lazy::AHEAD);
                    // SAFETY: `first <= next <= i < at`.
                    proven!(self.enter::<MIN>(data, i));
                }
            } else {
                for i in next..at {
                    // SAFETY: `first <= next <= i < at`.
                    proven!(self.enter::<MIN>(data, i));
                }
            }
            self.next = at;
        }
    }

    proven_fn! {
        /// Lets a position enter.
        ///
        /// # Safety
        ///
        /// `first <= at` and `at + 8 <= end`.
        #[inline(always)]
        fn enter<const MIN: u32>(&mut self, data: Memory<'_>, at: usize) {
            // SAFETY: as the caller proves.
            let value = proven!(data.read64(at));
            self.rows.push(hash::<MIN>(value), at as u32);
            if CHAINED && let Some(chains) = &mut self.chains {
                chains.push(hash::<8>(value), at as u32);
            }
        }
    }

    /// Prefetches the row of a position that will enter soon.
    #[inline(always)]
    fn prefetch<const MIN: u32>(&self, data: Memory<'_>, at: usize) {
        if data.first() <= at && at + 8 <= data.end() {
            // SAFETY: as just compared.
            self.rows.prefetch(hash::<MIN>(proven!(data.read64(at))));
        }
    }

    proven_fn! {
        /// The longest match at `at` that is longer than `least`, and what it refers to, which lies at `low` or between it and
        /// `at`. `at` itself enters.
        ///
        /// # Safety
        ///
        /// `first <= low <= at`, `next <= at`, `at + 8 <= end`, and `3 <= least < end - at`.
        #[inline(always)]
        pub(super) fn search<const MIN: u32>(
            &mut self,
            data: Memory<'_>,
            at: usize,
            low: usize,
            attempts: u32,
            least: usize,
        ) -> (usize, usize) {
            // SAFETY: as the caller proves.
            proven!(self.catch_up::<MIN>(data, at));
            let end = data.end();
            if self.large {
                self.prefetch::<MIN>(data, at + Lazy::AHEAD);
            }
            // SAFETY: `first <= at` and `at + 8 <= end`.
            let value = proven!(data.read64(at));
            let hash_row = hash::<MIN>(value);
            let head = usize::from(self.rows.head(hash_row)) & (W - 1);
            let mut mask = self.mask(hash_row, head);
            let reach = at - low;
            let (mut best, mut best_at) = (least, 0);
            let mut left = attempts;
            while mask != 0 {
                let place = head + mask.trailing_zeros() as usize;
                mask &= mask - 1;
                let candidate = self.rows.position(hash_row, place) as usize;
                // What an earlier frame left lies before `low`.
                if at.wrapping_sub(candidate) > reach {
                    break;
                }
                // Only what matches where the best one ends can be better.
                // SAFETY: `first <= low <= candidate <= at`, `best >= 3`, and `at + best + 1 <= end`: at first as the caller
                // proves, later as compared below.
                if proven!(data.read32(candidate + best - 3) == data.read32(at + best - 3)) {
                    // SAFETY: `first <= candidate <= at <= end`.
                    let length = proven!(data.match_length(at, candidate));
                    if length > best {
                        (best, best_at) = (length, candidate);
                        if at + length + 1 > end {
                            break;
                        }
                    }
                }
                left -= 1;
                if left == 0 {
                    break;
                }
            }
            self.rows.push(hash_row, at as u32);
            self.next = at + 1;
            if CHAINED && let Some(chains) = &mut self.chains {
                let mut candidate = chains.push(hash::<8>(value), at as u32) as usize;
                // Of what fills half of a row, or more, the row will have forgotten the rest.
                if attempts - left < W as u32 / 2 || candidate > at {
                    return (best, best_at);
                }
                for _ in 0..LazyDivided::CHAIN_ATTEMPTS {
                    if candidate < low || at + best + 1 > end {
                        break;
                    }
                    // SAFETY: `first <= low <= candidate <= at`, `best >= 3`, and `at + best + 1 <= end`.
                    if proven!(data.read32(candidate + best - 3) == data.read32(at + best - 3)) {
                        // SAFETY: as above.
                        let length = proven!(data.match_length(at, candidate));
                        if length > best {
                            (best, best_at) = (length, candidate);
                        }
                    }
                    let before = chains.before(candidate) as usize;
                    if before >= candidate {
                        break;
                    }
                    candidate = before;
                }
            }
            (best, best_at)
        }
    }

    /// Which tags of a row are that of the hash, the newest in the lowest bit.
    #[inline(always)]
    fn mask(&self, hash: u64, head: usize) -> u64 {
        let mut mask = 0;
        for part in 0..W / 16 {
            let bits = self.rows.equal_tags(hash, part);
            mask |= u64::from(bits) << (16 * part);
        }
        let head = head as u32;
        match W {
            16 => u64::from((mask as u16).rotate_right(head)),
            32 => u64::from((mask as u32).rotate_right(head)),
            _ => mask.rotate_right(head),
        }
    }
}
