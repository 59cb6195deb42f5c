//! Sparse VMDK images of one file: `monolithicSparse` and `streamOptimized` (VMware's Virtual Disk
//! Format 1.1 and 5.0).

use std::io;
use std::path::Path;
use std::sync::Arc;

use codec::{Algorithm, Decoder};
use tree::{Corrupt, ReadAt, to_u64, to_usize};

use super::layer::{BlockMap, DiskLayer, OpenedLayer, PackedBlock, Run, RunPlace, damage, damaged};
use super::tables::{Tables, le16, le32, le64};
use crate::error::refuse;
use crate::{Result, text};

const SECTOR: u64 = 512;

/// Sizes of a grain, in sectors: VMware and QEMU make 128; a decoded one stays in memory.
const GRAIN_SECTORS: std::ops::RangeInclusive<u64> = 1..=4096;

/// Entries of a grain table: always 512 but in very old images.
const TABLE_ENTRIES_MAX: u32 = 512;

/// Maximum length of the descriptor, a text of some twenty lines.
const DESCRIPTOR_BYTES_MAX: u64 = 64 << 10;

/// Bits of `flags`.
const HAS_ZERO_GRAINS: u32 = 1 << 2;
const IS_COMPRESSED: u32 = 1 << 16;
const HAS_MARKERS: u32 = 1 << 17;

/// The place of a grain directory that stands at the end of a stream.
const AT_END: u64 = u64::MAX;

/// The number of a grain of zeros, if there are such.
const ZERO_GRAIN: u32 = 1;

/// Bytes before the content of a compressed grain: its place, and its length.
const MARKER_BYTES: usize = 12;

/// Why a file without a descriptor is refused.
const NO_DESCRIPTOR: &str =
    "it has no descriptor: one of several extents, which restow does not join";

struct Vmdk {
    tables: Tables,
    disk_bytes: u64,
    grain_bytes: u64,
    directory_at: u64,
    table_entries: u64,
    has_zero_grains: bool,
    is_compressed: bool,
}

/// Reads the header and the descriptor.
///
/// # Errors
/// The image breaks the format, or needs a feature that is not read.
pub(super) fn open(file: &Arc<dyn ReadAt>, path: &Path, tables: Tables) -> Result<OpenedLayer> {
    let mut header = tables.bytes::<512>(0)?;
    let version = le32(&header, 4);
    if !(1..=3).contains(&version) {
        refuse!("version {version} of VMDK, which restow does not read");
    }
    let descriptor_at = le64(&header, 28).saturating_mul(SECTOR);
    let descriptor_bytes = le64(&header, 36).saturating_mul(SECTOR);
    if descriptor_at == 0 || descriptor_bytes == 0 {
        refuse!("{NO_DESCRIPTOR}");
    }
    let len = descriptor_bytes.min(DESCRIPTOR_BYTES_MAX);
    if !tables.holds(descriptor_at, len) {
        let what = "descriptor of a VMDK image lies behind the end of the file";
        return Err(damaged(what, 28, descriptor_at));
    }
    let kind = kind_of(&tables.vec(descriptor_at, len)?)?;
    if le64(&header, 56) == AT_END {
        // The header is repeated before the last sector, with the place of the directory.
        let at = tables.file_bytes().saturating_sub(2 * SECTOR);
        header = tables.bytes::<512>(at)?;
        if !header.starts_with(b"KDMV") {
            let what = "stream-optimised VMDK image has no footer";
            return Err(damaged(what, at, le32(&header, 0).into()));
        }
    }
    let map = parse(tables, &header)?;
    let layer = DiskLayer {
        path: path.to_owned(),
        format: format!("VMDK {kind}"),
        disk_bytes: map.disk_bytes,
        block_bytes: map.grain_bytes,
        snapshots: 0,
        file: Arc::clone(file),
        map: Box::new(map),
    };
    Ok(OpenedLayer {
        layer,
        backing: None,
    })
}

/// The kind of image that the descriptor tells.
fn kind_of(descriptor: &[u8]) -> Result<String> {
    let value_of = |wanted: &str| {
        let lines = descriptor.split(|&byte| byte == b'\n' || byte == 0);
        let mut values = lines.filter_map(|line| {
            let equals = line.iter().position(|&byte| byte == b'=')?;
            let (key, value) = line.split_at(equals);
            let is_wanted = key.trim_ascii().eq_ignore_ascii_case(wanted.as_bytes());
            let value = value.trim_ascii_start().get(1..)?.trim_ascii();
            let value = value.strip_prefix(b"\"").unwrap_or(value);
            is_wanted.then(|| value.strip_suffix(b"\"").unwrap_or(value).to_vec())
        });
        values.next()
    };
    let parent = value_of("parentCID");
    if parent.is_some_and(|parent| !parent.eq_ignore_ascii_case(b"ffffffff")) {
        refuse!("it has only the changes of another image; `qemu-img convert` joins them");
    }
    let Some(kind) = value_of("createType") else {
        refuse!("{NO_DESCRIPTOR}");
    };
    let kind = text::of_name(&kind);
    if kind != "monolithicSparse" && kind != "streamOptimized" {
        refuse!("its kind `{kind}` is not one that restow reads; `qemu-img convert` reads more");
    }
    Ok(kind)
}

