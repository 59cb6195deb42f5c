//! Compares the counts of quota groups with the extents of subvolumes.
//!
//! With full quotas, an extent counts for each subvolume that refers to it, and is exclusive to a
//! group if no subvolume outside the group refers to it. With simple quotas, an extent counts for
//! the subvolume that created it.
#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing,
        clippy::unwrap_used
    )
)]

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use tree::{Result, to_u64};
use zerocopy::FromBytes;

use super::extents::RecordedExtent;
use super::state::{BtrfsChecker, Note};
use crate::disk::key::{Key, is_file_tree, item};
use crate::disk::raw;
use crate::disk::subvolume::TreeRoot;
use crate::disk::tree::Tree;

/// Steps of counting after which the comparison is given up. A file system needs about as many as
/// it has extents, times the quota groups that one of them counts for; only a hostile one needs
/// more.
const STEPS_MAX: u64 = 1 << 28;

/// Total length of the kept sets of subvolumes and of groups, for the same reason.
const SETS_LEN_MAX: usize = 1 << 24;

/// Groups that one subvolume may count for; people have a handful.
const GROUPS_ABOVE_MAX: usize = 1024;

/// Referenced and exclusive bytes.
type Counts = (u64, u64);

/// The quota tree.
#[derive(Default)]
struct QuotaGroups {
    counts: BTreeMap<u64, (Counts, Counts)>,
    /// Groups and the groups above them, one level or more above.
    parents: BTreeMap<u64, Vec<u64>>,
}

impl QuotaGroups {
    /// All groups that count this subvolume's extents; `None` if there are too many.
    fn above(&self, subvolume: u64) -> Option<Vec<u64>> {
        let mut list = vec![subvolume];
        let mut known = BTreeSet::new();
        let mut next = 0;
        while let Some(&group) = list.get(next) {
            for &parent in self.parents.get(&group).into_iter().flatten() {
                if known.insert(parent) {
                    list.push(parent);
                }
                if list.len() > GROUPS_ABOVE_MAX {
                    return None;
                }
            }
            next = next.saturating_add(1);
        }
        Some(list)
    }
}

/// The level of a quota group; those of level 0 are subvolumes.
const fn level(group: u64) -> u64 {
    group >> 48
}

/// Sets of subvolumes, each kept once.
#[derive(Default)]
struct SubvolumeSets {
    list: Vec<Box<[u64]>>,
    numbers: HashMap<Box<[u64]>, usize>,
    unions: HashMap<(usize, usize), usize>,
    /// Total length of the list.
    len: usize,
    /// Steps taken to unite sets.
    steps: u64,
}

impl SubvolumeSets {
    /// The number of a sorted set.
    fn number(&mut self, set: &[u64]) -> usize {
        if let Some(&number) = self.numbers.get(set) {
            return number;
        }
        let number = self.list.len();
        self.len = self.len.saturating_add(set.len());
        self.list.push(set.into());
        self.numbers.insert(set.into(), number);
        number
    }

    #[expect(clippy::indexing_slicing, reason = "`number` gave out the indices")]
    fn union(&mut self, a: usize, b: usize) -> usize {
        if a == b {
            return a;
        }
        let pair = (a.min(b), a.max(b));
        if let Some(&number) = self.unions.get(&pair) {
            return number;
        }
        let mut both = [&*self.list[a], &*self.list[b]].concat();
        self.steps = self.steps.saturating_add(to_u64(both.len()));
        both.sort_unstable();
        both.dedup();
        let number = self.number(&both);
        self.unions.insert(pair, number);
        number
    }
}

