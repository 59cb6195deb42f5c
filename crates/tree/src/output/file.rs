//! Files, devices and streams as targets of an output.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use linux::OpenFlags;

use super::target::{OutputKind, OutputTarget};
use super::temporary::{self, Temporary};
use crate::{Error, ReadAt, Result, Scratch};

/// A file that is written, and how it gets its name.
#[derive(Debug)]
pub(super) struct FileTarget {
    file: File,
    place: FilePlace,
}

#[derive(Debug)]
enum FilePlace {
    Unnamed(Destination),
    Named(Destination, Temporary),
    Device,
    Stream,
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

impl FileTarget {
    /// Opens the path `to` for writing: an existing block device or stream, otherwise a new file.
    ///
    /// # Errors
    /// `AlreadyExists` for an existing file or device unless `overwrite` is set;
    /// [`Error::IsADirectory`]; [`Error::InvalidInput`] for a path without a file name;
    /// `ResourceBusy` for a mounted device; what the kernel reports.
    pub(super) fn create(to: &Path, overwrite: bool) -> Result<FileTarget> {
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
            return Ok(FileTarget {
                file: file.into(),
                place: FilePlace::Unnamed(destination),
            });
        }
        Self::create_named(destination)
    }

    /// For file systems without unnamed files.
    fn create_named(destination: Destination) -> Result<FileTarget> {
        let (temporary, file) =
            Temporary::create(&destination.dir, &destination.name, |dir, name| {
                let flags = OpenFlags::RDWR | OpenFlags::CREATE | OpenFlags::EXCL;
                linux::open_at(dir, name, flags, 0o666)
            })?;
        Ok(FileTarget {
            file: file.into(),
            place: FilePlace::Named(destination, temporary),
        })
    }

    fn open_device(path: &Path, overwrite: bool) -> Result<FileTarget> {
        if !overwrite {
            return Err(Error::Io(io::ErrorKind::AlreadyExists.into()));
        }
        // On a block device, O_EXCL without O_CREAT refuses one that is mounted or otherwise in
        // use.
        let exclusive = i32::from_ne_bytes(OpenFlags::EXCL.bits().to_ne_bytes());
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(exclusive);
        Ok(FileTarget {
            file: options.open(path)?,
            place: FilePlace::Device,
        })
    }

    /// Writes to a file that is already open, such as standard output.
    pub(super) fn stream(file: File) -> FileTarget {
        FileTarget {
            file,
            place: FilePlace::Stream,
        }
    }
}

impl OutputTarget for FileTarget {
    fn kind(&self) -> OutputKind {
        match self.place {
            FilePlace::Unnamed(_) | FilePlace::Named(..) => OutputKind::File,
            FilePlace::Device => OutputKind::Device,
            FilePlace::Stream => OutputKind::Stream,
        }
    }

    fn append(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.write(buf)
    }

    fn write_all_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(buf, at)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        match self.place {
            FilePlace::Device => Ok(()),
            _ => self.file.set_len(bytes),
        }
    }

    fn reader(&self) -> io::Result<Arc<dyn ReadAt>> {
        match self.place {
            FilePlace::Stream => Err(io::ErrorKind::NotSeekable.into()),
            _ => Ok(Arc::new(self.file.try_clone()?)),
        }
    }

    fn file(&self) -> Option<&File> {
        Some(&self.file)
    }

    fn scratch(&self) -> io::Result<Option<File>> {
        match &self.place {
            FilePlace::Unnamed(to) => {
                linux::open_unnamed(&to.dir, 0o600).map(|file| Some(file.into()))
            }
            FilePlace::Named(..) | FilePlace::Device | FilePlace::Stream => Ok(None),
        }
    }

    fn tables(&self) -> io::Result<Scratch> {
        Ok(match (&self.place, self.scratch()?) {
            (FilePlace::Unnamed(to), Some(file)) => Scratch::in_file(file, &to.parent),
            _ => Scratch::memory(),
        })
    }

    fn finish(self: Box<Self>) -> Result<()> {
        match linux::sync(&self.file) {
            // Pipes and terminals cannot be synced.
            Err(error) if self.kind() == OutputKind::Stream && is_not_a_medium(&error) => {}
            synced => synced?,
        }
        let FileTarget { file, place } = *self;
        match place {
            FilePlace::Device | FilePlace::Stream => Ok(()),
            FilePlace::Named(to, temporary) => {
                temporary.finish(|name| rename(&to, name))?;
                Ok(linux::sync(&to.dir)?)
            }
            FilePlace::Unnamed(to) if to.overwrite => {
                // Only a rename can replace an existing file, so this file needs a name first.
                let (temporary, ()) = Temporary::create(&to.dir, &to.name, |dir, name| {
                    linux::link_open_file(&file, dir, name)
                })?;
                temporary.finish(|name| rename(&to, name))?;
                Ok(linux::sync(&to.dir)?)
            }
            FilePlace::Unnamed(to) => {
                temporary::finish(|| linux::link_open_file(&file, &to.dir, &to.name))?;
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

/// Reads back what has been written to a file or device.
impl ReadAt for FileTarget {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        ReadAt::read_exact_at(&self.file, buf, at)
    }

    fn size(&self) -> io::Result<u64> {
        ReadAt::size(&self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Output;
    use super::*;
    use std::fs;
    use std::io::Write;
    use testkit::TempDir;

    /// Like [`FileTarget::create`] on a file system without unnamed files.
    fn named(dir: &TempDir, overwrite: bool) -> Output {
        let destination = Destination {
            dir: Arc::new(linux::open_dir(dir.path()).unwrap()),
            parent: dir.path().into(),
            name: (*b"out").into(),
            overwrite,
        };
        let mut output = Output::to(FileTarget::create_named(destination).unwrap());
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
