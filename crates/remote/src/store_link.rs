//! The store of an upload, which several threads use.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::{Fault, RemoteError};
use crate::options::UploadOptions;
use crate::store::ObjectStore;

/// The part of an upload that other threads see.
pub(crate) struct StoreLink {
    pub(crate) store: ObjectStore,
    /// The name of the upload, from the first part that is sent.
    pub(crate) id: Mutex<Option<String>>,
    pub(crate) options: UploadOptions,
}

impl StoreLink {
    pub(crate) fn id(&self) -> MutexGuard<'_, Option<String>> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reason why the store does not know the upload or a part of it: another writer continues
    /// it with other parts, or has completed it. Any other error stays as it is.
    pub(crate) fn reason(&self, error: RemoteError) -> RemoteError {
        let is_refused = |code: &&str| error.words.contains(*code);
        if error.fault != Fault::Lasting
            || !["NoSuchUpload", "InvalidPart", "InvalidBlockList"]
                .iter()
                .any(is_refused)
        {
            return error;
        }
        let is_final = !self.options.overwrite || self.options.note.is_some();
        match self.store.is_there() {
            Ok(true) if is_final => RemoteError::new(Fault::Exists, "it exists"),
            Ok(_) => {
                let words = format!("another writer has the same upload: {}", error.words);
                RemoteError::new(Fault::Temporary, words)
            }
            Err(_) => error,
        }
    }

    /// Removes the parts that the store holds. An error cannot be reported: the upload fails.
    pub(crate) fn abort(&self) {
        // An upload that begins just now has no part yet, and is not waited for.
        if let Ok(Some(id)) = self.id.try_lock().map(|mut id| id.take()) {
            let _ = self.store.abort(&id);
        }
    }
}
