//! qcow2 images, versions 2 and 3 (docs/interop/qcow2 of QEMU).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use codec::{Algorithm, Decoder, ZstdFrame};
use tree::{Corrupt, ReadAt, to_u64};

use super::backing::BackingName;
use super::layer::{BlockMap, DiskLayer, OpenedLayer, PackedBlock, Run, RunPlace, damage, damaged};
use super::tables::{Tables, be32, be64};
use crate::error::refuse;
use crate::{Result, text};

/// Cluster sizes, as powers of two: QEMU opens no others.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;

/// The smallest clusters that have subclusters.
const EXTENDED_BITS_MIN: u32 = 14;

/// `incompatible_features`. Reading does not need the counts of references, which are wrong in a
/// dirty image.
const DIRTY: u64 = 1 << 0;
const MARKED_CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;

/// Header extensions.
const END: u32 = 0;
const BACKING_FORMAT: u32 = 0xe279_2aca;

/// Maximum lengths: of the name of a backing file, as in QEMU, and of that of a format.
const NAME_BYTES_MAX: u32 = 1023;
const FORMAT_BYTES_MAX: u32 = 64;

/// Maximum number of snapshots, and of bytes behind the fixed part of one, as in QEMU.
const SNAPSHOTS_MAX: u32 = 1 << 16;
const EXTRA_BYTES_MAX: u32 = 1024;

/// Snapshots that an error lists.
const LISTED_MAX: usize = 10;

/// In entries of tables: the place of a cluster, and flags.
const PLACE: u64 = 0x00ff_ffff_ffff_fe00;
const IS_ALONE: u64 = 1 << 63;
const IS_COMPRESSED: u64 = 1 << 62;
const IS_ZEROS: u64 = 1;

/// A frame of zstd that was made without a known length has the window of its level.
const WINDOW_MAX: u64 = 8 << 20;

struct Qcow2 {
    tables: Tables,
    cluster_bits: u32,
    l1_at: u64,
    is_v3: bool,
    is_extended: bool,
    algorithm: ClusterCodec,
}

#[derive(Clone, Copy)]
enum ClusterCodec {
    Deflate,
    Zstd,
}

/// Reads the header.
///
/// # Errors
/// The image breaks the format, or needs a feature that is not read.
pub(super) fn open(
    file: &Arc<dyn ReadAt>,
    path: &Path,
    tables: Tables,
    snapshot: Option<&OsStr>,
) -> Result<OpenedLayer> {
    let mut header = tables.bytes::<72>(0)?.to_vec();
    let version = be32(&header, 4);
    let is_v3 = match version {
        2 => false,
        3 => true,
        _ => refuse!("version {version}, which restow does not read: only 2 and 3"),
    };
    let cluster_bits = be32(&header, 20);
    if !CLUSTER_BITS.contains(&cluster_bits) {
        let what = "cluster size of qcow2 is not 512 bytes to 2 MiB";
        return Err(damaged(what, 20, cluster_bits.into()));
    }
    let cluster_bytes = 1u64.wrapping_shl(cluster_bits);
    if be32(&header, 32) != 0 {
        refuse!("its content is encrypted; `qemu-img convert` with the key decrypts it");
    }
    let mut header_bytes = 72;
    let (mut is_extended, mut algorithm) = (false, ClusterCodec::Deflate);
    if is_v3 {
        header = tables.bytes::<112>(0)?.to_vec();
        header_bytes = u64::from(be32(&header, 100));
        if header_bytes < 104 || header_bytes > cluster_bytes {
            let what = "header length of qcow2 is out of range";
            return Err(damaged(what, 100, header_bytes));
        }
        let features = be64(&header, 72);
        if features & EXTERNAL_DATA != 0 {
            refuse!("its data is in another file; `qemu-img convert` reads it");
        }
        let known = DIRTY | MARKED_CORRUPT | COMPRESSION_TYPE | EXTENDED_L2;
        if features & !known != 0 {
            refuse!("it needs features that restow does not know ({features:#x})");
        }
        is_extended = features & EXTENDED_L2 != 0;
        if is_extended && cluster_bits < EXTENDED_BITS_MIN {
            let what = "clusters of qcow2 are too small for subclusters";
            return Err(damaged(what, 20, cluster_bits.into()));
        }
        if features & COMPRESSION_TYPE != 0 {
            let kind = header.get(104).copied().filter(|_| header_bytes > 104);
            algorithm = match kind.unwrap_or(0) {
                1 => ClusterCodec::Zstd,
                kind => refuse!("its compression {kind} is not one that restow reads"),
            };
        }
    }
    let (disk_bytes, l1_len, l1_at) = match snapshot {
        Some(wanted) => find_snapshot(&tables, &header, wanted)?,
        None => (be64(&header, 24), be32(&header, 36), be64(&header, 40)),
    };
    let map = Qcow2 {
        cluster_bits,
        l1_at,
        is_v3,
        is_extended,
        algorithm,
        tables,
    };
    let needed = disk_bytes.div_ceil(map.l2_span());
    if needed > l1_len.into() {
        let what = "L1 table of qcow2 is too short for the disk";
        return Err(damaged(what, 36, l1_len.into()));
    }
    let l1_bytes = needed.saturating_mul(8);
    if !l1_at.is_multiple_of(cluster_bytes) || !map.tables.holds(l1_at, l1_bytes) {
        let what = "L1 table of qcow2 lies outside of the file";
        return Err(damaged(what, 40, l1_at));
    }
    let backing = backing(&map.tables, &header, header_bytes, cluster_bytes)?;
    let layer = DiskLayer {
        path: path.to_owned(),
        format: format!("qcow2 version {version}"),
        disk_bytes,
        block_bytes: cluster_bytes,
        snapshots: be32(&header, 60),
        file: Arc::clone(file),
        map: Box::new(map),
    };
    Ok(OpenedLayer { layer, backing })
}

