//! Builds a tree bottom-up from items that arrive in key order.
//!
//! Leaves are filled one after another, each in the next free block; then each level above them. So a tree's blocks are
//! contiguous, and their number depends only on the sizes of the items. The code that writes a tree therefore also
//! measures it.

use tree::{Error, Output, Result};
use xxhash::Xxh64;
use zerocopy::IntoBytes;

use crate::checksum::ChecksumType;
use crate::key::Key;
use crate::layout::Group;
use crate::raw::{self, CHECKSUM_BYTES, HEADER_BACKREF_REVISION_1, HEADER_WRITTEN};

const HEADER_BYTES: usize = size_of::<raw::Header>();
pub(crate) const ITEM_BYTES: usize = size_of::<raw::Item>();
const KEY_PTR_BYTES: usize = size_of::<raw::KeyPtr>();

/// Bytes of blocks collected before they are written.
const PENDING_BYTES: usize = 1 << 20;

/// The generation of everything in an image that was never mounted.
pub(crate) const GENERATION: u64 = 1;

/// Bytes of a leaf available for items and their data.
pub(crate) const fn leaf_bytes(nodesize: u32) -> usize {
    nodesize as usize - HEADER_BYTES
}

/// Largest data of one item in bytes.
pub(crate) const fn item_bytes_max(nodesize: u32) -> usize {
    leaf_bytes(nodesize) - ITEM_BYTES
}

/// The header fields common to all blocks of a file system.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) fsid: [u8; 16],
    pub(crate) chunk_tree_uuid: [u8; 16],
    pub(crate) checksum: ChecksumType,
}

/// Destination of tree blocks.
pub(crate) struct Blocks<'a> {
    nodesize: u32,
    /// Number of blocks handed out so far.
    next: usize,
    target: Target<'a>,
}

enum Target<'a> {
    /// Nowhere: blocks are only counted, and the content of items is hashed.
    Measure(Box<(Xxh64, Xxh64)>),
    /// These groups, filled one block after another.
    Write {
        output: &'a Output,
        groups: &'a [Group],
        identity: Identity,
        pending: Vec<u8>,
        /// The address of the first pending block.
        pending_at: u64,
    },
}

impl<'a> Blocks<'a> {
    pub(crate) fn measure(nodesize: u32) -> Self {
        Blocks {
            nodesize,
            next: 0,
            target: Target::Measure(Box::new((Xxh64::new(1), Xxh64::new(2)))),
        }
    }

    pub(crate) fn write(
        nodesize: u32,
        output: &'a Output,
        groups: &'a [Group],
        identity: Identity,
    ) -> Self {
        Blocks {
            nodesize,
            next: 0,
            target: Target::Write {
                output,
                groups,
                identity,
                pending: Vec::new(),
                pending_at: 0,
            },
        }
    }

    /// A hash of all measured items.
    pub(crate) fn digest(&self) -> [u8; 16] {
        let mut digest = [0; 16];
        if let Target::Measure(hashes) = &self.target {
            digest[..8].copy_from_slice(&hashes.0.digest().to_le_bytes());
            digest[8..].copy_from_slice(&hashes.1.digest().to_le_bytes());
        }
        digest
    }

    fn hash(&mut self, bytes: &[u8]) {
        if let Target::Measure(hashes) = &mut self.target {
            hashes.0.update(bytes);
            hashes.1.update(bytes);
        }
    }

    fn is_writing(&self) -> bool {
        matches!(self.target, Target::Write { .. })
    }

    /// Takes a finished block, complete except for its header, and returns its address.
    fn put(&mut self, block: &mut [u8], owner: u64, level: u8, items: usize) -> Result<u64> {
        let index = self.next;
        self.next += 1;
        let Target::Write {
            output,
            groups,
            identity,
            pending,
            pending_at,
        } = &mut self.target
        else {
            return Ok(0);
        };
        let at = address(groups, self.nodesize, index);
        let header = raw::Header {
            csum: [0; CHECKSUM_BYTES],
            fsid: identity.fsid,
            bytenr: at.into(),
            flags: (HEADER_WRITTEN | HEADER_BACKREF_REVISION_1).into(),
            chunk_tree_uuid: identity.chunk_tree_uuid,
            generation: GENERATION.into(),
            owner: owner.into(),
            nritems: (items as u32).into(),
            level,
        };
        block[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        let sum = identity.checksum.of(&block[CHECKSUM_BYTES..]);
        block[..CHECKSUM_BYTES].copy_from_slice(&sum);
        if *pending_at + pending.len() as u64 != at || pending.len() >= PENDING_BYTES {
            write_pending(output, groups, pending, *pending_at)?;
            *pending_at = at;
        }
        pending.extend_from_slice(block);
        Ok(at)
    }

    /// Writes the pending blocks.
    pub(crate) fn finish(mut self) -> Result<()> {
        if let Target::Write {
            output,
            groups,
            pending,
            pending_at,
            ..
        } = &mut self.target
        {
            write_pending(output, groups, pending, *pending_at)?;
        }
        Ok(())
    }
}

/// The address of the block with this index: groups are filled one after another.
pub(crate) fn address(groups: &[Group], nodesize: u32, index: usize) -> u64 {
    let mut left = index as u64 * u64::from(nodesize);
    for group in groups {
        let len = group.len - group.len % u64::from(nodesize);
        if left < len {
            return group.start + left;
        }
        left -= len;
    }
    unreachable!("there is room for all blocks that were measured")
}

/// Writes consecutive blocks to every copy; they may cross the border of a group.
fn write_pending(output: &Output, groups: &[Group], pending: &mut Vec<u8>, at: u64) -> Result<()> {
    let end = at + pending.len() as u64;
    for group in groups {
        let from = at.max(group.start);
        let to = end.min(group.start + group.len);
        if from < to {
            let part = &pending[(from - at) as usize..(to - at) as usize];
            for &stripe in &group.stripes {
                output.write_all_at(part, stripe + (from - group.start))?;
            }
        }
    }
    pending.clear();
    Ok(())
}

/// A finished tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Root {
    /// Its root block.
    pub(crate) at: u64,
    /// Number of blocks at each level, leaves first.
    pub(crate) levels: Vec<u32>,
}

