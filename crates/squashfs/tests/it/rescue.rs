//! Damaged images: a file whose stored parts are all intact is read as before.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use squashfs::Squashfs;
use testkit::{Part, RawKind, RawNode, RawSquashfs, Rng, cases, sample_tree};
use tree::{FileKind, FileSystem, Ino, Limits, Metadata, Result, Xattr};

use crate::sources::text;
use crate::vectors::{CODECS, encoder};

/// More than one metadata block of them.
const OWNERS: u16 = 5000;
/// Bytes of a metadata block's content, of an owner and of the description of a fragment.
const METADATA_BYTES: usize = 8192;
const OWNER_BYTES: usize = 4;
const FRAGMENT_BYTES: usize = 16;

/// A file as it is read: what is equal if it was not hit.
type Read = (Metadata, Vec<Xattr>, Vec<u8>);

/// Reads all that can be read, by path.
fn read_all(fs: &dyn FileSystem) -> BTreeMap<String, Read> {
    let mut found = BTreeMap::new();
    read_dir(fs, "", fs.root(), &mut Vec::new(), &mut found);
    found
}

fn read_dir(
    fs: &dyn FileSystem,
    path: &str,
    dir: Ino,
    above: &mut Vec<Ino>,
    found: &mut BTreeMap<String, Read>,
) {
    if let Ok(read) = read_file(fs, dir) {
        found.insert(path.to_owned(), read);
    }
    // A damaged entry may lead to a directory above it.
    if above.contains(&dir) || above.len() > 10 {
        return;
    }
    let Ok(entries) = fs.read_dir(dir) else {
        return;
    };
    above.push(dir);
    for entry in entries {
        let name = String::from_utf8_lossy(&entry.name);
        let path = format!("{path}/{name}");
        if entry.kind == FileKind::Directory {
            read_dir(fs, &path, entry.ino, above, found);
        } else if let Ok(read) = read_file(fs, entry.ino) {
            found.insert(path, read);
        }
    }
    above.pop();
}

fn read_file(fs: &dyn FileSystem, ino: Ino) -> Result<Read> {
    let metadata = fs.metadata(ino)?;
    let xattrs = fs.xattrs(ino)?;
    let content = match metadata.kind {
        FileKind::Symlink => fs.read_link(ino)?,
        // A damaged size may be of many holes.
        FileKind::Regular => {
            let mut content = vec![0; metadata.size.min(100_000) as usize];
            let len = fs.read_at(ino, 0, &mut content)?;
            content.truncate(len);
            content
        }
        _ => Vec::new(),
    };
    Ok((metadata, xattrs, content))
}

/// The sample, and directories of files with ends in fragments, so that every table has several
/// metadata blocks.
fn enlarged<'a>(codec: u16, encode: &'a dyn Fn(&[u8]) -> Option<Vec<u8>>) -> RawSquashfs<'a> {
    let mut tree = sample_tree(codec, encode);
    tree.ids = (0..OWNERS.into()).map(|n| 1000 + 7 * n).collect();
    let RawKind::Directory(nodes) = &mut tree.root.kind else {
        panic!("the root is a directory");
    };
    for dir in 0..12 {
        let files = (0..50).map(|n| RawNode {
            name: format!("{n:02} of {dir}"),
            kind: RawKind::File(text(100 * dir + n, 2100 + 40 * n as usize), true),
            extended: n % 5 == 0,
            xattrs: (n % 5 == 0).then_some(n as u32 % 3),
        });
        nodes.push(RawNode {
            name: format!("zz{dir:02}"),
            kind: RawKind::Directory(files.collect()),
            extended: false,
            xattrs: None,
        });
    }
    tree
}

/// Where the parts of an image are stored.
#[derive(Default)]
struct Layout {
    bytes: Vec<u8>,
    /// By path, with a `/` in front.
    inodes: BTreeMap<String, (u64, Vec<u8>)>,
    listings: BTreeMap<String, ((u32, u16), usize)>,
    blocks: BTreeMap<String, Vec<Range<u64>>>,
    fragments: Vec<Range<u64>>,
    /// Where each set's names and values end in their stream.
    sets: Vec<usize>,
}