/// The size of the disk, and the length and the place of the L1 table, in the internal snapshot
/// with this ID or, if there is none, with this name.
fn find_snapshot(tables: &Tables, header: &[u8], wanted: &OsStr) -> Result<(u64, u32, u64)> {
    let (count, mut at) = (be32(header, 60), be64(header, 64));
    if count > SNAPSHOTS_MAX {
        let what = "qcow2 has more snapshots than QEMU makes";
        return Err(damaged(what, 60, count.into()));
    }
    let (mut named, mut listed) = (None, Vec::new());
    for _ in 0..count {
        let entry = tables.bytes::<40>(at)?;
        let [id_bytes, name_bytes] = [be32(&entry, 12) >> 16, be32(&entry, 12) & 0xffff];
        let extra_bytes = be32(&entry, 36);
        if extra_bytes > EXTRA_BYTES_MAX {
            let what = "snapshot of qcow2 has too many extra bytes";
            return Err(damaged(what, at, extra_bytes.into()));
        }
        let extra_at = at.saturating_add(40);
        let disk_bytes = if extra_bytes >= 16 {
            be64(&tables.bytes::<16>(extra_at)?, 8)
        } else {
            be64(header, 24)
        };
        let id_at = extra_at.saturating_add(extra_bytes.into());
        let name_at = id_at.saturating_add(id_bytes.into());
        let id = tables.vec(id_at, id_bytes.into())?;
        let name = tables.vec(name_at, name_bytes.into())?;
        let found = (disk_bytes, be32(&entry, 8), be64(&entry, 0));
        if id == wanted.as_bytes() {
            return Ok(found);
        }
        if name == wanted.as_bytes() {
            named.get_or_insert(found);
        }
        if listed.len() < LISTED_MAX {
            listed.push(format!("{} ({})", text::of_name(&id), text::of_name(&name)));
        }
        let end = name_at.saturating_add(name_bytes.into());
        at = end.saturating_add(7) & !7;
    }
    let Some(found) = named else {
        let wanted = text::of_name(wanted.as_bytes());
        let (list, more) = (listed.join(", "), to_u64(listed.len()) < count.into());
        match count {
            0 => refuse!("snapshot {wanted} does not exist, nor any other"),
            _ => refuse!(
                "snapshot {wanted} does not exist; there are {list}{}",
                if more { ", and more" } else { "" }
            ),
        }
    };
    Ok(found)
}

