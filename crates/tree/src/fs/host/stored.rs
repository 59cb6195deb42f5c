//! The extents of files on a mounted btrfs, as they are stored.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};

use codec::Algorithm;
use linux::{BtrfsFileSystem, ENCODED_BYTES_MAX, TOP_LEVEL};

use super::super::{Encoding, Extent, ExtentId, ExtentKind};
use crate::{Error, Result};

/// Maximum number of extents that one call of `extents` returns.
pub(super) const EXTENTS_MAX: usize = 256;

/// The length of a `struct btrfs_file_extent_item` without stored bytes, and of one in which they
/// follow.
pub(super) const ITEM_BYTES: usize = 53;
pub(super) const INLINE_AT: usize = 21;
/// `BTRFS_FILE_EXTENT_INLINE`, `BTRFS_FILE_EXTENT_REG`, `BTRFS_FILE_EXTENT_PREALLOC`.
pub(super) const INLINE: u8 = 0;
const REGULAR: u8 = 1;
pub(super) const PREALLOCATED: u8 = 2;

/// A mounted btrfs of which compressed extents can be read.
#[derive(Debug)]
pub(super) struct StoredExtents {
    file_system: BtrfsFileSystem,
    /// The subvolume of each device number, if it is one of this file system: each subvolume has a
    /// number of its own.
    subvolumes: Mutex<HashMap<(u32, u32), Option<u64>>>,
}

/// A file that is open.
#[derive(Clone, Copy)]
pub(super) struct OpenInode<'a> {
    pub(super) file: &'a File,
    pub(super) device: (u32, u32),
    pub(super) ino: u64,
    pub(super) size: u64,
}

/// An extent item, parsed.
struct Item {
    offset: u64,
    len: u64,
    kind: ExtentKind,
    id: Option<ExtentId>,
}

impl StoredExtents {
    /// The file system of an open directory; `None` if it is not a btrfs.
    ///
    /// # Errors
    /// The kernel's error; `PermissionDenied` without the privilege to read extents as they
    /// are stored.
    pub(super) fn of(root: impl AsFd) -> io::Result<Option<StoredExtents>> {
        let root = root.as_fd();
        if !linux::is_btrfs(root)? {
            return Ok(None);
        }
        // Searching a tree needs the same privilege as reading extents.
        linux::subvolume(root, TOP_LEVEL)?;
        Ok(Some(StoredExtents {
            file_system: linux::btrfs_file_system(root)?,
            subvolumes: Mutex::default(),
        }))
    }

    /// The number of the subvolume of a file; `None` if it is on another file system.
    pub(super) fn subvolume(&self, inode: &OpenInode<'_>) -> Result<Option<u64>> {
        let known = |it: &Mutex<HashMap<_, _>>| {
            let known = it.lock().unwrap_or_else(PoisonError::into_inner);
            known.get(&inode.device).copied()
        };
        if let Some(subvolume) = known(&self.subvolumes) {
            return Ok(subvolume);
        }
        let is_of_this = linux::is_btrfs(inode.file)?
            && linux::btrfs_file_system(inode.file)?.uuid == self.file_system.uuid;
        let subvolume = is_of_this
            .then(|| linux::subvolume_id(inode.file))
            .transpose()?;
        let mut subvolumes = self
            .subvolumes
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        subvolumes.insert(inode.device, subvolume);
        Ok(subvolume)
    }

    /// The extents from the one that covers `from`, without gaps, some at once; `None` if the file
    /// is on another file system.
    ///
    /// They are taken from the items of the tree. FIEMAP joins extents that follow each other on
    /// the medium, and so does not tell which stored bytes each one shows.
    pub(super) fn extents(&self, inode: &OpenInode<'_>, from: u64) -> Result<Option<Vec<Extent>>> {
        let Some(subvolume) = self.subvolume(inode)? else {
            return Ok(None);
        };
        if from >= inode.size {
            return Ok(Some(Vec::new()));
        }
        linux::flush_extents(inode.file)?;
        // Where to search from for the item that covers `from`.
        let mut room = ENCODED_BYTES_MAX;
        loop {
            let start = from.saturating_sub(room);
            if let Some(extents) = self.extents_behind(inode, subvolume, start, from)? {
                return Ok(Some(extents));
            }
            room = room.saturating_mul(64);
        }
    }

    /// As [`StoredExtents::extents`]; `None` if no item is between `start` and `from`, and there
    /// can be one before.
    fn extents_behind(
        &self,
        inode: &OpenInode<'_>,
        subvolume: u64,
        start: u64,
        from: u64,
    ) -> Result<Option<Vec<Extent>>> {
        // The last item at or before `from`, and the ones after it.
        let mut before: Option<Item> = None;
        let mut items: Vec<Item> = Vec::new();
        let mut fault = None;
        linux::for_each_extent_item(inode.file, subvolume, inode.ino, start, |offset, bytes| {
            let Some(item) = self.parse(offset, bytes) else {
                fault = Some(Error::Unsupported("an extent of btrfs of an unknown kind"));
                return false;
            };
            if offset <= from {
                before = Some(item);
            } else {
                items.push(item);
            }
            offset < inode.size && items.len() < EXTENTS_MAX
        })?;
        if let Some(fault) = fault {
            return Err(fault);
        }
        if before.is_none() && start > 0 {
            return Ok(None);
        }
        // Where the search ended at EXTENTS_MAX, what follows the last extent is unknown.
        let known_end = match items.last() {
            Some(last) if items.len() >= EXTENTS_MAX => last.offset.min(inode.size),
            _ => inode.size,
        };
        let mut extents = Vec::with_capacity(items.len() + 1);
        let hole = |offset: u64, end: u64| Extent {
            offset,
            len: end - offset,
            kind: ExtentKind::Hole,
            id: None,
        };
        let mut at = before.as_ref().map_or(0, |item| item.offset);
        for item in before.into_iter().chain(items) {
            if item.offset >= known_end {
                break;
            }
            if item.offset < at {
                // They overlap only if the file changes.
                return Err(Error::Changed);
            }
            if item.offset > at {
                extents.push(hole(at, item.offset));
            }
            let end = item.offset.saturating_add(item.len).min(inode.size);
            if end > item.offset {
                extents.push(Extent {
                    offset: item.offset,
                    len: end - item.offset,
                    kind: item.kind,
                    id: item.id,
                });
            }
            at = end;
        }
        if at < known_end {
            extents.push(hole(at, known_end));
        }
        let first = extents.iter().position(|extent| extent.end() > from);
        extents.drain(..first.unwrap_or(extents.len()));
        if extents.is_empty() {
            return Err(Error::Changed);
        }
        Ok(Some(extents))
    }

