//! Tree blocks: leaves, which hold items, and nodes, which point at blocks one level below.

use tree::{Error, Result, to_u64, to_usize};
use zerocopy::{FromBytes, IntoBytes};

use crate::disk::address_space::AddressSpace;
use crate::disk::key::{Generation, Key, Logical, is_file_tree, object};
use crate::disk::raw::{self, CHECKSUM_BYTES};
use crate::disk::superblock::Superblock;

const HEADER_BYTES: usize = size_of::<raw::BlockHeader>();
const ITEM_BYTES: usize = size_of::<raw::LeafItem>();
const POINTER_BYTES: usize = size_of::<raw::KeyPtr>();

/// A tree block with a valid checksum, header and structure.
pub(crate) struct TreeBlock {
    bytes: Box<[u8]>,
    pub(crate) at: Logical,
    pub(crate) level: u8,
    pub(crate) generation: Generation,
    /// The tree that it was written for.
    pub(crate) owner: u64,
    /// As in [`raw::BlockHeader::flags`].
    pub(crate) flags: u64,
    count: usize,
}

/// A pointer of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pointer {
    pub(crate) key: Key,
    pub(crate) at: Logical,
    pub(crate) generation: Generation,
}

/// An item of a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeItem<'a> {
    pub(crate) key: Key,
    pub(crate) data: &'a [u8],
    /// Position of the data, for error messages: a logical address.
    pub(crate) at: u64,
}

/// The properties that a block must have at the place where it is found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub(crate) tree: u64,
    pub(crate) level: u8,
    pub(crate) generation: Generation,
    /// For a child block: its first key.
    pub(crate) first: Option<Key>,
    /// All its keys are below this one.
    pub(crate) end: Option<Key>,
}

/// The header of a block that is in memory only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewTreeBlock {
    pub(crate) at: Logical,
    pub(crate) generation: Generation,
    pub(crate) owner: u64,
    pub(crate) nodesize: u32,
}

impl NewTreeBlock {
    fn node(self, level: u8, count: usize, bytes: Box<[u8]>) -> TreeBlock {
        TreeBlock {
            bytes,
            at: self.at,
            level,
            generation: self.generation,
            owner: self.owner,
            flags: raw::HEADER_WRITTEN,
            count,
        }
    }
}

impl TreeBlock {
    /// All its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads the block at an address from the first intact copy. The memory of `gone`, another
    /// block that is no longer needed, is reused.
    pub(crate) fn read(
        space: &AddressSpace,
        superblock: &Superblock,
        at: Logical,
        expected: &Expected,
        gone: Option<TreeBlock>,
    ) -> Result<TreeBlock> {
        if !at.0.is_multiple_of(superblock.sectorsize.into()) {
            return Err(Error::corrupt(
                "tree block begins within a sector",
                at.0,
                expected.tree,
            ));
        }
        let new = || vec![0; to_usize(superblock.nodesize)].into_boxed_slice();
        let mut bytes = gone.map_or_else(new, |node| node.bytes);
        space.read_verified(at, &mut bytes, |bytes| {
            let node = TreeBlock::parse(bytes.into(), at, superblock)?;
            node.check_place(expected)?;
            Ok(node)
        })
    }

