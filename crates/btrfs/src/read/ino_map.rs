//! Inode numbers across several subvolumes.
//!
//! They do not depend on earlier reads, so that two mounts of an image show the same
//! numbers, and file handles of one are valid in the next.

use std::collections::HashMap;

use tree::{Error, Ino, Result, to_u64, to_usize};
use xxhash::xxh64;

use crate::disk::tree::Tree;

/// Number of bits of an [`Ino`] that hold the inode number within its subvolume; the bits above
/// hold the subvolume's index.
pub(super) const INODE_BITS: u32 = 44;
const INODE_MASK: u64 = (1 << INODE_BITS) - 1;

/// The index of the subvolume that is read, whose files so have the numbers that Linux shows.
const TOP: u64 = 0;
/// The index of the empty directories in snapshots.
const EMPTY: u64 = (1 << (64 - INODE_BITS)) - 1;
/// A nested subvolume with a smaller ID has that as its index. Of the others, the one with the
/// smallest ID has this index, and so on.
const LARGE: u64 = 1 << (64 - INODE_BITS - 1);

/// The subvolumes seen so far.
pub(super) struct InoMap {
    top: Tree,
    nested: HashMap<u64, Tree>,
    /// For each empty directory, by its number, the directory that contains it, and its name there.
    empty: HashMap<u64, (Ino, Box<[u8]>)>,
}

/// Where an inode is.
pub(super) enum MappedIno {
    Inode(Tree, u64),
    /// An empty directory, and the directory that contains it.
    Empty(Ino),
    /// In a nested subvolume that was not seen yet.
    Unseen(u64),
}

/// Whether the index of a subvolume depends on which others there are.
pub(super) const fn is_large(id: u64) -> bool {
    id >= LARGE
}

/// The index of a subvolume. `large` are all [large](is_large) IDs, sorted.
pub(super) fn index_of(id: u64, large: &[u64]) -> Result<u64> {
    const MANY: Error = Error::Limit("subvolumes in one tree");
    if !is_large(id) {
        return Ok(id);
    }
    let rank = large.binary_search(&id).map_err(|_| Error::NotFound)?;
    let index = LARGE.checked_add(to_u64(rank));
    index.filter(|&index| index < EMPTY).ok_or(MANY)
}

/// The ID of the subvolume with this index.
pub(super) fn id_of(index: u64, large: &[u64]) -> Option<u64> {
    match index.checked_sub(LARGE) {
        None => Some(index),
        Some(rank) => large.get(to_usize(rank)).copied(),
    }
}

/// Whether an index is that of a large ID.
pub(super) const fn is_of_large(index: u64) -> bool {
    index >= LARGE
}

/// The inode with this number in the subvolume of another one.
pub(super) fn beside(other: Ino, number: u64) -> Ino {
    Ino(other.0 >> INODE_BITS << INODE_BITS | number)
}

impl InoMap {
    pub(super) fn new(top: Tree) -> InoMap {
        InoMap {
            top,
            nested: HashMap::new(),
            empty: HashMap::new(),
        }
    }

    /// The index bits of a subvolume with this index.
    pub(super) fn subvolume(&mut self, tree: Tree, index: u64) -> Ino {
        if tree.id == self.top.id {
            return Ino(TOP);
        }
        self.nested.insert(index, tree);
        Ino(index << INODE_BITS)
    }

    /// The number of an empty directory with this name.
    pub(super) fn empty(&mut self, dir: Ino, name: &[u8]) -> Ino {
        let mut number = xxh64(name, dir.0) & INODE_MASK;
        loop {
            let place = self.empty.entry(number);
            let place = place.or_insert_with(|| (dir, name.into()));
            if place.0 == dir && *place.1 == *name {
                return Ino(EMPTY << INODE_BITS | number);
            }
            // Two of a hundred thousand share a number with a chance of one in a thousand.
            number = number.wrapping_add(1) & INODE_MASK;
        }
    }

    pub(super) fn find(&self, ino: Ino) -> Result<MappedIno> {
        let inode = ino.0 & INODE_MASK;
        match ino.0 >> INODE_BITS {
            TOP => Ok(MappedIno::Inode(self.top, inode)),
            EMPTY => {
                let place = self.empty.get(&inode).ok_or(Error::NotFound)?;
                Ok(MappedIno::Empty(place.0))
            }
            index => Ok(match self.nested.get(&index) {
                Some(tree) => MappedIno::Inode(*tree, inode),
                None => MappedIno::Unseen(index),
            }),
        }
    }
}

pub(crate) enum Resolved {
    Inode(Tree, u64),
    /// An empty directory, and the directory that contains it.
    Empty(Ino),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_those_of_ids() {
        let large = [LARGE, LARGE + 7, u64::MAX - 256];
        for (id, index) in [
            (5, 5),
            (256, 256),
            (LARGE - 1, LARGE - 1),
            (LARGE, LARGE),
            (LARGE + 7, LARGE + 1),
            (u64::MAX - 256, LARGE + 2),
        ] {
            assert_eq!(index_of(id, &large).unwrap(), index);
            assert_eq!(id_of(index, &large), Some(id));
            assert_eq!(is_large(id), is_of_large(index));
        }
        assert!(matches!(index_of(LARGE + 1, &large), Err(Error::NotFound)));
        assert_eq!(id_of(LARGE + 3, &large), None);
        let many: Vec<u64> = (0..LARGE).map(|id| LARGE + id).collect();
        assert!(index_of(EMPTY - 1, &many).is_ok());
        assert!(matches!(index_of(EMPTY, &many), Err(Error::Limit(_))));
    }
}
