#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod access;
mod error;
mod file;
mod http;
mod object;
mod options;
mod parts;
mod sign;
mod store;
mod store_link;
mod upload;
mod url;

use std::io::{self, Read};

pub use error::{is_of_object, is_temporary};
pub use file::RemoteFile;
pub use options::{RemoteOptions, Surroundings, UploadOptions};
pub use upload::{create, is_current};
pub use url::{is_remote, redacted, split};

/// An open object.
#[non_exhaustive]
pub enum Opened {
    /// It can be read at any place.
    File(Box<RemoteFile>),
    /// Its server ignores ranges: it can be read once, from its beginning to its end.
    Stream(Box<dyn Read + Send>),
}

/// A text that changes when the object at an address does: its ETag or the time of its last change,
/// and its size.
///
/// # Errors
/// Those of [`open`].
pub fn state(address: &str, options: &RemoteOptions) -> io::Result<String> {
    let (object, start) = object::Object::open(address, options)?;
    match start {
        object::Start::Bytes(_) => Ok(object.state()),
        object::Start::All(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// Opens the object at an address, without a subvolume.
///
/// # Errors
/// It is not there, may not be read, or its server gives nothing by which a change is noticed.
pub fn open(address: &str, options: &RemoteOptions) -> io::Result<Opened> {
    let (object, start) = object::Object::open(address, options)?;
    Ok(match start {
        object::Start::Bytes(start) => {
            Opened::File(Box::new(RemoteFile::new(object, start, options)))
        }
        object::Start::All(body) => Opened::Stream(body),
    })
}
