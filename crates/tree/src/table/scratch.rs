//! The temporary file of tables.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// A temporary file for the parts of [tables](super::RecordTable) that are not in memory. It has no
/// name, and ends with the last of them.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// `None` if all is kept in memory.
    file: Option<Arc<Scratched>>,
}

#[derive(Debug)]
pub(super) struct Scratched {
    file: File,
    /// The directory, for errors.
    dir: Box<Path>,
    /// Where the next page goes.
    end: AtomicU64,
}

/// The payload of the unwinding after a failed read.
struct Unreadable(Error);

impl Scratch {
    /// Keeps all in memory.
    pub fn memory() -> Scratch {
        Scratch::default()
    }

    /// A file in this directory.
    ///
    /// # Errors
    /// [`Error::File`] with the directory.
    pub fn in_dir(dir: &Path) -> Result<Scratch> {
        let file = crate::output::unnamed_file(dir);
        let file =
            file.map_err(|error| error.in_file("write in", dir.as_os_str().as_encoded_bytes()))?;
        Ok(Scratch::in_file(file, dir))
    }

    /// An empty file without a name, and its directory, for errors.
    pub(crate) fn in_file(file: File, dir: &Path) -> Scratch {
        let scratched = Scratched {
            file,
            dir: dir.into(),
            end: AtomicU64::new(0),
        };
        Scratch {
            file: Some(Arc::new(scratched)),
        }
    }

    /// Runs code that uses tables: if a table cannot be read back, `run` ends there, and this
    /// returns the error. Tables are read in too many places for each to return it.
    ///
    /// # Errors
    /// [`Error::File`] with the directory of the temporary file; that of `run`.
    ///
    /// # Panics
    /// If `run` panics.
    pub fn catch<T, E: From<Error>>(run: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        // What it leaves half done does not outlive the error, as with any other error that it
        // returns.
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
            match payload.downcast::<Unreadable>() {
                Ok(unreadable) => Err(unreadable.0.into()),
                Err(panic) => resume_unwind(panic),
            }
        })
    }

    /// Whether there is a file.
    pub(super) fn is_file(&self) -> bool {
        self.file.is_some()
    }

    pub(super) fn take(&mut self) -> Option<Arc<Scratched>> {
        self.file.take()
    }
}

impl Scratched {
    /// Finds room for a page of this size.
    pub(super) fn place(&self, bytes: u64) -> u64 {
        self.end.fetch_add(bytes, Ordering::Relaxed)
    }

    pub(super) fn write(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    /// Reads written records. If that fails, it unwinds to [`Scratch::catch`], without the message
    /// of a panic.
    pub(super) fn read(&self, bytes: &mut [u8], at: u64) {
        if let Err(error) = self.file.read_exact_at(bytes, at) {
            let dir = self.dir.as_os_str().as_encoded_bytes();
            let error = Error::Io(error).in_file("read a temporary file in", dir);
            resume_unwind(Box::new(Unreadable(error)));
        }
    }
}
