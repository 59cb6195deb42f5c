//! The header of a file's index, and the entries of its logical clusters.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{Error, Result, to_u64, to_usize};

use crate::fields::u32_at;
use crate::inode::{Inode, MetaAt};

/// Bits of `h_advise`. The first has two meanings.
pub(crate) const ADVISE_RECORDS: u16 = 0x1;
pub(crate) const ADVISE_COMPACTED_2B: u16 = 0x1;
pub(crate) const ADVISE_BIG_1: u16 = 0x2;
pub(crate) const ADVISE_BIG_2: u16 = 0x4;
pub(crate) const ADVISE_INLINE: u16 = 0x8;
pub(crate) const ADVISE_INTERLACED: u16 = 0x10;
pub(crate) const ADVISE_FRAGMENT: u16 = 0x20;
/// `h_clusterbits`: the whole file is a fragment.
pub(crate) const WHOLE_FRAGMENT: u8 = 0x80;
/// `Z_EROFS_LI_D0_CBLKCNT`: the distance is a number of blocks instead.
pub(crate) const BLOCK_COUNT: u16 = 0x800;
/// Bits of the type in a full index: content goes on behind the shown part; nothing is stored.
pub(crate) const PARTIAL: u16 = 0x8000;
pub(crate) const HOLE: u16 = 0x4000;

/// A file's inode and the header of its index.
pub(crate) struct IndexedFile {
    pub(crate) inode: Inode,
    pub(crate) header: Option<IndexHeader>,
    /// The end of the index, before an inline cluster.
    pub(crate) end: MetaAt,
}

/// The header of an index (`struct z_erofs_map_header`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum IndexHeader {
    /// The whole file is at this offset in the packed inode.
    Fragment(u64),
    /// Records of extents; with the logarithm of the bytes that each covers, if they are in a row.
    Records {
        count: u64,
        record_bytes: u8,
        cluster_log2: u8,
        is_interlaced: bool,
        has_fragment: bool,
        at: MetaAt,
        /// Of records of 4 bytes: the first address, and that of each 1,024th.
        sums: Vec<u64>,
    },
    /// An index of logical clusters.
    Clusters(ClusterIndex),
}

/// An index of logical clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterIndex {
    pub(crate) is_compact: bool,
    pub(crate) advise: u16,
    pub(crate) formats: [u8; 2],
    pub(crate) log2: u8,
    /// Offset in the packed inode, or the bytes of an inline cluster.
    pub(crate) tail: u32,
    pub(crate) at: MetaAt,
    /// Number of logical clusters.
    pub(crate) count: u64,
}

/// The entry of a logical cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// 0 plain, 1 compressed, 2 continued, 3 compressed with the second codec.
    pub(crate) kind: u8,
    /// Where in it an extent begins.
    pub(crate) offset: u32,
    pub(crate) block: u64,
    pub(crate) is_partial: bool,
    pub(crate) is_hole: bool,
    /// Distance back to where its extent begins, and the number of stored blocks, if it has one.
    pub(crate) back: u16,
    pub(crate) blocks: Option<u16>,
    /// Distance to the next extent, or to an entry before it; 0 if it is not stored.
    pub(crate) ahead: u16,
}

impl Cluster {
    pub(crate) fn is_head(&self) -> bool {
        self.kind != 2
    }

    pub(crate) fn continued(distance: u16) -> Cluster {
        let is_count = distance & BLOCK_COUNT != 0;
        Cluster {
            kind: 2,
            back: if is_count { 1 } else { distance },
            blocks: is_count.then_some(distance & !BLOCK_COUNT),
            ..Cluster::default()
        }
    }
}

/// A part of a file's index: the nid, the first logical cluster, and the entries.
pub(crate) type IndexPart = (u64, u64, Vec<Cluster>);

