//! Inodes and file content.

use super::{
    DATA, DIR, Damage, EXTENT_DATA, FIFO, FS_TREE, INLINE, INLINE_ZSTD, INODE_ITEM, LINK, LINUX,
    NEITHER, NEWER, ORPHAN_ITEM, PREALLOC, SPARSE, TOP, ZSTD, damage, le, leaf, remove_name,
    set_superblock,
};

pub(super) const INODES: &[Damage] = &[
    damage(
        "inode: item missing",
        |image| image.remove(FS_TREE, (FIFO, INODE_ITEM, 0)),
        "inode is not",
    ),
    damage(
        "inode: item cut off",
        |image| image.replace(FS_TREE, (FIFO, INODE_ITEM, 0), vec![0; 100]),
        "inode item's size is wrong",
    ),
    damage(
        "inode: key has an offset",
        |image| image.rekey(FS_TREE, (FIFO, INODE_ITEM, 0), (FIFO, INODE_ITEM, 5)),
        "key has an offset",
    )
    .but(LINUX),
    damage(
        "inode: a name too many",
        |image| image.edit_item(FS_TREE, (ZSTD, INODE_ITEM, 0), |data| data[40] = 2),
        "number of names is wrong",
    ),
    damage(
        "inode: no name",
        |image| image.edit_item(FS_TREE, (ZSTD, INODE_ITEM, 0), |data| data[40] = 0),
        "number of names is wrong",
    ),
    damage(
        "inode: directory with two names",
        |image| image.edit_item(FS_TREE, (DIR, INODE_ITEM, 0), |data| data[40] = 2),
        "more than one name",
    ),
    damage(
        "inode: impossible mode",
        |image| image.set(FS_TREE, (ZSTD, INODE_ITEM, 0), 52, &[0, 0xf0, 0, 0]),
        "mode is impossible",
    ),
    damage(
        "inode: no mode",
        |image| image.set(FS_TREE, (ZSTD, INODE_ITEM, 0), 52, &[0; 4]),
        "mode is impossible",
    ),
    damage(
        "inode: mode of 32 bits",
        |image| image.set(FS_TREE, (ZSTD, INODE_ITEM, 0), 52, &[0xff; 4]),
        "mode is impossible",
    ),
    damage(
        "inode: another type than its entry's",
        |image| image.set(FS_TREE, (FIFO, INODE_ITEM, 0), 53, &[0xc1]),
        "entry's inode is not what it says",
    ),
    damage(
        "inode: file is a directory",
        |image| image.set(FS_TREE, (ZSTD, INODE_ITEM, 0), 52, &[0xed, 0x41]),
        "directory's size is wrong",
    ),
    damage(
        "inode: directory is a file",
        |image| image.set(FS_TREE, (DIR, INODE_ITEM, 0), 52, &[0xa4, 0x81]),
        "file that is not a directory has entries",
    ),
    damage(
        "inode: root directory is a file",
        |image| image.set(FS_TREE, (TOP, INODE_ITEM, 0), 52, &[0xa4, 0x81]),
        "file that is not a directory has entries",
    ),
    damage(
        "inode: newer than the superblock",
        |image| image.set(FS_TREE, (ZSTD, INODE_ITEM, 0), 0, &le(99)),
        "inode is newer",
    ),
    damage(
        "inode: changed after the superblock",
        |image| image.set(FS_TREE, (ZSTD, INODE_ITEM, 0), 8, &le(99)),
        "inode is newer",
    ),
    damage(
        "inode: unknown flags",
        |image| image.set(FS_TREE, (ZSTD, INODE_ITEM, 0), 64, &le(1 << 20)),
        "unknown flags",
    )
    .but(LINUX),
    damage(
        "inode: impossible size",
        |image| image.set(FS_TREE, (ZSTD, INODE_ITEM, 0), 16, &[0xff; 8]),
        "inode's size is impossible",
    )
    .but(NEITHER),
    damage(
        "inode: size of 8 EiB less one",
        |image| image.set(FS_TREE, (ZSTD, INODE_ITEM, 0), 16, &le(i64::MAX as u64)),
        "",
    ),
    damage(
        "inode: size of a sparse file",
        |image| image.set(FS_TREE, (SPARSE, INODE_ITEM, 0), 16, &le(1 << 50)),
        "",
    ),
    damage(
        "inode: shorter than its extents",
        |image| image.set(FS_TREE, (ZSTD, INODE_ITEM, 0), 16, &le(1000)),
        "",
    ),
    damage(
        "inode: other stored bytes",
        |image| image.set(FS_TREE, (ZSTD, INODE_ITEM, 0), 24, &le(4096)),
        "stored bytes are wrong",
    ),
    damage(
        "inode: inline file of another size",
        |image| image.set(FS_TREE, (INLINE, INODE_ITEM, 0), 16, &le(3)),
        "",
    ),
    damage(
        "inode: inline file longer than its content",
        |image| image.set(FS_TREE, (INLINE, INODE_ITEM, 0), 16, &le(3000)),
        "",
    ),
    damage(
        "inode: directory of another size",
        |image| image.set(FS_TREE, (DIR, INODE_ITEM, 0), 16, &le(4)),
        "directory's size is wrong",
    ),
    damage(
        "inode: nanoseconds make a second",
        |image| image.set(FS_TREE, (ZSTD, INODE_ITEM, 0), 136 + 8, &[0xff; 4]),
        "",
    ),
    damage(
        "inode: a link that is immutable",
        |image| image.set(FS_TREE, (LINK, INODE_ITEM, 0), 64, &[0x40]),
        "link has flags that only other files can have",
    )
    .but(NEWER),
    damage(
        "inode: a link that can only be appended to",
        |image| image.set(FS_TREE, (LINK, INODE_ITEM, 0), 64, &[0x80]),
        "link has flags that only other files can have",
    )
    .but(NEWER),
    damage(
        "inode: an item of an unknown type",
        |image| image.insert(FS_TREE, (ZSTD, 50, 0), vec![1; 8]),
        "item in a subvolume has an unknown type",
    )
    .but(NEWER),
    damage(
        "inode: without checksums, which are there",
        |image| image.set(FS_TREE, (SPARSE, INODE_ITEM, 0), 64, &[1]),
        "file without checksums has some",
    ),
    damage(
        "inode: without checksums but compressed",
        |image| image.set(FS_TREE, (ZSTD, INODE_ITEM, 0), 64, &[1]),
        "without checksums is compressed",
    ),
    damage(
        "inode: link's size",
        |image| image.set(FS_TREE, (LINK, INODE_ITEM, 0), 16, &le(2)),
        "",
    ),
    damage(
        "inode: link without a target",
        |image| image.remove(FS_TREE, (LINK, EXTENT_DATA, 0)),
        "link has no target",
    ),
    damage(
        "inode: link's target has a NUL",
        |image| image.set(FS_TREE, (LINK, EXTENT_DATA, 0), 22, &[0]),
        "",
    ),
    damage(
        "orphan: named file",
        |image| image.insert(FS_TREE, (u64::MAX - 4, ORPHAN_ITEM, FIFO), Vec::new()),
        "",
    ),
    damage(
        "orphan: of nothing",
        |image| image.insert(FS_TREE, (u64::MAX - 4, ORPHAN_ITEM, 99_999), Vec::new()),
        "",
    ),
    damage(
        "orphan: file without a name",
        |image| {
            remove_name(image);
            image.edit_item(FS_TREE, (FIFO, INODE_ITEM, 0), |data| data[40] = 0);
        },
        "not an orphan",
    ),
    damage(
        "orphan: file without a name, and known as such",
        |image| {
            remove_name(image);
            image.edit_item(FS_TREE, (FIFO, INODE_ITEM, 0), |data| data[40] = 0);
            image.insert(FS_TREE, (u64::MAX - 4, ORPHAN_ITEM, FIFO), Vec::new());
        },
        "",
    ),
    damage(
        "file extent: cut off",
        |image| image.replace(FS_TREE, (ZSTD, EXTENT_DATA, 0), vec![0; 20]),
        "file extent is too short",
    ),
    damage(
        "file extent: another size",
        |image| image.replace(FS_TREE, (SPARSE, EXTENT_DATA, 1 << 20), vec![1; 60]),
        "file extent",
    ),
    damage(
        "file extent: unknown type",
        |image| image.set(FS_TREE, (ZSTD, EXTENT_DATA, 0), 20, &[7]),
        "type is unknown",
    ),
    damage(
        "file extent: unknown compression",
        |image| image.set(FS_TREE, (ZSTD, EXTENT_DATA, 0), 16, &[9]),
        "compression is unknown",
    )
    .but(LINUX),
    damage(
        "file extent: another compression",
        |image| image.set(FS_TREE, (ZSTD, EXTENT_DATA, 131_072), 16, &[1]),
        "zlib stream is corrupt",
    )
    .but(LINUX),
    damage(
        "file extent: encrypted",
        |image| image.set(FS_TREE, (ZSTD, EXTENT_DATA, 0), 17, &[1]),
        "encrypted",
    )
    .but(LINUX),
    damage(
        "file extent: shows more than there is",
        |image| image.set(FS_TREE, (ZSTD, EXTENT_DATA, 131_072), 37, &le(4096)),
        "more of an extent than there is",
    ),
    damage(
        "file extent: decodes to a terabyte",
        |image| image.set(FS_TREE, (ZSTD, EXTENT_DATA, 131_072), 8, &le(1 << 40)),
        "too many bytes",
    )
    .but(NEITHER),
    damage(
        "file extent: stored in a gigabyte",
        |image| image.set(FS_TREE, (ZSTD, EXTENT_DATA, 131_072), 29, &le(1 << 30)),
        "too many bytes",
    ),
    damage(
        "file extent: begins within a sector",
        |image| image.set(FS_TREE, (ZSTD, EXTENT_DATA, 131_072), 21, &le(DATA + 1)),
        "not made of sectors",
    ),
    damage(
        "file extent: at an odd place in the file",
        |image| {
            image.rekey(
                FS_TREE,
                (ZSTD, EXTENT_DATA, 131_072),
                (ZSTD, EXTENT_DATA, 131_073),
            );
        },
        "begins within a sector",
    ),
    damage(
        "file extent: over the next one",
        |image| {
            image.rekey(
                FS_TREE,
                (ZSTD, EXTENT_DATA, 131_072),
                (ZSTD, EXTENT_DATA, 126_976),
            );
        },
        "overlap",
    ),
    damage(
        "file extent: up to the end of all",
        |image| {
            image.set(
                FS_TREE,
                (PREALLOC, EXTENT_DATA, 0),
                45,
                &le(u64::MAX - 4095),
            );
        },
        "beyond every file",
    ),
    damage(
        "file extent: no length",
        |image| image.set(FS_TREE, (SPARSE, EXTENT_DATA, 1 << 20), 45, &le(0)),
        "beyond every file",
    ),
    damage(
        "file extent: where no chunk is",
        |image| image.set(FS_TREE, (ZSTD, EXTENT_DATA, 131_072), 21, &le(1 << 50)),
        "lacks a reference",
    ),
    damage(
        "file extent: where no extent is",
        |image| {
            image.set(
                FS_TREE,
                (ZSTD, EXTENT_DATA, 131_072),
                21,
                &le(DATA + (1 << 20)),
            );
        },
        "lacks a reference",
    ),
    damage(
        "file extent: in a tree block",
        |image| {
            image.set(
                FS_TREE,
                (SPARSE, EXTENT_DATA, 1 << 20),
                21,
                &le(leaf(image)),
            );
        },
        "lacks a reference",
    ),
    damage(
        "file extent: prealloc compressed",
        |image| image.set(FS_TREE, (PREALLOC, EXTENT_DATA, 0), 16, &[3]),
        "preallocated extent is compressed",
    ),
    damage(
        "file extent: newer than the superblock",
        |image| image.set(FS_TREE, (ZSTD, EXTENT_DATA, 0), 0, &le(99)),
        "file extent is newer than the superblock",
    ),
    damage(
        "file extent: missing",
        |image| image.remove(FS_TREE, (ZSTD, EXTENT_DATA, 98_304)),
        "stored bytes are wrong",
    ),
    damage(
        "inline: longer than a sector",
        |image| image.set(FS_TREE, (INLINE_ZSTD, EXTENT_DATA, 0), 8, &le(1 << 30)),
        "longer than a sector",
    ),
    damage(
        "inline: another length",
        |image| image.set(FS_TREE, (INLINE, EXTENT_DATA, 0), 8, &le(4)),
        "wrong length",
    ),
    damage(
        "inline: not at the begin",
        |image| {
            image.rekey(
                FS_TREE,
                (INLINE, EXTENT_DATA, 0),
                (INLINE, EXTENT_DATA, 4096),
            );
        },
        "not at the file's start",
    )
    .but(LINUX),
    damage(
        "inline: does not decode",
        |image| {
            image.edit_item(FS_TREE, (INLINE_ZSTD, EXTENT_DATA, 0), |data| {
                data[21..].fill(0xff);
            });
        },
        "not a zstd frame",
    )
    .but(LINUX),
    damage(
        "holes: without an item where each must have one",
        |image| {
            let flags = image.superblock(188, 8);
            set_superblock(image, 188, &le(flags & !0x200));
        },
        "hole without an item",
    ),
];
