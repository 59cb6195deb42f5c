//! The nearest candidate for every length, from all positions sorted by the bytes that follow.

mod memory;
mod order;
mod record;
mod sort;
mod tree;

use self::memory::RecordMode;
pub(super) use self::memory::{Sorted, SortedState};
use self::order::EXACT_MAX;
pub(super) use self::record::RECORDED_MAX;
use super::candidates::Candidates;
use super::parse::TAIL;
use crate::checked::{Checked, CheckedSlice, ensure};
use crate::encode::finder::index::{SearchBlock, match_length, read32};
use crate::sequences::{offset_code, offset_value};
use crate::workspace::Cells;

impl Sorted<'_> {
    /// Sorts the positions of `data` and makes the tree.
    #[inline(never)]
    pub(super) fn build(&mut self, data: &[u8]) -> Checked<()> {
        let n = data.len().saturating_sub(TAIL - 1).min(self.leaves.len());
        self.state.len = n as u32;
        // The leaves hold the buckets' ends, the triples the cells put aside, until both are
        // filled.
        let aside = self.triples.as_flattened_mut().as_chunks_mut().0;
        order::sort_positions(self.nodes, self.leaves, aside, data, n)?;
        self.state.nodes_len = tree::grow(self.nodes, self.leaves, self.open, n)? as u32;
        self.restart()
    }

    /// Forgets all visits.
    pub(super) fn restart(&mut self) -> Checked<()> {
        for node in self.nodes.checked_mut(..self.state.nodes_len as usize)? {
            *node = (u64::from_ne_bytes(*node) & !u64::from(u32::MAX)).to_ne_bytes();
        }
        self.triples.fill([0; 4]);
        self.state.next = 0;
        self.state.within = (0, 0, 0);
        self.state.record = RecordMode::None;
        Ok(())
    }

    /// Visits the positions up to `to` without asking.
    ///
    /// The last one goes first: a node that knows a later position is left as it is, and so is all
    /// above it.
    #[inline(always)]
    fn visit(&mut self, data: &[u8], to: usize) -> Checked<()> {
        for position in (self.state.next..to).rev() {
            let seen = position as u64 + 1;
            let mut node = self.leaves.checked_at(position)?;
            while node != 0 {
                let bits = self.nodes.checked_at(node as usize - 1)?;
                if bits & u64::from(u32::MAX) >= seen {
                    break;
                }
                self.nodes
                    .checked_put(node as usize - 1, bits >> 32 << 32 | seen)?;
                node = (bits >> 40) as u32;
            }
        }
        for position in self.state.next..to {
            if self.state.record == RecordMode::Write {
                self.leaves.checked_put(position, 0)?;
            }
            let triple = triple(data, position, self.triples.len())?;
            self.triples.checked_put(triple, position as u32 + 1)?;
        }
        self.state.next = self.state.next.max(to);
        Ok(())
    }

    /// Finds the matches of positions from `at` on.
    #[inline(never)]
    pub(super) fn fill(
        &mut self,
        block: &SearchBlock<'_>,
        at: usize,
        sufficient: usize,
        candidates: &mut Candidates<'_>,
    ) -> Checked<()> {
        let &SearchBlock {
            data, end, window, ..
        } = block;
        if self.state.record == RecordMode::Read {
            return self.fill_again(data, end, at, candidates);
        }
        self.visit(data, at.min(self.state.len as usize))?;
        candidates.start(at)?;
        let mut at = at;
        let stop = end.saturating_sub(TAIL - 1).min(self.state.len as usize);
        while at < stop && candidates.has_room() {
            if self.state.within.0 <= at && at < self.state.within.1 {
                self.visit(data, self.state.within.1.min(stop))?;
                let rest = (self.state.within.1 - at) as u32;
                if rest >= 3 {
                    candidates.push(rest, self.state.within.2)?;
                }
                if self.state.record == RecordMode::Write {
                    self.write_record(at, candidates)?;
                }
                candidates.end_position(false)?;
                at += 1;
                continue;
            }
            let mut nearest = 0;
            let mut code = u32::MAX;
            let mut node = self.leaves.checked_at(at)?;
            let mut depth = 0;
            while node != 0 {
                if cfg!(feature = "no-panic") {
                    // Parents that go round in a circle are as wrong as an index.
                    depth += 1;
                    ensure!(depth <= tree::OPEN_MAX);
                }
                let bits = self.nodes.checked_at(node as usize - 1)?;
                self.nodes
                    .checked_put(node as usize - 1, bits >> 32 << 32 | (at as u64 + 1))?;
                let candidate = bits as u32;
                // A position beyond this one was visited for an earlier plan that did not keep it.
                if candidate > nearest && candidate as usize <= at {
                    let offset = at as u32 + 1 - candidate;
                    let offset_code = offset_code(offset_value(offset));
                    if offset_code < code && offset <= window {
                        code = offset_code;
                        let length = (bits >> 32) as usize & 0xff;
                        let length = if length < EXACT_MAX {
                            length.min(end - at)
                        } else {
                            match_length(data, at, candidate as usize - 1, end)?
                        };
                        candidates.push_shorter(length as u32, offset);
                        if length >= sufficient && at + length > self.state.within.1 {
                            self.state.within = (at, at + length, offset);
                        }
                    }
                    nearest = candidate;
                }
                node = (bits >> 40) as u32;
            }
            let triple = triple(data, at, self.triples.len())?;
            let candidate = self.triples.checked_at(triple)?;
            self.triples.checked_put(triple, at as u32 + 1)?;
            if candidate > nearest && candidate as usize <= at {
                let offset = at as u32 + 1 - candidate;
                if offset <= window
                    && offset_code(offset_value(offset)) < code
                    && (read32(data, at)? ^ read32(data, candidate as usize - 1)?) << 8 == 0
                {
                    candidates.push_shorter(3, offset);
                }
            }
            candidates.turn()?;
            if self.state.record == RecordMode::Write {
                self.write_record(at, candidates)?;
            }
            candidates.end_position(false)?;
            at += 1;
            self.state.next = self.state.next.max(at);
        }
        while at < end && candidates.has_room() {
            candidates.end_position(false)?;
            at += 1;
        }
        Ok(())
    }
}

/// The cell of three bytes, of 2^n `cells`.
#[inline(always)]
fn triple(data: &[u8], at: usize, cells: usize) -> Checked<usize> {
    let hash = (read32(data, at)? << 8).wrapping_mul(0x9e37_79b1);
    Ok((hash >> ((cells as u32 - 1).leading_zeros() & 31)) as usize)
}
