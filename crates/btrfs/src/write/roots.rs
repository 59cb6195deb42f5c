//! The trees that describe other trees: the root tree and the UUID tree.

use tree::Result;
use zerocopy::{FromZeros, IntoBytes};

use crate::disk::checksum::{NAME_SEED, name_hash};
use crate::disk::dir;
use crate::disk::flags::inode_flags;
use crate::disk::inode::emit_ref;
use crate::disk::key::{Key, item, object};
use crate::disk::raw;
use crate::options::Received;
use crate::write::builder::{Blocks, BuiltTree, TreeBuilder};
use crate::write::fs_tree::{FileTrees, bare_inode, timespec};
use crate::write::space_trees::{BlockRun, rows};
use crate::write::subvolumes::PlannedSubvolume;

/// The trees, in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BuiltTrees {
    /// Subvolume trees in the order in which they are written, each with its ID.
    pub(crate) files: Vec<(u64, BuiltTree)>,
    pub(crate) sums: BuiltTree,
    pub(crate) data_reloc: BuiltTree,
    pub(crate) uuid: BuiltTree,
    pub(crate) device: BuiltTree,
    pub(crate) free_space: BuiltTree,
    /// Has no blocks if block groups are in the extent tree.
    pub(crate) group: BuiltTree,
    pub(crate) extent: BuiltTree,
    pub(crate) root: BuiltTree,
    pub(crate) chunk: BuiltTree,
}

impl BuiltTrees {
    /// All trees in metadata groups, in order.
    fn metadata(&self) -> impl Iterator<Item = (u64, &BuiltTree)> {
        let others = [
            (object::CSUM_TREE, &self.sums),
            (object::DATA_RELOC_TREE, &self.data_reloc),
            (object::UUID_TREE, &self.uuid),
            (object::DEV_TREE, &self.device),
            (object::FREE_SPACE_TREE, &self.free_space),
            (object::BLOCK_GROUP_TREE, &self.group),
            (object::EXTENT_TREE, &self.extent),
            (object::ROOT_TREE, &self.root),
        ];
        let files = self.files.iter().map(|(id, root)| (*id, root));
        files.chain(others)
    }

    pub(crate) fn metadata_rows(&self) -> Vec<BlockRun> {
        let all = self.metadata();
        all.flat_map(|(owner, root)| rows(owner, root)).collect()
    }

    pub(crate) fn chunk_rows(&self) -> Vec<BlockRun> {
        rows(object::CHUNK_TREE, &self.chunk).collect()
    }

    pub(crate) fn metadata_blocks(&self) -> u64 {
        self.metadata().map(|(_, root)| root.blocks() as u64).sum()
    }

    /// Number of blocks of the trees that describe space; Linux reserves that much again.
    pub(crate) fn space_blocks(&self) -> u64 {
        let space = [&self.root, &self.extent, &self.sums, &self.group];
        space.iter().map(|root| root.blocks() as u64).sum()
    }
}

/// The UUIDs of a file system.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uuids {
    pub(crate) fsid: [u8; 16],
    pub(crate) chunk_tree: [u8; 16],
    /// In the order of their IDs.
    pub(crate) devices: Vec<[u8; 16]>,
    /// In the order of the plan.
    pub(crate) subvolumes: Vec<[u8; 16]>,
}

impl Uuids {
    /// UUIDs that are not given derive from the file system's own. That of the first device may be.
    pub(crate) fn of(
        fsid: [u8; 16],
        (device, devices): (Option<[u8; 16]>, usize),
        subvolumes: &[PlannedSubvolume],
    ) -> Uuids {
        let derived = |number: &[u8]| tree::uuid_of(tree::sha256(&[&fsid[..], number].concat()));
        let subvolume = |(index, planned): (u32, &PlannedSubvolume)| {
            let number = [&[3][..], &index.to_le_bytes()].concat();
            planned.options.uuid.unwrap_or_else(|| derived(&number))
        };
        let further = (1..devices as u32).map(|index| {
            let number = [&[4][..], &index.to_le_bytes()].concat();
            derived(&number)
        });
        let first = device.unwrap_or_else(|| derived(&[2]));
        Uuids {
            fsid,
            chunk_tree: derived(&[1]),
            devices: std::iter::once(first).chain(further).collect(),
            subvolumes: (0..).zip(subvolumes).map(subvolume).collect(),
        }
    }

