//! Building a directory of any file system: each command is applied as it comes.
//!
//! The result is the tree of [`Replay`](crate::Replay): changes by the system itself, such as
//! giving a directory a new time when a name in it changes, are undone. New files are made in a
//! directory of their own, where they inherit nothing, and then move to their places.

mod attributes;
mod building;
mod data;
mod names;
mod rights;

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use tree::temporary;
use tree::{Error, Result};

pub use self::building::{InDirectory, ReceivedDirectory};
use self::names::rename_new;
use super::apply::timestamp;
use super::files::owner;
use crate::apply::{CommandSink, DataChange, NO_DATA, NewAttribute, NewFile, apply};
use crate::command::{Command, file_attributes};

impl ReceivedDirectory {
    /// Applies a command. The sources of clones must be [known](ReceivedDirectory::know).
    ///
    /// # Errors
    /// The fault of the command, or the kernel's error; `Interrupted` after
    /// [`temporary::remove_all`].
    pub fn apply(&mut self, command: &Command<'_>) -> Result<()> {
        if temporary::is_stopping() {
            return Err(Error::Io(io::ErrorKind::Interrupted.into()));
        }
        let attempt = |dir: &mut Self, is_last| apply(command, &mut DirectorySink { dir, is_last });
        match attempt(self, false) {
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.unlock(command)?;
                attempt(self, true)
            }
            done => done,
        }
    }

    /// Gives the directory its name, when it is complete and on the medium.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn finish(mut self) -> Result<InDirectory> {
        self.close(b"")?;
        self.touched.settle()?;
        self.files.close();
        if !self.modes.is_empty() || !self.no_devices.is_empty() {
            self.tidy_up()?;
        }
        let name = &self.sent.name;
        let target = Arc::clone(&self.target);
        linux::sync_file_system(&*target)?;
        self.temporary
            .finish(|temporary| rename_new(&target, temporary, &target, name))?;
        linux::sync(&*target)?;
        Ok(self.done)
    }
}

/// Applies one command to the directory.
struct DirectorySink<'a> {
    dir: &'a mut ReceivedDirectory,
    /// Whether it is not tried again after [`ReceivedDirectory::unlock`].
    is_last: bool,
}

impl CommandSink for DirectorySink<'_> {
    type Error = Error;

    fn create(&mut self, path: &[u8], file: NewFile<'_>) -> Result<()> {
        self.dir.create(path, &file)
    }

    fn rename(&mut self, path: &[u8], path_to: &[u8]) -> Result<()> {
        self.dir.rename(path, path_to)
    }

    fn link(&mut self, path: &[u8], existing: &[u8]) -> Result<()> {
        self.dir.link(path, existing)
    }

    fn unlink(&mut self, path: &[u8]) -> Result<()> {
        self.dir
            .remove(path, |dir, name| linux::unlink_at(dir, name))
    }

    fn rmdir(&mut self, path: &[u8]) -> Result<()> {
        self.dir
            .remove(path, |dir, name| linux::remove_dir_at(dir, name))
    }

    fn change_data(&mut self, path: &[u8], change: DataChange<'_>) -> Result<()> {
        let dir = &mut *self.dir;
        match change {
            DataChange::Write { offset, data } => {
                Ok(dir.writable(path)?.write_all_at(data, offset)?)
            }
            DataChange::Encoded(write) => dir.encoded_write(write),
            DataChange::Clone(range) => dir.clone_range(path, &range),
            DataChange::Truncate(size) => Ok(dir.writable(path)?.set_len(size)?),
            DataChange::Allocate { mode, offset, len } => dir.allocate(path, mode, offset, len),
            DataChange::Missing => Err(NO_DATA),
            DataChange::EnableVerity => {
                let (above, name) = dir.files.at(path)?;
                linux::stat_at(&*above, name)?;
                dir.done.verity_files += 1;
                Ok(())
            }
        }
    }

    fn set_attribute(&mut self, path: &[u8], attribute: NewAttribute<'_>) -> Result<()> {
        let dir = &mut *self.dir;
        match attribute {
            NewAttribute::Xattr { name, value } => dir.set_xattr(path, name, value, self.is_last),
            NewAttribute::NoXattr { name } => dir.remove_xattr(path, name),
            NewAttribute::Mode(mode) => dir.set_mode(path, mode.into()),
            NewAttribute::Owner { uid, gid } => dir.set_owner(path, owner(uid, gid)?, self.is_last),
            NewAttribute::Times { atime, mtime, .. } => {
                dir.set_times(path, (timestamp(atime), timestamp(mtime)))
            }
            NewAttribute::Flags(flags) => dir.set_attributes(path, file_attributes(flags)),
        }
    }
}
