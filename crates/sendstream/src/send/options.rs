//! The options of sending, and the summary.

use tree::{KeptCount, setters};

use super::order::StoredFiles;

/// How a tree is sent.
#[non_exhaustive]
pub struct SendOptions<'a> {
    /// The name of the subvolume.
    pub name: &'a [u8],
    /// The UUID that becomes its received UUID.
    pub uuid: [u8; 16],
    /// The transaction of its last change.
    pub ctransid: u64,
    /// How data is sent.
    pub data: SendData,
    /// The sector size of the file system.
    pub sector_bytes: u32,
    /// The stored form of files in the image: with it, files are sent in the order of their numbers
    /// in the image, as Linux does. The tree is one subvolume of a btrfs image then. Without it,
    /// files get numbers.
    pub stored: Option<&'a dyn StoredFiles>,
}

impl<'a> SendOptions<'a> {
    /// A subvolume of this name, whose data is sent as it is stored.
    pub fn new(name: &'a [u8]) -> SendOptions<'a> {
        SendOptions {
            name,
            uuid: [0; 16],
            ctransid: 1,
            data: SendData::AsStored,
            sector_bytes: 4096,
            stored: None,
        }
    }
}

setters!(SendOptions<'a> {
    name: &'a [u8],
    uuid: [u8; 16],
    ctransid: u64,
    data: SendData,
    sector_bytes: u32,
    stored: Option<&'a dyn StoredFiles>,
});

/// How data is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendData {
    /// Decoded.
    Plain,
    /// Encoded as it is stored if version 2 can hold that, otherwise decoded.
    AsStored,
    /// Not at all: only where it is.
    Nothing,
}

/// The summary of a sent stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendSummary {
    /// How many files, each counted once.
    pub files: u64,
    /// Extents that were sent as they are stored.
    pub kept: KeptCount,
}
