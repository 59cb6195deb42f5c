//! The changes of each image.

use testkit::{BtrfsImage, BtrfsItem, BtrfsKey};

use super::{Case, case};

const ROOT_TREE: u64 = 1;
const EXTENT_TREE: u64 = 2;
const CHUNK_TREE: u64 = 3;
const FS_TREE: u64 = 5;
const CSUM_TREE: u64 = 7;
const QUOTA_TREE: u64 = 8;
const FREE_SPACE_TREE: u64 = 10;
const ORPHAN: u64 = -5_i64 as u64;
const TREE_LOG: u64 = -6_i64 as u64;
const TREE_RELOC: u64 = -8_i64 as u64;
const FREE_SPACE: u64 = -11_i64 as u64;

const TOP: u64 = 256;
const SECTOR: u64 = 4096;

// Rows of the decision page.
const COPIES: &str = "another second superblock";
const DEGRADED: &str = "damaged data on the rest of a mirror";
const LINKS: &str = "a symbolic link that is immutable or append-only";
const LOGGED: &str = "checksums in the checksum tree of extents that only the log has";
const LOG_BLOCKS: &str = "a damaged block of the log below its root";
const LOG_SUMS: &str = "data in the log without a checksum";
const GAP: &str = "data without a checksum in the middle of a large extent";
const LOST: &str = "data that is only on missing devices";
const ORPHANS: &str = "a deleted subvolume that is not listed as an orphan";
const SIMPLE: &str = "simple quotas";
const TYPES: &str = "items of unknown types in a subvolume";

fn sound(_: &mut BtrfsImage) {}

fn le(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().unwrap())
}

fn of_kind(image: &BtrfsImage, tree: u64, kind: u8) -> Vec<BtrfsItem> {
    let items = image.items(tree).into_iter();
    items.filter(|item| item.key.1 == kind).collect()
}

/// Adds to a number in an item.
fn add(image: &mut BtrfsImage, tree: u64, key: BtrfsKey, at: usize, difference: i64) {
    image.edit_item(tree, key, |data| {
        let sum = word(data, at).wrapping_add_signed(difference);
        data[at..at + 8].copy_from_slice(&le(sum));
    });
}

fn add_to_superblock(image: &mut BtrfsImage, at: usize, difference: i64) {
    image.edit_superblock(|block| {
        let sum = word(block, at).wrapping_add_signed(difference);
        block[at..at + 8].copy_from_slice(&le(sum));
    });
}

/// The inode with this name in the top directory.
fn inode(image: &BtrfsImage, name: &str) -> u64 {
    let entries = of_kind(image, FS_TREE, 96).into_iter();
    let mut entries = entries.filter(|item| item.key.0 == TOP);
    let found = entries.find(|item| &item.data[30..] == name.as_bytes());
    word(&found.expect("it is there").data, 0)
}

/// Changes a byte of data, on the first copy.
fn spoil(image: &mut BtrfsImage, at: u64) {
    let place = image.places(at)[0] + 77;
    let byte = image.bytes(place, 1)[0];
    image.patch(place, &[byte ^ 1]);
}

/// The border of two chunks that lies within the range of one item of checksums.
fn border(image: &BtrfsImage) -> (BtrfsItem, u64) {
    let chunks = of_kind(image, CHUNK_TREE, 228);
    for item in of_kind(image, CSUM_TREE, 128) {
        let end = item.key.2 + item.data.len() as u64 / 4 * SECTOR;
        let within = |at: u64| item.key.2 < at && at < end;
        if let Some(chunk) = chunks.iter().find(|chunk| within(chunk.key.2)) {
            let at = chunk.key.2;
            return (item, at);
        }
    }
    panic!("each item of checksums lies in one chunk");
}

const OTHER_DATA: &str = "data has the wrong checksum";

pub(super) const SPANNING: &[Case] = &[
    case("sound", sound, ""),
    case(
        "the first sector of the item damaged",
        |image| spoil(image, border(image).0.key.2),
        OTHER_DATA,
    ),
    case(
        "the last sector before the border damaged",
        |image| spoil(image, border(image).1 - SECTOR),
        OTHER_DATA,
    ),
    case(
        "the first sector behind the border damaged",
        |image| spoil(image, border(image).1),
        OTHER_DATA,
    ),
    case(
        "the last sector of the item damaged",
        |image| {
            let item = border(image).0;
            spoil(
                image,
                item.key.2 + (item.data.len() as u64 / 4 - 1) * SECTOR,
            );
        },
        OTHER_DATA,
    ),
    case(
        "a checksum behind the border is another",
        |image| {
            let (item, at) = border(image);
            let index = ((at - item.key.2) / SECTOR) as usize * 4;
            image.edit_item(CSUM_TREE, item.key, |data| data[index] ^= 1);
        },
        OTHER_DATA,
    ),
    case(
        "checksums behind the border missing",
        without_sums,
        "data has no checksum",
    ),
];

