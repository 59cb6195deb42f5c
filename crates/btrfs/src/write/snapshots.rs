//! Finds subvolumes of the source that are snapshots of each other, so that their trees can share
//! blocks.
//!
//! Blocks are shared where their bytes are equal. So the files of such subvolumes get the inode
//! numbers, and the names the directory indexes, that they have in each other. Which subvolumes
//! these are follows from how many files are unchanged between them ([`FileIdentity`]); a wrong
//! guess only costs space.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use tree::{EntryId, FileId, FileIdentity, FileKind, Inventory};
use xxhash::Xxh64;

use crate::disk::key::{FIRST_GENERATION, object};
use crate::write::file_set::FileSet;

/// Number of files of each subvolume that are compared with those of others: the ones with the
/// smallest hashes.
const SAMPLE: usize = 1024;
/// Subvolumes of which less than one file in this many is unchanged are not related.
const PART_MIN: usize = 8;
/// Number of subvolumes that each one is compared with.
const CANDIDATES_MAX: usize = 64;
/// The largest inode number taken from the source. Files beyond get one of their own, as those that
/// are not from it.
const NUMBER_MAX: u64 = 1 << 48;
/// The parent of a file with names in several subvolumes.
const SEVERAL: u32 = u32::MAX;

/// Subvolumes that share blocks.
#[derive(Debug)]
pub(crate) struct Snapshots {
    /// All subvolumes in the order in which their trees are written: a base before the trees based
    /// on it.
    pub(crate) order: Vec<usize>,
    /// By subvolume: whether its blocks are shared.
    pub(crate) is_related: Vec<bool>,
    /// By subvolume: the one whose blocks it shares.
    pub(crate) base: Vec<Option<usize>>,
    /// The generation of the image, which is not below that of any file.
    pub(crate) generation: u64,
    /// Those that related subvolumes have.
    identities: Identities,
    /// By entry: its directory index, or 0 for the usual one, as for all that follow.
    indexes: Vec<u32>,
}

/// The identities of files, as far as they have some. In a new tree, few files have.
#[derive(Debug, Default)]
struct Identities {
    /// By file, without those that follow the last one: the number of its identity in the list plus
    /// 1, or 0. Numbers behind the list count the files that are numbered in their order.
    places: Vec<u32>,
    list: Vec<FileIdentity>,
    /// The identity of the first file that is numbered in order. Those of the others differ in the
    /// number.
    first: Option<FileIdentity>,
    /// How many files are numbered in order.
    numbered: u32,
}

impl Identities {
    /// The identities of these files, each of which occurs once.
    fn of(all: impl Iterator<Item = (FileId, FileIdentity)>) -> Identities {
        let mut identities = Identities::default();
        for (file, identity) in all {
            identities.set(file, identity);
        }
        identities
    }

    fn get(&self, file: FileId) -> Option<FileIdentity> {
        let place = *self.places.get(file.0 as usize)?;
        let index = place.checked_sub(1)? as usize;
        match index.checked_sub(self.list.len()) {
            None => Some(self.list[index]),
            Some(turn) => self.first.map(|first| FileIdentity {
                number: first.number + turn as u64,
                ..first
            }),
        }
    }

    fn place(&mut self, file: FileId) -> &mut u32 {
        let index = file.0 as usize;
        if self.places.len() <= index {
            self.places.resize(index + 1, 0);
        }
        &mut self.places[index]
    }

    /// Gives an identity to a file. No file has been numbered in order yet.
    fn set(&mut self, file: FileId, identity: FileIdentity) {
        let new = self.list.len() as u32 + 1; // There are no more than files.
        let place = self.place(file);
        match place.checked_sub(1) {
            Some(known) => self.list[known as usize] = identity,
            None => {
                *place = new;
                self.list.push(identity);
            }
        }
    }

    /// Gives a file the identity of the first one that is numbered in order, except for its number.
    fn number(&mut self, file: FileId) {
        self.numbered += 1;
        *self.place(file) = self.list.len() as u32 + self.numbered;
    }
}

