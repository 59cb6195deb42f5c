//! A tree in memory, valid or not, as the test requires.

use std::collections::{BTreeMap, HashMap};

use tree::{
    Checksum, Device, DirEntry, Error, Extent, ExtentId, ExtentKind, FileKind, FileSystem, Ino,
    Metadata, Overlay, Result, Storage, StoreId, Time, Xattr, entry_named, with_metadata,
};

/// A [`FileSystem`] in memory.
///
/// The `add_…` methods build a valid tree. [`MemoryFs::metadata_mut`], [`MemoryFs::push_entry`] and
/// [`MemoryFs::lie_about_extents`] make it as invalid as a hostile image can be.
#[derive(Debug)]
pub struct MemoryFs {
    tree: Overlay<Content>,
    store: StoreId,
    /// Metadata to report instead of the actual one.
    stated: HashMap<Ino, Metadata>,
    /// Entries appended to directories, unsorted.
    pushed: HashMap<Ino, Vec<DirEntry>>,
}

impl Clone for MemoryFs {
    fn clone(&self) -> Self {
        // Tests can change either of them later.
        MemoryFs {
            tree: self.tree.clone(),
            store: StoreId::new(),
            stated: self.stated.clone(),
            pushed: self.pushed.clone(),
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Content {
    /// Pieces by offset, with holes between them.
    pieces: BTreeMap<u64, Vec<u8>>,
    extents: Option<Vec<Extent>>,
    /// The stored bytes of encoded extents, by the extents' offset.
    encoded: BTreeMap<u64, Vec<u8>>,
}

impl Default for MemoryFs {
    fn default() -> Self {
        MemoryFs::new()
    }
}

/// The default metadata of a file.
fn metadata(kind: FileKind, permissions: u16) -> Metadata {
    Metadata {
        mtime: Time {
            seconds: 1_700_000_000,
            nanoseconds: 1,
        },
        ..Metadata::new(kind, permissions)
    }
}

impl MemoryFs {
    /// A tree with an empty root directory.
    pub fn new() -> MemoryFs {
        MemoryFs {
            tree: Overlay::new(&metadata(FileKind::Directory, 0o755), Content::default()),
            store: StoreId::new(),
            stated: HashMap::new(),
            pushed: HashMap::new(),
        }
    }

    fn content(&self, ino: Ino) -> Result<&Content> {
        self.tree.content(ino).ok_or(Error::NotFound)
    }

    fn content_mut(&mut self, ino: Ino) -> &mut Content {
        self.tree.content_mut(ino).unwrap()
    }

    /// Gives a file another name.
    pub fn link(&mut self, dir: Ino, name: impl AsRef<[u8]>, ino: Ino) {
        let replaced = self.tree.link(dir, name.as_ref(), ino).unwrap();
        assert_eq!(replaced, None, "the name is taken");
        if let Some(stated) = self.stated.get_mut(&ino) {
            stated.nlink = self.tree.metadata(ino).unwrap().nlink;
        }
    }

    fn add(&mut self, dir: Ino, name: impl AsRef<[u8]>, metadata: &Metadata) -> Ino {
        let ino = self.tree.add(metadata, Content::default()).unwrap();
        self.link(dir, name, ino);
        ino
    }

    /// Adds a directory with mode 0755.
    pub fn add_dir(&mut self, dir: Ino, name: impl AsRef<[u8]>) -> Ino {
        self.add(dir, name, &metadata(FileKind::Directory, 0o755))
    }

    /// Adds a directory with mode 0755 and without a name, for [`MemoryFs::push_entry`].
    pub fn add_unnamed_dir(&mut self) -> Ino {
        let metadata = metadata(FileKind::Directory, 0o755);
        self.tree.add(&metadata, Content::default()).unwrap()
    }

    /// Adds a regular file with mode 0644.
    pub fn add_file(&mut self, dir: Ino, name: impl AsRef<[u8]>, content: &[u8]) -> Ino {
        self.add_sparse(dir, name, content.len() as u64, &[(0, content)])
    }

    /// Adds a regular file of `size` bytes, with holes between the pieces of content. The pieces
    /// must not overlap.
    pub fn add_sparse(
        &mut self,
        dir: Ino,
        name: impl AsRef<[u8]>,
        size: u64,
        pieces: &[(u64, &[u8])],
    ) -> Ino {
        let mut metadata = metadata(FileKind::Regular, 0o644);
        metadata.size = size;
        let ino = self.add(dir, name, &metadata);
        let pieces = pieces.iter().filter(|(_, bytes)| !bytes.is_empty());
        self.content_mut(ino).pieces = pieces.map(|&(at, bytes)| (at, bytes.to_vec())).collect();
        ino
    }

    /// Adds a symbolic link.
    pub fn add_symlink(&mut self, dir: Ino, name: impl AsRef<[u8]>, target: &[u8]) -> Ino {
        let metadata = metadata(FileKind::Symlink, 0o777);
        let link = self.tree.add_symlink(&metadata, target, Content::default());
        let ino = link.unwrap();
        self.link(dir, name, ino);
        ino
    }

    /// Adds a device, fifo or socket with mode 0600.
    pub fn add_special(
        &mut self,
        dir: Ino,
        name: impl AsRef<[u8]>,
        kind: FileKind,
        rdev: Device,
    ) -> Ino {
        let mut metadata = metadata(kind, 0o600);
        metadata.rdev = rdev;
        self.add(dir, name, &metadata)
    }

    /// Adds an extended attribute to a file.
    pub fn add_xattr(&mut self, ino: Ino, name: &[u8], value: &[u8]) {
        let xattr = Xattr {
            name: name.into(),
            value: value.into(),
        };
        self.tree.set_xattr(ino, xattr).unwrap();
    }

    /// The metadata of a file, mutably.
    pub fn metadata_mut(&mut self, ino: Ino) -> &mut Metadata {
        let tree = &self.tree;
        let known = || tree.metadata(ino).unwrap();
        self.stated.entry(ino).or_insert_with(known)
    }

    /// Appends an entry to a directory, unchecked and unsorted.
    pub fn push_entry(&mut self, dir: Ino, name: impl AsRef<[u8]>, ino: Ino, kind: FileKind) {
        let name = name.as_ref().into();
        let entry = DirEntry { name, ino, kind };
        self.pushed.entry(dir).or_default().push(entry);
    }

    /// Declares an extent of a file as encoded, and stored as these bytes. The content is
    /// unchanged. The extents of a file must be added in order and cover all of it.
    pub fn add_encoded(&mut self, file: Ino, extent: Extent, stored: &[u8]) {
        let content = self.content_mut(file);
        content.extents.get_or_insert_default().push(extent);
        content.encoded.insert(extent.offset, stored.to_vec());
    }

    /// Makes the file system return these extents for every query about a file.
    pub fn lie_about_extents(&mut self, file: Ino, extents: Vec<Extent>) {
        self.content_mut(file).extents = Some(extents);
    }
}

impl FileSystem for MemoryFs {
    fn root(&self) -> Ino {
        self.tree.root()
    }

    fn storage(&self) -> Storage {
        let mut contents =
            (0..self.tree.node_count() as u64).map(|number| self.content(Ino(number)));
        Storage {
            stored_extents: contents.any(|content| content.is_ok_and(|it| !it.encoded.is_empty())),
            ..Storage::plain(self.store)
        }
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        match self.stated.get(&ino) {
            Some(stated) => Ok(stated.clone()),
            None => self.tree.metadata(ino),
        }
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        if self.metadata(dir)?.kind != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let mut entries = self.tree.read_dir(dir)?;
        entries.extend(self.pushed.get(&dir).into_iter().flatten().cloned());
        Ok(entries)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        with_metadata(self, self.read_dir(dir)?)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        tree::all_or_nothing(self.read_dir(dir))
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        entry_named(self.read_dir(dir)?, name)
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        self.tree.read_link(link)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        self.tree.xattrs(ino)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        let content = self.content(file)?;
        let Metadata { kind, size, .. } = self.metadata(file)?;
        if kind == FileKind::Directory {
            return Err(Error::IsADirectory);
        }
        if let Some(extents) = &content.extents {
            return Ok(extents.clone());
        }
        let mut extents = Vec::new();
        let mut at = from;
        let mut add = |offset: u64, end: u64, kind: ExtentKind, id: Option<ExtentId>| {
            if offset < end {
                let len = end - offset;
                extents.push(Extent {
                    offset,
                    len,
                    kind,
                    id,
                });
            }
        };
        for (&start, bytes) in &content.pieces {
            let end = start + bytes.len() as u64;
            if end <= at {
                continue;
            }
            add(at, start.max(at), ExtentKind::Hole, None);
            let begin = start.max(at);
            let stored_offset = begin - start;
            let id = ExtentId(file.0 << 40 | start & ((1 << 40) - 1));
            add(begin, end, ExtentKind::Plain { stored_offset }, Some(id));
            at = end;
        }
        add(at, size, ExtentKind::Hole, None);
        Ok(extents)
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let content = self.content(file)?;
        let Metadata { kind, size, .. } = self.metadata(file)?;
        if kind != FileKind::Regular {
            return Err(Error::InvalidInput("the node in memory has no content"));
        }
        let len = size.saturating_sub(offset);
        let len = len.min(buf.len() as u64) as usize;
        let buf = &mut buf[..len];
        buf.fill(0);
        for (&start, bytes) in &content.pieces {
            let end = start + bytes.len() as u64;
            let (from, to) = (start.max(offset), end.min(offset + len as u64));
            if from < to {
                let piece = &bytes[(from - start) as usize..(to - start) as usize];
                buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(piece);
            }
        }
        Ok(len)
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        let encoded = self.content(file)?.encoded.get(&extent.offset);
        stored.clear();
        stored.extend(encoded.ok_or(Error::InvalidInput("the node in memory is not encoded"))?);
        Ok(None)
    }
}
