//! Finds the files of an older image whose encoded data a new image can keep.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use xxhash::Xxh64;

use crate::{
    Checksum, Error, Extent, ExtentKind, FileId, FileKind, FileSystem, Ino, Inventory, Metadata,
    Parallel, ordered,
};

/// How much of the content of files that may have moved is hashed. A wrong pair costs time and
/// nothing else: data is compared before it is kept.
const HEAD_BYTES: usize = 64 << 10;

/// Number of files that one job hashes.
const BATCH: usize = 32;

/// Stands for a file without a counterpart. No container has a file of this number.
const NONE: Ino = Ino(u64::MAX);

/// A counterpart has the size of its file.
const SAME_SIZE: u8 = 1;
/// A counterpart counts as equal although nothing was compared.
const TRUSTED: u8 = 2;

/// An older image, whose encoded data a new image keeps where its content is unchanged.
#[derive(Clone)]
pub struct OldImage {
    /// Its files.
    pub tree: Arc<dyn FileSystem>,
    /// Whether a file with the path, size and modification time of an old one counts as unchanged.
    /// Otherwise its content is compared.
    pub trust_mtime: bool,
}

impl fmt::Debug for OldImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OldImage { tree, trust_mtime } = self;
        f.debug_struct("OldImage")
            .field("storage", &tree.storage())
            .field("trust_mtime", trust_mtime)
            .finish()
    }
}

/// Which file of an older image may hold the content of each file of an inventory.
///
/// Unreadable parts of the old image count as missing.
pub struct Reuse<'a> {
    old: &'a OldImage,
    inventory: &'a Inventory<'a>,
    /// By file.
    counterparts: Vec<Ino>,
    /// By file: [`SAME_SIZE`], [`TRUSTED`].
    flags: Vec<u8>,
}

impl<'a> Reuse<'a> {
    /// Pairs the regular files of `inventory` with those of an older image: by their paths, and
    /// those without one of equal size there by their size and a hash of the beginning of their
    /// content.
    pub fn find(inventory: &'a Inventory<'a>, old: &'a OldImage, parallel: Parallel) -> Reuse<'a> {
        let files = inventory.file_count() as usize;
        let mut reuse = Reuse {
            old,
            inventory,
            counterparts: vec![NONE; files],
            flags: vec![0; files],
        };
        let trees = [&*old.tree, inventory.tree()];
        let whole_seconds = trees.iter().any(|tree| tree.storage().whole_seconds);
        reuse.pair_by_path(whole_seconds);
        reuse.pair_by_content(parallel);
        reuse
    }

    /// The number of files with a counterpart.
    pub fn len(&self) -> usize {
        self.counterparts.iter().filter(|&&ino| ino != NONE).count()
    }

    /// Whether no file has a counterpart.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The counterpart of a file.
    pub fn counterpart(&self, file: FileId) -> Option<Ino> {
        let ino = self.counterparts[file.0 as usize];
        (ino != NONE).then_some(ino)
    }

    /// Whether the counterpart of a file has its size.
    pub fn has_same_size(&self, file: FileId) -> bool {
        self.flags[file.0 as usize] & SAME_SIZE != 0
    }

    /// Whether a file counts as equal to its counterpart without a comparison.
    pub fn is_trusted(&self, file: FileId) -> bool {
        self.flags[file.0 as usize] & TRUSTED != 0
    }

    /// Up to `max` files with a counterpart and at least `bytes` bytes, evenly chosen.
    pub fn sample(&self, bytes: u64, max: usize) -> impl Iterator<Item = FileId> + '_ {
        let is_paired = move |file: &FileId| {
            self.counterpart(*file).is_some() && self.inventory.size(*file) >= bytes
        };
        let count = self.inventory.files().filter(is_paired).count();
        let step = count.div_ceil(max.max(1)).max(1);
        self.inventory.files().filter(is_paired).step_by(step)
    }

