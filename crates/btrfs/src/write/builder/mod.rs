//! Builds a tree bottom-up from items that arrive in key order.
//!
//! Leaves are filled one after another, each in the next free block; then each level above them. So
//! a tree's blocks are contiguous, and their number depends only on the items. The code that writes
//! a tree therefore also measures it.
//!
//! A tree can share blocks with an earlier one, its base, as a snapshot does: see [`Shape`].

use tree::{Error, Result};
use xxhash::Xxh64;
use zerocopy::IntoBytes;

use crate::disk::checksum::ChecksumType;
use crate::disk::key::Key;
use crate::disk::raw::{self, CHECKSUM_BYTES, HEADER_BACKREF_REVISION_1, HEADER_WRITTEN};
use crate::write::devices::Devices;
use crate::write::layout::NewGroup;

mod leaf;
mod shape;
mod shared;

use leaf::{BuiltBlock, HEADER_BYTES, Leaf};
pub(crate) use leaf::{ITEM_BYTES, item_bytes_max, leaf_bytes};
pub(crate) use shape::Shape;
use shape::{LeafSharing, plan_nodes};

const KEY_PTR_BYTES: usize = size_of::<raw::KeyPtr>();

/// Size of the largest tree block, in bytes.
const NODE_BYTES_MAX: u32 = 64 << 10;

/// Bytes of blocks collected before they are written.
const PENDING_BYTES: usize = 1 << 20;

/// The header fields common to all blocks of a file system.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) fsid: [u8; 16],
    pub(crate) chunk_tree_uuid: [u8; 16],
    pub(crate) checksum: ChecksumType,
    pub(crate) generation: u64,
}

/// Destination of tree blocks.
pub(crate) struct Blocks<'a> {
    nodesize: u32,
    /// Number of blocks handed out so far.
    next: usize,
    target: BlockSink<'a>,
}