/// The name of the backing file, and its format in the extensions of the header.
fn backing(
    tables: &Tables,
    header: &[u8],
    header_bytes: u64,
    cluster_bytes: u64,
) -> Result<Option<BackingName>> {
    let (name_at, name_bytes) = (be64(header, 8), be32(header, 16));
    if name_at == 0 {
        return Ok(None);
    }
    let name_end = name_at.saturating_add(name_bytes.into());
    if name_bytes > NAME_BYTES_MAX || name_at < header_bytes || name_end > cluster_bytes {
        let what = "name of a qcow2 backing file is not in the first cluster";
        return Err(damaged(what, 8, name_at));
    }
    let mut format = None;
    let mut at = header_bytes;
    while at.saturating_add(8) <= name_at {
        let extension = tables.bytes::<8>(at)?;
        let (kind, len) = (be32(&extension, 0), be32(&extension, 4));
        if kind == END {
            break;
        }
        let data_at = at.saturating_add(8);
        if data_at.saturating_add(len.into()) > name_at
            || kind == BACKING_FORMAT && len > FORMAT_BYTES_MAX
        {
            let what = "header extension of qcow2 is too long";
            return Err(damaged(what, at, len.into()));
        }
        if kind == BACKING_FORMAT {
            format = Some(tables.vec(data_at, len.into())?);
        }
        at = data_at.saturating_add(u64::from(len).next_multiple_of(8));
    }
    let name = tables.vec(name_at, name_bytes.into())?;
    Ok(Some(BackingName { name, format }))
}

impl Qcow2 {
    fn cluster_bytes(&self) -> u64 {
        1u64.wrapping_shl(self.cluster_bits)
    }

    /// The logarithm of the number of entries in an L2 table.
    fn l2_bits(&self) -> u32 {
        let entry_bits = if self.is_extended { 4 } else { 3 };
        self.cluster_bits.saturating_sub(entry_bits)
    }

    /// Bytes of the disk that an L2 table describes.
    fn l2_span(&self) -> u64 {
        1u64.wrapping_shl(self.cluster_bits.saturating_add(self.l2_bits()))
    }

    /// The cluster that an entry at `at` names.
    fn cluster(&self, entry: u64, at: u64) -> io::Result<u64> {
        let place = entry & PLACE;
        if place & self.cluster_bytes().wrapping_sub(1) != 0 {
            let what = "entry of a qcow2 table is not the beginning of a cluster";
            return Err(damage(Corrupt {
                what,
                at,
                got: entry,
            }));
        }
        Ok(place)
    }

    fn compressed(&self, entry: u64, entry_at: u64, inside: u64) -> io::Result<RunPlace> {
        let place_bits = 70u32.saturating_sub(self.cluster_bits);
        let at = entry & 1u64.wrapping_shl(place_bits).wrapping_sub(1);
        let sectors = (entry & !(IS_ALONE | IS_COMPRESSED)).wrapping_shr(place_bits);
        let len = sectors.saturating_add(1).saturating_mul(512);
        let len = len.saturating_sub(at % 512);
        // The file can end within the last sector.
        let left = self.tables.file_bytes().saturating_sub(at);
        if left == 0 {
            let what = "compressed cluster of qcow2 lies behind the end of the file";
            let at = entry_at;
            return Err(damage(Corrupt {
                what,
                at,
                got: entry,
            }));
        }
        let len = len.min(left);
        Ok(RunPlace::Packed(PackedBlock { at, len }, inside))
    }

    /// A part of a cluster that has subclusters, from the byte `inside`, and how many follow.
    fn subcluster(&self, entry: u64, entry_at: u64, inside: u64) -> io::Result<(RunPlace, u64)> {
        let bitmap_at = entry_at.saturating_add(8);
        let bitmap = u64::from_be_bytes(self.tables.bytes(bitmap_at)?);
        let sub_bits = self.cluster_bits.saturating_sub(5);
        let number = low_bits(inside.wrapping_shr(sub_bits));
        let is_set = |bit: u32| bitmap.wrapping_shr(bit) & 1 != 0;
        let left = 1u64.wrapping_shl(sub_bits);
        let left = left.saturating_sub(inside & left.wrapping_sub(1));
        let place = self.cluster(entry, entry_at)?;
        let place = match (is_set(number), is_set(number.saturating_add(32))) {
            (false, false) => RunPlace::Behind,
            (false, true) => RunPlace::Zeros,
            (true, false) if place != 0 => RunPlace::Stored(place.saturating_add(inside)),
            _ => {
                let what = "subcluster of qcow2 is stored nowhere, or stored and zero";
                return Err(damage(Corrupt {
                    what,
                    at: bitmap_at,
                    got: bitmap,
                }));
            }
        };
        Ok((place, left))
    }
}

