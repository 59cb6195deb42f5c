//! All trees of a new file system: measured, laid out, written.

use std::collections::HashMap;

use codec::Settings;
use tree::{Error, FileId, Output, OutputKind, ReadAt, Result};
use zerocopy::{FromZeros, IntoBytes};

use crate::disk::chunk::{Profile, STRIPE_BYTES};
use crate::disk::compression::Compression;
use crate::disk::flags::{block_group, compat_ro, incompat};
use crate::disk::key::{Key, item, object};
use crate::disk::raw::{self, CHECKSUM_BYTES, SUPERBLOCK_BYTES};
use crate::disk::superblock::SUPERBLOCK_PLACES;
use crate::options::{CreateSummary, Options};
use crate::write::builder::{Blocks, BuiltTree, Identity, Shape, TreeBuilder};
use crate::write::data::{Area, FileContent};
use crate::write::fs_tree::{FileTrees, emit_empty, timespec};
use crate::write::layout::{
    GroupLayout, Headroom, NewGroup, SECTOR_BYTES, append_copies, append_groups, extend_data,
};
use crate::write::roots::{BuiltTrees, RootItems, Uuids};
use crate::write::space_trees::{
    BlockRef, DataRef, DataRefs, References, emit_extents, emit_free_space, emit_groups, emit_sums,
    set_used,
};

/// Maximum number of times the trees are measured until their size is stable.
const ROUNDS_MAX: usize = 32;
/// By default, one part in this many may be left free.
const FREE_PART: u64 = 25;

/// Writes the further copies of data.
fn copy_data(output: &Output, groups: &[NewGroup]) -> Result<()> {
    let mut buffer = vec![0; 1 << 20];
    for group in groups {
        let mut done = 0;
        while done < group.used && group.stripes.len() > 1 {
            let part = &mut buffer[..(group.used - done).min(1 << 20) as usize];
            output.read_exact_at(part, group.stripes[0] + done)?;
            for &copy in &group.stripes[1..] {
                output.write_all_at(part, copy + done)?;
            }
            done += part.len() as u64;
        }
    }
    Ok(())
}

/// All trees of a file system.
pub(crate) struct TreeWriter<'a> {
    options: &'a Options,
    area: &'a Area<'a>,
    trees: &'a FileTrees<'a>,
    references: References,
    /// By subvolume: its place in the order in which trees are written.
    turns: Vec<usize>,
    /// The creation time of the file system.
    time: raw::Timespec,
    uuids: Uuids,
}

impl<'a> TreeWriter<'a> {
    pub(crate) fn new(options: &'a Options, area: &'a Area<'a>, trees: &'a FileTrees<'a>) -> Self {
        let mut turns = vec![0; trees.plan.subvolumes.len()];
        for (turn, subvolume) in trees.plan.order().into_iter().enumerate() {
            turns[subvolume] = turn;
        }
        TreeWriter {
            options,
            area,
            trees,
            references: References::new(&area.scratch),
            turns,
            time: timespec(trees.time(FileId(0))),
            uuids: Uuids::default(),
        }
    }

