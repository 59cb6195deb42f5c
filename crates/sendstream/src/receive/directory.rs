//! Building a directory of any file system: each command is applied as it comes.
//!
//! The result is what [`Replay`](crate::Replay) shows: what the system does on its own, such as giving a directory a new time when a
//! name in it changes, is undone. New files are made in a directory of their own, where they inherit nothing, and then move to their
//! places.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;

use codec::Decoder;
use linux::{OpenFlags, Stat, Timestamp};
use tree::extract::{Aspect, Unrestored};
use tree::temporary::{self, Temporary};
use tree::{Error, HostFile, HostStep, Result, WrittenExtent, walk_host_dir};

use super::apply::{can_fall_back, timestamp};
use super::copied::copy_directory;
use super::files::{
    ATTRIBUTES_SETTABLE, DIRECTORY, Files, KIND, NO_SET_ID, REGULAR, SET_ID, SYMLINK, open_regular,
    open_regular_with_stat,
};
use super::ranges::{FILE_BYTES_MAX, KEEP_SIZE, PUNCH_HOLE, copy_range, is_not_shareable, punch};
use super::times::{Times, Touched};
use crate::command::{Command, compression, device, file_attributes};
use crate::encoded::EncodedWrite;
use crate::subvolume::SentSubvolume;

/// The most files that are remembered because they are not as the stream says until the end.
const PENDING_MAX: usize = 1 << 20;
/// The most extents that are written before they are read back.
const WRITTEN_MAX: usize = 64;
/// The most sources of clones that are held open.
const SOURCES_MAX: usize = 128;
/// The name of a new file until it moves to its place.
const NEW: &[u8] = b"new";
/// Cleared by Linux when a file is written or gets another owner.
const CAPABILITY: &[u8] = b"security.capability";
/// A mode of `fallocate` (linux/falloc.h).
const ZERO_RANGE: u32 = 0x10;
/// Kinds of files (`S_IF*`).
const CHARACTER_DEVICE: u32 = 0o020_000;
const BLOCK_DEVICE: u32 = 0o060_000;
const FIFO: u32 = 0o010_000;
const SOCKET: u32 = 0o140_000;

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

/// The file that was written last.
struct OpenFile {
    path: Vec<u8>,
    file: File,
    times: Times,
    /// The value of [`CAPABILITY`].
    capability: Option<Vec<u8>>,
    /// Whether writing to it has changed both.
    is_dirty: bool,
    /// Extents that were written as they are encoded, and not yet read back.
    written: Vec<WrittenExtent>,
}

impl OpenFile {
    fn read_back(&mut self) -> Result<()> {
        let mut stored = Vec::new();
        let mut written = self.written.drain(..);
        written.try_for_each(|it| it.read_back(&self.file, &mut stored))
    }
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

    /// Gives the owner all rights to the files of a command and to the directories that they are in, until the end.
    fn unlock(&mut self, command: &Command<'_>) -> Result<()> {
        let other = match *command {
            Command::Rename { path_to, .. } => Some(path_to),
            Command::Link { path_link, .. } => Some(path_link),
            _ => None,
        };
        let root = Rc::clone(&self.files.root);
        for path in command.path().into_iter().chain(other) {
            let mut above: Option<OwnedFd> = None;
            self.unlock_one(&root, b".")?;
            for name in path.split(|&byte| byte == b'/') {
                let dir: &OwnedFd = above.as_ref().unwrap_or(&root);
                if name.is_empty() || !self.unlock_one(dir, name)? {
                    break;
                }
                let flags = OpenFlags::PATH | OpenFlags::DIRECTORY;
                above = Some(linux::open_at(dir, name, flags, 0)?);
            }
        }
        Ok(())
    }

