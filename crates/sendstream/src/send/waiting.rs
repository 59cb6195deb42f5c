//! What waits in an incremental stream: files under temporary names, and directories for other directories.

use std::collections::{HashMap, HashSet};

use super::receiver::{Node, Place};

/// What waits.
#[derive(Default)]
pub(super) struct Moves {
    /// Whether there were temporary names.
    pub(super) has_used_root: bool,
    /// Files under a temporary name, with that name.
    pub(super) temporary: HashMap<Node, Place>,
    /// Directories that cannot get their place yet, each with the directory that must get its own before.
    pub(super) waiting: HashMap<Node, Node>,
    /// Directories for which others wait, with these in order.
    pub(super) waiters: HashMap<Node, Vec<Node>>,
    /// Directories that are to be removed when they are empty.
    pub(super) removed: HashSet<Node>,
}

impl Moves {
    /// Whether a directory cannot get its place yet.
    pub(super) fn is_waiting(&self, dir: Node) -> bool {
        self.waiting.contains_key(&dir)
    }

    pub(super) fn wait(&mut self, dir: Node, for_dir: Node) {
        self.waiting.insert(dir, for_dir);
        self.waiters.entry(for_dir).or_default().push(dir);
    }
}