    /// A leaf with these items, which is in memory only; `None` if they do not fit.
    #[expect(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        reason = "it is made here, and `end` stays within it"
    )]
    pub(crate) fn leaf(head: NewTreeBlock, items: &[(Key, &[u8])]) -> Option<TreeBlock> {
        let mut bytes = vec![0; to_usize(head.nodesize)].into_boxed_slice();
        let room = bytes.len() - HEADER_BYTES;
        let mut end = room;
        for (index, (key, data)) in items.iter().enumerate() {
            end = end.checked_sub(data.len())?;
            if (index + 1) * ITEM_BYTES > end {
                return None;
            }
            let item = raw::LeafItem {
                key: key.emit(),
                offset: (end as u32).into(), // Less than the size of a block.
                size: (data.len() as u32).into(),
            };
            let at = HEADER_BYTES + index * ITEM_BYTES;
            bytes[at..at + ITEM_BYTES].copy_from_slice(item.as_bytes());
            bytes[HEADER_BYTES + end..][..data.len()].copy_from_slice(data);
        }
        Some(head.node(0, items.len(), bytes))
    }

    /// A node with these pointers, which is in memory only; `None` if they do not fit.
    pub(crate) fn pointing(
        head: NewTreeBlock,
        level: u8,
        pointers: &[Pointer],
    ) -> Option<TreeBlock> {
        let mut bytes = vec![0; to_usize(head.nodesize)].into_boxed_slice();
        let (_, room) = bytes.split_at_mut(HEADER_BYTES);
        let mut places = room.chunks_exact_mut(POINTER_BYTES);
        for pointer in pointers {
            let raw = raw::KeyPtr {
                key: pointer.key.emit(),
                blockptr: pointer.at.0.into(),
                generation: pointer.generation.0.into(),
            };
            places.next()?.copy_from_slice(raw.as_bytes());
        }
        Some(head.node(level, pointers.len(), bytes))
    }

    /// Parses a block of `superblock.nodesize` bytes.
    pub(crate) fn parse(
        bytes: Box<[u8]>,
        at: Logical,
        superblock: &Superblock,
    ) -> Result<TreeBlock> {
        let corrupt = |what, got| Error::corrupt(what, at.0, got);
        let (header, _) = raw::BlockHeader::ref_from_prefix(&bytes).expect("a block is longer");
        let checksum = superblock.checksum;
        if !checksum.is_of(bytes.split_at(CHECKSUM_BYTES).1, &header.csum) {
            let first = u32::from_le_bytes([
                header.csum[0],
                header.csum[1],
                header.csum[2],
                header.csum[3],
            ]);
            return Err(corrupt("tree block's checksum differs", first.into()));
        }
        if header.bytenr.get() != at.0 {
            return Err(corrupt("tree block belongs elsewhere", header.bytenr.get()));
        }
        if !superblock.is_own(&header.fsid) {
            return Err(corrupt("tree block belongs to another file system", 0));
        }
        if header.level >= raw::LEVELS_MAX {
            return Err(corrupt(
                "tree block's level is too high",
                header.level.into(),
            ));
        }
        if header.flags.get() & raw::HEADER_WRITTEN == 0 {
            return Err(corrupt("tree block was never written", header.flags.get()));
        }
        let generation = Generation(header.generation.get());
        // A log is written between two commits.
        let is_log = header.owner.get() == object::TREE_LOG;
        if generation.0 > superblock.generation.0.saturating_add(is_log.into()) {
            return Err(corrupt(
                "tree block is newer than the superblock",
                generation.0,
            ));
        }
        let count = header.nritems.get();
        let entry_bytes = if header.level == 0 {
            ITEM_BYTES
        } else {
            POINTER_BYTES
        };
        if to_usize(count)
            > bytes
                .split_at(HEADER_BYTES)
                .1
                .chunks_exact(entry_bytes)
                .len()
        {
            return Err(corrupt(
                "tree block has more entries than fit",
                count.into(),
            ));
        }
        let node = TreeBlock {
            at,
            level: header.level,
            generation,
            owner: header.owner.get(),
            flags: header.flags.get(),
            count: to_usize(count),
            bytes,
        };
        if node.level == 0 {
            node.check_leaf()?;
        } else {
            node.check_pointers(superblock)?;
        }
        Ok(node)
    }

    fn corrupt(&self, what: &'static str, got: u64) -> Error {
        Error::corrupt(what, self.at.0, got)
    }

    /// Items are packed from the end of the block downwards, without gaps, with ascending keys.
    fn check_leaf(&self) -> Result<()> {
        if self.count == 0 {
            let must_have_items = matches!(
                self.owner,
                object::ROOT_TREE
                    | object::EXTENT_TREE
                    | object::CHUNK_TREE
                    | object::DEV_TREE
                    | object::FS_TREE
                    | object::DATA_RELOC_TREE
            );
            if must_have_items {
                return Err(self.corrupt("leaf is empty in a tree that cannot be", self.owner));
            }
            return Ok(());
        }
        let mut end = to_u64(self.bytes.len().saturating_sub(HEADER_BYTES));
        let items_end = to_u64(self.count.saturating_mul(ITEM_BYTES));
        let mut before: Option<Key> = None;
        for item in self.raw_items() {
            let key = Key::parse(&item.key);
            if before.is_some_and(|before| before >= key) {
                return Err(self.corrupt("leaf's keys do not ascend", key.objectid));
            }
            before = Some(key);
            let (offset, size) = (u64::from(item.offset.get()), u64::from(item.size.get()));
            if offset.saturating_add(size) != end {
                return Err(self.corrupt("item does not end where the one before begins", offset));
            }
            if offset < items_end {
                return Err(self.corrupt("item's data overlaps the list of items", offset));
            }
            end = offset;
        }
        Ok(())
    }

    fn check_pointers(&self, superblock: &Superblock) -> Result<()> {
        if self.count == 0 {
            return Err(self.corrupt("node points at nothing", self.level.into()));
        }
        let mut before: Option<Key> = None;
        for index in 0..self.count {
            let pointer = self.pointer(index);
            if before.is_some_and(|before| before >= pointer.key) {
                return Err(self.corrupt("node's keys do not ascend", pointer.key.objectid));
            }
            before = Some(pointer.key);
            if pointer.at.0 == 0 || !pointer.at.0.is_multiple_of(superblock.sectorsize.into()) {
                return Err(self.corrupt("node's pointer is not a block's address", pointer.at.0));
            }
            if pointer.generation > self.generation {
                // A block is rewritten whenever a block below it is.
                return Err(self.corrupt("node is older than a block below", pointer.generation.0));
            }
        }
        Ok(())
    }

    /// Checks that the block matches the place where it was found.
    pub(crate) fn check_place(&self, expected: &Expected) -> Result<()> {
        if self.level != expected.level {
            return Err(self.corrupt(
                "tree block's level is not as its parent says",
                self.level.into(),
            ));
        }
        if self.generation != expected.generation {
            let got = self.generation.0;
            return Err(self.corrupt("tree block's generation is not as its parent says", got));
        }
        let is_owner = match expected.tree {
            object::TREE_RELOC => true,
            tree if is_file_tree(tree) => is_file_tree(self.owner),
            tree => tree == self.owner,
        };
        if !is_owner {
            return Err(self.corrupt("tree block belongs to another tree", self.owner));
        }
        if let Some(first) = expected.first {
            if self.count == 0 {
                return Err(self.corrupt("leaf below a node is empty", expected.tree));
            }
            if self.key(0) != first {
                let got = self.key(0).objectid;
                return Err(self.corrupt("tree block's first key is not as its parent says", got));
            }
        }
        if let Some(end) = expected.end
            && let Some(last) = self.count.checked_sub(1)
            && self.key(last) >= end
        {
            let got = self.key(last).objectid;
            return Err(self.corrupt("tree block's last key belongs to the next one", got));
        }
        Ok(())
    }

    /// Bytes of a leaf's items, or of a node's pointers, that fit in a block.
    pub(crate) fn room(nodesize: u32) -> usize {
        to_usize(nodesize).saturating_sub(HEADER_BYTES)
    }

    /// Bytes that an item takes in a leaf.
    pub(crate) fn item_bytes(data: &[u8]) -> usize {
        ITEM_BYTES.saturating_add(data.len())
    }

    /// Number of pointers that fit in a block.
    pub(crate) fn pointers_max(nodesize: u32) -> usize {
        TreeBlock::room(nodesize) / POINTER_BYTES
    }

    /// Number of items in a leaf, or pointers in a node.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    fn raw_items(&self) -> &[raw::LeafItem] {
        let (_, list) = self.bytes.split_at(HEADER_BYTES);
        let (list, _) = list.split_at(self.count.saturating_mul(ITEM_BYTES));
        <[raw::LeafItem]>::ref_from_bytes(list).expect("cut to whole items")
    }

    fn raw_pointers(&self) -> &[raw::KeyPtr] {
        let (_, list) = self.bytes.split_at(HEADER_BYTES);
        let (list, _) = list.split_at(self.count.saturating_mul(POINTER_BYTES));
        <[raw::KeyPtr]>::ref_from_bytes(list).expect("cut to whole pointers")
    }

    /// The key of an item or pointer. `index` must be below [`TreeBlock::len`].
    #[expect(clippy::indexing_slicing, reason = "the callers stay below `len`")]
    pub(crate) fn key(&self, index: usize) -> Key {
        if self.level == 0 {
            Key::parse(&self.raw_items()[index].key)
        } else {
            Key::parse(&self.raw_pointers()[index].key)
        }
    }

    /// The number of keys that are at most `key`.
    pub(crate) fn count_up_to(&self, key: Key) -> usize {
        if self.level == 0 {
            self.raw_items()
                .partition_point(|item| Key::parse(&item.key) <= key)
        } else {
            self.raw_pointers()
                .partition_point(|pointer| Key::parse(&pointer.key) <= key)
        }
    }

    /// An item of a leaf. `index` must be below [`TreeBlock::len`].
    #[expect(clippy::indexing_slicing, reason = "the callers stay below `len`")]
    pub(crate) fn item(&self, index: usize) -> TreeItem<'_> {
        let item = &self.raw_items()[index];
        let begin = HEADER_BYTES.saturating_add(to_usize(item.offset.get()));
        // `check_leaf` saw that it lies in the block.
        let (_, data) = self.bytes.split_at(begin);
        TreeItem {
            key: Key::parse(&item.key),
            data: data.split_at(to_usize(item.size.get())).0,
            at: self.at.0.saturating_add(to_u64(begin)),
        }
    }

    /// A pointer of a node. `index` must be below [`TreeBlock::len`].
    #[expect(clippy::indexing_slicing, reason = "the callers stay below `len`")]
    pub(crate) fn pointer(&self, index: usize) -> Pointer {
        let pointer = &self.raw_pointers()[index];
        Pointer {
            key: Key::parse(&pointer.key),
            at: Logical(pointer.blockptr.get()),
            generation: Generation(pointer.generation.get()),
        }
    }

    /// The properties of the child block at that pointer; `end` is the end of this block's keys.
    pub(crate) fn expected_below(&self, index: usize, tree: u64, end: Option<Key>) -> Expected {
        let pointer = self.pointer(index);
        Expected {
            tree,
            level: self.level.saturating_sub(1), // a leaf has no pointers
            generation: pointer.generation,
            first: Some(pointer.key),
            end: match index.saturating_add(1) {
                next if next < self.count => Some(self.key(next)),
                _ => end,
            },
        }
    }
}

impl TreeItem<'_> {
    /// The error for a broken rule in this item.
    pub(crate) fn corrupt(&self, what: &'static str, got: u64) -> Error {
        Error::corrupt(what, self.at, got)
    }
}
