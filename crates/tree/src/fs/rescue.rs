//! A view of a tree without its unreadable files.
//!
//! A bad directory shows its readable names, and a bad inode costs its own name only. Content that
//! cannot be read is an error, as in the tree below, or reads as zeros if damaged files are kept.
//! Everything left out is listed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{
    Checksum, DirEntry, EntryId, Extent, ExtentKind, FileKind, FileSystem, Ino, Inventory,
    Metadata, Storage, Xattr,
};
use crate::{Error, Result};

/// Content that is not encoded is given up in units of this many bytes: a sector of btrfs, which
/// has one checksum.
const SECTOR_BYTES: u64 = 4096;

/// How often reading one file can fail before it is given up: 4 GiB of single sectors.
const FAILURES_MAX: u32 = 1 << 20;

/// A view of a tree without its unreadable files.
pub struct Rescue<'a> {
    tree: &'a dyn FileSystem,
    keep_damaged: bool,
    found: Mutex<Losses>,
}

/// Something that is missing from a tree, or is not as it was.
#[derive(Debug)]
pub enum Loss {
    /// Some names of a directory are not there, or all.
    Names(Error),
    /// A file is not there.
    File(Error),
    /// A file is there without its extended attributes.
    Xattrs(Error),
    /// A file is there with zeros in these ranges of bytes, which are sorted and not empty. The
    /// error is the first one.
    Content(Vec<Range<u64>>, Error),
}

#[derive(Default)]
struct Losses {
    names: BTreeMap<Ino, Error>,
    /// By directory and name.
    files: BTreeMap<(Ino, Box<[u8]>), Error>,
    xattrs: BTreeMap<Ino, Error>,
    content: BTreeMap<Ino, DamagedContent>,
    /// Where each directory was seen first: one that is in two places is in the first only.
    places: HashMap<Ino, (Ino, Box<[u8]>)>,
}

struct DamagedContent {
    ranges: BTreeSet<(u64, u64)>,
    first: Error,
    failures: u32,
}

impl<'a> Rescue<'a> {
    /// With `keep_damaged`, content that cannot be read reads as zeros. Then no extent is encoded
    /// or shared, since their bytes are to be read one by one.
    pub fn new(tree: &'a dyn FileSystem, keep_damaged: bool) -> Self {
        Rescue {
            tree,
            keep_damaged,
            found: Mutex::default(),
        }
    }

    fn found(&self) -> MutexGuard<'_, Losses> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The files left out so far, with the reason, sorted by path. The inventory must be that of
    /// this view.
    pub fn losses(&self, inventory: &Inventory) -> Vec<(Vec<u8>, Loss)> {
        let found = std::mem::take(&mut *self.found());
        let mut wanted: HashMap<Ino, Option<EntryId>> = HashMap::new();
        for ino in found.names.keys().chain(found.xattrs.keys()) {
            wanted.insert(*ino, None);
        }
        wanted.extend(found.content.keys().map(|ino| (*ino, None)));
        wanted.extend(found.files.keys().map(|(dir, _)| (*dir, None)));
        for file in inventory.files() {
            if let Some(place) = wanted.get_mut(&inventory.ino(file)) {
                *place = Some(inventory.first_name(file));
            }
        }
        // A file that is not in the inventory was left out before, for example excluded.
        let path = |ino: &Ino| Some(inventory.path((*wanted.get(ino)?)?));
        let mut losses = Vec::new();
        let mut add = |path: Option<Vec<u8>>, loss| losses.extend(path.map(|path| (path, loss)));
        for (dir, error) in found.names {
            add(path(&dir), Loss::Names(error));
        }
        for ((dir, name), error) in found.files {
            let path = path(&dir).map(|mut path| {
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(&name);
                path
            });
            add(path, Loss::File(error));
        }
        for (ino, error) in found.xattrs {
            add(path(&ino), Loss::Xattrs(error));
        }
        for (ino, damage) in found.content {
            add(
                path(&ino),
                Loss::Content(joined(&damage.ranges), damage.first),
            );
        }
        losses.sort_by(|(one, _), (other, _)| one.cmp(other));
        losses
    }

