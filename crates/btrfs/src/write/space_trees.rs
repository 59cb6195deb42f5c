//! Writes the trees that describe used and free space: the extent tree, the free space tree, the
//! checksum tree.

use std::cmp::Reverse;

use tree::{RecordTable, Result, Scratch, high_u32, low_u32, wide_u64};
use zerocopy::IntoBytes;

use crate::disk::checksum::name_hash;
use crate::disk::flags::block_group;
use crate::disk::key::{FIRST_GENERATION, Key, item, object};
use crate::disk::raw;
use crate::write::builder::{Blocks, BuiltTree, ITEM_BYTES, TreeBuilder, address, leaf_bytes};
use crate::write::data::Area;
use crate::write::layout::{NewGroup, SECTOR_BYTES};

/// Number of checksums in one item, however large a leaf is (the kernel's `MAX_CSUM_ITEMS` with its
/// smallest page).
const SUMS_MAX: usize = 4096;

/// A reference to a data extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DataRef {
    /// Index of the extent.
    pub(crate) extent: u32,
    /// The subvolume.
    pub(crate) root: u64,
    /// The inode.
    pub(crate) ino: u64,
    /// The offset in the file where the extent's first byte is or would be.
    pub(crate) offset: u64,
}

/// The tree that owns a run of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BlockRun {
    pub(crate) owner: u64,
    pub(crate) level: u8,
    pub(crate) count: u32,
}

/// The runs of a tree's blocks.
pub(crate) fn rows(owner: u64, root: &BuiltTree) -> impl Iterator<Item = BlockRun> + '_ {
    (0..)
        .zip(&root.levels)
        .map(move |(level, &count)| BlockRun {
            owner,
            level,
            count,
        })
}

/// A reference to a tree block from a node of another tree than the one that owns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockRef {
    /// Index of the block.
    pub(crate) block: usize,
    /// The tree that the node belongs to.
    pub(crate) root: u64,
}

impl DataRef {
    fn pack(&self) -> [u32; 7] {
        [
            self.extent,
            low_u32(self.root),
            high_u32(self.root),
            low_u32(self.ino),
            high_u32(self.ino),
            low_u32(self.offset),
            high_u32(self.offset),
        ]
    }

    fn unpack([extent, root, root_high, ino, ino_high, offset, offset_high]: [u32; 7]) -> DataRef {
        DataRef {
            extent,
            root: wide_u64(root, root_high),
            ino: wide_u64(ino, ino_high),
            offset: wide_u64(offset, offset_high),
        }
    }
}

/// References to data extents.
#[derive(Debug)]
pub(crate) struct DataRefs(RecordTable<7>);

impl DataRefs {
    pub(crate) fn push(&mut self, reference: DataRef) {
        self.0.push(reference.pack());
    }

    fn get(&self, index: usize) -> Option<DataRef> {
        (index < self.0.len()).then(|| DataRef::unpack(self.0.get(index)))
    }

    fn all(&self) -> impl Iterator<Item = DataRef> {
        (0..).map_while(|index| self.get(index))
    }

    /// Sorts them. Those of one tree mostly are sorted; only if they are not, all are in memory for
    /// that.
    pub(crate) fn sort(&mut self) {
        if !self.all().is_sorted() {
            let mut all: Vec<DataRef> = self.all().collect();
            all.sort_unstable();
            for (index, reference) in all.iter().enumerate() {
                self.0.set(index, reference.pack());
            }
        }
    }
}

/// The references to extents, sorted.
#[derive(Debug)]
pub(crate) struct References {
    pub(crate) data: DataRefs,
    /// Those to blocks that trees share.
    pub(crate) blocks: Vec<BlockRef>,
}

impl References {
    pub(crate) fn new(scratch: &Scratch) -> References {
        References {
            data: DataRefs(RecordTable::new(scratch)),
            blocks: Vec::new(),
        }
    }
}

