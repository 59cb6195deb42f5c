//! Writes the tree of a subvolume from an inventory: inodes, names, attributes, and file extents.

use tree::{EntryId, Error, FileId, FileKind, Inventory, Metadata, Result, Time};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

use crate::disk::checksum::{NAME_SEED, name_hash};
use crate::disk::dir;
use crate::disk::flags::{attribute, inode_flags};
use crate::disk::inode::{ATTRIBUTES, emit_extref, emit_ref};
use crate::disk::key::{FIRST_GENERATION, Key, item, object};
use crate::disk::raw;
use crate::options::Options;
use crate::write::builder::{Blocks, BuiltTree, Shape, TreeBuilder, item_bytes_max};
use crate::write::data::{Area, ExtentSlice, FileContent};
use crate::write::describe::FileDescriptions;
use crate::write::file_set::FileSet;
use crate::write::spooled_bytes::SpooledReader;
use crate::write::subvolumes::SubvolumePlan;

/// The largest tree blocks of the format.
const NODE_BYTES_MAX: u32 = 64 << 10;

/// The subvolume trees of a new file system.
pub(crate) struct FileTrees<'a> {
    pub(crate) inventory: &'a Inventory<'a>,
    described: &'a FileDescriptions,
    pub(crate) area: &'a Area<'a>,
    pub(crate) plan: &'a SubvolumePlan,
    options: &'a Options,
    /// Additional names (hard links), by file.
    links: Vec<(FileId, EntryId)>,
    /// The files of each subvolume except its root.
    members: Vec<InOrder>,
}

/// Files in the order of their inode numbers.
enum InOrder {
    /// This is their order.
    FileSet(FileSet),
    Listed(Vec<FileId>),
}

impl InOrder {
    /// Those of these that are not left out.
    fn of(members: FileSet, plan: &SubvolumePlan, area: &Area<'_>) -> InOrder {
        // Without snapshots, this is the order.
        if area.lost.files().len() == 0 && members.iter().is_sorted_by_key(|file| plan.ino(file)) {
            return InOrder::FileSet(members);
        }
        let files = members.iter().filter(|&file| !area.is_lost(file));
        let mut files: Vec<FileId> = files.collect();
        files.shrink_to_fit();
        files.sort_by_key(|&file| plan.ino(file));
        InOrder::Listed(files)
    }

    fn iter(&self) -> impl Iterator<Item = FileId> {
        let (members, listed) = match self {
            InOrder::FileSet(members) => (Some(members.iter()), &[][..]),
            InOrder::Listed(files) => (None, &files[..]),
        };
        members.into_iter().flatten().chain(listed.iter().copied())
    }
}

pub(crate) fn timespec(time: Time) -> raw::Timespec {
    raw::Timespec {
        sec: time.seconds.cast_unsigned().into(),
        nsec: time.nanoseconds.into(),
    }
}

/// The inode item of an empty directory owned by root.
pub(crate) fn bare_inode(time: raw::Timespec) -> raw::InodeItem {
    raw::InodeItem {
        generation: FIRST_GENERATION.into(),
        transid: FIRST_GENERATION.into(),
        size: 0.into(),
        nbytes: 0.into(),
        block_group: 0.into(),
        nlink: 1.into(),
        uid: 0.into(),
        gid: 0.into(),
        mode: 0o040_755.into(),
        rdev: 0.into(),
        flags: 0.into(),
        sequence: 0.into(),
        reserved: [U64::ZERO; 4],
        atime: time,
        ctime: time,
        mtime: time,
        otime: time,
    }
}

/// Pushes entries with their hashes, sorted: entries with equal hashes share an item.
fn push_hashed(
    builder: &mut TreeBuilder<'_, '_>,
    objectid: u64,
    kind: u8,
    entries: &[(u64, Vec<u8>)],
) -> Result<()> {
    for same in entries.chunk_by(|a, b| a.0 == b.0) {
        let parts: Vec<&[u8]> = same.iter().map(|(_, bytes)| bytes.as_slice()).collect();
        push_same_hash(builder, Key::new(objectid, kind, same[0].0), &parts)?;
    }
    Ok(())
}

/// Pushes entries with one hash, which share an item.
fn push_same_hash(builder: &mut TreeBuilder<'_, '_>, key: Key, parts: &[&[u8]]) -> Result<()> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    if len > item_bytes_max(NODE_BYTES_MAX) {
        return Err(Error::Limit(
            "names with one hash together do not fit in a tree block of any size",
        ));
    }
    if len > item_bytes_max(builder.nodesize()) {
        return Err(Error::Limit(
            "names with one hash together do not fit in a tree block; a larger node size, of up to 64 KiB, holds them",
        ));
    }
    builder.push(key, parts)
}

