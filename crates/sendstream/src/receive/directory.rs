//! Building a directory of any file system: each command is applied as it comes.
//!
//! The result is what [`Replay`](crate::Replay) shows: what the system does on its own, such as giving a directory a new time when a
//! name in it changes, is undone. New files are made in a directory of their own, where they inherit nothing, and then move to their
//! places.

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
use self::names::{FIFO, NEW, SOCKET, node, rename_new};
use super::apply::timestamp;
use super::copied::copy_directory;
use super::files::{Files, KIND};
use super::times::Touched;
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
    files: Files,
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
    /// Starts with an empty directory in `target`, which is open. `owners` says to set the owners of files, `decompresses` to write all
    /// data decompressed.
    ///
    /// With the parent of an incremental stream, it starts with a copy of that, from which files can also be cloned.
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
            files: Files::new(empty),
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
    /// What is wrong with the command, or the kernel reports; `Interrupted` after [`temporary::remove_all`].
    pub fn apply(&mut self, command: &Command<'_>) -> Result<()> {
        if temporary::is_stopping() {
            return Err(Error::Io(io::ErrorKind::Interrupted.into()));
        }
        match self.step(command, false) {
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.unlock(command)?;
                self.step(command, true)
            }
            done => done,
        }
    }

    fn step(&mut self, command: &Command<'_>, is_last: bool) -> Result<()> {
        match *command {
            Command::Subvol { .. } | Command::Snapshot { .. } | Command::End => Ok(()),
            Command::Mkfile { path, .. } => self.make(path, |dir| {
                let flags = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::WRONLY;
                linux::open_at(dir, NEW, flags, 0o600).map(drop)
            }),
            Command::Mkdir { path, .. } => {
                self.make(path, |dir| linux::make_dir_at(dir, NEW, 0o700))
            }
            Command::Mkfifo { path, .. } => self.make(path, |dir| node(dir, FIFO, 0)),
            Command::Mksock { path, .. } => self.make(path, |dir| node(dir, SOCKET, 0)),
            Command::Mknod {
                path, rdev, mode, ..
            } => self.make_device(path, mode as u32 & KIND, rdev),
            Command::Symlink {
                path, path_link, ..
            } => self.make(path, |dir| linux::make_symlink_at(path_link, dir, NEW)),
            Command::Rename { path, path_to } => self.rename(path, path_to),
            Command::Link { path, path_link } => self.link(path, path_link),
            Command::Unlink { path } => self.unlink(path),
            Command::Rmdir { path } => self.remove_dir(path),
            Command::SetXattr {
                path,
                xattr_name,
                xattr_data,
            } => self.set_xattr(path, xattr_name, xattr_data, is_last),
            Command::RemoveXattr { path, xattr_name } => self.remove_xattr(path, xattr_name),
            Command::Write {
                path,
                file_offset,
                data,
            } => Ok(self.writable(path)?.write_all_at(data, file_offset)?),
            Command::EncodedWrite(write) => self.encoded_write(&write),
            Command::Clone { .. } => self.clone_range(command),
            Command::Truncate { path, size } => Ok(self.writable(path)?.set_len(size)?),
            Command::Fallocate {
                path,
                fallocate_mode,
                file_offset,
                size,
            } => self.allocate(path, fallocate_mode, file_offset, size),
            Command::UpdateExtent { .. } => Err(Error::Unsupported(
                "the send stream has no data: it was made with --no-data",
            )),
            Command::Chmod { path, mode } => self.set_mode(path, mode as u32 & 0o7777),
            Command::Chown { path, uid, gid } => {
                let id = |it: u64| {
                    u32::try_from(it).map_err(|_| Error::InvalidInput("owner above 2^32"))
                };
                self.set_owner(path, (id(uid)?, id(gid)?), is_last)
            }
            Command::Utimes {
                path, atime, mtime, ..
            } => self.set_times(path, (timestamp(atime), timestamp(mtime))),
            Command::Fileattr { path, fileattr } => {
                self.set_attributes(path, file_attributes(fileattr))
            }
            Command::EnableVerity { path, .. } => {
                let (dir, name) = self.files.at(path)?;
                linux::stat_at(&*dir, name)?;
                self.done.verity_files += 1;
                Ok(())
            }
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

/// A new directory under a temporary name that only this user can enter, and whose files inherit nothing from those above.
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
