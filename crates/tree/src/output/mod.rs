//! The output that appears whole or not at all.

pub mod temporary;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use linux::OpenFlags;

use self::temporary::Temporary;
use crate::{Error, ReadAt, Result};

/// What an [`Output`] writes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// A new regular file, which gets its name on commit.
    File,
    /// A block device, written in place; its size is fixed, and what it held is lost from the first write on.
    Device,
    /// A pipe, terminal or other stream, which takes bytes in order only and cannot be taken back.
    Stream,
}

/// A file, device or stream that an image or archive is written to.
///
/// A regular file has no name, or a temporary one where the file system knows no files without a name, until
/// [`Output::commit`]: then it is on the medium, and its name appears in one step. Dropping an `Output` without commit
/// leaves nothing behind. A format that writes to a device has to write last what makes the image valid.
///
/// [`io::Write`] appends in order and is not buffered; [`Output::write_all_at`] writes anywhere and does not move that
/// order.
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
}

/// Where a regular file goes.
#[derive(Debug)]
struct Destination {
    dir: Arc<OwnedFd>,
    name: Box<[u8]>,
    overwrite: bool,
}

impl Output {
    /// Starts to write to the path `to`: a block device or stream that is there, otherwise a new file.
    ///
    /// # Errors
    /// `AlreadyExists` for a file or device that is there unless `overwrite`; [`Error::IsADirectory`];
    /// [`Error::InvalidInput`] for a path without a name; `ResourceBusy` for a mounted device; what the kernel reports.
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
            name: name.into(),
            overwrite,
        };
        if !overwrite && linux::stat_at(&destination.dir, name).is_ok() {
            return Err(Error::Io(io::ErrorKind::AlreadyExists.into()));
        }
        // Whether it can get its name must be known now, not when everything is written.
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

    /// For a file system that knows no files without a name.
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
        // On a block device, O_EXCL without O_CREAT refuses one that is mounted or otherwise in use.
        let exclusive = i32::from_ne_bytes(OpenFlags::EXCL.bits().to_ne_bytes());
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(exclusive);
        Ok(Output {
            file: options.open(path)?,
            target: Target::Device,
        })
    }

    /// Writes to what is already open, such as standard output.
    pub fn stream(file: File) -> Output {
        Output {
            file,
            target: Target::Stream,
        }
    }

    /// What is written to.
    pub fn kind(&self) -> OutputKind {
        match self.target {
            Target::Unnamed(_) | Target::Named(..) => OutputKind::File,
            Target::Device => OutputKind::Device,
            Target::Stream => OutputKind::Stream,
        }
    }

    /// Writes all of `buf` at the byte offset `at`.
    ///
    /// # Errors
    /// What the medium reports; on a stream, that it cannot seek.
    pub fn write_all_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(buf, at)
    }

    /// A second handle, to read back what was written so far.
    ///
    /// # Errors
    /// What the kernel reports; a stream cannot be read back.
    pub fn reader(&self) -> io::Result<File> {
        match self.kind() {
            OutputKind::Stream => Err(io::ErrorKind::NotSeekable.into()),
            OutputKind::File | OutputKind::Device => self.file.try_clone(),
        }
    }

    /// A file without a name on the same file system, for what has to wait until it can be written; `None` where there is
    /// none to be had. It is gone when it is closed.
    ///
    /// # Errors
    /// What the kernel reports.
    pub fn scratch(&self) -> io::Result<Option<File>> {
        match &self.target {
            Target::Unnamed(to) => {
                linux::open_unnamed(&to.dir, 0o600).map(|file| Some(file.into()))
            }
            Target::Named(..) | Target::Device | Target::Stream => Ok(None),
        }
    }

    /// Makes a regular file that long; new bytes are zeros that take no space. Changes nothing on a device.
    ///
    /// # Errors
    /// What the medium reports.
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        match self.kind() {
            OutputKind::Device => Ok(()),
            OutputKind::File | OutputKind::Stream => self.file.set_len(bytes),
        }
    }

    /// Finishes: waits until everything is on the medium, then gives a regular file its name.
    ///
    /// # Errors
    /// What the medium reports; `AlreadyExists` when the name was taken meanwhile and `overwrite` was not asked for;
    /// `Interrupted` after [`temporary::remove_all`]. Nothing is left behind then.
    pub fn commit(self) -> Result<()> {
        match linux::sync(&self.file) {
            // Pipes and terminals have nothing to wait for.
            Err(error) if self.kind() == OutputKind::Stream && is_not_a_medium(&error) => {}
            synced => synced?,
        }
        match self.target {
            Target::Device | Target::Stream => Ok(()),
            Target::Named(to, temporary) => {
                temporary.finish(|name| rename(&to, name))?;
                Ok(linux::sync(&to.dir)?)
            }
            Target::Unnamed(to) if to.overwrite => {
                // A name can be taken from another file only by a rename, so this one needs a name to begin with.
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
        // A file system without RENAME_NOREPLACE: a hard link is as strict, and the temporary name goes after it.
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

/// What has been written can be read again, from a file or device.
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

    /// As [`Output::create`] does where there are no files without a name.
    fn named(dir: &TempDir, overwrite: bool) -> Output {
        let destination = Destination {
            dir: Arc::new(linux::open_dir(dir.path()).unwrap()),
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
        // Nor is it left when the final name was taken meanwhile.
        let output = named(&dir, false);
        fs::write(dir.join("out"), "theirs").unwrap();
        assert!(output.commit().is_err());
        assert_eq!(fs::read(dir.join("out")).unwrap(), b"theirs");
        assert_eq!(names(&dir), 1);
    }
}