enum BlockSink<'a> {
    /// Nowhere: blocks are only counted, and the content of items is hashed.
    Measure(Box<(Xxh64, Xxh64)>),
    /// These groups, filled one block after another.
    Write {
        devices: &'a Devices<'a>,
        groups: &'a [NewGroup],
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
            target: BlockSink::Measure(Box::new((Xxh64::new(1), Xxh64::new(2)))),
        }
    }

    pub(crate) fn write(
        nodesize: u32,
        devices: &'a Devices<'a>,
        groups: &'a [NewGroup],
        identity: Identity,
    ) -> Self {
        Blocks {
            nodesize,
            next: 0,
            target: BlockSink::Write {
                devices,
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
        if let BlockSink::Measure(hashes) = &self.target {
            digest[..8].copy_from_slice(&hashes.0.digest().to_le_bytes());
            digest[8..].copy_from_slice(&hashes.1.digest().to_le_bytes());
        }
        digest
    }

    fn hash(&mut self, bytes: &[u8]) {
        if let BlockSink::Measure(hashes) = &mut self.target {
            hashes.0.update(bytes);
            hashes.1.update(bytes);
        }
    }

    /// The address of a block by index; 0 if blocks are only counted.
    fn place(&self, index: usize) -> u64 {
        match &self.target {
            BlockSink::Measure(_) => 0,
            BlockSink::Write { groups, .. } => address(groups, self.nodesize, index),
        }
    }

    /// The generation of all blocks; `None` if they are only counted.
    fn generation(&self) -> Option<u64> {
        match &self.target {
            BlockSink::Measure(_) => None,
            BlockSink::Write { identity, .. } => Some(identity.generation),
        }
    }

    /// Takes a finished block, complete except for its header, and returns its index.
    fn put(&mut self, block: &mut [u8], owner: u64, level: u8, items: usize) -> Result<usize> {
        let index = self.next;
        self.next += 1;
        let BlockSink::Write {
            devices,
            groups,
            identity,
            pending,
            pending_at,
        } = &mut self.target
        else {
            return Ok(index);
        };
        let at = address(groups, self.nodesize, index);
        let header = raw::BlockHeader {
            csum: [0; CHECKSUM_BYTES],
            fsid: identity.fsid,
            bytenr: at.into(),
            flags: (HEADER_WRITTEN | HEADER_BACKREF_REVISION_1).into(),
            chunk_tree_uuid: identity.chunk_tree_uuid,
            generation: identity.generation.into(),
            owner: owner.into(),
            nritems: (items as u32).into(),
            level,
        };
        block[..HEADER_BYTES].copy_from_slice(header.as_bytes());
        let sum = identity.checksum.of(&block[CHECKSUM_BYTES..]);
        block[..CHECKSUM_BYTES].copy_from_slice(&sum);
        if *pending_at + pending.len() as u64 != at || pending.len() >= PENDING_BYTES {
            write_pending(devices, groups, pending, *pending_at)?;
            *pending_at = at;
        }
        pending.extend_from_slice(block);
        Ok(index)
    }

    /// Writes the pending blocks.
    pub(crate) fn finish(mut self) -> Result<()> {
        if let BlockSink::Write {
            devices,
            groups,
            pending,
            pending_at,
            ..
        } = &mut self.target
        {
            write_pending(devices, groups, pending, *pending_at)?;
        }
        Ok(())
    }
}

/// The address of the block with this index: groups are filled one after another.
pub(crate) fn address(groups: &[NewGroup], nodesize: u32, index: usize) -> u64 {
    let mut left = index as u64 * u64::from(nodesize);
    for group in groups {
        let len = group.chunk.len - group.chunk.len % u64::from(nodesize);
        if left < len {
            return group.start() + left;
        }
        left -= len;
    }
    unreachable!("there is room for all blocks that were measured")
}

/// Writes consecutive blocks to every copy; they may cross the border of a group.
fn write_pending(
    devices: &Devices<'_>,
    groups: &[NewGroup],
    pending: &mut Vec<u8>,
    at: u64,
) -> Result<()> {
    let end = at + pending.len() as u64;
    for group in groups {
        let from = at.max(group.start());
        let to = end.min(group.chunk.end().0);
        if from < to {
            let part = &pending[(from - at) as usize..(to - at) as usize];
            devices.write_all_at(&group.chunk, part, from)?;
        }
    }
    pending.clear();
    Ok(())
}

/// A finished tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BuiltTree {
    /// Its root block.
    pub(crate) at: u64,
    /// Number of blocks at each level, leaves first, without those of other trees.
    pub(crate) levels: Vec<u32>,
    /// Number of blocks of other trees that are in this one.
    pub(crate) reused: usize,
}

impl BuiltTree {
    /// Level of the root block.
    pub(crate) fn level(&self) -> u8 {
        self.levels.len().saturating_sub(1) as u8
    }

    /// Total number of its own blocks.
    pub(crate) fn blocks(&self) -> usize {
        self.levels.iter().map(|&count| count as usize).sum()
    }
}

/// A tree under construction.
pub(crate) struct TreeBuilder<'b, 'a> {
    blocks: &'b mut Blocks<'a>,
    owner: u64,
    /// Index of its first own block.
    begin: usize,
    open: Leaf,
    last: Option<Key>,
    leaves: Vec<BuiltBlock>,
    sharing: Option<LeafSharing<'b>>,
}

impl<'b, 'a> TreeBuilder<'b, 'a> {
    pub(crate) fn new(blocks: &'b mut Blocks<'a>, owner: u64) -> Self {
        TreeBuilder {
            owner,
            begin: blocks.next,
            open: Leaf::new(blocks.nodesize),
            last: None,
            leaves: Vec::new(),
            sharing: None,
            blocks,
        }
    }

    pub(crate) fn nodesize(&self) -> u32 {
        self.blocks.nodesize
    }

