//! A host directory as a tree.
//!
//! Every file is reached by name from the open root, never through a symbolic link, so nothing
//! outside the root is read even if the tree changes meanwhile. Files are identified by mount,
//! device and inode number, so that a directory which is mounted in two places is two directories.
//! A file that was moved or replaced after it was listed is an error, and so is content that
//! changed since.

mod inodes;
mod items;
mod steps;
mod stored;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use linux::{OpenFlags, Stat, Timestamp};

use super::{
    Checksum, Device, DirEntry, Extent, ExtentKind, FileAttributes, FileKind, FileSystem, Ino,
    Metadata, NOTHING_ENCODED, Storage, StoreId, Time, Xattr, is_valid_name,
};
use crate::{Error, Result};
use inodes::{InodeTable, ROOT, Volume};
pub use steps::{HostFile, HostStep, walk_host_dir};
use stored::{EXTENTS_MAX, OpenInode, StoredExtents};

pub(crate) use items::{ExtentItem, ItemBody};

/// Open directories, and open files, that are kept for later calls; together these bound the number
/// of descriptors.
const HANDLES_MAX: usize = 48;

/// Files up to this size that occupy at least as much space as they have bytes are not searched for
/// holes.
const DENSE_BYTES_MAX: u64 = 64 << 10;

/// Linux does not find data in the last page that a file can have if the file is in a tmpfs, since
/// the end of that page is not a valid offset. So this page counts as data.
const LAST_PAGE: u64 = (i64::MAX as u64) & !4095;

/// The `STATX_ATTR_*` bits for attributes that a container can store. Their values equal
/// `FS_COMPR_FL`, `FS_IMMUTABLE_FL`, `FS_APPEND_FL` and `FS_NODUMP_FL`.
const ATTRIBUTES: u64 = 0x04 | 0x10 | 0x20 | 0x40;

/// Why files of /proc and similar file systems are not copied.
const KERNEL_VIEW: &str =
    "copying files of proc, sysfs and the like, which do not report their true size";

/// Which times of the files a [`HostDir`] states, in addition to the modification time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostTimes {
    /// No others: then two copies of a directory are the same tree. Reading or copying a file
    /// changes the others.
    Modification,
    /// The access time, which can be restored.
    #[default]
    Access,
    /// The times of access, change and birth. A copy always has other ones.
    All,
}

/// A host directory with everything below it, including mounts.
///
/// Sizes and times are those of the last [`FileSystem::metadata`] call or listing. Reading a file
/// whose size or change time differs from that fails, so a copy never mixes two states. Attributes
/// are those that `statx` reports. Memory use grows with the number of listed files, by about 20
/// bytes each and their names, and by 10 more if a directory is listed again.
#[derive(Debug)]
pub struct HostDir {
    root: OwnedFd,
    times: HostTimes,
    storage: Storage,
    table: RwLock<InodeTable>,
    dirs: Mutex<Handles<OwnedFd>>,
    files: Mutex<Handles<OpenFile>>,
    /// The files that have changed, if that is accepted.
    changed: Option<Mutex<BTreeSet<Ino>>>,
    /// The btrfs of which extents are read as they are stored.
    stored: Option<StoredExtents>,
    /// Where the root is, if nothing of other mounts and devices is shown.
    only: Option<Volume>,
    /// Whether the mount points of others are left out.
    hides_mount_points: bool,
}

/// A regular file, open for reading.
#[derive(Debug)]
struct OpenFile {
    file: File,
    /// If it had no holes when it was opened, its size and the stamp of that time.
    dense: Option<(u64, u32)>,
}

impl HostDir {
    /// Opens a directory; symbolic links in `path` are followed. Files have the
    /// [`HostTimes::Access`] times.
    ///
    /// # Errors
    /// The report of the kernel.
    pub fn open(path: &Path) -> Result<HostDir> {
        HostDir::open_with(path, HostTimes::default())
    }

