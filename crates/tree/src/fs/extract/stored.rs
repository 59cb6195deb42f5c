//! Writing compressed extents to a mounted btrfs as they are stored in the source, and sharing
//! there what the source shares.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use codec::{Algorithm, Decoder};
use linux::{ENCODED_BYTES_MAX, EncodedExtent, OpenFlags, TOP_LEVEL};

use super::super::{Encoding, Extent, ExtentId, ExtentKind, FileSystem, Ino};
use crate::{Error, KeptCount, Result, WrittenExtent};

/// The most extents that are written before they are read back.
const WRITTEN_MAX: usize = 64;
/// The most extents that are remembered so that others can share with them.
const KNOWN_MAX: usize = 1 << 20;

/// Counts of extents written to a mounted btrfs as they were stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredCopies {
    /// The extents that were written as they are encoded; each was decoded before.
    pub kept: KeptCount,
    /// The extents that share space with one that was written before.
    pub shared: u64,
    /// The encoded extents that Linux did not take, and that were written decoded.
    pub decoded: u64,
    /// Why Linux did not take the first of them.
    pub reason: Option<Box<str>>,
}

impl StoredCopies {
    /// Adds the counts of another thread.
    pub(super) fn append(&mut self, other: StoredCopies) {
        self.kept += other.kept;
        self.shared += other.shared;
        self.decoded += other.decoded;
        self.reason = self.reason.take().or(other.reason);
    }
}

/// A mounted btrfs that takes extents as they are stored.
pub(super) struct StoredWriter {
    root: OwnedFd,
    subvolume: u64,
    sector_bytes: u32,
    known: Mutex<HashMap<Key, StoredCopy>>,
    changed: Condvar,
}

/// Stored bytes of the source: an extent as a whole if it is encoded, otherwise from an offset in
/// it.
type Key = (ExtentId, u64);

/// The state of stored bytes of the source.
#[derive(Clone, Copy)]
enum StoredCopy {
    /// A thread writes them.
    Writing,
    /// A file has them.
    Written(Written),
}

/// Where stored bytes were written.
#[derive(Clone, Copy)]
struct Written {
    ino: u64,
    offset: u64,
    len: u64,
    /// The offset of the first of them, in the decoded extent.
    skip: u64,
}

/// The state that a thread needs to write extents.
#[derive(Default)]
pub(super) struct StoredWorkspace {
    decoder: Option<Decoder>,
    stored: Vec<u8>,
    decoded: Vec<u8>,
    /// Extents of the file that is being written that were not read back.
    written: Vec<WrittenExtent>,
    /// The last file that others shared with.
    open: Option<(u64, File)>,
    pub(super) done: StoredCopies,
}

impl StoredWorkspace {
    /// Forgets the extents of a file that was given up.
    pub(super) fn forget_written(&mut self) {
        self.written.clear();
    }

    /// Reads back the encoded extents of a file.
    ///
    /// # Errors
    /// As for [`WrittenExtent::read_back`].
    pub(super) fn read_back(&mut self, out: &File) -> Result<()> {
        let mut written = self.written.drain(..);
        written.try_for_each(|it| it.read_back(out, &mut self.stored))
    }
}

