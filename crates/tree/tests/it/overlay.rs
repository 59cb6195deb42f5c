//! A tree on top of another one: each operation of a replayed stream, compared with a tree created
//! directly.

use std::collections::HashSet;
use std::sync::Arc;

use testkit::MemoryFs;
use tree::manifest::Manifest;
use tree::{
    Aspects, Checksum, Device, DirEntry, Error, Extent, ExtentKind, FileAttributes, FileIdentity,
    FileKind, FileSystem, Ino, Metadata, Overlay, Result, Storage, StoreId, Time, Xattr,
};

/// An overlay whose files have either new content or that of the base.
struct Replayed {
    tree: Overlay<Option<Vec<u8>>>,
    store: StoreId,
}

impl Replayed {
    fn over(base: Arc<dyn FileSystem>) -> Replayed {
        Replayed {
            tree: Overlay::over(base),
            store: StoreId::new(),
        }
    }

    /// The file at this path, names joined by `/`.
    fn at(&self, path: &str) -> Ino {
        let names = path.split('/').filter(|name| !name.is_empty());
        self.tree.resolve(names.map(str::as_bytes)).unwrap().0
    }

    /// The directory and the name of a path.
    fn place<'p>(&self, path: &'p str) -> (Ino, &'p [u8]) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        (self.at(dir), name.as_bytes())
    }

    fn make(&mut self, path: &str, kind: FileKind, permissions: u16) -> Ino {
        let ino = self.tree.add(&new(kind, permissions), None).unwrap();
        self.name(path, ino);
        ino
    }

    fn name(&mut self, path: &str, ino: Ino) {
        let (dir, name) = self.place(path);
        assert_eq!(self.tree.link(dir, name, ino).unwrap(), None, "{path}");
    }

    fn unlink(&mut self, path: &str) {
        let (dir, name) = self.place(path);
        self.tree.unlink(dir, name).unwrap();
    }

    fn rename(&mut self, from: &str, to: &str) -> Option<Ino> {
        let (from, to) = (self.place(from), self.place(to));
        self.tree.rename(from, to).unwrap()
    }

    fn write(&mut self, path: &str, content: &[u8]) {
        let ino = self.at(path);
        *self.tree.content_mut(ino).unwrap() = Some(content.to_vec());
        let len = content.len() as u64;
        self.tree
            .change(ino, |metadata| metadata.size = len)
            .unwrap();
    }
}

impl FileSystem for Replayed {
    fn root(&self) -> Ino {
        self.tree.root()
    }

    fn storage(&self) -> Storage {
        Storage::plain(self.store)
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        self.tree.metadata(ino)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        self.tree.read_dir(dir)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        self.tree.read_dir_with_metadata(dir)
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
        self.tree.xattrs(ino)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        match self.tree.content(file) {
            Some(Some(content)) => {
                let whole = Extent {
                    offset: 0,
                    len: content.len() as u64,
                    kind: ExtentKind::Plain { stored_offset: 0 },
                    id: None,
                };
                Ok((from < whole.len).then_some(whole).into_iter().collect())
            }
            _ => self.tree.base(file)?.extents(file, from),
        }
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        match self.tree.content(file) {
            Some(Some(content)) => {
                let left = content.get(offset as usize..).unwrap_or_default();
                let len = left.len().min(buf.len());
                buf[..len].copy_from_slice(&left[..len]);
                Ok(len)
            }
            _ => self.tree.base(file)?.read_at(file, offset, buf),
        }
    }

    fn read_encoded(&self, file: Ino, of: &Extent, to: &mut Vec<u8>) -> Result<Option<Checksum>> {
        self.tree.base(file)?.read_encoded(file, of, to)
    }
}

/// The metadata of an unchanged file, in both trees.
fn new(kind: FileKind, permissions: u16) -> Metadata {
    Metadata {
        mtime: Time {
            seconds: 1_700_000_000,
            nanoseconds: 1,
        },
        ..Metadata::new(kind, permissions)
    }
}

