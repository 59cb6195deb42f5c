//! Dynamic VHD images (Microsoft's Virtual Hard Disk Image Format Specification).

use std::io;
use std::path::Path;
use std::sync::Arc;

use tree::ReadAt;

use super::layer::{BlockMap, DiskLayer, OpenedLayer, Run, RunPlace, damaged};
use super::tables::{Tables, be32, be64};
use crate::Result;
use crate::error::refuse;

const SECTOR: u64 = 512;

/// `Disk Type` in the footer.
const DYNAMIC: u32 = 3;
const DIFFERENCING: u32 = 4;

/// The place of a block that is not there.
const NO_BLOCK: u32 = u32::MAX;

/// Sizes of a block: 2 MiB in nearly all images.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 4096..=256 << 20;

struct Vhd {
    tables: Tables,
    block_bytes: u64,
    /// Bytes of the bitmap before the content of a block.
    bitmap_bytes: u64,
    table_at: u64,
}

/// Reads the copy of the footer and the header.
///
/// # Errors
/// The image breaks the format, or needs a feature that is not read.
pub(super) fn open(file: &Arc<dyn ReadAt>, path: &Path, tables: Tables) -> Result<OpenedLayer> {
    let footer = tables.bytes::<512>(0)?;
    check_sum(&footer, 64, 0)?;
    match be32(&footer, 60) {
        DYNAMIC => {}
        DIFFERENCING => {
            refuse!("it has only the changes of another image; `qemu-img convert` joins them")
        }
        kind => refuse!("its kind {kind} is not one that restow reads"),
    }
    let header_at = be64(&footer, 16);
    let header = tables.bytes::<1024>(header_at)?;
    if !header.starts_with(b"cxsparse") {
        let what = "dynamic VHD image has no header";
        return Err(damaged(what, header_at, be64(&header, 0)));
    }
    check_sum(&header, 36, header_at)?;
    let (disk_bytes, block_bytes) = (be64(&footer, 48), be32(&header, 32));
    if !BLOCK_BYTES.contains(&block_bytes) || !block_bytes.is_power_of_two() {
        let what = "block size of VHD is not a power of two from 4 KiB to 256 MiB";
        return Err(damaged(what, header_at, block_bytes.into()));
    }
    let block_bytes = u64::from(block_bytes);
    let blocks = disk_bytes.div_ceil(block_bytes);
    let table_at = be64(&header, 16);
    let is_there = tables.holds(table_at, blocks.saturating_mul(4));
    if blocks > be32(&header, 28).into() || !is_there {
        let what = "block table of VHD is too short for the disk";
        return Err(damaged(what, header_at, be32(&header, 28).into()));
    }
    let map = Vhd {
        tables,
        block_bytes,
        bitmap_bytes: (block_bytes / SECTOR / 8).next_multiple_of(SECTOR),
        table_at,
    };
    let layer = DiskLayer {
        path: path.to_owned(),
        format: "VHD dynamic".to_owned(),
        disk_bytes,
        block_bytes,
        snapshots: 0,
        file: Arc::clone(file),
        map: Box::new(map),
    };
    Ok(OpenedLayer {
        layer,
        backing: None,
    })
}

/// Compares the sum of all bytes but the sum with its complement at an offset.
fn check_sum(bytes: &[u8], sum_at: usize, at: u64) -> Result<()> {
    let fold = |bytes: &[u8]| bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>();
    let own = bytes.get(sum_at..).and_then(|rest| rest.get(..4));
    let sum = !fold(bytes).wrapping_sub(own.map_or(0, fold));
    let stored = be32(bytes, sum_at);
    if sum != stored {
        let what = "checksum of a VHD header does not match";
        return Err(damaged(what, at, stored.into()));
    }
    Ok(())
}

impl BlockMap for Vhd {
    fn run(&self, at: u64) -> io::Result<Run> {
        let block = at.checked_div(self.block_bytes).unwrap_or(0);
        let inside = at & self.block_bytes.wrapping_sub(1);
        let entry_at = self.table_at.saturating_add(block.saturating_mul(4));
        let place = match u32::from_be_bytes(self.tables.bytes(entry_at)?) {
            NO_BLOCK => RunPlace::Zeros,
            sector => {
                let at = u64::from(sector).saturating_mul(SECTOR);
                let at = at.saturating_add(self.bitmap_bytes);
                RunPlace::Stored(at.saturating_add(inside))
            }
        };
        let len = self.block_bytes.saturating_sub(inside);
        Ok(Run { place, len })
    }
}
