//! Damaged images: every file of which no block was hit, in at least one copy, is read as it was.
//!
//! The damage is ours, so what was hit is known: a parser of its own finds the blocks of each file
//! in the undamaged image. They are the superblock, the tree blocks from it to the file's names,
//! inode, attributes and extents and to the checksums of its data, and the data. A name is recorded
//! three times; one of these must be left.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use btrfs::{Btrfs, Options, Profile, Subvolume};
use codec::Settings;
use testkit::{BtrfsImage, BtrfsKey, MemoryFs, Rng, SECTOR, TempDir, cases, tool};
use tree::rescue::Rescue;
use tree::{FileKind, FileSystem, HostDir, Ino, Inventory, Limits, ReadAt};

use crate::images::make;
use crate::small::small;

const ROOT_TREE: u64 = 1;
const CHUNK_TREE: u64 = 3;
const FS_TREE: u64 = 5;
const CSUM_TREE: u64 = 7;
const TOP: u64 = 256;
const INODE_ITEM: u8 = 1;
const INODE_REF: u8 = 12;
const INODE_EXTREF: u8 = 13;
const XATTR_ITEM: u8 = 24;
const DIR_ITEM: u8 = 84;
const DIR_INDEX: u8 = 96;
const EXTENT_DATA: u8 = 108;
const EXTENT_CSUM: u8 = 128;
const ROOT_ITEM: u8 = 132;
const ROOT_REF: u8 = 156;
const CHUNK_ITEM: u8 = 228;
const NODATASUM: u64 = 1;
const SUPERBLOCKS: [u64; 2] = [64 << 10, 64 << 20];

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let mut word = [0; 8];
    word[..len].copy_from_slice(&bytes[at..at + len]);
    u64::from_le_bytes(word)
}

fn key_at(bytes: &[u8], at: usize) -> BtrfsKey {
    (
        number(bytes, at, 8),
        bytes[at + 8],
        number(bytes, at + 9, 8),
    )
}

/// A logical address and a length: of a tree block, or of a sector of data. A copy of it is good as
/// a whole or not at all.
type Unit = (u64, u64);

/// A leaf: the blocks from the root to it, the keys that it is for, and its items.
struct Leaf {
    path: Vec<Unit>,
    first: BtrfsKey,
    end: BtrfsKey,
    items: Vec<(BtrfsKey, Vec<u8>)>,
}

/// What must be left of a file: all of these blocks, and for each name on its path one of its
/// records.
#[derive(Clone, Default)]
struct Needs {
    all: Vec<Unit>,
    names: Vec<Vec<Vec<Unit>>>,
}

/// A file of the undamaged image.
struct Known {
    needs: Needs,
    /// What the file needs without its directories.
    alone: Needs,
    content: Vec<u8>,
    xattrs: Vec<tree::Xattr>,
}

/// An undamaged image.
struct Sound {
    image: BtrfsImage,
    /// Start, length and the places of the copies.
    chunks: Vec<(u64, u64, Vec<u64>)>,
    trees: HashMap<u64, Vec<Leaf>>,
    files: BTreeMap<Vec<u8>, Known>,
}

const END: BtrfsKey = (u64::MAX, u8::MAX, u64::MAX);

impl Sound {
    fn of(image: BtrfsImage) -> Sound {
        let mut chunks = Vec::new();
        for item in image.items(CHUNK_TREE) {
            if item.key.1 == CHUNK_ITEM {
                let len = number(&item.data, 0, 8);
                chunks.push((item.key.2, len, image.places(item.key.2)));
            }
        }
        let mut sound = Sound {
            image,
            chunks,
            trees: HashMap::new(),
            files: BTreeMap::new(),
        };
        let roots = sound.leaves(sound.image.root(ROOT_TREE));
        for (key, data) in roots.iter().flat_map(|leaf| &leaf.items) {
            if key.1 == ROOT_ITEM {
                let leaves = sound.leaves(number(data, 176, 8));
                sound.trees.entry(key.0).or_insert(leaves);
            }
        }
        sound.trees.insert(ROOT_TREE, roots);
        let chunk_tree = sound.leaves(sound.image.root(CHUNK_TREE));
        // All of the chunk tree is needed: it is small.
        let mut all: Vec<Unit> = chunk_tree.into_iter().flat_map(|leaf| leaf.path).collect();
        all.extend(sound.leaf_of(ROOT_TREE, (FS_TREE, ROOT_ITEM, 0)));
        let needs = Needs {
            all,
            names: Vec::new(),
        };
        let tree = open(&sound.image).unwrap().subvolume(FS_TREE).unwrap();
        let mut files = BTreeMap::new();
        sound.directory(&tree, tree.root(), FS_TREE, TOP, b"", &needs, &mut files);
        sound.files = files;
        sound
    }

