//! Extents and their references: as recorded in the extent tree, and as collected from all trees.

use std::collections::{HashMap, HashSet};

use tree::{Result, to_u64};
use zerocopy::FromBytes;

use crate::disk::checksum::name_hash;
use crate::disk::compression::Compression;
use crate::disk::flags::{compat_ro, incompat};
use crate::disk::key::{Logical, item, object};
use crate::disk::node::{TreeBlock, TreeItem};
use crate::disk::raw;
use crate::disk::superblock::Superblock;
use crate::read::Btrfs;

/// The referrer of a block or an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Referrer {
    /// A tree: it owns the block, or the block is its root.
    Tree(u64),
    /// The parent block at this address.
    Parent(u64),
    /// A file: the extent's first byte would be at this offset in it.
    Data { root: u64, inode: u64, offset: u64 },
}

impl Referrer {
    /// The sort key of references of one type in an extent item (`hash_extent_data_ref` in the
    /// kernel).
    fn rank(self) -> u64 {
        match self {
            Referrer::Tree(id) | Referrer::Parent(id) => id,
            Referrer::Data {
                root,
                inode,
                offset,
            } => {
                let high = name_hash(!0, &root.to_le_bytes());
                let low = name_hash(!0, &inode.to_le_bytes());
                let low = name_hash(low, &offset.to_le_bytes());
                u64::from(high) << 31 ^ u64::from(low)
            }
        }
    }
}

/// The references found in the trees.
#[derive(Default)]
pub(super) struct TreeReferences {
    pub(super) list: Vec<(u64, Referrer)>,
    /// Lengths of data extents, according to files.
    pub(super) data: HashMap<u64, u64>,
    pub(super) visited: HashMap<u64, VisitedBlock>,
}

/// A tree block that was visited.
#[derive(Clone, Copy, Debug)]
pub(super) struct VisitedBlock {
    pub(super) level: u8,
    pub(super) generation: u64,
    pub(super) owner: u64,
}

impl TreeReferences {
    pub(super) fn add(&mut self, at: u64, reference: Referrer, count: usize) {
        self.list
            .extend(std::iter::repeat_n((at, reference), count));
    }

    pub(super) fn add_data(&mut self, at: u64, len: u64, reference: Referrer) {
        self.list.push((at, reference));
        // If two files disagree, the extent tree can agree with only one of them.
        let known = self.data.entry(at).or_insert(len);
        if *known != len {
            *known = u64::MAX;
        }
    }

    /// Whether a block is seen for the first time.
    pub(super) fn visit(&mut self, node: &TreeBlock) -> bool {
        let block = VisitedBlock {
            level: node.level,
            generation: node.generation.0,
            owner: node.owner,
        };
        self.visited.insert(node.at.0, block).is_none()
    }
}

/// An extent, as the extent tree records it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordedExtent {
    pub(super) at: u64,
    pub(super) len: u64,
    pub(super) is_tree_block: bool,
    pub(super) refs: u64,
    /// For a tree block, its level and the commit that wrote it.
    pub(super) level: u8,
    pub(super) generation: u64,
    /// For data, with simple quotas: the subvolume that created it; otherwise 0.
    pub(super) owner: u64,
}

/// An encoded extent, as a file refers to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Encoded {
    pub(super) at: Logical,
    /// Stored length in bytes.
    pub(super) len: u64,
    /// Decoded length in bytes.
    pub(super) ram_bytes: u64,
    pub(super) compression: Compression,
    pub(super) has_checksums: bool,
}

/// A block group.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockGroup {
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) used: u64,
    pub(super) flags: u64,
}

/// The content of the extent tree.
#[derive(Default)]
pub(super) struct ExtentTree {
    /// In ascending order of address.
    pub(super) list: Vec<RecordedExtent>,
    pub(super) references: Vec<(u64, Referrer, u64)>,
    /// Extents by address, each with one subvolume and file that refers to it.
    pub(super) files: Vec<(u64, u64, u64)>,
    full_backrefs: HashSet<u64>,
    /// Once [`finish`](Extents::finish) was called: in ascending order of address, without
    /// overlaps.
    pub(super) block_groups: Vec<BlockGroup>,
}

impl ExtentTree {
    /// A file that uses an extent, and its subvolume, if the extent tree names one.
    pub(super) fn file(&self, at: u64) -> Option<(u64, u64)> {
        let index = self.files.binary_search_by_key(&at, |file| file.0).ok()?;
        Some((self.files[index].1, self.files[index].2))
    }