fn without_sums(image: &mut BtrfsImage) {
    let (item, at) = border(image);
    let index = ((at - item.key.2) / SECTOR) as usize * 4;
    image.replace(CSUM_TREE, item.key, item.data[..index].to_vec());
}

/// The same of a file of large extents.
pub(super) const LARGE: &[Case] = &[
    case("sound", sound, ""),
    case(
        "the first sector behind the border damaged",
        |image| spoil(image, border(image).1),
        OTHER_DATA,
    ),
    case(
        "checksums behind the border missing",
        without_sums,
        "data has no checksum",
    )
    .but(GAP),
];

/// A relocation tree, and the item of its root block.
fn relocation(image: &BtrfsImage) -> BtrfsItem {
    let roots = of_kind(image, ROOT_TREE, 132).into_iter();
    let mut roots = roots.filter(|item| item.key.0 == TREE_RELOC);
    let root = roots.next().expect("a tree is being relocated");
    image.item_of(EXTENT_TREE, word(&root.data, 176), 169)
}

pub(super) const MOVED: &[Case] = &[case("sound", sound, "")];

pub(super) const BALANCE: &[Case] = &[
    case("sound", sound, ""),
    case(
        "the root of a relocation tree refers to a tree",
        |image| {
            let item = relocation(image);
            let reference = [&[176][..], &le(TREE_RELOC)].concat();
            image.set(EXTENT_TREE, item.key, 24, &reference);
        },
        "lacks a reference",
    ),
    case(
        "the root of a relocation tree refers to another block",
        |image| {
            let item = relocation(image);
            add(image, EXTENT_TREE, item.key, 25, 4096);
        },
        "lacks a reference",
    ),
    case(
        "the root of a relocation tree has another count",
        |image| {
            let item = relocation(image);
            add(image, EXTENT_TREE, item.key, 0, 1);
        },
        "number of references is wrong",
    ),
];

/// The items of holes of a file.
fn holes(image: &BtrfsImage, name: &str) -> Vec<BtrfsKey> {
    let number = inode(image, name);
    let parts = of_kind(image, FS_TREE, 108).into_iter();
    let parts = parts.filter(|item| item.key.0 == number && item.data[20] == 1);
    let holes = parts.filter(|item| word(&item.data, 21) == 0);
    holes.map(|item| item.key).collect()
}

/// Removes all names of a file, whose inode stays with another number of stored bytes and without
/// its hole, as if the kernel had been deleting it when it crashed.
fn half_delete(image: &mut BtrfsImage) {
    let number = inode(image, "empty");
    let is_name = |item: &BtrfsItem| match item.key.1 {
        84 | 96 => item.key.0 == TOP && word(&item.data, 0) == number,
        12 => item.key.0 == number,
        _ => false,
    };
    let items = image.items(FS_TREE).into_iter();
    for item in items.filter(is_name).collect::<Vec<_>>() {
        image.remove(FS_TREE, item.key);
    }
    add(image, FS_TREE, (TOP, 1, 0), 16, -10);
    for hole in holes_of(image, number) {
        image.remove(FS_TREE, hole);
    }
    image.set(FS_TREE, (number, 1, 0), 40, &[0; 4]);
    image.set(FS_TREE, (number, 1, 0), 24, &le(123 << 12));
    image.insert(FS_TREE, (ORPHAN, 48, number), Vec::new());
}

fn holes_of(image: &BtrfsImage, number: u64) -> Vec<BtrfsKey> {
    let parts = of_kind(image, FS_TREE, 108).into_iter();
    let parts = parts.filter(|item| item.key.0 == number);
    parts.map(|item| item.key).collect()
}

