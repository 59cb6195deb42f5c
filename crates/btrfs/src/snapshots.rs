//! Finds subvolumes of the source that are snapshots of each other, so that their trees can share blocks.
//!
//! Blocks are shared where their bytes are equal. So the files of such subvolumes get the inode numbers, and the names the
//! directory indexes, that they have in each other. Which subvolumes these are follows from how many files are
//! unchanged between them ([`FileIdentity`]); a wrong guess only costs space.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};

use tree::{EntryId, FileId, FileIdentity, FileKind, FileSystem, Inventory};
use xxhash::Xxh64;

use crate::builder::GENERATION;
use crate::key::object;

/// Number of files of each subvolume that are compared with those of others: the ones with the smallest hashes.
const SAMPLE: usize = 1024;
/// Subvolumes of which less than one file in this many is unchanged are not related.
const PART_MIN: usize = 8;
/// Number of subvolumes that each one is compared with.
const CANDIDATES_MAX: usize = 64;
/// The largest inode number taken from the source. Files beyond get one of their own, as those that are not from it.
const NUMBER_MAX: u64 = 1 << 48;
/// The parent of a file with names in several subvolumes.
const SEVERAL: u32 = u32::MAX;

/// Subvolumes that share blocks.
#[derive(Debug)]
pub(crate) struct Snapshots {
    /// All subvolumes in the order in which their trees are written: a base before what is based on it.
    pub(crate) order: Vec<usize>,
    /// By subvolume: whether its blocks are shared.
    pub(crate) is_related: Vec<bool>,
    /// By subvolume: the one whose blocks it shares.
    pub(crate) base: Vec<Option<usize>>,
    /// The generation of the image, which is not below that of any file.
    pub(crate) generation: u64,
    /// By file. A number of 0 if no related subvolume has it.
    identities: Vec<FileIdentity>,
    /// By entry: its directory index, or 0 for the usual one.
    indexes: Vec<u32>,
}

const NO_IDENTITY: FileIdentity = FileIdentity {
    number: 0,
    generation: 0,
    transaction: 0,
};

impl Snapshots {
    /// Looks for relations between the subvolumes with these root directories, and these other files; `None` if no two are
    /// related. `generation` is that of the image, if it continues the source.
    pub(crate) fn find(
        fs: &dyn FileSystem,
        inventory: &Inventory,
        roots: &[FileId],
        members: impl FnOnce() -> Vec<Vec<FileId>>,
        generation: Option<u64>,
    ) -> Option<Snapshots> {
        let identity = |file: FileId| {
            let metadata = fs.metadata(inventory.ino(file)).ok();
            metadata.and_then(|metadata| metadata.identity)
        };
        let snapshots = roots.iter().filter(|root| identity(**root).is_some());
        if generation.is_none() && snapshots.count() < 2 {
            return None;
        }
        let known: Vec<Option<FileIdentity>> = inventory.files().map(identity).collect();
        let members = members();
        let ages = members.iter().map(|files| {
            let identities = files.iter().filter_map(|file| known[file.0 as usize]);
            identities.map(|identity| identity.transaction).max()
        });
        let ages: Vec<Option<u64>> = ages.collect();
        // The newest first: it is the one in use, and blocks of later trees lie between those of earlier ones.
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
            generation: generation.unwrap_or(GENERATION),
            identities: vec![NO_IDENTITY; known.len()],
            indexes: vec![0; inventory.entry_count() as usize],
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
        let identity = self.identities[file.0 as usize];
        (identity.number != 0).then_some(identity)
    }

    /// The directory index of an entry, if it is in a related subvolume.
    pub(crate) fn index(&self, entry: EntryId) -> Option<u64> {
        let index = self.indexes[entry.0 as usize];
        (index != 0).then_some(index.into())
    }

    /// Related subvolumes, in the order in which their trees are written.
    fn related(&self) -> Vec<usize> {
        let order = self.order.iter().copied();
        order.filter(|&index| self.is_related[index]).collect()
    }