    pub(crate) fn write(
        mut self,
        output: &Output,
        mut summary: CreateSummary,
    ) -> Result<CreateSummary> {
        let nodesize = self.options.nodesize;
        let mut roots = BuiltTrees::default();
        let mut measure = Blocks::measure(nodesize);
        let mut references = References::new(&self.area.scratch);
        self.emit_files(&mut measure, &mut roots, |subvolume, shape| {
            self.refer(subvolume, shape, &mut references.data);
            let root = self.trees.plan.subvolumes[subvolume].id;
            let blocks = shape.reused.iter();
            let blocks = blocks.map(|&block| BlockRef { block, root });
            references.blocks.extend(blocks);
        })?;
        references.data.sort();
        references.blocks.sort_unstable();
        self.references = references;
        let digest = tree::uuid_of(tree::sha256(&measure.digest()));
        let fsid = self.options.uuid.unwrap_or(digest);
        self.uuids = Uuids::of(fsid, self.options.device_uuid, &self.trees.plan.subvolumes);
        let (layout, headroom) = self.fit(&mut roots, output)?;
        output.set_len(layout.size)?;
        copy_data(output, &layout.data)?;
        let identity = Identity {
            fsid: self.uuids.fsid,
            chunk_tree_uuid: self.uuids.chunk_tree,
            checksum: self.options.checksum,
            generation: self.trees.plan.generation(),
        };
        let measured = roots.clone();
        let mut blocks = Blocks::write(nodesize, output, &layout.system, identity);
        roots.chunk = self.emit_chunks(&mut blocks, &layout)?;
        blocks.finish()?;
        let mut blocks = Blocks::write(nodesize, output, &layout.metadata, identity);
        self.emit_files(&mut blocks, &mut roots, |_, _| ())?;
        self.emit_small(&mut blocks, &layout, &measured, &mut roots)?;
        blocks.finish()?;
        let shape = |roots: &BuiltTrees| (roots.metadata_rows(), roots.chunk_rows());
        assert_eq!(
            shape(&roots),
            shape(&measured),
            "trees must not depend on the pass"
        );
        self.write_superblocks(output, &layout, &roots)?;
        summary.metadata_bytes = (layout.system.iter())
            .chain(&layout.metadata)
            .map(|group| group.used)
            .sum();
        summary.group_bytes = [&layout.data, &layout.metadata, &layout.system]
            .map(|groups| groups.iter().map(|group| group.len).sum());
        summary.image.image_bytes = layout.size;
        summary.uuid = self.uuids.fsid;
        summary.is_writable = headroom == Headroom::Change;
        summary.can_delete = headroom != Headroom::None;
        Ok(summary)
    }

    /// Collects the references from the leaves that a subvolume's tree owns to data.
    fn refer(&self, subvolume: usize, shape: &Shape, references: &mut DataRefs) {
        let (area, plan) = (self.area, self.trees.plan);
        let mut others = shape.ranges.iter().peekable();
        for file in self.trees.files(subvolume) {
            let FileContent::Extents { from, count } = area.content(file) else {
                continue;
            };
            let ino = plan.ino(file);
            for shown in area.shown(from, count) {
                let key = Key::new(ino, item::EXTENT_DATA, shown.offset);
                while others.next_if(|range| range.1 < key).is_some() {}
                if others.peek().is_some_and(|range| range.0 <= key) {
                    continue;
                }
                references.push(DataRef {
                    extent: shown.extent,
                    root: plan.subvolumes[subvolume].id,
                    ino,
                    offset: shown.offset.wrapping_sub(shown.skip.into()),
                });
            }
        }
    }

    /// Emits the trees that do not depend on the layout, and passes on the blocks that each
    /// subvolume's tree shares.
    fn emit_files(
        &self,
        blocks: &mut Blocks<'_>,
        roots: &mut BuiltTrees,
        mut each: impl FnMut(usize, &Shape),
    ) -> Result<()> {
        roots.files.clear();
        let plan = self.trees.plan;
        let order = plan.order();
        let mut needed = vec![0; order.len()];
        for &subvolume in &order {
            if let Some(base) = plan.base(subvolume) {
                needed[base] += 1;
            }
        }
        let mut shapes: HashMap<usize, Shape> = HashMap::new();
        for subvolume in order {
            let base = plan.base(subvolume);
            let shape = base.and_then(|base| shapes.get(&base));
            let (root, shape) = self.trees.emit(blocks, subvolume, shape)?;
            each(subvolume, &shape);
            roots.files.push((plan.subvolumes[subvolume].id, root));
            if let Some(base) = base {
                needed[base] -= 1;
                if needed[base] == 0 {
                    shapes.remove(&base);
                }
            }
            if needed[subvolume] > 0 {
                shapes.insert(subvolume, shape);
            }
        }
        roots.sums = emit_sums(blocks, self.area, self.options.checksum.size())?;
        Ok(())
    }

