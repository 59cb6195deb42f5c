//! Files of the host that share their data with their source, where the file system can do that.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{PoisonError, RwLock};

use super::super::{FileSystem, HostContent, Ino};

/// Clones files into a target.
pub(super) struct Clones {
    is_btrfs: bool,
    /// The devices from which nothing can be cloned into the target.
    refused: RwLock<Vec<(u32, u32)>>,
}

impl Clones {
    /// For files below an open directory.
    pub(super) fn into(target: &OwnedFd) -> Clones {
        Clones {
            is_btrfs: linux::is_btrfs(target).unwrap_or(false),
            refused: RwLock::default(),
        }
    }

    /// The content of a file, open, if the file may be cloned. What asks for the attributes of the
    /// file next finds it open.
    pub(super) fn content<'s>(
        &self,
        source: &'s dyn FileSystem,
        file: Ino,
        size: u64,
    ) -> Option<HostContent<'s>> {
        (size > 0).then(|| source.host_content(file)).flatten()
    }

    /// Clones a file of `size` bytes into an empty one. Returns whether it did; otherwise `out` is
    /// empty.
    ///
    /// Whatever the reason is why it did not, the caller copies the file, and names what is wrong
    /// if that fails, too. What is cloned is not read back: it is the data of the source itself,
    /// and no byte is written that could differ from it.
    ///
    /// # Errors
    /// `out` cannot be emptied.
    pub(super) fn make(
        &self,
        content: &HostContent<'_>,
        size: u64,
        out: &File,
    ) -> io::Result<bool> {
        let device = content.device();
        let refused = self.refused.read().unwrap_or_else(PoisonError::into_inner);
        if refused.contains(&device) {
            return Ok(false);
        }
        drop(refused);
        match content.clone_to(out, size) {
            Ok(true) => return Ok(true),
            Err(error) if self.is_for_all(&error) => {
                let mut refused = self.refused.write().unwrap_or_else(PoisonError::into_inner);
                if !refused.contains(&device) {
                    refused.push(device);
                }
            }
            Ok(false) | Err(_) => {}
        }
        out.set_len(0)?;
        Ok(false)
    }

    /// Whether no file of this device can be cloned into the target. Other errors concern one file:
    /// `EINVAL` where one of the two files has checksums and the other has none (`chattr +C`),
    /// `ETXTBSY` for a swap file.
    fn is_for_all(&self, error: &io::Error) -> bool {
        use linux::errno::{ENOTTY, EOPNOTSUPP, EXDEV};
        match error.raw_os_error() {
            Some(ENOTTY | EXDEV) => true,
            // Some versions of btrfs report it for single files with inline extents.
            Some(EOPNOTSUPP) => !self.is_btrfs,
            _ => false,
        }
    }
}
