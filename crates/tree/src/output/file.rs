//! Files, devices and streams as targets of an output.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use linux::{OpenFlags, Stat};

use super::path::{OutputPath, is_of_stranger};
use super::target::{OutputKind, OutputTarget};
use super::temporary::{self, Overwriting, Temporary};
use crate::{Error, FileKind, ReadAt, Result, Scratch};

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

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
    InPlace(InPlace),
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

/// An existing file that is written over.
#[derive(Debug)]
struct InPlace {
    old: Overwriting,
    /// Its directory, for unnamed files.
    dir: OwnedFd,
    parent: Box<Path>,
}

impl FileTarget {
    /// The file or device of [`Output::in_place`](super::Output::in_place).
    pub(super) fn in_place(to: &Path) -> Result<FileTarget> {
        let kind = std::fs::metadata(to)?.file_type();
        if kind.is_block_device() {
            return Self::open_device(to, true);
        }
        if kind.is_dir() {
            return Err(Error::IsADirectory);
        }
        if !kind.is_file() {
            return Err(Error::InvalidInput(
                "neither a regular file nor a block device",
            ));
        }
        let parent = linux::split_path(to).map_or(Path::new("/"), |(parent, _)| parent);
        let file = OpenOptions::new().read(true).write(true).open(to)?;
        let place = InPlace {
            dir: linux::open_dir(parent)?,
            parent: parent.into(),
            old: Overwriting::begin(file.try_clone()?)?,
        };
        Ok(FileTarget {
            file,
            place: FilePlace::InPlace(place),
        })
    }

    /// What [`Output::create`](super::Output::create) opens.
    pub(super) fn create(to: &Path, overwrite: bool) -> Result<FileTarget> {
        let path = match OutputPath::of(to) {
            Ok(OutputPath::Open(number)) => {
                return Ok(Self::stream(linux::duplicate(number)?.into()));
            }
            Ok(OutputPath::Named(path)) => path,
            Err(_) if !overwrite && std::fs::symlink_metadata(to).is_ok() => {
                return Err(Error::Io(io::ErrorKind::AlreadyExists.into()));
            }
            Err(error) => return Err(error),
        };
        if let Ok(there) = std::fs::metadata(&path) {
            let kind = there.file_type();
            if kind.is_dir() {
                return Err(Error::IsADirectory);
            }
            if kind.is_block_device() {
                return Self::open_device(&path, overwrite);
            }
            if !kind.is_file() {
                return Ok(Self::stream(OpenOptions::new().write(true).open(path)?));
            }
        }
        // A link that leads nowhere is in the way, too.
        Self::beside(if overwrite { &path } else { to }, overwrite)
    }

    /// Creates a file that gets the name `to`, or replaces the one that has it.
    pub(super) fn beside(to: &Path, overwrite: bool) -> Result<FileTarget> {
        let no_name = Error::InvalidInput("the destination has no file name");
        let (parent, name) = linux::split_path(to).ok_or(no_name)?;
        let destination = Destination {
            dir: Arc::new(linux::open_dir(parent)?),
            parent: parent.into(),
            name: name.into(),
            overwrite,
        };
        let there = linux::stat_at(&destination.dir, name).ok();
        if !overwrite && there.is_some() {
            return Err(Error::Io(io::ErrorKind::AlreadyExists.into()));
        }
        let dir = linux::stat(&destination.dir)?;
        // The owner of a file that strangers put in the way must not get what it is replaced by.
        let replaced = there.filter(|there| is_regular(there) && !is_of_stranger(there, &dir));
        let mode = if replaced.is_some() { 0o600 } else { 0o666 };
        // Find out now whether it can get its name, not after everything is written.
        let target = match linux::open_unnamed(&destination.dir, mode) {
            Ok(file) if linux::can_link_open_file(&file) => FileTarget {
                file: file.into(),
                place: FilePlace::Unnamed(destination),
            },
            _ => Self::create_named(destination, mode)?,
        };
        if let Some(there) = replaced
            && let FilePlace::Unnamed(to) | FilePlace::Named(to, _) = &target.place
        {
            keep_access(&target.file, to, &there)?;
        }
        Ok(target)
    }

