//! Plans which directories become subvolumes, and which files are in them.

use std::collections::HashMap;

use tree::{EntryId, Error, FileId, FileIdentity, FileKind, Inventory, Result};

use crate::disk::key::{FIRST_GENERATION, is_file_tree, object};
use crate::options::{NewSubvolume, Options};
use crate::write::file_set::FileSet;
use crate::write::snapshots::{Snapshots, usual_index};

/// A subvolume of the new file system.
#[derive(Clone, Debug)]
pub(crate) struct PlannedSubvolume {
    /// Its ID.
    pub(crate) id: u64,
    /// The directory that becomes its root.
    pub(crate) dir: FileId,
    /// Its name in its parent subvolume, and the parent's index; `None` for the top level.
    pub(crate) place: Option<(EntryId, usize)>,
    pub(crate) options: NewSubvolume,
}

/// The subvolumes of a new file system.
#[derive(Debug)]
pub(crate) struct SubvolumePlan {
    /// The top level first, then the others in the order of their IDs.
    pub(crate) subvolumes: Vec<PlannedSubvolume>,
    /// Index of the default subvolume.
    pub(crate) default: usize,
    /// The subvolumes by the directories that become their roots.
    by_dir: HashMap<FileId, usize>,
    /// The subvolumes that contain directories: each contains those from this one on, up to that of
    /// the next one. Empty if there is only one subvolume.
    of_dir: Vec<(FileId, u32)>,
    /// Which subvolumes share blocks, if any do.
    snapshots: Option<Snapshots>,
    /// The generation of the image, if it continues another one.
    generation: Option<u64>,
}

