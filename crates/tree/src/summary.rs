//! What an image holds that was made, whatever its format.

use crate::Error;

/// What every format says of an image that was made.
#[derive(Debug, Default)]
pub struct ImageSummary {
    /// Inodes.
    pub files: u64,
    /// Regular files whose content is that of an earlier one.
    pub duplicates: u64,
    /// Bytes of content, holes and duplicates included.
    pub content_bytes: u64,
    /// Bytes of the image, padding included.
    pub image_bytes: u64,
    /// Bytes of the image that hold data: its blocks or extents.
    pub data_bytes: u64,
    /// Blocks or extents that were taken from the source as they are stored there.
    pub kept: u64,
    /// Paths of files that could not be read and are therefore not in the image, and why.
    pub unreadable: Vec<(Vec<u8>, Error)>,
    /// Paths and names of extended attributes that the format cannot hold and that are therefore not in the image; `*` stands
    /// for all of a directory whose attributes cannot be read.
    pub lost_xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}
