//! Chunks, devices and block groups.

use super::{
    BLOCK_GROUP_ITEM, CHUNK_ITEM, CHUNK_TREE, DATA, DATA_CHUNK, DATA_LEN, DEV_EXTENT, DEV_ITEM,
    DEV_TREE, Damage, EXTENT_TREE, LINUX, METADATA, MORE_DATA, NEITHER, damage, le, set_superblock,
};

pub(super) const CHUNKS: &[Damage] = &[
    damage(
        "chunk: no length",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 0, &le(0)),
        "length is impossible",
    ),
    damage(
        "chunk: length within a sector",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 0, &le(DATA_LEN - 1)),
        "length is impossible",
    ),
    damage(
        "chunk: length without an end",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 0, &le(u64::MAX - 4095)),
        "length is impossible",
    )
    .but(LINUX),
    damage(
        "chunk: longer than its block group",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 0, &le(DATA_LEN - 65_536)),
        "block group is not its chunk's",
    )
    .but(LINUX),
    damage(
        "chunk: over the next one",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 0, &le(DATA_LEN + 65_536)),
        "chunks overlap",
    )
    .but(LINUX),
    damage(
        "chunk: no stripe length",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 16, &le(0)),
        "stripe length is not 64 KiB",
    ),
    damage(
        "chunk: no stripe",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 44, &[0, 0]),
        "stripes do not fill",
    ),
    damage(
        "chunk: more stripes than fit",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 44, &[9, 0]),
        "stripes do not fill",
    ),
    damage(
        "chunk: two profiles",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 24, &le(1 | 8 | 16)),
        "more than one profile",
    ),
    damage(
        "chunk: no type",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 24, &le(0)),
        "type is impossible",
    ),
    damage(
        "chunk: data and metadata",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 24, &le(5)),
        "type is impossible",
    )
    .but(LINUX),
    damage(
        "chunk: unknown type",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 24, &le(1 | 1 << 40)),
        "unknown bits",
    ),
    damage(
        "chunk: mirrored on one stripe",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 24, &le(1 | 0x20)),
        "wrong number of stripes",
    )
    .but(LINUX),
    damage(
        "chunk: pairs on one stripe",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 24, &le(1 | 0x40)),
        "wrong number of stripes",
    ),
    damage(
        "chunk: other sector size",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 40, &[0, 32, 0, 0]),
        "wrong sector size",
    ),
    damage(
        "chunk: of metadata where data lies",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 24, &le(4)),
        "block group is not its chunk's",
    )
    .but(LINUX),
    damage(
        "chunk: on a device that there is not",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 48, &le(7)),
        "chunk is on an unknown device",
    )
    .but(LINUX),
    damage(
        "chunk: beyond its device",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 56, &le(1 << 40)),
        "device extents are not the chunks'",
    )
    .but(LINUX),
    damage(
        "chunk: beyond every device",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 56, &le(u64::MAX - 4095)),
        "beyond every device",
    )
    .but(LINUX),
    damage(
        "chunk: on another one's place",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 56, &le(METADATA)),
        "device extents are not the chunks'",
    ),
    damage(
        "chunk: on a device of another UUID",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 64, &[5; 16]),
        "chunk is on an unknown device",
    ),
    damage(
        "chunk: of another owner",
        |image| image.set(CHUNK_TREE, DATA_CHUNK, 8, &le(5)),
        "",
    ),
    damage(
        "chunk: of metadata lies elsewhere",
        |image| image.set(CHUNK_TREE, (256, CHUNK_ITEM, METADATA), 56, &le(DATA)),
        "tree block's checksum differs",
    ),
    damage(
        "chunk: key within a sector",
        |image| image.rekey(CHUNK_TREE, DATA_CHUNK, (256, CHUNK_ITEM, DATA + 1)),
        "begins within a sector",
    ),
    damage(
        "chunk: another object's key",
        |image| {
            image.rekey(
                CHUNK_TREE,
                (256, CHUNK_ITEM, MORE_DATA),
                (257, CHUNK_ITEM, MORE_DATA),
            );
        },
        "chunk has the wrong key",
    )
    .but(NEITHER),
    damage(
        "chunk: missing",
        |image| image.remove(CHUNK_TREE, (256, CHUNK_ITEM, MORE_DATA)),
        "block group is not its chunk's",
    ),
    damage(
        "chunk: item cut off",
        |image| {
            let mut item = image.item(CHUNK_TREE, DATA_CHUNK);
            item.data.truncate(40);
            image.replace(CHUNK_TREE, DATA_CHUNK, item.data);
        },
        "chunk item is too short",
    ),
    damage(
        "chunk: system chunk is not in the chunk tree",
        |image| image.remove(CHUNK_TREE, (256, CHUNK_ITEM, 1 << 20)),
        "superblock's system chunks are not those of the chunk tree",
    )
    .but(NEITHER),
    damage(
        "device: item missing",
        |image| image.remove(CHUNK_TREE, (1, DEV_ITEM, 1)),
        "superblock's number of devices is wrong",
    ),
    damage(
        "device: another number",
        |image| image.set(CHUNK_TREE, (1, DEV_ITEM, 1), 0, &le(2)),
        "device has the wrong key",
    ),
    damage(
        "device: larger than it is",
        |image| {
            image.set(CHUNK_TREE, (1, DEV_ITEM, 1), 8, &le(1 << 40));
            image.edit_superblock(|block| block[201 + 8..201 + 16].copy_from_slice(&le(1 << 40)));
            set_superblock(image, 112, &le(1 << 40));
        },
        "device is shorter than it should be",
    ),
    damage(
        "device: smaller than its chunks",
        |image| image.set(CHUNK_TREE, (1, DEV_ITEM, 1), 8, &le(20 << 20)),
        "device extent lies beyond its device",
    ),
    damage(
        "device: other bytes used",
        |image| image.set(CHUNK_TREE, (1, DEV_ITEM, 1), 16, &le(4096)),
        "device's used bytes are wrong",
    ),
    damage(
        "device extent: missing",
        |image| image.remove(DEV_TREE, (1, DEV_EXTENT, DATA)),
        "device extents are not the chunks'",
    ),
    damage(
        "device extent: other length",
        |image| image.set(DEV_TREE, (1, DEV_EXTENT, DATA), 24, &le(65_536)),
        "device extents are not the chunks'",
    ),
    damage(
        "device extent: other chunk",
        |image| image.set(DEV_TREE, (1, DEV_EXTENT, DATA), 16, &le(METADATA)),
        "device extents are not the chunks'",
    )
    .but(LINUX),
    damage(
        "device extent: over the next one",
        |image| image.set(DEV_TREE, (1, DEV_EXTENT, DATA), 24, &le(DATA_LEN * 2)),
        "device extents overlap",
    ),
    damage(
        "device extent: item cut off",
        |image| image.replace(DEV_TREE, (1, DEV_EXTENT, DATA), vec![0; 40]),
        "device extent's size is wrong",
    ),
    damage(
        "block group: missing",
        |image| image.remove(EXTENT_TREE, (DATA, BLOCK_GROUP_ITEM, DATA_LEN)),
        "chunk has no block group",
    ),
    damage(
        "block group: other bytes used",
        |image| {
            image.set(
                EXTENT_TREE,
                (DATA, BLOCK_GROUP_ITEM, DATA_LEN),
                0,
                &le(8192),
            );
        },
        "block group's used bytes are wrong",
    ),
    damage(
        "block group: more than full",
        |image| {
            image.set(
                EXTENT_TREE,
                (DATA, BLOCK_GROUP_ITEM, DATA_LEN),
                0,
                &le(DATA_LEN + 4096),
            );
        },
        "more than full",
    ),
    damage(
        "block group: another type",
        |image| image.set(EXTENT_TREE, (DATA, BLOCK_GROUP_ITEM, DATA_LEN), 16, &le(4)),
        "block group is not its chunk's",
    ),
    damage(
        "block group: another chunk's number",
        |image| image.set(EXTENT_TREE, (DATA, BLOCK_GROUP_ITEM, DATA_LEN), 8, &le(4)),
        "block group has no chunk",
    )
    .but(LINUX),
    damage(
        "block group: other length",
        |image| {
            image.rekey(
                EXTENT_TREE,
                (DATA, BLOCK_GROUP_ITEM, DATA_LEN),
                (DATA, BLOCK_GROUP_ITEM, 65_536),
            );
        },
        "block group is not its chunk's",
    ),
];
