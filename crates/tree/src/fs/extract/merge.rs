//! Puts a tree into a directory that already holds files.
//!
//! First [`Selection::of`] compares the tree with the directory and selects what is to be written.
//! The rest of the extraction writes that into a temporary directory inside the target. Then
//! [`move_up`] renames each file to its final name, so that a name shows the whole old file or the
//! whole new one, and each missing directory with all that is in it. Both open the target's
//! directories one by one from the top and follow no symbolic link, or on demand only within the
//! target, so nothing is written outside it even if others change it meanwhile.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;

use linux::{OpenFlags, Stat};

use super::file::{Maker, times};
use super::options::Conflict;
use super::outcome::Refused;
use super::target::ATTRIBUTE_MOUNT_ROOT;
use crate::fs::{EntryId, FileId, FileKind, Inventory, WalkStep};
use crate::{Error, Result, temporary};

/// Maximum number of open directories on the path to the current one.
pub(super) const OPEN_LEVELS_MAX: usize = 32;

const PATH_ONLY: OpenFlags = OpenFlags::PATH.union(OpenFlags::DIRECTORY);

/// Which names of a tree are written into a directory.
#[derive(Debug, Default)]
pub(super) struct Selection {
    /// The names that are left out, each with everything below it.
    left_out: HashSet<EntryId>,
    pub(super) kept: u64,
    pub(super) refused: Vec<Refused>,
}

impl Selection {
    /// Compares a tree with the directory `into`. With `follows`, links to directories in it count
    /// as these directories.
    pub(super) fn of(
        inventory: &Inventory,
        into: &OwnedFd,
        conflict: Conflict,
        follows: bool,
    ) -> Result<Self> {
        let mut selection = Selection::default();
        let mut way = OpenPath::new(inventory, into, follows);
        for step in inventory.steps() {
            let entry = match step {
                WalkStep::Enter(entry) | WalkStep::File(entry) => entry,
                WalkStep::Leave(_) => {
                    way.leave();
                    continue;
                }
            };
            let is_dir = matches!(step, WalkStep::Enter(_));
            if entry == inventory.root() {
                way.enter_root()?;
            } else if way.current()?.is_some() {
                let found = match way.stat(entry, is_dir) {
                    Ok(stat) => Some(stat),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                    Err(error) => {
                        return Err(Error::from(error).in_file("read", &inventory.path(entry)));
                    }
                };
                let there = found.filter(|found| found.is_dir() && is_dir);
                if let Some(reason) = found.as_ref().and_then(|found| clash(is_dir, found)) {
                    selection.refuse(inventory, entry, reason);
                } else if let Some(there) = there {
                    match way.open(entry, &there) {
                        Ok(dir) => {
                            way.enter(entry, dir);
                            continue;
                        }
                        Err(reason) => selection.refuse(inventory, entry, &reason),
                    }
                } else if found.is_some_and(|found| stays(inventory, entry, &found, conflict)) {
                    selection.kept += 1;
                    selection.left_out.insert(entry);
                }
                if is_dir {
                    way.skip();
                }
            } else if is_dir {
                way.skip();
            }
        }
        Ok(selection)
    }

    /// The part of the tree that is written; `None` if that is all of it.
    pub(super) fn inventory<'t>(&self, whole: &Inventory<'t>) -> Option<Inventory<'t>> {
        let is_left_out = |entry| self.left_out.contains(&entry);
        (!self.left_out.is_empty()).then(|| whole.without(is_left_out))
    }

    fn refuse(&mut self, inventory: &Inventory, entry: EntryId, reason: &str) {
        self.left_out.insert(entry);
        self.refused.push(Refused {
            path: inventory.path(entry).into(),
            reason: reason.into(),
        });
    }
}

/// Why a file cannot replace the existing one, as far as the types show.
fn clash(is_dir: bool, there: &Stat) -> Option<&'static str> {
    match (is_dir, there.is_dir()) {
        (true, false) if FileKind::from_mode(there.mode) == Some(FileKind::Symlink) => {
            Some("a symbolic link is there, and a directory does not replace it")
        }
        (true, false) => Some("a file is there, and a directory does not replace it"),
        (false, true) => Some("a directory is there, and a file does not replace it"),
        _ => None,
    }
}

/// Whether an existing file stays.
fn stays(inventory: &Inventory, entry: EntryId, there: &Stat, conflict: Conflict) -> bool {
    let newer = || {
        let (_, mtime) = times(&inventory.metadata(inventory.file(entry)));
        let key = |time: linux::Timestamp| (time.seconds, time.nanoseconds);
        key(there.mtime) > key(mtime)
    };
    match conflict {
        Conflict::Replace => false,
        Conflict::KeepExisting => true,
        Conflict::KeepNewer => newer(),
    }
}

/// What [`move_up`] did not move.
pub(super) struct Moved {
    pub(super) kept: u64,
    pub(super) refused: Vec<Refused>,
}

