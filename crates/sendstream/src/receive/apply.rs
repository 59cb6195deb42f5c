//! Applies commands to the files of a subvolume that is being built.

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
use super::files::{OpenFiles, check_kind, make, open_regular, owner};
use super::inherited::{bequeaths, disinherit, disinherit_at, is_absent};
use super::options::{ReceiveOptions, Received};
use super::parent::Sources;
use super::verifier::Verifier;
use crate::apply::{CloneRange, CommandSink, DataChange, NewAttribute, NewFile, apply};
use crate::command::Command;
use crate::encoded::EncodedWrite;
use crate::subvolume::SentSubvolume;

/// The most files that [`Received::lost`] lists.
const LOST_MAX: usize = 100;
/// Bytes of a clone that are copied at once.
const COPY_BYTES: u64 = 1 << 20;
/// A subvolume that is being built.
pub(super) struct Building {
    files: OpenFiles,
    target: Arc<OwnedFd>,
    id: u64,
    /// By this UUID, the subvolume clones from itself.
    uuid: [u8; 16],
    decompresses: bool,
    copies_clones: bool,
    falls_back_on_eperm: bool,
    pending: Pending,
    /// How the root is to be locked, when all else is done.
    root_locks: u32,
    /// Whether the stream is incremental.
    has_parent: bool,
    /// Whether new files in the root inherit something, once that is known.
    root_bequeaths: Option<bool>,
    pub(super) verifier: Verifier,
    decoder: Decoder,
    decoded: Vec<u8>,
}

impl Building {
    pub(super) fn new(
        files: OpenFiles,
        target: &Arc<OwnedFd>,
        id: u64,
        sent: &SentSubvolume,
        root_locks: u32,
        options: &ReceiveOptions,
    ) -> Result<Building> {
        let mut pending = Pending::default();
        pending.insert_root(&files.root, root_locks)?;
        Ok(Building {
            files,
            target: Arc::clone(target),
            id,
            uuid: sent.uuid,
            decompresses: options.decompresses,
            copies_clones: options.copies_clones,
            falls_back_on_eperm: options.falls_back_on_eperm,
            pending,
            root_locks: 0,
            has_parent: sent.parent.is_some(),
            root_bequeaths: None,
            verifier: Verifier::new(options.reads_back),
            decoder: Decoder::new(),
            decoded: Vec::new(),
        })
    }

    /// The root, and how it is to be locked.
    pub(super) fn into_root(self) -> (Rc<OwnedFd>, u32) {
        (self.files.root, self.root_locks)
    }

    /// Applies the command with this number. Files that are immutable or append-only are unlocked
    /// for it.
    pub(super) fn apply(
        &mut self,
        number: u64,
        command: &Command<'_>,
        sources: &mut Sources,
        received: &mut Received,
    ) -> Result<()> {
        let mut step = BtrfsSink {
            building: self,
            number,
            sources,
            received,
        };
        let done = match apply(command, &mut step) {
            Err(Error::Io(error))
                if error.raw_os_error() == Some(linux::errno::EPERM)
                    && step.building.unlock(command) =>
            {
                apply(command, &mut step)
            }
            done => done,
        };
        done.map_err(|error| with_needed_space(error, command))
    }

