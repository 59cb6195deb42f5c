//! The parts of files: holes, inline content, and extents, compressed or not.

use tree::{Result, to_u64};
use zerocopy::FromBytes;

use crate::disk::compression::{Compression, EXTENT_BYTES_MAX};
use crate::disk::key::Logical;
use crate::disk::node::TreeItem;
use crate::disk::raw;

/// A validated part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileExtent<'a> {
    /// Its offset in the file.
    pub(crate) offset: u64,
    /// Length in the file; `offset + len` does not overflow. For inline content, the decoded length
    /// that it claims.
    pub(crate) len: u64,
    /// The commit that wrote it.
    pub(crate) generation: u64,
    pub(crate) body: ExtentBody<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExtentBody<'a> {
    Hole,
    /// In the item itself, at position `at`.
    Inline {
        compression: Option<Compression>,
        stored: &'a [u8],
        at: u64,
    },
    Stored {
        extent: DataExtent,
        /// Offset of this part in the decoded data.
        offset: u64,
        /// Preallocated, but not yet written: reads as zeros.
        is_preallocated: bool,
    },
}

/// A data extent: a range of the logical address space that several files may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataExtent {
    pub(crate) at: Logical,
    pub(crate) len: u64,
    pub(crate) compression: Option<Compression>,
    /// Decoded length in bytes.
    pub(crate) ram_bytes: u64,
}

impl<'a> FileExtent<'a> {
    /// Where it ends in the file.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.len) // checked when parsed
    }

    pub(crate) fn parse(item: &TreeItem<'a>, sectorsize: u32) -> Result<FileExtent<'a>> {
        let sector = u64::from(sectorsize);
        let data = item.data;
        let Ok((raw, rest)) = raw::FileExtentItem::ref_from_prefix(data) else {
            return Err(item.corrupt("file extent is too short", to_u64(data.len())));
        };
        let offset = item.key.offset;
        if !offset.is_multiple_of(sector) {
            return Err(item.corrupt("file extent begins within a sector", offset));
        }
        let compression = Compression::parse(raw.compression)
            .map_err(|found| item.corrupt("file extent's compression is unknown", found.into()))?;
        if raw.encryption != 0 || raw.other_encoding.get() != 0 {
            return Err(item.corrupt("file extent is encrypted", raw.encryption.into()));
        }
        let ram_bytes = raw.ram_bytes.get();
        let generation = raw.generation.get();
        match raw.extent_type {
            0 => {
                if offset != 0 {
                    return Err(item.corrupt("inline extent is not at the file's start", offset));
                }
                if compression.is_none() && to_u64(rest.len()) != ram_bytes {
                    return Err(item.corrupt("inline extent has the wrong length", ram_bytes));
                }
                // Without compression, the item's size is the limit; with it, the kernel's: less
                // than a sector, or one sector.
                if ram_bytes > sector.max(to_u64(data.len())) {
                    return Err(item.corrupt("inline extent is longer than a sector", ram_bytes));
                }
                let at = item
                    .at
                    .saturating_add(to_u64(size_of::<raw::FileExtentItem>()));
                let body = ExtentBody::Inline {
                    compression,
                    stored: rest,
                    at,
                };
                return Ok(FileExtent {
                    offset,
                    len: ram_bytes,
                    generation,
                    body,
                });
            }
            1 | 2 => {}
            other => return Err(item.corrupt("file extent's type is unknown", other.into())),
        }
        let Ok(place) = raw::ExtentPlace::ref_from_bytes(rest) else {
            return Err(item.corrupt("file extent's size is wrong", to_u64(data.len())));
        };
        let (at, disk_len) = (place.disk_bytenr.get(), place.disk_num_bytes.get());
        let (skip, len) = (place.offset.get(), place.num_bytes.get());
        for number in [ram_bytes, at, disk_len, skip, len] {
            if !number.is_multiple_of(sector) {
                return Err(item.corrupt("file extent is not made of sectors", number));
            }
        }
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > 1 << 63) {
            return Err(item.corrupt("file extent ends beyond every file", len));
        }
        if at == 0 {
            return Ok(FileExtent {
                offset,
                len,
                generation,
                body: ExtentBody::Hole,
            });
        }
        if disk_len == 0 || at.checked_add(disk_len).is_none() {
            return Err(item.corrupt("file extent's stored length is impossible", disk_len));
        }
        let is_preallocated = raw.extent_type == 2;
        let decoded_len = if compression.is_some() {
            ram_bytes
        } else {
            disk_len
        };
        if skip.checked_add(len).is_none_or(|end| end > decoded_len) {
            return Err(item.corrupt("file shows more of an extent than there is", skip));
        }
        if compression.is_some() {
            if is_preallocated {
                return Err(item.corrupt("preallocated extent is compressed", disk_len));
            }
            if disk_len > EXTENT_BYTES_MAX {
                return Err(item.corrupt("compressed extent is stored in too many bytes", disk_len));
            }
            if ram_bytes > EXTENT_BYTES_MAX {
                return Err(item.corrupt("compressed extent decodes to too many bytes", ram_bytes));
            }
        }
        let extent = DataExtent {
            at: Logical(at),
            len: disk_len,
            compression,
            ram_bytes: decoded_len,
        };
        Ok(FileExtent {
            offset,
            len,
            generation,
            body: ExtentBody::Stored {
                extent,
                offset: skip,
                is_preallocated,
            },
        })
    }
}
