//! Making, moving and removing files.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use linux::Timestamp;
use tree::{Error, Result};

use super::super::files::{check_kind, make};
use super::building::{PENDING_MAX, ReceivedDirectory};
use crate::apply::NewFile;

/// The name of a new file until it moves to its place.
const NEW: &[u8] = b"new";

impl ReceivedDirectory {
    /// Makes a file elsewhere, and moves it to its place. A file stands for a device that cannot be
    /// made, until the end.
    pub(super) fn create(&mut self, path: &[u8], file: &NewFile<'_>) -> Result<()> {
        check_kind(file)?;
        let (dir, name) = self.files.at(path)?;
        self.touched.touch(&dir)?;
        let nursery = Arc::clone(&self.nursery);
        let is_device = matches!(file, NewFile::Device { .. });
        let mut stands_for = None;
        match make(&nursery, NEW, file) {
            Err(error) if is_device && error.kind() == io::ErrorKind::PermissionDenied => {
                make(&nursery, NEW, &NewFile::Regular)?;
                stands_for = Some(linux::stat_at(&*nursery, NEW)?.ino);
            }
            made => made?,
        }
        let placed = linux::set_times_at(&*nursery, NEW, None, Timestamp::default())
            .and_then(|()| rename_new(&nursery, NEW, &dir, name));
        if placed.is_err() {
            // It would be in the way of the next one.
            linux::remove_tree_at(&*nursery, NEW)?;
        }
        placed.map_err(named)?;
        if is_device && self.no_devices.len() >= PENDING_MAX {
            return Err(Error::Limit("devices that cannot be made"));
        }
        self.no_devices.extend(stands_for);
        Ok(())
    }

    pub(super) fn rename(&mut self, path: &[u8], path_to: &[u8]) -> Result<()> {
        self.close(path)?;
        self.close(path_to)?;
        let (dir, name) = self.files.at(path)?;
        let (dir_to, name_to) = self.files.at(path_to)?;
        self.touched.touch(&dir)?;
        self.touched.touch(&dir_to)?;
        rename_new(&dir, name, &dir_to, name_to).map_err(named)?;
        self.files.forget(path);
        self.files.forget(path_to);
        Ok(())
    }

    pub(super) fn link(&mut self, path: &[u8], path_link: &[u8]) -> Result<()> {
        let (dir, name) = self.files.at(path_link)?;
        let (dir_to, name_to) = self.files.at(path)?;
        self.touched.touch(&dir_to)?;
        linux::link_at(&*dir, name, &*dir_to, name_to).map_err(named)
    }

    /// Removes a file by `remove`. Another one may get its inode number.
    pub(super) fn remove(
        &mut self,
        path: &[u8],
        remove: impl FnOnce(&OwnedFd, &[u8]) -> io::Result<()>,
    ) -> Result<()> {
        self.close(path)?;
        self.files.forget(path);
        let (dir, name) = self.files.at(path)?;
        self.touched.touch(&dir)?;
        let stat = linux::stat_at(&*dir, name)?;
        remove(&dir, name)?;
        if stat.is_dir() || stat.nlink == 1 {
            self.modes.remove(&stat.ino);
            self.no_devices.remove(&stat.ino);
        }
        Ok(())
    }
}

/// Says that a new name is taken; elsewhere, an option can replace what is there.
fn named(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Error::InvalidInput("new name is that of another file"),
        _ => error.into(),
    }
}

/// Renames a file to a name that no other has.
pub(super) fn rename_new(
    dir: &OwnedFd,
    name: &[u8],
    dir_to: &OwnedFd,
    name_to: &[u8],
) -> io::Result<()> {
    match linux::rename_new_at(dir, name, dir_to, name_to) {
        // The file system lacks RENAME_NOREPLACE.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            if linux::stat_at(dir_to, name_to).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            linux::rename_at(dir, name, dir_to, name_to)
        }
        renamed => renamed,
    }
}
