//! Named SquashFS images: hostile ones with the errors that they must be rejected with, and odd ones that must be
//! readable.

use super::fields::{ANY, INODES, READ, SUPERBLOCK};
use super::{Edit, Encode, Part, sample_tree};

/// An image.
pub struct Vector {
    /// What is special about it.
    pub name: &'static str,
    /// All of it.
    pub image: Vec<u8>,
    /// The error that reading all of it must give; `None` if it must be readable.
    pub refused: Option<&'static str>,
}

/// All cases, laid out with this codec. Reading all of an image means every inode, listing, attribute and byte of
/// content.
pub fn squashfs_vectors(codec: u16, encode: Encode) -> Vec<Vector> {
    let sample = sample_tree(codec, encode);
    let sound = sample.sound();
    let mut vectors = Vec::new();
    let mut add = |name, refused: Option<&'static str>, edit: Edit<'_>| {
        let image = sample.build(edit).bytes;
        let is_sound = image == sound.bytes;
        assert!(!is_sound || refused.is_none(), "{name} changes nothing");
        vectors.push(Vector {
            name,
            image,
            refused,
        });
    };
    add("as it should be", None, &mut |_, _| ());

    // The superblock.
    for (name, at, value, refused) in SUPERBLOCK {
        add(
            name,
            Some(refused),
            &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
                if part == Part::Superblock {
                    bytes[*at..at + value.len()].copy_from_slice(value);
                }
            },
        );
    }
    for (name, from, to, refused) in [
        // Offsets of fields: the first gets the value of the second.
        (
            "inode table where the listings are",
            64,
            72,
            "squashfs inode table is empty",
        ),
        (
            "listings where the inodes are",
            72,
            64,
            "squashfs inode table is empty",
        ),
        (
            "fragment table where the inodes are",
            80,
            64,
            "squashfs tables are out of order",
        ),
        (
            "id table where the export table is",
            48,
            88,
            "table's list does not end",
        ),
        (
            "export table where the id table is",
            88,
            48,
            "table's list does not end",
        ),
        (
            "fragment table where the export table is",
            80,
            88,
            "table's list does not end",
        ),
        (
            "xattr table where the id table is",
            56,
            48,
            "table's list does not end",
        ),
        (
            "id table at the end",
            48,
            40,
            "squashfs tables are out of order",
        ),
    ] {
        add(
            name,
            Some(refused),
            &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
                if part == Part::Superblock {
                    bytes.copy_within(to..to + 8, from);
                }
            },
        );
    }
    for (name, less) in [("cut in the xattr ids", 8), ("cut in the tables", 3000)] {
        add(
            name,
            Some(ANY),
            &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
                if part == Part::Superblock {
                    let used = u64::from_le_bytes(bytes[40..48].try_into().expect("8 bytes"));
                    bytes[40..48].copy_from_slice(&(used - less).to_le_bytes());
                }
            },
        );
    }

    // Inodes: path, offset, value.
    for (name, path, at, value, refused) in INODES {
        let refused = (*refused != READ).then_some(*refused);
        add(name, refused, &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Inode(path) {
                bytes[*at..at + value.len()].copy_from_slice(value);
            }
        });
    }
    add(
        "a file of 2^60 bytes without blocks",
        Some("file has more blocks than the inode table can hold"),
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Inode("hole") {
                put(bytes, 24, &(1u64 << 60).to_le_bytes());
            }
        },
    );
    add(
        "two directories with one listing",
        Some("directory's listing is also that of another directory"),
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Inode("zone") {
                let (block, offset) = sound.listings["sub"];
                put(bytes, 24, &block.to_le_bytes());
                put(bytes, 34, &offset.to_le_bytes());
                put(bytes, 20, &66u32.to_le_bytes());
            }
        },
    );
    let mut big = Vec::new();
    sample.build(&mut |part, bytes| {
        if part == Part::Inode("big") {
            big.clone_from(bytes);
        }
    });
    let word = |at: usize| u32::from_le_bytes([big[at], big[at + 1], big[at + 2], big[at + 3]]);
    // Its listing is the first, and its index the first place behind a metadata block.
    let (len, skipped, block) = (word(20), word(40), word(44));
    add(
        "a listing that is the end of another",
        Some("directory's listing is also that of another directory"),
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Inode("zone") {
                put(bytes, 24, &block.to_le_bytes());
                put(bytes, 34, &(skipped as u16 % 8192).to_le_bytes());
                put(bytes, 20, &(len - skipped).to_le_bytes());
            }
        },
    );
    add(
        "an index that leads to another name",
        Some("directory index leads to another name"),
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Inode("big") {
                bytes[53] += 1;
            }
        },
    );
    add(
        "an index that leads beyond the listing",
        Some("directory index is impossible"),
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Inode("big") {
                put(bytes, 40, &len.to_le_bytes());
            }
        },
    );
    add(
        "an index with a name of 4 GiB",
        Some("directory index is impossible"),
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Inode("big") {
                put(bytes, 48, &u32::MAX.to_le_bytes());
            }
        },
    );
    add(
        "an index of 65,535 places",
        Some(ANY),
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Inode("big") {
                put(bytes, 32, &u16::MAX.to_le_bytes());
            }
        },
    );

    // Names.
    for (name, new, refused) in [
        (
            "a name of one dot",
            &b"."[..],
            "directory entry's name is not valid",
        ),
        (
            "a name of two dots",
            b"..",
            "directory entry's name is not valid",
        ),
        (
            "a name with a slash",
            b"a/b",
            "directory entry's name is not valid",
        ),
        (
            "a name with a NUL",
            b"a\0b",
            "directory entry's name is not valid",
        ),
        (
            "a name of 256 bytes",
            &[b'n'; 256],
            "directory entry's name is not valid",
        ),
        (
            "a name of 257 bytes",
            &[b'n'; 257],
            "directory entry's name is too long",
        ),
    ] {
        add(
            name,
            Some(refused),
            &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
                match part {
                    Part::Listing("link-b") => {
                        bytes.truncate(12 + 8);
                        put(bytes, 18, &(new.len() as u16 - 1).to_le_bytes());
                        bytes.extend(new);
                    }
                    // The listing's size follows.
                    Part::Inode("link-b") => {
                        put(bytes, 24, &(20 + new.len() as u16 + 3).to_le_bytes());
                    }
                    _ => {}
                }
            },
        );
    }
    add(
        "a name without bytes",
        Some("directory entry's name is too long"),
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Listing("link-b") {
                put(bytes, 18, &u16::MAX.to_le_bytes());
            }
        },
    );
    for (name, from, to, refused) in [
        (
            "a name twice",
            "hard",
            "hole",
            "directory entries are not in order",
        ),
        (
            "names out of order",
            "wire",
            "fire",
            "directory entries are not in order",
        ),
        (
            "a symbolic link and then a directory of its name",
            "link-b",
            "link-a",
            "directory entries are not in order",
        ),
    ] {
        add(
            name,
            Some(refused),
            &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
                if part == Part::Listing("") {
                    let at = entry(bytes, from) + 8;
                    put(bytes, at, to.as_bytes());
                }
            },
        );
    }

    // Entries.
    let to = |bytes: &mut Vec<u8>, name: &str, reference: u64| {
        // The only run, or the last: its header is that of the entry.
        put(bytes, 4, &((reference >> 16) as u32).to_le_bytes());
        let at = entry(bytes, name);
        put(bytes, at, &(reference as u16).to_le_bytes());
    };
    let root = sound.inodes[""];
    let sub = sound.inodes["sub"];
    for (name, path, entry_name, kind, reference, refused) in [
        (
            "a directory in itself",
            "sub/deep",
            "file",
            1u16,
            root,
            "a directory is in two places",
        ),
        (
            "a directory in two places",
            "link-b",
            "loot",
            1,
            sub,
            "a directory is in two places",
        ),
        (
            "a directory said to be a file",
            "sub/deep",
            "file",
            2,
            sub,
            "a file's type differs from its directory entry",
        ),
        (
            "a file said to be a directory",
            "link-b",
            "loot",
            1,
            sound.inodes["link-b/loot"],
            "a file's type differs from its directory entry",
        ),
        (
            "an entry of no kind",
            "link-b",
            "loot",
            8,
            sub,
            "directory entry's type is unknown",
        ),
        (
            "an entry of kind 0",
            "link-b",
            "loot",
            0,
            sub,
            "directory entry's type is unknown",
        ),
        (
            "an entry beyond the inode table",
            "link-b",
            "loot",
            2,
            0x7fff_ffff_0000,
            "reference lies beyond its table",
        ),
        (
            "an entry beyond its block",
            "link-b",
            "loot",
            2,
            root | 0xffff,
            "reference lies beyond its metadata block",
        ),
    ] {
        add(
            name,
            Some(refused),
            &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
                if part == Part::Listing(path) {
                    to(bytes, entry_name, reference);
                    let at = entry(bytes, entry_name);
                    put(bytes, at + 4, &kind.to_le_bytes());
                }
            },
        );
    }
    add(
        "a run of 257 entries",
        Some("directory run has too many entries"),
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Listing("sub") {
                put(bytes, 0, &256u32.to_le_bytes());
            }
        },
    );
    add(
        "a run of 2^32 entries",
        Some("directory run has too many entries"),
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Listing("sub") {
                put(bytes, 0, &u32::MAX.to_le_bytes());
            }
        },
    );
    add(
        "a run with fewer entries than there are",
        Some(ANY),
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Listing("sub") {
                put(bytes, 0, &1u32.to_le_bytes());
            }
        },
    );
    add(
        "a run with more entries than there are",
        Some("directory record does not fit in its listing"),
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Listing("sub") {
                put(bytes, 0, &9u32.to_le_bytes());
            }
        },
    );
    add(
        "an entry with inode number 0",
        Some("directory entry's inode number is impossible"),
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Listing("link-b") {
                put(bytes, 8, &0u32.to_le_bytes());
            }
        },
    );

    // Metadata blocks: table, index, header.
    for (name, table, n, header, refused) in [
        (
            "a plain metadata block of no bytes",
            "inodes",
            1,
            0x8000u16,
            "metadata block's stored length is impossible",
        ),
        (
            "an encoded metadata block of no bytes",
            "inodes",
            1,
            0,
            "metadata block's stored length is impossible",
        ),
        (
            "a plain metadata block of 8193 bytes",
            "inodes",
            1,
            0xa001,
            "metadata block's stored length is impossible",
        ),
        (
            "a metadata block of 32767 bytes",
            "listings",
            0,
            0xffff,
            "metadata block's stored length is impossible",
        ),
        (
            "a listing block of no bytes",
            "listings",
            1,
            0x8000,
            "metadata block's stored length is impossible",
        ),
        (
            "an id block of no bytes",
            "ids",
            0,
            0x8000,
            "metadata block's stored length is impossible",
        ),
        ("an id block that is short", "ids", 0, 0x8004, ANY),
        (
            "a fragment block table that is short",
            "fragments",
            0,
            0x8008,
            "metadata continues after a block that is not full",
        ),
        (
            "an attribute block of no bytes",
            "xattrs",
            0,
            0x8000,
            "metadata block's stored length is impossible",
        ),
    ] {
        add(
            name,
            Some(refused),
            &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
                if part == Part::Metadata(table, n) {
                    bytes[..2].copy_from_slice(&header.to_le_bytes());
                }
            },
        );
    }
    add(
        "a metadata block that is not full in the midst of a table",
        Some(ANY),
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Metadata("listings", 0) {
                *bytes = [&0x8064u16.to_le_bytes()[..], &[0; 100]].concat();
            }
        },
    );

    // Tables: name, offset, value; and their lists.
    for (name, table, at, value, refused) in [
        (
            "a fragment in the superblock",
            "fragments",
            0,
            &0u64.to_le_bytes()[..],
            "fragment lies where no data can be",
        ),
        (
            "a fragment beyond the end",
            "fragments",
            0,
            &(1u64 << 62).to_le_bytes(),
            "fragment lies where no data can be",
        ),
        (
            "a fragment at the last byte",
            "fragments",
            0,
            &u64::MAX.to_le_bytes(),
            "fragment lies where no data can be",
        ),
        (
            "a fragment of no bytes",
            "fragments",
            8,
            &(1u32 << 24).to_le_bytes(),
            "stored block size is impossible",
        ),
        (
            "a fragment of 16 MiB",
            "fragments",
            8,
            &0xff_ffffu32.to_le_bytes(),
            "stored block size is impossible",
        ),
        (
            "a fragment with unknown bits",
            "fragments",
            8,
            &0x8000_0010u32.to_le_bytes(),
            "stored block size is impossible",
        ),
        (
            "a fragment that is too short",
            "fragments",
            8,
            &(1u32 << 24 | 50).to_le_bytes(),
            "tail lies beyond its fragment's end",
        ),
        (
            "attributes of no namespace",
            "xattrs",
            0,
            &[3, 0],
            "extended attribute's namespace is unknown",
        ),
        (
            "attributes with unknown bits",
            "xattrs",
            1,
            &[2],
            "extended attribute's namespace is unknown",
        ),
        (
            "an attribute without a name",
            "xattrs",
            2,
            &[0, 0],
            "extended attribute's name is not valid",
        ),
        (
            "an attribute with a NUL in its name",
            "xattrs",
            4,
            &[0],
            "extended attribute's name is not valid",
        ),
        (
            "a set beyond its table",
            "xattr ids",
            0,
            &(1u64 << 40).to_le_bytes(),
            "reference lies beyond its table",
        ),
        (
            "a set in its table's ids",
            "xattr ids",
            2,
            &[0xff, 0xff],
            "reference lies beyond its table",
        ),
        (
            "a set of 2^32 attributes",
            "xattr ids",
            8,
            &u32::MAX.to_le_bytes(),
            ANY,
        ),
    ] {
        let mut first = true;
        add(
            name,
            Some(refused),
            &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
                if part == Part::Table(table) && std::mem::take(&mut first) {
                    put(bytes, at, value);
                }
            },
        );
    }
    for (name, number, at, value, refused) in [
        // The second set: a long value of its own, then one that it refers to.
        (
            "a value of 4 GiB",
            1usize,
            8usize,
            &u32::MAX.to_le_bytes()[..],
            "an extended attribute's value is too long",
        ),
        (
            "a reference of 7 bytes",
            1,
            8 + 4 + 5000 + 4 + 5,
            &[7],
            "reference to an attribute's value is not 8 bytes long",
        ),
        (
            "a value elsewhere beyond the table",
            1,
            8 + 4 + 5000 + 4 + 5 + 4 + 4,
            &[0xff; 3],
            "reference lies beyond its table",
        ),
    ] {
        let mut n = 0;
        add(
            name,
            Some(refused),
            &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
                if part == Part::Table("xattrs") {
                    if n == number {
                        put(bytes, at, value);
                    }
                    n += 1;
                }
            },
        );
    }
    for (name, list, at, value, refused) in [
        (
            "ids in the superblock",
            "ids",
            0usize,
            &0u64.to_le_bytes()[..],
            "table's blocks are out of order",
        ),
        (
            "ids beyond their list",
            "ids",
            0,
            &u64::MAX.to_le_bytes(),
            "table's blocks are out of order",
        ),
        (
            "exports in the data",
            "exports",
            0,
            &100u64.to_le_bytes(),
            "table's blocks are out of order",
        ),
        (
            "fragments in the data",
            "fragments",
            0,
            &100u64.to_le_bytes(),
            "table's blocks are out of order",
        ),
        (
            "sets in the data",
            "xattr ids",
            16,
            &100u64.to_le_bytes(),
            "table's blocks are out of order",
        ),
        (
            "attributes in the superblock",
            "xattr ids",
            0,
            &0u64.to_le_bytes(),
            "extended attributes lie outside their table",
        ),
        (
            "attributes beyond the end",
            "xattr ids",
            0,
            &u64::MAX.to_le_bytes(),
            "extended attributes lie outside their table",
        ),
        (
            "2^32 sets of attributes",
            "xattr ids",
            8,
            &u32::MAX.to_le_bytes(),
            "table's list does not end",
        ),
        (
            "one set more than there is room for",
            "xattr ids",
            8,
            &513u32.to_le_bytes(),
            "table's list does not end",
        ),
    ] {
        add(
            name,
            Some(refused),
            &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
                if part == Part::List(list) {
                    put(bytes, at, value);
                }
            },
        );
    }
    for (name, options, refused) in [
        (
            "options that are encoded",
            &[4, 0, 1, 0, 0, 0][..],
            Some("compressor's options are not stored"),
        ),
        (
            "options without bytes",
            &[0, 0x80],
            Some("compressor's options are too short"),
        ),
        (
            "options of 4 KiB",
            &[0, 0x90],
            Some("compressor's options are not stored"),
        ),
    ] {
        add(name, refused, &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Options {
                bytes.extend(options);
                bytes.resize(bytes.len().max(options.len()), 0);
            }
        });
    }

    if codec == 5 {
        // Version, the flag that says so, and an acceleration.
        add("lz4 options of 12 bytes", None, &mut |part: Part<'_>,
                                                   bytes: &mut Vec<
            u8,
        >| {
            if part == Part::Options {
                bytes.extend([12, 0x80, 1, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0]);
            }
        });
    }

    // Blocks.
    add(
        "a block that is shorter than its file says",
        Some("data block's content is not as long as the file says"),
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Inode("noise") {
                put(bytes, 28, &5999u32.to_le_bytes());
            }
        },
    );
    // LZ4 does not say what is wrong with a block.
    let more = if codec == 5 { ANY } else { "more than it may" };
    if let Some(bomb) = encode(&vec![0; 1 << 19]).filter(|bomb| bomb.len() <= 4096) {
        add(
            "a block that holds 512 KiB",
            Some(more),
            &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
                if part == Part::Block("blocks", 1) {
                    bytes.clone_from(&bomb);
                }
            },
        );
        add(
            "a fragment that holds 512 KiB",
            Some(more),
            &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
                if part == Part::Fragment(0) {
                    bytes.clone_from(&bomb);
                }
            },
        );
        add(
            "a metadata block that holds 512 KiB",
            Some(more),
            &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
                if part == Part::Metadata("inodes", 1) {
                    *bytes = [&(bomb.len() as u16).to_le_bytes()[..], &bomb].concat();
                }
            },
        );
    }

    // What is odd and no harm.
    add("flags that nobody knows", None, &mut |part: Part<'_>,
                                               bytes: &mut Vec<
        u8,
    >| {
        if part == Part::Superblock {
            bytes[25] |= 0xf0;
        }
    });
    add(
        "a fragment entry's unused word",
        None,
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Table("fragments") {
                put(bytes, 12, &[0xff; 4]);
            }
        },
    );
    add(
        "an export table of nonsense that ls and copy need not",
        None,
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Table("exports") {
                bytes.fill(0xff);
            }
        },
    );
    add(
        "an empty directory of size 0",
        None,
        &mut |part: Part<'_>, bytes: &mut Vec<u8>| {
            if part == Part::Inode("sub/nothing") {
                put(bytes, 24, &[0, 0]);
            }
        },
    );
    vectors
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

/// The position of the entry with this name in a listing.
fn entry(listing: &[u8], name: &str) -> usize {
    let found = listing
        .windows(name.len())
        .position(|bytes| bytes == name.as_bytes());
    found.unwrap_or_else(|| panic!("{name} is not in the listing")) - 8
}