pub(super) const HOLES: &[Case] = &[
    case("sound", sound, ""),
    case(
        "a gap behind the end, before preallocation",
        |image| {
            let hole = *holes(image, "behind").last().unwrap();
            image.remove(FS_TREE, hole);
        },
        "",
    ),
    case(
        "a gap before the end",
        |image| {
            let hole = *holes(image, "hole").last().unwrap();
            image.remove(FS_TREE, hole);
        },
        "file has a hole without an item",
    ),
    case(
        "nothing up to the end",
        |image| {
            let hole = *holes(image, "empty").last().unwrap();
            image.remove(FS_TREE, hole);
        },
        "file has a hole without an item",
    ),
    case("a file that is half deleted", half_delete, ""),
    case(
        "a file that is half deleted and no orphan",
        |image| {
            half_delete(image);
            image.remove(FS_TREE, of_kind(image, FS_TREE, 48)[0].key);
        },
        "inode without a name is not an orphan",
    ),
    case(
        "another number of stored bytes",
        |image| {
            let number = inode(image, "hole");
            add(image, FS_TREE, (number, 1, 0), 24, 4096);
        },
        "inode's stored bytes are wrong",
    ),
];

/// The orphan item of a subvolume.
fn orphan(image: &BtrfsImage) -> BtrfsKey {
    of_kind(image, ROOT_TREE, 48)[0].key
}

pub(super) const DELETED: &[Case] = &[
    case("sound", sound, ""),
    case(
        "no orphan",
        |image| image.remove(ROOT_TREE, orphan(image)),
        "deleted subvolume is not an orphan",
    )
    .but(ORPHANS),
    case(
        "not deleted, but without a place",
        |image| {
            let (_, _, id) = orphan(image);
            image.remove(ROOT_TREE, orphan(image));
            image.set(ROOT_TREE, (id, 132, 0), 216, &[1, 0, 0, 0]);
        },
        "subvolume is seen nowhere",
    ),
];

/// The only leaf of the log of the top level.
fn log_leaf(image: &BtrfsImage) -> u64 {
    let roots = image.items(TREE_LOG);
    let root = word(&roots[0].data, 176);
    assert_eq!(image.block(root)[100], 0, "the log is one leaf");
    root
}

pub(super) const LOG: &[Case] = &[
    case("sound", sound, ""),
    case(
        "the log's root overwritten",
        |image| {
            for place in image.places(image.root(TREE_LOG)) {
                image.patch(place, &[0x5a; 4096]);
            }
        },
        "tree block's checksum differs",
    ),
    case(
        "the log's leaf overwritten",
        |image| {
            for place in image.places(log_leaf(image)) {
                image.patch(place, &[0x5a; 4096]);
            }
        },
        "tree block's checksum differs",
    )
    .but(LOG_BLOCKS),
    case(
        "a file of the log without checksums",
        |image| {
            let leaf = log_leaf(image);
            image.edit_leaf(leaf, |items| items.retain(|item| item.0.1 != 128));
        },
        "data in the log has no checksum",
    )
    .but(LOG_SUMS),
    case(
        "a file of the log without its last checksum",
        |image| {
            let leaf = log_leaf(image);
            image.edit_leaf(leaf, |items| {
                let sums = items.iter_mut().rfind(|item| item.0.1 == 128).unwrap();
                sums.1.truncate(sums.1.len() - 4);
            });
        },
        "data in the log has no checksum",
    )
    .but(LOG_SUMS),
    case(
        "checksums of the log's data in the tree of checksums",
        |image| {
            let leaf = log_leaf(image);
            let mut sums = Vec::new();
            image.edit_leaf(leaf, |items| {
                sums = items
                    .iter()
                    .filter(|item| item.0.1 == 128)
                    .cloned()
                    .collect();
            });
            for (key, data) in sums {
                image.insert(CSUM_TREE, key, data);
            }
        },
        "",
    )
    .but(LOGGED),
];

pub(super) const DUMP: &[Case] = &[
    case("sound", sound, ""),
    case(
        "the second superblock is something else",
        |image| image.patch(64 << 20, &[0x5a; 4096]),
        "not a btrfs superblock",
    )
    .but(COPIES),
    case(
        "a leaf overwritten",
        |image| {
            let leaf = image.item_of(FS_TREE, TOP, 1).leaf;
            for place in image.places(leaf) {
                image.patch(place, &[0x5a; 4096]);
            }
        },
        "tree block's checksum differs",
    ),
    case(
        "an extent has another count",
        |image| {
            let key = of_kind(image, EXTENT_TREE, 168)[0].key;
            add(image, EXTENT_TREE, key, 0, 1);
        },
        "number of references is wrong",
    ),
];

