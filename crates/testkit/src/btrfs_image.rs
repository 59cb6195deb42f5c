//! A btrfs image in memory, for tests with damaged images. Any byte, item or pointer can be
//! changed, and checksums are recomputed, so readers must detect the damage itself.
//!
//! It has its own parser, which trusts the image: start with a valid one. It supports a single
//! device, or one of a mirror, and CRC-32C.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use tree::ReadAt;

/// The sector size, the unit in which the image is held.
pub const SECTOR: usize = 4096;

/// The offsets of the copies of the superblock.
const SUPERBLOCKS: [u64; 3] = [64 << 10, 64 << 20, 256 << 30];
const SUPERBLOCK_BYTES: usize = 4096;
const HEADER_BYTES: usize = 101;
const ITEM_BYTES: usize = 25;
const POINTER_BYTES: usize = 33;
const ROOT_TREE: u64 = 1;
const CHUNK_TREE: u64 = 3;
const TREE_LOG: u64 = -6_i64 as u64;
const CHUNK_ITEM: u8 = 228;
const ROOT_ITEM: u8 = 132;

/// Object id, type and offset.
pub type BtrfsKey = (u64, u8, u64);

/// A sparse image: only sectors that are not all zeros are held. Clones are cheap, because they
/// share sectors until these are changed.
#[derive(Clone, Debug)]
pub struct BtrfsImage {
    size: u64,
    good: Arc<BTreeMap<u64, [u8; SECTOR]>>,
    changed: BTreeMap<u64, [u8; SECTOR]>,
}

/// An item returned by [`BtrfsImage::items`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BtrfsItem {
    /// Its key.
    pub key: BtrfsKey,
    /// Its data.
    pub data: Vec<u8>,
    /// The address of its leaf.
    pub leaf: u64,
}

/// CRC-32C, bit by bit: an implementation independent of the one under test.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// Recomputes the checksum at the beginning of a superblock or tree block.
fn seal(block: &mut [u8]) {
    let sum = crc32c(&block[32..]);
    block[..32].fill(0);
    block[..4].copy_from_slice(&sum.to_le_bytes());
}

/// The little-endian number of `len` bytes at `at`.
fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let mut word = [0; 8];
    word[..len].copy_from_slice(&bytes[at..at + len]);
    u64::from_le_bytes(word)
}

fn key_at(bytes: &[u8], at: usize) -> BtrfsKey {
    let kind = bytes[at + 8];
    (number(bytes, at, 8), kind, number(bytes, at + 9, 8))
}

fn key_bytes((objectid, kind, offset): BtrfsKey) -> [u8; 17] {
    let mut bytes = [0; 17];
    bytes[..8].copy_from_slice(&objectid.to_le_bytes());
    bytes[8] = kind;
    bytes[9..].copy_from_slice(&offset.to_le_bytes());
    bytes
}

impl BtrfsImage {
    /// An image of `size` bytes with these sectors, keyed by offset, and zeros elsewhere.
    pub fn new(size: u64, sectors: BTreeMap<u64, [u8; SECTOR]>) -> BtrfsImage {
        BtrfsImage {
            size,
            good: Arc::new(sectors),
            changed: BTreeMap::new(),
        }
    }

    /// Reads an image from a file.
    ///
    /// # Panics
    /// If it cannot be read or its size is not a multiple of the sector size.
    pub fn read_file(path: &Path) -> BtrfsImage {
        let mut file = File::open(path).expect("open the image");
        let size = file.metadata().expect("ask for its size").len();
        assert!(size.is_multiple_of(SECTOR as u64), "not made of sectors");
        let mut sectors = BTreeMap::new();
        let mut sector = [0; SECTOR];
        for at in (0..size).step_by(SECTOR) {
            file.read_exact(&mut sector).expect("read the image");
            if sector.iter().any(|&byte| byte != 0) {
                sectors.insert(at, sector);
            }
        }
        BtrfsImage::new(size, sectors)
    }

