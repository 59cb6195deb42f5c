//! Each field of each structure is changed, with checksums that are right: the verdict of `restow
//! check` is compared with that of `btrfs check`.
//!
//! Changed images are never mounted: some changes make Linux wait forever.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs::File;
use std::path::Path;
use std::thread;

use btrfs::Options;
use testkit::{BtrfsImage, BtrfsKey, MemoryFs, TempDir, cases, tool};
use tree::FileSystem;

use crate::damage::verdict;
use crate::images::make;
use crate::judges::{Judge, JudgedFile, judges, versions};
use crate::small::small;

/// Images that are judged at a time.
const WORKERS: usize = 4;

/// A field's name and its length in bytes.
type Field = (&'static str, usize);

const KEY: [Field; 3] = [("objectid", 8), ("type", 1), ("offset", 8)];

const SUPERBLOCK: &[Field] = &[
    ("fsid", 16),
    ("bytenr", 8),
    ("flags", 8),
    ("magic", 8),
    ("generation", 8),
    ("root", 8),
    ("chunk_root", 8),
    ("log_root", 8),
    ("log_root_transid", 8),
    ("total_bytes", 8),
    ("bytes_used", 8),
    ("root_dir_objectid", 8),
    ("num_devices", 8),
    ("sectorsize", 4),
    ("nodesize", 4),
    ("leafsize", 4),
    ("stripesize", 4),
    ("sys_chunk_array_size", 4),
    ("chunk_root_generation", 8),
    ("compat_flags", 8),
    ("compat_ro_flags", 8),
    ("incompat_flags", 8),
    ("csum_type", 2),
    ("root_level", 1),
    ("chunk_root_level", 1),
    ("log_root_level", 1),
    ("dev_item.devid", 8),
    ("dev_item.total_bytes", 8),
    ("dev_item.bytes_used", 8),
    ("dev_item.io_align", 4),
    ("dev_item.io_width", 4),
    ("dev_item.sector_size", 4),
    ("dev_item.type", 8),
    ("dev_item.generation", 8),
    ("dev_item.start_offset", 8),
    ("dev_item.dev_group", 4),
    ("dev_item.seek_speed", 1),
    ("dev_item.bandwidth", 1),
    ("dev_item.uuid", 16),
    ("dev_item.fsid", 16),
    ("label", 256),
    ("cache_generation", 8),
    ("uuid_tree_generation", 8),
    ("metadata_uuid", 16),
    ("nr_global_roots", 8),
    ("remap_root", 8),
    ("remap_root_generation", 8),
    ("remap_root_level", 1),
    ("reserved", 199),
    ("sys_chunk_array.objectid", 8),
    ("sys_chunk_array.key type", 1),
    ("sys_chunk_array.offset", 8),
    ("sys_chunk_array.length", 8),
    ("sys_chunk_array.owner", 8),
    ("sys_chunk_array.stripe_len", 8),
    ("sys_chunk_array.type", 8),
    ("sys_chunk_array.io_align", 4),
    ("sys_chunk_array.io_width", 4),
    ("sys_chunk_array.sector_size", 4),
    ("sys_chunk_array.num_stripes", 2),
    ("sys_chunk_array.sub_stripes", 2),
    ("sys_chunk_array.devid", 8),
    ("sys_chunk_array.stripe offset", 8),
    ("sys_chunk_array.dev_uuid", 16),
];

const HEADER: &[Field] = &[
    ("fsid", 16),
    ("bytenr", 8),
    ("flags", 8),
    ("chunk_tree_uuid", 16),
    ("generation", 8),
    ("owner", 8),
    ("nritems", 4),
    ("level", 1),
];

const INODE: &[Field] = &[
    ("generation", 8),
    ("transid", 8),
    ("size", 8),
    ("nbytes", 8),
    ("block_group", 8),
    ("nlink", 4),
    ("uid", 4),
    ("gid", 4),
    ("mode", 4),
    ("rdev", 8),
    ("flags", 8),
    ("sequence", 8),
    ("reserved", 32),
    ("atime.sec", 8),
    ("atime.nsec", 4),
    ("ctime.sec", 8),
    ("ctime.nsec", 4),
    ("mtime.sec", 8),
    ("mtime.nsec", 4),
    ("otime.sec", 8),
    ("otime.nsec", 4),
];

/// What follows the inode in a root item.
const ROOT: &[Field] = &[
    ("generation", 8),
    ("root_dirid", 8),
    ("bytenr", 8),
    ("byte_limit", 8),
    ("bytes_used", 8),
    ("last_snapshot", 8),
    ("flags", 8),
    ("refs", 4),
    ("drop_progress.objectid", 8),
    ("drop_progress.type", 1),
    ("drop_progress.offset", 8),
    ("drop_level", 1),
    ("level", 1),
    ("generation_v2", 8),
    ("uuid", 16),
    ("parent_uuid", 16),
    ("received_uuid", 16),
    ("ctransid", 8),
    ("otransid", 8),
    ("stransid", 8),
    ("rtransid", 8),
    ("ctime.sec", 8),
    ("ctime.nsec", 4),
    ("otime.sec", 8),
    ("otime.nsec", 4),
    ("stime.sec", 8),
    ("stime.nsec", 4),
    ("rtime.sec", 8),
    ("rtime.nsec", 4),
    ("reserved", 64),
];

const DIR: &[Field] = &[
    ("location.objectid", 8),
    ("location.type", 1),
    ("location.offset", 8),
    ("transid", 8),
    ("data_len", 2),
    ("name_len", 2),
    ("type", 1),
    ("name", 1),
];

const EXTENT: &[Field] = &[
    ("refs", 8),
    ("generation", 8),
    ("flags", 8),
    ("inline reference: type", 1),
];

const CHUNK: &[Field] = &[
    ("length", 8),
    ("owner", 8),
    ("stripe_len", 8),
    ("type", 8),
    ("io_align", 4),
    ("io_width", 4),
    ("sector_size", 4),
    ("num_stripes", 2),
    ("sub_stripes", 2),
    ("devid", 8),
    ("stripe offset", 8),
    ("dev_uuid", 16),
];

const DEVICE: &[Field] = &[
    ("devid", 8),
    ("total_bytes", 8),
    ("bytes_used", 8),
    ("io_align", 4),
    ("io_width", 4),
    ("sector_size", 4),
    ("type", 8),
    ("generation", 8),
    ("start_offset", 8),
    ("dev_group", 4),
    ("seek_speed", 1),
    ("bandwidth", 1),
    ("uuid", 16),
    ("fsid", 16),
];

/// The name of an item's structure and its fields, as far as the item has them.
fn structure(tree: u64, key: BtrfsKey, data: &[u8]) -> (&'static str, Vec<Field>) {
    let list = |lists: &[&[Field]]| lists.concat();
    match key.1 {
        1 => ("inode item", INODE.to_vec()),
        12 => (
            "inode reference",
            list(&[&[("index", 8), ("name_len", 2), ("name", 1)]]),
        ),
        13 => (
            "extended inode reference",
            list(&[&[
                ("parent_objectid", 8),
                ("index", 8),
                ("name_len", 2),
                ("name", 1),
            ]]),
        ),
        24 => ("attribute", DIR.to_vec()),
        48 => ("orphan item", Vec::new()),
        84 if tree == 1 => ("default subvolume", DIR.to_vec()),
        84 => ("directory item", DIR.to_vec()),
        96 => ("directory index", DIR.to_vec()),
        108 => {
            let head: &[Field] = &[
                ("generation", 8),
                ("ram_bytes", 8),
                ("compression", 1),
                ("encryption", 1),
                ("other_encoding", 2),
                ("type", 1),
            ];
            if data[20] == 0 {
                return ("inline extent", list(&[head, &[("data", 1)]]));
            }
            let place: &[Field] = &[
                ("disk_bytenr", 8),
                ("disk_num_bytes", 8),
                ("offset", 8),
                ("num_bytes", 8),
            ];
            let name = match data[20] {
                1 if data[16] == 0 => "extent of a file",
                1 => "compressed extent of a file",
                _ => "preallocated extent of a file",
            };
            (name, list(&[head, place]))
        }
        128 => ("checksum item", list(&[&[("sum", 4)]])),
        132 => {
            let name = match key.0 {
                5 | 256.. if key.0 < 1 << 63 => "root item of a subvolume",
                _ => "root item of another tree",
            };
            (name, list(&[INODE, ROOT]))
        }
        144 | 156 => (
            if key.1 == 144 {
                "root back reference"
            } else {
                "root reference"
            },
            list(&[&[("dirid", 8), ("sequence", 8), ("name_len", 2), ("name", 1)]]),
        ),
        168 if data.get(24) == Some(&178) => {
            let reference: &[Field] = &[
                ("inline reference: root", 8),
                ("inline reference: objectid", 8),
                ("inline reference: offset", 8),
                ("inline reference: count", 4),
            ];
            ("extent item", list(&[EXTENT, reference]))
        }
        168 if data.get(24) == Some(&184) => {
            let reference: &[Field] = &[
                ("inline reference: parent", 8),
                ("inline reference: count", 4),
            ];
            ("extent item", list(&[EXTENT, reference]))
        }
        169 => (
            "metadata item",
            list(&[EXTENT, &[("inline reference: offset", 8)]]),
        ),
        178 => (
            "extent data reference",
            list(&[&[("root", 8), ("objectid", 8), ("offset", 8), ("count", 4)]]),
        ),
        184 => ("shared data reference", list(&[&[("count", 4)]])),
        192 => (
            "block group item",
            list(&[&[("used", 8), ("chunk_objectid", 8), ("flags", 8)]]),
        ),
        198 => (
            "free space info",
            list(&[&[("extent_count", 4), ("flags", 4)]]),
        ),
        200 => ("free space bitmap", list(&[&[("bits", 8)]])),
        204 => (
            "device extent",
            list(&[&[
                ("chunk_tree", 8),
                ("chunk_objectid", 8),
                ("chunk_offset", 8),
                ("length", 8),
                ("chunk_tree_uuid", 16),
            ]]),
        ),
        216 => ("device item", DEVICE.to_vec()),
        228 => ("chunk item", CHUNK.to_vec()),
        240 => (
            "quota status",
            list(&[&[
                ("version", 8),
                ("generation", 8),
                ("flags", 8),
                ("rescan", 8),
            ]]),
        ),
        242 => (
            "quota group",
            list(&[&[
                ("generation", 8),
                ("rfer", 8),
                ("rfer_cmpr", 8),
                ("excl", 8),
                ("excl_cmpr", 8),
            ]]),
        ),
        244 => (
            "quota limit",
            list(&[&[
                ("flags", 8),
                ("max_rfer", 8),
                ("max_excl", 8),
                ("rsv_rfer", 8),
                ("rsv_excl", 8),
            ]]),
        ),
        251 | 252 => ("UUID item", list(&[&[("subvolume", 8)]])),
        _ => ("other item", Vec::new()),
    }
}

/// Where a field is.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// At this byte of every superblock.
    Superblock(usize),
    /// At this byte of a tree block.
    Block(u64, usize),
    /// At this byte of an item.
    Item(u64, BtrfsKey, usize),
}