impl SubvolumePlan {
    pub(crate) fn new(inventory: &Inventory, options: &Options) -> Result<SubvolumePlan> {
        let mut wanted: Vec<(FileId, EntryId, NewSubvolume)> = Vec::new();
        let root = inventory.root();
        let mut top = NewSubvolume::default();
        for subvolume in &options.subvolumes {
            let named = |error: Error| error.in_file("make a subvolume of", &subvolume.path);
            let entry = inventory.find(&subvolume.path);
            let entry = entry.ok_or_else(|| named(Error::NotFound))?;
            let file = inventory.file(entry);
            if inventory.kind(file) != FileKind::Directory {
                return Err(named(Error::NotADirectory));
            }
            if entry == root {
                top = subvolume.clone();
            } else {
                wanted.push((file, entry, subvolume.clone()));
            }
        }
        wanted.sort_by_key(|wanted| wanted.0);
        if let Some(pair) = wanted.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let twice = Error::InvalidInput("listed as a subvolume twice");
            return Err(twice.in_file("make a subvolume of", &pair[0].2.path));
        }
        let ids = ids(&wanted, options)?;
        let mut wanted: Vec<_> = ids.into_iter().zip(wanted).collect();
        wanted.sort_by_key(|wanted| wanted.0);
        let mut plan = SubvolumePlan {
            subvolumes: vec![PlannedSubvolume {
                id: object::FS_TREE,
                dir: FileId(0),
                place: None,
                options: top,
            }],
            default: 0,
            by_dir: HashMap::new(),
            of_dir: Vec::new(),
            snapshots: None,
            generation: options.generation,
        };
        plan.by_dir.insert(FileId(0), 0);
        for (index, (id, (dir, entry, options))) in (1..).zip(wanted) {
            plan.by_dir.insert(dir, index);
            plan.subvolumes.push(PlannedSubvolume {
                id,
                dir,
                place: Some((entry, 0)),
                options,
            });
        }
        if plan.subvolumes.len() > 1 {
            // A directory follows the one that it is in.
            for dir in inventory.files() {
                if inventory.kind(dir) != FileKind::Directory {
                    continue;
                }
                let index = match plan.by_dir.get(&dir) {
                    Some(&index) => index,
                    None => plan.of(inventory.parent(inventory.first_name(dir))),
                } as u32;
                if plan.of_dir.last().is_none_or(|last| last.1 != index) {
                    plan.of_dir.push((dir, index));
                }
            }
            for index in 1..plan.subvolumes.len() {
                if let Some((entry, _)) = plan.subvolumes[index].place {
                    let parent = plan.of(inventory.parent(entry));
                    plan.subvolumes[index].place = Some((entry, parent));
                }
            }
        }
        if plan.subvolumes.len() > 1 {
            let roots: Vec<FileId> = plan.subvolumes.iter().map(|own| own.dir).collect();
            let members = || plan.members(inventory);
            plan.snapshots = Snapshots::find(inventory, &roots, members, options.generation);
        }
        if let Some(path) = &options.default_subvolume {
            let entry = inventory.find(path);
            let index = entry.and_then(|entry| plan.by_dir.get(&inventory.file(entry)));
            plan.default = *index.ok_or_else(|| {
                Error::InvalidInput("it is not a subvolume").in_file("mount by default", path)
            })?;
        }
        Ok(plan)
    }

    /// Index of the subvolume that contains a directory; for the root of a subvolume, that
    /// subvolume.
    pub(crate) fn of(&self, dir: FileId) -> usize {
        let behind = self.of_dir.partition_point(|(first, _)| *first <= dir);
        let run = behind.checked_sub(1).map(|at| self.of_dir[at].1);
        run.map_or(0, |index| index as usize)
    }

    /// Index of the subvolume whose root is this directory.
    pub(crate) fn rooted_at(&self, dir: FileId) -> Option<usize> {
        self.by_dir.get(&dir).copied()
    }

    /// All subvolumes in the order in which their trees are written.
    pub(crate) fn order(&self) -> Vec<usize> {
        match &self.snapshots {
            Some(snapshots) => snapshots.order.clone(),
            None => (0..self.subvolumes.len()).collect(),
        }
    }

    /// Whether a subvolume shares blocks with others.
    pub(crate) fn is_related(&self, subvolume: usize) -> bool {
        (self.snapshots.as_ref()).is_some_and(|snapshots| snapshots.is_related[subvolume])
    }

    /// The subvolume whose blocks this one shares, which is written earlier.
    pub(crate) fn base(&self, subvolume: usize) -> Option<usize> {
        (self.snapshots.as_ref()).and_then(|snapshots| snapshots.base[subvolume])
    }

    /// The files of each subvolume except its root.
    pub(crate) fn members(&self, inventory: &Inventory) -> Vec<FileSet> {
        let mut members = vec![FileSet::default(); self.subvolumes.len()];
        for entry in (1..inventory.entry_count()).map(EntryId) {
            let file = inventory.file(entry);
            if self.rooted_at(file).is_none() {
                members[self.of(inventory.parent(entry))].add(file);
            }
        }
        members.iter_mut().for_each(FileSet::finish);
        members
    }

    /// The generation of the image.
    pub(crate) fn generation(&self) -> u64 {
        let snapshots = self.snapshots.as_ref();
        let counted = snapshots.map_or(FIRST_GENERATION, |snapshots| snapshots.generation);
        self.generation.unwrap_or(counted)
    }

    /// The transactions of a subvolume's last change and of its creation.
    pub(crate) fn transactions(&self, subvolume: &PlannedSubvolume) -> [u64; 2] {
        let generation = self.generation();
        match subvolume.options.numbers {
            Some(numbers) if self.generation.is_some() => {
                [numbers.ctransid, numbers.otransid].map(|it| it.min(generation))
            }
            _ => [generation; 2],
        }
    }

    /// The directory index of an entry.
    pub(crate) fn index(&self, inventory: &Inventory, entry: EntryId) -> u64 {
        let index = self.snapshots.as_ref().and_then(|it| it.index(entry));
        index.unwrap_or_else(|| usual_index(inventory, entry))
    }

    /// A file's inode number in the subvolume that contains it, and when it was created and
    /// changed.
    pub(crate) fn identity(&self, file: FileId) -> FileIdentity {
        let identity = self.snapshots.as_ref().and_then(|it| it.identity(file));
        identity.unwrap_or_else(|| FileIdentity {
            number: self.usual_ino(file),
            generation: FIRST_GENERATION,
            transaction: FIRST_GENERATION,
        })
    }

    /// A file's inode number in the subvolume that contains it.
    pub(crate) fn ino(&self, file: FileId) -> u64 {
        self.identity(file).number
    }

    fn usual_ino(&self, file: FileId) -> u64 {
        if self.by_dir.contains_key(&file) {
            object::FIRST_FREE
        } else {
            object::FIRST_FREE + u64::from(file.0)
        }
    }
}

/// The IDs of new subvolumes: those that they keep, if they keep any, then those of the others, in
/// order.
fn ids(wanted: &[(FileId, EntryId, NewSubvolume)], options: &Options) -> Result<Vec<u64>> {
    let kept = |own: &NewSubvolume| {
        let numbers = own.numbers.filter(|_| options.generation.is_some());
        numbers.map(|numbers| numbers.id)
    };
    let kept: Vec<Option<u64>> = wanted.iter().map(|wanted| kept(&wanted.2)).collect();
    let mut all: Vec<u64> = kept.iter().flatten().copied().collect();
    all.sort_unstable();
    let is_wrong = |id: &u64| !is_file_tree(*id) || *id == object::FS_TREE;
    if all.iter().any(is_wrong) || all.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::InvalidInput("the IDs of subvolumes are impossible"));
    }
    let mut next = all.last().map_or(object::FIRST_FREE, |last| last + 1);
    let mut ids = Vec::with_capacity(kept.len());
    for kept in kept {
        ids.push(kept.unwrap_or(next));
        next += u64::from(kept.is_none());
    }
    if next > object::LAST_FREE {
        return Err(Error::Limit("the IDs of subvolumes are used up"));
    }
    Ok(ids)
}