    /// Lists the readable names of a directory.
    fn list(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        let listed = match self.tree.read_dir_with_metadata(dir) {
            Ok(listed) => listed,
            // Nothing is damaged: what is in it has been refused.
            Err(error @ (Error::Unsupported(_) | Error::Limit(_))) if dir != self.root() => {
                self.found().names.insert(dir, error);
                return Ok(Vec::new());
            }
            Err(error) => {
                let (entries, errors) = self.tree.list_readable(dir);
                if entries.is_empty() && dir == self.root() {
                    return Err(error);
                }
                let mut listed = Vec::with_capacity(entries.len());
                for entry in entries {
                    match self.tree.metadata(entry.ino) {
                        Ok(metadata) => listed.push((entry, metadata)),
                        Err(error) => {
                            self.found().files.insert((dir, entry.name), error);
                        }
                    }
                }
                for error in errors {
                    match error {
                        Error::File { path, error, .. } => {
                            self.found().files.insert((dir, path), *error);
                        }
                        error => {
                            self.found().names.entry(dir).or_insert(error);
                        }
                    }
                }
                listed
            }
        };
        let mut found = self.found();
        Ok(listed
            .into_iter()
            .filter(|(entry, metadata)| {
                match self.contradiction(dir, entry, metadata, &mut found) {
                    None => true,
                    Some(what) => {
                        let error = Error::Inconsistent(what);
                        found.files.insert((dir, entry.name.clone()), error);
                        false
                    }
                }
            })
            .collect())
    }

    /// Why no tree can have this entry, if so.
    fn contradiction(
        &self,
        dir: Ino,
        entry: &DirEntry,
        metadata: &Metadata,
        found: &mut Losses,
    ) -> Option<&'static str> {
        if entry.kind != metadata.kind {
            return Some("its type differs from the one in its directory");
        }
        if entry.kind != FileKind::Directory {
            return None;
        }
        let here = (dir, entry.name.clone());
        let first = found
            .places
            .entry(entry.ino)
            .or_insert_with(|| here.clone());
        let is_elsewhere = *first != here || entry.ino == self.root();
        is_elsewhere.then_some("the directory is in another place, too")
    }

    /// Notes a failed read, and fails with it if the file is not worth more of them.
    fn damaged(&self, file: Ino, range: Range<u64>, error: Error) -> Result<()> {
        let mut found = self.found();
        let damage = found.content.entry(file).or_insert(DamagedContent {
            ranges: BTreeSet::new(),
            first: error,
            failures: 0,
        });
        damage.failures += 1;
        if damage.failures > FAILURES_MAX {
            found.content.remove(&file);
            return Err(Error::Limit("more than 1,048,576 places cannot be read"));
        }
        if range.start < range.end {
            damage.ranges.insert((range.start, range.end));
        }
        Ok(())
    }

    /// Reads content piece by piece, with zeros for pieces that cannot be read.
    fn read_pieces(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        let mut at = offset;
        while at < end {
            let extents = self.extents_or_hole(file, at)?;
            let before = at;
            for extent in extents {
                if extent.offset > at || at >= end {
                    break;
                }
                let stop = extent.end().min(end);
                if stop <= at {
                    continue;
                }
                let part = &mut buf[(at - offset) as usize..(stop - offset) as usize];
                match extent.kind {
                    ExtentKind::Hole | ExtentKind::Preallocated { .. } => part.fill(0),
                    // One frame: all of it can be decoded, or nothing.
                    ExtentKind::Encoded(_) => self.read_or_zero(file, at, part, u64::MAX)?,
                    ExtentKind::Plain { .. } => self.read_or_zero(file, at, part, SECTOR_BYTES)?,
                }
                at = stop;
            }
            if at == before {
                return Err(Error::Changed);
            }
        }
        Ok(())
    }

    /// Reads a range; if that fails, its halves, down to units of `unit` bytes.
    fn read_or_zero(&self, file: Ino, at: u64, buf: &mut [u8], unit: u64) -> Result<()> {
        let error = match self.tree.read_at(file, at, buf) {
            Ok(len) if len == buf.len() => return Ok(()),
            Ok(_) => Error::Changed,
            Err(error) => error,
        };
        let len = buf.len() as u64;
        let middle = (at + len / 2).next_multiple_of(SECTOR_BYTES);
        if len <= unit || middle <= at || middle >= at + len {
            buf.fill(0);
            return self.damaged(file, at..at + len, error);
        }
        let (low, high) = buf.split_at_mut((middle - at) as usize);
        self.read_or_zero(file, at, low, unit)?;
        self.read_or_zero(file, middle, high, unit)
    }

    /// The extents at `from`. What cannot be found out about is a hole, up to the next place where
    /// it can.
    fn extents_or_hole(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        let error = match self.tree.extents(file, from) {
            Err(error) if is_damage(&error) => error,
            extents => return extents,
        };
        let size = self.tree.metadata(file)?.size;
        if from >= size {
            return Ok(Vec::new());
        }
        // Where nothing can be found out, and the first place found where something can.
        let (mut bad, mut good, mut step) = (from, size, SECTOR_BYTES);
        while let Some(at) = bad.checked_add(step).filter(|&at| at < size) {
            match self.tree.extents(file, at) {
                Ok(_) => {
                    good = at;
                    break;
                }
                Err(_) => (bad, step) = (at, step.saturating_mul(2)),
            }
        }
        while good - bad > SECTOR_BYTES {
            let middle = bad + ((good - bad) / 2).next_multiple_of(SECTOR_BYTES);
            if middle >= good {
                break;
            }
            match self.tree.extents(file, middle) {
                Ok(_) => good = middle,
                Err(_) => bad = middle,
            }
        }
        self.damaged(file, from..good, error)?;
        Ok(vec![Extent {
            offset: from,
            len: good - from,
            kind: ExtentKind::Hole,
            id: None,
        }])
    }
}