impl Snapshots {
    /// Looks for relations between the subvolumes with these root directories, and these other
    /// files; `None` if no two are related. `generation` is that of the image, if it continues the
    /// source.
    pub(crate) fn find(
        inventory: &Inventory,
        roots: &[FileId],
        members: impl FnOnce() -> Vec<FileSet>,
        generation: Option<u64>,
    ) -> Option<Snapshots> {
        let identity = |file: FileId| {
            let metadata = inventory.tree().metadata(inventory.ino(file)).ok();
            metadata.and_then(|metadata| metadata.identity)
        };
        let snapshots = roots.iter().filter(|root| identity(**root).is_some());
        if generation.is_none() && snapshots.count() < 2 {
            return None;
        }
        let files = inventory.files();
        let known = Identities::of(files.filter_map(|file| Some((file, identity(file)?))));
        let members = members();
        let ages = members.iter().map(|files| {
            let identities = files.iter().filter_map(|file| known.get(file));
            identities.map(|identity| identity.transaction).max()
        });
        let ages: Vec<Option<u64>> = ages.collect();
        // The newest first: it is the one in use, and blocks of later trees lie between those of
        // earlier ones.
        let mut order: Vec<usize> = (0..members.len())
            .filter(|&index| ages[index].is_some())
            .collect();
        order.sort_by_key(|&index| Reverse(ages[index]));
        let mut base = vec![None; members.len()];
        let mut is_related = vec![false; members.len()];
        let mut samples: Vec<Vec<u64>> = Vec::with_capacity(order.len());
        for (turn, &index) in order.iter().enumerate() {
            samples.push(sample(&members[index], &known));
            let own = &samples[turn];
            let mut best = (0, 1, None);
            for other in (turn.saturating_sub(CANDIDATES_MAX)..turn).rev() {
                let (common, of) = similarity(own, &samples[other]);
                if common * PART_MIN >= of && common * best.1 > best.0 * of {
                    best = (common, of, Some(order[other]));
                }
            }
            base[index] = best.2;
            if let Some(other) = best.2 {
                is_related[index] = true;
                is_related[other] = true;
            }
        }
        order.retain(|&index| is_related[index]);
        if generation.is_none() && order.is_empty() {
            return None;
        }
        let others = (0..members.len()).filter(|&index| !is_related[index]);
        let mut snapshots = Snapshots {
            base,
            generation: generation.unwrap_or(FIRST_GENERATION),
            identities: Identities::default(),
            indexes: Vec::new(),
            order: others.chain(order.iter().copied()).collect(),
            is_related,
        };
        let numbered = match generation {
            Some(_) => snapshots.order.clone(),
            None => snapshots.related(),
        };
        let next = snapshots.take_identities(inventory, roots, &members, &known, &numbered);
        match generation {
            Some(newest) => {
                snapshots.limit_generations(newest);
                snapshots.number_alike(inventory, roots, &members, next);
            }
            None => {
                snapshots.rank_generations();
                snapshots.fill_in(inventory, roots, &members, next);
            }
        }
        Some(snapshots)
    }

    /// A file's identity, if it is in a related subvolume.
    pub(crate) fn identity(&self, file: FileId) -> Option<FileIdentity> {
        self.identities.get(file)
    }

    /// The directory index of an entry, if it is in a related subvolume.
    pub(crate) fn index(&self, entry: EntryId) -> Option<u64> {
        let index = *self.indexes.get(entry.0 as usize)?;
        (index != 0).then_some(index.into())
    }

    fn set_index(&mut self, entry: EntryId, index: u32) {
        let at = entry.0 as usize;
        if self.indexes.len() <= at {
            self.indexes.resize(at + 1, 0);
        }
        self.indexes[at] = index;
    }

    /// Related subvolumes, in the order in which their trees are written.
    fn related(&self) -> Vec<usize> {
        let order = self.order.iter().copied();
        order.filter(|&index| self.is_related[index]).collect()
    }

    /// Gives files the identities that they have in the source, as far as these are unique. Returns
    /// the first inode number that no file has.
    fn take_identities(
        &mut self,
        inventory: &Inventory,
        roots: &[FileId],
        members: &[FileSet],
        known: &Identities,
        numbered: &[usize],
    ) -> u64 {
        let mut holder: Vec<Option<u32>> = vec![None; known.places.len()];
        for (index, files) in (0..).zip(members) {
            for file in files.iter() {
                if let Some(holder) = holder.get_mut(file.0 as usize) {
                    *holder = Some(holder.map_or(index, |_| SEVERAL));
                }
            }
        }
        let mut next = object::FIRST_FREE + u64::from(inventory.file_count());
        for &subvolume in numbered {
            let taken = members[subvolume].iter().filter_map(|file| {
                let identity = known.get(file)?;
                let is_number = (object::FIRST_FREE + 1..NUMBER_MAX).contains(&identity.number);
                let is_here = holder[file.0 as usize] != Some(SEVERAL);
                (is_number && is_here).then_some((identity.number, file))
            });
            let mut taken: Vec<(u64, FileId)> = taken.collect();
            taken.sort_unstable();
            taken.dedup_by_key(|taken| taken.0);
            for (number, file) in taken {
                next = next.max(number + 1);
                if let Some(identity) = known.get(file) {
                    self.identities.set(file, identity);
                }
            }
            let root = roots[subvolume];
            if let Some(identity) = known.get(root) {
                let number = object::FIRST_FREE;
                let identity = FileIdentity { number, ..identity };
                self.identities.set(root, identity);
            }
        }
        next
    }

