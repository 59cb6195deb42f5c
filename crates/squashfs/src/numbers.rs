//! Inode numbers of the files that are in the image.

use tree::{FileId, Inventory, Lost};

/// Inode numbers: from 1 without gaps, in the order of the files that are in the image.
pub(crate) struct Numbers {
    /// Ascending.
    lost: Vec<FileId>,
    file_count: u32,
}

impl Numbers {
    /// The numbers, once all that is left out is known.
    pub(crate) fn new(inventory: &Inventory, lost: &Lost) -> Numbers {
        Numbers {
            lost: lost.files().collect(),
            file_count: inventory.file_count(),
        }
    }

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