    /// Emits the UUID tree, which maps UUIDs to subvolumes.
    pub(crate) fn emit(
        &self,
        blocks: &mut Blocks<'_>,
        subvolumes: &[PlannedSubvolume],
    ) -> Result<BuiltTree> {
        let key = |uuid: [u8; 16], kind: u8| {
            let [low, high] = [0, 8].map(|from| {
                let mut half = [0; 8];
                half.copy_from_slice(&uuid[from..from + 8]);
                u64::from_le_bytes(half)
            });
            Key::new(low, kind, high)
        };
        let mut entries: Vec<(Key, u64)> = Vec::new();
        for (planned, uuid) in subvolumes.iter().zip(&self.subvolumes) {
            entries.push((key(*uuid, item::UUID_SUBVOL), planned.id));
            if let Some(received) = planned.options.received {
                entries.push((key(received.uuid, item::UUID_RECEIVED_SUBVOL), planned.id));
            }
        }
        entries.sort_unstable();
        let mut builder = TreeBuilder::new(blocks, object::UUID_TREE);
        for same in entries.chunk_by(|a, b| a.0 == b.0) {
            let ids: Vec<u8> = same
                .iter()
                .flat_map(|entry| entry.1.to_le_bytes())
                .collect();
            builder.push(same[0].0, &[&ids])?;
        }
        builder.finish()
    }
}

/// The input of the root tree, besides the trees that it lists.
pub(crate) struct RootItems<'a> {
    pub(crate) nodesize: u32,
    /// The creation time of the file system.
    pub(crate) time: raw::Timespec,
    pub(crate) trees: &'a FileTrees<'a>,
    pub(crate) uuids: &'a Uuids,
    /// By subvolume: its place in [`BuiltTrees::files`].
    pub(crate) turns: &'a [usize],
}

