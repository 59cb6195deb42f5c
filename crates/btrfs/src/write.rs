//! A file system made from a tree of files.
//!
//! The data goes out first, extent by extent, while worker threads encode ahead. Then all trees are known: they are
//! measured, get their place behind the data, and are written; the superblocks last. Nothing is written twice.

use codec::{Encoder, Settings};
use tree::{
    Duplicates, Error, FileId, FileKind, FileSystem, Inventory, Output, OutputKind, Parallel,
    Progress, ReadAt, Result, Xattr, ordered,
};
use zerocopy::little_endian::U64;
use zerocopy::{FromZeros, IntoBytes};

use crate::builder::{Blocks, GENERATION, Identity, Root, TreeBuilder};
use crate::checksum::{ChecksumType, NAME_SEED, name_hash};
use crate::chunk::{Profile, STRIPE_BYTES};
use crate::data::{self, Area, Content, Encoding, SECTOR_BYTES};
use crate::fs_tree::{
    Described, FsTree, Mapping, bare_inode, check_target, dir_item, emit_empty, ino, inode_ref,
    other_names, xattr_bytes_max,
};
use crate::key::{Key, item, object};
use crate::layout::{Group, append_groups};
use crate::raw::{
    self, CHECKSUM_BYTES, LABEL_BYTES, SUPERBLOCK_BYTES, block_group, compat_ro, incompat,
};
use crate::space::{DataRef, Owned, emit_extents, emit_free_space, emit_sums, rows, set_used};
use crate::superblock::SUPERBLOCK_PLACES;

/// Files that one job describes.
const DESCRIBE_BATCH: usize = 256;
/// How often the trees are measured until their room no longer changes.
const ROUNDS_MAX: usize = 32;
/// Tree blocks that the kernel wants free before it changes the tree of chunks: a device's item and a new one, each
/// with the levels that a tree may have, the latter twice.
const CHUNK_TREE_FREE_BLOCKS: u64 = 24;

/// Bytes behind all groups in which the kernel can make new ones for data.
const UNALLOCATED_BYTES: u64 = 4 << 20;

/// How a file system is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// How extents are encoded: zlib 1 to 9, LZO, or zstd -15 to 15; `None` stores all as it is.
    pub compression: Option<Settings>,
    /// Whether to try that on every extent, not only on those in which a sample promises something.
    pub force: bool,
    /// The checksum of everything.
    pub checksum: ChecksumType,
    /// How tree blocks are kept: [`Profile::Single`] or [`Profile::Dup`].
    pub metadata: Profile,
    /// Bytes of a tree block: a power of two from 4 KiB to 64 KiB.
    pub nodesize: u32,
    /// Bytes of the file system; `None` for what it takes and `free_bytes`. On a device, its size.
    pub size: Option<u64>,
    /// Bytes for tree blocks that are left free, so that the file system can be mounted and changed. `None` for a
    /// thirty-second of the tree blocks, at least 4 MiB; 0 for a file system that is only read. Otherwise 4 MiB are
    /// left for data, too. Linux wants more than that before it changes a file system; `size` gives it room.
    pub free_bytes: Option<u64>,
    /// The file system's name: at most 255 bytes, without NUL.
    pub label: Vec<u8>,
    /// Its UUID; `None` for one that follows from what is in it.
    pub uuid: Option<[u8; 16]>,
    /// Seconds since 1970 that no time is later than; access, change and birth times are then those of the last change
    /// of content. `None` keeps all times.
    pub epoch: Option<i64>,
    /// An owner that all files get instead of their own.
    pub uid: Option<u32>,
    /// A group that all files get instead of their own.
    pub gid: Option<u32>,
    /// Whether files with equal content share it.
    pub duplicates: bool,
    /// Whether every extent is decoded and compared before it counts as made.
    pub verify: bool,
}

