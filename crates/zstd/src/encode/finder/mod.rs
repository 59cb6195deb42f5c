//! Match finders: from bytes to sequences, one strategy a file.
//!
//! A finder's tables hold *indexes*: positions counted from an origin that only moves forward from
//! frame to frame. An entry of an earlier frame is then smaller than every index of this frame, and
//! is ignored: tables need no clearing between frames. Index 0 is never valid.
//!
//! A finder's file here has its tables; its loop is in `arch/search`. A finder for blocks has this
//! shape, which `optimal` follows too:
//!
//! - `Tables::bytes`: bytes of workspace, growing with every parameter;
//! - `Tables::carve`: takes them;
//! - `clear(&mut self)`: forgets everything, called when the bytes may hold something else;
//! - `reduce(&mut self, by: u32)`: every index falls by `by`, to 0 at least. Called when indexes
//!   near the largest that a table can hold; it must not change the matches found;
//! - `start_frame(&mut self)`: a new frame begins (its indexes are above all earlier ones);
//! - `insert(&mut self, &SearchBlock, min_match)`: makes `data[start..end]` known without looking
//!   for matches (dictionaries);
//! - `find(&mut self, &SearchBlock, min_match, &mut [u32; 3], &mut SequenceStore) ->
//!   Checked<usize>`.

#[cfg(not(feature = "arch"))]
mod access;
mod double_fast;
mod fast;
pub(crate) mod index;
mod lazy;
mod optimal;
mod row;

#[cfg(not(feature = "arch"))]
#[path = "../../arch/search/mod.rs"]
mod search;
#[cfg(feature = "arch")]
use crate::arch::search;

use self::index::{SearchBlock, index_log};
use self::optimal::divided;
use super::params::{DoubleFast, Fast, Lazy, Params, Strategy};
use super::store::SequenceStore;
use crate::checked::Checked;
use crate::workspace::Carver;