    /// Writes the image to a new file, with holes for zeros.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write_file(&self, path: &Path) {
        let file = File::create(path).expect("create the image");
        file.set_len(self.size).expect("set its size");
        for (at, sector) in self.good.iter().chain(&self.changed) {
            file.write_all_at(sector, *at).expect("write the image");
        }
    }

    /// Writes the changed sectors to a file that holds the unchanged image. With `back`, restores
    /// them instead.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write_changes(&self, file: &File, back: bool) {
        for (at, sector) in &self.changed {
            let sector = if back {
                self.good.get(at).unwrap_or(&[0; SECTOR])
            } else {
                sector
            };
            file.write_all_at(sector, *at).expect("write the image");
        }
    }

    /// The checksum of a data sector.
    pub fn checksum(sector: &[u8]) -> u32 {
        crc32c(sector)
    }

    /// The offsets of the sectors that are not all zeros.
    pub fn sectors(&self) -> impl Iterator<Item = u64> {
        self.good.keys().copied()
    }

    /// The bytes at a device offset.
    ///
    /// # Panics
    /// If they are beyond the end.
    pub fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read_exact_at(&mut bytes, at)
            .expect("read within the image");
        bytes
    }

    /// Overwrites the bytes at a device offset, without updating checksums.
    ///
    /// # Panics
    /// If they are beyond the end.
    pub fn patch(&mut self, at: u64, bytes: &[u8]) {
        assert!(at + bytes.len() as u64 <= self.size, "behind the end");
        for (index, &byte) in bytes.iter().enumerate() {
            let at = at + index as u64;
            let place = at - at % SECTOR as u64;
            let good = || *self.good.get(&place).unwrap_or(&[0; SECTOR]);
            let sector = self.changed.entry(place).or_insert_with(good);
            sector[(at - place) as usize] = byte;
        }
    }

    /// Changes every copy of the superblock.
    pub fn edit_superblock(&mut self, edit: impl Fn(&mut [u8])) {
        for (copy, at) in SUPERBLOCKS.iter().enumerate() {
            if at + SUPERBLOCK_BYTES as u64 <= self.size {
                self.edit_superblock_copy(copy, &edit);
            }
        }
    }

    /// Changes one copy of the superblock.
    pub fn edit_superblock_copy(&mut self, copy: usize, edit: impl FnOnce(&mut [u8])) {
        let at = SUPERBLOCKS[copy];
        let mut block = self.bytes(at, SUPERBLOCK_BYTES);
        edit(&mut block);
        seal(&mut block);
        self.patch(at, &block);
    }

    /// The number of `len` bytes at `at` in the superblock.
    pub fn superblock(&self, at: usize, len: usize) -> u64 {
        number(&self.bytes(SUPERBLOCKS[0], SUPERBLOCK_BYTES), at, len)
    }

    /// The block size of the original image, even if the superblock was changed.
    fn nodesize(&self) -> usize {
        number(&self.good[&SUPERBLOCKS[0]], 148, 4) as usize
    }

    /// The device offsets of an address, one for each copy.
    ///
    /// # Panics
    /// If it is not mapped, or its chunk is striped.
    pub fn places(&self, logical: u64) -> Vec<u64> {
        let system = self.bytes(SUPERBLOCKS[0] + 811, self.superblock(160, 4) as usize);
        let mut chunks = Vec::new();
        let mut at = 0;
        while at < system.len() {
            let data = system[at + 17..].to_vec();
            let len = 48 + 32 * number(&data, 44, 2) as usize;
            chunks.push((key_at(&system, at), data));
            at += 17 + len;
        }
        let within = |(key, data): &(BtrfsKey, Vec<u8>)| {
            (key.2..key.2 + number(data, 0, 8)).contains(&logical)
        };
        let found = chunks.into_iter().find(within).or_else(|| {
            let items = self.items(CHUNK_TREE).into_iter();
            let chunks = items.filter(|item| item.key.1 == CHUNK_ITEM);
            chunks.map(|item| (item.key, item.data)).find(within)
        });
        let (key, data) = found.unwrap_or_else(|| panic!("{logical} lies in no chunk"));
        assert!(number(&data, 24, 8) & !0x37 == 0, "the chunk is striped");
        // Of a mirror, only what is on this device.
        let device = self.superblock(201, 8);
        let stripes = data[48..][..32 * number(&data, 44, 2) as usize].chunks(32);
        let stripes = stripes.filter(|stripe| number(stripe, 0, 8) == device);
        stripes
            .map(|stripe| number(stripe, 8, 8) + logical - key.2)
            .collect()
    }

    /// The first copy of the tree block at an address.
    pub fn block(&self, logical: u64) -> Vec<u8> {
        self.bytes(self.places(logical)[0], self.nodesize())
    }

    /// Changes all copies of a tree block.
    pub fn edit_block(&mut self, logical: u64, edit: impl FnOnce(&mut [u8])) {
        let mut block = self.block(logical);
        edit(&mut block);
        seal(&mut block);
        for place in self.places(logical) {
            self.patch(place, &block);
        }
    }

    /// Recomputes the checksum of the tree block or superblock at a device offset.
    pub fn seal(&mut self, at: u64) {
        let len = if SUPERBLOCKS.contains(&at) {
            SUPERBLOCK_BYTES
        } else {
            self.nodesize()
        };
        let mut block = self.bytes(at, len);
        seal(&mut block);
        self.patch(at, &block);
    }

    /// The address of a tree's root block.
    ///
    /// # Panics
    /// If there is no such tree.
    pub fn root(&self, tree: u64) -> u64 {
        match tree {
            ROOT_TREE => self.superblock(80, 8),
            CHUNK_TREE => self.superblock(88, 8),
            TREE_LOG => self.superblock(96, 8),
            _ => {
                let items = self.items(ROOT_TREE);
                let mut items = items.iter();
                let root = items.find(|item| (item.key.0, item.key.1) == (tree, ROOT_ITEM));
                number(&root.expect("the tree is there").data, 176, 8)
            }
        }
    }

    /// The addresses of all blocks of a tree, parents before children.
    pub fn blocks(&self, tree: u64) -> Vec<u64> {
        let mut waiting = vec![self.root(tree)];
        let mut blocks = Vec::new();
        while let Some(at) = waiting.pop() {
            let block = self.block(at);
            blocks.push(at);
            if block[100] > 0 {
                waiting.extend(pointers(&block).iter().rev().map(|pointer| pointer.1));
            }
        }
        blocks
    }

    /// All items of a tree, in key order.
    pub fn items(&self, tree: u64) -> Vec<BtrfsItem> {
        let mut list = Vec::new();
        for leaf in self.blocks(tree) {
            let block = self.block(leaf);
            if block[100] == 0 {
                let items = items(&block).into_iter();
                list.extend(items.map(|(key, data)| BtrfsItem { key, data, leaf }));
            }
        }
        list
    }

    /// The item with this key.
    ///
    /// # Panics
    /// If there is none.
    pub fn item(&self, tree: u64, key: BtrfsKey) -> BtrfsItem {
        let items = self.items(tree);
        let found = items.into_iter().find(|item| item.key == key);
        found.unwrap_or_else(|| panic!("tree {tree} has no item {key:?}"))
    }

    /// The first item with this object ID and type.
    ///
    /// # Panics
    /// If there is none.
    pub fn item_of(&self, tree: u64, objectid: u64, kind: u8) -> BtrfsItem {
        let items = self.items(tree);
        let is_it = |item: &BtrfsItem| (item.key.0, item.key.1) == (objectid, kind);
        let found = items.into_iter().find(is_it);
        found.unwrap_or_else(|| panic!("tree {tree} has no item of {objectid} of type {kind}"))
    }

    /// Changes the data of an item, keeping its length.
    pub fn edit_item(&mut self, tree: u64, key: BtrfsKey, edit: impl FnOnce(&mut [u8])) {
        let item = self.item(tree, key);
        self.edit_block(item.leaf, |block| {
            let index = item_index(block, key);
            let head = HEADER_BYTES + index * ITEM_BYTES;
            let begin = HEADER_BYTES + number(block, head + 17, 4) as usize;
            edit(&mut block[begin..begin + item.data.len()]);
        });
    }

    /// Overwrites an item's data with `bytes`, starting at `at`.
    pub fn set(&mut self, tree: u64, key: BtrfsKey, at: usize, bytes: &[u8]) {
        self.edit_item(tree, key, |data| {
            data[at..at + bytes.len()].copy_from_slice(bytes);
        });
    }

    /// Replaces the data of an item, with any length that fits in its leaf.
    pub fn replace(&mut self, tree: u64, key: BtrfsKey, data: Vec<u8>) {
        self.edit_items(tree, self.item(tree, key).leaf, |items| {
            let item = items.iter_mut().find(|item| item.0 == key);
            item.expect("the leaf has it").1 = data;
        });
    }

    /// Changes the key of an item. The order of the leaf stays.
    pub fn rekey(&mut self, tree: u64, key: BtrfsKey, to: BtrfsKey) {
        self.edit_items(tree, self.item(tree, key).leaf, |items| {
            let item = items.iter_mut().find(|item| item.0 == key);
            item.expect("the leaf has it").0 = to;
        });
    }

    /// Removes an item. The leaf must have another one.
    pub fn remove(&mut self, tree: u64, key: BtrfsKey) {
        self.edit_items(tree, self.item(tree, key).leaf, |items| {
            items.retain(|item| item.0 != key);
        });
    }

    /// Inserts an item at its position in key order.
    ///
    /// # Panics
    /// If the leaf has no room.
    pub fn insert(&mut self, tree: u64, key: BtrfsKey, data: Vec<u8>) {
        let items = self.items(tree);
        let before = items.partition_point(|item| item.key < key);
        let leaf = items[before.saturating_sub(1)].leaf;
        self.edit_items(tree, leaf, |items| {
            let index = items.partition_point(|item| item.0 < key);
            items.insert(index, (key, data));
        });
    }

    /// Changes the items of a leaf. The keys in the nodes above it stay.
    pub fn edit_leaf(&mut self, leaf: u64, edit: impl FnOnce(&mut Vec<(BtrfsKey, Vec<u8>)>)) {
        let mut list = items(&self.block(leaf));
        edit(&mut list);
        self.edit_block(leaf, |block| write_items(block, &list));
    }

    /// Changes the items of a leaf, and the keys in the nodes above it if the first item changes.
    fn edit_items(
        &mut self,
        tree: u64,
        leaf: u64,
        edit: impl FnOnce(&mut Vec<(BtrfsKey, Vec<u8>)>),
    ) {
        let mut list = items(&self.block(leaf));
        edit(&mut list);
        let first = list.first().expect("a leaf is not empty").0;
        self.edit_block(leaf, |block| write_items(block, &list));
        let mut below = leaf;
        loop {
            let blocks = self.blocks(tree);
            let above = blocks.into_iter().find_map(|at| {
                let block = self.block(at);
                let list = if block[100] > 0 {
                    pointers(&block)
                } else {
                    Vec::new()
                };
                let index = list.iter().position(|pointer| pointer.1 == below)?;
                Some((at, index))
            });
            let Some((above, index)) = above else { break };
            self.edit_block(above, |block| {
                let at = HEADER_BYTES + index * POINTER_BYTES;
                block[at..at + 17].copy_from_slice(&key_bytes(first));
            });
            if index > 0 {
                break;
            }
            below = above;
        }
    }
}

