//! How a file system is opened.

use tree::Limits;

/// How a file system is opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Limits on what the image may make this program hold.
    pub limits: Limits,
    /// The copy of the superblock to use, an index into [`crate::SUPERBLOCK_PLACES`]; by default the newest that is
    /// valid.
    pub superblock: Option<usize>,
    /// Read the file system as it was this many commits before the last one: up to three, as far as the superblock
    /// records them and their blocks have not been overwritten.
    pub older_root: usize,
    /// Show the last commit alone, without the log.
    pub no_log: bool,
    /// Ignore sources that are not devices of the first one's file system, and second images of a device.
    pub ignores_foreign: bool,
}
