//! Checks a subvolume: names, link counts, sizes, and file content.

use std::collections::HashMap;

use tree::{FileKind, Result, to_u64};

use super::state::BtrfsChecker;
use crate::disk::dir::{self, EntryTarget};
use crate::disk::extent::{ExtentBody, FileExtent};
use crate::disk::flags::{incompat, inode_flags};
use crate::disk::inode::{InodeName, StoredInode, for_each_name};
use crate::disk::key::{Key, Logical, item, object};
use crate::disk::node::TreeItem;
use crate::disk::tree::Tree;

/// The inodes and names of a subvolume.
#[derive(Default)]
struct SubvolumeContents {
    inodes: HashMap<u64, (FileKind, u32)>,
    /// Hashes of names, with their directory index: from directory entries, and from inodes.
    entries: Vec<(u64, u64)>,
    indexes: Vec<(u64, u64)>,
    references: Vec<(u64, u64)>,
    /// As recorded in directory entries.
    kinds: Vec<(u64, FileKind)>,
    orphans: Vec<u64>,
}

/// The inode whose items are being read.
struct InodeTally {
    number: u64,
    inode: StoredInode,
    /// Whether written bytes must have checksums. Those that a balance moves have the checksums of
    /// where they come from, and preallocated ones had none.
    needs_checksums: bool,
    names: u32,
    /// Total length of the names in it, from both kinds of directory entries.
    name_bytes: u64,
    extent_bytes: u64,
    extents_end: u64,
    /// Where the first range without an item begins.
    gap: Option<u64>,
    /// Hashes of the names in it, from its index.
    name_hashes: Vec<u64>,
}

fn hash(parent: u64, index: u64, inode: u64, name: &[u8]) -> u64 {
    let mut state = xxhash::Xxh64::new(parent);
    state.update(&index.to_le_bytes());
    state.update(&inode.to_le_bytes());
    state.update(name);
    state.digest()
}

