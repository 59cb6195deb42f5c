//! The target directory: it appears complete or not at all, or its new files appear one by one,
//! each complete.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use linux::OpenFlags;

use super::options::{Conflict, Existing};
use crate::output::temporary::{Temporary, aside, moved_aside};
use crate::{Error, Result};

/// `STATX_ATTR_MOUNT_ROOT` of linux/stat.h.
pub(super) const ATTRIBUTE_MOUNT_ROOT: u64 = 0x2000;

/// Maximum number of directories above the working directory.
const LEVELS_MAX: u32 = 1 << 16;

/// A directory under construction.
#[derive(Debug)]
pub(super) struct ExtractTarget {
    dir: OwnedFd,
    temporary: Temporary,
    place: TargetSite,
    umask: Option<u32>,
}

/// Where the directory goes once it is complete.
#[derive(Debug)]
enum TargetSite {
    /// It gets a name in the same parent directory.
    Beside {
        parent: Arc<OwnedFd>,
        name: Box<[u8]>,
        there: There,
    },
    /// Its contents move up into the directory that holds it, which is empty unless there is a
    /// `Conflict`.
    Inside(Arc<OwnedFd>, Option<Conflict>),
}

/// What has the final name at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    Nothing,
    EmptyDir,
    Other,
}

impl ExtractTarget {
    /// Creates an empty directory under a temporary name, which only this user can enter.
    pub(super) fn begin(to: &Path, existing: Existing) -> Result<ExtractTarget> {
        let already = Error::Io(io::ErrorKind::AlreadyExists.into());
        take_back(
            &std::fs::canonicalize(to).unwrap_or_else(|_| to.to_owned()),
            existing == Existing::ReplaceDirectory,
        )?;
        let mut there = There::Nothing;
        let mut to = to.to_owned();
        match std::fs::metadata(&to) {
            Ok(metadata) if metadata.is_dir() => {
                // A link to a directory counts as that directory, and `.` has a name too.
                to = std::fs::canonicalize(&to)?;
                let dir = linux::open_dir(&to)?;
                if let Existing::Merge(conflict) | Existing::MergeThroughLinks(conflict) = existing
                {
                    return Self::inside(dir, Some(conflict));
                }
                if is_empty(&dir)? {
                    there = There::EmptyDir;
                    if is_in_use(&dir, &to)? {
                        return Self::inside(dir, None);
                    }
                } else if existing == Existing::ReplaceDirectory {
                    there = There::Other;
                    refuse_what_must_stay(&dir, &to)?;
                } else {
                    return Err(already);
                }
            }
            _ => {
                if let Ok(metadata) = std::fs::symlink_metadata(&to) {
                    match existing {
                        Existing::Refuse => return Err(already),
                        Existing::ReplaceFile if metadata.is_file() || metadata.is_symlink() => {
                            there = There::Other;
                        }
                        // Nor does a tree take the place of a device.
                        _ => return Err(Error::NotADirectory),
                    }
                }
            }
        }
        let no_name = Error::InvalidInput("the target has no name");
        let (parent, name) = linux::split_path(&to).ok_or(no_name)?;
        let parent = Arc::new(linux::open_dir(parent)?);
        let place = TargetSite::Beside {
            parent: Arc::clone(&parent),
            name: name.into(),
            there,
        };
        Self::make(&parent, name, place)
    }

    fn inside(dir: OwnedFd, conflict: Option<Conflict>) -> Result<ExtractTarget> {
        let dir = Arc::new(dir);
        Self::make(&dir, b"", TargetSite::Inside(Arc::clone(&dir), conflict))
    }

