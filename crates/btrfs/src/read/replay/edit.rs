//! Changes items of a tree in memory: blocks are copied when they are changed, as Linux does it,
//! but never written.

use tree::{Error, Result};

use crate::disk::key::{Generation, Key};
use crate::disk::node::{NewTreeBlock, Pointer, TreeBlock};
use crate::disk::raw::LEVELS_MAX;
use crate::disk::tree::Tree;
use crate::disk::volume::Volume;

/// A tree that is being changed.
pub(super) struct Editor<'v> {
    volume: &'v Volume,
    pub(super) tree: Tree,
}

impl<'v> Editor<'v> {
    pub(super) fn new(volume: &'v Volume, tree: Tree) -> Self {
        Editor { volume, tree }
    }

    /// The data of the item with this key.
    pub(super) fn get(&self, key: Key) -> Result<Option<Vec<u8>>> {
        (self.tree).get(self.volume, key, |item| Ok(item.data.to_vec()))
    }

    /// Whether there is an item with this key.
    pub(super) fn has(&self, key: Key) -> Result<bool> {
        Ok((self.tree.get(self.volume, key, |_| Ok(())))?.is_some())
    }

    /// Inserts an item, or replaces the one with this key.
    pub(super) fn put(&mut self, key: Key, data: &[u8]) -> Result<()> {
        self.edit(key, Some(data))
    }

    /// Removes the item with this key, if there is one.
    pub(super) fn remove(&mut self, key: Key) -> Result<()> {
        self.edit(key, None)
    }

    /// Puts the items that have data, and removes the others.
    pub(super) fn change(&mut self, changes: &[(Key, Option<Vec<u8>>)]) -> Result<()> {
        let mut changes = changes.iter();
        changes.try_for_each(|(key, data)| self.edit(*key, data.as_deref()))
    }

    fn edit(&mut self, key: Key, data: Option<&[u8]>) -> Result<()> {
        let mut path = self.tree.seek_back(self.volume, key)?.into_path();
        let Some(leaf) = path.pop() else {
            return Ok(());
        };
        let mut items: Vec<(Key, &[u8])> = Vec::with_capacity(leaf.node.len().saturating_add(1));
        items.extend((0..leaf.node.len()).map(|index| {
            let item = leaf.node.item(index);
            (item.key, item.data)
        }));
        let is_append = items.last().is_none_or(|last| last.0 < key);
        match (items.binary_search_by_key(&key, |item| item.0), data) {
            (Ok(at), Some(data)) => {
                items.splice(at..=at, [(key, data)]);
            }
            (Err(at), Some(data)) => items.insert(at, (key, data)),
            (Ok(at), None) => drop(items.remove(at)),
            (Err(_), None) => return Ok(()),
        }
        let mut new = self.add_leaves(&items, is_append)?;
        self.volume.remove_changed(leaf.node.at);
        for step in path.into_iter().rev() {
            let mut pointers: Vec<Pointer> = (0..step.node.len())
                .map(|index| step.node.pointer(index))
                .collect();
            pointers.splice(step.index..=step.index, new);
            new = self.add_nodes(step.node.level, &pointers)?;
            self.volume.remove_changed(step.node.at);
        }
        let mut level = self.tree.level;
        if new.is_empty() {
            level = 0;
            new = vec![self.add_leaf(&[])?];
        }
        while new.len() > 1 {
            level = level.saturating_add(1);
            if level >= LEVELS_MAX {
                return Err(Error::Limit(
                    "levels of a tree that replaying the log changes",
                ));
            }
            new = self.add_nodes(level, &new)?;
        }
        if let Some(root) = new.first() {
            self.tree.root = root.at;
        }
        self.tree.level = level;
        self.tree.generation = self.generation();
        Ok(())
    }

    /// Adds the leaves that these items need: one or, if they do not fit in it, several.
    fn add_leaves(&self, items: &[(Key, &[u8])], is_append: bool) -> Result<Vec<Pointer>> {
        let room = TreeBlock::room(self.volume.superblock.nodesize);
        let bytes = |items: &[(Key, &[u8])]| -> usize {
            items.iter().map(|item| TreeBlock::item_bytes(item.1)).sum()
        };
        let all = bytes(items);
        // Items that are appended one after the other fill their leaves.
        let wanted = if all <= room || is_append {
            room
        } else {
            all / 2
        };
        let mut pointers = Vec::new();
        let mut rest = items;
        while !rest.is_empty() {
            let mut count = 0_usize;
            let mut used = 0_usize;
            while let Some(item) = rest.get(count) {
                used = used.saturating_add(TreeBlock::item_bytes(item.1));
                if count > 0 && (used > room || used > wanted && pointers.is_empty()) {
                    break;
                }
                count = count.saturating_add(1);
            }
            let (part, after) = rest.split_at(count);
            pointers.push(self.add_leaf(part)?);
            rest = after;
        }
        Ok(pointers)
    }

    fn add_leaf(&self, items: &[(Key, &[u8])]) -> Result<Pointer> {
        let head = self.head();
        let node = self
            .volume
            .add_changed(|at| TreeBlock::leaf(NewTreeBlock { at, ..head }, items))?;
        Ok(Pointer {
            key: items.first().map_or(Key::MIN, |item| item.0),
            at: node.at,
            generation: node.generation,
        })
    }

    /// Adds the nodes that these pointers need: one or, if they do not fit in it, two.
    fn add_nodes(&self, level: u8, pointers: &[Pointer]) -> Result<Vec<Pointer>> {
        let max = TreeBlock::pointers_max(self.volume.superblock.nodesize);
        let count = if pointers.len() > max {
            pointers.len().div_ceil(2)
        } else {
            max
        };
        let head = self.head();
        let parts = pointers.chunks(count);
        parts
            .map(|part| {
                let node = self.volume.add_changed(|at| {
                    TreeBlock::pointing(NewTreeBlock { at, ..head }, level, part)
                })?;
                Ok(Pointer {
                    key: part.first().map_or(Key::MIN, |pointer| pointer.key),
                    at: node.at,
                    generation: node.generation,
                })
            })
            .collect()
    }

    /// The header of a changed block, except its address.
    fn head(&self) -> NewTreeBlock {
        NewTreeBlock {
            at: self.tree.root,
            generation: self.generation(),
            owner: self.tree.id,
            nodesize: self.volume.superblock.nodesize,
        }
    }

    /// That of the commit that would follow.
    fn generation(&self) -> Generation {
        Generation(self.volume.superblock.generation.0.saturating_add(1))
    }
}
