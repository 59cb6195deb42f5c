//! Match finders: from bytes to sequences, one strategy a file.
//!
//! A finder's tables hold *indexes*: positions counted from an origin that only moves forward from frame to frame.
//! What an earlier frame left in a table is then smaller than every index of this frame, and is ignored: tables need
//! no clearing between frames. Index 0 is never valid.
//!
//! A finder for blocks has this shape, which `optimal` follows too:
//!
//! - `Tables::bytes`: bytes of workspace, growing with every parameter;
//! - `Tables::carve`: takes them;
//! - `clear(&mut self)`: forgets everything, called when the bytes may hold something else;
//! - `reduce(&mut self, by: u32)`: every index falls by `by`, to 0 at least. Called when indexes near the largest that a
//!   table can hold; it must not change what is found;
//! - `start_frame(&mut self)`: a new frame begins (its indexes are above all earlier ones);
//! - `insert(&mut self, &Block, min_match)`: makes `data[start..end]` known without looking for matches (dictionaries);
//! - `find(&mut self, &Block, min_match, &mut [u32; 3], &mut SequenceStore) -> usize`.

pub(crate) mod double_fast;
pub(crate) mod fast;
pub(crate) mod lazy;
pub(crate) mod memory;
pub(crate) mod optimal;
pub(crate) mod row;

use self::memory::Memory;
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

/// What a finder works on.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    /// History that matches may refer to (all of it belongs to this frame), then the block, perhaps then more.
    ///
    /// At most 2^28 bytes.
    pub(crate) data: &'a [u8],
    /// Where the block begins in `data`.
    pub(crate) start: usize,
    /// Where it ends: no match reaches beyond.
    pub(crate) end: usize,
    /// Index of `data[0]`, at least 1.
    pub(crate) base: u32,
    /// Largest offset.
    pub(crate) window: u32,
}

/// The four bytes at `at` as a number.
#[inline(always)]
pub(crate) fn read32(data: &[u8], at: usize) -> u32 {
    let bytes: [u8; 4] = data[at..][..4].try_into().unwrap_or_default();
    u32::from_le_bytes(bytes)
}

/// The eight bytes at `at` as a number.
#[inline(always)]
pub(crate) fn read64(data: &[u8], at: usize) -> u64 {
    let bytes: [u8; 8] = data[at..][..8].try_into().unwrap_or_default();
    u64::from_le_bytes(bytes)
}

/// Multiplier of the hashes: 2^64 divided by the golden ratio.
pub(crate) const PRIME: u64 = 0x9e37_79b9_7f4a_7c15;

/// Bits of an index in a cell with a tag where the window is of at most 256 KiB.
const INDEX_LOG: u32 = 20;

/// Bits of an index in a cell with a tag: enough for twice the window.
pub(crate) fn index_log(window_log: u8) -> u32 {
    INDEX_LOG.max(u32::from(window_log) + 2)
}

/// Which cell a position has, from the eight bytes there, by a hash of the first `BYTES`, and what that cell then holds: the
/// index and above it a *tag*, a hash of the first four bytes or fewer.
///
/// The difference between this and what a cell holds is the distance if the tags are equal, and else far too large: one
/// comparison says that the tags are equal, that the index is of this frame, and that the window reaches there. Only then
/// the bytes themselves are looked at.
#[inline(always)]
fn tagged<M: Memory, const BYTES: u32>(
    value: u64,
    index: usize,
    shift: u32,
    index_log: u32,
) -> (usize, u32) {
    // A rotation leaves the product where it is, a shift needs a copy first: the compiler must not see that both are the same
    // here.
    let product = M::opaque_word((value << (64 - 8 * BYTES)).wrapping_mul(PRIME));
    // The highest bits below those of the cell's number; for a match of four bytes, that only the first four decide.
    let below = if BYTES == 8 {
        shift
    } else {
        shift.min(96 - 8 * BYTES)
    };
    let rotated = M::opaque_word(product.rotate_right(below.wrapping_sub(32) & 31));
    let tag = rotated as u32 & (u32::MAX << (index_log & 31));
    // The index has no bits of the tag: a sum is the same as joining them, and may be put off by those who add to it.
    let place = (product >> (shift & 63)) as usize;
    (place, tag.wrapping_add(index as u32))
}

/// Lowers every index of a table whose cells have tags; those that fall to 0 or below leave a 0.
fn reduce_tagged(table: &mut [[u8; 4]], by: u32, index_log: u32) {
    let mask = (1 << index_log) - 1;
    for cell in table {
        let kept = u32::from_ne_bytes(*cell);
        // Numbers below 2^31 that are compared with their sign: that is what vectors can do.
        let stays = (kept & mask).cast_signed() > by.cast_signed();
        let lowered = kept.wrapping_sub(by) & 0_u32.wrapping_sub(stays.into());
        *cell = lowered.to_ne_bytes();
    }
}

/// Lowers every index of a table, to 0 at least.
pub(crate) fn reduce(table: &mut [[u8; 4]], by: u32) {
    for cell in table {
        *cell = u32::from_ne_bytes(*cell).saturating_sub(by).to_ne_bytes();
    }
}
