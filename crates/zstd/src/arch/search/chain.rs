//! The search of chains: the positions with the same hash, the newest first.
//!
//! Without vectors, a candidate of a chain takes fewer instructions than one of a row.

use super::super::access::{ChainLinks, IndexedBytes, MatchTail, opaque};
use super::row::{Candidates, hash};
use crate::encode::params::Lazy;

/// Chains while a block is searched.
pub(super) struct ChainSearch<'a> {
    chains: ChainLinks<'a>,
    /// The first index that has not entered yet.
    next: usize,
}

impl<'a> ChainSearch<'a> {
    /// A search in which all before `next` is known.
    pub(super) fn new(chains: ChainLinks<'a>, next: usize) -> Self {
        ChainSearch { chains, next }
    }

    proven_fn! {
        /// Lets the positions from `from` to `to` enter.
        ///
        /// # Safety
        ///
        /// `first <= from` and `to + 7 <= end`.
        #[inline(always)]
        fn enter<const MIN: u32>(&mut self, data: IndexedBytes<'_>, from: usize, to: usize) {
            for at in from..to {
                // SAFETY: `first <= from <= at < to`.
                let value = proven!(data.read64(at));
                self.chains.push(hash::<MIN>(value), at as u32);
            }
        }
    }
}

impl Candidates for ChainSearch<'_> {
    fn next(&self) -> usize {
        self.next
    }

    #[inline(always)]
    fn pass(&mut self, at: usize) {
        self.next = at;
    }

    proven_fn! {
        #[inline(always)]
        fn search<const MIN: u32>(
            &mut self,
            data: IndexedBytes<'_>,
            at: usize,
            low: usize,
            attempts: u32,
            least: usize,
        ) -> (usize, usize) {
            let next = self.next;
            if at - next > Lazy::BEHIND_MAX {
                // SAFETY: `first <= next`, and the gap is longer than its front.
                proven!(self.enter::<MIN>(data, next, next + Lazy::GAP_FRONT));
                // SAFETY: `first <= next <= at - BEHIND_MAX`, and `at + 8 <= end`.
                proven!(self.enter::<MIN>(data, at - Lazy::GAP_BACK, at));
            } else {
                // SAFETY: `first <= next`, and `at + 8 <= end`.
                proven!(self.enter::<MIN>(data, next, at));
            }
            self.next = at + 1;
            // SAFETY: `first <= at` and `at + 8 <= end`.
            let value = proven!(data.read64(at));
            let mut candidate = self.chains.push(hash::<MIN>(value), at as u32) as usize;
            // A link is that of a position until the one that takes its place enters. Distances are
            // negative, and wrap: so an address and one of them are a sum.
            let farthest = low.max((at + 1).saturating_sub(self.chains.places())).wrapping_sub(at);
            let (mut best, mut best_back) = (least, 0);
            let mut tail = MatchTail::new(data, at + best + 1);
            let mut left = attempts;
            loop {
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
                        if at + length + 1 > data.end() {
                            break;
                        }
                        tail = MatchTail::new(data, at + best + 1);
                    }
                }
                left -= 1;
                if left == 0 {
                    break;
                }
                candidate = self.chains.before(candidate) as usize;
            }
            (best, best_back.wrapping_neg())
        }
    }
}
