//! The edits of a tree.

use std::path::PathBuf;
use std::sync::Arc;

use super::action::Action;
use super::contexts::FileContexts;
use super::list::{Addition, Stats};
use super::mode::ModeChange;
use super::pattern::Patterns;
use crate::Xattr;
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
    /// Include only files with at most this many names in their paths.
    pub max_depth: Option<usize>,
    /// Patterns of `only` may match nothing. Directories that can lead to a match are included.
    pub optional: bool,
}

impl Selection {
    /// Whether it can leave out files.
    pub fn is_partial(&self) -> bool {
        !self.only.is_empty() || !self.exclude.is_empty() || self.max_depth.is_some()
    }
}

/// How additions are made.
#[derive(Clone, Debug, Default)]
pub struct AdditionRules {
    /// As mksquashfs does: a file that exists stays, of additions of one path the first counts, and
    /// their order is of no importance. What is not made is listed
    /// ([`Edited::ignored`](super::Edited::ignored)).
    pub yields: bool,
    /// Whether the edits of owners and permissions change added files, too.
    pub are_edited: bool,
    /// The directories above an added file that do not exist; without it, that is an error.
    pub parents: Option<Stats>,
    /// Whether commands are run, with this directory for their output, in unnamed files.
    pub commands: Option<PathBuf>,
}

/// Changes of the root directory, which come before those of all files.
#[derive(Clone, Debug, Default)]
pub struct RootEdits {
    /// Its permissions.
    pub mode: Option<ModeChange>,
    /// Its owner.
    pub uid: Option<u32>,
    /// Its group.
    pub gid: Option<u32>,
    /// Its modification time.
    pub mtime: Option<Time>,
}

/// The edits to make.
#[derive(Debug, Default)]
pub struct Edits {
    /// The files to include.
    pub selection: Selection,
    /// Changes of the root directory alone.
    pub root: RootEdits,
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
    /// Make files with several names separate files.
    pub no_hard_links: bool,
    /// Symbolic links to files below this path lead to files below the root instead.
    pub retarget: Option<Box<[u8]>>,
    /// Leave out all extended attributes, except added ones.
    pub no_xattrs: bool,
    /// Names of extended attributes to keep; empty keeps all.
    pub xattrs_only: Patterns,
    /// Names of extended attributes to leave out.
    pub xattrs_exclude: Patterns,
    /// Actions on the selected files, which come before all other edits.
    pub actions: Vec<Action>,
    /// Additions and changes, in order. Of the edits above, only the time affects the files that
    /// they set.
    pub additions: Vec<Addition>,
    /// How additions are made.
    pub rules: AdditionRules,
    /// Extended attributes for all files, instead of ones with the same names; for regular files
    /// and directories only if they are of the namespace `user`.
    pub xattrs_added: Vec<Xattr>,
    /// SELinux labels, after all other edits: files without one keep that of the source.
    pub file_contexts: Option<Arc<FileContexts>>,
}