impl<'a> FileTrees<'a> {
    pub(crate) fn new(
        inventory: &'a Inventory<'a>,
        described: &'a FileDescriptions,
        area: &'a Area<'a>,
        plan: &'a SubvolumePlan,
        options: &'a Options,
    ) -> Self {
        let members = plan.members(inventory).into_iter();
        let members = members.map(|members| InOrder::of(members, plan, area));
        let members = members.collect();
        let entries = (1..inventory.entry_count()).map(EntryId);
        let mut links: Vec<_> = entries
            .filter(|&entry| !inventory.is_first_name(entry))
            .map(|entry| (inventory.file(entry), entry))
            .collect();
        links.sort_unstable();
        FileTrees {
            inventory,
            described,
            area,
            plan,
            options,
            links,
            members,
        }
    }

    /// The files of a subvolume, in ascending order of inode number.
    pub(crate) fn files(&self, subvolume: usize) -> impl Iterator<Item = FileId> {
        let root = self.plan.subvolumes[subvolume].dir;
        std::iter::once(root).chain(self.members[subvolume].iter())
    }

    /// Paths of files with names in several subvolumes.
    pub(crate) fn split_links(&self) -> Vec<Vec<u8>> {
        let mut split: Vec<FileId> = Vec::new();
        for names in self.links.chunk_by(|a, b| a.0 == b.0) {
            let (file, inventory) = (names[0].0, self.inventory);
            let of = |entry: EntryId| self.plan.of(inventory.parent(entry));
            let first = of(inventory.first_name(file));
            if names.iter().any(|name| of(name.1) != first) && !self.area.is_lost(file) {
                split.push(file);
            }
        }
        let path = |file| self.inventory.path(self.inventory.first_name(file));
        split.into_iter().map(path).collect()
    }

    /// The names of a file in a subvolume.
    fn names(&self, subvolume: usize, file: FileId) -> Vec<EntryId> {
        let inventory = self.inventory;
        let mut names = vec![inventory.first_name(file)];
        if inventory.name_count(file) > 1 {
            let from = self.links.partition_point(|link| link.0 < file);
            let others = self.links[from..].iter().take_while(|link| link.0 == file);
            names.extend(others.map(|link| link.1));
        }
        names.retain(|&entry| self.plan.of(inventory.parent(entry)) == subvolume);
        names
    }

    /// Emits the tree of a subvolume, sharing blocks with that of its base.
    pub(crate) fn emit(
        &self,
        blocks: &mut Blocks<'_>,
        subvolume: usize,
        base: Option<&Shape>,
    ) -> Result<(BuiltTree, Shape)> {
        let id = self.plan.subvolumes[subvolume].id;
        let mut builder = if self.plan.is_related(subvolume) {
            TreeBuilder::sharing(blocks, id, base)
        } else {
            TreeBuilder::new(blocks, id)
        };
        let mut inline = self.area.inline.reader();
        for file in self.files(subvolume) {
            let emitted = self.emit_file(&mut builder, subvolume, file, &mut inline);
            emitted.map_err(|error| {
                let path = self.inventory.path(self.inventory.first_name(file));
                error.in_file("store", &path)
            })?;
        }
        builder.finish_shape()
    }

    fn emit_file(
        &self,
        builder: &mut TreeBuilder<'_, '_>,
        subvolume: usize,
        file: FileId,
        inline: &mut SpooledReader<'_>,
    ) -> Result<()> {
        let number = self.plan.ino(file);
        let metadata = self.inventory.metadata(file);
        let names = match self.plan.rooted_at(file) {
            Some(_) => Vec::new(),
            None => self.names(subvolume, file),
        };
        let inode = self.inode(file, &metadata, names.len() as u32);
        builder.push(Key::new(number, item::INODE_ITEM, 0), &[inode.as_bytes()])?;
        self.emit_names(builder, number, &names)?;
        if let Some(xattrs) = self.described.xattrs.get(&file) {
            let mut entries: Vec<(u64, Vec<u8>)> = xattrs
                .iter()
                .map(|xattr| {
                    let hash = u64::from(name_hash(NAME_SEED, &xattr.name));
                    let item = dir::emit(Key::MIN, dir::XATTR, &xattr.name, &xattr.value);
                    (hash, item)
                })
                .collect();
            entries.sort_by_key(|entry| entry.0);
            push_hashed(builder, number, item::XATTR_ITEM, &entries)?;
        }
        match metadata.kind {
            FileKind::Directory => self.emit_entries(builder, file),
            FileKind::Regular => self.emit_content(builder, file, inline),
            FileKind::Symlink => {
                let target = self.target(file);
                let head = inline_head(target.len() as u64, 0);
                let key = Key::new(number, item::EXTENT_DATA, 0);
                builder.push(key, &[head.as_bytes(), target])
            }
            _ => Ok(()),
        }
    }