    fn make(parent: &Arc<OwnedFd>, name: &[u8], place: TargetSite) -> Result<ExtractTarget> {
        let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
        let (temporary, dir) = Temporary::create(parent, name, |parent, name| {
            linux::make_dir_at(parent, name, 0o777)?;
            let opened = linux::open_at(parent, name, flags, 0);
            if opened.is_err() {
                linux::remove_tree_at(parent, name)?;
            }
            opened
        })?;
        // The new directory can inherit a default access control list and the set-group-ID bit;
        // they must not affect the files created in it.
        let mode = linux::stat(&dir)?.mode;
        let (uid, gid) = linux::process_owner();
        linux::set_owner(&dir, uid, gid)?;
        let has_acl = linux::remove_xattr(&dir, b"system.posix_acl_default")?
            | linux::remove_xattr(&dir, b"system.posix_acl_access")?;
        linux::set_mode(&dir, 0o700)?;
        Ok(ExtractTarget {
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

    /// The directory into which the contents move up at the end, and what to do where a name is
    /// taken; `None` if this directory gets a name of its own. If nothing is said about taken
    /// names, the directory is empty and becomes the root of the tree.
    pub(super) fn inside_of(&self) -> Option<(&Arc<OwnedFd>, Option<Conflict>)> {
        match &self.place {
            TargetSite::Beside { .. } => None,
            TargetSite::Inside(dir, conflict) => Some((dir, *conflict)),
        }
    }

    /// Waits until everything written so far is on the medium.
    pub(super) fn sync(&self) -> Result<()> {
        Ok(linux::sync_file_system(&self.dir)?)
    }

    /// Gives the directory its name; or removes it, if its contents have moved up, and then calls
    /// `finish` for the directory that they moved into, if that was empty or `updates`: the removal
    /// changes its times. Returns the number of names that were deleted with a directory that was
    /// replaced, not counting its own.
    pub(super) fn commit(
        self,
        sync: bool,
        updates: bool,
        finish: impl FnOnce(&OwnedFd) -> Result<()>,
    ) -> Result<u64> {
        match self.place {
            TargetSite::Beside {
                parent,
                name,
                there,
            } => {
                let rename = |from: &[u8]| match there {
                    There::Nothing => rename_new(&parent, from, &name),
                    There::EmptyDir => linux::rename_at(&parent, from, &parent, &name),
                    There::Other => exchange(&parent, from, &name),
                };
                let mut removed = 0;
                if there == There::Other {
                    removed = self.temporary.exchange(rename)?.saturating_sub(1);
                } else {
                    self.temporary.finish(rename)?;
                }
                if sync {
                    linux::sync(&parent)?;
                }
                Ok(removed)
            }
            TargetSite::Inside(above, conflict) => {
                self.temporary
                    .finish(|from| linux::remove_tree_at(&above, from))?;
                if conflict.is_none() || updates {
                    finish(&above)?;
                }
                if sync {
                    linux::sync_file_system(&above)?;
                }
                Ok(0)
            }
        }
    }
}

fn rename_new(parent: &OwnedFd, from: &[u8], to: &[u8]) -> io::Result<()> {
    match linux::rename_new_at(parent, from, parent, to) {
        // The file system lacks RENAME_NOREPLACE. At worst, a plain rename of a directory replaces
        // an empty one.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            linux::rename_at(parent, from, parent, to)
        }
        renamed => renamed,
    }
}

/// Swaps two names.
fn exchange(parent: &OwnedFd, from: &[u8], to: &[u8]) -> io::Result<()> {
    let exchanged = linux::exchange_at(parent, from, parent, to);
    let aside = aside(from);
    match exchanged.as_ref().map_err(io::Error::kind) {
        // The file system lacks RENAME_EXCHANGE.
        Err(io::ErrorKind::InvalidInput) => {
            linux::rename_at(parent, to, parent, &aside)?;
            if let Err(error) = linux::rename_at(parent, from, parent, to) {
                linux::rename_at(parent, &aside, parent, to)?;
                return Err(error);
            }
            linux::rename_at(parent, &aside, parent, from)
        }
        // Overlayfs does not rename a directory of its lower layers, but lets others take its place
        // when it is empty.
        Err(io::ErrorKind::CrossesDevices) => {
            linux::make_dir_at(parent, &aside, 0o700)?;
            let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
            let open = |name| linux::open_at(parent, name, flags, 0);
            let (old, kept) = (open(to)?, open(&aside)?);
            let replaced = move_entries(&old, &kept)
                .and_then(|()| remove_emptied(&old))
                .and_then(|()| linux::rename_at(parent, from, parent, to));
            if let Err(error) = replaced {
                move_entries(&kept, &old)?;
                linux::remove_tree_at(parent, &aside)?;
                return Err(error);
            }
            linux::rename_at(parent, &aside, parent, from)
        }
        _ => exchanged,
    }
}

/// Undoes replacements of `to` in which processes were killed. A finished one whose old directory
/// is still there is an error if `to` is replaced again: only the user can tell what that holds.
fn take_back(to: &Path, is_replaced: bool) -> Result<()> {
    let Some((parent, name)) = linux::split_path(to) else {
        return Ok(());
    };
    // This error comes up again.
    let Ok(parent) = linux::open_dir(parent) else {
        return Ok(());
    };
    let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY | OpenFlags::NOFOLLOW;
    for old in moved_aside(&parent, name) {
        let Some(replacement) = old.replacement else {
            if !is_replaced {
                continue;
            }
            let words = format!(
                "an interrupted replacement left the old directory as {}: delete or rename it first",
                old.name.escape_ascii()
            );
            return Err(io::Error::other(words).into());
        };
        match linux::open_at(&parent, name, flags, 0) {
            Ok(dir) => {
                move_entries(&old.dir, &dir)?;
                remove_emptied(&old.dir)?;
                linux::remove_dir_at(&parent, &old.name)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                rename_new(&parent, &old.name, name)?;
            }
            Err(error) => return Err(error.into()),
        }
        // As for other leftovers, it stays if it cannot be removed.
        let _ = linux::remove_tree_at(&parent, &replacement);
    }
    Ok(())
}

/// Moves what a directory holds into another one, and replaces no file there. Directories that
/// cannot be renamed stay, empty, and new ones take what they held.
fn move_entries(from: &OwnedFd, to: &OwnedFd) -> io::Result<()> {
    let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
    for name in names(from)? {
        match linux::rename_new_at(from, &name, to, &name) {
            Ok(()) => continue,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::CrossesDevices | io::ErrorKind::AlreadyExists
                ) => {}
            Err(error) => return Err(error),
        }
        let stat = linux::stat_at(from, &name)?;
        let made = linux::make_dir_at(to, &name, 0o700);
        // Otherwise it was emptied before, as far as it went, and is filled again.
        let is_new = made.is_ok();
        made.or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        })?;
        let open = |dir| linux::open_at(dir, &name, flags, 0);
        move_entries(&open(from)?, &open(to)?)?;
        if is_new {
            linux::set_owner_at(to, &name, stat.uid, stat.gid)?;
            linux::set_mode_at(to, &name, stat.mode & 0o7777)?;
            linux::set_times_at(to, &name, Some(stat.atime), stat.mtime)?;
        }
    }
    Ok(())
}