    /// The places of the copies of a logical address.
    fn places(&self, at: u64) -> Vec<u64> {
        let chunk = self
            .chunks
            .iter()
            .find(|(start, len, _)| (*start..start + len).contains(&at));
        let (start, _, places) = chunk.expect("it is mapped");
        places.iter().map(|place| place + (at - start)).collect()
    }

    /// The leaves below a root.
    fn leaves(&self, root: u64) -> Vec<Leaf> {
        let nodesize = self.image.superblock(148, 4) as usize;
        let mut leaves = Vec::new();
        let mut waiting = vec![(vec![root], (0, 0, 0), END)];
        while let Some((path, first, end)) = waiting.pop() {
            let at = *path.last().unwrap();
            let block = self.image.bytes(self.places(at)[0], nodesize);
            let count = number(&block, 96, 4) as usize;
            if block[100] > 0 {
                for index in (0..count).rev() {
                    let entry = 101 + 33 * index;
                    // What comes before the first key would be in the first block, too.
                    let from = if index == 0 {
                        first
                    } else {
                        key_at(&block, entry)
                    };
                    let to = if index + 1 < count {
                        key_at(&block, entry + 33)
                    } else {
                        end
                    };
                    let below = [&path[..], &[number(&block, entry + 17, 8)]].concat();
                    waiting.push((below, from, to));
                }
                continue;
            }
            let items = (0..count).map(|index| {
                let entry = 101 + 25 * index;
                let from = 101 + number(&block, entry + 17, 4) as usize;
                let len = number(&block, entry + 21, 4) as usize;
                (key_at(&block, entry), block[from..from + len].to_vec())
            });
            let items = items.collect();
            let unit = |at: &u64| (*at, nodesize as u64);
            leaves.push(Leaf {
                path: path.iter().map(unit).collect(),
                first,
                end,
                items,
            });
        }
        leaves
    }

    /// The blocks that lead to the keys from `from` to `to`.
    fn range(&self, tree: u64, from: BtrfsKey, to: BtrfsKey) -> Vec<Unit> {
        let leaves = self.trees[&tree].iter();
        let leaves = leaves.filter(|leaf| leaf.first <= to && leaf.end > from);
        leaves.flat_map(|leaf| leaf.path.clone()).collect()
    }

    fn leaf_of(&self, tree: u64, key: BtrfsKey) -> Vec<Unit> {
        self.range(tree, key, key)
    }

    fn items(&self, tree: u64, objectid: u64) -> impl Iterator<Item = &(BtrfsKey, Vec<u8>)> {
        let items = self.trees[&tree].iter().flat_map(|leaf| &leaf.items);
        items.filter(move |item| item.0.0 == objectid)
    }

