//! The source tree without excluded files, and with the edits that apply to all files.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::pattern::Concern;
use super::{Edits, IdMap, Selection};
use crate::fs::{
    Checksum, DevicePlace, DirEntry, Extent, FileKind, FileSystem, HostContent, Ino, Metadata,
    Storage, Xattr,
};
use crate::{Error, Result, to_u64};

/// The source of an edited tree, with all edits except the additions.
pub(super) struct Filtered {
    source: Arc<dyn FileSystem>,
    pub(super) edits: Edits,
    /// The paths of the source's directories seen so far; empty if no pattern needs them.
    paths: Mutex<HashMap<Ino, Box<[u8]>>>,
    /// Whether directories that no pattern of the selection matches have selected files below them.
    leading: Mutex<HashMap<Ino, bool>>,
}

impl Filtered {
    pub(super) fn new(source: Arc<dyn FileSystem>, edits: Edits) -> Filtered {
        let root = source.root();
        Filtered {
            source,
            edits,
            paths: Mutex::new(HashMap::from([(root, Box::default())])),
            leading: Mutex::default(),
        }
    }

    fn needs_paths(&self) -> bool {
        self.edits.selection.is_partial()
    }

    fn paths(&self) -> MutexGuard<'_, HashMap<Ino, Box<[u8]>>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of a known directory, with spare capacity for appending a name.
    fn path_of(&self, dir: Ino) -> Result<Vec<u8>> {
        let paths = self.paths();
        let path = paths.get(&dir).ok_or(Error::NotFound)?;
        let mut path = path.to_vec();
        if !path.is_empty() {
            path.push(b'/');
        }
        Ok(path)
    }

    /// Whether a file of the source is in the tree. `path` is that of its directory; the name is
    /// appended to it.
    fn keeps(&self, path: &mut Vec<u8>, entry: &DirEntry) -> bool {
        let len = path.len();
        path.extend_from_slice(&entry.name);
        let is_directory = entry.kind == FileKind::Directory;
        let keeps = match self.concern(path) {
            Concern::Nothing => false,
            Concern::Below if self.edits.selection.optional => is_directory,
            Concern::Below => is_directory && self.leads_to_selected(entry.ino, path),
            Concern::Above | Concern::Whole => true,
        };
        if keeps && is_directory {
            self.paths().insert(entry.ino, path.as_slice().into());
        }
        path.truncate(len);
        keeps
    }

    /// How the selection relates to a path.
    fn concern(&self, path: &[u8]) -> Concern {
        let Selection {
            only,
            exclude,
            max_depth,
            ..
        } = &self.edits.selection;
        let depth = path.iter().filter(|byte| **byte == b'/').count() + 1;
        let is_excluded = exclude.concern(path) >= Concern::Above;
        if is_excluded || max_depth.is_some_and(|max| depth > max) {
            Concern::Nothing
        } else if only.is_empty() {
            Concern::Above
        } else {
            only.concern(path)
        }
    }

    /// Whether files below a directory are selected, or it cannot be known.
    fn leads_to_selected(&self, dir: Ino, path: &[u8]) -> bool {
        let known = || self.leading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&leads) = known().get(&dir) {
            return leads;
        }
        let Ok(entries) = self.source.read_dir(dir) else {
            return true; // The error is reported where the directory is listed.
        };
        // Directories of a hostile image can contain themselves.
        let mut seen = HashSet::from([dir]);
        let mut open = vec![(dir, path.to_vec(), entries.into_iter())];
        let leads = 'search: loop {
            let Some((_, path, entries)) = open.last_mut() else {
                break false;
            };
            let Some(entry) = entries.next() else {
                open.pop();
                continue;
            };
            let path = [&path[..], b"/", &entry.name].concat();
            match self.concern(&path) {
                Concern::Above | Concern::Whole => break true,
                Concern::Below if entry.kind == FileKind::Directory => {}
                _ => continue,
            }
            match known().get(&entry.ino) {
                Some(true) => break 'search true,
                Some(false) => continue,
                None if !seen.insert(entry.ino) => continue,
                None => {}
            }
            match self.source.read_dir(entry.ino) {
                Ok(entries) => open.push((entry.ino, path, entries.into_iter())),
                Err(_) => break true,
            }
        };
        let mut known = known();
        known.extend(seen.into_iter().map(|dir| (dir, false)));
        known.extend(open.into_iter().map(|(dir, ..)| (dir, true)));
        leads
    }

    /// Whether a directory has no entries, or none before files were left out.
    pub(super) fn is_empty_in_source(&self, dir: Ino) -> Result<bool> {
        Ok(self.source.read_dir(dir)?.is_empty())
    }

    /// Removes excluded files from a listing.
    fn retain<T>(
        &self,
        dir: Ino,
        listing: &mut Vec<T>,
        entry_of: impl Fn(&T) -> &DirEntry,
    ) -> Result<()> {
        if self.needs_paths() {
            let mut path = self.path_of(dir)?;
            listing.retain(|item| self.keeps(&mut path, entry_of(item)));
        }
        Ok(())
    }

    /// Applies the edits to the metadata of a file of the source.
    pub(super) fn edit_metadata(&self, metadata: &mut Metadata) {
        let edits = &self.edits;
        if edits.no_hard_links && metadata.kind != FileKind::Directory {
            metadata.nlink = 0;
        }
        metadata.uid = edits.uid.unwrap_or(mapped(metadata.uid, &edits.uid_maps));
        metadata.gid = edits.gid.unwrap_or(mapped(metadata.gid, &edits.gid_maps));
        let mode = match metadata.kind {
            FileKind::Directory => edits.dir_mode.as_ref(),
            FileKind::Symlink => None,
            _ => edits.file_mode.as_ref(),
        };
        if let Some(mode) = mode {
            let is_directory = metadata.kind == FileKind::Directory;
            metadata.permissions = mode.apply(metadata.permissions, is_directory);
        }
        self.edit_times(metadata);
    }

    /// Applies the edits to the metadata of this file of the source.
    fn edit_metadata_of(&self, file: Ino, metadata: &mut Metadata) -> Result<()> {
        if self.edits.retarget.is_some() && metadata.kind == FileKind::Symlink {
            metadata.size = to_u64(self.read_link(file)?.len());
        }
        self.edit_metadata(metadata);
        Ok(())
    }

    /// Sets the time of a file, if all files get the same one.
    pub(super) fn edit_times(&self, metadata: &mut Metadata) {
        if let Some(time) = self.edits.time {
            metadata.mtime = time;
            for other in [
                &mut metadata.atime,
                &mut metadata.ctime,
                &mut metadata.btime,
            ] {
                *other = other.map(|_| time);
            }
        }
    }
}