pub(super) const MIRROR: &[Case] = &[
    case("sound", sound, ""),
    case(
        "data on the device that is left damaged",
        |image| spoil(image, of_kind(image, CSUM_TREE, 128)[0].key.2),
        OTHER_DATA,
    )
    .but(DEGRADED),
    case(
        "the last data on the device that is left damaged",
        |image| {
            let item = of_kind(image, CSUM_TREE, 128).pop().unwrap();
            spoil(
                image,
                item.key.2 + (item.data.len() as u64 / 4 - 1) * SECTOR,
            );
        },
        OTHER_DATA,
    )
    .but(DEGRADED),
    case(
        "a leaf on the device that is left overwritten",
        |image| {
            let leaf = image.item_of(FS_TREE, TOP, 1).leaf;
            for place in image.places(leaf) {
                image.patch(place, &[0x5a; 4096]);
            }
        },
        "tree block's checksum differs",
    ),
];

pub(super) const NO_MIRROR: &[Case] = &[case(
    "data that is only on the missing device",
    sound,
    "chunks cannot be read without the missing devices",
)
.but(LOST)];

/// Adds the same name again, for the same file, at another index.
fn second_index(image: &mut BtrfsImage) {
    let mut entries = of_kind(image, FS_TREE, 96).into_iter();
    let last = entries.rfind(|item| item.key.0 == TOP);
    let last = last.unwrap();
    image.insert(FS_TREE, (TOP, 96, last.key.2 + 9), last.data);
}

/// Adds the same name again in the item of its hash.
fn second_entry(image: &mut BtrfsImage) {
    let mut entries = of_kind(image, FS_TREE, 96).into_iter();
    let last = entries.rfind(|item| item.key.0 == TOP);
    let name = last.unwrap().data[30..].to_vec();
    let items = of_kind(image, FS_TREE, 84).into_iter();
    let mut items = items.filter(|item| item.key.0 == TOP);
    let item = items.find(|item| item.data[30..] == name[..]).unwrap();
    image.replace(FS_TREE, item.key, item.data.repeat(2));
}

pub(super) const PLAIN: &[Case] = &[
    case("sound", sound, ""),
    case(
        "total size: a sector less than the device",
        |image| add_to_superblock(image, 112, -4096),
        "superblock's total size is less than the devices'",
    ),
    case(
        "total size: half of the device",
        |image| add_to_superblock(image, 112, -(128 << 20)),
        "superblock's total size is less than the devices'",
    ),
    case(
        "total size: a sector more than the device",
        |image| add_to_superblock(image, 112, 4096),
        "",
    ),
    case(
        "total size: a gigabyte more than the device",
        |image| add_to_superblock(image, 112, 1 << 30),
        "",
    ),
    case(
        "the device's size: a sector more than the superblock's",
        |image| {
            add(image, CHUNK_TREE, (1, 216, 1), 8, 4096);
            add_to_superblock(image, 209, 4096);
        },
        "superblock's total size is less than the devices'",
    ),
    case(
        "nanoseconds of more than a second in a birth time",
        |image| {
            let number = inode(image, "file 1");
            image.set(FS_TREE, (number, 1, 0), 156, &[0xff; 4]);
        },
        "",
    ),
    case(
        "nanoseconds of a second in a change time",
        |image| {
            let second = 1_000_000_000_u32.to_le_bytes();
            let number = inode(image, "file 1");
            image.set(FS_TREE, (number, 1, 0), 132, &second);
        },
        "",
    ),
    case(
        "a link that is immutable",
        |image| {
            let number = inode(image, "link");
            image.set(FS_TREE, (number, 1, 0), 64, &[0x40]);
        },
        "link has flags that only other files can have",
    )
    .but(LINKS),
    case(
        "a link that can only be appended to",
        |image| {
            let number = inode(image, "link");
            image.set(FS_TREE, (number, 1, 0), 64, &[0x80]);
        },
        "link has flags that only other files can have",
    )
    .but(LINKS),
    case(
        "a file that is immutable",
        |image| {
            let number = inode(image, "file 1");
            image.set(FS_TREE, (number, 1, 0), 64, &[0x40]);
        },
        "",
    ),
    case(
        "a name twice in the item of its hash",
        second_entry,
        "entry's name is in its item twice",
    ),
    case(
        "a name at two indexes",
        second_index,
        "directory lists a name twice",
    ),
    case(
        "a name twice in both",
        |image| {
            second_index(image);
            second_entry(image);
        },
        "directory lists a name twice",
    ),
    case(
        "a name twice in both, and in the directory's size",
        |image| {
            let mut entries = of_kind(image, FS_TREE, 96).into_iter();
            let last = entries.rfind(|item| item.key.0 == TOP);
            let len = last.unwrap().data.len() - 30;
            second_index(image);
            second_entry(image);
            add(image, FS_TREE, (TOP, 1, 0), 16, 2 * len as i64);
        },
        "directory lists a name twice",
    ),
    case(
        "an item of an unknown type in a file",
        |image| {
            let number = inode(image, "file 1");
            image.insert(FS_TREE, (number, 50, 0), vec![1; 8]);
        },
        "item in a subvolume has an unknown type",
    )
    .but(TYPES),
    case(
        "an item of an unknown type in a directory",
        |image| image.insert(FS_TREE, (TOP, 100, 7), vec![1; 8]),
        "item in a subvolume has an unknown type",
    )
    .but(TYPES),
    case(
        "an item of the extent tree in a file",
        |image| {
            let number = inode(image, "file 1");
            image.insert(FS_TREE, (number, 168, 4096), vec![1; 24]);
        },
        "item in a subvolume has an unknown type",
    )
    .but(TYPES),
    case(
        "free space that overlaps an extent",
        |image| {
            let item = of_kind(image, FREE_SPACE_TREE, 199).pop().unwrap();
            let (at, kind, len) = item.key;
            image.rekey(FREE_SPACE_TREE, item.key, (at - SECTOR, kind, len + SECTOR));
        },
        "free space tree is wrong",
    ),
];

