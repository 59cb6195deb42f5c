//! An output that appears complete or not at all.

mod encoded;
mod spool;
pub mod temporary;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use linux::OpenFlags;

pub use self::encoded::WrittenExtent;
pub use self::spool::spool;
pub(crate) use self::spool::unnamed_file;
use self::temporary::Temporary;
use crate::{Error, ReadAt, Result, Scratch};

/// What an [`Output`] writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// A new regular file, which gets its name on commit.
    File,
    /// A block device, written in place. Its size is fixed, and the first write destroys what it
    /// held.
    Device,
    /// A pipe, terminal or other stream. It accepts bytes in order only, and what was written
    /// cannot be undone.
    Stream,
}

/// The file, device or stream to which an image or archive is written.
///
/// Until [`Output::commit`], a regular file has no name, or a temporary one if the file system does
/// not support unnamed files. The commit waits until the data is on the medium, then makes the name
/// appear in one step. Dropping an `Output` without commit leaves nothing behind. When writing to a
/// device, a format must write last what makes the image valid.
///
/// [`io::Write`] appends in order and is unbuffered; [`Output::write_all_at`] writes anywhere and
/// does not change the position for appending.
#[derive(Debug)]
pub struct Output {
    file: File,
    target: Target,
}

#[derive(Debug)]
enum Target {
    Unnamed(Destination),
    Named(Destination, Temporary),
    Device,
    Stream,
    Nothing,
}

/// Where a regular file goes.
#[derive(Debug)]
struct Destination {
    dir: Arc<OwnedFd>,
    /// The path of the directory, for errors.
    parent: Box<Path>,
    name: Box<[u8]>,
    overwrite: bool,
}

impl Output {
    /// Opens the path `to` for writing: an existing block device or stream, otherwise a new file.
    ///
    /// # Errors
    /// `AlreadyExists` for an existing file or device unless `overwrite` is set;
    /// [`Error::IsADirectory`]; [`Error::InvalidInput`] for a path without a file name;
    /// `ResourceBusy` for a mounted device; what the kernel reports.
    pub fn create(to: &Path, overwrite: bool) -> Result<Output> {
        if let Ok(there) = std::fs::metadata(to) {
            let kind = there.file_type();
            if kind.is_dir() {
                return Err(Error::IsADirectory);
            }
            if kind.is_block_device() {
                return Self::open_device(to, overwrite);
            }
            if !kind.is_file() {
                return Ok(Self::stream(OpenOptions::new().write(true).open(to)?));
            }
        }
        let no_name = Error::InvalidInput("the destination has no file name");
        let (parent, name) = linux::split_path(to).ok_or(no_name)?;
        let destination = Destination {
            dir: Arc::new(linux::open_dir(parent)?),
            parent: parent.into(),
            name: name.into(),
            overwrite,
        };
        if !overwrite && linux::stat_at(&destination.dir, name).is_ok() {
            return Err(Error::Io(io::ErrorKind::AlreadyExists.into()));
        }
        // Find out now whether it can get its name, not after everything is written.
        if let Ok(file) = linux::open_unnamed(&destination.dir, 0o666)
            && linux::can_link_open_file(&file)
        {
            return Ok(Output {
                file: file.into(),
                target: Target::Unnamed(destination),
            });
        }
        Self::create_named(destination)
    }

    /// For file systems without unnamed files.
    fn create_named(destination: Destination) -> Result<Output> {
        let (temporary, file) =
            Temporary::create(&destination.dir, &destination.name, |dir, name| {
                let flags = OpenFlags::RDWR | OpenFlags::CREATE | OpenFlags::EXCL;
                linux::open_at(dir, name, flags, 0o666)
            })?;
        Ok(Output {
            file: file.into(),
            target: Target::Named(destination, temporary),
        })
    }

    fn open_device(path: &Path, overwrite: bool) -> Result<Output> {
        if !overwrite {
            return Err(Error::Io(io::ErrorKind::AlreadyExists.into()));
        }
        // On a block device, O_EXCL without O_CREAT refuses one that is mounted or otherwise in
        // use.
        let exclusive = i32::from_ne_bytes(OpenFlags::EXCL.bits().to_ne_bytes());
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(exclusive);
        Ok(Output {
            file: options.open(path)?,
            target: Target::Device,
        })
    }

    /// Writes to a file that is already open, such as standard output.
    pub fn stream(file: File) -> Output {
        Output {
            file,
            target: Target::Stream,
        }
    }

