//! Roots, and the places of subvolumes.

use super::{
    CSUM_TREE, DEV_TREE, DIR, DIR_ITEM, Damage, EXTENT_TREE, FS_TREE, LINUX, METADATA, NEITHER,
    NEWER, ROOT_BACKREF, ROOT_ITEM, ROOT_OF_FS, ROOT_REF, ROOT_TREE, SUBVOLUME, damage, le,
};

pub(super) const SUBVOLUMES: &[Damage] = &[
    damage(
        "root: of the file tree missing",
        |image| image.remove(ROOT_TREE, ROOT_OF_FS),
        "tree is missing",
    ),
    damage(
        "root: of the extent tree missing",
        |image| image.remove(ROOT_TREE, (EXTENT_TREE, ROOT_ITEM, 0)),
        "tree is missing",
    ),
    damage(
        "root: of the csum tree missing",
        |image| image.remove(ROOT_TREE, (CSUM_TREE, ROOT_ITEM, 0)),
        "tree is missing",
    ),
    damage(
        "root: of the device tree missing",
        |image| image.remove(ROOT_TREE, (DEV_TREE, ROOT_ITEM, 0)),
        "tree is missing",
    ),
    damage(
        "root: item cut off",
        |image| image.replace(ROOT_TREE, ROOT_OF_FS, vec![0; 200]),
        "root item's size is wrong",
    ),
    damage(
        "root: nowhere",
        |image| image.set(ROOT_TREE, ROOT_OF_FS, 176, &le(1 << 45)),
        "lies in no chunk",
    ),
    damage(
        "root: within a sector",
        |image| image.set(ROOT_TREE, ROOT_OF_FS, 176, &le(METADATA + 5)),
        "begins within a sector",
    ),
    damage(
        "root: is another tree's",
        |image| image.set(ROOT_TREE, ROOT_OF_FS, 176, &le(image.root(DEV_TREE))),
        "tree block's level is not as its parent says",
    ),
    damage(
        "root: is another subvolume's",
        |image| {
            let other = image.item(ROOT_TREE, (257, ROOT_ITEM, 0)).data;
            image.set(ROOT_TREE, (SUBVOLUME, ROOT_ITEM, 0), 160, &other[160..168]);
            image.set(ROOT_TREE, (SUBVOLUME, ROOT_ITEM, 0), 176, &other[176..184]);
        },
        "extent tree lacks a reference",
    ),
    damage(
        "root: another generation",
        |image| image.set(ROOT_TREE, ROOT_OF_FS, 160, &le(5)),
        "generation is not as its parent says",
    ),
    damage(
        "root: newer than the superblock",
        |image| image.set(ROOT_TREE, ROOT_OF_FS, 160, &le(99)),
        "root is newer",
    ),
    damage(
        "root: level above all",
        |image| image.set(ROOT_TREE, ROOT_OF_FS, 238, &[8]),
        "level is too high",
    ),
    damage(
        "root: unknown flags",
        |image| image.set(ROOT_TREE, ROOT_OF_FS, 208, &le(1 << 60)),
        "unknown flags",
    )
    .but(LINUX),
    damage(
        "root: no references",
        |image| image.set(ROOT_TREE, (257, ROOT_ITEM, 0), 216, &[0; 4]),
        "deleted subvolume is still seen",
    ),
    damage(
        "root: two references",
        |image| image.set(ROOT_TREE, (257, ROOT_ITEM, 0), 216, &[2, 0, 0, 0]),
        "subvolume has more than one reference",
    )
    .but(NEWER),
    damage(
        "root: another directory",
        |image| image.set(ROOT_TREE, (257, ROOT_ITEM, 0), 168, &le(999)),
        "subvolume's root directory has the wrong number",
    ),
    damage(
        "root: other bytes used",
        |image| image.set(ROOT_TREE, (257, ROOT_ITEM, 0), 192, &le(1 << 30)),
        "",
    ),
    damage(
        "root: being deleted at no level",
        |image| image.set(ROOT_TREE, (257, ROOT_ITEM, 0), 220, &le(257)),
        "deleted at no level",
    )
    .but(LINUX),
    damage(
        "subvolume: reference missing",
        |image| image.remove(ROOT_TREE, (FS_TREE, ROOT_REF, SUBVOLUME)),
        "places of subvolumes differ",
    ),
    damage(
        "subvolume: back reference missing",
        |image| image.remove(ROOT_TREE, (SUBVOLUME, ROOT_BACKREF, FS_TREE)),
        "places of subvolumes differ",
    ),
    damage(
        "subvolume: both references missing",
        |image| {
            image.remove(ROOT_TREE, (FS_TREE, ROOT_REF, SUBVOLUME));
            image.remove(ROOT_TREE, (SUBVOLUME, ROOT_BACKREF, FS_TREE));
        },
        "subvolume is seen nowhere",
    ),
    damage(
        "subvolume: another name",
        |image| image.set(ROOT_TREE, (SUBVOLUME, ROOT_BACKREF, FS_TREE), 18, b"x"),
        "places of subvolumes differ",
    ),
    damage(
        "subvolume: another place in its directory",
        |image| {
            image.set(ROOT_TREE, (SUBVOLUME, ROOT_BACKREF, FS_TREE), 8, &le(99));
            image.set(ROOT_TREE, (FS_TREE, ROOT_REF, SUBVOLUME), 8, &le(99));
        },
        "subvolume's name is not in its directory",
    ),
    damage(
        "subvolume: another directory",
        |image| {
            image.set(ROOT_TREE, (SUBVOLUME, ROOT_BACKREF, FS_TREE), 0, &le(DIR));
            image.set(ROOT_TREE, (FS_TREE, ROOT_REF, SUBVOLUME), 0, &le(DIR));
        },
        "not in its directory",
    ),
    damage(
        "subvolume: name longer than its item",
        |image| image.set(ROOT_TREE, (SUBVOLUME, ROOT_BACKREF, FS_TREE), 16, &[99, 0]),
        "name does not fill",
    ),
    damage(
        "subvolume: within itself",
        |image| {
            image.rekey(
                ROOT_TREE,
                (SUBVOLUME, ROOT_BACKREF, FS_TREE),
                (SUBVOLUME, ROOT_BACKREF, 257),
            );
        },
        "places of subvolumes differ",
    ),
    damage(
        "subvolume: default is none",
        |image| {
            image.edit_item(
                ROOT_TREE,
                image.item_of(ROOT_TREE, 6, DIR_ITEM).key,
                |data| data[..8].copy_from_slice(&le(9999)),
            );
        },
        "root tree does not name a default subvolume",
    )
    .but(LINUX),
    damage(
        "subvolume: default has no entry",
        |image| image.remove(ROOT_TREE, image.item_of(ROOT_TREE, 6, DIR_ITEM).key),
        "",
    ),
    damage(
        "subvolume: uuid tree names another",
        |image| image.set(9, image.items(9)[0].key, 0, &le(999)),
        "",
    ),
    damage(
        "subvolume: uuid item cut off",
        |image| image.replace(9, image.items(9)[0].key, vec![0; 5]),
        "uuid item's size is wrong",
    )
    .but(NEITHER),
];
