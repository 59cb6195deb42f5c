//! The search of rows: which position has the longest match.

use super::super::access::{ChainLinks, IndexedBytes, MatchTail, TaggedRows, opaque};
use crate::encode::finder::index::PRIME;
use crate::encode::params::{Lazy, LazyDivided};

// A gap is longer than the positions of it that enter.
const _: () = assert!(Lazy::GAP_FRONT <= Lazy::BEHIND_MAX && Lazy::GAP_BACK <= Lazy::BEHIND_MAX);

/// Positions that have entered, and may have a match.
pub(super) trait Candidates {
    /// The first index that has not entered yet.
    fn next(&self) -> usize;

    /// Lets no position before `at` enter any more.
    fn pass(&mut self, at: usize);

    proven_fn! {
        /// The longest match at `at` that is longer than `least`, and how far back it refers, at
        /// most to `low`. `at` itself enters.
        ///
        /// # Safety
        ///
        /// `first <= low < at`, `next <= at`, `at + 8 <= end`, and `3 <= least < end - at`.
        fn search<const MIN: u32>(
            &mut self,
            data: IndexedBytes<'_>,
            at: usize,
            low: usize,
            attempts: u32,
            least: usize,
        ) -> (usize, usize);
    }
}

/// The hash of the first `BYTES` of eight bytes.
#[inline(always)]
pub(crate) fn hash<const BYTES: u32>(value: u64) -> u64 {
    (value << (64 - 8 * BYTES)).wrapping_mul(PRIME)
}

/// Rows of `W` places while a block is searched.
///
/// With them go chains, if `CHAINED`: of a frequent string a row holds only the latest positions,
/// and loses long matches.
pub(super) struct Search<'a, const W: usize, const CHAINED: bool> {
    rows: TaggedRows<'a, W>,
    chains: Option<ChainLinks<'a>>,
    large: bool,
    /// The first index that has not entered yet.
    next: usize,
}