    /// Unlocks the files of a command and the directories that they are in. Returns whether one was
    /// locked.
    fn unlock(&mut self, command: &Command<'_>) -> bool {
        let mut was_locked = false;
        for path in command.paths() {
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

    /// Whether a new file inherits something from its directory. Linux makes all of them in the
    /// root.
    fn inherits(&mut self, path: &[u8]) -> Result<bool> {
        if path.contains(&b'/') {
            return Ok(true);
        }
        if self.root_bequeaths.is_none() {
            self.root_bequeaths = Some(bequeaths(&self.files.root)?);
        }
        Ok(self.root_bequeaths == Some(true))
    }

    /// Removes what a new file inherited.
    fn disinherit(&mut self, path: &[u8], file: &NewFile<'_>) -> Result<()> {
        match file {
            NewFile::Regular | NewFile::Directory => Ok(disinherit(self.open(path)?)?),
            NewFile::Symlink(_) => Ok(()),
            _ => {
                let (dir, name) = self.files.at(path)?;
                Ok(disinherit_at(&dir, name)?)
            }
        }
    }

    /// Does what comes after the last command, except for marking the subvolume.
    pub(super) fn complete(&mut self) -> Result<()> {
        self.files.close();
        let root = &self.files.root;
        self.root_locks = self.pending.complete(&*self.target, self.id, root)?;
        Ok(linux::sync_file_system(&*self.files.root)?)
    }
}

/// Applies one command to the subvolume.
struct BtrfsSink<'a> {
    building: &'a mut Building,
    /// The number of the command.
    number: u64,
    sources: &'a mut Sources,
    received: &'a mut Received,
}

impl CommandSink for BtrfsSink<'_> {
    type Error = Error;

    fn create(&mut self, path: &[u8], file: NewFile<'_>) -> Result<()> {
        if matches!(file, NewFile::Regular) {
            self.building.files.make(path)?;
        } else {
            check_kind(&file)?;
            let (dir, name) = self.building.files.at(path)?;
            make(&dir, name, &file)?;
        }
        if self.building.inherits(path)? {
            self.building.disinherit(path, &file)?;
        }
        Ok(())
    }

    fn rename(&mut self, path: &[u8], path_to: &[u8]) -> Result<()> {
        let files = &mut self.building.files;
        let (dir, name) = files.at(path)?;
        let (dir_to, name_to) = files.at(path_to)?;
        linux::rename_new_at(&*dir, name, &*dir_to, name_to)?;
        files.renamed(path, path_to);
        Ok(())
    }

    fn link(&mut self, path: &[u8], existing: &[u8]) -> Result<()> {
        let (dir, name) = self.building.files.at(existing)?;
        let (dir_to, name_to) = self.building.files.at(path)?;
        Ok(linux::link_at(&*dir, name, &*dir_to, name_to)?)
    }

    fn unlink(&mut self, path: &[u8]) -> Result<()> {
        self.building.files.forget(path);
        let (dir, name) = self.building.files.at(path)?;
        Ok(linux::unlink_at(&*dir, name)?)
    }

    fn rmdir(&mut self, path: &[u8]) -> Result<()> {
        self.building.files.forget(path);
        let (dir, name) = self.building.files.at(path)?;
        Ok(linux::remove_dir_at(&*dir, name)?)
    }

    fn change_data(&mut self, path: &[u8], change: DataChange<'_>) -> Result<()> {
        match change {
            DataChange::Write { offset, data } => {
                Ok(self.changing(path, offset)?.write_all_at(data, offset)?)
            }
            DataChange::Encoded(write) => self.encoded_write(write),
            DataChange::Clone(range) => self.clone_range(path, &range),
            DataChange::Truncate(size) => Ok(self.changing(path, size)?.set_len(size)?),
            DataChange::Allocate { mode, offset, len } => {
                let file = self.changing(path, offset)?;
                Ok(linux::allocate(file, mode, offset, len)?)
            }
            DataChange::Missing => Err(Error::Unsupported(
                "receiving a stream without data (btrfs send --no-data)",
            )),
            DataChange::EnableVerity => Err(Error::Unsupported("enabling fs-verity")),
        }
    }

