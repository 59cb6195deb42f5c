//! Building a directory of any file system: each command is applied as it comes.
//!
//! The result is what [`Replay`](crate::Replay) shows: what the system does on its own, such as
//! giving a directory a new time when a name in it changes, is undone. New files are made in a
//! directory of their own, where they inherit nothing, and then move to their places.

mod attributes;
mod data;
mod names;
mod rights;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;

use codec::Decoder;
use linux::{OpenFlags, Timestamp};
use tree::extract::Unrestored;
use tree::temporary::{self, Temporary};
use tree::{Error, Result};

use self::data::OpenFile;
use self::names::rename_new;
use super::apply::timestamp;
use super::copied::copy_directory;
use super::files::{OpenFiles, owner};
use super::times::Touched;
use crate::apply::{CommandSink, DataChange, NO_DATA, NewAttribute, NewFile, apply};
use crate::command::{Command, file_attributes};
use crate::subvolume::SentSubvolume;

/// The most files that are remembered because they are not as the stream says until the end.
const PENDING_MAX: usize = 1 << 20;
/// The most sources of clones that are held open.
const SOURCES_MAX: usize = 128;
/// Cleared by Linux when a file is written or gets another owner.
const CAPABILITY: &[u8] = b"security.capability";

/// What a [`ReceivedDirectory`] did besides applying all commands.
#[derive(Debug, Default)]
pub struct InDirectory {
    /// What could not be restored.
    pub unrestored: Unrestored,
    /// Files with fs-verity in the stream, which the directory does not have.
    pub verity_files: u64,
    /// Clones that share their bytes with the source.
    pub shared_clones: u64,
    /// Clones whose bytes were copied, because the file system cannot share them.
    pub copied_clones: u64,
    /// How many bytes these are.
    pub copied_bytes: u64,
}

/// A directory under a temporary name that becomes what a stream says.
pub struct ReceivedDirectory {
    target: Arc<OwnedFd>,
    temporary: Temporary,
    /// Where new files are made.
    nursery: Arc<OwnedFd>,
    _nursery: Temporary,
    files: OpenFiles,
    file: Option<OpenFile>,
    sent: SentSubvolume,
    owners: bool,
    process_owner: (u32, u32),
    /// Whether encoded extents may be written as they are.
    writes_encoded: bool,
    touched: Touched,
    sources: HashMap<[u8; 16], Rc<OwnedFd>>,
    /// Modes of files that can be changed until the end, by inode number.
    modes: HashMap<u64, u32>,
    /// Files that stand for devices which could not be made, by inode number.
    no_devices: HashSet<u64>,
    /// The last file that got an owner, and whether it really has it.
    owned: (Vec<u8>, bool),
    /// Whether all files have had their owners so far.
    is_owner_right: bool,
    /// Whether files can have capabilities.
    has_capabilities: bool,
    decoder: Decoder,
    decoded: Vec<u8>,
    done: InDirectory,
}

impl ReceivedDirectory {
    /// Starts with an empty directory in `target`, which is open. `owners` says to set the owners
    /// of files, `decompresses` to write all data decompressed.
    ///
    /// With the parent of an incremental stream, it starts with a copy of that, from which files
    /// can also be cloned.
    ///
    /// # Errors
    /// What the kernel reports.
    pub fn start(
        sent: SentSubvolume,
        target: &Arc<OwnedFd>,
        owners: bool,
        decompresses: bool,
        parent: Option<OwnedFd>,
    ) -> Result<ReceivedDirectory> {
        let (nursery_name, nursery) = private_dir(target, &sent.name)?;
        let (temporary, empty) = private_dir(target, &sent.name)?;
        // As `Replay` shows a root about which the stream says nothing.
        linux::set_mode(&empty, 0o755)?;
        linux::set_times(&empty, None, Timestamp::default())?;
        let unrestored = match &parent {
            Some(parent) => copy_directory(parent, &empty, owners)?,
            None => Unrestored::default(),
        };
        let mut sources = HashMap::new();
        if let Some(((uuid, _), parent)) = sent.parent.zip(parent) {
            sources.insert(uuid, Rc::new(parent));
        }
        let has_capabilities = sent.parent.is_some();
        let writes_encoded = !decompresses && linux::is_btrfs(&nursery).unwrap_or(false);
        Ok(ReceivedDirectory {
            target: Arc::clone(target),
            temporary,
            nursery: Arc::new(nursery),
            _nursery: nursery_name,
            files: OpenFiles::new(empty),
            file: None,
            sent,
            owners,
            process_owner: linux::process_owner(),
            writes_encoded,
            touched: Touched::default(),
            sources,
            modes: HashMap::new(),
            no_devices: HashSet::new(),
            owned: (Vec::new(), true),
            is_owner_right: true,
            has_capabilities,
            decoder: Decoder::new(),
            decoded: Vec::new(),
            done: InDirectory {
                unrestored,
                ..InDirectory::default()
            },
        })
    }

    /// Whether clones from the subvolume of this UUID can be made.
    pub fn knows(&self, uuid: [u8; 16]) -> bool {
        uuid == self.sent.uuid || self.sources.contains_key(&uuid)
    }

    /// Makes an open directory known as the subvolume of this UUID, from which files are cloned.
    pub fn know(&mut self, uuid: [u8; 16], dir: OwnedFd) {
        if self.sources.len() >= SOURCES_MAX {
            self.sources.clear();
        }
        self.sources.insert(uuid, Rc::new(dir));
    }

    /// Applies a command. The sources of clones must be [known](ReceivedDirectory::know).
    ///
    /// # Errors
    /// What is wrong with the command, or the kernel reports; `Interrupted` after
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
    /// What the kernel reports.
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

/// A new directory under a temporary name that only this user can enter, and whose files inherit
/// nothing from those above.
fn private_dir(target: &Arc<OwnedFd>, name: &[u8]) -> Result<(Temporary, OwnedFd)> {
    let (temporary, dir) = Temporary::create(target, name, |target, name| {
        linux::make_dir_at(target, name, 0o700)?;
        let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
        linux::open_at(target, name, flags, 0)
    })?;
    let (uid, gid) = linux::process_owner();
    linux::set_owner(&dir, uid, gid)?;
    linux::remove_xattr(&dir, b"system.posix_acl_default")?;
    linux::remove_xattr(&dir, b"system.posix_acl_access")?;
    linux::set_mode(&dir, 0o700)?;
    Ok((temporary, dir))
}
