//! The targets of an output.

use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::sync::{Arc, PoisonError, RwLock};

use crate::{ReadAt, Result, Scratch};

/// The kind of target of an [`Output`](super::Output).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// A new regular file or the like, which appears on commit.
    File,
    /// A block device, written in place. Its size is fixed, and the first write destroys the
    /// content that it held.
    Device,
    /// A pipe, terminal or other stream. It accepts bytes in order only, and written bytes
    /// cannot be undone.
    Stream,
}

/// A target of an [`Output`](super::Output): a file, memory, an object of a store.
///
/// [`OutputTarget::finish`] makes the result appear. A target that is dropped without it leaves
/// nothing behind, except for a device or a stream. [`ReadAt`] reads back written bytes; a
/// target that cannot do that returns an error.
pub trait OutputTarget: ReadAt + Debug {
    /// The kind of target.
    fn kind(&self) -> OutputKind;

    /// Appends some of `buf`, and returns how much.
    ///
    /// # Errors
    /// The medium's error.
    fn append(&mut self, buf: &[u8]) -> io::Result<usize>;

    /// Writes all of `buf` at the byte offset `at`; bytes between the former end and `at` are
    /// zeros.
    ///
    /// # Errors
    /// The medium's error; a stream cannot seek.
    fn write_all_at(&self, buf: &[u8], at: u64) -> io::Result<()>;

    /// Sets the length; new bytes are zeros. A device keeps its length.
    ///
    /// # Errors
    /// The medium's error.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// Shares `len` bytes of an open file of the host, from the byte offset `from` on, in place of
    /// writing them at `at`.
    ///
    /// # Errors
    /// The medium's error; most media cannot do that.
    fn clone_range(&self, source: &File, from: u64, len: u64, at: u64) -> io::Result<()> {
        let _ = (source, from, len, at);
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Discards the first bytes of a device.
    ///
    /// # Errors
    /// The medium's error; most media cannot do that.
    fn discard(&self, bytes: u64) -> io::Result<()> {
        let _ = bytes;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Says that bytes from an offset on are read back, before they are written. Returns whether
    /// those before it can be, too: not if they are on their way to another machine.
    fn keep_from(&self, at: u64) -> bool {
        let _ = at;
        true
    }

    /// Says that these bytes are written after all others, before anything is written. A target
    /// that sends bytes away waits for them.
    fn hold(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// A second handle, for reading back the output.
    ///
    /// # Errors
    /// The medium's error; a stream cannot be read back.
    fn reader(&self) -> io::Result<Arc<dyn ReadAt>>;

    /// Begins to bring written bytes to the medium, so that [`OutputTarget::sync`] has less to wait
    /// for. It may do nothing.
    fn begin_sync(&self, at: u64, len: u64) {
        let _ = (at, len);
    }

    /// Waits until everything that was written is on the medium.
    ///
    /// # Errors
    /// The medium's error.
    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// Changes the name that a new file gets in its directory.
    ///
    /// # Errors
    /// A target that gets no name.
    fn rename(&mut self, name: &[u8]) -> io::Result<()> {
        let _ = name;
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Finishes: waits until everything is on the medium, then makes the result appear in one step.
    ///
    /// # Errors
    /// The medium's error. Nothing is left behind then.
    fn finish(self: Box<Self>) -> Result<()>;

    /// An unnamed temporary file beside the target, for data that cannot be written yet; `None` if
    /// such data stays in memory.
    ///
    /// # Errors
    /// The kernel's error.
    fn scratch(&self) -> io::Result<Option<File>> {
        Ok(None)
    }

    /// The same for tables.
    ///
    /// # Errors
    /// The kernel's error.
    fn tables(&self) -> io::Result<Scratch> {
        Ok(Scratch::memory())
    }
}

/// The place of a result in memory. Clones share it.
///
/// A result takes as much memory as it is long, with its holes: use it for small results.
///
/// ```
/// use std::io::Write;
/// use tree::MemoryResult;
///
/// let result = MemoryResult::default();
/// let mut output = result.output();
/// output.write_all(b"content")?;
/// assert_eq!(result.take(), b"");
/// output.commit()?;
/// assert_eq!(result.take(), b"content");
/// # Ok::<(), tree::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryResult(Bytes);

impl MemoryResult {
    /// The bytes, which are taken out; empty if nothing was committed.
    pub fn take(&self) -> Vec<u8> {
        self.0.with(std::mem::take)
    }
}

/// Bytes that several handles share.
#[derive(Clone, Debug, Default)]
struct Bytes(Arc<RwLock<Vec<u8>>>);

#[derive(Debug)]
pub(super) struct MemoryTarget {
    /// Where the next bytes are appended.
    end: usize,
    written: Bytes,
    result: MemoryResult,
}

impl MemoryTarget {
    pub(super) fn of(result: &MemoryResult) -> MemoryTarget {
        MemoryTarget {
            end: 0,
            written: Bytes::default(),
            result: result.clone(),
        }
    }
}

impl Bytes {
    fn with<T>(&self, change: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        // A writer that panics leaves bytes that are as good as those of one that stops.
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ReadAt for Bytes {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        (self.0.read().unwrap_or_else(PoisonError::into_inner)).read_exact_at(buf, at)
    }

    fn size(&self) -> io::Result<u64> {
        ReadAt::size(&*self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ReadAt for MemoryTarget {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.written.read_exact_at(buf, at)
    }

    fn size(&self) -> io::Result<u64> {
        self.written.size()
    }
}

impl OutputTarget for MemoryTarget {
    fn kind(&self) -> OutputKind {
        OutputKind::File
    }

    fn append(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_all_at(buf, self.end as u64)?;
        self.end += buf.len();
        Ok(buf.len())
    }

    fn write_all_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        if buf.is_empty() {
            return Ok(());
        }
        let at = usize::try_from(at).ok();
        let range = at.and_then(|at| Some(at..at.checked_add(buf.len())?));
        let range = range.ok_or(io::ErrorKind::FileTooLarge)?;
        self.written.with(|bytes| {
            bytes.resize(bytes.len().max(range.end), 0);
            bytes[range].copy_from_slice(buf);
        });
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let len = usize::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.written.with(|bytes| bytes.resize(len, 0));
        Ok(())
    }

    fn reader(&self) -> io::Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(self.written.clone()))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let bytes = self.written.with(std::mem::take);
        self.result.0.with(|result| *result = bytes);
        Ok(())
    }
}

/// Takes everything that is written, like a file, and throws it away.
#[derive(Debug)]
pub(super) struct Discard;

impl ReadAt for Discard {
    fn read_exact_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(0)
    }
}

impl OutputTarget for Discard {
    fn kind(&self) -> OutputKind {
        OutputKind::File
    }

    fn append(&mut self, buf: &[u8]) -> io::Result<usize> {
        Ok(buf.len())
    }

    fn write_all_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn reader(&self) -> io::Result<Arc<dyn ReadAt>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
