//! Removing names and whole trees.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, AtFlags, Mode};
use rustix::io::Errno;

use crate::open::{OpenFlags, open_at};
use crate::path::proc_path;
use crate::read::for_each_name;
use crate::rename::rename_new_at;
use crate::set::{set_mode, set_mode_at};

/// Maximum number of directories that [`remove_tree_at`] holds open at once.
const REMOVE_LEVELS_MAX: u32 = 32;

/// Removes a name of anything but a directory.
///
/// # Errors
/// The kernel's error.
pub fn unlink_at(dir: impl AsFd, name: &[u8]) -> io::Result<()> {
    Ok(fs::unlinkat(dir, name, AtFlags::empty())?)
}

/// Removes an empty directory.
///
/// # Errors
/// The kernel's error.
pub fn remove_dir_at(dir: impl AsFd, name: &[u8]) -> io::Result<()> {
    Ok(fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?)
}

/// Removes a name and, if it is a directory, everything below it, without following symbolic links.
/// Directories that deny access to their owner are made accessible first. The tree can have any
/// depth: only a few descriptors are open at once. Returns the number of names removed, including
/// this one.
///
/// # Errors
/// The first error that the kernel reports; files removed before it stay removed.
pub fn remove_tree_at(dir: impl AsFd, name: &[u8]) -> io::Result<u64> {
    let dir = dir.as_fd();
    if remove_flat(dir, name, false)? {
        return Ok(1);
    }
    let top = open_to_remove(dir, name)?;
    // Directories that lie too deep are moved up into the top, which then has to be emptied again.
    let mut removal = Removal::default();
    loop {
        let moved_before = removal.moved;
        removal.contents(&top, top.as_fd(), 1)?;
        if removal.moved == moved_before {
            fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?;
            return Ok(removal.removed + 1);
        }
    }
}

/// The progress of a removal.
#[derive(Default)]
struct Removal {
    /// Names removed.
    removed: u64,
    /// Directories moved up into the top.
    moved: u64,
}

impl Removal {
    fn contents(&mut self, top: &OwnedFd, dir: BorrowedFd<'_>, level: u32) -> io::Result<()> {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        // A second descriptor, because reading moves the position in the directory.
        let listing = open_at(dir, b".", OpenFlags::RDONLY | OpenFlags::DIRECTORY, 0)?;
        for_each_name(&listing, |name| {
            names.push(name.to_bytes().into());
            Ok::<_, io::Error>(())
        })?;
        drop(listing);
        for name in names {
            if remove_flat(dir, &name, true)? {
                self.removed += 1;
                continue;
            }
            if level == REMOVE_LEVELS_MAX {
                loop {
                    self.moved += 1;
                    let up = format!(".restow-removed-{}", self.moved);
                    match rename_new_at(dir, &name, top, up.as_bytes()) {
                        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                        renamed => break renamed?,
                    }
                }
                continue;
            }
            let child = open_to_remove(dir, &name)?;
            let moved_before = self.moved;
            self.contents(top, child.as_fd(), level + 1)?;
            match fs::unlinkat(dir, &*name, AtFlags::REMOVEDIR) {
                Ok(()) => self.removed += 1,
                // What was moved up is in this directory, which is the top.
                Err(Errno::NOTEMPTY) if moved_before != self.moved => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Removes anything but a directory, or an empty directory. Returns false for a directory that must
/// be emptied first. `is_removed` says that `dir` is removed, too: its mode may change.
fn remove_flat(dir: BorrowedFd<'_>, name: &[u8], is_removed: bool) -> io::Result<bool> {
    match fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) => return Ok(true),
        Err(Errno::ACCESS) if is_removed => {
            // The directory may be read-only even for its owner.
            set_mode_of_dir(dir)?;
            if fs::unlinkat(dir, name, AtFlags::empty()).is_ok() {
                return Ok(true);
            }
        }
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    match fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) => Ok(true),
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn set_mode_of_dir(dir: BorrowedFd<'_>) -> io::Result<()> {
    let proc = proc_path(dir);
    let mode = Mode::from_raw_mode(0o700);
    Ok(fs::chmodat(
        fs::CWD,
        proc.as_slice(),
        mode,
        AtFlags::empty(),
    )?)
}

fn open_to_remove(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
    let opened = open_at(dir, name, flags, 0);
    let child = match opened {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            set_mode_at(dir, name, 0o700)?;
            return open_at(dir, name, flags, 0);
        }
        opened => opened?,
    };
    // It is readable, but perhaps neither searchable nor writable.
    if !rustix::process::geteuid().is_root() {
        set_mode(&child, 0o700)?;
    }
    Ok(child)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make::{make_dir_at, make_node_at};
    use crate::open::open_dir;
    use std::fs as std_fs;
    use std::os::unix::fs::symlink;
    use testkit::TempDir;

    #[test]
    fn trees_are_removed_at_any_depth_and_links_are_not_followed() {
        let dir = TempDir::new();
        std_fs::create_dir(dir.join("keep")).unwrap();
        std_fs::write(dir.join("keep/file"), "x").unwrap();
        std_fs::create_dir(dir.join("go")).unwrap();
        symlink("../keep", dir.join("go/link")).unwrap();
        symlink("../keep/file", dir.join("go/to-file")).unwrap();
        let root = open_dir(dir.path()).unwrap();
        let mut at = open_at(&root, b"go", OpenFlags::RDONLY, 0).unwrap();
        for level in 0..300 {
            for name in [&b"left"[..], b"right"] {
                make_dir_at(&at, name, 0o700).unwrap();
            }
            make_node_at(&at, b"fifo", 0o010_000, (0, 0)).unwrap();
            let name = if level % 2 == 0 {
                &b"left"[..]
            } else {
                b"right"
            };
            at = open_at(&at, name, OpenFlags::RDONLY, 0).unwrap();
        }
        let removed = remove_tree_at(&root, b"go").unwrap();
        assert_eq!(removed, 1 + 2 + 3 * 300);
        assert!(!dir.join("go").exists());
        assert!(dir.join("keep/file").exists());
        let error = remove_tree_at(&root, b"go").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
