//! Extents, their references, and checksums.

use testkit::{BtrfsImage, BtrfsKey};

use super::{
    CSUM_TREE, DATA, Damage, EXTENT_CSUM, EXTENT_ITEM, EXTENT_TREE, LINUX, METADATA, METADATA_ITEM,
    MORE_DATA, NEITHER, SHARED, SUBVOLUME, add, block_item, damage, le, leaf,
};

pub(super) const EXTENTS: &[Damage] = &[
    damage(
        "extent: item of data missing",
        |image| image.remove(EXTENT_TREE, SHARED),
        "extent tree lacks a reference",
    ),
    damage(
        "extent: item of a tree block missing",
        |image| image.remove(EXTENT_TREE, block_item(image, leaf(image))),
        "extent tree lacks a reference",
    ),
    damage(
        "extent: item of nothing",
        |image| {
            image.insert(
                EXTENT_TREE,
                (DATA + (1 << 20), EXTENT_ITEM, 4096),
                image.item(EXTENT_TREE, SHARED).data,
            );
        },
        "reference that does not exist",
    ),
    damage(
        "extent: tree block of nothing",
        |image| {
            image.insert(
                EXTENT_TREE,
                (METADATA + (1 << 20), METADATA_ITEM, 0),
                image.item(EXTENT_TREE, block_item(image, leaf(image))).data,
            );
        },
        "reference that does not exist",
    ),
    damage(
        "extent: more references than listed",
        |image| image.edit_item(EXTENT_TREE, SHARED, |data| add(data, 0, 1)),
        "number of references is wrong",
    ),
    damage(
        "extent: no reference",
        |image| image.edit_item(EXTENT_TREE, SHARED, |data| data[..8].fill(0)),
        "number of references is wrong",
    ),
    damage(
        "extent: a reference's count",
        |image| {
            image.edit_item(EXTENT_TREE, SHARED, |data| {
                add(data, 0, 1);
                data[49] += 1;
            });
        },
        "reference's count is wrong",
    ),
    damage(
        "extent: a reference's root",
        |image| image.set(EXTENT_TREE, SHARED, 25, &le(257)),
        "extent tree lacks a reference",
    ),
    damage(
        "extent: a reference's inode",
        |image| image.set(EXTENT_TREE, SHARED, 33, &le(999)),
        "extent tree lacks a reference",
    ),
    damage(
        "extent: a reference's place",
        |image| image.set(EXTENT_TREE, SHARED, 41, &le(4096)),
        "extent tree lacks a reference",
    ),
    damage(
        "extent: a reference's type",
        |image| image.set(EXTENT_TREE, SHARED, 24, &[99]),
        "reference's type is unknown",
    ),
    damage(
        "extent: a reference to a tree in data",
        |image| image.set(EXTENT_TREE, SHARED, 24, &[176]),
        "reference's type is unknown",
    ),
    damage(
        "extent: tree block of another tree",
        |image| {
            image.set(EXTENT_TREE, block_item(image, leaf(image)), 25, &le(7));
        },
        "extent tree lacks a reference",
    ),
    damage(
        "extent: tree block of two trees",
        |image| {
            let key = block_item(image, leaf(image));
            let mut data = image.item(EXTENT_TREE, key).data;
            data[0] += 1;
            data.splice(24..24, [&[176][..], &le(SUBVOLUME)].concat());
            image.replace(EXTENT_TREE, key, data);
        },
        "reference that does not exist",
    ),
    damage(
        "extent: tree block as data",
        |image| {
            image.edit_item(EXTENT_TREE, block_item(image, leaf(image)), |data| {
                data[16] = 1;
            });
        },
        "kind is not its key's",
    ),
    damage(
        "extent: both data and tree block",
        |image| image.set(EXTENT_TREE, SHARED, 16, &[3]),
        "flags are impossible",
    ),
    damage(
        "extent: newer than the superblock",
        |image| image.set(EXTENT_TREE, SHARED, 8, &le(99)),
        "extent is newer",
    ),
    damage(
        "extent: item cut off",
        |image| image.replace(EXTENT_TREE, SHARED, vec![1; 20]),
        "extent item is too short",
    ),
    damage(
        "extent: reference cut off",
        |image| {
            let mut data = image.item(EXTENT_TREE, SHARED).data;
            data.pop();
            image.replace(EXTENT_TREE, SHARED, data);
        },
        "cut off",
    ),
    damage(
        "extent: longer than files say",
        |image| {
            image.rekey(
                EXTENT_TREE,
                (MORE_DATA, EXTENT_ITEM, 200_704),
                (MORE_DATA, EXTENT_ITEM, 204_800),
            );
        },
        "not as long as files say",
    ),
    damage(
        "extent: shorter than files say",
        |image| {
            image.rekey(
                EXTENT_TREE,
                (MORE_DATA, EXTENT_ITEM, 200_704),
                (MORE_DATA, EXTENT_ITEM, 196_608),
            );
        },
        "not as long as files say",
    ),
    damage(
        "extent: over the next one",
        |image| image.rekey(EXTENT_TREE, SHARED, (DATA, EXTENT_ITEM, 8192)),
        "extents overlap",
    ),
    damage(
        "extent: within a sector",
        |image| image.rekey(EXTENT_TREE, SHARED, (DATA + 1, EXTENT_ITEM, 4096)),
        "keys do not ascend",
    ),
    damage(
        "extent: no length",
        |image| image.rekey(EXTENT_TREE, SHARED, (DATA, EXTENT_ITEM, 0)),
        "not made of sectors",
    ),
    damage(
        "extent: behind its block group",
        |image| {
            image.rekey(
                EXTENT_TREE,
                (MORE_DATA, EXTENT_ITEM, 200_704),
                (MORE_DATA, EXTENT_ITEM, 1 << 30),
            );
        },
        "crosses the end",
    ),
    damage(
        "extent: references out of order",
        |image| {
            let mut data = image.item(EXTENT_TREE, SHARED).data;
            assert!(data.len() > 24 + 29, "it has two references");
            let (first, second) = (data[24..53].to_vec(), data[53..82].to_vec());
            data[24..53].copy_from_slice(&second);
            data[53..82].copy_from_slice(&first);
            image.replace(EXTENT_TREE, SHARED, data);
        },
        "references in an extent item are not in order",
    )
    .but(LINUX),
    damage(
        "extent: item of another kind among them",
        |image| {
            image.insert(EXTENT_TREE, (DATA + 4096, 3, 0), vec![0; 8]);
        },
        "item in the extent tree is of an unexpected kind",
    )
    .but(NEITHER),
    damage(
        "checksums: hole",
        |image| {
            let mut data = image.item(CSUM_TREE, sums(image)).data;
            data.truncate(12);
            image.replace(CSUM_TREE, sums(image), data);
        },
        "data has no checksum",
    ),
    damage(
        "checksums: of what is no data",
        |image| {
            image.rekey(
                CSUM_TREE,
                sums(image),
                (u64::MAX - 9, EXTENT_CSUM, DATA + 4096),
            );
        },
        "checksums of bytes outside of all extents",
    ),
    damage(
        "checksums: within a sector",
        |image| {
            image.rekey(
                CSUM_TREE,
                sums(image),
                (u64::MAX - 9, EXTENT_CSUM, DATA + 1),
            );
        },
        "begin within a sector",
    ),
    damage(
        "checksums: another object's",
        |image| image.rekey(CSUM_TREE, sums(image), (77, EXTENT_CSUM, DATA)),
        "item in the checksum tree is of an unexpected kind",
    ),
    damage(
        "checksums: cut off",
        |image| {
            let mut data = image.item(CSUM_TREE, sums(image)).data;
            data.pop();
            image.replace(CSUM_TREE, sums(image), data);
        },
        "checksum is cut off",
    ),
    damage(
        "checksums: overlap",
        |image| {
            image.insert(
                CSUM_TREE,
                (u64::MAX - 9, EXTENT_CSUM, DATA + 8192),
                vec![0; 8],
            );
        },
        "checksums overlap",
    ),
    damage(
        "checksums: of one sector differs",
        |image| {
            image.set(CSUM_TREE, sums(image), 4, &[1, 2, 3, 4]);
        },
        "wrong checksum",
    ),
    damage(
        "data: a bit differs",
        |image| {
            let at = image.places(DATA)[0];
            let byte = image.bytes(at + 99, 1)[0];
            image.patch(at + 99, &[byte ^ 1]);
        },
        "wrong checksum",
    ),
    damage(
        "data: does not decode",
        |image| {
            let at = image.places(DATA)[0];
            image.patch(at, &[0xff; 4096]);
            let sum = BtrfsImage::checksum(&[0xff; 4096]);
            image.set(CSUM_TREE, sums(image), 0, &sum.to_le_bytes());
        },
        "not a zstd frame",
    )
    .but(LINUX),
];

/// The address of the checksums.
fn sums(image: &BtrfsImage) -> BtrfsKey {
    image.items(CSUM_TREE)[0].key
}
