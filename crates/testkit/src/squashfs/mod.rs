//! SquashFS images, valid or not, as the test requires.
//!
//! [`RawSquashfs`] lays out a tree according to the format's description, without code of the
//! library under test. Every record passes through a closure before it is stored, which can change
//! it in any way. Sizes and references that depend on it are those of the changed image, and
//! metadata is encoded after the change. [`squashfs_vectors`] are the named cases.

mod sample;
mod vectors;

use std::collections::BTreeMap;

pub use sample::{sample_tree, small_tree};
pub use vectors::{Vector, squashfs_vectors};

/// Encodes a block; `None` stores it uncompressed.
pub type Encode<'a> = &'a dyn Fn(&[u8]) -> Option<Vec<u8>>;

/// The content size of a full metadata block.
const METADATA_BYTES: usize = 8192;
/// The 32-bit value for "none".
const NONE: u32 = u32::MAX;

/// A file of the tree, with its name in its directory.
#[derive(Clone, Debug)]
pub struct RawNode {
    /// The name.
    pub name: String,
    /// The type of file.
    pub kind: RawKind,
    /// Whether the inode has the extended form.
    pub extended: bool,
    /// Index of its attribute set; only in the extended form.
    pub xattrs: Option<u32>,
}

/// A type of file, with its content.
#[derive(Clone, Debug)]
pub enum RawKind {
    /// A directory, with entries sorted by name.
    Directory(Vec<RawNode>),
    /// A regular file, and whether its tail goes to a fragment.
    File(Vec<u8>, bool),
    /// A symbolic link.
    Symlink(String),
    /// A device: whether it is a block device, and its packed number.
    Device(bool, u32),
    /// A fifo.
    Fifo,
    /// A socket.
    Socket,
    /// A hard link to the file at this path, which must come before it.
    Link(String),
}

/// An attribute in a set.
#[derive(Clone, Debug)]
pub struct RawXattr {
    /// 0 user, 1 trusted, 2 security.
    pub namespace: u16,
    /// The name without its namespace.
    pub name: String,
    /// The value.
    pub value: Vec<u8>,
    /// Whether the set only refers to the value, which is stored in an earlier set.
    pub elsewhere: bool,
}