impl Default for Options {
    /// zstd at level 3, with the heuristic; CRC-32C; tree blocks of 16 KiB, twice.
    fn default() -> Self {
        Options {
            compression: Some(Settings::Zstd { level: 3 }),
            force: false,
            checksum: ChecksumType::Crc32c,
            metadata: Profile::Dup,
            nodesize: 16 << 10,
            size: None,
            free_bytes: None,
            label: Vec::new(),
            uuid: None,
            epoch: None,
            uid: None,
            gid: None,
            duplicates: true,
            verify: true,
        }
    }
}

/// What was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Inodes.
    pub files: u64,
    /// Regular files whose content is that of an earlier one.
    pub duplicates: u64,
    /// Bytes of content, holes and duplicates included.
    pub content_bytes: u64,
    /// Bytes of the image.
    pub image_bytes: u64,
    /// Bytes of data extents.
    pub data_bytes: u64,
    /// Bytes of tree blocks, each counted once.
    pub metadata_bytes: u64,
    /// Data extents.
    pub extents: u64,
    /// Data extents and files in trees that are stored compressed.
    pub compressed: u64,
    /// Files whose content is in a tree.
    pub inline_files: u64,
    /// The UUID.
    pub uuid: [u8; 16],
    /// Paths and names of extended attributes that do not fit in a tree block and are therefore not in the image.
    pub lost_xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Makes a file system that holds the tree `fs`, whose inventory this is, in its top-level subvolume. The same tree and
/// options give the same bytes, whatever the number of threads. The caller commits the output.
///
/// # Errors
/// [`Error::InvalidInput`] for options that no file system can have, or a size that is too small; [`Error::File`] when
/// a file cannot be read, changes while it is read, or is more than the format can hold; [`Error::Io`] when the output
/// cannot be written; [`Error::Unsupported`] for a stream, which cannot be written out of order.
pub fn create(
    fs: &dyn FileSystem,
    inventory: &Inventory,
    options: &Options,
    parallel: Parallel,
    progress: &dyn Progress,
    output: &Output,
) -> Result<Summary> {
    check(options)?;
    if output.kind() == OutputKind::Stream {
        return Err(Error::Unsupported("a btrfs image as a stream"));
    }
    progress.expect(
        Some(inventory.file_count().into()),
        Some(inventory.content_bytes()),
    );
    if output.kind() == OutputKind::Device {
        wipe(output)?;
    }
    let mut summary = Summary {
        files: inventory.file_count().into(),
        content_bytes: inventory.content_bytes(),
        ..Summary::default()
    };
    let duplicates = match options.duplicates {
        true => Duplicates::find(fs, inventory, parallel)?,
        false => Duplicates::default(),
    };
    summary.duplicates = duplicates.len() as u64;
    let described = describe(fs, inventory, options.nodesize, parallel, &mut summary)?;
    let encoding = Encoding {
        settings: options.compression,
        force: options.force,
        checksum: options.checksum,
        inline_max: Encoding::inline_max(options.nodesize),
        verify: options.verify,
    };
    let area = data::write(
        fs,
        inventory,
        &duplicates,
        encoding,
        parallel,
        progress,
        output,
    )?;
    drop(duplicates);
    let is_inline = |content: &&Content| matches!(content, Content::Inline { .. });
    summary.inline_files = area.contents.iter().filter(is_inline).count() as u64;
    summary.extents = area.extents.len() as u64;
    summary.compressed = area.compressed;
    summary.data_bytes = area.groups.iter().map(|group| group.used).sum();
    let tree = FsTree {
        id: object::FS_TREE,
        inventory,
        described: &described,
        area: &area,
        mapping: Mapping {
            uid: options.uid,
            gid: options.gid,
            epoch: options.epoch,
        },
        links: other_names(inventory),
    };
    Forest::new(options, &area, &tree).write(output, summary)
}