    /// Reads the stored bytes of an encoded extent of a file's counterpart into the beginning of
    /// `buffer`, whose length stays the same. Returns their number and the checksum that they
    /// match; `None` if they cannot be read, or are more than the buffer holds.
    pub fn read_encoded(
        &self,
        file: FileId,
        extent: &Extent,
        buffer: &mut Vec<u8>,
    ) -> Option<(usize, Option<Checksum>)> {
        let bytes = buffer.len();
        let ExtentKind::Encoded(encoding) = extent.kind else {
            return None;
        };
        if encoding.stored_len > bytes as u64 {
            return None;
        }
        let ino = self.counterpart(file)?;
        let read = self.old.tree.read_encoded(ino, extent, buffer);
        let len = buffer.len();
        buffer.resize(bytes, 0);
        let checksum = read.ok().filter(|_| len <= bytes)?;
        buffer[len..].fill(0);
        Some((len, checksum))
    }

    /// Walks both trees side by side.
    fn pair_by_path(&mut self, whole_seconds: bool) {
        let (inventory, old) = (self.inventory, &*self.old.tree);
        let mut open = vec![(inventory.file(inventory.root()), old.root())];
        while let Some((dir, old_dir)) = open.pop() {
            let Ok(theirs) = old.read_dir(old_dir) else {
                continue;
            };
            let mut theirs = theirs.into_iter().peekable();
            for entry in inventory.entries(dir) {
                let name = &*inventory.name(entry);
                while theirs.next_if(|their| &*their.name < name).is_some() {}
                let Some(their) = theirs.next_if(|their| &*their.name == name) else {
                    continue;
                };
                let file = inventory.file(entry);
                let kind = inventory.kind(file);
                if kind == FileKind::Directory && their.kind == kind {
                    open.push((file, their.ino));
                } else if kind == FileKind::Regular && their.kind == kind {
                    let Ok(metadata) = old.metadata(their.ino) else {
                        continue;
                    };
                    self.pair(file, their.ino, &metadata, whole_seconds);
                }
            }
        }
    }

    /// Takes an old file with one of the file's names as its counterpart, unless another one fits
    /// better.
    fn pair(&mut self, file: FileId, ino: Ino, metadata: &Metadata, whole_seconds: bool) {
        let ours = self.inventory.metadata(file);
        let is_same_size = ours.size == metadata.size;
        if ours.size == 0 || metadata.size == 0 || self.has_same_size(file) && !is_same_size {
            return;
        }
        let is_same_time = ours.mtime.seconds == metadata.mtime.seconds
            && (whole_seconds || ours.mtime.nanoseconds == metadata.mtime.nanoseconds);
        let mut flags = 0;
        if is_same_size {
            flags |= SAME_SIZE;
            if is_same_time && self.old.trust_mtime {
                flags |= TRUSTED;
            }
        }
        self.counterparts[file.0 as usize] = ino;
        self.flags[file.0 as usize] = flags;
    }

    /// Pairs files that have no old file of equal size at their path with old files elsewhere.
    fn pair_by_content(&mut self, parallel: Parallel) {
        let inventory = self.inventory;
        let is_new = |file: &FileId| {
            inventory.kind(*file) == FileKind::Regular
                && inventory.size(*file) > 0
                && !self.has_same_size(*file)
        };
        let sizes: HashSet<u64> = inventory
            .files()
            .filter(is_new)
            .map(|file| inventory.size(file))
            .collect();
        if sizes.is_empty() {
            return;
        }
        let theirs = self.unpaired(&sizes);
        let sizes: HashSet<u64> = theirs.iter().map(|&(_, size)| size).collect();
        let ours: Vec<(Ino, u64)> = inventory
            .files()
            .filter(is_new)
            .map(|file| (inventory.ino(file), inventory.size(file)))
            .filter(|(_, size)| sizes.contains(size))
            .collect();
        let mut known = HashMap::new();
        for (ino, size, hash) in hashed(&*self.old.tree, theirs, parallel) {
            known.entry((size, hash)).or_insert(ino);
        }
        let moved: HashMap<Ino, Ino> = hashed(inventory.tree(), ours, parallel)
            .into_iter()
            .filter_map(|(ino, size, hash)| Some((ino, *known.get(&(size, hash))?)))
            .collect();
        for file in inventory.files() {
            if let Some(&ino) = moved.get(&inventory.ino(file)) {
                self.counterparts[file.0 as usize] = ino;
                self.flags[file.0 as usize] = SAME_SIZE;
            }
        }
    }