/// Whether the stored data causes an error, and not the request.
fn is_damage(error: &Error) -> bool {
    !matches!(
        error,
        Error::Changed
            | Error::NotFound
            | Error::NotADirectory
            | Error::IsADirectory
            | Error::InvalidInput(_)
    )
}

/// Ranges without overlaps and without neighbours that touch.
fn joined(ranges: &BTreeSet<(u64, u64)>) -> Vec<Range<u64>> {
    let mut joined: Vec<Range<u64>> = Vec::new();
    for &(start, end) in ranges {
        match joined.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ => joined.push(start..end),
        }
    }
    joined
}

impl FileSystem for Rescue<'_> {
    fn root(&self) -> Ino {
        self.tree.root()
    }

    fn storage(&self) -> Storage {
        let storage = self.tree.storage();
        if self.keep_damaged {
            return Storage {
                block_encoding: None,
                stored_extents: false,
                ..storage
            };
        }
        storage
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        self.tree.metadata(ino)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        let listed = self.list(dir)?;
        Ok(listed.into_iter().map(|(entry, _)| entry).collect())
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        self.list(dir)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        self.tree.list_readable(dir)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        self.tree.lookup(dir, name)
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        self.tree.read_link(link)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        match self.tree.xattrs(ino) {
            Err(error) if self.keep_damaged && is_damage(&error) => {
                self.found().xattrs.entry(ino).or_insert(error);
                Ok(Vec::new())
            }
            xattrs => xattrs,
        }
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        if !self.keep_damaged {
            return self.tree.extents(file, from);
        }
        let mut extents = self.extents_or_hole(file, from)?;
        for extent in &mut extents {
            if let ExtentKind::Encoded(_) = extent.kind {
                extent.kind = ExtentKind::Plain { stored_offset: 0 };
            }
            extent.id = None;
        }
        Ok(extents)
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self.tree.read_at(file, offset, buf) {
            Err(error) if self.keep_damaged && is_damage(&error) => {
                let left = self.tree.metadata(file)?.size.saturating_sub(offset);
                let len = left.min(buf.len() as u64) as usize;
                self.read_pieces(file, offset, &mut buf[..len])?;
                Ok(len)
            }
            read => read,
        }
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        self.tree.read_encoded(file, extent, stored)
    }
}