    /// Gives files the identities that they have in the source, as far as these are unique. Returns the first inode number
    /// that no file has.
    fn take_identities(
        &mut self,
        inventory: &Inventory,
        roots: &[FileId],
        members: &[Vec<FileId>],
        known: &[Option<FileIdentity>],
        numbered: &[usize],
    ) -> u64 {
        let mut holder: Vec<Option<u32>> = vec![None; known.len()];
        for (index, files) in (0..).zip(members) {
            for file in files {
                let holder = &mut holder[file.0 as usize];
                *holder = Some(holder.map_or(index, |_| SEVERAL));
            }
        }
        let mut next = object::FIRST_FREE + u64::from(inventory.file_count());
        for &subvolume in numbered {
            let taken = members[subvolume].iter().filter_map(|&file| {
                let identity = known[file.0 as usize]?;
                let is_number = (object::FIRST_FREE + 1..NUMBER_MAX).contains(&identity.number);
                let is_here = holder[file.0 as usize] != Some(SEVERAL);
                (is_number && is_here).then_some((identity.number, file))
            });
            let mut taken: Vec<(u64, FileId)> = taken.collect();
            taken.sort_unstable();
            taken.dedup_by_key(|taken| taken.0);
            for (number, file) in taken {
                next = next.max(number + 1);
                self.identities[file.0 as usize] = known[file.0 as usize].unwrap_or(NO_IDENTITY);
            }
            let root = roots[subvolume];
            if let Some(identity) = known[root.0 as usize] {
                self.identities[root.0 as usize] = FileIdentity {
                    number: object::FIRST_FREE,
                    ..identity
                };
            }
        }
        next
    }

    /// Replaces generations by their ranks.
    fn rank_generations(&mut self) {
        let all = self
            .identities
            .iter()
            .filter(|identity| identity.number != 0);
        let ranks: BTreeSet<u64> = all
            .flat_map(|identity| [identity.generation, identity.transaction])
            .collect();
        let ranks: Vec<u64> = ranks.into_iter().collect();
        // Other files have the first generation.
        let rank =
            |generation| GENERATION + 1 + ranks.partition_point(|&it| it < generation) as u64;
        for identity in &mut self.identities {
            if identity.number != 0 {
                identity.generation = rank(identity.generation);
                identity.transaction = rank(identity.transaction);
            }
        }
        self.generation = GENERATION + ranks.len() as u64;
    }

    /// Replaces generations that are newer than the image by the last ones before its own, in their order.
    fn limit_generations(&mut self, newest: u64) {
        let all = self.identities.iter();
        let all = all.flat_map(|identity| [identity.generation, identity.transaction]);
        let newer: BTreeSet<u64> = all.filter(|&it| it > newest).collect();
        let newer: Vec<u64> = newer.into_iter().collect();
        let limit = |it: u64| {
            let above = newer.len() - newer.partition_point(|&other| other <= it);
            if it > newest {
                newest.saturating_sub(above as u64).max(GENERATION)
            } else {
                it.max(GENERATION)
            }
        };
        for identity in &mut self.identities {
            if identity.number != 0 {
                identity.generation = limit(identity.generation);
                identity.transaction = limit(identity.transaction);
            }
        }
    }