fn rooted(path: &str) -> String {
    if path.is_empty() {
        String::new()
    } else {
        format!("/{path}")
    }
}

impl Layout {
    fn of(tree: &RawSquashfs<'_>) -> Layout {
        let layout = RefCell::new(Layout::default());
        let mut at = 96;
        let image = tree.build(&mut |part, bytes| {
            let mut layout = layout.borrow_mut();
            let mut place = || {
                let from = at;
                at += bytes.len() as u64;
                from..at
            };
            match part {
                Part::Block(path, _) => {
                    let place = place();
                    layout.blocks.entry(rooted(path)).or_default().push(place);
                }
                Part::Fragment(_) => {
                    let place = place();
                    layout.fragments.push(place);
                }
                Part::Inode(path) => {
                    let owner = (layout.inodes.len() * 13) as u16 % OWNERS;
                    bytes[4..6].copy_from_slice(&owner.to_le_bytes());
                    layout.inodes.insert(rooted(path), (0, bytes.clone()));
                }
                Part::Listing(path) => {
                    let place = ((0, 0), bytes.len());
                    layout.listings.insert(rooted(path), place);
                }
                Part::Table("xattrs") => {
                    let before = layout.sets.last().copied().unwrap_or(0);
                    layout.sets.push(before + bytes.len());
                }
                _ => {}
            }
        });
        let mut layout = layout.into_inner();
        for (path, reference) in image.inodes {
            layout.inodes.get_mut(&rooted(&path)).unwrap().0 = reference;
        }
        for (path, place) in image.listings {
            layout.listings.get_mut(&rooted(&path)).unwrap().0 = place;
        }
        layout.bytes = image.bytes;
        layout
    }

    /// A number in the superblock.
    fn at(&self, field: usize) -> u64 {
        self.number(field as u64)
    }

    fn number(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.bytes[at as usize..][..8].try_into().unwrap())
    }

    /// The stored metadata blocks of `len` bytes that start at `offset` of the content of the block
    /// at `at`.
    fn metadata(&self, mut at: u64, offset: usize, len: usize) -> Vec<Range<u64>> {
        let mut places = Vec::new();
        let mut begin = 0;
        while begin < offset + len {
            let header = u16::from_le_bytes([self.bytes[at as usize], self.bytes[at as usize + 1]]);
            let next = at + 2 + u64::from(header & 0x7fff);
            begin += METADATA_BYTES;
            if begin > offset {
                places.push(at..next);
            }
            at = next;
        }
        places
    }

    /// The list of a table of `count` records, and the metadata block of one of them.
    fn table(&self, list: u64, count: usize, bytes: usize, index: usize) -> Vec<Range<u64>> {
        let blocks = (count * bytes).div_ceil(METADATA_BYTES) as u64;
        let block = (index * bytes / METADATA_BYTES) as u64;
        let at = self.number(list + 8 * block);
        let mut places = self.metadata(at, 0, 1);
        places.push(list..list + 8 * blocks);
        places
    }

    /// Everything stored that reading a file needs, beside the superblock.
    fn needed(&self, path: &str) -> Vec<Range<u64>> {
        let (inode_table, directory_table) = (self.at(64), self.at(72));
        let mut places = Vec::new();
        // The directories above it, and itself.
        let ends = path.match_indices('/').map(|(at, _)| at);
        for end in ends.chain([path.len()]) {
            let (reference, inode) = &self.inodes[&path[..end]];
            let (block, offset) = (reference >> 16, *reference as u16);
            places.extend(self.metadata(inode_table + block, offset.into(), inode.len()));
            if end < path.len() {
                let ((block, offset), len) = self.listings[&path[..end]];
                let at = directory_table + u64::from(block);
                places.extend(self.metadata(at, offset.into(), len));
            }
        }
        let (_, inode) = &self.inodes[path];
        let owner = u16::from_le_bytes([inode[4], inode[5]]);
        for owner in [owner, 0] {
            let (list, count) = (self.at(48), OWNERS.into());
            places.extend(self.table(list, count, OWNER_BYTES, owner.into()));
        }
        places.extend(self.blocks.get(path).into_iter().flatten().cloned());
        let word = |at: usize| u32::from_le_bytes(inode[at..at + 4].try_into().unwrap());
        let (fragment, xattrs) = match inode[0] {
            2 => (word(20), u32::MAX),
            8 => (u32::MAX, word(36)),
            9 => (word(44), word(52)),
            10..=14 => (u32::MAX, word(inode.len() - 4)),
            _ => (u32::MAX, u32::MAX),
        };
        if fragment != u32::MAX {
            let fragment = fragment as usize;
            let (list, count) = (self.at(80), self.fragments.len());
            places.extend(self.table(list, count, FRAGMENT_BYTES, fragment));
            places.push(self.fragments[fragment].clone());
        }
        if xattrs != u32::MAX {
            let header = self.at(56);
            let list = header + 16;
            places.push(header..list);
            places.extend(self.table(list, self.sets.len(), 16, 0));
            // A set refers to values of earlier ones.
            let len = self.sets[xattrs as usize];
            places.extend(self.metadata(self.number(header), 0, len));
        }
        places
    }
}