fn check(options: &Options) -> Result<()> {
    let invalid = |what| Err(Error::InvalidInput(what));
    if let Some(settings) = &options.compression {
        match *settings {
            Settings::Zlib { level: 1..=9 }
            | Settings::Lzo
            | Settings::Zstd {
                level: -15..=-1 | 1..=15,
            } => {}
            _ => {
                return invalid(
                    "btrfs has zlib at level 1 to 9, lzo, and zstd at level -15 to -1 and 1 to 15",
                );
            }
        }
        Encoder::new(settings).map_err(|error| Error::InvalidInput(error.as_str()))?;
    }
    if !options.nodesize.is_power_of_two() || !(4 << 10..=64 << 10).contains(&options.nodesize) {
        return invalid("the size of a tree block is not a power of two from 4 KiB to 64 KiB");
    }
    if !matches!(options.metadata, Profile::Single | Profile::Dup) {
        return invalid("one device keeps tree blocks as single or dup");
    }
    if options.label.len() >= LABEL_BYTES || options.label.contains(&0) {
        return invalid("a label has at most 255 bytes, without NUL");
    }
    Ok(())
}

/// Makes sure that nothing on a device looks finished while it is not.
fn wipe(output: &Output) -> Result<()> {
    let size = ReadAt::size(output)?;
    for place in SUPERBLOCK_PLACES {
        if place.0 + SUPERBLOCK_BYTES as u64 <= size {
            output.write_all_at(&[0; SUPERBLOCK_BYTES], place.0)?;
        }
    }
    Ok(())
}

/// The attributes of one file, and its target if it is a symbolic link.
type Description = (Vec<Xattr>, Option<Box<[u8]>>);

/// Reads link targets and extended attributes, on all threads.
fn describe(
    fs: &dyn FileSystem,
    inventory: &Inventory,
    nodesize: u32,
    parallel: Parallel,
    summary: &mut Summary,
) -> Result<Described> {
    let mut described = Described::default();
    let files: Vec<FileId> = inventory.files().collect();
    let describe = |file: FileId| -> Result<Description> {
        let ino = inventory.ino(file);
        let xattrs = fs.xattrs(ino)?;
        let mut target = None;
        if inventory.kind(file) == FileKind::Symlink {
            let bytes = fs.read_link(ino)?;
            check_target(&bytes, nodesize)?;
            target = Some(bytes.into());
        }
        Ok((xattrs, target))
    };
    ordered(
        parallel,
        files.chunks(DESCRIBE_BATCH),
        || (),
        |(), batch| {
            let mut known = Vec::new();
            for &file in batch {
                let (xattrs, target) = describe(file).map_err(|error| {
                    error.in_file("read", &inventory.path(inventory.first_name(file)))
                })?;
                if !xattrs.is_empty() || target.is_some() {
                    known.push((file, xattrs, target));
                }
            }
            Ok(known)
        },
        |known| {
            for (file, mut xattrs, target) in known {
                xattrs.retain(|xattr| {
                    let bytes = xattr.name.len() + xattr.value.len();
                    let fits = xattr.name.len() <= 255 && bytes <= xattr_bytes_max(nodesize);
                    if !fits {
                        let path = inventory.path(inventory.first_name(file));
                        summary.lost_xattrs.push((path, xattr.name.to_vec()));
                    }
                    fits
                });
                if !xattrs.is_empty() {
                    described.xattrs.insert(file, xattrs);
                }
                if let Some(target) = target {
                    described.targets.insert(file, target);
                }
            }
            Ok::<(), Error>(())
        },
    )?;
    Ok(described)
}

/// All trees of a file system.
struct Forest<'a> {
    options: &'a Options,
    area: &'a Area,
    tree: &'a FsTree<'a>,
    references: Vec<DataRef>,
    /// When the file system says that it was made.
    time: raw::Timespec,
    uuids: Uuids,
}

#[derive(Clone, Copy, Debug, Default)]
struct Uuids {
    fsid: [u8; 16],
    chunk_tree: [u8; 16],
    device: [u8; 16],
    top_level: [u8; 16],
}