    /// For file systems without unnamed files.
    fn create_named(destination: Destination, mode: u32) -> Result<FileTarget> {
        let (temporary, file) =
            Temporary::create(&destination.dir, &destination.name, |dir, name| {
                let flags = OpenFlags::RDWR | OpenFlags::CREATE | OpenFlags::EXCL;
                linux::open_at(dir, name, flags, mode)
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

    /// Changes the content. A file that is written over stays empty once the program is stopped.
    fn change<T>(&self, change: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        match self.place {
            FilePlace::InPlace(_) => temporary::finish(|| change(&self.file)),
            _ => change(&self.file),
        }
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
            FilePlace::Unnamed(_) | FilePlace::Named(..) | FilePlace::InPlace(_) => {
                OutputKind::File
            }
            FilePlace::Device => OutputKind::Device,
            FilePlace::Stream => OutputKind::Stream,
        }
    }

    fn append(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.change(|mut file| file.write(buf))
    }

    fn write_all_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.change(|file| file.write_all_at(buf, at))
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        match self.place {
            FilePlace::Device => Ok(()),
            _ => self.change(|file| file.set_len(bytes)),
        }
    }

    fn clone_range(&self, source: &File, from: u64, len: u64, at: u64) -> io::Result<()> {
        self.change(|file| linux::clone_range(source, from, len, file, at))
    }

    fn discard(&self, bytes: u64) -> io::Result<()> {
        linux::discard(&self.file, bytes)
    }

    fn reader(&self) -> io::Result<Arc<dyn ReadAt>> {
        match self.place {
            FilePlace::Stream => Err(io::ErrorKind::NotSeekable.into()),
            _ => Ok(Arc::new(self.file.try_clone()?)),
        }
    }

    fn scratch(&self) -> io::Result<Option<File>> {
        match &self.place {
            FilePlace::Unnamed(to) => {
                linux::open_unnamed(&to.dir, 0o600).map(|file| Some(file.into()))
            }
            // Its directory may have none, as that of an open file in /proc.
            FilePlace::InPlace(place) => {
                let file = linux::open_unnamed(&place.dir, 0o600);
                Ok(file.ok().map(Into::into))
            }
            FilePlace::Named(..) | FilePlace::Device | FilePlace::Stream => Ok(None),
        }
    }

    fn tables(&self) -> io::Result<Scratch> {
        Ok(match (&self.place, self.scratch()?) {
            (FilePlace::Unnamed(to), Some(file)) => Scratch::in_file(file, &to.parent),
            (FilePlace::InPlace(place), Some(file)) => Scratch::in_file(file, &place.parent),
            _ => Scratch::memory(),
        })
    }

    fn begin_sync(&self, at: u64, len: u64) {
        // Errors are those of the sync at the end.
        _ = linux::begin_writing(&self.file, at, len);
    }

    fn sync(&self) -> io::Result<()> {
        match linux::sync(&self.file) {
            // Pipes and terminals cannot be synced.
            Err(error) if self.kind() == OutputKind::Stream && is_not_a_medium(&error) => Ok(()),
            synced => synced,
        }
    }

    fn rename(&mut self, name: &[u8]) -> io::Result<()> {
        match &mut self.place {
            FilePlace::Unnamed(to) | FilePlace::Named(to, _) => to.name = name.into(),
            FilePlace::InPlace(_) | FilePlace::Device | FilePlace::Stream => {
                return Err(io::ErrorKind::Unsupported.into());
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        self.sync()?;
        let FileTarget { file, place } = *self;
        match place {
            FilePlace::Device | FilePlace::Stream => Ok(()),
            FilePlace::InPlace(place) => Ok(place.old.finish()?),
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

fn is_regular(there: &Stat) -> bool {
    FileKind::from_mode(there.mode) == Some(FileKind::Regular)
}

/// Gives a new file the permissions, the access control list and, as far as possible, the owner of
/// the file that it replaces.
fn keep_access(file: &File, replaced: &Destination, there: &Stat) -> io::Result<()> {
    let own = |uid| std::os::unix::fs::fchown(file, uid, Some(there.gid));
    // Only root can give files away; that is no reason not to replace one.
    let has_group = own(Some(there.uid)).or_else(|_| own(None)).is_ok();
    let mut mode = there.mode & 0o777;
    let mut list = None;
    if has_group {
        linux::for_each_xattr(&*replaced.dir, &replaced.name, |name, value| {
            if name == ACCESS_LIST {
                list = Some(value.to_vec());
            }
        })?;
    } else {
        // The rights of that group are not for another one.
        mode &= 0o707 | (mode & 7) << 3;
    }
    match list {
        Some(list) => linux::set_xattr(file, ACCESS_LIST, &list)?,
        // The directory may have given it one.
        None => _ = linux::remove_xattr(file, ACCESS_LIST)?,
    }
    linux::set_mode(file, mode)
}

fn rename(to: &Destination, from: &[u8]) -> io::Result<()> {
    if to.overwrite {
        // What was a file when it was created may be a device by now.
        let stays = |there: Stat| {
            let kind = FileKind::from_mode(there.mode);
            !matches!(kind, Some(FileKind::Regular | FileKind::Symlink))
        };
        if linux::stat_at(&to.dir, &to.name).is_ok_and(stays) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
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
        let mut output = Output::to(FileTarget::create_named(destination, 0o666).unwrap());
        output.write_all(b"content").unwrap();
        output
    }

    #[test]
    fn a_file_that_is_written_in_place_is_finished_or_empty() {
        let dir = TempDir::new();
        let (path, name) = (dir.join("file"), dir.join("name"));
        fs::write(&path, "theirs").unwrap();
        fs::hard_link(&path, &name).unwrap();
        let mut output = Output::in_place(&path).unwrap();
        output.write_all(b"more than there was").unwrap();
        drop(output);
        assert_eq!(fs::read(&name).unwrap(), [0; 6]);
        let mut output = Output::in_place(&path).unwrap();
        output.write_all(b"ours").unwrap();
        output.commit().unwrap();
        assert_eq!(fs::read(&name).unwrap(), b"ours");
        assert_eq!(names(&dir), 2);
        let missing = dir.join("missing");
        assert!(Output::in_place(&missing).is_err());
        assert!(matches!(
            Output::in_place(dir.path()),
            Err(Error::IsADirectory)
        ));
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
    fn a_file_may_get_another_name_than_it_began_with() {
        let dir = TempDir::new();
        for mut output in [
            named(&dir, true),
            Output::replace(&dir.join("out")).unwrap(),
        ] {
            output.rename(b"digest").unwrap();
            output.commit().unwrap();
            assert!(dir.join("digest").exists());
            assert_eq!(names(&dir), 1);
        }
        assert!(Output::discarding().rename(b"digest").is_err());
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
