//! Where files are, for messages and for `..`.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tree::Ino;

use crate::directory::Directories;

/// Number of directories whose place is remembered: those of the largest trees.
const DIRECTORIES_MAX: usize = 1 << 20;
/// Number of files whose place is remembered: those that were looked up last. Where others are,
/// their directory says.
const FILES_MAX: usize = 1024;
/// Deepest directory that has a path.
const DEPTH_MAX: usize = 4096;

/// The directory that a file is in, and its name there.
type Place = (Ino, Box<[u8]>);

/// The places of files that the kernel has seen.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<KnownPlace>);

#[derive(Debug, Default)]
struct KnownPlace {
    directories: HashMap<Ino, Place>,
    files: HashMap<Ino, Place>,
}

impl Places {
    pub(crate) fn note_directory(&self, ino: Ino, parent: Ino, name: &[u8]) {
        let mut known = self.known();
        if known.directories.len() < DIRECTORIES_MAX {
            let place = || (parent, name.into());
            known.directories.entry(ino).or_insert_with(place);
        }
    }

    pub(crate) fn note_file(&self, ino: Ino, parent: Ino, name: &[u8]) {
        let mut known = self.known();
        if known.files.len() >= FILES_MAX {
            known.files.clear();
        }
        known.files.insert(ino, (parent, name.into()));
    }

    /// The directory that a directory is in.
    pub(crate) fn parent(&self, dir: Ino) -> Option<Ino> {
        let known = self.known();
        known.directories.get(&dir).map(|(parent, _)| *parent)
    }

    /// The path of a file from the root, as far as it is known: of one of its names.
    pub(crate) fn path(&self, ino: Ino, root: Ino, kept: &Directories) -> Option<Vec<u8>> {
        if ino == root {
            return Some(Vec::new());
        }
        let found = {
            let known = self.known();
            let place = known.directories.get(&ino).or(known.files.get(&ino));
            place.cloned()
        };
        let (mut dir, name) = found.or_else(|| {
            let mut all = kept.all().into_iter();
            all.find_map(|(dir, listed)| Some((dir, listed.name_of(ino)?.into())))
        })?;
        let mut names = vec![name];
        let known = self.known();
        while dir != root {
            let (parent, name) = known.directories.get(&dir)?;
            names.push(name.clone());
            dir = *parent;
            if names.len() > DEPTH_MAX {
                return None;
            }
        }
        names.reverse();
        Some(names.join(&b'/'))
    }

    fn known(&self) -> MutexGuard<'_, KnownPlace> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_end_at_the_root() {
        let (places, kept) = (Places::default(), Directories::default());
        places.note_directory(Ino(2), Ino(0), b"a");
        places.note_directory(Ino(3), Ino(2), b"b");
        places.note_file(Ino(4), Ino(3), b"c");
        let path = |ino| places.path(Ino(ino), Ino(0), &kept);
        assert_eq!(path(0).as_deref(), Some(&b""[..]));
        assert_eq!(path(4).as_deref(), Some(&b"a/b/c"[..]));
        assert_eq!(path(5), None);
        assert_eq!(places.parent(Ino(3)), Some(Ino(2)));
        // A directory in itself.
        places.note_directory(Ino(9), Ino(9), b"x");
        assert_eq!(path(9), None);
    }
}
