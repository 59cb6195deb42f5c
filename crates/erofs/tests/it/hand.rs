//! Images made by hand, sound and hostile ones, without any code of the library.

use codec::{Encoder, Settings};
use testkit::Rng;

use crate::vectors::{findings, open};

pub(crate) const BLOCK: usize = 4096;
pub(crate) const DIR: u16 = 0o40_755;
pub(crate) const FILE: u16 = 0o100_644;
pub(crate) const FIFO: u16 = 0o10_644;

/// Layouts.
pub(crate) const PLAIN: u16 = 0;
pub(crate) const FULL: u16 = 1;
pub(crate) const COMPACT: u16 = 3;
pub(crate) const CHUNKS: u16 = 4;

/// An image made by hand, of 16 blocks: inodes in blocks 1 to 3, directories and data behind them.
pub(crate) struct Hand(pub(crate) Vec<u8>);

impl Hand {
    /// The root is the inode 0, with its entries in block 4.
    pub(crate) fn new(incompat: u32, entries: &[(&str, u64, u8)]) -> Hand {
        Hand::with_blocks(BLOCK, incompat, entries)
    }

    fn with_blocks(block: usize, incompat: u32, entries: &[(&str, u64, u8)]) -> Hand {
        let mut hand = Hand(vec![0; 16 * block]);
        hand.put(1024, &0xe0f5_e1e2_u32.to_le_bytes());
        hand.put(1024 + 12, &[block.ilog2() as u8]);
        hand.put(1024 + 40, &[1]);
        hand.put(1024 + 80, &incompat.to_le_bytes());
        hand.put(1024 + 84, &[15]);
        if incompat & 2 != 0 {
            hand.put(1024 + 16, &[2]);
            hand.put(1024 + 36, &[16]);
            // The settings of lz4, lzma, deflate and zstd.
            hand.put(1024 + 128, &[14, 0, 0xff, 0xff, 1]);
            hand.put(1024 + 144, &[14, 0, 0, 0, 1]);
            hand.put(1024 + 160, &[6, 0, 15]);
            hand.put(1024 + 168, &[6, 0, 0, 7]);
        }
        hand.inode(0, DIR, PLAIN, block as u64, 4);
        hand.directory(4, entries);
        hand
    }

