//! Directory entries. Each has two items of the same form: one keyed by the hash of its name, for
//! lookups, and one keyed by its directory index, for listing. Extended attributes have the same
//! form.

use tree::is_valid_name;
use tree::{FileKind, Result, to_u64};
use zerocopy::{FromBytes, IntoBytes};

use crate::disk::checksum::{NAME_SEED, name_hash};
use crate::disk::key::{FIRST_GENERATION, Key, item, object};
use crate::disk::node::TreeItem;
use crate::disk::raw::{self, NAME_BYTES_MAX};
use crate::disk::tree::Tree;
use crate::disk::volume::Volume;

/// The kinds of files in the order of their types on disk, `BTRFS_FT_REG_FILE` (1) first.
const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::CharDevice,
    FileKind::BlockDevice,
    FileKind::Fifo,
    FileKind::Socket,
    FileKind::Symlink,
];
/// `BTRFS_FT_XATTR`.
pub(crate) const XATTR: u8 = 8;

/// The target of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryTarget {
    /// An inode of the same subvolume.
    Inode(u64),
    /// Another subvolume.
    Subvolume(u64),
}

/// A validated directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirItemEntry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) target: EntryTarget,
    pub(crate) kind: FileKind,
}

/// An entry or an attribute with validated lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirItemRecord<'a> {
    pub(crate) raw: &'a raw::DirItem,
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
}

/// Calls `each` with the records in an item: several if names have the same hash.
pub(crate) fn for_each_record<'a>(
    item: &TreeItem<'a>,
    mut each: impl FnMut(DirItemRecord<'a>) -> Result<()>,
) -> Result<()> {
    let mut rest = item.data;
    if rest.is_empty() {
        return Err(item.corrupt("directory item is empty", item.key.objectid));
    }
    while !rest.is_empty() {
        let Ok((raw, after)) = raw::DirItem::ref_from_prefix(rest) else {
            return Err(item.corrupt("directory item is cut off", to_u64(rest.len())));
        };
        let (name_len, value_len) = (raw.name_len.get(), raw.data_len.get());
        let name_bytes = usize::from(name_len);
        if name_bytes == 0 || name_bytes > NAME_BYTES_MAX {
            return Err(item.corrupt("directory item's name is too long", name_len.into()));
        }
        let fits = after.split_at_checked(name_bytes);
        let fits = fits.and_then(|(name, after)| {
            let (value, after) = after.split_at_checked(value_len.into())?;
            Some((name, value, after))
        });
        let Some((name, value, after)) = fits else {
            return Err(item.corrupt("directory item's name does not fit", name_len.into()));
        };
        each(DirItemRecord { raw, name, value })?;
        rest = after;
    }
    Ok(())
}

/// Calls `each` with the attributes in an `XATTR_ITEM`.
pub(crate) fn for_each_xattr<'a>(
    item: &TreeItem<'a>,
    mut each: impl FnMut(&'a [u8], &'a [u8]) -> Result<()>,
) -> Result<()> {
    for_each_record(item, |record| {
        if record.raw.dir_type != XATTR {
            let found = record.raw.dir_type.into();
            return Err(item.corrupt("attribute has an entry's type", found));
        }
        if Key::parse(&record.raw.location) != Key::MIN {
            let found = record.raw.location.objectid.get();
            return Err(item.corrupt("attribute points at an inode", found));
        }
        if u64::from(name_hash(NAME_SEED, record.name)) != item.key.offset {
            return Err(item.corrupt("attribute's name has the wrong hash", item.key.offset));
        }
        if record.name.contains(&0) {
            return Err(item.corrupt("attribute's name has a NUL", item.key.offset));
        }
        each(record.name, record.value)
    })
}

/// Calls `each` with the entries in a `DIR_ITEM` or `DIR_INDEX` item.
pub(crate) fn for_each_entry<'a>(
    item: &TreeItem<'a>,
    mut each: impl FnMut(DirItemEntry<'a>) -> Result<()>,
) -> Result<()> {
    let is_index = item.key.kind == item::DIR_INDEX;
    let mut has_one = false;
    for_each_record(item, |record| {
        if is_index && std::mem::replace(&mut has_one, true) {
            return Err(item.corrupt("index of a directory has two entries", item.key.offset));
        }
        if !is_index && u64::from(name_hash(NAME_SEED, record.name)) != item.key.offset {
            return Err(item.corrupt("entry's name has the wrong hash", item.key.offset));
        }
        each(entry(item, &record)?)
    })
}