/// A field with another value.
struct Change {
    structure: &'static str,
    field: &'static str,
    place: Place,
    bytes: Vec<u8>,
}

impl Change {
    fn apply(&self, image: &mut BtrfsImage) {
        let (at, bytes) = (&self.place, &self.bytes);
        match *at {
            Place::Superblock(at) => {
                image.edit_superblock(|block| block[at..at + bytes.len()].copy_from_slice(bytes));
            }
            Place::Block(block, at) => image.edit_block(block, |block| {
                block[at..at + bytes.len()].copy_from_slice(bytes);
            }),
            Place::Item(tree, key, at) => image.set(tree, key, at, bytes),
        }
    }

    fn name(&self) -> String {
        format!("{}: {}", self.structure, self.field)
    }
}

/// Other values: 0, 1, one more, all ones, and with another lowest, middle or highest bit.
fn values(old: &[u8]) -> Vec<Vec<u8>> {
    let len = old.len();
    let mut values = Vec::new();
    let mut one = vec![0; len];
    one[0] = 1;
    let mut more = old.to_vec();
    for byte in &mut more {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            break;
        }
    }
    values.extend([vec![0; len], one, more, vec![0xff; len]]);
    for bit in [0, 4 * len + 1, 8 * len - 1] {
        let mut flipped = old.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        values.push(flipped);
    }
    values.retain(|value| value != old);
    values.sort_unstable();
    values.dedup();
    values
}