    /// The old files of these sizes that are not the counterparts of files of equal size, in the
    /// order of their numbers.
    fn unpaired(&self, sizes: &HashSet<u64>) -> Vec<(Ino, u64)> {
        let old = &*self.old.tree;
        let taken: HashSet<Ino> = self
            .inventory
            .files()
            .filter(|&file| self.has_same_size(file))
            .filter_map(|file| self.counterpart(file))
            .collect();
        let mut found = Vec::new();
        // The directories of a damaged image can have a circle.
        let mut seen = HashSet::from([old.root()]);
        let mut open = vec![old.root()];
        while let Some(dir) = open.pop() {
            for entry in old.read_dir(dir).unwrap_or_default() {
                if entry.kind == FileKind::Directory && seen.insert(entry.ino) {
                    open.push(entry.ino);
                }
                if entry.kind == FileKind::Regular
                    && !taken.contains(&entry.ino)
                    && let Ok(metadata) = old.metadata(entry.ino)
                    && sizes.contains(&metadata.size)
                {
                    found.push((entry.ino, metadata.size));
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Adds a hash of the beginning of its content to each file that can be read.
fn hashed(fs: &dyn FileSystem, files: Vec<(Ino, u64)>, parallel: Parallel) -> Vec<(Ino, u64, u64)> {
    let mut all = Vec::with_capacity(files.len());
    let result = ordered(
        parallel,
        files.chunks(BATCH),
        || vec![0; HEAD_BYTES],
        |buf, batch| {
            let hash = |&(ino, size): &(Ino, u64)| {
                let len = size.min(HEAD_BYTES as u64) as usize;
                let read = fs.read_at(ino, 0, &mut buf[..len]);
                let is_whole = read.is_ok_and(|read| read == len);
                is_whole.then(|| {
                    let mut hash = Xxh64::new(0);
                    hash.update(&buf[..len]);
                    (ino, size, hash.digest())
                })
            };
            Ok::<Vec<_>, Error>(batch.iter().filter_map(hash).collect())
        },
        |batch| {
            all.extend(batch);
            Ok(())
        },
    );
    debug_assert!(result.is_ok());
    all
}

/// A thread's place in the extents of the old files. Files are mostly asked for in order, so one
/// answer of the old image serves many questions.
#[derive(Debug, Default)]
pub struct OldExtents {
    file: Option<FileId>,
    extents: Vec<Extent>,
}

impl OldExtents {
    /// The extent of a file's counterpart that begins at this offset.
    pub fn at(&mut self, reuse: &Reuse<'_>, file: FileId, offset: u64) -> Option<Extent> {
        let covers = |extents: &[Extent]| {
            let begin = extents.first().map(|extent| extent.offset);
            let end = extents.last().map(Extent::end);
            begin.is_some_and(|begin| begin <= offset) && end.is_some_and(|end| offset < end)
        };
        if self.file != Some(file) || !covers(&self.extents) {
            let ino = reuse.counterpart(file)?;
            self.file = Some(file);
            self.extents = reuse.old.tree.extents(ino, offset).unwrap_or_default();
        }
        let index = self
            .extents
            .partition_point(|extent| extent.end() <= offset);
        let extent = self.extents.get(index).copied();
        extent.filter(|extent| extent.offset == offset)
    }

    /// How many bytes the extents take that the old image named together with the last one: a lower
    /// bound for the file.
    pub fn stored_bytes(&self) -> u64 {
        let stored = |extent: &Extent| match extent.kind {
            ExtentKind::Encoded(encoding) if encoding.unencoded_len == extent.len => {
                encoding.stored_len
            }
            ExtentKind::Plain { .. } => extent.len,
            // The end of a file, in a block with those of others, or nothing.
            _ => 0,
        };
        self.extents.iter().map(stored).sum()
    }
}