impl<'a, const W: usize, const CHAINED: bool> Search<'a, W, CHAINED> {
    /// A search in which all before `next` is known.
    #[inline(always)]
    pub(super) fn new(
        rows: TaggedRows<'a, W>,
        chains: Option<ChainLinks<'a>>,
        next: usize,
    ) -> Self {
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
        fn catch_up<const MIN: u32>(&mut self, data: IndexedBytes<'_>, at: usize) {
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
                    // SAFETY: `first <= next <= i`.
                    proven!(self.prefetch::<MIN>(data, i + Lazy::AHEAD));
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
        fn enter<const MIN: u32>(&mut self, data: IndexedBytes<'_>, at: usize) {
            // SAFETY: as the caller proves.
            let value = proven!(data.read64(at));
            self.rows.insert(hash::<MIN>(value), at as u32);
            if CHAINED && let Some(chains) = &mut self.chains {
                chains.push(hash::<8>(value), at as u32);
            }
        }
    }

    proven_fn! {
        /// Prefetches the row of a position that will enter soon.
        ///
        /// # Safety
        ///
        /// `first <= at`.
        #[inline(always)]
        fn prefetch<const MIN: u32>(&self, data: IndexedBytes<'_>, at: usize) {
            if at + 8 <= data.end() {
                // SAFETY: as the caller proves, and as just compared.
                let value = proven!(data.read64(at));
                let (row, _) = self.rows.slot(hash::<MIN>(value));
                self.rows.prefetch(row);
            }
        }
    }

    proven_fn! {
        /// Which tags of a row are equal to `tag`, the newest in the lowest bit.
        ///
        /// # Safety
        ///
        /// `row` is below the number of rows.
        #[inline(always)]
        fn mask(&self, row: usize, tag: u8, head: usize) -> u64 {
            let mut mask = 0;
            for part in 0..W / 16 {
                // SAFETY: as the caller proves, and `part < W / 16`.
                let bits = proven!(self.rows.equal_tags(row, tag, part));
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
}

impl<const W: usize, const CHAINED: bool> Candidates for Search<'_, W, CHAINED> {
    fn next(&self) -> usize {
        self.next
    }

    #[inline(always)]
    fn pass(&mut self, at: usize) {
        self.next = at;
    }

    proven_fn! {
        // Once for each width where it is fast, and apart where code is to be small: in safe code,
        // and in a kernel.
        #[cfg_attr(
            any(not(feature = "arch"), all(target_arch = "x86_64", not(target_feature = "sse2"))),
            inline(never)
        )]
        #[cfg_attr(
            all(
                feature = "arch",
                not(all(target_arch = "x86_64", not(target_feature = "sse2")))
            ),
            inline(always)
        )]
        fn search<const MIN: u32>(
            &mut self,
            data: IndexedBytes<'_>,
            at: usize,
            low: usize,
            attempts: u32,
            least: usize,
        ) -> (usize, usize) {
            // SAFETY: as the caller proves.
            proven!(self.catch_up::<MIN>(data, at));
            let end = data.end();
            if self.large {
                // SAFETY: `first <= at`.
                proven!(self.prefetch::<MIN>(data, at + Lazy::AHEAD));
            }
            // SAFETY: `first <= at` and `at + 8 <= end`.
            let value = proven!(data.read64(at));
            let (row, tag) = self.rows.slot(hash::<MIN>(value));
            // SAFETY: `slot` gives a row below their number.
            let head = usize::from(proven!(self.rows.head(row))) & (W - 1);
            // SAFETY: as above.
            let mut mask = proven!(self.mask(row, tag, head));
            // Distances are negative, and wrap: so an address and one of them are a sum.
            let farthest = low.wrapping_sub(at);
            let (mut best, mut best_back) = (least, 0);
            let mut tail = MatchTail::new(data, at + best + 1);
            let mut left = attempts;
            while mask != 0 {
                let place = (head + mask.trailing_zeros() as usize) & (W - 1);
                mask &= mask - 1;
                // SAFETY: as above, and `place` is below `W`.
                let candidate = proven!(self.rows.position(row, place)) as usize;
                let back = opaque(candidate.wrapping_sub(at));
                // Positions of earlier frames lie before `low`, too. Nothing lies at `at` or after
                // it, or else this is too small as well: `farthest` is negative.
                if back < farthest {
                    break;
                }
                // Only a candidate that matches where the best one ends can be better. SAFETY:
                // `first <= low <= candidate < at`, `best >= 3`, and `at + best + 1 <= end`: at
                // first as the caller proves, later as compared below.
                if proven!(tail.is_same(back)) {
                    // SAFETY: `first <= candidate < at <= end`.
                    let length = proven!(data.match_length(at, at.wrapping_add(back)));
                    if length > best {
                        (best, best_back) = (length, back);
                        if at + length + 1 > end {
                            break;
                        }
                        tail = MatchTail::new(data, at + best + 1);
                    }
                }
                left -= 1;
                if left == 0 {
                    break;
                }
            }
            // SAFETY: `slot` gives a row below their number.
            proven!(self.rows.push(row, tag, at as u32));
            self.next = at + 1;
            if CHAINED && let Some(chains) = &mut self.chains {
                let mut candidate = chains.push(hash::<8>(value), at as u32) as usize;
                // A string that fills half of a row or more has further positions, which the row no
                // longer holds.
                if attempts - left < W as u32 / 2 || candidate > at {
                    return (best, best_back.wrapping_neg());
                }
                for _ in 0..LazyDivided::CHAIN_ATTEMPTS {
                    if candidate < low || at + best + 1 > end {
                        break;
                    }
                    // SAFETY: `first <= low <= candidate <= at`, `best >= 3`, and `at + best + 1 <=
                    // end`.
                    if proven!(data.read32(candidate + best - 3) == data.read32(at + best - 3)) {
                        // SAFETY: as above.
                        let length = proven!(data.match_length(at, candidate));
                        if length > best {
                            (best, best_back) = (length, candidate.wrapping_sub(at));
                        }
                    }
                    let before = chains.before(candidate) as usize;
                    if before >= candidate {
                        break;
                    }
                    candidate = before;
                }
            }
            (best, best_back.wrapping_neg())
        }
    }
}
