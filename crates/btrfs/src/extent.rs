//! The parts of files: holes, inline content, and extents, compressed or not.

use tree::{Corrupt, Error, Result};
use zerocopy::FromBytes;

use crate::compression::{Compression, EXTENT_BYTES_MAX};
use crate::csum_tree;
use crate::key::Logical;
use crate::node::Item;
use crate::raw;
use crate::tree::Tree;
use crate::volume::{Volume, Worker};

/// A part of a file, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileExtent<'a> {
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// Bytes of the file; `offset + len` does not overflow. Of inline content, as long as it says that it decodes to.
    pub(crate) len: u64,
    /// Of the commit that wrote it.
    pub(crate) generation: u64,
    pub(crate) body: Body<'a>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body<'a> {
    Hole,
    /// In the item itself; `at` is where.
    Inline {
        compression: Option<Compression>,
        stored: &'a [u8],
        at: u64,
    },
    Stored {
        extent: Stored,
        /// Where, in what the stored bytes decode to, this part begins.
        offset: u64,
        /// Allocated, but not yet written: reads as zeros.
        is_preallocated: bool,
    },
}

/// An extent: bytes of the logical address space, which several files may show parts of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) at: Logical,
    pub(crate) len: u64,
    pub(crate) compression: Option<Compression>,
    /// Bytes that it decodes to.
    pub(crate) ram_bytes: u64,
}

/// A decoded extent in the cache.
pub(crate) struct Decoded {
    /// Its address is the cache's key, but an image may say that the same bytes are two extents.
    pub(crate) extent: Stored,
    pub(crate) content: Box<[u8]>,
}

impl<'a> FileExtent<'a> {
    pub(crate) fn parse(item: &Item<'a>, sectorsize: u32) -> Result<FileExtent<'a>> {
        let sector = u64::from(sectorsize);
        let data = item.data;
        let Ok((raw, rest)) = raw::FileExtentItem::ref_from_prefix(data) else {
            return Err(item.corrupt("file extent is too short", data.len() as u64));
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
                    return Err(item.corrupt("inline extent is not at the file's begin", offset));
                }
                if compression.is_none() && rest.len() as u64 != ram_bytes {
                    return Err(item.corrupt("inline extent has another length", ram_bytes));
                }
                // Without compression the item's size bounds it; so does the kernel with: less than a sector, or one.
                if ram_bytes > sector.max(data.len() as u64) {
                    return Err(item.corrupt("inline extent is longer than a sector", ram_bytes));
                }
                let at = item.at + (data.len() - rest.len()) as u64;
                let body = Body::Inline {
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
            return Err(item.corrupt("file extent's size is wrong", data.len() as u64));
        };
        let (at, disk_len) = (place.disk_bytenr.get(), place.disk_num_bytes.get());
        let (skip, len) = (place.offset.get(), place.num_bytes.get());
        for number in [ram_bytes, at, disk_len, skip, len] {
            if !number.is_multiple_of(sector) {
                return Err(item.corrupt("file extent is not made of sectors", number));
            }
        }
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > 1 << 63) {
            return Err(item.corrupt("file extent ends behind every file", len));
        }
        if at == 0 {
            return Ok(FileExtent {
                offset,
                len,
                generation,
                body: Body::Hole,
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
        let extent = Stored {
            at: Logical(at),
            len: disk_len,
            compression,
            ram_bytes: decoded_len,
        };
        Ok(FileExtent {
            offset,
            len,
            generation,
            body: Body::Stored {
                extent,
                offset: skip,
                is_preallocated,
            },
        })
    }
}

/// Who reads data: the tree of checksums, or `None` when the file has none.
pub(crate) type Checksums<'t> = Option<&'t Tree>;

impl Stored {
    /// Reads the part of the extent's decoded bytes from `offset` on that fills `dst`.
    pub(crate) fn read(
        &self,
        volume: &Volume,
        checksums: Checksums<'_>,
        offset: u64,
        dst: &mut [u8],
    ) -> Result<()> {
        if self.compression.is_none() {
            return self.read_plain(volume, checksums, offset, dst);
        }
        if offset == 0 && dst.len() as u64 == self.ram_bytes {
            return volume.with_worker(|worker| self.decode(volume, checksums, worker, dst));
        }
        let make = || {
            volume.with_worker(|worker| {
                let mut content = vec![0; self.ram_bytes as usize].into_boxed_slice();
                self.decode(volume, checksums, worker, &mut content)?;
                Ok(Decoded {
                    extent: *self,
                    content,
                })
            })
        };
        let mut decoded = volume.extents.find_or_make(self.at.0, |_| make())?;
        if decoded.extent != *self {
            decoded = make()?.into();
        }
        let from = offset as usize;
        let part = decoded.content.get(from..from + dst.len());
        dst.copy_from_slice(part.ok_or(Error::Corrupt(Corrupt {
            what: "part of an extent lies behind its end",
            at: self.at.0,
            got: offset,
        }))?);
        Ok(())
    }

    /// Reads stored bytes, verified, into `stored`.
    pub(crate) fn read_stored(
        &self,
        volume: &Volume,
        checksums: Checksums<'_>,
        stored: &mut Vec<u8>,
    ) -> Result<()> {
        stored.resize(self.len as usize, 0);
        volume.with_worker(|worker| {
            csum_tree::read_data(volume, checksums, self.at, stored, &mut worker.checksums)
        })
    }

    fn decode(
        &self,
        volume: &Volume,
        checksums: Checksums<'_>,
        worker: &mut Worker,
        dst: &mut [u8],
    ) -> Result<()> {
        let Worker {
            decoder,
            stored,
            checksums: sums,
        } = worker;
        stored.resize(self.len as usize, 0);
        csum_tree::read_data(volume, checksums, self.at, stored, sums)?;
        let sectorsize = volume.superblock.sectorsize;
        match self.compression {
            Some(compression) => compression.decode(decoder, sectorsize, stored, dst, self.at.0),
            None => Err(Error::InvalidInput("the extent is not compressed")),
        }
    }

    /// Reads whole sectors, so that they can be verified.
    fn read_plain(
        &self,
        volume: &Volume,
        checksums: Checksums<'_>,
        offset: u64,
        dst: &mut [u8],
    ) -> Result<()> {
        let sector = u64::from(volume.superblock.sectorsize);
        let from = offset / sector * sector;
        let to = (offset + dst.len() as u64).next_multiple_of(sector);
        let at = Logical(self.at.0 + from);
        volume.with_worker(
            |Worker {
                 stored,
                 checksums: sums,
                 ..
             }| {
                if from == offset && to == offset + dst.len() as u64 {
                    return csum_tree::read_data(volume, checksums, at, dst, sums);
                }
                // Whole sectors go where they belong, and only the ends through memory of our own.
                stored.resize((to - from) as usize, 0);
                csum_tree::read_data(volume, checksums, at, stored, sums)?;
                let begin = (offset - from) as usize;
                dst.copy_from_slice(&stored[begin..begin + dst.len()]);
                Ok(())
            },
        )
    }
}
