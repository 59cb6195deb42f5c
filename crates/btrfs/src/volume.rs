//! The state for reading the trees of an open file system: devices, caches and decoders.

use std::sync::{Arc, Mutex, PoisonError};

use codec::Decoder;
use tree::{Cache, ReadAt, Result};

use crate::address_space::AddressSpace;
use crate::extent::DataExtent;
use crate::key::Logical;
use crate::node::{Expected, Node};
use crate::superblock::Superblock;

/// Bytes of tree blocks in the cache.
const NODE_BYTES_KEPT: usize = 16 << 20;
const NODE_SHARDS: usize = 16;
/// Number of decoded extents in the cache, of at most 128 KiB each.
const EXTENT_SLOTS: (usize, usize) = (8, 8);

/// An open file system, below the level of its trees.
pub(crate) struct Volume {
    pub(crate) superblock: Superblock,
    pub(crate) space: AddressSpace,
    nodes: Cache<Node>,
    pub(crate) extents: Cache<Decoded>,
    workers: Mutex<Vec<Worker>>,
}

/// A decoded extent in the cache.
pub(crate) struct Decoded {
    /// The cache is keyed by address, but a damaged image may claim two extents for the same bytes.
    pub(crate) extent: DataExtent,
    pub(crate) content: Box<[u8]>,
}

/// What one thread needs to read and decode an extent.
#[derive(Default)]
pub(crate) struct Worker {
    pub(crate) decoder: Decoder,
    pub(crate) stored: Vec<u8>,
    pub(crate) checksums: Vec<u8>,
}

impl Volume {
    /// Like [`AddressSpace::open`].
    pub(crate) fn open(sources: Vec<Box<dyn ReadAt>>) -> Result<Volume> {
        let (space, superblock) = AddressSpace::open(sources)?;
        let slots = NODE_BYTES_KEPT / NODE_SHARDS / superblock.nodesize as usize;
        Ok(Volume {
            superblock,
            space,
            nodes: Cache::new(NODE_SHARDS, slots),
            extents: Cache::new(EXTENT_SLOTS.0, EXTENT_SLOTS.1),
            workers: Mutex::default(),
        })
    }

    /// The tree block at an address, from the cache or from the first intact copy.
    pub(crate) fn node(&self, at: Logical, expected: &Expected) -> Result<Arc<Node>> {
        let node = self.nodes.find_or_make(at.0, |_| {
            Node::read(&self.space, &self.superblock, at, expected)
        })?;
        node.check_place(expected)?;
        Ok(node)
    }

    pub(crate) fn with_worker<T>(&self, run: impl FnOnce(&mut Worker) -> Result<T>) -> Result<T> {
        let pool = || self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut worker = pool().pop().unwrap_or_default();
        let result = run(&mut worker);
        pool().push(worker);
        result
    }
}
