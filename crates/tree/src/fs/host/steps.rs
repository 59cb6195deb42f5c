//! A walk through a host directory in memory for one directory at each level.

use std::os::fd::OwnedFd;

use linux::{OpenFlags, Stat};

use crate::{Error, Limits, Result};

/// The most directories that are held open.
const OPEN_MAX: usize = 32;

/// A step of a walk through a host directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostStep {
    /// A directory, before its files.
    Enter,
    /// A file other than a directory.
    File,
    /// A directory, after its files.
    Leave,
}

/// A file that a walk through a host directory is at.
#[derive(Debug)]
pub struct HostFile<'a> {
    /// The directory that it is in.
    pub dir: &'a OwnedFd,
    /// Its name there; `.` for the root, which is in itself.
    pub name: &'a [u8],
    /// Its path from the root.
    pub path: &'a [u8],
    /// As it was when the walk first came to it.
    pub stat: &'a Stat,
}

/// A directory whose names are being visited.
struct Level {
    /// `None` while too many others are open.
    dir: Option<OwnedFd>,
    stat: Stat,
    path_len: usize,
    names: Vec<u8>,
    /// Where in `names` each of them begins and ends, the last one first.
    left: Vec<(u32, u32)>,
}

impl Level {
    fn new(dir: OwnedFd, stat: Stat, path_len: usize) -> Result<Level> {
        let (mut names, mut left) = (Vec::new(), Vec::new());
        linux::for_each_name(&dir, |name| {
            let start = names.len();
            names.extend_from_slice(name.to_bytes());
            let place = |at| u32::try_from(at).map_err(|_| Error::Limit("names of a directory"));
            left.push((place(start)?, place(names.len())?));
            Ok::<_, Error>(())
        })?;
        let name = |&(start, end): &(u32, u32)| &names[start as usize..end as usize];
        left.sort_unstable_by(|a, b| name(b).cmp(name(a)));
        Ok(Level {
            dir: Some(dir),
            stat,
            path_len,
            names,
            left,
        })
    }
}

/// Visits all files below an open directory, and itself, depth first, names sorted by their bytes.
/// Symbolic links are not followed.
///
/// # Errors
/// The error of `each`, or of the kernel; [`Error::Limit`] for directories that are nested too
/// deeply.
pub fn walk_host_dir(
    root: &OwnedFd,
    each: &mut dyn FnMut(HostStep, &HostFile<'_>) -> Result<()>,
) -> Result<()> {
    let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
    let stat = linux::stat(root)?;
    let mut path = Vec::new();
    let mut visit = |step, dir: &OwnedFd, path: &[u8], stat: &Stat| {
        let name = match path.iter().rposition(|&byte| byte == b'/') {
            Some(slash) => &path[slash + 1..],
            None if path.is_empty() => b".",
            None => path,
        };
        let file = HostFile {
            dir,
            name,
            path,
            stat,
        };
        each(step, &file)
    };
    visit(HostStep::Enter, root, &path, &stat)?;
    let opened = linux::open_at(root, b".", flags, 0)?;
    let mut levels = vec![Level::new(opened, stat, 0)?];
    while let Some(level) = levels.last_mut() {
        path.truncate(level.path_len);
        if level.dir.is_none() {
            level.dir = Some(linux::open_beneath(root, &path, flags, 0)?);
        }
        let (Some(dir), next) = (&level.dir, level.left.pop()) else {
            continue; // It was opened.
        };
        let Some((start, end)) = next else {
            let Some(Level { stat, .. }) = levels.pop() else {
                break;
            };
            let above = levels.last().map(|above| (&above.dir, above.path_len));
            match above {
                None => visit(HostStep::Leave, root, &path, &stat)?,
                Some((Some(dir), _)) => visit(HostStep::Leave, dir, &path, &stat)?,
                Some((None, len)) => {
                    let dir = linux::open_beneath(root, &path[..len], flags, 0)?;
                    visit(HostStep::Leave, &dir, &path, &stat)?;
                }
            }
            continue;
        };
        let name = &level.names[start as usize..end as usize];
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        let in_path = |error: std::io::Error| Error::from(error).in_file("read", &path);
        let stat = linux::stat_at(dir, name).map_err(in_path)?;
        if !stat.is_dir() {
            visit(HostStep::File, dir, &path, &stat)?;
            continue;
        }
        visit(HostStep::Enter, dir, &path, &stat)?;
        let opened = linux::open_at(dir, name, flags, 0).map_err(in_path)?;
        if levels.len() > Limits::default().depth_max as usize {
            return Err(Error::Limit("directories are nested too deeply"));
        }
        levels.push(Level::new(opened, stat, path.len())?);
        if let Some(far) = levels.len().checked_sub(OPEN_MAX + 1) {
            levels[far].dir = None;
        }
    }
    Ok(())
}