    /// Like [`HostDir::open`], with these times of the files.
    ///
    /// # Errors
    /// As for [`HostDir::open`].
    pub fn open_with(path: &Path, times: HostTimes) -> Result<HostDir> {
        let root = match linux::open_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(Error::NotADirectory);
            }
            root => root?,
        };
        let mut table = InodeTable::default();
        table.add(0, b"", &linux::stat(&root)?)?;
        Ok(HostDir {
            storage: Storage::plain(StoreId::new()),
            root,
            times,
            table: RwLock::new(table),
            dirs: Mutex::new(Handles::default()),
            files: Mutex::new(Handles::default()),
            changed: None,
            stored: None,
            only: None,
            hides_mount_points: false,
        })
    }

    /// The same directory without what is on other file systems: mount points are empty
    /// directories, those of bind mounts too, and so are subvolumes of btrfs. Must be called before
    /// anything is listed.
    ///
    /// # Errors
    /// The report of the kernel.
    pub fn on_one_file_system(mut self) -> Result<HostDir> {
        self.only = Some(Volume::of(&linux::stat(&self.root)?));
        Ok(self)
    }

    /// The same, also without the mount points themselves.
    ///
    /// # Errors
    /// The report of the kernel.
    pub fn without_mount_points(mut self) -> Result<HostDir> {
        self.hides_mount_points = true;
        self.on_one_file_system()
    }

    /// The same directory, but if it is on btrfs, its files have the extents that are stored there,
    /// with identities, and compressed ones can be read as they are. This needs privilege, and does
    /// not go with accepting changes. Must be called before anything is listed.
    ///
    /// # Errors
    /// What the kernel reports; `PermissionDenied` for a directory on btrfs without privilege.
    pub fn with_stored_extents(mut self) -> Result<HostDir> {
        self.stored = StoredExtents::of(&self.root)?;
        self.storage.stored_extents = self.stored.is_some();
        Ok(self)
    }

    /// The same directory, but files that change after they were listed are read as they are then,
    /// and one that was replaced by another regular file is read from that. A file keeps the size
    /// that was listed: it is cut, or padded with zeros. Must be called before anything is listed.
    #[must_use]
    pub fn accepting_changes(mut self) -> HostDir {
        self.changed = Some(Mutex::default());
        self.table_mut().sizes = Some(Vec::new());
        self
    }

    /// The path of a directory below the root, as it was listed.
    pub(super) fn path(&self, dir: Ino) -> Result<Vec<u8>> {
        self.table().path(dir)
    }

    /// The paths of the files that were read although they had changed, sorted.
    pub fn changed(&self) -> Vec<Vec<u8>> {
        let Some(changed) = &self.changed else {
            return Vec::new();
        };
        let changed = changed.lock().unwrap_or_else(PoisonError::into_inner);
        let table = self.table();
        let mut paths: Vec<_> = changed
            .iter()
            .filter_map(|&ino| table.path(ino).ok())
            .collect();
        paths.sort_unstable();
        paths
    }

    /// Notes that a file has changed; fails unless that is accepted.
    fn accept_change(&self, ino: Ino) -> Result<()> {
        let changed = self.changed.as_ref().ok_or(Error::Changed)?;
        let mut changed = changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.insert(ino);
        Ok(())
    }

    /// The size that was listed of a file that is known to have changed.
    fn accepted_size(&self, ino: Ino) -> Option<u64> {
        let changed = self.changed.as_ref()?.lock();
        let is_changed = changed
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&ino);
        is_changed.then(|| self.table().listed_size(ino))?
    }

    fn table(&self) -> RwLockReadGuard<'_, InodeTable> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn table_mut(&self) -> RwLockWriteGuard<'_, InodeTable> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open directory that holds the file, and the file's name in it; the root directory and
    /// `.` for the root.
    fn place(&self, ino: Ino) -> Result<(Arc<OwnedFd>, Box<[u8]>)> {
        let (parent, name) = {
            let table = self.table();
            let inode = table.inode(ino)?;
            (table.parent(inode), Box::from(table.name(inode)))
        };
        let dir = self.dir(parent)?;
        if ino == ROOT {
            return Ok((dir, Box::from(&b"."[..])));
        }
        Ok((dir, name))
    }

    /// An open directory, for calls relative to it.
    fn dir(&self, index: u32) -> Result<Arc<OwnedFd>> {
        let ino = Ino(index.into());
        if let Some(dir) = lock(&self.dirs).find(ino) {
            return Ok(dir);
        }
        let path = self.table().path(ino)?;
        let flags = OpenFlags::PATH | OpenFlags::DIRECTORY;
        let dir = linux::open_beneath(&self.root, &path, flags, 0).map_err(moved)?;
        self.check_identity(ino, &linux::stat(&dir)?)?;
        let dir = Arc::new(dir);
        let closed = lock(&self.dirs).keep(ino, &dir);
        drop(closed);
        Ok(dir)
    }

    /// A regular file, open for reading.
    fn file(&self, ino: Ino) -> Result<Arc<OpenFile>> {
        if let Some(file) = lock(&self.files).find(ino) {
            return Ok(file);
        }
        let file = self.open_unchecked(ino)?;
        let stat = linux::stat(&file)?;
        self.check_opened(ino, &stat)?;
        Ok(self.keep(ino, file, &stat))
    }

    /// Opens a file that may turn out to be another one, and of any type.
    fn open_unchecked(&self, ino: Ino) -> Result<OwnedFd> {
        let (dir, name) = self.place(ino)?;
        // If the name is now that of a fifo, the open must not block.
        let flags = OpenFlags::RDONLY | OpenFlags::NONBLOCK;
        open_to_read(&dir, &name, flags).map_err(moved)
    }

    /// Checks that an open file is the regular file that was listed.
    fn check_opened(&self, ino: Ino, stat: &Stat) -> Result<()> {
        let kind = FileKind::from_mode(stat.mode);
        match self.check_identity(ino, stat) {
            Err(Error::Changed) if kind == Some(FileKind::Regular) => self.accept_change(ino)?,
            checked => checked?,
        }
        match kind {
            Some(FileKind::Regular) => Ok(()),
            Some(FileKind::Directory) => Err(Error::IsADirectory),
            _ => Err(Error::InvalidInput("the file has no content to read")),
        }
    }

    /// Keeps a file open for later calls.
    fn keep(&self, ino: Ino, file: OwnedFd, stat: &Stat) -> Arc<OpenFile> {
        let is_dense = stat.size <= DENSE_BYTES_MAX && stat.size <= stat.blocks.saturating_mul(512);
        let dense = || (stat.size, self.table().stamp(stat));
        let file = Arc::new(OpenFile {
            file: File::from(file),
            dense: is_dense.then(dense),
        });
        let closed = lock(&self.files).keep(ino, &file);
        drop(closed);
        file
    }

    fn check_identity(&self, ino: Ino, stat: &Stat) -> Result<()> {
        let table = self.table();
        let inode = table.inode(ino)?;
        if (table.volume(inode), table.ino(inode)) != (Volume::of(stat), stat.ino) {
            return Err(Error::Changed);
        }
        Ok(())
    }

    /// Checks that the content has not changed since the metadata was read, and returns its size.
    fn check_unchanged(&self, ino: Ino, file: &File) -> Result<u64> {
        let stat = linux::stat(file)?;
        self.check_stamp(ino, &stat)?;
        Ok(stat.size)
    }

    fn check_stamp(&self, ino: Ino, stat: &Stat) -> Result<()> {
        if !self.is_listed(ino, stat) {
            self.accept_change(ino)?;
        }
        Ok(())
    }

    /// Whether size and time of the last change are those that were listed.
    fn is_listed(&self, ino: Ino, stat: &Stat) -> bool {
        let table = self.table();
        let inode = table.inode(ino);
        inode.is_ok_and(|inode| inode.stamp == table.stamp(stat))
    }

    /// The names in a directory, sorted, with their `statx` results. `failed` is called for names
    /// without a result, and says whether to go on.
    fn list(
        &self,
        dir: Ino,
        mut failed: impl FnMut(Error) -> Result<()>,
    ) -> Result<Vec<(Box<[u8]>, Stat)>> {
        let (parent, name) = self.place(dir)?;
        let flags = OpenFlags::RDONLY | OpenFlags::DIRECTORY;
        let open = match open_to_read(&parent, &name, flags) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(Error::NotADirectory);
            }
            opened => opened.map_err(moved)?,
        };
        let stat = linux::stat(&open)?;
        self.check_identity(dir, &stat)?;
        let is_shown = |stat: &Stat| self.only.is_none_or(|only| only == Volume::of(stat));
        let shows_mount_point = |stat: &Stat| !self.hides_mount_points && is_directory(stat);
        let mut listed: Vec<(Box<[u8]>, Stat)> = Vec::new();
        if !is_shown(&stat) {
            return Ok(listed);
        }
        // Names are sorted alone, since descriptions are large.
        let mut names: Vec<Box<[u8]>> = Vec::new();
        linux::for_each_name(&open, |name| {
            names.push(Box::from(name.to_bytes()));
            Ok::<_, Error>(())
        })?;
        names.sort_unstable();
        listed.reserve_exact(names.len());
        for name in names {
            match linux::stat_at(&open, &name) {
                // A mounted directory can be listed, a mounted file is not.
                Ok(stat) if is_shown(&stat) || shows_mount_point(&stat) => {
                    listed.push((name, stat));
                }
                Ok(_) => {}
                // It was removed after the directory was read, so it is no longer in it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => failed(Error::from(error).in_file("read", &name))?,
            }
        }
        let closed = lock(&self.dirs).keep(dir, &Arc::new(open));
        drop(closed);
        Ok(listed)
    }
}