/// Adds the changes of consecutive fields, from byte `from` of `bytes`.
fn add(
    changes: &mut Vec<Change>,
    structure: &'static str,
    fields: &[Field],
    (bytes, from): (&[u8], usize),
    place: impl Fn(usize) -> Place,
) {
    let mut at = from;
    for &(field, len) in fields {
        let Some(old) = bytes.get(at..at + len) else {
            return;
        };
        changes.extend(values(old).into_iter().map(|bytes| Change {
            structure,
            field,
            place: place(at),
            bytes,
        }));
        at += len;
    }
}

/// The numbers of the trees of an image.
pub(crate) fn trees(image: &BtrfsImage) -> Vec<u64> {
    let roots = image.items(1).into_iter();
    let roots = roots.filter(|item| item.key.1 == 132);
    let mut trees: Vec<u64> = roots.map(|item| item.key.0).chain([1, 3]).collect();
    trees.sort_unstable();
    trees.dedup();
    trees
}

/// The changes of an image: of each structure in each tree, two at most.
fn changes(image: &BtrfsImage) -> Vec<Change> {
    let mut changes = Vec::new();
    let superblock = image.bytes(64 << 10, 4096);
    let fields = (&superblock[..], 32);
    add(
        &mut changes,
        "superblock",
        SUPERBLOCK,
        fields,
        Place::Superblock,
    );
    for tree in trees(image) {
        let (mut has_node, mut has_leaf) = (false, false);
        for at in image.blocks(tree) {
            let block = image.block(at);
            let is_leaf = block[100] == 0;
            let known = if is_leaf {
                &mut has_leaf
            } else {
                &mut has_node
            };
            if std::mem::replace(known, true) {
                continue;
            }
            let place = |byte| Place::Block(at, byte);
            add(&mut changes, "tree block", HEADER, (&block, 32), place);
            let count = u32::from_le_bytes(block[96..100].try_into().unwrap()) as usize;
            if count == 0 {
                continue;
            }
            let (name, len, rest): (_, _, &[Field]) = if is_leaf {
                (
                    "item of a leaf",
                    25,
                    &[("data offset", 4), ("data size", 4)],
                )
            } else {
                (
                    "pointer of a node",
                    33,
                    &[("blockptr", 8), ("generation", 8)],
                )
            };
            let fields = [&KEY, rest].concat();
            for index in [0, count / 2] {
                add(
                    &mut changes,
                    name,
                    &fields,
                    (&block, 101 + len * index),
                    place,
                );
            }
        }
        let mut seen: BTreeMap<(&str, u64), u32> = BTreeMap::new();
        for item in image.items(tree) {
            let (name, fields) = structure(tree, item.key, &item.data);
            // Each root is the only one of its tree.
            let kind = if item.key.1 == 132 { item.key.0 } else { 0 };
            let count = seen.entry((name, kind)).or_default();
            *count += 1;
            if *count <= 2 {
                let place = |at| Place::Item(tree, item.key, at);
                add(&mut changes, name, &fields, (&item.data, 0), place);
            }
        }
    }
    changes
}

