//! The indexes of compressed files: full (8 bytes for each cluster) and compact (4 or 2).
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::sync::Arc;

use tree::{Error, Result, to_usize};

use crate::fields::{u8_at, u16_at, u32_at, u64_at};
use crate::image::Erofs;
use crate::index::{
    ADVISE_BIG_1, ADVISE_BIG_2, ADVISE_FRAGMENT, ADVISE_INLINE, ADVISE_INTERLACED, ADVISE_RECORDS,
    Cluster, ClusterIndex, HOLE, IndexHeader, IndexPart, PARTIAL, WHOLE_FRAGMENT,
};
use crate::inode::{Inode, Layout};
use crate::piece::{
    CONTENT_BYTES_MAX, Format, Piece, PieceKind, STORED_BYTES_MAX, StoredCluster, StoredPlace,
};
use crate::superblock::incompat;

/// Number of logical clusters that are parsed at once.
const PART_CLUSTERS: u64 = 512;
/// Steps back to the beginning of an extent, of up to 2,047 logical clusters each.
const STEPS_MAX: u64 = 1 << 16;

impl Erofs {
    pub(crate) fn read_header(&self, inode: &Inode) -> Result<IndexHeader> {
        let place = inode.index_at.aligned(8);
        let corrupt = |what, got: u64| Err(Error::corrupt(what, place.at, got));
        // Linux 7.0 reads no compressed file of such an image, even if its clusters are plain.
        if self.superblock.algorithms == 0 {
            return corrupt(
                "file is compressed, and the superblock has no codec",
                inode.nid,
            );
        }
        let mut header = [0; 8];
        self.read_meta(place, &mut header)?;
        if u8_at(&header, 7) & WHOLE_FRAGMENT != 0 {
            return Ok(IndexHeader::Fragment(u64_at(&header, 0) ^ 1 << 63));
        }
        let advise = u16_at(&header, 4);
        let log2 = self
            .superblock
            .block_log2
            .saturating_add(u8_at(&header, 7) & 15);
        let end = place.after(8);
        if inode.layout == Layout::Full && advise & ADVISE_RECORDS != 0 {
            let record_bytes = 4_u8 << (advise >> 1 & 3);
            let mut header = IndexHeader::Records {
                count: u64::from(u32_at(&header, 0)) | u64::from(u16_at(&header, 6)) << 32,
                record_bytes,
                cluster_log2: log2,
                is_interlaced: advise & ADVISE_INTERLACED != 0,
                has_fragment: advise & ADVISE_FRAGMENT != 0,
                at: end.aligned(record_bytes.into()),
                sums: Vec::new(),
            };
            self.check_records(&header, inode)?;
            self.read_sums(&mut header, inode)?;
            return Ok(header);
        }
        let both = ADVISE_BIG_1 | ADVISE_BIG_2;
        let has_big = self.superblock.incompat & incompat::COMPR_CFGS != 0;
        if advise & both != 0 && !has_big {
            return corrupt(
                "cluster of several blocks in an image without them",
                advise.into(),
            );
        }
        if inode.layout == Layout::Compact && ![0, both].contains(&(advise & both)) {
            return corrupt(
                "compact index has clusters of several blocks by halves",
                advise.into(),
            );
        }
        // The offset behind the header of the full index is not used.
        let at = if inode.layout == Layout::Full {
            end.after(8)
        } else {
            end
        };
        let tail = match advise & (ADVISE_INLINE | ADVISE_FRAGMENT) {
            ADVISE_FRAGMENT => u32_at(&header, 0),
            ADVISE_INLINE => u16_at(&header, 2).into(),
            0 => 0,
            _ => {
                return corrupt(
                    "file has both an inline cluster and a fragment",
                    advise.into(),
                );
            }
        };
        if inode.layout == Layout::Compact && log2 > 14 {
            return Err(Error::Unsupported(
                "a compact EROFS index of clusters above 16 KiB",
            ));
        }
        let algorithms = u8_at(&header, 6);
        let index = ClusterIndex {
            is_compact: inode.layout == Layout::Compact,
            advise,
            formats: [algorithms & 15, algorithms >> 4],
            log2,
            tail,
            at,
            count: inode.size.div_ceil(1 << log2),
        };
        self.check_index(inode, at, index.end().at.saturating_sub(at.at))?;
        Ok(IndexHeader::Clusters(index))
    }

