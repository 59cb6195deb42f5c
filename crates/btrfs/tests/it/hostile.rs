//! Hostile images: a good one with a few bytes changed and the checksums recomputed, so that they
//! do not protect the reader. Each gives an error or some tree, in bounded time and memory, and
//! never a panic.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use btrfs::{Btrfs, SUPERBLOCK_PLACES, Subvolume};
use testkit::{BtrfsImage, Rng, SECTOR, cases};
use tree::manifest::Manifest;
use tree::usage::StorageForm;
use tree::{
    Aspects, CheckOptions, DataCheck, Error, ExtentKind, FileKind, FileSystem, Ino, Inventory,
    Limits, NoProgress, Parallel, ReadAt,
};

use crate::check::findings;
use crate::images::usage;
use crate::small::small;

pub(crate) fn open(image: &BtrfsImage) -> Result<Arc<Btrfs>, Error> {
    let source: Box<dyn ReadAt> = Box::new(image.clone());
    Ok(Arc::new(Btrfs::open(vec![source])?))
}

#[test]
fn the_small_image_is_as_the_kernel_shows_it() {
    let image = open(&small()).unwrap();
    let options = Aspects {
        holes: true,
        mtime: false,
        ..Aspects::default()
    };
    let ours = Manifest::of(&image.subvolume(5).unwrap(), &options).unwrap();
    let theirs = include_str!("../../testdata/small.manifest");
    for (ours, theirs) in ours.as_str().lines().zip(theirs.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.as_str().lines().count(), theirs.lines().count());
    let (summary, lines) = findings(&image);
    assert!(lines.is_empty(), "{lines:#?}");
    assert!(summary.data_bytes > 0);
    let usage = usage(&image).unwrap();
    let of = |name| usage.of(StorageForm::Encoded(name));
    assert!(
        ["zstd", "lzo", "zlib"]
            .iter()
            .all(|name| of(name).extents > 0)
    );
    assert!(usage.of(StorageForm::Preallocated).stored >= 200_000);
    assert!(of("zstd").referenced > of("zstd").decoded);
}

#[test]
fn each_byte_of_data_is_verified() {
    let good = small();
    let image = open(&good).unwrap();
    let top = image.subvolume(5).unwrap();
    for name in ["zstd", "lzo", "zlib", "prealloc"] {
        let file = top.lookup(top.root(), name.as_bytes()).unwrap().ino;
        let extents = top.extents(file, 0).unwrap();
        for extent in extents.iter().filter(|extent| extent.kind.has_data()) {
            let at = extent.id.expect("it is not inline").0;
            // The first data chunk starts at its address: it has one copy on one device.
            let chunk = image.chunks().find(btrfs::Logical(at)).unwrap();
            let place = chunk.stripes[0].at.0 + (at - chunk.start.0);
            let mut bad = good.clone();
            let byte = bad.bytes(place + 77, 1)[0];
            bad.patch(place + 77, &[byte ^ 4]);
            let bad = open(&bad).unwrap().subvolume(5).unwrap();
            let mut content = vec![0; extent.len as usize];
            let error = bad.read_at(file, extent.offset, &mut content).unwrap_err();
            assert!(
                error.to_string().contains("data's checksum differs"),
                "{error}"
            );
            assert_eq!(
                top.read_at(file, extent.offset, &mut content).unwrap(),
                content.len()
            );
        }
    }
}

/// The places of tree blocks and of the first superblock.
fn targets(image: &BtrfsImage) -> Vec<u64> {
    let fsid = image.bytes(SUPERBLOCK_PLACES[0].0 + 32, 16);
    let is_ours = |at: &u64| image.bytes(at + 32, 16) == fsid;
    let second = SUPERBLOCK_PLACES[1].0;
    let sectors = image.sectors().filter(|at| *at != second);
    sectors.filter(is_ours).collect()
}

