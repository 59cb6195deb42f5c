//! Objects of other machines, where reading them is built in.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[cfg(feature = "remote")]
pub use built::Surroundings;
pub use built::{RemoteOptions, is_temporary};
pub(crate) use built::{is_of_object, is_remote, redacted, split};

/// A name of a source, without the parts of the address of an object that can be secret.
pub fn without_secrets(name: &[u8]) -> Vec<u8> {
    let path = Path::new(OsStr::from_bytes(name));
    redacted(path).map_or_else(|| name.to_vec(), String::into_bytes)
}

#[cfg(feature = "remote")]
mod built {
    pub use ::remote::{RemoteOptions, Surroundings, is_temporary};
    pub(crate) use ::remote::{is_of_object, is_remote, split};
    use std::path::Path;

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

    /// How objects are read, which this build does not.
    #[derive(Clone, Debug, Default)]
    #[non_exhaustive]
    pub struct RemoteOptions {}

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