    fn target(&self, file: FileId) -> &[u8] {
        (self.described.targets.get(&file)).map_or(&[], |target| target)
    }

    /// The modification time of a file's content.
    pub(crate) fn time(&self, file: FileId) -> Time {
        self.clamped(self.inventory.metadata(file).mtime)
    }

    /// A time, capped at the limit that the options set.
    fn clamped(&self, time: Time) -> Time {
        match self.options.epoch {
            Some(epoch) if time.seconds >= epoch => Time {
                seconds: epoch,
                nanoseconds: 0,
            },
            _ => time,
        }
    }

    /// `names` is the number of names the file has in its subvolume.
    fn inode(&self, file: FileId, metadata: &Metadata, names: u32) -> raw::InodeItem {
        let mtime = self.clamped(metadata.mtime);
        let other = |time: Option<Time>| time.map_or(mtime, |time| self.clamped(time));
        let mut inode = bare_inode(timespec(mtime));
        let identity = self.plan.identity(file);
        inode.generation = identity.generation.into();
        inode.transid = identity.transaction.into();
        inode.atime = timespec(other(metadata.atime));
        inode.ctime = timespec(other(metadata.ctime));
        inode.otime = timespec(other(metadata.btime));
        inode.uid = metadata.uid.into();
        inode.gid = metadata.gid.into();
        let mode = metadata.kind.mode_bits() | u32::from(metadata.permissions);
        inode.mode = mode.into();
        let mut flags = 0;
        if matches!(metadata.kind, FileKind::Regular | FileKind::Directory) {
            for (flag, attribute) in ATTRIBUTES {
                if metadata.attributes.0 & attribute != 0 {
                    flags |= flag;
                }
            }
            let has_no_sums = metadata.attributes.0 & attribute::NOSUM != 0;
            let is_in_place = flags & inode_flags::NODATACOW != 0;
            if has_no_sums || metadata.kind == FileKind::Regular && is_in_place {
                flags |= inode_flags::NODATASUM;
            }
        }
        match metadata.kind {
            FileKind::Directory => {
                let names = self.entries(file);
                let bytes: usize = names
                    .map(|(_, entry)| self.inventory.name(entry).len())
                    .sum();
                inode.size = (2 * bytes as u64).into();
            }
            FileKind::Regular => {
                inode.nlink = names.into();
                inode.size = metadata.size.into();
                let bytes = match self.area.content(file) {
                    FileContent::Hole => 0,
                    FileContent::Inline { .. } => metadata.size,
                    FileContent::Extents { from, count } => {
                        let is_reserved =
                            |shown: ExtentSlice| self.area.extent(shown.extent).is_reserved;
                        if self.area.shown(from, count).any(is_reserved) {
                            flags |= inode_flags::PREALLOC;
                        }
                        self.area.shown(from, count).map(|shown| shown.len).sum()
                    }
                };
                inode.nbytes = bytes.into();
            }
            kind => {
                inode.nlink = names.into();
                if kind == FileKind::Symlink {
                    // Reading a link updates its access time: a second image would differ.
                    inode.atime = timespec(mtime);
                    let bytes = self.target(file).len() as u64;
                    inode.size = bytes.into();
                    inode.nbytes = bytes.into();
                }
                if kind.is_device() {
                    let rdev = metadata.rdev;
                    inode.rdev = (u64::from(rdev.major) << 20 | u64::from(rdev.minor)).into();
                }
            }
        }
        inode.flags = flags.into();
        inode
    }

    /// The names in a directory with their directory indexes.
    fn entries(&self, dir: FileId) -> impl Iterator<Item = (u64, EntryId)> {
        let entries = self.inventory.entries(dir);
        let entries = entries.filter(|&entry| !self.area.is_lost(self.inventory.file(entry)));
        entries.map(|entry| (self.index(entry), entry))
    }

    /// The directory index of an entry.
    pub(crate) fn index(&self, entry: EntryId) -> u64 {
        self.plan.index(self.inventory, entry)
    }

