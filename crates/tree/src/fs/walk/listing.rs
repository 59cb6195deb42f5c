//! Lists a tree.

use super::{EntryId, FileId, FileRecord, Inventory, NameRecord, OwnerRecord, is_valid_name};
use crate::fs::inode_index::InodeIndex;
use crate::fs::{DirEntry, FileKind, FileSystem, Ino, Metadata};
use crate::{Error, Limits, Result, Scratch, high_u32, low_u32, wide_u64};

impl<'t> Inventory<'t> {
    /// Walks all of `tree`.
    ///
    /// # Errors
    /// [`File`](crate::Error::File) with the path of a file that cannot be read or whose
    /// description is impossible: an invalid, repeated or unsorted name, a directory that contains
    /// itself or appears twice, or a type that differs from the one in its directory.
    /// [`Limit`](crate::Error::Limit) if `limits`, 2^32 - 1 names or 4 GiB of names are exceeded.
    pub fn of(tree: &'t dyn FileSystem, limits: &Limits) -> Result<Self> {
        Inventory::in_scratch(tree, limits, &Scratch::memory())
    }

    /// Like [`Inventory::of`], with only the names in memory, and what is in use.
    ///
    /// # Errors
    /// As there.
    pub fn in_scratch(
        tree: &'t dyn FileSystem,
        limits: &Limits,
        scratch: &Scratch,
    ) -> Result<Self> {
        Scratch::catch(|| Listing::new(tree, limits, scratch).run())
    }
}

/// An inventory under construction.
struct Listing<'a> {
    limits: Limits,
    inventory: Inventory<'a>,
    known: InodeIndex,
}

impl<'a> Listing<'a> {
    fn new(tree: &'a dyn FileSystem, limits: &Limits, scratch: &Scratch) -> Self {
        Listing {
            limits: *limits,
            inventory: Inventory::new(tree, scratch),
            known: InodeIndex::default(),
        }
    }

