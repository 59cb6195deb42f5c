//! The names of a subvolume while it is received, in little memory.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use crate::apply::{CommandSink, DataChange, NewAttribute, NewFile};

/// The most names that are remembered: what a table of 2^21 slots, of 13 bytes each, holds without
/// growing.
const NAMES_MAX: usize = (1 << 21) / 8 * 7;
/// The root directory of the subvolume.
const ROOT: u32 = 0;
/// What a name stands for if it is not a known directory; lower numbers are directories.
const FILE: u32 = u32::MAX;
const SYMLINK: u32 = u32::MAX - 1;
const OTHER: u32 = u32::MAX - 2;
/// It exists and is of unknown kind, because it is from the parent.
const ANYTHING: u32 = u32::MAX - 3;
/// It was removed from a directory of the parent.
const REMOVED: u32 = u32::MAX - 4;

/// The known names of a subvolume.
///
/// A name is remembered as a hash of its directory's number and itself, under a key that the
/// stream's author does not know. If the root is complete, so are all directories, and a name that
/// is not remembered does not exist. A snapshot begins with an unknown root: then a name is assumed
/// to exist when it first occurs, as it is when there are too many names.
#[derive(Default)]
pub(super) struct KnownNames {
    hasher: RandomState,
    names: HashMap<[u8; 8], [u8; 4]>,
    directories: Vec<DirectoryNames>,
    is_full: bool,
    /// The UUID of the subvolume, by which it clones from itself.
    uuid: [u8; 16],
    /// The path that was last found, and what it is: most commands are about the file of the one
    /// before.
    last: Vec<u8>,
    last_is: Option<u32>,
    /// The path of the directory, with a slash behind it, that a path led through last, and its
    /// number: most files lie beside the one before. Empty if it may have another name by now.
    through: Vec<u8>,
    through_is: u32,
}

#[derive(Clone, Copy)]
struct DirectoryNames {
    /// How many names it has, if it is complete.
    names: Option<u32>,
}

/// Where a path ends.
struct PathEnd {
    directory: u32,
    key: [u8; 8],
    /// Its kind; `None` if it is unknown.
    is: Option<u32>,
}

type Checked<T = ()> = Result<T, &'static str>;

impl KnownNames {
    /// Starts a subvolume: a new one, or a snapshot.
    pub(super) fn start(&mut self, uuid: [u8; 16], is_new: bool) {
        self.uuid = uuid;
        self.names.clear();
        self.directories.clear();
        self.directories.push(DirectoryNames {
            names: is_new.then_some(0),
        });
        self.is_full = false;
        self.last_is = None;
        self.through.clear();
    }

