//! The state for reading the trees of an open file system: devices, caches and decoders.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use codec::Decoder;
use tree::{BlockCache, Cache, Error, ReadAt, Result, to_u64, to_usize};

use crate::disk::address_space::AddressSpace;
use crate::disk::extent::DataExtent;
use crate::disk::key::Logical;
use crate::disk::node::{Expected, TreeBlock};
use crate::disk::superblock::Superblock;
use crate::options::OpenOptions;

/// Bytes of tree blocks in the cache.
const NODE_BYTES_KEPT: usize = 16 << 20;
const NODE_SHARDS: usize = 16;
/// Bytes of decoded extents in the cache, of at most 128 KiB each, unless [`Volume::extents`] is
/// changed.
const EXTENT_BYTES_KEPT: usize = 8 << 20;
/// Maximum number of bytes of tree blocks that are in memory only: far more than the log of a real
/// crash changes.
const CHANGED_BYTES_MAX: u64 = 1 << 30;
/// The first address of tree blocks that are in memory only. Their addresses are odd, so that no
/// pointer on disk, which is that of a sector, leads to one.
pub(crate) const CHANGED_FROM: u64 = (1 << 63) + 1;

/// An open file system, below the level of its trees.
pub(crate) struct Volume {
    pub(crate) superblock: Superblock,
    pub(crate) space: AddressSpace,
    nodes: Cache<TreeBlock>,
    /// Tree blocks that are in memory only, by address: those that replaying the log changed.
    changed: RwLock<HashMap<Logical, Arc<TreeBlock>>>,
    next_changed: AtomicU64,
    pub(crate) extents: BlockCache<DecodedExtent>,
    workers: Mutex<Vec<ReadBuffers>>,
}

/// A decoded extent in the cache.
pub(crate) struct DecodedExtent {
    /// The cache is keyed by address, but a damaged image may claim two extents for the same bytes.
    pub(crate) extent: DataExtent,
    pub(crate) content: Box<[u8]>,
}

/// The buffers and the decoder of one thread, to read and decode extents.
#[derive(Default)]
pub(crate) struct ReadBuffers {
    pub(crate) decoder: Decoder,
    pub(crate) stored: Vec<u8>,
    pub(crate) checksums: Vec<u8>,
}

impl Volume {
    /// Like [`AddressSpace::open`].
    pub(crate) fn open(sources: Vec<Box<dyn ReadAt>>, options: &OpenOptions) -> Result<Volume> {
        let (space, superblock) = AddressSpace::open(sources, options)?;
        let slots = (NODE_BYTES_KEPT / NODE_SHARDS).checked_div(to_usize(superblock.nodesize));
        Ok(Volume {
            superblock,
            space,
            nodes: Cache::new(NODE_SHARDS, slots.unwrap_or(0)),
            changed: RwLock::default(),
            next_changed: AtomicU64::new(0),
            extents: BlockCache::new(EXTENT_BYTES_KEPT),
            workers: Mutex::default(),
        })
    }

    /// The tree block at an address: one that is in memory only, from the cache, or from the first
    /// intact copy.
    pub(crate) fn node(&self, at: Logical, expected: &Expected) -> Result<Arc<TreeBlock>> {
        if is_in_memory(at) {
            let changed = self.changed.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(node) = changed.get(&at) {
                node.check_place(expected)?;
                return Ok(Arc::clone(node));
            }
        }
        let node = self.nodes.find_or_make(at.0, |gone| {
            TreeBlock::read(&self.space, &self.superblock, at, expected, gone)
        })?;
        node.check_place(expected)?;
        Ok(node)
    }

    /// Adds a tree block that is in memory only, at the address that `make` is called with.
    pub(crate) fn add_changed(
        &self,
        make: impl FnOnce(Logical) -> Option<TreeBlock>,
    ) -> Result<Arc<TreeBlock>> {
        const FULL: Error = Error::Limit("tree blocks that replaying the log changes");
        let mut changed = self.changed.write().unwrap_or_else(PoisonError::into_inner);
        let nodesize = u64::from(self.superblock.nodesize);
        if to_u64(changed.len()).saturating_mul(nodesize) >= CHANGED_BYTES_MAX {
            return Err(FULL);
        }
        let number = self.next_changed.fetch_add(2, Ordering::Relaxed);
        let at = number.checked_add(CHANGED_FROM).map(Logical).ok_or(FULL)?;
        let node = Arc::new(make(at).ok_or(Error::Limit("bytes of an item in a tree block"))?);
        changed.insert(at, Arc::clone(&node));
        Ok(node)
    }

    /// Removes a tree block that is in memory only, if it is one.
    pub(crate) fn remove_changed(&self, at: Logical) {
        if is_in_memory(at) {
            let mut changed = self.changed.write().unwrap_or_else(PoisonError::into_inner);
            changed.remove(&at);
        }
    }

    /// Removes all tree blocks that are in memory only.
    pub(crate) fn clear_changed(&self) {
        let mut changed = self.changed.write().unwrap_or_else(PoisonError::into_inner);
        changed.clear();
    }

    pub(crate) fn with_buffers<T>(
        &self,
        run: impl FnOnce(&mut ReadBuffers) -> Result<T>,
    ) -> Result<T> {
        let pool = || self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let mut worker = pool().pop().unwrap_or_default();
        let result = run(&mut worker);
        pool().push(worker);
        result
    }
}

/// Whether a tree block at this address is in memory only.
fn is_in_memory(at: Logical) -> bool {
    !at.0.is_multiple_of(2)
}
