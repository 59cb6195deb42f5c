//! The free space tree.

use super::{
    Damage, FREE_SPACE_BITMAP, FREE_SPACE_EXTENT, FREE_SPACE_INFO, FREE_SPACE_TREE, METADATA,
    MORE_DATA, ROOT_ITEM, ROOT_TREE, damage,
};

pub(super) const FREE_SPACE: &[Damage] = &[
    damage(
        "free space: an extent missing",
        |image| {
            image.remove(
                FREE_SPACE_TREE,
                image
                    .item_of(FREE_SPACE_TREE, 22_220_800, FREE_SPACE_EXTENT)
                    .key,
            );
        },
        "free",
    ),
    damage(
        "free space: where an extent lies",
        |image| {
            image.rekey(
                FREE_SPACE_TREE,
                (22_220_800, FREE_SPACE_EXTENT, 16_576_512),
                (22_216_704, FREE_SPACE_EXTENT, 16_580_608),
            );
        },
        "free space tree is wrong",
    ),
    damage(
        "free space: less than there is",
        |image| {
            image.rekey(
                FREE_SPACE_TREE,
                (22_220_800, FREE_SPACE_EXTENT, 16_576_512),
                (22_220_800, FREE_SPACE_EXTENT, 4096),
            );
        },
        "free space tree is wrong",
    ),
    damage(
        "free space: over the end of its block group",
        |image| {
            image.rekey(
                FREE_SPACE_TREE,
                (22_220_800, FREE_SPACE_EXTENT, 16_576_512),
                (22_220_800, FREE_SPACE_EXTENT, 1 << 30),
            );
        },
        "lies in no block group",
    ),
    damage(
        "free space: within a sector",
        |image| {
            image.rekey(
                FREE_SPACE_TREE,
                (22_220_800, FREE_SPACE_EXTENT, 16_576_512),
                (22_220_801, FREE_SPACE_EXTENT, 16_576_512),
            );
        },
        "not made of sectors",
    ),
    damage(
        "free space: a bit of a bitmap",
        |image| {
            image.set(
                FREE_SPACE_TREE,
                (METADATA, FREE_SPACE_BITMAP, 8_388_608),
                100,
                &[0],
            );
        },
        "free space tree is wrong",
    ),
    damage(
        "free space: bitmap cut off",
        |image| {
            image.replace(
                FREE_SPACE_TREE,
                (METADATA, FREE_SPACE_BITMAP, 8_388_608),
                vec![0; 100],
            );
        },
        "item in the free space tree is of an unexpected kind",
    ),
    damage(
        "free space: number of extents",
        |image| {
            image.set(
                FREE_SPACE_TREE,
                (MORE_DATA, FREE_SPACE_INFO, 16_777_216),
                0,
                &[9, 0, 0, 0],
            );
        },
        "number of free extents is wrong",
    ),
    damage(
        "free space: says that it uses bitmaps",
        |image| {
            image.set(
                FREE_SPACE_TREE,
                (MORE_DATA, FREE_SPACE_INFO, 16_777_216),
                4,
                &[1],
            );
        },
        "free space is not in the form that its group says",
    ),
    damage(
        "free space: info missing",
        |image| image.remove(FREE_SPACE_TREE, (MORE_DATA, FREE_SPACE_INFO, 16_777_216)),
        "lies in no block group",
    ),
    damage(
        "free space: info cut off",
        |image| {
            image.replace(
                FREE_SPACE_TREE,
                (MORE_DATA, FREE_SPACE_INFO, 16_777_216),
                vec![0; 5],
            );
        },
        "free space info's size is wrong",
    ),
    damage(
        "free space: info of no block group",
        |image| {
            image.insert(
                FREE_SPACE_TREE,
                (1 << 40, FREE_SPACE_INFO, 1 << 20),
                vec![0; 8],
            );
        },
        "free space info is of no block group",
    ),
    damage(
        "free space: tree missing",
        |image| image.remove(ROOT_TREE, (FREE_SPACE_TREE, ROOT_ITEM, 0)),
        "free space tree is missing",
    ),
    damage(
        "free space: an item of another kind",
        |image| image.insert(FREE_SPACE_TREE, (MORE_DATA, 250, 4096), vec![1]),
        "item in the free space tree is of an unexpected kind",
    ),
];