    /// Whether there were more names than are remembered.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    fn is_file(&mut self, path: &[u8]) -> Checked {
        match self.kind(path)? {
            FILE | ANYTHING => Ok(()),
            SYMLINK => Err("data would be written through a symlink"),
            _ => Err("data is written to a file that is not regular"),
        }
    }

    /// The kind of an existing path.
    fn kind(&mut self, path: &[u8]) -> Checked<u32> {
        if let Some(is) = self.last_is
            && self.last == path
        {
            return Ok(is);
        }
        if path.is_empty() {
            return Ok(ROOT);
        }
        let place = self.place(path)?;
        let is = match place.is {
            Some(REMOVED) => return Err("file was removed before"),
            Some(is) => is,
            None if self.is_complete(place.directory) => return Err("file does not exist"),
            None => {
                self.insert(&place, ANYTHING);
                ANYTHING
            }
        };
        self.last.clear();
        self.last.extend_from_slice(path);
        self.last_is = Some(is);
        Ok(is)
    }

    /// A place for a new name.
    fn free_place(&mut self, path: &[u8]) -> Checked<PathEnd> {
        let place = self.place(path)?;
        match place.is {
            None | Some(REMOVED) => Ok(place),
            Some(_) => Err("new file's name is taken"),
        }
    }

    /// Where a path ends, whether it exists or not.
    fn place(&mut self, path: &[u8]) -> Checked<PathEnd> {
        let known = (path.strip_prefix(&self.through[..])).filter(|_| !self.through.is_empty());
        let (mut directory, rest) = match known {
            Some(rest) => (self.through_is, rest),
            None => (ROOT, path),
        };
        let mut names = rest.split(|&byte| byte == b'/').peekable();
        loop {
            let name = names.next().unwrap_or_default();
            let key = self.hasher.hash_one((directory, name)).to_le_bytes();
            let place = PathEnd {
                directory,
                key,
                is: self.names.get(&key).map(|is| u32::from_le_bytes(*is)),
            };
            if names.peek().is_none() {
                // Shared directories have no number of their own.
                if directory != ROOT && !self.is_full && name.len() < rest.len() {
                    self.through.clear();
                    self.through
                        .extend_from_slice(&path[..path.len() - name.len()]);
                    self.through_is = directory;
                }
                return Ok(place);
            }
            directory = match place.is {
                Some(is) if is < REMOVED => is,
                Some(SYMLINK) => return Err("path leads through a symlink"),
                Some(FILE | OTHER) => {
                    return Err("path leads through a file that is not a directory");
                }
                Some(REMOVED) => return Err("path leads through a directory that was removed"),
                None if self.is_complete(directory) => {
                    return Err("path leads through a directory that does not exist");
                }
                _ => {
                    let new = self.directory(false);
                    self.insert(&place, new);
                    new
                }
            };
        }
    }

    /// A number for a directory. When there are too many, it is one more unknown directory, which
    /// all of them share.
    fn directory(&mut self, is_complete: bool) -> u32 {
        if self.directories.len() >= NAMES_MAX {
            self.is_full = true;
        }
        if !self.is_full || self.directories.len() <= NAMES_MAX {
            let names = (is_complete && !self.is_full).then_some(0);
            self.directories.push(DirectoryNames { names });
        }
        self.directories.len() as u32 - 1
    }

    /// Whether a name that is not remembered in this directory does not exist.
    fn is_complete(&self, directory: u32) -> bool {
        let directory = self.directories.get(directory as usize);
        !self.is_full && directory.is_some_and(|it| it.names.is_some())
    }

    /// Whether it is a directory that is known to have names.
    fn is_used(&self, is: u32) -> bool {
        let directory = self.directories.get(is as usize);
        is < REMOVED
            && !self.is_full
            && directory.is_some_and(|it| it.names.is_some_and(|it| it > 0))
    }

    /// Forgets what paths led through if this name may be on the way.
    fn forget(&mut self, place: &PathEnd) {
        self.last_is = None;
        if !matches!(place.is, Some(FILE | SYMLINK | OTHER | REMOVED)) {
            self.through.clear();
        }
    }

    fn insert(&mut self, place: &PathEnd, is: u32) {
        if place.is.is_some() {
            self.forget(place);
        }
        self.last_is = None;
        let is_known = place.is.is_some();
        if !is_known && self.names.len() >= NAMES_MAX {
            self.is_full = true;
            return;
        }
        self.names.insert(place.key, is.to_le_bytes());
        if place.is.is_none_or(|is| is == REMOVED) {
            self.count(place.directory, 1);
        }
    }

    fn remove(&mut self, place: &PathEnd) {
        self.forget(place);
        if self.is_complete(place.directory) || self.is_full {
            self.names.remove(&place.key);
        } else {
            self.names.insert(place.key, REMOVED.to_le_bytes());
        }
        self.count(place.directory, -1);
    }

    fn count(&mut self, directory: u32, change: i32) {
        if let Some(DirectoryNames { names: Some(names) }) =
            self.directories.get_mut(directory as usize)
        {
            *names = names.saturating_add_signed(change);
        }
    }
}

impl CommandSink for KnownNames {
    type Error = &'static str;

    fn create(&mut self, path: &[u8], file: NewFile<'_>) -> Checked {
        let place = self.free_place(path)?;
        let is = match file {
            NewFile::Regular => FILE,
            NewFile::Symlink(_) => SYMLINK,
            NewFile::Directory => self.directory(true),
            NewFile::Fifo | NewFile::Socket | NewFile::Device { .. } => OTHER,
        };
        self.insert(&place, is);
        Ok(())
    }

