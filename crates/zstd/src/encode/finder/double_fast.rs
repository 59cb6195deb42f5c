//! Two tables of positions by hash, of eight bytes and of fewer: a long match is taken at once, a
//! short one if the next position has no long one. Cells have tags, see [`PairHashes`].

use super::index::{SearchBlock, read64, reduce_tagged, take_back};
#[cfg(not(feature = "arch"))]
use super::search;
use super::search::{PairHashes, double_fast::DoubleFastSearch};
use crate::checked::{Checked, CheckedSlice};
use crate::encode::params::DoubleFast;
use crate::encode::store::SequenceStore;
use crate::workspace::{Carver, Cells};

/// The tables.
pub(crate) struct DoubleFastTables<'a> {
    /// The cells of the table by eight bytes, then those of the other.
    cells: &'a mut [[u8; 4]],
    /// 64 less the logarithms of their numbers.
    shifts: [u32; 2],
    /// Bits of an index in a cell.
    index_log: u32,
}

impl<'a> DoubleFastTables<'a> {
    /// Bytes of workspace.
    pub(crate) fn bytes(params: &DoubleFast) -> usize {
        (4 << params.long_hash_log) + (4 << params.short_hash_log)
    }

    /// Takes the tables from a workspace.
    pub(crate) fn carve(
        carver: &mut Carver<'a>,
        params: &DoubleFast,
        index_log: u32,
    ) -> Checked<Self> {
        Ok(DoubleFastTables {
            cells: carver.cells(Self::bytes(params) / 4)?,
            shifts: [params.long_hash_log, params.short_hash_log].map(|log| 64 - u32::from(log)),
            index_log,
        })
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.cells.fill([0; 4]);
    }

    /// Lowers every index.
    pub(crate) fn reduce(&mut self, by: u32) {
        reduce_tagged(self.cells, by, self.index_log);
    }

    /// Makes `data[start..end]` known.
    pub(crate) fn insert(&mut self, block: &SearchBlock<'_>, min_match: u8) -> Checked<()> {
        match min_match {
            0..=4 => self.insert_min::<4>(block),
            5 => self.insert_min::<5>(block),
            6 => self.insert_min::<6>(block),
            7.. => self.insert_min::<7>(block),
        }
    }

    fn insert_min<const MIN: u32>(&mut self, block: &SearchBlock<'_>) -> Checked<()> {
        let hashes = PairHashes::new::<MIN>();
        for at in block.start..(block.end.saturating_sub(7)).max(block.start) {
            let index = block.base as usize + at;
            let value = read64(block.data, at)?;
            let cells = hashes.cells(value, index, self.shifts, self.index_log);
            self.cells.checked_put(cells.long, cells.kept)?;
            self.cells.checked_put(cells.short, cells.kept)?;
        }
        Ok(())
    }

    /// Finds the sequences of a block. Returns where the literals after the last one begin.
    #[inline(never)]
    pub(crate) fn find(
        &mut self,
        block: &SearchBlock<'_>,
        min_match: u8,
        repeat: &mut [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> Checked<usize> {
        let task = DoubleFastSearch {
            start: block.base as usize + block.start,
            base: block.base,
            window: block.window as usize,
            shifts: self.shifts,
            index_log: self.index_log,
            min_match,
        };
        let data = block.data.checked(..block.end)?;
        #[cfg(feature = "arch")]
        let (anchor, kept) =
            crate::arch::find::double_fast(data, self.cells, &task, *repeat, store)?;
        #[cfg(not(feature = "arch"))]
        let (anchor, kept) = search::double_fast::find(data, self.cells, &task, *repeat, store)?;
        *repeat = take_back(*repeat, kept, store)?;
        Ok(anchor - block.base as usize)
    }
}