/// The number of a subcluster: there are 32.
fn low_bits(number: u64) -> u32 {
    tree::low_u32(number) & 31
}

impl BlockMap for Qcow2 {
    fn run(&self, at: u64) -> io::Result<Run> {
        let span = self.l2_span();
        let l1_bits = self.cluster_bits.saturating_add(self.l2_bits());
        let l1_index = at.wrapping_shr(l1_bits);
        let l1_at = self.l1_at.saturating_add(l1_index.saturating_mul(8));
        let l1 = u64::from_be_bytes(self.tables.bytes(l1_at)?);
        if l1 & !(PLACE | IS_ALONE) != 0 {
            let what = "entry of a qcow2 L1 table has reserved bits";
            return Err(damage(Corrupt {
                what,
                at: l1_at,
                got: l1,
            }));
        }
        let l2 = self.cluster(l1, l1_at)?;
        if l2 == 0 {
            return Ok(Run {
                place: RunPlace::Behind,
                len: span.saturating_sub(at & span.wrapping_sub(1)),
            });
        }
        let l2_mask = 1u64.wrapping_shl(self.l2_bits()).wrapping_sub(1);
        let l2_index = at.wrapping_shr(self.cluster_bits) & l2_mask;
        let entry_bytes = if self.is_extended { 16 } else { 8 };
        let entry_at = l2.saturating_add(l2_index.saturating_mul(entry_bytes));
        let entry = u64::from_be_bytes(self.tables.bytes(entry_at)?);
        let inside = at & self.cluster_bytes().wrapping_sub(1);
        let left = self.cluster_bytes().saturating_sub(inside);
        if entry & IS_COMPRESSED != 0 {
            let place = self.compressed(entry, entry_at, inside)?;
            return Ok(Run { place, len: left });
        }
        let has_zero_flag = self.is_v3 && !self.is_extended;
        let flags = if has_zero_flag { IS_ZEROS } else { 0 };
        if entry & !(PLACE | IS_ALONE | flags) != 0 {
            let what = "entry of a qcow2 L2 table has reserved bits";
            return Err(damage(Corrupt {
                what,
                at: entry_at,
                got: entry,
            }));
        }
        if self.is_extended {
            let (place, len) = self.subcluster(entry, entry_at, inside)?;
            return Ok(Run { place, len });
        }
        let place = match self.cluster(entry, entry_at)? {
            _ if entry & IS_ZEROS != 0 => RunPlace::Zeros,
            0 => RunPlace::Behind,
            place => RunPlace::Stored(place.saturating_add(inside)),
        };
        Ok(Run { place, len: left })
    }

    fn unpack(&self, packed: PackedBlock, decoder: &mut Decoder) -> io::Result<Vec<u8>> {
        let stored = self.tables.vec(packed.at, packed.len)?;
        let mut content = vec![0; tree::to_usize(self.cluster_bytes())];
        let decoded = match self.algorithm {
            ClusterCodec::Deflate => decoder.decompress_deflate(&mut content, &stored),
            ClusterCodec::Zstd => {
                // The next cluster can follow.
                let frame = ZstdFrame::parse(&stored, WINDOW_MAX).map(|frame| frame.bytes);
                let frame = frame.and_then(|len| stored.get(..len)).unwrap_or(&stored);
                decoder.decompress(Algorithm::Zstd, &mut content, frame)
            }
        };
        let wrong = |got| {
            let what = "compressed cluster of qcow2 is damaged";
            let at = packed.at;
            damage(Corrupt { what, at, got })
        };
        match decoded {
            Ok(len) if len == content.len() => Ok(content),
            Ok(len) => Err(wrong(to_u64(len))),
            Err(error) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                tree::Error::of_block(error, &stored, packed.at),
            )),
        }
    }
}
