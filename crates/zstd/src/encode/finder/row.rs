//! Rows of positions by hash, the newest replacing the oldest. A byte of hash beside each position,
//! compared for a whole row at once, tells which positions are worth a look.
//!
//! Or chains of positions by hash in their place.

use super::index::{ChainCells, RowCells, SearchBlock, read64, reduce};
use super::search;
use crate::checked::{Checked, CheckedSlice};
use crate::encode::params::{Lazy, LazyDivided};
use crate::workspace::Carver;

/// The tables.
pub(crate) struct LazyTables<'a> {
    pub(super) rows: RowTables<'a>,
    pub(super) params: Lazy,
}

/// Rows of a fixed width.
pub(crate) struct RowTables<'a> {
    /// Where each row's newest position lies.
    heads: &'a mut [u8],
    /// A byte of each position's hash. None if there are no rows.
    tags: &'a mut [u8],
    /// As many as tags. Behind them, where there are chains, the predecessor of each position in
    /// its chain, then the end of each chain.
    positions: &'a mut [[u8; 4]],
    /// How many positions the chains link: a power of two, or 0.
    links: usize,
    /// The first index that has not entered yet.
    pub(super) next: &'a mut usize,
}

impl<'a> LazyTables<'a> {
    /// Bytes of workspace, with chains of 2^`chain_log` positions if that is given.
    pub(crate) fn bytes(params: &Lazy, chain_log: Option<u8>) -> usize {
        if let Some(log) = params.chain_log {
            return 4 * ((1 << log) + (1 << params.hash_log));
        }
        (5 << params.hash_log)
            + (1 << (params.hash_log - Lazy::ROW_LOG_MIN))
            + 4 * Self::chain_cells(Self::links(chain_log))
    }

    /// How many positions the chains link.
    fn links(chain_log: Option<u8>) -> usize {
        chain_log.map_or(0, |log| 1 << log)
    }

    /// How many cells after the rows are of chains.
    fn chain_cells(links: usize) -> usize {
        links + (links >> LazyDivided::CHAIN_SHARE_LOG)
    }

    /// Takes the tables from a workspace. `next` is the first index that has not entered.
    pub(crate) fn carve(
        carver: &mut Carver<'a>,
        params: &Lazy,
        chain_log: Option<u8>,
        next: &'a mut usize,
    ) -> Checked<Self> {
        let links = Self::links(params.chain_log.or(chain_log));
        let rows = if params.chain_log.is_some() {
            RowTables {
                positions: carver.cells(links + (1 << params.hash_log))?,
                tags: &mut [],
                heads: &mut [],
                links,
                next,
            }
        } else {
            RowTables {
                positions: carver.cells((1 << params.hash_log) + Self::chain_cells(links))?,
                tags: carver.bytes(1 << params.hash_log)?,
                heads: carver.bytes(1 << (params.hash_log - params.row_log()))?,
                links,
                next,
            }
        };
        Ok(LazyTables {
            rows,
            params: *params,
        })
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.rows.positions.fill([0; 4]);
        self.rows.tags.fill(0);
        self.rows.heads.fill(0);
    }

    /// A new frame begins.
    pub(crate) fn start_frame(&mut self) {
        *self.rows.next = 0;
    }

    /// Lowers every index.
    pub(crate) fn reduce(&mut self, by: u32) {
        reduce(self.rows.positions, by);
        *self.rows.next = self.rows.next.saturating_sub(by as usize);
    }

    /// Makes `data[start..end]` known.
    pub(crate) fn insert(&mut self, block: &SearchBlock<'_>, min_match: u8) -> Checked<()> {
        let hashed = Lazy::hashed(min_match);
        if self.params.chain_log.is_some() {
            return self.rows.insert_in_chains(block, hashed);
        }
        match self.params.row_log() {
            4 => self.rows.insert::<16>(block, hashed),
            5 => self.rows.insert::<32>(block, hashed),
            _ => self.rows.insert::<64>(block, hashed),
        }
    }
}

impl RowTables<'_> {
    /// The memory of the rows, and of the links and ends of chains.
    pub(super) fn parts(&mut self) -> Checked<(RowCells<'_>, ChainCells<'_>)> {
        let (positions, chains) = self.positions.checked_split_mut(self.tags.len())?;
        let cells = RowCells {
            heads: self.heads,
            tags: self.tags,
            positions,
        };
        let (links, ends) = chains.checked_split_mut(self.links)?;
        Ok((cells, ChainCells { links, ends }))
    }

    fn insert<const W: usize>(&mut self, block: &SearchBlock<'_>, hashed: u8) -> Checked<()> {
        let (cells, chains) = self.parts()?;
        let mut rows = search::TaggedRows::<W>::new(cells)?;
        let mut chains = search::ChainLinks::new(chains)?;
        for at in block.start..(block.end.saturating_sub(7)).max(block.start) {
            let value = read64(block.data, at)?;
            let hash = match hashed {
                4 => search::hash::<4>(value),
                _ => search::hash::<5>(value),
            };
            let index = block.base + at as u32;
            rows.insert(hash, index);
            if let Some(chains) = &mut chains {
                chains.push(search::hash::<8>(value), index);
            }
        }
        *self.next = (block.base as usize + block.end.saturating_sub(7)).max(*self.next);
        Ok(())
    }

    fn insert_in_chains(&mut self, block: &SearchBlock<'_>, hashed: u8) -> Checked<()> {
        let (_, chains) = self.parts()?;
        if let Some(mut chains) = search::ChainLinks::new(chains)? {
            for at in block.start..(block.end.saturating_sub(7)).max(block.start) {
                let value = read64(block.data, at)?;
                let hash = match hashed {
                    4 => search::hash::<4>(value),
                    _ => search::hash::<5>(value),
                };
                chains.push(hash, block.base + at as u32);
            }
        }
        *self.next = (block.base as usize + block.end.saturating_sub(7)).max(*self.next);
        Ok(())
    }
}