    /// Adds what is in a directory. Names, targets and blocks are found here; contents come from
    /// the undamaged image.
    #[expect(clippy::too_many_arguments, reason = "it is recursive")]
    fn directory(
        &self,
        fs: &Subvolume,
        ino: Ino,
        tree: u64,
        dir: u64,
        path: &[u8],
        needs: &Needs,
        files: &mut BTreeMap<Vec<u8>, Known>,
    ) {
        let mut needs = needs.clone();
        needs.all.extend(self.leaf_of(tree, (dir, INODE_ITEM, 0)));
        for (key, data) in self.items(tree, dir).filter(|item| item.0.1 == DIR_INDEX) {
            let (target, name) = (key_at(data, 0), &data[30..]);
            let mut needs = needs.clone();
            let mut records = vec![self.leaf_of(tree, *key)];
            let by_name = self.items(tree, dir).find(|(key, data)| {
                key.1 == DIR_ITEM && data.windows(name.len()).any(|part| part == name)
            });
            records.push(self.leaf_of(tree, by_name.expect("it has a hash").0));
            let (below, number) = if target.1 == ROOT_ITEM {
                let key = (tree, ROOT_REF, target.0);
                let place = self.items(ROOT_TREE, tree).find(|item| item.0 == key);
                if place.is_none_or(|place| number(&place.1, 0, 8) != dir) {
                    // A snapshot has the name of a subvolume, and not the subvolume.
                    continue;
                }
                needs.all.extend(self.leaf_of(ROOT_TREE, key));
                needs.all.extend(self.range(
                    ROOT_TREE,
                    (target.0, ROOT_ITEM, 0),
                    (target.0, ROOT_ITEM, u64::MAX),
                ));
                records.push(Vec::new());
                (target.0, TOP)
            } else {
                let reference = self.items(tree, target.0).find(|(key, data)| {
                    let is_here = key.1 == INODE_REF && key.2 == dir
                        || key.1 == INODE_EXTREF
                            && data.windows(8).any(|part| part == dir.to_le_bytes());
                    is_here && data.windows(name.len()).any(|part| part == name)
                });
                records.push(self.leaf_of(tree, reference.expect("it has a reference").0));
                (tree, target.0)
            };
            needs.names.push(records);
            let entry = fs.lookup(ino, name).unwrap();
            let path = [path, b"/", name].concat();
            if entry.kind == FileKind::Directory {
                self.directory(fs, entry.ino, below, number, &path, &needs, files);
                continue;
            }
            let mut alone = Needs::default();
            for needs in [&mut needs, &mut alone] {
                self.file(below, number, needs);
            }
            let (content, xattrs) = (content(fs, entry.ino, entry.kind), fs.xattrs(entry.ino));
            let known = Known {
                needs,
                alone,
                content: content.unwrap(),
                xattrs: xattrs.unwrap(),
            };
            files.insert(path, known);
        }
    }

    /// Adds the blocks of an inode, its attributes, its extents, their checksums and data.
    fn file(&self, tree: u64, file: u64, needs: &mut Needs) {
        needs.all.extend(self.leaf_of(tree, (file, INODE_ITEM, 0)));
        for kind in [XATTR_ITEM, EXTENT_DATA] {
            let blocks = self.range(tree, (file, kind, 0), (file, kind, u64::MAX));
            needs.all.extend(blocks);
        }
        let mut items = self.items(tree, file);
        let inode = items.find(|item| item.0.1 == INODE_ITEM).unwrap();
        let has_sums = number(&inode.1, 64, 8) & NODATASUM == 0;
        for (_, data) in items.filter(|item| item.0.1 == EXTENT_DATA) {
            let at = if data[20] == 0 {
                0
            } else {
                number(data, 21, 8)
            };
            if at == 0 || data[20] == 2 {
                continue;
            }
            let (from, len) = if data[16] == 0 {
                (at + number(data, 37, 8), number(data, 45, 8))
            } else {
                (at, number(data, 29, 8))
            };
            let sectors = (from..from + len).step_by(SECTOR);
            needs.all.extend(sectors.map(|at| (at, SECTOR as u64)));
            if has_sums {
                needs
                    .all
                    .extend(self.leaf_of(ROOT_TREE, (CSUM_TREE, ROOT_ITEM, 0)));
                let csum = u64::MAX - 9;
                let leaves = self.trees[&CSUM_TREE].iter();
                let is_wanted = |leaf: &&Leaf| {
                    leaf.items.iter().any(|(key, sums)| {
                        let covered = key.2..key.2 + sums.len() as u64 / 4 * SECTOR as u64;
                        *key == (csum, EXTENT_CSUM, key.2)
                            && covered.start < from + len
                            && covered.end > from
                    })
                };
                needs
                    .all
                    .extend(leaves.filter(is_wanted).flat_map(|leaf| &leaf.path));
            }
        }
        needs.all.sort_unstable();
        needs.all.dedup();
    }

