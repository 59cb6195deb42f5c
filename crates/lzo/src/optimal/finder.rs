//! Finds earlier bytes that are equal: the longest match for each class of distances.

use crate::{FAR_MAX, MIDDLE_MAX, NEAR_MAX, equal_len, load4};

/// Longest distance of a match of two bytes.
pub(super) const TWO_MAX: usize = 1 << 10;

/// Matches are compared up to this length. One that is as long is used at its whole length.
pub(super) const LONG: usize = 256;

/// Log2 of the number of positions in the tables of two, three and four bytes.
const TWO_LOG2: u32 = 12;
const THREE_LOG2: u32 = 14;
const FOUR_LOG2: u32 = 15;
/// Positions are stored modulo this, which exceeds the longest distance.
const CHAIN: usize = 1 << 16;

/// Where each hash of two, three and four bytes was last seen, and for each position the one before
/// that has the same hash of four bytes.
///
/// The hashes are forgotten between inputs. The chain is not: its links of an earlier input cannot
/// be reached.
pub(super) struct Finder {
    two: [u16; 1 << TWO_LOG2],
    three: [u16; 1 << THREE_LOG2],
    four: [u16; 1 << FOUR_LOG2],
    chain: [u16; CHAIN],
}

/// A match; one without length is none.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) len: u16,
    pub(super) distance: u16,
}

impl Match {
    fn new(len: usize, distance: usize) -> Match {
        Match {
            len: len as u16,
            distance: distance as u16,
        }
    }
}

/// The matches at a position.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct PositionMatches {
    /// The longest of at least three bytes at up to `NEAR_MAX`, at up to `MIDDLE_MAX`, and farther.
    /// A nearer class holds a shorter match, or none.
    pub(super) classes: [Match; 3],
    /// The distance of a match of two bytes, at most `TWO_MAX`; 0 if there is none.
    pub(super) two: u16,
    /// The distance of the nearest match of at least three bytes; 0 if there is none.
    pub(super) three: u16,
}

impl PositionMatches {
    /// The longest match, and the nearest of these.
    pub(super) fn longest(&self) -> Match {
        let [near, middle, far] = self.classes;
        let longer = |a: Match, b: Match| if b.len > a.len { b } else { a };
        longer(longer(near, middle), far)
    }
}

/// How hard to search.
#[derive(Clone, Copy)]
pub(super) struct Effort {
    /// The number of positions to try.
    pub(super) tries: u32,
    /// If a match at the previous position goes on for this many bytes, a quarter of them.
    pub(super) good: usize,
}

impl Finder {
    pub(super) const fn new() -> Self {
        Finder {
            two: [0; 1 << TWO_LOG2],
            three: [0; 1 << THREE_LOG2],
            four: [0; 1 << FOUR_LOG2],
            chain: [0; CHAIN],
        }
    }

    pub(super) fn clear(&mut self) {
        self.two.fill(0);
        self.three.fill(0);
        self.four.fill(0);
    }

    /// Enters a position that has at least four bytes.
    #[inline(always)]
    pub(super) fn insert(&mut self, src: &[u8], at: usize) {
        self.replace(load4(src, at), at);
    }

    /// Enters a position with its four bytes, and returns those that were entered with the same
    /// two, three and four bytes, as far as the hash tells.
    #[inline(always)]
    fn replace(&mut self, four: u32, at: usize) -> [u16; 3] {
        let now = at as u16;
        let two = core::mem::replace(&mut self.two[hash(four << 16, TWO_LOG2)], now);
        let three = core::mem::replace(&mut self.three[hash(four << 8, THREE_LOG2)], now);
        let last = core::mem::replace(&mut self.four[hash(four, FOUR_LOG2)], now);
        self.chain[usize::from(now)] = last;
        [two, three, last]
    }