fn is_directory(stat: &Stat) -> bool {
    FileKind::from_mode(stat.mode) == Some(FileKind::Directory)
}

/// Fills `buf` with the content at `offset`, as far as there is any, and returns its length.
fn read_all_at(file: &File, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    // The kernel rejects offsets beyond the maximum file size.
    let is_reachable = offset <= i64::MAX as u64 - buf.len() as u64;
    while is_reachable && len < buf.len() {
        match file.read_at(&mut buf[len..], offset + len as u64) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

/// Opens a file without updating its access time, if the kernel permits it: only the owner may.
fn open_to_read(dir: &OwnedFd, name: &[u8], flags: OpenFlags) -> io::Result<OwnedFd> {
    match linux::open_at(dir, name, flags | OpenFlags::NOATIME, 0) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            linux::open_at(dir, name, flags, 0)
        }
        opened => opened,
    }
}

impl FileSystem for HostDir {
    fn root(&self) -> Ino {
        ROOT
    }

    fn storage(&self) -> Storage {
        self.storage
    }

    fn metadata(&self, ino: Ino) -> Result<Metadata> {
        let (dir, name) = self.place(ino)?;
        let stat = linux::stat_at(&dir, &name).map_err(moved)?;
        self.check_identity(ino, &stat)?;
        self.table_mut().refresh(ino, &stat);
        metadata(&stat, self.times)
    }

