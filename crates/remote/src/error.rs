//! Errors, and whether trying again may help.

use std::{error, fmt, io};

/// Why an object cannot be read or written.
#[derive(Clone, Debug)]
pub(crate) struct RemoteError {
    pub(crate) words: String,
    pub(crate) fault: Fault,
    /// How many seconds the server wants to be left alone.
    pub(crate) pause: Option<u64>,
}

/// Whose fault it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The network's, or that of a server with too much to do.
    Temporary,
    /// The object was replaced.
    Replaced,
    /// Another object has the name.
    Exists,
    /// Credentials are missing or wrong.
    Denied,
    /// Any other.
    Lasting,
}

impl RemoteError {
    /// The fault of an error, if it is one of these.
    pub(crate) fn fault_of(error: &io::Error) -> Option<Fault> {
        of(error).map(|error| error.fault)
    }

    pub(crate) fn new(fault: Fault, words: impl Into<String>) -> RemoteError {
        RemoteError {
            words: words.into(),
            fault,
            pause: None,
        }
    }
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl error::Error for RemoteError {}

impl From<RemoteError> for io::Error {
    /// Of no kind that would say something about the bytes of a file.
    fn from(error: RemoteError) -> io::Error {
        io::Error::other(error)
    }
}

/// Whether an error is that of a network, a server or an object, not of bytes that were read.
pub fn is_of_object(error: &io::Error) -> bool {
    of(error).is_some()
}

/// Whether an error of an object may be gone when the same is done again: the network or the
/// server failed, after several tries.
pub fn is_temporary(error: &io::Error) -> bool {
    of(error).is_some_and(|error| error.fault == Fault::Temporary)
}

fn of(error: &io::Error) -> Option<&RemoteError> {
    error.get_ref()?.downcast_ref()
}