    fn link(&mut self, path: &[u8], existing: &[u8]) -> Checked {
        let is = self.kind(existing)?;
        if is < REMOVED {
            return Err("hard link is to a directory");
        }
        let place = self.free_place(path)?;
        self.insert(&place, is);
        Ok(())
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Checked {
        if (to.strip_prefix(from)).is_some_and(|rest| rest.first() == Some(&b'/')) {
            return Err("directory is renamed into itself");
        }
        let is = self.kind(from)?;
        let from = self.place(from)?;
        let target = self.place(to)?;
        if target.is.is_some_and(|is| self.is_used(is)) {
            return Err("file is renamed to a directory that is not empty");
        }
        self.remove(&from);
        // Both can be the same name.
        let target = self.place(to)?;
        self.insert(&target, is);
        Ok(())
    }

    fn unlink(&mut self, path: &[u8]) -> Checked {
        if self.kind(path)? < REMOVED {
            return Err("directory is removed as if it were a file");
        }
        let place = self.place(path)?;
        self.remove(&place);
        Ok(())
    }

    fn rmdir(&mut self, path: &[u8]) -> Checked {
        let is = self.kind(path)?;
        if is > REMOVED && is != ANYTHING {
            return Err("file is removed as if it were a directory");
        }
        if self.is_used(is) {
            return Err("removed directory is not empty");
        }
        let place = self.place(path)?;
        self.remove(&place);
        Ok(())
    }

    fn change_data(&mut self, path: &[u8], change: DataChange<'_>) -> Checked {
        self.is_file(path)?;
        match change {
            DataChange::Clone(range) if range.uuid == self.uuid => self.is_file(range.source),
            _ => Ok(()),
        }
    }

    fn set_attribute(&mut self, path: &[u8], attribute: NewAttribute<'_>) -> Checked {
        let kind = self.kind(path)?;
        match attribute {
            NewAttribute::Mode(_) | NewAttribute::Flags(_) if kind == SYMLINK => {
                Err("command would follow a symlink")
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(is_new: bool) -> KnownNames {
        let mut names = KnownNames::default();
        names.start([0; 16], is_new);
        names
    }

    fn exists(names: &mut KnownNames, path: &[u8]) -> Checked {
        names.set_attribute(path, NewAttribute::Owner { uid: 0, gid: 0 })
    }

    #[test]
    fn a_new_subvolume_has_what_was_created() {
        let mut names = names(true);
        assert!(exists(&mut names, b"").is_ok());
        assert!(exists(&mut names, b"a").is_err());
        names.create(b"d", NewFile::Directory).unwrap();
        names.create(b"d/f", NewFile::Regular).unwrap();
        names.create(b"l", NewFile::Symlink(b"t")).unwrap();
        assert!(names.create(b"d/f", NewFile::Regular).is_err());
        assert!(names.is_file(b"d/f").is_ok());
        assert!(names.is_file(b"d").is_err());
        assert!(names.is_file(b"").is_err());
        assert!(names.is_file(b"l").is_err());
        assert!(exists(&mut names, b"l").is_ok());
        assert!(names.set_attribute(b"l", NewAttribute::Mode(0)).is_err());
        assert_eq!(
            exists(&mut names, b"l/f"),
            Err("path leads through a symlink")
        );
        assert!(names.create(b"l/f", NewFile::Regular).is_err());
        assert!(exists(&mut names, b"d/f/g").is_err());
        assert!(names.rmdir(b"d").is_err());
        assert!(names.unlink(b"d").is_err());
        assert!(names.rename(b"d", b"d/e").is_err());
        names.rename(b"d", b"e").unwrap();
        assert!(exists(&mut names, b"d/f").is_err());
        assert!(names.is_file(b"e/f").is_ok());
        names.link(b"g", b"e/f").unwrap();
        assert!(names.link(b"h", b"e").is_err());
        names.unlink(b"e/f").unwrap();
        assert!(names.unlink(b"e/f").is_err());
        names.rmdir(b"e").unwrap();
        assert!(exists(&mut names, b"e").is_err());
        assert!(names.rename(b"e", b"x").is_err());
        // The name of a file that is gone can be used again.
        names.create(b"e", NewFile::Fifo).unwrap();
        assert!(names.rmdir(b"e").is_err());
        names.rename(b"g", b"g").unwrap();
        assert!(names.is_file(b"g").is_ok());
    }

    #[test]
    fn what_a_path_led_through_is_looked_up_again_when_it_was_moved() {
        for is_new in [true, false] {
            let mut names = names(is_new);
            for directory in [&b"d"[..], b"d/x", b"d/x/y"] {
                names.create(directory, NewFile::Directory).unwrap();
            }
            names.create(b"d/x/y/f", NewFile::Regular).unwrap();
            names.create(b"o", NewFile::Regular).unwrap();
            names.is_file(b"d/x/y/f").unwrap();
            names.rename(b"o", b"d/x/y/o").unwrap();
            names.is_file(b"d/x/y/o").unwrap();
            names.rename(b"d/x", b"e").unwrap();
            assert!(exists(&mut names, b"d/x/y/f").is_err());
            names.is_file(b"e/y/f").unwrap();
            names.unlink(b"e/y/o").unwrap();
            names.unlink(b"e/y/f").unwrap();
            names.rmdir(b"e/y").unwrap();
            assert!(names.create(b"e/y/f", NewFile::Regular).is_err());
            names.create(b"e/y", NewFile::Regular).unwrap();
            assert!(names.create(b"e/y/f", NewFile::Regular).is_err());
        }
    }

    #[test]
    fn a_snapshot_may_have_anything_that_was_not_removed() {
        let mut names = names(false);
        names.is_file(b"a/b").unwrap();
        names.unlink(b"a/b").unwrap();
        assert!(exists(&mut names, b"a/b").is_err());
        names.rename(b"a", b"c").unwrap();
        assert!(exists(&mut names, b"a/x").is_err());
        exists(&mut names, b"c/x").unwrap();
        assert!(exists(&mut names, b"c/b").is_err());
        names.create(b"c/b", NewFile::Directory).unwrap();
        assert!(exists(&mut names, b"c/b/new").is_err());
        names.rmdir(b"c/b").unwrap();
        names.rmdir(b"c").unwrap();
        assert!(exists(&mut names, b"c/x").is_err());
        names.create(b"s", NewFile::Symlink(b"t")).unwrap();
        assert!(names.is_file(b"s/x").is_err());
    }

    #[test]
    fn more_names_than_are_remembered_are_believed() {
        let mut names = names(true);
        for number in 0..NAMES_MAX + 10 {
            let path = number.to_string();
            names.create(path.as_bytes(), NewFile::Regular).unwrap();
        }
        assert!(names.is_full());
        assert!(exists(&mut names, b"elsewhere").is_ok());
        assert!(names.names.len() <= NAMES_MAX);
        assert!(size_of::<([u8; 8], [u8; 4])>() == 12);
    }
}