/// Overwrites part of an image, but not the superblock; returns what.
fn damage(rng: &mut Rng, bytes: &mut [u8], tables: u64, used: u64) -> Range<u64> {
    let from = match rng.below(3) {
        0 => 96 + rng.below(used - 96),
        _ => tables + rng.below(used - tables),
    };
    let len = [1, 1, 2, 8, 64, 512][rng.index(6)].min(used - from);
    let part = &mut bytes[from as usize..(from + len) as usize];
    match rng.below(4) {
        0 => part.fill(0),
        1 => part.fill(0xff),
        2 => part[0] ^= 1 << rng.below(8),
        _ => rng.fill(part),
    }
    from..from + len
}

#[test]
#[expect(clippy::print_stdout, reason = "a campaign prints it")]
fn every_file_that_was_not_hit_is_read() {
    let (mut read, mut hit) = (0, 0);
    for (number, (codec, settings)) in CODECS.into_iter().enumerate() {
        let encode = encoder(settings);
        let tree = enlarged(codec, &encode);
        let layout = Layout::of(&tree);
        let must = read_all(&Squashfs::open(layout.bytes.clone()).unwrap());
        assert!(must.len() > 900, "{}", must.len());
        assert!(layout.fragments.len() > 512, "two blocks describe them");
        // A hard link is the file at another path.
        let paths: Vec<_> = layout.inodes.keys().collect();
        let needed: Vec<_> = paths.iter().map(|path| layout.needed(path)).collect();
        let (tables, used) = (layout.at(64), layout.at(40));
        let mut rng = Rng::new(number as u64);
        for case in 0..cases(12) {
            let mut bytes = layout.bytes.clone();
            let damaged: Vec<_> = (0..1 + rng.below(2))
                .map(|_| damage(&mut rng, &mut bytes, tables, used))
                .collect();
            let limits = Limits::default();
            let fs = Squashfs::open_at(bytes, 0, &limits).unwrap();
            let is = read_all(&fs);
            for (path, needed) in paths.iter().zip(&needed) {
                let is_hit = (needed.iter()).any(|part| {
                    let overlaps = |hit: &Range<u64>| hit.start < part.end && part.start < hit.end;
                    damaged.iter().any(overlaps)
                });
                hit += u64::from(is_hit);
                read += u64::from(!is_hit);
                assert!(
                    is_hit || is.get(*path) == must.get(*path),
                    "{settings:?}, case {case}, {damaged:?}: {path}"
                );
            }
        }
    }
    println!("campaign: {read} files read, {hit} hit");
    assert!(read > hit / 3 && hit > read / 30, "{read} read, {hit} hit");
}
