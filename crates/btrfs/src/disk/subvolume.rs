//! Subvolumes: trees of files with a place in another subvolume; snapshots are subvolumes that
//! started as a copy.

use tree::{Result, Time, to_u64};
use zerocopy::FromBytes;

use crate::disk::flags::inode_flags;
use crate::disk::key::{Generation, Key, Logical, is_file_tree, item, object};
use crate::disk::node::TreeItem;
use crate::disk::raw::{self, NAME_BYTES_MAX, ROOT_ITEM_V1_BYTES};
use crate::disk::superblock::Superblock;
use crate::disk::tree::Tree;
use crate::disk::volume::Volume;

/// A validated root item: where a tree starts and, for a subvolume, its properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TreeRoot {
    pub(crate) tree: Tree,
    /// 0 while the subvolume is being deleted.
    pub(crate) refs: u32,
    /// The inode of its root directory.
    pub(crate) dirid: u64,
    pub(crate) flags: u64,
    pub(crate) bytes_used: u64,
    pub(crate) drop_progress: Key,
    /// Nil if there is no UUID.
    pub(crate) uuid: [u8; 16],
    pub(crate) parent_uuid: [u8; 16],
    pub(crate) received_uuid: [u8; 16],
    pub(crate) otime: Time,
    pub(crate) ctransid: Generation,
    pub(crate) otransid: Generation,
    pub(crate) stransid: Generation,
    pub(crate) rtransid: Generation,
    pub(crate) stime: Time,
    pub(crate) rtime: Time,
}

impl TreeRoot {
    pub(crate) fn parse(item: &TreeItem<'_>, superblock: &Superblock) -> Result<TreeRoot> {
        let mut bytes = [0; size_of::<raw::RootItem>()];
        let len = item.data.len();
        if len != bytes.len() && len != ROOT_ITEM_V1_BYTES {
            return Err(item.corrupt("root item's size is wrong", to_u64(len)));
        }
        bytes.split_at_mut(len).0.copy_from_slice(item.data);
        let raw = raw::RootItem::ref_from_bytes(&bytes).expect("it has that size");
        let newest = superblock.generation.0.saturating_add(1);
        let generation = raw.generation.get();
        if generation > newest {
            return Err(item.corrupt("root is newer than the superblock", generation));
        }
        let has_uuids = len == bytes.len() && raw.generation_v2 == raw.generation;
        if len == bytes.len() && raw.generation_v2.get() > newest {
            let found = raw.generation_v2.get();
            return Err(item.corrupt("root's second generation is in the future", found));
        }
        if raw.last_snapshot.get() > newest {
            let found = raw.last_snapshot.get();
            return Err(item.corrupt("root's last snapshot is in the future", found));
        }
        if raw.level >= raw::LEVELS_MAX || raw.drop_level >= raw::LEVELS_MAX {
            return Err(item.corrupt("root's level is too high", raw.level.into()));
        }
        let bytenr = raw.bytenr.get();
        if !bytenr.is_multiple_of(superblock.sectorsize.into()) {
            return Err(item.corrupt("root begins within a sector", bytenr));
        }
        if raw.flags.get() & !(raw::ROOT_READ_ONLY | raw::ROOT_DEAD) != 0 {
            return Err(item.corrupt("root has unknown flags", raw.flags.get()));
        }
        let drop_progress = Key::parse(&raw.drop_progress);
        if drop_progress.objectid != 0 && raw.drop_level == 0 {
            return Err(item.corrupt("root is being deleted at no level", drop_progress.objectid));
        }
        let uuid = |uuid: [u8; 16]| if has_uuids { uuid } else { [0; 16] };
        Ok(TreeRoot {
            tree: Tree {
                id: item.key.objectid,
                root: Logical(bytenr),
                level: raw.level,
                generation: Generation(generation),
            },
            refs: raw.refs.get(),
            dirid: raw.root_dirid.get(),
            flags: match raw.inode.flags.get() & inode_flags::ROOT_ITEM_INIT {
                0 => 0,
                _ => raw.flags.get(),
            },
            bytes_used: raw.bytes_used.get(),
            drop_progress,
            uuid: uuid(raw.uuid),
            parent_uuid: uuid(raw.parent_uuid),
            received_uuid: uuid(raw.received_uuid),
            otime: time(&raw.otime),
            ctransid: Generation(raw.ctransid.get()),
            otransid: Generation(raw.otransid.get()),
            stransid: Generation(raw.stransid.get()),
            rtransid: Generation(raw.rtransid.get()),
            stime: time(&raw.stime),
            rtime: time(&raw.rtime),
        })
    }

