//! A summary of a new image, in any format.

use crate::{Error, KeptCount};

/// The summary of a created image that all formats have.
#[derive(Debug, Default)]
pub struct ImageSummary {
    /// Inodes.
    pub files: u64,
    /// Regular files with the same content as an earlier one.
    pub duplicates: u64,
    /// Bytes of content, holes and duplicates included.
    pub content_bytes: u64,
    /// Size of the image in bytes, padding included.
    pub image_bytes: u64,
    /// Bytes of the image that hold data, in blocks or extents.
    pub data_bytes: u64,
    /// Blocks or extents copied from the source as stored.
    pub kept: KeptCount,
    /// Blocks or extents kept from an older image.
    pub reused: u64,
    /// Blocks or extents made from the content of files.
    pub encoded: u64,
    /// Whether the older image was made with other settings. Nothing is kept from it then, unless
    /// the options allow it.
    pub old_differs: bool,
    /// Paths of files that could not be read and were left out of the image, with the errors; of a
    /// directory, only the extended attributes are left out.
    pub unreadable: Vec<(Vec<u8>, Error)>,
    /// Paths and names of extended attributes that the format cannot hold and that were left out of
    /// the image.
    pub lost_xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}
