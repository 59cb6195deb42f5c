//! Fields that only Linux or `btrfs check` looks at.

use super::{
    DEV_EXTENT, DEV_TREE, DIR_ITEM, Damage, FS_TREE, INODE_ITEM, LINUX, NEITHER, ORPHAN_ITEM,
    ROOT_ITEM, ROOT_OF_FS, ROOT_TREE, TOP, add, damage, entry, le, leaf, set_block, set_superblock,
};
use testkit::{BtrfsImage, BtrfsKey};

const DATA_RELOC: BtrfsKey = (-9_i64 as u64, ROOT_ITEM, 0);
/// An uncompressed extent in a file of others.
const WRITTEN: BtrfsKey = (super::ZSTD, super::EXTENT_DATA, 98_304);
const DEFAULT: &str = "root tree does not name a default subvolume";

/// Changes the entry that names the default subvolume.
fn set_default(image: &mut BtrfsImage, at: usize, bytes: &[u8]) {
    let key = image.item_of(ROOT_TREE, 6, DIR_ITEM).key;
    image.set(ROOT_TREE, key, at, bytes);
}

fn set_dev_extent(image: &mut BtrfsImage, at: usize) {
    let key = image.item_of(DEV_TREE, 1, DEV_EXTENT).key;
    image.edit_item(DEV_TREE, key, |data| add(data, at, 1));
}

/// Adds a directory that was deleted while it was open, with an entry and another inode that is its
/// file, as Linux leaves them.
fn add_deleted_directory(image: &mut BtrfsImage) {
    const DELETED: u64 = 7000;
    let mut inode = image.item(FS_TREE, (TOP, INODE_ITEM, 0)).data;
    inode[16..24].fill(0);
    inode[40..44].fill(0);
    let place = entry(image, super::FIFO, super::DIR_INDEX);
    let mut name = image.item(FS_TREE, place).data;
    name[..8].copy_from_slice(&le(DELETED + 1));
    image.insert(FS_TREE, (DELETED, INODE_ITEM, 0), inode);
    image.insert(FS_TREE, (DELETED, super::DIR_INDEX, 2), name);
    let orphans = -5_i64 as u64;
    image.insert(FS_TREE, (orphans, ORPHAN_ITEM, DELETED), Vec::new());
}

pub(super) const FIELDS: &[Damage] = &[
    damage(
        "root: the top level has no reference",
        |image| image.set(ROOT_TREE, ROOT_OF_FS, 216, &[0; 4]),
        "tree has no reference",
    )
    .but(LINUX),
    damage(
        "root: the data relocation tree has no reference",
        |image| image.set(ROOT_TREE, DATA_RELOC, 216, &[0; 4]),
        "tree has no reference",
    )
    .but(LINUX),
    damage(
        "root: the extent tree has no reference, as mkfs.btrfs writes the quota tree",
        |image| image.set(ROOT_TREE, (2, ROOT_ITEM, 0), 216, &[0; 4]),
        "",
    ),
    damage(
        "root: the data relocation tree has another directory",
        |image| image.set(ROOT_TREE, DATA_RELOC, 168, &le(257)),
        "subvolume's root directory has the wrong number",
    ),
    damage(
        "root: the data relocation tree's key has an offset, as in converted file systems",
        |image| image.rekey(ROOT_TREE, DATA_RELOC, (DATA_RELOC.0, ROOT_ITEM, 2)),
        "",
    ),
    damage(
        "root: the last snapshot is in the future",
        |image| image.set(ROOT_TREE, ROOT_OF_FS, 200, &le(1 << 40)),
        "root's last snapshot is in the future",
    )
    .but(LINUX),
    damage(
        "superblock: unknown flag",
        |image| set_superblock(image, 56, &le(1 | 1 << 20)),
        "superblock has unknown flags",
    )
    .but(LINUX),
    damage(
        "superblock: a remap tree",
        |image| set_superblock(image, 190, &[2]),
        "a btrfs file system with a remap tree",
    ),
    damage(
        "superblock: a RAID stripe tree and something newer",
        |image| image.edit_superblock(|block| (block[189], block[195]) = (0x40, 0x40)),
        "a btrfs file system with a RAID stripe tree",
    ),
    damage(
        "superblock: another device",
        |image| image.edit_superblock(|block| block[267] ^= 1),
        "superblock's device is not the one in the chunk tree",
    )
    .but(LINUX),
    damage(
        "device extent: of another chunk tree",
        |image| set_dev_extent(image, 0),
        "device extent names no chunk",
    )
    .but(LINUX),
    damage(
        "device extent: of another chunk object",
        |image| set_dev_extent(image, 8),
        "device extent names no chunk",
    )
    .but(LINUX),
    damage(
        "default: another type of key",
        |image| set_default(image, 8, &[1]),
        DEFAULT,
    )
    .but(LINUX),
    damage(
        "default: another offset, as the root of a snapshot has",
        |image| set_default(image, 9, &le(7)),
        "",
    ),
    damage(
        "default: another kind of file",
        |image| set_default(image, 29, &[1]),
        DEFAULT,
    )
    .but(NEITHER),
    damage(
        "default: another name",
        |image| set_default(image, 30, b"x"),
        DEFAULT,
    )
    .but(LINUX),
    damage(
        "block: old back references in a node",
        |image| {
            let root = image.root(FS_TREE);
            set_block(image, root, 56, &le(1));
        },
        "tree block has old back references",
    )
    .but(NEITHER),
    damage(
        "block: written by a balance",
        |image| {
            let leaf = leaf(image);
            set_block(image, leaf, 56, &le(1 << 56 | 3));
        },
        "tree block was not written by a balance, as it says",
    )
    .but(NEITHER),
    damage(
        "extent: decodes to fewer bytes than the file shows",
        |image| image.set(FS_TREE, WRITTEN, 8, &le(0)),
        "file shows more than its extent decodes to",
    ),
    damage(
        "extent: preallocated, with checksums",
        |image| image.set(FS_TREE, WRITTEN, 20, &[2]),
        "preallocated bytes have checksums",
    ),
    damage(
        "superblock: stripes of a byte",
        |image| set_superblock(image, 156, &[1, 0, 0, 0]),
        "stripe size is impossible",
    ),
    damage(
        "superblock: without skinny extent items, which there are",
        |image| image.edit_superblock(|block| block[189] &= !1),
        "skinny extent item, which the superblock lacks",
    ),
    damage(
        "orphan: a directory with entries",
        add_deleted_directory,
        "",
    ),
];
