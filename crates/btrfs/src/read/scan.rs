//! The names, directories and lost files that the readable blocks of a damaged tree still mention.

use std::collections::{BTreeMap, HashMap, HashSet};

use tree::{FileKind, Result};

use super::ino_map::INODE_BITS;
use crate::disk::dir::{self, EntryTarget};
use crate::disk::inode::{InodeName, StoredInode, for_each_name};
use crate::disk::key::{Key, item, object};
use crate::disk::subvolume;
use crate::disk::tree::{Tree, UnreadableBlock};
use crate::disk::volume::Volume;

/// The inode number of `lost+found`, as in ext4: btrfs has no files below 256.
pub(super) const LOST_AND_FOUND: u64 = 11;

/// A name, and the inode that it belongs to.
type NamedInode = (Box<[u8]>, u64);

/// One pass over a damaged tree. All of it is empty if every block can be read.
#[derive(Debug, Default)]
pub(super) struct TreeScan {
    /// The names in each directory that lost some.
    pub(super) names: HashMap<u64, Vec<NamedInode>>,
    /// The inodes to which no name leads, and the directories without an inode.
    pub(super) lost: BTreeMap<u64, FileKind>,
    /// Directories without an inode that can be read, which names mention.
    pub(super) directories: HashSet<u64>,
}

impl TreeScan {
    /// Reads all blocks of a subvolume's tree that can be read.
    ///
    /// # Errors
    /// Fails if the root block of the tree cannot be read.
    pub(super) fn of(volume: &Volume, roots: &Tree, tree: &Tree) -> Result<TreeScan> {
        let mut cursor = tree.readable(volume, Key::MIN, Key::MAX)?;
        while cursor.item().is_some() {
            cursor.advance()?;
        }
        let damage = cursor.into_damage();
        let mut scan = TreeScan::default();
        if damage.is_empty() {
            return Ok(scan);
        }
        let mut inodes: HashMap<u64, FileKind> = HashMap::new();
        let mut named: HashSet<u64> = HashSet::new();
        let mut cursor = tree.readable(volume, Key::MIN, Key::MAX)?;
        while let Some(item) = cursor.item() {
            let number = item.key.objectid;
            // What is wrong with an item is reported where its file is read.
            let _ = match item.key.kind {
                item::INODE_ITEM => {
                    StoredInode::parse(&item, &volume.superblock).map(|inode| {
                        // A deleted file that was open has no names, and is not lost.
                        if inode.nlink > 0 {
                            inodes.insert(number, inode.kind);
                        }
                    })
                }
                item::INODE_REF | item::INODE_EXTREF => for_each_name(&item, |reference| {
                    if reference.parent != number {
                        scan.add_reference(&reference, number, &damage, &mut named);
                    }
                    Ok(())
                }),
                item::DIR_ITEM | item::DIR_INDEX => {
                    scan.directories.insert(number);
                    dir::for_each_entry(&item, |entry| {
                        if let EntryTarget::Inode(target) = entry.target {
                            named.insert(target);
                        }
                        Ok(())
                    })
                }
                _ => Ok(()),
            };
            cursor.advance()?;
        }
        let [first, last] = [0, u64::MAX].map(|id| Key::new(tree.id, item::ROOT_REF, id));
        let mut cursor = roots.readable(volume, first, last)?;
        while let Some(item) = cursor.item() {
            scan.directories
                .extend(subvolume::parse_ref(&item).map(|(dir, _, _)| dir));
            cursor.advance()?;
        }
        let is_file = |number: &u64| *number >= object::FIRST_FREE && number >> INODE_BITS == 0;
        scan.directories
            .retain(|dir| is_file(dir) && !inodes.contains_key(dir));
        let directories = scan.directories.iter();
        inodes.extend(directories.map(|&dir| (dir, FileKind::Directory)));
        let is_lost = |number: &u64| {
            is_file(number) && *number != object::FIRST_FREE && !named.contains(number)
        };
        scan.lost = inodes.into_iter().filter(|(it, _)| is_lost(it)).collect();
        Ok(scan)
    }

    /// Adds a name that an inode has, if its directory may have lost it.
    fn add_reference(
        &mut self,
        reference: &InodeName<'_>,
        number: u64,
        damage: &[UnreadableBlock],
        named: &mut HashSet<u64>,
    ) {
        let dir = reference.parent;
        self.directories.insert(dir);
        let first = Key::new(dir, item::DIR_ITEM, 0);
        let last = Key::new(dir, item::DIR_INDEX, u64::MAX);
        let is_damaged = damage
            .iter()
            .any(|block| block.from <= last && block.end.is_none_or(|end| end > first));
        if is_damaged {
            named.insert(number);
            let names = self.names.entry(dir).or_default();
            names.push((reference.name.into(), number));
        }
    }
}