impl StoredWriter {
    /// For files below an open directory; `None` if it is not on btrfs, or encoded extents may not
    /// be written there, or the source has no stored extents.
    pub(super) fn of(root: &OwnedFd, source: &dyn FileSystem) -> Option<StoredWriter> {
        if !source.storage().stored_extents || !linux::is_btrfs(root).ok()? {
            return None;
        }
        // Searching a tree needs the same privilege.
        linux::subvolume(root, TOP_LEVEL).ok()?;
        Some(StoredWriter {
            root: root.try_clone().ok()?,
            subvolume: linux::subvolume_id(root).ok()?,
            sector_bytes: linux::btrfs_file_system(root).ok()?.sector_bytes,
            known: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Whether an extent is written as a whole, as it is stored, by [`StoredWriter::write`].
    pub(super) fn keeps(&self, extent: &Extent, size: u64) -> bool {
        let sector = u64::from(self.sector_bytes);
        let ExtentKind::Encoded(encoding) = extent.kind else {
            return false;
        };
        let is_known = match encoding.algorithm {
            Algorithm::Zlib | Algorithm::Zstd => true,
            Algorithm::LzoBtrfs { sector_bytes } => sector_bytes == self.sector_bytes,
            Algorithm::Lzo | Algorithm::Lz4 | Algorithm::Xz | Algorithm::Lzma => false,
        };
        let shown_end = encoding.unencoded_offset.checked_add(extent.len);
        is_known
            && encoding.unencoded_len <= ENCODED_BYTES_MAX
            // Linux takes no longer ones.
            && encoding.stored_len < encoding.unencoded_len
            && shown_end.is_some_and(|end| end <= encoding.unencoded_len.next_multiple_of(sector))
            && extent.offset.is_multiple_of(sector)
            && encoding.unencoded_offset.is_multiple_of(sector)
            && (extent.len.is_multiple_of(sector) || extent.end() == size)
    }

    /// Writes an encoded extent of the source as it is stored, or decoded where Linux
    /// does not take it.
    ///
    /// # Errors
    /// [`Failure::Read`] if the source cannot be read or decoded, [`Failure::Write`] if the target
    /// cannot be written.
    pub(super) fn write(
        &self,
        source: (&dyn FileSystem, Ino),
        extent: &Extent,
        encoding: &Encoding,
        out: &File,
        ws: &mut StoredWorkspace,
    ) -> std::result::Result<(), Failure> {
        let key = extent.id.map(|id| (id, 0));
        self.share_or(key, extent, encoding.unencoded_offset, out, ws, |ws| {
            let (fs, ino) = source;
            let checksum = fs.read_encoded(ino, extent, &mut ws.stored)?;
            decode(ws, encoding)?;
            if self.write_encoded(out, extent, encoding, ws)? {
                if ws.written.len() >= WRITTEN_MAX {
                    ws.read_back(out).map_err(Failure::ReadBack)?;
                }
                ws.done.kept += KeptCount::one(checksum, true);
                return Ok(());
            }
            ws.done.decoded += 1;
            let from = encoding.unencoded_offset as usize;
            let content = ws.decoded.get(from..).unwrap_or_default();
            let content = content.get(..extent.len as usize);
            let content = content.ok_or(Error::Inconsistent(
                "a file shows more of an extent than it has",
            ))?;
            out.write_all_at(content, extent.offset)
                .map_err(Failure::Write)
        })
    }

    /// Shares a part of a plain extent of the source with one that was written before, or calls
    /// `write`.
    ///
    /// # Errors
    /// As for [`StoredWriter::write`].
    pub(super) fn share_plain(
        &self,
        part: &Extent,
        out: &File,
        ws: &mut StoredWorkspace,
        write: impl FnOnce() -> std::result::Result<(), Failure>,
    ) -> std::result::Result<(), Failure> {
        let ExtentKind::Plain { stored_offset } = part.kind else {
            return write();
        };
        let key = part.id.map(|id| (id, stored_offset));
        self.share_or(key, part, stored_offset, out, ws, |_| write())
    }

    /// Shares earlier data, or calls `write` and remembers that.
    fn share_or(
        &self,
        key: Option<Key>,
        extent: &Extent,
        skip: u64,
        out: &File,
        ws: &mut StoredWorkspace,
        write: impl FnOnce(&mut StoredWorkspace) -> std::result::Result<(), Failure>,
    ) -> std::result::Result<(), Failure> {
        let Some(key) = key else {
            return write(ws);
        };
        match self.claim(key) {
            Claim::Written(there) => {
                if self.share(&there, extent, skip, out, ws).is_some() {
                    ws.done.shared += 1;
                    return Ok(());
                }
                write(ws)
            }
            Claim::Mine => {
                let mut settling = Settling {
                    writer: self,
                    key,
                    written: None,
                };
                write(ws)?;
                if let Ok(stat) = linux::stat(out) {
                    settling.written = Some(Written {
                        ino: stat.ino,
                        offset: extent.offset,
                        len: extent.len,
                        skip,
                    });
                }
                Ok(())
            }
            Claim::None => write(ws),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<Key, StoredCopy>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no thread writes these bytes. A thread that writes waits for no others, so this
    /// ends.
    fn claim(&self, key: Key) -> Claim {
        let mut known = self.known();
        loop {
            let is_full = known.len() >= KNOWN_MAX;
            match known.entry(key) {
                Entry::Vacant(_) if is_full => return Claim::None,
                Entry::Vacant(entry) => {
                    entry.insert(StoredCopy::Writing);
                    return Claim::Mine;
                }
                Entry::Occupied(entry) => {
                    if let StoredCopy::Written(written) = *entry.get() {
                        return Claim::Written(written);
                    }
                }
            }
            known = self
                .changed
                .wait(known)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Shares a range of a file that was written before; `None` if Linux cannot, or the range does
    /// not have all of it.
    fn share(
        &self,
        there: &Written,
        extent: &Extent,
        skip: u64,
        out: &File,
        ws: &mut StoredWorkspace,
    ) -> Option<()> {
        let ahead = skip.checked_sub(there.skip)?;
        if ahead.checked_add(extent.len)? > there.len {
            return None;
        }
        if ws.open.as_ref().is_none_or(|(ino, _)| *ino != there.ino) {
            let flags = OpenFlags::RDONLY | OpenFlags::NONBLOCK;
            let file = linux::open_inode(&self.root, self.subvolume, there.ino, flags).ok()?;
            ws.open = Some((there.ino, File::from(file)));
        }
        let (_, file) = ws.open.as_ref()?;
        let from = there.offset.checked_add(ahead)?;
        linux::clone_range(file, from, extent.len, out, extent.offset).ok()
    }

    /// Returns whether Linux took the extent as it is.
    fn write_encoded(
        &self,
        out: &File,
        extent: &Extent,
        encoding: &Encoding,
        ws: &mut StoredWorkspace,
    ) -> std::result::Result<bool, Failure> {
        use linux::errno::{EINVAL, ENOSPC, ENOTTY, EPERM};
        let compression = match encoding.algorithm {
            Algorithm::Zlib => 1,
            Algorithm::Zstd => 2,
            // `BTRFS_ENCODED_IO_COMPRESSION_LZO_4K` is 3, and so on up to 64 KiB.
            _ => 3 + (self.sector_bytes / 4096).trailing_zeros(),
        };
        let sector = u64::from(self.sector_bytes);
        let encoded = EncodedExtent {
            offset: extent.offset,
            len: extent.len,
            unencoded_len: encoding.unencoded_len,
            unencoded_offset: encoding.unencoded_offset,
            compression,
            data: &ws.stored,
        };
        let written = linux::write_encoded(out, &encoded);
        let written = match written {
            // The end of a file can be stored with its exact length, which Linux takes only for
            // inline extents.
            Err(error)
                if error.raw_os_error() == Some(EINVAL)
                    && !encoding.unencoded_len.is_multiple_of(sector) =>
            {
                let unencoded_len = encoding.unencoded_len.next_multiple_of(sector);
                linux::write_encoded(
                    out,
                    &EncodedExtent {
                        unencoded_len,
                        ..encoded
                    },
                )
            }
            written => written,
        };
        match written {
            Ok(()) => {
                ws.written.push(WrittenExtent::of(&encoded));
                Ok(true)
            }
            Err(error)
                if matches!(error.raw_os_error(), Some(EINVAL | ENOSPC | ENOTTY | EPERM)) =>
            {
                let reason = || Some(error.to_string().into());
                ws.done.reason = ws.done.reason.take().or_else(reason);
                Ok(false)
            }
            Err(error) => Err(Failure::Write(error)),
        }
    }
}

/// Bytes that this thread writes. Others wait until it is dropped, also by a panic.
struct Settling<'a> {
    writer: &'a StoredWriter,
    key: Key,
    /// Where they are; `None` if they were not written.
    written: Option<Written>,
}

impl Drop for Settling<'_> {
    fn drop(&mut self) {
        let mut known = self.writer.known();
        match self.written {
            Some(written) => known.insert(self.key, StoredCopy::Written(written)),
            None => known.remove(&self.key),
        };
        drop(known);
        self.writer.changed.notify_all();
    }
}

enum Claim {
    /// It is not written, and others wait until it is settled.
    Mine,
    Written(Written),
    /// Too many are remembered.
    None,
}

/// Why an extent was not written.
pub(super) enum Failure {
    /// The source cannot be read.
    Read(Error),
    /// The target cannot be written.
    Write(io::Error),
    /// The target does not read back as it was written.
    ReadBack(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Read(error)
    }
}

/// Decodes the stored bytes as a whole: Linux does not look at them before the file is read.
fn decode(ws: &mut StoredWorkspace, encoding: &Encoding) -> Result<()> {
    if !encoding.algorithm.is_extent(&ws.stored) {
        return Err(Error::Unverified("the extent is not one that Linux reads"));
    }
    ws.decoded.clear();
    // Linux rounds up what the end of a file has.
    let room = encoding.unencoded_len.next_multiple_of(4096) as usize;
    ws.decoded.resize(room, 0);
    let decoder = ws.decoder.get_or_insert_with(Decoder::new);
    decoder
        .decompress_extent(encoding.algorithm, &mut ws.decoded, &ws.stored)
        .map_err(|error| Error::Unverified(error.as_str()))?;
    Ok(())
}
