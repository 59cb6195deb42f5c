//! The nearest candidate for each short length, and a chain of candidates for long ones.

use super::candidates::Candidates;
use super::parse::TAIL;
#[cfg(feature = "arch")]
use crate::arch::compare::prefetch;
use crate::checked::{Checked, CheckedSlice};
use crate::encode::finder::index::{
    PRIME, SearchBlock, match_length, read32, read64, repeats, word_at,
};
use crate::encode::params::Optimal;
use crate::hint::select_unpredictable;
use crate::sequences::{offset_code, offset_value};
use crate::workspace::Cells;

/// Lengths that have a table, and the logarithm of how much smaller it is than the largest. Behind
/// the last, chains begin.
const TABLES: [(u32, u32); 5] = [(3, 1), (4, 1), (5, 0), (6, 0), (7, 0)];
/// The last of them.
const LAST: usize = 7;
/// The table that is looked up in long runs of literals: of five bytes.
const SKIMMED: usize = 2;
/// Tables of the last index at which the bytes of a few lengths were seen, and for each index the
/// one before it that has the same seven bytes.
///
/// A price model wants, for each length, the nearest candidate. For the shortest lengths a table by
/// hash gives just that, and no look-up waits for another; the longer ones are rare enough to be
/// looked for one by one.
#[derive(Clone)]
pub(super) struct HashChains {
    log: u8,
    chain_log: u8,
    /// Logarithm of the candidates of a chain that are compared.
    search_log: u8,
    /// The first index that has not entered.
    next: u32,
    /// The indexes from and up to which a long match goes, and its offset. A later pass or plan may
    /// begin before it.
    within: (u32, u32, u32),
}

impl HashChains {
    /// Number of cells for tables of at most 2^`log` and chains of 2^`chain_log`.
    pub(super) fn cells(log: u8, chain_log: u8) -> usize {
        Self::table(log, TABLES.len()) + (1 << chain_log)
    }

    /// Where a table begins. The chains lie after the last.
    #[inline(always)]
    fn table(log: u8, i: usize) -> usize {
        TABLES[..i]
            .iter()
            .map(|(_, smaller)| 1 << (u32::from(log) - smaller))
            .sum()
    }

    /// The finder for [`HashChains::cells`].
    pub(super) fn new(log: u8, chain_log: u8, search_log: u8) -> Self {
        HashChains {
            log,
            chain_log,
            search_log,
            next: 0,
            within: (0, 0, 0),
        }
    }

    /// Every index falls by `by`.
    pub(super) fn reduce(&mut self, by: u32) {
        self.next = self.next.saturating_sub(by);
        let (start, end, offset) = self.within;
        self.within = (start.saturating_sub(by), end.saturating_sub(by), offset);
    }

    /// A new frame begins.
    pub(super) fn start_frame(&mut self) {
        self.next = 0;
        self.within = (0, 0, 0);
    }

    /// The cell of the bytes of `word` in a table.
    #[inline(always)]
    fn cell(&self, i: usize, word: u64) -> usize {
        let (length, smaller) = TABLES[i];
        let hash = (word << (64 - 8 * length)).wrapping_mul(PRIME)
            >> (64 - (u32::from(self.log) - smaller));
        Self::table(self.log, i) + hash as usize
    }

    /// Enters an index. Returns the previous value of its cell in each table.
    #[inline(always)]
    fn enter(&self, cells: &mut [[u8; 4]], word: u64, index: u32) -> Checked<[u32; TABLES.len()]> {
        let mut seen = [0; TABLES.len()];
        for (i, seen) in seen.iter_mut().enumerate() {
            let cell = self.cell(i, word);
            *seen = cells.checked_at(cell)?;
            cells.checked_put(cell, index)?;
        }
        let link = self.link(index);
        cells.checked_put(link, seen[TABLES.len() - 1])?;
        Ok(seen)
    }

    /// Asks for the memory of positions to come, in a frame of its own.
    #[inline(never)]
    fn foresee(&self, cells: &[[u8; 4]], block: &SearchBlock<'_>, at: usize) -> Checked<()> {
        let data = block.data;
        if at + Optimal::AHEAD + 8 > data.len() {
            return Ok(());
        }
        let (far, near) = (
            read64(data, at + Optimal::AHEAD)?,
            read64(data, at + Optimal::AHEAD / 2)?,
        );
        for i in 0..TABLES.len() {
            prefetch(cells.as_ptr().wrapping_add(self.cell(i, far)).cast());
            let candidate = cells.checked_at(self.cell(i, near))?;
            prefetch(
                data.as_ptr()
                    .wrapping_add(candidate.wrapping_sub(block.base) as usize),
            );
        }
        Ok(())
    }

    /// The cell of an index in the chains.
    #[inline(always)]
    fn link(&self, index: u32) -> usize {
        let place = index as usize & ((1 << self.chain_log) - 1);
        Self::table(self.log, TABLES.len()) + place
    }

