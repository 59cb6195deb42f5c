//! Inode numbers across several subvolumes.

use std::collections::HashMap;

use tree::{Error, Ino, Result, to_u64};

use crate::tree::Tree;

/// Number of bits of an [`Ino`] that hold the inode number within its subvolume; the bits above hold the subvolume's
/// index, starting at 1. Index 0 is for the empty directories in snapshots.
pub(super) const INODE_BITS: u32 = 44;

/// The subvolumes seen so far.
#[derive(Default)]
pub(super) struct Table {
    pub(super) trees: Vec<Tree>,
    by_id: HashMap<u64, u64>,
    /// For each empty directory, the directory that contains it, and its name there.
    pub(super) empty: Vec<(Ino, Box<[u8]>)>,
    by_place: HashMap<(Ino, Box<[u8]>), u64>,
}

impl Table {
    /// The index bits of a subvolume.
    pub(super) fn subvolume(&mut self, tree: Tree) -> Result<Ino> {
        if let Some(&index) = self.by_id.get(&tree.id) {
            return Ok(Ino(index << INODE_BITS));
        }
        self.trees.push(tree);
        let index = to_u64(self.trees.len());
        if index >= 1 << (64 - INODE_BITS) {
            return Err(Error::Limit("subvolumes in one tree"));
        }
        self.by_id.insert(tree.id, index);
        Ok(Ino(index << INODE_BITS))
    }

    pub(super) fn empty(&mut self, dir: Ino, name: &[u8]) -> Ino {
        let empty = &mut self.empty;
        let index = self.by_place.entry((dir, name.into())).or_insert_with(|| {
            empty.push((dir, name.into()));
            to_u64(empty.len()).saturating_sub(1)
        });
        Ino(*index)
    }
}

pub(crate) enum Resolved {
    Inode(Tree, u64),
    /// An empty directory, and the directory that contains it.
    Empty(Ino),
}