    /// Gives the other files numbers that no file of any subvolume has, starting at `next`, and names the same index in every state
    /// of their directory. `btrfs send -p` compares any two subvolumes by these: it takes files of one number and
    /// generation for the same file, and fails if the index of a name changes and its file does not.
    fn number_alike(
        &mut self,
        inventory: &Inventory,
        roots: &[FileId],
        members: &[Vec<FileId>],
        mut next: u64,
    ) {
        for (&root, files) in roots.iter().zip(members) {
            for &file in std::iter::once(&root).chain(files) {
                let identity = &mut self.identities[file.0 as usize];
                if identity.number != 0 {
                    continue;
                }
                *identity = FileIdentity {
                    number: if file == root {
                        object::FIRST_FREE
                    } else {
                        next
                    },
                    generation: self.generation,
                    transaction: self.generation,
                };
                next += u64::from(file != root);
            }
        }
        let mut indexes: HashMap<(u64, u64, &[u8]), u32> = HashMap::new();
        let mut ends: HashMap<(u64, u64), u32> = HashMap::new();
        for dir in inventory.files() {
            if inventory.kind(dir) != FileKind::Directory {
                continue;
            }
            let FileIdentity {
                number, generation, ..
            } = self.identities[dir.0 as usize];
            let end = ends.entry((number, generation)).or_insert(2);
            for entry in inventory.entries(dir) {
                let key = (number, generation, inventory.name(entry));
                let index = indexes.entry(key).or_insert_with(|| {
                    *end += 1;
                    *end - 1
                });
                self.indexes[entry.0 as usize] = *index;
            }
        }
    }

    /// Gives names the directory indexes that they have in the base, and the other files numbers, starting at `next`.
    fn fill_in(
        &mut self,
        inventory: &Inventory,
        roots: &[FileId],
        members: &[Vec<FileId>],
        mut next: u64,
    ) {
        // Directories by inode number.
        let mut dirs: Vec<Vec<(u64, FileId)>> = vec![Vec::new(); members.len()];
        for subvolume in self.related() {
            let root = roots[subvolume];
            let of_base = self.base[subvolume].map(|base| &dirs[base]);
            let mut own = Vec::new();
            for &dir in std::iter::once(&root).chain(&members[subvolume]) {
                if inventory.kind(dir) != FileKind::Directory {
                    continue;
                }
                let number = if dir == root {
                    object::FIRST_FREE
                } else {
                    self.identities[dir.0 as usize].number
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
            let newest = own_files.map(|file| self.identities[file.0 as usize].transaction);
            let newest = newest.max().unwrap_or(0).max(GENERATION);
            for &file in std::iter::once(&root).chain(&members[subvolume]) {
                let identity = &mut self.identities[file.0 as usize];
                if identity.number == 0 {
                    *identity = FileIdentity {
                        number: if file == root {
                            object::FIRST_FREE
                        } else {
                            next
                        },
                        generation: newest,
                        transaction: newest,
                    };
                    next += u64::from(file != root);
                }
            }
            own.retain(|own| own.0 != 0);
            own.sort_unstable();
            dirs[subvolume] = own;
        }
    }

    /// Numbers the names in a directory as in the same directory of the base, and new ones after those.
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
            self.indexes[entry.0 as usize] = index(self, other);
            // The empty directory in place of a nested subvolume has no identity.
            let (file, other) = (inventory.file(entry), inventory.file(other));
            let is_empty = |file| {
                inventory.kind(file) == FileKind::Directory
                    && inventory.entries(file).next().is_none()
            };
            if self.identities[file.0 as usize].number == 0
                && is_empty(file)
                && is_empty(other)
                && inventory.metadata(file) == inventory.metadata(other)
            {
                self.identities[file.0 as usize] = self.identities[other.0 as usize];
            }
        }
        for (entry, index) in new.into_iter().zip(end..) {
            self.indexes[entry.0 as usize] = index;
        }
    }
}

/// The directory index of an entry, unless a base has another: names are numbered in their order.
pub(crate) fn usual_index(inventory: &Inventory, entry: EntryId) -> u64 {
    let first = inventory.entries(inventory.parent(entry)).next();
    u64::from(entry.0 - first.map_or(entry.0, |first| first.0)) + 2
}

/// The smallest hashes of a subvolume's files, in ascending order.
fn sample(files: &[FileId], known: &[Option<FileIdentity>]) -> Vec<u64> {
    let identities = files.iter().filter_map(|file| known[file.0 as usize]);
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
