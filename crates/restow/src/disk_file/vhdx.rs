//! VHDX images (\[MS-VHDX\]).

use std::io;
use std::path::Path;
use std::sync::Arc;

use tree::{Corrupt, ReadAt, to_u64, to_usize};

use super::layer::{BlockMap, DiskLayer, OpenedLayer, Run, RunPlace, damage, damaged};
use super::tables::{Tables, le16, le32, le64};
use crate::error::refuse;
use crate::partitions::{CRC32C, crc32};
use crate::{Error, Result};

const MIB: u64 = 1 << 20;

/// Where the two headers and the two region tables are, and their lengths.
const HEADERS_AT: [u64; 2] = [64 << 10, 128 << 10];
const HEADER_BYTES: usize = 4096;
const REGIONS_AT: [u64; 2] = [192 << 10, 256 << 10];
const REGIONS_BYTES: usize = 64 << 10;

/// Maximum number of entries in a table of regions or of metadata.
const ENTRIES_MAX: u32 = 2047;

/// GUIDs as they are stored: of the regions, and of the metadata that is needed.
const BAT: [u8; 16] = *b"\x66\x77\xc2\x2d\x23\xf6\x00\x42\x9d\x64\x11\x5e\x9b\xfd\x4a\x08";
const METADATA: [u8; 16] = *b"\x06\xa2\x7c\x8b\x90\x47\x9a\x4b\xb8\xfe\x57\x5f\x05\x0f\x88\x6e";
const FILE_PARAMETERS: [u8; 16] =
    *b"\x37\x67\xa1\xca\x36\xfa\x43\x4d\xb3\xb6\x33\xf0\xaa\x44\xe7\x6b";
const DISK_SIZE: [u8; 16] = *b"\x24\x42\xa5\x2f\x1b\xcd\x76\x48\xb2\x11\x5d\xbe\xd8\x3b\xf4\xb8";
const SECTOR_SIZE: [u8; 16] = *b"\x1d\xbf\x41\x81\x6f\xa9\x09\x47\xba\x47\xf2\x33\xa8\xfa\xab\x5f";

/// Flags of entries: a region that must be known, and metadata that must be.
const REGION_REQUIRED: u32 = 1;
const ITEM_REQUIRED: u32 = 1 << 2;

/// Required metadata that reading does not need: the size of physical sectors, and the identity.
const OTHER_ITEMS: [[u8; 16]; 2] = [
    *b"\xc7\x48\xa3\xcd\x5d\x44\x71\x44\x9c\xc9\xe9\x88\x52\x51\xc5\x56",
    *b"\xab\x12\xca\xbe\xe6\xb2\x23\x45\x93\xef\xc3\x09\xe0\x00\xc7\x46",
];

/// The flag of an image that has only the changes of a parent.
const HAS_PARENT: u32 = 1 << 1;

/// Sizes of a block.
const BLOCK_BYTES: std::ops::RangeInclusive<u64> = MIB..=256 * MIB;

/// Bits of an entry of the block table: the state, and the place in mebibytes.
const STATE: u64 = 7;
const PLACE: u64 = !(MIB - 1);

struct Vhdx {
    tables: Tables,
    bat_at: u64,
    block_bytes: u64,
    /// After as many blocks, an entry for a bitmap follows.
    chunk_blocks: u64,
}