    /// The codec of this number.
    pub(crate) fn format(&self, number: u8, at: u64) -> Result<Format> {
        let format = match number {
            0 => Format::Lz4,
            1 => Format::Lzma,
            2 => Format::Deflate,
            3 => Format::Zstd,
            _ => return Err(Error::Unsupported("an EROFS file with an unknown codec")),
        };
        if self.superblock.algorithms & 1 << number == 0 {
            let what = "file's codec is not one of the superblock";
            return Err(Error::corrupt(what, at, number.into()));
        }
        Ok(format)
    }

    pub(crate) fn cluster_at(
        &self,
        inode: &Inode,
        header: &IndexHeader,
        offset: u64,
    ) -> Result<Piece> {
        match header {
            IndexHeader::Fragment(offset) => Ok(Piece {
                from: 0,
                len: inode.size,
                kind: PieceKind::Fragment(*offset),
            }),
            IndexHeader::Records { .. } => self.record_at(inode, header, offset),
            IndexHeader::Clusters(index) => self.indexed_at(inode, index, offset),
        }
    }

    fn indexed_at(&self, inode: &Inode, index: &ClusterIndex, offset: u64) -> Result<Piece> {
        let corrupt = |what, got: u64| Err(Error::corrupt(what, inode.at.at, got));
        let mut entries = Entries {
            erofs: self,
            inode,
            index,
            part: None,
        };
        let (number, head, steps) = entries.head(offset)?;
        let mut from = (number << index.log2).saturating_add(head.offset.into());
        let mut next = number.saturating_add(1);
        let (mut stored_blocks, mut ahead) = (None, 0);
        let mut is_hole = head.is_hole;
        let end = loop {
            if next >= index.count {
                break inode.size;
            }
            let entry = entries.at(next)?;
            if next == number.saturating_add(1) && !entry.is_head() {
                stored_blocks = entry.blocks;
                is_hole |= entry.blocks == Some(0);
                // Each part of a hole begins at its own entry: a hole can have any number of them.
                let inside = offset >> index.log2;
                if is_hole && inside > next && index.advise & ADVISE_FRAGMENT == 0 {
                    (from, next) = (inside << index.log2, inside);
                    continue;
                }
            }
            let at = next << index.log2;
            if entry.is_head() {
                if ahead > next {
                    let what = "distance leads beyond the beginning of the next extent";
                    return corrupt(what, ahead);
                }
                break at.saturating_add(entry.offset.into());
            }
            ahead = ahead.max(next.saturating_add(entry.ahead.into()));
            let back = u64::from(entry.back);
            if back == 0 || back > next.saturating_sub(number) {
                return corrupt("distance leads beyond the beginning of an extent", back);
            }
            let len = at.saturating_sub(from);
            if !is_hole && len > CONTENT_BYTES_MAX {
                return Err(Error::Unsupported("an EROFS extent of more than 12 MiB"));
            }
            // A hole of any length is shown in parts, which are longer the more steps lead back.
            let part = steps.saturating_mul(PART_CLUSTERS) << index.log2;
            if is_hole && at > offset && len > part.max(CONTENT_BYTES_MAX) {
                break at;
            }
            next = next.saturating_add(1);
        };
        let end = end.min(inode.size);
        let len = end.saturating_sub(from);
        let piece = |kind| Piece { from, len, kind };
        let is_tail = end == inode.size;
        if is_tail && index.advise & ADVISE_FRAGMENT != 0 {
            let high = if inode.layout == Layout::Full {
                head.block << 32
            } else {
                0
            };
            return Ok(piece(PieceKind::Fragment(u64::from(index.tail) | high)));
        }
        if is_hole {
            return Ok(piece(PieceKind::Hole));
        }
        let (place, stored_len);
        if is_tail && index.advise & ADVISE_INLINE != 0 && index.tail > 0 {
            let inline_at = index.end();
            stored_len = index.tail.into();
            self.check_inline(inode, inline_at, stored_len)?;
            place = StoredPlace::Meta(inline_at);
        } else {
            let blocks = entries.stored_blocks(number, &head, stored_blocks)?;
            stored_len = blocks << self.superblock.block_log2;
            let at = head.block << self.superblock.block_log2;
            place = StoredPlace::Data { device: 0, at };
        }
        if stored_len > STORED_BYTES_MAX {
            return Err(Error::Unsupported("an EROFS cluster of more than 1 MiB"));
        }
        if head.kind == 0 {
            // Without inline ends, Linux takes the last logical cluster of a file for whole.
            let has_ends = self.superblock.incompat & incompat::ZTAILPACKING != 0;
            let whole = (1_u64 << index.log2).saturating_sub(head.offset.into());
            if is_tail && !has_ends && whole > stored_len {
                let what = "plain cluster is shorter than its last logical cluster";
                return corrupt(what, whole);
            }
            let is_interlaced = index.advise & ADVISE_INTERLACED != 0;
            return self.plain(
                inode,
                (from, end, offset),
                (place, stored_len),
                is_interlaced,
            );
        }
        let second = usize::from(head.kind == 3);
        let number = index.formats.get(second).copied().unwrap_or(0);
        Ok(piece(PieceKind::Cluster(StoredCluster {
            place,
            stored_len,
            format: self.format(number, inode.at.at)?,
            is_partial: head.is_partial,
            len,
        })))
    }

