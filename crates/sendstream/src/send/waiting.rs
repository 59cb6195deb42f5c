//! Waiting files and directories in an incremental stream: files under temporary names, and
//! directories for other directories.

use std::collections::{HashMap, HashSet};

use super::receiver::{FileName, NodeId};

/// A waiting file or directory.
#[derive(Default)]
pub(super) struct Moves {
    /// Whether there were temporary names.
    pub(super) has_used_root: bool,
    /// Files under a temporary name, with that name.
    pub(super) temporary: HashMap<NodeId, FileName>,
    /// Directories that cannot get their place yet, each with the directory that must get its own
    /// before.
    pub(super) waiting: HashMap<NodeId, NodeId>,
    /// Directories for which others wait, with these in order.
    pub(super) waiters: HashMap<NodeId, Vec<NodeId>>,
    /// Directories that are to be removed when they are empty.
    pub(super) removed: HashSet<NodeId>,
}

impl Moves {
    /// Whether a directory cannot get its place yet.
    pub(super) fn is_waiting(&self, dir: NodeId) -> bool {
        self.waiting.contains_key(&dir)
    }

    pub(super) fn wait(&mut self, dir: NodeId, for_dir: NodeId) {
        self.waiting.insert(dir, for_dir);
        self.waiters.entry(for_dir).or_default().push(dir);
    }
}
