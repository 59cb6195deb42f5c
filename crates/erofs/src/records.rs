//! Records of extents, as of Linux 6.15 (`struct z_erofs_extent`).
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use tree::{Error, Result, to_usize};

use crate::fields::{u32_at, u64_at};
use crate::image::Erofs;
use crate::index::IndexHeader;
use crate::inode::{Inode, MetaAt};
use crate::piece::{
    CONTENT_BYTES_MAX, Piece, PieceKind, STORED_BYTES_MAX, StoredCluster, StoredPlace,
};

/// The bits of a length: bytes, content goes on behind the shown part, codec and 1.
pub(crate) const LENGTH: u32 = (1 << 21) - 1;
pub(crate) const PARTIAL: u32 = 1 << 27;
pub(crate) const FORMAT_SHIFT: u32 = 28;
/// Number of records of 4 bytes of which only the sum is kept.
const SUM_RECORDS: u64 = 1024;

/// Number of records that a check reads at once.
const CHECKED_RECORDS: u64 = 1024;

/// Where the extent of a record of 16 or 32 bytes begins; of 16, the upper half is beyond it.
fn begin(record: &[u8]) -> u64 {
    u64::from(u32_at(record, 12)) | u64::from(u32_at(record, 16)) << 32
}

fn unordered(inode: &Inode, from: u64) -> Error {
    let what = "records of a file's extents are not in order";
    Error::corrupt(what, inode.at.at, from)
}

/// A record, with the range of the file that it covers.
struct Record {
    from: u64,
    end: u64,
    length: u32,
    at: u64,
    is_last: bool,
}

impl IndexHeader {
    /// Bytes of the records, with the address before those of 4 bytes.
    pub(crate) fn records_len(&self, inode: &Inode) -> u64 {
        let IndexHeader::Records {
            count,
            record_bytes,
            cluster_log2,
            ..
        } = *self
        else {
            return 0;
        };
        let (count, first) = match record_bytes {
            4 => (inode.size.div_ceil(1 << cluster_log2), 8),
            8 => (inode.size.div_ceil(1 << cluster_log2), 0),
            _ => (count, 0),
        };
        count
            .saturating_mul(record_bytes.into())
            .saturating_add(first)
    }
}

impl Erofs {
    /// Checks that the records are in metadata, and are those of no other file.
    pub(crate) fn check_records(&self, header: &IndexHeader, inode: &Inode) -> Result<()> {
        match *header {
            IndexHeader::Records { at, .. } => {
                self.check_index(inode, at, header.records_len(inode))
            }
            _ => Ok(()),
        }
    }

    /// Records of 4 bytes have only lengths: sums them, so that each can be found.
    pub(crate) fn read_sums(&self, header: &mut IndexHeader, inode: &Inode) -> Result<()> {
        let IndexHeader::Records {
            record_bytes: 4,
            cluster_log2,
            at,
            sums,
            ..
        } = header
        else {
            return Ok(());
        };
        let mut start = [0; 8];
        self.read_meta(*at, &mut start)?;
        let mut sum = u64_at(&start, 0);
        let count = inode.size.div_ceil(1 << *cluster_log2);
        let mut number = 0;
        while number < count {
            sums.push(sum);
            sum = sum.saturating_add(self.sum(*at, number, count.saturating_sub(number))?);
            number = number.saturating_add(SUM_RECORDS);
        }
        Ok(())
    }

    /// The lengths of up to 1,024 records of 4 bytes together.
    fn sum(&self, at: MetaAt, first: u64, count: u64) -> Result<u64> {
        let mut lengths = vec![0; to_usize(count.min(SUM_RECORDS).saturating_mul(4))];
        self.read_meta(
            at.after(first.saturating_mul(4).saturating_add(8)),
            &mut lengths,
        )?;
        let (lengths, _) = lengths.as_chunks::<4>();
        let bytes = |length: &[u8; 4]| u64::from(u32_at(length, 0) & LENGTH);
        Ok(lengths.iter().map(bytes).fold(0, u64::saturating_add))
    }

    pub(crate) fn record_at(
        &self,
        inode: &Inode,
        header: &IndexHeader,
        offset: u64,
    ) -> Result<Piece> {
        let IndexHeader::Records {
            record_bytes,
            is_interlaced,
            has_fragment,
            ..
        } = *header
        else {
            return Err(Error::Inconsistent("an index without records"));
        };
        let record = if record_bytes <= 8 {
            self.short_record(inode, header, offset)?
        } else {
            self.find_record(inode, header, offset)?
        };
        let Record { from, end, .. } = record;
        let piece = |kind| Piece {
            from,
            len: end.saturating_sub(from),
            kind,
        };
        if record.is_last && has_fragment {
            let high = if record_bytes > 4 { record.at << 32 } else { 0 };
            return Ok(piece(PieceKind::Fragment(u64::from(record.length) | high)));
        }
        let stored_len = u64::from(record.length & LENGTH);
        if stored_len == 0 {
            return Ok(piece(PieceKind::Hole));
        }
        if stored_len > STORED_BYTES_MAX || end.saturating_sub(from) > CONTENT_BYTES_MAX {
            return Err(Error::Unsupported(
                "an EROFS extent of more than 1 MiB stored or 12 MiB of content",
            ));
        }
        let place = StoredPlace::Data {
            device: 0,
            at: record.at,
        };
        let Some(number) = (record.length >> FORMAT_SHIFT).checked_sub(1) else {
            let is_interlaced = is_interlaced && self.block_offset(record.at) == 0;
            return self.plain(
                inode,
                (from, end, offset),
                (place, stored_len),
                is_interlaced,
            );
        };
        Ok(piece(PieceKind::Cluster(StoredCluster {
            place,
            stored_len,
            format: self.format(u8::try_from(number).unwrap_or(u8::MAX), inode.at.at)?,
            is_partial: record.length & PARTIAL != 0,
            len: end.saturating_sub(from),
        })))
    }

