//! Copying the parent of an incremental stream, whose bytes are shared where the file system can.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use linux::{OpenFlags, Stat};
use tree::extract::{Aspect, Unrestored};
use tree::temporary;
use tree::{Error, FileAttributes, HostFile, HostStep, Result, walk_host_dir};

use super::files::{DIRECTORY, KIND, NO_SET_ID, OpenFiles, REGULAR, SET_ID, SYMLINK, open_regular};
use super::ranges::{copy_range, is_not_shareable};

/// Attributes that `statx` reports with the values of `FS_*_FL`: compressed, immutable,
/// append-only, and no dump.
const ATTRIBUTES: u64 = 0x04 | 0x10 | 0x20 | 0x40;

/// Copies everything below a directory, and what the directory is itself, into an empty one that
/// only this user can enter. Returns the properties that could not be restored.
///
/// # Errors
/// [`Error::File`] with the path of a file that cannot be read or written.
pub(super) fn copy_directory(from: &OwnedFd, to: &OwnedFd, owners: bool) -> Result<Unrestored> {
    let mut copy = Copy {
        files: OpenFiles::new(to.try_clone()?),
        linked: HashMap::new(),
        owners,
        process_owner: linux::process_owner(),
        unrestored: Unrestored::default(),
    };
    walk_host_dir(from, &mut |step, file| {
        if temporary::is_stopping() {
            return Err(Error::Io(io::ErrorKind::Interrupted.into()));
        }
        let copied = match step {
            HostStep::Enter if file.path.is_empty() => Ok(()),
            HostStep::Enter => copy.make_dir(file.path),
            HostStep::File => copy.copy(file),
            HostStep::Leave => copy.finish_dir(file),
        };
        copied.map_err(|error| error.in_file("copy", file.path))
    })?;
    Ok(copy.unrestored)
}

/// Device and inode number.
type Inode = ((u32, u32), u64);

struct Copy {
    files: OpenFiles,
    /// The first paths of files with several names.
    linked: HashMap<Inode, Box<[u8]>>,
    owners: bool,
    process_owner: (u32, u32),
    unrestored: Unrestored,
}

impl Copy {
    fn make_dir(&mut self, path: &[u8]) -> Result<()> {
        let (dir, name) = self.files.at(path)?;
        Ok(linux::make_dir_at(&*dir, name, 0o700)?)
    }