/// A quota group: its level, and its number in it.
const fn group(level: u64, number: u64) -> BtrfsKey {
    (0, 242, level << 48 | number)
}

fn add_to_group(image: &mut BtrfsImage, key: BtrfsKey, at: usize, difference: i64) {
    // Both counts are stored twice.
    for at in [at, at + 8] {
        add(image, QUOTA_TREE, key, at, difference);
    }
}

fn set_quota_flags(image: &mut BtrfsImage, flags: u64) {
    image.set(QUOTA_TREE, (0, 240, 0), 16, &le(flags));
}

/// Turns the quotas into simple ones, which count nothing, because everything is older.
fn simple_quotas(image: &mut BtrfsImage) {
    image.edit_superblock(|block| block[190] |= 1);
    set_quota_flags(image, 1 | 8);
    let item = image.item(QUOTA_TREE, (0, 240, 0));
    let status = [&item.data[..32], &le(1 << 30)].concat();
    image.replace(QUOTA_TREE, item.key, status);
    for item in of_kind(image, QUOTA_TREE, 242) {
        image.set(QUOTA_TREE, item.key, 8, &[0; 32]);
    }
}

const REFERENCED: &str = "quota group's referenced bytes are wrong";
const EXCLUSIVE: &str = "quota group's exclusive bytes are wrong";

pub(super) const QUOTAS: &[Case] = &[
    case("sound", sound, ""),
    case(
        "the status has another key",
        |image| image.rekey(8, (0, 240, 0), (0, 240, 1)),
        "quota item's key is wrong",
    )
    .but("quota items and their status under another key"),
    case(
        "a subvolume refers to more",
        |image| add_to_group(image, group(0, 257), 8, 4096),
        REFERENCED,
    ),
    case(
        "the top level refers to less",
        |image| add_to_group(image, group(0, 5), 8, -4096),
        REFERENCED,
    ),
    case(
        "a snapshot has more of its own",
        |image| add_to_group(image, group(0, 258), 24, 16384),
        EXCLUSIVE,
    ),
    case(
        "a group of subvolumes refers to more",
        |image| add_to_group(image, group(1, 0), 8, 4096),
        REFERENCED,
    ),
    case(
        "a group of subvolumes has more of its own",
        |image| add_to_group(image, group(1, 0), 24, 4096),
        EXCLUSIVE,
    ),
    case(
        "a wrong count that is marked as inconsistent",
        |image| {
            add_to_group(image, group(0, 257), 8, 4096);
            set_quota_flags(image, 1 | 4);
        },
        "",
    ),
    case(
        "a wrong count of quotas that are off",
        |image| {
            add_to_group(image, group(0, 257), 8, 4096);
            set_quota_flags(image, 0);
        },
        REFERENCED,
    ),
    case(
        "a wrong count while counting",
        |image| {
            add_to_group(image, group(0, 257), 8, 4096);
            set_quota_flags(image, 1 | 2);
        },
        "",
    ),
    case("simple quotas", simple_quotas, "").but(SIMPLE),
    case(
        "simple quotas with a wrong count",
        |image| {
            simple_quotas(image);
            add_to_group(image, group(0, 257), 8, 4096);
        },
        REFERENCED,
    )
    .but(SIMPLE),
];

