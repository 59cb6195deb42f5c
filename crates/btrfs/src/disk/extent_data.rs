//! Reads, verifies and decodes the data of an extent.
//!
//! Each function takes the checksum tree, or `None` for a file without checksums.

use tree::{Error, Result, to_u64, to_usize};

use crate::disk::csum_tree;
use crate::disk::extent::DataExtent;
use crate::disk::key::Logical;
use crate::disk::tree::Tree;
use crate::disk::volume::{DecodedExtent, ReadBuffers, Volume};

impl DataExtent {
    /// Fills `dst` with the extent's decoded bytes, starting at `offset`.
    pub(crate) fn read(
        &self,
        volume: &Volume,
        checksums: Option<&Tree>,
        offset: u64,
        dst: &mut [u8],
    ) -> Result<()> {
        if self.compression.is_none() {
            return self.read_plain(volume, checksums, offset, dst);
        }
        if offset == 0 && to_u64(dst.len()) == self.ram_bytes {
            let cached = volume.extents.find(self.at.0);
            if let Some(cached) = cached.filter(|cached| cached.extent == *self) {
                dst.copy_from_slice(&cached.content);
                return Ok(());
            }
            volume.extents.note_decoded(self.at.0);
            return volume.with_buffers(|worker| self.decode(volume, checksums, worker, dst));
        }
        let make = || {
            volume.with_buffers(|worker| {
                let mut content = vec![0; to_usize(self.ram_bytes)].into_boxed_slice();
                self.decode(volume, checksums, worker, &mut content)?;
                Ok(DecodedExtent {
                    extent: *self,
                    content,
                })
            })
        };
        let bytes = to_usize(self.ram_bytes);
        let mut decoded = volume.extents.find_or_make(self.at.0, bytes, |_| make())?;
        if decoded.extent != *self {
            decoded = make()?.into();
        }
        let from = to_usize(offset);
        let part = decoded.content.get(from..from.saturating_add(dst.len()));
        dst.copy_from_slice(part.ok_or(Error::corrupt(
            "part of an extent lies beyond its end",
            self.at.0,
            offset,
        ))?);
        Ok(())
    }

    /// Reads and verifies stored bytes into `stored`.
    pub(crate) fn read_stored(
        &self,
        volume: &Volume,
        checksums: Option<&Tree>,
        stored: &mut Vec<u8>,
    ) -> Result<()> {
        stored.resize(to_usize(self.len), 0);
        volume.with_buffers(|worker| {
            csum_tree::read_data(volume, checksums, self.at, stored, &mut worker.checksums)
        })
    }

    fn decode(
        &self,
        volume: &Volume,
        checksums: Option<&Tree>,
        worker: &mut ReadBuffers,
        dst: &mut [u8],
    ) -> Result<()> {
        let ReadBuffers {
            decoder,
            stored,
            checksums: sums,
        } = worker;
        stored.resize(to_usize(self.len), 0);
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
        checksums: Option<&Tree>,
        offset: u64,
        dst: &mut [u8],
    ) -> Result<()> {
        let sector = u64::from(volume.superblock.sectorsize);
        let end = offset.saturating_add(to_u64(dst.len()));
        let to = end.next_multiple_of(sector);
        let begin = offset.checked_rem(sector).unwrap_or(0);
        let from = offset.saturating_sub(begin);
        let at = Logical(self.at.0.saturating_add(from));
        volume.with_buffers(|worker| {
            let sums = &mut worker.checksums;
            if (from, to) == (offset, end) {
                return csum_tree::read_data(volume, checksums, at, dst, sums);
            }
            // Whole sectors are read in place; only the partial ones at the ends go through a
            // buffer.
            let stored = &mut worker.stored;
            stored.resize(to_usize(to.saturating_sub(from)), 0);
            csum_tree::read_data(volume, checksums, at, stored, sums)?;
            let (_, part) = stored.split_at(to_usize(begin));
            dst.copy_from_slice(part.split_at(dst.len()).0);
            Ok(())
        })
    }
}
