//! The content of a regular file of the host, for a sink that can share it instead of copying it.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::{HostDir, Ino, OpenFile};

/// A regular file of the host, open, whose content is exactly that of a file of a tree.
#[derive(Debug)]
pub struct HostContent<'a> {
    dir: &'a HostDir,
    ino: Ino,
    open: Arc<OpenFile>,
    device: (u32, u32),
}

impl<'a> HostContent<'a> {
    /// Opens a file that was listed; `None` if that fails, which reading it explains.
    pub(super) fn of(dir: &'a HostDir, ino: Ino) -> Option<HostContent<'a>> {
        let open = dir.file(ino).ok()?;
        let table = dir.table();
        let inode = table.inode(ino).ok()?;
        let device = table.volumes.get(inode.volume as usize)?.device;
        drop(table);
        Some(HostContent {
            dir,
            ino,
            open,
            device,
        })
    }

    /// The device that the file is on.
    pub fn device(&self) -> (u32, u32) {
        self.device
    }

    /// Shares the whole content with `out`, an empty file of the host (`FICLONE`): holes,
    /// preallocated space and compressed data stay as they are. Returns `false` if the file does
    /// not have the listed content or not this size, so that `out` may have any content.
    ///
    /// # Errors
    /// What the kernel reports. `out` may then have a part of the content.
    pub fn clone_to(&self, out: &File, size: u64) -> io::Result<bool> {
        let file = &self.open.file;
        linux::clone_range(file, 0, 0, out, 0)?;
        // As after reading: it has not changed since it was listed, so what was cloned is what was
        // listed.
        let stat = linux::stat(file)?;
        Ok(stat.size == size && self.dir.is_listed(self.ino, &stat))
    }
}
