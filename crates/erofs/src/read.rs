//! The image as a tree of files.
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

use codec::Algorithm;
use tree::{
    Checksum, DevicePlace, DirEntry, Encoding, Error, Extent, ExtentId, ExtentKind, FileKind,
    FileSystem, Ino, Metadata, Result, Storage, Xattr, to_u64, with_metadata,
};

use crate::dir::is_dot;
use crate::image::{Erofs, min_len};
use crate::index::IndexedFile;
use crate::piece::{Piece, PieceKind, StoredPlace};

/// Maximum number of extents that one call of [`FileSystem::extents`] returns.
const EXTENTS_MAX: usize = 1024;
/// The smallest unit of the formats that can take encoded data.
const PAGE_BYTES: u64 = 4096;
/// Longest target of a symbolic link: Linux follows no longer ones.
pub(crate) const TARGET_BYTES_MAX: u64 = 4095;

impl Erofs {
    pub(crate) fn regular(&self, file: Ino) -> Result<Arc<IndexedFile>> {
        let content = self.content(file.0)?;
        match content.inode.kind {
            FileKind::Regular => Ok(content),
            FileKind::Directory => Err(Error::IsADirectory),
            _ => Err(Error::InvalidInput("not a regular file")),
        }
    }
}

/// Whether a piece begins and ends at multiples of a page, or ends with the file: no other one can
/// be kept as it is stored.
fn is_on_pages(piece: &Piece, size: u64) -> bool {
    let is_on = |at: u64| at.is_multiple_of(PAGE_BYTES);
    is_on(piece.from) && (is_on(piece.end()) || piece.end() == size)
}

impl FileSystem for Erofs {
    fn root(&self) -> Ino {
        Ino(self.superblock.root)
    }

    fn storage(&self) -> Storage {
        Storage {
            stored_extents: true,
            ..Storage::plain(self.store)
        }
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        Ok(self.inode(ino.0)?.metadata())
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        let (mut entries, errors) = self.list(&*self.directory(dir)?);
        if let Some(error) = errors.into_iter().next() {
            return Err(error);
        }
        entries.retain(|entry| !is_dot(entry));
        Ok(entries)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        with_metadata(self, self.read_dir(dir)?)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        match self.directory(dir) {
            Ok(content) => {
                let (mut entries, errors) = self.list(&content);
                entries.retain(|entry| !is_dot(entry));
                (entries, errors)
            }
            Err(error) => (Vec::new(), vec![error]),
        }
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        let found = self.find(&*self.directory(dir)?, name)?;
        found.filter(|entry| !is_dot(entry)).ok_or(Error::NotFound)
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        let content = self.content(link.0)?;
        let (inode, size) = (&content.inode, content.inode.size);
        if inode.kind != FileKind::Symlink {
            return Err(Error::InvalidInput("not a symbolic link"));
        }
        if size == 0 || size > TARGET_BYTES_MAX {
            let what = "length of a symbolic link's target is impossible";
            return Err(Error::corrupt(what, inode.at.at, size));
        }
        let mut target = vec![0; min_len(size, usize::MAX)];
        self.read_content(&content, 0, &mut target)?;
        if target.contains(&0) {
            let what = "target of a symbolic link contains a zero byte";
            return Err(Error::corrupt(what, inode.at.at, size));
        }
        Ok(target)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        Ok(self.attributes(&self.inode(ino.0)?)?.xattrs)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        let content = self.regular(file)?;
        let (mut extents, mut stored) = (Vec::new(), Vec::new());
        let mut at = from;
        while at < content.inode.size && extents.len() < EXTENTS_MAX {
            let piece = self.piece_at(&content, at)?;
            let plain = |id| {
                let stored_offset = 0;
                (ExtentKind::Plain { stored_offset }, id)
            };
            // No address has its upper bits: they tell devices, and compressed data from plain.
            let id = |(device, at): (u16, u64)| at ^ u64::from(device).rotate_right(16);
            let (kind, id) = match piece.kind {
                PieceKind::Hole => (ExtentKind::Hole, None),
                PieceKind::Plain(StoredPlace::Data { device, at }) => {
                    plain(Some(ExtentId(id(self.locate(device, at)?))))
                }
                PieceKind::Cluster(cluster) if is_on_pages(&piece, content.inode.size) => {
                    // Damage comes up again when the content is read.
                    let frame = self.read_frame(&cluster, &mut stored).ok().flatten();
                    match (frame, cluster.place) {
                        (Some((algorithm, unencoded_len)), StoredPlace::Data { device, at }) => {
                            let encoding = Encoding {
                                algorithm,
                                stored_len: to_u64(stored.len()),
                                unencoded_len,
                                unencoded_offset: 0,
                            };
                            let id = ExtentId(!id(self.locate(device, at)?));
                            (ExtentKind::Encoded(encoding), Some(id))
                        }
                        _ => plain(None),
                    }
                }
                _ => plain(None),
            };
            extents.push(Extent {
                offset: piece.from,
                len: piece.len,
                kind,
                id,
            });
            at = piece.end();
        }
        Ok(extents)
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let content = self.regular(file)?;
        let left = content.inode.size.saturating_sub(offset);
        let wanted = min_len(left, buf.len());
        self.read_content(&content, offset, buf.split_at_mut(wanted).0)?;
        Ok(wanted)
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        stored.clear();
        let content = self.regular(file)?;
        if let ExtentKind::Encoded(encoding) = extent.kind
            && extent.offset < content.inode.size
            && let PieceKind::Cluster(cluster) = self.piece_at(&content, extent.offset)?.kind
            && let Some((algorithm, _)) = self.read_frame(&cluster, stored)?
            && (algorithm, to_u64(stored.len())) == (encoding.algorithm, encoding.stored_len)
        {
            if algorithm == Algorithm::Zlib {
                self.put_checksum(&cluster, encoding.unencoded_len, stored)?;
            }
            return Ok(None);
        }
        Err(Error::InvalidInput(
            "not an encoded extent of that EROFS file",
        ))
    }

    fn stored_at(&self, file: Ino, extent: &Extent) -> Option<DevicePlace> {
        let content = self.regular(file).ok()?;
        let piece = self.piece_at(&content, extent.offset).ok()?;
        let (place, skip, len) = match (piece.kind, extent.kind) {
            (PieceKind::Plain(place), ExtentKind::Plain { .. }) => {
                (place, extent.offset.checked_sub(piece.from)?, extent.len)
            }
            // The stored bytes of a zlib extent are not those of the cluster.
            (PieceKind::Cluster(cluster), ExtentKind::Encoded(encoding))
                if encoding.algorithm != Algorithm::Zlib =>
            {
                let skip = self.zeros_before(&cluster).ok()?;
                (cluster.place, skip, encoding.stored_len)
            }
            _ => return None,
        };
        let StoredPlace::Data { device, at } = place else {
            return None;
        };
        let (device, at) = self.locate(device, at).ok()?;
        Some(DevicePlace {
            store: self.store,
            device: device.into(),
            at: at.checked_add(skip)?,
            len,
        })
    }
}
