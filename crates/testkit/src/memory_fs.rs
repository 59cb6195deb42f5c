//! A tree in memory, as good or as bad as a test wants it.

use std::collections::BTreeMap;

use tree::{
    Checksum, Device, DirEntry, Error, Extent, ExtentId, ExtentKind, FileAttributes, FileKind,
    FileSystem, Ino, Metadata, Result, Storage, StoreId, Time, Xattr, entry_named, with_metadata,
};

/// A [`FileSystem`] in memory.
///
/// What is added by the named methods is a sound tree. [`MemoryFs::metadata_mut`], [`MemoryFs::push_entry`] and
/// [`MemoryFs::lie_about_extents`] make it as unsound as a hostile image can claim to be.
#[derive(Debug)]
pub struct MemoryFs {
    nodes: Vec<Node>,
    store: StoreId,
}

impl Clone for MemoryFs {
    fn clone(&self) -> Self {
        // Either may change from now on.
        MemoryFs {
            nodes: self.nodes.clone(),
            store: StoreId::new(),
        }
    }
}

#[derive(Clone, Debug)]
struct Node {
    metadata: Metadata,
    /// How often it was linked.
    names: u32,
    entries: Vec<DirEntry>,
    target: Vec<u8>,
    xattrs: Vec<Xattr>,
    /// Pieces of content by offset; holes between them.
    content: BTreeMap<u64, Vec<u8>>,
    extents: Option<Vec<Extent>>,
    /// The stored bytes of encoded extents, by the extents' offset.
    encoded: BTreeMap<u64, Vec<u8>>,
}

impl Default for MemoryFs {
    fn default() -> Self {
        MemoryFs::new()
    }
}

impl MemoryFs {
    /// A tree with an empty root directory.
    pub fn new() -> MemoryFs {
        let mut fs = MemoryFs {
            nodes: Vec::new(),
            store: StoreId::new(),
        };
        fs.add_node(FileKind::Directory, 0o755);
        fs
    }

    fn add_node(&mut self, kind: FileKind, permissions: u16) -> Ino {
        let number = self.nodes.len() as u64;
        self.nodes.push(Node {
            metadata: Metadata {
                kind,
                permissions,
                uid: 0,
                gid: 0,
                nlink: 1,
                size: 0,
                rdev: Device::default(),
                mtime: Time {
                    seconds: 1_700_000_000,
                    nanoseconds: 1,
                },
                atime: None,
                ctime: None,
                btime: None,
                attributes: FileAttributes::default(),
                identity: None,
            },
            names: 0,
            entries: Vec::new(),
            target: Vec::new(),
            xattrs: Vec::new(),
            content: BTreeMap::new(),
            extents: None,
            encoded: BTreeMap::new(),
        });
        Ino(number)
    }

    fn node(&self, ino: Ino) -> Result<&Node> {
        let at = usize::try_from(ino.0).ok();
        at.and_then(|at| self.nodes.get(at)).ok_or(Error::NotFound)
    }

    fn node_mut(&mut self, ino: Ino) -> &mut Node {
        &mut self.nodes[ino.0 as usize]
    }

    /// Gives a file another name.
    pub fn link(&mut self, dir: Ino, name: impl AsRef<[u8]>, ino: Ino) {
        let entry = DirEntry {
            name: name.as_ref().into(),
            ino,
            kind: self.nodes[ino.0 as usize].metadata.kind,
        };
        let entries = &mut self.node_mut(dir).entries;
        let at = entries.partition_point(|other| other.name < entry.name);
        entries.insert(at, entry);
        let node = self.node_mut(ino);
        node.names += 1;
        node.metadata.nlink = node.names;
    }

    fn add(&mut self, dir: Ino, name: impl AsRef<[u8]>, kind: FileKind, permissions: u16) -> Ino {
        let ino = self.add_node(kind, permissions);
        self.link(dir, name, ino);
        ino
    }

    /// Adds a directory with mode 0755.
    pub fn add_dir(&mut self, dir: Ino, name: impl AsRef<[u8]>) -> Ino {
        self.add(dir, name, FileKind::Directory, 0o755)
    }

    /// Adds a regular file with mode 0644.
    pub fn add_file(&mut self, dir: Ino, name: impl AsRef<[u8]>, content: &[u8]) -> Ino {
        self.add_sparse(dir, name, content.len() as u64, &[(0, content)])
    }