/// The part of an image that a closure can change. Paths have no leading `/`; the root's is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// The 96 bytes of the superblock, which comes last.
    Superblock,
    /// The codec's options with their header; empty if there are none.
    Options,
    /// A stored block of a file: path and index.
    Block(&'a str, usize),
    /// A stored fragment block, by index.
    Fragment(usize),
    /// The inode of a file, with everything that follows it.
    Inode(&'a str),
    /// The listing of a directory.
    Listing(&'a str),
    /// All records of a table: `fragments`, `exports`, `ids`, `xattrs` (names and values), `xattr
    /// ids`.
    Table(&'static str),
    /// A stored metadata block, header included: its table (also `inodes` or `listings`) and its
    /// index.
    Metadata(&'static str, usize),
    /// The list of block offsets of a table; for `xattr ids`, including its header.
    List(&'static str),
}

/// Changes a part of an image.
pub type Edit<'a> = &'a mut dyn FnMut(Part<'_>, &mut Vec<u8>);

/// How to lay out an image.
#[derive(Clone)]
pub struct RawSquashfs<'a> {
    /// The codec ID.
    pub codec: u16,
    /// Encodes blocks and metadata.
    pub encode: Encode<'a>,
    /// Log2 of the block size.
    pub block_log: u16,
    /// The tree.
    pub root: RawNode,
    /// User and group IDs; all files belong to the first.
    pub ids: Vec<u32>,
    /// Attribute sets.
    pub xattrs: Vec<Vec<RawXattr>>,
}

/// An image, and the positions of its inodes and listings.
pub struct RawImage {
    /// All of it.
    pub bytes: Vec<u8>,
    /// Inode references by path.
    pub inodes: BTreeMap<String, u64>,
    /// Block and offset of listings by path.
    pub listings: BTreeMap<String, (u32, u16)>,
}

/// A table in metadata blocks.
struct Stream<'a> {
    name: &'static str,
    encode: Encode<'a>,
    stored: Vec<u8>,
    open: Vec<u8>,
    blocks: Vec<u64>,
}

impl<'a> Stream<'a> {
    fn new(name: &'static str, encode: Encode<'a>) -> Self {
        Stream {
            name,
            encode,
            stored: Vec::new(),
            open: Vec::new(),
            blocks: Vec::new(),
        }
    }

    /// The position of the next byte: the offset of its block and the offset in the block's
    /// content.
    fn place(&self) -> (u64, u16) {
        (self.stored.len() as u64, self.open.len() as u16)
    }

    fn reference(&self) -> u64 {
        let (block, offset) = self.place();
        block << 16 | u64::from(offset)
    }

    fn write(&mut self, bytes: &[u8], edit: Edit) {
        for &byte in bytes {
            self.open.push(byte);
            if self.open.len() == METADATA_BYTES {
                self.store(edit);
            }
        }
    }

    fn store(&mut self, edit: Edit) {
        let mut block = match (self.encode)(&self.open) {
            Some(encoded) => [&(encoded.len() as u16).to_le_bytes()[..], &encoded].concat(),
            None => {
                let header = self.open.len() as u16 | 0x8000;
                [&header.to_le_bytes()[..], &self.open].concat()
            }
        };
        edit(Part::Metadata(self.name, self.blocks.len()), &mut block);
        self.blocks.push(self.stored.len() as u64);
        self.stored.extend(block);
        self.open.clear();
    }

    /// Appends the table to the image; returns where it begins.
    fn finish(mut self, image: &mut Vec<u8>, edit: Edit) -> (u64, Vec<u64>) {
        if !self.open.is_empty() {
            self.store(edit);
        }
        let begin = image.len() as u64;
        image.extend(&self.stored);
        (begin, self.blocks.iter().map(|at| begin + at).collect())
    }
}

/// Where the data of a file is.
#[derive(Clone, Default)]
struct Placed {
    start: u64,
    words: Vec<u32>,
    sparse: u64,
    tail: Option<(u32, u32)>,
}

struct Layout<'a, 'e> {
    image: &'a RawSquashfs<'a>,
    edit: Edit<'e>,
    bytes: Vec<u8>,
    fragments: Vec<(u64, u32)>,
    open_fragment: Vec<u8>,
    placed: BTreeMap<String, Placed>,
    numbers: BTreeMap<String, u32>,
    /// The number of hard links beyond the first name of each file.
    links: BTreeMap<String, u32>,
    inodes: Stream<'a>,
    listings: Stream<'a>,
    inode_places: BTreeMap<String, u64>,
    listing_places: BTreeMap<String, (u32, u16)>,
}

impl RawSquashfs<'_> {
    /// Lays out the image. `edit` is called for every part before it is stored.
    pub fn build(&self, edit: Edit) -> RawImage {
        let mut layout = Layout {
            image: self,
            edit,
            bytes: vec![0; 96],
            fragments: Vec::new(),
            open_fragment: Vec::new(),
            placed: BTreeMap::new(),
            numbers: BTreeMap::new(),
            links: BTreeMap::new(),
            inodes: Stream::new("inodes", self.encode),
            listings: Stream::new("listings", self.encode),
            inode_places: BTreeMap::new(),
            listing_places: BTreeMap::new(),
        };
        let mut options = Vec::new();
        (layout.edit)(Part::Options, &mut options);
        layout.bytes.extend(&options);
        layout.number("", &self.root);
        layout.data("", &self.root);
        layout.end_fragment();
        let count = layout.numbers.values().max().copied().unwrap_or(0);
        layout.node("", &self.root, count + 1);
        layout.finish(count, !options.is_empty())
    }

    /// The unchanged image.
    pub fn sound(&self) -> RawImage {
        self.build(&mut |_, _| ())
    }
}

fn join(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}/{name}"),
    }
}

impl Layout<'_, '_> {
    /// Numbers every file, directories before their contents.
    fn number(&mut self, path: &str, node: &RawNode) {
        if let RawKind::Link(target) = &node.kind {
            *self.links.entry(target.clone()).or_default() += 1;
            return;
        }
        let number = self.numbers.len() as u32 + 1;
        self.numbers.insert(path.to_owned(), number);
        if let RawKind::Directory(nodes) = &node.kind {
            for node in nodes {
                self.number(&join(path, &node.name), node);
            }
        }
    }

    fn store(&mut self, part: Part, content: &[u8]) -> (u64, u32) {
        let (mut stored, plain) = match (self.image.encode)(content) {
            Some(encoded) => (encoded, 0),
            None => (content.to_vec(), 1 << 24),
        };
        (self.edit)(part, &mut stored);
        let at = self.bytes.len() as u64;
        self.bytes.extend(&stored);
        (at, stored.len() as u32 | plain)
    }

    fn end_fragment(&mut self) {
        if !self.open_fragment.is_empty() {
            let content = std::mem::take(&mut self.open_fragment);
            let placed = self.store(Part::Fragment(self.fragments.len()), &content);
            self.fragments.push(placed);
        }
    }

    fn data(&mut self, path: &str, node: &RawNode) {
        let block_bytes = 1 << self.image.block_log;
        match &node.kind {
            RawKind::Directory(nodes) => {
                for node in nodes {
                    self.data(&join(path, &node.name), node);
                }
            }
            RawKind::File(content, with_tail) => {
                let mut placed = Placed {
                    start: self.bytes.len() as u64,
                    ..Placed::default()
                };
                for (n, block) in content.chunks(block_bytes).enumerate() {
                    if *with_tail && block.len() < block_bytes {
                        if self.open_fragment.len() + block.len() > block_bytes {
                            self.end_fragment();
                        }
                        placed.tail =
                            Some((self.fragments.len() as u32, self.open_fragment.len() as u32));
                        self.open_fragment.extend(block);
                    } else if block.iter().all(|&byte| byte == 0) {
                        placed.words.push(0);
                        placed.sparse += block.len() as u64;
                    } else {
                        let (_, word) = self.store(Part::Block(path, n), block);
                        placed.words.push(word);
                    }
                }
                self.placed.insert(path.to_owned(), placed);
            }
            _ => {}
        }
    }

    /// Writes the inode of a file, after those of its contents. The extended type is the basic type
    /// plus 7.
    fn node(&mut self, path: &str, node: &RawNode, parent: u32) {
        if matches!(node.kind, RawKind::Link(_)) {
            return; // the listing of its directory is all of it
        }
        let number = self.numbers[path];
        let nlink = 1 + self.links.get(path).copied().unwrap_or(0);
        let xattrs = node.xattrs.unwrap_or(NONE);
        let mut body = Vec::new();
        let basic = match &node.kind {
            RawKind::Link(_) => 0,
            RawKind::Directory(nodes) => {
                for child in nodes {
                    self.node(&join(path, &child.name), child, number);
                }
                let (listing, index) = self.listing(path, nodes);
                let (block, offset) = self.listing_places[path];
                let is_dir = |node: &&RawNode| matches!(node.kind, RawKind::Directory(_));
                let nlink = 2 + nodes.iter().filter(is_dir).count() as u32;
                if node.extended {
                    body.extend(nlink.to_le_bytes());
                    body.extend((listing as u32 + 3).to_le_bytes());
                    body.extend(block.to_le_bytes());
                    body.extend(parent.to_le_bytes());
                    body.extend((index.len() as u16).to_le_bytes());
                    body.extend(offset.to_le_bytes());
                    body.extend(xattrs.to_le_bytes());
                    for (at, block, name) in index {
                        body.extend(at.to_le_bytes());
                        body.extend(block.to_le_bytes());
                        body.extend((name.len() as u32 - 1).to_le_bytes());
                        body.extend(name.as_bytes());
                    }
                } else {
                    body.extend(block.to_le_bytes());
                    body.extend(nlink.to_le_bytes());
                    body.extend((listing as u16 + 3).to_le_bytes());
                    body.extend(offset.to_le_bytes());
                    body.extend(parent.to_le_bytes());
                }
                1
            }
            RawKind::File(content, _) => {
                let placed = self.placed[path].clone();
                let (fragment, offset) = placed.tail.unwrap_or((NONE, 0));
                if node.extended {
                    body.extend(placed.start.to_le_bytes());
                    body.extend((content.len() as u64).to_le_bytes());
                    body.extend(placed.sparse.to_le_bytes());
                    body.extend(nlink.to_le_bytes());
                    body.extend(fragment.to_le_bytes());
                    body.extend(offset.to_le_bytes());
                    body.extend(xattrs.to_le_bytes());
                } else {
                    body.extend((placed.start as u32).to_le_bytes());
                    body.extend(fragment.to_le_bytes());
                    body.extend(offset.to_le_bytes());
                    body.extend((content.len() as u32).to_le_bytes());
                }
                for word in &placed.words {
                    body.extend(word.to_le_bytes());
                }
                2
            }
            RawKind::Symlink(target) => {
                body.extend(nlink.to_le_bytes());
                body.extend((target.len() as u32).to_le_bytes());
                body.extend(target.as_bytes());
                3
            }
            RawKind::Device(is_block, rdev) => {
                body.extend(nlink.to_le_bytes());
                body.extend(rdev.to_le_bytes());
                if *is_block { 4 } else { 5 }
            }
            RawKind::Fifo | RawKind::Socket => {
                body.extend(nlink.to_le_bytes());
                if matches!(node.kind, RawKind::Fifo) {
                    6
                } else {
                    7
                }
            }
        };
        if node.extended && basic > 2 {
            body.extend(xattrs.to_le_bytes());
        }
        let inode_type: u16 = if node.extended { basic + 7 } else { basic };
        let mode: u16 = if basic == 1 { 0o755 } else { 0o644 };
        let mut inode = Vec::new();
        inode.extend(inode_type.to_le_bytes());
        inode.extend(mode.to_le_bytes());
        inode.extend([0; 4]); // the first owner and group
        inode.extend((1_700_000_000 + number).to_le_bytes());
        inode.extend(number.to_le_bytes());
        inode.extend(body);
        (self.edit)(Part::Inode(path), &mut inode);
        self.inode_places
            .insert(path.to_owned(), self.inodes.reference());
        self.inodes.write(&inode, self.edit);
    }

    /// Writes a listing. Returns its length and, for each further metadata block, the offset of the
    /// first run there, that block, and the run's first name.
    fn listing(&mut self, path: &str, nodes: &[RawNode]) -> (usize, Vec<(u32, u32, String)>) {
        let mut bytes = Vec::new();
        // Where each run begins, its first name, and its block, first number and count so far.
        let mut runs: Vec<(usize, String, u64, u32, u32)> = Vec::new();
        for node in nodes {
            let own = join(path, &node.name);
            let target = match &node.kind {
                RawKind::Link(target) => target,
                _ => &own,
            };
            let reference = self.inode_places[target];
            let number = self.numbers[target];
            let (block, offset) = (reference >> 16, reference as u16);
            let fits = runs.last().is_some_and(|&(_, _, run, first, count)| {
                let delta = i64::from(number) - i64::from(first);
                run == block && count < 256 && i16::try_from(delta).is_ok()
            });
            if !fits {
                runs.push((bytes.len(), node.name.clone(), block, number, 0));
                bytes.extend([0; 4]);
                bytes.extend((block as u32).to_le_bytes());
                bytes.extend(number.to_le_bytes());
            }
            let (at, _, _, first, count) = runs.last_mut().expect("a run is open");
            bytes[*at..*at + 4].copy_from_slice(&count.to_le_bytes());
            *count += 1;
            let entry_type: u16 = match &find(&self.image.root, target).kind {
                RawKind::Directory(_) => 1,
                RawKind::File(..) => 2,
                RawKind::Symlink(_) => 3,
                RawKind::Device(true, _) => 4,
                RawKind::Device(false, _) => 5,
                RawKind::Fifo => 6,
                RawKind::Socket => 7,
                RawKind::Link(_) => panic!("a link to a link"),
            };
            bytes.extend(offset.to_le_bytes());
            bytes.extend((number.wrapping_sub(*first) as u16).to_le_bytes());
            bytes.extend(entry_type.to_le_bytes());
            bytes.extend((node.name.len() as u16 - 1).to_le_bytes());
            bytes.extend(node.name.as_bytes());
        }
        (self.edit)(Part::Listing(path), &mut bytes);
        let (begin, offset) = self.listings.place();
        self.listing_places
            .insert(path.to_owned(), (begin as u32, offset));
        let mut index = Vec::new();
        let (mut block, mut done) = (begin, 0);
        for (at, name, ..) in runs {
            let at = at.min(bytes.len());
            self.listings.write(&bytes[done..at], self.edit);
            done = at;
            let (here, _) = self.listings.place();
            if here != block {
                block = here;
                index.push((at as u32, here as u32, name));
            }
        }
        self.listings.write(&bytes[done..], self.edit);
        (bytes.len(), index)
    }

    /// Writes a table and its list; returns where its first block and its list begin.
    fn table(&mut self, name: &'static str, mut records: Vec<u8>, header: &[u8]) -> (u64, u64) {
        (self.edit)(Part::Table(name), &mut records);
        let mut stream = Stream::new(name, self.image.encode);
        stream.write(&records, self.edit);
        let (begin, blocks) = stream.finish(&mut self.bytes, self.edit);
        let mut list = header.to_vec();
        for block in blocks {
            list.extend(block.to_le_bytes());
        }
        (self.edit)(Part::List(name), &mut list);
        let at = self.bytes.len() as u64;
        self.bytes.extend(list);
        (begin, at)
    }

    fn finish(mut self, count: u32, with_options: bool) -> RawImage {
        let empty: Encode = &|_| None;
        let inodes = std::mem::replace(&mut self.inodes, Stream::new("inodes", empty));
        let (inode_table, _) = inodes.finish(&mut self.bytes, self.edit);
        let listings = std::mem::replace(&mut self.listings, Stream::new("listings", empty));
        let (directory_table, _) = listings.finish(&mut self.bytes, self.edit);
        let mut fragment_table = u64::MAX;
        if !self.fragments.is_empty() {
            let mut records = Vec::new();
            for (at, word) in &self.fragments {
                records.extend(at.to_le_bytes());
                records.extend(word.to_le_bytes());
                records.extend([0; 4]);
            }
            fragment_table = self.table("fragments", records, &[]).1;
        }
        let mut exports = vec![0; 8 * count as usize];
        for (path, number) in &self.numbers {
            let at = 8 * (*number as usize - 1);
            exports[at..at + 8].copy_from_slice(&self.inode_places[path].to_le_bytes());
        }
        let (_, export_table) = self.table("exports", exports, &[]);
        let ids = (self.image.ids.iter())
            .flat_map(|id| id.to_le_bytes())
            .collect();
        let (_, id_table) = self.table("ids", ids, &[]);
        let xattr_table = self.xattrs();

        let bytes_used = self.bytes.len() as u64;
        let mut superblock = Vec::new();
        let block_log = self.image.block_log;
        let flags = 0x80 | if with_options { 0x400 } else { 0 };
        for word in [
            0x7371_7368,
            count,
            1_700_000_000,
            1 << block_log,
            self.fragments.len() as u32,
        ] {
            superblock.extend(word.to_le_bytes());
        }
        for word in [
            self.image.codec,
            block_log,
            flags,
            self.image.ids.len() as u16,
            4,
            0,
        ] {
            superblock.extend(word.to_le_bytes());
        }
        for word in [
            self.inode_places[""],
            bytes_used,
            id_table,
            xattr_table,
            inode_table,
            directory_table,
            fragment_table,
            export_table,
        ] {
            superblock.extend(word.to_le_bytes());
        }
        (self.edit)(Part::Superblock, &mut superblock);
        self.bytes[..96].copy_from_slice(&superblock[..96]);
        self.bytes
            .resize(self.bytes.len().next_multiple_of(4096), 0);
        RawImage {
            bytes: self.bytes,
            inodes: self.inode_places,
            listings: self.listing_places,
        }
    }

    /// Writes the attributes; returns the position of their header.
    fn xattrs(&mut self) -> u64 {
        let sets = &self.image.xattrs;
        if sets.is_empty() {
            return u64::MAX;
        }
        // The references in it need block positions, so its content is generated while it is
        // written.
        let mut stream = Stream::new("xattrs", self.image.encode);
        let mut ids = Vec::new();
        let mut values: BTreeMap<&[u8], u64> = BTreeMap::new();
        for set in sets {
            let at = stream.reference();
            let mut size = 0;
            let mut records = Vec::new();
            let mut own = Vec::new();
            for xattr in set {
                let kind = xattr.namespace | if xattr.elsewhere { 0x100 } else { 0 };
                records.extend(kind.to_le_bytes());
                records.extend((xattr.name.len() as u16).to_le_bytes());
                records.extend(xattr.name.as_bytes());
                if xattr.elsewhere {
                    records.extend(8u32.to_le_bytes());
                    records.extend(values[&xattr.value[..]].to_le_bytes());
                } else {
                    own.push((&xattr.value[..], records.len()));
                    records.extend((xattr.value.len() as u32).to_le_bytes());
                    records.extend(&xattr.value);
                }
                let prefix = ["user.", "trusted.", "security."][usize::from(xattr.namespace)];
                size += prefix.len() + xattr.name.len() + 1 + xattr.value.len();
            }
            (self.edit)(Part::Table("xattrs"), &mut records);
            let mut done = 0;
            for (value, place) in own {
                let place = place.min(records.len());
                stream.write(&records[done..place], self.edit);
                done = place;
                values.entry(value).or_insert(stream.reference());
            }
            stream.write(&records[done..], self.edit);
            ids.extend(at.to_le_bytes());
            ids.extend((set.len() as u32).to_le_bytes());
            ids.extend((size as u32).to_le_bytes());
        }
        let (begin, _) = stream.finish(&mut self.bytes, self.edit);
        let mut header = begin.to_le_bytes().to_vec();
        header.extend((sets.len() as u32).to_le_bytes());
        header.extend([0; 4]);
        self.table("xattr ids", ids, &header).1
    }
}

fn find<'a>(root: &'a RawNode, path: &str) -> &'a RawNode {
    path.split('/').fold(root, |node, name| match &node.kind {
        RawKind::Directory(nodes) => {
            let found = nodes.iter().find(|node| node.name == name);
            found.unwrap_or_else(|| panic!("{name} of {path} is not in the tree"))
        }
        _ => panic!("{path} goes through a file"),
    })
}