    fn block(&self) -> usize {
        1 << self.0[1024 + 12]
    }

    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        self.0[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Where an inode is; it takes 64 bytes, hence two numbers.
    pub(crate) fn at(&self, nid: usize) -> usize {
        self.block() + nid * 32
    }

    pub(crate) fn inode(&mut self, nid: usize, mode: u16, layout: u16, size: u64, block: u32) {
        let at = self.at(nid);
        self.put(at, &(1 | layout << 1).to_le_bytes());
        self.put(at + 4, &mode.to_le_bytes());
        self.put(at + 8, &size.to_le_bytes());
        self.put(at + 16, &block.to_le_bytes());
        self.put(at + 44, &[1]);
    }

    /// Entries: name, nid and type; in the order of names.
    pub(crate) fn directory(&mut self, block: usize, entries: &[(&str, u64, u8)]) {
        let mut name_at = entries.len() * 12;
        for (number, (name, nid, kind)) in entries.iter().enumerate() {
            let at = block * self.block() + number * 12;
            self.put(at, &nid.to_le_bytes());
            self.put(at + 8, &(name_at as u16).to_le_bytes());
            self.put(at + 10, &[*kind]);
            self.put(block * self.block() + name_at, name.as_bytes());
            name_at += name.len();
        }
    }

    /// The findings of a check.
    pub(crate) fn findings(self) -> String {
        match open(self.0) {
            Ok(image) => findings(&image),
            Err(error) => error.to_string(),
        }
    }

    pub(crate) fn assert_finds(self, words: &str) {
        let found = self.findings();
        assert!(found.contains(words), "{words}: {found}");
    }
}

/// The root with one more entry.
pub(crate) fn with_file() -> [(&'static str, u64, u8); 3] {
    [(".", 0, 2), ("..", 0, 2), ("file", 8, 1)]
}

/// A file with a full index whose entries follow.
pub(crate) fn with_index(incompat: u32, size: u64, header: [u8; 8], index: &[[u8; 8]]) -> Hand {
    let mut hand = Hand::new(incompat, &with_file());
    put_index(&mut hand, size, header, index);
    hand
}

fn put_index(hand: &mut Hand, size: u64, header: [u8; 8], index: &[[u8; 8]]) {
    hand.inode(8, FILE, FULL, size, 0);
    hand.put(hand.at(10), &header);
    for (number, entry) in index.iter().enumerate() {
        hand.put(hand.at(10) + 16 + 8 * number, entry);
    }
}

/// A file with records of 16 bytes: stored length and codec, place, beginning in the file.
pub(crate) fn with_records(size: u64, records: &[[u32; 3]]) -> Hand {
    let header = [records.len() as u8, 0, 0, 0, 0x5, 0, 0, 0];
    let mut hand = with_index(0x83, size, header, &[]);
    for (number, [length, at, from]) in records.iter().enumerate() {
        let place = hand.at(10) + 16 + 16 * number;
        hand.put(place, &length.to_le_bytes());
        hand.put(place + 4, &at.to_le_bytes());
        hand.put(place + 12, &from.to_le_bytes());
    }
    hand
}

/// An image with a form of index that no mkfs.erofs makes here.
pub(crate) struct RareImage {
    pub(crate) name: &'static str,
    pub(crate) image: Vec<u8>,
    /// Of the file named `file`.
    pub(crate) content: Vec<u8>,
}

pub(crate) fn encode(settings: &Settings, content: &[u8]) -> Vec<u8> {
    let mut stored = vec![0; content.len()];
    let mut encoder = Encoder::new(settings).unwrap();
    let len = encoder.compress(&mut stored, content).unwrap();
    stored.truncate(len);
    stored
}

/// One image of each rare form, with blocks of this size: of two logical clusters of text, two of
/// nothing, one of noise, and a part of one of text.
pub(crate) fn rare(block: usize) -> Vec<RareImage> {
    let noise = Rng::new(35).bytes(block);
    let text = b"how many ways lead to one block? ".repeat(block / 20);
    let content = [
        &text[..block],
        &text[3..][..block],
        &vec![0; 2 * block],
        &noise,
        &text[9..][..block / 2],
    ];
    let size = content.concat().len() as u64;
    let lz4 = encode(&Settings::Lz4, content[0]);
    let zstd = encode(&Settings::Zstd { level: 3 }, content[1]);
    let tail = encode(&Settings::Lz4, content[4]);
    // Codec and 1, stored bytes, begin.
    let pieces = [
        (1, &lz4[..], 0),
        (4, &zstd, block),
        (0, &[], 2 * block),
        (0, &[], 3 * block),
        (0, &noise, 4 * block),
        (1, &tail, 5 * block),
    ];
    let mut images = Vec::new();
    for (form, name) in (0..).zip([
        "records of 4 bytes",
        "records of 8 bytes",
        "records of 16 bytes",
        "records of 32 bytes",
    ]) {
        let header = [pieces.len() as u8, 0, 0, 0, 1 | form << 1, 0, 0, 0];
        let mut hand = Hand::with_blocks(block, 0x83, &with_file());
        put_index(&mut hand, size, header, &[]);
        let record_bytes = 4 << form;
        let mut place = (hand.at(10) + 8).next_multiple_of(record_bytes);
        // Not at the beginning of a block.
        let mut at = 5 * block + 100;
        if record_bytes == 4 {
            hand.put(place, &(at as u64).to_le_bytes());
            place += 8;
        }
        for (codec, stored, from) in pieces {
            let length = (stored.len() as u32 | codec << 28).to_le_bytes();
            let (at_bytes, from) = ((at as u64).to_le_bytes(), (from as u64).to_le_bytes());
            let record = match record_bytes {
                4 => length.to_vec(),
                8 => [&length[..], &at_bytes[..4]].concat(),
                16 => [&length[..], &at_bytes, &from[..4]].concat(),
                _ => [&length[..], &at_bytes, &from, &[0; 12]].concat(),
            };
            hand.put(place, &record);
            hand.put(at, stored);
            (place, at) = (place + record_bytes, at + stored.len());
        }
        images.push((name, hand));
    }
    for (name, is_count) in [("holes by a mark", false), ("holes by a count", true)] {
        let head = |kind: u16, number: u8| {
            let [low, high] = kind.to_le_bytes();
            [low, high, 0, 0, number, 0, 0, 0]
        };
        // Linux before the mark reads zeros there.
        let hole = head(0x4001, 7);
        let index = [
            head(1, 5),
            head(1, 6),
            if is_count { head(1, 7) } else { hole },
            // A continued cluster: no block stored, and the next extent follows.
            if is_count {
                [2, 0, 0, 0, 0, 8, 1, 0]
            } else {
                hole
            },
            head(0, 8),
            head(1, 9),
        ];
        let advise = if is_count { 6 } else { 0 };
        let mut hand = Hand::with_blocks(block, 3, &with_file());
        put_index(&mut hand, size, [0, 0, 0, 0, advise, 0, 0, 0], &index);
        let second = encode(&Settings::Lz4, content[1]);
        let zeros = encode(&Settings::Lz4, &vec![0; block]);
        for (number, stored) in (5..).zip([&lz4, &second, &zeros, &noise, &tail]) {
            hand.put((number + 1) * block - stored.len(), stored);
        }
        images.push((name, hand));
    }
    let rare = |(name, hand): (_, Hand)| RareImage {
        name,
        image: hand.0,
        content: content.concat(),
    };
    images.into_iter().map(rare).collect()
}
