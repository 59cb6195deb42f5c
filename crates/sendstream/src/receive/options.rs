//! The options of receiving, and the summary.

use std::path::PathBuf;

use tree::setters;

/// How [`receive`](super::receive()) works.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReceiveOptions {
    /// Decompress all data instead of writing it as it is encoded.
    pub decompresses: bool,
    /// The parent of incremental streams, with any UUID and state.
    pub parent: Option<PathBuf>,
    /// Keep the unfinished result of a failed receive, under its temporary name.
    pub keeps: bool,
    /// Read all that was written encoded from the medium before it counts as received: Linux drops
    /// some errors of writing it.
    pub reads_back: bool,
    /// Copy data that Linux refuses to clone because of the files that it is in.
    pub copies_clones: bool,
    /// Stop after this many commands that fail; 0 is never. A subvolume with a failed command does
    /// not count as received.
    pub errors_max: u64,
    /// Stop after the first end of a stream.
    pub stops_at_end: bool,
    /// Write data decompressed also where Linux does not permit writing it encoded.
    pub falls_back_on_eperm: bool,
}

setters!(ReceiveOptions {
    decompresses: bool,
    parent: Option<PathBuf>,
    keeps: bool,
    reads_back: bool,
    copies_clones: bool,
    errors_max: u64,
    stops_at_end: bool,
    falls_back_on_eperm: bool,
});

impl Default for ReceiveOptions {
    fn default() -> Self {
        ReceiveOptions {
            decompresses: false,
            parent: None,
            keeps: false,
            reads_back: true,
            copies_clones: false,
            errors_max: 1,
            stops_at_end: false,
            falls_back_on_eperm: false,
        }
    }
}

/// The summary of a receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Subvolumes, complete and marked as received.
    pub subvolumes: u64,
    /// Commands that failed. The subvolumes that they are about are not complete.
    pub failed: u64,
    /// Extents that were written as they are encoded.
    pub encoded: u64,
    /// Encoded extents that Linux did not take, and that were written decompressed.
    pub decompressed: u64,
    /// Why Linux did not take the first of them.
    pub reason: Option<Box<str>>,
    /// Clones that Linux refused, and whose bytes were copied instead.
    pub copied_clones: u64,
    /// How many bytes these are.
    pub copied_bytes: u64,
    /// Files with attributes that could not be kept: the first ones, with the reason.
    pub lost: Vec<(Box<[u8]>, &'static str)>,
    /// How many these are.
    pub lost_count: u64,
}
