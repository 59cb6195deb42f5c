//! The superblock.

use super::{
    COPIES, Damage, EXTENT_TREE, FS_TREE, METADATA, NEITHER, add, damage, le, set_superblock,
};

pub(super) const SUPERBLOCK: &[Damage] = &[
    damage(
        "superblock: first copy overwritten",
        |image| {
            image.patch(65_536, &[0; 4096]);
        },
        "not a btrfs superblock",
    ),
    damage(
        "superblock: all copies overwritten",
        |image| {
            image.patch(65_536, &[0; 4096]);
            image.patch(64 << 20, &[0; 4096]);
        },
        "not a btrfs superblock",
    ),
    damage(
        "superblock: a bit differs",
        |image| image.patch(65_536 + 300, &[1]),
        "superblock's checksum differs",
    ),
    damage(
        "superblock: a bit of the second copy differs",
        |image| image.patch((64 << 20) + 300, &[1]),
        "superblock's checksum differs",
    )
    .but(COPIES),
    damage(
        "superblock: second copy never written",
        |image| image.patch(64 << 20, &[0; 4096]),
        "",
    ),
    damage(
        "superblock: total size less than the device's",
        |image| set_superblock(image, 112, &le(image.superblock(112, 8) - 4096)),
        "superblock's total size is less than the devices'",
    ),
    damage(
        "superblock: total size more than the device's",
        |image| set_superblock(image, 112, &le(image.superblock(112, 8) + 4096)),
        "",
    ),
    damage(
        "superblock: second copy is of the transaction before",
        |image| {
            image.edit_superblock_copy(1, |block| add(block, 72, -1));
        },
        "",
    ),
    damage(
        "superblock: second copy is old",
        |image| {
            image.edit_superblock_copy(1, |block| add(block, 72, -2));
        },
        "copy of the superblock is old",
    )
    .but(COPIES),
    // As where a device was copied while it was written: the first copy is read, as by Linux.
    damage(
        "superblock: second copy is newer, and its root tree is not there",
        |image| {
            image.edit_superblock_copy(1, |block| {
                add(block, 72, 4);
                add(block, 80, 1 << 20);
            });
        },
        "copy of the superblock is newer",
    )
    .but(COPIES),
    damage(
        "superblock: copy belongs elsewhere",
        |image| {
            image.edit_superblock_copy(1, |block| add(block, 48, -4096));
        },
        "superblock belongs elsewhere",
    )
    .but(COPIES),
    damage(
        "superblock: unknown checksum",
        |image| set_superblock(image, 196, &[9]),
        "checksum",
    ),
    damage(
        "superblock: unknown feature",
        |image| set_superblock(image, 188 + 7, &[0x40]),
        "features of a newer kernel",
    ),
    damage(
        "superblock: sector size",
        |image| set_superblock(image, 144, &[1, 16, 0, 0]),
        "sector size is impossible",
    ),
    damage(
        "superblock: sector size of 0",
        |image| set_superblock(image, 144, &[0; 4]),
        "sector size is impossible",
    ),
    damage(
        "superblock: node size of 0",
        |image| set_superblock(image, 148, &[0; 8]),
        "tree block size is impossible",
    ),
    damage(
        "superblock: node size of 128 KiB",
        |image| set_superblock(image, 148, &[0, 0, 2, 0, 0, 0, 2, 0]),
        "tree block size is impossible",
    ),
    damage(
        "superblock: node size is another one",
        |image| set_superblock(image, 148, &[0, 64, 0, 0, 0, 64, 0, 0]),
        "tree block's checksum differs",
    ),
    damage(
        "superblock: system chunks longer than their room",
        |image| set_superblock(image, 160, &[0, 16, 0, 0]),
        "do not fit",
    ),
    damage(
        "superblock: system chunks cut off",
        |image| set_superblock(image, 160, &[50, 0, 0, 0]),
        "cut off",
    ),
    damage(
        "superblock: no system chunk",
        |image| set_superblock(image, 160, &[0; 4]),
        "do not fit",
    ),
    damage(
        "superblock: system chunk of 65,535 stripes",
        |image| set_superblock(image, 811 + 17 + 44, &[0xff, 0xff]),
        "cut off",
    ),
    damage(
        "superblock: system chunk without stripes",
        |image| set_superblock(image, 811 + 17 + 44, &[0, 0]),
        "stripes do not fill",
    ),
    damage(
        "superblock: system chunk lies elsewhere",
        |image| set_superblock(image, 811 + 17 + 48 + 8, &le(METADATA)),
        "tree block belongs elsewhere",
    ),
    damage(
        "superblock: root tree is nowhere",
        |image| set_superblock(image, 80, &le(1 << 50)),
        "lies in no chunk",
    ),
    damage(
        "superblock: root tree within a sector",
        |image| set_superblock(image, 80, &le(METADATA + 1)),
        "not at a sector's start",
    ),
    damage(
        "superblock: root tree is another tree",
        |image| set_superblock(image, 80, &le(image.root(EXTENT_TREE))),
        "tree block belongs to another tree",
    ),
    damage(
        "superblock: root tree is old",
        |image| image.edit_superblock(|block| add(block, 72, 1)),
        "generation is not as its parent says",
    ),
    damage(
        "superblock: chunk tree is nowhere",
        |image| set_superblock(image, 88, &le(1 << 50)),
        "lies in no chunk",
    ),
    damage(
        "superblock: chunk tree is newer than it",
        |image| set_superblock(image, 164, &le(99)),
        "chunk tree is newer",
    ),
    damage(
        "superblock: level above all",
        |image| set_superblock(image, 198, &[9]),
        "more levels than there can be",
    ),
    damage(
        "superblock: no bytes used",
        |image| set_superblock(image, 120, &le(0)),
        "fewer bytes are used",
    ),
    damage(
        "superblock: other bytes used",
        |image| set_superblock(image, 120, &le(500_000)),
        "superblock's used bytes are wrong",
    ),
    damage(
        "superblock: more used than there is",
        |image| set_superblock(image, 120, &le(1 << 40)),
        "more bytes are used",
    ),
    damage(
        "superblock: other bytes in all",
        |image| image.edit_superblock(|block| add(block, 112, 1 << 20)),
        "",
    ),
    damage(
        "superblock: no device",
        |image| set_superblock(image, 136, &le(0)),
        "number of devices is impossible",
    ),
    damage(
        "superblock: a device too many",
        |image| set_superblock(image, 136, &le(2)),
        "superblock's number of devices is wrong",
    ),
    damage(
        "superblock: device of another file system",
        |image| set_superblock(image, 201 + 82, &[7; 16]),
        "belongs to another file system",
    ),
    damage(
        "superblock: another root directory",
        |image| set_superblock(image, 128, &le(7)),
        "has the wrong number",
    )
    .but(NEITHER),
    damage(
        "superblock: log tree is nowhere",
        |image| set_superblock(image, 96, &le(1 << 50)),
        "address lies in no chunk",
    ),
    damage(
        "superblock: log tree is a tree block of another kind",
        |image| set_superblock(image, 96, &le(image.root(FS_TREE))),
        "tree block's level is not as its parent says",
    ),
    damage(
        "superblock: label without an end",
        |image| set_superblock(image, 299, &[b'a'; 256]),
        "",
    ),
    damage(
        "superblock: another UUID than the trees'",
        |image| {
            image.edit_superblock(|block| {
                block[32..48].fill(3);
                block[201 + 82..201 + 98].fill(3);
            });
        },
        "belongs to another file system",
    ),
];
