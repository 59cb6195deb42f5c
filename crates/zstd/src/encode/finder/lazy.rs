//! Greedy and lazy parsing over rows or chains: the best match of a position is taken, unless the
//! next one or two have a better.

use super::index::{SearchBlock, take_back};
use super::row::LazyTables;
#[cfg(not(feature = "arch"))]
use super::search;
use super::search::lazy::LazySearch;
use crate::checked::{Checked, CheckedSlice};
use crate::encode::params::Lazy;
use crate::encode::store::SequenceStore;

/// Finds the sequences of a block. Returns where the literals after the last one begin.
#[inline(never)]
pub(crate) fn find_block(
    tables: &mut LazyTables<'_>,
    block: &SearchBlock<'_>,
    min_match: u8,
    repeat: &mut [u32; 3],
    store: &mut SequenceStore<'_>,
) -> Checked<usize> {
    let task = LazySearch {
        start: block.base as usize + block.start,
        base: block.base,
        window: block.window as usize,
        next: *tables.rows.next,
        attempts: tables.params.attempts(),
        hashed: Lazy::hashed(min_match),
        row_log: tables.params.row_log(),
        lookahead: tables.params.lookahead,
    };
    let data = block.data.checked(..block.end)?;
    let walks_chains = tables.params.chain_log.is_some();
    let (cells, chains) = tables.rows.parts()?;
    #[cfg(feature = "arch")]
    use crate::arch::find::{chained, lazy};
    #[cfg(not(feature = "arch"))]
    use search::lazy::{find as lazy, find_in_chains as chained};
    let (anchor, kept, next) = if walks_chains {
        chained(data, chains, &task, *repeat, store)?
    } else {
        lazy(data, cells, chains, &task, *repeat, store)?
    };
    *tables.rows.next = next;
    *repeat = take_back(*repeat, kept, store)?;
    Ok(anchor - block.base as usize)
}
