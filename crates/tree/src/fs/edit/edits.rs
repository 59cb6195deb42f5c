//! The edits of a tree.

use std::sync::Arc;

use super::list::Addition;
use super::mode::ModeChange;
use super::pattern::Patterns;
use crate::fs::Time;

/// Maps a range of user or group IDs to another range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdMap {
    /// The first ID in the source.
    pub from: u32,
    /// The ID that it becomes; the following IDs map in order.
    pub to: u32,
    /// The number of IDs.
    pub count: u32,
}

/// The files to take. Clones share the knowledge of which patterns have matched.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Include only matching files, with everything below them and the directories above them;
    /// empty includes everything.
    pub only: Arc<Patterns>,
    /// Leave out matching files, with everything below them.
    pub exclude: Arc<Patterns>,
}

/// The edits to make.
#[derive(Debug, Default)]
pub struct Edits {
    /// The files to include.
    pub selection: Selection,
    /// Ranges of user IDs to map. The first range that contains an ID applies; an ID outside all
    /// ranges stays.
    pub uid_maps: Vec<IdMap>,
    /// Ranges of group IDs to map, likewise.
    pub gid_maps: Vec<IdMap>,
    /// The owner of all files.
    pub uid: Option<u32>,
    /// The group of all files.
    pub gid: Option<u32>,
    /// Change the permissions of all files except directories and symbolic links.
    pub file_mode: Option<ModeChange>,
    /// Change the permissions of directories.
    pub dir_mode: Option<ModeChange>,
    /// Set all times of all files to this.
    pub time: Option<Time>,
    /// Leave out all extended attributes, except added ones.
    pub no_xattrs: bool,
    /// Names of extended attributes to keep; empty keeps all.
    pub xattrs_only: Patterns,
    /// Names of extended attributes to leave out.
    pub xattrs_exclude: Patterns,
    /// Additions and changes, in order. Of the edits above, only the time affects the files that
    /// they set.
    pub additions: Vec<Addition>,
}