fn base() -> Arc<MemoryFs> {
    let mut fs = MemoryFs::new();
    let root = fs.root();
    let dir = fs.add_dir(root, "dir");
    let inner = fs.add_dir(dir, "inner");
    let file = fs.add_file(inner, "file", b"content of the base");
    fs.add_xattr(file, b"user.a", b"1");
    fs.add_xattr(file, b"user.b", b"2");
    fs.add_file(dir, "other", b"other");
    fs.add_dir(root, "empty");
    let linked = fs.add_file(root, "linked", b"has two names");
    fs.link(dir, "also", linked);
    fs.add_symlink(root, "symlink", b"dir/inner");
    fs.metadata_mut(file).attributes = FileAttributes(0x10);
    fs.metadata_mut(linked).identity = Some(FileIdentity {
        number: 260,
        generation: 7,
        transaction: 9,
    });
    Arc::new(fs)
}

fn manifest(fs: &dyn FileSystem) -> Manifest {
    Manifest::of(fs, &Aspects::ALL).unwrap()
}

/// Checks that all directories of a tree give consistent answers; returns the numbers of all files.
fn numbers(fs: &dyn FileSystem) -> HashSet<Ino> {
    let (mut all, mut dirs) = (HashSet::from([fs.root()]), vec![fs.root()]);
    while let Some(dir) = dirs.pop() {
        let entries = fs.read_dir(dir).unwrap();
        let with_metadata = fs.read_dir_with_metadata(dir).unwrap();
        assert_eq!(entries.len(), with_metadata.len());
        for (entry, (same, metadata)) in entries.into_iter().zip(with_metadata) {
            assert_eq!(entry, same);
            assert_eq!(fs.lookup(dir, &entry.name).unwrap(), entry);
            assert_eq!(fs.metadata(entry.ino).unwrap(), metadata);
            assert_eq!(entry.kind, metadata.kind);
            if entry.kind == FileKind::Directory {
                dirs.push(entry.ino);
            }
            all.insert(entry.ino);
        }
    }
    all
}

#[test]
fn nothing_over_a_base_is_the_base() {
    let base = base();
    let same = Replayed::over(Arc::<MemoryFs>::clone(&base));
    assert_eq!(manifest(&same), manifest(&*base));
    assert_eq!(numbers(&same), numbers(&*base));
    let linked = same.at("linked");
    let metadata = same.metadata(linked).unwrap();
    assert_eq!(metadata, base.metadata(linked).unwrap());
    assert!(metadata.identity.is_some());
    assert_eq!(same.tree.node_count(), 0);
}

