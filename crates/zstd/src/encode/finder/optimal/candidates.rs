//! Matches that could be taken, position by position.

use crate::checked::{Checked, CheckedSlice};
use crate::sequences::{offset_code, offset_value};
use crate::workspace::{Carver, Cells};

/// Most matches that one position has.
pub(super) const PER_POSITION: usize = 32;

/// The matches of some consecutive positions, for each of them by ascending length and offset.
pub(super) struct Candidates<'a> {
    first: usize,
    len: usize,
    starts: &'a mut [[u8; 4]],
    list: &'a mut [[u8; 8]],
    used: usize,
}

/// A match: bytes that are equal to those `offset` bytes before.
#[derive(Clone, Copy)]
pub(super) struct Match {
    pub(super) length: u32,
    pub(super) offset: u32,
}

impl<'a> Candidates<'a> {
    /// Bytes of workspace for `span` positions.
    pub(super) fn bytes(span: usize) -> usize {
        4 * (span + 1) + 8 * Self::list(span)
    }

    /// Four matches a position are seldom needed, but must be there for a few.
    fn list(span: usize) -> usize {
        4 * span + PER_POSITION
    }

    /// Takes the list from a workspace.
    #[inline(always)]
    pub(super) fn carve(carver: &mut Carver<'a>, span: usize) -> Checked<Self> {
        Ok(Candidates {
            first: 0,
            len: 0,
            starts: carver.cells(span + 1)?,
            list: carver.cells(Self::list(span))?,
            used: 0,
        })
    }

    /// From now on, holds a single position at a time.
    pub(super) fn narrow(&mut self) {
        let starts = core::mem::take(&mut self.starts);
        self.starts = starts.get_mut(..2).unwrap_or_default();
    }

    /// Forgets all; the next position is `first`.
    pub(super) fn start(&mut self, first: usize) -> Checked<()> {
        self.first = first;
        self.len = 0;
        self.used = 0;
        self.starts.checked_put(0, 0)
    }

    /// Whether another position may be added.
    #[inline(always)]
    pub(super) fn has_room(&self) -> bool {
        self.len + 1 < self.starts.len() && self.used + PER_POSITION <= self.list.len()
    }

    /// Adds a match to the position at hand, longer than those before. It takes the place of those
    /// whose offsets cost as much or more.
    #[inline(always)]
    pub(super) fn push(&mut self, length: u32, offset: u32) -> Checked<()> {
        let start = self.starts.checked_at(self.len)? as usize;
        let code = offset_code(offset_value(offset));
        while self.used > start && offset_code(offset_value(self.at(self.used - 1)?.offset)) >= code
        {
            self.used -= 1;
        }
        self.push_shorter(length, offset);
        Ok(())
    }

    /// As [`Candidates::push`], in a frame of its own.
    #[inline(never)]
    pub(super) fn push_apart(&mut self, length: u32, offset: u32) -> Checked<()> {
        self.push(length, offset)
    }

    /// Adds a match to the position at hand, shorter than those before, and with a cheaper offset.
    #[inline(always)]
    pub(super) fn push_shorter(&mut self, length: u32, offset: u32) {
        if self.used < self.list.len() {
            self.list
                .put(self.used, u64::from(length) << 32 | u64::from(offset));
            self.used += 1;
        }
    }

    /// Adds a match to the position at hand, longer than those before; if `instead`, in the place
    /// of the last of them.
    #[inline(always)]
    pub(super) fn push_instead(&mut self, length: u32, offset: u32, instead: bool) -> Checked<()> {
        let start = self.starts.checked_at(self.len)? as usize;
        self.used -= usize::from(instead & (self.used > start));
        self.push_shorter(length, offset);
        Ok(())
    }

    /// Where the matches of the position at hand lie.
    #[inline(always)]
    pub(super) fn pending(&self) -> Checked<core::ops::Range<usize>> {
        Ok(self.starts.checked_at(self.len)? as usize..self.used)
    }

    /// Turns the matches of the position at hand round.
    #[inline(always)]
    pub(super) fn turn(&mut self) -> Checked<()> {
        let range = self.pending()?;
        self.list.checked_mut(range)?.reverse();
        Ok(())
    }

    /// The position at hand has no more matches. If the longest came first, `turn` brings them into
    /// order.
    #[inline(always)]
    pub(super) fn end_position(&mut self, turn: bool) -> Checked<()> {
        if turn {
            self.turn()?;
        }
        self.len += 1;
        self.starts.checked_put(self.len, self.used as u32)
    }

    /// Whether all positions from `first` to `end` are known.
    pub(super) fn covers(&self, first: usize, end: usize) -> bool {
        self.first == first && self.end() >= end
    }

    /// The first position that is not known.
    #[inline(always)]
    pub(super) fn end(&self) -> usize {
        self.first + self.len
    }

    /// Where the matches of a known position lie.
    #[inline(always)]
    pub(super) fn range(&self, position: usize) -> Checked<core::ops::Range<usize>> {
        let i = position - self.first;
        Ok(self.starts.checked_at(i)? as usize..self.starts.checked_at(i + 1)? as usize)
    }

    /// A match.
    #[inline(always)]
    pub(super) fn at(&self, i: usize) -> Checked<Match> {
        let bits = self.list.checked_at(i)?;
        Ok(Match {
            length: (bits >> 32) as u32,
            offset: bits as u32,
        })
    }
}
