//! Checks the log tree: what was synced since the last commit, which the kernel replays on mount.

use tree::Result;

use super::state::Check;
use crate::key::{Generation, Key, item, object};
use crate::subvolume::Root;
use crate::tree::Tree;

impl Check<'_> {
    /// Checks that every block of the log can be read: a damaged log keeps Linux from mounting.
    pub(super) fn log(&mut self) -> Result<()> {
        let btrfs = self.btrfs;
        let superblock = btrfs.superblock();
        let Some((root, level)) = superblock.log_root else {
            return Ok(());
        };
        let generation = Generation(superblock.generation.0.saturating_add(1));
        let logs = Tree {
            id: object::TREE_LOG,
            root,
            level,
            generation,
        };
        let mut cursor = logs.seek(&btrfs.volume, Key::MIN)?;
        while let Some(item) = cursor.item() {
            if item.key.kind == item::ROOT_ITEM {
                let log = Root::parse(&item, superblock)?.tree;
                let mut items = log.seek(&btrfs.volume, Key::MIN)?;
                while items.item().is_some() {
                    items.advance()?;
                }
            }
            cursor.advance()?;
        }
        Ok(())
    }
}