    /// The files that can be read if these sectors of the device are damaged.
    fn unhit(&self, hit: &HashSet<u64>) -> HashSet<&[u8]> {
        let size = self.image.size().unwrap();
        let mut superblocks = SUPERBLOCKS.iter().filter(|at| {
            **at + SECTOR as u64 <= size && self.image.bytes(**at, SECTOR) != [0; SECTOR]
        });
        if superblocks.all(|at| hit.contains(at)) {
            return HashSet::new();
        }
        let mut known: HashMap<Unit, bool> = HashMap::new();
        let mut is_left = |unit: &Unit| {
            *known.entry(*unit).or_insert_with(|| {
                let mut places = self.places(unit.0).into_iter();
                places.any(|place| {
                    let mut sectors = (place..place + unit.1).step_by(SECTOR);
                    sectors.all(|sector| !hit.contains(&sector))
                })
            })
        };
        let mut unhit = HashSet::new();
        for (path, file) in &self.files {
            let needs = &file.needs;
            let is_named = |records: &Vec<Vec<Unit>>, is_left: &mut dyn FnMut(&Unit) -> bool| {
                records
                    .iter()
                    .any(|record| record.iter().all(&mut *is_left))
            };
            if needs.all.iter().all(&mut is_left)
                && needs
                    .names
                    .iter()
                    .all(|records| is_named(records, &mut is_left))
            {
                unhit.insert(&**path);
            }
        }
        unhit
    }
}

fn open(image: &BtrfsImage) -> tree::Result<Arc<Btrfs>> {
    let source: Box<dyn ReadAt> = Box::new(image.clone());
    Ok(Arc::new(Btrfs::open(vec![source])?))
}

fn content(fs: &dyn FileSystem, ino: Ino, kind: FileKind) -> tree::Result<Vec<u8>> {
    match kind {
        FileKind::Regular => {
            let mut content = vec![0; fs.metadata(ino)?.size as usize];
            let len = fs.read_at(ino, 0, &mut content)?;
            assert_eq!(len, content.len());
            Ok(content)
        }
        FileKind::Symlink => fs.read_link(ino),
        _ => Ok(Vec::new()),
    }
}

/// The files that can be read, each with its content and attributes.
fn rescue(image: &BtrfsImage) -> HashMap<Vec<u8>, (Vec<u8>, Vec<tree::Xattr>)> {
    let mut files = HashMap::new();
    let Ok(fs) = open(image).and_then(|btrfs| btrfs.subvolume(FS_TREE)) else {
        return files;
    };
    let fs = fs.with_lost_files();
    let listed = Rescue::new(&fs, false);
    let mut waiting = vec![(Vec::new(), fs.root())];
    while let Some((path, dir)) = waiting.pop() {
        for (entry, metadata) in listed.read_dir_with_metadata(dir).unwrap_or_default() {
            let path = [&path, &b"/"[..], &entry.name].concat();
            assert_eq!(entry.kind, metadata.kind);
            if entry.kind == FileKind::Directory {
                waiting.push((path, entry.ino));
            } else if let Ok(content) = content(&fs, entry.ino, entry.kind)
                && let Ok(xattrs) = fs.xattrs(entry.ino)
            {
                files.insert(path, (content, xattrs));
            }
        }
    }
    files
}

/// A tree with enough files that its trees have many leaves.
fn many_files() -> MemoryFs {
    let mut rng = Rng::new(20);
    let mut fs = MemoryFs::new();
    let mut dirs = vec![fs.root()];
    for number in 0..12 {
        let parent = dirs[rng.index(dirs.len())];
        dirs.push(fs.add_dir(parent, format!("directory {number}")));
    }
    // Its names fill leaves.
    let many = fs.add_dir(fs.root(), "many");
    for number in 0..150 {
        fs.add_file(many, format!("{number:060}"), b"");
    }
    for number in 0..250 {
        let dir = dirs[rng.index(dirs.len())];
        let len = match rng.below(4) {
            0 => rng.index(300),
            1 => rng.index(5000),
            2 => rng.index(20_000),
            _ => rng.index(80_000),
        };
        let mut bytes = rng.bytes(len);
        if rng.chance(2) {
            bytes.iter_mut().for_each(|byte| *byte &= 3);
        }
        let file = fs.add_file(
            dir,
            format!("file {number} {}", "x".repeat(rng.index(60))),
            &bytes,
        );
        if rng.chance(5) {
            fs.add_xattr(file, b"user.name", &rng.bytes(200));
        }
        if rng.chance(8) {
            fs.link(dirs[rng.index(dirs.len())], format!("link {number}"), file);
        }
        if rng.chance(10) {
            fs.add_symlink(dir, format!("symlink {number}"), b"somewhere else");
        }
    }
    fs
}