/// Images that differ in their structures: Linux's, one of ours with a block group tree, and one of
/// mkfs.btrfs with quotas.
pub(crate) fn images(dir: &Path) -> Vec<BtrfsImage> {
    let mut source = MemoryFs::new();
    source.add_file(source.root(), "file", &[7; 100_000]);
    let options = Options::default().nodesize(4 << 10).block_group_tree(true);
    let path = dir.join("ours");
    make(&source, &path, &options, 2);
    let mut images = vec![small(), BtrfsImage::read_file(&path)];
    if let Some(mkfs) = tool("mkfs.btrfs") {
        let path = dir.join("theirs");
        File::create(&path).unwrap().set_len(120 << 20).unwrap();
        let mut command = mkfs.command();
        command.args(["-q", "-n", "4K", "-m", "single", "-R", "quota"]);
        testkit::run(command.arg(&path));
        images.push(BtrfsImage::read_file(&path));
    }
    images
}

/// Findings of `restow check` alone, by the reason for them.
const ALONE: &[(&str, &[&str])] = &[
    (
        "Linux: check_extent_data_item",
        &[
            "file extent's compression is unknown",
            "file extent is not made of sectors",
        ],
    ),
    (
        "Linux: check_dir_item",
        &[
            "directory item's name does not fit",
            "directory item's name is too long",
            "directory item is cut off",
            "attribute points at an inode",
            "attribute's name has the wrong hash",
            "attribute has an entry's type",
            "entry points at no inode",
            "entry's type is unknown",
        ],
    ),
    (
        "Linux: check_inode_ref",
        &[
            "inode reference's name does not fit",
            "inode reference is cut off",
        ],
    ),
    (
        "Linux: check_inode_item",
        &[
            "inode has unknown flags",
            "inode item's key has an offset",
            "inode's mode is impossible",
            "inode is newer than the superblock",
            "directory has more than one name",
        ],
    ),
    (
        "Linux: check_root_item",
        &[
            "root is being deleted at no level",
            "root's level is too high",
            "root has unknown flags",
            "root's last snapshot is in the future",
            "root's second generation is in the future",
        ],
    ),
    (
        "Linux: check_extent_item",
        &[
            "extent item's flags are impossible",
            "extent is newer than the superblock",
            "extent item's kind is not its key's",
        ],
    ),
    (
        "Linux: check_dev_extent_item",
        &["device extent names no chunk"],
    ),
    (
        "Linux: check_block_group_item",
        &["block group has no chunk"],
    ),
    (
        "Linux: check_dev_item",
        &["cannot be opened: device has the wrong key"],
    ),
    (
        "Linux: btrfs_check_chunk_valid",
        &["cannot be opened: chunk's type is impossible"],
    ),
    (
        "Linux: btrfs_verify_level_key",
        &[
            "tree block's first key is not as its parent says",
            "tree block's generation is not as its parent says",
            "tree block's level is not as its parent says",
            "cannot be opened: tree block's generation is not as its parent says",
        ],
    ),
    (
        "Linux: btrfs_check_leaf, btrfs_check_node",
        &[
            "tree block was never written",
            "cannot be opened: tree block was never written",
            "leaf is empty in a tree that cannot be",
        ],
    ),
    (
        "Linux: btrfs_validate_super",
        &[
            "superblock has unknown flags",
            "cannot be opened: not a btrfs superblock",
            "cannot be opened: leaf size is not the node size",
        ],
    ),
    (
        "Linux: btrfs_verify_dev_extents, or the chunk map of mount",
        &[
            "cannot be opened: chunks overlap",
            "device extents are not the chunks'",
            "chunk is on an unknown device",
            "cannot be opened: chunk's stripe lies beyond every device",
        ],
    ),
    (
        "Linux: read_bg_from_eb, which compares chunks and block groups",
        &["block group is not its chunk's"],
    ),
    (
        "Linux: get_default_subvol_objectid fails, or ignores the entry",
        &[
            "root tree does not name a default subvolume",
            "cannot be opened: directory of the root tree has the wrong number",
        ],
    ),
    (
        "Linux: lookups of these names or inodes fail",
        &[
            "directory's two lists of entries differ",
            "names of inodes are not those in directories",
            "inode's number of names is wrong",
            "subvolume has no root directory",
        ],
    ),
    (
        "Linux: the data does not decode",
        &[
            "zlib stream is corrupt",
            "lzo extent's length is impossible",
            "not a zstd frame",
        ],
    ),
    (
        "format: between two neighbours, a parent's keys lead to the child that has the key",
        &["tree block's last key belongs to the next one"],
    ),
    (
        "format: fields of a block and of its extent item are equal",
        &["extent item's level or generation is not its block's"],
    ),
    (
        "format: a tree block is not newer than the superblock",
        &["tree block is newer than the superblock"],
    ),
    (
        "format: system chunks have the objectid 256, and both lists have them",
        &[
            "cannot be opened: chunk has the wrong key",
            "superblock's system chunks are not those of the chunk tree",
        ],
    ),
    (
        "format: a compressed extent decodes to at most 128 KiB (BTRFS_MAX_UNCOMPRESSED)",
        &["compressed extent decodes to too many bytes"],
    ),
    (
        "format: sizes are below 2^63 (loff_t)",
        &["inode's size is impossible"],
    ),
    (
        "format: new tree blocks have revision 1 (BTRFS_MIXED_BACKREF_REV) since 2.6.31",
        &["tree block has old back references"],
    ),
    (
        "format: a name has no `/` or NUL, and is not `.` or `..`",
        &["entry's name cannot be one"],
    ),
    (
        "Linux: looks for the root of such a tree at the offset 0",
        &["root item's key has an offset"],
    ),
    (
        "format: the quota tree holds quota items, its status at (0, QGROUP_STATUS, 0)",
        &[
            "quota item's key is wrong",
            "item in the quota tree is of an unexpected kind",
        ],
    ),
    (
        "Linux: check_extent_data_item for the encryption; nothing has another encoding",
        &["file extent is encrypted"],
    ),
    (
        "Linux: btrfs_get_root_ref finds no tree without a reference",
        &["tree has no reference"],
    ),
];

