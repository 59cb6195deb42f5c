//! Replays the log: the changes that were synced since the last commit.
//!
//! `fsync` does not commit. It writes the items of the inode, and those that its name needs, to a
//! *log tree* of its subvolume. After a crash, Linux replays these trees when it mounts the file
//! system. We do the same to copies of the tree blocks in memory, in the same stages and order, so
//! that a reader sees the same tree as Linux.
//!
//! A log that Linux refuses to replay is an error.

mod edit;
mod extents;
mod names;

use std::collections::{BTreeSet, HashMap};

use tree::{FileKind, Result, to_u64};
use zerocopy::{FromBytes, IntoBytes};

use self::edit::Editor;
use crate::disk::dir;
use crate::disk::inode::StoredInode;
use crate::disk::key::{Key, is_file_tree, item, object};
use crate::disk::node::TreeItem;
use crate::disk::raw;
use crate::disk::subvolume::{TreeRoot, log_tree};
use crate::disk::tree::Tree;
use crate::disk::volume::Volume;

/// The trees that a replay changed.
pub(crate) struct Replayed {
    /// Trees of subvolumes, by ID.
    pub(crate) subvolumes: HashMap<u64, Tree>,
    pub(crate) checksums: Option<Tree>,
}

/// Replays all logs of a file system.
///
/// # Errors
/// Fails if a log cannot be read, or contradicts the last commit.
pub(crate) fn replay(volume: &Volume, roots: &Tree, checksums: Option<Tree>) -> Result<Replayed> {
    let superblock = &volume.superblock;
    let mut replayed = Replayed {
        subvolumes: HashMap::new(),
        checksums,
    };
    let Some(logs) = log_tree(superblock) else {
        return Ok(replayed);
    };
    let mut cursor = logs.seek(volume, Key::MIN)?;
    while let Some(item) = cursor.item() {
        if (item.key.objectid, item.key.kind) == (object::TREE_LOG, item::ROOT_ITEM) {
            let id = item.key.offset;
            let log = TreeRoot::parse(&item, superblock)?.tree;
            let target = TreeRoot::find(volume, roots, id)?;
            // The subvolume may have been deleted.
            if let Some(target) = target.filter(|root| root.refs > 0 && is_file_tree(id)) {
                let mut replay = Replay {
                    volume,
                    log,
                    files: Editor::new(volume, target.tree),
                    checksums: replayed.checksums.map(|tree| Editor::new(volume, tree)),
                    touched: BTreeSet::new(),
                };
                replay.run()?;
                replayed.subvolumes.insert(id, replay.files.tree);
                replayed.checksums = replay.checksums.map(|checksums| checksums.tree);
            }
        }
        cursor.advance()?;
    }
    Ok(replayed)
}

/// The replay of one log.
struct Replay<'v> {
    volume: &'v Volume,
    log: Tree,
    /// The subvolume's tree.
    files: Editor<'v>,
    /// The checksum tree.
    checksums: Option<Editor<'v>>,
    /// Inodes whose names may have changed.
    touched: BTreeSet<u64>,
}

/// The parts of a replay, in order. Each goes over the whole log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReplayStage {
    Inodes,
    Entries,
    Rest,
}