    /// The root of the tree with this ID; the first one if there are several (a snapshot's key has
    /// an offset).
    pub(crate) fn find(volume: &Volume, roots: &Tree, id: u64) -> Result<Option<TreeRoot>> {
        let [first, last] = [0, u64::MAX].map(|offset| Key::new(id, item::ROOT_ITEM, offset));
        let cursor = roots.range(volume, first, last)?;
        match cursor.item_of(id, item::ROOT_ITEM) {
            Some(item) => TreeRoot::parse(&item, &volume.superblock).map(Some),
            None => Ok(None),
        }
    }
}

fn time(raw: &raw::Timespec) -> Time {
    Time {
        seconds: raw.sec.get().cast_signed(),
        nanoseconds: raw.nsec.get(),
    }
}

/// The place of a subvolume: a name in a directory of another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SubvolumePlace {
    /// The subvolume that contains it.
    pub(crate) parent: u64,
    /// The inode of the directory that contains it.
    pub(crate) dir: u64,
    /// Its name in that directory.
    pub(crate) name: Box<[u8]>,
}

/// Parses the content of a `ROOT_REF` or `ROOT_BACKREF` item: directory, directory index, name.
pub(crate) fn parse_ref<'a>(item: &TreeItem<'a>) -> Result<(u64, u64, &'a [u8])> {
    let Ok((raw, name)) = raw::RootRef::ref_from_prefix(item.data) else {
        return Err(item.corrupt("root reference is too short", to_u64(item.data.len())));
    };
    let len = usize::from(raw.name_len.get());
    if len != name.len() || !(1..=NAME_BYTES_MAX).contains(&len) {
        return Err(item.corrupt("root reference's name does not fill it", to_u64(len)));
    }
    Ok((raw.dirid.get(), raw.sequence.get(), name))
}

/// The place of a subvolume; `None` for the top level, and for a subvolume without a place.
pub(crate) fn place(volume: &Volume, roots: &Tree, id: u64) -> Result<Option<SubvolumePlace>> {
    let [first, last] = [0, u64::MAX].map(|parent| Key::new(id, item::ROOT_BACKREF, parent));
    let cursor = roots.range(volume, first, last)?;
    let Some(item) = cursor.item_of(id, item::ROOT_BACKREF) else {
        return Ok(None);
    };
    let (dir, _, name) = parse_ref(&item)?;
    Ok(Some(SubvolumePlace {
        parent: item.key.offset,
        dir,
        name: name.into(),
    }))
}

/// Whether `parent` refers to `child` by this name in this directory. A snapshot's copy of the name
/// does not.
pub(crate) fn is_seen_at(
    volume: &Volume,
    roots: &Tree,
    parent: u64,
    child: u64,
    dir: u64,
    name: &[u8],
) -> Result<bool> {
    let key = Key::new(parent, item::ROOT_REF, child);
    let is_there = roots.get(volume, key, |item| {
        let (found_dir, _, found_name) = parse_ref(&item)?;
        Ok((found_dir, found_name) == (dir, name))
    })?;
    Ok(is_there == Some(true))
}

/// The tree with this ID; the first one if there are several.
pub(crate) fn tree_of(roots: &[TreeRoot], id: u64) -> Option<Tree> {
    let mut trees = roots.iter().map(|root| root.tree);
    trees.find(|tree| tree.id == id)
}

/// The tree that lists the logs, if there are any: it is written between two commits.
pub(crate) fn log_tree(superblock: &Superblock) -> Option<Tree> {
    superblock.log_root.map(|(root, level)| Tree {
        id: object::TREE_LOG,
        root,
        level,
        generation: Generation(superblock.generation.0.saturating_add(1)),
    })
}

/// Calls `each` with every root item of a subvolume, including the top level.
pub(crate) fn for_each(
    volume: &Volume,
    roots: &Tree,
    mut each: impl FnMut(TreeRoot) -> Result<()>,
) -> Result<()> {
    let mut cursor = roots.seek(volume, Key::new(object::FS_TREE, item::ROOT_ITEM, 0))?;
    while let Some(item) = cursor.item() {
        if item.key.kind == item::ROOT_ITEM && is_file_tree(item.key.objectid) {
            each(TreeRoot::parse(&item, &volume.superblock)?)?;
        }
        if item.key.objectid > object::LAST_FREE {
            break;
        }
        cursor.advance()?;
    }
    Ok(())
}