/// The items of a leaf.
fn items(block: &[u8]) -> Vec<(BtrfsKey, Vec<u8>)> {
    let count = number(block, 96, 4) as usize;
    let item = |index| {
        let head = HEADER_BYTES + index * ITEM_BYTES;
        let begin = HEADER_BYTES + number(block, head + 17, 4) as usize;
        let len = number(block, head + 21, 4) as usize;
        (key_at(block, head), block[begin..begin + len].to_vec())
    };
    (0..count).map(item).collect()
}

fn item_index(block: &[u8], key: BtrfsKey) -> usize {
    let list = items(block);
    let index = list.iter().position(|item| item.0 == key);
    index.expect("the leaf has the item")
}

/// Keys and addresses of a node's pointers.
fn pointers(block: &[u8]) -> Vec<(BtrfsKey, u64)> {
    let count = number(block, 96, 4) as usize;
    let pointer = |index| {
        let at = HEADER_BYTES + index * POINTER_BYTES;
        (key_at(block, at), number(block, at + 17, 8))
    };
    (0..count).map(pointer).collect()
}

fn write_items(block: &mut [u8], list: &[(BtrfsKey, Vec<u8>)]) {
    let data_bytes: usize = list.iter().map(|item| item.1.len()).sum();
    let needed = HEADER_BYTES + list.len() * ITEM_BYTES + data_bytes;
    assert!(needed <= block.len(), "no room in the leaf");
    let count = list.len() as u32;
    block[96..100].copy_from_slice(&count.to_le_bytes());
    block[HEADER_BYTES..].fill(0);
    let mut end = block.len();
    for (index, (key, data)) in list.iter().enumerate() {
        end -= data.len();
        block[end..end + data.len()].copy_from_slice(data);
        let head = HEADER_BYTES + index * ITEM_BYTES;
        block[head..head + 17].copy_from_slice(&key_bytes(*key));
        let offset = (end - HEADER_BYTES) as u32;
        block[head + 17..head + 21].copy_from_slice(&offset.to_le_bytes());
        let len = data.len() as u32;
        block[head + 21..head + 25].copy_from_slice(&len.to_le_bytes());
    }
}