    /// Emits the references to a file's names or, for the root of a subvolume, the reference to
    /// itself.
    fn emit_names(
        &self,
        builder: &mut TreeBuilder<'_, '_>,
        number: u64,
        names: &[EntryId],
    ) -> Result<()> {
        let inventory = self.inventory;
        if names.is_empty() {
            let key = Key::new(number, item::INODE_REF, number);
            return builder.push(key, &[&emit_ref(0, b"..")]);
        }
        let mut names: Vec<(u64, EntryId)> = names
            .iter()
            .map(|&entry| (self.plan.ino(inventory.parent(entry)), entry))
            .collect();
        names.sort_unstable();
        let max = item_bytes_max(builder.nodesize());
        let mut extended: Vec<(u64, Vec<u8>)> = Vec::new();
        for same in names.chunk_by(|a, b| a.0 == b.0) {
            let parent = same[0].0;
            let mut list = Vec::new();
            for &(_, entry) in same {
                let (index, name) = (self.index(entry), inventory.name(entry));
                let reference = emit_ref(index, &name);
                if list.len() + reference.len() <= max {
                    list.extend(reference);
                    continue;
                }
                let hash = u64::from(name_hash(parent as u32, &name));
                extended.push((hash, emit_extref(parent, index, &name)));
            }
            builder.push(Key::new(number, item::INODE_REF, parent), &[&list])?;
        }
        extended.sort();
        push_hashed(builder, number, item::INODE_EXTREF, &extended)
    }

    fn emit_entries(&self, builder: &mut TreeBuilder<'_, '_>, dir: FileId) -> Result<()> {
        let (inventory, number) = (self.inventory, self.plan.ino(dir));
        let item_of = |entry: EntryId| {
            let file = inventory.file(entry);
            let location = match self.plan.rooted_at(file) {
                Some(index) => {
                    let id = self.plan.subvolumes[index].id;
                    Key::new(id, item::ROOT_ITEM, u64::MAX)
                }
                None => Key::new(self.plan.ino(file), item::INODE_ITEM, 0),
            };
            let kind = dir::entry_type(inventory.kind(file));
            dir::emit(location, kind, &inventory.name(entry), b"")
        };
        let mut hashes: Vec<(u32, EntryId)> = self
            .entries(dir)
            .map(|(_, entry)| (name_hash(NAME_SEED, &inventory.name(entry)), entry))
            .collect();
        hashes.sort_unstable();
        for same in hashes.chunk_by(|a, b| a.0 == b.0) {
            let items: Vec<Vec<u8>> = same.iter().map(|&(_, entry)| item_of(entry)).collect();
            let parts: Vec<&[u8]> = items.iter().map(Vec::as_slice).collect();
            let key = Key::new(number, item::DIR_ITEM, same[0].0.into());
            push_same_hash(builder, key, &parts)?;
        }
        let mut entries: Vec<(u64, EntryId)> = self.entries(dir).collect();
        entries.sort_unstable();
        for (index, entry) in entries {
            let key = Key::new(number, item::DIR_INDEX, index);
            builder.push(key, &[&item_of(entry)])?;
        }
        Ok(())
    }

    fn emit_content(
        &self,
        builder: &mut TreeBuilder<'_, '_>,
        file: FileId,
        inline: &mut SpooledReader<'_>,
    ) -> Result<()> {
        let number = self.plan.ino(file);
        match self.area.content(file) {
            FileContent::Hole => Ok(()),
            FileContent::Inline {
                at,
                len,
                compression,
            } => {
                let bytes = inline.read(at, len as usize)?;
                let head = inline_head(self.inventory.size(file), compression);
                let key = Key::new(number, item::EXTENT_DATA, 0);
                builder.push(key, &[head.as_bytes(), bytes])
            }
            FileContent::Extents { from, count } => {
                for shown in self.area.shown(from, count) {
                    let stored = self.area.extent(shown.extent);
                    let mut head = inline_head(stored.ram, stored.compression);
                    head.extent_type = 1 + u8::from(stored.is_reserved);
                    let place = raw::ExtentPlace {
                        disk_bytenr: stored.at.into(),
                        disk_num_bytes: stored.len.into(),
                        offset: u64::from(shown.skip).into(),
                        num_bytes: shown.len.into(),
                    };
                    let key = Key::new(number, item::EXTENT_DATA, shown.offset);
                    builder.push(key, &[head.as_bytes(), place.as_bytes()])?;
                }
                Ok(())
            }
        }
    }
}

/// The header of an inline extent.
fn inline_head(ram_bytes: u64, compression: u8) -> raw::FileExtentItem {
    raw::FileExtentItem {
        generation: FIRST_GENERATION.into(),
        ram_bytes: ram_bytes.into(),
        compression,
        encryption: 0,
        other_encoding: 0.into(),
        extent_type: 0,
    }
}

/// The tree of an empty subvolume.
pub(crate) fn emit_empty(
    blocks: &mut Blocks<'_>,
    id: u64,
    time: raw::Timespec,
) -> Result<BuiltTree> {
    let mut builder = TreeBuilder::new(blocks, id);
    let number = object::FIRST_FREE;
    let inode = bare_inode(time);
    builder.push(Key::new(number, item::INODE_ITEM, 0), &[inode.as_bytes()])?;
    let key = Key::new(number, item::INODE_REF, number);
    builder.push(key, &[&emit_ref(0, b"..")])?;
    builder.finish()
}
