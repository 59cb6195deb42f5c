//! How an archive is read, and the decisions made on the way.

use crate::edit::Stats;

/// How an archive is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TarOptions {
    /// Read on after an end marker: for archives that were concatenated. Blocks of zeros between
    /// entries are skipped, and the last marker is followed by nothing else.
    pub ignore_zeros: bool,
    /// Leave out members that cannot be read; see [`Tar::faults`](super::Tar::faults).
    pub skip_damaged: bool,
    /// The metadata of directories that are in a path but not in the archive.
    pub implied: Stats,
}

/// Decisions made while reading a tar archive that its user may want to know about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Entries whose path began with `/`, which was removed.
    pub absolute_paths: u64,
    /// Directories other than the root that are missing from the archive but required by a path.
    pub implied_directories: u64,
    /// Entries replaced by a later entry with the same path.
    pub replaced: u64,
    /// Entries with access control lists as text (`SCHILY.acl.*`) that are ignored: Linux refuses
    /// them, or they name users or groups that this machine does not know.
    pub acls_not_read: u64,
    /// Where the archive ends after an entry without an end marker, if it does.
    pub no_end_at: Option<u64>,
}