    /// Replaces generations by their ranks.
    fn rank_generations(&mut self) {
        let all = self.identities.list.iter();
        let ranks: BTreeSet<u64> = all
            .flat_map(|identity| [identity.generation, identity.transaction])
            .collect();
        let ranks: Vec<u64> = ranks.into_iter().collect();
        // Other files have the first generation.
        let rank =
            |generation| FIRST_GENERATION + 1 + ranks.partition_point(|&it| it < generation) as u64;
        for identity in &mut self.identities.list {
            identity.generation = rank(identity.generation);
            identity.transaction = rank(identity.transaction);
        }
        self.generation = FIRST_GENERATION + ranks.len() as u64;
    }

    /// Replaces generations that are newer than the image by the last ones before its own, in their
    /// order.
    fn limit_generations(&mut self, newest: u64) {
        let all = self.identities.list.iter();
        let all = all.flat_map(|identity| [identity.generation, identity.transaction]);
        let newer: BTreeSet<u64> = all.filter(|&it| it > newest).collect();
        let newer: Vec<u64> = newer.into_iter().collect();
        let limit = |it: u64| {
            let above = newer.len() - newer.partition_point(|&other| other <= it);
            if it > newest {
                newest.saturating_sub(above as u64).max(FIRST_GENERATION)
            } else {
                it.max(FIRST_GENERATION)
            }
        };
        for identity in &mut self.identities.list {
            identity.generation = limit(identity.generation);
            identity.transaction = limit(identity.transaction);
        }
    }

