//! Inode numbers of the files in the image.

use tree::{FileId, Inventory, Lost};

/// Inode numbers: consecutive, starting at 1, in the order of the files in the image.
pub(crate) struct InodeNumbers {
    /// In ascending order.
    lost: Vec<FileId>,
    file_count: u32,
}

impl InodeNumbers {
    /// Assigns the numbers, once all files to leave out are known.
    pub(crate) fn new(inventory: &Inventory, lost: &Lost) -> InodeNumbers {
        InodeNumbers {
            lost: lost.files().collect(),
            file_count: inventory.file_count(),
        }
    }

    /// Number of files in the image.
    pub(crate) fn count(&self) -> u32 {
        self.file_count - self.lost.len() as u32
    }

    /// The number of a file; `None` if it is not in the image.
    pub(crate) fn of(&self, file: FileId) -> Option<u32> {
        match self.lost.binary_search(&file) {
            Ok(_) => None,
            Err(before) => Some(file.0 + 1 - before as u32),
        }
    }
}