    /// Makes all before `to` known.
    #[inline(never)]
    pub(super) fn insert(
        &mut self,
        cells: &mut [[u8; 4]],
        block: &SearchBlock<'_>,
        to: usize,
    ) -> Checked<()> {
        let to = to.min((block.data.len() + 1).saturating_sub(8));
        let from = (self.next.saturating_sub(block.base)) as usize;
        for at in from..to {
            self.enter(cells, read64(block.data, at)?, block.base + at as u32)?;
        }
        self.next = self.next.max(block.base + to.max(from) as u32);
        Ok(())
    }

    /// Finds the matches of positions from `at` on. All before `at` are known.
    #[inline(never)]
    pub(super) fn fill(
        &mut self,
        cells: &mut [[u8; 4]],
        block: &SearchBlock<'_>,
        at: usize,
        sufficient: usize,
        candidates: &mut Candidates<'_>,
    ) -> Checked<()> {
        candidates.start(at)?;
        let mut at = at;
        while at < block.end && candidates.has_room() {
            if at + TAIL <= block.end {
                if u32::from(self.log) > Optimal::LARGE_LOG {
                    self.foresee(cells, block, at)?;
                }
                self.find(cells, block, at, sufficient, candidates)?;
            }
            candidates.end_position(false)?;
            at += 1;
        }
        Ok(())
    }

    /// Passes positions of a long run of literals, `run` so far, up to one where a match is likely:
    /// the last offset repeats, or five bytes are found, which then are known as a long match.
    /// Returns the position, or the end of the block.
    ///
    /// The longer the run, the fewer positions enter and are looked up. The distance of those that
    /// enter is a power of two and the other one is odd: no long repeat stays unseen.
    #[inline(never)]
    pub(super) fn skim(
        &mut self,
        cells: &mut [[u8; 4]],
        block: &SearchBlock<'_>,
        from: usize,
        (mut run, short): (u32, bool),
        offset: u32,
    ) -> Checked<usize> {
        let &SearchBlock {
            data,
            base,
            window,
            end,
            ..
        } = block;
        let mut at = from;
        let mut entry = (self.next.max(base) - base) as usize;
        while let Some(word) = word_at(block, at) {
            let log = Optimal::skim_log(run, short);
            let index = base + at as u32;
            let oldest = base.max(index.saturating_sub(window).max(1));
            let candidate = cells.checked_at(self.cell(SKIMMED, word))?;
            let before = (candidate.wrapping_sub(base)) as usize;
            let unlike = |other: u64| (other ^ word) << (64 - 8 * TABLES[SKIMMED].0);
            if candidate.wrapping_sub(oldest) < index - oldest
                && word_at(block, before).map(unlike) == Some(0)
            {
                let bytes = |from, to| data.get(from..to).unwrap_or_default().iter();
                let equal = |(a, b): &(&u8, &u8)| a == b;
                let ahead = bytes(at, end).zip(bytes(before, end));
                let length = ahead.take_while(equal).count();
                let behind = bytes(from, at).rev().zip(bytes(0, before).rev());
                let back = behind.take_while(equal).count();
                let start = index - back as u32;
                self.within = (start, index + length as u32, index - candidate);
                self.next = self.next.max(index);
                return Ok(at - back);
            }
            while entry <= at
                && let Some(word) = word_at(block, entry)
            {
                self.enter(cells, word, base + entry as u32)?;
                entry += 1 << log;
            }
            let step = 1 << log >> 1 | 1;
            for at in at..at + step {
                let word = word_at(block, at);
                if word.is_some_and(|word| repeats(block, at, offset, word)) {
                    self.next = self.next.max(base + at as u32);
                    return Ok(at);
                }
            }
            (at, run) = (at + step, run + step as u32);
        }
        self.next = self.next.max(base + end as u32);
        Ok(end)
    }

    /// The index after the last match that is known as a long one.
    pub(super) fn match_end(&self) -> u32 {
        self.within.1
    }

    /// Finds the matches of one position.
    #[inline(always)]
    fn find(
        &mut self,
        cells: &mut [[u8; 4]],
        block: &SearchBlock<'_>,
        at: usize,
        sufficient: usize,
        candidates: &mut Candidates<'_>,
    ) -> Checked<()> {
        let index = block.base + at as u32;
        let (start, end, offset) = self.within;
        if start <= index && index < end {
            self.insert(cells, block, at + 1)?;
            if end - index >= 3 {
                candidates.push_apart(end - index, offset)?;
            }
            return Ok(());
        }
        let candidate = self.find_short(cells, block, at, candidates)?;
        if candidate > 0 {
            self.follow(cells, block, at, candidate, sufficient, candidates)?;
        }
        Ok(())
    }