    /// Gives the other files numbers that no file of any subvolume has, starting at `next`, and
    /// names the same index in every state of their directory. `btrfs send -p` compares any two
    /// subvolumes by these: it takes files of one number and generation for the same file, and
    /// fails if the index of a name changes and its file does not.
    fn number_alike(
        &mut self,
        inventory: &Inventory,
        roots: &[FileId],
        members: &[FileSet],
        next: u64,
    ) {
        let generation = self.generation;
        let new = |number| FileIdentity {
            number,
            generation,
            transaction: generation,
        };
        for &root in roots {
            if self.identities.get(root).is_none() {
                self.identities.set(root, new(object::FIRST_FREE));
            }
        }
        self.identities.first = Some(new(next));
        let files = inventory.file_count() as usize;
        let places = &mut self.identities.places;
        places.reserve_exact(files.saturating_sub(places.len()));
        for file in members.iter().flat_map(FileSet::iter) {
            if self.identities.get(file).is_none() {
                self.identities.number(file);
            }
        }
        let dirs = inventory.files();
        let dirs = dirs.filter(|&dir| inventory.kind(dir) == FileKind::Directory);
        let mut dirs: Vec<(u64, u64, FileId)> = dirs
            .filter_map(|dir| {
                let identity = self.identities.get(dir)?;
                Some((identity.number, identity.generation, dir))
            })
            .collect();
        dirs.sort_unstable();
        for states in dirs.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            if states.len() == 1 {
                continue; // Its names have the usual indexes.
            }
            let mut indexes: HashMap<Cow<'_, [u8]>, u32> = HashMap::new();
            let mut end = 2;
            for entry in states.iter().flat_map(|state| inventory.entries(state.2)) {
                let index = indexes.entry(inventory.name(entry)).or_insert_with(|| {
                    end += 1;
                    end - 1
                });
                self.set_index(entry, *index);
            }
        }
    }

    /// Gives names the directory indexes that they have in the base, and the other files numbers,
    /// starting at `next`.
    fn fill_in(
        &mut self,
        inventory: &Inventory,
        roots: &[FileId],
        members: &[FileSet],
        mut next: u64,
    ) {
        // Directories by inode number.
        let mut dirs: Vec<Vec<(u64, FileId)>> = vec![Vec::new(); members.len()];
        for subvolume in self.related() {
            let root = roots[subvolume];
            let of_base = self.base[subvolume].map(|base| &dirs[base]);
            let mut own = Vec::new();
            for dir in std::iter::once(root).chain(members[subvolume].iter()) {
                if inventory.kind(dir) != FileKind::Directory {
                    continue;
                }
                let number = if dir == root {
                    object::FIRST_FREE
                } else {
                    self.identities.get(dir).map_or(0, |known| known.number)
                };
                own.push((number, dir));
                let same = of_base.and_then(|dirs| {
                    let at = dirs.binary_search_by_key(&number, |dir| dir.0).ok()?;
                    Some(dirs[at].1)
                });
                self.fill_in_dir(inventory, dir, same.filter(|_| number != 0));
            }
            // Their numbers are new, so the generation only has to be one of this subvolume.
            let own_files = members[subvolume].iter();
            let newest = own_files.filter_map(|file| self.identities.get(file));
            let newest = newest.map(|identity| identity.transaction).max();
            let newest = newest.unwrap_or(0).max(FIRST_GENERATION);
            for file in std::iter::once(root).chain(members[subvolume].iter()) {
                if self.identities.get(file).is_none() {
                    let identity = FileIdentity {
                        number: if file == root {
                            object::FIRST_FREE
                        } else {
                            next
                        },
                        generation: newest,
                        transaction: newest,
                    };
                    self.identities.set(file, identity);
                    next += u64::from(file != root);
                }
            }
            own.retain(|own| own.0 != 0);
            own.sort_unstable();
            dirs[subvolume] = own;
        }
    }

    /// Numbers the names in a directory as in the same directory of the base, and new ones after
    /// those.
    fn fill_in_dir(&mut self, inventory: &Inventory, dir: FileId, base: Option<FileId>) {
        let Some(base) = base else { return };
        let mut others = inventory.entries(base).peekable();
        let mut new = Vec::new();
        let mut end = 2;
        let index = |snapshots: &Snapshots, entry: EntryId| {
            (snapshots.index(entry)).unwrap_or_else(|| usual_index(inventory, entry)) as u32
        };
        for entry in inventory.entries(base) {
            end = end.max(index(self, entry) + 1);
        }
        for entry in inventory.entries(dir) {
            let name = inventory.name(entry);
            while others
                .next_if(|&other| inventory.name(other) < name)
                .is_some()
            {}
            let Some(other) = others.next_if(|&other| inventory.name(other) == name) else {
                new.push(entry);
                continue;
            };
            let same = index(self, other);
            self.set_index(entry, same);
            // The empty directory in place of a nested subvolume has no identity.
            let (file, other) = (inventory.file(entry), inventory.file(other));
            let is_empty = |file| {
                inventory.kind(file) == FileKind::Directory
                    && inventory.entries(file).next().is_none()
            };
            if self.identities.get(file).is_none()
                && is_empty(file)
                && is_empty(other)
                && inventory.metadata(file) == inventory.metadata(other)
                && let Some(identity) = self.identities.get(other)
            {
                self.identities.set(file, identity);
            }
        }
        for (entry, index) in new.into_iter().zip(end..) {
            self.set_index(entry, index);
        }
    }
}

/// The directory index of an entry, unless a base has another: names are numbered in their order.
pub(crate) fn usual_index(inventory: &Inventory, entry: EntryId) -> u64 {
    let first = inventory.entries(inventory.parent(entry)).next();
    u64::from(entry.0 - first.map_or(entry.0, |first| first.0)) + 2
}

/// The smallest hashes of a subvolume's files, in ascending order.
fn sample(files: &FileSet, known: &Identities) -> Vec<u64> {
    let identities = files.iter().filter_map(|file| known.get(file));
    let mut hashes: Vec<u64> = identities
        .map(|identity| {
            let mut hash = Xxh64::new(0);
            for part in [identity.number, identity.generation, identity.transaction] {
                hash.update(&part.to_le_bytes());
            }
            hash.digest()
        })
        .collect();
    hashes.sort_unstable();
    hashes.dedup();
    hashes.truncate(SAMPLE);
    hashes.shrink_to_fit();
    hashes
}

/// Of the smallest hashes of both samples, how many both have, and how many there are.
fn similarity(one: &[u64], other: &[u64]) -> (usize, usize) {
    let (mut a, mut b) = (one.iter().peekable(), other.iter().peekable());
    let (mut common, mut all) = (0, 0);
    while all < SAMPLE {
        let smallest = match (a.peek(), b.peek()) {
            (Some(&&x), Some(&&y)) => x.min(y),
            (Some(&&x), None) | (None, Some(&&x)) => x,
            (None, None) => break,
        };
        let in_one = a.next_if(|&&hash| hash == smallest).is_some();
        let in_other = b.next_if(|&&hash| hash == smallest).is_some();
        common += usize::from(in_one && in_other);
        all += 1;
    }
    (common, all)
}