    /// Emits the trees that depend on the layout, except for the chunk tree. `measured` holds the
    /// number of blocks.
    fn emit_small(
        &self,
        blocks: &mut Blocks<'_>,
        layout: &GroupLayout,
        measured: &BuiltTrees,
        roots: &mut BuiltTrees,
    ) -> Result<()> {
        roots.data_reloc = emit_empty(blocks, object::DATA_RELOC_TREE, self.time)?;
        roots.uuid = self.uuids.emit(blocks, &self.trees.plan.subvolumes)?;
        roots.device = self.emit_device_extents(blocks, layout)?;
        roots.free_space = emit_free_space(blocks, &layout.groups())?;
        if self.options.block_group_tree {
            roots.group = emit_groups(blocks, &layout.groups())?;
        }
        roots.extent = emit_extents(
            blocks,
            self.trees.plan.generation(),
            &layout.groups(),
            self.area,
            &self.references,
            [&measured.chunk_rows(), &measured.metadata_rows()],
            !self.options.block_group_tree,
        )?;
        let items = RootItems {
            nodesize: self.options.nodesize,
            time: self.time,
            trees: self.trees,
            uuids: &self.uuids,
            turns: &self.turns,
        };
        roots.root = items.emit(blocks, roots)?;
        Ok(())
    }

    /// Lays out the groups, with as much headroom as fits.
    fn fit(&self, roots: &mut BuiltTrees, output: &Output) -> Result<(GroupLayout, Headroom)> {
        let device = match output.kind() {
            OutputKind::Device => Some(ReadAt::size(output)?),
            _ => None,
        };
        let size = match (self.options.size, self.options.slack) {
            (None, None) => device,
            (size, _) => size,
        };
        let candidates = match (size, self.options.slack) {
            (Some(_), None) => &[Headroom::Change, Headroom::Shrink, Headroom::None][..],
            (_, Some(0)) => &[Headroom::None],
            (_, Some(_)) => &[Headroom::Change],
            (None, None) => &[Headroom::Change, Headroom::Shrink],
        };
        let mut bytes_min = 0;
        for &headroom in candidates {
            let mut layout = self.measure(roots, headroom)?;
            let slack = self.options.slack.unwrap_or(0);
            layout.size = match size {
                Some(size) => size - size % SECTOR_BYTES as u64,
                None => layout
                    .end
                    .saturating_add(slack.next_multiple_of(STRIPE_BYTES))
                    .max(self.options.size_min - self.options.size_min % SECTOR_BYTES as u64),
            };
            let is_last = Some(&headroom) == candidates.last();
            let fits = match (size, self.options.slack) {
                (Some(_), _) => layout.size >= layout.end,
                (None, Some(_)) => true,
                (None, None) => {
                    is_last
                        || layout.end <= self.options.size_min
                        || layout.device_bytes()
                            <= layout.used_bytes() / FREE_PART * (FREE_PART + 1)
                }
            };
            let is_within = device.is_none_or(|bytes| layout.size <= bytes);
            if fits && is_within {
                return Ok((layout, headroom));
            }
            bytes_min = if is_within { layout.end } else { layout.size };
        }
        Err(Error::TooSmall { bytes_min })
    }

    /// Lays out the groups and measures the trees that depend on them, until both agree.
    fn measure(&self, roots: &mut BuiltTrees, headroom: Headroom) -> Result<GroupLayout> {
        let nodesize = self.options.nodesize;
        for _ in 0..ROUNDS_MAX {
            let layout = self.lay_out(roots, headroom);
            let before = roots.clone();
            let mut blocks = Blocks::measure(nodesize);
            roots.chunk = self.emit_chunks(&mut blocks, &layout)?;
            self.emit_small(&mut blocks, &layout, &before, roots)?;
            if *roots == before {
                return Ok(layout);
            }
        }
        Err(Error::Limit("the sizes of the trees do not converge"))
    }