    fn set_attribute(&mut self, path: &[u8], attribute: NewAttribute<'_>) -> Result<()> {
        let files = &mut self.building.files;
        if let (NewAttribute::Mode(mode), Some(file)) = (&attribute, files.if_open(path)) {
            return Ok(linux::set_mode(file, (*mode).into())?);
        }
        let (dir, name) = files.at(path)?;
        let dir = &*dir;
        let has_parent = self.building.has_parent;
        if path.is_empty() {
            self.building.root_bequeaths = None;
        }
        match attribute {
            NewAttribute::Xattr { name: xattr, value } => {
                linux::set_xattr_at(dir, name, xattr, value)?;
            }
            NewAttribute::NoXattr { name: xattr } => {
                match linux::remove_xattr_at(dir, name, xattr) {
                    // The file system that the parent comes from could not hold it.
                    Err(error) if has_parent && is_absent(&error) => {}
                    removed => removed?,
                }
            }
            NewAttribute::Mode(mode) => linux::set_mode_at(dir, name, mode.into())?,
            NewAttribute::Owner { uid, gid } => {
                let (uid, gid) = owner(uid, gid)?;
                linux::set_owner_at(dir, name, uid, gid)?;
            }
            NewAttribute::Times { atime, mtime, .. } => {
                linux::set_times_at(dir, name, Some(timestamp(atime)), timestamp(mtime))?;
            }
            NewAttribute::Flags(flags) => self.set_flags(path, flags)?,
        }
        Ok(())
    }
}

impl BtrfsSink<'_> {
    /// A regular file whose content at `from` and beyond is about to change.
    fn changing(&mut self, path: &[u8], from: u64) -> Result<&Arc<File>> {
        let (file, ino) = self.building.files.file(path)?;
        self.building.verifier.before_change(ino, from)?;
        Ok(file)
    }

    fn set_flags(&mut self, path: &[u8], flags: u64) -> Result<()> {
        let file = self.building.open(path)?;
        if let Some(reason) = self.building.pending.set(&file, flags)? {
            self.received.lost_count += 1;
            if self.received.lost.len() < LOST_MAX {
                self.received.lost.push((path.into(), reason));
            }
        }
        Ok(())
    }

    fn clone_range(&mut self, path: &[u8], range: &CloneRange<'_>) -> Result<()> {
        let CloneRange {
            offset,
            len,
            source_offset,
            ..
        } = *range;
        let source = if range.uuid == self.building.uuid {
            let (dir, name) = self.building.files.at(range.source)?;
            open_regular(&dir, name, OpenFlags::RDONLY)?
        } else {
            let root = self.sources.source(range.uuid, range.ctransid)?;
            OpenFiles::beneath(&root, range.source)?
        };
        if len == 0 {
            return Ok(()); // Linux would take it for the rest of the file.
        }
        let copies = self.building.copies_clones;
        let file = self.changing(path, offset)?;
        match linux::clone_range(&source, source_offset, len, file, offset) {
            Err(error) if copies && refused(&error).is_some() => {
                copy_range(&source, source_offset, len, file, offset)?;
                self.received.copied_clones += 1;
                self.received.copied_bytes += len;
                Ok(())
            }
            Err(error) => Err(refused(&error).map_or(error.into(), Error::InvalidInput)),
            Ok(()) => Ok(()),
        }
    }

    /// Writes an extent as it is encoded, or decoded where Linux cannot take it. It is decoded in
    /// either case, by the verifier if it is written as it is.
    fn encoded_write(&mut self, write: &EncodedWrite<'_>) -> Result<()> {
        let building = &mut *self.building;
        let (file, ino) = building.files.file(write.path)?;
        building.verifier.before_change(ino, write.file_offset)?;
        if let Some(extent) = write.extent().filter(|_| !building.decompresses) {
            match linux::write_encoded(&**file, &extent) {
                Ok(()) => {
                    self.received.encoded += 1;
                    return building
                        .verifier
                        .add(self.number, (file, ino), write, &extent);
                }
                Err(error) if can_fall_back(&error, building.falls_back_on_eperm) => {
                    let reason = &mut self.received.reason;
                    reason.get_or_insert_with(|| error.to_string().into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        let content = write.decode_exactly(&mut building.decoder, &mut building.decoded)?;
        self.received.decompressed += 1;
        Ok(file.write_all_at(content, write.file_offset)?)
    }
}

/// Whether Linux may take the same data if it is not encoded: there is no room for the extent as a
/// whole, the ioctl does not exist, or this file cannot hold it.
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