impl Uuids {
    /// All others follow from the file system's own.
    fn of(fsid: [u8; 16]) -> Uuids {
        let derived = |number: u8| {
            let mut seed = fsid.to_vec();
            seed.push(number);
            as_uuid(tree::sha256(&seed))
        };
        Uuids {
            fsid,
            chunk_tree: derived(1),
            device: derived(2),
            top_level: derived(3),
        }
    }
}

/// A UUID made of a hash (RFC 9562, version 8).
fn as_uuid(hash: [u8; 32]) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&hash[..16]);
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// The trees in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Roots {
    fs: Root,
    sums: Root,
    data_reloc: Root,
    uuid: Root,
    device: Root,
    free_space: Root,
    extent: Root,
    root: Root,
    chunk: Root,
}

impl Roots {
    /// All that lie in the metadata groups, in order.
    fn metadata(&self) -> [(u64, &Root); 8] {
        [
            (object::FS_TREE, &self.fs),
            (object::CSUM_TREE, &self.sums),
            (object::DATA_RELOC_TREE, &self.data_reloc),
            (object::UUID_TREE, &self.uuid),
            (object::DEV_TREE, &self.device),
            (object::FREE_SPACE_TREE, &self.free_space),
            (object::EXTENT_TREE, &self.extent),
            (object::ROOT_TREE, &self.root),
        ]
    }

    fn metadata_rows(&self) -> Vec<Owned> {
        let all = self.metadata();
        all.iter()
            .flat_map(|(owner, root)| rows(*owner, root))
            .collect()
    }

    fn chunk_rows(&self) -> Vec<Owned> {
        rows(object::CHUNK_TREE, &self.chunk).collect()
    }

    fn metadata_blocks(&self) -> usize {
        self.metadata().iter().map(|(_, root)| root.blocks()).sum()
    }
}

/// Where everything is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Layout {
    data: Vec<Group>,
    system: Vec<Group>,
    metadata: Vec<Group>,
    /// Behind the last group.
    end: u64,
    /// Bytes of the file system.
    size: u64,
}

impl Layout {
    fn groups(&self) -> [&[Group]; 3] {
        [&self.data, &self.system, &self.metadata]
    }

    fn all(&self) -> impl Iterator<Item = &Group> {
        self.groups().into_iter().flatten()
    }

    /// Bytes of the device that groups take.
    fn device_used(&self) -> u64 {
        self.all()
            .map(|group| group.len * group.stripes.len() as u64)
            .sum()
    }
}

impl<'a> Forest<'a> {
    fn new(options: &'a Options, area: &'a Area, tree: &'a FsTree<'a>) -> Self {
        let inventory = tree.inventory;
        let mut references = Vec::new();
        for file in inventory.files() {
            if let Content::Extents { from, count } = area.contents[file.0 as usize] {
                for shown in &area.shown[from as usize..][..count as usize] {
                    references.push(DataRef {
                        extent: shown.extent,
                        root: tree.id,
                        ino: ino(file),
                        offset: shown.offset,
                    });
                }
            }
        }
        references.sort_unstable();
        let root = FileId(0);
        let inode = tree.inode(root, &inventory.metadata(root));
        Forest {
            options,
            area,
            tree,
            references,
            time: inode.mtime,
            uuids: Uuids::default(),
        }
    }