impl ReadAt for BtrfsImage {
    fn read_exact_at(&self, buf: &mut [u8], at: u64) -> io::Result<()> {
        let end = at.checked_add(buf.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        while done < buf.len() {
            let place = at + done as u64;
            let skip = (place % SECTOR as u64) as usize;
            let len = (SECTOR - skip).min(buf.len() - done);
            let part = &mut buf[done..done + len];
            let sector = place - skip as u64;
            match self.changed.get(&sector).or_else(|| self.good.get(&sector)) {
                Some(sector) => part.copy_from_slice(&sector[skip..skip + len]),
                None => part.fill(0),
            }
            done += len;
        }
        Ok(())
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_rfc_3720() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn changes_are_written_and_taken_back() {
        let dir = crate::TempDir::new();
        let path = dir.join("image");
        let mut image = BtrfsImage::new(8 << 20, BTreeMap::from([(4096, [7; SECTOR])]));
        image.write_file(&path);
        image.patch(8190, &[1, 2, 3]);
        assert_eq!(image.bytes(8189, 5), [7, 1, 2, 3, 0]);
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut bytes = [0; 5];
        image.write_changes(&file, false);
        FileExt::read_exact_at(&file, &mut bytes, 8189).unwrap();
        assert_eq!(bytes, [7, 1, 2, 3, 0]);
        image.write_changes(&file, true);
        FileExt::read_exact_at(&file, &mut bytes, 8189).unwrap();
        assert_eq!(bytes, [7, 7, 7, 0, 0]);
        assert_eq!(
            BtrfsImage::read_file(&path).sectors().collect::<Vec<_>>(),
            [4096]
        );
    }

    #[test]
    fn blocks_are_sealed_after_the_superblock_was_given_another_length_of_them() {
        let mut superblock = [0; SECTOR];
        superblock[148..152].copy_from_slice(&(SECTOR as u32).to_le_bytes());
        let sectors = BTreeMap::from([(SUPERBLOCKS[0], superblock), (1 << 20, [1; SECTOR])]);
        let mut image = BtrfsImage::new(2 << 20, sectors);
        image.patch(SUPERBLOCKS[0] + 148, &[0xff; 4]);
        image.seal(1 << 20);
        let block = image.bytes(1 << 20, SECTOR);
        assert_eq!(number(&block, 0, 4), u64::from(crc32c(&block[32..])));
    }
}
