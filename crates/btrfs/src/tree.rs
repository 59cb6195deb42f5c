//! Trees: finds items by key, and iterates over them in order.
//!
//! Every iteration ends, whatever the image contains: a block is one level below its parent, and its keys lie between
//! its pointer's key and the next one's, so that no block is visited twice.

use std::sync::Arc;

use tree::Result;

use crate::key::{Generation, Key, Logical};
use crate::node::{Expected, Item, Node};
use crate::volume::Volume;

/// The root of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// Its ID.
    pub(crate) id: u64,
    pub(crate) root: Logical,
    pub(crate) level: u8,
    pub(crate) generation: Generation,
}

/// A position between two items of a tree, or on one.
pub(crate) struct Cursor<'v> {
    volume: &'v Volume,
    tree: Tree,
    /// The path from the root to the leaf.
    path: Vec<Step>,
}

struct Step {
    node: Arc<Node>,
    index: usize,
    /// All keys in the node are below this one.
    end: Option<Key>,
}

impl Tree {
    /// What its root block must match.
    pub(crate) fn expected(&self) -> Expected {
        Expected {
            tree: self.id,
            level: self.level,
            generation: self.generation,
            first: None,
            end: None,
        }
    }

    /// A cursor on the first item whose key is at least `key`.
    pub(crate) fn seek<'v>(&self, volume: &'v Volume, key: Key) -> Result<Cursor<'v>> {
        let mut cursor = self.descend(volume, key)?;
        if cursor.item().is_some_and(|item| item.key < key) {
            cursor.advance()?;
        }
        Ok(cursor)
    }

    /// A cursor on the last item whose key is at most `key`; on the first item if all keys are greater.
    pub(crate) fn seek_back<'v>(&self, volume: &'v Volume, key: Key) -> Result<Cursor<'v>> {
        self.descend(volume, key)
    }

    /// A cursor on the item with this key, if there is one.
    pub(crate) fn find<'v>(&self, volume: &'v Volume, key: Key) -> Result<Option<Cursor<'v>>> {
        let cursor = self.descend(volume, key)?;
        let is_there = cursor.item().is_some_and(|item| item.key == key);
        Ok(is_there.then_some(cursor))
    }

    fn descend<'v>(&self, volume: &'v Volume, key: Key) -> Result<Cursor<'v>> {
        let mut path = Vec::with_capacity(usize::from(self.level) + 1);
        let mut at = self.root;
        let mut expected = self.expected();
        loop {
            let node = volume.node(at, &expected)?;
            let index = node.count_up_to(key).saturating_sub(1);
            let end = expected.end;
            let is_leaf = node.level == 0;
            if !is_leaf {
                expected = node.expected_below(index, self.id, end);
                at = node.pointer(index).at;
            }
            path.push(Step { node, index, end });
            if is_leaf {
                let tree = *self;
                return Ok(Cursor { volume, tree, path });
            }
        }
    }
}

impl Cursor<'_> {
    /// The current item; `None` after the last one.
    pub(crate) fn item(&self) -> Option<Item<'_>> {
        let leaf = self.path.last()?;
        (leaf.index < leaf.node.len()).then(|| leaf.node.item(leaf.index))
    }

    /// Advances to the next item.
    pub(crate) fn advance(&mut self) -> Result<()> {
        if let Some(leaf) = self.path.last_mut() {
            leaf.index += 1;
            if leaf.index < leaf.node.len() {
                return Ok(());
            }
        }
        // Go up to a node with more pointers, and down along the next one.
        while let Some(step) = self.path.last_mut() {
            if step.node.level > 0 && step.index + 1 < step.node.len() {
                step.index += 1;
                break;
            }
            self.path.pop();
        }
        while let Some(step) = self.path.last()
            && step.node.level > 0
        {
            let expected = step.node.expected_below(step.index, self.tree.id, step.end);
            let node = self
                .volume
                .node(step.node.pointer(step.index).at, &expected)?;
            let end = expected.end;
            self.path.push(Step {
                node,
                index: 0,
                end,
            });
        }
        Ok(())
    }

    /// The current item, if its key has this object ID and type.
    pub(crate) fn item_of(&self, objectid: u64, kind: u8) -> Option<Item<'_>> {
        self.item()
            .filter(|item| (item.key.objectid, item.key.kind) == (objectid, kind))
    }
}