impl BtrfsChecker<'_> {
    /// Checks all inodes of a subvolume.
    pub(super) fn subvolume(&mut self, tree: &Tree) -> Result<()> {
        let mut files = SubvolumeContents::default();
        let result = self.items(tree, &mut files);
        self.tolerate(tree.id, result)?;
        for list in [
            &mut files.entries,
            &mut files.indexes,
            &mut files.references,
        ] {
            list.sort_unstable();
        }
        let without_index = |list: &[(u64, u64)]| {
            let mut hashes: Vec<u64> = list.iter().map(|entry| entry.1).collect();
            hashes.sort_unstable();
            hashes
        };
        let at = tree.root;
        // A subvolume's name belongs to no inode; its entries have a separate hash and no
        // reference.
        if without_index(&files.entries) != without_index(&files.indexes) {
            self.corrupt(
                "directory's two lists of entries differ",
                tree.id,
                at.0,
                to_u64(files.entries.len()),
            )?;
        }
        files.indexes.retain(|entry| entry.0 != 0);
        files.indexes.sort_unstable();
        if files.indexes != files.references {
            self.corrupt(
                "names of inodes are not those in directories",
                tree.id,
                at.0,
                to_u64(files.references.len()),
            )?;
        }
        for (number, kind) in &files.kinds {
            if files
                .inodes
                .get(number)
                .is_none_or(|inode| inode.0 != *kind)
            {
                self.corrupt("entry's inode is not what it says", tree.id, at.0, *number)?;
            }
        }
        if !matches!(
            files.inodes.get(&object::FIRST_FREE),
            Some((FileKind::Directory, _))
        ) {
            self.corrupt("subvolume has no root directory", tree.id, at.0, tree.id)?;
        }
        files.orphans.sort_unstable();
        let nameless = files.inodes.iter().filter(|(_, inode)| inode.1 == 0);
        let mut lost: Vec<u64> = nameless.map(|(number, _)| *number).collect();
        lost.retain(|number| files.orphans.binary_search(number).is_err());
        lost.sort_unstable();
        for number in lost {
            self.corrupt(
                "inode without a name is not an orphan",
                tree.id,
                at.0,
                number,
            )?;
        }
        Ok(())
    }

    fn items(&mut self, tree: &Tree, files: &mut SubvolumeContents) -> Result<()> {
        let btrfs = self.btrfs;
        let mut current: Option<InodeTally> = None;
        let mut cursor = tree.seek(&btrfs.volume, Key::MIN)?;
        while let Some(item) = cursor.item() {
            let number = item.key.objectid;
            if current
                .as_ref()
                .is_some_and(|current| current.number != number)
            {
                self.finish(tree, files, current.take())?;
            }
            if item.key.kind == item::INODE_ITEM {
                match StoredInode::parse(&item, btrfs.superblock()) {
                    Ok(inode) => {
                        let is_moved = tree.id == object::DATA_RELOC_TREE;
                        current = Some(InodeTally {
                            number,
                            needs_checksums: inode.has_checksums() && !is_moved,
                            inode,
                            names: 0,
                            name_bytes: 0,
                            extent_bytes: 0,
                            extents_end: 0,
                            gap: None,
                            name_hashes: Vec::new(),
                        });
                    }
                    Err(error) => self.found(tree.id, error)?,
                }
            } else if item.key.kind == item::ORPHAN_ITEM && number == object::ORPHAN {
                files.orphans.push(item.key.offset);
            } else if let Some(current) = &mut current {
                let result = self.item_of(current, &item, files);
                self.tolerate(tree.id, result)?;
            } else if number <= object::LAST_FREE {
                let error = item.corrupt("item's inode is not there", number);
                self.found(tree.id, error)?;
            }
            cursor.advance()?;
        }
        self.finish(tree, files, current)
    }

    fn item_of(
        &mut self,
        current: &mut InodeTally,
        item: &TreeItem<'_>,
        files: &mut SubvolumeContents,
    ) -> Result<()> {
        let number = current.number;
        let is_dir = current.inode.kind == FileKind::Directory;
        // The names of one entry item: more than one only if their hashes are equal.
        let mut names: Vec<&[u8]> = Vec::new();
        let reference = |reference: InodeName<'_>| {
            current.names += 1;
            // The root directory refers to itself.
            if (reference.parent, number) != (object::FIRST_FREE, object::FIRST_FREE) {
                let bare = hash(reference.parent, 0, number, reference.name);
                files.references.push((reference.index, bare));
            } else if (reference.index, reference.name) != (0, b"..") {
                return Err(item.corrupt("root directory has a name", reference.index));
            }
            Ok(())
        };
        match item.key.kind {
            item::INODE_REF | item::INODE_EXTREF => for_each_name(item, reference),
            item::DIR_ITEM | item::DIR_INDEX if !is_dir => {
                Err(item.corrupt("file that is not a directory has entries", number))
            }
            // A directory that was deleted while it was open: its entries lead to nothing.
            item::DIR_ITEM | item::DIR_INDEX if current.inode.nlink == 0 => {
                dir::for_each_entry(item, |_| Ok(()))
            }
            kind @ (item::DIR_ITEM | item::DIR_INDEX) => {
                dir::for_each_entry(item, |entry| {
                    current.name_bytes += to_u64(entry.name.len());
                    let (target, is_inode) = match entry.target {
                        EntryTarget::Inode(target) => (target, true),
                        EntryTarget::Subvolume(id) => (!id, false),
                    };
                    let bare = hash(number, 0, target, entry.name);
                    if kind == item::DIR_INDEX {
                        current.name_hashes.push(hash(number, 0, 0, entry.name));
                    } else {
                        names.push(entry.name);
                    }
                    if is_inode {
                        files.kinds.push((target, entry.kind));
                    }
                    if kind == item::DIR_ITEM {
                        files.entries.push((0, bare));
                    } else {
                        // 0 is not a valid index, so it means that there is no reference to compare
                        // with.
                        files
                            .indexes
                            .push((if is_inode { item.key.offset } else { 0 }, bare));
                    }
                    Ok(())
                })?;
                names.sort_unstable();
                if names.windows(2).any(|pair| pair[0] == pair[1]) {
                    return Err(item.corrupt("entry's name is in its item twice", number));
                }
                Ok(())
            }
            item::EXTENT_DATA => self.part(current, item),
            _ => Ok(()),
        }
    }

    fn part(&mut self, current: &mut InodeTally, item: &TreeItem<'_>) -> Result<()> {
        let btrfs = self.btrfs;
        let superblock = btrfs.superblock();
        let extent = FileExtent::parse(item, superblock.sectorsize)?;
        if extent.offset < current.extents_end {
            return Err(item.corrupt("parts of a file overlap", extent.offset));
        }
        if extent.offset > current.extents_end {
            current.gap.get_or_insert(current.extents_end);
        }
        let sector = u64::from(superblock.sectorsize);
        current.extents_end = extent.offset + extent.len;
        match extent.body {
            ExtentBody::Hole => {}
            ExtentBody::Inline {
                compression,
                stored,
                at,
            } => {
                current.extent_bytes += extent.len;
                current.extents_end = current.extents_end.next_multiple_of(sector);
                if let Some(compression) = compression {
                    self.decode_inline(compression, stored, extent.len, at)?;
                }
            }
            ExtentBody::Stored {
                extent: stored,
                offset,
                is_preallocated,
            } => {
                current.extent_bytes += extent.len;
                let has_checksums = current.inode.has_checksums();
                if !is_preallocated {
                    self.encoded(&stored, has_checksums);
                }
                if !has_checksums && stored.compression.is_some() {
                    return Err(
                        item.corrupt("file without checksums is compressed", current.number)
                    );
                }
                if !has_checksums && btrfs.has_checksums(stored.at, stored.len)? {
                    return Err(item.corrupt("file without checksums has some", stored.at.0));
                }
                let at = stored.at.0.saturating_add(offset);
                if is_preallocated && btrfs.has_checksums(Logical(at), extent.len)? {
                    return Err(item.corrupt("preallocated bytes have checksums", at));
                }
                if !has_checksums && !is_preallocated {
                    let end = at.saturating_add(extent.len);
                    self.without_checksums.add(at, end);
                }
                if current.needs_checksums && !is_preallocated {
                    let (at, len) = match stored.compression {
                        Some(_) => (stored.at.0, stored.len),
                        None => (at, extent.len),
                    };
                    btrfs.check_checksums(Logical(at), len)?;
                }
            }
        }
        Ok(())
    }

    fn finish(
        &mut self,
        tree: &Tree,
        files: &mut SubvolumeContents,
        current: Option<InodeTally>,
    ) -> Result<()> {
        let Some(mut current) = current else {
            return Ok(());
        };
        let name_hashes = &mut current.name_hashes;
        name_hashes.sort_unstable();
        let has_twice = name_hashes.windows(2).any(|pair| pair[0] == pair[1]);
        let InodeTally {
            number,
            inode,
            names,
            ..
        } = &current;
        let at = tree.root;
        self.summary.inodes += 1;
        self.progress.advance(1, 0);
        files.inodes.insert(*number, (inode.kind, inode.nlink));
        // The root directory's reference to itself counts as its name.
        if *names != inode.nlink {
            self.corrupt("inode's number of names is wrong", tree.id, at.0, *number)?;
        }
        if has_twice {
            self.corrupt("directory lists a name twice", tree.id, at.0, *number)?;
        }
        let sector = u64::from(self.btrfs.superblock().sectorsize);
        match inode.kind {
            // What is left of a file that is being deleted; its inode keeps the numbers of the
            // whole file.
            FileKind::Directory | FileKind::Regular | FileKind::Symlink if inode.nlink == 0 => {}
            FileKind::Directory if inode.size != current.name_bytes => {
                self.corrupt("directory's size is wrong", tree.id, at.0, *number)?;
            }
            FileKind::Regular | FileKind::Symlink => {
                if inode.nbytes != current.extent_bytes {
                    self.corrupt("inode's stored bytes are wrong", tree.id, at.0, *number)?;
                }
                let must_be_whole = self.btrfs.superblock().incompat & incompat::NO_HOLES == 0;
                let is_short = current.extents_end < inode.size.next_multiple_of(sector);
                let has_gap = current.gap.is_some_and(|gap| gap < inode.size);
                if must_be_whole && (has_gap || is_short) {
                    self.corrupt("file has a hole without an item", tree.id, at.0, *number)?;
                }
                if inode.kind == FileKind::Symlink && current.extents_end == 0 {
                    self.corrupt("link has no target", tree.id, at.0, *number)?;
                }
                let no_links = inode_flags::IMMUTABLE | inode_flags::APPEND;
                if inode.kind == FileKind::Symlink && inode.flags & no_links != 0 {
                    let what = "link has flags that only other files can have";
                    self.corrupt(what, tree.id, at.0, *number)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