    fn read_dir(&self, dir: Ino) -> Result<Vec<DirEntry>> {
        let listed = self.list(dir, Err)?;
        let mut table = self.table_mut();
        let mut entries = Vec::with_capacity(listed.len());
        for (name, stat) in listed {
            let ino = table.add(dir.0 as u32, &name, &stat)?;
            let kind = metadata(&stat, self.times)?.kind;
            entries.push(DirEntry { name, ino, kind });
        }
        Ok(entries)
    }

    fn read_dir_with_metadata(&self, dir: Ino) -> Result<Vec<(DirEntry, Metadata)>> {
        let listed = self.list(dir, Err)?;
        // A caller that asks for all metadata at once is about to copy, and would take these files
        // for empty.
        let looks_empty = |stat: &Stat| {
            FileKind::from_mode(stat.mode) == Some(FileKind::Regular) && stat.size == 0
        };
        if listed.iter().any(|(_, stat)| looks_empty(stat))
            && linux::is_kernel_view(self.dir(self.table().index(dir)?)?)?
        {
            return Err(Error::Unsupported(KERNEL_VIEW));
        }
        let mut table = self.table_mut();
        let mut entries = Vec::with_capacity(listed.len());
        for (name, stat) in listed {
            let ino = table.add(dir.0 as u32, &name, &stat)?;
            let metadata = metadata(&stat, self.times)?;
            let kind = metadata.kind;
            entries.push((DirEntry { name, ino, kind }, metadata));
        }
        Ok(entries)
    }

