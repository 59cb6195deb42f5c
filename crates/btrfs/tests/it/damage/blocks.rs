//! Tree blocks, leaves and nodes.

use super::{
    CSUM_TREE, DATA, DEV_TREE, Damage, EXTENT_TREE, FS_TREE, INODE_ITEM, INODE_REF, LINUX,
    METADATA, NEITHER, ROOT_OF_FS, ROOT_TREE, SHARED, SUBVOLUME, TOP, ZSTD, add, damage, le, leaf,
    set_block, set_superblock,
};

pub(super) const BLOCKS: &[Damage] = &[
    damage(
        "block: a bit of a leaf differs",
        |image| {
            let at = image.places(leaf(image))[0];
            let byte = image.bytes(at + 3000, 1)[0];
            image.patch(at + 3000, &[byte ^ 1]);
        },
        "tree block's checksum differs",
    ),
    damage(
        "block: belongs elsewhere",
        |image| set_block(image, leaf(image), 48, &le(METADATA)),
        "belongs elsewhere",
    ),
    damage(
        "block: of another file system",
        |image| set_block(image, leaf(image), 32, &[1; 16]),
        "belongs to another file system",
    ),
    damage(
        "block: of another chunk tree",
        |image| set_block(image, leaf(image), 64, &[1; 16]),
        "",
    ),
    damage(
        "block: level is not below the parent's",
        |image| set_block(image, leaf(image), 100, &[1]),
        "node's pointer is not a block's address",
    ),
    damage(
        "block: level above all",
        |image| set_block(image, leaf(image), 100, &[8]),
        "level is too high",
    ),
    damage(
        "block: root's level is another one",
        |image| {
            image.set(ROOT_TREE, ROOT_OF_FS, 238, &[0]);
        },
        "level is not as its parent says",
    ),
    damage(
        "block: root tree's level is another one",
        |image| set_superblock(image, 198, &[0]),
        "level is not as its parent says",
    ),
    damage(
        "block: chunk tree's level is another one",
        |image| set_superblock(image, 199, &[1]),
        "level is not as its parent says",
    ),
    damage(
        "block: older than the parent says",
        |image| set_block(image, leaf(image), 80, &le(3)),
        "generation is not as its parent says",
    ),
    damage(
        "block: newer than the superblock",
        |image| set_block(image, leaf(image), 80, &le(99)),
        "newer than the superblock",
    ),
    damage(
        "block: of another tree",
        |image| set_block(image, leaf(image), 88, &le(EXTENT_TREE)),
        "belongs to another tree",
    ),
    damage(
        "block: of another subvolume",
        |image| set_block(image, leaf(image), 88, &le(SUBVOLUME)),
        "reference",
    ),
    damage(
        "block: extent tree's leaf of another tree",
        |image| {
            let at = image.item(EXTENT_TREE, SHARED).leaf;
            set_block(image, at, 88, &le(FS_TREE));
        },
        "belongs to another tree",
    ),
    damage(
        "block: more items than fit",
        |image| set_block(image, leaf(image), 96, &[0xff; 4]),
        "more entries than fit",
    ),
    damage(
        "block: leaf without items",
        |image| set_block(image, leaf(image), 96, &[0; 4]),
        "leaf is empty in a tree that cannot be",
    ),
    damage(
        "block: root of the csum tree without items",
        |image| {
            set_block(image, image.root(CSUM_TREE), 96, &[0; 4]);
        },
        "data has no checksum",
    ),
    damage(
        "block: root of the device tree without items",
        |image| {
            set_block(image, image.root(DEV_TREE), 96, &[0; 4]);
        },
        "in a tree that cannot be",
    ),
    damage(
        "block: node without pointers",
        |image| set_block(image, image.root(FS_TREE), 96, &[0; 4]),
        "points at nothing",
    ),
    damage(
        "block: never written",
        |image| set_block(image, leaf(image), 56, &[0]),
        "never written",
    )
    .but(LINUX),
    damage(
        "block: old back references",
        |image| set_block(image, leaf(image), 63, &[0]),
        "old back references",
    )
    .but(NEITHER),
    damage(
        "leaf: keys not in order",
        |image| image.rekey(FS_TREE, (ZSTD, INODE_REF, TOP), (ZSTD, 200, 0)),
        "keys do not ascend",
    ),
    damage(
        "leaf: a key twice",
        |image| image.rekey(FS_TREE, (ZSTD, INODE_REF, TOP), (ZSTD, INODE_ITEM, 0)),
        "keys do not ascend",
    ),
    damage(
        "leaf: items overlap",
        |image| {
            image.edit_block(leaf(image), |block| add(block, 101 + 25 + 17, 4));
        },
        "does not end where",
    ),
    damage(
        "leaf: item behind the end",
        |image| {
            image.edit_block(leaf(image), |block| {
                block[101 + 17..101 + 21].copy_from_slice(&[0, 0, 1, 0]);
            });
        },
        "does not end where",
    ),
    damage(
        "leaf: item longer than a leaf",
        |image| {
            image.edit_block(leaf(image), |block| {
                block[101 + 21..101 + 25].copy_from_slice(&[0xff; 4]);
            });
        },
        "does not end where",
    ),
    damage(
        "leaf: gap between items",
        |image| {
            image.edit_block(leaf(image), |block| {
                add(block, 101 + 17, 4); // the offset plus four bytes, and the size minus four
                block[101 + 21] -= 4;
            });
        },
        "does not end where",
    ),
    damage(
        "leaf: data over the list of items",
        |image| {
            image.edit_block(leaf(image), |block| {
                let count = u64::from(block[96]) as usize;
                let head = 101 + (count - 1) * 25;
                let end = u32::from_le_bytes([
                    block[head + 17],
                    block[head + 18],
                    block[head + 19],
                    block[head + 20],
                ]) + u32::from_le_bytes([
                    block[head + 21],
                    block[head + 22],
                    block[head + 23],
                    block[head + 24],
                ]);
                block[head + 17..head + 21].copy_from_slice(&100_u32.to_le_bytes());
                block[head + 21..head + 25].copy_from_slice(&(end - 100).to_le_bytes());
            });
        },
        "overlaps the list",
    ),
    damage(
        "leaf: first key is not as the parent says",
        |image| {
            image.edit_block(image.root(FS_TREE), |block| add(block, 101 + 33, -1));
        },
        "tree block's last key belongs to the next one",
    ),
    damage(
        "leaf: last key belongs to the next one",
        |image| {
            let at = leaf(image);
            image.edit_block(at, |block| {
                let count = block[96] as usize;
                block[101 + (count - 1) * 25..][..8].copy_from_slice(&le(300));
            });
        },
        "belongs to the next one",
    ),
    damage(
        "node: points at itself",
        |image| {
            let root = image.root(FS_TREE);
            set_block(image, root, 101 + 17, &le(root));
        },
        "level is not as its parent says",
    ),
    damage(
        "node: points at the other tree's root",
        |image| {
            let other = image.root(EXTENT_TREE);
            set_block(image, image.root(FS_TREE), 101 + 17, &le(other));
        },
        "tree block's level is not as its parent says",
    ),
    damage(
        "node: points at nothing",
        |image| set_block(image, image.root(FS_TREE), 101 + 17, &le(0)),
        "not a block's address",
    ),
    damage(
        "node: points within a sector",
        |image| set_block(image, image.root(FS_TREE), 101 + 17, &le(METADATA + 7)),
        "not a block's address",
    ),
    damage(
        "node: points where no chunk is",
        |image| set_block(image, image.root(FS_TREE), 101 + 17, &le(1 << 40)),
        "lies in no chunk",
    ),
    damage(
        "node: points at data",
        |image| set_block(image, image.root(FS_TREE), 101 + 17, &le(DATA)),
        "tree block's checksum differs",
    ),
    damage(
        "node: two pointers at one leaf",
        |image| {
            let first = leaf(image);
            set_block(image, image.root(FS_TREE), 101 + 33 + 17, &le(first));
        },
        "tree block's generation is not as its parent says",
    ),
    damage(
        "node: keys not in order",
        |image| {
            set_block(image, image.root(FS_TREE), 101 + 33, &le(0));
        },
        "node's keys do not ascend",
    ),
    damage(
        "node: block below is newer",
        |image| {
            set_block(image, image.root(FS_TREE), 101 + 25, &le(14));
        },
        "node is older than a block below",
    ),
    damage(
        "node: fewer pointers than leaves",
        |image| {
            image.edit_block(image.root(FS_TREE), |block| block[96] -= 1);
        },
        "extent tree has a reference that does not exist",
    ),
];
