//! File content: the parts of a file in order, including holes.

use tree::{
    Checksum, DevicePlace, Encoding, Error, Extent, ExtentId, ExtentKind, FileSystem, Result,
    to_u64, to_usize,
};

use super::Subvolume;
use super::files::FileInode;
use crate::disk::chunk::StripeRange;
use crate::disk::extent::{ExtentBody, FileExtent};
use crate::disk::inode::StoredInode;
use crate::disk::key::{Key, Logical, item};
use crate::disk::node::TreeItem;
use crate::disk::volume::CHANGED_FROM;

/// Number of extents returned by one call of [`tree::FileSystem::extents`].
const EXTENTS_MAX: usize = 256;

/// A part of a file without gaps: it starts `skip` bytes into `body`.
struct FilePart<'a> {
    offset: u64,
    len: u64,
    skip: u64,
    body: ExtentBody<'a>,
    /// The decoded length that inline content claims.
    ram_bytes: u64,
}

impl Subvolume {
    /// Calls `each` with the parts of a file, starting with the one that covers `from`, until it
    /// returns `false`.
    fn for_each_part(
        &self,
        file: &FileInode,
        from: u64,
        mut each: impl FnMut(FilePart<'_>) -> Result<bool>,
    ) -> Result<()> {
        let (number, size) = (file.number, file.inode.size);
        let volume = self.volume();
        let sectorsize = volume.superblock.sectorsize;
        let [first, last] = [from, u64::MAX].map(|at| Key::new(number, item::EXTENT_DATA, at));
        let mut cursor = file.tree.range_back(volume, first, last)?;
        let is_before =
            |item: TreeItem<'_>| (item.key.objectid, item.key.kind) < (number, item::EXTENT_DATA);
        if cursor.item().is_some_and(is_before) {
            cursor.advance()?;
        }
        let mut at = from;
        let mut end_before = 0;
        while at < size {
            let item = cursor.item_of(number, item::EXTENT_DATA);
            let extent = item.map(|item| FileExtent::parse(&item, sectorsize).map(|e| (e, item)));
            let extent = extent.transpose()?;
            let hole_end = extent
                .as_ref()
                .map_or(size, |(extent, _)| extent.offset.min(size));
            if let Some((extent, item)) = &extent {
                if extent.offset < end_before {
                    return Err(item.corrupt("file extents overlap", extent.offset));
                }
                end_before = extent.end();
            }
            if hole_end > at {
                let hole = FilePart {
                    offset: at,
                    len: hole_end.saturating_sub(at),
                    skip: 0,
                    body: ExtentBody::Hole,
                    ram_bytes: 0,
                };
                at = hole_end;
                if !each(hole)? {
                    return Ok(());
                }
                if at == size {
                    return Ok(());
                }
            }
            let Some((extent, _)) = extent else {
                return Ok(());
            };
            let end = extent.end().min(size);
            if end > at {
                let part = FilePart {
                    offset: at,
                    len: end.saturating_sub(at),
                    skip: at.saturating_sub(extent.offset),
                    body: extent.body,
                    ram_bytes: extent.len,
                };
                at = end;
                if !each(part)? {
                    return Ok(());
                }
            }
            cursor.advance()?;
        }
        Ok(())
    }

    /// Fills `buf` with the part's bytes, starting at `skip`.
    fn read_part(
        &self,
        body: &ExtentBody<'_>,
        ram_bytes: u64,
        skip: u64,
        inode: &StoredInode,
        buf: &mut [u8],
    ) -> Result<()> {
        let volume = self.volume();
        match *body {
            ExtentBody::Hole => buf.fill(0),
            ExtentBody::Stored {
                is_preallocated: true,
                ..
            } => buf.fill(0),
            ExtentBody::Stored { extent, offset, .. } => {
                // Inline data can be read without the tree of checksums.
                let checksums = self.checksums(inode)?;
                extent.read(volume, checksums, offset.saturating_add(skip), buf)?;
            }
            ExtentBody::Inline {
                compression: None,
                stored,
                ..
            } => {
                copy_part(stored, skip, buf);
            }
            ExtentBody::Inline {
                compression: Some(compression),
                stored,
                at,
            } => {
                let sectorsize = volume.superblock.sectorsize;
                // Newer kernels compress a whole sector, even of a smaller file.
                let room = (to_usize(ram_bytes)).next_multiple_of(to_usize(sectorsize));
                let mut content = vec![0; room];
                volume.with_buffers(|worker| {
                    let decoder = &mut worker.decoder;
                    compression.decode(decoder, sectorsize, stored, &mut content, at)
                })?;
                copy_part(&content, skip, buf);
            }
        }
        Ok(())
    }

    /// Implements [`tree::FileSystem::read_at`].
    pub(super) fn read(&self, file: &FileInode, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let left = file.inode.size.saturating_sub(offset);
        let wanted = to_usize(left).min(buf.len());
        if wanted == 0 {
            return Ok(0);
        }
        let (mut rest, _) = buf.split_at_mut(wanted);
        self.for_each_part(file, offset, |part| {
            let len = to_usize(part.len).min(rest.len());
            let (dst, after) = std::mem::take(&mut rest).split_at_mut(len);
            self.read_part(&part.body, part.ram_bytes, part.skip, &file.inode, dst)?;
            rest = after;
            Ok(!rest.is_empty())
        })?;
        rest.fill(0);
        Ok(wanted)
    }

    /// Implements [`tree::FileSystem::extents`].
    pub(super) fn extents_from(&self, file: &FileInode, from: u64) -> Result<Vec<Extent>> {
        let sector_bytes = self.volume().superblock.sectorsize;
        let mut extents: Vec<Extent> = Vec::new();
        // The caller wants the whole extent that covers `from`, so the skipped bytes are given
        // back.
        self.for_each_part(file, from, |part| {
            let offset = part.offset.saturating_sub(part.skip);
            let len = part.len.saturating_add(part.skip);
            let (kind, id) = match part.body {
                ExtentBody::Hole => (ExtentKind::Hole, None),
                ExtentBody::Stored {
                    extent,
                    offset: begin,
                    is_preallocated: true,
                } => {
                    let kind = ExtentKind::Preallocated {
                        stored_offset: begin,
                    };
                    (kind, Some(ExtentId(extent.at.0)))
                }
                ExtentBody::Inline {
                    compression: None, ..
                } => (ExtentKind::Plain { stored_offset: 0 }, None),
                ExtentBody::Inline {
                    compression: Some(compression),
                    stored,
                    ..
                } => {
                    let encoding = Encoding {
                        algorithm: compression.algorithm(sector_bytes),
                        stored_len: to_u64(stored.len()),
                        unencoded_len: part.ram_bytes,
                        unencoded_offset: 0,
                    };
                    (ExtentKind::Encoded(encoding), None)
                }
                ExtentBody::Stored {
                    extent,
                    offset: begin,
                    ..
                } => {
                    let kind = match extent.compression {
                        None => ExtentKind::Plain {
                            stored_offset: begin,
                        },
                        Some(compression) => ExtentKind::Encoded(Encoding {
                            algorithm: compression.algorithm(sector_bytes),
                            stored_len: extent.len,
                            unencoded_len: extent.ram_bytes,
                            unencoded_offset: begin,
                        }),
                    };
                    (kind, Some(ExtentId(extent.at.0)))
                }
            };
            match extents.last_mut() {
                Some(last) if last.kind == kind && kind == ExtentKind::Hole => {
                    last.len = last.len.saturating_add(len);
                }
                _ => extents.push(Extent {
                    offset,
                    len,
                    kind,
                    id,
                }),
            }
            Ok(extents.len() < EXTENTS_MAX)
        })?;
        Ok(extents)
    }

    /// Implements [`tree::FileSystem::stored_at`]: a copy on a device that is present, if it is in
    /// one piece.
    pub(super) fn place(&self, extent: &Extent) -> Option<DevicePlace> {
        let (skip, len) = match extent.kind {
            ExtentKind::Plain { stored_offset } => (stored_offset, extent.len),
            ExtentKind::Encoded(encoding) => (0, encoding.stored_len),
            ExtentKind::Hole | ExtentKind::Preallocated { .. } => return None,
        };
        self.device_place(Logical(extent.id?.0.checked_add(skip)?), len)
    }

    /// The same of an inline extent, in its tree block.
    pub(super) fn inline_place(&self, file: &FileInode, extent: &Extent) -> Option<DevicePlace> {
        let mut found = None;
        let each = |part: FilePart<'_>| {
            if let ExtentBody::Inline { stored, at, .. } = part.body {
                found = Some((Logical(at), to_u64(stored.len())));
            }
            Ok(false)
        };
        self.for_each_part(file, extent.offset, each).ok()?;
        let (at, len) = found.filter(|_| extent.kind.has_data())?;
        // Replaying the log makes blocks that are nowhere else.
        if at.0 >= CHANGED_FROM {
            return None;
        }
        let len = match extent.kind {
            ExtentKind::Plain { .. } => len.min(extent.len),
            _ => len,
        };
        self.device_place(at, len)
    }