/// Removes the directories in a directory, all of which hold nothing but directories.
fn remove_emptied(dir: &OwnedFd) -> io::Result<()> {
    let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
    for name in names(dir)? {
        remove_emptied(&linux::open_at(dir, &name, flags, 0)?)?;
        linux::remove_dir_at(dir, &name)?;
    }
    Ok(())
}

fn names(dir: &OwnedFd) -> io::Result<Vec<Box<[u8]>>> {
    let mut names = Vec::new();
    // A descriptor remembers how far it was read.
    let dir = linux::open_at(dir, b".", OpenFlags::RDONLY | OpenFlags::DIRECTORY, 0)?;
    linux::for_each_name(&dir, |name| {
        names.push(name.to_bytes().into());
        Ok::<_, io::Error>(())
    })?;
    Ok(names)
}

fn is_empty(dir: &OwnedFd) -> Result<bool> {
    let mut empty = true;
    linux::for_each_name(dir, |_| {
        empty = false;
        Ok::<_, Error>(())
    })?;
    Ok(empty)
}

/// Whether a directory cannot be replaced by a rename: a mount point, or the working directory of
/// this process, which most likely is also that of the shell that started it.
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

/// Refuses to replace, and so to delete, a directory that others depend on: the root, one that is a
/// mount point or has one below it (what is mounted there would be deleted too), and one that the
/// working directory is in.
fn refuse_what_must_stay(dir: &OwnedFd, path: &Path) -> Result<()> {
    let refuse = |why| Err(Error::InvalidInput(why));
    if linux::split_path(path).is_none() {
        return refuse("the root directory cannot be replaced");
    }
    let at = path.as_os_str().as_encoded_bytes();
    let is_there = |mounted: &Vec<u8>| {
        let below = mounted.strip_prefix(at);
        below.is_some_and(|below| below.is_empty() || below.starts_with(b"/"))
    };
    let parent = linux::split_path(path).map(|(parent, _)| linux::open_dir(parent));
    let (stat, parent) = (linux::stat(dir)?, parent.transpose()?);
    let is_mount = stat.attributes & ATTRIBUTE_MOUNT_ROOT != 0;
    if is_mount || linux::mount_points()?.iter().any(is_there) {
        return refuse("a directory with a mount point at or below it cannot be replaced");
    }
    // Devices differ at the root of a btrfs subvolume, too, which cannot be exchanged with a
    // directory elsewhere.
    if let Some(parent) = parent
        && linux::stat(parent)?.dev != stat.dev
    {
        return refuse("the root of another file system or subvolume cannot be replaced");
    }
    let flags = OpenFlags::PATH | OpenFlags::DIRECTORY;
    let mut working = linux::open_dir(Path::new("."))?;
    for _ in 0..LEVELS_MAX {
        let here = linux::stat(&working)?;
        if here.is_same_file(&stat) {
            return refuse("the working directory is in it, so it cannot be replaced");
        }
        let above = linux::open_at(&working, b"..", flags, 0)?;
        if linux::stat(&above)?.is_same_file(&here) {
            return Ok(());
        }
        working = above;
    }
    refuse("the working directory is too deep to tell whether it is in it")
}
