//! An output that appears complete or not at all.

mod checksums;
mod encoded;
mod file;
mod path;
mod spool;
mod target;
pub mod temporary;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;

pub use self::checksums::{ChecksumsMark, WrittenChecksums};
pub use self::encoded::WrittenExtent;
use self::file::FileTarget;
pub use self::path::OutputPath;
pub use self::spool::spool;
pub(crate) use self::spool::unnamed_file;
use self::target::{Discard, MemoryTarget};
pub use self::target::{MemoryResult, OutputKind, OutputTarget};
use crate::{HostContent, ReadAt, Result, Scratch};

/// The file, device, stream or other [target](OutputTarget) to which an image or archive is
/// written.
///
/// Until [`Output::commit`], a regular file has no name, or a temporary one if the file system does
/// not support unnamed files. The commit waits until the data is on the medium, then makes the name
/// appear in one step. Dropping an `Output` without commit leaves nothing behind. When writing to a
/// device, a format must write last the part that makes the image valid.
///
/// [`io::Write`] appends in order and is unbuffered; [`Output::write_all_at`] writes anywhere and
/// does not change the position for appending.
#[derive(Debug)]
pub struct Output(Box<dyn OutputTarget>);

impl Output {
    /// Writes to a target of any kind.
    pub fn to(target: impl OutputTarget + 'static) -> Output {
        Output(Box::new(target))
    }

    /// Opens the path `to` for writing: an existing block device or stream, an open file of this
    /// process (`/dev/stdout`, `/dev/fd/3`), otherwise a new file.
    ///
    /// With `overwrite`, symbolic links are followed as [`OutputPath`] does, and the new file gets
    /// the permissions, the access control list and, as far as possible, the owner of the one that
    /// it replaces, but no set-user-ID and set-group-ID bit. Other names of that one keep it.
    ///
    /// # Errors
    /// `AlreadyExists` for an existing file or device unless `overwrite` is set;
    /// [`Error::IsADirectory`](crate::Error::IsADirectory);
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) for a path without a file name or a link
    /// that is not followed; `ResourceBusy` for a mounted device; the kernel's error.
    pub fn create(to: &Path, overwrite: bool) -> Result<Output> {
        FileTarget::create(to, overwrite).map(Output::to)
    }

    /// Opens an existing regular file or block device, which is written over and keeps its names,
    /// its number and its open descriptors. The content of a file is gone at once; if the output is
    /// not committed, or [`temporary::remove_all`] is called, the file has zeros and its old
    /// length.
    ///
    /// # Errors
    /// [`Error::IsADirectory`](crate::Error::IsADirectory);
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) for another kind of file; `ResourceBusy`
    /// for a mounted device; the kernel's error.
    pub fn in_place(to: &Path) -> Result<Output> {
        FileTarget::in_place(to).map(Output::to)
    }

    /// Creates a file that replaces the one with the path `to`, as [`Output::create`] does, but
    /// takes the place of a symbolic link: for a file of our own in a directory of others.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn replace(to: &Path) -> Result<Output> {
        FileTarget::beside(to, true).map(Output::to)
    }

    /// Writes to a file that is already open, such as standard output.
    pub fn stream(file: File) -> Output {
        Output::to(FileTarget::stream(file))
    }

    /// Writes to standard output.
    ///
    /// # Errors
    /// It is closed.
    pub fn standard() -> io::Result<Output> {
        let file = io::stdout().as_fd().try_clone_to_owned()?;
        Ok(Output::stream(file.into()))
    }

    /// Takes everything that is written, like a file, and throws it away: to learn the size of a
    /// result.
    pub fn discarding() -> Output {
        Output::to(Discard)
    }

    /// The kind of output.
    pub fn kind(&self) -> OutputKind {
        self.0.kind()
    }

    /// Writes all of `buf` at the byte offset `at`.
    ///
    /// # Errors
    /// The medium's error; a stream cannot seek.
    pub fn write_all_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.0.write_all_at(buf, at)
    }

    /// Shares `len` bytes of a file of this machine, from the byte offset `from` on, in place of
    /// writing them at `at` (`FICLONERANGE`). The file may have changed since it was read.
    ///
    /// # Errors
    /// The medium's error: ranges that are not whole blocks, another file system, one that cannot
    /// share. Some of the bytes at `at` may have changed.
    pub fn clone_range(
        &self,
        source: &HostContent<'_>,
        from: u64,
        len: u64,
        at: u64,
    ) -> io::Result<()> {
        self.0.clone_range(source.file(), from, len, at)
    }

    /// Discards the first bytes of a device (`BLKDISCARD`).
    ///
    /// # Errors
    /// The medium's error: a target that is no such device.
    pub fn discard(&self, bytes: u64) -> io::Result<()> {
        self.0.discard(bytes)
    }

    /// Says that bytes from an offset on are read back, before they are written. Returns whether
    /// those before it can be, too: not if they are on their way to another machine.
    pub fn keep_from(&self, at: u64) -> bool {
        self.0.keep_from(at)
    }

    /// Says that `len` bytes at an offset are written after all others, before anything is written:
    /// a target that sends bytes away waits for them. The first bytes need no word.
    pub fn hold(&self, at: u64, len: u64) {
        self.0.hold(at, len);
    }

    /// A second handle, for reading back the output.
    ///
    /// # Errors
    /// The medium's error; a stream cannot be read back.
    pub fn reader(&self) -> io::Result<Arc<dyn ReadAt>> {
        self.0.reader()
    }

    /// An unnamed temporary file on the same file system, for data that cannot be written yet;
    /// `None` if the file system does not support one. It disappears when closed.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn scratch(&self) -> io::Result<Option<File>> {
        self.0.scratch()
    }

    /// The same for tables, which stay in memory if the file system supports no such file.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn tables(&self) -> io::Result<Scratch> {
        self.0.tables()
    }

    /// Sets the length of a regular file; new bytes are zeros that take no space. Does nothing on a
    /// device.
    ///
    /// # Errors
    /// The medium's error.
    pub fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    /// Begins to bring `len` bytes at the byte offset `at` to the medium, so that the commit has
    /// less to wait for; they are not kept in memory for later.
    pub fn begin_sync(&self, at: u64, len: u64) {
        self.0.begin_sync(at, len);
    }

    /// Waits until everything is on the medium, before the first of several outputs is committed
    /// that belong together.
    ///
    /// # Errors
    /// The medium's error.
    pub fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    /// Changes the name that a new file gets in its directory: for a file whose name follows from
    /// its content.
    ///
    /// # Errors
    /// The output is no new file.
    pub fn rename(&mut self, name: &[u8]) -> io::Result<()> {
        self.0.rename(name)
    }

    /// Finishes: waits until everything is on the medium, then gives a regular file its name.
    ///
    /// # Errors
    /// The medium's error; `AlreadyExists` if the name was taken in the meantime and
    /// `overwrite` is not set; `Interrupted` after [`temporary::remove_all`]. Nothing is left
    /// behind in these cases.
    pub fn commit(self) -> Result<()> {
        self.0.finish()
    }
}

impl MemoryResult {
    /// An output whose bytes come here when it is committed, and replace those that are here.
    pub fn output(&self) -> Output {
        Output::to(MemoryTarget::of(self))
    }
}

impl io::Write for Output {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.append(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads back the bytes written to a file or device.
impl ReadAt for Output {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.0.read_exact_at(buf, at)
    }

    fn size(&self) -> io::Result<u64> {
        self.0.size()
    }
}