    /// The path of a file that uses the extent at this address, if one can be found.
    pub(super) fn path(&self, btrfs: &Btrfs, at: u64) -> Option<Box<[u8]>> {
        let index = self.list.partition_point(|extent| extent.at <= at);
        let extent = &self.list[index.checked_sub(1)?];
        let (root, inode) = self.file(extent.at)?;
        // If the tree is damaged too, no path is found.
        btrfs.path_in(root, inode).ok()?.map(Into::into)
    }

    /// Whether the block's references are recorded by the block's address (full back references).
    pub(super) fn is_full_backref(&self, at: u64) -> bool {
        self.full_backrefs.contains(&at)
    }

    /// Adds the free ranges of a block group in order of address; adjacent ranges are one.
    pub(super) fn free_in(&self, group: &BlockGroup, free: &mut Vec<(u64, u64)>) {
        let end = group.start.saturating_add(group.len);
        let first = (self.list).partition_point(|extent| extent.at < group.start);
        let mut at = group.start;
        let within = self.list[first..].iter();
        for extent in within.take_while(|extent| extent.at < end) {
            if extent.at > at {
                free.push((at, extent.at));
            }
            at = extent.at + extent.len;
        }
        if at < end {
            free.push((at, end));
        }
    }

    /// Sorts the lists, and takes out the block groups that overlap one before them: the
    /// extents in them would count twice, or any number of times.
    pub(super) fn finish(&mut self) -> Vec<BlockGroup> {
        self.references.sort_unstable();
        self.block_groups
            .sort_by_key(|group| (group.start, group.len));
        let mut end = 0;
        let (apart, overlapping) = std::mem::take(&mut self.block_groups)
            .into_iter()
            .partition(|group| {
                let is_apart = group.start >= end;
                if is_apart {
                    end = group.start.saturating_add(group.len);
                }
                is_apart
            });
        self.block_groups = apart;
        overlapping
    }

    /// Parses a block group item.
    pub(super) fn block_group(&mut self, item: &TreeItem<'_>) -> Result<()> {
        let Ok(raw) = raw::BlockGroupItem::ref_from_bytes(item.data) else {
            return Err(item.corrupt("block group item's size is wrong", to_u64(item.data.len())));
        };
        if raw.chunk_objectid.get() != object::FIRST_CHUNK_TREE {
            let found = raw.chunk_objectid.get();
            return Err(item.corrupt("block group has no chunk", found));
        }
        if item.key.offset == 0 || raw.used.get() > item.key.offset {
            return Err(item.corrupt("block group is more than full", raw.used.get()));
        }
        self.block_groups.push(BlockGroup {
            start: item.key.objectid,
            len: item.key.offset,
            used: raw.used.get(),
            flags: raw.flags.get(),
        });
        Ok(())
    }

    /// Parses an item of the extent tree.
    pub(super) fn item(&mut self, item: &TreeItem<'_>, superblock: &Superblock) -> Result<()> {
        let at = item.key.objectid;
        let has_group_tree = superblock.compat_ro & compat_ro::BLOCK_GROUP_TREE != 0;
        let references = &mut self.references;
        match item.key.kind {
            item::EXTENT_ITEM | item::METADATA_ITEM => self.extent(item, superblock),
            item::BLOCK_GROUP_ITEM if !has_group_tree => self.block_group(item),
            item::TREE_BLOCK_REF if item.data.is_empty() => {
                references.push((at, Referrer::Tree(item.key.offset), 1));
                Ok(())
            }
            item::SHARED_BLOCK_REF if item.data.is_empty() => {
                references.push((at, Referrer::Parent(item.key.offset), 1));
                Ok(())
            }
            item::EXTENT_DATA_REF => {
                let Ok(raw) = raw::ExtentDataRef::ref_from_bytes(item.data) else {
                    return Err(
                        item.corrupt("data reference's size is wrong", to_u64(item.data.len()))
                    );
                };
                references.push((at, data_reference(raw), raw.count.get().into()));
                Ok(())
            }
            item::SHARED_DATA_REF => {
                let Ok(count) = <[u8; 4]>::try_from(item.data) else {
                    return Err(item.corrupt(
                        "shared data reference's size is wrong",
                        to_u64(item.data.len()),
                    ));
                };
                let count = u32::from_le_bytes(count).into();
                references.push((at, Referrer::Parent(item.key.offset), count));
                Ok(())
            }
            item::EXTENT_OWNER_REF => Ok(()),
            other => Err(item.corrupt(
                "item in the extent tree is of an unexpected kind",
                other.into(),
            )),
        }
    }

