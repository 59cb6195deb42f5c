//! What is to be stored, in which order: a pure function of the inventory and the options.

use std::ops::Range;

use tree::{
    Duplicates, Error, Extent, ExtentKind, FileId, FileKind, FileSystem, Inventory, Result,
};

use crate::inode::Tail;
use crate::write::Fragments;

/// The order of the files' data, and which tails share a fragment block.
pub(crate) struct Plan {
    /// The files whose data is stored, in order.
    files: Vec<FileId>,
    /// For each file of the inventory the one whose data it shows.
    pub(crate) shows: Vec<FileId>,
    /// The files whose tails are in fragments, in order.
    tails: Vec<FileId>,
    fragments: Vec<Fragment>,
    /// For each file of the inventory, where its tail is.
    pub(crate) places: Vec<Option<Tail>>,
    block_bytes: u64,
}

/// A fragment block.
struct Fragment {
    /// Which of the tails are in it.
    tails: Range<usize>,
    /// How many files' data is stored before it.
    after: usize,
}

/// One thing that a worker does.
pub(crate) enum Job {
    /// So many blocks of a file that are nothing but a hole.
    Holes {
        file: FileId,
        first: bool,
        bytes: u64,
    },
    /// A block of a file, or a part of one that is stored as a block.
    Block {
        file: FileId,
        first: bool,
        offset: u64,
        len: usize,
    },
    /// The tails of files, one behind the other.
    Fragment { tails: Vec<FileId> },
}

impl Plan {
    /// Plans the data of the regular files in an inventory, in the order of its names.
    pub(crate) fn new(
        inventory: &Inventory,
        duplicates: &Duplicates,
        block_bytes: u32,
        fragments: Fragments,
    ) -> Plan {
        let block_bytes = u64::from(block_bytes);
        let mut plan = Plan {
            files: Vec::new(),
            tails: Vec::new(),
            fragments: Vec::new(),
            places: vec![None; inventory.file_count() as usize],
            block_bytes,
            shows: inventory
                .files()
                .map(|file| duplicates.original(file).unwrap_or(file))
                .collect(),
        };
        let (mut open, mut used) = (0, 0);
        for entry in inventory
            .names()
            .filter(|&entry| inventory.is_first_name(entry))
        {
            let file = inventory.file(entry);
            let size = inventory.size(file);
            let is_stored = plan.shows[file.0 as usize] == file;
            if inventory.kind(file) != FileKind::Regular || size == 0 || !is_stored {
                continue;
            }
            let tail = size % block_bytes;
            let packed = match fragments {
                Fragments::None => false,
                Fragments::SmallFiles => size < block_bytes,
                Fragments::Always => tail > 0,
            };
            if packed {
                if used + tail > block_bytes {
                    plan.end_fragment(open);
                    (open, used) = (plan.tails.len(), 0);
                }
                plan.places[file.0 as usize] = Some(Tail {
                    fragment: plan.fragments.len() as u32,
                    offset: used as u32,
                });
                plan.tails.push(file);
                used += tail;
            }
            plan.files.push(file);
        }
        if open < plan.tails.len() {
            plan.end_fragment(open);
        }
        plan
    }

    fn end_fragment(&mut self, from: usize) {
        self.fragments.push(Fragment {
            tails: from..self.tails.len(),
            after: self.files.len(),
        });
    }

    /// Where a file's data is stored: the bytes that are in blocks, and the tail that is in a fragment.
    pub(crate) fn blocks_len(&self, size: u64, file: FileId) -> u64 {
        match self.places[file.0 as usize] {
            Some(_) => size - size % self.block_bytes,
            None => size,
        }
    }

    /// The jobs in order. Those of a file follow each other.
    pub(crate) fn jobs<'a>(
        &'a self,
        fs: &'a dyn FileSystem,
        inventory: &'a Inventory,
    ) -> impl Iterator<Item = Result<Job>> + 'a {
        let mut fragments = self.fragments.iter().peekable();
        (0..=self.files.len()).flat_map(move |index| {
            let fragment = fragments
                .next_if(|fragment| fragment.after == index)
                .map(|fragment| {
                    Ok(Job::Fragment {
                        tails: self.tails[fragment.tails.clone()].to_vec(),
                    })
                });
            let file = self.files.get(index).map(|&file| {
                let blocks_len = self.blocks_len(inventory.size(file), file);
                FileJobs {
                    fs,
                    inventory,
                    file,
                    end: blocks_len,
                    offset: 0,
                    block_bytes: self.block_bytes,
                    extents: Vec::new().into_iter().peekable(),
                }
            });
            fragment.into_iter().chain(file.into_iter().flatten())
        })
    }
}

/// The jobs of one file's blocks. Holes are found without reading them.
struct FileJobs<'a> {
    fs: &'a dyn FileSystem,
    inventory: &'a Inventory,
    file: FileId,
    /// Where the bytes that are in blocks end.
    end: u64,
    offset: u64,
    block_bytes: u64,
    extents: std::iter::Peekable<std::vec::IntoIter<Extent>>,
}

impl FileJobs<'_> {
    /// Where the hole ends that is at the offset; the offset itself when there is none.
    fn hole_end(&mut self) -> Result<u64> {
        while self
            .extents
            .next_if(|extent| extent.offset + extent.len <= self.offset)
            .is_some()
        {}
        if self.extents.peek().is_none() {
            let extents = self
                .fs
                .extents(self.inventory.ino(self.file), self.offset)?;
            self.extents = extents.into_iter().peekable();
            while self
                .extents
                .next_if(|extent| extent.offset + extent.len <= self.offset)
                .is_some()
            {}
        }
        match self.extents.peek() {
            Some(extent) if extent.kind == ExtentKind::Hole && extent.offset <= self.offset => {
                Ok(extent.offset + extent.len)
            }
            Some(_) => Ok(self.offset),
            None => Err(Error::InvalidInput(
                "the file became shorter while it was read",
            )),
        }
    }
}

impl Iterator for FileJobs<'_> {
    type Item = Result<Job>;

    fn next(&mut self) -> Option<Result<Job>> {
        if self.offset >= self.end {
            return None;
        }
        let (file, offset) = (self.file, self.offset);
        let first = offset == 0;
        // For a file of one block, asking costs more than the read that it may save.
        let hole_end = if self.end > self.block_bytes {
            self.hole_end()
        } else {
            Ok(offset)
        };
        let hole_end = match hole_end {
            Ok(end) => end.min(self.end),
            Err(error) => {
                self.offset = self.end;
                let path = self.inventory.path(self.inventory.first_name(file));
                return Some(Err(error.in_file("read", &path)));
            }
        };
        // Whole blocks, or all up to the end.
        let hole_end = if hole_end == self.end {
            hole_end
        } else {
            hole_end - hole_end % self.block_bytes
        };
        if hole_end > offset {
            self.offset = hole_end;
            return Some(Ok(Job::Holes {
                file,
                first,
                bytes: hole_end - offset,
            }));
        }
        let len = self.block_bytes.min(self.end - offset);
        self.offset += len;
        Some(Ok(Job::Block {
            file,
            first,
            offset,
            len: len as usize,
        }))
    }
}