/// Fields whose damage `btrfs check` finds and we do not, with the reason.
const MISSED: &[(&str, &str)] = &[
    (
        "superblock: flags",
        "of an image that says that it is a dump of metadata, only that is checked",
    ),
    (
        "tree block: owner",
        "another subvolume than those that refer to the block: in a balance that is sound",
    ),
];

/// How often a field was changed, each judge found it, and we did.
#[derive(Clone, Default)]
struct Counts {
    changes: u32,
    theirs: Vec<u32>,
    ours: u32,
}

/// The beginning of the page.
const HEAD: &str = "\
# Fields of btrfs, and the checks that look at them

Generated by `RESTOW_UPDATE=1 cargo xtask campaign btrfs-fields`, which changes each field of an image of Linux, one of ours and one of mkfs.btrfs (0, 1, one
more, all ones, three bits flipped), with checksums that are right. The columns count the changes, those that `btrfs check` of two versions reports, and
those that `restow check` reports. Many values of a field are sound, such as another owner or time ([decision](../decisions/btrfs-check.md)).
";

/// The page docs/formats/btrfs-fields.md.
fn page(
    judges: &[Judge],
    counts: &BTreeMap<String, Counts>,
    alone: &BTreeMap<(String, String), u32>,
) -> String {
    let mut page = HEAD.to_owned();
    let versions: String = (judges.iter())
        .map(|judge| format!(" {} |", judge.version))
        .collect();
    let rules = "---|".repeat(judges.len());
    let _ = writeln!(
        page,
        "\n| field | changes |{versions} `restow check` |\n|---|---|{rules}---|"
    );
    for (name, count) in counts {
        let of = |found: &u32| match *found {
            0 => " - |".to_owned(),
            all if all == count.changes => " all |".to_owned(),
            some => format!(" {some} |"),
        };
        let theirs: String = count.theirs.iter().map(of).collect();
        let _ = writeln!(
            page,
            "| {name} | {} |{theirs}{}",
            count.changes,
            of(&count.ours)
        );
    }
    page += "\n## Findings of `restow check` alone\n\n";
    page += "The first finding of each change that neither version of `btrfs check` reports.\n\n";
    page += "| field | changes | finding | reason |\n|---|---|---|---|\n";
    for ((name, words), count) in alone {
        let reason = reason(words).unwrap_or("?");
        let _ = writeln!(page, "| {name} | {count} | {words} | {reason} |");
    }
    page
}

