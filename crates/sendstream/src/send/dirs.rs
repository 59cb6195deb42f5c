//! Directories whose times are still to be sent.

use std::collections::{BTreeMap, HashMap};

use tree::FileId;

/// Directories that can wait after each file.
const WAITING_MAX: usize = 64;

/// Directories in which files get names, which changes their times. Their times are sent when many
/// others have changed since, and at the end.
#[derive(Default)]
pub(super) struct ChangedDirs {
    turn_of: HashMap<FileId, u64>,
    /// The one that changed longest ago comes first.
    by_turn: BTreeMap<u64, FileId>,
    turns: u64,
}

impl ChangedDirs {
    /// Notes that a directory changed.
    pub(super) fn add(&mut self, dir: FileId) {
        self.turns += 1;
        if let Some(before) = self.turn_of.insert(dir, self.turns) {
            self.by_turn.remove(&before);
        }
        self.by_turn.insert(self.turns, dir);
    }

    /// Whether too many wait.
    pub(super) fn has_excess(&self) -> bool {
        self.by_turn.len() > WAITING_MAX
    }

    /// If too many wait, takes out the one that changed longest ago.
    pub(super) fn take_excess(&mut self) -> Option<FileId> {
        if !self.has_excess() {
            return None;
        }
        let (_, dir) = self.by_turn.pop_first()?;
        self.turn_of.remove(&dir);
        Some(dir)
    }

    /// Takes out the one that changed last: at the end, Linux goes backwards.
    pub(super) fn take_last(&mut self) -> Option<FileId> {
        let (_, dir) = self.by_turn.pop_last()?;
        self.turn_of.remove(&dir);
        Some(dir)
    }
}