/// Entries of a compact index that share the address of a block.
pub(crate) struct Pack {
    pub(crate) at: MetaAt,
    pub(crate) bytes: u64,
    /// The first logical cluster, and their number.
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl ClusterIndex {
    /// The numbers of entries of 4 bytes up to a multiple of 32 bytes, and of 2 bytes after them.
    fn forms(&self) -> (u64, u64) {
        let initial = (32_u64.saturating_sub(self.at.at % 32) / 4) & 7;
        let left = self.count.saturating_sub(initial);
        let short = if self.advise & ADVISE_COMPACTED_2B != 0 && initial < self.count {
            left.saturating_sub(left % 16)
        } else {
            0
        };
        (initial, short)
    }

    /// The pack of a logical cluster.
    pub(crate) fn pack(&self, number: u64) -> Pack {
        let (initial, short) = self.forms();
        let middle = self.at.after(initial.saturating_mul(4));
        let short_end = initial.saturating_add(short);
        let (base, from, bytes, count) = if number < initial {
            (self.at, 0, 8, 2)
        } else if number < short_end {
            (middle, initial, 32, 16)
        } else {
            (middle.after(short.saturating_mul(2)), short_end, 8, 2)
        };
        let pack = number.saturating_sub(from).checked_div(count).unwrap_or(0);
        Pack {
            at: base.after(pack.saturating_mul(bytes)),
            bytes,
            first: from.saturating_add(pack.saturating_mul(count)),
            count,
        }
    }

    /// Where an inline cluster is: behind the index.
    pub(crate) fn end(&self) -> MetaAt {
        let last = self.count.saturating_sub(1);
        if self.is_compact {
            let pack = self.pack(last);
            return pack.at.after(pack.bytes);
        }
        self.at.after(self.count.saturating_mul(8))
    }

    pub(crate) fn checked_offset(&self, offset: u32, inode: &Inode) -> Result<u32> {
        if offset >> self.log2 != 0 {
            let what = "extent's offset is larger than its logical cluster";
            return Err(Error::corrupt(what, inode.at.at, offset.into()));
        }
        Ok(offset)
    }

    /// Parses the entries of a pack: bits of an offset or a distance, and 2 bits of the type, for
    /// each; then the address of the block before the first one, or of the first one if clusters
    /// have several blocks.
    pub(crate) fn unpack(&self, bytes: &[u8], pack: &Pack, inode: &Inode) -> Result<Vec<Cluster>> {
        let is_big = self.advise & ADVISE_BIG_1 != 0;
        let (address_at, low_bits) = (bytes.len().saturating_sub(4), u32::from(self.log2.max(12)));
        if pack.count == 16 && self.log2 > 12 {
            return Err(Error::Unsupported(
                "a compact EROFS index of clusters above 4 KiB",
            ));
        }
        let bits = to_u64(address_at)
            .saturating_mul(8)
            .checked_div(pack.count)
            .unwrap_or(0);
        let mut next = u64::from(u32_at(bytes, address_at));
        if !is_big {
            next = next.saturating_add(1);
        }
        let mut entries: Vec<Cluster> = Vec::new();
        // Whether a cluster is open whose blocks are counted as one until an entry says how many.
        let mut is_open = false;
        for number in 0..pack.count {
            let bit = number.saturating_mul(bits);
            let word = u32_at(bytes, to_usize(bit >> 3)) >> (bit & 7);
            let low = word & (1_u32 << low_bits).saturating_sub(1);
            let kind = u8::try_from(word >> low_bits & 3).unwrap_or(0);
            if kind != 2 {
                next = next.saturating_add(u64::from(is_open));
                entries.push(Cluster {
                    kind,
                    offset: self.checked_offset(low, inode)?,
                    block: next,
                    ..Cluster::default()
                });
                is_open = true;
                continue;
            }
            let mut entry = Cluster::continued(u16::try_from(low).unwrap_or(u16::MAX));
            if let Some(blocks) = entry.blocks {
                if !is_big {
                    let what = "cluster counts blocks in an index of single blocks";
                    return Err(Error::corrupt(what, inode.at.at, low.into()));
                }
                next = next.saturating_add(blocks.into());
                is_open = false;
            } else if number.saturating_add(1) == pack.count {
                // The last entry has the distance to the next extent instead.
                let before = entries.last().filter(|before| !before.is_head());
                let back = before.map_or(0, |before| before.back);
                (entry.ahead, entry.back) = (entry.back, back.saturating_add(1));
            }
            entries.push(entry);
        }
        Ok(entries)
    }
}
