//! Directories that have been read, in little memory, and how many of them are kept.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use tree::{DirEntry, Error, FileKind, Ino, Result, to_usize};

/// Bytes of directories that are kept. The last ones are kept at any size, so that a large
/// directory is read once while it is listed.
const KEPT_BYTES: usize = 16 << 20;
/// Number of directories that are kept at any size.
const KEPT_MIN: usize = 2;
/// The memory of a directory in addition to its entries.
const DIRECTORY_BYTES: usize = 160;

/// The entries of a directory, sorted by name.
#[derive(Debug)]
pub(crate) struct OpenDirectory {
    names: Box<[u8]>,
    entries: Box<[ListedEntry]>,
}

/// 16 bytes for each name, and the name.
#[derive(Clone, Copy, Debug)]
struct ListedEntry {
    ino: Ino,
    name_end: u32,
    kind: FileKind,
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Named<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) ino: Ino,
    pub(crate) kind: FileKind,
}

impl OpenDirectory {
    /// The directory with these entries, sorted by name.
    pub(crate) fn new(listed: Vec<DirEntry>) -> Result<OpenDirectory> {
        let bytes = listed.iter().map(|entry| entry.name.len()).sum();
        let mut names = Vec::with_capacity(bytes);
        let mut entries = Vec::with_capacity(listed.len());
        for entry in listed {
            names.extend_from_slice(&entry.name);
            let name_end = u32::try_from(names.len());
            let name_end = name_end.map_err(|_| Error::Limit("bytes of names in a directory"))?;
            entries.push(ListedEntry {
                ino: entry.ino,
                name_end,
                kind: entry.kind,
            });
        }
        Ok(OpenDirectory {
            names: names.into_boxed_slice(),
            entries: entries.into_boxed_slice(),
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The entry with this index.
    pub(crate) fn at(&self, index: usize) -> Option<Named<'_>> {
        let entry = self.entries.get(index)?;
        let before = index
            .checked_sub(1)
            .and_then(|before| self.entries.get(before));
        let begin = before.map_or(0, |before| before.name_end);
        Some(Named {
            name: self.names.get(to_usize(begin)..to_usize(entry.name_end))?,
            ino: entry.ino,
            kind: entry.kind,
        })
    }

    /// The entry with this name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Named<'_>> {
        let (mut from, mut to) = (0, self.len());
        while from < to {
            let middle = from.midpoint(to);
            let entry = self.at(middle)?;
            match entry.name.cmp(name) {
                std::cmp::Ordering::Equal => return Some(entry),
                std::cmp::Ordering::Less => from = middle.saturating_add(1),
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        None
    }

    /// The name of a file in it.
    pub(crate) fn name_of(&self, ino: Ino) -> Option<&[u8]> {
        let index = self.entries.iter().position(|entry| entry.ino == ino)?;
        self.at(index).map(|entry| entry.name)
    }

    fn bytes(&self) -> usize {
        let entries = size_of_val(&*self.entries);
        entries
            .saturating_add(self.names.len())
            .saturating_add(DIRECTORY_BYTES)
    }
}

/// The directories that are kept: those used last.
#[derive(Debug, Default)]
pub(crate) struct Directories(Mutex<LastListing>);

#[derive(Debug, Default)]
struct LastListing {
    /// Each with whether it was used since the hand passed.
    by_ino: HashMap<Ino, (Arc<OpenDirectory>, bool)>,
    /// In the order in which the hand passes.
    clock: VecDeque<Ino>,
    bytes: usize,
}

impl Directories {
    pub(crate) fn find(&self, dir: Ino) -> Option<Arc<OpenDirectory>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (directory, used) = kept.by_ino.get_mut(&dir)?;
        *used = true;
        Some(Arc::clone(directory))
    }

    pub(crate) fn keep(&self, dir: Ino, directory: &Arc<OpenDirectory>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let new = (Arc::clone(directory), false);
        match kept.by_ino.insert(dir, new) {
            Some((old, _)) => kept.bytes = kept.bytes.saturating_sub(old.bytes()),
            None => kept.clock.push_back(dir),
        }
        kept.bytes = kept.bytes.saturating_add(directory.bytes());
        while kept.bytes > KEPT_BYTES && kept.by_ino.len() > KEPT_MIN {
            kept.drop_one(dir);
        }
    }

    /// All that are kept, with their numbers.
    pub(crate) fn all(&self) -> Vec<(Ino, Arc<OpenDirectory>)> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = kept.by_ino.iter();
        all.map(|(dir, (directory, _))| (*dir, Arc::clone(directory)))
            .collect()
    }
}

impl LastListing {
    /// Drops the next one that was not used since the hand passed, except for `newest`.
    fn drop_one(&mut self, newest: Ino) {
        while let Some(dir) = self.clock.pop_front() {
            match self.by_ino.get_mut(&dir) {
                Some((_, used)) if *used || dir == newest => {
                    *used = false;
                    self.clock.push_back(dir);
                }
                _ => {
                    if let Some((gone, _)) = self.by_ino.remove(&dir) {
                        self.bytes = self.bytes.saturating_sub(gone.bytes());
                    }
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(names: &[&[u8]]) -> Arc<OpenDirectory> {
        let entry = |(index, name): (usize, &&[u8])| DirEntry {
            name: Box::from(*name),
            ino: Ino(index as u64 * 10),
            kind: FileKind::Regular,
        };
        Arc::new(OpenDirectory::new(names.iter().enumerate().map(entry).collect()).unwrap())
    }

    #[test]
    fn names_are_found() {
        let dir = directory(&[b"a", b"ab", b"b", b"\xff"]);
        for (index, name) in [&b"a"[..], b"ab", b"b", b"\xff"].into_iter().enumerate() {
            let found = dir.find(name).unwrap();
            assert_eq!((found.name, found.ino), (name, Ino(index as u64 * 10)));
            assert_eq!(dir.at(index), Some(found));
            assert_eq!(dir.name_of(found.ino), Some(name));
        }
        for name in [&b""[..], b"aa", b"c"] {
            assert_eq!(dir.find(name), None);
        }
        assert_eq!((dir.at(4), dir.name_of(Ino(5))), (None, None));
        assert_eq!(size_of::<ListedEntry>(), 16);
    }

    #[test]
    fn memory_is_bounded_and_what_is_used_stays() {
        let kept = Directories::default();
        let name = vec![b'n'; 1 << 20];
        let large = directory(&[&name]);
        for dir in 0..100 {
            kept.keep(Ino(dir), &large);
            assert!(kept.find(Ino(0)).is_some());
        }
        assert_eq!(kept.all().len(), 15);
        assert!(kept.find(Ino(99)).is_some());
        assert!(kept.find(Ino(1)).is_none());
        let huge = directory(&[&vec![b'n'; 64 << 20]]);
        kept.keep(Ino(200), &huge);
        kept.keep(Ino(201), &large);
        assert!(kept.find(Ino(200)).is_some());
        assert!(kept.find(Ino(201)).is_some());
        assert_eq!(kept.all().len(), 2);
        // The same again is no more.
        kept.keep(Ino(201), &large);
        assert_eq!(kept.all().len(), 2);
    }
}