impl Root {
    /// Level of the root block.
    pub(crate) fn level(&self) -> u8 {
        self.levels.len().saturating_sub(1) as u8
    }

    /// Total number of blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.levels.iter().map(|&count| count as usize).sum()
    }
}

/// A tree under construction.
pub(crate) struct TreeBuilder<'b, 'a> {
    blocks: &'b mut Blocks<'a>,
    owner: u64,
    block: Vec<u8>,
    /// Items of the open leaf, and the start of its data.
    items: usize,
    data_at: usize,
    first: Key,
    last: Option<Key>,
    /// First key and address of each leaf.
    leaves: Vec<(Key, u64)>,
}

impl<'b, 'a> TreeBuilder<'b, 'a> {
    pub(crate) fn new(blocks: &'b mut Blocks<'a>, owner: u64) -> Self {
        let nodesize = blocks.nodesize as usize;
        TreeBuilder {
            blocks,
            owner,
            block: vec![0; nodesize],
            items: 0,
            data_at: nodesize,
            first: Key::MIN,
            last: None,
            leaves: Vec::new(),
        }
    }

    pub(crate) fn nodesize(&self) -> u32 {
        self.block.len() as u32
    }

    /// Appends an item whose data is the concatenation of these parts. Its key must be larger than the previous one.
    pub(crate) fn push(&mut self, key: Key, parts: &[&[u8]]) -> Result<()> {
        debug_assert!(self.last < Some(key), "{:?} before {key}", self.last);
        self.last = Some(key);
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len > item_bytes_max(self.nodesize()) {
            return Err(Error::Limit(
                "an item that no tree block of this size holds",
            ));
        }
        let heads_end = HEADER_BYTES + (self.items + 1) * ITEM_BYTES;
        if self.data_at < heads_end + len {
            self.end_leaf()?;
        }
        if self.items == 0 {
            self.first = key;
        }
        self.data_at -= len;
        let mut at = self.data_at;
        for part in parts {
            self.block[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let item = raw::Item {
            key: key.emit(),
            offset: ((self.data_at - HEADER_BYTES) as u32).into(),
            size: (len as u32).into(),
        };
        let head = HEADER_BYTES + self.items * ITEM_BYTES;
        self.block[head..head + ITEM_BYTES].copy_from_slice(item.as_bytes());
        self.items += 1;
        Ok(())
    }

    fn end_leaf(&mut self) -> Result<()> {
        let heads_end = HEADER_BYTES + self.items * ITEM_BYTES;
        self.block[heads_end..self.data_at].fill(0);
        self.blocks.hash(&self.block[HEADER_BYTES..]);
        let at = self
            .blocks
            .put(&mut self.block, self.owner, 0, self.items)?;
        self.leaves.push((self.first, at));
        self.items = 0;
        self.data_at = self.block.len();
        Ok(())
    }

    /// Closes the last leaf and builds the levels above. A tree without items has one empty leaf.
    pub(crate) fn finish(mut self) -> Result<Root> {
        if self.items > 0 || self.leaves.is_empty() {
            self.end_leaf()?;
        }
        let mut below = std::mem::take(&mut self.leaves);
        let mut levels = vec![below.len() as u32];
        while below.len() > 1 {
            let level = levels.len() as u8;
            if level >= raw::LEVELS_MAX {
                return Err(Error::Limit("a tree of more than eight levels"));
            }
            let fanout = leaf_bytes(self.nodesize()) / KEY_PTR_BYTES;
            let mut nodes = Vec::with_capacity(below.len().div_ceil(fanout));
            for children in below.chunks(fanout) {
                if self.blocks.is_writing() {
                    self.block.fill(0);
                    let pointers = self.block[HEADER_BYTES..].chunks_exact_mut(KEY_PTR_BYTES);
                    for (pointer, (key, at)) in pointers.zip(children) {
                        let raw = raw::KeyPtr {
                            key: key.emit(),
                            blockptr: (*at).into(),
                            generation: GENERATION.into(),
                        };
                        pointer.copy_from_slice(raw.as_bytes());
                    }
                }
                let count = children.len();
                let at = self.blocks.put(&mut self.block, self.owner, level, count)?;
                nodes.push((children[0].0, at));
            }
            levels.push(nodes.len() as u32);
            below = nodes;
        }
        Ok(Root {
            at: below[0].1,
            levels,
        })
    }
}