    fn copy(&mut self, file: &HostFile<'_>) -> Result<()> {
        let (path, stat) = (file.path, file.stat);
        if stat.nlink > 1
            && let Some(first) = self.linked.get(&(stat.dev, stat.ino))
        {
            let (dir, name) = self.files.at(first)?;
            let (dir_to, name_to) = self.files.at(path)?;
            return Ok(linux::link_at(&*dir, name, &*dir_to, name_to)?);
        }
        let (dir, name) = self.files.at(path)?;
        let kind = stat.mode & KIND;
        match kind {
            REGULAR => {
                let source = open_regular(file.dir, file.name, OpenFlags::RDONLY)?;
                let flags = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::RDWR;
                let made = File::from(linux::open_at(&*dir, name, flags, 0o600)?);
                if stat.size > 0 {
                    // Of length 0, it reaches to the end.
                    match linux::clone_range(&source, 0, 0, &made, 0) {
                        Err(error) if is_not_shareable(&error) => {
                            copy_range(&source, 0, stat.size, &made, 0)?;
                        }
                        shared => shared?,
                    }
                }
                self.finish(&made, &source, file)?;
            }
            SYMLINK => {
                let target = linux::read_link_at(file.dir, file.name)?;
                linux::make_symlink_at(&target, &*dir, name)?;
                self.finish_special(&dir, name, file)?;
            }
            _ => {
                match linux::make_node_at(&*dir, name, kind | 0o600, stat.rdev) {
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        self.unrestored
                            .add(Aspect::Device, || path.to_vec(), &error);
                        return Ok(());
                    }
                    made => made?,
                }
                self.finish_special(&dir, name, file)?;
            }
        }
        if stat.nlink > 1 {
            self.linked.insert((stat.dev, stat.ino), path.into());
        }
        Ok(())
    }

    fn finish_dir(&mut self, file: &HostFile<'_>) -> Result<()> {
        let (dir, name) = self.files.at(file.path)?;
        let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
        let made = linux::open_at(&*dir, name, flags, 0)?;
        let source = linux::open_at(file.dir, file.name, flags, 0)?;
        self.finish(&made, &source, file)
    }

    /// Sets everything but the content, in an order in which nothing undoes another.
    fn finish(&mut self, made: impl AsFd, source: impl AsFd, file: &HostFile<'_>) -> Result<()> {
        let (made, stat) = (made.as_fd(), file.stat);
        let set_owner = |uid, gid| linux::set_owner(made, uid, gid);
        let mode = self.set_owner(file, set_owner)?;
        let mut failed = Vec::new();
        linux::for_each_xattr_of(source, |name, value| {
            if let Err(error) = linux::set_xattr(made, name, value) {
                failed.push(format!("{}: {error}", name.escape_ascii()));
            }
        })?;
        self.lost_xattrs(file, &failed);
        linux::set_mode(made, mode)?;
        let attributes = (stat.attributes & ATTRIBUTES) as u32;
        let settable = attributes & FileAttributes::SETTABLE;
        let path = || file.path.to_vec();
        if settable != 0
            && let Err(error) = linux::change_attributes(made, FileAttributes::SETTABLE, settable)
        {
            self.unrestored.add(Aspect::Attributes, path, &error);
        } else if settable != attributes {
            let reason = "it would hinder the extraction";
            self.unrestored.add(Aspect::Attributes, path, &reason);
        }
        Ok(linux::set_times(made, Some(stat.atime), stat.mtime)?)
    }

    /// The same for what cannot be opened.
    fn finish_special(&mut self, dir: &OwnedFd, name: &[u8], file: &HostFile<'_>) -> Result<()> {
        let stat = file.stat;
        let set_owner = |uid, gid| linux::set_owner_at(dir, name, uid, gid);
        let mode = self.set_owner(file, set_owner)?;
        let mut failed = Vec::new();
        linux::for_each_xattr(file.dir, file.name, |attribute, value| {
            if let Err(error) = linux::set_xattr_at(dir, name, attribute, value) {
                failed.push(format!("{}: {error}", attribute.escape_ascii()));
            }
        })?;
        self.lost_xattrs(file, &failed);
        if stat.mode & KIND != SYMLINK {
            linux::set_mode_at(dir, name, mode)?;
        }
        Ok(linux::set_times_at(
            dir,
            name,
            Some(stat.atime),
            stat.mtime,
        )?)
    }

    fn lost_xattrs(&mut self, file: &HostFile<'_>, reasons: &[String]) {
        for reason in reasons {
            self.unrestored
                .add(Aspect::Xattr, || file.path.to_vec(), reason);
        }
    }

    /// Sets the owner, and returns the mode that the file may have then.
    fn set_owner(
        &mut self,
        file: &HostFile<'_>,
        set: impl FnOnce(u32, u32) -> io::Result<()>,
    ) -> Result<u32> {
        let Stat { uid, gid, mode, .. } = *file.stat;
        let permissions = mode & 0o7777;
        let mut is_right = (uid, gid) == self.process_owner;
        if !is_right && self.owners {
            match set(uid, gid) {
                Ok(()) => is_right = true,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput
                    ) =>
                {
                    self.unrestored
                        .add(Aspect::Owner, || file.path.to_vec(), &error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        if is_right || mode & KIND == DIRECTORY || permissions & SET_ID == 0 {
            return Ok(permissions);
        }
        self.unrestored
            .add(Aspect::Mode, || file.path.to_vec(), &NO_SET_ID);
        Ok(permissions & !SET_ID)
    }
}
