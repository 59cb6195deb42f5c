//! Trees: finds items by key, and iterates over them in order.
//!
//! Every iteration ends, even in a hostile image: a block is one level below its parent, and
//! its keys lie between its pointer's key and the next one's, so that no block is visited twice.

use std::sync::Arc;

use tree::{Error, Result};

use crate::disk::key::{Generation, Key, Logical};
use crate::disk::node::{Expected, TreeBlock, TreeItem};
use crate::disk::volume::Volume;

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
    path: Vec<PathStep>,
    /// The largest key that is wanted. Blocks that only have larger ones are not read.
    last: Key,
    /// Blocks that cannot be read are left out and listed here; without a list, they are errors.
    damage: Option<Vec<UnreadableBlock>>,
}

/// A block that cannot be read.
#[derive(Debug)]
pub(crate) struct UnreadableBlock {
    pub(crate) error: Error,
    /// The keys of the items that it leads to: from this one,
    pub(crate) from: Key,
    /// up to this one, exclusive; `None` if there is no limit.
    pub(crate) end: Option<Key>,
}

/// A block on the path of a cursor.
pub(crate) struct PathStep {
    pub(crate) node: Arc<TreeBlock>,
    pub(crate) index: usize,
    /// All keys in the node are below this one.
    end: Option<Key>,
}

impl Tree {
    /// The properties that its root block must have.
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
        self.range(volume, key, Key::MAX)
    }

    /// A cursor on the first item whose key is at least `first`; after the last one whose key is at
    /// most `last`, it ends, without reading blocks that only have larger keys.
    pub(crate) fn range<'v>(
        &self,
        volume: &'v Volume,
        first: Key,
        last: Key,
    ) -> Result<Cursor<'v>> {
        self.range_in(volume, first, last, None)
    }

    /// As [`Tree::range`], without the blocks that cannot be read; see [`Cursor::damage`].
    ///
    /// # Errors
    /// Fails if the root block cannot be read.
    pub(crate) fn readable<'v>(
        &self,
        volume: &'v Volume,
        first: Key,
        last: Key,
    ) -> Result<Cursor<'v>> {
        self.range_in(volume, first, last, Some(Vec::new()))
    }

    fn range_in<'v>(
        &self,
        volume: &'v Volume,
        first: Key,
        last: Key,
        damage: Option<Vec<UnreadableBlock>>,
    ) -> Result<Cursor<'v>> {
        let mut cursor = self.descend(volume, first, last, damage)?;
        if cursor.item().is_some_and(|item| item.key < first) {
            cursor.advance()?;
        }
        Ok(cursor)
    }

    /// A cursor on the last item whose key is at most `key`; on the first item if all keys are
    /// greater.
    pub(crate) fn seek_back<'v>(&self, volume: &'v Volume, key: Key) -> Result<Cursor<'v>> {
        self.range_back(volume, key, Key::MAX)
    }

    /// As [`Tree::seek_back`], and ends as [`Tree::range`] does.
    pub(crate) fn range_back<'v>(
        &self,
        volume: &'v Volume,
        key: Key,
        last: Key,
    ) -> Result<Cursor<'v>> {
        self.descend(volume, key, last, None)
    }

    /// The value that `read` makes of the item with this key, if there is one.
    pub(crate) fn get<T>(
        &self,
        volume: &Volume,
        key: Key,
        read: impl FnOnce(TreeItem<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        let cursor = self.descend(volume, key, key, None)?;
        let item = cursor.item().filter(|item| item.key == key);
        item.map(read).transpose()
    }

    fn descend<'v>(
        &self,
        volume: &'v Volume,
        key: Key,
        last: Key,
        damage: Option<Vec<UnreadableBlock>>,
    ) -> Result<Cursor<'v>> {
        let node = volume.node(self.root, &self.expected())?;
        let mut cursor = Cursor {
            volume,
            tree: *self,
            path: Vec::with_capacity(usize::from(self.level) + 1),
            last,
            damage,
        };
        cursor.push(node, None);
        while let Some(step) = cursor.path.last_mut() {
            step.index = step.node.count_up_to(key).saturating_sub(1);
            if step.node.level == 0 {
                break;
            }
            if !cursor.go_down()? {
                // The block that would have the key cannot be read.
                cursor.settle()?;
                break;
            }
        }
        Ok(cursor)
    }
}

impl Cursor<'_> {
    /// The current item; `None` after the last one.
    pub(crate) fn item(&self) -> Option<TreeItem<'_>> {
        let leaf = self.path.last()?;
        let item = (leaf.index < leaf.node.len()).then(|| leaf.node.item(leaf.index));
        item.filter(|item| item.key <= self.last)
    }

    /// Advances to the next item.
    pub(crate) fn advance(&mut self) -> Result<()> {
        if let Some(leaf) = self.path.last_mut() {
            leaf.index = leaf.index.saturating_add(1);
        }
        self.settle()
    }

    /// The current item, if its key has this object ID and type.
    pub(crate) fn item_of(&self, objectid: u64, kind: u8) -> Option<TreeItem<'_>> {
        self.item()
            .filter(|item| (item.key.objectid, item.key.kind) == (objectid, kind))
    }

    /// The blocks that could not be read so far, of a cursor that leaves them out.
    pub(crate) fn damage(&self) -> &[UnreadableBlock] {
        self.damage.as_deref().unwrap_or_default()
    }

    /// As [`Cursor::damage`], with the errors.
    pub(crate) fn into_damage(self) -> Vec<UnreadableBlock> {
        self.damage.unwrap_or_default()
    }

    /// The path from the root to the leaf.
    pub(crate) fn into_path(self) -> Vec<PathStep> {
        self.path
    }

    /// Goes to the item at the current position, up from the end of a block and down to the next
    /// leaf.
    fn settle(&mut self) -> Result<()> {
        while let Some(step) = self.path.last() {
            if step.index >= step.node.len() {
                self.path.pop();
                if let Some(above) = self.path.last_mut() {
                    above.index = above.index.saturating_add(1);
                }
            } else if step.node.key(step.index) > self.last {
                self.path.clear();
            } else if step.node.level == 0 {
                return Ok(());
            } else {
                self.go_down()?;
            }
        }
        Ok(())
    }

    /// Reads the block that the current pointer points at. If it cannot be read and is to be left
    /// out, goes to the next pointer and returns `false`.
    fn go_down(&mut self) -> Result<bool> {
        let Some(step) = self.path.last_mut() else {
            return Ok(false);
        };
        let expected = step.node.expected_below(step.index, self.tree.id, step.end);
        let pointer = step.node.pointer(step.index);
        match (self.volume.node(pointer.at, &expected), &mut self.damage) {
            (Ok(node), _) => {
                self.push(node, expected.end);
                Ok(true)
            }
            (Err(error), None) => Err(error),
            (Err(error), Some(damage)) => {
                damage.push(UnreadableBlock {
                    error,
                    from: pointer.key,
                    end: expected.end,
                });
                step.index = step.index.saturating_add(1);
                Ok(false)
            }
        }
    }

    fn push(&mut self, node: Arc<TreeBlock>, end: Option<Key>) {
        self.path.push(PathStep {
            node,
            index: 0,
            end,
        });
    }
}