/// Emits the extent tree: the items of data extents, tree blocks and, unless they have a tree of
/// their own, block groups, in order of address.
pub(crate) fn emit_extents(
    blocks: &mut Blocks<'_>,
    generation: u64,
    groups: &[&[NewGroup]],
    area: &Area<'_>,
    references: &References,
    rows: [&[BlockRun]; 2],
    with_groups: bool,
) -> Result<BuiltTree> {
    let [data, system, metadata] = *groups else {
        unreachable!("there are three kinds of groups")
    };
    let mut builder = TreeBuilder::new(blocks, object::EXTENT_TREE);
    let (references, shared) = (&references.data, &references.blocks[..]);
    let pending_of = |groups| PendingGroups::new(if with_groups { groups } else { &[] });
    let mut pending = pending_of(data);
    let mut references = references.all().peekable();
    let mut own = Vec::new();
    for index in (0..).take(area.extent_count()) {
        let extent = area.extent(index);
        pending.before(&mut builder, extent.at, item::EXTENT_ITEM)?;
        own.clear();
        while let Some(reference) = references.next_if(|it| it.extent == index) {
            own.push(reference);
        }
        emit_data(&mut builder, extent.at, extent.len, &own)?;
    }
    pending.finish(&mut builder)?;
    let nodesize = builder.nodesize();
    for (groups, rows, mut shared) in [(system, rows[0], &[][..]), (metadata, rows[1], shared)] {
        let mut pending = pending_of(groups);
        let all = rows
            .iter()
            .flat_map(|row| std::iter::repeat_n(row, row.count as usize));
        for (index, row) in all.enumerate() {
            let at = address(groups, nodesize, index);
            pending.before(&mut builder, at, item::METADATA_ITEM)?;
            let count = shared.iter().take_while(|other| other.block == index);
            let (others, rest) = shared.split_at(count.count());
            shared = rest;
            emit_block(&mut builder, generation, at, row, others)?;
        }
        pending.finish(&mut builder)?;
    }
    builder.finish()
}

/// Emits a tree block with its references: as many inline as the kernel allows, by descending tree,
/// the others as separate items.
fn emit_block(
    builder: &mut TreeBuilder<'_, '_>,
    generation: u64,
    at: u64,
    row: &BlockRun,
    others: &[BlockRef],
) -> Result<()> {
    let mut roots: Vec<u64> = others.iter().map(|other| other.root).collect();
    roots.push(row.owner);
    roots.sort_unstable_by_key(|&root| Reverse(root));
    let extent = raw::ExtentItem {
        refs: (roots.len() as u64).into(),
        generation: generation.into(),
        flags: raw::EXTENT_TREE_BLOCK.into(),
    };
    let room = extent_item_bytes_max(builder.nodesize()) - size_of::<raw::ExtentItem>();
    let (inline, separate) = roots.split_at(roots.len().min(room / (1 + size_of::<u64>())));
    let mut item = extent.as_bytes().to_vec();
    for root in inline {
        item.push(item::TREE_BLOCK_REF);
        item.extend(root.to_le_bytes());
    }
    let key = Key::new(at, item::METADATA_ITEM, row.level.into());
    builder.push(key, &[&item])?;
    for &root in separate.iter().rev() {
        builder.push(Key::new(at, item::TREE_BLOCK_REF, root), &[])?;
    }
    Ok(())
}

/// Size of the largest extent item with inline references (`BTRFS_MAX_EXTENT_ITEM_SIZE`).
fn extent_item_bytes_max(nodesize: u32) -> usize {
    (leaf_bytes(nodesize) >> 4) - ITEM_BYTES
}

/// Block group items that are still to be emitted.
struct PendingGroups<'a>(&'a [NewGroup]);

impl<'a> PendingGroups<'a> {
    fn new(groups: &'a [NewGroup]) -> Self {
        PendingGroups(groups)
    }

    /// Emits the groups whose keys precede the item of this kind at this address.
    fn before(&mut self, builder: &mut TreeBuilder<'_, '_>, at: u64, kind: u8) -> Result<()> {
        while let Some((group, rest)) = self.0.split_first() {
            if (group.start(), item::BLOCK_GROUP_ITEM) >= (at, kind) {
                break;
            }
            emit_group(builder, group)?;
            self.0 = rest;
        }
        Ok(())
    }

    fn finish(self, builder: &mut TreeBuilder<'_, '_>) -> Result<()> {
        (self.0.iter()).try_for_each(|group| emit_group(builder, group))
    }
}

/// Emits the block group tree.
pub(crate) fn emit_groups(blocks: &mut Blocks<'_>, groups: &[&[NewGroup]]) -> Result<BuiltTree> {
    let mut builder = TreeBuilder::new(blocks, object::BLOCK_GROUP_TREE);
    let mut groups = groups.iter().copied().flatten();
    groups.try_for_each(|group| emit_group(&mut builder, group))?;
    builder.finish()
}

fn emit_group(builder: &mut TreeBuilder<'_, '_>, group: &NewGroup) -> Result<()> {
    let item = raw::BlockGroupItem {
        used: group.used.into(),
        chunk_objectid: object::FIRST_CHUNK_TREE.into(),
        flags: group.chunk.flags.into(),
    };
    let key = Key::new(group.start(), item::BLOCK_GROUP_ITEM, group.chunk.len);
    builder.push(key, &[item.as_bytes()])
}