#[test]
fn a_replayed_stream_is_the_tree_that_was_sent() {
    let base = base();
    let before = manifest(&*base);
    let mut fs = Replayed::over(Arc::<MemoryFs>::clone(&base));
    let numbers_before = numbers(&fs);
    let file = fs.at("dir/inner/file");

    // New files of all types are created under temporary names first, as in a btrfs stream.
    fs.make("o257-1", FileKind::Regular, 0o600);
    fs.make("o258-1", FileKind::Directory, 0o700);
    let device = fs.make("o259-1", FileKind::CharDevice, 0o644);
    let rdev = Device { major: 1, minor: 3 };
    fs.tree
        .change(device, |metadata| metadata.rdev = rdev)
        .unwrap();
    let link = new(FileKind::Symlink, 0o777);
    let link = fs.tree.add_symlink(&link, b"linked", None).unwrap();
    fs.name("o260-1", link);
    fs.rename("o258-1", "new");
    fs.rename("o257-1", "new/file");
    fs.rename("o259-1", "new/null");
    fs.rename("o260-1", "new/link");
    fs.write("new/file", b"written by the stream");
    // A directory with contents moves into a new one, and gets a name of its own in addition to
    // those of the base.
    assert_eq!(fs.rename("dir", "new/moved"), None);
    fs.make("new/moved/inner/beside", FileKind::Fifo, 0o600);
    // A file is renamed, loses its first name, and its third comes back.
    let linked = fs.at("linked");
    fs.name("new/third", linked);
    assert_eq!(fs.metadata(linked).unwrap().nlink, 3);
    fs.unlink("linked");
    fs.unlink("new/third");
    assert_eq!(fs.metadata(linked).unwrap().nlink, 1);
    fs.name("new/third", linked);
    // A file replaces another one.
    fs.unlink("new/moved/other");
    fs.make("new/moved/other", FileKind::Socket, 0o755);
    let empty = fs.at("empty");
    assert!(fs.tree.is_empty(empty).unwrap());
    assert!(!fs.tree.is_empty(fs.at("new/moved")).unwrap());
    fs.unlink("empty");
    // Metadata, attributes, content.
    let time = Time {
        seconds: -5,
        nanoseconds: 999_999_999,
    };
    assert_eq!(fs.at("new/moved/inner/file"), file);
    fs.tree
        .change(file, |metadata| {
            metadata.permissions = 0o4711;
            (metadata.uid, metadata.gid) = (1000, 100);
            (metadata.mtime, metadata.atime) = (time, Some(time));
        })
        .unwrap();
    assert_eq!(fs.xattrs(file).unwrap().len(), 2);
    fs.tree.remove_xattr(file, b"user.a").unwrap();
    for (name, value) in [("user.b", "3"), ("user.0", "4")] {
        let xattr = Xattr {
            name: name.as_bytes().into(),
            value: value.as_bytes().into(),
        };
        fs.tree.set_xattr(file, xattr).unwrap();
    }
    let changed = fs.metadata(file).unwrap();
    assert_eq!(changed.attributes, FileAttributes(0x10));
    assert_eq!(changed.atime, Some(time));
    fs.write("new/moved/also", b"has");
    assert_eq!(fs.metadata(linked).unwrap().identity, None);

    let mut must = MemoryFs::new();
    let root = must.root();
    let dir = must.add_dir(root, "new");
    must.metadata_mut(dir).permissions = 0o700;
    let written = must.add_file(dir, "file", b"written by the stream");
    must.metadata_mut(written).permissions = 0o600;
    let null = must.add_special(dir, "null", FileKind::CharDevice, rdev);
    must.metadata_mut(null).permissions = 0o644;
    must.add_symlink(dir, "link", b"linked");
    let moved = must.add_dir(dir, "moved");
    let inner = must.add_dir(moved, "inner");
    let kept = must.add_file(inner, "file", b"content of the base");
    must.add_xattr(kept, b"user.0", b"4");
    must.add_xattr(kept, b"user.b", b"3");
    let metadata = must.metadata_mut(kept);
    metadata.permissions = 0o4711;
    (metadata.uid, metadata.gid, metadata.mtime) = (1000, 100, time);
    must.add_special(inner, "beside", FileKind::Fifo, Device::default());
    let socket = must.add_special(moved, "other", FileKind::Socket, Device::default());
    must.metadata_mut(socket).permissions = 0o755;
    let also = must.add_file(moved, "also", b"has");
    must.link(dir, "third", also);
    must.add_symlink(root, "symlink", b"dir/inner");
    let (is, must) = (manifest(&fs), manifest(&must));
    assert!(is == must, "{}", is.difference(&must));

    // Files of the base keep their numbers, and the base is unchanged.
    let known: Vec<Ino> = numbers_before
        .intersection(&numbers(&fs))
        .copied()
        .collect();
    assert_eq!(known.len(), numbers_before.len() - 2); // Without `other` and `empty`.
    assert_eq!(manifest(&*base), before);
}