fn images() -> Vec<Sound> {
    let dir = TempDir::new();
    let path = dir.join("image");
    let source = many_files();
    let mut images = vec![Sound::of(small())];
    for (metadata, compression, nodesize) in [
        (Profile::Single, None, 4 << 10),
        (Profile::Dup, None, 4 << 10),
        (Profile::Single, Some(Settings::Zstd { level: 3 }), 4 << 10),
        (Profile::Dup, Some(Settings::Lzo), 16 << 10),
    ] {
        let options = Options::default()
            .metadata(metadata)
            .nodesize(nodesize)
            .compression(compression);
        make(&source, &path, &options, 2);
        images.push(Sound::of(BtrfsImage::read_file(&path)));
    }
    images
}

/// Damages an image and returns the sectors that were hit.
fn damage(sound: &Sound, image: &mut BtrfsImage, rng: &mut Rng) -> HashSet<u64> {
    let sectors: Vec<u64> = sound.image.sectors().collect();
    let fsid = sound.image.bytes(SUPERBLOCKS[0] + 32, 16);
    let is_block = |at: &&u64| sound.image.bytes(**at + 32, 16) == fsid;
    let blocks: Vec<u64> = sectors.iter().filter(is_block).copied().collect();
    let mut hit = HashSet::new();
    for _ in 0..=rng.below(20) {
        let at = if rng.chance(2) {
            blocks[rng.index(blocks.len())]
        } else {
            sectors[rng.index(sectors.len())]
        };
        let run = if rng.chance(6) { 1 + rng.below(16) } else { 1 };
        for at in (at..at + run * SECTOR as u64).step_by(SECTOR) {
            if at >= image.size().unwrap() {
                break;
            }
            hit.insert(at);
            match rng.below(3) {
                0 => {
                    let place = at + rng.below(SECTOR as u64);
                    let byte = image.bytes(place, 1)[0];
                    image.patch(place, &[byte ^ 1 << rng.below(8)]);
                }
                1 => image.patch(at, &[0; SECTOR]),
                _ => image.patch(at, &rng.bytes(SECTOR)),
            }
        }
    }
    hit
}

/// The path below a file or directory in `lost+found`.
fn without_lost_directory(path: &[u8]) -> Option<&[u8]> {
    let lost = b"/lost+found/";
    let at = path.windows(lost.len()).position(|part| part == lost)?;
    let rest = &path[at + lost.len()..];
    let len = rest.iter().position(|&byte| byte == b'/');
    Some(&rest[len.unwrap_or(rest.len())..])
}

#[test]
#[expect(clippy::print_stdout, reason = "a campaign prints it")]
fn every_file_that_was_not_hit_is_read() {
    let images = images();
    let (mut hit_files, mut unhit_files, mut more) = (0_u64, 0_u64, 0_u64);
    let count = cases(60);
    for case in 0..count {
        let mut rng = Rng::new(case);
        let sound = &images[case as usize % images.len()];
        let mut image = sound.image.clone();
        let hit = damage(sound, &mut image, &mut rng);
        let unhit = sound.unhit(&hit);
        let rescued = rescue(&image);
        for path in &unhit {
            let is_there = rescued.contains_key(*path);
            assert!(is_there, "case {case}: {} is lost", path.escape_ascii());
        }
        for (path, (content, xattrs)) in &rescued {
            let is_known = |known: &Known| known.content == *content && known.xattrs == *xattrs;
            let is_known = match without_lost_directory(path) {
                None => sound.files.get(path).is_some_and(is_known),
                Some(rest) => {
                    let mut files = sound.files.iter();
                    files.any(|(path, known)| path.ends_with(rest) && is_known(known))
                }
            };
            assert!(is_known, "case {case}: {}", path.escape_ascii());
        }
        unhit_files += unhit.len() as u64;
        hit_files += (sound.files.len() - unhit.len()) as u64;
        more += (rescued.len() - unhit.len()) as u64;
    }
    println!(
        "campaign: {count} images: {unhit_files} files not hit, all read; {hit_files} hit, of which {more} could be read"
    );
    assert!(hit_files > count && unhit_files > count);
}