impl RootItems<'_> {
    /// Emits the root tree.
    pub(crate) fn emit(&self, blocks: &mut Blocks<'_>, roots: &BuiltTrees) -> Result<BuiltTree> {
        let mut builder = TreeBuilder::new(blocks, object::ROOT_TREE);
        self.push_root(&mut builder, object::EXTENT_TREE, &roots.extent)?;
        self.push_root(&mut builder, object::DEV_TREE, &roots.device)?;
        self.push_subvolume(&mut builder, 0, roots)?;
        let dir = object::ROOT_TREE_DIR;
        let inode = bare_inode(self.time);
        builder.push(Key::new(dir, item::INODE_ITEM, 0), &[inode.as_bytes()])?;
        let key = Key::new(dir, item::INODE_REF, dir);
        builder.push(key, &[&emit_ref(0, b"..")])?;
        let (name, plan) = (b"default", self.trees.plan);
        let default = plan.subvolumes[plan.default].id;
        let location = Key::new(default, item::ROOT_ITEM, u64::MAX);
        let key = Key::new(dir, item::DIR_ITEM, name_hash(NAME_SEED, name).into());
        builder.push(key, &[&dir::emit(location, 2, name, b"")])?;
        self.push_root(&mut builder, object::CSUM_TREE, &roots.sums)?;
        self.push_root(&mut builder, object::UUID_TREE, &roots.uuid)?;
        self.push_root(&mut builder, object::FREE_SPACE_TREE, &roots.free_space)?;
        if roots.group.blocks() > 0 {
            self.push_root(&mut builder, object::BLOCK_GROUP_TREE, &roots.group)?;
        }
        for index in 1..plan.subvolumes.len() {
            self.push_subvolume(&mut builder, index, roots)?;
        }
        self.push_root(&mut builder, object::DATA_RELOC_TREE, &roots.data_reloc)?;
        builder.finish()
    }

    fn push_root(
        &self,
        builder: &mut TreeBuilder<'_, '_>,
        id: u64,
        root: &BuiltTree,
    ) -> Result<()> {
        let mut item = self.root_item(root);
        if id == object::DATA_RELOC_TREE {
            item.root_dirid = object::FIRST_FREE.into();
        }
        builder.push(Key::new(id, item::ROOT_ITEM, 0), &[item.as_bytes()])
    }

    /// Emits a subvolume's root, its name, and the names of the subvolumes in it.
    fn push_subvolume(
        &self,
        builder: &mut TreeBuilder<'_, '_>,
        index: usize,
        roots: &BuiltTrees,
    ) -> Result<()> {
        let subvolumes = &self.trees.plan.subvolumes;
        let (own, (id, root)) = (&subvolumes[index], &roots.files[self.turns[index]]);
        let mut item = self.root_item(root);
        item.root_dirid = object::FIRST_FREE.into();
        item.inode.flags = inode_flags::ROOT_ITEM_INIT.into();
        if own.options.is_read_only {
            item.flags = raw::ROOT_READ_ONLY.into();
        }
        item.uuid = self.uuids.subvolumes[index];
        item.parent_uuid = own.options.parent_uuid.unwrap_or_default();
        let generation = self.trees.plan.generation();
        let [ctransid, otransid] = self.trees.plan.transactions(own);
        item.ctransid = ctransid.into();
        item.otransid = otransid.into();
        if self.trees.plan.is_related(index) {
            // Otherwise Linux takes it for granted that no other tree refers to the tree's blocks.
            item.last_snapshot = generation.into();
        }
        item.ctime = self.time;
        item.otime = own.options.otime.map_or(self.time, timespec);
        if let Some(received) = own.options.received {
            let Received {
                uuid,
                stransid,
                rtransid,
                stime,
                rtime,
            } = received;
            item.received_uuid = uuid;
            item.stransid = stransid.into();
            item.rtransid = rtransid.into();
            item.stime = timespec(stime);
            item.rtime = timespec(rtime);
        }
        builder.push(Key::new(*id, item::ROOT_ITEM, 0), &[item.as_bytes()])?;
        if let Some((_, parent)) = own.place {
            let key = Key::new(*id, item::ROOT_BACKREF, subvolumes[parent].id);
            builder.push(key, &[&self.root_ref(own)])?;
        }
        let children = subvolumes.iter();
        let children = children.filter(|child| child.place.is_some_and(|place| place.1 == index));
        for child in children {
            let key = Key::new(*id, item::ROOT_REF, child.id);
            builder.push(key, &[&self.root_ref(child)])?;
        }
        Ok(())
    }

    /// The place of a subvolume.
    fn root_ref(&self, subvolume: &PlannedSubvolume) -> Vec<u8> {
        let Some((entry, _)) = subvolume.place else {
            return Vec::new();
        };
        let (trees, inventory) = (self.trees, self.trees.inventory);
        let name = &*inventory.name(entry);
        let head = raw::RootRef {
            dirid: trees.plan.ino(inventory.parent(entry)).into(),
            sequence: trees.index(entry).into(),
            name_len: (name.len() as u16).into(),
        };
        [head.as_bytes(), name].concat()
    }

    /// The root item of a tree without files.
    fn root_item(&self, root: &BuiltTree) -> raw::RootItem {
        let nodesize = u64::from(self.nodesize);
        let mut inode = bare_inode(raw::Timespec::default());
        inode.transid = 0.into();
        inode.size = 3.into();
        inode.nbytes = nodesize.into();
        let mut item = raw::RootItem::new_zeroed();
        item.inode = inode;
        let generation = self.trees.plan.generation();
        item.generation = generation.into();
        item.bytenr = root.at.into();
        item.bytes_used = ((root.blocks() + root.reused) as u64 * nodesize).into();
        item.refs = 1.into();
        item.drop_progress = Key::MIN.emit();
        item.level = root.level();
        item.generation_v2 = generation.into();
        item
    }
}
