//! Writing the content of files.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use codec::Decoder;
use linux::OpenFlags;
use tree::{Error, Result, WrittenExtent};

use super::super::apply::can_fall_back;
use super::super::files::{OpenFiles, open_regular, open_regular_with_stat};
use super::super::ranges::{
    FILE_BYTES_MAX, KEEP_SIZE, PUNCH_HOLE, copy_range, is_not_shareable, punch,
};
use super::building::{CAPABILITY, OpenFile, ReceivedDirectory};
use crate::apply::CloneRange;
use crate::encoded::EncodedWrite;

/// The most extents that are written before they are read back.
const WRITTEN_MAX: usize = 64;
/// A mode of `fallocate` (linux/falloc.h).
const ZERO_RANGE: u32 = 0x10;

impl ReceivedDirectory {
    /// A regular file that is about to change.
    pub(super) fn writable(&mut self, path: &[u8]) -> Result<&File> {
        let open = self.opened(path)?;
        open.read_back()?;
        Ok(&open.file)
    }

    /// The same, of which only a part changes that no extent was written to.
    fn opened(&mut self, path: &[u8]) -> Result<&mut OpenFile> {
        let is_open = self.file.as_ref().is_some_and(|open| open.path == path);
        if !is_open {
            self.close(b"")?;
            let (dir, name) = self.files.at(path)?;
            let (file, stat) = open_regular_with_stat(&dir, name, OpenFlags::RDWR)?;
            if self.no_devices.contains(&stat.ino) {
                return Err(Error::InvalidInput("not a regular file"));
            }
            let capability = if self.has_capabilities {
                capability(|each| linux::for_each_xattr_of(&file, each))?
            } else {
                None
            };
            self.file = Some(OpenFile {
                capability,
                path: path.to_vec(),
                file,
                times: (stat.atime, stat.mtime),
                is_dirty: false,
                written: Vec::new(),
            });
        }
        let open = self.file.as_mut().ok_or(Error::NotFound)?;
        open.is_dirty = true;
        Ok(open)
    }

    /// Closes the file that was written last if it is this one or below this directory, and gives
    /// it back what writing has changed.
    pub(super) fn close(&mut self, path: &[u8]) -> Result<()> {
        let is_in = |open: &mut OpenFile| {
            let rest = open.path.strip_prefix(path);
            rest.is_some_and(|rest| path.is_empty() || rest.is_empty() || rest[0] == b'/')
        };
        let Some(mut open) = self.file.take_if(is_in) else {
            return Ok(());
        };
        open.read_back()?;
        if open.is_dirty {
            if let Some(value) = &open.capability {
                linux::set_xattr(&open.file, CAPABILITY, value)?;
            }
            let (atime, mtime) = open.times;
            linux::set_times(&open.file, Some(atime), mtime)?;
        }
        Ok(())
    }

    pub(super) fn encoded_write(&mut self, write: &EncodedWrite<'_>) -> Result<()> {
        let (mut decoder, mut decoded) = (
            std::mem::take(&mut self.decoder),
            std::mem::take(&mut self.decoded),
        );
        let written = self.write_decoded(write, &mut decoder, &mut decoded);
        (self.decoder, self.decoded) = (decoder, decoded);
        written
    }

    fn write_decoded(
        &mut self,
        write: &EncodedWrite<'_>,
        decoder: &mut Decoder,
        decoded: &mut Vec<u8>,
    ) -> Result<()> {
        let content = write.decode_exactly(decoder, decoded)?;
        let encodes = self.writes_encoded;
        let open = self.opened(write.path)?;
        let is_kept = |last: &WrittenExtent| WrittenExtent::is_kept(last.end(), write.file_offset);
        if open.written.len() >= WRITTEN_MAX || !open.written.last().is_none_or(is_kept) {
            open.read_back()?;
        }
        if let Some(extent) = write.extent().filter(|_| encodes) {
            use linux::errno::{ENOTTY, EPERM};
            match linux::write_encoded(&open.file, &extent) {
                Ok(()) => {
                    open.written.push(WrittenExtent::of(&extent));
                    return Ok(());
                }
                Err(error) if can_fall_back(&error, true) => {
                    if matches!(error.raw_os_error(), Some(ENOTTY | EPERM)) {
                        self.writes_encoded = false;
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self
            .writable(write.path)?
            .write_all_at(content, write.file_offset)?)
    }

    pub(super) fn clone_range(&mut self, path: &[u8], range: &CloneRange<'_>) -> Result<()> {
        let CloneRange {
            offset,
            len,
            source_offset,
            ..
        } = *range;
        let source = if range.uuid == self.sent.uuid {
            let (dir, name) = self.files.at(range.source)?;
            open_regular(&dir, name, OpenFlags::RDONLY)?
        } else {
            let root = self.sources.get(&range.uuid).ok_or(Error::NotFound)?;
            OpenFiles::beneath(root, range.source)?
        };
        let end = source_offset.checked_add(len);
        if end.is_none_or(|end| source.metadata().is_ok_and(|it| end > it.len())) {
            return Err(Error::InvalidInput(
                "clone reaches beyond the end of its source",
            ));
        }
        if len == 0 {
            return Ok(()); // Linux would take it for the rest of the file.
        }
        let file = self.writable(path)?;
        match linux::clone_range(&source, source_offset, len, file, offset) {
            Ok(()) => self.done.shared_clones += 1,
            Err(error) if is_not_shareable(&error) => {
                let file = self.writable(path)?;
                let copied = copy_range(&source, source_offset, len, file, offset)?;
                self.done.copied_bytes += copied;
                self.done.copied_clones += 1;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Nothing is allocated: the file only grows, or loses what is in the range.
    pub(super) fn allocate(&mut self, path: &[u8], mode: u32, offset: u64, len: u64) -> Result<()> {
        let file = self.writable(path)?;
        let end = offset.checked_add(len);
        let Some(end) = end.filter(|&end| end <= FILE_BYTES_MAX) else {
            return Err(Error::InvalidInput(
                "allocation ends beyond the largest offset of a file",
            ));
        };
        match mode & !KEEP_SIZE {
            0 => {}
            PUNCH_HOLE | ZERO_RANGE => punch(file, offset, end)?,
            _ => return Err(Error::InvalidInput("mode of an allocation is unknown")),
        }
        if mode & KEEP_SIZE == 0 && file.metadata()?.len() < end {
            file.set_len(end)?;
        }
        Ok(())
    }
}

/// The capabilities of a file, from its extended attributes.
pub(super) fn capability(
    attributes: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])) -> io::Result<()>,
) -> io::Result<Option<Vec<u8>>> {
    let mut found = None;
    attributes(&mut |name, value| {
        if name == CAPABILITY {
            found = Some(value.to_vec());
        }
    })?;
    Ok(found)
}