    fn parse(&self, offset: u64, bytes: &[u8]) -> Option<Item> {
        let long = |at: usize| {
            let bytes = bytes.get(at..)?.first_chunk()?;
            Some(u64::from_le_bytes(*bytes))
        };
        let (generation, ram_bytes) = (long(0)?, long(8)?);
        let [compression, encryption, other @ .., kind] = *bytes.get(16..)?.first_chunk::<5>()?;
        // An extent that only Linux can decode is read through it.
        let algorithm = self
            .algorithm(compression)
            .filter(|_| encryption == 0 && other == [0; 2] && ram_bytes <= ENCODED_BYTES_MAX);
        if kind == INLINE {
            let stored_len = bytes.len().checked_sub(INLINE_AT)? as u64;
            let kind = match algorithm {
                Some(algorithm) => ExtentKind::Encoded(Encoding {
                    algorithm,
                    stored_len,
                    unencoded_len: ram_bytes,
                    unencoded_offset: 0,
                }),
                None => ExtentKind::Plain { stored_offset: 0 },
            };
            return Some(Item {
                offset,
                len: ram_bytes,
                kind,
                id: None,
            });
        }
        if bytes.len() < ITEM_BYTES {
            return None;
        }
        let (at, stored_len, skip, len) = (long(21)?, long(29)?, long(37)?, long(45)?);
        let stored_offset = skip;
        let algorithm = algorithm.filter(|_| stored_len <= ENCODED_BYTES_MAX);
        let kind = match kind {
            REGULAR if at == 0 => ExtentKind::Hole,
            REGULAR => match algorithm {
                Some(algorithm) => ExtentKind::Encoded(Encoding {
                    algorithm,
                    stored_len,
                    unencoded_len: ram_bytes,
                    unencoded_offset: skip,
                }),
                // With an unknown compression, an offset in the extent says nothing about stored
                // bytes.
                None => ExtentKind::Plain { stored_offset },
            },
            PREALLOCATED => ExtentKind::Preallocated { stored_offset },
            _ => return None,
        };
        let is_encoded = matches!(kind, ExtentKind::Encoded(_));
        let has_id = at != 0 && (compression != 0) == is_encoded;
        Some(Item {
            offset,
            len,
            kind,
            id: has_id.then(|| identity(at, generation)).flatten(),
        })
    }

    /// The algorithm of a number in an extent item, if it is one that is known and not "none".
    pub(super) fn algorithm(&self, compression: u8) -> Option<Algorithm> {
        match compression {
            1 => Some(Algorithm::Zlib),
            2 => Some(Algorithm::LzoBtrfs {
                sector_bytes: self.file_system.sector_bytes,
            }),
            3 => Some(Algorithm::Zstd),
            _ => None,
        }
    }

    /// Reads the stored bytes of an extent that [`StoredExtents::extents`] returned.
    pub(super) fn read(
        &self,
        file: &File,
        extent: &Extent,
        encoding: &Encoding,
        stored: &mut Vec<u8>,
    ) -> Result<()> {
        let room = encoding.stored_len.min(ENCODED_BYTES_MAX) as usize;
        let read = match linux::read_encoded(file, extent.offset, room, stored) {
            // It is longer now.
            Err(error) if error.raw_os_error() == Some(linux::errno::ENOBUFS) => {
                return Err(Error::Changed);
            }
            read => read?,
        };
        // `BTRFS_ENCODED_IO_COMPRESSION_*`.
        let is_same_algorithm = match encoding.algorithm {
            Algorithm::Zlib => read.compression == 1,
            Algorithm::Zstd => read.compression == 2,
            _ => (3..=7).contains(&read.compression),
        };
        let is_same = is_same_algorithm
            && (read.unencoded_len, read.unencoded_offset)
                == (encoding.unencoded_len, encoding.unencoded_offset)
            && read.len == extent.len
            && stored.len() as u64 == encoding.stored_len;
        if is_same { Ok(()) } else { Err(Error::Changed) }
    }
}

/// The identity of an extent in the file system, now and before: its place and the
/// transaction that made it, because another extent can get its place when it is gone.
fn identity(at: u64, generation: u64) -> Option<ExtentId> {
    // Places are multiples of 4 KiB and below 2^52; transactions do not come round in the life of a
    // copy.
    let place = at >> 12;
    let is_exact = at.is_multiple_of(4096) && place < 1 << 40;
    is_exact.then_some(ExtentId(place << 24 | generation & 0xff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_that_take_the_place_of_others_have_another_identity() {
        assert_eq!(identity(4096, 7), Some(ExtentId(1 << 24 | 7)));
        assert_ne!(identity(4096, 7), identity(4096, 8));
        assert_ne!(identity(4096, 7), identity(8192, 7));
        assert_eq!(identity(4097, 7), None);
        assert_eq!(identity(1 << 52, 7), None);
    }
}