    fn write(mut self, output: &Output, mut summary: Summary) -> Result<Summary> {
        let nodesize = self.options.nodesize;
        let mut roots = Roots::default();
        let mut measure = Blocks::measure(nodesize);
        roots.fs = self.tree.emit(&mut measure)?;
        roots.sums = emit_sums(&mut measure, self.area, self.options.checksum.size())?;
        let digest = as_uuid(tree::sha256(&measure.digest()));
        self.uuids = Uuids::of(self.options.uuid.unwrap_or(digest));
        let mut layout = self.measure(&mut roots)?;
        layout.size = self.size(&layout, output)?;
        output.set_len(layout.size)?;
        let identity = Identity {
            fsid: self.uuids.fsid,
            chunk_tree_uuid: self.uuids.chunk_tree,
            checksum: self.options.checksum,
        };
        let measured = roots.clone();
        let mut blocks = Blocks::write(nodesize, output, &layout.system, identity);
        roots.chunk = self.emit_chunks(&mut blocks, &layout)?;
        blocks.finish()?;
        let mut blocks = Blocks::write(nodesize, output, &layout.metadata, identity);
        roots.fs = self.tree.emit(&mut blocks)?;
        roots.sums = emit_sums(&mut blocks, self.area, self.options.checksum.size())?;
        self.emit_small(&mut blocks, &layout, &measured, &mut roots)?;
        blocks.finish()?;
        let shape = |roots: &Roots| (roots.metadata_rows(), roots.chunk_rows());
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
        summary.image_bytes = layout.size;
        summary.uuid = self.uuids.fsid;
        Ok(summary)
    }

    /// Emits the trees of which the layout decides, all but that of chunks. `measured` says which blocks there are.
    fn emit_small(
        &self,
        blocks: &mut Blocks<'_>,
        layout: &Layout,
        measured: &Roots,
        roots: &mut Roots,
    ) -> Result<()> {
        roots.data_reloc = emit_empty(blocks, object::DATA_RELOC_TREE, self.time)?;
        roots.uuid = self.emit_uuids(blocks)?;
        roots.device = self.emit_device_extents(blocks, layout)?;
        roots.free_space = emit_free_space(blocks, &layout.groups())?;
        roots.extent = emit_extents(
            blocks,
            self.options.nodesize,
            &layout.groups(),
            self.area,
            &self.references,
            [&measured.chunk_rows(), &measured.metadata_rows()],
        )?;
        roots.root = self.emit_roots(blocks, roots)?;
        Ok(())
    }

    /// Lays the groups out, and measures the trees that depend on that, until both agree.
    fn measure(&self, roots: &mut Roots) -> Result<Layout> {
        let nodesize = u64::from(self.options.nodesize);
        for _ in 0..ROUNDS_MAX {
            let layout = self.lay_out(roots);
            let before = roots.clone();
            let mut blocks = Blocks::measure(self.options.nodesize);
            roots.chunk = self.emit_chunks(&mut blocks, &layout)?;
            self.emit_small(&mut blocks, &layout, &before, roots)?;
            if *roots == before {
                let mut layout = layout;
                let metadata = roots.metadata_blocks() as u64 * nodesize;
                set_used(&mut layout.metadata, self.options.nodesize, metadata);
                let chunk = roots.chunk.blocks() as u64 * nodesize;
                set_used(&mut layout.system, self.options.nodesize, chunk);
                return Ok(layout);
            }
        }
        Err(Error::Limit("the trees' sizes do not settle"))
    }

    /// Room for trees of that size, and what is to be free.
    fn lay_out(&self, roots: &Roots) -> Layout {
        let nodesize = u64::from(self.options.nodesize);
        let dup = match self.options.metadata {
            Profile::Dup => block_group::DUP,
            _ => 0,
        };
        let metadata = roots.metadata_blocks() as u64 * nodesize;
        let free = (self.options.free_bytes).unwrap_or_else(|| (metadata / 32).max(4 << 20));
        let spare = if free == 0 { 0 } else { CHUNK_TREE_FREE_BLOCKS };
        let system = (roots.chunk.blocks().max(1) as u64 + spare) * nodesize;
        let mut layout = Layout {
            data: self.area.groups.clone(),
            ..Layout::default()
        };
        let flags = block_group::SYSTEM | dup;
        let at = append_groups(&mut layout.system, self.area.end(), system, flags);
        let flags = block_group::METADATA | dup;
        let wanted = (metadata + free).max(nodesize);
        layout.end = append_groups(&mut layout.metadata, at, wanted, flags);
        // What is used decides how much is listed as free, though not in how many items, but for full groups.
        set_used(&mut layout.metadata, self.options.nodesize, metadata);
        let chunk = roots.chunk.blocks() as u64 * nodesize;
        set_used(&mut layout.system, self.options.nodesize, chunk);
        layout.size = layout.end;
        layout
    }