/// The sort key of references within an item, and the key of references in separate items.
fn data_ref_hash(reference: &DataRef) -> u64 {
    let high = name_hash(u32::MAX, &reference.root.to_le_bytes());
    let low = name_hash(u32::MAX, &reference.ino.to_le_bytes());
    let low = name_hash(low, &reference.offset.to_le_bytes());
    u64::from(high) << 31 ^ u64::from(low)
}

/// Emits an extent with its references: as many inline as the kernel allows, by descending hash,
/// the others as separate items.
fn emit_data(
    builder: &mut TreeBuilder<'_, '_>,
    at: u64,
    len: u64,
    references: &[DataRef],
) -> Result<()> {
    let mut counted: Vec<(u64, raw::ExtentDataRef)> = references
        .chunk_by(|a, b| a == b)
        .map(|same| {
            let record = raw::ExtentDataRef {
                root: same[0].root.into(),
                objectid: same[0].ino.into(),
                offset: same[0].offset.into(),
                count: (same.len() as u32).into(),
            };
            (data_ref_hash(&same[0]), record)
        })
        .collect();
    counted.sort_by_key(|(hash, _)| Reverse(*hash));
    let extent = raw::ExtentItem {
        refs: (references.len() as u64).into(),
        generation: FIRST_GENERATION.into(),
        flags: raw::EXTENT_DATA.into(),
    };
    let max = extent_item_bytes_max(builder.nodesize());
    let one = 1 + size_of::<raw::ExtentDataRef>();
    let inline = counted
        .len()
        .min((max - size_of::<raw::ExtentItem>()) / one);
    let mut item = extent.as_bytes().to_vec();
    for (_, record) in &counted[..inline] {
        item.push(item::EXTENT_DATA_REF);
        item.extend(record.as_bytes());
    }
    builder.push(Key::new(at, item::EXTENT_ITEM, len), &[&item])?;
    let mut next = 0;
    for (hash, record) in counted[inline..].iter().rev() {
        // References with equal hashes each get the next free key.
        let offset = next.max(*hash);
        builder.push(
            Key::new(at, item::EXTENT_DATA_REF, offset),
            &[record.as_bytes()],
        )?;
        next = offset.wrapping_add(1);
    }
    Ok(())
}

/// Emits the free space tree. Free space in a group follows its used space.
pub(crate) fn emit_free_space(
    blocks: &mut Blocks<'_>,
    groups: &[&[NewGroup]],
) -> Result<BuiltTree> {
    let mut builder = TreeBuilder::new(blocks, object::FREE_SPACE_TREE);
    for group in groups.iter().copied().flatten() {
        let is_full = group.used == group.chunk.len;
        let info = raw::FreeSpaceInfo {
            extent_count: u32::from(!is_full).into(),
            flags: 0.into(),
        };
        let key = Key::new(group.start(), item::FREE_SPACE_INFO, group.chunk.len);
        builder.push(key, &[info.as_bytes()])?;
        if !is_full {
            let (at, len) = (group.start() + group.used, group.chunk.len - group.used);
            builder.push(Key::new(at, item::FREE_SPACE_EXTENT, len), &[])?;
        }
    }
    builder.finish()
}

/// Emits the checksum tree.
pub(crate) fn emit_sums(
    blocks: &mut Blocks<'_>,
    area: &Area<'_>,
    sum_bytes: usize,
) -> Result<BuiltTree> {
    let mut builder = TreeBuilder::new(blocks, object::CSUM_TREE);
    let most = (leaf_bytes(builder.nodesize()) - 2 * ITEM_BYTES) / sum_bytes - 1;
    let most = most.min(SUMS_MAX) as u64;
    let mut sums = area.sums.reader();
    let mut from = 0;
    for run in &area.runs {
        let mut done = 0;
        while done < run.sectors {
            let sectors = most.min(run.sectors - done);
            let bytes = sectors as usize * sum_bytes;
            let at = run.at + done * SECTOR_BYTES as u64;
            let key = Key::new(object::EXTENT_CSUM, item::EXTENT_CSUM, at);
            builder.push(key, &[sums.read(from, bytes)?])?;
            from += bytes as u64;
            done += sectors;
        }
    }
    builder.finish()
}

/// Distributes bytes over groups: each is filled before the next one is started.
pub(crate) fn set_used(groups: &mut [NewGroup], nodesize: u32, mut bytes: u64) {
    for group in groups {
        debug_assert!(group.chunk.flags & block_group::DATA == 0);
        let room = group.chunk.len - group.chunk.len % u64::from(nodesize);
        group.used = room.min(bytes);
        bytes -= group.used;
    }
}