/// How [`move_up`] treats existing files.
#[derive(Clone, Copy)]
pub(super) struct MergeRules {
    /// The rule where a name is taken; without it, nothing may be there.
    pub(super) conflict: Option<Conflict>,
    /// Links to directories count as these directories.
    pub(super) follows: bool,
    /// Existing directories below the target are finished as new ones are.
    pub(super) updates_dirs: bool,
}

/// Moves what was written below `staged` into the directory `into`, and calls `finish` for each new
/// directory below that. Files in `missing` have not been written.
pub(super) fn move_up(
    maker: &Maker<'_>,
    staged: &OwnedFd,
    into: &OwnedFd,
    rules: MergeRules,
    missing: &HashSet<FileId>,
    mut finish: impl FnMut(&OwnedFd, EntryId) -> Result<()>,
) -> Result<Moved> {
    let inventory = maker.inventory();
    let MergeRules {
        conflict,
        follows,
        updates_dirs,
    } = rules;
    let mut finish = |entry| {
        let path = inventory.path(entry);
        let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
        let dir = open_dir(into, &path, flags, follows)
            .map_err(|error| Error::from(error).in_file("open", &path))?;
        finish(&dir, entry)
    };
    let mut moved = Moved {
        kept: 0,
        refused: Vec::new(),
    };
    let (mut from, mut to) = (
        OpenPath::new(inventory, staged, false),
        OpenPath::new(inventory, into, follows),
    );
    // Directories entered below one that is new or was refused.
    let (mut new, mut refused) = (0u32, 0u32);
    for step in inventory.steps() {
        if temporary::is_stopping() {
            return Err(Error::Io(io::ErrorKind::Interrupted.into()));
        }
        let entry = match step {
            WalkStep::Leave(entry) => {
                if new > 0 {
                    new -= 1;
                    finish(entry)?;
                } else if refused > 0 {
                    refused -= 1;
                } else {
                    if updates_dirs && entry != inventory.root() {
                        finish(entry)?;
                    }
                    from.leave();
                    to.leave();
                }
                continue;
            }
            WalkStep::Enter(entry) | WalkStep::File(entry) => entry,
        };
        let is_dir = matches!(step, WalkStep::Enter(_));
        if new > 0 || refused > 0 {
            new += u32::from(is_dir && new > 0);
            refused += u32::from(is_dir && refused > 0);
            continue;
        }
        if entry == inventory.root() {
            from.enter_root()?;
            to.enter_root()?;
            continue;
        }
        if !is_dir && missing.contains(&inventory.file(entry)) {
            continue;
        }
        let name = &*inventory.name(entry);
        let (Some(above), Some(below)) = (to.current()?, from.current()?) else {
            return Err(Error::Inconsistent(
                "a directory was left before it was entered",
            ));
        };
        let must_be_new = is_dir || conflict.is_none() || conflict == Some(Conflict::KeepExisting);
        let renamed = if must_be_new {
            rename_new(below, above, name)
        } else {
            linux::rename_at(below, name, above, name)
        };
        let is_taken = matches!(&renamed, Err(error) if is_taken(error));
        match renamed {
            Ok(()) => new += u32::from(is_dir),
            Err(error) if conflict.is_none() => {
                return Err(Error::from(error).in_file("create", &inventory.path(entry)));
            }
            Err(_) if is_dir && is_taken => {
                let opened = to
                    .stat(entry, true)
                    .map_err(|error| error.to_string())
                    .and_then(|there| match clash(true, &there) {
                        Some(reason) => Err(reason.to_owned()),
                        None => to.open(entry, &there),
                    });
                match opened {
                    Ok(dir) => {
                        let open =
                            |error| Error::from(error).in_file("open", &inventory.path(entry));
                        let staged = linux::open_at(below, name, PATH_ONLY, 0).map_err(open)?;
                        to.enter(entry, dir);
                        from.enter(entry, staged);
                    }
                    Err(reason) => {
                        refused = 1;
                        moved.refuse(inventory, entry, &reason);
                    }
                }
            }
            Err(_) if is_taken && conflict == Some(Conflict::KeepExisting) => moved.kept += 1,
            Err(error) if concerns_one_file(&error) => {
                refused = u32::from(is_dir);
                moved.refuse(inventory, entry, &error.to_string());
            }
            Err(error) => {
                return Err(Error::from(error).in_file("replace", &inventory.path(entry)));
            }
        }
    }
    Ok(moved)
}

impl Moved {
    fn refuse(&mut self, inventory: &Inventory, entry: EntryId, reason: &str) {
        self.refused.push(Refused {
            path: inventory.path(entry).into(),
            reason: reason.into(),
        });
    }
}

fn is_taken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty
    )
}

/// Whether others may succeed where this file could not be moved: it is in use, immutable, or of
/// another type by now.
fn concerns_one_file(error: &io::Error) -> bool {
    use io::ErrorKind::{
        AlreadyExists, CrossesDevices, DirectoryNotEmpty, ExecutableFileBusy, IsADirectory,
        NotADirectory, PermissionDenied, ResourceBusy,
    };
    matches!(
        error.kind(),
        AlreadyExists
            | CrossesDevices
            | DirectoryNotEmpty
            | ExecutableFileBusy
            | IsADirectory
            | NotADirectory
            | PermissionDenied
            | ResourceBusy
    )
}