impl Replay<'_> {
    fn run(&mut self) -> Result<()> {
        for stage in [ReplayStage::Inodes, ReplayStage::Entries, ReplayStage::Rest] {
            let mut cursor = self.log.seek(self.volume, Key::MIN)?;
            let mut left_out = None;
            while let Some(item) = cursor.item() {
                if item.key.kind == item::INODE_ITEM {
                    // A temporary file that never had a name.
                    let inode = StoredInode::parse(&item, &self.volume.superblock)?;
                    left_out = (inode.nlink == 0).then_some(item.key.objectid);
                }
                if left_out != Some(item.key.objectid) {
                    match (stage, item.key.kind) {
                        (ReplayStage::Inodes, item::INODE_ITEM) => self.inode(&item)?,
                        (ReplayStage::Entries, item::DIR_INDEX) => self.entry(&item)?,
                        (ReplayStage::Rest, item::INODE_REF | item::INODE_EXTREF) => {
                            self.names(&item)?;
                        }
                        (ReplayStage::Rest, item::XATTR_ITEM) => {
                            self.files.put(item.key, item.data)?;
                        }
                        (ReplayStage::Rest, item::EXTENT_DATA) => self.extent(&item)?,
                        _ => {}
                    }
                }
                cursor.advance()?;
            }
        }
        self.count_names()
    }

    /// Replays an inode item. Items of its file that the log lacks were removed: attributes,
    /// and names within the ranges of a directory that the log describes.
    fn inode(&mut self, item: &TreeItem<'_>) -> Result<()> {
        let number = item.key.objectid;
        self.remove_xattrs(number)?;
        let inode = StoredInode::parse(item, &self.volume.superblock)?;
        if inode.kind == FileKind::Directory && self.has_inode(number)? {
            self.remove_names(number, true)?;
        }
        let size = self.put_inode(item)?;
        if inode.kind == FileKind::Regular {
            let sector = u64::from(self.volume.superblock.sectorsize);
            let end = size.checked_next_multiple_of(sector).unwrap_or(u64::MAX);
            self.drop_extents(number, end, u64::MAX)?;
        }
        self.touched.insert(number);
        Ok(())
    }

    /// Puts an inode item in place, and returns the size that the file has then.
    fn put_inode(&mut self, item: &TreeItem<'_>) -> Result<u64> {
        let next = self.volume.superblock.generation.0.saturating_add(1);
        let mut new = raw::InodeItem::read_from_bytes(item.data)
            .map_err(|_| item.corrupt("logged inode's size is wrong", to_u64(item.data.len())))?;
        let old = self.files.get(item.key)?;
        let old = old.and_then(|data| raw::InodeItem::read_from_bytes(&data).ok());
        // Without a generation, the log only says that the inode exists.
        if new.generation.get() == 0 {
            if let Some(mut old) = old {
                if FileKind::from_mode(old.mode.get()) == Some(FileKind::Regular)
                    && FileKind::from_mode(new.mode.get()) == Some(FileKind::Regular)
                    && new.size.get() != 0
                {
                    old.size = new.size;
                    old.transid = next.into();
                    self.files.put(item.key, old.as_bytes())?;
                }
                return Ok(old.size.get());
            }
            new.generation = next.into();
        }
        new.transid = next.into();
        self.files.put(item.key, new.as_bytes())?;
        Ok(new.size.get())
    }

    /// Whether the subvolume has this inode.
    fn has_inode(&self, number: u64) -> Result<bool> {
        self.files.has(Key::new(number, item::INODE_ITEM, 0))
    }

    /// Removes the attributes of an inode that the log does not have.
    fn remove_xattrs(&mut self, number: u64) -> Result<()> {
        let (first, last) = range(number, item::XATTR_ITEM, 0, u64::MAX);
        let mut gone = Vec::new();
        let mut cursor = self.files.tree.range(self.volume, first, last)?;
        while let Some(item) = cursor.item() {
            let mut known: Vec<Vec<u8>> = Vec::new();
            self.log.get(self.volume, item.key, |item| {
                dir::for_each_xattr(&item, |name, _| {
                    known.push(name.to_vec());
                    Ok(())
                })
            })?;
            let mut all_known = true;
            dir::for_each_xattr(&item, |name, _| {
                all_known &= known.iter().any(|known| known == name);
                Ok(())
            })?;
            if !all_known {
                // Those of them that the log has are put in place later, with all of its item.
                gone.push(item.key);
            }
            cursor.advance()?;
        }
        for key in gone {
            self.files.remove(key)?;
        }
        Ok(())
    }
}

/// The first and the last key of an inode's items of one type.
fn range(number: u64, kind: u8, from: u64, to: u64) -> (Key, Key) {
    (Key::new(number, kind, from), Key::new(number, kind, to))
}