/// The tables of a strategy.
pub(crate) enum Finder<'a> {
    Fast(fast::FastTable<'a>),
    DoubleFast(double_fast::DoubleFastTables<'a>),
    Lazy(row::LazyTables<'a>),
    Divided(divided::DividedTables<'a>),
    Optimal(optimal::OptimalTables<'a>),
}

/// State of a finder from block to block besides its tables, with its parameters.
#[derive(Clone)]
pub(crate) enum FinderState {
    /// And how many bits of a cell are an index.
    Fast(Fast, u32),
    DoubleFast(DoubleFast, u32),
    /// And the first index that has not entered the rows.
    Lazy(Lazy, usize),
    Divided(divided::DividedState),
    Optimal(optimal::OptimalState),
}

impl FinderState {
    /// The initial state.
    pub(crate) fn new(params: &Params) -> Self {
        match &params.strategy {
            Strategy::Fast(fast) => FinderState::Fast(*fast, index_log(params.window_log)),
            Strategy::DoubleFast(double) => {
                FinderState::DoubleFast(*double, index_log(params.window_log))
            }
            Strategy::Lazy(lazy) => FinderState::Lazy(*lazy, 0),
            Strategy::LazyDivided(divided) => {
                FinderState::Divided(divided::DividedState::new(divided, params.block_size()))
            }
            Strategy::Optimal(optimal) => FinderState::Optimal(optimal::OptimalState::new(
                optimal::OptimalLayout::new(params, optimal),
            )),
        }
    }

    /// Largest index that tables hold: before the next block indexes are brought down.
    pub(crate) fn index_max(&self) -> u32 {
        match self {
            FinderState::Fast(_, index_log) | FinderState::DoubleFast(_, index_log) => {
                (1 << index_log) - 1
            }
            _ => 3 << 30,
        }
    }
}

impl<'a> Finder<'a> {
    /// Bytes of workspace.
    pub(crate) fn bytes(params: &Params) -> usize {
        match &params.strategy {
            Strategy::Fast(fast) => fast::FastTable::bytes(fast),
            Strategy::DoubleFast(double) => double_fast::DoubleFastTables::bytes(double),
            Strategy::Lazy(lazy) => row::LazyTables::bytes(lazy, None),
            Strategy::LazyDivided(divided) => {
                divided::DividedTables::bytes(divided, params.block_size())
            }
            Strategy::Optimal(optimal) => optimal::OptimalLayout::new(params, optimal).bytes(),
        }
    }

    /// Bytes of the tables to copy for a frame that begins with the positions of another finder. 0
    /// where tables are not copied: an optimal parse takes so much longer than entering that there
    /// is nothing to gain.
    pub(crate) fn copied_bytes(params: &Params) -> usize {
        match &params.strategy {
            Strategy::LazyDivided(divided) => {
                row::LazyTables::bytes(&divided.lazy, divided.chain_log)
            }
            Strategy::Optimal(_) => 0,
            _ => Finder::bytes(params),
        }
    }

    /// The tables in `memory`, of [`bytes`](Self::bytes).
    #[inline(always)]
    pub(crate) fn over(memory: &'a mut [u8], kept: &'a mut FinderState) -> Checked<Self> {
        let carver = &mut Carver::over(memory);
        Ok(match kept {
            FinderState::Fast(fast, index_log) => {
                Finder::Fast(fast::FastTable::carve(carver, fast, *index_log)?)
            }
            FinderState::DoubleFast(double, index_log) => Finder::DoubleFast(
                double_fast::DoubleFastTables::carve(carver, double, *index_log)?,
            ),
            FinderState::Lazy(lazy, next) => {
                Finder::Lazy(row::LazyTables::carve(carver, lazy, None, next)?)
            }
            FinderState::Divided(kept) => {
                Finder::Divided(divided::DividedTables::carve(carver, kept)?)
            }
            FinderState::Optimal(kept) => {
                Finder::Optimal(optimal::OptimalTables::carve(carver, kept)?)
            }
        })
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        match self {
            Finder::Fast(tables) => tables.clear(),
            Finder::DoubleFast(tables) => tables.clear(),
            Finder::Lazy(tables) => tables.clear(),
            Finder::Divided(tables) => tables.clear(),
            Finder::Optimal(tables) => tables.clear(),
        }
    }

    /// Lowers every index.
    pub(crate) fn reduce(&mut self, by: u32) -> Checked<()> {
        match self {
            Finder::Fast(tables) => tables.reduce(by),
            Finder::DoubleFast(tables) => tables.reduce(by),
            Finder::Lazy(tables) => tables.reduce(by),
            Finder::Divided(tables) => tables.reduce(by),
            Finder::Optimal(tables) => tables.reduce(by)?,
        }
        Ok(())
    }

    /// A new frame begins.
    pub(crate) fn start_frame(&mut self) {
        match self {
            Finder::Fast(_) | Finder::DoubleFast(_) => {}
            Finder::Lazy(tables) => tables.start_frame(),
            Finder::Divided(tables) => tables.start_frame(),
            Finder::Optimal(tables) => tables.start_frame(),
        }
    }

    /// Makes `data[start..end]` known, for matches of at least `min_match` bytes.
    pub(crate) fn insert(&mut self, block: &SearchBlock<'_>, min_match: u8) -> Checked<()> {
        match self {
            Finder::Fast(tables) => tables.insert(block, min_match),
            Finder::DoubleFast(tables) => tables.insert(block, min_match),
            Finder::Lazy(tables) => tables.insert(block, min_match),
            Finder::Divided(tables) => tables.insert(block, min_match),
            Finder::Optimal(tables) => tables.insert(block),
        }
    }
}

/// Finds the sequences of a block, of matches of at least `min_match` bytes, with the tables in
/// `memory`. Returns where the literals after the last one begin.
///
/// The optimal parser goes deepest down the stack: larger tables than its own do not share a frame
/// with them.
#[inline(always)]
pub(crate) fn find(
    memory: &mut [u8],
    kept: &mut FinderState,
    (block, min_match): (&SearchBlock<'_>, u8),
    repeat: &mut [u32; 3],
    store: &mut SequenceStore<'_>,
) -> Checked<usize> {
    let task = (block, min_match);
    let carver = &mut Carver::over(memory);
    match kept {
        FinderState::Fast(fast, index_log) => {
            let mut tables = fast::FastTable::carve(carver, fast, *index_log)?;
            tables.find(block, min_match, repeat, store)
        }
        FinderState::DoubleFast(double, index_log) => {
            let mut tables = double_fast::DoubleFastTables::carve(carver, double, *index_log)?;
            tables.find(block, min_match, repeat, store)
        }
        FinderState::Lazy(lazy, next) => find_lazy(carver, (lazy, next), task, repeat, store),
        FinderState::Divided(kept) => find_divided(carver, kept, task, repeat, store),
        FinderState::Optimal(kept) => {
            let mut tables = optimal::OptimalTables::carve(carver, kept)?;
            tables.find(block, repeat, store)
        }
    }
}

#[inline(never)]
fn find_lazy<'a>(
    carver: &mut Carver<'a>,
    (lazy, next): (&Lazy, &'a mut usize),
    (block, min_match): (&SearchBlock<'_>, u8),
    repeat: &mut [u32; 3],
    store: &mut SequenceStore<'_>,
) -> Checked<usize> {
    let mut tables = row::LazyTables::carve(carver, lazy, None, next)?;
    lazy::find_block(&mut tables, block, min_match, repeat, store)
}

#[inline(never)]
fn find_divided<'a>(
    carver: &mut Carver<'a>,
    kept: &'a mut divided::DividedState,
    (block, min_match): (&SearchBlock<'_>, u8),
    repeat: &mut [u32; 3],
    store: &mut SequenceStore<'_>,
) -> Checked<usize> {
    let mut tables = divided::DividedTables::carve(carver, kept)?;
    tables.find(block, min_match, repeat, store)
}
