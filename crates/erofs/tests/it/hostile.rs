//! Damaged and hostile images: an error or a result, never a panic, in bounded time and memory.

use testkit::{Rng, cases};
use tree::{ByPath, CheckOptions, FileSystem, Ino, Limits, NoProgress, Parallel};

use crate::vectors::{IMAGES, findings, open, read};

const BLOCK: usize = 4096;
const DIR: u16 = 0o40_755;
const FILE: u16 = 0o100_644;
const FIFO: u16 = 0o10_644;

/// Layouts.
const PLAIN: u16 = 0;
const FULL: u16 = 1;
const COMPACT: u16 = 3;
const CHUNKS: u16 = 4;

/// An image made by hand, of 16 blocks: inodes in blocks 1 to 3, directories and data behind them.
struct Hand(Vec<u8>);

impl Hand {
    /// The root is the inode 0, with its entries in block 4.
    fn new(incompat: u32, entries: &[(&str, u64, u8)]) -> Hand {
        let mut hand = Hand(vec![0; 16 * BLOCK]);
        hand.put(1024, &0xe0f5_e1e2_u32.to_le_bytes());
        hand.put(1024 + 12, &[12]);
        hand.put(1024 + 40, &[1]);
        hand.put(1024 + 80, &incompat.to_le_bytes());
        // All four codecs, without their settings.
        hand.put(1024 + 84, &[15]);
        hand.inode(0, DIR, PLAIN, BLOCK as u64, 4);
        hand.directory(4, entries);
        hand
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Where an inode is; it takes 64 bytes, hence two numbers.
    fn at(nid: usize) -> usize {
        BLOCK + nid * 32
    }

    fn inode(&mut self, nid: usize, mode: u16, layout: u16, size: u64, block: u32) {
        let at = Hand::at(nid);
        self.put(at, &(1 | layout << 1).to_le_bytes());
        self.put(at + 4, &mode.to_le_bytes());
        self.put(at + 8, &size.to_le_bytes());
        self.put(at + 16, &block.to_le_bytes());
        self.put(at + 44, &[1]);
    }

    /// Entries: name, nid and type; in the order of names.
    fn directory(&mut self, block: usize, entries: &[(&str, u64, u8)]) {
        let mut name_at = entries.len() * 12;
        for (number, (name, nid, kind)) in entries.iter().enumerate() {
            let at = block * BLOCK + number * 12;
            self.put(at, &nid.to_le_bytes());
            self.put(at + 8, &(name_at as u16).to_le_bytes());
            self.put(at + 10, &[*kind]);
            self.put(block * BLOCK + name_at, name.as_bytes());
            name_at += name.len();
        }
    }

    /// What a check finds.
    fn findings(self) -> String {
        match open(self.0) {
            Ok(image) => findings(&image),
            Err(error) => error.to_string(),
        }
    }

    fn assert_finds(self, words: &str) {
        let found = self.findings();
        assert!(found.contains(words), "{words}: {found}");
    }
}

/// The root with one more entry.
fn with_file() -> [(&'static str, u64, u8); 3] {
    [(".", 0, 2), ("..", 0, 2), ("file", 8, 1)]
}

/// A file with a full index whose entries follow.
fn with_index(incompat: u32, size: u64, header: [u8; 8], index: &[[u8; 8]]) -> Hand {
    let mut hand = Hand::new(incompat, &with_file());
    hand.inode(8, FILE, FULL, size, 0);
    hand.put(Hand::at(10), &header);
    for (number, entry) in index.iter().enumerate() {
        hand.put(Hand::at(10) + 16 + 8 * number, entry);
    }
    hand
}

/// A file with records of 16 bytes: stored length and codec, place, beginning in the file.
fn with_records(size: u64, records: &[[u32; 3]]) -> Hand {
    let header = [records.len() as u8, 0, 0, 0, 0x5, 0, 0, 0];
    let mut hand = with_index(0x83, size, header, &[]);
    for (number, [length, at, from]) in records.iter().enumerate() {
        let place = Hand::at(10) + 16 + 16 * number;
        hand.put(place, &length.to_le_bytes());
        hand.put(place + 4, &at.to_le_bytes());
        hand.put(place + 12, &from.to_le_bytes());
    }
    hand
}

#[test]
fn an_image_made_by_hand_is_sound() {
    let mut hand = Hand::new(0, &with_file());
    hand.inode(8, FILE, PLAIN, 5000, 5);
    hand.put(5 * BLOCK, &[7; 5000]);
    let image = open(hand.0).unwrap();
    assert_eq!(findings(&image), "");
    assert_eq!(image.read("file").unwrap(), [7; 5000]);
    let records = with_records(5000, &[[5000, 5 * BLOCK as u32, 0]]);
    assert_eq!(records.findings(), "");
}

#[test]
fn a_directory_leads_to_itself_or_to_another_ones_blocks() {
    let entries = [(".", 0, 2), ("..", 0, 2), ("a", 0, 2)];
    Hand::new(0, &entries).assert_finds("a directory is in two places");
    // Two directories with one block: each of more would list all names again.
    let mut hand = Hand::new(0, &[(".", 0, 2), ("..", 0, 2), ("a", 8, 2), ("b", 12, 2)]);
    for nid in [8, 12] {
        hand.inode(nid, DIR, PLAIN, BLOCK as u64, 5);
    }
    hand.directory(5, &[(".", 8, 2), ("..", 0, 2), ("c", 16, 5)]);
    hand.inode(16, FIFO, PLAIN, 0, 0);
    hand.assert_finds("directory's blocks are also those of another directory");
    // One block again and again.
    let mut hand = Hand::new(4, &[(".", 0, 2), ("..", 0, 2), ("a", 8, 2)]);
    hand.inode(8, DIR, CHUNKS, 200 * BLOCK as u64, 0);
    hand.directory(5, &[(".", 8, 2), ("..", 0, 2)]);
    hand.put(Hand::at(10), &[5, 0, 0, 0].repeat(200));
    hand.assert_finds("directory's blocks are not in the order of names");
}

#[test]
fn sizes_are_impossible_or_only_claimed() {
    for (size, words) in [
        (1 << 63, "inode's size is negative"),
        (1 << 62, "data lies beyond the end of the erofs image"),
    ] {
        let mut hand = Hand::new(0, &with_file());
        hand.inode(8, FILE, PLAIN, size, 5);
        hand.assert_finds(words);
        let mut hand = Hand::new(0, &[(".", 0, 2), ("..", 0, 2), ("file", 8, 7)]);
        hand.inode(8, 0o120_777, PLAIN, size, 5);
        hand.findings();
        let mut hand = Hand::new(0, &with_file());
        hand.inode(8, DIR, PLAIN, size, 5);
        assert!(!hand.findings().is_empty());
    }
    // A hole of any size is one extent.
    let mut hand = Hand::new(0, &with_file());
    hand.inode(8, FILE, PLAIN, 1 << 62, u32::MAX);
    hand.put(Hand::at(8) + 6, &[0xff, 0xff]);
    let image = open(hand.0).unwrap();
    assert_eq!(findings(&image), "");
    assert_eq!(image.extents(Ino(8), 0).unwrap().len(), 1);
    assert_eq!(image.read_at(Ino(8), 1 << 61, &mut [1; 9]).unwrap(), 9);
}

#[test]
fn indexes_lead_nowhere() {
    let plain = [0, 0, 0, 0, 0, 0, 0, 0];
    let (head, next) = (
        |block| [1, 0, 0, 0, block, 0, 0, 0],
        |back| [2, 0, 0, 0, back, 0, 0, 0],
    );
    for (index, words) in [
        (
            [next(0), next(1)],
            "distance to the beginning of an extent is impossible",
        ),
        (
            [next(9), next(1)],
            "distance to the beginning of an extent is impossible",
        ),
        (
            [[1, 0, 9, 0, 5, 0, 0, 0], head(6)],
            "distance to the beginning of an extent is impossible",
        ),
        (
            [[1, 0, 0, 0x10, 5, 0, 0, 0], head(6)],
            "extent's offset is larger than its logical cluster",
        ),
        ([head(5), head(6)], "cluster has no compressed data"),
        ([plain, next(1)], "plain cluster is shorter than its extent"),
    ] {
        with_index(1, 8192, plain, &index).assert_finds(words);
    }
    // 20,000 continued clusters are more than 12 MiB.
    let mut hand = with_index(1, 1 << 30, plain, &[head(5)]);
    for at in (Hand::at(10) + 24..16 * BLOCK).step_by(8) {
        hand.put(at, &next(1));
    }
    hand.0.resize(3 << 20, 2);
    assert!(!hand.findings().is_empty());
    let mut hand = Hand::new(1, &with_file());
    hand.inode(8, FILE, COMPACT, 1 << 40, 0);
    assert!(!hand.findings().is_empty());
}

#[test]
fn large_indexes_belong_to_one_file_each() {
    let entries = [(".", 0, 2), ("..", 0, 2), ("a", 8, 1), ("b", 10, 1)];
    let mut hand = Hand::new(4, &entries);
    for nid in [8, 10] {
        // The addresses of 2,000 chunks each, of which nearly all are the same.
        hand.inode(nid, FILE, CHUNKS, 2000 * BLOCK as u64, 0);
    }
    hand.put(Hand::at(12), &[5, 0, 0, 0].repeat(2100));
    hand.assert_finds("file's index is also that of another file");
    let mut hand = Hand::new(4, &with_file());
    hand.inode(8, FILE, CHUNKS, 1 << 50, 0);
    hand.assert_finds("file's index lies beyond the end of its metadata");
}

#[test]
fn records_are_out_of_order_or_too_long() {
    let zstd = 4 << 28;
    for (records, words) in [
        (
            &[[100, 0x5000, 4096], [100, 0x6000, 0]][..],
            "plain cluster is shorter than its extent",
        ),
        (
            &[[1 << 20, 0x5000, 0]],
            "plain cluster is shorter than its extent",
        ),
        (
            &[[zstd | ((1 << 21) - 1), 0x5000, 0]],
            "more than 1 MiB stored",
        ),
        (&[[zstd | 100, 0xffff_0000, 0]], "data lies beyond the end"),
        (&[[9 << 28 | 100, 0x5000, 0]], "unknown codec"),
    ] {
        let size = if records[0][0] == 1 << 20 {
            2 << 20
        } else {
            8192
        };
        let found = with_records(size, records).findings();
        assert!(found.contains(words), "{words}: {found}");
    }
    let many = with_records(1 << 62, &[[zstd | 100, 0x5000, 0]; 90]);
    many.assert_finds("12 MiB of content");
}

#[test]
fn fragments_and_the_metabox_are_in_themselves() {
    let whole = |offset: u8| [offset, 0, 0, 0, 0, 0, 0, 0x80];
    let mut hand = with_index(0x21, 100, whole(0), &[]);
    hand.put(1024 + 96, &[20]);
    hand.inode(20, FILE, FULL, 5000, 0);
    hand.put(Hand::at(22), &whole(9));
    hand.assert_finds("packed inode or metabox has a fragment");
    with_index(1, 100, whole(0), &[])
        .assert_finds("file has a fragment, and the image no packed inode");
    let mut hand = Hand::new(0x100, &with_file());
    hand.put(1024 + 13, &[1]);
    hand.put(1024 + 128 + 7, &[0x80]);
    hand.assert_finds("metabox is in itself");
    // A file in a metabox that is a directory of the image, or a hole.
    for block in [4, u32::MAX] {
        let mut hand = Hand::new(
            0x100,
            &[(".", 0, 2), ("..", 0, 2), ("file", 1 << 63 | 1, 1)],
        );
        hand.put(1024 + 13, &[1]);
        hand.put(1024 + 128, &[20]);
        hand.inode(20, FILE, PLAIN, 1 << 40, block);
        assert!(!hand.findings().is_empty());
    }
}

/// Reads and checks all of an image.
fn use_all(image: Vec<u8>) -> tree::Result<u64> {
    let limits = Limits {
        inodes_max: 20_000,
        depth_max: 50,
        ..Limits::default()
    };
    let image = open(image)?;
    let bytes = testkit::use_all(&image, &limits);
    let (options, parallel) = (CheckOptions::EVERYTHING, Parallel::new(1));
    image.check(options, parallel, &NoProgress, &mut |_| ())?;
    bytes
}

#[test]
fn damaged_images_do_no_harm() {
    let mut rng = Rng::new(35);
    let mut whole = 0;
    for name in IMAGES {
        let mut image = read(name);
        // The checksum would find all damage of the superblock.
        image[1024 + 8] &= !1;
        assert!(use_all(image.clone()).unwrap() > 10_000);
        for _ in 0..cases(100) {
            let mut damaged = image.clone();
            for _ in 0..1 + rng.below(3) {
                let at = match rng.below(10) {
                    0 => 1024 + rng.index(144),
                    _ => rng.index(image.len()),
                };
                let end = image.len().min(at + 4);
                match rng.below(4) {
                    0 => damaged[at] = rng.below(256) as u8,
                    1 => damaged[at] ^= 1 << rng.below(8),
                    2 => damaged[at..end].fill(0xff),
                    _ => damaged[at..end].fill(0),
                }
            }
            if rng.chance(20) {
                damaged.truncate(rng.index(image.len()));
            }
            whole += u32::from(use_all(damaged).is_ok());
        }
    }
    assert!(whole > 100, "damage must not always be found out: {whole}");
}
