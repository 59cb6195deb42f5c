//! All trees of a new file system: measured, laid out, written.

use std::collections::HashMap;

use codec::Settings;
use tree::{Error, FileId, ReadAt, Result};
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
use crate::write::devices::Devices;
use crate::write::fs_tree::{FileTrees, emit_empty, timespec};
use crate::write::layout::{GroupLayout, Headroom, NewGroup, SECTOR_BYTES};
use crate::write::roots::{BuiltTrees, RootItems, Uuids};
use crate::write::space_trees::{
    BlockRef, DataRef, DataRefs, References, emit_extents, emit_free_space, emit_groups, emit_sums,
    set_used,
};

/// Maximum number of times the trees are measured until their size is stable.
const ROUNDS_MAX: usize = 32;
/// By default, one part in this many may be left free.
const FREE_PART: u64 = 25;

/// Writes the second copies of data that follow on the same device.
fn copy_data(devices: &Devices<'_>, groups: &[NewGroup]) -> Result<()> {
    let mut buffer = vec![0; 1 << 20];
    for group in groups {
        let (Profile::Dup, [first, second]) = (group.chunk.profile, &*group.chunk.stripes) else {
            continue;
        };
        let output = devices.output(first.device);
        let mut done = 0;
        while done < group.used {
            let part = &mut buffer[..(group.used - done).min(1 << 20) as usize];
            output.read_exact_at(part, first.at.0 + done)?;
            output.write_all_at(part, second.at.0 + done)?;
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

    pub(crate) fn write(mut self, mut summary: CreateSummary) -> Result<CreateSummary> {
        let devices = self.area.devices;
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
        let device_uuids = (self.options.device_uuid, devices.outputs.len());
        self.uuids = Uuids::of(fsid, device_uuids, &self.trees.plan.subvolumes);
        let (layout, headroom) = self.fit(&mut roots)?;
        for (output, &size) in devices.outputs.iter().zip(&layout.sizes) {
            output.set_len(size)?;
        }
        copy_data(devices, &layout.data)?;
        let identity = Identity {
            fsid: self.uuids.fsid,
            chunk_tree_uuid: self.uuids.chunk_tree,
            checksum: self.options.checksum,
            generation: self.trees.plan.generation(),
        };
        let measured = roots.clone();
        let mut blocks = Blocks::write(nodesize, devices, &layout.system, identity);
        roots.chunk = self.emit_chunks(&mut blocks, &layout)?;
        blocks.finish()?;
        let mut blocks = Blocks::write(nodesize, devices, &layout.metadata, identity);
        self.emit_files(&mut blocks, &mut roots, |_, _| ())?;
        self.emit_small(&mut blocks, &layout, &measured, &mut roots)?;
        blocks.finish()?;
        let shape = |roots: &BuiltTrees| (roots.metadata_rows(), roots.chunk_rows());
        assert_eq!(
            shape(&roots),
            shape(&measured),
            "trees must not depend on the pass"
        );
        self.write_superblocks(&layout, &roots)?;
        summary.metadata_bytes = (layout.system.iter())
            .chain(&layout.metadata)
            .map(|group| group.used)
            .sum();
        summary.group_bytes = [&layout.data, &layout.metadata, &layout.system]
            .map(|groups| groups.iter().map(|group| group.chunk.len).sum());
        summary.image.image_bytes = layout.sizes.iter().sum();
        summary.device_bytes = layout.sizes;
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
    fn fit(&self, roots: &mut BuiltTrees) -> Result<(GroupLayout, Headroom)> {
        let fixed = &self.area.devices.fixed;
        let sizes = fixed.iter().enumerate().map(|(index, &fixed)| {
            let fixed = fixed.filter(|_| self.options.slack.is_none());
            self.options.size_of(index).or(fixed)
        });
        let sizes: Vec<Option<u64>> = sizes.collect();
        let is_given = sizes.iter().any(Option::is_some);
        let candidates = match (is_given, self.options.slack) {
            (true, None) => &[Headroom::Change, Headroom::Shrink, Headroom::None][..],
            (_, Some(0)) => &[Headroom::None],
            (_, Some(_)) => &[Headroom::Change],
            (false, None) => &[Headroom::Change, Headroom::Shrink],
        };
        let mut bytes_min = 0;
        for &headroom in candidates {
            let mut layout = self.measure(roots, headroom)?;
            let slack = self.options.slack.unwrap_or(0);
            let size_of = |(size, end): (&Option<u64>, &u64)| match *size {
                Some(size) => size - size % SECTOR_BYTES as u64,
                None => end
                    .saturating_add(slack.next_multiple_of(STRIPE_BYTES))
                    .max(self.options.size_min - self.options.size_min % SECTOR_BYTES as u64),
            };
            layout.sizes = sizes.iter().zip(&layout.ends).map(size_of).collect();
            let is_last = Some(&headroom) == candidates.last();
            let fits = match (is_given, self.options.slack) {
                (true, _) => layout.sizes.iter().zip(&layout.ends).all(|(a, b)| a >= b),
                (false, Some(_)) => true,
                (false, None) => {
                    let is_within = |&end: &u64| end <= self.options.size_min;
                    is_last
                        || layout.ends.iter().all(is_within)
                        || layout.device_bytes()
                            <= layout.used_bytes() / FREE_PART * (FREE_PART + 1)
                }
            };
            let mut sizes = layout.sizes.iter().zip(fixed);
            let is_within = sizes.all(|(&size, fixed)| fixed.is_none_or(|bytes| size <= bytes));
            if fits && is_within {
                return Ok((layout, headroom));
            }
            let sizes = if is_within {
                &layout.ends
            } else {
                &layout.sizes
            };
            bytes_min = sizes.iter().copied().max().unwrap_or(0);
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
        let metadata = roots.metadata_blocks() * nodesize;
        let chunk = roots.chunk.blocks().max(1) as u64 * nodesize;
        let space_bytes = roots.space_blocks() * nodesize;
        let [free_chunk, free, free_data] = headroom.bytes(self.options.nodesize, space_bytes);
        let mut layout = GroupLayout {
            data: self.area.groups.clone(),
            ..GroupLayout::default()
        };
        let (spread, profile) = (&self.area.devices.spread, self.options.metadata);
        let mut frontier = spread.finish_data(&mut layout.data, self.options.data, free_data);
        for (groups, flags, bytes) in [
            (&mut layout.system, block_group::SYSTEM, chunk + free_chunk),
            (&mut layout.metadata, block_group::METADATA, metadata + free),
        ] {
            spread.append(groups, &mut frontier, (flags, profile), bytes);
        }
        layout.ends = frontier.places;
        // Used space determines how much is listed as free, but not the number of items, except for
        // full groups.
        set_used(&mut layout.metadata, self.options.nodesize, metadata);
        set_used(&mut layout.system, self.options.nodesize, chunk);
        layout.sizes.clone_from(&layout.ends);
        layout
    }

    fn emit_chunks(&self, blocks: &mut Blocks<'_>, layout: &GroupLayout) -> Result<BuiltTree> {
        let mut builder = TreeBuilder::new(blocks, object::CHUNK_TREE);
        for id in (1..).take(layout.sizes.len()) {
            let key = Key::new(object::DEV_ITEMS, item::DEV_ITEM, id);
            builder.push(key, &[self.device(layout, id).as_bytes()])?;
        }
        for group in layout.all() {
            let chunk = group.emit_chunk(SECTOR_BYTES as u32, &self.uuids.devices);
            let key = Key::new(object::FIRST_CHUNK_TREE, item::CHUNK_ITEM, group.start());
            builder.push(key, &[&chunk])?;
        }
        builder.finish()
    }

    fn device(&self, layout: &GroupLayout, id: u64) -> raw::DevItem {
        let parts = layout.parts().filter(|part| part.0 == id);
        let used: u64 = parts.map(|(_, _, group)| group.chunk.stripe_bytes()).sum();
        raw::DevItem {
            devid: id.into(),
            total_bytes: layout.sizes[id as usize - 1].into(),
            bytes_used: used.into(),
            io_align: (SECTOR_BYTES as u32).into(),
            io_width: (SECTOR_BYTES as u32).into(),
            sector_size: (SECTOR_BYTES as u32).into(),
            dev_type: 0.into(),
            generation: 0.into(),
            start_offset: 0.into(),
            dev_group: 0.into(),
            seek_speed: 0,
            bandwidth: 0,
            uuid: self.uuids.devices[id as usize - 1],
            fsid: self.uuids.fsid,
        }
    }

    fn emit_device_extents(
        &self,
        blocks: &mut Blocks<'_>,
        layout: &GroupLayout,
    ) -> Result<BuiltTree> {
        let mut extents: Vec<(u64, u64, &NewGroup)> = layout.parts().collect();
        extents.sort_by_key(|extent| (extent.0, extent.1));
        let mut builder = TreeBuilder::new(blocks, object::DEV_TREE);
        for (device, at, group) in extents {
            let extent = raw::DevExtent {
                chunk_tree: object::CHUNK_TREE.into(),
                chunk_objectid: object::FIRST_CHUNK_TREE.into(),
                chunk_offset: group.start().into(),
                length: group.chunk.stripe_bytes().into(),
                chunk_tree_uuid: self.uuids.chunk_tree,
            };
            let key = Key::new(device, item::DEV_EXTENT, at);
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
        let profiles = [self.options.metadata, self.options.data];
        let has_many = |profile: &Profile| matches!(profile, Profile::Raid1c3 | Profile::Raid1c4);
        if profiles.iter().any(has_many) {
            flags |= incompat::RAID1C34;
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

    /// Writes all copies of the superblock of every device: the first ones last, and that of the
    /// first device at the end.
    fn write_superblocks(&self, layout: &GroupLayout, roots: &BuiltTrees) -> Result<()> {
        let mut superblock = self.superblock(layout, roots)?;
        for place in SUPERBLOCK_PLACES.into_iter().rev() {
            for (index, &size) in layout.sizes.iter().enumerate().rev() {
                if place.0 + SUPERBLOCK_BYTES as u64 > size {
                    continue;
                }
                let id = index as u64 + 1;
                superblock.dev_item = self.device(layout, id);
                superblock.bytenr = place.0.into();
                let bytes = &superblock.as_bytes()[CHECKSUM_BYTES..];
                superblock.csum = self.options.checksum.of(bytes);
                let output = self.area.devices.output(id);
                output.write_all_at(superblock.as_bytes(), place.0)?;
            }
        }
        Ok(())
    }

    /// The superblock, without device and place.
    fn superblock(&self, layout: &GroupLayout, roots: &BuiltTrees) -> Result<raw::Superblock> {
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
        superblock.total_bytes = layout.sizes.iter().sum::<u64>().into();
        let used: u64 = layout.all().map(|group| group.used).sum();
        superblock.bytes_used = used.into();
        superblock.root_dir_objectid = object::ROOT_TREE_DIR.into();
        superblock.num_devices = (layout.sizes.len() as u64).into();
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
        superblock.label[..self.options.label.len()].copy_from_slice(&self.options.label);
        superblock.uuid_tree_generation = generation.into();
        let mut array = Vec::new();
        for group in &layout.system {
            let key = Key::new(object::FIRST_CHUNK_TREE, item::CHUNK_ITEM, group.start());
            array.extend(key.emit().as_bytes());
            array.extend(group.emit_chunk(SECTOR_BYTES as u32, &self.uuids.devices));
        }
        let Some(room) = superblock.sys_chunk_array.get_mut(..array.len()) else {
            return Err(Error::Limit("the chunk tree is too large"));
        };
        room.copy_from_slice(&array);
        superblock.sys_chunk_array_size = (array.len() as u32).into();
        Ok(superblock)
    }
}
