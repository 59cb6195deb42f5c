//! Named SquashFS images: hostile ones with the errors that they must be rejected with, and odd
//! ones that must be readable.

use super::{Edit, Encode, Part, RawImage, RawSquashfs, sample_tree};

/// The images with one changed field; its first lines describe it.
const FIELDS: &str = include_str!("vectors.txt");

/// In place of an error: the image is still readable.
const READ: &str = "(is read)";
/// Any error will do.
const ANY: &str = "";

/// An image.
pub struct Vector {
    /// Its peculiarity.
    pub name: &'static str,
    /// All of it.
    pub image: Vec<u8>,
    /// The error that reading all of it must give; `None` if it must be readable.
    pub refused: Option<&'static str>,
}

/// All cases, laid out with this codec. Reading all of an image means every inode, listing,
/// attribute and byte of content.
pub fn squashfs_vectors(codec: u16, encode: Encode) -> Vec<Vector> {
    let sample = sample_tree(codec, encode);
    let sound = sample.sound();
    let mut made = Vectors {
        sample,
        sound,
        vectors: Vec::new(),
    };
    made.add("as it should be", READ, &mut |_, _| ());
    for line in FIELDS
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        made.field(line);
    }
    made.shorter();
    made.directories();
    made.names();
    made.entries();
    made.blocks(codec, encode);
    made.options(codec);
    made.vectors
}

struct Vectors<'a> {
    sample: RawSquashfs<'a>,
    sound: RawImage,
    vectors: Vec<Vector>,
}

