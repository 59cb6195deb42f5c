//! Files that could not be read and are therefore not in the image.

use std::collections::BTreeMap;

use tree::{Error, FileId, Inventory};

/// Those that are known so far, and why.
#[derive(Default)]
pub(crate) struct Lost {
    reasons: BTreeMap<FileId, Error>,
}

impl Lost {
    /// Leaves a file out. The first reason counts.
    pub(crate) fn lose(&mut self, file: FileId, error: Error) {
        self.reasons.entry(file).or_insert(error);
    }

    pub(crate) fn has(&self, file: FileId) -> bool {
        self.reasons.contains_key(&file)
    }

    /// The inode numbers, once all that is lost is known.
    pub(crate) fn numbers(&self, inventory: &Inventory) -> Numbers {
        Numbers {
            lost: self.reasons.keys().copied().collect(),
            file_count: inventory.file_count(),
        }
    }

    /// The paths and reasons, in the order of the files.
    pub(crate) fn into_paths(self, inventory: &Inventory) -> Vec<(Vec<u8>, Error)> {
        let named = |(file, error)| (inventory.path(inventory.first_name(file)), error);
        self.reasons.into_iter().map(named).collect()
    }
}

/// Inode numbers: from 1 on without gaps, in the order of the files that are in the image.
pub(crate) struct Numbers {
    /// Ascending.
    lost: Vec<FileId>,
    file_count: u32,
}

impl Numbers {
    /// How many files are in the image.
    pub(crate) fn count(&self) -> u32 {
        self.file_count - self.lost.len() as u32
    }

    /// The number of a file, `None` if it is not in the image.
    pub(crate) fn of(&self, file: FileId) -> Option<u32> {
        match self.lost.binary_search(&file) {
            Ok(_) => None,
            Err(before) => Some(file.0 + 1 - before as u32),
        }
    }
}
