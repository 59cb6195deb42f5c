//! Directory entries, references, attributes.

use super::{
    DIR, DIR_INDEX, DIR_ITEM, Damage, FIFO, FS_TREE, INODE_ITEM, INODE_REF, LINUX, TOP, XATTR_ITEM,
    ZSTD, add, damage, entry, le, remove_name,
};

pub(super) const NAMES: &[Damage] = &[
    damage(
        "name: entry missing",
        |image| image.remove(FS_TREE, entry(image, FIFO, DIR_ITEM)),
        "two lists of entries differ",
    ),
    damage(
        "name: index missing",
        |image| image.remove(FS_TREE, entry(image, FIFO, DIR_INDEX)),
        "two lists of entries differ",
    ),
    damage(
        "name: reference missing",
        |image| image.remove(FS_TREE, (FIFO, INODE_REF, TOP)),
        "names of inodes are not those in directories",
    ),
    damage(
        "name: all of it missing",
        remove_name,
        "number of names is wrong",
    ),
    damage(
        "name: another hash",
        |image| {
            let key = entry(image, FIFO, DIR_ITEM);
            image.rekey(FS_TREE, key, (key.0, key.1, key.2 + 1));
        },
        "wrong hash",
    ),
    damage(
        "name: longer than its item",
        |image| image.set(FS_TREE, entry(image, FIFO, DIR_ITEM), 27, &[200, 0]),
        "does not fit",
    ),
    damage(
        "name: longer than names are",
        |image| image.set(FS_TREE, entry(image, FIFO, DIR_ITEM), 27, &[0, 9]),
        "too long",
    ),
    damage(
        "name: no name",
        |image| image.set(FS_TREE, entry(image, FIFO, DIR_INDEX), 27, &[0, 0]),
        "too long",
    ),
    damage(
        "name: another type",
        |image| {
            image.set(FS_TREE, entry(image, FIFO, DIR_ITEM), 29, &[1]);
            image.set(FS_TREE, entry(image, FIFO, DIR_INDEX), 29, &[1]);
        },
        "entry's inode is not what it says",
    ),
    damage(
        "name: unknown type",
        |image| image.set(FS_TREE, entry(image, FIFO, DIR_INDEX), 29, &[77]),
        "entry's type is unknown",
    ),
    damage(
        "name: with a value",
        |image| {
            let key = entry(image, FIFO, DIR_INDEX);
            image.set(FS_TREE, key, 25, &[2, 0]);
            image.set(FS_TREE, key, 27, &[2, 0]);
        },
        "entry has a value",
    ),
    damage(
        "name: points at no inode",
        |image| {
            image.set(FS_TREE, entry(image, FIFO, DIR_ITEM), 0, &le(9999));
            image.set(FS_TREE, entry(image, FIFO, DIR_INDEX), 0, &le(9999));
        },
        "entry's inode is not what it says",
    ),
    damage(
        "name: points at its own directory",
        |image| {
            image.set(FS_TREE, entry(image, DIR, DIR_ITEM), 0, &le(TOP));
            image.set(FS_TREE, entry(image, DIR, DIR_INDEX), 0, &le(TOP));
        },
        "names of inodes are not",
    ),
    damage(
        "name: points at another kind of item",
        |image| image.set(FS_TREE, entry(image, FIFO, DIR_INDEX), 8, &[9]),
        "points at no inode",
    ),
    damage(
        "name: has a slash",
        |image| image.set(FS_TREE, entry(image, FIFO, DIR_INDEX), 31, b"/"),
        "cannot be one",
    ),
    damage(
        "name: is two dots",
        |image| {
            let key = entry(image, DIR, DIR_INDEX);
            let mut data = image.item(FS_TREE, key).data;
            data[27] = 2;
            data.truncate(30);
            data.extend(b"..");
            image.replace(FS_TREE, key, data);
        },
        "cannot be one",
    ),
    damage(
        "name: at two indexes",
        |image| {
            let data = image.item(FS_TREE, entry(image, FIFO, DIR_INDEX)).data;
            image.insert(FS_TREE, (TOP, DIR_INDEX, 9999), data);
        },
        "directory lists a name twice",
    ),
    damage(
        "name: twice in one item, and in the directory's size",
        |image| {
            let key = entry(image, FIFO, DIR_ITEM);
            let data = image.item(FS_TREE, key).data;
            let len = (data.len() - 30) as i64;
            image.replace(FS_TREE, key, data.repeat(2));
            image.edit_item(FS_TREE, (TOP, INODE_ITEM, 0), |data| add(data, 16, len));
        },
        "entry's name is in its item twice",
    ),
    damage(
        "name: twice in one item",
        |image| {
            let key = entry(image, FIFO, DIR_ITEM);
            let data = image.item(FS_TREE, key).data;
            image.replace(FS_TREE, key, [&data[..], &data].concat());
        },
        "directory's size is wrong",
    ),
    damage(
        "name: two entries at one place",
        |image| {
            let key = entry(image, FIFO, DIR_INDEX);
            let data = image.item(FS_TREE, key).data;
            image.replace(FS_TREE, key, [&data[..], &data].concat());
        },
        "index of a directory has two entries",
    ),
    damage(
        "name: other place than its reference's",
        |image| image.set(FS_TREE, (FIFO, INODE_REF, TOP), 0, &le(200)),
        "names of inodes are not",
    ),
    damage(
        "name: reference longer than its item",
        |image| image.set(FS_TREE, (FIFO, INODE_REF, TOP), 8, &[99, 0]),
        "reference's name does not fit",
    ),
    damage(
        "name: reference to another directory",
        |image| image.rekey(FS_TREE, (FIFO, INODE_REF, TOP), (FIFO, INODE_REF, DIR)),
        "names of inodes are not",
    ),
    damage(
        "name: entries of a file",
        |image| {
            let data = image.item(FS_TREE, entry(image, FIFO, DIR_INDEX)).data;
            image.insert(FS_TREE, (ZSTD, DIR_INDEX, 9), data);
        },
        "not a directory has entries",
    ),
    damage(
        "xattr: name longer than its item",
        |image| {
            let key = image.item_of(FS_TREE, ZSTD, XATTR_ITEM).key;
            image.set(FS_TREE, key, 27, &[100, 0]);
        },
        "does not fit",
    )
    .but(LINUX),
    damage(
        "xattr: value longer than its item",
        |image| {
            let key = image.item_of(FS_TREE, ZSTD, XATTR_ITEM).key;
            image.set(FS_TREE, key, 25, &[0xff, 0xff]);
        },
        "does not fit",
    )
    .but(LINUX),
    damage(
        "xattr: has an entry's type",
        |image| {
            let key = image.item_of(FS_TREE, ZSTD, XATTR_ITEM).key;
            image.set(FS_TREE, key, 29, &[1]);
        },
        "an entry's type",
    )
    .but(LINUX),
    damage(
        "xattr: points at an inode",
        |image| {
            let key = image.item_of(FS_TREE, ZSTD, XATTR_ITEM).key;
            image.set(FS_TREE, key, 0, &le(257));
        },
        "points at an inode",
    )
    .but(LINUX),
    damage(
        "xattr: another hash",
        |image| {
            let key = image.item_of(FS_TREE, ZSTD, XATTR_ITEM).key;
            image.set(FS_TREE, key, 34, b"z");
        },
        "wrong hash",
    )
    .but(LINUX),
];
