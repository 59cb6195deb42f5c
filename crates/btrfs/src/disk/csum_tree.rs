//! The checksum tree: a checksum for each sector of data on disk, compressed or not.

use tree::{Error, Result, to_u64, to_usize};

use crate::disk::address_space::AddressSpace;
use crate::disk::key::{Key, Logical, item, object};
use crate::disk::node::TreeItem;
use crate::disk::superblock::Superblock;
use crate::disk::tree::Tree;
use crate::disk::volume::Volume;

/// Bytes of data read at once from a copy.
const READ_BYTES_MAX: usize = 1 << 20;

/// Parses an item and returns the address range that it covers.
pub(crate) fn parse_item(item: &TreeItem<'_>, superblock: &Superblock) -> Result<(u64, u64)> {
    let sector = u64::from(superblock.sectorsize);
    let size = superblock.checksum.size();
    if (item.key.objectid, item.key.kind) != (object::EXTENT_CSUM, item::EXTENT_CSUM) {
        return Err(item.corrupt(
            "item in the checksum tree is of an unexpected kind",
            item.key.objectid,
        ));
    }
    let start = item.key.offset;
    if !start.is_multiple_of(sector) {
        return Err(item.corrupt("checksums begin within a sector", start));
    }
    if item.data.is_empty() || !item.data.len().is_multiple_of(size) {
        return Err(item.corrupt("checksum is cut off", to_u64(item.data.len())));
    }
    let sums = item.data.chunks_exact(size).len();
    let bytes = to_u64(sums).checked_mul(sector);
    let end = bytes.and_then(|bytes| start.checked_add(bytes));
    let end = end.ok_or_else(|| item.corrupt("checksums end beyond every address", start))?;
    Ok((start, end))
}

/// Checks that all of the `len` bytes at `at` have checksums.
pub(crate) fn check_presence(volume: &Volume, tree: &Tree, at: Logical, len: u64) -> Result<()> {
    let mut sums = Vec::new();
    for from in (0..len).step_by(READ_BYTES_MAX) {
        let bytes = len.saturating_sub(from).min(to_u64(READ_BYTES_MAX));
        let at = Logical(at.0.saturating_add(from));
        look_up(volume, tree, at, bytes, &mut sums)?;
    }
    Ok(())
}

/// Whether any of the `len` bytes at `at` has a checksum.
pub(crate) fn has_any(volume: &Volume, tree: &Tree, at: Logical, len: u64) -> Result<bool> {
    let key = |at| Key::new(object::EXTENT_CSUM, item::EXTENT_CSUM, at);
    let mut cursor = tree.seek_back(volume, key(at.0))?;
    while let Some(item) = cursor.item() {
        let (from, to) = parse_item(&item, &volume.superblock)?;
        if to > at.0 {
            return Ok(from < at.0.saturating_add(len));
        }
        cursor.advance()?;
    }
    Ok(false)
}

/// Reads the checksums of the `len` bytes at `at`, whole sectors, into `sums`.
fn look_up(volume: &Volume, tree: &Tree, at: Logical, len: u64, sums: &mut Vec<u8>) -> Result<()> {
    let superblock = &volume.superblock;
    let sector = u64::from(superblock.sectorsize);
    let size = to_u64(superblock.checksum.size());
    sums.clear();
    let mut wanted = at.0;
    let sectors = len.checked_div(sector).unwrap_or(0);
    let end = at.0.saturating_add(sectors.saturating_mul(sector));
    let missing = |wanted| Error::corrupt("data has no checksum", wanted, sectors);
    let key = Key::new(object::EXTENT_CSUM, item::EXTENT_CSUM, at.0);
    let last = Key { offset: end, ..key };
    let mut cursor = tree.range_back(volume, key, last)?;
    while wanted < end {
        let Some(item) = cursor.item() else {
            return Err(missing(wanted));
        };
        let (from, to) = parse_item(&item, superblock)?;
        if from > wanted {
            return Err(missing(wanted));
        }
        if to > wanted {
            let sums_before = |at: u64| {
                let sectors = at.saturating_sub(from).checked_div(sector).unwrap_or(0);
                to_usize(sectors.saturating_mul(size))
            };
            let end = to.min(end);
            let found = item.data.get(sums_before(wanted)..sums_before(end));
            sums.extend_from_slice(found.unwrap_or_default());
            wanted = end;
        }
        if wanted < end {
            cursor.advance()?;
        }
    }
    Ok(())
}

/// Fills `dst`, whole sectors, with the data at `at`. Each sector is verified and taken from the
/// first copy in which it is intact; without `checksums`, from the first copy that can be read.
/// `sums` is scratch memory.
pub(crate) fn read_data(
    volume: &Volume,
    checksums: Option<&Tree>,
    at: Logical,
    dst: &mut [u8],
    sums: &mut Vec<u8>,
) -> Result<()> {
    let Some(tree) = checksums else {
        return volume.space.read_verified(at, dst, |_| Ok(()));
    };
    for (index, dst) in dst.chunks_mut(READ_BYTES_MAX).enumerate() {
        let skipped = to_u64(index.saturating_mul(READ_BYTES_MAX));
        let at = Logical(at.0.saturating_add(skipped));
        look_up(volume, tree, at, to_u64(dst.len()), sums)?;
        read_verified(volume, at, dst, sums)?;
    }
    Ok(())
}

fn read_verified(volume: &Volume, at: Logical, dst: &mut [u8], sums: &[u8]) -> Result<()> {
    let checksum = volume.superblock.checksum;
    let size = checksum.size();
    let sector = to_usize(volume.superblock.sectorsize);
    let is_right = |data: &[u8], sum: &[u8]| checksum.of(data).starts_with(sum);
    let chunk = volume.space.chunk(at, to_u64(dst.len()))?;
    let first = volume.space.read_copy(chunk, at, dst, 0);
    let ways = AddressSpace::ways(chunk);
    if first.is_err() && ways == 1 {
        return first;
    }
    for (index, (data, sum)) in dst.chunks_mut(sector).zip(sums.chunks(size)).enumerate() {
        if first.is_ok() && is_right(data, sum) {
            continue;
        }
        let at = Logical(at.0.saturating_add(to_u64(index.saturating_mul(sector))));
        let found = checksum.of(data);
        let mut is_found = false;
        // Retry the first copy too: that the whole range could not be read does not mean that this
        // sector cannot.
        for copy in 0..ways {
            if volume.space.read_copy(chunk, at, data, copy).is_ok() && is_right(data, sum) {
                is_found = true;
                break;
            }
        }
        if !is_found {
            first?;
            return Err(Error::corrupt(
                "data's checksum differs",
                at.0,
                u32::from_le_bytes([found[0], found[1], found[2], found[3]]).into(),
            ));
        }
    }
    Ok(())
}
