//! The largest files of a tree.

use std::cmp::Reverse;

use super::{Amount, Visitor};
use crate::Result;
use crate::{DirEntry, FileKind, Metadata};

/// Collects the files with the most stored bytes, as they add to the totals.
#[derive(Debug)]
pub struct LargestFiles {
    max: usize,
    /// The directory that is visited, below the first one.
    path: Vec<u8>,
    /// The length of the path of each open directory.
    open: Vec<usize>,
    files: Vec<(Vec<u8>, Amount)>,
    /// Files that were met and have stored bytes.
    count: u64,
}

impl LargestFiles {
    /// A collector of up to `max` files.
    pub fn new(max: usize) -> LargestFiles {
        LargestFiles {
            max,
            path: Vec::new(),
            open: Vec::new(),
            files: Vec::new(),
            count: 0,
        }
    }

    /// The paths of the files below the first directory, the largest first, and the number of
    /// smaller ones.
    pub fn sorted(mut self) -> (Vec<(Vec<u8>, Amount)>, u64) {
        self.keep();
        let smaller = self.count.saturating_sub(self.files.len() as u64);
        (self.files, smaller)
    }

    fn keep(&mut self) {
        let files = &mut self.files;
        // Files of equal size are met in the order of their paths.
        files.sort_by_key(|(_, amount)| Reverse(amount.stored));
        files.truncate(self.max);
    }

    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        if self.path.is_empty() {
            name.to_vec()
        } else {
            [&self.path, name].join(&b'/')
        }
    }
}

impl Visitor for LargestFiles {
    fn enter(&mut self, entry: &DirEntry, _: &Metadata) -> Result<()> {
        let len = self.path.len();
        if !self.open.is_empty() {
            self.path = self.path_of(&entry.name);
        }
        self.open.push(len);
        Ok(())
    }

    fn file(&mut self, entry: &DirEntry, _: &Metadata, amount: &Amount) -> Result<()> {
        if entry.kind == FileKind::Regular && amount.stored > 0 {
            self.count += 1;
            self.files.push((self.path_of(&entry.name), *amount));
            if self.files.len() >= self.max.saturating_mul(2).max(1024) {
                self.keep();
            }
        }
        Ok(())
    }

    fn leave(&mut self) -> Result<()> {
        self.path.truncate(self.open.pop().unwrap_or_default());
        Ok(())
    }
}