    /// Finds the short matches of one position. Returns the candidate at which to look for long
    /// ones, or 0. Out of line, so that the search for those reuses its stack.
    #[inline(never)]
    fn find_short(
        &mut self,
        cells: &mut [[u8; 4]],
        block: &SearchBlock<'_>,
        at: usize,
        candidates: &mut Candidates<'_>,
    ) -> Checked<u32> {
        let &SearchBlock {
            data, base, window, ..
        } = block;
        let index = base + at as u32;
        let oldest = base.max(index.saturating_sub(window).max(1));
        // Entries of an earlier, discarded plan lie after this index.
        let is_candidate = |candidate: u32| candidate.wrapping_sub(oldest) < index - oldest;
        let Some(word) = word_at(block, at) else {
            return Ok(0);
        };
        let seen = self.enter(cells, word, index)?;
        self.next = self.next.max(index + 1);
        let (mut longest, mut code) = (2, u32::MAX);
        for candidate in seen {
            if candidate < oldest {
                // Longer bytes that are equal would have left their index here, too.
                break;
            }
            let good = is_candidate(candidate);
            let candidate = select_unpredictable(good, candidate, index - u32::from(at > 0));
            let differ = read64(data, (candidate - base) as usize)? ^ word;
            let length = differ.trailing_zeros() / 8;
            let offset = index - candidate;
            let next_code = offset_code(offset_value(offset));
            let take = good & (length > longest);
            if take {
                candidates.push_instead(length, offset, next_code <= code)?;
            }
            longest = select_unpredictable(take, length, longest);
            code = select_unpredictable(take, next_code, code);
        }
        Ok(if longest as usize >= LAST {
            seen[TABLES.len() - 1]
        } else {
            0
        })
    }

    /// Looks for long matches from `candidate` on, the nearest first.
    ///
    /// A candidate of more than the longest match has that match's bytes, so that it lies on the
    /// chain of each of their places. The chain is followed whose next candidate lies farthest
    /// back: of many candidates that have no more than the longest match few are looked at, and
    /// none that has more is passed over.
    #[inline(never)]
    fn follow(
        &mut self,
        cells: &[[u8; 4]],
        block: &SearchBlock<'_>,
        at: usize,
        mut candidate: u32,
        sufficient: usize,
        candidates: &mut Candidates<'_>,
    ) -> Checked<()> {
        let (data, base) = (block.data.checked(..block.end)?, block.base);
        let index = base + at as u32;
        let oldest = base.max(index.saturating_sub(block.window).max(1));
        let mut longest = LAST - 1;
        // The chain that is followed is that of the bytes so far ahead.
        let mut ahead = 0;
        for _ in 0..1_u32 << self.search_log {
            if candidate.wrapping_sub(oldest) >= index - oldest || at + longest >= data.len() {
                return Ok(());
            }
            let from = (candidate - base) as usize;
            // Only a candidate that matches where the longest one ends can be longer.
            if read32(data, from + longest - 3)? == read32(data, at + longest - 3)? {
                let length = match_length(data, at, from, data.len())?;
                if length > longest {
                    longest = length;
                    candidates.push_apart(length as u32, (at - from) as u32)?;
                    if length >= sufficient {
                        self.within = (index, index + length as u32, (at - from) as u32);
                        return Ok(());
                    }
                    (candidate, ahead) = self.farthest(cells, block, at, candidate, length)?;
                    continue;
                }
            }
            let place = candidate + ahead;
            let before = cells.checked_at(self.link(place))?;
            if before >= place {
                return Ok(());
            }
            candidate = before.saturating_sub(ahead);
        }
        Ok(())
    }

    /// The nearest candidate that can have more than the `length` bytes of `candidate`, and how far
    /// ahead its chain is; 0 if there is none.
    #[inline(always)]
    fn farthest(
        &self,
        cells: &[[u8; 4]],
        block: &SearchBlock<'_>,
        at: usize,
        candidate: u32,
        length: usize,
    ) -> Checked<(u32, u32)> {
        let mut best = (u32::MAX, 0);
        let places = (length - LAST) as u32;
        // From the index on nothing has entered yet.
        let distance = block.base + at as u32 - candidate;
        for ahead in 0..=places
            .min(Optimal::PLACES_MAX.min(1 << self.search_log))
            .min(distance - 1)
        {
            let before = cells.checked_at(self.link(candidate + ahead))?;
            if before < candidate + ahead {
                best = best.min((before.saturating_sub(ahead), ahead));
            }
        }
        // The bytes that reach one beyond the match.
        let ahead = places + 1;
        let next = at + ahead as usize;
        if next + 8 <= block.end {
            let word = read64(block.data, next)?;
            let mut head = cells.checked_at(self.cell(TABLES.len() - 1, word))?;
            if head >= candidate + ahead {
                head = cells.checked_at(self.link(head))?;
            }
            if head < candidate + ahead {
                best = best.min((head.saturating_sub(ahead), ahead));
            }
        }
        Ok(if best.0 == u32::MAX { (0, 0) } else { best })
    }
}

#[cfg(not(feature = "arch"))]
fn prefetch(_place: *const u8) {}