    /// Appends an item whose data is the concatenation of these parts. Its key must be larger than
    /// the previous one.
    pub(crate) fn push(&mut self, key: Key, parts: &[&[u8]]) -> Result<()> {
        debug_assert!(self.last < Some(key), "{:?} before {key}", self.last);
        self.last = Some(key);
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len > item_bytes_max(self.nodesize()) {
            return Err(Error::Limit(if len > item_bytes_max(NODE_BYTES_MAX) {
                "names with equal hashes do not fit in any tree block"
            } else {
                "names with equal hashes do not fit in a tree block; a larger --nodesize holds them"
            }));
        }
        if self.try_shared(key, parts)? {
            Ok(())
        } else {
            self.append(key, parts)
        }
    }

    /// Appends an item to the open leaf or to a new one.
    fn append(&mut self, key: Key, parts: &[&[u8]]) -> Result<()> {
        if !self.open.add(key, parts) {
            self.end_leaf()?;
            self.open.add(key, parts);
        }
        Ok(())
    }

    fn end_leaf(&mut self) -> Result<()> {
        let body = self.open.body();
        self.blocks.hash(body);
        if let Some(sharing) = &mut self.sharing {
            sharing.digests.push(tree::sha256(body));
        }
        let items = self.open.items;
        let index = (self.blocks).put(&mut self.open.block, self.owner, 0, items)?;
        self.leaves.push(BuiltBlock {
            first: self.open.first,
            index,
            count: items,
        });
        self.open.clear();
        Ok(())
    }

    /// Closes the last leaf and builds the levels above. A tree without items has one empty leaf.
    pub(crate) fn finish(self) -> Result<BuiltTree> {
        Ok(self.finish_shape()?.0)
    }

    /// Finishes the tree, and returns the shape by which later ones share its blocks.
    pub(crate) fn finish_shape(mut self) -> Result<(BuiltTree, Shape)> {
        self.end_trial()?;
        if self.open.items > 0 || self.leaves.is_empty() {
            self.end_leaf()?;
        }
        self.own_only_leaf()?;
        let mut shape = Shape::default();
        let sharing = self.sharing.take();
        let base = sharing.as_ref().and_then(|sharing| sharing.base);
        let mut own = BuiltTree::default();
        let mut below = std::mem::take(&mut self.leaves);
        loop {
            let count = below.iter().filter(|block| block.index >= self.begin);
            let count = count.count();
            own.levels.push(count as u32);
            own.reused += below.len() - count;
            if below.len() == 1 {
                break;
            }
            let level = own.levels.len() as u8;
            if level >= raw::LEVELS_MAX {
                return Err(Error::Limit("a tree of more than eight levels"));
            }
            let fanout = leaf_bytes(self.nodesize()) / KEY_PTR_BYTES;
            let mut nodes = Vec::with_capacity(below.len().div_ceil(fanout));
            for node in plan_nodes(&below, base, level, fanout) {
                let children = &below[node.children];
                let (first, count) = (children[0].first, children.len());
                let index = match node.reused {
                    Some(index) => index,
                    None => {
                        let others = children.iter().map(|child| child.index);
                        shape
                            .reused
                            .extend(others.filter(|&index| index < self.begin));
                        self.put_node(children, level)?
                    }
                };
                nodes.push(BuiltBlock {
                    first,
                    index,
                    count,
                });
            }
            shape.levels.push(std::mem::replace(&mut below, nodes));
        }
        own.at = self.blocks.place(below[0].index);
        // Linux never shares a root.
        if let Some(sharing) = sharing {
            shape.digests = sharing.digests;
            shape.ranges = sharing.ranges;
        }
        Ok((own, shape))
    }

    fn put_node(&mut self, children: &[BuiltBlock], level: u8) -> Result<usize> {
        if let Some(generation) = self.blocks.generation() {
            let block = &mut self.open.block;
            block.fill(0);
            let pointers = block[HEADER_BYTES..].chunks_exact_mut(KEY_PTR_BYTES);
            for (pointer, child) in pointers.zip(children) {
                let raw = raw::KeyPtr {
                    key: child.first.emit(),
                    blockptr: self.blocks.place(child.index).into(),
                    generation: generation.into(),
                };
                pointer.copy_from_slice(raw.as_bytes());
            }
        }
        let block = &mut self.open.block;
        self.blocks.put(block, self.owner, level, children.len())
    }
}