    fn list_readable(&self, dir: Ino) -> (Vec<DirEntry>, Vec<Error>) {
        let mut errors = Vec::new();
        let listed = self.list(dir, |error| {
            errors.push(error);
            Ok(())
        });
        let listed = listed.unwrap_or_else(|error| {
            errors.push(error);
            Vec::new()
        });
        let mut table = self.table_mut();
        let mut entries = Vec::with_capacity(listed.len());
        for (name, stat) in listed {
            let ino = table.add(dir.0 as u32, &name, &stat);
            match ino.and_then(|ino| Ok((ino, metadata(&stat, self.times)?.kind))) {
                Ok((ino, kind)) => entries.push(DirEntry { name, ino, kind }),
                Err(error) => errors.push(error.in_file("read", &name)),
            }
        }
        (entries, errors)
    }

    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<DirEntry> {
        if !is_valid_name(name) {
            return Err(Error::NotFound);
        }
        let open = self.dir(self.table().index(dir)?)?;
        let stat = linux::stat_at(&open, name).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Error::NotFound,
            io::ErrorKind::NotADirectory => Error::NotADirectory,
            _ => error.into(),
        })?;
        Ok(DirEntry {
            name: name.into(),
            ino: self.table_mut().add(dir.0 as u32, name, &stat)?,
            kind: metadata(&stat, self.times)?.kind,
        })
    }

    fn read_link(&self, link: Ino) -> Result<Vec<u8>> {
        let (dir, name) = self.place(link)?;
        linux::read_link_at(&dir, &name).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => Error::InvalidInput("the file is not a symbolic link"),
            _ => moved(error),
        })
    }

    fn xattrs(&self, ino: Ino) -> Result<Vec<Xattr>> {
        let mut xattrs = Vec::new();
        let each = |name: &[u8], value: &[u8]| {
            xattrs.push(Xattr {
                name: name.into(),
                value: value.into(),
            });
        };
        let open = lock(&self.files).find(ino);
        if let Some(open) = open {
            linux::for_each_xattr_of(&open.file, each)?;
        } else {
            let (dir, name) = self.place(ino)?;
            let name = if ino == ROOT { &[] } else { &*name };
            linux::for_each_xattr(&dir, name, each).map_err(moved)?;
        }
        xattrs.sort_unstable();
        Ok(xattrs)
    }

    fn extents(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        let extents = match self.extents_now(file, from) {
            Err(Error::Changed) if self.accepted_size(file).is_some() => Vec::new(),
            extents => extents?,
        };
        let Some(size) = self.accepted_size(file) else {
            return Ok(extents);
        };
        // Where its holes are may change, too.
        let all = || Extent {
            offset: from,
            len: size - from,
            kind: ExtentKind::Plain {
                stored_offset: from,
            },
            id: None,
        };
        Ok((from < size).then(all).into_iter().collect())
    }

    fn read_at(&self, file: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let known = lock(&self.files).find(file);
        let (len, size) = if let Some(open) = known {
            let len = read_all_at(&open.file, offset, buf)?;
            (len, self.check_unchanged(file, &open.file)?)
        } else {
            // One `statx` after reading shows that it is the file that was listed, and that it has
            // not changed since.
            let open = File::from(self.open_unchecked(file)?);
            let read = read_all_at(&open, offset, buf);
            let stat = linux::stat(&open)?;
            self.check_opened(file, &stat)?;
            let len = read?;
            self.check_stamp(file, &stat)?;
            // A small file is read once.
            if offset > 0 || (len as u64) < stat.size {
                self.keep(file, open.into(), &stat);
            }
            (len, stat.size)
        };
        if let Some(size) = self.accepted_size(file) {
            let left = size.saturating_sub(offset).min(buf.len() as u64) as usize;
            buf[len.min(left)..left].fill(0);
            return Ok(left);
        }
        if len as u64 != size.saturating_sub(offset).min(buf.len() as u64) {
            return Err(Error::Changed);
        }
        Ok(len)
    }

    fn read_encoded(
        &self,
        file: Ino,
        extent: &Extent,
        stored: &mut Vec<u8>,
    ) -> Result<Option<Checksum>> {
        let (Some(extents), ExtentKind::Encoded(encoding)) = (&self.stored, extent.kind) else {
            return Err(NOTHING_ENCODED);
        };
        let open = self.file(file)?;
        extents.read(&open.file, extent, &encoding, stored)?;
        self.check_unchanged(file, &open.file)?;
        // Linux does not verify them against their checksums when it reads them so.
        Ok(None)
    }

    fn host_content(&self, file: Ino) -> Option<HostContent<'_>> {
        HostContent::of(self, file)
    }
}