    /// A piece of an uncompressed cluster. An interlaced one has each byte at its offset in a
    /// block: the beginning is at its end.
    pub(crate) fn plain(
        &self,
        inode: &Inode,
        (from, end, offset): (u64, u64, u64),
        (place, stored_len): (StoredPlace, u64),
        is_interlaced: bool,
    ) -> Result<Piece> {
        let len = end.saturating_sub(from);
        if len > stored_len {
            let what = "plain cluster is shorter than its extent";
            return Err(Error::corrupt(what, inode.at.at, len));
        }
        // Linux reads all of it.
        if let StoredPlace::Data { device, at } = place
            && stored_len > len
        {
            let last = at.saturating_add(stored_len).saturating_sub(1);
            self.read_stored(&mut [0], device, last)?;
        }
        let after = |place: StoredPlace, skip: u64| place.after(skip);
        let piece = |from: u64, end: u64, skip| Piece {
            from,
            len: end.saturating_sub(from),
            kind: PieceKind::Plain(after(place, skip)),
        };
        if !is_interlaced {
            return Ok(piece(from, end, 0));
        }
        let block_bytes = self.superblock.block_bytes();
        let first = block_bytes.saturating_sub(self.block_offset(from));
        let middle = from.saturating_add(first).min(end);
        let Some(skip) = stored_len.checked_sub(first) else {
            let what = "interlaced cluster is shorter than a block";
            return Err(Error::corrupt(what, inode.at.at, stored_len));
        };
        Ok(if offset < middle {
            piece(from, middle, skip)
        } else {
            piece(middle, end, 0)
        })
    }