fn mapped(id: u32, maps: &[IdMap]) -> u32 {
    let map = maps.iter().find(|map| {
        id.checked_sub(map.from)
            .is_some_and(|index| index < map.count)
    });
    map.map_or(id, |map| map.to.wrapping_add(id - map.from))
}

impl FileSystem for Filtered {
    fn root(&self) -> Ino {
        self.source.root()
    }

    fn storage(&self) -> Storage {
        self.source.storage()
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        let mut metadata = self.source.metadata(ino)?;
        if ino == self.source.root() {
            let root = &self.edits.root;
            metadata.uid = root.uid.unwrap_or(metadata.uid);
            metadata.gid = root.gid.unwrap_or(metadata.gid);
            metadata.mtime = root.mtime.unwrap_or(metadata.mtime);
            if let Some(mode) = &root.mode {
                metadata.permissions = mode.apply(metadata.permissions, true);
            }
        }
        self.edit_metadata_of(ino, &mut metadata)?;
        Ok(metadata)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        let mut listing = self.source.read_dir(dir)?;
        self.retain(dir, &mut listing, |entry| entry)?;
        Ok(listing)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        let mut listing = self.source.read_dir_with_metadata(dir)?;
        self.retain(dir, &mut listing, |(entry, _)| entry)?;
        for (entry, metadata) in &mut listing {
            self.edit_metadata_of(entry.ino, metadata)?;
        }
        Ok(listing)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        let (mut listing, mut errors) = self.source.list_readable(dir);
        if let Err(error) = self.retain(dir, &mut listing, |entry| entry) {
            return (Vec::new(), vec![error]);
        }
        if self.needs_paths()
            && let Ok(mut path) = self.path_of(dir)
        {
            errors.retain(|error| match error {
                Error::File { path: name, .. } => {
                    let len = path.len();
                    path.extend_from_slice(name);
                    let concern = self.concern(&path);
                    path.truncate(len);
                    concern != Concern::Nothing
                }
                _ => true,
            });
        }
        (listing, errors)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        let entry = self.source.lookup(dir, name)?;
        if self.needs_paths() && !self.keeps(&mut self.path_of(dir)?, &entry) {
            return Err(Error::NotFound);
        }
        Ok(entry)
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        let target = self.source.read_link(link)?;
        let Some(root) = &self.edits.retarget else {
            return Ok(target);
        };
        let start = target.iter().position(|&byte| byte != b'/');
        let below = target[start.unwrap_or(target.len())..].strip_prefix(&**root);
        Ok(match below {
            Some(rest @ [b'/', ..]) => rest.to_vec(),
            _ => target,
        })
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        if self.edits.no_xattrs {
            return Ok(Vec::new());
        }
        let mut xattrs = self.source.xattrs(ino)?;
        let (only, exclude) = (&self.edits.xattrs_only, &self.edits.xattrs_exclude);
        xattrs.retain(|xattr| {
            (only.is_empty() || only.matches(&xattr.name)) && !exclude.matches(&xattr.name)
        });
        Ok(xattrs)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        self.source.extents(file, from)
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.source.read_at(file, offset, buf)
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        self.source.read_encoded(file, extent, stored)
    }

    fn host_content(&self, file: Ino) -> Option<HostContent<'_>> {
        self.source.host_content(file)
    }

    fn stored_at(&self, file: Ino, extent: &Extent) -> Option<DevicePlace> {
        self.source.stored_at(file, extent)
    }
}
