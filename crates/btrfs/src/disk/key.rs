//! Keys, and types for numbers that must not be confused.

use std::fmt;

use crate::disk::raw::DiskKey;

/// An address in the space that all trees and files share; the chunk map translates it to devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Logical(pub u64);

/// An offset on a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Physical(pub u64);

/// The number of a commit: each tree block carries that of the commit that wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// The generation of everything in an image that was never mounted, unless it has snapshots.
pub(crate) const FIRST_GENERATION: u64 = 1;

/// The address of an item in its tree. Keys are ordered by their fields, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The object of the item: the number of an inode or a tree, or an address.
    pub objectid: u64,
    /// The item's type; see [`item`].
    pub kind: u8,
    /// Distinguishes items of one type; its meaning depends on the type.
    pub offset: u64,
}

impl Key {
    /// The smallest key.
    pub const MIN: Key = Key::new(0, 0, 0);
    /// The largest key.
    pub const MAX: Key = Key::new(u64::MAX, u8::MAX, u64::MAX);

    /// The key with these three parts.
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
    /// More names of an inode (extended references).
    pub const INODE_EXTREF: u8 = 13;
    /// An extended attribute.
    pub const XATTR_ITEM: u8 = 24;
    /// Description of a file's fs-verity data.
    pub const VERITY_DESC: u8 = 36;
    /// A file's fs-verity tree.
    pub const VERITY_MERKLE: u8 = 37;
    /// An inode without a name, to be deleted.
    pub const ORPHAN_ITEM: u8 = 48;
    /// A directory range in the log, by index.
    pub const DIR_LOG_INDEX: u8 = 72;
    /// Entries of a directory, by the hash of their names.
    pub const DIR_ITEM: u8 = 84;
    /// An entry of a directory, by its index.
    pub const DIR_INDEX: u8 = 96;
    /// A part of a file.
    pub const EXTENT_DATA: u8 = 108;
    /// Checksums of data.
    pub const EXTENT_CSUM: u8 = 128;
    /// The root of a tree.
    pub const ROOT_ITEM: u8 = 132;
    /// The place of a subvolume, keyed by the subvolume.
    pub const ROOT_BACKREF: u8 = 144;
    /// The place of a subvolume, keyed by its parent subvolume.
    pub const ROOT_REF: u8 = 156;
    /// An extent.
    pub const EXTENT_ITEM: u8 = 168;
    /// A tree block.
    pub const METADATA_ITEM: u8 = 169;
    /// With simple quotas: the subvolume that created an extent.
    pub const EXTENT_OWNER_REF: u8 = 172;
    /// A reference to a tree block, by tree.
    pub const TREE_BLOCK_REF: u8 = 176;
    /// A reference to a data extent, by tree, inode and offset.
    pub const EXTENT_DATA_REF: u8 = 178;
    /// A reference to a tree block, by parent block.
    pub const SHARED_BLOCK_REF: u8 = 182;
    /// A reference to a data extent, by leaf.
    pub const SHARED_DATA_REF: u8 = 184;
    /// A block group.
    pub const BLOCK_GROUP_ITEM: u8 = 192;
    /// How a block group's free space is stored.
    pub const FREE_SPACE_INFO: u8 = 198;
    /// Free space.
    pub const FREE_SPACE_EXTENT: u8 = 199;
    /// Free space as a bitmap.
    pub const FREE_SPACE_BITMAP: u8 = 200;
    /// A part of a device that a chunk occupies.
    pub const DEV_EXTENT: u8 = 204;
    /// A device.
    pub const DEV_ITEM: u8 = 216;
    /// A chunk.
    pub const CHUNK_ITEM: u8 = 228;
    /// The state of quotas.
    pub const QGROUP_STATUS: u8 = 240;
    /// The counts of a quota group.
    pub const QGROUP_INFO: u8 = 242;
    /// The limits of a quota group.
    pub const QGROUP_LIMIT: u8 = 244;
    /// A quota group that is part of another one; stored in both directions.
    pub const QGROUP_RELATION: u8 = 246;
    /// A temporary item; the object ID names its subject (for example, balance).
    pub const TEMPORARY_ITEM: u8 = 248;
    /// A persistent item; the object ID names its subject (for example, device statistics).
    pub const PERSISTENT_ITEM: u8 = 249;
    /// A subvolume, by UUID.
    pub const UUID_SUBVOL: u8 = 251;
    /// A received subvolume, by its UUID on the sending side.
    pub const UUID_RECEIVED_SUBVOL: u8 = 252;
}

/// Reserved object IDs (`BTRFS_*_OBJECTID`): trees, and objects in them.
pub mod object {
    /// The root tree.
    pub const ROOT_TREE: u64 = 1;
    /// The extent tree.
    pub const EXTENT_TREE: u64 = 2;
    /// The chunk tree.
    pub const CHUNK_TREE: u64 = 3;
    /// The device tree.
    pub const DEV_TREE: u64 = 4;
    /// The top-level subvolume.
    pub const FS_TREE: u64 = 5;
    /// The directory of the root tree.
    pub const ROOT_TREE_DIR: u64 = 6;
    /// The checksum tree.
    pub const CSUM_TREE: u64 = 7;
    /// The quota tree.
    pub const QUOTA_TREE: u64 = 8;
    /// The UUID tree.
    pub const UUID_TREE: u64 = 9;
    /// The free space tree.
    pub const FREE_SPACE_TREE: u64 = 10;
    /// The block group tree.
    pub const BLOCK_GROUP_TREE: u64 = 11;
    /// The RAID stripe tree.
    pub const RAID_STRIPE_TREE: u64 = 12;
    /// Orphan items are listed under it.
    pub const ORPHAN: u64 = (-5_i64).cast_unsigned();
    /// Log trees.
    pub const TREE_LOG: u64 = (-6_i64).cast_unsigned();
    /// Trees being relocated.
    pub const TREE_RELOC: u64 = (-8_i64).cast_unsigned();
    /// The tree used to relocate data.
    pub const DATA_RELOC_TREE: u64 = (-9_i64).cast_unsigned();
    /// In the root tree: the free space cache, version 1.
    pub const FREE_SPACE: u64 = (-11_i64).cast_unsigned();
    /// Data checksums.
    pub const EXTENT_CSUM: u64 = (-10_i64).cast_unsigned();
    /// The first free inode and subvolume number; in a subvolume, its root directory.
    pub const FIRST_FREE: u64 = 256;
    /// The last one.
    pub const LAST_FREE: u64 = (-256_i64).cast_unsigned();
    /// Chunks.
    pub const FIRST_CHUNK_TREE: u64 = 256;
    /// Devices.
    pub const DEV_ITEMS: u64 = 1;
}

/// Whether the tree with this number holds files: the top level, a subvolume, or a tree that works
/// like one.
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