/// Reads the headers, the regions and the metadata.
///
/// # Errors
/// The image breaks the format, or needs a feature that is not read.
pub(super) fn open(file: &Arc<dyn ReadAt>, path: &Path, tables: Tables) -> Result<OpenedLayer> {
    check_log(&tables)?;
    let [bat, metadata] = regions(&tables)?;
    let item = |item| metadata_item(&tables, metadata, item);
    let parameters = item(FILE_PARAMETERS)?;
    let (block_bytes, flags) = (u64::from(le32(&parameters, 0)), le32(&parameters, 4));
    if flags & HAS_PARENT != 0 {
        refuse!("it has only the changes of another image; `qemu-img convert` joins them");
    }
    let disk_bytes = le64(&item(DISK_SIZE)?, 0);
    let sector_bytes = u64::from(le32(&item(SECTOR_SIZE)?, 0));
    let is_block_valid = BLOCK_BYTES.contains(&block_bytes) && block_bytes.is_power_of_two();
    if !is_block_valid || ![512, 4096].contains(&sector_bytes) {
        let what = "block or sector size of VHDX is out of range";
        return Err(damaged(what, metadata.0, block_bytes));
    }
    let sectors_of_chunk = sector_bytes.saturating_mul(1 << 23);
    let chunk_blocks = sectors_of_chunk.checked_div(block_bytes).unwrap_or(1);
    let blocks = disk_bytes.div_ceil(block_bytes);
    let entries = blocks.saturating_add(blocks.checked_div(chunk_blocks).unwrap_or(0));
    if entries.saturating_mul(8) > bat.1 {
        let what = "block table of VHDX is too short for the disk";
        return Err(damaged(what, bat.0, bat.1));
    }
    let map = Vhdx {
        tables,
        bat_at: bat.0,
        block_bytes,
        chunk_blocks,
    };
    let layer = DiskLayer {
        path: path.to_owned(),
        format: "VHDX".to_owned(),
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

/// Refuses an image that was not closed: its tables lack the changes in its log.
fn check_log(tables: &Tables) -> Result<()> {
    let mut newest: Option<(u64, [u8; HEADER_BYTES])> = None;
    for at in HEADERS_AT {
        let header = tables.bytes::<HEADER_BYTES>(at)?;
        let number = le64(&header, 8);
        if is_valid(&header, b"head") && newest.is_none_or(|(newest, _)| number > newest) {
            newest = Some((number, header));
        }
    }
    let Some((_, header)) = newest else {
        let what = "neither header of VHDX is valid";
        return Err(damaged(what, HEADERS_AT[0], 0));
    };
    if le16(&header, 66) != 1 {
        refuse!(
            "version {} of VHDX, which restow does not read",
            le16(&header, 66)
        );
    }
    let log = header.get(48..64).unwrap_or_default();
    if log.iter().any(|&byte| byte != 0) {
        refuse!("its log has to be replayed: `qemu-img check -r all` does that");
    }
    Ok(())
}

/// Whether a header or table has this mark and the right checksum.
fn is_valid(bytes: &[u8], mark: &[u8; 4]) -> bool {
    let mut without_sum = bytes.to_vec();
    if let Some(sum) = without_sum.get_mut(4..8) {
        sum.fill(0);
    }
    bytes.starts_with(mark) && crc32(&without_sum, CRC32C) == le32(bytes, 4)
}

/// Where the block table and the metadata are, with their lengths.
fn regions(tables: &Tables) -> Result<[(u64, u64); 2]> {
    let mut table = None;
    for at in REGIONS_AT {
        let bytes = tables.vec(at, to_u64(REGIONS_BYTES))?;
        if table.is_none() && is_valid(&bytes, b"regi") {
            table = Some(bytes);
        }
    }
    let table = table.ok_or_else(|| {
        let what = "neither region table of VHDX is valid";
        damaged(what, REGIONS_AT[0], 0)
    })?;
    let mut found = [None; 2];
    for (kind, entry) in entries(&table, 16, le32(&table, 8)) {
        let place = (le64(entry, 16), u64::from(le32(entry, 24)));
        let number = [BAT, METADATA].iter().position(|known| *known == kind);
        match number.and_then(|number| found.get_mut(number)) {
            Some(found) => *found = Some(place),
            None if le32(entry, 28) & REGION_REQUIRED != 0 => {
                refuse!("it needs a region that restow does not know")
            }
            None => {}
        }
    }
    for (at, len) in found.iter().flatten() {
        if !tables.holds(*at, *len) || !at.is_multiple_of(MIB) {
            let what = "region of VHDX lies outside of the file";
            return Err(damaged(what, *at, *len));
        }
    }
    let [Some(bat), Some(metadata)] = found else {
        let what = "region of VHDX is missing";
        return Err(damaged(what, REGIONS_AT[0], 0));
    };
    Ok([bat, metadata])
}

/// The entries of a table, each with its GUID.
fn entries(table: &[u8], from: usize, count: u32) -> impl Iterator<Item = ([u8; 16], &[u8])> {
    let entries = table.get(from..).unwrap_or_default().chunks_exact(32);
    let entries = entries.take(to_usize(count.min(ENTRIES_MAX)));
    entries.filter_map(|entry| Some((*entry.first_chunk::<16>()?, entry)))
}

/// The beginning of an item of the metadata.
fn metadata_item(tables: &Tables, (at, len): (u64, u64), wanted: [u8; 16]) -> Result<[u8; 8]> {
    let table = tables.vec(at, len.min(to_u64(REGIONS_BYTES)))?;
    if !table.starts_with(b"metadata") {
        let what = "metadata table of VHDX has no mark";
        return Err(damaged(what, at, le64(&table, 0)));
    }
    let mut found = None;
    for (kind, entry) in entries(&table, 32, le16(&table, 10).into()) {
        let known = [FILE_PARAMETERS, DISK_SIZE, SECTOR_SIZE];
        let is_known = known.iter().chain(&OTHER_ITEMS).any(|known| *known == kind);
        if kind == wanted {
            found = Some((u64::from(le32(entry, 16)), u64::from(le32(entry, 20))));
        } else if !is_known && le32(entry, 24) & ITEM_REQUIRED != 0 && !is_parent(kind) {
            refuse!("it needs metadata that restow does not know");
        }
    }
    let missing = || -> Error {
        let what = "metadata of VHDX is missing or lies outside of its region";
        damaged(what, at, found.map_or(0, |(from, _)| from))
    };
    let (from, item_bytes) = found.ok_or_else(missing)?;
    if !(4..=len).contains(&item_bytes) || from.saturating_add(8) > len {
        return Err(missing());
    }
    Ok(tables.bytes(at.saturating_add(from))?)
}

/// Whether it is the place of the parent, which the flags say better.
fn is_parent(kind: [u8; 16]) -> bool {
    kind == *b"\x2d\x5f\xd3\xa8\x0b\xb3\x4d\x45\xab\xf7\xd3\xd8\x48\x34\xab\x0c"
}

impl BlockMap for Vhdx {
    fn run(&self, at: u64) -> io::Result<Run> {
        let block = at.checked_div(self.block_bytes).unwrap_or(0);
        let inside = at & self.block_bytes.wrapping_sub(1);
        let bitmaps = block.checked_div(self.chunk_blocks).unwrap_or(0);
        let index = block.saturating_add(bitmaps);
        let entry_at = self.bat_at.saturating_add(index.saturating_mul(8));
        let entry = u64::from_le_bytes(self.tables.bytes(entry_at)?);
        let place = match entry & STATE {
            // Not present, undefined, zero, unmapped.
            0..=3 => RunPlace::Zeros,
            6 => RunPlace::Stored((entry & PLACE).saturating_add(inside)),
            _ => {
                let what = "state of a VHDX block is unknown";
                return Err(damage(Corrupt {
                    what,
                    at: entry_at,
                    got: entry,
                }));
            }
        };
        let len = self.block_bytes.saturating_sub(inside);
        Ok(Run { place, len })
    }
}