impl Vectors<'_> {
    fn add(&mut self, name: &'static str, error: &'static str, edit: Edit<'_>) {
        let image = self.sample.build(edit).bytes;
        let refused = (error != READ).then_some(error);
        let is_sound = image == self.sound.bytes;
        assert!(!is_sound || refused.is_none(), "{name} changes nothing");
        self.vectors.push(Vector {
            name,
            image,
            refused,
        });
    }

    /// Adds an image in which `changed` is changed.
    fn edited(
        &mut self,
        name: &'static str,
        error: &'static str,
        changed: Part<'_>,
        edit: impl Fn(&mut Vec<u8>),
    ) {
        self.add(name, error, &mut |part, bytes| {
            if part == changed {
                edit(bytes);
            }
        });
    }

    /// Adds the image of a line of [`FIELDS`].
    fn field(&mut self, line: &'static str) {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [place, at, value, error, name] = columns[..] else {
            panic!("{line}: not five columns");
        };
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).expect("hexadecimal digits"),
            None if text == "max" => u64::MAX,
            None => text
                .parse()
                .unwrap_or_else(|error| panic!("{line}: {error}")),
        };
        let at = number(at) as usize;
        let (kind, value) = value.split_once(' ').expect("a kind and a value");
        let change = |bytes: &mut Vec<u8>| match kind {
            "copy" => {
                let from = number(value) as usize;
                bytes.copy_within(from..from + 8, at);
            }
            "bytes" => {
                let value = value.split(' ').map(|byte| u8::from_str_radix(byte, 16));
                let value: Result<Vec<u8>, _> = value.collect();
                put(bytes, at, &value.expect("bytes in hexadecimal digits"));
            }
            _ => {
                let bits: usize = kind[1..].parse().expect("u8 to u64");
                put(bytes, at, &number(value).to_le_bytes()[..bits / 8]);
            }
        };
        let (kind, what) = place.split_once(' ').unwrap_or((place, ""));
        let counted = || {
            let (table, index) = what.rsplit_once(' ').expect("a table and an index");
            (table, number(index) as usize)
        };
        match kind {
            "superblock" => self.edited(name, error, Part::Superblock, change),
            "inode" => self.edited(name, error, Part::Inode(what), change),
            "listing" => self.edited(name, error, Part::Listing(what), change),
            "list" => self.edited(name, error, Part::List(what), change),
            "metadata" => {
                let (table, index) = counted();
                self.edited(name, error, Part::Metadata(table, index), change);
            }
            "table" => {
                let (table, index) = counted();
                let mut records = 0;
                self.add(name, error, &mut |part, bytes| {
                    if part == Part::Table(table) {
                        if records == index {
                            change(bytes);
                        }
                        records += 1;
                    }
                });
            }
            _ => panic!("{line}: no such part"),
        }
    }

    /// Images that claim fewer bytes than there are.
    fn shorter(&mut self) {
        for (name, less) in [("cut in the xattr ids", 8), ("cut in the tables", 3000)] {
            self.edited(name, ANY, Part::Superblock, |bytes| {
                let used = u64::from_le_bytes(bytes[40..48].try_into().expect("8 bytes"));
                put(bytes, 40, &(used - less).to_le_bytes());
            });
        }
        self.edited("flags that nobody knows", READ, Part::Superblock, |bytes| {
            bytes[25] |= 0xf0;
        });
        let name = "an export table of nonsense that ls and copy need not";
        self.edited(name, READ, Part::Table("exports"), |bytes| bytes.fill(0xff));
    }

    /// Directories with another's listing, and with an index that is wrong.
    fn directories(&mut self) {
        let error = "directory's listing is also that of another directory";
        let (block, offset) = self.sound.listings["sub"];
        let listed = |bytes: &mut Vec<u8>, block: u32, offset: u16, len: u32| {
            put(bytes, 24, &block.to_le_bytes());
            put(bytes, 34, &offset.to_le_bytes());
            put(bytes, 20, &len.to_le_bytes());
        };
        self.edited(
            "two directories with one listing",
            error,
            Part::Inode("zone"),
            |bytes| {
                listed(bytes, block, offset, 66);
            },
        );
        let mut big = Vec::new();
        self.sample.build(&mut |part, bytes| {
            if part == Part::Inode("big") {
                big.clone_from(bytes);
            }
        });
        let word = |at: usize| u32::from_le_bytes(big[at..at + 4].try_into().expect("4 bytes"));
        // Its listing is the first, and its index the first place behind a metadata block.
        let (len, skipped, block) = (word(20), word(40), word(44));
        self.edited(
            "a listing that is the end of another",
            error,
            Part::Inode("zone"),
            |bytes| {
                listed(bytes, block, skipped as u16 % 8192, len - skipped);
            },
        );
        let error = "directory index leads to another name";
        self.edited(
            "an index that leads to another name",
            error,
            Part::Inode("big"),
            |bytes| {
                bytes[53] += 1;
            },
        );
        let error = "directory index is impossible";
        self.edited(
            "an index that leads beyond the listing",
            error,
            Part::Inode("big"),
            |bytes| {
                put(bytes, 40, &len.to_le_bytes());
            },
        );
    }

    fn names(&mut self) {
        let (invalid, long) = (
            "directory entry's name is not valid",
            "directory entry's name is too long",
        );
        for (name, new, error) in [
            ("a name of one dot", &b"."[..], invalid),
            ("a name of two dots", b"..", invalid),
            ("a name with a slash", b"a/b", invalid),
            ("a name with a NUL", b"a\0b", invalid),
            ("a name of 256 bytes", &[b'n'; 256], invalid),
            ("a name of 257 bytes", &[b'n'; 257], long),
        ] {
            self.add(name, error, &mut |part, bytes| match part {
                Part::Listing("link-b") => {
                    bytes.truncate(12 + 8);
                    put(bytes, 18, &(new.len() as u16 - 1).to_le_bytes());
                    bytes.extend(new);
                }
                // The listing's size follows.
                Part::Inode("link-b") => put(bytes, 24, &(20 + new.len() as u16 + 3).to_le_bytes()),
                _ => {}
            });
        }
        for (name, from, to) in [
            ("a name twice", "hard", "hole"),
            ("names out of order", "wire", "fire"),
            (
                "a symbolic link and then a directory of its name",
                "link-b",
                "link-a",
            ),
        ] {
            let error = "directory entries are not in order";
            self.edited(name, error, Part::Listing(""), |bytes| {
                let at = entry(bytes, from) + 8;
                put(bytes, at, to.as_bytes());
            });
        }
    }

    /// Entries that lead to the wrong inode, or have another's type.
    fn entries(&mut self) {
        let inodes = &self.sound.inodes;
        let (root, sub, loot) = (inodes[""], inodes["sub"], inodes["link-b/loot"]);
        let twice = "a directory is in two places";
        let differs = "a file's type differs from its directory entry";
        let unknown = "directory entry's type is unknown";
        let outside = "reference lies beyond its table";
        let outside_block = "reference lies beyond its metadata block";
        for (name, entry_name, kind, reference, error) in [
            ("a directory in itself", "file", 1u16, root, twice),
            ("a directory in two places", "loot", 1, sub, twice),
            ("a directory said to be a file", "file", 2, sub, differs),
            ("a file said to be a directory", "loot", 1, loot, differs),
            ("an entry of no kind", "loot", 8, sub, unknown),
            ("an entry of kind 0", "loot", 0, sub, unknown),
            (
                "an entry beyond the inode table",
                "loot",
                2,
                0x7fff_ffff_0000,
                outside,
            ),
            (
                "an entry beyond its block",
                "loot",
                2,
                root | 0xffff,
                outside_block,
            ),
        ] {
            let path = if entry_name == "file" {
                "sub/deep"
            } else {
                "link-b"
            };
            self.edited(name, error, Part::Listing(path), |bytes| {
                // The only run, or the last: its header is that of the entry.
                put(bytes, 4, &((reference >> 16) as u32).to_le_bytes());
                let at = entry(bytes, entry_name);
                put(bytes, at, &(reference as u16).to_le_bytes());
                put(bytes, at + 4, &kind.to_le_bytes());
            });
        }
    }

    /// Blocks that are too short, or decode to too much.
    fn blocks(&mut self, codec: u16, encode: Encode) {
        let name = "a metadata block that is not full in the midst of a table";
        self.edited(name, ANY, Part::Metadata("listings", 0), |bytes| {
            *bytes = [&0x8064u16.to_le_bytes()[..], &[0; 100]].concat();
        });
        // LZ4 does not say what is wrong with a block.
        let more = if codec == 5 { ANY } else { "more than it may" };
        let Some(bomb) = encode(&vec![0; 1 << 19]).filter(|bomb| bomb.len() <= 4096) else {
            return;
        };
        for (name, part) in [
            ("a block that holds 512 KiB", Part::Block("blocks", 1)),
            ("a fragment that holds 512 KiB", Part::Fragment(0)),
        ] {
            self.edited(name, more, part, |bytes| bytes.clone_from(&bomb));
        }
        let name = "a metadata block that holds 512 KiB";
        self.edited(name, more, Part::Metadata("inodes", 1), |bytes| {
            *bytes = [&(bomb.len() as u16).to_le_bytes()[..], &bomb].concat();
        });
    }

    fn options(&mut self, codec: u16) {
        let missing = "compressor's options are not stored";
        for (name, options, error) in [
            ("options that are encoded", &[4, 0, 1, 0, 0, 0][..], missing),
            (
                "options without bytes",
                &[0, 0x80],
                "compressor's options are too short",
            ),
            ("options of 4 KiB", &[0, 0x90], missing),
        ] {
            self.edited(name, error, Part::Options, |bytes| bytes.extend(options));
        }
        if codec == 5 {
            // Version, the flag that says so, and an acceleration.
            let options = [12, 0x80, 1, 0, 0, 0, 2, 0, 0, 0, 9, 0, 0, 0];
            self.edited("lz4 options of 12 bytes", READ, Part::Options, |bytes| {
                bytes.extend(options);
            });
        }
    }
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