#[test]
fn names_are_replaced_and_links_counted() {
    let base = base();
    let mut fs = Replayed::over(base);
    let (other, linked) = (fs.at("dir/other"), fs.at("linked"));
    // The file that had the name is returned, whether from the base or not, and has one name less.
    assert_eq!(fs.rename("dir/other", "linked"), Some(linked));
    assert_eq!(fs.metadata(linked).unwrap().nlink, 1);
    assert_eq!(fs.at("linked"), other);
    let mine = fs.make("mine", FileKind::Regular, 0o644);
    assert_eq!(fs.rename("linked", "mine"), Some(mine));
    assert_eq!(fs.metadata(other).unwrap().nlink, 1);
    assert_eq!(fs.rename("mine", "mine"), None);
    assert_eq!(fs.at("mine"), other);
    let names: Vec<DirEntry> = fs.read_dir(fs.root()).unwrap();
    let names: Vec<&[u8]> = names.iter().map(|entry| &*entry.name).collect();
    assert_eq!(names, [&b"dir"[..], b"empty", b"mine", b"symlink"]);
    numbers(&fs);
}

#[test]
fn what_cannot_be_is_an_error_and_changes_nothing() {
    let mut fs = Replayed::over(base());
    let before = manifest(&fs);
    let (root, linked, missing) = (fs.root(), fs.at("linked"), Ino(12_345));
    let tree = &mut fs.tree;
    assert!(matches!(
        tree.link(linked, b"x", linked),
        Err(Error::NotADirectory)
    ));
    assert!(matches!(tree.find(linked, b"x"), Err(Error::NotADirectory)));
    assert!(matches!(tree.unlink(root, b"x"), Err(Error::NotFound)));
    let rename = tree.rename((root, b"x"), (root, b"y"));
    assert!(matches!(rename, Err(Error::NotFound)));
    let rename = tree.rename((root, b"dir"), (linked, b"y"));
    assert!(matches!(rename, Err(Error::NotADirectory)));
    assert!(matches!(
        tree.link(root, b"x", missing),
        Err(Error::NotFound)
    ));
    assert!(matches!(
        tree.remove_xattr(linked, b"x"),
        Err(Error::NotFound)
    ));
    assert!(matches!(
        tree.read_link(linked),
        Err(Error::InvalidInput(_))
    ));
    let path = [&b"linked"[..], b"x"];
    assert!(matches!(tree.resolve(path), Err(Error::NotADirectory)));
    assert!(matches!(tree.resolve([&b"x"[..]]), Err(Error::NotFound)));
    assert_eq!(manifest(&fs), before);
    // Hidden files are gone.
    fs.unlink("linked");
    let (tree, root) = (&mut fs.tree, root);
    assert!(matches!(tree.unlink(root, b"linked"), Err(Error::NotFound)));
    assert!(matches!(tree.lookup(root, b"linked"), Err(Error::NotFound)));
}

#[test]
fn numbers_of_overlays_over_each_other_differ() {
    let mut first = Replayed::over(base());
    let mine = first.make("mine", FileKind::Regular, 0o644);
    first.write("mine", b"of the first");
    let first = Arc::new(first);
    let mut second = Replayed::over(Arc::<Replayed>::clone(&first));
    second.make("mine too", FileKind::Regular, 0o644);
    second.write("mine too", b"of the second");
    second.rename("mine", "dir/mine");
    assert_eq!(second.at("dir/mine"), mine);
    assert_eq!(numbers(&second).len(), numbers(&*first).len() + 1);
    let text = manifest(&second).to_string();
    assert!(text.contains("./dir/mine ") && text.contains("./mine\\040too "));

    // A base that uses numbers of the overlay.
    let mut hostile = MemoryFs::new();
    let root = hostile.root();
    for below in 0..1000 {
        let ino = Ino(mine.0 - (below << 32));
        hostile.push_entry(root, format!("{below:04}"), ino, FileKind::Regular);
    }
    let tree: Overlay<()> = Overlay::over(Arc::new(hostile));
    assert!(matches!(tree.read_dir(root), Err(Error::Limit(_))));
}
