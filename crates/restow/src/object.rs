//! Objects of other machines, where reading them is built in.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[cfg(feature = "remote")]
pub use built::Surroundings;
pub(crate) use built::is_current;
pub use built::{RemoteOptions, UploadOptions, create_object, is_temporary, object_state};
pub(crate) use built::{is_of_object, is_remote, redacted, split};

/// A name of a source, without the parts of the address of an object that can be secret.
pub fn without_secrets(name: &[u8]) -> Vec<u8> {
    let path = Path::new(OsStr::from_bytes(name));
    redacted(path).map_or_else(|| name.to_vec(), String::into_bytes)
}

#[cfg(feature = "remote")]
mod built {
    pub use ::remote::{RemoteOptions, Surroundings, UploadOptions, is_temporary};
    pub(crate) use ::remote::{is_of_object, is_remote, split};
    use std::path::Path;

    use tree::{Error, Output, Result};

    /// Begins an object at an address ([`Address::is_written_object`](crate::Address)), of which
    /// nothing is visible until the output is committed.
    ///
    /// # Errors
    /// `AlreadyExists`, unless it may be replaced; the store cannot be reached or denies access.
    pub fn create_object(
        address: &Path,
        remote: &RemoteOptions,
        upload: &UploadOptions,
    ) -> Result<Output> {
        let address = address.to_str();
        let address = address.ok_or(Error::InvalidInput("the name of an object is UTF-8"))?;
        ::remote::create(address, remote, upload)
    }

    /// A text that changes when an object does.
    ///
    /// # Errors
    /// It cannot be read, or its server gives nothing by which a change is noticed.
    pub fn object_state(address: &str, remote: &RemoteOptions) -> Result<String> {
        Ok(::remote::state(address, remote)?)
    }

    /// Whether an object has this note.
    ///
    /// # Errors
    /// The store cannot be reached or denies access.
    pub(crate) fn is_current(address: &Path, remote: &RemoteOptions, note: &str) -> Result<bool> {
        let address = address.to_str().unwrap_or_default();
        Ok(::remote::is_current(address, remote, note)?)
    }

    /// An address without secrets.
    pub(crate) fn redacted(path: &Path) -> Option<String> {
        let path = path.to_str().filter(|path| is_remote(path.as_bytes()))?;
        Some(::remote::redacted(path))
    }
}

#[cfg(not(feature = "remote"))]
mod built {
    use std::io;
    use std::path::Path;

    use tree::{Error, Output, Result};

    /// How objects are read, which this build does not.
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct RemoteOptions {
        /// Has no effect.
        pub cache_bytes: usize,
    }

    /// How objects are written, which this build does not.
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct UploadOptions {}

    impl UploadOptions {
        /// Has no effect.
        #[must_use]
        pub fn overwrite(self, _: bool) -> UploadOptions {
            self
        }

        /// Has no effect.
        #[must_use]
        pub fn note(self, _: Option<String>) -> UploadOptions {
            self
        }

        /// Has no effect.
        #[must_use]
        pub fn waiting_bytes(self, _: u64) -> UploadOptions {
            self
        }
    }

    /// A text that changes when an object does, which this build does not read.
    ///
    /// # Errors
    /// Always.
    pub fn object_state(_: &str, _: &RemoteOptions) -> Result<String> {
        Err(Error::Unsupported("objects, in this build"))
    }

    pub(crate) fn is_current(_: &Path, _: &RemoteOptions, _: &str) -> Result<bool> {
        Ok(false)
    }

    /// Begins an object, which this build does not.
    ///
    /// # Errors
    /// Always.
    pub fn create_object(_: &Path, _: &RemoteOptions, _: &UploadOptions) -> Result<Output> {
        Err(Error::Unsupported("objects, in this build"))
    }

    pub(crate) fn is_remote(_: &[u8]) -> bool {
        false
    }

    pub(crate) fn is_of_object(_: &io::Error) -> bool {
        false
    }

    pub(crate) fn split(address: &[u8]) -> (Vec<u8>, Option<Vec<u8>>) {
        (address.to_vec(), None)
    }

    pub(crate) fn redacted(_: &Path) -> Option<String> {
        None
    }

    /// Whether an error may be gone when the same is done again: none is here.
    pub fn is_temporary(_: &io::Error) -> bool {
        false
    }
}