    /// Adds a regular file of `size` bytes with holes between the pieces of content, which must not overlap.
    pub fn add_sparse(
        &mut self,
        dir: Ino,
        name: impl AsRef<[u8]>,
        size: u64,
        pieces: &[(u64, &[u8])],
    ) -> Ino {
        let ino = self.add(dir, name, FileKind::Regular, 0o644);
        let node = self.node_mut(ino);
        node.metadata.size = size;
        let pieces = pieces.iter().filter(|(_, bytes)| !bytes.is_empty());
        node.content = pieces.map(|&(at, bytes)| (at, bytes.to_vec())).collect();
        ino
    }

    /// Adds a symbolic link.
    pub fn add_symlink(&mut self, dir: Ino, name: impl AsRef<[u8]>, target: &[u8]) -> Ino {
        let ino = self.add(dir, name, FileKind::Symlink, 0o777);
        let node = self.node_mut(ino);
        node.metadata.size = target.len() as u64;
        node.target = target.to_vec();
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
        let ino = self.add(dir, name, kind, 0o600);
        self.node_mut(ino).metadata.rdev = rdev;
        ino
    }

    /// Adds an extended attribute to a file.
    pub fn add_xattr(&mut self, ino: Ino, name: &[u8], value: &[u8]) {
        let xattrs = &mut self.node_mut(ino).xattrs;
        xattrs.push(Xattr {
            name: name.into(),
            value: value.into(),
        });
        xattrs.sort_unstable();
    }

    /// The description of a file, to be changed at will.
    pub fn metadata_mut(&mut self, ino: Ino) -> &mut Metadata {
        &mut self.node_mut(ino).metadata
    }

    /// Adds an entry at the end of a directory, unchecked and unsorted.
    pub fn push_entry(&mut self, dir: Ino, name: impl AsRef<[u8]>, ino: Ino, kind: FileKind) {
        let name = name.as_ref().into();
        let entry = DirEntry { name, ino, kind };
        self.node_mut(dir).entries.push(entry);
    }

    /// Says that an extent of a file is encoded, and stored as these bytes. The content stays what it is. Extents of a file
    /// are added in their order, and together they are all that it has.
    pub fn add_encoded(&mut self, file: Ino, extent: Extent, stored: &[u8]) {
        let node = self.node_mut(file);
        node.extents.get_or_insert_default().push(extent);
        node.encoded.insert(extent.offset, stored.to_vec());
    }

    /// Makes the file system answer every question for the extents of a file with these.
    pub fn lie_about_extents(&mut self, file: Ino, extents: Vec<Extent>) {
        self.node_mut(file).extents = Some(extents);
    }
}

impl FileSystem for MemoryFs {
    fn root(&self) -> Ino {
        Ino(0)
    }

    fn storage(&self) -> Storage {
        Storage {
            stored_extents: self.nodes.iter().any(|node| !node.encoded.is_empty()),
            ..Storage::plain(self.store)
        }
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        Ok(self.node(ino)?.metadata.clone())
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        let node = self.node(dir)?;
        match node.metadata.kind {
            FileKind::Directory => Ok(node.entries.clone()),
            _ => Err(Error::NotADirectory),
        }
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        with_metadata(self, self.read_dir(dir)?)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        entry_named(self.read_dir(dir)?, name)
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        let node = self.node(link)?;
        match node.metadata.kind {
            FileKind::Symlink => Ok(node.target.clone()),
            _ => Err(Error::InvalidInput("the node in memory is no link")),
        }
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        Ok(self.node(ino)?.xattrs.clone())
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        let node = self.node(file)?;
        if node.metadata.kind == FileKind::Directory {
            return Err(Error::IsADirectory);
        }
        if let Some(extents) = &node.extents {
            return Ok(extents.clone());
        }
        let size = node.metadata.size;
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
        for (&start, bytes) in &node.content {
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
        let node = self.node(file)?;
        if node.metadata.kind != FileKind::Regular {
            return Err(Error::InvalidInput("the node in memory has no content"));
        }
        let len = node.metadata.size.saturating_sub(offset);
        let len = len.min(buf.len() as u64) as usize;
        let buf = &mut buf[..len];
        buf.fill(0);
        for (&start, bytes) in &node.content {
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
        let encoded = self.node(file)?.encoded.get(&extent.offset);
        stored.clear();
        stored.extend(encoded.ok_or(Error::InvalidInput("the node in memory is not encoded"))?);
        Ok(None)
    }
}