    fn run(mut self) -> Result<Inventory<'a>> {
        let tree = self.inventory.tree;
        let root = tree.root();
        let metadata = tree.metadata(root).map_err(|e| e.in_file("read", b""))?;
        if metadata.kind != FileKind::Directory {
            return Err(Error::NotADirectory.in_file("read", b""));
        }
        self.add_entry(b"", 0, 0)?;
        self.meet(root);
        self.add_file(root, &metadata)?;
        // Directories still to be read, with their depth. The last one is next, so the walk is
        // depth first.
        let mut open = vec![(EntryId(0), 0u32)];
        while let Some((entry, depth)) = open.pop() {
            if let Err(error) = self.read_dir(entry, depth, &mut open) {
                return Err(match error {
                    Error::File { .. } => error,
                    error => error.in_file("read", &self.inventory.path(entry)),
                });
            }
        }
        self.inventory.find_first_names();
        self.inventory.files.shrink_to_fit();
        self.inventory.times.shrink_to_fit();
        self.inventory.far_times.shrink_to_fit();
        self.inventory.entries.shrink_to_fit();
        self.inventory.files_of.shrink_to_fit();
        self.inventory.first_entries.shrink_to_fit();
        self.inventory.names.shrink_to_fit();
        Ok(self.inventory)
    }

    fn read_dir(&mut self, dir: EntryId, depth: u32, open: &mut Vec<(EntryId, u32)>) -> Result<()> {
        if depth > self.limits.depth_max {
            return Err(Error::Limit("directories are nested too deeply"));
        }
        let parent = self.inventory.file(dir);
        let tree = self.inventory.tree;
        let ino = self.inventory.ino(parent);
        let children = match tree.read_dir_with_metadata(ino) {
            Ok(children) => children,
            Err(error) => {
                // Names the entry, if the directory itself can be listed.
                let mut entries = tree.read_dir(ino)?.into_iter();
                let entry = entries.find(|entry| tree.metadata(entry.ino).is_err());
                return Err(match entry {
                    Some(entry) => error.in_file("read", &self.child_path(dir, &entry.name)),
                    None => error,
                });
            }
        };
        let start = self.inventory.entry_count();
        let dirs_before = open.len();
        let mut last: Option<&[u8]> = None;
        for (child, metadata) in &children {
            if let Err(error) = self.add_child(parent, depth, last, child, metadata, open) {
                return Err(error.in_file("read", &self.child_path(dir, &child.name)));
            }
            last = Some(&child.name);
        }
        let end = self.inventory.entry_count();
        let range = wide_u64(end, start);
        self.inventory
            .change(parent.0, |record| record.size = range);
        open[dirs_before..].reverse();
        Ok(())
    }

    fn child_path(&self, dir: EntryId, name: &[u8]) -> Vec<u8> {
        let mut path = self.inventory.path(dir);
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        path
    }

    fn add_child(
        &mut self,
        parent: FileId,
        depth: u32,
        last: Option<&[u8]>,
        child: &DirEntry,
        metadata: &Metadata,
        open: &mut Vec<(EntryId, u32)>,
    ) -> Result<()> {
        if !is_valid_name(&child.name) {
            return Err(Error::Inconsistent("a file has an impossible name"));
        }
        if last.is_some_and(|last| last >= &*child.name) {
            return Err(Error::Inconsistent("a directory is not sorted"));
        }
        if child.kind != metadata.kind {
            return Err(Error::Inconsistent(
                "a file's type differs from its directory entry",
            ));
        }
        let met = self.meet(child.ino);
        // No links: each name is a file of its own.
        let is_link = metadata.nlink > 0 || child.kind == FileKind::Directory;
        let file = match met.filter(|_| is_link) {
            None => {
                let file = self.add_file(child.ino, metadata)?;
                if metadata.kind == FileKind::Directory {
                    open.push((EntryId(self.inventory.entry_count()), depth + 1));
                }
                file
            }
            Some(_) if child.kind == FileKind::Directory => {
                return Err(Error::Inconsistent("a directory is in two places"));
            }
            Some(file) => {
                if self.inventory.kind(FileId(file)) != child.kind {
                    return Err(Error::Inconsistent("a file has two types"));
                }
                self.inventory
                    .change(file, |record| record.owner.names += 1);
                file
            }
        };
        self.add_entry(&child.name, file, parent.0)
    }

    /// The file with this number, if it was met.
    fn meet(&mut self, ino: Ino) -> Option<u32> {
        let inventory = &self.inventory;
        let files = inventory.files().map(|file| file.0);
        self.known
            .meet(ino.0, files, |file| inventory.ino(FileId(file)).0)
    }

    fn add_entry(&mut self, name: &[u8], file: u32, parent: u32) -> Result<()> {
        if self.inventory.entries.len() >= u32::MAX as usize {
            return Err(Error::Limit("more than 2^32 - 1 names"));
        }
        let too_long = Error::Limit("more than 4 GiB of names");
        let name_at = u32::try_from(self.inventory.names.len()).map_err(|_| too_long)?;
        self.inventory.names.push(name);
        let entry = NameRecord { name_at, parent };
        self.inventory.push_entry(entry, file);
        Ok(())
    }

    fn add_file(&mut self, ino: Ino, metadata: &Metadata) -> Result<u32> {
        let file = self.inventory.files.len();
        if file as u64 >= self.limits.inodes_max.min(u64::from(u32::MAX)) {
            return Err(Error::Limit("too many files"));
        }
        let file = file as u32;
        let size = match metadata.kind {
            FileKind::Regular | FileKind::Symlink => metadata.size,
            FileKind::BlockDevice | FileKind::CharDevice => {
                wide_u64(metadata.rdev.minor, metadata.rdev.major)
            }
            _ => 0,
        };
        if metadata.kind == FileKind::Regular {
            let total = self.inventory.content_bytes.saturating_add(size);
            if total > self.limits.content_bytes_max {
                return Err(Error::Limit("the files have more content than is allowed"));
            }
            self.inventory.content_bytes = total;
        }
        let mut has_times = 0;
        let mut times = [0; 9];
        for (n, time) in [metadata.atime, metadata.ctime, metadata.btime]
            .into_iter()
            .enumerate()
        {
            if let Some(time) = time {
                has_times |= 1 << n;
                let seconds = time.seconds.cast_unsigned();
                times[3 * n] = low_u32(seconds);
                times[3 * n + 1] = high_u32(seconds);
                times[3 * n + 2] = time.nanoseconds;
            }
        }
        if has_times != 0 {
            while self.inventory.times.len() < file as usize {
                self.inventory.times.push([0; 9]);
            }
            self.inventory.times.push(times);
        }
        let record = FileRecord {
            ino: ino.0,
            size,
            mtime: self.inventory.pack_time(metadata.mtime),
            owner: OwnerRecord {
                uid: metadata.uid,
                gid: metadata.gid,
                nlink: metadata.nlink.max(1),
                names: 1,
                attributes: metadata.attributes.0,
                permissions: metadata.permissions,
                kind: metadata.kind,
                has_times,
            },
        };
        // The root has its entry already.
        let entry = self.inventory.entry_count() - u32::from(file == 0);
        self.inventory.push(&record, entry);
        let has_names = metadata.nlink > 1 && metadata.kind != FileKind::Directory;
        let inventory = &self.inventory;
        self.known
            .add(file, has_names, |file| inventory.ino(FileId(file)).0);
        Ok(file)
    }
}