fn rename_new(from: &OwnedFd, to: &OwnedFd, name: &[u8]) -> io::Result<()> {
    match linux::rename_new_at(from, name, to, name) {
        // The file system lacks RENAME_NOREPLACE.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            if linux::stat_at(to, name).is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            linux::rename_at(from, name, to, name)
        }
        renamed => renamed,
    }
}

/// The open directories on the path from a root to where a walk is.
struct OpenPath<'a> {
    inventory: &'a Inventory<'a>,
    root: &'a OwnedFd,
    /// Directories far up are closed.
    open: Vec<(EntryId, Option<OwnedFd>)>,
    /// How many directories the walk is below the last open one.
    skipped: u32,
    /// Whether symbolic links to directories below the root are followed.
    follows: bool,
}

/// Opens a directory below `root`, following links within it or none.
fn open_dir(root: &OwnedFd, path: &[u8], flags: OpenFlags, follows: bool) -> io::Result<OwnedFd> {
    if follows {
        linux::open_in_root(root, path, flags)
    } else {
        linux::open_beneath(root, path, flags, 0)
    }
}

impl<'a> OpenPath<'a> {
    fn new(inventory: &'a Inventory<'a>, root: &'a OwnedFd, follows: bool) -> Self {
        OpenPath {
            inventory,
            root,
            open: Vec::new(),
            skipped: 0,
            follows,
        }
    }

    fn enter_root(&mut self) -> Result<()> {
        let root = linux::open_at(self.root, b".", PATH_ONLY, 0)?;
        self.enter(self.inventory.root(), root);
        Ok(())
    }

    fn enter(&mut self, entry: EntryId, dir: OwnedFd) {
        self.open.push((entry, Some(dir)));
        let far = self.open.len().checked_sub(OPEN_LEVELS_MAX);
        if let Some((_, dir)) = far.and_then(|far| self.open.get_mut(far)) {
            *dir = None;
        }
    }

    /// Enters a directory that is not there.
    fn skip(&mut self) {
        self.skipped += 1;
    }

    fn leave(&mut self) {
        match self.skipped {
            0 => drop(self.open.pop()),
            _ => self.skipped -= 1,
        }
    }

    /// The directory that the walk is in; `None` if it is not there.
    fn current(&mut self) -> Result<Option<&OwnedFd>> {
        if self.skipped > 0 {
            return Ok(None);
        }
        let Some((entry, dir)) = self.open.last_mut() else {
            return Ok(None);
        };
        if dir.is_none() {
            let path = self.inventory.path(*entry);
            let again = open_dir(self.root, &path, PATH_ONLY, self.follows);
            *dir = Some(again.map_err(|error| Error::from(error).in_file("open", &path))?);
        }
        Ok(dir.as_ref())
    }

    /// The existing file with the name of an entry in the current directory. Where links are
    /// followed, a link to a directory is that directory for another directory.
    fn stat(&mut self, entry: EntryId, is_dir: bool) -> io::Result<Stat> {
        let name = &*self.inventory.name(entry);
        let current = self.current().map_err(io::Error::other)?;
        let there = linux::stat_at(current.ok_or(io::ErrorKind::NotFound)?, name)?;
        let is_link = FileKind::from_mode(there.mode) == Some(FileKind::Symlink);
        if !(self.follows && is_dir && is_link) {
            return Ok(there);
        }
        let path = self.inventory.path(entry);
        let target = linux::open_in_root(self.root, &path, PATH_ONLY);
        Ok(target.and_then(|dir| linux::stat(&dir)).unwrap_or(there))
    }

    /// Opens a directory in the current one; otherwise says in words why not. Files cannot be
    /// renamed into another file system.
    fn open(&mut self, entry: EntryId, there: &Stat) -> std::result::Result<OwnedFd, String> {
        let name = &*self.inventory.name(entry);
        let words = |error: io::Error| error.to_string();
        let followed = self.follows.then(|| {
            let path = self.inventory.path(entry);
            linux::open_in_root(self.root, &path, PATH_ONLY)
        });
        let current = self.current().map_err(|error| error.to_string())?;
        let current = current.ok_or("its directory is not there")?;
        let dir = followed.unwrap_or_else(|| linux::open_at(current, name, PATH_ONLY, 0));
        let dir = dir.map_err(words)?;
        let stat = linux::stat(&dir).map_err(words)?;
        let above = linux::stat(current).map_err(words)?;
        if !stat.is_same_file(there) {
            return Err("it changed meanwhile".to_owned());
        }
        if stat.dev != above.dev || stat.attributes & ATTRIBUTE_MOUNT_ROOT != 0 {
            return Err("it is on another file system; copy into it separately".to_owned());
        }
        Ok(dir)
    }
}