    /// Parses the entries of logical clusters starting at `from`.
    fn read_entries(&self, inode: &Inode, index: &ClusterIndex, from: u64) -> Result<Vec<Cluster>> {
        let end = from.saturating_add(PART_CLUSTERS).min(index.count);
        let mut entries = Vec::new();
        if inode.layout == Layout::Compact {
            let mut number = from;
            while number < end {
                let pack = index.pack(number);
                let mut bytes = [0; 32];
                let (bytes, _) = bytes.split_at_mut(to_usize(pack.bytes));
                self.read_meta(pack.at, bytes)?;
                let all = index.unpack(bytes, &pack, inode)?;
                let skipped = number.saturating_sub(pack.first);
                let wanted = end.saturating_sub(number);
                let all = all
                    .into_iter()
                    .skip(to_usize(skipped))
                    .take(to_usize(wanted));
                entries.extend(all);
                number = pack.first.saturating_add(pack.count);
            }
            return Ok(entries);
        }
        let mut bytes = vec![0; to_usize(end.saturating_sub(from).saturating_mul(8))];
        self.read_meta(index.at.after(from.saturating_mul(8)), &mut bytes)?;
        let (records, _) = bytes.as_chunks::<8>();
        for record in records {
            let advise = u16_at(record, 0);
            entries.push(match u8::try_from(advise & 3).unwrap_or(0) {
                2 => Cluster {
                    ahead: u16_at(record, 6),
                    ..Cluster::continued(u16_at(record, 4))
                },
                kind => Cluster {
                    kind,
                    offset: index.checked_offset(u16_at(record, 2).into(), inode)?,
                    block: u32_at(record, 4).into(),
                    is_partial: advise & PARTIAL != 0,
                    is_hole: advise & HOLE != 0,
                    ..Cluster::default()
                },
            });
        }
        Ok(entries)
    }
}

/// Entries of an index, in parts.
struct Entries<'a> {
    erofs: &'a Erofs,
    inode: &'a Inode,
    index: &'a ClusterIndex,
    part: Option<Arc<IndexPart>>,
}

impl Entries<'_> {
    /// The first logical cluster of the extent that covers `offset`, its entry, and the number of
    /// steps back to it.
    fn head(&mut self, offset: u64) -> Result<(u64, Cluster, u64)> {
        let log2 = self.index.log2;
        let mut number = offset >> log2;
        let mut head = self.at(number)?;
        let is_before = |head: &Cluster, number: u64| {
            (number << log2).saturating_add(head.offset.into()) > offset
        };
        let mut steps = 0;
        while !head.is_head() || is_before(&head, number) {
            let back = if head.is_head() { 1 } else { head.back };
            let before = number.checked_sub(back.into());
            let Some(before) = before.filter(|_| back > 0 && steps < STEPS_MAX) else {
                let what = "distance to the beginning of an extent is impossible";
                return Err(Error::corrupt(what, self.inode.at.at, back.into()));
            };
            number = before;
            head = self.at(number)?;
            steps = steps.saturating_add(1);
        }
        Ok((number, head, steps))
    }

    /// The number of blocks of a cluster that begins with this entry; the next one may say it.
    fn stored_blocks(&mut self, number: u64, head: &Cluster, stated: Option<u16>) -> Result<u64> {
        let bit = if head.kind == 1 {
            ADVISE_BIG_1
        } else {
            ADVISE_BIG_2
        };
        let next = number.saturating_add(1);
        if self.index.advise & bit == 0 || next >= self.index.count {
            return Ok(1);
        }
        match stated {
            Some(blocks) => Ok(blocks.into()),
            None if self.at(next)?.is_head() => {
                let block_log2 = self.erofs.superblock.block_log2;
                Ok(1 << self.index.log2.saturating_sub(block_log2))
            }
            None => {
                let what = "cluster of several blocks does not say how many";
                Err(Error::corrupt(what, self.inode.at.at, number))
            }
        }
    }

    fn at(&mut self, number: u64) -> Result<Cluster> {
        let corrupt = || {
            let what = "logical cluster lies beyond its index";
            Error::corrupt(what, self.inode.at.at, number)
        };
        let inside = number % PART_CLUSTERS;
        let from = number.saturating_sub(inside);
        let part = match &self.part {
            Some(part) if part.1 == from => part,
            _ => {
                // A nid has 59 bits at most, and a part is of 512.
                let key = self.inode.nid.rotate_left(36) ^ (from / PART_CLUSTERS);
                let read = |_| {
                    let entries = self.erofs.read_entries(self.inode, self.index, from)?;
                    Ok::<_, Error>((self.inode.nid, from, entries))
                };
                let part = self.erofs.indexes.find_or_make(key, read)?;
                let part = if (part.0, part.1) == (self.inode.nid, from) {
                    part
                } else {
                    Arc::new(read(None)?)
                };
                self.part.insert(part)
            }
        };
        part.2.get(to_usize(inside)).copied().ok_or_else(corrupt)
    }
}