/// A directory is listed from whatever records of its names are left.
#[test]
fn names_come_from_any_of_their_three_records() {
    let sound = &images()[1];
    let all = sound.files.len();
    for kinds in [&[DIR_INDEX][..], &[DIR_ITEM], &[DIR_INDEX, DIR_ITEM]] {
        let mut image = sound.image.clone();
        let mut hit = HashSet::new();
        for leaf in &sound.trees[&FS_TREE] {
            // Leaves that have nothing else.
            if leaf.items.iter().all(|(key, _)| kinds.contains(&key.1)) {
                let (at, _) = *leaf.path.last().unwrap();
                for place in sound.places(at) {
                    image.patch(place, &[0; SECTOR]);
                    hit.insert(place);
                }
            }
        }
        assert!(!hit.is_empty(), "{kinds:?}");
        let btrfs = open(&image).unwrap();
        assert_eq!(sound.unhit(&hit).len(), all, "{kinds:?}");
        assert_eq!(rescue(&image).len(), all, "{kinds:?}");
        // Without being asked, a directory is not shown in part.
        let strict = btrfs.subvolume(FS_TREE).unwrap();
        if kinds.contains(&DIR_INDEX) {
            let mut waiting = vec![strict.root()];
            let mut errors = 0;
            while let Some(dir) = waiting.pop() {
                match strict.read_dir(dir) {
                    Ok(entries) => {
                        let dirs = entries.iter();
                        let dirs = dirs.filter(|entry| entry.kind == FileKind::Directory);
                        waiting.extend(dirs.map(|entry| entry.ino));
                    }
                    Err(_) => errors += 1,
                }
            }
            assert!(errors > 0);
        }
    }
}

/// Without the inodes of all directories, in both copies, files are found in their places where a
/// name of each directory is left, and in `lost+found` otherwise.
#[test]
fn files_are_found_without_their_directories() {
    let sound = &images()[2];
    let mut image = sound.image.clone();
    let mut hit = HashSet::new();
    for leaf in &sound.trees[&FS_TREE] {
        let is_directory = |(key, data): &(BtrfsKey, Vec<u8>)| {
            key.1 == INODE_ITEM && number(data, 52, 4) & 0o170_000 == 0o040_000
        };
        if leaf.items.iter().any(is_directory) {
            let &(at, len) = leaf.path.last().unwrap();
            for place in sound.places(at) {
                image.patch(place, &vec![0; len as usize]);
                hit.insert(at);
            }
        }
    }
    assert!(
        open(&image)
            .unwrap()
            .subvolume(FS_TREE)
            .unwrap()
            .metadata(Ino(TOP))
            .is_err()
    );
    let rescued = rescue(&image);
    let mut lost_and_found = 0;
    for (path, known) in &sound.files {
        if known.alone.all.iter().any(|(at, _)| hit.contains(at)) {
            continue;
        }
        let is_it = |(found, (content, xattrs)): (&Vec<u8>, &(Vec<u8>, Vec<tree::Xattr>))| {
            let is_here = found == path
                || without_lost_directory(found).is_some_and(|rest| path.ends_with(rest));
            is_here && *content == known.content && *xattrs == known.xattrs
        };
        assert!(rescued.iter().any(is_it), "{}", path.escape_ascii());
        lost_and_found += usize::from(!rescued.contains_key(path));
    }
    assert!(
        rescued.len() > sound.files.len() / 2 && lost_and_found > 0,
        "{} {lost_and_found}",
        rescued.len()
    );
    let Some(btrfs) = tool("btrfs") else { return };
    let dir = TempDir::new();
    let (path, restored) = (dir.join("image"), dir.join("restored"));
    image.write_file(&path);
    std::fs::create_dir(&restored).unwrap();
    let mut restore = btrfs.command();
    restore.args(["restore", "--ignore-errors"]);
    // It fails for what it leaves out.
    let _ = restore.arg(&path).arg(&restored).output().unwrap();
    let theirs = HostDir::open(&restored).unwrap();
    let theirs = Inventory::of(&theirs, &Limits::default()).unwrap();
    for file in theirs.files() {
        if theirs.kind(file) == FileKind::Regular {
            let expected = content(theirs.tree(), theirs.ino(file), FileKind::Regular).unwrap();
            let path = theirs.path(theirs.first_name(file));
            let is_ours = rescued.values().any(|(content, _)| *content == expected);
            assert!(is_ours, "{}", path.escape_ascii());
        }
    }
}