/// A regular file of the host, open, whose content is exactly that of a file of a tree: a sink can
/// share it instead of copying it.
#[derive(Debug)]
pub struct HostContent<'a> {
    dir: &'a HostDir,
    ino: Ino,
    open: Arc<OpenFile>,
    device: (u32, u32),
}

impl<'a> HostContent<'a> {
    /// Opens a file that was listed; `None` if that fails, which reading it explains.
    fn of(dir: &'a HostDir, ino: Ino) -> Option<HostContent<'a>> {
        let open = dir.file(ino).ok()?;
        let table = dir.table();
        let inode = table.inode(ino).ok()?;
        let device = table.volume(inode).device;
        drop(table);
        Some(HostContent {
            dir,
            ino,
            open,
            device,
        })
    }

    /// The device that the file is on.
    pub fn device(&self) -> (u32, u32) {
        self.device
    }

    pub(crate) fn file(&self) -> &File {
        &self.open.file
    }

    /// Shares the whole content with `out`, an empty file of the host (`FICLONE`): holes,
    /// preallocated space and compressed data stay as they are. Returns `false` if the file does
    /// not have the listed content or not this size, so that `out` may have any content.
    ///
    /// # Errors
    /// The report of the kernel. `out` may then have a part of the content.
    pub fn clone_to(&self, out: &File, size: u64) -> io::Result<bool> {
        let file = &self.open.file;
        linux::clone_range(file, 0, 0, out, 0)?;
        // As after reading: it has not changed since it was listed, so what was cloned is what was
        // listed.
        let stat = linux::stat(file)?;
        Ok(stat.size == size && self.dir.is_listed(self.ino, &stat))
    }
}

impl HostDir {
    /// What identifies an open file on btrfs.
    fn open_inode<'f>(&self, ino: Ino, file: &'f File) -> Result<OpenInode<'f>> {
        let table = self.table();
        let inode = table.inode(ino)?;
        Ok(OpenInode {
            file,
            device: table.volume(inode).device,
            ino: table.ino(inode),
            size: linux::stat(file)?.size,
        })
    }

    /// The extents as the kernel reports them now.
    fn extents_now(&self, file: Ino, from: u64) -> Result<Vec<Extent>> {
        let open = self.file(file)?;
        if let Some((size, stamp)) = open.dense.filter(|_| self.stored.is_none())
            && self.table().inode(file)?.stamp == stamp
        {
            // Readers find out whether it has changed since.
            let stored_offset = from;
            let all = || Extent {
                offset: from,
                len: size - from,
                kind: ExtentKind::Plain { stored_offset },
                id: None,
            };
            return Ok((from < size).then(all).into_iter().collect());
        }
        let open = &open.file;
        if let Some(stored) = &self.stored {
            let inode = self.open_inode(file, open)?;
            if let Some(extents) = stored.extents(&inode, from)? {
                self.check_unchanged(file, open)?;
                return Ok(extents);
            }
        }
        let mut extents = Vec::new();
        let extent = |from: u64, to: u64, kind| Extent {
            offset: from,
            len: to - from,
            kind,
            id: None,
        };
        let mut at = from;
        let mut rest_is_hole = false;
        // The kernel rejects offsets beyond the maximum file size.
        while at <= i64::MAX as u64 && extents.len() < EXTENTS_MAX {
            let data = match linux::seek_data(open, at) {
                // The file system does not support holes, or cannot tell where they are: SquashFS
                // of Linux 6.18 does so for files that it can read. A medium that cannot be read
                // fails again when the data is read.
                Err(_) => {
                    let size = self.check_unchanged(file, open)?;
                    let stored_offset = at;
                    let all = || extent(at, size, ExtentKind::Plain { stored_offset });
                    return Ok((at < size).then(all).into_iter().collect());
                }
                Ok(None) => {
                    rest_is_hole = true;
                    break;
                }
                Ok(Some(data)) => data,
            };
            // Data is always followed by a hole, at the end of the file at the latest.
            let end = linux::seek_hole(open, data)?.unwrap_or(data);
            if data < at || end <= data {
                self.accept_change(file)?;
                return Err(Error::Changed);
            }
            if at < data {
                extents.push(extent(at, data, ExtentKind::Hole));
            }
            let stored_offset = data;
            extents.push(extent(data, end, ExtentKind::Plain { stored_offset }));
            at = end;
        }
        // Checked last, so that everything above is about the file that was listed.
        let size = self.check_unchanged(file, open)?;
        if rest_is_hole && at < size {
            let hole_end = size.min(LAST_PAGE).max(at);
            if at < hole_end {
                extents.push(extent(at, hole_end, ExtentKind::Hole));
            }
            if hole_end < size {
                let stored_offset = hole_end;
                extents.push(extent(hole_end, size, ExtentKind::Plain { stored_offset }));
            }
        }
        Ok(extents)
    }
}

