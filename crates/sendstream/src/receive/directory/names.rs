//! Making, moving and removing files.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use linux::{OpenFlags, Timestamp};
use tree::{Error, Result};

use super::{PENDING_MAX, ReceivedDirectory};
use crate::command::device;

/// The name of a new file until it moves to its place.
pub(super) const NEW: &[u8] = b"new";
/// Kinds of files (`S_IF*`).
const CHARACTER_DEVICE: u32 = 0o020_000;
const BLOCK_DEVICE: u32 = 0o060_000;
pub(super) const FIFO: u32 = 0o010_000;
pub(super) const SOCKET: u32 = 0o140_000;

impl ReceivedDirectory {
    /// Makes a file elsewhere, and moves it to its place.
    pub(super) fn make(
        &mut self,
        path: &[u8],
        make: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> Result<()> {
        let (dir, name) = self.files.at(path)?;
        self.touched.touch(&dir)?;
        let nursery = Arc::clone(&self.nursery);
        make(&nursery)?;
        let placed = linux::set_times_at(&*nursery, NEW, None, Timestamp::default())
            .and_then(|()| rename_new(&nursery, NEW, &dir, name));
        if placed.is_err() {
            // It would be in the way of the next one.
            linux::remove_tree_at(&*nursery, NEW)?;
        }
        placed.map_err(named)
    }

    /// Makes a device, or a file that stands for it until the end.
    pub(super) fn make_device(&mut self, path: &[u8], kind: u32, rdev: u64) -> Result<()> {
        if kind != CHARACTER_DEVICE && kind != BLOCK_DEVICE {
            return Err(Error::InvalidInput("mknod of a file that is not a device"));
        }
        let mut stands_for = None;
        self.make(path, |dir| match node(dir, kind, rdev) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                let flags = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::WRONLY;
                let file = linux::open_at(dir, NEW, flags, 0o600)?;
                stands_for = Some(linux::stat(&file)?.ino);
                Ok(())
            }
            made => made,
        })?;
        if self.no_devices.len() >= PENDING_MAX {
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

    pub(super) fn unlink(&mut self, path: &[u8]) -> Result<()> {
        let (dir, name) = self.vanishing(path)?;
        let stat = linux::stat_at(&*dir, name)?;
        linux::unlink_at(&*dir, name)?;
        if stat.nlink == 1 {
            self.forget_number(stat.ino);
        }
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, path: &[u8]) -> Result<()> {
        let (dir, name) = self.vanishing(path)?;
        let stat = linux::stat_at(&*dir, name)?;
        linux::remove_dir_at(&*dir, name)?;
        self.forget_number(stat.ino);
        Ok(())
    }

    /// The place of a file that is about to be removed.
    fn vanishing<'p>(&mut self, path: &'p [u8]) -> Result<(Rc<OwnedFd>, &'p [u8])> {
        self.close(path)?;
        self.files.forget(path);
        let place = self.files.at(path)?;
        self.touched.touch(&place.0)?;
        Ok(place)
    }

    /// A file is gone: another one may get its inode number.
    fn forget_number(&mut self, ino: u64) {
        self.modes.remove(&ino);
        self.no_devices.remove(&ino);
    }
}

pub(super) fn node(dir: &OwnedFd, kind: u32, rdev: u64) -> io::Result<()> {
    let device = device(rdev);
    linux::make_node_at(dir, NEW, kind | 0o600, (device.major, device.minor))
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
