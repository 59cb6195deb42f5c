//! One table of positions by hash; the first match that is found is taken.
//!
//! Cells have tags, see [`tagged`].

use super::index::{SearchBlock, read64, reduce_tagged, take_back};
#[cfg(not(feature = "arch"))]
use super::search;
use super::search::{fast::FastSearch, tagged};
use crate::checked::{Checked, CheckedSlice};
use crate::encode::params::Fast;
use crate::encode::store::SequenceStore;
use crate::workspace::{Carver, Cells};

/// The table.
pub(crate) struct FastTable<'a> {
    positions: &'a mut [[u8; 4]],
    params: Fast,
    /// Bits of an index in a cell.
    index_log: u32,
}

impl<'a> FastTable<'a> {
    /// Bytes of workspace.
    pub(crate) fn bytes(params: &Fast) -> usize {
        4 << params.hash_log
    }

    /// Takes the table from a workspace.
    pub(crate) fn carve(carver: &mut Carver<'a>, params: &Fast, index_log: u32) -> Checked<Self> {
        Ok(FastTable {
            positions: carver.cells(1 << params.hash_log)?,
            params: *params,
            index_log,
        })
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.positions.fill([0; 4]);
    }

    /// Lowers every index.
    pub(crate) fn reduce(&mut self, by: u32) {
        reduce_tagged(self.positions, by, self.index_log);
    }

    /// Makes `data[start..end]` known.
    pub(crate) fn insert(&mut self, block: &SearchBlock<'_>, min_match: u8) -> Checked<()> {
        let shift = 64 - u32::from(self.params.hash_log_for(min_match));
        match min_match {
            0..=4 => self.insert_min::<4>(block, shift),
            5 => self.insert_min::<5>(block, shift),
            6 => self.insert_min::<6>(block, shift),
            7.. => self.insert_min::<7>(block, shift),
        }
    }

    fn insert_min<const MIN: u32>(&mut self, block: &SearchBlock<'_>, shift: u32) -> Checked<()> {
        let index_log = self.index_log;
        let mut at = block.start;
        while at + 8 <= block.end {
            let index = block.base as usize + at;
            let (place, kept) = tagged::<MIN>(read64(block.data, at)?, index, shift, index_log);
            self.positions.checked_put(place, kept)?;
            at += 2;
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
        let hash_log = self.params.hash_log_for(min_match);
        let positions = self.positions.checked_mut(..1 << hash_log)?;
        let task = FastSearch {
            start: block.base as usize + block.start,
            base: block.base,
            window: block.window as usize,
            step: self.params.first_step(),
            shift: 64 - u32::from(hash_log),
            index_log: self.index_log,
            min_match,
        };
        let data = block.data.checked(..block.end)?;
        #[cfg(feature = "arch")]
        let (anchor, kept) = crate::arch::find::fast(data, positions, &task, *repeat, store)?;
        #[cfg(not(feature = "arch"))]
        let (anchor, kept) = search::fast::find(data, positions, &task, *repeat, store)?;
        *repeat = take_back(*repeat, kept, store)?;
        Ok(anchor - block.base as usize)
    }
}
