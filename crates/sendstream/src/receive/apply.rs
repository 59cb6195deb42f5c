//! What each command does to the files of a subvolume that is being built.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;

use codec::Decoder;
use linux::{OpenFlags, Timestamp};
use tree::{Error, Result, Time};

use super::attributes::Pending;
use super::files::{Files, KIND, open_regular};
use super::parent::Sources;
use super::verifier::Verifier;
use super::{ReceiveOptions, Received};
use crate::command::{Command, compression, device};
use crate::encoded::EncodedWrite;

/// The most files that [`Received::lost`] lists.
const LOST_MAX: usize = 100;
/// Bytes of a clone that are copied at once.
const COPY_BYTES: u64 = 1 << 20;
/// Kinds of files (`S_IF*`).
const FIFO: u32 = 0o010_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const BLOCK_DEVICE: u32 = 0o060_000;
const SOCKET: u32 = 0o140_000;

/// A subvolume that is being built.
pub(super) struct Building {
    files: Files,
    target: Arc<OwnedFd>,
    id: u64,
    /// By this UUID, the subvolume clones from itself.
    uuid: [u8; 16],
    decompresses: bool,
    copies_clones: bool,
    falls_back_on_eperm: bool,
    pending: Pending,
    pub(super) verifier: Verifier,
    decoder: Decoder,
    decoded: Vec<u8>,
}

impl Building {
    pub(super) fn new(
        files: Files,
        target: &Arc<OwnedFd>,
        id: u64,
        uuid: [u8; 16],
        options: &ReceiveOptions,
    ) -> Building {
        Building {
            files,
            target: Arc::clone(target),
            id,
            uuid,
            decompresses: options.decompresses,
            copies_clones: options.copies_clones,
            falls_back_on_eperm: options.falls_back_on_eperm,
            pending: Pending::default(),
            verifier: Verifier::new(options.reads_back),
            decoder: Decoder::new(),
            decoded: Vec::new(),
        }
    }

    pub(super) fn into_root(self) -> Rc<OwnedFd> {
        self.files.root
    }

    /// Applies the command with this number. Files that are immutable or append-only are unlocked for it.
    pub(super) fn apply(
        &mut self,
        number: u64,
        command: &Command<'_>,
        sources: &mut Sources,
        received: &mut Received,
    ) -> Result<()> {
        let done = match self.step(number, command, sources, received) {
            Err(Error::Io(error))
                if error.raw_os_error() == Some(linux::errno::EPERM) && self.unlock(command) =>
            {
                self.step(number, command, sources, received)
            }
            done => done,
        };
        done.map_err(|error| with_needed_space(error, command))
    }

    /// Unlocks the files of a command and the directories that they are in. Returns whether one was locked.
    fn unlock(&mut self, command: &Command<'_>) -> bool {
        let other = match *command {
            Command::Rename { path_to, .. } => Some(path_to),
            Command::Link { path_link, .. } => Some(path_link),
            _ => None,
        };
        let mut was_locked = false;
        for path in command.path().into_iter().chain(other) {
            let slash = path.iter().rposition(|&byte| byte == b'/');
            for path in [path, &path[..slash.unwrap_or(0)]] {
                // A file that is not there yet, or cannot be opened, is not locked.
                let unlocked = self.open(path).and_then(|file| self.pending.unlock(&file));
                was_locked |= unlocked.unwrap_or(false);
            }
        }
        was_locked
    }

    /// Opens a regular file or directory, to look at its attributes.
    fn open(&mut self, path: &[u8]) -> Result<OwnedFd> {
        let (dir, name) = self.files.at(path)?;
        if linux::stat_at(&*dir, name)?.is_dir() {
            let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
            return Ok(linux::open_at(&*dir, name, flags, 0)?);
        }
        Ok(open_regular(&dir, name, OpenFlags::RDONLY)?.into())
    }