    /// Writes to standard output.
    ///
    /// # Errors
    /// It is closed.
    pub fn standard() -> io::Result<Output> {
        let file = io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Output::stream(file.into()))
    }

    /// Takes everything that is written, like a file, and throws it away: to learn the size of a
    /// result.
    ///
    /// # Errors
    /// `/dev/null` cannot be opened.
    pub fn discarding() -> io::Result<Output> {
        Ok(Output {
            file: OpenOptions::new().write(true).open("/dev/null")?,
            target: Target::Nothing,
        })
    }

    /// The kind of output.
    pub fn kind(&self) -> OutputKind {
        match self.target {
            Target::Unnamed(_) | Target::Named(..) | Target::Nothing => OutputKind::File,
            Target::Device => OutputKind::Device,
            Target::Stream => OutputKind::Stream,
        }
    }

    /// Writes all of `buf` at the byte offset `at`.
    ///
    /// # Errors
    /// What the medium reports; a stream cannot seek.
    pub fn write_all_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        match self.target {
            Target::Nothing => Ok(()),
            _ => self.file.write_all_at(buf, at),
        }
    }

    /// A second handle, for reading back what has been written.
    ///
    /// # Errors
    /// What the kernel reports; a stream cannot be read back.
    pub fn reader(&self) -> io::Result<File> {
        match self.kind() {
            OutputKind::Stream => Err(io::ErrorKind::NotSeekable.into()),
            OutputKind::File | OutputKind::Device => self.file.try_clone(),
        }
    }

    /// An unnamed temporary file on the same file system, for data that cannot be written yet;
    /// `None` if the file system does not support one. It disappears when closed.
    ///
    /// # Errors
    /// What the kernel reports.
    pub fn scratch(&self) -> io::Result<Option<File>> {
        match &self.target {
            Target::Unnamed(to) => {
                linux::open_unnamed(&to.dir, 0o600).map(|file| Some(file.into()))
            }
            Target::Named(..) | Target::Device | Target::Stream | Target::Nothing => Ok(None),
        }
    }

    /// The same for tables, which stay in memory if the file system supports no such file.
    ///
    /// # Errors
    /// What the kernel reports.
    pub fn tables(&self) -> io::Result<Scratch> {
        Ok(match (&self.target, self.scratch()?) {
            (Target::Unnamed(to), Some(file)) => Scratch::in_file(file, &to.parent),
            _ => Scratch::memory(),
        })
    }

    /// Sets the length of a regular file; new bytes are zeros that take no space. Does nothing on a
    /// device.
    ///
    /// # Errors
    /// What the medium reports.
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        match self.kind() {
            OutputKind::Device => Ok(()),
            OutputKind::File if matches!(self.target, Target::Nothing) => Ok(()),
            OutputKind::File | OutputKind::Stream => self.file.set_len(bytes),
        }
    }

    /// Finishes: waits until everything is on the medium, then gives a regular file its name.
    ///
    /// # Errors
    /// What the medium reports; `AlreadyExists` if the name was taken in the meantime and
    /// `overwrite` is not set; `Interrupted` after [`temporary::remove_all`]. Nothing is left
    /// behind in these cases.
    pub fn commit(self) -> Result<()> {
        if matches!(self.target, Target::Nothing) {
            return Ok(());
        }
        match linux::sync(&self.file) {
            // Pipes and terminals cannot be synced.
            Err(error) if self.kind() == OutputKind::Stream && is_not_a_medium(&error) => {}
            synced => synced?,
        }
        match self.target {
            Target::Device | Target::Stream | Target::Nothing => Ok(()),
            Target::Named(to, temporary) => {
                temporary.finish(|name| rename(&to, name))?;
                Ok(linux::sync(&to.dir)?)
            }
            Target::Unnamed(to) if to.overwrite => {
                // Only a rename can replace an existing file, so this file needs a name first.
                let (temporary, ()) = Temporary::create(&to.dir, &to.name, |dir, name| {
                    linux::link_open_file(&self.file, dir, name)
                })?;
                temporary.finish(|name| rename(&to, name))?;
                Ok(linux::sync(&to.dir)?)
            }
            Target::Unnamed(to) => {
                temporary::finish(|| linux::link_open_file(&self.file, &to.dir, &to.name))?;
                Ok(linux::sync(&to.dir)?)
            }
        }
    }
}

fn is_not_a_medium(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::ReadOnlyFilesystem
    )
}

fn rename(to: &Destination, from: &[u8]) -> io::Result<()> {
    if to.overwrite {
        return linux::rename_at(&to.dir, from, &to.dir, &to.name);
    }
    match linux::rename_new_at(&to.dir, from, &to.dir, &to.name) {
        // The file system lacks RENAME_NOREPLACE. A hard link is just as strict; the temporary name
        // is removed afterwards.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            linux::link_at(&to.dir, from, &to.dir, &to.name)?;
            linux::unlink_at(&to.dir, from)
        }
        renamed => renamed,
    }
}

impl io::Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads back what has been written to a file or device.
impl ReadAt for Output {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        ReadAt::read_exact_at(&self.file, buf, at)
    }

    fn size(&self) -> io::Result<u64> {
        ReadAt::size(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use testkit::TempDir;

    /// Like [`Output::create`] on a file system without unnamed files.
    fn named(dir: &TempDir, overwrite: bool) -> Output {
        let destination = Destination {
            dir: Arc::new(linux::open_dir(dir.path()).unwrap()),
            parent: dir.path().into(),
            name: (*b"out").into(),
            overwrite,
        };
        let mut output = Output::create_named(destination).unwrap();
        output.write_all(b"content").unwrap();
        output
    }

    fn names(dir: &TempDir) -> usize {
        fs::read_dir(dir.path()).unwrap().count()
    }

    #[test]
    fn a_temporary_name_becomes_the_final_one_on_commit() {
        let dir = TempDir::new();
        let output = named(&dir, false);
        assert!(!dir.join("out").exists());
        assert_eq!(names(&dir), 1);
        output.commit().unwrap();
        assert_eq!(fs::read(dir.join("out")).unwrap(), b"content");
        named(&dir, true).commit().unwrap();
        assert_eq!(names(&dir), 1);
    }

    #[test]
    fn a_temporary_name_goes_with_an_output_that_is_not_committed() {
        let dir = TempDir::new();
        drop(named(&dir, false));
        assert_eq!(names(&dir), 0);
        // Nothing is left either if the final name was taken in the meantime.
        let output = named(&dir, false);
        fs::write(dir.join("out"), "theirs").unwrap();
        assert!(output.commit().is_err());
        assert_eq!(fs::read(dir.join("out")).unwrap(), b"theirs");
        assert_eq!(names(&dir), 1);
    }
}
