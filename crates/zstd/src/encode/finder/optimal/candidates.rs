//! Matches that could be taken, position by position.

use crate::Error;
use crate::sequences::{offset_code, offset_value};
use crate::workspace::{Carver, Cells};

/// Positions that are looked at together.
pub(super) const SPAN: usize = 256;
/// Most matches that one position has.
pub(super) const PER_POSITION: usize = 32;
const LIST: usize = 2048;

/// The matches of some consecutive positions, for each of them by ascending length and offset.
pub(super) struct Candidates<'a> {
    first: usize,
    len: usize,
    starts: &'a mut [[u8; 4]; SPAN + 1],
    list: &'a mut [[u8; 8]; LIST],
    used: usize,
}

/// A match: bytes that are equal to those `offset` bytes before.
#[derive(Clone, Copy)]
pub(super) struct Match {
    pub(super) length: u32,
    pub(super) offset: u32,
}

impl<'a> Candidates<'a> {
    /// Bytes of workspace.
    pub(super) const BYTES: usize = 4 * (SPAN + 1) + 8 * LIST;

    /// Takes the list from a workspace.
    pub(super) fn carve(carver: &mut Carver<'a>) -> Result<Self, Error> {
        Ok(Candidates {
            first: 0,
            len: 0,
            starts: carver.array()?,
            list: carver.array()?,
            used: 0,
        })
    }

    /// Forgets all; the next position is `first`.
    pub(super) fn start(&mut self, first: usize) {
        self.first = first;
        self.len = 0;
        self.used = 0;
        self.starts.put(0, 0);
    }

    /// Whether another position may be added.
    #[inline(always)]
    pub(super) fn has_room(&self) -> bool {
        self.len < SPAN && self.used + PER_POSITION <= LIST
    }

    /// Adds a match to the position at hand, longer than those before. It takes the place of those whose offsets cost
    /// as much or more.
    #[inline(always)]
    pub(super) fn push(&mut self, length: u32, offset: u32) {
        let start = self.starts.at(self.len) as usize;
        let code = offset_code(offset_value(offset));
        while self.used > start && offset_code(offset_value(self.at(self.used - 1).offset)) >= code
        {
            self.used -= 1;
        }
        self.push_shorter(length, offset);
    }

    /// Adds a match to the position at hand, shorter than those before, and with a cheaper offset.
    #[inline(always)]
    pub(super) fn push_shorter(&mut self, length: u32, offset: u32) {
        if self.used < LIST {
            self.list
                .put(self.used, u64::from(length) << 32 | u64::from(offset));
            self.used += 1;
        }
    }

    /// The position at hand has no more matches. If the longest came first, `turn` brings them into order.
    #[inline(always)]
    pub(super) fn end_position(&mut self, turn: bool) {
        if turn {
            let start = self.starts.at(self.len) as usize;
            self.list[start..self.used].reverse();
        }
        self.len += 1;
        if self.len <= SPAN {
            self.starts.put(self.len, self.used as u32);
        }
    }

    /// The first position that is not known.
    #[inline(always)]
    pub(super) fn end(&self) -> usize {
        self.first + self.len
    }

    /// Where the matches of a known position lie.
    #[inline(always)]
    pub(super) fn range(&self, position: usize) -> core::ops::Range<usize> {
        let i = (position - self.first).min(SPAN - 1);
        self.starts.at(i) as usize..self.starts.at(i + 1) as usize
    }

    /// A match.
    #[inline(always)]
    pub(super) fn at(&self, i: usize) -> Match {
        let bits = self.list.at(i & (LIST - 1));
        Match {
            length: (bits >> 32) as u32,
            offset: bits as u32,
        }
    }
}