    fn step(
        &mut self,
        number: u64,
        command: &Command<'_>,
        sources: &mut Sources,
        received: &mut Received,
    ) -> Result<()> {
        match *command {
            Command::Mkfile { path, .. } => self.files.make(path),
            Command::Mkdir { path, .. } => {
                let (dir, name) = self.files.at(path)?;
                Ok(linux::make_dir_at(&*dir, name, 0o700)?)
            }
            Command::Mknod {
                path, rdev, mode, ..
            } => {
                let kind = mode as u32 & KIND;
                if kind != CHARACTER_DEVICE && kind != BLOCK_DEVICE {
                    return Err(Error::InvalidInput("mknod of a file that is not a device"));
                }
                self.node(path, kind, rdev)
            }
            Command::Mkfifo { path, .. } => self.node(path, FIFO, 0),
            Command::Mksock { path, .. } => self.node(path, SOCKET, 0),
            Command::Symlink {
                path, path_link, ..
            } => {
                let (dir, name) = self.files.at(path)?;
                Ok(linux::make_symlink_at(path_link, &*dir, name)?)
            }
            Command::Rename { path, path_to } => {
                let (dir, name) = self.files.at(path)?;
                let (dir_to, name_to) = self.files.at(path_to)?;
                linux::rename_new_at(&*dir, name, &*dir_to, name_to)?;
                self.files.renamed(path, path_to);
                Ok(())
            }
            Command::Link { path, path_link } => {
                let (dir, name) = self.files.at(path_link)?;
                let (dir_to, name_to) = self.files.at(path)?;
                Ok(linux::link_at(&*dir, name, &*dir_to, name_to)?)
            }
            Command::Unlink { path } => {
                self.files.forget(path);
                let (dir, name) = self.files.at(path)?;
                Ok(linux::unlink_at(&*dir, name)?)
            }
            Command::Rmdir { path } => {
                self.files.forget(path);
                let (dir, name) = self.files.at(path)?;
                Ok(linux::remove_dir_at(&*dir, name)?)
            }
            Command::SetXattr {
                path,
                xattr_name,
                xattr_data,
            } => {
                let (dir, name) = self.files.at(path)?;
                Ok(linux::set_xattr_at(&*dir, name, xattr_name, xattr_data)?)
            }
            Command::RemoveXattr { path, xattr_name } => {
                let (dir, name) = self.files.at(path)?;
                Ok(linux::remove_xattr_at(&*dir, name, xattr_name)?)
            }
            Command::Write {
                path,
                file_offset,
                data,
            } => {
                let file = self.changing(path, file_offset)?;
                Ok(file.write_all_at(data, file_offset)?)
            }
            Command::EncodedWrite(write) => self.encoded_write(number, &write, received),
            Command::Clone {
                file_offset,
                clone_len,
                path,
                clone_uuid,
                clone_ctransid,
                clone_path,
                clone_offset,
            } => {
                let source = if clone_uuid == self.uuid {
                    let (dir, name) = self.files.at(clone_path)?;
                    open_regular(&dir, name, OpenFlags::RDONLY)?
                } else {
                    let root = sources.source(clone_uuid, clone_ctransid)?;
                    Files::beneath(&root, clone_path)?
                };
                if clone_len == 0 {
                    return Ok(()); // Linux would take it for the rest of the file.
                }
                let copies = self.copies_clones;
                let file = self.changing(path, file_offset)?;
                match linux::clone_range(&source, clone_offset, clone_len, file, file_offset) {
                    Err(error) if copies && refused(&error).is_some() => {
                        copy_range(&source, clone_offset, clone_len, file, file_offset)?;
                        received.copied_clones += 1;
                        received.copied_bytes += clone_len;
                        Ok(())
                    }
                    Err(error) => Err(refused(&error).map_or(error.into(), Error::InvalidInput)),
                    Ok(()) => Ok(()),
                }
            }
            Command::Truncate { path, size } => Ok(self.changing(path, size)?.set_len(size)?),
            Command::Fallocate {
                path,
                fallocate_mode,
                file_offset,
                size,
            } => {
                let file = self.changing(path, file_offset)?;
                Ok(linux::allocate(file, fallocate_mode, file_offset, size)?)
            }
            Command::Chmod { path, mode } => {
                let mode = mode as u32 & 0o7777;
                if let Some(file) = self.files.if_open(path) {
                    return Ok(linux::set_mode(file, mode)?);
                }
                let (dir, name) = self.files.at(path)?;
                Ok(linux::set_mode_at(&*dir, name, mode)?)
            }
            Command::Chown { path, uid, gid } => {
                let id = |it: u64| {
                    u32::try_from(it).map_err(|_| Error::InvalidInput("owner above 2^32"))
                };
                let (dir, name) = self.files.at(path)?;
                Ok(linux::set_owner_at(&*dir, name, id(uid)?, id(gid)?)?)
            }
            Command::Utimes {
                path, atime, mtime, ..
            } => {
                let (dir, name) = self.files.at(path)?;
                let atime = Some(timestamp(atime));
                Ok(linux::set_times_at(&*dir, name, atime, timestamp(mtime))?)
            }
            Command::Fileattr { path, fileattr } => {
                let file = self.open(path)?;
                let lost = self.pending.set(&file, fileattr)?;
                if let Some(reason) = lost {
                    received.lost_count += 1;
                    if received.lost.len() < LOST_MAX {
                        received.lost.push((path.into(), reason));
                    }
                }
                Ok(())
            }
            Command::UpdateExtent { .. } => Err(Error::Unsupported(
                "receiving a stream without data (btrfs send --no-data)",
            )),
            Command::EnableVerity { .. } => Err(Error::Unsupported("enabling fs-verity")),
            // These do nothing to files.
            Command::Subvol { .. } | Command::Snapshot { .. } | Command::End => Ok(()),
        }
    }