/// The type of a kind of file in a directory entry.
pub(crate) fn entry_type(kind: FileKind) -> u8 {
    let mut types = (1..).zip(KINDS);
    types
        .find(|known| known.1 == kind)
        .map_or(0, |known| known.0)
}

/// A record of a `DIR_ITEM`, `DIR_INDEX` or `XATTR_ITEM`.
pub(crate) fn emit(location: Key, dir_type: u8, name: &[u8], value: &[u8]) -> Vec<u8> {
    let head = raw::DirItem {
        location: location.emit(),
        transid: FIRST_GENERATION.into(),
        data_len: raw::stored_len(value).into(),
        name_len: raw::stored_len(name).into(),
        dir_type,
    };
    [head.as_bytes(), name, value].concat()
}

fn entry<'a>(item: &TreeItem<'a>, record: &DirItemRecord<'a>) -> Result<DirItemEntry<'a>> {
    let found = record.raw.dir_type;
    let kind = (1..).zip(KINDS).find(|&(number, _)| number == found);
    let Some((_, kind)) = kind else {
        return Err(item.corrupt("entry's type is unknown", found.into()));
    };
    if !record.value.is_empty() {
        return Err(item.corrupt("entry has a value", to_u64(record.value.len())));
    }
    if !is_valid_name(record.name) {
        return Err(item.corrupt("entry's name cannot be one", to_u64(record.name.len())));
    }
    let location = Key::parse(&record.raw.location);
    let is_free = (object::FIRST_FREE..=object::LAST_FREE).contains(&location.objectid);
    let target = match location.kind {
        item::INODE_ITEM if is_free && location.offset == 0 => {
            EntryTarget::Inode(location.objectid)
        }
        item::ROOT_ITEM if is_free && kind == FileKind::Directory => {
            EntryTarget::Subvolume(location.objectid)
        }
        _ => return Err(item.corrupt("entry points at no inode", location.objectid)),
    };
    Ok(DirItemEntry {
        name: record.name,
        target,
        kind,
    })
}

/// The entry with this name in a directory.
pub(crate) fn find(
    volume: &Volume,
    tree: &Tree,
    dir: u64,
    name: &[u8],
) -> Result<Option<(EntryTarget, FileKind)>> {
    let key = Key::new(dir, item::DIR_ITEM, name_hash(NAME_SEED, name).into());
    let found = tree.get(volume, key, |item| {
        let mut found = None;
        for_each_entry(&item, |entry| {
            if entry.name == name {
                found = Some((entry.target, entry.kind));
            }
            Ok(())
        })?;
        Ok(found)
    })?;
    Ok(found.flatten())
}

/// The target of the entry at this directory index, if it has this name.
pub(crate) fn find_index(
    volume: &Volume,
    tree: &Tree,
    dir: u64,
    index: u64,
    name: &[u8],
) -> Result<Option<EntryTarget>> {
    let found = tree.get(volume, Key::new(dir, item::DIR_INDEX, index), |item| {
        let mut found = None;
        for_each_entry(&item, |entry| {
            found = (entry.name == name).then_some(entry.target);
            Ok(())
        })?;
        Ok(found)
    })?;
    Ok(found.flatten())
}

/// The ID of the default subvolume, from the entry `default` of the root tree's directory.
pub(crate) fn default_subvolume(volume: &Volume, roots: &Tree) -> Result<u64> {
    let hash = name_hash(NAME_SEED, b"default").into();
    let key = Key::new(object::ROOT_TREE_DIR, item::DIR_ITEM, hash);
    let mut id = object::FS_TREE;
    roots.get(volume, key, |item| {
        for_each_record(&item, |record| {
            if record.name == b"default" {
                id = record.raw.location.objectid.get();
            }
            Ok(())
        })
    })?;
    Ok(id)
}
