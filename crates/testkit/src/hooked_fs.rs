//! A file system with a hook before each read.

use tree::{Checksum, DirEntry, Error, Extent, FileSystem, Ino, Metadata, Result, Storage, Xattr};

/// Called before each read of a file's content, with the file and the offset. If it returns an
/// error, so does the read.
type Hook = Box<dyn Fn(Ino, u64) -> Result<()> + Send + Sync>;

/// Wraps a file system with a hook before each read of content, which can change the file or make
/// the read fail.
pub struct HookedFs<F> {
    inner: F,
    before_read: Hook,
}

impl<F: FileSystem> HookedFs<F> {
    /// Wraps `inner`; `before_read` is called before each read.
    pub fn new(
        inner: F,
        before_read: impl Fn(Ino, u64) -> Result<()> + Send + Sync + 'static,
    ) -> HookedFs<F> {
        HookedFs {
            inner,
            before_read: Box::new(before_read),
        }
    }
}

impl<F: FileSystem> FileSystem for HookedFs<F> {
    fn root(&self) -> Ino {
        self.inner.root()
    }

    fn storage(&self) -> Storage {
        self.inner.storage()
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        self.inner.metadata(ino)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        self.inner.read_dir(dir)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        self.inner.read_dir_with_metadata(dir)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        self.inner.list_readable(dir)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        self.inner.lookup(dir, name)
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        self.inner.read_link(link)
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        self.inner.xattrs(ino)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        self.inner.extents(file, from)
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        (self.before_read)(file, offset)?;
        self.inner.read_at(file, offset, buf)
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        (self.before_read)(file, extent.offset)?;
        self.inner.read_encoded(file, extent, stored)
    }
}
