//! The files of the subvolume that is being built, by path.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use linux::{OpenFlags, Stat};
use tree::{Error, Result};

use crate::apply::NewFile;
use crate::command::{self, device};

/// The kind of a file in its mode (`S_IFMT`), and some kinds (`S_IFDIR`, `S_IFREG`, `S_IFLNK`).
pub(super) const KIND: u32 = 0o170_000;
pub(super) const DIRECTORY: u32 = 0o040_000;
pub(super) const REGULAR: u32 = 0o100_000;
pub(super) const SYMLINK: u32 = 0o120_000;
const FIFO: u32 = 0o010_000;
const CHARACTER_DEVICE: u32 = 0o020_000;
const BLOCK_DEVICE: u32 = 0o060_000;
const SOCKET: u32 = 0o140_000;
/// Bits of the mode that are only given to a file of the right owner.
pub(super) const SET_ID: u32 = 0o6000;
pub(super) const NO_SET_ID: &str = "set-id bits are not given to a file of another owner";

/// Opens files beneath a directory, and keeps the last ones open: commands about one file follow
/// each other.
pub(super) struct OpenFiles {
    pub(super) root: Rc<OwnedFd>,
    dir: Option<(Vec<u8>, Rc<OwnedFd>)>,
    file: Option<LastFile>,
}

/// The file that was made or written last.
struct LastFile {
    path: Vec<u8>,
    file: Arc<File>,
    /// `None` if it was not needed yet.
    ino: Option<u64>,
}

impl OpenFiles {
    pub(super) fn new(root: OwnedFd) -> OpenFiles {
        OpenFiles {
            root: Rc::new(root),
            dir: None,
            file: None,
        }
    }

    /// The directory of a path, and the name in it: `.` for the root itself.
    pub(super) fn at<'p>(&mut self, path: &'p [u8]) -> Result<(Rc<OwnedFd>, &'p [u8])> {
        if path.is_empty() {
            return Ok((Rc::clone(&self.root), b"."));
        }
        let Some(slash) = path.iter().rposition(|&byte| byte == b'/') else {
            return Ok((Rc::clone(&self.root), path));
        };
        let (above, name) = (&path[..slash], &path[slash + 1..]);
        if let Some((open, dir)) = &self.dir
            && open == above
        {
            return Ok((Rc::clone(dir), name));
        }
        let flags = OpenFlags::PATH | OpenFlags::DIRECTORY;
        let dir = Rc::new(linux::open_beneath(&*self.root, above, flags, 0)?);
        self.dir = Some((above.to_vec(), Rc::clone(&dir)));
        Ok((dir, name))
    }

    /// A regular file beneath another directory, to read.
    pub(super) fn beneath(root: &OwnedFd, path: &[u8]) -> Result<File> {
        let slash = path.iter().rposition(|&byte| byte == b'/');
        let name = slash.map_or(path, |slash| &path[slash + 1..]);
        let above = &path[..slash.unwrap_or(0)];
        let flags = OpenFlags::PATH | OpenFlags::DIRECTORY;
        let dir = linux::open_beneath(root, above, flags, 0)?;
        open_regular(&dir, name, OpenFlags::RDONLY)
    }

    /// A regular file, to read and write, and its inode number. Reading does not change its access
    /// time.
    pub(super) fn file(&mut self, path: &[u8]) -> Result<(&Arc<File>, u64)> {
        let is_open = self.file.as_ref().is_some_and(|open| open.path == path);
        if !is_open {
            self.file = None;
            let (dir, name) = self.at(path)?;
            let flags = OpenFlags::RDWR | OpenFlags::NOATIME;
            let (file, stat) = open_regular_with_stat(&dir, name, flags)?;
            self.file = Some(LastFile {
                path: path.to_vec(),
                file: Arc::new(file),
                ino: Some(stat.ino),
            });
        }
        let open = self.file.as_mut().ok_or(Error::NotFound)?;
        let ino = match open.ino {
            Some(ino) => ino,
            None => *open.ino.insert(linux::stat(&open.file)?.ino),
        };
        Ok((&open.file, ino))
    }

    /// Makes a regular file that only the user can open. It stays open, since most files are
    /// written next.
    pub(super) fn make(&mut self, path: &[u8]) -> Result<()> {
        let (dir, name) = self.at(path)?;
        let flags = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::RDWR | OpenFlags::NOATIME;
        let file = linux::open_at(&*dir, name, flags, 0o600)?;
        self.file = Some(LastFile {
            path: path.to_vec(),
            file: Arc::new(file.into()),
            ino: None,
        });
        Ok(())
    }

    /// Keeps a file open that has another path now. Closes what was open by either path or below
    /// it.
    pub(super) fn renamed(&mut self, path: &[u8], path_to: &[u8]) {
        let moved = self.file.take_if(|open| open.path == path);
        self.forget(path);
        self.forget(path_to);
        if let Some(moved) = moved {
            self.file = Some(LastFile {
                path: path_to.to_vec(),
                ..moved
            });
        }
    }

    /// The file with this path, if it is open.
    pub(super) fn if_open(&self, path: &[u8]) -> Option<&File> {
        let open = self.file.as_ref()?;
        (open.path == path).then_some(&*open.file)
    }

    /// Closes what is open by this path or below it, which will mean something else.
    pub(super) fn forget(&mut self, path: &[u8]) {
        let is_in = |open: &[u8]| {
            open.strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        self.file.take_if(|open| is_in(&open.path));
        self.dir.take_if(|(open, _)| is_in(open));
    }

    /// Closes everything but the root.
    pub(super) fn close(&mut self) {
        (self.file, self.dir) = (None, None);
    }
}