    /// Returns whether it is a directory.
    fn unlock_one(&mut self, dir: &OwnedFd, name: &[u8]) -> Result<bool> {
        let stat = match linux::stat_at(dir, name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            stat => stat?,
        };
        let needed = needed_mode(&stat);
        if stat.mode & needed != needed && stat.uid == self.process_owner.0 {
            linux::set_mode_at(dir, name, stat.mode & 0o7777 | needed)?;
            if self.modes.len() >= PENDING_MAX {
                return Err(Error::Limit("files that their owner may not write"));
            }
            self.modes.entry(stat.ino).or_insert(stat.mode & 0o7777);
        }
        Ok(stat.is_dir())
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
            } => {
                let kind = mode as u32 & KIND;
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
            Command::Symlink {
                path, path_link, ..
            } => self.make(path, |dir| linux::make_symlink_at(path_link, dir, NEW)),
            Command::Rename { path, path_to } => {
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
            Command::Link { path, path_link } => {
                let (dir, name) = self.files.at(path_link)?;
                let (dir_to, name_to) = self.files.at(path)?;
                self.touched.touch(&dir_to)?;
                linux::link_at(&*dir, name, &*dir_to, name_to).map_err(named)
            }
            Command::Unlink { path } => {
                let (dir, name) = self.vanishing(path)?;
                let stat = linux::stat_at(&*dir, name)?;
                linux::unlink_at(&*dir, name)?;
                if stat.nlink == 1 {
                    self.forget_number(stat.ino);
                }
                Ok(())
            }
            Command::Rmdir { path } => {
                let (dir, name) = self.vanishing(path)?;
                let stat = linux::stat_at(&*dir, name)?;
                linux::remove_dir_at(&*dir, name)?;
                self.forget_number(stat.ino);
                Ok(())
            }
            Command::SetXattr {
                path,
                xattr_name,
                xattr_data,
            } => self.set_xattr(path, xattr_name, xattr_data, is_last),
            Command::RemoveXattr { path, xattr_name } => {
                self.close(b"")?;
                let (dir, name) = self.files.at(path)?;
                match linux::remove_xattr_at(&*dir, name, xattr_name) {
                    // Some could not be set.
                    Err(_) if self.done.unrestored.count(Aspect::Xattr) > 0 => Ok(()),
                    removed => Ok(removed?),
                }
            }
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

    /// Makes a file elsewhere, and moves it to its place.
    fn make(&mut self, path: &[u8], make: impl FnOnce(&OwnedFd) -> io::Result<()>) -> Result<()> {
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

    /// A regular file that is about to change.
    fn writable(&mut self, path: &[u8]) -> Result<&File> {
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

    /// Closes the file that was written last if it is this one or below this directory, and gives it back what writing has changed.
    fn close(&mut self, path: &[u8]) -> Result<()> {
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

    fn set_xattr(&mut self, path: &[u8], xattr: &[u8], value: &[u8], is_last: bool) -> Result<()> {
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

    fn unrestored(&mut self, aspect: Aspect, path: &[u8], reason: &dyn ToString) {
        self.done.unrestored.add(aspect, || path.to_vec(), reason);
    }

    fn encoded_write(&mut self, write: &EncodedWrite<'_>) -> Result<()> {
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
        let is_next = |last: &WrittenExtent| last.end() <= write.file_offset;
        if open.written.len() >= WRITTEN_MAX || !open.written.last().is_none_or(is_next) {
            open.read_back()?;
        }
        if let Some(compression) = compression(write.compression).filter(|_| encodes) {
            let extent = linux::EncodedExtent {
                offset: write.file_offset,
                len: write.unencoded_file_len,
                unencoded_len: write.unencoded_len,
                unencoded_offset: write.unencoded_offset,
                compression,
                data: write.data,
            };
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

    fn clone_range(&mut self, command: &Command<'_>) -> Result<()> {
        let Command::Clone {
            file_offset,
            clone_len,
            path,
            clone_uuid,
            clone_path,
            clone_offset,
            ..
        } = *command
        else {
            return Ok(());
        };
        let source = if clone_uuid == self.sent.uuid {
            let (dir, name) = self.files.at(clone_path)?;
            open_regular(&dir, name, OpenFlags::RDONLY)?
        } else {
            let root = self.sources.get(&clone_uuid).ok_or(Error::NotFound)?;
            Files::beneath(root, clone_path)?
        };
        let end = clone_offset.checked_add(clone_len);
        if end.is_none_or(|end| source.metadata().is_ok_and(|it| end > it.len())) {
            return Err(Error::InvalidInput(
                "clone reaches beyond the end of its source",
            ));
        }
        if clone_len == 0 {
            return Ok(()); // Linux would take it for the rest of the file.
        }
        let file = self.writable(path)?;
        match linux::clone_range(&source, clone_offset, clone_len, file, file_offset) {
            Ok(()) => self.done.shared_clones += 1,
            Err(error) if is_not_shareable(&error) => {
                self.done.copied_bytes += copy_range(
                    &source,
                    clone_offset,
                    clone_len,
                    self.writable(path)?,
                    file_offset,
                )?;
                self.done.copied_clones += 1;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Nothing is allocated: the file only grows, or loses what is in the range.
    fn allocate(&mut self, path: &[u8], mode: u32, offset: u64, len: u64) -> Result<()> {
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

    fn set_mode(&mut self, path: &[u8], wanted: u32) -> Result<()> {
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

    fn set_owner(&mut self, path: &[u8], owner: (u32, u32), is_last: bool) -> Result<()> {
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

    fn set_times(&mut self, path: &[u8], times: Times) -> Result<()> {
        if let Some(open) = self.file.as_mut().filter(|open| open.path == path) {
            // It changes the access time.
            open.read_back()?;
        }
        let (dir, name) = self.files.at(path)?;
        let (atime, mtime) = times;
        linux::set_times_at(&*dir, name, Some(atime), mtime)?;
        // File systems silently truncate times that they cannot hold; no common one truncates those of 1970 to 2038.
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

    fn set_attributes(&mut self, path: &[u8], attributes: u32) -> Result<()> {
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
        let settable = attributes & ATTRIBUTES_SETTABLE;
        match linux::change_attributes(&opened, ATTRIBUTES_SETTABLE, settable) {
            Err(error) if attributes != 0 => self.unrestored(Aspect::Attributes, path, &error),
            Ok(()) if settable != attributes => {
                let reason = "it would hinder the extraction";
                self.unrestored(Aspect::Attributes, path, &reason);
            }
            _ => {}
        }
        Ok(())
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

    /// Removes the files that stand for devices, and gives files the modes that they could not have before.
    fn tidy_up(&mut self) -> Result<()> {
        let (modes, no_devices) = (&mut self.modes, &self.no_devices);
        let (done, process_owner) = (&mut self.done, self.process_owner.0);
        let root = Rc::clone(&self.files.root);
        walk_host_dir(&root, &mut |step, file: &HostFile<'_>| {
            let HostFile {
                dir,
                name,
                path,
                stat,
            } = *file;
            if step == HostStep::Enter {
                let needed = needed_mode(stat);
                if stat.mode & needed != needed && stat.uid == process_owner {
                    modes.entry(stat.ino).or_insert(stat.mode & 0o7777);
                    linux::set_mode_at(dir, name, stat.mode & 0o7777 | needed)?;
                }
                return Ok(());
            }
            if step == HostStep::File && no_devices.contains(&stat.ino) {
                let above = linux::stat(dir)?;
                linux::unlink_at(dir, name)?;
                linux::set_times_at(dir, b".", Some(above.atime), above.mtime)?;
                let reason = io::Error::from_raw_os_error(linux::errno::EPERM);
                done.unrestored
                    .add(Aspect::Device, || path.to_vec(), &reason);
                return Ok(());
            }
            if let Some(mode) = modes.get(&stat.ino) {
                linux::set_mode_at(dir, name, *mode)?;
            }
            Ok(())
        })
    }
}

/// The rights that the owner needs to change it.
fn needed_mode(stat: &Stat) -> u32 {
    match stat.mode & KIND {
        DIRECTORY => 0o700,
        REGULAR => 0o600,
        _ => 0,
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

fn node(dir: &OwnedFd, kind: u32, rdev: u64) -> io::Result<()> {
    let device = device(rdev);
    linux::make_node_at(dir, NEW, kind | 0o600, (device.major, device.minor))
}

/// The capabilities of a file, from its extended attributes.
fn capability(
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

/// Says that a new name is taken; elsewhere, an option can replace what is there.
fn named(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => Error::InvalidInput("new name is that of another file"),
        _ => error.into(),
    }
}

/// Renames a file to a name that no other has.
fn rename_new(dir: &OwnedFd, name: &[u8], dir_to: &OwnedFd, name_to: &[u8]) -> io::Result<()> {
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