    /// Bytes of the file system.
    fn size(&self, layout: &Layout, output: &Output) -> Result<u64> {
        let wanted = match output.kind() {
            OutputKind::Device => Some(ReadAt::size(output)?),
            _ => self.options.size,
        };
        let Some(wanted) = wanted else {
            let tail = if self.options.free_bytes == Some(0) {
                0
            } else {
                UNALLOCATED_BYTES
            };
            return Ok(layout.end + tail);
        };
        let size = wanted - wanted % SECTOR_BYTES as u64;
        if size < layout.end {
            return Err(Error::InvalidInput("the tree does not fit in that size"));
        }
        Ok(size)
    }

    fn emit_chunks(&self, blocks: &mut Blocks<'_>, layout: &Layout) -> Result<Root> {
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

    fn device(&self, layout: &Layout) -> raw::DevItem {
        raw::DevItem {
            devid: 1.into(),
            total_bytes: layout.size.into(),
            bytes_used: layout.device_used().into(),
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

    fn emit_device_extents(&self, blocks: &mut Blocks<'_>, layout: &Layout) -> Result<Root> {
        let mut extents: Vec<(u64, &Group)> = layout
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

    fn emit_uuids(&self, blocks: &mut Blocks<'_>) -> Result<Root> {
        let mut builder = TreeBuilder::new(blocks, object::UUID_TREE);
        let half = |range: std::ops::Range<usize>| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&self.uuids.top_level[range]);
            u64::from_le_bytes(bytes)
        };
        let key = Key::new(half(0..8), item::UUID_SUBVOL, half(8..16));
        builder.push(key, &[&self.tree.id.to_le_bytes()])?;
        builder.finish()
    }

    /// The tree of trees.
    fn emit_roots(&self, blocks: &mut Blocks<'_>, roots: &Roots) -> Result<Root> {
        let mut builder = TreeBuilder::new(blocks, object::ROOT_TREE);
        let mut push = |id: u64, root: &Root| {
            let item = self.root_item(id, root);
            builder.push(Key::new(id, item::ROOT_ITEM, 0), &[item.as_bytes()])
        };
        push(object::EXTENT_TREE, &roots.extent)?;
        push(object::DEV_TREE, &roots.device)?;
        push(object::FS_TREE, &roots.fs)?;
        let dir = object::ROOT_TREE_DIR;
        let inode = bare_inode(self.time);
        builder.push(Key::new(dir, item::INODE_ITEM, 0), &[inode.as_bytes()])?;
        let key = Key::new(dir, item::INODE_REF, dir);
        builder.push(key, &[&inode_ref(0, b"..")])?;
        let name = b"default";
        let location = Key::new(object::FS_TREE, item::ROOT_ITEM, u64::MAX);
        let key = Key::new(dir, item::DIR_ITEM, name_hash(NAME_SEED, name).into());
        builder.push(key, &[&dir_item(location, 2, name, b"")])?;
        let mut push = |id: u64, root: &Root| {
            let item = self.root_item(id, root);
            builder.push(Key::new(id, item::ROOT_ITEM, 0), &[item.as_bytes()])
        };
        push(object::CSUM_TREE, &roots.sums)?;
        push(object::UUID_TREE, &roots.uuid)?;
        push(object::FREE_SPACE_TREE, &roots.free_space)?;
        push(object::DATA_RELOC_TREE, &roots.data_reloc)?;
        builder.finish()
    }

    fn root_item(&self, id: u64, root: &Root) -> raw::RootItem {
        let nodesize = u64::from(self.options.nodesize);
        let zero = raw::Timespec::default();
        let mut inode = bare_inode(zero);
        inode.transid = 0.into();
        inode.size = 3.into();
        inode.nbytes = nodesize.into();
        let is_top = id == object::FS_TREE;
        let holds_files = is_top || id == object::DATA_RELOC_TREE;
        raw::RootItem {
            inode,
            generation: GENERATION.into(),
            root_dirid: if holds_files { object::FIRST_FREE } else { 0 }.into(),
            bytenr: root.at.into(),
            byte_limit: 0.into(),
            bytes_used: (root.blocks() as u64 * nodesize).into(),
            last_snapshot: 0.into(),
            flags: 0.into(),
            refs: 1.into(),
            drop_progress: Key::MIN.emit(),
            drop_level: 0,
            level: root.level(),
            generation_v2: GENERATION.into(),
            uuid: if is_top {
                self.uuids.top_level
            } else {
                [0; 16]
            },
            parent_uuid: [0; 16],
            received_uuid: [0; 16],
            ctransid: 0.into(),
            otransid: 0.into(),
            stransid: 0.into(),
            rtransid: 0.into(),
            ctime: if is_top { self.time } else { zero },
            otime: if is_top { self.time } else { zero },
            stime: zero,
            rtime: zero,
            reserved: [U64::ZERO; 8],
        }
    }

    /// The features that readers must know.
    fn incompat(&self) -> u64 {
        let mut flags = incompat::MIXED_BACKREF
            | incompat::EXTENDED_IREF
            | incompat::SKINNY_METADATA
            | incompat::NO_HOLES;
        if self.options.nodesize as usize > SECTOR_BYTES {
            flags |= incompat::BIG_METADATA;
        }
        match self.options.compression {
            Some(Settings::Lzo) => flags |= incompat::COMPRESS_LZO,
            Some(Settings::Zstd { .. }) => flags |= incompat::COMPRESS_ZSTD,
            _ => {}
        }
        flags
    }

    /// Writes all copies of the superblock, the first one last.
    fn write_superblocks(&self, output: &Output, layout: &Layout, roots: &Roots) -> Result<()> {
        let mut superblock = raw::Superblock::new_zeroed();
        superblock.fsid = self.uuids.fsid;
        superblock.flags = 1.into();
        superblock.magic = raw::MAGIC;
        superblock.generation = GENERATION.into();
        superblock.root = roots.root.at.into();
        superblock.root_level = roots.root.level();
        superblock.chunk_root = roots.chunk.at.into();
        superblock.chunk_root_level = roots.chunk.level();
        superblock.chunk_root_generation = GENERATION.into();
        superblock.total_bytes = layout.size.into();
        let used: u64 = layout.all().map(|group| group.used).sum();
        superblock.bytes_used = used.into();
        superblock.root_dir_objectid = object::ROOT_TREE_DIR.into();
        superblock.num_devices = 1.into();
        superblock.sectorsize = (SECTOR_BYTES as u32).into();
        superblock.nodesize = self.options.nodesize.into();
        superblock.unused_leafsize = self.options.nodesize.into();
        superblock.stripesize = (SECTOR_BYTES as u32).into();
        let free_space = compat_ro::FREE_SPACE_TREE | compat_ro::FREE_SPACE_TREE_VALID;
        superblock.compat_ro_flags = free_space.into();
        superblock.incompat_flags = self.incompat().into();
        superblock.csum_type = self.options.checksum.number().into();
        superblock.dev_item = self.device(layout);
        superblock.label[..self.options.label.len()].copy_from_slice(&self.options.label);
        superblock.uuid_tree_generation = GENERATION.into();
        let mut array = Vec::new();
        for group in &layout.system {
            let key = Key::new(object::FIRST_CHUNK_TREE, item::CHUNK_ITEM, group.start);
            array.extend(key.emit().as_bytes());
            array.extend(group.emit_chunk(SECTOR_BYTES as u32, self.uuids.device));
        }
        let Some(room) = superblock.sys_chunk_array.get_mut(..array.len()) else {
            return Err(Error::Limit("the tree of chunks is too large"));
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
        debug_assert!(layout.end.is_multiple_of(STRIPE_BYTES));
        Ok(())
    }
}