/// Refuses a device that is none.
pub(super) fn check_kind(file: &NewFile<'_>) -> Result<()> {
    match *file {
        NewFile::Device { mode, .. }
            if !matches!(mode as u32 & KIND, CHARACTER_DEVICE | BLOCK_DEVICE) =>
        {
            Err(Error::InvalidInput("mknod of a file that is not a device"))
        }
        _ => Ok(()),
    }
}

/// Makes a file that only the user can open.
pub(super) fn make(dir: &OwnedFd, name: &[u8], file: &NewFile<'_>) -> io::Result<()> {
    let (kind, rdev) = match *file {
        NewFile::Regular => {
            let flags = OpenFlags::CREATE | OpenFlags::EXCL | OpenFlags::WRONLY;
            return linux::open_at(dir, name, flags, 0o600).map(drop);
        }
        NewFile::Directory => return linux::make_dir_at(dir, name, 0o700),
        NewFile::Symlink(target) => return linux::make_symlink_at(target, dir, name),
        NewFile::Fifo => (FIFO, 0),
        NewFile::Socket => (SOCKET, 0),
        NewFile::Device { mode, rdev } => (mode as u32 & KIND, rdev),
    };
    let device = device(rdev);
    linux::make_node_at(dir, name, kind | 0o600, (device.major, device.minor))
}

/// The owner that a command names.
pub(super) fn owner(uid: u64, gid: u64) -> Result<(u32, u32)> {
    command::owner(uid, gid).ok_or(Error::InvalidInput("owner above 2^32 - 2"))
}

/// Opens a regular file, and nothing else: opening a device or a fifo can have effects.
pub(super) fn open_regular(dir: &OwnedFd, name: &[u8], flags: OpenFlags) -> Result<File> {
    Ok(open_regular_with_stat(dir, name, flags)?.0)
}

/// The same, and its kind.
pub(super) fn open_regular_with_stat(
    dir: &OwnedFd,
    name: &[u8],
    flags: OpenFlags,
) -> Result<(File, Stat)> {
    let before = linux::stat_at(dir, name)?;
    if before.mode & KIND != REGULAR {
        return Err(Error::InvalidInput("not a regular file"));
    }
    let file = linux::open_at(dir, name, flags | OpenFlags::NONBLOCK, 0)?;
    let stat = linux::stat(&file)?;
    if !stat.is_same_file(&before) {
        return Err(Error::Changed);
    }
    Ok((File::from(file), stat))
}
