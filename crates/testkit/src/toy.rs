//! The smallest possible container: shows how to add a new one, both reading and writing.
//!
//! A toy is a list of texts, each preceded by its length in 8 bytes. Each path has a record: the
//! path, the path of the file's first name and, if these are equal, numbers, the content or link
//! target, and the names and values of extended attributes.

use tree::{
    Checksum, Corrupt, Device, DirEntry, Error, Extent, ExtentKind, FileKind, FileSystem, Ino,
    Inventory, Limits, Metadata, Overlay, Result, Storage, StoreId, Xattr, is_valid_name,
};

/// Writes a tree as a toy.
pub fn write_toy(fs: &dyn FileSystem) -> Result<Vec<u8>> {
    let inventory = Inventory::of(fs, &Limits::default())?;
    let mut toy = Vec::new();
    let mut put = |text: &[u8]| {
        toy.extend((text.len() as u64).to_le_bytes());
        toy.extend(text);
    };
    for entry in inventory.names() {
        let file = inventory.file(entry);
        put(&inventory.path(entry));
        put(&inventory.path(inventory.first_name(file)));
        if inventory.is_first_name(entry) {
            let (ino, of) = (inventory.ino(file), inventory.metadata(file));
            let mode = of.kind.mode_bits() | u32::from(of.permissions);
            let Device { major, minor } = of.rdev;
            let numbers = [mode, of.uid, of.gid, major, minor, of.mtime.nanoseconds];
            put(numbers.map(u32::to_le_bytes).as_flattened());
            put(&of.mtime.seconds.to_le_bytes());
            let mut content = vec![0; of.size as usize];
            if of.kind == FileKind::Symlink {
                content = fs.read_link(ino)?;
            } else if !content.is_empty() && fs.read_at(ino, 0, &mut content)? < content.len() {
                return Err(Error::Changed);
            }
            put(&content);
            for xattr in fs.xattrs(ino)? {
                put(&xattr.name);
                put(&xattr.value);
            }
            put(&[]);
        }
    }
    Ok(toy)
}

/// A toy as a tree to read: files with their content.
pub struct Toy(Overlay<Vec<u8>>, StoreId);

impl Toy {
    /// Reads a toy.
    pub fn open(bytes: &[u8]) -> Result<Toy> {
        let root = Metadata::new(FileKind::Directory, 0o755);
        let mut toy = Toy(Overlay::new(&root, Vec::new()), StoreId::new());
        let mut rest = bytes;
        while !rest.is_empty() {
            let (at, got) = ((bytes.len() - rest.len()) as u64, bytes.len() as u64);
            let what = "record of a toy is broken";
            toy.add(&mut rest).ok_or(Corrupt { what, at, got })?;
        }
        Ok(toy)
    }

    /// Adds one record.
    fn add(&mut self, rest: &mut &[u8]) -> Option<()> {
        let Toy(tree, _) = self;
        let (path, first) = (text(rest)?, text(rest)?);
        let names = |path| <[u8]>::split(path, |&byte| byte == b'/').filter(|it| !it.is_empty());
        let ino = if path != first {
            tree.resolve(names(first)).ok()?.0
        } else {
            let (numbers, _) = text(rest)?.as_chunks();
            let number = |index| numbers.get(index).copied().map(u32::from_le_bytes);
            let mode = number(0)?;
            let mut of = Metadata::new(FileKind::from_mode(mode)?, mode as u16 & 0o7777);
            (of.uid, of.gid) = (number(1)?, number(2)?);
            (of.rdev.major, of.rdev.minor) = (number(3)?, number(4)?);
            of.mtime.seconds = i64::from_le_bytes(text(rest)?.try_into().ok()?);
            of.mtime.nanoseconds = number(5)?;
            let content = text(rest)?;
            of.size = content.len() as u64;
            let ino = match of.kind {
                FileKind::Symlink => tree.add_symlink(&of, content, Vec::new()).ok()?,
                _ if path.is_empty() => {
                    tree.change(tree.root(), |root| root.clone_from(&of)).ok()?;
                    tree.root()
                }
                _ => tree.add(&of, content.to_vec()).ok()?,
            };
            while let name @ [_, ..] = text(rest)? {
                let (name, value) = (name.into(), text(rest)?.into());
                tree.set_xattr(ino, Xattr { name, value }).ok()?;
            }
            ino
        };
        if let Some((name, dir)) = names(path).collect::<Vec<_>>().split_last() {
            let (dir, _) = tree.resolve(dir.iter().copied()).ok()?;
            let linked = is_valid_name(name).then(|| tree.link(dir, name, ino).ok());
            linked??;
        }
        Some(())
    }
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, after) = rest.split_first_chunk()?;
    let text;
    (text, *rest) = after.split_at_checked(u64::from_le_bytes(*len).try_into().ok()?)?;
    Some(text)
}

impl FileSystem for Toy {
    fn root(&self) -> Ino {
        self.0.root()
    }

    fn storage(&self) -> Storage {
        Storage::plain(self.1)
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        self.0.metadata(ino)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        self.0.read_dir(dir)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        self.0.read_dir_with_metadata(dir)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        tree::all_or_nothing(self.read_dir(dir))
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        self.0.lookup(dir, name)
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        self.0.read_link(link)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        self.0.xattrs(ino)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        let (offset, len) = (0, self.0.metadata(file)?.size);
        let kind = ExtentKind::Plain { stored_offset: 0 };
        let all = Extent {
            offset,
            len,
            kind,
            id: None,
        };
        Ok((from < len).then_some(all).into_iter().collect())
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let content = self.0.content(file).ok_or(Error::NotFound)?;
        let left = content.get(offset as usize..).unwrap_or_default();
        let len = left.len().min(buf.len());
        buf[..len].copy_from_slice(&left[..len]);
        Ok(len)
    }

    fn read_encoded(&self, _: Ino, _: &Extent, _: &mut Vec<u8>) -> Result<Option<Checksum>> {
        Err(Error::InvalidInput("a toy encodes nothing"))
    }
}
