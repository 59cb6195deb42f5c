//! Keys, and the numbers that must not be mixed up.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::fmt;

use crate::raw::DiskKey;

/// A place in the address space that all trees and files share; the chunk map says where it lies on the devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Logical(pub u64);

/// A place on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Physical(pub u64);

/// The number of a commit: tree blocks carry that of the commit which wrote them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// The address of an item in its tree. The order of keys is that of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// What the item is about: an inode's or a tree's number, an address.
    pub objectid: u64,
    /// The item's type; see [`item`].
    pub kind: u8,
    /// Of several items of one type, which; the type says what it means.
    pub offset: u64,
}

impl Key {
    /// The smallest of all keys.
    pub const MIN: Key = Key::new(0, 0, 0);
    /// The largest of all keys.
    pub const MAX: Key = Key::new(u64::MAX, u8::MAX, u64::MAX);

    /// The key of these three parts.
    pub const fn new(objectid: u64, kind: u8, offset: u64) -> Key {
        Key {
            objectid,
            kind,
            offset,
        }
    }

    pub(crate) const fn parse(raw: &DiskKey) -> Key {
        Key::new(raw.objectid.get(), raw.item_type, raw.offset.get())
    }

    pub(crate) const fn emit(self) -> DiskKey {
        DiskKey {
            objectid: zerocopy::little_endian::U64::new(self.objectid),
            item_type: self.kind,
            offset: zerocopy::little_endian::U64::new(self.offset),
        }
    }

    /// The key right after this one; `None` after the largest.
    pub const fn next(self) -> Option<Key> {
        let Key {
            objectid,
            kind,
            offset,
        } = self;
        if let Some(offset) = offset.checked_add(1) {
            Some(Key::new(objectid, kind, offset))
        } else if let Some(kind) = kind.checked_add(1) {
            Some(Key::new(objectid, kind, 0))
        } else if let Some(objectid) = objectid.checked_add(1) {
            Some(Key::new(objectid, 0, 0))
        } else {
            None
        }
    }
}

impl fmt::Display for Key {
    /// `(256 1 0)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} {} {})", self.objectid, self.kind, self.offset)
    }
}

/// Item types (`BTRFS_*_KEY`).
pub mod item {
    /// An inode.
    pub const INODE_ITEM: u8 = 1;
    /// Names of an inode in one directory.
    pub const INODE_REF: u8 = 12;
    /// More names of an inode.
    pub const INODE_EXTREF: u8 = 13;
    /// An extended attribute.
    pub const XATTR_ITEM: u8 = 24;
    /// Description of a file's fs-verity data.
    pub const VERITY_DESC: u8 = 36;
    /// A file's fs-verity tree.
    pub const VERITY_MERKLE: u8 = 37;
    /// An inode without a name.
    pub const ORPHAN_ITEM: u8 = 48;
    /// The log's note of a directory's range, by index.
    pub const DIR_LOG_INDEX: u8 = 72;
    /// Entries of a directory, by the hash of their names.
    pub const DIR_ITEM: u8 = 84;
    /// An entry of a directory, by its place in the order.
    pub const DIR_INDEX: u8 = 96;
    /// A part of a file.
    pub const EXTENT_DATA: u8 = 108;
    /// Checksums of data.
    pub const EXTENT_CSUM: u8 = 128;
    /// The root of a tree.
    pub const ROOT_ITEM: u8 = 132;
    /// Where a subvolume is seen, by the subvolume.
    pub const ROOT_BACKREF: u8 = 144;
    /// Where a subvolume is seen, by the one that it is in.
    pub const ROOT_REF: u8 = 156;
    /// An extent.
    pub const EXTENT_ITEM: u8 = 168;
    /// A tree block.
    pub const METADATA_ITEM: u8 = 169;
    /// With simple quotas: the subvolume that made an extent.
    pub const EXTENT_OWNER_REF: u8 = 172;
    /// A tree block's reference by tree.
    pub const TREE_BLOCK_REF: u8 = 176;
    /// A data extent's reference by tree, inode and place.
    pub const EXTENT_DATA_REF: u8 = 178;
    /// A tree block's reference by its parent block.
    pub const SHARED_BLOCK_REF: u8 = 182;
    /// A data extent's reference by the leaf.
    pub const SHARED_DATA_REF: u8 = 184;
    /// A block group.
    pub const BLOCK_GROUP_ITEM: u8 = 192;
    /// How a block group's free space is told.
    pub const FREE_SPACE_INFO: u8 = 198;
    /// Free space.
    pub const FREE_SPACE_EXTENT: u8 = 199;
    /// Free space, bit by bit.
    pub const FREE_SPACE_BITMAP: u8 = 200;
    /// A part of a device that a chunk takes.
    pub const DEV_EXTENT: u8 = 204;
    /// A device.
    pub const DEV_ITEM: u8 = 216;
    /// A chunk.
    pub const CHUNK_ITEM: u8 = 228;
    /// What a temporary item is about stands in the object id (balance, for one).
    pub const TEMPORARY_ITEM: u8 = 248;
    /// What a persistent item is about stands in the object id (device statistics, for one).
    pub const PERSISTENT_ITEM: u8 = 249;
    /// A subvolume, by its UUID.
    pub const UUID_SUBVOL: u8 = 251;
    /// A received subvolume, by the UUID that it had where it was sent.
    pub const UUID_RECEIVED_SUBVOL: u8 = 252;
}

