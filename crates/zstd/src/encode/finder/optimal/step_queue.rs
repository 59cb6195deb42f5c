//! Decisions that are made and not handed out yet.

use super::parse::STEPS_MAX;
use super::partition::Chunks;
use crate::checked::{Checked, CheckedSlice};
use crate::encode::finder::index::SearchBlock;
use crate::encode::store::SequenceStore;
use crate::sequences::{Sequence, offset_value, update_repeat_offsets};
use crate::workspace::Cells;

/// How far the steps of a block are handed out. They lie in memory that the caller has.
#[derive(Clone)]
pub(super) struct StepQueue {
    /// Where the steps begin, in cells; how many there may be, and how many there are.
    cells: u32,
    max: u32,
    len: u32,
    /// The next step, and the index that it begins at.
    next: u32,
    at: u32,
    /// Index of the first byte of the plan, and of the first byte beyond it.
    start: u32,
    end: u32,
    /// The part at hand.
    part: u32,
}

impl StepQueue {
    /// A plan of nothing, whose at most `max` steps will lie at `cells`.
    pub(super) fn new(cells: usize, max: usize) -> Self {
        StepQueue {
            cells: cells as u32,
            max: max as u32,
            len: 0,
            next: 0,
            at: 0,
            start: 0,
            end: 0,
            part: 0,
        }
    }

    /// Forgets the plan.
    pub(super) fn clear(&mut self) {
        self.at = 0;
        self.end = 0;
    }

    /// Lowers every index by `by`.
    pub(super) fn reduce(&mut self, by: u32) {
        for index in [&mut self.at, &mut self.start, &mut self.end] {
            *index = index.saturating_sub(by);
        }
    }

    /// Whether another series of steps may follow.
    pub(super) fn has_room(&self) -> bool {
        self.len as usize + STEPS_MAX <= self.max as usize
    }

    /// Whether the plan goes on where a block begins, and no farther than it.
    pub(super) fn is_for(&self, block: &SearchBlock<'_>) -> bool {
        let from = block.base + block.start as u32;
        let to = block.base + block.end as u32;
        self.at == from && self.end > from && self.end <= to
    }

    /// Begins again, without steps.
    pub(super) fn start(&mut self) {
        self.len = 0;
    }

    /// Appends a step: a sequence with an offset in the place of the offset value.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        cells: &mut [[u8; 4]],
        literals: u32,
        offset: u32,
        length: u32,
    ) -> Checked<()> {
        let bits = Sequence::new(literals, offset, length).bits();
        let cell = (self.cells + 2 * self.len) as usize;
        cells.checked_put(cell, bits as u32)?;
        cells.checked_put(cell + 1, (bits >> 32) as u32)?;
        self.len += 1;
        Ok(())
    }

    /// The steps are those of the bytes from `start` to `end`.
    pub(super) fn ready(&mut self, start: u32, end: u32) {
        self.start = start;
        self.at = start;
        self.end = end;
        self.next = 0;
        self.part = 0;
    }

    /// Hands out the next part. Returns where the literals after it begin that are not in `store`.
    pub(super) fn hand_out(
        &mut self,
        cells: &[[u8; 4]],
        chunks: &Chunks<'_>,
        block: &SearchBlock<'_>,
        repeat: &mut [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> Checked<usize> {
        let data = block.data.checked(..block.end)?;
        // Where the part ends, if another one follows.
        let part_end = loop {
            self.part += 1;
            match chunks.part(self.part as usize)? {
                // A long match may have passed a part.
                Some((at, _)) if self.start + at as u32 <= self.at => {}
                next => break next.map(|(at, _)| self.start + at as u32),
            }
        };
        let mut room = true;
        while self.next < self.len && room && part_end.is_none_or(|end| self.at < end) {
            let cell = (self.cells + 2 * self.next) as usize;
            let bits =
                u64::from(cells.checked_at(cell + 1)?) << 32 | u64::from(cells.checked_at(cell)?);
            let step = Sequence::from_bits(bits);
            let (literals, offset) = (step.literal_length(), step.offset_value());
            let value = value_of(offset, literals, repeat);
            update_repeat_offsets(repeat, value, literals);
            let anchor = (self.at - block.base) as usize;
            room = store.push(
                data,
                anchor,
                Sequence::new(literals, value, step.match_length()),
            )?;
            self.next += 1;
            self.at += literals + step.match_length();
        }
        if !room {
            self.part -= 1;
        } else if self.next < self.len {
            store.cut();
        } else if self.end != block.base + block.end as u32 {
            // The block is longer than the plan was to be: it ends with the plan's last literals.
            let (anchor, end) = (self.at - block.base, self.end - block.base);
            store.push_last_literals(block.data.checked(anchor as usize..end as usize)?)?;
            self.at = self.end;
            store.cut();
        }
        Ok((self.at - block.base) as usize)
    }
}

/// The offset value that stands for an offset.
fn value_of(offset: u32, literals: u32, repeat: &[u32; 3]) -> u32 {
    let [a, b, c] = *repeat;
    let short = if literals > 0 {
        [a, b, c]
    } else {
        [b, c, a.wrapping_sub(1)]
    };
    match short.iter().position(|repeat| *repeat == offset) {
        Some(i) => i as u32 + 1,
        None => offset_value(offset),
    }
}
