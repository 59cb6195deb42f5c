//! Visits every tree block once, collects its references, and checks that each of its items can be
//! parsed.

use tree::{Result, to_u64};
use zerocopy::FromBytes;

use super::state::BtrfsChecker;
use crate::disk::chunk::Chunk;
use crate::disk::csum_tree;
use crate::disk::extent::{ExtentBody, FileExtent};
use crate::disk::inode::{StoredInode, for_each_name};
use crate::disk::key::{Key, is_file_tree, item, object};
use crate::disk::node::{Expected, TreeBlock, TreeItem};
use crate::disk::tree::Tree;
use crate::disk::{dir, raw};

use super::extents::Referrer;

impl BtrfsChecker<'_> {
    /// Walks a tree. In a subvolume that is being deleted, everything before `dropped` is gone.
    pub(super) fn walk(&mut self, tree: &Tree, dropped: Option<Key>) -> Result<()> {
        let reference = match tree.id {
            // During a balance, the root of a relocation tree refers to itself.
            object::TREE_RELOC => Referrer::Parent(tree.root.0),
            id => Referrer::Tree(id),
        };
        let expected = tree.expected();
        self.block(tree.root, &expected, reference, dropped)
    }

    /// Visits a block and all blocks below it. The recursion ends because each level is lower.
    fn block(
        &mut self,
        at: crate::disk::key::Logical,
        expected: &Expected,
        reference: Referrer,
        dropped: Option<Key>,
    ) -> Result<()> {
        let node = match self.btrfs.volume.node(at, expected) {
            Ok(node) => node,
            Err(error) => return self.found(expected.tree, error),
        };
        self.references.add(at.0, reference, 1);
        if !self.references.visit(&node) {
            return Ok(());
        }
        self.summary.tree_blocks += 1;
        let bytes = self.btrfs.superblock().nodesize.into();
        self.progress.advance(0, bytes);
        let is_full = self.extents.is_full_backref(at.0);
        let what = if node.flags & raw::HEADER_BACKREF_REVISION_1 == 0 {
            Some("tree block has old back references")
        } else if node.flags & raw::HEADER_RELOCATED != 0 && !is_full {
            Some("tree block was not written by a balance, as it says")
        } else {
            None
        };
        if let Some(what) = what {
            self.corrupt(what, node.owner, at.0, node.flags)?;
        }
        let below = if is_full {
            Referrer::Parent(at.0)
        } else {
            Referrer::Tree(node.owner)
        };
        if node.level == 0 {
            for index in 0..node.len() {
                let item = node.item(index);
                let result = self.item(&node, &item, below);
                self.tolerate(node.owner, result)?;
            }
            return Ok(());
        }
        let first = dropped.map_or(0, |key| node.count_up_to(key).saturating_sub(1));
        for index in first..node.len() {
            let expected = node.expected_below(index, expected.tree, expected.end);
            if let Some(paths) = &mut self.paths {
                paths.add(&node, node.pointer(index).at.0);
            }
            let dropped = dropped.filter(|_| index == first && node.level > 1);
            self.block(node.pointer(index).at, &expected, below, dropped)?;
        }
        Ok(())
    }

    /// Parses an item and records its references.
    fn item(&mut self, node: &TreeBlock, item: &TreeItem<'_>, below: Referrer) -> Result<()> {
        let superblock = &self.btrfs.volume.superblock;
        let tree = node.owner;
        let holds_files = is_file_tree(tree)
            || matches!(
                tree,
                object::ROOT_TREE | object::DATA_RELOC_TREE | object::TREE_RELOC
            );
        match item.key.kind {
            item::INODE_ITEM if holds_files => {
                StoredInode::parse(item, superblock)?;
            }
            item::INODE_REF | item::INODE_EXTREF if holds_files => {
                for_each_name(item, |_| Ok(()))?;
            }
            item::XATTR_ITEM if holds_files => dir::for_each_xattr(item, |_, _| Ok(()))?,
            item::DIR_ITEM | item::DIR_INDEX if is_file_tree(tree) => {
                dir::for_each_entry(item, |_| Ok(()))?;
            }
            item::EXTENT_DATA if holds_files => {
                let extent = FileExtent::parse(item, superblock.sectorsize)?;
                let (generation, len) = (extent.generation, extent.len);
                if let ExtentBody::Stored { extent, offset, .. } = extent.body {
                    if generation > superblock.generation.0.saturating_add(1) {
                        return Err(
                            item.corrupt("file extent is newer than the superblock", generation)
                        );
                    }
                    let head = raw::FileExtentItem::ref_from_prefix(item.data).ok();
                    let ram_bytes = head.map_or(0, |(head, _)| head.ram_bytes.get());
                    // Linux reads uncompressed data whatever this is, and so do we.
                    if offset.saturating_add(len) > ram_bytes {
                        let what = "file shows more than its extent decodes to";
                        return Err(item.corrupt(what, ram_bytes));
                    }
                    let reference = match below {
                        Referrer::Tree(root) => Referrer::Data {
                            root,
                            inode: item.key.objectid,
                            offset: item.key.offset.wrapping_sub(offset),
                        },
                        parent => parent,
                    };
                    self.references.add_data(extent.at.0, extent.len, reference);
                    if let Some(paths) = &mut self.paths {
                        paths.add(node, extent.at.0);
                    }
                }
            }
            item::DEV_ITEM if tree == object::CHUNK_TREE => {
                let device = raw::DevItem::ref_from_bytes(item.data).ok();
                if device.is_none_or(|device| !superblock.is_own(&device.fsid)) {
                    return Err(item.corrupt("device is of another file system", item.key.offset));
                }
            }
            item::CHUNK_ITEM if tree == object::CHUNK_TREE => {
                let (sectorsize, incompat) = (superblock.sectorsize, superblock.incompat);
                Chunk::parse(item.key, item.data, item.at, sectorsize, incompat)?;
            }
            item::EXTENT_CSUM if tree == object::CSUM_TREE => {
                csum_tree::parse_item(item, superblock)?;
            }
            item::UUID_SUBVOL | item::UUID_RECEIVED_SUBVOL
                if tree == object::UUID_TREE
                    && (item.data.is_empty() || !item.data.len().is_multiple_of(8)) =>
            {
                return Err(item.corrupt("uuid item's size is wrong", to_u64(item.data.len())));
            }
            other if is_file_tree(tree) && !is_of_files(other) => {
                return Err(item.corrupt("item in a subvolume has an unknown type", other.into()));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Whether an item of this type may be in a subvolume.
const fn is_of_files(kind: u8) -> bool {
    matches!(
        kind,
        item::INODE_ITEM
            | item::INODE_REF
            | item::INODE_EXTREF
            | item::XATTR_ITEM
            | item::VERITY_DESC
            | item::VERITY_MERKLE
            | item::ORPHAN_ITEM
            | item::DIR_ITEM
            | item::DIR_INDEX
            | item::EXTENT_DATA
    )
}