    fn extent(&mut self, item: &TreeItem<'_>, superblock: &Superblock) -> Result<()> {
        let sector = u64::from(superblock.sectorsize);
        let nodesize = u64::from(superblock.nodesize);
        let at = item.key.objectid;
        let Ok((raw, mut rest)) = raw::ExtentItem::ref_from_prefix(item.data) else {
            return Err(item.corrupt("extent item is too short", to_u64(item.data.len())));
        };
        let flags = raw.flags.get();
        let is_tree_block = match flags & !raw::EXTENT_FULL_BACKREF {
            raw::EXTENT_DATA => false,
            raw::EXTENT_TREE_BLOCK => true,
            _ => return Err(item.corrupt("extent item's flags are impossible", flags)),
        };
        let is_skinny = item.key.kind == item::METADATA_ITEM;
        let len = if is_skinny { nodesize } else { item.key.offset };
        if is_skinny && superblock.incompat & incompat::SKINNY_METADATA == 0 {
            return Err(item.corrupt("skinny extent item, which the superblock lacks", at));
        }
        if is_skinny && !is_tree_block || is_tree_block && len != nodesize {
            return Err(item.corrupt("extent item's kind is not its key's", len));
        }
        if !at.is_multiple_of(sector) || !len.is_multiple_of(sector) || len == 0 {
            return Err(item.corrupt("extent is not made of sectors", at));
        }
        if at.checked_add(len).is_none() {
            return Err(item.corrupt("extent ends beyond every address", len));
        }
        if raw.generation.get() > superblock.generation.0.saturating_add(1) {
            let generation = raw.generation.get();
            return Err(item.corrupt("extent is newer than the superblock", generation));
        }
        let mut level = item.key.offset;
        if is_tree_block && !is_skinny {
            let Ok((info, after)) = raw::TreeBlockInfo::ref_from_prefix(rest) else {
                return Err(
                    item.corrupt("tree block's extent item is too short", to_u64(rest.len()))
                );
            };
            rest = after;
            level = info.level.into();
        }
        let level = if is_tree_block { level } else { 0 };
        if level >= raw::LEVELS_MAX.into() {
            return Err(item.corrupt("tree block's extent has an impossible level", level));
        }
        if let Some(before) = self.list.last()
            && before.at + before.len > at
        {
            return Err(item.corrupt("extents overlap", before.at));
        }
        // In order of type; within one type, descending.
        let mut before = (0, 0);
        let mut owner = 0;
        while let Some((&kind, body)) = rest.split_first() {
            let word = || {
                let word = body.get(..8)?;
                word.try_into().ok().map(u64::from_le_bytes)
            };
            let cut = || item.corrupt("reference in an extent item is cut off", to_u64(body.len()));
            let (reference, count, size) = match kind {
                item::TREE_BLOCK_REF if is_tree_block => {
                    (Some(Referrer::Tree(word().ok_or_else(cut)?)), 1, 8)
                }
                item::SHARED_BLOCK_REF if is_tree_block => {
                    (Some(Referrer::Parent(word().ok_or_else(cut)?)), 1, 8)
                }
                item::EXTENT_DATA_REF if !is_tree_block => {
                    let (raw, _) = raw::ExtentDataRef::ref_from_prefix(body).map_err(|_| cut())?;
                    (Some(data_reference(raw)), raw.count.get().into(), 28)
                }
                item::SHARED_DATA_REF if !is_tree_block => {
                    let parent = word().ok_or_else(cut)?;
                    let count = body.get(8..12).ok_or_else(cut)?;
                    let count = u32::from_le_bytes([count[0], count[1], count[2], count[3]]);
                    (Some(Referrer::Parent(parent)), count.into(), 12)
                }
                item::EXTENT_OWNER_REF if !is_tree_block => {
                    owner = word().ok_or_else(cut)?;
                    (None, 0, 8)
                }
                other => return Err(item.corrupt("reference's type is unknown", other.into())),
            };
            rest = body.get(size..).ok_or_else(cut)?;
            let order = (kind, !reference.map_or(0, Referrer::rank));
            if order < before {
                return Err(
                    item.corrupt("references in an extent item are not in order", kind.into())
                );
            }
            before = order;
            if let Some(reference) = reference {
                self.references.push((at, reference, count));
            }
        }
        if flags & raw::EXTENT_FULL_BACKREF != 0 {
            self.full_backrefs.insert(at);
        }
        let refs = raw.refs.get();
        self.list.push(RecordedExtent {
            at,
            len,
            is_tree_block,
            refs,
            level: level as u8,
            generation: raw.generation.get(),
            owner,
        });
        Ok(())
    }
}

fn data_reference(raw: &raw::ExtentDataRef) -> Referrer {
    Referrer::Data {
        root: raw.root.get(),
        inode: raw.objectid.get(),
        offset: raw.offset.get(),
    }
}