    fn node(&mut self, path: &[u8], kind: u32, rdev: u64) -> Result<()> {
        let device = device(rdev);
        let (dir, name) = self.files.at(path)?;
        let number = (device.major, device.minor);
        Ok(linux::make_node_at(&*dir, name, kind | 0o600, number)?)
    }

    /// A regular file whose content at `from` and beyond is about to change.
    fn changing(&mut self, path: &[u8], from: u64) -> Result<&Arc<File>> {
        let (file, ino) = self.files.file(path)?;
        self.verifier.before_change(ino, from)?;
        Ok(file)
    }

    /// Writes an extent as it is encoded, or what it decodes to where Linux cannot take it. It is decoded in either case, by the
    /// verifier if it is written as it is.
    fn encoded_write(
        &mut self,
        number: u64,
        write: &EncodedWrite<'_>,
        received: &mut Received,
    ) -> Result<()> {
        let end = write.file_offset.checked_add(write.unencoded_file_len);
        end.ok_or(Error::InvalidInput("encoded write ends above 2^64"))?;
        let (file, ino) = self.files.file(write.path)?;
        self.verifier.before_change(ino, write.file_offset)?;
        let compression = compression(write.compression).filter(|_| !self.decompresses);
        if let Some(compression) = compression {
            let extent = linux::EncodedExtent {
                offset: write.file_offset,
                len: write.unencoded_file_len,
                unencoded_len: write.unencoded_len,
                unencoded_offset: write.unencoded_offset,
                compression,
                data: write.data,
            };
            match linux::write_encoded(&**file, &extent) {
                Ok(()) => {
                    received.encoded += 1;
                    return self.verifier.add(number, (file, ino), write, &extent);
                }
                Err(error) if can_fall_back(&error, self.falls_back_on_eperm) => {
                    if received.reason.is_none() {
                        received.reason = Some(error.to_string().into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        let content = write.decode_exactly(&mut self.decoder, &mut self.decoded)?;
        received.decompressed += 1;
        Ok(file.write_all_at(content, write.file_offset)?)
    }

    /// Does what comes after the last command, except for marking the subvolume.
    pub(super) fn complete(&mut self) -> Result<()> {
        self.files.close();
        self.pending.complete(&*self.target, self.id)?;
        Ok(linux::sync_file_system(&*self.files.root)?)
    }
}

/// Whether Linux may take the same data if it is not encoded: there is no room for the extent as a whole, the ioctl does not
/// exist, or this file cannot hold it.
pub(super) fn can_fall_back(error: &io::Error, also_on_eperm: bool) -> bool {
    use linux::errno::{EINVAL, ENOSPC, ENOTTY, EPERM};
    match error.raw_os_error() {
        Some(ENOSPC | ENOTTY | EINVAL) => true,
        Some(EPERM) => also_on_eperm,
        _ => false,
    }
}

/// Says how much space a command needs, if there is none left for it.
fn with_needed_space(error: Error, command: &Command<'_>) -> Error {
    let Error::Io(error) = error else {
        return error;
    };
    if error.raw_os_error() != Some(linux::errno::ENOSPC) {
        return error.into();
    }
    let bytes = match *command {
        Command::EncodedWrite(write) => write.unencoded_file_len,
        Command::Fallocate { size, .. } => size,
        command => command.data().map_or(0, <[u8]>::len) as u64,
    };
    let words = match bytes {
        0 => "no space left on the file system for a name or other metadata".to_owned(),
        _ => format!("no space left on the file system for {bytes} bytes"),
    };
    io::Error::new(io::ErrorKind::StorageFull, words).into()
}

/// How Linux refuses to clone between these two files, or these ranges of them, if it does.
fn refused(error: &io::Error) -> Option<&'static str> {
    use linux::errno::{EINVAL, EOPNOTSUPP, EXDEV};
    Some(match error.raw_os_error()? {
        EINVAL => {
            "Linux cannot clone this range (invalid argument, as between files with and without checksums); --clone-fallback copies it"
        }
        EXDEV => {
            "Linux cannot clone between these files (they are on different file systems); --clone-fallback copies the range"
        }
        EOPNOTSUPP => {
            "Linux cannot clone this file (not supported); --clone-fallback copies the range"
        }
        _ => return None,
    })
}

/// Copies a range of one file to another.
fn copy_range(source: &File, from: u64, len: u64, file: &File, offset: u64) -> Result<()> {
    let end = from.checked_add(len).zip(offset.checked_add(len));
    let end = end.ok_or(Error::InvalidInput("clone ends above 2^64"))?.0;
    if end > source.metadata()?.len() {
        return Err(Error::InvalidInput(
            "clone reaches beyond the end of its source",
        ));
    }
    let mut buffer = vec![0; len.min(COPY_BYTES) as usize];
    let mut done = 0;
    while done < len {
        let piece = &mut buffer[..(len - done).min(COPY_BYTES) as usize];
        source.read_exact_at(piece, from + done)?;
        file.write_all_at(piece, offset + done)?;
        done += piece.len() as u64;
    }
    Ok(())
}

pub(super) fn timestamp(time: Time) -> Timestamp {
    Timestamp {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_decompressed_where_linux_cannot_take_it_and_eperm_only_where_asked() {
        use linux::errno::{EINVAL, EIO, ENOSPC, ENOTTY, EPERM};
        for (number, plain, asked) in [
            (ENOSPC, true, true),
            (ENOTTY, true, true),
            (EINVAL, true, true),
            (EPERM, false, true),
            (EIO, false, false),
        ] {
            let error = io::Error::from_raw_os_error(number);
            assert_eq!(can_fall_back(&error, false), plain, "{error}");
            assert_eq!(can_fall_back(&error, true), asked, "{error}");
        }
    }
}
