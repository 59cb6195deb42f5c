//! Reading what was written encoded from the medium.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use linux::OpenFlags;
use tree::{Error, Result};

/// The most ranges that are remembered; then they are read.
const RANGES_MAX: usize = 1 << 20;
/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// Ranges of files that were written encoded, by inode number.
#[derive(Default)]
pub(super) struct Written {
    ranges: Vec<(u64, u64, u64)>,
}

impl Written {
    /// Remembers a range from `from` to `to`.
    pub(super) fn add(&mut self, ino: u64, from: u64, to: u64) {
        if let Some(last) = self.ranges.last_mut()
            && (last.0, last.2) == (ino, from)
        {
            last.2 = to;
            return;
        }
        self.ranges.push((ino, from, to));
    }

    /// Whether the ranges should be read before there are more.
    pub(super) fn is_full(&self) -> bool {
        self.ranges.len() >= RANGES_MAX
    }

    /// Reads all of them past the page cache. Everything must be on the medium.
    pub(super) fn read(&mut self, target: impl AsFd, subvolume: u64) -> Result<()> {
        let target = target.as_fd();
        let mut buffer = vec![0; READ_BYTES];
        let mut open: Option<(u64, File)> = None;
        for (ino, from, to) in self.ranges.drain(..) {
            if open.as_ref().is_none_or(|(number, _)| *number != ino) {
                open = None;
                let flags = OpenFlags::RDONLY | OpenFlags::NONBLOCK | OpenFlags::NOATIME;
                match linux::open_inode(target, subvolume, ino, flags) {
                    Ok(file) => {
                        linux::drop_cached(&file)?;
                        open = Some((ino, File::from(file)));
                    }
                    // It was deleted.
                    Err(error) if error.raw_os_error() == Some(linux::errno::ESTALE) => continue,
                    Err(error) => return Err(error.into()),
                }
            }
            let Some((_, file)) = &open else { continue };
            let mut at = from;
            while at < to {
                let len = (to - at).min(READ_BYTES as u64) as usize;
                match file.read_at(&mut buffer[..len], at) {
                    Ok(0) => break, // The file was cut.
                    Ok(read) => at += read as u64,
                    Err(error) => {
                        let part = Error::from(error).in_part("byte", at);
                        return Err(part.in_part("inode", ino));
                    }
                }
            }
        }
        Ok(())
    }
}
