//! An object as an output: it goes to the store in parts as it is made, and its name appears with
//! the last of them.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tree::{Error, Output, OutputKind, OutputTarget, ReadAt, Result, temporary};

use crate::error::{Fault, RemoteError};
use crate::options::{RemoteOptions, UploadOptions};
use crate::parts::Parts;
use crate::store::ObjectStore;
use crate::store_link::StoreLink;
use crate::url::is_written;

/// Begins an object, of which nothing is visible until the output is committed.
///
/// # Errors
/// `AlreadyExists`, unless it may be replaced; the store cannot be reached or denies access.
pub fn create(address: &str, options: &RemoteOptions, upload: &UploadOptions) -> Result<Output> {
    if !is_written(address.as_bytes()) {
        return Err(Error::Unsupported("writing files of web servers"));
    }
    let store = ObjectStore::of(address, options).and_then(|mut store| {
        let found = store.find()?;
        Ok((store, found))
    });
    let (store, found) = store.map_err(io::Error::from)?;
    // A note shows that the object was made to be replaced when its source changes.
    let is_outdated = upload.note.is_some() && found.as_ref().is_some_and(|it| !it.is_empty());
    let mut upload = upload.clone();
    upload.overwrite |= is_outdated;
    if found.is_some() && !upload.overwrite {
        return Err(Error::Io(io::ErrorKind::AlreadyExists.into()));
    }
    let shared = Arc::new(StoreLink {
        store,
        id: Mutex::default(),
        options: upload.clone(),
    });
    let aborted = Arc::clone(&shared);
    Ok(Output::to(Upload {
        append_at: 0,
        state: Arc::default(),
        on_stop: (!upload.resume).then(|| temporary::on_stop(move || aborted.abort())),
        shared,
    }))
}

/// Whether the object at an address has this note ([`UploadOptions::note`]).
///
/// # Errors
/// The store cannot be reached or denies access.
pub fn is_current(address: &str, options: &RemoteOptions, note: &str) -> io::Result<bool> {
    let found = ObjectStore::of(address, options)?.find()?;
    Ok(found.as_deref() == Some(note))
}

struct Upload {
    append_at: u64,
    state: Arc<Mutex<Parts>>,
    shared: Arc<StoreLink>,
    /// Removes the upload if the program is asked to stop.
    on_stop: Option<temporary::OnStop>,
}

impl Upload {
    fn parts(&self) -> MutexGuard<'_, Parts> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let mut parts = self.parts();
        // A part that is on its way would stay.
        parts.wait();
        drop(parts);
        if self.on_stop.take().is_some() && !temporary::is_stopping() {
            self.shared.abort();
        }
    }
}

impl fmt::Debug for Upload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Upload")
    }
}

impl OutputTarget for Upload {
    fn kind(&self) -> OutputKind {
        OutputKind::File
    }

    fn append(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_all_at(buf, self.append_at)?;
        self.append_at += buf.len() as u64;
        Ok(buf.len())
    }

    fn write_all_at(&self, buf: &[u8], at: u64) -> io::Result<()> {
        self.parts().write(&self.shared, buf, at)
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.parts().set_len(bytes)
    }

    fn hold(&self, at: u64, len: u64) {
        self.parts().hold(at, len);
    }

    fn keep_from(&self, at: u64) -> bool {
        self.parts().keep_from(at);
        false
    }

    fn reader(&self) -> io::Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(KeptBytes(Arc::clone(&self.state))))
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let mut finished = self.parts().finish(&self.shared);
        if finished.is_ok() && self.shared.options.read_back {
            finished = self.shared.store.read_back(&self.parts().stored);
        }
        finished.map_err(|error| match RemoteError::fault_of(&error) {
            Some(Fault::Exists) => {
                // Nothing of it is needed any more.
                self.shared.abort();
                Error::Io(io::ErrorKind::AlreadyExists.into())
            }
            _ => Error::Io(error),
        })
    }
}

impl ReadAt for Upload {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        self.parts().read(buf, at)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.parts().len())
    }
}

/// The bytes of an object that are still in memory.
struct KeptBytes(Arc<Mutex<Parts>>);

impl ReadAt for KeptBytes {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let parts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        parts.read(buf, at)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap_or_else(PoisonError::into_inner).len())
    }
}
