//! A leaf under construction, and a finished block.

use zerocopy::{FromBytes, IntoBytes};

use crate::disk::key::Key;
use crate::disk::raw;

pub(super) const HEADER_BYTES: usize = size_of::<raw::BlockHeader>();
pub(crate) const ITEM_BYTES: usize = size_of::<raw::LeafItem>();

/// Bytes of a leaf available for items and their data.
pub(crate) const fn leaf_bytes(nodesize: u32) -> usize {
    nodesize as usize - HEADER_BYTES
}

/// Largest data of one item in bytes.
pub(crate) const fn item_bytes_max(nodesize: u32) -> usize {
    leaf_bytes(nodesize) - ITEM_BYTES
}

/// A block of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BuiltBlock {
    /// Its first key.
    pub(crate) first: Key,
    pub(crate) index: usize,
    /// Number of items or of children.
    pub(crate) count: usize,
}

/// A leaf under construction.
pub(super) struct Leaf {
    pub(super) block: Vec<u8>,
    pub(super) items: usize,
    /// The start of the items' data.
    data_at: usize,
    pub(super) first: Key,
    pub(super) last: Key,
}

impl Leaf {
    pub(super) fn new(nodesize: u32) -> Leaf {
        Leaf {
            block: vec![0; nodesize as usize],
            items: 0,
            data_at: nodesize as usize,
            first: Key::MIN,
            last: Key::MIN,
        }
    }

    pub(super) fn clear(&mut self) {
        self.items = 0;
        self.data_at = self.block.len();
    }

    fn heads_end(&self) -> usize {
        HEADER_BYTES + self.items * ITEM_BYTES
    }

    /// Bytes of items and their data.
    pub(super) fn used(&self) -> usize {
        self.heads_end() - HEADER_BYTES + self.block.len() - self.data_at
    }

    /// Appends an item whose data is the concatenation of these parts; returns whether there was
    /// room.
    pub(super) fn add(&mut self, key: Key, parts: &[&[u8]]) -> bool {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let head = self.heads_end();
        if self.data_at < head + ITEM_BYTES + len {
            return false;
        }
        if self.items == 0 {
            self.first = key;
        }
        self.last = key;
        self.data_at -= len;
        let mut at = self.data_at;
        for part in parts {
            self.block[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let item = raw::LeafItem {
            key: key.emit(),
            offset: ((self.data_at - HEADER_BYTES) as u32).into(),
            size: (len as u32).into(),
        };
        self.block[head..head + ITEM_BYTES].copy_from_slice(item.as_bytes());
        self.items += 1;
        true
    }

    /// The items and their data, as they are stored after the header.
    pub(super) fn body(&mut self) -> &[u8] {
        let heads_end = self.heads_end();
        self.block[heads_end..self.data_at].fill(0);
        &self.block[HEADER_BYTES..]
    }

    /// The key and the data of an item.
    pub(super) fn item(&self, index: usize) -> (Key, &[u8]) {
        let head = HEADER_BYTES + index * ITEM_BYTES;
        let item = raw::LeafItem::ref_from_bytes(&self.block[head..head + ITEM_BYTES]);
        let item = item.expect("it has the size of an item");
        let from = HEADER_BYTES + item.offset.get() as usize;
        let data = &self.block[from..from + item.size.get() as usize];
        (Key::parse(&item.key), data)
    }
}
