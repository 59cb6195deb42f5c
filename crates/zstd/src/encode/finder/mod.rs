//! Match finders: from bytes to sequences, one strategy a file.
//!
//! A finder's tables hold *indexes*: positions counted from an origin that only moves forward from frame to frame.
//! What an earlier frame left in a table is then smaller than every index of this frame, and is ignored: tables need
//! no clearing between frames. Index 0 is never valid.
//!
//! A finder's file here has its tables; its loop is in `arch/search`. A finder for blocks has this shape, which `optimal` follows too:
//!
//! - `Tables::bytes`: bytes of workspace, growing with every parameter;
//! - `Tables::carve`: takes them;
//! - `clear(&mut self)`: forgets everything, called when the bytes may hold something else;
//! - `reduce(&mut self, by: u32)`: every index falls by `by`, to 0 at least. Called when indexes near the largest that a
//!   table can hold; it must not change what is found;
//! - `start_frame(&mut self)`: a new frame begins (its indexes are above all earlier ones);
//! - `insert(&mut self, &Block, min_match)`: makes `data[start..end]` known without looking for matches (dictionaries);
//! - `find(&mut self, &Block, min_match, &mut [u32; 3], &mut SequenceStore) -> usize`.

#[cfg(feature = "portable")]
mod access;
mod double_fast;
mod fast;
pub(crate) mod index;
mod lazy;
mod optimal;
mod row;

/// Nothing: the safe twin of the search loops has no unsafe code, see `arch/search`.
#[cfg(feature = "portable")]
macro_rules! proven {
    ($read:expr) => {
        $read
    };
}

/// A function like any other.
#[cfg(feature = "portable")]
macro_rules! proven_fn {
    ($($function:tt)*) => {
        $($function)*
    };
}

#[cfg(feature = "portable")]
#[path = "../../arch/search/mod.rs"]
mod search;
#[cfg(not(feature = "portable"))]
use crate::arch::search;

use self::index::{Block, index_log};
use self::optimal::divided;
use super::params::{Params, Strategy};
use super::store::SequenceStore;
use crate::workspace::Carver;

/// The tables of a strategy.
pub(crate) enum Finder<'a> {
    Fast(fast::Tables<'a>),
    DoubleFast(double_fast::Tables<'a>),
    Lazy(row::Tables<'a>),
    Divided(divided::Tables<'a>),
    Optimal(optimal::Tables<'a>),
}

/// Calls the same function of whichever tables these are.
macro_rules! each {
    ($finder:expr, $tables:ident => $call:expr) => {
        match $finder {
            Finder::Fast($tables) => $call,
            Finder::DoubleFast($tables) => $call,
            Finder::Lazy($tables) => $call,
            Finder::Divided($tables) => $call,
            Finder::Optimal($tables) => $call,
        }
    };
}

impl<'a> Finder<'a> {
    /// Bytes of workspace.
    pub(crate) fn bytes(params: &Params) -> usize {
        match &params.strategy {
            Strategy::Fast(fast) => fast::Tables::bytes(fast),
            Strategy::DoubleFast(double) => double_fast::Tables::bytes(double),
            Strategy::Lazy(lazy) => row::Tables::bytes(lazy, None),
            Strategy::LazyDivided(divided) => divided::Tables::bytes(divided, params.block_size()),
            Strategy::Optimal(optimal) => optimal::Layout::new(params, optimal).bytes(),
        }
    }

    /// Takes the tables from a workspace.
    pub(crate) fn carve(carver: &mut Carver<'a>, params: &Params) -> Self {
        let index_log = index_log(params.window_log);
        match &params.strategy {
            Strategy::Fast(fast) => Finder::Fast(fast::Tables::carve(carver, fast, index_log)),
            Strategy::DoubleFast(double) => {
                Finder::DoubleFast(double_fast::Tables::carve(carver, double, index_log))
            }
            Strategy::Lazy(lazy) => Finder::Lazy(row::Tables::carve(carver, lazy, None)),
            Strategy::LazyDivided(divided) => {
                let block_size = params.block_size();
                Finder::Divided(divided::Tables::carve(carver, divided, block_size))
            }
            Strategy::Optimal(optimal) => {
                let layout = optimal::Layout::new(params, optimal);
                Finder::Optimal(optimal::Tables::carve(carver, layout))
            }
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        each!(self, tables => tables.clear());
    }

    /// Lowers every index.
    pub(crate) fn reduce(&mut self, by: u32) {
        each!(self, tables => tables.reduce(by));
    }

    /// Largest index that tables hold: before the next block indexes are brought down.
    pub(crate) fn index_max(&self) -> u32 {
        match self {
            Finder::Fast(tables) => tables.index_max(),
            Finder::DoubleFast(tables) => tables.index_max(),
            _ => 3 << 30,
        }
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
    pub(crate) fn insert(&mut self, block: &Block<'_>, min_match: u8) {
        match self {
            Finder::Fast(tables) => tables.insert(block, min_match),
            Finder::DoubleFast(tables) => tables.insert(block, min_match),
            Finder::Lazy(tables) => tables.insert(block, min_match),
            Finder::Divided(tables) => tables.insert(block, min_match),
            Finder::Optimal(tables) => tables.insert(block),
        }
    }

    /// Copies what `other` knows, whose parameters are the same. Returns false, and does nothing, where tables are not
    /// copied.
    pub(crate) fn copy_from(&mut self, other: &Finder<'_>) -> bool {
        match (self, other) {
            (Finder::Fast(to), Finder::Fast(from)) => to.copy_from(from),
            (Finder::DoubleFast(to), Finder::DoubleFast(from)) => to.copy_from(from),
            (Finder::Lazy(to), Finder::Lazy(from)) => to.copy_from(from),
            (Finder::Divided(to), Finder::Divided(from)) => to.copy_from(from),
            // Its parse takes so much longer than entering that there is nothing to gain.
            _ => return false,
        }
        true
    }

    /// Finds the sequences of a block, of matches of at least `min_match` bytes. Returns where the literals behind the last
    /// one begin.
    pub(crate) fn find(
        &mut self,
        block: &Block<'_>,
        min_match: u8,
        repeat: &mut [u32; 3],
        store: &mut SequenceStore<'_>,
    ) -> usize {
        match self {
            Finder::Fast(tables) => tables.find(block, min_match, repeat, store),
            Finder::DoubleFast(tables) => tables.find(block, min_match, repeat, store),
            Finder::Lazy(tables) => lazy::find_block(tables, block, min_match, repeat, store),
            Finder::Divided(tables) => tables.find(block, min_match, repeat, store),
            Finder::Optimal(tables) => tables.find(block, repeat, store),
        }
    }
}