    /// Space for trees of this size, and the free space to leave.
    fn lay_out(&self, roots: &BuiltTrees, headroom: Headroom) -> GroupLayout {
        let nodesize = u64::from(self.options.nodesize);
        let dup = match self.options.metadata {
            Profile::Dup => block_group::DUP,
            _ => 0,
        };
        let metadata = roots.metadata_blocks() * nodesize;
        let chunk = roots.chunk.blocks().max(1) as u64 * nodesize;
        let space_bytes = roots.space_blocks() * nodesize;
        let [free_chunk, free, free_data] = headroom.bytes(self.options.nodesize, space_bytes);
        let mut layout = GroupLayout {
            data: self.area.groups.clone(),
            ..GroupLayout::default()
        };
        let mut at = extend_data(&mut layout.data, self.area.end(), free_data);
        if self.options.data == Profile::Dup {
            at = append_copies(&mut layout.data, at);
        }
        let flags = block_group::SYSTEM | dup;
        let at = append_groups(&mut layout.system, at, chunk + free_chunk, flags);
        let flags = block_group::METADATA | dup;
        layout.end = append_groups(&mut layout.metadata, at, metadata + free, flags);
        // Used space determines how much is listed as free, but not the number of items, except for
        // full groups.
        set_used(&mut layout.metadata, self.options.nodesize, metadata);
        set_used(&mut layout.system, self.options.nodesize, chunk);
        layout.size = layout.end;
        layout
    }

    fn emit_chunks(&self, blocks: &mut Blocks<'_>, layout: &GroupLayout) -> Result<BuiltTree> {
        let mut builder = TreeBuilder::new(blocks, object::CHUNK_TREE);
        let key = Key::new(object::DEV_ITEMS, item::DEV_ITEM, 1);
        builder.push(key, &[self.device(layout).as_bytes()])?;
        for group in layout.all() {
            let chunk = group.emit_chunk(SECTOR_BYTES as u32, self.uuids.device);
            let key = Key::new(object::FIRST_CHUNK_TREE, item::CHUNK_ITEM, group.start);
            builder.push(key, &[&chunk])?;
        }
        builder.finish()
    }

    fn device(&self, layout: &GroupLayout) -> raw::DevItem {
        raw::DevItem {
            devid: 1.into(),
            total_bytes: layout.size.into(),
            bytes_used: layout.device_bytes().into(),
            io_align: (SECTOR_BYTES as u32).into(),
            io_width: (SECTOR_BYTES as u32).into(),
            sector_size: (SECTOR_BYTES as u32).into(),
            dev_type: 0.into(),
            generation: 0.into(),
            start_offset: 0.into(),
            dev_group: 0.into(),
            seek_speed: 0,
            bandwidth: 0,
            uuid: self.uuids.device,
            fsid: self.uuids.fsid,
        }
    }

    fn emit_device_extents(
        &self,
        blocks: &mut Blocks<'_>,
        layout: &GroupLayout,
    ) -> Result<BuiltTree> {
        let mut extents: Vec<(u64, &NewGroup)> = layout
            .all()
            .flat_map(|group| group.stripes.iter().map(move |&at| (at, group)))
            .collect();
        extents.sort_by_key(|extent| extent.0);
        let mut builder = TreeBuilder::new(blocks, object::DEV_TREE);
        for (at, group) in extents {
            let extent = raw::DevExtent {
                chunk_tree: object::CHUNK_TREE.into(),
                chunk_objectid: object::FIRST_CHUNK_TREE.into(),
                chunk_offset: group.start.into(),
                length: group.len.into(),
                chunk_tree_uuid: self.uuids.chunk_tree,
            };
            let key = Key::new(1, item::DEV_EXTENT, at);
            builder.push(key, &[extent.as_bytes()])?;
        }
        builder.finish()
    }

