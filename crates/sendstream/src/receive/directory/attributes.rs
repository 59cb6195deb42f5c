//! Setting attributes, modes, owners and times of files.

use std::io;

use linux::OpenFlags;
use tree::extract::Aspect;
use tree::{FileAttributes, Result};

use super::super::files::{DIRECTORY, KIND, NO_SET_ID, REGULAR, SET_ID, SYMLINK, open_regular};
use super::super::times::Times;
use super::building::{CAPABILITY, ReceivedDirectory};
use super::data::capability;
use super::rights::needed_mode;

impl ReceivedDirectory {
    pub(super) fn set_xattr(
        &mut self,
        path: &[u8],
        xattr: &[u8],
        value: &[u8],
        is_last: bool,
    ) -> Result<()> {
        if xattr == CAPABILITY {
            self.close(b"")?;
        }
        let (dir, name) = self.files.at(path)?;
        match linux::set_xattr_at(&*dir, name, xattr, value) {
            Ok(()) => {
                self.has_capabilities |= xattr == CAPABILITY;
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(error.into()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !is_last => {
                Err(error.into())
            }
            Err(error) => {
                let reason = format!("{}: {error}", xattr.escape_ascii());
                self.unrestored(Aspect::Xattr, path, &reason);
                Ok(())
            }
        }
    }

    pub(super) fn remove_xattr(&mut self, path: &[u8], xattr: &[u8]) -> Result<()> {
        self.close(b"")?;
        let (dir, name) = self.files.at(path)?;
        let Err(error) = linux::remove_xattr_at(&*dir, name, xattr) else {
            return Ok(());
        };
        // The stream, or one that its parent was received from, may have set it in vain.
        let may_lack = self.sent.parent.is_some() || self.done.unrestored.count(Aspect::Xattr) > 0;
        let mut is_there = false;
        linux::for_each_xattr(&*dir, name, |own, _| is_there |= own == xattr)?;
        if is_there || !may_lack {
            return Err(error.into());
        }
        Ok(())
    }

    fn unrestored(&mut self, aspect: Aspect, path: &[u8], reason: &dyn ToString) {
        self.done.unrestored.add(aspect, || path.to_vec(), reason);
    }

    pub(super) fn set_mode(&mut self, path: &[u8], wanted: u32) -> Result<()> {
        let (dir, name) = self.files.at(path)?;
        let stat = linux::stat_at(&*dir, name)?;
        if stat.mode & KIND == SYMLINK {
            return Ok(()); // Linux ignores those of links.
        }
        let mut mode = wanted;
        if !stat.is_dir() && wanted & SET_ID != 0 {
            let (owned, is_right) = &self.owned;
            let is_right = if owned == path {
                *is_right
            } else {
                self.owners && self.is_owner_right
            };
            if !is_right {
                mode &= !SET_ID;
                self.unrestored(Aspect::Mode, path, &NO_SET_ID);
            }
        }
        if stat.is_dir() {
            // Without the right to enter it, its times could not be set.
            self.touched.settle()?;
        }
        if let Some(pending) = self.modes.get_mut(&stat.ino) {
            *pending = mode;
            mode |= needed_mode(&stat);
        }
        if let Some(open) = self.file.as_ref().filter(|open| open.path == path) {
            return Ok(linux::set_mode(&open.file, mode)?);
        }
        Ok(linux::set_mode_at(&*dir, name, mode)?)
    }

    pub(super) fn set_owner(
        &mut self,
        path: &[u8],
        owner: (u32, u32),
        is_last: bool,
    ) -> Result<()> {
        let (dir, name) = self.files.at(path)?;
        let stat = linux::stat_at(&*dir, name)?;
        let has_set_id = !stat.is_dir() && stat.mode & SET_ID != 0 && stat.mode & KIND != SYMLINK;
        let mut is_right = (stat.uid, stat.gid) == owner;
        if !is_right && self.owners {
            let kept = if self.has_capabilities {
                capability(|each| linux::for_each_xattr(&*dir, name, each))?
            } else {
                None
            };
            match linux::set_owner_at(&*dir, name, owner.0, owner.1) {
                Ok(()) => {
                    is_right = true;
                    // Linux clears both.
                    if has_set_id {
                        linux::set_mode_at(&*dir, name, stat.mode & 0o7777)?;
                    }
                    if let Some(value) = kept {
                        linux::set_xattr_at(&*dir, name, CAPABILITY, &value)?;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !is_last => {
                    return Err(error.into());
                }
                // `EINVAL` means that the owner does not exist in this user namespace.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
                    ) =>
                {
                    self.unrestored(Aspect::Owner, path, &error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.is_owner_right &= is_right;
        self.owned = (path.to_vec(), is_right);
        if !is_right && has_set_id {
            linux::set_mode_at(&*dir, name, stat.mode & 0o7777 & !SET_ID)?;
            self.unrestored(Aspect::Mode, path, &NO_SET_ID);
        }
        Ok(())
    }

    pub(super) fn set_times(&mut self, path: &[u8], times: Times) -> Result<()> {
        if let Some(open) = self.file.as_mut().filter(|open| open.path == path) {
            // It changes the access time.
            open.read_back()?;
        }
        let (dir, name) = self.files.at(path)?;
        let (atime, mtime) = times;
        linux::set_times_at(&*dir, name, Some(atime), mtime)?;
        // File systems silently truncate times that they cannot hold; no common one truncates those
        // of 1970 to 2038.
        let is_common = (0..1 << 31).contains(&mtime.seconds);
        if let Some(open) = self.file.as_mut().filter(|open| open.path == path)
            && is_common
        {
            (open.times, open.is_dirty) = (times, open.is_dirty && open.capability.is_some());
            return Ok(());
        }
        let stat = linux::stat_at(&*dir, name)?;
        if let Some(open) = self.file.as_mut().filter(|open| open.path == path) {
            open.times = times;
        }
        if stat.is_dir() {
            self.touched.set(stat.ino, times);
        }
        if !is_common && stat.mtime != mtime {
            self.unrestored(Aspect::Time, path, &"the file system cannot hold it");
        }
        Ok(())
    }

    pub(super) fn set_attributes(&mut self, path: &[u8], attributes: u32) -> Result<()> {
        let attributes = FileAttributes(attributes).to_keep();
        let (dir, name) = self.files.at(path)?;
        let stat = linux::stat_at(&*dir, name)?;
        let opened = match stat.mode & KIND {
            DIRECTORY => {
                let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
                linux::open_at(&*dir, name, flags, 0)?
            }
            REGULAR => open_regular(&dir, name, OpenFlags::RDONLY)?.into(),
            _ if attributes == 0 => return Ok(()),
            _ => {
                let reason = "only files and directories can have them";
                self.unrestored(Aspect::Attributes, path, &reason);
                return Ok(());
            }
        };
        let settable = attributes & FileAttributes::SETTABLE;
        match linux::change_attributes(&opened, FileAttributes::SETTABLE, settable) {
            Err(error) if attributes != 0 => self.unrestored(Aspect::Attributes, path, &error),
            Ok(()) if settable != attributes => {
                let reason = "it would hinder the extraction";
                self.unrestored(Aspect::Attributes, path, &reason);
            }
            _ => {}
        }
        Ok(())
    }
}