/// Object ids with a meaning (`BTRFS_*_OBJECTID`): trees, and what is in them.
pub mod object {
    /// The tree of trees.
    pub const ROOT_TREE: u64 = 1;
    /// The tree of extents.
    pub const EXTENT_TREE: u64 = 2;
    /// The tree of chunks.
    pub const CHUNK_TREE: u64 = 3;
    /// The tree of device extents.
    pub const DEV_TREE: u64 = 4;
    /// The top-level subvolume.
    pub const FS_TREE: u64 = 5;
    /// The directory of the tree of trees.
    pub const ROOT_TREE_DIR: u64 = 6;
    /// The tree of data checksums.
    pub const CSUM_TREE: u64 = 7;
    /// The tree of quotas.
    pub const QUOTA_TREE: u64 = 8;
    /// The tree of UUIDs.
    pub const UUID_TREE: u64 = 9;
    /// The tree of free space.
    pub const FREE_SPACE_TREE: u64 = 10;
    /// The tree of block groups.
    pub const BLOCK_GROUP_TREE: u64 = 11;
    /// The tree of stripes.
    pub const RAID_STRIPE_TREE: u64 = 12;
    /// Orphans are listed under it.
    pub const ORPHAN: u64 = -5_i64 as u64;
    /// Log trees.
    pub const TREE_LOG: u64 = -6_i64 as u64;
    /// Trees being moved.
    pub const TREE_RELOC: u64 = -8_i64 as u64;
    /// The tree through which data is moved.
    pub const DATA_RELOC_TREE: u64 = -9_i64 as u64;
    /// Data checksums.
    pub const EXTENT_CSUM: u64 = -10_i64 as u64;
    /// The first inode and subvolume number that is free to use; of a subvolume, its root directory.
    pub const FIRST_FREE: u64 = 256;
    /// The last one.
    pub const LAST_FREE: u64 = -256_i64 as u64;
    /// Chunks.
    pub const FIRST_CHUNK_TREE: u64 = 256;
    /// Devices.
    pub const DEV_ITEMS: u64 = 1;
}

/// Whether a tree of that number holds files: the top level, a subvolume, or the trees that work like one.
pub(crate) const fn is_file_tree(tree: u64) -> bool {
    tree == object::FS_TREE || (tree >= object::FIRST_FREE && tree <= object::LAST_FREE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_by_object_type_and_offset() {
        let keys = [
            Key::MIN,
            Key::new(0, 0, u64::MAX),
            Key::new(0, 1, 0),
            Key::new(256, 1, 0),
            Key::new(256, 12, 0),
            Key::MAX,
        ];
        assert!(keys.is_sorted());
        assert_eq!(keys[1].next(), Some(keys[2]));
        assert_eq!(Key::new(7, 255, u64::MAX).next(), Some(Key::new(8, 0, 0)));
        assert_eq!(Key::MAX.next(), None);
        assert_eq!(Key::parse(&keys[4].emit()), keys[4]);
    }
}