    /// Finds matches for a position that has at least four bytes, and enters it. `before` is the
    /// longest match at the previous position.
    #[inline(always)]
    pub(super) fn search(
        &mut self,
        src: &[u8],
        at: usize,
        before: Match,
        effort: Effort,
    ) -> PositionMatches {
        let four = load4(src, at);
        let [two, three, next] = self.replace(four, at);
        let mut found = PositionMatches::default();
        let distance = distance(at, two);
        if is_possible(distance, at, TWO_MAX) && (load4(src, at - distance) ^ four) << 16 == 0 {
            found.two = distance as u16;
        }
        let len_max = (src.len() - at).min(LONG);
        let src = &src[..at + len_max];
        let distance = self::distance(at, three);
        let mut longest = 3;
        if is_possible(distance, at, FAR_MAX) && (load4(src, at - distance) ^ four) << 8 == 0 {
            longest = 3 + equal_len(src, at - distance + 3, at + 3);
            found.three = distance as u16;
            found.classes[class(distance)] = Match::new(longest, distance);
        }
        // The rest of the previous position's match is a match here.
        let carried_distance = usize::from(before.distance);
        let mut carried = usize::from(before.len.saturating_sub(1));
        if carried == LONG - 1 {
            carried += equal_len(src, at + carried - carried_distance, at + carried);
        }
        let mut walk = ChainWalk {
            next,
            last: 0,
            tries: if carried < effort.good {
                effort.tries
            } else {
                effort.tries.div_ceil(4)
            },
        };
        // Shorter matches count only where they are nearer than the class of the carried one.
        let nearer = [0, NEAR_MAX, MIDDLE_MAX][class(carried_distance)].min(at);
        longest = walk.chain(&self.chain, src, at, nearer, longest, &mut found);
        if carried > longest {
            longest = carried;
            found.classes[class(carried_distance)] = Match::new(carried, carried_distance);
        }
        walk.chain(&self.chain, src, at, FAR_MAX.min(at), longest, &mut found);
        found
    }
}

/// Where a search in a chain is.
struct ChainWalk {
    /// The next position.
    next: u16,
    /// The distance of the last one.
    last: usize,
    tries: u32,
}

impl ChainWalk {
    /// Adds matches to `found` that are longer than `longest`, at distances of up to `limit`; `src`
    /// ends where matches must. Returns the length of the longest.
    #[inline(always)]
    fn chain(
        &mut self,
        chain: &[u16; CHAIN],
        src: &[u8],
        at: usize,
        limit: usize,
        mut longest: usize,
        found: &mut PositionMatches,
    ) -> usize {
        if at + longest >= src.len() {
            return longest;
        }
        let mut wanted = load4(src, at + longest - 3);
        while self.tries > 0 {
            let distance = distance(at, self.next);
            // Distances grow, unless the chain has come to its end.
            if distance.wrapping_sub(self.last + 1) >= limit.wrapping_sub(self.last) {
                break;
            }
            self.last = distance;
            let from = at - distance;
            if load4(src, from + longest - 3) == wanted {
                let len = equal_len(src, from, at);
                if len > longest {
                    longest = len;
                    found.classes[class(distance)] = Match::new(len, distance);
                    if at + longest >= src.len() {
                        break;
                    }
                    wanted = load4(src, at + longest - 3);
                }
            }
            self.tries -= 1;
            self.next = chain[from % CHAIN];
        }
        longest
    }
}

/// How far before `at` the position is that was stored as `stored`.
fn distance(at: usize, stored: u16) -> usize {
    usize::from((at as u16).wrapping_sub(stored))
}

/// Whether there are bytes at this distance before `at`, and a match may have it.
fn is_possible(distance: usize, at: usize, max: usize) -> bool {
    (distance.wrapping_sub(1) < max) & (distance <= at)
}

fn class(distance: usize) -> usize {
    usize::from(distance > NEAR_MAX) + usize::from(distance > MIDDLE_MAX)
}

#[inline(always)]
fn hash(bytes: u32, log2: u32) -> usize {
    (bytes.wrapping_mul(0x9E37_79B1) >> (32 - log2)) as usize
}