fn parse(tables: Tables, header: &[u8]) -> Result<Vmdk> {
    let flags = le32(header, 8);
    let is_compressed = flags & IS_COMPRESSED != 0;
    if is_compressed && (flags & HAS_MARKERS == 0 || le16(header, 77) != 1) {
        refuse!("it is compressed in another way than with markers and deflate");
    }
    let (sectors, grain) = (le64(header, 12), le64(header, 20));
    if !GRAIN_SECTORS.contains(&grain) || !grain.is_power_of_two() {
        let what = "grain size of VMDK is not a power of two up to 2 MiB";
        return Err(damaged(what, 20, grain));
    }
    let entries = le32(header, 44);
    if entries == 0 || entries > TABLE_ENTRIES_MAX {
        let what = "grain table of VMDK has no or too many entries";
        return Err(damaged(what, 44, entries.into()));
    }
    let disk_bytes = sectors.checked_mul(SECTOR);
    let disk_bytes = disk_bytes.ok_or_else(|| {
        let what = "capacity of VMDK is out of range";
        damaged(what, 12, sectors)
    })?;
    let grain_bytes = grain.saturating_mul(SECTOR);
    let span = grain_bytes.saturating_mul(entries.into());
    let directory_at = le64(header, 56).saturating_mul(SECTOR);
    let directory_bytes = disk_bytes.div_ceil(span).saturating_mul(4);
    if directory_at == 0 || !tables.holds(directory_at, directory_bytes) {
        let what = "grain directory of VMDK lies outside of the file";
        return Err(damaged(what, 56, directory_at));
    }
    Ok(Vmdk {
        tables,
        disk_bytes,
        grain_bytes,
        directory_at,
        table_entries: entries.into(),
        has_zero_grains: flags & HAS_ZERO_GRAINS != 0,
        is_compressed,
    })
}

impl BlockMap for Vmdk {
    fn run(&self, at: u64) -> io::Result<Run> {
        let number = at.checked_div(self.grain_bytes).unwrap_or(0);
        let inside = at & self.grain_bytes.wrapping_sub(1);
        let in_directory = number.checked_div(self.table_entries).unwrap_or(0);
        let in_table = number.checked_rem(self.table_entries).unwrap_or(0);
        let entry = |table: u64, index: u64| {
            let at = table.saturating_add(index.saturating_mul(4));
            self.tables.bytes(at).map(u32::from_le_bytes)
        };
        let place = match entry(self.directory_at, in_directory)? {
            0 => RunPlace::Zeros,
            table => {
                let table_at = u64::from(table).saturating_mul(SECTOR);
                match entry(table_at, in_table)? {
                    0 => RunPlace::Zeros,
                    ZERO_GRAIN if self.has_zero_grains => RunPlace::Zeros,
                    grain => {
                        let at = u64::from(grain).saturating_mul(SECTOR);
                        if self.is_compressed {
                            let len = self.grain_bytes;
                            RunPlace::Packed(PackedBlock { at, len }, inside)
                        } else {
                            RunPlace::Stored(at.saturating_add(inside))
                        }
                    }
                }
            }
        };
        let len = self.grain_bytes.saturating_sub(inside);
        Ok(Run { place, len })
    }

    fn unpack(&self, packed: PackedBlock, decoder: &mut Decoder) -> io::Result<Vec<u8>> {
        let marker = self.tables.bytes::<MARKER_BYTES>(packed.at)?;
        let (sector, stored_bytes) = (le64(&marker, 0), le32(&marker, 8));
        let first = sector.saturating_mul(SECTOR);
        // Noise becomes a little longer.
        if u64::from(stored_bytes) > self.grain_bytes.saturating_mul(2) || first >= self.disk_bytes
        {
            let what = "marker of a VMDK grain is out of range";
            let at = packed.at;
            return Err(damage(Corrupt {
                what,
                at,
                got: stored_bytes.into(),
            }));
        }
        let from = packed.at.saturating_add(to_u64(MARKER_BYTES));
        let stored = self.tables.vec(from, stored_bytes.into())?;
        let mut content = vec![0; to_usize(self.grain_bytes)];
        let decoded = decoder.decompress(Algorithm::Zlib, &mut content, &stored);
        let len = decoded.map_err(|error| {
            let error = tree::Error::of_block(error, &stored, from);
            io::Error::new(io::ErrorKind::InvalidData, error)
        })?;
        // The last grain can end with the disk.
        let needed = self.disk_bytes.saturating_sub(first).min(self.grain_bytes);
        if to_u64(len) < needed {
            let what = "compressed VMDK grain is too short";
            let at = packed.at;
            return Err(damage(Corrupt {
                what,
                at,
                got: to_u64(len),
            }));
        }
        Ok(content)
    }
}