    /// A record of 4 or 8 bytes: each covers equally many bytes.
    fn short_record(&self, inode: &Inode, header: &IndexHeader, offset: u64) -> Result<Record> {
        let IndexHeader::Records {
            record_bytes,
            cluster_log2,
            at,
            ref sums,
            ..
        } = *header
        else {
            return Err(Error::Inconsistent("an index without records"));
        };
        let number = offset >> cluster_log2;
        let from = number << cluster_log2;
        let end = from.saturating_add(1 << cluster_log2).min(inode.size);
        let mut record = [0; 8];
        let (record, _) = record.split_at_mut(record_bytes.into());
        let first = if record_bytes == 4 { 8 } else { 0 };
        let skipped = number
            .saturating_mul(record_bytes.into())
            .saturating_add(first);
        self.read_meta(at.after(skipped), record)?;
        let data_at = if record_bytes == 4 {
            let known = number / SUM_RECORDS;
            let sum = sums.get(to_usize(known)).copied().unwrap_or(u64::MAX);
            let before = known.saturating_mul(SUM_RECORDS);
            let more = self.sum(at, before, number.saturating_sub(before))?;
            sum.saturating_add(more)
        } else {
            u32_at(record, 4).into()
        };
        Ok(Record {
            from,
            end,
            length: u32_at(record, 0),
            at: data_at,
            is_last: end == inode.size,
        })
    }

    /// Finds the last record that begins at `offset` or before, of 16 or 32 bytes each.
    fn find_record(&self, inode: &Inode, header: &IndexHeader, offset: u64) -> Result<Record> {
        let IndexHeader::Records {
            count,
            record_bytes,
            at,
            ..
        } = *header
        else {
            return Err(Error::Inconsistent("an index without records"));
        };
        let read = |number: u64| -> Result<Record> {
            let mut record = [0; 32];
            let (record, _) = record.split_at_mut(record_bytes.into());
            let place = at.after(number.saturating_mul(record_bytes.into()));
            self.read_meta(place, record)?;
            let from = begin(record);
            Ok(Record {
                from,
                end: inode.size,
                length: u32_at(record, 0),
                at: u64::from(u32_at(record, 4)) | u64::from(u32_at(record, 8)) << 32,
                is_last: number.saturating_add(1) == count,
            })
        };
        let (mut low, mut high) = (0, count);
        let mut found: Option<Record> = None;
        let mut end = inode.size;
        while low < high {
            let middle = low.midpoint(high);
            let record = read(middle)?;
            if record.from > offset {
                // Out of order, a later one can begin earlier.
                end = record.from.min(end);
                high = middle;
            } else if (found.as_ref()).is_some_and(|found| found.from > record.from) {
                return Err(unordered(inode, record.from));
            } else {
                low = middle.saturating_add(1);
                found = Some(record);
            }
        }
        // Before the first record is a hole.
        let hole = Record {
            from: 0,
            end,
            length: 0,
            at: 0,
            is_last: false,
        };
        Ok(found.map_or(hole, |record| Record { end, ..record }))
    }

    /// Checks that the extents of records of 16 or 32 bytes are in order: a search relies on it.
    pub(crate) fn check_order(&self, header: &IndexHeader, inode: &Inode) -> Result<()> {
        let IndexHeader::Records {
            count,
            record_bytes: record_bytes @ 16..,
            at,
            ..
        } = *header
        else {
            return Ok(());
        };
        let (mut number, mut last) = (0, None);
        while number < count {
            let some = count.saturating_sub(number).min(CHECKED_RECORDS);
            let unit = u64::from(record_bytes);
            let mut records = vec![0; to_usize(some.saturating_mul(unit))];
            self.read_meta(at.after(number.saturating_mul(unit)), &mut records)?;
            for from in records.chunks_exact(record_bytes.into()).map(begin) {
                if last.is_some_and(|last| from <= last) || from >= inode.size {
                    return Err(unordered(inode, from));
                }
                last = Some(from);
            }
            number = number.saturating_add(some);
        }
        Ok(())
    }
}