    fn device_place(&self, at: Logical, len: u64) -> Option<DevicePlace> {
        let space = &self.volume().space;
        let chunk = space.chunk(at, len).ok()?;
        let places = (0..chunk.copies()).map(|copy| chunk.place(at, len, copy));
        let is_whole = |place: &StripeRange| {
            let is_present = space
                .devices()
                .iter()
                .any(|it| it.device.id == place.device);
            place.len == len && is_present
        };
        let place = places.into_iter().find(is_whole)?;
        Some(DevicePlace {
            store: self.storage().store,
            device: place.device,
            at: place.at.0,
            len,
        })
    }

    /// Implements [`tree::FileSystem::read_encoded`].
    pub(super) fn read_stored(
        &self,
        file: &FileInode,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        stored.clear();
        const NOT_OURS: Error = Error::InvalidInput("not an encoded extent of that file");
        let ExtentKind::Encoded(encoding) = extent.kind else {
            return Err(NOT_OURS);
        };
        // An inline extent lies in a tree block, whose checksum is already verified.
        let sum = self.volume().superblock.checksum.verifies();
        let mut verified = None;
        self.for_each_part(file, extent.offset, |part| {
            match part.body {
                ExtentBody::Inline {
                    compression: Some(_),
                    stored: inline,
                    ..
                } if extent.id.is_none() && to_u64(inline.len()) == encoding.stored_len => {
                    stored.extend_from_slice(inline);
                    verified = Some(Some(sum));
                }
                ExtentBody::Stored {
                    extent: found,
                    is_preallocated: false,
                    ..
                } if Some(ExtentId(found.at.0)) == extent.id
                    && found.compression.is_some()
                    && found.len == encoding.stored_len =>
                {
                    let checksums = self.checksums(&file.inode)?;
                    found.read_stored(self.volume(), checksums, stored)?;
                    verified = Some(checksums.map(|_| sum));
                }
                _ => {}
            }
            Ok(false)
        })?;
        verified.ok_or(NOT_OURS)
    }
}

/// Copies the part of inline content that begins at `skip`. The content is as long as its item
/// says.
fn copy_part(content: &[u8], skip: u64, buf: &mut [u8]) {
    let part = content.get(to_usize(skip)..);
    let part = part.and_then(|rest| rest.get(..buf.len()));
    buf.copy_from_slice(part.expect("`FileExtent::parse` checked the length of the content"));
}