/// The error of reaching a listed file. If the file is gone, or is now of another type, the tree
/// has changed.
fn moved(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Error::Changed,
        _ if linux::is_symlink_error(&error) => Error::Changed,
        _ => error.into(),
    }
}

fn metadata(stat: &Stat, times: HostTimes) -> Result<Metadata> {
    let unknown = Error::Unsupported("a file of a kind that Linux does not define");
    let kind = FileKind::from_mode(stat.mode).ok_or(unknown)?;
    let time = |time: Timestamp| Time {
        seconds: time.seconds,
        nanoseconds: time.nanoseconds,
    };
    let has_size = matches!(kind, FileKind::Regular | FileKind::Symlink);
    let (major, minor) = if kind.is_device() { stat.rdev } else { (0, 0) };
    Ok(Metadata {
        kind,
        permissions: (stat.mode & 0o7777) as u16,
        uid: stat.uid,
        gid: stat.gid,
        nlink: stat.nlink.max(1),
        size: if has_size { stat.size } else { 0 },
        rdev: Device { major, minor },
        mtime: time(stat.mtime),
        atime: (times != HostTimes::Modification).then(|| time(stat.atime)),
        ctime: (times == HostTimes::All).then(|| time(stat.ctime)),
        btime: (stat.btime).filter(|_| times == HostTimes::All).map(time),
        attributes: FileAttributes((stat.attributes & ATTRIBUTES) as u32),
        identity: None,
    })
}

fn lock<T>(handles: &Mutex<Handles<T>>) -> std::sync::MutexGuard<'_, Handles<T>> {
    handles.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The most recently used open files, the last one first.
#[derive(Debug)]
struct Handles<T>(Vec<(Ino, Arc<T>)>);

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Handles(Vec::with_capacity(HANDLES_MAX))
    }
}

impl<T> Handles<T> {
    fn find(&mut self, ino: Ino) -> Option<Arc<T>> {
        let at = self.0.iter().position(|(known, _)| *known == ino)?;
        self.0[..=at].rotate_right(1);
        self.0.first().map(|(_, handle)| Arc::clone(handle))
    }

    /// Keeps a handle and returns the one whose place it takes, so that it is closed without the
    /// lock.
    fn keep(&mut self, ino: Ino, handle: &Arc<T>) -> Option<Arc<T>> {
        let same = self.0.iter().position(|(known, _)| *known == ino);
        let is_full = self.0.len() == HANDLES_MAX;
        let replaced = match same {
            Some(at) => Some(self.0.remove(at)),
            None if is_full => self.0.pop(),
            None => None,
        };
        self.0.insert(0, (ino, Arc::clone(handle)));
        replaced.map(|(_, handle)| handle)
    }
}
