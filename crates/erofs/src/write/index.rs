//! The indexes of compressed files: records, full and compact.

use super::block::{BLOCK_BYTES, BLOCK_LOG2};
use super::unit::{PlacedUnit, UnitKind};
use crate::index::{BLOCK_COUNT, PARTIAL as CLUSTER_PARTIAL};
use crate::records::{FORMAT_SHIFT, PARTIAL};

/// Kinds of entries: plain, compressed, continued.
const PLAIN: u8 = 0;
const HEAD: u8 = 1;
const CONTINUED: u8 = 2;
/// Bits of an offset or a distance in a compact entry; the kind is above them.
const LOW_BITS: u8 = 12;
/// Entries of a compact pack of 32 bytes, and of one of 8.
const PACK_ENTRIES: u64 = 16;
const SMALL_PACK_ENTRIES: u64 = 2;
const PACK_BYTES: u64 = 32;
const SMALL_PACK_BYTES: u64 = 8;

/// Appends a record of an extent (`struct z_erofs_extent`).
pub(crate) fn emit_record(unit: &PlacedUnit, record_bytes: u64, out: &mut Vec<u8>) {
    let format = match unit.kind {
        UnitKind::Hole | UnitKind::Plain => 0,
        UnitKind::Encoded(codec) => (codec as u32 + 1) << FORMAT_SHIFT,
    };
    let partial = if unit.is_partial { PARTIAL } else { 0 };
    out.extend((unit.stored_len | format | partial).to_le_bytes());
    out.extend(unit.at.to_le_bytes());
    if record_bytes == 16 {
        out.extend((unit.from as u32).to_le_bytes());
    } else {
        out.extend(unit.from.to_le_bytes());
        out.extend([0; 12]);
    }
}

/// The entry of a logical cluster, which is a block of content.
#[derive(Clone, Copy)]
pub(crate) struct ClusterEntry {
    kind: u8,
    is_partial: bool,
    /// The first block of the stored unit.
    block: u32,
    /// The distance back to where the unit begins, or the number of its blocks in place of 1.
    back: u16,
    /// The distance to where the next unit begins.
    ahead: u16,
}

/// The entries of the logical clusters of units.
pub(crate) fn cluster_entries(
    units: impl Iterator<Item = PlacedUnit>,
    size: u64,
) -> impl Iterator<Item = ClusterEntry> {
    let mut units = units.peekable();
    std::iter::from_fn(move || {
        let unit = units.next()?;
        let end = units.peek().map_or(size, |next| next.from);
        let clusters = (end - unit.from).div_ceil(BLOCK_BYTES as u64) as u16;
        // The writer has checked that the whole image has fewer blocks.
        let block = (unit.at >> BLOCK_LOG2) as u32;
        let blocks = unit.stored_len.div_ceil(BLOCK_BYTES as u32) as u16;
        Some((0..clusters).map(move |number| {
            let is_plain = unit.kind == UnitKind::Plain;
            ClusterEntry {
                kind: match number {
                    // Older kernels know plain clusters of one block only.
                    _ if is_plain => PLAIN,
                    0 => HEAD,
                    _ => CONTINUED,
                },
                is_partial: unit.is_partial,
                block: block + if is_plain { number.into() } else { 0 },
                back: if number == 1 {
                    BLOCK_COUNT | blocks
                } else {
                    number
                },
                ahead: clusters - number,
            }
        }))
    })
    .flatten()
}

impl ClusterEntry {
    /// Appends an entry of a full index (`struct z_erofs_lcluster_index`).
    pub(crate) fn emit(&self, out: &mut Vec<u8>) {
        let partial = if self.is_partial && self.kind == HEAD {
            CLUSTER_PARTIAL
        } else {
            0
        };
        out.extend((u16::from(self.kind) | partial).to_le_bytes());
        out.extend([0; 2]);
        let value = match self.kind {
            CONTINUED => u32::from(self.back) | u32::from(self.ahead) << 16,
            _ => self.block,
        };
        out.extend(value.to_le_bytes());
    }
}

/// The number of entries of the packs of 8 bytes before a multiple of 32, and of those of 32 bytes
/// behind them, of a compact index that begins at `at`.
fn pack_forms(at: u64, count: u64) -> (u64, u64) {
    let first = ((PACK_BYTES - at % PACK_BYTES) / 4) & 7;
    let left = count.saturating_sub(first);
    (first.min(count), left - left % PACK_ENTRIES)
}

/// The bytes of a compact index that begins at `at`.
pub(crate) fn compact_bytes(at: u64, count: u64) -> u64 {
    let (first, middle) = pack_forms(at, count);
    let small = |entries: u64| entries.div_ceil(SMALL_PACK_ENTRIES) * SMALL_PACK_BYTES;
    small(first) + middle / PACK_ENTRIES * PACK_BYTES + small(count - first - middle)
}

/// The packs of a compact index that begins at `at`.
pub(crate) fn compact_packs(
    at: u64,
    count: u64,
    mut entries: impl Iterator<Item = ClusterEntry>,
) -> impl Iterator<Item = Vec<u8>> {
    let (first, middle) = pack_forms(at, count);
    let mut done = 0;
    std::iter::from_fn(move || {
        if done >= count {
            return None;
        }
        let (len, bytes) = if (first..first + middle).contains(&done) {
            (PACK_ENTRIES, PACK_BYTES)
        } else {
            (SMALL_PACK_ENTRIES, SMALL_PACK_BYTES)
        };
        done += len;
        let pack: Vec<ClusterEntry> = entries.by_ref().take(len as usize).collect();
        Some(emit_pack(&pack, len as usize, bytes as usize))
    })
}

/// A pack of compact entries, with the block of the first unit that begins or is counted in it.
fn emit_pack(entries: &[ClusterEntry], len: usize, bytes: usize) -> Vec<u8> {
    let mut pack = vec![0; bytes];
    let (bits, address) = pack.split_at_mut(bytes - 4);
    let entry_bits = bits.len() * 8 / len;
    for (number, entry) in entries.iter().enumerate() {
        let is_counted = entry.back & BLOCK_COUNT != 0;
        let low = match entry.kind {
            // The last entry has the distance to the next unit instead.
            CONTINUED if number + 1 == len && !is_counted => entry.ahead,
            CONTINUED => entry.back,
            _ => 0,
        };
        let word =
            (u32::from(low) | u32::from(entry.kind) << LOW_BITS) << (number * entry_bits % 8);
        let from = number * entry_bits / 8;
        for (byte, part) in bits[from..].iter_mut().zip(word.to_le_bytes()) {
            *byte |= part;
        }
    }
    let is_base = |entry: &&ClusterEntry| entry.kind != CONTINUED || entry.back & BLOCK_COUNT != 0;
    let base = entries.iter().find(is_base).map_or(0, |entry| entry.block);
    address.copy_from_slice(&base.to_le_bytes());
    pack
}