/// A free space cache: the address of its content, and the number of its pages.
fn cache(image: &BtrfsImage) -> (u64, usize) {
    let headers = image.items(ROOT_TREE).into_iter();
    let headers = headers.filter(|item| item.key.0 == FREE_SPACE);
    // That of data, which has the most entries.
    let header = headers.max_by_key(|item| word(&item.data, 25)).unwrap();
    let number = word(&header.data, 0);
    let inode = image.item_of(ROOT_TREE, number, 1);
    let part = image.item_of(ROOT_TREE, number, 108);
    let pages = word(&inode.data, 16) / SECTOR;
    (word(&part.data, 21), pages as usize)
}

/// Changes the first page of a cache, after its checksums, and recomputes its checksum.
fn edit_cache(image: &mut BtrfsImage, edit: fn(&mut [u8])) {
    let (at, pages) = cache(image);
    let place = image.places(at)[0];
    let mut page = image.bytes(place, SECTOR as usize);
    edit(&mut page[pages * 4..]);
    let sum = BtrfsImage::checksum(&page[pages * 4..]);
    page[..4].copy_from_slice(&sum.to_le_bytes());
    image.patch(place, &page);
}

pub(super) const SPACE_CACHE: &[Case] = &[
    case("sound", sound, ""),
    case(
        "free space at another place",
        |image| {
            edit_cache(image, |page| {
                let at = word(page, 8) + SECTOR;
                page[8..16].copy_from_slice(&le(at));
            });
        },
        "free space cache is wrong",
    ),
    case(
        "free space outside of the group",
        |image| {
            edit_cache(image, |page| {
                let at = word(page, 8) + (1 << 40);
                page[8..16].copy_from_slice(&le(at));
            });
        },
        "free space cache is wrong",
    ),
    case(
        "less free space than there is, which Linux notices",
        |image| {
            edit_cache(image, |page| {
                let len = word(page, 16) - SECTOR;
                page[16..24].copy_from_slice(&le(len));
            });
        },
        "",
    ),
    case(
        "a page with another checksum, which Linux ignores",
        |image| {
            let (at, pages) = cache(image);
            let place = image.places(at)[0] + pages as u64 * 4 + 8;
            let at = word(&image.bytes(place, 8), 0) + SECTOR;
            image.patch(place, &le(at));
        },
        "",
    ),
    case(
        "another generation, which Linux ignores",
        |image| {
            edit_cache(image, |page| {
                page[0] ^= 1;
                let at = word(page, 8) + SECTOR;
                page[8..16].copy_from_slice(&le(at));
            });
        },
        "",
    ),
    case(
        "caches of another commit, which Linux ignores",
        |image| {
            edit_cache(image, |page| {
                let at = word(page, 8) + SECTOR;
                page[8..16].copy_from_slice(&le(at));
            });
            add_to_superblock(image, 555, -1);
        },
        "",
    ),
];

/// The free extents of the last block group.
fn last_free(image: &BtrfsImage) -> BtrfsItem {
    of_kind(image, FREE_SPACE_TREE, 199).pop().unwrap()
}

pub(super) const FRESH: &[Case] = &[
    case(
        "sound, but with what is left of deleted block groups",
        sound,
        "",
    ),
    case(
        "free space that ends outside of its group",
        |image| {
            let (at, kind, len) = last_free(image).key;
            image.rekey(FREE_SPACE_TREE, (at, kind, len), (at, kind, len + SECTOR));
        },
        "free space lies in no block group",
    ),
    case(
        "free space outside of every group",
        |image| {
            let (at, kind, len) = last_free(image).key;
            image.insert(FREE_SPACE_TREE, (at + (1 << 40), kind, len), Vec::new());
        },
        "free space lies in no block group",
    ),
    case(
        "a group that does not exist",
        |image| {
            let (at, _, len) = last_free(image).key;
            image.insert(FREE_SPACE_TREE, (at + (1 << 40), 198, len), vec![0; 8]);
        },
        "free space info is of no block group",
    ),
    case(
        "less free space than there is",
        |image| {
            let (at, kind, len) = last_free(image).key;
            image.rekey(FREE_SPACE_TREE, (at, kind, len), (at, kind, len - SECTOR));
        },
        "free space tree is wrong",
    ),
    case(
        "free space missing",
        |image| image.remove(FREE_SPACE_TREE, last_free(image).key),
        "free",
    ),
];