    /// The feature flags that readers must support.
    fn incompat(&self) -> u64 {
        let mut flags = incompat::MIXED_BACKREF
            | incompat::EXTENDED_IREF
            | incompat::SKINNY_METADATA
            | incompat::NO_HOLES;
        if self.options.nodesize as usize > SECTOR_BYTES {
            flags |= incompat::BIG_METADATA;
        }
        if self.trees.plan.default > 0 {
            flags |= incompat::DEFAULT_SUBVOL;
        }
        let has = |compression: Compression, settings: fn(&Settings) -> bool| {
            self.area.counts.compressed[usize::from(compression.number())] > 0
                || self.options.compression.as_ref().is_some_and(settings)
        };
        if has(Compression::Lzo, |settings| {
            matches!(settings, Settings::Lzo | Settings::LzoOptimal { .. })
        }) {
            flags |= incompat::COMPRESS_LZO;
        }
        if has(Compression::Zstd, |settings| {
            matches!(settings, Settings::Zstd { .. })
        }) {
            flags |= incompat::COMPRESS_ZSTD;
        }
        flags
    }

    /// Writes all copies of the superblock, the first one last.
    fn write_superblocks(
        &self,
        output: &Output,
        layout: &GroupLayout,
        roots: &BuiltTrees,
    ) -> Result<()> {
        let mut superblock = raw::Superblock::new_zeroed();
        superblock.fsid = self.uuids.fsid;
        superblock.flags = 1.into();
        superblock.magic = raw::MAGIC;
        let generation = self.trees.plan.generation();
        superblock.generation = generation.into();
        superblock.root = roots.root.at.into();
        superblock.root_level = roots.root.level();
        superblock.chunk_root = roots.chunk.at.into();
        superblock.chunk_root_level = roots.chunk.level();
        superblock.chunk_root_generation = generation.into();
        superblock.total_bytes = layout.size.into();
        let used: u64 = layout.all().map(|group| group.used).sum();
        superblock.bytes_used = used.into();
        superblock.root_dir_objectid = object::ROOT_TREE_DIR.into();
        superblock.num_devices = 1.into();
        superblock.sectorsize = (SECTOR_BYTES as u32).into();
        superblock.nodesize = self.options.nodesize.into();
        superblock.unused_leafsize = self.options.nodesize.into();
        superblock.stripesize = (SECTOR_BYTES as u32).into();
        let mut features = compat_ro::FREE_SPACE_TREE | compat_ro::FREE_SPACE_TREE_VALID;
        if self.options.block_group_tree {
            features |= compat_ro::BLOCK_GROUP_TREE;
        }
        superblock.compat_ro_flags = features.into();
        superblock.incompat_flags = self.incompat().into();
        superblock.csum_type = self.options.checksum.number().into();
        superblock.dev_item = self.device(layout);
        superblock.label[..self.options.label.len()].copy_from_slice(&self.options.label);
        superblock.uuid_tree_generation = generation.into();
        let mut array = Vec::new();
        for group in &layout.system {
            let key = Key::new(object::FIRST_CHUNK_TREE, item::CHUNK_ITEM, group.start);
            array.extend(key.emit().as_bytes());
            array.extend(group.emit_chunk(SECTOR_BYTES as u32, self.uuids.device));
        }
        let Some(room) = superblock.sys_chunk_array.get_mut(..array.len()) else {
            return Err(Error::Limit("the chunk tree is too large"));
        };
        room.copy_from_slice(&array);
        superblock.sys_chunk_array_size = (array.len() as u32).into();
        for place in SUPERBLOCK_PLACES.into_iter().rev() {
            if place.0 + SUPERBLOCK_BYTES as u64 > layout.size {
                continue;
            }
            superblock.bytenr = place.0.into();
            let sum = self
                .options
                .checksum
                .of(&superblock.as_bytes()[CHECKSUM_BYTES..]);
            superblock.csum = sum;
            output.write_all_at(superblock.as_bytes(), place.0)?;
        }
        Ok(())
    }
}