impl BtrfsChecker<'_> {
    /// The flags and the first counted commit, if there are quotas whose counts must be right.
    pub(super) fn quotas(&self, tree: &Tree) -> Result<Option<(u64, u64)>> {
        let volume = &self.btrfs.volume;
        let key = Key::new(0, item::QGROUP_STATUS, 0);
        let status = tree.get(volume, key, |item| {
            let Ok((raw, rest)) = raw::QgroupStatus::ref_from_prefix(item.data) else {
                return Err(item.corrupt("quota status is too short", to_u64(item.data.len())));
            };
            let word = rest.first_chunk();
            let enabled = word.map_or(0, |word| u64::from_le_bytes(*word));
            Ok((raw.flags.get(), enabled))
        })?;
        let inexact = raw::QGROUP_RESCAN | raw::QGROUP_INCONSISTENT;
        Ok(status.filter(|(flags, _)| flags & inexact == 0))
    }

    /// Compares the counts of all quota groups.
    pub(super) fn quota_groups(&mut self, tree: &Tree, roots: &[TreeRoot]) -> Result<()> {
        let mut groups = self.read_groups(tree)?;
        let Some((flags, enabled)) = self.quotas(tree)? else {
            self.notes.push(Note::QuotasInconsistent);
            return Ok(());
        };
        let is_counted = if flags & raw::QGROUP_SIMPLE != 0 {
            self.count_owners(&mut groups, enabled)
        } else {
            self.count_references(&mut groups, roots)
        };
        if !is_counted {
            self.notes.push(Note::QuotasNotCounted);
            return Ok(());
        }
        for (&group, &(stored, found)) in &groups.counts {
            for (what, stored, found) in [
                (
                    "quota group's referenced bytes are wrong",
                    stored.0,
                    found.0,
                ),
                ("quota group's exclusive bytes are wrong", stored.1, found.1),
            ] {
                if stored != found {
                    self.corrupt(what, tree.id, group, stored)?;
                }
            }
        }
        Ok(())
    }

    fn read_groups(&mut self, tree: &Tree) -> Result<QuotaGroups> {
        let mut groups = QuotaGroups::default();
        let mut cursor = tree.seek(&self.btrfs.volume, Key::MIN)?;
        while let Some(item) = cursor.item() {
            let is_status = item.key.kind == item::QGROUP_STATUS && item.key.offset != 0;
            if is_status || item.key.kind != item::QGROUP_RELATION && item.key.objectid != 0 {
                let error = item.corrupt("quota item's key is wrong", item.key.objectid);
                self.found(tree.id, error)?;
            }
            match item.key.kind {
                item::QGROUP_STATUS | item::QGROUP_LIMIT => {}
                item::QGROUP_INFO => match raw::QgroupInfo::ref_from_bytes(item.data) {
                    Ok(raw) => {
                        let stored = (raw.rfer.get(), raw.excl.get());
                        groups.counts.insert(item.key.offset, (stored, (0, 0)));
                    }
                    Err(_) => {
                        let len = to_u64(item.data.len());
                        self.found(tree.id, item.corrupt("quota group's size is wrong", len))?;
                    }
                },
                item::QGROUP_RELATION => {
                    // Stored in both directions; the level tells which one this is.
                    let (one, other) = (item.key.objectid, item.key.offset);
                    match level(one).cmp(&level(other)) {
                        std::cmp::Ordering::Less => {
                            groups.parents.entry(one).or_default().push(other);
                        }
                        std::cmp::Ordering::Greater => {}
                        std::cmp::Ordering::Equal => {
                            let what = "quota group is part of one of its level";
                            self.found(tree.id, item.corrupt(what, other))?;
                        }
                    }
                }
                other => {
                    let what = "item in the quota tree is of an unexpected kind";
                    self.found(tree.id, item.corrupt(what, other.into()))?;
                }
            }
            cursor.advance()?;
        }
        Ok(groups)
    }

    /// Counts the extents of each subvolume; `false` if that takes too much.
    fn count_references(&mut self, groups: &mut QuotaGroups, roots: &[TreeRoot]) -> bool {
        let mut paths = std::mem::take(&mut self.paths).unwrap_or_default();
        let mut sets = SubvolumeSets::default();
        let mut sets_of: HashMap<u64, usize> = HashMap::new();
        let join =
            |sets: &mut SubvolumeSets, sets_of: &mut HashMap<u64, usize>, at: u64, set: usize| {
                let entry = sets_of.entry(at).or_insert(set);
                *entry = sets.union(*entry, set);
                sets.len <= SETS_LEN_MAX && sets.steps <= STEPS_MAX
            };
        for root in roots.iter().filter(|root| is_file_tree(root.tree.id)) {
            let set = sets.number(&[root.tree.id]);
            if !join(&mut sets, &mut sets_of, root.tree.root.0, set) {
                return false;
            }
        }
        // From the top level down, so that all that leads to a block is known before what the block
        // refers to.
        (paths.edges).sort_unstable_by_key(|&(level, from, to)| (!level, from, to));
        paths.edges.dedup();
        for (_, from, to) in &paths.edges {
            if let Some(&set) = sets_of.get(from)
                && !join(&mut sets, &mut sets_of, *to, set)
            {
                return false;
            }
        }
        drop(paths);
        let mut bytes = vec![0_u64; sets.list.len()];
        for extent in &self.extents.list {
            let set = sets_of.get(&extent.at);
            if let Some(bytes) = set.and_then(|&set| bytes.get_mut(set)) {
                *bytes = bytes.saturating_add(extent.len);
            }
        }
        let (mut steps, mut kept) = (0_u64, 0_usize);
        let mut above: HashMap<u64, Vec<u64>> = HashMap::new();
        let mut shares: HashMap<u64, usize> = HashMap::new();
        for (set, bytes) in sets.list.iter().zip(bytes).filter(|(_, bytes)| *bytes > 0) {
            shares.clear();
            for &subvolume in set {
                let list = match above.entry(subvolume) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(place) => {
                        let Some(list) = groups.above(subvolume) else {
                            return false;
                        };
                        kept = kept.saturating_add(list.len());
                        place.insert(list)
                    }
                };
                for &group in &*list {
                    let share = shares.entry(group).or_default();
                    *share = share.saturating_add(1);
                    steps = steps.saturating_add(1);
                }
                if steps > STEPS_MAX || kept > SETS_LEN_MAX {
                    return false;
                }
            }
            for (group, count) in &shares {
                if let Some((_, (referenced, exclusive))) = groups.counts.get_mut(group) {
                    *referenced = referenced.saturating_add(bytes);
                    if *count == set.len() {
                        *exclusive = exclusive.saturating_add(bytes);
                    }
                }
            }
        }
        true
    }

    /// Counts the extents that each subvolume created since quotas are on.
    fn count_owners(&mut self, groups: &mut QuotaGroups, enabled: u64) -> bool {
        let mut bytes: BTreeMap<u64, u64> = BTreeMap::new();
        for extent in &self.extents.list {
            let RecordedExtent { at, owner, .. } = *extent;
            let owner = match self.references.visited.get(&at) {
                Some(block) if extent.is_tree_block => block.owner,
                _ => owner,
            };
            if extent.generation >= enabled && is_file_tree(owner) {
                let sum = bytes.entry(owner).or_default();
                *sum = sum.saturating_add(extent.len);
            }
        }
        for (owner, bytes) in bytes {
            let Some(above) = groups.above(owner) else {
                return false;
            };
            for group in above {
                if let Some((_, (referenced, exclusive))) = groups.counts.get_mut(&group) {
                    *referenced = referenced.saturating_add(bytes);
                    *exclusive = exclusive.saturating_add(bytes);
                }
            }
        }
        true
    }
}