/// Why only we report this.
fn reason(words: &str) -> Option<&'static str> {
    let mut reasons = ALONE.iter().filter(|(_, all)| all.contains(&words));
    reasons.next().map(|(reason, _)| *reason)
}

/// The broken rule, without the place and the value.
fn words(finding: &str) -> String {
    let finding = finding.split(" (found ").next().unwrap_or(finding);
    let is_tree = |(tree, _): &(&str, &str)| tree.starts_with("tree ") && !tree.contains("block");
    let words = finding.split_once(": ").filter(is_tree);
    words.map_or(finding, |(_, words)| words).to_owned()
}

/// The findings of each judge and of ours in each change. The processes that are asked take most
/// of the time.
fn verdicts(
    good: &BtrfsImage,
    changes: &[&Change],
    dir: &Path,
    judges: &[Judge],
) -> Vec<(Vec<bool>, Vec<String>)> {
    let part = changes.len().div_ceil(WORKERS).max(100);
    thread::scope(|scope| {
        let mut running = Vec::new();
        for (worker, changes) in changes.chunks(part).enumerate() {
            running.push(scope.spawn(move || {
                let file = JudgedFile::new(good, dir.join(worker.to_string()), judges);
                let ask = |change: &&Change| {
                    let mut image = good.clone();
                    change.apply(&mut image);
                    (file.findings(&image), verdict(&image))
                };
                changes.iter().map(ask).collect::<Vec<_>>()
            }));
        }
        let running = running.into_iter();
        running.flat_map(|worker| worker.join().unwrap()).collect()
    })
}

