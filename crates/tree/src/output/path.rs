//! Where the path of an output leads.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use linux::{OpenFlags, Stat};

use crate::{Error, FileKind, Result};

/// Symbolic links followed at the end of one path (`MAXSYMLINKS` in Linux).
const SYMLINKS_MAX: u32 = 40;

/// Where the path of an output leads, past the symbolic links at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputPath {
    /// To an open file of this process, as `/dev/stdout`, `/dev/fd/3` and `>(program)` of a shell
    /// do: its number.
    Open(u16),
    /// To the file with this path, if there is one. It is no symbolic link, except in proc.
    Named(PathBuf),
}

impl OutputPath {
    /// Follows a path.
    ///
    /// # Errors
    /// A directory on the way cannot be opened; a link is of a stranger, in a directory for all,
    /// which could replace any file of the one who follows it: what Linux refuses to open with
    /// `fs.protected_symlinks`.
    pub fn of(path: &Path) -> Result<OutputPath> {
        let descriptors = linux::open_dir(Path::new("/proc/self/fd"));
        let descriptors = descriptors.and_then(|dir| Ok((linux::stat(&dir)?, dir)));
        let mut path = path.to_owned();
        for _ in 0..=SYMLINKS_MAX {
            let Some((parent, name)) = linux::split_path(&path) else {
                return Ok(OutputPath::Named(path));
            };
            let dir = linux::open_dir(parent)?;
            let dir_stat = linux::stat(&dir)?;
            if let Ok((descriptors, _)) = &descriptors
                && descriptors.is_same_file(&dir_stat)
                && let Some(number) = str::from_utf8(name).ok().and_then(|it| it.parse().ok())
            {
                return Ok(OutputPath::Open(number));
            }
            let Ok(there) = linux::open_at(&dir, name, OpenFlags::PATH, 0) else {
                return Ok(OutputPath::Named(path));
            };
            let stat = linux::stat(&there)?;
            let is_link = FileKind::from_mode(stat.mode) == Some(FileKind::Symlink);
            // A link of proc leads to a file, whatever its words are.
            if !is_link || linux::is_kernel_view(&dir)? {
                return Ok(OutputPath::Named(path));
            }
            if is_of_stranger(&stat, &dir_stat) {
                return Err(Error::InvalidInput(
                    "a symbolic link of another user, in a directory that all users can write to, is not followed",
                ));
            }
            let target = linux::read_link_at(&there, b"")?;
            path = parent.join(OsStr::from_bytes(&target));
        }
        Err(Error::InvalidInput("too many symbolic links"))
    }
}

/// Whether a file belongs neither to this user nor to the owner of its directory, which all users
/// can write to.
pub(super) fn is_of_stranger(file: &Stat, dir: &Stat) -> bool {
    /// `S_ISVTX | S_IWOTH`.
    const FOR_ALL: u32 = 0o1002;
    let user = linux::process_owner().0;
    dir.mode & FOR_ALL == FOR_ALL && file.uid != user && file.uid != dir.uid
}
