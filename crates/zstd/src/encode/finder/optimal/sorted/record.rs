//! Matches of a first pass, recorded for a second.

use super::memory::{RecordMode, Sorted};
use crate::checked::Checked;
use crate::encode::finder::index::match_length;
use crate::encode::finder::optimal::candidates::{Candidates, Match};
use crate::encode::finder::optimal::parse::TAIL;
use crate::workspace::Cells;

/// Bits of an offset and of a length in a record, and the bit that says that another match follows.
const RECORD_OFFSET_BITS: u32 = 17;
const RECORD_LENGTH_MAX: u32 = (1 << 14) - 1;
const RECORD_MORE: u32 = 1 << 31;

/// Most positions that can be recorded.
pub(in super::super) const RECORDED_MAX: usize = 1 << RECORD_OFFSET_BITS;

impl Sorted<'_> {
    /// Records all matches from here on, for [`Sorted::replay`]. At most [`RECORDED_MAX`] positions
    /// are sorted.
    pub(in super::super) fn record(&mut self) {
        self.state.record = RecordMode::Write;
        self.state.more = 2 * self.state.nodes_len;
    }

    /// Whether there is a record. Then the leaves are gone.
    pub(in super::super) fn is_recorded(&self) -> bool {
        self.state.record != RecordMode::None
    }

    /// Tells the same matches again, from the first position on.
    pub(in super::super) fn replay(&mut self) {
        self.state.record = RecordMode::Read;
        self.state.more = 2 * self.state.nodes_len;
        self.state.next = 0;
    }

    /// Writes the matches of a position to the record.
    #[inline(always)]
    pub(super) fn write_record(
        &mut self,
        position: usize,
        candidates: &Candidates<'_>,
    ) -> Checked<()> {
        let pack = |found: Match, more: bool| {
            found.offset
                | found.length.min(RECORD_LENGTH_MAX) << RECORD_OFFSET_BITS
                | if more { RECORD_MORE } else { 0 }
        };
        let range = candidates.pending()?;
        let cells: &mut [[u8; 4]] = self.nodes.as_flattened_mut().as_chunks_mut().0;
        let more = range
            .len()
            .saturating_sub(1)
            .min(cells.len() - self.state.more as usize);
        let first = match range.clone().next_back() {
            Some(last) => pack(candidates.at(last)?, more > 0),
            None => 0,
        };
        self.leaves.checked_put(position, first)?;
        for (i, found) in range.rev().skip(1).take(more).enumerate() {
            let bits = pack(candidates.at(found)?, i + 1 < more);
            cells.checked_put(self.state.more as usize, bits)?;
            self.state.more += 1;
        }
        Ok(())
    }

    /// As [`Sorted::fill`], from the record.
    #[inline(always)]
    pub(super) fn fill_again(
        &mut self,
        data: &[u8],
        end: usize,
        at: usize,
        candidates: &mut Candidates<'_>,
    ) -> Checked<()> {
        let cells: &[[u8; 4]] = self.nodes.as_flattened().as_chunks().0;
        candidates.start(at)?;
        let stop = end.saturating_sub(TAIL - 1).min(self.state.len as usize);
        while self.state.next < stop && candidates.has_room() {
            let known = self.state.next >= at;
            let mut bits = self.leaves.checked_at(self.state.next)?;
            loop {
                let offset = bits & (RECORDED_MAX as u32 - 1);
                if known && offset > 0 {
                    let mut length = bits >> RECORD_OFFSET_BITS & RECORD_LENGTH_MAX;
                    if length == RECORD_LENGTH_MAX {
                        let candidate = self.state.next - offset as usize;
                        length = match_length(data, self.state.next, candidate, end)? as u32;
                    }
                    candidates.push_shorter(length, offset);
                }
                if bits & RECORD_MORE == 0 {
                    break;
                }
                bits = cells.checked_at(self.state.more as usize)?;
                self.state.more += 1;
            }
            if known {
                candidates.end_position(true)?;
            }
            self.state.next += 1;
        }
        while candidates.end() < end && candidates.end() >= stop && candidates.has_room() {
            candidates.end_position(false)?;
        }
        Ok(())
    }
}