/// Changes a few numbers in a block.
fn mutate(block: &mut [u8], rng: &mut Rng) {
    const SPECIAL: [u64; 12] = [
        0,
        1,
        2,
        255,
        256,
        4095,
        4096,
        1 << 17,
        1 << 32,
        1 << 63,
        u64::MAX,
        u64::MAX - 255,
    ];
    for _ in 0..=rng.below(3) {
        // Mostly in the header and the items' keys, or in the items' data, at the end.
        let at = match rng.below(4) {
            0 => 32 + rng.index(70),
            1 => 101 + rng.index(400),
            _ => 32 + rng.index(SECTOR - 40),
        };
        match rng.below(5) {
            0 => block[at] = rng.next_u64() as u8,
            1 => block[at] ^= 1 << rng.below(8),
            2 => block[at] = block[at].wrapping_add(1),
            3 => {
                let number = SPECIAL[rng.index(SPECIAL.len())];
                let len = [1, 2, 4, 8][rng.index(4)];
                block[at..at + len].copy_from_slice(&number.to_le_bytes()[..len]);
            }
            _ => {
                let from = 32 + rng.index(SECTOR - 40);
                block.copy_within(from..from + 8, at);
            }
        }
    }
}

/// Reads some of everything: as much as a good image of this size contains, not as much as a bad
/// one claims.
fn explore(tree: &Subvolume) -> Result<(), Error> {
    let mut waiting: Vec<Ino> = vec![tree.root()];
    let mut left = 1000;
    let mut buffer = vec![0; 40_000];
    while let Some(ino) = waiting.pop() {
        left -= 1;
        if left == 0 {
            return Ok(());
        }
        let _ = tree.xattrs(ino);
        let metadata = tree.metadata(ino)?;
        match metadata.kind {
            FileKind::Directory => {
                for entry in tree.read_dir(ino)? {
                    let _ = tree.lookup(ino, &entry.name);
                    waiting.push(entry.ino);
                }
            }
            FileKind::Symlink => drop(tree.read_link(ino)),
            FileKind::Regular => {
                for from in [0, 100_001, metadata.size.saturating_sub(1)] {
                    let _ = tree.read_at(ino, from, &mut buffer);
                }
                let mut stored = Vec::new();
                for extent in tree.extents(ino, 0)? {
                    assert!(extent.len > 0);
                    assert!(extent.offset + extent.len <= metadata.size);
                    if matches!(extent.kind, ExtentKind::Encoded(_)) {
                        let _ = tree.read_encoded(ino, &extent, &mut stored);
                        assert!(stored.len() <= 128 << 10);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Does everything that can be done with an image: describes it, lists it, reads some of it, copies
/// it. Returns whether it could be opened.
pub(crate) fn explore_all(image: &BtrfsImage) -> Option<Arc<Btrfs>> {
    let btrfs = open(image).ok()?;
    let _ = btrfs.subvolumes();
    let _ = (usage(&btrfs), btrfs.space());
    let id = btrfs.default_subvolume().unwrap_or(5);
    for id in [id, 5, 256] {
        if let Ok(tree) = btrfs.subvolume(id) {
            let _ = explore(&tree);
            let _ = copy(&tree);
        }
    }
    Some(btrfs)
}

/// Copies a tree to an archive that is discarded.
fn copy(tree: &Subvolume) -> Result<(), Error> {
    let inventory = Inventory::of(tree, &Limits::default())?;
    tree::tar::write(
        &inventory,
        false,
        Parallel::new(1),
        &NoProgress,
        &mut io::sink(),
    )?;
    Ok(())
}

/// With 20 ms of processor time for each image, and one minute for all.
#[test]
fn mutated_images_do_no_harm() {
    let test = "hostile::mutated_images_do_no_harm";
    if !testkit::is_bounded(test, 60 + cases(1500) / 50) {
        return;
    }
    let good = small();
    let targets = targets(&good);
    assert!(targets.len() > 20);
    let (mut opened, mut found) = (0, 0);
    for case in 0..cases(1500) {
        let mut rng = Rng::new(case);
        let mut image = good.clone();
        for _ in 0..=rng.below(2) {
            let at = targets[rng.index(targets.len())];
            let mut block = image.bytes(at, SECTOR);
            mutate(&mut block, &mut rng);
            image.patch(at, &block);
            image.seal(at);
        }
        let begin = testkit::processor_seconds();
        if let Some(btrfs) = explore_all(&image) {
            opened += 1;
            found += u64::from(findings(&btrfs).0.findings > 0);
        }
        // The limit is on hangs, not on speed, and not on a machine that pauses.
        assert!(testkit::processor_seconds() - begin < 60, "case {case}");
    }
    // The mutations reach the code that they target.
    assert!(opened > cases(1500) / 4, "{opened} could be opened");
    assert!(
        found > opened / 4,
        "{found} of {opened} are known to be bad"
    );
}

/// An image that counts how often a range is read.
struct Counting {
    image: BtrfsImage,
    range: Range<u64>,
    reads: Arc<AtomicU64>,
}

impl ReadAt for Counting {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        if self.range.contains(&at) {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
        self.image.read_exact_at(buf, at)
    }

    fn size(&self) -> io::Result<u64> {
        self.image.size()
    }
}

#[test]
fn small_reads_in_any_order_read_and_decode_each_extent_once() {
    let image = small();
    let first = image.places(13_631_488)[0];
    let reads = Arc::new(AtomicU64::new(0));
    let source: Box<dyn ReadAt> = Box::new(Counting {
        image,
        range: first..first + (1 << 20),
        reads: Arc::clone(&reads),
    });
    let top = Arc::new(Btrfs::open(vec![source]).unwrap());
    let top = top.subvolume(5).unwrap();
    let mut rng = Rng::new(1);
    // Three compressed extents each.
    for name in ["lzo", "zlib"] {
        let file = top.lookup(top.root(), name.as_bytes()).unwrap().ino;
        let mut whole = vec![0; 300_000];
        top.read_at(file, 0, &mut whole).unwrap();
        let before = reads.load(Ordering::Relaxed);
        for _ in 0..1000 {
            let from = rng.index(whole.len() - 100);
            let mut part = [0; 100];
            assert_eq!(top.read_at(file, from as u64, &mut part).unwrap(), 100);
            assert_eq!(part, whole[from..from + 100]);
        }
        let reads = reads.load(Ordering::Relaxed) - before;
        assert!((1..=3).contains(&reads), "{name}: {reads}");
    }
}

#[test]
fn a_check_reads_what_it_decodes_once() {
    let image = small();
    let first = image.places(13_631_488)[0];
    let [compared, decoded] = [DataCheck::Checksums, DataCheck::Decode].map(|data| {
        let reads = Arc::new(AtomicU64::new(0));
        let source: Box<dyn ReadAt> = Box::new(Counting {
            image: image.clone(),
            range: first..first + (1 << 20),
            reads: Arc::clone(&reads),
        });
        let options = CheckOptions::EVERYTHING.data(data);
        let image = Btrfs::open(vec![source]).unwrap();
        let check = image.check(options, Parallel::new(2), &NoProgress, &mut |_| {});
        (reads.load(Ordering::Relaxed), check.unwrap().decoded_bytes)
    });
    assert_eq!((compared.0, compared.1), (decoded.0, 0));
    assert!(decoded.1 > 600_000, "{decoded:?}");
}

const EXTENT_TREE: u64 = 2;

fn words(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|it| it.to_le_bytes()).collect()
}

#[test]
fn the_last_generation_there_can_be_is_read() {
    let mut image = small();
    let newest = u64::MAX.to_le_bytes();
    let root = image.root(1);
    image.edit_block(root, |block| block[80..88].copy_from_slice(&newest));
    image.edit_superblock(|block| block[72..80].copy_from_slice(&newest));
    let (_, lines) = findings(&open(&image).unwrap());
    let newer = lines.iter().find(|line| line.contains("newer than"));
    assert_eq!(newer, None);
}

/// Block groups may claim any range; what lies in several of them must not count, nor take memory,
/// several times.
#[test]
fn block_groups_that_overlap_are_found() {
    const HALF: u64 = 1 << 63;
    let mut image = small();
    let start = 1 << 62;
    image.insert(EXTENT_TREE, (start, 168, HALF), words(&[0, 1, 1]));
    for len in [HALF, HALF + 4096] {
        image.insert(EXTENT_TREE, (start, 192, len), words(&[HALF, 256, 1]));
    }
    let (_, lines) = findings(&open(&image).unwrap());
    let overlap = lines
        .iter()
        .filter(|line| line.contains("block groups overlap"));
    assert_eq!(overlap.count(), 1, "{lines:#?}");
}
