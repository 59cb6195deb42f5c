//! Unreadable files, which are left out of the output.

use std::collections::BTreeMap;

use crate::{Error, FileId, Inventory};

/// Those that are known so far, and why.
#[derive(Debug, Default)]
pub struct Lost {
    reasons: BTreeMap<FileId, Error>,
    /// Directories that are there without their extended attributes.
    bare: Vec<(FileId, Error)>,
}

impl Lost {
    /// Leaves a file out. The first reason counts.
    pub fn lose(&mut self, file: FileId, error: Error) {
        self.reasons.entry(file).or_insert(error);
    }

    /// Leaves out the extended attributes of a directory.
    pub(super) fn lose_attributes(&mut self, dir: FileId, error: Error) {
        self.bare.push((dir, error));
    }

    /// Leaves a file out if the one whose content it shows is left out.
    pub fn lose_with(&mut self, file: FileId, shown: FileId) {
        if self.has(shown) {
            let error = Error::Unreadable("the file whose content it shares cannot be read");
            self.lose(file, error);
        }
    }

    /// Whether a file is left out.
    pub fn has(&self, file: FileId) -> bool {
        self.reasons.contains_key(&file)
    }

    /// All of them, ascending.
    pub fn files(&self) -> impl ExactSizeIterator<Item = FileId> {
        self.reasons.keys().copied()
    }

    /// The paths and reasons, in the order of the files; then those of directories without their
    /// extended attributes.
    pub fn into_paths(self, inventory: &Inventory) -> Vec<(Vec<u8>, Error)> {
        let named = |(file, error)| (inventory.path(inventory.first_name(file)), error);
        self.reasons
            .into_iter()
            .chain(self.bare)
            .map(named)
            .collect()
    }
}