#[test]
#[expect(clippy::print_stdout, reason = "a campaign prints it")]
fn the_verdict_on_each_changed_field_is_that_of_btrfs_check() {
    let dir = TempDir::new();
    let mut counts: BTreeMap<String, Counts> = BTreeMap::new();
    let mut alone: BTreeMap<(String, String), u32> = BTreeMap::new();
    let (mut missed, mut unexplained) = (Vec::new(), Vec::new());
    let images = images(dir.path());
    let lists: Vec<Vec<Change>> = images.iter().map(changes).collect();
    let total: usize = lists.iter().map(Vec::len).sum();
    let step = total.div_ceil(cases(24) as usize).max(1);
    let Some(judges) = judges(step == 1) else {
        return;
    };
    // How many changes only one of them finds.
    let mut differ = vec![0; judges.len()];
    for (good, changes) in images.iter().zip(&lists) {
        assert!(verdict(good).is_empty());
        let changes: Vec<&Change> = changes.iter().skip(step / 2).step_by(step).collect();
        let verdicts = verdicts(good, &changes, dir.path(), &judges);
        for (change, (found, lines)) in changes.iter().zip(verdicts) {
            let (name, any) = (change.name(), found.contains(&true));
            let place = || format!("{name} at {:?}: {:x?}", change.place, change.bytes);
            if any && !found.iter().all(|found| *found) {
                (differ.iter_mut().zip(&found)).for_each(|(count, is)| *count += u32::from(*is));
                println!("{found:?} by {:?}: {}", versions(&judges), place());
            }
            let count = counts.entry(name.clone()).or_default();
            count.changes += 1;
            count.theirs.resize(judges.len(), 0);
            (count.theirs.iter_mut().zip(&found)).for_each(|(sum, is)| *sum += u32::from(*is));
            count.ours += u32::from(!lines.is_empty());
            match lines.first() {
                None if any && MISSED.iter().all(|(known, _)| *known != name) => {
                    missed.push(place());
                }
                Some(line) if !any => {
                    let words = words(line);
                    if reason(&words).is_none() {
                        unexplained.push(format!("{}: {line}", place()));
                    }
                    *alone.entry((name, words)).or_default() += 1;
                }
                _ => {}
            }
        }
    }
    let tried: u32 = counts.values().map(|count| count.changes).sum();
    println!(
        "campaign: {tried} changes of {} fields by {:?}: {} missed, {} found only by us ({} kinds), {differ:?} found by one version only",
        counts.len(),
        versions(&judges),
        missed.len(),
        alone.values().sum::<u32>(),
        alone.len(),
    );
    // Without the newer version a column is missing.
    if step == 1 && judges.len() > 1 {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/btrfs-fields.md");
        testkit::golden(&path, page(&judges, &counts, &alone).as_bytes());
    }
    assert!(missed.is_empty(), "{} missed: {missed:#?}", missed.len());
    let is_explained = unexplained.is_empty() || step > 1;
    assert!(is_explained, "no reason for {unexplained:#?}");
}
