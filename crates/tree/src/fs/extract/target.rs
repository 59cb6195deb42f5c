//! The target directory, which appears complete or not at all.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use linux::OpenFlags;

use crate::output::temporary::Temporary;
use crate::{Error, Result};

/// `STATX_ATTR_MOUNT_ROOT` of linux/stat.h.
const ATTRIBUTE_MOUNT_ROOT: u64 = 0x2000;

/// A directory under construction.
#[derive(Debug)]
pub(super) struct Target {
    dir: OwnedFd,
    temporary: Temporary,
    place: Place,
    umask: Option<u32>,
}

/// Where the directory goes once it is complete.
#[derive(Debug)]
enum Place {
    /// It gets a name in the same parent directory.
    Beside {
        parent: Arc<OwnedFd>,
        name: Box<[u8]>,
        there: There,
    },
    /// Its contents move up into the directory that holds it.
    Inside(Arc<OwnedFd>),
}

/// What has the final name at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    Nothing,
    EmptyDir,
    Other,
}

impl Target {
    /// Creates an empty directory under a temporary name, which only this user can enter.
    pub(super) fn begin(to: &Path, overwrite: bool) -> Result<Target> {
        let already = || Error::Io(io::ErrorKind::AlreadyExists.into());
        let mut there = There::Nothing;
        let mut to = to.to_owned();
        match std::fs::metadata(&to) {
            Ok(metadata) if metadata.is_dir() => {
                // A link to a directory counts as that directory, and `.` has a name too.
                to = std::fs::canonicalize(&to)?;
                let dir = linux::open_dir(&to)?;
                there = if is_empty(&dir)? {
                    There::EmptyDir
                } else {
                    There::Other
                };
                if there == There::Other && !overwrite {
                    return Err(already());
                }
                if is_in_use(&dir, &to)? {
                    if there == There::Other {
                        return Err(Error::InvalidInput(
                            "a mount point or the working directory must be empty, because it cannot be replaced",
                        ));
                    }
                    let dir = Arc::new(dir);
                    return Self::make(&dir, b"", Place::Inside(Arc::clone(&dir)));
                }
            }
            _ => {
                if std::fs::symlink_metadata(&to).is_ok() {
                    if !overwrite {
                        return Err(already());
                    }
                    there = There::Other;
                }
            }
        }
        let no_name = Error::InvalidInput("the target has no name");
        let (parent, name) = linux::split_path(&to).ok_or(no_name)?;
        let parent = Arc::new(linux::open_dir(parent)?);
        let place = Place::Beside {
            parent: Arc::clone(&parent),
            name: name.into(),
            there,
        };
        Self::make(&parent, name, place)
    }

    fn make(parent: &Arc<OwnedFd>, name: &[u8], place: Place) -> Result<Target> {
        let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
        let (temporary, dir) = Temporary::create(parent, name, |parent, name| {
            linux::make_dir_at(parent, name, 0o777)?;
            let opened = linux::open_at(parent, name, flags, 0);
            if opened.is_err() {
                linux::remove_tree_at(parent, name)?;
            }
            opened
        })?;
        // The new directory can inherit a default access control list and the set-group-ID bit; they must not affect
        // the files created in it.
        let mode = linux::stat(&dir)?.mode;
        let (uid, gid) = linux::process_owner();
        linux::set_owner(&dir, uid, gid)?;
        let has_acl = linux::remove_xattr(&dir, b"system.posix_acl_default")?
            | linux::remove_xattr(&dir, b"system.posix_acl_access")?;
        linux::set_mode(&dir, 0o700)?;
        Ok(Target {
            dir,
            temporary,
            place,
            umask: (!has_acl).then_some(!mode & 0o777),
        })
    }

    /// The directory to fill.
    pub(super) fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// The umask of this process; `None` if it is unknown.
    pub(super) fn umask(&self) -> Option<u32> {
        self.umask
    }

    /// Moves the directory to its place. Returns the existing directory that received the contents, if any: its owner,
    /// mode and times are still to be set.
    pub(super) fn commit(self, sync: bool) -> Result<Option<OwnedFd>> {
        if sync {
            linux::sync_file_system(&self.dir)?;
        }
        match self.place {
            Place::Beside {
                parent,
                name,
                there,
            } => {
                let rename = |from: &[u8]| match there {
                    There::Nothing => rename_new(&parent, from, &name),
                    There::EmptyDir => linux::rename_at(&parent, from, &parent, &name),
                    There::Other => linux::exchange_at(&parent, from, &parent, &name),
                };
                if there == There::Other {
                    self.temporary.exchange(rename)?;
                } else {
                    self.temporary.finish(rename)?;
                }
                if sync {
                    linux::sync(&parent)?;
                }
                Ok(None)
            }
            Place::Inside(above) => {
                linux::set_mode(&self.dir, 0o700)?;
                self.temporary.finish(|from| {
                    let mut names: Vec<Box<[u8]>> = Vec::new();
                    let again = linux::open_at(
                        &self.dir,
                        b".",
                        OpenFlags::RDONLY | OpenFlags::DIRECTORY,
                        0,
                    )?;
                    linux::for_each_name(&again, |name| {
                        names.push(name.to_bytes().into());
                        Ok::<_, io::Error>(())
                    })?;
                    for name in names {
                        linux::rename_new_at(&self.dir, &name, &above, &name)?;
                    }
                    linux::remove_tree_at(&above, from)
                })?;
                if sync {
                    linux::sync(&above)?;
                }
                Ok(Some(above.as_fd().try_clone_to_owned()?))
            }
        }
    }
}

fn rename_new(parent: &OwnedFd, from: &[u8], to: &[u8]) -> io::Result<()> {
    match linux::rename_new_at(parent, from, parent, to) {
        // The file system lacks RENAME_NOREPLACE. At worst, a plain rename of a directory replaces an empty one.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            linux::rename_at(parent, from, parent, to)
        }
        renamed => renamed,
    }
}

fn is_empty(dir: &OwnedFd) -> Result<bool> {
    let mut empty = true;
    linux::for_each_name(dir, |_| {
        empty = false;
        Ok::<_, Error>(())
    })?;
    Ok(empty)
}

/// Whether a directory cannot be replaced by a rename: a mount point, or the working directory of this process, which
/// most likely is also that of the shell that started it.
fn is_in_use(dir: &OwnedFd, path: &Path) -> Result<bool> {
    let stat = linux::stat(dir)?;
    let Some((parent, _)) = linux::split_path(path) else {
        return Ok(true); // the root
    };
    let parent = linux::stat(linux::open_dir(parent)?)?;
    let working = linux::open_dir(Path::new(".")).and_then(linux::stat);
    Ok(stat.attributes & ATTRIBUTE_MOUNT_ROOT != 0
        || stat.dev != parent.dev
        || working.is_ok_and(|working| working.is_same_file(&stat)))
}
