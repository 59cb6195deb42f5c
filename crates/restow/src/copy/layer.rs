//! The part of a tree that a layer on top of others needs.

use std::collections::HashSet;

use tree::diff::{Change, diff};
use tree::{
    Aspects, EntryId, FileId, FileKind, FileSystem, Inventory, NoProgress, Parallel, Result,
};

/// The differences of a tree from the one below it.
pub(super) struct LayerPart<'t> {
    /// The files that were added or changed, with all of their names and the directories above.
    pub(super) inventory: Inventory<'t>,
    /// The paths that were removed.
    pub(super) removed: Vec<Vec<u8>>,
}

impl<'t> LayerPart<'t> {
    /// Compares the files of an inventory with the tree below them.
    ///
    /// # Errors
    /// A tree cannot be read.
    pub(super) fn of(
        below: &dyn FileSystem,
        inventory: &Inventory<'t>,
        parallel: Parallel,
    ) -> Result<LayerPart<'t>> {
        let mut kept = KeptEntries {
            inventory,
            entries: HashSet::from([inventory.root()]),
        };
        let mut removed = Vec::new();
        diff(
            below,
            inventory.tree(),
            &Aspects::default(),
            parallel,
            &NoProgress,
            &mut |difference| {
                let path = &*difference.path;
                // Of the second tree, some files may not be in the inventory.
                let entry = inventory.find(path);
                match (difference.change, entry) {
                    (Change::OnlyInFirst(_), _) => {
                        removed.push(path.to_vec());
                        let slash = path.iter().rposition(|&byte| byte == b'/');
                        let parent = inventory.find(&path[..slash.unwrap_or(0)]);
                        parent.into_iter().for_each(|parent| kept.add(parent));
                    }
                    (_, None) => {}
                    (Change::OnlyInSecond(_) | Change::Kind(..), Some(entry)) => {
                        kept.add_all(entry);
                    }
                    // The inventory may have earlier times than the tree.
                    (Change::Mtime(time, _), Some(entry))
                        if inventory.metadata(inventory.file(entry)).mtime == time => {}
                    (_, Some(entry)) => kept.add(entry),
                }
                Ok(())
            },
        )?;
        let entries = kept.with_links();
        Ok(LayerPart {
            inventory: inventory.without(|entry| !entries.contains(&entry)),
            removed,
        })
    }
}

struct KeptEntries<'a, 't> {
    inventory: &'a Inventory<'t>,
    /// Those that a layer has; with each, the directories above it.
    entries: HashSet<EntryId>,
}

impl KeptEntries<'_, '_> {
    fn add(&mut self, mut entry: EntryId) {
        while self.entries.insert(entry) {
            entry = (self.inventory).first_name(self.inventory.parent(entry));
        }
    }

    /// Adds a file and everything below it.
    fn add_all(&mut self, entry: EntryId) {
        self.add(entry);
        let mut open = vec![self.inventory.file(entry)];
        while let Some(dir) = open.pop() {
            if self.inventory.kind(dir) != FileKind::Directory {
                continue;
            }
            for entry in self.inventory.entries(dir) {
                self.entries.insert(entry);
                open.push(self.inventory.file(entry));
            }
        }
    }

    /// The entries with all names of their files: a hard link to a file of a lower layer would need
    /// that layer to be read.
    fn with_links(mut self) -> HashSet<EntryId> {
        let inventory = self.inventory;
        let files = self.entries.iter().map(|&entry| inventory.file(entry));
        let linked: HashSet<FileId> = files.filter(|&it| inventory.name_count(it) > 1).collect();
        if !linked.is_empty() {
            for entry in inventory.names() {
                if linked.contains(&inventory.file(entry)) {
                    self.add(entry);
                }
            }
        }
        self.entries
    }
}
